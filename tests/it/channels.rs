//! Channels and the events of keys, beyond what the observed conversations hold.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Reply, request};
use crate::server::{PATIENCE, Server};

fn bulks(parts: &[&str]) -> Reply {
    Reply::Array(parts.iter().map(|part| Reply::Bulk(part.as_bytes().to_vec())).collect())
}

#[test]
fn a_client_of_resp2_that_listens_may_do_little_else() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SUBSCRIBE c").reply();
    client.line("GET k").is_error(
        "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
         in this context",
    );
    client.line("CONFIG GET save").is_error(
        "ERR Can't execute 'config|get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
         allowed in this context",
    );
    assert_eq!(client.line("PING").reply(), bulks(&["pong", ""]));
    assert_eq!(client.line("PING hello").reply(), bulks(&["pong", "hello"]));
    client.line("RESET").is_simple("RESET");
    client.line("GET k").is_nil();
    let mut other = server.client();
    other.line("PUBLISH c m").is(0);
}

#[test]
fn messages_of_one_publisher_come_in_their_order() {
    const MESSAGES: usize = 2000;
    let server = Server::start();
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut listener = server.client();
            listener.line("SUBSCRIBE c").reply();
            scope.spawn(move || {
                let mut next = [0; 3];
                for _ in 0..3 * MESSAGES {
                    let message = listener.reply().items().pop().unwrap();
                    let Reply::Bulk(text) = message else { panic!("{message:?}") };
                    let text = String::from_utf8(text).unwrap();
                    let (publisher, number) = text.split_once(':').unwrap();
                    let publisher: usize = publisher.parse().unwrap();
                    assert_eq!(number.parse::<usize>().unwrap(), next[publisher]);
                    next[publisher] += 1;
                }
            });
        }
        for publisher in 0..3 {
            let mut client = server.client();
            scope.spawn(move || {
                for batch in 0..MESSAGES / 50 {
                    let numbers = (batch * 50..).take(50);
                    let sent: Vec<u8> = numbers
                        .flat_map(|number| request(["PUBLISH", "c", &format!("{publisher}:{number}")]))
                        .collect();
                    client.send(&sent);
                    (0..50).for_each(|_| client.reply().is(4));
                }
            });
        }
    });
}

#[test]
fn a_script_changes_nothing_in_how_its_client_is_told() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("SUBSCRIBE c").reply();
    let reply =
        client.cmd(["EVAL", "redis.call('DBSIZE') return redis.call('PUBLISH', 'c', 'm')", "0"]).reply();
    let Reply::Push(parts) = reply else { panic!("no push, but {reply:?}") };
    assert_eq!(Reply::Array(parts), bulks(&["message", "c", "m"]));
    client.reply().is(1);
}

#[test]
fn one_who_listens_to_itself_is_told_before_it_is_answered() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("SUBSCRIBE c").reply();
    let Reply::Push(parts) = client.line("PUBLISH c m").reply() else { panic!("no push") };
    assert_eq!(Reply::Array(parts), bulks(&["message", "c", "m"]));
    client.reply().is(1);
}

#[test]
fn a_listener_that_does_not_read_is_cut_off_and_slows_nobody_down() {
    let server = Server::start_with(&["--client-output-buffer-limit", "pubsub 2mb 0 0"]);
    let (mut slow, mut reader, mut publisher) = (server.client(), server.client(), server.client());
    slow.line("SUBSCRIBE c").reply();
    reader.line("SUBSCRIBE c").reply();
    let message = "m".repeat(64 << 10);
    let started = Instant::now();
    let mut told = 2;
    while told == 2 {
        assert!(started.elapsed() < PATIENCE, "nobody was cut off");
        told = publisher.cmd(["PUBLISH", "c", &message]).integer();
        assert_eq!(reader.reply().items().len(), 3);
    }
    assert_eq!(told, 1);
    loop {
        match slow.try_reply_bytes() {
            Ok(_) => {}
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "it is closed");
                break;
            }
        }
    }
    let memory: u64 = publisher.info("used_memory").parse().unwrap();
    assert!(memory < 32 << 20, "{memory} bytes");
}

#[test]
fn a_soft_limit_is_one_for_those_who_stay_above_it() {
    let server = Server::start_with(&["--client-output-buffer-limit", "pubsub 0 1mb 1"]);
    let (mut slow, mut publisher) = (server.client(), server.client());
    slow.line("SUBSCRIBE c").reply();
    let message = "m".repeat(64 << 10);
    let started = Instant::now();
    while publisher.cmd(["PUBLISH", "c", &message]).integer() == 1 {
        assert!(started.elapsed() < PATIENCE, "nobody was cut off");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn the_end_of_a_connection_ends_its_listening() {
    let server = Server::start();
    let mut client = server.client();
    for _ in 0..3 {
        let mut listener = server.client();
        listener.line("SUBSCRIBE c").reply();
        listener.line("PSUBSCRIBE *").reply();
        listener.line("SSUBSCRIBE c").reply();
    }
    let started = Instant::now();
    while client.line("PUBSUB NUMPAT").integer() > 0 || client.line("SPUBLISH c m").integer() > 0 {
        assert!(started.elapsed() < PATIENCE);
    }
    assert_eq!(client.line("PUBSUB CHANNELS").items(), []);
}

#[test]
fn clients_that_listen_are_listed_as_such() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    listener.line("SUBSCRIBE a b").reply();
    listener.reply();
    listener.line("PSUBSCRIBE p").reply();
    listener.line("PING").reply();
    let line = client.line("CLIENT LIST TYPE pubsub").text();
    assert!(line.contains(" flags=P ") && line.contains(" sub=2 psub=1 "), "{line}");
    assert_eq!(line.lines().count(), 1);
    assert_eq!((client.info("pubsub_channels"), client.info("pubsub_patterns")), ("2".into(), "1".into()));
    client.line("CLIENT KILL TYPE pubsub").is(1);
    assert!(listener.is_closed());
}

/// Each request with the events that it causes, by name and key.
const EVENTS: &[(&str, &[(&str, &str)])] = &[
    ("SET k 1", &[("new", "k"), ("set", "k")]),
    ("SET k 1 EX 100", &[("set", "k"), ("expire", "k")]),
    ("SETNX k 2", &[]),
    ("SET k 2 NX", &[]),
    ("SETEX k 100 1", &[("set", "k"), ("expire", "k")]),
    ("GETSET k 1", &[("set", "k")]),
    ("GETEX k EX 100", &[("expire", "k")]),
    ("GETEX k PERSIST", &[("persist", "k")]),
    ("GETEX k", &[]),
    ("INCR k", &[("incrby", "k")]),
    ("DECRBY k 2", &[("incrby", "k")]),
    ("INCRBYFLOAT k 0.5", &[("incrbyfloat", "k")]),
    ("APPEND k x", &[("append", "k")]),
    ("SETRANGE k 0 y", &[("setrange", "k")]),
    ("SETRANGE k 0 \"\"", &[]),
    ("SETBIT k 7 0", &[("setbit", "k")]),
    ("SETBIT k 7 0", &[]),
    ("BITFIELD k SET u8 0 1", &[("setbit", "k")]),
    ("BITFIELD k GET u8 0", &[]),
    ("BITOP NOT l k", &[("new", "l"), ("set", "l")]),
    ("BITOP AND l absent", &[("keymiss", "absent"), ("del", "l")]),
    ("MSET k 1 l 2", &[("set", "k"), ("new", "l"), ("set", "l")]),
    ("MSETNX k 1 m 2", &[]),
    ("EXPIRE k 100", &[("expire", "k")]),
    ("PEXPIREAT k 99999999999999", &[("expire", "k")]),
    ("PERSIST k", &[("persist", "k")]),
    ("PERSIST k", &[]),
    ("EXPIRE l -1", &[("del", "l")]),
    ("RENAME k r", &[("new", "r"), ("rename_from", "k"), ("rename_to", "r")]),
    ("COPY r k", &[("new", "k"), ("copy_to", "k")]),
    ("GETDEL r", &[("del", "r")]),
    ("GETDEL r", &[("keymiss", "r")]),
    ("GET r", &[("keymiss", "r")]),
    ("EXISTS r", &[("keymiss", "r")]),
    ("TTL r", &[("keymiss", "r")]),
    ("SETNX r 1", &[("new", "r"), ("set", "r")]),
    ("DEL k r absent", &[("del", "k"), ("del", "r")]),
    ("SET k 1", &[("new", "k"), ("set", "k")]),
    ("UNLINK k", &[("del", "k")]),
    ("SETRANGE k 2 x", &[("new", "k"), ("setrange", "k")]),
    ("FLUSHALL", &[]),
];

#[test]
fn every_command_tells_of_what_it_did() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events AEmn").is_ok();
    listener.line("PSUBSCRIBE __key*").reply();
    for (line, events) in EVENTS {
        client.line(line).reply();
        for (name, key) in *events {
            let channel = format!("__keyevent@0__:{name}");
            println!("{line}: {name} {key}");
            assert_eq!(listener.reply().reply(), bulks(&["pmessage", "__key*", &channel, key]), "{line}");
        }
        client.line("PUBLISH __key_done x").is(1);
        assert_eq!(listener.reply().reply(), bulks(&["pmessage", "__key*", "__key_done", "x"]), "{line}");
    }
}

/// Waits for one event and passes over others.
fn wait_for_event(listener: &mut Client, name: &str) -> String {
    loop {
        let parts = listener.reply().items();
        let [.., Reply::Bulk(channel), Reply::Bulk(key)] = &parts[..] else { panic!("{parts:?}") };
        if channel.ends_with(format!(":{name}").as_bytes()) {
            return String::from_utf8(key.clone()).unwrap();
        }
    }
}

#[test]
fn keys_that_expire_and_keys_that_are_evicted_are_told_of() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    listener.line("PSUBSCRIBE __keyevent*").reply();
    client.line("SET nobody-asks v PX 20").is_ok();
    assert_eq!(wait_for_event(&mut listener, "expired"), "nobody-asks");
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").reply();
    client.line("SET asked-for v PX 1").is_ok();
    while client.line("GET asked-for").reply() != Reply::Null {}
    assert_eq!(wait_for_event(&mut listener, "expired"), "asked-for");
    client.line("SET goes v").is_ok();
    client.line("CONFIG SET maxmemory-policy allkeys-lru maxmemory 1").is_ok();
    client.line("SET refused v").reply();
    assert_eq!(wait_for_event(&mut listener, "evicted"), "goes");
}

#[test]
fn events_of_a_key_come_in_their_order_whoever_causes_them() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events K$g").is_ok();
    listener.line("SUBSCRIBE __keyspace@0__:k").reply();
    const ROUNDS: usize = 500;
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    while client.line("SETNX k v").integer() == 0 {}
                    client.line("DEL k").is(1);
                }
            });
        }
    });
    for at in 0..4 * ROUNDS {
        let expected = if at % 2 == 0 { "set" } else { "del" };
        assert_eq!(listener.reply().reply(), bulks(&["message", "__keyspace@0__:k", expected]));
    }
}
