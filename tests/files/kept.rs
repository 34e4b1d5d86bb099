//! Files of one version load in the next: what earlier versions have written is kept in `tests/files/kept`, a
//! folder for each version, and every later one has to give the same answers from it.
//!
//! A folder holds a snapshot, a log of two parts, the rows of a PostgreSQL and the keys of an etcd, and in
//! `replies.txt` the questions with the answers of the version that wrote them. Nothing in there is written
//! again. When a version changes a format, it adds its own folder: `KEYFAST_WRITE_KEPT=1 cargo test
//! --test files -- kept::`, twice, with a PostgreSQL and an etcd on the machine.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};

use support::client::Client;
use support::folder::Folder;
use support::pages::root;
use support::server::wait_until;
use support::store::cluster::Cluster;
use support::store::etcd::Etcd;
use support::store::postgres::Postgres;

/// Data of every type, below and above the limits at which its form changes.
const FILL: &[&str] = &[
    "SET text value",
    "SET number 12345678901",
    "SET expiring value PXAT 4102444800000",
    "SETBIT bits 70000 1",
    "EVAL \"redis.call('SET', KEYS[1], string.rep('long ', 9000))\" 1 long",
    "HSET hash:small field value number 7",
    "EVAL \"for i = 1, 600 do redis.call('HSET', KEYS[1], 'field:' .. i, i) end\" 1 hash:large",
    "RPUSH list:small a 2 c",
    "EVAL \"for i = 1, 3000 do redis.call('RPUSH', KEYS[1], 'element:' .. i) end\" 1 list:large",
    "SADD set:integers 1 2 3 9000000000",
    "SADD set:small a b c",
    "EVAL \"for i = 1, 600 do redis.call('SADD', KEYS[1], 'member:' .. i) end\" 1 set:large",
    "ZADD zset:small 1 a 2.5 b -inf c",
    "EVAL \"for i = 1, 600 do redis.call('ZADD', KEYS[1], i / 8, 'member:' .. i) end\" 1 zset:large",
    "PFADD hyperloglog a b c d",
    "XADD stream 1-1 field value",
    "XADD stream 1-2 field value other value",
    "XGROUP CREATE stream group 0",
    "XREADGROUP GROUP group consumer COUNT 1 STREAMS stream >",
    "XADD stream 2-0 field value",
    "XDEL stream 1-2",
    "SETNX lock mine",
    "LOCK ACQUIRE lock:numbered token PX 3000000000000",
    "SELECT 3",
    "SET text elsewhere",
    "SELECT 0",
];

/// What stores do not have, or have elsewhere.
const FILL_IN_MEMORY: &[&str] = &[
    "HSET hash:expiring stays 1 goes 2",
    "HPEXPIREAT hash:expiring 4102444800000 FIELDS 1 goes",
    "FUNCTION LOAD \"#!lua name=kept\nredis.register_function('answer', function() return 42 end)\"",
];

/// Questions that every version answers alike.
const ASK: &[&str] = &[
    "GET text",
    "INCR number",
    "GET expiring",
    "PEXPIRETIME expiring",
    "PEXPIRETIME text",
    "BITCOUNT bits",
    "EVAL \"return redis.sha1hex(redis.call('GET', KEYS[1]))\" 1 long",
    "HMGET hash:small field number missing",
    "EVAL \"local s = 0 for _, v in ipairs(redis.call('HVALS', KEYS[1])) do s = s + v end return s\" 1 hash:large",
    "LRANGE list:small 0 -1",
    "LLEN list:large",
    "LINDEX list:large 1500",
    "SMISMEMBER set:integers 1 4 9000000000",
    "SMISMEMBER set:small a b c d",
    "SCARD set:large",
    "SMISMEMBER set:large member:1 member:600 member:601",
    "ZRANGE zset:small 0 -1 WITHSCORES",
    "ZCARD zset:large",
    "ZRANGEBYSCORE zset:large 30 30.5 WITHSCORES",
    "PFCOUNT hyperloglog",
    "XRANGE stream - +",
    "XPENDING stream group",
    "XREADGROUP GROUP group consumer STREAMS stream >",
    "XADD stream 1-9 field value",
    "SETNX lock theirs",
    "LOCK ACQUIRE lock:numbered other PX 1000",
    "SELECT 3",
    "GET text",
    "SELECT 0",
];

/// Questions about [`FILL_IN_MEMORY`].
const ASK_IN_MEMORY: &[&str] =
    &["HGETALL hash:expiring", "HPEXPIRETIME hash:expiring FIELDS 2 stays goes", "FCALL answer 0", "DBSIZE"];

fn kept() -> PathBuf {
    root().join("tests/files/kept")
}

/// The folders of the versions; the one of this version, if it is to be written.
fn versions() -> Vec<PathBuf> {
    let entries = fs::read_dir(kept()).expect("the folder");
    let folders: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(folders.iter().any(|folder| folder.ends_with("1.0.0")), "the first version is kept");
    folders
}

/// Where this version is to be written, if that is asked for. What is there stays.
fn to_be_written(file: &str) -> Option<PathBuf> {
    let folder = kept().join(env!("CARGO_PKG_VERSION"));
    let is_asked = env::var_os("KEYFAST_WRITE_KEPT").is_some() && !folder.join(file).exists();
    is_asked.then(|| {
        fs::create_dir_all(&folder).expect("a folder");
        folder.join(file)
    })
}

fn fill(client: &mut Client, lines: &[&str]) {
    for line in lines {
        let reply = client.line(line).reply();
        assert!(!reply.to_string().contains("ERR"), "{line}: {reply}");
    }
}

/// The answers to questions, in the form of `replies.txt`.
fn answers(client: &mut Client, questions: &[&str]) -> String {
    questions.iter().map(|question| format!("{question}\n  {}\n", client.line(question).reply())).collect()
}

/// Asks what a file of questions has, and compares the answers with those that it has.
fn compare(client: &mut Client, folder: &Path, file: &str) {
    let expected = fs::read_to_string(folder.join(file)).expect("the answers");
    let questions: Vec<&str> = expected.lines().filter(|line| !line.starts_with("  ")).collect();
    assert!(questions.len() > 20, "{}", questions.len());
    for (came, expected) in answers(client, &questions).lines().zip(expected.lines()) {
        assert_eq!(came, expected, "{}", folder.display());
    }
    let number = client.line("LOCK FENCE lock:numbered token").integer();
    client.line("LOCK RELEASE lock:numbered token").is(1);
    let next = client.line("LOCK ACQUIRE lock:numbered other PX 3000000000000").integer();
    assert!(number > 0 && next > number, "{}: {number}, {next}", folder.display());
}

#[test]
fn snapshots_of_earlier_versions_are_loaded() {
    if let Some(path) = to_be_written("dump.rdb") {
        let folder = Folder::new("kept-write-dump");
        let mut client = folder.serve(&[]).into_client();
        fill(&mut client, FILL);
        fill(&mut client, FILL_IN_MEMORY);
        client.line("SAVE").is_ok();
        fs::copy(folder.file("dump.rdb"), &path).expect("a copy");
        let asked = [answers(&mut client, ASK), answers(&mut client, ASK_IN_MEMORY)].concat();
        fs::write(path.with_file_name("replies.txt"), asked).expect("the answers");
    }
    for version in versions() {
        let folder = Folder::new("kept-dump");
        fs::copy(version.join("dump.rdb"), folder.file("dump.rdb")).expect("a copy");
        compare(&mut folder.serve(&[]).into_client(), &version, "replies.txt");
    }
}

#[test]
fn logs_of_earlier_versions_are_loaded_and_go_on() {
    const LOG: &[&str] = &["--appendonly", "yes"];
    if let Some(path) = to_be_written("appendonlydir") {
        let folder = Folder::new("kept-write-log");
        let mut client = folder.serve(LOG).into_client();
        fill(&mut client, &FILL[..FILL.len() / 2]);
        client.line("BGREWRITEAOF").reply();
        wait_until("the log is rewritten", || client.info("aof_rewrites") == "1");
        fill(&mut client, &FILL[FILL.len() / 2..]);
        fill(&mut client, FILL_IN_MEMORY);
        client.send(b"SHUTDOWN\r\n");
        assert!(client.is_closed());
        fs::create_dir(&path).expect("a folder");
        for entry in fs::read_dir(folder.file("appendonlydir")).expect("the log") {
            let from = entry.expect("an entry").path();
            fs::copy(&from, path.join(from.file_name().expect("a name"))).expect("a copy");
        }
    }
    for version in versions() {
        let folder = Folder::new("kept-log");
        fs::create_dir(folder.file("appendonlydir")).expect("a folder");
        for entry in fs::read_dir(version.join("appendonlydir")).expect("the log") {
            let from = entry.expect("an entry").path();
            let name = from.file_name().expect("a name").to_str().expect("a name in UTF-8");
            fs::copy(&from, folder.file(&format!("appendonlydir/{name}"))).expect("a copy");
        }
        let server = folder.serve(LOG);
        let mut client = server.client();
        client.line("SET after 1").is_ok();
        client.line("DEL after").is(1);
        compare(&mut client, &version, "replies.txt");
        drop((client, server));
        let mut client = folder.serve(LOG).into_client();
        client.line("GET number").is("12345678902");
    }
}

/// Asks two servers on a store, against what the version has answered.
fn compare_in_store(cluster: &Cluster, version: &Path) {
    let (one, other) = (cluster.front(&[]), cluster.front(&[]));
    compare(&mut one.client(), version, "replies-of-stores.txt");
    other.client().line("GET number").is("12345678902");
    other.client().line("SETNX lock theirs").is(0);
}

/// Fills a store, has `keep` write what it holds, and writes the answers if there are none yet.
fn fill_store(cluster: &Cluster, path: &Path, keep: impl FnOnce()) {
    let server = cluster.front(&[]);
    let mut client = server.client();
    fill(&mut client, FILL);
    keep();
    let replies = path.with_file_name("replies-of-stores.txt");
    if !replies.exists() {
        fs::write(replies, answers(&mut client, ASK)).expect("the answers");
    }
}

marked!(needs_tools: rows_of_earlier_versions_are_read_from_postgres);
fn rows_of_earlier_versions_are_read_from_postgres() {
    if let Some(path) = to_be_written("postgres.sql") {
        let Some(postgres) = Postgres::start("kept-write-postgres", 1) else { return };
        let cluster = Cluster::Postgres(postgres);
        fill_store(&cluster, &path, || {
            let Cluster::Postgres(postgres) = &cluster else { return };
            fs::write(&path, postgres.dump()).expect("the rows");
        });
    }
    for version in versions() {
        let Some(postgres) = Postgres::start("kept-postgres", 1) else { return };
        postgres.load(&version.join("postgres.sql"));
        compare_in_store(&Cluster::Postgres(postgres), &version);
    }
}

marked!(needs_tools: keys_of_earlier_versions_are_read_from_etcd);
fn keys_of_earlier_versions_are_read_from_etcd() {
    if let Some(path) = to_be_written("etcd.json") {
        let Some(etcd) = Etcd::start("kept-write-etcd", 1) else { return };
        let cluster = Cluster::Etcd(etcd);
        fill_store(&cluster, &path, || {
            let Cluster::Etcd(etcd) = &cluster else { return };
            // All keys.
            let range = etcd.call("kv/range", r#"{"key": "AA==", "range_end": "AA=="}"#);
            let (_, body) = range.split_once("\r\n\r\n").unwrap_or(("", &range));
            let range: Value = serde_json::from_str(body).expect("an answer of etcd");
            let kept = range["kvs"].as_array().expect("keys").iter().map(|key| {
                json!({"key": key["key"], "value": key["value"], "lease": key["lease"].as_str().unwrap_or("0")})
            });
            let lines: Vec<String> = kept.map(|key| key.to_string()).collect();
            fs::write(&path, lines.join("\n") + "\n").expect("the keys");
        });
    }
    for version in versions() {
        let Some(etcd) = Etcd::start("kept-etcd", 1) else { return };
        let keys = fs::read_to_string(version.join("etcd.json")).expect("the keys");
        assert!(keys.lines().count() > 10);
        // An etcd that is restored has the revisions of before, of which fencing numbers are made.
        for _ in 0..100 {
            etcd.call("kv/put", r#"{"key": "YQ==", "value": "YQ=="}"#);
        }
        for line in keys.lines() {
            let key: Value = serde_json::from_str(line).expect("a key");
            // The leases of keys that expire have to be there. Two keys may share one.
            if key["lease"] != "0" {
                etcd.call("lease/grant", &json!({"ID": key["lease"], "TTL": 2_000_000_000}).to_string());
            }
            let reply = etcd.call("kv/put", line);
            assert!(reply.contains("header"), "{reply}");
        }
        compare_in_store(&Cluster::Etcd(etcd), &version);
    }
}
