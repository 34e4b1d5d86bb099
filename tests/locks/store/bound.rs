//! LOCK ACQUIRE … BOUND and NOTIFY with keys in a store: the front-end to which a client is connected renews
//! its locks, and says when they are lost, wherever that was done.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::cable::Cable;
use super::{Kind, pair, wait_until_heard};
use support::client::{Client, Reply, request};
use support::replies::field;
use support::server::Server;
use support::store::cluster::{Cluster, eventually, front};
use support::store::postgres::Postgres;

on_both! {
    a_bound_lock_is_held_while_its_connection_lives_and_freed_at_once_when_it_ends
    grace_or_the_rest_of_the_lease_is_left
    a_connection_to_another_front_end_takes_the_lock_over
    a_lock_is_bound_within_transactions_and_scripts
    what_others_promise_holds_and_max_ends_it
    a_connection_that_ends_while_the_store_grants_its_lock_leaves_none
    what_is_left_is_left_when_the_front_end_ends
    the_holder_hears_how_it_has_lost_the_lock_wherever_that_was
    the_holder_hears_nothing_of_what_it_has_done_itself
    a_front_end_that_stood_still_has_lost_its_lock_and_takes_it_from_no_other
}

/// Takes the lock `l` and returns the number.
#[track_caller]
fn take(client: &mut Client, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l a PX {options}")).integer()
}

#[track_caller]
fn wait_until_free(observer: &mut Client) {
    eventually("the lock is free", || observer.line("EXISTS l").integer() == 0);
}

/// Whether the front-end knows of a connection to which the lock is bound.
fn is_bound(front: &Server) -> bool {
    field(&front.client3().line("LOCKS GET l").reply(), "bound-there") != Reply::Null
}

/// The push about the loss of the lock `l`.
fn lost(number: i64, why: &str) -> Reply {
    Reply::Push(vec!["lock-lost".into(), "l".into(), Reply::Integer(number), why.into()])
}

fn a_bound_lock_is_held_while_its_connection_lives_and_freed_at_once_when_it_ends(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound") else { return };
    let (mut holder, mut observer, mut next) = (one.client(), other.client(), other.client());
    let number = take(&mut holder, "3000 BOUND GRACE 0");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4500) {
        observer.line("LOCK ACQUIRE l b PX 3000").is_nil();
        assert!((1..=3000).contains(&observer.line("PTTL l").integer()));
        sleep(Duration::from_millis(50));
    }
    holder.line("LOCK FENCE l a").is(number);
    assert!(is_bound(&one) && !is_bound(&other));
    let mut listeners = [&one, &other].map(|front| {
        front.client().line("CONFIG SET notify-keyspace-events KEx").is_ok();
        let mut listener = front.client();
        listener.line("SUBSCRIBE __keyevent@0__:expired").ignored();
        listener
    });
    wait_until_heard(&mut listeners[1], &one);
    // A lease that outlasts the test.
    holder.line("LOCK EXTEND l a PX 600000 BOUND GRACE 0").is(number);
    other.have_wait(&mut next, "LOCK ACQUIRE l b PX 600000 WAIT 60000");
    drop(holder);
    assert!(next.reply().integer() > number);
    for mut listener in listeners {
        listener
            .reply()
            .is(Reply::Array(["message", "__keyevent@0__:expired", "l"].map(Reply::from).to_vec()));
    }
}

fn grace_or_the_rest_of_the_lease_is_left(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-grace") else { return };
    let mut observer = other.client();
    for (options, way, left) in [
        ("600000 BOUND GRACE 90000", "QUIT", 1..=90_000),
        ("600000 BOUND GRACE 90000", "RESET", 1..=90_000),
        ("600000 BOUND GRACE 900000 MAX 700000", "QUIT", 600_001..=700_000),
    ] {
        let mut holder = one.client();
        take(&mut holder, options);
        holder.line(way).ignored();
        eventually("the grace has begun", || left.contains(&observer.line("PTTL l").integer()));
        observer.line("DEL l").is(1);
    }
    let mut holder = one.client();
    take(&mut holder, "600000 BOUND");
    let before = observer.line("PEXPIRETIME l").integer();
    drop(holder);
    eventually("the connection has gone", || {
        one.client().line("CLIENT LIST TYPE normal").text().lines().count() == 1
    });
    observer.line("PEXPIRETIME l").is(before);
}

fn a_connection_to_another_front_end_takes_the_lock_over(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-over") else { return };
    for line in ["LOCK EXTEND l a PX 600000 BOUND GRACE 0", "LOCK ACQUIRE l a PX 500000 AGAIN BOUND GRACE 0"]
    {
        let (mut first, mut second, mut observer) = (one.client3(), other.client(), other.client());
        let number = take(&mut first, "600000 BOUND GRACE 0 NOTIFY");
        second.line(line).is(number);
        eventually("the first one lets go", || !is_bound(&one));
        assert!(is_bound(&other));
        first.line("RESET").ignored();
        drop(first);
        sleep(Duration::from_millis(200));
        observer.line("LOCK FENCE l a").is(number);
        drop(second);
        wait_until_free(&mut observer);
        // And between two connections to one front-end.
        let (mut first, mut second) = (one.client(), one.client());
        let number = take(&mut first, "600000 BOUND GRACE 0");
        second.line(line).is(number);
        drop(first);
        sleep(Duration::from_millis(200));
        observer.line("LOCK FENCE l a").is(number);
        drop(second);
        wait_until_free(&mut observer);
    }
}

fn a_lock_is_bound_within_transactions_and_scripts(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-multi") else { return };
    let mut observer = other.client();
    let mut holder = one.client();
    holder.line("MULTI").is_ok();
    for key in ["k", "l"] {
        holder.line(&format!("LOCK ACQUIRE {key} a PX 600000 BOUND GRACE 0")).is_simple("QUEUED");
    }
    holder.line("LOCK RELEASE k a").is_simple("QUEUED");
    assert_eq!(holder.line("EXEC").items().len(), 3);
    observer.line("EXISTS k l").is(1);
    drop(holder);
    wait_until_free(&mut observer);
    let mut holder = one.client();
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], 'a', 'PX', '600000', 'BOUND', 'GRACE', '0')";
    holder.cmd(["EVAL", script, "1", "l"]).integer();
    assert!(is_bound(&one));
    drop(holder);
    wait_until_free(&mut observer);
    // A pipeline, all of which may travel in one batch.
    let mut holder = one.client();
    let lines: [&[&str]; 3] = [
        &["LOCK", "ACQUIRE", "l", "a", "PX", "600000", "BOUND", "GRACE", "0"],
        &["LOCK", "RELEASE", "l", "a"],
        &["LOCK", "ACQUIRE", "l", "a", "PX", "600000", "BOUND", "GRACE", "0"],
    ];
    holder.send(&lines.map(request).concat());
    let first = holder.reply().integer();
    holder.reply().is(1);
    assert!(holder.reply().integer() > first);
    drop(holder);
    wait_until_free(&mut observer);
}

fn what_others_promise_holds_and_max_ends_it(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-promise") else { return };
    let mut observer = other.client();
    for (line, left) in [
        ("LOCK EXTEND l a PX 900000", 800_000..=900_000),
        ("LOCK ACQUIRE l a PX 900000 AGAIN", 800_000..=900_000),
        ("PEXPIRE l 900000", 800_000..=900_000),
        ("PERSIST l", -1..=-1),
    ] {
        let (mut holder, mut listener) = (one.client(), one.client());
        listener.line("SUBSCRIBE __lock@0__:l").ignored();
        let number = take(&mut holder, "600000 BOUND GRACE 0 NOTIFY");
        observer.line(line).ignored();
        drop(holder);
        sleep(Duration::from_millis(100));
        assert!(left.contains(&observer.line("PTTL l").integer()), "{line}");
        observer.line("DEL l").is(1);
        let message = ["message", "__lock@0__:l", &format!("{number} deleted")].map(Reply::from);
        listener.reply().is(Reply::Array(message.to_vec()));
    }
    let mut holder = one.client3();
    let number = take(&mut holder, "600000 BOUND MAX 2500 NOTIFY");
    holder.line("LOCK EXTEND l a PX 600000").is(number);
    holder.reply().is(lost(number, "max"));
    wait_until_free(&mut observer);
}

fn a_connection_that_ends_while_the_store_grants_its_lock_leaves_none(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-orphan") else { return };
    let mut observer = other.client();
    let line = request(["LOCK", "ACQUIRE", "l", "a", "PX", "600000", "BOUND", "GRACE", "0"]);
    let wait = request(["LOCK", "ACQUIRE", "l", "b", "PX", "600000", "WAIT", "0", "BOUND", "GRACE", "0"]);
    for round in 0..40 {
        let mut clients = [one.client(), one.client(), other.client()];
        clients[0].send(&line);
        clients[1].send(&wait);
        clients[2].send(&wait);
        sleep(Duration::from_micros(round * 150));
        drop(clients);
    }
    wait_until_free(&mut observer);
}

fn what_is_left_is_left_when_the_front_end_ends(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "bound-death") else { return };
    let other = cluster.front(&[]);
    let mut observer = other.client();
    for signal in ["KILL", "TERM"] {
        let mut one = cluster.front(&[]);
        let mut holder = one.client();
        take(&mut holder, "600000 BOUND GRACE 0");
        one.signal(signal);
        one.wait_for_end();
        assert!((500_000..=600_000).contains(&observer.line("PTTL l").integer()), "{signal}");
        observer.line("DEL l").is(1);
    }
}

fn the_holder_hears_how_it_has_lost_the_lock_wherever_that_was(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-notify") else { return };
    let (mut holder, mut observer) = (one.client3(), other.client());
    let (mut near, mut far) = (one.client(), other.client());
    for listener in [&mut near, &mut far] {
        listener.line("PSUBSCRIBE __lock@*").ignored();
    }
    wait_until_heard(&mut far, &one);
    let mut same = one.client();
    for (line, why) in [
        ("DEL l", "deleted"),
        ("LOCK RELEASE l a", "deleted"),
        ("LOCK BREAK l", "deleted"),
        ("RENAME l m", "deleted"),
        ("SET l b", "overwritten"),
        ("GETSET l b", "overwritten"),
        ("FLUSHDB", "flushed"),
        ("FLUSHALL", "flushed"),
    ] {
        for is_near in [true, false] {
            let from = if is_near { &mut same } else { &mut observer };
            let number = take(&mut holder, "60000 NOTIFY");
            from.line(line).ignored();
            holder.reply().is(lost(number, why));
            let message =
                ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} {why}")].map(Reply::from);
            near.reply().is(Reply::Array(message.to_vec()));
            far.reply().is(Reply::Array(message.to_vec()));
            same.line("DEL l m").ignored();
        }
    }
    for options in ["300 NOTIFY", "60000 BOUND NOTIFY"] {
        let number = take(&mut holder, options);
        if options.contains("BOUND") {
            // Others bring the end nearer, before the next renewal.
            observer.line("PEXPIRE l 100").is(1);
        }
        holder.reply().is(lost(number, "expired"));
    }
}

fn the_holder_hears_nothing_of_what_it_has_done_itself(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "lock-notify-own") else { return };
    let (mut holder, mut observer) = (one.client3(), other.client());
    for options in ["60000 NOTIFY", "60000 BOUND NOTIFY"] {
        for line in ["LOCK RELEASE l a", "DEL l", "SET l b", "FLUSHDB", "FLUSHALL"] {
            take(&mut holder, options);
            holder.line(line).ignored();
            observer.line("DEL l").ignored();
        }
        for line in ["LOCK RELEASE l a", "DEL l"] {
            take(&mut holder, options);
            holder.line("MULTI").is_ok();
            holder.line(line).is_simple("QUEUED");
            assert_eq!(holder.line("EXEC").items(), [Reply::Integer(1)]);
        }
    }
    // A pipeline, all of which may travel in one batch.
    for _ in 0..5 {
        holder.send(
            &[&["LOCK", "ACQUIRE", "l", "a", "PX", "60000", "NOTIFY"][..], &["DEL", "l"]]
                .map(request)
                .concat(),
        );
        holder.reply().integer();
        holder.reply().is(1);
    }
    // The next loss is the first one that it hears of.
    let number = take(&mut holder, "60000 NOTIFY");
    observer.line("DEL l").is(1);
    holder.reply().is(lost(number, "deleted"));
}

fn a_front_end_that_stood_still_has_lost_its_lock_and_takes_it_from_no_other(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "bound-stopped") else { return };
    let (mut holder, mut next) = (one.client3(), other.client());
    for _ in 0..3 {
        let number = take(&mut holder, "600 BOUND NOTIFY");
        one.signal("STOP");
        let next_number = next.line("LOCK ACQUIRE l b PX 60000 WAIT 60000").integer();
        assert!(next_number > number);
        one.signal("CONT");
        let heard = holder.reply().reply();
        assert!(["expired", "overwritten"].map(|why| lost(number, why)).contains(&heard), "{heard:?}");
        holder.line("LOCK EXTEND l a PX 600 BOUND").is_nil();
        next.line("LOCK FENCE l b").is(next_number);
        assert!(next.line("PTTL l").integer() > 30_000);
        next.line("LOCK RELEASE l b").is(1);
    }
}

marked!(needs_tools: a_front_end_that_cannot_reach_the_store_tells_the_holder_when_the_time_has_passed);
fn a_front_end_that_cannot_reach_the_store_tells_the_holder_when_the_time_has_passed() {
    let Some(cluster) = Postgres::start("bound-cut", 1) else { return };
    let cable = Cable::start(cluster.port(0));
    let url = cluster.url().replace(&format!(":{}", cluster.port(0)), &format!(":{}", cable.port()));
    let one = front(&url, &["--store-timeout", "1500"]);
    let mut holder = one.client3();
    let number = take(&mut holder, "2000 BOUND NOTIFY");
    cable.cut(true);
    let began = Instant::now();
    holder.reply().is(lost(number, "expired"));
    assert!(began.elapsed() >= Duration::from_millis(600), "a renewal is due after a third of the lease");
    cable.cut(false);
    let mut holder = one.client();
    eventually("the lock is taken anew", || holder.line("LOCK ACQUIRE l b PX 60000").reply() != Reply::Null);
}
