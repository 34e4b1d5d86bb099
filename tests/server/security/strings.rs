//! Section C and what is due of G: keys and strings.

use std::time::Duration;

use support::client::{Client, Reply, request};
use support::open_files::ask_for;
use support::server::{Server, is_redis};

/// The server serves this client and another one.
#[track_caller]
fn lives(server: &Server, client: &mut Client) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_simple("PONG");
}

#[test]
fn c3_lcs_refuses_a_table_that_would_be_too_large() {
    const REFUSED: &str = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
    let server = Server::start();
    let mut client = server.client();
    for bytes in [2 << 20, 65_536] {
        client.cmd([&b"MSET"[..], b"a", &vec![b'a'; bytes], b"b", &vec![b'b'; bytes]]).is_ok();
        for options in ["", "LEN", "IDX", "IDX MINMATCHLEN -9223372036854775808 WITHMATCHLEN"] {
            client.line(&format!("LCS a b {options}")).is_error(REFUSED);
        }
    }
    client.line("MSET a ohmytext b mynewtext").is_ok();
    let all = client.line("LCS a b IDX").reply();
    client.line("LCS a b IDX MINMATCHLEN -9223372036854775808").is(all);
    client.line("LCS a b LEN").is(6);
    lives(&server, &mut client);
}

/// Has every command that takes a pattern match one; a text that it is held against is `text`.
fn match_everywhere(server: &Server, client: &mut Client, pattern: &[u8], text: &[u8]) {
    client.cmd([&b"SET"[..], text, b"value"]).is_ok();
    client.cmd([b"KEYS", pattern]).items();
    client.cmd([b"SCAN", &b"0"[..], b"MATCH", pattern]).items();
    let may_be_registered = pattern.len() <= 16 << 10;
    let mut listener = server.client3();
    let is_refused = matches!(listener.cmd([b"PSUBSCRIBE", pattern]).reply(), Reply::Error(_));
    assert_ne!(is_refused, may_be_registered);
    listener.cmd([b"SUBSCRIBE", text]).reply();
    let heard = client.cmd([&b"PUBLISH"[..], text, b"message"]).integer();
    assert!((1..=2).contains(&heard));
    client.cmd([&b"PUBSUB"[..], b"CHANNELS", pattern]).items();
    client.cmd([&b"CONFIG"[..], b"GET", pattern]).items();
    client.cmd([&b"COMMAND"[..], b"LIST", b"FILTERBY", b"PATTERN", pattern]).items();
    client.cmd([&b"FUNCTION"[..], b"LIST", b"LIBRARYNAME", pattern]).items();
    let (keys, channels) = ([b"~", pattern].concat(), [b"&", pattern].concat());
    let rules = [&b"on"[..], b"nopass", b"resetchannels", b"+@all", &keys, &channels];
    let made = client.cmd([&b"ACL"[..], b"SETUSER", b"limited"].into_iter().chain(rules)).reply();
    assert_eq!(!matches!(made, Reply::Error(_)), may_be_registered);
    if may_be_registered {
        let mut limited = server.client();
        limited.line("AUTH limited any").is_ok();
        limited.cmd([b"GET", text]).reply();
        limited.cmd([&b"PUBLISH"[..], text, b"message"]).reply();
        client.line("ACL DELUSER limited").is(1);
    }
    client.line("FLUSHALL").is_ok();
    lives(server, client);
}

#[test]
fn c7_patterns_take_no_exponential_time() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET other value").is_ok();
    let text = [b'a'; 200];
    match_everywhere(&server, &mut client, format!("{}b", "a*".repeat(50)).as_bytes(), &text);
    client.cmd([&b"SET"[..], &text, b"value"]).is_ok();
    client.cmd(["KEYS", &format!("{}b", "a*".repeat(50))]).is(Reply::Array(Vec::new()));
    client.cmd(["KEYS", &"a*".repeat(50)]).is(Reply::Array(vec![text.as_slice().into()]));
}

#[test]
fn c7_patterns_do_not_take_the_product_of_two_long_texts_either() {
    let server = Server::start();
    let mut client = server.client();
    let text = vec![b'a'; 100_000];
    for middle in ["a", "?", "[ab]"] {
        let pattern = format!("*{}{middle}b*", "a".repeat(4_000));
        match_everywhere(&server, &mut client, pattern.as_bytes(), &text);
    }
    for length in [100_000, 16_000] {
        let class = [&b"*["[..], &vec![b'b'; length], b"]"].concat();
        match_everywhere(&server, &mut client, &class, &text);
    }
}

#[test]
fn c8_long_patterns_do_not_overflow_the_stack() {
    let server = Server::start();
    let mut client = server.client();
    let long = |part: &str, times| part.repeat(times).into_bytes();
    for pattern in [
        long("*?", 500_000),
        long("*", 1_000_000),
        long("[", 1_000_000),
        long("\\", 1_000_000),
        // As long as patterns that are registered may be.
        long("*?", 8 << 10),
        long("*", 16 << 10),
        long("[", 16 << 10),
        long("\\", 16 << 10),
        long("[a-", 1),
        long("[\\", 1),
        long("[^", 1),
    ] {
        match_everywhere(&server, &mut client, &pattern, &[b'a'; 200]);
        if pattern.len() < 10 {
            ["[", "\\", "-"]
                .iter()
                .for_each(|text| match_everywhere(&server, &mut client, &pattern, text.as_bytes()));
        }
    }
}

/// With pauses of a second rather than three: what the server does every so often is done every second.
#[test]
fn c6_buffers_that_grow_and_shrink_keep_their_size() {
    const CONNECTIONS: usize = 1000;
    let Some(_files) = ask_for(CONNECTIONS + 10) else { return };
    let server = Server::start();
    let mut asking = server.client();
    let used = |client: &mut Client| client.info("used_memory").parse::<usize>().expect("a number");
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.client()).collect();
    let ask_all = |clients: &mut [Client], bytes: usize| {
        let text = vec![b'x'; bytes];
        clients.iter_mut().for_each(|client| client.send(&request([&b"ECHO"[..], &text])));
        for client in clients {
            client.reply().is(Reply::Bulk(text.clone()));
        }
    };
    ask_all(&mut clients, 1);
    let before = used(&mut asking);
    for _ in 0..2 {
        for bytes in [40 << 10, 1] {
            std::thread::sleep(Duration::from_millis(1100));
            ask_all(&mut clients, bytes);
        }
    }
    let grown = used(&mut asking).saturating_sub(before);
    assert!(grown < CONNECTIONS * 1024, "{grown} bytes more for {CONNECTIONS} connections");
    let list = asking.line("CLIENT LIST").text();
    let idle = list.lines().filter(|line| line.contains(" qbuf=0 ") && line.contains(" omem=0 ")).count();
    assert_eq!(idle, CONNECTIONS);
    lives(&server, &mut asking);
}

/// A server, and a client of a user who may use keys that begin with `ok` only.
fn limited() -> (Server, Client, Client) {
    let server = Server::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.line("ACL SETUSER limited on nopass ~ok* +@all").is_ok();
    client.line("AUTH limited any").is_ok();
    (server, admin, client)
}

const NO_KEY: &str = "NOPERM No permissions to access a key";

marked!(also_redis: c1_the_same_key_twice_is_written_twice);
fn c1_the_same_key_twice_is_written_twice() {
    let server = Server::start();
    let mut client = server.client();
    client.line("MSETNX a 1 a 2").is(1);
    client.line("GET a").is("2");
    client.line("MSETNX a 3 a 4").is(0);
    client.line("GET a").is("2");
    client.line("MSET a 5 a 6").is_ok();
    client.line("GET a").is("6");
    if !is_redis() {
        client.line("MSETEX 2 a 7 a 8").is(1);
        client.line("GET a").is("8");
        client.line("MSETEX 2 a 9 a 10 NX").is(0);
        client.line("GET a").is("8");
    }
    lives(&server, &mut client);
}

marked!(also_redis: c2_an_offset_plus_a_length_does_not_overflow);
fn c2_an_offset_plus_a_length_does_not_overflow() {
    let server = Server::start();
    let mut client = server.client();
    let used = client.info("used_memory").parse::<usize>().unwrap();
    let too_long = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    for (line, why) in [
        ("SETRANGE k 9223372036854775807 x", too_long),
        ("SETRANGE k 18446744073709551615 x", "ERR value is not an integer or out of range"),
        ("SETRANGE k 4294967295 x", too_long),
        ("SETRANGE k 536870911 xx", too_long),
        ("SETRANGE k -1 x", "ERR offset is out of range"),
    ] {
        client.line(line).is_error(why);
    }
    client.line("SETRANGE k 9223372036854775807 \"\"").is(0);
    client.line("EXISTS k").is(0);
    assert!(client.info("used_memory").parse::<usize>().unwrap() < used + (16 << 20));
    lives(&server, &mut client);
}

marked!(also_redis: c4_offsets_of_bits_do_not_overflow);
fn c4_offsets_of_bits_do_not_overflow() {
    const NOT_AN_OFFSET: &str = "ERR bit offset is not an integer or out of range";
    let server = Server::start();
    let mut client = server.client();
    for line in [
        "SETBIT b 4294967296 1",
        "SETBIT b 34359738368 1",
        "SETBIT b -1 1",
        "GETBIT b 18446744073709551615",
        "BITFIELD f SET u8 #9223372036854775807 1",
        "BITFIELD f SET u8 #576460752303423488 1",
        "BITFIELD f GET u8 #9223372036854775807",
        "BITFIELD f INCRBY u8 9223372036854775807 1",
    ] {
        client.line(line).is_error(NOT_AN_OFFSET);
    }
    if !is_redis() {
        // 7.0 multiplies to 2^64, and writes to the first bit.
        client.line("BITFIELD f SET i64 #288230376151711744 1").is_error(NOT_AN_OFFSET);
    }
    client.line("EXISTS b f").is(0);
    client.line("SET b abc").is_ok();
    for (line, expected) in [
        ("BITPOS b 1 -9223372036854775808 9223372036854775807 BIT", 1),
        ("BITPOS b 1 -9223372036854775808 9223372036854775807", 1),
        ("BITPOS b 0 9223372036854775807 -9223372036854775808 BIT", -1),
        ("BITCOUNT b -9223372036854775808 9223372036854775807 BIT", 10),
        ("BITCOUNT b -9223372036854775808 9223372036854775807", 10),
        ("BITCOUNT b 9223372036854775807 -9223372036854775808 BIT", 0),
    ] {
        client.line(line).is(expected);
    }
    client.line("GETRANGE b -9223372036854775808 9223372036854775807").is("abc");
    // Where values may be as long as numbers go, nothing overflows either; the memory is not there.
    client.line("CONFIG SET proto-max-bulk-len 9223372036854775807").ignored();
    for line in ["SETBIT b 9223372036854775807 1", "SETRANGE b 9223372036854775807 x"] {
        if !is_redis() {
            assert!(matches!(client.line(line).reply(), Reply::Error(_)), "{line}");
        }
    }
    lives(&server, &mut client);
}

marked!(also_redis: c5_the_limit_of_values_has_limits);
fn c5_the_limit_of_values_has_limits() {
    let server = Server::start();
    let mut client = server.client();
    for limit in ["99999999999999999999", "1", "-1", "1048575"] {
        let why = client.line(&format!("CONFIG SET proto-max-bulk-len {limit}")).text();
        let expected =
            "ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be";
        assert!(why.starts_with(expected), "{why}");
    }
    client.line("CONFIG SET proto-max-bulk-len 1mb").is_ok();
    client.cmd([&b"SET"[..], b"k", &vec![b'x'; 1 << 20]]).is_ok();
    client.line("APPEND k x").is_error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    client.line("STRLEN k").is(1 << 20);
    lives(&server, &mut client);
}

marked!(also_redis: c9_every_one_of_many_keys_is_found_and_checked);
fn c9_every_one_of_many_keys_is_found_and_checked() {
    let (server, mut admin, mut client) = limited();
    let keys: Vec<String> = (0..10_000).map(|number| format!("ok:{number}")).collect();
    let pairs: Vec<&str> = keys[..1000].iter().flat_map(|key| [key.as_str(), "v"]).collect();
    let many = |first: &[&str], rest: Vec<&str>| {
        first
            .iter()
            .map(|word| (*word).to_owned())
            .chain(rest.iter().map(|word| (*word).to_owned()))
            .collect::<Vec<_>>()
    };
    let texts: Vec<&str> = keys.iter().map(String::as_str).collect();
    let requests = [
        (many(&["MSET"], pairs), 1000),
        (many(&["EVAL", "return #KEYS", "10000"], texts.clone()), 10_000),
        (many(&["BITOP", "AND", "ok"], texts[..500].to_vec()), 501),
        (many(&["DEL"], texts.clone()), 10_000),
    ];
    for (request, count) in requests {
        let found = admin.cmd(["COMMAND".to_owned(), "GETKEYS".to_owned()].iter().chain(&request)).items();
        assert_eq!(found.len(), count);
        assert!(!matches!(client.cmd(&request).reply(), Reply::Error(_)), "{}", request[0]);
        // One key among all is another's.
        let mut forbidden = request.clone();
        let last = forbidden.iter().rposition(|word| word.starts_with("ok:")).unwrap();
        forbidden[last] = "secret".to_owned();
        client.cmd(&forbidden).is_error(NO_KEY);
    }
    admin.line("EXISTS secret").is(0);
    lives(&server, &mut admin);
}

marked!(also_redis: c10_a_request_that_is_too_short_for_its_keys_is_refused);
fn c10_a_request_that_is_too_short_for_its_keys_is_refused() {
    let (server, mut admin, mut client) = limited();
    for (line, why) in [
        ("EVAL", "ERR wrong number of arguments for 'eval' command"),
        ("EVAL s", "ERR wrong number of arguments for 'eval' command"),
        ("FCALL f", "ERR wrong number of arguments for 'fcall' command"),
        ("EVALSHA x", "ERR wrong number of arguments for 'evalsha' command"),
        ("EVAL s 9223372036854775807 ok", "ERR Number of keys can't be greater than number of args"),
        ("EVAL s 2 ok", "ERR Number of keys can't be greater than number of args"),
        ("EVAL s -1 ok", "ERR Number of keys can't be negative"),
        ("EVAL s x ok", "ERR value is not an integer or out of range"),
        ("EVALSHA x 9223372036854775807 ok", "NOSCRIPT No matching script. Please use EVAL."),
        ("FCALL f 9223372036854775807 ok", "ERR Function not found"),
        ("FCALL f -1 ok", "ERR Function not found"),
    ] {
        client.line(line).is_error(why);
        let _ = client.line(&format!("COMMAND GETKEYS {line}"));
        let _ = client.line(&format!("COMMAND GETKEYSANDFLAGS {line}"));
    }
    if !is_redis() {
        for line in ["MSETEX", "MSETEX 1", "MSETEX 1 ok"] {
            client.line(line).is_error("ERR wrong number of arguments for 'msetex' command");
        }
    }
    client.line("EVAL \"return #KEYS\" 1 secret").is_error(NO_KEY);
    lives(&server, &mut admin);
}

marked!(also_redis: c11_numbers_at_the_ends_of_their_range_do_not_overflow);
fn c11_numbers_at_the_ends_of_their_range_do_not_overflow() {
    const OVERFLOWS: &str = "ERR increment or decrement would overflow";
    let server = Server::start();
    let mut client = server.client();
    for (value, line, why) in [
        ("9223372036854775807", "INCR k", OVERFLOWS),
        ("9223372036854775807", "INCRBY k 1", OVERFLOWS),
        ("1", "DECRBY k -9223372036854775808", "ERR decrement would overflow"),
        ("-9223372036854775808", "DECR k", OVERFLOWS),
        ("-9223372036854775808", "DECRBY k 1", OVERFLOWS),
        ("-2", "DECRBY k 9223372036854775807", OVERFLOWS),
        ("-1", "INCRBY k -9223372036854775808", OVERFLOWS),
        ("1", "INCRBYFLOAT k nan", "ERR value is not a valid float"),
        ("1", "INCRBYFLOAT k 1e5000", "ERR value is not a valid float"),
        ("1", "INCRBYFLOAT k inf", "ERR increment would produce NaN or Infinity"),
        ("1", "INCRBYFLOAT k 0x1p16384", "ERR value is not a valid float"),
    ] {
        client.cmd(["SET", "k", value]).is_ok();
        client.line(line).is_error(why);
        client.line("GET k").is(value);
    }
    // Numbers that only a long double can hold: any reply will do, as long as the server lives.
    for huge in ["1e4932", "0x1p16383", "-1e4932", "1e-5000", &"1".repeat(5000)] {
        client.line("SET k 1").is_ok();
        let _ = client.cmd(["INCRBYFLOAT", "k", huge]);
        lives(&server, &mut client);
    }
    for (line, command) in [
        ("EXPIRE k 9223372036854775807", "expire"),
        ("PEXPIRE k 9223372036854775807", "pexpire"),
        ("EXPIREAT k 9223372036854775807", "expireat"),
        ("EXPIRE k -9223372036854775808", "expire"),
        ("SET k v EX 9223372036854775807", "set"),
        ("SET k v PX 9223372036854775807", "set"),
        ("SET k v EXAT 9223372036854775807", "set"),
        ("SETEX k 9223372036854775807 v", "setex"),
        ("PSETEX k 9223372036854775807 v", "psetex"),
        ("GETEX k EX 9223372036854775807", "getex"),
        ("GETEX k EXAT 9223372036854775807", "getex"),
    ] {
        client.line("SET k 1").is_ok();
        client.line(line).is_error(&format!("ERR invalid expire time in '{command}' command"));
        client.line("TTL k").is(-1);
        client.line("GET k").is("1");
    }
    client.line("PEXPIREAT k 9223372036854775807").is(1);
    client.line("PEXPIRETIME k").is(i64::MAX);
    assert!(client.line("TTL k").integer() > 0);
    client.line("PEXPIRE k -9223372036854775808").is(1);
    client.line("EXISTS k").is(0);
    lives(&server, &mut client);
}

#[test]
fn c12_every_key_of_msetex_is_checked() {
    let (server, mut admin, mut client) = limited();
    client.line("MSETEX 2 ok:1 a secret b").is_error(NO_KEY);
    client.line("MSETEX 2 secret a ok:1 b").is_error(NO_KEY);
    assert!(matches!(client.line("MSETEX 1 ok:1 a secret b").reply(), Reply::Error(_)));
    for count in ["0", "-1", "9223372036854775807", "4611686018427387904", "x"] {
        assert!(matches!(client.line(&format!("MSETEX {count} ok:1 a")).reply(), Reply::Error(_)), "{count}");
    }
    admin.line("EXISTS ok:1 secret").is(0);
    lives(&server, &mut admin);
}

marked!(also_redis: c13_the_last_option_counts_in_the_check_as_in_the_deed);
fn c13_the_last_option_counts_in_the_check_as_in_the_deed() {
    let (server, mut admin, mut client) = limited();
    admin.line("SET ok:1 v").is_ok();
    admin.line("SET secret v").is_ok();
    client.line("COPY ok:1 ok:2 DB 1 DB 2 REPLACE").is(1);
    client.line("COPY ok:1 ok:3 REPLACE DB 1").is(1);
    for refused in ["COPY ok:1 secret REPLACE DB 1", "COPY secret ok:1 DB 1 REPLACE", "MOVE secret 1"] {
        client.line(refused).is_error(NO_KEY);
    }
    for (database, expected) in [("0", [1, 0, 0]), ("1", [0, 0, 1]), ("2", [0, 1, 0])] {
        client.cmd(["SELECT", database]).is_ok();
        for (key, is_there) in ["ok:1", "ok:2", "ok:3"].iter().zip(expected) {
            client.cmd(["EXISTS", key]).is(is_there);
        }
    }
    client.line("SELECT 0").is_ok();
    for line in ["COPY ok:1 ok:2 DB 99", "COPY ok:1 ok:2 DB 1 DB -1", "MOVE ok:1 99"] {
        assert!(matches!(client.line(line).reply(), Reply::Error(_)), "{line}");
    }
    client.line("MOVE ok:1 1").is(1);
    lives(&server, &mut admin);
}

marked!(also_redis: c14_emptying_while_a_client_watches_several_keys_touches_nothing_freed);
fn c14_emptying_while_a_client_watches_several_keys_touches_nothing_freed() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.client(), server.client());
    for (before, change, is_overtaken) in [
        ("PING", "FLUSHALL", false),
        ("PING", "FLUSHDB", false),
        ("PING", "SWAPDB 0 1", false),
        ("SET b 1", "FLUSHALL", true),
        ("SET b 1", "FLUSHDB ASYNC", true),
        ("SET c 1", "SWAPDB 0 1", true),
        ("PING", "SWAPDB 0 1", true),
    ] {
        let _ = other.line(before);
        watcher.line("WATCH a b c a b").is_ok();
        other.line(change).is_ok();
        watcher.line("MULTI").is_ok();
        watcher.line("SET d 1").is_simple("QUEUED");
        assert_eq!(watcher.line("EXEC").reply() == Reply::Null, is_overtaken, "{before}, {change}");
    }
    for change in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        let mut leaving = server.client();
        leaving.line("WATCH a b c").is_ok();
        other.line("SET b 1").is_ok();
        drop(leaving);
        other.line(change).is_ok();
        lives(&server, &mut other);
    }
}

marked!(also_redis: g23_cursors_and_counts_that_no_server_has_given_are_answered);
fn g23_cursors_and_counts_that_no_server_has_given_are_answered() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k v").is_ok();
    for (line, why) in [
        ("SCAN 18446744073709551616", "ERR invalid cursor"),
        ("SCAN x", "ERR invalid cursor"),
        ("SCAN 0 COUNT 0", "ERR syntax error"),
        ("SCAN 0 COUNT -1", "ERR syntax error"),
        ("SCAN 0 COUNT 9223372036854775808", "ERR value is not an integer or out of range"),
    ] {
        client.line(line).is_error(why);
    }
    for line in ["SCAN 18446744073709551615", "SCAN 99999999999 COUNT 9223372036854775807", "SCAN -1"] {
        let _ = client.line(line);
    }
    assert_eq!(client.line("SCAN 0 COUNT 9223372036854775807").reply().to_string(), "[\"0\", [\"k\"]]");
    assert_eq!(client.cmd([&b"SCAN"[..], b"0", b"TYPE", b"\0"]).reply().to_string(), "[\"0\", []]");
    lives(&server, &mut client);
}
