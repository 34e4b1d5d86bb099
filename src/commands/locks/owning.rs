//! What makes a key the lock of a token, and what comes with it: its number, its end, and what other clients
//! hear when it is granted.

use crate::keyspace::{Expiry, Transaction};
use crate::types::strings::Text;

use crate::commands::strings::basics::tell_of_write;

/// Whether a token holds a lock. A key of another type is held as any other. The lens hears of no look at a
/// key that is absent: the client is about to take it.
pub(super) fn holds(tx: &Transaction<'_>, key: &[u8], token: &[u8]) -> bool {
    !tx.is_free(key) && tx.peek::<Text>(key).is_ok_and(|value| value == Some(token)) && may_be_lock(tx, key)
}

/// The number of a lock. One that was taken without a number gets one: it is larger than those of all earlier
/// holders.
pub(super) fn fence_or_new(tx: &mut Transaction<'_>, key: &[u8]) -> u64 {
    match tx.fence_of(key) {
        Some(fence) => fence,
        None => tx.give_fence(key),
    }
}

/// Whether a string may be a lock: it was written because it was absent, or expires. Any other one only holds
/// what the client takes for a token, and would be gone after a time.
pub(super) fn may_be_lock(tx: &Transaction<'_>, key: &[u8]) -> bool {
    tx.is_lock(key) || tx.peek_expiry(key).flatten().is_some() || tx.fence_of(key).is_some()
}

/// Tells other clients that a lock was granted.
#[inline]
pub(super) fn tell_of_taking(tx: &Transaction<'_>, key: &[u8], expires_at_ms: u64, is_newcomer: bool) {
    tell_of_write(tx, key, Expiry::At(expires_at_ms));
    if is_newcomer {
        tx.passes_line(key);
    }
}

/// Returns the number of a lock to a client that holds it and asks again. It never expires sooner by that.
pub(super) fn take_again(tx: &mut Transaction<'_>, key: &[u8], expires_at_ms: u64, is_bound: bool) -> u64 {
    let fence = fence_or_new(tx, key);
    tx.follow_taken_again(key);
    if tx.peek_expiry(key).flatten().is_some_and(|at_ms| at_ms < expires_at_ms) {
        tx.set_expiry(key, Some(expires_at_ms));
    }
    if !is_bound {
        tx.promise_lock(key, None, expires_at_ms);
    }
    fence
}
