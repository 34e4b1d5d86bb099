//! Strings around the length from which they are shared instead of copied, in every command that reads or
//! changes them: alone, in transactions, in scripts, while snapshots are written, and after a restart.
//!
//! `KEYFAST_TEST_SEED`, which a failure shows, makes the same run again.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::serve;
use support::server::Server;

/// The length from which a string is shared.
const LONG: usize = 256 << 10;
const KEYS: [&str; 4] = ["k0", "k1", "k2", "k3"];
const SCRIPT: &str = "local replies = {} for _, words in ipairs(cjson.decode(ARGV[1])) do \
                      replies[#replies + 1] = redis.call(unpack(words)) end return replies";

/// The strings as they should be.
type Model = BTreeMap<String, String>;

fn text(random: &mut Rng, length: usize) -> String {
    let piece: String = std::iter::repeat_with(|| random.alphanumeric()).take(61).collect();
    piece.chars().cycle().take(length).collect()
}

fn length(random: &mut Rng) -> usize {
    match random.u8(..8) {
        0 => random.usize(..20),
        1 => 2 * LONG + random.usize(..LONG),
        _ => LONG - 20 + random.usize(..40),
    }
}

fn bulk(text: Option<String>) -> Reply {
    text.map_or(Reply::Null, |text| Reply::Bulk(text.into_bytes()))
}

fn int(number: usize) -> Reply {
    Reply::Integer(number as i64)
}

/// Writes `part` into the string of a key at an offset.
fn overwrite(model: &mut Model, key: &str, offset: usize, part: &str) -> usize {
    let value = model.entry(key.to_owned()).or_default();
    let missing = (offset + part.len()).saturating_sub(value.len());
    value.push_str(&"\0".repeat(missing));
    value.replace_range(offset..offset + part.len(), part);
    value.len()
}

/// A request, and the reply that it should get.
fn step(random: &mut Rng, model: &mut Model) -> (Vec<String>, Reply) {
    let mut key = || KEYS[random.usize(..4)].to_owned();
    let (one, other) = (key(), key());
    let ok = || Reply::Simple("OK".into());
    let bytes = length(random);
    let new = text(random, bytes);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match random.u8(..17) {
        0 => (words(&format!("GET {one}")), bulk(model.get(&one).cloned())),
        1 => {
            let all = KEYS.iter().map(|key| bulk(model.get(*key).cloned())).collect();
            (words("MGET k0 k1 k2 k3"), Reply::Array(all))
        }
        2 => (words(&format!("GETEX {one} PERSIST")), bulk(model.get(&one).cloned())),
        3 => (words(&format!("GETDEL {one}")), bulk(model.remove(&one))),
        4 => (words(&format!("GETSET {one} {new}")), bulk(model.insert(one, new))),
        5 => (words(&format!("SET {one} {new} GET")), bulk(model.insert(one, new))),
        6 | 7 => {
            model.insert(one.clone(), new.clone());
            (words(&format!("SET {one} {new}")), ok())
        }
        8 => {
            let is_new = !model.contains_key(&one);
            model.entry(one.clone()).or_insert_with(|| new.clone());
            (words(&format!("SETNX {one} {new}")), int(usize::from(is_new)))
        }
        9 | 10 => {
            let part = text(random, 1 + bytes % 50);
            let offset = model.get(&one).map_or(0, String::len);
            let length = overwrite(model, &one, offset, &part);
            (words(&format!("APPEND {one} {part}")), int(length))
        }
        11 | 12 => {
            let (part, offset) = (text(random, 1 + bytes % 50), random.usize(..LONG + 100));
            let length = overwrite(model, &one, offset, &part);
            (words(&format!("SETRANGE {one} {offset} {part}")), int(length))
        }
        13 => {
            let (start, end) = (random.usize(..50), LONG - 30 + random.usize(..60));
            let part = model.get(&one).map_or("", |value| {
                value.get(start.min(value.len())..value.len().min(end + 1)).unwrap_or_default()
            });
            (words(&format!("GETRANGE {one} {start} {end}")), Reply::Bulk(part.into()))
        }
        14 => {
            let length = model.get(&one).map_or(0, String::len);
            (words(&format!("STRLEN {one}")), int(length))
        }
        _ if one == other || !model.contains_key(&one) => {
            (words(&format!("EXISTS {one}")), int(usize::from(model.contains_key(&one))))
        }
        15 => {
            model.insert(other.clone(), model[&one].clone());
            (words(&format!("COPY {one} {other} REPLACE")), int(1))
        }
        _ => {
            let value = model.remove(&one).unwrap_or_default();
            model.insert(other.clone(), value);
            (words(&format!("RENAME {one} {other}")), ok())
        }
    }
}

#[track_caller]
fn check(client: &mut Client, model: &Model, what: &str) {
    for key in KEYS {
        let found = client.cmd(["GET", key]).reply();
        assert!(found == bulk(model.get(key).cloned()), "{key} is another string {what}");
    }
}

/// A script gets OK as a status, and a null as false, which would end its table: its steps only count.
fn run(client: &mut Client, random: &mut Rng, model: &mut Model, seed: u64) {
    let count = 1 + random.usize(..5);
    let steps: Vec<_> = std::iter::repeat_with(|| step(random, model)).take(count).collect();
    let sent: Vec<u8> = steps.iter().flat_map(|(words, _)| request(words)).collect();
    let name = |words: &[String]| format!("{} {}", words[0], words[1]);
    match random.u8(..3) {
        0 => {
            client.send(&sent);
            for (words, expected) in &steps {
                assert!(client.reply().reply() == *expected, "{}, seed {seed}", name(words));
            }
        }
        1 => {
            client.send(&[request(["MULTI"]), sent, request(["EXEC"])].concat());
            (0..=steps.len()).for_each(|_| drop(client.reply()));
            let found = client.reply().items();
            assert_eq!(found.len(), steps.len(), "seed {seed}");
            for ((words, expected), found) in steps.iter().zip(found) {
                assert!(found == *expected, "{} in EXEC, seed {seed}", name(words));
            }
        }
        _ => {
            let words = |(words, _): &(Vec<String>, Reply)| format!("[\"{}\"]", words.join("\",\""));
            let all = format!("[{}]", steps.iter().map(words).collect::<Vec<_>>().join(","));
            let script = ["EVAL", SCRIPT, "4", KEYS[0], KEYS[1], KEYS[2], KEYS[3], &all];
            let found = client.cmd(script).items();
            assert_eq!(found.len(), steps.len(), "seed {seed}");
            for ((words, expected), found) in steps.iter().zip(found) {
                assert!(found == *expected, "{} in a script, seed {seed}", name(words));
            }
        }
    }
}

marked!(needs_tools: strings_around_the_length_from_which_they_are_shared_are_what_they_should_be);
fn strings_around_the_length_from_which_they_are_shared_are_what_they_should_be() {
    let given = std::env::var("KEYFAST_TEST_SEED").ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("KEYFAST_TEST_SEED={seed}");
    let (mut random, mut model) = (Rng::with_seed(seed), Model::new());
    let folder = Folder::new("long-texts");
    for round in 0..3 {
        let server = serve(&folder, &["--aof-use-rdb-preamble", ["yes", "no"][round % 2]]);
        let mut client = server.client();
        check(&mut client, &model, &format!("after restart {round}, seed {seed}"));
        for number in 0..40 {
            if number % 10 == 5 {
                // One is still running at times.
                client.line(["BGSAVE", "BGREWRITEAOF"][number / 10 % 2]).ignored();
            }
            run(&mut client, &mut random, &mut model, seed);
        }
        check(&mut client, &model, &format!("in round {round}, seed {seed}"));
    }
    if let Some(redis) = Server::start_redis(&["--dir", &folder.file(""), "--appendonly", "yes"]) {
        check(&mut redis.client(), &model, &format!("in Redis, seed {seed}"));
    }
}

#[test]
fn a_copy_of_a_long_string_costs_no_memory_until_one_of_the_two_changes() {
    // The client's own buffers hold the string for a while, too: many copies show more than one.
    const COPIES: usize = 20;
    let mut client = Server::start().into_client();
    let used = |client: &mut Client| client.info("used_memory").parse::<usize>().expect("a number");
    client.cmd(["SET", "k", &"v".repeat(4 * LONG)]).is_ok();
    let before = used(&mut client);
    for number in 0..COPIES {
        client.line(&format!("COPY k copy{number}")).is(1);
    }
    assert!(used(&mut client) < before + COPIES * LONG, "copies share");
    for number in 0..COPIES {
        client.line(&format!("SETRANGE copy{number} 3 x")).is(4 * LONG as i64);
    }
    assert!(used(&mut client) > before + COPIES * 3 * LONG, "changed ones have bytes of their own");
    client.line("GETRANGE k 2 5").is("vvvv");
    client.line("GETRANGE copy0 2 5").is("vxvv");
    client.line("OBJECT ENCODING k").is("raw");
    client.line("TYPE k").is_simple("string");
    client.line("LPUSH k x").is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
}

/// Changes a part of a long string in a thread of its own. Returns how long that took, and the longest time
/// for which another client of the same key waited.
fn change_beside(client: &mut Client, other: &mut Client, requests: &[&str]) -> (Duration, Duration) {
    let sent: Vec<u8> = requests.iter().flat_map(|line| request(line.split(' '))).collect();
    thread::scope(|scope| {
        let change = scope.spawn(move || {
            let begun = Instant::now();
            client.send(&sent);
            requests.iter().for_each(|_| client.reply().ignored());
            begun.elapsed()
        });
        let mut longest = Duration::ZERO;
        while !change.is_finished() {
            let begun = Instant::now();
            other.line("STRLEN copy").ignored();
            longest = longest.max(begun.elapsed());
        }
        (change.join().expect("the client gets its replies"), longest)
    })
}

#[test]
fn no_other_client_waits_while_a_shared_string_is_copied_for_a_change() {
    let folder = Folder::new("long-texts-waiting");
    for options in [&[][..], &["--appendonly", "yes"]] {
        no_other_client_waits_for_changes(&folder.serve(options));
    }
}

fn no_other_client_waits_for_changes(server: &Server) {
    const BYTES: usize = 64 << 20;
    let (mut client, mut other) = (server.client(), server.client());
    client.cmd(["SET", "k", &"v".repeat(BYTES)]).is_ok();
    for requests in [
        &["SETRANGE copy 3 x"][..],
        &["APPEND copy x"],
        &["SETBIT copy 24 1"],
        &["BITFIELD copy SET u8 24 120"],
        &["MULTI", "SETRANGE copy 3 x", "EXEC"],
    ] {
        // A busy machine delays each client at times: one round of many has to be quick.
        let mut rounds = (0..30).map(|_| {
            client.line("COPY k copy REPLACE").is(1);
            change_beside(&mut client, &mut other, requests)
        });
        let is_quick = |(took, longest): &(Duration, Duration)| *longest * 3 < *took;
        assert!(rounds.any(|round| is_quick(&round)), "the other client waits for {requests:?}");
    }
    client.line("GETRANGE k 2 5").is("vvvv");
    client.line("GETRANGE copy 2 5").is("vxvv");
}

#[test]
fn no_change_of_a_shared_string_is_lost() {
    const CHANGES: usize = 200;
    let server = Server::start();
    server.client().cmd(["SET", "k", &"v".repeat(LONG)]).is_ok();
    let lengths: BTreeSet<i64> = thread::scope(|scope| {
        let append = |mut client: Client| {
            let append = move |_| {
                client.line("COPY k copy REPLACE").is(1);
                client.line("APPEND k x").integer()
            };
            scope.spawn(move || (0..CHANGES).map(append).collect::<Vec<_>>())
        };
        let clients: Vec<_> = (0..4).map(|_| append(server.client())).collect();
        clients.into_iter().flat_map(|client| client.join().expect("all are answered")).collect()
    });
    let all = LONG as i64 + 1..=(LONG + 4 * CHANGES) as i64;
    assert!(lengths.into_iter().eq(all), "each client has seen the changes of all others");
}

#[test]
fn zeros_that_fill_up_a_string_take_no_time_and_no_memory_until_they_are_used() {
    const BYTES: usize = 256 << 20;
    let mut client = Server::start().into_client();
    let resident = |client: &mut Client| client.info("used_memory_rss").parse::<usize>().expect("a number");
    let before = resident(&mut client);
    client.line(&format!("SETBIT new {} 1", 8 * BYTES - 1)).is(0);
    client.cmd(["SET", "long", &"v".repeat(LONG)]).is_ok();
    client.line(&format!("SETRANGE long {} x", BYTES - 1)).is(BYTES as i64);
    assert!(resident(&mut client) < before + BYTES / 4, "the system has not given the memory yet");
    client.line(&format!("GETRANGE long {} {}", LONG - 1, LONG)).is("v\0");
    client.line(&format!("GETRANGE long {} -1", BYTES - 2)).is("\0x");
    client.line(&format!("GETRANGE new {} -1", BYTES - 2)).is("\0\u{1}");
}
