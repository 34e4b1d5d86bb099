//! The chapters on backup and restore: their lines are run, on servers that go on working meanwhile. No
//! number that a lock was given after the backup is given again.

use std::fs;
use std::process::Command;

use support::client::Client;
use support::folder::Folder;
use support::pages::blocks_of;
use support::server::{Server, program};
use support::store::cluster::{Cluster, Kind, eventually};
use support::tools::installed;

/// The block of a document that begins so.
fn block(document: &str, begin: &str) -> String {
    let blocks = blocks_of(document);
    let found = blocks.iter().find(|block| block.text.starts_with(begin));
    found.unwrap_or_else(|| panic!("{document} has no block that begins with {begin}")).text.clone()
}

/// Runs the lines of a block beside a server, whose client has both names.
fn run(block: &str, server: &Server, folder: &Folder) {
    let client = format!("'{}' cli -p {}", program(), server.port());
    let lines = block.replace("keyfast cli", &client).replace("redis-cli", &client);
    let output =
        Command::new("sh").args(["-ec", &lines]).current_dir(folder.path()).output().expect("sh runs");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success() && !said.contains("ERR"), "{lines}: {said}");
}

/// Takes and releases a lock so often, and returns the last number.
fn draw(client: &mut Client, times: usize) -> i64 {
    let mut last = 0;
    for _ in 0..times {
        let number = client.line("LOCK ACQUIRE drawn t PX 60000").integer();
        assert!(number > last, "{number} after {last}");
        last = number;
        client.line("LOCK RELEASE drawn t").is(1);
    }
    last
}

/// Takes what a backup is to have.
fn hold(client: &mut Client) -> i64 {
    client.line("SET kept v").is_ok();
    draw(client, 3);
    client.line("LOCK ACQUIRE held t PX 3600000").integer()
}

/// Checks what is there after a restore. `last` is the largest number that was given before it.
fn expect_restored(client: &mut Client, held: i64, last: i64) {
    client.line("GET kept").is("v");
    client.line("LOCK FENCE held t").is(held);
    client.line("EXISTS later").is(0);
    let number = client.line("LOCK ACQUIRE drawn t PX 60000").integer();
    assert!(number > last, "{number} after {last}");
    client.line("SET other t NX PX 60000").is_ok();
    assert!(client.line("LOCK EXTEND other t PX 60000").integer() > number);
}

#[test]
fn memory_is_restored_from_a_snapshot_and_no_number_comes_again() {
    let (folder, restored) = (Folder::new("backups-snapshot"), Folder::new("backups-snapshot-restored"));
    let server = Server::start();
    let mut client = server.client();
    let held = hold(&mut client);
    run(&block("src/guide/durability.md", "keyfast cli --rdb"), &server, &folder);
    client.line("SET later v").is_ok();
    let last = draw(&mut client, 30);
    drop((client, server));
    fs::copy(folder.file("backup.rdb"), restored.file("dump.rdb")).expect("a snapshot");
    let server = Server::start_with(&["--dir", &restored.file("")]);
    expect_restored(&mut server.client(), held, last);
}

#[test]
fn memory_is_restored_from_a_copy_of_the_log_and_no_number_comes_again() {
    let folder = Folder::new("backups-log");
    let options = ["--dir", &folder.file(""), "--appendonly", "yes", "--appendfsync", "always"];
    let server = Server::start_with(&options);
    let mut client = server.client();
    let held = hold(&mut client);
    run(&block("src/guide/durability.md", "redis-cli CONFIG SET auto-aof"), &server, &folder);
    client.line("CONFIG GET auto-aof-rewrite-percentage").ignored();
    client.line("SET later v").is_ok();
    let last = draw(&mut client, 30);
    drop((client, server));
    fs::remove_dir_all(folder.file("appendonlydir")).expect("the log");
    fs::rename(folder.file("backup"), folder.file("appendonlydir")).expect("the copy");
    expect_restored(&mut Server::start_with(&options).into_client(), held, last);
}

marked!(needs_tools: postgresql_is_restored_and_no_number_comes_again);
fn postgresql_is_restored_and_no_number_comes_again() {
    let Some(Cluster::Postgres(postgres)) = Cluster::start(Kind::Postgres, "backups") else { return };
    let run = |begin: &str| {
        let url = "postgres://me@db1/locks";
        let line = block("src/guide/store.md", begin);
        assert!(line.contains(url), "{line}");
        postgres.shell(&line.replace(url, &format!("'{}'", postgres.url())));
    };
    let (front, idle) = (postgres.front(&[]), postgres.front(&[]));
    let mut client = front.client();
    let held = hold(&mut client);
    run("pg_dump");
    client.line("SET later v").is_ok();
    let last = draw(&mut client, 30);
    drop((client, front, idle));
    run("pg_restore");
    let front = postgres.front(&[]);
    expect_restored(&mut front.client(), held, last);
    // Also under servers that go on, one of which has done nothing since the backup.
    let (mut client, other) = (front.client(), postgres.front(&[]));
    other.client().line("GET kept").is("v");
    let held = client.line("LOCK FENCE held t").integer();
    for key in ["drawn", "other"] {
        client.cmd(["DEL", key]).is(1);
    }
    run("pg_dump");
    let last = draw(&mut client, 30);
    run("pg_restore");
    let mut client = other.client();
    eventually("the store is back", || client.line("GET kept").reply().to_string().contains('v'));
    expect_restored(&mut client, held, last);
}

marked!(needs_tools: etcd_is_restored_and_no_number_comes_again);
fn etcd_is_restored_and_no_number_comes_again() {
    if installed("etcdctl").is_none() {
        return;
    }
    let Some(Cluster::Etcd(etcd)) = Cluster::start(Kind::Etcd, "backups") else { return };
    let cluster = Cluster::Etcd(etcd);
    let Cluster::Etcd(etcd) = &cluster else { unreachable!() };
    let (front, other) = (cluster.front(&[]), cluster.front(&[]));
    let (mut client, mut idle) = (front.client(), other.client());
    idle.line("EXISTS held").is(0);
    let held = hold(&mut client);
    etcd.shell(&block("src/guide/store.md", "etcdctl --endpoints"));
    client.line("SET later v").is_ok();
    let last = draw(&mut client, 30);
    etcd.lose_data();
    etcd.shell(&block("src/guide/store.md", "etcdctl snapshot restore"));
    etcd.start_node(0);
    // One that has done nothing since the backup meets nothing that it does not know.
    eventually("the store is back", || idle.line("GET kept").reply().to_string().contains('v'));
    expect_restored(&mut idle, held, last);
}
