//! The protocol as a stream: pieces, pipelines, and what is no protocol at all.

use support::client::{Client, request};
use support::server::Server;

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Server::start();
    let mut client = server.client();
    for byte in request(["SETNX", "k", "v\r\nw"]) {
        client.send(&[byte]);
    }
    client.reply().is(1);
    for byte in b"get \"k\"\r\n" {
        client.send(&[*byte]);
    }
    client.reply().is("v\r\nw");
}

#[test]
fn a_pipeline_of_any_depth_is_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    for depth in [1, 2, 100, 10_000] {
        let pipeline: Vec<u8> =
            (0..depth).flat_map(|number| request(["ECHO", &number.to_string()])).collect();
        client.send(&pipeline);
        for number in 0..depth {
            client.reply().is(number.to_string().as_str());
        }
    }
}

#[test]
fn a_pipeline_is_answered_with_one_write() {
    let server = Server::start();
    let mut client = server.client();
    let writes =
        |client: &mut Client| client.info("total_writes_processed").parse::<u64>().expect("a number");
    let before = writes(&mut client);
    // Small enough to be read at once.
    client.send(&request(["PING"]).repeat(200));
    for _ in 0..200 {
        client.reply().is_simple("PONG");
    }
    // The INFO before and this one are written, and the pipeline once.
    assert!(writes(&mut client) - before <= 3);
}

#[test]
fn what_was_asked_before_the_connection_ends_is_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.send(&[request(["SET", "k", "v"]), request(["GET", "k"])].concat());
    client.finish_sending();
    client.reply().is_ok();
    client.reply().is("v");
    assert!(client.is_closed());
}

#[test]
fn nothing_after_quit_is_executed() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"SET k v\r\nQUIT\r\nSET k w\r\n");
    client.reply().is_ok();
    client.reply().is_ok();
    assert!(client.is_closed());
    server.client().line("GET k").is("v");
}

#[test]
fn a_browser_is_shown_the_door_and_the_log_says_so() {
    let server = Server::start();
    for greeting in ["POST / HTTP/1.1\r\nHost: localhost:6379\r\n\r\nSET k v\r\n", "Host: x\r\nSET k v\r\n"] {
        let mut client = server.client();
        client.send(greeting.as_bytes());
        assert!(client.is_closed());
    }
    server.wait_for_output("Possible SECURITY ATTACK detected");
    server.client().line("GET k").is_nil();
}

#[test]
fn an_error_in_a_pipeline_stops_nothing_but_a_broken_stream_does() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"SETNX k\r\nSETNX k v\r\n*1\r\n$x\r\nSET k w\r\n");
    client.reply().is_error("ERR wrong number of arguments for 'setnx' command");
    client.reply().is(1);
    client.reply().is_error("ERR Protocol error: invalid bulk length");
    assert!(client.is_closed());
    server.client().line("GET k").is("v");
}
