//! Where clients of two front-ends once kept each other waiting.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::attacks::{Holder, until_waiting};
use support::client::{Client, Reply, request};
use support::server::{Server, SetOnDrop};
use support::store::cluster::eventually;
use support::store::postgres::{Postgres, pair};

marked!(needs_tools: front_ends_that_take_and_release_in_opposite_orders_never_wait_in_a_circle);
fn front_ends_that_take_and_release_in_opposite_orders_never_wait_in_a_circle() {
    const LOCKS: usize = 8;
    let Some((cluster, one, other)) = pair("circle") else { return };
    let mut client = one.client();
    for lock in 0..LOCKS {
        client.line(&format!("SETNX lock:{lock} v")).is(1);
        client.line(&format!("DEL lock:{lock}")).is(1);
    }
    let (is_over, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
    let worst = thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let clients = (0..16).map(|number| {
            let (is_over, requests) = (&is_over, &requests);
            let mut client = [&one, &other][number % 2].client();
            scope.spawn(move || {
                let mut worst = Duration::ZERO;
                let mut ask = |line: String| {
                    let began = Instant::now();
                    let reply = client.line(&line).reply();
                    worst = worst.max(began.elapsed());
                    requests.fetch_add(1, Ordering::Relaxed);
                    match reply {
                        Reply::Integer(number) => number,
                        other => panic!("{line}: {other}"),
                    }
                };
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let lock = match number % 2 {
                        0 => (turn + number) % LOCKS,
                        _ => LOCKS - 1 - (turn + number) % LOCKS,
                    };
                    if ask(format!("SETNX lock:{lock} {number}")) == 1 {
                        assert_eq!(ask(format!("DEL lock:{lock}")), 1);
                    }
                }
                worst
            })
        });
        let clients: Vec<_> = clients.collect();
        thread::sleep(Duration::from_secs(6));
        drop(end);
        clients.into_iter().map(|client| client.join().expect("a time")).max()
    });
    drop((one, other));
    // A session reports what it has counted when it ends.
    let deadlocks = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'keyfast%'";
    eventually("all sessions have ended", || cluster.sql(0, deadlocks) == Ok("0".into()));
    let deadlocks = cluster.sql(0, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'");
    eprintln!("{requests:?} requests, {deadlocks:?} deadlocks, {worst:?} at most");
    assert_eq!(deadlocks, Ok("0".into()), "the longest request took {worst:?}");
}

marked!(needs_tools: a_warning_that_concerns_no_replica_loses_no_batch_and_is_logged_once);
fn a_warning_that_concerns_no_replica_loses_no_batch_and_is_logged_once() {
    let Some(cluster) = Postgres::start("warnings", 1) else { return };
    let front = cluster.front(&["--store-timeout", "2000"]);
    let mut client = front.client();
    client.line("SETNX before 1").is(1);
    // As before a wraparound: with each transaction, and each time with another number.
    cluster
        .sql(
            0,
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 RAISE WARNING 'it must be vacuumed within % transactions', NEW.last; RETURN NEW; END $$;
             CREATE TRIGGER warns BEFORE UPDATE ON keyfast.fronts FOR EACH ROW EXECUTE FUNCTION warn()",
        )
        .expect("the store");
    for number in 0..20 {
        client.line(&format!("SETNX lock:{number} 1")).is(1);
        client.line(&format!("GET lock:{number}")).is("1");
    }
    client.line("MSET a 1 b 2").is_ok();
    let output = front.output();
    assert_eq!(output.matches("it must be vacuumed within").count(), 1, "{output}");
    assert!(!output.contains("Lost the store"), "{output}");
}

/// How many requests of a front-end ran again.
fn overtaken(client: &mut Client) -> u64 {
    client.info("store_overtaken").parse().expect("a number")
}

marked!(needs_tools: who_only_reads_keeps_no_writer_of_the_same_keys_from_being_done);
fn who_only_reads_keeps_no_writer_of_the_same_keys_from_being_done() {
    let Some((cluster, one, other)) = pair("contagion") else { return };
    let mut elsewhere = other.client();
    let mut clients: Vec<Client> = (0..5).map(|_| one.client()).collect();
    let [first, reader, writer, pipeline, looker] = &mut clients[..] else { unreachable!() };
    for (round, reads_first) in [true, false].into_iter().enumerate() {
        // Of this key the front-end has not heard, so whatever it guesses is wrong.
        elsewhere.line(&format!("SET busy:{round} 1")).is_ok();
        let before = overtaken(looker);
        let mut holder = Holder::start(&cluster, 0);
        holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
        first.send(&request(["SETNX", &format!("first:{round}"), "1"]));
        until_waiting(&cluster, 1);
        let nap = || thread::sleep(Duration::from_millis(150));
        let read = |reader: &mut Client, pipeline: &mut Client| {
            reader.send(&request(["MGET", &format!("busy:{round}"), &format!("quiet:{round}")]));
            let two = ["busy", "quiet"].map(|name| request(["GET", &format!("{name}:{round}")]));
            pipeline.send(&two.concat());
            nap();
        };
        if reads_first {
            read(reader, pipeline);
        }
        writer.send(&request(["SET", &format!("quiet:{round}"), "mine", "NX"]));
        nap();
        if !reads_first {
            read(reader, pipeline);
        }
        holder.run(&cluster, "ROLLBACK");
        first.reply().is(1);
        writer.reply().is_ok();
        // They have read before it was written, or after.
        for read in [reader.reply().reply().to_string(), {
            let two = [pipeline.reply().reply(), pipeline.reply().reply()];
            Reply::Array(two.into()).to_string()
        }] {
            assert!([r#"["1", (nil)]"#, r#"["1", "mine"]"#].contains(&&*read), "{read}");
        }
        looker.line(&format!("GET quiet:{round}")).is("mine");
        // The three that read the other key, and not the one that writes.
        let again = overtaken(looker) - before;
        assert!(again <= 3, "round {round}: {again} requests ran again");
    }
}

marked!(needs_tools: a_client_that_reads_and_then_writes_in_one_go_sees_its_own_order);
fn a_client_that_reads_and_then_writes_in_one_go_sees_its_own_order() {
    let Some((_cluster, one, other)) = pair("orders") else { return };
    thread::scope(|scope| {
        for number in 0..12 {
            let mut client = [&one, &other][number % 2].client();
            scope.spawn(move || {
                for turn in 0..40 {
                    // Keys of this client alone, and one of all.
                    let (own, value) = (format!("own:{number}"), format!("{turn}"));
                    let before = if turn == 0 { Reply::Null } else { Reply::from(&*format!("{}", turn - 1)) };
                    let requests = [
                        request(["MGET", &own, "all"]),
                        request(["GET", &own]),
                        request(["SET", &own, &value]),
                        request(["GET", &own]),
                        request(["INCR", "all"]),
                        request(["MGET", &own, "all"]),
                    ];
                    client.send(&requests.concat());
                    let first = client.reply().items();
                    assert_eq!(first[0], before);
                    client.reply().is(before);
                    client.reply().is_ok();
                    client.reply().is(&*value);
                    let count = client.reply().integer();
                    let last = client.reply().items();
                    assert_eq!(last[0], Reply::from(&*value));
                    let seen = |reply: &Reply| match reply {
                        Reply::Null => 0,
                        Reply::Bulk(text) => String::from_utf8_lossy(text).parse::<i64>().expect("a number"),
                        other => panic!("{other}"),
                    };
                    assert!(seen(&first[1]) < count && count <= seen(&last[1]), "{first:?} {count} {last:?}");
                }
            });
        }
    });
    one.client().line("GET all").is("480");
}

marked!(needs_tools: a_request_for_too_many_keys_is_refused_and_delays_no_other);
fn a_request_for_too_many_keys_is_refused_and_delays_no_other() {
    let Some((_cluster, one, _other)) = pair("wide") else { return };
    let (mut wide, mut client) = (one.client(), one.client());
    let mget = |count: usize, bytes: usize| {
        let names = (0..count).map(move |number| format!("{number:0bytes$}"));
        std::iter::once("MGET".to_owned()).chain(names)
    };
    wide.send(&request(mget(200_000, 8)));
    let began = Instant::now();
    client.line("SETNX lock v").is(1);
    eprintln!("another client waits {:?}", began.elapsed());
    wide.reply().is_error("ERR A request may name 5000 keys in this store at most");
    wide.cmd(mget(5_001, 8)).is_error("ERR A request may name 5000 keys in this store at most");
    assert_eq!(wide.cmd(mget(5_000, 8)).items().len(), 5_000);
    wide.cmd(mget(525, 2_000))
        .is_error("ERR The names of a request's keys may have 1048576 bytes together in this store at most");
    assert_eq!(wide.cmd(mget(524, 2_000)).items().len(), 524);
    let names = (0..5_001).map(|number| format!("key:{number}"));
    let text = wide.cmd(["DEL".to_owned()].into_iter().chain(names)).text();
    assert_eq!(text, "ERR A request may name 5000 keys in this store at most");
}

marked!(needs_tools: an_old_snapshot_that_slows_batches_is_told_in_the_log_and_in_info);
fn an_old_snapshot_that_slows_batches_is_told_in_the_log_and_in_info() {
    let Some((cluster, one, _other)) = pair("snapshot") else { return };
    let mut client = one.client();
    let dead_rows = |client: &mut Client| client.info("store_dead_rows").parse::<u64>().expect("a number");
    assert!(dead_rows(&mut client) < 5_000);
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM keyfast.keys");
    // As many batches leave them, each of which writes the row of its front-end.
    let write = "DO $$ BEGIN PERFORM set_config('synchronous_commit', 'off', false); \
                 FOR turn IN 1..6000 LOOP UPDATE keyfast.fronts SET name = name; COMMIT; END LOOP; END $$";
    cluster.sql(0, write).expect("the store");
    eventually("INFO shows it", || {
        client.line("SET k v").is_ok();
        dead_rows(&mut client) >= 5_000
    });
    one.wait_for_output("old versions of the rows of keyfast.fronts");
    holder.run(&cluster, "ROLLBACK");
    cluster.sql(0, "VACUUM keyfast.fronts").expect("the store");
    eventually("they are gone", || dead_rows(&mut client) < 5_000);
    check_is_alive(&one);
}

fn check_is_alive(front: &Server) {
    front.client().line("SETNX after v").is(1);
}
