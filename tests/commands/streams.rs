//! Streams: what the newer commands do, and what is left of it after a restart.

use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::server::{Server, wait_until};

/// Holds a conversation: a line, and the reply to it, in turn.
#[track_caller]
fn talk(client: &mut Client, conversation: &[(&str, &str)]) {
    for (line, reply) in conversation {
        assert_eq!(client.line(line).reply().to_string(), *reply, "{line}");
    }
}

/// A stream with four entries, the first three of which are pending in the group `g`, the first two in `h`.
fn pending(client: &mut Client) {
    for line in [
        "XADD s 1-1 a 1",
        "XADD s 1-2 a 2",
        "XADD s 1-3 a 3",
        "XADD s 1-4 a 4",
        "XGROUP CREATE s g 0",
        "XGROUP CREATE s h 0",
        "XREADGROUP GROUP g c COUNT 3 STREAMS s >",
        "XREADGROUP GROUP h c COUNT 2 STREAMS s >",
    ] {
        client.line(line).ignored();
    }
}

/// The replies of the commands that describe the stream `s`.
fn description(client: &mut Client) -> Vec<String> {
    let lines = ["XRANGE s - +", "XPENDING s g", "XPENDING s h", "XINFO STREAM s", "XINFO GROUPS s"];
    lines.map(|line| client.line(line).reply().to_string()).to_vec()
}

#[test]
fn groups_have_a_say_in_what_is_deleted_and_the_log_has_it() {
    let folder = Folder::new("streams-deleting");
    for conversation in [
        &[
            ("XDELEX s ACKED IDS 3 1-1 1-3 1-4", "[(integer) 2, (integer) 2, (integer) 2]"),
            ("XDELEX s DELREF IDS 2 1-1 9-9", "[(integer) 1, (integer) -1]"),
            ("XPENDING s g", "[(integer) 2, \"1-2\", \"1-3\", [[\"c\", \"2\"]]]"),
            ("XPENDING s h", "[(integer) 1, \"1-2\", \"1-2\", [[\"c\", \"1\"]]]"),
            ("XDELEX s KEEPREF IDS 1 1-2", "[(integer) 1]"),
            ("XPENDING s h", "[(integer) 1, \"1-2\", \"1-2\", [[\"c\", \"1\"]]]"),
            // It is in no stream, but still pending.
            ("XDELEX s DELREF IDS 1 1-2", "[(integer) -1]"),
            ("XPENDING s h", "[(integer) 0, (nil), (nil), (nil)]"),
            ("XLEN s", "(integer) 2"),
        ][..],
        &[
            ("XACKDEL s g ACKED IDS 3 1-1 1-1 1-4", "[(integer) 2, (integer) -1, (integer) -1]"),
            ("XACKDEL s h ACKED IDS 1 1-1", "[(integer) 1]"),
            ("XACKDEL s g DELREF IDS 1 1-2", "[(integer) 1]"),
            ("XPENDING s h", "[(integer) 0, (nil), (nil), (nil)]"),
            ("XACKDEL s nosuch IDS 1 1-3", "[(integer) -1]"),
            ("XACKDEL s g IDS 1 x", "(error) ERR Invalid stream ID specified as stream command argument"),
            ("XACKDEL s g IDS 1 1-3 1-4", "(error) ERR syntax error"),
            ("XACKDEL s g KEEPREF ACKED IDS 1", "(error) ERR syntax error"),
            ("XLEN s", "(integer) 2"),
        ],
        &[
            ("XTRIM s MAXLEN 1 ACKED", "(integer) 0"),
            ("XACK s g 1-1 1-2", "(integer) 2"),
            ("XACK s h 1-2", "(integer) 1"),
            // The first one is still pending in one of the groups.
            ("XTRIM s MAXLEN 1 ACKED", "(integer) 1"),
            ("XRANGE s - 1-2", "[[\"1-1\", [\"a\", \"1\"]]]"),
            ("XADD s DELREF MAXLEN 2 1-5 a 5", "\"1-5\""),
            ("XPENDING s g", "[(integer) 0, (nil), (nil), (nil)]"),
            ("XPENDING s h", "[(integer) 0, (nil), (nil), (nil)]"),
            ("XLEN s", "(integer) 2"),
        ],
    ] {
        let before = {
            let mut client = folder.serve(ALWAYS).into_client();
            client.line("FLUSHALL").is_ok();
            pending(&mut client);
            talk(&mut client, conversation);
            description(&mut client)
        };
        assert_eq!(description(&mut folder.serve(ALWAYS).into_client()), before);
    }
}

#[test]
fn a_message_that_is_sent_again_is_not_added_again() {
    let mut client = Server::start().into_client();
    let first = client.line("XADD s IDMP p m1 * a 1").text();
    client.line("XADD s IDMP p m1 * a other").is(&*first);
    let second = client.line("XADD s IDMP other m1 * a 1").text();
    assert_ne!(first, second);
    let third = client.line("XADD s IDMPAUTO p * a 1 b 2").text();
    // The order of the fields does not matter, what they have does.
    client.line("XADD s IDMPAUTO p * b 2 a 1").is(&*third);
    let fourth = client.line("XADD s IDMPAUTO p * b 1 a 2").text();
    assert_ne!(third, fourth);
    client.line("XLEN s").is(4);
    let info = client.line("XINFO STREAM s").reply().to_string();
    let counts = "\"idmp-duration\", (integer) 100, \"idmp-maxsize\", (integer) 100, \"pids-tracked\", \
                  (integer) 2, \"iids-tracked\", (integer) 4, \"iids-added\", (integer) 4, \
                  \"iids-duplicates\", (integer) 2, \"groups\"";
    assert!(info.contains(counts), "{info}");
    talk(
        &mut client,
        &[
            ("XADD s IDMP p \"\" * a 1", "(error) ERR syntax error, IDMP requires a non-empty idempotent ID"),
            (
                "XADD s IDMPAUTO \"\" * a 1",
                "(error) ERR syntax error, IDMPAUTO requires a non-empty producer ID",
            ),
            // The same values change nothing.
            ("XCFGSET s IDMP-MAXSIZE 100", "OK"),
            ("XCFGSET s IDMP-MAXSIZE 10001", "(error) ERR IDMP-MAXSIZE must be between 1 and 10000 entries"),
            ("XCFGSET s IDMP-MAXSIZE 1 IDMP-MAXSIZE 1", "(error) ERR IDMP-MAXSIZE specified multiple times"),
        ],
    );
    client.line("XADD s IDMP p m1 * a 1").is(&*first);
    client.line("XCFGSET s IDMP-MAXSIZE 1").is_ok();
    let again = client.line("XADD s IDMP p m1 * a 1").text();
    assert_ne!(first, again);
    // A producer has room for one message now.
    client.line("XADD s IDMP p m2 * a 1").ignored();
    assert_ne!(client.line("XADD s IDMP p m1 * a 1").text(), again);
    // Another producer has its own.
    let other = client.line("XADD s IDMP q m1 * a 1").text();
    client.line("XADD s IDMP p m3 * a 1").ignored();
    client.line("XADD s IDMP q m1 * a 1").is(&*other);
}

/// Redis 8 does not believe that a group has read more than was added so far.
#[test]
fn a_rewritten_log_says_what_was_added_before_it_says_what_groups_have_read() {
    let options = [ALWAYS, &["--aof-use-rdb-preamble", "no"]].concat();
    let folder = Folder::new("streams-rewritten");
    let lines = ["XINFO STREAM s FULL", "XINFO GROUPS s", "XPENDING s g"];
    let before = {
        let mut client = folder.serve(&options).into_client();
        pending(&mut client);
        // All that is pending in a group is deleted, or a part of it.
        for deleted in ["1-1", "1-2"] {
            client.line("XDEL s 1-4").ignored();
            client.cmd(["XDEL", "s", deleted]).is(1);
            client.line("COPY s other REPLACE").is(1);
        }
        client.line("XACK other g 1-1 1-2 1-3").is(3);
        client.line("XACK other h 1-1 1-2").is(2);
        client.line("BGREWRITEAOF").ignored();
        support::log::wait_for_rewrite(&mut client);
        lines.map(|line| client.line(line).reply().to_string())
    };
    let log = std::fs::read_to_string(folder.file("appendonlydir/appendonly.aof.2.base.aof")).unwrap();
    for key in ["s", "other"] {
        let count = log.find(&format!("XSETID\r\n${}\r\n{key}\r\n", key.len())).unwrap();
        assert!(count < log.find(&format!("CREATE\r\n${}\r\n{key}\r\n", key.len())).unwrap(), "{log}");
    }
    let mut client = folder.serve(&options).into_client();
    // Times apart, which a log does not have.
    let digits =
        |text: &String| text.split(", ").filter(|part| part.len() < 20).collect::<Vec<_>>().join(" ");
    let after = lines.map(|line| client.line(line).reply().to_string());
    assert_eq!(after.each_ref().map(digits), before.each_ref().map(digits));
}

#[test]
fn a_stream_goes_on_below_an_entry_that_was_deleted_after_a_restart_too() {
    for preamble in ["no", "yes"] {
        goes_on_below_an_entry_that_was_deleted(preamble);
    }
}

fn goes_on_below_an_entry_that_was_deleted(preamble: &str) {
    let options = [ALWAYS, &["--aof-use-rdb-preamble", preamble]].concat();
    let folder = Folder::new(&format!("streams-below-{preamble}"));
    let description = |client: &mut Client| client.line("XINFO STREAM s").reply().to_string();
    // Redis before version 7 lets a stream go back behind such an entry. Its logs are loaded.
    std::fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let lines = ["XADD s 5-0 a 1", "XADD s 9-0 a 2", "XDEL s 9-0", "XSETID s 6-0", "XADD s 7-0 a 3"];
    let log = lines.map(|line| request(line.split(' '))).concat();
    std::fs::write(folder.file("appendonlydir/appendonly.aof.1.incr.aof"), log).unwrap();
    let mut before = {
        let mut client = folder.serve(&options).into_client();
        client.line("XLEN s").is(2);
        let why = "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
        client.line("XSETID s 8-0").is_error(why);
        description(&mut client)
    };
    for is_rewritten in [false, true] {
        let mut client = folder.serve(&options).into_client();
        assert_eq!(description(&mut client), before, "rewritten: {is_rewritten}");
        client.line("BGREWRITEAOF").ignored();
        support::log::wait_for_rewrite(&mut client);
        client.line("XADD s 8-0 a 4").ignored();
        before = description(&mut client);
    }
}

/// Redis logs a message with the ID that it got, and one that it has not added again as it came.
#[test]
fn a_log_of_redis_names_messages_that_were_added_and_that_were_not() {
    const IN_FUTURE: &str = "33177117420000-0";
    let folder = Folder::new("streams-log-of-redis");
    std::fs::create_dir(folder.path().join("appendonlydir")).unwrap();
    folder.write("appendonlydir/appendonly.aof.manifest", "file appendonly.aof.1.incr.aof seq 1 type i\n");
    let log = [
        "XADD s IDMP p old 1-1 a 1",
        "XADD s IDMP p old * a again",
        &format!("XADD s KEEPREF IDMP p m1 MAXLEN 10 {IN_FUTURE} a 2"),
        "XADD s IDMP p m1 * a again",
        "XADD absent NOMKSTREAM IDMP p m1 * a 1",
    ];
    let log = log.map(|line| request(line.split(' ')));
    std::fs::write(folder.file("appendonlydir/appendonly.aof.1.incr.aof"), log.concat()).unwrap();
    let mut client = folder.serve(ALWAYS).into_client();
    let entries = client.line("XRANGE s - +").reply().to_string();
    assert_eq!(entries, format!("[[\"1-1\", [\"a\", \"1\"]], [\"{IN_FUTURE}\", [\"a\", \"2\"]]]"));
    client.line("EXISTS absent").is(0);
    client.line("XADD s IDMP p m1 * a again").is(IN_FUTURE);
    assert_ne!(client.line("XADD s IDMP p old * a 3").text(), "1-1", "its time is over");
    client.line("XLEN s").is(3);
    // Clients let the server choose.
    client
        .line("XADD s IDMP p m2 33177117420009-0 a 1")
        .is_error("ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs");
}

/// Checked with Redis 8.6.3.
#[test]
fn a_block_stays_if_its_last_entry_was_deleted_and_the_rule_does_not_apply_to_it() {
    let mut client = Server::start().into_client();
    for rule in ["ACKED", "DELREF"] {
        for line in ["FLUSHALL", "XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XDEL s 3-1"] {
            client.line(line).ignored();
        }
        for (least, trimmed, blocks) in [("2-5", 2, 1), ("2-6", 0, 1), ("4-1", 0, 0)] {
            client.line(&format!("XTRIM s MINID {least} {rule}")).is(trimmed);
            let info = client.line("XINFO STREAM s").reply().to_string();
            let expected = format!("\"length\", (integer) 0, \"radix-tree-keys\", (integer) {blocks}");
            assert!(info.contains(&expected), "{rule} {least}: {info}");
        }
    }
}

/// Checked with Redis 8.6.3.
#[test]
fn a_plus_stands_for_the_last_entry_of_a_stream() {
    let server = Server::start();
    let (mut client, mut waits) = (server.client(), server.client());
    for (line, expected) in [
        ("XADD s 1-1 f v", "\"1-1\""),
        ("XADD s 2-0 f w", "\"2-0\""),
        ("XREAD STREAMS s absent + +", "[[\"s\", [[\"2-0\", [\"f\", \"w\"]]]]]"),
        (
            "XREAD COUNT 5 STREAMS s s + 1",
            "[[\"s\", [[\"2-0\", [\"f\", \"w\"]]]], \
             [\"s\", [[\"1-1\", [\"f\", \"v\"]], [\"2-0\", [\"f\", \"w\"]]]]]",
        ),
        ("XDEL s 2-0", "(integer) 1"),
        ("XREAD BLOCK 0 STREAMS s +", "[[\"s\", [[\"1-1\", [\"f\", \"v\"]]]]]"),
        ("XGROUP CREATE s g 0", "OK"),
        (
            "XREADGROUP GROUP g c STREAMS s +",
            "(error) ERR The + ID is meaningless in the context of XREADGROUP: you want to read the history \
             of this consumer by specifying a proper ID, or use the > ID to get new messages. The + ID would \
             just return an empty result set.",
        ),
        ("XDEL s 1-1", "(integer) 1"),
        ("XREAD STREAMS s +", "(nil)"),
        ("XREAD BLOCK 1 STREAMS s absent + +", "(nil)"),
    ] {
        assert_eq!(client.line(line).reply().to_string(), expected, "{line}");
    }
    // A client that waits gets the last one of those that come at once.
    waits.send(&request("XREAD BLOCK 0 STREAMS absent s + +".split(' ')));
    wait_until("it waits", || client.info("blocked_clients") == "1");
    client.line("MULTI").is_ok();
    client.line("XADD s 3-1 f x").ignored();
    client.line("XADD s 4-1 f y").ignored();
    client.line("EXEC").ignored();
    assert_eq!(waits.reply().reply().to_string(), "[[\"s\", [[\"4-1\", [\"f\", \"y\"]]]]]");
}

#[test]
fn counts_beyond_the_largest_number_of_clients_survive_in_the_log() {
    for rewritten in [None, Some("yes"), Some("no")] {
        let folder = Folder::new(&format!("streams-counts-{}", rewritten.unwrap_or("log")));
        let options = [ALWAYS, &["--aof-use-rdb-preamble", rewritten.unwrap_or("no")]].concat();
        let mut client = folder.serve(&options).into_client();
        for line in [
            "XADD s 1-1 f v",
            "XSETID s 1-1 ENTRIESADDED 9223372036854775807",
            "XADD s 2-1 f v",
            "XGROUP CREATE s g 1-1 ENTRIESREAD 9223372036854775807",
            "XREADGROUP GROUP g c STREAMS s >",
            // The log has the number of all entries with it.
            "XSETID s 3-1",
        ] {
            client.line(line).ignored();
        }
        if rewritten.is_some() {
            client.line("BGREWRITEAOF").ignored();
            support::log::wait_for_rewrite(&mut client);
        }
        drop(client);
        let mut client = folder.serve(&options).into_client();
        let of_stream = client.line("XINFO STREAM s").reply().to_string();
        let of_group = client.line("XINFO GROUPS s").reply().to_string();
        assert!(of_stream.contains("\"entries-added\", (integer) -9223372036854775808"), "{of_stream}");
        assert!(of_stream.contains("\"last-generated-id\", \"3-1\""), "{of_stream}");
        assert!(of_group.contains("\"entries-read\", (integer) -9223372036854775808"), "{of_group}");
        // Clients cannot give such numbers.
        let wrong = "ERR value is not an integer or out of range";
        client.line("XSETID s 3-1 ENTRIESADDED 9223372036854775808").is_error(wrong);
        client.line("XGROUP SETID s g 0 ENTRIESREAD 9223372036854775808").is_error(wrong);
    }
}

marked!(also_redis: the_fields_of_xinfo_are_those_of_redis);
fn the_fields_of_xinfo_are_those_of_redis() {
    const HEAD: &str = "length radix-tree-keys radix-tree-nodes last-generated-id max-deleted-entry-id \
        entries-added recorded-first-entry-id idmp-duration idmp-maxsize pids-tracked iids-tracked \
        iids-added iids-duplicates";
    let mut client = Server::start().into_client();
    client.line("XADD s 1-1 f v").ignored();
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g c STREAMS s >").ignored();
    for protocol in ["2", "3"] {
        client.line(&format!("HELLO {protocol}")).ignored();
        let stream = fields(client.line("XINFO STREAM s").reply());
        let full = fields(client.line("XINFO STREAM s FULL").reply());
        let group = fields(first(&full.last().expect("a field").1));
        let consumer = fields(first(&group.last().expect("a field").1));
        let [groups, consumers] =
            ["XINFO GROUPS s", "XINFO CONSUMERS s g"].map(|line| fields(client.line(line).items().remove(0)));
        for (found, expected) in [
            (&stream, format!("{HEAD} groups first-entry last-entry")),
            (&full, format!("{HEAD} entries groups")),
            (&group, "name last-delivered-id entries-read lag pel-count pending consumers".to_owned()),
            (&consumer, "name seen-time active-time pel-count pending".to_owned()),
            (&groups, "name consumers pending last-delivered-id entries-read lag".to_owned()),
            (&consumers, "name pending idle inactive".to_owned()),
        ] {
            let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names.join(" "), expected, "RESP{protocol}");
        }
    }
}

/// The fields of a reply, which is a map or a list of names and values.
fn fields(reply: Reply) -> Vec<(String, Reply)> {
    let name = |reply: &Reply| reply.to_string().trim_matches('"').to_owned();
    match reply {
        Reply::Map(pairs) => pairs.into_iter().map(|(key, value)| (name(&key), value)).collect(),
        Reply::Array(items) => items.chunks_exact(2).map(|pair| (name(&pair[0]), pair[1].clone())).collect(),
        other => panic!("no fields: {other}"),
    }
}

fn first(reply: &Reply) -> Reply {
    match reply {
        Reply::Array(items) => items.first().expect("an element").clone(),
        other => panic!("no list: {other}"),
    }
}

#[test]
fn messages_are_remembered_after_a_restart_and_by_copies() {
    for options in [ALWAYS, &["--save", "3600 1"], &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]] {
        let folder = Folder::new(&format!("streams-producers-{}", options.concat().len()));
        let ids = {
            let mut client = folder.serve(options).into_client();
            let first = client.line("XADD s IDMP p m1 * a 1").text();
            client.line("XCFGSET s IDMP-MAXSIZE 77").is_ok();
            let ids = ["XADD s IDMP p m1 * a 1", "XADD s IDMP q m1 * a 1", "XADD s IDMPAUTO p * a 1"]
                .map(|line| client.line(line).text());
            assert_ne!(first, ids[0]);
            // A stream may have lost what its producer has added.
            client.cmd(["XDEL", "s", &ids[1]]).is(1);
            match options[0] {
                "--save" => client.line("SAVE").is_ok(),
                _ => client.line("BGREWRITEAOF").ignored(),
            }
            support::log::wait_for_rewrite(&mut client);
            client.line("XADD plain IDMP p m * a 1").ignored();
            ids
        };
        let mut client = folder.serve(options).into_client();
        let dump = client.line("DUMP s").reply();
        let support::client::Reply::Bulk(dump) = dump else { panic!("{dump}") };
        assert_eq!(dump[0], 26, "the RDB type of Redis 8.6");
        assert_eq!(dump[dump.len() - 10..dump.len() - 8], [13, 0], "and its version");
        client.cmd([&b"RESTORE"[..], b"restored", b"0", &dump]).is_ok();
        client.line("COPY s copied").is(1);
        for key in ["s", "restored", "copied"] {
            for (line, id) in ["IDMP p m1 *", "IDMP q m1 *", "IDMPAUTO p *"].iter().zip(&ids) {
                client.line(&format!("XADD {key} {line} a 1")).is(&**id);
            }
            let info = client.cmd(["XINFO", "STREAM", key]).reply().to_string();
            assert!(info.contains("\"idmp-maxsize\", (integer) 77"), "{info}");
        }
        // Without producers a stream is written as Redis 7.0 does.
        client.line("XADD without 1-1 a 1").ignored();
        let support::client::Reply::Bulk(dump) = client.line("DUMP without").reply() else { panic!() };
        assert_eq!(dump[0], 19);
    }
}

/// The IDs of entries that XREADGROUP has claimed of one stream, with the numbers of their deliveries.
fn claimed(client: &mut Client, line: &str) -> Vec<(String, i64)> {
    let script = "local r = redis.call(unpack(ARGV)) local o = {} if not r then return o end \
                  for _, e in ipairs(r[1][2]) do o[#o + 1] = e[1] o[#o + 1] = e[4] end return o";
    let words = ["EVAL", script, "0"].into_iter().chain(line.split(' '));
    let items = client.cmd(words).items();
    let number = |reply: &support::client::Reply| match reply {
        support::client::Reply::Integer(number) => *number,
        other => panic!("{other}"),
    };
    let name = |reply: &support::client::Reply| reply.to_string().trim_matches('"').to_string();
    items.chunks(2).map(|pair| (name(&pair[0]), number(&pair[1]))).collect()
}

#[test]
fn entries_that_are_idle_for_the_longest_time_are_claimed_first() {
    let mut client = Server::start().into_client();
    let lines = (1..=4).map(|n| format!("XADD s 1-{n} a {n}"));
    lines.for_each(|line| client.line(&line).ignored());
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g a COUNT 3 STREAMS s >").ignored();
    // The second one was delivered long ago.
    client.line("XCLAIM s g a 0 1-2 TIME 5000 JUSTID").ignored();
    let ids = |claimed: &[(String, i64)]| claimed.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let first = claimed(&mut client, "XREADGROUP GROUP g b COUNT 2 CLAIM 0 STREAMS s >");
    assert_eq!(first, [("1-2".into(), 1), ("1-1".into(), 1)]);
    // What is new comes behind them, and has not been delivered before.
    let all = claimed(&mut client, "XREADGROUP GROUP g b CLAIM 0 STREAMS s >");
    assert_eq!(ids(&all), ["1-3", "1-2", "1-1", "1-4"]);
    assert_eq!(all.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 2, 2, 0]);
    talk(
        &mut client,
        &[
            ("XREADGROUP GROUP g b CLAIM 100000 STREAMS s >", "(nil)"),
            ("XPENDING s g", "[(integer) 4, \"1-1\", \"1-4\", [[\"b\", \"4\"]]]"),
            ("XACK s g 1-3", "(integer) 1"),
            ("XDEL s 1-2", "(integer) 1"),
        ],
    );
    // Neither what was acknowledged nor what was deleted can be claimed.
    assert_eq!(ids(&claimed(&mut client, "XREADGROUP GROUP g c CLAIM 0 STREAMS s >")), ["1-1", "1-4"]);
    client.line("XGROUP DELCONSUMER s g c").is(2);
    client.line("XREADGROUP GROUP g c CLAIM 0 STREAMS s >").is_nil();
}

#[test]
fn a_client_that_waits_gets_an_entry_as_soon_as_it_is_idle_for_long_enough() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    client.line("XADD s 1-1 a 1").ignored();
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g a STREAMS s >").ignored();
    let began = Instant::now();
    waiting.send(&request("XREADGROUP GROUP g b BLOCK 10000 CLAIM 150 STREAMS s >".split(' ')));
    let reply = waiting.reply().reply().to_string();
    assert!(reply.starts_with("[[\"s\", [[\"1-1\", [\"a\", \"1\"], (integer) "), "{reply}");
    assert!((100..5000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    // Its time ends though nothing is idle, and so does a wait that another client ends.
    waiting.line("XREADGROUP GROUP g c BLOCK 30 CLAIM 100000 STREAMS s >").is_nil();
    let id = waiting.line("CLIENT ID").integer();
    waiting.send(&request("XREADGROUP GROUP g c BLOCK 0 CLAIM 60000 STREAMS s >".split(' ')));
    wait_until("the client waits", || client.info("blocked_clients") == "1");
    client.cmd(["CLIENT", "UNBLOCK", &id.to_string()]).is(1);
    waiting.reply().is_nil();
    // A new entry is not waited for.
    waiting.send(&request("XREADGROUP GROUP g c BLOCK 0 CLAIM 60000 STREAMS s >".split(' ')));
    thread::sleep(Duration::from_millis(20));
    client.line("XADD s 1-2 a 2").is("1-2");
    let reply = waiting.reply().reply().to_string();
    assert_eq!(reply, "[[\"s\", [[\"1-2\", [\"a\", \"2\"], (integer) 0, (integer) 0]]]]");
}

#[test]
fn a_client_that_waits_for_a_group_learns_at_once_that_the_stream_is_gone() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    for way in ["DEL s", "SET s v", "PEXPIRE s 30", "CONFIG SET maxmemory-policy allkeys-random maxmemory 1"]
    {
        client.line("DEL s").ignored();
        client.line("XGROUP CREATE s g 0 MKSTREAM").is_ok();
        waiting.send(&request("XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split(' ')));
        wait_until("the client waits", || client.info("blocked_clients") == "1");
        client.line(way).ignored();
        if way.starts_with("CONFIG") {
            client.line("SET other v").is_error("OOM command not allowed when used memory > 'maxmemory'.");
        }
        // No other client asks for the key.
        waiting.reply().is_error(match way {
            "SET s v" => "WRONGTYPE Operation against a key holding the wrong kind of value",
            _ => "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option",
        });
    }
}

/// What is known of the consumers of the group `g`: name, idle, inactive. Their entries are left out.
fn known_consumers(client: &mut Client, key: &str) -> Vec<String> {
    let script = "local all = {} for _, c in ipairs(redis.call('XINFO', 'CONSUMERS', ARGV[1], 'g')) do \
                  all[#all + 1] = c[2] .. ' ' .. c[6] .. ' ' .. c[8] end return all";
    let items = client.cmd(["EVAL", script, "0", key]).items();
    items.iter().map(|item| item.to_string().trim_matches('"').to_owned()).collect()
}

/// As in Redis from 7.2 on.
#[test]
fn a_consumer_is_known_from_its_first_attempt_on_and_active_when_it_gets_an_entry() {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let mut client = server.client();
    client.line("CLOCK FREEZE").is_ok();
    client.line("XGROUP CREATE s g 0 MKSTREAM").is_ok();
    // A consumer that gets nothing is known, but was never active.
    for line in [
        "XREADGROUP GROUP g new STREAMS s >",
        "XREADGROUP GROUP g old STREAMS s 0",
        "XCLAIM s g claims 0 1-1",
        "XAUTOCLAIM s g takes 0 0",
        "XGROUP CREATECONSUMER s g made",
    ] {
        client.line("CLOCK ADVANCE 100").is_ok();
        client.line(line).ignored();
    }
    let known = ["claims 200 -1", "made 0 -1", "new 400 -1", "old 300 -1", "takes 100 -1"];
    assert_eq!(known_consumers(&mut client, "s"), known);
    let consumers = client.line("XINFO CONSUMERS s g").items();
    let fields = "[\"name\", \"claims\", \"pending\", (integer) 0, \"idle\", (integer) 200, \
                  \"inactive\", (integer) -1]";
    assert_eq!(consumers[0].to_string(), fields);
    (1..=4).for_each(|n| client.line(&format!("XADD s 1-{n} a {n}")).ignored());
    // Entries are pending for an active consumer: not those that need no acknowledgement, nor those that
    // the consumer has got before.
    for line in [
        "XREADGROUP GROUP g new COUNT 2 STREAMS s >",
        "XREADGROUP GROUP g old COUNT 1 NOACK STREAMS s >",
        "XCLAIM s g claims 0 1-1 JUSTID",
        "XAUTOCLAIM s g takes 0 1-2 COUNT 1",
        "XREADGROUP GROUP g takes STREAMS s 0",
        "XCLAIM s g made 10000 1-1",
    ] {
        client.line("CLOCK ADVANCE 100").is_ok();
        client.line(line).ignored();
    }
    let known = ["claims 300 300", "made 0 -1", "new 500 500", "old 400 -1", "takes 100 200"];
    assert_eq!(known_consumers(&mut client, "s"), known);
    // These make no consumer known or active.
    client.line("CLOCK ADVANCE 100").is_ok();
    client.line("XACK s g 1-1").is(1);
    client.line("XGROUP CREATECONSUMER s g new").is(0);
    let known = ["claims 400 400", "made 100 -1", "new 600 600", "old 500 -1", "takes 200 300"];
    assert_eq!(known_consumers(&mut client, "s"), known);
    let full = client.line("XINFO STREAM s FULL").reply().to_string();
    assert!(full.contains("\"active-time\", (integer) -1, \"pel-count\", (integer) 0"), "{full}");
}

#[test]
fn a_consumer_that_waits_is_known_meanwhile_and_when_it_waits_in_vain() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    client.line("XGROUP CREATE s g 0 MKSTREAM").is_ok();
    waiting.send(&request("XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split(' ')));
    wait_until("the client waits", || client.info("blocked_clients") == "1");
    let known = client.line("XINFO CONSUMERS s g").reply().to_string();
    assert!(known.starts_with("[[\"name\", \"c\"") && known.ends_with("(integer) -1]]"), "{known}");
    client.line("XADD s 1-1 a 1").ignored();
    let reply = waiting.reply().reply().to_string();
    assert_eq!(reply, "[[\"s\", [[\"1-1\", [\"a\", \"1\"]]]]]");
    let known = client.line("XINFO CONSUMERS s g").reply().to_string();
    assert!(!known.contains("-1"), "{known}");
    // Of several streams, those that have nothing know it, too.
    client.line("XGROUP CREATE empty g 0 MKSTREAM").is_ok();
    client.line("XADD s 1-2 a 2").ignored();
    client.line("XREADGROUP GROUP g both STREAMS empty s > >").ignored();
    assert_eq!(client.line("XINFO CONSUMERS empty g").items().len(), 1);
    for line in ["MULTI", "XREADGROUP GROUP g inside STREAMS s >", "EXEC"] {
        client.line(line).ignored();
    }
    assert_eq!(client.line("XINFO CONSUMERS s g").items().len(), 3);
}

#[test]
fn a_copy_keeps_when_a_consumer_was_active_and_a_payload_when_it_was_heard_of() {
    let folder = Folder::new("streams-active");
    let options = ["--enable-clock-command", "yes", "--save", "3600 1"];
    let payload = |client: &mut Client, key: &str| match client.cmd(["DUMP", key]).reply() {
        support::client::Reply::Bulk(payload) => payload,
        other => panic!("{other}"),
    };
    let now_ms = |client: &mut Client| {
        let seconds = client.line("TIME").items();
        let digits = |at: usize| seconds[at].to_string().trim_matches('"').parse::<u64>().unwrap();
        digits(0) * 1000 + digits(1) / 1000
    };
    let mut client = folder.serve(&options).into_client();
    client.line("CLOCK FREEZE").is_ok();
    let frozen_ms = now_ms(&mut client);
    client.line("XADD s 1-1 a 1").ignored();
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g c STREAMS s >").ignored();
    // Redis 7.0 has one time for both.
    let plain = payload(&mut client, "s");
    assert_eq!((plain[0], plain[plain.len() - 10]), (19, 10));
    client.line("CLOCK ADVANCE 100").is_ok();
    client.line("XREADGROUP GROUP g c STREAMS s >").ignored();
    client.line("XGROUP CREATECONSUMER s g never").is(1);
    client.line("CLOCK ADVANCE 100").is_ok();
    let known = ["c 100 200", "never 100 -1"];
    assert_eq!(known_consumers(&mut client, "s"), known);
    let dump = payload(&mut client, "s");
    assert_eq!((dump[0], dump[dump.len() - 10]), (19, 10), "the form that all servers read");
    client.cmd([&b"RESTORE"[..], b"restored", b"0", &dump]).is_ok();
    client.cmd([&b"RESTORE"[..], b"plain", b"0", &plain]).is_ok();
    client.line("COPY s copied").is(1);
    assert_eq!(known_consumers(&mut client, "copied"), known);
    assert_eq!(known_consumers(&mut client, "restored"), ["c 100 100", "never 100 100"]);
    assert_eq!(known_consumers(&mut client, "plain"), ["c 200 200"]);
    let described = client.line("XINFO STREAM s FULL").reply().to_string();
    assert!(described.contains(&format!("\"active-time\", (integer) {frozen_ms}")), "{described}");
    client.line("SAVE").is_ok();
    drop(client);
    let mut client = folder.serve(&options).into_client();
    // The other clock was ahead.
    client.line("CLOCK ADVANCE 1000").is_ok();
    let consumers = known_consumers(&mut client, "s");
    assert_eq!(consumers.len(), known.len());
    for consumer in consumers {
        let times: Vec<&str> = consumer.split(' ').skip(1).collect();
        assert_eq!(times[0], times[1], "{consumer}");
    }
}

#[test]
fn idle_entries_are_claimed_some_thousands_at_a_time() {
    const ENTRIES: usize = 12_000;
    let server = Server::start();
    let mut client = server.client();
    let entries: Vec<u8> =
        (1..=ENTRIES).flat_map(|id| request(["XADD", "s", &format!("{id}-0"), "f", "v"])).collect();
    client.send(&entries);
    (0..ENTRIES).for_each(|_| drop(client.reply()));
    client.line("XGROUP CREATE s g 0").is_ok();
    client.line("XREADGROUP GROUP g first STREAMS s >").ignored();
    let (mut cursor, mut claimed) = ("0-0".to_owned(), Vec::new());
    loop {
        let reply = client.line(&format!("XAUTOCLAIM s g second 0 {cursor} COUNT 1000000 JUSTID")).items();
        let [Reply::Bulk(next), Reply::Array(ids), Reply::Array(deleted)] = &reply[..] else {
            panic!("{reply:?}")
        };
        assert!(ids.len() <= 5000 && deleted.is_empty());
        claimed.extend(ids.iter().map(Reply::to_string));
        cursor = String::from_utf8_lossy(next).into_owned();
        if cursor == "0-0" {
            break;
        }
        assert_eq!(ids.len(), 5000, "it goes on, so there was more");
    }
    assert_eq!(claimed, (1..=ENTRIES).map(|id| format!("\"{id}-0\"")).collect::<Vec<_>>());
    let all = client.line("XPENDING s g").reply().to_string();
    assert!(all.contains("[\"second\", \"12000\"]"), "{all}");
}

/// Redis 7.0 looks at the ID of the last entry alone.
#[test]
fn a_last_id_does_not_fall_behind_an_entry_that_was_deleted() {
    let mut client = Server::start().into_client();
    client.line("XADD x 5-5 f v").is("5-5");
    client.line("XDEL x 5-5").is(1);
    client
        .line("XSETID x 5-4")
        .is_error("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id");
    client.line("XSETID x 5-5").is_ok();
}
