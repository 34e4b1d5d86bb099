//! How permits lie in a sorted set: LOCK ACQUIRE … SHARED and LIMIT n, and Symfony Lock.
//!
//! The score of a token is the end of its permit, in milliseconds since 1970, and the key expires with the
//! last of them.

use crate::keyspace::PERMIT_END_MS_MAX;

/// The member of a sorted set that says that its holder is a writer.
pub(crate) const WRITER: &[u8] = b"__write__";

/// The member that says, in a store, that a client waits for the whole lock. Until its end, no front-end
/// grants a permit.
pub(crate) const AWAITED: &[u8] = b"__wait__";

/// How far the expiry of the key may be from the last end, in milliseconds: what is left of a key is a span
/// where it moves to another server (MIGRATE, RESTORE).
const APART_MS_MAX: u64 = 100;

/// Whether a member is no token.
pub(crate) fn is_mark(member: &[u8]) -> bool {
    member == WRITER || member == AWAITED
}

/// The moment that a score is, if it is one.
pub(crate) fn moment(score: f64) -> Option<u64> {
    (score.fract() == 0.0 && (0.0..=PERMIT_END_MS_MAX as f64).contains(&score)).then_some(score as u64)
}

/// Whether a sorted set with this largest score has permits, if it expires then.
pub(crate) fn is_last_end(score: f64, expires_at_ms: u64) -> bool {
    moment(score).is_some_and(|end_ms| end_ms.abs_diff(expires_at_ms) <= APART_MS_MAX)
}
