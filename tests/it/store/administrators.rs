//! What administrators do beside a store, and what stands between it and the front-ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::cluster::{eventually, front};
use super::postgres::{Postgres, pair};
use super::{is_told_of_changes, wait_until_heard};
use crate::client::{Reply, request};
use crate::server::{Server, SetOnDrop};

/// Changes a setting of the primary, and waits until it counts.
fn set(cluster: &Postgres, name: &str, value: &str) {
    cluster.sql(0, &format!("ALTER SYSTEM SET {name} = '{value}'")).expect("the primary");
    cluster.sql(0, "SELECT pg_reload_conf()").expect("the primary");
    eventually("the setting counts", || cluster.sql(0, &format!("SHOW {name}")) == Ok(value.into()));
}

marked!(needs_tools: commits_wait_for_a_replica_whatever_becomes_of_synchronous_commit);
fn commits_wait_for_a_replica_whatever_becomes_of_synchronous_commit() {
    let Some(cluster) = Postgres::start("pinned", 3) else { return };
    let old = cluster.front(&[]);
    old.client().line("SETNX before 1").is(1);
    for whose in ["ROLE keyfast", "DATABASE postgres"] {
        cluster.sql(0, &format!("ALTER {whose} SET synchronous_commit = off")).expect("the primary");
    }
    set(&cluster, "synchronous_commit", "off");
    let new = cluster.front(&[]);
    let signal = |signal| [1, 2].map(|node| cluster.signal(node, signal));
    signal("STOP");
    let mut clients = [old.client(), new.client()];
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&request(["SETNX", &format!("lock:{number}"), "1"]));
    }
    for client in &mut clients {
        assert!(client.is_silent_for(Duration::from_secs(1)), "what no replica has was acknowledged");
    }
    signal("CONT");
    clients.iter_mut().for_each(|client| client.reply().is(1));
}

marked!(needs_tools: fewer_confirmations_than_before_are_refused_until_there_are_as_many_again);
fn fewer_confirmations_than_before_are_refused_until_there_are_as_many_again() {
    let Some(cluster) = Postgres::start("weaker", 3) else { return };
    let front = cluster.front(&["--store-timeout", "1000"]);
    let mut client = front.client();
    client.line("SETNX before 1").is(1);
    client.line("DBSIZE").is(1);
    assert_eq!(client.info("store_confirmations"), "1");
    for round in 0..2 {
        set(&cluster, "synchronous_standby_names", "");
        let text = client.line(&format!("SETNX lock:{round} 1")).text();
        assert!(text.starts_with("STOREDOWN "), "{text}");
        for line in ["GET before", "DBSIZE", "SETNX another 1", "FLUSHALL"] {
            let text = client.line(line).text();
            assert!(text.starts_with("STOREDOWN "), "{line}: {text}");
        }
        front.wait_for_output("synchronous_standby_names now asks for 0 confirmations, and before for 1");
        set(&cluster, "synchronous_standby_names", "ANY 1 (n1, n2)");
        eventually("it is used again", || client.line("GET before").reply() == Reply::from("1"));
        // The first one was committed, though it was not acknowledged.
        client.line(&format!("SETNX lock:{round} 2")).is(0);
    }
    set(&cluster, "synchronous_standby_names", "ANY 2 (n1, n2)");
    client.line("SETNX after 1").is(1);
    assert_eq!(client.info("store_confirmations"), "2");
}

/// A pooler in transaction mode, in short: at a moment, all its clients get other connections of the server.
struct Pooler {
    address: SocketAddr,
    has_switched: Arc<AtomicBool>,
}

impl Pooler {
    fn to(port: u16) -> Pooler {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, has_switched) =
            (listener.local_addr().expect("an address"), Arc::<AtomicBool>::default());
        let switched = Arc::clone(&has_switched);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let switched = Arc::clone(&switched);
                thread::spawn(move || pool(client, port, &switched));
            }
        });
        Pooler { address, has_switched }
    }
}

fn connect(port: u16, client: &TcpStream, startup: &[u8], is_passed_on: bool) -> TcpStream {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server");
    server.write_all(startup).expect("the server");
    if !is_passed_on {
        // Its welcome ends when it is ready for a query.
        let (mut welcome, mut byte) = (Vec::new(), [0]);
        while !welcome.ends_with(&[b'Z', 0, 0, 0, 5, b'I']) {
            server.read_exact(&mut byte).expect("a welcome");
            welcome.extend(byte);
        }
    }
    let (mut from, mut to) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
    thread::spawn(move || std::io::copy(&mut from, &mut to));
    server
}

fn pool(mut client: TcpStream, port: u16, has_switched: &AtomicBool) {
    let mut bytes = vec![0; 1 << 20];
    let Ok(count @ 1..) = client.read(&mut bytes) else { return };
    let startup = bytes[..count].to_vec();
    let mut was_switched = has_switched.load(Ordering::Relaxed);
    let mut server = connect(port, &client, &startup, true);
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        if has_switched.load(Ordering::Relaxed) && !was_switched {
            was_switched = true;
            server = connect(port, &client, &startup, false);
        }
        if server.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

marked!(needs_tools: a_pooler_that_mixes_up_statements_is_refused_with_what_to_do);
fn a_pooler_that_mixes_up_statements_is_refused_with_what_to_do() {
    let Some(cluster) = Postgres::start("pooler", 1) else { return };
    let pooler = Pooler::to(cluster.port(0));
    let url = format!("postgres://keyfast@{}/postgres?sslmode=disable", pooler.address);
    let server = front(&url, &[]);
    let mut client = server.client();
    client.line("SETNX before 1").is(1);
    pooler.has_switched.store(true, Ordering::Relaxed);
    for line in ["SETNX lock 1", "GET before", "MSET a 1 b 2", "SETNX lock 1"] {
        client.line(line).is_error(
            "STOREDOWN The store has not done this: a pooler in front of PostgreSQL mixes up prepared \
             statements: Keyfast needs its session mode (pool_mode = session)",
        );
    }
    // Nothing was done.
    assert_eq!(cluster.sql(0, "SELECT count(*) FROM keyfast.keys"), Ok("1".into()));
}

/// Takes locks and releases them at a front-end until this is set, whatever the replies are.
fn be_busy(front: &Server, is_over: &AtomicBool) {
    let mut client = front.client();
    while !is_over.load(Ordering::Relaxed) {
        client.line("SETNX busy 1").ignored();
        client.line("MSET busy:1 1 busy:2 2").ignored();
        client.line("DEL busy").ignored();
    }
}

marked!(needs_tools: after_the_schema_was_dropped_all_front_ends_and_blocked_clients_are_served);
fn after_the_schema_was_dropped_all_front_ends_and_blocked_clients_are_served() {
    let Some((cluster, one, other)) = pair("dropped") else { return };
    let mut later = Vec::new();
    for (round, is_busy, waits) in [(0, false, false), (1, false, true), (2, true, true)] {
        let (mut client, mut elsewhere) = (one.client(), other.client());
        client.line("SET before v").is_ok();
        elsewhere.line("GET before").is("v");
        let mut waiters = [&one, &other].map(Server::client);
        for (number, waiter) in waiters.iter_mut().enumerate().filter(|_| waits) {
            waiter.send(&request(["BLPOP", &format!("queue:{number}"), "0"]));
        }
        for client in [&mut client, &mut elsewhere].into_iter().filter(|_| waits) {
            eventually("a client waits", || client.info("blocked_clients") == "1");
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            for front in [&one, &other, &one, &other].into_iter().filter(|_| is_busy) {
                scope.spawn(|| be_busy(front, &is_over));
            }
            // PostgreSQL may end it as a deadlock with batches. Then it is tried again.
            eventually("it is dropped", || cluster.sql(0, "DROP SCHEMA keyfast CASCADE").is_ok());
            later.push(cluster.front(&["--store-name", "later"]));
            for (number, front) in [&one, &other, &later[round]].into_iter().enumerate() {
                let mut client = front.client();
                for turn in 0..40 {
                    client.line(&format!("SETNX lock:{number}:{turn} 1")).is(1);
                }
                client.line("GET before").is_nil();
            }
            drop(end);
        });
        // What was acknowledged is there.
        let locks = "SELECT count(*) FROM keyfast.keys WHERE convert_from(key, 'utf8') LIKE 'lock:%'";
        assert_eq!(cluster.sql(0, locks), Ok("120".into()));
        for (number, waiter) in waiters.iter_mut().enumerate().filter(|_| waits) {
            elsewhere.line(&format!("RPUSH queue:{number} x")).is(1);
            let popped = Reply::Array(vec![format!("queue:{number}").as_str().into(), "x".into()]);
            waiter.reply().is(popped);
        }
        // News cross over, though there is another secret.
        wait_until_heard(&mut one.client(), &other);
        wait_until_heard(&mut other.client(), &later[round]);
        is_told_of_changes(&one, &mut later[round].client());
        client.line("FLUSHALL").is_ok();
        elsewhere.line("DBSIZE").is(0);
        if round == 0 {
            later[0].client().line("DBSIZE").is(0);
        }
    }
}
