//! Commands over several keys, and over all of them, while others write.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::client::{Client, Reply};
use support::server::{Server, SetOnDrop};

const ROUNDS: usize = 2000;

/// Runs `write` on one connection until `read` has looked `ROUNDS` times on another.
fn while_others_write(
    server: &Server,
    mut write: impl FnMut(&mut Client, usize) + Send,
    mut read: impl FnMut(&mut Client),
) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let writer = scope.spawn(|| {
            let mut client = server.client();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                write(&mut client, round);
            }
        });
        let mut client = server.client();
        for _ in 0..ROUNDS {
            read(&mut client);
        }
        drop(end);
        writer.join().unwrap();
    });
}

#[test]
fn mset_is_seen_whole_or_not_at_all() {
    let server = Server::start();
    let keys: Vec<String> = (0..16).map(|number| format!("key:{number}")).collect();
    let mget = || ["MGET".to_owned()].into_iter().chain(keys.iter().cloned());
    while_others_write(
        &server,
        |client, round| {
            let pairs = keys.iter().flat_map(|key| [key.clone(), round.to_string()]);
            client.cmd(["MSET".to_owned()].into_iter().chain(pairs)).is_ok();
        },
        |client| {
            let values = client.cmd(mget()).items();
            assert!(values.iter().all(|value| *value == values[0]), "a torn MSET: {values:?}");
        },
    );
}

#[test]
fn a_renamed_key_has_one_name_at_every_moment() {
    let server = Server::start();
    server.client().line("SET one value").is_ok();
    while_others_write(
        &server,
        |client, round| {
            let (source, target) = if round % 2 == 0 { ("one", "other") } else { ("other", "one") };
            client.cmd(["RENAME", source, target]).is_ok();
        },
        |client| {
            client.line("EXISTS one other").is(1);
            client.line("DBSIZE").is(1);
            // On its own, KEYS goes from shard to shard.
            client.line("MULTI").is_ok();
            client.line("KEYS *").is_simple("QUEUED");
            let replies = client.line("EXEC").items();
            assert!(matches!(&replies[..], [Reply::Array(keys)] if keys.len() == 1), "{replies:?}");
        },
    );
}

#[test]
fn copies_and_combinations_are_of_one_moment() {
    let server = Server::start();
    server.client().line("MSET a 0000 b 0000 copy 0000 or 0000").is_ok();
    while_others_write(
        &server,
        |client, round| {
            let value = format!("{:04}", round % 10_000);
            client.cmd(["MSET", "a", &value, "b", &value]).is_ok();
            client.line("COPY a copy REPLACE").is(1);
            client.line("BITOP AND or a b").is(4);
        },
        |client| {
            // What was copied, and what was combined of two that are the same, is a value that there was.
            for value in client.line("MGET copy or").items() {
                let Reply::Bulk(value) = value else { panic!("it is gone: {value:?}") };
                assert!(value.iter().all(u8::is_ascii_digit), "{value:?}");
            }
        },
    );
    let mut client = server.client();
    let values = client.line("MGET a b copy or").items();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
}

#[test]
fn databases_are_exchanged_at_once() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET key here").is_ok();
    client.line("SELECT 1").is_ok();
    client.line("SET key there").is_ok();
    while_others_write(
        &server,
        |client, _| client.line("SWAPDB 0 1").is_ok(),
        |client| {
            let value = client.line("GET key").text();
            assert!(value == "here" || value == "there");
        },
    );
}

#[test]
fn a_scan_answers_every_key_that_is_there_all_along() {
    let server = Server::start();
    let mut client = server.client();
    let staying: HashSet<String> = (0..3000).map(|number| format!("stays:{number}")).collect();
    for key in &staying {
        client.cmd(["SET", key, "v"]).is_ok();
    }
    let (mut cursor, mut found, mut next) = ("0".to_owned(), HashSet::new(), 0);
    loop {
        // Tables grow between two calls, and keys go.
        for number in next..next + 200 {
            client.cmd(["SET", &format!("comes:{number}"), "v"]).is_ok();
            client.cmd(["DEL", &format!("comes:{}", number / 2)]).ignored();
        }
        next += 200;
        let mut reply = client.cmd(["SCAN", &cursor, "COUNT", "100", "TYPE", "string"]).items();
        let Reply::Array(keys) = reply.remove(1) else { panic!("no keys") };
        found.extend(keys.into_iter().map(|key| match key {
            Reply::Bulk(key) => String::from_utf8(key).unwrap(),
            other => panic!("not a key: {other:?}"),
        }));
        let Reply::Bulk(text) = reply.remove(0) else { panic!("no cursor") };
        cursor = String::from_utf8(text).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert!(found.is_superset(&staying));
    let empty = client.line("SCAN 0 COUNT 1000000 TYPE list").items();
    assert_eq!(empty, [Reply::from("0"), Reply::Array(Vec::new())]);
}

#[test]
fn a_pattern_with_many_stars_takes_no_longer_than_its_length_times_the_key() {
    let mut client = Server::start().into_client();
    client.cmd(["SET", &"a".repeat(10_000), "v"]).is_ok();
    let pattern = "a*".repeat(500) + "b";
    assert!(client.cmd(["KEYS", &pattern]).items().is_empty());
    assert_eq!(client.cmd(["SCAN", "0", "MATCH", &pattern]).items().len(), 2);
}

#[test]
fn a_lock_is_let_go_and_extended_only_by_its_holder() {
    let mut client = Server::start().into_client();
    client.line("SET lock mine NX PX 60000").is_ok();
    client.line("SET lock theirs NX PX 60000").is_nil();
    client.line("SET lock mine IFEQ theirs PX 90000").is_nil();
    client.line("SET lock mine IFEQ mine PX 90000").is_ok();
    assert!(client.line("PTTL lock").integer() > 60_000);
    client.line("DELIFEQ lock theirs").is(0);
    let digest = client.line("DIGEST lock").text();
    client.line(&format!("DELEX lock IFDNE {digest}")).is(0);
    client.line(&format!("SET lock other IFDEQ {digest} GET")).is("mine");
    client.line(&format!("DELEX lock IFDEQ {digest}")).is(0);
    client.line("DELEX lock IFDEQ 123").is_error("ERR must be exactly 16 hexadecimal characters");
    // Sixteen characters that are no digits are the digest of no value.
    client.line("DELEX lock IFDEQ zzzzzzzzzzzzzzzz").is(0);
    client.line("SET nosuch v IFDEQ zzzzzzzzzzzzzzzz").is_nil();
    client.line("DELEX lock FOO v").is_error("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    client.line("DELEX lock IFEQ").is_error("ERR wrong number of arguments for 'delex' command");
    client.line("RPUSH list a").is(1);
    let no_string = "ERR Key should be of string type if conditions are specified";
    client.line("DELEX list IFEQ a").is_error(no_string);
    client.line("DELEX list").is(1);
    client.line("DELEX list").is(0);
    client.line("DELIFEQ lock other").is(1);
    client.line("SET lock v IFEQ v").is_nil();
    client.line(&format!("SET lock v IFDEQ {digest}")).is_nil();
    client.line("EXISTS lock").is(0);
    client.line("SET lock v IFNE v").is_ok();
    client.line("SET lock w IFNE v").is_nil();
    client.line("SET lock w IFEQ v NX").is_error("ERR syntax error");
    client.line("MSETEX 2 a 1 lock 2 NX").is(0);
    client.line("MSETEX 2 a 1 b 2 NX EX 100").is(1);
    client.line("MSETEX 2 a 3 c 2 XX").is(0);
    client.line("MSETEX 2 a 3 b 4 XX KEEPTTL").is(1);
    assert!(client.line("TTL a").integer() > 90);
    client.line("MSETEX 0 a 1").is_error("ERR invalid numkeys value");
    client.line("MSETEX 5 a 1").is_error("ERR wrong number of key-value pairs");
}

#[test]
fn a_hostile_payload_is_an_error_and_nothing_else() {
    let mut client = Server::start().into_client();
    client.line("SET key \"a value that is long enough to be compressed, compressed, compressed\"").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP key").reply() else { panic!("no payload") };
    for at in 0..payload.len() {
        let mut changed = payload.clone();
        changed[at] ^= 0x55;
        let restore: [&[u8]; 4] = [b"RESTORE", b"other", b"0", &changed];
        client.cmd(restore).is_error("ERR DUMP payload version or checksum are wrong");
    }
    let restore: [&[u8]; 4] = [b"RESTORE", b"key", b"0", &payload];
    client.cmd(restore).is_error("BUSYKEY Target key name already exists.");
    let restore: [&[u8]; 5] = [b"RESTORE", b"other", b"60000", &payload, b"REPLACE"];
    client.cmd(restore).is_ok();
    client.line("LCS key other LEN").is(68);
    assert!(client.line("PTTL other").integer() > 50_000);
}

#[test]
fn a_restored_key_may_have_been_idle_for_longer_than_the_server_is_there() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP k").reply() else { panic!("no payload") };
    client.cmd([&b"RESTORE"[..], b"old", b"0", &payload, b"IDLETIME", b"3600"]).is_ok();
    let idle_s = client.line("OBJECT IDLETIME old").integer();
    assert!((3600..3660).contains(&idle_s), "{idle_s}");
}

marked!(also_redis: a_script_that_announces_more_keys_than_it_has_got_has_none);
fn a_script_that_announces_more_keys_than_it_has_got_has_none() {
    let mut client = Server::start().into_client();
    for (line, keys) in [
        ("EVAL script 1 a b", "[\"a\"]"),
        ("EVAL script 2 a", "[]"),
        ("EVAL script 2147483647 a", "[]"),
        ("EVAL script -1 a", "[]"),
        ("EVAL_RO script 2 a", "[]"),
        ("FCALL function 2 a", "[]"),
    ] {
        assert_eq!(client.line(&format!("COMMAND GETKEYS {line}")).reply().to_string(), keys, "{line}");
    }
}

marked!(also_redis: set_reads_the_value_that_it_compares);
fn set_reads_the_value_that_it_compares() {
    let mut client = Server::start().into_client();
    for (line, flags) in [
        ("SET k v", "OW, update"),
        ("SET k v NX", "OW, update"),
        ("SET k v GET", "RW, access, update"),
        ("SET k v IFEQ a", "RW, update"),
        ("SET k v IFNE a EX 10", "RW, update"),
        ("SET k v IFDEQ a", "RW, update"),
        ("SET k v IFDNE a", "RW, update"),
        ("SET k v IFEQ a GET", "RW, access, update"),
    ] {
        let shown = client.line(&format!("COMMAND GETKEYSANDFLAGS {line}")).reply().to_string();
        assert_eq!(shown, format!("[[\"k\", [{flags}]]]"), "{line}");
    }
}

marked!(also_redis: an_expiry_that_no_integer_holds_is_over);
fn an_expiry_that_no_integer_holds_is_over() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    let payload = client.cmd(["DUMP", "k"]).reply();
    let Reply::Bulk(payload) = payload else { panic!("{payload:?}") };
    for (ttl, left) in [("9223372036854775807", -2), ("9223372036854775000", -2)] {
        client.cmd([&b"RESTORE"[..], b"k", ttl.as_bytes(), &payload, b"REPLACE"]).is_ok();
        client.line("PTTL k").is(left);
    }
    client.cmd([&b"RESTORE"[..], b"k", b"9220000000000000000", &payload]).is_ok();
    assert!(client.line("PTTL k").integer() > 9_210_000_000_000_000_000);
}

marked!(also_redis: keys_from_before_uses_were_counted_count_as_unused);
fn keys_from_before_uses_were_counted_count_as_unused() {
    let mut client = Server::start().into_client();
    client.line("SET before v").is_ok();
    client.line("CONFIG SET maxmemory-policy allkeys-lfu").is_ok();
    client.line("SET after v").is_ok();
    client.line("OBJECT FREQ before").is(0);
    client.line("OBJECT FREQ after").is(5);
    client.line("GET before").is("v");
    client.line("OBJECT FREQ before").is(1);
}

/// Redis 8.6 counts a key that was restored too late as expired, and takes a payload without a checksum.
#[test]
fn a_payload_may_come_too_late_or_without_a_checksum() {
    let mut client = Server::start().into_client();
    client.line("SET k value").is_ok();
    let Reply::Bulk(mut payload) = client.cmd(["DUMP", "k"]).reply() else { panic!("no payload") };
    client.cmd([&b"RESTORE"[..], b"late", b"1", &payload, b"ABSTTL"]).is_ok();
    client.line("EXISTS late").is(0);
    assert_eq!(client.info("expired_keys"), "1");
    let checksum = payload.len() - 8;
    payload[checksum..].fill(0);
    client.cmd([&b"RESTORE"[..], b"unchecked", b"0", &payload]).is_ok();
    client.line("GET unchecked").is("value");
    payload[checksum] = 1;
    client
        .cmd([&b"RESTORE"[..], b"wrong", b"0", &payload])
        .is_error("ERR DUMP payload version or checksum are wrong");
}
