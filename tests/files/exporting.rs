//! Snapshots for clients: SYNC and PSYNC behind REPLCONF, as `redis-cli --rdb` uses them, and MIGRATE.

use std::fs;
use std::thread;
use std::time::Duration;

use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::{Server, wait_until};
use support::tools::installed;

/// Asks for a snapshot and reads it. Empty lines in front of it show that the connection lives.
fn snapshot(client: &mut Client, request: &str) -> Vec<u8> {
    client.send(format!("{request}\r\n").as_bytes());
    let header = header(client);
    let length: usize = header.strip_prefix('$').expect(&header).parse().expect(&header);
    let bytes = client.bytes(length);
    assert!(client.is_closed(), "nothing follows");
    bytes
}

/// The next line that is not empty.
fn header(client: &mut Client) -> String {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.extend(client.bytes(1));
        }
        let line = String::from_utf8(line).expect("text");
        if !line.trim_end().is_empty() {
            return line.trim_end().to_owned();
        }
    }
}

/// A client that has said that it wants a snapshot and nothing behind it.
fn asking(server: &Server) -> Client {
    let mut client = server.client();
    client.line("REPLCONF rdb-only 1").is_ok();
    client
}

/// A server that has loaded a snapshot.
fn loaded(folder: &Folder, bytes: &[u8]) -> Client {
    fs::write(folder.path().join("dump.rdb"), bytes).unwrap();
    folder.serve(&[]).into_client()
}

#[test]
fn a_snapshot_has_all_data_and_is_loaded_by_another_server() {
    let (folder, other) = (Folder::new("export"), Folder::new("export-loaded"));
    let server = folder.serve(&["--save", ""]);
    let mut client = server.client();
    client.line("SET k v PX 600000").is_ok();
    client.line("HSET hash f 1 g 2").is(2);
    client.line("HPEXPIRE hash 600000 FIELDS 1 f").ignored();
    client.line("SELECT 3").is_ok();
    client.line("XADD events 1-1 f v").is("1-1");
    client.cmd(["SETRANGE", "long", "3000000", "x"]).is(3_000_001);
    client
        .cmd(["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"])
        .is("l");
    let bytes = snapshot(&mut asking(&server), "SYNC");
    assert!(bytes.starts_with(b"REDIS0012") || bytes.starts_with(b"REDIS0010"), "{:?}", &bytes[..9]);
    // What comes later is not in it, and it is no snapshot on disk.
    client.line("SET later v").is_ok();
    assert_eq!(folder.names(), Vec::<String>::new());
    assert_eq!(client.info("rdb_saves"), "0");
    let mut loaded = loaded(&other, &bytes);
    loaded.line("GET k").is("v");
    assert!(loaded.line("PTTL k").integer() > 500_000);
    loaded.line("HPTTL hash FIELDS 2 f g").ignored();
    loaded.line("FCALL f 0").is(7);
    loaded.line("SELECT 3").is_ok();
    loaded.line("STRLEN long").is(3_000_001);
    loaded.line("EXISTS later").is(0);
    loaded.line("XLEN events").is(1);
}

/// A server that has a key and a library of functions.
fn with_key_and_library(folder: &Folder) -> Server {
    let server = folder.serve(&["--save", ""]);
    let mut client = server.client();
    client.line("SET k v").is_ok();
    client
        .cmd(["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"])
        .is("l");
    server
}

#[test]
fn a_filtered_snapshot_has_functions_only_or_nothing() {
    let folder = Folder::new("export-functions");
    let server = with_key_and_library(&folder);
    for (filter, functions) in [("functions", 1), ("", 0)] {
        let mut asking = asking(&server);
        asking.cmd(["REPLCONF", "rdb-filter-only", filter]).is_ok();
        asking.line("SYNC").is_error("ERR Filtered replica requires EOF capability");
        asking.line("REPLCONF capa eof").is_ok();
        let bytes = snapshot(&mut asking, "SYNC");
        let other = Folder::new(&format!("export-functions-{functions}"));
        let mut loaded = loaded(&other, &bytes);
        loaded.line("DBSIZE").is(0);
        assert_eq!(loaded.line("FUNCTION LIST").items().len(), functions);
    }
}

#[test]
fn psync_tells_the_id_of_the_data_first() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k v").is_ok();
    let id = client.info("master_replid");
    let mut asking = asking(&server);
    asking.line("PSYNC ? x").is_error("ERR value is not an integer or out of range");
    asking.line("PSYNC ? -1 FAILOVER").is_error("ERR PSYNC FAILOVER can't be sent to a master.");
    asking.send(b"PSYNC ? -1\r\n");
    assert_eq!(header(&mut asking), format!("+FULLRESYNC {id} 0"));
    let header = header(&mut asking);
    let bytes = asking.bytes(header[1..].parse().unwrap());
    assert!(bytes.starts_with(b"REDIS"));
    assert!(asking.is_closed());
}

#[test]
fn a_replica_that_wants_more_than_a_snapshot_is_told_that_there_is_no_more() {
    let server = Server::start();
    let mut client = server.client();
    // What a replica sends first.
    client.line("REPLCONF listening-port 6380").is_ok();
    client.line("REPLCONF capa eof capa psync2").is_ok();
    for request in ["PSYNC ? -1", "SYNC"] {
        client
            .line(request)
            .is_error("ERR There is no replication. For a snapshot, send REPLCONF rdb-only 1 before SYNC");
    }
    client.line("REPLCONF rdb-only 1 rdb-only 0").is_ok();
    client
        .line("SYNC")
        .is_error("ERR There is no replication. For a snapshot, send REPLCONF rdb-only 1 before SYNC");
    client.line("REPLICAOF localhost 6379").is_error(
        "ERR There is no replication: this server cannot become a replica, only REPLICAOF NO ONE is known",
    );
    client.line("MULTI").is_ok();
    client.line("SYNC").is_error("ERR Command not allowed inside a transaction");
    client.line("DISCARD").is_ok();
    client
        .line("EVAL \"return redis.pcall('SYNC')\" 0")
        .is_error("ERR This Redis command is not allowed from script");
}

marked!(also_redis: replconf_and_replicaof_answer_as_in_redis);
fn replconf_and_replicaof_answer_as_in_redis() {
    let server = Server::start();
    let mut client = server.client();
    for (line, error) in [
        ("REPLCONF rdb-only", "ERR syntax error"),
        ("REPLCONF rdb-only 2", "ERR value is out of range, value must between 0 and 1"),
        ("REPLCONF rdb-only x", "ERR value is not an integer or out of range"),
        ("REPLCONF listening-port x", "ERR value is not an integer or out of range"),
        ("REPLCONF nosuch 1", "ERR Unrecognized REPLCONF option: nosuch"),
        ("REPLCONF rdb-filter-only keys", "ERR Unsupported rdb-filter-only option: keys"),
        ("REPLICAOF no two", "ERR Invalid master port"),
        ("REPLICAOF localhost 65536", "ERR Invalid master port"),
        ("REPLICAOF NO", "ERR wrong number of arguments for 'replicaof' command"),
        ("PSYNC ?", "ERR wrong number of arguments for 'psync' command"),
        ("SCRIPT DEBUG maybe", "ERR Use SCRIPT DEBUG YES/SYNC/NO"),
    ] {
        client.line(line).is_error(error);
    }
    let long = "a".repeat(256);
    client
        .cmd(["REPLCONF", "ip-address", &long])
        .is_error("ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes");
    for line in [
        "REPLCONF",
        "REPLCONF ip-address 10.0.0.1 listening-port 6380",
        "REPLCONF capa nosuch",
        "REPLCONF rdb-only 1",
        "REPLICAOF NO ONE",
        "SLAVEOF no one",
        "SCRIPT DEBUG no",
    ] {
        client.line(line).is_ok();
    }
    client.cmd(["REPLCONF", "rdb-filter-only", "functions FUNCTIONS"]).is_ok();
    client.cmd(["REPLCONF", "rdb-filter-only", "\"functions"]).is_error("ERR Missing rdb-filter-only values");
    // These have no reply.
    client.send(b"REPLCONF ACK 1\r\nREPLCONF GETACK *\r\nPING\r\n");
    client.reply().is_simple("PONG");
}

#[test]
fn clients_are_served_while_a_snapshot_waits_for_who_does_not_read_it() {
    const VALUE_BYTES: usize = 100_000;
    const KEYS: usize = 600;
    let folder = Folder::new("export-slow");
    let server = folder.serve(&["--save", "", "--rdbcompression", "no"]);
    let mut client = server.client();
    for number in 0..KEYS {
        let value: String = (0..VALUE_BYTES / 10).map(|part| format!("{:010}", part * number)).collect();
        client.cmd(["SET", &format!("k{number}"), &value]).is_ok();
    }
    let used_before: usize = client.info("used_memory").parse().unwrap();
    let mut readers: Vec<_> = (0..5).map(|_| asking(&server)).collect();
    for reader in &mut readers {
        reader.send(b"SYNC\r\n");
    }
    // Each has begun, one after the other, and waits for its client.
    for reader in &mut readers {
        let header = header(reader);
        assert!(header[1..].parse::<usize>().unwrap() > KEYS * VALUE_BYTES);
    }
    wait_until("no snapshot is being written", || client.info("rdb_bgsave_in_progress") == "0");
    let used: usize = client.info("used_memory").parse().unwrap();
    // A piece of the file for each, not the file.
    assert!(used < used_before + 8 * (1 << 20), "{used_before} {used}");
    client.line("SETNX lock me").is(1);
    client.line("BGSAVE").is_simple("Background saving started");
    // One goes, one is killed, and the others get all of it.
    drop(readers.pop());
    let id = client.line("CLIENT LIST").text();
    let killed = id.lines().find(|line| line.contains("cmd=sync")).expect("a client that has sent SYNC");
    let killed = killed.split(' ').next().unwrap().strip_prefix("id=").unwrap();
    client.line(&format!("CLIENT KILL ID {killed}")).is(1);
    drop(readers);
    wait_until("they have gone", || client.info("connected_clients") == "1");
    let bytes = snapshot(&mut asking(&server), "SYNC");
    assert!(bytes.len() > KEYS * VALUE_BYTES);
}

/// How many files without a name a server has open.
fn nameless_files(server: &Server) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", server.process_id())).expect("its files");
    let names = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().ends_with("(deleted)")).count()
}

#[test]
fn snapshots_are_shared_so_that_clients_that_read_slowly_do_not_fill_the_disk() {
    let folder = Folder::new("export-shared");
    let server = folder.serve(&["--save", "", "--rdbcompression", "no"]);
    let mut client = server.client();
    for number in 0..30 {
        client.cmd(["SET", &format!("k{number}"), &"v".repeat(500_000)]).is_ok();
    }
    assert_eq!(nameless_files(&server), 0);
    // They ask at once, and those who ask while a snapshot is written share the next one. If each connected
    // first, they might need more snapshots than there may be, and wait for each other.
    let mut together: Vec<Client> = (0..8).map(|_| asking(&server)).collect();
    together.iter_mut().for_each(|client| client.send(b"SYNC\r\n"));
    let ask = || {
        let mut asking = asking(&server);
        asking.send(b"SYNC\r\n");
        asking
    };
    together.iter_mut().for_each(|client| _ = header(client));
    assert!((1..=3).contains(&nameless_files(&server)));
    let mut later = Vec::new();
    while nameless_files(&server) < 3 {
        let mut client = ask();
        header(&mut client);
        later.push(client);
    }
    // There are as many as there may be. The next client waits until one of them is taken.
    client.line("SET new value").is_ok();
    let mut last = ask();
    let shows_life = last.bytes(1);
    assert_eq!((shows_life.as_slice(), nameless_files(&server)), (&b"\n"[..], 3));
    drop(together);
    let length: usize = header(&mut last)[1..].parse().unwrap();
    let bytes = last.bytes(length);
    assert!(bytes.windows(8).any(|part| part == b"new\x05valu"), "it is no older than the request");
    drop((later, last));
    wait_until("nothing is held", || nameless_files(&server) == 0);
}

#[test]
fn a_snapshot_that_cannot_be_written_is_an_error() {
    let folder = Folder::new("export-failed");
    let server = folder.serve(&["--save", ""]);
    let mut client = server.client();
    client.line("SET k v").is_ok();
    fs::remove_dir_all(folder.path()).unwrap();
    let mut asking = asking(&server);
    asking.send(b"SYNC\r\n");
    assert_eq!(header(&mut asking), "-ERR BGSAVE failed, replication can't continue");
    assert!(asking.is_closed());
    client.line("SET k w").is_ok();
}

#[test]
fn a_snapshot_comes_after_the_one_that_is_being_written() {
    let folder = Folder::new("export-behind");
    let server = folder.serve(&["--save", "", "--enable-debug-command", "yes"]);
    let mut client = server.client();
    for number in 0..200_000 {
        client.send(format!("SET key:{number} v\r\n").as_bytes());
        if number % 1000 == 999 {
            (0..1000).for_each(|_| client.reply().is_ok());
        }
    }
    let mut asking = asking(&server);
    client.line("BGSAVE").is_simple("Background saving started");
    let bytes = snapshot(&mut asking, "SYNC");
    assert!(bytes.len() > 200_000 * 10);
}

marked!(needs_tools: redis_cli_fetches_snapshots);
fn redis_cli_fetches_snapshots() {
    let folder = Folder::new("export-tool");
    let server = with_key_and_library(&folder);
    for (option, keys) in [("--rdb", 1), ("--functions-rdb", 0)] {
        let Some(mut tool) = installed("redis-cli") else { return };
        let file = folder.file(&format!("{keys}.rdb"));
        let output = tool.args(["-p", &server.port().to_string(), option, &file]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let other = Folder::new(&format!("export-tool-{keys}"));
        let mut loaded = loaded(&other, &fs::read(&file).unwrap());
        loaded.line("DBSIZE").is(keys);
        loaded.line("FCALL f 0").is(7);
    }
}

#[test]
fn a_closed_terminal_ends_no_server() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SETNX k v").is(1);
    for _ in 0..3 {
        server.signal("HUP");
        thread::sleep(Duration::from_millis(20));
        client.line("GET k").is("v");
    }
}

#[test]
fn who_asks_for_the_debugger_of_scripts_is_told_that_there_is_none() {
    let mut client = Server::start().into_client();
    for mode in ["YES", "sync"] {
        client
            .line(&format!("SCRIPT DEBUG {mode}"))
            .is_error("ERR There is no debugger of scripts: a script would run for real, at once");
    }
    assert!(matches!(client.line("SCRIPT HELP").reply(), Reply::Array(lines) if lines.len() > 5));
}
