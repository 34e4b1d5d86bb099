//! Faults of a store, one by one. With none of them does a client get a wrong reply.

use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::open_files::ask_for;
use support::server::{Server, SetOnDrop};
use support::store::cluster::eventually;
use support::store::postgres::{Postgres, pair};

/// A session of psql that stays open, and so may hold locks.
pub(super) struct Holder {
    child: Child,
    input: ChildStdin,
}

impl Holder {
    pub(super) fn start(cluster: &Postgres, node: usize) -> Holder {
        let port = cluster.port(node).to_string();
        let mut child = Command::new("psql")
            .args(["-h", "127.0.0.1", "-p", &port, "-U", "keyfast", "-Atq", "postgres"])
            .env("PGAPPNAME", "holder")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("psql runs");
        let input = child.stdin.take().expect("a pipe");
        Holder { child, input }
    }

    /// Runs statements, and waits until they have run.
    pub(super) fn run(&mut self, cluster: &Postgres, statements: &str) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("holder{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        writeln!(self.input, "{statements}; SET application_name = '{name}';").expect("psql takes it");
        let is_done = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
        eventually("statements have run", || cluster.sql(0, &is_done) == Ok("1".into()));
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a front-end hears news. It forgets what it has seen when it begins to.
pub(super) fn until_listening(cluster: &Postgres, fronts: usize) {
    let count = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name LIKE 'keyfast%' AND query LIKE '%pg_notify%'";
    eventually("they listen", || cluster.sql(0, count) == Ok(fronts.to_string()));
}

/// Waits until so many batches of front-ends wait for a lock. Other sessions may wait as well: those that
/// free rows, and those that say that a front-end is there.
pub(super) fn until_waiting(cluster: &Postgres, sessions: usize) {
    let count = "SELECT count(*) FROM pg_stat_activity \
                 WHERE application_name LIKE 'keyfast%' AND wait_event_type = 'Lock' \
                 AND query LIKE '%last = $2::bigint%'";
    eventually("they wait", || cluster.sql(0, count) == Ok(sessions.to_string()));
}

/// Ends the session of a front-end that waits for something.
fn terminate_waiting(cluster: &Postgres, event_type: &str) {
    let terminate = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name LIKE 'keyfast%' AND wait_event_type = '{event_type}'"
    );
    eventually("a session ends", || cluster.sql(0, &terminate).is_ok_and(|count| count != "0"));
}

marked!(needs_tools: a_batch_that_was_not_done_is_not_taken_for_done_when_that_has_to_be_asked_twice);
fn a_batch_that_was_not_done_is_not_taken_for_done_when_that_has_to_be_asked_twice() {
    let Some(cluster) = Postgres::start("settle", 3) else { return };
    let front = cluster.front(&["--store-timeout", "20000"]);
    let mut client = front.client();
    client.line("SETNX before 1").is(1);
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
    client.send(&request(["SETNX", "lock", "1"]));
    until_waiting(&cluster, 1);
    // The batch is gone. What has come of it is asked, but the answer is lost, too: no replica confirms it.
    terminate_waiting(&cluster, "Lock");
    until_waiting(&cluster, 1);
    cluster.signal(1, "STOP");
    cluster.signal(2, "STOP");
    holder.run(&cluster, "ROLLBACK");
    terminate_waiting(&cluster, "IPC");
    cluster.signal(1, "CONT");
    cluster.signal(2, "CONT");
    client.reply().is(1);
    client.line("GET lock").is("1");
    cluster.sql(0, "SELECT value FROM keyfast.keys WHERE key = 'lock'").expect("a row");
    let value = cluster.sql(0, "SELECT convert_from(value, 'utf8') FROM keyfast.keys WHERE key = 'lock'");
    assert_eq!(value, Ok("1".to_owned()));
}

marked!(needs_tools: a_commit_is_not_acknowledged_when_its_wait_for_the_replicas_is_cancelled);
fn a_commit_is_not_acknowledged_when_its_wait_for_the_replicas_is_cancelled() {
    let Some(cluster) = Postgres::start("cancel", 3) else { return };
    let front = cluster.front(&["--store-timeout", "20000"]);
    let mut client = front.client();
    client.line("SETNX before 1").is(1);
    cluster.signal(1, "STOP");
    cluster.signal(2, "STOP");
    client.send(&request(["SETNX", "lock", "1"]));
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                  WHERE application_name LIKE 'keyfast%' AND wait_event = 'SyncRep'";
    eventually("the wait is cancelled", || cluster.sql(0, cancel).is_ok_and(|count| count != "0"));
    assert!(client.is_silent_for(Duration::from_secs(1)), "a commit that no replica has was acknowledged");
    cluster.signal(1, "CONT");
    cluster.signal(2, "CONT");
    client.reply().is(1);
}

marked!(needs_tools: keys_of_one_name_in_two_databases_are_two_keys);
fn keys_of_one_name_in_two_databases_are_two_keys() {
    let Some((cluster, one, _other)) = pair("databases") else { return };
    let (mut first, mut client, mut elsewhere) = (one.client(), one.client(), one.client());
    elsewhere.line("SELECT 1").is_ok();
    let (mut holder, mut taker) = (Holder::start(&cluster, 0), Holder::start(&cluster, 0));
    holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
    let slot = xxhash_rust::xxh3::xxh3_64_with_seed(b"lock", 0) >> 2;
    taker.run(
        &cluster,
        &format!(
            "BEGIN; INSERT INTO keyfast.keys \
             VALUES (0, 'lock', {slot}, 'string', 'x', 'infinity', 7, 7, now(), 'x', false)"
        ),
    );
    // The two that are of interest travel in one batch, behind this one.
    first.send(&request(["SETNX", "first", "1"]));
    until_waiting(&cluster, 1);
    client.send(&request(["SETNX", "lock", "a"]));
    elsewhere.send(&request(["SET", "lock", "b", "PX", "100000"]));
    thread::sleep(Duration::from_millis(200));
    holder.run(&cluster, "ROLLBACK");
    first.reply().is(1);
    until_waiting(&cluster, 1);
    taker.run(&cluster, "COMMIT");
    client.reply().is(0);
    elsewhere.reply().is_ok();
    client.line("GET lock").is("x");
    client.line("PTTL lock").is(-1);
    assert!(elsewhere.line("PTTL lock").integer() > 0);
}

marked!(needs_tools: a_value_of_an_unknown_type_harms_no_other_key);
fn a_value_of_an_unknown_type_harms_no_other_key() {
    let Some((cluster, one, _other)) = pair("unknown-type") else { return };
    let mut client = one.client();
    client.line("SET strange v").is_ok();
    cluster.sql(0, "UPDATE keyfast.keys SET kind = 'newer', version = 5").expect("the store");
    for turn in 0..3 {
        client.line("GET strange").is_error("ERR The store has a value that cannot be read");
        client.line(&format!("SETNX lock:{turn} 1")).is(1);
        client.line(&format!("GET lock:{turn}")).is("1");
    }
    assert_eq!(cluster.sql(0, "SELECT count(*) FROM keyfast.keys"), Ok("4".into()));
}

marked!(needs_tools: a_row_that_is_freed_while_a_batch_relies_on_it_loses_no_write);
fn a_row_that_is_freed_while_a_batch_relies_on_it_loses_no_write() {
    let Some((cluster, one, _other)) = pair("freed") else { return };
    let mut client = one.client();
    until_listening(&cluster, 2);
    client.line("MSET a 1 b 1").is_ok();
    client.line("DEL a b").is(2);
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
    client.send(&request(["MSET", "a", "2", "b", "2"]));
    until_waiting(&cluster, 1);
    holder.run(&cluster, "DELETE FROM keyfast.keys; COMMIT");
    client.reply().is_ok();
    assert_eq!(client.line("MGET a b").reply().to_string(), r#"["2", "2"]"#);
}

marked!(needs_tools: a_lock_is_not_taken_by_a_front_end_whose_clock_is_ahead_of_the_stores);
fn a_lock_is_not_taken_by_a_front_end_whose_clock_is_ahead_of_the_stores() {
    let Some(cluster) = Postgres::start("clock", 1) else { return };
    cluster
        .sql(
            0,
            "CREATE SCHEMA turned; CREATE TABLE turned.by (span interval);
             INSERT INTO turned.by VALUES ('0 s');
             CREATE FUNCTION turned.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
                 AS 'SELECT pg_catalog.clock_timestamp() + span FROM turned.by';
             CREATE FUNCTION turned.statement_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
                 AS 'SELECT pg_catalog.statement_timestamp() + span FROM turned.by';
             ALTER ROLE keyfast SET search_path = turned, pg_catalog",
        )
        .expect("the store");
    let front = cluster.front(&[]);
    let mut client = front.client();
    until_listening(&cluster, 1);
    // Less than what front-ends put right: see the tests of clocks.
    const BACK: Duration = Duration::from_millis(90);
    for round in 0..5 {
        let asked = Instant::now();
        client.line(&format!("SET lock {round} NX PX 300")).is_ok();
        cluster.sql(0, "UPDATE turned.by SET span = span - interval '90 ms'").expect("the store");
        while client.line("SETNX lock yours").reply() != Reply::Integer(1) {}
        let held = asked.elapsed();
        assert!(held >= Duration::from_millis(300) + BACK, "it was taken after {held:?}");
        client.line("DEL lock").is(1);
    }
}

marked!(needs_tools: a_flush_leaves_no_key_that_was_written_before_one_that_it_deletes);
fn a_flush_leaves_no_key_that_was_written_before_one_that_it_deletes() {
    let Some((_cluster, one, other)) = pair("flush") else { return };
    let mut client = one.client();
    for some in 0..20 {
        let words = (0..200).flat_map(|key| [format!("key:{some}:{key}"), "1".to_owned()]);
        client.cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
    }
    for round in 0..10 {
        client.line("SET last 0").is_ok();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            scope.spawn(|| {
                let mut writer = other.client();
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    writer.line(&format!("SET new:{round}:{turn} 1")).is_ok();
                    writer.line(&format!("SET last {turn}")).is_ok();
                }
            });
            thread::sleep(Duration::from_millis(50));
            client.line("FLUSHALL").is_ok();
            drop(end);
        });
        // Whatever is left of these was followed by another write of the last key.
        let left = client.line(&format!("KEYS new:{round}:*")).items().len();
        let last = client.line("EXISTS last").integer();
        assert!(left == 0 || last == 1, "{left} keys are left, and the last one is gone");
    }
}

/// Adds 1 so often; an answer that was lost may have counted.
fn increment(client: &mut Client, key: &str, times: usize) -> (i64, i64) {
    let (mut sure, mut lost) = (0, 0);
    for _ in 0..times {
        match client.line(&format!("INCR {key}")).reply() {
            Reply::Integer(_) => sure += 1,
            Reply::Error(text) if text.starts_with("STOREDOWN Outcome unknown") => lost += 1,
            Reply::Error(text) if text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN ") => {
                thread::sleep(Duration::from_millis(10));
            }
            other => panic!("{other}"),
        }
    }
    (sure, lost)
}

marked!(needs_tools: counts_of_64_clients_of_two_front_ends_add_up);
fn counts_of_64_clients_of_two_front_ends_add_up() {
    let Some((_cluster, one, other)) = pair("counts") else { return };
    let fronts = [&one, &other];
    thread::scope(|scope| {
        for number in 0..64 {
            let mut client = fronts[number % 2].client();
            scope.spawn(move || assert_eq!(increment(&mut client, "count", 50), (50, 0)));
        }
    });
    one.client().line("GET count").is("3200");
}

const ACCOUNTS: usize = 6;
const MOVE: &str = "redis.call('decr', KEYS[1]) return redis.call('incr', KEYS[2])";

/// Moves 1 from an account to another one, in one of three ways. Returns whether that was done.
fn transfer(client: &mut Client, way: usize, from: usize, to: usize) -> Reply {
    let (from, to) = (format!("account:{from}"), format!("account:{to}"));
    match way {
        0 => client.cmd(["EVAL", MOVE, "2", &from, &to]).reply(),
        1 => {
            client.line("MULTI").is_ok();
            client.line(&format!("DECR {from}")).is_simple("QUEUED");
            client.line(&format!("INCR {to}")).is_simple("QUEUED");
            client.line("EXEC").reply()
        }
        _ => {
            let watched = client.line(&format!("WATCH {from} {to}")).reply();
            if let Reply::Error(_) = watched {
                return watched;
            }
            let found = client.line(&format!("MGET {from} {to}")).reply();
            let Reply::Array(found) = found else { return found };
            let numbers: Vec<i64> =
                found.iter().map(|one| one.to_string().trim_matches('"').parse().expect("a sum")).collect();
            client.line("MULTI").is_ok();
            client.line(&format!("SET {from} {}", numbers[0] - 1)).is_simple("QUEUED");
            client.line(&format!("SET {to} {}", numbers[1] + 1)).is_simple("QUEUED");
            client.line("EXEC").reply()
        }
    }
}

/// Many clients of all front-ends transfer, until this is set; some look at all accounts.
fn transfers(fronts: &[Server], is_over: &AtomicBool) -> (usize, usize) {
    let (done, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..16 {
            let (front, done, refused) = (&fronts[number % fronts.len()], &done, &refused);
            scope.spawn(move || {
                let mut client = front.client();
                let mut random = fastrand::Rng::with_seed(number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
                    if from == to {
                        check_sum(&mut client);
                        continue;
                    }
                    match transfer(&mut client, number / fronts.len() % 3, from, to) {
                        Reply::Error(text)
                            if text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN ") =>
                        {
                            refused.fetch_add(1, Ordering::Relaxed);
                            thread::sleep(Duration::from_millis(5));
                        }
                        Reply::Error(text) => panic!("{text}"),
                        _ => _ = done.fetch_add(1, Ordering::Relaxed),
                    }
                }
            });
        }
    });
    (done.into_inner(), refused.into_inner())
}

fn check_sum(client: &mut Client) {
    let words = std::iter::once("MGET".to_owned()).chain((0..ACCOUNTS).map(|one| format!("account:{one}")));
    match client.cmd(words).reply() {
        Reply::Array(all) => {
            let sum: i64 =
                all.iter().map(|one| one.to_string().trim_matches('"').parse::<i64>().expect("a sum")).sum();
            assert_eq!(sum, 0, "{all:?}");
        }
        Reply::Error(text) if text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN ") => {}
        other => panic!("{other}"),
    }
}

fn open_accounts(front: &Server) {
    let words = (0..ACCOUNTS).flat_map(|one| [format!("account:{one}"), "0".to_owned()]);
    front.client().cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
}

marked!(needs_tools: transfers_over_two_front_ends_keep_the_sum_while_one_is_killed_and_the_store_is_stopped);
fn transfers_over_two_front_ends_keep_the_sum_while_one_is_killed_and_the_store_is_stopped() {
    let Some(cluster) = Postgres::start("transfers", 1) else { return };
    let timeout = ["--store-timeout", "2000"];
    let fronts = [cluster.front(&timeout), cluster.front(&timeout)];
    open_accounts(&fronts[0]);
    let is_over = AtomicBool::new(false);
    let (done, refused) = thread::scope(|scope| {
        let all = scope.spawn(|| transfers(&fronts, &is_over));
        let end = SetOnDrop(&is_over);
        for round in 0..3 {
            thread::sleep(Duration::from_secs(1));
            // A front-end of its own, with requests under way when it is killed.
            let other = cluster.front(&timeout);
            let load = AtomicBool::new(false);
            thread::scope(|scope| {
                let _end = SetOnDrop(&load);
                for number in 0..8 {
                    let (other, load) = (&other, &load);
                    scope.spawn(move || {
                        let mut client = other.client();
                        for turn in 0.. {
                            let (from, to) = ((number + turn) % ACCOUNTS, (number + turn + 1) % ACCOUNTS);
                            let line = format!("EVAL \"{MOVE}\" 2 account:{from} account:{to}");
                            if load.load(Ordering::Relaxed) || client.try_line(&line).is_err() {
                                break;
                            }
                        }
                    });
                }
                thread::sleep(Duration::from_millis(300));
                other.signal("KILL");
            });
            match round {
                0 => {
                    cluster.signal(0, "STOP");
                    thread::sleep(Duration::from_secs(3));
                    cluster.signal(0, "CONT");
                }
                1 => {
                    cluster.stop_node(0, "immediate");
                    cluster.start_node(0);
                }
                _ => {}
            }
        }
        thread::sleep(Duration::from_secs(1));
        drop(end);
        all.join().expect("counts")
    });
    assert!(done > 100, "{done} done, {refused} refused");
    eventually("the sum is seen", || {
        let mut client = fronts[0].client();
        check_sum(&mut client);
        client.line("GET account:0").text().parse::<i64>().is_ok()
    });
}

marked!(needs_tools: fencing_numbers_of_a_key_only_grow);
fn fencing_numbers_of_a_key_only_grow() {
    let Some((cluster, one, other)) = pair("fences") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    let mut last = 0;
    let mut grown = |what: &str| {
        let fence = cluster.sql(0, "SELECT fence FROM keyfast.keys WHERE key = 'lock'").expect("a fence");
        let fence: i64 = fence.parse().expect("a number");
        assert!(fence > last, "{what}: {fence} after {last}");
        last = fence;
    };
    for _ in 0..3 {
        one.line("SETNX lock same").is(1);
        grown("it is taken");
        one.line("DELIFEQ lock same").is(1);
        other.line("SETNX lock same").is(1);
        grown("it is taken by another front-end");
        other.line("DEL lock").is(1);
        one.line("SET lock same NX PX 20").is_ok();
        grown("it is taken for some time");
        thread::sleep(Duration::from_millis(25));
        other.line("GET lock").is_nil();
        other.line("SETNX lock same").is(1);
        grown("it has expired");
        // Released and taken again at once, by requests that travel together.
        let both = [request(["DEL", "lock"]), request(["SETNX", "lock", "same"])].concat();
        one.line("MULTI").is_ok();
        one.line("DEL lock").is_simple("QUEUED");
        one.line("SETNX lock same").is_simple("QUEUED");
        assert_eq!(one.line("EXEC").reply().to_string(), "[(integer) 1, (integer) 1]");
        grown("it is released and taken in a transaction");
        other.send(&both);
        other.reply().is(1);
        other.reply().is(1);
        grown("it is released and taken in a pipeline");
        other.line("DEL lock").is(1);
    }
}

marked!(needs_tools: many_clients_wait_in_bounded_memory_and_are_told_in_time_when_the_store_is_away);
fn many_clients_wait_in_bounded_memory_and_are_told_in_time_when_the_store_is_away() {
    let Some(cluster) = Postgres::start("many", 1) else { return };
    let Some(_files) = ask_for(3010) else { return };
    let clients_of = |front: &Server| -> Vec<Client> {
        let mut clients: Vec<Client> = (0..3000).map(|_| front.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&request(["SETNX", &format!("key:{number}"), "1"]));
        }
        clients
    };
    // More than fit into one batch, at once: no client gets TRYAGAIN.
    let patient = cluster.front(&["--maxclients", "4000"]);
    clients_of(&patient).iter_mut().for_each(|client| client.reply().is(1));
    drop(patient);
    let front = cluster.front(&["--store-timeout", "1500", "--maxclients", "4000"]);
    let mut clients = clients_of(&front);
    clients.iter_mut().for_each(|client| client.reply().ignored());
    let before = front.resident_bytes();
    cluster.signal(0, "STOP");
    let began = Instant::now();
    let value = "x".repeat(10_000);
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&request(["SET", &format!("key:{number}"), &value]));
    }
    let mut unknown = 0;
    for client in &mut clients {
        let text = client.reply().text();
        assert!(text.starts_with("STOREDOWN ") || text.starts_with("TRYAGAIN "), "{text}");
        unknown += usize::from(text.starts_with("STOREDOWN Outcome unknown"));
    }
    let (took, grown) = (began.elapsed(), front.resident_bytes().saturating_sub(before));
    cluster.signal(0, "CONT");
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(unknown > 0 && unknown <= 512, "{unknown} of those that were under way");
    assert!(grown < 200 << 20, "{grown} bytes");
    eventually("the store is used again", || {
        clients[0].line("SET after 1").reply() == Reply::Simple("OK".into())
    });
}

marked!(needs_tools: what_a_store_refuses_is_said_and_done_when_it_takes_it_again);
fn what_a_store_refuses_is_said_and_done_when_it_takes_it_again() {
    let Some((cluster, one, _other)) = pair("read-only") else { return };
    let mut client = one.client();
    client.line("SETNX k v").is(1);
    let set = |value: &str| {
        let statement = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        cluster.sql(0, &format!("SET default_transaction_read_only = off; {statement}")).ok();
        Holder::start(&cluster, 0).run(
            &cluster,
            &format!("SET default_transaction_read_only = off; {statement}; SELECT pg_reload_conf()"),
        );
    };
    set("on");
    eventually("it refuses", || {
        client.line("SET k w").text().starts_with("STOREDOWN The store has not done this")
    });
    set("off");
    eventually("it takes it", || client.line("SETNX other v").reply() == Reply::Integer(1));
    client.line("GET k").is("v");
}

marked!(needs_tools: large_requests_and_all_bytes_arrive);
fn large_requests_and_all_bytes_arrive() {
    let Some((_cluster, one, other)) = pair("large") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    let pages = || (0..10).map(|page| page * 5_000..(page + 1) * 5_000);
    for page in pages() {
        let words = page.flat_map(|key| [format!("key:{key}"), format!("{key}")]);
        one.cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
    }
    other.line("DBSIZE").is(50_000);
    other.line("GET key:49999").is("49999");
    for page in pages() {
        let words = page.map(|key| format!("key:{key}"));
        other.cmd(["DEL".to_owned()].into_iter().chain(words)).is(5_000);
    }
    let all: Vec<u8> = (0..=255).collect();
    one.cmd([b"SET".as_slice(), &all, &all]).is_ok();
    assert_eq!(other.cmd([b"GET".as_slice(), &all]).reply(), Reply::Bulk(all.clone()));
    one.cmd([b"SET".as_slice(), b"", b""]).is_ok();
    other.cmd([b"GET".as_slice(), b""]).is("");
    let largest = "x".repeat(1 << 20);
    one.line(&format!("SET large {largest}")).is_ok();
    assert_eq!(other.line("STRLEN large").integer(), 1 << 20);
    other.line("APPEND large x").text();
    one.line("CLIENT SETNAME näme").ignored();
    one.line("SET named 1").is_ok();
    for script in [
        "redis.call('set',KEYS[1],'w') error('late')",
        "redis.call('set',KEYS[1],'w') return redis.call('lpush',KEYS[1],1)",
    ] {
        other.line("SET k v").is_ok();
        assert!(one.cmd(["EVAL", script, "1", "k"]).text().contains("script"), "{script}");
        other.line("GET k").is("w");
    }
    one.line("MULTI").is_ok();
    one.line("SET k 1").is_simple("QUEUED");
    one.line("LPUSH k 1").is_simple("QUEUED");
    one.line("INCR k").is_simple("QUEUED");
    let text = one.line("EXEC").reply().to_string();
    assert!(text.contains("WRONGTYPE") && text.ends_with("(integer) 2]"), "{text}");
    other.line("GET k").is("2");
    let many = (0..500).map(|key| format!("watched:{key}"));
    one.cmd(["WATCH".to_owned()].into_iter().chain(many)).is_ok();
    other.line("SET watched:250 1").is_ok();
    one.line("MULTI").is_ok();
    one.line("WATCH x").is_error("ERR WATCH inside MULTI is not allowed");
    one.line("DISCARD").is_ok();
    one.line("SCAN abc").is_error("ERR invalid cursor");
}

marked!(needs_tools: long_values_can_be_changed_and_killed_scripts_do_not_run_again);
fn long_values_can_be_changed_and_killed_scripts_do_not_run_again() {
    let Some((_cluster, one_front, other)) = pair("long") else { return };
    let (mut one, mut other) = (one_front.client(), other.client());
    one.line(&format!("SET long {}", "x".repeat(100_000))).is_ok();
    other.line("APPEND long y").is(100_001);
    one.line("GETSET long z").ignored();
    other.line("GET long").is("z");
    let mut killer = one_front.client();
    let script = "redis.call('get', KEYS[1]) while true do end";
    one.send(&request(["EVAL", script, "1", "long"]));
    let mut killed = 0;
    eventually("it is killed", || {
        killed += usize::from(killer.line("SCRIPT KILL").reply() == Reply::Simple("OK".into()));
        killed > 0
    });
    assert!(one.reply().text().starts_with("ERR Script killed by user"));
}

marked!(needs_tools: clients_that_wait_know_what_they_wait_for);
fn clients_that_wait_know_what_they_wait_for() {
    let Some((_cluster, one, other)) = pair("waiting") else { return };
    let (mut waiter, mut other) = (one.client(), other.client());
    let nap = || thread::sleep(Duration::from_millis(300));
    other.line("XADD stream 1-1 f v").is("1-1");
    waiter.send(&request(["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"]));
    nap();
    other.line("XADD stream 2-1 f w").is("2-1");
    assert_eq!(waiter.reply().reply().to_string(), r#"[["stream", [["2-1", ["f", "w"]]]]]"#);
    waiter.send(&request(["BLPOP", "list", "0"]));
    nap();
    other.line("ZADD list 1 a").is(1);
    nap();
    other.line("DEL list").is(1);
    other.line("RPUSH list a").is(1);
    assert_eq!(waiter.reply().reply().to_string(), r#"["list", "a"]"#);
    other.line("XGROUP CREATE stream g $").is_ok();
    waiter.send(&request(["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "stream", ">"]));
    nap();
    other.line("DEL stream").is(1);
    waiter
        .reply()
        .is_error("NOGROUP No such key 'stream' or consumer group 'g' in XREADGROUP with GROUP option");
    other.line("XGROUP CREATE stream g $ MKSTREAM").is_ok();
    waiter.send(&request(["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "stream", ">"]));
    nap();
    other.line("XGROUP DESTROY stream g").is(1);
    waiter
        .reply()
        .is_error("NOGROUP No such key 'stream' or consumer group 'g' in XREADGROUP with GROUP option");
    other.line("SET target string").is_ok();
    waiter.send(&request(["BLMOVE", "source", "target", "LEFT", "LEFT", "0"]));
    nap();
    other.line("RPUSH source a").is(1);
    waiter.reply().is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
}

marked!(needs_tools: a_client_waits_even_while_it_looks_for_what_it_waits_for);
fn a_client_waits_even_while_it_looks_for_what_it_waits_for() {
    let Some((_cluster, one, other)) = pair("looking") else { return };
    let (mut waiter, mut other, mut watching) = (one.client(), other.client(), one.client());
    let id = waiter.line("CLIENT ID").integer();
    for round in 0..20 {
        waiter.send(&request(["BLPOP", "list", "0"]));
        let waits = |watching: &mut Client| {
            let line = watching.line(&format!("CLIENT LIST ID {id}")).text();
            line.contains(" flags=b ")
        };
        eventually("it waits", || waits(&mut watching));
        // Each time it looks, it finds nothing.
        for request in ["MULTI", "RPUSH list a", "DEL list", "EXEC"] {
            other.line(request).ignored();
        }
        for _ in 0..100 {
            assert!(waits(&mut watching), "round {round}");
        }
        watching.line(&format!("CLIENT UNBLOCK {id}")).is(1);
        waiter.reply().is_nil();
        watching.line(&format!("CLIENT UNBLOCK {id}")).is(0);
    }
}

marked!(needs_tools: a_wrong_password_and_too_few_connections_are_told_in_the_log);
fn a_wrong_password_and_too_few_connections_are_told_in_the_log() {
    let Some(cluster) = Postgres::start("password", 1) else { return };
    let prepare = "CREATE ROLE guest LOGIN PASSWORD 'right' CONNECTION LIMIT 1;
        GRANT CREATE ON DATABASE postgres TO guest;
        DO $$ BEGIN EXECUTE format('COPY (VALUES (''host all guest 127.0.0.1/32 scram-sha-256''),
            (''host all all 127.0.0.1/32 trust'')) TO %L', current_setting('hba_file')); END $$;
        SELECT pg_reload_conf()";
    cluster.sql(0, prepare).expect("the store");
    let url = |secret: &str| cluster.url().replace("keyfast@", &format!("guest:{secret}@"));
    let wrong = Server::start_with(&["--store", &url("wrong"), "--store-timeout", "2000"]);
    wrong.wait_for_output("password authentication failed for user \"guest\"");
    assert!(wrong.client().line("SETNX k v").text().starts_with("STOREDOWN "));
    assert!(!wrong.output().contains("wrong"), "{}", wrong.output());
    drop(wrong);
    let front = Server::start_with(&["--store", &url("right")]);
    front.wait_for_output("No news of other front-ends from the store: too many connections for role");
    let mut client = front.client();
    client.line("SETNX k v").is(1);
    let text = client.line("DBSIZE").text();
    assert!(text.starts_with("STOREDOWN The store has not done this: too many connections"), "{text}");
}
