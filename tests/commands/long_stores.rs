//! Requests that store what they make of large values, or take much of one: others use these meanwhile, and
//! what is stored or taken is of one moment all the same.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
        "SORT s ALPHA STORE d",
        "SORT z ALPHA DESC LIMIT 10 9900 STORE d",
        "SORT z BY nosort GET # STORE d",
        "SORT none ALPHA STORE d",
        // What is wrong is found in the same order.
        "SUNIONSTORE d s z",
        "ZUNIONSTORE d 2 z t",
        "ZUNIONSTORE d 2 z z2 WEIGHTS 1",
        "GEORADIUS g 1 1 3000 km STORE d WITHDIST",
        "BITOP OR d t s",
        "ZRANGESTORE d s 0 -1",
        "SORT s STORE d",
        "SORT t ALPHA STORE d",
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

/// Fills a list (`l`), a set (`s`) and sorted sets (`z`, and `alike` of one score) with long elements.
fn fill_to_take(client: &mut Client) {
    for first in (0..MEMBERS).step_by(1000) {
        for (command, key) in [("RPUSH", "l"), ("SADD", "s"), ("ZADD", "z"), ("ZADD", "alike")] {
            let mut words = vec![command.to_owned(), key.to_owned()];
            for number in first..first + 1000 {
                words.extend((key == "z").then(|| number.to_string()));
                words.extend((key == "alike").then(|| "7".to_owned()));
                words.push(format!("element:{number:040}"));
            }
            client.cmd(words).integer();
        }
    }
}

/// All strings and numbers of a reply.
fn parts(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) | Reply::Set(items) => items.into_iter().flat_map(parts).collect(),
        part => vec![part.to_string().trim_matches('"').to_owned()],
    }
}

#[test]
fn they_take_what_a_client_would_have_read_there_and_the_log_has_it() {
    let folder = Folder::new("long-takes");
    let mut server = folder.serve(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (mut client, mut reader) = (server.client(), server.client());
    fill_to_take(&mut client);
    let whole = |reader: &mut Client, key: &str| -> Vec<Vec<String>> {
        let (line, each) = match reader.line(&format!("TYPE {key}")).text().as_str() {
            "list" => ("LRANGE # 0 -1", 1),
            "set" => ("SMEMBERS #", 1),
            "zset" => ("ZRANGE # 0 -1 WITHSCORES", 2),
            _ => return Vec::new(),
        };
        let all = parts(reader.line(&line.replace('#', key)).reply());
        all.chunks(each).map(<[String]>::to_vec).collect()
    };
    let mut kept = 0;
    // What it takes of a copy: these elements, the first or the last of them first. Some reply with the key,
    // too, and some with a number alone.
    for (line, source, taken, is_reversed) in [
        ("LPOP c 9000", "l", 0..9000, false),
        ("LPOP c 10000", "l", 0..10_000, false),
        ("RPOP c 9500", "l", 500..10_000, true),
        ("LMPOP 2 none c LEFT COUNT 9999", "l", 0..9999, false),
        ("BLMPOP 1 2 none c RIGHT COUNT 99999", "l", 0..10_000, true),
        ("SPOP c 20000", "s", 0..10_000, false),
        ("ZPOPMIN c 6000", "z", 0..6000, false),
        ("ZPOPMAX c 9000", "z", 1000..10_000, true),
        ("ZPOPMAX c 90000", "z", 0..10_000, true),
        ("ZMPOP 2 none c MIN COUNT 6000", "z", 0..6000, false),
        ("BZMPOP 1 1 c MAX COUNT 9000", "z", 1000..10_000, true),
        ("ZREMRANGEBYRANK c 1 -2", "z", 1..9999, false),
        ("ZREMRANGEBYSCORE c (5 8000", "z", 6..8001, false),
        ("ZREMRANGEBYLEX c - (element:0000000000000000000000000000000000008", "alike", 0..8000, false),
    ] {
        for (how, protocol) in [("alone", 2), ("queued", 3), ("called", 2)] {
            client.line(&format!("HELLO {protocol}")).ignored();
            client.line(&format!("COPY {source} c REPLACE")).is(1);
            let mut left = whole(&mut reader, "c");
            let mut took: Vec<Vec<String>> = left.drain(taken.clone()).collect();
            if is_reversed {
                took.reverse();
            }
            let mut expected = took.concat();
            match line {
                _ if line.starts_with("ZREM") => expected = vec![format!("(integer) {}", took.len())],
                _ if line.contains("MPOP") => expected.insert(0, "c".to_owned()),
                _ => {}
            }
            let reply = match how {
                "alone" => client.line(line).reply(),
                "queued" => {
                    // What is written later stays in its place between others.
                    for line in ["MULTI", "PING", line, "PING"] {
                        client.line(line).ignored();
                    }
                    let mut items = client.line("EXEC").items();
                    let pongs = [items.remove(0), items.remove(1)];
                    assert!(pongs.iter().all(|pong| pong.to_string() == "PONG"), "{pongs:?}");
                    items.remove(0)
                }
                _ => {
                    let script = format!("return redis.call({})", quoted(line));
                    client.cmd(["EVAL", &script, "1", "c"]).reply()
                }
            };
            assert_eq!(parts(reply), expected, "{line}, {how}, RESP{protocol}");
            assert_eq!(whole(&mut reader, "c"), left, "{line}, {how}");
            if how == "alone" && !left.is_empty() {
                kept += 1;
                client.line(&format!("RENAME c kept:{kept}")).is_ok();
            }
        }
    }
    client.line("HELLO 2").ignored();
    client.line("DEL c").is(1);
    client.line("SORT s ALPHA STORE sorted").is(MEMBERS as i64);
    add(&mut client, "SADD", "more", 0..MEMBERS);
    client.line("SUNIONSTORE both s more").is(2 * MEMBERS as i64);
    for (count, left) in [(6000, "few"), (15_000, "most")] {
        client.line(&format!("COPY both {left}:left")).is(1);
        let drawn = parts(client.line(&format!("SPOP {left}:left {count}")).reply());
        client.line(&format!("SCARD {left}:left")).is(2 * MEMBERS as i64 - count);
        let again = ["SADD".to_owned(), "c".to_owned()].into_iter().chain(drawn);
        client.cmd(again).is(count);
        client.line(&format!("SINTERCARD 2 c {left}:left")).is(0);
        client.line(&format!("SUNIONSTORE c c {left}:left")).is(2 * MEMBERS as i64);
        client.line("SDIFFCARD 2 c both").is(0);
        client.line("DEL c").is(1);
    }
    let digest = client.line("DEBUG DIGEST").text();
    server.signal("KILL");
    server.wait_for_end();
    let again = folder.serve(&["--appendonly", "yes"]);
    assert_eq!(again.client().line("DEBUG DIGEST").text(), digest);
}

/// The words of a line, as arguments in Lua.
fn quoted(line: &str) -> String {
    line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_taken_is_of_one_moment_though_others_add_meanwhile() {
    let server = Server::start();
    let mut client = server.client();
    for (line, taken) in [
        ("ZREMRANGEBYSCORE z -inf 8999", 9000),
        ("ZREMRANGEBYRANK z 0 5999", 6000),
        ("ZPOPMIN z 7000", 7000),
        ("LPOP l 9000", 9000),
    ] {
        client.line("DEL z l").ignored();
        fill_to_take(&mut client);
        let (is_over, added) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            scope.spawn(|| {
                let mut writer = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    let number = added.fetch_add(1, Ordering::Relaxed);
                    writer.line(&format!("ZADD z {} new:{number}", MEMBERS as u64 + number)).is(1);
                    writer.line(&format!("RPUSH l new:{number}")).ignored();
                }
            });
            // The writer is at it.
            while added.load(Ordering::Relaxed) < 10 {
                thread::yield_now();
            }
            let before = added.load(Ordering::Relaxed);
            let reply = client.line(line).reply();
            let count = match reply {
                Reply::Integer(count) => count,
                Reply::Array(items) => items.len() as i64 / if line.starts_with('Z') { 2 } else { 1 },
                other => panic!("{line}: {other}"),
            };
            assert_eq!(count, taken, "{line}");
            assert!(added.load(Ordering::Relaxed) >= before);
            drop(end);
        });
        let key = line.split(' ').nth(1).expect("a key");
        let left = MEMBERS as i64 - taken + added.load(Ordering::Relaxed) as i64;
        client.line(&if key == "z" { "ZCARD z".to_owned() } else { "LLEN l".to_owned() }).is(left);
        let first = if key == "z" { "ZRANGE z 0 0" } else { "LRANGE l 0 0" };
        assert_eq!(parts(client.line(first).reply()), [format!("element:{taken:040}")], "{line}");
    }
}

#[test]
fn a_client_that_waits_gets_many_elements_of_one_request() {
    let server = Server::start();
    let (mut pusher, mut waiter) = (server.client(), server.client());
    fill_to_take(&mut pusher);
    let elements: Vec<String> = (0..MEMBERS).map(|number| format!("pushed:{number:040}")).collect();
    for (wait, push) in [("BLMPOP 0 1 w LEFT COUNT 20000", "RPUSH"), ("BZMPOP 0 1 w MIN COUNT 20000", "ZADD")]
    {
        waiter.send_and_wait(&mut pusher, wait);
        let scored = elements.iter().flat_map(|element| {
            (push == "ZADD").then(|| "1".to_owned()).into_iter().chain([element.clone()])
        });
        // The pusher has a reply of its own that is written later.
        for line in ["DEL c", "COPY l c", "MULTI", "LPOP c 8000"] {
            pusher.line(line).ignored();
        }
        pusher.cmd([push.to_owned(), "w".to_owned()].into_iter().chain(scored)).is_simple("QUEUED");
        pusher.line("RPOP c 100").is_simple("QUEUED");
        let pushers = pusher.line("EXEC").items();
        assert_eq!(pushers[1], Reply::Integer(MEMBERS as i64));
        let [first, .., last] = [pushers[0].clone(), pushers[2].clone()].map(parts);
        assert_eq!((first.len(), &*first[7999]), (8000, &*format!("element:{:040}", 7999)));
        assert_eq!((last.len(), &*last[0]), (100, &*format!("element:{:040}", MEMBERS - 1)));
        let mut got = parts(waiter.reply().reply());
        assert_eq!(got.remove(0), "w");
        got.retain(|part| part.len() > 10);
        assert_eq!(got, elements, "{wait}");
        pusher.line("EXISTS w").is(0);
    }
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
