//! What is done to parts of long values comes back from the log: in transactions, in scripts, after kills.
//!
//! Values lie on both sides of the length from which a change of a part is logged as a step. With
//! `KEYFAST_TEST_ROUNDS` there are more rounds than a run of all tests has; with `KEYFAST_TEST_SEED`, which a
//! failure shows, they are the same again.

use std::fs;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use keyfast::internals::commands::all;
use keyfast::internals::commands::facts::Command;

use support::client::{Client, Reply, request, words};
use support::folder::Folder;
use support::log::{ALWAYS, State, check, increment, load, serve, state};
use support::replies::talk;
use support::server::{Server, wait_until};

/// The length up to which a value is logged as a whole.
const LONG: usize = 4096;

fn rounds(default: usize) -> usize {
    std::env::var("KEYFAST_TEST_ROUNDS").map_or(default, |rounds| rounds.parse().expect("a number"))
}

fn seed() -> u64 {
    let given = std::env::var("KEYFAST_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("KEYFAST_TEST_SEED={seed}");
    seed
}

/// One request, as its words.
type Words = Vec<String>;

const LIBRARY: &str = "#!lua name=tests\nredis.register_function('run', function(keys, arguments) \
                       for _, words in ipairs(cjson.decode(arguments[1])) do redis.pcall(unpack(words)) end \
                       end)";
const SCRIPT: &str = "for _, words in ipairs(cjson.decode(ARGV[1])) do redis.pcall(unpack(words)) end";

fn key(random: &mut Rng) -> String {
    format!("k{}", random.u8(..6))
}

fn text(random: &mut Rng, length: usize) -> String {
    std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
}

/// A length around the limit, mostly.
fn length(random: &mut Rng) -> usize {
    match random.u8(..8) {
        0 => random.usize(..20),
        1 => 2 * LONG + random.usize(..LONG),
        _ => LONG - 20 + random.usize(..40),
    }
}

/// A request that changes something.
fn step(random: &mut Rng) -> Words {
    let key = key(random);
    let database = random.u8(..4).to_string();
    let offset = random.usize(..LONG + 100);
    let kind = ["u8", "i5", "u63", "i64", "u1"][random.usize(..5)];
    let line = match random.u8(..32) {
        0..6 => {
            let bytes = random.usize(..30);
            return vec!["APPEND".into(), key, text(random, bytes)];
        }
        6..11 => {
            let bytes = 1 + random.usize(..30);
            return vec!["SETRANGE".into(), key, offset.to_string(), text(random, bytes)];
        }
        11..14 => format!("SETBIT {key} {} {}", offset * 8 + 3, random.u8(..2)),
        14..18 => {
            let overflow = ["WRAP", "SAT", "FAIL"][random.usize(..3)];
            let (by, to) = (random.i32(-300..300), random.i32(-20..300));
            format!(
                "BITFIELD {key} INCRBY {kind} {offset} {by} OVERFLOW {overflow} SET u8 #{offset} {to} INCRBY \
                 i8 {} 100 GET u8 0",
                offset * 8
            )
        }
        18..21 => {
            let bytes = length(random);
            let mut words = vec!["SET".into(), key, text(random, bytes)];
            match random.u8(..3) {
                0 => words.push("KEEPTTL".into()),
                1 => words.extend(["EX".into(), "10000".into()]),
                _ => {}
            }
            return words;
        }
        21 => format!("EXPIRE {key} {}", 5000 + random.u32(..1000)),
        22 => format!("PEXPIRE {key} {}", random.u8(1..40)),
        23 => format!("PERSIST {key}"),
        24 => format!("RENAME {key} k{}", random.u8(..6)),
        25 => format!("COPY {key} k{} DB {database} REPLACE", random.u8(..6)),
        26 => format!("MOVE {key} {database}"),
        27 => format!("SWAPDB {} {database}", random.u8(..4)),
        28 if random.u8(..4) == 0 => "FLUSHDB".into(),
        28 => format!("INCR n{key}"),
        29 => format!("GETEX {key} EXAT 99999999999"),
        30 => format!("DEL {key}"),
        _ => format!("SELECT {database}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Some of them as one, or one alone; as the bytes that a client sends, and how many replies there are.
fn unit(random: &mut Rng, sha: &str) -> (Vec<u8>, usize) {
    let count = 1 + random.usize(..8);
    let steps: Vec<Words> = std::iter::repeat_with(|| step(random)).take(count).collect();
    let select = request(["SELECT".to_owned(), random.u8(..4).to_string()]);
    let script = || {
        let words = |words: &Words| {
            format!("[{}]", words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(","))
        };
        format!("[{}]", steps.iter().map(words).collect::<Vec<_>>().join(","))
    };
    let (body, replies) = match random.u8(..8) {
        0..3 => (request(&steps[0]), 1),
        3..5 => {
            let inner: Vec<u8> = steps.iter().flat_map(request).collect();
            ([request(["MULTI"]), inner, request(["EXEC"])].concat(), count + 2)
        }
        5 => (request(["EVAL", SCRIPT, "0", &script()]), 1),
        6 => (request(["EVALSHA", sha, "0", &script()]), 1),
        _ => {
            let call = request(["FCALL", "run", "0", &script()]);
            ([request(["MULTI"]), request(&steps[0]), call, request(["EXEC"])].concat(), 4)
        }
    };
    ([select, body].concat(), replies + 1)
}

/// What does not expire soon. Keys that do are waited for: they could expire while they are looked at.
fn lasting(client: &mut Client) -> State {
    let soon = "for database = 0, 15 do redis.call('SELECT', database) \
                for _, key in ipairs(redis.call('KEYS', '*')) do \
                local left = redis.call('PTTL', key) \
                if left >= 0 and left < 1000 then return 1 end end end return 0";
    wait_until("keys have expired", || client.cmd(["EVAL", soon, "0"]).integer() == 0);
    state(client)
}

#[track_caller]
fn compare(found: &State, expected: &State, what: &str) {
    for (key, value) in expected {
        let shown = String::from_utf8_lossy(&key.1);
        let length = |entry: Option<&(Vec<u8>, i64)>| entry.map(|(value, at_ms)| (value.len(), *at_ms));
        let (here, there) = (found.get(key), Some(value));
        assert!(here == there, "{what}: {shown} in {}: {:?}, not {:?}", key.0, length(here), length(there));
    }
    assert_eq!(found.len(), expected.len(), "{what}: there is more than there was");
}

marked!(needs_tools: random_changes_around_the_limit_of_long_values_come_back);
fn random_changes_around_the_limit_of_long_values_come_back() {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let folder = Folder::new("replaying");
    let mut expected: Option<State> = None;
    let mut steps = 0;
    for round in 0..rounds(4) {
        // Every third time Redis goes on with the log, and every time it could.
        let redis = if round % 3 == 2 {
            Server::start_redis(&[&["--dir", &folder.file("")], ALWAYS].concat())
        } else {
            None
        };
        let by_redis = redis.is_some();
        let server = redis.unwrap_or_else(|| serve(&folder, &[]));
        let mut client = server.client();
        let what = format!("round {round}, seed {seed}, loaded by Redis: {by_redis}");
        if let Some(expected) = &expected {
            compare(&lasting(&mut client), expected, &what);
        }
        let sha = client.cmd(["SCRIPT", "LOAD", SCRIPT]).text();
        client.cmd(["FUNCTION", "LOAD", "REPLACE", LIBRARY]).is("tests");
        for _ in 0..60 {
            let (bytes, replies) = unit(&mut random, &sha);
            client.send(&bytes);
            (0..replies).for_each(|_| drop(client.reply()));
            steps += 1;
        }
        if round % 5 == 4 {
            client.line("BGREWRITEAOF").ignored();
        }
        expected = Some(lasting(&mut client));
        drop(server);
    }
    let mut client = serve(&folder, &["--aof-load-truncated", "no"]).into_client();
    compare(&lasting(&mut client), &expected.unwrap(), &format!("seed {seed}"));
    println!("{steps} units, {} keys at the end", client.line("DBSIZE").integer());
    drop(client);
    check(&folder);
}

marked!(needs_tools: a_change_of_a_long_value_in_a_transaction_does_not_keep_the_log_from_loading);
fn a_change_of_a_long_value_in_a_transaction_does_not_keep_the_log_from_loading() {
    let long = "v".repeat(5000);
    for line in ["APPEND k y", "SETRANGE k 10 y", "SETBIT k 80 1", "BITFIELD k SET u8 #10 1"] {
        let folder = Folder::new("replaying-multi");
        let server = serve(&folder, &[]);
        let mut client = server.client();
        client.cmd(["SET", "k", &long]).is_ok();
        client.line("MULTI").is_ok();
        client.line(line).is_simple("QUEUED");
        client.line("EXEC").ignored();
        client.line("SCRIPT FLUSH").is_ok();
        let sha =
            client.cmd(["SCRIPT", "LOAD", "return redis.call('APPEND', KEYS[1], redis.call('TIME')[2])"]);
        client.cmd(["EVALSHA", &sha.text(), "1", "k"]).ignored();
        let expected = state(&mut client);
        drop(server);
        let log = fs::read(increment(&folder, 1)).unwrap();
        assert!(log.len() < 5300, "{line} is logged as a step");
        let log = String::from_utf8_lossy(&log).to_lowercase();
        assert!(!log.contains("exec") && !log.contains("evalsha"), "and as no command of a client: {log}");
        assert!(
            state(&mut serve(&folder, &["--aof-load-truncated", "no"]).into_client()) == expected,
            "{line}"
        );
        if let Some(redis) = Server::start_redis(&[&["--dir", &folder.file("")], ALWAYS].concat()) {
            assert!(state(&mut redis.client()) == expected, "{line}, loaded by Redis");
        }
        check(&folder);
    }
}

#[test]
fn a_lone_exec_in_a_log_is_left_out() {
    let folder = Folder::new("replaying-exec");
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let log = [
        request(["SELECT", "0"]),
        request(["SET", "k", "before"]),
        request(["exec"]),
        request(["SET", "later", "1"]),
    ];
    fs::write(increment(&folder, 1), log.concat()).unwrap();
    let server = serve(&folder, &["--aof-load-truncated", "no"]);
    server.wait_for_output("EXEC was left out, as it has no effect there");
    let mut client = server.client();
    client.line("GET k").is("before");
    client.line("GET later").is("1");
}

marked!(also_redis: a_lower_limit_of_values_does_not_shorten_those_of_the_log);
fn a_lower_limit_of_values_does_not_shorten_those_of_the_log() {
    let folder = Folder::new("replaying-limit");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    client.cmd(["SET", "k", &"v".repeat(5000)]).is_ok();
    client.line("SETRANGE k 2000000 x").is(2_000_001);
    drop(server);
    let mut client = serve(&folder, &["--proto-max-bulk-len", "1mb"]).into_client();
    client.line("STRLEN k").is(2_000_001);
    client.line("APPEND k x").is_error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
}

// Redis 8.6.3 is not asked: on a busy machine it sometimes loads a value and a count of different
// transactions.
marked!(needs_tools: an_acknowledged_change_of_a_long_value_survives_kills);
fn an_acknowledged_change_of_a_long_value_survives_kills() {
    const CLIENTS: usize = 3;
    let rounds = rounds(20);
    let folder = Folder::new("replaying-killed");
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut acknowledged = [0; CLIENTS];
    for round in 0..=rounds {
        let server = serve(&folder, &[]);
        let mut client = server.client();
        for (number, acknowledged) in acknowledged.iter_mut().enumerate() {
            let counted = client.cmd(["GET", &format!("count:{number}")]).reply();
            let count = if let Reply::Bulk(text) = &counted {
                String::from_utf8_lossy(text).parse().unwrap()
            } else {
                0
            };
            assert!(count >= *acknowledged, "round {round}, seed {seed}: {count} of {acknowledged}");
            if count > 0 {
                let value = client.cmd(["GET", &format!("long:{number}")]).text();
                assert!(
                    value == long_value(count),
                    "round {round}, seed {seed}: not the value after {count}"
                );
            }
            *acknowledged = count;
        }
        if round == rounds {
            break;
        }
        let pause = Duration::from_micros(random.u64(..30_000));
        let clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        thread::scope(|scope| {
            let workers: Vec<_> = clients
                .into_iter()
                .zip(acknowledged)
                .enumerate()
                .map(|(number, (client, from))| scope.spawn(move || go_on(client, number, from)))
                .collect();
            thread::sleep(pause);
            drop(server);
            for (worker, acknowledged) in workers.into_iter().zip(&mut acknowledged) {
                *acknowledged = worker.join().unwrap();
            }
        });
    }
    println!("{acknowledged:?} transactions of three changes were acknowledged, {rounds} kills");
    assert!(acknowledged.iter().sum::<usize>() > rounds);
    check(&folder);
}

/// What a value is after so many changes.
fn long_value(count: usize) -> String {
    let tail: String = (1..=count).map(|number| format!("{number:08}")).collect();
    format!("{count:08}{}{tail}", "v".repeat(LONG))
}

/// Changes a long value until the server is gone; returns how often that was acknowledged, `from` included.
fn go_on(mut client: Client, number: usize, from: usize) -> usize {
    let (long, count) = (format!("long:{number}"), format!("count:{number}"));
    for next in from + 1.. {
        let begin = match next {
            1 => request(["SETNX", &long, &format!("{:08}{}", 0, "v".repeat(LONG))]),
            _ => request(["PING"]),
        };
        let unit = [
            begin,
            request(["MULTI"]),
            request(["APPEND", &long, &format!("{next:08}")]),
            request(["SETRANGE", &long, "0", &format!("{next:08}")]),
            request(["INCR", &count]),
            request(["EXEC"]),
        ];
        if client.try_send(&unit.concat()).is_err() {
            return next - 1;
        }
        for _ in 0..unit.len() {
            if client.try_reply_bytes().is_err() {
                return next - 1;
            }
        }
    }
    unreachable!("a server is killed in time")
}

#[test]
fn what_was_not_on_the_disk_when_the_power_failed_is_missing_by_whole_units() {
    let folder = Folder::new("replaying-power");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    client.cmd(["SET", "k", &"v".repeat(LONG + 100)]).is_ok();
    let path = increment(&folder, 1);
    let durable = fs::metadata(&path).unwrap().len();
    let mut marks = vec![(durable, String::new(), 0)];
    for (lines, tail, count) in [
        (&["MULTI", "APPEND k ab", "SETRANGE k 0 v", "INCR n", "EXPIRE k 10000", "EXEC"][..], "ab", 1),
        (&["EVAL \"redis.call('append','k','cd') redis.call('incr','n')\" 0"], "abcd", 2),
        (&["APPEND k ef"], "abcdef", 2),
    ] {
        lines.iter().for_each(|line| drop(client.line(line)));
        marks.push((fs::metadata(&path).unwrap().len(), tail.to_owned(), count));
    }
    drop(server);
    let log = fs::read(&path).unwrap();
    for length in durable as usize..=log.len() {
        fs::write(&path, &log[..length]).unwrap();
        let (whole, tail, count) = marks.iter().rfind(|(mark, ..)| *mark <= length as u64).unwrap();
        let found = load(&folder, "yes").unwrap();
        assert!(found[&(0, b"k".to_vec())].0.ends_with(format!("v{tail}").as_bytes()), "{length} bytes");
        let counted = found.get(&(0, b"n".to_vec())).map(|(count, _)| count.clone());
        assert_eq!(counted, (*count > 0).then(|| count.to_string().into_bytes()), "{length} bytes");
        let left = fs::metadata(&path).unwrap().len();
        assert!(left >= *whole && left <= length as u64);
    }
}

/// A server that has loaded a log of these requests, with one behind them.
fn loaded(test: &str, requests: &[Vec<u8>]) -> (Folder, Server) {
    let folder = Folder::new(test);
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let (begin, end) = (request(["SELECT", "0"]), [request(["SELECT", "0"]), request(["SET", "after", "1"])]);
    fs::write(increment(&folder, 1), [&begin[..], &requests.concat(), &end.concat()].concat()).unwrap();
    let server = serve(&folder, &[]);
    server.client().line("GET after").is("1");
    (folder, server)
}

/// A request of a command, with as many arguments as it needs.
fn shortest(command: &Command) -> Vec<u8> {
    let name = command.name.split('|').map(str::to_uppercase);
    let arguments = usize::try_from(command.arity().number().abs()).unwrap();
    request(name.chain(std::iter::repeat("k".to_owned())).take(arguments).collect::<Vec<_>>())
}

// Not beside a real server: it loads each of 412 commands, each in a log of its own. In one log some of them
// end it, stop it for ever or crash it (8.6.3: ACL DELUSER).
#[test]
fn a_log_may_have_any_command() {
    let mut requests = vec![request(["SET", "k", "v"])];
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        let is_unit = ["multi", "exec", "discard", "select"].contains(&command.name);
        if is_unit || !command.subcommands.is_empty() {
            continue;
        }
        requests.push(shortest(command));
        let lines = command.example.iter().map(|(line, _)| words(line));
        requests.extend(lines.filter(|words| words[0] != "MULTI" && words[0] != "SELECT").map(request));
    }
    assert!(requests.len() > 300);
    drop(loaded("replaying-all", &requests));
}

marked!(also_redis: requests_of_a_log_do_what_they_do_in_redis);
fn requests_of_a_log_do_what_they_do_in_redis() {
    let digest = "c9d07944a0a61800364dcc8a2cb8f35fc83c6d3e";
    let lines = [
        // Up to 6.2 Redis logged these.
        "SCRIPT LOAD \"return redis.call('SET','s','1')\"",
        &format!("EVALSHA {digest} 0"),
        "script flush",
        &format!("EVALSHA {digest} 0"),
        "FUNCTION LOAD \"#!lua name=a\nno function\"",
        "FUNCTION RESTORE damaged",
        "RPUSH list a b c",
        "BLPOP list nothing 0",
        "BLPOP nothing 0",
        "XREAD BLOCK 0 STREAMS nothing $",
        "LPUSH s wrong",
        "CLIENT SETNAME me",
        "SUBSCRIBE channel",
        "PUBLISH channel message",
        "WAIT 1 0",
        "AUTH stranger nothing",
        "SHUTDOWN",
        "PING",
        "SELECT 3",
        "SET in-three 1",
        "RESET",
        "SET in-zero 1",
    ];
    let requests: Vec<Vec<u8>> = lines.iter().map(|line| request(words(line))).collect();
    let (_folder, server) = loaded("replaying-others", &requests);
    talk(
        &mut server.client(),
        &[
            ("GET s", "\"1\""),
            ("LRANGE list 0 -1", "[\"b\", \"c\"]"),
            ("RPUSH nothing x", "(integer) 1"),
            ("LRANGE nothing 0 -1", "[\"x\"]"),
            ("GET in-zero", "\"1\""),
            (&format!("SCRIPT EXISTS {digest}"), "[(integer) 0]"),
            ("FUNCTION LIST", "[]"),
            ("SELECT 3", "OK"),
            ("KEYS *", "[\"in-three\"]"),
        ],
    );
}

#[test]
fn what_has_no_effect_in_a_log_is_named_once() {
    let requests =
        [["CONFIG", "SET", "maxmemory", "1mb"], ["CONFIG", "SET", "maxmemory", "2mb"]].map(request);
    let (_folder, server) = loaded("replaying-named", &requests);
    talk(&mut server.client(), &[("CONFIG GET maxmemory", "[\"maxmemory\", \"0\"]")]);
    assert_eq!(server.output().matches("CONFIG SET was left out, as it has no effect there").count(), 1);
}
