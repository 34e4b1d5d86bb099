//! The programs that check files, under the names of those of Redis: what they print, and what they repair.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::client::request;
use support::folder::Folder;
use support::log::{ALWAYS, increment, load, serve};
use support::server::{Server, program};

/// Runs a check with the text as its standard input.
fn check(arguments: &[&str], input: &str) -> (i32, String) {
    let mut command = Command::new(program());
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A check that asks for nothing may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    shown(&child.wait_with_output().unwrap())
}

fn shown(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

const MANIFEST: &str =
    "file appendonly.aof.1.base.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n";

/// A folder with a log of a base and an increment; and the path of its manifest.
fn with_log(test: &str, increments: &[u8]) -> (Folder, String) {
    let folder = Folder::new(test);
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    let base = [request(["SELECT", "0"]), request(["SET", "base", "1"])].concat();
    fs::write(folder.file("appendonlydir/appendonly.aof.1.base.aof"), base).unwrap();
    fs::write(increment(&folder, 1), increments).unwrap();
    let manifest = folder.write("appendonlydir/appendonly.aof.manifest", MANIFEST);
    (folder, manifest)
}

#[test]
fn a_log_that_ends_with_zeros_is_repaired() {
    let whole = [request(["SELECT", "0"]), request(["SET", "k", "v"])].concat();
    let damaged = [&whole[..], &[0; 40]].concat();
    let (folder, manifest) = with_log("checking-zeros", &damaged);
    let why = support::log::refusal(&folder, ALWAYS);
    assert!(why.contains("then use 'keyfast check-aof --fix <filename.manifest>'"), "{why}");
    assert!(why.contains("'aof-load-corrupt-tail-max-size' configuration option to 41"), "{why}");
    let name = "appendonly.aof.1.incr.aof";
    let analyzed =
        format!("AOF analyzed: filename={name}, size={}, ok_up_to={}, ok_up_to_line=13, diff=40", 90, 50);
    assert_eq!(whole.len(), 50);
    let begin = "Start checking Multi Part AOF\nStart to check BASE AOF (RESP format).\nAOF analyzed: \
                 filename=appendonly.aof.1.base.aof, size=53, ok_up_to=53, ok_up_to_line=13, diff=0\nBASE \
                 AOF appendonly.aof.1.base.aof is valid\nStart to check INCR files.\n";
    let (code, text) = check(&["check-aof", &manifest], "");
    let format = format!("AOF {name} format error");
    let invalid = format!("AOF {name} is not valid. Use the --fix option to try fixing it.\n");
    assert_eq!((code, text), (1, format!("{begin}{format}\n{analyzed}\n{invalid}")));
    let asked = format!(
        "{begin}{format}\n{analyzed}\nThis will shrink the AOF {name} from 90 bytes, with 40 bytes, to 50 \
         bytes\nContinue? [y/N]: "
    );
    assert_eq!(check(&["check-aof", "--fix", &manifest], "n\n"), (1, format!("{asked}Aborting...\n")));
    assert_eq!(fs::read(increment(&folder, 1)).unwrap(), damaged);
    let (code, text) = check(&["check-aof", "--fix", &manifest], "y\n");
    let kept = folder.file("appendonlydir/appendonly.aof.1.incr.aof.cut-off-at-50");
    let ended = format!(
        "What is cut off is kept in {kept}\nSuccessfully truncated AOF {name}\nAll AOF files and manifest \
         are valid\n"
    );
    assert_eq!((code, text), (0, asked + &ended));
    assert_eq!(fs::read(kept).unwrap(), [0; 40]);
    assert_eq!(load(&folder, "no").unwrap().len(), 3, "two keys, and the libraries");
    let (code, text) = check(&["check-aof", &manifest], "");
    assert!(code == 0 && text.ends_with("All AOF files and manifest are valid\n"), "{text}");
}

#[test]
fn a_running_server_keeps_its_log_from_being_cut() {
    let folder = Folder::new("checking-locked");
    let server = serve(&folder, &[]);
    server.client().line("SET k v").is_ok();
    let path = increment(&folder, 1);
    let log = [fs::read(&path).unwrap(), b"*1\r\n$4\r\nPI".to_vec()].concat();
    fs::write(&path, &log).unwrap();
    let manifest = folder.file("appendonlydir/appendonly.aof.manifest");
    let (code, text) = check(&["check-aof", "--fix", &manifest], "y\n");
    assert!(code == 1 && text.contains("Another server keeps its log in "), "{text}");
    assert_eq!(fs::read(&path).unwrap(), log);
}

#[test]
fn only_the_last_file_of_a_log_is_cut() {
    let (folder, manifest) = with_log("checking-first", &request(["SET", "k", "v"]));
    let base = folder.file("appendonlydir/appendonly.aof.1.base.aof");
    fs::write(&base, [request(["SET", "k", "v"]), request(["MULTI"]), request(["SET", "k", "w"])].concat())
        .unwrap();
    let (code, text) = check(&["check-aof", "--fix", &manifest], "y\n");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("Reached EOF before reading EXEC for MULTI"), "{text}");
    let why = "Failed to truncate AOF appendonly.aof.1.base.aof because it is not the last file\n";
    assert!(text.ends_with(why), "{text}");
}

#[test]
fn a_log_is_cut_at_a_moment() {
    let part = |moment: u64, value: &str| {
        [format!("#TS:{moment}\r\n").into_bytes(), request(["SET", "k", value])].concat()
    };
    let log = [part(1000, "a"), part(2000, "b"), part(3000, "c")].concat();
    let (folder, manifest) = with_log("checking-moment", &log);
    let truncate = |moment: &str| check(&["check-aof", "--truncate-to-timestamp", moment, &manifest], "");
    let (code, text) = truncate("3000");
    assert!(code == 0 && text.contains("Truncate nothing in AOF appendonly.aof.1.incr.aof"), "{text}");
    let (code, text) = truncate("2500");
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("Successfully truncated AOF appendonly.aof.1.incr.aof to timestamp 2500"),
        "{text}"
    );
    assert_eq!(load(&folder, "no").unwrap()[&(0, b"k".to_vec())].0, b"b");
    let (code, text) = truncate("10");
    assert!(code == 1 && text.contains("has nothing before timestamp 10, aborting..."), "{text}");
    assert_eq!(truncate("soon"), (1, "Invalid timestamp, aborting...\n".to_owned()));
}

#[test]
fn damage_at_the_end_is_cut_off_up_to_a_size() {
    let whole = [request(["SELECT", "0"]), request(["SET", "k", "v"])].concat();
    let (folder, _) = with_log("checking-size", &[&whole[..], &[0; 40]].concat());
    let limit = "--aof-load-corrupt-tail-max-size";
    let why = support::log::refusal(&folder, &[ALWAYS, &[limit, "40"]].concat());
    assert!(why.contains("Bad file format"), "{why}");
    let server = serve(&folder, &[limit, "41"]);
    server.wait_for_output("because aof-load-corrupt-tail-max-size is enabled (remaining 40 bytes)");
    server.client().line("GET k").is("v");
    let kept = folder.file("appendonlydir/appendonly.aof.1.incr.aof.cut-off-at-50");
    assert_eq!(fs::read(kept).unwrap(), [0; 40]);
}

/// What a check prints of a snapshot, without what differs from server to server.
fn report(path: &str) -> (i32, String) {
    let (code, text) = check(&["check-rdb", path], "");
    (
        code,
        text.lines()
            .filter(|line| !line.contains("AUX FIELD"))
            .fold(String::new(), |all, line| all + line + "\n"),
    )
}

#[test]
fn a_snapshot_is_counted() {
    let folder = Folder::new("checking-snapshot");
    let path = folder.file("dump.rdb");
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    for line in ["SET a 1", "SET b 2 PX 1", "SET c 3 EX 1000", "HSET h f v", "HEXPIRE h 1000 FIELDS 1 f"] {
        client.line(line).ignored();
    }
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").ignored();
    client.line("SELECT 3").is_ok();
    client.line("RPUSH l a b").is(2);
    client.line("SAVE").is_ok();
    let bytes = fs::metadata(&path).unwrap().len();
    let (code, text) = report(&path);
    let (begin, end) = text.split_once("[offset ").unwrap();
    assert_eq!((code, begin), (0, ""), "{text}");
    assert!(end.starts_with(&format!("0] Checking RDB file {path}\n")), "{text}");
    assert!(end.contains("] Selecting DB ID 0\n") && end.contains("] Selecting DB ID 3\n"), "{text}");
    let ended = format!("[offset {bytes}] Checksum OK\n[offset {bytes}] \\o/ RDB looks OK! \\o/\n");
    assert!(end.contains(&ended), "{text}");
    assert!(end.contains(" keys read\n") && end.ends_with("[info] 1 subexpires\n"), "{text}");
    // The same beside a log.
    let log = [fs::read(&path).unwrap(), request(["SET", "k", "v"])].concat();
    let both = folder.file("both.aof");
    fs::write(&both, &log).unwrap();
    let (code, text) = check(&["check-aof", &both], "");
    assert!(code == 0 && text.contains("RDB preamble is OK, proceeding with AOF tail...\n"), "{text}");
    assert!(text.ends_with(&format!("AOF {both} is valid\n")), "{text}");
}

#[test]
fn what_is_wrong_with_a_snapshot_is_named() {
    let folder = Folder::new("checking-wrong");
    let path = folder.file("dump.rdb");
    let set = b"\x14\x01k\x0d\x0d\0\0\0\x02\0\x81a\x02\x81a\x02\xff";
    for (content, expected) in [
        (
            &set[..],
            "[offset 31] a set has a member twice\n[additional info] While doing: read-object-value\n\
             [additional info] Reading key 'k'\n\
             [additional info] Reading type 20 (set-listpack)\n[info] 2 keys read\n",
        ),
        (
            b"\xfc\0\0",
            "Unexpected EOF reading RDB file\n[additional info] While doing: read-type\n[info] 2 keys read\n",
        ),
        (b"\x63", "Unknown RDB encoding type 99\n"),
    ] {
        fs::write(&path, [b"REDIS0012\0\x01a\x01v", content, b"\xff", &[0; 8]].concat()).unwrap();
        let (code, text) = report(&path);
        assert_eq!(code, 1);
        assert!(text.contains("--- RDB ERROR DETECTED ---\n") && text.contains(expected), "{text}");
    }
    fs::write(&path, "RIDES0012").unwrap();
    let (code, text) = report(&path);
    assert!(code == 1 && text.contains("[offset 0] Wrong signature trying to load DB from file\n"), "{text}");
}

#[test]
fn the_programs_have_the_names_of_those_of_redis_and_valkey() {
    let folder = Folder::new("checking-names");
    for (name, expected) in [
        ("redis-check-aof", "[--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>\n"),
        ("valkey-check-aof", "[--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>\n"),
        ("redis-check-rdb", "<rdb-file-name>\n"),
        ("valkey-check-rdb", "<rdb-file-name>\n"),
    ] {
        let link = folder.file(name);
        std::os::unix::fs::symlink(Path::new(&program()), &link).unwrap();
        let (code, text) = shown(&Command::new(&link).output().unwrap());
        assert_eq!((code, text), (1, format!("Usage: {link} {expected}")));
        let (code, text) = shown(&Command::new(&link).arg("--version").output().unwrap());
        assert!(code == 0 && text.contains("redis-check-") && text.contains("8.6.3"), "{text}");
        let (code, text) = shown(&Command::new(&link).arg("/nosuch/file").output().unwrap());
        assert!(code == 1 && text.contains("Cannot open file /nosuch/file: "), "{text}");
    }
}
