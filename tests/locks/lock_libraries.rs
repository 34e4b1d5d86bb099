//! The lock lens and the libraries that lock: each by the commands and scripts that it sends, in correct use,
//! of which nothing is found, and in each of the classical misuses, which are found under their names.
//!
//! The texts are shortened, but call the same commands in the same order. What the lens cannot see is in the
//! table, too: [`MISSED`](Library::missed).

use std::fs;
use std::path::Path;

use crate::lock_kinds::{FORCE, RELEASE as UNLOCK_HASH, RENEW, TAKE as TAKE_HASH, UNLOCK};
use crate::locks::{findings, frozen, is_found};
use support::client::{Client, Reply};
use support::replies::{array, integer, text};

/// A library that locks.
struct Library {
    /// Its name, as in the page's table.
    name: &'static str,
    /// How it takes a lock, as in the page's table.
    how: &'static str,
    take: &'static [&'static str],
    extend: Option<&'static [&'static str]>,
    release: &'static [&'static str],
    /// What it asks without changing anything.
    look: Option<&'static [&'static str]>,
    /// Whether one client has the same token for all its locks.
    has_one_token: bool,
    /// The misuses that are not found, as in the page's table.
    missed: &'static str,
}

const LIBRARY: Library = Library {
    name: "",
    how: "`SET NX PX`",
    take: SET_NX,
    extend: None,
    release: &["EVAL", COMPARE_AND_DEL, "1", "KEY", "TOKEN"],
    look: None,
    has_one_token: false,
    missed: "",
};

const SET_NX: &[&str] = &["SET", "KEY", "TOKEN", "NX", "PX", "30000"];
const COMPARE_AND_DEL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
const COMPARE_AND_LOOK: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pttl', KEYS[1]) else return 0 end";
const EXTEND: &[&str] = &["EVAL", COMPARE_AND_EXPIRE, "1", "KEY", "TOKEN", "30000"];

/// redis-py: the release of Lock reads the token first, and fails in the client if it is another one.
const LUA_RELEASE: &str = "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1";
const LUA_EXTEND: &str = "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end local expiration = redis.call('pttl', KEYS[1]) if not expiration then expiration = 0 end if expiration < 0 then return 0 end local newttl = ARGV[2] redis.call('pexpire', KEYS[1], newttl) return 1";

/// sherlock: the token of the client, and then seconds.
const SHERLOCK: &str = "local result = redis.call('SETNX', KEYS[1], ARGV[1]) if result == 1 and ARGV[2] ~= -1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end return result";

/// redlock of npm, 4 and 5, for several keys at once.
const NODE_TAKE: &str = "for i, key in ipairs(KEYS) do if redis.call(\"exists\", key) == 1 then return 0 end end for i, key in ipairs(KEYS) do redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2]) end return #KEYS";
const NODE_EXTEND: &str = "for i, key in ipairs(KEYS) do if redis.call(\"get\", key) ~= ARGV[1] then return 0 end end for i, key in ipairs(KEYS) do redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2]) end return #KEYS";
const NODE_RELEASE: &str = "local count = 0 for i, key in ipairs(KEYS) do if redis.call(\"get\", key) == ARGV[1] then redis.pcall(\"del\", key) count = count + 1 end end return count";

/// redlock-rb takes and extends by one script.
const RUBY_TAKE: &str = "if (redis.call(\"exists\", KEYS[1]) == 0 and ARGV[3] == \"yes\") or redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"set\", KEYS[1], ARGV[1], \"PX\", ARGV[2]) end";
const RUBY_RELEASE: &str =
    "if redis.call(\"get\", KEYS[1]) == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return 0 end";

/// RedisLockRegistry of Spring Integration.
const SPRING_TAKE: &str = "local lockClientId = redis.call('GET', KEYS[1]) if lockClientId == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true elseif not lockClientId then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end return false";
const SPRING_RELEASE: &str = "local lockClientId = redis.call('GET', KEYS[1]) if lockClientId == ARGV[1] then redis.call('UNLINK', KEYS[1]) return true end return false";

/// aioredlock takes and extends by one script.
const AIO_TAKE: &str = "local identifier = redis.call('get', KEYS[1]) if not identifier or identifier == ARGV[1] then return redis.call(\"set\", KEYS[1], ARGV[1], 'PX', ARGV[2]) else return redis.error_reply('ERROR') end";
const AIO_RELEASE: &str = "local identifier = redis.call('get', KEYS[1]) if not identifier then return redis.status_reply('OK') elseif identifier == ARGV[1] then return redis.call(\"del\", KEYS[1]) else return redis.error_reply('ERROR') end";
const AIO_LOOK: &str = "local identifier = redis.call('get', KEYS[1]) if not identifier then return redis.error_reply('ERROR') elseif identifier == ARGV[1] then return redis.call(\"TTL\", KEYS[1]) else return redis.error_reply('ERROR') end";

/// bsm/redislock, for several keys at once: value, length of the token in it, milliseconds.
const GO_TAKE: &str = "local function may_override() local offset = tonumber(ARGV[2]) for _, key in ipairs(KEYS) do if redis.call(\"getrange\", key, 0, offset - 1) ~= string.sub(ARGV[1], 1, offset) then return false end end return true end local args = {} for _, key in ipairs(KEYS) do table.insert(args, key) table.insert(args, ARGV[1]) end if redis.call(\"msetnx\", unpack(args)) ~= 1 then if may_override() == false then return false end redis.call(\"mset\", unpack(args)) end for _, key in ipairs(KEYS) do redis.call(\"pexpire\", key, ARGV[3]) end return redis.status_reply(\"OK\")";
const GO_EXTEND: &str = "for _, key in ipairs(KEYS) do if redis.call(\"get\", key) ~= ARGV[1] then return false end end for _, key in ipairs(KEYS) do redis.call(\"pexpire\", key, ARGV[2]) end return redis.status_reply(\"OK\")";
const GO_RELEASE: &str = "for _, key in ipairs(KEYS) do if redis.call(\"get\", key) ~= ARGV[1] then return false end end return redis.call(\"del\", unpack(KEYS))";

/// Symfony Lock, from 5.2 on: a sorted set of the tokens and their ends. The arguments are the token, and
/// milliseconds.
const PHP_TAKE: &str = "local key = KEYS[1] if redis.call('TYPE', key).ok == 'string' then return false end local now = redis.call('TIME') now = now[1] * 1000 + math.floor(now[2] / 1000) redis.call('ZREMRANGEBYSCORE', key, '-inf', now) if redis.call('ZSCORE', key, ARGV[1]) then if not redis.call('ZSCORE', key, '__write__') and redis.call('ZCOUNT', key, '-inf', '+inf') > 1 then return false end elseif redis.call('ZCOUNT', key, '-inf', '+inf') > 0 then return false end redis.call('ZADD', key, now + ARGV[2], ARGV[1]) redis.call('ZADD', key, now + ARGV[2], '__write__') redis.call('PEXPIREAT', key, redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]) return true";
const PHP_EXTEND: &str = "local key = KEYS[1] if redis.call('TYPE', key).ok == 'string' then return false end local now = redis.call('TIME') now = now[1] * 1000 + math.floor(now[2] / 1000) if not redis.call('ZSCORE', key, ARGV[1]) then return false end redis.call('ZADD', key, now + ARGV[2], ARGV[1]) if redis.call('ZSCORE', key, '__write__') then redis.call('ZADD', key, now + ARGV[2], '__write__') end redis.call('PEXPIREAT', key, redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]) return true";
const PHP_RELEASE: &str = "local key = KEYS[1] if redis.call('TYPE', key).ok == 'string' then return false end if not redis.call('ZSCORE', key, ARGV[1]) then return false end redis.call('ZREM', key, ARGV[1]) redis.call('ZREM', key, '__write__') local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] if nil ~= last then redis.call('PEXPIREAT', key, last) end return true";
const PHP_LOOK: &str = "local key = KEYS[1] if redis.call('TYPE', key).ok == 'string' then return false end local now = redis.call('TIME') now = now[1] * 1000 + math.floor(now[2] / 1000) redis.call('ZREMRANGEBYSCORE', key, '-inf', now) if redis.call('ZSCORE', key, ARGV[1]) then return true end return false";

const LIBRARIES: &[Library] = &[
    Library {
        name: "redis-py (`Lock`), django-redis (`lock`)",
        extend: Some(&["EVAL", LUA_EXTEND, "1", "KEY", "TOKEN", "30000"]),
        release: &["EVAL", LUA_RELEASE, "1", "KEY", "TOKEN"],
        ..LIBRARY
    },
    Library {
        name: "redlock-py, rslock, redis-semaphore, Laravel (`Cache::lock`)",
        extend: Some(EXTEND),
        ..LIBRARY
    },
    Library {
        name: "pottery (`Redlock`)",
        extend: Some(EXTEND),
        look: Some(&["EVAL", COMPARE_AND_LOOK, "1", "KEY", "TOKEN"]),
        ..LIBRARY
    },
    Library {
        name: "python-redis-lock",
        how: "`SET NX EX`; a list wakes the next client",
        take: &["SET", "KEY", "TOKEN", "NX", "EX", "30"],
        release: &["EVAL", UNLOCK, "2", "KEY", "lock-signal:job", "TOKEN", "1000"],
        ..LIBRARY
    },
    Library {
        name: "sherlock",
        how: "a script: `SETNX`, `EXPIRE`",
        take: &["EVAL", SHERLOCK, "1", "KEY", "TOKEN", "30"],
        ..LIBRARY
    },
    Library {
        name: "redlock (npm, 4 and 5)",
        how: "a script: `EXISTS`, `SET PX`",
        take: &["EVAL", NODE_TAKE, "1", "KEY", "TOKEN", "30000"],
        extend: Some(&["EVAL", NODE_EXTEND, "1", "KEY", "TOKEN", "30000"]),
        release: &["EVAL", NODE_RELEASE, "1", "KEY", "TOKEN"],
        ..LIBRARY
    },
    Library {
        name: "redlock-rb",
        how: "a script: `EXISTS`, `GET`, `SET PX`",
        take: &["EVAL", RUBY_TAKE, "1", "KEY", "TOKEN", "30000", "yes"],
        extend: Some(&["EVAL", RUBY_TAKE, "1", "KEY", "TOKEN", "30000", "no"]),
        release: &["EVAL", RUBY_RELEASE, "1", "KEY", "TOKEN"],
        missed: "a first extension that is late: it is the script that takes the lock",
        ..LIBRARY
    },
    Library {
        name: "Spring (`RedisLockRegistry`)",
        how: "a script: `GET`, `SET PX`",
        take: &["EVAL", SPRING_TAKE, "1", "KEY", "TOKEN", "30000"],
        extend: Some(EXTEND),
        release: &["EVAL", SPRING_RELEASE, "1", "KEY", "TOKEN"],
        has_one_token: true,
        ..LIBRARY
    },
    Library {
        name: "aioredlock",
        how: "a script: `GET`, `SET PX`",
        take: &["EVAL", AIO_TAKE, "1", "KEY", "TOKEN", "30000"],
        extend: Some(&["EVAL", AIO_TAKE, "1", "KEY", "TOKEN", "30000"]),
        release: &["EVAL", AIO_RELEASE, "1", "KEY", "TOKEN"],
        look: Some(&["EVAL", AIO_LOOK, "1", "KEY", "TOKEN"]),
        missed: "a first extension that is late: it is the script that takes the lock",
        ..LIBRARY
    },
    Library {
        name: "bsm/redislock (Go)",
        how: "a script: `MSETNX`, `PEXPIRE`",
        take: &["EVAL", GO_TAKE, "1", "KEY", "TOKEN", "36", "30000"],
        extend: Some(&["EVAL", GO_EXTEND, "1", "KEY", "TOKEN", "30000"]),
        release: &["EVAL", GO_RELEASE, "1", "KEY", "TOKEN"],
        ..LIBRARY
    },
    Library {
        name: "Redisson (`RLock`)",
        how: "a script: `EXISTS`, `HINCRBY`, `PEXPIRE`",
        take: &["EVAL", TAKE_HASH, "1", "KEY", "30000", "TOKEN"],
        extend: Some(&["EVAL", RENEW, "1", "KEY", "30000", "TOKEN"]),
        release: &[
            "EVAL",
            UNLOCK_HASH,
            "3",
            "KEY",
            "channel",
            "LATCH",
            "0",
            "30000",
            "TOKEN",
            "publish",
            "12000",
        ],
        missed: "a second release, since a renewal may come just behind the first",
        ..LIBRARY
    },
    Library {
        name: "Symfony Lock, from 5.2 on",
        how: "a script: `ZADD`, `PEXPIREAT`",
        take: &["EVAL", PHP_TAKE, "1", "KEY", "TOKEN", "30000"],
        extend: Some(&["EVAL", PHP_EXTEND, "1", "KEY", "TOKEN", "30000"]),
        release: &["EVAL", PHP_RELEASE, "1", "KEY", "TOKEN"],
        look: Some(&["EVAL", PHP_LOOK, "1", "KEY", "TOKEN"]),
        ..LIBRARY
    },
    Library {
        name: "ShedLock",
        extend: Some(&["SET", "KEY", "TOKEN", "XX", "PX", "30000"]),
        release: &["DEL", "KEY"],
        missed: "with a plain `DEL` (before `safeUpdate`): a release that is late on the next holder's connection",
        ..LIBRARY
    },
];

const KEY: &str = "lock:job";
/// Tokens as libraries make them, a new one for each lock.
const TOKENS: [&str; 6] = [
    "1b671a64-40d5-491e-99b0-da01ff1f3341",
    "2c1e9f70-83a2-4f1d-8a6b-5f0c9a3d7e42",
    "3d8e2b51-1c94-4b7e-b0d3-6a1f8c2e9d53",
    "4f7a3c62-5e18-4d9b-a2c6-7b0e1d4f8a64",
    "5a2b6d17-9f43-4c8e-8d71-2e5f0b9c3a18",
    "6c9e0f84-2d57-4a1b-9e36-8f4d7a1b5c90",
];

impl Library {
    fn send(&self, client: &mut Client, call: &[&str], token: &str) -> Reply {
        // Redisson's release has a number of its own.
        let latch = format!("latch:{}", fastrand::u64(..));
        let filled = call.iter().map(|word| match *word {
            "KEY" => KEY,
            "TOKEN" => token,
            "LATCH" => latch.as_str(),
            word => word,
        });
        client.cmd(filled).reply()
    }

    fn is_hash(&self) -> bool {
        self.take.contains(&TAKE_HASH)
    }

    fn is_collection(&self) -> bool {
        self.is_hash() || self.take.contains(&PHP_TAKE)
    }

    fn compares(&self) -> bool {
        self.release[0] == "EVAL"
    }

    /// Takes the lock; returns whether the client holds it.
    fn takes(&self, client: &mut Client, token: &str) -> bool {
        match self.send(client, self.take, token) {
            // Redisson answers with the time that is left, if another client has it.
            reply if self.is_hash() => reply == Reply::Null,
            Reply::Error(_) | Reply::Null | Reply::Integer(0) => false,
            _ => true,
        }
    }

    fn release(&self, client: &mut Client, token: &str) {
        self.send(client, self.release, token);
    }
}

#[track_caller]
fn is_held_by(observer: &mut Client, name: &str, refused: i64) {
    let lock = observer.cmd(["LOCKS", "GET", KEY]).reply();
    assert_eq!((text(&lock, "state"), text(&lock, "holder.name")), ("held".into(), name.to_owned()));
    assert_eq!(integer(&lock, "refused"), refused);
    assert_eq!(observer.line("LOCKS LIST").items().len(), 1);
}

#[test]
fn correct_use_is_seen_and_nothing_is_found() {
    for library in LIBRARIES {
        let (mut observer, [mut a, mut pooled, mut b], _server) = frozen(["a", "pooled", "b"]);
        let mut refused = 0;
        for round in 0..3 {
            let [one, other] = match library.has_one_token {
                true => [TOKENS[0], TOKENS[1]],
                false => [TOKENS[2 * round], TOKENS[2 * round + 1]],
            };
            assert!(library.takes(&mut a, one), "{}", library.name);
            for _ in 0..2 {
                refused += 1;
                assert!(!library.takes(&mut b, other), "{}", library.name);
                is_held_by(&mut observer, "a", refused);
            }
            observer.line("CLOCK ADVANCE 20000").is_ok();
            // A client that did not get it cleans up all the same, if its release compares.
            if library.compares() {
                library.release(&mut b, other);
            }
            if let Some(extend) = library.extend {
                library.send(&mut pooled, extend, one);
                observer.line("CLOCK ADVANCE 20000").is_ok();
            }
            library.look.iter().for_each(|look| _ = library.send(&mut a, look, one));
            let releasing = if library.compares() { &mut pooled } else { &mut a };
            library.release(releasing, one);
            // A watchdog may renew what was just released, and a client may ask whether it holds it.
            if let Some(extend) = library.extend
                && extend != library.take
                && !extend.contains(&RUBY_TAKE)
            {
                library.send(&mut pooled, extend, one);
            }
            library.look.iter().for_each(|look| _ = library.send(&mut a, look, one));
            assert_eq!(observer.cmd(["EXISTS", KEY]).integer(), 0, "{}", library.name);
            assert!(library.takes(&mut b, other), "{}", library.name);
            is_held_by(&mut observer, "b", refused);
            library.look.iter().for_each(|look| _ = library.send(&mut a, look, one));
            library.release(&mut b, other);
        }
        assert_eq!(findings(&mut observer), [], "{}", library.name);
        let stats = observer.line("LOCKS STATS").reply();
        let counts = ["taken", "released", "refused", "held"].map(|name| integer(&stats, name));
        assert_eq!(counts, [6, 6, 6, 0], "{}", library.name);
    }
}

#[test]
fn a_lock_that_expired_may_be_taken_again_by_the_same_client() {
    for library in LIBRARIES {
        let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
        for _ in 0..3 {
            // A client that crashed, and comes up again. Its token may be the one that it had.
            assert!(library.takes(&mut a, TOKENS[0]));
            observer.line("CLOCK ADVANCE 31000").is_ok();
        }
        assert!(library.takes(&mut b, TOKENS[1]));
        assert!(!library.takes(&mut a, TOKENS[0]));
        is_held_by(&mut observer, "b", 1);
        assert_eq!(findings(&mut observer), [], "{}", library.name);
    }
}

#[test]
fn a_lock_that_a_fault_takes_is_no_misuse_and_its_holder_is_late_as_any_other() {
    for library in LIBRARIES {
        let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
        observer.line("FAULT ADD CLIENT a MATCH lock:* TIMES 1 LOSE-LOCK AFTER 15000").is(1);
        assert!(library.takes(&mut a, TOKENS[0]));
        observer.line("CLOCK ADVANCE 14999").is_ok();
        library.extend.iter().for_each(|extend| _ = library.send(&mut a, extend, TOKENS[0]));
        assert!(!library.takes(&mut b, TOKENS[1]), "{}", library.name);
        observer.line("CLOCK ADVANCE 1").is_ok();
        assert_eq!(observer.cmd(["EXISTS", KEY]).integer(), 0, "{}", library.name);
        assert!(library.takes(&mut b, TOKENS[1]), "{}", library.name);
        is_held_by(&mut observer, "b", 1);
        assert_eq!(findings(&mut observer), [], "{}", library.name);
        library.release(&mut a, TOKENS[0]);
        let rule = if library.compares() { "expired-while-held" } else { "deleted-by-another" };
        is_found(&mut observer, &[(rule, &["a", "b"])]);
        assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "expired"), 1, "{}", library.name);
    }
}

#[test]
fn a_holder_that_is_late_is_found() {
    for library in LIBRARIES {
        for is_taken in [false, true] {
            let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
            assert!(library.takes(&mut a, TOKENS[0]));
            observer.line("CLOCK ADVANCE 31000").is_ok();
            if is_taken {
                assert!(library.takes(&mut b, TOKENS[1]));
            }
            library.release(&mut a, TOKENS[0]);
            let rule = match is_taken && !library.compares() {
                true => "deleted-by-another",
                false => "expired-while-held",
            };
            let involved: &[&str] = if is_taken { &["a", "b"] } else { &["a"] };
            is_found(&mut observer, &[(rule, involved)]);
        }
    }
}

#[test]
fn a_holder_that_is_late_is_found_though_a_process_has_one_connection() {
    for library in LIBRARIES.iter().filter(|library| library.compares()) {
        let (mut observer, [mut process], _server) = frozen(["process"]);
        assert!(library.takes(&mut process, TOKENS[0]));
        observer.line("CLOCK ADVANCE 31000").is_ok();
        assert!(library.takes(&mut process, TOKENS[1]));
        library.release(&mut process, TOKENS[0]);
        is_found(&mut observer, &[("expired-while-held", &["process"])]);
        library.release(&mut process, TOKENS[1]);
        assert_eq!(findings(&mut observer).len(), 1, "{}", library.name);
    }
}

#[test]
fn an_extension_that_is_late_is_found() {
    for library in LIBRARIES {
        let Some(extend) = library.extend else { continue };
        for is_first in [true, false] {
            let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
            assert!(library.takes(&mut a, TOKENS[0]));
            if !is_first {
                library.send(&mut a, extend, TOKENS[0]);
            }
            observer.line("CLOCK ADVANCE 31000").is_ok();
            assert!(library.takes(&mut b, TOKENS[1]));
            library.send(&mut a, extend, TOKENS[0]);
            match () {
                () if is_first && library.missed.contains("first extension") => {
                    is_found(&mut observer, &[]);
                }
                // It does not compare: it writes its token over the other's.
                () if extend[0] == "SET" => {
                    is_found(&mut observer, &[("overwritten-by-another", &["a", "b"])]);
                }
                () => is_found(&mut observer, &[("expired-while-held", &["a", "b"])]),
            }
        }
    }
}

#[test]
fn a_lock_that_another_deletes_is_found() {
    for library in LIBRARIES {
        let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
        assert!(library.takes(&mut a, TOKENS[0]));
        assert!(!library.takes(&mut b, TOKENS[1]));
        match library.is_hash() {
            true => b.cmd(["EVAL", FORCE, "2", KEY, "channel", "0", "publish"]).is(1),
            false => b.cmd(["DEL", KEY]).is(1),
        }
        is_found(&mut observer, &[("deleted-by-another", &["b", "a"])]);
    }
}

#[test]
fn a_lock_that_another_overwrites_is_found() {
    for library in LIBRARIES {
        // The heartbeat of a holder that is late, and a client that takes the lock without asking.
        for is_late in [true, false] {
            let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
            if is_late {
                assert!(library.takes(&mut a, TOKENS[0]));
                observer.line("CLOCK ADVANCE 31000").is_ok();
            }
            assert!(library.takes(&mut b, TOKENS[1]));
            a.cmd(["SET", KEY, TOKENS[0], "PX", "30000"]).is_ok();
            let rule = if library.is_collection() { "deleted-by-another" } else { "overwritten-by-another" };
            is_found(&mut observer, &[(rule, &["a", "b"])]);
            if !library.is_collection() {
                let lock = observer.cmd(["LOCKS", "GET", KEY]).reply();
                assert_eq!(text(&lock, "holder.name"), "a");
                assert_eq!(text(&array(&lock, "past")[0], "state"), "overwritten-by-another");
            }
        }
    }
}

#[test]
fn a_lock_that_another_prolongs_is_found() {
    for library in LIBRARIES {
        for line in
            ["EXPIRE lock:job 600", "PEXPIRE lock:job 60000", "PERSIST lock:job", "GETEX lock:job EX 900"]
        {
            if library.is_collection() && line.starts_with("GETEX") {
                continue;
            }
            let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
            assert!(library.takes(&mut a, TOKENS[0]));
            assert!(!library.takes(&mut b, TOKENS[1]));
            b.line(line).ignored();
            is_found(&mut observer, &[("extended-by-another", &["b", "a"])]);
        }
    }
}

#[test]
fn a_lock_that_is_lost_under_its_holder_is_found() {
    for library in LIBRARIES {
        for is_taken in [false, true] {
            let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
            assert!(library.takes(&mut a, TOKENS[0]));
            observer.line("FLUSHALL").is_ok();
            let shown = observer.cmd(["LOCKS", "GET", KEY]).reply();
            assert_eq!(text(&shown, "state"), "flushed");
            assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), 0);
            if is_taken {
                assert!(library.takes(&mut b, TOKENS[1]));
            }
            library.release(&mut a, TOKENS[0]);
            let rule = match is_taken && !library.compares() {
                true => "deleted-by-another",
                false => "lost-while-held",
            };
            let involved: &[&str] = if is_taken { &["a", "b"] } else { &["a"] };
            is_found(&mut observer, &[(rule, involved)]);
        }
    }
}

#[test]
fn a_second_release_is_found() {
    for library in LIBRARIES {
        let (mut observer, [mut a], _server) = frozen(["a"]);
        assert!(library.takes(&mut a, TOKENS[0]));
        library.release(&mut a, TOKENS[0]);
        library.release(&mut a, TOKENS[0]);
        match library.missed.contains("second release") {
            true => is_found(&mut observer, &[]),
            false => is_found(&mut observer, &[("released-twice", &["a"])]),
        }
        if library.compares() && !library.missed.contains("second release") {
            let finding = observer.line("LOCKS LOG").items().remove(0);
            assert!(text(&finding, "hint").contains("does no harm"), "{}", library.name);
        }
    }
}

/// The page's table has a row for each library, which says what these tests have shown.
#[test]
fn the_page_has_a_row_for_each_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/locks.md");
    let page = fs::read_to_string(path).expect("the page");
    for Library { name, how, missed, .. } in LIBRARIES {
        let found = if missed.is_empty() { "all".to_owned() } else { format!("all but {missed}") };
        let row = format!("| {name} | {how} | yes | {found} |");
        assert!(page.contains(&row), "the page has no row\n{row}");
    }
}
