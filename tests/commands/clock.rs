//! A clock that tests can turn: CLOCK, and all that goes by it.

use std::thread;
use std::time::{Duration, Instant, SystemTime};

use support::client::{Client, Reply, request, words};
use support::folder::Folder;
use support::server::{PATIENCE, Server, wait_until};

/// The last millisecond that the clock can be turned to.
const LAST_MS: &str = "253402300799999";

/// A server whose clock can be turned.
fn server() -> Server {
    Server::start_with(&["--enable-clock-command", "yes"])
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

fn message(channel: &str, text: &str) -> Reply {
    Reply::Array(vec![bulk("message"), bulk(channel), bulk(text)])
}

/// Sends several requests at once: their answers come in one row.
fn send(client: &mut Client, lines: &[&str]) {
    let requests: Vec<u8> = lines.iter().flat_map(|line| request(words(line))).collect();
    client.send(&requests);
}

/// The number of a field of CLOCK INFO.
fn told(client: &mut Client, field: &str) -> i64 {
    let items = client.line("CLOCK INFO").items();
    match items.iter().position(|item| *item == bulk(field)).map(|at| &items[at + 1]) {
        Some(Reply::Integer(number)) => *number,
        other => panic!("{field} is {other:?}"),
    }
}

/// Real time passes.
fn wait_for_milliseconds(count: u64) {
    thread::sleep(Duration::from_millis(count));
}

#[test]
fn a_lock_of_thirty_seconds_is_free_after_its_time_and_not_before() {
    let server = server();
    let (mut crashed, mut next) = (server.client(), server.client());
    next.line("CLOCK FREEZE").is_ok();
    crashed.line("SET lock crashed NX PX 30000").is_ok();
    next.line("SETNX lock next").is(0);
    next.line("CLOCK ADVANCE 29999").is_ok();
    next.line("SETNX lock next").is(0);
    next.line("PTTL lock").is(1);
    next.line("CLOCK ADVANCE 1").is_ok();
    next.line("SETNX lock next").is(1);
    crashed.line("DELIFEQ lock crashed").is(0);
}

#[test]
fn while_the_clock_stands_nothing_expires_and_all_commands_have_the_same_time() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("SET lock token PX 5").is_ok();
    client.line("SET later token EX 100").is_ok();
    let now_ms = told(&mut client, "time-ms");
    wait_for_milliseconds(20);
    client.line("PTTL lock").is(5);
    client.line("EXPIRE later 50").is(1);
    client.line("PEXPIRETIME later").is(now_ms + 50_000);
    let parts = [(now_ms / 1000).to_string(), (now_ms % 1000 * 1000).to_string()];
    let time = Reply::Array(parts.iter().map(|part| bulk(part)).collect());
    assert_eq!(client.line("TIME").reply(), time);
    assert_eq!(client.line("EVAL \"return redis.call('TIME')\" 0").reply(), time);
    assert_eq!(client.info("server_time_usec"), (now_ms * 1000).to_string());
    let script = "redis.call('SET', KEYS[1], 'v', 'PX', 30000) return redis.call('PTTL', KEYS[1])";
    client.cmd(["EVAL", script, "1", "k"]).is(30_000);
    client.line("CLOCK FREEZE").is_ok();
    assert_eq!(told(&mut client, "time-ms"), now_ms, "one that stands stays where it is");
    assert_eq!(told(&mut client, "frozen"), 1);
}

#[test]
fn what_expired_is_gone_from_every_database_when_the_turn_is_answered() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    for database in [0, 15] {
        client.line(&format!("SELECT {database}")).is_ok();
        for number in 0..500 {
            client.cmd(["SET", &format!("short:{number}"), "v", "PX", &format!("{}", 1000 + number)]).is_ok();
            client.cmd(["SET", &format!("long:{number}"), "v", "PX", "2000"]).is_ok();
        }
    }
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("DBSIZE").is(999);
    client.line("CLOCK ADVANCE 999").is_ok();
    client.line("DBSIZE").is(500);
    client.line("SELECT 0").is_ok();
    client.line("DBSIZE").is(500);
    assert_eq!(client.info("expired_keys"), "1000");
    client.line("CLOCK ADVANCE 1").is_ok();
    client.line("DBSIZE").is(0);
}

#[test]
fn expired_events_are_on_their_way_before_the_turn_is_answered_and_in_their_order() {
    let server = server();
    let (mut listener, mut client) = (server.client(), server.client3());
    client.line("CONFIG SET notify-keyspace-events Ex").is_ok();
    let channel = "__keyevent@0__:expired";
    listener.line(&format!("SUBSCRIBE {channel}")).reply();
    client.line("CLOCK FREEZE").is_ok();
    for _ in 0..50 {
        for (key, lives_ms) in [("third", 3000), ("first", 1000), ("stays", 3001), ("second", 2000)] {
            client.line(&format!("SET {key} v PX {lives_ms}")).is_ok();
        }
        client.line("CLOCK ADVANCE 3000").is_ok();
        // What was on its way comes before the answer to what is asked now.
        listener.send(&request(["PING"]));
        for key in ["first", "second", "third"] {
            assert_eq!(listener.reply().reply(), message(channel, key));
        }
        assert_eq!(listener.reply().reply(), Reply::Array(vec![bulk("pong"), bulk("")]));
    }
    // Also for a client that listens to what it brings about itself.
    client.line(&format!("SUBSCRIBE {channel}")).reply();
    client.send(&request(["CLOCK", "ADVANCE", "1"]));
    assert_eq!(client.reply().reply(), Reply::Push(vec![bulk("message"), bulk(channel), bulk("stays")]));
    client.reply().is_ok();
}

#[test]
fn clients_that_keep_copies_are_told_of_keys_that_a_turn_made_expire() {
    let server = server();
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    let news = Reply::Push(vec![bulk("invalidate"), Reply::Array(vec![bulk("k")])]);
    for options in ["", "NOLOOP", "BCAST", "BCAST NOLOOP"] {
        let (mut reader, mut turner) = (server.client3(), server.client3());
        client.line("SET k v PX 30000").is_ok();
        for tracking in [&mut reader, &mut turner] {
            tracking.line(&format!("CLIENT TRACKING ON {options}")).is_ok();
            tracking.line("GET k").is("v");
        }
        turner.send(&request(["CLOCK", "ADVANCE", "30000"]));
        assert_eq!(turner.reply().reply(), news, "its own turn, {options:?}");
        turner.reply().is_ok();
        reader.send(&request(["PING"]));
        assert_eq!(reader.reply().reply(), news, "{options:?}");
        reader.reply().is_simple("PONG");
    }
}

#[test]
fn in_a_transaction_a_copy_is_not_called_old_before_it_is_answered() {
    let mut client = server().into_client();
    client.line("HELLO 3").reply();
    client.line("CLIENT TRACKING ON").is_ok();
    client.line("CLOCK FREEZE").is_ok();
    client.line("SET k v PX 30000").is_ok();
    send(&mut client, &["MULTI", "GET k", "CLOCK ADVANCE 30000", "EXEC"]);
    client.reply().is_ok();
    (0..2).for_each(|_| client.reply().is_simple("QUEUED"));
    client.reply().is(Reply::Array(vec![bulk("v"), Reply::Simple("OK".into())]));
    let news = Reply::Push(vec![bulk("invalidate"), Reply::Array(vec![bulk("k")])]);
    assert_eq!(client.reply().reply(), news);
}

#[test]
fn the_lock_lens_goes_by_the_turned_clock() {
    let mut client = server().into_client();
    client.line("HELLO 3").reply();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("SET lock token NX PX 30000").is_ok();
    client.line("CLOCK ADVANCE 10000").is_ok();
    let held = client.line("LOCKS GET lock").reply().to_string();
    assert!(held.contains("\"held-ms\", (integer) 10000"), "{held}");
    assert!(held.contains("\"expires-in-ms\", (integer) 20000"), "{held}");
    client.line("CLOCK ADVANCE 20000").is_ok();
    client.line("DELIFEQ lock token").is(0);
    let late = client.line("LOCKS LOG").reply().to_string();
    assert!(late.contains("\"expired-while-held\""), "{late}");
    assert!(late.contains("\"at\", (integer) 1000000030000"), "{late}");
}

#[test]
fn a_watched_key_that_a_turn_made_expire_has_changed() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    for turner_is_other in [true, false] {
        client.line("SET lock token PX 30000").is_ok();
        client.line("WATCH lock").is_ok();
        let turner = if turner_is_other { &mut other } else { &mut client };
        turner.line("CLOCK ADVANCE 30000").is_ok();
        client.line("MULTI").is_ok();
        client.line("SET lock mine").is_simple("QUEUED");
        client.line("EXEC").is_nil();
        client.line("GET lock").is_nil();
    }
    client.line("SET lock token PX 30000").is_ok();
    client.line("WATCH lock").is_ok();
    other.line("CLOCK ADVANCE 29999").is_ok();
    client.line("MULTI").is_ok();
    client.line("GET lock").is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec![bulk("token")]));
}

#[test]
fn in_a_transaction_time_passes_where_it_is_turned() {
    let server = server();
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    send(
        &mut client,
        &[
            "MULTI",
            "SET lock token PX 1000",
            "CLOCK ADVANCE 400",
            "PTTL lock",
            "CLOCK ADVANCE 600",
            "GET lock",
            "SET lock another NX PX 1000",
            "PTTL lock",
            "EXEC",
        ],
    );
    client.reply().is_ok();
    (0..7).for_each(|_| client.reply().is_simple("QUEUED"));
    let ok = || Reply::Simple("OK".into());
    client.reply().is(Reply::Array(vec![
        ok(),
        ok(),
        Reply::Integer(600),
        ok(),
        Reply::Null,
        ok(),
        Reply::Integer(1000),
    ]));
    let refusal = "ERR This Redis command is not allowed from script";
    let answer = client.line("EVAL \"return redis.call('CLOCK', 'ADVANCE', 1)\" 0").text();
    assert!(answer.starts_with(refusal), "{answer}");
}

#[test]
fn the_use_of_keys_goes_by_the_turned_clock() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("SET k v").is_ok();
    client.line("CLOCK ADVANCE 3600000").is_ok();
    client.line("OBJECT IDLETIME k").is(3600);
    client.line("GET k").is("v");
    client.line("OBJECT IDLETIME k").is(0);
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("OBJECT IDLETIME k").is(0);
    client.line("CLOCK SET 1000003601000").is_ok();
    client.line("OBJECT IDLETIME k").is(1);
    client.line("CONFIG SET maxmemory-policy allkeys-lfu").is_ok();
    client.line("CONFIG SET lfu-log-factor 0").is_ok();
    client.line("SET k v").is_ok();
    (0..20).for_each(|_| client.line("GET k").is("v"));
    let frequency = client.line("OBJECT FREQ k").integer();
    assert!(frequency > 20, "{frequency}");
    client.line("CLOCK ADVANCE 600000").is_ok();
    client.line("OBJECT FREQ k").is(frequency - 10);
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("OBJECT FREQ k").is(frequency);
}

#[test]
fn a_clock_that_is_set_far_back_leaves_no_key_idle_and_no_consumer_before_its_time() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("SET k v").is_ok();
    deliver(&mut client, "s");
    let consumers = |client: &mut Client| client.line("XINFO CONSUMERS s g").reply().to_string();
    let with = |idle_ms: u64| {
        format!(
            "[[\"name\", \"a\", \"pending\", (integer) 1, \"idle\", (integer) {idle_ms}, \"inactive\", \
             (integer) {idle_ms}]]"
        )
    };
    client.line("CLOCK ADVANCE 5").is_ok();
    assert_eq!(consumers(&mut client), with(5));
    for moment in ["1000000000000", "1"] {
        client.line(&format!("CLOCK SET {moment}")).is_ok();
        client.line("OBJECT IDLETIME k").is(0);
        assert_eq!(consumers(&mut client), with(0));
        let pending = client.line("XPENDING s g - + 1").reply().to_string();
        assert_eq!(pending, "[[\"1-1\", \"a\", (integer) 0, (integer) 1]]");
    }
    client.line("XGROUP CREATECONSUMER s g idler").is(1);
    let told = consumers(&mut client);
    assert!(told.contains("\"idle\", (integer) 0, \"inactive\", (integer) -1"), "{told}");
    // Forty years on, from where the clock is now.
    client.line("CLOCK ADVANCE 1262304000000").is_ok();
    let idle_s = client.line("OBJECT IDLETIME k").integer();
    assert!(idle_s > 17 * 365 * 24 * 3600, "{idle_s}");
    client.line("GET k").is("v");
    client.line("OBJECT IDLETIME k").is(0);
    client.line("CLOCK ADVANCE 7000").is_ok();
    client.line("OBJECT IDLETIME k").is(7);
}

#[test]
fn the_next_to_expire_is_evicted_first_whatever_the_time() {
    let server = server();
    let (mut listener, mut client) = (server.client(), server.client());
    client.line("CONFIG SET notify-keyspace-events Ee maxmemory-policy volatile-ttl").is_ok();
    listener.line("SUBSCRIBE __keyevent@0__:evicted").reply();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("SET later v PX 90000000").is_ok();
    client.line("SET sooner v PX 80000000").is_ok();
    client.line("CLOCK ADVANCE 79999999").is_ok();
    client.line("CONFIG SET maxmemory 1").is_ok();
    client.line("SET refused v").is_error("OOM command not allowed when used memory > 'maxmemory'.");
    for key in ["sooner", "later"] {
        assert_eq!(listener.reply().reply(), message("__keyevent@0__:evicted", key));
    }
}

#[test]
fn a_clock_that_does_not_stand_goes_on_from_where_it_was_turned_to() {
    let mut client = server().into_client();
    client.line("SET k v PX 100000").is_ok();
    client.line("CLOCK ADVANCE 60000").is_ok();
    let left_ms = client.line("PTTL k").integer();
    assert!((1..=40_000).contains(&left_ms), "{left_ms}");
    assert_eq!((told(&mut client, "frozen"), told(&mut client, "offset-ms")), (0, 60_000));
    client.line("CLOCK SET 1000000000000").is_ok();
    let first_ms = told(&mut client, "time-ms");
    assert!((1_000_000_000_000..1_000_000_060_000).contains(&first_ms), "{first_ms}");
    wait_for_milliseconds(5);
    assert!(told(&mut client, "time-ms") >= first_ms + 5);
    assert!(told(&mut client, "offset-ms") < -500_000_000_000);
    client.line("SET k v PX 20").is_ok();
    let deadline = Instant::now() + PATIENCE;
    while client.line("DBSIZE").integer() > 0 {
        assert!(Instant::now() < deadline, "what expires is freed as ever");
    }
}

#[test]
fn turned_back_keys_live_longer_and_turned_on_to_a_moment_they_are_gone() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000060000").is_ok();
    client.line("SET k v PX 30000").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("PTTL k").is(90_000);
    client.line("CLOCK SET 1000000089999").is_ok();
    client.line("PTTL k").is(1);
    client.line("CLOCK SET 1000000090000").is_ok();
    client.line("DBSIZE").is(0);
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("GET k").is_nil();
}

#[test]
fn resuming_is_going_back_to_the_time_of_the_system() {
    let server = server();
    let (mut client, mut other) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("SET past v PX 30000").is_ok();
    client.line("SET future v PXAT 33177117420000").is_ok();
    client.line("CLOCK RESUME").is_ok();
    client.line("DBSIZE").is(1);
    assert_eq!((told(&mut other, "frozen"), told(&mut other, "offset-ms")), (0, 0));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(told(&mut other, "time-ms").abs_diff(now_ms as i64) < PATIENCE.as_millis() as u64);
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("CLOCK RESUME").is_ok();
    assert_eq!(told(&mut client, "offset-ms"), 0);
}

#[test]
fn where_expired_keys_are_not_freed_a_turn_does_not_free_them_either() {
    let options = ["--enable-clock-command", "yes", "--enable-debug-command", "yes"];
    let server = Server::start_with(&options);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    client.line("SET k v PX 1000").is_ok();
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("DBSIZE").is(1);
    client.line("SETNX k w").is(1);
    client.line("DEBUG SET-ACTIVE-EXPIRE 1").is_ok();
    client.line("SET k v PX 1000").is_ok();
    client.line("CLIENT PAUSE 600000 WRITE").is_ok();
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("DBSIZE").is(1);
    client.line("CLIENT UNPAUSE").is_ok();
    client.line("CLOCK ADVANCE 0").is_ok();
    client.line("DBSIZE").is(0);
}

/// A stream whose one entry was delivered to `a` just now.
fn deliver(client: &mut Client, key: &str) {
    client.line(&format!("XADD {key} 1-1 f v")).is("1-1");
    client.line(&format!("XGROUP CREATE {key} g 0")).is_ok();
    client.line(&format!("XREADGROUP GROUP g a STREAMS {key} >")).reply();
}

/// Lets a client wait until it may claim an entry.
fn claim(client: &mut Client, consumer: &str, streams: &str, idle_ms: u64) {
    let line = format!("XREADGROUP GROUP g {consumer} BLOCK 0 CLAIM {idle_ms} STREAMS {streams}");
    client.send(&request(words(&line)));
}

/// Asserts that a client that waited has claimed the entry.
#[track_caller]
fn assert_claimed(client: &mut Client, key: &str, idle_ms: u64) {
    let claimed = client.reply().reply().to_string();
    let expected = format!("[[\"{key}\", [[\"1-1\", [\"f\", \"v\"], (integer) {idle_ms}, (integer) 1]]]]");
    assert_eq!(claimed, expected);
}

fn wait_until_blocked(client: &mut Client, count: u64) {
    wait_until(&format!("{count} wait"), || client.info("blocked_clients") == count.to_string());
}

#[test]
fn who_waits_for_idle_entries_is_served_by_the_turn_in_the_order_of_arrival() {
    let server = server();
    let (mut client, mut first, mut second) = (server.client(), server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    deliver(&mut client, "s");
    client.line("XGROUP CREATE empty g 0 MKSTREAM").is_ok();
    claim(&mut first, "b", "empty s > >", 60_000);
    wait_until_blocked(&mut client, 1);
    claim(&mut second, "c", "s >", 60_000);
    wait_until_blocked(&mut client, 2);
    client.line("CLOCK ADVANCE 59999").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("CLOCK RESUME").is_ok();
    client.line("CLOCK FREEZE").is_ok();
    wait_until_blocked(&mut client, 2);
    let idle_ms = |client: &mut Client| {
        let Reply::Array(entry) = &client.line("XPENDING s g - + 1").items()[0] else { panic!("no entry") };
        let Reply::Integer(idle_ms) = entry[2] else { panic!("{entry:?}") };
        idle_ms as u64
    };
    // Real time has passed, too.
    let before_ms = idle_ms(&mut client);
    client.line(&format!("CLOCK ADVANCE {}", 60_000 - before_ms)).is_ok();
    // They were served by the turn: this client finds nothing to claim.
    client.line("XREADGROUP GROUP g d CLAIM 60000 STREAMS s >").is_nil();
    assert_claimed(&mut first, "s", 60_000);
    wait_until_blocked(&mut client, 1);
    client.line("MULTI").is_ok();
    client.line("CLOCK ADVANCE 60000").is_simple("QUEUED");
    client.line("XADD empty 1-1 f v").is_simple("QUEUED");
    client.line("EXEC").reply();
    let claimed = second.reply().reply().to_string();
    assert!(claimed.ends_with("(integer) 60000, (integer) 2]]]]"), "{claimed}");
}

#[test]
fn who_waits_for_idle_entries_goes_by_the_turned_clock_when_it_goes_on() {
    let server = server();
    let (mut client, mut waits) = (server.client(), server.client());
    deliver(&mut client, "s");
    claim(&mut waits, "b", "s >", 3_600_000);
    wait_until_blocked(&mut client, 1);
    // Half a second is left, in real time.
    client.line("CLOCK ADVANCE 3599500").is_ok();
    let claimed = waits.reply().reply().to_string();
    assert!(claimed.contains("\"1-1\""), "{claimed}");
}

#[test]
fn who_waits_for_idle_entries_waits_for_the_end_of_a_pause_as_well() {
    let server = server();
    let (mut client, mut waits) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    deliver(&mut client, "s");
    claim(&mut waits, "b", "s >", 60_000);
    wait_until_blocked(&mut client, 1);
    client.line("CLIENT PAUSE 600000 WRITE").is_ok();
    client.line("CLOCK ADVANCE 60000").is_ok();
    let pending = client.line("XPENDING s g").reply().to_string();
    assert!(pending.ends_with("[[\"a\", \"1\"]]]"), "{pending}");
    client.line("CLIENT UNPAUSE").is_ok();
    assert_claimed(&mut waits, "s", 60_000);
}

#[test]
fn what_is_noted_has_the_turned_time_and_durations_are_real() {
    let options = ["--enable-clock-command", "yes", "--enable-debug-command", "yes"];
    let server = Server::start_with(&options);
    let mut client = server.client();
    let started = client.line("LASTSAVE").integer();
    client.line("CONFIG SET slowlog-log-slower-than 5000 latency-monitor-threshold 5").is_ok();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    client.line("DEBUG SLEEP 0.02").is_ok();
    let Reply::Array(entry) = &client.line("SLOWLOG GET 1").items()[0] else { panic!("no entry") };
    let Reply::Integer(took_us) = entry[2] else { panic!("{entry:?}") };
    assert_eq!(entry[1], Reply::Integer(1_000_000_000));
    assert!((20_000..PATIENCE.as_micros() as i64).contains(&took_us), "{took_us}");
    let Reply::Array(event) = &client.line("LATENCY LATEST").items()[0] else { panic!("no event") };
    assert_eq!(event[1], Reply::Integer(1_000_000_000));
    client.line("AUTH stranger wrong").reply();
    client.line("CLOCK ADVANCE 2500").is_ok();
    let log = client.line("ACL LOG").reply().to_string();
    assert!(log.contains("\"age-seconds\", \"2.5\""), "{log}");
    client.line("CLOCK SET 1").is_ok();
    let log = client.line("ACL LOG").reply().to_string();
    assert!(log.contains("\"age-seconds\", \"0\""), "{log}");
    client.line("LASTSAVE").is(started);
    assert_eq!(client.info("rdb_last_save_time"), started.to_string());
    let uptime_s: u64 = client.info("uptime_in_seconds").parse().unwrap();
    assert!(uptime_s < 600, "{uptime_s}");
    // A client that waits does so in real time.
    assert_eq!(client.line("WAIT 1 1").integer(), 0);
}

#[test]
fn what_the_page_says_follows_the_clock_does() {
    let server = server();
    let (mut client, mut monitor) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    monitor.line("MONITOR").is_ok();
    client.line("XADD s * f v").is("1000000000000-0");
    let shown = monitor.reply().reply().to_string();
    assert!(shown.starts_with("1000000000.000000 [0 "), "{shown}");
    client.line("XADD p IDMP producer message * f v").is("1000000000000-0");
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("XADD p IDMP producer message * f v").is("1000000000000-0");
    // Redis: stream-idmp-duration is 100 seconds.
    client.line("CLOCK ADVANCE 100000").is_ok();
    client.line("XADD p IDMP producer message * f v").is("1000000101000-0");
    client.line("HSET h f v g w").is(2);
    client.line("HPEXPIRE h 5000 FIELDS 1 f").reply();
    client.line("CLOCK ADVANCE 5000").is_ok();
    client.line("HMGET h f g").is(Reply::Array(vec![Reply::Null, bulk("w")]));
    assert_eq!(client.info("server_time_usec"), "1000000106000000");
    assert_eq!(client.info("lru_clock"), (1_000_000_106 & 0xff_ffff).to_string());
    client.line("HOTKEYS START METRICS 1 CPU DURATION 60").is_ok();
    client.line("CLOCK ADVANCE 59999").is_ok();
    let told = |client: &mut Client| client.line("HOTKEYS GET").reply().to_string();
    assert!(told(&mut client).contains("\"tracking-active\", (integer) 1"), "{}", told(&mut client));
    assert!(told(&mut client).contains("(integer) 1000000106000"), "{}", told(&mut client));
    client.line("CLOCK ADVANCE 1").is_ok();
    assert!(told(&mut client).contains("\"tracking-active\", (integer) 0"), "{}", told(&mut client));
}

#[test]
fn what_the_page_says_stays_real_does() {
    let server = server();
    let (mut client, mut waits) = (server.client(), server.client());
    client.line("CLOCK FREEZE").is_ok();
    // It waits in real time, though the clock stands, and no turn makes its time pass.
    waits.send(&request(words("BLPOP list 3600")));
    wait_until_blocked(&mut client, 1);
    client.line("BLPOP list 0.01").is_nil();
    client.line("WAIT 1 1").is(0);
    client.line("CLIENT PAUSE 10 ALL").is_ok();
    client.line("PING").is_simple("PONG");
    client.line("CLOCK ADVANCE 86400000").is_ok();
    wait_until_blocked(&mut client, 1);
    let listed = client.line("CLIENT INFO").text();
    let field = |name: &str| {
        let value = listed.split(' ').find_map(|field| field.strip_prefix(name)).expect("a field");
        value.parse::<u64>().expect("a number")
    };
    let real = 0..PATIENCE.as_secs();
    assert!(real.contains(&field("age=")) && real.contains(&field("idle=")), "{listed}");
    assert!(real.contains(&client.info("uptime_in_seconds").parse().expect("a number")));
    client.line("RPUSH list v").is(1);
    waits.reply().is(Reply::Array(vec![bulk("list"), bulk("v")]));
}

fn system_s() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

#[test]
fn snapshots_are_due_and_dated_by_real_time() {
    let folder = Folder::new("clock-save-points");
    let server = folder.serve(&["--enable-clock-command", "yes", "--save", "1 1"]);
    let mut client = server.client();
    let wait_for_save = |client: &mut Client, number: &str| {
        let deadline = Instant::now() + PATIENCE;
        while client.info("rdb_saves") != number || client.info("rdb_bgsave_in_progress") != "0" {
            assert!(Instant::now() < deadline, "no snapshot {number}");
        }
        let saved_s = client.line("LASTSAVE").integer();
        assert!((system_s() - saved_s).abs() < PATIENCE.as_secs() as i64, "{saved_s}");
    };
    client.line("CLOCK FREEZE").is_ok();
    client.line("SET k v").is_ok();
    wait_for_save(&mut client, "1");
    client.line("CLOCK ADVANCE 3600000").is_ok();
    client.line("SET k w").is_ok();
    wait_for_save(&mut client, "2");
    client.line("CLOCK RESUME").is_ok();
    client.line("SET k x").is_ok();
    wait_for_save(&mut client, "3");
    client.line("CONFIG SET save \"3600 1\"").is_ok();
    client.line("SET k y").is_ok();
    client.line("CLOCK ADVANCE 36000000").is_ok();
    // Ten looks at what is due.
    wait_for_milliseconds(1000);
    assert_eq!(client.info("rdb_saves"), "3", "an hour has not passed");
}

#[test]
fn files_that_are_written_under_a_turned_clock_are_warned_of() {
    let folder = Folder::new("clock-files");
    let options = ["--enable-clock-command", "yes", "--save", "", "--appendonly", "no"];
    let mut server = folder.serve(&options);
    let mut client = server.client();
    client.line("SAVE").is_ok();
    client.line("CLOCK ADVANCE 86400000").is_ok();
    client.line("CLOCK RESUME").is_ok();
    server.wait_for_output("returned the clock to the system's time");
    // No file has been written meanwhile, which is nothing to warn of.
    assert!(!server.output().contains("is written while"), "{}", server.output());
    client.line("CLOCK ADVANCE 86400000").is_ok();
    client.line("SET k v PX 30000").is_ok();
    client.line("SAVE").is_ok();
    server.wait_for_output(
        "The snapshot is written while the clock is turned, 86400000 ms ahead of the system's",
    );
    client.line("CLOCK RESUME").is_ok();
    server.wait_for_output("The clock shows the system's time again.");
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1").is_ok();
    client.line("BGSAVE").ignored();
    server.wait_for_output("behind the system's: in a server that loads it, keys with an expiry live for a");
    server.signal("KILL");
    server.wait_for_end();
    // As the page says.
    let server = folder.serve(&options);
    let mut client = server.client();
    let left_ms = client.line("PTTL k").integer();
    assert!((86_000_000..=86_430_000).contains(&left_ms), "{left_ms}");
    client.line("CLOCK ADVANCE 1000").is_ok();
    client.line("CONFIG SET appendonly yes").is_ok();
    server.wait_for_output("The base of the log is written while the clock is turned, 1000 ms ahead of");
}

#[test]
fn a_log_that_goes_on_under_a_turned_clock_is_warned_of_once() {
    let folder = Folder::new("clock-log");
    let server = folder.serve(&["--enable-clock-command", "yes", "--save", "", "--appendonly", "yes"]);
    let mut client = server.client();
    for _ in 0..2 {
        client.line("CLOCK ADVANCE 500").is_ok();
    }
    server.wait_for_output("The log is written while the clock is turned, 500 ms ahead of the system's");
    client.line("CLOCK RESUME").is_ok();
    server.wait_for_output("The clock shows the system's time again.");
    assert_eq!(server.output().matches("is written while the clock is turned").count(), 1);
}

#[test]
fn each_turn_of_the_clock_leaves_a_line_and_info_says_where_the_clock_is() {
    let server = server();
    let mut client = server.client();
    let mut state = move |line: &str| {
        client.line(line).is_ok();
        (client.info("clock_frozen"), client.info("clock_offset_ms"))
    };
    let text = |frozen: &str, offset: &str| (frozen.to_owned(), offset.to_owned());
    assert_eq!(state("CLOCK RESUME"), text("0", "0"));
    assert_eq!(state("CLOCK FREEZE").0, "1");
    server.wait_for_output(" turned the clock: it stands still, ");
    assert_eq!(state("CLOCK SET 1").0, "1");
    server.wait_for_output(" ms behind the system's");
    assert_eq!(state("CLOCK RESUME"), text("0", "0"));
    server.wait_for_output(" returned the clock to the system's time");
    assert_eq!(state("CLOCK ADVANCE 60000"), text("0", "60000"));
    server.wait_for_output(" turned the clock: it goes on, 60000 ms ahead of the system's");
}

#[test]
fn clock_is_for_those_who_are_let_in() {
    let refusal = "ERR CLOCK command not allowed. If the enable-clock-command option is set to \"local\", you \
                   can run it from a local connection, otherwise you need to set this option in the \
                   configuration file, and then restart the server.";
    let mut client = Server::start().into_client();
    for line in ["FREEZE", "ADVANCE 1", "ADVANCE x", "SET 1", "RESUME", "INFO", "HELP"] {
        client.line(&format!("CLOCK {line}")).is_error(refusal);
    }
    client.line("CONFIG SET enable-clock-command yes").is_error(
        "ERR CONFIG SET failed (possibly related to argument 'enable-clock-command') - can't set immutable \
         config",
    );
    for value in ["local", "yes"] {
        let mut client = Server::start_with(&["--enable-clock-command", value]).into_client();
        client.line("CLOCK ADVANCE 1").is_ok();
        let told = client.line("CONFIG GET enable-clock-command").reply().to_string();
        assert_eq!(told, format!("[\"enable-clock-command\", \"{value}\"]"));
    }
}

#[test]
fn clock_is_for_administrators() {
    let server = server();
    let mut admin = server.client();
    for (rules, may_turn, may_ask) in [
        ("+@all -@dangerous", false, false),
        ("+@all -@admin", false, false),
        ("-@all +clock|info", false, true),
        ("-@all +clock", true, true),
    ] {
        admin.line(&format!("ACL SETUSER tester reset on nopass {rules}")).is_ok();
        let mut tester = server.client();
        tester.line("AUTH tester x").is_ok();
        let refused = |line: &str| {
            let name = line.to_lowercase().replace(' ', "|");
            format!("NOPERM User tester has no permissions to run the '{name}' command")
        };
        for (line, may) in [("CLOCK FREEZE", may_turn), ("CLOCK INFO", may_ask)] {
            match tester.line(line) {
                answer if may => assert!(!matches!(answer.reply(), Reply::Error(_)), "{rules}: {line}"),
                answer => answer.is_error(&refused(line)),
            }
        }
    }
}

#[test]
fn what_the_clock_cannot_be_turned_to_is_refused() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    let before = told(&mut client, "time-ms");
    let no_integer = "ERR value is not an integer or out of range";
    let no_time = format!("ERR the time must be between 1 and {LAST_MS} milliseconds since 1970");
    let too_far = format!("ERR the clock cannot be set beyond {LAST_MS} milliseconds since 1970");
    let negative = "ERR milliseconds must not be negative: CLOCK SET sets the clock back";
    for (line, error) in [
        ("ADVANCE", "ERR wrong number of arguments for 'clock|advance' command"),
        ("ADVANCE 1 2", "ERR wrong number of arguments for 'clock|advance' command"),
        ("ADVANCE x", no_integer),
        ("ADVANCE 1.5", no_integer),
        ("ADVANCE 9223372036854775808", no_integer),
        ("ADVANCE 9223372036854775807", &too_far),
        (&format!("ADVANCE {LAST_MS}"), &too_far),
        ("ADVANCE -1", negative),
        ("ADVANCE -9223372036854775808", negative),
        ("SET", "ERR wrong number of arguments for 'clock|set' command"),
        ("SET now", no_integer),
        ("SET 0", &no_time),
        ("SET -1", &no_time),
        ("SET 253402300800000", &no_time),
        ("SET 9223372036854775807", &no_time),
        ("FREEZE now", "ERR wrong number of arguments for 'clock|freeze' command"),
        ("RESUME 1", "ERR wrong number of arguments for 'clock|resume' command"),
        ("STOP", "ERR unknown subcommand 'STOP'. Try CLOCK HELP."),
    ] {
        client.line(&format!("CLOCK {line}")).is_error(error);
    }
    client.line("CLOCK").is_error("ERR wrong number of arguments for 'clock' command");
    assert_eq!(told(&mut client, "time-ms"), before);
}

#[test]
fn at_the_ends_of_time_keys_expire_as_ever() {
    let mut client = server().into_client();
    client.line("CLOCK FREEZE").is_ok();
    for moment in ["1", LAST_MS] {
        client.line(&format!("CLOCK SET {moment}")).is_ok();
        client.line("SET k v EX 30").is_ok();
        client.line("PTTL k").is(30_000);
        client.line("EXPIRE k 0").is(1);
        client.line("GET k").is_nil();
        client.line("SET k v PX 9223372036854775807").is_error("ERR invalid expire time in 'set' command");
        client.line("SET k v PXAT 9223372036854775807").is_ok();
        client.line("CLOCK ADVANCE 0").is_ok();
        client.line("EXISTS k").is(1);
        client.line("OBJECT IDLETIME k").is(0);
    }
    client.line("CLOCK ADVANCE 1").reply().to_string().find("beyond").expect("that is the end");
    client.line("CLOCK RESUME").is_ok();
    client.line("CLOCK SET 253402300799999").is_ok();
    client.line("SET k v PX 1").is_ok();
    let deadline = Instant::now() + PATIENCE;
    while client.line("EXISTS k").integer() == 1 {
        assert!(Instant::now() < deadline, "a clock that goes goes on beyond");
    }
    client.line("CLOCK FREEZE").is_ok();
}

#[test]
fn a_slow_script_is_not_waited_for() {
    let server = server();
    let (mut slow, mut client) = (server.client(), server.client());
    client.line("CONFIG SET busy-reply-threshold 20").is_ok();
    slow.send(&request(["EVAL", "while true do end", "0"]));
    let deadline = Instant::now() + PATIENCE;
    while client.line("PING").text() == "PONG" {
        assert!(Instant::now() < deadline, "no client hears of the script");
    }
    let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    for line in ["CLOCK ADVANCE 1", "CLOCK FREEZE", "CLOCK INFO"] {
        client.line(line).is_error(busy);
    }
    client.line("SCRIPT KILL").is_ok();
    slow.reply().ignored();
    client.line("CLOCK ADVANCE 1").is_ok();
}

#[test]
fn what_the_clock_tells_is_a_map() {
    let server = server();
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("CLOCK SET 1000000000000").is_ok();
    for (protocol, beginning) in [
        (2, "*6\r\n$6\r\nfrozen\r\n:1\r\n$7\r\ntime-ms\r\n:1000000000000\r\n$9\r\noffset-ms\r\n:-"),
        (3, "%3\r\n$6\r\nfrozen\r\n#t\r\n$7\r\ntime-ms\r\n:1000000000000\r\n$9\r\noffset-ms\r\n:-"),
    ] {
        client.line(&format!("HELLO {protocol}")).reply();
        client.send(&request(["CLOCK", "INFO"]));
        let bytes = String::from_utf8(client.reply_bytes()).unwrap();
        assert!(bytes.starts_with(beginning), "{bytes:?}");
    }
    let help = client.line("CLOCK HELP").reply().to_string();
    for subcommand in ["FREEZE", "ADVANCE <milliseconds>", "SET <unix-time-milliseconds>", "RESUME", "INFO"] {
        assert!(help.contains(&format!(", {subcommand}, ")), "{help}");
    }
}

#[test]
fn turns_and_the_work_of_other_clients_do_not_disturb_each_other() {
    let server = server();
    thread::scope(|scope| {
        for worker in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                let (lock, passing) = (format!("lock:{worker}"), format!("passing:{worker}"));
                for _ in 0..300 {
                    client.cmd(["SETNX", &lock, "token"]).is(1);
                    client.cmd(["SET", &passing, "v", "PX", "3600000"]).is_ok();
                    client.cmd(["GET", &lock]).is("token");
                    client.cmd(["DEL", &lock]).is(1);
                }
            });
        }
        let mut turner = server.client();
        scope.spawn(move || {
            for _ in 0..300 {
                turner.line("CLOCK ADVANCE 7200000").is_ok();
                turner.line("CLOCK RESUME").is_ok();
                // A client that freed the expired key a moment ago must not free the one written now.
                turner.line("SET mine v PX 3600000").is_ok();
                turner.line("GET mine").is("v");
            }
        });
    });
}

#[test]
fn the_example_of_the_page_is_the_one_that_is_run() {
    let page = include_str!("../../src/guide/testing.md");
    let example = include_str!("../clients/python/test_clock.py");
    assert!(page.contains(&format!("```python\n{example}```\n")), "they differ");
}
