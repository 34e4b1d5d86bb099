//! What a transaction leaves behind for others: what somebody is to be told, what is to be written down, and
//! what is to be freed. Nearly always that is nothing, and costs nothing.

use std::mem::{ManuallyDrop, take};

use super::changes::Changes;
use super::entry::Entry;
use super::interest::Effect;
use super::shard::Table;
use super::transaction::Transaction;

/// What a transaction leaves behind, if it is anything.
#[derive(Debug, Default)]
pub(super) struct Left(ManuallyDrop<Option<Box<Aftermath>>>);

#[derive(Debug, Default)]
pub(super) struct Aftermath {
    /// What somebody is to be told.
    effects: Vec<Effect>,
    /// What is to be written down.
    pub(super) changes: Changes,
    /// What was taken out and is to be freed, once the locks are free.
    garbage: Garbage,
}

/// Whole tables, and large entries, that are not in the keyspace any more.
#[derive(Debug, Default)]
pub struct Garbage {
    tables: Vec<Table>,
    entries: Vec<Entry>,
}

impl Transaction<'_> {
    /// Adds to what is left behind.
    #[cold]
    pub(super) fn leave(&self, add: impl FnOnce(&mut Aftermath)) {
        add(self.left.borrow_mut().get());
    }

    /// Has somebody told of this.
    #[cold]
    pub(super) fn tell(&self, effect: Effect) {
        self.leave(|aftermath| aftermath.effects.push(effect));
    }

    /// Has an entry freed once the locks are.
    pub(super) fn leave_entry(&self, entry: Entry) {
        self.leave(|aftermath| aftermath.garbage.entries.push(entry));
    }

    /// Whether anything is to be done before the transaction ends: somebody is to be told something,
    /// something is to be written down, or an expired key was passed over.
    #[inline(always)]
    pub fn leaves_anything(&mut self) -> bool {
        self.has_seen_expired() || self.left.get_mut().if_any().is_some()
    }

    /// Takes what somebody has to be told of.
    #[inline(always)]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.effects)).unwrap_or_default()
    }

    /// What is to be freed, if that takes so long that the caller lets other threads serve its clients first.
    #[inline(always)]
    pub fn take_large_garbage(&mut self) -> Option<Garbage> {
        let aftermath = self.left.get_mut().if_any()?;
        aftermath.garbage.is_long_work().then(|| take(&mut aftermath.garbage))
    }

    /// What is to be freed, for a caller who will have it dropped elsewhere.
    pub fn take_garbage(&mut self) -> Garbage {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.garbage)).unwrap_or_default()
    }
}

impl Left {
    /// What is left behind, if it is anything.
    #[inline(always)]
    pub(super) fn if_any(&mut self) -> Option<&mut Aftermath> {
        self.0.as_deref_mut()
    }

    /// The same, to add something.
    pub(super) fn get(&mut self) -> &mut Aftermath {
        self.0.get_or_insert_default()
    }

    #[cold]
    fn free(&mut self) {
        drop(self.0.take());
    }
}

/// Says in place that there is nothing to be freed, for that is nearly always so.
impl Drop for Left {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.free();
        }
    }
}

impl Aftermath {
    /// Has tables freed once the locks are.
    pub(super) fn leave_tables(&mut self, tables: impl Iterator<Item = Table>) {
        self.garbage.tables.extend(tables);
    }
}

impl Garbage {
    /// Bytes whose freeing is worth another thread's while. Redis frees strings of any size at once; freeing
    /// a large one gives pages back to the system, which takes some 0.1 µs each.
    const LARGE_BYTES: usize = 1 << 20;

    /// Bytes of values, or entries in tables, whose freeing takes about a millisecond.
    const LONG_BYTES: usize = 32 << 20;
    const LONG_ENTRIES: usize = 20_000;

    /// Whether freeing it would keep a client waiting.
    pub fn is_large(&self) -> bool {
        !self.tables.is_empty() || self.entries_bytes() >= Garbage::LARGE_BYTES
    }

    /// Whether freeing it would keep all clients of a thread waiting.
    fn is_long_work(&self) -> bool {
        self.tables.iter().map(|table| table.size().keys).sum::<usize>() >= Garbage::LONG_ENTRIES
            || self.entries_bytes() >= Garbage::LONG_BYTES
    }

    fn entries_bytes(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }
}
