//! MULTI, EXEC and WATCH, beyond what the observed conversations hold.

use std::thread;

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::server::Server;

fn three() -> (Server, Client, Client, Client) {
    let server = Server::start();
    let (one, two, three) = (server.client(), server.client(), server.client());
    (server, one, two, three)
}

/// Executes an empty transaction; returns whether a watched key has changed.
fn is_overtaken(client: &mut Client) -> bool {
    client.line("MULTI").is_ok();
    client.line("EXEC").reply() == Reply::Null
}

marked!(also_redis: what_is_queued_does_nothing_until_it_is_executed);
fn what_is_queued_does_nothing_until_it_is_executed() {
    let (_server, mut client, mut other, _) = three();
    client.line("MULTI").is_ok();
    client.line("SET k v").is_simple("QUEUED");
    client.line("INCR n").is_simple("QUEUED");
    other.line("GET k").is_nil();
    assert_eq!(client.line("EXEC").items(), [Reply::Simple("OK".into()), Reply::Integer(1)]);
    other.line("GET k").is("v");
}

marked!(also_redis: a_transaction_is_seen_whole_or_not_at_all);
fn a_transaction_is_seen_whole_or_not_at_all() {
    let server = Server::start();
    let keys: Vec<String> = (0..20).map(|number| format!("key:{number}")).collect();
    thread::scope(|scope| {
        let (mut writer, mut reader) = (server.client(), server.client());
        let keys = &keys;
        let writing = scope.spawn(move || {
            for round in 0..1000 {
                let mut sent = request(["MULTI"]);
                let round = round.to_string();
                keys.iter().for_each(|key| sent.extend(request(["SET", key, &round])));
                sent.extend(request(["EXEC"]));
                writer.send(&sent);
                (0..keys.len() + 2).for_each(|_| drop(writer.reply()));
            }
        });
        let mget: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        while !writing.is_finished() {
            let seen = reader.cmd(&mget).items();
            assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        }
    });
}

marked!(also_redis: every_kind_of_change_is_noticed_by_those_who_watch);
fn every_kind_of_change_is_noticed_by_those_who_watch() {
    let (_server, mut watcher, mut other, _) = three();
    for (before, change) in [
        ("SET k v", "SET k v"),
        ("SET k 1", "INCR k"),
        ("SET k v", "APPEND k x"),
        ("SET k v", "SETRANGE k 0 w"),
        ("SET k v", "SETBIT k 0 1"),
        ("SET k v", "GETSET k w"),
        ("SET k v", "GETDEL k"),
        ("SET k v", "DEL k"),
        ("SET k v", "UNLINK k"),
        ("SET k v", "EXPIRE k 100"),
        ("SET k v EX 100", "PERSIST k"),
        ("SET k v EX 100", "GETEX k PERSIST"),
        ("SET k v", "RENAME k l"),
        ("SET l v", "RENAME l k"),
        ("SET l v", "COPY l k REPLACE"),
        ("SET k v", "MOVE k 1"),
        ("SET k v", "DELIFEQ k v"),
        ("SET k v", "FLUSHALL"),
        ("SET k v", "SWAPDB 0 1"),
        ("DEL k", "SETNX k v"),
        ("DEL k", "MSET a 1 k 2"),
        ("DEL k", "BITOP NOT k l"),
    ] {
        if support::server::is_redis() && change.starts_with("DELIFEQ") {
            continue;
        }
        other.line("FLUSHALL").is_ok();
        other.line("SET l v").is_ok();
        other.line(before).reply();
        watcher.line("WATCH k").is_ok();
        other.line(change).reply();
        assert!(is_overtaken(&mut watcher), "{before}, {change}");
        assert!(!is_overtaken(&mut watcher), "only the transaction after WATCH is concerned");
    }
}

marked!(also_redis: what_changes_nothing_is_not_noticed);
fn what_changes_nothing_is_not_noticed() {
    let (_server, mut watcher, mut other, _) = three();
    other.line("SET k v").is_ok();
    for harmless in [
        "GET k",
        "SETBIT k 1 1",
        "SETNX k w",
        "SET k w NX",
        "DEL absent",
        "EXPIRE absent 1",
        "SET other w",
        "TOUCH k",
        "PERSIST k",
    ] {
        watcher.line("WATCH k absent").is_ok();
        other.line(harmless).reply();
        assert!(!is_overtaken(&mut watcher), "{harmless}");
    }
    other.line("SELECT 1").is_ok();
    watcher.line("WATCH k absent").is_ok();
    other.line("SET k w").is_ok();
    other.line("FLUSHDB").is_ok();
    assert!(!is_overtaken(&mut watcher), "another database");
}

marked!(also_redis: a_clients_own_change_counts_too_and_another_watcher_is_not_disturbed);
fn a_clients_own_change_counts_too_and_another_watcher_is_not_disturbed() {
    let (_server, mut client, mut other, mut changer) = three();
    client.line("WATCH a").is_ok();
    other.line("WATCH b").is_ok();
    client.line("SET a 1").is_ok();
    assert!(is_overtaken(&mut client));
    changer.line("SET a 2").is_ok();
    assert!(!is_overtaken(&mut other));
    client.line("WATCH b").is_ok();
    other.line("WATCH b").is_ok();
    changer.line("SET b 1").is_ok();
    assert!(is_overtaken(&mut client) && is_overtaken(&mut other));
}

marked!(also_redis: an_error_in_the_queue_is_one_reply_among_the_others_and_undoes_nothing);
fn an_error_in_the_queue_is_one_reply_among_the_others_and_undoes_nothing() {
    let (_server, mut client, ..) = three();
    client.line("MULTI").is_ok();
    for queued in ["SET k v", "INCR k", "SET k v EX never", "SET l w"] {
        client.line(queued).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    assert_eq!(replies[1], Reply::Error("ERR value is not an integer or out of range".into()));
    assert_eq!(replies[2], Reply::Error("ERR value is not an integer or out of range".into()));
    client.line("GET l").is("w");
}

marked!(also_redis: what_cannot_be_queued_breaks_the_transaction);
fn what_cannot_be_queued_breaks_the_transaction() {
    let (_server, mut client, ..) = three();
    for refused in ["NOSUCH", "GET", "CONFIG NOSUCH", "SHUTDOWN NOSAVE"] {
        client.line("MULTI").is_ok();
        client.line("SET k v").is_simple("QUEUED");
        assert!(matches!(client.line(refused).reply(), Reply::Error(_)), "{refused}");
        client.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
        client.line("GET k").is_nil();
    }
}

marked!(also_redis: nothing_waits_within_a_transaction);
fn nothing_waits_within_a_transaction() {
    let (_server, mut client, ..) = three();
    client.line("MULTI").is_ok();
    client.line("WAIT 1 0").is_simple("QUEUED");
    client.line("WAITAOF 0 1 0").is_simple("QUEUED");
    client.line("SCAN 0").is_simple("QUEUED");
    client.line("RANDOMKEY").is_simple("QUEUED");
    client.line("FLUSHALL").is_simple("QUEUED");
    client.line("INFO server").is_simple("QUEUED");
    client.line("UNWATCH").is_simple("QUEUED");
    client.line("PING").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    assert_eq!((&replies[0], replies.len()), (&Reply::Integer(0), 8));
    assert_eq!(replies[1].to_string(), "[(integer) 0, (integer) 0]");
}

marked!(also_redis: reset_and_the_end_of_a_connection_forget_queue_and_watch);
fn reset_and_the_end_of_a_connection_forget_queue_and_watch() {
    let (_server, mut client, mut other, _) = three();
    client.line("WATCH k").is_ok();
    client.line("MULTI").is_ok();
    client.line("SET k v").is_simple("QUEUED");
    client.line("RESET").is_simple("RESET");
    client.line("EXEC").is_error("ERR EXEC without MULTI");
    other.line("SET k w").is_ok();
    assert!(!is_overtaken(&mut client));
}

#[test]
fn a_queue_beyond_the_limit_ends_the_connection() {
    // Redis 7.0 looks at what is queued only as a part of the client's memory.
    let server = Server::start_with(&["--client-query-buffer-limit", "1mb"]);
    let mut client = server.client();
    client.line("MULTI").is_ok();
    let value = vec![b'v'; 100 << 10];
    for _ in 0..20 {
        if client.try_send(&request([&b"SET"[..], b"k", &value])).is_err() {
            break;
        }
        if client.try_reply_bytes().is_err() {
            return;
        }
    }
    assert!(client.is_closed());
}

marked!(also_redis: nested_commands_are_counted_and_shown_one_by_one);
fn nested_commands_are_counted_and_shown_one_by_one() {
    let (_server, mut client, mut monitor, _) = three();
    client.line("CONFIG RESETSTAT").is_ok();
    monitor.line("MONITOR").is_ok();
    client.line("MULTI").is_ok();
    client.line("SET k v").is_simple("QUEUED");
    client.line("INCR k").is_simple("QUEUED");
    client.line("EXEC").reply();
    let shown: Vec<String> = (0..4).map(|_| format!("{:?}", monitor.reply().reply())).collect();
    for (line, expected) in shown.iter().zip(["MULTI", "SET", "INCR", "EXEC"]) {
        assert!(line.contains(expected), "{shown:?}");
    }
    let used = client.line("INFO commandstats").text();
    for expected in ["cmdstat_set:calls=1,", "cmdstat_incr:calls=1,", "cmdstat_exec:calls=1,"] {
        assert!(used.contains(expected), "{used}");
    }
    assert!(used.contains("cmdstat_incr:calls=1,usec=") && used.contains("failed_calls=1"), "{used}");
}

marked!(also_redis: writes_that_were_queued_before_memory_ran_out_are_not_executed);
fn writes_that_were_queued_before_memory_ran_out_are_not_executed() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let discarded = format!("EXECABORT Transaction discarded because of: {OOM}");
    let (_server, mut client, mut other, _) = three();
    for (queued, expected) in [
        ("SET k v", None),
        ("EVAL \"#!lua\nreturn 1\" 0", None),
        ("GET k", Some("[(nil)]")),
        ("DEL k", Some("[(integer) 0]")),
        ("EVAL \"#!lua flags=allow-oom\nreturn 1\" 0", Some("[(integer) 1]")),
        ("EVAL \"#!lua flags=no-writes\nreturn 1\" 0", Some("[(integer) 1]")),
    ] {
        client.line("MULTI").is_ok();
        client.line(queued).is_simple("QUEUED");
        other.line("CONFIG SET maxmemory 1").is_ok();
        let reply = client.line("EXEC").reply().to_string();
        assert_eq!(reply, expected.map_or(format!("(error) {discarded}"), str::to_owned), "{queued}");
        client.line("EXEC").is_error("ERR EXEC without MULTI");
        client.line("EXISTS k").is(0);
        other.line("CONFIG SET maxmemory 0").is_ok();
    }
    // What takes memory is refused when it is queued.
    client.line("MULTI").is_ok();
    other.line("CONFIG SET maxmemory 1").is_ok();
    for line in ["GET k", "PING"] {
        client.line(line).is_simple("QUEUED");
    }
    client.line("SET k v").is_error(OOM);
    client.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    for end in ["DISCARD", "RESET"] {
        client.line("MULTI").is_ok();
        let _ = client.line(end);
        client.line("EXEC").is_error("ERR EXEC without MULTI");
    }
}

marked!(also_redis: a_key_that_had_expired_when_it_was_watched_is_not_changed_by_its_going);
fn a_key_that_had_expired_when_it_was_watched_is_not_changed_by_its_going() {
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    let (mut watcher, mut other) = (server.client(), server.client());
    other.line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    for (is_there, elsewhere, changes, is_overtaken) in [
        ("expired", "", &["FLUSHALL"][..], false),
        ("expired", "", &["FLUSHDB"], false),
        ("expired", "", &["SWAPDB 0 1"], false),
        ("expired", "", &["SWAPDB 0 1", "SWAPDB 0 1"], false),
        ("expired", "", &["DEL k"], false),
        ("expired", "", &["SET k w"], true),
        ("expired", "there", &["SWAPDB 0 1"], true),
        ("expired", "expired", &["SWAPDB 0 1"], false),
        ("expired", "", &["FLUSHALL", "SET k w"], true),
        ("", "expired", &["SWAPDB 0 1"], false),
        ("", "expired", &["SWAPDB 0 1", "SET k w"], true),
        ("there", "expired", &["SWAPDB 0 1"], true),
        ("there", "", &["FLUSHALL"], true),
        ("", "", &["FLUSHALL"], false),
        ("there", "", &["SWAPDB 0 0"], false),
        ("there", "", &["SWAPDB 2 3"], false),
    ] {
        other.line("FLUSHALL").is_ok();
        for (database, what) in [("1", elsewhere), ("0", is_there)] {
            other.cmd(["SELECT", database]).is_ok();
            match what {
                "there" => other.line("SET k v").is_ok(),
                "expired" => {
                    other.line("SET k v PX 1").is_ok();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                _ => {}
            }
        }
        watcher.line("WATCH k").is_ok();
        changes.iter().for_each(|change| drop(other.line(change)));
        assert_eq!(
            self::is_overtaken(&mut watcher),
            is_overtaken,
            "{is_there:?}, {elsewhere:?}: {changes:?}"
        );
    }
    // One that expires while it is watched has changed, whatever becomes of it then.
    for change in ["FLUSHALL", "SWAPDB 0 1", "PING"] {
        other.line("FLUSHALL").is_ok();
        let mut life_ms = 30;
        loop {
            other.line(&format!("SET k v PX {life_ms}")).is_ok();
            watcher.line("WATCH k").is_ok();
            if other.line("PTTL k").integer() > 0 {
                break;
            }
            watcher.line("UNWATCH").is_ok();
            life_ms *= 2;
        }
        std::thread::sleep(std::time::Duration::from_millis(life_ms + 5));
        drop(other.line(change));
        assert!(is_overtaken(&mut watcher), "{change}");
    }
}

marked!(also_redis: what_is_written_in_the_background_waits_for_the_end_of_a_transaction);
fn what_is_written_in_the_background_waits_for_the_end_of_a_transaction() {
    let folder = Folder::new("background-in-multi");
    let server = Server::start_with(&["--dir", folder.path().to_str().unwrap()]);
    let mut client = server.client();
    client.line("MULTI").is_ok();
    for line in ["BGREWRITEAOF", "BGSAVE", "BGREWRITEAOF", "BGSAVE SCHEDULE"] {
        client.line(line).is_simple("QUEUED");
    }
    let expected = "[Background append only file rewriting scheduled, Background saving scheduled, \
                    Background append only file rewriting scheduled, Background saving scheduled]";
    assert_eq!(client.line("EXEC").reply().to_string(), expected);
    server.wait_for_output("Background AOF rewrite finished successfully");
    server.wait_for_output("Background saving terminated with success");
}

const ACCOUNTS: usize = 100;
const TELLERS: usize = 32;
const TRANSFERS: usize = 60;

marked!(also_redis: a_bank_whose_tellers_use_watch_neither_makes_money_nor_loses_any);
fn a_bank_whose_tellers_use_watch_neither_makes_money_nor_loses_any() {
    let server = Server::start();
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        client.cmd(["SET", &format!("account:{account}"), "100"]).is_ok();
    }
    thread::scope(|scope| {
        for teller in 0..TELLERS {
            let mut client = server.client();
            scope.spawn(move || {
                for transfer in 0..TRANSFERS {
                    let from = format!("account:{}", (teller * 7 + transfer * 13) % ACCOUNTS);
                    let to = format!("account:{}", (teller * 11 + transfer * 17 + 1) % ACCOUNTS);
                    if from != to {
                        while !transfer_by_watch(&mut client, &from, &to) {}
                    }
                }
            });
        }
        let mut auditor = server.client();
        for _ in 0..50 {
            assert_eq!(total(&mut auditor), 100 * ACCOUNTS as i64);
        }
    });
    assert_eq!(total(&mut client), 100 * ACCOUNTS as i64);
}

fn transfer_by_watch(client: &mut Client, from: &str, to: &str) -> bool {
    client.cmd(["WATCH", from, to]).is_ok();
    let balance = |client: &mut Client, account: &str| client.cmd(["GET", account]).text().parse().unwrap();
    let balances: [i64; 2] = [from, to].map(|account| balance(client, account));
    client.line("MULTI").is_ok();
    client.cmd(["SET", from, &(balances[0] - 1).to_string()]).is_simple("QUEUED");
    client.cmd(["SET", to, &(balances[1] + 1).to_string()]).is_simple("QUEUED");
    client.line("EXEC").reply() != Reply::Null
}

fn total(client: &mut Client) -> i64 {
    let accounts: Vec<String> = (0..ACCOUNTS).map(|account| format!("account:{account}")).collect();
    let mget = ["MGET"].into_iter().chain(accounts.iter().map(String::as_str));
    let balances = client.cmd(mget).items().into_iter();
    balances
        .map(|balance| match balance {
            Reply::Bulk(digits) => String::from_utf8(digits).unwrap().parse::<i64>().unwrap(),
            other => panic!("{other:?} is no balance"),
        })
        .sum()
}

marked!(also_redis: a_client_cannot_become_a_monitor_within_a_transaction);
fn a_client_cannot_become_a_monitor_within_a_transaction() {
    let mut client = Server::start().into_client();
    client.line("MULTI").is_ok();
    client.line("MONITOR").is_simple("QUEUED");
    client.line("PING").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    let error = "ERR MONITOR isn't allowed for DENY BLOCKING client".to_owned();
    assert_eq!(replies, [Reply::Error(error), Reply::Simple("PONG".to_owned())]);
    client.line("GET k").is_nil();
}
