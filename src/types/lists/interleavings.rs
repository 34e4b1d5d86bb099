//! Clients that wait for lists, in every order in which threads lock the keyspace: the model of
//! [`keyspace::interleavings`](crate::keyspace::interleavings). A waiting client sleeps until it is woken, so
//! a wake-up that is lost is a deadlock, which the model finds.

use std::collections::BTreeSet;
use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::{List, ListEnd};
use crate::keyspace::interleavings::{explore, tasks};
use crate::keyspace::{Attempt, Attempted, Keyspace, NotNow, Outcome, Shape, Transaction, Waiter};
use crate::types;
use crate::values::LIST_KIND;

fn keyspace() -> Arc<Keyspace> {
    Arc::new(Keyspace::new(Shape::of(2, types::ALL), Arc::default(), Arc::default()))
}

/// Keys in different shards, in the order of the shards.
fn keys<const COUNT: usize>(keyspace: &Keyspace) -> [Vec<u8>; COUNT] {
    let is_in = |key: &String, shard: usize| keyspace.shard_of_key(key.as_bytes()) == shard;
    std::array::from_fn(|shard| {
        let key = (0..).map(|number: u32| number.to_string()).find(|key| is_in(key, shard));
        key.expect("a key").into_bytes()
    })
}

/// A client that waits for an element of its keys.
#[derive(Clone)]
struct Client {
    number: usize,
    keys: Vec<Vec<u8>>,
    /// The list to which it moves the element, if any.
    target: Option<Vec<u8>>,
    /// A key that never has what it wants.
    useless: Option<Vec<u8>>,
    bell: Arc<Bell>,
    /// The numbers of the clients that have got elements, in their order.
    served: Arc<Mutex<Vec<usize>>>,
}

/// What wakes a client.
#[derive(Default)]
struct Bell {
    is_time_over: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// Sleeps until the wait has ended, or its time is over.
    fn sleep(&self, waiter: &Waiter) {
        let mut is_time_over = self.is_time_over.lock().unwrap();
        while !*is_time_over && !waiter.has_ended() {
            is_time_over = self.rings.wait(is_time_over).unwrap();
        }
    }

    fn ring(&self) {
        drop(self.is_time_over.lock().unwrap());
        self.rings.notify_all();
    }

    fn end_time(&self) {
        *self.is_time_over.lock().unwrap() = true;
        self.rings.notify_all();
    }
}

/// The look of a client at its keys.
enum Looked {
    Found(Vec<u8>),
    Waits(Arc<Waiter>),
}

impl Client {
    fn new(number: usize, keys: &[&[u8]]) -> Client {
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        let (bell, served) = Default::default();
        Client { number, keys, target: None, useless: None, bell, served }
    }

    fn begin<'a>(&self, keyspace: &'a Keyspace) -> Transaction<'a> {
        let keys: Vec<&[u8]> = self.keys.iter().chain(&self.target).map(Vec::as_slice).collect();
        begin(keyspace, &keys)
    }

    /// Takes the head of the first list that is there, or waits for one.
    fn look(&self, keyspace: &Keyspace, ticket: Option<u64>) -> Looked {
        let mut tx = self.begin(keyspace);
        let found = self.keys.iter().find_map(|key| self.take(&mut tx, key));
        let looked = match found {
            Some(element) => Looked::Found(element),
            None => Looked::Waits(self.stay(&mut tx, ticket)),
        };
        finish(tx);
        looked
    }

    fn stay(&self, tx: &mut Transaction<'_>, ticket: Option<u64>) -> Arc<Waiter> {
        let (keys, targets) = (self.keys.iter(), self.target.iter());
        let attempt = Box::new(self.clone());
        tx.block(keys.map(Vec::as_slice), targets.map(Vec::as_slice), ticket, attempt)
    }

    fn take(&self, tx: &mut Transaction<'_>, key: &[u8]) -> Option<Vec<u8>> {
        if self.useless.as_deref() == Some(key) {
            return None;
        }
        let element = tx.peek::<List>(key).unwrap()?.get(0).expect("an element").to_vec();
        if let Some(target) = &self.target {
            tx.make::<List, _>(target, "rpush", |list| list.push(ListEnd::Tail, &element)).unwrap();
        }
        tx.change::<List, _>(key, "lpop", |list| list.pop(ListEnd::Head, 1)).unwrap();
        self.served.lock().unwrap().push(self.number);
        Some(element)
    }

    /// Waits until the client gets an element, or its time is over.
    fn wait(&self, keyspace: &Keyspace, mut waiter: Arc<Waiter>) -> Option<Vec<u8>> {
        loop {
            self.bell.sleep(&waiter);
            let outcome = loop {
                match waiter.end() {
                    Some(outcome) => break outcome,
                    None => thread::yield_now(),
                }
            };
            keyspace.unblock(&waiter);
            match outcome {
                Outcome::Served(element, _) => return Some(element),
                Outcome::GivenUp => return None,
                Outcome::Again => match self.look(keyspace, Some(waiter.ticket())) {
                    Looked::Found(element) => return Some(element),
                    Looked::Waits(again) => waiter = again,
                },
            }
        }
    }

    /// As a server does when a client says BLPOP.
    fn pop(&self, keyspace: &Keyspace) -> Option<Vec<u8>> {
        match self.look(keyspace, None) {
            Looked::Found(element) => Some(element),
            Looked::Waits(waiter) => self.wait(keyspace, waiter),
        }
    }

    /// Waits, as a client that has come before all others.
    fn come(&self, keyspace: &Keyspace) -> Arc<Waiter> {
        match self.look(keyspace, None) {
            Looked::Found(_) => panic!("there is nothing yet"),
            Looked::Waits(waiter) => waiter,
        }
    }
}

impl Attempt for Client {
    fn kind(&self) -> u8 {
        LIST_KIND
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn attempt(&self, tx: &mut Transaction<'_>, keys: &[&[u8]], out: &mut Vec<u8>) -> Attempted {
        let Some(element) = keys.iter().find_map(|key| self.take(tx, key)) else { return Attempted::Nothing };
        out.extend_from_slice(&element);
        Attempted::Served
    }

    fn ends_without_value(&self) -> bool {
        false
    }

    fn wake(&self) {
        self.bell.ring();
    }

    fn client(&self) -> u64 {
        self.number as u64
    }
}

/// Begins a transaction as a client does: if another client holds a shard, it tries again later.
fn begin<'a>(keyspace: &'a Keyspace, keys: &[&[u8]]) -> Transaction<'a> {
    loop {
        match keyspace.begin_many(0, keys.iter().copied()) {
            Ok(tx) => return tx,
            Err(NotNow::Contended(_)) => thread::yield_now(),
            Err(NotNow::Busy) => panic!("no script runs for long"),
        }
    }
}

/// Ends a transaction as a server does.
fn finish(mut tx: Transaction<'_>) {
    tx.serve_blocked();
    tx.commit();
    let served = tx.take_served();
    drop(tx);
    served.into_iter().for_each(|served| served.deliver(0));
}

/// Begins a transaction that is about to bring elements to a list.
fn begin_push<'a>(keyspace: &'a Keyspace, key: &[u8], elements: usize) -> Transaction<'a> {
    loop {
        let mut tx = begin(keyspace, &[key]);
        if !tx.may_serve() || tx.hold_targets([key].into_iter(), elements).is_ok() {
            return tx;
        }
        drop(tx);
        thread::yield_now();
    }
}

fn push(keyspace: &Keyspace, key: &[u8], elements: &[&str]) {
    let mut tx = begin_push(keyspace, key, elements.len());
    for element in elements {
        tx.make::<List, _>(key, "rpush", |list| list.push(ListEnd::Tail, element.as_bytes())).unwrap();
    }
    finish(tx);
}

fn rename(keyspace: &Keyspace, source: &[u8], target: &[u8]) {
    let mut tx = begin(keyspace, &[source, target]);
    tx.carry(source, 0, target);
    finish(tx);
}

/// The elements of a list that are left.
fn left(keyspace: &Keyspace, key: &[u8]) -> Vec<Vec<u8>> {
    let tx = keyspace.begin(0, key).unwrap();
    let list = tx.peek::<List>(key).unwrap();
    list.map(|list| list.iter().map(<[u8]>::to_vec).collect()).unwrap_or_default()
}

#[track_caller]
fn assert_all(elements: impl IntoIterator<Item = Option<Vec<u8>>>, expected: &[&str]) {
    let elements: Vec<Vec<u8>> = elements.into_iter().flatten().collect();
    let distinct: BTreeSet<&[u8]> = elements.iter().map(Vec::as_slice).collect();
    assert_eq!(distinct, expected.iter().map(|element| element.as_bytes()).collect(), "an element was lost");
    assert_eq!(elements.len(), expected.len(), "two clients got one element");
}

#[test]
fn each_element_goes_to_one_of_the_clients_that_wait_for_both_lists() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        let got = tasks(&keyspace, 4, move |keyspace, number| match number {
            0 => Client::new(0, &[&a, &b]).pop(keyspace),
            1 => Client::new(1, &[&b, &a]).pop(keyspace),
            2 => {
                push(keyspace, &a, &["one"]);
                None
            }
            _ => {
                push(keyspace, &b, &["two"]);
                None
            }
        });
        assert_all(got, &["one", "two"]);
    });
}

#[test]
fn who_has_waited_longer_is_served_first_whatever_brings_the_list() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        push(&keyspace, &b, &["renamed"]);
        let first = Client::new(0, &[&a]);
        let clients: Vec<Client> = (0..3).map(|number| Client { number, ..first.clone() }).collect();
        let clients: Vec<Client> =
            clients.into_iter().map(|client| Client { bell: Arc::default(), ..client }).collect();
        let waiters: Vec<Arc<Waiter>> = clients.iter().map(|client| client.come(&keyspace)).collect();
        let got = tasks(&keyspace, 5, move |keyspace, number| match number {
            0..3 => clients[number].wait(keyspace, Arc::clone(&waiters[number])),
            3 => {
                push(keyspace, &a, &["one", "two"]);
                None
            }
            _ => {
                rename(keyspace, &b, &a);
                None
            }
        });
        assert_all(got, &["one", "two", "renamed"]);
        assert_eq!(
            *first.served.lock().unwrap(),
            [0, 1, 2],
            "one was served before another who had come first"
        );
    });
}

#[test]
fn what_a_client_does_not_take_because_its_time_is_over_goes_to_the_next() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        let (first, second) = (Client::new(0, &[&a, &b]), Client::new(1, &[&b]));
        let (waiter, next) = (first.come(&keyspace), second.come(&keyspace));
        let pushed = b.clone();
        let got = tasks(&keyspace, 3, move |keyspace, number| match number {
            0 => first.wait(keyspace, Arc::clone(&waiter)),
            1 => {
                first.bell.end_time();
                None
            }
            _ => {
                push(keyspace, &pushed, &["one"]);
                None
            }
        });
        let other = if let Some(Outcome::Served(element, _)) = next.end() { Some(element) } else { None };
        assert_all(got.into_iter().chain([other]), &["one"]);
        assert!(left(&keyspace, &b).is_empty());
    });
}

#[test]
fn what_a_client_cannot_take_because_it_has_left_goes_to_the_next() {
    explore(|| {
        let keyspace = keyspace();
        let [a] = keys(&keyspace);
        let (first, second) = (Client::new(0, &[&a]), Client::new(1, &[&a]));
        let (waiter, next) = (first.come(&keyspace), second.come(&keyspace));
        let pushed = a.clone();
        tasks(&keyspace, 2, move |keyspace, number| match number {
            0 => {
                // Its connection ends. What it had got is lost with it.
                waiter.leave();
                keyspace.unblock(&waiter);
            }
            _ => push(keyspace, &pushed, &["one"]),
        });
        let second_has_it = matches!(next.end(), Some(Outcome::Served(..)));
        let first_had_it = !first.served.lock().unwrap().is_empty();
        assert!(first_had_it != second_has_it, "an element for one of them");
        assert!(left(&keyspace, &a).is_empty());
    });
}

#[test]
fn an_element_that_is_moved_is_in_one_list_or_with_one_client() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        let (source, target) = (a.clone(), b.clone());
        let got = tasks(&keyspace, 4, move |keyspace, number| match number {
            0 => {
                let mover = Client { target: Some(target.clone()), ..Client::new(0, &[&source]) };
                assert_eq!(mover.pop(keyspace).as_deref(), Some(&b"moved"[..]));
                None
            }
            1 => Client::new(1, &[&target]).pop(keyspace),
            2 => {
                push(keyspace, &source, &["moved"]);
                None
            }
            _ => {
                push(keyspace, &target, &["pushed"]);
                None
            }
        });
        let left = left(&keyspace, &b);
        assert_eq!((left.len(), self::left(&keyspace, &a).len()), (1, 0));
        assert_all(got.into_iter().chain(left.into_iter().map(Some)), &["moved", "pushed"]);
    });
}

#[test]
fn who_has_waited_longer_is_served_first_even_if_its_target_is_in_use() {
    explore(|| {
        // In both orders of the shards.
        for is_reversed in [false, true] {
            let keyspace = keyspace();
            let [a, b] = keys(&keyspace);
            let (source, target) = if is_reversed { (b, a) } else { (a, b) };
            let mover = Client { target: Some(target.clone()), ..Client::new(0, &[&source]) };
            let popper = Client { number: 1, target: None, bell: Arc::default(), ..mover.clone() };
            let (first, served) = (mover.come(&keyspace), Arc::clone(&mover.served));
            let second = popper.come(&keyspace);
            tasks(&keyspace, 2, move |keyspace, number| match number {
                0 => push(keyspace, &source, &["one"]),
                _ => push(keyspace, &target, &["other"]),
            });
            assert!(matches!(first.end(), Some(Outcome::Served(..))));
            assert!(matches!(second.end(), Some(Outcome::GivenUp)));
            [first, second].iter().for_each(|waiter| keyspace.unblock(waiter));
            assert_eq!(*served.lock().unwrap(), [0]);
        }
    });
}

#[test]
fn two_lists_whose_elements_move_to_the_other_one_do_not_wait_for_each_other() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        let there = Client { target: Some(b.clone()), ..Client::new(0, &[&a]) };
        let back = Client { target: Some(a.clone()), ..Client::new(1, &[&b]) };
        let waiters = [there.come(&keyspace), back.come(&keyspace)];
        let (one, other) = (a.clone(), b.clone());
        tasks(&keyspace, 2, move |keyspace, number| match number {
            0 => push(keyspace, &one, &["one"]),
            _ => push(keyspace, &other, &["other"]),
        });
        for waiter in waiters {
            assert!(matches!(waiter.end(), Some(Outcome::Served(..))));
        }
        let elements = left(&keyspace, &a).into_iter().chain(left(&keyspace, &b)).map(Some);
        assert_all(elements, &["one", "other"]);
    });
}

#[test]
fn a_list_that_is_renamed_wakes_the_client_that_waits_for_it() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        push(&keyspace, &b, &["one", "two"]);
        let got = tasks(&keyspace, 3, move |keyspace, number| match number {
            0 | 1 => Client::new(number, &[&a]).pop(keyspace),
            _ => {
                rename(keyspace, &b, &a);
                None
            }
        });
        assert_all(got, &["one", "two"]);
    });
}

#[test]
fn a_list_that_comes_with_a_database_wakes_the_clients_that_wait_for_it() {
    explore(|| {
        let keyspace = keyspace();
        let [a] = keys(&keyspace);
        let mut tx = keyspace.begin(1, &a).unwrap();
        for element in [b"one", b"two"] {
            tx.make::<List, _>(&a, "rpush", |list| list.push(ListEnd::Tail, element)).unwrap();
        }
        finish(tx);
        let got = tasks(&keyspace, 3, move |keyspace, number| match number {
            0 | 1 => Client::new(number, &[&a]).pop(keyspace),
            _ => {
                let mut all = keyspace.begin_on(0, keyspace.hold_all().unwrap(), Vec::new());
                all.everything_mut().unwrap().swap_databases(0, 1);
                finish(all);
                None
            }
        });
        assert_all(got, &["one", "two"]);
    });
}

#[test]
fn a_client_that_one_key_does_not_help_is_served_from_the_other() {
    explore(|| {
        let keyspace = keyspace();
        let [a, b] = keys(&keyspace);
        let client = Client { useless: Some(a.clone()), ..Client::new(0, &[&a, &b]) };
        let waiter = client.come(&keyspace);
        let got = tasks(&keyspace, 3, move |keyspace, number| match number {
            0 => client.wait(keyspace, Arc::clone(&waiter)),
            1 => {
                push(keyspace, &a, &["useless"]);
                None
            }
            _ => {
                push(keyspace, &b, &["one"]);
                None
            }
        });
        assert_all(got, &["one"]);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn unlocking_between_looking_and_waiting_is_detected() {
    explore(|| {
        let keyspace = keyspace();
        let [a] = keys(&keyspace);
        tasks(&keyspace, 2, move |keyspace, number| match number {
            0 => {
                let client = Client::new(0, &[&a]);
                let found = client.take(&mut client.begin(keyspace), &a);
                if found.is_none() {
                    let mut tx = client.begin(keyspace);
                    let waiter = client.stay(&mut tx, None);
                    finish(tx);
                    client.wait(keyspace, waiter);
                }
            }
            _ => push(keyspace, &a, &["one"]),
        });
    });
}

#[test]
#[should_panic(expected = "an element was lost")]
fn a_client_that_leaves_without_ending_its_wait_is_detected() {
    explore(|| {
        let keyspace = keyspace();
        let [a] = keys(&keyspace);
        let (first, second) = (Client::new(0, &[&a]), Client::new(1, &[&a]));
        let (waiter, next) = (first.come(&keyspace), second.come(&keyspace));
        tasks(&keyspace, 2, move |keyspace, number| match number {
            // Its time is over, and it does not ask whether it is served at this moment.
            0 => keyspace.unblock(&waiter),
            _ => push(keyspace, &a, &["one"]),
        });
        let other = if let Some(Outcome::Served(element, _)) = next.end() { Some(element) } else { None };
        assert_all([other], &["one"]);
    });
}

#[test]
#[should_panic(expected = "who had come first")]
fn serving_whoever_comes_is_detected() {
    explore(|| {
        let keyspace = keyspace();
        let [a] = keys(&keyspace);
        let first = Client::new(0, &[&a]);
        let second = Client { number: 1, bell: Arc::default(), ..first.clone() };
        let waiters = [first.come(&keyspace), second.come(&keyspace)];
        let served = Arc::clone(&first.served);
        tasks(&keyspace, 3, move |keyspace, number| match number {
            // Clients that try again on their own, each when it has its turn.
            0 | 1 => {
                let client = if number == 0 { &first } else { &second };
                let outcome = loop {
                    match waiters[number].end() {
                        Some(outcome) => break outcome,
                        None => thread::yield_now(),
                    }
                };
                // One that was served before it came has nothing to take.
                if !matches!(outcome, Outcome::Served(..)) {
                    keyspace.unblock(&waiters[number]);
                    while let None = client.take(&mut client.begin(keyspace), &a) {
                        thread::yield_now();
                    }
                }
            }
            _ => push(keyspace, &a, &["one", "two"]),
        });
        assert_eq!(*served.lock().unwrap(), [0, 1], "one was served before another who had come first");
    });
}
