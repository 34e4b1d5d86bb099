//! What all shards come to together: the numbers that INFO tells and that metrics are made of.
//!
//! They are counted within one transaction over everything, in one go, so that whoever prints them holds no
//! shard any more.

use std::sync::atomic::{AtomicU64, Ordering};

use super::locking::HeldShards;
use super::shard::{DatabaseSize, KeyspaceCounters};
use super::transaction::{Held, Transaction};
use super::{Keyspace, SHARDS};

/// Sums over all shards.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// What happened since the start or the last reset.
    pub counters: KeyspaceCounters,
    /// How large each database is, by its number.
    pub sizes: Vec<DatabaseSize>,
    /// How often keys were written or deleted.
    pub changes: u64,
    /// Locks that were taken and not followed.
    pub unfollowed_locks: u64,
}

impl Totals {
    /// Bytes of the tables of all databases.
    pub fn table_bytes(&self) -> usize {
        self.sizes.iter().map(|size| size.table_bytes).sum()
    }
}

impl Transaction<'_> {
    /// Sums up. The transaction must hold everything.
    pub fn totals(&self) -> Totals {
        Totals {
            counters: self.counters(),
            sizes: self.database_sizes().collect(),
            changes: self.changes(),
            unfollowed_locks: self.unfollowed_locks(),
        }
    }
}

impl Keyspace {
    /// Sums up, unless somebody holds a shard for more than a moment: then nothing is waited for.
    pub fn totals_soon(&self) -> Option<Totals> {
        let held: Option<HeldShards<'_>> =
            (0..SHARDS).map(|number| Some((number, self.lock_soon(number)?))).collect();
        Some(self.transaction(0, Held::Many(held?)).totals())
    }
}

/// Keys that were lost in all shards since the start, or since CONFIG RESETSTAT. It rarely happens, so it is
/// counted in one place: 1,024 would take memory at the very moment when there is too little.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Because their time had come.
    expired: AtomicU64,
    /// Because memory was short.
    evicted: AtomicU64,
}

impl Losses {
    pub(super) fn count_expired(&self, keys: u64) {
        if keys > 0 {
            self.expired.fetch_add(keys, Ordering::Relaxed);
        }
    }

    pub(super) fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Sets both to zero.
    pub(super) fn reset(&self) {
        self.expired.store(0, Ordering::Relaxed);
        self.evicted.store(0, Ordering::Relaxed);
    }
}
