//! The keys that patterns stand for: held all at once, or one after the other.
//!
//! SORT of a large collection may look up millions of keys. It holds them one after the other, so that no
//! other client waits, and a [survey](Survey) says at the end whether all were those of one moment. If not,
//! it begins anew, and the last attempt holds all keys. So do requests that look up few keys, and those in
//! transactions and scripts.

use crate::commands::error::Error;
use crate::keyspace::{Survey, Surveyed, Transaction};
use crate::values::Value;

use super::options::Sorting;

/// The keys that patterns stand for.
pub(super) enum Keys<'l, 'a> {
    /// The transaction holds all keys, or there are no such patterns.
    Held(&'l Transaction<'a>),
    /// The transaction holds the last of them.
    OneByOne(&'l mut Transaction<'a>, GivenUp),
}

/// Whether all keys must be held after all: there is no room to copy what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenUp(bool);

impl<'l, 'a> Keys<'l, 'a> {
    pub(super) fn one_by_one(tx: &'l mut Transaction<'a>) -> Keys<'l, 'a> {
        Keys::OneByOne(tx, GivenUp(false))
    }

    /// Looks up a key, at the moment of the transaction.
    pub(super) fn value(&mut self, key: &[u8]) -> Option<Value<'_>> {
        match self {
            Keys::Held(tx) => tx.get_any(key),
            Keys::OneByOne(tx, _) => {
                tx.hold_only_now(key);
                tx.get_any(key)
            }
        }
    }

    /// Notes that all keys must be held. Returns an error that no client gets.
    pub(super) fn give_up(&mut self) -> Error {
        if let Keys::OneByOne(_, given_up) = self {
            *given_up = GivenUp(true);
        }
        Error::MISSING
    }

    /// Whether all keys must be held.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self, Keys::OneByOne(_, GivenUp(true)))
    }
}

/// Begins a survey of all that a request reads, for a transaction that holds everything.
pub(super) fn begin_survey<'a>(
    tx: &Transaction<'a>,
    key: &[u8],
    sorting: &Sorting<'_>,
) -> Option<Survey<'a>> {
    let mut keys = sorting.surveyed();
    keys.push(Surveyed::Key(key.into()));
    tx.everything().ok().map(|all| all.begin_survey(keys))
}
