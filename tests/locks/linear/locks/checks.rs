//! What must be true of a history of locks.
//!
//! - **Order of the replies**: there is one that explains them ([`checker`](crate::linear::checker)).
//! - **Numbers**: no two grants have the same. They grow for each key in the order of the grants, and over
//!   all keys in the order of time.
//! - **The line**: a client that certainly waits is granted the lock before each that came later, and a
//!   client that does not wait never comes before it. No client gets nil before its time is up.
//!
//! Each request that takes a lock has a token of its own, so a token stands for one holder, and all that is
//! shown of it tells when it held the lock.

use std::collections::{HashMap, HashSet};

use super::recording::LONG_MS;
use super::told::{Answer, Expiry, Request, Told};
use crate::linear::checker;
use crate::linear::register::{self, Moment, Operation, Token};

/// What a history breaks.
#[derive(Clone, Debug)]
pub(super) enum Broken {
    /// No order of the requests explains the replies.
    Unexplained(String),
    /// A number is not the only one, or not in its place.
    Number(String),
    /// A client was granted the lock out of its turn.
    Turn(String),
}

/// Which of the promises hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promises {
    pub(super) expiry: Expiry,
    /// Whether locks are taken away only by those who ask for that.
    pub(super) is_kept: bool,
    /// Whether the keys are in a store. There the line does not count for clients that do not wait, within
    /// transactions and scripts, nor for a client whose time is up before the store has replied. And a lock
    /// that was taken by SET NX has a number.
    pub(super) is_in_store: bool,
}

/// A time with a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    key: usize,
    token: Token,
    number: u64,
    /// The number was drawn between these moments.
    drawn: (Moment, u64),
    /// The last moment at which it was asked for what shows it.
    shown_from: Moment,
    /// It was shown before this.
    shown_ns: u64,
}

/// Checks all that is promised.
pub(super) fn check(history: &[Told], promises: Promises) -> Result<(), Broken> {
    let tenures = check_numbers(history, promises)?;
    check_turns(history, &tenures, promises)?;
    if promises.is_kept { check_replies(history, &tenures, promises) } else { Ok(()) }
}

/// Checks the numbers; returns the tenures in their order.
pub(super) fn check_numbers(history: &[Told], promises: Promises) -> Result<Vec<Tenure>, Broken> {
    let tenures = in_order_for_each_key(&tenures(history, promises)?, history)?;
    in_order_of_time(&tenures)?;
    Ok(tenures)
}

/// Checks that an order explains the replies. The tenures, if they are given, show when locks were granted.
pub(super) fn check_replies(history: &[Told], tenures: &[Tenure], promises: Promises) -> Result<(), Broken> {
    let operations = operations(history, tenures, promises);
    checker::check(&operations).map_err(|unexplained| {
        let end: Vec<_> = unexplained.history.iter().rev().take(40).rev().map(ToString::to_string).collect();
        Broken::Unexplained(end.join("\n"))
    })
}

/// The tenures with a number, sorted by it. Each number has one token, and each token one number.
fn tenures(history: &[Told], promises: Promises) -> Result<Vec<Tenure>, Broken> {
    let mut by_token: HashMap<Token, Tenure> = HashMap::new();
    let mut token_of: HashMap<u64, Token> = HashMap::new();
    for told in history {
        let (Some(number), Some(token), Some(ended)) = (told.number(), told.shown(), told.ended) else {
            continue;
        };
        let new = Tenure {
            key: told.key,
            token,
            number,
            drawn: (Moment::BEGINNING, ended.nanos),
            shown_from: Moment::BEGINNING,
            shown_ns: u64::MAX,
        };
        let tenure = by_token.entry(token).or_insert(new);
        tenure.drawn.1 = tenure.drawn.1.min(ended.nanos);
        if tenure.number != number {
            return Err(Broken::Number(format!("{token:?} has the numbers {} and {number}", tenure.number)));
        }
        if *token_of.entry(number).or_insert(token) != token {
            return Err(Broken::Number(format!("{token:?} and {:?} have {number}", token_of[&number])));
        }
    }
    let mut asked: HashMap<Token, Moment> = HashMap::new();
    for told in history {
        if let Some(token) = told.shown()
            && let Some(tenure) = by_token.get_mut(&token)
        {
            tenure.shown_from = later(tenure.shown_from, told.sent);
            tenure.shown_ns = tenure.shown_ns.min(told.ended_ns());
        }
        // From when on it may have been given a number.
        if let Request::Acquire { token, .. } | Request::Extend { token, .. } = told.request {
            let first = asked.entry(token).or_insert(told.sent);
            *first = if told.sent.nanos < first.nanos { told.sent } else { *first };
        }
        // A lock that was acquired had its number when it was first shown.
        let taken = match told.request {
            Request::Acquire { token, .. } => Some(token),
            Request::SetNx { token, .. } if promises.is_in_store => Some(token),
            _ => None,
        };
        if let Some(token) = taken
            && let Some(tenure) = by_token.get_mut(&token)
        {
            tenure.drawn.0 = told.sent;
        }
    }
    let acquired = |tenure: &Tenure| tenure.drawn.0 != Moment::BEGINNING;
    let mut tenures: Vec<Tenure> = by_token.into_values().collect();
    for tenure in &mut tenures {
        if acquired(tenure) {
            tenure.drawn.1 = tenure.drawn.1.min(tenure.shown_ns);
        } else if let Some(asked) = asked.get(&tenure.token) {
            tenure.drawn.0 = *asked;
        }
    }
    tenures.sort_unstable_by_key(|tenure| tenure.number);
    Ok(tenures)
}

fn later(one: Moment, other: Moment) -> Moment {
    if one.nanos < other.nanos { other } else { one }
}

/// The numbers grow from holder to holder of each key. So a number was drawn after all that is known of the
/// earlier holders.
fn in_order_for_each_key(tenures: &[Tenure], history: &[Told]) -> Result<Vec<Tenure>, Broken> {
    let keys = history.iter().map(|told| told.key + 1).max().unwrap_or(0);
    let mut last: Vec<Option<Tenure>> = vec![None; keys];
    let mut in_order = tenures.to_vec();
    for tenure in &mut in_order {
        let last = &mut last[tenure.key];
        if let Some(last) = last {
            if tenure.shown_ns < last.shown_from.nanos {
                let why = format!("{tenure:?} was the holder before {last:?}");
                return Err(Broken::Number(why));
            }
            tenure.drawn.0 = later(tenure.drawn.0, last.shown_from);
        }
        if last.is_none_or(|last| last.shown_from.nanos < tenure.shown_from.nanos) {
            *last = Some(*tenure);
        }
    }
    Ok(in_order)
}

/// A number that was drawn before another one, of whatever key, is smaller.
fn in_order_of_time(tenures: &[Tenure]) -> Result<(), Broken> {
    let mut latest: Option<Tenure> = None;
    for tenure in tenures {
        if let Some(latest) = latest
            && tenure.drawn.1 < latest.drawn.0.nanos
        {
            return Err(Broken::Number(format!("{tenure:?} was drawn before {latest:?}")));
        }
        if latest.is_none_or(|latest| latest.drawn.0.nanos < tenure.drawn.0.nanos) {
            latest = Some(*tenure);
        }
    }
    Ok(())
}

/// Checks that clients that wait are granted the lock in the order in which they came.
pub(super) fn check_turns(history: &[Told], tenures: &[Tenure], promises: Promises) -> Result<(), Broken> {
    let of_token: HashMap<Token, &Tenure> = tenures.iter().map(|tenure| (tenure.token, tenure)).collect();
    // Who has taken locks by LOCK ACQUIRE, in the order of the grants.
    let tenure_of = |told: &Told| match told.request {
        Request::Acquire { token, .. } => of_token.get(&token).copied(),
        _ => None,
    };
    let mut granted: Vec<(&Told, &Tenure)> =
        history.iter().filter_map(|told| Some((told, tenure_of(told)?))).collect();
    granted.sort_unstable_by_key(|(told, _)| told.sent.nanos);
    for waiting in history {
        let Some(wait_ms) = waiting.wait_ms() else { continue };
        let least_ns = waiting.sent.nanos + wait_ms * 1_000_000;
        let was_ended = waiting.left_ns.is_some_and(|left_ns| left_ns < waiting.ended_ns());
        if waiting.answer == Answer::Number(None)
            && waiting.stood_ns.is_some()
            && waiting.ended_ns() < least_ns
            && !was_ended
        {
            return Err(Broken::Turn(format!("{waiting} was told nil before its time was up")));
        }
        let Some(stood_ns) = waiting.stood_ns else { continue };
        let own = tenure_of(waiting);
        // Until then it certainly stood in line, if it was not granted the lock.
        let stood_until_ns = match (own, waiting.answer) {
            (Some(_), _) => u64::MAX,
            (None, Answer::Number(None)) => least_ns.min(waiting.left_ns.unwrap_or(u64::MAX)),
            _ => continue,
        };
        let from = granted.partition_point(|(told, _)| told.sent.nanos <= stood_ns);
        let overtakes = |(told, tenure): &&(&Told, &Tenure)| {
            told.key == waiting.key
                && told.front == waiting.front
                && (!promises.is_in_store || (!told.is_wrapped && told.wait_ms().is_some_and(is_long)))
                && own.map_or(tenure.drawn.1 < stood_until_ns, |own| tenure.number < own.number)
        };
        if let Some((told, tenure)) = granted[from..].iter().find(overtakes) {
            let why = format!("{told}\nwas granted {} before\n{waiting}, {own:?}", tenure.number);
            return Err(Broken::Turn(why));
        }
    }
    Ok(())
}

/// Whether a wait ends only with a grant.
fn is_long(wait_ms: u64) -> bool {
    wait_ms == LONG_MS
}

/// The history for a model of a key that knows no numbers. What the numbers show of the times of grants is
/// put into it.
fn operations(history: &[Told], tenures: &[Tenure], promises: Promises) -> Vec<Operation> {
    let of_token: HashMap<Token, &Tenure> = tenures.iter().map(|tenure| (tenure.token, tenure)).collect();
    let others: HashSet<Token> = history
        .iter()
        .filter_map(|told| match told.request {
            Request::SetNx { token, .. } => Some(token),
            _ => None,
        })
        .collect();
    let bound = history.iter().filter(|told| told.is_bound).filter_map(Told::token);
    let bound: HashSet<Token> = bound.collect();
    let translate = |told: &Told| {
        match told.request {
            // That of another library has a number only after it was extended.
            Request::Fence(token) if told.answer == Answer::Number(None) && others.contains(&token) => {
                return None;
            }
            _ => {}
        }
        let mut operation = told.operation(promises.expiry);
        // It brings no end nearer, and the history has the end of the connection.
        if let Request::Extend { token, .. } = told.request
            && bound.contains(&token)
        {
            operation.request = register::Request::Holds(token);
        }
        if let Request::Acquire { token, .. } = told.request
            && let Some(tenure) = of_token.get(&token)
            && tenure.drawn.0.nanos <= tenure.drawn.1
        {
            operation.sent = tenure.drawn.0;
        }
        Some(operation)
    };
    history.iter().filter_map(translate).collect()
}
