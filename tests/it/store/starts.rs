//! What a server with a store finds and is told when it starts: keys in memory that now live in the store, its
//! password, and parameters that do not go together.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use super::postgres::Postgres;
use super::{Cluster, Kind};
use crate::client::{Client, Reply};
use crate::folder::Folder;
use crate::server::{Server, program};

on_both! {
    keys_in_memory_that_live_in_the_store_are_told_in_the_log_and_seen_by_no_client
}

fn keys_in_memory_that_live_in_the_store_are_told_in_the_log_and_seen_by_no_client(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "leftover") else { return };
    let folder = Folder::new(&format!("leftover-{kind:?}"));
    let before = folder.serve(&[]);
    let mut client = before.client();
    client.line("SET lock:a memory NX").is_ok();
    client.line("SET lock:b memory NX").is_ok();
    client.line("MSET lock:c memory plain 1").is_ok();
    client.line("SAVE").is_ok();
    drop(client);
    drop(before);
    let url = cluster.url();
    let front = folder.serve(&["--store", &url, "--store-timeout", "20000", "--store-keys", "lock:*"]);
    front.wait_for_output("3 keys in memory match store-keys: no client sees them");
    front.wait_for_output("Connected to the store");
    let mut client = front.client();
    let sees = |client: &mut Client, names: &[&str]| {
        let mut keys: Vec<String> = client.line("KEYS *").items().iter().map(Reply::to_string).collect();
        keys.sort();
        assert_eq!(keys, names);
        assert_eq!(scan(client), names);
        client.line("DBSIZE").is(names.len() as i64);
        for _ in 0..20 {
            let key = client.line("RANDOMKEY").reply().to_string();
            assert!(names.contains(&&*key), "{key}");
        }
    };
    sees(&mut client, &["\"plain\""]);
    assert_eq!(client.line("LOCKS LIST").items().len(), 0);
    client.line("SETNX lock:a store").is(1);
    client.line("GET lock:a").is("store");
    sees(&mut client, &["\"lock:a\"", "\"plain\""]);
    assert_eq!(client.line("LOCKS LIST").items().len(), 1);
    client.line("FLUSHALL").is_ok();
    client.line("DBSIZE").is(0);
    client.line("SAVE").is_ok();
    drop(client);
    drop(front);
    let after = folder.serve(&["--store", &url, "--store-timeout", "20000", "--store-keys", "lock:*"]);
    after.wait_for_output("Connected to the store");
    assert!(!after.output().contains("match store-keys"), "{}", after.output());
}

/// All keys, sorted, that SCAN finds, one at a time.
fn scan(client: &mut Client) -> Vec<String> {
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let reply = client.line(&format!("SCAN {cursor} COUNT 1")).items();
        let [Reply::Bulk(next), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
        seen.extend(keys.iter().map(Reply::to_string));
        cursor = String::from_utf8(next.clone()).expect("a number");
        if cursor == "0" {
            seen.sort();
            return seen;
        }
    }
}

/// A password, which is in the URL with percent signs.
const SECRET: &str = "hush@:/x";
const IN_URL: &str = "hush%40%3A%2Fx";

marked!(needs_tools: clients_are_told_why_the_store_cannot_be_used);
fn clients_are_told_why_the_store_cannot_be_used() {
    let Some(store) = Postgres::start("reasons", 1) else { return };
    store.sql(0, "CREATE ROLE guest LOGIN; CREATE ROLE reader LOGIN").expect("users");
    let front_of = |user: &str| {
        let url = store.url_of(user, "127.0.0.1", "?sslmode=disable");
        Server::start_with(&["--store", &url, "--store-timeout", "300"])
    };
    let says = |front: &Server, part: &str| {
        super::eventually("the reason is told", || {
            let text = front.client().line("SETNX k v").text();
            text.starts_with("STOREDOWN ") && text.contains(part)
        });
    };
    let guest = front_of("guest");
    says(&guest, "its tables cannot be made: permission denied for database postgres");
    drop(store.front(&[]));
    says(&guest, "permission denied for schema keyfast");
    store.sql(0, "GRANT USAGE ON SCHEMA keyfast TO reader").expect("a right");
    store.sql(0, "GRANT SELECT ON ALL TABLES IN SCHEMA keyfast TO reader").expect("a right");
    says(&front_of("reader"), "permission denied for");
    let url = store.url_of("keyfast", "localhost", "?sslmode=verify-full");
    says(&Server::start_with(&["--store", &url, "--store-timeout", "300"]), "server does not support TLS");
}
