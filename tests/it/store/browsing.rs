//! SCAN over the keys in the store, and what a front-end's own memory and functions have to do with them.

use std::collections::BTreeSet;

use super::{Cluster, Kind, pair, postgres};
use crate::client::{Client, Reply};

on_both! {
    keys_in_the_store_need_no_memory_of_the_server
    functions_are_not_loaded_by_a_transaction_that_may_run_twice
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
