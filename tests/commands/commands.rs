//! The commands on strings and keys, beyond what the observed conversations hold.

use support::client::Reply;
use support::server::{Server, is_redis};

const BINARY: &[u8] = b"\0\x01\r\n\xff$-1\r\n";

marked!(also_redis: the_documents_transcript_of_setnx);
fn the_documents_transcript_of_setnx() {
    let mut client = Server::start().into_client();
    client.line("SETNX mykey Hello").is(1);
    client.line("SETNX mykey World").is(0);
    client.line("GET mykey").is("Hello");
}

marked!(also_redis: set_takes_its_options_in_any_order_and_case);
fn set_takes_its_options_in_any_order_and_case() {
    let mut client = Server::start().into_client();
    client.line("SET k 1 ex 100 nx").is_ok();
    client.line("SET k 2 NX PX 100000").is_nil();
    client.line("SET k 3 xX gEt KeepTtl").is("1");
    client.line("TTL k").is(100);
    client.line("SET k 4 GET PXAT 99999999999999").is("3");
    client.line("SET absent 1 XX").is_nil();
    client.line("SET absent 1 GET NX").is_nil();
    client.line("SET absent 2 GET NX").is("1");
    client.line("GET absent").is("1");
}

marked!(also_redis: set_refuses_options_that_contradict_each_other_and_changes_nothing);
fn set_refuses_options_that_contradict_each_other_and_changes_nothing() {
    let mut client = Server::start().into_client();
    client.line("SET k before EX 100").is_ok();
    for options in [
        "NX XX",
        "EX 10 PX 10",
        "EX 10 KEEPTTL",
        "KEEPTTL PXAT 5",
        "EX",
        "PX",
        "FOO",
        "EXAT 10 EX 10",
        "NX EX",
    ] {
        client.line(&format!("SET k after {options}")).is_error("ERR syntax error");
    }
    for options in ["EX 0", "PX -1", "EXAT 0", "EX 9223372036854775807", "PX 9223372036854775807"] {
        client.line(&format!("SET k after {options}")).is_error("ERR invalid expire time in 'set' command");
    }
    for options in ["EX abc", "PX 1.5", "PXAT 99999999999999999999", "EX ''"] {
        let refusal = "ERR value is not an integer or out of range";
        client.line(&format!("SET k after {options}")).is_error(refusal);
    }
    client.line("GET k").is("before");
    client.line("TTL k").is(100);
}

marked!(also_redis: a_moment_that_has_passed_deletes);
fn a_moment_that_has_passed_deletes() {
    let mut client = Server::start().into_client();
    for command in ["SET k w PXAT 1", "SET k w EXAT 1", "EXPIRE k -1", "PEXPIRE k 0"] {
        client.line("SET k v").is_ok();
        client.line(command).ignored();
        client.line("EXISTS k").is(0);
    }
}

marked!(also_redis: any_bytes_can_be_key_and_value);
fn any_bytes_can_be_key_and_value() {
    let mut client = Server::start().into_client();
    let everything: Vec<u8> = (0..=255).collect();
    for key in [BINARY, b"", &everything, &vec![b'k'; 70_000]] {
        for value in [BINARY, b"", &everything, &vec![b'v'; 300_000]] {
            client.cmd([b"SET", key, value]).is_ok();
            client.cmd([b"GET", key]).is(value);
            client.cmd([b"SETNX", key, b"other"]).is(0);
            client.cmd([b"GETSET", key, b"other"]).is(value);
            client.cmd([b"DEL", key]).is(1);
            client.cmd([b"SETNX", key, value]).is(1);
            client.cmd([b"GETSET", key, value]).is(value);
        }
    }
}

marked!(also_redis: databases_do_not_see_each_other);
fn databases_do_not_see_each_other() {
    let server = Server::start_with(&["--databases", "3"]);
    let (mut one, mut two) = (server.client(), server.client());
    two.line("SELECT 2").is_ok();
    one.line("SETNX k zero").is(1);
    two.line("SETNX k two").is(1);
    one.line("GET k").is("zero");
    two.line("FLUSHDB").is_ok();
    two.line("DBSIZE").is(0);
    one.line("DBSIZE").is(1);
    one.line("SELECT 3").is_error("ERR DB index is out of range");
    two.line("FLUSHALL").is_ok();
    one.line("DBSIZE").is(0);
}

marked!(also_redis: several_keys_are_read_and_counted_as_named);
fn several_keys_are_read_and_counted_as_named() {
    let mut client = Server::start().into_client();
    client.line("MSET a 1 b 2 a 3").is_ok();
    let values = client.line("MGET a b missing a").items();
    assert_eq!(values, [Reply::from("3"), Reply::from("2"), Reply::Null, Reply::from("3")]);
    client.line("EXISTS a a missing").is(2);
    client.line("DEL a a missing").is(1);
}

marked!(also_redis: incr_counts_to_the_end_and_no_further);
fn incr_counts_to_the_end_and_no_further() {
    let mut client = Server::start().into_client();
    client.line("SET n 9223372036854775806").is_ok();
    client.line("INCR n").is(i64::MAX);
    client.line("INCR n").is_error("ERR increment or decrement would overflow");
    client.line("GET n").is("9223372036854775807");
    for value in ["", " 1", "1 ", "01", "+1", "1.0", "abc", "9223372036854775808"] {
        client.cmd(["SET", "n", value]).is_ok();
        client.line("INCR n").is_error("ERR value is not an integer or out of range");
    }
}

marked!(also_redis: an_expiry_is_changed_only_on_its_conditions);
fn an_expiry_is_changed_only_on_its_conditions() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    for (command, answer, ttl) in [
        ("EXPIRE k 100 XX", 0, -1),
        ("EXPIRE k 100 GT", 0, -1),
        ("EXPIRE k 100 NX", 1, 100),
        ("EXPIRE k 200 NX", 0, 100),
        ("EXPIRE k 200 LT", 0, 100),
        ("EXPIRE k 200 GT", 1, 200),
        ("EXPIRE k 50 GT XX", 0, 200),
        ("EXPIRE k 50 xx lt", 1, 50),
        ("PERSIST k", 1, -1),
        ("EXPIRE k 300 LT", 1, 300),
    ] {
        client.line(command).is(answer);
        assert_eq!(client.line("TTL k").integer(), ttl, "after {command}");
    }
    let refusal = "ERR NX and XX, GT or LT options at the same time are not compatible";
    client.line("EXPIRE k 1 NX GT").is_error(refusal);
    client.line("EXPIRE k 1 GT LT").is_error("ERR GT and LT options at the same time are not compatible");
    client.line("EXPIRE k 1 FOO").is_error("ERR Unsupported option FOO");
    client.line("TTL k").is(300);
}

#[test]
fn the_slot_of_a_key_is_known_without_a_cluster() {
    let mut client = Server::start().into_client();
    for (key, slot) in [
        ("foo", 12_182),
        ("somekey", 11_058),
        ("{user1000}.following", 3443),
        ("{user1000}.followers", 3443),
        ("foo{}{bar}", 8363),
        ("foo{bar", 15_278),
        ("", 0),
        ("123456789", 12_739),
    ] {
        client.cmd(["CLUSTER", "KEYSLOT", key]).is(slot);
    }
}

marked!(also_redis: a_client_that_asks_for_modules_or_a_cluster_learns_that_there_are_none);
fn a_client_that_asks_for_modules_or_a_cluster_learns_that_there_are_none() {
    let mut client = Server::start().into_client();
    let disabled = "ERR This instance has cluster support disabled";
    // Redis 8 counts its vector sets as a module.
    if !is_redis() {
        client.line("MODULE LIST").is(Reply::Array(Vec::new()));
    }
    for line in ["CLUSTER INFO", "CLUSTER SLOTS", "CLUSTER MYID", "READONLY", "READWRITE", "ASKING"] {
        client.line(line).is_error(disabled);
    }
    let refused = client.line("MODULE LOAD /nosuch.so").text();
    assert!(refused.starts_with("ERR MODULE command not allowed."), "{refused}");
    client.line("CLUSTER").is_error("ERR wrong number of arguments for 'cluster' command");
    client.line("CLUSTER KEYSLOT").is_error("ERR wrong number of arguments for 'cluster|keyslot' command");
    client.line("CLUSTER NOSUCH").is_error("ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.");
    client.line("MULTI").is_ok();
    client.line("CLUSTER INFO").is_simple("QUEUED");
    client.line("MODULE LIST").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    assert_eq!(replies[0], Reply::Error(disabled.to_owned()));
    assert!(is_redis() || replies[1] == Reply::Array(Vec::new()), "{}", replies[1]);
}

/// The error is that of any unknown command, and a user may look for a misspelling.
#[test]
fn a_command_of_a_module_is_named_in_the_log_once() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    for (line, log) in [
        (
            "JSON.SET k $ 1",
            "A client asks for JSON.SET, a command of the module for JSON. Keyfast has no modules",
        ),
        ("ft.search i q", "FT.SEARCH, a command of the module for search."),
        ("BF.ADD k v", "BF.ADD, a command of the module for Bloom filters."),
        ("VADD k VALUES 1 1 e", "VADD, a command of the module for vector sets."),
        (
            "EVAL \"return redis.pcall('TS.ADD', 'k', 1, 1)\" 0",
            "TS.ADD, a command of the module for time series.",
        ),
    ] {
        for _ in 0..3 {
            assert!(client.line(line).text().contains("nknown"), "{line}");
        }
        server.wait_for_output(log);
    }
    // Neither what is misspelt, nor whatever a client invents.
    for line in ["GTE k", "VALUE k", "JSONSET k", &format!("JSON.{}", "x".repeat(1000))] {
        client.line(line).text();
    }
    (0..1000).for_each(|number| drop(client.line(&format!("json.{number}\x01"))));
    server.wait_for_output("A client asks for JSON.58\\x01,");
    client.line("DEBUG LOG over").is_ok();
    server.wait_for_output("DEBUG LOG: over");
    let log = server.output();
    assert_eq!(log.matches("JSON.SET,").count(), 1);
    assert_eq!(log.matches("A client asks for").count(), 64);
}

/// Subcommands of Redis that Keyfast does not have: they concern clusters.
const ABSENT: [&str; 4] =
    ["cluster|migration", "cluster|myshardid", "cluster|slot-stats", "cluster|syncslots"];

marked!(also_redis: each_subcommand_takes_as_many_arguments_as_in_redis);
/// `arities.txt` was observed: a subcommand, and what it replies to none, one, … five arguments: `w` that
/// their number is wrong, `u` that the subcommand is unknown or the number wrong, `.` anything else.
fn each_subcommand_takes_as_many_arguments_as_in_redis() {
    let server = Server::start();
    for line in include_str!("arities.txt").lines() {
        let (name, observed) = line.split_once(' ').expect("a name and letters");
        if !is_redis() && ABSENT.contains(&name) {
            continue;
        }
        let (command, subcommand) = name.split_once('|').expect("a subcommand");
        let [command, subcommand] = [command, subcommand].map(str::to_ascii_uppercase);
        let wrong = format!("ERR wrong number of arguments for '{name}' command");
        let before = "ERR unknown subcommand or wrong number of arguments for";
        let unknown = format!("{before} '{subcommand}'. Try {command} HELP.");
        let letter = |arguments: usize| {
            let words = [command.as_str(), subcommand.as_str()];
            // A client of its own: the command may change what the connection is.
            let mut client = server.client();
            match client.cmd(words.into_iter().chain(["a"; 5].into_iter().take(arguments))).reply() {
                Reply::Error(text) if text == wrong => 'w',
                Reply::Error(text) if text == unknown => 'u',
                _ => '.',
            }
        };
        assert_eq!((0..observed.len()).map(letter).collect::<String>(), observed, "{name}");
    }
}
