//! Locks of other forms than a string that is taken by NX or by a script that looks: the lock of a job, which
//! a script writes with the job and others renew, and what is beside it and is no lock.

use crate::locks::{findings, frozen, is_found};
use support::client::{Client, Reply};
use support::replies::{integer, text};

const ONES: &str = "1b671a64-40d5-491e-99b0-da01ff1f3341:7";
const TWOS: &str = "2c1e9f70-83a2-4f1d-8a6b-5f0c9a3d7e42:9";
const LOCK: &str = "bull:mail:1:lock";

/// BullMQ: a worker takes a job and its lock. The token is one of the options, which are packed.
const TAKE: &str = "local rcall = redis.call local opts = cmsgpack.unpack(ARGV[1]) local id = rcall('RPOPLPUSH', KEYS[1], KEYS[2]) if id then rcall('SET', KEYS[3], opts['token'], 'PX', 30000) end return id";
/// Bull: the token is an argument.
const TAKE_PLAIN: &str = "local id = redis.call('RPOPLPUSH', KEYS[1], KEYS[2]) if id then redis.call('SET', KEYS[3], ARGV[1], 'PX', 30000) end return id";
const RENEW: &str = "local rcall = redis.call if rcall(\"GET\", KEYS[1]) == ARGV[1] then if rcall(\"SET\", KEYS[1], ARGV[1], \"PX\", ARGV[2]) then return 1 end end return 0";
const PROLONG: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
const FINISH: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return -2";
const STALLED: &str = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";

/// A worker takes the job, with its token packed by msgpack or not.
fn take(client: &mut Client, token: &str, is_packed: bool) {
    client.line("RPUSH bull:mail:wait 1").ignored();
    let packed =
        [&b"\x82\xa5token\xd9"[..], &[token.len() as u8], token.as_bytes(), b"\xa5limit\x07"].concat();
    let (script, argument) = if is_packed { (TAKE, &*packed) } else { (TAKE_PLAIN, token.as_bytes()) };
    let words: [&[u8]; 7] =
        [b"EVAL", script.as_bytes(), b"3", b"bull:mail:wait", b"bull:mail:active", LOCK.as_bytes(), argument];
    client.cmd(words).is("1");
}

fn run(client: &mut Client, script: &str, token: &str) -> i64 {
    client.cmd(["EVAL", script, "1", LOCK, token, "30000"]).integer()
}

fn holder(observer: &mut Client) -> Option<String> {
    let held = observer.line("LOCKS LIST").items();
    held.first().map(|lock| text(lock, "holder.name"))
}

#[test]
fn the_lock_of_a_job_is_one_from_its_first_renewal_on() {
    for renew in [RENEW, PROLONG] {
        for is_packed in [true, false] {
            let (mut observer, [mut one, mut two, mut thief], _server) = frozen(["one", "two", "thief"]);
            take(&mut one, ONES, is_packed);
            assert_eq!(holder(&mut observer), None, "nothing shows that it is one");
            assert_eq!(run(&mut one, renew, ONES), 1);
            assert_eq!(holder(&mut observer).as_deref(), Some("one"));
            let lock = observer.cmd(["LOCKS", "GET", LOCK]).reply();
            assert_eq!((text(&lock, "evidence"), integer(&lock, "renewals")), ("token-compared".into(), 1));
            assert_eq!(run(&mut one, renew, ONES), 1);
            assert_eq!(integer(&observer.cmd(["LOCKS", "GET", LOCK]).reply(), "renewals"), 2);
            // The next worker takes it when it has ended, and is its holder at once.
            observer.line("CLOCK ADVANCE 30001").is_ok();
            two.cmd(["EXISTS", LOCK]).is(0);
            take(&mut two, TWOS, is_packed);
            assert_eq!(holder(&mut observer).as_deref(), Some("two"));
            assert_eq!(run(&mut one, renew, ONES), 0);
            is_found(&mut observer, &[("expired-while-held", &["one", "two"])]);
            assert_eq!(run(&mut two, FINISH, TWOS), 1);
            assert_eq!(text(&observer.cmd(["LOCKS", "GET", LOCK]).reply(), "state"), "released");
            // And the next one after that.
            take(&mut one, ONES, is_packed);
            assert_eq!(run(&mut one, renew, ONES), 1);
            thief.cmd(["DEL", LOCK]).is(1);
            assert_eq!(findings(&mut observer)[1].0, "deleted-by-another");
        }
    }
}

#[test]
fn the_lock_of_a_job_is_seen_by_the_name_of_its_scripts_too() {
    let (mut observer, [mut one], _server) = frozen(["one"]);
    let digest = one.cmd(["SCRIPT", "LOAD", RENEW]).text();
    take(&mut one, ONES, true);
    one.cmd(["EVALSHA", &digest, "1", LOCK, ONES, "30000"]).is(1);
    assert_eq!(holder(&mut observer).as_deref(), Some("one"));
    observer.line("CLOCK ADVANCE 30001").is_ok();
    one.cmd(["EVALSHA", &digest, "1", LOCK, ONES, "30000"]).is(0);
    is_found(&mut observer, &[("expired-while-held", &["one"])]);
}

#[test]
fn what_scripts_write_again_without_a_comparison_is_no_lock() {
    let (mut observer, [mut one], _server) = frozen(["one"]);
    let value = "a value that is as long as a token";
    one.cmd(["SET", LOCK, value, "PX", "30000"]).is_ok();
    for (script, argument) in [
        // A cache that is filled again, and one that is used.
        ("redis.call('set', KEYS[1], ARGV[1], 'PX', 30000) return redis.call('get', KEYS[1])", value),
        (
            "local v = redis.call('get', KEYS[1]) if v then redis.call('pexpire', KEYS[1], 30000) end return v",
            "x",
        ),
        ("local v = redis.call('get', KEYS[1]) redis.call('set', KEYS[1], v, 'PX', 30000) return v", "30000"),
        (
            "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('pexpire', KEYS[1], 30000) end return ARGV[1]",
            value,
        ),
        (
            "redis.call('get', KEYS[1]) redis.call('persist', KEYS[1]) return redis.call('get', KEYS[1])",
            value,
        ),
    ] {
        one.cmd(["EVAL", script, "1", LOCK, argument]).is(value);
        assert_eq!(holder(&mut observer), None, "{script}");
    }
    // When jobs were looked at the last time.
    for check in ["bull:mail:stalled-check", "bull:mail:other-check"] {
        one.cmd(["EVAL", STALLED, "1", check, "1795727738000", "30000"]).is(1);
        one.cmd(["EVAL", STALLED, "1", check, "1795727738000", "30000"]).is(0);
    }
    one.cmd([
        "EVAL",
        "return redis.call('set', KEYS[1], ARGV[1], 'PX', 30000, 'NX')",
        "1",
        "s",
        "1795727738000",
    ])
    .is_ok();
    assert_eq!(holder(&mut observer), None);
    is_found(&mut observer, &[]);
    // If the name says so, it is a lock all the same.
    one.cmd(["EVAL", STALLED, "1", "lock:report", "1795727738000", "30000"]).is(1);
    assert_eq!(holder(&mut observer).as_deref(), Some("one"));
}

/// The number of clients that have something, as dramatiq's limiters keep it.
fn set_to(client: &mut Client, key: &str, number: &str) {
    client.cmd(["WATCH", key]).is_ok();
    client.cmd(["GET", key]).ignored();
    client.line("MULTI").is_ok();
    client.cmd(["SET", key, number, "PX", "900000"]).ignored();
    assert_eq!(client.line("EXEC").items(), [Reply::Simple("OK".into())]);
}

#[test]
fn compare_and_set_is_not_overwriting() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    for key in ["mutex", "bucket"] {
        one.cmd(["SET", key, "1", "NX", "PX", "900000"]).is_ok();
        two.cmd(["SET", key, "1", "NX", "PX", "900000"]).is_nil();
        set_to(&mut one, key, "0");
        assert_eq!(holder(&mut observer), None, "a number that changes is a count");
        for number in ["1", "2", "1", "0"] {
            set_to(&mut two, key, number);
        }
    }
    // One that another client writes without a look.
    one.line("SET served 1 NX PX 900000").is_ok();
    two.line("SET served 2 XX PX 900000").is_ok();
    assert_eq!(holder(&mut observer), None);
    is_found(&mut observer, &[]);
    // A lock that another takes over, by its value.
    one.cmd(["SET", LOCK, ONES, "NX", "PX", "900000"]).is_ok();
    set_to(&mut two, LOCK, TWOS);
    assert_eq!(holder(&mut observer).as_deref(), Some("two"));
    is_found(&mut observer, &[]);
    // Without WATCH, or without a look, it is overwritten.
    observer.line("CLOCK ADVANCE 1").is_ok();
    for line in ["GET bull:mail:1:lock", "MULTI", "SET bull:mail:1:lock of-one PX 900000", "EXEC"] {
        one.line(line).ignored();
    }
    is_found(&mut observer, &[("overwritten-by-another", &["one", "two"])]);
    for line in ["WATCH bull:mail:1:lock", "MULTI", "SET bull:mail:1:lock of-two PX 900000", "EXEC"] {
        two.line(line).ignored();
    }
    assert_eq!(findings(&mut observer).len(), 2);
}

#[test]
fn a_sorted_set_with_the_word_for_one_holder_is_a_lock_while_it_has_one() {
    const TAKE: &str = "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) redis.call('ZADD', KEYS[1], ARGV[2], '__write__') return redis.call('PEXPIRE', KEYS[1], 30000)";
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    let mut take = |key: &str| one.cmd(["EVAL", TAKE, "1", key, ONES, "1795727738000"]).is(1);
    take("invoice");
    assert_eq!(holder(&mut observer).as_deref(), Some("one"));
    assert_eq!(text(&observer.line("LOCKS GET invoice").reply(), "taken-by"), "zadd");
    two.line("DEL invoice").is(1);
    is_found(&mut observer, &[("deleted-by-another", &["two", "one"])]);
    let advice = text(&observer.line("LOCKS LOG").items()[0], "instead");
    assert!(advice.contains("Symfony") && !advice.contains("'get'"), "{advice}");
    // It becomes a lock of readers, or gets another member.
    for change in ["ZREM invoice __write__", "ZADD invoice 1 another"] {
        take("invoice");
        two.line(change).is(1);
        assert_eq!(holder(&mut observer), None, "{change}");
        two.line("DEL invoice").is(1);
    }
    // A limit of so many requests a minute, and a board of scores.
    for script in [
        "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1]) return redis.call('PEXPIRE', KEYS[1], 30000)",
        "redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1], 7, 'other') return redis.call('PEXPIRE', KEYS[1], 30000)",
        "redis.call('ZADD', KEYS[1], ARGV[2], 'own', 7, '__write__') return redis.call('PEXPIRE', KEYS[1], 30000)",
    ] {
        one.cmd(["EVAL", script, "1", "requests", ONES, "1795727738000"]).is(1);
        two.line("DEL requests").is(1);
    }
    assert_eq!((holder(&mut observer), findings(&mut observer).len()), (None, 1));
}
