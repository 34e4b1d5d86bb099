//! FLUSHDB and FLUSHALL: one moment for all clients, however many keys there are. In PostgreSQL a database
//! gets another number, and in etcd its keys get other names; those of before are deleted later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::attacks::{Holder, until_listening, until_waiting};
use super::{Kind, field, pair, scan, wait_until_heard};
use support::client::{Client, Reply, request};
use support::server::{Server, SetOnDrop};
use support::store::cluster::{eventually, front};
use support::store::etcd::Etcd;
use support::store::postgres::{Postgres, pair as postgres_pair};

on_both! {
    a_flush_is_one_moment_for_clients_that_read_and_write_at_two_front_ends
    watched_keys_that_a_flush_deletes_have_changed_and_absent_ones_have_not
    a_lock_that_was_flushed_has_a_higher_fencing_number_when_it_is_taken_again
    a_flush_of_one_database_leaves_the_others_and_a_flush_of_all_leaves_none
}

/// Adds so many rows to a database, as if clients had written them.
fn add_rows(cluster: &Postgres, database: usize, rows: usize) {
    let add = format!(
        "INSERT INTO keyfast.keys SELECT numbers[{database}], convert_to('many:' || n, 'utf8'), n * 1000, \
         'string', 'v', 'infinity', n, n, now(), 'x', n <= 10 \
         FROM keyfast.databases, generate_series(1, {rows}) n"
    );
    cluster.sql(0, &add).expect("the store");
}

/// Checks that no client of these front-ends sees a key.
fn all_is_gone(fronts: [&Server; 2]) {
    for front in fronts {
        let mut client = front.client();
        client.line("DBSIZE").is(0);
        client.line("KEYS *").is(Reply::Array(Vec::new()));
        client.line("RANDOMKEY").is_nil();
        client.line("LOCKS LIST").is(Reply::Array(Vec::new()));
        assert_eq!(scan(&mut client), [""; 0]);
    }
}

marked!(needs_tools: a_flush_of_many_keys_changes_none_of_their_rows_and_waits_for_no_writer);
fn a_flush_of_many_keys_changes_none_of_their_rows_and_waits_for_no_writer() {
    let Some((cluster, one, other)) = postgres_pair("flush-many") else { return };
    add_rows(&cluster, 0, 150_000);
    let (mut client, mut writer) = (one.client(), other.client());
    client.line("DBSIZE").is(150_000);
    writer.line("SET old v").is_ok();
    // One that writes to the old rows, and does not come to its end.
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN; UPDATE keyfast.keys SET since = now() WHERE key IN ('many:7', 'old')");
    let rows = "SELECT count(*), sum(xmin::text::bigint), sum(xmax::text::bigint) FROM keyfast.keys";
    let before = cluster.sql(0, rows).expect("the store");
    client.line("FLUSHALL").is_ok();
    assert_eq!(cluster.sql(0, rows), Ok(before));
    all_is_gone([&one, &other]);
    writer.line("GET old").is_nil();
    writer.line("SETNX old new").is(1);
    client.line("GET old").is("new");
    client.line("DBSIZE").is(1);
    client.line("FLUSHDB").is_ok();
    holder.run(&cluster, "ROLLBACK");
    all_is_gone([&one, &other]);
}

fn a_flush_is_one_moment_for_clients_that_read_and_write_at_two_front_ends(kind: Kind) {
    const ROUNDS: usize = 8;
    let Some((_cluster, one, other)) = pair(kind, "flush-moment") else { return };
    let fronts = [&one, &other];
    let mut client = one.client();
    for round in 0..ROUNDS {
        for some in 0..20 {
            let words = (0..30).flat_map(|key| [format!("old:{some}:{key}"), "1".to_owned()]);
            client.cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
        }
        client.line("MSET first 1 second 1").is_ok();
        let (asked, flushed, is_over) =
            (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        let busy = AtomicUsize::new(0);
        thread::scope(|scope| {
            let end = SetOnDrop(&is_over);
            let mut writers = Vec::new();
            for number in 0..4 {
                let (front, asked, flushed, is_over, busy) =
                    (fronts[number % 2], &asked, &flushed, &is_over, &busy);
                writers.push(scope.spawn(move || {
                    let mut client = front.client();
                    // What was acknowledged before the flush, and what was begun after its reply.
                    let (mut before, mut after) = (Vec::new(), Vec::new());
                    let mut turn = 0;
                    while !is_over.load(Ordering::SeqCst) || after.is_empty() {
                        let key = format!("new:{number}:{turn}");
                        let is_after = flushed.load(Ordering::SeqCst);
                        client.line(&format!("SETNX {key} 1")).is(1);
                        if is_after {
                            after.push(key);
                        } else if !asked.load(Ordering::SeqCst) {
                            before.push(key);
                        }
                        turn += 1;
                        busy.fetch_add(usize::from(turn == 3), Ordering::SeqCst);
                    }
                    (before, after)
                }));
                scope.spawn(move || {
                    let mut client = front.client();
                    let mut was_gone = false;
                    let mut turn = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let is_after = flushed.load(Ordering::SeqCst);
                        let seen = client.line("MGET first old:3:4 second old:19:29").reply().to_string();
                        let is_gone = seen == "[(nil), (nil), (nil), (nil)]";
                        assert!(is_gone || seen == r#"["1", "1", "1", "1"]"#, "half of a flush: {seen}");
                        assert!(is_gone || !is_after, "keys from before a flush after its reply");
                        assert!(is_gone || !was_gone, "keys are back that a flush has deleted");
                        was_gone = is_gone;
                        turn += 1;
                        busy.fetch_add(usize::from(turn == 3), Ordering::SeqCst);
                    }
                });
            }
            eventually("all are busy", || busy.load(Ordering::SeqCst) >= 8);
            asked.store(true, Ordering::SeqCst);
            client.line(["FLUSHALL", "FLUSHDB"][round % 2]).is_ok();
            flushed.store(true, Ordering::SeqCst);
            drop(end);
            let (mut kept, mut gone) = (0, 0);
            for writer in writers {
                let (before, after) = writer.join().expect("the keys that it has written");
                for key in &before {
                    client.line(&format!("EXISTS {key}")).is(0);
                }
                for key in &after {
                    client.line(&format!("EXISTS {key}")).is(1);
                }
                (kept, gone) = (kept + after.len(), gone + before.len());
            }
            assert!(kept > 0 && gone > 0, "{kept} {gone}");
        });
        client.line("KEYS old:*").is(Reply::Array(Vec::new()));
        client.line("FLUSHALL").is_ok();
    }
}

marked!(needs_tools: what_began_before_a_flush_counts_as_before_it);
fn what_began_before_a_flush_counts_as_before_it() {
    let Some((cluster, one, other)) = postgres_pair("flush-straggler") else { return };
    until_listening(&cluster, 2);
    let (mut client, mut flusher) = (one.client(), other.client());
    client.line("SET before v").is_ok();
    flusher.line("DBSIZE").is(1);
    // Keys that no front-end has seen, so that each guess is right.
    let ways: [(&[&str], &str, &str); 3] = [
        (&["SETNX", "lock", "mine"], "lock", "(integer) 1"),
        (&["MSET", "one", "mine", "other", "mine"], "one", "OK"),
        (&["INCR", "counter"], "counter", "(integer) 1"),
    ];
    for (words, key, reply) in ways {
        let mut holder = Holder::start(&cluster, 0);
        holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts WHERE name = 'one' FOR UPDATE");
        client.send(&request(words));
        until_waiting(&cluster, 1);
        flusher.line("FLUSHALL").is_ok();
        flusher.line(&format!("SETNX {key} yours")).is(1);
        holder.run(&cluster, "ROLLBACK");
        assert_eq!(client.reply().reply().to_string(), reply);
        for reader in [&mut client, &mut flusher] {
            reader.line(&format!("GET {key}")).is("yours");
            reader.line("DBSIZE").is(1);
        }
    }
}

/// The reply to a transaction of one line.
fn exec(client: &mut Client) -> Reply {
    client.line("MULTI").is_ok();
    client.line("SET result 1").is_simple("QUEUED");
    client.line("EXEC").reply()
}

fn watched_keys_that_a_flush_deletes_have_changed_and_absent_ones_have_not(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "flush-watch") else { return };
    let (mut client, mut elsewhere) = (one.client(), other.client());
    let done = Reply::Array(vec![Reply::Simple("OK".into())]);
    // What is done before WATCH, what after it, and whether EXEC passes.
    let cases: [(&[&str], &[&str], bool); 12] = [
        (&["SET k 1"], &["FLUSHDB"], false),
        (&["SET k 1"], &["FLUSHALL", "SET k 1"], false),
        (&[], &["FLUSHDB"], true),
        (&[], &["FLUSHALL", "FLUSHDB"], true),
        (&["SET k 1", "DEL k"], &["FLUSHDB"], true),
        (&["SET k 1", "FLUSHDB"], &["FLUSHALL"], true),
        (&["SET k 1", "DEL k"], &["FLUSHDB", "FLUSHALL"], true),
        (&[], &["SET k 1", "FLUSHDB"], false),
        (&[], &["SET k 1", "DEL k", "FLUSHDB"], false),
        (&["SET k 1", "DEL k"], &["SET k 1", "FLUSHDB"], false),
        (&[], &["FLUSHDB", "SET k 1", "FLUSHDB"], false),
        (&["SET k 1", "DEL k"], &["FLUSHDB", "SET k 1", "DEL k", "FLUSHDB"], false),
    ];
    for (before, after, passes) in cases {
        for own in [false, true] {
            before.iter().for_each(|line| elsewhere.line(line).ignored());
            client.line("WATCH k").is_ok();
            after.iter().for_each(|line| elsewhere.line(line).ignored());
            if own {
                // A key that it writes is locked, and gets a row.
                client.line("MULTI").is_ok();
                client.line("SET k 2").is_simple("QUEUED");
                let got = client.line("EXEC").reply();
                assert_eq!(got, if passes { done.clone() } else { Reply::Null }, "{before:?} {after:?}");
            } else {
                let got = exec(&mut client);
                assert_eq!(got, if passes { done.clone() } else { Reply::Null }, "{before:?} {after:?}");
            }
            client.line("FLUSHALL").is_ok();
        }
    }
    // Another database was flushed.
    client.line("SET k 1").is_ok();
    client.line("WATCH k absent").is_ok();
    elsewhere.line("SELECT 1").is_ok();
    elsewhere.line("FLUSHDB").is_ok();
    assert_eq!(exec(&mut client), done);
}

fn a_lock_that_was_flushed_has_a_higher_fencing_number_when_it_is_taken_again(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "flush-fences") else { return };
    let (mut client, mut elsewhere) = (one.client3(), other.client3());
    let mut last = 0_i64;
    for round in 0..6 {
        client.line("SET lock token NX PX 600000").is_ok();
        let lock = elsewhere.line("LOCKS GET lock").reply();
        let fence = field(&lock, "fencing").trim_start_matches("(integer) ").parse().expect("a number");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        elsewhere.line(["FLUSHDB", "FLUSHALL"][round % 2]).is_ok();
        client.line("LOCKS GET lock").is_nil();
        client.line("EXISTS lock").is(0);
        std::mem::swap(&mut client, &mut elsewhere);
    }
}

fn a_flush_of_one_database_leaves_the_others_and_a_flush_of_all_leaves_none(kind: Kind) {
    let Some((cluster, one, other)) = pair(kind, "flush-databases") else { return };
    // Another front-end has more databases.
    let wide = cluster.front(&["--databases", "200"]);
    let in_database = |front: &Server, database: usize| {
        let mut client = front.client();
        client.line(&format!("SELECT {database}")).is_ok();
        client
    };
    for round in 0..3 {
        let mut clients = [(&one, 0), (&other, 1), (&one, 15), (&wide, 150), (&wide, 16)]
            .map(|(front, database)| in_database(front, database));
        for client in &mut clients {
            client.line("MSET k v l v").is_ok();
        }
        in_database(&wide, 1).line("FLUSHDB").is_ok();
        for (number, client) in clients.iter_mut().enumerate() {
            client.line("DBSIZE").is(if number == 1 { 0 } else { 2 });
            client.line("GET k").is(if number == 1 { Reply::Null } else { "v".into() });
        }
        clients[1].line("SETNX k v").is(1);
        let flusher = [&one, &other, &wide][round];
        flusher.client().line("FLUSHALL").is_ok();
        for client in &mut clients {
            client.line("DBSIZE").is(0);
            client.line("MGET k l").is(Reply::Array(vec![Reply::Null, Reply::Null]));
        }
    }
}

marked!(needs_tools: no_key_expires_for_clients_that_was_flushed_before);
fn no_key_expires_for_clients_that_was_flushed_before() {
    let Some((_cluster, one, other)) = postgres_pair("flush-expired") else { return };
    let mut listener = one.client();
    one.client().line("CONFIG SET notify-keyspace-events Ex").is_ok();
    listener.line("PSUBSCRIBE __keyevent@*__:expired").ignored();
    wait_until_heard(&mut listener, &other);
    let (mut client, mut second) = (other.client(), other.client());
    second.line("SELECT 2").is_ok();
    for (flush, name) in [("FLUSHDB", "first"), ("FLUSHALL", "second")] {
        client.line("SET flushed v PX 300").is_ok();
        second.line("SET elsewhere v PX 300").is_ok();
        client.line(flush).is_ok();
        if flush == "FLUSHDB" {
            // Another database keeps its keys. Its number is its name.
            let event = r#"["pmessage", "__keyevent@*__:expired", "__keyevent@2__:expired", "elsewhere"]"#;
            assert_eq!(listener.reply().reply().to_string(), event);
        }
        // This one expires later than those that were flushed.
        client.line(&format!("SET {name} v PX 600")).is_ok();
        let event = format!(r#"["pmessage", "__keyevent@*__:expired", "__keyevent@0__:expired", "{name}"]"#);
        assert_eq!(listener.reply().reply().to_string(), event);
    }
}

marked!(needs_tools: the_rows_of_flushed_keys_are_deleted_in_the_end_and_no_others);
fn the_rows_of_flushed_keys_are_deleted_in_the_end_and_no_others() {
    let Some((cluster, one, other)) = postgres_pair("flush-rows") else { return };
    let (mut client, mut elsewhere) = (one.client(), other.client());
    client.line("MSET a 1 b 2").is_ok();
    add_rows(&cluster, 0, 3_000);
    add_rows(&cluster, 3, 1_200);
    // Rows of one place, of which there are more than are deleted at once.
    cluster
        .sql(0, "UPDATE keyfast.keys SET slot = 77000 WHERE slot < 1500000 AND value = 'v'")
        .expect("rows");
    client.line("FLUSHALL").is_ok();
    client.line("MSET a 1 b 2 c 3").is_ok();
    elsewhere.line("SELECT 3").is_ok();
    elsewhere.line("SET d 4").is_ok();
    // They stay for a minute, as EXEC may ask for them.
    let count = "SELECT count(*) FROM keyfast.keys";
    assert_eq!(cluster.sql(0, count), Ok("4206".into()));
    cluster.sql(0, "UPDATE keyfast.flushed SET since = since - interval '1 minute'").expect("the store");
    eventually("they are deleted", || cluster.sql(0, count) == Ok("4".into()));
    assert_eq!(cluster.sql(0, "SELECT count(*) FROM keyfast.flushed"), Ok("0".into()));
    assert_eq!(client.line("MGET a b c").reply().to_string(), r#"["1", "2", "3"]"#);
    elsewhere.line("GET d").is("4");
    // What a front-end writes late, that has begun before a flush, is deleted as well.
    add_rows(&cluster, 3, 10);
    cluster.sql(0, "UPDATE keyfast.keys SET database = 3 WHERE value = 'v'").expect("the store");
    eventually("these, too", || cluster.sql(0, count) == Ok("4".into()));
}

/// What makes the tables.
const SCHEMA: &str = include_str!("../../../src/remote/postgres/schema.sql");

marked!(needs_tools: front_ends_that_are_started_at_once_make_the_tables_once);
fn front_ends_that_are_started_at_once_make_the_tables_once() {
    let Some(cluster) = Postgres::start("flush-first", 1) else { return };
    let fronts: Vec<Server> = thread::scope(|scope| {
        let fronts: Vec<_> = (0..3).map(|_| scope.spawn(|| cluster.front(&["--databases", "30"]))).collect();
        fronts.into_iter().map(|front| front.join().expect("a front-end")).collect()
    });
    assert_eq!(cluster.sql(0, "SELECT version FROM keyfast.schema_version"), Ok("2".into()));
    let [mut one, mut other, mut far] = [0, 1, 2].map(|number| fronts[number].client());
    far.line("SELECT 20").is_ok();
    far.line("SETNX lock v").is(1);
    one.line("SETNX lock mine").is(1);
    one.line("FLUSHDB").is_ok();
    other.line("SETNX lock mine").is(1);
    far.line("GET lock").is("v");
    other.line("FLUSHALL").is_ok();
    far.line("GET lock").is_nil();
    one.line("GET lock").is_nil();
}

marked!(needs_tools: a_user_who_may_not_make_tables_is_told_why_and_served_once_they_are_there);
fn a_user_who_may_not_make_tables_is_told_why_and_served_once_they_are_there() {
    let Some(cluster) = Postgres::start("flush-rights", 1) else { return };
    cluster.sql(0, "CREATE ROLE me LOGIN").expect("a user");
    let url = cluster.url_of("me", "127.0.0.1", "?sslmode=disable");
    let front = Server::start_with(&["--store", &url, "--store-timeout", "1000"]);
    front.wait_for_output("its tables cannot be made: permission denied for database postgres (42501)");
    cluster.sql(0, SCHEMA).expect("a superuser may");
    let grant = "GRANT USAGE ON SCHEMA keyfast TO me; GRANT ALL ON ALL TABLES IN SCHEMA keyfast TO me; \
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA keyfast TO me";
    cluster.sql(0, grant).expect("rights");
    front.wait_for_output("Connected to the store");
    let mut client = front.client();
    eventually("it serves", || client.line("SETNX lock v").reply() == Reply::from(1));
    client.line("FLUSHALL").is_ok();
    client.line("GET lock").is_nil();
}

marked!(needs_tools: the_keys_that_were_flushed_are_deleted_from_etcd_in_the_end_and_no_others);
fn the_keys_that_were_flushed_are_deleted_from_etcd_in_the_end_and_no_others() {
    let Some(etcd) = Etcd::start("flush-keys", 1) else { return };
    let [one, other] = [(); 2].map(|()| front(&etcd.url(), &[]));
    let (mut client, mut second) = (one.client(), other.client());
    second.line("SELECT 11").is_ok();
    // `keyfast/k/` up to `keyfast/k0`.
    let count = || {
        let range = r#"{"key": "a2V5ZmFzdC9rLw==", "range_end": "a2V5ZmFzdC9rMA==", "count_only": true}"#;
        let reply = etcd.call("kv/range", range);
        let digits = reply.split("\"count\":\"").nth(1).and_then(|rest| rest.split('"').next());
        digits.map_or(0, |digits| digits.parse::<usize>().expect("a number"))
    };
    for flushes in [&["FLUSHDB"][..], &["FLUSHALL", "SET between 1", "FLUSHDB", "FLUSHALL"]] {
        for some in 0..40 {
            let words = (0..30).flat_map(|key| [format!("key:{some}:{key}"), "1".to_owned()]);
            client.cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
        }
        second.line("MSET a 1 b 2").is_ok();
        flushes.iter().for_each(|line| client.line(line).is_ok());
        client.line("MSET c 3 d 4").is_ok();
        let kept = if flushes.len() == 1 { 4 } else { 2 };
        eventually("they are deleted", || count() == kept);
        assert_eq!(client.line("MGET c d").reply().to_string(), r#"["3", "4"]"#);
        second.line("EXISTS a b").is(kept as i64 - 2);
    }
}

marked!(needs_tools: keys_of_an_earlier_version_in_etcd_stay_and_front_ends_of_it_are_cut_off);
fn keys_of_an_earlier_version_in_etcd_stay_and_front_ends_of_it_are_cut_off() {
    let Some(etcd) = Etcd::start("flush-format", 1) else { return };
    let before = front(&etcd.url(), &[]);
    before.client().line("SETNX lock v").is(1);
    // `keyfast/format` becomes `2`, as the version before has written it.
    etcd.call("kv/put", r#"{"key": "a2V5ZmFzdC9mb3JtYXQ=", "value": "Mg=="}"#);
    let after = front(&etcd.url(), &[]);
    // The ledger of the one before is gone, as it would be if it were of an earlier version.
    let text = before.client().line("SETNX another v").text();
    assert!(text.starts_with("STOREDOWN Outcome unknown"), "{text}");
    let mut client = after.client();
    client.line("SETNX lock w").is(0);
    client.line("FLUSHALL").is_ok();
    client.line("SETNX lock w").is(1);
}
