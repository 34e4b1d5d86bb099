//! WAITAOF: a client waits until what it has changed is on the disk. As Valkey 9.1.2 was seen to reply.

use std::time::{Duration, Instant};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::Server;

/// A server with a log. With `appendfsync no` the system writes, which is not while these tests run.
fn serve(folder: &Folder, sync: &str) -> Server {
    folder.serve(&["--appendonly", "yes", "--appendfsync", sync])
}

/// What WAITAOF says: on how many disks, here and elsewhere.
fn lasts(local: i64) -> Reply {
    Reply::Array(vec![Reply::Integer(local), Reply::Integer(0)])
}

/// How long a request takes.
fn timed(client: &mut Client, line: &str, reply: Reply) -> Duration {
    let began = Instant::now();
    client.line(line).is(reply);
    began.elapsed()
}

#[test]
fn a_client_waits_until_its_changes_are_on_the_disk() {
    let folder = Folder::new("durability-waits");
    let server = serve(&folder, "everysec");
    let mut client = server.client();
    for value in 0..3 {
        client.line(&format!("SET key {value}")).is_ok();
        client.line("WAITAOF 1 0 0").is(lasts(1));
        client.line("WAITAOF 0 0 0").is(lasts(1));
    }
    // There are no replicas to wait for.
    assert!(timed(&mut client, "WAITAOF 1 1 50", lasts(1)) >= Duration::from_millis(50));
    // What comes behind it is answered after it.
    client.send(b"SET key x\r\nWAITAOF 1 0 0\r\nGET key\r\n");
    client.reply().is_ok();
    client.reply().is(lasts(1));
    client.reply().is("x");
    server.client().line("WAITAOF 0 0 0").is(lasts(1));
}

#[test]
fn a_wait_ends_in_vain() {
    let folder = Folder::new("durability-in-vain");
    let server = serve(&folder, "no");
    let (mut client, mut other) = (server.client(), server.client());
    client.line("WAITAOF 1 0 0").is(lasts(1));
    client.line("SET key value").is_ok();
    client.line("WAITAOF 0 0 0").is(lasts(0));
    assert!(timed(&mut client, "WAITAOF 1 0 50", lasts(0)) >= Duration::from_millis(50));
    // Others have changed nothing.
    other.line("WAITAOF 1 0 0").is(lasts(1));
    // Another client ends it, …
    let id = client.line("CLIENT ID").integer();
    client.send(b"WAITAOF 1 0 0\r\n");
    while !other.line("CLIENT LIST").text().contains("flags=b") {}
    other.line(&format!("CLIENT UNBLOCK {id}")).is(1);
    client.reply().is(lasts(0));
    // … or the disk.
    client.send(b"WAITAOF 1 0 0\r\n");
    while !other.line("CLIENT LIST").text().contains("flags=b") {}
    other.line("CONFIG SET appendfsync everysec").is_ok();
    client.reply().is(lasts(1));
}

#[test]
fn a_wait_for_a_log_ends_with_the_log() {
    let folder = Folder::new("durability-off");
    let server = serve(&folder, "no");
    let (mut client, mut other) = (server.client(), server.client());
    client.line("SET key value").is_ok();
    client.send(b"WAITAOF 1 0 0\r\n");
    while !other.line("CLIENT LIST").text().contains("flags=b") {}
    other.line("CONFIG SET appendonly no").is_ok();
    client.reply().is_error("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
}

#[test]
fn what_shares_a_step_with_others_does_not_wait() {
    let folder = Folder::new("durability-shared");
    let server = serve(&folder, "no");
    let mut client = server.client();
    client.line("SET key value").is_ok();
    client.line("MULTI").is_ok();
    client.line("WAITAOF 1 0 0").is_simple("QUEUED");
    client.line("EXEC").is(Reply::Array(vec![lasts(0)]));
    client.cmd(["EVAL", "return redis.call('WAITAOF', 1, 1, 0)", "0"]).is(lasts(0));
}

#[test]
fn without_a_log_nothing_is_on_the_disk() {
    let mut client = Server::start().into_client();
    client.line("SET key value").is_ok();
    client.line("WAITAOF 0 0 0").is(lasts(0));
    for (arguments, error) in [
        ("1 0 0", "WAITAOF cannot be used when numlocal is set but appendonly is disabled."),
        ("2 0 0", "value is out of range, value must between 0 and 1"),
        ("0 -1 0", "value is out of range, must be positive"),
        ("0 x 0", "value is out of range, must be positive"),
        ("0 0 1.5", "timeout is not an integer or out of range"),
        ("0 0 -1", "timeout is negative"),
        ("0 0 9223372036854775807", "timeout is out of range"),
    ] {
        client.line(&format!("WAITAOF {arguments}")).is_error(&format!("ERR {error}"));
    }
}
