//! A log whose disk takes nothing for a while: those clients wait whose own changes are unwritten. Others are
//! served after a moment, although they may see what is unwritten.
//!
//! The log's file is a pipe. What the server writes to it waits until the test reads it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use support::client::{Client, request};
use support::folder::Folder;
use support::log::increment;
use support::server::{Server, wait_until};

/// More than the pipe holds, as a large value.
const LONG_BYTES: usize = 64 << 20;
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

/// Reads the log, but while it is paused.
struct Disk {
    log: Arc<Mutex<Vec<u8>>>,
    is_paused: Arc<AtomicBool>,
}

impl Disk {
    fn new(mut pipe: File) -> Disk {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let disk = Disk { log: Arc::default(), is_paused: Arc::default() };
        let (log, is_paused) = (Arc::clone(&disk.log), Arc::clone(&disk.is_paused));
        thread::spawn(move || {
            let mut piece = vec![0; 1 << 20];
            // It ends with the test.
            while Arc::strong_count(&log) > 1 {
                let mut log = log.lock().unwrap();
                let is_paused = is_paused.load(Ordering::Acquire);
                let read = if is_paused { 0 } else { pipe.read(&mut piece).unwrap_or(0) };
                log.extend_from_slice(&piece[..read]);
                drop(log);
                if read == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        disk
    }

    fn pause(&self, is_paused: bool) {
        // Nothing is being read meanwhile.
        let _log = self.log.lock().unwrap();
        self.is_paused.store(is_paused, Ordering::Release);
    }
}

/// Sends a request whose reply does not come yet, and waits until another client sees what it has done.
fn begin(server: &Server, bytes: &[u8], reader: &mut Client, line: &str, sees: &str) -> Client {
    let mut client = server.client();
    client.send(bytes);
    wait_until("it is executed", || reader.line(line).reply().to_string() == sees);
    client
}

#[test]
fn while_a_large_value_is_unwritten_those_are_served_who_change_nothing() {
    let folder = Folder::new("backlog-large-value");
    let (server, mut pipe) = serve(&folder);
    let mut reader = server.client();
    let value = "v".repeat(LONG_BYTES);
    let set = request(["SET", "long", &value]);
    let mut busy = begin(&server, &set, &mut reader, "EXISTS long", "(integer) 1");
    reader.line("PING").is_simple("PONG");
    reader.line("STRLEN long").is(LONG_BYTES as i64);
    let short = request(["SET", "short", "1"]);
    let mut other = begin(&server, &short, &mut reader, "EXISTS short", "(integer) 1");
    // The log has the value as it was before.
    let part = request(["SETRANGE", "long", "0", "x"]);
    let mut third = begin(&server, &part, &mut reader, "GETRANGE long 0 1", "\"xv\"");
    for client in [&mut busy, &mut other, &mut third] {
        assert!(client.is_silent_for(MOMENT), "its own change is unwritten");
    }
    let expected = [request(["SELECT", "0"]), set, short, part].concat();
    let mut log = vec![0; expected.len()];
    pipe.read_exact(&mut log).unwrap();
    assert!(log == expected, "the log has other records, or has them in another order");
    busy.reply().is_ok();
    other.reply().is_ok();
    third.reply().is(LONG_BYTES as i64);
    drop(server);
}

#[test]
fn a_large_collection_is_logged_as_it_was_and_in_one_unit() {
    let folder = Folder::new("backlog-collection");
    let (server, pipe) = serve(&folder);
    let (disk, mut client) = (Disk::new(pipe), server.client());
    for from in (0..40_000).step_by(1000) {
        let members = (from..from + 1000).map(|number| format!("member:{number:024}"));
        client.cmd(["SADD".to_owned(), "source".to_owned()].into_iter().chain(members)).is(1000);
    }
    disk.pause(true);
    let long = request(["SET", "in-the-way", &"v".repeat(1 << 20)]);
    let mut waiting = vec![begin(&server, &long, &mut client, "EXISTS in-the-way", "(integer) 1")];
    let group =
        [&["MULTI"][..], &["SET", "a", "1"], &["SUNIONSTORE", "target", "source"], &["SET", "z", "1"]];
    let group: Vec<u8> = group.iter().chain(&[&["EXEC"][..]]).flat_map(|words| request(*words)).collect();
    let mut grouped = begin(&server, &group, &mut client, "EXISTS z", "(integer) 1");
    waiting.push(begin(&server, &request(["DEL", "target"]), &mut client, "EXISTS target", "(integer) 0"));
    // What comes last is found last.
    let last = request(["SET", "last", "1"]);
    waiting.push(begin(&server, &last, &mut client, "EXISTS last", "(integer) 1"));
    assert!(waiting.iter_mut().all(|client| client.is_silent_for(MOMENT)));
    disk.pause(false);
    waiting.iter_mut().for_each(|client| client.reply().ignored());
    (0..5).for_each(|_| grouped.reply().ignored());
    wait_until("all is written", || disk.log.lock().unwrap().ends_with(&last));
    let text = String::from_utf8(disk.log.lock().unwrap().clone()).unwrap();
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
fn a_client_whose_changes_are_unwritten_is_given_no_more_to_do() {
    const COUNT: usize = 4_000;
    let folder = Folder::new("backlog-records");
    let (server, pipe) = serve(&folder);
    let (disk, mut busy, mut reader) = (Disk::new(pipe), server.client(), server.client());
    disk.pause(true);
    let value = "v".repeat(10_000);
    let sending = thread::spawn(move || {
        for number in 0..COUNT {
            busy.send(&request(["SET", &format!("key:{number}"), &value]));
        }
        busy
    });
    let mut keys = 0;
    wait_until("the pipe is full", || {
        let before = std::mem::replace(&mut keys, reader.line("DBSIZE").integer());
        thread::sleep(MOMENT);
        keys > 0 && keys == before
    });
    assert!(keys < COUNT as i64 / 2, "{keys} were written to memory alone");
    disk.pause(false);
    let mut busy = sending.join().unwrap();
    (0..COUNT).for_each(|_| busy.reply().is_ok());
}
