//! Clients that act on the lock of another: those that have only read it are found, however they do so, and
//! those that know its token are not.

use crate::locks::{findings, is_found, locksmiths};
use support::client::Client;
use support::replies::text;

const HOLDERS: &str = "8f14e45f-ceea-467f-a8f6-5d1d1f0e7a11";
const THIEFS: &str = "1b671a64-40d5-491e-99b0-da01ff1f3341";

fn run(client: &mut Client, script: &str, arguments: &[&str]) {
    let mut words = vec!["EVAL", script, "1", "lock"];
    words.extend(arguments);
    client.cmd(words).ignored();
}

#[test]
fn a_thief_whose_script_has_read_the_lock_is_found() {
    let (mut observer, [mut holder, mut thief], _server) = locksmiths(["holder", "thief"]);
    for (script, arguments, rule) in [
        ("if redis.call('get',KEYS[1]) then return redis.call('del',KEYS[1]) end", &[][..], "deleted"),
        (
            "if redis.call('get',KEYS[1]) ~= ARGV[1] then return redis.call('del',KEYS[1]) end",
            &[THIEFS],
            "deleted",
        ),
        (
            "if redis.call('get',KEYS[1]) and redis.call('pttl',KEYS[1]) < 100000 then return redis.call('unlink',KEYS[1]) end",
            &[],
            "deleted",
        ),
        ("redis.call('get',KEYS[1]) return redis.call('getdel',KEYS[1])", &[], "deleted"),
        ("redis.call('get',KEYS[1]) return redis.call('rename',KEYS[1],'elsewhere')", &[], "deleted"),
        ("redis.call('get',KEYS[1]) return redis.call('pexpire',KEYS[1],0)", &[], "deleted"),
        (
            "local t = redis.call('mget',KEYS[1]) return t[1] and redis.call('del',KEYS[1])",
            &["30000"],
            "deleted",
        ),
        ("if redis.call('get',KEYS[1]) then return redis.call('persist',KEYS[1]) end", &[], "extended"),
        (
            "if redis.call('get',KEYS[1]) then return redis.call('pexpire',KEYS[1],ARGV[1]) end",
            &["90000"],
            "extended",
        ),
        (
            "if redis.call('get',KEYS[1]) then return redis.call('getex',KEYS[1],'EX',900) end",
            &[],
            "extended",
        ),
        // An argument that is like the token, and is another one.
        (
            "if redis.call('get',KEYS[1]) then return redis.call('del',KEYS[1]) end",
            &["8f14e45f-ceea-467f-a8f6-5d1d1f0e7a110"],
            "deleted",
        ),
        ("if redis.call('get',KEYS[1]) then return redis.call('del',KEYS[1]) end", &["8f14e45f"], "read"),
    ] {
        holder.line("DEL lock").ignored();
        observer.line("LOCKS RESET").is_ok();
        holder.cmd(["SET", "lock", HOLDERS, "NX", "PX", "60000"]).is_ok();
        run(&mut thief, script, arguments);
        match rule {
            // A part of the token, as of one that has its time or its client in it.
            "read" => is_found(&mut observer, &[]),
            rule => is_found(&mut observer, &[(&format!("{rule}-by-another"), &["thief", "holder"])]),
        }
    }
}

#[test]
fn a_client_whose_script_shows_the_token_acts_for_its_holder_whatever_it_is_packed_in() {
    const COMPARE: &str = "local args = cjson.decode(ARGV[1]) if redis.call('get',KEYS[1]) == args.token then return redis.call('del',KEYS[1]) end";
    const UNPACK: &str = "local args = cmsgpack.unpack(ARGV[1]) if redis.call('get',KEYS[1]) == args.token then return redis.call('del',KEYS[1]) end";
    const OWNER: &str = "local held = redis.call('get',KEYS[1]) if held and cjson.decode(held).owner == ARGV[1] then return redis.call('del',KEYS[1]) end";
    let (mut observer, [mut holder, mut pooled], _server) = locksmiths(["holder", "pooled"]);
    let mut take = |value: &str| holder.cmd(["SET", "lock", value, "NX", "PX", "60000"]).is_ok();
    let gone = |client: &mut Client| assert_eq!(client.line("EXISTS lock").integer(), 0);
    take(HOLDERS);
    run(&mut pooled, COMPARE, &[&format!("{{\"ms\":30000,\"token\":\"{HOLDERS}\"}}")]);
    gone(&mut observer);
    take(HOLDERS);
    let packed = [b"\x82\xa2ms\xcd\x75\x30\xa5token\xd9\x24", HOLDERS.as_bytes()].concat();
    pooled.cmd([&b"EVAL"[..], UNPACK.as_bytes(), b"1", b"lock", &packed]).is(1);
    take(&format!("{{\"owner\":\"{HOLDERS}\",\"at\":1795529376}}"));
    run(&mut pooled, OWNER, &[HOLDERS]);
    gone(&mut observer);
    // The token is in the script's text.
    take(HOLDERS);
    run(
        &mut pooled,
        &format!("if redis.call('get',KEYS[1]) == '{HOLDERS}' then return redis.call('del',KEYS[1]) end"),
        &[],
    );
    gone(&mut observer);
    // It extends the lock, by the expiry or by the same token once more.
    take(HOLDERS);
    for extend in ["redis.call('pexpire',KEYS[1],90000)", "redis.call('set',KEYS[1],token,'PX',90000)"] {
        let script = format!(
            "local token = cjson.decode(ARGV[1]).token if redis.call('get',KEYS[1]) == token then {extend} end"
        );
        run(&mut pooled, &script, &[&format!("{{\"token\":\"{HOLDERS}\"}}")]);
        assert!(observer.line("PTTL lock").integer() > 60_000);
    }
    assert_eq!(text(&observer.line("LOCKS GET lock").reply(), "holder.name"), "holder");
    is_found(&mut observer, &[]);
}

#[test]
fn a_thief_that_reads_and_then_sends_a_transaction_is_found_unless_it_watches() {
    let (mut observer, [mut holder, mut other], _server) = locksmiths(["holder", "other"]);
    for (lines, rule) in [
        (&["GET lock", "MULTI", "DEL lock", "EXEC"][..], Some("deleted-by-another")),
        (&["MULTI", "GET lock", "DEL lock", "EXEC"], Some("deleted-by-another")),
        (&["WATCH lock", "MULTI", "GET lock", "DEL lock", "EXEC"], Some("deleted-by-another")),
        (&["WATCH other", "GET lock", "MULTI", "UNLINK lock", "EXEC"], Some("deleted-by-another")),
        (&["WATCH lock", "GET lock", "UNWATCH", "MULTI", "DEL lock", "EXEC"], Some("deleted-by-another")),
        (&["GET lock", "MULTI", "PEXPIRE lock 90000", "EXEC"], Some("extended-by-another")),
        (&["WATCH lock", "GET lock", "MULTI", "PEXPIRE lock 90000", "EXEC"], None),
        (&["WATCH lock", "GET lock", "MULTI", "DEL lock", "EXEC"], None),
        (&["WATCH other lock", "MGET lock other", "MULTI", "UNLINK lock", "EXEC"], None),
    ] {
        holder.line("DEL lock").ignored();
        observer.line("LOCKS RESET").is_ok();
        holder.cmd(["SET", "lock", HOLDERS, "NX", "PX", "60000"]).is_ok();
        lines.iter().for_each(|line| other.line(line).ignored());
        let found: Vec<String> = findings(&mut observer).into_iter().map(|(rule, ..)| rule).collect();
        assert_eq!(found.first().map(String::as_str), rule, "{lines:?}: {found:?}");
    }
}
