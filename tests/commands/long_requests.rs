//! Long requests: as many as clients send, they delay no other client, take a limited amount of memory, and
//! end when their clients have gone.

use std::fs;
use std::time::Duration;

use support::client::{Client, Reply, request};
use support::open_files::ask_for;
use support::server::{Server, wait_until};

/// More clients than there are threads, and a hundred more.
const CLIENTS: usize = 150;
/// Members of the set that they read.
const MEMBERS: usize = 20_000;

fn start(options: &[&str]) -> Server {
    let server =
        Server::start_with(&[&["--io-threads", "2", "--busy-reply-threshold", "0"], options].concat());
    let mut client = server.client();
    let members = (0..MEMBERS).map(|number| format!("member:{number}"));
    client.cmd(["SADD".to_owned(), "s".to_owned()].into_iter().chain(members)).is(MEMBERS as i64);
    client.cmd(["SADD", "small", "a", "b", "c"]).is(3);
    server
}

fn threads(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/task", server.process_id())).expect("the process runs").count()
}

fn number(client: &mut Client, field: &str) -> usize {
    client.info(field).parse().expect("a number")
}

/// All clients send something long at once, after a prelude with its replies. Meanwhile another one is
/// served, by no more threads than before and one for all long requests.
#[track_caller]
fn others_are_served_while_all_send(prelude: &[u8], replies: usize, long: &[u8]) {
    let Some(_files) = ask_for(CLIENTS + 10) else { return };
    let server = start(&["--long-requests-memory", "100gb"]);
    let mut other = server.client();
    let before = threads(&server);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(prelude);
        (0..replies).for_each(|_| client.reply().ignored());
    }
    clients.iter_mut().for_each(|client| client.send(long));
    let (mut most, mut pings) = (0, 0);
    // In no order: on a busy machine one may wait longer for its reply than for that of the last one.
    for client in &mut clients {
        while client.is_silent_for(Duration::from_millis(1)) {
            other.line("PING").is_simple("PONG");
            other.line("SET other value").is_ok();
            pings += 1;
            most = most.max(threads(&server));
        }
    }
    // On a busy machine a core may be away for some of them, but never for all.
    assert!(pings >= CLIENTS / 15, "the others were served {pings} times");
    assert!(most <= before + 3, "{most} threads, not {before}");
    clients.iter_mut().for_each(|client| client.reply().ignored());
    wait_until("no reply is left", || number(&mut other, "long_requests_reply_bytes") == 0);
    assert_eq!(number(&mut other, "long_requests_refused"), 0);
    assert_eq!(number(&mut other, "long_requests_waiting") + number(&mut other, "long_requests_running"), 0);
}

#[test]
fn while_150_clients_read_much_others_are_served() {
    others_are_served_while_all_send(b"", 0, &request(["SRANDMEMBER", "s", "-60000"]));
}

#[test]
fn while_150_clients_read_much_of_a_small_set_others_are_served() {
    others_are_served_while_all_send(b"", 0, &request(["SRANDMEMBER", "small", "-60000"]));
}

#[test]
fn while_150_clients_unite_sets_others_are_served() {
    let unite = ["ZUNIONSTORE", "z", "1", "s"];
    others_are_served_while_all_send(b"", 0, &request(unite));
}

#[test]
fn while_150_transactions_read_much_others_are_served() {
    let mut all = request(["MULTI"]);
    (0..4).for_each(|_| all.extend(request(["SRANDMEMBER", "s", "-15000"])));
    others_are_served_while_all_send(&all, 5, &request(["EXEC"]));
}

#[test]
fn while_150_scripts_read_much_others_are_served() {
    let script = "return #redis.call('SRANDMEMBER', KEYS[1], -60000)";
    others_are_served_while_all_send(b"", 0, &request(["EVAL", script, "1", "s"]));
}

#[test]
fn what_a_client_sends_behind_a_long_request_comes_behind_it() {
    let server = start(&[]);
    let mut client = server.client();
    let mut all = request(["SET", "k", "before"]);
    all.extend(request(["SRANDMEMBER", "s", "-60000"]));
    all.extend(request(["APPEND", "k", ", after"]));
    all.extend(request(["SMEMBERS", "s"]));
    all.extend(request(["GET", "k"]));
    client.send(&all);
    client.reply().is_ok();
    assert_eq!(client.reply().items().len(), 60_000);
    client.reply().is(13);
    assert_eq!(client.reply().items().len(), MEMBERS);
    assert_eq!(client.reply().text(), "before, after");
}

/// The error for a long request whose result would take too much memory.
const REFUSAL: &str = "BUSY Too many long requests: their results would take more than \
                       long-requests-memory. Try again later, or ask for less at once.";

#[test]
fn replies_beyond_the_limit_of_memory_are_refused() {
    let server = start(&["--long-requests-memory", "3mb"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.line("SRANDMEMBER s -100000000").is_error(REFUSAL);
    client.line("SRANDMEMBER small -9223372036854775807").is_error(REFUSAL);
    client.line("MULTI").is_ok();
    client.line("SRANDMEMBER s -100000000").is_simple("QUEUED");
    client.line("EXEC").is_error(REFUSAL);
    client.line("EXEC").is_error("ERR EXEC without MULTI");
    // The whole set is within the limit. A client that does not take it keeps others from getting theirs.
    let mut lazy = server.client();
    lazy.send(&request(["SRANDMEMBER", "s", "-100000"]));
    wait_until("a reply is there", || number(&mut other, "long_requests_reply_bytes") > 0);
    wait_until("none is left", || {
        number(&mut other, "long_requests_running") + number(&mut other, "long_requests_waiting") == 0
    });
    if number(&mut other, "long_requests_reply_bytes") > 0 {
        client.line("SRANDMEMBER s -100000").is_error(REFUSAL);
    }
    assert_eq!(lazy.reply().items().len(), 100_000);
    wait_until("no reply is left", || number(&mut other, "long_requests_reply_bytes") == 0);
    assert_eq!(client.line("SRANDMEMBER s -100000").items().len(), 100_000);
    assert!(number(&mut other, "long_requests_refused") >= 3);
}

#[test]
fn what_is_made_to_be_stored_counts_towards_the_limit_of_memory() {
    let server = start(&["--long-requests-memory", "1mb"]);
    let (mut client, mut lazy) = (server.client(), server.client());
    client.line("SETRANGE long 50000000 x").is(50_000_001);
    // More than the system takes for a client that does not read.
    lazy.send(&request(["GET", "long"]));
    wait_until("a reply is there", || number(&mut client, "long_requests_reply_bytes") > 0);
    let mut left = vec!["SUNIONSTORE d s small", "ZUNIONSTORE d 1 s", "SORT s ALPHA STORE d"];
    for line in &left {
        client.line(line).is_error(REFUSAL);
    }
    client.line("EXISTS d").is(0);
    client.line("SUNIONSTORE d small small").is(3);
    lazy.reply().ignored();
    wait_until("no reply is left", || number(&mut client, "long_requests_reply_bytes") == 0);
    left.drain(..).for_each(|line| _ = client.line(line).integer());
    assert_eq!(number(&mut client, "long_requests_reply_bytes"), 0, "what is stored is stored");
    assert_eq!(number(&mut client, "long_requests_refused"), 3);
}

/// A request that takes many seconds.
const ENDLESS: [&str; 3] = ["SRANDMEMBER", "small", "-70000000"];

#[test]
fn a_long_request_ends_when_its_client_has_gone() {
    let server = start(&["--long-requests-memory", "100000gb"]);
    let mut other = server.client();
    let mut waiting: Vec<Client> = (0..3).map(|_| server.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(&request(ENDLESS)));
    wait_until("it runs", || number(&mut other, "long_requests_running") == 1);
    wait_until("the others wait", || number(&mut other, "long_requests_waiting") == 2);
    drop(waiting);
    wait_until("the others are gone", || number(&mut other, "connected_clients") == 1);
    assert_eq!(number(&mut other, "long_requests_running") + number(&mut other, "long_requests_waiting"), 0);
    assert_eq!(other.line("SRANDMEMBER s -60000").items().len(), 60_000);
}

#[test]
fn a_long_request_ends_when_its_client_is_killed() {
    let server = start(&["--long-requests-memory", "100000gb"]);
    let (mut other, mut busy) = (server.client(), server.client());
    let id = busy.line("CLIENT ID").integer().to_string();
    busy.send(&request(ENDLESS));
    wait_until("it runs", || number(&mut other, "long_requests_running") == 1);
    other.cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    assert!(busy.is_closed());
    wait_until("it has ended", || number(&mut other, "long_requests_running") == 0);
}

#[test]
fn a_server_with_a_long_request_can_be_shut_down() {
    let mut server = start(&["--long-requests-memory", "100000gb"]);
    let (mut other, mut busy) = (server.client(), server.client());
    busy.send(&request(ENDLESS));
    wait_until("it runs", || number(&mut other, "long_requests_running") == 1);
    other.send(&request(["SHUTDOWN", "NOSAVE"]));
    assert!(server.wait_for_end().success());
}

#[test]
fn the_reply_that_is_being_made_counts_as_memory_of_its_client() {
    let server = start(&["--long-requests-memory", "100000gb", "--maxmemory-clients", "20mb"]);
    let (mut other, mut greedy) = (server.client(), server.client());
    greedy.send(&request(["SRANDMEMBER", "s", "-10000000"]));
    assert!(greedy.is_closed());
    assert_eq!(number(&mut other, "evicted_clients"), 1);
    assert_eq!(other.line("SRANDMEMBER s -60000").items().len(), 60_000);
}

/// The threads for long requests.
fn long_threads(server: &Server) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.process_id())).expect("the process runs");
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.trim_end() == "long").count()
}

/// A server with collections of which each request below reads much. None of those that fill them is long.
fn start_filled() -> (Server, Client) {
    const COUNT: usize = 60_000;
    let server = Server::start_with(&["--io-threads", "2", "--busy-reply-threshold", "0"]);
    let mut client = server.client();
    let mut fill = |command: &str, key: &str, element: fn(usize) -> String| {
        for from in (0..COUNT).step_by(5000) {
            let elements = (from..from + 5000).map(element).collect::<Vec<_>>().join(" ");
            client.line(&format!("{command} {key} {elements}")).ignored();
        }
    };
    fill("ZADD", "z", |number| format!("0 m{number}"));
    fill("SADD", "s", |number| format!("m{number}"));
    fill("RPUSH", "l", |number| format!("m{number}"));
    fill("GEOADD", "g", |number| format!("{} {} place:{number}", number % 170, number % 80));
    client.line("SADD small a b c").is(3);
    client.line("SETRANGE text 67108863 x").ignored();
    client.send(&request(["XADD", "x", "*", "field", "value"]).repeat(20_000));
    (0..20_000).for_each(|_| client.reply().ignored());
    assert_eq!(long_threads(&server), 0);
    (server, client)
}

#[test]
fn what_may_be_brief_takes_a_thread_for_long_requests_once_it_is_not() {
    let (server, mut other) = start_filled();
    for brief in [
        "ZRANGEBYSCORE z 1 2",
        "ZRANGEBYLEX z [m100 [m1000",
        "ZINTER 2 z small",
        "SINTERCARD 2 s small",
        "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m",
        "LPOS l m5",
        "BITPOS text 0",
        "XREAD STREAMS x $",
        "XRANGE x 1 2",
        "ZREMRANGEBYSCORE z 1 2",
        "ZRANGESTORE few z 0 9",
        "LMPOP 1 l LEFT COUNT 2",
        "CONFIG GET maxmemory",
    ] {
        (0..20).for_each(|_| other.line(brief).ignored());
    }
    assert_eq!(long_threads(&server), 0, "brief requests are served by the usual threads");
    let patterns = ["CONFIG GET", &" *".repeat(60)].concat();
    for long in [
        "ZRANGEBYSCORE z 0 0",
        "ZREVRANGEBYLEX z + -",
        "ZINTER 2 z z",
        "ZINTERCARD 2 z z",
        "ZINTERSTORE result 2 z z",
        "ZRANGESTORE result z 0 -1",
        "SINTER s s",
        "SINTERCARD 2 s s",
        "SINTERSTORE result s s",
        "GEOSEARCH g FROMLONLAT 0 0 BYBOX 40000 20000 km",
        "GEOSEARCH g BYPOLYGON 4 -170 -80 170 -80 170 80 -170 80",
        "GEORADIUS g 0 0 20000 km",
        "GEOSEARCHSTORE result g FROMLONLAT 0 0 BYBOX 40000 20000 km",
        "LREM l 0 absent",
        "LINSERT l BEFORE absent x",
        "BITPOS text 1",
        "XRANGE x - +",
        "XREAD STREAMS x 0",
        "XINFO STREAM x FULL COUNT 0",
        "COMMAND DOCS",
        &patterns,
    ] {
        let mut clients = [server.client(), server.client(), server.client()];
        let all = request(long.split(' ')).repeat(40);
        clients.iter_mut().for_each(|client| client.send(&all));
        wait_until(long, || {
            number(&mut other, "long_requests_running") + number(&mut other, "long_requests_waiting") > 0
        });
        drop(clients);
        // Those that only read end with their clients.
        wait_until(long, || number(&mut other, "connected_clients") == 1);
        assert_eq!(number(&mut other, "long_requests_refused"), 0, "{long}");
    }
}

#[test]
fn new_entries_of_a_long_stream_are_read_by_the_usual_threads() {
    let (server, mut client) = start_filled();
    client.line("XGROUP CREATE x g $").is_ok();
    for _ in 0..20 {
        let id = client.line("XADD x * field value").text();
        let previous = format!("{}-{}", id.split('-').next().expect("an ID"), 0);
        client.line(&format!("XREAD STREAMS x {previous}")).ignored();
        assert_eq!(client.line("XREADGROUP GROUP g c STREAMS x >").items().len(), 1);
        client.line("XREADGROUP GROUP g c STREAMS x 0").ignored();
        client.line("XREADGROUP GROUP g c COUNT 100000 STREAMS x >").ignored();
    }
    assert_eq!(long_threads(&server), 0);
}

/// A string that takes some milliseconds to copy.
const LONG_TEXT_BYTES: usize = 20 << 20;

#[test]
fn long_strings_are_copied_by_threads_for_long_requests() {
    let text = "x".repeat(LONG_TEXT_BYTES);
    let last = format!("SETRANGE text {} x", LONG_TEXT_BYTES - 1);
    for long in [
        "GET text",
        "GETRANGE text 0 -1",
        "MGET small text",
        "GETEX text EX 100",
        "GETSET text small",
        "SET text small GET",
        "GETDEL text",
        "ECHO {text}",
        "SET other {text}",
        "MULTI;GET text;EXEC",
        "MULTI;SET other {text};EXEC",
    ] {
        let server = Server::start_with(&["--io-threads", "2", "--busy-reply-threshold", "0"]);
        let mut client = server.client();
        client.line(&last).is(LONG_TEXT_BYTES as i64);
        client.line("APPEND text end").ignored();
        assert_eq!(long_threads(&server), 0);
        let requests: Vec<Vec<&str>> = long.split(';').map(|line| line.split(' ').collect()).collect();
        for words in &requests {
            client.send(&request(words.iter().map(|word| if *word == "{text}" { &text } else { *word })));
        }
        client.send(&request(["PING"]));
        let replies: Vec<Reply> = requests.iter().map(|_| client.reply().reply()).collect();
        client.reply().is_simple("PONG");
        assert_eq!(long_threads(&server), 1, "{long}");
        let last = match replies.into_iter().last() {
            Some(Reply::Array(mut items)) => items.pop(),
            other => other,
        };
        match last {
            Some(Reply::Bulk(bytes)) if long.contains("{text}") => {
                assert!(bytes == text.as_bytes(), "{long}")
            }
            Some(Reply::Bulk(bytes)) => {
                assert!(bytes.len() == LONG_TEXT_BYTES + 3 && bytes.ends_with(b"xend"), "{long}");
            }
            Some(Reply::Simple(ok)) if long.contains("SET") => assert_eq!(ok, "OK", "{long}"),
            other => panic!("{long}: {other:?}"),
        }
    }
}

#[test]
fn a_long_reply_that_is_not_wanted_is_not_copied() {
    let server = Server::start_with(&["--enable-fault-command", "yes"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.line(&format!("SETRANGE text {} x", LONG_TEXT_BYTES - 1)).ignored();
    other.line("FAULT ADD ON get TIMES 1 DROP-REPLY").is(1);
    client.send(&[request(["GET", "text"]), request(["PING"])].concat());
    client.reply().is_simple("PONG");
    client.send(&request(["CLIENT", "REPLY", "SKIP"]));
    client.send(&[request(["GET", "text"]), request(["PING"])].concat());
    client.reply().is_simple("PONG");
    client.line("STRLEN text").is(LONG_TEXT_BYTES as i64);
}

#[test]
fn a_long_write_is_done_even_if_its_client_does_not_wait_for_it() {
    let server = start(&["--long-requests-memory", "100000gb"]);
    let (mut other, mut busy) = (server.client(), server.client());
    let id = busy.line("CLIENT ID").integer().to_string();
    busy.send(&request(ENDLESS));
    wait_until("it runs", || number(&mut other, "long_requests_running") == 1);
    let members: Vec<String> = (0..30_000).map(|member| member.to_string()).collect();
    let mut writers = [server.client(), server.client()];
    writers[0].send(&request(["SADD", "new"].into_iter().chain(members.iter().map(String::as_str))));
    writers[1].send(&request(["SET", "text", &"x".repeat(LONG_TEXT_BYTES)]));
    wait_until("they wait", || number(&mut other, "long_requests_waiting") == 2);
    drop(writers);
    other.cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    wait_until("both are done", || {
        other.line("SCARD new").integer() == 30_000
            && other.line("STRLEN text").integer() == LONG_TEXT_BYTES as i64
    });
}
