//! Section F: RESTORE, snapshot, log and other files.
//!
//! Rows of types that are not there yet (F2 to F9) and of what clusters or modules write (F11, F19) have no
//! test: these types are refused by name, which `f1_` and `f12_` check for every type byte.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;

use keyfast::internals::commands::known;
use keyfast::internals::config::{Config, Parameter};
use keyfast::internals::dump::strings::{write_length, write_string};
use keyfast::internals::dump::{CHECKSUM, VERSION};
use keyfast::internals::instance::{Hooks, Instance};
use keyfast::internals::types::strings::Text;

use support::client::{Client, request};
use support::folder::Folder;
use support::log::{ALWAYS, increment, load, serve};
use support::log::{refusal, refused};
use support::server::{Server, wait_until};

/// PING on this and on another connection.
#[track_caller]
fn is_alive(client: &mut Client, server: &Server) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_simple("PONG");
}

/// A payload whose checksum is right, whatever is in it.
fn signed(content: &[u8]) -> Vec<u8> {
    let mut payload = [content, &VERSION.to_le_bytes()].concat();
    payload.extend(CHECKSUM.checksum(&payload).to_le_bytes());
    payload
}

#[test]
fn f1_restore_believes_nothing_that_a_payload_announces() {
    const GROWTH_BYTES_MAX: usize = 64 << 20;
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k kept").is_ok();
    let huge = [0x81, 255, 255, 255, 255, 255, 255, 255, 255];
    let mut contents: Vec<Vec<u8>> = vec![Vec::new()];
    for kind in 0..=40_u8 {
        for body in
            [&b""[..], b"\x05ab", b"\x03\x02", &huge, b"\x80\xff\xff\xff\xff", b"\x80\x7f\xff\xff\xffabc"]
        {
            contents.push([&[kind][..], body].concat());
        }
    }
    // Compressed: 500 MB, 2^63, more than the rest, before its beginning, and an unknown form.
    for body in [
        &b"\xc3\x05\x80\x1d\xcd\x65\x00abcde"[..],
        b"\xc3\x02\x81\x80\x00\x00\x00\x00\x00\x00\x00\x00a",
        b"\xc3\x81\x80\x00\x00\x00\x00\x00\x00\x00\x05ab",
        b"\xc3\x03\x40\xff\x00a\x20",
        b"\xc3\x02\x09\xe0\xff",
        b"\xc4",
        b"\x03abcd",
        b"\x03abc\x00\x03abc",
    ] {
        contents.push([&[0][..], body].concat());
    }
    let before = server.resident_bytes();
    for content in &contents {
        let payload = signed(content);
        for words in [&["RESTORE", "k", "0"][..], &["RESTORE", "new", "0"]] {
            let mut words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            words.push(&payload);
            if words[1] == b"k" {
                words.push(b"REPLACE");
            }
            client.cmd(words).is_error("ERR Bad data format");
        }
        // Without the right checksum nothing of it is looked at.
        client
            .cmd([&b"RESTORE"[..], b"new", b"0", content])
            .is_error("ERR DUMP payload version or checksum are wrong");
    }
    assert!(server.resident_bytes() < before + GROWTH_BYTES_MAX, "memory was taken for what never came");
    client.line("GET k").is("kept");
    client.line("EXISTS new").is(0);
    is_alive(&mut client, &server);
}

/// A snapshot of these sections, with the right checksum.
fn snapshot(sections: &[u8]) -> Vec<u8> {
    let mut file = [b"REDIS0010", sections, b"\xff"].concat();
    file.extend(CHECKSUM.checksum(&file).to_le_bytes());
    file
}

/// A server in this process whose files are in a folder; nothing is loaded yet.
fn instance(folder: &Folder, verifies: bool) -> Instance {
    let config = Config::new();
    let checksum = if verifies { "yes" } else { "no" };
    for (name, value) in [("dir", folder.file("")), ("rdbchecksum", checksum.into())] {
        config.store(Parameter::named(name.as_bytes()).unwrap().check(value.as_bytes()).unwrap());
    }
    Instance::new(config, 1, known(&[]), Hooks::default())
}

/// Loads a snapshot in this process.
fn load_snapshot(folder: &Folder, file: &[u8], verifies: bool) -> Result<Instance, String> {
    fs::write(folder.file("dump.rdb"), file).unwrap();
    let instance = instance(folder, verifies);
    instance.load()?;
    Ok(instance)
}

#[test]
fn f10_numbers_of_slots_in_a_snapshot_are_passed_over() {
    let number = [&[0x81][..], &(1_u64 << 40).to_be_bytes()].concat();
    let sections = [&b"\xfe\x00\xf4"[..], &number, &number, &number, b"\x00\x01k\x01v"].concat();
    let folder = Folder::new("f10");
    fs::write(folder.file("dump.rdb"), snapshot(&sections)).unwrap();
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client();
    client.line("GET k").is("v");
    is_alive(&mut client, &server);
}

#[test]
fn f12_a_damaged_snapshot_is_refused_in_one_line() {
    let folder = Folder::new("f12");
    let mut sections = b"\xfa\x09redis-ver\x057.2.4\xfe\x00\xfb\x03\x01".to_vec();
    for (key, value) in [("text", "v"), ("number", "12345"), ("long", &"abc".repeat(20))] {
        sections.push(0);
        write_string(&mut sections, key.as_bytes(), None);
        write_string(
            &mut sections,
            value.as_bytes(),
            Some(&mut keyfast::internals::dump::Compressor::default()),
        );
    }
    sections.extend(b"\xfc\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x04late\x01v");
    let good = snapshot(&sections);
    let loaded = load_snapshot(&folder, &good, true).unwrap();
    assert_eq!(loaded.keyspace.begin_all(0).unwrap().database_size().keys, 4);
    let check = |file: &[u8], what: &str| {
        let why = load_snapshot(&folder, file, true).map(|_| ()).expect_err(what);
        assert!(why.starts_with("Fatal error loading the DB ") && !why.contains('\n'), "{what}: {why}");
    };
    for length in 0..good.len() {
        check(&good[..length], &format!("{length} bytes"));
    }
    for at in 0..good.len() {
        for mask in [1, 0x80] {
            let mut changed = good.clone();
            changed[at] ^= mask;
            check(&changed, &format!("byte {at}"));
            // Without the checksum it may be another good file, and is never more than refused.
            if let Err(why) = load_snapshot(&folder, &changed, false) {
                assert!(!why.contains('\n'), "{why}");
            }
        }
    }
    let large = [&[0x81][..], &(1_u64 << 60).to_be_bytes()].concat();
    let value = b"\x00\x01k\x01v";
    let mut cases = vec![
        (snapshot(&[b"\xfe", &large[..], value].concat()), "more than 16 databases"),
        (snapshot(&[b"\xfe\x00\x00\x01k", &large[..], b"v"].concat()), "(offset "),
        (snapshot(&[b"\xfe\x00\x00", &large[..], b"k\x01v"].concat()), "(offset "),
        (snapshot(&[&value[..], value].concat()), "duplicated key 'k' in DB 0"),
        (snapshot(b"\xf1"), "Unknown RDB encoding type 241 (offset 9)"),
        (b"REDIS9999\xff\0\0\0\0\0\0\0\0".to_vec(), "Can't handle RDB format version 9999"),
        (b"REDIS-001\xff\0\0\0\0\0\0\0\0".to_vec(), "Can't handle RDB format version -001"),
        (b"REDIS".to_vec(), "Unexpected EOF reading RDB file (offset 5)"),
    ];
    cases.extend((1..=240).map(|kind| (snapshot(&[kind, 1, b'k', 1, b'v']), "(offset ")));
    for (file, expected) in &cases {
        let why = load_snapshot(&folder, file, true).map(|_| ()).unwrap_err();
        assert!(why.contains(expected) && !why.contains('\n'), "{why}, not {expected}");
    }
    // Sizes are a hint, and no memory is taken for them.
    let sizes = [b"\xfe\x00\xfb", &large[..], &large[..], value].concat();
    assert!(load_snapshot(&folder, &snapshot(&sizes), true).is_ok());
    // The program itself says it and ends.
    fs::write(folder.file("dump.rdb"), &cases[0].0).unwrap();
    let printed = refusal(&folder, &[]);
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

/// The section of a library.
fn library(code: &str) -> Vec<u8> {
    let mut section = vec![0xf5];
    write_string(&mut section, code.as_bytes(), None);
    section
}

#[test]
fn f13_libraries_that_cannot_be_loaded_are_named_soon() {
    let register = "redis.register_function('f', function() return 42 end)";
    for (body, why) in [
        ("while true do end", "FUNCTION LOAD timeout"),
        ("local s = string.rep('x', 2^40)", "not enough memory"),
        ("error('raised')", "raised"),
        ("pcall(function() while true do end end)", "FUNCTION LOAD timeout"),
    ] {
        let started = Instant::now();
        let folder = Folder::new("f13");
        let code = format!("#!lua name=wrong\n{body}\n{register}");
        let good = format!("#!lua name=good\n{register}");
        fs::write(folder.file("dump.rdb"), snapshot(&[library(&good), library(&code)].concat())).unwrap();
        let printed = refusal(&folder, &[]);
        assert!(printed.contains("library 'wrong'"), "{printed}");
        // The log has the request that loads it. Its client got an error, so the start goes on, as in Redis.
        let folder = Folder::new("f13-log");
        fs::create_dir(folder.path().join("appendonlydir")).unwrap();
        folder
            .write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
        let log = [request(["SET", "k", "v"]), request(["FUNCTION", "LOAD", "REPLACE", &code])].concat();
        fs::write(increment(&folder, 1), &log).unwrap();
        let server = folder.serve(ALWAYS);
        server.client().line("GET k").is("v");
        assert_eq!(server.client().line("FUNCTION LIST").reply().to_string(), "[]");
        assert!(server.output().contains("name=wrong failed"), "{}", server.output());
        assert_eq!(fs::read(increment(&folder, 1)).unwrap(), log);
        println!("{why}: {:?}", started.elapsed());
    }
}

#[test]
fn f13_a_good_file_of_slow_libraries_is_loaded() {
    // Each takes long for a client's FUNCTION LOAD, and all together for a client's FUNCTION RESTORE.
    const LIBRARIES: usize = 3;
    let slow = "local function slow(n) local s = 0 for i = 1, n do s = s + i end end slow(4e7)";
    let mut sections = Vec::new();
    for number in 0..LIBRARIES {
        let register = format!("redis.register_function('f{number}', function() return {number} end)");
        sections.extend(library(&format!("#!lua name=slow{number}\n{slow}\n{register}")));
    }
    let folder = Folder::new("f13-slow");
    let loaded = load_snapshot(&folder, &snapshot(&sections), true).unwrap();
    assert_eq!(loaded.scripting.libraries().all().count(), LIBRARIES);
    // 100,000 of them are more than there may be: refused without loading them all.
    let server = Server::start();
    let mut client = server.client();
    let mut payload = Vec::new();
    for number in 0..100_000 {
        let register = format!("redis.register_function('f{number}', function() return 1 end)");
        payload.extend(library(&format!("#!lua name=many{number}\n{register}")));
    }
    let answer = client.cmd([&b"FUNCTION"[..], b"RESTORE", &signed(&payload)]).text();
    assert!(answer.starts_with("ERR Too many libraries"), "{answer}");
    client.line("FUNCTION LIST").reply();
    is_alive(&mut client, &server);
}

/// Writes a log of one increment, in place of one that is there.
fn write_log(folder: &Folder, manifest: &[u8], log: &[u8]) {
    let _ = fs::create_dir(folder.path().join("appendonlydir"));
    fs::write(folder.file("appendonlydir/appendonly.aof.manifest"), manifest).unwrap();
    fs::write(increment(folder, 1), log).unwrap();
}

#[test]
fn f14_names_of_files_are_refused_that_are_too_long_or_lead_elsewhere() {
    let folder = Folder::new("f14");
    let set = request(["SET", "k", "v"]);
    fs::write(folder.file("outside"), &set).unwrap();
    for name in [
        "a".repeat(5000),
        "../outside".into(),
        folder.file("outside"),
        "appendonlydir/../outside".into(),
        "\"a\\nb\"".into(),
        "\"a\\x00b\"".into(),
        "..".into(),
        ".".into(),
        "\"\"".into(),
    ] {
        write_log(&folder, format!("file {name} seq 1 type i\n").as_bytes(), &set);
        let why = load(&folder, "yes").unwrap_err();
        assert!(!why.contains('\n') && why.len() < 2000, "{why}");
    }
    let long = "a".repeat(5000);
    let folder = Folder::new("f14-option");
    for option in ["--appendfilename", "--appenddirname", "--dbfilename"] {
        for value in ["../x", "x/y", &long] {
            // With a log there is no look at the snapshot.
            let log = if option == "--dbfilename" { &[][..] } else { ALWAYS };
            assert!(!refusal(&folder, &[log, &[option, value]].concat()).is_empty());
        }
    }
}

#[test]
fn f15_numbers_in_a_log_are_refused_that_make_no_sense() {
    let folder = Folder::new("f15");
    const MANIFEST: &[u8] = b"file appendonly.aof.1.incr.aof seq 1 type i\n";
    for log in [
        &b"*-1\r\n"[..],
        b"*0\r\n",
        b"*2147483648\r\n",
        b"*1\r\n$4611686018427387904\r\n",
        b"*1\r\n$9223372036854775807\r\nx",
        b"*1\r\n$-9223372036854775808\r\n",
        b"*1\r\n$-1\r\n",
        b"*99999999999999999999\r\n",
        b"*+1\r\n$4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
    ] {
        write_log(&folder, MANIFEST, log);
        let why = load(&folder, "yes").unwrap_err();
        assert!(why.starts_with("Bad file format reading the append only file"), "{why}");
        assert_eq!(fs::read(increment(&folder, 1)).unwrap(), log);
    }
    for manifest in [
        "file appendonly.aof.1.incr.aof seq 100000000000000000000 type i\n",
        "file appendonly.aof.1.incr.aof seq -1 type i\n",
        "file a seq 1 type b\nfile b seq 2 type b\n",
        "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.1.incr.aof seq 2 type i\n",
        "file appendonly.aof.1.incr.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n",
        "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.1.incr.aof seq 1 type h\n",
    ] {
        write_log(&folder, manifest.as_bytes(), &request(["INCR", "k"]));
        let why = load(&folder, "yes").unwrap_err();
        assert!(why.starts_with("reading the manifest file ") && !why.contains('\n'), "{why}");
        assert!(increment(&folder, 1).exists());
    }
    write_log(&folder, MANIFEST, b"*2147483648\r\n");
    let printed = refusal(&folder, ALWAYS);
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

marked!(also_redis: f16_half_a_transaction_at_the_end_does_not_swallow_what_comes_after_it);
fn f16_half_a_transaction_at_the_end_does_not_swallow_what_comes_after_it() {
    let folder = Folder::new("f16");
    let half = [request(["SET", "before", "1"]), request(["MULTI"]), request(["SET", "half", "1"])].concat();
    write_log(&folder, b"file appendonly.aof.1.incr.aof seq 1 type i\n", &half);
    let mut client = serve(&folder, &[]).into_client();
    client.line("EXISTS before half").is(1);
    client.line("SET k v").is_ok();
    drop(client);
    let server = serve(&folder, &["--aof-load-truncated", "no"]);
    let mut client = server.client();
    client.line("GET k").is("v");
    client.line("EXISTS before half").is(1);
    is_alive(&mut client, &server);
}

#[test]
fn f17_links_in_the_place_of_temporary_files_are_not_followed() {
    let folder = Folder::new("f17");
    let target = folder.write("target", "precious");
    let configuration = folder.write("keyfast.conf", "save \"\"\n");
    let server = folder.serve(&[&configuration, "--dir", &folder.file("")]);
    let mut client = server.client();
    client.line("SET k v").is_ok();
    let pid = server.process_id();
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "# Nothing has been logged yet.\n");
    for link in [
        format!("temp-{pid}.rdb"),
        format!("appendonlydir/temp-{pid}.rdb"),
        "appendonlydir/temp-probe.rdb".into(),
        format!("keyfast.conf.tmp-{pid}-0"),
        format!("appendonlydir/appendonly.aof.manifest.tmp-{pid}-0"),
        format!("appendonlydir/appendonly.aof.manifest.tmp-{pid}-1"),
        "appendonlydir/appendonly.aof.1.incr.aof".into(),
    ] {
        symlink(&target, folder.file(&link)).unwrap();
    }
    client.line("SAVE").is_ok();
    client.line("BGSAVE").is_simple("Background saving started");
    wait_until("it ends", || client.info("rdb_bgsave_in_progress") == "0");
    client.line("CONFIG REWRITE").is_ok();
    client.line("CONFIG SET appendonly yes").is_ok();
    wait_until("it ends", || client.info("aof_rewrite_in_progress") == "0");
    client.line("SET k w").is_ok();
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
    is_alive(&mut client, &server);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    for file in
        ["dump.rdb", "appendonlydir/appendonly.aof.1.base.rdb", "appendonlydir/appendonly.aof.1.incr.aof"]
    {
        assert!(fs::symlink_metadata(folder.file(file)).unwrap().is_file(), "{file}");
    }
}

#[test]
fn f18_a_configuration_file_is_refused_in_one_line_that_says_what() {
    let folder = Folder::new("f18");
    let path = folder.file("keyfast.conf");
    for (text, why) in [
        ("#".repeat((16 << 20) + 1), "file too large"),
        ("x".repeat(16 << 20), "Bad directive or wrong number of arguments"),
        ("save -1 1\n".into(), "Invalid save parameters"),
        ("maxmemory 99999999999999999999gb\n".into(), "argument must be a memory value"),
        ("databases 99999999999999999999\n".into(), ""),
        ("port 4294967297\n".into(), ""),
        (format!("include '{path}'\n"), "keyfast.conf again"),
    ] {
        fs::write(&path, &text).unwrap();
        let printed = refused(folder.command().arg(&path).args(["--port", "0"]));
        let last = printed.lines().last().unwrap_or_default();
        assert!(last.contains(why) && last.len() < 500, "{last}, not {why}");
    }
    // As in Redis, these are as large as may be.
    for text in ["save 99999999999999999999 1\n", "save 1 99999999999999999999\n"] {
        fs::write(&path, text).unwrap();
        let server = folder.serve(&[&path]);
        let mut client = server.client();
        client.line("SET k v").is_ok();
        client.line("CONFIG GET save").items();
        is_alive(&mut client, &server);
    }
}

/// Lengths are written as they are read.
#[test]
fn f12_lengths_of_every_size_come_back() {
    let folder = Folder::new("f12-lengths");
    for length in [0, 63, 64, 16_383, 16_384, 70_000] {
        let mut sections = b"\xfe\x00\x00\x01k".to_vec();
        write_length(&mut sections, length as u64);
        sections.extend(vec![b'v'; length]);
        let loaded = load_snapshot(&folder, &snapshot(&sections), true).unwrap();
        let tx = loaded.keyspace.begin(0, b"k").unwrap();
        assert_eq!(tx.get::<Text>(b"k").unwrap().map(<[u8]>::len), Some(length));
    }
}
