//! Many servers, with ports of their own, on the threads of one host.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use keyfast::internals::allocator;
use keyfast::testing::Server;

use super::{IDLE_BYTES_MAX, MANY, alone, soon, threads};
use support::open_files::ask_for;

/// What a port takes beside the instance: a task that accepts clients, and a socket in the runtime's tables.
const PORT_BYTES_MAX: usize = 4 << 10;
/// What may be left of a server that has gone. Valgrind finds no such piece of memory. Each start and each
/// end has a thread of its own, and some bytes of threads that end are not counted.
const LEFT_BYTES_EACH_MAX: usize = 512;

/// A client of a server.
struct Client(TcpStream);

impl Client {
    fn of(server: &Server) -> Client {
        Client(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("a connection"))
    }

    /// Sends a line and reads as much as is expected.
    #[track_caller]
    fn say(&mut self, line: &str, expected: &str) {
        self.send(line);
        self.hear(expected);
    }

    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\r\n").as_bytes()).expect("it is connected");
    }

    #[track_caller]
    fn hear(&mut self, expected: &str) {
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

#[test]
fn a_thousand_servers_take_a_few_kilobytes_each_and_no_thread() {
    let _alone = alone();
    // Two for each server, and some for clients.
    let Some(_files) = ask_for(3 * MANY) else { return };
    let (threads_before, bytes_before) = (threads(), allocator::used_bytes());
    // The first one starts the threads.
    let first = Server::start();
    Client::of(&first).say("SET k first", "+OK\r\n");
    let (threads_of_one, bytes_of_one) = (threads(), allocator::used_bytes());
    let mut servers: Vec<_> = (0..MANY).map(|_| Server::start()).collect();
    // The host may give unused memory back, by a thread of its own.
    assert!(threads() <= threads_of_one + 1, "some have started");
    let bytes = (allocator::used_bytes() - bytes_of_one) / MANY;
    assert!(bytes <= IDLE_BYTES_MAX + PORT_BYTES_MAX, "{bytes} bytes each");
    for (number, server) in servers.iter().enumerate() {
        Client::of(server).say(&format!("SET k {number}"), "+OK\r\n");
    }
    // Some go, and the others stay.
    let gone = servers.split_off(MANY / 2);
    let mut clients = [Client::of(&gone[0]), Client::of(&servers[0])];
    let port = gone[0].port();
    drop(gone);
    assert!(clients[0].is_closed());
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    clients[1].say("GET k", "$1\r\n0\r\n");
    for (number, server) in servers.iter().enumerate() {
        let number = number.to_string();
        Client::of(server).say("GET k", &format!("${}\r\n{number}\r\n", number.len()));
    }
    Client::of(&first).say("GET k", "$5\r\nfirst\r\n");
    drop((first, servers));
    // The system tells a moment later that threads have ended.
    soon(|| threads() <= threads_before);
    let left_bytes = allocator::used_bytes().saturating_sub(bytes_before);
    assert!(left_bytes <= MANY * LEFT_BYTES_EACH_MAX, "{left_bytes} bytes are left");
}

#[test]
fn each_server_counts_its_own_memory_also_what_its_clients_take() {
    let _alone = alone();
    let (one, other) = (Server::start(), Server::start());
    let (mut client, mut idle) = (Client::of(&one), Client::of(&other));
    for client in [&mut client, &mut idle] {
        client.say("CONFIG SET maxmemory 400kb", "+OK\r\n");
    }
    client.say("SETRANGE k 500000 x", ":500001\r\n");
    client.say("SET other v", "-OOM ");
    idle.say("SET other v", "+OK\r\n");
    let mut again = Client::of(&one);
    again.say("DEL k", ":1\r\n");
    again.say("SET other v", "+OK\r\n");
    // A request that has not come whole takes memory, too.
    client.0.write_all(b"\r\n*2\r\n$3\r\nGET\r\n$500000\r\n").unwrap();
    client.0.write_all(&vec![b'x'; 450_000]).unwrap();
    soon(|| {
        again.send("SET other v");
        let mut reply = [0; 5];
        again.0.read_exact(&mut reply).expect("a reply");
        if &reply == b"+OK\r\n" {
            return false;
        }
        let mut rest = [0; 64];
        again.0.read(&mut rest).expect("the rest of the error") > 0
    });
    idle.say("SET other v", "+OK\r\n");
}

#[test]
fn a_server_ends_beside_others_while_its_clients_wait_and_its_script_runs() {
    let _alone = alone();
    let (one, other) = (Server::start(), Server::start());
    let mut stays = Client::of(&other);
    for _ in 0..20 {
        let server = Server::start();
        let (mut waits, mut listens, mut runs) =
            (Client::of(&server), Client::of(&server), Client::of(&server));
        waits.send("BLPOP queue 0");
        listens.say("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
        runs.send("EVAL 'for i = 1, 3000000 do end return 1' 0");
        thread::sleep(Duration::from_millis(2));
        stays.say("PING", "+PONG\r\n");
        drop(server);
        assert!(waits.is_closed() && listens.is_closed());
        stays.say("PING", "+PONG\r\n");
    }
    Client::of(&one).say("PING", "+PONG\r\n");
}

#[test]
fn an_asynchronous_test_starts_and_ends_servers() {
    let _alone = alone();
    for threads in [0, 2] {
        let mut builder = match threads {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        builder.enable_all().build().expect("a runtime").block_on(async {
            let server = Server::start();
            Client::of(&server).say("PING", "+PONG\r\n");
            drop(server);
            tokio::spawn(async { drop(Server::start()) }).await.expect("it ends");
        });
    }
}
