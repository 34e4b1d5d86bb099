//! LOCK ACQUIRE … SHARED and LIMIT n, with BOUND and NOTIFY, with keys in a store: the front-end to which a
//! client is connected renews its permits, and says how they are lost, wherever that was done.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{Kind, acquainted, wait_until_heard};
use support::client::{Client, Reply, request};
use support::replies::{array, field};
use support::server::Server;
use support::store::cluster::{Cluster, eventually};

on_both! {
    a_permit_in_a_store_ends_with_its_connection
    the_holder_of_a_permit_in_a_store_hears_how_it_has_lost_it
    what_is_left_of_a_permit_is_left_when_the_front_end_ends
}

/// A conversation with both front-ends about the lock `l`, which is free.
type Conversation = fn(&Server, &Server);

fn a_permit_in_a_store_ends_with_its_connection(kind: Kind) {
    let all: [Conversation; 7] = [
        permits_are_held_beyond_their_leases_while_their_connections_live,
        the_others_go_on_when_one_connection_ends,
        grace_and_max_are_kept_and_what_others_promise_holds,
        a_permit_lives_as_long_as_one_of_its_connections,
        permits_are_bound_within_transactions_and_scripts,
        permits_of_several_locks_end_together_and_are_lost_alone,
        the_writer_in_line_is_granted_the_lock_when_all_readers_have_died,
    ];
    hold(kind, "bound-permits", &all);
}

fn the_holder_of_a_permit_in_a_store_hears_how_it_has_lost_it(kind: Kind) {
    let all: [Conversation; 3] =
        [the_holder_hears_of_each_way, the_holder_hears_nothing_of_its_own_doing, a_late_token_has_lost_it];
    hold(kind, "notify-permits", &all);
}

fn hold(kind: Kind, test: &str, conversations: &[Conversation]) {
    let Some((_cluster, one, other)) = acquainted(kind, test) else { return };
    for conversation in conversations {
        conversation(&one, &other);
        one.client().line("FLUSHALL").is_ok();
    }
}

/// Takes a permit of the lock `l` and returns the number.
#[track_caller]
fn take(client: &mut Client, token: &str, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l {token} PX {options}")).integer()
}

/// When the permit of a token ends, in milliseconds since 1970, if it is there.
#[track_caller]
fn end(observer: &mut Client, token: &str) -> Option<i64> {
    match observer.line(&format!("ZSCORE l {token}")).reply() {
        Reply::Bulk(score) => String::from_utf8_lossy(&score).parse().ok(),
        _ => None,
    }
}

#[track_caller]
fn wait_until_gone(observer: &mut Client, token: &str) {
    eventually("the permit has gone", || end(observer, token).is_none());
}

/// The push about the loss of a permit of the lock `l`.
fn lost(number: i64, why: &str) -> Reply {
    Reply::Push(vec!["lock-lost".into(), "l".into(), Reply::Integer(number), why.into()])
}

fn permits_are_held_beyond_their_leases_while_their_connections_live(one: &Server, other: &Server) {
    let (mut a, mut b, mut observer) = (one.client(), other.client(), other.client());
    take(&mut a, "a", "3000 SHARED BOUND GRACE 0");
    take(&mut a, "c", "3000 SHARED BOUND");
    take(&mut b, "b", "3000 LIMIT 9 BOUND GRACE 0");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(4500) {
        observer.line("LOCK ACQUIRE l w PX 3000").is_nil();
        observer.line("LOCK ACQUIRE l d PX 3000 LIMIT 3").is_nil();
        sleep(Duration::from_millis(50));
    }
    // The key expires with the last one.
    let line = "return {redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2], \
                redis.call('PEXPIRETIME', KEYS[1])}";
    let ends: Vec<String> =
        observer.cmd(["EVAL", line, "1", "l"]).items().iter().map(Reply::to_string).collect();
    assert!(ends[0].contains(ends[1].trim_start_matches("(integer) ")), "{ends:?}");
    drop(a);
    wait_until_gone(&mut observer, "a");
    assert!(end(&mut observer, "b").is_some());
}

fn the_others_go_on_when_one_connection_ends(one: &Server, other: &Server) {
    let (mut observer, mut next) = (other.client(), other.client());
    let (mut first, mut second) = (one.client(), one.client());
    take(&mut first, "a", "600000 LIMIT 2 BOUND GRACE 0");
    take(&mut second, "b", "600000 LIMIT 2 BOUND GRACE 0");
    other.have_wait(&mut next, "LOCK ACQUIRE l c PX 600000 WAIT 0 LIMIT 2");
    drop(first);
    next.reply().integer();
    assert!(end(&mut observer, "a").is_none() && end(&mut observer, "b").is_some());
    // The front-end of the holder shows to what each is bound.
    for (front, is_bound) in [(one, true), (other, false)] {
        let shown = front.client3().line("LOCKS GET l").reply();
        let permits = array(&shown, "permits");
        let bound = permits.iter().filter(|permit| field(permit, "bound-there") != Reply::Null);
        assert_eq!((permits.len(), bound.count()), (2, usize::from(is_bound)), "{shown}");
    }
    next.line("LOCK RELEASE l c").is(1);
    drop(second);
    eventually("the key has gone", || observer.line("EXISTS l").integer() == 0);
}

fn grace_and_max_are_kept_and_what_others_promise_holds(one: &Server, other: &Server) {
    let (mut holder, mut observer) = (one.client3(), other.client());
    take(&mut observer, "z", "5000000 SHARED");
    take(&mut observer, "n", "90000 SHARED");
    let now_ms = end(&mut observer, "n").unwrap() - 90_000;
    take(&mut holder, "a", "600000 SHARED BOUND GRACE 90000");
    take(&mut holder, "b", "600000 SHARED BOUND GRACE 900000 MAX 700000");
    take(&mut holder, "c", "600000 SHARED BOUND GRACE 0");
    take(&mut holder, "d", "600000 SHARED BOUND");
    observer.line("LOCK EXTEND l c PX 1000000").integer();
    eventually("MAX limits what others do", || {
        observer.line("LOCK EXTEND l b PX 9000000").integer();
        sleep(Duration::from_millis(20));
        end(&mut observer, "b").unwrap() < now_ms + 800_000
    });
    drop(holder);
    let left = |observer: &mut Client, token: &str| end(observer, token).unwrap() - now_ms;
    eventually("the grace has begun", || (80_000..=100_000).contains(&left(&mut observer, "a")));
    eventually("the grace has begun", || (600_001..=730_000).contains(&left(&mut observer, "b")));
    assert!((900_000..=1_030_000).contains(&left(&mut observer, "c")));
    assert!((500_000..=630_000).contains(&left(&mut observer, "d")));
    let mut holder = one.client3();
    let number = take(&mut holder, "e", "600 SHARED BOUND MAX 1000 NOTIFY");
    holder.reply().is(lost(number, "max"));
    observer.line("LOCK EXTEND l e PX 60000").is_nil();
}

fn a_permit_lives_as_long_as_one_of_its_connections(one: &Server, other: &Server) {
    let mut observer = other.client();
    take(&mut observer, "z", "5000000 SHARED");
    for (line, second_at) in [
        ("LOCK EXTEND l a PX 700000 BOUND GRACE 0", other),
        ("LOCK ACQUIRE l a PX 700000 AGAIN SHARED BOUND GRACE 0", other),
        ("LOCK EXTEND l a PX 700000 BOUND GRACE 0", one),
        ("LOCK ACQUIRE l a PX 700000 AGAIN LIMIT 9 BOUND GRACE 0", one),
    ] {
        let (mut first, mut second) = (one.client(), second_at.client());
        let number = take(&mut first, "a", "600000 SHARED BOUND GRACE 0");
        assert!(second.line(line).integer() > number);
        drop(first);
        sleep(Duration::from_millis(100));
        assert!(end(&mut observer, "a").is_some(), "{line}");
        drop(second);
        wait_until_gone(&mut observer, "a");
    }
}

fn permits_are_bound_within_transactions_and_scripts(one: &Server, other: &Server) {
    let (mut holder, mut observer) = (one.client(), other.client());
    let script = "for _, token in ipairs(ARGV) do redis.call('LOCK', 'ACQUIRE', KEYS[1], token, \
                  'PX', 600000, 'SHARED', 'BOUND', 'GRACE', 0) end return 1";
    holder.cmd(["EVAL", script, "1", "l", "a", "b"]).is(1);
    holder.line("MULTI").is_ok();
    holder.line("LOCK ACQUIRE l c PX 60000 SHARED").is_simple("QUEUED");
    holder.line("LOCK EXTEND l c PX 600000 BOUND GRACE 0").is_simple("QUEUED");
    holder.line("EXEC").ignored();
    observer.line("ZCARD l").is(3);
    drop(holder);
    eventually("all have gone", || observer.line("EXISTS l").integer() == 0);
}

fn permits_of_several_locks_end_together_and_are_lost_alone(one: &Server, other: &Server) {
    let (mut holder, mut observer, mut next) = (one.client3(), other.client(), other.client());
    // It ends last, so the set stays one of permits without the others.
    observer.line("LOCK ACQUIRE b o PX 900000 SHARED ALSO 1 a").integer();
    let line = "LOCK ACQUIRE a t PX 600000 LIMIT 2 BOUND GRACE 0 NOTIFY ALSO 2 b c";
    let number = holder.line(line).integer();
    for (line, key) in [("ZREM b t", "b"), ("DEL c", "c")] {
        observer.line(line).is(1);
        let push = vec!["lock-lost".into(), key.into(), Reply::Integer(number), "deleted".into()];
        holder.reply().is(Reply::Push(push));
    }
    // A whole lock and a permit are taken over together.
    holder.line("LOCK ACQUIRE w t PX 60000").integer();
    assert!(holder.line("LOCK EXTEND w t PX 600000 BOUND GRACE 0 ALSO 1 a").integer() > number);
    other.have_wait(&mut next, "LOCK ACQUIRE a n PX 600000 LIMIT 2 BOUND GRACE 0 WAIT 0 ALSO 2 b w");
    drop(holder);
    assert!(next.reply().integer() > number);
    observer.line("ZCARD a").is(2);
    drop(next);
    eventually("they are free", || {
        observer.line("ZCARD a").integer() + observer.line("ZCARD b").integer() == 2
    });
    observer.line("EXISTS w").is(0);
}

fn the_writer_in_line_is_granted_the_lock_when_all_readers_have_died(one: &Server, other: &Server) {
    const READERS: usize = 60;
    let mut readers: Vec<Client> = (0..READERS).map(|number| [one, other][number % 2].client()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        take(reader, &format!("t{number}"), "600000 SHARED BOUND GRACE 0 NOTIFY");
    }
    let mut writer = other.client();
    other.have_wait(&mut writer, "LOCK ACQUIRE l w PX 600000 WAIT 0");
    drop(readers);
    writer.reply().integer();
    writer.line("GET l").is("w");
}

fn the_holder_hears_of_each_way(one: &Server, other: &Server) {
    let (mut holder, mut observer, mut same) = (one.client3(), other.client(), one.client());
    let (mut near, mut far) = (one.client(), other.client());
    for listener in [&mut near, &mut far] {
        listener.line("PSUBSCRIBE __lock@*").ignored();
    }
    wait_until_heard(&mut far, one);
    for (line, why) in [
        ("ZREM l a", "deleted"),
        ("LOCK RELEASE l a", "deleted"),
        ("ZADD l 1 a", "expired"),
        ("DEL l", "deleted"),
        ("LOCK BREAK l", "deleted"),
        ("RENAME l m", "deleted"),
        ("SET l b", "overwritten"),
        ("PEXPIRE l 9000000", "overwritten"),
        ("ZREM l z", "overwritten"),
        ("FLUSHDB", "flushed"),
        ("FLUSHALL", "flushed"),
        ("LOCK EXTEND l a PX 100", "expired"),
    ] {
        for from in [&mut same, &mut observer] {
            take(from, "z", "600000 SHARED");
            let number = take(&mut holder, "a", "60000 SHARED NOTIFY");
            from.line(line).ignored();
            assert_eq!(holder.reply().reply(), lost(number, why), "{line}");
            let message =
                ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} {why}")].map(Reply::from);
            near.reply().is(Reply::Array(message.to_vec()));
            far.reply().is(Reply::Array(message.to_vec()));
            from.line("DEL l m").ignored();
        }
    }
    // The end of one, while the others live on.
    take(&mut observer, "z", "600000 SHARED");
    let number = take(&mut holder, "a", "300 LIMIT 2 NOTIFY");
    holder.reply().is(lost(number, "expired"));
}

fn the_holder_hears_nothing_of_its_own_doing(one: &Server, other: &Server) {
    let (mut holder, mut observer) = (one.client3(), other.client());
    take(&mut observer, "z", "600000 SHARED");
    for options in ["60000 SHARED NOTIFY", "60000 SHARED BOUND NOTIFY"] {
        for line in ["LOCK RELEASE l a", "ZREM l a", "DEL l", "SET l b", "FLUSHALL"] {
            take(&mut holder, "a", options);
            holder.line(line).ignored();
            observer.line("DEL l").ignored();
        }
    }
    // A pipeline, all of which may travel in one batch.
    for _ in 0..5 {
        let lines = ["LOCK ACQUIRE l a PX 60000 SHARED NOTIFY", "ZREM l a"];
        holder.send(&lines.map(|line| request(line.split(' '))).concat());
        holder.reply().integer();
        holder.reply().is(1);
    }
    // The next loss is the first one that it hears of.
    let number = take(&mut holder, "a", "60000 SHARED NOTIFY");
    observer.line("DEL l").is(1);
    holder.reply().is(lost(number, "deleted"));
}

fn a_late_token_has_lost_it(one: &Server, other: &Server) {
    let (mut holder, mut second, mut observer) = (one.client3(), one.client3(), other.client());
    take(&mut observer, "z", "600000 SHARED");
    for _ in 0..5 {
        let number = take(&mut holder, "a", "40 SHARED NOTIFY");
        let again = loop {
            if let Reply::Integer(number) = second.line("LOCK ACQUIRE l a PX 60000 SHARED NOTIFY").reply() {
                break number;
            }
        };
        holder.reply().is(lost(number, "expired"));
        observer.line("ZREM l a").is(1);
        second.reply().is(lost(again, "deleted"));
    }
}

fn what_is_left_of_a_permit_is_left_when_the_front_end_ends(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "permits-death") else { return };
    let other = cluster.front(&[]);
    let mut observer = other.client();
    take(&mut observer, "z", "600000 SHARED");
    for signal in ["KILL", "TERM"] {
        let mut one = cluster.front(&[]);
        let mut holder = one.client();
        take(&mut holder, "a", "600000 SHARED BOUND GRACE 0");
        let before = end(&mut observer, "a");
        one.signal(signal);
        one.wait_for_end();
        assert_eq!(end(&mut observer, "a"), before, "{signal}");
        observer.line("LOCK RELEASE l a").is(1);
    }
}
