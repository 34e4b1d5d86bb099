//! Sandboxes: database numbers that are whole servers. What is done in one is noticed in no other, and a
//! client hops between them by SELECT.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::replies::{field, field_of, integer};
use support::server::{Server, wait_until};

use keyfast::internals::commands::all;

/// Everything that only tests may do is allowed.
const OPTIONS: &[&str] = &[
    "--sandboxes",
    "8",
    "--enable-clock-command",
    "yes",
    "--enable-fault-command",
    "yes",
    "--enable-debug-command",
    "yes",
];

const ELSEWHERE: &str = "ERR SELECT of a database of another sandbox is refused";

fn start() -> Server {
    Server::start_with(OPTIONS)
}

/// A client that has selected a database.
fn client_in(server: &Server, number: usize) -> Client {
    let mut client = server.client3();
    client.line(&format!("SELECT {number}")).is_ok();
    client
}

#[test]
fn each_number_has_data_channels_and_clients_of_its_own() {
    let server = start();
    let (mut one, mut other) = (client_in(&server, 1), client_in(&server, 2));
    one.line("SETNX lock a").is(1);
    other.line("SETNX lock b").is(1);
    other.line("FLUSHALL").is_ok();
    one.line("GET lock").is("a");
    other.line("DBSIZE").is(0);
    one.line("SUBSCRIBE news").ignored();
    other.line("PUBLISH news x").is(0);
    client_in(&server, 1).line("PUBLISH news x").is(1);
    let push = Reply::Push(vec!["message".into(), "news".into(), "x".into()]);
    one.reply().is(push);
    other.line("CLIENT KILL TYPE pubsub").is(0);
    other.line("CLIENT KILL TYPE normal").is(0);
    assert_eq!(other.line("CLIENT LIST").text().lines().count(), 1);
    one.line("PING").ignored();
    let ids = [&mut one, &mut other].map(|client| client.line("CLIENT ID").integer());
    assert_ne!(ids[0], ids[1]);
    let id = other.line("CLIENT ID").integer();
    other.line("SELECT 5").is_ok();
    other.line("CLIENT ID").is(id);
}

#[test]
fn databases_have_their_numbers_wherever_they_are_named() {
    let server = Server::start_with(&["--sandboxes", "4", "--sandbox-databases", "4"]);
    let (mut client, mut listener, mut monitor) =
        (client_in(&server, 9), client_in(&server, 8), client_in(&server, 8));
    client.line("CONFIG GET databases").is(Reply::Map(vec![("databases".into(), "16".into())]));
    client.line("CONFIG SET notify-keyspace-events KEA").is_ok();
    listener.line("PSUBSCRIBE __key*").ignored();
    listener.line("PSUBSCRIBE __lock@*").ignored();
    monitor.line("MONITOR").is_ok();
    client.line("SET k v").is_ok();
    for (channel, message) in [("__keyspace@9__:k", "set"), ("__keyevent@9__:set", "k")] {
        let push = ["pmessage", "__key*", channel, message].map(Reply::from);
        listener.reply().is(Reply::Push(push.to_vec()));
    }
    let seen = monitor.reply().text();
    assert!(seen.contains(" [9 ") && seen.ends_with("\"SET\" \"k\" \"v\""), "{seen}");
    assert!(client.line("CLIENT LIST").text().contains(" db=9 "));
    assert!(client.line("INFO keyspace").text().contains("db9:keys=1,"));
    client_in(&server, 9).line("LOCK ACQUIRE l a PX 60000 NOTIFY").integer();
    client.line("DEL l").is(1);
    wait_until("the lock's channel has its number", || {
        listener.reply().reply().to_string().contains("__lock@9__:l")
    });
    client.line("MOVE k 10").is(1);
    client.line("SELECT 10").is_ok();
    client.line("COPY k copy DB 11").is(1);
    client.line("SWAPDB 8 10").is_ok();
    client.line("SELECT 8").is_ok();
    client.line("GET k").is("v");
    for line in
        ["MOVE k 0", "MOVE k 12", "COPY k l DB 7", "SWAPDB 8 7", "SWAPDB 12 8", "SELECT 16", "SELECT -1"]
    {
        client.line(line).is_error("ERR DB index is out of range");
    }
    client.line("CLIENT LIST DB 7").is_error("ERR DB number should be between 8 and 11");
}

#[test]
fn what_a_client_would_leave_behind_keeps_it_there() {
    let server = start();
    let mut client = client_in(&server, 1);
    for (before, after, why) in [
        ("WATCH k", "UNWATCH", "while the client watches keys"),
        ("SUBSCRIBE c", "UNSUBSCRIBE c", "while the client listens to channels"),
        ("CLIENT TRACKING ON", "CLIENT TRACKING OFF", "while the client tracks keys"),
        ("LOCK ACQUIRE l a PX 5000 BOUND", "LOCK RELEASE l a", "while locks are bound to the connection"),
    ] {
        client.line(before).ignored();
        client.line("SELECT 2").is_error(&format!("{ELSEWHERE} {why}"));
        client.line("SELECT 1").is_ok();
        client.line(after).ignored();
        client.line("SELECT 2").is_ok();
        client.line("SELECT 1").is_ok();
    }
    let refused = format!("{ELSEWHERE} in a transaction or a script");
    client.line("MULTI").is_ok();
    client.line("SELECT 2").is_simple("QUEUED");
    client.line("SELECT 1").is_simple("QUEUED");
    client.line("SET k v").is_simple("QUEUED");
    let replies = client.line("EXEC").items();
    assert_eq!(replies[0], Reply::Error(refused.clone()));
    assert_eq!(replies[1..], ["OK", "OK"].map(|text| Reply::Simple(text.into())));
    let script = client.cmd(["EVAL", "return redis.pcall('SELECT', '2')", "0"]).reply();
    assert_eq!(script, Reply::Error(refused));
    client.line("GET k").is("v");
}

/// What a client sees of its sandbox, without what grows by itself: ages, and what is left of expiries.
fn seen_in(client: &mut Client) -> Vec<String> {
    let mut seen = Vec::new();
    for line in [
        "KEYS *",
        "PUBSUB CHANNELS *",
        "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
        "FUNCTION LIST",
        "SLOWLOG LEN",
        "LATENCY LATEST",
        "LOCKS LOG",
        "LOCKS STATS",
        "FAULT LIST",
        "ACL LOG",
        "INFO errorstats",
        "MEMORY USAGE mykey",
        "LASTSAVE",
    ] {
        seen.push(client.line(line).reply().to_string());
    }
    let offset = field(&client.line("CLOCK INFO").reply(), "offset-ms");
    let locks = client.line("LOCKS LIST").items().iter().map(|lock| field(lock, "key")).collect();
    let clients = client.line("CLIENT LIST").text();
    let ids = clients.lines().map(|line| field_of(line, "id").as_str().into()).collect();
    seen.extend([offset, Reply::Array(locks), Reply::Array(ids)].map(|it| it.to_string()));
    let counted = client.line("INFO commandstats").text();
    let names: Vec<&str> = counted.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    seen.push(names.join(" "));
    seen
}

/// Requests made of the table: what each command's example does in one number, no client in another one sees.
#[test]
fn no_command_is_noticed_in_another_number() {
    let server = start();
    let mut observer = client_in(&server, 2);
    let mut sheltered = client_in(&server, 2);
    sheltered.line("SET mykey sheltered").is_ok();
    sheltered.line("LOCK ACQUIRE lock token PX 600000").integer();
    let is_ours = |name: &str| !matches!(name, "shutdown" | "monitor" | "sync" | "psync" | "quit" | "debug");
    seen_in(&mut observer);
    let mut examples = 0;
    for command in all().flat_map(|command| std::iter::once(command).chain(command.subcommands)) {
        if !is_ours(command.name) || command.name.starts_with("sandbox") || command.example.is_empty() {
            continue;
        }
        let mut actor = client_in(&server, 1);
        let before = seen_in(&mut observer);
        for (line, _) in command.example {
            if line.starts_with("MULTI") || actor.try_line(line).is_err() {
                break;
            }
            examples += 1;
        }
        let after = seen_in(&mut observer);
        assert_eq!(before, after, "{}", command.name);
        drop(actor);
    }
    assert!(examples > 400, "{examples}");
    sheltered.line("GET mykey").is("sheltered");
    sheltered.line("LOCK FENCE lock token").integer();
}

#[test]
fn settings_of_the_data_are_a_sandboxs_and_all_others_the_servers() {
    let server = start();
    let (mut one, mut other) = (client_in(&server, 1), client_in(&server, 2));
    let set = |client: &mut Client, setting: &str| client.line(&format!("CONFIG SET {setting}")).is_ok();
    let get = |client: &mut Client, name: &str| {
        field(&client.line(&format!("CONFIG GET {name}")).reply(), name).to_string()
    };
    set(&mut one, "hash-max-listpack-entries 3 timeout 500 slowlog-max-len 7");
    for (name, own, elsewhere) in [
        ("hash-max-listpack-entries", "3", "512"),
        ("slowlog-max-len", "7", "128"),
        ("timeout", "500", "500"),
    ] {
        let (mut first, mut new) = (server.client3(), client_in(&server, 3));
        assert!(get(&mut one, name).contains(own), "{name}");
        for client in [&mut other, &mut first, &mut new] {
            assert!(get(client, name).contains(elsewhere), "{name}");
        }
    }
    one.line("HSET h a 1 b 2 c 3 d 4").is(4);
    other.line("HSET h a 1 b 2 c 3 d 4").is(4);
    one.line("OBJECT ENCODING h").is("hashtable");
    other.line("OBJECT ENCODING h").is("listpack");
    one.line("ACL SETUSER alice on >secret ~* +@all").is_ok();
    other.line("AUTH alice secret").is_ok();
    other.line("AUTH alice wrong").is_error("WRONGPASS invalid username-password pair or user is disabled.");
    assert_eq!(other.line("ACL LOG").items().len(), 0);
    assert_eq!(server.client().line("ACL LOG").items().len(), 1);
}

#[test]
fn commands_of_the_server_work_from_each_number() {
    let folder = Folder::new("sandboxes_save");
    let place = folder.file("");
    let options = [OPTIONS, &["--dir", &place, "--appendonly", "yes"]].concat();
    let mut server = Server::start_with(&options);
    let (mut first, mut other) = (server.client(), client_in(&server, 3));
    first.line("SET here 1").is_ok();
    other.line("SET there 1").is_ok();
    other.line("SAVE").is_ok();
    other.line("MULTI").is_ok();
    other.line("BGSAVE").is_simple("QUEUED");
    let refused =
        "ERR In a transaction this command runs in database 0 only: it needs the data of the server";
    assert_eq!(other.line("EXEC").items(), [Reply::Error(refused.into())]);
    other.send(&request(["SHUTDOWN"]));
    assert!(other.is_closed());
    assert!(server.wait_for_end().success());
    let server = Server::start_with(&options);
    server.client().line("GET here").is("1");
    client_in(&server, 3).line("DBSIZE").is(0);
}

#[test]
fn a_client_that_is_reset_is_in_the_first_number_again() {
    let server = start();
    let mut client = client_in(&server, 3);
    client.line("SET k v").is_ok();
    client.line("WATCH k").is_ok();
    client.line("SUBSCRIBE c").ignored();
    client.send(&[request(["RESET"]), request(["GET", "k"]), request(["CLIENT", "LIST"])].concat());
    client.reply().is_simple("RESET");
    client.reply().is_nil();
    assert!(client.reply().text().contains(" db=0 "));
}

#[test]
fn files_are_the_servers() {
    let server = start();
    let mut client = client_in(&server, 1);
    client.line("SET k v").is_ok();
    for line in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        client
            .line(line)
            .is_error("ERR A sandbox lives in memory only: database 0 has the files of the server");
    }
    client.line("GET k").is("v");
}

#[test]
fn users_that_are_removed_leave_every_number() {
    let server = start();
    let mut admin = client_in(&server, 2);
    admin.line("ACL SETUSER alice on nopass ~* +@all &*").is_ok();
    let (mut client, mut listener) = (client_in(&server, 1), client_in(&server, 1));
    for client in [&mut client, &mut listener] {
        client.line("AUTH alice x").is_ok();
    }
    listener.line("SUBSCRIBE news").ignored();
    admin.line("ACL SETUSER alice resetchannels").is_ok();
    assert!(listener.is_closed());
    client.line("PING").is_simple("PONG");
    admin.line("ACL DELUSER alice").is(1);
    assert!(client.is_closed());
}

#[test]
fn a_number_is_given_back_when_nothing_is_left_of_its_clients() {
    let server = start();
    let mut observer = server.client3();
    let numbers = |observer: &mut Client| {
        let listed = observer.line("SANDBOX LIST").items();
        listed.iter().map(|it| integer(it, "database").to_string()).collect::<Vec<_>>().join(" ")
    };
    let mut walker = server.client();
    for number in (0..8).chain([0]) {
        walker.line(&format!("SELECT {number}")).is_ok();
        walker.line("KEYS *").is(Reply::Array(Vec::new()));
    }
    assert_eq!(numbers(&mut observer), "0");
    for (line, undo) in [
        ("SET k v", "DEL k"),
        ("SCRIPT LOAD return(1)", "SCRIPT FLUSH"),
        ("CLOCK ADVANCE 1000", "CLOCK RESUME"),
        ("FAULT ADD ON get CLOSE", "FAULT CLEAR"),
        ("CONFIG SET slowlog-max-len 5", "SANDBOX RESET"),
    ] {
        walker.line("SELECT 4").is_ok();
        walker.line(line).ignored();
        walker.line("SELECT 0").is_ok();
        assert_eq!(numbers(&mut observer), "0 4", "{line}");
        walker.line("SELECT 4").is_ok();
        walker.line(undo).ignored();
        walker.line("SELECT 0").is_ok();
        assert_eq!(numbers(&mut observer), "0", "{undo}");
    }
}

#[test]
fn a_leased_number_is_nobody_elses_until_its_time_is_over() {
    let server = Server::start_with(&["--sandboxes", "8"]);
    let (mut one, mut other, mut observer) = (server.client(), server.client(), server.client3());
    let lease = |client: &mut Client| client.line("SANDBOX LEASE TTL 300").integer();
    let mut numbers = [lease(&mut one), lease(&mut other), lease(&mut one), lease(&mut other)];
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 5, 6, 7]);
    one.line("SANDBOX LEASE").is_error("ERR All sandboxes of the upper half of the numbers are taken");
    let mut worker = client_in(&server, 6);
    worker.line("SET k v").is_ok();
    drop((one, other));
    let left = |observer: &mut Client| observer.line("SANDBOX LIST").items().len();
    wait_until("those that no client has entered are free", || left(&mut observer) == 2);
    worker.line("GET k").is("v");
    assert_eq!(field(&observer.line("SANDBOX INFO 6").reply(), "keys"), Reply::Integer(1));
    drop(worker);
    wait_until("so is the last one, with all that was in it", || left(&mut observer) == 1);
    client_in(&server, 6).line("DBSIZE").is(0);
    for (line, error) in [
        ("SANDBOX LEASE TTL", "ERR syntax error"),
        ("SANDBOX LEASE TTL 0", "ERR TTL should be between 1 and 86400000"),
        ("SANDBOX LEASE TTL x", "ERR value is not an integer or out of range"),
        ("SANDBOX INFO 8", "ERR DB index is out of range"),
        ("SANDBOX DROP 0", "ERR The first sandbox is the server itself: SANDBOX RESET 0 empties it"),
    ] {
        observer.line(line).is_error(error);
    }
    // A number that a client has entered without a lease is leased to no other.
    let _guest = client_in(&server, 5);
    let leased: Vec<i64> = (0..3).map(|_| lease(&mut observer)).collect();
    assert!(!leased.contains(&5), "{leased:?}");
}

#[test]
fn two_runs_at_once_get_different_numbers_even_after_kills() {
    let server = Server::start_with(&["--sandboxes", "64"]);
    let runs: Vec<_> = (0..8)
        .map(|run| {
            let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
            let address = server.address();
            thread::spawn(move || {
                for client in &mut clients {
                    let number = client.line("SANDBOX LEASE TTL 60000").integer();
                    let mut worker = Client::connect(address);
                    worker.line(&format!("SELECT {number}")).is_ok();
                    worker.line(&format!("SETNX whose {run}")).is(1);
                    // It ends without a word.
                }
            })
        })
        .collect();
    runs.into_iter().for_each(|run| run.join().unwrap());
}

#[test]
fn a_reset_makes_a_number_as_it_was_and_keeps_its_clients() {
    for options in [OPTIONS, &OPTIONS[2..]] {
        let server = Server::start_with(options);
        let number = if options.len() == OPTIONS.len() { 3 } else { 0 };
        let mut clients: Vec<Client> = (0..4).map(|_| client_in(&server, number)).collect();
        let [client, watcher, tracker, waiter] = &mut clients[..] else { panic!("four") };
        for line in [
            "SET k v",
            "CLOCK ADVANCE 100000",
            "CONFIG SET hash-max-listpack-entries 7 slowlog-log-slower-than 0",
            "SCRIPT LOAD return(1)",
            "LOCK ACQUIRE l a PX 60000",
            "FAULT ADD ON incr ERROR OOM",
        ] {
            client.line(line).ignored();
        }
        client
            .cmd(["FUNCTION", "LOAD", "#!lua name=f\nredis.register_function('f', function() return 1 end)"])
            .is("f");
        watcher.line("WATCH k").is_ok();
        watcher.line("MULTI").is_ok();
        watcher.line("PING").is_simple("QUEUED");
        tracker.line("CLIENT TRACKING ON").is_ok();
        tracker.line("GET k").is("v");
        waiter.send_and_wait(client, "BLPOP list 0");
        client.line("SANDBOX RESET").is_ok();
        client.line("DBSIZE").is(0);
        assert_eq!(field(&client.line("CLOCK INFO").reply(), "offset-ms"), Reply::Integer(0));
        assert_eq!(client.line("FUNCTION LIST").items().len(), 0);
        assert_eq!(client.line("FAULT LIST").items().len(), 0);
        assert_eq!(client.line("LOCKS LIST").items().len(), 0);
        client.line("SLOWLOG LEN").is(0);
        let setting = client.line("CONFIG GET hash-max-listpack-entries").reply();
        assert_eq!(field(&setting, "hash-max-listpack-entries"), "512".into());
        watcher.line("EXEC").is_nil();
        tracker.reply().is(Reply::Push(vec!["invalidate".into(), Reply::Null]));
        client.line("RPUSH list x").is(1);
        waiter.reply().is(Reply::Array(vec!["list".into(), "x".into()]));
    }
}

#[test]
fn a_dropped_number_ends_with_its_clients() {
    let server = start();
    let (mut guest, mut admin) = (client_in(&server, 4), server.client());
    guest.line("SET k v").is_ok();
    assert_eq!(admin.line("SANDBOX CLIENTS").text().lines().count(), 2);
    guest.line("SANDBOX DROP 4").is_error("ERR The client is in this sandbox itself");
    admin.line("SANDBOX DROP 4").is(1);
    admin.line("SANDBOX DROP 4").is(0);
    assert!(guest.is_closed());
    client_in(&server, 4).line("DBSIZE").is(0);
    admin.line("PING").is_simple("PONG");
}

/// Clients hop for each command, as pools that share connections do.
#[test]
fn clients_that_hop_get_only_what_is_where_they_are() {
    let server = Server::start_with(&["--sandboxes", "16"]);
    let until = Instant::now() + Duration::from_secs(2);
    let hoppers: Vec<_> = (0..8_u64)
        .map(|hopper| {
            let mut client = server.client();
            thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(hopper);
                let mut counts: BTreeMap<u64, i64> = BTreeMap::new();
                while Instant::now() < until {
                    let numbers: Vec<u64> = (0..random.usize(1..40)).map(|_| random.u64(0..16)).collect();
                    let lines = numbers.iter().flat_map(|number| {
                        [
                            request(["SELECT", &number.to_string()]),
                            request(["SET", "number", &number.to_string()]),
                            request(["INCR", &format!("count:{hopper}")]),
                            request(["GET", "number"]),
                        ]
                    });
                    client.send(&lines.collect::<Vec<_>>().concat());
                    for number in numbers {
                        client.reply().is_ok();
                        client.reply().is_ok();
                        let count = counts.entry(number).or_default();
                        *count += 1;
                        client.reply().is(*count);
                        client.reply().is(number.to_string().as_str());
                    }
                }
                client.line("SELECT 0").is_ok();
            })
        })
        .collect();
    hoppers.into_iter().for_each(|hopper| hopper.join().unwrap());
    // Everywhere the accounts are right again.
    let mut admin = server.client();
    wait_until("all have gone", || admin.info("connected_clients") == "1");
    for number in 0..16 {
        admin.line(&format!("SELECT {number}")).is_ok();
        assert_eq!(admin.info("connected_clients"), "1", "{number}");
        assert_eq!(admin.line("CLIENT LIST").text().lines().count(), 1, "{number}");
    }
}

#[test]
fn sandboxes_are_refused_where_they_cannot_be() {
    for (options, why) in [
        (&["--sandboxes", "2", "--store", "etcd://127.0.0.1:1"][..], "sandboxes live in memory only"),
        (&["--sandboxes", "16384", "--sandbox-databases", "2"], "16384 databases at most, and not 32768"),
    ] {
        let output = std::process::Command::new(support::server::program())
            .args(options)
            .args(["--port", "0"])
            .output();
        let output = output.unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        assert!(!output.status.success() && printed.contains(why), "{printed}");
    }
    let mut plain = Server::start().into_client();
    plain
        .line("SANDBOX LEASE")
        .is_error("ERR This server has no sandboxes: it was started without --sandboxes");
    plain.line("SET k v").is_ok();
    plain.line("SANDBOX RESET").is_ok();
    plain.line("DBSIZE").is(0);
}
