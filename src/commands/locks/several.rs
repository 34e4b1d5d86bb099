//! LOCK … ALSO: several locks by one request, which a client gets together or not at all.
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

use super::arguments::{Acquiring, TOKEN_AT};
use super::owning::{holds, take_again, tell_of_taking};
use super::permits;
use crate::commands::error::Error;
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
fn once<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<&'k [u8]> {
    let mut seen = HashSet::new();
    keys.filter(|key| seen.insert(*key)).collect()
}

/// Whether a client that waits for several locks can take one of them.
pub(super) fn can_take(tx: &Transaction<'_>, request: Request<'_>, key: &[u8]) -> bool {
    let is_again = || Acquiring::parse(request).is_ok_and(|acquiring| acquiring.is_again);
    tx.is_free(key) || holds(tx, key, request.at(TOKEN_AT)) && is_again()
}

/// Those of the keys that the token does not hold.
///
/// # Errors
///
/// If one of them has a value of another type.
pub(super) fn lacking<'k>(
    tx: &Transaction<'_>,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    token: &[u8],
) -> Result<Vec<&'k [u8]>> {
    keys.clone().try_for_each(|key| check_type(tx, key))?;
    Ok(keys.filter(|key| !holds(tx, key, token)).collect())
}

/// Refuses a key that has neither a lock nor permits.
fn check_type(tx: &Transaction<'_>, key: &[u8]) -> Result<()> {
    match tx.peek::<Text>(key) {
        Err(_) if permits::are_at(tx, key) => Ok(()),
        value => value.map(|_| ()).map_err(Error::from),
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
    keys.iter().try_for_each(|key| check_type(tx, key))?;
    let mut released = 0;
    for key in keys {
        // Its absence is known.
        let is_held = !tx.is_free(key) && tx.peek::<Text>(key).is_ok_and(|value| value == Some(token));
        let has_permits = permits::are_at(tx, key);
        if is_held {
            tx.remove(key);
            tx.event(EventClass::GENERIC, "del", key);
        } else if !has_permits {
            tx.follow_unmet(key);
        }
        released += i64::from(is_held || has_permits && permits::release(tx, key, token)?);
    }
    Ok(reply.integer(released))
}
