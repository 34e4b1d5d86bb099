//! CLIENT PAUSE: who waits, who does not, and what stays as it is meanwhile.

use std::time::Duration;

use support::client::Client;
use support::server::{PATIENCE, Server};

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('writes', function() return 1 end)
redis.register_function{function_name='reads', callback=function() return 1 end, flags={'no-writes'}}";

/// The SHA-1 of `return 1`, and of the same with the flag `no-writes`.
const PLAIN: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// Sends a line, and waits for as many clients as this to be held.
#[track_caller]
fn held(client: &mut Client, line: &str, observer: &mut Client, blocked: usize) {
    client.send(&support::client::request(support::client::words(line)));
    let started = std::time::Instant::now();
    while observer.info("blocked_clients") != blocked.to_string() {
        assert!(started.elapsed() < PATIENCE, "{line} is not held");
    }
}

marked!(also_redis: a_pause_of_writes_holds_what_a_replica_would_have_to_be_sent);
fn a_pause_of_writes_holds_what_a_replica_would_have_to_be_sent() {
    let server = Server::start();
    let mut observer = server.client();
    observer.line("SET k v").is_ok();
    observer.cmd(["FUNCTION", "LOAD", LIBRARY]).is("lib");
    observer.line("SCRIPT LOAD \"return 1\"").is(PLAIN);
    let reads = "#!lua flags=no-writes\nreturn 1";
    let known = observer.cmd(["SCRIPT", "LOAD", reads]).text();
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    let known = format!("EVALSHA {known} 0");
    let goes_on = [
        "GET k",
        "SET a",
        "NOSUCH",
        "INFO",
        "EVAL_RO \"return 1\" 0",
        "EVAL \"#!lua flags=no-writes\nreturn 1\" 0",
        &known,
        "FCALL reads 0",
        "FCALL_RO reads 0",
        "FUNCTION LIST",
        "FUNCTION DUMP",
        "FUNCTION NOSUCH x",
        "SCRIPT LOAD \"return 2\"",
        "SUBSCRIBE c",
        "MULTI",
        "CONFIG SET maxmemory 0",
        "EXEC",
    ];
    for line in goes_on {
        let _ = server.client().line(line).reply();
    }
    let held_ones = [
        "SET a b",
        "INCR k",
        "DEL absent",
        "EVAL \"return 1\" 0",
        "EVAL \"#!lua\nreturn 1\" 0",
        &format!("EVALSHA {PLAIN} 0"),
        "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
        "FCALL writes 0",
        "FCALL nosuch 0",
        "FUNCTION LOAD x",
        "FUNCTION DELETE lib",
        "FUNCTION FLUSH",
        "FUNCTION RESTORE x",
        "PUBLISH c m",
        "SPUBLISH c m",
        "FLUSHALL",
        "SWAPDB 0 1",
        "GETEX k",
    ];
    let mut clients: Vec<Client> = Vec::new();
    for line in held_ones {
        let mut client = server.client();
        held(&mut client, line, &mut observer, clients.len() + 1);
        clients.push(client);
    }
    let list = observer.line("CLIENT LIST").text();
    assert_eq!(list.matches(" flags=b ").count(), clients.len(), "{list}");
    assert!(list.contains("cmd=function|restore"), "{list}");
    observer.line("GET k").is("v");
    observer.line("CLIENT UNPAUSE").is_ok();
    for client in &mut clients {
        let _ = client.reply();
    }
    assert_eq!(observer.info("blocked_clients"), "0");
    assert!(!observer.line("CLIENT LIST").text().contains("flags=b"));
}

marked!(also_redis: a_pause_holds_exec_of_writes_and_the_queueing_of_more_but_no_exec_of_reads);
fn a_pause_holds_exec_of_writes_and_the_queueing_of_more_but_no_exec_of_reads() {
    let server = Server::start();
    let (mut writer, mut reader, mut third, mut observer) =
        (server.client(), server.client(), server.client(), server.client());
    writer.line("MULTI").is_ok();
    writer.line("SET k v").is_simple("QUEUED");
    reader.line("MULTI").is_ok();
    reader.line("GET k").is_simple("QUEUED");
    reader.line("EVAL \"#!lua flags=no-writes\nreturn 1\" 0").is_simple("QUEUED");
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    held(&mut writer, "EXEC", &mut observer, 1);
    assert_eq!(reader.line("EXEC").reply().to_string(), "[(nil), (integer) 1]");
    third.line("MULTI").is_ok();
    third.line("GET k").is_simple("QUEUED");
    held(&mut third, "SET k w", &mut observer, 2);
    observer.line("CLIENT UNPAUSE").is_ok();
    assert_eq!(writer.reply().reply().to_string(), "[OK]");
    third.reply().is_simple("QUEUED");
    assert_eq!(third.line("EXEC").reply().to_string(), "[\"v\", OK]");
}

marked!(also_redis: a_client_without_the_right_is_refused_in_a_pause_as_well);
fn a_client_without_the_right_is_refused_in_a_pause_as_well() {
    let server = Server::start();
    let (mut client, mut observer) = (server.client(), server.client());
    observer.line("ACL SETUSER limited on nopass ~ok:* +@all -del").is_ok();
    client.line("AUTH limited x").is_ok();
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    client.line("SET no v").is_error("NOPERM No permissions to access a key");
    client.line("DEL ok:1").is_error("NOPERM User limited has no permissions to run the 'del' command");
    held(&mut client, "SET ok:1 v", &mut observer, 1);
    // What was allowed when it was sent is looked at again when it runs.
    observer.line("ACL SETUSER limited -set").is_ok();
    observer.line("CLIENT UNPAUSE").is_ok();
    client.reply().is_error("NOPERM User limited has no permissions to run the 'set' command");
    observer.line("EXISTS ok:1").is(0);
}

marked!(also_redis: a_pause_of_all_holds_everything_but_what_is_refused);
fn a_pause_of_all_holds_everything_but_what_is_refused() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let names = ["ALL", "WRITE"].map(|mode| format!("CLIENT PAUSE 300 {mode}"));
    other.line(&names[0]).is_ok();
    other.line("GET").is_error("ERR wrong number of arguments for 'get' command");
    client.line("PING").is_simple("PONG");
    other.line("PING").is_simple("PONG");
}

marked!(also_redis: nothing_expires_and_nothing_is_evicted_in_a_pause);
fn nothing_expires_and_nothing_is_evicted_in_a_pause() {
    let server = Server::start();
    let mut client = server.client();
    client.line("MSET a 1 b 2").is_ok();
    client.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    client.line("CLIENT UNPAUSE").is_ok();
    client.line("SET k v PX 30").is_ok();
    client.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    while client.line("EXISTS k").integer() == 1 {}
    for read in
        ["GET k", "TTL k", "TYPE k", "EXISTS k", "KEYS k", "EVAL_RO \"return redis.call('get', 'k')\" 0"]
    {
        let _ = client.line(read);
        client.line("DBSIZE").is(3);
    }
    assert_eq!(client.info("expired_keys"), "0");
    client.line("CONFIG SET maxmemory-policy allkeys-random maxmemory 1").is_ok();
    client.line("GET a").is("1");
    client.line("GET b").is("2");
    assert_eq!(client.info("evicted_keys"), "0");
    client.line("CONFIG SET maxmemory 0").is_ok();
    client.line("CLIENT UNPAUSE").is_ok();
    client.line("GET k").is_nil();
    client.line("DBSIZE").is(2);
}

marked!(also_redis: what_a_client_sent_that_leaves_in_a_pause_is_not_executed);
fn what_a_client_sent_that_leaves_in_a_pause_is_not_executed() {
    let server = Server::start();
    let (mut client, mut observer) = (server.client(), server.client());
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    held(&mut client, "SET k v", &mut observer, 1);
    let id = observer.line("CLIENT LIST").text();
    assert!(id.contains(" flags=b "), "{id}");
    drop(client);
    let started = std::time::Instant::now();
    while observer.info("blocked_clients") != "0" {
        assert!(started.elapsed() < PATIENCE, "the client still waits");
    }
    observer.line("CLIENT UNPAUSE").is_ok();
    observer.line("EXISTS k").is(0);
}

#[test]
fn a_stranger_cannot_fill_the_memory_while_a_pause_holds_its_password() {
    // Redis 7.0 has no limit for it.
    const MIB: usize = 1 << 20;
    let server = Server::start_with(&["--requirepass", "secret"]);
    let (mut admin, mut known, mut stranger) = (server.client(), server.client(), server.client());
    admin.line("AUTH secret").is_ok();
    known.line("AUTH secret").is_ok();
    admin.line("CLIENT PAUSE 1000000 ALL").is_ok();
    let piece = vec![b'x'; MIB];
    stranger.send(b"AUTH wrong\r\n");
    let refused = (0..64).find_map(|_| stranger.try_send(&piece).err());
    assert!(refused.is_some(), "the server took 64 MiB of a stranger");
    server.wait_for_output("Closing client that reached max query buffer length");
    // A client that has authenticated may send more.
    known.send(b"PING\r\n");
    (0..64).for_each(|_| known.send(&piece));
}

marked!(also_redis: what_follows_a_held_request_keeps_its_order);
fn what_follows_a_held_request_keeps_its_order() {
    let server = Server::start();
    let (mut client, mut observer) = (server.client(), server.client());
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    held(&mut client, "SET k v", &mut observer, 1);
    client.send(b"GET k\r\nSET k w\r\nGET k\r\n");
    assert!(client.is_silent_for(Duration::from_millis(50)));
    observer.line("CLIENT UNPAUSE").is_ok();
    client.reply().is_ok();
    client.reply().is("v");
    client.reply().is_ok();
    client.reply().is("w");
}

#[test]
fn a_client_that_is_held_cannot_be_unblocked_alone() {
    // Redis 7.0 ends with a report of a bug.
    let server = Server::start();
    let (mut client, mut observer) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    observer.line("CLIENT PAUSE 1000000 WRITE").is_ok();
    held(&mut client, "SET k v", &mut observer, 1);
    observer.line(&format!("CLIENT UNBLOCK {id}")).is(0);
    observer.line(&format!("CLIENT KILL ID {id}")).is(1);
    assert!(client.is_closed());
    observer.line("CLIENT UNPAUSE").is_ok();
    observer.line("EXISTS k").is(0);
}
