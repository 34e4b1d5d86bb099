//! HOTKEYS: the keys that take most of the server's time, or of its network. Replies and bytes were checked
//! with Redis 8.6.3.

use support::client::{Client, request};
use support::replies::talk;
use support::server::Server;

/// A server whose clock stands still, so that its replies are known.
fn server() -> Server {
    Server::start_with(&["--enable-clock-command", "yes"])
}

fn frozen(server: &Server) -> Client {
    let mut client = server.client();
    client.line("CLOCK FREEZE").ignored();
    client.line("CLOCK SET 5000").ignored();
    client
}

/// What a session has measured, as a text.
fn report(client: &mut Client) -> String {
    client.line("HOTKEYS GET").reply().to_string()
}

/// The part of a report behind a name, up to the next name or the end.
fn field(report: &str, name: &str) -> String {
    let (_, rest) =
        report.split_once(&format!("\"{name}\", ")).unwrap_or_else(|| panic!("{name} in {report}"));
    let end = match rest.starts_with('[') {
        true => rest.find(']').map(|end| end + 1),
        false => rest.find([',', ']']),
    };
    rest[..end.unwrap_or(rest.len())].to_owned()
}

#[test]
fn what_is_wrong_with_a_session_is_told() {
    let mut client = Server::start().into_client();
    talk(
        &mut client,
        &[
            ("HOTKEYS", "(error) ERR wrong number of arguments for 'hotkeys' command"),
            ("HOTKEYS GET", "(nil)"),
            ("HOTKEYS STOP", "(nil)"),
            ("HOTKEYS RESET", "OK"),
            ("HOTKEYS GET x", "(error) ERR wrong number of arguments for 'hotkeys|get' command"),
            ("HOTKEYS START", "(error) ERR METRICS parameter is required"),
            ("HOTKEYS START METRICS", "(error) ERR METRICS parameter is required"),
            ("HOTKEYS START COUNT 1 METRICS 1 CPU", "(error) ERR METRICS parameter is required"),
            ("HOTKEYS START METRICS x CPU", "(error) ERR METRICS count must be > 0 and <= 2"),
            ("HOTKEYS START METRICS 0", "(error) ERR METRICS count must be > 0 and <= 2"),
            ("HOTKEYS START METRICS 3 CPU", "(error) ERR METRICS count must be > 0 and <= 2"),
            (
                "HOTKEYS START METRICS 2 CPU",
                "(error) ERR METRICS count does not match number of metric types provided",
            ),
            ("HOTKEYS START METRICS 2 CPU cpu", "(error) ERR METRICS CPU defined more than once!"),
            ("HOTKEYS START METRICS 2 NET NET", "(error) ERR METRICS NET defined more than once!"),
            (
                "HOTKEYS START METRICS 2 COUNT 3",
                "(error) ERR METRICS no valid metrics passed. Supported: CPU|NET",
            ),
            ("HOTKEYS START METRICS 1 CPU NET", "(error) ERR syntax error"),
            ("HOTKEYS START METRICS 1 CPU COUNT", "(error) ERR syntax error"),
            ("HOTKEYS START METRICS 1 CPU COUNT 0", "(error) ERR COUNT must be between 1 and 64"),
            ("HOTKEYS START METRICS 1 CPU COUNT 65", "(error) ERR COUNT must be between 1 and 64"),
            (
                "HOTKEYS START METRICS 1 CPU DURATION 1000001",
                "(error) ERR DURATION must be between 1 and 1000000",
            ),
            ("HOTKEYS START METRICS 1 CPU SAMPLE 0", "(error) ERR SAMPLE ratio must be positive"),
            (
                "HOTKEYS START METRICS 1 CPU SLOTS 1 1",
                "(error) ERR SLOTS parameter cannot be used in non-cluster mode",
            ),
            ("HOTKEYS GET", "(nil)"),
            ("HOTKEYS START METRICS 2 NET x COUNT 64 DURATION 1000000 SAMPLE 2147483647", "OK"),
            ("HOTKEYS START BAD", "(error) ERR hotkey tracking session already in progress"),
            ("HOTKEYS RESET", "(error) ERR hotkey tracking session in progress, stop tracking first"),
            ("HOTKEYS STOP", "OK"),
            ("HOTKEYS STOP", "(nil)"),
            ("HOTKEYS START METRICS 1 CPU", "OK"),
            (
                "EVAL \"return redis.pcall('HOTKEYS', 'GET')\" 0",
                "(error) ERR This Redis command is not allowed from script",
            ),
        ],
    );
}

#[test]
fn a_report_has_the_fields_of_redis_in_its_order() {
    let server = server();
    let mut client = frozen(&server);
    talk(
        &mut client,
        &[
            ("HOTKEYS START METRICS 1 NET", "OK"),
            ("SET k v", "OK"),
            ("GET k", "\"v\""),
            ("INCR other", "(integer) 1"),
            ("PING", "PONG"),
            ("MSET a 1 b 2", "OK"),
            ("CLOCK ADVANCE 70", "OK"),
            ("HOTKEYS STOP", "OK"),
            ("CLOCK ADVANCE 7", "OK"),
        ],
    );
    let micros = field(&report(&mut client), "all-commands-all-slots-us");
    client.send(&request(["HOTKEYS", "GET"]));
    let micros = micros.trim_start_matches("(integer) ");
    let expected = format!(
        "*1\r\n*18\r\n$15\r\ntracking-active\r\n:0\r\n$12\r\nsample-ratio\r\n:1\r\n$14\r\nselected-slots\r\n\
         *1\r\n*2\r\n:0\r\n:16383\r\n$25\r\nall-commands-all-slots-us\r\n:{micros}\r\n\
         $32\r\nnet-bytes-all-commands-all-slots\r\n:135\r\n$29\r\ncollection-start-time-unix-ms\r\n:5000\r\n\
         $22\r\ncollection-duration-ms\r\n:70\r\n$15\r\ntotal-net-bytes\r\n:134\r\n$12\r\nby-net-bytes\r\n\
         *8\r\n$1\r\nk\r\n:59\r\n$5\r\nother\r\n:29\r\n$1\r\na\r\n:23\r\n$1\r\nb\r\n:23\r\n"
    );
    assert_eq!(String::from_utf8(client.reply_bytes()).unwrap(), expected);
    // With RESP3 it is a map. The metrics' order is always the same.
    talk(&mut client, &[("HOTKEYS START METRICS 2 NET CPU COUNT 3 SAMPLE 5", "OK")]);
    let mut client = server.client3();
    client.send(&request(["HOTKEYS", "GET"]));
    let bytes = String::from_utf8(client.reply_bytes()).unwrap();
    assert!(bytes.starts_with("*1\r\n%12\r\n$15\r\ntracking-active\r\n:1\r\n"), "{bytes}");
    let names: Vec<&str> = bytes.split("\r\n").filter(|part| part.contains('-')).collect();
    let expected = [
        "tracking-active",
        "sample-ratio",
        "selected-slots",
        "all-commands-all-slots-us",
        "net-bytes-all-commands-all-slots",
        "collection-start-time-unix-ms",
        "collection-duration-ms",
        "total-cpu-time-user-ms",
        "total-cpu-time-sys-ms",
        "total-net-bytes",
        "by-cpu-time-us",
        "by-net-bytes",
    ];
    assert_eq!(names, expected);
    assert!(bytes.contains("$12\r\nsample-ratio\r\n:5\r\n"), "{bytes}");
}

#[test]
fn bytes_are_charged_to_the_keys_that_a_request_names() {
    let mut client = Server::start().into_client();
    client.line("SET pre 12345").is_ok();
    for (lines, all, keys) in [
        // Failed, too; refused ones are not charged.
        (&["HGET pre x", "GET", "OBJECT FREQ pre"][..], 318, "[\"pre\", (integer) 318]"),
        (&["MSET a 1 a 2 a 3"], 61, "[\"a\", (integer) 60]"),
        (&["DEL a b c"], 38, "[\"a\", (integer) 12, \"b\", (integer) 12, \"c\", (integer) 12]"),
        (&["RPUSH l a", "BLPOP l 0.01"], 83, "[\"l\", (integer) 83]"),
        (&["XADD s 1-1 f v", "XREAD STREAMS s 0"], 145, "[\"s\", (integer) 145]"),
        (&["ZUNIONSTORE d 2 a b"], 54, "[\"a\", (integer) 18, \"b\", (integer) 18, \"d\", (integer) 18]"),
        (&["SORT l BY w_* STORE d"], 60, "[\"d\", (integer) 30, \"l\", (integer) 30]"),
        (&["GET pre", "GET none"], 61, "[\"pre\", (integer) 33, \"none\", (integer) 28]"),
        (&["WATCH pre", "UNWATCH", "PUBLISH c m", "PING"], 29, "[\"pre\", (integer) 29]"),
        // A script is charged to its own keys, a transaction to those of its commands.
        (
            &["EVAL \"redis.call('SET','in','x') return redis.call('GET','in')\" 1 key"],
            100,
            "[\"key\", (integer) 100]",
        ),
        (&["EVAL \"redis.call('SET','in','x')\" 0"], 0, "[]"),
        (&["MULTI", "SET tx 1", "GET tx", "EXEC"], 61, "[\"tx\", (integer) 61]"),
    ] {
        client.line("HOTKEYS START METRICS 1 NET").is_ok();
        lines.iter().for_each(|line| client.line(line).ignored());
        client.line("HOTKEYS STOP").is_ok();
        client.line("GET pre").ignored();
        let report = report(&mut client);
        let told = (field(&report, "net-bytes-all-commands-all-slots"), field(&report, "by-net-bytes"));
        assert_eq!(told, (format!("(integer) {all}"), keys.to_owned()), "{lines:?}");
    }
}

#[test]
fn the_keys_of_all_clients_are_ranked_by_their_time() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let all: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    client.cmd(["SADD", "large"].into_iter().chain(all.iter().map(String::as_str))).is(20_000);
    client.line("SADD small 1 2 3").is(3);
    client.line("HOTKEYS START METRICS 2 CPU NET COUNT 2").is_ok();
    for _ in 0..50 {
        other.line("SORT large LIMIT 0 1").ignored();
        other.line("SCARD small").is(3);
        client.line("SCARD large").is(20_000);
    }
    for number in 0..500 {
        client.line(&format!("GET rare:{number}")).is_nil();
    }
    let report = report(&mut client);
    let by_time = field(&report, "by-cpu-time-us");
    assert!(by_time.starts_with("[\"large\", (integer) "), "{report}");
    let micros = |text: &str| text.rsplit(' ').next().unwrap().trim_end_matches(']').parse::<u64>().unwrap();
    let (large, all) = (by_time.split(',').nth(1).unwrap(), field(&report, "all-commands-all-slots-us"));
    assert!(micros(large) > micros(&all) / 2 && micros(large) <= micros(&all), "{report}");
    assert!(field(&report, "by-net-bytes").starts_with("[\"large\", (integer) "), "{report}");
    assert_eq!(field(&report, "tracking-active"), "(integer) 1");
}

#[test]
fn a_session_ends_by_itself() {
    let server = server();
    let mut client = frozen(&server);
    talk(
        &mut client,
        &[
            ("HOTKEYS START METRICS 1 NET DURATION 2", "OK"),
            ("SET k v", "OK"),
            ("CLOCK ADVANCE 2000", "OK"),
            ("SET k v", "OK"),
            ("HOTKEYS STOP", "(nil)"),
        ],
    );
    let report = report(&mut client);
    assert_eq!(field(&report, "tracking-active"), "(integer) 0");
    assert_eq!(field(&report, "collection-duration-ms"), "(integer) 2000");
    assert_eq!(field(&report, "by-net-bytes"), "[\"k\", (integer) 32]");
    talk(&mut client, &[("HOTKEYS RESET", "OK"), ("HOTKEYS GET", "(nil)")]);
}
