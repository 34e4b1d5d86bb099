//! What fails: a front-end, a node of the store, the network between them. Each time clients take locks as
//! fast as they can. No lock that was acknowledged is lost, and none has two holders.
//!
//! `KEYFAST_STORE_KILLS` says how often each of these happens. How long clients had to wait is printed.

use std::thread;
use std::time::{Duration, Instant};

use super::load::{Load, Outages, check, kills};
use support::client::Reply;
use support::server::Server;
use support::store::cluster::{Cluster, Kind, eventually, front};
use support::store::etcd::Etcd;
use support::store::network::{Network, OUTSIDE};
use support::store::postgres::Postgres;

/// A store that hangs is taken for lost after a second.
const SOON: [&str; 2] = ["--store-timeout", "1000"];
/// A node that is killed ends its connections.
const LATE: [&str; 2] = ["--store-timeout", "20000"];
/// A fault that no failover follows.
const SHORT: Duration = Duration::from_millis(500);

marked!(needs_tools: no_acknowledged_lock_is_lost_when_a_front_end_of_postgresql_is_killed);
fn no_acknowledged_lock_is_lost_when_a_front_end_of_postgresql_is_killed() {
    a_front_end_is_killed(Kind::Postgres, "PostgreSQL: a front-end is killed");
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_a_front_end_of_etcd_is_killed);
fn no_acknowledged_lock_is_lost_when_a_front_end_of_etcd_is_killed() {
    a_front_end_is_killed(Kind::Etcd, "etcd: a front-end is killed");
}

fn a_front_end_is_killed(kind: Kind, what: &'static str) {
    let Some(cluster) = Cluster::start(kind, "front-kill") else { return };
    let mut fronts = [(); 2].map(|()| cluster.front(&LATE));
    let mut outages = Outages::when(what);
    for round in 0..kills() {
        let load = Load::start(&fronts, round);
        load.goes_on();
        let killed = &mut fronts[round % 2];
        killed.signal("KILL");
        killed.wait_for_end();
        // Its clients, too.
        load.goes_on();
        *killed = cluster.front(&LATE);
        let acknowledged = load.finish(&mut outages);
        check(&fronts, &acknowledged);
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_primary_is_killed);
fn no_acknowledged_lock_is_lost_when_the_primary_is_killed() {
    let Some(cluster) = Postgres::start("kill", 3) else { return };
    let fronts = [(); 2].map(|()| front(&cluster.url(), &LATE));
    let mut outages = Outages::when("PostgreSQL: the primary is killed");
    let mut primary = 0;
    for round in 0..kills() {
        let load = Load::start(&fronts, round);
        load.goes_on();
        cluster.kill_node(primary);
        let next = cluster.fail_over(others(primary));
        let acknowledged = load.finish(&mut outages);
        check(&fronts, &acknowledged);
        cluster.rebuild(primary, next);
        primary = next;
    }
}

marked!(needs_tools: front_ends_leave_the_sessions_of_a_primary_without_replicas_to_others);
fn front_ends_leave_the_sessions_of_a_primary_without_replicas_to_others() {
    const FRONTS: usize = 2;
    // Long enough for a busy machine to connect in. A front-end tries anew about as often as this.
    const TIMEOUT: Duration = Duration::from_millis(1500);
    let timeout = TIMEOUT.as_millis().to_string();
    let Some(cluster) = Postgres::start("sessions", 3) else { return };
    let fronts = [(); FRONTS].map(|()| front(&cluster.url(), &["--store-timeout", &timeout]));
    let sessions = || -> usize {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'keyfast%'";
        cluster.sql(0, count).expect("the primary").parse().expect("a number")
    };
    let mut clients = fronts.each_ref().map(Server::client);
    clients.iter_mut().for_each(|client| client.line("SET key v").is_ok());
    [1, 2].iter().for_each(|node| cluster.signal(*node, "STOP"));
    let began = Instant::now();
    while began.elapsed() < TIMEOUT * 12 {
        for client in &mut clients {
            let text = client.line("INCR count").text();
            assert!(["STOREDOWN ", "TRYAGAIN "].iter().any(|code| text.starts_with(code)), "{text}");
            client.line("DBSIZE").ignored();
        }
        thread::sleep(Duration::from_millis(100));
    }
    // What was under way when the replicas left, and one that waits for them: of batches, news and questions.
    assert!(sessions() <= FRONTS * 5, "{} sessions", sessions());
    [1, 2].iter().for_each(|node| cluster.signal(*node, "CONT"));
    for client in &mut clients {
        eventually("it is served again", || client.line("GET key").reply() == Reply::from("v"));
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_primary_is_paused);
fn no_acknowledged_lock_is_lost_when_the_primary_is_paused() {
    let Some(cluster) = Postgres::start("pause", 3) else { return };
    let fronts = [(); 2].map(|()| front(&cluster.url(), &SOON));
    let mut outages = [
        Outages::when("PostgreSQL: the primary is paused for half a second"),
        Outages::when("PostgreSQL: the primary is paused, replaced, and goes on"),
    ];
    let mut primary = 0;
    for round in 0..kills() {
        let is_replaced = round % 2 == 1;
        let load = Load::start(&fronts, round);
        load.goes_on();
        cluster.signal(primary, "STOP");
        let mut next = primary;
        match is_replaced {
            true => next = cluster.fail_over(others(primary)),
            false => thread::sleep(SHORT),
        }
        // Where it was replaced, it does not know that yet.
        cluster.signal(primary, "CONT");
        load.goes_on();
        let acknowledged = load.finish(&mut outages[usize::from(is_replaced)]);
        check(&fronts, &acknowledged);
        if is_replaced {
            cluster.kill_node(primary);
            cluster.rebuild(primary, next);
            primary = next;
        }
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_network_of_postgresql_is_cut);
fn no_acknowledged_lock_is_lost_when_the_network_of_postgresql_is_cut() {
    let Some(network) = Network::new(3) else { return };
    let Some(cluster) = Postgres::start_in(Some(network), "cut", 3) else { return };
    let fronts = [(); 2].map(|()| front(&cluster.url(), &SOON));
    let mut outages = [
        Outages::when("PostgreSQL: the front-ends are cut off from the primary for half a second"),
        Outages::when("PostgreSQL: the primary is cut off from all, and replaced"),
        Outages::when("PostgreSQL: the primary is cut off from the replicas, and replaced"),
    ];
    let mut primary = 0;
    for round in 0..kills().max(3) {
        let network = cluster.network();
        let load = Load::start(&fronts, round);
        load.goes_on();
        match round % 3 {
            0 => network.cut(primary, [OUTSIDE]),
            1 => network.cut(primary, others(primary).into_iter().chain([OUTSIDE])),
            _ => network.cut(primary, others(primary)),
        }
        let mut next = primary;
        match round % 3 {
            0 => thread::sleep(SHORT),
            _ => {
                next = cluster.fail_over(others(primary));
                load.goes_on();
            }
        }
        network.mend();
        let acknowledged = load.finish(&mut outages[round % 3]);
        check(&fronts, &acknowledged);
        if next != primary {
            cluster.kill_node(primary);
            cluster.rebuild(primary, next);
            primary = next;
        }
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_leader_is_killed);
fn no_acknowledged_lock_is_lost_when_the_leader_is_killed() {
    let Some(etcd) = Etcd::start("kill", 3) else { return };
    let fronts = [(); 2].map(|()| front(&etcd.url(), &LATE));
    let mut outages = Outages::when("etcd: the leader is killed");
    for round in 0..kills() {
        let load = Load::start(&fronts, round);
        load.goes_on();
        let leader = etcd.next_leader();
        etcd.kill_node(leader);
        load.goes_on();
        etcd.start_node(leader);
        let acknowledged = load.finish(&mut outages);
        check(&fronts, &acknowledged);
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_leader_is_paused);
fn no_acknowledged_lock_is_lost_when_the_leader_is_paused() {
    let Some(etcd) = Etcd::start("pause", 3) else { return };
    let fronts = [(); 2].map(|()| front(&etcd.url(), &LATE));
    let mut outages = Outages::when("etcd: the leader is paused, replaced, and goes on");
    for round in 0..kills() {
        let load = Load::start(&fronts, round);
        load.goes_on();
        let leader = etcd.next_leader();
        etcd.signal(leader, "STOP");
        load.goes_on();
        etcd.signal(leader, "CONT");
        let acknowledged = load.finish(&mut outages);
        check(&fronts, &acknowledged);
    }
}

marked!(needs_tools: no_acknowledged_lock_is_lost_when_the_network_of_etcd_is_cut);
fn no_acknowledged_lock_is_lost_when_the_network_of_etcd_is_cut() {
    let Some(network) = Network::new(3) else { return };
    let Some(etcd) = Etcd::start_in(Some(network), "cut", 3, &[]) else { return };
    let fronts = [(); 2].map(|()| front(&etcd.url(), &LATE));
    let mut outages = [
        Outages::when("etcd: the front-ends are cut off from the leader"),
        Outages::when("etcd: the leader is cut off from all"),
        Outages::when("etcd: the leader is cut off from the other nodes"),
    ];
    for round in 0..kills().max(3) {
        let network = etcd.network();
        let load = Load::start(&fronts, round);
        load.goes_on();
        let leader = etcd.next_leader();
        match round % 3 {
            0 => network.cut(leader, [OUTSIDE]),
            1 => network.cut(leader, others(leader).into_iter().chain([OUTSIDE])),
            _ => network.cut(leader, others(leader)),
        }
        load.goes_on();
        network.mend();
        let acknowledged = load.finish(&mut outages[round % 3]);
        check(&fronts, &acknowledged);
    }
}

/// The other two of three nodes.
fn others(node: usize) -> [usize; 2] {
    [(node + 1) % 3, (node + 2) % 3]
}
