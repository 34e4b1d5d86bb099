//! Several servers in one process: nothing of one is seen in another.

use std::ffi::OsString;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;

use keyfast::internals::host::Host;
use keyfast::internals::instance::Scale;
use keyfast::internals::options::{Asked, Startup, parse};
use keyfast::internals::server::Server;

use support::client::{Client, Reply};
use support::folder::Folder;
use support::log::{files, wait_for_rewrite};
use support::server::{free_port, wait_until};

/// A server in this process with threads of its own, whose files are in a folder.
fn start(folder: &Folder, options: &[&str]) -> Server {
    start_by(folder, options, Server::start)
}

/// The same on the threads of a host.
fn start_on(host: &Arc<Host>, folder: &Folder, options: &[&str]) -> Server {
    start_by(folder, options, |startup| Server::start_on(Arc::clone(host), Scale::small(), startup))
}

fn start_by(folder: &Folder, options: &[&str], start: impl Fn(Startup) -> Result<Server, String>) -> Server {
    let mut server = start(startup(folder, options));
    // A test that starts a program at this moment has a copy of the log's lock until that program runs.
    let is_locked = |server: &Result<Server, String>| {
        server.as_ref().is_err_and(|why| why.starts_with("Another server keeps its log in"))
    };
    wait_until("the folder is free", || {
        if is_locked(&server) {
            server = start(startup(folder, options));
        }
        !is_locked(&server)
    });
    server.expect("a server")
}

fn startup(folder: &Folder, options: &[&str]) -> Startup {
    let directory = folder.file("");
    let own = ["keyfast", "--port", "0", "--bind", "127.0.0.1", "--save", "", "--dir", &directory];
    let arguments = own.iter().chain(options).map(OsString::from);
    match parse(arguments, &[]).expect("arguments") {
        Asked::Serve(startup) => *startup,
        Asked::Print(text) => panic!("{text}"),
    }
}

fn client(server: &Server) -> Client {
    Client::connect((Ipv4Addr::LOCALHOST, server.instance().port()).into())
}

/// Two servers on one host that differ in everything that the tests look at, with a client each.
struct Two {
    host: Arc<Host>,
    folders: [Folder; 2],
    servers: [Server; 2],
    clients: [Client; 2],
}

impl Two {
    fn start(test: &str, options: [&[&str]; 2]) -> Two {
        let folders = ["one", "two"].map(|name| Folder::new(&format!("{test}-{name}")));
        let host = Server::host(2).expect("threads");
        let servers = [0, 1].map(|number| start_on(&host, &folders[number], options[number]));
        let clients = servers.each_ref().map(client);
        Two { host, folders, servers, clients }
    }

    fn stop(self) {
        self.servers.into_iter().for_each(Server::stop);
    }
}

/// Whether a snapshot, or another file, has these bytes in it.
fn has(folder: &Folder, file: &str, part: &str) -> bool {
    let text = fs::read(folder.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

#[test]
fn each_finds_its_commands_by_its_own_names() {
    let mut two = Two::start(
        "names",
        [
            &["--rename-command", "GET", "fetch", "--rename-command", "FLUSHALL", ""],
            &["--rename-command", "SET", "put"],
        ],
    );
    let [one, other] = &mut two.clients;
    one.line("SET k 1").is_ok();
    other.line("PUT k 2").is_ok();
    for (client, known, unknown) in [(&mut *one, "FETCH", "GET"), (&mut *other, "GET", "FETCH")] {
        client
            .line(&format!("{unknown} k"))
            .is_error(&format!("ERR unknown command '{unknown}', with args beginning with: 'k' "));
        client.line(&format!("COMMAND GETKEYS {known} k")).is(Reply::Array(vec![Reply::from("k")]));
        client.line(&format!("COMMAND GETKEYS {unknown} k")).is_error("ERR Invalid command specified");
        client.line(&format!("COMMAND INFO {unknown}")).is(Reply::Array(vec![Reply::Null]));
        client.line(&format!("ACL DRYRUN default {known} k")).is_ok();
        client.line(&format!("EVAL \"return redis.call('{unknown}', KEYS[1])\" 1 k")).ignored();
        // The same name several times in one batch.
        client.send(format!("{known} k\r\n{known} k\r\n{unknown} k\r\n{known} k\r\n").as_bytes());
        let replies: Vec<_> = (0..4).map(|_| client.reply().reply()).collect();
        assert!(matches!(replies[2], Reply::Error(_)), "{replies:?}");
        assert!(replies[0] == replies[1] && replies[1] == replies[3], "{replies:?}");
    }
    one.line("FETCH k").is("1");
    other.line("GET k").is("2");
    one.line("EVAL \"return redis.call('fetch', KEYS[1])\" 1 k").is("1");
    other.line("EVAL \"return redis.call('get', KEYS[1])\" 1 k").is("2");
    let counts = [&mut *one, other].map(|client| client.line("COMMAND COUNT").integer());
    assert_eq!(counts[0] + 1, counts[1]);
    one.line("FLUSHALL").is_error("ERR unknown command 'FLUSHALL'");
    other.line("FLUSHALL").is_ok();
    one.line("DBSIZE").is(1);
    other.line("DBSIZE").is(0);
    two.stop();
}

#[test]
fn keys_counts_parameters_scripts_and_clients_stay_apart() {
    // On a busy machine any command may take as long as what is slow by default.
    let clock = ["--enable-clock-command", "yes", "--slowlog-log-slower-than", "3600000000"];
    let mut two = Two::start(
        "apart",
        [
            &[&clock[..], &["--databases", "4", "--hz", "20"]].concat(),
            &[&clock[..], &["--databases", "16", "--requirepass", ""]].concat(),
        ],
    );
    let [one, other] = &mut two.clients;
    // Keys, and the databases that they are in.
    one.line("SET k 1").is_ok();
    other.line("GET k").is_nil();
    one.line("SELECT 4").is_error("ERR DB index is out of range");
    other.line("SELECT 4").is_ok();
    other.line("SET deep 1").is_ok();
    one.line("SELECT 3").is_ok();
    one.line("DBSIZE").is(0);
    one.line("SELECT 0").is_ok();
    // What is counted.
    for _ in 0..3 {
        one.line("GET k").is("1");
    }
    assert_eq!((one.info("keyspace_hits"), one.info("keyspace_misses")), ("3".into(), "0".into()));
    assert_eq!((other.info("keyspace_hits"), other.info("keyspace_misses")), ("0".into(), "1".into()));
    let calls = |client: &mut Client, command: &str| {
        let text = client.line("INFO commandstats").text();
        let name = format!("cmdstat_{command}:calls=");
        let found = text.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next());
        found.map_or(0, |calls| calls.parse::<u64>().expect("a number"))
    };
    assert_eq!((calls(one, "get"), calls(other, "get")), (3, 1));
    assert_eq!((calls(one, "set"), calls(other, "set")), (1, 1));
    let processed = |client: &mut Client| client.info("total_commands_processed").parse::<u64>().unwrap();
    let before = (processed(one), processed(other));
    (0..5).for_each(|_| one.line("PING").is_simple("PONG"));
    assert_eq!(processed(one), before.0 + 6);
    assert_eq!(processed(other), before.1 + 1);
    one.line("NOSUCH").ignored();
    assert_eq!(
        (one.info("total_error_replies"), other.info("total_error_replies")),
        ("2".into(), "0".into())
    );
    // Time, and what it ends.
    other.line("SET short 1 PX 60000").is_ok();
    one.line("SET short 1 PX 60000").is_ok();
    one.line("CLOCK ADVANCE 60000").is_ok();
    one.line("EXISTS short").is(0);
    other.line("EXISTS short").is(1);
    assert_eq!((one.info("expired_keys"), other.info("expired_keys")), ("1".into(), "0".into()));
    // Parameters, and what they change.
    one.line("CONFIG SET slowlog-log-slower-than 0 timeout 77").is_ok();
    one.line("PING").is_simple("PONG");
    assert!(one.line("SLOWLOG LEN").integer() > 0);
    other.line("SLOWLOG LEN").is(0);
    let value = |client: &mut Client, name: &str| {
        let pair = client.line(&format!("CONFIG GET {name}")).items();
        pair.into_iter().nth(1).expect("a value")
    };
    for (name, of_one, of_other) in [("timeout", "77", "0"), ("hz", "20", "10"), ("databases", "4", "16")] {
        assert_eq!((value(one, name), value(other, name)), (of_one.into(), of_other.into()), "{name}");
    }
    one.line("CONFIG RESETSTAT").is_ok();
    assert_eq!((calls(one, "get"), calls(other, "get")), (0, 1));
    // Scripts and functions.
    let digest = one.line("SCRIPT LOAD \"return 1\"").text();
    one.line(&format!("SCRIPT EXISTS {digest}")).is(Reply::Array(vec![Reply::from(1)]));
    other.line(&format!("SCRIPT EXISTS {digest}")).is(Reply::Array(vec![Reply::from(0)]));
    for (client, number) in [(&mut *one, 1), (&mut *other, 2)] {
        let library = format!("#!lua name=l\nredis.register_function('f', function() return {number} end)");
        client.cmd(["FUNCTION", "LOAD", &library]).is("l");
    }
    one.line("FCALL f 0").is(1);
    other.line("FCALL f 0").is(2);
    // Users and clients.
    one.line("ACL SETUSER carol on nopass +@all").is_ok();
    other.line("ACL GETUSER carol").is_nil();
    let mut listener = client(&two.servers[0]);
    listener.line("SUBSCRIBE news").ignored();
    other.line("PUBLISH news x").is(0);
    one.line("PUBLISH news x").is(1);
    assert_eq!((one.info("connected_clients"), other.info("connected_clients")), ("2".into(), "1".into()));
    two.stop();
}

#[test]
fn each_keeps_its_files_in_its_own_directory() {
    let here = std::env::current_dir().unwrap();
    let mut two = Two::start(
        "files",
        [&["--appendonly", "yes"], &["--appendonly", "yes", "--dbfilename", "other.rdb"]],
    );
    for (client, key) in two.clients.iter_mut().zip(["key-of-one", "key-of-other"]) {
        client.line(&format!("SET {key} x")).is_ok();
        client.line("SAVE").is_ok();
        client.line("BGREWRITEAOF").ignored();
        wait_for_rewrite(client);
        client.line(&format!("SET {key} y")).is_ok();
    }
    let [one, other] = &two.folders;
    assert!(has(one, "dump.rdb", "key-of-one") && !has(one, "dump.rdb", "key-of-other"));
    assert!(has(other, "other.rdb", "key-of-other") && !has(other, "other.rdb", "key-of-one"));
    let [mut of_one, mut of_other] = [one.names(), other.names()];
    of_one.sort_unstable();
    of_other.sort_unstable();
    assert_eq!(of_one, ["appendonlydir", "dump.rdb"]);
    assert_eq!(of_other, ["appendonlydir", "other.rdb"]);
    assert_eq!(files(one), files(other), "both have been rewritten as often");
    let Two { host, folders, servers: [server, other_server], clients: [mut gone, mut client_of_other] } =
        two;
    // The other one goes on while the first one ends, and comes back with its data.
    server.stop();
    assert!(gone.is_closed());
    client_of_other.line("GET key-of-other").is("y");
    let server = start_on(&host, &folders[0], &["--appendonly", "yes"]);
    let mut client_of_one = client(&server);
    client_of_one.line("GET key-of-one").is("y");
    client_of_one.line("DBSIZE").is(1);
    // A client can end one of them, too.
    client_of_one.send(b"SHUTDOWN NOSAVE\r\n");
    server.wait();
    server.stop();
    assert!(client_of_one.is_closed());
    client_of_other.line("DBSIZE").is(1);
    other_server.stop();
    assert_eq!(std::env::current_dir().unwrap(), here);
}

#[test]
fn relative_paths_begin_in_the_directory_of_each() {
    let folders = ["one", "two"].map(|name| Folder::new(&format!("relative-{name}")));
    let options = ["--aclfile", "users.acl", "--unixsocket", "socket", "--enable-protected-configs", "yes"];
    let servers = folders.each_ref().map(|folder| {
        folder.write("users.acl", "");
        // Where there is a Unix socket, no port is none.
        let port = free_port().to_string();
        start(folder, &[&options[..], &["--port", &port]].concat())
    });
    for (number, server) in servers.iter().enumerate() {
        let mut client = client(server);
        client.line(&format!("ACL SETUSER user{number} on nopass")).is_ok();
        client.line("ACL SAVE").is_ok();
        client.line(&format!("SET key{number} x")).is_ok();
        fs::create_dir(folders[number].path().join("below")).unwrap();
        client.line("CONFIG SET dir below").is_ok();
        client.line("SAVE").is_ok();
        client.line("CONFIG SET dir nosuch").is_error(
            "ERR CONFIG SET failed (possibly related to argument 'dir') - No such file or directory",
        );
    }
    for (number, folder) in folders.iter().enumerate() {
        assert!(has(folder, "users.acl", &format!("user{number}")));
        assert!(!has(folder, "users.acl", &format!("user{}", 1 - number)));
        assert!(has(folder, "below/dump.rdb", &format!("key{number}")));
        assert!(folder.path().join("socket").exists());
    }
    servers.into_iter().for_each(Server::stop);
    assert!(folders.iter().all(|folder| !folder.path().join("socket").exists()));
}

#[test]
fn two_snapshots_in_one_directory_at_once_are_both_whole() {
    let folder = Folder::new("same-directory");
    let servers = ["one", "two"].map(|name| start(&folder, &["--dbfilename", &format!("{name}.rdb")]));
    let mut clients = servers.each_ref().map(client);
    for (number, client) in clients.iter_mut().enumerate() {
        client.line(&format!("SET key{number} x")).is_ok();
    }
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| client.send(b"SAVE\r\n"));
        clients.iter_mut().for_each(|client| client.reply().is_ok());
    }
    assert!(has(&folder, "one.rdb", "key0") && !has(&folder, "one.rdb", "key1"));
    assert!(has(&folder, "two.rdb", "key1") && !has(&folder, "two.rdb", "key0"));
    servers.into_iter().for_each(Server::stop);
}
