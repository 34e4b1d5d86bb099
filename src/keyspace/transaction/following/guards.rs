//! Locks whose holders want to know when they lose them: LOCK ACQUIRE … NOTIFY.
//!
//! A guard stands beside the lock in its shard, and knows the fencing number of the lock and the client that
//! has taken it. A transaction that changes such a key, in whatever way, notes a doubt, where it also marks
//! the clients that watch the key. When its command has ended, and before the next in line is served, it
//! looks whether the lock still has the number ([`settle_doubts`](Transaction::settle_doubts)). If not, the
//! guard leaves, and the loss is news for clients ([`Effect::LockLost`]). So one place defines what
//! a loss is, and no command has to know of guards. Some say more than what can be seen: that the lock was
//! moved, or broken.
//!
//! A guard has an [alarm](super::alarms), so that the holder hears of the end of a lock that no client looks
//! at. A guard outlives its client: others may listen to the channel of the lock.

use std::collections::HashMap;
use std::mem::take;
use std::ops::DerefMut;

use hashbrown::HashTable;

use crate::keyspace::transaction::following::Replacement;
use crate::keyspace::transaction::following::interest::Interest;
use crate::keyspace::transaction::following::losses::DatabaseKey;
use crate::keyspace::transaction::following::news::{Effect, LossReason, LostLock};
use crate::keyspace::transaction::{Everything, Transaction};

/// The guards of one shard.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Guards(HashTable<Guard>);

#[derive(Debug)]
struct Guard {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    /// The fencing number of the lock.
    number: u64,
    /// The client that has taken it.
    client: u64,
}

/// A key with a guard that a transaction has changed.
#[derive(Debug)]
pub(in crate::keyspace) struct Doubt {
    key: DatabaseKey,
    /// Why the lock is lost, if it is; `None` if the key itself shows it.
    why: Option<LossReason>,
}

impl Guard {
    fn is(&self, database: usize, key: &[u8]) -> bool {
        self.database == database && *self.key == *key
    }

    fn lost(self, why: LossReason) -> Effect {
        let Guard { client, database, key, number, .. } = self;
        Effect::LockLost(Box::new(LostLock { client, database, key, number, why }))
    }
}

impl Guards {
    /// Whether a key has a guard.
    pub(in crate::keyspace) fn has(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        self.find(hash, database, key).is_some()
    }

    fn find(&self, hash: u64, database: usize, key: &[u8]) -> Option<&Guard> {
        self.0.find(hash, |guard| guard.is(database, key))
    }

    fn remove(&mut self, hash: u64, database: usize, key: &[u8], interest: &Interest) -> Option<Guard> {
        let found = self.0.find_entry(hash, |guard| guard.is(database, key)).ok()?;
        interest.remove_watched();
        Some(found.remove().0)
    }

    /// Adds a guard where there is none.
    fn add(&mut self, guard: Guard, interest: &Interest) {
        interest.add_watched();
        self.0.insert_unique(guard.hash, guard, |guard| guard.hash);
    }
}

impl Transaction<'_> {
    /// Has a client be notified when it loses the lock that a key is.
    #[cold]
    pub fn guard_lock(&mut self, key: &[u8], client: u64) {
        let Some(number) = self.unseen(key).and_then(|entry| entry.fence()) else { return };
        // What it has come across may be the end of the holder before.
        self.doubt(key, None);
        self.settle_doubts();
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let (spot, shard) = self.shard_mut(key);
        let guards = &mut shard.side_tables_mut().guards;
        // The same lock may have been taken by another connection of its holder.
        guards.remove(spot.hash, database, key, interest);
        guards.add(Guard { hash: spot.hash, database, key: key.into(), number, client }, interest);
        // Commands that follow in this transaction count.
        self.wanted = self.wanted.with_watched();
        self.set_alarm(key);
    }

    /// Notes that a key was changed or lost, which may be a lock with a guard, and why, if that is known.
    #[inline]
    pub(in crate::keyspace) fn doubt(&self, key: &[u8], why: Option<LossReason>) {
        if !self.has_guard(key) {
            return;
        }
        let database = self.database();
        self.leave(|aftermath| {
            let last = aftermath.doubts.last();
            let is_known = |last: &Doubt| (last.key.0, &*last.key.1, last.why) == (database, key, why);
            if !last.is_some_and(is_known) {
                aftermath.doubts.push(Doubt { key: (database, key.into()), why });
            }
        });
    }

    /// Notes that a key is about to get another name or place, if it is there.
    pub fn note_moved(&self, key: &[u8]) {
        self.doubt(key, Some(LossReason::Moved));
    }

    /// Whether a key has a guard.
    pub(in crate::keyspace) fn has_guard(&self, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        shard.side_tables().is_some_and(|it| it.guards.has(spot.hash, self.database(), key))
    }

    /// Looks whether the locks are lost that the transaction has changed, in the order in which it has
    /// changed them first. The first reason counts that was noted for a key.
    pub(in crate::keyspace) fn settle_doubts(&mut self) {
        let Some(aftermath) = self.left.get_mut().if_any() else { return };
        if aftermath.doubts.is_empty() {
            return;
        }
        let (doubts, current) = (take(&mut aftermath.doubts), self.database());
        let mut reasons: HashMap<&DatabaseKey, Option<LossReason>> = HashMap::new();
        for Doubt { key, why } in &doubts {
            let reason = reasons.entry(key).or_default();
            *reason = reason.or(*why);
        }
        for Doubt { key, .. } in &doubts {
            let Some(why) = reasons.remove(key) else { continue };
            self.select(key.0);
            self.settle(&key.1, why);
        }
        self.select(current);
    }

    fn settle(&mut self, key: &[u8], why: Option<LossReason>) {
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let found = self.unseen(key).map(|entry| entry.fence());
        let (spot, shard) = self.shard_mut(key);
        let guards = &mut shard.side_tables_mut().guards;
        let Some(guard) = guards.find(spot.hash, database, key) else { return };
        if found.flatten() != Some(guard.number) {
            let seen = if found.is_some() { LossReason::Overwritten } else { LossReason::Deleted };
            if let Some(guard) = guards.remove(spot.hash, database, key, interest) {
                self.leave_effect(guard.lost(why.unwrap_or(seen)));
            }
        }
        self.set_alarm(key);
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// The locks are lost whose databases are emptied or exchanged.
    pub(in crate::keyspace) fn lose_replaced(&mut self, replacement: impl Fn(usize) -> Replacement) {
        let followers = self.keyspace().followers();
        let mut lost = Vec::new();
        let why_of = |guard: &Guard| match replacement(guard.database) {
            Replacement::None => None,
            Replacement::Nothing => Some(LossReason::Flushed),
            Replacement::Database(_) => Some(LossReason::Moved),
        };
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.side_tables().is_some()) {
            let guards = &mut shard.side_tables_mut().guards.0;
            for guard in guards.extract_if(|guard| why_of(guard).is_some()) {
                followers.interest.remove_watched();
                let why = why_of(&guard).unwrap_or(LossReason::Moved);
                lost.push(guard.lost(why));
            }
        }
        for effect in lost {
            if let Effect::LockLost(lost) = &effect {
                followers.alarms.set(lost.database, &lost.key, None);
            }
            self.leave_effect(effect);
        }
    }
}
