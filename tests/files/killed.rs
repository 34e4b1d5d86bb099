//! A server that is killed (SIGKILL) under load, with `appendfsync everysec` or `no`: what a client has a
//! reply for is there afterwards, and so is what a client has seen or heard of.
//!
//! Each worker counts: in its own way, up from what is there. It knows the last number of a reply. After the
//! kill the server starts again, and has that number or a later one.
//!
//! `KEYFAST_KILLS=200` kills as many servers for each setting.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::{Server, wait_until};

/// Kills for each setting, unless more are asked for.
const KILLS: usize = 4;

/// What a worker has in its last reply, and where the number is afterwards.
struct Worker {
    name: &'static str,
    work: fn(&Server, &AtomicI64) -> io::Result<()>,
    /// The number in the server.
    found: fn(&mut Client) -> i64,
}

const WORKERS: &[Worker] = &[
    Worker { name: "one by one", work: |server, known| count(server, known, 1), found: |c| number(c, "n:1") },
    Worker {
        name: "16 at once",
        work: |server, known| count(server, known, 16),
        found: |c| number(c, "n:16"),
    },
    Worker {
        name: "100 at once",
        work: |server, known| count(server, known, 100),
        found: |c| number(c, "n:100"),
    },
    Worker {
        name: "10,000 at once",
        work: |server, known| count(server, known, 10_000),
        found: |c| number(c, "n:10000"),
    },
    Worker { name: "EXEC", work: count_in_exec, found: |c| number(c, "exec") },
    Worker { name: "EVAL", work: count_in_script, found: |c| number(c, "eval") },
    Worker { name: "long values", work: count_in_long_values, found: |c| c.line("STRLEN long").integer() },
    Worker { name: "RPUSH", work: push, found: |c| last(c, "queue").max(last(c, "taken")) },
    Worker { name: "BLMOVE, served by RPUSH", work: take, found: |c| last(c, "taken") },
    Worker { name: "GET, of another client's number", work: read, found: |c| number(c, "n:1") },
    Worker { name: "an event of another client's change", work: listen, found: |c| number(c, "n:16") },
    Worker { name: "a lock, granted by RELEASE", work: hold, found: held },
    Worker { name: "no reply", work: count_silently, found: |c| number(c, "silent") },
    Worker { name: "rewriting", work: rewrite, found: |_| i64::MAX },
];

fn number(client: &mut Client, key: &str) -> i64 {
    match client.cmd(["GET", key]).reply() {
        Reply::Bulk(digits) => String::from_utf8(digits).unwrap().parse().unwrap(),
        _ => 0,
    }
}

/// The last element of a list of numbers; 0 if it is empty.
fn last(client: &mut Client, list: &str) -> i64 {
    match client.cmd(["LINDEX", list, "-1"]).reply() {
        Reply::Bulk(digits) => String::from_utf8(digits).unwrap().parse().unwrap(),
        _ => 0,
    }
}

/// Reads replies: the last one has the number.
fn integer(client: &mut Client, replies: usize) -> io::Result<i64> {
    let mut reply = Reply::Null;
    for _ in 0..replies {
        reply = Reply::decode(&client.try_reply_bytes()?).0;
    }
    match reply {
        Reply::Integer(number) => Ok(number),
        Reply::Array(replies) if matches!(replies[..], [.., Reply::Integer(_)]) => {
            let [.., Reply::Integer(number)] = replies[..] else { unreachable!("it was looked at") };
            Ok(number)
        }
        Reply::Bulk(digits) => Ok(String::from_utf8(digits).unwrap().parse().unwrap()),
        Reply::Null => Ok(0),
        other => panic!("no number: {other:?}"),
    }
}

/// Sends the same bytes for ever, and notes the number in the last reply.
fn repeat(mut client: Client, bytes: &[u8], replies: usize, known: &AtomicI64) -> io::Result<()> {
    loop {
        client.try_send(bytes)?;
        known.store(integer(&mut client, replies)?, Ordering::Release);
    }
}

fn count(server: &Server, known: &AtomicI64, depth: usize) -> io::Result<()> {
    let bytes = request(["INCR", &format!("n:{depth}")]).repeat(depth);
    repeat(Client::try_connect(server.address())?, &bytes, depth, known)
}

fn count_in_exec(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let requests = [
        request(["MULTI"]),
        request(["HINCRBY", "hash", "field", "1"]),
        request(["INCR", "exec"]),
        request(["EXEC"]),
    ];
    repeat(Client::try_connect(server.address())?, &requests.concat(), 4, known)
}

fn count_in_script(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let script = "redis.call('ZADD', KEYS[1], 1, 'member') return redis.call('INCR', KEYS[2])";
    let bytes = request(["EVAL", script, "2", "scores", "eval"]);
    repeat(Client::try_connect(server.address())?, &bytes, 1, known)
}

/// Values so long that the log's thread writes them.
fn count_in_long_values(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let mut client = Client::try_connect(server.address())?;
    for bytes in 300_000.. {
        client.try_send(&request(["SET", "long", &"v".repeat(bytes)]))?;
        client.try_reply_bytes()?;
        known.store(bytes as i64, Ordering::Release);
    }
    Ok(())
}

fn push(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let mut client = Client::try_connect(server.address())?;
    for number in 1.. {
        client.try_send(&request(["RPUSH", "queue", &number.to_string()]))?;
        client.try_reply_bytes()?;
        known.store(number, Ordering::Release);
    }
    Ok(())
}

fn take(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let bytes = request(["BLMOVE", "queue", "taken", "LEFT", "RIGHT", "0"]);
    repeat(Client::try_connect(server.address())?, &bytes, 1, known)
}

fn read(server: &Server, known: &AtomicI64) -> io::Result<()> {
    repeat(Client::try_connect(server.address())?, &request(["GET", "n:1"]), 1, known)
}

fn listen(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let mut client = Client::try_connect(server.address())?;
    client.try_send(&request(["SUBSCRIBE", "__keyspace@0__:n:16"]))?;
    client.try_reply_bytes()?;
    loop {
        client.try_reply_bytes()?;
        known.fetch_add(1, Ordering::Release);
    }
}

/// Two clients take the same lock in turn, and count while they hold it. The first one notes its numbers.
fn hold(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let in_turn = |name: &str, known: &AtomicI64| -> io::Result<()> {
        let mut client = Client::try_connect(server.address())?;
        loop {
            let acquire = format!("LOCK ACQUIRE lock {name} PX 600000 WAIT 600000");
            assert!(matches!(client.try_line(&acquire)?, Reply::Integer(_)));
            for _ in 0..3 {
                client.try_send(&request(["INCR", "held"]))?;
                known.store(integer(&mut client, 1)?, Ordering::Release);
            }
            client.try_line(&format!("LOCK RELEASE lock {name}"))?;
        }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| in_turn("other", &AtomicI64::new(0)));
        let first = in_turn("first", known);
        first.and(other.join().unwrap())
    })
}

/// The number that was counted under the lock. If it is in the middle of a turn, the lock has its holder.
fn held(client: &mut Client) -> i64 {
    let counted = number(client, "held");
    let holder = client.line("GET lock").reply();
    assert!(counted % 3 == 0 || holder != Reply::Null, "{counted} were counted under a lock that is gone");
    counted
}

/// A client that wants no replies but one in a hundred.
fn count_silently(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let silent = [request(["CLIENT", "REPLY", "SKIP"]), request(["INCR", "silent"])].concat().repeat(99);
    let bytes = [silent, request(["INCR", "silent"])].concat();
    repeat(Client::try_connect(server.address())?, &bytes, 1, known)
}

fn rewrite(server: &Server, known: &AtomicI64) -> io::Result<()> {
    let mut client = Client::try_connect(server.address())?;
    loop {
        client.try_line("BGREWRITEAOF")?;
        known.fetch_add(1, Ordering::Release);
        client.try_line("BLPOP nothing 0.01")?;
    }
}

/// Has workers count on a server until it is killed. Returns what each of them knows.
fn count_until_killed(server: Server, pause: Duration) -> Vec<i64> {
    let known: Vec<AtomicI64> = WORKERS.iter().map(|_| AtomicI64::new(0)).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = &server;
        for (worker, known) in WORKERS.iter().zip(&known) {
            let is_over = &is_over;
            scope.spawn(move || {
                let ended = (worker.work)(server, known);
                assert!(is_over.load(Ordering::Acquire), "{} ended early: {ended:?}", worker.name);
            });
        }
        wait_until("all have replies", || known.iter().all(|known| known.load(Ordering::Acquire) > 0));
        thread::sleep(pause);
        is_over.store(true, Ordering::Release);
        server.signal("KILL");
    });
    known.into_iter().map(AtomicI64::into_inner).collect()
}

/// Kills servers, each of which starts from what the one before has left.
fn nothing_is_lost(name: &str, options: &[&str], also: impl Fn(&mut Client)) {
    let asked_for = std::env::var("KEYFAST_KILLS").ok();
    let kills = asked_for.map_or(KILLS, |number| number.parse().expect("KEYFAST_KILLS is a number"));
    let folder = Folder::new(&format!("killed-{name}"));
    let mut random = fastrand::Rng::with_seed(name.len() as u64);
    for kill in 0..kills {
        let threads = random.u8(1..=4).to_string();
        let log = ["--appendonly", "yes", "--io-threads", &threads, "--auto-aof-rewrite-percentage", "0"];
        let server = folder.serve(&[&log[..], options].concat());
        let mut client = server.client();
        client.line("FLUSHALL").is_ok();
        client.line("CONFIG SET notify-keyspace-events K$").is_ok();
        also(&mut client);
        let known = count_until_killed(server, Duration::from_millis(random.u64(0..60)));
        let server = folder.serve(&["--appendonly", "yes"]);
        let mut client = server.client();
        for (worker, known) in WORKERS.iter().zip(known) {
            let found = (worker.found)(&mut client);
            assert!(found >= known, "kill {kill}: {}: {known} was known, {found} is there", worker.name);
        }
    }
}

#[test]
fn what_a_client_has_a_reply_for_survives_a_kill_though_syncs_come_later() {
    nothing_is_lost("everysec", &["--appendfsync", "everysec"], |_| ());
}

#[test]
fn what_a_client_has_a_reply_for_survives_a_kill_though_only_the_system_syncs() {
    nothing_is_lost("no", &["--appendfsync", "no"], |_| ());
}

#[test]
fn what_a_client_has_a_reply_for_survives_a_kill_in_a_log_that_was_begun_by_then() {
    nothing_is_lost("begun", &["--appendfsync", "everysec"], |client| {
        client.line("CONFIG SET appendonly no").is_ok();
        client.line("CONFIG SET appendonly yes").is_ok();
        wait_until("the log is whole", || client.info("aof_rewrite_in_progress") == "0");
        client.line("CONFIG SET appendfsync no").is_ok();
    });
}
