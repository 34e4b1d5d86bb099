//! LOCK ACQUIRE … SHARED and LIMIT n: permits, which several clients hold at a time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::locks::is_found;
use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::replies::{array, field, integer, text};
use support::server::{Server, wait_until};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];
const NO_PERMITS: &str = "ERR The sorted set at this key holds no permits: its largest score is not the moment at which it expires";

/// Takes a permit of the lock `l` and returns the number.
#[track_caller]
fn take(client: &mut Client, token: &str, options: &str) -> i64 {
    client.line(&format!("LOCK ACQUIRE l {token} {options}")).integer()
}

fn words(items: &[Reply]) -> Vec<String> {
    items.iter().map(|item| item.to_string().replace('"', "")).collect()
}

/// The permits of the lock `l`, in the order of their ends.
#[track_caller]
fn tokens(client: &mut Client) -> String {
    words(&client.line("ZRANGE l 0 -1").items()).join(" ")
}

/// The server's time, in milliseconds since 1970.
#[track_caller]
fn now_ms(client: &mut Client) -> i64 {
    let time: Vec<i64> =
        words(&client.line("TIME").items()).iter().map(|part| part.parse().unwrap()).collect();
    time[0] * 1000 + time[1] / 1000
}

#[test]
fn readers_hold_it_together_and_a_writer_alone() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    for token in ["a", "b", "c"] {
        let number = take(&mut client, token, "PX 60000 SHARED");
        assert!(number > last);
        last = number;
    }
    client.line("LOCK ACQUIRE l a PX 60000 SHARED").is_nil();
    client.line("LOCK ACQUIRE l w PX 60000").is_nil();
    client.line("LOCK ACQUIRE l w PX 60000 WAIT 1").is_nil();
    client.line("LOCK FENCE l a").is_nil();
    client.line("LOCK RELEASE l x").is(0);
    for token in ["a", "c"] {
        client.line(&format!("LOCK RELEASE l {token}")).is(1);
        client.line(&format!("LOCK RELEASE l {token}")).is(0);
    }
    client.line("LOCK ACQUIRE l w PX 60000").is_nil();
    client.line("LOCK RELEASE l b").is(1);
    client.line("EXISTS l").is(0);
    assert!(take(&mut client, "w", "PX 60000") > last);
    client.line("LOCK ACQUIRE l a PX 60000 SHARED").is_nil();
    client.line("LOCK ACQUIRE l a PX 60000 LIMIT 5 WAIT 1").is_nil();
    client.line("LOCK RELEASE l w").is(1);
    take(&mut client, "a", "PX 60000 SHARED");
}

#[test]
fn no_more_than_the_limit_hold_it_and_each_request_has_its_own() {
    let server = Server::start();
    let mut client = server.client();
    take(&mut client, "a", "PX 60000 LIMIT 2");
    take(&mut client, "b", "PX 60000 LIMIT 2");
    client.line("LOCK ACQUIRE l c PX 60000 LIMIT 2").is_nil();
    take(&mut client, "c", "PX 60000 LIMIT 3");
    take(&mut client, "d", "PX 60000 SHARED");
    client.line("LOCK ACQUIRE l e PX 60000 LIMIT 4").is_nil();
    take(&mut client, "e", "PX 60000 LIMIT 9223372036854775807");
    client.line("LOCK RELEASE l b").is(1);
    client.line("LOCK RELEASE l c").is(1);
    client.line("LOCK RELEASE l d").is(1);
    client.line("LOCK ACQUIRE l f PX 60000 LIMIT 2").is_nil();
    client.line("LOCK ACQUIRE l f PX 60000 LIMIT 1").is_nil();
    take(&mut client, "f", "PX 60000 LIMIT 3");
}

#[test]
fn a_permit_whose_end_has_passed_counts_no_more_and_the_key_goes_with_the_last() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    take(&mut client, "a", "PX 100 LIMIT 2");
    take(&mut client, "b", "PX 300 LIMIT 2");
    client.line("PTTL l").is(300);
    client.line("CLOCK ADVANCE 99").is_ok();
    client.line("LOCK ACQUIRE l c PX 100 LIMIT 2").is_nil();
    client.line("CLOCK ADVANCE 1").is_ok();
    for line in ["LOCK RELEASE l a", "ZCARD l"] {
        client.line(line).is(if line == "ZCARD l" { 2 } else { 0 });
    }
    client.line("LOCK EXTEND l a PX 100").is_nil();
    take(&mut client, "c", "PX 100 LIMIT 2");
    assert_eq!(tokens(&mut client), "c b", "what is over was removed");
    // The latest end is that of the key.
    client.line("LOCK RELEASE l b").is(1);
    client.line("PTTL l").is(100);
    client.line("LOCK EXTEND l c PX 50").integer();
    client.line("PTTL l").is(50);
    client.line("LOCK EXTEND l c PX 500").integer();
    client.line("PTTL l").is(500);
    client.line("CLOCK ADVANCE 500").is_ok();
    client.line("EXISTS l").is(0);
    // If all that are left are over, the key goes with the one that counts.
    take(&mut client, "a", "PX 10 SHARED");
    take(&mut client, "b", "PX 20 SHARED");
    client.line("CLOCK ADVANCE 10").is_ok();
    client.line("LOCK RELEASE l b").is(1);
    client.line("EXISTS l").is(0);
}

#[test]
fn a_client_that_comes_again_finds_its_permit_and_shortens_nothing() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let mut last = 0;
    for (lifetime, left) in [(60_000, 60_000), (100, 60_000), (90_000, 90_000)] {
        let number = take(&mut client, "a", &format!("PX {lifetime} SHARED AGAIN"));
        assert!(number > last);
        last = number;
        client.line("PTTL l").is(left);
    }
    // Its own permit counts for no request of its own, whatever the limit is.
    take(&mut client, "b", "PX 60000 SHARED");
    take(&mut client, "a", "PX 60000 LIMIT 1 AGAIN");
    client.line("CLOCK ADVANCE 90000").is_ok();
    take(&mut client, "a", "PX 60000 LIMIT 1 AGAIN");
}

#[test]
fn a_reader_that_comes_again_passes_while_a_writer_waits() {
    let server = Server::start();
    let (mut reader, mut writer, mut other) = (server.client(), server.client(), server.client());
    take(&mut reader, "a", "PX 60000 SHARED");
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
    // One that comes later does not overtake the writer.
    other.line("LOCK ACQUIRE l b PX 60000 SHARED").is_nil();
    other.line("LOCK ACQUIRE l b PX 60000 SHARED AGAIN WAIT 1").is_nil();
    other.line("LOCK ACQUIRE l b PX 60000 LIMIT 9").is_nil();
    let number = take(&mut reader, "a", "PX 60000 SHARED AGAIN");
    reader.line("LOCK EXTEND l a PX 60000").integer();
    server.have_wait(&mut other, "LOCK ACQUIRE l b PX 60000 SHARED WAIT 0");
    reader.line("LOCK RELEASE l a").is(1);
    let written = writer.reply().integer();
    assert!(written > number);
    reader.line("GET l").is("w");
    assert!(other.is_silent_for(Duration::from_millis(10)));
    writer.line("LOCK RELEASE l w").is(1);
    assert!(other.reply().integer() > written);
}

#[test]
fn an_upgrade_is_refused_at_once() {
    let server = Server::start();
    let mut client = server.client();
    take(&mut client, "a", "PX 60000 SHARED");
    for options in
        ["", " WAIT 0", " AGAIN", " AGAIN WAIT 0", " BOUND NOTIFY", " ALSO 1 m", " WAIT 0 ALSO 1 m"]
    {
        client.line(&format!("LOCK ACQUIRE l a PX 60000{options}")).is_error(
            "ERR The token has a permit of this lock: release it before you take the lock for one holder",
        );
    }
    client.line("LOCK RELEASE l a").is(1);
    take(&mut client, "a", "PX 60000");
    client.line("LOCK ACQUIRE l a PX 60000 SHARED").is_nil();
}

#[test]
fn the_line_is_kept_in_the_order_of_arrival() {
    let server = Server::start();
    let mut holder = server.client();
    take(&mut holder, "h", "PX 60000");
    let modes = ["SHARED", "SHARED", "", "LIMIT 2", "LIMIT 1", "SHARED"];
    let mut clients: Vec<Client> = modes.iter().map(|_| server.client()).collect();
    for (number, (client, mode)) in clients.iter_mut().zip(modes).enumerate() {
        server.have_wait(client, format!("LOCK ACQUIRE l t{number} PX 60000 WAIT 0 {mode}").trim());
    }
    holder.line("LOCK RELEASE l h").is(1);
    let mut numbers = vec![clients[0].reply().integer(), clients[1].reply().integer()];
    assert_eq!(tokens(&mut holder), "t0 t1");
    holder.line("LOCK RELEASE l t1").is(1);
    assert_eq!(holder.info("blocked_clients"), "4");
    holder.line("LOCK RELEASE l t0").is(1);
    numbers.push(clients[2].reply().integer());
    holder.line("LOCK RELEASE l t2").is(1);
    numbers.push(clients[3].reply().integer());
    // LIMIT 1 is the next, and holds up the reader behind it.
    assert_eq!((tokens(&mut holder).as_str(), &*holder.info("blocked_clients")), ("t3", "2"));
    holder.line("LOCK RELEASE l t3").is(1);
    numbers.push(clients[4].reply().integer());
    numbers.push(clients[5].reply().integer());
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!(tokens(&mut holder), "t4 t5");
}

#[test]
fn what_ends_the_wait_of_a_writer_lets_the_readers_behind_it_go_on() {
    let server = Server::start();
    let mut holder = server.client();
    take(&mut holder, "h", "PX 600000 SHARED");
    for way in ["time", "leaves", "kill", "unblock", "limit", "way"] {
        let (mut writer, mut readers) = (server.client(), [server.client(), server.client()]);
        let id = writer.line("CLIENT ID").integer();
        let wait = if way == "time" { 100 } else { 0 };
        let mode = if way == "limit" { " LIMIT 1" } else { "" };
        server.have_wait(&mut writer, &format!("LOCK ACQUIRE l w PX 600000 WAIT {wait}{mode}"));
        for (number, reader) in readers.iter_mut().enumerate() {
            reader.send(&request(format!("LOCK ACQUIRE l r{number} PX 600000 SHARED WAIT 0").split(' ')));
        }
        match way {
            "kill" => holder.line(&format!("CLIENT KILL ID {id}")).is(1),
            "unblock" => holder.line(&format!("CLIENT UNBLOCK {id}")).is(1),
            "time" => writer.reply().is_nil(),
            // Its own second attempt takes over its place, as a reader.
            "way" => _ = server.client().line("LOCK ACQUIRE l w PX 1 SHARED WAIT 0 AGAIN").integer(),
            _ => drop(writer),
        }
        for (number, reader) in readers.iter_mut().enumerate() {
            reader.reply().integer();
            reader.line(&format!("LOCK RELEASE l r{number}")).is(1);
        }
    }
}

#[test]
fn a_client_in_line_is_granted_a_permit_when_the_first_one_ends_though_no_key_changes() {
    let server = Server::start();
    let (mut holder, mut next, mut writer) = (server.client(), server.client(), server.client());
    take(&mut holder, "a", "PX 600000 LIMIT 2");
    let began = Instant::now();
    take(&mut holder, "b", "PX 150 LIMIT 2");
    take(&mut next, "c", "PX 600000 LIMIT 2 WAIT 0");
    assert!(began.elapsed() >= Duration::from_millis(150));
    // One that was put nearer meanwhile, and one that is the last.
    server.have_wait(&mut next, "LOCK ACQUIRE l d PX 600000 LIMIT 2 WAIT 0");
    holder.line("LOCK EXTEND l a PX 50").integer();
    next.reply().integer();
    assert_eq!(tokens(&mut holder), "c d");
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 600000 WAIT 0");
    holder.line("LOCK EXTEND l c PX 50").integer();
    holder.line("LOCK EXTEND l d PX 100").integer();
    writer.reply().integer();
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn the_clock_grants_what_it_ends() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let mut waiting = [(); 3].map(|()| server.client());
    take(&mut client, "a", "PX 100 LIMIT 1");
    take(&mut client, "b", "PX 200 LIMIT 2");
    take(&mut client, "c", "PX 300 LIMIT 3");
    for (number, (waiting, mode)) in waiting.iter_mut().zip(["LIMIT 2", "LIMIT 2", ""]).enumerate() {
        server.have_wait(waiting, format!("LOCK ACQUIRE l t{number} PX 1000 WAIT 0 {mode}").trim());
    }
    client.line("CLOCK ADVANCE 100").is_ok();
    assert_eq!(client.info("blocked_clients"), "3");
    client.line("CLOCK ADVANCE 100").is_ok();
    assert_eq!(tokens(&mut client), "c t0");
    client.line("CLOCK ADVANCE 100").is_ok();
    assert_eq!(tokens(&mut client), "t0 t1");
    client.line("CLOCK ADVANCE 999").is_ok();
    client.line("PTTL l").is(1);
    client.line("CLOCK ADVANCE 1").is_ok();
    client.line("GET l").is("t2");
    waiting.iter_mut().for_each(|waiting| _ = waiting.reply().integer());
}

#[test]
fn a_thousand_readers_are_granted_it_together() {
    const READERS: usize = 1000;
    let server = Server::start();
    let mut writer = server.client();
    take(&mut writer, "w", "PX 60000");
    let mut readers: Vec<Client> = (0..READERS).map(|_| server.client()).collect();
    for (number, reader) in readers.iter_mut().enumerate() {
        reader.send(&request(format!("LOCK ACQUIRE l r{number} PX 60000 SHARED WAIT 0").split(' ')));
    }
    wait_until("all wait", || writer.info("blocked_clients") == READERS.to_string());
    let began = Instant::now();
    writer.line("LOCK RELEASE l w").is(1);
    readers.iter_mut().for_each(|reader| _ = reader.reply().integer());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    writer.line("ZCARD l").is(READERS as i64);
}

#[test]
fn what_becomes_of_the_key_in_between_serves_those_in_line() {
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "DEL l",
        "FLUSHALL",
        "FLUSHDB",
        "RENAME l m",
        "MOVE l 1",
        "SWAPDB 0 1",
        "PEXPIRE l 0",
        "LOCK BREAK l",
        "ZREMRANGEBYRANK l 0 -1",
    ] {
        let (mut writer, mut reader) = (server.client(), server.client());
        take(&mut client, "a", "PX 60000 SHARED");
        server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
        server.have_wait(&mut reader, "LOCK ACQUIRE l r PX 60000 SHARED WAIT 0");
        client.line(line).ignored();
        writer.reply().integer();
        client.line("LOCK RELEASE l w").is(1);
        reader.reply().integer();
        client.line("FLUSHALL").is_ok();
    }
    // Under another name, permits are permits.
    take(&mut client, "a", "PX 60000 LIMIT 1");
    let mut next = server.client();
    client.line("LOCK ACQUIRE m w PX 60000").integer();
    server.have_wait(&mut next, "LOCK ACQUIRE m b PX 60000 LIMIT 2 WAIT 0");
    client.line("RENAME l m").ignored();
    next.reply().integer();
    assert_eq!(client.line("ZRANGE m 0 -1").items(), ["a".into(), "b".into()]);
    client.line("LOCK RELEASE m a").is(1);
}

#[test]
fn a_sorted_set_in_another_form_is_refused_and_never_written() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let now_ms = now_ms(&mut client);
    for set in [
        // redis-semaphore: when a permit was taken, and an expiry that is later. Its clock may be ahead.
        format!("ZADD l {} x {} y", now_ms - 9000, now_ms - 100),
        format!("ZADD l {} x {} y", now_ms - 9000, now_ms + 50),
        // Points, fractions, and what is no moment.
        "ZADD l 1 x 2 y".to_owned(),
        format!("ZADD l {}.5 x", now_ms + 60_000),
        "ZADD l -inf x inf y".to_owned(),
        "GEOADD l 13.3 38.1 x".to_owned(),
    ] {
        for expiry in ["PEXPIRE l 60000", "PERSIST l"] {
            client.line(&set).integer();
            client.line(expiry).ignored();
            let before = client.line("DUMP l").reply();
            for options in ["SHARED", "LIMIT 1", "SHARED AGAIN", "SHARED WAIT 0"] {
                client.line(&format!("LOCK ACQUIRE l a PX 60000 {options}")).is_error(NO_PERMITS);
            }
            client.line("LOCK ACQUIRE l x PX 60000").is_nil();
            client.line("LOCK RELEASE l x").is(0);
            client.line("LOCK EXTEND l x PX 60000").is_nil();
            client.line("LOCK FENCE l x").is_nil();
            client
                .line("LOCK BREAK l")
                .is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
            assert_eq!(client.line("DUMP l").reply(), before, "{set}");
            client.line("DEL l").is(1);
        }
    }
    // One that has been in line for permits gets the sentence, too.
    take(&mut client, "a", "PX 60000 LIMIT 1");
    let mut next = server.client();
    server.have_wait(&mut next, "LOCK ACQUIRE l b PX 60000 LIMIT 1 WAIT 0");
    client.line("PERSIST l").is(1);
    next.reply().is_error(NO_PERMITS);
    // Another type is as for every lock.
    client.line("DEL l").is(1);
    client.line("RPUSH l x").is(1);
    for options in ["", "SHARED", "LIMIT 1", "SHARED AGAIN"] {
        client.line(&format!("LOCK ACQUIRE l a PX 60000 {options}")).is_nil();
    }
}

#[test]
fn permits_move_to_another_server_with_what_is_left_of_them() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    take(&mut client, "a", "PX 60000 LIMIT 2");
    take(&mut client, "b", "PX 50000 LIMIT 2");
    let Reply::Bulk(payload) = client.line("DUMP l").reply() else { panic!("a payload") };
    let mut restore = |key: &str, left_ms: i64| {
        client.cmd([b"RESTORE", key.as_bytes(), left_ms.to_string().as_bytes(), &payload]).is_ok();
    };
    // The way took some time, or the clocks differ.
    restore("sooner", 59_990);
    restore("later", 60_090);
    restore("other", 60_101);
    for key in ["sooner", "later"] {
        client.line(&format!("LOCK ACQUIRE {key} c PX 1000 LIMIT 2")).is_nil();
        client.line(&format!("LOCK RELEASE {key} b")).is(1);
        client.line(&format!("LOCK ACQUIRE {key} c PX 1000 LIMIT 2")).integer();
        client.line(&format!("PTTL {key}")).is(60_000);
    }
    client.line("LOCK ACQUIRE other c PX 1000 LIMIT 2").is_error(NO_PERMITS);
    // None that is left counts, and the key is still there.
    client.line("LOCK ACQUIRE short a PX 100 SHARED").integer();
    client.line("PEXPIRE short 150").is(1);
    client.line("CLOCK ADVANCE 120").is_ok();
    client.line("LOCK RELEASE short a").is(0);
    client.line("LOCK ACQUIRE short b PX 100 LIMIT 1").integer();
    client.line("ZRANGE short 0 -1").is(Reply::Array(vec!["b".into()]));
}

#[test]
fn break_frees_all_permits() {
    let server = Server::start();
    let (mut client, mut writer) = (server.client(), server.client());
    take(&mut client, "a", "PX 60000 SHARED");
    let last = take(&mut client, "b", "PX 60000 SHARED");
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
    client.line("LOCK BREAK l").is(1);
    assert!(writer.reply().integer() > last);
    client.line("GET l").is("w");
}

#[test]
fn a_symfony_writer_is_respected_and_released_by_its_token() {
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let lua = "local t = redis.call('TIME') local e = t[1] * 1000 + math.floor(t[2] / 1000) + 60000 \
               redis.call('ZADD', KEYS[1], e, ARGV[1]) redis.call('ZADD', KEYS[1], e, '__write__') \
               redis.call('PEXPIREAT', KEYS[1], e) return 1";
    client.cmd(["EVAL", lua, "1", "l", "a-writer"]).is(1);
    let mut reader = server.client();
    client.line("LOCK ACQUIRE l b PX 60000 LIMIT 5").is_nil();
    client.line("LOCK ACQUIRE l w PX 60000").is_nil();
    server.have_wait(&mut reader, "LOCK ACQUIRE l b PX 60000 SHARED WAIT 0");
    client.line("LOCK EXTEND l __write__ PX 1").is_nil();
    client.line("LOCK RELEASE l __write__").is(0);
    client.line("LOCK EXTEND l a-writer PX 90000").integer();
    client.line("CLOCK ADVANCE 89999").is_ok();
    assert_eq!(tokens(&mut client), "__write__ a-writer");
    client.line("LOCK RELEASE l a-writer").is(1);
    reader.reply().integer();
    assert_eq!(tokens(&mut client), "b");
    let error = "ERR The tokens __write__ and __wait__ are marks of writers";
    client.line("LOCK ACQUIRE l __write__ PX 60000 SHARED").is_error(error);
    client.line("LOCK ACQUIRE l __wait__ PX 60000 LIMIT 1 WAIT 0").is_error(error);
}

#[test]
fn permits_in_transactions_and_scripts_wait_for_none() {
    let server = Server::start();
    let (mut client, mut writer) = (server.client(), server.client());
    take(&mut client, "a", "PX 60000 SHARED");
    client.line("MULTI").is_ok();
    client.line("LOCK ACQUIRE l b PX 60000 SHARED").is_simple("QUEUED");
    client.line("LOCK ACQUIRE l w PX 60000 WAIT 0").is_simple("QUEUED");
    client.line("LOCK ACQUIRE l c PX 60000 LIMIT 2 WAIT 0").is_simple("QUEUED");
    client.line("LOCK RELEASE l a").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    assert!(matches!(replies[0], Reply::Integer(1..)), "{replies:?}");
    assert_eq!(replies[1..], [Reply::Null, Reply::Null, Reply::Integer(1)]);
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
    let script = "return redis.call('LOCK', 'ACQUIRE', KEYS[1], 'd', 'PX', 60000, 'SHARED', 'WAIT', 0)";
    client.cmd(["EVAL", script, "1", "l"]).is_nil();
    client.line("MULTI").is_ok();
    client.line("LOCK RELEASE l b").is_simple("QUEUED");
    client.line("LOCK ACQUIRE l e PX 60000 SHARED").is_simple("QUEUED");
    assert_eq!(client.line("EXEC").items(), [Reply::Integer(1), Reply::Null]);
    writer.reply().integer();
}

#[test]
fn permits_and_the_last_number_come_back_after_a_restart() {
    let folder = Folder::new("shared_restart");
    let place = folder.file("");
    let clock = ["--enable-clock-command", "yes"];
    let options = [&["--dir", &place], ALWAYS, &clock].concat();
    let mut last = 0;
    for end in ["KILL", "rewrite", "snapshot"] {
        let mut server = Server::start_with(&options);
        let mut client = server.client();
        client.line("FLUSHALL").is_ok();
        take(&mut client, "a", "PX 600000 LIMIT 3");
        take(&mut client, "b", "PX 900000 SHARED");
        take(&mut client, "c", "PX 700000 SHARED");
        client.line("LOCK EXTEND l a PX 800000").integer();
        client.line("LOCK RELEASE l b").is(1);
        let number = take(&mut client, "d", "PX 700000 SHARED");
        assert!(number > last);
        let before = client.line("ZRANGE l 0 -1 WITHSCORES").items();
        let ends = client.line("PEXPIRETIME l").integer();
        match end {
            "rewrite" => {
                client.line("BGREWRITEAOF").ignored();
                support::log::wait_for_rewrite(&mut client);
            }
            "snapshot" => client.line("SAVE").is_ok(),
            _ => {}
        }
        server.signal("KILL");
        server.wait_for_end();
        let server = Server::start_with(&options);
        let mut client = server.client();
        assert_eq!(client.line("ZRANGE l 0 -1 WITHSCORES").items(), before, "{end}");
        client.line("PEXPIRETIME l").is(ends);
        client.line("LOCK ACQUIRE l e PX 700000 LIMIT 3").is_nil();
        client.line("LOCK RELEASE l c").is(1);
        last = take(&mut client, "e", "PX 700000 LIMIT 3");
        assert!(last > number);
    }
}

#[test]
fn events_watches_and_the_lens_see_permits_as_what_they_are() {
    let server = Server::start_with(&["--notify-keyspace-events", "KEA"]);
    let (mut client, mut watcher, mut listener) = (server.client3(), server.client(), server.client());
    listener.line("PSUBSCRIBE __keyevent@0__:*").ignored();
    let event = |listener: &mut Client| words(&listener.reply().items())[2].clone();
    watcher.line("WATCH l").is_ok();
    take(&mut client, "a-token-of-sixteen-bytes", "PX 60000 SHARED");
    take(&mut client, "b", "PX 1000 LIMIT 2");
    client.line("LOCK RELEASE l b").is(1);
    client.line("LOCK RELEASE l a-token-of-sixteen-bytes").is(1);
    for name in ["zadd", "expire", "zadd", "zrem", "zrem", "del"] {
        assert_eq!(event(&mut listener), format!("__keyevent@0__:{name}"));
    }
    watcher.line("MULTI").is_ok();
    watcher.line("PING").is_simple("QUEUED");
    assert_eq!(watcher.line("EXEC").reply(), Reply::Null);
    for token in ["a", "b", "c"] {
        take(&mut client, token, "PX 60000 SHARED");
    }
    let mut writer = server.client();
    server.have_wait(&mut writer, "LOCK ACQUIRE l w PX 60000 WAIT 0");
    let shown = client.line("LOCKS GET l").reply();
    assert_eq!((text(&shown, "state"), integer(&shown, "holders")), ("shared".to_owned(), 3));
    assert_eq!((array(&shown, "permits").len(), integer(&shown, "waiting")), (3, 1));
    assert!((1..=60_000).contains(&integer(&shown, "expires-in-ms")));
    let digest = field(&array(&shown, "permits")[0], "token-digest");
    client.line("SET k a").is_ok();
    assert_eq!(client.line("DIGEST k").reply(), digest);
    client.line("LOCK BREAK l").is(1);
    writer.reply().integer();
    assert_eq!(text(&client.line("LOCKS GET l").reply(), "state"), "held");
    client.line("LOCK ACQUIRE l a PX 60000 SHARED").is_nil();
    let refused = client.line("LOCKS GET l").reply();
    assert_eq!(integer(&refused, "refused"), 1);
    assert_eq!(client.line("LOCKS LOG -1").items(), []);
}

/// Who takes a permit looks at a key that is absent, and so does the client that serves those in line.
#[test]
fn the_lens_finds_nothing_wrong_where_a_lock_goes_to_readers() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut reader, mut observer) = (server.client(), server.client(), server.client3());
    observer.line("CLOCK FREEZE").is_ok();
    for options in ["SHARED", "LIMIT 1", "SHARED ALSO 1 m"] {
        take(&mut holder, "h", "PX 60000");
        server.have_wait(&mut reader, &format!("LOCK ACQUIRE l r PX 100 WAIT 0 {options}"));
        holder.line("LOCK RELEASE l h").is(1);
        reader.reply().integer();
        reader.line("LOCK RELEASE l r ALSO 1 m").ignored();
        // A holder whose lock has expired reads from now on.
        take(&mut holder, "h", "PX 100");
        observer.line("CLOCK ADVANCE 100").is_ok();
        take(&mut holder, "h", &format!("PX 100 {options}"));
        observer.line("CLOCK ADVANCE 100").is_ok();
        is_found(&mut observer, &[]);
    }
}

#[test]
fn clients_that_know_only_redis_see_what_the_page_says() {
    let page = include_str!("../../src/guide/locks.md");
    let (_, table) =
        page.split_once("| what they send | reply beside a lock of one holder |").expect("the table");
    let server = Server::start();
    let mut client = server.client();
    let mut rows = 0;
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
        // What stands between quotes, without what is said about it.
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.split('`').nth(1).expect(row)).collect();
        for (options, expected) in ["", "SHARED", "LIMIT 3"].iter().zip([cells[1], cells[2], cells[2]]) {
            client.line("FLUSHALL").is_ok();
            client.line(&format!("LOCK ACQUIRE l a PX 60000 {options}")).integer();
            let reply = client.line(cells[0]).reply().to_string();
            let (start, end) = expected.split_once('…').unwrap_or((expected, ""));
            let fits = reply.starts_with(start) && reply.ends_with(end);
            assert!(fits && (expected.contains('…') || reply == expected), "{row}: {reply}");
        }
        rows += 1;
    }
    assert!(rows > 5);
}

#[test]
fn wrong_options_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for (options, error) in [
        ("SHARED SHARED", "ERR syntax error"),
        ("SHARED LIMIT 1", "ERR syntax error"),
        ("LIMIT 1 SHARED", "ERR syntax error"),
        ("LIMIT", "ERR syntax error"),
        ("LIMIT 0", "ERR LIMIT must be positive"),
        ("LIMIT -1", "ERR LIMIT must be positive"),
        ("LIMIT x", "ERR LIMIT must be positive"),
        ("LIMIT 18446744073709551616", "ERR LIMIT must be positive"),
    ] {
        client.line(&format!("LOCK ACQUIRE l a PX 60000 {options}")).is_error(error);
    }
    for lifetime in ["0", "-1", "9223372036854775807", "9007199254740993"] {
        let expected = "ERR invalid expire time in 'lock|acquire' command";
        client.line(&format!("LOCK ACQUIRE l a PX {lifetime} SHARED")).is_error(expected);
    }
    client.line("EXISTS l").is(0);
}

#[test]
fn a_hundred_thousand_permits_cost_a_request_no_more_than_a_few() {
    const PERMITS: usize = 100_000;
    let server = Server::start_with(CLOCK);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let lines: Vec<u8> = (0..PERMITS)
        .flat_map(|number| {
            let lifetime = if number % 2 == 0 { 1000 } else { 900_000 };
            request(format!("LOCK ACQUIRE l t{number} PX {lifetime} SHARED").split(' '))
        })
        .collect();
    let began = Instant::now();
    for part in lines.chunks(1 << 16) {
        client.send(part);
        if client.stream().peek(&mut [0; 1]).is_err() {
            break;
        }
    }
    for _ in 0..PERMITS {
        client.reply().integer();
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("ZCARD l").is(PERMITS as i64);
    client.line(&format!("LOCK ACQUIRE l x PX 900000 LIMIT {}", PERMITS / 2)).is_nil();
    take(&mut client, "x", &format!("PX 900000 LIMIT {}", PERMITS / 2 + 1));
    let left = client.line("ZCARD l").integer() as usize;
    assert!((PERMITS / 2 + 1..PERMITS).contains(&left), "some of what is over was removed: {left}");
    let shown = client.line("LOCKS GET l").items();
    assert_eq!(shown.len() % 2, 0);
}

/// What the commands do, step by step.
#[derive(Default)]
struct Model {
    now_ms: i64,
    writer: Option<(usize, i64)>,
    permits: BTreeMap<usize, i64>,
    /// The tokens in line, each with its limit; without one it is a writer.
    line: Vec<(usize, Option<usize>)>,
}

const LIFETIME_MS: i64 = 1000;

impl Model {
    fn expire(&mut self) {
        let now_ms = self.now_ms;
        self.permits.retain(|_, end_ms| *end_ms > now_ms);
        self.writer.take_if(|(_, end_ms)| *end_ms <= now_ms);
    }

    fn is_free_for(&self, token: usize, limit: Option<usize>) -> bool {
        let is_free = self.writer.is_none() && self.permits.is_empty();
        limit.map_or(is_free, |limit| {
            self.writer.is_none() && !self.permits.contains_key(&token) && self.permits.len() < limit
        })
    }

    fn grant(&mut self, token: usize, limit: Option<usize>, lifetime_ms: i64) {
        match limit {
            None => self.writer = Some((token, self.now_ms + lifetime_ms)),
            Some(_) => _ = self.permits.insert(token, self.now_ms + lifetime_ms),
        }
    }

    /// Grants what can be granted, and returns to whom.
    fn serve(&mut self) -> Vec<usize> {
        let mut served = Vec::new();
        while let Some((token, limit)) = self.line.first().copied()
            && self.is_free_for(token, limit)
        {
            self.line.remove(0);
            self.grant(token, limit, LIFETIME_MS);
            served.push(token);
        }
        served
    }
}

/// The options of a request with a limit, or without one.
fn mode(limit: Option<usize>) -> String {
    match limit {
        None => String::new(),
        Some(usize::MAX) => "SHARED".to_owned(),
        Some(limit) => format!("LIMIT {limit}"),
    }
}

#[test]
fn whatever_clients_do_it_is_what_the_model_says() {
    const TOKENS: usize = 6;
    for seed in 0..6 {
        let server = Server::start_with(CLOCK);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut observer = server.client();
        observer.line("CLOCK FREEZE").is_ok();
        let mut clients: Vec<Client> = (0..TOKENS).map(|_| server.client()).collect();
        let (mut model, mut last) = (Model::default(), 0);
        for step in 0..250 {
            let token = random.usize(..TOKENS);
            let limit = [None, Some(usize::MAX), Some(1), Some(2), Some(3)][random.usize(..5)];
            let lifetime_ms = random.i64(1..=LIFETIME_MS);
            let waits = model.line.iter().any(|(other, _)| *other == token);
            let is_reader = model.permits.contains_key(&token);
            let is_writer = model.writer.is_some_and(|(other, _)| other == token);
            let at = format!("seed {seed}, step {step}: token {token}, {limit:?}");
            match random.u8(..12) {
                // An attempt that does not wait, or that comes again.
                choice @ 0..=2 => {
                    let again = if choice == 2 { "AGAIN" } else { "" };
                    let line = format!("LOCK ACQUIRE l t{token} PX {lifetime_ms} {} {again}", mode(limit));
                    let reply = observer.line(line.trim()).reply();
                    if limit.is_none() && is_reader {
                        assert!(matches!(reply, Reply::Error(_)), "{at}: {reply}");
                    } else if choice == 2 && (is_reader || is_writer && limit.is_none()) {
                        assert!(matches!(reply, Reply::Integer(_)), "{at}: {reply}");
                        let end_ms = model.now_ms + lifetime_ms;
                        model.permits.entry(token).and_modify(|end| *end = end_ms.max(*end));
                        model.writer = model.writer.map(|(holder, end)| match holder == token {
                            true => (holder, end_ms.max(end)),
                            false => (holder, end),
                        });
                    } else if model.line.is_empty() && model.is_free_for(token, limit) {
                        assert!(matches!(reply, Reply::Integer(_)), "{at}: {reply}");
                        model.grant(token, limit, lifetime_ms);
                    } else {
                        assert_eq!(reply, Reply::Null, "{at}");
                    }
                }
                // One that waits.
                3..=6 if !(waits || limit.is_none() && is_reader) => {
                    model.line.push((token, limit));
                    let line = format!("LOCK ACQUIRE l t{token} PX {LIFETIME_MS} WAIT 0 {}", mode(limit));
                    clients[token].send(&request(line.trim().split(' ')));
                    let expected = model.line.len().to_string();
                    if model.line.len() > 1 || !model.is_free_for(token, limit) {
                        wait_until("it waits", || observer.info("blocked_clients") == expected);
                    }
                }
                // One in line that leaves.
                7 if waits => {
                    clients[token] = server.client();
                    model.line.retain(|(other, _)| *other != token);
                }
                8 | 9 => {
                    let had = is_reader || is_writer;
                    observer.line(&format!("LOCK RELEASE l t{token}")).is(i64::from(had));
                    model.permits.remove(&token);
                    model.writer.take_if(|(other, _)| *other == token);
                }
                10 => {
                    let reply = observer.line(&format!("LOCK EXTEND l t{token} PX {lifetime_ms}")).reply();
                    assert_eq!(reply != Reply::Null, is_reader || is_writer, "{at}: {reply}");
                    let end_ms = model.now_ms + lifetime_ms;
                    model.permits.entry(token).and_modify(|end| *end = end_ms);
                    if let Some((_, end)) = model.writer.as_mut().filter(|(other, _)| *other == token) {
                        *end = end_ms;
                    }
                }
                11 if random.u8(..8) == 0 => {
                    observer.line("DEL l").ignored();
                    (model.writer, model.permits) = (None, BTreeMap::new());
                }
                _ => {
                    let span_ms = random.i64(1..=400);
                    observer.line(&format!("CLOCK ADVANCE {span_ms}")).is_ok();
                    model.now_ms += span_ms;
                }
            }
            model.expire();
            for token in model.serve() {
                let number = clients[token].reply().integer();
                assert!(number > last, "{at}");
                last = number;
            }
            let expected = match model.writer {
                Some((token, _)) => vec![format!("t{token}")],
                None => model.permits.keys().map(|token| format!("t{token}")).collect(),
            };
            let mut found = match model.writer {
                Some(_) => words(&[observer.line("GET l").reply()]),
                None => {
                    let now_ms = now_ms(&mut observer);
                    words(&observer.line(&format!("ZRANGE l ({now_ms} +inf BYSCORE")).items())
                }
            };
            found.sort();
            assert_eq!(found, expected, "{at}");
            let left = model.permits.values().copied().chain(model.writer.map(|(_, end)| end)).max();
            let left_ms = left.map_or(-2, |end| end - model.now_ms);
            observer.line("PTTL l").is(left_ms);
        }
    }
}
