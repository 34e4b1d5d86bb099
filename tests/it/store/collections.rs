//! Where a collection in a store is to be like one in memory, and once was not.

use super::cluster::Kind;
use super::pair;

on_both! {
    a_key_without_a_name_is_listed_like_others
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
