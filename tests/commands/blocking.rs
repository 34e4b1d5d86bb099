//! Clients that wait for a list or a sorted set: who is served, by whom, and what ends the wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::replies::field_of;
use support::server::{Server, SetOnDrop, wait_until};

fn pair(key: &str, element: &str) -> Vec<u8> {
    format!("*2\r\n${}\r\n{key}\r\n${}\r\n{element}\r\n", key.len(), element.len()).into_bytes()
}

#[test]
fn the_first_to_wait_is_the_first_to_be_served() {
    let server = Server::start();
    let mut waiting: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut waiting {
        server.have_wait(client, "BLPOP none queue 0");
    }
    server.client().line("RPUSH queue a b c d e f").is(6);
    for (client, element) in waiting.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        assert_eq!(client.reply_bytes(), pair("queue", element));
    }
    server.client().line("LRANGE queue 0 -1").is(support::client::Reply::Array(vec!["f".into()]));
}

marked!(also_redis: what_has_expired_by_the_end_of_exec_serves_no_client);
fn what_has_expired_by_the_end_of_exec_serves_no_client() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    for (waits, made, served) in [
        ("BLPOP k 0", "RPUSH k e", "[\"k\", \"e\"]"),
        ("BLMOVE k l LEFT LEFT 0", "RPUSH k e", "\"e\""),
        ("BZPOPMIN k 0", "ZADD k 1 e", "[\"k\", \"e\", \"1\"]"),
        ("BZMPOP 0 1 k MIN", "ZADD k 1 e", "[\"k\", [[\"e\", \"1\"]]]"),
        ("XREAD BLOCK 0 STREAMS k 0", "XADD k 1-1 f v", "[[\"k\", [[\"1-1\", [\"f\", \"v\"]]]]]"),
    ] {
        let mut waiting = server.client();
        server.have_wait(&mut waiting, waits);
        for (line, reply) in [("MULTI", "OK"), (made, "QUEUED"), ("PEXPIRE k 1", "QUEUED")] {
            client.line(line).is_simple(reply);
        }
        client.line("DEBUG SLEEP 0.01").is_simple("QUEUED");
        assert_eq!(client.line("EXEC").items().len(), 3, "{waits}");
        client.line("PING").is_simple("PONG");
        assert_eq!(client.info("blocked_clients"), "1", "{waits}");
        client.line(made).ignored();
        assert_eq!(waiting.reply().reply().to_string(), served, "{waits}");
        client.line("DEL k").ignored();
    }
}

#[test]
fn whatever_brings_a_list_serves_the_client_that_waits_for_it() {
    let ways: [&[&str]; 9] = [
        &["RPUSH target v"],
        &["EVAL redis.call('RPUSH','target','v') 0"],
        &["RPUSH other v", "RENAME other target"],
        &["RPUSH other v", "COPY other target"],
        &["SELECT 1", "RPUSH target v", "MOVE target 0", "SELECT 0"],
        &["SELECT 1", "RPUSH target v", "SWAPDB 0 1", "SELECT 0"],
        &["RPUSH other v", "LMOVE other target LEFT LEFT"],
        &["SET target string", "DEL target", "LPUSH target v"],
        &["MULTI", "RPUSH other x", "RPUSH target v", "EXEC"],
    ];
    for way in ways {
        let server = Server::start();
        let mut client = server.client();
        server.have_wait(&mut client, "BRPOP target 0");
        let mut other = server.client();
        for line in way {
            let words: Vec<&str> = match line.strip_prefix("EVAL ") {
                Some(rest) => {
                    ["EVAL"].into_iter().chain(rest.rsplit_once(' ').map(|(s, n)| [s, n]).unwrap()).collect()
                }
                None => line.split(' ').collect(),
            };
            other.cmd(words).ignored();
        }
        assert_eq!(client.reply_bytes(), pair("target", "v"), "{way:?}");
        assert_eq!(server.client().info("blocked_clients"), "0");
    }
    let server = Server::start();
    let mut client = server.client();
    server.client().line("RPUSH other v").is(1);
    let payload = server.client().line("DUMP other").reply();
    let support::client::Reply::Bulk(payload) = payload else { panic!("{payload}") };
    server.have_wait(&mut client, "BRPOP target 0");
    server.client().cmd([&b"RESTORE"[..], b"target", b"0", &payload]).is_ok();
    assert_eq!(client.reply_bytes(), pair("target", "v"));
}

#[test]
fn an_element_that_moves_on_serves_the_next_client() {
    let server = Server::start();
    let (mut first, mut second, mut third) = (server.client(), server.client(), server.client());
    server.have_wait(&mut third, "BLPOP c 0");
    server.have_wait(&mut second, "BLMOVE b c LEFT RIGHT 0");
    server.have_wait(&mut first, "BRPOPLPUSH a b 0");
    server.client().line("LPUSH a v").is(1);
    assert_eq!(first.reply_bytes(), b"$1\r\nv\r\n");
    assert_eq!(second.reply_bytes(), b"$1\r\nv\r\n");
    assert_eq!(third.reply_bytes(), pair("c", "v"));
    server.client().line("DBSIZE").is(0);
}

/// Runs something while clients use a long list all the time.
fn while_busy(server: &Server, list: &str, run: impl FnOnce()) {
    let elements = (0..5000).map(|number| number.to_string());
    server.client().cmd(["RPUSH".to_owned(), list.to_owned()].into_iter().chain(elements)).is(5000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut reader = server.client();
                while !is_over.load(Ordering::Relaxed) {
                    reader.line(&format!("LPOS {list} none")).is_nil();
                }
            });
        }
        let _over = SetOnDrop(&is_over);
        run();
    });
}

/// Clients that move an element wait for it, and then one that pops it. The first element is for the mover,
/// although other clients use its target, and no other client gets it meanwhile.
#[test]
fn a_client_that_moves_an_element_keeps_its_turn_while_its_target_is_in_use() {
    const MOVES: [&str; 3] = [
        "BLMOVE source target LEFT RIGHT 0",
        "BRPOPLPUSH source target 0",
        "BLMOVEM source target LEFT RIGHT 0",
    ];
    let ways: [&[&[&str]]; 7] = [
        &[&["RPUSH", "source", "v"]],
        &[&["MULTI"], &["RPUSH", "source", "v"], &["EXEC"]],
        &[&["EVAL", "redis.call('RPUSH', KEYS[1], 'v')", "1", "source"]],
        &[&["EVAL", "redis.call('RPUSH', 'source', 'v')", "0"]],
        &[&["RPUSH", "other", "v"], &["RENAME", "other", "source"]],
        &[&["RPUSH", "other", "v"], &["LMOVE", "other", "source", "LEFT", "LEFT"]],
        &[&["MULTI"], &["EVAL", "redis.call('RPUSH', KEYS[1], 'v')", "1", "source"], &["EXEC"]],
    ];
    let server = Server::start();
    let (mut mover, mut popper, mut pusher) = (server.client(), server.client(), server.client());
    while_busy(&server, "target", || {
        for round in 0..210 {
            server.have_wait(&mut mover, MOVES[round % MOVES.len()]);
            server.have_wait(&mut popper, "BLPOP source 0");
            let lines = ways[round % ways.len()].iter();
            // The element has gone before the next request of the same batch.
            let batch: Vec<u8> = lines.flat_map(|words| request(words.iter().copied())).collect();
            pusher.send(&[batch, request(["LPOP", "source"]), request(["RPUSH", "source", "w"])].concat());
            for _ in ways[round % ways.len()] {
                pusher.reply().ignored();
            }
            pusher.reply().is_nil();
            pusher.reply().is(1);
            let moved: &[u8] = if round % 3 == 2 { b"*1\r\n$1\r\nv\r\n" } else { b"$1\r\nv\r\n" };
            assert_eq!(mover.reply_bytes(), moved, "in round {round}");
            assert_eq!(popper.reply_bytes(), pair("source", "w"), "in round {round}");
        }
    });
}

/// Each link holds the next one's target, too, and a ring has no end.
#[test]
fn elements_move_through_chains_and_rings_of_lists_in_use() {
    const LINKS: usize = 40;
    let server = Server::start();
    let mut movers: Vec<Client> = (0..LINKS).map(|_| server.client()).collect();
    let mut pusher = server.client();
    while_busy(&server, "list:40", || {
        for _ in 0..10 {
            for (link, mover) in movers.iter_mut().enumerate().rev() {
                server.have_wait(mover, &format!("BLMOVE list:{link} list:{} LEFT RIGHT 0", link + 1));
            }
            pusher.line("RPUSH list:0 v").is(1);
            movers.iter_mut().for_each(|mover| assert_eq!(mover.reply_bytes(), b"$1\r\nv\r\n"));
        }
    });
    let (mut one, mut other) = (server.client(), server.client());
    server.have_wait(&mut one, "BLMOVE ring:a ring:b LEFT RIGHT 0");
    server.have_wait(&mut other, "BLMOVE ring:b ring:a LEFT RIGHT 0");
    pusher.line("RPUSH ring:a v").is(1);
    assert_eq!([one.reply_bytes(), other.reply_bytes()].concat(), b"$1\r\nv\r\n$1\r\nv\r\n");
    pusher.line("LLEN ring:a").is(1);
}

#[test]
fn a_wait_ends_at_its_time_and_by_other_clients() {
    let server = Server::start();
    let mut client = server.client();
    let started = Instant::now();
    client.line("BLPOP none 0.2").is_nil();
    assert!(started.elapsed() >= Duration::from_millis(200));
    let id = client.line("CLIENT ID").integer().to_string();
    server.have_wait(&mut client, "BZPOPMIN none 0");
    server.client().cmd(["CLIENT", "UNBLOCK", &id]).is(1);
    client.reply().is_nil();
    server.have_wait(&mut client, "BLMPOP 0 1 none LEFT");
    server.client().cmd(["CLIENT", "UNBLOCK", &id, "ERROR"]).is(1);
    client.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    server.client().cmd(["CLIENT", "UNBLOCK", &id]).is(0);
    // One that is gone is not served, by whatever it went.
    server.have_wait(&mut client, "BLPOP queue 0");
    server.client().cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    let no_client_waits = || server.client().info("blocked_clients") == "0";
    wait_until("no client that was killed waits", no_client_waits);
    let mut leaving = server.client();
    server.have_wait(&mut leaving, "BLPOP queue 0");
    drop(leaving);
    wait_until("no client that is gone waits", no_client_waits);
    server.client().line("RPUSH queue v").is(1);
    server.client().line("LLEN queue").is(1);
}

/// What a client waits with, and what serves it.
const WAYS: [(&str, &str); 6] = [
    ("BLPOP key 0", "RPUSH key v"),
    ("BLMOVE key other LEFT LEFT 0", "RPUSH key v"),
    ("BLMPOP 0 1 key LEFT", "EVAL redis.call('RPUSH',KEYS[1],'v') 1 key"),
    ("BZPOPMIN key 0", "ZADD key 1 v"),
    ("XREAD BLOCK 0 STREAMS key 0", "XADD key 1-1 f v"),
    ("XREADGROUP GROUP g c BLOCK 0 STREAMS key >", "XADD key 1-1 f v"),
];

/// Prepares the key for one of these ways.
fn prepare(client: &mut Client, way: &str) {
    client.line("DEL key other").ignored();
    if way.starts_with("XREADGROUP") {
        client.line("XGROUP CREATE key g $ MKSTREAM").is_ok();
    }
}

fn line(line: &str) -> Vec<u8> {
    request(line.split(' '))
}

marked!(also_redis: a_client_that_was_served_is_not_unblocked);
fn a_client_that_was_served_is_not_unblocked() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    for (way, push) in WAYS {
        for reason in ["TIMEOUT", "ERROR"].into_iter().cycle().take(20) {
            prepare(&mut other, way);
            server.have_wait(&mut client, way);
            let unblock = format!("CLIENT UNBLOCK {id} {reason}");
            other.send(&[line(push), line(&unblock), line("CLIENT LIST"), line("INFO clients")].concat());
            other.reply().ignored();
            other.reply().is(0);
            let list = other.reply().text();
            let own = list.lines().find(|line| line.starts_with(&format!("id={id} "))).expect("it is listed");
            assert!(!field_of(own, "flags").contains('b'), "{way}: {own}");
            assert!(other.reply().text().contains("blocked_clients:0"), "{way}");
            let reply = client.reply().reply();
            assert!(!matches!(reply, Reply::Error(_) | Reply::Null), "{way}: {reply:?}");
        }
    }
}

marked!(also_redis: a_client_that_was_unblocked_is_not_served);
fn a_client_that_was_unblocked_is_not_served() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    for (way, push) in WAYS {
        for _ in 0..20 {
            prepare(&mut other, way);
            server.have_wait(&mut client, way);
            // In a transaction the element comes first, and is served last.
            let lines = ["MULTI", push, &format!("CLIENT UNBLOCK {id}"), "EXEC"];
            other.send(&lines.map(line).concat());
            (0..3).for_each(|_| other.reply().ignored());
            assert_eq!(other.reply().items()[1], 1.into(), "{way}");
            client.reply().is_nil();
            other.line("EXISTS key").is(1);
        }
    }
}

#[test]
fn a_client_that_looks_again_and_again_is_unblocked_for_good() {
    const ROUNDS: u64 = 150;
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    other.line("XGROUP CREATE key g $ MKSTREAM").is_ok();
    let mut not_waiting = 0;
    for round in 0..ROUNDS {
        // It looks every 10 milliseconds whether there is an entry to claim.
        server.have_wait(&mut client, "XREADGROUP GROUP g c BLOCK 0 CLAIM 1 STREAMS key >");
        let (began, after) = (Instant::now(), Duration::from_micros(round * 331 % 31_000));
        while began.elapsed() < after {
            other.line("PING").is_simple("PONG");
        }
        let reason = if round % 2 == 0 { "TIMEOUT" } else { "ERROR" };
        not_waiting += 1 - other.line(&format!("CLIENT UNBLOCK {id} {reason}")).integer();
        match reason {
            "TIMEOUT" => client.reply().is_nil(),
            _ => client.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
        }
    }
    // It is being served for some microseconds in each ten milliseconds, unless the machine is very busy.
    assert!(not_waiting <= 2, "{not_waiting} of {ROUNDS} times a client that waited was said not to wait");
}

#[test]
fn a_client_that_was_killed_or_has_lost_the_right_is_not_served() {
    // Redis 7.0 does not judge a waiting client again.
    let server = Server::start();
    let (mut admin, mut next) = (server.client(), server.client());
    for (way, push) in WAYS {
        for (loss, refusal) in [
            ("ACL DELUSER bob", None),
            ("CLIENT KILL USER bob", None),
            ("ACL SETUSER bob resetkeys", Some("No permissions to access a key")),
            ("ACL SETUSER bob -@blocking", Some("run the '")),
        ] {
            for _ in 0..4 {
                admin.line("ACL SETUSER bob reset on nopass +@all ~*").is_ok();
                let mut bob = server.client();
                bob.line("AUTH bob x").is_ok();
                prepare(&mut admin, way);
                server.have_wait(&mut bob, way);
                server.have_wait(&mut next, way);
                admin.send(&[line(loss), line(push)].concat());
                admin.reply().ignored();
                admin.reply().ignored();
                match refusal {
                    None => assert!(bob.is_closed(), "{way}, {loss}"),
                    Some(refusal) => {
                        let text = bob.reply().text();
                        assert!(
                            text.starts_with("NOPERM ") && text.contains(refusal),
                            "{way}, {loss}: {text}"
                        );
                    }
                }
                // The client behind it gets what it would have got.
                let reply = next.reply().reply();
                assert!(!matches!(reply, Reply::Error(_) | Reply::Null), "{way}, {loss}: {reply:?}");
            }
        }
    }
}

#[test]
fn a_client_that_keeps_the_right_keeps_its_turn_and_its_pipeline() {
    let server = Server::start();
    let (mut admin, mut bob, mut next) = (server.client(), server.client(), server.client());
    admin.line("ACL SETUSER bob on nopass +@all ~key ~rest").is_ok();
    bob.line("AUTH bob x").is_ok();
    server.have_wait(&mut bob, "BLPOP key 0");
    server.have_wait(&mut next, "BLPOP key 0");
    bob.send(&[line("BLPOP rest 0"), line("GET none")].concat());
    admin.send(&[line("ACL SETUSER bob -get"), line("RPUSH key a b")].concat());
    admin.reply().is_ok();
    admin.reply().is(2);
    assert_eq!(bob.reply_bytes(), pair("key", "a"));
    assert_eq!(next.reply_bytes(), pair("key", "b"));
    wait_until("bob waits", || admin.info("blocked_clients") == "1");
    admin.send(&[line("ACL SETUSER bob resetkeys ~other"), line("RPUSH rest c")].concat());
    admin.reply().is_ok();
    admin.reply().is(1);
    assert!(bob.reply().text().starts_with("NOPERM "));
    assert!(bob.reply().text().starts_with("NOPERM "));
    // He waits at the end of the queue next time, and as long as he says then.
    server.have_wait(&mut next, "BLPOP other 0");
    server.have_wait(&mut bob, "BLPOP other 0");
    admin.line("RPUSH other d").is(1);
    assert_eq!(next.reply_bytes(), pair("other", "d"));
}

/// Clients use the smallest number of their language for a timeout that ends at once: 0 would be for ever.
#[test]
fn a_timeout_ends_however_short_it_is() {
    let mut client = Server::start().into_client();
    for timeout in ["5e-324", "1e-400", "0.0000000000000000001"] {
        client.cmd(["BLPOP", "k", timeout]).is_nil();
        client.cmd(["BLMOVE", "k", "l", "LEFT", "LEFT", timeout]).is_nil();
        client.cmd(["BZMPOP", timeout, "1", "k", "MIN"]).is_nil();
    }
}

#[test]
fn a_client_that_waits_in_a_transaction_or_a_script_does_not_wait() {
    let mut client = Server::start().into_client();
    client.line("MULTI").is_ok();
    for line in ["BLPOP k 0", "BLMOVE k l LEFT LEFT 0", "BZPOPMAX k 0", "BZMPOP 0 1 k MIN"] {
        client.line(line).is_simple("QUEUED");
    }
    let nil = || support::client::Reply::Null;
    client.line("EXEC").is(support::client::Reply::Array(vec![nil(), nil(), nil(), nil()]));
    client.cmd(["EVAL", "return redis.call('BLPOP', 'k', 0)", "0"]).is_nil();
}

#[test]
fn each_element_goes_to_one_client_however_many_wait() {
    const WORKERS: usize = 8;
    const ELEMENTS: usize = 4000;
    let server = Server::start();
    let got: Vec<Vec<String>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let mut client = server.client();
                let targets = number % 2 == 1;
                scope.spawn(move || {
                    let mut got = Vec::new();
                    loop {
                        let line = match targets {
                            true => format!("BLMOVE queue moved:{number}:{} LEFT RIGHT 0", got.len()),
                            false => "BLPOP none queue 0".to_owned(),
                        };
                        client.send(&request(line.split(' ')));
                        let reply = String::from_utf8(client.reply_bytes()).unwrap();
                        let element = reply.trim_end().rsplit("\r\n").next().unwrap().to_owned();
                        if element == "end" {
                            return got;
                        }
                        got.push(element);
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..2)
            .map(|producer| {
                let mut client = server.client();
                scope.spawn(move || {
                    for number in (producer..ELEMENTS).step_by(2) {
                        client.cmd(["RPUSH", "queue", &number.to_string()]).ignored();
                    }
                })
            })
            .collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        let mut last = server.client();
        wait_until("no element is left", || last.line("LLEN queue").integer() == 0);
        for _ in 0..WORKERS {
            last.line("RPUSH queue end").ignored();
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut all: Vec<usize> = got.concat().iter().map(|element| element.parse().unwrap()).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..ELEMENTS), "an element came twice, or never");
}

#[test]
fn clients_that_wait_on_one_key_for_different_types_get_their_own() {
    let server = Server::start();
    let (mut listing, mut ranking) = (server.client(), server.client());
    server.have_wait(&mut listing, "BLPOP key 0");
    server.have_wait(&mut ranking, "BZPOPMIN key 0");
    server.client().line("ZADD key 1 member").is(1);
    assert_eq!(ranking.reply_bytes(), b"*3\r\n$3\r\nkey\r\n$6\r\nmember\r\n$1\r\n1\r\n");
    server.client().line("RPUSH key element").is(1);
    assert_eq!(listing.reply_bytes(), pair("key", "element"));
}

#[test]
fn clients_that_wait_for_very_many_keys_get_each_element_once() {
    const KEYS: usize = 2000;
    let server = Server::start();
    let blpop = |timeout: &str| {
        let keys = (0..KEYS).map(|number| format!("k{number}"));
        let words = ["BLPOP".to_owned()].into_iter().chain(keys).chain([timeout.to_owned()]);
        request(words.collect::<Vec<_>>())
    };
    let mut client = server.client();
    client.line("RPUSH k1999 last").is(1);
    client.line("RPUSH k5 first").is(1);
    for (key, element) in [("k5", "first"), ("k1999", "last")] {
        client.send(&blpop("0"));
        assert_eq!(client.reply_bytes(), pair(key, element), "the first key that has something");
    }
    client.send(&blpop("0.05"));
    assert_eq!(client.reply_bytes(), b"*-1\r\n");
    client.line("SET k7 text").is_ok();
    client.send(&blpop("0"));
    client.reply().is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    client.line("DEL k7").is(1);
    thread::scope(|scope| {
        let takers: Vec<_> = (0..3)
            .map(|_| {
                let (mut client, request) = (server.client(), blpop("60"));
                scope.spawn(move || {
                    let take = |_| {
                        client.send(&request);
                        String::from_utf8_lossy(&client.reply_bytes()).into_owned()
                    };
                    (0..30).map(take).collect::<Vec<String>>()
                })
            })
            .collect();
        for number in 0..90 {
            let mut client = server.client();
            client.line(&format!("RPUSH k{} element:{number}", number * 7919 % KEYS)).is(1);
        }
        let taken = takers.into_iter().flat_map(|taker| taker.join().expect("it gets its replies"));
        let mut taken: Vec<String> = taken.collect();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 90, "{taken:?}");
    });
    assert_eq!(client.info("blocked_clients"), "0");
    client.line("DBSIZE").is(0);
}
