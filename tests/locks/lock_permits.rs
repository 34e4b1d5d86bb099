//! LOCK ACQUIRE … SHARED and LIMIT n, with BOUND and NOTIFY: each permit ends with the connection that took
//! it, and its holder is notified when it loses it, whatever the others at the key do.

use std::thread::sleep;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::{array, field, integer};
use support::server::{Server, wait_until};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];

/// Takes a permit of the lock `l` and returns the number.
#[track_caller]
fn take(client: &mut Client, token: &str, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l {token} PX {options}")).integer()
}

/// When the permit of a token ends, in milliseconds since 1970, if it is there.
#[track_caller]
fn end(observer: &mut Client, token: &str) -> Option<i64> {
    match observer.line(&format!("ZSCORE l {token}")).reply() {
        Reply::Null => None,
        score => score.to_string().replace('"', "").parse().ok(),
    }
}

/// How long a permit still counts, in milliseconds.
#[track_caller]
fn left(observer: &mut Client, token: &str) -> i64 {
    // Ends are rounded up, and so is this.
    let script = "local now = redis.call('TIME') return redis.call('ZSCORE', KEYS[1], ARGV[1]) \
                  - now[1] * 1000 - math.ceil(now[2] / 1000)";
    observer.cmd(["EVAL", script, "1", "l", token]).integer()
}

#[track_caller]
fn wait_until_gone(observer: &mut Client, token: &str) {
    wait_until("the permit has gone", || end(observer, token).is_none());
}

/// The push about the loss of a permit of the lock `l`.
fn lost(number: i64, why: &str) -> Reply {
    Reply::Push(vec!["lock-lost".into(), "l".into(), Reply::Integer(number), why.into()])
}

#[test]
fn a_permit_is_held_for_as_long_as_the_connection_lives_and_for_the_rest_of_the_lease() {
    let server = Server::start();
    let (mut reader, mut other, mut writer) = (server.client(), server.client(), server.client());
    take(&mut reader, "a", "900 SHARED BOUND");
    take(&mut other, "b", "900 SHARED");
    take(&mut other, "c", "900 LIMIT 9 BOUND GRACE 0");
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(1400) {
        writer.line("LOCK ACQUIRE l w PX 60000").is_nil();
        assert!((1..=900).contains(&left(&mut writer, "a")));
        sleep(Duration::from_millis(20));
    }
    assert!(left(&mut writer, "b") <= 0, "one that is not bound is over");
    // The key expires with the last one.
    let last = end(&mut writer, "a").max(end(&mut writer, "c"));
    assert_eq!(writer.line("PEXPIRETIME l").integer(), last.unwrap());
    drop(other);
    wait_until_gone(&mut writer, "c");
    let asked = Instant::now();
    let left = left(&mut writer, "a");
    drop(reader);
    let number = writer.line("LOCK ACQUIRE l w PX 60000 WAIT 0").integer();
    assert!(number > 0 && asked.elapsed() >= Duration::from_millis(left.unsigned_abs()));
}

#[test]
fn by_whatever_way_the_connection_ends_the_next_in_line_is_granted_its_permit_at_once() {
    let server = Server::start();
    let mut observer = server.client();
    for way in ["", "QUIT", "RESET", "kill", "broken pipe"] {
        let (mut holder, mut next) = (server.client(), server.client3());
        take(&mut observer, "b", "600000 LIMIT 2");
        let number = take(&mut holder, "a", "600000 LIMIT 2 BOUND GRACE 0 NOTIFY");
        let id = holder.line("CLIENT ID").integer();
        server.have_wait(&mut next, "LOCK ACQUIRE l c PX 600000 WAIT 60000 LIMIT 2");
        match way {
            "" => drop(holder),
            "kill" => observer.line(&format!("CLIENT KILL ID {id}")).is(1),
            "broken pipe" => {
                holder.send(b"*1\r\n$4\r\nPI");
                drop(holder);
            }
            line => holder.line(line).ignored(),
        }
        assert!(next.reply().integer() > number, "{way}");
        observer.line("ZSCORE l a").is_nil();
        assert!(left(&mut observer, "b") > 500_000, "{way}");
        observer.line("LOCK BREAK l").is(1);
    }
}

#[test]
fn of_two_connections_with_permits_one_dies_and_the_other_goes_on() {
    let server = Server::start();
    let mut observer = server.client();
    let (mut first, mut second) = (server.client(), server.client());
    for token in ["a", "b"] {
        take(&mut first, token, "600000 SHARED BOUND GRACE 0");
    }
    take(&mut second, "c", "900 SHARED BOUND GRACE 0");
    drop(first);
    for token in ["a", "b"] {
        wait_until_gone(&mut observer, token);
    }
    let before = end(&mut observer, "c");
    wait_until("the other is renewed", || end(&mut observer, "c") > before);
    assert_eq!(observer.line("PEXPIRETIME l").integer(), end(&mut observer, "c").unwrap());
    drop(second);
    wait_until("the key has gone", || observer.line("EXISTS l").integer() == 0);
}

#[test]
fn a_thousand_bound_readers_die_at_once_and_the_writer_in_line_gets_the_lock() {
    const READERS: usize = 1000;
    let server = Server::start();
    let mut writer = server.client();
    let mut readers: Vec<Client> = (0..READERS).map(|_| server.client()).collect();
    let line = |number: usize| format!("LOCK ACQUIRE l t{number} PX 600000 SHARED BOUND GRACE 0 NOTIFY");
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(&request(line(number).split(' ')));
    }
    let mut last = 0;
    for reader in &mut readers {
        last = reader.reply().integer().max(last);
    }
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
    drop(readers);
    assert!(writer.reply().integer() > last);
    writer.line("GET l").is("w");
}

/// That others have permits with guards makes no request for a permit cost more.
#[test]
fn thousands_of_bound_readers_cost_each_other_nothing() {
    const READERS: usize = 4000;
    let server = Server::start_with(&["--save", ""]);
    let (mut reader, mut observer) = (server.client3(), server.client());
    let began = Instant::now();
    for round in ["NOTIFY", "AGAIN"] {
        let line = |number: usize| {
            let line = format!("LOCK ACQUIRE l t{number} PX 600000 SHARED BOUND GRACE 0 {round}");
            request(line.split(' '))
        };
        reader.send(&(0..READERS).flat_map(line).collect::<Vec<u8>>());
        for _ in 0..READERS {
            reader.reply().integer();
        }
    }
    drop(reader);
    wait_until("all have gone", || observer.line("EXISTS l").integer() == 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn grace_is_left_of_a_permit_when_the_connection_ends() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    take(&mut other, "b", "200000 SHARED");
    take(&mut holder, "a", "600000 SHARED BOUND GRACE 90000");
    take(&mut holder, "c", "60000 SHARED BOUND GRACE 900000 MAX 800000");
    take(&mut holder, "d", "60000 SHARED BOUND GRACE 9223372036854775807");
    take(&mut holder, "e", "60000 SHARED BOUND");
    drop(holder);
    wait_until("the grace has begun", || (1..=90_000).contains(&left(&mut other, "a")));
    wait_until("the grace has begun", || (700_000..=800_000).contains(&left(&mut other, "c")));
    wait_until("the grace has begun", || end(&mut other, "d") == Some(1 << 53));
    assert!((1..=60_000).contains(&left(&mut other, "e")));
    other.line("PEXPIRETIME l").is(1 << 53);
    other.line("LOCK RELEASE l d").is(1);
    assert_eq!(end(&mut other, "c").unwrap(), other.line("PEXPIRETIME l").integer());
    // A client in line is granted what the grace leaves, when it is over.
    other.line("LOCK BREAK l").is(1);
    let mut holder = server.client();
    take(&mut other, "b", "600000 LIMIT 2");
    take(&mut holder, "a", "600000 LIMIT 2 BOUND GRACE 300");
    let mut next = server.client();
    server.have_wait(&mut next, "LOCK ACQUIRE l c PX 600000 WAIT 0 LIMIT 2");
    let began = Instant::now();
    drop(holder);
    next.reply().integer();
    assert!(began.elapsed() >= Duration::from_millis(280), "{:?}", began.elapsed());
}

#[test]
fn what_others_have_done_to_the_end_of_a_permit_counts() {
    let server = Server::start();
    let mut other = server.client3();
    let now_ms = |client: &mut Client| {
        take(client, "n", "1 SHARED");
        end(client, "n").unwrap()
    };
    for (line, rest) in [
        ("LOCK EXTEND l a PX 900000", 800_000..=900_000),
        ("LOCK ACQUIRE l a PX 900000 AGAIN SHARED", 800_000..=900_000),
        ("LOCK ACQUIRE l a PX 100000 AGAIN LIMIT 5", 90_000..=100_000),
        ("ZADD", 800_000..=900_010),
    ] {
        let mut holder = server.client();
        take(&mut other, "z", "5000000 SHARED");
        take(&mut holder, "a", "600000 SHARED BOUND GRACE 0");
        let later = now_ms(&mut other) + 900_000;
        match line {
            "ZADD" => other.line(&format!("ZADD l XX {later} a")).ignored(),
            line => other.line(line).ignored(),
        }
        drop(holder);
        wait_until("it is bound no more", || {
            let shown = other.line("LOCKS GET l").reply();
            array(&shown, "permits").iter().all(|permit| field(permit, "bound-there") == Reply::Null)
        });
        let left_ms = left(&mut other, "a");
        assert!(rest.contains(&left_ms), "{line}: {left_ms}");
        other.line("LOCK BREAK l").is(1);
    }
    // A renewal does not shorten, and makes what was shortened as long as before.
    let mut holder = server.client();
    take(&mut other, "z", "5000000 SHARED");
    take(&mut holder, "a", "1500 SHARED BOUND");
    other.line("LOCK EXTEND l a PX 600000").ignored();
    sleep(Duration::from_millis(600));
    assert!(left(&mut other, "a") > 500_000);
    other.line("LOCK EXTEND l a PX 1200").ignored();
    wait_until("it was renewed", || left(&mut other, "a") > 1200);
    // Nor does it bring one back.
    other.line("ZREM l a").is(1);
    sleep(Duration::from_millis(600));
    other.line("ZSCORE l a").is_nil();
}

#[test]
fn max_ends_a_permit_whatever_the_client_does() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client3(), server.client());
    let mut listener = server.client();
    listener.line("PSUBSCRIBE __lock@*").ignored();
    take(&mut other, "z", "600000 SHARED");
    let began = Instant::now();
    let number = take(&mut holder, "a", "600 SHARED BOUND MAX 1000 NOTIFY");
    for line in ["LOCK EXTEND l a PX 60000", "LOCK EXTEND l a PX 60000 BOUND MAX 90000", "ZINCRBY l 300000 a"]
    {
        other.line(line).ignored();
        assert!((1..=1000).contains(&left(&mut other, "a")), "{line}");
    }
    other.line("LOCK ACQUIRE l a PX 90000 AGAIN SHARED").integer();
    holder.reply().is(lost(number, "max"));
    assert!(began.elapsed() >= Duration::from_millis(1000));
    let message = ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} max")].map(Reply::from);
    listener.reply().is(Reply::Array(message.to_vec()));
    take(&mut other, "a", "60000 LIMIT 2");
    // What ends before is not its end.
    let number = take(&mut holder, "b", "60000 SHARED BOUND MAX 60000 NOTIFY");
    other.line("LOCK EXTEND l b PX 1").integer();
    holder.reply().is(lost(number, "expired"));
}

#[test]
fn another_connection_with_the_token_takes_a_permit_over() {
    let server = Server::start();
    let mut observer = server.client();
    take(&mut observer, "z", "600000 SHARED");
    for line in
        ["LOCK EXTEND l a PX 1500 BOUND GRACE 0", "LOCK ACQUIRE l a PX 1500 AGAIN SHARED BOUND GRACE 0"]
    {
        let (mut first, mut second) = (server.client3(), server.client());
        let number = take(&mut first, "a", "1500 SHARED BOUND GRACE 0 NOTIFY");
        observer.line("LOCK EXTEND l b PX 1500 BOUND").is_nil();
        assert!(second.line(line).integer() > number);
        first.line("RESET").ignored();
        let before = end(&mut observer, "a");
        wait_until("it is renewed", || end(&mut observer, "a") > before);
        drop(first);
        drop(second);
        wait_until_gone(&mut observer, "a");
    }
    // One that had no connection is bound to one; the number is that of the reply which has asked for it.
    let (mut second, mut third) = (server.client(), server.client3());
    take(&mut observer, "a", "60000 SHARED");
    second.line("LOCK EXTEND l a PX 60000 BOUND GRACE 0").integer();
    let number = third.line("LOCK ACQUIRE l a PX 1 SHARED AGAIN NOTIFY").integer();
    drop(second);
    third.reply().is(lost(number, "expired"));
    assert!(left(&mut observer, "a") <= 0);
}

#[test]
fn the_holder_of_a_permit_is_notified_of_each_way_to_lose_it() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other, mut listener) = (server.client3(), server.client(), server.client());
    listener.line("PSUBSCRIBE __lock@*").ignored();
    for (line, why) in [
        ("ZREM l a", "deleted"),
        ("ZPOPMIN l", "deleted"),
        ("ZREMRANGEBYRANK l 0 0", "deleted"),
        ("ZADD l 1 a", "expired"),
        ("LOCK RELEASE l a", "deleted"),
        ("DEL l", "deleted"),
        ("PEXPIRE l 0", "deleted"),
        ("LOCK BREAK l", "broken"),
        ("SET l b", "overwritten"),
        ("COPY k l REPLACE", "overwritten"),
        ("ZUNIONSTORE l 1 l", "overwritten"),
        ("PEXPIRE l 9000000", "overwritten"),
        ("PERSIST l", "overwritten"),
        ("ZREM l z", "overwritten"),
        ("RENAME l m", "moved"),
        ("MOVE l 1", "moved"),
        ("SWAPDB 0 2", "moved"),
        ("FLUSHDB", "flushed"),
        ("FLUSHALL", "flushed"),
        ("LOCK EXTEND l a PX 1", "expired"),
        ("CLOCK ADVANCE 60000", "expired"),
    ] {
        for options in ["NOTIFY", "NOTIFY BOUND"] {
            other.line("FLUSHALL").is_ok();
            other.line("SET k v").is_ok();
            if (options, line) == ("NOTIFY BOUND", "CLOCK ADVANCE 60000") {
                continue;
            }
            let number = take(&mut holder, "a", &format!("60000 SHARED {options}"));
            take(&mut other, "z", "600000 SHARED");
            other.line(line).ignored();
            holder.reply().is(lost(number, why));
            let message =
                ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} {why}")].map(Reply::from);
            listener.reply().is(Reply::Array(message.to_vec()));
        }
    }
    // The end of one that no client looks at, while others live on.
    other.line("DEL l").ignored();
    take(&mut other, "z", "600000 SHARED");
    let began = Instant::now();
    let number = take(&mut holder, "a", "200 LIMIT 3 NOTIFY");
    holder.reply().is(lost(number, "expired"));
    assert!(began.elapsed() >= Duration::from_millis(200));
    listener.reply().ignored();
    // Of another's permit nothing is heard, nor of a change that loses none.
    take(&mut holder, "a", "60000 SHARED NOTIFY");
    take(&mut other, "b", "60000 SHARED");
    for line in ["LOCK RELEASE l b", "LOCK EXTEND l z PX 700000", "LOCK EXTEND l a PX 60000", "ZINCRBY l 5 a"]
    {
        other.line(line).ignored();
    }
    assert!(
        holder.is_silent_for(Duration::from_millis(20)) && listener.is_silent_for(Duration::from_millis(1))
    );
}

#[test]
fn a_token_that_comes_back_late_has_lost_its_permit_and_got_another_one() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other) = (server.client3(), server.client3());
    take(&mut other, "z", "600000 SHARED");
    for _ in 0..20 {
        let first = take(&mut holder, "a", "2 SHARED NOTIFY");
        let second = loop {
            if let Reply::Integer(number) = other.line("LOCK ACQUIRE l a PX 60000 SHARED NOTIFY").reply() {
                break number;
            }
        };
        holder.reply().is(lost(first, "expired"));
        holder.line("LOCK RELEASE l a").is(1);
        other.reply().is(lost(second, "deleted"));
    }
    let number = take(&mut holder, "a", "60000 SHARED NOTIFY");
    other.line("MULTI").is_ok();
    other.line("ZREM l a").is_simple("QUEUED");
    other.line("LOCK ACQUIRE l a PX 60000 SHARED NOTIFY").is_simple("QUEUED");
    other.line("EXEC").ignored();
    holder.reply().is(lost(number, "deleted"));
    assert!(other.is_silent_for(Duration::from_millis(10)));
}

#[test]
fn nothing_is_told_of_what_the_connection_did_to_its_permit_itself() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other) = (server.client3(), server.client());
    for line in [
        "LOCK RELEASE l a",
        "ZREM l a",
        "DEL l",
        "LOCK BREAK l",
        "SET l b",
        "RENAME l m",
        "FLUSHALL",
        "PERSIST l",
    ] {
        take(&mut holder, "a", "60000 SHARED NOTIFY BOUND");
        holder.line(line).ignored();
        other.line("DEL l").ignored();
    }
    take(&mut holder, "a", "60000 SHARED NOTIFY");
    holder.line("MULTI").is_ok();
    holder.line("LOCK RELEASE l a").is_simple("QUEUED");
    assert_eq!(holder.line("EXEC").items(), [Reply::Integer(1)]);
    take(&mut holder, "a", "60000 SHARED NOTIFY");
    holder.cmd(["EVAL", "return redis.call('ZREM', KEYS[1], 'a')", "1", "l"]).is(1);
    assert!(holder.is_silent_for(Duration::from_millis(20)));
}

#[test]
fn permits_are_bound_within_transactions_scripts_and_pipelines_to_the_caller() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client3(), server.client());
    take(&mut observer, "z", "600000 SHARED");
    let script = "for _, token in ipairs(ARGV) do redis.call( \
                  'LOCK', 'ACQUIRE', KEYS[1], token, 'PX', 1500, 'SHARED', 'BOUND', 'GRACE', 0) end";
    holder.cmd(["EVAL", script, "1", "l", "a", "b"]).is_nil();
    holder.line("MULTI").is_ok();
    holder.line("LOCK ACQUIRE l c PX 60000 SHARED").is_simple("QUEUED");
    holder.line("LOCK EXTEND l c PX 1500 BOUND GRACE 0").is_simple("QUEUED");
    holder.line("EXEC").ignored();
    let line = |token: &str| {
        request(format!("LOCK ACQUIRE l {token} PX 1500 LIMIT 99 BOUND GRACE 0 NOTIFY").split(' '))
    };
    holder.send(&[line("d"), line("e"), request(["ZREM", "l", "e"])].concat());
    let numbers = [(); 2].map(|()| holder.reply().integer());
    holder.reply().is(1);
    assert!(numbers[1] > numbers[0]);
    sleep(Duration::from_millis(700));
    for token in ["a", "b", "c", "d"] {
        assert!(left(&mut observer, token) > 850, "{token} is renewed");
    }
    // What a transaction does to one of them counts when it has ended.
    observer.line("MULTI").is_ok();
    for line in ["ZREM l d", "LOCK RELEASE l z", "SET k v"] {
        observer.line(line).is_simple("QUEUED");
    }
    observer.line("EXEC").ignored();
    holder.reply().is(lost(numbers[0], "deleted"));
    drop(holder);
    wait_until("all have gone", || observer.line("EXISTS l").integer() == 0);
}

#[test]
fn one_that_waits_is_bound_when_it_is_granted_and_one_that_leaves_at_that_moment_keeps_nothing() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client(), server.client());
    for round in 0..20 {
        take(&mut holder, "w", "600000");
        let mut waiting = [(); 4].map(|()| server.client());
        for (number, client) in waiting.iter_mut().enumerate() {
            let line = format!("LOCK ACQUIRE l t{number} PX 600000 WAIT 0 SHARED BOUND GRACE 0");
            server.have_wait(client, &line);
        }
        if round == 0 {
            holder.line("LOCK RELEASE l w").is(1);
            waiting.iter_mut().for_each(|client| _ = client.reply().integer());
            observer.line("ZCARD l").is(4);
            drop(waiting);
        } else {
            let leaver = std::thread::spawn(move || drop(waiting));
            holder.line("LOCK RELEASE l w").is(1);
            leaver.join().unwrap();
        }
        wait_until(&format!("round {round}"), || observer.line("EXISTS l").integer() == 0);
    }
}

#[test]
fn a_renewal_of_a_permit_is_no_event_no_change_and_no_use() {
    let server = Server::start_with(&["--notify-keyspace-events", "KEA"]);
    let (mut holder, mut other, mut watcher) = (server.client(), server.client(), server.client3());
    for token in 0..200 {
        // A large sorted set, too, is renewed in place.
        take(&mut holder, &format!("t{token}"), "600000 SHARED");
    }
    take(&mut holder, "a", "900 SHARED BOUND");
    watcher.line("CLIENT TRACKING ON").is_ok();
    watcher.line("ZCARD l").ignored();
    let mut listener = server.client();
    listener.line("PSUBSCRIBE *").ignored();
    other.line("WATCH l").is_ok();
    let before = other.info("rdb_changes_since_last_save");
    let idle = |client: &mut Client| client.line("OBJECT IDLETIME l").integer();
    wait_until("it has not been used for a second", || idle(&mut other) >= 1);
    assert_eq!(other.info("rdb_changes_since_last_save"), before);
    other.line("MULTI").is_ok();
    other.line("ZSCORE l a").is_simple("QUEUED");
    assert_eq!(other.line("EXEC").items().len(), 1);
    assert!(
        watcher.is_silent_for(Duration::from_millis(1)) && listener.is_silent_for(Duration::from_millis(1))
    );
    assert!((1..=900).contains(&left(&mut other, "a")));
}

#[test]
fn the_clock_ends_no_permit_whose_connection_lives() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other) = (server.client3(), server.client3());
    let number = take(&mut holder, "a", "60000 SHARED BOUND MAX 86400000 GRACE 5000 NOTIFY");
    take(&mut holder, "b", "50000 SHARED BOUND");
    let third = take(&mut other, "c", "60000 SHARED NOTIFY");
    for line in ["CLOCK ADVANCE 3600000", "CLOCK SET 1000000000000", "CLOCK RESUME", "CLOCK FREEZE"] {
        other.send(&request(line.split(' ')));
        if line.ends_with("3600000") {
            let replies = [other.reply().reply(), other.reply().reply()];
            assert!(replies.contains(&lost(third, "expired")), "{replies:?}");
        } else {
            other.reply().is_ok();
        }
        assert!((1..=60_000).contains(&left(&mut other, "a")), "{line}");
        assert!((1..=50_000).contains(&left(&mut other, "b")), "{line}");
    }
    // MAX goes by it.
    other.line("CLOCK ADVANCE 86400000").is_ok();
    holder.reply().is(lost(number, "max"));
    // And so does GRACE.
    take(&mut holder, "a", "60000 SHARED BOUND GRACE 5000");
    drop(holder);
    wait_until("the grace has begun", || left(&mut other, "a") == 5000);
    other.line("CLOCK ADVANCE 4999").is_ok();
    other.line("LOCK ACQUIRE l w PX 1000").is_nil();
}

#[test]
fn a_pause_ends_no_permit_and_one_that_ends_meanwhile_is_given_back_after_it() {
    let server = Server::start();
    let (mut holder, mut other, mut gone) = (server.client(), server.client(), server.client());
    take(&mut holder, "a", "900 SHARED BOUND GRACE 0");
    take(&mut gone, "b", "600000 SHARED BOUND GRACE 0");
    other.line("CLIENT PAUSE 1200 WRITE").is_ok();
    drop(gone);
    sleep(Duration::from_millis(200));
    assert!(end(&mut other, "b").is_some());
    wait_until_gone(&mut other, "b");
    assert!(left(&mut other, "a") > 0);
}

#[test]
fn after_a_restart_what_is_left_of_each_permit_is_left() {
    let folder = Folder::new("permits_restart");
    let place = folder.file("");
    let options = [&["--dir", &place], ALWAYS].concat();
    for signal in ["TERM", "KILL"] {
        let mut server = Server::start_with(&options);
        let (mut holder, mut other) = (server.client(), server.client());
        other.line("FLUSHALL").is_ok();
        take(&mut other, "z", "600000 SHARED");
        take(&mut holder, "a", "4000 SHARED BOUND GRACE 0");
        take(&mut holder, "b", "60000 SHARED BOUND GRACE 0 MAX 700000");
        other.line("LOCK EXTEND l b PX 9000000").ignored();
        take(&mut server.client(), "c", "60000 SHARED BOUND GRACE 0");
        wait_until_gone(&mut other, "c");
        let first = end(&mut other, "a");
        wait_until("it was renewed", || end(&mut other, "a") > first);
        let renewed = end(&mut other, "a");
        // Its reply waits for all that was logged before.
        other.line("SET k v").is_ok();
        server.signal(signal);
        server.wait_for_end();
        let server = Server::start_with(&options);
        let mut other = server.client();
        assert!(end(&mut other, "a") >= renewed, "{signal}");
        let last = end(&mut other, "b").unwrap();
        assert!((600_000..=700_000).contains(&left(&mut other, "b")));
        other.line("PEXPIRETIME l").is(last);
        other.line("ZSCORE l c").is_nil();
        other.line("LOCK ACQUIRE l w PX 1000").is_nil();
        take(&mut other, "d", "1000 LIMIT 4");
        drop(holder);
    }
}

#[test]
fn memory_that_is_short_takes_no_bound_permit_and_its_holder_hears_of_one_that_is_not_bound() {
    let limit = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let server = Server::start_with(&limit);
    let (mut holder, mut other) = (server.client3(), server.client());
    take(&mut other, "z", "600000 SHARED");
    take(&mut holder, "a", "600000 SHARED BOUND NOTIFY");
    let value = "x".repeat(10_000);
    for key in 0..1500 {
        other.cmd(["SET", &format!("k{key}"), &value]).is_ok();
    }
    assert!(other.info("evicted_keys").parse::<u64>().unwrap() > 500);
    assert!(left(&mut other, "a") > 0 && left(&mut other, "z") > 0);
    other.line("CONFIG SET timeout 1").is_ok();
    let mut idle = server.client();
    idle.line("PING").is_simple("PONG");
    wait_until("an idle client was closed", || other.info("connected_clients") == "2");
    holder.line("LOCK RELEASE l a").is(1);
    let number = take(&mut holder, "a", "600000 SHARED NOTIFY");
    for key in 0.. {
        other.cmd(["SET", &format!("k{key}"), &value]).ignored();
        if key % 50 == 0 && !holder.is_silent_for(Duration::from_millis(1)) {
            break;
        }
    }
    holder.reply().is(lost(number, "evicted"));
}

#[test]
fn locks_get_shows_to_what_each_permit_is_bound() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client3());
    take(&mut holder, "a", "600000 SHARED BOUND");
    take(&mut holder, "b", "700000 SHARED BOUND");
    take(&mut other, "c", "800000 SHARED");
    let own = holder.line("CLIENT ID").integer();
    let shown = other.line("LOCKS GET l").reply();
    let permits = array(&shown, "permits");
    for permit in &permits[..2] {
        assert_eq!((integer(permit, "bound-to.id"), integer(permit, "bound-there")), (own, 2), "{permit}");
    }
    assert_eq!(field(&permits[2], "bound-to"), Reply::Null);
    assert_eq!(field(&permits[2], "bound-there"), Reply::Null);
}

#[test]
fn a_writer_of_symfony_waits_for_a_bound_reader_and_holds_one_up() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    take(&mut holder, "a", "900 SHARED BOUND GRACE 0");
    // As long as the reader is renewed, a writer that looks for others finds it.
    sleep(Duration::from_millis(1100));
    assert!(left(&mut other, "a") > 0);
    let number = holder.line("LOCK RELEASE l a").integer();
    assert_eq!(number, 1);
    let at_ms = {
        take(&mut other, "n", "600000 SHARED");
        let at_ms = end(&mut other, "n").unwrap();
        other.line("DEL l").is(1);
        at_ms
    };
    other.line("MULTI").is_ok();
    other.line(&format!("ZADD l {at_ms} w {at_ms} __write__")).is_simple("QUEUED");
    other.line(&format!("PEXPIREAT l {at_ms}")).is_simple("QUEUED");
    other.line("EXEC").ignored();
    holder.line("LOCK ACQUIRE l a PX 900 SHARED BOUND").is_nil();
    server.have_wait(&mut holder, "LOCK ACQUIRE l a PX 900 SHARED BOUND GRACE 0 WAIT 0");
    other.line("LOCK RELEASE l w").is(1);
    holder.reply().integer();
    drop(holder);
    wait_until("the key has gone", || other.line("EXISTS l").integer() == 0);
}

#[test]
fn wrong_options_beside_permits_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for (options, error) in [
        ("99 SHARED BOUND", "ERR BOUND needs a PX of 100 milliseconds at least"),
        ("300 SHARED GRACE 0", "ERR syntax error"),
        ("300 LIMIT 2 BOUND MAX 0", "ERR MAX must be positive"),
        ("300 SHARED NOTIFY NOTIFY", "ERR syntax error"),
    ] {
        client.line(&format!("LOCK ACQUIRE l a PX {options}")).is_error(error);
    }
    take(&mut client, "a", "60000 SHARED");
    client.line("LOCK EXTEND l a PX 99 BOUND").is_error("ERR BOUND needs a PX of 100 milliseconds at least");
    client.line("LOCK EXTEND l a PX 300 BOUND max 90000 grace 0").integer();
}
