//! Fencing numbers of a store: they are not behind those of memory, of other stores and of the clock.

use std::thread;
use std::time::UNIX_EPOCH;

use super::lock::acquire;
use super::{Cluster, Kind, pair};
use crate::lock::server_ahead;
use support::client::{Reply, request};
use support::folder::Folder;
use support::server::Server;
use support::store::postgres::Postgres;

on_both! {
    numbers_are_not_behind_the_clock_when_a_server_connects
    locks_of_one_transaction_have_numbers_of_their_own
    a_lock_that_moves_from_memory_to_a_store_and_back_gets_larger_numbers
}

fn now_us() -> i64 {
    i64::try_from(UNIX_EPOCH.elapsed().expect("after 1970").as_micros()).expect("a number")
}

fn numbers_are_not_behind_the_clock_when_a_server_connects(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "numbers-clock") else { return };
    let mut last = 0;
    for round in 0..2 {
        let before_us = now_us();
        let front = cluster.front(&[]);
        let mut client = front.client();
        for number in [acquire(&mut client, &format!("l{round}"), "a"), {
            client.cmd(["SET", &format!("m{round}"), "a", "NX", "PX", "60000"]).is_ok();
            client.cmd(["LOCK", "EXTEND", &format!("m{round}"), "a", "PX", "60000"]).integer()
        }] {
            assert!(number > last && number >= before_us && number < 1 << 52, "{number} after {last}");
            last = number;
        }
    }
}

fn locks_of_one_transaction_have_numbers_of_their_own(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "numbers-many") else { return };
    let (mut client, mut looker) = (one.client(), other.client());
    let before = acquire(&mut client, "before", "a");
    let keys: Vec<String> = (0..20).map(|number| format!("l{number}")).collect();
    let lines = keys.iter().map(|key| request(["SET", key, "a", "NX", "PX", "60000"]));
    client.send(&lines.collect::<Vec<_>>().concat());
    keys.iter().for_each(|_| client.reply().is_ok());
    client.line("MULTI").is_ok();
    for line in ["SETNX m0 a", "SETNX m1 a", "LOCK ACQUIRE m2 a PX 60000", "LOCK ACQUIRE m3 a PX 60000"] {
        client.line(line).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    let all: Vec<&str> = keys.iter().map(String::as_str).chain(["m0", "m1", "m2", "m3"]).collect();
    let mut numbers: Vec<i64> =
        all.iter().map(|key| looker.cmd(["LOCK", "EXTEND", key, "a", "PX", "60000"]).integer()).collect();
    assert_eq!(replies[2..], [Reply::Integer(numbers[22]), Reply::Integer(numbers[23])]);
    // Both servers see the same ones, and an extension changes none.
    for (key, number) in all.iter().zip(&numbers) {
        client.cmd(["LOCK", "FENCE", key, "a"]).is(*number);
    }
    numbers.push(before);
    let after = acquire(&mut looker, "after", "a");
    assert!(numbers.iter().all(|number| *number < after));
    numbers.sort_unstable();
    assert!(numbers[0] == before && numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
}

fn a_lock_that_moves_from_memory_to_a_store_and_back_gets_larger_numbers(kind: Kind) {
    const HOUR_US: i64 = 3_600_000_000;
    let Some((_cluster, one, other)) = pair(kind, "numbers-moved") else { return };
    let (mut client, mut beside) = (one.client(), other.client());
    let small = acquire(&mut client, "small", "a");
    let folder = Folder::new(&format!("numbers-moved-{kind:?}"));
    // A little more than the store has, and more by far.
    let memories = [Server::start(), server_ahead(&folder, HOUR_US)];
    let mut last = small;
    for memory in &memories {
        let mut here = memory.client();
        let number = acquire(&mut here, "l", "a");
        assert!(number > small);
        here.line(&format!("MIGRATE 127.0.0.1 {} l 0 10000 REPLACE", one.port())).is_ok();
        let moved = beside.line("LOCK FENCE l a").integer();
        assert!(moved > number && moved > last, "{moved} after {number} and {last}");
        let next = acquire(&mut beside, "next", "a");
        assert!(next > moved);
        beside.line("LOCK RELEASE next a").is(1);
        client.line("SET next a NX PX 60000").is_ok();
        last = client.line("LOCK EXTEND next a PX 60000").integer();
        assert!(last > next, "{last} after {next}");
        client.line("LOCK RELEASE next a").is(1);
    }
    assert!(last > small + HOUR_US / 2);
    // Back to a memory whose numbers are smaller.
    let number = client.line("LOCK FENCE l a").integer();
    let Reply::Bulk(payload) = client.line("DUMP l").reply() else { panic!("no payload") };
    let mut memory = memories[0].client();
    memory.cmd([&b"RESTORE"[..], b"l", b"60000", &payload]).is_ok();
    assert!(memory.line("LOCK FENCE l a").integer() > number);
    assert!(acquire(&mut memory, "m", "a") > number);
}

marked!(needs_tools: servers_that_connect_at_the_same_time_set_no_number_back);
/// The sequence is set while others draw from it.
fn servers_that_connect_at_the_same_time_set_no_number_back() {
    let Some(cluster) = Postgres::start("numbers-together", 1) else { return };
    let front = cluster.front(&[]);
    // As after a restore.
    cluster.sql(0, "SELECT setval('keyfast.fence', 1)").expect("the store");
    let mut client = front.client();
    assert!(acquire(&mut client, "old", "a") < 10);
    thread::scope(|scope| {
        let starting: Vec<_> = (0..3).map(|_| scope.spawn(|| cluster.front(&[]))).collect();
        let mut last = 0;
        while !starting.iter().all(|start| start.is_finished()) {
            let number = acquire(&mut client, "l", "a");
            assert!(number > last, "{number} after {last}");
            last = number;
            client.line("LOCK RELEASE l a").is(1);
        }
        for start in starting {
            let front = start.join().expect("a server");
            let number = acquire(&mut front.client(), "l", "a");
            assert!(number > last && number > 1 << 50, "{number} after {last}");
            last = number;
            client.line("LOCK RELEASE l a").is(1);
        }
    });
}
