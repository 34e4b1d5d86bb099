//! LOCK: the number that comes with the grant, the line of clients that wait, and what keeps a number.

use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::ALWAYS;
use support::open_files::ask_for;
use support::replies::{array, integer, text};
use support::server::{Server, wait_until};

/// Takes a free lock for a minute, and returns the number.
#[track_caller]
fn acquire(client: &mut Client, key: &str, token: &str) -> i64 {
    client.cmd(["LOCK", "ACQUIRE", key, token, "PX", "60000"]).integer()
}

/// Clients that wait for the lock `l` for a minute, each with its number as its token, in this order.
fn line(server: &Server, clients: usize) -> Vec<Client> {
    let mut waiting: Vec<Client> = (0..clients).map(|_| server.client()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        server.have_wait(client, &format!("LOCK ACQUIRE l {number} PX 60000 WAIT 60000"));
    }
    waiting
}

#[test]
fn the_number_comes_with_the_grant_and_only_the_token_that_holds_the_lock_has_it() {
    let server = Server::start();
    let (mut a, mut b) = (server.client(), server.client());
    let first = acquire(&mut a, "l", "a");
    for token in ["a", "b"] {
        b.cmd(["LOCK", "ACQUIRE", "l", token, "PX", "60000"]).is_nil();
    }
    a.line("LOCK FENCE l a").is(first);
    b.line("LOCK FENCE l b").is_nil();
    a.line("LOCK EXTEND l a PX 90000").is(first);
    b.line("LOCK EXTEND l b PX 90000").is_nil();
    assert!(a.line("PTTL l").integer() > 60_000);
    b.line("LOCK RELEASE l b").is(0);
    a.line("LOCK RELEASE l a").is(1);
    a.line("LOCK RELEASE l a").is(0);
    a.line("LOCK FENCE l a").is_nil();
    a.line("LOCK EXTEND l a PX 90000").is_nil();
    assert!(acquire(&mut b, "l", "a") > first, "though the token is the same");
}

/// A holder whose time is over asks for its number while another holds the lock. With LOCKS GET, which
/// compares no token, it gets that of the other.
#[test]
fn a_late_holder_does_not_get_the_number_of_the_next_one() {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let (mut a, mut b) = (server.client3(), server.client3());
    a.line("CLOCK FREEZE").is_ok();
    let late = a.line("LOCK ACQUIRE l a PX 100").integer();
    a.line("CLOCK ADVANCE 100").is_ok();
    let next = acquire(&mut b, "l", "b");
    assert!(next > late);
    a.line("LOCK FENCE l a").is_nil();
    a.line("LOCK EXTEND l a PX 100").is_nil();
    a.line("LOCK RELEASE l a").is(0);
    b.line("LOCK FENCE l b").is(next);
}

#[test]
fn a_user_without_dangerous_commands_gets_the_number() {
    let server = Server::start();
    let mut client = server.client();
    client.line("ACL SETUSER u on nopass ~l* +@all -@dangerous").is_ok();
    client.line("ACL SETUSER r on nopass ~l* +@read").is_ok();
    client.line("AUTH u p").is_ok();
    let number = acquire(&mut client, "l", "a");
    client.line("LOCK EXTEND l a PX 60000").is(number);
    client.line("LOCK ACQUIRE m a PX 1").is_error("NOPERM No permissions to access a key");
    client.line("AUTH r p").is_ok();
    client.line("LOCK FENCE l a").is(number);
    client
        .line("LOCK RELEASE l a")
        .is_error("NOPERM User r has no permissions to run the 'lock|release' command");
}

#[test]
fn the_number_is_exact_within_a_transaction_and_a_script() {
    let server = Server::start();
    let mut client = server.client();
    client.line("MULTI").is_ok();
    for line in
        ["LOCK ACQUIRE l a PX 60000", "LOCK FENCE l a", "LOCK RELEASE l a", "LOCK ACQUIRE l b PX 60000"]
    {
        client.line(line).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    let [Reply::Integer(first), shown, released, Reply::Integer(second)] = &replies[..] else {
        panic!("{replies:?}")
    };
    assert_eq!((shown, released), (&Reply::Integer(*first), &Reply::Integer(1)));
    assert!(second > first);
    client.line("LOCK FENCE l b").is(*second);
    let script = "local n = redis.call('LOCK', 'ACQUIRE', KEYS[1], ARGV[1], 'PX', 60000) \
                  redis.call('SET', KEYS[2], string.format('%d', n)) return n";
    let number = client.cmd(["EVAL", script, "2", "m", "n", "a"]).integer();
    assert!(number > *second);
    client.line("LOCK FENCE m a").is(number);
    client.line("GET n").is(number.to_string().as_str());
    // In neither does a client wait.
    client
        .cmd(["EVAL", "return redis.call('LOCK', 'ACQUIRE', 'l', 'c', 'PX', 9, 'WAIT', 0)", "1", "l"])
        .is_nil();
    client.line("MULTI").is_ok();
    client.line("LOCK ACQUIRE l c PX 60000 WAIT 0").is_simple("QUEUED");
    assert_eq!(client.line("EXEC").items(), [Reply::Null]);
}

/// The lens follows some thousand locks, and not all of them under load. It may also be off.
#[test]
fn each_of_many_locks_has_a_number_of_its_own_whatever_the_lens_sees() {
    for options in [&[][..], &["--lock-lens", "no"]] {
        let server = Server::start_with(options);
        let mut client = server.client();
        const LOCKS: usize = 6000;
        let requests: Vec<u8> = (0..LOCKS)
            .flat_map(|number| request(["LOCK", "ACQUIRE", &format!("l{number}"), "a", "PX", "600000"]))
            .collect();
        thread::scope(|scope| {
            let mut sender = client.stream().try_clone().unwrap();
            scope.spawn(move || std::io::Write::write_all(&mut sender, &requests).unwrap());
            let mut last = 0;
            for _ in 0..LOCKS {
                let number = client.reply().integer();
                assert!(number > last);
                last = number;
            }
        });
        let mut numbers: Vec<i64> = (0..LOCKS)
            .map(|number| client.cmd(["LOCK", "FENCE", &format!("l{number}"), "a"]).integer())
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), LOCKS);
    }
}

#[test]
fn the_key_is_an_ordinary_string_with_an_expiry() {
    let server = Server::start();
    let mut client = server.client();
    acquire(&mut client, "l", "a");
    client.line("SETNX l b").is(0);
    client.line("SET l b NX PX 9").is_nil();
    client.line("GET l").is("a");
    client.line("STRLEN l").is(1);
    client.line("TYPE l").is_simple("string");
    client.line("OBJECT ENCODING l").is("embstr");
    assert!((59_000..=60_000).contains(&client.line("PTTL l").integer()));
    client.line("GETRANGE l 0 -1").is("a");
    client.line("MGET l l").is(Reply::Array(vec!["a".into(), "a".into()]));
    let release =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    client.cmd(["EVAL", release, "1", "l", "b"]).is(0);
    client.cmd(["EVAL", release, "1", "l", "a"]).is(1);
    acquire(&mut client, "l", "17");
    client.line("OBJECT ENCODING l").is("int");
    client.line("DELIFEQ l 17").is(1);
    acquire(&mut client, "l", "a");
    client.line("DEL l").is(1);
    for taken in ["SETNX l b", "SADD l b"] {
        client.line(taken).is(1);
        client.line("LOCK ACQUIRE l a PX 1").is_nil();
        client.line("UNLINK l").is(1);
    }
    client.line("SADD l b").is(1);
    for line in ["LOCK EXTEND l a PX 1", "LOCK FENCE l a", "LOCK RELEASE l a"] {
        client.line(line).is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
}

#[test]
fn a_number_goes_when_the_token_is_written_and_a_lock_without_one_gets_one() {
    let server = Server::start();
    let mut client = server.client();
    for (line, token) in [
        ("SET l a", "a"),
        ("SET l a XX KEEPTTL", "a"),
        ("SET l a XX PX 60000", "a"),
        ("SET l a IFEQ a", "a"),
        ("GETSET l a", "a"),
        ("SETEX l 60 a", "a"),
        ("MSET l b", "b"),
        ("APPEND l b", "ab"),
        ("SETRANGE l 0 b", "b"),
        ("SETBIT l 7 0", "`"),
        ("SETRANGE l 300000 b", ""),
    ] {
        acquire(&mut client, "l", "a");
        client.line(line).ignored();
        client.cmd(["LOCK", "FENCE", "l", token]).is_nil();
        if !token.is_empty() {
            client.line("GET l").is(token);
            let number = client.cmd(["LOCK", "EXTEND", "l", token, "PX", "60000"]).integer();
            client.cmd(["LOCK", "FENCE", "l", token]).is(number);
            client.line("GET l").is(token);
        }
        client.line("DEL l").is(1);
    }
    acquire(&mut client, "l", "1");
    client.line("INCR l").is(2);
    client.line("LOCK FENCE l 2").is_nil();
    client.line("DEL l").is(1);
    // Whatever changes only the expiry keeps it.
    let number = acquire(&mut client, "l", "a");
    for line in ["PEXPIRE l 70000", "PERSIST l", "GETEX l PX 80000", "EXPIRE l 100 GT", "TOUCH l"] {
        client.line(line).ignored();
        client.line("LOCK FENCE l a").is(number);
    }
}

#[test]
fn a_lock_that_comes_under_another_name_has_another_number() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = acquire(&mut client, "l", "a");
    let mut is_another = |client: &mut Client, key: &str| {
        let number = client.cmd(["LOCK", "FENCE", key, "a"]).integer();
        assert!(number > last, "{key}");
        last = number;
    };
    client.line("COPY l m").is(1);
    is_another(&mut client, "m");
    client.line("RENAME l n").is_ok();
    is_another(&mut client, "n");
    client.line("MOVE n 1").is(1);
    client.line("SELECT 1").is_ok();
    is_another(&mut client, "n");
    client.line("SELECT 0").is_ok();
    client.line("LOCK FENCE l a").is_nil();
    let Reply::Bulk(payload) = client.line("DUMP m").reply() else { panic!("no payload") };
    client.cmd([&b"RESTORE"[..], b"m", b"60000", &payload, b"REPLACE"]).is_ok();
    is_another(&mut client, "m");
    client.cmd([&b"RESTORE"[..], b"o", b"0", &payload]).is_ok();
    is_another(&mut client, "o");
    client.line("GET o").is("a");
    // SWAPDB changes whole databases, and no lock.
    client.line("SWAPDB 0 1").is_ok();
    client.line("SELECT 1").is_ok();
    client.line("LOCK FENCE o a").is(last);
}

/// A server that has given numbers which no clock has reached, as one whose clock was ahead.
pub(crate) fn server_ahead(folder: &Folder, ahead_us: i64) -> Server {
    let now_us = i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap();
    let log = format!("#KEYFAST-FENCING:{}\r\n*1\r\n$7\r\nFLUSHDB\r\n", now_us + ahead_us);
    folder.write("appendonly.aof", &log);
    Server::start_with(&[&["--dir", &folder.file("")], ALWAYS].concat())
}

/// What the lock protects knows the number of the holder. At the other server, whose numbers are smaller, the
/// same token and the next holder have to get larger ones.
#[test]
fn a_lock_that_moves_to_another_server_gets_a_larger_number() {
    const HOUR_US: i64 = 3_600_000_000;
    let folder = Folder::new("a_lock_that_moves_to_another_server_gets_a_larger_number");
    let (source, target) = (server_ahead(&folder, HOUR_US), Server::start());
    let (mut here, mut there) = (source.client(), target.client());
    let plain = acquire(&mut there, "l", "b");
    there.line("LOCK RELEASE l b").is(1);
    let mut last = acquire(&mut here, "l", "a");
    assert!(last > plain + HOUR_US / 2);
    let mut is_larger = |number: i64| {
        assert!(number > last, "{number} after {last}");
        last = number;
    };
    let Reply::Bulk(payload) = here.line("DUMP l").reply() else { panic!("no payload") };
    here.line(&format!("MIGRATE 127.0.0.1 {} l 0 5000", target.port())).is_ok();
    is_larger(there.line("LOCK FENCE l a").integer());
    there.line("LOCK EXTEND l a PX 60000").integer();
    there.line("LOCK RELEASE l a").is(1);
    is_larger(acquire(&mut there, "l", "b"));
    is_larger(acquire(&mut there, "other", "b"));
    // The same payload once more, at a third server.
    let mut third = Server::start().into_client();
    third.cmd([&b"RESTORE"[..], b"l", b"60000", &payload]).is_ok();
    third.cmd([&b"RESTORE"[..], b"m", b"60000", &payload]).is_ok();
    let (one, other) = (third.line("LOCK FENCE l a").integer(), third.line("LOCK FENCE m a").integer());
    assert!(one > plain + HOUR_US / 2 && other > one);
    // A lock without a number, and what is no lock.
    here.line("SET n a NX PX 60000").is_ok();
    here.line(&format!("MIGRATE 127.0.0.1 {} n 0 5000", target.port())).is_ok();
    there.line("LOCK FENCE n a").is_nil();
    is_larger(there.line("LOCK EXTEND n a PX 60000").integer());
}

/// What stands behind a value in a payload comes from a client.
#[test]
fn a_number_that_no_server_gives_is_no_payload() {
    let mut client = Server::start().into_client();
    let number = acquire(&mut client, "l", "a");
    let Reply::Bulk(payload) = client.line("DUMP l").reply() else { panic!("no payload") };
    let content = &payload[..payload.len() - 10];
    let value = content.strip_suffix(number.to_string().as_bytes()).expect("the number stands at its end");
    let signed = |behind: &str| {
        let mut payload = [value, behind.as_bytes(), &10_u16.to_le_bytes()].concat();
        payload.extend(keyfast::internals::dump::CHECKSUM.checksum(&payload).to_le_bytes());
        payload
    };
    for wrong in ["x", "-1", "1.5", "4503599627370496", "9223372036854775807", "18446744073709551616"] {
        client.cmd([&b"RESTORE"[..], b"m", b"0", &signed(wrong)]).is_error("ERR Bad data format");
    }
    // Version 1.0.0 has written none.
    for (before, behind) in [(number, ""), (number, "7"), (4_503_599_627_370_495, "4503599627370495")] {
        client.cmd([&b"RESTORE"[..], b"m", b"0", &signed(behind), b"REPLACE"]).is_ok();
        assert!(client.line("LOCK FENCE m a").integer() > before);
    }
    let after = acquire(&mut client, "n", "a");
    assert!(after < 1 << 53, "{after}");
}

/// Two servers that know nothing of each other: what is taken later has the larger number.
#[test]
fn numbers_follow_the_clock_of_the_system_and_never_go_back() {
    let (first, second) = (Server::start(), Server::start());
    let (mut one, mut other) = (first.client(), second.client());
    let mut last = 0;
    for round in 0..5 {
        for client in [&mut one, &mut other] {
            let number = acquire(client, &format!("l{round}"), "a");
            assert!(number > last, "{number} after {last}");
            last = number;
            wait_until("a millisecond is over", || {
                UNIX_EPOCH.elapsed().unwrap().as_micros() > last as u128 + 1000
            });
        }
    }
    // A client that turns the clock turns no numbers.
    let mut client = Server::start_with(&["--enable-clock-command", "yes"]).into_client();
    let mut last = acquire(&mut client, "l", "a");
    for line in ["CLOCK SET 1000", "CLOCK FREEZE", "CLOCK SET 253402300000000", "CLOCK RESUME"] {
        client.line(line).ignored();
        client.line("FLUSHALL").is_ok();
        let number = acquire(&mut client, "l", "a");
        let now_us = UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
        assert!(number > last && number < now_us + 1_000_000, "{line}: {number} after {last}");
        last = number;
    }
}

/// Any string is equal to its own value. One that neither expires nor was taken as a lock is data.
#[test]
fn a_string_that_is_no_lock_is_not_extended() {
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    client.line("LOCK EXTEND k v PX 60000").is_nil();
    client.line("PTTL k").is(-1);
    client.line("APPEND k w").is(2);
    client.line("LOCK EXTEND k vw PX 60000").is_nil();
    for (line, what) in
        [("SETNX l a", "SETNX"), ("SET l a NX", "NX"), ("SET l a PX 60000", "it expires"), ("GETSET l a", "")]
    {
        client.line("DEL l").ignored();
        client.line(line).ignored();
        match what {
            "" => client.line("LOCK EXTEND l a PX 60000").is_nil(),
            what => assert!(client.line("LOCK EXTEND l a PX 90000").integer() > 0, "{what}"),
        }
    }
}

/// The number is part of the data, and a later one is larger, however the server came to its end.
#[test]
fn numbers_come_back_and_grow_over_every_restart() {
    let folder = Folder::new("numbers_come_back_and_grow_over_every_restart");
    let directory = folder.file("");
    let log = [&["--dir", &directory, "--enable-debug-command", "yes"], ALWAYS].concat();
    let plain = [&log[..], &["--aof-use-rdb-preamble", "no"]].concat();
    let snapshot = ["--dir", &directory, "--dbfilename", "d.rdb"];
    let mut held: Vec<(String, i64)> = Vec::new();
    let mut last = 0;
    let rounds: [(&[&str], &[&str]); 6] = [
        (&log, &[]),
        (&log, &["BGREWRITEAOF"]),
        (&plain, &["BGREWRITEAOF"]),
        (&plain, &["DEBUG RELOAD"]),
        (&snapshot, &["SAVE"]),
        (&snapshot, &[]),
    ];
    for (round, (options, lines)) in rounds.into_iter().enumerate() {
        let server = Server::start_with(options);
        let mut client = server.client();
        if round == 4 {
            // This server does not read the log.
            held.clear();
        }
        for (key, number) in &held {
            client.cmd(["LOCK", "FENCE", key, "a"]).is(*number);
        }
        client.line("MULTI").is_ok();
        client.cmd(["LOCK", "ACQUIRE", &format!("m{round}"), "a", "PX", "600000"]).is_simple("QUEUED");
        client.line("SET beside v").is_simple("QUEUED");
        client.cmd(["LOCK", "ACQUIRE", &format!("n{round}"), "a", "PX", "600000"]).is_simple("QUEUED");
        let replies = client.line("EXEC").items();
        let numbers = [&replies[0], &replies[2]].map(|reply| match reply {
            Reply::Integer(number) => *number,
            other => panic!("{other}"),
        });
        assert!(numbers[0] > last && numbers[1] > numbers[0], "round {round}");
        held.push((format!("m{round}"), numbers[0]));
        held.push((format!("n{round}"), numbers[1]));
        // A lock that was released, and one whose expiry has changed.
        acquire(&mut client, "gone", "a");
        client.line("LOCK RELEASE gone a").is(1);
        let key = format!("l{round}");
        last = acquire(&mut client, &key, "a");
        client.cmd(["LOCK", "EXTEND", &key, "a", "PX", "600000"]).is(last);
        held.push((key, last));
        for line in lines {
            let reply = client.line(line).reply().to_string();
            assert!(!reply.contains("ERR"), "{line}: {reply}");
            wait_until("the rewrite ends", || client.info("aof_rewrite_in_progress") == "0");
        }
        for (key, number) in &held {
            client.cmd(["LOCK", "FENCE", key, "a"]).is(*number);
        }
        if round == 4 {
            acquire(&mut client, "not saved", "a");
        }
        drop(server);
    }
    // With neither a log nor a snapshot, by the clock.
    let server = Server::start();
    assert!(acquire(&mut server.client(), "l", "a") > last);
}

/// A clock that was set back is not to be believed where the data know better.
#[test]
fn numbers_grow_though_the_clock_was_set_back() {
    let folder = Folder::new("numbers_grow_though_the_clock_was_set_back");
    let directory = folder.file("");
    let options = [&["--dir", &directory], ALWAYS].concat();
    let server = Server::start_with(&options);
    let mut client = server.client();
    let mut last = acquire(&mut client, "l", "a");
    drop(server);
    // As if an earlier run had lived in another century.
    let far = last * 2;
    let part = folder.names();
    assert!(part.iter().any(|name| name == "appendonlydir"), "{part:?}");
    let log = std::fs::read_dir(folder.path().join("appendonlydir")).unwrap();
    let log = log.map(|file| file.unwrap().path()).find(|path| path.to_string_lossy().contains(".incr."));
    let log = log.expect("a log");
    let text = String::from_utf8(std::fs::read(&log).unwrap()).unwrap();
    let note = format!("#KEYFAST-LOCK:{last}\r\n");
    assert!(text.contains(&note), "{text}");
    std::fs::write(&log, text.replace(&note, &format!("#KEYFAST-LOCK:{far}\r\n"))).unwrap();
    for round in 0..2 {
        let server = Server::start_with(&options);
        let mut client = server.client();
        client.line("LOCK FENCE l a").is(far);
        let number = acquire(&mut client, &format!("m{round}"), "a");
        assert!(number > far && number > last);
        last = number;
        if round == 0 {
            client.line("BGREWRITEAOF").ignored();
            wait_until("the rewrite ends", || client.info("aof_rewrite_in_progress") == "0");
        }
    }
}

#[test]
fn clients_in_line_are_granted_the_lock_in_the_order_in_which_they_came() {
    let server = Server::start();
    let mut holder = server.client();
    let mut last = acquire(&mut holder, "l", "holder");
    let mut waiting = line(&server, 5);
    holder.line("LOCK RELEASE l holder").is(1);
    for (number, client) in waiting.iter_mut().enumerate() {
        let granted = client.reply().integer();
        assert!(granted > last);
        last = granted;
        holder.line("GET l").is(number.to_string().as_str());
        holder.cmd(["LOCK", "FENCE", "l", &number.to_string()]).is(granted);
        // No other client waits any more.
        holder.cmd(["LOCK", "RELEASE", "l", &number.to_string()]).is(1);
    }
    holder.line("EXISTS l").is(0);
}

#[test]
fn whatever_frees_a_lock_grants_it_to_the_next_in_line() {
    let script = "EVAL redis.call('DEL',KEYS[1]) 1 l";
    let ways: [&[&str]; 17] = [
        &["LOCK RELEASE l holder"],
        &["DEL l"],
        &["UNLINK l"],
        &["GETDEL l"],
        &["DELIFEQ l holder"],
        &["DELEX l IFEQ holder"],
        &[script],
        &["PEXPIREAT l 1"],
        &["SET l other PXAT 1"],
        &["RENAME l m"],
        &["MOVE l 1"],
        &["FLUSHDB"],
        &["FLUSHALL ASYNC"],
        &["SWAPDB 0 1"],
        &["MULTI", "DEL l", "SET other v", "EXEC"],
        &["SINTERSTORE l none"],
        &["PEXPIRE l 30"],
    ];
    for way in ways {
        let server = Server::start();
        let mut holder = server.client();
        let first = acquire(&mut holder, "l", "holder");
        let mut waiting = line(&server, 2);
        for line in way {
            match line.strip_prefix("EVAL ") {
                Some(rest) => {
                    let (script, rest) = rest.split_once(' ').unwrap();
                    holder.cmd(["EVAL", script].into_iter().chain(rest.split(' '))).ignored();
                }
                None => holder.line(line).ignored(),
            }
        }
        let granted = waiting[0].reply().integer();
        assert!(granted > first, "{way:?}");
        holder.line("GET l").is("0");
        holder.line("LOCK FENCE l 0").is(granted);
        assert!(waiting[1].is_silent_for(Duration::from_millis(1)), "{way:?}");
    }
}

#[test]
fn a_client_that_does_not_wait_does_not_come_before_those_that_do() {
    let server = Server::start();
    let (mut holder, mut other) = (server.client(), server.client());
    acquire(&mut holder, "l", "holder");
    let mut waiting = line(&server, 1);
    // All in one batch, so that nothing comes between.
    let lines = ["LOCK RELEASE l holder", "LOCK ACQUIRE l other PX 60000", "SETNX l other", "GET l"];
    other.send(&lines.iter().flat_map(|line| request(line.split(' '))).collect::<Vec<u8>>());
    other.reply().is(1);
    other.reply().is_nil();
    other.reply().is(0);
    other.reply().is("0");
    waiting[0].reply().integer();
    // Nor in a transaction that frees the lock itself: there it is the holder's still.
    let mut waiting = line(&server, 1);
    other.line("MULTI").is_ok();
    other.line("DEL l").is_simple("QUEUED");
    other.line("LOCK ACQUIRE l other PX 60000").is_simple("QUEUED");
    assert_eq!(other.line("EXEC").items(), [Reply::Integer(1), Reply::Null]);
    waiting[0].reply().integer();
    other.line("GET l").is("0");
}

#[test]
fn a_lock_that_expires_is_granted_to_the_first_in_line_and_never_early() {
    let server = Server::start();
    let mut holder = server.client();
    let number = acquire(&mut holder, "l", "holder");
    let mut waiting: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        server.have_wait(client, &format!("LOCK ACQUIRE l {number} PX 50 WAIT 60000"));
    }
    let (began, mut least) = (Instant::now(), Duration::from_millis(200));
    holder.line("LOCK EXTEND l holder PX 200").is(number);
    for (number, client) in waiting.iter_mut().enumerate() {
        client.reply().integer();
        assert!(began.elapsed() >= least, "{number}");
        least += Duration::from_millis(50);
    }
    // The expiry counts that the lock has in the end.
    for line in ["LOCK EXTEND m holder PX 30", "SET m holder PX 30", "GETEX m PX 30", "PEXPIRE m 30"] {
        holder.line("LOCK ACQUIRE m holder PX 60000").integer();
        server.have_wait(&mut waiting[0], "LOCK ACQUIRE m 0 PX 1 WAIT 60000");
        holder.line(line).ignored();
        waiting[0].reply().integer();
        wait_until("it has expired", || holder.line("EXISTS m").integer() == 0);
    }
}

#[test]
fn the_clock_of_tests_grants_locks_that_expire() {
    let server = Server::start_with(&["--enable-clock-command", "yes"]);
    let mut holder = server.client();
    holder.line("CLOCK FREEZE").is_ok();
    let first = acquire(&mut holder, "l", "holder");
    let mut waiting = line(&server, 2);
    holder.line("CLOCK ADVANCE 59999").is_ok();
    holder.line("LOCK FENCE l holder").is(first);
    holder.line("CLOCK ADVANCE 1").is_ok();
    assert!(waiting[0].reply().integer() > first);
    holder.line("GET l").is("0");
    holder.line("PTTL l").is(60_000);
    holder.line("CLOCK ADVANCE 60000").is_ok();
    waiting[1].reply().integer();
    holder.line("GET l").is("1");
}

#[test]
fn a_client_that_leaves_leaves_the_line() {
    let server = Server::start();
    let mut holder = server.client();
    acquire(&mut holder, "l", "holder");
    let mut waiting = line(&server, 5);
    // The first closes its connection, the second is unblocked, the third killed, the fourth has waited
    // enough.
    let blocked = |count: &str, holder: &mut Client| {
        wait_until("the clients wait", || holder.info("blocked_clients") == count)
    };
    drop(waiting.remove(0));
    blocked("4", &mut holder);
    let clients = holder.line("CLIENT LIST").text();
    let id = |client: &Client| {
        let address = format!(" addr={} ", client.local_address());
        let line = clients.lines().find(|line| line.contains(&address)).expect("the client");
        line.split(' ').next().unwrap().trim_start_matches("id=").to_owned()
    };
    holder.cmd(["CLIENT", "UNBLOCK", &id(&waiting[0])]).is(1);
    waiting[0].reply().is_nil();
    holder.cmd(["CLIENT", "KILL", "ID", &id(&waiting[1])]).is(1);
    blocked("2", &mut holder);
    let mut late = server.client();
    late.line("LOCK ACQUIRE l late PX 60000 WAIT 1").is_nil();
    holder.line("LOCK RELEASE l holder").is(1);
    waiting[2].reply().integer();
    holder.line("GET l").is("3");
    assert_eq!(holder.info("blocked_clients"), "1");
}

/// While the log is loaded again, keys are as they were once. Clients that wait see only what comes of it.
#[test]
fn clients_in_line_are_granted_nothing_while_the_log_is_loaded_again() {
    let folder = Folder::new("clients_in_line_are_granted_nothing_while_the_log_is_loaded_again");
    let directory = folder.file("");
    let server =
        Server::start_with(&[&["--dir", &directory, "--enable-debug-command", "yes"], ALWAYS].concat());
    let mut holder = server.client();
    acquire(&mut holder, "l", "first");
    holder.line("DEL l").is(1);
    let held = acquire(&mut holder, "l", "holder");
    holder.line("RPUSH list a").is(1);
    holder.line("LPOP list").is("a");
    let mut waiting = line(&server, 1);
    let mut popping = server.client();
    server.have_wait(&mut popping, "BLPOP list 60");
    holder.line("DEBUG LOADAOF").is_ok();
    holder.line("LOCK FENCE l holder").is(held);
    assert_eq!(holder.info("blocked_clients"), "2");
    holder.line("LOCK RELEASE l holder").is(1);
    assert!(waiting[0].reply().integer() > held);
    holder.line("RPUSH list b").is(1);
    assert_eq!(popping.reply().reply().to_string(), r#"["list", "b"]"#);
    holder.line("LOCK FENCE l 0").integer();
    // What was granted after that is in the log.
    holder.line("DEBUG LOADAOF").is_ok();
    holder.line("LOCK FENCE l 0").integer();
}

#[test]
fn a_release_with_a_thousand_in_line_wakes_one() {
    let Some(_files) = ask_for(1010) else { return };
    let server = Server::start();
    let mut holder = server.client();
    acquire(&mut holder, "l", "holder");
    let mut waiting: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&request(["LOCK", "ACQUIRE", "l", &number.to_string(), "PX", "60000", "WAIT", "0"]));
        wait_until("the clients wait", || holder.info("blocked_clients") == (number + 1).to_string());
    }
    // They wait, and were not refused.
    assert_eq!(holder.info("locks_refused"), "0");
    holder.line("LOCK RELEASE l holder").is(1);
    waiting[0].reply().integer();
    // A client that was woken in vain would have run its command a second time, and found the lock taken.
    assert_eq!(holder.info("blocked_clients"), "999");
    let lock = server.client3().line("LOCKS GET l").reply();
    let steps = array(&lock, "timeline");
    let last = steps[steps.len() - 2..].iter().map(Reply::to_string).collect::<Vec<_>>();
    assert!(last[0].contains("released it") && last[1].contains("took it"), "{steps:?}");
    // A command that waits counts once its wait has ended.
    let calls = holder.line("INFO commandstats").text();
    let calls = calls.lines().find(|line| line.starts_with("cmdstat_lock|acquire:")).expect("the calls");
    assert!(calls.contains(":calls=2,"), "{calls}");
}

#[test]
fn requests_that_are_wrong_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    let long = "t".repeat(1025);
    for (line, error) in [
        ("LOCK", "ERR wrong number of arguments for 'lock' command"),
        ("LOCK ACQUIRE l a", "ERR wrong number of arguments for 'lock|acquire' command"),
        ("LOCK TAKE l", "ERR unknown subcommand 'TAKE'. Try LOCK HELP."),
        ("LOCK ACQUIRE l a EX 1", "ERR syntax error"),
        ("LOCK ACQUIRE l a PX 1 WAIT", "ERR syntax error"),
        ("LOCK ACQUIRE l a PX 1 LATE 1", "ERR syntax error"),
        ("LOCK ACQUIRE l a PX 1 WAIT 1 WAIT 1", "ERR syntax error"),
        ("LOCK ACQUIRE l a PX 1 WAIT -1", "ERR timeout is negative"),
        ("LOCK ACQUIRE l a PX 1 WAIT x", "ERR value is not an integer or out of range"),
        ("LOCK ACQUIRE l a PX x", "ERR value is not an integer or out of range"),
        ("LOCK ACQUIRE l a PX 0", "ERR invalid expire time in 'lock|acquire' command"),
        ("LOCK ACQUIRE l a PX -1", "ERR invalid expire time in 'lock|acquire' command"),
        ("LOCK ACQUIRE l a PX 9223372036854775807", "ERR invalid expire time in 'lock|acquire' command"),
        ("LOCK EXTEND l a PX 0", "ERR invalid expire time in 'lock|extend' command"),
        ("LOCK EXTEND l a EX 1", "ERR syntax error"),
    ] {
        client.line(line).is_error(error);
    }
    client
        .cmd(["LOCK", "ACQUIRE", "l", &long, "PX", "1"])
        .is_error("ERR token is too long: it may have 1024 bytes at most");
    client.cmd(["LOCK", "ACQUIRE", "l", &long[1..], "PX", "60000"]).integer();
    client.line("DEL l").is(1);
    client.line("LOCK ACQUIRE l a PX 60000 WAIT 9223372036854775807").integer();
    assert!(client.line("LOCK HELP").items().len() > 8);
}

#[test]
fn the_lens_shows_the_same_number_who_holds_the_lock_and_who_waits() {
    let server = Server::start();
    let mut observer = server.client3();
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.cmd(["CLIENT", "SETNAME", &format!("c{number}")]).is_ok();
    }
    let mut shown = |what: &str| {
        let lock = observer.line("LOCKS GET l").reply();
        match what {
            "fencing" | "waiting" => integer(&lock, what).to_string(),
            _ => text(&lock, what),
        }
    };
    let first = acquire(&mut clients[0], "l", "a");
    assert_eq!(shown("fencing"), first.to_string());
    assert_eq!((shown("holder.name"), shown("taken-by")), ("c0".into(), "lock|acquire".into()));
    server.have_wait(&mut clients[1], "LOCK ACQUIRE l b PX 50 WAIT 60000");
    server.have_wait(&mut clients[2], "LOCK ACQUIRE l c PX 60000 WAIT 60000");
    assert_eq!(shown("waiting"), "2");
    // It is granted to the next one by the client that releases it, and then by its expiry.
    clients[0].line("LOCK RELEASE l a").is(1);
    clients[1].reply().integer();
    let last = clients[2].reply().integer();
    wait_until("the next one holds it", || shown("holder.name") == "c2");
    assert_eq!(shown("fencing"), last.to_string());
    clients[2].line("LOCK RELEASE l c").is(1);
    // A lock of SET NX gets its number from EXTEND.
    clients[0].line("SET l d NX PX 60000").is_ok();
    let number = clients[0].line("LOCK EXTEND l d PX 60000").integer();
    assert_eq!(shown("fencing"), number.to_string());
    assert_eq!(server.client().line("LOCKS LOG").items(), []);
}

marked!(needs_tools: a_real_redis_reads_payload_snapshot_and_log_of_a_lock);
fn a_real_redis_reads_payload_snapshot_and_log_of_a_lock() {
    let folder = Folder::new("a_real_redis_reads_payload_snapshot_and_log_of_a_lock");
    let directory = folder.file("");
    let options = [&["--dir", &directory, "--dbfilename", "d.rdb"], ALWAYS].concat();
    let server = Server::start_with(&options);
    let mut client = server.client();
    let number = acquire(&mut client, "l", "a");
    let Reply::Bulk(payload) = client.line("DUMP l").reply() else { panic!("no payload") };
    client.line("SAVE").is_ok();
    drop(server);
    // The log, which has an annotation before the lock; and the snapshot, which has an auxiliary field.
    for options in [&options[..], &["--dir", &directory, "--dbfilename", "d.rdb"]] {
        let Some(redis) = Server::start_redis(options) else { return };
        let mut client = redis.client();
        client.line("GET l").is("a");
        assert!(client.line("PTTL l").integer() > 0);
        client.cmd([&b"RESTORE"[..], b"m", b"0", &payload]).is_ok();
        client.line("GET m").is("a");
    }
    // Redis has written the log since. What it does not understand, it has not kept.
    let server = Server::start_with(&options);
    let mut client = server.client();
    client.line("GET l").is("a");
    client.line("GET m").is("a");
    let after = client.line("LOCK EXTEND l a PX 60000").integer();
    assert!(after >= number);
}

/// As many locks as there are, all at the same moment, each with a client that waits.
#[test]
fn many_locks_that_expire_at_once_are_all_granted() {
    const LOCKS: usize = 300;
    let Some(_files) = ask_for(LOCKS + 10) else { return };
    let server = Server::start();
    let mut holder = server.client();
    let script = "local t = redis.call('TIME') for i = 1, ARGV[1] do \
                  redis.call('SET', 'l' .. i, 'holder', 'PXAT', t[1] * 1000 + 3000) end";
    holder.cmd(["EVAL", script, "0", &LOCKS.to_string()]).is_nil();
    let mut waiting: Vec<Client> = (1..=LOCKS).map(|_| server.client()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        let key = format!("l{}", number + 1);
        client.send(&request(["LOCK", "ACQUIRE", &key, "a", "PX", "60000", "WAIT", "0"]));
    }
    let mut numbers: Vec<i64> = waiting.iter_mut().map(|client| client.reply().integer()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), LOCKS);
}
