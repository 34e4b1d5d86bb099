//! Actions that need every shard: sizes and sums, emptying and exchanging databases, turning the clock.

use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::Ordering;

use super::{Held, Transaction};
use crate::clock::Clock;
use crate::keyspace::Shard;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::locking::HeldShards;
use crate::keyspace::store::shard::{KeyspaceCounters, SweepScope};
use crate::keyspace::store::table::{DatabaseSize, Table};
use crate::keyspace::transaction::following::Replacement;
use crate::keyspace::transaction::following::news::Effect;

/// A transaction that holds every shard: a [`Transaction`] behind a reference or a box.
#[derive(Debug)]
pub struct Everything<T>(T);

/// The transaction does not hold every shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEverything;

impl<'a> Transaction<'a> {
    /// Returns the transaction as one on everything.
    ///
    /// # Errors
    ///
    /// [`NotEverything`]: the command's scope is not everything.
    pub fn everything(&self) -> Result<Everything<&Transaction<'a>>, NotEverything> {
        if self.holds_everything() { Ok(Everything(self)) } else { Err(NotEverything) }
    }

    /// Returns the transaction as one on everything that may change it.
    ///
    /// # Errors
    ///
    /// [`NotEverything`]: the command's scope is not everything.
    pub fn everything_mut(&mut self) -> Result<Everything<&mut Transaction<'a>>, NotEverything> {
        if self.holds_everything() { Ok(Everything(self)) } else { Err(NotEverything) }
    }

    pub(in crate::keyspace) fn holds_everything(&self) -> bool {
        matches!(&self.held, Held::Many(shards) if shards.len() == self.keyspace.shards.len())
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Deref for Everything<T> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.0
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> DerefMut for Everything<T> {
    fn deref_mut(&mut self) -> &mut Transaction<'a> {
        &mut self.0
    }
}

/// Looking at everything.
impl<'a, T: Deref<Target = Transaction<'a>>> Everything<T> {
    /// Wraps a transaction that was begun with every shard.
    pub(super) fn of(tx: T) -> Everything<T> {
        debug_assert!(tx.holds_everything());
        Everything(tx)
    }

    /// Every shard with its number, in their order.
    pub(in crate::keyspace) fn shards(&self) -> &HeldShards<'a> {
        match &self.0.held {
            Held::Many(shards) => shards,
            Held::One { .. } => unreachable!("a transaction on everything holds every shard"),
        }
    }

    fn all<'s>(&'s self) -> impl Iterator<Item = &'s Shard>
    where
        'a: 's,
    {
        self.shards().iter().map(|(_, shard)| &**shard)
    }

    /// All keys of the current database that have not expired.
    pub fn keys<'s>(&'s self) -> impl Iterator<Item = &'s [u8]>
    where
        'a: 's,
    {
        let tables = self.all().filter_map(|shard| shard.table(self.database));
        tables.flat_map(Table::entries).filter(|entry| !self.has_expired(entry)).map(Entry::key)
    }

    /// How large the current database is.
    pub fn database_size(&self) -> DatabaseSize {
        self.size_of(self.database)
    }

    /// How large every database is, by its number.
    pub fn database_sizes(&self) -> impl Iterator<Item = DatabaseSize> {
        (0..self.databases()).map(|database| self.size_of(database))
    }

    fn size_of(&self, database: usize) -> DatabaseSize {
        let mut sum = DatabaseSize::default();
        for table in self.all().filter_map(|shard| shard.table(database)) {
            sum.add(table.size());
        }
        sum
    }

    /// Counts since the start or the last reset.
    pub fn counters(&self) -> KeyspaceCounters {
        let mut sum = KeyspaceCounters::default();
        for shard in self.all() {
            sum.hits += shard.hits.get();
            sum.misses += shard.misses.get();
        }
        self.keyspace.reads_of_copies.add_to(&mut sum);
        sum.expired = self.keyspace.losses.expired();
        sum.expired_fields = self.keyspace.losses.expired_fields();
        sum.evicted = self.keyspace.losses.evicted();
        sum
    }

    /// How often keys were written or deleted.
    pub fn changes(&self) -> u64 {
        self.all().map(|shard| shard.changes).sum()
    }

    /// How many locks are not followed, because there were too many: keys that a command inserted because
    /// they were absent.
    pub fn unfollowed_locks(&self) -> u64 {
        self.all().map(|shard| shard.unfollowed).sum()
    }
}

/// What changes all keys, or the clock.
impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// The same transaction behind a mutable reference.
    pub fn as_mut(&mut self) -> Everything<&mut Transaction<'a>> {
        Everything(&mut self.0)
    }

    pub(in crate::keyspace) fn shards_mut(&mut self) -> &mut HeldShards<'a> {
        match &mut self.0.held {
            Held::Many(shards) => shards,
            Held::One { .. } => unreachable!("a transaction on everything holds every shard"),
        }
    }

    /// Empties the current database.
    pub fn flush_database(&mut self) {
        let database = self.database;
        self.note_flush(Some(database));
        self.flush(database..database + 1);
        self.leave_effect(Effect::LocksFlushed { database: Some(database) });
    }

    /// Empties every database.
    pub fn flush_all(&mut self) {
        self.keyspace.flushes.fetch_add(1, Ordering::Relaxed);
        self.note_flush(None);
        self.flush(0..self.databases());
        self.leave_effect(Effect::LocksFlushed { database: None });
    }

    fn flush(&mut self, databases: Range<usize>) {
        self.follow_replacement(|database| match databases.contains(&database) {
            true => Replacement::Nothing,
            false => Replacement::None,
        });
        let mut tables = Vec::new();
        for (_, shard) in self.shards_mut() {
            tables.extend(databases.clone().filter_map(|database| shard.take_table(database)));
        }
        self.leave_tables(tables);
        if self.wanted.blocked() {
            self.note_ready_in(|database| databases.contains(&database));
        }
    }

    /// Exchanges two databases.
    pub fn swap_databases(&mut self, one: usize, other: usize) {
        self.follow_replacement(|database| match database {
            _ if one == other => Replacement::None,
            _ if database == one => Replacement::Database(other),
            _ if database == other => Replacement::Database(one),
            _ => Replacement::None,
        });
        self.note_swap(one, other);
        for (number, shard) in self.shards_mut() {
            shard.changes += u64::from(*number == 0);
            shard.swap_tables(one, other);
        }
        self.leave_effect(Effect::LocksSwapped { one, other });
        if self.wanted.blocked() {
            self.note_ready_in(|database| [one, other].contains(&database));
        }
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&mut self) {
        for (_, shard) in self.shards_mut() {
            shard.reset_counters();
        }
        self.keyspace.losses.reset();
        self.keyspace.reads_of_copies.reset();
    }

    /// Remembers locks by the hashes of their keys: if a client looks for one, that is news.
    pub fn remember_gone_locks(&mut self, hashes: &[u64]) {
        let keyspace = self.keyspace;
        for hash in hashes {
            let wanted = keyspace.shard_of(*hash);
            if let Ok(at) = self.shards_mut().binary_search_by_key(&wanted, |(number, _)| *number) {
                self.shards_mut()[at].1.side_tables_mut().gone_locks.add(*hash);
            }
        }
    }

    /// Sets the number of locks that are not followed to zero, and of attempts that were not reported.
    pub fn reset_unfollowed_locks(&mut self) {
        self.shards_mut().iter_mut().for_each(|(_, shard)| shard.unfollowed = 0);
        self.keyspace.lock_allowance.reset();
    }

    /// Turns the clock of the keyspace and moves the transaction to the new moment. No other client looks at
    /// a key meanwhile. All clients whose waiting goes by time look again when the transaction ends.
    pub fn turn_clock<R>(&mut self, turn: impl FnOnce(&Clock) -> R) -> R {
        let before = self.keyspace.clock.since_epoch();
        let turned = turn(&self.keyspace.clock);
        if let Some(turn) = self.keyspace.access.note_turn(before, self.keyspace.clock.since_epoch()) {
            let tables = (0..self.databases())
                .flat_map(|database| self.all().filter_map(move |shard| shard.table(database)));
            let access = &self.keyspace.access;
            let rewrite = |entry: &Entry| entry.set_stamp(access.stamp_after(entry.stamp(), turn));
            tables.flat_map(Table::entries).for_each(rewrite);
        }
        self.keyspace.follow_clock();
        self.moment.set(0);
        if self.stamp != 0 {
            self.stamp = self.keyspace.access.read();
        }
        self.renew_turned(before);
        if self.wanted.blocked() {
            self.note_turn();
        }
        turned
    }

    /// Frees every expired key of every database, and notes each loss in the order of their expiries. Of the
    /// hashes of which only some fields have expired, it frees a few fields each, and leaves the others to
    /// the sweep: no other client looks at a key meanwhile.
    pub fn free_all_expired(&mut self) {
        let (_, due) = Transaction::sweep(self, SweepScope::All);
        let current = self.database;
        for (database, key) in due {
            self.select(database);
            self.free_fields(&key);
        }
        self.select(current);
    }
}
