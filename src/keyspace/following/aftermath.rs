//! What a transaction leaves behind for others: what somebody is to be told, what is to be written down, and
//! what is to be freed. Nearly always that is nothing, and costs nothing.

use std::mem::{ManuallyDrop, take};

use crate::keyspace::following::changes::Changes;
use crate::keyspace::following::news::Effect;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::table::Table;
use crate::keyspace::transaction::Transaction;

/// What a transaction leaves behind, if it is anything.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Left(ManuallyDrop<Option<Box<Aftermath>>>);

#[derive(Debug, Default)]
pub(in crate::keyspace) struct Aftermath {
    /// What somebody is to be told.
    effects: Vec<Effect>,
    /// What is to be written down.
    pub(in crate::keyspace) changes: Changes,
    /// What was taken out and is to be freed, once the locks are free.
    garbage: Garbage,
}

/// Whole tables, and large entries, that are not in the keyspace any more.
#[derive(Debug, Default)]
pub struct Garbage {
    tables: Vec<Table>,
    entries: Vec<Entry>,
    is_for_background: bool,
}

impl Transaction<'_> {
    /// Adds to what is left behind.
    #[cold]
    pub(in crate::keyspace) fn leave(&self, add: impl FnOnce(&mut Aftermath)) {
        add(self.left.borrow_mut().get());
    }

    /// Has somebody told of this.
    #[cold]
    pub(in crate::keyspace) fn tell(&self, effect: Effect) {
        self.leave(|aftermath| aftermath.effects.push(effect));
    }

    /// Has whole tables freed once the locks are free.
    pub(in crate::keyspace) fn leave_tables(&self, tables: Vec<Table>) {
        if !tables.is_empty() {
            self.leave(|aftermath| aftermath.garbage.tables.extend(tables));
        }
    }

    /// Has an entry freed once the locks are free.
    pub(in crate::keyspace) fn leave_entry(&self, entry: Entry) {
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

    /// Has large garbage freed in the background (UNLINK, FLUSHALL ASYNC).
    pub fn free_in_background(&mut self) {
        if let Some(aftermath) = self.left.get_mut().if_any() {
            aftermath.garbage.is_for_background = true;
        }
    }

    /// Takes the garbage that the caller must not free at once: freeing it takes long, or it is for the
    /// background. All other garbage is freed when the transaction has ended and the locks are free.
    #[inline(always)]
    pub fn take_large_garbage(&mut self) -> Option<Garbage> {
        let aftermath = self.left.get_mut().if_any()?;
        aftermath.garbage.is_work().then(|| take(&mut aftermath.garbage))
    }

    /// Takes all garbage, for a caller that frees it while it still holds the locks.
    pub fn take_garbage(&mut self) -> Garbage {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.garbage)).unwrap_or_default()
    }
}

impl Left {
    /// What is left behind, if it is anything.
    #[inline(always)]
    pub(in crate::keyspace) fn if_any(&mut self) -> Option<&mut Aftermath> {
        self.0.as_deref_mut()
    }

    /// The same, to add something.
    pub(in crate::keyspace) fn get(&mut self) -> &mut Aftermath {
        self.0.get_or_insert_default()
    }

    #[cold]
    fn free(&mut self) {
        let left = self.0.take();
        debug_assert!(
            std::thread::panicking() || left.is_none_or(|left| left.changes.is_empty()),
            "a transaction has ended without a commit"
        );
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

impl Garbage {
    /// Bytes of values whose freeing is worth another thread's while: giving pages back to the system takes
    /// some 0.1 µs each.
    const LARGE_BYTES: usize = 1 << 20;

    /// Bytes of values, or entries in tables, whose freeing takes about a millisecond.
    const LONG_BYTES: usize = 32 << 20;
    const LONG_ENTRIES: usize = 20_000;

    /// Whether it should be freed in the background.
    pub fn is_for_background(&self) -> bool {
        self.is_for_background
    }

    fn is_work(&self) -> bool {
        let is_large = !self.tables.is_empty() || self.entries_bytes() >= Garbage::LARGE_BYTES;
        self.is_for_background && is_large || self.is_long_work()
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
