//! Keys that are made as locks are and are none: caches, sessions, limits, tokens for one use, jobs that must
//! not run twice. The lens keeps what it finds of them, and says nothing of it in the log, until something
//! shows that a key is a lock. And however many there are, they hide no lock and no finding about one.

use crate::locks::{findings, frozen, locksmiths};
use support::client::{Client, Reply};
use support::replies::{array, field, integer, text};

const COMPARE_AND_DEL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 600000) end return 0";
const CONSUME: &str =
    "local value = redis.call('get', KEYS[1]) if value then redis.call('del', KEYS[1]) end return value";

/// What programs do with such keys, one line a command, by client a, b or c.
const USES: &[(&str, &[&str])] = &[
    ("a cache", &["a SET :1:user:7 {name} NX PX 300000", "b GET :1:user:7", "b DEL :1:user:7"]),
    ("a cache", &["a SET :1:user:7 {name} NX PX 300000", "b SET :1:user:7 {other} PX 300000"]),
    (
        "a cache",
        &["a SET :1:user:7 {name} NX PX 300000", "b PEXPIRE :1:user:7 900000", "c PERSIST :1:user:7"],
    ),
    (
        "a cache that was renamed",
        &["a SETNX new:user:7 {name}", "b RENAME new:user:7 user:7", "c DEL user:7"],
    ),
    (
        "a cache that several fill",
        &[
            "a SET product:7 {at:1} NX EX 300",
            "b SET product:7 {at:2} NX EX 300",
            "c SET product:7 {at:3} NX EX 300",
            "b DEL product:7",
            "b SET product:7 {at:4} NX EX 300",
            "a SET product:7 {at:5} NX EX 300",
            "c SET product:7 {at:6} EX 300",
        ],
    ),
    (
        "a session",
        &[
            "a SET session:5f1c9a {csrf} NX EX 3600",
            "b SET session:5f1c9a {csrf,user} XX EX 3600",
            "c EXPIRE session:5f1c9a 7200",
            "c SET session:5f1c9a {csrf,user} XX EX 3600",
            "a GETEX session:5f1c9a EX 3600",
            "b DEL session:5f1c9a",
        ],
    ),
    (
        "a limit",
        &[
            "a SET limit:user:7 1 NX EX 60",
            "a SET limit:user:7 1 NX EX 60",
            "b SET limit:user:7 1 NX EX 60",
            "b SET limit:user:7 1 NX EX 60",
            "c EXPIRE limit:user:7 10",
            "c DEL limit:user:7",
        ],
    ),
    ("a counter", &["a SET hits:7 0 NX EX 60", "b EXPIRE hits:7 90", "c DEL hits:7"]),
    ("a counter with its expiry", &["a SETNX hits:8 0", "a EXPIRE hits:8 60", "c DEL hits:8"]),
    ("a token for one use", &["a SET otp:7 482913 NX EX 300", "b GETDEL otp:7"]),
    (
        "a token for one use",
        &["a SET otp:7 482913 NX EX 300", "b SET otp:7 118204 NX EX 300", "b CONSUME otp:7"],
    ),
    (
        "an idempotency key",
        &[
            "a SET idempotency:f3a9 pending NX EX 86400",
            "b SET idempotency:f3a9 pending NX EX 86400",
            "c SET idempotency:f3a9 {status:201} XX EX 86400",
            "b GET idempotency:f3a9",
            "b SET idempotency:f3a9 pending NX EX 86400",
        ],
    ),
    (
        "a code that users type in",
        &[
            "a SET code:7 482913-482913-482913 NX EX 300",
            "a COMPARE code:7 482913-482913-482914",
            "a COMPARE code:7 482913-482913-482913",
            "a SET code:7 118204-118204-118204 NX EX 300",
            "a COMPARE code:7 118204-118204-118205",
            "a DELIFEQ code:7 118204-118204-118206",
            "a COMPARE code:7 118204-118204-118204",
        ],
    ),
    (
        "an entry of a cache that looks like a token",
        &[
            "a GET api:token",
            "a SET api:token 5f1c9a0e7b6d4c3f8a2e1d0b NX EX 60",
            "b GET api:token",
            "LATER",
            "b GET api:token",
            "b SET api:token 0b8a2e1d5f1c9a0e7b6d4c3f NX EX 60",
            "a GET api:token",
            "c DEL api:token",
        ],
    ),
    (
        "a number that clients count up by WATCH",
        &[
            "a SET used:7 1 NX EX 60",
            "b WATCH used:7",
            "b GET used:7",
            "b MULTI",
            "b SET used:7 2 EX 60",
            "b EXEC",
            "c SET used:7 0 XX EX 60",
            "a DEL used:7",
        ],
    ),
    (
        "a result in place of a note that it is being made",
        &[
            "a SET result:7 in-the-making-by-the-first NX EX 60",
            "b GET result:7",
            "a SET result:7 {42}",
            "b GET result:7",
            "c DEL result:7",
        ],
    ),
    (
        "a session that a script prolongs for its owner",
        &[
            "a SET session:9c {\"user\":\"ann\"} EX 60",
            "b PROLONG session:9c {\"user\":\"ann\"}",
            "c DEL session:9c",
        ],
    ),
    (
        "a unique job whose number is looked up",
        &[
            "a SET unique:9 5f1c9a0e-7b6d-4c3f-8a2e-1d0b NX EX 60",
            "LATER",
            "b SET unique:9 0b8a2e1d-5f1c-9a0e-7b6d-4c3f NX EX 60",
            "a GET unique:9",
        ],
    ),
    (
        "a unique job",
        &[
            "a SET unique:mail:7 1 NX EX 3600",
            "b SET unique:mail:7 1 NX EX 3600",
            "a SET unique:mail:7 1 NX EX 3600",
            "c DEL unique:mail:7",
        ],
    ),
    (
        "a unique job with a number of its own",
        &[
            "a SET singleton:report task-id-of-the-first NX EX 3600",
            "b SET singleton:report task-id-of-the-second NX EX 3600",
            "LATER",
            "b SET singleton:report task-id-of-the-third NX EX 3600",
            "b GET singleton:report",
            "c DEL singleton:report",
        ],
    ),
    (
        "what was seen",
        &[
            "a SETNX seen:message:7 1",
            "b SETNX seen:message:7 1",
            "b SETNX seen:message:7 1",
            "c DEL seen:message:7",
        ],
    ),
];

#[test]
fn the_log_has_no_line_about_what_only_looks_like_a_lock() {
    let (mut observer, [mut a, mut b, mut c], server) = frozen(["a", "b", "c"]);
    for (what, lines) in USES {
        for line in *lines {
            let (client, line) = match line.split_once(' ') {
                Some(("a", line)) => (&mut a, line),
                Some(("b", line)) => (&mut b, line),
                Some(("c", line)) => (&mut c, line),
                _ => {
                    observer.line("CLOCK ADVANCE 60000").is_ok();
                    continue;
                }
            };
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["CONSUME", key] => client.cmd(["EVAL", CONSUME, "1", key]).ignored(),
                ["COMPARE", key, token] => client.cmd(["EVAL", COMPARE_AND_DEL, "1", key, token]).ignored(),
                ["PROLONG", key, token] => client.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", key, token]).is(1),
                _ => client.cmd(words).ignored(),
            }
        }
        assert!(!server.output().contains("Lock lens"), "{what}: {}", server.output());
    }
    // Not because no finding is written: this one is a lock by its name.
    a.line("SET lock:7 token NX PX 60000").is_ok();
    b.line("DEL lock:7").is(1);
    server.wait_for_output("Lock lens: deleted-by-another on key \"lock:7\"");
    let output = server.output();
    assert_eq!(output.matches("Lock lens").count(), 1, "{output}");
    assert!(!output.contains("more since"), "quiet findings are not counted there: {output}");
    let quiet = findings(&mut observer).into_iter().filter(|(_, key, _)| key == "otp:7").count();
    assert!(quiet > 0, "they are kept all the same");
}

fn evidence(observer: &mut Client, key: &str) -> Option<String> {
    match field(&observer.cmd(["LOCKS", "GET", key]).reply(), "evidence") {
        Reply::Null => None,
        Reply::Bulk(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => panic!("{other}"),
    }
}

#[test]
fn what_shows_that_a_key_is_a_lock_brings_a_line() {
    for (key, before, shown) in [
        ("job:a", "COMPARE", "token-compared"),
        ("job:b", "DELIFEQ job:b token-of-another", ""),
        ("job:c", "SET job:c token-of-the-holder IFEQ token-of-the-holder PX 60000", "token-compared"),
        ("job:d", "LOCK FENCE job:d token-of-the-holder", "token-compared"),
        ("job:e", "LOCK EXTEND job:e token-of-the-holder PX 60000", "token-compared"),
        ("job:f", "ASKS", "asked-again"),
        ("job:g", "SET job:g token-of-the-holder XX PX 60000", ""),
        ("job:h:mutex", "PING", "name"),
        ("leader", "PING", "name"),
        ("LEASE", "LOCKS LIST", ""),
    ] {
        let (mut observer, [mut holder, mut other], server) = locksmiths(["holder", "other"]);
        let name = if key == "LEASE" { "lessee" } else { key };
        match key {
            "LEASE" => holder.cmd(["LOCK", "ACQUIRE", name, "token-of-the-holder", "PX", "60000"]).ignored(),
            _ => holder.cmd(["SET", name, "token-of-the-holder", "NX", "PX", "60000"]).is_ok(),
        }
        match before {
            "COMPARE" => other.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", name, "token-of-the-holder"]).is(1),
            "ASKS" => {
                for _ in 0..2 {
                    other.cmd(["SET", name, "token-of-the-other", "NX", "PX", "60000"]).is_nil();
                }
            }
            line => holder.line(line).ignored(),
        }
        let shown = match key {
            "LEASE" => "name",
            _ => shown,
        };
        assert_eq!(evidence(&mut observer, name).unwrap_or_default(), shown, "{key}: {before}");
        observer.cmd(["DEL", name]).is(1);
        let rules: Vec<String> = findings(&mut observer).into_iter().map(|(rule, ..)| rule).collect();
        // A comparison with the token of no client is a finding of its own.
        let before: &[&str] = if key == "job:b" { &["released-by-stranger"] } else { &[] };
        assert_eq!(rules, [before, &["deleted-by-another"]].concat(), "{key}");
        // One that is a lock for certain comes behind it, so that the log has its line.
        if !shown.is_empty() {
            server.wait_for_output(&format!("Lock lens: deleted-by-another on key \"{name}\""));
        } else {
            assert!(!server.output().contains("Lock lens"), "{key}: {}", server.output());
        }
    }
}

#[test]
fn a_list_of_all_locks_says_what_is_one() {
    let (mut observer, [mut a, mut b], server) = locksmiths(["a", "b"]);
    observer.cmd(["CONFIG", "SET", "lock-lens-only", "cart:* order:*"]).is_ok();
    a.line("SET lock:7 token NX PX 60000").is_ok();
    b.line("DEL lock:7").is(1);
    observer.line("LOCKS GET lock:7").is_nil();
    a.line("SET cart:7 1 NX PX 60000").is_ok();
    assert_eq!(evidence(&mut observer, "cart:7").as_deref(), Some("name"));
    b.line("DEL cart:7").is(1);
    server.wait_for_output("Lock lens: deleted-by-another on key \"cart:7\"");
    assert_eq!(findings(&mut observer).len(), 1);
    observer.cmd(["CONFIG", "SET", "lock-lens-only", ""]).is_ok();
    a.line("SET lock:8 token NX PX 60000").is_ok();
    assert_eq!(evidence(&mut observer, "lock:8").as_deref(), Some("name"));
}

#[test]
fn many_findings_hide_none_of_another_kind() {
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    a.line("SET lock:real token NX PX 60000").is_ok();
    b.line("DEL lock:real").is(1);
    a.line("SET cart:7 token NX PX 60000").is_ok();
    b.line("PEXPIRE cart:7 90000").is(1);
    // Four changes each: fewer than are followed in a tenth of a second.
    for number in 0..100 {
        a.line(&format!("SET :1:user:{number} name NX PX 300000")).is_ok();
        b.line(&format!("DEL :1:user:{number}")).is(1);
        a.line(&format!("SET session:{number}f {{}} NX PX 300000")).is_ok();
        b.line(&format!("SET session:{number}f {{user}} PX 300000")).is_ok();
    }
    let found = observer.line("LOCKS LOG -1").items();
    let of = |key: &str| found.iter().filter(|finding| text(finding, "key") == key).count();
    assert_eq!((of("lock:real"), of("cart:7")), (1, 1));
    let newest = |pattern: &str| {
        let alike: Vec<_> = found.iter().filter(|finding| text(finding, "pattern") == pattern).collect();
        (alike.len(), integer(alike[0], "alike"), array(alike[0], "timeline").len())
    };
    assert_eq!(newest(":*:user:*"), (8, 100, 2));
    assert_eq!(newest("session:*"), (8, 100, 2));
}

#[test]
fn ten_thousand_keys_that_are_no_locks_push_no_lock_out() {
    let (mut observer, [mut holder, mut thief, mut web], _server) = locksmiths(["holder", "thief", "web"]);
    let token = |number: usize| format!("token-of-the-holder-{number}");
    for number in 0..20 {
        let key = format!("job:{number}");
        holder.cmd(["SET", &key, &token(number), "NX", "PX", "600000"]).is_ok();
        holder.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", &key, &token(number)]).is(1);
    }
    for batch in 0..25 {
        // Otherwise it takes two seconds until as many are followed.
        observer.line("LOCKS RESET").is_ok();
        let requests: Vec<u8> = (0..400)
            .flat_map(|number| {
                let key = format!("user:{batch:02}{number:03}");
                format!("*6\r\n$3\r\nSET\r\n$10\r\n{key}\r\n$1\r\nx\r\n$2\r\nNX\r\n$2\r\nEX\r\n$3\r\n600\r\n")
                    .into_bytes()
            })
            .collect();
        web.send(&requests);
        (0..400).for_each(|_| web.reply().is_ok());
    }
    let stats = observer.line("LOCKS STATS").reply();
    assert_eq!(integer(&stats, "followed"), 4096);
    observer.line("LOCKS RESET").is_ok();
    for number in 0..20 {
        thief.cmd(["DEL", &format!("job:{number}")]).is(1);
        holder.cmd(["EVAL", COMPARE_AND_DEL, "1", &format!("job:{number}"), &token(number)]).is(0);
    }
    let stats = observer.line("LOCKS STATS").reply();
    assert_eq!(integer(&stats, "deleted-by-another"), 20);
}
