//! Locks that are no strings: the hash of Redisson, whose value is the depth of re-entrance, and the list by
//! which python-redis-lock wakes the next holder. The scripts are those that the clients send.

use crate::locks::{findings, frozen, is_found, locksmiths};
use support::client::{Client, Reply};
use support::folder::Folder;
use support::replies::{array, field, integer, text};
use support::server::{Server, wait_until};

/// Redisson 3.17 to 4: takes a lock, or takes it once more. Keys: the lock. Then milliseconds and the token.
pub(crate) const TAKE: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";
/// Redisson before that.
const TAKE_BEFORE: &str = "if (redis.call('exists', KEYS[1]) == 0) then redis.call('hset', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";
/// Keys: the lock, the channel, and where the result is kept for a client that sends the script again.
pub(crate) const RELEASE: &str = "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; ";
/// Keys: some locks. Then milliseconds, and a token for each.
pub(crate) const RENEW: &str = "local result = {} for i = 1, #KEYS, 1 do if (redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1) then redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); else table.insert(result, 0); end; end; return result;";
pub(crate) const FORCE: &str = "if (redis.call('del', KEYS[1]) == 1) then redis.call(ARGV[2], KEYS[2], ARGV[1]); return 1 else return 0 end";

/// python-redis-lock 4.0.1. Keys: the lock and the list. Then the token, and the milliseconds of the list.
pub(crate) const UNLOCK: &str = r#"
    if redis.call("get", KEYS[1]) ~= ARGV[1] then
        return 1
    else
        redis.call("del", KEYS[2])
        redis.call("lpush", KEYS[2], 1)
        redis.call("pexpire", KEYS[2], ARGV[2])
        redis.call("del", KEYS[1])
        return 0
    end
"#;

const ONE: &str = "32caba5f-41e2-4a0d-9b6a-5d3c1f2e7a90:1";
const OTHER: &str = "9d1f0c7e-7b52-4c11-8f7e-0a4f6f1b2c3d:77";

fn take(client: &mut Client, lock: &str, token: &str) -> Reply {
    client.cmd(["EVAL", TAKE, "1", lock, "30000", token]).reply()
}

fn release(client: &mut Client, lock: &str, token: &str) -> Reply {
    let channel = format!("redisson_lock__channel:{{{lock}}}");
    // Each release has a number of its own; the same one would be a release that is sent again.
    let latch = format!("redisson_unlock_latch:{{{lock}}}:{}", fastrand::u64(..));
    client
        .cmd(["EVAL", RELEASE, "3", lock, &channel, &latch, "0", "30000", token, "publish", "12000"])
        .reply()
}

#[track_caller]
fn shown(observer: &mut Client, lock: &str) -> Reply {
    observer.cmd(["LOCKS", "GET", lock]).reply()
}

fn timeline(lock: &Reply) -> Vec<String> {
    // Without the time and the client.
    let steps = array(lock, "timeline").into_iter().map(|step| match step {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => panic!("{other}"),
    });
    steps.map(|step| step.split("): ").nth(1).unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_hash_tells_its_holder_and_how_often_he_has_taken_it() {
    for script in [TAKE, TAKE_BEFORE] {
        let (mut observer, [mut holder, mut other], _server) = frozen(["holder", "other"]);
        let id = holder.line("CLIENT ID").integer();
        holder.cmd(["EVAL", script, "1", "lock", "30000", ONE]).is_nil();
        let lock = shown(&mut observer, "lock");
        assert_eq!((text(&lock, "state"), text(&lock, "owner")), ("held".to_owned(), ONE.to_owned()));
        assert_eq!((integer(&lock, "holder.id"), integer(&lock, "depth")), (id, 1));
        assert_eq!(integer(&lock, "expires-in-ms"), 30_000);
        let by = if script == TAKE { "hincrby" } else { "hset" };
        assert_eq!(text(&lock, "taken-by"), by);
        assert_eq!(timeline(&lock), [format!("{} in a script took it", by.to_uppercase())]);

        observer.line("CLOCK ADVANCE 10000").is_ok();
        holder.cmd(["EVAL", script, "1", "lock", "30000", ONE]).is_nil();
        other.cmd(["EVAL", script, "1", "lock", "30000", OTHER]).is(30_000);
        other.cmd(["EVAL", script, "1", "lock", "30000", OTHER]).is(30_000);
        let lock = shown(&mut observer, "lock");
        assert_eq!((integer(&lock, "depth"), integer(&lock, "refused")), (2, 2));
        assert_eq!((integer(&lock, "held-ms"), integer(&lock, "expires-in-ms")), (10_000, 30_000));
        let refused = array(&lock, "refused-clients");
        assert_eq!((text(&refused[0], "client.name"), integer(&refused[0], "times")), ("other".into(), 2));
        assert_eq!(text(&observer.line("LOCKS LIST MATCH l*").items()[0], "owner"), ONE);

        assert_eq!(release(&mut holder, "lock", ONE), Reply::Integer(0));
        assert_eq!(integer(&shown(&mut observer, "lock"), "depth"), 1);
        assert_eq!(release(&mut holder, "lock", ONE), Reply::Integer(1));
        let lock = shown(&mut observer, "lock");
        assert_eq!((text(&lock, "state"), integer(&lock, "depth")), ("released".to_owned(), 0));
        let steps = timeline(&lock);
        assert_eq!(
            steps[1..],
            [
                "HINCRBY in a script took it once more",
                "PEXPIRE in a script set its expiry",
                "HEXISTS in a script was refused, 2 times",
                "HINCRBY in a script released it, not for the last time",
                "PEXPIRE in a script set its expiry",
                "DEL in a script released it",
            ]
        );
        is_found(&mut observer, &[]);
        let stats = observer.line("LOCKS STATS").reply();
        for (name, expected) in
            [("taken", 1), ("reentered", 1), ("refused", 2), ("released", 1), ("held", 0), ("woken", 0)]
        {
            assert_eq!(integer(&stats, name), expected, "{name}");
        }
        assert_eq!(observer.info("locks_reentered"), "1");
        assert_eq!(take(&mut other, "lock", OTHER), Reply::Null);
        let lock = shown(&mut observer, "lock");
        assert_eq!((text(&lock, "owner"), text(&lock, "holder.name")), (OTHER.into(), "other".into()));
        assert_eq!(text(&array(&lock, "past")[0], "owner"), ONE);
        is_found(&mut observer, &[]);
    }
}

#[test]
fn a_connection_of_the_same_pool_is_the_holder_by_its_token() {
    let (mut observer, [mut one, mut two], _server) = locksmiths(["one", "two"]);
    for _ in 0..2 {
        take(&mut one, "lock", ONE);
        take(&mut two, "lock", ONE);
        let renewed = two.cmd(["EVAL", RENEW, "1", "lock", "30000", ONE]).items();
        assert_eq!(renewed, [Reply::Integer(1)]);
        assert_eq!(integer(&shown(&mut observer, "lock"), "depth"), 2);
        assert_eq!(release(&mut two, "lock", ONE), Reply::Integer(0));
        assert_eq!(release(&mut two, "lock", ONE), Reply::Integer(1));
        assert_eq!(text(&shown(&mut observer, "lock"), "state"), "released");
    }
    is_found(&mut observer, &[]);
}

#[test]
fn many_locks_are_renewed_at_once_by_their_holder() {
    let (mut observer, [mut one, mut two], _server) = locksmiths(["one", "two"]);
    let locks: Vec<String> = (0..100).map(|number| format!("lock:{number}")).collect();
    let tokens: Vec<String> = (0..100).map(|number| format!("{}:{number}", &ONE[..36])).collect();
    for (lock, token) in locks.iter().zip(&tokens) {
        take(&mut one, lock, token);
    }
    let mut renew = vec!["EVAL", RENEW, "100"];
    renew.extend(locks.iter().map(String::as_str));
    renew.push("30000");
    renew.extend(tokens.iter().map(String::as_str));
    assert_eq!(two.cmd(renew).items(), vec![Reply::Integer(1); 100]);
    let steps = timeline(&shown(&mut observer, "lock:99"));
    assert_eq!(steps, ["HINCRBY in a script took it", "PEXPIRE in a script set its expiry"]);
    is_found(&mut observer, &[]);
}

#[test]
fn a_hash_that_lasted_too_short_is_found_when_its_holder_comes_back() {
    for comes_back in ["release", "renewal"] {
        for is_taken in [false, true] {
            let (mut observer, [mut holder, mut next], _server) = frozen(["holder", "next"]);
            take(&mut holder, "lock", ONE);
            observer.line("CLOCK ADVANCE 30000").is_ok();
            if is_taken {
                assert_eq!(take(&mut next, "lock", OTHER), Reply::Null);
            }
            match comes_back {
                "release" => assert_eq!(release(&mut holder, "lock", ONE), Reply::Null),
                _ => holder
                    .cmd(["EVAL", RENEW, "1", "lock", "30000", ONE])
                    .is(Reply::Array(vec![Reply::Integer(0)])),
            }
            let involved: &[&str] = if is_taken { &["holder", "next"] } else { &["holder"] };
            is_found(&mut observer, &[("expired-while-held", involved)]);
            let state = text(&shown(&mut observer, "lock"), "state");
            assert_eq!(state, if is_taken { "held" } else { "expired" });
        }
    }
}

#[test]
fn threads_that_share_a_connection_are_told_apart() {
    let (mut observer, [mut pool], _server) = frozen(["pool"]);
    take(&mut pool, "lock", ONE);
    observer.line("CLOCK ADVANCE 30000").is_ok();
    take(&mut pool, "lock", OTHER);
    assert_eq!(release(&mut pool, "lock", ONE), Reply::Null);
    is_found(&mut observer, &[("expired-while-held", &["pool"])]);
    assert_eq!(text(&shown(&mut observer, "lock"), "owner"), OTHER);
    assert_eq!(release(&mut pool, "lock", OTHER), Reply::Integer(1));
    assert_eq!(findings(&mut observer).len(), 1);
}

#[test]
fn a_hash_that_expired_may_be_taken_anew_by_the_same_thread() {
    for script in [TAKE, TAKE_BEFORE] {
        let (mut observer, [mut one, mut other], _server) = frozen(["one", "other"]);
        let take = |client: &mut Client, token: &str| {
            client.cmd(["EVAL", script, "1", "lock", "30000", token]).reply()
        };
        for _ in 0..3 {
            assert_eq!(take(&mut one, ONE), Reply::Null);
            observer.line("CLOCK ADVANCE 30000").is_ok();
        }
        // It waits behind another, too.
        assert_eq!(take(&mut other, OTHER), Reply::Null);
        assert_eq!(take(&mut one, ONE), Reply::Integer(30_000));
        observer.line("CLOCK ADVANCE 29999").is_ok();
        assert_eq!(take(&mut one, ONE), Reply::Integer(1));
        assert_eq!(integer(&shown(&mut observer, "lock"), "refused"), 2);
        is_found(&mut observer, &[]);
        assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "expired"), 3);
    }
}

#[test]
fn a_hash_that_another_deletes_is_found() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    for deletion in ["DEL lock", "SET lock x", "RENAME lock elsewhere", "HDEL lock token-of-one"] {
        observer.line("FLUSHALL").is_ok();
        observer.line("LOCKS RESET").is_ok();
        assert_eq!(take(&mut holder, "lock", "token-of-one"), Reply::Null);
        if deletion.starts_with("HDEL") {
            // Who names the token knows it.
            other.line(deletion).is(1);
            is_found(&mut observer, &[]);
            assert_eq!(text(&shown(&mut observer, "lock"), "state"), "released");
            continue;
        }
        other.line(deletion).ignored();
        is_found(&mut observer, &[("deleted-by-another", &["other", "holder"])]);
        assert_eq!(text(&shown(&mut observer, "lock"), "state"), "deleted-by-another");
    }
    observer.line("FLUSHALL").is_ok();
    observer.line("LOCKS RESET").is_ok();
    take(&mut holder, "lock", ONE);
    other.cmd(["EVAL", FORCE, "2", "lock", "channel", "0", "publish"]).is(1);
    is_found(&mut observer, &[("deleted-by-another", &["other", "holder"])]);
    assert_eq!(release(&mut holder, "lock", ONE), Reply::Null);
    assert_eq!(findings(&mut observer).len(), 1);
}

#[test]
fn a_release_by_one_who_has_never_held_a_hash_is_no_finding() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    take(&mut holder, "lock", ONE);
    assert_eq!(release(&mut other, "lock", OTHER), Reply::Null);
    let lock = shown(&mut observer, "lock");
    assert_eq!((text(&lock, "state"), integer(&lock, "refused")), ("held".to_owned(), 0));
    assert_eq!(timeline(&lock)[1], "HEXISTS in a script found another's value");
    // A renewal may come after the release.
    assert_eq!(release(&mut holder, "lock", ONE), Reply::Integer(1));
    holder.cmd(["EVAL", RENEW, "1", "lock", "30000", ONE]).is(Reply::Array(vec![Reply::Integer(0)]));
    is_found(&mut observer, &[]);
}

#[test]
fn a_hash_is_a_lock_in_exec_as_well() {
    let (mut observer, [mut one, mut other], _server) = locksmiths(["one", "other"]);
    for line in ["MULTI", "HINCRBY lock:a me 1", "PEXPIRE lock:a 30000"] {
        one.line(line).ignored();
    }
    one.cmd(["EVAL", TAKE, "1", "lock:b", "30000", ONE]).is_simple("QUEUED");
    one.cmd(["EVAL", TAKE, "1", "lock:b", "30000", ONE]).is_simple("QUEUED");
    let channel = "redisson_lock__channel:{lock:c}";
    one.cmd(["EVAL", TAKE, "1", "lock:c", "30000", ONE]).is_simple("QUEUED");
    one.cmd(["EVAL", RELEASE, "3", "lock:c", channel, "latch", "0", "30000", ONE, "publish", "12000"])
        .is_simple("QUEUED");
    assert_eq!(one.line("EXEC").items().len(), 6);
    let lock = shown(&mut observer, "lock:a");
    assert_eq!((text(&lock, "owner"), integer(&lock, "depth")), ("me".to_owned(), 1));
    assert_eq!(timeline(&lock), ["HINCRBY took it"]);
    assert_eq!(integer(&shown(&mut observer, "lock:b"), "depth"), 2);
    assert_eq!(text(&shown(&mut observer, "lock:c"), "state"), "released");
    assert!(matches!(take(&mut other, "lock:b", OTHER), Reply::Integer(1..)));
    assert_eq!(integer(&shown(&mut observer, "lock:b"), "refused"), 1);
    is_found(&mut observer, &[]);
}

#[test]
fn a_hash_that_is_not_made_as_a_lock_is_none() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    client.line("HSET plain one 1").is(1);
    client.line("EXPIRE plain 100").is(1);
    for (key, script) in [
        ("without-expiry", "redis.call('hset', KEYS[1], ARGV[1], 1)"),
        (
            "two-fields",
            "redis.call('hset', KEYS[1], ARGV[1], 1, 'mode', 'read') redis.call('expire', KEYS[1], 9)",
        ),
        ("text", "redis.call('hset', KEYS[1], ARGV[1], 'x') redis.call('expire', KEYS[1], 9)"),
        ("zero", "redis.call('hset', KEYS[1], ARGV[1], 0) redis.call('expire', KEYS[1], 9)"),
        ("many", "redis.call('hset', KEYS[1], ARGV[1], 5) redis.call('expire', KEYS[1], 9)"),
        ("own-field", "redis.call('hincrby', KEYS[1], 'count', 1) redis.call('expire', KEYS[1], 9)"),
        ("set", "redis.call('sadd', KEYS[1], ARGV[1]) redis.call('expire', KEYS[1], 9)"),
        ("there", "redis.call('expire', KEYS[1], 9)"),
        ("persisted", "redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('persist', KEYS[1])"),
        (
            "another",
            "redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('hset', 'n', 'x', 1) redis.call('expire', KEYS[1], 9)",
        ),
        ("over", "redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('expire', KEYS[1], -1)"),
    ] {
        if key == "there" {
            client.cmd(["HSET", key, "token", "1"]).is(1);
        }
        client.cmd(["EVAL", script, "1", key, "token"]).is_nil();
        observer.cmd(["LOCKS", "GET", key]).is_nil();
    }
    observer.line("LOCKS GET plain").is_nil();
    assert_eq!(observer.line("LOCKS LIST").items(), []);
    // One that becomes something else is a lock no longer.
    for change in
        ["HSET lock other 1", "HSET lock token text", "HINCRBYFLOAT lock token 0.5", "HINCRBY lock token -9"]
    {
        take(&mut client, "lock", "token");
        assert_eq!(observer.line("LOCKS LIST").items().len(), 1);
        client.line(change).ignored();
        observer.line("LOCKS GET lock").is_nil();
        assert_eq!(observer.line("LOCKS LIST").items(), [], "{change}");
        client.line("DEL lock").is(1);
    }
    is_found(&mut observer, &[]);
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), 0);
}

#[test]
fn counters_of_a_limit_are_no_finding() {
    const LIMIT: &str = "local n = redis.call('hincrby', KEYS[1], ARGV[1], 1) if n == 1 then redis.call('pexpire', KEYS[1], 1000) end return n";
    const LOOKS_FIRST: &str = "if redis.call('hget', KEYS[1], ARGV[1]) then return redis.call('hincrby', KEYS[1], ARGV[1], 1) end redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], 1000) return 1";
    for script in [LIMIT, LOOKS_FIRST] {
        let (mut observer, [mut one, mut other], _server) = frozen(["one", "other"]);
        for round in 0..20 {
            for client in [&mut one, &mut other] {
                let count = client.cmd(["EVAL", script, "1", "limit", "user:7"]).integer();
                assert!(count > 0 && count <= 2, "{count} in round {round}");
            }
            observer.line("CLOCK ADVANCE 1000").is_ok();
        }
        is_found(&mut observer, &[]);
    }
}

#[test]
fn the_name_of_a_holder_is_cut_where_it_is_long() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    // Beyond 64 bytes a hash is a table, and beyond 1,024 an argument is no token.
    for (length, is_lock) in [(65, true), (128, true), (129, true), (1024, true), (1025, false)] {
        let token = "t".repeat(length);
        client.line("FLUSHALL").is_ok();
        assert_eq!(take(&mut client, "lock", &token), Reply::Null);
        if !is_lock {
            observer.line("LOCKS GET lock").is_nil();
            continue;
        }
        let owner = text(&shown(&mut observer, "lock"), "owner");
        let expected = match length {
            ..=128 => token.clone(),
            _ => format!("{}... ({} more bytes)", &token[..128], length - 128),
        };
        assert_eq!(owner, expected);
        take(&mut client, "lock", &token);
        assert_eq!(integer(&shown(&mut observer, "lock"), "depth"), 2);
        assert_eq!(release(&mut client, "lock", &token), Reply::Integer(0));
        assert_eq!(release(&mut client, "lock", &token), Reply::Integer(1));
        assert_eq!(text(&shown(&mut observer, "lock"), "state"), "released");
    }
    is_found(&mut observer, &[]);
}

#[test]
fn more_hashes_than_can_be_followed_are_counted() {
    let server = Server::start();
    let mut client = server.client3();
    const SCRIPT: &str = "for n = 1, 10000 do local key = ARGV[1] .. n redis.call('hset', key, ARGV[1], 1) redis.call('pexpire', key, 100000) end";
    client.cmd(["EVAL", SCRIPT, "0", "lock:"]).is_nil();
    let stats = client.line("LOCKS STATS").reply();
    assert!(integer(&stats, "followed") <= 4096);
    assert_eq!(integer(&stats, "taken") + integer(&stats, "unfollowed"), 10_000);
    client.cmd(["EVAL", "return redis.call('hincrby', KEYS[1], ARGV[1], 1)", "1", "lock:1", "lock:"]).is(2);
}

#[test]
fn after_a_restart_a_hash_is_followed_when_it_is_taken_again() {
    let folder = Folder::new("hash-locks");
    let options = ["--dir", &folder.file(""), "--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start_with(&options);
    let mut client = server.client3();
    take(&mut client, "lock", ONE);
    take(&mut client, "lock", ONE);
    let fencing = integer(&shown(&mut client, "lock"), "fencing");
    drop((client, server));
    let server = Server::start_with(&options);
    let mut client = server.client3();
    client.cmd(["HGET", "lock", ONE]).is("2");
    assert!((1..=30_000).contains(&client.line("PTTL lock").integer()));
    shown(&mut client, "lock");
    client.line("LOCKS GET lock").is_nil();
    assert_eq!(integer(&client.line("LOCKS STATS").reply(), "unfollowed"), 0);
    // What happens to it meanwhile is no lock's story.
    take(&mut client, "lock", ONE);
    client.line("LOCKS GET lock").is_nil();
    for depth in [0, 0, 1] {
        assert_eq!(release(&mut client, "lock", ONE), Reply::Integer(depth));
    }
    take(&mut client, "lock", OTHER);
    let lock = shown(&mut client, "lock");
    assert_eq!((text(&lock, "owner"), integer(&lock, "depth")), (OTHER.to_owned(), 1));
    assert!(integer(&lock, "fencing") > fencing);
    is_found(&mut client, &[]);
}

#[test]
fn resp2_tells_a_hash_in_a_flat_array() {
    let server = Server::start();
    let mut client = server.client();
    take(&mut client, "lock", ONE);
    let items = client.line("LOCKS GET lock").items();
    let after = |name: &str| {
        let at = items.iter().position(|item| *item == Reply::from(name)).expect("the name");
        items[at + 1].clone()
    };
    assert_eq!((after("owner"), after("depth")), (Reply::from(ONE), Reply::Integer(1)));
    assert_eq!((after("waiting-list"), after("waiting-clients")), (Reply::Null, Reply::Array(Vec::new())));
}

#[test]
fn a_string_has_neither_an_owner_nor_a_depth() {
    let (mut observer, [mut client], _server) = locksmiths(["client"]);
    client.line("SET lock t NX PX 60000").is_ok();
    let lock = shown(&mut observer, "lock");
    for name in ["owner", "depth", "waiting-list", "waiting"] {
        assert_eq!(field(&lock, name), Reply::Null, "{name}");
    }
    assert_eq!(integer(&lock, "woken"), 0);
}

#[test]
fn those_who_wait_for_the_list_of_a_lock_are_told() {
    let (mut observer, [mut holder, mut next, mut last], _server) = locksmiths(["holder", "next", "last"]);
    holder.line("SET lock:job one NX EX 100").is_ok();
    assert_eq!(field(&shown(&mut observer, "lock:job"), "waiting-list"), Reply::Null);
    for (client, token, count) in [(&mut next, "two", 1), (&mut last, "three", 2)] {
        client.cmd(["SET", "lock:job", token, "NX", "EX", "100"]).is_nil();
        client.send(b"*3\r\n$5\r\nBLPOP\r\n$15\r\nlock-signal:job\r\n$3\r\n100\r\n");
        wait_until("the clients wait", || observer.info("blocked_clients") == count.to_string());
    }
    let names = |lock: &Reply| -> Vec<String> {
        array(lock, "waiting-clients").iter().map(|client| text(client, "name")).collect()
    };
    let lock = shown(&mut observer, "lock:job");
    assert_eq!((text(&lock, "waiting-list"), integer(&lock, "waiting")), ("lock-signal:job".to_owned(), 2));
    assert_eq!((names(&lock), integer(&lock, "refused")), (vec!["next".to_owned(), "last".to_owned()], 2));
    let listed = observer.line("LOCKS LIST").items();
    assert_eq!(names(&listed[0]), ["next", "last"]);
    for line in ["MULTI", "LOCKS GET lock:job"] {
        observer.line(line).ignored();
    }
    assert_eq!(names(&observer.line("EXEC").items()[0]), ["next", "last"]);

    holder.cmd(["EVAL", UNLOCK, "2", "lock:job", "lock-signal:job", "one", "1000"]).is(0);
    next.reply().is(Reply::Array(vec![Reply::from("lock-signal:job"), Reply::from("1")]));
    next.line("SET lock:job two NX EX 100").is_ok();
    let lock = shown(&mut observer, "lock:job");
    assert_eq!((text(&lock, "holder.name"), integer(&lock, "woken")), ("next".to_owned(), 1));
    assert_eq!(names(&lock), ["last"]);
    next.cmd(["EVAL", UNLOCK, "2", "lock:job", "lock-signal:job", "two", "1000"]).is(0);
    last.reply().is(Reply::Array(vec![Reply::from("lock-signal:job"), Reply::from("1")]));
    let lock = shown(&mut observer, "lock:job");
    assert_eq!((integer(&lock, "woken"), integer(&lock, "waiting")), (2, 0));
    assert_eq!(text(&lock, "waiting-list"), "lock-signal:job");
    is_found(&mut observer, &[]);
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "woken"), 2);
}

#[test]
fn a_release_shows_its_list_whatever_the_names_are() {
    let (mut observer, [mut holder, mut next], _server) = locksmiths(["holder", "next"]);
    holder.line("SET mutex one NX EX 100").is_ok();
    next.send(b"*3\r\n$5\r\nBLPOP\r\n$4\r\nwake\r\n$3\r\n100\r\n");
    wait_until("the client waits", || observer.info("blocked_clients") == "1");
    assert_eq!(field(&shown(&mut observer, "mutex"), "waiting-list"), Reply::Null, "it is not known yet");
    for line in ["MULTI", "RPUSH wake 1", "EXPIRE wake 1", "DEL mutex", "EXEC"] {
        holder.line(line).ignored();
    }
    next.reply().is(Reply::Array(vec![Reply::from("wake"), Reply::from("1")]));
    assert_eq!(text(&shown(&mut observer, "mutex"), "waiting-list"), "wake");
    // A job that is added when a lock is released is no such list.
    for line in ["SET other one NX EX 100", "MULTI", "RPUSH jobs 1", "DEL other", "EXEC"] {
        holder.line(line).ignored();
    }
    assert_eq!(field(&shown(&mut observer, "other"), "waiting-list"), Reply::Null);
    is_found(&mut observer, &[]);
}

#[test]
fn a_lock_with_a_list_that_lasted_too_short_is_found() {
    let (mut observer, [mut holder, mut next], _server) = frozen(["holder", "next"]);
    holder.line("SET lock:job one NX EX 10").is_ok();
    observer.line("CLOCK ADVANCE 10000").is_ok();
    next.line("SET lock:job two NX EX 10").is_ok();
    holder.cmd(["EVAL", UNLOCK, "2", "lock:job", "lock-signal:job", "one", "1000"]).is(1);
    is_found(&mut observer, &[("expired-while-held", &["holder", "next"])]);
    assert_eq!(integer(&shown(&mut observer, "lock:job"), "woken"), 0);
}

/// Huey's lock_task: a field without an expiry, in a hash with other data.
#[test]
fn a_field_that_hsetnx_sets_is_a_lock_if_its_name_says_so() {
    let (mut observer, [mut one, mut two], _server) = locksmiths(["one", "two"]);
    one.line("HSET results task-1 done lock-count 7").is(2);
    one.line("HSETNX results app.lock.report 1").is(1);
    one.line("HSETNX results name Huey").is(1);
    two.line("HSETNX results app.lock.report 1").is(0);
    let listed = observer.line("LOCKS LIST").items();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(
        (text(&listed[0], "key"), text(&listed[0], "field")),
        ("results".into(), "app.lock.report".into())
    );
    assert_eq!((text(&listed[0], "holder.name"), integer(&listed[0], "refused")), ("one".into(), 1));
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), 1);
    assert_eq!(text(&array(&listed[0], "refused-clients")[0], "client.name"), "two");
    // It is released, by whatever connection, and taken again.
    two.line("HDEL results app.lock.report task-1").is(2);
    assert_eq!(observer.line("LOCKS LIST").items(), []);
    two.line("HSETNX results app.lock.report 1").is(1);
    assert_eq!(text(&observer.line("LOCKS LIST").items()[0], "holder.name"), "two");
    // However it goes, it is gone.
    for line in [
        "HSET results app.lock.report 2",
        "HGETDEL results FIELDS 1 app.lock.report",
        "DEL results",
        "FLUSHALL",
        "HPEXPIRE results 1 FIELDS 1 app.lock.report",
        "SET results text",
        "RENAME results elsewhere",
    ] {
        one.line("DEL results").ignored();
        one.line("HSETNX results app.lock.report 1").is(1);
        let is_kept = line.starts_with("HSET");
        two.line(line).ignored();
        wait_until(line, || observer.line("LOCKS LIST").items().len() == usize::from(is_kept));
        assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), i64::from(is_kept), "{line}");
    }
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn a_field_that_its_holder_leaves_behind_is_found_when_the_next_client_is_refused() {
    for (ends, expected) in [
        ("", true),
        ("EXPIRE results 60", false),
        ("HEXPIRE results 60 FIELDS 1 app.lock.report", false),
        ("HDEL results app.lock.report", false),
    ] {
        let (mut observer, [mut one, mut two, mut three], _server) = locksmiths(["one", "two", "three"]);
        one.line("HSETNX results app.lock.report 1").is(1);
        two.line("HSETNX results app.lock.report 1").is(0);
        if !ends.is_empty() {
            one.line(ends).ignored();
        }
        drop(one);
        wait_until("it has left", || observer.info("connected_clients") == "3");
        assert_eq!(findings(&mut observer), []);
        for _ in 0..2 {
            two.line("HSETNX results app.lock.report 1").ignored();
            three.line("HSETNX results app.lock.report 1").ignored();
        }
        let found = findings(&mut observer);
        let key = found.first().map(|(rule, key, names)| (rule.as_str(), key.as_str(), names.len()));
        assert_eq!(
            (found.len(), key),
            match expected {
                true => (1, Some(("no-expiry", "results", 2))),
                false => (0, None),
            },
            "{ends}"
        );
    }
}
