//! Keys that end: to the millisecond when asked for, and soon enough when not.

use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::server::{Server, wait_until};

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
        .flat_map(|number| support::client::request(["SET", &format!("key:{number}"), "v", "PX", "200"]))
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

/// A server that frees no expired key by itself, and a client that gets its events.
fn with_events() -> (Server, Client, Client) {
    let server = Server::start_with(&["--enable-debug-command", "yes", "--notify-keyspace-events", "EA"]);
    let (mut client, mut listener) = (server.client(), server.client());
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    listener.line("PSUBSCRIBE __keyevent*").ignored();
    (server, client, listener)
}

/// The names of the events so far.
fn events(client: &mut Client, listener: &mut Client) -> Vec<String> {
    client.line("PUBLISH __keyevent_end x").is(1);
    let names = std::iter::from_fn(|| {
        let channel = listener.reply().items()[2].to_string();
        let channel = channel.trim_matches('"').to_owned();
        (channel != "__keyevent_end").then(|| channel.rsplit(':').next().unwrap().to_owned())
    });
    names.filter(|name| name != "new").collect()
}

marked!(also_redis: a_key_written_with_a_moment_of_the_past_is_reported_as_written_and_then_as_expired);
fn a_key_written_with_a_moment_of_the_past_is_reported_as_written_and_then_as_expired() {
    let (_server, mut client, mut listener) = with_events();
    let mut expired = 0;
    for (command, expected) in [
        ("SET k 1 PXAT 1", &["set", "expire", "expired"][..]),
        ("SET k 1 EXAT 1", &["set", "expire", "expired"]),
        ("SET k 1 PXAT 1 NX", &["set", "expire", "expired"]),
        ("SET k 1 PXAT 1 GET", &["set", "expire", "expired"]),
        ("MSETEX 1 k v PXAT 1", &["expire", "set", "expired"]),
    ] {
        client.line(command).ignored();
        client.line("EXISTS k").is(0);
        assert_eq!(events(&mut client, &mut listener), expected, "{command}");
        expired += 1;
        assert_eq!(client.info("expired_keys"), expired.to_string(), "{command}");
    }
    for (command, expected) in
        [("PEXPIREAT k 1", &["del"][..]), ("EXPIRE k -1", &["del"]), ("GETEX k PXAT 1", &["del"])]
    {
        client.line("SET k v").is_ok();
        events(&mut client, &mut listener);
        client.line(command).ignored();
        client.line("EXISTS k").is(0);
        assert_eq!(events(&mut client, &mut listener), expected, "{command}");
    }
}

marked!(also_redis: fields_that_get_a_moment_of_the_past_count_as_expired);
fn fields_that_get_a_moment_of_the_past_count_as_expired() {
    let mut client = Server::start().into_client();
    client.line("HSET h a 1 b 2 c 3").is(3);
    for (command, expected) in [
        ("HPEXPIREAT h 1 FIELDS 2 a nosuch", "1"),
        ("HGETEX h PXAT 1 FIELDS 2 b nosuch", "2"),
        ("HSETEX k PXAT 1 FIELDS 1 f v", "3"),
        ("HEXPIRE h 0 FIELDS 1 c", "4"),
        ("HPEXPIREAT nosuch 1 FIELDS 1 a", "4"),
    ] {
        client.line(command).ignored();
        assert_eq!(client.info("expired_subkeys"), expected, "{command}");
    }
}

#[test]
fn info_tells_how_long_keys_stay_on_average() {
    let mut client = Server::start_with(&["--enable-clock-command", "yes"]).into_client();
    client.line("CLOCK FREEZE").is_ok();
    let ttl = |client: &mut Client| {
        let line = client.info("db0");
        line.split(',').find_map(|part| part.strip_prefix("avg_ttl=")).expect("a field").to_owned()
    };
    client.line("SET stays v").is_ok();
    assert_eq!(ttl(&mut client), "0");
    client.line("SET a v PX 1000").is_ok();
    client.line("SET b v PX 3000").is_ok();
    assert_eq!(ttl(&mut client), "2000");
    client.line("PERSIST a").is(1);
    assert_eq!(ttl(&mut client), "3000");
    client.line("SET b v PX 5000").is_ok();
    client.line("SET c v PX 7000").is_ok();
    assert_eq!(ttl(&mut client), "6000");
    client.line("CLOCK ADVANCE 5000").ignored();
    assert_eq!(ttl(&mut client), "2000");
    client.line("DEL c").is(1);
    assert_eq!(ttl(&mut client), "0");
    assert!(client.info("db0").ends_with(",subexpiry=0"));
}
