//! Clients that wait for keys in a store: who is served first at a front-end, that those of no front-end wait
//! for ever, how often the store is asked for them, and what becomes of elements if clients leave.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Cluster, Kind, acquainted, wait_until_heard};
use support::client::{Client, Reply, request};
use support::server::{Server, SetOnDrop};
use support::store::cluster::eventually;

on_both! {
    clients_of_one_front_end_are_served_in_the_order_in_which_they_came
    of_two_front_ends_each_serves_its_clients_in_the_order_in_which_they_came
    members_of_a_sorted_set_go_to_clients_in_this_order_too
    one_client_beside_a_hundred_at_another_front_end_is_served
    those_who_write_one_key_at_three_front_ends_all_come_to_their_turns
    each_push_costs_the_store_two_requests_however_many_wait
    so_it_is_over_two_front_ends
    clients_that_wait_for_two_thousand_keys_cost_the_store_next_to_nothing
    who_leaves_the_line_loses_no_element_and_keeps_no_other_waiting
    elements_are_neither_lost_nor_doubled_while_clients_give_up
    a_client_that_waits_for_several_keys_stands_in_each_line
    a_key_of_another_type_serves_its_own_line_only
    all_that_read_a_stream_get_its_entry
    a_front_end_that_hangs_is_passed_over
}

/// Sends a request that waits, and waits until it does.
#[track_caller]
fn wait(front: &Server, line: &str) -> Client {
    let mut client = front.client();
    front.have_wait(&mut client, line);
    client
}

/// How many requests front-ends have sent to the store.
fn requests(fronts: &[&Server]) -> u64 {
    let of = |front: &&Server| front.client().info("store_requests").parse::<u64>().expect("a number");
    fronts.iter().map(of).sum()
}

/// Whether a reply has this element, or member, in it.
#[track_caller]
fn has(client: &mut Client, element: &str) {
    let reply = client.reply().reply().to_string();
    assert!(reply.contains(&format!("\"{element}\"")), "{reply} instead of {element}");
}

/// Has clients wait with these commands at these front-ends by turns, fills their key, and checks that the
/// clients of each front-end get what comes in the order in which they came.
fn are_served_in_order(fronts: &[&Server], lines: &[&str], fill: impl Fn(usize) -> String) {
    const CLIENTS: usize = 25;
    let wait_at = |number: usize| wait(fronts[number % fronts.len()], lines[number % lines.len()]);
    let are_in_order = |clients: Vec<Client>| {
        let mut last = vec![None; fronts.len()];
        let mut seen: Vec<usize> = Vec::new();
        for (number, mut client) in clients.into_iter().enumerate() {
            let reply = client.reply().reply().to_string();
            let got = reply.split('"').find_map(|part| part.strip_prefix('e')?.parse::<usize>().ok());
            let got = got.unwrap_or_else(|| panic!("{reply}"));
            assert!(last[number % fronts.len()].replace(got) < Some(got), "{number} got {got}");
            seen.push(got);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..CLIENTS).collect::<Vec<_>>());
    };
    let clients: Vec<Client> = (0..CLIENTS).map(wait_at).collect();
    let mut pushers: Vec<Client> = fronts.iter().map(|front| front.client()).collect();
    for number in 0..CLIENTS {
        let pusher = &mut pushers[number / 2 % fronts.len()];
        pusher.line(&fill(number)).ignored();
        eventually("it is taken", || pusher.line("EXISTS queue").integer() == 0);
    }
    are_in_order(clients);
    // All at once: the elements go to them in the same order.
    let clients: Vec<Client> = (0..CLIENTS).map(wait_at).collect();
    pushers[0].line("MULTI").is_ok();
    (0..CLIENTS).for_each(|number| pushers[0].line(&fill(number)).is_simple("QUEUED"));
    pushers[0].line("EXEC").ignored();
    are_in_order(clients);
}

const POPS: [&str; 4] =
    ["BLPOP queue 0", "BLMOVE queue done LEFT RIGHT 0", "BLMPOP 0 1 queue LEFT", "BLPOP queue 50"];

fn clients_of_one_front_end_are_served_in_the_order_in_which_they_came(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "line") else { return };
    are_served_in_order(&[&cluster.front(&[])], &POPS, |number| format!("RPUSH queue e{number}"));
}

fn of_two_front_ends_each_serves_its_clients_in_the_order_in_which_they_came(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "lines") else { return };
    are_served_in_order(&[&one, &other], &POPS, |number| format!("RPUSH queue e{number}"));
}

fn members_of_a_sorted_set_go_to_clients_in_this_order_too(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "members") else { return };
    let lines = ["BZPOPMIN queue 0", "BZMPOP 0 1 queue MIN"];
    are_served_in_order(&[&one, &other], &lines, |number| format!("ZADD queue {number} e{number}"));
}

fn one_client_beside_a_hundred_at_another_front_end_is_served(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "hundred") else { return };
    let (is_over, grants) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        for number in 0..100 {
            let (mut client, is_over, grants) = (one.client(), &is_over, &grants);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Those that still wait when it is over leave soon.
                    let line = format!("LOCK ACQUIRE l t{number} PX 60000 WAIT 2000");
                    if let Reply::Integer(_) = client.line(&line).reply() {
                        grants.fetch_add(1, Ordering::Relaxed);
                        client.line(&format!("LOCK RELEASE l t{number}")).is(1);
                    }
                }
            });
        }
        eventually("they take turns", || grants.load(Ordering::Relaxed) > 20);
        let mut client = other.client();
        for _ in 0..3 {
            let before = grants.load(Ordering::Relaxed);
            client.line("LOCK ACQUIRE l own PX 60000 WAIT 3000").integer();
            client.line("LOCK RELEASE l own").is(1);
            eventually("the others go on", || grants.load(Ordering::Relaxed) > before);
        }
    });
}

fn those_who_write_one_key_at_three_front_ends_all_come_to_their_turns(kind: Kind) {
    const CLIENTS: usize = 12;
    let Some(cluster) = Cluster::start(kind, "writers") else { return };
    let fronts = [(); 3].map(|()| cluster.front(&[]));
    fronts[1..].iter().for_each(|front| wait_until_heard(&mut fronts[0].client(), front));
    let (began, longest) = (Instant::now(), AtomicUsize::new(0));
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (mut client, longest, written) = (fronts[number % 3].client(), &longest, &written);
            scope.spawn(move || {
                while began.elapsed() < Duration::from_millis(2_500) {
                    let asked = Instant::now();
                    client.line("INCR count").integer();
                    longest.fetch_max(asked.elapsed().as_millis() as usize, Ordering::Relaxed);
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (longest_ms, written) = (longest.into_inner(), written.into_inner());
    eprintln!("{written} writes, the longest took {longest_ms} ms");
    fronts[0].client().line("GET count").is(written.to_string().as_str());
    assert!(longest_ms < 2_000, "{longest_ms} ms");
}

/// Pushes to clients that wait at these front-ends, and returns how many requests that has cost.
fn cost_of_pushes(fronts: &[&Server], clients: usize, pushes: usize) -> u64 {
    let mut waiting: Vec<Client> = fronts.iter().map(|front| front.client()).collect();
    let mut clients: Vec<Client> = (0..clients)
        .map(|number| {
            let mut client = fronts[number % fronts.len()].client();
            client.send(&request(["BLPOP", "queue", "0"]));
            client
        })
        .collect();
    eventually("they wait", || {
        let blocked =
            |client: &mut Client| client.info("blocked_clients").parse::<usize>().expect("a number");
        waiting.iter_mut().map(blocked).sum::<usize>() == clients.len()
    });
    let (before, began) = (requests(fronts), Instant::now());
    for number in 0..pushes {
        waiting[number % fronts.len()].line(&format!("RPUSH queue e{number}")).ignored();
    }
    eventually("all elements are taken", || waiting[0].line("LLEN queue").integer() == 0);
    let (spent, took) = (requests(fronts) - before, began.elapsed());
    eprintln!("{} BLPOPs, {pushes} pushes: {spent} requests in {took:?}", clients.len());
    let served =
        clients.iter_mut().filter_map(|one| (!one.is_silent_for(Duration::from_millis(1))).then_some(()));
    assert_eq!(served.count(), pushes);
    // Those that asked whether all are taken, and the looks once a second.
    spent.saturating_sub(100)
}

fn each_push_costs_the_store_two_requests_however_many_wait(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "pushes") else { return };
    let front = cluster.front(&[]);
    assert!(cost_of_pushes(&[&front], 300, 300) <= 600);
    assert!(cost_of_pushes(&[&front], 300, 20) <= 40);
}

fn so_it_is_over_two_front_ends(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "pushes-over") else { return };
    // The first of each front-end asks. What another request was faster than counts twice: a push, and a
    // take.
    assert!(cost_of_pushes(&[&one, &other], 300, 300) <= 1_500);
    assert!(cost_of_pushes(&[&one, &other], 300, 20) <= 100);
}

/// How many statements, or calls, the store has executed. PostgreSQL counts what it has executed a second
/// later.
fn statements(cluster: &Cluster) -> u64 {
    match cluster {
        Cluster::Postgres(postgres) => {
            let count = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
            postgres.sql(0, count).expect("a reply").parse().expect("a number")
        }
        Cluster::Etcd(etcd) => {
            let page = etcd.metrics();
            let calls = page.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
            let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
            calls.filter_map(count).sum::<f64>() as u64
        }
    }
}

fn clients_that_wait_for_two_thousand_keys_cost_the_store_next_to_nothing(kind: Kind) {
    const CLIENTS: usize = 40;
    const KEYS: usize = 50;
    let Some((cluster, one, other)) = acquainted(kind, "idle") else { return };
    let fronts = [&one, &other];
    let keys = |client: usize| (0..KEYS).map(|key| format!("k{client}:{key}")).collect::<Vec<_>>();
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|client| wait(fronts[client % 2], &format!("BLPOP {} 0", keys(client).join(" "))))
        .collect();
    // Once each has looked.
    thread::sleep(Duration::from_secs(1));
    let (asked, before, began) = (requests(&fronts), statements(&cluster), Instant::now());
    thread::sleep(Duration::from_secs(3));
    let (spent, seconds) = (statements(&cluster) - before, began.elapsed().as_secs_f64());
    eprintln!("{spent} statements in {seconds:.1} s");
    // PostgreSQL's numbers may be those of a second more.
    assert!(spent as f64 / (seconds + 1.0) < 20.0, "{spent} statements in {seconds} s");
    assert_eq!(requests(&fronts) - asked, 0);
    other.client().line("RPUSH k0:7 e").is(1);
    has(&mut clients[0], "e");
}

marked!(needs_tools: what_a_front_end_pushed_that_died_before_it_said_so_is_found);
fn what_a_front_end_pushed_that_died_before_it_said_so_is_found() {
    // etcd itself sends what has changed.
    let Some((cluster, one, other)) = acquainted(Kind::Postgres, "unheard") else { return };
    let Cluster::Postgres(postgres) = &cluster else { return };
    let mut pusher = other.client();
    for key in ["queue", "stored"] {
        pusher.line(&format!("RPUSH {key} e")).is(1);
    }
    pusher.line("LPOP queue").is("e");
    let mut client = wait(&one, "BLPOP queue 0");
    let began = Instant::now();
    let push = "UPDATE keyfast.keys q SET (kind, value, expires, version) = \
                (SELECT kind, value, expires, version + 1 FROM keyfast.keys WHERE key = 'stored') \
                WHERE key = 'queue'";
    postgres.sql(0, push).expect("a statement");
    has(&mut client, "e");
    eprintln!("found after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(3));
}

fn who_leaves_the_line_loses_no_element_and_keeps_no_other_waiting(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "leaving") else { return };
    // All at one front-end, and the pushes come from both.
    let fronts = [&one, &one];
    let lines: Vec<&str> =
        (0..10).map(|number| if number == 5 { "BLPOP queue 0.1" } else { "BLPOP queue 0" }).collect();
    let ids = |front: &Server| {
        let mut client = front.client();
        let id = client.line("CLIENT ID").integer();
        (client, id)
    };
    let mut clients: Vec<(Client, i64)> = Vec::new();
    let mut looker = [one.client(), one.client()];
    let mut pushers = [one.client(), other.client()];
    for (number, line) in lines.iter().enumerate() {
        let (mut client, id) = ids(fronts[number % 2]);
        client.send(&request(line.split(' ')));
        let shown = |looker: &mut Client| looker.line(&format!("CLIENT LIST ID {id}")).text();
        eventually("it waits", || number == 5 || shown(&mut looker[number % 2]).contains(" flags=b "));
        clients.push((client, id));
    }
    // The first, one in the middle and the last one go.
    clients[5].0.reply().is_nil();
    looker[0].line(&format!("CLIENT KILL ID {}", clients[0].1)).is(1);
    looker[1].line(&format!("CLIENT KILL ID {}", clients[3].1)).is(1);
    looker[0].line(&format!("CLIENT UNBLOCK {}", clients[4].1)).is(1);
    looker[1].line(&format!("CLIENT UNBLOCK {} ERROR", clients[9].1)).is(1);
    clients[4].0.reply().is_nil();
    clients[9].0.reply().is_error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    for (push, number) in [1, 2, 6, 7, 8].into_iter().enumerate() {
        pushers[push % 2].line(&format!("RPUSH queue e{number}")).is(1);
        has(&mut clients[number].0, &format!("e{number}"));
    }
    looker[0].line("LLEN queue").is(0);
}

fn elements_are_neither_lost_nor_doubled_while_clients_give_up(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "giving-up") else { return };
    let (fronts, mut pusher) = ([&one, &other], one.client());
    let (mut taken, mut pushed) = (0, 0);
    for round in 0..40 {
        let mut clients: Vec<(Client, i64)> = (0..4)
            .map(|number| {
                let mut client = fronts[number % 2].client();
                let id = client.line("CLIENT ID").integer();
                // Some give up at about the moment at which there is something.
                let timeout = if number < 2 { "0.02" } else { "0.3" };
                client.send(&request(["BLPOP", "queue", timeout]));
                (client, id)
            })
            .collect();
        let elements = round % 4;
        for _ in 0..elements {
            pusher.line("RPUSH queue e").ignored();
            pushed += 1;
        }
        for (number, (_, id)) in clients.iter().enumerate() {
            fronts[number % 2].client().line(&format!("CLIENT UNBLOCK {id}")).ignored();
        }
        for (client, _) in &mut clients {
            if client.reply().reply() != Reply::Null {
                taken += 1;
            }
        }
    }
    let left = pusher.line("LLEN queue").integer();
    assert_eq!(taken + left, pushed, "{left} are left");
}

fn a_client_that_waits_for_several_keys_stands_in_each_line(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "several") else { return };
    let mut clients = ["BLPOP a b 0", "BLPOP b 0", "BLPOP b a 0", "BLPOP a c 0", "BLPOP c a 0"]
        .map(|line| wait(&one, line));
    let mut pusher = other.client();
    for (number, key) in [(0, "b"), (1, "b"), (3, "c"), (2, "a"), (4, "a")] {
        pusher.line(&format!("RPUSH {key} e{number}")).is(1);
        has(&mut clients[number], &format!("e{number}"));
    }
    // Two keys get something at once. The first client gets what is in its first key.
    let mut clients = ["BLPOP a 0", "BLPOP a b 0", "BLPOP b a 0"].map(|line| wait(&one, line));
    for line in ["MULTI", "RPUSH a e0 e1", "RPUSH b e2", "EXEC"] {
        pusher.line(line).ignored();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        has(client, &format!("e{number}"));
    }
    pusher.line("EXISTS a b c").is(0);
}

fn a_key_of_another_type_serves_its_own_line_only(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "kinds") else { return };
    let (mut popper, mut member) = (wait(&one, "BLPOP key 0"), wait(&other, "BZPOPMIN key 0"));
    let mut late = wait(&other, "BZPOPMIN key 0");
    let mut writer = one.client();
    writer.line("SET key text").is_ok();
    writer.line("BLPOP key 0").is_error("WRONGTYPE Operation against a key holding the wrong kind of value");
    writer.line("DEL key").is(1);
    writer.line("ZADD key 1 m").is(1);
    has(&mut member, "m");
    writer.line("ZADD key 1 n").is(1);
    has(&mut late, "n");
    writer.line("RPUSH key e").is(1);
    has(&mut popper, "e");
    writer.line("EXISTS key").is(0);
}

fn all_that_read_a_stream_get_its_entry(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "readers") else { return };
    let fronts = [&one, &other];
    other.client().line("XGROUP CREATE stream group $ MKSTREAM").is_ok();
    let mut readers: Vec<Client> =
        (0..10).map(|number| wait(fronts[number % 2], "XREAD BLOCK 0 STREAMS stream $")).collect();
    let mut members: Vec<Client> = (0..4)
        .map(|number| {
            let line = format!("XREADGROUP GROUP group c{number} COUNT 1 BLOCK 0 STREAMS stream >");
            wait(fronts[number % 2], &line)
        })
        .collect();
    let mut writer = one.client();
    writer.line("XADD stream 1-1 f v").is("1-1");
    readers.iter_mut().for_each(|reader| has(reader, "1-1"));
    for entry in 2..5 {
        writer.line(&format!("XADD stream {entry}-1 f v")).ignored();
    }
    // Each of them gets another one.
    let mut entries: Vec<String> = members.iter_mut().map(|one| one.reply().reply().to_string()).collect();
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), 4);
    let mut member = wait(&other, "XREADGROUP GROUP group c BLOCK 0 STREAMS stream >");
    writer.line("DEL stream").is(1);
    member
        .reply()
        .is_error("NOGROUP No such key 'stream' or consumer group 'group' in XREADGROUP with GROUP option");
}

fn a_front_end_that_hangs_is_passed_over(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "hanging") else { return };
    let mut early = wait(&one, "BLPOP queue 0");
    let mut late = [wait(&other, "BLPOP queue 0"), wait(&other, "BLPOP queue 0")];
    let mut pusher = other.client();
    one.signal("STOP");
    for (number, client) in late.iter_mut().enumerate() {
        let began = Instant::now();
        pusher.line(&format!("RPUSH queue e{number}")).is(1);
        has(client, &format!("e{number}"));
        eprintln!("served after {:?}", began.elapsed());
    }
    one.signal("CONT");
    pusher.line("RPUSH queue last").is(1);
    has(&mut early, "last");
    pusher.line("LLEN queue").is(0);
}
