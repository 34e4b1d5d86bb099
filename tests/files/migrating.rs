//! MIGRATE: keys on their way to another server, and what becomes of them when clients, the target or the
//! caller do something else meanwhile. RESTORE-ASKING.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::log::ALWAYS;
use support::server::{Server, SetOnDrop, free_port, wait_until};
use support::store::cluster::{Cluster, Kind};

/// A server whose replies the test writes.
struct Impostor(TcpListener);

impl Impostor {
    fn start() -> Impostor {
        Impostor(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Accepts a connection and answers SELECT.
    fn greeted(&self) -> TcpStream {
        let (mut stream, _) = self.0.accept().unwrap();
        read_until(&mut stream, b"SELECT\r\n$1\r\n0\r\n");
        stream.write_all(b"+OK\r\n").unwrap();
        stream
    }
}

/// Begins a request through this stand-in for the target, does something when the target has stored the value
/// and the source does not know it yet, and returns the reply to the request.
fn while_it_arrives(here: &mut Client, target: &Server, rest: &str, act: impl FnOnce()) -> Reply {
    let between = Impostor::start();
    here.send(format!("MIGRATE 127.0.0.1 {} {rest}\r\n", between.port()).as_bytes());
    let (source, _) = between.0.accept().unwrap();
    let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target.port())).unwrap();
    let pass =
        |mut from: TcpStream, mut to: TcpStream| thread::spawn(move || io::copy(&mut from, &mut to).ok());
    pass(source.try_clone().unwrap(), target.try_clone().unwrap());
    let (mut replies, mut source) = (BufReader::new(target), source);
    let mut pass_reply = |before: Option<Box<dyn FnOnce() + '_>>| {
        let mut line = Vec::new();
        replies.read_until(b'\n', &mut line).unwrap();
        before.into_iter().for_each(|act| act());
        source.write_all(&line).unwrap();
    };
    pass_reply(None);
    pass_reply(Some(Box::new(act)));
    assert!(replies.buffer().is_empty());
    pass(replies.into_inner(), source);
    here.reply().reply()
}

/// Reads until this has come.
fn read_until(stream: &mut TcpStream, part: &[u8]) {
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    while !read.windows(part.len()).any(|window| window == part) {
        let length = stream.read(&mut piece).unwrap();
        assert!(length > 0, "{}", read.escape_ascii());
        read.extend_from_slice(&piece[..length]);
    }
}

fn migrate(target: &Server, rest: &str) -> String {
    format!("MIGRATE 127.0.0.1 {} {rest}", target.port())
}

fn pair() -> (Server, Server, Client, Client) {
    let (source, target) = (Server::start(), Server::start());
    let (here, there) = (source.client(), target.client());
    (source, target, here, there)
}

marked!(also_redis: keys_move_with_their_values_and_expiries);
fn keys_move_with_their_values_and_expiries() {
    let (_source, target, mut here, mut there) = pair();
    here.line("SET k v PX 600000").is_ok();
    here.line("HSET h f 1 g 2").is(2);
    here.line("RPUSH l a b c").is(3);
    here.line("ZADD z 1 a 2 b").is(2);
    here.line("XADD x 1-1 f v").is("1-1");
    here.line(&migrate(&target, "k 0 1000")).is_ok();
    here.line(&migrate(&target, "k 0 1000")).is_simple("NOKEY");
    here.line("EXISTS k").is(0);
    there.line("GET k").is("v");
    let ttl_ms = there.line("PTTL k").integer();
    assert!(ttl_ms > 500_000 && ttl_ms <= 600_000, "{ttl_ms}");
    here.line(&migrate(&target, "\"\" 3 1000 KEYS h l nosuch z x")).is_ok();
    here.line("DBSIZE").is(0);
    there.line("SELECT 3").is_ok();
    there.line("HGET h g").is("2");
    there.line("LINDEX l 2").is("c");
    there.line("ZSCORE z b").is("2");
    there.line("XLEN x").is(1);
    there.line("DBSIZE").is(4);
}

marked!(also_redis: replies_are_those_of_redis);
fn replies_are_those_of_redis() {
    let (_source, target, mut here, mut there) = pair();
    for key in ["a", "b", "c"] {
        here.cmd(["SET", key, "v"]).is_ok();
    }
    for (rest, error) in [
        ("a x 1000", "ERR value is not an integer or out of range"),
        ("a 0 x", "ERR value is not an integer or out of range"),
        ("a 0 1000 NOSUCH", "ERR syntax error"),
        ("a 0 1000 AUTH", "ERR syntax error"),
        ("a 0 1000 AUTH2 u", "ERR syntax error"),
        (
            "a 0 1000 KEYS b",
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
        ("a 99 1000", "ERR Target instance replied with error: ERR DB index is out of range"),
        (
            "a 0 1000 AUTH2 u p",
            "ERR Target instance replied with error: \
             WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ] {
        here.line(&migrate(&target, rest)).is_error(error);
        here.line("EXISTS a").is(1);
    }
    here.line("MIGRATE 127.0.0.1 6379 a").is_error("ERR wrong number of arguments for 'migrate' command");
    here.line("MIGRATE no.such.host.invalid 6379 a 0 5000")
        .is_error("IOERR error or timeout connecting to the client");
    here.line(&format!("MIGRATE 127.0.0.1 {} a 0 1000", free_port()))
        .is_error("IOERR error or timeout writing to target instance");
    here.line(&migrate(&target, "\"\" 0 1000 KEYS")).is_simple("NOKEY");
    here.line(&migrate(&target, "\"\" 0 1000 KEYS x y")).is_simple("NOKEY");
    there.line("FLUSHALL").is_ok();
    // The timeout is a second if it is not positive.
    here.line(&migrate(&target, "a 0 0 COPY")).is_ok();
    here.line(&migrate(&target, "a 0 -1"))
        .is_error("ERR Target instance replied with error: BUSYKEY Target key name already exists.");
    here.line(&migrate(&target, "\"\" 0 1000 KEYS b a c"))
        .is_error("ERR Target instance replied with error: BUSYKEY Target key name already exists.");
    here.line("EXISTS b c").is(0);
    here.line(&migrate(&target, "a 0 1000 REPLACE")).is_ok();
    there.line("DBSIZE").is(3);
    for (line, count) in [
        ("MIGRATE h 1 k 0 0 COPY", 1),
        ("MIGRATE h 1 \"\" 0 0 KEYS a b", 2),
        ("MIGRATE h 1 \"\" 0 0 AUTH keys KEYS a b", 2),
    ] {
        assert_eq!(here.line(&format!("COMMAND GETKEYS {line}")).items().len(), count, "{line}");
    }
    here.line("COMMAND GETKEYS MIGRATE h 1 k 0 0 KEYS a")
        .is_error("ERR Invalid arguments specified for command");
}

marked!(also_redis: users_need_rights_on_the_keys_behind_the_word);
fn users_need_rights_on_the_keys_behind_the_word() {
    let (_source, target, mut here, mut there) = pair();
    here.line("MSET a:1 v b:1 v").is_ok();
    here.line("ACL SETUSER mover on nopass +migrate ~a:* %R~b:*").is_ok();
    here.line("AUTH mover any").is_ok();
    for rest in ["b:1 0 1000", "\"\" 0 1000 KEYS a:1 b:1"] {
        let refused = here.line(&migrate(&target, rest)).text();
        assert!(refused.starts_with("NOPERM"), "{refused}");
    }
    here.line(&migrate(&target, "\"\" 0 1000 KEYS a:1")).is_ok();
    there.line("GET a:1").is("v");
}

marked!(also_redis: a_password_for_the_target_is_seen_by_nobody);
fn a_password_for_the_target_is_seen_by_nobody() {
    let (source, target, mut here, mut there) = pair();
    here.line("SET k v").is_ok();
    there.line("ACL SETUSER u on >secret ~* +@all").is_ok();
    there.line("CONFIG SET requirepass secret").is_ok();
    here.line("CONFIG SET slowlog-log-slower-than 0").is_ok();
    let mut monitor = source.client();
    monitor.line("MONITOR").is_ok();
    here.line(&migrate(&target, "k 0 1000"))
        .is_error("ERR Target instance replied with error: NOAUTH Authentication required.");
    here.line(&migrate(&target, "k 0 1000 AUTH secret COPY")).is_ok();
    here.line(&migrate(&target, "\"\" 0 1000 AUTH2 u secret REPLACE KEYS k")).is_ok();
    here.line("PING").is_simple("PONG");
    let mut seen = String::new();
    while !seen.contains("\"PING\"") {
        seen.push_str(&monitor.reply().text());
    }
    let slow = here.line("SLOWLOG GET -1").reply().to_string();
    for text in [seen, slow] {
        assert!(text.contains("(redacted)") && !text.contains("secret"), "{text}");
    }
}

marked!(also_redis: a_copy_of_a_cluster_is_restored_with_asking);
fn a_copy_of_a_cluster_is_restored_with_asking() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP k").reply() else { panic!("no payload") };
    client.cmd([&b"RESTORE-ASKING"[..], b"copy", b"0", &payload]).is_ok();
    client.line("GET copy").is("v");
    client
        .cmd([&b"restore-asking"[..], b"copy", b"0", &payload])
        .is_error("BUSYKEY Target key name already exists.");
}

marked!(also_redis: what_has_moved_is_deleted_for_those_who_follow);
fn what_has_moved_is_deleted_for_those_who_follow() {
    let (source, target, mut here, _there) = pair();
    here.line("CONFIG SET notify-keyspace-events Kg").is_ok();
    let mut listener = source.client();
    listener.line("SUBSCRIBE __keyspace@0__:k").ignored();
    here.line("MSET k v copied v").is_ok();
    here.line(&migrate(&target, "copied 0 1000 COPY")).is_ok();
    here.line(&migrate(&target, "k 0 1000")).is_ok();
    assert_eq!(listener.reply().items()[2], "del".into());
}

#[test]
fn the_log_has_the_deletion() {
    let folder = Folder::new("migrate-log");
    let target = Server::start();
    let server = folder.serve(ALWAYS);
    let mut client = server.client();
    client.line("MSET k v l w").is_ok();
    client.line(&migrate(&target, "k 0 1000")).is_ok();
    drop((client, server));
    let mut client = folder.serve(ALWAYS).into_client();
    client.line("EXISTS k").is(0);
    client.line("GET l").is("w");
}

/// Of each key, the value is here or there, and it is what was acknowledged.
fn count_while_moving(target: &Server, there: &mut Client) {
    const KEYS: usize = 200;
    let source = Server::start();
    let mut here = source.client();
    let is_over = AtomicBool::new(false);
    let acknowledged: Vec<i64> = thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        let counting = scope.spawn(|| {
            let mut client = source.client();
            let mut sums = vec![0; KEYS];
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                // Only what is there counts: what has moved is counted no more.
                let key = format!("n{}", number % KEYS);
                let reply = client
                    .cmd([
                        "EVAL",
                        "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('INCR', KEYS[1])",
                        "1",
                        &key,
                    ])
                    .reply();
                if let Reply::Integer(sum) = reply {
                    sums[number % KEYS] = sum;
                }
                number += 1;
            }
            sums
        });
        for number in 0..KEYS {
            here.cmd(["SET", &format!("n{number}"), "0"]).is_ok();
        }
        for number in 0..KEYS {
            let key = format!("n{number}");
            let port = target.port().to_string();
            let (host, database, timeout) = ("127.0.0.1", "0", "5000");
            match here.cmd(["MIGRATE", host, &port, &key, database, timeout]).reply() {
                Reply::Simple(text) => assert_eq!(text, "OK"),
                other => assert!(format!("{other:?}").contains("Clients changed the key"), "{other:?}"),
            }
        }
        is_over.store(true, Ordering::Relaxed);
        counting.join().unwrap()
    });
    let mut moved = 0;
    for (number, sum) in acknowledged.iter().enumerate() {
        let get = ["GET".to_owned(), format!("n{number}")];
        let (own, other) = (here.cmd(&get).reply(), there.cmd(&get).reply());
        moved += usize::from(own == Reply::Null);
        let value = if own == Reply::Null { &other } else { &own };
        assert_eq!(*value, Reply::from(sum.to_string().as_str()), "n{number}: {own:?} {other:?}");
        assert!(own == Reply::Null || other == Reply::Null, "n{number} is in both places");
    }
    assert!(moved > KEYS / 2, "{moved}");
}

#[test]
fn no_increment_is_lost_while_a_key_moves() {
    let target = Server::start();
    count_while_moving(&target, &mut target.client());
}

marked!(needs_tools: no_increment_is_lost_on_the_way_to_a_real_redis);
fn no_increment_is_lost_on_the_way_to_a_real_redis() {
    let Some(target) = Server::start_redis(&[]) else { return };
    count_while_moving(&target, &mut target.client());
}

#[test]
fn a_key_that_changes_is_sent_again_and_one_that_is_deleted_is_deleted_there() {
    let (source, here) = (Server::start(), Impostor::start());
    let mut client = source.client();
    let mut other = source.client();
    client.line("SET k v").is_ok();
    let Reply::Bulk(former) = client.line("DUMP k").reply() else { panic!("no payload") };
    let former = [format!("+OK\r\n${}\r\n", former.len()).as_bytes(), &former, b"\r\n"].concat();
    for (change, is_deleted) in [
        ("SET k w", false),
        ("EXPIRE k 1000", false),
        ("DEL k", true),
        ("RENAME k l", true),
        ("FLUSHALL", true),
    ] {
        client.line("SET k v").is_ok();
        client.send(format!("MIGRATE 127.0.0.1 {} k 0 10000\r\n", here.port()).as_bytes());
        let mut stream = here.greeted();
        read_until(&mut stream, b"RESTORE\r\n$1\r\nk\r\n");
        other.line(change).ignored();
        stream.write_all(b"+OK\r\n").unwrap();
        // It is deleted there only if it is still what was sent.
        read_until(&mut stream, b"*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n*2\r\n$4\r\nDUMP\r\n$1\r\nk\r\n");
        stream.write_all(&former).unwrap();
        read_until(&mut stream, b"MULTI\r\n");
        stream.write_all(b"+OK\r\n").unwrap();
        read_until(&mut stream, b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n");
        stream.write_all(b"+QUEUED\r\n*1\r\n:1\r\n").unwrap();
        if !is_deleted {
            read_until(&mut stream, b"RESTORE\r\n$1\r\nk\r\n");
            stream.write_all(b"+OK\r\n").unwrap();
        }
        client.reply().is_simple(if is_deleted { "NOKEY" } else { "OK" });
        other.line("EXISTS k").is(0);
    }
    // A change that never ends: after some time it stays, and is taken back. REPLACE needs no look.
    client.line("SET k v").is_ok();
    client.send(format!("MIGRATE 127.0.0.1 {} k 0 10000 REPLACE\r\n", here.port()).as_bytes());
    let mut stream = here.greeted();
    let mut piece = vec![0; 4096];
    let mut count = 0;
    loop {
        let length = stream.read(&mut piece).unwrap();
        if piece[..length].starts_with(b"*2\r\n$5\r\nWATCH") {
            break;
        }
        count += 1;
        other.line("APPEND k v").ignored();
        stream.write_all(b"+OK\r\n").unwrap();
    }
    stream.write_all(b"+OK\r\n$-1\r\n").unwrap();
    read_until(&mut stream, b"UNWATCH\r\n");
    stream.write_all(b"+OK\r\n").unwrap();
    client
        .reply()
        .is_error("ERR Clients changed the key each time it was sent: it is still here, and not there");
    other.line("STRLEN k").is(count + 1);
}

/// Whatever way leads back to the server. Its keys stay what they are.
#[test]
fn a_key_that_is_sent_to_the_server_itself_stays() {
    let server = Server::start();
    let (mut client, between) = (server.client(), Impostor::start());
    let proxy_port = between.port();
    let target_port = server.port();
    thread::spawn(move || {
        while let Ok((source, _)) = between.0.accept() {
            let target = TcpStream::connect((Ipv4Addr::LOCALHOST, target_port)).unwrap();
            let ways = [(source.try_clone(), target.try_clone()), (target.try_clone(), source.try_clone())];
            for (from, to) in ways {
                let (mut from, mut to) = (from.unwrap(), to.unwrap());
                thread::spawn(move || io::copy(&mut from, &mut to).ok());
            }
        }
    });
    let direct = format!("127.0.0.1 {target_port}");
    for way in [direct.clone(), format!("127.1 {target_port}"), format!("127.0.0.1 {proxy_port}")] {
        for keys in ["k 0 5000", "\"\" 0 5000", "l 0 5000 REPLACE", "k 0 5000 COPY REPLACE"] {
            client.line("SET k v PX 600000").is_ok();
            client.line("RPUSH l a b").ignored();
            let behind = if keys.starts_with('"') { " REPLACE KEYS k l" } else { "" };
            let refused = client.line(&format!("MIGRATE {way} {keys}{behind}")).text();
            assert!(refused.starts_with("ERR Target instance replied with error: TRYAGAIN"), "{refused}");
            client.line("GET k").is("v");
            assert!(client.line("PTTL k").integer() > 500_000);
            client.line("LINDEX l 0").is("a");
        }
    }
    // Another database of it is another place.
    client.line(&format!("MIGRATE {direct} \"\" 1 5000 KEYS k l")).is_ok();
    client.line("EXISTS k l").is(0);
    client.line("SELECT 1").is_ok();
    client.line("EXISTS k l").is(2);
}

#[test]
fn a_key_that_two_servers_send_to_each_other_is_lost_on_neither() {
    let (one, other, mut here, mut there) = pair();
    for round in 0..15 {
        here.line("SET k here").is_ok();
        there.line("SET k there").is_ok();
        let options = if round % 2 == 0 { "REPLACE" } else { "" };
        here.send(format!("{}\r\n", migrate(&other, &format!("k 0 5000 {options}"))).as_bytes());
        there.send(format!("{}\r\n", migrate(&one, &format!("k 0 5000 {options}"))).as_bytes());
        let replies = (here.reply().reply(), there.reply().reply());
        let left = here.line("EXISTS k").integer() + there.line("EXISTS k").integer();
        assert!(left > 0, "{replies:?}");
    }
}

/// The value that is on its way is the only one of the key: a value that comes from elsewhere would be lost,
/// or would replace it.
#[test]
fn no_restore_replaces_a_key_while_it_is_given_away() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let (mut client, mut other) = (source.client(), source.client());
    client.line("SET k v PX 30000").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP k").reply() else { panic!("no payload") };
    client.send(format!("MIGRATE 127.0.0.1 {} k 0 60000\r\n", impostor.port()).as_bytes());
    let mut stream = impostor.greeted();
    read_until(&mut stream, b"RESTORE\r\n");
    let refused = "TRYAGAIN MIGRATE is giving this key away";
    for end in [&b"REPLACE"[..], b"ABSTTL"] {
        other.cmd([&b"RESTORE"[..], b"k", b"0", &payload, end]).is_error(refused);
    }
    other.line("MULTI").is_ok();
    other.cmd([&b"RESTORE"[..], b"k", b"0", &payload, b"REPLACE"]).is_simple("QUEUED");
    assert_eq!(other.line("EXEC").items(), [Reply::Error(refused.to_owned())]);
    other.line("GET k").is("v");
    other.cmd([&b"RESTORE"[..], b"other", b"0", &payload]).is_ok();
    other.line("SELECT 1").is_ok();
    other.cmd([&b"RESTORE"[..], b"k", b"0", &payload]).is_ok();
    other.line("SELECT 0").is_ok();
    stream.write_all(b"+OK\r\n").unwrap();
    client.reply().is_ok();
    other.cmd([&b"RESTORE"[..], b"k", b"0", &payload]).is_ok();
}

/// Only what is still as it was sent is deleted or replaced at the target: its clients may have written it
/// meanwhile.
fn changed_on_both_sides(target: &Server) {
    let source = Server::start();
    let (mut here, mut other, mut there) = (source.client(), source.client(), target.client());
    for (make, change) in [
        ("SET k v", "APPEND k w"),
        ("RPUSH k a b a", "RPUSH k c"),
        ("SADD k a b c", "SADD k d"),
        ("HSET k f v g w", "HSET k f x"),
        ("ZADD k 1.5 a 2 b", "ZADD k 3 a"),
        ("XADD k 1-1 f v", "XADD k 1-2 f v"),
    ] {
        for (there_too, is_replaced) in [(false, false), (true, false), (false, true), (true, true)] {
            there.line("FLUSHALL").is_ok();
            here.line("FLUSHALL").is_ok();
            here.line(make).ignored();
            let rest = if is_replaced { "k 0 5000 REPLACE" } else { "k 0 5000" };
            let reply = while_it_arrives(&mut here, target, rest, || {
                other.line(change).ignored();
                if there_too {
                    there.line(change).ignored();
                    there.line("EXPIRE k 1000").is(1);
                }
            });
            let is_kept = there_too && !is_replaced;
            let busy = "ERR Target instance replied with error: BUSYKEY Target key name already exists.";
            let expected =
                if is_kept { Reply::Error(busy.to_owned()) } else { Reply::Simple("OK".to_owned()) };
            assert_eq!(reply, expected, "{change}");
            other.line("EXISTS k").is(i64::from(is_kept));
            let left_s = there.line("TTL k").integer();
            assert_eq!(left_s > 0, is_kept, "{change}: {left_s}");
            // One that was deleted here is deleted there, if it is still what was sent.
            there.line("FLUSHALL").is_ok();
            here.line("FLUSHALL").is_ok();
            here.line(make).ignored();
            while_it_arrives(&mut here, target, rest, || {
                other.line("DEL k").is(1);
                if there_too {
                    there.line(change).ignored();
                }
            })
            .to_string();
            there.line("EXISTS k").is(i64::from(there_too));
        }
    }
}

#[test]
fn what_clients_of_the_target_have_written_is_not_deleted_there() {
    changed_on_both_sides(&Server::start());
}

marked!(needs_tools: what_clients_of_a_real_redis_have_written_is_not_deleted_there);
fn what_clients_of_a_real_redis_have_written_is_not_deleted_there() {
    let Some(target) = Server::start_redis(&[]) else { return };
    changed_on_both_sides(&target);
}

/// A target that lets nothing be looked at, or sends what cannot be.
#[test]
fn what_cannot_be_compared_stays_at_the_target() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let (mut client, mut other) = (source.client(), source.client());
    let begin = |client: &mut Client, other: &mut Client| {
        client.line("SET k v").is_ok();
        client.send(format!("MIGRATE 127.0.0.1 {} k 0 5000\r\n", impostor.port()).as_bytes());
        let mut stream = impostor.greeted();
        read_until(&mut stream, b"RESTORE\r\n$1\r\nk\r\n");
        other.line("DEL k").is(1);
        stream.write_all(b"+OK\r\n").unwrap();
        read_until(&mut stream, b"DUMP\r\n$1\r\nk\r\n");
        stream
    };
    let noperm = "ERR Target instance replied with error: NOPERM no";
    let reading = "IOERR error or timeout reading to target instance";
    for (replies, error) in [
        (&b"-NOPERM no\r\n$-1\r\n"[..], noperm),
        (b"+OK\r\n-NOPERM no\r\n", noperm),
        (b"+OK\r\n$3\r\nabc\r\n", ""),
        (b"+OK\r\n:1\r\n", reading),
        (b"+OK\r\n$-2\r\n", reading),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", reading),
        (b"+OK\r\n$10\r\nabc", reading),
    ] {
        let mut stream = begin(&mut client, &mut other);
        stream.write_all(replies).unwrap();
        if error == reading {
            drop(stream);
        } else {
            read_until(&mut stream, b"UNWATCH\r\n");
            stream.write_all(b"+OK\r\n").unwrap();
        }
        match error {
            "" => client.reply().is_simple("NOKEY"),
            error => client.reply().is_error(error),
        }
    }
    // What is announced takes no memory and no time.
    let mut stream = begin(&mut client, &mut other);
    stream.write_all(b"+OK\r\n$536870912\r\n").unwrap();
    drop(impostor.greeted());
    client.reply().is_simple("NOKEY");
    // Without a transaction nothing is deleted.
    client.line("SET k v").is_ok();
    let Reply::Bulk(payload) = client.line("DUMP k").reply() else { panic!("no payload") };
    for (multi, exec, error) in [
        (&b"-NOPERM no\r\n"[..], &b""[..], noperm),
        (b"+OK\r\n", b"-NOPERM no\r\n-EXECABORT\r\n", noperm),
        (b"+OK\r\n", b"+QUEUED\r\n*-1\r\n", ""),
    ] {
        let mut stream = begin(&mut client, &mut other);
        stream.write_all(format!("+OK\r\n${}\r\n", payload.len()).as_bytes()).unwrap();
        stream.write_all(&[&payload[..], b"\r\n"].concat()).unwrap();
        read_until(&mut stream, b"MULTI\r\n");
        stream.write_all(multi).unwrap();
        if !exec.is_empty() {
            read_until(&mut stream, b"EXEC\r\n");
            stream.write_all(exec).unwrap();
        }
        match error {
            "" => client.reply().is_simple("NOKEY"),
            error => client.reply().is_error(error),
        }
    }
}

#[test]
fn a_request_waits_for_another_one_no_longer_than_its_timeout() {
    let (source, impostor, target) = (Server::start(), Impostor::start(), Server::start());
    let (mut first, mut second) = (source.client(), source.client());
    first.line("MSET k v l w").is_ok();
    first.send(format!("MIGRATE 127.0.0.1 {} k 0 60000\r\n", impostor.port()).as_bytes());
    let mut stream = impostor.greeted();
    read_until(&mut stream, b"RESTORE\r\n");
    let claimed = "TRYAGAIN Another MIGRATE is giving this key away";
    let began = Instant::now();
    for rest in ["k 0 100", "k 0 100 COPY", "\"\" 0 100 KEYS l k"] {
        second.line(&migrate(&target, rest)).is_error(claimed);
    }
    assert!(began.elapsed() >= Duration::from_millis(300) && began.elapsed() < Duration::from_secs(30));
    // What came before it has moved.
    second.line("EXISTS k l").is(1);
    stream.write_all(b"+OK\r\n").unwrap();
    first.reply().is_ok();
}

#[test]
fn two_requests_for_one_key_move_it_once() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let (mut first, mut second) = (source.client(), source.client());
    first.line("SET k v").is_ok();
    let line = format!("MIGRATE 127.0.0.1 {} k 0 10000 REPLACE\r\n", impostor.port());
    first.send(line.as_bytes());
    let mut stream = impostor.greeted();
    read_until(&mut stream, b"REPLACE\r\n");
    second.send(line.as_bytes());
    assert!(second.is_silent_for(Duration::from_millis(100)));
    stream.write_all(b"+OK\r\n").unwrap();
    first.reply().is_ok();
    second.reply().is_simple("NOKEY");
    first.line("DBSIZE").is(0);
    // A key that is named twice is no key of another request.
    first.line("SET k v").is_ok();
    first.send(format!("MIGRATE 127.0.0.1 {} \"\" 0 10000 KEYS k k\r\n", impostor.port()).as_bytes());
    let mut stream = impostor.greeted();
    read_until(&mut stream, b"RESTORE\r\n");
    stream.write_all(b"+OK\r\n").unwrap();
    first.reply().is_ok();
}

marked!(also_redis: a_target_that_hangs_or_closes_takes_nothing);
fn a_target_that_hangs_or_closes_takes_nothing() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let mut client = source.client();
    client.line("MSET a 1 b 2 c 3").is_ok();
    let line = format!("MIGRATE 127.0.0.1 {} \"\" 0 300 KEYS a b c", impostor.port());
    let began = Instant::now();
    client.line(&line).is_error("IOERR error or timeout reading to target instance");
    assert!(began.elapsed() >= Duration::from_millis(300));
    client.line("EXISTS a b c").is(3);
    drop(impostor);
    client.line(&line).is_error("IOERR error or timeout writing to target instance");
    client.line("EXISTS a b c").is(3);
}

/// What the target has replied to, in order, is all that is gone.
#[test]
fn only_what_was_acknowledged_is_deleted() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let mut client = source.client();
    let reading = "IOERR error or timeout reading to target instance";
    let refused = "ERR Target instance replied with error: OOM no room";
    for (replies, error, left) in [
        (&b"+OK\r\n"[..], reading, "b c"),
        (b"+OK\r\n+O", reading, "b c"),
        (b"+OK\r\n-OOM no room\r\n+OK\r\n", refused, "b"),
        (b"-OOM no room\r\n-ERR other\r\n+OK\r\n", refused, "a b"),
        (b"-OOM no room\r\n", refused, "a b c"),
        (b"+OK\r\n$2\r\nOK\r\n+OK\r\n", reading, "b c"),
        (b"+OK\r\n+QUEUED\r\n+OK\r\n", reading, "b c"),
        (b"", reading, "a b c"),
        (&[b'+'; 3000], reading, "a b c"),
    ] {
        client.line("MSET a 1 b 2 c 3").is_ok();
        client.send(format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS a b c\r\n", impostor.port()).as_bytes());
        let mut stream = impostor.greeted();
        read_until(&mut stream, b"RESTORE\r\n$1\r\nc\r\n");
        stream.write_all(replies).unwrap();
        drop(stream);
        client.reply().is_error(error);
        let mut keys: Vec<String> = client.line("KEYS *").items().iter().map(Reply::to_string).collect();
        keys.sort();
        assert_eq!(keys.join(" ").replace('"', ""), left, "{}", replies.escape_ascii());
    }
}

#[test]
fn a_caller_that_leaves_or_is_killed_has_moved_nothing() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let mut client = source.client();
    client.line("SET k v").is_ok();
    for is_killed in [true, false] {
        let mut caller = source.client();
        let id = caller.line("CLIENT ID").integer();
        caller.send(format!("MIGRATE 127.0.0.1 {} k 0 60000\r\n", impostor.port()).as_bytes());
        let mut stream = impostor.greeted();
        read_until(&mut stream, b"RESTORE\r\n");
        if is_killed {
            client.line(&format!("CLIENT KILL ID {id}")).is(1);
        } else {
            drop(caller);
        }
        // The connection to the target ends, whatever the target would reply now.
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).ok();
        client.line("GET k").is("v");
    }
    // Nothing of it is left: the key can be moved.
    let target = Server::start();
    client.line(&migrate(&target, "k 0 1000")).is_ok();
    wait_until("they have gone", || client.info("connected_clients") == "1");
}

#[test]
fn others_are_served_while_a_target_hangs_and_a_large_value_moves() {
    const VALUE_BYTES: usize = 50 << 20;
    let (source, target, mut here, mut there) = pair();
    let impostor = Impostor::start();
    here.line("SET k v").is_ok();
    let mut callers: Vec<Client> = (0..8).map(|_| source.client()).collect();
    for (number, caller) in callers.iter_mut().enumerate() {
        here.cmd(["SET", &format!("hung{number}"), "v"]).is_ok();
        let port = impostor.port();
        caller.send(format!("MIGRATE 127.0.0.1 {port} hung{number} 0 60000\r\n").as_bytes());
    }
    here.line("CONFIG SET rdbcompression no").is_ok();
    here.cmd(["SETRANGE", "large", &(VALUE_BYTES - 1).to_string(), "x"]).is(VALUE_BYTES as i64);
    let mut mover = source.client();
    mover.send(format!("{}\r\n", migrate(&target, "large 0 30000")).as_bytes());
    for _ in 0..200 {
        here.line("PING").is_simple("PONG");
        here.line("INCR n").ignored();
    }
    mover.reply().is_ok();
    here.line("EXISTS large").is(0);
    there.line("STRLEN large").is(VALUE_BYTES as i64);
    there.line("GETRANGE large -1 -1").is("x");
    here.line("EXISTS hung0 hung7").is(2);
    drop(callers);
}

#[test]
fn many_keys_go_in_batches() {
    // So many arguments make it a long request.
    const KEYS: usize = 21_000;
    let (_source, target, mut here, mut there) = pair();
    let mut request = vec!["MIGRATE".to_owned(), "127.0.0.1".to_owned(), target.port().to_string()];
    request.extend(["", "0", "5000", "KEYS"].map(str::to_owned));
    for number in 0..KEYS {
        here.cmd(["SET", &format!("k{number}"), &"v".repeat(number % 700)]).is_ok();
        request.push(format!("k{number}"));
    }
    here.line("HSET h f 1 g 2").is(2);
    here.line("HPEXPIRE h 600000 FIELDS 1 f").ignored();
    request.push("h".to_owned());
    here.cmd(&request).is_ok();
    here.line("DBSIZE").is(0);
    there.line("DBSIZE").is(KEYS as i64 + 1);
    there.line("STRLEN k699").is(699);
    there.line("HGET h f").is("1");
    let ttl = there.line("HPTTL h FIELDS 1 f").items().remove(0);
    assert!(matches!(ttl, Reply::Integer(500_000..=600_000)), "{ttl:?}");
}

#[test]
fn no_transaction_and_no_script_waits_for_another_server() {
    let (_source, target, mut here, _there) = pair();
    let refused = "ERR MIGRATE waits for another server, so no transaction or script can use it";
    here.line("SET k v").is_ok();
    here.line("MULTI").is_ok();
    here.line(&migrate(&target, "k 0 1000")).is_simple("QUEUED");
    let replies = here.line("EXEC").items();
    assert_eq!(replies, [Reply::Error(refused.to_owned())]);
    let port = target.port().to_string();
    let call = "return redis.pcall('MIGRATE', '127.0.0.1', ARGV[1], KEYS[1], '0', '1000').err";
    here.cmd(["EVAL", call, "1", "k", &port]).is(refused);
    here.line("GET k").is("v");
}

#[test]
fn a_pause_of_writes_holds_the_deletion_back() {
    let (source, impostor) = (Server::start(), Impostor::start());
    let (mut client, mut other) = (source.client(), source.client());
    client.line("SET k v").is_ok();
    client.send(format!("MIGRATE 127.0.0.1 {} k 0 10000\r\n", impostor.port()).as_bytes());
    let mut stream = impostor.greeted();
    read_until(&mut stream, b"RESTORE\r\n");
    other.line("CLIENT PAUSE 60000 WRITE").is_ok();
    stream.write_all(b"+OK\r\n").unwrap();
    assert!(client.is_silent_for(Duration::from_millis(100)));
    other.line("GET k").is("v");
    other.line("CLIENT UNPAUSE").is_ok();
    client.reply().is_ok();
    other.line("GET k").is_nil();
}

marked!(needs_tools: keys_move_to_a_real_redis_and_back);
fn keys_move_to_a_real_redis_and_back() {
    let Some(target) = Server::start_redis(&[]) else { return };
    let source = Server::start();
    let (mut here, mut there) = (source.client(), target.client());
    here.line("LOCK ACQUIRE lock token 600000").ignored();
    here.line("SET k v PX 600000").is_ok();
    here.line("SADD s 1 2 3").is(3);
    here.line("XADD x 1-1 f v").is("1-1");
    here.line(&migrate(&target, "\"\" 0 1000 KEYS k s")).is_ok();
    there.line("GET k").is("v");
    there.line("SCARD s").is(3);
    here.line("EXISTS k s").is(0);
    there.line(&migrate(&source, "\"\" 0 1000 KEYS k s")).is_ok();
    here.line("GET k").is("v");
    there.line("DBSIZE").is(0);
}

marked!(needs_tools: keys_in_a_store_do_not_move);
fn keys_in_a_store_do_not_move() {
    let Some(cluster) = Cluster::start(Kind::Etcd, "migrating") else { return };
    let (server, target) = (cluster.front(&["--store-keys", "lock:*"]), Server::start());
    let mut client = server.client();
    client.line("MSET lock:a 1").is_ok();
    client.line("MSET b 2").is_ok();
    client
        .line(&migrate(&target, "lock:a 0 1000"))
        .is_error("ERR MIGRATE cannot do this with keys in a store");
    client
        .line(&migrate(&target, "\"\" 0 1000 KEYS lock:a b"))
        .is_error("CROSSSTORE Keys in request don't live in the same store");
    client.line(&migrate(&target, "b 0 1000")).is_ok();
    client.line("GET lock:a").is("1");
}
