//! Hashes, lists, sets and sorted sets from one life of the server to the next: logs, rewritten logs,
//! snapshots, kills, and the files of redis-server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::{check, serve, state, wait_for_rewrite};
use support::server::{Server, wait_until};
use support::tools::installed;

/// Collections below, at and above every limit: of elements, of the bytes of one, of all bytes.
fn fill(client: &mut Client) {
    let long = "x".repeat(70_000);
    for (name, count) in [("one", 1), ("few", 9), ("some", 128), ("more", 129), ("many", 600), ("lots", 3000)]
    {
        for number in 0..count {
            let (element, number) = (format!("element:{number}"), number.to_string());
            client.cmd(["HSET", &format!("hash:{name}"), &element, &number]).ignored();
            client.cmd(["RPUSH", &format!("list:{name}"), &element]).ignored();
            client.cmd(["SADD", &format!("set:{name}"), &element]).ignored();
            client.cmd(["SADD", &format!("integers:{name}"), &format!("{number}00000")]).ignored();
            client.cmd(["ZADD", &format!("ranking:{name}"), &format!("{number}.25"), &element]).ignored();
        }
    }
    for length in ["", "short", &long[..64], &long[..65], &long[..254], &long[..300], &long] {
        client.cmd(["HSET", "hash:lengths", length, length]).ignored();
        client.cmd(["LPUSH", "list:lengths", length]).ignored();
        client.cmd(["SADD", "set:lengths", length]).ignored();
        client.cmd(["ZADD", "ranking:lengths", "-inf", length]).ignored();
    }
    for line in [
        "HDEL hash:lots element:17",
        "HINCRBY hash:few element:3 1000",
        "HINCRBYFLOAT hash:few element:4 1.5",
        "LPOP list:lots 2000",
        "LTRIM list:many 100 300",
        "LSET list:some 5 changed",
        "LINSERT list:some BEFORE changed before",
        "LREM list:more -1 element:7",
        "LMOVE list:many list:other LEFT RIGHT",
        "SPOP set:some 100",
        "SMOVE set:many set:other element:1",
        "SINTERSTORE set:common set:many set:lots",
        "ZINCRBY ranking:few 7.5 element:1",
        "ZREMRANGEBYRANK ranking:lots 10 1000",
        "ZPOPMAX ranking:some 30",
        "ZADD ranking:lots -0 minus:a 0 minus:b -0 minus:c",
        "ZADD ranking:few -0 minus",
        "ZUNIONSTORE ranking:all 2 ranking:many ranking:more WEIGHTS 2 -1",
        "COPY hash:lots hash:copy",
        "COPY ranking:lots ranking:copy",
        "RENAME list:lots list:renamed",
        "MOVE set:lots 3",
        "EXPIRE hash:many 10000",
        "PEXPIRE ranking:few 10000000",
        "SADD emptied a b",
        "SREM emptied a b",
    ] {
        let reply = client.line(line).reply();
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply}");
    }
}

marked!(needs_tools: collections_come_back_from_a_log_and_from_a_rewritten_one);
fn collections_come_back_from_a_log_and_from_a_rewritten_one() {
    for preamble in ["yes", "no"] {
        let folder = Folder::new(&format!("collections-{preamble}"));
        let options = ["--aof-use-rdb-preamble", preamble];
        let server = serve(&folder, &options);
        let mut client = server.client();
        fill(&mut client);
        let expected = state(&mut client);
        drop(server);
        let server = serve(&folder, &options);
        let mut client = server.client();
        assert!(state(&mut client) == expected, "by its steps");
        client.line("BGREWRITEAOF").ignored();
        wait_for_rewrite(&mut client);
        client.line("RPUSH list:few behind").ignored();
        let expected = state(&mut client);
        drop(server);
        check(&folder);
        let server = serve(&folder, &options);
        assert!(state(&mut server.client()) == expected, "rewritten");
    }
}

/// Sends random changes of collections, of which none may be done twice, or left out.
fn change(client: &mut Client, random: &mut fastrand::Rng) {
    let key = |random: &mut fastrand::Rng, name: &str| format!("{name}:{}", random.u32(..40));
    let mut requests = Vec::new();
    for _ in 0..200 {
        let number = random.u32(..400).to_string();
        let line = match random.u32(..16) {
            0..2 => format!("HINCRBY {} {number} 1", key(random, "hash")),
            2 => format!("HDEL {} {number}", key(random, "hash")),
            3 => format!("RPUSH {} {number} {number}:more", key(random, "list")),
            4 => format!("LPUSH {} {number}", key(random, "list")),
            5 => format!("LPOP {} 2", key(random, "list")),
            6 => format!("LMOVE {} {} LEFT RIGHT", key(random, "list"), key(random, "list")),
            7 => format!("SADD {} {number} {number}:more", key(random, "set")),
            8 => format!("SPOP {}", key(random, "set")),
            9..11 => format!("ZINCRBY {} 1 {number}", key(random, "ranking")),
            11 => format!("ZPOPMIN {} 2", key(random, "ranking")),
            12 => format!("COPY {} {} REPLACE", key(random, "list"), key(random, "list")),
            13 => format!("RENAME {} {}", key(random, "ranking"), key(random, "ranking")),
            14 => format!("LTRIM {} 1 -2", key(random, "list")),
            _ => match random.u32(..20) {
                0 => "SWAPDB 0 1".to_owned(),
                1 => format!("DEL {}", key(random, "hash")),
                2 => format!("PEXPIRE {} 5", key(random, "set")),
                _ => format!("APPEND {} {number}", key(random, "text")),
            },
        };
        requests.extend(request(line.split(' ')));
    }
    client.send(&requests);
    (0..200).for_each(|_| client.reply().ignored());
}

#[test]
fn changes_during_a_rewrite_are_in_the_log_once() {
    for preamble in ["yes", "no"] {
        let folder = Folder::new(&format!("collections-rewriting-{preamble}"));
        let options = ["--aof-use-rdb-preamble", preamble, "--appendfsync", "no"];
        let server = serve(&folder, &options);
        let (mut client, mut random) = (server.client(), fastrand::Rng::with_seed(7));
        // Some of the collections are small, some large.
        let fill = "for i = 0, 39 do for j = 1, i * i do local e = tostring(j) \
                    redis.call('RPUSH', 'list:' .. i, e) redis.call('HSET', 'hash:' .. i, e, e) \
                    redis.call('SADD', 'set:' .. i, e) redis.call('ZADD', 'ranking:' .. i, j, e) end end";
        client.cmd(["EVAL", fill, "0"]).ignored();
        let mut during = 0;
        for _ in 0..2 {
            client.line("BGREWRITEAOF").ignored();
            change(&mut client, &mut random);
            while client.info("aof_rewrite_in_progress") == "1" {
                change(&mut client, &mut random);
                during += 1;
            }
        }
        wait_for_rewrite(&mut client);
        // What has expired is gone.
        thread::sleep(Duration::from_millis(10));
        let expected = state(&mut client);
        drop(server);
        let server = serve(&folder, &options);
        assert!(state(&mut server.client()) == expected, "preamble {preamble}, {during} times");
    }
}

marked!(needs_tools: redis_loads_collections_and_keyfast_loads_those_of_redis);
fn redis_loads_collections_and_keyfast_loads_those_of_redis() {
    let folder = Folder::new("collections-exchange");
    let options = ["--dir", &folder.file(""), "--save", ""];
    let server = Server::start_with(&options);
    let mut client = server.client();
    fill(&mut client);
    let expected = state(&mut client);
    client.line("SAVE").is_ok();
    drop(server);
    if let Some(mut check) = installed("redis-check-rdb") {
        let output = check.arg(folder.file("dump.rdb")).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let Some(redis) = Server::start_redis(&options) else { return };
    let mut client = redis.client();
    assert!(state(&mut client) == expected, "redis-server loads other collections");
    client.line("SAVE").is_ok();
    drop(redis);
    let server = Server::start_with(&options);
    assert!(state(&mut server.client()) == expected, "keyfast loads other collections");
}

#[test]
fn a_large_sorted_set_keeps_the_sign_of_a_zero_as_in_redis() {
    let folder = Folder::new("collections-zero");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    for number in 0..129 {
        client.cmd(["ZADD", "large", "5", &number.to_string()]).is(1);
    }
    client.line("ZADD large -0 c 0 b -0 a").is(3);
    client.line("ZADD small -0 c 0 b -0 a").is(3);
    let scored = |texts: [&str; 6]| Reply::Array(texts.map(Reply::from).into());
    let check = |client: &mut Client| {
        client.line("ZRANGE small 0 2 WITHSCORES").is(scored(["a", "0", "b", "0", "c", "0"]));
        client.line("ZRANGE large 0 2 WITHSCORES").is(scored(["a", "-0", "b", "0", "c", "-0"]));
        client.line("ZSCORE large a").is("-0");
        client.line("ZCOUNT large 0 0").is(3);
        client.line("ZCOUNT large -0 -0").is(3);
        client.line("ZCOUNT large (-0 4").is(0);
        client.line("ZRANK large b").is(1);
    };
    check(&mut client);
    // An equal score is no change, and a small set has one zero.
    client.line("ZADD large CH 0 a -0 b").is(0);
    check(&mut client);
    client.line("COPY large copy").is(1);
    client.line("ZREMRANGEBYRANK copy 3 -1").is(129);
    client.line("ZRANGE copy 0 -1 WITHSCORES").is(scored(["a", "-0", "b", "0", "c", "-0"]));
    client.line("ZRANGESTORE copy large 0 2").is(3);
    client.line("ZRANGE copy 0 -1 WITHSCORES").is(scored(["a", "0", "b", "0", "c", "0"]));
    client.line("ZINCRBY large 0 a").is("0");
    client.line("ZINCRBY large -5 5").is("0");
    client.line("ZADD large CH 7 a").is(1);
    client.line("ZADD large CH -0 a").is(1);
    client.line("ZREM large 5").is(1);
    check(&mut client);
    drop(server);
    let server = serve(&folder, &[]);
    let mut client = server.client();
    check(&mut client);
    client.line("BGREWRITEAOF").ignored();
    wait_for_rewrite(&mut client);
    let payload = client.line("DUMP large").reply();
    let Reply::Bulk(payload) = payload else { panic!("{payload}") };
    client.cmd([&b"RESTORE"[..], b"large", b"0", &payload, b"REPLACE"]).is_ok();
    check(&mut client);
    drop(server);
    check(&mut serve(&folder, &[]).client());
}

/// What the server has acknowledged to a worker: how many units it has written, and which elements it has
/// moved.
#[derive(Default)]
struct Acknowledged {
    units: i64,
    popped: Vec<String>,
}

marked!(needs_tools: nothing_acknowledged_is_lost_and_nothing_is_half_done_over_200_kills);
fn nothing_acknowledged_is_lost_and_nothing_is_half_done_over_200_kills() {
    const WRITERS: usize = 2;
    const READERS: usize = 2;
    let folder = Folder::new("collections-killed");
    let mut random = fastrand::Rng::with_seed(15);
    let mut units = [0_i64; WRITERS];
    let mut popped: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..=200 {
        let server = serve(&folder, &[]);
        let mut client = server.client();
        let mut queued = 0;
        for (writer, acknowledged) in units.iter_mut().enumerate() {
            let number = |reply: Reply| reply.to_string().trim_matches('"').parse::<i64>().unwrap_or(0);
            let count = number(client.cmd(["HGET", "counts", &writer.to_string()]).reply());
            let scored = client.cmd(["ZSCORE", "scores", &writer.to_string()]).reply();
            assert_eq!(count, number(scored), "round {round}: a unit was half done");
            assert!(count >= *acknowledged, "round {round}: {count} of {acknowledged} units");
            *acknowledged = count;
            queued += count;
        }
        // Each unit has queued one element, and each is there once: in the queue, or with those that were
        // moved.
        let mut there = client.line("LRANGE queue 0 -1").items();
        there.extend(client.line("LRANGE done 0 -1").items());
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        assert_eq!(there.len() as i64, queued, "round {round}");
        for element in popped.keys() {
            assert!(there.contains(element), "round {round}: {element} was moved, and is lost");
        }
        if round == 200 {
            break;
        }
        let pause = Duration::from_micros(random.u64(..12_000));
        let clients: Vec<Client> = (0..WRITERS + READERS).map(|_| server.client()).collect();
        let done = &AtomicUsize::new(0);
        let results: Vec<Acknowledged> = thread::scope(|scope| {
            let workers: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| {
                    let first = units.get(number).copied();
                    scope.spawn(move || work(client, number, first, done))
                })
                .collect();
            thread::sleep(pause);
            wait_until("some units are written", || done.load(Ordering::Relaxed) > 1);
            drop(server);
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        for (result, units) in results.iter().zip(units.iter_mut()) {
            *units = (*units).max(result.units);
        }
        for element in results.iter().flat_map(|result| &result.popped) {
            *popped.entry(element.clone()).or_default() += 1;
        }
        assert!(popped.values().all(|times| *times == 1), "an element was moved twice");
    }
    assert!(popped.len() > 100 && units.iter().all(|count| *count > 100), "{units:?}, {}", popped.len());
    check(&folder);
}

/// Writes units until the server is gone, or moves what others have queued.
fn work(mut client: Client, number: usize, first: Option<i64>, done: &AtomicUsize) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let worker = number.to_string();
    let is_script = number.is_multiple_of(2);
    for unit in first.unwrap_or(0) + 1.. {
        let element = format!("{worker}:{unit}");
        let requests = match first {
            Some(_) if is_script => request([
                "EVAL",
                "redis.call('LPUSH', 'queue', ARGV[2]) redis.call('ZINCRBY', 'scores', 1, ARGV[1]) \
                 return redis.call('HINCRBY', 'counts', ARGV[1], 1)",
                "0",
                &worker,
                &element,
            ]),
            Some(_) => [
                request(["MULTI"]),
                request(["LPUSH", "queue", &element]),
                request(["ZINCRBY", "scores", "1", &worker]),
                request(["HINCRBY", "counts", &worker, "1"]),
                request(["EXEC"]),
            ]
            .concat(),
            None => request(["BLMOVE", "queue", "done", "RIGHT", "LEFT", "0"]),
        };
        if client.try_send(&requests).is_err() {
            break;
        }
        let replies = if first.is_some() && !is_script { 5 } else { 1 };
        let last = (0..replies).map(|_| client.try_reply_bytes()).collect::<Result<Vec<_>, _>>();
        let Ok(last) = last else { break };
        match first {
            Some(_) => acknowledged.units = unit,
            None => {
                let reply = String::from_utf8_lossy(&last[0]).into_owned();
                let element = reply.split("\r\n").nth(1).unwrap_or_default();
                acknowledged.popped.push(format!("{element:?}"));
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    acknowledged
}

#[test]
fn a_large_collection_is_shared_until_it_changes_and_its_memory_comes_back() {
    let server = Server::start();
    let mut client = server.client();
    let fill = "for i = 1, 100 do local t = {} for j = 1, 2000 do t[#t + 1] = i * j \
                t[#t + 1] = 'member:' .. i .. ':' .. j end redis.call('ZADD', KEYS[1], unpack(t)) end";
    client.cmd(["EVAL", fill, "1", "large"]).ignored();
    client.line("ZCARD large").is(200_000);
    let used = |client: &mut Client| client.info("used_memory").parse::<u64>().unwrap();
    let large = used(&mut client);
    for copy in 0..20 {
        client.cmd(["COPY", "large", &format!("copy:{copy}")]).is(1);
    }
    assert!(used(&mut client) < large + large / 2, "copies share what they have in common");
    client.line("ZADD copy:0 0.5 first").is(1);
    client.line("ZRANGE copy:0 0 0").is(Reply::Array(vec![Reply::from("first")]));
    client.line("ZCARD copy:1").is(200_000);
    client.line("DEL large").is(1);
    client.line("FLUSHALL").is_ok();
    wait_until("the memory is given back", || used(&mut client) < large / 4);
}

marked!(also_redis: the_last_id_of_a_stream_is_not_set_below_an_entry_that_was_deleted);
fn the_last_id_of_a_stream_is_not_set_below_an_entry_that_was_deleted() {
    let mut client = Server::start().into_client();
    client.line("XADD s 5-1 f v").is("5-1");
    client.line("XADD s 8-5 f v").is("8-5");
    client.line("XDEL s 8-5").is(1);
    let below_deleted = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
    for id in ["8-3", "5-0"] {
        client.line(&format!("XSETID s {id}")).is_error(below_deleted);
    }
    client.line("XSETID s 8-5").is_ok();
    client.line("XADD s 9-1 f v").is("9-1");
    let below_last = "ERR The ID specified in XSETID is smaller than the target stream top item";
    client.line("XSETID s 9-0").is_error(below_last);
}

/// However large the parameters are: packed values are moved under a lock.
#[test]
fn a_packed_collection_has_at_most_a_mebibyte() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["hash-max-listpack-value", "set-max-listpack-value", "zset-max-listpack-value"] {
        client.line(&format!("CONFIG SET {name} 209715200")).is_ok();
    }
    const KEYS: [&str; 4] = ["hash", "set", "zset", "expiring"];
    const LARGE: [&str; 4] = ["hashtable", "hashtable", "skiplist", "hashtable"];
    // Eight of them are packed, eleven are not.
    let member = |number: usize| format!("{number}{}", "m".repeat(100_000));
    for number in 0..11 {
        client.cmd(["HSET", "hash", &number.to_string(), &member(number)]).is(1);
        client.cmd(["SADD", "set", &member(number), &format!("x{number}")]).is(2);
        client.cmd(["ZADD", "zset", &number.to_string(), &member(number)]).is(1);
        client.cmd(["HSET", "expiring", &number.to_string(), &member(number)]).is(1);
        client.cmd(["HPEXPIRE", "expiring", "3600000", "FIELDS", "1", &number.to_string()]).ignored();
        let expected = match number {
            7 => ["listpack", "listpack", "listpack", "listpackex"],
            10 => LARGE,
            _ => continue,
        };
        for (key, encoding) in KEYS.into_iter().zip(expected) {
            client.line(&format!("OBJECT ENCODING {key}")).is(encoding);
        }
    }
    for (key, encoding) in KEYS.into_iter().zip(LARGE) {
        let Reply::Bulk(payload) = client.line(&format!("DUMP {key}")).reply() else { panic!("{key}") };
        client.cmd([b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]).is_ok();
        client.line(&format!("OBJECT ENCODING {key}")).is(encoding);
    }
    client.line("SUNIONSTORE union set").is(22);
    client.line("OBJECT ENCODING union").is("hashtable");
    client.line("ZUNIONSTORE zunion 1 zset").is(11);
    client.line("OBJECT ENCODING zunion").is("skiplist");
    client.cmd(["HGET", "hash", "10"]).is(member(10).as_str());
    client.line("HLEN expiring").is(11);
}
