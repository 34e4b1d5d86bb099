//! What INFO counts: calls, errors and changes.

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::{Server, wait_until};

/// How often a command was called, was refused and has failed.
fn usage(client: &mut Client, command: &str) -> [u64; 3] {
    let text = client.line("INFO commandstats").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
    let field = |name: &str| {
        let mut fields = line.unwrap_or_default().split(',');
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('=')).map_or(0, |n| n.parse().unwrap())
    };
    ["calls", "rejected_calls", "failed_calls"].map(field)
}

/// The number that a field of INFO is.
fn number(client: &mut Client, field: &str) -> u64 {
    client.info(field).parse().unwrap_or_else(|_| panic!("{field} is a number"))
}

/// How many errors were counted, by all their kinds and in one number.
fn errors(client: &mut Client) -> u64 {
    let text = client.line("INFO errorstats").text();
    let kinds = text.lines().filter_map(|line| line.split_once("count="));
    let sum = kinds.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum();
    assert_eq!(number(client, "total_error_replies"), sum);
    sum
}

marked!(also_redis: an_error_that_a_script_catches_is_counted_once_and_only_a_run_that_ends_with_one_has_failed);
fn an_error_that_a_script_catches_is_counted_once_and_only_a_run_that_ends_with_one_has_failed() {
    let mut client = Server::start().into_client();
    client.line("SET s v").is_ok();
    for (script, [failed_runs, failed, rejected, counted]) in [
        ("return redis.pcall('incr', 's')", [1, 1, 0, 1]),
        ("redis.pcall('incr', 's') return 1", [0, 1, 0, 1]),
        ("return redis.call('incr', 's')", [1, 1, 0, 1]),
        ("pcall(function() redis.call('incr', 's') end) return 1", [0, 1, 0, 1]),
        ("return redis.pcall('incr')", [1, 0, 1, 1]),
        ("redis.pcall('incr') return 1", [0, 0, 1, 1]),
        ("redis.pcall('nosuch') return 1", [0, 0, 0, 1]),
        ("return redis.error_reply('MY own')", [1, 0, 0, 1]),
        ("return {redis.error_reply('MY own'), redis.error_reply('MY own')}", [1, 0, 0, 2]),
        ("return {err = 'MY own'}", [1, 0, 0, 1]),
        ("error('MY own')", [1, 0, 0, 1]),
        ("pcall(error, 'MY own') return 1", [0, 0, 0, 0]),
        ("return (", [1, 0, 0, 1]),
        ("local e = redis.pcall('incr', 's') return redis.error_reply(e.err)", [1, 1, 0, 2]),
        ("local e = redis.pcall('incr', 's') error(e)", [1, 1, 0, 1]),
        ("return {redis.pcall('incr', 's'), redis.pcall('incr', 's')}", [2, 2, 0, 2]),
    ] {
        client.line("CONFIG RESETSTAT").is_ok();
        let _ = client.cmd(["EVAL", script, "0"]);
        assert_eq!(usage(&mut client, "eval"), [1, 0, failed_runs], "{script}");
        let [calls, refused, failures] = usage(&mut client, "incr");
        assert_eq!([calls, refused, failures], [failed, rejected, failed], "{script}");
        assert_eq!(errors(&mut client), counted, "{script}");
    }
}

marked!(also_redis: commands_are_processed_when_they_run_not_when_they_are_refused_or_queued);
fn commands_are_processed_when_they_run_not_when_they_are_refused_or_queued() {
    let mut client = Server::start().into_client();
    client.line("SET s v").is_ok();
    let mut before = number(&mut client, "total_commands_processed");
    let script = "redis.call('get', 's') redis.pcall('incr', 's') redis.pcall('get') return 1";
    let eval = ["EVAL", script, "0"].map(|word| format!("\"{word}\"")).join(" ");
    for (lines, processed) in [
        (&["PING", "SET k v", "INCR s"][..], 3),
        (&["NOSUCH", "GET", "CLIENT NOSUCH", "CLIENT KILL"], 0),
        (&[&eval], 3),
        (&["MULTI", "GET s", "INCR s", "EXEC"], 4),
        (&["MULTI", "GET s", "GET", "EXEC"], 2),
        (&["MULTI", "GET s", "DISCARD"], 2),
        (&["MULTI", &eval, "EXEC"], 5),
        (&["EXEC"], 1),
    ] {
        for line in lines {
            let _ = client.line(line);
        }
        // The INFO before has been counted meanwhile.
        let after = number(&mut client, "total_commands_processed");
        assert_eq!(after - before - 1, processed, "{lines:?}");
        before = after;
    }
}

marked!(also_redis: a_command_that_exec_may_not_run_any_more_is_neither_called_nor_failed);
fn a_command_that_exec_may_not_run_any_more_is_neither_called_nor_failed() {
    let server = Server::start();
    let (mut client, mut admin) = (server.client(), server.client());
    client.line("MULTI").is_ok();
    client.line("APPEND k v").is_simple("QUEUED");
    client.line("PING").is_simple("QUEUED");
    admin.line("ACL SETUSER default -append").is_ok();
    let replies = client.line("EXEC").reply().to_string();
    assert!(
        replies.starts_with("[(error) NOPERM ACLs rules changed") && replies.ends_with("PONG]"),
        "{replies}"
    );
    assert_eq!(usage(&mut admin, "append"), [0, 0, 0]);
    assert_eq!(usage(&mut admin, "exec"), [1, 0, 0]);
    assert_eq!(errors(&mut admin), 1);
}

marked!(also_redis: an_error_counts_although_no_reply_is_wanted);
fn an_error_counts_although_no_reply_is_wanted() {
    let mut client = Server::start().into_client();
    client.send(b"CLIENT REPLY OFF\r\nGET\r\nSET s v\r\nINCR s\r\nCLIENT REPLY ON\r\n");
    client.reply().is_ok();
    assert_eq!(errors(&mut client), 2);
    assert_eq!((usage(&mut client, "get"), usage(&mut client, "incr")), ([0, 1, 0], [1, 0, 1]));
}

marked!(also_redis: after_flushall_there_are_no_changes_to_be_saved);
fn after_flushall_there_are_no_changes_to_be_saved() {
    let folder = Folder::new("flushed-changes");
    let path = folder.path().to_str().unwrap();
    let server = Server::start_with(&["--save", "3600 1", "--dir", path]);
    let mut client = server.client();
    let flushes =
        ["FLUSHALL", "FLUSHALL ASYNC", "EVAL \"redis.call('set', 'k', 'v') redis.call('flushall')\" 0"];
    for flush in flushes {
        client.line("MSET a 1 b 2 c 3").is_ok();
        assert_eq!(number(&mut client, "rdb_changes_since_last_save"), 3);
        let _ = client.line(flush);
        assert_eq!(number(&mut client, "rdb_changes_since_last_save"), 0, "{flush}");
    }
    client.line("SET k v").is_ok();
    client.line("FLUSHDB").is_ok();
    assert_eq!(number(&mut client, "rdb_changes_since_last_save"), 2, "FLUSHDB saves nothing");
    client.line("SAVE").is_ok();
    client.line("SET k v").is_ok();
    client.line("SAVE").is_ok();
    client.line("FLUSHALL").is_ok();
    server.signal("KILL");
    drop((client, server));
    let mut client = Server::start_with(&["--dir", path]).into_client();
    client.line("DBSIZE").is(0);
}

marked!(also_redis: without_save_points_flushall_saves_nothing);
fn without_save_points_flushall_saves_nothing() {
    let mut client = Server::start().into_client();
    client.line("MSET a 1 b 2 c 3").is_ok();
    client.line("FLUSHALL").is_ok();
    assert_eq!(number(&mut client, "rdb_changes_since_last_save"), 6);
}

marked!(also_redis: a_bitfield_that_changes_nothing_is_no_change);
fn a_bitfield_that_changes_nothing_is_no_change() {
    let server = Server::start();
    let (mut client, mut watcher, mut listener) = (server.client(), server.client(), server.client());
    client.line("SET k ab").is_ok();
    client.line("SET n 12345").is_ok();
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    listener.line("PSUBSCRIBE __key*").ignored();
    for (bitfield, changes) in [
        ("BITFIELD k SET u8 0 97", 0),
        ("BITFIELD k INCRBY u8 0 0", 0),
        ("BITFIELD k SET u8 0 97 GET u8 8 INCRBY u8 8 0", 0),
        ("BITFIELD k OVERFLOW FAIL INCRBY u8 0 200", 0),
        ("BITFIELD k OVERFLOW FAIL SET u8 8 300", 0),
        ("BITFIELD k OVERFLOW SAT INCRBY u8 0 0", 0),
        ("BITFIELD k GET u8 0", 0),
        ("BITFIELD k GET u8 999", 0),
        ("BITFIELD n OVERFLOW FAIL INCRBY u8 0 999", 0),
        ("BITFIELD k SET u8 0 98", 1),
        ("BITFIELD k SET u8 0 97 SET u8 0 98", 2),
        ("BITFIELD k SET u8 0 98 INCRBY u8 8 1 GET u8 0", 1),
        ("BITFIELD k SET u8 16 0", 1),
        ("BITFIELD k OVERFLOW FAIL SET u8 24 0 INCRBY u8 0 999", 1),
        ("BITFIELD new SET u8 0 0", 1),
        ("BITFIELD k GET u8 999 SET u8 0 1", 1),
    ] {
        watcher.line("WATCH k n new").is_ok();
        let before = number(&mut client, "rdb_changes_since_last_save");
        let _ = client.line(bitfield);
        assert_eq!(number(&mut client, "rdb_changes_since_last_save") - before, changes, "{bitfield}");
        watcher.line("MULTI").is_ok();
        let is_overtaken = watcher.line("EXEC").reply() == support::client::Reply::Null;
        assert_eq!(is_overtaken, changes > 0, "{bitfield}");
        client.cmd(["PUBLISH", "__key_end", bitfield]).is(1);
        let mut events = 0;
        while !listener.reply().reply().to_string().contains(bitfield) {
            events += 1;
        }
        assert_eq!(events, if changes > 0 { 2 } else { 0 }, "{bitfield}");
    }
    client.line("OBJECT ENCODING n").is("raw");
}

/// Lets a client send a request that waits. Returns when the server knows of it.
fn wait(server: &Server, client: &mut Client, line: &str) {
    let mut other = server.client();
    client.send(&request(line.split(' ')));
    wait_until("the client waits", || other.info("blocked_clients") == "1");
}

marked!(also_redis: a_command_that_waits_counts_once_its_wait_has_ended);
fn a_command_that_waits_counts_once_its_wait_has_ended() {
    let server = Server::start_with(&["--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000"]);
    let (mut client, mut other) = (server.client(), server.client());
    let logged = |other: &mut Client| {
        let entries = other.line("SLOWLOG GET -1").reply().to_string();
        entries.matches("\"BLPOP\"").count()
    };
    wait(&server, &mut client, "BLPOP list 0");
    assert_eq!((usage(&mut other, "blpop"), logged(&mut other)), ([0, 0, 0], 0));
    other.line("RPUSH list a").is(1);
    client.reply().ignored();
    assert_eq!((usage(&mut other, "blpop"), logged(&mut other)), ([1, 0, 0], 1));
    client.line("BLPOP list 0.001").is(Reply::Null);
    assert_eq!((usage(&mut other, "blpop"), logged(&mut other)), ([2, 0, 0], 2));
    // A client that leaves has got no reply.
    let mut leaving = server.client();
    wait(&server, &mut leaving, "BLPOP list 0");
    drop(leaving);
    wait_until("it has left", || other.info("blocked_clients") == "0");
    assert_eq!((usage(&mut other, "blpop"), logged(&mut other)), ([2, 0, 0], 2));
    client.line("RPUSH list a").is(1);
    client.line("BLPOP list 0").ignored();
    assert_eq!((usage(&mut other, "blpop"), logged(&mut other)), ([3, 0, 0], 3));
}

marked!(also_redis: a_wait_that_ends_with_an_error_is_counted_as_one);
fn a_wait_that_ends_with_an_error_is_counted_as_one() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let id = client.line("CLIENT ID").integer();
    wait(&server, &mut client, "BLPOP list 0");
    other.line(&format!("CLIENT UNBLOCK {id} ERROR")).is(1);
    client.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    assert_eq!((usage(&mut other, "blpop"), errors(&mut other)), ([1, 0, 1], 1));
    wait(&server, &mut client, "BLPOP list 0");
    other.line(&format!("CLIENT UNBLOCK {id} TIMEOUT")).is(1);
    client.reply().is(Reply::Null);
    assert_eq!((usage(&mut other, "blpop"), errors(&mut other)), ([2, 0, 1], 1));
    other.line("XGROUP CREATE s g $ MKSTREAM").is_ok();
    wait(&server, &mut client, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    other.line("XGROUP DESTROY s g").is(1);
    client.reply().is_error("NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option");
    assert_eq!((usage(&mut other, "xreadgroup"), errors(&mut other)), ([1, 0, 1], 2));
    let text = other.line("INFO errorstats").text();
    assert!(text.contains("errorstat_UNBLOCKED:count=1") && text.contains("errorstat_NOGROUP:count=1"));
    wait(&server, &mut client, "XREAD BLOCK 0 STREAMS t $");
    other.line(&format!("CLIENT UNBLOCK {id} ERROR")).is(1);
    client.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    assert_eq!((usage(&mut other, "xread"), errors(&mut other)), ([1, 0, 1], 3));
}

marked!(also_redis: moves_and_reads_of_groups_count_as_one_change);
fn moves_and_reads_of_groups_count_as_one_change() {
    let server = Server::start();
    let (mut client, mut waiting) = (server.client(), server.client());
    for (line, changes) in [
        ("RPUSH l a b c", 3),
        ("LMOVE l m LEFT LEFT", 1),
        ("RPOPLPUSH l m", 1),
        ("LMOVE m m LEFT RIGHT", 1),
        ("BLMOVE l m LEFT LEFT 0", 1),
        ("XADD s 1-1 f v", 1),
        ("XADD s 2-1 f v", 1),
        ("XADD s 3-1 f v", 1),
        ("XGROUP CREATE s g 0", 1),
        // The consumer is new.
        ("XREADGROUP GROUP g c COUNT 1 STREAMS s >", 2),
        ("XREADGROUP GROUP g c STREAMS s >", 1),
        ("XREADGROUP GROUP g c STREAMS s 0", 0),
        ("XREADGROUP GROUP g d CLAIM 0 STREAMS s >", 2),
        ("XGROUP SETID s g 0", 1),
        ("XREADGROUP GROUP g e NOACK STREAMS s >", 2),
        ("PFADD h a", 2),
        ("PFADD h a", 0),
        ("PFADD h b c", 2),
        ("PFADD empty", 1),
    ] {
        let before = number(&mut client, "rdb_changes_since_last_save");
        let _ = client.line(line);
        assert_eq!(number(&mut client, "rdb_changes_since_last_save") - before, changes, "{line}");
    }
    for (waits, line, changes) in [
        ("BLMOVE list other LEFT LEFT 0", "RPUSH list a", 2),
        ("BLPOP list 0", "RPUSH list a", 2),
        ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XADD s 9-1 f v", 2),
    ] {
        wait(&server, &mut waiting, waits);
        let before = number(&mut client, "rdb_changes_since_last_save");
        let _ = client.line(line);
        waiting.reply().ignored();
        assert_eq!(number(&mut client, "rdb_changes_since_last_save") - before, changes, "{waits}");
    }
}
