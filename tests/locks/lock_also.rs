//! LOCK … ALSO: several locks by one request, all of them or none, with one expiry and one fencing number.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::locks::is_found;
use support::client::{Client, Reply, request};
use support::folder::Folder;
use support::log::{self, ALWAYS};
use support::replies::{array, integer, text};
use support::server::{Server, wait_until};

const CLOCK: &[&str] = &["--enable-clock-command", "yes"];

fn names(keys: &[&str]) -> Vec<Reply> {
    keys.iter().map(|key| Reply::from(*key)).collect()
}

/// How often the one client that waits for a lock was overtaken.
fn overtaken(client: &mut Client, key: &str) -> i64 {
    let lock = client.cmd(["LOCKS", "GET", key]).reply();
    let [waiting] = &array(&lock, "waiting-clients")[..] else { panic!("{lock}") };
    integer(waiting, "overtaken")
}

#[test]
fn all_are_taken_with_one_number_and_one_expiry_or_none_is() {
    let server = Server::start_with(CLOCK);
    let (mut a, mut b) = (server.client(), server.client());
    a.line("CLOCK FREEZE").is_ok();
    let number = a.line("LOCK ACQUIRE a t PX 60000 ALSO 2 b c").integer();
    for key in ["a", "b", "c"] {
        b.cmd(["LOCK", "FENCE", key, "t"]).is(number);
        b.cmd(["PTTL", key]).is(60_000);
        b.cmd(["GET", key]).is("t");
        b.cmd(["SET", key, "x", "NX"]).is_nil();
    }
    for line in ["LOCK ACQUIRE d u PX 60000 ALSO 1 c", "LOCK ACQUIRE c u PX 60000 ALSO 1 d"] {
        b.line(line).is_nil();
        b.line(&format!("{line} WAIT 1")).is_nil();
    }
    b.line("EXISTS d").is(0);
    // Released one by one: the others live on with their number.
    a.line("LOCK RELEASE a t").is(1);
    let next = b.line("LOCK ACQUIRE a u PX 60000 ALSO 1 d").integer();
    assert!(next > number);
    a.line("LOCK FENCE b t").is(number);
    // Extended together only by a client that holds all.
    a.line("LOCK EXTEND b t PX 90000 ALSO 1 c").is(number);
    a.line("LOCK EXTEND b t PX 120000 ALSO 1 a").is_nil();
    a.line("LOCK EXTEND a t PX 120000 ALSO 1 b").is_nil();
    a.line("PTTL b").is(90_000);
    a.line("PTTL a").is(60_000);
    // Released together: those that it holds.
    a.line("LOCK RELEASE a t ALSO 3 b c nosuch").is(2);
    a.line("LOCK RELEASE a t ALSO 3 b c nosuch").is(0);
    b.line("EXISTS a b c d").is(2);
    b.line("LOCK RELEASE a u ALSO 1 d").is(2);
}

#[test]
fn the_number_is_larger_than_those_of_all_earlier_holders_and_extending_shows_the_largest() {
    let server = Server::start();
    let mut client = server.client();
    let first = client.line("LOCK ACQUIRE a t PX 60000").integer();
    let second = client.line("LOCK ACQUIRE b t PX 60000").integer();
    assert!(second > first);
    client.line("LOCK EXTEND a t PX 60000 ALSO 1 b").is(second);
    client.line("LOCK EXTEND b t PX 60000 ALSO 1 a").is(second);
    client.line("LOCK FENCE a t").is(first);
    // A lock of another library gets a number.
    client.line("SET c t NX PX 60000").is_ok();
    let third = client.line("LOCK EXTEND c t PX 60000 ALSO 2 a b").integer();
    assert!(third > second);
    client.line("LOCK RELEASE a t ALSO 2 b c").is(3);
    assert!(client.line("LOCK ACQUIRE a t PX 60000 ALSO 2 b c").integer() > third);
}

#[test]
fn what_is_asked_for_wrongly_is_refused_before_anything_is_touched() {
    let server = Server::start();
    let mut client = server.client();
    let many = |count: usize| (0..count).map(|key| format!(" k{key}")).collect::<String>();
    let cases = [
        ("ALSO".to_owned(), "ERR syntax error"),
        ("ALSO 0".into(), "ERR numkeys should be greater than 0"),
        ("ALSO -1 b".into(), "ERR numkeys should be greater than 0"),
        ("ALSO b c".into(), "ERR numkeys should be greater than 0"),
        ("ALSO 99999999999999999999 b".into(), "ERR numkeys should be greater than 0"),
        ("ALSO 2 b".into(), "ERR Number of keys can't be greater than number of args"),
        ("ALSO 9223372036854775807 b".into(), "ERR Number of keys can't be greater than number of args"),
        ("ALSO 1 b c".into(), "ERR syntax error"),
        ("ALSO 1 b ALSO 1 c".into(), "ERR syntax error"),
        (format!("ALSO 128{}", many(128)), "ERR LOCK takes 128 keys at most"),
    ];
    for (also, error) in &cases {
        for start in ["LOCK ACQUIRE a t PX 60000", "LOCK EXTEND a t PX 60000", "LOCK RELEASE a t"] {
            client.line(&format!("{start} {also}")).is_error(error);
        }
    }
    client.line("DBSIZE").is(0);
    client.line("SADD set x").is(1);
    client.line("LOCK ACQUIRE a t PX 60000 ALSO 1 b").integer();
    for line in ["LOCK EXTEND a t PX 1 ALSO 2 b set", "LOCK RELEASE a t ALSO 2 b set"] {
        client.line(line).is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    }
    client.line("LOCK ACQUIRE c t PX 60000 ALSO 1 set").is_nil();
    client.line("LOCK RELEASE a t ALSO 1 b").is(2);
    let most = format!("LOCK ACQUIRE a t PX 60000 ALSO 127{}", many(127));
    let number = client.line(&most).integer();
    client.line(&format!("LOCK EXTEND a t PX 60000 ALSO 127{}", many(127))).is(number);
    client.line(&format!("LOCK RELEASE a t ALSO 127{}", many(127))).is(128);
}

#[test]
fn words_are_words_only_in_their_places_and_a_key_named_twice_counts_once() {
    let server = Server::start();
    let mut client = server.client();
    let number = client.line("LOCK ACQUIRE ALSO ALSO PX 60000 ALSO 2 WAIT PX NOTIFY AGAIN").integer();
    for key in ["ALSO", "WAIT", "PX"] {
        client.cmd(["LOCK", "FENCE", key, "ALSO"]).is(number);
    }
    client.line("LOCK EXTEND PX ALSO PX 60000 ALSO 2 ALSO WAIT").is(number);
    client.line("LOCK RELEASE ALSO ALSO").is(1);
    client.line("LOCK RELEASE WAIT ALSO ALSO 1 PX").is(2);
    client.line("LOCK ACQUIRE a t PX 60000 ALSO 3 a b b WAIT 10").integer();
    client.line("LOCK EXTEND b t PX 60000 ALSO 1 b").integer();
    client.line("LOCK RELEASE a t ALSO 3 b a b").is(2);
    is_found(&mut client, &[]);
}

#[test]
fn a_free_key_goes_past_a_client_that_lacks_another_one() {
    let server = Server::start();
    let (mut holder, mut group, mut observer) = (server.client(), server.client(), server.client3());
    let first = holder.line("LOCK ACQUIRE a x PX 60000").integer();
    server.have_wait(&mut group, "LOCK ACQUIRE a w PX 60000 WAIT 60000 ALSO 1 b");
    // If the group kept the free b, this would be a deadlock. It needs no WAIT.
    let second = holder.line("LOCK ACQUIRE b x PX 60000").integer();
    assert!(second > first);
    assert_eq!((overtaken(&mut observer, "a"), overtaken(&mut observer, "b")), (1, 1));
    // Nor does a third client that waits keep it from others.
    let mut third = server.client();
    server.have_wait(&mut third, "LOCK ACQUIRE b y PX 60000 WAIT 60000");
    holder.line("LOCK RELEASE b x").is(1);
    let number = third.reply().integer();
    assert!(number > second);
    assert_eq!(overtaken(&mut observer, "a"), 2);
    third.line("LOCK RELEASE b y").is(1);
    assert!(group.is_silent_for(Duration::from_millis(10)));
    holder.line("LOCK RELEASE a x").is(1);
    assert!(group.reply().integer() > number);
    observer.line("LOCK RELEASE a w ALSO 1 b").is(2);
    is_found(&mut observer, &[]);
}

#[test]
fn a_key_goes_to_the_first_in_its_line_that_can_take_all_it_asked_for() {
    let server = Server::start();
    let mut holder = server.client();
    holder.line("LOCK ACQUIRE a h PX 60000 ALSO 2 b c").integer();
    let lines = [
        "LOCK ACQUIRE c 0 PX 60000 WAIT 60000 ALSO 2 a b",
        "LOCK ACQUIRE b 1 PX 60000 WAIT 60000 ALSO 1 a",
        "LOCK ACQUIRE a 2 PX 60000 WAIT 60000",
        "LOCK ACQUIRE a 3 PX 60000 WAIT 60000 ALSO 1 d",
    ];
    let mut clients: Vec<Client> = lines.iter().map(|_| server.client()).collect();
    for (client, line) in clients.iter_mut().zip(lines) {
        server.have_wait(client, line);
    }
    // A client that waits reserves nothing.
    holder.line("LOCK ACQUIRE d h PX 60000").integer();
    holder.line("LOCK RELEASE d h").is(1);
    let mut has = |holder: &mut Client, line: &str, granted: &[usize]| {
        holder.line(line).is(1);
        for (number, client) in clients.iter_mut().enumerate() {
            if granted.contains(&number) {
                client.reply().integer();
            } else {
                assert!(client.is_silent_for(Duration::from_millis(5)), "{line}: {number}");
            }
        }
    };
    has(&mut holder, "LOCK RELEASE a h", &[2]);
    has(&mut holder, "LOCK RELEASE b h", &[]);
    has(&mut holder, "LOCK RELEASE a 2", &[1]);
    has(&mut holder, "LOCK RELEASE a 1", &[3]);
    has(&mut holder, "LOCK RELEASE b 1", &[]);
    has(&mut holder, "LOCK RELEASE c h", &[]);
    has(&mut holder, "LOCK RELEASE a 3", &[0]);
    is_found(&mut holder, &[]);
}

#[test]
fn whatever_frees_the_last_key_grants_all_of_them() {
    let server = Server::start_with(CLOCK);
    let (mut holder, mut observer) = (server.client(), server.client());
    observer.line("CLOCK FREEZE").is_ok();
    let script = "return redis.call('DEL', KEYS[1])";
    for way in [
        "LOCK RELEASE b h",
        "LOCK BREAK b",
        "DEL b",
        "UNLINK b",
        "GETDEL b",
        "RENAME b elsewhere",
        "MOVE b 5",
        "PEXPIRE b 0",
        "CLOCK ADVANCE 1000",
        "FLUSHDB",
        "FLUSHALL",
        "SWAPDB 0 1",
        "script",
        "exec",
    ] {
        for first in ["a", "b", "c"] {
            let number = holder.line("LOCK ACQUIRE b h PX 1000").integer();
            let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|key| *key != first).collect();
            let mut waiting = server.client();
            let line = format!("LOCK ACQUIRE {first} w PX 60000 WAIT 60000 ALSO 2 {}", others.join(" "));
            server.have_wait(&mut waiting, &line);
            match way {
                "script" => observer.cmd(["EVAL", script, "1", "b"]).ignored(),
                "exec" => {
                    for line in ["MULTI", "SET x y", "DEL b"] {
                        observer.line(line).ignored();
                    }
                    observer.line("EXEC").items();
                }
                line => observer.line(line).ignored(),
            }
            assert!(waiting.reply().integer() > number, "{way}");
            waiting.line("EXISTS a b c").is(3);
            waiting.line("FLUSHALL").is_ok();
        }
    }
}

/// Each key expires at a moment of its own, and no client looks at it then.
#[test]
fn keys_that_expire_one_after_the_other_are_granted_when_the_last_one_has() {
    let server = Server::start();
    let (mut one, mut other, mut waiting) = (server.client(), server.client(), server.client());
    let began = Instant::now();
    one.line("LOCK ACQUIRE a x PX 30").integer();
    other.line("LOCK ACQUIRE b y PX 60").integer();
    let number = waiting.line("LOCK ACQUIRE a w PX 60000 WAIT 60000 ALSO 1 b").integer();
    assert!(began.elapsed() >= Duration::from_millis(60));
    waiting.line("LOCK FENCE b w").is(number);
}

#[test]
fn a_client_that_leaves_or_waits_in_vain_holds_nothing_and_keeps_nothing_from_others() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client(), server.client());
    holder.line("LOCK ACQUIRE a h PX 60000").integer();
    for end in ["leaves", "kill", "unblock", "error", "time"] {
        let mut group = server.client();
        let id = group.line("CLIENT ID").integer();
        let wait_ms = if end == "time" { 20 } else { 60_000 };
        group.send(&request(format!("LOCK ACQUIRE b w PX 60000 WAIT {wait_ms} ALSO 1 a").split(' ')));
        match end {
            "time" => {}
            _ => wait_until("it waits", || observer.info("blocked_clients") == "1"),
        }
        match end {
            "leaves" => drop(group),
            "kill" => observer.line(&format!("CLIENT KILL ID {id}")).is(1),
            "unblock" => {
                observer.line(&format!("CLIENT UNBLOCK {id}")).is(1);
                group.reply().is_nil();
            }
            "error" => {
                observer.line(&format!("CLIENT UNBLOCK {id} ERROR")).is(1);
                group.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
            }
            _ => group.reply().is_nil(),
        }
        wait_until("none waits", || observer.info("blocked_clients") == "0");
        holder.line("LOCK RELEASE a h").is(1);
        observer.line("EXISTS a b").is(0);
        holder.line("LOCK ACQUIRE a h PX 60000").integer();
    }
}

#[test]
fn a_client_that_comes_again_finds_its_locks_or_takes_those_that_it_lacks() {
    let server = Server::start_with(CLOCK);
    let (mut a, mut b, mut observer) = (server.client(), server.client(), server.client());
    a.line("CLOCK FREEZE").is_ok();
    let again = "LOCK ACQUIRE a t PX 60000 AGAIN ALSO 1 b";
    let number = a.line(again).integer();
    b.line("LOCK ACQUIRE a t PX 60000 ALSO 1 b").is_nil();
    b.line(again).is(number);
    b.line(&format!("{again} WAIT 0")).is(number);
    b.line("LOCK ACQUIRE a t PX 90000 AGAIN ALSO 1 b").is(number);
    a.line("PTTL b").is(90_000);
    // It lacks one, which is free: that one gets a new number, and the other one keeps its own.
    a.line("LOCK RELEASE b t").is(1);
    let second = b.line(again).integer();
    assert!(second > number);
    b.line("LOCK FENCE b t").is(second);
    b.line("LOCK FENCE a t").is(number);
    b.line(again).is(second);
    // It lacks one that another client has: it gets nothing, and keeps what it has, as it is.
    a.line("LOCK RELEASE b t").is(1);
    let other = a.line("LOCK ACQUIRE b x PX 60000").integer();
    b.line("LOCK EXTEND a t PX 50000").is(number);
    b.line(again).is_nil();
    b.line("PTTL a").is(50_000);
    // So it waits for that one, and what its own token has does not stand in its way.
    server.have_wait(&mut b, &format!("{again} WAIT 60000"));
    a.line("LOCK RELEASE b x").is(1);
    let third = b.reply().integer();
    assert!(third > other);
    is_found(&mut observer, &[]);
    a.line("PTTL a").is(60_000);
    // Another attempt takes over the place of the one before.
    a.line("LOCK ACQUIRE c x PX 60000").integer();
    server.have_wait(&mut b, "LOCK ACQUIRE c t PX 60000 WAIT 60000 AGAIN ALSO 1 d");
    let mut late = server.client();
    server.have_wait(&mut late, "LOCK ACQUIRE d z PX 60000 WAIT 60000 ALSO 1 c");
    let mut new = server.client();
    new.send(&request("LOCK ACQUIRE c t PX 60000 WAIT 60000 AGAIN ALSO 1 d".split(' ')));
    b.reply().is_nil();
    wait_until("two wait", || observer.info("blocked_clients") == "2");
    a.line("LOCK RELEASE c x").is(1);
    new.reply().integer();
    assert!(late.is_silent_for(Duration::from_millis(5)));
    new.line("LOCK RELEASE c t ALSO 1 d").is(2);
    late.reply().integer();
}

#[test]
fn each_is_guarded_and_all_end_with_the_connection() {
    let server = Server::start();
    let (mut holder, mut observer) = (server.client3(), server.client());
    let options = "PX 60000 BOUND GRACE 0 NOTIFY";
    let number = holder.line(&format!("LOCK ACQUIRE a t {options} ALSO 2 b c")).integer();
    observer.line("DEL b").is(1);
    let lost = ["lock-lost".into(), "b".into(), Reply::Integer(number), "deleted".into()];
    holder.reply().is(Reply::Push(lost.to_vec()));
    let mut next = server.client();
    server.have_wait(&mut next, "LOCK ACQUIRE c n PX 60000 WAIT 60000 ALSO 1 a");
    let shown = server.client3().line("LOCKS GET a").reply();
    assert_eq!(integer(&shown, "bound-there"), 2);
    drop(holder);
    assert!(next.reply().integer() > number);
    // One that was granted them in line is bound to its own connection.
    let mut third = server.client3();
    server.have_wait(&mut third, &format!("LOCK ACQUIRE a u {options} WAIT 60000 ALSO 1 c"));
    next.line("LOCK RELEASE c n ALSO 1 a").is(2);
    let number = third.reply().integer();
    // Extending binds all, too, to another connection.
    observer.line("LOCK EXTEND a u PX 60000 BOUND GRACE 0 ALSO 1 c").is(number);
    drop(third);
    next.line("PING").is_simple("PONG");
    next.line("LOCK FENCE c u").is(number);
    drop(observer);
    wait_until("both are free", || next.line("EXISTS a c").integer() == 0);
}

#[test]
fn a_client_that_may_not_use_one_of_the_keys_gets_none() {
    let server = Server::start();
    let (mut admin, mut user) = (server.client(), server.client());
    admin.line("ACL SETUSER u on nopass ~l* ~%R~r* +@all").is_ok();
    user.line("AUTH u p").is_ok();
    const DENIED: &str = "NOPERM No permissions to access a key";
    for line in [
        "LOCK ACQUIRE l1 t PX 60000 ALSO 2 l2 m",
        "LOCK ACQUIRE l1 t PX 60000 WAIT 10 AGAIN ALSO 1 r BOUND",
        "LOCK ACQUIRE m t PX 60000 ALSO 1 l1",
        "LOCK EXTEND l1 t PX 60000 ALSO 1 m",
        "LOCK RELEASE l1 t ALSO 1 m",
    ] {
        user.line(line).is_error(DENIED);
        user.line("MULTI").is_ok();
        user.line(line).is_error(DENIED);
        user.line("EXEC").is_error("EXECABORT Transaction discarded because of previous errors.");
    }
    admin.line("DBSIZE").is(0);
    user.line("LOCK ACQUIRE l1 t PX 60000 ALSO 1 l2").integer();
    // A permission that is lost while it waits.
    let mut waiting = server.client();
    waiting.line("AUTH u p").is_ok();
    server.have_wait(&mut waiting, "LOCK ACQUIRE l1 w PX 60000 WAIT 60000 ALSO 1 l3");
    admin.line("ACL SETUSER u resetkeys ~l1 ~l2").is_ok();
    admin.line("LOCK RELEASE l1 t").is(1);
    waiting.reply().is_error(DENIED);
    admin.line("EXISTS l1 l3").is(0);
}

#[test]
fn its_keys_are_found_wherever_they_stand() {
    let server = Server::start();
    let mut client = server.client();
    for (line, keys) in [
        ("LOCK ACQUIRE a t PX 1", &["a"][..]),
        ("LOCK ACQUIRE a t PX 1 WAIT 5 AGAIN", &["a"]),
        ("LOCK ACQUIRE a t PX 1 ALSO 2 b c", &["a", "b", "c"]),
        ("LOCK ACQUIRE a also PX 1 WAIT 1 also 2 b c BOUND GRACE 1", &["a", "b", "c"]),
        ("LOCK EXTEND a t PX 1 BOUND MAX 5 ALSO 1 b", &["a", "b"]),
        ("LOCK RELEASE a t", &["a"]),
        ("LOCK RELEASE a ALSO ALSO 1 ALSO", &["a", "ALSO"]),
    ] {
        let asked = format!("COMMAND GETKEYS {line}");
        client.line(&asked).is(Reply::Array(names(keys)));
    }
    let mut client = server.client3();
    let info = client.line("COMMAND INFO LOCK|ACQUIRE LOCK|EXTEND LOCK|RELEASE").items();
    for (info, from) in info.iter().zip([6, 6, 4]) {
        let Reply::Array(info) = info else { panic!("{info}") };
        assert!(info[2].to_string().contains("movablekeys"), "{}", info[2]);
        assert_eq!(info[3..6], [2, 2, 1].map(Reply::Integer));
        let Reply::Set(specs) = &info[8] else { panic!("{}", info[8]) };
        assert_eq!(text(&specs[1], "begin_search.spec.keyword"), "ALSO");
        assert_eq!(integer(&specs[1], "begin_search.spec.startfrom"), from);
        assert_eq!(text(&specs[1], "find_keys.type"), "keynum");
        assert_eq!(integer(&specs[1], "find_keys.spec.firstkey"), 1);
    }
}

#[test]
fn in_a_transaction_and_in_a_script_no_client_waits() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    other.line("LOCK ACQUIRE c x PX 60000").integer();
    client.line("MULTI").is_ok();
    for line in [
        "LOCK ACQUIRE a t PX 60000 ALSO 1 b",
        "LOCK ACQUIRE d t PX 60000 WAIT 0 ALSO 1 c",
        "LOCK EXTEND b t PX 60000 ALSO 1 a",
        "EXISTS d",
        "LOCK RELEASE b t",
    ] {
        client.line(line).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    let number = replies[0].clone();
    assert!(matches!(number, Reply::Integer(1..)), "{number}");
    assert_eq!(replies[1..], [Reply::Null, number, Reply::Integer(0), Reply::Integer(1)]);
    let script = "local function lock(...) return redis.call('LOCK', ...) end \
                  local n = lock('ACQUIRE', KEYS[1], 's', 'PX', 60000, 'ALSO', 1, KEYS[2]) \
                  local no = lock('ACQUIRE', KEYS[3], 's', 'PX', 9, 'WAIT', 0, 'ALSO', 1, KEYS[1]) \
                  return {n, no, lock('RELEASE', KEYS[1], 's', 'ALSO', 1, KEYS[2])}";
    let replies = client.cmd(["EVAL", script, "3", "b", "d", "e"]).items();
    assert!(matches!(replies[..], [Reply::Integer(1..), Reply::Null, Reply::Integer(2)]), "{replies:?}");
}

/// A group that waits for a lock keeps no readers from it.
#[test]
fn permits_are_released_with_others_and_granted_while_a_group_waits_for_the_lock() {
    let server = Server::start();
    let (mut reader, mut holder, mut group) = (server.client(), server.client(), server.client());
    reader.line("LOCK ACQUIRE a r PX 60000 SHARED").integer();
    holder.line("LOCK ACQUIRE c h PX 60000").integer();
    holder.line("LOCK ACQUIRE a w PX 60000 ALSO 1 b").is_nil();
    server.have_wait(&mut group, "LOCK ACQUIRE a w PX 60000 WAIT 60000 ALSO 2 b c");
    // Otherwise this would be a deadlock.
    holder.line("LOCK ACQUIRE a h PX 60000 WAIT 60000 SHARED").integer();
    holder.line("LOCK EXTEND c h PX 60000 ALSO 1 a").integer();
    holder.line("LOCK RELEASE c h ALSO 1 a").is(2);
    assert!(group.is_silent_for(Duration::from_millis(5)));
    reader.line("LOCK RELEASE a r").is(1);
    group.reply().integer();
    // A client that waits for one lock comes before readers, as ever.
    server.have_wait(&mut holder, "LOCK ACQUIRE a x PX 60000 WAIT 60000");
    group.line("LOCK RELEASE a w ALSO 2 b c").is(3);
    holder.reply().integer();
    is_found(&mut reader, &[]);
}

/// What is granted to a client in line is one unit in the log with what has freed the key.
#[test]
fn a_log_that_ends_anywhere_has_all_of_them_or_none() {
    let folder = Folder::new("lock_also_log");
    let server = log::serve(&folder, &[]);
    let (mut client, mut waiting) = (server.client(), server.client());
    client.line("LOCK ACQUIRE a t PX 600000 ALSO 2 b c").integer();
    server.have_wait(&mut waiting, "LOCK ACQUIRE d w PX 600000 WAIT 60000 ALSO 1 c");
    client.line("LOCK EXTEND a t PX 900000 ALSO 2 b c").integer();
    client.line("LOCK RELEASE a t ALSO 2 b c").is(3);
    let number = waiting.reply().integer();
    server.signal("KILL");
    drop(server);
    let path = log::increment(&folder, 1);
    let whole = fs::read(&path).unwrap();
    let mut states: Vec<String> = Vec::new();
    // Between two commands, and within each.
    let commands = (0..whole.len()).filter(|at| whole[*at] == b'*' && (*at == 0 || whole[at - 1] == b'\n'));
    for end in commands.flat_map(|at| [at, at + 7]).chain([whole.len()]) {
        fs::write(&path, &whole[..end]).unwrap();
        let state = log::load(&folder, "yes").unwrap();
        let keys: Vec<String> = state
            .iter()
            .filter(|((database, _), _)| *database == 0)
            .map(|((_, key), (token, _))| {
                format!("{}{}", String::from_utf8_lossy(key), String::from_utf8_lossy(token))
            })
            .collect();
        let keys = keys.join(" ");
        if states.last() != Some(&keys) {
            states.push(keys);
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(states, ["", "at bt ct", "cw dw"]);
    let server = Server::start_with(&[&["--dir", &folder.file("")], ALWAYS].concat());
    let mut client = server.client();
    client.line("LOCK FENCE c w").is(number);
    client.line("LOCK FENCE d w").is(number);
    assert!(client.line("LOCK ACQUIRE a n PX 60000 ALSO 1 b").integer() > number);
}

#[test]
fn the_lens_shows_a_waiting_client_at_each_key_and_finds_nothing_wrong() {
    let server = Server::start_with(CLOCK);
    let mut observer = server.client3();
    let (mut holder, mut waiting) = (server.client(), server.client());
    waiting.line("CLIENT SETNAME patient").is_ok();
    holder.line("LOCK ACQUIRE a h PX 60000 ALSO 1 b").integer();
    server.have_wait(&mut waiting, "LOCK ACQUIRE a w PX 60000 WAIT 60000 ALSO 2 b c");
    for key in ["a", "b"] {
        let lock = observer.cmd(["LOCKS", "GET", key]).reply();
        assert_eq!((integer(&lock, "waiting"), integer(&lock, "refused")), (1, 0), "{lock}");
        assert_eq!(text(&array(&lock, "waiting-clients")[0], "name"), "patient");
        assert!(lock.to_string().contains("waits in line"), "{lock}");
    }
    holder.line("LOCK RELEASE a h ALSO 1 b").is(2);
    let number = waiting.reply().integer();
    for key in ["a", "b", "c"] {
        let lock = observer.cmd(["LOCKS", "GET", key]).reply();
        assert_eq!(text(&lock, "holder.name"), "patient");
        assert_eq!((integer(&lock, "fencing"), text(&lock, "taken-by")), (number, "lock|acquire".into()));
    }
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "taken"), 5);
    waiting.line("LOCK RELEASE a w ALSO 2 b c").is(3);
    is_found(&mut observer, &[]);
    assert_eq!(integer(&observer.line("LOCKS STATS").reply(), "held"), 0);
    // A client that did not get them may release to be sure. The token is not the last of its arguments.
    waiting.line("LOCK ACQUIRE a w PX 50 ALSO 1 b").integer();
    holder.line("LOCK ACQUIRE a h PX 50 ALSO 1 b").is_nil();
    holder.line("LOCK RELEASE a h ALSO 1 b").is(0);
    is_found(&mut observer, &[]);
    observer.line("CLOCK ADVANCE 50").is_ok();
    holder.line("LOCK ACQUIRE a n PX 60000 ALSO 1 b").integer();
    waiting.line("LOCK RELEASE a w ALSO 1 b").is(0);
    is_found(&mut observer, &[("expired-while-held", &["patient", ""][..]); 2]);
}

/// Clients take random groups of six keys, hold them for a moment, and release them all or one by one. If two
/// had the same key at a time, one would find the mark of the other.
#[test]
fn under_load_each_key_has_one_holder_and_all_come_to_their_end() {
    const KEYS: usize = 6;
    const CLIENTS: u64 = 16;
    const ROUNDS: usize = 60;
    let server = Server::start_with(&["--io-threads", "4"]);
    let held: [AtomicBool; KEYS] = Default::default();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (server, held) = (&server, &held);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                let mut client = server.client();
                let mut last = 0;
                for _ in 0..ROUNDS {
                    let mut keys: Vec<usize> = (0..KEYS).collect();
                    random.shuffle(&mut keys);
                    keys.truncate(random.usize(1..=4));
                    let names: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
                    let also = match &names[1..] {
                        [] => String::new(),
                        others => format!(" ALSO {} {}", others.len(), others.join(" ")),
                    };
                    let first = &names[0];
                    let line = format!("LOCK ACQUIRE {first} t{number} PX 600000 WAIT 0{also}");
                    let fence = client.line(&line).integer();
                    assert!(fence > last);
                    last = fence;
                    for key in &keys {
                        assert!(!held[*key].swap(true, Ordering::SeqCst), "two hold k{key}");
                    }
                    if random.bool() {
                        client
                            .cmd(["LOCK", "FENCE", &names[names.len() - 1], &format!("t{number}")])
                            .is(fence);
                    }
                    let one_by_one = random.bool();
                    for (key, name) in keys.iter().zip(&names) {
                        held[*key].store(false, Ordering::SeqCst);
                        if one_by_one {
                            client.line(&format!("LOCK RELEASE {name} t{number}")).is(1);
                        }
                    }
                    if !one_by_one {
                        let count = names.len() as i64;
                        client.line(&format!("LOCK RELEASE {first} t{number}{also}")).is(count);
                    }
                }
            });
        }
    });
    let mut client = server.client3();
    client.line("DBSIZE").is(0);
    assert_eq!(client.info("blocked_clients"), "0");
    // The lens has missed some of it.
    is_found(&mut client, &[]);
}

/// Hundreds of clients wait for overlapping groups. Each release looks at those that it may help.
#[test]
fn hundreds_of_waiting_groups_are_granted_one_after_the_other() {
    const CLIENTS: usize = 300;
    let server = Server::start();
    let mut holder = server.client();
    holder.line("LOCK ACQUIRE k0 h PX 600000 ALSO 2 k1 k2").integer();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let (first, second) = (number % 3, (number + 1) % 3);
        let line = format!("LOCK ACQUIRE k{first} {number} PX 600000 WAIT 0 ALSO 1 k{second}");
        client.send(&request(line.split(' ')));
    }
    wait_until("all wait", || holder.info("blocked_clients") == CLIENTS.to_string());
    holder.line("LOCK RELEASE k0 h ALSO 2 k1 k2").is(3);
    for _ in 0..CLIENTS {
        // Two of three keys make one group: there is one holder at a time.
        let mut token = String::new();
        wait_until("one has it", || {
            let found = holder.line("MGET k0 k1 k2").items();
            let found = found.into_iter().find(|token| *token != Reply::Null);
            token = found.map(|token| token.to_string()).unwrap_or_default();
            !token.is_empty()
        });
        let token = token.trim_matches('"').to_owned();
        clients[token.parse::<usize>().unwrap()].reply().integer();
        holder.line(&format!("LOCK RELEASE k0 {token} ALSO 2 k1 k2")).is(2);
    }
    assert_eq!(holder.info("blocked_clients"), "0");
}
