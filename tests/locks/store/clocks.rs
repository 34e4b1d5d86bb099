//! Stores whose clocks are set, or are others after a failover.

use std::thread;
use std::time::{Duration, Instant};

use super::attacks::{Holder, until_waiting};
use super::frozen::Freezer;
use support::client::{Client, Reply, request};
use support::server::Server;
use support::store::cluster::eventually;
use support::store::etcd::Etcd;
use support::store::postgres::{Postgres, pair};
use support::tools::installed;

/// How long the locks of these tests live.
const LIFE_MS: i64 = 60_000;
/// A clock that was set is further off than that, and what takes time in a test takes less, mostly.
const ROOM_MS: i64 = 5_000;

/// A lock that a client has taken.
struct Lock {
    asked: Instant,
    taken: Instant,
}

impl Lock {
    /// Takes it, for the time of these tests.
    fn take(client: &mut Client, key: &str) -> Lock {
        let asked = Instant::now();
        client.line(&format!("SET {key} a NX PX {LIFE_MS}")).is_ok();
        Lock { asked, taken: Instant::now() }
    }

    /// It lives as long as it should: no moment longer or shorter than requests take.
    #[track_caller]
    fn lives_as_long_as_it_should(&self, client: &mut Client, key: &str) {
        let before_ms = self.taken.elapsed().as_millis() as i64;
        let Reply::Integer(left_ms) = client.line(&format!("PTTL {key}")).reply() else {
            panic!("no number")
        };
        let after_ms = self.asked.elapsed().as_millis() as i64;
        // The time at the store is known to about as much as a message travels.
        assert!(left_ms >= LIFE_MS - after_ms - 50, "{left_ms} ms are left after {after_ms}");
        assert!(left_ms <= LIFE_MS - before_ms + ROOM_MS, "{left_ms} ms are left after {before_ms}");
    }
}

/// How far the store's time is ahead of its server's clock, in milliseconds.
fn ahead_ms(store: &Postgres, node: usize) -> i64 {
    let ahead = "SELECT round(extract(epoch FROM ahead) * 1000)::bigint FROM keyfast.clock";
    store.sql(node, ahead).expect("the store").parse().expect("a number")
}

#[track_caller]
fn expect_about(ahead_ms: i64, seconds: i64) {
    assert!((ahead_ms - seconds * 1_000).abs() < ROOM_MS, "{ahead_ms} ms, not {seconds} s");
}

/// A server that is started again with another clock.
fn restart(test: &str, seconds: i64) {
    let Some(store) = Postgres::start_with_clocks(test, 1) else { return };
    let (front, other) = (store.front(&[]), store.front(&[]));
    let (mut client, mut rival) = (front.client(), other.client());
    let lock = Lock::take(&mut client, "lock");
    rival.line("SETNX lock b").is(0);
    store.stop_node(0, "fast");
    store.set_clock(0, seconds);
    store.start_node(0);
    eventually("the store is back", || rival.line("SETNX lock b").reply() == Reply::Integer(0));
    lock.lives_as_long_as_it_should(&mut rival, "lock");
    lock.lives_as_long_as_it_should(&mut client, "lock");
    expect_about(ahead_ms(&store, 0), -seconds);
    // What is taken afterwards lives as long as it should, too.
    let later = Lock::take(&mut client, "later");
    later.lives_as_long_as_it_should(&mut rival, "later");
}

marked!(needs_tools: a_lock_outlives_a_restart_of_the_store_with_a_clock_that_is_ahead);
fn a_lock_outlives_a_restart_of_the_store_with_a_clock_that_is_ahead() {
    restart("clock-ahead", 100);
}

marked!(needs_tools: a_lock_goes_in_time_after_a_restart_of_the_store_with_a_clock_that_is_behind);
fn a_lock_goes_in_time_after_a_restart_of_the_store_with_a_clock_that_is_behind() {
    restart("clock-behind", -100);
}

/// A failover to servers whose clocks are off.
fn fail_over(test: &str, seconds: i64) {
    let Some(store) = Postgres::start_with_clocks(test, 3) else { return };
    let (front, other) = (store.front(&[]), store.front(&[]));
    let (mut client, mut rival) = (front.client(), other.client());
    [1, 2].iter().for_each(|node| store.set_clock(*node, seconds));
    let lock = Lock::take(&mut client, "lock");
    store.kill_node(0);
    let primary = store.fail_over([1, 2]);
    eventually("the store is back", || rival.line("SETNX lock b").reply() == Reply::Integer(0));
    lock.lives_as_long_as_it_should(&mut rival, "lock");
    lock.lives_as_long_as_it_should(&mut client, "lock");
    expect_about(ahead_ms(&store, primary), -seconds);
}

marked!(needs_tools: a_lock_outlives_a_failover_to_a_clock_that_is_ahead);
fn a_lock_outlives_a_failover_to_a_clock_that_is_ahead() {
    fail_over("failover-ahead", 100);
}

marked!(needs_tools: a_lock_goes_in_time_after_a_failover_to_a_clock_that_is_behind);
fn a_lock_goes_in_time_after_a_failover_to_a_clock_that_is_behind() {
    fail_over("failover-behind", -100);
}

marked!(needs_tools: the_clock_of_a_store_may_be_set_while_front_ends_use_it);
fn the_clock_of_a_store_may_be_set_while_front_ends_use_it() {
    let Some(store) = Postgres::start_with_clocks("clock-set", 1) else { return };
    let (front, other) = (store.front(&[]), store.front(&[]));
    let (mut client, mut rival) = (front.client(), other.client());
    let lock = Lock::take(&mut client, "lock");
    // Nothing happens at small corrections.
    for seconds in [100, 0, -100, 30] {
        store.set_clock(0, seconds);
        eventually("its time is put right", || {
            rival.line("SETNX lock b").is(0);
            (ahead_ms(&store, 0) + seconds * 1_000).abs() < ROOM_MS
        });
        lock.lives_as_long_as_it_should(&mut client, "lock");
        lock.lives_as_long_as_it_should(&mut rival, "lock");
    }
    let warned = [&front, &other].map(|front| front.output());
    assert!(warned.iter().any(|output| output.contains("A batch came too late by the clock of the store")));
    assert!(!warned.iter().any(|output| output.contains("Lost the store")), "{warned:?}");
    eventually("it says so", || client.line("INFO store").text().contains("\nstore_clock_ahead_ms:-"));
}

marked!(needs_tools: a_request_that_waits_in_the_store_judges_by_the_time_at_which_it_came);
fn a_request_that_waits_in_the_store_judges_by_the_time_at_which_it_came() {
    let Some(store) = Postgres::start_with_clocks("clock-waiting", 1) else { return };
    let (front, other) = (store.front(&[]), store.front(&[]));
    let (mut client, mut rival) = (front.client(), other.client());
    // Its row stays, so that it can be held by another session.
    client.line("SETNX free a").is(1);
    client.line("DEL free").is(1);
    let lock = Lock::take(&mut client, "lock");
    let mut holder = Holder::start(&store, 0);
    let mut while_the_clock_is_set = |waiting: &mut Client, requests: &[&str], seconds| {
        holder.run(&store, "BEGIN; SELECT FROM keyfast.keys FOR UPDATE");
        waiting.send(&requests.iter().flat_map(|line| request(line.split(' '))).collect::<Vec<u8>>());
        until_waiting(&store, 1);
        store.set_clock(0, seconds);
        holder.run(&store, "COMMIT");
    };
    // Each statement: of one key that seems to be absent, of several, and of one that is there.
    while_the_clock_is_set(&mut rival, &["SET lock b NX PX 60000"], 3_600);
    rival.reply().is_nil();
    while_the_clock_is_set(&mut rival, &["MULTI", "SET lock b NX", "INCR count", "EXEC"], 0);
    (0..3).for_each(|_| rival.reply().ignored());
    rival.reply().is(Reply::Array(vec![Reply::Null, 1.into()]));
    while_the_clock_is_set(&mut rival, &["MULTI", "SET lock b NX", "INCR count", "EXEC"], 3_600);
    (0..3).for_each(|_| rival.reply().ignored());
    rival.reply().is(Reply::Array(vec![Reply::Null, 2.into()]));
    store.set_clock(0, 0);
    lock.lives_as_long_as_it_should(&mut client, "lock");
    // One that takes a lock while the clock is set back has it for as long as it should.
    let asked = Instant::now();
    while_the_clock_is_set(&mut client, &[&format!("SET free a NX PX {LIFE_MS}")], -100);
    client.reply().is_ok();
    let free = Lock { asked, taken: asked };
    rival.line("SETNX free b").is(0);
    free.lives_as_long_as_it_should(&mut rival, "free");
    // So has the first one after that.
    store.set_clock(0, -200);
    let first = Lock::take(&mut client, "first");
    rival.line("SETNX first b").is(0);
    first.lives_as_long_as_it_should(&mut rival, "first");
    lock.lives_as_long_as_it_should(&mut rival, "lock");
    // No time was noted that has not come yet.
    let seen =
        "SELECT max(seen) < now() + ahead + interval '2 s' FROM keyfast.fronts, keyfast.clock GROUP BY ahead";
    assert_eq!(store.sql(0, seen), Ok("t".into()));
}

marked!(needs_tools: a_front_end_that_starts_when_the_clock_is_set_takes_no_lock_from_others);
fn a_front_end_that_starts_when_the_clock_is_set_takes_no_lock_from_others() {
    let Some(store) = Postgres::start_with_clocks("clock-newcomer", 1) else { return };
    let front = store.front(&[]);
    let lock = Lock::take(&mut front.client(), "lock");
    store.set_clock(0, 3_600);
    let new = store.front(&[]);
    new.client().line("SETNX lock b").is(0);
    lock.lives_as_long_as_it_should(&mut new.client(), "lock");
    expect_about(ahead_ms(&store, 0), -3_600);
    // Where none is left that knows the time, it believes the earlier of two clocks.
    drop((front, new));
    store.set_clock(0, 7_200);
    let alone = store.front(&[]);
    alone.client().line("SETNX lock b").is(0);
    lock.lives_as_long_as_it_should(&mut alone.client(), "lock");
    assert!(alone.output().contains("Keyfast believes the earlier one"));
}

marked!(needs_tools: a_front_end_that_has_just_been_started_waits_for_one_that_knows_the_time);
fn a_front_end_that_has_just_been_started_waits_for_one_that_knows_the_time() {
    let Some(store) = Postgres::start_with_clocks("clock-new", 1) else { return };
    let front = store.front(&[]);
    let mut client = front.client();
    let lock = Lock::take(&mut client, "lock");
    store.stop_node(0, "fast");
    store.set_clock(0, 100);
    // It cannot connect before the other one can.
    front.signal("STOP");
    store.start_node(0);
    let new = Server::start_with(&["--store", &store.url(), "--store-timeout", "20000"]);
    new.wait_for_output("its time is in doubt");
    front.signal("CONT");
    new.wait_for_output("Connected to the store");
    let mut rival = new.client();
    rival.line("SETNX lock b").is(0);
    lock.lives_as_long_as_it_should(&mut rival, "lock");
    expect_about(ahead_ms(&store, 0), -100);
    // Without one that knows, it believes the store if its own machine's clock says the same.
    drop((front, new));
    let alone = store.front(&[]);
    alone.client().line("SETNX lock b").is(0);
    assert!(!alone.output().contains("Keyfast believes"), "{}", alone.output());
    drop(alone);
    store.stop_node(0, "fast");
    store.set_clock(0, 200);
    store.start_node(0);
    let alone = store.front(&[]);
    alone.wait_for_output("Keyfast believes the earlier one");
    alone.client().line("SETNX lock b").is(0);
    lock.lives_as_long_as_it_should(&mut alone.client(), "lock");
}

marked!(needs_tools: a_store_whose_clock_has_jumped_may_be_refused);
fn a_store_whose_clock_has_jumped_may_be_refused() {
    let Some(store) = Postgres::start_with_clocks("clock-refused", 1) else { return };
    let front = store.front(&["--store-clock-jump", "refuse", "--store-timeout", "2000"]);
    let mut client = front.client();
    let lock = Lock::take(&mut client, "lock");
    store.set_clock(0, 100);
    eventually("it is refused", || {
        let reply = client.line("SETNX lock b").reply();
        assert_ne!(reply, Reply::Integer(1));
        matches!(reply, Reply::Error(why) if why.starts_with("STOREDOWN The store cannot be reached: its clock is ")
            && why.ends_with("set the clock of the server right"))
    });
    store.set_clock(0, 0);
    eventually("it serves again", || client.line("SETNX lock b").reply() == Reply::Integer(0));
    lock.lives_as_long_as_it_should(&mut client, "lock");
    // A clock that was set back is always put right: time does not go back.
    store.set_clock(0, -100);
    eventually("its time is put right", || ahead_ms(&store, 0) > 100_000 - ROOM_MS);
    lock.lives_as_long_as_it_should(&mut client, "lock");
}

marked!(needs_tools: a_front_end_that_was_frozen_leaves_the_time_of_the_store_as_it_is);
fn a_front_end_that_was_frozen_leaves_the_time_of_the_store_as_it_is() {
    const FROZEN: Duration = Duration::from_secs(5);
    let Some((store, _one, _other)) = pair("clock-frozen") else { return };
    let Some(freezer) = Freezer::new("clock-frozen") else { return };
    let front = freezer.front(&store.url());
    let mut client = front.client();
    client.line("SETNX before v").is(1);
    freezer.freeze(&front, FROZEN);
    let lock = Lock::take(&mut client, "lock");
    // Also when it connects anew.
    store.sql(0, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()").ok();
    eventually("it serves", || client.line("SETNX lock b").reply() == Reply::Integer(0));
    lock.lives_as_long_as_it_should(&mut client, "lock");
    assert_eq!(ahead_ms(&store, 0), 0);
}

marked!(needs_tools: a_lock_in_etcd_outlives_a_node_with_another_clock);
fn a_lock_in_etcd_outlives_a_node_with_another_clock() {
    const LIFE: Duration = Duration::from_secs(5);
    let Some(mut etcd) = Etcd::start("clock", 1) else { return };
    if installed("unshare").is_none() {
        return;
    }
    let front = support::store::cluster::front(&etcd.url(), &[]);
    let mut client = front.client();
    let began = Instant::now();
    client.line(&format!("SET lock a NX PX {}", LIFE.as_millis())).is_ok();
    etcd.kill_node(0);
    etcd.clock_ahead = 3_600;
    etcd.start_node(0);
    eventually("it leads", || etcd.leader().is_some());
    // Its leases begin anew: a lock may live for almost twice its time, and never for less.
    eventually("it is free", || match client.line("SETNX lock b").reply() {
        Reply::Integer(taken) => {
            thread::sleep(Duration::from_millis(20));
            taken == 1
        }
        _ => false,
    });
    assert!(began.elapsed() >= LIFE, "it lived for {:?} only", began.elapsed());
}
