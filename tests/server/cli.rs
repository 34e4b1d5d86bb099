//! The client, as people and scripts call it.
//!
//! With `KEYFAST_TEST_CLI=/path/to/redis-cli` the same is asked of the real redis-cli (7.0), which tells
//! whether a test asks for the right thing; and both are compared over the observed conversations.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use serde_json::Value;

use support::certificates::Certificates;
use support::folder::Folder;
use support::marks::{self, Mark};
use support::server::{PATIENCE, Server, free_port, signal};
use support::tools::installed;

/// Whether the client under test is the real one. Only a test with the mark `also_cli` may ask that.
#[track_caller]
pub(crate) fn is_redis_cli() -> bool {
    marks::require(Mark::AlsoCli);
    std::env::var_os("KEYFAST_TEST_CLI").is_some()
}

/// The client under test.
#[track_caller]
pub(crate) fn tested() -> Command {
    if is_redis_cli() { Command::new(std::env::var("KEYFAST_TEST_CLI").expect("a path")) } else { own() }
}

/// The client of this project.
pub(crate) fn own() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keyfast"));
    command.arg("cli");
    command
}

/// What a client has printed, and its exit code; bytes are characters.
#[derive(Debug, PartialEq)]
pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) complaint: String,
    pub(crate) code: Option<i32>,
}

impl Ran {
    #[track_caller]
    pub(crate) fn printed(&self, expected: &str) {
        let expected = Ran { output: expected.to_owned(), complaint: String::new(), code: Some(0) };
        assert_eq!(*self, expected);
    }

    #[track_caller]
    pub(crate) fn failed(&self, output: &str, complaint: &str) {
        let expected = Ran { output: output.to_owned(), complaint: complaint.to_owned(), code: Some(1) };
        assert_eq!(*self, expected);
    }
}

/// Runs a client to its end.
#[track_caller]
pub(crate) fn run(mut client: Command, arguments: &[&str], input: &[u8]) -> Ran {
    client.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !client.get_envs().any(|(name, _)| name == "REDISCLI_AUTH") {
        client.env_remove("REDISCLI_AUTH");
    }
    let mut child = client.spawn().expect("the client starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // It may end before it has read all.
    let writing = thread::spawn(move || drop(stdin.write_all(&input)));
    let id = child.id();
    let (ended, waiting) = channel();
    let reading = thread::spawn(move || ended.send(child.wait_with_output()));
    let output: Output = match waiting.recv_timeout(6 * PATIENCE) {
        Ok(output) => output.expect("output"),
        Err(_) => {
            signal(id, "KILL");
            panic!("the client does not end: {arguments:?}");
        }
    };
    reading.join().unwrap().unwrap();
    writing.join().unwrap();
    let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    Ran { output: text(&output.stdout), complaint: text(&output.stderr), code: output.status.code() }
}

/// Runs the client under test against a server.
#[track_caller]
fn cli_with(server: &Server, arguments: &[&str], input: &[u8]) -> Ran {
    let port = server.port().to_string();
    run(tested(), &[&["-p", &port], arguments].concat(), input)
}

#[track_caller]
pub(crate) fn cli(server: &Server, arguments: &[&str]) -> Ran {
    cli_with(server, arguments, b"")
}

/// Runs it against a server that answers everything by these bytes, and leaves.
#[track_caller]
fn told(reply: &[u8], arguments: &[&str]) -> Ran {
    told_to(tested(), reply, arguments)
}

#[track_caller]
pub(crate) fn told_to(client: Command, reply: &[u8], arguments: &[&str]) -> Ran {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().unwrap().port().to_string();
    let reply = reply.to_vec();
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _ = stream.read(&mut [0; 1024]);
        // The client may have had enough.
        let _ = stream.write_all(&reply);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let ran = run(client, &[&["-p", &port], arguments, &["anything"]].concat(), b"");
    serving.join().unwrap();
    ran
}

const EVERY_KIND: &[u8] =
    b"*12\r\n$7\r\na\"\xff\x1b\x7f\n\t\r\n+st\x01\r\n-ERR e\r\n:-5\r\n,1.50\r\n,inf\r\n#t\r\n_\r\n\
    ,-1e5\r\n=8\r\ntxt:he\"o\r\n$-1\r\n*-1\r\n";
const NESTED: &[u8] = b"*2\r\n\
    %3\r\n$1\r\na\r\n*2\r\n:1\r\n:2\r\n:5\r\n%1\r\n+x\r\n~1\r\n:1\r\n*1\r\n:3\r\n>0\r\n\
    *11\r\n*2\r\n:1\r\n~2\r\n+a\r\n%2\r\n+k\r\n*1\r\n%1\r\n:1\r\n:2\r\n+k2\r\n*0\r\n\
    :2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n:10\r\n#f\r\n";
const NOTHING: &[u8] = b"*4\r\n~0\r\n%0\r\n>0\r\n*0\r\n";

marked!(also_cli: people_see_kinds_and_nesting);
fn people_see_kinds_and_nesting() {
    told(EVERY_KIND, &["--no-raw"]).printed(
        " 1) \"a\\\"\\xff\\x1b\\x7f\\n\\t\"\n 2) st\x01\n 3) (error) ERR e\n 4) (integer) -5\n 5) (double) 1.50\n \
         6) (double) inf\n 7) (true)\n 8) (nil)\n 9) (double) -1e5\n10) he\"o\n11) (nil)\n12) (nil)\n",
    );
    told(NESTED, &["--no-raw"]).printed(
        "1) 1# \"a\" => \n      1) (integer) 1\n      2) (integer) 2\n   \
         2# (integer) 5 => 1# x => 1~ (integer) 1\n   3# 1) (integer) 3 => (empty push)\n\
         2)  1) 1) (integer) 1\n       2) 1~ a\n          \
         2~ 1# k => 1) 1# (integer) 1 => (integer) 2\n             2# k2 => (empty array)\n    \
         2) (integer) 2\n    3) (integer) 3\n    4) (integer) 4\n    5) (integer) 5\n    6) (integer) 6\n    \
         7) (integer) 7\n    8) (integer) 8\n    9) (integer) 9\n   10) (integer) 10\n   11) (false)\n",
    );
    told(NOTHING, &["--no-raw"])
        .printed("1) (empty set)\n2) (empty hash)\n3) (empty push)\n4) (empty array)\n");
}

marked!(also_cli: scripts_see_values_alone);
fn scripts_see_values_alone() {
    told(EVERY_KIND, &[])
        .printed("a\"\u{ff}\x1b\x7f\n\t\nst\x01\nERR e\n\n-5\n1.50\ninf\n(true)\n\n-1e5\nhe\"o\n\n\n");
    told(NESTED, &["--raw"])
        .printed("a 1\n2\n5 x 1\n3 \n1\na\nk 1 2\nk2 \n2\n3\n4\n5\n6\n7\n8\n9\n10\n(false)\n");
    told(NOTHING, &[]).printed("\n\n\n\n");
    told(b"*2\r\n:1\r\n*2\r\n:2\r\n:3\r\n", &["-d", ", ", "-D", ";"]).printed("1, 2, 3;");
    told(b"-ERR x\r\n", &[]).printed("ERR x\n\n");
    told(b"-ERR x\r\n", &["-e"]).failed("", "ERR x\n");
}

marked!(also_cli: csv_and_json_have_all_of_it);
fn csv_and_json_have_all_of_it() {
    told(EVERY_KIND, &["--csv"]).printed(
        "\"a\\\"\\xff\\x1b\\x7f\\n\\t\",\"st\\x01\",ERROR,\"ERR e\",-5,1.50,inf,true,NULL,-1e5,\"he\\\"o\",NULL,NULL\n",
    );
    told(NESTED, &["--csv"])
        .printed("\"a\",1,2,5,\"x\",1,3,,1,\"a\",\"k\",1,2,\"k2\",,2,3,4,5,6,7,8,9,10,false\n");
    told(EVERY_KIND, &["-2", "--json"]).printed(
        "[\"a\\\"\u{ff}\\u001b\x7f\\n\\t\",\"st\\u0001\",error:\"ERR e\",-5,1.50,inf,true,null,-1e5,\
         \"he\\\"o\",null,null]\n",
    );
    told(EVERY_KIND, &["-2", "--quoted-json"]).printed(
        "[\"a\\\\\"\\\\xff\\\\x1b\\\\x7f\\\\n\\\\t\",\"st\\\\x01\",error:\"ERR e\",-5,1.50,inf,true,null,-1e5,\
         \"he\\\\\"o\",null,null]\n",
    );
    told(NESTED, &["-2", "--json"]).printed(
        "[{\"a\":[1,2],\"5\":{\"x\":[1]},\"[3]\":[]},\
         [[1,[\"a\",{\"k\":[{\"1\":2}],\"k2\":[]}]],2,3,4,5,6,7,8,9,10,false]]\n",
    );
    told(NOTHING, &["-2", "--json"]).printed("[[],{},[],[]]\n");
}

marked!(also_cli: pushes_are_printed_where_they_are_wanted);
fn pushes_are_printed_where_they_are_wanted() {
    let invalidated = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n:1\r\n";
    told(invalidated, &["--no-raw"]).printed("(integer) 1\n");
    told(invalidated, &["--no-raw", "--show-pushes", "y"]).printed("-> invalidate: 'a', 'b'\n(integer) 1\n");
    told(b">2\r\n+k\r\n+v\r\n:1\r\n", &["--no-raw", "--show-pushes", "y"])
        .printed("1) k\n2) v\n(integer) 1\n");
}

marked!(also_cli: a_server_that_talks_nonsense_is_told_apart_from_one_that_leaves);
fn a_server_that_talks_nonsense_is_told_apart_from_one_that_leaves() {
    for (reply, expected) in [
        (&b""[..], "Server closed the connection"),
        (b"$3\r\nab", "Server closed the connection"),
        (b"*2\r\n:1\r\n", "Server closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol error, got \"H\" as reply type byte"),
        (b"!5\r\nERR x\r\n", "Protocol error, got \"!\" as reply type byte"),
        (b"|1\r\n+k\r\n+v\r\n:1\r\n", "Protocol error, got \"|\" as reply type byte"),
        (b"*99999999999\r\n", "Multi-bulk length out of range"),
        (b"$-2\r\n", "Bulk string length out of range"),
        (b":abc\r\n", "Bad integer value"),
        (b":007\r\n", "Bad integer value"),
        (b"+a\nb\r\n", "Bad simple string value"),
        (b"_x\r\n", "Bad nil value"),
    ] {
        told(reply, &[]).failed("", &format!("Error: {expected}\n"));
    }
    if !is_redis_cli() {
        // redis-cli asks for that much memory at once.
        told(b"*4294967295\r\n:1\r\n", &[]).failed("", "Error: Server closed the connection\n");
    }
}

/// The client of this project, with little memory.
pub(crate) fn limited() -> Command {
    let mut client = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_keyfast");
    client.args(["-c", "ulimit -v 400000; ulimit -s 8192; exec \"$0\" cli \"$@\"", program]);
    client
}

marked!(also_cli: no_server_can_exhaust_the_client);
fn no_server_can_exhaust_the_client() {
    // redis-cli believes the server.
    let deep = "Error: Protocol error, replies nested more than 512 deep\n";
    told_to(limited(), &b"*1\r\n".repeat(1_000_000), &[]).failed("", deep);
    told_to(limited(), &b"%1\r\n".repeat(1_000_000), &[]).failed("", deep);
    let left = "Error: Server closed the connection\n";
    told_to(limited(), &b"*4294967295\r\n".repeat(500), &[]).failed("", left);
    told_to(limited(), b"$4000000000\r\nx", &[]).failed("", left);
    told_to(limited(), b"$9999999999999\r\nx", &[]).failed("", "Error: Bulk string length out of range\n");
    let deepest = [&b"*1\r\n".repeat(511)[..], b"*2\r\n:1\r\n:2\r\n"].concat();
    for output in ["--no-raw", "--raw", "--csv"] {
        let ran = told_to(limited(), &deepest, &[output]);
        assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
        assert!(ran.output.ends_with("2\n"));
    }
}

marked!(also_cli: arguments_make_a_command);
fn arguments_make_a_command() {
    let server = Server::start();
    cli(&server, &["SET", "key", "a value"]).printed("OK\n");
    cli(&server, &["GET", "key"]).printed("a value\n");
    cli(&server, &["--no-raw", "GET", "key"]).printed("\"a value\"\n");
    cli(&server, &["-n", "3", "EXISTS", "key"]).printed("0\n");
    cli(&server, &["-r", "3", "-i", "0.001", "INCR", "counter"]).printed("1\n2\n3\n");
    cli(&server, &["-r", "0", "INCR", "counter"]).printed("");
    cli(&server, &["-3", "ACL", "WHOAMI"]).printed("default\n");
    cli(&server, &["--json", "-n", "1", "PING"]).printed("\"PONG\"\n");
    cli(&server, &["--quoted-input", "GET", "\"\\x6bey\""]).printed("a value\n");
    cli(&server, &["--quoted-input", "GET", "\"key"]).failed("Invalid quoted string\n", "");
    cli(&server, &["-e", "NOSUCH"]).failed("", "ERR unknown command 'NOSUCH'\n");
    cli_with(&server, &["-x", "SET", "key"], b"line one\r\nline two").printed("OK\n");
    cli(&server, &["--no-raw", "GET", "key"]).printed("\"line one\\r\\nline two\"\n");
    cli_with(&server, &["-X", "tag", "SET", "tag", "value"], b"key").printed("OK\n");
    cli_with(&server, &["-X", "other", "SET", "tag", "value"], b"key")
        .failed("", "Using -X option but stdin tag not match.\n");
    let uri = format!("redis://127.0.0.1:{}/2", server.port());
    run(tested(), &["-u", &uri, "SET", "in", "two"], b"").printed("OK\n");
    cli(&server, &["-n", "2", "GET", "in"]).printed("two\n");
    cli(&server, &["SHUTDOWN", "NOSAVE"]).printed("");
}

marked!(also_cli: what_cannot_be_done_is_said);
fn what_cannot_be_done_is_said() {
    let port = free_port().to_string();
    let refused = format!("Could not connect to Redis at 127.0.0.1:{port}: Connection refused\n");
    for arguments in [&["ping"][..], &["--pipe"], &["--scan"], &["--stat"], &["--bigkeys"], &["--latency"]] {
        run(tested(), &[&["-p", &port], arguments].concat(), b"").failed("", &refused);
    }
    let ran = run(tested(), &["-p", &port], b"ping\nping\n");
    assert_eq!((ran.code, ran.complaint), (Some(0), refused.repeat(3)));
    run(tested(), &["-s", "/nosuch", "ping"], b"")
        .failed("", "Could not connect to Redis at /nosuch: No such file or directory\n");
    for (arguments, expected) in [
        (&["--nosuch"][..], "Unrecognized option or bad number of args for: '--nosuch'\n"),
        (&["-p"], "Unrecognized option or bad number of args for: '-p'\n"),
        (&["-u", "http://h"], "Invalid URI scheme\n"),
        (&["-2", "-3", "ping"], "Options -2 and -3 are mutually exclusive.\n"),
        (&["-x", "-X", "a", "ping"], "Options -x and -X are mutually exclusive.\n"),
    ] {
        run(tested(), arguments, b"").failed("", expected);
    }
    let server = Server::start();
    let ran = cli(&server, &["-n", "99", "PING"]);
    assert_eq!(ran.complaint, "SELECT 99 failed: ERR DB index is out of range\n");
    assert_eq!((ran.output.as_str(), ran.code), ("PONG\n", Some(0)));
}

marked!(also_cli: a_password_opens_the_door_and_is_warned_of);
fn a_password_opens_the_door_and_is_warned_of() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let warning =
        "Warning: Using a password with '-a' or '-u' option on the command line interface may not be safe.\n";
    let wrong = "AUTH failed: WRONGPASS invalid username-password pair or user is disabled.\n";
    let ran = cli(&server, &["-a", "secret", "PING"]);
    assert_eq!((ran.output.as_str(), ran.complaint.as_str()), ("PONG\n", warning));
    cli(&server, &["-a", "secret", "--no-auth-warning", "-3", "PING"]).printed("PONG\n");
    cli(&server, &["--user", "default", "--pass", "secret", "--no-auth-warning", "PING"]).printed("PONG\n");
    let uri = format!("redis://default:s%65cret@127.0.0.1:{}", server.port());
    run(tested(), &["-u", &uri, "--no-auth-warning", "PING"], b"").printed("PONG\n");
    let port = server.port().to_string();
    let with_variable = |password: &str| {
        let mut client = tested();
        client.env("REDISCLI_AUTH", password);
        run(client, &["-p", &port, "PING"], b"")
    };
    with_variable("secret").printed("PONG\n");
    let ran = with_variable("wrong");
    assert_eq!((ran.complaint.as_str(), ran.code), (wrong, Some(0)));
    assert_eq!(ran.output, "NOAUTH Authentication required.\n\n");
    let ran = cli(&server, &["-3", "PING"]);
    assert!(ran.complaint.starts_with("HELLO 3 failed: NOAUTH HELLO must be called with the client already"));
    assert_eq!(ran.output, "NOAUTH Authentication required.\n\n");
    cli_with(&server, &[], b"GET a\nAUTH secret\nPING\n")
        .printed("NOAUTH Authentication required.\n\nOK\nPONG\n");
}

marked!(also_cli: lines_are_commands);
fn lines_are_commands() {
    let server = Server::start();
    let input = b"set \"a b\" '1'\nget \"unbalanced\nget \"a\"b\n\n  \nget \"a b\"\r\n3 incr n\n0 ping\n\"\" ping\n:set foo\n\
        :foo\nrestart\nQUIT now\nping\n";
    cli_with(&server, &[], input).printed(
        "OK\nInvalid argument(s)\nInvalid argument(s)\n1\n1\n2\n3\n\
         Invalid redis-cli repeat command option value.\nInvalid redis-cli repeat command option value.\n\
         unknown redis-cli preference 'foo'\nunknown redis-cli internal command ':foo'\n\
         Use 'restart' only in Lua debugging mode.\n",
    );
    let long =
        [b"strlen ".to_vec(), vec![b'x'; 200_000], b"\nset long ".to_vec(), vec![b'x'; 200_000]].concat();
    cli_with(&server, &[], &long).printed("0\nOK\n");
    cli(&server, &["STRLEN", "long"]).printed("200000\n");
    cli_with(&server, &["--no-raw"], b"multi\nselect 1\nget n\nexec\nget n\n")
        .printed("OK\nQUEUED\nQUEUED\n1) OK\n2) (nil)\n(nil)\n");
}

marked!(also_cli: a_lost_connection_is_opened_again);
fn a_lost_connection_is_opened_again() {
    let server = Server::start();
    let kill = b"select 2\nset a 1\nclient kill type normal skipme no\nget a\nget a\n";
    // In the database where it was: there redis-cli goes back to the first one, and does not say so.
    let ran = run(own(), &["-p", &server.port().to_string()], kill);
    assert_eq!(ran.output, "OK\nOK\n1\n1\n");
    assert_eq!(ran.code, Some(0));
    // Which of them depends on how fast the server closes.
    let ends = ["Error: Server closed the connection\n", "Error: Connection reset by peer\n"];
    assert!(ends.contains(&ran.complaint.as_str()), "{}", ran.complaint);
}

marked!(also_cli: the_whole_keyspace_can_be_looked_at);
fn the_whole_keyspace_can_be_looked_at() {
    let server = Server::start();
    let mut client = server.client();
    client.line("MSET a 1 bb 22 longest xyz").is_ok();
    let scan = |arguments: &[&str]| {
        let ran = cli(&server, &[&["--scan"], arguments].concat());
        assert_eq!((ran.code, ran.complaint.as_str()), (Some(0), ""));
        let mut lines: Vec<String> = ran.output.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join(" ")
    };
    assert_eq!(scan(&[]), "a bb longest");
    assert_eq!(scan(&["--pattern", "*o*"]), "longest");
    assert_eq!(scan(&["--no-raw", "--pattern", "??"]), "\"bb\"");
    let ran = cli(&server, &["--bigkeys"]);
    for expected in [
        "\n# Scanning the entire keyspace to find biggest keys as well as\n",
        "] Biggest string found so far \"longest\" with 3 bytes\n",
        "\n-------- summary -------\n\nSampled 3 keys in the keyspace!\n\
         Total key length in bytes is 10 (avg len 3.33)\n\nBiggest string found \"longest\" has 3 bytes\n\n",
        "\n3 strings with 6 bytes (100.00% of keys, avg size 2.00)\n",
        "\n0 zsets with 0 members (00.00% of keys, avg size 0.00)\n",
    ] {
        assert!(ran.output.contains(expected), "no {expected:?} in {}", ran.output);
    }
    let ran = cli(&server, &["--memkeys", "--pattern", "longest"]);
    assert!(ran.output.contains("\nBiggest string found \"longest\" has "), "{}", ran.output);
    let folder = Folder::new("eval");
    let file = folder.write("eval.lua", "return {KEYS[1], ARGV[1], ARGV[2], #ARGV}");
    cli(&server, &["--eval", &file, "k", ",", "a", ","]).printed("k\na\n,\n2\n");
    cli(&server, &["--eval", "nosuch.lua"])
        .failed("", "Can't open file 'nosuch.lua': No such file or directory\n");
}

marked!(also_cli: a_flood_goes_through_a_pipe);
fn a_flood_goes_through_a_pipe() {
    let server = Server::start();
    let input: String = (0..100_000).map(|number| format!("SET key:{number} {number}\r\n")).collect();
    cli_with(&server, &["--pipe"], input.as_bytes()).printed(
        "All data transferred. Waiting for the last reply...\nLast reply received from server.\n\
         errors: 0, replies: 100000\n",
    );
    cli(&server, &["GET", "key:99999"]).printed("99999\n");
    // Replies that are larger than all the buffers between.
    let input = [&b"SET big "[..], &vec![b'x'; 60_000], b"\r\n", &b"GET big\r\n".repeat(2000)].concat();
    let ran = cli_with(&server, &["--pipe"], &input);
    assert!(ran.output.ends_with("\nerrors: 0, replies: 2001\n"), "{ran:?}");
    let ran = cli_with(&server, &["--pipe"], b"SET a\r\nPING\r\nnosuch\r\n");
    assert!(ran.output.ends_with("\nerrors: 2, replies: 3\n"), "{ran:?}");
    assert_eq!(
        ran.complaint,
        "ERR wrong number of arguments for 'set' command\n\
         ERR unknown command 'nosuch'\n"
    );
    assert_eq!(ran.code, Some(1));
}

marked!(also_cli: over_tls_a_server_has_to_be_vouched_for);
fn over_tls_a_server_has_to_be_vouched_for() {
    let certificates = Certificates::new("cli-tls");
    let (_server, tls_port) = certificates.serve("optional");
    let port = tls_port.to_string();
    let (authority, certificate, key) =
        (certificates.file("ca.pem"), certificates.file("client.pem"), certificates.file("client.key"));
    let tls = |arguments: &[&str]| run(tested(), &[&["-p", &port, "--tls"], arguments].concat(), b"");
    // Its certificate is for localhost, and it is asked for by its address.
    tls(&["--cacert", &authority, "PING"]).printed("PONG\n");
    tls(&["--insecure", "PING"]).printed("PONG\n");
    tls(&["--cacert", &authority, "--cert", &certificate, "--key", &key, "PING"]).printed("PONG\n");
    tls(&["--cacert", &authority, "--sni", "localhost", "PING"]).printed("PONG\n");
    let ran = tls(&["--cacert", &certificate, "PING"]);
    let refused = format!(
        "Could not connect to Redis at 127.0.0.1:{port}: SSL_connect failed: certificate verify failed"
    );
    assert!(ran.complaint.starts_with(&refused), "{ran:?}");
    assert_eq!((ran.output.as_str(), ran.code), ("", Some(1)));
}

marked!(also_cli: a_server_that_speaks_tls_is_recognized_without_tls);
fn a_server_that_speaks_tls_is_recognized_without_tls() {
    let certificates = Certificates::new("cli-plain");
    let (_server, tls_port) = certificates.serve("no");
    let ran = run(tested(), &["-p", &tls_port.to_string(), "PING"], b"");
    let hint = if is_redis_cli() { "" } else { ". The server seems to speak TLS: add --tls" };
    let refused = format!("Error: Protocol error, got \"\\x15\" as reply type byte{hint}\n");
    assert_eq!((ran.complaint, ran.code), (refused, Some(1)));
}

marked!(also_cli: a_certificate_that_is_its_own_authority_is_trusted_where_it_is_named);
fn a_certificate_that_is_its_own_authority_is_trusted_where_it_is_named() {
    let certificates = Certificates::new("cli-self");
    // As `openssl req -x509` makes them, and as other tools do.
    for is_authority in [true, false] {
        certificates.sign_server_by_itself(is_authority, 2100);
        let (_server, tls_port) = certificates.serve("no");
        let port = tls_port.to_string();
        let tls = |arguments: &[&str]| run(tested(), &[&["-p", &port, "--tls"], arguments].concat(), b"");
        tls(&["--cacert", &certificates.file("server.pem"), "PING"]).printed("PONG\n");
        for arguments in [&["PING"][..], &["--cacert", &certificates.file("client.pem"), "PING"]] {
            let ran = tls(arguments);
            let refused = "SSL_connect failed: certificate verify failed";
            assert!(ran.complaint.contains(refused) && ran.code == Some(1), "{ran:?}");
            let hint = "(the server's certificate is self-signed: name it with --cacert FILE";
            assert!(ran.complaint.contains(hint) || is_redis_cli(), "{ran:?}");
        }
    }
    certificates.sign_server_by_itself(true, 2001);
    let (server, tls_port) = certificates.serve("no");
    assert!(server.output().contains("server.pem: the certificate has expired"), "{}", server.output());
    let authority = certificates.file("server.pem");
    let ran = run(tested(), &["-p", &tls_port.to_string(), "--tls", "--cacert", &authority, "PING"], b"");
    let reason = if is_redis_cli() { "" } else { " (the certificate has expired)" };
    assert!(ran.complaint.contains(&format!("certificate verify failed{reason}")), "{ran:?}");
}

/// A client that goes on, and what it prints.
pub(crate) struct Running {
    child: Child,
    stdin: ChildStdin,
    pieces: Receiver<Vec<u8>>,
    printed: String,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the client starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = stdout.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take().expect("a pipe");
        Running { child, stdin, pieces, printed: String::new() }
    }

    /// Waits until it has printed this, after what was waited for before.
    #[track_caller]
    pub(crate) fn awaits(&mut self, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.printed.find(expected) {
                self.printed.drain(..at + expected.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.printed.push_str(&String::from_utf8_lossy(&piece)),
                Err(_) => panic!("no {expected:?} in {:?}", self.printed),
            }
        }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).expect("it reads");
    }

    /// What it has printed after what was waited for.
    pub(crate) fn rest(&self) -> &str {
        &self.printed
    }

    #[track_caller]
    pub(crate) fn ends_well(&mut self) {
        self.ends();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}, after {:?}", self.printed);
    }

    /// Waits for its end, and for all that it prints until then.
    #[track_caller]
    pub(crate) fn ends(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < deadline, "the client does not end");
            thread::sleep(std::time::Duration::from_millis(2));
        }
        for piece in self.pieces.iter() {
            self.printed.push_str(&String::from_utf8_lossy(&piece));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

marked!(also_cli: streams_are_printed_as_they_come);
fn streams_are_printed_as_they_come() {
    let server = Server::start();
    let port = server.port().to_string();
    let streaming = |arguments: &[&str]| {
        let mut command = tested();
        command.args(["-p", &port]).args(arguments);
        Running::start(command)
    };
    for protocol in ["-2", "-3"] {
        let mut raw = streaming(&[protocol, "SUBSCRIBE", "channel"]);
        raw.awaits("subscribe\nchannel\n1\n");
        let mut standard = streaming(&[protocol, "--no-raw", "PSUBSCRIBE", "chan*"]);
        standard.awaits("1) \"psubscribe\"\n2) \"chan*\"\n3) (integer) 1\n");
        server.client().line("PUBLISH channel hello").is(2);
        raw.awaits("message\nchannel\nhello\n");
        standard.awaits("1) \"pmessage\"\n2) \"chan*\"\n3) \"channel\"\n4) \"hello\"\n");
    }
    let mut monitor = streaming(&["MONITOR"]);
    monitor.awaits("OK\n");
    server.client().line("SET watched value").is_ok();
    monitor.awaits("\"SET\" \"watched\" \"value\"\n");
    cli_with(&server, &["--no-raw"], b"subscribe\nping\n")
        .printed("(error) ERR wrong number of arguments for 'subscribe' command\nPONG\n");
}

marked!(also_cli: a_confirmation_answers_a_command_that_has_no_reply);
fn a_confirmation_answers_a_command_that_has_no_reply() {
    // redis-cli waits for ever in RESP3, and is a reply behind in RESP2.
    let server = Server::start();
    for protocol in ["-2", "-3"] {
        let arguments = ["-p", &server.port().to_string(), protocol, "--no-raw"];
        run(own(), &arguments, b"unsubscribe a b\nping\n").printed(
            "1) \"unsubscribe\"\n2) \"a\"\n3) (integer) 0\n1) \"unsubscribe\"\n2) \"b\"\n3) (integer) 0\nPONG\n",
        );
    }
}

/// A client on a terminal, which the program `script` makes.
pub(crate) fn at_terminal(client: &Command, server: &Server, home: &str, arguments: &str) -> Running {
    let words = std::iter::once(client.get_program()).chain(client.get_args());
    // The path of the program may have blanks in it.
    let quoted = |word: &OsStr| format!("'{}'", word.to_str().expect("UTF-8").replace('\'', "'\\''"));
    let words: Vec<String> = words.map(quoted).collect();
    let line = format!("umask 0; stty cols 200; exec {} -p {} {arguments}", words.join(" "), server.port());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").env("HOME", home);
    command.env("SHELL", "/bin/sh");
    Running::start(command)
}

marked!(also_cli: at_a_terminal_there_are_a_prompt_hints_and_a_history);
fn at_a_terminal_there_are_a_prompt_hints_and_a_history() {
    let server = Server::start();
    let home = Folder::new("home");
    let mut client = at_terminal(&tested(), &server, &home.file(""), "");
    let place = format!("127.0.0.1:{}", server.port());
    client.awaits(&format!("{place}> "));
    client.types("set ");
    client.awaits("key value [");
    client.types("lock token\r");
    client.awaits("\r\nOK\r\n");
    // Each line waits for its prompt: redis-cli throws away what was typed before it had taken the terminal.
    client.awaits(&format!("{place}> "));
    client.types("select 1\r");
    client.awaits(&format!("{place}[1]> "));
    client.types("multi\r");
    client.awaits(&format!("{place}[1](TX)> "));
    client.types("discard\r");
    client.awaits(&format!("{place}[1]> "));
    client.types("subscribe news\r");
    client.awaits("3) (integer) 1\r\n");
    if is_redis_cli() {
        // It goes on to listen, with a prompt of its own.
        return;
    }
    client.types("\x03");
    client.awaits(&format!("{place}[1]> "));
    client.types("auth secret\r");
    client.awaits("(error) ");
    client.awaits(&format!("{place}[1]> "));
    client.types("\x1b[A\r"); // the line before, which is not the one with the password
    client.awaits("3) (integer) 1\r\n");
    client.types("\x03");
    client.awaits(&format!("{place}[1]> "));
    client.types("shutdown nosave\r");
    client.awaits("not connected> ");
    client.types("\x03");
    client.ends_well();
    let history = fs::read_to_string(home.file(".rediscli_history")).unwrap();
    let expected = ["set lock token", "select 1", "multi", "discard", "subscribe news", "shutdown nosave"];
    assert_eq!(history.lines().collect::<Vec<_>>(), expected);
}

marked!(also_cli: help_comes_from_the_server);
fn help_comes_from_the_server() {
    let server = Server::start();
    let ran = cli(&server, &["help", "client", "getname"]);
    // redis-cli prints that it has no arguments as a null pointer.
    let arguments = if is_redis_cli() { "(null)" } else { "" };
    let begin = format!(
        "\r\n  \x1b[1mCLIENT GETNAME\x1b[0m \x1b[90m{arguments}\x1b[0m\r\n  \x1b[33msummary:\x1b[0m "
    );
    assert!(ran.output.starts_with(&begin), "{ran:?}");
    assert!(
        ran.output.ends_with("\x1b[33msince:\x1b[0m 2.6.9\r\n  \x1b[33mgroup:\x1b[0m connection\r\n\r\n")
    );
    let ran = cli(&server, &["help", "@transactions"]);
    for name in ["DISCARD", "EXEC", "MULTI", "UNWATCH", "WATCH"] {
        assert!(ran.output.contains(&format!("\x1b[1m{name}\x1b[0m")), "{}", ran.output);
    }
    cli(&server, &["help", "nosuch"]).printed("\r\n");
    assert!(cli(&server, &["help"]).output.contains("\"help <command>\" for help on <command>\n"));
}

/// Commands after which there is no next reply, or which end one of the clients.
const ENDLESS: [&str; 9] = [
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "unsubscribe",
    "punsubscribe",
    "sunsubscribe",
    "monitor",
    "quit",
    "shutdown",
];
/// What two servers do not answer alike.
const VARYING: [&str; 14] = [
    "client",
    "debug",
    "dump",
    "info",
    "keys",
    "lastsave",
    "latency",
    "lolwut",
    "memory",
    "pttl",
    "randomkey",
    "scan",
    "slowlog",
    "time",
];

/// The commands of the observed conversations that are on one connection, as lines of the client.
fn observed_lines() -> Vec<u8> {
    let mut lines = Vec::new();
    for case in include_str!("../commands/conformance/observed.jsonl").lines() {
        let case: Value = serde_json::from_str(case).expect("a case");
        let steps = case["steps"].as_array().expect("steps");
        let has_others = steps.iter().any(|step| step.get("conn").is_some_and(|connection| connection != 0));
        // What waits in between is about time, which two clients do not take alike.
        let waits = steps.iter().any(|step| step.get("wait_ms").is_some());
        if has_others || waits {
            continue;
        }
        lines.extend(b"reset\nflushall\n");
        for step in steps.iter().filter_map(|step| step["send"].as_str()) {
            for words in words_sent(step) {
                let name = words[0].to_lowercase();
                // A second may begin between a use and the look at how long ago it was.
                let asks_idleness = words.get(1).is_some_and(|word| word.eq_ignore_ascii_case("idletime"));
                if ENDLESS.contains(&name.as_str()) || VARYING.contains(&name.as_str()) || asks_idleness {
                    continue;
                }
                for word in words {
                    lines.push(b'"');
                    for byte in word.chars() {
                        lines.extend(format!("\\x{:02x}", byte as u32).bytes());
                    }
                    lines.extend(b"\" ");
                }
                lines.push(b'\n');
            }
        }
    }
    lines
}

/// The requests that a step sends, if they are arrays; a word has a character for each byte.
fn words_sent(mut sent: &str) -> Vec<Vec<String>> {
    let mut requests = Vec::new();
    while let Some((count, mut rest)) = sent.strip_prefix('*').and_then(|array| array.split_once("\r\n")) {
        let Ok(count @ 1..) = count.parse::<usize>() else { break };
        let mut words = Vec::new();
        for _ in 0..count {
            let Some((length, after)) = rest.strip_prefix('$').and_then(|bulk| bulk.split_once("\r\n"))
            else {
                return requests;
            };
            let Ok(length) = length.parse::<usize>() else { return requests };
            words.push(after.chars().take(length).collect());
            let start: usize = after.chars().take(length + 2).map(char::len_utf8).sum();
            rest = &after[start..];
        }
        requests.push(words);
        sent = rest;
    }
    requests
}

marked!(needs_tools: the_observed_conversations_look_as_redis_cli_shows_them);
fn the_observed_conversations_look_as_redis_cli_shows_them() {
    if installed("redis-cli").is_none() {
        return;
    }
    let lines = observed_lines();
    let count = lines.split(|byte| *byte == b'\n').count();
    assert!(count > 1500, "{count} lines");
    for protocol in ["-2", "-3"] {
        for output in ["--no-raw", "--raw", "--csv", "--json", "--quoted-json"] {
            let show = |client: Command| {
                let server = Server::start();
                let arguments = ["-p", &server.port().to_string(), protocol, output];
                let ran = run(client, &arguments, &with_protocol(&lines, protocol));
                // Half a second is soon over on a busy machine.
                let is_kept = |line: &&str| !is_duration(line.trim_end());
                Ran { output: ran.output.split_inclusive('\n').filter(is_kept).collect(), ..ran }
            };
            let (expected, shown) = (show(Command::new("redis-cli")), show(own()));
            let pairs = expected.output.lines().zip(shown.output.lines());
            for (number, (expected, shown)) in pairs.enumerate() {
                assert_eq!(expected, shown, "line {number} of {protocol} {output}");
            }
            assert_eq!(expected, shown, "{protocol} {output}");
            println!("{protocol} {output}: {} lines of output are the same", shown.output.lines().count());
        }
    }
}

/// Whether a line is the time that a slow request took, as `(0.63s)`.
fn is_duration(line: &str) -> bool {
    let number = line.strip_prefix('(').and_then(|line| line.strip_suffix("s)"));
    number.is_some_and(|number| number.parse::<f64>().is_ok())
}

/// The same lines, which go back to the protocol after each RESET.
fn with_protocol(lines: &[u8], protocol: &str) -> Vec<u8> {
    let lines = String::from_utf8_lossy(lines);
    match protocol {
        "-3" => lines.replace("reset\n", "reset\nhello 3\n").into_bytes(),
        _ => lines.into_owned().into_bytes(),
    }
}
