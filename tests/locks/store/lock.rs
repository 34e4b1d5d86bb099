//! LOCK with keys in a store: the number is exact over all front-ends, and each of them grants locks to its
//! clients that wait in the order in which they came.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Cluster, Kind, pair, wait_until_heard};
use crate::paused::nothing_is_lost;
use support::client::{Client, Reply, request};
use support::server::{Server, SetOnDrop};
use support::store::cluster::{eventually, front};
use support::store::etcd::Etcd;
use support::store::postgres::Postgres;

on_both! {
    the_number_comes_with_the_grant_at_each_front_end
    it_is_exact_within_transactions_scripts_and_pipelines
    a_key_that_others_write_keeps_no_transaction_from_its_lock
    each_grant_has_a_number_of_its_own_over_both_front_ends
    whatever_frees_a_lock_at_one_front_end_grants_it_at_the_other
    each_front_end_grants_the_lock_to_its_clients_in_the_order_in_which_they_came
    a_lock_that_expires_goes_to_the_first_in_line
    a_client_that_leaves_leaves_the_line_of_both
    a_free_lock_is_granted_at_once_though_a_front_end_has_died_whose_clients_waited
    a_client_that_comes_again_finds_its_lock_at_each_front_end
    a_client_that_comes_again_takes_over_the_place_of_its_attempt_before
    a_lock_that_is_broken_at_one_front_end_is_granted_at_the_other
    a_lock_of_set_nx_has_a_number_too
    numbers_outlive_front_ends_and_failures_of_the_store
    paused_holders_lose_nothing
    several_locks_are_taken_together_or_not_at_all_at_each_front_end
    who_waits_for_several_locks_keeps_none_from_others
    several_locks_have_one_holder_each_over_both_front_ends
}

/// Takes a free lock for a minute, and returns the number.
#[track_caller]
pub(super) fn acquire(client: &mut Client, key: &str, token: &str) -> i64 {
    client.cmd(["LOCK", "ACQUIRE", key, token, "PX", "60000"]).integer()
}

/// Lets a client wait for the lock `l`, with this token. Returns when the server knows of it.
#[track_caller]
fn wait(front: &Server, token: &str, lifetime_ms: u64) -> Client {
    let mut client = front.client();
    front.have_wait(&mut client, &format!("LOCK ACQUIRE l {token} PX {lifetime_ms} WAIT 60000"));
    client
}

fn the_number_comes_with_the_grant_at_each_front_end(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock") else { return };
    let (mut a, mut b) = (one.client(), other.client());
    let first = acquire(&mut a, "l", "a");
    for token in ["a", "b"] {
        b.cmd(["LOCK", "ACQUIRE", "l", token, "PX", "60000"]).is_nil();
    }
    for client in [&mut a, &mut b] {
        client.line("LOCK FENCE l a").is(first);
        client.line("LOCK FENCE l b").is_nil();
        client.line("LOCK EXTEND l a PX 90000").is(first);
        client.line("LOCK EXTEND l b PX 90000").is_nil();
        client.line("LOCK RELEASE l b").is(0);
        client.line("SETNX l b").is(0);
        client.line("GET l").is("a");
        assert!(client.line("PTTL l").integer() > 60_000);
    }
    b.line("PERSIST l").is(1);
    a.line("LOCK FENCE l a").is(first);
    b.line("LOCK RELEASE l a").is(1);
    a.line("LOCK RELEASE l a").is(0);
    a.line("LOCK FENCE l a").is_nil();
    let second = acquire(&mut b, "l", "a");
    assert!(second > first, "though the token is the same");
    // Beside each other, with other keys.
    let third = acquire(&mut a, "m", "a");
    assert!(third > second);
    a.line("RENAME m n").is_ok();
    let fourth = b.line("LOCK FENCE n a").integer();
    assert!(fourth > third);
    b.line("SET n a").is_ok();
    a.line("SET n b").is_ok();
    assert!(acquire(&mut a, "o", "a") > fourth);
}

fn it_is_exact_within_transactions_scripts_and_pipelines(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-exact") else { return };
    let (mut a, mut b) = (one.client(), other.client());
    a.line("MULTI").is_ok();
    for line in [
        "LOCK ACQUIRE l a PX 60000",
        "LOCK FENCE l a",
        "LOCK RELEASE l a",
        "LOCK ACQUIRE l b PX 60000",
        "SET s v",
    ] {
        a.line(line).is_simple("QUEUED");
    }
    let replies = a.line("EXEC").items();
    let [Reply::Integer(first), shown, released, Reply::Integer(second), _] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((shown, released), (&Reply::Integer(*first), &Reply::Integer(1)));
    assert!(second > first);
    b.line("LOCK FENCE l b").is(*second);
    let script = "local n = redis.call('LOCK', 'ACQUIRE', KEYS[1], ARGV[1], 'PX', 60000) \
                  if not n then return 0 end \
                  redis.call('SET', KEYS[2], string.format('%d', n)) \
                  redis.call('LOCK', 'ACQUIRE', KEYS[3], ARGV[1], 'PX', 60000) return n";
    let number = b.cmd(["EVAL", script, "3", "m", "n", "o", "a"]).integer();
    assert!(number > *second);
    a.line("LOCK FENCE m a").is(number);
    a.line("GET n").is(number.to_string().as_str());
    assert!(a.line("LOCK FENCE o a").integer() > number);
    a.cmd(["EVAL", script, "3", "m", "n", "o", "b"]).is(0);
    // Written before anything is read.
    let lines = [
        "LOCK ACQUIRE p a PX 60000",
        "LOCK FENCE p a",
        "LOCK EXTEND p a PX 70000",
        "LOCK RELEASE p a",
        "LOCK ACQUIRE p b PX 60000",
        "LOCK ACQUIRE p c PX 60000",
        "LOCK FENCE p b",
    ];
    a.send(&lines.iter().flat_map(|line| request(line.split(' '))).collect::<Vec<u8>>());
    let first = a.reply().integer();
    a.reply().is(first);
    a.reply().is(first);
    a.reply().is(1);
    let second = a.reply().integer();
    assert!(second > first);
    a.reply().is_nil();
    a.reply().is(second);
    // What else a transaction writes, however often, gives a lock that it extends no other number.
    let number = acquire(&mut a, "r", "a");
    a.line("MULTI").is_ok();
    for line in ["INCR i", "INCR i", "LOCK EXTEND r a PX 90000", "INCR i"] {
        a.line(line).is_simple("QUEUED");
    }
    assert_eq!(a.line("EXEC").items()[2], Reply::Integer(number));
    b.line("LOCK FENCE r a").is(number);
    // A client that watches the lock sees that it was taken.
    b.line("WATCH q").is_ok();
    acquire(&mut a, "q", "a");
    b.line("MULTI").is_ok();
    b.line("LOCK ACQUIRE q b PX 60000").is_simple("QUEUED");
    b.line("EXEC").is_nil();
}

/// What draws a number does not run again for that, however often others change its other keys.
fn a_key_that_others_write_keeps_no_transaction_from_its_lock(kind: Kind) {
    const CLIENTS: u64 = 6;
    const ROUNDS: u64 = 20;
    let Some((_cluster, one, _other)) = pair(kind, "lock-shared") else { return };
    let script = "redis.call('INCR', KEYS[1]) \
                  local n = redis.call('LOCK', 'ACQUIRE', KEYS[2], ARGV[1], 'PX', 60000) \
                  redis.call('LOCK', 'RELEASE', KEYS[2], ARGV[1]) return n";
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = one.client();
            scope.spawn(move || {
                let (lock, mut last) = (format!("l{number}"), 0);
                for round in 0..ROUNDS {
                    let fence = if round % 2 == 0 {
                        for line in [
                            "MULTI".to_owned(),
                            "INCR count".to_owned(),
                            format!("LOCK ACQUIRE {lock} a PX 60000"),
                            format!("LOCK RELEASE {lock} a"),
                        ] {
                            client.line(&line).ignored();
                        }
                        let replies = client.line("EXEC").items();
                        let [_, Reply::Integer(fence), Reply::Integer(1)] = replies[..] else {
                            panic!("{replies:?}")
                        };
                        fence
                    } else {
                        client.cmd(["EVAL", script, "2", "count", &lock, "a"]).integer()
                    };
                    assert!(fence > last, "{fence} after {last}");
                    last = fence;
                }
            });
        }
    });
    let mut client = one.client();
    client.line("GET count").is((CLIENTS * ROUNDS).to_string().as_str());
    // Each one is once not done, when it draws. A few others guess wrong before the counter is known.
    let overtaken: u64 = client.info("store_overtaken").parse().expect("a number");
    assert!(overtaken < CLIENTS * ROUNDS * 3 / 2, "{overtaken}");
}

/// Clients of both front-ends take and release few locks as fast as they can.
fn each_grant_has_a_number_of_its_own_over_both_front_ends(kind: Kind) {
    const ROUNDS: usize = 60;
    let Some((_cluster, one, other)) = pair(kind, "lock-numbers") else { return };
    let granted: Mutex<Vec<(usize, Instant, i64, Instant)>> = Mutex::default();
    thread::scope(|scope| {
        for number in 0..8 {
            let (front, granted) = (if number % 2 == 0 { &one } else { &other }, &granted);
            scope.spawn(move || {
                let mut client = front.client();
                for round in 0..ROUNDS {
                    let key = (number + round) % 3;
                    let lines = [
                        format!("LOCK ACQUIRE l{key} t{number} PX 60000 WAIT 60000"),
                        format!("LOCK RELEASE l{key} t{number}"),
                    ];
                    let began = Instant::now();
                    let fence = client.line(&lines[0]).integer();
                    granted.lock().unwrap().push((key, began, fence, Instant::now()));
                    client.line(&lines[1]).is(1);
                }
            });
        }
    });
    let mut granted = granted.into_inner().unwrap();
    let numbers: BTreeSet<i64> = granted.iter().map(|(_, _, fence, _)| *fence).collect();
    assert_eq!(numbers.len(), 8 * ROUNDS, "no number is given twice");
    // A lock that was granted before another was asked for has the smaller number, whatever the keys are.
    granted.sort_by_key(|(_, _, fence, _)| *fence);
    let mut latest_begin = granted[0].1;
    for (key, began, fence, ended) in &granted {
        assert!(*ended >= latest_begin, "{fence} of lock {key}");
        latest_begin = latest_begin.max(*began);
    }
}

fn whatever_frees_a_lock_at_one_front_end_grants_it_at_the_other(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-freed") else { return };
    wait_until_heard(&mut one.client(), &other);
    wait_until_heard(&mut other.client(), &one);
    let mut holder = one.client();
    let release =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let ways: [&[&str]; 9] = [
        &["LOCK", "RELEASE", "l", "holder"],
        &["DEL", "l"],
        &["UNLINK", "l"],
        &["DELIFEQ", "l", "holder"],
        &["EVAL", release, "1", "l", "holder"],
        &["PEXPIREAT", "l", "1"],
        &["RENAME", "l", "m"],
        &["FLUSHDB"],
        &["PEXPIRE", "l", "30"],
    ];
    for way in ways {
        let first = acquire(&mut holder, "l", "holder");
        let mut waiting = wait(&other, "b", 60_000);
        holder.cmd(way).ignored();
        let reply = waiting.reply().reply();
        let Reply::Integer(granted) = reply else { panic!("{way:?}: {reply}") };
        assert!(granted > first, "{way:?}");
        holder.line("LOCK FENCE l b").is(granted);
        holder.line("LOCK RELEASE l b").is(1);
        holder.line("DEL m").ignored();
    }
}

fn each_front_end_grants_the_lock_to_its_clients_in_the_order_in_which_they_came(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-order") else { return };
    let mut holder = one.client();
    let mut last = acquire(&mut holder, "l", "holder");
    let mut waiting: Vec<Client> =
        (0..10).map(|number| wait([&one, &other][number % 2], &number.to_string(), 60_000)).collect();
    holder.line("LOCK RELEASE l holder").is(1);
    let mut granted: [Vec<usize>; 2] = Default::default();
    for _ in 0..waiting.len() {
        eventually("it is granted", || holder.line("EXISTS l").integer() == 1);
        let token = holder.line("GET l").text();
        let number: usize = token.parse().expect("a number");
        let fence = waiting[number].reply().integer();
        assert!(fence > last);
        last = fence;
        granted[number % 2].push(number);
        holder.cmd(["LOCK", "RELEASE", "l", &token]).is(1);
    }
    assert_eq!(granted, [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]);
}

/// PostgreSQL has keys expire to the millisecond, and etcd a second or two late. Neither is early.
fn a_lock_that_expires_goes_to_the_first_in_line(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-expires") else { return };
    wait_until_heard(&mut one.client(), &other);
    wait_until_heard(&mut other.client(), &one);
    let mut holder = one.client();
    let mut last = acquire(&mut holder, "l", "holder");
    let mut waiting: Vec<Client> = (0..3).map(|number| wait(&other, &number.to_string(), 100)).collect();
    let began = Instant::now();
    holder.line("LOCK EXTEND l holder PX 300").is(last);
    let mut least = Duration::from_millis(300);
    for (number, client) in waiting.iter_mut().enumerate() {
        let granted = client.reply().integer();
        assert!(granted > last && began.elapsed() >= least, "{number}");
        last = granted;
        least += Duration::from_millis(100);
    }
}

fn a_client_that_leaves_leaves_the_line_of_both(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-leaves") else { return };
    let mut holder = one.client();
    acquire(&mut holder, "l", "holder");
    let first = wait(&one, "gone", 60_000);
    let second = wait(&other, "gone-too", 60_000);
    let mut third = wait(&other, "c", 60_000);
    drop((first, second));
    holder.line("LOCK ACQUIRE l late PX 60000 WAIT 50").is_nil();
    let waiting = |front: &Server| front.client().info("blocked_clients").parse::<usize>().expect("a number");
    eventually("they have left", || waiting(&one) + waiting(&other) == 1);
    holder.line("LOCK RELEASE l holder").is(1);
    third.reply().integer();
    holder.line("GET l").is("c");
}

fn a_free_lock_is_granted_at_once_though_a_front_end_has_died_whose_clients_waited(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-dead") else { return };
    wait_until_heard(&mut other.client(), &one);
    let (mut holder, mut client) = (other.client(), other.client());
    let number = acquire(&mut holder, "l", "a");
    let _waiting = wait(&one, "b", 60_000);
    one.signal("KILL");
    holder.line("LOCK RELEASE l a").is(1);
    assert!(acquire(&mut client, "l", "c") > number);
    // So it is for a client that waits: it does so for the lock, and not for the dead.
    let mut waiting = wait(&other, "d", 60_000);
    let began = Instant::now();
    client.line("LOCK RELEASE l c").is(1);
    waiting.reply().integer();
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// A client never reads the reply that grants it the lock.
fn a_client_that_comes_again_finds_its_lock_at_each_front_end(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-again") else { return };
    let (mut a, mut b) = (one.client(), other.client());
    let mut lost = one.client();
    lost.send(&request("LOCK ACQUIRE l a PX 60000 AGAIN".split(' ')));
    eventually("it has the lock", || b.line("EXISTS l").integer() == 1);
    drop(lost);
    let number = b.line("LOCK ACQUIRE l a PX 1000 AGAIN").integer();
    for client in [&mut a, &mut b] {
        client.line("LOCK ACQUIRE l a PX 60000").is_nil();
        client.line("LOCK ACQUIRE l b PX 60000 AGAIN").is_nil();
        client.line("LOCK ACQUIRE l b PX 60000 WAIT 1 AGAIN").is_nil();
        client.line("LOCK ACQUIRE l a PX 1000 WAIT 60000 AGAIN").is(number);
        assert!(client.line("PTTL l").integer() > 50_000, "the later end");
    }
    a.line("LOCK ACQUIRE l a PX 90000 AGAIN").is(number);
    assert!(b.line("PTTL l").integer() > 80_000);
    b.line("MULTI").is_ok();
    b.line("LOCK ACQUIRE l a PX 1000 AGAIN").is_simple("QUEUED");
    b.line("LOCK ACQUIRE l b PX 1000 WAIT 0 AGAIN").is_simple("QUEUED");
    assert_eq!(b.line("EXEC").items(), [Reply::Integer(number), Reply::Null]);
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], ARGV[1], 'PX', 99000, 'AGAIN')";
    a.cmd(["EVAL", script, "1", "l", "a"]).is(number);
    assert!(b.line("PTTL l").integer() > 90_000);
    // Those in line are not passed by, and do not come before it either.
    let mut waiting = wait(&one, "w", 60_000);
    a.line("LOCK ACQUIRE l a PX 1000 WAIT 60000 AGAIN").is(number);
    b.line("LOCK RELEASE l a").is(1);
    let next = waiting.reply().integer();
    assert!(next > number);
    a.line("LOCK ACQUIRE l a PX 1000 AGAIN").is_nil();
    a.line("LOCK RELEASE l w").is(1);
    b.line("SET l a").is_ok();
    a.line("LOCK ACQUIRE l a PX 1000 AGAIN").is_nil();
    b.line("PTTL l").is(-1);
}

fn a_client_that_comes_again_takes_over_the_place_of_its_attempt_before(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-place") else { return };
    let mut holder = other.client();
    acquire(&mut holder, "l", "h");
    let (mut old, mut behind) = (wait(&one, "a", 60_000), wait(&one, "b", 60_000));
    let mut new = one.client();
    new.send(&request("LOCK ACQUIRE l a PX 60000 WAIT 60000 AGAIN".split(' ')));
    old.reply().is_nil();
    old.line("PING").is_simple("PONG");
    drop(old);
    eventually("two wait", || one.client().info("blocked_clients") == "2");
    holder.line("LOCK RELEASE l h").is(1);
    let first = new.reply().integer();
    assert!(behind.is_silent_for(Duration::from_millis(20)));
    // What was granted to an attempt at another front-end is the client's as well, though it waits here.
    let mut elsewhere = wait(&one, "c", 60_000);
    holder.line("LOCK RELEASE l a").is(1);
    assert!(behind.reply().integer() > first);
    let mut again = other.client();
    other.have_wait(&mut again, "LOCK ACQUIRE l c PX 60000 WAIT 60000 AGAIN");
    new.line("LOCK RELEASE l b").is(1);
    let granted = again.reply().integer();
    holder.line("LOCK FENCE l c").is(granted);
    holder.line("LOCK RELEASE l c").is(1);
    elsewhere.reply().integer();
}

fn a_lock_that_is_broken_at_one_front_end_is_granted_at_the_other(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-break") else { return };
    let mut holder = one.client();
    let number = acquire(&mut holder, "l", "h");
    let mut next = wait(&other, "a", 60_000);
    one.client().line("LOCK BREAK l").is(1);
    assert!(next.reply().integer() > number);
    holder.line("LOCK EXTEND l h PX 60000").is_nil();
    let mut admin = other.client();
    for taken in ["SETNX m a", "SET m a PX 60000"] {
        holder.line(taken).ignored();
        admin.line("LOCK BREAK m").is(1);
        admin.line("LOCK BREAK m").is(0);
    }
    holder.line("SET m a").is_ok();
    admin.line("LOCK BREAK m").is(0);
    admin.line("MULTI").is_ok();
    admin.line("LOCK BREAK l").is_simple("QUEUED");
    admin.line("LOCK ACQUIRE l b PX 60000").is_simple("QUEUED");
    let replies = admin.line("EXEC").items();
    assert!(matches!(replies[..], [Reply::Integer(1), Reply::Integer(next)] if next > number), "{replies:?}");
}

/// In a store each lock has a number, for which its key has been absent: with it LOCK serves those that other
/// clients take.
fn a_lock_of_set_nx_has_a_number_too(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-setnx") else { return };
    let (mut a, mut b) = (one.client(), other.client());
    let mut last = acquire(&mut a, "l", "a");
    a.line("DEL l").is(1);
    for line in ["SET l b NX PX 60000", "SETNX l b"] {
        b.line(line).ignored();
        let number = a.line("LOCK EXTEND l b PX 60000").integer();
        assert!(number > last, "{line}");
        a.line("LOCK FENCE l b").is(number);
        b.line("LOCK FENCE l b").is(number);
        a.line("LOCK RELEASE l b").is(1);
        last = acquire(&mut b, "l", "a");
        assert!(last > number);
        b.line("LOCK RELEASE l a").is(1);
    }
}

fn numbers_outlive_front_ends_and_failures_of_the_store(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "lock-outlives") else { return };
    let mut last = 0;
    for round in 0..3 {
        let front = cluster.front(&[]);
        let mut client = front.client();
        if round > 0 {
            client.line("LOCK FENCE l a").is(last);
            client.line("LOCK EXTEND l a PX 60000").is(last);
        }
        for key in ["l", "m"] {
            client.cmd(["DEL", key]).ignored();
            let number = acquire(&mut client, key, "a");
            assert!(number > last);
            last = number;
        }
        if round == 1 {
            cluster.stop();
            cluster.start_again();
            eventually("the store is back", || client.line("LOCK FENCE m a").reply() == Reply::Integer(last));
        }
        client.line("DEL l").is(1);
        last = acquire(&mut client, "l", "a");
    }
}

/// etcd's leases last for a second at least, and go late.
fn paused_holders_lose_nothing(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-paused") else { return };
    let (times, rounds) = match kind {
        Kind::Postgres => ([200, 250], 200),
        Kind::Etcd => ([1_000, 4_000], 60),
    };
    let [lifetime, pause] = times.map(Duration::from_millis);
    nothing_is_lost(&[&one, &other], (lifetime, pause), rounds);
}

marked!(needs_tools: numbers_grow_when_the_primary_is_killed_and_replaced);
fn numbers_grow_when_the_primary_is_killed_and_replaced() {
    let Some(cluster) = Postgres::start("lock-failover", 3) else { return };
    grow_over(&front(&cluster.url(), &["--store-timeout", "2000"]), || {
        cluster.kill_node(0);
        cluster.fail_over([1, 2]);
    });
}

marked!(needs_tools: numbers_grow_when_the_leader_is_killed_and_replaced);
fn numbers_grow_when_the_leader_is_killed_and_replaced() {
    let Some(cluster) = Etcd::start("lock-failover", 3) else { return };
    let leader = cluster.next_leader();
    grow_over(&front(&cluster.url(), &["--store-timeout", "2000"]), || cluster.kill_node(leader));
}

/// Clients take and release locks while nodes fail: a lock that was granted later has a larger number.
fn grow_over(front: &Server, fail: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    let granted: Mutex<Vec<(Instant, i64, Instant)>> = Mutex::default();
    let take = |number: usize| {
        let mut client = front.client();
        while !is_over.load(Ordering::Acquire) {
            let key = format!("l{}", number % 2);
            let token = format!("t{number}-{}", fastrand::u64(..));
            let began = Instant::now();
            let line = format!("LOCK ACQUIRE {key} {token} PX 5000 WAIT 100");
            if let Ok(Reply::Integer(fence)) = client.try_line(&line) {
                granted.lock().unwrap().push((began, fence, Instant::now()));
            }
            // Also after an error: the store may have granted it.
            let line = format!("LOCK RELEASE {key} {token}");
            while matches!(client.try_line(&line), Ok(Reply::Error(_))) {}
        }
    };
    let count = || granted.lock().unwrap().len();
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        let take = &take;
        (0..4).for_each(|number| _ = scope.spawn(move || take(number)));
        eventually("locks are granted", || count() > 20);
        fail();
        let before = count();
        eventually("locks are granted again", || count() > before + 20);
        is_over.store(true, Ordering::Release);
    });
    let mut granted = granted.into_inner().unwrap();
    granted.sort_by_key(|(_, fence, _)| *fence);
    assert!(granted.windows(2).all(|two| two[0].1 < two[1].1), "no number is given twice");
    let mut latest_begin = granted[0].0;
    for (began, fence, ended) in &granted {
        assert!(*ended >= latest_begin, "{fence} is too large");
        latest_begin = latest_begin.max(*began);
    }
}

fn several_locks_are_taken_together_or_not_at_all_at_each_front_end(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-also") else { return };
    let (mut a, mut b) = (one.client(), other.client());
    let first = acquire(&mut a, "b", "x");
    let number = b.line("LOCK ACQUIRE c t PX 60000 ALSO 2 d e").integer();
    assert!(number > first);
    for key in ["c", "d", "e"] {
        a.cmd(["LOCK", "FENCE", key, "t"]).is(number);
    }
    for line in ["LOCK ACQUIRE a u PX 60000 ALSO 1 d", "LOCK ACQUIRE a u PX 60000 WAIT 20 ALSO 1 b"] {
        a.line(line).is_nil();
        b.line(line).is_nil();
    }
    a.line("EXISTS a").is(0);
    a.line("LOCK EXTEND c t PX 90000 ALSO 2 d e").is(number);
    a.line("LOCK EXTEND c t PX 90000 ALSO 2 b e").is_nil();
    assert!(b.line("PTTL e").integer() > 60_000);
    // A client that comes again finds them, and takes what it lacks.
    a.line("LOCK ACQUIRE c t PX 1000 AGAIN ALSO 2 d e").is(number);
    b.line("LOCK RELEASE d t").is(1);
    let second = a.line("LOCK ACQUIRE c t PX 60000 AGAIN ALSO 2 d e").integer();
    assert!(second > number);
    b.line("LOCK FENCE d t").is(second);
    b.line("LOCK FENCE c t").is(number);
    b.line("LOCK EXTEND c t PX 60000 ALSO 2 d e").is(second);
    let mut waiting = other.client();
    other.have_wait(&mut waiting, "LOCK ACQUIRE b t PX 60000 WAIT 60000 AGAIN ALSO 2 c f");
    a.line("LOCK RELEASE b x").is(1);
    let third = waiting.reply().integer();
    assert!(third > second);
    a.line("LOCK FENCE f t").is(third);
    a.line("LOCK RELEASE b t ALSO 6 b c d e f nosuch").is(5);
    // In transactions and scripts, and beside memory.
    a.line("MULTI").is_ok();
    a.line("LOCK ACQUIRE a t PX 60000 ALSO 1 b").is_simple("QUEUED");
    a.line("LOCK RELEASE b t ALSO 1 a").is_simple("QUEUED");
    let replies = a.line("EXEC").items();
    assert!(
        matches!(replies[..], [Reply::Integer(fence), Reply::Integer(2)] if fence > third),
        "{replies:?}"
    );
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], ARGV[1], 'PX', 60000, 'ALSO', 1, KEYS[2])";
    let number = b.cmd(["EVAL", script, "2", "a", "b", "s"]).integer();
    a.line("LOCK FENCE b s").is(number);
    a.line("LOCK RELEASE a s ALSO 1 b").is(2);
    // Each is guarded, and all end with the connection.
    let mut holder = one.client();
    holder.line("LOCK ACQUIRE a t PX 60000 BOUND GRACE 0 NOTIFY ALSO 1 b").integer();
    b.line("EXISTS a b").is(2);
    drop(holder);
    eventually("both are free", || b.line("EXISTS a b").integer() == 0);
}

/// A holder of one lock asks for another one, for which a client waits that lacks the first.
fn who_waits_for_several_locks_keeps_none_from_others(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-also-waits") else { return };
    wait_until_heard(&mut one.client(), &other);
    wait_until_heard(&mut other.client(), &one);
    for (near, far) in [(&one, &one), (&one, &other), (&other, &one)] {
        let mut holder = near.client();
        acquire(&mut holder, "a", "x");
        let mut group = far.client();
        far.have_wait(&mut group, "LOCK ACQUIRE a w PX 60000 WAIT 60000 ALSO 1 b");
        let second = holder.line("LOCK ACQUIRE b x PX 60000 WAIT 60000").integer();
        let mut third = far.client();
        far.have_wait(&mut third, "LOCK ACQUIRE b y PX 60000 WAIT 60000");
        holder.line("LOCK RELEASE b x").is(1);
        let number = third.reply().integer();
        assert!(number > second);
        holder.line("LOCK RELEASE a x").is(1);
        assert!(group.is_silent_for(Duration::from_millis(20)));
        third.line("LOCK RELEASE b y").is(1);
        assert!(group.reply().integer() > number);
        // One of those that a group has taken expires, and goes to the next in its line.
        let mut next = near.client();
        near.have_wait(&mut next, "LOCK ACQUIRE b z PX 60000 WAIT 60000 ALSO 1 c");
        holder.line("PEXPIRE b 30").is(1);
        next.reply().integer();
        holder.line("LOCK RELEASE a z ALSO 2 b c").is(2);
        group.line("LOCK RELEASE a w ALSO 1 b").is(1);
    }
}

/// Clients of both front-ends take random groups of a few locks, and mark what they hold.
fn several_locks_have_one_holder_each_over_both_front_ends(kind: Kind) {
    const KEYS: usize = 6;
    const ROUNDS: usize = 12;
    let Some((_cluster, one, other)) = pair(kind, "lock-also-load") else { return };
    let held: [AtomicBool; KEYS] = Default::default();
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let (front, held) = (if number % 2 == 0 { &one } else { &other }, &held);
            scope.spawn(move || {
                let (mut random, mut client) = (fastrand::Rng::with_seed(number), front.client());
                let mut last = 0;
                for _ in 0..ROUNDS {
                    let mut keys: Vec<usize> = (0..KEYS).collect();
                    random.shuffle(&mut keys);
                    keys.truncate(random.usize(2..=3));
                    let also: String = keys[1..].iter().map(|key| format!(" k{key}")).collect();
                    let also = format!("ALSO {}{also}", keys.len() - 1);
                    let first = keys[0];
                    let line = format!("LOCK ACQUIRE k{first} t{number} PX 600000 WAIT 0 {also}");
                    let fence = client.line(&line).integer();
                    assert!(fence > last);
                    last = fence;
                    for key in &keys {
                        assert!(!held[*key].swap(true, Ordering::SeqCst), "two hold k{key}");
                    }
                    keys.iter().for_each(|key| held[*key].store(false, Ordering::SeqCst));
                    let count = keys.len() as i64;
                    client.line(&format!("LOCK RELEASE k{first} t{number} {also}")).is(count);
                }
            });
        }
    });
    one.client().line("DBSIZE").is(0);
}
