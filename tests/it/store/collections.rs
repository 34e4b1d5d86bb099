//! Where a collection in a store is to be like one in memory, and once was not.

use super::cluster::{Kind, eventually};
use super::pair;
use crate::client::request;

on_both! {
    a_key_without_a_name_is_listed_like_others
    a_client_that_waits_is_served_though_one_of_its_keys_became_something_else
    a_group_that_has_read_more_than_there_are_numbers_is_kept_as_it_is
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

fn a_group_that_has_read_more_than_there_are_numbers_is_kept_as_it_is(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "numbers") else { return };
    let (mut one, mut other) = (one.client(), other.client());
    one.line("XGROUP CREATE stream group $ MKSTREAM ENTRIESREAD 9223372036854775807").is_ok();
    one.line("XADD stream 1-1 f v").is("1-1");
    one.line("XREADGROUP GROUP group alice COUNT 1 STREAMS stream >").ignored();
    let groups = other.line("XINFO GROUPS stream").reply().to_string();
    assert!(groups.contains(r#""entries-read", (integer) -9223372036854775808"#), "{groups}");
}
