//! The log of what was done: it comes back, whole up to where it reaches, and others read it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use keyfast::internals::commands::all;
use keyfast::internals::commands::facts::Run;
use nix::fcntl::{FallocateFlags, fallocate};

use support::client::{Client, request};
use support::folder::Folder;
use support::log::{ALWAYS, State, bytes, check, files, increment, load, serve, state, wait_for_rewrite};
use support::server::{Server, program, wait_until};
use support::tools::{installed, refuse_to_pass_without};

/// Lets no key and no field of a hash expire within the next hour: a busy machine takes its time.
fn keep_all(client: &mut Client) {
    for database in 0..16 {
        client.cmd(["SELECT", &database.to_string()]).is_ok();
        for key in client.line("KEYS *").items() {
            let key = bytes(key);
            if (0..3_600_000).contains(&client.cmd([&b"PTTL"[..], &key]).integer()) {
                client.cmd([&b"PERSIST"[..], &key]).ignored();
            }
            if client.cmd([&b"TYPE"[..], &key]).reply().to_string() == "hash" {
                let fields: Vec<Vec<u8>> =
                    client.cmd([&b"HKEYS"[..], &key]).items().into_iter().map(bytes).collect();
                let count = fields.len().to_string();
                let request = [&b"HPERSIST"[..], &key, b"FIELDS", count.as_bytes()];
                client.cmd(request.into_iter().chain(fields.iter().map(Vec::as_slice))).ignored();
            }
        }
    }
}

const LIBRARY: &str = "#!lua name=mylib\nredis.register_function('answer', function() return 42 end)";

marked!(needs_tools: what_every_command_has_done_comes_back);
fn what_every_command_has_done_comes_back() {
    let folder = Folder::new("aof-commands");
    let server = serve(&folder, &["--rename-command", "APPEND", "attach"]);
    let mut client = server.client();
    let last = ["flushall", "flushdb", "swapdb", "function|flush"];
    let writing = || {
        let commands = all().flat_map(|command| std::iter::once(command).chain(command.subcommands));
        commands.filter(|command| command.replicates() && !last.contains(&command.name))
    };
    assert!(writing().filter(|command| matches!(command.run, Run::Write(_))).count() > 30);
    // Once in a database of its own, once where others have left something.
    for database in 0..2 {
        for (number, command) in writing().enumerate() {
            client.cmd(["SELECT", &(database * (number % 15)).to_string()]).is_ok();
            for (line, _) in command.example {
                client.line(&line.replace("APPEND", "attach")).ignored();
            }
        }
    }
    // Changes of parts, in long values and in short ones.
    client.line("SELECT 15").is_ok();
    for (name, length) in [("short", 10), ("long", 100_000)] {
        client.cmd(["SET", name, &"x".repeat(length), "EX", "10000"]).is_ok();
        client.cmd(["attach", name, "tail"]).ignored();
        client.cmd(["SETRANGE", name, "5", "range"]).ignored();
        client.cmd(["SETBIT", name, "99", "1"]).ignored();
        client
            .cmd(["BITFIELD", name, "INCRBY", "u8", "3", "77", "OVERFLOW", "FAIL", "SET", "i5", "#9", "-3"])
            .ignored();
        client.cmd(["EVAL", "redis.call('attach', KEYS[1], 'again')", "1", name]).ignored();
        client.cmd(["COPY", name, &format!("{name}:copy")]).ignored();
        client.cmd(["MOVE", &format!("{name}:copy"), "14"]).ignored();
    }
    client.cmd([&b"SET"[..], &[0, 255, b'\r', b'\n'], &(0..=255).collect::<Vec<u8>>()]).is_ok();
    client.cmd(["FUNCTION", "LOAD", "REPLACE", LIBRARY]).is("mylib");
    let log = fs::read(increment(&folder, 1)).unwrap();
    assert!(log.windows(10).any(|part| part == b"\r\nAPPEND\r\n"), "a part is logged as its step");
    assert!(log.len() < 500_000, "and not as all of the value");
    keep_all(&mut client);
    let mut expected = state(&mut client);
    assert!(expected.len() > 30, "{}", expected.len());
    drop(server);
    for line in ["PING", "SWAPDB 0 15", "FLUSHDB", "FUNCTION FLUSH", "FLUSHALL"] {
        let server = serve(&folder, &["--rename-command", "APPEND", "attach"]);
        let mut client = server.client();
        assert!(state(&mut client) == expected, "before {line}");
        client.line(line).ignored();
        expected = state(&mut client);
    }
    let mut client = serve(&folder, &[]).into_client();
    assert!(state(&mut client) == expected && expected.len() == 1);
    check(&folder);
}

marked!(also_redis: what_expires_is_gone_and_what_was_made_to_stay_is_not);
fn what_expires_is_gone_and_what_was_made_to_stay_is_not() {
    let folder = Folder::new("aof-expiry");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    for line in ["SET gone v PX 1", "SET late v PX 1", "SET taken old PX 1", "SET stays v PX 3000"] {
        client.line(line).is_ok();
    }
    client.line("PEXPIRE stays 60000").is(1);
    client.line("SET forever v PX 3000").is_ok();
    client.line("PERSIST forever").is(1);
    wait_until("they have expired", || client.line("EXISTS gone taken late").integer() == 0);
    client.line("SETNX taken new").is(1);
    client.line("APPEND late r").is(1);
    // The first expiry of `stays` passes before the log is loaded.
    wait_until("time has passed", || client.line("PTTL stays").integer() < 60_000 - 3001);
    let expected = state(&mut client);
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    assert_eq!(state(&mut client), expected);
    client.line("GET taken").is("new");
    client.line("GET late").is("r");
    client.line("EXISTS stays forever gone").is(2);
}

#[test]
fn what_is_evicted_does_not_come_back() {
    let folder = Folder::new("aof-evicted");
    let server = serve(&folder, &["--maxmemory", "8mb", "--maxmemory-policy", "allkeys-random"]);
    let mut client = server.client();
    let value = "v".repeat(50_000);
    for number in 0..400 {
        client.cmd(["SET", &format!("key:{number}"), &value]).is_ok();
    }
    // Looking at all that is left takes memory, too.
    client.line("CONFIG SET maxmemory 0").is_ok();
    assert!(client.info("evicted_keys").parse::<u64>().unwrap() > 100);
    let expected = state(&mut client);
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    assert!(state(&mut client) == expected);
}

#[test]
fn a_log_that_is_torn_anywhere_comes_back_up_to_there() {
    let folder = Folder::new("aof-torn");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    let path = increment(&folder, 1);
    let mut marks = vec![(0, load_copy(&folder, 0, "yes").unwrap())];
    for lines in [
        &["SET a 1"][..],
        &["MULTI", "SET a 2", "SET b 2", "SELECT 3", "SET c 3 EX 10000", "EXEC"],
        &["SELECT 3"],
        &["APPEND c tail"],
        &["EVAL \"redis.call('set','x',1) redis.call('set','y',2) redis.call('del','c')\" 0"],
        &["EXPIRE x 10000"],
        &["SWAPDB 3 0"],
        &["MSET a 9 z 9"],
        &["SETNX lock held"],
        &["MULTI", "SETNX lock2 held", "SET d 4", "EXEC"],
        &["FLUSHDB"],
    ] {
        lines.iter().for_each(|line| drop(client.line(line)));
        marks.push((fs::metadata(&path).unwrap().len(), State::new()));
        let at = marks.len() - 1;
        marks[at].1 = load_copy(&folder, marks[at].0, "no").unwrap();
    }
    client.cmd(["FUNCTION", "LOAD", LIBRARY]).is("mylib");
    let all = fs::metadata(&path).unwrap().len();
    marks.push((all, load_copy(&folder, all, "no").unwrap()));
    assert_eq!(marks[2].1.len(), 4, "all of a transaction");
    drop(server);
    let mut refused = 0;
    for length in 0..=all {
        let expected = &marks.iter().rfind(|(mark, _)| *mark <= length).unwrap().1;
        assert!(load_copy(&folder, length, "yes").unwrap() == *expected, "{length} bytes");
        if let Err(why) = load_copy(&folder, length, "no") {
            assert!(why.starts_with("Unexpected end of file reading"), "{why}");
            refused += 1;
        } else {
            let is_boundary = marks.iter().any(|(mark, _)| (*mark..*mark + 60).contains(&length));
            assert!(is_boundary, "{length} bytes");
        }
    }
    assert!(refused > all / 2);
}

/// Who makes backups may read all files of a log, or none: the manifest, too, which says what the others are.
#[test]
fn all_files_of_a_log_may_be_read_by_those_whom_the_umask_allows_it() {
    for (umask, expected) in [("022", 0o644), ("027", 0o640), ("077", 0o600)] {
        let folder = Folder::new("aof-rights");
        let mut command = Command::new("sh");
        command.current_dir(folder.path()).args(["-c", "umask \"$0\"; exec \"$@\"", umask, &program()]);
        command.args(ALWAYS).args(["--bind", "127.0.0.1", "--port", "0"]);
        let server = Server::run(&mut command, 0);
        let mut client = server.client();
        let rights = || {
            let mode = |name: &String| {
                let facts = fs::metadata(folder.file(&format!("appendonlydir/{name}"))).expect("a file");
                (name.clone(), facts.permissions().mode() & 0o777)
            };
            files(&folder).iter().map(mode).collect::<Vec<_>>()
        };
        // An earlier manifest may be for its owner alone.
        let manifest = folder.file("appendonlydir/appendonly.aof.manifest");
        fs::set_permissions(manifest, fs::Permissions::from_mode(0o600)).unwrap();
        client.line("BGREWRITEAOF").is_simple("Background append only file rewriting started");
        wait_for_rewrite(&mut client);
        let rights = rights();
        assert!(rights.len() == 3 && rights.iter().all(|(_, mode)| *mode == expected), "{umask}: {rights:?}");
    }
}

/// Loads a copy of a log of which the increment has so many bytes.
fn load_copy(folder: &Folder, length: u64, truncated: &str) -> Result<State, String> {
    let copy = Folder::new("aof-torn-copy");
    fs::create_dir(copy.path().join("appendonlydir")).unwrap();
    for name in files(folder) {
        let name = format!("appendonlydir/{name}");
        fs::copy(folder.file(&name), copy.file(&name)).unwrap();
    }
    let file = fs::File::options().write(true).open(increment(&copy, 1)).unwrap();
    file.set_len(length).unwrap();
    let loaded = load(&copy, truncated);
    if let Ok(loaded) = &loaded {
        // What is cut off once is not there the next time.
        assert!(load(&copy, "no").unwrap() == *loaded);
    }
    loaded
}

marked!(needs_tools: what_one_server_logs_the_other_loads);
fn what_one_server_logs_the_other_loads() {
    for preamble in ["yes", "no"] {
        let folder = Folder::new("aof-exchange");
        let options = ["--aof-use-rdb-preamble", preamble];
        let server = serve(&folder, &options);
        let mut client = server.client();
        do_everything(&mut client);
        client.line("BGREWRITEAOF").is_simple("Background append only file rewriting started");
        wait_for_rewrite(&mut client);
        let ending = if preamble == "yes" { "rdb" } else { "aof" };
        let base = format!("appendonly.aof.2.base.{ending}");
        assert_eq!(files(&folder), [&base, "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"]);
        do_everything(&mut client);
        let expected = state(&mut client);
        drop(server);
        check(&folder);
        let redis = [&["--dir", &folder.file("")], ALWAYS, &options, &["--aof-timestamp-enabled", "yes"]];
        let Some(redis) = Server::start_redis(&redis.concat()) else { return };
        let mut client = redis.client();
        assert_eq!(state(&mut client), expected);
        do_everything(&mut client);
        client.line("SETEX soon 1 v").is_ok();
        client.line("PEXPIRE soon 100000").is(1);
        wait_until("time has passed", || client.line("PTTL soon").integer() < 98_900);
        let expected = state(&mut client);
        drop(redis);
        let server = serve(&folder, &options);
        assert_eq!(state(&mut server.client()), expected);
        assert_eq!(server.client().info("aof_enabled"), "1");
    }
}

marked!(also_redis needs_tools: a_log_with_times_is_cut_off_at_one_of_them);
fn a_log_with_times_is_cut_off_at_one_of_them() {
    let Some(mut program) = installed("redis-check-aof") else { return };
    let folder = Folder::new("aof-times");
    let options = ["--aof-use-rdb-preamble", "no", "--aof-timestamp-enabled", "yes"];
    let server = serve(&folder, &options);
    let mut client = server.client();
    let now = |client: &mut Client| bytes(client.line("TIME").items().swap_remove(0));
    // The base may have the mark of the second in which the server has started.
    let start = now(&mut client);
    wait_until("a second has passed since the start", || now(&mut client) != start);
    client.line("SET first 1").is_ok();
    let then = now(&mut client);
    wait_until("another second has passed", || now(&mut client) != then);
    client.line("SET second 1").is_ok();
    client.line("SET third 1").is_ok();
    let log = fs::read_to_string(increment(&folder, 1)).unwrap();
    let marks: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("#TS:")).collect();
    // A busy machine may come to the third one a second later.
    assert!((2..=3).contains(&marks.len()) && marks.is_sorted(), "{log}");
    assert!(log.starts_with("#TS:") && log.contains("\r\n*3\r\n$3\r\nSET\r\n$5\r\nfirst\r\n"), "{log}");
    client.line("CONFIG SET aof-timestamp-enabled no").is_ok();
    drop(server);
    let manifest = folder.path().join("appendonlydir/appendonly.aof.manifest");
    let output = program.args(["--truncate-to-timestamp", marks[0]]).arg(manifest).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Successfully truncated AOF"), "{text}");
    let server = serve(&folder, &options);
    let mut client = server.client();
    assert_eq!(client.line("KEYS *").reply().to_string(), r#"["first"]"#);
    client.line("BGREWRITEAOF").ignored();
    wait_for_rewrite(&mut client);
    let base = files(&folder).into_iter().find(|name| name.ends_with(".base.aof")).expect("a base");
    let base = fs::read_to_string(folder.path().join("appendonlydir").join(base)).unwrap();
    assert!(base.starts_with("#TS:"), "{base}");
}

/// Does something of every kind.
fn do_everything(client: &mut Client) {
    client.line("FLUSHALL").is_ok();
    for line in [
        "SET text hello",
        "SET number 12",
        "INCRBYFLOAT number 1.5",
        "SETEX mortal 10000 v",
        "GETEX mortal PERSIST",
        "SET mortal w EX 1000",
        "EXPIRE mortal 20000",
        "SETRANGE text 7 there",
        "MSET m1 1 m2 2",
        "RENAME m1 m3",
        "COPY m2 m4",
        "MOVE m4 5",
        "SELECT 7",
        "SETNX lock me",
        "SETNX lock you",
        "MULTI",
        "INCR count",
        "SELECT 2",
        "SET count 5",
        "EXEC",
        "GETDEL count",
        "SETBIT bits 70 1",
        "BITFIELD bits INCRBY u8 0 200",
        "SWAPDB 7 2",
        "SELECT 9",
        "SET flushed 1",
        "FLUSHDB",
        "SELECT 0",
        "EVAL \"redis.call('set','s1','1') redis.call('incr','s1') redis.call('expire','s1',5000)\" 0",
    ] {
        client.line(line).ignored();
    }
    client.cmd(["SET", "large", &"abc".repeat(10_000)]).is_ok();
    client.line("APPEND large tail").is(30_004);
    for line in [
        "MULTI",
        "APPEND large once",
        "SETRANGE large 77 there",
        "SETBIT large 12345 1",
        "BITFIELD large INCRBY u8 #9 200 OVERFLOW FAIL SET i5 300009 7",
        "EXPIRE large 10000",
        "APPEND large again",
        "SELECT 3",
        "SET other 1",
        "EXEC",
        "SELECT 0",
        "EVAL \"redis.call('append',KEYS[1],'by a script')\" 1 large",
    ] {
        client.line(line).ignored();
    }
    client.cmd([&b"SET"[..], &[0, 255, b'\r', b'\n'], &(0..=255).collect::<Vec<u8>>()]).is_ok();
    client.cmd(["FUNCTION", "LOAD", "REPLACE", LIBRARY]).is("mylib");
}

marked!(also_redis needs_tools: an_acknowledged_setnx_survives_200_kills);
fn an_acknowledged_setnx_survives_200_kills() {
    const CLIENTS: usize = 4;
    let folder = Folder::new("aof-killed");
    let mut random = fastrand::Rng::with_seed(11);
    let mut acknowledged: Vec<Vec<String>> = Vec::new();
    let mut unanswered = 0;
    for round in 0..=200 {
        let server = serve(&folder, &[]);
        let mut client = server.client();
        // Those of the last round; of all rounds at the end.
        let from = if round == 200 { 0 } else { acknowledged.len().saturating_sub(1) };
        for names in &acknowledged[from..] {
            for name in names {
                client.cmd(["GET", name]).is("held");
            }
        }
        if round == 200 {
            break;
        }
        let clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        let pause = Duration::from_micros(random.u64(..15_000));
        let taken = &AtomicUsize::new(0);
        let (taken_of_each, cut_off): (Vec<_>, Vec<_>) = thread::scope(|scope| {
            let workers: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| {
                    scope.spawn(move || take_locks(client, &format!("{round}:{number}"), taken))
                })
                .collect();
            thread::sleep(pause);
            // A busy machine may not have come to any of them.
            wait_until("some are taken", || taken.load(Ordering::Relaxed) > 1);
            drop(server);
            workers.into_iter().map(|worker| worker.join().unwrap()).unzip()
        });
        acknowledged.push(taken_of_each.concat());
        unanswered += cut_off.into_iter().filter(|is_cut_off| *is_cut_off).count();
    }
    let count: usize = acknowledged.iter().map(Vec::len).sum();
    // A kill between two requests would prove little.
    assert!(count > 200 && unanswered > 200, "{count} were acknowledged, {unanswered} cut off");
    check(&folder);
}

/// Takes one lock after the other until the server is gone. Returns those that it got, and whether a request
/// was sent whose reply never came.
fn take_locks(mut client: Client, name: &str, count: &AtomicUsize) -> (Vec<String>, bool) {
    let mut taken = Vec::new();
    for number in 0.. {
        let lock = format!("lock:{name}:{number}");
        if client.try_send(&request(["SETNX", &lock, "held"])).is_err() {
            return (taken, false);
        }
        match client.try_reply_bytes() {
            Ok(reply) => assert_eq!(reply, b":1\r\n"),
            Err(_) => return (taken, true),
        }
        taken.push(lock);
        count.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("a client has numbers enough")
}

marked!(needs_tools: a_server_that_is_killed_while_it_rewrites_its_log_loses_nothing);
fn a_server_that_is_killed_while_it_rewrites_its_log_loses_nothing() {
    const CLIENTS: usize = 3;
    let folder = Folder::new("aof-rewritten");
    let mut random = fastrand::Rng::with_seed(5);
    let mut expected = [0; CLIENTS];
    let mut rewritten = 0;
    for round in 0..60 {
        let options = ["--auto-aof-rewrite-percentage", "1", "--auto-aof-rewrite-min-size", "0"];
        let server = serve(&folder, &options);
        let mut client = server.client();
        let total: i64 = client.line("GET total").reply().to_string().trim_matches('"').parse().unwrap_or(0);
        let counted: i64 = (0..CLIENTS)
            .map(|number| client.cmd(["GET", &format!("counter:{number}")]).reply().to_string())
            .map(|text| text.trim_matches('"').parse().unwrap_or(0))
            .sum();
        assert_eq!(total, counted, "round {round}: a transaction came back by half");
        let is_over = AtomicBool::new(false);
        let pause = Duration::from_micros(random.u64(..60_000));
        let bases = || {
            let mut names = files(&folder);
            names.retain(|name| name.ends_with(".base.rdb"));
            names
        };
        let before = bases();
        let clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        thread::scope(|scope| {
            let is_over = &is_over;
            let workers: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(number, client)| scope.spawn(move || count(client, number)))
                .collect();
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if client.try_send(&request(["BGREWRITEAOF"])).is_err()
                        || client.try_reply_bytes().is_err()
                    {
                        break;
                    }
                }
            });
            if round % 2 == 0 {
                // On a busy machine a rewrite takes longer than any pause here.
                wait_until("a rewrite ends", || bases() != before);
            }
            thread::sleep(pause);
            drop(server);
            is_over.store(true, Ordering::Relaxed);
            for (worker, expected) in workers.into_iter().zip(&mut expected) {
                if let Some((first, last)) = worker.join().unwrap() {
                    assert!(first > *expected, "round {round}: {first} comes after {expected}");
                    *expected = last;
                }
            }
        });
        let left_over = files(&folder).into_iter().filter(|name| name.starts_with("temp-"));
        assert!(left_over.count() <= 1, "what the one before has left is gone");
        rewritten += usize::from(bases() != before);
    }
    assert!(rewritten >= 30 && expected.iter().all(|count| *count > 0), "{rewritten}, {expected:?}");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    client.line("BGREWRITEAOF").ignored();
    wait_for_rewrite(&mut client);
    drop(server);
    check(&folder);
}

/// Counts until the server is gone; answers the first count and the last that were acknowledged.
fn count(mut client: Client, number: usize) -> Option<(i64, i64)> {
    let mut counted = None;
    let commands: Vec<u8> = [
        request(["MULTI"]),
        request(["INCR", &format!("counter:{number}")]),
        request(["INCR", "total"]),
        request(["EXEC"]),
    ]
    .concat();
    while client.try_send(&commands).is_ok() {
        let replies: Vec<_> = (0..4).map_while(|_| client.try_reply_bytes().ok()).collect();
        let [_, _, _, reply] = &replies[..] else { break };
        let reply = String::from_utf8(reply.clone()).unwrap();
        let count: i64 = reply.split([':', '\r']).nth(2).unwrap().parse().unwrap();
        counted = Some((counted.map_or(count, |(first, _)| first), count));
    }
    counted
}

#[test]
fn the_log_is_rewritten_by_itself_when_it_has_grown() {
    let folder = Folder::new("aof-grown");
    let options = ["--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "64kb"];
    let server = serve(&folder, &options);
    let mut client = server.client();
    let value = "v".repeat(1000);
    let before = client.info("aof_rewrites");
    for _ in 0..100 {
        client.cmd(["SET", "k", &value]).is_ok();
    }
    server.wait_for_output("Starting automatic rewriting of AOF on ");
    wait_for_rewrite(&mut client);
    assert_eq!((before.as_str(), client.info("aof_rewrites").as_str()), ("0", "1"));
    assert!(client.info("aof_current_size").parse::<u64>().unwrap() < 64 << 10);
    assert!(files(&folder).contains(&"appendonly.aof.2.base.rdb".to_owned()));
}

marked!(also_redis needs_tools: a_log_can_be_begun_and_ended_while_the_server_runs);
fn a_log_can_be_begun_and_ended_while_the_server_runs() {
    let folder = Folder::new("aof-begun");
    let server = Server::start_with(&["--dir", &folder.file(""), "--appendfsync", "always"]);
    let mut client = server.client();
    do_everything(&mut client);
    assert_eq!(client.info("aof_enabled"), "0");
    client.line("CONFIG SET appendonly yes").is_ok();
    assert_eq!(client.info("aof_enabled"), "1");
    client.line("SET meanwhile 1").is_ok();
    wait_for_rewrite(&mut client);
    client.line("SET logged 1").is_ok();
    client.line("CONFIG SET appendonly no").is_ok();
    client.line("SET lost 1").is_ok();
    client.line("CONFIG SET appendonly yes").is_ok();
    wait_for_rewrite(&mut client);
    client.line("SET again 1").is_ok();
    let expected = state(&mut client);
    client.line("CONFIG SET appendonly no").is_ok();
    client.line("SET lost 2").is_ok();
    client.line("CONFIG SET appendfsync sometimes").is_error(
        "ERR CONFIG SET failed (possibly related to argument 'appendfsync') - argument(s) must be one of the \
         following: everysec, always, no",
    );
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    assert_eq!(state(&mut client), expected);
    check(&folder);
}

#[test]
fn a_log_is_written_anew_once_nothing_is_in_the_way() {
    let folder = Folder::new("aof-anew");
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client();
    let commands: Vec<u8> =
        (0..50_000).flat_map(|number| request(["SET", &format!("key:{number}"), "value"])).collect();
    client.send(&commands);
    (0..50_000).for_each(|_| client.reply().is_ok());
    client.send(b"BGSAVE\r\nBGREWRITEAOF\r\nBGREWRITEAOF\r\n");
    client.reply().is_simple("Background saving started");
    (0..2).for_each(|_| client.reply().is_simple("Background append only file rewriting scheduled"));
    wait_for_rewrite(&mut client);
    client.send(b"BGREWRITEAOF\r\nBGREWRITEAOF\r\nBGSAVE\r\n");
    client.reply().is_simple("Background append only file rewriting started");
    client.reply().is_error("ERR Background append only file rewriting already in progress");
    drop(client.reply());
    wait_for_rewrite(&mut client);
    // Where nothing is logged there is a base alone.
    assert_eq!(files(&folder), ["appendonly.aof.2.base.rdb", "appendonly.aof.manifest"]);
    client.line("SET late 1").is_ok();
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    client.line("DBSIZE").is(50_000);
    assert_eq!(files(&folder).len(), 3);
}

marked!(also_redis: an_end_in_order_loses_nothing_whatever_the_policy);
fn an_end_in_order_loses_nothing_whatever_the_policy() {
    for policy in ["everysec", "no"] {
        let folder = Folder::new("aof-end");
        let mut server = serve(&folder, &["--appendfsync", policy]);
        let mut client = server.client();
        let commands: Vec<u8> =
            (0..5000).flat_map(|number| request(["SET", &format!("key:{number}"), "v"])).collect();
        client.send(&commands);
        (0..5000).for_each(|_| client.reply().is_ok());
        server.signal("TERM");
        assert_eq!(server.wait_for_end().code(), Some(0));
        let mut client = serve(&folder, &[]).into_client();
        client.line("DBSIZE").is(5000);
    }
}

#[test]
fn what_was_changed_is_on_the_disk_when_the_client_of_shutdown_is_closed() {
    let folder = Folder::new("aof-shutdown");
    let server = serve(&folder, &["--appendfsync", "no"]);
    let mut client = server.client();
    let value = vec![b'v'; 1 << 20];
    for number in 0..32 {
        client.cmd([b"SET".as_slice(), format!("key:{number}").as_bytes(), &value]).is_ok();
    }
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(client.is_closed());
    server.signal("KILL");
    drop(server);
    let mut client = serve(&folder, &[]).into_client();
    client.line("DBSIZE").is(32);
}

marked!(needs_tools: a_disk_that_fails_loses_nothing_that_was_acknowledged);
fn a_disk_that_fails_loses_nothing_that_was_acknowledged() {
    for policy in ["always", "everysec"] {
        let folder = Folder::new("aof-full");
        let server =
            Server::start_with(&["--dir", &folder.file(""), "--appendonly", "yes", "--appendfsync", policy]);
        let limit = |bytes: u64| {
            let pid = server.process_id() as i32;
            rlimit::prlimit(pid, rlimit::Resource::FSIZE, Some((bytes, rlimit::INFINITY)), None).unwrap();
        };
        let mut client = server.client();
        client.line("SET first 1").is_ok();
        let path = increment(&folder, 1);
        wait_until("it is written", || fs::metadata(&path).unwrap().len() > 40);
        // There is room for the beginning of a record.
        limit(fs::metadata(&path).unwrap().len() + 7);
        let mut unlucky = server.client();
        let second_is_acknowledged = match policy {
            "always" => {
                unlucky.send(&request(["SET", "second", "1"]));
                assert!(unlucky.is_closed(), "it is told nothing");
                false
            }
            _ => {
                unlucky.line("SET second 1").is_ok();
                true
            }
        };
        wait_until("it fails", || client.info("aof_last_write_status") == "err");
        const MISCONF: &str = "MISCONF Errors writing to the AOF file: File too large";
        client.line("SET third 1").is_error(MISCONF);
        client.line("PING").is_error(MISCONF);
        client.line("EVAL \"return redis.pcall('set', KEYS[1], 1)\" 1 third").is_error(MISCONF);
        client.line("GET third").is_nil();
        client.line("GET first").is("1");
        server.signal("TERM");
        server.wait_for_output("bytes of appendonly.aof.1.incr.aof are not on the disk (File too large)");
        limit(rlimit::INFINITY);
        wait_until("it goes on", || client.info("aof_last_write_status") == "ok");
        client.line("SET fourth 1").is_ok();
        if policy == "everysec" {
            client.line("CONFIG SET appendfsync always").is_ok();
            client.line("SET fifth 1").is_ok();
        }
        let expected = state(&mut client);
        assert!(!second_is_acknowledged || expected.contains_key(&(0, b"second".to_vec())));
        drop(client);
        drop(server);
        let mut client = serve(&folder, &["--aof-load-truncated", "no"]).into_client();
        assert_eq!(state(&mut client), expected);
        check(&folder);
    }
}

marked!(needs_tools: a_log_that_cannot_be_brought_to_the_disk_is_written_anew);
fn a_log_that_cannot_be_brought_to_the_disk_is_written_anew() {
    let folder = Folder::new("aof-unsynced");
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    // It takes all that is written, and cannot sync.
    std::os::unix::fs::symlink("/dev/null", increment(&folder, 1)).unwrap();
    // What is in the way of the next one.
    fs::create_dir(increment(&folder, 2)).unwrap();
    let server = serve(&folder, &["--appendfsync", "everysec"]);
    let mut client = server.client();
    client.line("SET first 1").is_ok();
    wait_until("it fails", || client.info("aof_last_write_status") == "err");
    server.wait_for_output("Fail to fsync the AOF file: Invalid argument");
    client.line("SET second 1").is_error("MISCONF Errors writing to the AOF file: Invalid argument");
    client.line("GET first").is("1");
    server.wait_for_output("Background AOF rewrite terminated with error: ");
    fs::remove_dir(increment(&folder, 2)).unwrap();
    // It tries again by itself.
    wait_until("it goes on", || client.info("aof_last_write_status") == "ok");
    client.line("SET third 1").is_ok();
    wait_for_rewrite(&mut client);
    client.line("CONFIG SET appendfsync always").is_ok();
    client.line("SET fourth 1").is_ok();
    let expected = state(&mut client);
    assert_eq!(expected.len(), 4, "three keys, and the libraries");
    drop(server);
    assert_eq!(files(&folder).len(), 3);
    let mut client = serve(&folder, &["--aof-load-truncated", "no"]).into_client();
    assert_eq!(state(&mut client), expected);
    check(&folder);
}

marked!(also_redis: a_log_that_cannot_be_begun_is_refused);
/// Held against a real Redis as well.
fn a_log_that_cannot_be_begun_is_refused() {
    const REFUSAL: &str = "ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to \
                           turn on AOF. Check server logs.";
    let folder = Folder::new("aof-not-begun");
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client();
    folder.write("appendonlydir", "in the way");
    client.line("CONFIG SET appendonly yes").is_error(REFUSAL);
    client.line("CONFIG SET timeout 100 appendonly yes").is_error(REFUSAL);
    assert_eq!(client.line("CONFIG GET timeout").reply().to_string(), r#"["timeout", "0"]"#);
    assert_eq!(client.info("aof_enabled"), "0");
    server.wait_for_output("Can't open or create append-only dir appendonlydir: ");
    client.line("SET k v").is_ok();
    fs::remove_file(folder.path().join("appendonlydir")).unwrap();
    client.line("CONFIG SET timeout 100 appendonly yes").is_ok();
    wait_for_rewrite(&mut client);
    assert_eq!(client.info("aof_enabled"), "1");
    assert!(files(&folder).contains(&"appendonly.aof.1.base.rdb".to_owned()), "{:?}", files(&folder));
}

/// Bytes that a file takes on the disk.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Whether the file system of a folder can set room aside.
fn can_keep_room(folder: &Folder) -> bool {
    let file = fs::File::create(folder.file("probe")).unwrap();
    let kept = fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 1 << 20).is_ok();
    fs::remove_file(folder.file("probe")).unwrap();
    kept
}

marked!(needs_tools: room_for_the_log_is_kept_while_it_grows_and_no_longer);
fn room_for_the_log_is_kept_while_it_grows_and_no_longer() {
    const ROUNDING: u64 = 64 << 10;
    let folder = Folder::new("aof-room");
    if !can_keep_room(&folder) {
        refuse_to_pass_without("a file system that reserves room");
        return;
    }
    let path = increment(&folder, 1);
    let length = || fs::metadata(&path).unwrap().len();
    let mut server = serve(&folder, &[]);
    let mut client = server.client();
    client.line("SET small 1").is_ok();
    assert!(taken(&path) < length() + ROUNDING, "a small log takes what it needs");
    for number in 0..300 {
        client.cmd(["SET", &format!("key:{number}"), &"v".repeat(1000)]).is_ok();
    }
    assert!(taken(&path) >= length() + ROUNDING, "{} of {}", length(), taken(&path));
    // Space that was reserved when the server was killed does no harm.
    server.signal("KILL");
    server.wait_for_end();
    assert!(taken(&path) >= length() + ROUNDING);
    check(&folder);
    let copy = Folder::new("aof-room-copy");
    let copied = Command::new("cp").args(["-a", &folder.file("appendonlydir"), &copy.file("")]).status();
    assert!(copied.unwrap().success());
    if let Some(redis) = Server::start_redis(&[&["--dir", &copy.file("")], ALWAYS].concat()) {
        redis.client().line("DBSIZE").is(301);
    }
    let mut server = serve(&folder, &["--aof-load-truncated", "no"]);
    let mut client = server.client();
    client.line("DBSIZE").is(301);
    // An end in order gives it back, and so does the end of the log.
    client.line("SET last 1").is_ok();
    server.signal("TERM");
    assert_eq!(server.wait_for_end().code(), Some(0));
    assert!(taken(&path) < length() + ROUNDING, "{} of {}", length(), taken(&path));
    let server = serve(&folder, &["--aof-load-truncated", "no"]);
    let mut client = server.client();
    client.line("DBSIZE").is(302);
    client.cmd(["SET", "last", &"v".repeat(1 << 20)]).is_ok();
    assert!(taken(&path) >= length() + ROUNDING);
    client.line("CONFIG SET appendonly no").is_ok();
    wait_until("it is given back", || taken(&path) < length() + ROUNDING);
    drop(server);
    check(&folder);
}

#[test]
fn with_a_log_the_snapshot_is_not_loaded() {
    let folder = Folder::new("aof-and-rdb");
    let server = Server::start_with(&["--dir", &folder.file("")]);
    let mut client = server.client();
    client.line("SET k v").is_ok();
    client.line("SAVE").is_ok();
    drop(server);
    let server = serve(&folder, &[]);
    server.client().line("DBSIZE").is(0);
    server.wait_for_output("There is a snapshot but no log");
}

marked!(also_redis needs_tools: the_one_file_of_older_servers_is_taken_over);
fn the_one_file_of_older_servers_is_taken_over() {
    let folder = Folder::new("aof-older");
    let log: Vec<u8> = [request(["SELECT", "2"]), request(["SETNX", "k", "v"])].concat();
    fs::write(folder.file("appendonly.aof"), log).unwrap();
    let server = serve(&folder, &[]);
    let mut client = server.client();
    client.line("SELECT 2").is_ok();
    client.line("GET k").is("v");
    client.line("SET k w").is_ok();
    assert_eq!(folder.names(), ["appendonlydir"]);
    drop(server);
    check(&folder);
    assert_eq!(load(&folder, "no").unwrap()[&(2, b"k".to_vec())].0, b"w");
}

#[test]
fn what_cannot_be_loaded_is_refused_and_left_alone() {
    const MANIFEST: &str = "file appendonly.aof.1.incr.aof seq 1 type i\n";
    for (manifest, log, why) in [
        (
            MANIFEST,
            request(["NOSUCHCOMMAND", "x"]),
            "Unknown command 'NOSUCHCOMMAND' reading the append only file",
        ),
        (MANIFEST, request(["CLIENT", "NOSUCH"]), "Unknown command 'CLIENT' reading the append only file"),
        (MANIFEST, request(["SET", "k"]), "Wrong number of arguments for command 'SET'"),
        (MANIFEST, request(["SELECT", "99"]), "SELECT failed: 'ERR DB index is out of range'"),
        (MANIFEST, b"SET k v\r\n".to_vec(), "Bad file format reading the append only file"),
        (MANIFEST, [request(["SET", "k", "v"]), vec![0; 100]].concat(), "Bad file format"),
        ("file a seq 1 type i\n", Vec::new(), "No such file or directory"),
        ("nonsense\n", Vec::new(), "Invalid AOF manifest file format: 'nonsense'"),
        ("", Vec::new(), "Found an empty AOF manifest"),
    ] {
        let folder = Folder::new("aof-refused");
        fs::create_dir(folder.path().join("appendonlydir")).unwrap();
        fs::write(folder.file("appendonlydir/appendonly.aof.manifest"), manifest).unwrap();
        fs::write(increment(&folder, 1), &log).unwrap();
        let answered = load(&folder, "yes").unwrap_err();
        assert!(answered.contains(why), "{answered}");
        assert_eq!(fs::read(increment(&folder, 1)).unwrap(), log);
    }
}

/// Redis logs a PFCOUNT that keeps its count in the value.
#[test]
fn a_count_that_redis_has_logged_is_loaded() {
    let folder = Folder::new("aof-pfcount");
    fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let log = [request(["SELECT", "0"]), request(["PFADD", "k", "a", "b"]), request(["pfcount", "k"])];
    fs::write(increment(&folder, 1), log.concat()).unwrap();
    serve(&folder, &[]).client().line("PFCOUNT k").is(2);
}

#[test]
fn a_base_of_requests_has_the_last_fencing_number() {
    let folder = Folder::new("aof-fencing");
    let mut client = serve(&folder, &["--aof-use-rdb-preamble", "no"]).into_client();
    client.line("SET lock holder NX PX 1000000").is_ok();
    client.line("BGREWRITEAOF").ignored();
    wait_for_rewrite(&mut client);
    let name = files(&folder).into_iter().find(|name| name.ends_with(".base.aof")).expect("a base");
    let base = fs::read(folder.path().join("appendonlydir").join(name)).unwrap();
    assert!(base.starts_with(b"#KEYFAST-FENCING:"), "{}", base.escape_ascii());
}
