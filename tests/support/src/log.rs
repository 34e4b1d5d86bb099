//! Servers with a log, what is in it, and what has come back.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use keyfast::internals::commands::execution::replay;
use keyfast::internals::commands::known;
use keyfast::internals::config::{Config, Parameter};
use keyfast::internals::instance::{Hooks, Instance};

use crate::client::{Client, Reply};
use crate::folder::Folder;
use crate::server::{PATIENCE, Server, program, wait_until};
use crate::tools::installed;

pub const ALWAYS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// A server that logs into a folder.
pub fn serve(folder: &Folder, options: &[&str]) -> Server {
    Server::start_with(&[&["--dir", &folder.file("")], ALWAYS, options].concat())
}

/// What a server prints that does not start.
#[track_caller]
pub fn refusal(folder: &Folder, options: &[&str]) -> String {
    let mut command = Command::new(program());
    command.args(["--port", "0", "--bind", "127.0.0.1", "--save", "", "--dir", &folder.file("")]);
    refused(command.args(options))
}

/// What a program prints that ends with an error; one that goes on is ended.
#[track_caller]
pub fn refused(command: &mut Command) -> String {
    let shown: String = format!("{command:?}").chars().take(500).collect();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let mut stderr = child.stderr.take().expect("a pipe");
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.is_none() {
        child.kill().and_then(|()| child.wait()).expect("a child");
    }
    let text = String::from_utf8_lossy(&reader.join().unwrap().unwrap()).into_owned();
    let code = status.unwrap_or_else(|| panic!("{shown} is not refused")).code();
    assert_eq!(code, Some(1), "{}", text.chars().take(1000).collect::<String>());
    text
}

/// What a server has: of each key, by its database, the value and the moment at which it expires; and the
/// names of its libraries of functions.
pub type State = BTreeMap<(usize, Vec<u8>), (Vec<u8>, i64)>;

pub fn state(client: &mut Client) -> State {
    let mut state = State::new();
    for database in 0..16 {
        client.cmd(["SELECT", &database.to_string()]).is_ok();
        let keys = client.line("KEYS *").items();
        for key in keys {
            let key = bytes(key);
            let value = value(client, &key);
            let expiry = client.cmd([&b"PEXPIRETIME"[..], &key]).integer();
            state.insert((database, key), (value, expiry));
        }
    }
    client.line("SELECT 0").is_ok();
    let libraries = client.line("FUNCTION DUMP").reply();
    state.insert((16, b"libraries".to_vec()), (bytes(libraries), -1));
    state
}

/// The value of a key of any type, in one form.
pub fn value(client: &mut Client, key: &[u8]) -> Vec<u8> {
    let (arguments, parts): (&[&[u8]], usize) = match &*client.cmd([&b"TYPE"[..], key]).reply().to_string() {
        "string" => return bytes(client.cmd([&b"GET"[..], key]).reply()),
        "list" => (&[b"LRANGE", key, b"0", b"-1"], 1),
        "set" => (&[b"SMEMBERS", key], 1),
        "zset" => (&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"], 2),
        "hash" => (&[b"HGETALL", key], 2),
        "stream" => {
            let entries = client.cmd([&b"XRANGE"[..], key, b"-", b"+"]).reply();
            let groups = client.cmd([&b"XINFO"[..], b"GROUPS", key]).reply();
            return format!("{entries} {groups}").into_bytes();
        }
        other => panic!("{other}"),
    };
    let strings: Vec<Vec<u8>> = client.cmd(arguments).items().into_iter().map(bytes).collect();
    let elements = strings.chunks(parts).map(<[Vec<u8>]>::concat).collect();
    in_one_form(elements, arguments[0] == b"LRANGE")
}

/// The state of a log that is loaded in this process.
pub fn load(folder: &Folder, truncated: &str) -> Result<State, String> {
    let config = Config::new();
    for (name, value) in
        [("dir", folder.file("")), ("appendonly", "yes".into()), ("aof-load-truncated", truncated.into())]
    {
        config.store(Parameter::named(name.as_bytes()).unwrap().check(value.as_bytes()).unwrap());
    }
    let instance = Instance::new(config, 1, known(&[]), Hooks::default());
    // A test that starts a program at this moment has a copy of the lock until it runs.
    let is_locked = |loaded: &Result<(), String>| {
        loaded.as_ref().is_err_and(|why| why.starts_with("Another server keeps its log in"))
    };
    let mut loaded = replay::load(&instance);
    wait_until("the folder is free", || {
        if is_locked(&loaded) {
            loaded = replay::load(&instance);
        }
        !is_locked(&loaded)
    });
    loaded?;
    let mut tx = instance.keyspace.begin_all(0).unwrap();
    let mut state = State::new();
    for database in 0..16 {
        tx.select(database);
        for key in tx.everything().unwrap().keys() {
            let expiry = tx.peek_expiry(key).unwrap().map_or(-1, |at_ms| at_ms as i64);
            let value = tx.get_any(key).unwrap();
            let mut elements = Vec::new();
            (value.facts.each)(value.content, &mut |parts| elements.push(parts.concat()));
            state.insert((database, key.to_vec()), (in_one_form(elements, value.facts.is_ordered), expiry));
        }
    }
    let libraries = instance.scripting.libraries();
    let codes = libraries.all().map(|library| library.code.to_vec()).collect::<Vec<_>>();
    state.insert((16, b"libraries".to_vec()), (codes.concat(), -1));
    Ok(state)
}

/// The elements of a collection as one string.
pub fn in_one_form(mut elements: Vec<Vec<u8>>, is_ordered: bool) -> Vec<u8> {
    if !is_ordered {
        elements.sort_unstable();
    }
    elements.join(&b'\n')
}

pub fn bytes(reply: Reply) -> Vec<u8> {
    match reply {
        Reply::Bulk(bytes) => bytes,
        other => panic!("not a string: {other:?}"),
    }
}

/// The names of the files of a log.
pub fn files(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path().join("appendonlydir")).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub fn increment(folder: &Folder, number: usize) -> PathBuf {
    folder.path().join(format!("appendonlydir/appendonly.aof.{number}.incr.aof"))
}

/// Has `redis-check-aof` accept a log, where it is installed.
#[track_caller]
pub fn check(folder: &Folder) {
    let manifest = folder.path().join("appendonlydir/appendonly.aof.manifest");
    let Some(mut program) = installed("redis-check-aof") else { return };
    let output = program.arg(manifest).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("All AOF files and manifest are valid"), "{text}");
}

/// Waits until the log is not being rewritten, and will not be.
#[track_caller]
pub fn wait_for_rewrite(client: &mut Client) {
    let is_over = |client: &mut Client| {
        ["aof_rewrite_scheduled", "aof_rewrite_in_progress"].iter().all(|field| client.info(field) == "0")
    };
    wait_until("the rewrite ends", || is_over(client));
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
}
