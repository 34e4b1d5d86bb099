//! Starting and stopping, as people and their tools do it.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Instant;

use nix::sys::signal::Signal;

use support::client::{Client, request};
use support::marks::{self, Mark};
use support::server::{PATIENCE, Server, program};
use support::tools::refuse_to_pass_without;

/// Runs the program to its end.
fn run(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).env_remove("COLUMNS").output().expect("the program runs")
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() || String::from_utf8_lossy(&output.stdout).contains(":M "));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    complaint
}

#[test]
fn it_helps_and_tells_its_version() {
    for (option, lines) in [("--help", 150..), ("-h", 20..)] {
        let help = run(&[option]);
        assert!(help.status.success() && help.stderr.is_empty());
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        for option in ["--port", "--bind", "--requirepass", "--maxmemory", "--appendonly", "--loglevel"] {
            assert!(text.contains(option), "no {option} in {text}");
        }
        assert!(text.contains("\n       keyfast cli [-h host] [-p port]"), "{text}");
        assert!(widest(&text) <= 80 && lines.contains(&text.lines().count()), "{text}");
        assert!(option == "--help" || text.lines().count() <= 24, "more than one screen: {text}");
    }
    let version = run(&["--version"]);
    assert!(version.status.success());
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    // Redis' own tests, and many tools, read the version and the libraries from such a line.
    let begins = format!("keyfast {} (", env!("CARGO_PKG_VERSION"));
    let redis = format!(" Redis server v={} sha=", keyfast::internals::REDIS_VERSION);
    assert!(version.starts_with(&begins) && version.contains(&redis), "{version}");
    assert!(version.contains(":0 malloc=libc bits=64 build=") && version.lines().count() == 1, "{version}");
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn the_help_is_as_wide_as_the_terminal() {
    let program = program();
    // The path may have a blank.
    let line = |columns: u32| format!("stty cols {columns}; exec \"$PROGRAM\" --help");
    for (columns, range) in [(78, 70..=78), (95, 82..=95), (300, 82..=100)] {
        let mut command = Command::new("script");
        command.args(["-qec", &line(columns), "/dev/null"]).env_remove("COLUMNS").env("SHELL", "/bin/sh");
        command.env("PROGRAM", &program);
        let output = command.output().expect("`script` runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("--appendonly") && range.contains(&widest(&text)), "{columns}: {text}");
    }
    let narrow = Command::new(program).arg("--help").env("COLUMNS", "76").output().expect("the program runs");
    assert!((70..=76).contains(&widest(&String::from_utf8_lossy(&narrow.stdout))));
}

#[test]
fn what_cannot_be_done_is_one_line_and_exit_code_1() {
    assert!(
        complaint(&run(&["--bind", "203.0.113.1", "--port", "0"]))
            .contains("could not listen on 203.0.113.1:0")
    );
}

#[test]
fn a_taken_port_is_named() {
    let server = Server::start();
    let port = server.port().to_string();
    let complaint = complaint(&run(&["--port", &port, "--bind", "127.0.0.1"]));
    assert!(complaint.contains(&format!("could not listen on 127.0.0.1:{port}: Address already in use")));
}

/// What collects the log reads nothing else.
#[test]
fn a_failed_start_is_told_in_json_where_the_log_is() {
    let server = Server::start();
    let port = server.port().to_string();
    let output = run(&["--port", &port, "--bind", "127.0.0.1", "--log-format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text")).concat();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let last = lines.collect::<Vec<_>>().pop().expect("a line");
    let message = last["message"].as_str().expect("a text");
    assert!(message.starts_with(&format!("could not listen on 127.0.0.1:{port}: ")), "{message}");
}

#[test]
fn several_addresses_share_a_free_port() {
    let server = Server::start_with(&["--bind", "127.0.0.1", "127.0.0.2", "-203.0.113.1"]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        let address: SocketAddr = format!("{address}:{}", server.port()).parse().unwrap();
        Client::connect(address).line("PING").is_simple("PONG");
    }
}

#[test]
fn a_signal_ends_it_soon_and_nothing_is_left_unanswered() {
    for signal in ["TERM", "INT"] {
        let mut server = Server::start();
        let mut idle = server.client();
        idle.line("PING").is_simple("PONG");
        let mut busy = server.client();
        busy.send(&request(["SETNX", "k", "v"]).repeat(1000));
        busy.reply().is(1);
        let since = Instant::now();
        server.signal(signal);
        let status = server.wait_for_end();
        assert!(since.elapsed() < PATIENCE / 2, "SIG{signal} took {:?}", since.elapsed());
        assert_eq!(status.code(), Some(0));
        assert!(idle.is_closed());
        for _ in 1..1000 {
            busy.reply().is(0);
        }
        assert!(busy.is_closed());
        let refused = TcpStream::connect(server.address()).expect_err("the port is closed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(server.output().contains("ready to exit"));
    }
}

marked!(also_redis: signals_that_mean_nothing_to_it_end_no_server);
fn signals_that_mean_nothing_to_it_end_no_server() {
    let mut server = Server::start();
    let mut client = server.client();
    for signal in ["HUP", "PIPE", "USR2", "ALRM", "CHLD", "CONT", "URG", "WINCH"] {
        server.signal(signal);
        client.line("PING").is_simple("PONG");
        server.client().line("PING").is_simple("PONG");
    }
    // What Redis leaves to the system ends it.
    server.signal("USR1");
    assert_eq!(server.wait_for_end().signal(), Some(Signal::SIGUSR1 as i32));
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end() {
    let mut server = Server::start();
    let mut client = server.client();
    client.cmd([b"SET", &b"big"[..], &vec![b'v'; 8 << 20]]).is_ok();
    client.send(&request(["GET", "big"]).repeat(16));
    let since = Instant::now();
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
    assert!(since.elapsed() < PATIENCE / 2);
}

#[test]
fn the_log_has_the_form_that_tools_wait_for() {
    let server = Server::start();
    let output = server.output();
    let ready = output.lines().find(|line| line.ends_with(" * Ready to accept connections tcp"));
    let ready = ready.unwrap_or_else(|| panic!("no ready line in {output}"));
    assert!(ready.starts_with(&format!("{}:M ", server.process_id())), "{ready}");
}

/// An address of this machine by which others reach it, if it has any network at all.
#[track_caller]
pub(crate) fn outward_address() -> Option<SocketAddr> {
    marks::require(Mark::NeedsTools);
    let asked = || {
        let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
        // Sends nothing: it only asks for the way.
        socket.connect("192.0.2.1:9").ok()?;
        socket.local_addr().ok().filter(|address| !address.ip().is_loopback())
    };
    let address = asked();
    if address.is_none() {
        refuse_to_pass_without("a network");
    }
    address
}

marked!(needs_tools: what_is_for_local_clients_is_also_for_the_addresses_that_are_named);
fn what_is_for_local_clients_is_also_for_the_addresses_that_are_named() {
    for word in ["x", "172.17.0.0/16", "127.0.0.1:6379"] {
        let refused = complaint(&run(&["--port", "0", "--local-addresses", word]));
        assert_eq!(refused, format!("keyfast: option --local-addresses: '{word}' is not an IP address\n"));
    }
    // Without a network there are no others; how addresses are compared is in `src/clients/address.rs`.
    let Some(outward) = outward_address() else { return };
    let address = outward.ip().to_string();
    for (addresses, is_let_in) in [(vec!["192.0.2.1"], false), (vec!["192.0.2.1", &address], true)] {
        let options =
            ["--bind", "*", "--protected-mode", "no", "--enable-clock-command", "local", "--local-addresses"];
        let server = Server::start_with(&[&options[..], &addresses].concat());
        let mut client = Client::connect(SocketAddr::new(outward.ip(), server.port()));
        let reply = client.line("CLOCK ADVANCE 1").text();
        assert_eq!(reply == "OK", is_let_in, "{reply}");
    }
}

marked!(needs_tools: tokens_that_anyone_can_make_are_for_local_clients_unless_all_are_named);
fn tokens_that_anyone_can_make_are_for_local_clients_unless_all_are_named() {
    // Without a network there are no others.
    let Some(outward) = outward_address() else { return };
    let address = outward.ip().to_string();
    for (more, is_let_in) in [
        (["--auth-iam-clients", "local"], false),
        (["--auth-iam-clients", "all"], true),
        (["--local-addresses", &address], true),
    ] {
        let options = ["--bind", "*", "--protected-mode", "no", "--auth-iam", "gcp"];
        let server = Server::start_with(&[&options, &["--requirepass", "secret"][..], &more].concat());
        let mut other = Client::connect(SocketAddr::new(outward.ip(), server.port()));
        let reply = other.line("AUTH ya29.token").text();
        assert_eq!(reply == "OK", is_let_in, "{more:?}: {reply}");
        other.line("AUTH secret").is_ok();
        server.client().line("AUTH ya29.token").is_ok();
        server.wait_for_output("auth-iam accepts tokens of gcp in the place of passwords");
    }
}

marked!(needs_tools: protected_mode_explains_itself_to_others_and_serves_this_machine);
fn protected_mode_explains_itself_to_others_and_serves_this_machine() {
    // Without a network there are no others; the rule itself is in `src/server/listener.rs`.
    let Some(outward) = outward_address() else { return };
    let server = Server::start_with(&["--bind", "*"]);
    let outward = SocketAddr::new(outward.ip(), server.port());
    let mut other = Client::connect(outward);
    let explanation = other.reply().text();
    assert!(
        explanation
            .starts_with("DENIED Redis is running in protected mode because protected mode is enabled")
    );
    assert!(other.is_closed());
    server.client().line("CONFIG SET requirepass secret").is_ok();
    Client::connect(outward).line("AUTH secret").is_ok();
}
