//! Rules that must hold in every order in which threads lock the keyspace. A model of threads and locks
//! chooses the order: at random, by priorities, and all orders where they are few (`tests/shuttle/run`).
//!
//! Each scenario has a twin without the locking that prevents its fault. The model must find the fault in the
//! twin. That shows that it can find one.
//!
//! Clients that wait for lists are in `types/lists/interleavings.rs`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::expiry::{Pace, Sweep};
use super::store::table::NewEntry;
use super::{Expiry, Keyspace, NotNow, Transaction, Watching};

/// Orders to try of each kind.
const ORDERS: usize = 2000;
/// Changes of thread in an order by priorities.
const CHANGES: usize = 3;
/// A failing task formats its message in unoptimized code, which needs a large stack.
const STACK_BYTES: usize = 256 << 10;

const KEY: &[u8] = b"lock";
/// A sweep's pace. No scenario waits for it.
const PACE: Pace = Pace { pause: Duration::ZERO, rest: Duration::ZERO };

fn try_orders(scheduler: impl Scheduler + 'static, scenario: impl Fn() + Send + Sync + 'static) -> usize {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(scenario)
}

/// Tries a scenario in many orders.
pub(crate) fn explore(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    try_orders(RandomScheduler::new(ORDERS), scenario.clone());
    try_orders(PctScheduler::new(CHANGES, ORDERS), scenario);
}

/// Runs this many tasks on one keyspace; returns their results.
pub(crate) fn tasks<T: Send + 'static>(
    keyspace: &Arc<Keyspace>,
    count: usize,
    task: impl Fn(&Keyspace, usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let task = Arc::new(task);
    let started: Vec<_> = (0..count)
        .map(|number| {
            let (keyspace, task) = (Arc::clone(keyspace), Arc::clone(&task));
            thread::spawn(move || task(&keyspace, number))
        })
        .collect();
    started.into_iter().map(|task| task.join().expect("a task that ends")).collect()
}

fn keyspace() -> Arc<Keyspace> {
    Arc::new(Keyspace::alone(1))
}

fn value(keyspace: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    keyspace.begin(0, key).unwrap().get_bytes(key).map(<[u8]>::to_vec)
}

fn put(keyspace: &Keyspace, key: &[u8], value: &[u8]) {
    keyspace.begin(0, key).unwrap().put(key, value, Expiry::Never);
}

/// Inserts an expired key that was not freed yet.
fn put_expired(keyspace: &Keyspace, key: &[u8]) {
    let mut tx = keyspace.begin(0, key).unwrap();
    let new = NewEntry { key, value: b"crashed", long: None, expires_at_ms: Some(1), stamp: 0 };
    let (spot, shard) = tx.shard_mut(key);
    shard.table_mut(0).put(spot, new, |entry| keyspace.hash(entry.key()));
}

/// Two keys in different shards, in the order of the shards.
fn two_keys(keyspace: &Keyspace) -> [Vec<u8>; 2] {
    let shard = |number: &u32| keyspace.shard_of_key(number.to_string().as_bytes());
    let first = (0..).find(|number| shard(number) == 0).expect("a key");
    let second = (0..).find(|number| shard(number) == 1).expect("a key");
    [first, second].map(|number| number.to_string().into_bytes())
}

fn exactly_one(winners: &[bool]) -> usize {
    assert_eq!(winners.iter().filter(|has_won| **has_won).count(), 1, "not exactly one has won");
    winners.iter().position(|has_won| *has_won).expect("a winner")
}

fn exactly_one_of_several_inserts_succeeds(contenders: usize) {
    let keyspace = keyspace();
    let winners = tasks(&keyspace, contenders, |keyspace, number| {
        keyspace.begin(0, KEY).unwrap().insert_if_absent(KEY, &[number as u8], Expiry::Never)
    });
    assert_eq!(value(&keyspace, KEY), Some(vec![exactly_one(&winners) as u8]));
}

#[test]
fn exactly_one_of_three_inserts_succeeds() {
    explore(|| exactly_one_of_several_inserts_succeeds(3));
}

#[test]
fn exactly_one_of_two_inserts_succeeds_in_every_order() {
    let tried = try_orders(DfsScheduler::new(None, false), || exactly_one_of_several_inserts_succeeds(2));
    assert!(tried > 5, "there are more than {tried} orders");
}

#[test]
#[should_panic(expected = "not exactly one has won")]
fn unlocking_between_looking_and_inserting_is_detected() {
    explore(|| {
        let winners = tasks(&keyspace(), 3, |keyspace, _| {
            let is_absent = value(keyspace, KEY).is_none();
            if is_absent {
                put(keyspace, KEY, b"v");
            }
            is_absent
        });
        exactly_one(&winners);
    });
}

#[test]
fn exactly_one_of_two_takes_an_expired_lock_and_the_sweep_leaves_it() {
    explore(|| {
        let keyspace = keyspace();
        put_expired(&keyspace, KEY);
        let winners = tasks(&keyspace, 3, |keyspace, number| {
            let now_ms = keyspace.clock().now_ms();
            match number {
                0 => {
                    Sweep::default().slice(keyspace, PACE, |_| ());
                    false
                }
                _ => {
                    let expiry = if number == 1 { Expiry::Never } else { Expiry::At(now_ms + 1_000_000) };
                    keyspace.begin(0, KEY).unwrap().insert_if_absent(KEY, &[number as u8], expiry)
                }
            }
        });
        assert_eq!(value(&keyspace, KEY), Some(vec![exactly_one(&winners) as u8]));
        let expired = keyspace.begin_all(0).unwrap().counters().expired;
        assert_eq!(expired, 1, "the old lock expired once");
    });
}

#[test]
#[should_panic(expected = "the sweep freed the new key")]
fn unlocking_between_looking_and_freeing_is_detected() {
    explore(|| {
        let keyspace = keyspace();
        put_expired(&keyspace, KEY);
        tasks(&keyspace, 2, |keyspace, number| match number {
            0 => {
                let has_expired = keyspace.begin(0, KEY).unwrap().is_expired(KEY);
                if has_expired {
                    keyspace.begin(0, KEY).unwrap().remove(KEY);
                }
            }
            _ => put(keyspace, KEY, b"new"),
        });
        assert!(value(&keyspace, KEY).is_some(), "the sweep freed the new key");
    });
}

#[test]
fn a_lock_that_is_renewed_in_time_stays() {
    explore(|| {
        let keyspace = keyspace();
        keyspace.clock().freeze();
        let soon_ms = keyspace.clock().now_ms() + 10;
        keyspace.begin(0, KEY).unwrap().put(KEY, b"v", Expiry::At(soon_ms));
        let renewed = tasks(&keyspace, 3, move |keyspace, number| match number {
            0 => {
                Sweep::default().slice(keyspace, PACE, |_| ());
                false
            }
            1 => {
                let mut tx = keyspace.begin_all(0).unwrap();
                tx.turn_clock(|clock| clock.set(soon_ms)).expect("a moment");
                false
            }
            _ => {
                let mut tx = keyspace.begin(0, KEY).unwrap();
                let is_there = tx.get_bytes(KEY).is_some();
                if is_there {
                    tx.set_expiry(KEY, Some(soon_ms + 1));
                }
                is_there
            }
        });
        assert_eq!(value(&keyspace, KEY).is_some(), renewed[2], "a renewed lock is still there");
    });
}

/// Each task writes its number and takes the value before it. The values taken and the last value are all
/// values.
fn a_chain_of_exchanges(exchange: fn(&Keyspace, u8) -> Option<Vec<u8>>) {
    let keyspace = keyspace();
    let mut taken = tasks(&keyspace, 3, move |keyspace, number| exchange(keyspace, number as u8));
    taken.push(value(&keyspace, KEY));
    taken.sort();
    assert_eq!(taken, [None, Some(vec![0]), Some(vec![1]), Some(vec![2])], "a value was lost");
}

#[test]
fn exchanges_lose_nothing() {
    explore(|| {
        a_chain_of_exchanges(|keyspace, number| {
            let mut tx = keyspace.begin(0, KEY).unwrap();
            let before = tx.get_bytes(KEY).map(<[u8]>::to_vec);
            tx.put(KEY, &[number], Expiry::Never);
            before
        });
    });
}

#[test]
#[should_panic(expected = "a value was lost")]
fn unlocking_between_reading_and_writing_is_detected() {
    explore(|| {
        a_chain_of_exchanges(|keyspace, number| {
            let before = value(keyspace, KEY);
            put(keyspace, KEY, &[number]);
            before
        });
    });
}

/// Begins a transaction on two keys as a client does: if another client holds a shard, it tries again later.
fn begin_both<'a>(keyspace: &'a Keyspace, keys: [&[u8]; 2]) -> Transaction<'a> {
    loop {
        match keyspace.begin_many(0, keys.into_iter()) {
            Ok(tx) => return tx,
            Err(NotNow::Contended(_)) => thread::yield_now(),
            Err(NotNow::Busy) => panic!("no script runs for long"),
        }
    }
}

/// Two tasks write both keys, each in another order. A third task reads both.
fn two_keys_are_one(write: fn(&Keyspace, [&[u8]; 2], &[u8])) {
    let keyspace = keyspace();
    let keys = two_keys(&keyspace);
    tasks(&keyspace, 3, move |keyspace, number| {
        let (first, second) = (keys[number % 2].as_slice(), keys[1 - number % 2].as_slice());
        if number < 2 {
            return write(keyspace, [first, second], &[number as u8]);
        }
        let tx = begin_both(keyspace, [first, second]);
        assert_eq!(tx.get_bytes(first), tx.get_bytes(second), "the reader saw half of a write");
    });
}

#[test]
fn no_reader_sees_half_of_a_write_to_two_keys() {
    explore(|| {
        two_keys_are_one(|keyspace, keys, value| {
            let mut tx = begin_both(keyspace, keys);
            keys.iter().for_each(|key| tx.put(key, value, Expiry::Never));
        });
    });
}

#[test]
#[should_panic(expected = "the reader saw half of a write")]
fn writing_two_keys_one_by_one_is_detected() {
    explore(|| {
        two_keys_are_one(|keyspace, keys, value| keys.iter().for_each(|key| put(keyspace, key, value)));
    });
}

#[test]
fn writes_to_one_key_and_to_two_have_one_order() {
    explore(|| {
        let keyspace = keyspace();
        let keys = two_keys(&keyspace);
        let written = keys.clone();
        let seen = tasks(&keyspace, 3, move |keyspace, number| {
            if let Some(key) = written.get(number) {
                put(keyspace, key, b"single");
                return None;
            }
            let mut tx = begin_both(keyspace, [&written[0], &written[1]]);
            let before: Vec<bool> = written.iter().map(|key| tx.get_bytes(key).is_some()).collect();
            written.iter().for_each(|key| tx.put(key, b"both", Expiry::Never));
            Some(before)
        });
        for (key, was_there) in keys.iter().zip(seen[2].as_ref().expect("the keys before the write")) {
            let last: &[u8] = if *was_there { b"both" } else { b"single" };
            assert_eq!(value(&keyspace, key).as_deref(), Some(last), "the last write wins");
        }
    });
}

#[test]
fn a_script_that_locks_more_shards_is_in_no_deadlock() {
    explore(|| {
        let keyspace = keyspace();
        let keys = two_keys(&keyspace);
        tasks(&keyspace, 2, move |keyspace, number| {
            let [first, second] = [keys[0].as_slice(), keys[1].as_slice()];
            match number {
                0 => {
                    // In descending order, which only a script may use.
                    let mut script = keyspace.begin(0, second).unwrap();
                    script.allow_more();
                    script.hold([first].into_iter()).unwrap();
                    script.put(first, b"v", Expiry::Never);
                }
                _ => drop(begin_both(keyspace, [first, second])),
            }
        });
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn two_tasks_that_wait_for_each_other_are_detected() {
    explore(|| {
        tasks(&keyspace(), 2, |keyspace, number| {
            let _one = keyspace.shards[number].lock();
            let _other = keyspace.shards[1 - number].lock();
        });
    });
}

/// One task adds one in a single transaction. Two tasks read first, and write only if the key has not
/// changed. The value must be the number of tasks that have counted.
fn count_up(read: fn(&Keyspace, &mut Watching) -> Vec<u8>) {
    let keyspace = keyspace();
    put(&keyspace, KEY, &[0]);
    let counted = tasks(&keyspace, 3, move |keyspace, number| {
        if number == 0 {
            let mut tx = keyspace.begin(0, KEY).unwrap();
            let next = tx.get_bytes(KEY).expect("a number")[0] + 1;
            tx.put(KEY, &[next], Expiry::Never);
            return true;
        }
        let mut watching = Watching::default();
        let before = read(keyspace, &mut watching);
        let mut tx = keyspace.begin(0, KEY).unwrap();
        let may_write = !tx.is_overtaken(&watching);
        if may_write {
            tx.put(KEY, &[before[0] + 1], Expiry::Never);
        }
        tx.unwatch(&mut watching);
        may_write
    });
    let times = counted.iter().filter(|has_counted| **has_counted).count();
    assert_eq!(value(&keyspace, KEY), Some(vec![times as u8]), "a change was missed");
}

#[test]
fn a_change_between_watching_and_writing_is_never_missed() {
    explore(|| {
        count_up(|keyspace, watching| {
            keyspace.begin(0, KEY).unwrap().watch(watching, KEY);
            value(keyspace, KEY).expect("a number")
        });
    });
}

#[test]
#[should_panic(expected = "a change was missed")]
fn reading_before_watching_is_detected() {
    explore(|| {
        count_up(|keyspace, watching| {
            let before = value(keyspace, KEY).expect("a number");
            keyspace.begin(0, KEY).unwrap().watch(watching, KEY);
            before
        });
    });
}
