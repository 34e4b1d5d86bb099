//! Fields of hashes that end: to the millisecond when asked for, and soon enough when not.

use std::thread;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::serve;
use support::server::{Server, wait_until};

/// Far more fields than a command or a turn of the clock frees at once.
const MANY: usize = 2000;

/// A server whose clock can be turned, and stands still.
fn server() -> (Server, Client) {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    (server, client)
}

/// Asks, and compares the reply as people read it.
#[track_caller]
fn say(client: &mut Client, line: &str, expected: &str) {
    assert_eq!(client.line(line).reply().to_string(), expected, "{line}");
}

/// A hash with many fields that expire in a second, and one that does not.
fn make(client: &mut Client, key: &str) {
    let names: Vec<String> = (0..MANY).map(|number| format!("{number}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
    let head = ["HSETEX", key, "PX", "1000", "FIELDS", &MANY.to_string()].map(String::from);
    client.cmd(head.into_iter().chain(pairs.map(String::from))).is(1);
    client.cmd(["HSET", key, "stays", "here"]).is(1);
}

#[test]
fn every_reader_sees_a_field_until_its_millisecond_and_none_from_it_on() {
    for encoding in ["listpackex", "hashtable"] {
        let (_server, mut client) = server();
        if encoding == "hashtable" {
            client.line("CONFIG SET hash-max-listpack-entries 0").is_ok();
        }
        client.line("HSET h stays 1 goes 2").is(2);
        say(&mut client, "HPEXPIRE h 1000 FIELDS 1 goes", "[(integer) 1]");
        client.line("OBJECT ENCODING h").is(encoding);
        client.line("CLOCK ADVANCE 999").is_ok();
        client.line("HGET h goes").is("2");
        say(&mut client, "HPTTL h FIELDS 1 goes", "[(integer) 1]");
        client.line("HLEN h").is(2);
        client.line("CLOCK ADVANCE 1").is_ok();
        client.line("HGET h goes").is_nil();
        say(&mut client, "HMGET h goes stays", "[(nil), \"1\"]");
        say(&mut client, "HGETALL h", "[\"stays\", \"1\"]");
        client.line("HLEN h").is(1);
    }
}

#[test]
fn fields_that_are_not_freed_yet_are_hidden_from_all_clients() {
    let (_server, mut client) = server();
    make(&mut client, "h");
    client.line("SET of_0 gone").is_ok();
    client.line("SET of_stays there").is_ok();
    client.line("RPUSH list 0 stays").is(2);
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("HLEN h").is(1);
    client.line("HEXISTS h 1999").is(0);
    client.line("HSTRLEN h 1999").is(0);
    say(&mut client, "HMGET h 1998 stays", "[(nil), \"here\"]");
    say(&mut client, "HKEYS h", "[\"stays\"]");
    say(&mut client, "HVALS h", "[\"here\"]");
    say(&mut client, "HRANDFIELD h 10", "[\"stays\"]");
    say(&mut client, "HTTL h FIELDS 2 1999 stays", "[(integer) -2, (integer) -1]");
    say(&mut client, "SORT list BY h->* GET h->stays ALPHA", "[(nil), (nil)]");
    let mut cursor = "0".to_owned();
    let mut found = Vec::new();
    loop {
        let mut items = client.cmd(["HSCAN", "h", &cursor, "COUNT", "100"]).items();
        found.extend(items.pop().map(|items| items.to_string()));
        cursor = items.remove(0).to_string().trim_matches('"').to_owned();
        if cursor == "0" {
            break;
        }
    }
    found.retain(|items| items != "[]");
    assert_eq!(found, ["[\"stays\", \"here\"]"]);
    client.line("COPY h copy").is(1);
    client.line("HLEN copy").is(1);
    client.line("RENAME copy other").is_ok();
    client.line("HLEN other").is(1);
    client.line("HSETNX other 1998 again").is(1);
    client.line("HINCRBY other 1997 5").is(5);
    say(&mut client, "HTTL other FIELDS 2 1998 1997", "[(integer) -1, (integer) -1]");
    client.line("HSET other 1996 v").is(1);
    client.line("HDEL other 1995 1996").is(1);
    wait_until("all are freed", || client.line("INFO keyspace").text().contains("subexpiry=0"));
    client.line("HLEN other").is(3);
}

#[test]
fn a_hash_whose_last_field_has_expired_is_absent() {
    let (_server, mut client) = server();
    client.line("HSETEX h PX 500 FIELDS 2 a 1 b 2").is(1);
    client.line("SET other v").is_ok();
    client.line("CLOCK ADVANCE 500").is_ok();
    client.line("EXISTS h").is(0);
    say(&mut client, "TYPE h", "none");
    client.line("DBSIZE").is(1);
    client.line("HSETNX h a again").is(1);
    say(&mut client, "HGETALL h", "[\"a\", \"again\"]");
    assert_eq!((client.info("expired_subkeys"), client.info("expired_keys")), ("2".into(), "0".into()));
    // The last field that is left goes with those that have expired.
    client.line("HSETEX h PX 500 FIELDS 1 b 2").is(1);
    client.line("HDEL h a").is(1);
    client.line("EXISTS h").is(1);
    client.line("SETNX h taken").is(0);
    client.line("CLOCK ADVANCE 500").is_ok();
    client.line("SETNX h taken").is(1);
    client.line("GET h").is("taken");
}

/// A client counts for each key from when it began to watch this one.
#[test]
fn a_field_that_had_expired_when_its_hash_was_watched_does_not_count() {
    let server = Server::start_with(&["--enable-clock-command", "yes", "--enable-debug-command", "yes"]);
    let (mut client, mut watcher) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    client.line("HSETEX h PX 500 FIELDS 1 gone v").is(1);
    client.line("HSETEX h PX 1500 FIELDS 1 goes v").is(1);
    client.line("HSET h stays v").is(1);
    watcher.line("WATCH other").is_ok();
    client.line("CLOCK ADVANCE 1000").is_ok();
    for (between, reply) in [("PING", "[PONG]"), ("CLOCK ADVANCE 1000", "(nil)")] {
        watcher.line("WATCH h").is_ok();
        client.line(between).reply();
        watcher.line("MULTI").is_ok();
        watcher.line("PING").is_simple("QUEUED");
        say(&mut watcher, "EXEC", reply);
        watcher.line("WATCH other").is_ok();
    }
}

#[test]
fn fields_expire_in_a_transaction_and_for_those_who_watch() {
    let (server, mut client) = server();
    let mut watcher = server.client();
    client.line("HSET h a 1 b 2").is(2);
    say(&mut client, "HPEXPIRE h 1000 FIELDS 1 a", "[(integer) 1]");
    watcher.line("WATCH h").is_ok();
    client.line("CLOCK ADVANCE 1000").is_ok();
    watcher.line("MULTI").is_ok();
    watcher.line("PING").is_simple("QUEUED");
    say(&mut watcher, "EXEC", "(nil)");
    watcher.line("MULTI").is_ok();
    for line in ["HSETEX h EX 100 FIELDS 1 a 1", "HTTL h FIELDS 1 a", "HGETDEL h FIELDS 2 a b", "EXISTS h"] {
        watcher.line(line).is_simple("QUEUED");
    }
    say(&mut watcher, "EXEC", "[(integer) 1, [(integer) 100], [\"1\", \"2\"], (integer) 0]");
}

#[test]
fn a_client_that_keeps_a_copy_is_told_when_a_field_expires() {
    let (server, mut client) = server();
    client.line("HSET h a 1 b 2").is(2);
    say(&mut client, "HPEXPIRE h 1000 FIELDS 1 a", "[(integer) 1]");
    let mut keeper = server.client3();
    keeper.line("CLIENT TRACKING ON NOLOOP").is_ok();
    say(&mut keeper, "HGETALL h", "[\"a\", \"1\", \"b\", \"2\"]");
    client.line("CLOCK ADVANCE 1000").is_ok();
    assert_eq!(keeper.reply().reply().to_string(), "[\"invalidate\", [\"h\"]]");
}

#[test]
fn conditions_on_the_key_and_on_its_fields_hold_together() {
    let server = Server::start();
    let mut client = server.client();
    client.line("HSETEX h XX FIELDS 1 a 1").is(0);
    client.line("HSETEX h NX FNX EX 10 FIELDS 1 a 1").is(1);
    client.line("HSETEX h NX FIELDS 1 a 2").is(0);
    client.line("HSETEX h XX FXX KEEPTTL FIELDS 1 a 3").is(1);
    client.line("HSETEX h XX FNX FIELDS 2 a 4 b 5").is(0);
    say(&mut client, "HGETALL h", "[\"a\", \"3\"]");
    say(&mut client, "HTTL h FIELDS 1 a", "[(integer) 10]");
    client
        .line("HSETEX h NX XX FIELDS 1 a 1")
        .is_error("ERR Only one of XX or NX arguments can be specified");
    client.line("HEXPIRE h 1 NX NX NX").is_error("ERR missing FIELDS argument");
    client.line("HGETEX h FIELDS 1 a EX").is_error("ERR missing expire time");
    client.line("HGETEX h EX 1 FIELDS 2147483648 a").is_error("ERR invalid number of fields");
    client.line("HGETEX h EX 1 FIELDS 2147483647 a").is_error("ERR wrong number of arguments");
    client
        .line("HPEXPIREAT h 70368744177664 FIELDS 1 a")
        .is_error("ERR invalid expire time in 'hpexpireat' command");
}

/// The fields of a hash with their values and moments.
fn state(client: &mut Client, key: &str) -> Vec<(String, String, i64)> {
    let mut state = Vec::new();
    for pair in client.cmd(["HGETALL", key]).items().chunks(2) {
        let field = pair[0].to_string().trim_matches('"').to_owned();
        let moment = client.cmd(["HPEXPIRETIME", key, "FIELDS", "1", &field]).items().remove(0).to_string();
        let moment = moment.trim_start_matches("(integer) ").parse().unwrap();
        state.push((field, pair[1].to_string(), moment));
    }
    state.sort();
    state
}

#[test]
fn the_log_has_what_was_done_to_fields_and_what_time_did() {
    let folder = Folder::new("fields-log");
    let options = &["--enable-clock-command", "yes"];
    let server = serve(&folder, options);
    let mut client = server.client();
    client.line("HSETEX small EX 1000 FIELDS 2 a 1 b 2").is(1);
    client.line("HSET small c 3 d 4").is(2);
    say(&mut client, "HEXPIRE small 500 FIELDS 2 c d", "[(integer) 1, (integer) 1]");
    say(&mut client, "HPERSIST small FIELDS 1 a", "[(integer) 1]");
    client.line("HINCRBY small b 40").is(42);
    client.line("HSET small c 5").is(0);
    make(&mut client, "large");
    client.line("COPY large copy").is(1);
    say(&mut client, "HEXPIRE copy 2000 FIELDS 2 7 8", "[(integer) 1, (integer) 1]");
    say(&mut client, "HGETEX copy PERSIST FIELDS 1 9", "[\"v\"]");
    make(&mut client, "whole");
    client.line("HDEL whole stays").is(1);
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("EXISTS whole").is(0);
    client.line("HLEN copy").is(4);
    client.line("HSET copy 10 new").is(1);
    let before = ["small", "large", "copy"].map(|key| state(&mut client, key));
    assert_eq!([before[0].len(), before[1].len(), before[2].len()], [4, 1, 5]);
    drop(server);
    let server = serve(&folder, options);
    let mut client = server.client();
    client.line("CLOCK ADVANCE 1000").is_ok();
    assert_eq!(["small", "large", "copy"].map(|key| state(&mut client, key)), before);
    client.line("EXISTS whole").is(0);
    // The same from the parts of a log that was rewritten, as a snapshot and as requests.
    for preamble in ["yes", "no"] {
        client.cmd(["CONFIG", "SET", "aof-use-rdb-preamble", preamble]).is_ok();
        let rewrites = client.info("aof_rewrites");
        let _ = client.line("BGREWRITEAOF").reply();
        wait_until("it is rewritten", || {
            client.info("aof_rewrites") != rewrites && client.info("aof_rewrite_in_progress") == "0"
        });
    }
    drop(server);
    let server = serve(&folder, options);
    let mut client = server.client();
    client.line("CLOCK ADVANCE 1000").is_ok();
    assert_eq!(["small", "large", "copy"].map(|key| state(&mut client, key)), before);
}

#[test]
fn a_snapshot_has_the_moments_of_fields() {
    let folder = Folder::new("fields-snapshot");
    let server = folder.serve(&[]);
    let mut client = server.client();
    client.line("HSETEX small EX 1000 FIELDS 2 a 1 b 2").is(1);
    client.line("HSET small c 3").is(1);
    let names: Vec<String> = (0..MANY).flat_map(|number| [format!("{number}"), "v".into()]).collect();
    let count = MANY.to_string();
    let head = ["HSETEX", "large", "EX", "1000", "FIELDS", &count].map(String::from);
    client.cmd(head.into_iter().chain(names)).is(1);
    client.line("HSET large stays here").is(1);
    client.line("SAVE").is_ok();
    let before = ["small", "large"].map(|key| state(&mut client, key));
    drop(server);
    let header = std::fs::read(folder.file("dump.rdb")).unwrap()[..9].to_vec();
    assert_eq!(header, b"REDIS0012", "older servers should not begin to read it");
    let server = folder.serve(&[]);
    let mut client = server.client();
    assert_eq!(["small", "large"].map(|key| state(&mut client, key)), before);
    client.line("OBJECT ENCODING small").is("listpackex");
    client.line("OBJECT ENCODING large").is("hashtable");
}

#[test]
fn payloads_of_redis_and_of_valkey_are_restored() {
    let server = Server::start();
    let mut client = server.client();
    let redis =
        b"\x19[jL\xa6,\x1e\x00\x00\x1e\x1e\x00\x00\x00\x06\x00\x81g\x02\x05\x01\xf4[jL\xa6,\x1e\x00\x00\t\
        \x81f\x02\x81v\x02\x00\x01\xff\r\x00\nc\x1b\x0c\xd3p8T";
    let valkey =
        b"\x16\x02\x01f\x01v\xff\xff\xff\xff\xff\xff\xff\xff\x01g\xc0\x05[jL\xa6,\x1e\x00\x00P\x00L\xef0\xe5\
        \xd8\x8a\xc9j";
    for payload in [&redis[..], valkey] {
        client.cmd([&b"RESTORE"[..], b"h", b"0", payload, b"REPLACE"]).is_ok();
        say(&mut client, "HPEXPIRETIME h FIELDS 2 f g", "[(integer) -1, (integer) 33177117420123]");
        say(&mut client, "HMGET h f g", "[\"v\", \"5\"]");
        // What was cut or changed is refused, and no more.
        for at in 0..payload.len() {
            let cut = client.cmd([&b"RESTORE"[..], b"cut", b"0", &payload[..at], b"REPLACE"]);
            assert!(cut.text().contains("DUMP payload"), "cut at {at}");
        }
    }
}

#[test]
fn a_hundred_thousand_expiring_fields_delay_no_client_for_long() {
    let server = Server::start();
    let mut client = server.client();
    let fields = 100_000;
    for from in (0..fields).step_by(1000) {
        let pairs = (from..from + 1000).flat_map(|number| [number.to_string(), "v".into()]);
        let head = ["HSETEX", "h", "PX", "1500", "FIELDS", "1000"].map(String::from);
        client.send(&request(head.into_iter().chain(pairs)));
    }
    for _ in (0..fields).step_by(1000) {
        client.reply().is(1);
    }
    client.line("HSET h stays here").is(1);
    // Every one of these is answered while fields are being freed.
    wait_until("all are gone", || {
        client.line("HGET h stays").is("here");
        client.info("expired_subkeys") == fields.to_string()
    });
    client.line("HLEN h").is(1);
    assert!(client.line("INFO keyspace").text().contains("subexpiry=0"));
}

#[test]
fn the_end_of_a_field_is_reported_whichever_command_meets_it_first() {
    let server = Server::start_with(&["--enable-debug-command", "yes", "--notify-keyspace-events", "Eh"]);
    let (mut client, mut listener) = (server.client(), server.client());
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    listener.line("PSUBSCRIBE __keyevent@0__:*").ignored();
    let mut events = |client: &mut Client| {
        let mut seen: Vec<String> = Vec::new();
        client.line("HSET mark f v").ignored();
        client.line("HDEL mark f").is(1);
        loop {
            let message = listener.reply().items();
            let text = |at: usize| match &message[at] {
                Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
                other => panic!("{other:?}"),
            };
            let event = text(2).rsplit_once(':').unwrap().1.to_owned();
            match (text(3).as_str(), event.as_str()) {
                ("mark", "hdel") => return seen,
                ("mark", _) => {}
                _ => seen.push(event),
            }
        }
    };
    let commands = [
        ("HGET h f", None),
        ("HLEN h", None),
        ("HSCAN h 0", None),
        ("HSET h f 2", Some("hset")),
        ("HSETNX h f 2", Some("hset")),
        ("HINCRBY h f 2", Some("hincrby")),
        ("HINCRBYFLOAT h f 2", Some("hincrbyfloat")),
        ("HSETEX h EX 100 FIELDS 1 f v", Some("hset")),
        ("HDEL h f", None),
        ("HDEL h stays", Some("hdel")),
        ("HEXPIRE h 100 FIELDS 1 f", None),
        ("HPERSIST h FIELDS 1 f", None),
        ("HGETDEL h FIELDS 1 f", None),
        ("HGETEX h PERSIST FIELDS 1 f", None),
    ];
    for fields in [1, 3, MANY] {
        let others: String = (1..fields).map(|number| format!(" o{number}")).collect();
        for (line, own) in commands {
            client.line("FLUSHALL").is_ok();
            client.line("CONFIG RESETSTAT").is_ok();
            let pairs = format!("f{others}").replace(' ', " 1 ");
            client.line(&format!("HSET h stays 1 also 1 {pairs} 1")).is(2 + fields as i64);
            client.line(&format!("HPEXPIRE h 1 FIELDS {fields} f{others}")).ignored();
            thread::sleep(Duration::from_millis(10));
            events(&mut client);
            client.line(line).ignored();
            let seen = events(&mut client);
            assert_eq!(seen.first().map(String::as_str), Some("hexpired"), "{fields} {line}: {seen:?}");
            let own_at = seen.iter().position(|event| Some(event.as_str()) == own);
            assert_eq!(own_at.is_some(), own.is_some(), "{fields} {line}: {seen:?}");
            // Each field is counted once, in time.
            client.line("DEBUG SET-ACTIVE-EXPIRE 1").is_ok();
            wait_until("all are freed", || client.info("expired_subkeys") == fields.to_string());
            client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
        }
    }
}

#[test]
fn fields_that_are_not_there_are_missed_in_the_words_of_redis() {
    let mut client = Server::start().into_client();
    let (of_command, of_fields) =
        ("ERR wrong number of arguments for 'hgetex' command", "ERR wrong number of arguments");
    for (line, error) in [
        ("HGETEX h EX 100 FIELDS", of_command),
        ("HGETEX h EX 100 FIELDS 1", of_fields),
        ("HGETEX h EX 100 FIELDS x", "ERR invalid number of fields"),
        ("HSETEX h EX 100 FIELDS 1", of_fields),
        ("HSETEX h EX 100 FIELDS 1 f", of_fields),
        ("HEXPIRE h 10 NX GT FIELDS 1", "ERR FIELDS requires at least numfields and one field argument"),
    ] {
        client.line(line).is_error(error);
    }
}
