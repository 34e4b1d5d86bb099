//! Keys that end: to the millisecond when asked for, and soon enough when not.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{PATIENCE, Server};

/// Asks until the answer is right, for as long as patience lasts.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

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
        // The server's clock counts whole milliseconds.
        assert!(answered - before >= Duration::from_millis(24), "it went too early");
        assert!(gone < after + Duration::from_millis(25) || client.line("EXISTS lock").integer() == 0);
        client.line("SETNX lock another").is(1);
        client.line("TTL lock").is(-1);
        client.line("DEL lock").is(1);
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
