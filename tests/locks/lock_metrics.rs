//! What happens to locks, counted by the patterns of `lock-metrics`: for how long clients wait for them and
//! hold them, and how they are lost. The clock moves by command only, so the times are exact.

use std::net::{Ipv4Addr, SocketAddr};

use crate::locks::frozen;
use support::client::{Client, Reply};
use support::metrics::metrics;
use support::replies::{field, integer, text};
use support::server::{Server, free_port};

/// What is counted for the patterns, by their names.
fn patterns(observer: &mut Client) -> Vec<(String, Reply)> {
    let all = observer.line("LOCKS PATTERNS").items();
    all.into_iter().map(|metrics| (text(&metrics, "pattern"), metrics)).collect()
}

/// What is counted for the only pattern.
fn only(observer: &mut Client) -> Reply {
    let mut all = patterns(observer);
    assert_eq!(all.len(), 1);
    all.remove(0).1
}

/// The count of a histogram, and its milliseconds.
fn histogram(metrics: &Reply, name: &str) -> [i64; 2] {
    ["count", "total-ms"].map(|part| integer(metrics, &format!("{name}.{part}")))
}

/// The ways in which locks were lost, and how often.
fn losses(metrics: &Reply) -> Vec<(String, i64)> {
    let Reply::Map(losses) = field(metrics, "losses") else { panic!("no map: {metrics}") };
    let read = |(way, times): &(Reply, Reply)| match (way, times) {
        (Reply::Bulk(way), Reply::Integer(times)) => (String::from_utf8_lossy(way).into_owned(), *times),
        other => panic!("no count: {other:?}"),
    };
    losses.iter().map(read).filter(|(_, times)| *times > 0).collect()
}

fn advance(observer: &mut Client, ms: u64) {
    observer.line(&format!("CLOCK ADVANCE {ms}")).is_ok();
}

#[test]
fn a_wait_lasts_from_the_first_attempt_until_the_client_has_the_lock() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    observer.line("CONFIG SET lock-metrics lock:*").is_ok();
    one.line("SET lock:a ones NX PX 60000").is_ok();
    two.line("SET lock:a twos NX PX 60000").is_nil();
    advance(&mut observer, 300);
    two.line("SET lock:a twos NX PX 60000").is_nil();
    advance(&mut observer, 400);
    one.line("DELIFEQ lock:a ones").is(1);
    two.line("SET lock:a twos NX PX 60000").is_ok();
    let counted = only(&mut observer);
    let counts = ["held", "taken", "refused", "renewals"].map(|name| integer(&counted, name));
    assert_eq!(counts, [1, 2, 2, 0]);
    assert_eq!(histogram(&counted, "waiting"), [2, 700]);
    assert_eq!(histogram(&counted, "holding"), [1, 700]);
    let limits = ["p50-ms", "p99-ms", "max-ms"].map(|part| integer(&counted, &format!("waiting.{part}")));
    assert_eq!(limits, [0, 1024, 1024]);
    assert!(losses(&counted).is_empty());
    // A client that tries again after a long time has done something else meanwhile.
    one.line("SET lock:a ones NX PX 60000").is_nil();
    advance(&mut observer, 20_000);
    two.line("DELIFEQ lock:a twos").is(1);
    one.line("SET lock:a ones NX PX 60000").is_ok();
    assert_eq!(histogram(&only(&mut observer), "waiting"), [3, 700]);
}

#[test]
fn so_does_the_wait_of_a_client_in_line_however_long_it_is() {
    let (mut observer, [mut one, mut two, mut three], server) = frozen(["one", "two", "three"]);
    observer.line("CONFIG SET lock-metrics lock:*").is_ok();
    one.line("LOCK ACQUIRE lock:a ones PX 600000").integer();
    server.have_wait(&mut two, "LOCK ACQUIRE lock:a twos PX 600000 WAIT 600000");
    advance(&mut observer, 25_000);
    one.line("LOCK RELEASE lock:a ones").is(1);
    two.reply().integer();
    let counted = only(&mut observer);
    assert_eq!(histogram(&counted, "waiting"), [2, 25_000]);
    assert_eq!(histogram(&counted, "holding"), [1, 25_000]);
    assert_eq!(integer(&counted, "refused"), 0);
    // One that gives up was refused.
    three.line("LOCK ACQUIRE lock:a threes PX 600000 WAIT 20").is_nil();
    let counted = only(&mut observer);
    assert_eq!(["held", "taken", "refused"].map(|name| integer(&counted, name)), [1, 2, 1]);
}

#[test]
fn every_way_to_lose_a_lock_is_counted_and_a_release_is_none() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    observer.line("CONFIG SET lock-metrics *").is_ok();
    let mut take = |key: &str| one.line(&format!("SET {key} ones NX PX 1000")).is_ok();
    for key in ["released", "expires", "deleted", "broken", "overwritten"] {
        take(key);
    }
    two.line("DELIFEQ released ones").is(1);
    two.line("DEL deleted").is(1);
    observer.line("LOCK BREAK broken").is(1);
    two.line("SET overwritten twos PX 1000").is_ok();
    advance(&mut observer, 1000);
    // The one that was written over has expired, too.
    let expected = [("expired", 2), ("deleted-by-another", 1), ("broken", 1), ("overwritten-by-another", 1)];
    assert_eq!(losses(&only(&mut observer)), expected.map(|(way, times)| (way.to_owned(), times)));
    take("flushed");
    two.line("FLUSHALL").is_ok();
    let counted = only(&mut observer);
    assert!(losses(&counted).contains(&("flushed".to_owned(), 1)));
    assert_eq!(["held", "taken"].map(|name| integer(&counted, name)), [0, 7]);
    assert_eq!(histogram(&counted, "holding"), [7, 2000]);
}

#[test]
fn renewals_are_counted_whatever_command_renews() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    observer.line("CONFIG SET lock-metrics lock:*").is_ok();
    one.line("LOCK ACQUIRE lock:a ones PX 1000").integer();
    one.line("LOCK EXTEND lock:a ones PX 2000").integer();
    one.line("PEXPIRE lock:a 3000").is(1);
    let script =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 4000) end";
    two.cmd(["EVAL", script, "1", "lock:a", "ones"]).is(1);
    assert_eq!(integer(&only(&mut observer), "renewals"), 3);
}

#[test]
fn a_lock_counts_for_the_first_pattern_that_matches() {
    let (mut observer, [mut one], _server) = frozen(["one"]);
    one.line("SET lock:early token NX PX 60000").is_ok();
    observer.cmd(["CONFIG", "SET", "lock-metrics", "lock:a* lock:* never:*"]).is_ok();
    for key in ["lock:a", "lock:b", "cart:1"] {
        one.line(&format!("SET {key} token NX PX 60000")).is_ok();
    }
    let counted = |observer: &mut Client| {
        let all = patterns(observer);
        let of = |(name, metrics): &(String, Reply)| {
            (name.clone(), integer(metrics, "taken"), integer(metrics, "held"))
        };
        all.iter().map(of).collect::<Vec<_>>()
    };
    let is = |observer: &mut Client, expected: &[(&str, i64, i64)]| {
        let expected: Vec<_> =
            expected.iter().map(|(name, taken, held)| ((*name).to_owned(), *taken, *held)).collect();
        assert_eq!(counted(observer), expected);
    };
    // One that was taken before is held.
    is(&mut observer, &[("lock:a*", 1, 1), ("lock:*", 1, 2), ("never:*", 0, 0)]);
    // What was counted for a pattern that stays is kept, and locks that are held change over.
    observer.cmd(["CONFIG", "SET", "lock-metrics", " lock:*  cart:* "]).is_ok();
    is(&mut observer, &[("lock:*", 1, 3), ("cart:*", 0, 1)]);
    observer.line("LOCKS RESET").is_ok();
    is(&mut observer, &[("lock:*", 0, 3), ("cart:*", 0, 1)]);
    observer.cmd(["CONFIG", "SET", "lock-metrics", ""]).is_ok();
    is(&mut observer, &[]);
    for (value, complaint) in
        [(b"a ".repeat(65), "at most 64 patterns are allowed"), (vec![b'\xff'], "patterns must be in UTF-8")]
    {
        let reply = observer.cmd([&b"CONFIG"[..], b"SET", b"lock-metrics", &value]);
        reply.is_error(&format!(
            "ERR CONFIG SET failed (possibly related to argument 'lock-metrics') - {complaint}"
        ));
    }
}

#[test]
fn prometheus_and_info_show_the_same() {
    let port = free_port();
    let server = Server::start_with(&[
        "--metrics-port",
        &port.to_string(),
        "--enable-clock-command",
        "yes",
        "--lock-metrics",
        "lock:* a=b,c*",
    ]);
    let address: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
    let [mut one, mut two, mut clock] = [(); 3].map(|()| server.client3());
    clock.line("CLOCK FREEZE").is_ok();
    one.line("LOCK ACQUIRE lock:a ones PX 1000").integer();
    two.line("LOCK ACQUIRE lock:a twos PX 1000").is_nil();
    advance(&mut clock, 1000);
    two.line("LOCK ACQUIRE lock:a twos PX 1000").integer();
    let page = metrics(address);
    for (name, expected) in [
        ("keyfast_locks_pattern_held{pattern=lock:*}", 1.0),
        ("keyfast_locks_pattern_taken_total{pattern=lock:*}", 2.0),
        ("keyfast_locks_pattern_refused_total{pattern=lock:*}", 1.0),
        ("keyfast_locks_pattern_renewals_total{pattern=lock:*}", 0.0),
        ("keyfast_locks_pattern_losses_total{pattern=lock:*,reason=expired}", 1.0),
        ("keyfast_locks_pattern_wait_seconds_bucket{pattern=lock:*,le=0}", 1.0),
        ("keyfast_locks_pattern_wait_seconds_bucket{pattern=lock:*,le=0.512}", 1.0),
        ("keyfast_locks_pattern_wait_seconds_bucket{pattern=lock:*,le=1.024}", 2.0),
        ("keyfast_locks_pattern_wait_seconds_bucket{pattern=lock:*,le=+Inf}", 2.0),
        ("keyfast_locks_pattern_wait_seconds_sum{pattern=lock:*}", 1.0),
        ("keyfast_locks_pattern_hold_seconds_count{pattern=lock:*}", 1.0),
        ("keyfast_locks_pattern_taken_total{pattern=a=b,c*}", 0.0),
    ] {
        assert_eq!(page.get(name), Some(&expected), "{name}");
    }
    let info = clock.line("INFO locks").text();
    let lines: Vec<_> = info.lines().filter(|line| line.starts_with("lock_metrics_")).collect();
    assert_eq!(
        lines,
        [
            "lock_metrics_0:pattern=lock:*,held=1,taken=2,refused=1,renewals=0,losses=1,wait_ms_p50=0,\
         wait_ms_p99=1024,hold_ms_p50=1024,hold_ms_p99=1024",
            "lock_metrics_1:pattern=a_b_c*,held=0,taken=0,refused=0,renewals=0,losses=0,wait_ms_p50=0,\
         wait_ms_p99=0,hold_ms_p50=0,hold_ms_p99=0",
        ]
    );
}

#[test]
fn a_client_that_tries_by_another_connection_is_known_by_a_long_token() {
    let (mut observer, [mut one, mut two, mut three], _server) = frozen(["one", "two", "three"]);
    observer.line("CONFIG SET lock-metrics *").is_ok();
    for (token, waited) in [("1b671a64-40d5-491e-99b0-da01ff1f3341", 500), ("1", 0)] {
        observer.line("LOCKS RESET").is_ok();
        one.line("SET lock ones NX PX 60000").is_ok();
        two.cmd(["SET", "lock", token, "NX", "PX", "60000"]).is_nil();
        advance(&mut observer, 500);
        one.line("DEL lock").is(1);
        three.cmd(["SET", "lock", token, "NX", "PX", "60000"]).is_ok();
        three.line("DEL lock").is(1);
        assert_eq!(histogram(&only(&mut observer), "waiting"), [2, waited]);
    }
}
