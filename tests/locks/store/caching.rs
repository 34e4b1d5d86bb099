//! A client that keeps copies of keys (CLIENT TRACKING) hears of each change that another front-end makes, or
//! that all may have changed.

use std::thread;
use std::time::Duration;

use super::{Cluster, Kind, eventually, pair};
use support::client::{Client, Reply, request};
use support::server::{Server, signal};
use support::store::postgres;

on_both! {
    a_client_that_begins_to_track_is_told_of_a_change_soon_afterwards
    what_changed_while_the_news_were_lost_is_told_when_they_come_again
}

/// A client that tracks, and has read this key.
fn reader(front: &Server, key: &str) -> Client {
    let mut reader = front.client3();
    reader.line("CLIENT TRACKING ON").is_ok();
    assert_eq!(read(&mut reader, key), "old");
    reader
}

/// Reads a key. What comes before the reply does not concern it.
#[track_caller]
fn read(reader: &mut Client, key: &str) -> String {
    reader.send(&request(["GET", key]));
    loop {
        match reader.reply().reply() {
            Reply::Push(_) => {}
            Reply::Bulk(value) => return String::from_utf8(value).expect("text"),
            other => panic!("{other}"),
        }
    }
}

/// Waits until a client that tracks has to read its key anew.
#[track_caller]
fn is_told(reader: &mut Client, key: &str) {
    let of_key = Reply::Push(vec!["invalidate".into(), Reply::Array(vec![key.into()])]);
    let of_all = Reply::Push(vec!["invalidate".into(), Reply::Null]);
    loop {
        let push = reader.reply().reply();
        assert!(push == of_key || push == of_all, "{push}");
        // More invalidations may have come before the change. Then the server sends another one.
        if read(reader, key) == "new" {
            return;
        }
    }
}

fn a_client_that_begins_to_track_is_told_of_a_change_soon_afterwards(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "begins") else { return };
    let writer = cluster.front(&[]);
    let mut writer = writer.client();
    for delay_ms in [0, 20, 100, 600, 1_200] {
        // Nothing is tracked at a front-end that has just been started.
        let front = cluster.front(&[]);
        for round in 0..2 {
            let key = format!("key:{delay_ms}:{round}");
            writer.line(&format!("SET {key} old")).is_ok();
            let mut reader = reader(&front, &key);
            thread::sleep(Duration::from_millis(delay_ms));
            writer.line(&format!("SET {key} new")).is_ok();
            is_told(&mut reader, &key);
            drop(reader);
            // Until changes are not wanted any more.
            thread::sleep(Duration::from_millis(2_200));
        }
    }
}

fn what_changed_while_the_news_were_lost_is_told_when_they_come_again(kind: Kind) {
    let Some((cluster, one, other)) = pair(kind, "lost") else { return };
    let mut writer = other.client();
    writer.line("SET key old").is_ok();
    let mut reader = reader(&one, "key");
    // The client takes the invalidations of earlier changes first.
    while !reader.is_silent_for(Duration::from_secs(2)) {
        reader.reply().ignored();
    }
    assert_eq!(read(&mut reader, "key"), "old");
    match &cluster {
        Cluster::Postgres(postgres) => lose_news_of_one(postgres),
        Cluster::Etcd(_) => {
            cluster.stop();
            cluster.start_again();
        }
    }
    eventually("the key changes", || writer.line("SET key new").text() == "OK");
    is_told(&mut reader, "key");
}

marked!(needs_tools: who_keeps_copies_is_told_when_the_connection_for_news_hangs);
fn who_keeps_copies_is_told_when_the_connection_for_news_hangs() {
    let Some(store) = postgres::Postgres::start("news-hang", 1) else { return };
    let fronts = ["one", "other"].map(|name| store.front(&["--store-name", name, "--store-timeout", "1000"]));
    let mut writer = fronts[1].client();
    writer.line("SET key old").is_ok();
    let mut reader = reader(&fronts[0], "key");
    while !reader.is_silent_for(Duration::from_secs(2)) {
        reader.reply().ignored();
    }
    assert_eq!(read(&mut reader, "key"), "old");
    let session = "SELECT pid FROM pg_stat_activity
        WHERE application_name = 'keyfast one' AND query LIKE '%pg_notify%'";
    let mut process = String::new();
    eventually("it sends news", || {
        process = store.sql(0, session).expect("the store");
        !process.is_empty()
    });
    let process = process.parse().expect("a number");
    signal(process, "STOP");
    writer.line("SET key new").is_ok();
    is_told(&mut reader, "key");
    signal(process, "CONT");
}

/// Ends the connection on which one front-end hears of the others.
fn lose_news_of_one(postgres: &postgres::Postgres) {
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'keyfast one' AND query LIKE '%pg_notify%'";
    eventually("a connection is lost", || postgres.sql(0, terminate) == Ok("1".into()));
}

marked!(needs_tools: what_a_front_end_changed_while_it_could_tell_no_news_is_told_later);
fn what_a_front_end_changed_while_it_could_tell_no_news_is_told_later() {
    let Some((cluster, one, other)) = postgres::pair("untold") else { return };
    let mut writer = one.client();
    writer.line("SET key old").is_ok();
    let mut reader = reader(&other, "key");
    while !reader.is_silent_for(Duration::from_secs(2)) {
        reader.reply().ignored();
    }
    assert_eq!(read(&mut reader, "key"), "old");
    lose_news_of_one(&cluster);
    writer.line("SET key new").is_ok();
    is_told(&mut reader, "key");
}
