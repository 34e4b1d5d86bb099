//! Corrects the lens where it has missed that a lock is gone. Then the locks that are held are counted right.

use crate::commands::facts::Result;
use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::lens::Held;
use crate::types::hashes::Hash;
use crate::values::{Type, Value};

/// Corrects the lens where it has missed that a lock is gone, for a transaction that may look at any shard.
pub(in crate::commands) fn correct_in(instance: &Instance, tx: &Transaction<'_>) -> Result<()> {
    let walk = tx.walk()?;
    correct(instance, tx.now_ms(), |held| {
        Some(walk.has_lock(held.database, &held.key, |is_marked, value| is_lock(held, is_marked, value)))
    });
    Ok(())
}

/// Whether a key still is the lock that counts as held: by its mark, or by the field that is one.
pub(crate) fn is_lock(held: &Held, is_marked: bool, value: Value<'_>) -> bool {
    match &held.field {
        None => is_marked,
        Some(field) => value.facts.kind == Hash::FACTS.kind && Hash::view(value.content).get(field).is_some(),
    }
}

/// Corrects the lens where it has missed that a lock is gone, so that held locks are counted right.
/// `is_there` returns whether one still is a lock, or `None` if others have the keys: then the rest is left
/// as it is.
pub(crate) fn correct(instance: &Instance, now_ms: u64, mut is_there: impl FnMut(&Held) -> Option<bool>) {
    for held in instance.lens.held(now_ms, |_| true) {
        match is_there(&held) {
            Some(true) => {}
            Some(false) => instance.lens.miss(&held, now_ms),
            None => return,
        }
    }
}
