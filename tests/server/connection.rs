//! Connections: greeting, authentication, names, and who else is there.

use std::thread;
use std::time::{Duration, Instant};

use keyfast::internals::REDIS_VERSION;

use support::client::{Client, Reply, request};
use support::replies::field_of;
use support::server::{PATIENCE, Server};

#[test]
fn hello_tells_what_clients_ask_for_in_the_order_of_redis() {
    let mut client = Server::start().into_client();
    let Reply::Map(greeting) = client.line("HELLO 3").reply() else { panic!("not a map") };
    let told: Vec<(String, String)> =
        greeting.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let expect = [
        ("server", "\"redis\""),
        ("version", &*format!("\"{REDIS_VERSION}\"")),
        ("proto", "(integer) 3"),
        ("id", "(integer) 1"),
        ("mode", "\"standalone\""),
        ("role", "\"master\""),
        ("modules", "[]"),
    ];
    for ((name, value), (expected_name, expected)) in told.iter().zip(expect) {
        assert_eq!(*name, format!("\"{expected_name}\""));
        assert!(value == expected || expected_name == "id", "{name} is {value}");
    }
    assert_eq!(told.len(), expect.len());
    assert_eq!(client.line("HELLO 2").items().len(), 14, "the same as a flat array");
}

#[test]
fn info_says_who_this_really_is() {
    let mut client = Server::start().into_client();
    assert_eq!(client.info("redis_version"), REDIS_VERSION);
    assert_eq!(client.info("keyfast_version"), env!("CARGO_PKG_VERSION"));
    let text = client.line("INFO everything").text();
    assert!(!text.contains("server_name"), "a library that knows Redis and Valkey refuses another name");
}

#[test]
fn info_counts_what_happens() {
    let server = Server::start();
    let mut client = server.client();
    client.line("SET k v").is_ok();
    client.line("SET t v EX 100").is_ok();
    client.line("GET k").is("v");
    client.line("GET missing").is_nil();
    client.line("NOSUCH").ignored();
    for (name, expected) in [
        ("keyspace_hits", "1"),
        ("keyspace_misses", "1"),
        ("connected_clients", "1"),
        ("total_error_replies", "1"),
        ("tcp_port", server.port().to_string().as_str()),
    ] {
        assert_eq!(client.info(name), expected, "{name}");
    }
    client.line("CONFIG RESETSTAT").is_ok();
    assert_eq!(client.info("keyspace_hits"), "0");
    let clients = client.line("INFO clients").text();
    assert!(clients.starts_with("# Clients\r\n") && !clients.contains("tcp_port"), "{clients}");
}

#[test]
fn a_password_is_asked_for_and_everything_else_refused() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    client.line("GET k").is_error("NOAUTH Authentication required.");
    client.line("NOSUCH k").is_error("ERR unknown command 'NOSUCH', with args beginning with: 'k' ");
    client.line("AUTH wrong").is_error("WRONGPASS invalid username-password pair or user is disabled.");
    client
        .line("AUTH stranger secret")
        .is_error("WRONGPASS invalid username-password pair or user is disabled.");
    assert!(client.line("HELLO 3").text().starts_with("NOAUTH HELLO must be called with the client already"));
    client.line("AUTH secret").is_ok();
    client.line("SETNX k v").is(1);
    client.line("RESET").is_simple("RESET");
    client.line("GET k").is_error("NOAUTH Authentication required.");
    client.line("HELLO 3 AUTH default secret SETNAME me").ignored();
    client.line("CLIENT GETNAME").is("me");
    // The log does not contain it.
    assert!(!server.output().contains("secret"));
}

#[test]
fn a_password_that_is_set_later_holds_for_those_who_come_later() {
    let server = Server::start();
    let mut early = server.client();
    early.line("CONFIG SET requirepass secret").is_ok();
    early.line("PING").is_simple("PONG");
    server.client().line("PING").is_error("NOAUTH Authentication required.");
}

#[test]
fn clients_are_listed_as_they_describe_themselves() {
    let server = Server::start();
    let (mut one, mut two) = (server.client3(), server.client());
    one.line("CLIENT SETNAME worker").is_ok();
    one.line("CLIENT SETINFO LIB-NAME mylib").is_ok();
    one.line("CLIENT SETINFO LIB-VER 1.2").is_ok();
    one.line("SELECT 7").is_ok();
    one.line("CLIENT NO-TOUCH on").is_ok();
    let id = one.line("CLIENT ID").integer();
    let list = two.line("CLIENT LIST").text();
    let line = list.lines().find(|line| field_of(line, "name") == "worker").expect("the worker");
    for (name, expected) in [
        ("id", id.to_string()),
        ("addr", one.local_address().to_string()),
        ("laddr", server.address().to_string()),
        ("db", "7".to_owned()),
        ("resp", "3".to_owned()),
        ("lib-name", "mylib".to_owned()),
        ("lib-ver", "1.2".to_owned()),
        ("cmd", "client|id".to_owned()),
        ("flags", "T".to_owned()),
        ("user", "default".to_owned()),
    ] {
        assert_eq!(field_of(line, name), expected, "{name} in {line}");
    }
    assert_eq!(list.lines().count(), 2);
    let own = two.line(&format!("CLIENT LIST ID {id} 999")).text();
    assert_eq!(own.lines().count(), 1);
    assert_eq!(field_of(&two.line("CLIENT INFO").text(), "cmd"), "client|info");
    assert_eq!(two.line("CLIENT LIST TYPE pubsub").text(), "");
}

#[test]
fn who_does_nothing_is_idle_and_leaves_after_the_timeout() {
    let server = Server::start();
    let (mut quiet, mut asking) = (server.client(), server.client());
    let own_id = asking.line("CLIENT ID").integer();
    asking.line("CONFIG SET timeout 2").is_ok();
    let began = Instant::now();
    let quiet_id = quiet.line("CLIENT ID").integer();
    let (deadline, mut longest) = (began + PATIENCE, 0);
    loop {
        let list = asking.line("CLIENT LIST").text();
        let idle = |id: i64| -> Option<u64> {
            let line = list.lines().find(|line| field_of(line, "id") == id.to_string())?;
            Some(field_of(line, "idle").parse().expect("seconds"))
        };
        assert_eq!(idle(own_id), Some(0));
        let Some(seconds) = idle(quiet_id) else { break };
        longest = longest.max(seconds);
        assert!(Instant::now() < deadline, "it stays");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(began.elapsed() >= Duration::from_secs(2), "it was closed after {:?}", began.elapsed());
    assert!(longest >= 1, "it was closed after {longest} seconds");
    assert!(quiet.is_closed());
}

#[test]
fn a_killed_client_is_gone_and_the_killer_knows_how_many() {
    let server = Server::start();
    let mut killer = server.client();
    let mut victims: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let ids: Vec<i64> = victims.iter_mut().map(|victim| victim.line("CLIENT ID").integer()).collect();
    killer.line(&format!("CLIENT KILL ID {}", ids[0])).is(1);
    assert!(victims[0].is_closed());
    killer.line(&format!("CLIENT KILL {}", victims[1].local_address())).is_ok();
    assert!(victims[1].is_closed());
    killer.line("CLIENT KILL TYPE pubsub").is(0);
    killer.line(&format!("CLIENT KILL LADDR {} TYPE normal", server.address())).is(2);
    assert!(victims[2].is_closed() && victims[3].is_closed());
    killer.line("CLIENT KILL 1.2.3.4:5").is_error("ERR No such client");
    killer.line("CLIENT KILL TYPE normal SKIPME no").is(1);
    assert!(killer.is_closed());
}

marked!(also_redis: a_client_that_was_killed_changes_nothing_more);
fn a_client_that_was_killed_changes_nothing_more() {
    let server = Server::start();
    let mut killer = server.client();
    let pipelines = [
        (request(["INCR", "n"]), 30_000),
        (request(["EVAL", "return redis.call('incr', KEYS[1])", "1", "n"]), 3_000),
        (request(["EVAL", "for i = 1, 2000 do end return redis.call('incr', 'n')", "0"]), 3_000),
        ([request(["MULTI"]), request(["INCR", "n"]), request(["EXEC"])].concat(), 5_000),
    ];
    for round in 0..20 {
        let (one, count) = &pipelines[round % 4];
        let mut victim = server.client();
        let id = victim.line("CLIENT ID").integer();
        killer.line("DEL n").ignored();
        victim.send(&one.repeat(*count));
        while killer.line("EXISTS n").integer() == 0 {}
        let kill =
            if round % 8 < 4 { format!("CLIENT KILL ID {id}") } else { "CLIENT KILL TYPE normal".to_owned() };
        killer.line(&kill).is(1);
        let then = killer.line("GET n").text();
        // Takes the replies that were on their way.
        while victim.try_reply_bytes().is_ok() {}
        killer.line("GET n").is(&*then);
    }
}

#[test]
fn replies_can_be_done_without() {
    let mut client = Server::start().into_client();
    client.send(b"CLIENT REPLY OFF\r\nSET k v\r\nNOSUCH\r\nCLIENT REPLY ON\r\nGET k\r\n");
    client.reply().is_ok();
    client.reply().is("v");
    client.send(b"CLIENT REPLY SKIP\r\nSET k w\r\nGET k\r\n");
    client.reply().is("w");
    client.send(b"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nGET k\r\n");
    client.reply().is("w");
}

#[test]
fn parameters_change_together_or_not_at_all() {
    let mut client = Server::start().into_client();
    client.line("CONFIG SET timeout 100 tcp-keepalive 60").is_ok();
    let refusal = "ERR CONFIG SET failed (possibly related to argument 'tcp-keepalive') - argument \
                   couldn't be parsed into an integer";
    client.line("CONFIG SET timeout 7 tcp-keepalive x").is_error(refusal);
    client
        .line("CONFIG SET timeout 7 nosuch 1")
        .is_error("ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'");
    for (name, value) in [("tcp-keep*", "60"), ("timeout", "100")] {
        assert_eq!(client.line(&format!("CONFIG GET {name}")).items()[1], value.into());
    }
    let refusal = client.line("CONFIG SET save 60").text();
    assert!(refusal.ends_with("Invalid save parameters"), "{refusal}");
}

#[test]
fn the_log_can_be_made_to_say_more() {
    let server = Server::start();
    let mut client = server.client();
    client.line("CONFIG SET loglevel verbose").is_ok();
    let stranger = server.client();
    server.wait_for_output(&format!(" - Accepted {}", stranger.local_address()));
}

#[test]
fn each_connection_speaks_its_own_protocol() {
    let server = Server::start();
    let (mut two, mut three) = (server.client(), server.client3());
    three.send(b"GET missing\r\n");
    assert_eq!(three.reply_bytes(), b"_\r\n");
    two.send(b"GET missing\r\n");
    assert_eq!(two.reply_bytes(), b"$-1\r\n");
    three.line("RESET").is_simple("RESET");
    three.send(b"GET missing\r\n");
    assert_eq!(three.reply_bytes(), b"$-1\r\n");
}

/// The names of the clients that a filter lets through, in the order in which they came.
fn names(client: &mut Client, filter: &str) -> String {
    let list = client.line(&format!("CLIENT LIST {filter}")).text();
    list.lines().map(|line| field_of(line, "name")).collect::<Vec<_>>().join(" ")
}

/// As Valkey 9.1.2 was seen to choose them.
#[test]
fn clients_are_chosen_by_what_they_have_and_have_not() {
    let server = Server::start();
    let [mut me, mut other, mut listener, mut queuing] = std::array::from_fn(|_| server.client());
    for (client, lines) in [
        (&mut me, &["CLIENT SETNAME me"][..]),
        (
            &mut other,
            &[
                "CLIENT SETNAME other",
                "CLIENT SETINFO LIB-NAME lib",
                "CLIENT SETINFO LIB-VER 1.0",
                "SELECT 3",
                "CLIENT CAPA redirect",
            ],
        ),
        (&mut listener, &["CLIENT SETNAME listener", "SUBSCRIBE channel"]),
        (&mut queuing, &["CLIENT SETNAME queuing", "MULTI"]),
    ] {
        lines.iter().for_each(|line| client.line(line).ignored());
    }
    let id = me.line("CLIENT ID").integer();
    let port = server.address().to_string();
    for (filter, expected) in [
        ("NAME me", "me"),
        ("NAME ME", ""),
        ("NAME me NAME other", "other"),
        ("NOT-NAME me", "other listener queuing"),
        ("NAME me NOT-NAME me", ""),
        ("name me not-name other DB 0", "me"),
        ("FLAGS N", "me other"),
        ("FLAGS x", "queuing"),
        ("FLAGS Nx", ""),
        ("FLAGS \"\"", "me other listener queuing"),
        ("NOT-FLAGS N", "listener queuing"),
        ("NOT-FLAGS Px", "me other listener queuing"),
        ("LIB-NAME lib", "other"),
        ("LIB-NAME LIB", ""),
        ("NOT-LIB-NAME lib", "me listener queuing"),
        ("LIB-VER 1.0", "other"),
        ("NOT-LIB-VER 1.0", "me listener queuing"),
        ("DB 3", "other"),
        ("NOT-DB 0", "other"),
        ("CAPA r", "other"),
        ("NOT-CAPA r", "me listener queuing"),
        ("CAPA \"\"", "me other listener queuing"),
        ("IP 127.0.0.1", "me other listener queuing"),
        ("NOT-IP 127.0.0.1", ""),
        ("IP 127.0.0.2", ""),
        ("IDLE 1000", ""),
        ("MAXAGE 1000", ""),
        ("TYPE normal", "me other queuing"),
        ("TYPE primary", ""),
        ("NOT-TYPE pubsub", "me other queuing"),
        ("NOT-TYPE replica SKIPME yes", "other listener queuing"),
        ("USER default SKIPME NO", "me other listener queuing"),
        ("NOT-USER default", ""),
        ("NOT-ADDR 1.2.3.4:5 ADDR x", ""),
        (&format!("LADDR {port}"), "me other listener queuing"),
        (&format!("NOT-LADDR {port}"), ""),
        (&format!("ID {id} NAME me"), "me"),
        (&format!("ID {id} {} {}", id + 1, id + 2), "me other listener"),
        (&format!("ID {id} ID {} NOT-TYPE pubsub", id + 2), "me"),
        (&format!("NOT-ID {id}"), "other listener queuing"),
        (&format!("NOT-ID {id} {} NOT-DB 3", id + 2), "queuing"),
    ] {
        assert_eq!(names(&mut me, filter), expected, "{filter}");
    }
    for (filter, error) in [
        ("NAME", "syntax error"),
        ("NAME me TYPE", "syntax error"),
        ("NOSUCH x", "syntax error"),
        ("NOT-SKIPME yes", "syntax error"),
        ("NOT-IDLE 1", "syntax error"),
        ("NOT-ID abc", "syntax error"),
        ("SKIPME maybe", "syntax error"),
        ("FLAGS Nq", "Unknown flags found in the provided filter: Nq"),
        ("NOT-FLAGS ?", "Unknown flags found in the NOT-FLAGS filter: ?"),
        ("CAPA x", "Unknown capa found in the provided filter: x"),
        ("NOT-CAPA x", "Unknown capa found in the NOT-CAPA filter: x"),
        ("IDLE 0", "idle should be greater than 0"),
        ("IDLE 1.5", "idle is not an integer or out of range"),
        ("MAXAGE -1", "maxage should be greater than 0"),
        ("DB 16", "DB number should be between 0 and 15"),
        ("DB -1", "DB number should be between 0 and 15"),
        ("DB 9999999999", "DB is not an integer or out of range"),
        ("NOT-DB 16", "NOT-DB number should be between 0 and 15"),
        ("NOT-DB abc", "NOT-DB is not an integer or out of range"),
        ("NOT-USER nosuch", "No such user 'nosuch'"),
        ("NOT-TYPE foo", "Unknown client type 'foo'"),
        ("NOT-ID 0", "client-id should be greater than 0"),
        // As in Redis: Valkey says that it is a syntax error.
        ("ID 1 abc", "Invalid client ID"),
    ] {
        me.line(&format!("CLIENT LIST {filter}")).is_error(&format!("ERR {error}"));
    }
    // CLIENT KILL has the same filters.
    me.line("CLIENT KILL DB 3 NOT-NAME other").is(0);
    me.line(&format!("CLIENT KILL ID 99999 {} NAME other", id + 1)).is(1);
    assert!(other.is_closed());
    me.line("CLIENT KILL FLAGS x LIB-NAME lib").is(0);
    me.line("CLIENT KILL NOT-FLAGS N NOT-TYPE pubsub").is(1);
    assert!(queuing.is_closed());
    me.line("CLIENT KILL NOT-DB 99").is_error("ERR NOT-DB number should be between 0 and 15");
    me.line("CLIENT KILL NAME me SKIPME no").is(1);
    assert!(me.is_closed());
}
