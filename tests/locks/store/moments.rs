//! Whether an expiry is a moment or a span of time is what the command has asked for. A span begins by the
//! store's clock when the store writes the key; a moment stays what it is.

use std::thread;
use std::time::Duration;

use super::attacks::{Holder, until_waiting};
use super::{Kind, pair};
use support::client::{Client, request};
use support::store::postgres;

on_both! {
    a_key_that_gets_another_name_or_a_copy_expires_when_it_would_have
}

fn moment(client: &mut Client, key: &str) -> i64 {
    client.line(&format!("PEXPIRETIME {key}")).integer()
}

fn a_key_that_gets_another_name_or_a_copy_expires_when_it_would_have(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "renamed") else { return };
    let (mut one, mut other, mut elsewhere) = (one.client(), other.client(), other.client());
    elsewhere.line("SELECT 1").is_ok();
    one.line("SET first v PX 600000").is_ok();
    let expires = moment(&mut one, "first");
    let (mut name, mut turn) = ("first".to_owned(), 0);
    let ways = ["RENAME", "RENAMENX", "COPY", "EXEC", "EVAL"];
    for way in ways.iter().cycle().take(60) {
        turn += 1;
        let next = format!("next:{turn}");
        let client = if turn % 2 == 0 { &mut one } else { &mut other };
        match *way {
            "EXEC" => {
                client.line("MULTI").is_ok();
                client.line(&format!("RENAME {name} {next}")).is_simple("QUEUED");
                client.line("SET brief v PX 1000").is_simple("QUEUED");
                client.line("EXEC").ignored();
            }
            "EVAL" => {
                let script = "return redis.call('rename',KEYS[1],KEYS[2])";
                client.cmd(["EVAL", script, "2", &name, &next]).is_ok();
            }
            way => client.line(&format!("{way} {name} {next}")).ignored(),
        }
        name = next;
        assert_eq!(moment(&mut one, &name), expires, "after {way}, turn {turn}");
    }
    one.line(&format!("MOVE {name} 1")).is(1);
    assert_eq!(moment(&mut elsewhere, &name), expires, "after MOVE");
    elsewhere.line(&format!("COPY {name} {name} DB 0")).is(1);
    assert_eq!(moment(&mut one, &name), expires, "after COPY to another database");
}

/// How far apart the moments of a row may be: PostgreSQL may stand still between two of its columns. What the
/// store was kept waiting for is more.
const ROOM_MS: i64 = 200;

marked!(needs_tools: spans_begin_when_the_store_writes_and_moments_stay_what_they_are);
fn spans_begin_when_the_store_writes_and_moments_stay_what_they_are() {
    let Some((cluster, one, _other)) = postgres::pair("spans") else { return };
    let mut client = one.client();
    client.line("SET warm v PX 60000").is_ok();
    const AT: &str = "2000000000123";
    let requests: [(bool, &[&str]); 8] = [
        (false, &["SET k exat EX 60"]),
        (false, &["SET k pxat PX 60000"]),
        (true, &["SET k v PXAT 2000000000123"]),
        (true, &["MULTI", "SET k v PXAT 2000000000123", "SET other v PX 60000", "EXEC"]),
        (false, &["MULTI", "SET other v PXAT 2000000000123", "SET k v PX 60000", "EXEC"]),
        (true, &["EVAL \"return redis.call('set',KEYS[1],'v','PXAT',ARGV[1])\" 1 k 2000000000123"]),
        (true, &["MULTI", "SET other v PXAT 2000000000123", "RENAME other k", "EXEC"]),
        (false, &["MULTI", "SET other v PX 60000", "RENAME other k", "EXEC"]),
    ];
    for (is_moment, lines) in requests {
        client.line("DEL k other").ignored();
        let mut holder = Holder::start(&cluster, 0);
        holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
        let words = lines.iter().flat_map(|line| request(support::client::words(line)));
        client.send(&words.collect::<Vec<u8>>());
        until_waiting(&cluster, 1);
        thread::sleep(Duration::from_millis(300));
        holder.run(&cluster, "ROLLBACK");
        lines.iter().for_each(|_| client.reply().ignored());
        let expiry = "SELECT (extract(epoch FROM expires) * 1000)::bigint,
            round(extract(epoch FROM expires - since) * 1000)::bigint FROM keyfast.keys WHERE key = 'k'";
        let found = cluster.sql(0, expiry).expect("a row");
        let (expires, span) = found.split_once('|').expect("two numbers");
        match is_moment {
            true => assert_eq!(expires, AT, "{lines:?}"),
            false => {
                let span: i64 = span.parse().expect("a number");
                assert!((60_000 - ROOM_MS..=60_001).contains(&span), "{lines:?}: {span} ms");
            }
        }
    }
}

marked!(needs_tools: a_key_that_is_renamed_before_the_store_has_written_it_lives_as_long_as_was_asked_for);
fn a_key_that_is_renamed_before_the_store_has_written_it_lives_as_long_as_was_asked_for() {
    let Some((cluster, one, _other)) = postgres::pair("renamed-at-once") else { return };
    let (mut first, mut client) = (one.client(), one.client());
    first.line("SET warm v PX 60000").is_ok();
    let mut holder = Holder::start(&cluster, 0);
    holder.run(&cluster, "BEGIN; SELECT front FROM keyfast.fronts FOR UPDATE");
    first.send(&request(["SET", "before", "v"]));
    until_waiting(&cluster, 1);
    // They travel together, in the batch behind that one.
    client.send(b"SET k v PX 60000\r\nRENAME k next\r\nCOPY next copy\r\n");
    thread::sleep(Duration::from_millis(300));
    holder.run(&cluster, "ROLLBACK");
    first.reply().is_ok();
    client.reply().is_ok();
    client.reply().is_ok();
    client.reply().is(1);
    for key in ["next", "copy"] {
        let span = format!(
            "SELECT round(extract(epoch FROM expires - since) * 1000) FROM keyfast.keys WHERE key = '{key}'"
        );
        let span: i64 = cluster.sql(0, &span).expect("a row").parse().expect("a number");
        assert!((60_000 - ROOM_MS..=60_001).contains(&span), "{key}: {span} ms");
    }
}
