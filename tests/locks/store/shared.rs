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
