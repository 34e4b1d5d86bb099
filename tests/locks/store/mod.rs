//! Keys that live in a store which several servers share: two front-ends on one PostgreSQL, and on one etcd.
//!
//! What differs, and is tested for each store alone:
//!
//! - PostgreSQL has keys expire to the millisecond, by its own clock. etcd has them go late, never early.
//! - etcd takes 60 keys of a request, and values of about 1.4 MiB.
//! - What makes a store unusable, and how a node fails, is each store's own.

/// A test for each store, both with the mark `needs_tools`.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod both_on_postgres {
            $(marked!(needs_tools: $test);
            fn $test() { super::$test(super::Kind::Postgres); })*
        }
        mod both_on_etcd {
            $(marked!(needs_tools: $test);
            fn $test() { super::$test(super::Kind::Etcd); })*
        }
    };
}

mod administrators;
mod attacks;
mod awaiting;
mod bound;
mod browsing;
mod cable;
mod caching;
mod clocks;
mod collections;
mod flushing;
mod frozen;
mod linear;
mod load;
mod lock;
mod moments;
mod numbers;
mod on_etcd;
mod on_postgres;
mod outages;
mod permits;
mod pipelines;
mod proxy;
mod rust_clients;
mod secure;
mod shared;
mod slots;
mod standstill;
mod starts;
mod strangers;
mod waiting;
mod watching;

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use support::store::cluster::{Cluster, Kind, eventually};

use support::client::{Client, Reply};
use support::metrics::metrics;
use support::server::{Server, free_port};

on_both! {
    what_one_front_end_writes_the_other_one_reads
    collections_of_all_types_live_there_too
    exec_watch_and_scripts_work_over_both
    a_blocked_client_is_woken_wherever_it_is_connected
    messages_events_and_news_of_read_keys_cross_over
    only_keys_that_match_live_there_and_no_request_names_both
    keys_go_to_other_databases
    what_is_too_long_is_refused_and_harms_no_other_request
    a_store_that_is_away_is_said_to_be_and_used_as_soon_as_it_is_back
    a_lock_tells_who_holds_it_wherever_that_is_and_its_fencing_number_only_grows
    info_and_health_tell_how_the_store_does
}

/// A store with one node, and two front-ends.
fn pair(kind: Kind, test: &str) -> Option<(Cluster, Server, Server)> {
    let cluster = Cluster::start(kind, test)?;
    let (one, other) = (cluster.front(&["--store-name", "one"]), cluster.front(&["--store-name", "other"]));
    Some((cluster, one, other))
}

/// Both front-ends of a store that know of each other.
fn acquainted(kind: Kind, test: &str) -> Option<(Cluster, Server, Server)> {
    let (cluster, one, other) = pair(kind, test)?;
    wait_until_heard(&mut one.client(), &other);
    wait_until_heard(&mut other.client(), &one);
    Some((cluster, one, other))
}

/// All keys, sorted, that SCAN finds, one at a time.
fn scan(client: &mut Client) -> Vec<String> {
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.line(&format!("SCAN {cursor} COUNT 1")).items();
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        seen.extend(keys.iter().map(Reply::to_string));
        cursor = String::from_utf8(next.clone()).expect("a number");
        if cursor == "0" {
            seen.sort();
            return seen;
        }
    }
}

fn what_one_front_end_writes_the_other_one_reads(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "shared") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("SETNX lock a").is(1);
    other.line("SETNX lock b").is(0);
    other.line("GET lock").is("a");
    other.line("SET lock c").is_ok();
    one.line("GETSET lock d").is("c");
    other.line("DEL lock nothing").is(1);
    one.line("SETNX lock e").is(1);
    one.line("INCRBY count 5").is(5);
    other.line("INCR count").is(6);
    one.line("MSET a 1 b 2").is_ok();
    assert_eq!(other.line("MGET a b nothing").reply().to_string(), r#"["1", "2", (nil)]"#);
    other.line("RENAME a c").is_ok();
    one.line("EXISTS a b c").is(2);
    one.line("DBSIZE").is(4);
    other.line("FLUSHALL").is_ok();
    one.line("DBSIZE").is(0);
    one.line("GET lock").is_nil();
}

fn collections_of_all_types_live_there_too(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "types") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("HSET hash f 1 g 2").is(2);
    one.line("RPUSH list a b c").is(3);
    one.line("SADD set 1 2 x").is(3);
    one.line("ZADD sorted 1 a 2.5 b").is(2);
    one.line("XADD stream 1-1 f v").is("1-1");
    one.line("PFADD log a b c").is(1);
    other.line("HGET hash g").is("2");
    assert_eq!(other.line("LRANGE list 0 -1").reply().to_string(), r#"["a", "b", "c"]"#);
    other.line("SISMEMBER set x").is(1);
    other.line("ZSCORE sorted b").is("2.5");
    other.line("XLEN stream").is(1);
    other.line("PFCOUNT log").is(3);
    other.line("GET hash").is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    other.line("LPOP list").is("a");
    one.line("LLEN list").is(2);
    assert_eq!(one.line("HPEXPIRE hash 50 FIELDS 1 f").reply().to_string(), "[(integer) 1]");
    thread::sleep(Duration::from_millis(60));
    other.line("HGET hash f").is_nil();
    other.line("HLEN hash").is(1);
    let kinds =
        [("hash", "hash"), ("list", "list"), ("set", "set"), ("sorted", "zset"), ("stream", "stream")];
    for (key, kind) in kinds {
        other.line(&format!("TYPE {key}")).is_simple(kind);
    }
}

fn exec_watch_and_scripts_work_over_both(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "transactions") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    let exec = |one: &mut Client, lines: &[&str]| {
        for line in lines {
            one.line(line).ignored();
        }
        one.line("EXEC").reply().to_string()
    };
    assert_eq!(
        exec(&mut one, &["WATCH w", "MULTI", "INCR w", "SET x 1", "GET w"]),
        r#"[(integer) 1, OK, "1"]"#
    );
    one.line("WATCH w").is_ok();
    other.line("INCR w").is(2);
    assert_eq!(exec(&mut one, &["MULTI", "SET x 2"]), "(nil)");
    one.line("GET x").is("1");
    // A key that was made and deleted meanwhile has changed, too.
    one.line("WATCH nothing").is_ok();
    other.line("SET nothing 1").is_ok();
    other.line("DEL nothing").is(1);
    assert_eq!(exec(&mut one, &["MULTI", "SET x 3"]), "(nil)");
    one.line("WATCH w").is_ok();
    one.line("UNWATCH").is_ok();
    other.line("INCR w").is(3);
    assert_eq!(exec(&mut one, &["MULTI", "SET x 4"]), "[OK]");
    let release =
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    other.line("SET lock token NX").is_ok();
    one.cmd(["EVAL", release, "1", "lock", "wrong"]).is(0);
    one.cmd(["EVAL", release, "1", "lock", "token"]).is(1);
    other.line("EXISTS lock").is(0);
    let late = one.cmd(["EVAL", "return redis.call('get','w')", "0"]).text();
    assert!(
        late.starts_with("ERR Beside a store, a script may only use the keys that it has declared"),
        "{late}"
    );
    let late = one.cmd(["EVAL", "redis.call('select',1) return redis.call('get',KEYS[1])", "1", "w"]).text();
    assert!(late.starts_with("ERR Beside a store"), "{late}");
}

fn a_blocked_client_is_woken_wherever_it_is_connected(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "blocking") else { return };
    let (mut waiter, mut pusher) = (one.client(), other.client());
    for element in ["a", "b"] {
        waiter.send(&support::client::request(["BLPOP", "queue", "50"]));
        thread::sleep(Duration::from_millis(200));
        pusher.line(&format!("RPUSH queue {element}")).is(1);
        assert_eq!(waiter.reply().reply().to_string(), format!(r#"["queue", "{element}"]"#));
        pusher.line("LLEN queue").is(0);
    }
    let began = Instant::now();
    waiter.line("BLPOP queue 0.2").is_nil();
    assert!(began.elapsed() >= Duration::from_millis(200));
    let id = waiter.line("CLIENT ID").integer();
    waiter.send(&support::client::request(["BLPOP", "queue", "0"]));
    let mut helper = one.client();
    eventually("it can be unblocked", || helper.line(&format!("CLIENT UNBLOCK {id} ERROR")).integer() == 1);
    waiter.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
}

/// Publishes messages at a front-end until a client of another one hears them: within a second, unless
/// front-ends connect anew meanwhile, whose news may get lost. Of what it heard, the client has read all.
fn publish_until_heard(listener: &mut Client, speaker: &mut Client) {
    let mut messages = 0;
    eventually("a message crosses over", || {
        messages += 1;
        speaker.line(&format!("PUBLISH heard {messages}")).is(0);
        let last = format!(r#"["message", "heard", "{messages}"]"#);
        while !listener.is_silent_for(Duration::from_millis(50)) {
            if listener.reply().reply().to_string() == last {
                return true;
            }
        }
        false
    });
}

/// Waits until messages that are published at a front-end reach a client of another one. From then on none
/// is lost.
fn wait_until_heard(listener: &mut Client, from: &Server) {
    let mut speaker = from.client();
    listener.line("SUBSCRIBE heard").ignored();
    publish_until_heard(listener, &mut speaker);
    speaker.line("PUBLISH heard last").is(0);
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "heard", "last"]"#);
    listener.line("UNSUBSCRIBE heard").ignored();
}

/// Waits until messages cross over again, though front-ends connect anew meanwhile, one after the other.
fn wait_until_heard_again(listener: &mut Client, from: &Server) {
    listener.line("SUBSCRIBE heard").ignored();
    publish_until_heard(listener, &mut from.client());
}

fn messages_events_and_news_of_read_keys_cross_over(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "news") else { return };
    for front in [&one, &other] {
        front.client().line("CONFIG SET notify-keyspace-events KEA").is_ok();
    }
    let (mut listener, mut speaker) = (one.client(), other.client());
    listener.line("SUBSCRIBE channel __keyevent@0__:set").ignored();
    listener.reply().ignored();
    wait_until_heard(&mut listener, &other);
    speaker.line("SET key value").is_ok();
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "__keyevent@0__:set", "key"]"#);
    speaker.line("MULTI").is_ok();
    speaker.line("PUBLISH channel third").ignored();
    speaker.line("EXEC").ignored();
    assert_eq!(listener.reply().reply().to_string(), r#"["message", "channel", "third"]"#);
    is_told_of_changes(&one, &mut speaker);
}

/// Waits until a client that tracks keys gets the invalidation for a change elsewhere.
#[track_caller]
fn is_told_of_changes(front: &Server, elsewhere: &mut Client) {
    let mut reader = front.client3();
    reader.line("CLIENT TRACKING ON").is_ok();
    let invalidation = Reply::Push(vec!["invalidate".into(), Reply::Array(vec!["key".into()])]);
    eventually("an invalidation arrives", || {
        reader.line("GET key").ignored();
        elsewhere.line("INCR key:2").ignored();
        elsewhere.line("APPEND key x").ignored();
        // Until changes are heard of, all that was read may have changed: more may have come before it.
        let mut is_told = false;
        while !reader.is_silent_for(Duration::from_millis(200)) {
            is_told |= reader.reply().reply() == invalidation;
        }
        is_told
    });
}

fn only_keys_that_match_live_there_and_no_request_names_both(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "places") else { return };
    let front = cluster.front(&["--store-keys", "lock:* job:?"]);
    let mut client = front.client();
    client.line("MSET a 1 b 2").is_ok();
    client.line("MSET lock:a 1 job:b 2").is_ok();
    let mut names = cluster.front(&[]).client().line("KEYS *").items();
    names.sort_by_key(Reply::to_string);
    assert_eq!(names, ["job:b", "lock:a"].map(Reply::from));
    let both = "CROSSSTORE Keys in request don't live in the same store";
    client.line("MGET a lock:a").is_error(both);
    client.line("RENAME a lock:a").is_error(both);
    client.line("WATCH a").is_ok();
    client.line("MULTI").is_ok();
    client.line("SET lock:a 2").is_simple("QUEUED");
    client.line("EXEC").is_error(both);
    client.line("GET lock:a").is("1");
    let script = "return redis.call('get', 'lock:a')";
    assert!(client.cmd(["EVAL", script, "1", "a"]).text().starts_with("ERR Beside a store"));
    client.line("DBSIZE").is(4);
    let mut names = client.line("KEYS *").items().iter().map(Reply::to_string).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names.join(" "), r#""a" "b" "job:b" "lock:a""#);
    let seen = scan(&mut client);
    assert_eq!(seen, names);
    client.line("SCAN 0 TYPE list").ignored();
    for refused in ["SORT lock:a BY w_*", "SWAPDB 0 1"] {
        let text = client.line(refused).text();
        assert!(text.ends_with("cannot do this with keys in a store"), "{refused}: {text}");
    }
    client.line("MOVE a 1").is(1);
    client.line("FLUSHALL").is_ok();
    client.line("DBSIZE").is(0);
}

fn keys_go_to_other_databases(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "databases") else { return };
    let (first, second) = (cluster.front(&[]), cluster.front(&[]));
    let (mut client, mut other) = (first.client(), second.client());
    other.line("SELECT 1").is_ok();
    client.line("SET k v PX 100000").is_ok();
    client.line("RPUSH list a b").is(2);
    client.line("MOVE absent 1").is(0);
    client.line("MOVE k 0").is_error("ERR source and destination objects are the same");
    client.line("MOVE k 16").is_error("ERR DB index is out of range");
    client.line("MOVE k x").is_error("ERR value is not an integer or out of range");
    client.line("MOVE k 1").is(1);
    client.line("EXISTS k").is(0);
    other.line("GET k").is("v");
    assert!((1..=100_000).contains(&other.line("PTTL k").integer()));
    // Where there is a key of this name, it stays.
    client.line("SET k new").is_ok();
    client.line("MOVE k 1").is(0);
    client.line("COPY k k DB 1").is(0);
    other.line("GET k").is("v");
    client.line("COPY k k DB 1 REPLACE").is(1);
    other.line("GET k").is("new");
    client.line("COPY list copied db 2 DB 1").is(1);
    other.line("LRANGE copied 0 -1").is(Reply::Array(vec![Reply::from("a"), "b".into()]));
    other.line("MOVE copied 0").is(1);
    client.line("LLEN copied").is(2);
    // A client that waits in the other database is served.
    other.send(b"BLPOP copied 0\r\n");
    client.line("MULTI").is_ok();
    client.line("RPUSH copied c").is_simple("QUEUED");
    client.line("MOVE copied 1").is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec![Reply::from(3), 1.into()]));
    other.reply().is(Reply::Array(vec![Reply::from("copied"), "a".into()]));
    other.line("LLEN copied").is(2);
    client.line("EXISTS copied").is(0);
    // A script names keys of its client's database only.
    for script in ["redis.call('move', KEYS[1], 1)", "redis.call('copy', KEYS[1], KEYS[2], 'DB', '1')"] {
        let text = client.cmd(["EVAL", script, "2", "list", "there"]).text();
        assert!(text.starts_with("ERR Beside a store, a script may only use the keys"), "{script}: {text}");
    }
    client.line("LLEN list").is(2);
    other.line("EXISTS list there").is(0);
    client.cmd(["EVAL", "return redis.call('copy', KEYS[1], KEYS[2])", "2", "list", "there"]).is(1);
    client.line("LLEN there").is(2);
}

fn what_is_too_long_is_refused_and_harms_no_other_request(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "limits") else { return };
    let front = cluster.front(&["--store-value-max-bytes", "100"]);
    let mut client = front.client();
    let too_long = "ERR A value in the store may have 100 bytes at most (store-value-max-bytes)";
    client.line(&format!("SET k {}", "x".repeat(101))).is_error(too_long);
    client.line(&format!("SET k {}", "x".repeat(100))).is_ok();
    client.line("APPEND k x").is_error(too_long);
    client.line("STRLEN k").is(100);
    client
        .line(&format!("GET {}", "k".repeat(2_049)))
        .is_error("ERR A key in the store may have 2048 bytes at most");
    client.line(&format!("SETNX {} v", "k".repeat(2_048))).is(1);
    // A value that is too long to be remembered can be changed, too.
    let front = cluster.front(&[]);
    let mut client = front.client();
    client.line(&format!("SET long {}", "x".repeat(200_000))).is_ok();
    client.line("APPEND long x").is(200_001);
    client.line("DEL long").is(1);
    client.line("SET far v PXAT 9223372036854775806").is_ok();
    client.line("SETNX far v").is(0);
}

fn a_store_that_is_away_is_said_to_be_and_used_as_soon_as_it_is_back(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "away") else { return };
    let front = cluster.front(&["--store-timeout", "2000"]);
    let mut client = front.client();
    client.line("SETNX k v").is(1);
    cluster.stop();
    let began = Instant::now();
    let text = client.line("GET k").text();
    assert!(text.starts_with("STOREDOWN "), "{text}");
    assert!(began.elapsed() < Duration::from_secs(20));
    eventually("it refuses at once", || {
        let began = Instant::now();
        client.line("SET k w").text().starts_with("STOREDOWN ")
            && began.elapsed() < Duration::from_millis(100)
    });
    client.line("PING").is_simple("PONG");
    cluster.start_again();
    eventually("the store is back", || client.line("GET k").text() == "v");
    client.line("SETNX k w").is(0);
}

/// A field of a reply that is a map.
fn field(reply: &Reply, name: &str) -> String {
    let Reply::Map(pairs) = reply else { panic!("{reply} is no map") };
    let found = pairs.iter().find(|(key, _)| *key == Reply::from(name));
    found.unwrap_or_else(|| panic!("no {name} in {reply}")).1.to_string()
}

fn a_lock_tells_who_holds_it_wherever_that_is_and_its_fencing_number_only_grows(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lens") else { return };
    let (mut holder, mut looker) = (one.client(), other.client3());
    holder.line("CLIENT SETNAME worker").is_ok();
    holder.line("SET plain value").is_ok();
    holder.line("SET lock token NX PX 60000").is_ok();
    let lock = looker.line("LOCKS GET lock").reply();
    let who = field(&lock, "holder");
    assert!(who.starts_with("\"one id=") && who.ends_with("name=worker\""), "{who}");
    assert_eq!(field(&lock, "state"), "\"held\"");
    let fence =
        |lock: &Reply| field(lock, "fencing").trim_start_matches("(integer) ").parse::<i64>().unwrap();
    let first = fence(&lock);
    // To live longer is the same tenure; a hash that a script makes is a lock as well.
    holder.line("PEXPIRE lock 120000").is(1);
    assert_eq!(fence(&looker.line("LOCKS GET lock").reply()), first);
    looker.line("LOCKS GET plain").is_nil();
    looker.line("LOCKS GET nothing").is_nil();
    let enter = "redis.call('hincrby',KEYS[1],ARGV[1],1) redis.call('pexpire',KEYS[1],30000) return 1";
    for _ in 0..2 {
        holder.cmd(["EVAL", enter, "1", "entered", "client:1"]).is(1);
    }
    let locks = looker.line("LOCKS LIST").items();
    let keys: Vec<String> = locks.iter().map(|lock| field(lock, "key")).collect();
    assert_eq!(keys, ["\"lock\"", "\"entered\""]);
    assert_eq!(looker.line("LOCKS LIST MATCH ent* COUNT 5").items().len(), 1);
    let mut restricted = other.client3();
    looker.line("ACL SETUSER restricted on nopass +locks ~ent* %W~lock").is_ok();
    restricted.line("AUTH restricted any").is_ok();
    let locks = restricted.line("LOCKS LIST").items();
    assert_eq!(locks.iter().map(|lock| field(lock, "key")).collect::<Vec<_>>(), ["\"entered\""]);
    restricted.line("LOCKS GET lock").is_error("NOPERM No permissions to access a key");
    let mut last = first;
    for _ in 0..5 {
        holder.line("DEL lock").is(1);
        looker.line("SETNX lock other").is(1);
        let now = fence(&looker.line("LOCKS GET lock").reply());
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    holder.line("DEL lock entered").is(2);
    assert_eq!(looker.line("LOCKS LIST").items().len(), 0);
}

fn info_and_health_tell_how_the_store_does(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "info") else { return };
    let port = free_port();
    let front = cluster.front(&["--metrics-port", &port.to_string()]);
    let mut client = front.client();
    (0..10).for_each(|number| client.line(&format!("SETNX {number} v")).is(1));
    client.line("SETNX 1 v").is(0);
    assert_eq!(client.info("store_connected"), "1");
    assert_eq!(client.info("store_away"), "0");
    let number = |text: String| text.parse::<u64>().expect("a number");
    assert!(number(client.info("store_requests")) >= 11 && number(client.info("store_batches")) >= 11);
    let took_us = number(client.info("store_batch_microseconds"));
    assert!(took_us > 0);
    // Prometheus wants seconds. In between, the server may have asked the store on its own.
    let told = metrics((Ipv4Addr::LOCALHOST, port).into())["keyfast_store_batch_seconds_total"];
    let later_us = number(client.info("store_batch_microseconds"));
    assert!((took_us as f64..=later_us as f64).contains(&(told * 1e6).round()), "{told} s, {took_us} µs");
    let mut without = Server::start().into_client();
    assert!(!without.line("INFO all").text().contains("store_"));
}
