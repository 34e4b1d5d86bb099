//! Channels and the events of keys, beyond what the observed conversations hold.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::server::{PATIENCE, Server};

fn bulks(parts: &[&str]) -> Reply {
    Reply::Array(parts.iter().map(|part| Reply::Bulk(part.as_bytes().to_vec())).collect())
}

marked!(also_redis: a_client_of_resp2_that_listens_may_do_little_else);
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

marked!(also_redis: messages_of_one_publisher_come_in_their_order);
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

marked!(also_redis: a_script_changes_nothing_in_how_its_client_is_told);
fn a_script_changes_nothing_in_how_its_client_is_told() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("SUBSCRIBE c").reply();
    client.cmd(["EVAL", "redis.call('DBSIZE') return redis.call('PUBLISH', 'c', 'm')", "0"]).is(1);
    is_told(&mut client);
}

marked!(also_redis: one_who_listens_to_itself_is_told_after_it_is_answered);
fn one_who_listens_to_itself_is_told_after_it_is_answered() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").reply();
    client.line("SUBSCRIBE c").reply();
    client.line("PUBLISH c m").is(1);
    is_told(&mut client);
    // In a pipeline, before the next reply.
    client.send(&[request(["PUBLISH", "c", "m"]), request(["PING"])].concat());
    client.reply().is(1);
    is_told(&mut client);
    client.reply().is_simple("PONG");
    // Never between the replies of a transaction.
    for line in ["MULTI", "PUBLISH c m", "SET k v"] {
        client.line(line).ignored();
    }
    assert_eq!(client.line("EXEC").items(), [Reply::Integer(1), Reply::Simple("OK".into())]);
    is_told(&mut client);
    // The same holds for events of keys.
    client.line("CONFIG SET notify-keyspace-events KA").is_ok();
    client.line("SUBSCRIBE __keyspace@0__:k").ignored();
    client.line("INCR n").is(1);
    client.line("DEL k").is(1);
    let Reply::Push(parts) = client.reply().reply() else { panic!("no push") };
    assert_eq!(Reply::Array(parts), bulks(&["message", "__keyspace@0__:k", "del"]));
}

#[track_caller]
fn is_told(client: &mut Client) {
    let reply = client.reply().reply();
    let Reply::Push(parts) = reply else { panic!("no push, but {reply:?}") };
    assert_eq!(Reply::Array(parts), bulks(&["message", "c", "m"]));
}

marked!(also_redis: a_listener_that_does_not_read_is_cut_off_and_slows_no_other_client_down);
fn a_listener_that_does_not_read_is_cut_off_and_slows_no_other_client_down() {
    let server = Server::start_with(&["--client-output-buffer-limit", "pubsub 2mb 0 0"]);
    let (mut slow, mut reader, mut publisher) = (server.client(), server.client(), server.client());
    slow.line("SUBSCRIBE c").reply();
    reader.line("SUBSCRIBE c").reply();
    let message = "m".repeat(64 << 10);
    let started = Instant::now();
    let mut told = 2;
    while told == 2 {
        assert!(started.elapsed() < PATIENCE, "no client was cut off");
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

marked!(also_redis: a_soft_limit_is_one_for_those_who_stay_above_it);
fn a_soft_limit_is_one_for_those_who_stay_above_it() {
    let server = Server::start_with(&["--client-output-buffer-limit", "pubsub 0 1mb 1"]);
    let (mut slow, mut publisher) = (server.client(), server.client());
    slow.line("SUBSCRIBE c").reply();
    let message = "m".repeat(64 << 10);
    let started = Instant::now();
    while publisher.cmd(["PUBLISH", "c", &message]).integer() == 1 {
        assert!(started.elapsed() < PATIENCE, "no client was cut off");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
}

marked!(also_redis: the_end_of_a_connection_ends_its_listening);
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

marked!(also_redis: nothing_more_is_sent_to_a_client_that_was_killed_or_removed);
fn nothing_more_is_sent_to_a_client_that_was_killed_or_removed() {
    let server = Server::start();
    let mut admin = server.client();
    admin.line("CONFIG SET notify-keyspace-events KA").is_ok();
    let ways = [
        ("SUBSCRIBE c", &["PUBLISH c m"][..]),
        ("PSUBSCRIBE c*", &["PUBLISH c m"]),
        ("SSUBSCRIBE c", &["SPUBLISH c m"]),
        ("SUBSCRIBE c", &["MULTI", "PUBLISH c m", "EXEC"]),
        ("SUBSCRIBE __keyspace@0__:k", &["SET k v"]),
        ("MONITOR", &["SET k v"]),
    ];
    for (way, news) in ways {
        for loss in ["ACL DELUSER bob", "CLIENT KILL USER bob"].into_iter().cycle().take(10) {
            admin.line("ACL SETUSER bob on nopass +@all ~* &*").is_ok();
            let mut bob = server.client();
            bob.line("AUTH bob x").is_ok();
            bob.line(way).ignored();
            let lines = [&[loss], news].concat();
            admin.send(&lines.iter().flat_map(|line| request(line.split(' '))).collect::<Vec<u8>>());
            lines.iter().for_each(|_| admin.reply().ignored());
            assert!(bob.is_closed(), "{way}, {loss}: {news:?} came");
        }
    }
}

marked!(also_redis: clients_that_listen_are_listed_as_such);
fn clients_that_listen_are_listed_as_such() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    listener.line("SUBSCRIBE a b").reply();
    listener.reply().ignored();
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
    ("GETEX k PERSIST", &[]),
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
    ("PERSIST r", &[]),
    ("COPY r k", &[("keymiss", "r")]),
    ("SETNX r 1", &[("new", "r"), ("set", "r")]),
    ("DEL k r absent", &[("del", "k"), ("del", "r")]),
    ("SET k 1", &[("new", "k"), ("set", "k")]),
    ("UNLINK k", &[("del", "k")]),
    ("SETRANGE k 2 x", &[("new", "k"), ("setrange", "k")]),
    ("SADD s a", &[("new", "s"), ("sadd", "s")]),
    ("SUNIONSTORE k s", &[("sunionstore", "k")]),
    ("SUNIONSTORE l s", &[("new", "l"), ("sunionstore", "l")]),
    ("ZUNIONSTORE l 1 s", &[("zunionstore", "l")]),
    ("LCS s absent", &[("keymiss", "absent")]),
    ("FLUSHALL", &[]),
];

marked!(also_redis: a_restored_key_is_new_and_one_that_would_have_expired_is_deleted);
fn a_restored_key_is_new_and_one_that_would_have_expired_is_deleted() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("SADD k a").is(1);
    let payload = client.cmd(["DUMP", "k"]).reply();
    let Reply::Bulk(payload) = payload else { panic!("{payload:?}") };
    client.line("CONFIG SET notify-keyspace-events AEn").is_ok();
    listener.line("PSUBSCRIBE __key*").reply();
    client.cmd([&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]).is_ok();
    client.cmd([&b"RESTORE"[..], b"k", b"1", &payload, b"ABSTTL", b"REPLACE"]).is_ok();
    client.cmd([&b"RESTORE"[..], b"k", b"1", &payload, b"ABSTTL"]).is_ok();
    client.line("EXISTS k").is(0);
    client.line("SET end 1").is_ok();
    for (name, key) in [("new", "k"), ("restore", "k"), ("del", "k"), ("new", "end"), ("set", "end")] {
        let channel = format!("__keyevent@0__:{name}");
        assert_eq!(listener.reply().reply(), bulks(&["pmessage", "__key*", &channel, key]));
    }
}

/// Redis 7.0 puts the message in front of the reply.
#[test]
fn a_client_gets_the_reply_before_the_message_that_it_has_published() {
    let mut client = Server::start().into_client();
    client.line("HELLO 3").ignored();
    client.line("SUBSCRIBE c").ignored();
    client.line("CONFIG SET notify-keyspace-events E$").is_ok();
    let message =
        |channel: &str, text: &str| Reply::Push(vec!["message".into(), channel.into(), text.into()]);
    client.line("SUBSCRIBE __keyevent@0__:set").ignored();
    client.line("PUBLISH c one").is(1);
    client.reply().is(message("c", "one"));
    client.line("SET k v").is_ok();
    client.reply().is(message("__keyevent@0__:set", "k"));
    client
        .line("EVAL \"redis.call('PUBLISH', 'c', 'two') return redis.call('SET', KEYS[1], 'v')\" 1 k")
        .is_ok();
    client.reply().is(message("c", "two"));
    client.reply().is(message("__keyevent@0__:set", "k"));
    for line in ["MULTI", "PUBLISH c three", "PING"] {
        client.line(line).ignored();
    }
    client.line("EXEC").is(Reply::Array(vec![1.into(), Reply::Simple("PONG".to_owned())]));
    client.reply().is(message("c", "three"));
}

/// Redis 8.2 has the events of values that others replace, in front of a command's own or behind it.
#[test]
fn a_value_that_replaces_another_one_is_told_of() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("SADD set a").is(1);
    let Reply::Bulk(payload) = client.cmd(["DUMP", "set"]).reply() else { panic!("no payload") };
    client.line("CONFIG SET notify-keyspace-events Eocg$lsz").is_ok();
    client.line("CONFIG GET notify-keyspace-events").is(bulks(&["notify-keyspace-events", "g$lszocE"]));
    listener.line("PSUBSCRIBE __key*").reply();
    let mut tells = |line: &str, names: &[&str]| {
        match line {
            "RESTORE" => client.cmd([&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]).is_ok(),
            _ => client.line(line).ignored(),
        };
        client.line("PUBLISH __key_done x").is(1);
        let events = names.iter().map(|name| format!("__keyevent@0__:{name}"));
        for channel in events.chain(["__key_done".to_owned()]) {
            assert_eq!(listener.reply().items()[2], channel.as_str().into(), "{line}");
        }
    };
    tells("SET k 1", &["set"]);
    tells("SET k 2", &["overwritten", "set"]);
    tells("SET k 2 KEEPTTL GET", &["overwritten", "set"]);
    tells("SET k 2 NX", &[]);
    tells("GETSET k 2", &["overwritten", "set"]);
    tells("MSET k 2", &["overwritten", "set"]);
    tells("MSETEX 1 k 2", &["overwritten", "set"]);
    tells("SETEX k 100 2", &["overwritten", "set", "expire"]);
    tells("INCR k", &["incrby"]);
    tells("APPEND k 1", &["append"]);
    tells("SETRANGE k 0 1", &["setrange"]);
    tells("SETBIT k 1 1", &["setbit"]);
    tells("BITOP NOT k k", &["overwritten", "set"]);
    tells("SUNIONSTORE k set", &["overwritten", "type_changed", "sunionstore"]);
    tells("SORT set ALPHA STORE k", &["overwritten", "type_changed", "sortstore"]);
    tells("ZUNIONSTORE k 1 set", &["overwritten", "type_changed", "zunionstore"]);
    tells("ZUNIONSTORE k 1 set", &["overwritten", "zunionstore"]);
    tells("RESTORE", &["restore", "overwritten", "type_changed"]);
    tells("SET k 1", &["overwritten", "type_changed", "set"]);
    tells("COPY set k REPLACE", &["copy_to", "overwritten", "type_changed"]);
    tells("COPY set k REPLACE", &["copy_to", "overwritten"]);
    tells("SET other 1", &["set"]);
    tells("RENAME other k", &["rename_from", "rename_to", "overwritten", "type_changed"]);
    tells("RENAME k other", &["rename_from", "rename_to"]);
}

marked!(also_redis: every_command_tells_of_what_it_did);
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

/// Writes keys that have expired and that nothing has freed, and listens to events. `DEBUG SET-ACTIVE-EXPIRE`
/// is 0.
fn listen_to_expired(server: &Server, client: &mut Client, keys: &[&str]) -> Client {
    let mut listener = server.client();
    for key in keys {
        client.line(&format!("SET {key} 1 PX 1")).is_ok();
    }
    let time = |client: &mut Client| client.line("TIME").items()[1].to_string();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2) {
        time(client);
    }
    listener.line("CONFIG SET notify-keyspace-events AEm").is_ok();
    listener.line("PSUBSCRIBE __keyevent*").reply();
    listener
}

/// The events of a listener until now, as `event key`. Then it stops.
fn events_until_now(listener: &mut Client, client: &mut Client) -> Vec<String> {
    client.line("PUBLISH __keyevent:end x").is(1);
    let mut events = Vec::new();
    loop {
        let parts: Vec<String> = listener.reply().items().iter().map(ToString::to_string).collect();
        let [.., channel, key] = &parts[..] else { panic!("{parts:?}") };
        match channel.trim_matches('"').rsplit(':').next() {
            Some("end") => break,
            name => events.push(format!("{} {}", name.unwrap_or_default(), key.trim_matches('"'))),
        }
    }
    listener.line("PUNSUBSCRIBE").ignored();
    client.cmd(["CONFIG", "SET", "notify-keyspace-events", ""]).is_ok();
    events
}

marked!(also_redis: a_key_that_is_found_expired_is_freed_before_the_command_goes_on);
fn a_key_that_is_found_expired_is_freed_before_the_command_goes_on() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    for (line, events) in [
        ("GET k", &["expired k", "keymiss k"][..]),
        ("MGET k l", &["expired k", "keymiss k", "expired l", "keymiss l"]),
        ("EXISTS k", &["expired k", "keymiss k"]),
        ("TTL k", &["expired k", "keymiss k"]),
        ("GETEX k", &["expired k", "keymiss k"]),
        ("GETDEL k", &["expired k", "keymiss k"]),
        ("OBJECT ENCODING k", &["expired k"]),
        ("WATCH k", &[]),
        ("EXPIRE k 10", &["expired k"]),
        ("PERSIST k", &["expired k"]),
        ("INCR k", &["expired k", "incrby k"]),
        ("DEL k", &["expired k"]),
        ("RENAME k m", &["expired k"]),
        ("LPOP k", &["expired k"]),
        ("SUNIONSTORE k s", &["expired k", "sunionstore k"]),
    ] {
        client.line("FLUSHALL").is_ok();
        client.line("SADD s m").is(1);
        let mut listener = listen_to_expired(&server, &mut client, &["k", "l"]);
        let _ = client.line(line);
        assert_eq!(events_until_now(&mut listener, &mut client), events, "{line}");
    }
}

marked!(also_redis: an_empty_result_deletes_its_key_even_if_it_has_expired);
fn an_empty_result_deletes_its_key_even_if_it_has_expired() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    for line in [
        "SINTERSTORE k a b",
        "SORT nosuch STORE k",
        "ZUNIONSTORE k 1 nosuch",
        "ZRANGESTORE k nosuch 0 -1",
        "BITOP AND k nosuch",
        "GEOSEARCHSTORE k nosuch FROMLONLAT 1 1 BYRADIUS 1 m",
    ] {
        let mut listener = listen_to_expired(&server, &mut client, &["k"]);
        client.line(line).is(0);
        let mut events = events_until_now(&mut listener, &mut client);
        // What these commands read is missing, too.
        events.retain(|event| event.ends_with(" k"));
        assert_eq!(events, ["del k"], "{line}");
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

marked!(also_redis: keys_that_expire_and_keys_that_are_evicted_are_told_of);
fn keys_that_expire_and_keys_that_are_evicted_are_told_of() {
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    listener.line("PSUBSCRIBE __keyevent*").reply();
    client.line("SET not-asked-for v PX 20").is_ok();
    assert_eq!(wait_for_event(&mut listener, "expired"), "not-asked-for");
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").reply();
    client.line("SET asked-for v PX 1").is_ok();
    while client.line("GET asked-for").reply() != Reply::Null {}
    assert_eq!(wait_for_event(&mut listener, "expired"), "asked-for");
    client.line("SET goes v").is_ok();
    client.line("CONFIG SET maxmemory-policy allkeys-lru maxmemory 1").is_ok();
    client.line("SET refused v").reply();
    assert_eq!(wait_for_event(&mut listener, "evicted"), "goes");
}

marked!(also_redis: nothing_is_subscribed_to_while_memory_is_short);
fn nothing_is_subscribed_to_while_memory_is_short() {
    const REFUSED: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let server = Server::start();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET maxmemory 1").is_ok();
    for line in ["SUBSCRIBE c", "PSUBSCRIBE c*", "SSUBSCRIBE c"] {
        listener.line(line).is_error(REFUSED);
    }
    listener.line("MULTI").is_ok();
    listener.line("SUBSCRIBE c").is_error(REFUSED);
    listener.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    // A subscription can be ended, and a message can be sent.
    listener.line("UNSUBSCRIBE c").reply();
    client.line("PUBLISH c m").is(0);
    client.line("CONFIG SET maxmemory 0").is_ok();
    assert_eq!(listener.line("SUBSCRIBE c").reply().to_string(), "[\"subscribe\", \"c\", (integer) 1]");
}

marked!(also_redis: events_of_a_key_come_in_their_order_whichever_client_causes_them);
fn events_of_a_key_come_in_their_order_whichever_client_causes_them() {
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

marked!(also_redis: confirmations_come_even_where_no_replies_are_wanted);
fn confirmations_come_even_where_no_replies_are_wanted() {
    let server = Server::start();
    let confirmed = |verb: &str, name: &str, left: usize| {
        format!("*3\r\n${}\r\n{verb}\r\n${}\r\n{name}\r\n:{left}\r\n", verb.len(), name.len())
    };
    let subscribed = |name: &str, left| confirmed("subscribe", name, left);
    let nothing_left = |verb: &str| format!("*3\r\n${}\r\n{verb}\r\n$-1\r\n:0\r\n", verb.len());
    for (sent, expected) in [
        (
            "CLIENT REPLY OFF\nSUBSCRIBE a b\nPING\nUNSUBSCRIBE a b\nCLIENT REPLY ON\nPING\n",
            subscribed("a", 1)
                + &subscribed("b", 2)
                + &confirmed("unsubscribe", "a", 1)
                + &confirmed("unsubscribe", "b", 0)
                + "+OK\r\n+PONG\r\n",
        ),
        ("CLIENT REPLY SKIP\nSUBSCRIBE a\nPING\n", subscribed("a", 1) + "*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
        (
            "CLIENT REPLY OFF\nPSUBSCRIBE a*\nPUNSUBSCRIBE\nSSUBSCRIBE s\nSUNSUBSCRIBE s\nCLIENT REPLY ON\n",
            confirmed("psubscribe", "a*", 1)
                + &confirmed("punsubscribe", "a*", 0)
                + &confirmed("ssubscribe", "s", 1)
                + &confirmed("sunsubscribe", "s", 0)
                + "+OK\r\n",
        ),
        (
            // Errors are replies, and so is what EXEC adds.
            "CLIENT REPLY OFF\nSUBSCRIBE\nUNSUBSCRIBE\nMULTI\nSUBSCRIBE a\nPING\nEXEC\nRESET\nPING\n",
            nothing_left("unsubscribe") + &subscribed("a", 1) + "+RESET\r\n+PONG\r\n",
        ),
        (
            "CLIENT REPLY OFF\nMULTI\nUNSUBSCRIBE\nPUNSUBSCRIBE\nEXEC\nCLIENT REPLY ON\n",
            nothing_left("unsubscribe") + &nothing_left("punsubscribe") + "+OK\r\n",
        ),
    ] {
        let mut client = server.client();
        client.send(sent.replace('\n', "\r\n").as_bytes());
        let mut received = String::new();
        while received.len() < expected.len() {
            received += &String::from_utf8(client.reply_bytes()).expect("a text");
        }
        assert_eq!(received, expected, "after {sent:?}");
        assert!(client.is_silent_for(Duration::from_millis(20)), "more comes after {sent:?}");
    }
}

marked!(also_redis: messages_come_to_a_client_that_wants_no_replies);
fn messages_come_to_a_client_that_wants_no_replies() {
    let server = Server::start();
    let (mut listener, mut publisher) = (server.client(), server.client());
    listener.send(b"CLIENT REPLY OFF\r\nSUBSCRIBE c\r\n");
    assert_eq!(listener.reply().items().len(), 3);
    publisher.line("PUBLISH c m").is(1);
    assert_eq!(Reply::Array(listener.reply().items()), bulks(&["message", "c", "m"]));
}

marked!(also_redis: no_message_comes_before_its_channel_is_confirmed);
fn no_message_comes_before_its_channel_is_confirmed() {
    const ROUNDS: usize = 100;
    // More of them, so that messages come while the last ones are not listened to yet.
    let channels = (0..300).fold("c".to_owned(), |names, number| names + &format!(" other{number}"));
    let server = Server::start();
    let (mut listener, mut publisher) = (server.client3(), server.client());
    listener.line("SUBSCRIBE other").reply();
    let is_over = Arc::new(AtomicBool::new(false));
    let publishing = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            while !is_over.load(Ordering::Relaxed) {
                publisher.send(&b"PUBLISH c m\r\n".repeat(50));
                (0..50).for_each(|_| drop(publisher.reply()));
            }
        }
    });
    for round in 0..ROUNDS {
        let (before, after) = [("", ""), ("MULTI\r\n", "EXEC\r\n")][round % 2];
        let listen = format!("{before}SUBSCRIBE {channels}\r\n{after}UNSUBSCRIBE {channels}\r\nPING\r\n");
        listener.send(listen.as_bytes());
        let (mut is_confirmed, mut is_over) = (false, false);
        while !is_over {
            let reply = format!("{:?}", listener.reply().reply());
            is_over = reply == r#"Simple("PONG")"#;
            is_confirmed |= reply.contains(&format!("{:?}", b"subscribe"));
            let is_message = reply.contains(&format!("{:?}", b"message"));
            assert!(is_confirmed || !is_message, "a message came first, in round {round}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    publishing.join().expect("no panic");
}

marked!(also_redis: sharded_channels_are_not_listened_to_in_a_transaction);
fn sharded_channels_are_not_listened_to_in_a_transaction() {
    let mut client = Server::start().into_client();
    client.line("MULTI").is_ok();
    client.line("SUBSCRIBE a").is_simple("QUEUED");
    client.line("SSUBSCRIBE s").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    let refusal = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
    assert_eq!(replies[1], Reply::Error(refusal.into()));
    assert_eq!(client.line("PING").items().len(), 2, "only the one channel is listened to");
}

#[test]
fn a_pattern_far_longer_than_people_write_is_refused() {
    let server = Server::start();
    let mut client = server.client();
    let (longest, too_long) = ("?".repeat(16 << 10), "?".repeat((16 << 10) + 1));
    const ERROR: &str = "ERR a pattern may have at most 16384 bytes";
    client.cmd(["PSUBSCRIBE", "news.*", &too_long]).is_error(ERROR);
    client.line("PUBSUB NUMPAT").is(0);
    client.cmd(["PSUBSCRIBE", &longest]).ignored();
    let mut other = server.client();
    other.line("PUBSUB NUMPAT").is(1);
    other.cmd(["PUBLISH", &longest, "m"]).is(1);
    other.cmd(["PUBLISH", &too_long, "m"]).is(0);
    for sign in ["~", "&"] {
        other.cmd(["ACL", "SETUSER", "bob", "resetchannels", &format!("{sign}{longest}")]).is_ok();
        let rule = format!("{sign}{too_long}");
        let error =
            format!("ERR Error in ACL SETUSER modifier '{rule}': A pattern may have at most 16384 bytes");
        other.cmd(["ACL", "SETUSER", "bob", &rule]).is_error(&error);
    }
    // What is asked once may be as long as a request.
    other.cmd(["PUBSUB", "CHANNELS", &too_long]).is(Reply::Array(Vec::new()));
    other.cmd(["KEYS", &too_long]).is(Reply::Array(Vec::new()));
}

/// Since Redis 8.6: what a client listens to takes memory.
#[test]
fn clients_that_listen_need_memory() {
    let mut client = Server::start().into_client();
    client.line("CONFIG SET maxmemory 1").is_ok();
    for line in ["SUBSCRIBE c", "PSUBSCRIBE c*", "SSUBSCRIBE c"] {
        client.line(line).is_error("OOM command not allowed when used memory > 'maxmemory'.");
    }
    client.line("UNSUBSCRIBE").is(Reply::Array(vec!["unsubscribe".into(), Reply::Null, 0.into()]));
    client.line("CONFIG SET maxmemory 0").is_ok();
    client.line("SUBSCRIBE c").is(Reply::Array(vec!["subscribe".into(), "c".into(), 1.into()]));
}
