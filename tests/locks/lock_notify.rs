//! LOCK ACQUIRE … NOTIFY: the connection that took a lock is notified when it loses it, by a push in RESP3,
//! and those who listen to the lock's channel by a message.

use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::server::{Server, wait_until};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];

/// Takes the lock `l` for a minute, to be notified, and returns the number.
#[track_caller]
fn take(client: &mut Client) -> i64 {
    client.line("LOCK ACQUIRE l a PX 60000 NOTIFY").integer()
}

/// The push about the loss of the lock `l`.
fn lost(number: i64, why: &str) -> Reply {
    Reply::Push(vec!["lock-lost".into(), "l".into(), Reply::Integer(number), why.into()])
}

/// What listens to the lock's channel.
fn listener(server: &Server) -> Client {
    let mut listener = server.client();
    listener.line("PSUBSCRIBE __lock@*").ignored();
    listener
}

#[track_caller]
fn hears(listener: &mut Client, number: i64, why: &str) {
    let message = ["pmessage", "__lock@*", "__lock@0__:l", &format!("{number} {why}")].map(Reply::from);
    listener.reply().is(Reply::Array(message.to_vec()));
}

#[test]
fn the_holder_is_told_of_each_way_to_lose_the_lock() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other, mut listener) = (server.client3(), server.client(), listener(&server));
    let script = "redis.call('DEL', KEYS[1]) return 1";
    for (line, why) in [
        ("DEL l", "deleted"),
        ("UNLINK l", "deleted"),
        ("GETDEL l", "deleted"),
        ("DELIFEQ l a", "deleted"),
        ("LOCK RELEASE l a", "deleted"),
        ("PEXPIRE l 0", "deleted"),
        ("LOCK BREAK l", "broken"),
        ("SET l b", "overwritten"),
        ("SET l a XX KEEPTTL", "overwritten"),
        ("GETSET l a", "overwritten"),
        ("APPEND l b", "overwritten"),
        ("MSET k v l a", "overwritten"),
        ("COPY k l REPLACE", "overwritten"),
        ("RENAME k l", "overwritten"),
        ("RENAME l m", "moved"),
        ("MOVE l 1", "moved"),
        ("SWAPDB 0 2", "moved"),
        ("SWAPDB 2 0", ""),
        ("FLUSHDB", "flushed"),
        ("FLUSHALL", "flushed"),
        ("CLOCK ADVANCE 60000", "expired"),
        ("PEXPIRE l 1", "expired"),
    ] {
        other.line("SET k v").ignored();
        other.line("DEL l").ignored();
        if why.is_empty() {
            other.line(line).is_ok();
            continue;
        }
        let number = take(&mut holder);
        other.line(line).ignored();
        holder.reply().is(lost(number, why));
        hears(&mut listener, number, why);
        holder.line("PING").is_simple("PONG");
    }
    other.line("DEL l").ignored();
    let number = take(&mut holder);
    other.cmd(["EVAL", script, "1", "l"]).is(1);
    holder.reply().is(lost(number, "deleted"));
    hears(&mut listener, number, "deleted");
    // A second lock of which no client wants to know.
    holder.line("LOCK ACQUIRE l a PX 60000").integer();
    other.line("DEL l").is(1);
    assert!(
        holder.is_silent_for(Duration::from_millis(20)) && listener.is_silent_for(Duration::from_millis(1))
    );
}

#[test]
fn the_end_of_a_lock_that_no_client_looks_at_is_told_at_once() {
    // The sweep for expired keys comes once a second.
    let server = Server::start_with(&["--hz", "1"]);
    let (mut holder, mut listener) = (server.client3(), listener(&server));
    let began = Instant::now();
    let number = holder.line("LOCK ACQUIRE l a PX 300 NOTIFY").integer();
    holder.line("LOCK EXTEND l a PX 500").is(number);
    holder.reply().is(lost(number, "expired"));
    assert!(began.elapsed() >= Duration::from_millis(500));
    hears(&mut listener, number, "expired");
    // By the lock's own clock: another client that takes it then waits for nothing.
    let number = holder.line("LOCK ACQUIRE l a PX 100 NOTIFY").integer();
    let mut next = server.client3();
    server.have_wait(&mut next, "LOCK ACQUIRE l b PX 100 WAIT 60000 NOTIFY");
    let granted = next.reply().integer();
    holder.reply().is(lost(number, "expired"));
    next.reply().is(lost(granted, "expired"));
    for number in [number, granted] {
        hears(&mut listener, number, "expired");
    }
    let began = Instant::now();
    for _ in 0..10 {
        let number = holder.line("LOCK ACQUIRE l a PX 20 NOTIFY").integer();
        holder.reply().is(lost(number, "expired"));
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn nothing_is_told_of_what_the_connection_did_itself() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut other, mut listener) = (server.client3(), server.client3(), listener(&server));
    for line in [
        "LOCK RELEASE l a",
        "DEL l",
        "LOCK BREAK l",
        "SET l b",
        "RENAME l m",
        "MOVE l 3",
        "SWAPDB 0 3",
        "FLUSHALL",
    ] {
        take(&mut holder);
        holder.line(line).ignored();
        other.line("DEL l").ignored();
    }
    take(&mut holder);
    holder.line("MULTI").is_ok();
    holder.line("DEL l").is_simple("QUEUED");
    assert_eq!(holder.line("EXEC").items(), [Reply::Integer(1)]);
    take(&mut holder);
    holder.cmd(["EVAL", "return redis.call('DEL', KEYS[1])", "1", "l"]).is(1);
    // Nor of what loses no lock.
    let number = take(&mut holder);
    for line in
        ["PEXPIRE l 50000", "PERSIST l", "LOCK EXTEND l a PX 60000", "COPY l m", "SETNX l b", "TOUCH l"]
    {
        other.line(line).ignored();
    }
    other.line("LOCK ACQUIRE l a PX 1 AGAIN").is(number);
    assert!(
        holder.is_silent_for(Duration::from_millis(20)) && listener.is_silent_for(Duration::from_millis(1))
    );
    // Its own clock and its own memory are not its own doing.
    holder.send(&request(["CLOCK", "ADVANCE", "60000"]));
    let replies = [holder.reply().reply(), holder.reply().reply()];
    assert!(replies.contains(&lost(number, "expired")), "{replies:?}");
}

#[test]
fn transactions_and_scripts_tell_of_a_loss_when_they_have_ended() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client3(), server.client());
    let number = take(&mut holder);
    other.line("MULTI").is_ok();
    for line in ["PEXPIRE l 90000", "DEL l", "LOCK ACQUIRE l b PX 60000 NOTIFY", "PING"] {
        other.line(line).is_simple("QUEUED");
    }
    other.line("EXEC").ignored();
    let Reply::Push(push) = holder.reply().reply() else { panic!("no push") };
    assert_eq!(push[..3], ["lock-lost".into(), "l".into(), Reply::Integer(number)]);
    other.line("DEL l").is(1);
    // Within one transaction as well, and within a script.
    holder.line("MULTI").is_ok();
    for line in ["LOCK ACQUIRE l a PX 60000 NOTIFY", "SET l b", "DEL l", "LOCK ACQUIRE l a PX 60000 NOTIFY"] {
        holder.line(line).is_simple("QUEUED");
    }
    let replies = holder.line("EXEC").items();
    let Some(Reply::Integer(number)) = replies.last() else { panic!("{replies:?}") };
    other.line("DEL l").is(1);
    holder.reply().is(lost(*number, "deleted"));
    // The first reason counts, whatever came before and after.
    let number = take(&mut holder);
    other.line("MULTI").is_ok();
    for line in ["PEXPIRE l 90000", "RENAME l m", "DEL m", "SETNX l b", "LOCK BREAK l"] {
        other.line(line).is_simple("QUEUED");
    }
    other.line("EXEC").ignored();
    holder.reply().is(lost(number, "moved"));
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], 'a', 'PX', 60000, 'NOTIFY')";
    let number = holder.cmd(["EVAL", script, "1", "l"]).integer();
    other.cmd(["EVAL", "redis.call('SET', KEYS[1], 'b') return redis.call('DEL', KEYS[1])", "1", "l"]).is(1);
    holder.reply().is(lost(number, "deleted"));
}

#[test]
fn the_last_connection_that_has_asked_is_told() {
    let server = Server::start();
    let (mut first, mut second, mut listener) = (server.client3(), server.client3(), listener(&server));
    let number = take(&mut first);
    second.line("LOCK ACQUIRE l a PX 60000 AGAIN NOTIFY").is(number);
    first.line("DEL l").is(1);
    second.reply().is(lost(number, "deleted"));
    hears(&mut listener, number, "deleted");
    assert!(first.is_silent_for(Duration::from_millis(20)));
    // The channel has the news though the connection has gone.
    let number = take(&mut second);
    drop(second);
    wait_until("it has gone", || first.info("connected_clients") == "2");
    first.line("DEL l").is(1);
    hears(&mut listener, number, "deleted");
    // A connection in RESP2 gets no push, and may listen.
    let mut old = server.client();
    let number = take(&mut old);
    old.line("SUBSCRIBE __lock@0__:l").ignored();
    first.line("DEL l").is(1);
    let message = ["message", "__lock@0__:l", &format!("{number} deleted")].map(Reply::from);
    old.reply().is(Reply::Array(message.to_vec()));
    for wrong in ["NOTIFY NOTIFY", "NOTIFY WAIT"] {
        let reply = first.line(&format!("LOCK ACQUIRE l a PX 100 {wrong}")).reply();
        assert!(matches!(reply, Reply::Error(_)), "{wrong}: {reply}");
    }
}

#[test]
fn only_users_with_a_right_to_the_channel_listen() {
    let server = Server::start();
    let mut client = server.client();
    client.line("ACL SETUSER u on nopass ~* +@all resetchannels &__lock@0__:m").is_ok();
    client.line("AUTH u p").is_ok();
    client.line("SUBSCRIBE __lock@0__:l").is_error("NOPERM No permissions to access a channel");
    client.line("LOCK ACQUIRE l a PX 60000 NOTIFY").integer();
}

#[test]
fn a_lock_that_is_evicted_is_told_of() {
    let limit = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let server = Server::start_with(&limit);
    let (mut holder, mut other) = (server.client3(), server.client());
    let number = take(&mut holder);
    let value = "x".repeat(10_000);
    for key in 0.. {
        other.cmd(["SET", &format!("k{key}"), &value]).ignored();
        if key % 50 == 0 && !holder.is_silent_for(Duration::from_millis(1)) {
            break;
        }
    }
    holder.reply().is(lost(number, "evicted"));
}

#[test]
fn the_next_in_line_is_granted_what_the_holder_is_told_to_have_lost() {
    let server = Server::start();
    let (mut holder, mut next, mut other) = (server.client3(), server.client3(), server.client());
    let number = take(&mut holder);
    server.have_wait(&mut next, "LOCK ACQUIRE l b PX 60000 WAIT 60000 NOTIFY");
    other.line("LOCK BREAK l").is(1);
    holder.reply().is(lost(number, "broken"));
    let number = next.reply().integer();
    other.line("SET l c").is_ok();
    next.reply().is(lost(number, "overwritten"));
    assert!(holder.is_silent_for(Duration::from_millis(20)));
}

/// To notify holders of very many lost locks takes no longer for each lock than for a few.
#[test]
fn ten_thousand_losses_at_once_are_told_in_order() {
    const LOCKS: usize = 10_000;
    let server = Server::start();
    let (mut holder, mut other) = (server.client3(), server.client());
    for end in ["script", "FLUSHALL", "PEXPIRE"] {
        let take = |number: usize| {
            request(["LOCK", "ACQUIRE", &format!("l{number}"), "a", "PX", "600000", "NOTIFY"])
        };
        holder.send(&(0..LOCKS).flat_map(take).collect::<Vec<u8>>());
        for _ in 0..LOCKS {
            holder.reply().integer();
        }
        match end {
            "FLUSHALL" => other.line(end).is_ok(),
            end => {
                let call = if end == "script" { "'DEL', 'l'..n" } else { "'PEXPIRE', 'l'..n, 1" };
                let script = format!("for n = 0, {LOCKS} - 1 do redis.call({call}) end return 1");
                other.cmd(["EVAL", &script, "0"]).is(1);
            }
        }
        let mut told = Vec::new();
        for _ in 0..LOCKS {
            let Reply::Push(push) = holder.reply().reply() else { panic!("no push") };
            told.push(push[1].to_string());
        }
        if end == "script" {
            assert!(told.iter().enumerate().all(|(number, key)| *key == format!("\"l{number}\"")));
        }
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), LOCKS, "{end}");
    }
}
