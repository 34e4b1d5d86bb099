//! Keys that end: to the millisecond when asked for, and soon enough when not.

use std::time::{Duration, Instant};

use crate::client::{Client, Reply};
use crate::server::{Server, wait_until};

#[test]
fn a_key_is_there_until_its_millisecond_and_absent_from_it_on() {
    let server = Server::start();
    let mut client = server.client();
    for _ in 0..20 {
        let before = Instant::now();
        client.line("SET lock holder PX 25").is_ok();
        let after = Instant::now();
        let gone = loop {
            let asked = Instant::now();
            if client.line("GET lock").reply().to_string() == "(nil)" {
                break asked;
            }
        };
        let answered = Instant::now();
        assert!(answered - before >= Duration::from_millis(25), "it went too early");
        assert!(gone < after + Duration::from_millis(25) || client.line("EXISTS lock").integer() == 0);
        client.line("SETNX lock another").is(1);
        client.line("TTL lock").is(-1);
        client.line("DEL lock").is(1);
    }
}

/// The server's time in microseconds.
fn time_us(client: &mut Client) -> i64 {
    let parts = client.line("TIME").items();
    let number = |reply: &Reply| match reply {
        Reply::Bulk(text) => std::str::from_utf8(text).unwrap().parse::<i64>().unwrap(),
        other => panic!("no time: {other}"),
    };
    number(&parts[0]) * 1_000_000 + number(&parts[1])
}

/// A holder counts the time of its lock from before it has asked. Expiries are whole milliseconds.
#[test]
fn what_is_to_live_for_some_time_lives_for_all_of_it() {
    let mut client = Server::start().into_client();
    client.line("SET saved v").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP saved").reply() else { panic!("no payload") };
    let ways = [
        ("SET k v PX 1", 1),
        ("SET k v NX PX 7", 7),
        ("SET k v EX 1", 1000),
        ("SET k v PX 3 GET", 3),
        ("PSETEX k 5 v", 5),
        ("SETEX k 1 v", 1000),
        ("PEXPIRE k 9", 9),
        ("EXPIRE k 1", 1000),
        ("GETEX k PX 11", 11),
        ("GETEX k EX 1", 1000),
        ("MSETEX 1 k v PX 8", 8),
        ("RESTORE k 6 payload", 6),
        ("EVAL return(redis.call('SET','k','v','PX','4')) 0", 4),
        ("HPEXPIRE k 12 FIELDS 1 f", 12),
        ("HEXPIRE k 1 FIELDS 1 f", 1000),
        ("HSETEX k PX 13 FIELDS 1 f v", 13),
        ("HGETEX k PX 14 FIELDS 1 f", 14),
    ];
    for (line, lives_ms) in ways.iter().cycle().take(20 * ways.len()) {
        client.line("DEL k").reply();
        let (before, question) = match line {
            _ if line.starts_with('H') => ("HSET k f v", "HPEXPIRETIME k FIELDS 1 f"),
            _ if line.contains("NX") || line.starts_with("RESTORE") => ("PING", "PEXPIRETIME k"),
            _ => ("SET k v", "PEXPIRETIME k"),
        };
        client.line(before).reply();
        let words = line.split(' ').map(|word| if word == "payload" { &payload } else { word.as_bytes() });
        let before_us = time_us(&mut client);
        client.cmd(words).reply();
        let expires_at_ms = match client.line(question).reply() {
            Reply::Integer(moment_ms) => moment_ms,
            Reply::Array(moments) => match moments[..] {
                [Reply::Integer(moment_ms)] => moment_ms,
                _ => panic!("{line}"),
            },
            other => panic!("{line}: {other}"),
        };
        let after_us = time_us(&mut client);
        // If it had gone before the question came, the next round shows it.
        if expires_at_ms != -2 {
            assert!(expires_at_ms * 1000 >= before_us + lives_ms * 1000, "{line}: too early");
            assert!(expires_at_ms * 1000 < after_us + lives_ms * 1000 + 1000, "{line}: too late");
        }
    }
}

/// Within one moment the time left is the time that was asked for, and no time is no time.
#[test]
fn the_time_left_is_at_first_the_time_asked_for() {
    let mut client = Server::start().into_client();
    let lines = [
        "SET k v PX 1000",
        "PTTL k",
        "TTL k",
        "DEL h",
        "HSET h f v",
        "HPEXPIRE h 1000 FIELDS 1 f",
        "HPTTL h FIELDS 1 f",
        "HTTL h FIELDS 1 f",
        "PEXPIRE k 0",
        "HPEXPIRE h 0 FIELDS 1 f",
        "EXISTS k h",
    ];
    for _ in 0..20 {
        client.line("MULTI").is_ok();
        lines.iter().for_each(|line| client.line(line).is_simple("QUEUED"));
        let replies = client.line("EXEC").items();
        let one = |integer: i64| Reply::Array(vec![Reply::Integer(integer)]);
        assert_eq!(replies[1..3], [Reply::Integer(1000), Reply::Integer(1)]);
        assert_eq!(replies[5..8], [one(1), one(1000), one(1)]);
        assert_eq!(replies[8..], [Reply::Integer(1), one(2), Reply::Integer(0)]);
    }
}

/// A clock that runs is moved on to a whole millisecond, and stops at one.
#[test]
fn what_lives_for_a_second_has_expired_after_the_clock_was_moved_by_one() {
    let mut client = Server::start_with(&["--enable-clock-command", "yes"]).into_client();
    for _ in 0..50 {
        client.line("SET k v PX 1000").is_ok();
        client.line("CLOCK ADVANCE 1000").is_ok();
        client.line("EXISTS k").is(0);
    }
    for _ in 0..50 {
        client.line("SET k v PX 1000").is_ok();
        client.line("CLOCK FREEZE").is_ok();
        client.line("CLOCK ADVANCE 1000").is_ok();
        client.line("EXISTS k").is(0);
        client.line("SET k v PX 1000").is_ok();
        client.line("CLOCK ADVANCE 999").is_ok();
        client.line("PTTL k").is(1);
        client.line("CLOCK RESUME").is_ok();
    }
}

#[test]
fn keys_that_no_client_asks_for_are_freed() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..1000 {
        client.cmd(["SET", &format!("short:{number}"), "v", "PX", "50"]).is_ok();
        client.cmd(["SET", &format!("long:{number}"), "v", "EX", "1000"]).is_ok();
    }
    client.line("SELECT 15").is_ok();
    client.line("SET elsewhere v PX 20").is_ok();
    wait_until("database 15 is empty", || client.line("DBSIZE").integer() == 0);
    client.line("SELECT 0").is_ok();
    wait_until("the short-lived are gone", || client.line("DBSIZE").integer() == 1000);
    assert_eq!(client.info("expired_keys"), "1001");
    client.line("GET long:7").is("v");
}

#[test]
fn an_expired_key_is_freed_by_the_first_command_that_meets_it() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k v PX 1").is_ok();
    wait_until("it has expired", || client.line("GET k").reply().to_string() == "(nil)");
    client.line("DBSIZE").is(0);
}

marked!(also_redis: overwriting_takes_the_expiry_off_unless_it_is_to_be_kept);
fn overwriting_takes_the_expiry_off_unless_it_is_to_be_kept() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k v EX 100").is_ok();
    client.line("SET k w KEEPTTL").is_ok();
    client.line("TTL k").is(100);
    client.line("SET k x").is_ok();
    client.line("TTL k").is(-1);
    client.line("SET k 1 EX 100").is_ok();
    client.line("INCR k").is(2);
    client.line("TTL k").is(100);
    client.line("GETSET k y").is("2");
    client.line("TTL k").is(-1);
}

marked!(also_redis: a_holder_that_outlives_its_lock_deletes_anothers);
fn a_holder_that_outlives_its_lock_deletes_anothers() {
    // What the documents warn of, and why a release must compare first.
    let server = Server::start();
    let (mut slow, mut next) = (server.client(), server.client());
    slow.line("SET lock slow NX PX 1").is_ok();
    wait_until("the lock is free", || next.line("SET lock next NX").reply().to_string() == "OK");
    slow.line("DEL lock").is(1);
    next.line("EXISTS lock").is(0);
}

#[test]
fn a_hundred_thousand_expiring_keys_delay_no_client_for_long() {
    let server = Server::start();
    let mut client = server.client();
    let pipeline: Vec<u8> = (0..100_000)
        .flat_map(|number| crate::client::request(["SET", &format!("key:{number}"), "v", "PX", "200"]))
        .collect();
    client.send(&pipeline);
    for _ in 0..100_000 {
        client.reply().is_ok();
    }
    let mut other = server.client();
    // Every one of these is answered while the others are being freed.
    wait_until("all are gone", || {
        other.line("PING").is_simple("PONG");
        client.line("DBSIZE").integer() == 0
    });
}
