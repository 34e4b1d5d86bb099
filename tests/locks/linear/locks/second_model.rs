//! A second opinion: porcupine looks for the order, with a model of a lock that knows its number. There
//! tokens come again, as those of clients that use their name. No reply may be missing.

use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

use super::told::{Answer, Expiry, Request, Told};
use crate::linear::register::{self, Register};

/// How long porcupine may think about one key.
const THINKING: Duration = Duration::from_secs(60);

/// A lock: a key, the number of its holder if it has one, and the last number that the key had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Lock {
    register: Register,
    number: Option<u64>,
    last: u64,
}

/// The lock, as porcupine wants to know it.
#[derive(Clone, Debug)]
struct Fenced;

impl Model for Fenced {
    type State = Lock;
    type Op = (Told, Expiry);
    type Metadata = ();

    fn init() -> Lock {
        Lock::default()
    }

    fn step(before: &Lock, (told, expiry): &(Told, Expiry)) -> (bool, Lock) {
        let after = step(*before, told, *expiry);
        (after.is_some(), after.unwrap_or(*before))
    }
}

/// What a request makes of a lock, if it can have been answered as it was.
fn step(mut before: Lock, told: &Told, expiry: Expiry) -> Option<Lock> {
    let mut operation = told.operation(expiry);
    // The clock shows at least what those have seen whose requests were done before: one that has waited for
    // long is granted the lock later than it was sent.
    let now_ms = before.register.now_ms.max(operation.sent.wall_ms);
    (before.register.now_ms, operation.sent.wall_ms) = (now_ms, now_ms);
    let drawn = |register, number: u64| {
        (number > before.last).then_some(Lock { register, number: Some(number), last: number })
    };
    let holder = before.register.held.map(|held| held.token);
    match (told.request, told.answer) {
        // The token has the lock, or it is refused because another one has it.
        (Request::Acquire { token, is_again: true, .. }, Answer::Number(None)) if holder == Some(token) => {
            None
        }
        (Request::Acquire { token, lifetime_ms, is_again: true, .. }, Answer::Number(Some(number)))
            if holder == Some(token) && before.number.is_none_or(|own| own == number) =>
        {
            operation.request = register::Request::ProlongIfEq(token, lifetime_ms);
            let register = operation.apply(before.register)?;
            match before.number {
                Some(_) => Some(Lock { register, ..before }),
                None => drawn(register, number),
            }
        }
        (Request::Acquire { .. }, Answer::Number(Some(number))) => {
            drawn(operation.apply(before.register)?, number)
        }
        (Request::Extend { .. }, Answer::Number(Some(number))) => {
            let register = operation.apply(before.register)?;
            match before.number {
                Some(own) => (own == number).then_some(Lock { register, ..before }),
                None => drawn(register, number),
            }
        }
        (Request::Fence(_), Answer::Number(Some(number))) => {
            let register = operation.apply(before.register)?;
            (before.number == Some(number)).then_some(Lock { register, ..before })
        }
        (Request::Fence(_), Answer::Number(None)) => {
            // That of another library has no number.
            let holds = register::Operation { answer: register::Answer::Done(true), ..operation };
            let without = holds.apply(before.register).filter(|_| before.number.is_none());
            let register = without.or_else(|| operation.apply(before.register))?;
            Some(Lock { register, number: before.number.filter(|_| register.held.is_some()), ..before })
        }
        (Request::SetNx { .. }, Answer::Done(true)) => {
            Some(Lock { register: operation.apply(before.register)?, number: None, ..before })
        }
        _ => {
            let register = operation.apply(before.register)?;
            Some(Lock { register, number: before.number.filter(|_| register.held.is_some()), ..before })
        }
    }
}

/// Whether porcupine finds an order that explains the replies.
pub(super) fn is_explained(history: &[Told], expiry: Expiry) -> bool {
    let keys = history.iter().map(|told| told.key + 1).max().unwrap_or(0);
    (0..keys).all(|key| {
        let translate = |told: &Told| Operation::<Fenced> {
            client_id: None,
            call_time: told.sent.nanos as i64,
            return_time: told.ended.map_or(i64::MAX, |ended| ended.nanos as i64),
            op: (*told, expiry),
            metadata: None,
        };
        let of_key = history.iter().filter(|told| told.key == key && told.answer != Answer::Lost);
        let operations: Vec<_> = of_key.map(translate).collect();
        match check_operations_timeout::<Fenced>(&operations, THINKING) {
            CheckResult::Ok => true,
            CheckResult::Illegal => false,
            CheckResult::Unknown => panic!("porcupine did not come to an end with {}", operations.len()),
        }
    })
}
