//! Sums over all shards: the numbers in INFO and in the metrics.
//!
//! They are counted shard by shard, so that no client waits until all of them are counted: a sum is not that
//! of one moment. The caller then prints them without holding a shard.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use super::store::shard::KeyspaceCounters;
use super::store::table::DatabaseSize;
use super::transaction::{Held, Transaction, Walk};
use super::{KeyLocation, Keyspace, Shard};
use crate::values::Value;

/// Reads of requests that ran on copies of their keys, since the start or since CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub(super) struct ReadsOfCopies {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl ReadsOfCopies {
    /// Adds them to the counters.
    pub(super) fn add_to(&self, counters: &mut KeyspaceCounters) {
        counters.hits += self.hits.load(Ordering::Relaxed);
        counters.misses += self.misses.load(Ordering::Relaxed);
    }

    /// Sets both to zero.
    pub(super) fn reset(&self) {
        self.hits.store(0, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
    }
}

/// Sums over all shards.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counts since the start or the last reset.
    pub counters: KeyspaceCounters,
    /// How large each database is, by its number.
    pub sizes: Vec<DatabaseSize>,
    /// How often keys were written or deleted.
    pub changes: u64,
    /// The keys that clients follow.
    pub followed: FollowedKeys,
    /// Locks that were taken and are not followed.
    pub unfollowed_locks: u64,
    /// Attempts to take a lock that failed and were not reported to the lens.
    pub refused_unseen: u64,
}

/// How many keys clients watch or wait for.
#[derive(Clone, Copy, Debug, Default)]
pub struct FollowedKeys {
    /// Keys that are watched (WATCH).
    pub watched: usize,
    /// Keys for which clients wait.
    pub blocking: usize,
    /// Those of them with a client whose wait ends when the key is deleted.
    pub blocking_on_absence: usize,
}

impl Totals {
    /// Bytes of the tables of all databases.
    pub fn table_bytes(&self) -> usize {
        self.sizes.iter().map(|size| size.table_bytes).sum()
    }
}

impl Totals {
    /// Adds the numbers of a shard.
    fn add(&mut self, shard: &Shard) {
        self.counters.hits += shard.hits.get();
        self.counters.misses += shard.misses.get();
        self.changes += shard.changes;
        self.unfollowed_locks += shard.unfollowed;
        if let Some(side_tables) = shard.side_tables() {
            self.followed.watched += side_tables.watched.len();
            let (blocking, on_absence) = side_tables.blocked.count();
            self.followed.blocking += blocking;
            self.followed.blocking_on_absence += on_absence;
        }
        for (database, sum) in self.sizes.iter_mut().enumerate().take(shard.databases()) {
            if let Some(table) = shard.table(database) {
                sum.add(table.size());
            }
        }
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Walk<T> {
    /// Sums up all shards, one after the other.
    pub fn totals(&self) -> Totals {
        let keyspace = self.keyspace();
        let mut totals = keyspace.totals_without_shards();
        keyspace.shard_numbers().for_each(|number| self.visit(number, |shard| totals.add(shard)));
        totals
    }

    /// Whether a key of some database is a lock: it has not expired, and `is_lock` says so, by its mark and
    /// its value.
    pub fn has_lock(
        &self,
        database: usize,
        key: &[u8],
        is_lock: impl FnOnce(bool, Value<'_>) -> bool,
    ) -> bool {
        let hash = self.keyspace().hash(key);
        self.visit(self.keyspace().shard_of(hash), |shard| {
            let found = shard.table(database).and_then(|table| table.find(KeyLocation::of(hash), key));
            let found = found.filter(|entry| !self.has_expired(entry));
            found.is_some_and(|entry| is_lock(entry.is_lock(), self.value_of(entry)))
        })
    }
}

impl Keyspace {
    /// Counts reads of a request that ran on copies of its keys.
    pub fn count_reads_of_copies(&self, hits: u64, misses: u64) {
        self.reads_of_copies.hits.fetch_add(hits, Ordering::Relaxed);
        self.reads_of_copies.misses.fetch_add(misses, Ordering::Relaxed);
    }

    /// Whether a key is a lock, as `is_lock` says by its mark and its value; `None` if another thread holds
    /// its shard for more than a moment.
    pub fn has_lock_soon(
        &self,
        database: usize,
        key: &[u8],
        is_lock: impl FnOnce(bool, Value<'_>) -> bool,
    ) -> Option<bool> {
        let number = self.shard_of(self.hash(key));
        let held = vec![(number, self.lock_soon(number)?)];
        let tx = self.transaction(database, Held::Many(held));
        Some(tx.glance(key).is_some_and(|value| is_lock(tx.is_lock(key), value)))
    }

    /// Sums up all shards, one after the other, but waits for none: returns `None` if another thread holds a
    /// shard for more than a moment.
    pub fn totals_soon(&self) -> Option<Totals> {
        let mut totals = self.totals_without_shards();
        for number in self.shard_numbers() {
            totals.add(&*self.lock_soon(number)?);
        }
        Some(totals)
    }

    /// What is counted beside the shards.
    fn totals_without_shards(&self) -> Totals {
        let mut counters = KeyspaceCounters {
            expired: self.losses.expired(),
            expired_fields: self.losses.expired_fields(),
            evicted: self.losses.evicted(),
            swept: self.losses.swept(),
            swept_fields: self.losses.swept_fields(),
            ..KeyspaceCounters::default()
        };
        self.reads_of_copies.add_to(&mut counters);
        Totals {
            counters,
            sizes: vec![DatabaseSize::default(); self.databases()],
            refused_unseen: self.lock_allowance.refused_unseen(),
            ..Totals::default()
        }
    }
}
