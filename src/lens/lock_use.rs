//! What a command means for a lock, as far as the news of its changes do not show it. Each command states it.

/// What a command means for a lock: a set of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockUse(u16);

impl LockUse {
    /// Nothing but what the news show.
    pub const NONE: LockUse = LockUse(0);
    /// It deletes a lock, at once or if a comparison holds.
    pub const DELETES: LockUse = LockUse(1);
    /// It changes when a lock expires.
    pub const EXTENDS: LockUse = LockUse(1 << 1);
    /// It compares a lock's value with an argument, and does nothing if they differ.
    pub const COMPARES: LockUse = LockUse(1 << 2);
    /// It compares if an option says so.
    pub const MAY_COMPARE: LockUse = LockUse(1 << 3);
    /// It writes a lock's value as a whole. A key that is changed otherwise is no lock.
    pub const REWRITES: LockUse = LockUse(1 << 4);
    /// It replies with the value that it replaces, so that its client knows from whom it takes the lock.
    pub const TAKES_OVER: LockUse = LockUse(1 << 5);
    /// It asks whether a lock is there.
    pub const SEEKS: LockUse = LockUse(1 << 6);
    /// It looks into a lock that is a hash.
    pub const LOOKS_INTO: LockUse = LockUse(1 << 7);
    /// It is for locks alone, so that its key is one.
    pub const IS_FOR_LOCKS: LockUse = LockUse(1 << 8);
    /// All its arguments are keys. They are no tokens.
    pub const KEYS_ONLY: LockUse = LockUse(1 << 9);
    /// Its arguments are keys and values in turn.
    pub const PAIRS: LockUse = LockUse(1 << 10);
    /// It reads a string. A script that calls it may compare the value of a lock by itself.
    pub const READS: LockUse = LockUse(1 << 11);

    /// Its client waits for a lock in line if an option says so (WAIT).
    pub const MAY_WAIT: LockUse = LockUse(1 << 12);

    /// The facts of both.
    pub const fn and(self, other: LockUse) -> LockUse {
        LockUse(self.0 | other.0)
    }

    /// Whether all facts of the other are among them.
    pub const fn has(self, other: LockUse) -> bool {
        self.0 & other.0 == other.0
    }
}
