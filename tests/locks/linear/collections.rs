//! The same of collections: an element goes to exactly one of the clients that take it, whether they wait for
//! it or not, and counts are counted once.
//!
//! Some clients push, pop, move and wait on the same two lists, one sorted set or one hash, which cross the
//! limits of their encodings all the time. porcupine looks for an order that explains all replies. What
//! waits is done at some moment between its request and its reply, like all else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

use support::client::{Client, Reply};
use support::server::{Server, is_redis};

/// How many clients use a collection at once, and how many requests each sends.
const CLIENTS: usize = 5;
const REQUESTS: usize = 24;
/// How many collections of each kind are made, one after the other.
const COLLECTIONS: usize = 24;
/// How long porcupine may think about one.
const THINKING: Duration = Duration::from_secs(60);

/// A request, with its reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Told {
    request: Request,
    reply: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    /// RPUSH or LPUSH of an element to one of two lists.
    Push { list: usize, is_tail: bool, element: i64 },
    /// LPOP or RPOP.
    Pop { list: usize, is_tail: bool },
    /// BLPOP or BRPOP of one list, or of both.
    WaitToPop { is_tail: bool, lists: Lists },
    /// LMOVE and BLMOVE from the head of a list to the tail of the other one.
    Move { from: usize, waits: bool },
    /// LRANGE of a whole list.
    Elements { list: usize },
    /// ZADD of a new member.
    Add { member: i64, score: i64 },
    /// ZPOPMIN, ZPOPMAX, BZPOPMIN and BZPOPMAX.
    PopMember { is_max: bool, waits: bool },
    /// ZREM.
    RemoveMember { member: i64 },
    /// ZRANGE of the whole set.
    Members,
    /// HINCRBY of a field.
    Count { field: i64, by: i64 },
    /// HSETNX.
    SetField { field: i64, value: i64 },
    /// HDEL.
    RemoveField { field: i64 },
    /// HGETALL, in the order of the fields.
    Fields,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lists {
    One(usize),
    Both,
}

/// What came back: numbers in the order of the reply; none for nil.
type Found = Vec<i64>;

/// A collection of any of the kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Collection {
    lists: [VecDeque<i64>; 2],
    /// Scores, each with its member: in their order.
    members: BTreeSet<(i64, i64)>,
    fields: BTreeMap<i64, i64>,
}

impl Collection {
    /// Does what a request asks; returns what a server replies.
    fn apply(&mut self, request: Request) -> Found {
        match request {
            Request::Push { list, is_tail, element } => {
                let list = &mut self.lists[list];
                if is_tail {
                    list.push_back(element)
                } else {
                    list.push_front(element)
                }
                vec![list.len() as i64]
            }
            Request::Pop { list, is_tail } => self.pop(list, is_tail).into_iter().collect(),
            Request::WaitToPop { is_tail, lists } => {
                let mut lists = match lists {
                    Lists::One(list) => list..list + 1,
                    Lists::Both => 0..2,
                };
                let found = lists.find_map(|list| Some((list, self.pop(list, is_tail)?)));
                found.map(|(list, element)| vec![list as i64, element]).unwrap_or_default()
            }
            Request::Move { from, .. } => {
                let moved = self.pop(from, false);
                self.lists[1 - from].extend(moved);
                moved.into_iter().collect()
            }
            Request::Elements { list } => self.lists[list].iter().copied().collect(),
            Request::Add { member, score } => {
                vec![i64::from(self.members.insert((score, member)))]
            }
            Request::PopMember { is_max, .. } => {
                let popped = if is_max { self.members.pop_last() } else { self.members.pop_first() };
                popped.map(|(score, member)| vec![member, score]).unwrap_or_default()
            }
            Request::RemoveMember { member } => {
                let before = self.members.len();
                self.members.retain(|(_, other)| *other != member);
                vec![(before - self.members.len()) as i64]
            }
            Request::Members => self.members.iter().map(|(_, member)| *member).collect(),
            Request::Count { field, by } => {
                let value = self.fields.entry(field).or_default();
                *value += by;
                vec![*value]
            }
            Request::SetField { field, value } => {
                let is_new = !self.fields.contains_key(&field);
                self.fields.entry(field).or_insert(value);
                vec![i64::from(is_new)]
            }
            Request::RemoveField { field } => vec![i64::from(self.fields.remove(&field).is_some())],
            Request::Fields => self.fields.iter().flat_map(|(field, value)| [*field, *value]).collect(),
        }
    }

    fn pop(&mut self, list: usize, is_tail: bool) -> Option<i64> {
        let list = &mut self.lists[list];
        if is_tail { list.pop_back() } else { list.pop_front() }
    }
}

impl Model for Collection {
    type State = Collection;
    type Op = Told;
    type Metadata = ();

    fn init() -> Collection {
        Collection::default()
    }

    fn step(before: &Collection, told: &Told) -> (bool, Collection) {
        let mut after = before.clone();
        let is_right = after.apply(told.request) == told.reply;
        (is_right, after)
    }
}

/// A request and its reply, from a moment to a moment, in nanoseconds.
type Timed = (u64, u64, Told);

fn is_linearizable(history: &[Timed]) -> bool {
    let translate = |(sent, ended, told): &Timed| Operation::<Collection> {
        client_id: None,
        call_time: *sent as i64,
        return_time: *ended as i64,
        op: told.clone(),
        metadata: None,
    };
    let operations: Vec<_> = history.iter().map(translate).collect();
    match check_operations_timeout::<Collection>(&operations, THINKING) {
        CheckResult::Ok => true,
        CheckResult::Illegal => false,
        CheckResult::Unknown => panic!("porcupine did not come to an end with {} requests", history.len()),
    }
}

/// The name of the element, member or field with a number. Elements of lists are so long that few are packed.
fn name(number: i64, is_long: bool) -> String {
    if is_long { format!("{number:0250}") } else { format!("{number:05}") }
}

/// The words of a request on the collection with this number.
fn words(collection: usize, request: Request) -> Vec<String> {
    let list = |number: usize| format!("list:{collection}:{number}");
    let (set, hash) = (format!("set:{collection}"), format!("hash:{collection}"));
    let end = |is_tail: bool, head: &str, tail: &str| if is_tail { tail } else { head }.to_owned();
    // Long enough for some to be served, and short enough for some to wait in vain.
    let timeout = || "0.01".to_owned();
    match request {
        Request::Push { list: at, is_tail, element } => {
            vec![end(is_tail, "LPUSH", "RPUSH"), list(at), name(element, true)]
        }
        Request::Pop { list: at, is_tail } => vec![end(is_tail, "LPOP", "RPOP"), list(at)],
        Request::WaitToPop { is_tail, lists } => {
            let keys = match lists {
                Lists::One(at) => vec![list(at)],
                Lists::Both => vec![list(0), list(1)],
            };
            [vec![end(is_tail, "BLPOP", "BRPOP")], keys, vec![timeout()]].concat()
        }
        Request::Move { from, waits } => {
            let words = [end(waits, "LMOVE", "BLMOVE"), list(from), list(1 - from)];
            let ends = ["LEFT", "RIGHT"].map(str::to_owned);
            words.into_iter().chain(ends).chain(waits.then(timeout)).collect()
        }
        Request::Elements { list: at } => ["LRANGE", &list(at), "0", "-1"].map(str::to_owned).into(),
        Request::Add { member, score } => {
            vec!["ZADD".to_owned(), set, score.to_string(), name(member, false)]
        }
        Request::PopMember { is_max, waits: false } => vec![end(is_max, "ZPOPMIN", "ZPOPMAX"), set],
        Request::PopMember { is_max, waits: true } => {
            vec![end(is_max, "BZPOPMIN", "BZPOPMAX"), set, timeout()]
        }
        Request::RemoveMember { member } => vec!["ZREM".to_owned(), set, name(member, false)],
        Request::Members => ["ZRANGE", &set, "0", "-1"].map(str::to_owned).into(),
        Request::Count { field, by } => {
            vec!["HINCRBY".to_owned(), hash, name(field, false), by.to_string()]
        }
        Request::SetField { field, value } => {
            vec!["HSETNX".to_owned(), hash, name(field, false), value.to_string()]
        }
        Request::RemoveField { field } => vec!["HDEL".to_owned(), hash, name(field, false)],
        Request::Fields => vec!["HGETALL".to_owned(), hash],
    }
}

/// The numbers in a reply: what is not one is the name of a list, whose last digit counts.
fn numbers(reply: Reply) -> Found {
    match reply {
        Reply::Integer(number) => vec![number],
        Reply::Null => Vec::new(),
        Reply::Bulk(bytes) => {
            let text = String::from_utf8(bytes).expect("a text");
            let number = text.rsplit(':').next().and_then(|number| number.parse().ok());
            number.into_iter().collect()
        }
        Reply::Array(items) => items.into_iter().flat_map(numbers).collect(),
        other => panic!("{other}"),
    }
}

fn read(request: Request, reply: Reply) -> Found {
    let found = numbers(reply);
    match request {
        // A set's key stands in front of what was waited for.
        Request::PopMember { waits: true, .. } if !found.is_empty() => found[1..].to_vec(),
        // Fields come in any order.
        Request::Fields => {
            let fields: BTreeMap<i64, i64> = found.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            fields.into_iter().flat_map(|(field, value)| [field, value]).collect()
        }
        _ => found,
    }
}

fn draw_for_lists(random: &mut Rng, token: i64) -> Request {
    let (list, is_tail) = (random.usize(..2), random.bool());
    match random.u32(..20) {
        0..7 => Request::Push { list, is_tail, element: token },
        7..10 => Request::Pop { list, is_tail },
        10..13 => Request::WaitToPop { is_tail, lists: Lists::One(list) },
        13..15 => Request::WaitToPop { is_tail, lists: Lists::Both },
        15..17 => Request::Move { from: list, waits: true },
        17 => Request::Move { from: list, waits: false },
        _ => Request::Elements { list },
    }
}

fn draw_for_members(random: &mut Rng, token: i64) -> Request {
    let is_max = random.bool();
    match random.u32(..20) {
        0..9 => Request::Add { member: token, score: random.i64(-2..3) },
        9..12 => Request::PopMember { is_max, waits: false },
        12..17 => Request::PopMember { is_max, waits: true },
        17 => Request::RemoveMember { member: random.i64(..token + 1) },
        _ => Request::Members,
    }
}

fn draw_for_fields(random: &mut Rng, token: i64) -> Request {
    let field = random.i64(..8);
    match random.u32(..20) {
        0..8 => Request::Count { field, by: random.i64(1..9) },
        8..13 => Request::SetField { field, value: token },
        13..18 => Request::RemoveField { field },
        _ => Request::Fields,
    }
}

/// Collections cross the limits of their encodings often.
const LIMITS: [[&str; 2]; 3] = [
    ["--list-max-listpack-size", "3"],
    ["--zset-max-listpack-entries", "3"],
    ["--hash-max-listpack-entries", "3"],
];

/// Lets clients use collections, and checks their replies.
fn record_and_check(draw: fn(&mut Rng, i64) -> Request) -> Vec<Told> {
    let threads: &[&str] = if is_redis() { &[] } else { &["--io-threads", "4"] };
    record_and_check_over(&[Server::start_with(&[LIMITS.as_flattened(), threads].concat())], draw)
}

/// The same with collections of all kinds, over servers that show the same keys.
pub(crate) fn check_collections_over(servers: &[Server]) {
    for draw in [draw_for_lists, draw_for_members, draw_for_fields] {
        record_and_check_over(servers, draw);
    }
}

fn record_and_check_over(servers: &[Server], draw: fn(&mut Rng, i64) -> Request) -> Vec<Told> {
    let (started, barrier) = (Instant::now(), Barrier::new(CLIENTS));
    let nanos = || started.elapsed().as_nanos() as u64;
    let ask = |client: &mut Client, collection: usize, number: usize| {
        let mut random = Rng::with_seed((collection * CLIENTS + number) as u64);
        barrier.wait();
        let mut history: Vec<Timed> = Vec::with_capacity(REQUESTS);
        for asked in 0..REQUESTS {
            let request = draw(&mut random, (asked * CLIENTS + number) as i64);
            let bytes = support::client::request(words(collection, request));
            let sent = nanos();
            client.send(&bytes);
            let reply = client.reply().reply();
            let ended = nanos();
            history.push((sent, ended, Told { request, reply: read(request, reply) }));
        }
        history
    };
    let parts: Vec<Vec<Vec<Timed>>> = thread::scope(|scope| {
        let ask = &ask;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = servers[number % servers.len()].client();
                let all = move || (0..COLLECTIONS).map(|at| ask(&mut client, at, number)).collect::<Vec<_>>();
                scope.spawn(all)
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("a history")).collect()
    });
    let mut all = Vec::new();
    for collection in 0..COLLECTIONS {
        let mut history: Vec<Timed> = parts.iter().flat_map(|part| part[collection].clone()).collect();
        history.sort_by_key(|(sent, ..)| *sent);
        assert!(is_linearizable(&history), "no order explains these replies: {history:#?}");
        all.extend(history.into_iter().map(|(.., told)| told));
    }
    all
}

/// Whether such requests were served, and others of them were not.
#[track_caller]
fn assert_met(history: &[Told], is_such: fn(Request) -> bool) {
    let such: Vec<&Told> = history.iter().filter(|told| is_such(told.request)).collect();
    let in_vain = such.iter().filter(|told| told.reply.is_empty()).count();
    let served = such.len() - in_vain;
    assert!(served > 0 && in_vain > 0, "{served} served, {in_vain} in vain");
}

marked!(also_redis: each_element_of_a_list_goes_to_one_client);
fn each_element_of_a_list_goes_to_one_client() {
    let history = record_and_check(draw_for_lists);
    assert_met(&history, |request| matches!(request, Request::WaitToPop { .. }));
    assert_met(&history, |request| matches!(request, Request::Move { waits: true, .. }));
}

marked!(also_redis: each_member_of_a_sorted_set_goes_to_one_client);
fn each_member_of_a_sorted_set_goes_to_one_client() {
    let history = record_and_check(draw_for_members);
    assert_met(&history, |request| matches!(request, Request::PopMember { waits: true, .. }));
}

marked!(also_redis: fields_of_a_hash_are_counted_and_set_once);
fn fields_of_a_hash_are_counted_and_set_once() {
    record_and_check(draw_for_fields);
}

/// A history of requests, each with its span and its reply.
fn told<const COUNT: usize>(of: [(u64, u64, Request, &[i64]); COUNT]) -> Vec<Timed> {
    of.map(|(sent, ended, request, reply)| (sent, ended, Told { request, reply: reply.to_vec() })).into()
}

#[test]
fn replies_that_no_order_explains_are_rejected() {
    let push = |element| Request::Push { list: 0, is_tail: true, element };
    let wait = Request::WaitToPop { is_tail: false, lists: Lists::Both };
    let pop = Request::Pop { list: 0, is_tail: false };
    assert!(is_linearizable(&told([(0, 9, wait, &[0, 1]), (3, 5, push(1), &[1])])));
    // Two clients get one element; one gets what is pushed after its reply; one waits though there is one.
    let twice = [(0, 9, wait, &[0, 1][..]), (1, 8, pop, &[1]), (3, 5, push(1), &[1])];
    assert!(!is_linearizable(&told(twice)));
    assert!(!is_linearizable(&told([(0, 2, wait, &[0, 1]), (3, 5, push(1), &[1])])));
    assert!(!is_linearizable(&told([(3, 5, push(1), &[1]), (6, 9, wait, &[])])));
    let is_lost = [(0, 1, push(1), &[1][..]), (2, 3, push(2), &[2]), (4, 5, pop, &[2])];
    assert!(!is_linearizable(&told(is_lost)));
    // Half a move: the element is in neither list.
    let (from, list) = (Request::Move { from: 0, waits: true }, Request::Elements { list: 0 });
    let other = Request::Elements { list: 1 };
    let moved = |seen: &'static [i64]| {
        told([(0, 1, push(1), &[1]), (2, 9, from, &[1]), (3, 4, list, &[]), (5, 6, other, seen)])
    };
    assert!(is_linearizable(&moved(&[1])) && !is_linearizable(&moved(&[])));
    let count = Request::Count { field: 1, by: 1 };
    assert!(!is_linearizable(&told([(0, 9, count, &[1]), (1, 8, count, &[1])])));
    let set = Request::SetField { field: 1, value: 5 };
    assert!(!is_linearizable(&told([(0, 9, set, &[1]), (1, 8, set, &[1])])));
    let (add, min) =
        (|member, score| Request::Add { member, score }, Request::PopMember { is_max: false, waits: true });
    let popped = |member| told([(0, 1, add(1, 5), &[1]), (2, 3, add(2, 4), &[1]), (4, 9, min, member)]);
    assert!(is_linearizable(&popped(&[2, 4])) && !is_linearizable(&popped(&[1, 5])));
}
