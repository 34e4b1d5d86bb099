//! The same of the commands of LOCK: the lock has one holder at a time, its number only grows, and clients
//! that wait are granted it in the order in which they came.
//!
//! [`recording`] has 16 clients take, extend, release, break and wait for a few locks that expire within 30
//! milliseconds, or are bound to their connections; some end their connection meanwhile. [`checks`] says what
//! must be true of their replies. [`impostors`] imitates servers with mistakes, each of which the checks must
//! find. [`second_model`] asks porcupine about short histories, where clients use the same token again and
//! again.
//!
//! `KEYFAST_HISTORY_SEED=7` has the clients draw other requests, and `KEYFAST_HISTORY_OPERATIONS` makes the
//! histories longer in proportion to others: 300000 is three times as long in memory, 30000 in a store.
//!
//! Not recorded is a server that is paused (CLIENT PAUSE): a client that waits for the end of the pause
//! counts as blocked as well, and stands in no line.

mod checks;
mod impostors;
mod recording;
mod second_model;
mod told;

use std::thread;
use std::time::Duration;

use checks::{Broken, Promises, check, check_numbers, check_replies, check_turns};
use fastrand::Rng;
use impostors::{FAULTS, Fault, Size, play};
use recording::{Disturb, Disturbed, EndedWait, Use, blocked, record};
use told::{Answer, Expiry, Request, Told};

use super::recorder::CONNECTIONS;
use support::client::Client;
use support::folder::Folder;
use support::server::Server;

const IN_MEMORY: Promises = Promises { expiry: Expiry::Exact, is_kept: true, is_in_store: false };

/// How many requests a history has: the usual number, or more if the environment asks for longer histories
/// than other tests of linearizability usually have.
fn operations(usual: usize, usual_elsewhere: usize) -> usize {
    let asked_for = std::env::var("KEYFAST_HISTORY_OPERATIONS").ok();
    let asked_for: Option<usize> =
        asked_for.map(|number| number.parse().expect("KEYFAST_HISTORY_OPERATIONS is a number"));
    asked_for.map_or(usual, |asked_for| usual * asked_for / usual_elsewhere)
}

fn in_memory(usual: usize) -> usize {
    operations(usual, 100_000)
}

fn seed() -> u64 {
    let asked_for = std::env::var("KEYFAST_HISTORY_SEED").ok();
    asked_for.map_or(0, |number| number.parse().expect("KEYFAST_HISTORY_SEED is a number"))
}

const USE: Use = Use {
    clients: CONNECTIONS,
    keys: 3,
    operations: 0,
    lifetime_ms_max: 30,
    holders_per_expiry: 12,
    ends_with_connection: true,
    crashes: true,
    has_one_token: false,
    is_wrapped: true,
    binds: true,
    lease_ms_min: 600,
    seed: 0,
};

#[track_caller]
fn assert_kept(history: &[Told], promises: Promises) {
    if let Err(broken) = check(history, promises) {
        let (what, why) = match &broken {
            Broken::Unexplained(why) => ("no order explains the last reply of these", why),
            Broken::Number(why) => ("a number is not in its place", why),
            Broken::Turn(why) => ("a client was not granted the lock in its turn", why),
        };
        panic!("{what}:\n{why}");
    }
}

/// Whether a history contains the events that it is meant to test.
#[track_caller]
fn assert_told(history: &[Told]) {
    let count = |name: &str, is_such: &dyn Fn(&Told) -> bool| {
        let count = history.iter().filter(|told| is_such(told)).count();
        assert!(count >= history.len() / 2_000, "{count} times {name} of {}", history.len());
    };
    let is_granted = |told: &Told| told.is_acquire() && told.number().is_some();
    let stood = |told: &Told| told.stood_ns.is_some();
    count("a client was granted a lock without waiting", &|told| {
        is_granted(told) && told.wait_ms().is_none()
    });
    count("a client in line was granted a lock", &|told| is_granted(told) && stood(told));
    count("a client has waited in vain", &|told| stood(told) && told.answer == Answer::Number(None));
    count("a client that waits has left", &|told| told.wait_ms().is_some() && told.answer == Answer::Lost);
    for (request, is_done) in [("RELEASE", true), ("RELEASE", false), ("SET NX", true), ("script", false)] {
        count(&format!("{request} was answered {is_done}"), &|told| {
            let is_such = match told.request {
                Request::Release(_) => request == "RELEASE",
                Request::SetNx { .. } => request == "SET NX",
                Request::DeleteIfEq(_) => request == "script",
                _ => false,
            };
            is_such && told.answer == Answer::Done(is_done)
        });
    }
    if history.iter().any(|told| told.is_bound) {
        count("a lock was bound to a connection", &|told| told.is_bound && is_granted(told));
        count("a connection has ended with a bound lock", &|told| told.client == 0);
    }
    count("EXTEND was granted", &|told| {
        matches!(told.request, Request::Extend { .. }) && told.number().is_some()
    });
    count("FENCE was refused", &|told| {
        matches!(told.request, Request::Fence(_)) && told.answer == Answer::Number(None)
    });
}

/// Records a history and checks it.
#[track_caller]
fn record_and_check(servers: &[Server], how: Use, promises: Promises, disturb: Option<Disturb>) -> Vec<Told> {
    let how = Use { seed: seed(), ..how };
    let history = record(servers, how, disturb);
    assert_kept(&history, promises);
    assert_told(&history);
    history
}

#[test]
fn one_holder_at_a_time_growing_numbers_and_first_come_first_served() {
    let server = Server::start_with(&["--io-threads", "4"]);
    record_and_check(&[server], Use { operations: in_memory(12_000), ..USE }, IN_MEMORY, None);
}

#[test]
fn so_it_is_with_the_log_on_while_it_is_rewritten_and_waits_are_ended_by_others() {
    let folder = Folder::new("linear_locks_with_the_log_on");
    let options = ["--io-threads", "4", "--dir", &folder.file(""), "--appendonly", "yes"];
    let server = Server::start_with(&[&options[..], &["--appendfsync", "everysec"]].concat());
    let how = Use { operations: in_memory(8_000), ..USE };
    record_and_check(&[server], how, IN_MEMORY, Some(rewrite_and_end_waits));
}

/// Rewrites the log, writes a snapshot, and ends the wait of a client in line.
fn rewrite_and_end_waits(client: &mut Client, random: &mut Rng, disturbed: &Disturbed) {
    if random.u32(..20) == 0 {
        client.line(if random.bool() { "BGREWRITEAOF" } else { "BGSAVE" }).ignored();
    }
    end_wait(client, random, disturbed);
    thread::sleep(Duration::from_millis(2));
}

fn end_wait(client: &mut Client, random: &mut Rng, disturbed: &Disturbed) {
    let blocked = blocked(client);
    if let Some(blocked) = random.choice(blocked) {
        let line = match random.u32(..3) {
            0 => format!("CLIENT UNBLOCK {blocked}"),
            1 => format!("CLIENT UNBLOCK {blocked} ERROR"),
            _ => format!("CLIENT KILL ID {blocked}"),
        };
        let began_ns = disturbed.watch.now().nanos;
        client.line(&line).ignored();
        let end = EndedWait { client: blocked, began_ns, ended_ns: disturbed.watch.now().nanos };
        disturbed.ended.lock().expect("a list").push(end);
    }
}

/// Checks the replies of front-ends of a store.
#[track_caller]
pub(crate) fn check_locks_over(servers: &[Server], expires_late: bool) {
    let expiry = if expires_late { Expiry::Late } else { Expiry::Exact };
    // A request that was on its way to the store is done there though its client has gone.
    let how = Use {
        operations: operations(if expires_late { 600 } else { 1_500 }, 10_000),
        lifetime_ms_max: if expires_late { 2_000 } else { USE.lifetime_ms_max },
        holders_per_expiry: if expires_late { 200 } else { USE.holders_per_expiry },
        ends_with_connection: false,
        // A busy store may take longer than a brief lease.
        lease_ms_min: 20_000,
        ..USE
    };
    let promises = Promises { expiry, is_kept: true, is_in_store: true };
    record_and_check(servers, how, promises, None);
}

/// What is evicted is taken from its holder without a reply. The numbers and the line stay in order.
#[test]
fn the_numbers_and_the_line_stay_in_order_while_locks_are_evicted() {
    let limit = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-random"];
    let server = Server::start_with(&[&["--io-threads", "4"], &limit[..]].concat());
    let how = Use { operations: in_memory(4_000), ..USE };
    record_and_check(&[server], how, Promises { is_kept: false, ..IN_MEMORY }, Some(fill));
}

/// Writes so much that other keys have to go.
fn fill(client: &mut Client, random: &mut Rng, _: &Disturbed) {
    for _ in 0..20 {
        let value = "x".repeat(random.usize(100..20_000));
        client.cmd(["SET", &format!("fill:{}", random.u32(..1000)), &value]).ignored();
    }
}

/// So is what is flushed, moved, renamed, or whose time passes at once.
#[test]
fn so_they_do_whatever_is_done_to_the_data() {
    let server = Server::start_with(&["--io-threads", "4", "--enable-clock-command", "yes"]);
    let how = Use { operations: in_memory(6_000), ..USE };
    record_and_check(&[server], how, Promises { is_kept: false, ..IN_MEMORY }, Some(take_away));
}

/// Takes locks from their holders, in another way each time.
fn take_away(client: &mut Client, random: &mut Rng, _: &Disturbed) {
    let lock = format!("lock:{}", random.usize(..USE.keys));
    let line = match random.u32(..6) {
        0 => "FLUSHDB".to_owned(),
        1 => "FLUSHALL".to_owned(),
        2 => format!("RENAME {lock} gone"),
        3 => format!("MOVE {lock} 1"),
        4 => format!("CLOCK ADVANCE {}", random.u64(1..=2 * USE.lifetime_ms_max)),
        _ => {
            // None comes back: the number of a lock that does is smaller than those of later ones.
            for line in ["MULTI", "SWAPDB 0 1", "FLUSHDB"] {
                client.line(line).ignored();
            }
            "EXEC".to_owned()
        }
    };
    client.line(&line).ignored();
    client.line("DEL gone").ignored();
    thread::sleep(Duration::from_millis(random.u64(..10)));
}

/// Clients use their names as tokens.
#[test]
fn porcupine_explains_what_clients_are_told_that_use_the_same_token_again() {
    let server = Server::start_with(&["--io-threads", "4"]);
    porcupine_explains(&[server], Expiry::Exact);
}

fn porcupine_explains(servers: &[Server], expiry: Expiry) {
    for round in 0..in_memory(2_400) as u64 / 120 {
        servers[0].client().line("FLUSHALL").is_ok();
        let how = Use {
            clients: 6,
            keys: 2,
            operations: 120,
            crashes: false,
            has_one_token: true,
            binds: false,
            seed: round,
            ..USE
        };
        let history = record(servers, how, None);
        assert!(second_model::is_explained(&history, expiry), "no order explains {history:#?}");
    }
}

/// What finds a mistake, at least.
fn finds(fault: Fault, history: &[Told]) -> Result<(), Broken> {
    match fault {
        Fault::RepeatsNumber
        | Fault::NumbersOfEachKey
        | Fault::NumbersInBlocks
        | Fault::ExtendRenumbers
        | Fault::FenceOfAnother => check_numbers(history, IN_MEMORY).map(|_| ()),
        Fault::LastIsFirst | Fault::OvertakesLine | Fault::ForgetsWaiter | Fault::NilTooSoon => {
            check_turns(history, &check_numbers(history, IN_MEMORY)?, IN_MEMORY)
        }
        // The numbers do not help.
        _ => check_replies(history, &[], IN_MEMORY),
    }
}

#[test]
fn mistakes_with_locks_are_found_and_a_server_that_is_right_has_none() {
    let size = Size { clients: CONNECTIONS, keys: 3, operations: 6000, crashes: true };
    for seed in 0..3 {
        for fault in FAULTS {
            assert!(finds(fault, &play(seed, size, Some(fault))).is_err(), "{fault:?}, seed {seed}");
        }
        assert_kept(&play(seed, size, None), IN_MEMORY);
    }
}

#[test]
fn porcupine_comes_to_the_same_conclusions_about_locks() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..60 {
        let size = Size { clients: 6, keys: 1, operations: 60, crashes: false };
        for fault in FAULTS.map(Some).into_iter().chain([None]) {
            let history = play(seed, size, fault);
            let is_explained = second_model::is_explained(&history, Expiry::Exact);
            let found = check_numbers(&history, IN_MEMORY)
                .and_then(|tenures| check_replies(&history, &tenures, IN_MEMORY));
            assert!(found.is_ok() || !is_explained, "{fault:?}, seed {seed}: {found:?}");
            assert!(fault.is_some() || is_explained, "seed {seed}");
            *if is_explained { &mut right } else { &mut wrong } += 1;
        }
    }
    assert!(right > 100 && wrong > 200, "{right} were right and {wrong} wrong");
}
