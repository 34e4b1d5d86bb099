//! Sums over all shards: the numbers in INFO and in the metrics.
//!
//! One transaction over everything counts them at once. The caller then prints them without holding a shard.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Keyspace;
use super::store::locking::HeldShards;
use super::store::shard::KeyspaceCounters;
use super::store::table::DatabaseSize;
use super::transaction::{Everything, Held, Transaction};

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
    /// Locks that were taken and are not followed.
    pub unfollowed_locks: u64,
    /// Attempts to take a lock that failed and were not reported to the lens.
    pub refused_unseen: u64,
}

impl Totals {
    /// Bytes of the tables of all databases.
    pub fn table_bytes(&self) -> usize {
        self.sizes.iter().map(|size| size.table_bytes).sum()
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Everything<T> {
    /// Sums up all shards.
    pub fn totals(&self) -> Totals {
        Totals {
            counters: self.counters(),
            sizes: self.database_sizes().collect(),
            changes: self.changes(),
            unfollowed_locks: self.unfollowed_locks(),
            refused_unseen: self.refused_unseen(),
        }
    }
}

impl Keyspace {
    /// Counts reads of a request that ran on copies of its keys.
    pub fn count_reads_of_copies(&self, hits: u64, misses: u64) {
        self.reads_of_copies.hits.fetch_add(hits, Ordering::Relaxed);
        self.reads_of_copies.misses.fetch_add(misses, Ordering::Relaxed);
    }

    /// Whether a key is marked as a lock; `None` if another thread holds its shard for more than a moment.
    pub fn has_lock_soon(&self, database: usize, key: &[u8]) -> Option<bool> {
        let number = self.shard_of(self.hash(key));
        let held = vec![(number, self.lock_soon(number)?)];
        Some(self.transaction(database, Held::Many(held)).is_lock(key))
    }

    /// Sums up all shards, but waits for none: returns `None` if another thread holds a shard for more than a
    /// moment.
    pub fn totals_soon(&self) -> Option<Totals> {
        let held: Option<HeldShards<'_>> =
            self.shard_numbers().map(|number| Some((number, self.lock_soon(number)?))).collect();
        Some(self.transaction(0, Held::Many(held?)).everything().ok()?.totals())
    }
}
