//! What a transaction leaves behind when it ends: effects for clients, changes for the log, and garbage to
//! free. Nearly always that is nothing, and costs nothing.

use std::mem::{ManuallyDrop, take};
use std::sync::Arc;

use crate::events::EventClass;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::table::Table;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::blocked::{Served, Waiter};
use crate::keyspace::transaction::following::changes::Changes;
use crate::keyspace::transaction::following::doubts::Doubt;
use crate::keyspace::transaction::following::guards::GuardWish;
use crate::keyspace::transaction::following::lens::Absences;
use crate::keyspace::transaction::following::news::Effect;
use crate::keyspace::transaction::following::recording::Recorded;
use crate::keyspace::transaction::long_texts::{Missed, Prepared};
use crate::values::tree::Remains;
use crate::values::{LongText, Structure};

/// What a transaction leaves behind. Nearly always it is empty.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Left(ManuallyDrop<Option<Box<Aftermath>>>);

#[derive(Debug, Default)]
pub(in crate::keyspace) struct Aftermath {
    /// Effects for clients.
    effects: Vec<Effect>,
    /// Changes for the log.
    pub(in crate::keyspace) changes: Changes,
    /// Changed keys for which clients wait, with their databases.
    pub(in crate::keyspace) ready: Vec<(usize, Box<[u8]>)>,
    /// Changed keys that are locks with guards.
    pub(in crate::keyspace) doubts: Vec<Doubt>,
    /// What the client of the command wants of the locks that it has got.
    pub(in crate::keyspace) wishes: Vec<GuardWish>,
    /// Clients that look again, since the clock was turned.
    pub(in crate::keyspace) timed: Vec<Arc<Waiter>>,
    /// Clients that were served.
    pub(in crate::keyspace) served: Vec<Served>,
    /// Copies of long arguments, for commands that write them.
    pub(in crate::keyspace) prepared: Vec<Prepared>,
    /// Long strings to let go of when the locks are free.
    pub(in crate::keyspace) texts: Vec<LongText>,
    /// Parts that are missing in the replies.
    pub(in crate::keyspace) missed: Vec<Missed>,
    /// What the request has done, in a keyspace that it has borrowed.
    pub(in crate::keyspace) recorded: Option<Box<Recorded>>,
    /// The last keys that a script has found absent.
    pub(in crate::keyspace) absences: Absences,
    /// Tables and entries to free when the locks are free.
    garbage: Garbage,
}

/// Whole tables, large entries and nodes of collections that have left the keyspace.
#[derive(Debug, Default)]
pub struct Garbage {
    tables: Vec<Table>,
    entries: Vec<Entry>,
    remains: Remains,
    remains_bytes: usize,
    is_for_background: bool,
}

impl Transaction<'_> {
    /// Adds to what the transaction leaves behind.
    #[cold]
    pub(in crate::keyspace) fn leave(&self, add: impl FnOnce(&mut Aftermath)) {
        add(self.left.borrow_mut().get());
    }

    /// Leaves an effect for clients.
    #[cold]
    pub(in crate::keyspace) fn leave_effect(&self, effect: Effect) {
        self.leave(|aftermath| aftermath.effects.push(effect));
    }

    /// Leaves whole tables, to be freed when the locks are free.
    pub(in crate::keyspace) fn leave_tables(&self, tables: Vec<Table>) {
        if !tables.is_empty() {
            self.leave(|aftermath| aftermath.garbage.tables.extend(tables));
        }
    }

    /// Leaves an entry, to be freed when the locks are free.
    pub(in crate::keyspace) fn leave_entry(&self, entry: Entry) {
        self.leave(|aftermath| aftermath.garbage.entries.push(entry));
    }

    /// Leaves `bytes` of nodes, to be freed when the locks are free.
    #[inline]
    pub(in crate::keyspace) fn leave_remains(&self, remains: Remains, bytes: usize) {
        if !remains.is_empty() {
            self.leave(|aftermath| {
                aftermath.garbage.remains.append(remains);
                aftermath.garbage.remains_bytes += bytes;
            });
        }
    }

    /// Whether the caller has work to do before the transaction ends: it left something behind, or it passed
    /// over an expired key.
    #[inline(always)]
    pub fn leaves_anything(&mut self) -> bool {
        self.has_seen_expired() || self.left.get_mut().if_any().is_some()
    }

    /// Takes the effects for clients.
    #[inline(always)]
    pub fn take_effects(&mut self) -> Vec<Effect> {
        self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.effects)).unwrap_or_default()
    }

    /// The number of effects for clients so far.
    pub(in crate::keyspace) fn count_effects(&mut self) -> usize {
        self.left.get_mut().if_any().map_or(0, |aftermath| aftermath.effects.len())
    }

    /// Moves the effects from this one on in front of the event that a key is missing, if there was one.
    pub(in crate::keyspace) fn put_before_miss(&mut self, key: &[u8], from: usize) {
        if !self.wanted.event(EventClass::MISS) {
            return;
        }
        let current = self.database;
        let Some(aftermath) = self.left.get_mut().if_any() else { return };
        let is_miss = |effect: &Effect| match effect {
            Effect::Event { name, database, key: missing } => {
                *name == "keymiss" && *database == current && **missing == *key
            }
            _ => false,
        };
        if let Some(at) = aftermath.effects.iter().take(from).position(is_miss) {
            let moved = aftermath.effects.len() - from;
            aftermath.effects[at..].rotate_right(moved);
        }
    }

    /// Marks large garbage to be freed in the background (UNLINK, FLUSHALL ASYNC).
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

impl Aftermath {
    /// What the request has done, in a keyspace that it has borrowed.
    pub(in crate::keyspace) fn recorded(&mut self) -> &mut Recorded {
        self.recorded.get_or_insert_default()
    }

    /// The effects from this one on.
    pub(in crate::keyspace) fn effects_from(&mut self, from: usize) -> &mut [Effect] {
        self.effects.get_mut(from..).unwrap_or_default()
    }
}

impl Left {
    /// The aftermath of a transaction that owns these copies of long arguments.
    #[inline(always)]
    pub(in crate::keyspace) fn with_prepared(prepared: Vec<Prepared>) -> Left {
        if prepared.is_empty() { Left::default() } else { Left::holding(prepared) }
    }

    #[cold]
    fn holding(prepared: Vec<Prepared>) -> Left {
        let aftermath = Aftermath { prepared, ..Aftermath::default() };
        Left(ManuallyDrop::new(Some(Box::new(aftermath))))
    }

    /// The aftermath, if there is any.
    #[inline(always)]
    pub(in crate::keyspace) fn if_any(&mut self) -> Option<&mut Aftermath> {
        self.0.as_deref_mut()
    }

    /// The aftermath; a new one if there is none yet.
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

/// The destructor checks inline whether there is anything to free: nearly always there is nothing.
impl Drop for Left {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.free();
        }
    }
}

impl Garbage {
    /// From this many bytes of values on, another thread should free them: giving pages back to the system
    /// takes about 0.1 µs each.
    const LARGE_BYTES: usize = 1 << 20;

    /// Freeing this many bytes of values, or of entries in tables, takes about a millisecond.
    const LONG_BYTES: usize = 32 << 20;
    const LONG_ENTRIES: usize = 20_000;

    /// Whether a thread in the background should free it. Large collections are always for it: no client
    /// waits until one is taken apart.
    pub fn is_for_background(&self) -> bool {
        self.is_for_background || self.structures_bytes() >= Garbage::LARGE_BYTES
    }

    /// How many values it has. Nodes that a value has lost count as one.
    pub fn values(&self) -> u64 {
        let in_tables: usize = self.tables.iter().map(|table| table.size().keys).sum();
        (in_tables + self.entries.len() + usize::from(!self.remains.is_empty())) as u64
    }

    fn is_work(&self) -> bool {
        let is_large = !self.tables.is_empty() || self.values_bytes() >= Garbage::LARGE_BYTES;
        self.is_for_background() && is_large || self.is_long_work()
    }

    /// Bytes of the large collections.
    fn structures_bytes(&self) -> usize {
        let structures = self.entries.iter().filter(|entry| entry.is_collection());
        let structures = structures.filter_map(Entry::structure);
        self.remains_bytes + structures.map(Structure::bytes).sum::<usize>()
    }

    /// Whether freeing it would delay all clients of a thread.
    fn is_long_work(&self) -> bool {
        self.tables.iter().map(|table| table.size().keys).sum::<usize>() >= Garbage::LONG_ENTRIES
            || self.values_bytes() + self.tables_bytes() >= Garbage::LONG_BYTES
    }

    /// Bytes of the entries of all tables, which are few.
    fn tables_bytes(&self) -> usize {
        self.tables.iter().flat_map(Table::entries).map(Entry::bytes_in_all).sum()
    }

    fn values_bytes(&self) -> usize {
        self.remains_bytes + self.entries.iter().map(Entry::bytes_in_all).sum::<usize>()
    }
}
