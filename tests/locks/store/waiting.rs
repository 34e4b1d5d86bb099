//! Clients that wait for keys in a store: who is served first, at whatever front-end it is, how often the
//! store is asked for them, and what becomes of elements if clients leave.

use std::time::{Duration, Instant};

use super::{Cluster, Kind, pair, wait_until_heard};
use support::client::{Client, Reply, request};
use support::server::Server;
use support::store::cluster::eventually;

on_both! {
    clients_of_one_front_end_are_served_in_the_order_in_which_they_came
    clients_of_two_front_ends_are_served_in_the_order_in_which_they_came
    members_of_a_sorted_set_go_to_clients_in_this_order_too
    each_push_costs_the_store_two_requests_however_many_wait
    so_it_is_over_two_front_ends
    of_all_that_wait_for_a_key_one_looks_once_a_second
    who_leaves_the_line_loses_no_element_and_keeps_no_other_waiting
    elements_are_neither_lost_nor_doubled_while_clients_give_up
    a_client_that_waits_for_several_keys_stands_in_each_line
    a_key_of_another_type_serves_its_own_line_only
    all_that_read_a_stream_get_its_entry
    a_front_end_that_hangs_is_passed_over
}

/// Both front-ends of a store that know of each other.
fn acquainted(kind: Kind, test: &str) -> Option<(Cluster, Server, Server)> {
    let (cluster, one, other) = pair(kind, test)?;
    wait_until_heard(&mut one.client(), &other);
    wait_until_heard(&mut other.client(), &one);
    Some((cluster, one, other))
}

/// Sends a request that waits, and waits until it does.
#[track_caller]
fn wait(front: &Server, line: &str) -> Client {
    let blocked = |client: &mut Client| client.info("blocked_clients").parse::<usize>().expect("a number");
    let mut looker = front.client();
    let before = blocked(&mut looker);
    let mut client = front.client();
    client.send(&request(line.split(' ')));
    eventually("the client waits", || blocked(&mut looker) > before);
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

/// Has clients wait at these front-ends by turns, and checks that they are served in this order.
fn are_served_in_order(fronts: &[&Server]) {
    let lines = [
        "BLPOP queue 0",
        "BRPOP queue 0",
        "BLMOVE queue done LEFT RIGHT 0",
        "BLMPOP 0 1 queue LEFT",
        "BLPOP queue 50",
    ];
    let mut clients: Vec<Client> =
        (0..25).map(|number| wait(fronts[number % fronts.len()], lines[number % lines.len()])).collect();
    let mut pushers: Vec<Client> = fronts.iter().map(|front| front.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let pusher = &mut pushers[number / 2 % fronts.len()];
        pusher.line(&format!("RPUSH queue e{number}")).is(1);
        has(client, &format!("e{number}"));
    }
    pushers[0].line("LLEN queue").is(0);
    // All at once: the elements go to them in the same order.
    let mut clients: Vec<Client> =
        (0..25).map(|number| wait(fronts[number % fronts.len()], "BLPOP queue 0")).collect();
    let elements: Vec<String> = (0..clients.len()).map(|number| format!("e{number}")).collect();
    pushers[0].line(&format!("RPUSH queue {}", elements.join(" "))).is(25);
    clients.iter_mut().zip(&elements).for_each(|(client, element)| has(client, element));
}

fn clients_of_one_front_end_are_served_in_the_order_in_which_they_came(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "line") else { return };
    are_served_in_order(&[&cluster.front(&[])]);
}

fn clients_of_two_front_ends_are_served_in_the_order_in_which_they_came(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "lines") else { return };
    are_served_in_order(&[&one, &other]);
}

fn members_of_a_sorted_set_go_to_clients_in_this_order_too(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "members") else { return };
    let lines = ["BZPOPMIN set 0", "BZPOPMAX set 0", "BZMPOP 0 1 set MIN"];
    let fronts = [&one, &other];
    let mut clients: Vec<Client> =
        (0..12).map(|number| wait(fronts[number % 2], lines[number % lines.len()])).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        fronts[number / 2 % 2].client().line(&format!("ZADD set {number} m{number}")).is(1);
        has(client, &format!("m{number}"));
    }
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
    // The front-end whose turn it is not may look once for each push, when another one has taken it.
    assert!(cost_of_pushes(&[&one, &other], 300, 300) <= 900);
    assert!(cost_of_pushes(&[&one, &other], 300, 20) <= 60);
}

fn of_all_that_wait_for_a_key_one_looks_once_a_second(kind: Kind) {
    let Some(cluster) = Cluster::start(kind, "glances") else { return };
    let front = cluster.front(&[]);
    let _takers: Vec<Client> = (0..30).map(|_| wait(&front, "BLPOP queue 0")).collect();
    let _readers: Vec<Client> = (0..30).map(|_| wait(&front, "XREAD BLOCK 0 STREAMS stream $")).collect();
    let (before, began) = (requests(&[&front]), Instant::now());
    eventually("they look", || requests(&[&front]) >= before + 6);
    let (looks, seconds) = (requests(&[&front]) - before, began.elapsed().as_secs());
    assert!(looks <= 2 * (seconds + 2), "{looks} looks in {seconds} s");
}

fn who_leaves_the_line_loses_no_element_and_keeps_no_other_waiting(kind: Kind) {
    let Some((_cluster, one, other)) = acquainted(kind, "leaving") else { return };
    let fronts = [&one, &other];
    let lines: Vec<&str> =
        (0..10).map(|number| if number == 5 { "BLPOP queue 0.1" } else { "BLPOP queue 0" }).collect();
    let ids = |front: &Server| {
        let mut client = front.client();
        let id = client.line("CLIENT ID").integer();
        (client, id)
    };
    let mut clients: Vec<(Client, i64)> = Vec::new();
    let mut looker = [one.client(), other.client()];
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
        looker[push % 2].line(&format!("RPUSH queue e{number}")).is(1);
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
    let mut clients = [
        ("BLPOP a b 0", &one),
        ("BLPOP b 0", &other),
        ("BLPOP b a 0", &one),
        ("BLPOP a c 0", &other),
        ("BLPOP c a 0", &one),
    ]
    .map(|(line, front)| wait(front, line));
    let mut pusher = other.client();
    for (number, key) in [(0, "b"), (1, "b"), (3, "c"), (2, "a"), (4, "a")] {
        pusher.line(&format!("RPUSH {key} e{number}")).is(1);
        has(&mut clients[number], &format!("e{number}"));
    }
    // Two keys get something at once. The first client gets what is in its first key.
    let mut clients = [("BLPOP a 0", &one), ("BLPOP a b 0", &other), ("BLPOP b a 0", &one)]
        .map(|(line, front)| wait(front, line));
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
    let mut late = wait(&one, "BZPOPMIN key 0");
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
