//! What the lock lens tells of tokens, of locks that are lost, and of itself: what it does not follow, what
//! it writes into the log, and what it counts.

use crate::locks::{findings, frozen, is_found, locksmiths};
use support::client::Client;
use support::replies::{array, integer, text};
use support::server::{Server, wait_until};

const BLIND: &str = "return redis.call('del', KEYS[1])";
const COMPARE_AND_DEL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], 30000) else return 0 end";

#[test]
fn the_number_of_keys_is_no_token() {
    for token in ["1", "locked"] {
        let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
        a.cmd(["SET", "lock", token, "NX", "EX", "30"]).is_ok();
        b.cmd(["EVAL", BLIND, "1", "lock"]).is(1);
        is_found(&mut observer, &[("deleted-by-another", &["b", "a"])]);
        a.cmd(["SET", "other", token, "NX", "EX", "30"]).is_ok();
        observer.line("CLOCK ADVANCE 31000").is_ok();
        // A client that has never held it looks, by a script that might delete.
        b.cmd(["EVAL", COMPARE_AND_DEL, "1", "other", "mine"]).is(0);
        assert_eq!(findings(&mut observer).len(), 1);
    }
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    a.line("SET lock token NX EX 30").is_ok();
    b.line("DEL lock token").is(1);
    is_found(&mut observer, &[("deleted-by-another", &["b", "a"])]);
}

#[test]
fn numbers_are_tokens_and_counters_are_no_locks() {
    let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
    a.line("SET lock 4711 NX EX 30").is_ok();
    b.line("SET lock 4712 EX 30").is_ok();
    is_found(&mut observer, &[("overwritten-by-another", &["b", "a"])]);
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "holder.name"), "b");
    a.line("SET count 1 NX EX 30").is_ok();
    b.line("INCR count").is(2);
    observer.line("LOCKS GET count").is_nil();
    assert_eq!(findings(&mut observer).len(), 1);
}

#[test]
fn a_moment_is_an_expiry_only_if_it_is_to_come_and_the_key_has_none() {
    let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
    observer.line("CLOCK SET 1795529376983").is_ok();
    for (number, take) in
        ["SET l1 1795529376983 NX PX 60000", "SET l2 1795529999 NX PX 60000", "SETNX l3 1795529376"]
            .iter()
            .enumerate()
    {
        a.line(take).ignored();
        b.line(&format!("DEL l{}", number + 1)).is(1);
        assert_eq!(findings(&mut observer).len(), number + 1, "{take}");
    }
    observer.line("LOCKS RESET").is_ok();
    b.line("SETNX stuck 1795529376983").is(1);
    b.line("SETNX agreed 1795529400").is(1);
    drop(b);
    wait_until("it is found", || !findings(&mut observer).is_empty());
    let found = findings(&mut observer);
    assert_eq!((found.len(), found[0].0.as_str(), found[0].1.as_str()), (1, "no-expiry", "stuck"));
}

#[test]
fn a_client_that_only_asks_is_no_late_holder() {
    const LOOK: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pttl', KEYS[1]) else return 0 end";
    let (mut observer, [mut a], _server) = frozen(["a"]);
    for is_sent_by_name in [false, true] {
        a.line("SET lock a-token-of-some-length NX PX 30000").is_ok();
        observer.line("CLOCK ADVANCE 30000").is_ok();
        let script = match is_sent_by_name {
            true => ("EVALSHA", a.cmd(["SCRIPT", "LOAD", LOOK]).text()),
            false => ("EVAL", LOOK.to_owned()),
        };
        a.cmd([script.0, &script.1, "1", "lock", "a-token-of-some-length"]).is(0);
    }
    is_found(&mut observer, &[]);
    let name = a.cmd(["SCRIPT", "LOAD", COMPARE_AND_DEL]).text();
    a.cmd(["EVALSHA", &name, "1", "lock", "a-token-of-some-length"]).is(0);
    is_found(&mut observer, &[("expired-while-held", &["a"])]);
}

#[test]
fn a_leader_with_a_constant_name_steps_down_and_asks() {
    let (mut observer, [mut one, mut two], _server) = frozen(["one", "two"]);
    for _ in 0..3 {
        one.line("SET leader n1 NX PX 30000").is_ok();
        two.line("SET leader n2 NX PX 30000").is_nil();
        one.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", "leader", "n1"]).is(1);
        one.cmd(["EVAL", COMPARE_AND_DEL, "1", "leader", "n1"]).is(1);
        two.line("SET leader n2 NX PX 30000").is_ok();
        one.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", "leader", "n1"]).is(0);
        one.line("SET leader n1 NX PX 30000").is_nil();
        two.cmd(["EVAL", COMPARE_AND_DEL, "1", "leader", "n2"]).is(1);
        one.cmd(["EVAL", COMPARE_AND_EXPIRE, "1", "leader", "n1"]).is(0);
    }
    is_found(&mut observer, &[]);
}

#[test]
fn a_heartbeat_after_the_end_brings_the_lock_back_and_is_found() {
    let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
    a.line("SET lock t NX PX 30000").is_ok();
    observer.line("CLOCK ADVANCE 30000").is_ok();
    a.line("SET lock t PX 30000").is_ok();
    is_found(&mut observer, &[("expired-while-held", &["a"])]);
    let shown = observer.line("LOCKS GET lock").reply();
    assert_eq!((text(&shown, "state"), text(&shown, "holder.name")), ("held".into(), "a".into()));
    b.line("SET lock u NX PX 30000").is_nil();
    assert_eq!(integer(&observer.line("LOCKS GET lock").reply(), "refused"), 1);
    // What another client writes there is something else.
    observer.line("CLOCK ADVANCE 30000").is_ok();
    b.line("SET lock result PX 30000").is_ok();
    assert_eq!(observer.line("LOCKS LIST").items(), []);
    observer.line("LOCKS GET lock").is_nil();
}

#[test]
fn a_script_that_fills_a_cache_or_limits_a_rate_takes_no_lock() {
    const CACHE: &str = "local found = redis.call('get', KEYS[1]) if found then return found end redis.call('set', KEYS[1], 'made here', 'EX', 9) return 'made'";
    const LIMIT: &str = "local last = tonumber(redis.call('get', KEYS[1]) or 0) redis.call('setex', KEYS[1], 60, ARGV[1]) return last";
    let (mut observer, [mut a, mut b], _server) = frozen(["a", "b"]);
    a.cmd(["EVAL", CACHE, "1", "cache"]).is("made");
    b.cmd(["EVAL", CACHE, "1", "cache"]).is("made here");
    for client in [&mut a, &mut b] {
        let now = observer.line("TIME").items()[0].clone().to_string();
        client.cmd(["EVAL", LIMIT, "1", "limit", now.trim_matches('"')]).integer();
        client.cmd(["EVAL", LIMIT, "1", "allowed", "10"]).integer();
        observer.line("CLOCK ADVANCE 2000").is_ok();
    }
    for key in ["cache", "limit", "allowed"] {
        observer.cmd(["LOCKS", "GET", key]).is_nil();
    }
    is_found(&mut observer, &[]);
    // As an EXEC, a pair of commands takes a lock, which either has found absent alone.
    for line in ["MULTI", "MSETNX lock token", "PEXPIRE lock 30000", "EXEC"] {
        a.line(line).ignored();
    }
    let shown = observer.line("LOCKS GET lock").reply();
    assert_eq!((text(&shown, "holder.name"), text(&shown, "taken-by")), ("a".into(), "msetnx".into()));
    b.line("MSETNX lock mine other mine").is(0);
    assert_eq!(integer(&observer.line("LOCKS GET lock").reply(), "refused"), 1);
}

#[test]
fn locks_that_are_evicted_under_their_holders_are_found() {
    let (mut observer, [mut holder], _server) = locksmiths(["holder"]);
    for number in 0..20 {
        holder.line(&format!("SET lock:{number} token NX PX 600000")).is_ok();
    }
    observer.line("CONFIG SET maxmemory-policy volatile-ttl").is_ok();
    observer.line("CONFIG SET maxmemory 1").is_ok();
    wait_until("all are evicted", || observer.line("DBSIZE").integer() == 0);
    observer.line("CONFIG SET maxmemory 0").is_ok();
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), 0);
    let shown = observer.line("LOCKS GET lock:7").reply();
    assert_eq!(text(&shown, "state"), "evicted");
    assert!(array(&shown, "timeline")[1].to_string().contains("it was evicted, since memory was short"));
    holder.line("DELIFEQ lock:7 token").is(0);
    is_found(&mut observer, &[("lost-while-held", &["holder"])]);
}

#[test]
fn locks_move_with_their_database() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    holder.line("SET lock token NX PX 600000").is_ok();
    other.line("SWAPDB 0 1").is_ok();
    assert_eq!(observer.line("LOCKS LIST").items(), []);
    for client in [&mut observer, &mut other] {
        client.line("SELECT 1").is_ok();
    }
    assert_eq!(text(&observer.line("LOCKS LIST").items()[0], "holder.name"), "holder");
    other.line("DEL lock").is(1);
    is_found(&mut observer, &[("deleted-by-another", &["other", "holder"])]);
    holder.line("SELECT 1").is_ok();
    holder.line("SET lock token NX PX 600000").is_ok();
    other.line("FLUSHDB").is_ok();
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "state"), "flushed");
}

#[test]
fn keys_that_are_to_be_ignored_are() {
    let (mut observer, [mut web, mut worker], _server) = locksmiths(["web", "worker"]);
    web.line("SET job:1 1 NX EX 60").is_ok();
    observer.cmd(["CONFIG", "SET", "lock-lens-ignore", "celery-* job:*"]).is_ok();
    web.line("SET job:2 1 NX EX 60").is_ok();
    web.line("SET lock 1 NX EX 60").is_ok();
    for key in ["job:1", "job:2"] {
        observer.cmd(["LOCKS", "GET", key]).is_nil();
        worker.cmd(["DEL", key]).is(1);
    }
    assert_eq!(observer.line("LOCKS LIST").items().len(), 1);
    is_found(&mut observer, &[]);
    observer.cmd(["CONFIG", "SET", "lock-lens-ignore", ""]).is_ok();
    web.line("SET job:3 1 NX EX 60").is_ok();
    worker.line("DEL job:3").is(1);
    is_found(&mut observer, &[("deleted-by-another", &["worker", "web"])]);
}

#[test]
fn a_release_elsewhere_is_a_quiet_finding() {
    let (mut observer, [mut web, mut worker], server) = locksmiths(["web", "worker"]);
    web.line("SET unique 1 NX EX 60").is_ok();
    web.line("SET contended 1 NX EX 60").is_ok();
    // It waits for it: it has a token of its own, and asks again.
    (0..2).for_each(|_| worker.line("SET contended 2 NX EX 60").is_nil());
    // They tell when the lens has seen that the client has left, wherever it keeps each.
    const NOTES: i64 = 400;
    (0..NOTES).for_each(|number| web.line(&format!("SETNX note:{number} 1")).is(1));
    let notes = integer(&observer.line("LOCKS STATS").reply(), "followed") - 2;
    drop(web);
    wait_until("all are found", || integer(&observer.line("LOCKS STATS").reply(), "no-expiry") == notes);
    worker.line("DEL unique").is(1);
    assert_eq!(text(&observer.line("LOCKS GET unique").reply(), "state"), "released-elsewhere");
    worker.line("DEL contended").is(1);
    let mut found = findings(&mut observer);
    found.retain(|(rule, ..)| rule != "no-expiry");
    let involved = || vec!["worker".to_owned(), "web".to_owned()];
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], ("released-elsewhere".into(), "unique".into(), involved()));
    assert_eq!(found[1], ("deleted-by-another".into(), "contended".into(), involved()));
    server.wait_for_output("Lock lens: deleted-by-another on key \"contended\"");
    assert!(!server.output().contains("released-elsewhere"));
}

#[test]
fn the_log_has_a_line_a_rule_and_none_for_a_mere_note() {
    let server = Server::start();
    let mut observer = server.client3();
    for number in 0..100 {
        let mut client = server.client();
        client.cmd(["SETNX", &format!("seen:{number}"), "1"]).is(1);
    }
    let stats = |observer: &mut Client, name: &str| integer(&observer.line("LOCKS STATS").reply(), name);
    wait_until("all are found", || stats(&mut observer, "no-expiry") == 100);
    assert!(!server.output().contains("Lock lens"), "nothing shows that they are locks");
    // One that writes the same has not seen it for the first time, and waits for nothing.
    (0..3).for_each(|_| observer.line("SETNX seen:8 1").is(0));
    assert!(!server.output().contains("Lock lens"), "{}", server.output());
    // Now a client waits for one of them.
    (0..2).for_each(|_| observer.line("SETNX seen:7 mine").is(0));
    server.wait_for_output("Lock lens: no-expiry on key \"seen:7\"");
    assert_eq!(stats(&mut observer, "no-expiry"), 100);
    let mut holder = server.client();
    for number in 0..100 {
        holder.cmd(["SET", &format!("lock:{number}"), "1", "NX", "PX", "60000"]).is_ok();
        observer.cmd(["DEL", &format!("lock:{number}")]).is(1);
    }
    server.wait_for_output("Lock lens: deleted-by-another on key \"lock:0\"");
    assert_eq!(stats(&mut observer, "deleted-by-another"), 100);
    assert_eq!(server.output().matches("Lock lens: deleted-by-another").count(), 1);
}

#[test]
fn what_is_not_followed_is_said_where_it_matters() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client3();
    client.line("DEBUG PAUSE-CRON 1").is_ok();
    client.line("SET nolock 1").is_ok();
    for number in 0..1000 {
        client.line(&format!("SETNX lock:{number} t")).is(1);
    }
    let states: Vec<String> = (0..1000)
        .map(|number| text(&client.line(&format!("LOCKS GET lock:{number}")).reply(), "state"))
        .collect();
    let unfollowed = states.iter().filter(|state| *state == "not-followed").count() as i64;
    assert!(unfollowed > 0 && unfollowed < 1000);
    let stats = client.line("LOCKS STATS").reply();
    assert_eq!((integer(&stats, "unfollowed"), integer(&stats, "held")), (unfollowed, 1000 - unfollowed));
    client.line("LOCKS GET nolock").is_nil();
    // Refusals beyond the allowance are counted.
    for _ in 0..2000 {
        client.line("SETNX lock:0 t").is(0);
    }
    assert_eq!(integer(&client.line("LOCKS STATS").reply(), "refused"), 2000);
    // What changes unseen is not told as it was.
    client.line("SET lock:0 u").is_ok();
    assert_eq!(text(&client.line("LOCKS GET lock:0").reply(), "state"), "not-followed");
    client.line("DEL lock:0").is(1);
    client.line("LOCKS GET lock:0").is_nil();
    client.line("DEBUG PAUSE-CRON 0").is_ok();
    wait_until("it is followed", || {
        client.line("DEL lock:999").is(1);
        client.line("SETNX lock:999 t").is(1);
        text(&client.line("LOCKS GET lock:999").reply(), "state") == "held"
    });
}

#[test]
fn locks_that_are_gone_do_not_count_as_held() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client3();
    client.line("DEBUG PAUSE-CRON 1").is_ok();
    // More than are reported until the next tick: of some releases the lens knows nothing.
    for number in 0..300 {
        client.line(&format!("SET lock:{number} t NX PX 600000")).is_ok();
    }
    for number in 0..300 {
        client.line(&format!("DEL lock:{number}")).is(1);
    }
    assert_eq!(client.info("locks_held"), "0");
    assert_eq!(integer(&client.line("LOCKS STATS").reply(), "held"), 0);
}

#[test]
fn the_timeline_keeps_who_took_the_lock() {
    let (mut observer, [mut holder, mut one, mut two], _server) = frozen(["holder", "one", "two"]);
    holder.line("SET lock a NX PX 600000").is_ok();
    for _ in 0..50 {
        for client in [&mut one, &mut two] {
            client.line("SET lock b NX PX 600000").is_nil();
            client.line("GET lock").text();
        }
        observer.line("CLOCK ADVANCE 1000").is_ok();
    }
    one.line("DEL lock").is(1);
    let lines = |observer: &mut Client| -> Vec<String> {
        let finding = observer.line("LOCKS LOG 1").items().remove(0);
        array(&finding, "timeline").iter().map(|line| line.to_string()).collect()
    };
    let timeline = lines(&mut observer);
    assert!(timeline[0].contains("'holder'") && timeline[0].contains("SET took it"), "{timeline:?}");
    assert_eq!(timeline.len(), 6, "{timeline:?}");
    assert!(timeline[1].contains("SET was refused, 50 times"), "{timeline:?}");
    // Whatever happens, the step by which the present holder took it stays.
    two.line("SET lock b NX PX 600000").is_ok();
    for number in 0..40 {
        two.line(&format!("PEXPIRE lock {}", 600_000 + number)).is(1);
        two.line("SET lock b XX KEEPTTL").is_ok();
    }
    observer.line("DEL lock").is(1);
    let timeline = lines(&mut observer);
    assert!(
        timeline.iter().any(|line| line.contains("'two'") && line.contains("SET took it")),
        "{timeline:?}"
    );
    // A lock that has expired is not taken twice in a row.
    holder.line("SET lock a NX PX 1000").is_ok();
    observer.line("CLOCK ADVANCE 2000").is_ok();
    one.line("SET lock b NX PX 1000").is_ok();
    let shown = observer.line("LOCKS GET lock").reply();
    let timeline: Vec<String> = array(&shown, "timeline").iter().map(|line| line.to_string()).collect();
    assert!(timeline[timeline.len() - 2].contains("it expired"), "{timeline:?}");
}

#[test]
fn advice_fits_what_the_client_did() {
    let (mut observer, [mut holder, mut other], _server) = frozen(["holder", "other"]);
    let instead = |observer: &mut Client| text(&observer.line("LOCKS LOG 1").items()[0], "instead");
    holder.line("SET lock t NX PX 1000").is_ok();
    observer.line("CLOCK ADVANCE 1000").is_ok();
    holder.line("DEL lock").is(0);
    let advice = instead(&mut observer);
    assert!(advice.contains("pexpire") && advice.contains("LOCK ACQUIRE key token PX"), "{advice}");
    holder.line("SET lock t NX PX 1000").is_ok();
    holder.line("DELIFEQ lock t").is(1);
    holder.line("DELIFEQ lock t").is(0);
    let advice = instead(&mut observer);
    assert!(!advice.contains("DELIFEQ"), "{advice}");
    let take = crate::lock_kinds::TAKE;
    holder.cmd(["EVAL", take, "1", "hash", "30000", "thread-7"]).is_nil();
    other.line("DEL hash").is(1);
    let advice = instead(&mut observer);
    assert!(advice.contains("unlock()") && !advice.contains("'get'"), "{advice}");
}

#[test]
fn a_list_of_locks_is_short_unless_more_are_asked_for() {
    let (mut observer, [mut holder], _server) = frozen(["holder"]);
    holder.line("SET lock:0 t NX PX 600000").is_ok();
    observer.line("CLOCK ADVANCE 1").is_ok();
    for number in 1..120 {
        holder.line(&format!("SET lock:{number} t NX PX 600000")).is_ok();
    }
    assert_eq!(observer.line("LOCKS LIST COUNT 1000").items().len(), 120);
    let listed = observer.line("LOCKS LIST").items();
    assert_eq!(listed.len(), 100);
    assert_eq!(text(&listed[0], "key"), "lock:0", "the one that is held longest comes first");
    for line in ["MULTI", "LOCKS LIST COUNT 3", "EXEC"] {
        observer.line(line).ignored();
    }
}
