//! SCAN over the keys in the store, and what a front-end's own memory and functions have to do with them.

use std::collections::BTreeSet;

use super::{Cluster, Kind, pair};
use support::client::{Client, Reply};
use support::store::postgres;

on_both! {
    scan_finds_every_key_by_cursors_that_floating_point_represents
    keys_in_the_store_need_no_memory_of_the_server
    functions_are_not_loaded_by_a_transaction_that_may_run_twice
}

/// All keys that SCAN finds, and how many replies had keys. Each cursor is an integer below 2^53.
fn scan(client: &mut Client, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut seen, mut pages) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = client.line(&format!("SCAN {cursor} {options}")).items();
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        seen.extend(keys.iter().map(Reply::to_string));
        pages += usize::from(!keys.is_empty());
        cursor = String::from_utf8(next.clone()).expect("a number");
        let number: u64 = cursor.parse().expect("a number");
        assert!(number < 1 << 53, "{number}");
        // As a client does that has no other numbers.
        cursor = format!("{}", number as f64);
        if cursor == "0" {
            return (seen, pages);
        }
    }
}

fn scan_finds_every_key_by_cursors_that_floating_point_represents(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "scan") else { return };
    for keys in ["*", "lock:*"] {
        let front = cluster.front(&["--store-keys", keys]);
        let mut client = front.client();
        client.line("FLUSHALL").is_ok();
        client.line("DBSIZE").is(0);
        for number in 0..60 {
            client.line(&format!("SET lock:{number} v")).is_ok();
            client.line(&format!("SET memory:{number} v")).is_ok();
        }
        for options in ["COUNT 1", "COUNT 7", "COUNT 1000", "COUNT 3 TYPE string"] {
            let (seen, pages) = scan(&mut client, options);
            let names: BTreeSet<&String> = seen.iter().collect();
            assert_eq!((names.len(), seen.len()), (120, 120), "{keys} {options}");
            assert!(pages > 100 || options != "COUNT 1", "{pages} pages");
        }
    }
}

marked!(needs_tools: scan_finds_all_keys_of_one_slot);
fn scan_finds_all_keys_of_one_slot() {
    let Some((cluster, one, _other)) = postgres::pair("one-slot") else { return };
    let mut client = one.client();
    let words = (0..30).flat_map(|number| [format!("key:{number}"), "v".to_owned()]);
    client.cmd(["MSET".to_owned()].into_iter().chain(words)).is_ok();
    for slot in ["5", "CASE WHEN key < 'key:2' THEN 4611686018427387903 ELSE 77 END"] {
        cluster.sql(0, &format!("UPDATE keyfast.keys SET slot = {slot}")).expect("the store");
        for options in ["COUNT 1", "COUNT 10"] {
            let (seen, _) = scan(&mut client, options);
            let names: BTreeSet<&String> = seen.iter().collect();
            assert_eq!((names.len(), seen.len()), (30, 30), "{slot} {options}");
        }
    }
}

fn keys_in_the_store_need_no_memory_of_the_server(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "memory") else { return };
    let front = cluster.front(&["--store-keys", "lock:*"]);
    let mut client = front.client();
    client.line("CONFIG SET maxmemory 1").is_ok();
    let short = "OOM command not allowed when used memory > 'maxmemory'.";
    client.line("SET plain v").is_error(short);
    client.line("SET lock:a v").is_ok();
    client.line("SETNX lock:b v").is(1);
    client.cmd(["EVAL", "return redis.call('set',KEYS[1],'w')", "1", "lock:a"]).is_ok();
    client.line("MULTI").is_ok();
    client.line("SET lock:a x").is_simple("QUEUED");
    client.line("RPUSH lock:list x").is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec![Reply::Simple("OK".into()), 1.into()]));
    client.line("MULTI").is_ok();
    client.line("SET plain v").is_error(short);
    client.line("DISCARD").is_ok();
    let refused = client.cmd(["EVAL", "return redis.call('set',KEYS[1],'w')", "1", "plain"]).text();
    assert!(refused.starts_with(short), "{refused}");
    client.line("GET lock:a").is("x");
}

fn functions_are_not_loaded_by_a_transaction_that_may_run_twice(kind: Kind) {
    let Some((_cluster, one, _other)) = pair(kind, "functions") else { return };
    let mut client = one.client();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    client.line("MULTI").is_ok();
    client.line("SET k v").is_simple("QUEUED");
    client.cmd(["FUNCTION", "LOAD", library]).is_simple("QUEUED");
    client.line("EXEC").is_error("ERR FUNCTION LOAD cannot do this with keys in a store");
    client.line("GET k").is_nil();
    // Alone it runs once.
    client.line("MULTI").is_ok();
    client.cmd(["FUNCTION", "LOAD", library]).is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec!["lib".into()]));
}
