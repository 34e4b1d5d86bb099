//! What shows that a key is a lock, and does not only remember something.
//!
//! An entry of a cache, a session, a limit, a job that must not run twice: programs make them as they take a
//! lock, by SET NX, and any of their processes deletes or writes them later. That is no misuse. So findings
//! about a key are quiet until something shows that it is a lock.

use super::names;

/// A client that asks again waits for the lock. One that comes back later has something new to do.
const SOON_MS: u64 = 10_000;

/// What has shown so far that a key is a lock. It remains one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Evidence {
    /// A request has compared the token of a holder.
    pub(super) is_compared: bool,
    /// A client with a token of its own was refused, and has asked again soon.
    is_wanted: bool,
    /// Its name says so, or the command that takes it, or the list of all locks.
    is_named: bool,
}

impl Evidence {
    /// The best of it, for LOCKS GET.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Evidence { is_compared: true, .. } => Some("token-compared"),
            Evidence { is_wanted: true, .. } => Some("asked-again"),
            Evidence { is_named: true, .. } => Some("name"),
            _ => None,
        }
    }

    /// Whether there is more than that a token was compared.
    pub(super) fn is_more_than_compared(self) -> bool {
        self.is_wanted || self.is_named
    }

    /// Notes whether the name of a key says that it is a lock. `is_known` says that it is one for another
    /// reason: a command took it that takes nothing else, or there is a list of all locks.
    pub(super) fn note_name(&mut self, key: &[u8], is_known: bool) {
        if !self.is_named {
            self.is_named = is_known || names::speaks_of_lock(key);
        }
    }

    /// Notes that a client with a token of its own has asked in vain, and that it had asked at `before_ms`.
    /// The lock has its holder since `since_ms`.
    pub(super) fn note_asked(&mut self, before_ms: u64, now_ms: u64, since_ms: u64) {
        let is_soon = now_ms.saturating_sub(before_ms) <= SOON_MS;
        self.is_wanted |= before_ms >= since_ms.max(1) && is_soon;
    }

    /// How much it is worth to know a key, if there is no room for all: a lock that is held more than one
    /// that is free, and both more than a key that may be none. `was_released` says that its last holder
    /// will not come back.
    pub(super) fn worth(self, is_held: bool, was_released: bool) -> u8 {
        match (self.is_compared || self.is_wanted, self.is_named) {
            (true, _) | (_, true) if is_held => 4,
            (true, _) => 3,
            (false, true) if !was_released => 3,
            (false, false) if is_held => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }
}
