//! What outlives the server: snapshots, saved and loaded, by others as well.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use keyfast::internals::persistence::rdb::{Item, Reader};
use keyfast::internals::values::Limits;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::refused;
use support::server::{Server, SetOnDrop, program, wait_until};
use support::tools::installed;

/// A server whose files are in a folder.
fn serve(folder: &Folder, options: &[&str]) -> Server {
    Server::start_with(&[&["--dir", &folder.file("")], options].concat())
}

/// The file of snapshots in a folder.
fn dump(folder: &Folder) -> PathBuf {
    folder.path().join("dump.rdb")
}

type Keys = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// The keys of a snapshot.
fn read(path: &Path) -> Keys {
    let file = fs::File::open(path).expect("a snapshot");
    let mut reader = Reader::open(BufReader::new(file), true).expect("a snapshot");
    let mut keys = Keys::new();
    while let Some(item) = reader.next_item(&Limits::default()).unwrap_or_else(|error| panic!("{error}")) {
        if let Item::Key(key) = item {
            let twice = keys.insert(
                (key.database, key.key.to_vec()),
                key.value.content.bytes().expect("a string").to_vec(),
            );
            assert_eq!(twice, None, "a key is there twice");
        }
    }
    keys
}

/// Sends many commands at once, and reads as many replies.
fn pipeline<A: AsRef<[u8]>>(client: &mut Client, commands: impl Iterator<Item = Vec<A>>) {
    let mut commands = commands.peekable();
    while commands.peek().is_some() {
        let (mut bytes, mut count) = (Vec::new(), 0);
        for command in commands.by_ref().take(1000) {
            bytes.extend(request(command));
            count += 1;
        }
        client.send(&bytes);
        (0..count).for_each(|_| client.reply().is_ok());
    }
}

fn wait_for_save(client: &mut Client) {
    wait_until("the snapshot ends", || client.info("rdb_bgsave_in_progress") == "0");
}

/// Has `redis-check-rdb` accept a file, where it is installed.
fn check(path: &Path) {
    let Some(mut program) = installed("redis-check-rdb") else { return };
    let output = program.arg(path).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("RDB looks OK!"), "{text}");
}

/// Writes something of everything that can be saved.
fn fill(client: &mut Client) {
    client.line("SET text hello").is_ok();
    client.line("SET number -12345").is_ok();
    client.line("SET large 99999999999999").is_ok();
    client.cmd(["SET", "repeated", &"abc".repeat(1000)]).is_ok();
    client.cmd([&b"SET"[..], &[0, 255, 10], &(0..=255).collect::<Vec<u8>>()]).is_ok();
    client.cmd(["SET", &"k".repeat(300), ""]).is_ok();
    client.line("SET mortal v EX 10000").is_ok();
    client.line("SELECT 9").is_ok();
    client.line("SET text nine").is_ok();
    client.line("SELECT 0").is_ok();
    let code = "#!lua name=mylib\nredis.register_function('answer', function() return 42 end)";
    client.cmd(["FUNCTION", "LOAD", code]).is("mylib");
}

/// Looks whether it is there.
#[track_caller]
fn find_all(client: &mut Client) {
    client.line("GET text").is("hello");
    client.line("GET number").is("-12345");
    client.line("GET large").is("99999999999999");
    client.line("GET repeated").is("abc".repeat(1000).as_str());
    client.cmd([&b"GET"[..], &[0, 255, 10]]).is(&*(0..=255).collect::<Vec<u8>>());
    client.cmd(["GET", &"k".repeat(300)]).is("");
    assert!((9000..=10_000).contains(&client.line("TTL mortal").integer()));
    client.line("DBSIZE").is(7);
    client.line("SELECT 9").is_ok();
    client.line("GET text").is("nine");
    client.line("SELECT 0").is_ok();
    client.line("FCALL answer 0").is(42);
}

marked!(also_redis needs_tools: what_was_saved_is_there_after_a_crash);
fn what_was_saved_is_there_after_a_crash() {
    let folder = Folder::new("crash");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    fill(&mut client);
    assert_eq!(client.info("rdb_changes_since_last_save"), "9");
    client.line("SAVE").is_ok();
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
    client.line("SET too late").is_ok();
    assert_eq!(client.info("rdb_changes_since_last_save"), "1");
    drop(server);
    check(&dump(&folder));
    assert_eq!(folder.names(), ["dump.rdb"]);
    let mut client = serve(&folder, &[]).into_client();
    find_all(&mut client);
    assert_eq!(client.info("rdb_last_load_keys_loaded"), "8");
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
}

marked!(also_redis needs_tools: what_one_server_saves_the_other_loads);
fn what_one_server_saves_the_other_loads() {
    for (compression, checksum) in [("yes", "yes"), ("no", "no")] {
        let options = ["--rdbcompression", compression, "--rdbchecksum", checksum];
        let folder = Folder::new("exchange");
        let server = serve(&folder, &options);
        let mut client = server.client();
        fill(&mut client);
        client.line("BGSAVE").is_simple("Background saving started");
        wait_for_save(&mut client);
        drop(server);
        check(&dump(&folder));
        let Some(redis) = Server::start_redis(&[&["--dir", &folder.file("")], &options[..]].concat()) else {
            return;
        };
        let mut client = redis.client();
        find_all(&mut client);
        client.line("CONFIG SET maxmemory-policy allkeys-lfu").is_ok();
        client.line("SET often used").is_ok();
        client.line("SAVE").is_ok();
        drop(redis);
        let mut client = serve(&folder, &["--maxmemory-policy", "allkeys-lfu"]).into_client();
        client.line("OBJECT FREQ often").is(5);
        client.line("DEL often").is(1);
        find_all(&mut client);
    }
}

marked!(also_redis: an_end_in_order_saves_where_snapshots_are_configured_and_only_there);
fn an_end_in_order_saves_where_snapshots_are_configured_and_only_there() {
    for (options, end, is_saved) in [
        (&["--save", "3600", "1"][..], "SHUTDOWN", true),
        (&["--save", "3600", "1"], "SHUTDOWN NOSAVE", false),
        (&["--save", "3600", "1"], "SIGTERM", true),
        (&[], "SHUTDOWN", false),
        (&[], "SHUTDOWN SAVE", true),
        (&[], "SIGTERM", false),
        (&["--shutdown-on-sigterm", "save"], "SIGTERM", true),
        (&["--save", "3600", "1", "--shutdown-on-sigterm", "nosave", "now"], "SIGTERM", false),
        (&["--save", "3600", "1", "--shutdown-on-sigterm", "nosave"], "SIGINT", true),
        (&["--shutdown-on-sigint", "save", "force"], "SIGINT", true),
    ] {
        let folder = Folder::new("end");
        let mut server = serve(&folder, options);
        let mut client = server.client();
        client.line("SET k v").is_ok();
        match end {
            "SIGTERM" => server.signal("TERM"),
            "SIGINT" => server.signal("INT"),
            _ => client.send(format!("{end}\r\n").as_bytes()),
        }
        assert_eq!(server.wait_for_end().code(), Some(0), "{end}");
        assert!(client.is_closed(), "{end}");
        let expected: &[&str] = if is_saved { &["dump.rdb"] } else { &[] };
        assert_eq!(folder.names(), expected, "{end} with {options:?}");
    }
}

marked!(also_redis: what_was_acknowledged_before_the_end_is_there_after_it);
fn what_was_acknowledged_before_the_end_is_there_after_it() {
    const CLIENTS: usize = 4;
    let folder = Folder::new("acknowledged");
    let mut expected = [0; CLIENTS];
    for round in 0..5 {
        let mut server = serve(&folder, &["--save", "3600", "1"]);
        // The end may come before any reply but the first.
        let begun = AtomicUsize::new(0);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (mut client, begun) = (server.client(), &begun);
                    scope.spawn(move || {
                        let key = format!("counter:{number}");
                        let first = client.cmd(["INCR", &key]).integer();
                        begun.fetch_add(1, Ordering::Relaxed);
                        let mut last = first;
                        while client.try_send(&request(["INCR", &key])).is_ok() {
                            let Ok(reply) = client.try_reply_bytes() else { break };
                            last = String::from_utf8(reply).unwrap()[1..].trim().parse().unwrap();
                        }
                        (first, last)
                    })
                })
                .collect();
            while begun.load(Ordering::Relaxed) < CLIENTS
                && !workers.iter().any(|worker| worker.is_finished())
            {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(10 * round));
            server.signal("TERM");
            for (worker, expected) in workers.into_iter().zip(&mut expected) {
                let (first, last) = worker.join().unwrap();
                assert!(first - 1 - *expected <= 1 && first > *expected, "{first} after {expected}");
                *expected = last;
            }
        });
        assert_eq!(server.wait_for_end().code(), Some(0));
    }
}

marked!(needs_tools: a_snapshot_shows_one_moment);
fn a_snapshot_shows_one_moment() {
    const ACCOUNTS: usize = 100;
    const SNAPSHOTS: usize = 15;
    let folder = Folder::new("moment");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    // So many others that a snapshot takes its time.
    pipeline(
        &mut client,
        (0..30_000).map(|number| vec!["SET".to_owned(), format!("other:{number}"), "v".repeat(50)]),
    );
    pipeline(
        &mut client,
        (0..ACCOUNTS).map(|number| vec!["SET".to_owned(), format!("account:{number}"), "100".into()]),
    );
    let is_over = AtomicBool::new(false);
    let mut sums = Vec::new();
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        for seed in 0..3 {
            let (mut client, is_over) = (server.client(), &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let [from, to] = [0; 2].map(|_| format!("account:{}", random.usize(..ACCOUNTS)));
                    let amount = random.u8(..).to_string();
                    client.send(
                        &[
                            request(["MULTI"]),
                            request(["DECRBY", &from, &amount]),
                            request(["INCRBY", &to, &amount]),
                            request(["EXEC"]),
                        ]
                        .concat(),
                    );
                    (0..4).for_each(|_| drop(client.reply()));
                }
            });
        }
        for _ in 0..SNAPSHOTS {
            client.line("BGSAVE").is_simple("Background saving started");
            wait_for_save(&mut client);
            assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
            let keys = read(&dump(&folder));
            assert_eq!(keys.len(), 30_000 + ACCOUNTS);
            let accounts = keys.iter().filter(|((_, key), _)| key.starts_with(b"account:"));
            let amount = |value: &[u8]| std::str::from_utf8(value).unwrap().parse::<i64>().unwrap();
            sums.push(accounts.map(|(_, value)| amount(value)).sum::<i64>());
        }
    });
    assert_eq!(sums, [100 * ACCOUNTS as i64; SNAPSHOTS]);
    check(&dump(&folder));
}

#[test]
fn a_server_that_is_killed_while_it_saves_leaves_a_whole_file_200_times() {
    const KEYS: usize = 300;
    let folder = Folder::new("killed");
    let mut random = fastrand::Rng::with_seed(7);
    let (mut generation, mut saved) = (0_u64, 0_u64);
    let mut temporary_files = 0;
    for round in 0..200 {
        let server = serve(&folder, &["--rdbcompression", "no"]);
        let mut client = server.client();
        if generation > 0 {
            let found = client.line("GET key:0").text();
            let found: u64 = found.split('.').next().unwrap().parse().unwrap();
            assert!(
                (saved..=generation).contains(&found),
                "round {round}: {saved} was saved, {found} is there"
            );
        }
        // A file of some 300 KB, with what each snapshot must have the same in all keys.
        let mut commands = Vec::new();
        for next in generation + 1..generation + 40 {
            let value = format!("{next}.{}", "x".repeat(1000));
            let pairs = (0..KEYS).flat_map(|number| [format!("key:{number}"), value.clone()]);
            commands.extend(request(["MSET".to_owned()].into_iter().chain(pairs)));
            commands.extend(request([if next % 2 == 0 { "SAVE" } else { "BGSAVE" }]));
        }
        let first = generation + 1;
        let mut writer = server.client();
        let mut sender = writer.stream().try_clone().expect("a second handle");
        let mut replies = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                // The server is killed meanwhile.
                let _ = sender.write_all(&commands);
            });
            for _ in 0..random.usize(..60) {
                replies.push(writer.reply_bytes());
            }
            if round % 2 == 0 {
                // Half of the rounds end in the middle of a snapshot, if one is still to come.
                let last = format!("{}.", generation + 39);
                let is_saving = || folder.names().iter().any(|name| name != "dump.rdb");
                wait_until("it saves", || is_saving() || client.line("GET key:0").text().starts_with(&last));
            }
            drop(server);
        });
        while let Ok(reply) = writer.try_reply_bytes() {
            replies.push(reply);
        }
        for (number, reply) in (0..).zip(&replies) {
            let of = first + number / 2;
            if number % 2 == 1 && of % 2 == 0 && reply == b"+OK\r\n" {
                saved = of;
            }
        }
        generation += 40;
        let temporary = folder.names().into_iter().filter(|name| name != "dump.rdb").collect::<Vec<_>>();
        temporary_files += temporary.len();
        temporary.iter().for_each(|name| fs::remove_file(folder.file(name)).unwrap());
        if saved == 0 {
            generation = 0;
            let _ = fs::remove_file(dump(&folder));
            continue;
        }
        let values: Vec<Vec<u8>> = read(&dump(&folder)).into_values().collect();
        assert_eq!(values.len(), KEYS, "round {round}");
        assert!(values.iter().all(|value| *value == values[0]), "round {round}: not one moment");
    }
    assert!(saved > 0 && temporary_files > 0, "it was never killed while it saved");
}

#[test]
fn snapshots_come_by_themselves() {
    let folder = Folder::new("points");
    let server = serve(&folder, &["--save", "1", "2"]);
    let mut client = server.client();
    client.line("SET a 1").is_ok();
    thread::sleep(Duration::from_millis(2300));
    assert!(!dump(&folder).exists(), "one change is not enough");
    client.line("SET b 1").is_ok();
    server.wait_for_output("2 changes in 1 seconds. Saving...");
    server.wait_for_output("Background saving terminated with success");
    assert_eq!(read(&dump(&folder)).len(), 2);
    assert_eq!(client.info("rdb_saves"), "1");
    client.line("FLUSHALL").is_ok();
    wait_until("what was flushed is in no snapshot", || read(&dump(&folder)).is_empty());
}

#[test]
fn a_snapshot_of_what_is_flushed_meanwhile_ends_without_effect() {
    let folder = Folder::new("flushed");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    pipeline(
        &mut client,
        (0..50_000).map(|number| vec!["SET".to_owned(), format!("key:{number}"), "v".repeat(50)]),
    );
    client.send(b"BGSAVE\r\nFLUSHALL\r\n");
    client.reply().is_simple("Background saving started");
    client.reply().is_ok();
    wait_for_save(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
    client.line("BGSAVE").is_simple("Background saving started");
    wait_for_save(&mut client);
    assert!(read(&dump(&folder)).is_empty());
}

marked!(also_redis: who_asks_for_snapshots_is_told_how_it_goes);
fn who_asks_for_snapshots_is_told_how_it_goes() {
    let folder = Folder::new("asking");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    let started = client.line("LASTSAVE").integer();
    client.line("BGSAVE LATER").is_error("ERR syntax error");
    client.line("BGSAVE SCHEDULE NOW").is_error("ERR syntax error");
    client.line("MULTI").is_ok();
    client.line("SAVE").is_error("ERR Command not allowed inside a transaction");
    client.line("DISCARD").is_ok();
    client.line("MULTI").is_ok();
    client.line("SET k v").is_simple("QUEUED");
    client.line("BGSAVE").is_simple("QUEUED");
    client.line("SET k w").is_simple("QUEUED");
    let replies = client.line("EXEC").reply().to_string();
    assert_eq!(replies, r#"[OK, Background saving scheduled, OK]"#);
    wait_until("what was scheduled comes", || client.info("rdb_saves") == "1");
    wait_for_save(&mut client);
    assert_eq!(read(&dump(&folder))[&(0, b"k".to_vec())], b"w");
    thread::sleep(Duration::from_millis(1100));
    client.line("BGSAVE SCHEDULE").is_simple("Background saving started");
    wait_for_save(&mut client);
    assert!(client.line("LASTSAVE").integer() > started);
    // INFO has whole seconds, one of which may have begun meanwhile.
    let took_s: u64 = client.info("rdb_last_bgsave_time_sec").parse().unwrap();
    assert!(took_s <= 1, "{took_s} s for one key");
    assert_eq!(client.info("rdb_saves"), "2");
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(client.info("rdb_saves"), "0");
}

#[test]
fn where_nothing_can_be_saved_nothing_more_is_written() {
    const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to \
        persist to disk. Commands that may modify the data set are disabled, because this instance is \
        configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error \
        option). Please check the Redis logs for details about the RDB error.";
    let folder = Folder::new("misconf");
    let mut server = serve(&folder, &["--save", "3600", "1", "--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("SET k v").is_ok();
    fs::remove_dir(folder.path()).unwrap();
    client.line("SAVE").is_error("ERR");
    server.wait_for_output("Failed opening the temp RDB file temp-");
    assert_eq!(client.info("rdb_last_bgsave_status"), "ok");
    client.line("BGSAVE").is_simple("Background saving started");
    wait_for_save(&mut client);
    assert_eq!(client.info("rdb_last_bgsave_status"), "err");
    client.line("SET k w").is_error(MISCONF);
    client.line("PING").is_error(MISCONF);
    client.line("FLUSHALL").is_error(MISCONF);
    client.line("GET k").is("v");
    client.line("PUBLISH channel message").is(0);
    client.line("EVAL \"return 1\" 0").is(1);
    assert!(client.line("EVAL \"return redis.call('SET', 'k', 'w')\" 0").text().starts_with(MISCONF));
    client.cmd(["EVAL", "#!lua\nreturn 1", "0"]).is_error(MISCONF);
    client.cmd(["EVAL", "#!lua flags=no-writes\nreturn 1", "0"]).is(1);
    client.line("MULTI").is_ok();
    client.line("SET k w").is_error(MISCONF);
    client.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    client.line("SHUTDOWN").is_error("ERR Errors trying to SHUTDOWN. Check logs.");
    server.signal("TERM");
    server.wait_for_output("SIGTERM scheduling shutdown...");
    let ends = || server.output().matches("Errors trying to shut down the server").count();
    wait_until("it says that it cannot end", || ends() == 2);
    client.line("GET k").is("v");
    client.line("CONFIG SET stop-writes-on-bgsave-error no").is_ok();
    client.line("SET k w").is_ok();
    client.line("CONFIG SET stop-writes-on-bgsave-error yes save \"\"").is_ok();
    client.line("SET k x").is_ok();
    client.line("CONFIG SET save \"3600 1\"").is_ok();
    client.line("SET k y").is_error(MISCONF);
    fs::create_dir(folder.path()).unwrap();
    // A snapshot that is due may be on its way already.
    wait_until("a snapshot begins", || client.line("BGSAVE").text() == "Background saving started");
    wait_for_save(&mut client);
    client.line("SET k z").is_ok();
    client.send(b"SHUTDOWN\r\n");
    assert_eq!(server.wait_for_end().code(), Some(0));
    assert_eq!(read(&dump(&folder))[&(0, b"k".to_vec())], b"z");
}

marked!(also_redis: who_insists_ends_a_server_that_cannot_save);
fn who_insists_ends_a_server_that_cannot_save() {
    let folder = Folder::new("insisting");
    let mut server = serve(&folder, &["--save", "3600", "1"]);
    let mut client = server.client();
    fs::remove_dir(folder.path()).unwrap();
    client.line("SHUTDOWN").is_error("ERR Errors trying to SHUTDOWN. Check logs.");
    client.send(b"SHUTDOWN FORCE\r\n");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

/// Starts a server that must refuse to; answers what it says.
fn refusal(folder: &Folder) -> String {
    let before = fs::read(dump(folder)).unwrap();
    let mut command = Command::new(program());
    command.args(["--port", "0", "--bind", "127.0.0.1", "--dir", &folder.file(""), "--save", "1 1"]);
    let said = refused(&mut command);
    assert_eq!(fs::read(dump(folder)).unwrap(), before, "nothing is overwritten");
    said
}

#[test]
fn a_file_that_cannot_be_loaded_is_left_alone() {
    let folder = Folder::new("refused");
    let path = dump(&folder);
    let complaint =
        |why: &str| format!("keyfast: Fatal error loading the DB {}: {why}. Exiting.\n", path.display());
    fs::write(&path, b"REDIS0010\xfe\x00\x1c\x08my array\x00\xff\0\0\0\0\0\0\0\0").unwrap();
    let array = "key 'my array' in database 0 is an array, which is not supported (offset 11)";
    assert_eq!(refusal(&folder), complaint(array));
    fs::write(&path, b"REDIS0010\xfe\x20\x00\x01k\x01v\xff\0\0\0\0\0\0\0\0").unwrap();
    let databases = "Data file was created with a Redis server configured to handle more than 16 databases";
    assert_eq!(refusal(&folder), complaint(databases));
    fs::write(&path, b"REDIS0010\x00\x01k\x01v\x00\x01k\x01w\xff\0\0\0\0\0\0\0\0").unwrap();
    assert_eq!(refusal(&folder), complaint("RDB has duplicated key 'k' in DB 0"));
    fs::write(&path, b"REDIS0010\x00\x01k\x01").unwrap();
    assert_eq!(refusal(&folder), complaint("Unexpected EOF reading RDB file (offset 13)"));
    fs::write(&path, b"REDIS0010\xf5\x03abc\xff\0\0\0\0\0\0\0\0").unwrap();
    assert_eq!(refusal(&folder), complaint("ERR Missing library metadata"));
    fs::write(&path, b"no snapshot at all").unwrap();
    assert_eq!(refusal(&folder), complaint("Wrong signature trying to load DB from file"));
}

/// A file that Valkey 9.1.2 wrote: with `appendonly yes`, of strings and a library, by `SAVE`; the same and a
/// hash one field of which expires; of one node of a cluster. Their keys are named below.
fn from_valkey(name: &str, folder: &Folder, to: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/snapshots").join(name);
    fs::copy(path, folder.path().join(to)).unwrap();
}

#[track_caller]
fn find_those_of_valkey(client: &mut Client) {
    client.line("GET text").is("hello");
    client.line("GET number").is("-12345");
    client.line("GET large").is("99999999999999");
    client.line("GET repeated").is("abc".repeat(100).as_str());
    client.line("PEXPIRETIME mortal").is(4_102_444_800_000);
    client.line("DBSIZE").is(5);
    client.line("SELECT 9").is_ok();
    client.line("GET text").is("nine");
    client.line("SELECT 0").is_ok();
    client.line("FCALL answer 0").is(42);
}

#[test]
fn what_valkey_9_saves_is_loaded() {
    let folder = Folder::new("valkey");
    from_valkey("valkey-9.1.2-strings.rdb", &folder, "dump.rdb");
    let server = serve(&folder, &["--maxmemory-policy", "allkeys-lfu"]);
    server.wait_for_output("Loading RDB produced by version 9.1.2");
    let mut client = server.client();
    find_those_of_valkey(&mut client);
    client.line("SAVE").is_ok();
    assert!(fs::read(dump(&folder)).unwrap().starts_with(b"REDIS0010"), "what is written is for both");
    drop(server);
    from_valkey("valkey-9.1.2-cluster.rdb", &folder, "dump.rdb");
    let mut client = serve(&folder, &[]).into_client();
    assert_eq!(client.line("MGET a b").reply().to_string(), r#"["1", "2"]"#);
    drop(client);
    from_valkey("valkey-9.1.2-hash.rdb", &folder, "dump.rdb");
    let mut client = serve(&folder, &[]).into_client();
    client.line("HGET myhash f").is("v");
    client.line("HPEXPIRETIME myhash FIELDS 1 f").is(Reply::Array(vec![1_895_269_923_575.into()]));
    client.line("GET after").is("rewrite");
}

#[test]
fn the_log_of_valkey_9_goes_on_here() {
    let folder = Folder::new("valkey-log");
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    from_valkey("valkey-9.1.2-strings.rdb", &folder, "appendonlydir/appendonly.aof.2.base.rdb");
    folder.write(
        "appendonlydir/appendonly.aof.manifest",
        "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.2.incr.aof seq 2 type i\n",
    );
    let log = [request(["SELECT", "9"]), request(["SET", "text", "ninety"])].concat();
    fs::write(folder.file("appendonlydir/appendonly.aof.2.incr.aof"), log).unwrap();
    let mut client = serve(&folder, &["--appendonly", "yes"]).into_client();
    client.line("SELECT 9").is_ok();
    client.line("GET text").is("ninety");
    client.line("SET text nine").is_ok();
    client.line("SELECT 0").is_ok();
    find_those_of_valkey(&mut client);
}

#[test]
fn keys_that_expired_meanwhile_are_not_loaded() {
    let folder = Folder::new("expired");
    let server = serve(&folder, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    client.line("SET mortal v PX 1").is_ok();
    client.line("SET stays v").is_ok();
    client.line("SAVE").is_ok();
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    client.line("DBSIZE").is(1);
    assert_eq!(client.info("rdb_last_load_keys_expired"), "1");
    assert_eq!(client.info("expired_keys"), "0");
}

#[test]
fn debug_reload_saves_and_loads() {
    let folder = Folder::new("reload");
    let server = serve(&folder, &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.line("DEBUG RELOAD NOSAVE").is_error("ERR Error trying to load the RDB dump, check server logs.");
    fill(&mut client);
    client.line("DEBUG RELOAD").is_ok();
    find_all(&mut client);
    client.line("SET text changed").is_ok();
    client.line("SET more v").is_ok();
    let refused = "ERR Error trying to load the RDB dump, check server logs.";
    client.line("DEBUG RELOAD NOSAVE NOFLUSH").is_error(refused);
    client.line("DEBUG RELOAD NOSAVE NOFLUSH MERGE").is_ok();
    client.line("DEL more").is(1);
    find_all(&mut client);
    client.line("SET more v").is_ok();
    client.line("DEBUG RELOAD NOSAVE").is_ok();
    find_all(&mut client);
    client
        .line("DEBUG RELOAD ALL")
        .is_error("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
}

marked!(also_redis: where_files_are_is_protected);
fn where_files_are_is_protected() {
    let folder = Folder::new("protected");
    let protected = |name: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - can't set protected config")
    };
    let mut client = Server::start().into_client();
    client.line("CONFIG SET dir /tmp").is_error(&protected("dir"));
    client.line("CONFIG SET dbfilename other.rdb").is_error(&protected("dbfilename"));
    let mut client = serve(&folder, &["--enable-protected-configs", "local"]).into_client();
    client.line("CONFIG SET dbfilename a/b").is_error(
        "ERR CONFIG SET failed (possibly related to argument 'dbfilename') - dbfilename can't be a path, \
         just a filename",
    );
    client
        .line("CONFIG SET dir /nosuch")
        .is_error("ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory");
    fs::create_dir(folder.path().join("deeper")).unwrap();
    client.line("CONFIG SET dir deeper dbfilename other.rdb").is_ok();
    client.line("SET k v").is_ok();
    client.line("SAVE").is_ok();
    assert_eq!(read(&folder.path().join("deeper/other.rdb")).len(), 1);
}

marked!(also_redis: changes_are_counted_as_redis_does);
/// Held against a real Redis as well.
fn changes_are_counted_as_redis_does() {
    let mut client = Server::start().into_client();
    let mut before = 0;
    for (line, changes) in [
        ("SET a 1", 1),
        ("SET a 1 EX 100", 1),
        ("SET a 2 NX", 0),
        ("SETNX a 1", 0),
        ("MSET a 1 b 2", 2),
        ("RENAME a c", 1),
        ("RENAME c b", 1),
        ("COPY b c", 1),
        ("COPY b c REPLACE", 1),
        ("MOVE c 1", 1),
        ("SWAPDB 0 1", 1),
        ("INCR n", 1),
        ("INCRBYFLOAT n 1.5", 1),
        ("APPEND n 1", 1),
        ("SETRANGE n 0 1", 1),
        ("SETRANGE empty 0 \"\"", 0),
        ("SETBIT bits 100 1", 1),
        ("BITOP AND target bits n", 1),
        ("BITOP AND target no none", 1),
        ("BITOP AND target no none", 0),
        ("EXPIRE n 100", 1),
        ("EXPIRE nosuch 100", 0),
        ("PERSIST n", 1),
        ("GETEX n EX 100", 1),
        ("GETEX n", 0),
        ("GETSET n 1", 1),
        ("GETDEL n", 1),
        ("DEL n c nosuch", 1),
        ("UNLINK bits", 1),
        ("MSET a 1 b 2", 2),
        ("EXPIRE a -1", 1),
        ("TOUCH b", 0),
        ("FLUSHDB", 1),
        ("FLUSHALL", 1),
        ("FLUSHALL", 0),
    ] {
        drop(client.line(line));
        let after: i64 = client.info("rdb_changes_since_last_save").parse().unwrap();
        assert_eq!(after - before, changes, "{line}");
        before = after;
    }
}

#[test]
fn a_snapshot_of_many_keys_has_them_all_although_clients_go_on_writing() {
    const KEYS: usize = 100_000;
    let folder = Folder::new("many");
    let server = serve(&folder, &[]);
    let (mut client, mut other) = (server.client(), server.client());
    pipeline(
        &mut client,
        (0..KEYS).map(|number| vec!["SET".to_owned(), format!("key:{number:012}"), "v".repeat(32)]),
    );
    client.line("BGSAVE").is_simple("Background saving started");
    while other.info("rdb_bgsave_in_progress") == "1" {
        for _ in 0..100 {
            let key = format!("key:{:012}", fastrand::usize(..KEYS));
            client.cmd(["SET", &key, "w"]).is_ok();
        }
    }
    assert_eq!(read(&dump(&folder)).len(), KEYS);
}

#[test]
fn keys_without_elements_are_skipped() {
    let folder = Folder::new("empty-keys");
    let mut dump = b"REDIS0009\xfe\x00".to_vec();
    // A list, a set, a hash and a sorted set, each without elements, in plain forms.
    for (kind, name) in [(1, b'l'), (2, b's'), (4, b'h'), (5, b'z')] {
        dump.extend([kind, 1, name, 0]);
    }
    // An empty listpack as a quicklist's only node, and no node at all.
    let listpack = [7, 0, 0, 0, 0, 0, 0xff];
    dump.extend([18, 1, b'q', 1, 2, 7]);
    dump.extend(listpack);
    dump.extend([18, 1, b'r', 0]);
    // An expiry belongs to the next key alone.
    dump.extend([0xfc, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, b'e', 0]);
    dump.extend([0, 1, b'k', 1, b'v', 0xff]);
    // The file has no checksum.
    dump.extend([0; 8]);
    fs::write(folder.file("dump.rdb"), dump).unwrap();
    let server = folder.serve(&[]);
    let mut client = server.client();
    client.line("KEYS *").is(Reply::Array(vec![Reply::Bulk(b"k".to_vec())]));
    client.line("TTL k").is(-1);
    server.wait_for_output("keys loaded: 1, keys expired: 0, empty keys skipped: 7");
}

/// The bytes of a text of hexadecimal digits.
fn bytes_of(digits: &str) -> Vec<u8> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn keys_of_modules_types_are_refused_and_counted_or_skipped() {
    // As Redis 8.6.3 has dumped them: a JSON document, a Bloom filter, a vector set; without version and sum.
    let document = "8145e25238df912c0405010100";
    let filter = "813016e5a289bef80402020201020502020204049a9999999999a93f0205044af7d49edef0184002\
                  4040020005080044208c10120020020200";
    let vectors = "81bde72da2bb1eb40002030201025002020005016105080300000000000000020602010280010000\
                   000200022002000280406f775100";
    let key =
        |kind: u8, name: &str, value: &[u8]| [&[kind, name.len() as u8], name.as_bytes(), value].concat();
    let (before, after) = (key(0, "before", b"\x01v"), key(0, "after", b"\x01w"));
    let document = key(7, "document", &bytes_of(document));
    let parts = [
        &b"REDIS0013\xfe\x00"[..],
        &before,
        &document,
        &key(7, "filter", &bytes_of(filter)),
        b"\xfe\x02\xfc\xff\xff\xff\xff\xff\xff\xff\x00",
        &key(7, "vectors", &bytes_of(vectors)),
        &document,
        &after,
        b"\xff\x00\x00\x00\x00\x00\x00\x00\x00",
    ];
    let folder = Folder::new("modules");
    fs::write(dump(&folder), parts.concat()).unwrap();
    let what = "the RDB file has keys of modules' types, which are not here: 4 (1 of MBbloom--, 2 of \
                ReJSON-RL, 1 of vectorset); the first is 'document' in database 0";
    let mut command = folder.command();
    let said = refused(command.args(["--port", "0", "--dir", &folder.file("")]));
    assert!(said.contains(&format!("{what}. To start without them: --unknown-types skip")), "{said}");
    let server = serve(&folder, &["--unknown-types", "skip"]);
    server.wait_for_output(&format!("Skipped, as unknown-types says: {what}"));
    let mut client = server.client();
    client.line("GET before").is("v");
    client.line("DBSIZE").is(1);
    client.line("SELECT 2").is_ok();
    client.line("GET after").is("w");
    client.line("DBSIZE").is(1);
    // The older form has no marks by which it could be skipped, and a broken one is no end of a value.
    let old = "is of a module's type, in an old form that cannot be skipped";
    for (kind, digits, why) in [
        (6, "8145e25238df912c0001", old),
        (7, "8145e25238df912c0409", "Invalid module data"),
        (7, "8145e25238df912c0405", "Unexpected EOF"),
    ] {
        let other = Folder::new("modules-broken");
        fs::write(dump(&other), [&b"REDIS0013\xfe\x00"[..], &key(kind, "k", &bytes_of(digits))].concat())
            .unwrap();
        let mut command = other.command();
        let said =
            refused(command.args(["--port", "0", "--dir", &other.file(""), "--unknown-types", "skip"]));
        assert!(said.contains(why), "{said}");
    }
}
