//! What is etcd's own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::proxy::{Fate, MARKED, Proxy, QUESTION};
use super::{Cluster, Kind, pair};
use support::client::{Client, Reply};
use support::server::{Server, free_port};
use support::store::cluster::{eventually, front};
use support::store::etcd::Etcd;

marked!(needs_tools: an_expired_key_goes_late_and_never_early_and_one_of_many_takes_it);
fn an_expired_key_goes_late_and_never_early_and_one_of_many_takes_it() {
    let Some((_cluster, one, other)) = pair(Kind::Etcd, "expiry") else { return };
    let fronts = [&one, &other];
    for lifetime_ms in [40, 1_000, 2_500] {
        let began = Instant::now();
        one.client().line(&format!("SET lock first NX PX {lifetime_ms}")).is_ok();
        other.client().line("SET lock second NX PX 40").is_nil();
        let winners: usize = thread::scope(|scope| {
            let tries = (0..8).map(|index| {
                let mut client = fronts[index % 2].client();
                scope.spawn(move || {
                    while began.elapsed() < Duration::from_millis(lifetime_ms + 8_000) {
                        if client.line(&format!("SET lock {index} NX")).reply() != Reply::Null {
                            assert!(began.elapsed() >= Duration::from_millis(lifetime_ms));
                            return 1;
                        }
                        thread::sleep(Duration::from_millis(5));
                    }
                    0
                })
            });
            let tries: Vec<_> = tries.collect();
            tries.into_iter().map(|each| each.join().expect("a count")).sum()
        });
        assert_eq!(winners, 1);
        one.client().line("DEL lock").is(1);
    }
}

marked!(needs_tools: a_client_in_line_for_a_lock_that_etcd_frees_late_asks_seldom);
/// Its moment is over, but the store still has it. To ask without a pause would cost the store's other
/// clients.
fn a_client_in_line_for_a_lock_that_etcd_frees_late_asks_seldom() {
    let Some((_cluster, one, _other)) = pair(Kind::Etcd, "late-lock") else { return };
    let (mut holder, mut waiting) = (one.client(), one.client());
    let held = holder.line("LOCK ACQUIRE l holder PX 50").integer();
    let requests = |client: &mut Client| client.info("store_requests").parse::<u64>().expect("a number");
    let before = requests(&mut holder);
    assert!(waiting.line("LOCK ACQUIRE l waiting PX 60000 WAIT 60000").integer() > held);
    let asked = requests(&mut holder) - before;
    assert!(asked < 100, "{asked} requests");
}

marked!(needs_tools: a_key_is_there_for_as_long_as_etcd_has_it);
fn a_key_is_there_for_as_long_as_etcd_has_it() {
    let Some((_cluster, one, other)) = pair(Kind::Etcd, "late") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("SET lock first NX PX 40").is_ok();
    // Its lease lives for two seconds at least.
    thread::sleep(Duration::from_millis(200));
    for client in [&mut one, &mut other] {
        client.line("SETNX lock second").is(0);
        client.line("GET lock").is("first");
        assert!((1..=1_000).contains(&client.line("PTTL lock").integer()));
        client.line("APPEND lock !").ignored();
        client.line("SET lock first XX KEEPTTL").is_ok();
        client.line("MGET lock other").ignored();
    }
    eventually("it has gone", || one.line("EXISTS lock").reply() == Reply::Integer(0));
    other.line("SETNX lock second").is(1);
    other.line("PTTL lock").is(-1);
}

marked!(needs_tools: a_write_keeps_the_lease_or_ends_it_as_the_command_says);
fn a_write_keeps_the_lease_or_ends_it_as_the_command_says() {
    let Some((_cluster, one, other)) = pair(Kind::Etcd, "leases") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    for key in ["kept", "counted", "persistent", "set", "prolonged", "renamed"] {
        one.line(&format!("SET {key} 1 PX 500")).is_ok();
    }
    other.line("SET kept 2 KEEPTTL").is_ok();
    other.line("INCR counted").is(2);
    other.line("PERSIST persistent").is(1);
    other.line("SET set 2").is_ok();
    other.line("PEXPIRE prolonged 60000").is(1);
    other.line("RENAME renamed new").is_ok();
    for key in ["kept", "counted", "new"] {
        eventually("it has gone", || one.line(&format!("EXISTS {key}")).reply() == Reply::Integer(0));
    }
    thread::sleep(Duration::from_millis(2_000));
    for key in ["persistent", "set", "prolonged"] {
        one.line(&format!("EXISTS {key}")).is(1);
    }
    one.line("PTTL persistent").is(-1);
    one.line("PTTL set").is(-1);
    assert!((50_000..60_000).contains(&other.line("PTTL prolonged").integer()));
    one.line("PEXPIREAT set 1").is(1);
    one.line("EXISTS set").is(0);
}

marked!(needs_tools: exec_fails_after_an_absent_key_was_there_and_has_expired);
fn exec_fails_after_an_absent_key_was_there_and_has_expired() {
    let Some((_cluster, one, other)) = pair(Kind::Etcd, "marks") else { return };
    let (mut one, mut other, mut third) = (one.client(), other.client(), other.client());
    let exec = |client: &mut Client| {
        for line in ["MULTI", "INCR done"] {
            client.line(line).ignored();
        }
        client.line("EXEC").reply()
    };
    one.line("WATCH nothing never").is_ok();
    other.line("WATCH nothing").is_ok();
    third.line("WATCH never").is_ok();
    third.line("SET nothing 1 PX 10").is_ok();
    eventually("it has gone", || third.line("EXISTS nothing").reply() == Reply::Integer(0));
    assert_eq!(exec(&mut one), Reply::Null);
    assert_eq!(exec(&mut other), Reply::Null);
    assert_eq!(exec(&mut third), Reply::Array(vec![Reply::Integer(1)]));
    // The mark of a key that is watched does not keep others from making it.
    one.line("WATCH nothing").is_ok();
    one.line("MULTI").is_ok();
    one.line("SETNX nothing 1").ignored();
    one.line("SETNX nothing 2").ignored();
    assert_eq!(one.line("EXEC").reply(), Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]));
    one.line("DBSIZE").is(2);
}

marked!(needs_tools: what_etcd_does_not_take_at_once_is_refused_or_waits);
fn what_etcd_does_not_take_at_once_is_refused_or_waits() {
    let Some(cluster) = Cluster::start(Kind::Etcd, "operations") else { return };
    let front = cluster.front(&["--store-value-max-bytes", "4mb", "--loglevel", "debug"]);
    let mut client = front.client();
    let keys = |count: usize| (0..count).map(|number| format!("key:{number}"));
    let request = |count| std::iter::once("DEL".to_owned()).chain(keys(count));
    client.cmd(request(61)).is_error("ERR A request may name 60 keys in this store at most");
    client.cmd(request(60)).is(0);
    let too_long = client.line(&format!("SET long {}", "x".repeat(3 << 20))).text();
    assert!(too_long.starts_with("STOREDOWN The store has not done this: "), "{too_long}");
    client.line(&format!("SET long {}", "x".repeat(1_000_000))).is_ok();
    client.line("STRLEN long").is(1_000_000);
    client.line("DEL long").is(1);
    // Many at once, alone and in groups of all sizes, each of several clients.
    thread::scope(|scope| {
        for number in 0..8 {
            let mut client = front.client();
            scope.spawn(move || {
                let mut sent = 0;
                for size in [1, 60, 2, 1, 30, 1, 7, 1, 1, 59, 45] {
                    let pairs = (0..size).flat_map(|key| [format!("{number}:{size}:{key}"), "v".to_owned()]);
                    let request: Vec<_> = std::iter::once("MSET".to_owned()).chain(pairs).collect();
                    let singles =
                        (0..50).map(|single| vec!["SETNX".into(), format!("{number}:s{single}"), "v".into()]);
                    for request in singles.chain([request]) {
                        client.send(&support::client::request(request));
                        sent += 1;
                    }
                }
                for _ in 0..sent {
                    let reply = client.reply().reply();
                    assert!(!matches!(reply, Reply::Error(_)), "{reply}");
                }
            });
        }
    });
    let all = 8 * (60 + 2 + 30 + 7 + 59 + 45 + 1 + 50);
    client.line("DBSIZE").is(all);
    let (mut cursor, mut seen) = ("0".to_owned(), std::collections::HashSet::new());
    loop {
        let reply = client.line(&format!("SCAN {cursor} COUNT 100 TYPE string")).items();
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        seen.extend(keys.iter().map(Reply::to_string));
        cursor = String::from_utf8(next.clone()).expect("a number");
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len() as i64, all);
    assert!(!client.line("RANDOMKEY").text().is_empty());
    // Long names, of which a batch has several copies.
    for number in 0..300 {
        client.send(&support::client::request(["SETNX", &format!("{number:02000}"), "v"]));
    }
    (0..300).for_each(|_| client.reply().is(1));
    client.line("FLUSHDB").is_ok();
    client.line("DBSIZE").is(0);
    let output = front.output();
    assert!(!output.contains("frame"), "a library writes into the log: {output}");
}

marked!(needs_tools: a_request_whose_connection_is_lost_is_done_once);
fn a_request_whose_connection_is_lost_is_done_once() {
    let Some(etcd) = Etcd::start("lost", 1) else { return };
    let proxy = Proxy::to(etcd.port(0));
    let front = front(&format!("etcd://127.0.0.1:{}", proxy.port()), &["--store-timeout", "20000"]);
    let mut client = front.client();
    client.line("SET marked:other 1").is_ok();
    let mut count = 0;
    let fates = [Fate::Lost, Fate::Unanswered, Fate::Late];
    let is_asked_twice = [false, true];
    for (fate, is_asked_twice) in fates.into_iter().flat_map(|fate| is_asked_twice.map(|twice| (fate, twice)))
    {
        let during = |client: &mut Client, line: &str| {
            proxy.arm(MARKED, fate);
            if is_asked_twice {
                proxy.arm(QUESTION, Fate::Unanswered);
            }
            let reply = client.line(line).reply();
            proxy.has_happened();
            reply
        };
        count += 1;
        let line = format!("SETNX marked:{count} a");
        assert_eq!(during(&mut client, &line), Reply::Integer(1), "{fate:?}");
        assert_eq!(during(&mut client, &line), Reply::Integer(0), "{fate:?}");
        assert_eq!(during(&mut client, "INCR marked:count"), Reply::Integer(count), "{fate:?}");
        assert_eq!(during(&mut client, &format!("DEL marked:{count}")), Reply::Integer(1), "{fate:?}");
        assert_eq!(during(&mut client, "GET marked:count"), Reply::from(&*count.to_string()), "{fate:?}");
    }
    // Not even a late one comes after its front-end has gone on.
    thread::sleep(Duration::from_millis(700));
    client.line("GET marked:count").is(&*count.to_string());
    client.line("DBSIZE").is(2);
    assert!(!front.output().contains("cannot tell what it has done"), "{}", front.output());
}

marked!(needs_tools: a_full_etcd_is_read_and_deleted_from_until_it_has_space_again);
fn a_full_etcd_is_read_and_deleted_from_until_it_has_space_again() {
    let Some(etcd) = Etcd::start_with("full", 1, &["--quota-backend-bytes", "8388608"]) else { return };
    let metrics_port = free_port();
    let front = front(&etcd.url(), &["--metrics-port", &metrics_port.to_string()]);
    let is_well = || {
        let mut stream = TcpStream::connect(("127.0.0.1", metrics_port)).expect("it listens");
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.contains(" 200 OK")
    };
    let mut client = front.client();
    for key in ["read", "deleted", "counted"] {
        client.line(&format!("SET {key} 1")).is_ok();
    }
    client.line("LOCK ACQUIRE lock holder PX 600000").ignored();
    let value = vec![b'v'; 1_000_000];
    let mut big = 0;
    let refused = loop {
        assert!(big < 100, "it has room for all");
        match client.cmd([b"SET", format!("big:{big}").as_bytes(), &value]).reply() {
            Reply::Error(text) => break text,
            _ => big += 1,
        }
    };
    assert!(refused.starts_with("STOREDOWN ") && refused.contains("no space left"), "{refused}");
    // Together, too: what is refused does not take the others with it.
    thread::scope(|scope| {
        for (line, reply) in [("GET read", Some("1")), ("INCR counted", None), ("SETNX new 1", None)] {
            let mut client = front.client();
            let refused = &refused;
            scope.spawn(move || {
                for _ in 0..100 {
                    let came = client.line(line).text();
                    assert!(reply.map_or(came == *refused, |reply| came == reply), "{line}: {came}");
                }
            });
        }
    });
    client.line("GET counted").is("1");
    client.line("DEL deleted nosuch").is(1);
    client.line("EXISTS read deleted new").is(1);
    client.line("LOCK RELEASE lock holder").is(1);
    client.line("MULTI").is_ok();
    client.line("GET read").is_simple("QUEUED");
    client.line("DEL big:0").is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec!["1".into(), 1.into()]));
    // It is tried out every second, and found to be full.
    let trials = Instant::now() + Duration::from_millis(2_500);
    while Instant::now() < trials {
        assert!(!is_well());
    }
    // Deleted rows leave their space when their history goes.
    (1..big).for_each(|number| client.line(&format!("DEL big:{number}")).is(1));
    let header = etcd.call("kv/range", r#"{"key": "AA=="}"#);
    let revision = header.split(r#""revision":""#).nth(1).and_then(|rest| rest.split('"').next());
    let revision = revision.unwrap_or_else(|| panic!("no revision: {header}"));
    for line in [&*format!("compact {revision} --physical"), "defrag", "alarm disarm"] {
        etcd.shell(&format!("etcdctl --endpoints=http://host1:2379 {line}"));
    }
    eventually("it writes again", || client.line("INCR counted").reply() == Reply::Integer(2));
    eventually("it is well", is_well);
    client.line("LOCK ACQUIRE lock other PX 600000").ignored();
    client.line("DBSIZE").is(3);
}

marked!(needs_tools: an_etcd_that_cannot_be_used_is_told_in_the_log);
fn an_etcd_that_cannot_be_used_is_told_in_the_log() {
    let Some(etcd) = Etcd::start("wrong", 1) else { return };
    drop(front(&etcd.url(), &[]));
    // `keyfast/format` becomes `99`.
    etcd.call("kv/put", r#"{"key": "a2V5ZmFzdC9mb3JtYXQ=", "value": "OTk="}"#);
    let server = Server::start_with(&["--store", &etcd.url(), "--store-timeout", "300"]);
    server.wait_for_output("its keys are of version 99, and this program needs version 3");
    assert!(server.client().line("GET k").text().starts_with("STOREDOWN "));
    // Another prefix is another store.
    front(&format!("{}/other/place", etcd.url()), &[]).client().line("SETNX k v").is(1);
    etcd.kill_node(0);
    let server = Server::start_with(&["--store", &etcd.url(), "--store-timeout", "300"]);
    server.wait_for_output("Cannot reach the store etcd://127.0.0.1:");
    let began = Instant::now();
    assert!(server.client().line("GET k").text().starts_with("STOREDOWN "));
    assert!(began.elapsed() < Duration::from_secs(10));
}
