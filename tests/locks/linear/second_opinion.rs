//! A second checker for the same histories: porcupine. It gets our model of a key, but searches in its own
//! way (Wing and Gong, with Lowe's cache). Its memory grows with the square of a key's history, so it gets
//! histories of many keys, and short ones.

use std::time::Duration;

use porcupine_rs::{CheckResult, Model, check_operations_timeout};

use super::checker::{by_key, clarify};
use super::register::{Operation, Register};

/// How long it may think; it is killed then, and the test fails.
const THINKING: Duration = Duration::from_secs(60);

/// One key, as porcupine wants to know it.
#[derive(Clone, Debug)]
struct Key;

impl Model for Key {
    type State = Register;
    type Op = Operation;
    type Metadata = ();

    fn init() -> Register {
        Register::default()
    }

    fn step(register: &Register, operation: &Operation) -> (bool, Register) {
        let after = operation.apply(*register);
        (after.is_some(), after.unwrap_or_default())
    }
}

/// Whether porcupine finds an order.
pub(super) fn is_linearizable(history: &[Operation]) -> bool {
    by_key(&clarify(history)).iter().all(|history| {
        let operations: Vec<_> = history.iter().map(translate).collect();
        match check_operations_timeout::<Key>(&operations, THINKING) {
            CheckResult::Ok => true,
            CheckResult::Illegal => false,
            CheckResult::Unknown => {
                panic!("porcupine did not come to an end with {} operations", history.len())
            }
        }
    })
}

fn translate(operation: &Operation) -> porcupine_rs::Operation<Key> {
    porcupine_rs::Operation {
        client_id: None,
        call_time: operation.sent.nanos as i64,
        return_time: operation.ended.map_or(i64::MAX, |ended| ended.nanos as i64),
        op: *operation,
        metadata: None,
    }
}
