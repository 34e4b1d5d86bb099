//! What clients that wait cost, and what strangers do.
//!
//! Thousands of workers wait for a queue or a lock, and anyone can connect. None of them may take room from
//! the data.

use std::io::{Read, Write};
use std::net::TcpStream;

use support::certificates::Certificates;
use support::client::{Client, request};
use support::server::{PATIENCE, Server, wait_until};

/// What a client that waits may take, in bytes, however it is connected.
const WAITING_BYTES_MAX: usize = 8 << 10;

/// What threads may keep for all clients, in bytes, more than after the first clients: little, where each
/// client held 32 KiB for itself.
const SHARED_BYTES_MAX: usize = 128 << 10;

/// Ways to wait: what is prepared for it, and what a client sends.
const WAYS: [(&str, &str); 14] = [
    ("PING", "BLPOP list 0"),
    ("PING", "BLMOVE list other LEFT LEFT 0"),
    ("PING", "BZPOPMIN ranking 0"),
    ("PING", "XREAD BLOCK 0 STREAMS stream $"),
    ("LOCK ACQUIRE lock mine PX 1000000", "LOCK ACQUIRE lock another PX 1000000 WAIT 0"),
    ("PING", "WAIT 1 0"),
    ("PING", "WAITAOF 0 1 0"),
    ("CLIENT PAUSE 1000000 WRITE", "SET key value"),
    ("FAULT ADD ON get DELAY 1000000", "GET key"),
    ("PING", "SUBSCRIBE channel"),
    ("PING", "MONITOR"),
    ("PING", "MULTI"),
    ("PING", "WATCH key"),
    ("PING", "CLIENT TRACKING ON"),
];

/// The beginning of a request.
const HALF: &[u8] = b"*2\r\n$4\r\nECHO\r\n$10\r\nhel";

/// The bytes of each way, behind a request by whose reply one sees that they have come.
fn ways() -> Vec<(&'static str, Vec<u8>)> {
    let long = request(["ECHO", &"v".repeat(50_000)]);
    let (ping, wait) = (request(["PING"]), request(["BLPOP", "list", "0"]));
    let mut ways: Vec<_> = WAYS
        .iter()
        .map(|(prepared, way)| (*prepared, [&ping[..], &request(way.split(' '))].concat()))
        .collect();
    ways.push(("PING", [&ping, HALF].concat()));
    // Behind what filled the buffers, and before it.
    ways.push(("PING", [&ping.repeat(300)[..], HALF].concat()));
    ways.push(("PING", [&ping.repeat(300)[..], &wait].concat()));
    ways.push(("PING", [&long, &ping, HALF].concat()));
    ways.push(("PING", [&long[..], &ping, &wait].concat()));
    ways.push(("PING", [&ping[..], &wait, &ping.repeat(30)].concat()));
    ways.push(("PING", b"PING\r\nBLPOP list 0\r\n".to_vec()));
    ways
}

fn used(client: &mut Client) -> usize {
    client.info("used_memory").parse().unwrap()
}

/// Waits until the first request that is a PING has been answered.
fn hear(stream: &mut impl Read) {
    let (mut heard, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while !heard.windows(7).any(|part| part == b"+PONG\r\n") {
        let bytes = stream.read(&mut buffer).expect("a reply in time");
        assert!(bytes > 0, "it was disconnected");
        heard.drain(..heard.len().saturating_sub(6));
        heard.extend_from_slice(&buffer[..bytes]);
    }
}

/// Lets clients wait in one way, and checks what each of them takes.
fn wait_in_one_way<S: Read + Write>(
    server: &Server,
    sent: &[u8],
    count: usize,
    mut connect: impl FnMut() -> S,
) {
    let mut asking = server.client();
    let mut open = |count: usize| {
        let mut waiting: Vec<S> = (0..count).map(|_| connect()).collect();
        for client in &mut waiting {
            client.write_all(sent).expect("the server takes it");
            client.flush().expect("the server takes it");
        }
        waiting.iter_mut().for_each(hear);
        waiting
    };
    // With the first ones come tables and buffers that all share.
    let first = open(count / 2);
    let before = used(&mut asking);
    let waiting = open(count);
    let allowed = before + count * WAITING_BYTES_MAX + SHARED_BYTES_MAX;
    let way = String::from_utf8_lossy(&sent[sent.len().saturating_sub(60)..]).into_owned();
    let mut now = 0;
    wait_until(&format!("clients give back what they do not need: {way:?}"), || {
        now = used(&mut asking);
        now < allowed
    });
    drop((first, waiting));
    asking.line("CLIENT UNPAUSE").is_ok();
    asking.line("FAULT CLEAR").ignored();
    wait_until("they have left", || asking.info("connected_clients") == "1");
}

/// In some ways in turn.
fn wait_in_ways<S: Read + Write>(
    server: &Server,
    ways: impl Iterator<Item = (&'static str, Vec<u8>)>,
    count: usize,
    mut connect: impl FnMut() -> S,
) {
    for (prepared, sent) in ways {
        server.client().line(prepared).ignored();
        wait_in_one_way(server, &sent, count, &mut connect);
    }
}

#[test]
fn a_client_that_waits_takes_hardly_more_than_one_that_is_idle() {
    let server = Server::start_with(&["--enable-fault-command", "yes"]);
    wait_in_ways(&server, ways().into_iter(), 60, || {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    });
}

#[test]
fn a_client_that_waits_over_tls_takes_hardly_more_than_one_that_is_idle() {
    let certificates = Certificates::new("tls-waiting");
    let (server, tls_port) = certificates.serve_with("no", &["--enable-fault-command", "yes"]);
    // What the server remembers of the last handshakes, so that they can be resumed, is not the clients'.
    (0..130).for_each(|_| {
        let mut client = certificates.client(tls_port, false);
        client.write_all(b"PING\r\n").unwrap();
        hear(&mut client);
    });
    let some = ways().into_iter().step_by(4);
    wait_in_ways(&server, some, 30, || certificates.client(tls_port, false));
}

/// A server with a password and data that nearly fill its memory, and one who knows the password.
fn full(policy: &str) -> (Server, Client) {
    let server = Server::start();
    let mut admin = server.client();
    for number in 0..500 {
        admin.cmd(["SET", &format!("key:{number}"), &"v".repeat(500)]).is_ok();
    }
    let room = (used(&mut admin) + (200 << 10)).to_string();
    admin
        .cmd(["CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", &room, "requirepass", "secret"])
        .is_ok();
    (server, admin)
}

#[test]
fn strangers_push_out_no_data_whatever_they_send() {
    for policy in ["allkeys-lru", "noeviction"] {
        let (server, mut admin) = full(policy);
        let half = [b"*3\r\n$4\r\nAUTH\r\n$9000\r\n", &[b'x'; 4000][..]].concat();
        // Many that say nothing, many that stop in the middle, many that do not read their replies.
        let strangers: Vec<Client> = (0..300)
            .map(|number| {
                let mut stranger = server.client();
                match number % 3 {
                    0 => {}
                    1 => stranger.send(&half),
                    _ => stranger.send(&request(["GET", "k"]).repeat(20)),
                }
                stranger
            })
            .collect();
        wait_until("all have been seen", || admin.info("connected_clients") == "301");
        let uncounted =
            |admin: &mut Client| admin.info("mem_not_counted_for_evict").parse::<usize>().unwrap();
        wait_until("they are counted apart", || uncounted(&mut admin) > 100 * 4000);
        for number in 0..500 {
            admin.cmd(["SET", &format!("key:{number}"), &"w".repeat(500)]).is_ok();
        }
        assert_eq!((admin.info("evicted_keys").as_str(), admin.line("DBSIZE").integer()), ("0", 500));
        drop(strangers);
        wait_until("nothing of them is left", || uncounted(&mut admin) < 10_000);
    }
}

#[test]
fn strangers_together_hold_only_so_much_and_a_password_still_gets_through() {
    let server = Server::start_with(&["--requirepass", "secret"]);
    let mut admin = server.client();
    admin.line("AUTH secret").is_ok();
    let before = used(&mut admin);
    let most = [&b"*10\r\n$4\r\nAUTH\r\n"[..], &request(["x".repeat(16_000)])[4..].repeat(8)].concat();
    let mut strangers: Vec<Client> = (0..200).map(|_| server.client()).collect();
    // Those that are disconnected do not take everything.
    strangers.iter_mut().for_each(|stranger| _ = stranger.try_send(&most));
    server.wait_for_output("Closing client that has not authenticated");
    let mut late = server.client();
    late.cmd(["AUTH", "default", &"x".repeat(10_000)])
        .is_error("WRONGPASS invalid username-password pair or user is disabled.");
    late.line("AUTH secret").is_ok();
    let taken = used(&mut admin).saturating_sub(before);
    assert!(taken < 12 << 20, "strangers took {taken} bytes");
    assert!(admin.info("client_query_buffer_limit_disconnections") != "0");
}
