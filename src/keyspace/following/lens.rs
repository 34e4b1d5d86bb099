//! Which keys act as locks, and what happens to them.
//!
//! A key that SETNX or SET NX has made is marked with a bit in its entry. Whoever follows locks is told of
//! it, and of every command that meets a marked entry afterwards; what is no lock costs a look at that bit.
//! When a lock goes, its shard remembers the hash for a while: a holder that comes back too late finds
//! nothing, and that is worth telling, too.
//!
//! Telling is bounded. The [`Allowance`] is filled up ten times a second. When that for changes is used up,
//! new keys are not marked, and a marked one that changes loses its mark; when that for looks is, they are
//! not told. Nobody who follows may therefore take silence for a fact.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::keyspace::Keyspace;
use crate::keyspace::following::news::{Effect, LockChange, LockNews, Token};
use crate::keyspace::transaction::Transaction;

/// How much may be told until it is filled up again.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Allowance {
    changes: AtomicI32,
    /// Those who wait for a lock look at it far more often than it changes.
    looks: AtomicI32,
}

impl Allowance {
    /// How much of either may be told in a tenth of a second: at some microseconds each, with all
    /// that is cold by then, one or two percent of a core.
    const FULL: i32 = 500;

    /// Whether a change may be told.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.changes.load(Ordering::Relaxed) > 0
    }

    fn spend_on(&self, change: LockChange) -> bool {
        let left = match change {
            LockChange::Refused | LockChange::Read => &self.looks,
            _ => &self.changes,
        };
        left.load(Ordering::Relaxed) > 0 && left.fetch_sub(1, Ordering::Relaxed) > 0
    }
}

impl Keyspace {
    /// Lets locks be followed for the next tenth of a second, or no longer.
    pub fn allow_lock_news(&self, are_allowed: bool) {
        let allowed = if are_allowed { Allowance::FULL } else { 0 };
        self.lock_allowance.changes.store(allowed, Ordering::Relaxed);
        self.lock_allowance.looks.store(allowed, Ordering::Relaxed);
    }
}

/// The hashes of the last few locks of a shard that have gone.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct GoneLocks {
    hashes: Vec<u64>,
    next: usize,
}

impl GoneLocks {
    /// Eight of each shard are twice as many as there are locks that are followed.
    const MAX: usize = 8;

    pub(in crate::keyspace) fn add(&mut self, hash: u64) {
        if self.has(hash) {
            return;
        }
        if self.hashes.len() < Self::MAX {
            self.hashes.push(hash);
        } else {
            self.hashes[self.next] = hash;
            self.next = (self.next + 1) % Self::MAX;
        }
    }

    #[inline]
    pub(in crate::keyspace) fn has(&self, hash: u64) -> bool {
        self.hashes.contains(&hash)
    }
}

/// Telling what happens to locks.
impl Transaction<'_> {
    /// To be called for a key that was inserted because it was absent.
    #[inline(always)]
    pub(in crate::keyspace) fn follow_taken(&mut self, key: &[u8], value: &[u8]) {
        if self.keyspace().lock_allowance.is_open() {
            self.mark_lock(key, value);
        } else {
            self.shard_mut(key).1.unfollowed += 1;
        }
    }

    #[cold]
    fn mark_lock(&mut self, key: &[u8], value: &[u8]) {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        // It is not there if it was to expire at once.
        let Some(entry) = shard.table_mut(database).entry_mut(spot, key) else { return };
        entry.set_lock(true);
        let expires_at_ms = entry.expires_at_ms();
        self.tell_of_lock(key, LockChange::Taken { token: Token::of(value), expires_at_ms });
    }

    /// Tells of a marked key, or of one that was marked and has gone.
    #[cold]
    pub(in crate::keyspace) fn tell_of_lock(&self, key: &[u8], change: LockChange) {
        let (spot, shard) = self.shard(key);
        if self.keyspace().lock_allowance.spend_on(change) {
            let news = LockNews {
                hash: spot.hash,
                database: self.database(),
                key: key.into(),
                at_ms: self.now_ms(),
                change,
            };
            self.tell(Effect::Lock(news));
        } else if let LockChange::Taken { .. } | LockChange::Written { .. } | LockChange::Expiry(_) = change
            && let Some(entry) = shard.table(self.database()).and_then(|table| table.find(spot, key))
        {
            entry.set_lock(false);
        }
    }

    /// To be called for a lock whose value was replaced. One that had expired is none any more: whoever takes
    /// it anew says so. Nor is one that counts.
    #[cold]
    pub(in crate::keyspace) fn follow_rewritten(
        &mut self,
        key: &[u8],
        value: &[u8],
        before: Token,
        had_expired: bool,
    ) {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.table_mut(database).entry_mut(spot, key) else { return };
        let expires_at_ms = entry.expires_at_ms();
        if had_expired {
            entry.set_lock(false);
            shard.rarities_mut().gone_locks.add(spot.hash);
            return;
        }
        let token = Token::of(value);
        if before.is_count && token.is_count && before != token {
            entry.set_lock(false);
            return;
        }
        self.tell_of_lock(key, LockChange::Written { before, token, expires_at_ms });
    }

    /// To be called for a lock that was taken out.
    #[cold]
    pub(in crate::keyspace) fn follow_gone(&mut self, key: &[u8], change: LockChange) {
        let (spot, shard) = self.shard_mut(key);
        shard.rarities_mut().gone_locks.add(spot.hash);
        self.tell_of_lock(key, change);
    }

    /// To be called for a key that was not found where it might have been one that is gone.
    #[inline]
    pub(in crate::keyspace) fn follow_miss(&self, key: &[u8]) {
        let (spot, shard) = self.shard(key);
        if shard.rarities().is_some_and(|rarities| rarities.gone_locks.has(spot.hash)) {
            self.tell_of_lock(key, LockChange::Missed);
        }
    }

    /// Tells that a key was left as it is because its value is not the one that was asked for. Handlers of
    /// such conditions do.
    pub fn follow_unmet(&self, key: &[u8]) {
        if self.is_lock(key) {
            self.tell_of_lock(key, LockChange::Unmet);
        }
    }

    /// Whether a key is marked as a lock and has not expired.
    pub fn is_lock(&self, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        let found = shard.table(self.database()).and_then(|table| table.find(spot, key));
        found.is_some_and(|entry| entry.is_lock() && !self.has_expired(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    fn told(tx: &mut Transaction<'_>) -> Vec<LockChange> {
        let effects = tx.take_effects();
        let changes = effects.into_iter().map(|effect| match effect {
            Effect::Lock(news) => news.change,
            other => panic!("{other:?}"),
        });
        changes.collect()
    }

    #[test]
    fn what_happens_to_a_lock_is_told_and_to_any_other_key_is_not() {
        let keyspace = Keyspace::alone(1);
        keyspace.allow_lock_news(true);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.put(b"k", b"v", Expiry::Never);
        tx.get_bytes(b"k");
        assert!(!tx.insert_if_absent(b"k", b"a", Expiry::Never));
        tx.remove(b"k");
        tx.remove(b"k");
        assert_eq!(told(&mut tx), []);

        let [a, b] = [b"a", b"b"].map(|value| Token::of(value));
        assert!(tx.insert_if_absent(b"k", b"a", Expiry::Never));
        assert_eq!(told(&mut tx), [LockChange::Taken { token: a, expires_at_ms: None }]);
        assert!(!tx.insert_if_absent(b"k", b"b", Expiry::Never));
        tx.get_bytes(b"k");
        tx.put(b"k", b"b", Expiry::Never);
        let written = LockChange::Written { before: a, token: b, expires_at_ms: None };
        assert_eq!(told(&mut tx), [LockChange::Refused, LockChange::Read, written]);
        let later_ms = tx.now_ms() + 60_000;
        tx.set_expiry(b"k", Some(later_ms));
        tx.follow_unmet(b"k");
        tx.put(b"k", b"bb", Expiry::Keep);
        assert!(tx.is_lock(b"k"), "however it is rewritten");
        tx.remove(b"k");
        let before_last = told(&mut tx);
        assert_eq!(before_last[..2], [LockChange::Expiry(Some(later_ms)), LockChange::Unmet]);
        assert_eq!(before_last[3..], [LockChange::Freed]);
        tx.remove(b"k");
        assert_eq!(told(&mut tx), [LockChange::Missed]);
    }

    #[test]
    fn what_cannot_be_told_any_more_is_no_lock_any_more() {
        let keyspace = Keyspace::alone(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        assert!(tx.insert_if_absent(b"k", b"v", Expiry::Never));
        assert!(!tx.is_lock(b"k"));
        tx.remove(b"k");
        keyspace.allow_lock_news(true);
        assert!(tx.insert_if_absent(b"k", b"v", Expiry::Never));
        assert!(tx.is_lock(b"k"));
        keyspace.allow_lock_news(false);
        tx.get_bytes(b"k");
        assert!(tx.is_lock(b"k"), "looks change nothing");
        tx.put(b"k", b"w", Expiry::Never);
        assert!(!tx.is_lock(b"k"));
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().unfollowed_locks(), 1);
    }

    #[test]
    fn a_count_is_no_lock() {
        let keyspace = Keyspace::alone(1);
        keyspace.allow_lock_news(true);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        assert!(tx.insert_if_absent(b"k", b"0", Expiry::Never));
        tx.put(b"k", b"0", Expiry::Never);
        assert!(tx.is_lock(b"k"));
        tx.put(b"k", b"1", Expiry::Never);
        assert!(!tx.is_lock(b"k"));
    }

    #[test]
    fn a_shard_remembers_the_last_locks_that_have_gone() {
        let mut gone = GoneLocks::default();
        (0..20).for_each(|hash| gone.add(hash));
        gone.add(19);
        assert_eq!((0..20).filter(|hash| gone.has(*hash)).collect::<Vec<_>>(), (12..20).collect::<Vec<_>>());
    }
}
