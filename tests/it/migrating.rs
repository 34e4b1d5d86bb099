//! MIGRATE: keys on their way to another server, and what becomes of them when clients, the target or the
//! caller do something else meanwhile. RESTORE-ASKING.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::aof::ALWAYS;
use crate::client::{Client, Reply};
use crate::folder::Folder;
use crate::server::{Server, SetOnDrop, free_port, wait_until};
use crate::store::cluster::{Cluster, Kind};

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
    for (change, then) in [
        ("SET k w", &b"REPLACE\r\n"[..]),
        ("EXPIRE k 1000", b"REPLACE\r\n"),
        ("DEL k", b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"),
        ("RENAME k l", b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"),
        ("FLUSHALL", b"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"),
    ] {
        client.line("SET k v").is_ok();
        client.send(format!("MIGRATE 127.0.0.1 {} k 0 10000\r\n", here.port()).as_bytes());
        let mut stream = here.greeted();
        read_until(&mut stream, b"RESTORE\r\n$1\r\nk\r\n");
        other.line(change).ignored();
        stream.write_all(b"+OK\r\n").unwrap();
        read_until(&mut stream, then);
        let is_deleted = then.starts_with(b"*2");
        stream.write_all(if is_deleted { b":1\r\n" } else { b"+OK\r\n" }).unwrap();
        client.reply().is_simple(if is_deleted { "NOKEY" } else { "OK" });
        other.line("EXISTS k").is(0);
    }
    // A change that never ends: after some time it stays, and is taken back.
    client.line("SET k v").is_ok();
    client.send(format!("MIGRATE 127.0.0.1 {} k 0 10000\r\n", here.port()).as_bytes());
    let mut stream = here.greeted();
    let mut piece = vec![0; 4096];
    let mut count = 0;
    loop {
        let length = stream.read(&mut piece).unwrap();
        if piece[..length].starts_with(b"*2\r\n$3\r\nDEL") {
            break;
        }
        count += 1;
        other.line("APPEND k v").ignored();
        stream.write_all(b"+OK\r\n").unwrap();
    }
    stream.write_all(b":1\r\n").unwrap();
    client
        .reply()
        .is_error("ERR Clients changed the key each time it was sent: it is still here, and not there");
    other.line("STRLEN k").is(count + 1);
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
