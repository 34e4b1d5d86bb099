//! Entries that a consumer gives back to its group (XNACK of Redis 8.8), and limits on what a client reads of
//! several streams (MAXCOUNT and MAXSIZE of Redis 8.10).

use support::client::{Client, request};
use support::folder::Folder;
use support::log::{ALWAYS, wait_for_rewrite};
use support::replies::talk;
use support::server::{Server, wait_until};

/// Three entries, which Alice has got.
const DELIVERED: &[(&str, &str)] = &[
    ("XADD s 1-1 f a", "\"1-1\""),
    ("XADD s 2-1 f b", "\"2-1\""),
    ("XADD s 3-1 f c", "\"3-1\""),
    ("XGROUP CREATE s g 0", "OK"),
    (
        "XREADGROUP GROUP g Alice STREAMS s >",
        "[[\"s\", [[\"1-1\", [\"f\", \"a\"]], [\"2-1\", [\"f\", \"b\"]], [\"3-1\", [\"f\", \"c\"]]]]]",
    ),
];

/// Checked with a build of Redis of June 2026.
#[test]
fn a_consumer_gives_entries_back() {
    let mut client = Server::start_with(&["--enable-clock-command", "yes"]).into_client();
    client.line("CLOCK FREEZE").ignored();
    talk(&mut client, DELIVERED);
    talk(
        &mut client,
        &[
            ("XNACK s g FAIL IDS 3 2-1 9-9 1-1", "(integer) 2"),
            ("XPENDING s g", "[(integer) 3, \"1-1\", \"3-1\", [[\"Alice\", \"1\"]]]"),
            ("XPENDING s g - + 1", "[[\"1-1\", \"\", (integer) -1, (integer) 1]]"),
            ("XPENDING s g - + 9 Alice", "[[\"3-1\", \"Alice\", (integer) 0, (integer) 1]]"),
            // No consumer has them, so they do not wait for one.
            (
                "XPENDING s g IDLE 100000 - + 9",
                "[[\"1-1\", \"\", (integer) -1, (integer) 1], [\"2-1\", \"\", (integer) -1, (integer) 1]]",
            ),
            ("XREADGROUP GROUP g Alice STREAMS s 0", "[[\"s\", [[\"3-1\", [\"f\", \"c\"]]]]]"),
            ("XCLAIM s g Bob 100000 1-1 3-1 JUSTID", "[\"1-1\"]"),
            ("XPENDING s g 1-1 1-1 1", "[[\"1-1\", \"Bob\", (integer) 0, (integer) 1]]"),
            ("XAUTOCLAIM s g Bob 100000 0 JUSTID", "[\"0-0\", [\"2-1\"], []]"),
            ("XPENDING s g", "[(integer) 3, \"1-1\", \"3-1\", [[\"Alice\", \"1\"], [\"Bob\", \"2\"]]]"),
            // How often it was delivered.
            ("XNACK s g SILENT IDS 2 1-1 1-1", "(integer) 2"),
            ("XPENDING s g 1-1 1-1 1", "[[\"1-1\", \"\", (integer) -1, (integer) 0]]"),
            ("XNACK s g silent ids 1 1-1 retrycount 7", "(integer) 1"),
            ("XPENDING s g 1-1 1-1 1", "[[\"1-1\", \"\", (integer) -1, (integer) 7]]"),
            ("XNACK s g FATAL IDS 1 1-1", "(integer) 1"),
            ("XCLAIM s g Bob 0 1-1", "[[\"1-1\", [\"f\", \"a\"]]]"),
            ("XPENDING s g 1-1 1-1 1", "[[\"1-1\", \"Bob\", (integer) 0, (integer) 9223372036854775807]]"),
            // What is not pending.
            ("XACK s g 1-1 2-1", "(integer) 2"),
            ("XNACK s g FAIL IDS 1 1-1", "(integer) 0"),
            ("XNACK s g FORCE IDS 1 1-1", "(error) ERR mode must be SILENT, FAIL, or FATAL"),
            ("XNACK s g FAIL FORCE IDS 2 1-1 9-9", "(integer) 1"),
            ("XNACK s g FATAL IDS 1 2-1 FORCE", "(integer) 1"),
            (
                "XPENDING s g - + 2",
                "[[\"1-1\", \"\", (integer) -1, (integer) 0], \
                 [\"2-1\", \"\", (integer) -1, (integer) 9223372036854775807]]",
            ),
            ("XGROUP DELCONSUMER s g Alice", "(integer) 1"),
            ("XPENDING s g", "[(integer) 2, \"1-1\", \"2-1\", []]"),
            ("XDEL s 1-1", "(integer) 1"),
            ("XCLAIM s g Bob 0 1-1", "[]"),
            ("XACK s g 2-1", "(integer) 1"),
            ("XPENDING s g", "[(integer) 0, (nil), (nil), (nil)]"),
        ],
    );
}

#[test]
fn what_cannot_be_given_back_is_told() {
    let mut client = Server::start().into_client();
    talk(&mut client, DELIVERED);
    talk(
        &mut client,
        &[
            ("SET text x", "OK"),
            (
                "XNACK text g BAD IDS 1 1-1",
                "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("XNACK absent g BAD IDS 1 1-1", "(error) NOGROUP No such key 'absent' or consumer group 'g'"),
            ("XNACK s absent BAD IDS 1 1-1", "(error) NOGROUP No such key 's' or consumer group 'absent'"),
            ("XNACK s g FAIL IDS 1", "(error) ERR wrong number of arguments for 'xnack' command"),
            ("XNACK s g BAD IDS 1 1-1", "(error) ERR mode must be SILENT, FAIL, or FATAL"),
            ("XNACK s g FAIL IDS 0 1-1", "(error) ERR numids must be a positive integer"),
            ("XNACK s g FAIL IDS x 1-1", "(error) ERR numids must be a positive integer"),
            ("XNACK s g FAIL IDS 2147483648 1-1", "(error) ERR numids must be a positive integer"),
            ("XNACK s g FAIL IDS 2 1-1", "(error) ERR number of IDs doesn't match numids"),
            ("XNACK s g FAIL FORCE FORCE FORCE", "(error) ERR syntax error, expected IDS keyword"),
            ("XNACK s g FAIL IDS 1 1-1 IDS", "(error) ERR Unrecognized XNACK option 'IDS'"),
            ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT", "(error) ERR Unrecognized XNACK option 'RETRYCOUNT'"),
            ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT -1", "(error) ERR Invalid RETRYCOUNT value, must be >= 0"),
            ("XNACK s g FAIL IDS 1 1-1 RETRYCOUNT x", "(error) ERR value is not an integer or out of range"),
            (
                "XNACK s g FAIL IDS 2 1-1 x",
                "(error) ERR Invalid stream ID specified as stream command argument",
            ),
            // Nothing of these has been done.
            ("XPENDING s g", "[(integer) 3, \"1-1\", \"3-1\", [[\"Alice\", \"3\"]]]"),
            // The last of several lists is meant.
            ("XNACK s g FAIL IDS 2 1-1 2-1 IDS 1 3-1", "(integer) 1"),
            ("XPENDING s g", "[(integer) 3, \"1-1\", \"3-1\", [[\"Alice\", \"2\"]]]"),
        ],
    );
}

/// The IDs of entries that a client claims, in the order in which it gets them.
fn claimed(client: &mut Client, line: &str) -> Vec<String> {
    let reply = client.line(line).reply().to_string();
    let parts = reply.split('"').skip(3).step_by(2);
    parts.filter(|part| part.contains('-')).map(str::to_owned).collect()
}

#[test]
fn what_was_given_back_first_is_claimed_first() {
    let mut client = Server::start().into_client();
    talk(&mut client, DELIVERED);
    // Claimed in this order, and with the time at which those are that were given back.
    talk(&mut client, &[("XCLAIM s g Alice 0 3-1 TIME 0 JUSTID", "[\"3-1\"]")]);
    let claim = |count: usize| format!("XREADGROUP GROUP g Bob CLAIM 0 COUNT {count} STREAMS s >");
    talk(&mut client, &[("XNACK s g FAIL IDS 2 2-1 1-1", "(integer) 2")]);
    assert_eq!(claimed(&mut client, &claim(9)), ["2-1", "1-1", "3-1"]);
    // Back once more: behind all others.
    talk(&mut client, &[("XNACK s g FAIL IDS 4 3-1 1-1 2-1 3-1", "(integer) 4")]);
    assert_eq!(claimed(&mut client, &claim(2)), ["1-1", "2-1"]);
    assert_eq!(claimed(&mut client, &claim(2)), ["3-1", "1-1"]);
    // What has a consumer waits.
    talk(&mut client, &[("XNACK s g FAIL IDS 1 2-1", "(integer) 1")]);
    assert_eq!(claimed(&mut client, "XREADGROUP GROUP g Bob CLAIM 100000 STREAMS s >"), ["2-1"]);
    // A deleted entry stays pending, and no command fails because of it.
    talk(&mut client, &[("XNACK s g FAIL IDS 3 1-1 3-1 2-1", "(integer) 3"), ("XDEL s 3-1", "(integer) 1")]);
    assert_eq!(claimed(&mut client, &claim(9)), ["1-1", "2-1"]);
    assert_eq!(nacked(&mut client), Some("1".to_owned()));
    talk(&mut client, &[("XPENDING s g 3-1 3-1 1", "[[\"3-1\", \"\", (integer) -1, (integer) 3]]")]);
}

/// The entries that were released, as XINFO shows them.
fn nacked(client: &mut Client) -> Option<String> {
    let reply = client.line("XINFO STREAM s FULL").reply().to_string();
    let rest = reply.split_once("\"nacked-count\", (integer) ")?.1;
    Some(rest.split(',').next()?.to_owned())
}

#[test]
fn xinfo_counts_what_was_given_back_while_there_is_something() {
    let server = Server::start();
    let mut client = server.client();
    talk(&mut client, DELIVERED);
    assert_eq!(nacked(&mut client), None);
    client.line("XNACK s g FAIL IDS 2 1-1 2-1").is(2);
    assert_eq!(nacked(&mut client), Some("2".to_owned()));
    client.line("XACK s g 1-1").is(1);
    assert_eq!(nacked(&mut client), Some("1".to_owned()));
    // Behind the number of pending entries, in a map with one pair more.
    let mut client = server.client3();
    client.send(&request(["XINFO", "STREAM", "s", "FULL"]));
    let reply = String::from_utf8(client.reply_bytes()).unwrap();
    assert!(reply.contains("*1\r\n%8\r\n$4\r\nname\r\n$1\r\ng\r\n"), "{reply}");
    let part = "$9\r\npel-count\r\n:2\r\n$12\r\nnacked-count\r\n:1\r\n$7\r\npending\r\n";
    assert!(reply.contains(part), "{reply}");
    client.line("XACK s g 2-1").is(1);
    assert_eq!(nacked(&mut client), None);
}

#[test]
fn a_client_that_waits_for_pending_entries_gets_what_is_given_back() {
    let server = Server::start();
    let (mut client, mut waits, mut reads) = (server.client(), server.client(), server.client());
    talk(&mut client, DELIVERED);
    waits.send(&request("XREADGROUP GROUP g Bob BLOCK 0 CLAIM 100000 STREAMS s >".split(' ')));
    reads.send(&request("XREADGROUP GROUP g Carol BLOCK 0 STREAMS s >".split(' ')));
    wait_until("they wait", || client.info("blocked_clients") == "2");
    // All at once.
    talk(
        &mut client,
        &[
            ("MULTI", "OK"),
            ("XNACK s g FAIL IDS 1 2-1", "QUEUED"),
            ("XNACK s g SILENT IDS 1 1-1", "QUEUED"),
            ("EXEC", "[(integer) 1, (integer) 1]"),
        ],
    );
    let reply = waits.reply().reply().to_string();
    assert!(reply.starts_with("[[\"s\", [[\"2-1\", [\"f\", \"b\"], (integer) "), "{reply}");
    assert!(reply.contains("[\"1-1\", [\"f\", \"a\"], (integer) "), "{reply}");
    assert!(reply.ends_with("(integer) 0]]]]"), "{reply}");
    // Who waits for new entries goes on.
    assert_eq!(client.info("blocked_clients"), "1");
    client.line("XADD s 4-1 f d").is("4-1");
    assert_eq!(reads.reply().reply().to_string(), "[[\"s\", [[\"4-1\", [\"f\", \"d\"]]]]]");
    let script = "return redis.call('XNACK', KEYS[1], 'g', 'FATAL', 'IDS', 1, '4-1')";
    client.cmd(["EVAL", script, "1", "s"]).is(1);
    client.line("XPENDING s g 4-1 + 1").ignored();
    talk(
        &mut client,
        &[("XPENDING s g 4-1 + 1", "[[\"4-1\", \"\", (integer) -1, (integer) 9223372036854775807]]")],
    );
}

/// Gives entries back in several ways. One of them is deleted then.
fn give_back(client: &mut Client) {
    talk(client, DELIVERED);
    talk(
        client,
        &[
            ("XADD s 4-1 f d", "\"4-1\""),
            ("XADD s 5-1 f e", "\"5-1\""),
            ("XNACK s g FAIL IDS 1 3-1", "(integer) 1"),
            ("XNACK s g FATAL IDS 1 1-1", "(integer) 1"),
            ("XNACK s g SILENT IDS 2 5-1 4-1 FORCE", "(integer) 2"),
            ("XNACK s g SILENT IDS 1 5-1 RETRYCOUNT 9", "(integer) 1"),
            ("XDEL s 4-1", "(integer) 1"),
            ("XGROUP SETID s g $", "OK"),
        ],
    );
}

/// What is pending, and the order in which it was given back.
fn given_back(client: &mut Client) -> (String, Vec<String>) {
    let pending = client.line("XPENDING s g - + 9").reply().to_string();
    // Without how long Alice has had hers.
    let (before, after) = pending.split_once("\"Alice\", ").expect("hers");
    let after = after.split_once(", ").expect("its number").1;
    let order = claimed(client, "XREADGROUP GROUP g Bob CLAIM 1000000 STREAMS s >");
    (format!("{before}{after}"), order)
}

#[test]
fn what_was_given_back_survives_in_the_log_and_in_snapshots() {
    let expected = "[[\"1-1\", \"\", (integer) -1, (integer) 9223372036854775807], [\"2-1\", (integer) 1], \
                    [\"3-1\", \"\", (integer) -1, (integer) 1], [\"4-1\", \"\", (integer) -1, (integer) 0], \
                    [\"5-1\", \"\", (integer) -1, (integer) 9]]";
    let preamble = ["--aof-use-rdb-preamble", "yes"];
    let commands = ["--aof-use-rdb-preamble", "no"];
    for (number, form) in [None, Some(preamble), Some(commands)].into_iter().enumerate() {
        let folder = Folder::new(&format!("releasing-log-{number}"));
        let options = [ALWAYS, &form.unwrap_or(commands)].concat();
        let mut client = folder.serve(&options).into_client();
        give_back(&mut client);
        if form.is_some() {
            wait_for_rewrite(&mut client);
        }
        drop(client);
        let mut client = folder.serve(&options).into_client();
        let (pending, order) = given_back(&mut client);
        assert_eq!((pending.as_str(), order), (expected, vec!["3-1".into(), "1-1".into(), "5-1".into()]));
    }
    let folder = Folder::new("releasing-snapshot");
    let mut client = folder.serve(&[]).into_client();
    give_back(&mut client);
    client.line("SAVE").is_ok();
    drop(client);
    let mut client = folder.serve(&[]).into_client();
    client.line("COPY s other").is(1);
    let (pending, order) = given_back(&mut client);
    assert_eq!((pending.as_str(), order), (expected, vec!["3-1".into(), "1-1".into(), "5-1".into()]));
    // A payload has them in the form of Redis 8.8, and only where there are some.
    let dump = |client: &mut Client, key: &str| {
        client.send(&request(["DUMP", key]));
        let reply = client.reply_bytes();
        let start = reply.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
        reply[start..reply.len() - 2].to_vec()
    };
    let payload = dump(&mut client, "other");
    assert_eq!((payload[0], payload[payload.len() - 10]), (27, 14));
    client.cmd([&b"RESTORE"[..], b"s", b"0", &payload, b"REPLACE"]).is_ok();
    assert_eq!(given_back(&mut client).1, ["3-1", "1-1", "5-1"]);
    client.line("XACK s g 4-1").is(1);
    let payload = dump(&mut client, "s");
    assert_eq!((payload[0], payload[payload.len() - 10]), (19, 10));
}

/// What three streams have of six entries each, of some 40 bytes in replies.
fn three_streams(client: &mut Client) {
    for key in ["a", "b", "c"] {
        for number in 1..=6 {
            client.line(&format!("XADD {key} {number}-1 field value")).ignored();
        }
        client.line(&format!("XGROUP CREATE {key} g 0")).is_ok();
    }
}

/// The key of a stream and the IDs that were read of it, in turn.
fn read(client: &mut Client, line: &str) -> String {
    let reply = client.line(line).reply().to_string();
    let parts = reply.split('"').skip(1).step_by(2).filter(|part| !["field", "value"].contains(part));
    parts.map(|part| part.trim_end_matches("-1")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_reply_has_so_many_entries_of_all_streams() {
    let server = Server::start();
    let mut client = server.client();
    three_streams(&mut client);
    for (line, expected) in [
        ("XREAD MAXCOUNT 7 STREAMS a b c 0 0 0", "a 1 2 3 4 5 6 b 1"),
        ("XREAD COUNT 2 MAXCOUNT 5 STREAMS a b c 0 0 0", "a 1 2 b 1 2 c 1"),
        ("XREAD MAXCOUNT 2 COUNT 2 STREAMS a b c 0 0 0", "a 1 2"),
        ("XREAD MAXCOUNT 9223372036854775807 STREAMS a b 5 5", "a 5 6 b 5 6"),
        ("XREAD MAXCOUNT 3 STREAMS absent a 0 0", "a 1 2 3"),
        ("XREADGROUP GROUP g Alice COUNT 2 MAXCOUNT 3 STREAMS a b c > > >", "a 1 2 b 1"),
        ("XREADGROUP GROUP g Alice MAXCOUNT 5 STREAMS a b c > > >", "a 3 4 5 6 b 2"),
        ("XREADGROUP GROUP g Bob CLAIM 0 MAXCOUNT 7 STREAMS a b > >", "a 1 2 3 4 5 6 b 1"),
        // What he has got before.
        ("XREADGROUP GROUP g Bob MAXCOUNT 6 STREAMS a b c 0 0 0", "a 1 2 3 4 5 6"),
        ("XREADGROUP GROUP g Bob MAXCOUNT 7 STREAMS a b 0 0", "a 1 2 3 4 5 6 b 1"),
    ] {
        assert_eq!(read(&mut client, line), expected, "{line}");
    }
    // No stream that the reply did not reach has heard of either.
    talk(
        &mut client,
        &[("XINFO CONSUMERS c g", "[]"), ("XPENDING c g", "[(integer) 0, (nil), (nil), (nil)]")],
    );
    assert_eq!(read(&mut client, "XPENDING b g - + 9"), "1 Bob 2 Alice");
    // Nothing to read: all of them have.
    talk(&mut client, &[("XREADGROUP GROUP g Carol MAXCOUNT 1 STREAMS a a > >", "(nil)")]);
    assert!(client.line("XINFO CONSUMERS a g").reply().to_string().contains("Carol"));
}

#[test]
fn a_reply_ends_with_the_first_entry_that_is_beyond_its_size() {
    let server = Server::start();
    let mut client = server.client();
    three_streams(&mut client);
    // A stream begins with "*2\r\n$1\r\na\r\n", and an entry is as long as
    // "*2\r\n$3\r\n1-1\r\n*2\r\n$5\r\nfield\r\n$5\r\nvalue\r\n": 11 and 39 bytes.
    for (line, expected) in [
        ("XREAD MAXSIZE 1 STREAMS a b 0 0", "a 1"),
        ("XREAD MAXSIZE 50 STREAMS a b 0 0", "a 1"),
        ("XREAD MAXSIZE 51 STREAMS a b 0 0", "a 1 2"),
        ("XREAD MAXSIZE 89 STREAMS a b 0 0", "a 1 2"),
        ("XREAD MAXSIZE 90 STREAMS a b 0 0", "a 1 2 3"),
        // What lies before a stream counts with the headers, which are known by then.
        ("XREAD MAXSIZE 249 STREAMS a b 0 0", "a 1 2 3 4 5 6"),
        ("XREAD MAXSIZE 250 STREAMS a b 0 0", "a 1 2 3 4 5 6 b"),
        ("XREAD MAXSIZE 260 STREAMS a b 0 0", "a 1 2 3 4 5 6 b"),
        ("XREAD MAXSIZE 261 STREAMS a b 0 0", "a 1 2 3 4 5 6 b 1"),
        ("XREAD MAXSIZE 90 MAXCOUNT 2 STREAMS a b 0 0", "a 1 2"),
        ("XREADGROUP GROUP g Alice MAXSIZE 51 STREAMS a b > >", "a 1 2"),
        ("XREADGROUP GROUP g Bob CLAIM 0 MAXSIZE 50 STREAMS a b > >", "a 1"),
        ("XREADGROUP GROUP g Alice MAXSIZE 50 STREAMS a b 0 0", "a 2"),
    ] {
        assert_eq!(read(&mut client, line), expected, "{line}");
    }
    // Only what was written was delivered.
    assert_eq!(read(&mut client, "XPENDING a g - + 9"), "1 Bob 2 Alice");
    // What a transaction has written before does not count, and in RESP3 there is no array for a stream.
    client.line("MULTI").is_ok();
    client.line("XRANGE a - +").ignored();
    client.line("XREAD MAXSIZE 51 STREAMS a b 0 0").ignored();
    let reply = client.line("EXEC").reply().to_string();
    assert!(
        reply.ends_with("[[\"a\", [[\"1-1\", [\"field\", \"value\"]], [\"2-1\", [\"field\", \"value\"]]]]]]")
    );
    let mut client = server.client3();
    assert_eq!(read(&mut client, "XREAD MAXSIZE 46 STREAMS a b 0 0"), "a 1");
    assert_eq!(read(&mut client, "XREAD MAXSIZE 47 STREAMS a b 0 0"), "a 1 2");
    let script = "return #redis.call('XREAD', 'MAXSIZE', 51, 'STREAMS', KEYS[1], '0')[1][2]";
    client.cmd(["EVAL", script, "1", "a"]).is(2);
}

#[test]
fn limits_are_checked_and_hold_for_a_client_that_has_waited() {
    let server = Server::start();
    let (mut client, mut waits) = (server.client(), server.client());
    three_streams(&mut client);
    talk(
        &mut client,
        &[
            ("XREAD MAXCOUNT 0 STREAMS a 0", "(error) ERR MAXCOUNT must be a positive integer"),
            ("XREAD MAXCOUNT -1 STREAMS a 0", "(error) ERR MAXCOUNT must be a positive integer"),
            ("XREAD MAXCOUNT x STREAMS a 0", "(error) ERR value is not an integer or out of range"),
            ("XREAD MAXSIZE 0 STREAMS a 0", "(error) ERR MAXSIZE must be a positive integer"),
            (
                "XREAD MAXSIZE 9223372036854775808 STREAMS a 0",
                "(error) ERR value is not an integer or out of range",
            ),
            (
                "XREAD COUNT 3 MAXCOUNT 2 STREAMS a 0",
                "(error) ERR MAXCOUNT must be greater than or equal to COUNT",
            ),
            ("XREAD COUNT 3 MAXCOUNT 2 STREAMS", "(error) ERR syntax error"),
            (
                "XREAD MAXCOUNT 2 STREAMS a x",
                "(error) ERR Invalid stream ID specified as stream command argument",
            ),
            (
                "XREADGROUP MAXCOUNT 1 COUNT 2 NOACK STREAMS a >",
                "(error) ERR Missing GROUP option for XREADGROUP",
            ),
            ("COMMAND GETKEYS XREAD MAXSIZE 1 MAXCOUNT 9 STREAMS a b 0 0", "[\"a\", \"b\"]"),
            ("COMMAND GETKEYS XREAD MAXSIZE STREAMS STREAMS a 0", "[\"a\"]"),
        ],
    );
    waits.send(&request("XREADGROUP GROUP g Alice BLOCK 0 MAXCOUNT 2 STREAMS late >".split(' ')));
    assert!(waits.reply().reply().to_string().contains("NOGROUP"));
    client.line("XGROUP CREATE late g 0 MKSTREAM").is_ok();
    waits
        .send(&request("XREADGROUP GROUP g Alice BLOCK 0 MAXCOUNT 2 MAXSIZE 1000 STREAMS late >".split(' ')));
    wait_until("it waits", || client.info("blocked_clients") == "1");
    client.line("MULTI").is_ok();
    for number in 1..=3 {
        client.line(&format!("XADD late {number}-1 field value")).ignored();
    }
    client.line("EXEC").ignored();
    let reply = waits.reply().reply().to_string();
    assert!(reply.contains("\"2-1\"") && !reply.contains("\"3-1\""), "{reply}");
}
