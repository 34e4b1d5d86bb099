//! Who waits for whom: LOCKS GRAPH, and the findings about clients that wait for each other, or would if they
//! met.

use crate::locks::{findings, frozen, is_found, locksmiths};
use support::client::{Client, Reply};
use support::replies::{array, field, integer, text};
use support::server::{Server, wait_until};

fn graph(observer: &mut Client) -> Reply {
    observer.line("LOCKS GRAPH").reply()
}

/// The cycles, each client's line without its number and address.
fn cycles(observer: &mut Client) -> Vec<Vec<String>> {
    let short = |line: &Reply| {
        let Reply::Bulk(line) = line else { panic!("{line}") };
        let line = String::from_utf8_lossy(line).into_owned();
        let (client, what) = line.split_once(") ").expect("a client");
        format!("{} {what}", client.split('\'').nth(1).unwrap_or_default())
    };
    let lines = |cycle: &Reply| match cycle {
        Reply::Array(lines) => lines.iter().map(short).collect(),
        other => panic!("{other}"),
    };
    array(&graph(observer), "cycles").iter().map(lines).collect()
}

/// The locks, each with the names of its holder and of the clients that wait.
fn locks(observer: &mut Client) -> Vec<(String, Vec<String>, Vec<String>)> {
    let names = |lock: &Reply, list: &str| -> Vec<String> {
        array(lock, list).iter().map(|client| text(client, "client.name")).collect()
    };
    let describe = |lock: &Reply| (text(lock, "key"), names(lock, "holders"), names(lock, "waiting-clients"));
    array(&graph(observer), "locks").iter().map(describe).collect()
}

/// The token of a client for a lock.
fn token(client: &Client, key: &str) -> String {
    format!("{key}-of-{}", client.local_address().port())
}

fn take(client: &mut Client, key: &str) {
    let token = token(client, key);
    client.line(&format!("LOCK ACQUIRE {key} {token} PX 60000")).integer();
}

/// Takes a lock, ready to wait for it.
fn take_soon(client: &mut Client, key: &str) {
    let token = token(client, key);
    client.line(&format!("LOCK ACQUIRE {key} {token} PX 60000 WAIT 500")).integer();
}

fn release(client: &mut Client, key: &str) {
    let token = token(client, key);
    client.line(&format!("LOCK RELEASE {key} {token}")).is(1);
}

/// Releases a lock by another connection than the one that has taken it.
fn release_for(owner: &Client, client: &mut Client, key: &str) {
    client.line(&format!("LOCK RELEASE {key} {}", token(owner, key))).is(1);
}

fn waiting(observer: &mut Client) -> i64 {
    array(&graph(observer), "locks").iter().map(|lock| integer(lock, "waiting")).sum()
}

/// Lets a client wait for a lock. Returns when the graph shows it.
fn wait(observer: &mut Client, client: &mut Client, line: &str) {
    let before = waiting(observer);
    client.send_and_wait(observer, line);
    wait_until("the graph shows it", || waiting(observer) > before);
}

fn wait_for(observer: &mut Client, client: &mut Client, key: &str) {
    let token = token(client, key);
    wait(observer, client, &format!("LOCK ACQUIRE {key} {token} PX 60000 WAIT 0"));
}

/// Waits for findings, since a client begins to wait before the lens looks for whom.
#[track_caller]
fn will_be_found(observer: &mut Client, expected: &[(&str, &[&str])]) {
    wait_until("it is found", || findings(observer).len() >= expected.len());
    is_found(observer, expected);
}

/// The timeline of the newest finding.
fn timeline(observer: &mut Client) -> String {
    let found = observer.line("LOCKS LOG 1").items();
    array(&found[0], "timeline").iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_graph_shows_who_holds_what_and_who_waits_in_which_order() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    assert_eq!(graph(&mut observer).to_string(), r#"["cycles", [], "locks", [], "more-locks", (integer) 0]"#);
    take(&mut a, "lock");
    a.line("SET other token NX PX 60000").is_ok();
    let number = {
        let token = token(&a, "lock");
        a.line(&format!("LOCK FENCE lock {token}")).integer()
    };
    wait_for(&mut observer, &mut b, "lock");
    wait(&mut observer, &mut c, "LOCK ACQUIRE lock token-of-c PX 60000 WAIT 0");
    let expected = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = [
        ("lock".to_owned(), expected(&["a"]), expected(&["b", "c"])),
        ("other".to_owned(), expected(&["a"]), vec![]),
    ];
    assert_eq!(locks(&mut observer), all);
    let shown = graph(&mut observer);
    let lock = &array(&shown, "locks")[0];
    assert_eq!((integer(lock, "database"), integer(lock, "waiting")), (0, 2));
    assert_eq!(field(lock, "cycle"), Reply::Null);
    let (holder, waiter) = (&array(lock, "holders")[0], &array(lock, "waiting-clients")[1]);
    assert_eq!(integer(holder, "fencing"), number);
    assert_eq!(text(holder, "token-digest"), observer.line("DIGEST lock").text());
    assert!((1..=60_001).contains(&integer(holder, "expires-in-ms")) && integer(holder, "held-ms") >= 0);
    assert_eq!(text(waiter, "client.address"), c.local_address().to_string());
    assert_eq!((text(waiter, "by"), integer(waiter, "waits-ms") >= 0), ("lock|acquire".into(), true));
    observer.line("SET digested token-of-c").is_ok();
    assert_eq!(text(waiter, "token-digest"), observer.line("DIGEST digested").text());
    // A part of it.
    assert_eq!(array(&observer.line("LOCKS GRAPH MATCH o*").reply(), "locks").len(), 1);
    let one = observer.line("LOCKS GRAPH COUNT 1").reply();
    assert_eq!((array(&one, "locks").len(), integer(&one, "more-locks")), (1, 1));
    observer.line("LOCKS GRAPH COUNT 0").is_error("ERR syntax error");
    observer.line("LOCKS GRAPH nonsense").is_error("ERR syntax error");
    // What a user may not read is not shown to it.
    observer.line("ACL SETUSER reader on nopass ~other +@all").is_ok();
    observer.line("AUTH reader x").is_ok();
    assert_eq!(locks(&mut observer), all[1..]);
    observer.line("AUTH default x").ignored();
    // The next ones in line are granted it.
    release(&mut a, "lock");
    b.reply().integer();
    wait_until("it is b's", || locks(&mut observer)[0].1 == ["b"]);
    assert_eq!(locks(&mut observer)[0].2, ["c"]);
    drop(c);
    wait_until("c has left", || locks(&mut observer)[0].2.is_empty());
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn two_clients_that_wait_for_each_other_are_found_when_the_second_one_begins_to() {
    let (mut observer, [mut a, mut b], server) = locksmiths(["a", "b"]);
    take(&mut a, "one");
    take(&mut b, "two");
    wait_for(&mut observer, &mut a, "two");
    assert_eq!((findings(&mut observer), cycles(&mut observer)), (vec![], vec![]));
    wait_for(&mut observer, &mut b, "one");
    will_be_found(&mut observer, &[("deadlock", &["b", "a"])]);
    let told = timeline(&mut observer);
    for part in [
        "'b' (127.0.0.1:",
        "holds \\\"two\\\" and waits for \\\"one\\\"",
        "holds \\\"one\\\" and waits for \\\"two\\\"",
        "LOCK ACQUIRE took it",
        "LOCK ACQUIRE waits in line",
        "\\\"one\\\":",
        "\\\"two\\\":",
    ] {
        assert!(told.contains(part) || told.contains(&part.replace('\\', "")), "{part} in {told}");
    }
    let found = observer.line("LOCKS LOG 1").items();
    assert!(text(&found[0], "hint").contains("none goes on"));
    assert!(text(&found[0], "instead").contains("one order"));
    let mut shown = cycles(&mut observer);
    assert_eq!(shown.len(), 1);
    shown[0].sort();
    assert_eq!(shown[0], ["a holds \"one\" and waits for \"two\"", "b holds \"two\" and waits for \"one\""]);
    let marks: Vec<i64> =
        array(&graph(&mut observer), "locks").iter().map(|lock| integer(lock, "cycle")).collect();
    assert_eq!(marks, [1, 1]);
    assert_eq!(observer.info("locks_deadlock"), "1");
    server.wait_for_output("Lock lens: deadlock on key \"one\" by client");
    // A user that may read one of the keys sees nothing of it.
    observer.line("ACL SETUSER reader on nopass ~one +@all").is_ok();
    observer.line("AUTH reader x").is_ok();
    assert_eq!((findings(&mut observer), cycles(&mut observer)), (vec![], vec![]));
    assert_eq!(array(&graph(&mut observer), "locks").len(), 1);
}

#[test]
fn three_clients_in_a_circle_are_found_and_a_tail_to_it_is_none_of_it() {
    let (mut observer, [mut a, mut b, mut c, mut tail], _server) = locksmiths(["a", "b", "c", "tail"]);
    take(&mut a, "one");
    take(&mut b, "two");
    take(&mut c, "three");
    take(&mut tail, "four");
    wait_for(&mut observer, &mut tail, "one");
    wait_for(&mut observer, &mut a, "two");
    wait_for(&mut observer, &mut c, "one");
    assert_eq!(cycles(&mut observer), [[""; 0]; 0]);
    wait_for(&mut observer, &mut b, "three");
    will_be_found(&mut observer, &[("deadlock", &["b", "c", "a"])]);
    assert_eq!(cycles(&mut observer).iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    let shown = graph(&mut observer);
    let marked = array(&shown, "locks").into_iter().filter(|lock| field(lock, "cycle") != Reply::Null);
    let mut keys: Vec<String> = marked.map(|lock| text(&lock, "key")).collect();
    keys.sort();
    assert_eq!(keys, ["one", "three", "two"]);
}

#[test]
fn a_circle_is_broken_by_a_timeout_a_release_a_break_a_deletion_or_a_client_that_leaves() {
    let server = Server::start();
    let mut observer = server.client3();
    for (number, broken_by) in [
        "PEXPIRE one 1",
        "LOCK BREAK one",
        "DEL one",
        "RENAME one elsewhere",
        "FLUSHALL",
        "SWAPDB 0 1",
        "SET one data",
        "CLIENT UNBLOCK ID",
        "CLIENT KILL ID ID",
        "TIMEOUT",
        "LOCK RELEASE one TOKEN",
    ]
    .into_iter()
    .enumerate()
    {
        // What is freed now is not for those who have left.
        wait_until("none waits", || observer.info("blocked_clients") == "0");
        observer.line("FLUSHALL").is_ok();
        let [mut a, mut b] = [server.client3(), server.client3()];
        let id = b.line("CLIENT ID").integer();
        take(&mut a, "one");
        take(&mut b, "two");
        wait_for(&mut observer, &mut a, "two");
        match broken_by {
            "TIMEOUT" => b.send(b"LOCK ACQUIRE one token PX 60000 WAIT 100\r\n"),
            _ => wait_for(&mut observer, &mut b, "one"),
        }
        wait_until("it is found", || observer.info("locks_deadlock") == (number + 1).to_string());
        if broken_by != "TIMEOUT" {
            assert_eq!(cycles(&mut observer).len(), 1, "{broken_by}");
            let line = broken_by.replace("ID ID", &format!("ID {id}")).replace("K ID", &format!("K {id}"));
            observer.line(&line.replace("TOKEN", &token(&a, "one"))).ignored();
        }
        wait_until(broken_by, || cycles(&mut observer).is_empty());
        wait_until("what the graph shows is so", || {
            let locks = array(&graph(&mut observer), "locks");
            locks.iter().all(|lock| {
                observer.line(&format!("SELECT {}", integer(lock, "database"))).is_ok();
                let is_there = observer.cmd(["EXISTS", &text(lock, "key")]).integer() == 1;
                array(lock, "holders").is_empty() != is_there
            })
        });
        observer.line("SELECT 0").is_ok();
    }
}

#[test]
fn a_deadlock_is_told_once_for_the_same_holders() {
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    take(&mut a, "one");
    take(&mut b, "two");
    wait_for(&mut observer, &mut a, "two");
    // A client that tries again and again.
    for _ in 0..3 {
        b.line("LOCK ACQUIRE one token-of-b PX 60000 WAIT 20").is_nil();
    }
    assert_eq!(findings(&mut observer).len(), 1);
    // The same locks with other holders.
    release(&mut b, "two");
    a.reply().integer();
    release(&mut a, "one");
    release(&mut a, "two");
    take(&mut a, "two");
    take(&mut b, "one");
    wait_for(&mut observer, &mut a, "one");
    b.line("LOCK ACQUIRE two token-of-b PX 60000 WAIT 20").is_nil();
    will_be_found(&mut observer, &[("deadlock", &["b", "a"]), ("deadlock", &["b", "a"])]);
    assert_eq!(cycles(&mut observer), [[""; 0]; 0]);
}

#[test]
fn locks_of_two_databases_make_one_circle() {
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    take(&mut a, "lock");
    b.line("SELECT 5").is_ok();
    take(&mut b, "lock");
    a.line("SELECT 5").is_ok();
    b.line("SELECT 0").is_ok();
    wait_for(&mut observer, &mut a, "lock");
    wait_for(&mut observer, &mut b, "lock");
    will_be_found(&mut observer, &[("deadlock", &["b", "a"])]);
    let shown = cycles(&mut observer).remove(0);
    assert!(shown.contains(&"a holds \"lock\" and waits for \"lock\" of database 5".to_owned()), "{shown:?}");
    // A lock of the same name in another database is another lock.
    let (mut observer, [mut a], _server) = locksmiths(["a"]);
    a.line("LOCK ACQUIRE lock token-of-16-bytes PX 60000").integer();
    a.line("SELECT 1").is_ok();
    a.line("LOCK ACQUIRE lock token-of-16-bytes PX 60000 WAIT 0").integer();
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn one_that_waits_for_its_own_lock_by_its_token_is_found() {
    for (token, is_own_connection, expected) in [
        ("t", true, true),
        ("token-of-16-bytes", true, true),
        ("token-of-16-bytes", false, true),
        // The token of all clients, perhaps.
        ("t", false, false),
    ] {
        let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
        a.line(&format!("LOCK ACQUIRE lock {token} PX 60000")).integer();
        let waits = if is_own_connection { &mut a } else { &mut b };
        waits.line(&format!("LOCK ACQUIRE lock {token} PX 60000 WAIT 20")).is_nil();
        let rules: Vec<_> = findings(&mut observer).into_iter().map(|(rule, ..)| rule).collect();
        assert_eq!(rules == ["waits-for-itself"], expected, "{token} {is_own_connection}: {rules:?}");
        assert!(expected || rules.is_empty());
    }
    // With AGAIN it has it. Another token is that of another task of a pool; and a client that comes back
    // waits for the lock that it had before it was gone.
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    a.line("LOCK ACQUIRE lock token-of-16-bytes PX 60000 AGAIN").integer();
    a.line("LOCK ACQUIRE lock token-of-16-bytes PX 60000 WAIT 0 AGAIN").integer();
    a.line("LOCK ACQUIRE lock another-token-of-16 PX 60000 WAIT 20").is_nil();
    drop(a);
    wait_until("it has left", || {
        let shown = observer.line("LOCKS GET lock").reply();
        field(&shown, "holder-connected") == Reply::Boolean(false)
    });
    b.line("LOCK ACQUIRE lock token-of-16-bytes PX 60000 WAIT 20").is_nil();
    assert_eq!(findings(&mut observer), []);
}

/// In a pool, the connection that has taken a lock waits for another task, and the first one goes on.
#[test]
fn connections_of_a_pool_are_in_no_circle() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    // What one has taken another one releases.
    take(&mut a, "warm");
    release_for(&a, &mut b, "warm");
    take(&mut a, "one");
    take(&mut b, "two");
    wait_for(&mut observer, &mut a, "two");
    wait_for(&mut observer, &mut b, "one");
    assert_eq!(cycles(&mut observer), [[""; 0]; 0]);
    release_for(&a, &mut c, "one");
    b.reply().integer();
    release_for(&b, &mut c, "two");
    a.reply().integer();
    assert_eq!(findings(&mut observer), []);
    // If that is known too late, the finding is withdrawn.
    let (mut observer, [mut a, mut b, mut c], server) = locksmiths(["a", "b", "c"]);
    take(&mut a, "one");
    take(&mut b, "two");
    wait_for(&mut observer, &mut a, "two");
    wait_for(&mut observer, &mut b, "one");
    will_be_found(&mut observer, &[("deadlock", &["b", "a"])]);
    release_for(&a, &mut c, "one");
    b.reply().integer();
    assert_eq!((findings(&mut observer), observer.info("locks_deadlock")), (vec![], "0".to_owned()));
    assert!(!server.output().contains("deadlock"), "there is no line yet");
    // A connection that waits for its own lock by another token has been lent to another task.
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    take(&mut a, "one");
    take(&mut b, "two");
    a.line("LOCK ACQUIRE one another PX 60000 WAIT 20").is_nil();
    wait_for(&mut observer, &mut a, "two");
    b.line("LOCK ACQUIRE one token PX 60000 WAIT 20").is_nil();
    assert_eq!(findings(&mut observer), []);
    // A task that has one token for its locks is in a circle by whatever connection.
    let (mut observer, [mut a, mut b, mut c, mut d], _server) = locksmiths(["a", "b", "c", "d"]);
    a.line("LOCK ACQUIRE one token-of-the-first-task PX 60000").integer();
    b.line("LOCK ACQUIRE two token-of-the-second-task PX 60000").integer();
    wait(&mut observer, &mut c, "LOCK ACQUIRE two token-of-the-first-task PX 60000 WAIT 0");
    wait(&mut observer, &mut d, "LOCK ACQUIRE one token-of-the-second-task PX 60000 WAIT 0");
    will_be_found(&mut observer, &[("deadlock", &["d", "c"])]);
}

#[test]
fn locks_of_libraries_and_their_waiting_lists_belong_to_circles() {
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    // python-redis-lock waits at a list.
    a.line("SET lock:one token-of-a NX EX 60").is_ok();
    b.line("SET two token-of-b NX PX 60000").is_ok();
    wait_for(&mut observer, &mut a, "two");
    b.line("SET lock:one token-of-b NX EX 60").is_nil();
    wait(&mut observer, &mut b, "BLPOP lock-signal:one 0");
    will_be_found(&mut observer, &[("deadlock", &["b", "a"])]);
    assert!(cycles(&mut observer)[0].contains(&"b holds \"two\" and waits for \"lock:one\"".to_owned()));
    // A list that wakes for a lock that is not there is no edge.
    let (mut observer, [mut a], _server) = locksmiths(["a"]);
    take(&mut a, "two");
    wait(&mut observer, &mut a, "BLPOP lock-signal:none 0");
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn locks_that_the_lens_does_not_follow_are_in_no_circle() {
    for (parameter, value) in [("lock-lens-ignore", "two"), ("lock-lens-only", "one"), ("lock-lens", "no")] {
        for is_set_before in [true, false] {
            let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
            let mut set = || observer.cmd(["CONFIG", "SET", parameter, value]).is_ok();
            if is_set_before {
                set();
            }
            take(&mut a, "one");
            take(&mut b, "two");
            if !is_set_before {
                set();
            }
            for (client, key) in [(&mut a, "two"), (&mut b, "one")] {
                let line = format!("LOCK ACQUIRE {key} {} PX 60000 WAIT 0", token(client, key));
                client.send_and_wait(&mut observer, &line);
            }
            assert_eq!(cycles(&mut observer), [[""; 0]; 0], "{parameter} {is_set_before}");
            assert!(locks(&mut observer).iter().all(|(key, ..)| key == "one" || parameter == "lock-lens"));
            observer.line("FLUSHALL").is_ok();
            a.reply().integer();
            b.reply().integer();
            assert_eq!(findings(&mut observer), [], "{parameter} {is_set_before}");
        }
    }
}

#[test]
fn permits_for_which_clients_wait_are_shown_by_their_tokens() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    for (client, token) in [(&mut a, "token-of-a"), (&mut b, "token-of-b")] {
        client.line(&format!("LOCK ACQUIRE lock {token} PX 60000 LIMIT 2")).integer();
    }
    wait(&mut observer, &mut c, "LOCK ACQUIRE lock token-of-c PX 60000 LIMIT 2 WAIT 0");
    let lock = array(&graph(&mut observer), "locks").remove(0);
    let mut shown: Vec<String> =
        array(&lock, "holders").iter().map(|holder| text(holder, "token-digest")).collect();
    let mut expected = ["token-of-a", "token-of-b"].map(|token| {
        observer.cmd(["SET", "digested", token]).is_ok();
        observer.line("DIGEST digested").text()
    });
    shown.sort();
    expected.sort();
    assert_eq!((shown, integer(&lock, "waiting")), (expected.to_vec(), 1));
    a.line("LOCK RELEASE lock token-of-a").is(1);
    c.reply().integer();
    // A reader that waits for a writer, and has a lock for which the writer waits.
    observer.line("FLUSHALL").is_ok();
    take(&mut a, "written");
    take(&mut b, "other");
    wait(&mut observer, &mut b, "LOCK ACQUIRE written reader PX 60000 SHARED WAIT 0");
    wait_for(&mut observer, &mut a, "other");
    will_be_found(&mut observer, &[("deadlock", &["a", "b"])]);
}

#[test]
fn a_client_that_waits_for_several_locks_waits_for_each_of_their_holders() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    take(&mut a, "one");
    take(&mut b, "two");
    take(&mut c, "three");
    let also = |client: &Client, keys: &str| {
        let (first, others) = keys.split_once(' ').expect("two keys at least");
        let (token, count) = (token(client, first), others.split(' ').count());
        format!("LOCK ACQUIRE {first} {token} PX 60000 WAIT 0 ALSO {count} {others}")
    };
    let line = also(&a, "three two free");
    wait(&mut observer, &mut a, &line);
    let waited_for: Vec<String> = locks(&mut observer)
        .into_iter()
        .filter(|(.., waiting)| *waiting == ["a"])
        .map(|(key, ..)| key)
        .collect();
    assert_eq!(waited_for.len(), 3, "{waited_for:?}");
    assert_eq!(cycles(&mut observer), [[""; 0]; 0]);
    wait_for(&mut observer, &mut b, "one");
    will_be_found(&mut observer, &[("deadlock", &["b", "a"])]);
    // Locks that are taken together have no order, and do not show that tasks share the connection.
    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    for (client, keys) in [(&mut a, "mail report job:1 job:2"), (&mut b, "report mail job:2 job:1")] {
        let line = also(client, keys);
        client.line(&line).integer();
        client.line("DEL mail report job:1 job:2").is(4);
    }
    assert_eq!(findings(&mut observer), []);
    for (client, first, second) in [(&mut a, "mail", "report"), (&mut b, "report", "mail")] {
        take(client, first);
        take_soon(client, second);
        release(client, second);
        release(client, first);
    }
    is_found(&mut observer, &[("lock-order-inversion", &["b", "a"])]);
}

#[test]
fn two_orders_of_two_locks_are_found_before_clients_meet() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    let both = |client: &mut Client, first: &str, second: &str| {
        take(client, first);
        take_soon(client, second);
        release(client, second);
        release(client, first);
    };
    both(&mut a, "mail", "report");
    both(&mut c, "mail", "report");
    // The same client may have two orders.
    both(&mut c, "report", "backup");
    both(&mut c, "backup", "report");
    is_found(&mut observer, &[]);
    both(&mut b, "report", "mail");
    is_found(&mut observer, &[("lock-order-inversion", &["b", "c"])]);
    let told = timeline(&mut observer);
    assert!(told.contains("held \"report\"") || told.contains("report"), "{told}");
    both(&mut b, "report", "mail");
    both(&mut a, "mail", "report");
    assert_eq!(findings(&mut observer).len(), 1, "one finding");
}

#[test]
fn an_order_of_clients_that_wait_counts_and_a_lock_around_both_makes_it_harmless() {
    let (mut observer, [mut a, mut b, mut c], _server) = locksmiths(["a", "b", "c"]);
    take(&mut c, "report");
    take(&mut a, "mail");
    wait_for(&mut observer, &mut a, "report");
    release(&mut c, "report");
    a.reply().integer();
    release(&mut a, "report");
    release(&mut a, "mail");
    take(&mut c, "mail");
    take(&mut b, "report");
    wait_for(&mut observer, &mut b, "mail");
    will_be_found(&mut observer, &[("lock-order-inversion", &["b", "a"])]);

    let (mut observer, [mut a, mut b], _server) = locksmiths(["a", "b"]);
    for (client, first, second) in [(&mut a, "mail", "report"), (&mut b, "report", "mail")] {
        take(client, "all");
        take(client, first);
        take_soon(client, second);
        [first, second, "all"].into_iter().for_each(|key| release(client, key));
    }
    is_found(&mut observer, &[]);
}

#[test]
fn orders_of_tasks_that_share_a_connection_are_none() {
    for (how, expected) in [("one task", 1), ("two of a pattern", 0), ("a pool", 0), ("no WAIT", 0)] {
        let (mut observer, [mut a, mut b, mut other], _server) = locksmiths(["a", "b", "other"]);
        for (client, first, second) in [(&mut a, "mail", "report"), (&mut b, "report", "mail")] {
            match how {
                "two of a pattern" => {
                    for line in ["SET job:1 x NX PX 60000", "SET job:2 x NX PX 60000"] {
                        client.line(line).is_ok();
                    }
                    client.line("DEL job:1 job:2").is(2);
                }
                "a pool" => {
                    take(client, "warm");
                    release_for(client, &mut other, "warm");
                }
                _ => {}
            }
            take(client, first);
            if how == "no WAIT" {
                take(client, second)
            } else {
                take_soon(client, second)
            }
            release(client, second);
            release(client, first);
        }
        assert_eq!(findings(&mut observer).len(), expected, "{how}");
    }
}

/// Locks of the parts of a list: the next one is taken before the last one is released.
#[test]
fn hand_over_hand_in_one_direction_is_right() {
    let (mut observer, mut clients, _server) = locksmiths(["a", "b", "c"]);
    for _ in 0..3 {
        for client in &mut clients {
            take(client, "node:1");
            for (held, next) in [(1, 2), (2, 3), (3, 4)] {
                take_soon(client, &format!("node:{next}"));
                release(client, &format!("node:{held}"));
            }
            release(client, "node:4");
        }
    }
    assert_eq!(findings(&mut observer), []);
}

#[test]
fn leaders_of_several_duties_are_in_no_circle() {
    let server = Server::start();
    let mut observer = server.client3();
    // Each process has a connection for each duty, and one token for all.
    let mut processes: Vec<[Client; 2]> = (0..3).map(|_| [server.client3(), server.client3()]).collect();
    let line = |process: usize, duty: usize| {
        let token = format!("{process}-8f14e45f-ceea-467f");
        format!("LOCK ACQUIRE duty-{} {token} PX 60000 WAIT 0 AGAIN BOUND GRACE 0", ["mail", "report"][duty])
    };
    processes[0][0].line(&line(0, 0)).integer();
    processes[0][1].line(&line(0, 1)).integer();
    for (number, process) in processes.iter_mut().enumerate().skip(1) {
        for (duty, connection) in process.iter_mut().enumerate() {
            wait(&mut observer, connection, &line(number, duty));
        }
    }
    // The process ends, and the next one leads in both.
    for _ in 0..2 {
        drop(processes.remove(0));
        let [mail, report] = &mut processes[0];
        mail.reply().integer();
        report.reply().integer();
    }
    assert_eq!((findings(&mut observer), cycles(&mut observer)), (vec![], vec![]));
}

#[test]
fn very_many_clients_that_wait_are_counted_and_few_are_shown() {
    const CLIENTS: usize = 400;
    let server = Server::start();
    let mut observer = server.client3();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client3()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        take(client, &format!("lock:{number}"));
    }
    // A circle of all of them.
    for (number, client) in clients.iter_mut().enumerate() {
        let next = (number + 1) % CLIENTS;
        client.send(format!("LOCK ACQUIRE lock:{next} token PX 60000 WAIT 0\r\n").as_bytes());
    }
    wait_until("all wait", || observer.info("blocked_clients") == CLIENTS.to_string());
    wait_until("it is found", || findings(&mut observer).len() == 1);
    let found = observer.line("LOCKS LOG 1").items();
    assert_eq!((text(&found[0], "rule"), array(&found[0], "clients").len()), ("deadlock".into(), 16));
    assert_eq!(cycles(&mut observer)[0].len(), 64);
    let shown = graph(&mut observer);
    assert_eq!((array(&shown, "locks").len(), integer(&shown, "more-locks")), (100, CLIENTS as i64 - 100));
    drop(clients.split_off(CLIENTS / 2));
    wait_until("it is broken", || cycles(&mut observer).is_empty());
    // All wait for one lock.
    observer.line("FLUSHALL").is_ok();
    wait_until("each has what it waited for", || observer.info("blocked_clients") == "0");
    clients.iter_mut().for_each(|client| client.reply().ignored());
    observer.line("FLUSHALL").is_ok();
    take(&mut observer, "lock");
    for client in &mut clients {
        client.send(b"LOCK ACQUIRE lock token PX 60000 WAIT 0\r\n");
    }
    wait_until("all are shown", || waiting(&mut observer) == CLIENTS as i64 / 2);
    let lock = array(&graph(&mut observer), "locks").remove(0);
    assert_eq!(array(&lock, "waiting-clients").len(), 8);
}

#[test]
fn a_lock_that_is_renewed_for_far_longer_than_by_those_before_is_found() {
    for (how, expected) in [
        ("a hung job", 1),
        ("no client wants it", 0),
        ("the holders before were leaders, too", 0),
        ("the holders before have left", 0),
        ("few holders before", 0),
        ("a bound lock", 0),
    ] {
        let (mut observer, [mut a, mut b], server) = frozen(["a", "b"]);
        let holders = if how == "few holders before" { 2 } else { 3 };
        let mut stay = Vec::new();
        for _ in 0..holders {
            let mut before = server.client3();
            take(&mut before, "lock");
            if how.contains("leaders") {
                let token = token(&before, "lock");
                before.line(&format!("LOCK EXTEND lock {token} PX 60000")).integer();
            }
            release(&mut before, "lock");
            if !how.contains("left") {
                stay.push(before);
            }
        }
        if how.contains("left") {
            wait_until("they have left", || observer.info("connected_clients") == "3");
        }
        let bound = if how.contains("bound") { " BOUND" } else { "" };
        a.line(&format!("LOCK ACQUIRE lock the-token-of-a PX 9000{bound}")).integer();
        for round in 0..200 {
            observer.line("CLOCK ADVANCE 3000").is_ok();
            if bound.is_empty() {
                a.line("LOCK EXTEND lock the-token-of-a PX 9000").integer();
            }
            if how != "no client wants it" {
                b.line("LOCK ACQUIRE lock token-of-b PX 9000").is_nil();
            }
            assert!(round > 150 || findings(&mut observer).is_empty(), "{how}: {round}");
        }
        assert_eq!(findings(&mut observer).len(), expected, "{how}");
        if expected > 0 {
            is_found(&mut observer, &[("renewed-too-long", &["a"])]);
        }
    }
}
