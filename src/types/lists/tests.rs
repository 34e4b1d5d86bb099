//! Lists against the standard library's, with limits that steps cross in both directions of growth. Each step
//! is also repeated from the log on a copy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::dump::packed::writing::element_bytes;
use crate::dump::strings::Decoder;
use crate::keyspace::{Attempt, Attempted, Change, Keyspace, Piece, Shape, Transaction, Waiter};
use crate::values::{Encoding, Sink, Value};

type Model = Vec<Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Push(ListEnd, Model),
    Pop(ListEnd, Index),
    Set(Index, Vec<u8>),
    Insert(Beside, Index, Vec<u8>),
    Remove(Index, ListEnd, usize),
    Trim(Index, Index),
    Copy,
}

fn end() -> impl Strategy<Value = ListEnd> {
    prop_oneof![Just(ListEnd::Head), Just(ListEnd::Tail)]
}

/// Few different elements, so that some are equal, and some that are too large to be packed.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => (0..8u8).prop_map(|number| number.to_string().into_bytes()),
        4 => (0..300usize).prop_map(|length| vec![b'x'; length]),
        1 => (900..1200usize).prop_map(|length| vec![b'y'; length]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        8 => (end(), vec(element(), 1..6)).prop_map(|(end, elements)| Step::Push(end, elements)),
        1 => (end(), vec(element(), 1..80)).prop_map(|(end, elements)| Step::Push(end, elements)),
        4 => (end(), index()).prop_map(|(end, count)| Step::Pop(end, count)),
        3 => (index(), element()).prop_map(|(at, element)| Step::Set(at, element)),
        2 => (index(), element()).prop_map(|(pivot, element)| Step::Insert(Beside::Before, pivot, element)),
        2 => (index(), element()).prop_map(|(pivot, element)| Step::Insert(Beside::After, pivot, element)),
        3 => (index(), end(), 1..5usize).prop_map(|(at, end, count)| Step::Remove(at, end, count)),
        1 => (index(), index()).prop_map(|(start, end)| Step::Trim(start, end)),
        1 => Just(Step::Copy),
    ]
}

fn alone() -> Keyspace {
    Keyspace::new(Shape::of(1, crate::types::ALL), Arc::default(), Arc::default())
}

fn keyspace(limit: Limit) -> Keyspace {
    let keyspace = alone();
    keyspace.limits().set(LIST_KIND, limit);
    keyspace.begin_all(0).unwrap().cut_journal();
    keyspace
}

fn outermost(end: ListEnd, count: usize, len: usize) -> Range<usize> {
    if end == ListEnd::Head { 0..count } else { len - count..len }
}

/// Copies the list to another key. Later steps change one of two lists that share their nodes.
fn copy_list(keyspace: &Keyspace) {
    let mut tx = keyspace.begin_all(0).unwrap();
    if tx.is_there(b"k") {
        tx.copy(b"k", 0, b"copy");
    }
    tx.commit();
}

/// Makes a step with a list, and with its model.
fn take(keyspace: &Keyspace, model: &mut Model, step: &Step) {
    if let Step::Copy = step {
        return copy_list(keyspace);
    }
    let mut tx = keyspace.begin(0, b"k").unwrap();
    let len = model.len();
    match step {
        Step::Push(end, elements) => {
            for element in elements {
                model.insert(if *end == ListEnd::Head { 0 } else { model.len() }, element.clone());
            }
            let push = |list: &mut Change<'_, List>| {
                elements.iter().for_each(|element| list.push(*end, element));
            };
            tx.make::<List, _>(b"k", "push", push).unwrap();
        }
        _ if len == 0 => {
            assert!(tx.change::<List, _>(b"k", "none", |_| ()).unwrap().is_none());
        }
        Step::Pop(end, count) => {
            let count = 1 + count.index(len.min(12));
            model.drain(outermost(*end, count, len));
            tx.change::<List, _>(b"k", "pop", |list| list.pop(*end, count)).unwrap();
        }
        Step::Set(at, element) => {
            model[at.index(len)].clone_from(element);
            tx.change::<List, _>(b"k", "lset", |list| list.set(at.index(len), element)).unwrap();
        }
        Step::Insert(beside, at, element) => {
            let pivot = model[at.index(len)].clone();
            let first = model.iter().position(|other| *other == pivot).unwrap();
            model.insert(first + usize::from(*beside == Beside::After), element.clone());
            let insert = |list: &mut Change<'_, List>| list.insert(*beside, &pivot, element);
            assert_eq!(tx.change::<List, _>(b"k", "linsert", insert).unwrap(), Some(true));
            let miss = |list: &mut Change<'_, List>| list.insert(*beside, b"none", element);
            assert_eq!(tx.change::<List, _>(b"k", "linsert", miss).unwrap(), Some(false));
        }
        Step::Remove(at, end, count) => {
            let wanted = model[at.index(len)].clone();
            let removed = remove(model, &wanted, *end, *count);
            let remove = |list: &mut Change<'_, List>| list.remove(&wanted, *end, *count);
            assert_eq!(tx.change::<List, _>(b"k", "lrem", remove).unwrap(), Some(removed));
        }
        Step::Trim(start, end) => {
            let kept = start.index(len)..end.index(len + 1);
            *model = model.get(kept.clone()).unwrap_or_default().to_vec();
            tx.change::<List, _>(b"k", "ltrim", |list| list.trim(kept)).unwrap();
        }
        Step::Copy => {}
    }
    tx.commit();
}

fn remove(model: &mut Model, wanted: &[u8], end: ListEnd, count_max: usize) -> usize {
    let before = model.len();
    for _ in 0..count_max {
        let found = match end {
            ListEnd::Head => model.iter().position(|element| element == wanted),
            ListEnd::Tail => model.iter().rposition(|element| element == wanted),
        };
        let Some(at) = found else { break };
        model.remove(at);
    }
    before - model.len()
}

/// The requests that were logged since the last call.
fn logged(keyspace: &Keyspace) -> Vec<Model> {
    let mut requests = Vec::new();
    for piece in keyspace.journal().taken() {
        let Piece::Records(bytes) = piece else { continue };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let words = number(&mut rest);
            let word = |_| {
                let length = number(&mut rest);
                let word = rest[..length].to_vec();
                rest = &rest[length + 2..];
                word
            };
            requests.push((0..words).map(word).collect());
        }
    }
    requests
}

/// Reads a line of the protocol: a sign, and a number.
fn number(rest: &mut &[u8]) -> usize {
    let end = rest.iter().position(|byte| *byte == b'\r').unwrap();
    let number = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
    *rest = &rest[end + 2..];
    number
}

/// Repeats a request of the log, as Redis understands it.
fn repeat(copy: &mut Model, request: &[Vec<u8>]) {
    let integer = |at: usize| -> i64 { std::str::from_utf8(&request[at]).unwrap().parse().unwrap() };
    let count = || if request.len() > 2 { integer(2) as usize } else { 1 };
    let len = copy.len();
    match &request[0][..] {
        b"SELECT" | b"MULTI" | b"EXEC" | b"COPY" => {}
        _ if request[1] == b"copy" => {}
        b"DEL" => copy.clear(),
        b"RPUSH" => copy.extend_from_slice(&request[2..]),
        b"LPUSH" => request[2..].iter().for_each(|element| copy.insert(0, element.clone())),
        b"LPOP" => drop(copy.drain(..count())),
        b"RPOP" => copy.truncate(len - count()),
        b"LSET" => copy[integer(2) as usize].clone_from(&request[3]),
        b"LINSERT" => {
            let pivot = copy.iter().position(|element| *element == request[3]).unwrap();
            copy.insert(pivot + usize::from(request[2] == b"AFTER"), request[4].clone());
        }
        b"LREM" => {
            let end = if integer(2) < 0 { ListEnd::Tail } else { ListEnd::Head };
            let wanted = integer(2).unsigned_abs() as usize;
            assert_eq!(remove(copy, &request[3], end, wanted), wanted);
        }
        b"LTRIM" => *copy = copy[integer(2) as usize..=integer(3) as usize].to_vec(),
        _ => panic!("{}", request[0].escape_ascii()),
    }
}

fn check(keyspace: &Keyspace, model: &Model, limit: Limit) -> Result<(), TestCaseError> {
    let tx = keyspace.begin(0, b"k").unwrap();
    let Some(list) = tx.get::<List>(b"k").unwrap() else {
        prop_assert!(model.is_empty());
        prop_assert!(tx.type_of(b"k").is_none());
        return Ok(());
    };
    let len = model.len();
    prop_assert!(len > 0 && list.len() == len);
    prop_assert!(list.iter().eq(model.iter().map(|element| &element[..])));
    prop_assert!(list.reversed(0..len).eq(model.iter().rev().map(|element| &element[..])));
    for start in [0, 1, len / 2, len] {
        let part = list.range(start..len + 3);
        prop_assert_eq!(part.len(), len - start);
        prop_assert!(part.eq(model[start..].iter().map(|element| &element[..])));
        prop_assert_eq!(list.get(start), model.get(start).map(|element| &element[..]));
    }
    if let ListView::Packed(packed) = list {
        prop_assert!(packed.len() <= PACKED_BYTES_MAX && len <= limit.entries.max(1));
    }
    let bytes = 7 + model.iter().map(|element| element_bytes(element)).sum::<usize>();
    let is_listpack = matches!(list, ListView::Packed(_)) || bytes <= limit.bytes && len <= limit.entries;
    let content = tx.get_any(b"k").unwrap().content;
    let name = (FACTS.encoding)(content, Encoding::Typed, limit);
    prop_assert_eq!(name, if is_listpack { "listpack" } else { "quicklist" });
    saved_and_loaded(content, model, limit)
}

/// The RDB form comes back, small or large.
fn saved_and_loaded(content: Content<'_>, model: &Model, limit: Limit) -> Result<(), TestCaseError> {
    let mut saved = Vec::new();
    let value = Value { facts: &FACTS, content };
    value.save(&mut saved as &mut dyn Sink, NODE_LIMIT, None).unwrap();
    let mut packed = Vec::new();
    let mut source = Decoder::new(&saved[..], 1 << 20);
    let loaded = (FACTS.load)(value.rdb_type(), &mut source, limit, &mut packed).unwrap();
    prop_assert!(List::view(loaded.content(&packed)).iter().eq(model.iter().map(|element| &element[..])));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_is_the_model_s_in_every_form_and_its_log_repeats_it(
        entries in prop_oneof![Just(1usize), Just(7), Just(usize::MAX)],
        steps in vec(step(), 1..60),
    ) {
        let limit = Limit { entries, bytes: 4096, integers: 0 };
        let keyspace = keyspace(limit);
        let (mut model, mut copy, mut copied) = (Model::new(), Model::new(), Model::new());
        for step in &steps {
            if matches!(step, Step::Copy) && !model.is_empty() {
                copied.clone_from(&model);
            }
            take(&keyspace, &mut model, step);
            check(&keyspace, &model, limit)?;
            logged(&keyspace).iter().for_each(|request| repeat(&mut copy, request));
            prop_assert_eq!(&copy, &model);
        }
        let tx = keyspace.begin(0, b"copy").unwrap();
        let list = tx.get::<List>(b"copy").unwrap().unwrap_or(ListView::EMPTY);
        prop_assert!(list.iter().eq(copied.iter().map(|element| &element[..])));
    }
}

#[test]
fn the_requests_of_one_change_are_few() {
    let keyspace = keyspace(Limit { entries: usize::MAX, bytes: 8192, integers: 0 });
    let mut model = Model::new();
    let text = |text: &str| text.as_bytes().to_vec();
    let steps = [
        Step::Push(ListEnd::Tail, vec![text("a"), text("b"), text("a"), text("c")]),
        Step::Push(ListEnd::Head, vec![text("y"), text("z")]),
    ];
    let lines = || -> Vec<String> {
        let requests = logged(&keyspace);
        requests.iter().map(|words| String::from_utf8(words.join(&b' ')).unwrap()).collect()
    };
    steps.iter().for_each(|step| take(&keyspace, &mut model, step));
    assert_eq!(lines(), ["SELECT 0", "RPUSH k a b a c", "LPUSH k y z"]);
    let mut tx = keyspace.begin(0, b"k").unwrap();
    tx.change::<List, _>(b"k", "pop", |list| list.pop(ListEnd::Head, 2)).unwrap();
    tx.change::<List, _>(b"k", "pop", |list| list.pop(ListEnd::Tail, 1)).unwrap();
    assert_eq!(
        tx.change::<List, _>(b"k", "lrem", |list| list.remove(b"a", ListEnd::Tail, 9)).unwrap(),
        Some(2)
    );
    tx.change::<List, _>(b"k", "lset", |list| list.set(0, b"d")).unwrap();
    tx.commit();
    drop(tx);
    assert_eq!(lines(), ["MULTI", "LPOP k 2", "RPOP k", "LREM k -2 a", "LSET k 0 d", "EXEC"]);
}

#[test]
fn a_list_is_saved_in_the_nodes_that_redis_would_make() {
    let keyspace = keyspace(Limit { entries: usize::MAX, bytes: 8192, integers: 0 });
    let mut model = Model::new();
    let elements = vec![vec![b'x'; 5000], vec![b'y'; 3000], vec![b'z'; 9000], b"1".to_vec()];
    take(&keyspace, &mut model, &Step::Push(ListEnd::Tail, elements));
    let tx = keyspace.begin(0, b"k").unwrap();
    let mut saved = Vec::new();
    tx.get_any(b"k").unwrap().save(&mut saved, NODE_LIMIT, None).unwrap();
    // Three nodes: a listpack of two elements, a single element, and a listpack of one.
    assert_eq!(saved[..2], [3, 2]);
    let (plain, last) = (saved.len() - 9000 - 3 - 11, saved.len() - 11);
    assert_eq!(saved[plain..plain + 4], [1, 0x40 | (9000_u16 >> 8) as u8, 9000_u16 as u8, b'z']);
    assert_eq!(saved[last..], [2, 9, 9, 0, 0, 0, 1, 0, 1, 1, 0xff]);
}

#[test]
fn what_a_large_list_lets_go_is_left_to_be_freed_without_locks() {
    let (keyspace, element) = (alone(), vec![b'x'; 1 << 20]);
    let mut tx = keyspace.begin(0, b"k").unwrap();
    let push = |list: &mut Change<'_, List>| (0..40).for_each(|_| list.push(ListEnd::Tail, &element));
    tx.make::<List, _>(b"k", "rpush", push).unwrap();
    assert!(tx.take_large_garbage().is_none());
    tx.change::<List, _>(b"k", "ltrim", |list| list.trim(1..3)).unwrap();
    assert!(tx.take_large_garbage().is_some());
    assert_eq!(tx.get::<List>(b"k").unwrap().map(ListView::len), Some(2));
}

/// A client that leaves while another one tries to serve it, in vain.
#[derive(Default)]
struct Leaving {
    waiter: Mutex<Option<Arc<Waiter>>>,
    tries: AtomicUsize,
}

impl Attempt for Arc<Leaving> {
    fn kind(&self) -> u8 {
        LIST_KIND
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn attempt(&self, _: &mut Transaction<'_>, _: &[&[u8]], _: &mut Vec<u8>) -> Attempted {
        self.tries.fetch_add(1, Ordering::Relaxed);
        self.waiter.lock().unwrap().take().expect("it is tried once").leave();
        Attempted::Nothing
    }

    fn ends_without_value(&self) -> bool {
        false
    }

    fn wake(&self) {}

    fn client(&self) -> u64 {
        1
    }
}

#[test]
fn a_client_that_has_left_while_it_was_tried_is_not_tried_again() {
    let (keyspace, leaving) = (alone(), Arc::new(Leaving::default()));
    let mut tx = keyspace.begin(0, b"k").unwrap();
    let waiter = tx.block([&b"k"[..]].into_iter(), std::iter::empty(), None, Box::new(Arc::clone(&leaving)));
    drop(tx);
    // A shard that is held for long keeps a waiter whose client could not remove it.
    *leaving.waiter.lock().unwrap() = Some(waiter);
    for _ in 0..2 {
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.make::<List, _>(b"k", "rpush", |list| list.push(ListEnd::Tail, b"one")).unwrap();
        tx.serve_blocked();
        tx.commit();
    }
    assert_eq!(leaving.tries.load(Ordering::Relaxed), 1);
}
