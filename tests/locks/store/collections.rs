//! Where a collection in a store is to be like one in memory, and once was not.

use std::thread;
use std::time::Duration;

use super::pair;
use support::client::request;
use support::store::cluster::{Kind, eventually};

on_both! {
    a_key_without_a_name_is_listed_like_others
    a_client_that_waits_is_served_though_one_of_its_keys_became_something_else
    what_a_client_does_before_it_waits_is_heard_of
    fields_expire_once
    no_entry_follows_below_one_that_was_deleted
    a_group_has_read_no_more_than_the_stream_has_had
}

fn a_key_without_a_name_is_listed_like_others(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "nameless") else { return };
    one.client().cmd(["SADD", "", "a"]).is(1);
    let mut client = other.client();
    assert_eq!(client.line("KEYS *").reply().to_string(), r#"[""]"#);
    assert_eq!(client.cmd(["KEYS", ""]).reply().to_string(), r#"[""]"#);
    // As in Redis, no other pattern matches it.
    assert_eq!(client.line("KEYS **").reply().to_string(), "[]");
    client.line("RANDOMKEY").is("");
}

fn a_client_that_waits_is_served_though_one_of_its_keys_became_something_else(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "waiting") else { return };
    let (mut waiter, mut helper, mut changer) = (one.client(), one.client(), other.client());
    let wrong_type = "WRONGTYPE Operation against a key holding the wrong kind of value";
    let conversations = [
        (vec!["BLPOP", "a", "b", "0"], vec!["SADD a x", "RPUSH b v"], r#"["b", "v"]"#),
        (vec!["BZPOPMIN", "a", "b", "0"], vec!["SADD a x", "ZADD b 1 v"], r#"["b", "v", "1"]"#),
        (vec!["BLMPOP", "0", "2", "a", "b", "LEFT"], vec!["SET a x", "RPUSH b v"], r#"["b", ["v"]]"#),
        (
            vec!["XREAD", "BLOCK", "0", "STREAMS", "a", "b", "$", "$"],
            vec!["SET a x", "XADD b 1-1 f v"],
            r#"[["b", [["1-1", ["f", "v"]]]]]"#,
        ),
        (vec!["BLMOVE", "a", "b", "LEFT", "LEFT", "0"], vec!["SADD a x", "DEL a", "RPUSH a v"], r#""v""#),
        (vec!["BLMOVE", "a", "b", "LEFT", "LEFT", "0"], vec!["SADD b x", "RPUSH a v"], wrong_type),
    ];
    for (wait, changes, reply) in conversations {
        changer.line("FLUSHALL").is_ok();
        waiter.send(&request(&wait));
        eventually("it waits", || helper.info("blocked_clients") == "1");
        for change in changes {
            changer.line(change).ignored();
        }
        let got = waiter.reply().reply().to_string();
        assert!(got.contains(reply), "{wait:?}: {got}");
    }
}

fn what_a_client_does_before_it_waits_is_heard_of(kind: Kind) {
    let Some((_cluster, one, _)) = pair(kind, "heard") else { return };
    let (mut listener, mut client) = (one.client(), one.client());
    client.line("CONFIG SET notify-keyspace-events Est").is_ok();
    client.line("XGROUP CREATE stream group $ MKSTREAM").is_ok();
    listener.line("PSUBSCRIBE __key*").ignored();
    let mut hears = |event: &str, key: &str| {
        let message = format!(r#"["pmessage", "__key*", "__keyevent@0__:{event}", "{key}"]"#);
        assert_eq!(listener.reply().reply().to_string(), message);
    };
    client.line("XREADGROUP GROUP group alice BLOCK 20 STREAMS stream >").is_nil();
    hears("xgroup-createconsumer", "stream");
    client.line("SADD set x").is(1);
    hears("sadd", "set");
}

fn fields_expire_once(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "fields") else { return };
    let (mut listener, mut client, mut other) = (one.client(), one.client(), other.client());
    client.line("CONFIG SET notify-keyspace-events Eghs").is_ok();
    client.line("HSET hash f 1 g 2").is(2);
    client.line("HSET short f 1").is(1);
    for key in ["hash", "short"] {
        client.line(&format!("HPEXPIRE {key} 50 FIELDS 1 f")).ignored();
    }
    thread::sleep(Duration::from_millis(60));
    listener.line("PSUBSCRIBE *").ignored();
    for _ in 0..3 {
        client.line("HLEN hash").is(1);
        client.line("HLEN short").is(0);
    }
    client.line("SADD last x").is(1);
    let mut events = vec![listener.reply().reply().to_string()];
    while !events.last().is_some_and(|event| event.contains("sadd")) {
        events.push(listener.reply().reply().to_string());
    }
    let event = |event: &str, key: &str| format!(r#"["pmessage", "*", "__keyevent@0__:{event}", "{key}"]"#);
    let expected = [("hexpired", "hash"), ("hexpired", "short"), ("del", "short"), ("sadd", "last")]
        .map(|(e, key)| event(e, key));
    assert_eq!(events, expected);
    other.line("DBSIZE").is(2);
    other.line("SETNX short again").is(1);
}

fn no_entry_follows_below_one_that_was_deleted(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "deleted") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("XADD stream 1-1 f v").is("1-1");
    one.line("XADD stream 5-1 f v").is("5-1");
    one.line("XDEL stream 5-1").is(1);
    let too_small = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
    other.line("XSETID stream 3-1").is_error(too_small);
    one.line("XSETID stream 5-1").is_ok();
    other.line("XADD stream 5-2 c d").is("5-2");
    let entries = one.line("XRANGE stream - +").reply().to_string();
    assert_eq!(entries, r#"[["1-1", ["f", "v"]], ["5-2", ["c", "d"]]]"#);
    other.line("XDEL stream 5-2").is(1);
    one.line("XLEN stream").is(1);
}

fn a_group_has_read_no_more_than_the_stream_has_had(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "numbers") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("XGROUP CREATE stream group $ MKSTREAM ENTRIESREAD 9223372036854775807").is_ok();
    one.line("XADD stream 1-1 f v").is("1-1");
    one.line("XREADGROUP GROUP group alice COUNT 1 STREAMS stream >").ignored();
    let groups = other.line("XINFO GROUPS stream").reply().to_string();
    assert!(groups.contains(r#""entries-read", (integer) 1, "lag", (integer) 0"#), "{groups}");
}
