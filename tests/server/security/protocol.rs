//! Section D: protocol, login, listening.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::output::{described, figure};
use crate::starting::outward_address;
use support::certificates::Certificates;
use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::open_files::ask_for;
use support::server::{PATIENCE, Server, free_port, program, wait_until};

const MIB: usize = 1 << 20;

/// The server serves this client and another one.
#[track_caller]
fn lives(server: &Server, client: &mut Client) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_simple("PONG");
}

/// A password that is asked for, and a client that has given it.
fn guarded() -> (Server, Client) {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let mut client = server.client();
    client.line("AUTH secret").is_ok();
    (server, client)
}

fn used_memory(client: &mut Client) -> usize {
    client.info("used_memory").parse().expect("a number")
}

#[test]
fn d1_lengths_that_are_announced_before_auth_take_no_memory() {
    let Some(_files) = ask_for(810) else { return };
    let server = Server::start_with(&["--requirepass", "secret", "--maxclients", "2000"]);
    let mut known = server.client();
    known.line("AUTH secret").is_ok();
    for (bytes, error) in [
        (&b"*11\r\n"[..], "ERR Protocol error: unauthenticated multibulk length"),
        (b"*1\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length"),
        (b"*1048577\r\n", "ERR Protocol error: unauthenticated multibulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        client.reply().is_error(error);
        assert!(client.is_closed());
    }
    let before = used_memory(&mut known);
    // All but the last byte of the largest request that is accepted.
    let mut largest = request([[b'x'; 16_384]; 10]);
    largest.truncate(largest.len() - "x\r\n".len());
    let mut clients: Vec<Client> = (0..800).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send(b"*10\r\n$16384\r\n"));
    wait_until("all headers have come", || {
        known.line("CLIENT LIST").text().matches(" argv-mem=13 ").count() == clients.len()
    });
    let announced = used_memory(&mut known) - before;
    assert!(announced < clients.len() * 48 * 1024, "{announced} bytes for lengths alone");
    // More of them that send all would be disconnected: what strangers hold together has a limit.
    clients.truncate(25);
    for client in &mut clients {
        client.send(&largest["*10\r\n$16384\r\n".len()..]);
    }
    wait_until("all has come", || {
        let list = known.line("CLIENT LIST").text();
        list.matches(" argv-mem=147").count() == clients.len()
    });
    let sent = clients.len() * largest.len();
    let taken = used_memory(&mut known) - before;
    assert!(taken < 2 * sent, "{taken} bytes for {sent}");
    for client in &mut clients {
        client.send(b"x\r\n");
        assert!(client.reply().text().starts_with("ERR unknown command 'xxx"));
    }
    drop(clients);
    wait_until("all of it is given back", || used_memory(&mut known) < before + 4 * MIB);
    lives_behind_a_password(&server, &mut known);
}

#[track_caller]
fn lives_behind_a_password(server: &Server, client: &mut Client) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_error("NOAUTH Authentication required.");
}

/// For less than six seconds: the server takes nothing more long before.
#[test]
fn d2_replies_before_auth_do_not_pile_up() {
    let (server, mut known) = guarded();
    let before = used_memory(&mut known);
    let sending: Vec<_> = (0..4)
        .map(|_| {
            let client = server.client();
            thread::spawn(move || {
                let mut stream = client.stream();
                stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
                // The system has less room for what is not read.
                let _ = socket2::SockRef::from(stream).set_recv_buffer_size(16 << 10);
                let requests = request(["GET", "x"]).repeat(1000);
                let failed = (0..50_000).find_map(|_| stream.write_all(&requests).err());
                assert!(failed.is_some(), "the server goes on reading");
                client
            })
        })
        .collect();
    let clients: Vec<Client> = sending.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let taken = used_memory(&mut known).saturating_sub(before);
    assert!(taken < MIB, "{taken} bytes for clients that have not said who they are");
    lives_behind_a_password(&server, &mut known);
    for mut client in clients {
        client.reply().is_error("NOAUTH Authentication required.");
    }
}

#[test]
fn d3_connections_that_are_reset_do_not_stop_accepting() {
    let server = Server::start();
    let mut client = server.client();
    for batch in 0..30 {
        for _ in 0..100 {
            let stream = TcpStream::connect(server.address()).expect("the server accepts");
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("no lingering");
        }
        let since = Instant::now();
        lives(&server, &mut client);
        assert!(since.elapsed() < PATIENCE / 2, "batch {batch}");
    }
    wait_until("all are gone", || client.info("connected_clients") == "1");
    assert!(!server.output().contains("Error accepting"), "{}", server.output());
}

#[test]
fn d4_what_a_browser_sends_is_not_executed() {
    let (server, mut known) = guarded();
    let body = "CONFIG SET dbfilename hacked\r\nSET hacked 1\r\n";
    let mut attacks = 0;
    for name in ["POST", "post", "Post", "Host:", "host:", "HOST:"] {
        for is_inline in [true, false] {
            for has_authenticated in [false, true] {
                let mut client = server.client();
                if has_authenticated {
                    client.line("AUTH secret").is_ok();
                }
                let head = match is_inline {
                    true => format!("{name} / HTTP/1.1\r\nContent-Length: 99\r\n\r\n").into_bytes(),
                    false => request([name, "/", "HTTP/1.1"]),
                };
                client.send(&[&head, body.as_bytes()].concat());
                assert!(client.is_closed(), "{name} was answered");
                attacks += 1;
            }
        }
    }
    wait_until("every attack is logged", || {
        server.output().matches("Possible SECURITY ATTACK detected").count() == attacks
    });
    known.line("EXISTS hacked").is(0);
    let name = known.line("CONFIG GET dbfilename").reply().to_string();
    assert!(!name.contains("hacked"), "{name}");
    lives_behind_a_password(&server, &mut known);
}

#[test]
fn d5_empty_requests_leave_nothing_behind() {
    const EMPTY: [&str; 6] =
        ["\r\n", "*0\r\n", "*-1\r\n", "\r\n*0\r\n*-1\r\n", "*-1\r\n\r\n\n*0\r\n", " \r\n*-10\r\n"];
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    let (server, mut known) = guarded();
    for empty in EMPTY {
        for is_in_one_packet in [true, false] {
            let mut stranger = server.client();
            for client in [&mut stranger, &mut known] {
                if is_in_one_packet {
                    client.send(&[empty.as_bytes(), PING].concat());
                } else {
                    client.send(empty.as_bytes());
                    // Another connection's reply shows that the server has had time to read the packet.
                    server.client().line("PING").reply();
                    client.send(PING);
                }
            }
            stranger.reply().is_error("NOAUTH Authentication required.");
            known.reply().is_simple("PONG");
        }
    }
    lives_behind_a_password(&server, &mut known);
}

/// As in Redis: whatever the two bytes are, they are not looked at.
#[test]
fn d6_any_two_bytes_end_an_argument() {
    let server = Server::start();
    let mut client = server.client();
    client.send(b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\0\n*2\r\n$4\r\nECHO\n\n$2\r\nabcd");
    client.reply().is_simple("PONG");
    client.reply().is_simple("PONG");
    client.reply().is("ab");
    lives(&server, &mut client);
}

#[test]
fn d7_requests_with_missing_arguments_are_answered_in_order() {
    for threads in ["1", "2", "4"] {
        let server = Server::start_with(&["--io-threads", threads]);
        let mut client = server.client();
        for _ in 0..20 {
            client.send(b"GET\r\nSET a\r\nMSETEX\r\nEVAL x\r\nGET a\r\n");
            for name in ["get", "set", "msetex", "eval"] {
                client.reply().is_error(&format!("ERR wrong number of arguments for '{name}' command"));
            }
            client.reply().is_nil();
        }
        lives(&server, &mut client);
    }
}

#[test]
fn d8_pushes_come_only_between_replies() {
    let server = Server::start();
    for bytes in [1, MIB] {
        let message = vec![b'm'; bytes];
        let mut client = server.client3();
        let is_push = |reply: &Reply, kind: &str| match reply {
            Reply::Push(parts) => parts[0] == Reply::Bulk(kind.into()),
            _ => false,
        };
        assert!(is_push(&client.line("SUBSCRIBE c").reply(), "subscribe"));
        client.line("MULTI").is_ok();
        client.cmd([b"PUBLISH", &b"c"[..], &message]).is_simple("QUEUED");
        client.cmd([b"PUBLISH", &b"c"[..], &message]).is_simple("QUEUED");
        assert_eq!(client.line("EXEC").items(), [Reply::Integer(1), Reply::Integer(1)]);
        assert!(is_push(&client.reply().reply(), "message"));
        assert!(is_push(&client.reply().reply(), "message"));
        let script = "redis.call('publish', 'c', ARGV[1]) return {1, {2}}";
        let nested = Reply::Array(vec![Reply::Integer(2)]);
        let replies = client.cmd([b"EVAL", script.as_bytes(), b"0", &message]).items();
        assert_eq!(replies, [Reply::Integer(1), nested]);
        assert!(is_push(&client.reply().reply(), "message"));
        // Keys that are followed, changed by the client's own transaction.
        client.line("CLIENT TRACKING ON").is_ok();
        client.cmd([b"SET", &b"a"[..], &message]).is_ok();
        assert_eq!(client.line("GET a").reply(), Reply::Bulk(message.clone()));
        client.line("MULTI").is_ok();
        client.cmd([b"SET", &b"a"[..], &message]).is_simple("QUEUED");
        client.line("GET a").is_simple("QUEUED");
        let replies = [client.line("EXEC").reply(), client.reply().reply()];
        let (pushes, others): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|reply| is_push(reply, "invalidate"));
        assert_eq!(pushes.len(), 1);
        assert_eq!(others, [Reply::Array(vec![Reply::Simple("OK".into()), Reply::Bulk(message.clone())])]);
        lives(&server, &mut client);
    }
}

/// Another user could only connect before the permissions are set; then this one, too, would find others.
#[test]
fn d9_a_unix_socket_never_has_other_permissions_than_it_should() {
    for attempt in 0..5 {
        let folder = Folder::new(&format!("umask-{attempt}"));
        let path = folder.file("server.sock");
        let started = Command::new("sh")
            .args(["-c", "umask 0; exec \"$0\" \"$@\"", &program(), "--port", &free_port().to_string()])
            .args(["--save", "", "--bind", "127.0.0.1", "--unixsocket", &path, "--unixsocketperm", "700"])
            .stdout(Stdio::null())
            .spawn();
        let mut child = started.expect("a shell");
        let deadline = Instant::now() + PATIENCE;
        let mut stream = loop {
            if let Ok(stream) = UnixStream::connect(&path) {
                break stream;
            }
            assert!(Instant::now() < deadline, "it does not listen");
        };
        let mode = fs::metadata(&path).expect("a socket").permissions().mode();
        stream.write_all(b"PING\r\n").expect("it takes a request");
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).expect("it answers");
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!((mode & 0o777, &reply), (0o700, b"+PONG\r\n"));
    }
}

marked!(needs_tools: d10_without_a_password_only_this_machine_is_served);
fn d10_without_a_password_only_this_machine_is_served() {
    let Some(outward) = outward_address() else { return };
    let server = Server::start_with(&["--bind", "*"]);
    let outward = SocketAddr::new(outward.ip(), server.port());
    let mut stranger = Client::connect(outward);
    assert!(stranger.reply().text().starts_with("DENIED Redis is running in protected mode"));
    assert!(stranger.is_closed());
    let mut local = server.client();
    local.line("CONFIG SET requirepass secret").is_ok();
    let mut stranger = Client::connect(outward);
    stranger.line("GET k").is_error("NOAUTH Authentication required.");
    stranger.line("AUTH secret").is_ok();
    local.line("PING").is_simple("PONG");
}

/// That the comparison takes the same time for all is to be read in `src/acl/grants.rs`: digests, `ct_eq`.
#[test]
fn d11_only_the_whole_password_is_right() {
    const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";
    let (server, mut known) = guarded();
    let long = vec![b's'; 16 << 10];
    let mut client = server.client();
    for wrong in [&b""[..], b"s", b"secre", b"secret\0", b"secret\0secret", b"\0", b"secretsecret", &long] {
        client.cmd([b"AUTH", wrong]).is_error(WRONG);
        client.cmd([b"AUTH", &b"default"[..], wrong]).is_error(WRONG);
        client.cmd([&b"HELLO"[..], b"3", b"AUTH", b"default", wrong]).is_error(WRONG);
    }
    client.line("GET k").is_error("NOAUTH Authentication required.");
    client.line("AUTH secret").is_ok();
    lives_behind_a_password(&server, &mut known);
}

#[test]
fn d12_limits_are_of_known_classes_and_in_range() {
    let server = Server::start();
    let mut client = server.client();
    let before = client.line("CONFIG GET client-output-buffer-limit").reply();
    for wrong in [
        "master 3735928559 3405691582 373529054",
        "normal 1 1",
        "normal",
        "normal -1 0 0",
        "normal 0 -1 0",
        "normal 0 0 -1",
        "normal 100000000000000000000 0 0",
        "normal 0 100000000000000000000 0",
        "normal 0 0 100000000000000000000",
        "normal 1 1 1 pubsub 1 1",
        "\0 0 0 0",
    ] {
        let refusal = client.cmd(["CONFIG", "SET", "client-output-buffer-limit", wrong]).text();
        assert!(refusal.starts_with("ERR CONFIG SET failed"), "{wrong}: {refusal}");
        client.line("CONFIG GET client-output-buffer-limit").is(before.clone());
    }
    lives(&server, &mut client);
}

/// What would be a user of its own if it were written as it is.
const SMUGGLED: &str = "\nuser evil on nopass ~* &* +@all\n";

#[test]
fn d13_no_value_becomes_a_line_of_the_configuration() {
    let folder = Folder::new("smuggled-config");
    let config = folder.write("redis.conf", "save \"\"\n");
    let server = folder.serve(&[&config, "--enable-protected-configs", "yes"]);
    let mut client = server.client();
    let Reply::Array(parts) = client.line("CONFIG GET *").reply() else { panic!("not a list") };
    let names: BTreeSet<String> =
        parts.chunks(2).map(|pair| pair[0].to_string().trim_matches('"').to_owned()).collect();
    let mut expected = Vec::new();
    for name in names {
        for value in [format!("x\"{SMUGGLED}"), format!("x'\r{SMUGGLED}"), SMUGGLED.into()] {
            if client.cmd(["CONFIG", "SET", &name, &value]).text() == "OK" {
                expected.retain(|(other, _)| *other != name);
                expected.push((name.clone(), value));
            }
        }
    }
    assert!(expected.iter().any(|(name, _)| name == "requirepass"), "{expected:?}");
    client.line("CONFIG REWRITE").is_ok();
    client.line("PING").is_simple("PONG");
    let text = fs::read_to_string(&config).expect("the file");
    assert!(!text.lines().any(|line| line.starts_with("user evil")), "{text}");
    drop(server);
    let server = folder.serve(&[&config]);
    let mut client = server.client();
    let (_, password) = expected.iter().find(|(name, _)| name == "requirepass").expect("it was set");
    client.cmd(["AUTH", password]).is_ok();
    assert_eq!(client.line("ACL USERS").reply().to_string(), r#"["default"]"#);
    for (name, value) in &expected {
        let kept = client.cmd(["CONFIG", "GET", name]).reply();
        assert_eq!(kept, Reply::Array(vec![name.as_str().into(), value.as_str().into()]), "{name}");
    }
}

#[test]
fn d13_no_rule_becomes_a_line_of_the_users() {
    let folder = Folder::new("smuggled-users");
    let users = folder.write("users.acl", "");
    let server = folder.serve(&["--aclfile", &users, "--save", ""]);
    let mut client = server.client();
    let smuggled = SMUGGLED.trim_end();
    client.cmd(["ACL", "SETUSER", &format!("u{smuggled}")]).reply();
    client.cmd(["ACL", "SETUSER", "u\nuser evil on"]).reply();
    for (number, rule) in [
        format!("~a{smuggled}"),
        format!("&a{smuggled}"),
        format!("%R~a{smuggled}"),
        format!("%RW~a{smuggled}"),
        format!("(~a{smuggled})"),
        format!("(+get &a{smuggled})"),
        format!("+get{smuggled}"),
        format!("+config|get{smuggled}"),
        format!("-@all{smuggled}"),
        format!(">password{smuggled}"),
        format!("#{smuggled}"),
    ]
    .iter()
    .enumerate()
    {
        client.cmd(["ACL", "SETUSER", &format!("t{number}"), "on", rule]).reply();
    }
    let before = client.line("ACL LIST").items();
    client.line("ACL SAVE").is_ok();
    client.line("ACL LOAD").is_ok();
    assert_eq!(client.line("ACL LIST").items(), before);
    let names = client.line("ACL USERS").reply().to_string();
    assert!(!names.contains("\"evil\""), "{names}");
    assert!(server.client().line("AUTH evil any").text().starts_with("WRONGPASS"));
    lives(&server, &mut client);
}

#[test]
fn d14_passwords_are_shown_nowhere() {
    const SECRET: &str = "hunter2";
    let server = Server::start_with(&["--loglevel", "debug"]);
    let mut client = server.client();
    client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 10000").is_ok();
    client.line(&format!("ACL SETUSER u on >{SECRET} ~* &* +@all")).is_ok();
    let mut monitor = server.client();
    monitor.line("MONITOR").is_ok();
    let requests = [
        format!("AUTH u {SECRET}"),
        format!("AUTH {SECRET}"),
        format!("AUTH u {SECRET} {SECRET}"),
        format!("AUTH nosuch {SECRET}"),
        format!("HELLO 2 AUTH u {SECRET}"),
        format!("HELLO 2 SETNAME auth AUTH u {SECRET}"),
        format!("HELLO 2 AUTH u {SECRET} SETNAME me"),
        format!("HELLO 2 AUTH nosuch {SECRET}"),
        format!("HELLO 9 AUTH u {SECRET}"),
        format!("HELLO AUTH u {SECRET}"),
        format!("HELLO 2 NOSUCH AUTH u {SECRET}"),
        format!("ACL SETUSER v >{SECRET}"),
        format!("ACL SETUSER v >{SECRET} +nosuch"),
        format!("ACL SETUSER v nosuch >{SECRET}"),
        format!("ACL SETUSER v <{SECRET}"),
        format!("CONFIG SET timeout 0 requirepass {SECRET}"),
        format!("CONFIG SET nosuch 0 requirepass {SECRET}"),
        format!("CONFIG SET masterauth {SECRET}"),
        format!("CONFIG SET tls-key-file-pass {SECRET}"),
        format!("MIGRATE 127.0.0.1 1 k 0 10 AUTH2 u {SECRET}"),
    ];
    for (number, sent) in requests.iter().enumerate() {
        client.line(&format!("SET before:{number} v")).is_ok();
        client.line(sent).reply();
        for is_executed in [true, false] {
            client.line("MULTI").is_ok();
            client.line(&format!("SET within:{number} v")).is_simple("QUEUED");
            client.line(sent).reply();
            client.line(&format!("SET after:{number} v")).reply();
            client.line(if is_executed { "EXEC" } else { "DISCARD" }).reply();
        }
    }
    client.line("SET the:end v").is_ok();
    let mut shown = String::new();
    while !shown.contains("the:end") {
        shown += &monitor.reply().text();
        shown.push('\n');
    }
    for number in 0..requests.len() {
        assert!(shown.contains(&format!("\"SET\" \"before:{number}\" \"v\"")), "{shown}");
    }
    assert!(shown.contains("\"SET\" \"within:0\" \"v\"") && shown.contains("\"SET\" \"after:0\" \"v\""));
    let slowlog = client.line("SLOWLOG GET -1").reply().to_string();
    assert!(slowlog.contains("before:0") && slowlog.contains("(redacted)"), "{slowlog}");
    let refused = client.line("ACL LOG").reply().to_string();
    let list = client.line("CLIENT LIST").text();
    let users = client.line("ACL LIST").reply().to_string();
    for (place, text) in [
        ("MONITOR", &shown),
        ("SLOWLOG", &slowlog),
        ("ACL LOG", &refused),
        ("CLIENT LIST", &list),
        ("ACL LIST", &users),
        ("the log", &server.output()),
    ] {
        let line = text.lines().find(|line| line.contains(SECRET));
        assert_eq!(line, None, "{place} shows it");
    }
    client.line("PING").is_simple("PONG");
}

#[test]
fn d15_killed_tls_clients_leave_nothing_that_is_read() {
    let certificates = Certificates::new("killed-tls");
    let (server, tls_port) = certificates.serve("no");
    let mut killer = server.client();
    // Half a batch: two requests and the beginning of a third.
    let half = [request(["SET", "k", "v"]).repeat(2), b"*3\r\n$3\r\nSET\r\n$1\r\nk".to_vec()].concat();
    let kills: [&[&str]; 6] = [
        &["CLIENT KILL TYPE normal"],
        &["CLIENT KILL ID {one}", "CLIENT KILL ID {two}"],
        &["ACL DELUSER u"],
        &["MULTI", "CLIENT KILL ID {one}", "CLIENT KILL TYPE normal", "EXEC"],
        &["CLIENT KILL USER u"],
        &["CLIENT KILL TYPE normal SKIPME no"],
    ];
    for way in kills {
        killer.line("ACL SETUSER u on nopass ~* &* +@all").is_ok();
        let mut clients = [certificates.client(tls_port, false), certificates.client(tls_port, false)];
        let ids = clients.each_mut().map(|client| {
            client.write_all(b"AUTH u any\r\nCLIENT ID\r\n").expect("the server takes it");
            let mut reply = [0; 64];
            let mut length = 0;
            while !reply[..length].ends_with(b"\r\n") || length < "+OK\r\n:1\r\n".len() {
                length += client.read(&mut reply[length..]).expect("an answer");
            }
            let text = String::from_utf8_lossy(&reply[..length]).into_owned();
            text.trim_end().rsplit(':').next().expect("a number").to_owned()
        });
        for client in &mut clients {
            client.write_all(&half).expect("the server takes it");
        }
        for line in way {
            killer.line(&line.replace("{one}", &ids[0]).replace("{two}", &ids[1])).reply();
        }
        for client in &mut clients {
            // Two replies may have been written before; then it is over, in whatever way. A user who has
            // been deleted may just be told so.
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            let rest = String::from_utf8_lossy(&rest).into_owned();
            let is_expected = |line: &str| line == "+OK" || line == "-NOAUTH Authentication required.";
            assert!(rest.lines().count() <= 2 && rest.lines().all(is_expected), "{rest}");
        }
        if way == ["CLIENT KILL TYPE normal SKIPME no"] {
            assert!(killer.is_closed());
            killer = server.client();
        }
        lives(&server, &mut killer);
    }
    // A client that kills itself is answered, and nothing that comes after that is.
    let mut client = certificates.client(tls_port, false);
    client.write_all(b"CLIENT ID\r\n").expect("the server takes it");
    let mut reply = [0; 64];
    let length = client.read(&mut reply).expect("an answer");
    let id = String::from_utf8_lossy(&reply[1..length]).trim_end().to_owned();
    client.write_all(format!("CLIENT KILL ID {id} SKIPME no\r\nPING\r\n").as_bytes()).expect("it takes it");
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    assert_eq!(rest, b":1\r\n");
    lives(&server, &mut killer);
}

#[test]
fn d17_a_large_reply_over_tls_reaches_a_slow_reader() {
    const BYTES: usize = 100 * MIB;
    let certificates = Certificates::new("large-tls");
    let (server, tls_port) = certificates.serve("no");
    let mut client = server.client();
    client.line(&format!("SETRANGE k {} x", BYTES - 1)).is(BYTES as i64);
    let mut slow = certificates.client(tls_port, false);
    slow.write_all(b"CLIENT ID\r\n").expect("the server takes it");
    let mut first = [0; 64];
    let length = slow.read(&mut first).expect("an answer");
    let id: i64 = String::from_utf8_lossy(&first[1..length]).trim_end().parse().expect("a number");
    slow.write_all(b"GET k\r\n").expect("the server takes it");
    wait_until("the reply waits", || figure(&mut client, id, "omem") > BYTES / 2);
    lives(&server, &mut client);
    let mut piece = vec![0; MIB];
    let expected = BYTES + "$104857600\r\n\r\n".len();
    let mut received = 0;
    while received < expected {
        received += slow.read(&mut piece).expect("more of it");
        if received < 4 * MIB {
            // A dev build encrypts slowly enough as it is.
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(received, expected);
    wait_until("nothing waits any more", || figure(&mut client, id, "omem") == 0);
    slow.write_all(b"PING\r\n").expect("the server takes it");
    let length = slow.read(&mut first).expect("an answer");
    assert_eq!(&first[..length], b"+PONG\r\n");
    lives(&server, &mut client);
}

/// With a part of the million channels, and little memory: all of them take twenty seconds of a dev build.
#[test]
fn d23_subscriptions_beyond_the_memory_end_nothing() {
    const CHANNELS: usize = 40_000;
    let server = Server::start_with(&["--maxmemory", "2mb", "--maxmemory-policy", "noeviction"]);
    let mut client = server.client();
    let names: Vec<String> = (0..CHANNELS).map(|number| number.to_string()).collect();
    let before = used_memory(&mut client);
    for command in ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"] {
        let mut listener = server.client();
        listener.stream().set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // It may be refused, or cut off by the limit of output, or listen to all of them.
        let _ = listener.try_send(&request([command].into_iter().chain(names.iter().map(String::as_str))));
        let mut confirmed = 0;
        let mut text = [0; 1 << 16];
        let mut tail = Vec::new();
        let last = format!(":{CHANNELS}\r\n");
        while let Ok(length @ 1..) = listener.stream().read(&mut text) {
            confirmed += length;
            tail.extend_from_slice(&text[..length]);
            tail.drain(..tail.len().saturating_sub(64));
            if tail.ends_with(last.as_bytes()) || tail.starts_with(b"-OOM") {
                break;
            }
        }
        lives(&server, &mut client);
        drop(listener);
        wait_until("it is gone", || client.info("connected_clients") == "1");
        wait_until("its memory is back", || used_memory(&mut client) < before + MIB);
        assert!(confirmed > 0 || server.output().contains("output buffer limits"), "{command}: nothing came");
    }
}

#[test]
fn d24_a_subscriber_that_loses_its_rights_is_closed_once() {
    let folder = Folder::new("closed-once");
    let users = folder.write("users.acl", "");
    let server = folder.serve(&["--aclfile", &users, "--save", ""]);
    let mut admin = server.client();
    for way in ["ACL SETUSER u resetchannels", "ACL DELUSER u", "ACL LOAD"] {
        for has_full_output in [false, true] {
            admin.line("ACL SAVE").is_ok();
            admin.line("ACL SETUSER u on nopass ~* &* +@all").is_ok();
            let mut client = server.client();
            client.line("AUTH u any").is_ok();
            let id = client.line("CLIENT ID").integer();
            // Begun and ended within a transaction, then for good.
            client.line("MULTI").is_ok();
            for line in ["SUBSCRIBE a b", "PSUBSCRIBE p*", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUBSCRIBE c"] {
                client.line(line).is_simple("QUEUED");
            }
            client.send(b"EXEC\r\n");
            wait_until("it listens", || {
                described(&mut admin, id).is_some_and(|line| line.contains(" sub=1 psub=0 "))
            });
            if has_full_output {
                let message = vec![b'm'; MIB];
                for _ in 0..16 {
                    admin.cmd([b"PUBLISH", &b"c"[..], &message]).is(1);
                }
            }
            admin.line(way).reply();
            wait_until(way, || described(&mut admin, id).is_none());
            admin.line("PUBLISH c m").is(0);
            admin.line("CLIENT KILL TYPE pubsub").is(0);
            lives(&server, &mut admin);
            admin.line("ACL DELUSER u").reply();
        }
    }
}
