//! Holders that come back too late in ways of their own: by the script that takes the lock, by a look before
//! they release it, with the token over which they have written their data. And tokens that are none: one
//! that no client has taken the lock with, and one that all clients have.

use crate::locks::{frozen, is_found};
use support::client::{Client, Reply};
use support::replies::{array, field, integer};
use support::server::wait_until;

const ONES: &str = "1b671a64-40d5-491e-99b0-da01ff1f3341";
const TWOS: &str = "2c1e9f70-83a2-4f1d-8a6b-5f0c9a3d7e42";
const STRANGERS: &str = "3d8e2b51-1c94-4b7e-b0d3-6a1f8c2e9d53";

const COMPARE_AND_DEL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const COMPARE_AND_SET: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end return 0";

/// Scripts that take a lock, or renew it if the token has it already: RQ's scheduler and Spring, Symfony
/// before 5.2 and redsync, aioredlock, redlock-rb.
const TAKE_OR_RENEW: &[&str] = &[
    "local now = redis.call('GET', KEYS[1]) if now == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) elseif not now then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1 end return 0",
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) end",
    "local held = redis.call('get', KEYS[1]) if not held or held == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) else return redis.error_reply('ERROR') end",
    "if redis.call('exists', KEYS[1]) == 0 or redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
];

fn run(client: &mut Client, script: &str, key: &str, token: &str) {
    client.cmd(["EVAL", script, "1", key, token, "60000"]).ignored();
}

fn take(client: &mut Client, key: &str, token: &str) {
    client.cmd(["SET", key, token, "NX", "PX", "60000"]).is_ok();
}

fn delete(client: &mut Client, key: &str, token: &str) -> i64 {
    client.cmd(["EVAL", COMPARE_AND_DEL, "1", key, token]).integer()
}

/// Forgets the findings before the next case, which has a key of its own.
fn next_key(observer: &mut Client, number: &mut usize) -> String {
    observer.line("LOCKS RESET").is_ok();
    *number += 1;
    format!("job:{number}")
}

#[test]
fn a_holder_is_late_by_the_script_that_takes_if_it_has_renewed_by_it() {
    let (mut observer, [mut one, mut two], server) = frozen(["one", "two"]);
    let mut number = 0;
    for script in TAKE_OR_RENEW {
        for (story, expected) in [
            ("renews, expires, is taken", &[("expired-while-held", &["one", "two"][..])][..]),
            ("renews, expires", &[("expired-while-held", &["one"])]),
            ("renews, is flushed, is taken", &[("lost-while-held", &["one", "two"])]),
            ("expires, is taken", &[]),
            ("expires", &[]),
            ("renews, is released, is taken", &[]),
            ("renews, starts anew, expires, is taken", &[]),
            ("renews, starts anew, expires", &[]),
            ("renews, expires, waits", &[]),
        ] {
            let key = next_key(&mut observer, &mut number);
            run(&mut one, script, &key, ONES);
            for step in story.split(", ") {
                match step {
                    "renews" => run(&mut one, script, &key, ONES),
                    "expires" => observer.line("CLOCK ADVANCE 60001").is_ok(),
                    "waits" => observer.line("CLOCK ADVANCE 600000").is_ok(),
                    "is flushed" => observer.line("FLUSHALL").is_ok(),
                    "is released" => assert_eq!(delete(&mut one, &key, ONES), 1),
                    "is taken" => run(&mut two, script, &key, TWOS),
                    // The process dies and comes up again. Its token is made of its name.
                    "starts anew" => {
                        one = server.client3();
                        one.line("CLIENT SETNAME one").is_ok();
                        wait_until("it has left", || {
                            let lock = observer.cmd(["LOCKS", "GET", &key]).reply();
                            field(&lock, "holder-connected") == Reply::Boolean(false)
                        });
                    }
                    step => panic!("{step}"),
                }
            }
            run(&mut one, script, &key, ONES);
            is_found(&mut observer, expected);
            // Once: from now on it wants the lock as others do.
            let mut refused = || integer(&observer.cmd(["LOCKS", "GET", &key]).reply(), "refused");
            let before = refused();
            run(&mut one, script, &key, ONES);
            assert_eq!(refused() > before, story.contains("is taken"), "{story}: {script}");
            is_found(&mut observer, expected);
        }
    }
}

#[test]
fn a_holder_that_looks_first_has_come_back_if_another_has_the_lock() {
    let (mut observer, [mut one, mut two, mut another], _server) = frozen(["one", "two", "another"]);
    let mut number = 0;
    for (lines, expected) in [
        // StackExchange.Redis: the rest would be MULTI, DEL, EXEC.
        (&["one WATCH KEY", "one GET KEY", "one UNWATCH"][..], true),
        (&["one GET KEY"], true),
        (&["one MGET other KEY"], true),
        (&["one MULTI", "one GET KEY", "one EXEC"], false),
        (&["one TTL KEY", "one EXISTS KEY"], false),
        (&["another GET KEY"], false),
        // An entry of a cache is read from all sides.
        (&["another GET KEY", "one GET KEY"], false),
    ] {
        let key = next_key(&mut observer, &mut number);
        take(&mut one, &key, ONES);
        observer.line("CLOCK ADVANCE 60001").is_ok();
        take(&mut two, &key, TWOS);
        two.cmd(["GET", &key]).ignored();
        for line in lines {
            let (name, line) = line.split_once(' ').unwrap();
            let client = if name == "one" { &mut one } else { &mut another };
            client.line(&line.replace("KEY", &key)).ignored();
        }
        match expected {
            true => is_found(&mut observer, &[("expired-while-held", &["one", "two"])]),
            false => is_found(&mut observer, &[]),
        }
    }
}

#[test]
fn a_program_that_writes_data_over_its_own_lock_is_found_when_it_releases() {
    let (mut observer, [mut one], _server) = frozen(["one"]);
    let mut number = 0;
    for release in [COMPARE_AND_DEL, COMPARE_AND_EXPIRE, "DELIFEQ", "LOCK RELEASE", "LOCK EXTEND", "nothing"]
    {
        let key = next_key(&mut observer, &mut number);
        take(&mut one, &key, ONES);
        one.cmd(["SET", &key, "{\"n\":1}"]).is_ok();
        is_found(&mut observer, &[]);
        match release {
            "nothing" => {}
            "DELIFEQ" => one.cmd(["DELIFEQ", &key, ONES]).is(0),
            "LOCK RELEASE" => one.cmd(["LOCK", "RELEASE", &key, ONES]).is(0),
            "LOCK EXTEND" => one.cmd(["LOCK", "EXTEND", &key, ONES, "PX", "60000"]).is_nil(),
            script => run(&mut one, script, &key, ONES),
        }
        match release {
            "nothing" => is_found(&mut observer, &[]),
            _ => is_found(&mut observer, &[("overwritten-by-holder", &["one"])]),
        }
    }
}

#[test]
fn a_lock_shows_how_often_and_when_it_was_renewed() {
    let (mut observer, [mut one, mut pooled], _server) = frozen(["one", "pooled"]);
    take(&mut one, "job", ONES);
    let mut shown = |expected: i64| {
        let lock = observer.line("LOCKS GET job").reply();
        assert_eq!(integer(&lock, "renewals"), expected, "{lock}");
        match expected {
            0 => assert_eq!(field(&lock, "renewed-at"), Reply::Null),
            _ => assert_eq!(integer(&lock, "renewed-at") - integer(&lock, "since"), 1000 * expected),
        }
        observer.line("CLOCK ADVANCE 1000").is_ok();
    };
    shown(0);
    run(&mut pooled, COMPARE_AND_EXPIRE, "job", ONES);
    shown(1);
    run(&mut one, COMPARE_AND_SET, "job", ONES);
    shown(2);
    one.cmd(["LOCK", "EXTEND", "job", ONES, "PX", "60000"]).ignored();
    shown(3);
    one.cmd(["SET", "job", ONES, "IFEQ", ONES, "PX", "60000"]).is_ok();
    shown(4);
    one.line("PEXPIRE job 60000").is(1);
    shown(5);
    assert_eq!(delete(&mut one, "job", ONES), 1);
    take(&mut pooled, "job", TWOS);
    let lock = observer.line("LOCKS GET job").reply();
    assert_eq!(integer(&lock, "renewals"), 0);
    assert_eq!(integer(&array(&lock, "past")[0], "renewals"), 5);
    is_found(&mut observer, &[]);
}

#[test]
fn a_release_by_a_token_of_no_client_is_found() {
    let (mut observer, [mut one, mut two], server) = frozen(["one", "two"]);
    let mut number = 0;
    for (release, is_one) in
        [(COMPARE_AND_DEL, true), (COMPARE_AND_DEL, false), ("DELIFEQ", true), ("LOCK RELEASE", false)]
    {
        let key = next_key(&mut observer, &mut number);
        take(&mut one, &key, ONES);
        // The second client has tried to take it, so that it may clean up; and a script may have other words.
        two.cmd(["SET", &key, TWOS, "NX", "PX", "60000"]).is_nil();
        assert_eq!(delete(&mut two, &key, TWOS), 0);
        two.cmd(["DELIFEQ", &key, TWOS]).is(0);
        two.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", &key, STRANGERS, "60000"]).is(0);
        assert_eq!(delete(&mut two, &key, "of another length than tokens have"), 0);
        is_found(&mut observer, &[]);
        let client = if is_one { &mut one } else { &mut two };
        match release {
            "DELIFEQ" => client.cmd(["DELIFEQ", &key, STRANGERS]).is(0),
            "LOCK RELEASE" => client.cmd(["LOCK", "RELEASE", &key, STRANGERS]).is(0),
            _ => assert_eq!(delete(client, &key, STRANGERS), 0),
        }
        match is_one {
            true => is_found(&mut observer, &[("released-by-stranger", &["one"])]),
            false => is_found(&mut observer, &[("released-by-stranger", &["two", "one"])]),
        }
    }
    assert!(!server.output().contains("Lock lens"), "nothing shows that they are locks");
    // The holder of a lock for certain, by a token that it has made anew.
    take(&mut one, "lock:job", ONES);
    assert_eq!(delete(&mut one, "lock:job", STRANGERS), 0);
    server.wait_for_output("Lock lens: released-by-stranger on key \"lock:job\"");
}

#[test]
fn a_token_that_two_connections_have_is_found_if_it_is_compared() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    let mut number = 0;
    for (token, is_compared) in [(ONES, true), ("locked", true), ("1", true), (ONES, false), ("1", false)] {
        let key = next_key(&mut observer, &mut number);
        for _ in 0..3 {
            for client in [&mut one, &mut two] {
                take(client, &key, token);
                match is_compared {
                    true => assert_eq!(delete(client, &key, token), 1),
                    false => client.cmd(["DEL", &key]).is(1),
                }
            }
        }
        match is_compared {
            true => is_found(&mut observer, &[("token-not-unique", &["two", "one"])]),
            false => is_found(&mut observer, &[]),
        }
    }
    // A script may have the name of its process for a token, which has many connections.
    let key = next_key(&mut observer, &mut number);
    for client in [&mut one, &mut two] {
        run(client, TAKE_OR_RENEW[0], &key, ONES);
        assert_eq!(delete(client, &key, ONES), 1);
    }
    is_found(&mut observer, &[]);
}

/// A script that renews the locks of many jobs gets their tokens in one argument, as BullMQ's does.
const RENEW_PACKED: &str = "local tokens = cmsgpack.unpack(ARGV[1]) if redis.call('get', KEYS[1]) == tokens[1] then return redis.call('set', KEYS[1], tokens[1], 'PX', ARGV[2]) end return 0";

#[test]
fn a_holder_is_late_though_its_script_has_the_tokens_of_many_locks_in_one_argument() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    let renew = |client: &mut Client, key: &str, token: &str| {
        let packed = [&[0x91, 0xd9, token.len() as u8], token.as_bytes()].concat();
        client.cmd([b"EVAL", RENEW_PACKED.as_bytes(), b"1", key.as_bytes(), &packed, b"60000"]).ignored();
    };
    let mut number = 0;
    for (story, expected) in [
        ("expires, is taken", &[("expired-while-held", &["one", "two"][..])][..]),
        ("is flushed, is taken", &[("lost-while-held", &["one", "two"])]),
        ("is released, is taken", &[]),
        ("expires, is taken by itself", &[]),
        ("renews", &[]),
    ] {
        let key = next_key(&mut observer, &mut number);
        take(&mut one, &key, ONES);
        renew(&mut one, &key, ONES);
        let mut token = ONES;
        for event in story.split(", ") {
            match event {
                "expires" => observer.line("CLOCK ADVANCE 61000").is_ok(),
                "is flushed" => observer.line("FLUSHALL").is_ok(),
                "is released" => assert_eq!(delete(&mut one, &key, ONES), 1),
                "is taken" => take(&mut two, &key, TWOS),
                "is taken by itself" => {
                    token = STRANGERS;
                    take(&mut one, &key, token);
                }
                _ => renew(&mut one, &key, ONES),
            }
        }
        renew(&mut one, &key, token);
        renew(&mut one, &key, token);
        is_found(&mut observer, expected);
    }
}

/// The token of phpredis' sessions is short: the names of the machine and of the process. Each request of a
/// process has a connection of its own.
#[test]
fn a_process_may_have_one_token_for_its_connections_and_its_late_look_is_found() {
    let (mut observer, [], server) = frozen([]);
    let session = |name: &str| {
        let mut client = server.client3();
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client
    };
    let (key, web1, web2) = ("SESSION:visitor_LOCK", "web|17", "web|18");
    for _ in 0..3 {
        let mut request = session("request");
        take(&mut request, key, web1);
        request.cmd(["GET", key]).is(web1);
        assert_eq!(delete(&mut request, key, web1), 1);
        let id = request.line("CLIENT ID").integer();
        drop(request);
        wait_until("the connection has ended", || {
            observer.line(&format!("CLIENT LIST ID {id}")).text().is_empty()
        });
    }
    is_found(&mut observer, &[]);
    let (mut late, mut next) = (session("late"), session("next"));
    take(&mut late, key, web1);
    observer.line("CLOCK ADVANCE 61000").is_ok();
    take(&mut next, key, web2);
    late.cmd(["GET", key]).is(web2);
    is_found(&mut observer, &[("expired-while-held", &["late", "next"])]);
    // Two connections that are there at the same time share a token.
    assert_eq!(delete(&mut next, key, web2), 1);
    observer.line("LOCKS RESET").is_ok();
    take(&mut next, key, web1);
    is_found(&mut observer, &[("token-not-unique", &["next"])]);
}
