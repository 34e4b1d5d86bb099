//! Requests that store what they make of large values: others use these meanwhile, and what is stored is of
//! one moment all the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::{Server, SetOnDrop};

/// Members of the large values. A request that reads so many takes long.
const MEMBERS: usize = 10_000;
/// Bytes of the long strings.
const BYTES: i64 = 6_000_001;

fn add(client: &mut Client, command: &str, key: &str, numbers: std::ops::Range<usize>) {
    for first in numbers.clone().step_by(1000) {
        let last = numbers.end.min(first + 1000);
        let mut words = vec![command.to_owned(), key.to_owned()];
        for number in first..last {
            match command {
                "ZADD" => words.extend([number.to_string(), format!("member:{number}")]),
                "GEOADD" => {
                    words.extend(["1".to_owned(), format!("{}", number % 80), format!("member:{number}")])
                }
                _ => words.push(format!("member:{number}")),
            }
        }
        client.cmd(words).is((last - first) as i64);
    }
}

/// Fills sets (`s`, `s2`), sorted sets (`z`, `z2`), places (`g`) and long strings (`t`, `t2`).
fn fill(client: &mut Client) {
    for (command, key) in [("SADD", "s"), ("ZADD", "z"), ("GEOADD", "g")] {
        add(client, command, key, 0..MEMBERS);
    }
    for (command, key) in [("SADD", "s2"), ("ZADD", "z2")] {
        add(client, command, key, MEMBERS / 2..MEMBERS + 20);
    }
    client.cmd(["SADD", "few", "member:1", "member:2", "other"]).is(3);
    for (key, byte) in [("t", b'a'), ("t2", b'b')] {
        client.cmd([&b"SETRANGE"[..], key.as_bytes(), b"6000000", &[byte]]).is(BYTES);
    }
}

/// Fills two sets (`a`, `b`), sorted sets (`za`, `zb`) and long strings (`ta`, `tb`) with the same.
fn fill_pairs(client: &mut Client) {
    for key in ["a", "b"] {
        add(client, "SADD", key, 0..MEMBERS);
        add(client, "ZADD", &format!("z{key}"), 0..MEMBERS);
        client.line(&format!("SETRANGE t{key} 6000000 x")).is(BYTES);
    }
}

#[test]
fn they_store_what_they_would_store_in_a_transaction() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client);
    for line in [
        "SUNIONSTORE d s s2",
        "SUNIONSTORE d s none",
        "SINTERSTORE d s s2",
        "SINTERSTORE d s few",
        "SDIFFSTORE d s s2",
        "SDIFFSTORE d s s",
        "ZUNIONSTORE d 2 z z2 WEIGHTS 2 3",
        "ZUNIONSTORE d 2 z s AGGREGATE MAX",
        "ZINTERSTORE d 3 z z2 s",
        "ZDIFFSTORE d 2 z z2",
        "ZDIFFSTORE d 2 z z",
        "ZRANGESTORE d z 100 -100",
        "ZRANGESTORE d z 9000 (5 BYSCORE REV",
        "GEOSEARCHSTORE d g FROMLONLAT 1 1 BYRADIUS 3000 km ASC STOREDIST",
        "GEORADIUS g 1 1 3000 km STORE d",
        "GEORADIUSBYMEMBER g member:3 3000 km STOREDIST d",
        "BITOP NOT d t",
        "BITOP XOR d t t2 none",
        "BITOP AND d t none",
        // What is wrong is found in the same order.
        "SUNIONSTORE d s z",
        "ZUNIONSTORE d 2 z t",
        "ZUNIONSTORE d 2 z z2 WEIGHTS 1",
        "GEORADIUS g 1 1 3000 km STORE d WITHDIST",
        "BITOP OR d t s",
        "ZRANGESTORE d s 0 -1",
    ] {
        for has_value in [true, false] {
            let (mut digests, mut replies) = (Vec::new(), Vec::new());
            for is_queued in [false, true] {
                client.line("DEL d").ignored();
                if has_value {
                    client.line("SET d old").is_ok();
                }
                let reply = if is_queued {
                    client.line("MULTI").is_simple("OK");
                    client.line(line).is_simple("QUEUED");
                    client.line("EXEC").items().remove(0)
                } else {
                    client.line(line).reply()
                };
                replies.push(reply.to_string());
                digests.push(client.line("DEBUG DIGEST-VALUE d").reply().to_string());
                digests.push(client.line("OBJECT ENCODING d").reply().to_string());
            }
            assert_eq!(replies[0], replies[1], "{line}");
            assert_eq!(digests[..2], digests[2..], "{line}");
        }
    }
    // The key that is written may be one of those that are read.
    client.line("SUNIONSTORE s s few").is(MEMBERS as i64 + 1);
    client.line("SCARD s").is(MEMBERS as i64 + 1);
}

/// Runs `act` while two clients run these transactions over and over, each with numbers of its own.
fn while_others_write(server: &Server, transaction: &'static [&'static str], act: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        for writer in 0..2 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = server.client();
                let mut number = writer;
                while !is_over.load(Ordering::Relaxed) {
                    number += 2;
                    client.line("MULTI").is_ok();
                    for line in transaction {
                        client.line(&line.replace('#', &(number % 1000).to_string())).ignored();
                    }
                    client.line("EXEC").ignored();
                }
            });
        }
        act();
        drop(end);
    });
}

#[test]
fn what_is_stored_is_of_one_moment_though_others_write_meanwhile() {
    let server = Server::start();
    let mut client = server.client();
    fill_pairs(&mut client);
    // Each transaction leaves both of a pair alike.
    let writes = &[
        "SADD a new:#",
        "SADD b new:#",
        "ZADD za 1 new:#",
        "ZADD zb 1 new:#",
        "SETRANGE ta # #",
        "SETRANGE tb # #",
        "SREM a member:#",
        "SREM b member:#",
    ];
    while_others_write(&server, writes, || {
        for _ in 0..8 {
            client.line("SDIFFSTORE d a b").is(0);
            client.line("ZDIFFSTORE d 2 za zb").is(0);
            client.line("BITOP XOR d ta tb").is(BYTES);
            client.line("BITCOUNT d").is(0);
            client.line("EXISTS d").is(1);
            client.line("DEL d").is(1);
        }
    });
    let both = [client.line("SINTERSTORE d a b").integer(), client.line("SUNIONSTORE d a b").integer()];
    assert_eq!(both[0], both[1]);
    client.line("SCARD a").is(both[0]);
}

#[test]
fn what_others_have_written_before_it_is_stored_is_in_it() {
    let server = Server::start();
    let mut client = server.client();
    fill_pairs(&mut client);
    let mut writer = server.client();
    let mut number = 0;
    for (store, write, look) in [
        ("SUNIONSTORE d a b", "SADD b #", "SISMEMBER d #"),
        ("ZUNIONSTORE d 2 za zb", "ZADD zb 1 #", "ZSCORE d #"),
        ("ZRANGESTORE d za 0 -1", "ZADD za 1 #", "ZSCORE d #"),
    ] {
        for _ in 0..5 {
            client.line("DEL d").ignored();
            client.send(&request(store.split(' ')));
            let mut before = Vec::new();
            while client.is_silent_for(Duration::from_micros(1)) {
                number += 1;
                writer.line("MULTI").is_ok();
                writer.line(&write.replace('#', &number.to_string())).is_simple("QUEUED");
                writer.line("EXISTS d").is_simple("QUEUED");
                if writer.line("EXEC").items()[1] == Reply::Integer(0) {
                    before.push(number);
                }
            }
            client.reply().integer();
            for number in before {
                let found = client.line(&look.replace('#', &number.to_string())).reply().to_string();
                assert!(
                    ["(integer) 1", "1", "\"1\""].contains(&found.as_str()),
                    "{store}: {number}: {found}"
                );
            }
        }
    }
}

/// Does something at some moment while another client's request is made, for as many moments as rounds.
fn at_many_moments(rounds: u64, mut act: impl FnMut(u64, Duration)) {
    for round in 0..rounds {
        act(round, Duration::from_millis(round * 7 % 40));
    }
}

#[test]
fn whatever_happens_meanwhile_it_is_stored_whole_or_not_at_all() {
    let server = Server::start();
    let mut admin = server.client();
    admin.line("ACL SETUSER bob on nopass +@all ~*").is_ok();
    let all = 2 * MEMBERS as i64;
    add(&mut admin, "SADD", "a", 0..MEMBERS);
    add(&mut admin, "SADD", "b", MEMBERS..2 * MEMBERS);
    at_many_moments(12, |round, moment| {
        admin.line("DEL d").ignored();
        let mut bob = server.client();
        bob.line("AUTH bob x").is_ok();
        let id = bob.line("CLIENT ID").integer();
        bob.send(&request(["SUNIONSTORE", "d", "a", "b"]));
        thread::sleep(moment);
        match round % 3 {
            0 => {
                admin.line("ACL SETUSER bob -sunionstore").is_ok();
                match bob.reply().reply() {
                    Reply::Integer(count) => assert_eq!(count, all),
                    refusal => {
                        assert!(refusal.to_string().contains("NOPERM"), "{refusal}");
                        admin.line("EXISTS d").is(0);
                    }
                }
                admin.line("ACL SETUSER bob +sunionstore").is_ok();
            }
            1 => {
                // It may have ended, and may not be there any more.
                admin.line(&format!("CLIENT KILL ID {id}")).ignored();
                let stored = admin.line("SCARD d").integer();
                assert!([0, all].contains(&stored), "{stored}");
            }
            _ => {
                admin.line("COPY a a:kept").is(1);
                admin.line("DEL a").is(1);
                let (with, without) = (all, MEMBERS as i64);
                let stored = bob.reply().integer();
                assert!([with, without].contains(&stored), "{stored}");
                admin.line("SCARD d").is(stored);
                admin.line("RENAME a:kept a").is_ok();
            }
        }
    });
    at_many_moments(4, |_, moment| {
        let mut client = server.client();
        client.send(&request(["SUNIONSTORE", "d", "a", "b"]));
        thread::sleep(moment);
        admin.line("FLUSHALL").is_ok();
        let stored = client.reply().integer();
        assert!([0, all].contains(&stored), "{stored}");
        admin.line("DBSIZE").is(0);
        add(&mut admin, "SADD", "a", 0..MEMBERS);
        add(&mut admin, "SADD", "b", MEMBERS..2 * MEMBERS);
    });
}

#[test]
fn a_source_that_expires_meanwhile_counts_as_absent_or_as_there() {
    let server = Server::start();
    let mut client = server.client();
    let all = 2 * MEMBERS as i64;
    add(&mut client, "SADD", "a", 0..MEMBERS);
    add(&mut client, "SADD", "b:kept", MEMBERS..2 * MEMBERS);
    at_many_moments(8, |_, moment| {
        client.line("COPY b:kept b REPLACE").is(1);
        client.line(&format!("PEXPIRE b {}", 1 + moment.as_millis())).is(1);
        let stored = client.line("SUNIONSTORE d a b").integer();
        assert!([MEMBERS as i64, all].contains(&stored), "{stored}");
        client.line("SCARD d").is(stored);
    });
}

#[test]
fn the_log_has_it_and_it_counts_once() {
    let folder = Folder::new("long-stores");
    let mut server = folder.serve(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut client = server.client();
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    fill(&mut client);
    let count = |client: &mut Client, field: &str| client.info(field).parse::<u64>().expect("a number");
    let mut of = |line: &str| {
        let before = ["keyspace_hits", "keyspace_misses"].map(|field| count(&mut client, field));
        let mut listener = server.client();
        listener.line("PSUBSCRIBE __keyevent@0__:*").ignored();
        client.line(line).ignored();
        client.line("SET end v").is_ok();
        let mut events = Vec::new();
        while events.last().is_none_or(|event: &String| !event.contains("\"end\"")) {
            events.push(listener.reply().reply().to_string());
        }
        let after = ["keyspace_hits", "keyspace_misses"].map(|field| count(&mut client, field));
        ([after[0] - before[0], after[1] - before[1]], events)
    };
    let short = of("SUNIONSTORE d few none");
    let long = of("SUNIONSTORE d s none");
    assert_eq!(short, long);
    let calls = client.line("INFO commandstats").text();
    assert!(calls.contains("cmdstat_sunionstore:calls=2,"), "{calls}");
    let written = client.line("DEBUG DIGEST-VALUE d").reply().to_string();
    client.line("WATCH d").is_ok();
    server.client().line("SINTERSTORE d s s2").is(MEMBERS as i64 / 2);
    client.line("MULTI").is_ok();
    client.line("PING").is_simple("QUEUED");
    client.line("EXEC").is_nil();
    server.client().line("SUNIONSTORE d s none").is(MEMBERS as i64);
    server.signal("KILL");
    server.wait_for_end();
    let again = folder.serve(&["--appendonly", "yes"]);
    assert_eq!(again.client().line("DEBUG DIGEST-VALUE d").reply().to_string(), written);
}
