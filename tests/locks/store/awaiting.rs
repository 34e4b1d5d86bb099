//! LOCKS GET and LOCKS GRAPH at a front-end: who has a lock in the store, as the row says, and which clients
//! of this front-end wait for it.

use super::{Kind, acquainted};
use support::client::{Client, Reply};
use support::replies::{array, field, integer, text};
use support::server::Server;
use support::store::cluster::eventually;

on_both! {
    a_front_end_shows_permits_and_who_waits_there
    a_front_end_shows_who_waits_for_whom_among_its_clients
}

/// Lets a client with a name wait for a lock.
fn waiting(front: &Server, name: &str, line: &str) -> Client {
    let mut client = front.client();
    client.cmd(["CLIENT", "SETNAME", name]).is_ok();
    front.have_wait(&mut client, line);
    client
}

/// The names of clients that wait.
fn names(clients: &[Reply], within: &str) -> Vec<String> {
    clients.iter().map(|client| text(client, &format!("{within}name"))).collect()
}

fn a_front_end_shows_permits_and_who_waits_there(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "shows-permits") else { return };
    let (mut a, mut b) = (one.client3(), other.client3());
    a.line("LOCK ACQUIRE l t1 PX 60000 SHARED").integer();
    b.line("LOCK ACQUIRE l t2 PX 90000 LIMIT 2").integer();
    let writer = waiting(&one, "writer", "LOCK ACQUIRE l w PX 60000 WAIT 0");
    // Also when its mark is among the permits.
    eventually("its mark is there", || a.line("ZCARD l").integer() == 3);
    for (client, waits) in [(&mut a, 1), (&mut b, 0)] {
        let shown = client.line("LOCKS GET l").reply();
        assert_eq!((text(&shown, "state"), integer(&shown, "holders")), ("shared".to_owned(), 2), "{shown}");
        assert!((1..=90_000).contains(&integer(&shown, "expires-in-ms")), "{shown}");
        let permits = array(&shown, "permits");
        client.line("SET k t1").is_ok();
        assert_eq!(client.line("DIGEST k").reply(), field(&permits[0], "token-digest"));
        assert!((1..=60_000).contains(&integer(&permits[0], "expires-in-ms")), "{shown}");
        assert_eq!((permits.len(), integer(&shown, "waiting")), (2, waits));
        assert_eq!(array(&shown, "waiting-clients").len(), waits as usize);
    }
    drop(writer);
    a.line("LOCK BREAK l").is(1);
    // Of a lock of one holder, too.
    b.line("LOCK ACQUIRE l h PX 60000").integer();
    let waiting: Vec<Client> = (0..10)
        .map(|number| waiting(&one, &format!("c{number}"), "LOCK ACQUIRE l w PX 60000 WAIT 0"))
        .collect();
    let shown = a.line("LOCKS GET l").reply();
    assert_eq!((text(&shown, "state"), integer(&shown, "waiting")), ("held".to_owned(), 10));
    let first: Vec<String> = (0..8).map(|number| format!("c{number}")).collect();
    assert_eq!(names(&array(&shown, "waiting-clients"), ""), first);
    drop(waiting);
    // A writer of Symfony Lock holds it alone.
    let lua = "local t = redis.call('TIME') local e = t[1] * 1000 + math.floor(t[2] / 1000) + 60000 \
               redis.call('ZADD', KEYS[1], e, ARGV[1], e, '__write__') \
               redis.call('PEXPIREAT', KEYS[1], e) return 1";
    a.cmd(["EVAL", lua, "1", "symfony", "a-writer"]).is(1);
    let shown = b.line("LOCKS GET symfony").reply();
    assert_eq!((text(&shown, "state"), text(&shown, "type")), ("held".to_owned(), "zset".to_owned()));
    // Its row is no token.
    assert_eq!(field(&shown, "token-digest"), Reply::Null);
    // Any other sorted set is no lock.
    a.line("ZADD set 1 x").is(1);
    a.line("LOCKS GET set").is(Reply::Null);
}

/// The locks of the graph by their keys, and its cycles.
fn graph(front: &Server, options: &str) -> (Vec<(String, Reply)>, Vec<Reply>) {
    let graph = front.client3().line(format!("LOCKS GRAPH {options}").trim()).reply();
    let locks = array(&graph, "locks").into_iter().map(|lock| (text(&lock, "key"), lock));
    (locks.collect(), array(&graph, "cycles"))
}

fn a_front_end_shows_who_waits_for_whom_among_its_clients(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "shows-waits") else { return };
    let (mut a, mut b, mut far) = (one.client(), one.client(), other.client());
    assert_eq!(graph(&one, ""), (Vec::new(), Vec::new()));
    for (client, key, name) in [(&mut a, "a", "ann"), (&mut b, "b", "bob"), (&mut far, "f", "far")] {
        client.cmd(["CLIENT", "SETNAME", name]).is_ok();
        client.line(&format!("LOCK ACQUIRE {key} {name} PX 60000")).integer();
    }
    // The first one waits for the second, and for one at the other front-end, where another one waits, too.
    one.have_wait(&mut a, "LOCK ACQUIRE b x PX 60000 WAIT 0 ALSO 1 f");
    let _late = waiting(&one, "late", "LOCK ACQUIRE b y PX 60000 WAIT 0");
    let _elsewhere = waiting(&other, "elsewhere", "LOCK ACQUIRE a z PX 60000 WAIT 0");
    eventually("the holders are known", || {
        let (locks, cycles) = graph(&one, "");
        assert_eq!(cycles, []);
        let known = locks.iter().filter(|(_, lock)| !array(lock, "holders").is_empty());
        known.count() == 2
    });
    let (locks, _) = graph(&one, "");
    let keys: Vec<&str> = locks.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["b", "f"], "those for which the most clients wait come first");
    for ((_, lock), (holder, clients)) in locks.iter().zip([("bob", &["ann", "late"][..]), ("far", &["ann"])])
    {
        let held = &array(lock, "holders")[0];
        assert!(text(held, "holder").ends_with(&format!("name={holder}")), "{lock}");
        assert!((1..=60_000).contains(&integer(held, "expires-in-ms")), "{lock}");
        assert!(integer(held, "fencing") > 0 && integer(held, "held-ms") >= 0, "{lock}");
        assert_eq!(integer(lock, "waiting"), clients.len() as i64);
        let waiting = array(lock, "waiting-clients");
        assert_eq!(names(&waiting, "client."), clients, "{lock}");
        assert!(integer(&waiting[0], "waits-ms") >= 0 && text(&waiting[0], "by") == "lock|acquire");
    }
    // What the holder at the other front-end waits for cannot be seen here: it is no cycle.
    other.have_wait(&mut far, "LOCK ACQUIRE a x PX 60000 WAIT 0");
    assert_eq!(graph(&one, "").1, []);
    let (locks, _) = graph(&other, "MATCH a COUNT 1");
    assert_eq!((locks.len(), integer(&locks[0].1, "waiting")), (1, 2));
    // The second one of the same front-end waits for the first: neither goes on.
    one.have_wait(&mut b, "LOCK ACQUIRE a v PX 60000 WAIT 0");
    eventually("the cycle is seen", || !graph(&one, "").1.is_empty());
    let (locks, cycles) = graph(&one, "MATCH a");
    assert_eq!((locks.len(), cycles.len(), integer(&locks[0].1, "cycle")), (1, 1, 1));
    let words = cycles[0].to_string();
    for (client, held, wanted) in [("ann", "a", "b"), ("bob", "b", "a")] {
        assert!(words.contains(&format!("'{client}'")), "{words}");
        let part = format!("holds \\\"{held}\\\" and waits for \\\"{wanted}\\\"");
        assert!(words.contains(&part) || words.contains(&part.replace('\\', "")), "{words}");
    }
    // A user sees only locks whose keys it may read.
    let mut user = one.client3();
    user.line("ACL SETUSER u on nopass ~f +@all").is_ok();
    user.line("AUTH u p").is_ok();
    let shown = user.line("LOCKS GRAPH").reply();
    assert_eq!((array(&shown, "locks").len(), array(&shown, "cycles").len()), (1, 0), "{shown}");
    // Whatever breaks it, it has gone from the graph.
    one.client().line("LOCK BREAK b").is(1);
    eventually("it is broken", || graph(&one, "").1.is_empty());
    // A client that comes again for its own lock does not wait for itself.
    let mut again = one.client();
    again.line("LOCK ACQUIRE own a-token-of-sixteen-bytes PX 60000").integer();
    other.client().line("LOCK ACQUIRE more y PX 60000").integer();
    one.have_wait(&mut again, "LOCK ACQUIRE own a-token-of-sixteen-bytes PX 60000 WAIT 0 AGAIN ALSO 1 more");
    eventually("both are seen", || {
        graph(&one, "MATCH *o*").0.iter().all(|(_, lock)| !array(lock, "holders").is_empty())
    });
    assert_eq!(graph(&one, "").1, []);
    // Nor does another task of a pool, which waits by its connection.
    let mut pooled = one.client();
    pooled.line("LOCK ACQUIRE pool one-token-of-sixteen-bytes PX 60000").integer();
    one.have_wait(&mut pooled, "LOCK ACQUIRE pool other-token-of-sixteen PX 60000 WAIT 0");
    let mut itself = one.client();
    itself.line("LOCK ACQUIRE self another-token-of-sixteen PX 60000").integer();
    let _itself = waiting(&one, "itself", "LOCK ACQUIRE self another-token-of-sixteen PX 60000 WAIT 0");
    eventually("it waits for itself", || graph(&one, "").1.len() == 1);
}
