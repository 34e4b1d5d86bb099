//! WATCH and EXEC over two front-ends: EXEC fails if a watched key was written meanwhile, whatever was
//! written, and however often the key is watched.

use super::{Cluster, Kind, field, pair};
use support::client::{Client, Reply};
use support::server::Server;

on_both! {
    a_key_that_is_watched_twice_is_watched_from_the_first_time_on
    a_lock_that_is_taken_anew_with_the_same_token_has_a_new_holder_and_its_watchers_fail
    watchers_fail_if_several_keys_are_set_to_the_values_that_they_have
    watchers_fail_if_a_key_is_made_and_deleted_by_requests_that_travel_together
}

/// The reply to a transaction of these lines.
#[track_caller]
fn exec(client: &mut Client, lines: &[&str]) -> Reply {
    client.line("MULTI").is_ok();
    lines.iter().for_each(|line| client.line(line).is_simple("QUEUED"));
    client.line("EXEC").reply()
}

fn a_key_that_is_watched_twice_is_watched_from_the_first_time_on(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "twice") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("SET present 1").is_ok();
    one.line("SET gone 1").is_ok();
    let changes = [("present", "SET present 2"), ("absent", "SET absent 2"), ("gone", "DEL gone")];
    for (key, change) in changes {
        for again in [format!("WATCH {key}"), format!("WATCH before {key} other")] {
            one.line("SET result 0").is_ok();
            one.line(&format!("WATCH {key}")).is_ok();
            one.line(&format!("GET {key}")).ignored();
            other.line(change).ignored();
            one.line(&again).is_ok();
            assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null, "{change}; {again}");
            one.line("GET result").is("0");
            other.line("DEL absent").ignored();
            other.line("SET gone 1").is_ok();
        }
    }
    // A key that has not changed may be watched as often as one likes.
    for _ in 0..3 {
        one.line("WATCH present absent").is_ok();
    }
    assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Array(vec![Reply::Simple("OK".into())]));
}

/// The holder and the fencing number of a lock.
fn tenure(front: &Server, key: &str) -> (String, i64) {
    let lock = front.client3().line(&format!("LOCKS GET {key}")).reply();
    let fence = field(&lock, "fencing");
    let fence = fence.trim_start_matches("(integer) ").parse().expect("a number");
    (field(&lock, "holder"), fence)
}

fn a_lock_that_is_taken_anew_with_the_same_token_has_a_new_holder_and_its_watchers_fail(kind: Kind) {
    let Some((_cluster, one_front, other_front)) = pair(kind, "same-token") else { return };
    let (mut one, mut other) = (one_front.client(), other_front.client());
    let anew =
        "redis.call('del',KEYS[1]) redis.call('setnx',KEYS[1],'token') return redis.call('set',KEYS[2],1)";
    for is_script in [false, true] {
        one.line("DEL lock").ignored();
        one.line("SET lock token NX").is_ok();
        let (holder, before) = tenure(&one_front, "lock");
        assert!(holder.starts_with("\"one "), "{holder}");
        one.line("WATCH lock").is_ok();
        match is_script {
            true => other.cmd(["EVAL", anew, "2", "lock", "beside"]).is_ok(),
            false => drop(exec(&mut other, &["DEL lock", "SETNX lock token", "SET beside 1"])),
        }
        assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null);
        let (holder, after) = tenure(&one_front, "lock");
        assert!(holder.starts_with("\"other ") && after > before, "{holder}: {after} after {before}");
    }
}

fn watchers_fail_if_several_keys_are_set_to_the_values_that_they_have(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "same-values") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("MSET a 1 b 2 c 3").is_ok();
    for change in ["MSET a 1 b 2", "MSET a 1 c 4", "EVAL \"return redis.call('set',KEYS[1],1)\" 2 a b"] {
        one.line("WATCH a").is_ok();
        other.line(change).is_ok();
        assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null, "{change}");
    }
    // What a request names and does not write has not changed.
    one.line("WATCH a").is_ok();
    other.line("EVAL \"return redis.call('set',KEYS[2],redis.call('get',KEYS[1]))\" 2 a b").is_ok();
    other.line("MGET a b").ignored();
    assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Array(vec![Reply::Simple("OK".into())]));
}

fn watchers_fail_if_a_key_is_made_and_deleted_by_requests_that_travel_together(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "made-and-deleted") else { return };
    let (one, other) = (cluster.front(&[]), cluster.front(&[]));
    let (mut one, mut other) = (one.client(), other.client());
    for round in 0..10 {
        one.line("WATCH brief").is_ok();
        let before = other.info("store_batches");
        other.send(b"SETNX brief 1\r\nDEL brief\r\n");
        other.reply().is(1);
        other.reply().is(1);
        let after = other.info("store_batches");
        assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null, "round {round}: {before} to {after}");
    }
    let ways = [
        "MULTI\r\nSET brief 1\r\nDEL brief\r\nEXEC\r\n",
        "MULTI\r\nSET brief 1\r\nSET b 1\r\nDEL brief\r\nEXEC\r\n",
    ];
    for way in ways {
        one.line("WATCH brief").is_ok();
        other.send(way.as_bytes());
        (0..way.lines().count()).for_each(|_| other.reply().ignored());
        assert_eq!(exec(&mut one, &["SET result 1"]), Reply::Null, "{way}");
    }
}
