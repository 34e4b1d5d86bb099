//! Keys that go without a command that deletes them: expired keys, and keys evicted while memory is short.
//!
//! An expired key is absent from its very millisecond on, and that is no event. It is freed when a command
//! comes across it, when the sweep does, or when CLOCK passes its moment: then it is counted, its watchers
//! are marked, the log gets a DEL, caches are invalidated and the event `expired` is sent. All of that
//! happens here ([`Transaction::follow_loss`]).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::events::EventClass;
use crate::keyspace::following::changes::Extent;
use crate::keyspace::following::news::Effect;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::shard::SweepScope;
use crate::keyspace::transaction::Transaction;

/// Keys that were lost in all shards since the start, or since CONFIG RESETSTAT. It rarely happens, so it is
/// counted in one place: counters in 1,024 shards would take memory when there is too little.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Losses {
    expired: AtomicU64,
    evicted: AtomicU64,
}

impl Losses {
    fn count(&self, loss: Loss, keys: u64) {
        let counter = if loss == Loss::Expired { &self.expired } else { &self.evicted };
        counter.fetch_add(keys, Ordering::Relaxed);
    }

    pub(in crate::keyspace) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    pub(in crate::keyspace) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Sets both to zero.
    pub(in crate::keyspace) fn reset(&self) {
        self.expired.store(0, Ordering::Relaxed);
        self.evicted.store(0, Ordering::Relaxed);
    }
}

/// Why a key is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Loss {
    /// Its time had come.
    Expired,
    /// Memory was short.
    Evicted,
}

impl Transaction<'_> {
    /// Notes that a key of the current database was lost; its entry is not in the table any more.
    #[cold]
    pub(in crate::keyspace) fn follow_loss(&mut self, key: &[u8], loss: Loss) {
        self.keyspace().losses.count(loss, 1);
        self.follow_counted_loss(key, loss);
    }

    fn follow_counted_loss(&self, key: &[u8], loss: Loss) {
        if !self.wanted.any() && !self.wanted.blocked() {
            return;
        }
        let (spot, shard) = self.shard(key);
        let was_there = loss == Loss::Evicted;
        if let Some(rarities) = shard.rarities() {
            rarities.watched.mark(spot.hash, self.database, key, was_there);
        }
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(self.database, key, Extent::Whole));
        }
        if self.wanted.tracking() {
            self.leave_effect(Effect::Changed { key: key.into(), by_itself: true });
        }
        if self.wanted.blocked() {
            self.note_ready(self.database, key);
        }
        match loss {
            Loss::Expired => self.event(EventClass::EXPIRED, "expired", key),
            Loss::Evicted => self.event(EventClass::EVICTED, "evicted", key),
        }
    }

    /// Frees expired entries of the shards that the transaction holds, and notes each loss in the order of
    /// their expiries. Returns how many entries it looked at.
    pub(in crate::keyspace) fn sweep(&mut self, scope: SweepScope) -> usize {
        let (keyspace, now_ms, is_noted) =
            (self.keyspace(), self.now_ms(), self.wanted.any() || self.wanted.blocked());
        let (mut looked_at, mut count) = (0, 0);
        let mut lost: Vec<(Option<u64>, usize, Box<[u8]>)> = Vec::new();
        let mut garbage = Vec::new();
        for shard in self.held.shards_mut() {
            let hash = |entry: &Entry| keyspace.hash(entry.key());
            looked_at += shard.sweep(scope, now_ms, hash, |database, entry| {
                count += 1;
                if is_noted {
                    lost.push((entry.expires_at_ms(), database, entry.key().into()));
                }
                if entry.is_long_to_free() {
                    garbage.push(entry);
                }
            });
        }
        if count > 0 {
            keyspace.losses.count(Loss::Expired, count);
        }
        garbage.into_iter().for_each(|entry| self.discard(entry));
        lost.sort_unstable();
        let current = self.database;
        for (_, database, key) in lost {
            self.select(database);
            self.follow_counted_loss(&key, Loss::Expired);
        }
        self.select(current);
        looked_at
    }
}
