//! Linearizability: the replies of two front-ends could be those of one server that executes one request
//! after the other. So it is while the store is fine, and while its primary is killed and replaced.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::cable::Cable;
use super::{Kind, pair};
use crate::linear::collections::check_collections_over;
use crate::linear::locks::check_locks_over;
use crate::linear::permits::check_permits_over;
use crate::linear::record_and_check_over;
use crate::linear::several::check_several_over;
use crate::linear::transactions::check_transactions_over;
use support::server::{Server, SetOnDrop};
use support::store::postgres::Postgres;

/// How many requests a history has; `KEYFAST_HISTORY_OPERATIONS=100000` for more.
fn operations() -> usize {
    let asked_for = std::env::var("KEYFAST_HISTORY_OPERATIONS").ok();
    asked_for.map_or(10_000, |number| number.parse().expect("KEYFAST_HISTORY_OPERATIONS is a number"))
}

marked!(needs_tools: what_clients_of_two_front_ends_are_told_could_have_been_told_one_after_the_other);
fn what_clients_of_two_front_ends_are_told_could_have_been_told_one_after_the_other() {
    let Some(cluster) = Postgres::start("linear", 1) else { return };
    let fronts = [cluster.front(&[]), cluster.front(&[])];
    for keys in [1, 8, 64] {
        cluster.sql(0, "DELETE FROM keyfast.keys").expect("the store");
        let asked = AtomicUsize::new(0);
        let goes_on = || asked.fetch_add(1, Ordering::Relaxed) < operations();
        record_and_check_over(&fronts, keys, goes_on);
    }
}

on_both! {
    so_it_is_with_transactions_over_hot_keys
    so_it_is_with_collections_for_which_some_wait
    so_it_is_with_locks_for_which_some_stand_in_line
    so_it_is_with_permits
    so_it_is_with_several_locks_at_once
}

fn so_it_is_with_transactions_over_hot_keys(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "linear-transactions") else { return };
    check_transactions_over(&[one, other]);
}

fn so_it_is_with_collections_for_which_some_wait(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "linear-collections") else { return };
    check_collections_over(&[one, other]);
}

fn so_it_is_with_locks_for_which_some_stand_in_line(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "linear-locks") else { return };
    check_locks_over(&[one, other], kind == Kind::Etcd);
}

fn so_it_is_with_several_locks_at_once(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "linear-several") else { return };
    check_several_over(&[one, other], 200);
}

fn so_it_is_with_permits(kind: Kind) {
    let Some((_cluster, one, other)) = pair(kind, "linear-permits") else { return };
    check_permits_over(&[one, other], 250, false);
}

marked!(needs_tools: so_it_is_while_the_primary_is_killed_and_replaced);
fn so_it_is_while_the_primary_is_killed_and_replaced() {
    let Some(cluster) = Postgres::start("linear-kill", 3) else { return };
    let timeout = ["--store-timeout", "2000"];
    let fronts = [cluster.front(&timeout), cluster.front(&timeout)];
    let mut primary = 0;
    let (sent, lost) = history_while(&fronts, || {
        for _ in 0..super::load::kills() {
            thread::sleep(Duration::from_secs(1));
            cluster.kill_node(primary);
            let next = cluster.fail_over([(primary + 1) % 3, (primary + 2) % 3]);
            thread::sleep(Duration::from_secs(2));
            cluster.rebuild(primary, next);
            primary = next;
        }
    });
    eprintln!("{sent} requests were sent, {lost} answers were lost");
}

marked!(needs_tools: so_it_is_while_the_primary_is_paused_and_replaced_and_goes_on_without_replicas);
fn so_it_is_while_the_primary_is_paused_and_replaced_and_goes_on_without_replicas() {
    let Some(cluster) = Postgres::start("linear-pause", 3) else { return };
    let timeout = ["--store-timeout", "1000"];
    let fronts = [cluster.front(&timeout), cluster.front(&timeout)];
    let mut primary = 0;
    let (sent, lost) = history_while(&fronts, || {
        for _ in 0..super::load::kills() {
            thread::sleep(Duration::from_secs(1));
            cluster.signal(primary, "STOP");
            let next = cluster.fail_over([(primary + 1) % 3, (primary + 2) % 3]);
            thread::sleep(Duration::from_secs(2));
            // It does what it was sent before, and thinks that it is the primary.
            cluster.signal(primary, "CONT");
            thread::sleep(Duration::from_secs(3));
            cluster.kill_node(primary);
            cluster.rebuild(primary, next);
            primary = next;
        }
        thread::sleep(Duration::from_secs(1));
    });
    eprintln!("{sent} requests were sent, {lost} answers were lost");
}

marked!(needs_tools: so_it_is_while_the_store_is_stopped_and_the_network_is_cut);
fn so_it_is_while_the_store_is_stopped_and_the_network_is_cut() {
    let Some(cluster) = Postgres::start("linear-cut", 1) else { return };
    let cable = Cable::start(cluster.port(0));
    let url = format!("postgres://keyfast@127.0.0.1:{}/postgres?sslmode=disable", cable.port());
    let beyond = Server::start_with(&["--store", &url, "--store-timeout", "1000"]);
    beyond.wait_for_output("Connected to the store");
    let fronts = [cluster.front(&["--store-timeout", "1000"]), beyond];
    let (sent, lost) = history_while(&fronts, || {
        for span_ms in [300, 3000] {
            thread::sleep(Duration::from_millis(500));
            cable.cut(true);
            thread::sleep(Duration::from_millis(span_ms));
            cable.cut(false);
            thread::sleep(Duration::from_millis(500));
            cluster.signal(0, "STOP");
            thread::sleep(Duration::from_millis(span_ms));
            cluster.signal(0, "CONT");
        }
        thread::sleep(Duration::from_millis(500));
        cluster.stop_node(0, "immediate");
        cluster.start_node(0);
        thread::sleep(Duration::from_millis(1000));
    });
    assert!(lost > 0, "{sent} requests were sent, and no answer was lost");
}

/// Checks the clients' replies while something happens. Returns how many requests were sent, and how many
/// answers were lost.
fn history_while(fronts: &[Server], happens: impl FnOnce()) -> (usize, usize) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let history = scope.spawn(|| record_and_check_over(fronts, 16, || !is_over.load(Ordering::Relaxed)));
        let end = SetOnDrop(&is_over);
        happens();
        drop(end);
        history.join().expect("a history")
    })
}
