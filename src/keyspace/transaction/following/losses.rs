//! Keys that go without a command that deletes them: expired keys, and keys evicted while memory is short.
//! And fields of hashes that expired.
//!
//! An expired key is absent from its very millisecond on, and that is no event. It is freed when a command
//! comes across it, when the sweep does, or when CLOCK passes its moment: then it is counted, its watchers
//! are marked, the log gets a DEL, caches are invalidated and the event `expired` is sent. All of that
//! happens here ([`Transaction::follow_loss`]).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::events::EventClass;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::shard::SweepScope;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::news::{Effect, LossReason};

/// A key behind the number of its database.
pub(in crate::keyspace) type DatabaseKey = (usize, Box<[u8]>);

/// Keys that were lost in all shards since the start, or since CONFIG RESETSTAT. It rarely happens, so it is
/// counted in one place: counters in 1,024 shards would take memory when there is too little.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Losses {
    expired: AtomicU64,
    evicted: AtomicU64,
    /// Fields of hashes that expired.
    expired_fields: AtomicU64,
    /// Those of the expired keys that a sweep has freed, and those of the fields.
    swept: AtomicU64,
    swept_fields: AtomicU64,
}

impl Losses {
    fn count(&self, loss: Loss) {
        let (counter, count) = match loss {
            Loss::Expired => (&self.expired, 1),
            Loss::Evicted => (&self.evicted, 1),
            Loss::FieldsExpired(fields) | Loss::SomeFieldsExpired(fields) => {
                (&self.expired_fields, fields as u64)
            }
        };
        counter.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a loss once more, as one that a sweep has found.
    pub(in crate::keyspace) fn count_swept(&self, loss: Loss) {
        match loss {
            Loss::Expired => self.swept.fetch_add(1, Ordering::Relaxed),
            Loss::Evicted => 0,
            Loss::FieldsExpired(fields) | Loss::SomeFieldsExpired(fields) => {
                self.swept_fields.fetch_add(fields as u64, Ordering::Relaxed)
            }
        };
    }

    pub(in crate::keyspace) fn swept(&self) -> u64 {
        self.swept.load(Ordering::Relaxed)
    }

    pub(in crate::keyspace) fn swept_fields(&self) -> u64 {
        self.swept_fields.load(Ordering::Relaxed)
    }

    pub(in crate::keyspace) fn expired_fields(&self) -> u64 {
        self.expired_fields.load(Ordering::Relaxed)
    }

    pub(in crate::keyspace) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    pub(in crate::keyspace) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Sets all to zero.
    pub(in crate::keyspace) fn reset(&self) {
        self.expired.store(0, Ordering::Relaxed);
        self.evicted.store(0, Ordering::Relaxed);
        self.expired_fields.store(0, Ordering::Relaxed);
        self.swept.store(0, Ordering::Relaxed);
        self.swept_fields.store(0, Ordering::Relaxed);
    }
}

impl Transaction<'_> {
    /// Counts a key that has expired before it could be written.
    pub fn count_expired(&self) {
        self.keyspace.losses.count(Loss::Expired);
    }

    /// Counts fields of a hash that a command has removed since their new moment had passed.
    pub fn count_expired_fields(&self, fields: usize) {
        self.keyspace.losses.count(Loss::SomeFieldsExpired(fields));
    }
}

/// Why a key is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Loss {
    /// Its time had come.
    Expired,
    /// It was a hash, and all its fields, this many, had expired.
    FieldsExpired(usize),
    /// It is a hash, and has lost this number of its fields.
    SomeFieldsExpired(usize),
    /// Memory was short.
    Evicted,
}

impl Transaction<'_> {
    /// Notes that a key of the current database was lost; its entry is not in the table any more, unless the
    /// key has only lost fields.
    #[cold]
    pub(in crate::keyspace) fn follow_loss(&mut self, key: &[u8], loss: Loss) {
        self.keyspace().losses.count(loss);
        self.follow_counted_loss(key, loss);
    }

    fn follow_counted_loss(&self, key: &[u8], loss: Loss) {
        if !self.wanted.any() && !self.wanted.blocked() {
            return;
        }
        let (spot, shard) = self.shard(key);
        let was_there = matches!(loss, Loss::Evicted | Loss::SomeFieldsExpired(_));
        if let Some(side_tables) = shard.side_tables() {
            side_tables.watched.mark(spot.hash, self.database, key, was_there);
            let why = if loss == Loss::Evicted { LossReason::Evicted } else { LossReason::Expired };
            self.doubt_anew(key, Some(why));
        }
        if self.wanted.surveyed() {
            let surveys = &self.keyspace().followers().surveys;
            match loss {
                Loss::SomeFieldsExpired(_) => surveys.mark(self.database, key),
                Loss::Expired | Loss::Evicted | Loss::FieldsExpired(_) => {
                    surveys.mark_lost(self.database, key);
                }
            }
        }
        // The caller that removed fields of a hash has noted which ones.
        if self.wanted.journal() && !matches!(loss, Loss::SomeFieldsExpired(_)) {
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
            Loss::SomeFieldsExpired(_) => self.event(EventClass::HASH, "hexpired", key),
            Loss::FieldsExpired(_) => {
                self.event(EventClass::HASH, "hexpired", key);
                self.event(EventClass::GENERIC, "del", key);
            }
        }
    }

    /// Frees expired entries of the shards that the transaction holds, and notes each loss in the order of
    /// their expiries. Returns how many entries it looked at, and the hashes of which only some fields have
    /// expired, with their databases: those fields are still to be [freed](Transaction::free_fields).
    pub(in crate::keyspace) fn sweep(&mut self, scope: SweepScope) -> (usize, Vec<DatabaseKey>) {
        let (keyspace, now_ms, is_noted) =
            (self.keyspace(), self.now_ms(), self.wanted.any() || self.wanted.blocked());
        let (mut looked_at, mut due) = (0, Vec::new());
        let mut lost: Vec<(Option<u64>, DatabaseKey, Loss)> = Vec::new();
        let mut garbage = Vec::new();
        for shard in self.held.shards_mut() {
            let hash = |entry: &Entry| keyspace.hash(entry.key());
            let gone = |database: usize, entry: Entry| {
                let loss = match entry.expiring() {
                    Some(fields) if entry.expires_at_ms().is_none_or(|at_ms| at_ms > now_ms) => {
                        Loss::FieldsExpired(fields.len())
                    }
                    _ => Loss::Expired,
                };
                keyspace.losses.count(loss);
                keyspace.losses.count_swept(loss);
                if is_noted {
                    lost.push((entry.ends_at_ms(), (database, entry.key().into()), loss));
                }
                if entry.is_long_to_free() {
                    garbage.push(entry);
                }
            };
            looked_at += shard
                .sweep(scope, now_ms, hash, gone, |database, entry| due.push((database, entry.key().into())));
        }
        garbage.into_iter().for_each(|entry| self.discard(entry));
        lost.sort_unstable_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let current = self.database;
        for (_, (database, key), loss) in lost {
            self.select(database);
            self.follow_counted_loss(&key, loss);
        }
        self.select(current);
        (looked_at, due)
    }
}
