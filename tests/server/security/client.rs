//! Section H: the command-line client, the log, and what the server shows.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::cli::{Ran, at_terminal, limited, own, run, told_to};
use support::folder::Folder;
use support::server::Server;

#[test]
fn h9_a_long_name_of_a_host_is_an_error() {
    let long = "A".repeat(100_000);
    let uri = format!("redis://user:password@{long}:6379/1");
    for arguments in
        [&["-h", &long, "ping"][..], &["-u", &uri, "--no-auth-warning", "ping"], &["-s", &long, "ping"]]
    {
        let ran = run(own(), arguments, b"");
        assert_eq!((ran.output.as_str(), ran.code), ("", Some(1)));
        assert!(ran.complaint.starts_with("Could not connect to Redis at AAAA"), "{:.200}", ran.complaint);
    }
    // Within the prompt's conversation, which goes on with the server that it had.
    let server = Server::start();
    let input = format!("connect {long} 6379\nconnect 127.0.0.1 {}\nping\n", server.port());
    let ran = run(own(), &["-p", &server.port().to_string()], input.as_bytes());
    assert_eq!((ran.output.as_str(), ran.code), ("PONG\n", Some(0)));
}

#[test]
fn h10_the_history_is_for_its_user_alone_and_keeps_no_passwords() {
    let server = Server::start();
    let folder = Folder::new("history");
    let history = folder.file(".rediscli_history");
    // A hint that is longer than the terminal is wide has the line printed again on another one.
    fs::write(folder.file(".redisclirc"), ":set nohints\n").unwrap();
    let place = format!("127.0.0.1:{}> ", server.port());
    for is_there_before in [false, true] {
        if is_there_before {
            // One that an older program has left, and that others may read.
            fs::set_permissions(&history, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let mut client = at_terminal(&own(), &server, &folder.file(""), "");
        client.awaits(&place);
        for line in [
            "set a 1",
            "auth secret",
            "AUTH default secret",
            "auth \"secret",
            "2 auth secret",
            "hello 3 auth default secret",
            "config set requirepass \"\"",
            "config set maxmemory 0 requirepass \"\"",
            "config set masterauth secret",
            "acl setuser alice >secret",
            "migrate 127.0.0.1 1 a 0 10 AUTH secret",
            "get a",
        ] {
            client.types(&format!("{line}\r"));
            // The line is repeated as it is typed, then comes the reply, then the prompt again.
            client.awaits("\r\n");
            client.awaits(&place);
        }
        client.types("\x03");
        client.ends_well();
        let kept = fs::read_to_string(&history).unwrap();
        assert!(!kept.contains("secret") && !kept.to_lowercase().contains("requirepass"), "{kept}");
        assert!(kept.starts_with("set a 1\nget a\n"), "{kept}");
        assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn h11_a_server_that_lies_about_lengths_costs_the_client_nothing() {
    let left = "Error: Server closed the connection\n";
    for (reply, expected) in [
        (&b"*2147483647\r\n"[..], left),
        (b"%2147483647\r\n", left),
        (b"~2147483647\r\n", left),
        (b">2147483647\r\n", left),
        (b"$2147483647\r\n", left),
        (b"*4611686018427387904\r\n", "Error: Multi-bulk length out of range\n"),
        (b"%4611686018427387904\r\n", "Error: Multi-bulk length out of range\n"),
        (b"~4611686018427387904\r\n", "Error: Multi-bulk length out of range\n"),
        (b"$4611686018427387904\r\n", "Error: Bulk string length out of range\n"),
        (b"=4611686018427387904\r\n", "Error: Bulk string length out of range\n"),
        (b"*-5\r\n", "Error: Multi-bulk length out of range\n"),
        (b"%-5\r\n", "Error: Multi-bulk length out of range\n"),
        (b"$-5\r\n", "Error: Bulk string length out of range\n"),
    ] {
        told_to(limited(), reply, &[]).failed("", expected);
    }
    let deep = "Error: Protocol error, replies nested more than 512 deep\n";
    told_to(limited(), &b"*1\r\n".repeat(1_000_000), &[]).failed("", deep);
}

#[test]
fn h12_numbers_on_the_command_line_are_checked() {
    const HUGE: &str = "99999999999999999999";
    for option in ["-r", "-n", "-p", "--count", "--pipe-timeout", "--memkeys-samples"] {
        for value in [HUGE, "-99999999999999999999", "x", ""] {
            let ran = run(own(), &["-p", "1", option, value, "ping"], b"");
            assert_eq!((ran.output.as_str(), ran.code), ("", Some(1)), "{option} {value}");
            // As in redis-cli, some are read as C reads numbers; then no server is found.
            let is_refused = ran.complaint.contains(&format!("'{option}'"))
                || ran.complaint == "Invalid server port.\n"
                || ran.complaint.contains(option) && ran.complaint.ends_with(" conversion error.\n")
                || ran.complaint.starts_with("Could not connect");
            assert!(is_refused, "{option} {value}: {}", ran.complaint);
        }
    }
    for value in ["1e300", "-1", "NaN", "inf", "x"] {
        let ran = run(own(), &["-p", "1", "-i", value, "ping"], b"");
        assert_eq!((ran.output.as_str(), ran.code), ("", Some(1)), "-i {value}");
    }
    let ran = run(own(), &["-p", "65536", "ping"], b"");
    assert_eq!((ran.output.as_str(), ran.code), ("", Some(1)));
    // The number before a command that is typed.
    let server = Server::start();
    let ran = run(own(), &["-p", &server.port().to_string()], format!("{HUGE} ping\nping\n").as_bytes());
    assert_eq!(ran.output, "Invalid redis-cli repeat command option value.\nPONG\n");
}

#[test]
fn h13_control_characters_are_shown_on_a_terminal_and_not_obeyed() {
    let server = Server::start();
    const TITLE: &str = "\x1b]0;x\x07";
    server.client().cmd(["SET", "k", TITLE]).is_ok();
    server.client().cmd(["SET", TITLE, "long value"]).is_ok();
    let folder = Folder::new("title");
    let status = "EVAL \"return {ok=ARGV[1]}\" 0 \"$(printf '\\033]0;x\\007')\"";
    let error = "EVAL \"return {err=ARGV[1]}\" 0 \"$(printf '\\033]0;x\\007')\"";
    let push = "--show-pushes y -3 PUBSUB CHANNELS";
    server.client().cmd(["PING"]).is_simple("PONG");
    for (arguments, expected) in [
        ("GET k", "\"\\x1b]0;x\\a\"\r\n"),
        ("--raw GET k", "\\x1b]0;x\\x07\r\n"),
        ("--csv GET k", "\"\\x1b]0;x\\a\"\r\n"),
        ("--json GET k", "\"\\u001b]0;x\\u0007\"\r\n"),
        (status, "\\x1b]0;x\\x07\r\n"),
        (&format!("--raw {status}"), "\\x1b]0;x\\x07\r\n"),
        (error, "(error) \\x1b]0;x\\x07\r\n"),
        (&format!("-e {error}"), "\\x1b]0;x\\x07\r\n"),
        ("--raw --scan", "\\x1b]0;x\\x07\r\n"),
        ("--bigkeys", "\"\\x1b]0;x\\a\" with 10 bytes\r\n"),
        (push, "(empty array)\r\n"),
    ] {
        let mut client = at_terminal(&own(), &server, &folder.file(""), arguments);
        client.awaits(expected);
        client.ends();
        assert!(!client.rest().contains('\x1b'), "{arguments}: {:?}", client.rest());
    }
    // A pipe gets what is there.
    let port = server.port().to_string();
    run(own(), &["-p", &port, "GET", "k"], b"").printed(&format!("{TITLE}\n"));
    let Ran { output, .. } = run(own(), &["-p", &port, "--scan"], b"");
    assert!(output.contains(TITLE), "{output:?}");
}

#[test]
fn h17_nothing_that_clients_send_looks_like_a_line_of_the_log() {
    let server = Server::start_with(&["--loglevel", "debug"]);
    let mut client = server.client();
    let fake = format!("x\r\n{}:M 01 Jan 2026 00:00:00.000 * FAKE\x1b[31m", server.process_id());
    client.cmd(["EVAL", "redis.log(redis.LOG_WARNING, ARGV[1])", "0", &fake]).ignored();
    client.cmd(["AUTH", &fake, "wrong"]).ignored();
    client.cmd(["CLIENT", "SETNAME", &fake]).ignored();
    client.cmd(["SUBSCRIBE", &fake]).ignored();
    let mut client = server.client();
    client.cmd([&*fake, &*fake]).ignored();
    client.cmd(["ACL", "SETUSER", "alice", &fake]).ignored();
    client.cmd(["CONFIG", "SET", &fake, &fake]).ignored();
    client.cmd(["CONFIG", "SET", "dbfilename", &fake]).ignored();
    client.cmd(["SAVE"]).ignored();
    client.cmd(["CONFIG", "SET", "dbfilename", "dump.rdb"]).ignored();
    client.cmd(["FUNCTION", "LOAD", &format!("#!lua name=x\nerror({fake:?})")]).ignored();
    client.cmd(["EVAL", &fake, "0"]).ignored();
    client.send(b"POST / HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(client.is_closed());
    // The last line of the log that this test causes.
    server.client().cmd(["EVAL", "redis.log(redis.LOG_WARNING, 'the end')", "0"]).ignored();
    server.wait_for_output("the end");
    let output = server.output();
    let beginning = format!("{}:M ", server.process_id());
    for line in output.lines() {
        assert!(line.starts_with(&beginning) && !line.contains(['\r', '\x1b']), "{line:?} in:\n{output}");
        assert!(!line[..line.len().min(50)].contains("FAKE"), "{line:?} in:\n{output}");
    }
    assert!(output.contains("FAKE"), "the script's line is there:\n{output}");
}
