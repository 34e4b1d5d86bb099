//! What is PostgreSQL's own.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::load::{Load, Outages, missing};
use super::{Kind, eventually, is_told_of_changes, pair, wait_until_heard};
use support::client::Reply;
use support::server::Server;
use support::store::cluster::front;
use support::store::postgres::Postgres;

marked!(needs_tools: an_expired_key_is_gone_for_all_from_its_millisecond_on_and_one_of_many_takes_it);
fn an_expired_key_is_gone_for_all_from_its_millisecond_on_and_one_of_many_takes_it() {
    let Some((_cluster, one, other)) = pair(Kind::Postgres, "expiry") else { return };
    let fronts = [&one, &other];
    for _ in 0..10 {
        one.client().line("SET lock first NX PX 40").is_ok();
        let is_taken = AtomicBool::new(false);
        let winners: usize = thread::scope(|scope| {
            let tries = (0..8).map(|index| {
                let (mut client, is_taken) = (fronts[index % 2].client(), &is_taken);
                scope.spawn(move || {
                    let mut wins = 0;
                    // Each client tries once more after one of them has it.
                    loop {
                        let was_taken = is_taken.load(Ordering::Relaxed);
                        if client.line(&format!("SET lock {index} NX")).reply() != Reply::Null {
                            wins += 1;
                            is_taken.store(true, Ordering::Relaxed);
                        }
                        if was_taken {
                            return wins;
                        }
                    }
                })
            });
            let tries: Vec<_> = tries.collect();
            tries.into_iter().map(|each| each.join().expect("a count")).sum()
        });
        assert_eq!(winners, 1);
        one.client().line("DEL lock").is(1);
    }
}

marked!(needs_tools: each_front_end_tells_its_clients_once_that_a_key_has_expired);
fn each_front_end_tells_its_clients_once_that_a_key_has_expired() {
    let Some((_cluster, one, other)) = pair(Kind::Postgres, "expired") else { return };
    let mut listeners: Vec<_> = [&one, &other].map(|front| front.client()).into();
    for (front, listener) in [&one, &other].into_iter().zip(&mut listeners) {
        front.client().line("CONFIG SET notify-keyspace-events Ex").is_ok();
        listener.line("SUBSCRIBE __keyevent@0__:expired").ignored();
    }
    for (listener, front) in listeners.iter_mut().zip([&other, &one]) {
        wait_until_heard(listener, front);
    }
    let mut writer = one.client();
    writer.line("SET stays v PX 600000").is_ok();
    for name in ["first", "second"] {
        writer.line(&format!("SET {name} v PX 1")).is_ok();
        let told = format!(r#"["message", "__keyevent@0__:expired", "{name}"]"#);
        for listener in &mut listeners {
            assert_eq!(listener.reply().reply().to_string(), told);
        }
    }
    // What was read is forgotten when it expires.
    let mut reader = other.client3();
    reader.line("CLIENT TRACKING ON").is_ok();
    let invalidation = Reply::Push(vec!["invalidate".into(), Reply::Array(vec!["lock".into()])]);
    eventually("a client that has read the key gets an invalidation when it expires", || {
        writer.line("SET lock v PX 300").is_ok();
        // What comes before it is read is about this change, or says that all may have changed.
        while !reader.is_silent_for(Duration::from_millis(50)) {
            reader.reply().ignored();
        }
        reader.line("GET lock").reply() == Reply::from("v") && reader.reply().reply() == invalidation
    });
    assert_eq!(writer.line("EXISTS lock stays first second").reply(), Reply::from(1));
}

marked!(needs_tools: a_store_that_cannot_be_used_is_told_in_the_log);
fn a_store_that_cannot_be_used_is_told_in_the_log() {
    let Some(cluster) = Postgres::start("wrong", 1) else { return };
    drop(front(&cluster.url(), &[]));
    cluster.sql(0, "UPDATE keyfast.schema_version SET version = 99").expect("the store");
    let url = cluster.url();
    let front = Server::start_with(&["--store", &url, "--store-timeout", "2000"]);
    front.wait_for_output("its tables are of version 99, and this program needs version 2");
    assert!(front.client().line("GET k").text().starts_with("STOREDOWN "));
    let wrong = url.replace("/postgres?", "/nothing?");
    let front = Server::start_with(&["--store", &wrong, "--store-timeout", "2000"]);
    front.wait_for_output("database \"nothing\" does not exist");
    let output = front.output();
    assert!(output.contains("Cannot reach the store postgres://127.0.0.1:"), "{output}");
}

marked!(needs_tools: a_host_that_hangs_keeps_no_front_end_from_the_others);
fn a_host_that_hangs_keeps_no_front_end_from_the_others() {
    let Some(cluster) = Postgres::start("hangs", 1) else { return };
    // It takes connections, and says nothing.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let hosts = format!("@{},127.0.0.1:", silent.local_addr().expect("an address"));
    let url = cluster.url().replace("@127.0.0.1:", &hosts);
    let [one, other] = [(); 2].map(|()| front(&url, &["--store-timeout", "2000"]));
    one.client().line("SETNX lock a").is(1);
    other.client().line("DBSIZE").is(1);
    // News come on a connection of their own.
    is_told_of_changes(&one, &mut other.client());
}

marked!(needs_tools: where_the_primary_waits_for_no_replica_the_same_test_finds_acknowledged_locks_that_are_lost);
fn where_the_primary_waits_for_no_replica_the_same_test_finds_acknowledged_locks_that_are_lost() {
    for waits in [true, false] {
        let Some(cluster) = Postgres::start("asynchronous", 3) else { return };
        if !waits {
            cluster.sql(0, "ALTER SYSTEM SET synchronous_standby_names = ''").expect("the primary");
            cluster.sql(0, "SELECT pg_reload_conf()").expect("the primary");
        }
        let fronts = [cluster.front(&["--store-timeout", "20000"])];
        let load = Load::start(&fronts, 0);
        load.goes_on();
        // The replicas have just lost their connections.
        for node in [1, 2] {
            cluster.sql(node, "ALTER SYSTEM SET primary_conninfo = ''").expect("a replica");
            cluster.sql(node, "SELECT pg_reload_conf()").expect("a replica");
        }
        thread::sleep(Duration::from_secs(1));
        cluster.kill_node(0);
        cluster.fail_over([1, 2]);
        let acknowledged = load.finish(&mut Outages::when("the primary is killed"));
        let lost = missing(&fronts, &acknowledged);
        assert_eq!(lost.is_empty(), waits, "{} of {} are lost", lost.len(), acknowledged.len());
    }
}

marked!(needs_tools: the_replica_that_has_more_becomes_the_primary);
fn the_replica_that_has_more_becomes_the_primary() {
    let Some(cluster) = Postgres::start("lagging", 3) else { return };
    let front = cluster.front(&[]);
    let mut client = front.client();
    client.line("SETNX lock:before token").is(1);
    // From now on the other replica alone confirms.
    for statement in ["ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"] {
        cluster.sql(2, statement).expect("a replica");
    }
    eventually("it has lost its connection", || {
        cluster.sql(2, "SELECT count(*) FROM pg_stat_wal_receiver") == Ok("0".into())
    });
    for number in 0..20 {
        client.line(&format!("SETNX lock:{number} token")).is(1);
    }
    cluster.kill_node(0);
    assert_eq!(cluster.fail_over([2, 1]), 1);
    let mut other = front.client();
    for number in 0..20 {
        other.line(&format!("SETNX lock:{number} another")).is(0);
        other.line(&format!("GET lock:{number}")).is("token");
    }
}

marked!(needs_tools: a_failover_without_a_replica_that_may_have_more_is_refused);
fn a_failover_without_a_replica_that_may_have_more_is_refused() {
    let Some(cluster) = Postgres::start("missing", 3) else { return };
    let fail_over = |nodes: &[usize]| {
        let connections = nodes.iter().map(|node| {
            format!(
                "host=127.0.0.1 port={} user=keyfast dbname=postgres connect_timeout=2",
                cluster.port(*node)
            )
        });
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/remote/postgres/failover");
        let output = Command::new(script).args(connections).output().expect("bash runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fail_over(&[0, 1]).contains("is no replica; nothing was changed"));
    cluster.kill_node(2);
    assert!(fail_over(&[1, 2]).contains("does not answer; nothing was changed"));
    let still = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    assert_eq!(cluster.sql(1, still), Ok("1".into()), "it still follows the primary");
}
