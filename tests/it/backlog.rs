//! A log whose disk takes nothing for a while: only those clients wait whose own changes are unwritten.
//!
//! The log's file is a pipe. What the server writes to it waits until the test reads it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::aof::increment;
use crate::client::request;
use crate::folder::Folder;
use crate::server::Server;

/// How much may be unwritten before clients that have changed something wait.
const UNWRITTEN_BYTES_MAX: usize = 64 << 20;
/// Nothing comes for as long.
const MOMENT: Duration = Duration::from_millis(50);

/// A server that logs into a pipe, and the other end of it.
fn serve(folder: &Folder) -> (Server, File) {
    std::fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let path = increment(folder, 1);
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let pipe = thread::spawn(move || {
        // The server loads it: there is nothing in it.
        drop(write_end(&path));
        File::open(&path).expect("the server writes to it")
    });
    let server = folder.serve(&["--appendonly", "yes", "--appendfsync", "no"]);
    (server, pipe.join().unwrap())
}

fn write_end(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("the server reads it")
}

/// Reads the log for good.
fn drain(mut pipe: File) {
    thread::spawn(move || std::io::copy(&mut pipe, &mut std::io::sink()));
}

#[test]
fn while_a_large_value_is_unwritten_others_are_served() {
    let folder = Folder::new("backlog-large-value");
    let (server, mut pipe) = serve(&folder);
    let (mut busy, mut other) = (server.client(), server.client());
    let value = "v".repeat(UNWRITTEN_BYTES_MAX + 1);
    let set = request(["SET", "long", &value]);
    busy.send(&set);
    while other.line("STRLEN long").integer() == 0 {}
    other.line("PING").is_simple("PONG");
    other.line("SET short 1").is_ok();
    // The log has the value as it was before.
    other.line("SETRANGE long 0 x").is(value.len() as i64);
    other.line("GETRANGE long 0 1").is("xv");
    assert!(busy.is_silent_for(MOMENT), "its own change is unwritten");
    let rest = [request(["SET", "short", "1"]), request(["SETRANGE", "long", "0", "x"])].concat();
    let expected = [request(["SELECT", "0"]), set, rest].concat();
    let mut log = vec![0; expected.len()];
    pipe.read_exact(&mut log).unwrap();
    assert!(log == expected, "the log has other records, or has them in another order");
    busy.reply().is_ok();
}

#[test]
fn a_large_collection_is_logged_as_it_was_and_in_one_unit() {
    let folder = Folder::new("backlog-collection");
    let (server, mut pipe) = serve(&folder);
    let mut client = server.client();
    // The pipe is full.
    client.cmd(["SET", "in-the-way", &"v".repeat(1 << 20)]).is_ok();
    for from in (0..40_000).step_by(1000) {
        let members = (from..from + 1000).map(|number| format!("member:{number:024}"));
        client.cmd(["SADD".to_owned(), "source".to_owned()].into_iter().chain(members)).is(1000);
    }
    client.line("MULTI").is_ok();
    for line in ["SET a 1", "SUNIONSTORE target source", "SET z 1"] {
        client.line(line).is_simple("QUEUED");
    }
    client.line("EXEC").ignored();
    client.line("DEL target").is(1);
    // What comes last is found last.
    client.line("SET last 1").is_ok();
    let (mut log, last) = (Vec::new(), request(["SET", "last", "1"]));
    let mut piece = vec![0; 1 << 20];
    while !log.ends_with(&last) {
        let read = pipe.read(&mut piece).unwrap();
        log.extend_from_slice(&piece[..read]);
    }
    let text = String::from_utf8(log).unwrap();
    let requests: Vec<Vec<&str>> = text
        .split("\r\n*")
        .map(|request| request.split("\r\n").skip(2).step_by(2).collect::<Vec<_>>())
        .filter(|words| !words.contains(&"in-the-way") && !words.contains(&"source"))
        .collect();
    let lines: Vec<String> = requests.iter().map(|words| words[..words.len().min(2)].join(" ")).collect();
    let begin = lines.iter().position(|line| line == "SET a").expect("it is logged");
    assert_eq!(lines[begin - 1..begin + 2], ["MULTI", "SET a", "DEL target"]);
    let (adding, rest) = requests[begin + 2..].split_at(lines.len() - 4 - (begin + 2));
    assert!(adding.iter().all(|words| words[..2] == ["SADD", "target"]));
    assert_eq!(adding.iter().map(|words| words.len() - 2).sum::<usize>(), 40_000);
    let rest: Vec<String> = rest.iter().map(|words| words[..words.len().min(2)].join(" ")).collect();
    assert_eq!(rest, ["SET z", "EXEC", "DEL target", "SET last"]);
}

#[test]
fn while_many_records_are_unwritten_those_wait_who_add_to_them() {
    const BYTES: usize = 200 << 10;
    const COUNT: usize = UNWRITTEN_BYTES_MAX / BYTES + 1;
    let folder = Folder::new("backlog-records");
    let (server, pipe) = serve(&folder);
    let (mut busy, mut late, mut reader) = (server.client(), server.client(), server.client());
    let value = "v".repeat(BYTES);
    let sending = thread::spawn(move || {
        for number in 0..COUNT {
            busy.send(&request(["SET", &format!("key:{number}"), &value]));
        }
        busy
    });
    let last = format!("EXISTS key:{}", COUNT - 1);
    while reader.line(&last).integer() == 0 {}
    late.send(&request(["SET", "late", "1"]));
    while reader.line("EXISTS late").integer() == 0 {}
    reader.line("PING").is_simple("PONG");
    assert!(late.is_silent_for(MOMENT), "too much is unwritten");
    drain(pipe);
    late.reply().is_ok();
    let mut busy = sending.join().unwrap();
    (0..COUNT).for_each(|_| busy.reply().is_ok());
}
