//! Logs that are damaged, incomplete or in use: nothing that stands behind the damage is given up in silence.

use std::fs;
use std::process::Command;

use support::client::request;
use support::folder::Folder;
use support::log::refusal;
use support::log::{ALWAYS, State, files, increment, load, serve, state};
use support::server::{Server, wait_until};

const MANIFEST: &str = "file appendonly.aof.1.incr.aof seq 1 type i\n";

/// A folder with a log that has one increment.
fn with_log(test: &str, log: &[u8]) -> Folder {
    let folder = Folder::new(test);
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", MANIFEST);
    fs::write(increment(&folder, 1), log).unwrap();
    folder
}

/// Keys and their values.
type Pairs = Vec<(String, String)>;

/// The parts of a log that are written by one write each, and the keys that they make.
fn units() -> Vec<(Vec<u8>, Pairs)> {
    let mut units = vec![(request(["SELECT", "0"]), Vec::new())];
    for number in 0..8 {
        // No damaged byte makes one of these names another one.
        let pairs: Pairs = (0..3)
            .map(|key| (format!("{number}{key}:{number}{key}"), format!("value {number} of {key}")))
            .collect();
        let sets = pairs.iter().flat_map(|(key, value)| request(["SET", key, value]));
        let unit: Vec<u8> = match number % 2 {
            0 => request(["MULTI"]).into_iter().chain(sets).chain(request(["EXEC"])).collect(),
            _ => sets.collect(),
        };
        units.push((unit, pairs));
    }
    units
}

/// Whether a state has these keys, in whichever database.
fn has(state: &State, pairs: &[(String, String)]) -> bool {
    pairs.iter().all(|(key, value)| {
        let is_it = |found: &Vec<u8>| found == value.as_bytes();
        (0..16)
            .any(|database| state.get(&(database, key.clone().into_bytes())).is_some_and(|(v, _)| is_it(v)))
    })
}

#[test]
fn no_damaged_byte_gives_up_what_stands_behind_it() {
    let units = units();
    let log: Vec<u8> = units.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
    let folder = with_log("damage-flipped", &log);
    assert!(units.iter().all(|(_, pairs)| has(&load(&folder, "no").unwrap(), pairs)));
    let (mut refused, mut loaded, mut cut) = (0, 0, 0);
    let path = increment(&folder, 1);
    for at in 0..log.len() {
        // A digit becomes another one, a letter changes its case, and anything may become anything.
        let mask = [1, 8, 0x20, 0x80, 9, 3][at % 6];
        let mut damaged = log.clone();
        damaged[at] ^= mask;
        fs::write(&path, &damaged).unwrap();
        let what = format!("byte {at}, {:?} for {:?}", damaged[at] as char, log[at] as char);
        let Ok(state) = load(&folder, "yes") else {
            refused += 1;
            assert_eq!(fs::read(&path).unwrap(), damaged, "{what}: a log that is refused is left as it is");
            continue;
        };
        loaded += 1;
        let mut begin = 0;
        for (bytes, pairs) in &units {
            let end = begin + bytes.len();
            assert!((begin..end).contains(&at) || has(&state, pairs), "{what}: {pairs:?} is lost");
            begin = end;
        }
        let left = fs::read(&path).unwrap();
        if left.len() < damaged.len() {
            cut += 1;
            let kept =
                folder.file(&format!("appendonlydir/appendonly.aof.1.incr.aof.cut-off-at-{}", left.len()));
            assert_eq!([left, fs::read(&kept).unwrap()].concat(), damaged, "{what}");
            fs::remove_file(kept).unwrap();
        }
    }
    println!("{refused} refused, {loaded} loaded, {cut} of them cut off");
    assert!(refused > log.len() / 2 && loaded > log.len() / 5);
}

#[test]
fn no_damaged_bit_of_the_list_gives_up_a_file() {
    let folder = Folder::new("damage-list-flipped");
    let server = serve(&folder, &[]);
    server.client().line("SET in-increment 1").is_ok();
    drop(server);
    let path = folder.file("appendonlydir/appendonly.aof.manifest");
    let list = fs::read(&path).unwrap();
    let expected = load(&folder, "no").unwrap();
    let log = fs::read(increment(&folder, 1)).unwrap();
    let mut refused = 0;
    for at in 0..list.len() {
        for bit in [0, 3, 5] {
            let mut damaged = list.clone();
            damaged[at] ^= 1 << bit;
            fs::write(&path, &damaged).unwrap();
            match load(&folder, "yes") {
                Ok(state) => assert!(state == expected, "byte {at}, bit {bit}"),
                Err(_) => refused += 1,
            }
            assert_eq!(fs::read(increment(&folder, 1)).unwrap(), log, "byte {at}, bit {bit}");
            assert!(
                folder.path().join("appendonlydir/appendonly.aof.1.base.rdb").exists(),
                "byte {at}, bit {bit}"
            );
        }
    }
    println!("{refused} of {} refused", 3 * list.len());
}

#[test]
fn what_no_interrupted_write_can_have_left_is_refused_with_its_place() {
    let (multi, exec, set) = (request(["MULTI"]), request(["EXEC"]), request(["SET", "k", "v"]));
    let long = request(["SET", "long", &"x".repeat(300)]);
    let swallowing = String::from_utf8(long.clone()).unwrap().replace("$300", "$900").into_bytes();
    let in_unit = [&multi[..], &swallowing, &exec].concat();
    for (log, why) in [
        (
            [&multi[..], &set, &request(["EXED"]), &set].concat(),
            "Unknown command 'EXED' reading the append only",
        ),
        ([&multi[..], &set, &request(["EXED"])].concat(), "at offset 42"),
        ([&multi[..], &set, &multi, &set, &exec].concat(), "MULTI within MULTI"),
        ([&multi[..], &request(["SET", "k"])].concat(), "Wrong number of arguments for command 'SET'"),
        ([&multi[..], &request(["SHUTDOW"])].concat(), "Unknown command 'SHUTDOW' reading the append only"),
        ([&swallowing[..], &set, &set].concat(), "there is another one in it, at offset 331"),
        (in_unit, "the request at offset 15 says that it is longer than the file"),
        ([&set[..], b"*1\r\n$4\r\nPI", &[0; 5]].concat(), "in the request at offset 27"),
    ] {
        let folder = with_log("damage-refused", &log);
        let answered = load(&folder, "yes").unwrap_err();
        assert!(answered.contains(why), "{answered}");
        assert!(answered.contains("appendonly.aof.1.incr.aof"), "{answered}");
        assert_eq!(fs::read(increment(&folder, 1)).unwrap(), log);
        assert_eq!(files(&folder).len(), 2);
    }
}

#[test]
fn a_torn_value_with_the_text_of_a_request_is_cut_off() {
    let before = request(["SET", "before", "1"]);
    let text = String::from_utf8(request(["PING"])).unwrap();
    // The beginning of a request, and whole ones.
    for text in [format!("\r\n{text}"), format!("\r\n*2\r\n$4\r\nPING\r\n$30000\r\n{text}{text}")] {
        let value = format!("x{text}x").repeat(2000);
        let torn = request(["SET", "torn", &value]);
        let log = [&before[..], &torn[..torn.len() - 6]].concat();
        let folder = with_log("damage-torn-text", &log);
        let found = load(&folder, "yes").unwrap();
        assert!(
            has(&found, &[("before".into(), "1".into())]) && found.len() == 2,
            "a key, and the libraries"
        );
    }
}

#[test]
fn what_is_cut_off_is_kept_beside_the_log() {
    let half = [request(["MULTI"]), request(["SET", "half", "1"])].concat();
    let log = [request(["SET", "whole", "1"]), half.clone()].concat();
    let folder = with_log("damage-cut", &log);
    for (times, name) in [(1, "cut-off-at-31"), (2, "cut-off-at-31-2")] {
        fs::write(increment(&folder, 1), &log).unwrap();
        let server = serve(&folder, &[]);
        server.wait_for_output("Truncating the AOF appendonly.aof.1.incr.aof at offset 31, keeping ");
        server.wait_for_output(&format!("appendonly.aof.1.incr.aof.{name}"));
        let mut client = server.client();
        client.line("EXISTS whole half").is(1);
        let kept = folder.file(&format!("appendonlydir/appendonly.aof.1.incr.aof.{name}"));
        assert_eq!(fs::read(kept).unwrap(), half);
        assert_eq!(files(&folder).len(), 2 + times);
    }
}

#[test]
fn files_without_their_list_are_left_alone() {
    let folder = Folder::new("damage-list");
    let server = serve(&folder, &[]);
    server.client().line("SET k v").is_ok();
    drop(server);
    let manifest = folder.file("appendonlydir/appendonly.aof.manifest");
    let list = fs::read(&manifest).unwrap();
    fs::remove_file(&manifest).unwrap();
    let contents = || {
        files(&folder)
            .iter()
            .map(|name| fs::read(folder.file(&format!("appendonlydir/{name}"))).unwrap())
            .collect::<Vec<_>>()
    };
    let before = (files(&folder), contents());
    let why = refusal(&folder, ALWAYS);
    assert!(why.starts_with("keyfast: There are files of a log (appendonly.aof.1.base.rdb, "), "{why}");
    assert!(why.contains("appendonly.aof.manifest") && why.contains("restore it"), "{why}");
    // Nor does a server without a log put another one in their place.
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client();
    client.line("CONFIG SET appendonly yes").is_error(
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. Check \
         server logs.",
    );
    client.line("BGREWRITEAOF").is_error(REWRITE_FAILED);
    server.wait_for_output("There are files of a log");
    drop(server);
    assert!((files(&folder), contents()) == before, "nothing was changed");
    fs::write(&manifest, list).unwrap();
    serve(&folder, &[]).client().line("GET k").is("v");
}

marked!(needs_tools: a_server_that_was_stopped_at_its_first_rewrite_starts_again);
fn a_server_that_was_stopped_at_its_first_rewrite_starts_again() {
    for manifest in [None, Some("# Nothing has been logged yet.\n")] {
        let folder = with_log("damage-first", b"");
        let path = folder.file("appendonlydir/appendonly.aof.manifest");
        match manifest {
            None => fs::remove_file(path).unwrap(),
            Some(text) => fs::write(path, text).unwrap(),
        }
        let mut client = serve(&folder, &[]).into_client();
        client.line("SET k v").is_ok();
        let expected = state(&mut client);
        drop(client);
        assert!(state(&mut serve(&folder, &[]).into_client()) == expected);
    }
    let folder = with_log("damage-first", b"");
    folder.write("appendonlydir/appendonly.aof.manifest", "# Nothing has been logged yet.\n");
    if let Some(redis) = Server::start_redis(&[&["--dir", &folder.file("")], ALWAYS].concat()) {
        redis.client().line("SET k v").is_ok();
    }
}

const REWRITE_FAILED: &str =
    "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.";

marked!(also_redis: a_rewrite_where_nothing_can_be_written_is_answered_with_the_error);
fn a_rewrite_where_nothing_can_be_written_is_answered_with_the_error() {
    let folder = Folder::new("damage-unwritable");
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    let directory = folder.write("appendonlydir", "a file in its place");
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
    client.line("BGREWRITEAOF").is_error(REWRITE_FAILED);
    assert_eq!(client.info("aof_last_bgrewrite_status"), "err");
    fs::remove_file(directory).unwrap();
    client.line("BGREWRITEAOF").is_simple("Background append only file rewriting started");
    wait_until("the rewrite ends", || client.info("aof_rewrite_in_progress") == "0");
    assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
}

marked!(also_redis: a_rewrite_that_is_given_up_with_the_log_is_no_failure);
fn a_rewrite_that_is_given_up_with_the_log_is_no_failure() {
    let folder = Folder::new("damage-given-up");
    let mut client = Server::start_with(&["--dir", &folder.file("")]).into_client();
    let keys = 40_000;
    let commands: Vec<u8> =
        (0..keys).flat_map(|number| request(["SET", &format!("key:{number}"), "v"])).collect();
    client.send(&commands);
    (0..keys).for_each(|_| client.reply().is_ok());
    for _ in 0..3 {
        client.send(b"CONFIG SET appendonly yes\r\nCONFIG SET appendonly no\r\n");
        (0..2).for_each(|_| client.reply().is_ok());
        wait_until("the rewrite ends", || client.info("aof_rewrite_in_progress") == "0");
        assert_eq!(client.info("aof_last_bgrewrite_status"), "ok");
    }
}

#[test]
fn two_servers_do_not_keep_one_log() {
    let folder = Folder::new("damage-locked");
    let server = serve(&folder, &[]);
    server.client().line("SET k v").is_ok();
    let why = refusal(&folder, ALWAYS);
    assert!(why.starts_with("keyfast: Another server keeps its log in "), "{why}");
    let other = Server::start_with(&["--dir", &folder.file("")]);
    other.client().line("CONFIG SET appendonly yes").is_error(
        "ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF. Check \
         server logs.",
    );
    other.client().line("BGREWRITEAOF").is_error(REWRITE_FAILED);
    other.wait_for_output("Another server keeps its log in ");
    // A log elsewhere is another one, and one that was ended is free.
    serve(&folder, &["--appenddirname", "elsewhere"]).client().line("DBSIZE").is(0);
    server.client().line("CONFIG SET appendonly no").is_ok();
    let is_taken = || other.client().line("CONFIG SET appendonly yes").text() == "OK";
    wait_until("the log is free", is_taken);
    drop((server, other));
    serve(&folder, &[]).client().line("PING").is_simple("PONG");
}

#[test]
fn temporary_files_of_servers_that_ended_are_tidied_up() {
    let folder = Folder::new("damage-temporary");
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (dead, alive) = (ended.id(), std::process::id());
    let left_over = [format!("temp-{dead}.rdb"), format!("temp-rewriteaof-bg-{dead}.aof")];
    let others =
        [format!("temp-{alive}.rdb"), "temp-x.rdb".into(), "temp-1.txt".into(), "my-temp-1.rdb".into()];
    for name in left_over.iter().chain(&others) {
        folder.write(name, "half a snapshot");
    }
    let server = Server::start_with(&["--dir", &folder.file("")]);
    server.wait_for_output(&format!("Removed temp-{dead}.rdb, a temporary file of a server that has ended"));
    let mut names = folder.names();
    names.sort();
    let mut expected = others.to_vec();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_snapshot_beyond_the_limit_of_file_sizes_is_an_error_and_no_end() {
    let folder = Folder::new("damage-size");
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let limit = |bytes: u64| {
        let limits = Some((bytes, rlimit::INFINITY));
        rlimit::prlimit(server.process_id() as i32, rlimit::Resource::FSIZE, limits, None).unwrap();
    };
    let mut client = server.client();
    let value: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
    client.cmd(["SET", "k", &value]).is_ok();
    limit(10_000);
    client.line("SAVE").is_error("ERR");
    client.cmd(["GET", "k"]).is(value.as_str());
    server.wait_for_output("Write error while saving DB to the disk: File too large");
    limit(rlimit::INFINITY);
    client.line("SAVE").is_ok();
    assert_eq!(folder.names(), ["dump.rdb"]);
}
