//! The client's modes that sample keys, measure time and fetch snapshots.
//!
//! With `KEYFAST_TEST_CLI=/path/to/redis-cli` the same is asked of the real redis-cli.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::cli::{Ran, Running, cli, own, run, tested};
use support::folder::Folder;
use support::server::Server;

/// A client that goes on, with every line written at once: redis-cli keeps what does not go to a terminal.
fn unbuffered(server: &Server, arguments: &[&str]) -> Running {
    let client = tested();
    let mut command = Command::new("stdbuf");
    command.arg("-o0").arg(client.get_program()).args(client.get_args());
    command.args(["-p", &server.port().to_string()]).args(arguments);
    Running::start(command)
}

marked!(also_cli: the_keys_that_are_used_most_are_found);
fn the_keys_that_are_used_most_are_found() {
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-lfu"]);
    let mut client = server.client();
    client.cmd(["MSET", "cold", "1", "warm", "2", "hot\n", "3"]).is_ok();
    // The chance that a use does not count grows with the counter: so many that the order is not in doubt.
    for _ in 0..400 {
        client.cmd(["GET", "hot\n"]).is("3");
    }
    for _ in 0..20 {
        client.line("GET warm").is("2");
    }
    let counter =
        |client: &mut support::client::Client, key: &str| client.cmd(["OBJECT", "FREQ", key]).integer();
    let (hot, warm) = (counter(&mut client, "hot\n"), counter(&mut client, "warm"));
    assert!(hot > warm && warm > 5, "{hot} {warm}");
    let ran = cli(&server, &["--hotkeys"]);
    assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
    assert!(
        ran.output.starts_with(
            "\n# Scanning the entire keyspace to find hot keys as well as\n\
             # average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n\
             # per 100 SCAN commands (not usually needed).\n\n"
        ),
        "{ran:?}"
    );
    let found = format!("[00.00%] Hot key \"hot\\n\" found so far with counter {hot}\n");
    assert!(ran.output.contains(&found), "no {found:?} in {ran:?}");
    let summary = format!(
        "\n-------- summary -------\n\nSampled 3 keys in the keyspace!\n\
         hot key found with counter: {hot}\tkeyname: \"hot\\n\"\n\
         hot key found with counter: {warm}\tkeyname: \"warm\"\n\
         hot key found with counter: 5\tkeyname: \"cold\"\n"
    );
    assert!(ran.output.ends_with(&summary), "no {summary:?} in {ran:?}");
    client.line("CONFIG SET maxmemory-policy noeviction").is_ok();
    let ran = cli(&server, &["--hotkeys"]);
    assert!(ran.complaint.starts_with("Error: ERR An LFU maxmemory policy is not selected"), "{ran:?}");
    assert_eq!(ran.code, Some(1));
}

marked!(also_cli: latency_is_shown_as_it_changes);
fn latency_is_shown_as_it_changes() {
    let server = Server::start();
    for (output, sample) in [("--raw", " 1\n"), ("--csv", ",1\n"), ("--json", "\"count\": 1}\n")] {
        let mut client = unbuffered(&server, &["--latency-history", "-i", "0.05", output]);
        for _ in 0..3 {
            client.awaits(sample);
            client.awaits(" seconds range\n");
        }
    }
    let mut client = unbuffered(&server, &["--latency-history", "-i", "0.05", "--no-raw"]);
    client.awaits("\x1b[0G\x1b[2Kmin: ");
    client.awaits(" samples) -- 0.");
    client.awaits(" seconds range\n");
}

marked!(also_cli: latency_is_shown_as_a_spectrum);
fn latency_is_shown_as_a_spectrum() {
    let server = Server::start();
    let mut client = unbuffered(&server, &["--latency-dist", "-i", "0.02"]);
    let rule = "-".repeat(45);
    let line = "\x1b[38;5;0m\x1b[48;5;0m.\x1b[48;5;";
    for _ in 0..2 {
        client.awaits(&format!(
            "{rule}\n\
             . - * #          .01 .125 .25 .5 milliseconds\n\
             1,2,3,...,9      from 1 to 9     milliseconds\n\
             A,B,C,D,E        10,20,30,40,50  milliseconds\n\
             F,G,H,I,J        .1,.2,.3,.4,.5       seconds\n\
             K,L,M,N,O,P,Q,?  1,2,4,8,16,30,60,>60 seconds\n\
             From 0 to 100%: \x1b[48;5;0m \x1b[48;5;233m \x1b[48;5;234m \x1b[48;5;235m \x1b[48;5;237m \
             \x1b[48;5;239m \x1b[48;5;241m \x1b[48;5;243m \x1b[48;5;245m \x1b[48;5;247m \x1b[48;5;144m \
             \x1b[48;5;143m \x1b[48;5;142m \x1b[48;5;184m \x1b[48;5;226m \x1b[48;5;214m \x1b[48;5;208m \
             \x1b[48;5;202m \x1b[48;5;196m \x1b[0m\n{rule}\n"
        ));
        for _ in 0..20 {
            client.awaits(line);
            client.awaits("\x1b[48;5;0mQ\x1b[48;5;0m?\x1b[0m\n");
        }
    }
}

marked!(also_cli: a_machine_is_measured_without_a_server);
fn a_machine_is_measured_without_a_server() {
    for seconds in ["0", "1"] {
        let ran = run(tested(), &["-p", "1", "--intrinsic-latency", seconds], b"");
        assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
        assert!(ran.output.starts_with("Max latency so far: "), "{ran:?}");
        let last: Vec<_> = ran.output.lines().rev().take(3).collect();
        assert!(
            last[0].starts_with("Worst run took ") && last[0].ends_with("x longer than the average latency.")
        );
        assert!(
            last[1].contains(" total runs (avg latency: ") && last[1].ends_with(" nanoseconds per run).")
        );
        assert_eq!(last[2], "");
    }
}

const SENT: &str = "sending REPLCONF capa eof\nsending REPLCONF rdb-only 1\n";

marked!(also_cli: a_snapshot_is_fetched_into_a_file_or_to_the_output);
fn a_snapshot_is_fetched_into_a_file_or_to_the_output() {
    let (folder, server) = (Folder::new("cli-rdb"), Server::start());
    let mut client = server.client();
    client.line("SET k v").is_ok();
    client
        .cmd(["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"])
        .is("l");
    let functions = "sending REPLCONF rdb-filter-only functions\n";
    for (option, more, keys) in [("--rdb", "", 1), ("--functions-rdb", functions, 0)] {
        let file = folder.file(&format!("{keys}.rdb"));
        let ran = cli(&server, &[option, &file]);
        let bytes = fs::read(&file).unwrap();
        let length = bytes.len();
        let complaint = format!(
            "{SENT}{more}SYNC sent to master, writing {length} bytes to '{file}'\n\
             Transfer finished with success.\n"
        );
        assert_eq!(ran, Ran { output: String::new(), complaint, code: Some(0) });
        let loading = Folder::new(&format!("cli-rdb-{keys}"));
        fs::write(loading.file("dump.rdb"), &bytes).unwrap();
        let mut loaded = loading.serve(&[]).into_client();
        loaded.line("DBSIZE").is(keys);
        loaded.line("FCALL f 0").is(7);
    }
    let ran = cli(&server, &["--rdb", "-"]);
    assert!(ran.output.starts_with("REDIS00") && ran.complaint.contains(" bytes to '-'\n"), "{ran:?}");
    assert_eq!(ran.code, Some(0));
    let ran = cli(&server, &["--rdb", "/nosuchfolder/dump.rdb"]);
    assert!(ran.complaint.ends_with("Error opening '/nosuchfolder/dump.rdb': No such file or directory\n"));
    assert_eq!(ran.code, Some(1));
    run(tested(), &["--rdb", "a", "--functions-rdb", "b"], b"")
        .failed("", "Option --functions-rdb and --rdb are mutually exclusive.\n");
}

/// Runs a client against a server that understands REPLCONF, or not, and sends these bytes for SYNC.
fn synced(understands: bool, pieces: &[&[u8]], arguments: &[&str]) -> Ran {
    synced_by(tested(), understands, pieces, arguments)
}

fn synced_by(client: Command, understands: bool, pieces: &[&[u8]], arguments: &[&str]) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut read, mut answered, mut piece) = (String::new(), 0, [0; 1024]);
        while !read.ends_with("\nSYNC\r\n") {
            let length = stream.read(&mut piece).unwrap();
            if length == 0 {
                return;
            }
            read.push_str(&String::from_utf8_lossy(&piece[..length]));
            let asked = read.matches("REPLCONF").count();
            for _ in answered..asked {
                stream.write_all(if understands { b"+OK\r\n" } else { b"-ERR what\r\n" }).unwrap();
            }
            answered = asked;
        }
        for piece in pieces {
            stream.write_all(&piece).unwrap();
        }
    });
    let ran = run(client, &[&["-p", &port], arguments].concat(), b"");
    serving.join().unwrap();
    ran
}

marked!(also_cli: a_snapshot_comes_with_a_length_or_a_mark_behind_it_or_not_at_all);
fn a_snapshot_comes_with_a_length_or_a_mark_behind_it_or_not_at_all() {
    let folder = Folder::new("cli-rdb-forms");
    let file = folder.file("dump.rdb");
    let mark = "0123456789abcdef0123456789abcdef01234567";
    let until_mark =
        format!("{SENT}SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{file}'\n");
    let with_mark = format!("\n\n$EOF:{mark}\r\n");
    for content in ["", "x", &"snapshot".repeat(30_000)] {
        let sent = format!("{content}{mark}");
        let ran = synced(true, &[with_mark.as_bytes(), sent.as_bytes()], &["--rdb", &file]);
        let length = content.len();
        let complaint = format!("{until_mark}Transfer finished with success after {length} bytes\n");
        assert_eq!(ran, Ran { output: String::new(), complaint, code: Some(0) });
        assert!(fs::read_to_string(&file).unwrap() == content);
    }
    let ran = synced(true, &[with_mark.as_bytes(), b"snap"], &["--rdb", &file]);
    ran.failed("", &format!("{until_mark}I/O Error reading RDB payload from socket\n"));
    let nine = format!("SYNC sent to master, writing 9 bytes to '{file}'\n");
    let ran = synced(true, &[b"\n\n$9\r\n", b"\n", b"snapshot", b"more"], &["--rdb", &file]);
    let success = format!("{SENT}{nine}Transfer finished with success.\n");
    assert_eq!(ran, Ran { output: String::new(), complaint: success, code: Some(0) });
    let ran = synced(true, &[b"$9\r\nsnap"], &["--rdb", &file]);
    ran.failed("", &format!("{SENT}{nine}I/O Error reading RDB payload from socket\n"));
    let unreadable = format!("{SENT}Error reading bulk length while SYNCing\n");
    for nothing in [&b""[..], b"\n\n", b"$9"] {
        synced(true, &[nothing], &["--rdb", &file]).failed("", &unreadable);
    }
    let ran = synced(true, &[b"-ERR no\r\n"], &["--rdb", &file]);
    let complaint = ran.complaint.replace('\r', "");
    assert_eq!(complaint, format!("{SENT}SYNC with master failed: -ERR no\n"));
    assert_eq!(ran.code, Some(1));
    // A server that is too old for REPLCONF sends a snapshot, but not one of the functions alone.
    let old = "sending REPLCONF capa eof\nREPLCONF capa error: ERR what\n\
               sending REPLCONF rdb-only 1\nREPLCONF rdb-only error: ERR what\n";
    let ran = synced(false, &[b"$4\r\nsnap"], &["--rdb", &file]);
    assert!(ran.complaint.starts_with(old) && ran.code == Some(0), "{ran:?}");
    let functions = "sending REPLCONF rdb-filter-only functions\n\
                     REPLCONF rdb-filter-only error: ERR what\n\
                     Failed requesting functions only RDB from server, aborting\n";
    synced(false, &[], &["--functions-rdb", &file]).failed("", &format!("{old}{functions}"));
}

#[test]
fn neither_the_mark_nor_an_older_snapshot_is_left_in_the_output() {
    let folder = Folder::new("cli-rdb-own");
    let file = folder.write("dump.rdb", &"older and longer".repeat(100));
    let mark = "m".repeat(40);
    let header = format!("$EOF:{mark}\r\nsnapshot");
    // The mark may come in pieces, and its beginning may be a part of the snapshot.
    let pieces = [header.as_bytes(), &mark.as_bytes()[..7], &mark.as_bytes()[7..]];
    let client = |file: &str| synced_by(own(), true, &pieces, &["--rdb", file]);
    assert_eq!(client("-").output, "snapshot");
    assert_eq!(client(&file).code, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "snapshot");
}

marked!(needs_tools: a_snapshot_is_fetched_from_a_real_redis);
fn a_snapshot_is_fetched_from_a_real_redis() {
    for diskless in ["yes", "no"] {
        let folder = Folder::new(&format!("cli-rdb-{diskless}"));
        let of_redis = Folder::new(&format!("cli-rdb-{diskless}-redis"));
        let place = of_redis.file("");
        let options = ["--repl-diskless-sync", diskless, "--repl-diskless-sync-delay", "0"];
        let options = [&options[..], &["--dir", &place]].concat();
        let Some(server) = Server::start_redis(&options) else { return };
        server.client().line("SET k v").is_ok();
        let ran = run(own(), &["-p", &server.port().to_string(), "--rdb", &folder.file("dump.rdb")], b"");
        let is_by_mark = ran.complaint.contains("until EOF marker");
        assert_eq!((ran.code, is_by_mark), (Some(0), diskless == "yes"), "{ran:?}");
        let mut loaded = folder.serve(&[]).into_client();
        loaded.line("GET k").is("v");
        loaded.line("DBSIZE").is(1);
    }
}
