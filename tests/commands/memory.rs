//! What counts as memory in use, who has to go when there is too little, and what is given back.

use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, request};
use support::server::{PATIENCE, Server, wait_until};

fn used(client: &mut Client) -> usize {
    client.info("used_memory").parse().unwrap()
}

fn evicted(client: &mut Client) -> u64 {
    client.info("evicted_keys").parse().unwrap()
}

/// Sets keys without waiting for each.
fn fill(client: &mut Client, prefix: &str, count: usize, value: &str) {
    for start in (0..count).step_by(1000) {
        let end = count.min(start + 1000);
        let requests: Vec<u8> =
            (start..end).flat_map(|number| request(["SET", &format!("{prefix}:{number}"), value])).collect();
        client.send(&requests);
        (start..end).for_each(|_| client.reply().is_ok());
    }
}

/// A server with this room for keys, which has just evicted one; its limit, and how many keys were written.
fn filled_room(policy: &str, room_bytes: usize) -> (Server, Client, usize, i64) {
    let server = Server::start();
    let mut client = server.client();
    // What a command takes when it comes for the first time belongs to no key.
    client.line("SET first value EX 1000").is_ok();
    client.line("FLUSHALL").is_ok();
    let limit = used(&mut client) + room_bytes;
    client.line(&format!("CONFIG SET maxmemory {limit} maxmemory-policy {policy}")).is_ok();
    let mut keys = 0;
    while evicted(&mut client) == 0 {
        client.line(&format!("SET key:{keys} x EX 10000")).is_ok();
        keys += 1;
    }
    (server, client, limit, keys)
}

#[test]
fn a_small_room_stays_full_under_every_policy() {
    const ROOM_BYTES: usize = 100 << 10;
    for policy in [
        "allkeys-random",
        "allkeys-lru",
        "allkeys-lfu",
        "volatile-lru",
        "volatile-ttl",
        "allkeys-lrm",
        "volatile-lrm",
    ] {
        // A thread that the server starts on a busy machine takes memory once, out of this room.
        let (_server, mut client, limit, keys) = (0..4)
            .map(|_| filled_room(policy, ROOM_BYTES))
            .find(|(.., keys)| *keys > 400)
            .unwrap_or_else(|| panic!("few keys under {policy}"));
        for number in 0..2 * keys {
            client.line(&format!("SET another:{number} x EX 10000")).is_ok();
        }
        let left = client.line("DBSIZE").integer();
        assert!(left > keys / 3, "{left} of {keys} keys left under {policy}");
        let used = used(&mut client);
        assert!(used < limit + (4 << 10), "{used} used of {limit} under {policy}");
    }
}

#[test]
fn what_a_command_takes_for_a_moment_costs_others_no_keys() {
    let server = Server::start_with(&["--io-threads", "2"]);
    let (mut busy, mut client) = (server.client(), server.client());
    let (one, another) = ("ab".repeat(5000), "cd".repeat(5000));
    busy.cmd(["MSET", "one", &one, "another", &another]).is_ok();
    busy.line("LCS one another LEN").is(0);
    let script = "local t = {} for i = 1, 300000 do t[i] = i .. '' end return #t";
    busy.cmd(["EVAL", script, "0"]).is(300_000);
    fill(&mut client, "key", 2000, "value");
    let limit = used(&mut client) + (2 << 20);
    client.line(&format!("CONFIG SET maxmemory {limit} maxmemory-policy allkeys-random")).is_ok();
    // Each takes several times the room that is left, for as long as it runs.
    let requests = [request(["LCS", "one", "another"]), request(["EVAL", script, "0"])].concat();
    for _ in 0..3 {
        busy.send(&requests);
        for number in 0..300 {
            client.line(&format!("SET other:{number} value")).is_ok();
        }
        busy.reply().is("");
        busy.reply().is(300_000);
    }
    assert_eq!(evicted(&mut client), 0);
}

#[test]
fn a_lowered_limit_is_kept_although_no_command_comes() {
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    fill(&mut client, "key", 20_000, &"v".repeat(100));
    client.line("CONFIG SET notify-keyspace-events Ee maxmemory-policy allkeys-random").is_ok();
    listener.line("SUBSCRIBE __keyevent@0__:evicted").ignored();
    let limit = used(&mut client) - (1 << 20);
    client.line(&format!("CONFIG SET maxmemory {limit}")).is_ok();
    // Keys take less than 256 bytes each.
    for _ in 0..(1 << 20) / 256 {
        assert_eq!(listener.reply().items().len(), 3);
    }
}

#[test]
fn a_policy_that_frees_nothing_refuses_only_what_needs_memory() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client, "key", 1000, "value");
    client.line("CONFIG SET maxmemory 1").is_ok();
    client.line("SET key:1 v").is_error("OOM command not allowed when used memory > 'maxmemory'.");
    client.line("GET key:1").is("value");
    client.line("DEL key:1").is(1);
    assert_eq!(evicted(&mut client), 0);
}

/// Waits until the system holds no more than so many bytes for a server.
fn gives_back(server: &Server, most_bytes: usize) {
    let deadline = Instant::now() + PATIENCE;
    while server.resident_bytes() > most_bytes {
        assert!(Instant::now() < deadline, "{} of {most_bytes}", server.resident_bytes());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn memory_is_given_back_after_all_keys_are_gone() {
    const KEYS: usize = 200_000;
    for last in ["FLUSHALL", "FLUSHALL ASYNC", "DEL"] {
        let server = Server::start();
        let mut client = server.client();
        fill(&mut client, "warm", 1000, "value");
        let before = server.resident_bytes();
        fill(&mut client, "key", KEYS, &"v".repeat(200));
        assert!(server.resident_bytes() > before + (40 << 20));
        // One that stays lies somewhere between the others.
        match last {
            "DEL" => {
                for start in (0..KEYS).step_by(1000) {
                    let keys = (start..start + 1000).map(|number| format!("key:{number}"));
                    client.cmd(["DEL".to_owned()].into_iter().chain(keys)).is(1000);
                }
            }
            _ => client.line(last).is_ok(),
        }
        gives_back(&server, before + (16 << 20));
    }
}

#[test]
fn memory_is_given_back_after_a_command_that_took_much() {
    let server = Server::start();
    let mut client = server.client();
    fill(&mut client, "key", 10_000, "value");
    let before = server.resident_bytes();
    let value = "v".repeat(1 << 20);
    for _ in 0..3 {
        let pairs = (0..60).flat_map(|number| [format!("large:{number}"), value.clone()]);
        client.cmd(["MSET".to_owned()].into_iter().chain(pairs)).is_ok();
        client
            .cmd(["DEL".to_owned()].into_iter().chain((0..60).map(|number| format!("large:{number}"))))
            .is(60);
    }
    gives_back(&server, before + (16 << 20));
}

/// Bytes of memory that a client takes, as CLIENT LIST shows them.
fn bytes_of(other: &mut Client, id: i64, field: &str) -> usize {
    let line = other.line(&format!("CLIENT LIST ID {id}")).text();
    let field = line.split(' ').find_map(|part| part.strip_prefix(field)?.strip_prefix('='));
    field.expect("CLIENT LIST has the field").parse().expect("a number")
}

fn watch(count: usize) -> Vec<u8> {
    request(["WATCH".to_owned()].into_iter().chain((0..count).map(|number| format!("watched:{number}"))))
}

#[test]
fn what_a_client_watches_and_tracks_belongs_to_it() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    let empty = bytes_of(&mut other, id, "tot-mem");
    client.send(&watch(10_000));
    client.reply().is_ok();
    let watching = bytes_of(&mut other, id, "multi-mem");
    assert!((1_000_000..10_000_000).contains(&watching), "{watching}");
    assert!(bytes_of(&mut other, id, "tot-mem") >= empty + watching);
    client.line("UNWATCH").is_ok();
    assert_eq!(bytes_of(&mut other, id, "tot-mem"), empty);
    client.line("HELLO 3").ignored();
    let prefixes = (0..1000).flat_map(|number| ["PREFIX".to_owned(), format!("{number:06}")]);
    let tracking = ["CLIENT", "TRACKING", "ON", "BCAST"].map(str::to_owned).into_iter().chain(prefixes);
    client.cmd(tracking).is_ok();
    assert!(bytes_of(&mut other, id, "tot-mem") >= empty + 100_000);
    client.line("CLIENT TRACKING OFF").is_ok();
    assert_eq!(bytes_of(&mut other, id, "tot-mem"), empty);
}

#[test]
fn a_database_without_keys_takes_no_memory_however_they_went() {
    let server = Server::start();
    let (mut client, mut asking) = (server.client(), server.client());
    fill(&mut client, "key", 1000, "v");
    client.line("FLUSHALL").is_ok();
    let before = used(&mut asking);
    for database in 1..16 {
        client.cmd(["SELECT", &database.to_string()]).is_ok();
        fill(&mut client, "key", 1000, "v");
        let all = |command: &str, rest: &str| -> Vec<u8> {
            (0..1000).flat_map(|number| request(format!("{command}:{number}{rest}").split(' '))).collect()
        };
        match database % 5 {
            0 => client.line("FLUSHDB").is_ok(),
            1 => {
                client.line(&format!("SWAPDB 0 {database}")).is_ok();
                server.client().line("FLUSHDB").is_ok();
            }
            other => {
                client.send(&match other {
                    2 => all("DEL key", ""),
                    3 => all("PEXPIRE key", " 1"),
                    _ => all("MOVE key", " 0"),
                });
                (0..1000).for_each(|_| client.reply().is(1));
                server.client().line("FLUSHDB").is_ok();
            }
        }
        // Keys that are not there leave nothing either.
        client.send(&all("EXPIRE none", " 100"));
        (0..1000).for_each(|_| client.reply().is(0));
    }
    // What threads keep for their clients may have grown.
    wait_until("all is given back", || used(&mut asking) < before + (400 << 10));
}

#[test]
fn each_database_is_counted_whatever_others_have() {
    let mut client = Server::start().into_client();
    for database in [9, 3, 14] {
        client.cmd(["SELECT", &database.to_string()]).is_ok();
        fill(&mut client, "key", 10, "v");
    }
    let counted = |client: &mut Client| {
        let text = client.line("INFO keyspace").text();
        text.lines()
            .filter_map(|line| line.split_once(":keys=10,"))
            .map(|(name, _)| name.to_owned())
            .collect()
    };
    let databases: Vec<String> = counted(&mut client);
    assert_eq!(databases, ["db3", "db9", "db14"]);
    client.line("SWAPDB 9 0").is_ok();
    client.line("FLUSHDB").is_ok();
    let databases: Vec<String> = counted(&mut client);
    assert_eq!(databases, ["db0", "db3"]);
}

#[test]
fn keys_stay_where_only_clients_take_too_much() {
    const KEYS: usize = 5000;
    let limits = ["--maxmemory", "14mb", "--maxmemory-clients", "3mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start_with(&limits);
    let mut client = server.client();
    fill(&mut client, "key", KEYS, &"v".repeat(800));
    assert_eq!(evicted(&mut client), 0, "all of them fit");
    let mset = ["MSET".to_owned()].into_iter();
    let mset = request(mset.chain((0..4000).flat_map(|number| [format!("k{number}"), "v".repeat(2000)])));
    for round in 0..8 {
        let mut large = server.client();
        // Keys that are watched, or a request that is not whole.
        match round % 2 {
            0 => large.send(&watch(40_000)),
            _ => drop(large.try_send(&mset[..mset.len() - 10])),
        }
        let evicted_clients = (round + 1).to_string();
        let mut written = 0;
        while client.info("evicted_clients") != evicted_clients {
            client.line(&format!("SET key:{} {}", written % KEYS, "w".repeat(800))).is_ok();
            written += 1;
        }
        assert_eq!(evicted(&mut client), 0, "round {round}");
    }
    client.line("DBSIZE").is(KEYS as i64);
}

#[test]
fn a_long_list_and_a_long_stream_take_few_bytes_an_element() {
    const STEP: usize = 50_000;
    let server = Server::start();
    let mut client = server.client();
    // A thread that the server starts on a busy machine takes memory once; the elements would every time.
    let mut each = |most: f64, fill: &mut dyn FnMut(&mut Client, usize)| {
        let mut tried = Vec::new();
        while tried.len() < 4 && tried.iter().all(|bytes| *bytes >= most) {
            client.line("FLUSHALL").is_ok();
            fill(&mut client, 0);
            let before = used(&mut client);
            fill(&mut client, 1);
            fill(&mut client, 2);
            tried.push((used(&mut client) - before) as f64 / (2 * STEP) as f64);
        }
        assert!(tried.iter().any(|bytes| *bytes < most), "{tried:?} bytes an element");
    };
    for command in ["RPUSH", "LPUSH"] {
        each(12.6, &mut |client, step| {
            for from in (step * STEP..(step + 1) * STEP).step_by(1000) {
                let elements = (from..from + 1000).map(|number| format!("{number:010}"));
                client.cmd([command, command].map(str::to_owned).into_iter().chain(elements)).ignored();
            }
        });
    }
    // Elements of different lengths, of which the first in a page says nothing about the others.
    each(12.8, &mut |client, step| {
        for from in (step * STEP..(step + 1) * STEP).step_by(1000) {
            let elements = (from..from + 1000).map(|number| "x".repeat(number * 7919 % 21));
            client.cmd(["RPUSH", "mixed"].map(str::to_owned).into_iter().chain(elements)).ignored();
        }
    });
    each(21.5, &mut |client, step| {
        for from in (step * STEP..(step + 1) * STEP).step_by(1000) {
            let requests: Vec<u8> = (from..from + 1000)
                .flat_map(|number| request(["XADD", "stream", "*", "f", &format!("{number:010}")]))
                .collect();
            client.send(&requests);
            (0..1000).for_each(|_| client.reply().ignored());
        }
    });
}
