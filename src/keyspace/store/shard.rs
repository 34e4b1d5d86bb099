//! What lies behind one lock: a table for each database that was ever written to, and counters.

use std::cell::Cell;
use std::ops::Deref;

use crate::keyspace::following::lens::GoneLocks;
use crate::keyspace::following::watching::WatchedKeys;
use crate::keyspace::snapshot::{Place, PreservedBytes, Slice};
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::sync::Mutex;
use crate::keyspace::store::table::Table;

/// A shard and its lock, in cache lines of their own. What a command on a key of the first database needs of
/// them is in the first line, so that it takes one look at memory.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(in crate::keyspace) struct LockedShard(Mutex<Shard>);

impl Deref for LockedShard {
    type Target = Mutex<Shard>;

    #[inline(always)]
    fn deref(&self) -> &Mutex<Shard> {
        &self.0
    }
}

/// What is behind one lock. What happens is counted here, where counting is free.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::keyspace) struct Shard {
    rarities: Option<Box<Rarities>>,
    /// Reads that found a key.
    pub(in crate::keyspace) hits: Cell<u64>,
    /// How often a key was written or deleted. Redis: `dirty`.
    pub(in crate::keyspace) changes: u64,
    /// That of the first database.
    first: Table,
    /// Those of the others, in their order; fewer than there are until the last one is written to.
    others: Box<[Table]>,
    /// Reads that found none.
    pub(in crate::keyspace) misses: Cell<u64>,
    /// Locks that were taken and not followed.
    pub(in crate::keyspace) unfollowed: u64,
}

/// What a shard has only if something happened in it that rarely does.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Rarities {
    /// Tables that are in no database any more, but a snapshot waits for them.
    awaited: Vec<Table>,
    pub(in crate::keyspace) watched: WatchedKeys,
    pub(in crate::keyspace) gone_locks: GoneLocks,
}

/// Which tables a sweep is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum Sweep {
    /// Tables for which it is worth its time.
    Due,
    /// Every table that may have an expired entry, however few there would be.
    All,
}

/// What happened in all shards since the start, or since CONFIG RESETSTAT.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceCounters {
    /// Keys that a reading command found.
    pub hits: u64,
    /// Keys that a reading command did not find.
    pub misses: u64,
    /// Keys that were freed because their time had come.
    pub expired: u64,
    /// Keys that were freed because memory was short.
    pub evicted: u64,
}

impl Shard {
    #[inline(always)]
    pub(in crate::keyspace) fn table(&self, database: usize) -> Option<&Table> {
        if database == 0 { Some(&self.first) } else { self.others.get(database - 1) }
    }

    #[inline(always)]
    pub(in crate::keyspace) fn table_mut(&mut self, database: usize) -> &mut Table {
        if database == 0 { &mut self.first } else { self.other_mut(database) }
    }

    #[inline(never)]
    fn other_mut(&mut self, database: usize) -> &mut Table {
        if database > self.others.len() {
            let mut others = std::mem::take(&mut self.others).into_vec();
            others.resize_with(database, Table::default);
            self.others = others.into_boxed_slice();
        }
        &mut self.others[database - 1]
    }

    /// What rarely happens, if it has.
    #[inline(always)]
    pub(in crate::keyspace) fn rarities(&self) -> Option<&Rarities> {
        self.rarities.as_deref()
    }

    /// The same, to note it.
    pub(in crate::keyspace) fn rarities_mut(&mut self) -> &mut Rarities {
        self.rarities.get_or_insert_default()
    }

    /// Sets all counters to zero.
    pub(in crate::keyspace) fn reset_counters(&mut self) {
        (self.hits, self.misses, self.unfollowed) = Default::default();
    }

    /// How many databases have a table: those up to the last one that was ever written to.
    pub(in crate::keyspace) fn databases(&self) -> usize {
        1 + self.others.len()
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Empties a database; the caller drops what was in it, once no lock is held.
    pub(in crate::keyspace) fn take_table(&mut self, database: usize) -> Option<Table> {
        let table = std::mem::take(all(&mut self.first, &mut self.others).nth(database)?);
        self.changes += table.len() as u64;
        if table.is_awaited() {
            self.rarities_mut().awaited.push(table);
            return None;
        }
        Some(table)
    }

    /// Has a snapshot wait for all entries there are.
    pub(in crate::keyspace) fn begin_snapshot(&mut self, preserved_bytes: &PreservedBytes) {
        for (database, table) in all(&mut self.first, &mut self.others).enumerate() {
            table.begin_snapshot(database, preserved_bytes);
        }
    }

    /// Gives a snapshot what it waits for, from `place` on, until it has enough of it. Answers whether that
    /// was all.
    pub(in crate::keyspace) fn give_awaited(&mut self, place: &mut Place, slice: &mut Slice) -> bool {
        if let Some(rarities) = &mut self.rarities {
            slice.add_tables(rarities.awaited.drain(..));
        }
        all(&mut self.first, &mut self.others).all(|table| table.give_awaited(place, slice))
    }

    /// Exchanges two databases.
    pub(in crate::keyspace) fn swap_tables(&mut self, one: usize, other: usize) {
        if one != other {
            let table = std::mem::take(self.table_mut(one));
            let table = std::mem::replace(self.table_mut(other), table);
            *self.table_mut(one) = table;
        }
    }

    /// Whether a sweep is worth its time.
    pub(in crate::keyspace) fn is_due(&self, now_ms: u64) -> bool {
        self.tables().any(|table| table.is_due(now_ms))
    }

    /// Removes the expired entries of the tables that a sweep is for, and passes each to `gone` with the
    /// number of its database. Returns how many entries it looked at.
    pub(in crate::keyspace) fn sweep(
        &mut self,
        sweep: Sweep,
        now_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut gone: impl FnMut(usize, Entry),
    ) -> usize {
        let (mut looked_at, rest_ms) = (0, if sweep == Sweep::Due { Table::REST_MS } else { 0 });
        for (database, table) in all(&mut self.first, &mut self.others).enumerate() {
            let is_meant = match sweep {
                Sweep::Due => table.is_due(now_ms),
                Sweep::All => table.size().expiring > 0,
            };
            if is_meant {
                looked_at += table.len();
                let rarities = &mut self.rarities;
                table.sweep(now_ms, rest_ms, &hash, |entry| {
                    if entry.is_lock() {
                        rarities.get_or_insert_default().gone_locks.add(hash(&entry));
                    }
                    gone(database, entry);
                });
            }
        }
        looked_at
    }
}

/// All tables of a shard.
fn all<'a>(first: &'a mut Table, others: &'a mut [Table]) -> impl Iterator<Item = &'a mut Table> {
    std::iter::once(first).chain(others)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_needs_of_a_shard_is_in_its_first_cache_line() {
        let shard = LockedShard::default();
        let start = std::ptr::from_ref(&shard).addr();
        let locked = shard.try_lock().expect("nobody has it");
        let last = std::ptr::from_ref(&locked.first.layout).addr() + size_of::<u32>();
        assert!(last - start <= 64, "{}", last - start);
        assert_eq!((start % 64, size_of::<LockedShard>()), (0, 128));
    }
}
