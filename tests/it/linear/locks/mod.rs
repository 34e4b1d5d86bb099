//! The same of the commands of LOCK: the lock has one holder at a time, its number only grows, and clients
//! that wait are granted it in the order in which they came.
//!
//! [`recording`] has 16 clients take, extend, release, break and wait for a few locks that expire within 30
//! milliseconds; some of them end their connection meanwhile. [`checks`] says what must be true of what they
//! are told. [`impostors`] imitates servers with mistakes, each of which the checks must find. [`second_model`]
//! asks porcupine about short histories, where clients use the same token again and again.

mod checks;
mod impostors;
mod recording;
mod second_model;
mod told;

use checks::{Broken, Promises, check};
use impostors::{FAULTS, Fault, play};
use recording::{Disturb, Use, record};
use told::{Answer, Expiry, Request, Told};

use crate::folder::Folder;
use crate::server::Server;

const IN_MEMORY: Promises = Promises { expiry: Expiry::Exact, is_kept: true, gap_ns: 0 };

/// How many requests a history has, if the environment does not say otherwise.
fn operations(usual: usize) -> usize {
    let asked_for = std::env::var("KEYFAST_HISTORY_OPERATIONS").ok();
    asked_for.map_or(usual, |number| number.parse().expect("KEYFAST_HISTORY_OPERATIONS is a number"))
}

fn seed() -> u64 {
    let asked_for = std::env::var("KEYFAST_HISTORY_SEED").ok();
    asked_for.map_or(0, |number| number.parse().expect("KEYFAST_HISTORY_SEED is a number"))
}

const USE: Use = Use {
    keys: 3,
    operations: 0,
    lifetime_ms_max: 30,
    holders_per_expiry: 12,
    ends_with_connection: true,
    is_wrapped: true,
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
    count("a client in line has left", &|told| stood(told) && told.answer == Answer::Lost);
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
    if std::env::var_os("KEYFAST_HISTORY_SHOWN").is_some() {
        let stood = history.iter().filter(|told| told.stood_ns.is_some()).count();
        let span_ms = history.last().map_or(0, |told| told.sent.nanos / 1_000_000);
        eprintln!("{} requests in {span_ms} ms, {stood} stood in line", history.len());
    }
    assert_kept(&history, promises);
    assert_told(&history);
    history
}

#[test]
fn one_holder_at_a_time_growing_numbers_and_first_come_first_served() {
    let server = Server::start_with(&["--io-threads", "4"]);
    record_and_check(&[server], Use { operations: operations(20_000), ..USE }, IN_MEMORY, None);
}

#[test]
fn so_it_is_with_the_log_on() {
    let folder = Folder::new("linear_locks_with_the_log_on");
    let options = ["--io-threads", "4", "--dir", &folder.file(""), "--appendonly", "yes"];
    let server = Server::start_with(&[&options[..], &["--appendfsync", "everysec"]].concat());
    record_and_check(&[server], Use { operations: operations(20_000), ..USE }, IN_MEMORY, None);
}

#[test]
fn mistakes_with_locks_are_found_and_a_server_that_is_right_has_none() {
    for seed in 0..3 {
        for fault in FAULTS {
            let found = check(&play(seed, 3, 6000, Some(fault)), IN_MEMORY);
            let is_as_expected = match fault {
                Fault::RepeatsNumber | Fault::NumbersOfEachKey | Fault::NumbersInBlocks => {
                    matches!(found, Err(Broken::Number(_)))
                }
                Fault::LastIsFirst | Fault::OvertakesLine | Fault::ForgetsWaiter | Fault::NilTooSoon => {
                    matches!(found, Err(Broken::Turn(_)))
                }
                _ => found.is_err(),
            };
            assert!(is_as_expected, "{fault:?} was not found, seed {seed}: {found:?}");
            if std::env::var_os("KEYFAST_HISTORY_SHOWN").is_some() {
                let found = format!("{found:?}");
                eprintln!("{fault:?}: {}", &found[..found.len().min(200)]);
            }
        }
        assert_kept(&play(seed, 3, 6000, None), IN_MEMORY);
    }
}
