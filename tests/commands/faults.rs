//! FAULT: what goes wrong on purpose, for whom, and for how long.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request, words};
use support::server::{Server, wait_until};

fn start() -> Server {
    Server::start_with(&["--enable-fault-command", "yes"])
}

/// A server, one who plants faults, one who suffers them.
fn two() -> (Server, Client, Client) {
    let server = start();
    let (planter, sufferer) = (server.client(), server.client());
    (server, planter, sufferer)
}

/// Many requests as one.
fn together(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| request(line.split(' '))).collect()
}

/// A line as a request.
fn request_of(line: &str) -> Vec<u8> {
    request(words(line))
}

/// A fault as FAULT LIST returns it in RESP2.
fn listed(client: &mut Client, at: usize) -> String {
    client.line("FAULT LIST").items()[at].to_string()
}

// What they do

#[test]
fn an_error_is_answered_in_place_of_the_command() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON set ERROR \"READONLY not here\"").is(1);
    client.line("SET k v").is_error("READONLY not here");
    client.line("GET k").is_nil();
    planter.line("FAULT DEL 1").is(1);
    client.line("SET k v").is_ok();
    assert!(client.line("INFO errorstats").text().contains("errorstat_READONLY:count=1"));
    assert!(client.line("INFO commandstats").text().contains("cmdstat_set:calls=1"));
}

#[test]
fn an_error_without_a_code_word_gets_one_and_stays_on_its_line() {
    let (_server, mut planter, mut client) = two();
    for (text, answered) in
        [("boom", "ERR boom"), ("-TRYAGAIN later", "TRYAGAIN later"), ("OOM\r\n:1\r\n", "OOM  :1  ")]
    {
        planter.cmd(["FAULT", "ADD", "TIMES", "1", "ERROR", text]).integer();
        client.line("GET k").is_error(answered);
        client.line("PING").is_simple("PONG");
    }
}

#[test]
fn a_lost_reply_is_that_of_a_command_that_was_executed() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON setnx TIMES 1 DROP-REPLY").is(1);
    client.send(&together(&["SETNX lock mine"]));
    wait_until("it is executed", || planter.line("GET lock").reply() == Reply::from("mine"));
    assert!(client.is_silent_for(Duration::from_millis(50)));
    client.line("SETNX lock mine").is(0);
}

#[test]
fn only_the_lost_reply_is_left_out_of_a_pipeline() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD MATCH b DROP-REPLY").is(1);
    client.send(&together(&["SET a 1", "SET b 2", "STRLEN b", "GET a", "MGET a b", "NOSUCH", "INCR a"]));
    client.reply().is_ok();
    client.reply().is("1");
    client.reply().is_error("ERR unknown command 'NOSUCH'");
    client.reply().is(2);
    planter.line("FAULT CLEAR").is(1);
    client.line("GET b").is("2");
}

#[test]
fn a_lost_reply_is_lost_whatever_the_client_wants_to_hear() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON client|reply DROP-REPLY").is(1);
    client.send(&together(&["CLIENT REPLY OFF", "GET k", "CLIENT REPLY ON", "PING"]));
    client.reply().is_simple("PONG");
}

#[test]
fn who_waits_for_a_reply_that_will_be_lost_is_not_told_of_being_unblocked_either() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON wait DROP-REPLY").is(1);
    let id = client.line("CLIENT ID").integer().to_string();
    client.send(&together(&["WAIT 1 0", "PING"]));
    wait_until("it can be unblocked", || planter.cmd(["CLIENT", "UNBLOCK", &id, "ERROR"]).integer() == 1);
    client.reply().is_simple("PONG");
}

#[test]
fn messages_come_even_if_the_reply_beside_them_is_lost() {
    let (server, mut planter, _) = two();
    let mut client = server.client3();
    client.line("SUBSCRIBE news").ignored();
    planter.line("FAULT ADD ON publish DROP-REPLY").is(1);
    client.send(&together(&["PUBLISH news hello", "PING"]));
    let message = ["message", "news", "hello"].map(Reply::from).to_vec();
    assert_eq!(client.reply().reply(), Reply::Push(message));
    client.reply().is_simple("PONG");
}

#[test]
fn a_closed_connection_ends_before_the_command() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON incr MATCH b CLOSE").is(1);
    client.send(&together(&["INCR a", "INCR b", "INCR c"]));
    client.reply().is(1);
    assert!(client.is_closed());
    let nothing = vec![Reply::from("1"), Reply::Null, Reply::Null];
    assert_eq!(planter.line("MGET a b c").items(), nothing);
}

#[test]
fn the_errors_of_redis_have_names() {
    let (_server, mut planter, mut client) = two();
    for (action, text) in [
        ("READONLY", "READONLY You can't write against a read only replica."),
        ("LOADING", "LOADING Redis is loading the dataset in memory"),
        ("OOM", "OOM command not allowed when used memory > 'maxmemory'."),
        ("busy", "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."),
        ("NOSCRIPT", "NOSCRIPT No matching script. Please use EVAL."),
        ("NoAuth", "NOAUTH Authentication required."),
        ("MASTERDOWN", "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        ("TRYAGAIN", "TRYAGAIN Multiple keys request during rehashing of slot"),
        ("CLUSTERDOWN", "CLUSTERDOWN The cluster is down"),
        ("MOVED 3999 127.0.0.1:6381", "MOVED 3999 127.0.0.1:6381"),
        ("moved 0 :6379", "MOVED 0 :6379"),
        ("ASK 16383 2001:db8::7:6381", "ASK 16383 2001:db8::7:6381"),
    ] {
        planter.line(&format!("FAULT ADD ON get TIMES 1 {action}")).integer();
        client.line("GET k").is_error(text);
        client.line("GET k").is_nil();
        // It is listed as FAULT ADD takes it, too.
        let last = planter.line("FAULT LIST").items().pop().unwrap().to_string();
        assert!(last.contains(&format!("\"action\", \"ERROR {text}\"")), "{last}");
    }
    planter.line("FAULT CLEAR").is(12);
    // In a transaction, in a script and in RESP3 it is the error of the request that was sent.
    planter.line("FAULT ADD ON incr READONLY").is(13);
    client.line("MULTI").is_ok();
    client.line("INCR n").is_error("READONLY You can't write against a read only replica.");
    client.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    client.line("EVAL \"return redis.call('INCR', KEYS[1])\" 1 n").is(1);
    planter.line("FAULT ADD ON eval NOSCRIPT").is(14);
    client.line("HELLO 3").ignored();
    client.line("EVAL \"return 1\" 0").is_error("NOSCRIPT No matching script. Please use EVAL.");
}

// A connection that ends within a reply

/// The rest of what a client receives before its connection ends.
fn rest(client: &Client) -> String {
    let mut rest = Vec::new();
    let _ = client.stream().read_to_end(&mut rest);
    String::from_utf8(rest).unwrap()
}

#[test]
fn a_connection_ends_within_a_reply_and_earlier_replies_arrive_whole() {
    let (server, mut planter, _) = two();
    planter.line("FAULT ADD ON incr MATCH cut CUT 2").is(1);
    let client = server.client();
    let mut stream = client.stream();
    stream.write_all(&together(&["INCR whole", "PING", "INCR cut", "INCR never", "PING"])).unwrap();
    assert_eq!(rest(&client), ":1\r\n+PONG\r\n:1");
    // It was executed, and nothing behind it.
    planter.line("MGET whole cut never").is(Reply::Array(vec!["1".into(), "1".into(), Reply::Null]));
    assert!(listed(&mut planter, 0).ends_with("\"action\", \"CUT 2\", \"struck\", (integer) 1]"));
}

#[test]
fn a_reply_may_be_cut_off_anywhere() {
    let (server, mut planter, _) = two();
    for (bytes, request, reply) in [
        (0, "SETNX new v", ""),
        (1, "HSET h f v", ":"),
        (9, "LRANGE l 0 -1", "*2\r\n$1\r\na"),
        (100, "GET k", "$1\r\nv\r\n"),
        (2, "EVAL \"return {1,2}\" 0", "*2"),
    ] {
        planter.line("FAULT CLEAR").ignored();
        planter.line("DEL k l").ignored();
        planter.line("SET k v").is_ok();
        planter.line("RPUSH l a b").is(2);
        planter.line(&format!("FAULT ADD CLIENT worker CUT {bytes}")).integer();
        let mut client = server.client();
        client.line("CLIENT SETNAME worker").is_ok();
        client.stream().write_all(&request_of(request)).unwrap();
        assert_eq!(rest(&client), reply, "{request}");
    }
    planter.line("GET new").is("v");
}

#[test]
fn a_reply_is_cut_off_in_a_transaction_and_in_resp3() {
    let (server, mut planter, _) = two();
    planter.line("FAULT ADD ON exec CUT 5").is(1);
    planter.line("FAULT ADD ON set MATCH k CUT 4").is(2);
    planter.line("FAULT ADD ON hgetall CUT 6").is(3);
    let client = server.client();
    let mut stream = client.stream();
    stream.write_all(&together(&["MULTI", "INCR n", "EXEC", "INCR n"])).unwrap();
    assert_eq!(rest(&client), "+OK\r\n+QUEUED\r\n*1\r\n:");
    let client = server.client();
    let mut stream = client.stream();
    stream.write_all(&together(&["MULTI", "SET k v", "EXEC"])).unwrap();
    assert_eq!(rest(&client), "+OK\r\n+QUE");
    // Messages do not come behind half a reply.
    planter.line("HSET h f v").is(1);
    let mut client = server.client3();
    client.line("SUBSCRIBE news").ignored();
    client.line("CLIENT TRACKING ON").is_ok();
    client.stream().write_all(&together(&["HGETALL h"])).unwrap();
    assert_eq!(rest(&client), "%1\r\n$1");
    planter.line("MGET n k").is(Reply::Array(vec!["1".into(), Reply::Null]));
}

#[test]
fn a_reply_is_cut_off_for_which_the_client_has_waited() {
    let (server, mut planter, _) = two();
    planter.line("FAULT ADD ON blpop CUT 6").is(1);
    planter.line("FAULT ADD ON wait CUT 1").is(2);
    let client = server.client();
    let mut stream = client.stream();
    stream.write_all(&together(&["INCR n", "BLPOP list 0", "INCR n"])).unwrap();
    wait_until("it waits", || planter.info("blocked_clients") == "1");
    planter.line("RPUSH list v").is(1);
    assert_eq!(rest(&client), ":1\r\n*2\r\n$4");
    let mut client = server.client();
    client.stream().write_all(&together(&["WAIT 1 10", "INCR n"])).unwrap();
    assert_eq!(client.bytes(1), b":");
    assert!(client.is_closed());
    planter.line("MGET n list").is(Reply::Array(vec!["1".into(), Reply::Null]));
}

#[test]
fn a_long_reply_is_cut_off_where_it_was_stated() {
    const BYTES: usize = 17 << 20;
    let (server, mut planter, _) = two();
    planter.cmd(["SETRANGE", "long", &(BYTES - 1).to_string(), "x"]).is(BYTES as i64);
    for bytes in [4, BYTES / 2, 2 * BYTES] {
        planter.line(&format!("FAULT ADD ON get MATCH long TIMES 1 CUT {bytes}")).integer();
        let client = server.client();
        let mut stream = client.stream();
        stream.write_all(&together(&["INCR n", "GET long", "INCR never", "GET long"])).unwrap();
        let reply = rest(&client);
        let whole = format!("${BYTES}\r\n").len() + BYTES + 2;
        assert!(reply[4..].starts_with("$178") && reply.len() == 4 + bytes.min(whole), "{bytes}");
    }
    planter.line("GET never").is_nil();
}

#[test]
fn replies_before_one_that_was_cut_off_arrive_though_the_client_sends_more() {
    let (server, mut planter, _) = two();
    planter.cmd(["SET", "large", &"x".repeat(1 << 20)]).is_ok();
    for action in ["CUT 3", "CLOSE"] {
        planter.line(&format!("FAULT ADD ON strlen TIMES 1 {action}")).integer();
        let client = server.client();
        let requests = [together(&["GET large"; 8]), together(&["STRLEN large"; 20_000])].concat();
        let (mut sending, sent) = (client.stream().try_clone().unwrap(), requests);
        let sender = std::thread::spawn(move || _ = sending.write_all(&sent));
        let reply = rest(&client);
        let cut = if action == "CLOSE" { 0 } else { 3 };
        assert_eq!(reply.len(), 8 * ("$1048576\r\n".len() + (1 << 20) + 2) + cut, "{action}");
        sender.join().unwrap();
    }
}

// Delays

#[test]
fn a_delay_lasts_as_long_as_it_was_told() {
    let (_server, mut planter, mut client) = two();
    planter.line("CONFIG SET slowlog-log-slower-than 1000000").is_ok();
    planter.line("FAULT ADD ON get DELAY 1000").is(1);
    let started = Instant::now();
    client.line("GET k").is_nil();
    assert!(started.elapsed() >= Duration::from_millis(1000));
    // Nor does the time count as that of the command.
    assert_eq!(client.line("SLOWLOG LEN").integer(), 0);
}

#[test]
fn a_delay_keeps_the_order_of_its_client_and_holds_up_no_other() {
    let (server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON set MATCH k DELAY 3600000").is(1);
    client.send(&together(&["INCR n", "SET k v", "GET k", "SET k w", "GET k"]));
    // What came before is answered at once.
    client.reply().is(1);
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    planter.line("GET k").is_nil();
    planter.line("SETNX k other").is(1);
    server.client().line("APPEND k !").is(6);
    planter.line("FAULT CLEAR").is(1);
    client.reply().is_ok();
    client.reply().is("v");
    client.reply().is_ok();
    client.reply().is("w");
}

#[test]
fn each_request_is_delayed_once() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON incr DELAY 1").is(1);
    planter.line("FAULT ADD ERROR \"ERR a delayed request is spared this\"").is(2);
    client.send(&together(&["INCR n"; 5]));
    (1..=5).for_each(|n| client.reply().is(n));
    planter.line("FAULT DEL 2").is(1);
    assert!(listed(&mut planter, 0).ends_with("\"struck\", (integer) 5]"));
}

#[test]
fn a_fault_that_was_cleared_spares_none_of_those_to_come() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON set DELAY 3600000").is(1);
    client.send(&together(&["SET k v"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    // The delay is ended although its fault is gone.
    planter.line("FAULT DEL 1").is(1);
    planter.line("GET k").is_nil();
    planter.line("FAULT CLEAR").is(0);
    client.reply().is_ok();
    planter.line("FAULT ADD ON set ERROR boom").is(2);
    client.line("SET k w").is_error("ERR boom");
}

#[test]
fn a_request_that_is_late_is_executed_though_its_client_is_gone() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON setnx TIMES 1 DELAY 3600000").is(1);
    client.send(&together(&["SETNX lock late"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    drop(client);
    planter.line("EXISTS lock").is(0);
    planter.line("FAULT CLEAR").is(1);
    wait_until("it is executed", || planter.line("GET lock").reply() == Reply::from("late"));
}

#[test]
fn a_request_that_is_late_is_executed_though_its_client_was_killed_and_nothing_behind_it() {
    let (server, mut planter, mut client) = two();
    let id = client.line("CLIENT ID").integer().to_string();
    planter.line("FAULT ADD ON set DELAY 3600000").is(1);
    client.send(&together(&["SET k late", "SET k later", "DEL k", "INCR n"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    planter.cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    // It is disconnected at once.
    assert!(client.is_closed());
    planter.line("EXISTS k").is(0);
    planter.line("FAULT CLEAR").is(1);
    let mut other = server.client();
    wait_until("it is executed", || other.line("GET k").reply() == Reply::from("late"));
    // When it is gone, it does no more.
    wait_until("it is gone", || !planter.line("CLIENT LIST").text().contains(&format!("id={id} ")));
    other.line("MGET k n").is(Reply::Array(vec![Reply::from("late"), Reply::Null]));
}

#[test]
fn a_killed_clients_late_request_waits_for_nothing() {
    let (_server, mut planter, mut client) = two();
    let id = client.line("CLIENT ID").integer().to_string();
    planter.line("FAULT ADD ON blpop DELAY 3600000").is(1);
    client.send(&together(&["BLPOP list 0"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    planter.cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    planter.line("FAULT CLEAR").is(1);
    wait_until("it is gone", || !planter.line("CLIENT LIST").text().contains(&format!("id={id} ")));
    planter.line("RPUSH list v").is(1);
    planter.line("LLEN list").is(1);
}

#[test]
fn the_late_request_of_a_user_who_was_removed_is_not_executed() {
    let (_server, mut planter, mut client) = two();
    planter.line("ACL SETUSER worker on nopass ~* +@all").is_ok();
    client.line("AUTH worker any").is_ok();
    let id = client.line("CLIENT ID").integer().to_string();
    planter.line("FAULT ADD ON set DELAY 3600000").is(1);
    client.send(&together(&["SET k v"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    planter.line("ACL DELUSER worker").is(1);
    assert!(client.is_closed());
    planter.line("FAULT CLEAR").is(1);
    wait_until("it is gone", || !planter.line("CLIENT LIST").text().contains(&format!("id={id} ")));
    planter.line("EXISTS k").is(0);
}

#[test]
fn a_server_with_delayed_clients_ends_at_once() {
    let (mut server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON set DELAY 3600000").is(1);
    client.send(&together(&["SET k v"]));
    wait_until("the fault has struck", || planter.info("faults_struck") == "1");
    // Also one that was killed, and would be executed later.
    let mut killed = server.client();
    let id = killed.line("CLIENT ID").integer().to_string();
    killed.send(&together(&["SET k v"]));
    wait_until("the fault has struck twice", || planter.info("faults_struck") == "2");
    planter.cmd(["CLIENT", "KILL", "ID", &id]).is(1);
    assert!(killed.is_closed());
    server.signal("TERM");
    assert!(server.wait_for_end().success());
}

// Whom they strike

#[test]
fn a_fault_strikes_the_command_it_is_on() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON SETNX ERROR one").is(1);
    planter.line("FAULT ADD ON object ERROR two").is(2);
    planter.line("FAULT ADD ON Client|GetName ERROR three").is(3);
    client.line("setnx k v").is_error("ERR one");
    client.line("SET k v NX").is_ok();
    client.line("OBJECT ENCODING k").is_error("ERR two");
    client.line("OBJECT HELP").is_error("ERR two");
    client.line("CLIENT GETNAME").is_error("ERR three");
    client.line("CLIENT SETNAME me").is_ok();
}

#[test]
fn a_fault_strikes_who_names_a_key_that_matches() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD MATCH lock:* ERROR boom").is(1);
    client.line("SET other v").is_ok();
    client.line("SET lock:a v").is_error("ERR boom");
    client.line("MSET other w lock:a w").is_error("ERR boom");
    client.line("EVAL \"return 1\" 1 lock:a").is_error("ERR boom");
    client.line("ECHO lock:a").is("lock:a");
    client.line("GET other").is("v");
}

#[test]
fn a_fault_strikes_the_client_of_that_name_alone() {
    let (server, mut planter, mut client) = two();
    planter.line("FAULT ADD CLIENT worker ERROR boom").is(1);
    client.line("GET k").is_nil();
    client.line("CLIENT SETNAME worker").is_ok();
    client.line("GET k").is_error("ERR boom");
    server.client().line("GET k").is_nil();
    let mut other = server.client();
    other.line("HELLO 2 SETNAME worker-2").ignored();
    other.line("GET k").is_nil();
}

#[test]
fn all_filters_must_fit() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD TIMES 1 CLIENT worker MATCH k ON get ERROR boom").is(1);
    client.line("GET k").is_nil();
    client.line("CLIENT SETNAME worker").is_ok();
    client.line("GET other").is_nil();
    client.line("STRLEN k").is(0);
    client.line("GET k").is_error("ERR boom");
    client.line("GET k").is_nil();
}

#[test]
fn a_fault_that_strikes_n_times_does_no_more_and_is_listed_until_it_is_removed() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON get TIMES 3 ERROR boom").is(1);
    let errors = (0..10).filter(|_| matches!(client.line("GET k").reply(), Reply::Error(_))).count();
    assert_eq!(errors, 3);
    assert_eq!((planter.info("faults_planted"), planter.info("faults_struck")), ("0".into(), "3".into()));
    let over = "\"times-left\", (integer) 0, \"action\", \"ERROR ERR boom\", \"struck\", (integer) 3]";
    assert!(listed(&mut planter, 0).ends_with(over));
    // There are so many faults at most, but those that are over make way, the oldest first.
    for id in 2..=200 {
        planter.line("FAULT ADD ON get TIMES 1 ERROR boom").is(id);
        client.line("GET k").is_error("ERR boom");
    }
    assert_eq!(planter.line("FAULT LIST").items().len(), 128);
    assert!(listed(&mut planter, 127).starts_with("[\"id\", (integer) 200,"));
    planter.line("FAULT DEL 200").is(1);
    planter.line("FAULT CLEAR").is(127);
    assert_eq!(planter.line("FAULT LIST").items(), []);
}

#[test]
fn a_fault_strikes_with_its_probability_whatever_it_does() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON get PROBABILITY 0.5 TIMES 20 ERROR boom").is(1);
    planter.line("FAULT ADD ON strlen PROBABILITY 1 OOM").is(2);
    let requests: u64 = (1..)
        .take_while(|_| {
            client.line("GET k").ignored();
            planter.info("faults_struck") != "20"
        })
        .count() as u64;
    // All twenty in a row would be one of a million.
    assert!((20..2000).contains(&requests), "{requests}");
    client.line("STRLEN k").is_error("OOM command not allowed when used memory > 'maxmemory'.");
    assert!(listed(&mut planter, 0).contains("\"probability\", \"0.5\", \"times-left\", (integer) 0"));
    for action in ["DELAY 1", "CLOSE", "DROP-REPLY", "CUT 1", "READONLY"] {
        planter.line(&format!("FAULT ADD ON append PROBABILITY 1e-300 {action}")).integer();
    }
    (1..=100).for_each(|length| client.line("APPEND a x").is(length));
    planter.line("FAULT CLEAR").is(7);
}

#[test]
fn the_eldest_fault_strikes_and_no_other() {
    let (_server, mut planter, mut client) = two();
    for text in ["one", "two", "three"] {
        planter.cmd(["FAULT", "ADD", "ON", "get", "TIMES", "1", "ERROR", text]).integer();
    }
    for text in ["one", "two", "three"] {
        client.line("GET k").is_error(&format!("ERR {text}"));
    }
    client.line("GET k").is_nil();
}

#[test]
fn a_fault_is_seen_by_what_is_sent_together_with_it() {
    let (_server, mut planter, _) = two();
    let lines = ["SET k 1", "FAULT ADD ON set ERROR boom", "SET k 2", "FAULT CLEAR", "SET k 3", "GET k"];
    planter.send(&together(&lines));
    planter.reply().is_ok();
    planter.reply().is(1);
    planter.reply().is_error("ERR boom");
    planter.reply().is(1);
    planter.reply().is_ok();
    planter.reply().is("3");
}

#[test]
fn the_way_out_is_never_struck() {
    let (_server, mut planter, mut client) = two();
    planter.line("CONFIG SET requirepass secret").is_ok();
    planter.line("FAULT ADD CLOSE").is(1);
    client.line("AUTH secret").is_ok();
    client.line("RESET").is_simple("RESET");
    client.line("HELLO 3 AUTH default secret").ignored();
    assert_eq!(client.line("FAULT LIST").items().len(), 1);
    client.line("QUIT").is_ok();
    for name in ["AUTH", "HELLO", "RESET", "QUIT", "FAULT", "fault|add"] {
        planter
            .cmd(["FAULT", "ADD", "ON", name, "CLOSE"])
            .is_error(&format!("ERR a fault cannot apply to '{name}'"));
    }
    planter.line("FAULT CLEAR").is(1);
    planter.line("PING").is_simple("PONG");
}

#[test]
fn what_is_refused_anyway_is_not_struck() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD CLOSE").is(1);
    client.line("NOSUCH").is_error("ERR unknown command 'NOSUCH'");
    client.line("GET").is_error("ERR wrong number of arguments for 'get' command");
    planter.line("FAULT CLEAR").is(1);
    planter.line("ACL SETUSER default -get").is_ok();
    planter.line("FAULT ADD CLOSE").is(2);
    client.line("GET k").is_error("NOPERM User default has no permissions to run the 'get' command");
}

// Transactions and scripts

#[test]
fn a_command_is_struck_when_it_is_queued() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON set MATCH k TIMES 1 ERROR boom").is(1);
    client.line("MULTI").is_ok();
    client.line("SET k v").is_error("ERR boom");
    client.line("SET k v").is_simple("QUEUED");
    client.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    planter.line("FAULT ADD ON set MATCH k TIMES 1 DROP-REPLY").is(2);
    client.send(&together(&["MULTI", "SET k v", "GET k", "EXEC"]));
    client.reply().is_ok();
    client.reply().is_simple("QUEUED");
    assert_eq!(client.reply().items(), [Reply::Simple("OK".into()), Reply::from("v")]);
}

#[test]
fn exec_is_struck_as_any_request_and_what_it_executes_is_not() {
    let (_server, mut planter, mut client) = two();
    client.send(&together(&["MULTI", "INCR n"]));
    client.reply().is_ok();
    client.reply().is_simple("QUEUED");
    planter.line("FAULT ADD ON incr CLOSE").is(1);
    planter.line("FAULT ADD ON exec TIMES 1 DROP-REPLY").is(2);
    client.send(&together(&["EXEC", "GET n"]));
    client.reply().is("1");
    client.line("MULTI").is_ok();
    planter.line("FAULT ADD ON exec ERROR \"TRYAGAIN later\"").is(3);
    client.line("EXEC").is_error("EXECABORT Transaction discarded because of: TRYAGAIN later");
    client.line("DISCARD").is_error("ERR DISCARD without MULTI");
}

#[test]
fn a_script_is_struck_and_what_it_calls_is_not() {
    let (_server, mut planter, mut client) = two();
    planter.line("FAULT ADD ON incr CLOSE").is(1);
    planter.line("FAULT ADD ON eval TIMES 1 DROP-REPLY").is(2);
    let script = "EVAL \"return redis.call('INCR', KEYS[1])\" 1 n";
    client.send(&request(support::client::words(script)));
    client.line(script).is(2);
    planter.line("FAULT CLEAR").is(2);
    client.line("EVAL \"return redis.call('FAULT', 'CLEAR')\" 0").text();
    let refused = client.line("EVAL \"return redis.pcall('FAULT', 'CLEAR')\" 0").reply().to_string();
    assert!(refused.contains("This Redis command is not allowed from script"), "{refused}");
    client.line("MULTI").is_ok();
    client.line("FAULT CLEAR").is_error("ERR Command not allowed inside a transaction");
}

// Planting them

#[test]
fn faults_are_listed_and_removed() {
    let (server, mut planter, _) = two();
    planter.line("FAULT ADD ON set TIMES 2 ERROR \"LOADING not yet\"").is(1);
    planter.line("FAULT ADD MATCH lock:* CLIENT me DELAY 250").is(2);
    planter.line("FAULT ADD ON get CLOSE").is(3);
    planter.line("FAULT ADD ON get DROP-REPLY").is(4);
    server.client().line("SET k v").is_error("LOADING not yet");
    assert_eq!(
        listed(&mut planter, 0),
        "[\"id\", (integer) 1, \"on\", \"set\", \"match\", (nil), \"client\", (nil), \
         \"probability\", (nil), \"times-left\", (integer) 1, \
         \"action\", \"ERROR LOADING not yet\", \"struck\", (integer) 1]"
    );
    let mut in_resp3 = server.client3().line("FAULT LIST").items();
    assert!(
        !in_resp3.is_empty()
            && in_resp3.iter().all(|fault| matches!(fault, Reply::Map(pairs) if pairs.len() == 8))
    );
    assert_eq!(
        in_resp3.remove(1).to_string(),
        "[\"id\", (integer) 2, \"on\", (nil), \"match\", \"lock:*\", \"client\", \"me\", \
         \"probability\", (nil), \"times-left\", (nil), \"action\", \"DELAY 250\", \"struck\", (integer) 0]"
    );
    assert!(
        listed(&mut planter, 2).contains("\"CLOSE\"") && listed(&mut planter, 3).contains("\"DROP-REPLY\"")
    );
    planter.line("FAULT DEL 3").is(1);
    planter.line("FAULT DEL 3").is(0);
    planter.line("FAULT DEL -1").is(0);
    planter.line("FAULT DEL x").is_error("ERR value is not an integer or out of range");
    planter.line("FAULT CLEAR").is(3);
    assert_eq!(planter.line("FAULT LIST").items(), []);
    planter.line("FAULT ADD ON get CLOSE").is(5);
    let help = planter.line("FAULT HELP").items();
    assert!(help.iter().any(|line| line.to_string().starts_with("ADD [ON <command>] [MATCH <pattern>]")));
}

#[test]
fn what_is_no_fault_is_refused() {
    let (_server, mut planter, _) = two();
    let syntax = "ERR syntax error";
    let delay = "ERR DELAY must be between 0 and 3600000";
    let probability = "ERR PROBABILITY must be above 0 and at most 1";
    let cut = "ERR CUT must be between 0 and 9223372036854775807";
    let slot = "ERR the slot must be between 0 and 16383";
    let address = "takes a slot and the address of a node: host:port";
    let (moved, ask) = (&format!("ERR MOVED {address}")[..], &format!("ERR ASK {address}")[..]);
    let times = "ERR TIMES must be between 1 and 9223372036854775807";
    for (line, error) in [
        ("ADD", "ERR wrong number of arguments for 'fault|add' command"),
        ("ADD ON get", syntax),
        ("ADD ON", syntax),
        ("ADD TIMES 2", syntax),
        ("ADD ERROR", syntax),
        ("ADD DELAY", syntax),
        ("ADD NOSUCH", syntax),
        ("ADD CLOSE now", syntax),
        ("ADD CLOSE ON get", syntax),
        ("ADD ERROR two words", syntax),
        ("ADD ON get ON set CLOSE", syntax),
        ("ADD ON nosuch CLOSE", "ERR unknown command 'nosuch'"),
        ("ADD ON client|nosuch CLOSE", "ERR unknown command 'client|nosuch'"),
        ("ADD TIMES 0 CLOSE", times),
        ("ADD TIMES -1 CLOSE", times),
        ("ADD TIMES x CLOSE", "ERR value is not an integer or out of range"),
        ("ADD DELAY 3600001", delay),
        ("ADD DELAY -1", delay),
        ("ADD READONLY now", syntax),
        ("ADD READONLY READONLY", syntax),
        ("ADD PROBABILITY 0.5", syntax),
        ("ADD PROBABILITY", syntax),
        ("ADD PROBABILITY 0.5 PROBABILITY 0.5 CLOSE", syntax),
        ("ADD PROBABILITY 0 CLOSE", probability),
        ("ADD PROBABILITY -0.5 CLOSE", probability),
        ("ADD PROBABILITY 1.01 CLOSE", probability),
        ("ADD PROBABILITY inf CLOSE", probability),
        ("ADD PROBABILITY nan CLOSE", "ERR value is not a valid float"),
        ("ADD PROBABILITY half CLOSE", "ERR value is not a valid float"),
        ("ADD CUT", syntax),
        ("ADD CUT -1", cut),
        ("ADD CUT x", "ERR value is not an integer or out of range"),
        ("ADD CUT 1 2", syntax),
        ("ADD MOVED", syntax),
        ("ADD MOVED 1", syntax),
        ("ADD MOVED 16384 a:1", slot),
        ("ADD ASK -1 a:1", slot),
        ("ADD ASK x a:1", "ERR value is not an integer or out of range"),
        ("ADD MOVED 1 host", moved),
        ("ADD MOVED 1 host:", moved),
        ("ADD MOVED 1 host:0", moved),
        ("ADD ASK 1 host:65536", ask),
        ("ADD ASK 1 \"a b:1\"", ask),
        ("ADD MOVED 1 a:1 b:2", syntax),
        ("NOSUCH", "ERR unknown subcommand 'NOSUCH'. Try FAULT HELP."),
    ] {
        planter.line(&format!("FAULT {line}")).is_error(error);
    }
    let long = "x".repeat(1025);
    for word in ["MATCH", "CLIENT", "ERROR"] {
        planter
            .cmd(["FAULT", "ADD", word, &long, "CLOSE"])
            .is_error("ERR a text of a fault may have at most 1024 bytes");
    }
    planter
        .cmd(["FAULT", "ADD", "ON", &long, "CLOSE"])
        .is_error(&format!("ERR unknown command '{}'", &long[..128]));
    planter.cmd(["FAULT", "ADD", "ASK", "1", "a\r\n:1"]).is_error(ask);
    assert_eq!(planter.line("FAULT LIST").items(), []);
}

#[test]
fn there_are_so_many_faults_at_most() {
    let (_server, mut planter, _) = two();
    for id in 1..=128 {
        planter.line("FAULT ADD ON set CLOSE").is(id);
    }
    let refusal = "ERR there are 128 faults already; FAULT DEL and FAULT CLEAR make room";
    planter.line("FAULT ADD ON set CLOSE").is_error(refusal);
    planter.line("FAULT DEL 64").is(1);
    planter.line("FAULT ADD ON set CLOSE").is(129);
}

#[test]
fn faults_are_planted_by_those_who_are_let_in() {
    for options in [&[][..], &["--enable-fault-command", "no"]] {
        let mut client = Server::start_with(options).into_client();
        for line in ["ADD CLOSE", "ADD", "LIST", "DEL 1", "CLEAR", "HELP"] {
            let refusal = client.line(&format!("FAULT {line}")).reply().to_string();
            let is_short = line == "ADD" && refusal.starts_with("(error) ERR wrong number of arguments");
            assert!(is_short || refusal.starts_with("(error) ERR FAULT command not allowed."), "{refusal}");
        }
        client.line("PING").is_simple("PONG");
        let told = client.line("CONFIG GET enable-fault-command").items();
        assert_eq!(told, [Reply::from("enable-fault-command"), Reply::from("no")]);
        assert!(client.line("CONFIG SET enable-fault-command yes").text().starts_with("ERR"));
    }
    let mut local = Server::start_with(&["--enable-fault-command", "local"]).into_client();
    local.line("FAULT ADD CLOSE").is(1);
}

#[test]
fn planting_is_logged_and_for_administrators() {
    let (server, mut planter, mut client) = two();
    planter.cmd(["FAULT", "ADD", "ON", "get", "ERROR", "two\nlines"]).is(1);
    server.wait_for_output("ON get ERROR two\\nlines");
    planter.line("ACL SETUSER worker on nopass ~* +@all -@dangerous").is_ok();
    client.line("AUTH worker any").is_ok();
    let refusal = "NOPERM User worker has no permissions to run the 'fault|clear' command";
    client.line("FAULT CLEAR").is_error(refusal);
}
