//! Permits (LOCK ACQUIRE … SHARED, LIMIT n) of keys in a store: over all front-ends readers hold a lock
//! together and a writer alone, and no more than n hold it.

use std::time::{Duration, Instant};

use super::{Kind, acquainted};
use support::client::{Client, Reply};
use support::server::Server;
use support::store::cluster::eventually;

on_both! {
    readers_at_two_front_ends_hold_it_together_and_a_writer_alone
    no_more_than_the_limit_hold_it_at_two_front_ends
    permits_of_several_locks_are_taken_together_at_two_front_ends
}

/// A conversation with both front-ends about the lock `l`, which is free.
type Conversation = fn(&Server, &Server);

fn readers_at_two_front_ends_hold_it_together_and_a_writer_alone(kind: Kind) {
    let all: [Conversation; 4] = [
        permits_of_both_front_ends_lie_beside_each_other,
        what_is_given_back_at_one_front_end_is_granted_at_the_other,
        readers_at_no_front_end_overtake_a_writer_in_line,
        a_writer_that_has_gone_keeps_no_reader_waiting,
    ];
    hold(kind, "shared", &all);
}

fn no_more_than_the_limit_hold_it_at_two_front_ends(kind: Kind) {
    let all: [Conversation; 4] = [
        clients_of_one_front_end_are_granted_permits_in_the_order_in_which_they_came,
        a_permit_that_ends_makes_room_for_the_first_in_line,
        many_readers_in_line_are_granted_it,
        no_more_than_the_limit_hold_it_whatever_happens,
    ];
    hold(kind, "limit", &all);
}

fn permits_of_several_locks_are_taken_together_at_two_front_ends(kind: Kind) {
    let all: [Conversation; 4] = [
        a_group_of_readers_has_all_or_none,
        a_group_of_readers_waits_without_holding,
        a_group_of_readers_overtakes_no_writer_that_waits_for_one_of_its_locks,
        a_group_is_granted_permits_when_the_first_one_of_its_last_lock_ends,
    ];
    hold(kind, "also-shared", &all);
}

fn hold(kind: Kind, test: &str, conversations: &[Conversation]) {
    let Some((_cluster, one, other)) = acquainted(kind, test) else { return };
    for conversation in conversations {
        conversation(&one, &other);
        one.client().line("FLUSHALL").is_ok();
    }
}

/// Takes a permit of the lock `l`, or the whole lock, and returns the number.
#[track_caller]
fn take(client: &mut Client, token: &str, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l {token} {options}")).integer()
}

/// Lets a client wait for the lock `l` for ever.
#[track_caller]
fn wait(front: &Server, token: &str, options: &str) -> Client {
    let mut client = front.client();
    front.have_wait(&mut client, format!("LOCK ACQUIRE l {token} PX 60000 WAIT 0 {options}").trim());
    client
}

fn permits_of_both_front_ends_lie_beside_each_other(one: &Server, other: &Server) {
    let (mut a, mut b) = (one.client(), other.client());
    let mut last = 0;
    let mut grows = |number: i64| {
        assert!(number > last, "{number} after {last}");
        last = number;
    };
    grows(take(&mut a, "a", "PX 60000 SHARED"));
    grows(take(&mut b, "b", "PX 90000 LIMIT 2"));
    for client in [&mut a, &mut b] {
        client.line("LOCK ACQUIRE l c PX 60000 LIMIT 2").is_nil();
        client.line("LOCK ACQUIRE l a PX 60000 SHARED").is_nil();
        client.line("LOCK ACQUIRE l w PX 60000").is_nil();
        client.line("LOCK ACQUIRE l w PX 60000 WAIT 1").is_nil();
        grows(client.line("LOCK ACQUIRE l a PX 1 SHARED AGAIN").integer());
        grows(client.line("LOCK EXTEND l b PX 90000").integer());
        client.line("LOCK EXTEND l c PX 90000").is_nil();
        client.line("LOCK RELEASE l c").is(0);
        client.line("LOCK FENCE l a").is_nil();
        client.line("TYPE l").is_simple("zset");
        assert!((60_001..=90_000).contains(&client.line("PTTL l").integer()));
        client.line("LOCK ACQUIRE l a PX 60000").is_error(
            "ERR The token has a permit of this lock: release it before you take the lock for one holder",
        );
    }
    // A writer has waited and left its mark. Until that ends it keeps new readers away, and no writer.
    b.line("LOCK RELEASE l a").is(1);
    a.line("LOCK RELEASE l b").is(1);
    grows(take(&mut b, "w", "PX 60000"));
    a.line("LOCK ACQUIRE l c PX 60000 SHARED").is_nil();
    a.line("LOCK BREAK l").is(1);
    a.line("MULTI").is_ok();
    a.line("SET x y PX 60000").is_simple("QUEUED");
    for token in ["a", "b"] {
        a.line(&format!("LOCK ACQUIRE l {token} PX 60000 LIMIT 2 WAIT 0")).is_simple("QUEUED");
    }
    a.line("LOCK ACQUIRE l c PX 60000 LIMIT 2 WAIT 0").is_simple("QUEUED");
    let replies = a.line("EXEC").items();
    assert_eq!(replies[3], Reply::Null, "{replies:?}");
    b.line("LOCK RELEASE l a").is(1);
    take(&mut b, "a", "PX 60000 LIMIT 2");
    b.line("ZCARD l").is(2);
    b.line("LOCK BREAK l").is(1);
    b.line("ZADD l 1 x").is(1);
    a.line("LOCK ACQUIRE l a PX 60000 SHARED").is_error(
        "ERR The sorted set at this key holds no permits: its largest score is not the moment at which it expires",
    );
    a.line("LOCK RELEASE l x").is(0);
}

fn what_is_given_back_at_one_front_end_is_granted_at_the_other(one: &Server, other: &Server) {
    let mut holder = one.client();
    let mut last = take(&mut holder, "h", "PX 60000");
    for line in ["LOCK RELEASE l h", "DEL l", "FLUSHALL", "LOCK BREAK l"] {
        let mut readers = [wait(other, "a", "SHARED"), wait(other, "b", "SHARED"), wait(one, "c", "SHARED")];
        holder.line(line).ignored();
        let numbers: Vec<i64> = readers.iter_mut().map(|reader| reader.reply().integer()).collect();
        assert!(numbers.iter().all(|number| *number > last), "{line}: {numbers:?} after {last}");
        let mut writer = wait(other, "w", "");
        for token in ["a", "b", "c"] {
            holder.line(&format!("LOCK RELEASE l {token}")).is(1);
        }
        assert!(writer.reply().integer() > numbers.into_iter().max().unwrap());
        holder.line("LOCK RELEASE l w").is(1);
        last = take(&mut holder, "h", "PX 60000");
    }
}

fn readers_at_no_front_end_overtake_a_writer_in_line(one: &Server, other: &Server) {
    let (mut a, mut b) = (one.client(), other.client());
    take(&mut a, "a", "PX 60000 SHARED");
    let mut writer = wait(one, "w", "");
    let began = Instant::now();
    eventually("its mark is there", || a.line("ZCARD l").integer() == 2);
    // It is there for as long as the writer waits.
    while began.elapsed() < Duration::from_millis(1300) {
        a.line("LOCK ACQUIRE l c PX 60000 SHARED").is_nil();
        b.line("LOCK ACQUIRE l d PX 60000 LIMIT 9").is_nil();
    }
    take(&mut b, "a", "PX 60000 SHARED AGAIN");
    let mut behind = [wait(other, "c", "SHARED"), wait(one, "d", "SHARED")];
    b.line("LOCK RELEASE l a").is(1);
    let number = writer.reply().integer();
    b.line("GET l").is("w");
    b.line("LOCK RELEASE l w").is(1);
    behind.iter_mut().for_each(|reader| assert!(reader.reply().integer() > number));
}

fn clients_of_one_front_end_are_granted_permits_in_the_order_in_which_they_came(front: &Server, _: &Server) {
    let mut holder = front.client();
    take(&mut holder, "h", "PX 60000");
    let modes = ["SHARED", "LIMIT 2", "", "LIMIT 2", "LIMIT 1", "SHARED"];
    let mut clients: Vec<Client> =
        modes.iter().enumerate().map(|(number, mode)| wait(front, &format!("t{number}"), mode)).collect();
    holder.line("LOCK RELEASE l h").is(1);
    let mut numbers = vec![clients[0].reply().integer(), clients[1].reply().integer()];
    holder.line("LOCK RELEASE l t0").is(1);
    holder.line("LOCK RELEASE l t1").is(1);
    numbers.push(clients[2].reply().integer());
    holder.line("LOCK RELEASE l t2").is(1);
    numbers.push(clients[3].reply().integer());
    assert!(clients[5].is_silent_for(Duration::from_millis(50)), "it has not overtaken LIMIT 1");
    holder.line("LOCK RELEASE l t3").is(1);
    numbers.push(clients[4].reply().integer());
    numbers.push(clients[5].reply().integer());
    assert!(numbers.is_sorted(), "{numbers:?}");
}

fn a_permit_that_ends_makes_room_for_the_first_in_line(one: &Server, other: &Server) {
    let mut holder = one.client();
    take(&mut holder, "a", "PX 60000 LIMIT 2");
    let began = Instant::now();
    take(&mut holder, "b", "PX 300 LIMIT 2");
    take(&mut other.client(), "c", "PX 60000 LIMIT 2 WAIT 0");
    assert!(began.elapsed() >= Duration::from_millis(300));
    let mut writer = wait(other, "w", "");
    holder.line("LOCK EXTEND l a PX 200").integer();
    holder.line("LOCK EXTEND l c PX 300").integer();
    writer.reply().integer();
    holder.line("GET l").is("w");
}

fn a_writer_that_has_gone_keeps_no_reader_waiting(one: &Server, other: &Server) {
    let mut holder = one.client();
    take(&mut holder, "a", "PX 60000 SHARED");
    let writer = wait(one, "w", "");
    let mut readers = [wait(one, "b", "SHARED"), wait(other, "c", "SHARED")];
    drop(writer);
    readers.iter_mut().for_each(|reader| _ = reader.reply().integer());
}

fn many_readers_in_line_are_granted_it(one: &Server, other: &Server) {
    const READERS: usize = 30;
    let mut writer = one.client();
    let last = take(&mut writer, "w", "PX 60000");
    let mut readers: Vec<Client> =
        (0..READERS).map(|number| wait([one, other][number % 2], &format!("r{number}"), "SHARED")).collect();
    writer.line("LOCK RELEASE l w").is(1);
    let mut numbers: Vec<i64> = readers.iter_mut().map(|reader| reader.reply().integer()).collect();
    writer.line("ZCARD l").is(READERS as i64);
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() == READERS && numbers[0] > last);
}

/// The ends of a token's permits of these locks.
fn ends(client: &mut Client, token: &str, keys: &[&str]) -> Vec<Reply> {
    keys.iter().map(|key| client.cmd(["ZSCORE", key, token]).reply()).collect()
}

fn a_group_of_readers_has_all_or_none(one: &Server, other: &Server) {
    let (mut a, mut b) = (one.client(), other.client());
    let first = a.line("LOCK ACQUIRE k r PX 60000 SHARED ALSO 2 l m").integer();
    let all = ends(&mut b, "r", &["k", "l", "m"]);
    assert!(all[0] != Reply::Null && all.iter().all(|end| *end == all[0]), "{all:?}");
    let second = b.line("LOCK ACQUIRE m s PX 60000 LIMIT 2 ALSO 2 l n").integer();
    assert!(second > first);
    for line in ["LOCK ACQUIRE k t PX 60000 LIMIT 2 ALSO 1 l", "LOCK ACQUIRE o t PX 60000 ALSO 1 k"] {
        b.line(line).is_nil();
        a.line(&format!("{line} WAIT 20")).is_nil();
    }
    b.line("LOCK ACQUIRE o r PX 60000 ALSO 1 k").is_error(
        "ERR The token has a permit of this lock: release it before you take the lock for one holder",
    );
    a.line("EXISTS o").is(0);
    // One that comes again keeps what it has, and shortens nothing.
    b.line("LOCK RELEASE l r").is(1);
    let third = b.line("LOCK ACQUIRE k r PX 1000 AGAIN SHARED ALSO 2 l m").integer();
    assert!(third > second && a.line("PTTL k").integer() > 1000);
    // Permits and whole locks are extended together, and each is given back.
    let whole = a.line("LOCK ACQUIRE w r PX 60000").integer();
    b.line("LOCK EXTEND w r PX 90000 ALSO 2 k n").is_nil();
    assert!(b.line("LOCK EXTEND w r PX 90000 ALSO 2 k l").integer() > whole);
    a.line("LOCK FENCE w r").is(whole);
    assert!(["w", "k", "l"].iter().all(|key| a.cmd(["PTTL", key]).integer() > 60_000));
    b.line("LOCK RELEASE w r ALSO 4 k l m n").is(4);
    a.line("LOCK RELEASE n s ALSO 2 m l").is(3);
    a.line("EXISTS k l m n w").is(0);
}

fn a_group_of_readers_waits_without_holding(one: &Server, other: &Server) {
    for (near, far) in [(one, one), (one, other), (other, one)] {
        let (mut holder, mut group, mut next) = (near.client(), far.client(), far.client());
        holder.line("LOCK ACQUIRE k x PX 60000").integer();
        far.have_wait(&mut group, "LOCK ACQUIRE l r PX 60000 LIMIT 2 WAIT 0 ALSO 1 k");
        // If the group kept the free lock, this would be a deadlock.
        holder.line("LOCK ACQUIRE l x PX 60000 WAIT 0").integer();
        far.have_wait(&mut next, "LOCK ACQUIRE l y PX 60000 SHARED WAIT 0");
        holder.line("LOCK RELEASE l x").is(1);
        next.reply().integer();
        holder.line("LOCK RELEASE k x").is(1);
        group.reply().integer();
        // It comes again for what is its own, while a writer waits for that, and it lacks another one.
        let mut writer = far.client();
        far.have_wait(&mut writer, "LOCK ACQUIRE k w PX 60000 WAIT 0");
        holder.line("LOCK ACQUIRE m x PX 60000 LIMIT 1").integer();
        far.have_wait(&mut group, "LOCK ACQUIRE k r PX 60000 LIMIT 1 WAIT 0 AGAIN ALSO 1 m");
        holder.line("LOCK RELEASE m x").is(1);
        group.reply().integer();
        holder.line("LOCK RELEASE k r ALSO 2 l m").is(3);
        writer.reply().integer();
        holder.line("LOCK RELEASE k w").is(1);
        holder.line("LOCK RELEASE l y").is(1);
    }
}

fn a_group_of_readers_overtakes_no_writer_that_waits_for_one_of_its_locks(front: &Server, other: &Server) {
    for leaves in [false, true] {
        let (mut holder, mut group) = (front.client(), front.client());
        take(&mut holder, "h", "PX 60000 SHARED");
        holder.line("LOCK ACQUIRE k h PX 60000").integer();
        let mut single = wait(front, "w", if leaves { "LIMIT 1" } else { "" });
        front.have_wait(&mut group, "LOCK ACQUIRE l r PX 60000 SHARED WAIT 0 ALSO 1 k");
        holder.line("LOCK RELEASE k h").is(1);
        assert!(group.is_silent_for(Duration::from_millis(30)));
        // It keeps the lock that is free from no other client.
        let mut late = front.client();
        late.line("LOCK ACQUIRE k y PX 60000 WAIT 0").integer();
        late.line("LOCK RELEASE k y").is(1);
        other.client().line("EXISTS k").is(0);
        if leaves {
            drop(single);
        } else {
            holder.line("LOCK RELEASE l h").is(1);
            single.reply().integer();
            holder.line("LOCK RELEASE l w").is(1);
        }
        group.reply().integer();
        holder.line("FLUSHALL").is_ok();
    }
}

fn a_group_is_granted_permits_when_the_first_one_of_its_last_lock_ends(one: &Server, other: &Server) {
    let mut holder = one.client();
    for key in ["k", "l"] {
        holder.line(&format!("LOCK ACQUIRE {key} x PX 60000 LIMIT 2")).integer();
    }
    let began = Instant::now();
    holder.line("LOCK ACQUIRE k y PX 100 LIMIT 2").integer();
    holder.line("LOCK ACQUIRE l z PX 300 LIMIT 2").integer();
    other.client().line("LOCK ACQUIRE k w PX 60000 LIMIT 2 WAIT 0 ALSO 1 l").integer();
    assert!(began.elapsed() >= Duration::from_millis(300));
    holder.line("ZRANGE l 0 -1").is(Reply::Array(vec!["x".into(), "w".into()]));
}

fn no_more_than_the_limit_hold_it_whatever_happens(one: &Server, other: &Server) {
    const LIMIT: i64 = 3;
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (mut client, mut observer) =
                ([one, other][number % 2].client(), [other, one][number % 2].client());
            scope.spawn(move || {
                for _ in 0..4 {
                    take(&mut client, &format!("t{number}"), &format!("PX 60000 WAIT 0 LIMIT {LIMIT}"));
                    assert!((1..=LIMIT).contains(&observer.line("ZCARD l").integer()));
                    observer.line(&format!("LOCK RELEASE l t{number}")).is(1);
                }
            });
        }
    });
    one.client().line("EXISTS l").is(0);
}
