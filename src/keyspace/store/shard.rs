//! The data behind one lock: counters, the table of the first database, and one for each other database that
//! has keys here.

use std::cell::Cell;
use std::ops::Deref;

use crate::keyspace::KeyLocation;
use crate::keyspace::store::copies::{Copies, Position, PreservedBytes};
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::table::{Removed, Table};
use crate::sync::Mutex;

/// A shard and its lock, in cache lines of their own. All that a command on a key of the first database reads
/// of them is in the first line, so it needs one read of memory.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(in crate::keyspace) struct LockedShard<R>(Mutex<Shard<R>>);

impl<R> Deref for LockedShard<R> {
    type Target = Mutex<Shard<R>>;

    #[inline(always)]
    fn deref(&self) -> &Mutex<Shard<R>> {
        &self.0
    }
}

/// The data behind one lock. Counting here costs nothing extra, since the lock is held anyway.
#[derive(Debug, Default)]
#[repr(C)]
pub(in crate::keyspace) struct Shard<R> {
    side_tables: Option<Box<SideTables<R>>>,
    /// Reads that found a key.
    pub(in crate::keyspace) hits: Cell<u64>,
    /// How often a key was written or deleted. Redis: `dirty`.
    pub(in crate::keyspace) changes: u64,
    /// The table of the first database.
    first: Table,
    /// The tables of the other databases, if any of them has keys.
    others: Option<Box<Others>>,
    /// Reads that found no key.
    pub(in crate::keyspace) misses: Cell<u64>,
    /// Locks that were taken and are not followed.
    pub(in crate::keyspace) unfollowed: u64,
}

/// Tables with the numbers of their databases, in order. A database without keys takes no memory.
#[derive(Debug, Default)]
struct Others {
    tables: Vec<(usize, Table)>,
}

/// Parts of a shard that few shards need.
#[derive(Debug, Default)]
struct SideTables<R> {
    /// Tables that have left their databases, but a snapshot waits for them.
    awaited: Vec<Table>,
    /// What those keep that follow the shard's keys.
    followed: R,
}

/// What those keep in a shard that follow its keys.
pub(in crate::keyspace) trait Followed: Default {
    /// Called when a sweep has removed a lock, with the hash of its key.
    fn lock_has_gone(&mut self, hash: u64);
}

/// The tables to sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::keyspace) enum SweepScope {
    /// Tables for which a sweep is worth its time.
    Due,
    /// Every table that may have an expired entry, even only one.
    All,
}

/// Counts over all shards since the start, or since CONFIG RESETSTAT.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceCounters {
    /// Keys that a reading command found.
    pub hits: u64,
    /// Keys that a reading command did not find.
    pub misses: u64,
    /// Keys that were freed because they had expired.
    pub expired: u64,
    /// Keys that were freed because memory was short.
    pub evicted: u64,
    /// Fields of hashes that were freed because they had expired.
    pub expired_fields: u64,
    /// Those of the expired keys that a sweep has freed: no command came across them.
    pub swept: u64,
    /// Those of the expired fields that a sweep has freed.
    pub swept_fields: u64,
}

impl<R: Followed> Shard<R> {
    #[inline(always)]
    pub(in crate::keyspace) fn table(&self, database: usize) -> Option<&Table> {
        if database == 0 { Some(&self.first) } else { self.other(database) }
    }

    #[inline(always)]
    pub(in crate::keyspace) fn table_mut(&mut self, database: usize) -> &mut Table {
        if database == 0 { &mut self.first } else { self.other_mut(database) }
    }

    #[inline]
    fn other(&self, database: usize) -> Option<&Table> {
        let tables = &self.others.as_ref()?.tables;
        tables.binary_search_by_key(&database, |(number, _)| *number).ok().map(|at| &tables[at].1)
    }

    #[inline(never)]
    fn other_mut(&mut self, database: usize) -> &mut Table {
        let tables = &mut self.others.get_or_insert_default().tables;
        let found = tables.binary_search_by_key(&database, |(number, _)| *number);
        let at = found.unwrap_or_else(|at| {
            tables.reserve_exact(1);
            tables.insert(at, (database, Table::default()));
            at
        });
        &mut tables[at].1
    }

    /// The entry of a key. The caller may change only its value.
    #[inline(always)]
    pub(in crate::keyspace) fn entry_mut(
        &mut self,
        database: usize,
        spot: KeyLocation,
        key: &[u8],
    ) -> Option<&mut Entry> {
        match database {
            0 => self.first.entry_mut(spot, key),
            // A look for a key makes no table.
            _ => self.table(database).is_some().then(|| self.other_mut(database))?.entry_mut(spot, key),
        }
    }

    /// Removes a key. Returns the facts about its entry, if it was there.
    #[inline]
    pub(in crate::keyspace) fn remove(
        &mut self,
        database: usize,
        spot: KeyLocation,
        key: &[u8],
    ) -> Option<Removed> {
        let removed = self.table_mut(database).remove(spot, key);
        self.drop_empty_tables();
        removed
    }

    /// Gives back the tables of databases that have no keys any more. To be called when a table may have lost
    /// its last one.
    #[inline]
    pub(in crate::keyspace) fn drop_empty_tables(&mut self) {
        if self.others.is_some() {
            self.drop_empty_others();
        }
    }

    #[inline(never)]
    fn drop_empty_others(&mut self) {
        let Some(others) = &mut self.others else { return };
        let before = others.tables.len();
        others.tables.retain(|(_, table)| table.len() > 0 || table.is_awaited());
        if others.tables.is_empty() {
            self.others = None;
        } else if others.tables.len() < before {
            others.tables.shrink_to_fit();
        }
    }

    /// The rarely needed parts, if the shard has any.
    #[inline(always)]
    pub(in crate::keyspace) fn side_tables(&self) -> Option<&R> {
        self.side_tables.as_deref().map(|side_tables| &side_tables.followed)
    }

    /// The rarely needed parts, made if the shard has none.
    pub(in crate::keyspace) fn side_tables_mut(&mut self) -> &mut R {
        &mut self.side_tables.get_or_insert_default().followed
    }

    /// Sets all counters to zero.
    pub(in crate::keyspace) fn reset_counters(&mut self) {
        (self.hits, self.misses, self.unfollowed) = Default::default();
    }

    /// All databases with a higher number than this have no keys.
    pub(in crate::keyspace) fn databases(&self) -> usize {
        let last = self.others.as_ref().and_then(|others| others.tables.last());
        1 + last.map_or(0, |(database, _)| *database)
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        let others = self.others.iter().flat_map(|others| &others.tables);
        std::iter::once(&self.first).chain(others.map(|(_, table)| table))
    }

    /// Empties a database. The caller drops the returned table once it holds no lock.
    pub(in crate::keyspace) fn take_table(&mut self, database: usize) -> Option<Table> {
        let mut tables = all(&mut self.first, &mut self.others);
        let table = std::mem::take(tables.find(|(number, _)| *number == database)?.1);
        drop(tables);
        self.drop_empty_tables();
        self.changes += table.len() as u64;
        if table.is_awaited() {
            self.side_tables.get_or_insert_default().awaited.push(table);
            return None;
        }
        Some(table)
    }

    /// Makes a snapshot wait for all current entries.
    pub(in crate::keyspace) fn begin_snapshot(&mut self, preserved_bytes: &PreservedBytes) {
        for (database, table) in all(&mut self.first, &mut self.others) {
            table.begin_snapshot(database, preserved_bytes);
        }
    }

    /// Gives a snapshot the entries that it waits for, from `place` on, until the slice is full, and the
    /// tables that have left their databases. Returns whether there are no more.
    pub(in crate::keyspace) fn give_awaited(
        &mut self,
        place: &mut Position,
        slice: &mut Copies,
        tables: &mut Vec<Table>,
    ) -> bool {
        if let Some(side_tables) = &mut self.side_tables {
            tables.append(&mut side_tables.awaited);
        }
        if !tables.is_empty() {
            slice.close();
        }
        all(&mut self.first, &mut self.others).all(|(_, table)| table.give_awaited(place, slice))
    }

    /// Exchanges two databases.
    pub(in crate::keyspace) fn swap_tables(&mut self, one: usize, other: usize) {
        if one != other {
            let table = std::mem::take(self.table_mut(one));
            let table = std::mem::replace(self.table_mut(other), table);
            *self.table_mut(one) = table;
            self.drop_empty_tables();
        }
    }

    /// Whether a sweep is worth its time.
    pub(in crate::keyspace) fn is_due(&self, now_ms: u64) -> bool {
        self.tables().any(|table| table.is_due(now_ms))
    }

    /// When a sweep is worth its time; the largest number if nothing expires.
    pub(in crate::keyspace) fn sweep_at_ms(&self) -> u64 {
        self.tables().map(Table::sweep_at_ms).min().unwrap_or(u64::MAX)
    }

    /// Removes the expired entries of the chosen tables, and passes each to `gone` with the number of its
    /// database. Passes the hashes of which some fields have expired to `due`. Returns how many entries it
    /// looked at.
    pub(in crate::keyspace) fn sweep(
        &mut self,
        scope: SweepScope,
        now_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut gone: impl FnMut(usize, Entry),
        mut due: impl FnMut(usize, &Entry),
    ) -> usize {
        let (mut looked_at, rest_ms) = (0, if scope == SweepScope::Due { Table::REST_MS } else { 0 });
        for (database, table) in all(&mut self.first, &mut self.others) {
            let is_meant = match scope {
                SweepScope::Due => table.is_due(now_ms),
                SweepScope::All => table.may_expire(),
            };
            if is_meant {
                let side_tables = &mut self.side_tables;
                let gone = |entry: Entry| {
                    if entry.is_lock() {
                        side_tables.get_or_insert_default().followed.lock_has_gone(hash(&entry));
                    }
                    gone(database, entry);
                };
                looked_at += table.sweep(now_ms, rest_ms, &hash, gone, |entry| due(database, entry));
            }
        }
        self.drop_empty_tables();
        looked_at
    }
}

/// All tables of a shard, with the numbers of their databases.
fn all<'a>(
    first: &'a mut Table,
    others: &'a mut Option<Box<Others>>,
) -> impl Iterator<Item = (usize, &'a mut Table)> {
    let others = others.iter_mut().flat_map(|others| &mut others.tables);
    std::iter::once((0, first)).chain(others.map(|(database, table)| (*database, table)))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Nothing;

    impl Followed for Nothing {
        fn lock_has_gone(&mut self, _: u64) {}
    }

    #[test]
    fn a_command_reads_only_the_first_cache_line_of_a_shard() {
        let shard = LockedShard::<Nothing>::default();
        let start = std::ptr::from_ref(&shard).addr();
        let locked = shard.try_lock().expect("a free lock");
        let last = std::ptr::from_ref(&locked.first.layout).addr() + size_of::<u32>();
        assert!(last - start <= 64, "{}", last - start);
        assert_eq!((start % 64, size_of::<LockedShard<Nothing>>()), (0, 128));
    }
}
