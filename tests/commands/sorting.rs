//! SORT beyond its replies: who may use it, who hears of it, and what it holds.

use std::thread;

use support::client::{Client, Reply, request, words};
use support::folder::Folder;
use support::log::{serve, state};
use support::server::Server;

fn texts(texts: &[&str]) -> Reply {
    Reply::Array(texts.iter().map(|text| Reply::from(*text)).collect())
}

#[test]
fn patterns_are_for_users_who_may_read_all_keys() {
    let server = Server::start();
    let mut client = server.client();
    client.line("RPUSH a1 2 1").is(2);
    client.line("ACL SETUSER some on nopass +@all ~a* ~b*").is_ok();
    client.line("ACL SETUSER all on nopass +@all ~a* %R~*").is_ok();
    let mut some = server.client();
    some.line("AUTH some x").is_ok();
    let by = "ERR BY option of SORT denied due to insufficient ACL permissions.";
    let get = "ERR GET option of SORT denied due to insufficient ACL permissions.";
    let key = "NOPERM No permissions to access a key";
    some.line("SORT a1 LIMIT 0 1").is(texts(&["1"]));
    some.line("SORT a1 BY nosort").is(texts(&["2", "1"]));
    some.line("SORT a1 BY b_*").is_error(by);
    some.line("SORT_RO a1 BY b_* FOO").is_error(by);
    some.line("SORT a1 FOO BY b_*").is_error("ERR syntax error");
    some.line("SORT a1 GET #").is_error(get);
    some.line("SORT a1 STORE c").is_error(key);
    some.line("SORT a1 STORE c STORE b").is(2);
    // Queued, it is refused only when it is run.
    some.line("MULTI").is_ok();
    some.line("SORT a1 GET b_*").is_simple("QUEUED");
    let replies = some.line("EXEC").items();
    assert_eq!(replies[0].to_string(), format!("(error) {get}"));
    let called = some.cmd(["EVAL", "return redis.call('SORT', KEYS[1], 'BY', 'b_*')", "1", "a1"]);
    assert!(called.reply().to_string().starts_with(&format!("(error) {by} script: ")));
    let mut all = server.client();
    all.line("AUTH all x").is_ok();
    all.line("SORT a1 BY b_* GET # STORE a2").is(2);
    all.line("SORT a1 STORE b").is_error(key);
}

#[test]
fn what_is_stored_is_heard_of() {
    let server = Server::start();
    let mut client = server.client();
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    client.line("RPUSH l 2 1").is(2);
    let mut watcher = server.client();
    watcher.line("WATCH d").is_ok();
    let mut listener = server.client();
    listener.line("PSUBSCRIBE __keyevent*").ignored();
    client.line("SORT l STORE d").is(2);
    client.line("SORT l LIMIT 5 1 STORE d").is(0);
    client.line("SORT l LIMIT 5 1 STORE d").is(0);
    client.line("SORT l STORE l").is(2);
    for (event, key) in [("sortstore", "d"), ("del", "d"), ("sortstore", "l")] {
        listener.reply().is(texts(&["pmessage", "__keyevent*", &format!("__keyevent@0__:{event}"), key]));
    }
    client.line("LRANGE l 0 -1").is(texts(&["1", "2"]));
    watcher.line("MULTI").is_ok();
    watcher.line("PING").is_simple("QUEUED");
    watcher.line("EXEC").is_nil();
}

#[test]
fn what_is_stored_serves_clients_that_wait() {
    let server = Server::start();
    let mut client = server.client();
    client.line("RPUSH l 3 1 2").is(3);
    let mut waiting = server.client();
    let wait = |client: &mut Client, waiting: &mut Client| {
        waiting.send(&request(words("BLPOP d 0")));
        while client.info("blocked_clients") != "1" {}
    };
    wait(&mut client, &mut waiting);
    client.line("SORT l STORE d").is(3);
    client.line("LRANGE d 0 -1").is(texts(&["2", "3"]));
    client.line("DEL d").is(1);
    // A client counts as waiting until it has got its reply.
    waiting.reply().is(texts(&["d", "1"]));
    wait(&mut client, &mut waiting);
    client.line("MULTI").is_ok();
    client.line("SORT l BY w_* DESC STORE d").is_simple("QUEUED");
    client.line("EXEC").ignored();
    client.line("LRANGE d 0 -1").is(texts(&["2", "1"]));
    waiting.reply().is(texts(&["d", "3"]));
}

#[test]
fn the_log_gets_the_stored_list() {
    let folder = Folder::new("sorting-log");
    let server = serve(&folder, &[]);
    let mut client = server.client();
    let elements: Vec<String> = (0..1000).rev().map(|number| number.to_string()).collect();
    let push = ["RPUSH", "l"].into_iter().chain(elements.iter().map(String::as_str));
    client.cmd(push).is(1000);
    client.line("SET small x EX 1000").is_ok();
    client.line("SORT l LIMIT 0 3 STORE small").is(3);
    client.line("SORT l STORE large").is(1000);
    client.line("SORT l DESC STORE l").is(1000);
    client.line("SORT none STORE gone").is(0);
    let before = state(&mut client);
    drop((client, server));
    let server = serve(&folder, &[]);
    let mut client = server.client();
    assert_eq!(state(&mut client), before);
    client.line("LRANGE small 0 -1").is(texts(&["0", "1", "2"]));
    client.line("TTL small").is(-1);
    client.line("LINDEX large 999").is("999");
}

#[test]
fn values_of_very_many_keys_are_those_of_one_moment() {
    const ELEMENTS: usize = 5000;
    let server = Server::start();
    let mut client = server.client();
    let elements = (0..ELEMENTS).map(|element| element.to_string());
    client.cmd(["RPUSH".to_owned(), "l".to_owned()].into_iter().chain(elements)).is(ELEMENTS as i64);
    let mut writer = server.client();
    let mut write = move |number: usize| {
        let weights = (0..ELEMENTS).flat_map(|element| [format!("w_{element}"), number.to_string()]);
        writer.cmd(["MSET".to_owned()].into_iter().chain(weights)).is_ok();
    };
    write(0);
    let are_same = |found: &[Reply]| {
        assert_eq!(found.len(), ELEMENTS);
        assert!(found.iter().all(|value| *value == found[0]), "half of a MSET was seen");
    };
    thread::scope(|scope| {
        let writing = scope.spawn(move || (1..100).for_each(write));
        while !writing.is_finished() {
            are_same(&client.line("SORT l BY nosort GET w_*").items());
            client.line("SORT l BY w_* GET w_* STORE d").is(ELEMENTS as i64);
            are_same(&client.line("LRANGE d 0 -1").items());
        }
        writing.join().expect("the writer gets its replies");
    });
    are_same(&client.line("SORT l BY nosort GET w_*").items());
}

/// Each client sorts by patterns, which holds everything, and without, alone and among other commands.
#[test]
fn it_holds_what_it_reads_wherever_it_runs() {
    let server = Server::start();
    let mut client = server.client();
    client.line("RPUSH l 2 3 1").is(3);
    client.line("MSET w_1 30 w_2 20 w_3 10").is_ok();
    client.line("MSET g_1 a g_2 b g_3 c").is_ok();
    thread::scope(|scope| {
        for number in 0..4 {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..50 {
                    client.line("SORT l BY w_* GET g_*").is(texts(&["c", "b", "a"]));
                    client.line("SORT_RO l BY w_*").is(texts(&["3", "2", "1"]));
                    client.line(&format!("SORT l STORE d{number}")).is(3);
                    client.line("MULTI").is_ok();
                    client.line(&format!("SORT l BY w_* STORE e{number}")).is_simple("QUEUED");
                    client.line(&format!("SORT l GET # STORE f{number}")).is_simple("QUEUED");
                    assert_eq!(client.line("EXEC").reply().to_string(), "[(integer) 3, (integer) 3]");
                    let script = "return redis.call('SORT', 'l', 'BY', 'w_*', 'GET', 'g_*')";
                    client.cmd(["EVAL", script, "0"]).is(texts(&["c", "b", "a"]));
                    client.cmd(["EVAL", script, "1", "l"]).is(texts(&["c", "b", "a"]));
                    let script = "return redis.call('SORT', 'l', 'STORE', 'd' .. ARGV[1])";
                    client.cmd(["EVAL", script, "0", &number.to_string()]).is(3);
                }
            });
        }
    });
}
