//! What INFO counts: calls, errors and changes.

use crate::client::Client;
use crate::folder::Folder;
use crate::server::Server;

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
        let is_overtaken = watcher.line("EXEC").reply() == crate::client::Reply::Null;
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
