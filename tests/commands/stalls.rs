//! One long request: other clients are served meanwhile, as long as there is a second thread.

use std::thread;
use std::time::Duration;

use support::client::{Client, request};
use support::folder::Folder;
use support::server::Server;

/// A server of two threads, however many processors there are.
fn start() -> Server {
    Server::start_with(&["--io-threads", "2", "--enable-debug-command", "yes", "--busy-reply-threshold", "0"])
}

/// How often each of the others is served while one waits: often enough for them to meet at any moment of it.
const TIMES: usize = 50;

/// Whether others are served while a client, which has sent something long, waits for its last reply.
fn are_served(others: &mut [Client], line: &str, mut still_waits: impl FnMut() -> bool) -> bool {
    for _ in 0..TIMES {
        others.iter_mut().for_each(|other| drop(other.line(line).text()));
    }
    still_waits()
}

/// Whether a client has no reply yet.
fn has_nothing(busy: &mut Client) -> bool {
    busy.is_silent_for(Duration::from_millis(1))
}

/// Sends something long again and again: now and then another thread looks after the sockets by chance. It
/// may be over before others have come by on a fast machine; then something longer is sent.
#[track_caller]
fn others_are_served_during(server: &Server, mut long: impl FnMut(usize) -> (Vec<u8>, usize)) {
    const ROUNDS: usize = 4;
    const LENGTH_MAX: usize = 64;
    let mut others = [server.client(), server.client(), server.client()];
    others[0].line("SET other value").is_ok();
    let (mut served, mut length) = (0, 1);
    while served < ROUNDS {
        let mut busy = server.client();
        let (requests, replies) = long(length);
        busy.send(&requests);
        let is_served = thread::scope(|scope| {
            // Its first replies may come before the last request is executed.
            let taking = scope.spawn(move || (0..replies).for_each(|_| drop(busy.reply())));
            let still_waits = || !taking.is_finished();
            // What comes together with it wakes another thread anyway.
            thread::sleep(Duration::from_millis(10));
            are_served(&mut others, "PING", still_waits) && are_served(&mut others, "GET other", still_waits)
        });
        if is_served {
            served += 1;
        } else {
            length *= 2;
            assert!(length <= LENGTH_MAX, "the others were served only after the long request");
        }
    }
}

#[test]
fn while_keys_are_matched_with_a_slow_pattern_others_are_served() {
    let server = start();
    let mut client = server.client();
    let mut keys = 0;
    others_are_served_during(&server, |length| {
        while keys < 1000 * length.min(16) {
            let pairs = (keys..keys + 1000).flat_map(|number| [format!("{number:0200}"), "v".to_owned()]);
            client.cmd(["MSET".to_owned()].into_iter().chain(pairs)).is_ok();
            keys += 1000;
        }
        (request(["KEYS", &format!("{}x", "0*".repeat(50))]).repeat(length), length)
    });
}

#[test]
fn while_long_values_are_compared_others_are_served() {
    let server = start();
    let mut client = server.client();
    let (one, other) = ("ab".repeat(5000), "abc".repeat(3500));
    client.cmd(["MSET", "one", &one, "another", &other]).is_ok();
    others_are_served_during(&server, |length| {
        (request(["LCS", "one", "another", "LEN"]).repeat(10 * length), 10 * length)
    });
}

#[test]
fn while_many_values_are_read_others_are_served() {
    let server = start();
    let mut client = server.client();
    others_are_served_during(&server, |length| {
        // No request has more than a million arguments: beyond that, the values become longer.
        client.cmd(["SET", "key", &"v".repeat(50 * length.div_ceil(16))]).is_ok();
        let keys = std::iter::repeat_n("key", 50_000 * length.min(16));
        (request(["MGET"].into_iter().chain(keys)), 1)
    });
}

#[test]
fn while_long_values_are_logged_others_are_served() {
    let folder = Folder::new("stalls-logged");
    let server = folder.serve(&["--io-threads", "2", "--appendonly", "yes"]);
    let value = "v".repeat(1 << 20);
    let mut client = server.client();
    for from in (0..50_000).step_by(1000) {
        let members = (from..from + 1000).map(|number| number.to_string());
        client.cmd(["SADD".to_owned(), "members".to_owned()].into_iter().chain(members)).is(1000);
    }
    others_are_served_during(&server, |length| {
        let requests = [request(["SET", "long", &value]), request(["SUNIONSTORE", "union", "members"])];
        (requests.concat().repeat(4 * length), 8 * length)
    });
}

#[test]
fn while_a_function_of_the_interpreter_runs_others_are_served() {
    let server = start();
    others_are_served_during(&server, |length| {
        let script = "return tostring(string.find(string.rep('a', 3000 * ARGV[1]), '.-b'))";
        (request(["EVAL", script, "0", &length.to_string()]), 1)
    });
}

#[test]
fn while_scripts_wait_for_their_turn_others_are_served() {
    let server = start();
    let mut others = [server.client(), server.client()];
    others[0].line("SET other value").is_ok();
    let mut busy = server.client();
    busy.send(&request(["EVAL", "while true do end", "0"]));
    let waiting: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = server.client();
            client.send(&request(["EVAL", "return tonumber(ARGV[1])", "0", &number.to_string()]));
            client
        })
        .collect();
    assert!(are_served(&mut others, "PING", || has_nothing(&mut busy)));
    assert!(are_served(&mut others, "GET other", || has_nothing(&mut busy)));
    // Its script may not have begun when it is looked for.
    while others[0].line("SCRIPT KILL").text() != "OK" {}
    assert!(busy.reply().text().contains("killed"));
    for (number, mut client) in (0..).zip(waiting) {
        client.reply().is(number);
    }
}

#[test]
fn while_all_keys_are_locked_what_concerns_no_key_is_served() {
    for threads in ["1", "2"] {
        let server = Server::start_with(&["--io-threads", threads, "--enable-debug-command", "yes"]);
        let mut others = [server.client(), server.client()];
        let mut busy = server.client();
        busy.send(&request(["DEBUG", "SLEEP", "2"]));
        while !others[0].line("CLIENT LIST").text().contains("cmd=debug") {}
        let mut waiting: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for (number, client) in waiting.iter_mut().enumerate() {
            match number % 3 {
                0 => client.send(&request(["SETNX", "lock", "holder"])),
                1 => client.send(&request(["EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "lock"])),
                _ => client
                    .send(b"*1\r\n$5\r\nMULTI\r\n*2\r\n$6\r\nEXISTS\r\n$4\r\nlock\r\n*1\r\n$4\r\nEXEC\r\n"),
            }
        }
        let is_sleeping = are_served(&mut others, "PING", || has_nothing(&mut busy));
        let are_waiting = waiting[0].is_silent_for(Duration::from_millis(1));
        assert!(!is_sleeping || are_waiting, "a key was read while all are locked");
        assert!(is_sleeping, "the others were served only after the sleep");
        busy.reply().is_ok();
        let taken: i64 = waiting.iter_mut().step_by(3).map(|client| client.reply().integer()).sum();
        assert_eq!(taken, 1, "exactly one of them took the lock");
    }
}

#[test]
fn while_many_keys_are_freed_others_are_served_even_by_one_thread() {
    let server = Server::start_with(&["--io-threads", "1", "--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("SELECT 1").is_ok();
    others_are_served_during(&server, |length| {
        client.line(&format!("DEBUG POPULATE {} key 10", 200_000 * length)).is_ok();
        ([request(["SELECT", "1"]), request(["FLUSHDB"])].concat(), 2)
    });
}
