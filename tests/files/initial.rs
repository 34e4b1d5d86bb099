//! Initial data (`--init`): files that fill an empty data set, all or nothing.

use std::fs;
use std::process::Command;

use support::client::Reply;
use support::folder::Folder;
use support::replies::integer;
use support::server::{Server, program};

/// A folder with initial data in all forms but a snapshot, and the options for it.
fn data(test: &str) -> (Folder, Vec<String>) {
    let folder = Folder::new(&format!("initial_{test}"));
    let files = [
        (
            "a file.redis",
            "# a comment\nSET \"my key\" \"two\\nlines\"\n\nSET brief v PX 600000\nRPUSH order a b c\n",
        ),
        ("b.resp", "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$2\r\nx\n\r\n*2\r\n$4\r\nINCR\r\n$5\r\ncount\r\n"),
        (
            "c.json",
            r#"{"text":"\u00e4","exact":1.10,"large":12345678901234567890123,"list":[1,"two"],"hash":{"a":-1},"empty":[]}"#,
        ),
    ];
    let mut options = Vec::new();
    for (name, text) in files {
        fs::write(folder.file(name), text).unwrap();
        options.extend(["--init".to_owned(), folder.file(name)]);
    }
    (folder, options)
}

fn start(options: &[String], more: &[&str]) -> Server {
    let options: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Server::start_with(&options)
}

#[test]
fn commands_requests_and_json_fill_an_empty_server() {
    let (_folder, options) = data("forms");
    let mut client = start(&options, &[]).into_client();
    client.cmd(["GET", "my key"]).is("two\nlines");
    assert!((590_000..=600_000).contains(&client.line("PTTL brief").integer()));
    client.line("GET b").is("x\n");
    client.line("GET count").is("1");
    client.line("GET text").is("ä");
    client.line("GET exact").is("1.10");
    client.line("GET large").is("12345678901234567890123");
    client.line("LRANGE list 0 -1").is(Reply::Array(vec!["1".into(), "two".into()]));
    client.line("HGET hash a").is("-1");
    client.line("DBSIZE").is(10);
}

#[test]
fn a_snapshot_fills_an_empty_server_and_no_other_one() {
    let (folder, options) = data("snapshot");
    let place = folder.file("");
    let mut client = start(&options, &["--dir", &place]).into_client();
    client.line("SET more 1").is_ok();
    client.line("SAVE").is_ok();
    fs::rename(folder.file("dump.rdb"), folder.file("d.rdb")).unwrap();
    let snapshot = ["--init".to_owned(), folder.file("d.rdb")];
    let server = start(&snapshot, &["--dir", &place, "--appendonly", "yes"]);
    let mut client = server.client();
    client.line("DBSIZE").is(11);
    client.line("SANDBOX RESET").is_error(&format!(
        "ERR --init {}: a snapshot cannot be loaded again while there is a log",
        folder.file("d.rdb")
    ));
    drop((client, server));
    // The log has the initial data, and what has become of them.
    let server = start(&options, &["--dir", &place, "--appendonly", "yes"]);
    let mut client = server.client();
    server.wait_for_output("the initial data of 3 files are passed over");
    client.line("DBSIZE").is(11);
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_nothing_starts() {
    let folder = Folder::new("initial_wrong");
    for (name, text, why) in [
        ("a.redis", "SET a 1\n\nSET b\n", "line 3: Wrong number of arguments for command 'SET'"),
        ("a.redis", "SET a 1\nNOSUCH\n", "line 2: Unknown command 'NOSUCH'"),
        ("a.redis", "SET a \"1\n", "line 1: unbalanced quotes"),
        ("a.redis", "SET a 1\nLPUSH a 1\n", "line 2: WRONGTYPE Operation against a key"),
        ("a.redis", "CONFIG SET timeout 1\n", "line 1: CONFIG SET changes no data"),
        ("a.redis", "SHUTDOWN\n", "line 1: SHUTDOWN changes no data"),
        ("a.redis", "SELECT 16\n", "line 1: ERR DB index is out of range"),
        ("a.resp", "*1\r\n$4\r\nPI", "request 1: it is not whole"),
        ("a.resp", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n*1\r\n$-4\r\n", "request 2: ERR Protocol error"),
        ("a.json", "{\"a\":\n", "EOF while parsing a value at line 2"),
        ("a.json", "[1]", "invalid type: sequence, expected a map"),
        ("a.json", "{\"a\":true}", "key a: it is neither a text nor a number"),
        ("a.json", "{\"a\":[[1]]}", "key a: it is neither a text nor a number"),
        ("a.rdb", "REDIS", "Unexpected EOF reading RDB file"),
        ("a.txt", "", "its name must end in .redis, .resp, .rdb or .json"),
    ] {
        let path = folder.file(name);
        fs::write(&path, text).unwrap();
        let output =
            Command::new(program()).args(["--port", "0", "--save", "", "--init", &path]).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(!output.status.success() && printed.contains(&path) && printed.contains(why), "{printed}");
    }
    for options in
        [&["--init", "/nosuch.redis"][..], &["--init"], &["--init", "a.redis", "--store", "etcd://x"]]
    {
        let output = Command::new(program()).args(options).args(["--port", "0"]).output().unwrap();
        assert!(!output.status.success(), "{options:?}");
    }
}

#[test]
fn each_sandbox_begins_with_them_and_a_reset_restores_them() {
    let (_folder, options) = data("sandboxes");
    let server = start(&options, &["--sandboxes", "8"]);
    let (mut client, mut observer) = (server.client(), server.client3());
    let numbers = || {
        let listed = observer.line("SANDBOX LIST").items();
        listed.iter().map(|it| integer(it, "database")).collect::<Vec<_>>()
    };
    let mut numbers = numbers;
    client.line("DEL exact").is(1);
    client.line("SELECT 3").is_ok();
    client.line("GET exact").is("1.10");
    client.line("SELECT 4").is_ok();
    client.line("FLUSHALL").is_ok();
    client.line("SELECT 0").is_ok();
    assert_eq!(numbers(), [0, 4], "the one that was only looked at is given back");
    client.line("SELECT 4").is_ok();
    client.line("DBSIZE").is(0);
    client.line("SANDBOX RESET").is_ok();
    client.line("DBSIZE").is(10);
    client.line("SELECT 0").is_ok();
    client.line("EXISTS exact").is(0);
    client.line("SANDBOX RESET 0").is_ok();
    client.line("GET exact").is("1.10");
    assert_eq!(numbers(), [0]);
}

#[test]
fn a_reset_is_in_the_log() {
    let (folder, options) = data("log");
    let place = folder.file("");
    let server = start(&options, &["--dir", &place, "--appendonly", "yes"]);
    let mut client = server.client();
    client.line("DEL exact text").is(2);
    client.line("SANDBOX RESET").is_ok();
    client.line("SET mine 1").is_ok();
    drop((client, server));
    let mut client = start(&[], &["--dir", &place, "--appendonly", "yes"]).into_client();
    client.line("GET exact").is("1.10");
    client.line("DBSIZE").is(11);
}
