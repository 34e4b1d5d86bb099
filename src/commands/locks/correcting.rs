//! Corrects the lens where it has missed that a lock is gone. Then the locks that are held are counted right.

use crate::commands::facts::Result;
use crate::instance::Instance;
use crate::keyspace::Transaction;

/// Corrects the lens where it has missed that a lock is gone, for a transaction that may look at any shard.
pub(in crate::commands) fn correct_in(instance: &Instance, tx: &Transaction<'_>) -> Result<()> {
    let walk = tx.walk()?;
    correct(instance, tx.now_ms(), |database, key| Some(walk.has_lock(database, key)));
    Ok(())
}

/// Corrects the lens where it has missed that a lock is gone, so that held locks are counted right.
/// `is_there` returns whether a key is a lock, or `None` if others have the keys: then the rest is left as it
/// is.
pub(crate) fn correct(
    instance: &Instance,
    now_ms: u64,
    mut is_there: impl FnMut(usize, &[u8]) -> Option<bool>,
) {
    for held in instance.lens.held(now_ms, |_| true) {
        match is_there(held.database, &held.key) {
            Some(true) => {}
            Some(false) => instance.lens.miss(&held, now_ms),
            None => return,
        }
    }
}
