//! What administrators do beside a store, and what stands between it and the front-ends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{is_told_of_changes, wait_until_heard, wait_until_heard_again};
use support::client::{Reply, request};
use support::metrics::get;
use support::server::{Server, SetOnDrop, free_port};
use support::store::cluster::{eventually, front};
use support::store::postgres::{Postgres, pair};

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

/// A pooler in transaction mode, in short: at a moment, all its clients get other sessions of the server. Or
/// one that knows prepared statements: only notifications show what it is.
struct Pooler {
    address: SocketAddr,
    has_switched: Arc<AtomicBool>,
    drops_notifications: Arc<AtomicBool>,
}

impl Pooler {
    fn to(port: u16) -> Pooler {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (has_switched, drops_notifications) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (switched, drops) = (Arc::clone(&has_switched), Arc::clone(&drops_notifications));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (switched, drops) = (Arc::clone(&switched), Arc::clone(&drops));
                thread::spawn(move || pool(client, port, &switched, &drops));
            }
        });
        Pooler { address, has_switched, drops_notifications }
    }

    fn url(&self) -> String {
        format!("postgres://keyfast@{}/postgres?sslmode=disable", self.address)
    }
}

/// Passes on what the server sends. Each message has a letter, and its length.
fn pass_on(mut from: TcpStream, mut to: TcpStream, drops: &AtomicBool) -> std::io::Result<()> {
    loop {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut message = head.to_vec();
        message.resize(length + 1, 0);
        from.read_exact(&mut message[5..])?;
        if head[0] != b'A' || !drops.load(Ordering::Relaxed) {
            to.write_all(&message)?;
        }
    }
}

fn connect(
    port: u16,
    client: &TcpStream,
    startup: &[u8],
    (is_passed_on, drops): (bool, &Arc<AtomicBool>),
) -> TcpStream {
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
    let (from, to) = (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
    let drops = Arc::clone(drops);
    thread::spawn(move || {
        let (server, client) = (from.try_clone(), to.try_clone());
        let _ = pass_on(from, to, &drops);
        // The client leaves with its session.
        [server, client].into_iter().flatten().for_each(|socket| _ = socket.shutdown(Shutdown::Both));
    });
    server
}

fn pool(mut client: TcpStream, port: u16, has_switched: &AtomicBool, drops: &Arc<AtomicBool>) {
    let mut bytes = vec![0; 1 << 20];
    let Ok(count @ 1..) = client.read(&mut bytes) else { return };
    let startup = bytes[..count].to_vec();
    let mut was_switched = has_switched.load(Ordering::Relaxed);
    let mut server = connect(port, &client, &startup, (true, drops));
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        if has_switched.load(Ordering::Relaxed) && !was_switched {
            was_switched = true;
            server = connect(port, &client, &startup, (false, drops));
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
    let server = front(&pooler.url(), &[]);
    let mut client = server.client();
    client.line("SETNX before 1").is(1);
    pooler.has_switched.store(true, Ordering::Relaxed);
    client.line("SETNX lock 1").is_error(
        "STOREDOWN The store has not done this: a pooler in front of PostgreSQL mixes up prepared \
         statements: Keyfast needs its session mode (pool_mode = session)",
    );
    // Nothing was done. A connection that is a session again is used, and said to be well.
    client.line("SETNX lock 1").is(1);
    client.line("GET before").is("1");
    eventually("it is well", || client.info("store_connected") == "1");
}

marked!(needs_tools: a_pooler_that_passes_no_notifications_on_is_refused_until_it_does);
fn a_pooler_that_passes_no_notifications_on_is_refused_until_it_does() {
    let Some(cluster) = Postgres::start("pooler-modern", 1) else { return };
    let pooler = Pooler::to(cluster.port(0));
    pooler.drops_notifications.store(true, Ordering::Relaxed);
    let server = Server::start_with(&["--store", &pooler.url(), "--store-timeout", "2000"]);
    server.wait_for_output("a pooler in front of PostgreSQL gives each transaction another session");
    let mut client = server.client();
    eventually("it is refused", || {
        let text = client.line("SETNX lock 1").text();
        text.starts_with("STOREDOWN The store cannot be reached: a pooler in front of")
    });
    pooler.drops_notifications.store(false, Ordering::Relaxed);
    eventually("it is used", || client.line("GET lock").reply() == Reply::Null);
    // One that stops to pass them on is noticed, so that no client believes what it has read before.
    let mut reader = server.client3();
    reader.line("CLIENT TRACKING ON").is_ok();
    reader.send(&request(["GET", "lock"]));
    while !reader.is_silent_for(Duration::from_secs(2)) {
        reader.reply().ignored();
    }
    reader.line("GET lock").is_nil();
    pooler.drops_notifications.store(true, Ordering::Relaxed);
    reader.reply().is(Reply::Push(vec!["invalidate".into(), Reply::Null]));
    server.wait_for_output("what this front-end sends does not come back to it");
}

/// The blocks of SQL in the page on stores, in their order.
fn blocks_of_sql() -> Vec<String> {
    let page = include_str!("../../../src/guide/store.md");
    let blocks = page.split("```sql\n").skip(1);
    blocks.map(|rest| rest.split_once("```").expect("an end").0.to_owned()).collect()
}

marked!(needs_tools: a_user_with_the_rights_on_the_page_is_served_and_its_query_shows_all_locks);
fn a_user_with_the_rights_on_the_page_is_served_and_its_query_shows_all_locks() {
    let Some(cluster) = Postgres::start("rights", 1) else { return };
    let sql = |statement: &str| cluster.sql(0, statement).expect("the store");
    cluster.load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/postgres/schema.sql")));
    sql("CREATE ROLE app LOGIN");
    let [rights, locks] = &blocks_of_sql()[..] else { panic!("other blocks") };
    sql(rights);
    let server = front(&cluster.url_of("app", "127.0.0.1", "?sslmode=disable"), &[]);
    let mut client = server.client();
    client.cmd([&b"SET"[..], b"lock:\xff", b"a", b"NX", b"PX", b"60000"]).is_ok();
    client.line("SET value a").is_ok();
    let number = client.line("LOCK ACQUIRE own a PX 60000").integer();
    client.line("SETNX gone a").is(1);
    client.line("DEL gone").is(1);
    let shown = sql(locks);
    let names: Vec<&str> = shown.lines().filter_map(|line| Some(line.split_once('|')?.0)).collect();
    assert_eq!(names, [r"lock:\377", "own"], "{shown}");
    assert!(shown.lines().nth(1).is_some_and(|line| line.contains(&format!("|{number}|"))), "{shown}");
    client.line("FLUSHALL").is_ok();
    assert_eq!(sql(locks), "");
    // It finds what has expired, too, and other servers hear from it.
    wait_until_heard(&mut server.client(), &cluster.front(&[]));
}

marked!(needs_tools: a_store_that_refuses_requests_is_not_said_to_be_well_until_it_does_not);
fn a_store_that_refuses_requests_is_not_said_to_be_well_until_it_does_not() {
    let Some(cluster) = Postgres::start("refusing", 1) else { return };
    let sql = |statement: &str| cluster.sql(0, statement).expect("the store");
    sql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let port = free_port();
    let url = cluster.url_of("app", "127.0.0.1", "?sslmode=disable");
    let server = front(&url, &["--metrics-port", &port.to_string()]);
    let health = || get((Ipv4Addr::LOCALHOST, port).into(), "/healthz");
    let mut client = server.client();
    client.line("SETNX before 1").is(1);
    assert_eq!(health().status, 200);
    sql("REVOKE UPDATE ON keyfast.keys FROM app");
    let text = client.line("SETNX lock 1").text();
    assert!(text.starts_with("STOREDOWN The store has not done this: permission denied"), "{text}");
    assert_eq!(client.info("store_connected"), "0");
    let said = health();
    assert_eq!((said.status, said.body.as_str()), (503, "the store refuses requests\n"));
    // No client asks it for anything meanwhile.
    sql("GRANT UPDATE ON keyfast.keys TO app");
    eventually("it is said to be well", || health().status == 200);
    assert_eq!(client.info("store_connected"), "1");
    client.line("SETNX lock 1").is(1);
    assert_eq!(sql("SELECT count(*) FROM keyfast.keys"), "2", "nothing is left of the trials");
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
        // News cross over, though there is another secret: once each has seen that it must connect anew.
        wait_until_heard_again(&mut one.client(), &other);
        wait_until_heard_again(&mut other.client(), &later[round]);
        is_told_of_changes(&one, &mut later[round].client());
        client.line("FLUSHALL").is_ok();
        elsewhere.line("DBSIZE").is(0);
        if round == 0 {
            later[0].client().line("DBSIZE").is(0);
        }
    }
}
