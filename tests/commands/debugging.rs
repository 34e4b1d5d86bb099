//! What DEBUG does for those who test servers and clients.

use std::time::{Duration, Instant};
use std::{fs, thread};

use support::client::{Client, Reply};
use support::folder::Folder;
use support::server::{PATIENCE, Server, free_port, is_redis};

fn server() -> Server {
    Server::start_with(&["--enable-debug-command", "yes"])
}

marked!(also_redis: the_same_data_have_the_digest_that_they_have_in_redis);
/// The digests are those of redis-server 7.0.15.
fn the_same_data_have_the_digest_that_they_have_in_redis() {
    let folder = Folder::new("digest");
    let options = ["--enable-debug-command", "yes", "--dir", &folder.file("")];
    let mut client = Server::start_with(&options).into_client();
    let nothing = "0".repeat(40);
    client.line("DEBUG DIGEST").is_simple(&nothing);
    client.line("DEBUG POPULATE 3").is_ok();
    client.line("SELECT 2").is_ok();
    client.line("DEBUG POPULATE 2 other 8").is_ok();
    client.line("DEBUG POPULATE 1 long 20").is_ok();
    client.line("GET other:1").is("value:1\0");
    client.line("STRLEN long:0").is(20);
    client.line("SELECT 0").is_ok();
    client.line("SET n 12345").is_ok();
    client.line("SET t v EXAT 33177117420").is_ok();
    client.line("DEBUG DIGEST").is_simple("25292d1bc0ffdfdc43bdad72983b41f7d491d106");
    let digests: Vec<_> =
        client.line("DEBUG DIGEST-VALUE key:0 n t nosuch").items().iter().map(ToString::to_string).collect();
    assert_eq!(
        digests,
        [
            "c15f34c747bf411833c10208c03e1da1bb7da7cf",
            "e1cf90774e995ae03de66e8109dc5cb9d9c2dc83",
            "311b17018163335616e089f6b951c82c477335ac",
            &nothing,
        ]
    );
    client.line("PERSIST t").is(1);
    let changed = client.line("DEBUG DIGEST").reply().to_string();
    assert_ne!(changed, "25292d1bc0ffdfdc43bdad72983b41f7d491d106");
    client.line("DEBUG RELOAD").is_ok();
    client.line("DEBUG DIGEST").is_simple(&changed);
}

marked!(also_redis: keys_that_are_there_stay_as_they_are);
fn keys_that_are_there_stay_as_they_are() {
    let mut client = server().into_client();
    client.line("SET key:1 mine").is_ok();
    client.line("DEBUG POPULATE 3").is_ok();
    client.line("GET key:1").is("mine");
    client.line("GET key:2").is("value:2");
    client.line("DBSIZE").is(3);
    for line in ["DEBUG POPULATE x", "DEBUG POPULATE -1", "DEBUG POPULATE 1 a -1"] {
        client.line(line).is_error("ERR value is out of range, must be positive");
    }
    for line in ["DEBUG POPULATE", "DEBUG NOSUCH", "DEBUG DIGEST x"] {
        let name = line.split(' ').nth(1).unwrap();
        client.line(line).is_error(&format!(
            "ERR unknown subcommand or wrong number of arguments for '{name}'. Try DEBUG HELP."
        ));
    }
    if !is_redis() {
        let limit = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
        client.line("DEBUG POPULATE 1 a 536870913").is_error(limit);
    }
}

marked!(also_redis: a_crash_on_purpose_ends_the_server_at_once);
fn a_crash_on_purpose_ends_the_server_at_once() {
    for crash in ["SEGFAULT", "PANIC"] {
        let mut server = server();
        let mut client = server.client();
        client.line("SET k v").is_ok();
        client.send(format!("DEBUG {crash}\r\n").as_bytes());
        assert!(client.is_closed(), "{crash}");
        assert!(!server.wait_for_end().success(), "{crash}");
    }
}

marked!(also_redis: the_replication_id_can_be_changed);
fn the_replication_id_can_be_changed() {
    let mut client = server().into_client();
    let before = client.info("master_replid");
    assert_eq!((before.len(), client.info("run_id").len()), (40, 40));
    client.line("DEBUG CHANGE-REPL-ID").is_ok();
    assert_ne!(client.info("master_replid"), before);
}

marked!(also_redis: a_file_can_be_made_to_say_everything);
fn a_file_can_be_made_to_say_everything() {
    let folder = Folder::new("force-all");
    let file = folder.write("redis.conf", "timeout 5\nenable-debug-command yes\n");
    let serve = || {
        let port = free_port();
        let options = ["redis.conf", "--bind", "127.0.0.1", "--port", &port.to_string()];
        Server::run(folder.command().args(options), port)
    };
    let server = serve();
    let mut client = server.client();
    client.line("DEBUG CONFIG-REWRITE-FORCE-ALL").is_ok();
    let text = fs::read_to_string(&file).unwrap();
    for line in ["timeout 5", "hz 10", "repl-backlog-size 1mb", "replica-read-only yes", "maxmemory 0"] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    drop(server);
    serve().client().line("PING").is_simple("PONG");
}

marked!(also_redis: what_is_done_every_so_often_can_be_stopped);
fn what_is_done_every_so_often_can_be_stopped() {
    let mut client = server().into_client();
    client.line("DEBUG PAUSE-CRON 1").is_ok();
    client.line("SET k v PX 1").is_ok();
    client.line("DEBUG SLEEP 0.3").is_ok();
    assert_eq!(client.info("expired_keys"), "0");
    client.line("DEBUG PAUSE-CRON 0").is_ok();
    let deadline = Instant::now() + PATIENCE;
    while client.info("expired_keys") == "0" {
        assert!(Instant::now() < deadline, "the key is never freed");
        thread::sleep(Duration::from_millis(5));
    }
}

marked!(also_redis: the_log_can_be_loaded_while_clients_are_there);
fn the_log_can_be_loaded_while_clients_are_there() {
    for fsync in ["always", "everysec", "no"] {
        let folder = Folder::new(&format!("loadaof-{fsync}"));
        let options = ["--enable-debug-command", "yes", "--dir", &folder.file(""), "--appendonly", "yes"];
        let start = || Server::start_with(&[&options[..], &["--appendfsync", fsync]].concat());
        let mut server = start();
        let mut client = server.client();
        client.line("SET expiring v PX 1").is_ok();
        client.line("SELECT 2").is_ok();
        let long = "v".repeat(10_000);
        client.cmd(["SET", "long", &long]).is_ok();
        client.line("APPEND long x").is(10_001);
        client.line("SET lock holder EX 1000 NX").is_ok();
        client.cmd(["EVAL", "return redis.call('INCRBY', KEYS[1], 5)", "1", "number"]).is(5);
        client.line("FUNCTION FLUSH").is_ok();
        client
            .cmd(["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"])
            .ignored();
        // The key that expires is in database 0, and counts as long as it is there.
        client.line("SELECT 0").is_ok();
        while client.line("EXISTS expiring").integer() == 1 {}
        client.line("SELECT 2").is_ok();
        let before = client.line("DEBUG DIGEST").text();
        client.line("DEBUG LOADAOF").is_ok();
        client.line("DEBUG DIGEST").is_simple(&before);
        client.line("GET number").is("5");
        client.line("FCALL f 0").is(7);
        assert!((990..=1000).contains(&client.line("TTL lock").integer()));
        // It goes on as before: nothing was logged twice, and what comes now is logged.
        client.line("INCR number").is(6);
        client.line("BGREWRITEAOF").ignored();
        if is_redis() {
            // After a restart it has other data, with or without an EXEC.
            continue;
        }
        client.line("MULTI").is_ok();
        client.line("DEBUG LOADAOF").is_simple("QUEUED");
        client.line("INCR number").is_simple("QUEUED");
        let replies = client.line("EXEC").items();
        assert_eq!(replies, [Reply::Simple("OK".to_owned()), Reply::Integer(7)]);
        client.line("GET number").is("7");
        let before = client.line("DEBUG DIGEST").text();
        // The client leaves before all is written. A killed server may lose what it has not written yet.
        client.send(b"SHUTDOWN NOSAVE\r\n");
        assert!(client.is_closed() && server.wait_for_end().success());
        let mut client = start().into_client();
        client.line("DEBUG DIGEST").is_simple(&before);
    }
}

/// A rewrite that ends while the log is being loaded deletes the files that it has replaced.
#[test]
fn the_log_can_be_loaded_while_it_is_rewritten() {
    let folder = Folder::new("loadaof-rewrite");
    let server = folder.serve(&["--enable-debug-command", "yes", "--appendonly", "yes"]);
    let mut client = server.client();
    client.line("SET number 6").is_ok();
    for _ in 0..200 {
        client.line("BGREWRITEAOF").ignored();
        client.line("DEBUG LOADAOF").is_ok();
        client.line("GET number").is("6");
    }
}

marked!(also_redis: without_a_log_loading_it_is_an_error);
fn without_a_log_loading_it_is_an_error() {
    let folder = Folder::new("loadaof-none");
    let mut client =
        Server::start_with(&["--enable-debug-command", "yes", "--dir", &folder.file("")]).into_client();
    client.line("SET key value").is_ok();
    if !is_redis() {
        // 7.0 ends there.
        client.line("DEBUG LOADAOF").is_error("ERR Error trying to load the AOF files, check server logs.");
        client.line("DBSIZE").is(1);
    }
}

#[test]
fn a_log_is_loaded_from_where_it_is_written() {
    let (folder, elsewhere) = (Folder::new("loadaof-here"), Folder::new("loadaof-elsewhere"));
    let server = folder.serve(&[
        "--enable-debug-command",
        "yes",
        "--enable-protected-configs",
        "yes",
        "--appendonly",
        "yes",
    ]);
    let mut client = server.client();
    client.line("SET key value").is_ok();
    client.cmd(["CONFIG", "SET", "dir", &elsewhere.file("")]).is_ok();
    client.line("DEBUG LOADAOF").is_ok();
    client.line("GET key").is("value");
}

marked!(also_redis: a_reload_without_a_flush_refuses_libraries_that_are_there);
fn a_reload_without_a_flush_refuses_libraries_that_are_there() {
    let folder = Folder::new("reload-libraries");
    let options = ["--enable-debug-command", "yes", "--dir", &folder.file("")];
    let mut client = Server::start_with(&options).into_client();
    let library =
        |result: u8| format!("#!lua name=lib\nredis.register_function('f', function() return {result} end)");
    client.cmd(["FUNCTION", "LOAD", &library(1)]).is("lib");
    let refused = "ERR Error trying to load the RDB dump, check server logs.";
    client.line("DEBUG RELOAD NOFLUSH").is_error(refused);
    client.line("FCALL f 0").is(1);
    client.line("DEBUG RELOAD").is_ok();
    client.line("FCALL f 0").is(1);
    // The file has the library as it was.
    client.cmd(["FUNCTION", "LOAD", "REPLACE", &library(2)]).is("lib");
    client.line("DEBUG RELOAD NOSAVE NOFLUSH").is_error(refused);
    client.line("FCALL f 0").is(2);
    client.line("DEBUG RELOAD NOSAVE NOFLUSH MERGE").is_ok();
    client.line("FCALL f 0").is(1);
    client.cmd(["FUNCTION", "LOAD", &library(2).replace("=lib", "=other").replace("'f'", "'g'")]).is("other");
    client.line("DEBUG RELOAD NOSAVE").is_ok();
    assert_eq!(client.line("FUNCTION LIST").items().len(), 1);
}

marked!(also_redis: checksums_are_not_verified_if_a_test_says_so);
fn checksums_are_not_verified_if_a_test_says_so() {
    const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    let folder = Folder::new("skipped-checksums");
    let options = ["--enable-debug-command", "yes", "--dir", &folder.file("")];
    let mut client = Server::start_with(&options).into_client();
    client.line("SET k v").is_ok();
    client.cmd(["FUNCTION", "LOAD", LIBRARY]).is("lib");
    let damaged = |client: &mut Client, words: &[&str]| {
        let payload = client.cmd(words).reply();
        let Reply::Bulk(mut payload) = payload else { panic!("{payload:?}") };
        *payload.last_mut().unwrap() ^= 1;
        payload
    };
    let (value, library) =
        (damaged(&mut client, &["DUMP", "k"]), damaged(&mut client, &["FUNCTION", "DUMP"]));
    let restore = |client: &mut Client| client.cmd([&b"RESTORE"[..], b"k", b"0", &value, b"REPLACE"]);
    let restore_library =
        |client: &mut Client| client.cmd([&b"FUNCTION"[..], b"RESTORE", &library, b"FLUSH"]);
    // The checksum of a file is at its end.
    client.line("SAVE").is_ok();
    let path = folder.file("dump.rdb");
    let mut file = fs::read(&path).unwrap();
    *file.last_mut().unwrap() ^= 1;
    fs::write(&path, file).unwrap();
    let refused = "ERR DUMP payload version or checksum are wrong";
    restore(&mut client).is_error(refused);
    restore_library(&mut client).is_error(refused);
    if !is_redis() {
        // Redis has flushed by then, and ends.
        client
            .line("DEBUG RELOAD NOSAVE")
            .is_error("ERR Error trying to load the RDB dump, check server logs.");
    }
    client.line("DEBUG SET-SKIP-CHECKSUM-VALIDATION 1").is_ok();
    restore(&mut client).is_ok();
    restore_library(&mut client).is_ok();
    client.line("DEBUG RELOAD NOSAVE").is_ok();
    client.line("GET k").is("v");
    client.line("DEBUG SET-SKIP-CHECKSUM-VALIDATION 0").is_ok();
    restore(&mut client).is_error(refused);
}

#[test]
fn what_debug_cannot_do_is_refused() {
    let mut client = server().into_client();
    for (name, why) in [
        (
            "SET-DISABLE-DENY-SCRIPTS",
            "a command that scripts may not call cannot run while a script has its locks",
        ),
        ("QUICKLIST-PACKED-THRESHOLD", "lists have no nodes of single elements"),
    ] {
        client
            .line(&format!("DEBUG {name} 1"))
            .is_error(&format!("ERR DEBUG {name} is not supported: {why}"));
        // As it is.
        client.line(&format!("DEBUG {name} 0")).is_ok();
        assert!(client.line("DEBUG HELP").reply().to_string().contains(name));
    }
}
