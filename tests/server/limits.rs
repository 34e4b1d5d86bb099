//! The limits of requests and clients, and what requests at these limits cost the server.

use std::process::Command;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::open_files::ask_for;
use support::server::{PATIENCE, Server, program};

const MIB: usize = 1 << 20;

#[test]
fn announced_lengths_take_no_memory() {
    let Some(_files) = ask_for(110) else { return };
    let server = Server::start();
    let before = server.resident_bytes();
    let clients: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = server.client();
            client.send(b"*2147483647\r\n$536870912\r\nand nothing more");
            client
        })
        .collect();
    server.client().line("PING").is_simple("PONG");
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 * MIB, "100 announcements of 512 MiB took {grown} bytes");
    drop(clients);
}

#[test]
fn a_query_that_never_ends_is_cut_off() {
    let server = Server::start_with(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.client();
    client.send(b"*2\r\n$4\r\nECHO\r\n$100000000\r\n");
    let piece = vec![b'x'; MIB];
    let refused = (0..100).find_map(|_| client.try_send(&piece).err());
    assert!(refused.is_some(), "the server took 100 MiB of one request");
    server.wait_for_output("Closing client that reached max query buffer length");
}

#[test]
fn a_million_arguments_are_one_request() {
    let server = Server::start();
    let mut client = server.client();
    let keys: Vec<String> = (0..1_000_000).map(|number| number.to_string()).collect();
    client.cmd(["SETNX", "999999", "v"]).is(1);
    client.cmd(["DEL"].into_iter().chain(keys.iter().map(String::as_str))).is(1);
    let most = 1 << 20;
    client.cmd(["EXISTS"].into_iter().chain(std::iter::repeat_n("k", most - 1))).is(0);
    client
        .cmd(["EXISTS"].into_iter().chain(std::iter::repeat_n("k", most)))
        .is_error("ERR Protocol error: invalid multibulk length");
    assert!(client.is_closed());
}

#[test]
fn memory_of_large_requests_is_given_back() {
    let server = Server::start();
    let before = server.resident_bytes();
    for _ in 0..4 {
        let mut client = server.client();
        client.cmd([b"ECHO", vec![b'x'; 64 * MIB].as_slice()]).ignored();
    }
    let kept = server.resident_bytes().saturating_sub(before);
    assert!(kept < 32 * MIB, "{kept} bytes kept");
}

#[test]
fn who_comes_too_many_is_told_so() {
    let server = Server::start_with(&["--maxclients", "3"]);
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.line("PING").is_simple("PONG"));
    let mut refused = server.client();
    refused.reply().is_error("ERR max number of clients reached");
    assert!(refused.is_closed());
    drop(clients.pop());
    wait_for_room(&server);
    assert!(clients[0].line("INFO stats").text().contains("rejected_connections:"));
}

/// The open files that such a server may have.
const FEW: usize = 300;

/// A server whose limit on open files is 150, which it may raise to [`FEW`] itself.
fn start_with_few_files(options: &[&str]) -> Server {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -S -n 150 && ulimit -H -n {FEW} && exec \"$@\""), "sh", &program()]);
    command.args(["--bind", "127.0.0.1", "--port", "0", "--save", ""]).args(options);
    Server::run(&mut command, 0)
}

/// Redis lowers the upper limit, too, when it raises the lower one. For a user other than root there is no
/// way back: such a Redis can never serve more clients than it was started for. Keyfast can.
#[test]
fn no_more_clients_are_promised_than_the_system_has_sockets_for() {
    let Some(_files) = ask_for(FEW) else { return };
    let server = start_with_few_files(&["--maxclients", "100"]);
    let mut client = server.client();
    for too_many in ["269", "4000000000"] {
        client.cmd(["CONFIG", "SET", "maxclients", too_many]).is_error(
            "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not \
             able to handle the specified number of clients, try with 268",
        );
        assert_eq!(client.line("CONFIG GET maxclients").items()[1], "100".into());
    }
    client.line("CONFIG SET maxclients 268").is_ok();
    let mut others: Vec<Client> = (1..268).map(|_| server.client()).collect();
    others.iter_mut().for_each(|other| other.line("PING").is_simple("PONG"));
    server.client().reply().is_error("ERR max number of clients reached");
}

/// Redis restores the parameter's text, which need not be the password in effect: it lets every client in.
#[test]
fn a_password_that_is_set_with_something_impossible_changes_nothing_about_the_default_user() {
    let Some(_files) = ask_for(FEW) else { return };
    let server = start_with_few_files(&["--maxclients", "100"]);
    let mut client = server.client();
    for rules in [&[">strong", ">other", "resetkeys", "~a"][..], &["off"], &["on", "nopass"]] {
        client.cmd(["ACL", "SETUSER", "default"].iter().chain(rules)).is_ok();
        let before = client.line("ACL GETUSER default").reply();
        for settings in
            [["requirepass", "new", "maxclients", "269"], ["maxclients", "269", "requirepass", "new"]]
        {
            let refused = client.cmd(["CONFIG", "SET"].iter().chain(&settings)).text();
            assert!(refused.contains("try with 268"), "{refused}");
            assert_eq!(client.line("ACL GETUSER default").reply(), before, "{rules:?}");
            assert_eq!(client.line("CONFIG GET requirepass").items()[1], "".into());
        }
    }
    client.line("CONFIG SET requirepass new maxclients 99").is_ok();
    server.client().line("PING").is_error("NOAUTH Authentication required.");
}

#[test]
fn a_start_with_too_few_files_lowers_maxclients() {
    let Some(_files) = ask_for(FEW) else { return };
    let server = start_with_few_files(&[]);
    server.wait_for_output("Current maximum open files is 300. maxclients has been reduced to 268");
    assert_eq!(server.client().line("CONFIG GET maxclients").items()[1], "268".into());
}

/// The server learns a little later that a client has left.
fn wait_for_room(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = server.client();
        client.send(b"PING\r\n");
        if client.try_reply_bytes().is_ok_and(|reply| reply == b"+PONG\r\n") {
            return;
        }
        assert!(Instant::now() < deadline, "there is never room again");
    }
}

#[test]
fn idle_clients_are_closed_after_the_timeout() {
    let server = Server::start_with(&["--timeout", "1"]);
    let mut idle = server.client();
    idle.line("PING").is_simple("PONG");
    let since = Instant::now();
    assert!(idle.is_closed());
    assert!(since.elapsed() >= Duration::from_secs(1));
}

#[test]
fn the_timeout_spares_clients_that_wait_or_listen_or_are_being_served() {
    let server = Server::start_with(&["--timeout", "1", "--enable-fault-command", "yes"]);
    let mut other = server.client();
    other.line("XADD stream 1-1 f v").ignored();
    other.line("LOCK ACQUIRE lock mine PX 1000000").ignored();
    other.line("FAULT ADD ON incr DELAY 2500").ignored();
    let waits = |line: &str| {
        let mut client = server.client();
        client.send(&request(line.split(' ')));
        client
    };
    let lines = ["BLPOP list 0", "BZPOPMIN ranking 0", "XREAD BLOCK 0 STREAMS stream $"];
    let mut waiting: Vec<Client> = lines.into_iter().map(waits).collect();
    waiting.push(waits("LOCK ACQUIRE lock its PX 1000 WAIT 0"));
    let mut listening: Vec<Client> =
        ["SUBSCRIBE channel", "PSUBSCRIBE chan*", "SSUBSCRIBE channel", "MONITOR"].map(waits).into();
    listening.iter_mut().for_each(|client| client.reply().ignored());
    let mut delayed = waits("INCR counter");
    let mut busy = server.client();
    // TIME stands still in a script.
    let script = "local began = os.clock() while os.clock() - began < 2.5 do end return 1";
    busy.send(&request(["EVAL", script, "0"]));
    let mut idle = server.client();
    assert!(idle.is_closed());
    delayed.reply().is(1);
    busy.reply().is(1);
    // So would this one be by now, if it had said nothing.
    let mut other = server.client();
    for line in ["RPUSH list v", "ZADD ranking 1 m", "XADD stream 2-1 f v", "LOCK RELEASE lock mine"] {
        other.line(line).is(if line.starts_with("XADD") { Reply::from("2-1") } else { Reply::from(1) });
    }
    waiting.iter_mut().for_each(|client| client.reply().ignored());
    other.line("PUBLISH channel hello").is(2);
    other.line("SPUBLISH channel hello").is(1);
    listening.iter_mut().for_each(|client| client.reply().ignored());
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let server = Server::start();
    let mut witness = server.client();
    for part in [
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nva",
        "*3\r\n$3\r\nSET",
        "SET k v",
        "*",
        "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r",
    ] {
        for ends_politely in [true, false] {
            let mut client = server.client();
            client.send(part.as_bytes());
            if ends_politely {
                client.finish_sending();
            }
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while witness.line("CLIENT LIST").text().lines().count() > 1 {
        assert!(Instant::now() < deadline, "clients that left are still listed");
    }
    witness.line("DBSIZE").is(0);
}

#[test]
fn little_can_be_sent_before_authenticating() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    for (bytes, error) in [
        (&b"*11\r\n"[..], "ERR Protocol error: unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        client.reply().is_error(error);
        assert!(client.is_closed());
    }
    let mut client = server.client();
    client.line("AUTH secret").is_ok();
    client.cmd(["EXISTS"].into_iter().chain(std::iter::repeat_n("k", 100))).is(0);
}

#[test]
fn an_argument_may_be_as_long_as_the_limit_and_no_longer() {
    let server = Server::start_with(&["--proto-max-bulk-len", "1mb"]);
    let mut client = server.client();
    client.cmd([b"SET", &b"k"[..], &vec![b'v'; MIB]]).is_ok();
    client.send(b"*2\r\n$4\r\nECHO\r\n$1048577\r\n");
    client.reply().is_error("ERR Protocol error: invalid bulk length");
    assert!(client.is_closed());
}

/// Which timer the system runs for the server's end of a client's connection: `02` probes whether it lives.
fn timer(server: &Server, client: &Client) -> String {
    let connections = std::fs::read_to_string("/proc/net/tcp").expect("the system's connections");
    let ends = [format!(":{:04X}", server.port()), format!(":{:04X}", client.local_address().port())];
    let line = connections.lines().find(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1])
    });
    let line = line.unwrap_or_else(|| panic!("no connection {ends:?} in {connections}"));
    line.split_whitespace().nth(5).expect("a timer")[..2].to_owned()
}

#[test]
fn whether_a_silent_client_lives_is_probed_if_asked_for() {
    let server = Server::start();
    let mut client = server.client();
    client.line("PING").is_simple("PONG");
    assert_eq!(timer(&server, &client), "02");
    client.line("CONFIG SET tcp-keepalive 0").is_ok();
    let mut unprobed = server.client();
    unprobed.line("PING").is_simple("PONG");
    assert_eq!(timer(&server, &unprobed), "00");
}
