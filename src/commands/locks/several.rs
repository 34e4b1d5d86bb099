//! LOCK … ALSO: several locks by one request, which a client gets together or not at all. Where it asks for
//! permits of them, [`permits`] grants these.
//!
//! The request holds the shards of all its keys. So it sees them at one moment, takes all of them or none,
//! and the log has that as one unit. One fencing number is drawn for all: it is larger than those of all
//! earlier holders of each key. From then on each key is a lock of its own: it may be released, extended or
//! lost alone. A key that is named twice counts as one.

use std::collections::HashSet;

use crate::events::EventClass;
use crate::keyspace::{LockChange, Transaction};
use crate::resp::{Reply, Request};
use crate::types::strings::Text;
use crate::waiting::Ticket;

use super::arguments::Acquiring;
use super::owning::{holds, take_again, tell_of_taking};
use super::permits;
use crate::commands::facts::Result;

/// How several locks are taken.
pub(super) struct Grab<'a> {
    pub(super) acquiring: &'a Acquiring<'a>,
    /// When they expire, in milliseconds since 1970.
    pub(super) expires_at_ms: u64,
    /// What the lens hears of each one that another client holds.
    pub(super) otherwise: Option<LockChange>,
    /// Whether the client has not stood in line for them until now.
    pub(super) is_newcomer: bool,
}

/// Takes all of the locks, or none. Returns the fencing number. With AGAIN those that the token holds need
/// not be free: it keeps them with their numbers, and what is returned is the largest of all.
pub(super) fn acquire<'k>(
    tx: &mut Transaction<'_>,
    grab: &Grab<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<u64>> {
    let Grab { acquiring: Acquiring { token, is_again, bound, .. }, expires_at_ms, .. } = *grab;
    let keys = once(keys).into_iter();
    let (held, wanted): (Vec<&[u8]>, Vec<&[u8]>) = keys.partition(|key| *is_again && holds(tx, key, token));
    // The lens hears of each one that another client holds.
    let is_taken = |key: &&&[u8]| !permits::are_over(tx, key) && !tx.finds_free(key, grab.otherwise);
    let taken = wanted.iter().filter(is_taken).count();
    if taken > 0 {
        let mut held_by_others = wanted.iter().filter(|key| !tx.is_free(key));
        held_by_others.try_for_each(|key| permits::refuse_upgrade(tx, key, token))?;
    }
    if taken > 0 || grab.is_newcomer && wanted.iter().any(|key| tx.leaves_to_line(key)) {
        return Ok(None);
    }
    if tx.is_in_store() {
        wanted.iter().try_for_each(|key| permits::make_way_in_store(tx, key, false))?;
    }
    let drawn = tx.fence_for_all(&wanted);
    for key in wanted {
        tx.grant(key, token, expires_at_ms, drawn.unwrap_or_default());
        tell_of_taking(tx, key, expires_at_ms, grab.is_newcomer);
    }
    let kept = held.into_iter().map(|key| take_again(tx, key, expires_at_ms, bound.is_some()));
    Ok(kept.chain(drawn).max())
}

/// Each key once, in the order of the request.
pub(super) fn once<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<&'k [u8]> {
    let mut seen = HashSet::new();
    keys.filter(|key| seen.insert(*key)).collect()
}

/// The place of one of these keys that a client which waits for several locks cannot take: another client has
/// it, or comes before this one, in line with this ticket.
pub(super) fn lacks(
    tx: &Transaction<'_>,
    request: Request<'_>,
    keys: &[Box<[u8]>],
    ticket: Ticket,
) -> Option<usize> {
    let acquiring = Acquiring::parse(request).ok()?;
    let Acquiring { token, is_again, limit, .. } = acquiring;
    let is_lacking = |key: &[u8]| match limit {
        Some(limit) => permits::is_lacking(tx, key, (&acquiring, limit), ticket),
        None if tx.is_free(key) => tx.is_awaited_before(key, ticket),
        None => !(is_again && holds(tx, key, token)),
    };
    keys.iter().position(|key| is_lacking(key))
}

/// What a token has of a key.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Holding {
    /// The string at the key, if it is a lock.
    Lock,
    Permit,
    Nothing,
}

/// What a token has of a key. The lens hears of one look at it.
///
/// # Errors
///
/// If the key has a value of another type.
pub(super) fn holding(tx: &Transaction<'_>, key: &[u8], token: &[u8]) -> Result<Holding> {
    match tx.peek::<Text>(key) {
        Ok(value) if value == Some(token) => Ok(Holding::Lock),
        Err(_) if permits::are_held(tx, key, token) => Ok(Holding::Permit),
        Err(error) if !permits::are_at(tx, key) => Err(error.into()),
        _ => Ok(Holding::Nothing),
    }
}

/// Deletes those of the locks that the token holds, and gives its permits back. Replies how many they were.
pub(super) fn release<'k>(
    tx: &mut Transaction<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
    token: &[u8],
    reply: Reply<'_>,
) -> Result {
    let keys = once(keys);
    let held: Vec<Holding> = keys.iter().map(|key| holding(tx, key, token)).collect::<Result<_>>()?;
    for (key, held) in keys.iter().zip(&held) {
        match held {
            Holding::Lock => {
                tx.remove(key);
                tx.event(EventClass::GENERIC, "del", key);
            }
            Holding::Permit => permits::give_back(tx, key, token)?,
            Holding::Nothing if permits::are_at(tx, key) => {}
            Holding::Nothing => tx.follow_unmet(key),
        }
    }
    let released = held.iter().filter(|held| **held != Holding::Nothing).count();
    Ok(reply.integer(released as i64))
}
