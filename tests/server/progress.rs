//! Long work shows how far it is: a bar on a terminal, lines in the log elsewhere, none on standard output.
//!
//! Loading is made slow by `key-load-delay`, and a client by a server that pauses.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

use crate::cli::{own, run};
use support::folder::Folder;
use support::server::{PATIENCE, Server, free_port};

/// Keys of which each is loaded in a millisecond or more.
const KEYS: usize = 4000;
/// How often a page is read again that does not say yet what is waited for.
const GLANCE: Duration = Duration::from_millis(5);
const SLOWLY: [&str; 2] = ["--key-load-delay", "1000"];

/// A terminal, and what was printed on it.
struct Terminal {
    /// The end to which a program prints.
    inner: OwnedFd,
    pieces: Receiver<Vec<u8>>,
    printed: String,
}

impl Terminal {
    fn new() -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).expect("a pseudo-terminal");
        let mut outer = File::from(pair.master);
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // It fails when the last program has closed the other end.
            while let Ok(length @ 1..) = outer.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { inner: pair.slave, pieces, printed: String::new() }
    }

    /// The end to which a program prints.
    fn as_output(&self) -> Stdio {
        self.inner.try_clone().expect("a descriptor").into()
    }

    /// Waits until something is printed.
    #[track_caller]
    fn awaits(&mut self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.printed.contains(expected) {
            match self.pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.printed.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("no {expected:?} in {:?}", self.printed),
            }
        }
    }

    /// All that was printed. The programs that print to it have ended.
    fn ended(self) -> String {
        let Terminal { inner, pieces, mut printed } = self;
        drop(inner);
        pieces.iter().for_each(|piece| printed.push_str(&String::from_utf8_lossy(&piece)));
        printed
    }
}

/// The lines that a terminal shows in the end of what was printed to it.
fn shown(printed: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0_usize, 0);
    let mut rest = printed.chars();
    while let Some(character) = rest.next() {
        match character {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                lines.resize(lines.len().max(row + 1), Vec::new());
            }
            '\x1b' => {
                assert_eq!(rest.next(), Some('['), "in {printed:?}");
                let mut order = String::new();
                while !order.ends_with(|c: char| c.is_ascii_alphabetic()) {
                    order.push(rest.next().expect("the end of an order"));
                }
                match (order.as_str(), order.trim_end_matches('A').parse()) {
                    // Long lines are cut off, or go on in the next row.
                    ("?7l" | "?7h", _) => {}
                    ("2K", _) => lines[row].clear(),
                    ("K", _) => lines[row].truncate(column),
                    (_, Ok(rows)) => row = row.saturating_sub(rows),
                    _ => assert!(order.ends_with('m'), "ESC [{order} in {printed:?}"),
                }
            }
            character => {
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned());
    lines.collect()
}

/// A folder with a snapshot, or a log, of so many keys.
fn saved(test: &str, options: &[&str]) -> Folder {
    let folder = Folder::new(test);
    let mut server = folder.serve(&[&["--save", ""], options].concat());
    let mut client = server.client();
    let keys = (0..KEYS).flat_map(|number| [format!("key:{number}"), "value".to_owned()]);
    if options.is_empty() {
        client.cmd(["MSET".to_owned()].into_iter().chain(keys)).is_ok();
        client.line("SAVE").is_ok();
    } else {
        // In the log each is a request.
        let requests: String = (0..KEYS).map(|number| format!("SET key:{number} value\r\n")).collect();
        client.send(requests.as_bytes());
        (0..KEYS).for_each(|_| client.reply().is_ok());
    }
    client.send(b"SHUTDOWN NOSAVE\r\n");
    server.wait_for_end();
    folder
}

/// The percentages of the lines that say how far loading is.
fn percentages(output: &str) -> Vec<u32> {
    let said = output.lines().filter_map(|line| line.split_once(" * Loading data: "));
    let said = said.map(|(_, said)| {
        let (percent, rest) = said.split_once("% (0.").unwrap_or_else(|| panic!("{said}"));
        let (_, left) = rest.split_once(" MB), about ").unwrap_or_else(|| panic!("{said}"));
        assert!(left.ends_with(" s left"), "{said}");
        percent.parse().expect("a number")
    });
    said.collect()
}

fn assert_tells_progress(output: &str) {
    let percentages = percentages(output);
    assert!(percentages.len() >= 2 && percentages.is_sorted(), "{percentages:?} in {output}");
    assert!(percentages[0] > 0 && percentages[0] < 80, "{percentages:?}");
}

#[test]
fn a_load_that_takes_long_is_told_in_the_log() {
    for options in [&[][..], &["--appendonly", "yes"]] {
        let folder = saved("slow-load", options);
        let server = folder.serve(&[&SLOWLY, options].concat());
        assert_tells_progress(&server.output());
        let mut client = server.client();
        client.line("DBSIZE").is(KEYS as i64);
        assert_eq!(client.info("loading"), "0");
        assert!(!client.line("INFO persistence").text().contains("loading_start_time"));
    }
}

#[test]
fn a_load_that_takes_a_moment_is_not() {
    let folder = saved("quick-load", &[]);
    let server = folder.serve(&[]);
    server.client().line("DBSIZE").is(KEYS as i64);
    // On a machine that is busy it may take longer: then the log says that, too.
    let output = server.output();
    let (_, took) = output.split_once("DB loaded from disk: ").expect("a line");
    let took: f64 = took.split(' ').next().unwrap().parse().expect("seconds");
    assert!(percentages(&output).is_empty() || took >= 1.0, "{output}");
}

/// A value on the page of metrics; none if that has none, or does not come.
fn metric(port: u16, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn metrics_tell_how_far_loading_is() {
    let folder = saved("loading-metrics", &[]);
    let bytes = File::open(folder.file("dump.rdb")).unwrap().metadata().unwrap().len();
    let port = free_port();
    let starting = {
        let mut command = folder.command();
        command.args(SLOWLY).args([
            "--bind",
            "127.0.0.1",
            "--port",
            "0",
            "--metrics-port",
            &port.to_string(),
        ]);
        thread::spawn(move || Server::run(&mut command, 0))
    };
    let deadline = Instant::now() + PATIENCE;
    while metric(port, "redis_loading_dump_file") != Some(1.0) {
        assert!(Instant::now() < deadline && !starting.is_finished(), "it never says that it loads");
        thread::sleep(GLANCE);
    }
    assert_eq!(metric(port, "keyfast_loading_bytes"), Some(bytes as f64));
    let loaded = || metric(port, "keyfast_loading_loaded_bytes");
    let first = loaded().expect("bytes");
    while loaded().is_some_and(|now| now <= first) {
        assert!(Instant::now() < deadline, "it does not get on");
        thread::sleep(GLANCE);
    }
    let server = starting.join().expect("a server");
    assert_eq!(metric(port, "redis_loading_dump_file"), Some(0.0));
    assert_eq!(metric(port, "keyfast_loading_bytes"), None);
    server.client().line("DBSIZE").is(KEYS as i64);
}

#[test]
fn a_server_on_a_terminal_draws_a_bar_while_it_loads() {
    let folder = saved("load-at-terminal", &[]);
    let mut terminal = Terminal::new();
    let mut command = folder.command();
    command.args(SLOWLY).args(["--port", "0"]).env("TERM", "xterm");
    let mut child = command.stdout(terminal.as_output()).stderr(terminal.as_output()).spawn().unwrap();
    drop(command);
    terminal.awaits("Loading data [");
    terminal.awaits("Ready to accept connections");
    child.kill().unwrap();
    child.wait().unwrap();
    let printed = terminal.ended();
    assert!(printed.contains("=") && printed.contains("%") && printed.contains(" s left"), "{printed:?}");
    // The bar is gone, and every line is whole.
    let lines = shown(&printed);
    for part in
        ["Loading RDB produced by version", "Done loading RDB, keys loaded: 4000", "DB loaded from disk"]
    {
        assert!(
            lines.iter().any(|line| line.contains(&format!(" notice  {part}"))),
            "no {part} in {lines:?}"
        );
    }
    assert!(lines.iter().all(|line| !line.contains("Loading data")), "{lines:?}");
}

/// A file of requests that no connection takes in one piece.
fn many_requests(folder: &Folder) -> String {
    let request = format!("SET key {}\r\n", "v".repeat(1000));
    folder.write("requests", &request.repeat(20_000))
}

const SENT: &str = "All data transferred. Waiting for the last reply...\nLast reply received from server.\n\
    errors: 0, replies: 20000\n";

/// The client with a file as its input.
fn piping(server: &Server, file: &str) -> Command {
    let mut command = own();
    command.args(["-p", &server.port().to_string(), "--pipe"]).env("TERM", "xterm");
    command.stdin(File::open(file).expect("a file")).stdout(Stdio::piped());
    command
}

#[test]
fn a_bar_shows_how_much_of_the_input_has_been_sent() {
    let (folder, server) = (Folder::new("pipe-bar"), Server::start());
    let file = many_requests(&folder);
    let mut client = server.client();
    client.line("CLIENT PAUSE 100000 WRITE").is_ok();
    let mut terminal = Terminal::new();
    let child = piping(&server, &file).stderr(terminal.as_output()).spawn().expect("the client starts");
    terminal.awaits("Sending [");
    terminal.awaits(" of 20.2 MB)");
    client.line("CLIENT UNPAUSE").is_ok();
    let output = child.wait_with_output().expect("output");
    assert_eq!(String::from_utf8_lossy(&output.stdout), SENT);
    let printed = terminal.ended();
    assert_eq!(shown(&printed), [""], "{printed:?}");
}

#[test]
fn there_is_no_bar_without_a_terminal() {
    let (folder, server) = (Folder::new("no-pipe-bar"), Server::start());
    let file = many_requests(&folder);
    for (name, value) in [("TERM", "xterm"), ("FAKETTY", "1")] {
        server.client().line("CLIENT PAUSE 1500 WRITE").is_ok();
        let command = piping(&server, &file).env(name, value).stderr(Stdio::piped()).spawn();
        let output = command.expect("the client starts").wait_with_output().expect("output");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(String::from_utf8_lossy(&output.stdout), SENT);
    }
}

#[test]
fn input_of_unknown_length_is_counted() {
    let server = Server::start();
    let mut terminal = Terminal::new();
    let mut command = own();
    command.args(["-p", &server.port().to_string(), "--pipe"]).env("TERM", "xterm");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(terminal.as_output());
    let mut child = command.spawn().expect("the client starts");
    drop(command);
    let mut input = child.stdin.take().expect("a pipe");
    let request = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$2000000\r\n{}\r\n", "v".repeat(2_000_000));
    input.write_all(request.as_bytes()).expect("it reads");
    terminal.awaits("Sending 2.0 MB in ");
    drop(input);
    let output = child.wait_with_output().expect("output");
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("errors: 0, replies: 1\n"));
    assert_eq!(shown(&terminal.ended()), [""]);
}

#[test]
fn looking_at_all_keys_shows_a_bar_and_prints_the_same() {
    // Without decay, the counts are the same a minute later.
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-lfu", "--lfu-decay-time", "0"]);
    let mut client = server.client();
    let keys = (0..1500).flat_map(|number| [format!("key:{number}"), "value".to_owned()]);
    client.cmd(["MSET".to_owned()].into_iter().chain(keys)).is_ok();
    let port = server.port().to_string();
    for mode in ["--bigkeys", "--memkeys", "--hotkeys"] {
        // After 100 SCANs it rests for a second.
        let arguments = ["-p", &port, "-i", "1", mode];
        let plain = run(own(), &arguments, b"");
        assert_eq!((plain.complaint.as_str(), plain.code), ("", Some(0)));
        // Everything on the terminal: the lines stand as they would without a bar.
        let mut terminal = Terminal::new();
        let mut command = own();
        command.args(arguments).env("TERM", "xterm").stdin(Stdio::null());
        let mut child = command.stdout(terminal.as_output()).stderr(terminal.as_output()).spawn().unwrap();
        drop(command);
        terminal.awaits("Scanning [");
        terminal.awaits(" of 1500 keys)");
        assert!(child.wait().unwrap().success());
        let lines = shown(&terminal.ended());
        assert_eq!(lines, plain.output.split('\n').map(str::trim_end).collect::<Vec<_>>(), "{mode}");
    }
}

#[test]
fn a_delay_of_less_than_nothing_is_a_rest_now_and_then() {
    let folder = saved("delay", &[]);
    let server = folder.serve(&["--key-load-delay", "-100"]);
    let mut client = server.client();
    client.line("DBSIZE").is(KEYS as i64);
    assert_eq!(client.line("CONFIG GET key-load-delay").items()[1], "-100".into());
}
