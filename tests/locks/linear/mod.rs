//! Linearizability: the replies to concurrent requests could be those of requests one after the other.
//!
//! Sixteen connections take, renew, read, release and break locks on the same few keys, and write some by
//! WATCH and EXEC, as fast as they can, against the real server on four threads. Some of them end without
//! reading their reply. [`recorder`] logs requests and replies with their times. [`register`] models one key,
//! whose expiry lies between the clocks of client and server. [`checker`] looks for an order that explains
//! all replies.
//!
//! A checker that never objects proves nothing. So [`faults`] imitates servers with typical mistakes, each of
//! which the checker must find. [`second_opinion`] asks porcupine-rs 0.3, which must agree.
//!
//! [`collections`] does the same with lists, sorted sets and hashes, which only porcupine checks, and
//! [`transactions`] with WATCH, MULTI and EXEC over several keys. [`locks`] does it with the commands of
//! LOCK, [`permits`] with those that several clients hold, and [`several`] with several locks at once.
//!
//! `KEYFAST_HISTORY_OPERATIONS=300000` makes the histories longer; 100,000 is what they are without it.

mod checker;
pub(crate) mod collections;
mod faults;
pub(crate) mod locks;
pub(crate) mod permits;
mod recorder;
mod register;
mod second_opinion;
pub(crate) mod several;
pub(crate) mod transactions;

use std::mem::discriminant;
use std::sync::Barrier;
use std::thread;

use checker::check;
use faults::{FAULTS, Play, play};
use recorder::{CONNECTIONS, Watch, record, record_while};
use register::{Answer, Moment, Operation, Request, Token};

use support::client::{Client, Reply};
use support::server::{Server, is_redis};

/// A server on enough threads for requests to be executed at once, also on a machine of few cores. Those of
/// Redis only read and write, and wait for work without rest. What deletes expired keys in the background of
/// Redis 8 does so a millisecond before a command finds them expired.
fn start_on_four_threads(is_redis: bool) -> Server {
    if !is_redis {
        return Server::start_with(&["--io-threads", "4"]);
    }
    let server = Server::start_with(&["--enable-debug-command", "yes"]);
    server.client().line("DEBUG SET-ACTIVE-EXPIRE 0").is_ok();
    server
}

fn operations() -> usize {
    let asked_for = std::env::var("KEYFAST_HISTORY_OPERATIONS").ok();
    asked_for.map_or(100_000, |number| number.parse().expect("KEYFAST_HISTORY_OPERATIONS is a number"))
}

#[track_caller]
fn assert_explained(history: &[Operation]) {
    if let Err(unexplained) = check(history) {
        let end: Vec<_> = unexplained.history.iter().rev().take(40).rev().map(ToString::to_string).collect();
        panic!("an answer that no order of the requests explains, at the end of:\n{}", end.join("\n"));
    }
}

/// Records a history and checks it. It must contain the events that it is meant to test.
fn record_and_check(is_redis: bool, keys: usize) -> Vec<Operation> {
    let server = start_on_four_threads(is_redis);
    let history = record(&server, is_redis, keys, operations());
    assert_explained(&history);
    assert_told(&history);
    history
}

/// The same over several servers that show the same keys, as long as the function says so. Returns how many
/// requests were sent, and how many answers were lost.
#[track_caller]
pub(crate) fn record_and_check_over(
    servers: &[Server],
    keys: usize,
    goes_on: impl Fn() -> bool + Sync,
) -> (usize, usize) {
    let history = record_while(servers, false, keys, goes_on);
    assert_explained(&history);
    assert_told(&history);
    (history.len(), history.iter().filter(|operation| operation.answer == Answer::Lost).count())
}

/// Whether a history contains the events that it is meant to test.
#[track_caller]
fn assert_told(history: &[Operation]) {
    for (request, answer) in [
        (Request::SetNx(A, None), YES),
        (Request::SetNx(A, None), NO),
        (Request::DelIfEq(A), YES),
        (Request::DelIfEq(A), NO),
        (Request::Expire(1), YES),
        (Request::Get, NOTHING),
        (Request::Del, Answer::Lost),
        (Request::Swap(None, A), NO),
    ] {
        let is_such =
            |one: &&Operation| discriminant(&one.request) == discriminant(&request) && one.answer == answer;
        let count = history.iter().filter(is_such).count();
        assert!(count >= history.len() / 20_000, "{count} times {request:?} was answered {answer:?}");
    }
}

/// Not beside Redis, whose history of one key takes the checker minutes.
#[test]
fn what_16_connections_are_told_of_one_key_could_have_been_told_one_after_the_other() {
    record_and_check(false, 1);
}

marked!(also_redis: so_it_is_with_8_keys);
fn so_it_is_with_8_keys() {
    record_and_check(is_redis(), 8);
}

marked!(also_redis: so_it_is_with_64_keys_and_porcupine_agrees);
fn so_it_is_with_64_keys_and_porcupine_agrees() {
    let history = record_and_check(is_redis(), 64);
    assert!(second_opinion::is_linearizable(&history));
}

/// An operation that was asked and answered at these moments, in milliseconds.
fn told(span: std::ops::Range<u64>, request: Request, answer: Answer) -> Operation {
    let moment = |ms: u64| Moment { nanos: ms * 1_000_000, wall_ms: ms, next_ms: ms };
    Operation {
        connection: span.start as usize,
        key: 0,
        request,
        answer,
        sent: moment(span.start),
        ended: Some(moment(span.end)),
    }
}

/// An operation whose reply was lost.
fn lost(start: u64, request: Request) -> Operation {
    Operation { ended: None, ..told(start..start, request, Answer::Lost) }
}

const YES: Answer = Answer::Done(true);
const NO: Answer = Answer::Done(false);
const A: Token = Token(1);
const B: Token = Token(2);
const C: Token = Token(3);

const fn found(token: Token) -> Answer {
    Answer::Found(Some(token))
}

const NOTHING: Answer = Answer::Found(None);

#[track_caller]
fn is_fine(history: &[Operation]) {
    assert_explained(history);
    assert!(second_opinion::is_linearizable(history), "porcupine thinks otherwise");
}

#[track_caller]
fn is_rejected(history: &[Operation]) {
    assert!(check(history).is_err(), "this was taken for right: {history:?}");
    assert!(!second_opinion::is_linearizable(history), "porcupine thinks otherwise");
}

#[test]
fn a_second_setnx_that_is_told_1_is_rejected() {
    use Request::{Del, DelIfEq, SetNx};
    is_rejected(&[told(0..5, SetNx(A, None), YES), told(3..8, SetNx(B, None), YES)]);
    is_fine(&[told(0..5, SetNx(A, None), YES), told(3..8, SetNx(B, None), NO)]);
    // A client may have released the lock in between.
    is_fine(&[told(0..5, SetNx(A, None), YES), told(3..8, SetNx(B, None), YES), told(1..9, Del, YES)]);
    is_fine(&[told(0..2, SetNx(A, None), YES), lost(1, DelIfEq(A)), told(3..8, SetNx(B, None), YES)]);
    is_rejected(&[told(0..2, SetNx(A, None), YES), told(3..8, SetNx(B, None), YES), lost(9, DelIfEq(A))]);
    is_rejected(&[told(0..2, SetNx(A, None), YES), told(3..8, SetNx(B, None), YES), lost(1, DelIfEq(C))]);
}

#[test]
fn a_read_of_what_is_not_there_any_more_is_rejected() {
    use Request::{Get, Set};
    let writes = [told(0..2, Set(A, None), YES), told(3..6, Set(B, None), YES)];
    let read = |span, answer| [writes.as_slice(), &[told(span, Get, answer)]].concat();
    is_fine(&read(5..8, found(A)));
    is_rejected(&read(7..8, found(A)));
    is_fine(&read(7..8, found(B)));
    is_rejected(&read(7..8, NOTHING));
    let two_reads = [read(4..5, found(B)), read(5..6, found(A)).split_off(2)].concat();
    is_fine(&two_reads);
    let in_turn = [read(4..5, found(B)), vec![told(6..7, Get, found(A))]].concat();
    is_rejected(&in_turn);
}

#[test]
fn a_getset_that_loses_what_another_wrote_is_rejected() {
    use Request::{GetSet, Set};
    let before = told(0..1, Set(A, None), YES);
    is_fine(&[before, told(2..6, GetSet(B), found(A)), told(3..5, GetSet(C), found(B))]);
    is_rejected(&[before, told(2..6, GetSet(B), found(A)), told(3..5, GetSet(C), found(A))]);
}

#[test]
fn a_delifeq_that_deletes_what_another_wrote_is_rejected() {
    use Request::{DelIfEq, Get, Set, SetNx};
    let taken_over = [told(0..1, SetNx(A, None), YES), told(2..4, Set(B, None), YES)];
    let then = |operations: &[Operation]| [taken_over.as_slice(), operations].concat();
    is_fine(&then(&[told(5..6, DelIfEq(A), NO), told(7..8, Get, found(B))]));
    is_fine(&then(&[told(3..6, DelIfEq(A), YES), told(7..8, Get, found(B))]));
    is_rejected(&then(&[told(5..6, DelIfEq(A), YES)]));
    is_rejected(&then(&[told(3..6, DelIfEq(A), YES), told(7..8, Get, NOTHING)]));
}

#[test]
fn an_exec_that_writes_although_its_watched_key_has_changed_is_rejected() {
    use Request::{Del, Set, Swap};
    let before = told(0..1, Set(A, None), YES);
    let then = |more: &[Operation]| [std::slice::from_ref(&before), more].concat();
    is_fine(&then(&[told(2..6, Swap(Some(A), B), YES), told(3..5, Swap(Some(A), C), NO)]));
    is_rejected(&then(&[told(2..6, Swap(Some(A), B), YES), told(3..5, Swap(Some(A), C), YES)]));
    is_rejected(&then(&[told(2..6, Swap(None, B), YES)]));
    is_fine(&then(&[told(2..3, Del, YES), told(4..5, Swap(None, B), YES)]));
    is_rejected(&then(&[told(2..3, Set(B, None), YES), told(4..5, Swap(Some(A), C), YES)]));
    is_fine(&then(&[lost(1, Swap(Some(A), B)), told(4..5, Swap(Some(B), C), YES)]));
    is_fine(&[lost(0, Set(A, None)), lost(1, Swap(Some(A), B)), told(4..5, Request::Get, found(B))]);
}

#[test]
fn a_key_that_outlives_its_expiry_or_does_not_live_to_see_it_is_rejected() {
    use Request::{Expire, Get, GetEx, Set, SetNx};
    // It expires between 110 and 112.
    let lock = told(100..102, SetNx(A, Some(10)), YES);
    is_fine(&[lock, told(111..113, Get, found(A))]);
    is_rejected(&[lock, told(112..113, Get, found(A))]);
    is_rejected(&[lock, told(112..113, SetNx(B, None), NO)]);
    is_rejected(&[lock, told(112..113, Expire(5), YES)]);
    is_fine(&[lock, told(109..110, SetNx(B, None), YES)]);
    is_rejected(&[lock, told(108..109, SetNx(B, None), YES)]);
    is_rejected(&[lock, told(108..109, Get, NOTHING)]);
    is_rejected(&[lock, told(109..110, Get, NOTHING), told(111..112, Get, found(A))]);
    is_fine(&[lock, told(105..106, Expire(10), YES), told(114..115, Get, found(A))]);
    is_rejected(&[lock, told(105..106, Expire(10), YES), told(116..117, Get, found(A))]);
    is_rejected(&[lock, told(105..106, Expire(10), YES), told(112..113, Get, NOTHING)]);
    is_rejected(&[lock, told(105..106, Set(B, None), YES), told(212..213, Get, NOTHING)]);
    is_rejected(&[lock, told(105..106, GetEx(10), found(A)), told(116..117, Get, found(A))]);
}

#[test]
fn requests_whose_answers_were_lost_were_done_late_or_never_but_not_twice() {
    use Request::{Del, Get, GetSet, Set, SetNx};
    is_fine(&[lost(0, Set(A, None)), told(5..6, Get, NOTHING)]);
    is_fine(&[lost(0, Set(A, None)), told(5..6, Get, NOTHING), told(7..8, Get, found(A))]);
    is_rejected(&[lost(0, Set(A, None)), told(5..6, Get, found(A)), told(7..8, Get, NOTHING)]);
    is_rejected(&[told(5..6, Get, found(A)), lost(7, Set(A, None))]);
    is_fine(&[lost(0, GetSet(A)), told(1..2, SetNx(B, None), NO)]);
    is_rejected(&[lost(0, SetNx(A, None)), told(1..2, SetNx(B, None), YES), told(3..4, Get, found(A))]);
    let once = [lost(0, Del), told(1..2, SetNx(A, None), YES), told(3..4, SetNx(B, None), YES)];
    is_fine(&once);
    is_rejected(&[once.as_slice(), &[told(5..6, SetNx(C, None), YES)]].concat());
    is_fine(&[once.as_slice(), &[lost(4, Del), told(5..6, SetNx(C, None), YES)]].concat());
}

#[test]
fn servers_that_are_wrong_are_found_out_and_one_that_is_right_is_not() {
    for seed in 0..5 {
        let busy =
            Play { seed, clients: 16, keys: 32, operations: 6000, step_us: 20, requests_per_crash: None };
        for fault in FAULTS {
            assert!(check(&play(busy, Some(fault))).is_err(), "{fault:?} was not found out, seed {seed}");
        }
        assert_explained(&play(busy, None));
        assert_explained(&play(Play { requests_per_crash: Some(20), ..busy }, None));
    }
}

#[test]
fn porcupine_comes_to_the_same_conclusions() {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..200 {
        let requests_per_crash = (seed % 2 == 0).then_some(10);
        let short = Play { seed, clients: 6, keys: 1, operations: 40, step_us: 200, requests_per_crash };
        for fault in FAULTS.map(Some).into_iter().chain([None]) {
            let history = play(short, fault);
            let is_right = check(&history).is_ok();
            assert_eq!(is_right, second_opinion::is_linearizable(&history), "{fault:?}, seed {seed}");
            *if is_right { &mut right } else { &mut wrong } += 1;
        }
    }
    assert!(right > 200 && wrong > 200, "{right} were right and {wrong} wrong");
}

/// SETNX made of GET and SET, as a client might.
fn emulate_setnx(client: &mut Client, between: impl FnOnce(), token: Token) -> Answer {
    if client.line("GET register:0").reply() != Reply::Null {
        return NO;
    }
    between();
    client.line(&format!("SET register:0 {}", token.0)).is_ok();
    YES
}

marked!(also_redis: setnx_made_of_get_and_set_is_found_out_over_real_connections);
fn setnx_made_of_get_and_set_is_found_out_over_real_connections() {
    let server = start_on_four_threads(is_redis());
    let (watch, both_have_looked) = (Watch::start(), Barrier::new(2));
    let attempt = |connection: usize, token: Token| {
        let mut client = server.client();
        let sent = watch.now();
        let answer = emulate_setnx(&mut client, || _ = both_have_looked.wait(), token);
        let request = Request::SetNx(token, None);
        Operation { connection, key: 0, request, answer, sent, ended: Some(watch.now()) }
    };
    let history = thread::scope(|scope| {
        let first = scope.spawn(|| attempt(0, A));
        [attempt(1, B), first.join().expect("an answer")]
    });
    is_rejected(&history);
}

marked!(also_redis: setnx_made_of_get_and_set_is_found_out_even_without_an_arranged_race);
fn setnx_made_of_get_and_set_is_found_out_even_without_an_arranged_race() {
    let server = start_on_four_threads(is_redis());
    let (watch, at_once) = (Watch::start(), Barrier::new(CONNECTIONS));
    let asked = |client: &mut Client, connection: usize, request: Request| {
        let sent = watch.now();
        let answer = match request {
            Request::SetNx(token, _) => emulate_setnx(client, || (), token),
            _ => Answer::Done(client.line("DEL register:0").integer() == 1),
        };
        Operation { connection, key: 0, request, answer, sent, ended: Some(watch.now()) }
    };
    let history: Vec<Operation> = thread::scope(|scope| {
        let contenders: Vec<_> = (0..CONNECTIONS)
            .map(|connection| {
                let (server, at_once, asked) = (&server, &at_once, &asked);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut history = Vec::new();
                    for round in 0..200 {
                        let token = Token((round * CONNECTIONS + connection) as u32 + 1);
                        at_once.wait();
                        history.push(asked(&mut client, connection, Request::SetNx(token, None)));
                        at_once.wait();
                        if connection == 0 {
                            history.push(asked(&mut client, connection, Request::Del));
                        }
                    }
                    history
                })
            })
            .collect();
        contenders.into_iter().flat_map(|contender| contender.join().expect("a history")).collect()
    });
    assert!(check(&history).is_err(), "of 200 races none was lost");
}
