//! Records changes for clients and for the log.
//!
//! Nearly always no client is interested, and a write costs one look at a number ([`interest`]). Otherwise
//! the transaction that changes a key notes the change:
//!
//! - [`watching`]: marks for clients that watch keys.
//! - [`surveys`]: marks for requests that read many keys one after the other.
//! - [`blocked`]: clients that wait until a key has something for them; [`targets`]: what they need besides;
//!   [`groups`]: those that take several locks at once;
//!   [`alarms`]: when the locks expire for which they wait.
//! - [`guards`]: locks whose holders want to know when they lose them; [`doubts`]: whether they have;
//!   [`guarded`]: the names of what they guard;
//!   [`bonds`]: locks that end with the connection of their holder; [`lifelines`]: these connections;
//!   [`renewals`]: what they need in time.
//! - [`news`]: events, and news for clients that keep copies of keys.
//! - [`lens`]: news of locks.
//! - [`losses`]: keys that expire or are evicted.
//! - [`changes`]: what the log needs.
//! - [`recording`]: what a request has done in a keyspace that it has borrowed.
//!
//! The notes leave with the transaction's [`aftermath`]. The log's [`records`] wait in the [`journal`] for
//! the log's writer.

pub(in crate::keyspace) mod aftermath;
pub(in crate::keyspace) mod alarms;
pub(in crate::keyspace) mod blocked;
pub(in crate::keyspace) mod bonds;
pub(in crate::keyspace) mod changes;
pub(in crate::keyspace) mod doubts;
pub(in crate::keyspace) mod groups;
pub(in crate::keyspace) mod guarded;
pub(in crate::keyspace) mod guards;
pub(in crate::keyspace) mod interest;
pub(in crate::keyspace) mod journal;
pub(in crate::keyspace) mod lens;
pub(in crate::keyspace) mod lifelines;
pub(in crate::keyspace) mod losses;
pub(in crate::keyspace) mod news;
pub(in crate::keyspace) mod recording;
pub(crate) mod records;
pub(in crate::keyspace) mod renewals;
pub(in crate::keyspace) mod surveys;
pub(in crate::keyspace) mod targets;
pub(in crate::keyspace) mod watching;

use std::ops::DerefMut;

use crate::events::EventClass;
use crate::keyspace::KeyLocation;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::shard::Followed;
use crate::keyspace::transaction::following::alarms::Alarms;
use crate::keyspace::transaction::following::blocked::{BlockedCount, BlockedKeys};
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::guards::Guards;
use crate::keyspace::transaction::following::interest::Interest;
use crate::keyspace::transaction::following::journal::Journal;
use crate::keyspace::transaction::following::lens::GoneLocks;
use crate::keyspace::transaction::following::news::Effect;
use crate::keyspace::transaction::following::surveys::Surveys;
use crate::keyspace::transaction::following::watching::{Presence, WatchedKeys};
use crate::keyspace::transaction::{Everything, Transaction};

/// The receivers of the changes in a keyspace.
#[derive(Debug, Default)]
pub struct Followers {
    /// The interest of clients.
    pub interest: Interest,
    /// The records for the log.
    pub journal: Journal,
    /// When locks expire for which clients wait.
    pub alarms: Alarms,
    /// How many clients wait for keys.
    pub(in crate::keyspace) blocked: BlockedCount,
    /// Requests that read keys one after the other.
    pub(in crate::keyspace) surveys: Surveys,
}

/// What is kept in a shard of those that follow its keys; few shards have it.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct SideTables {
    pub(in crate::keyspace) watched: WatchedKeys,
    pub(in crate::keyspace) blocked: BlockedKeys,
    pub(in crate::keyspace) gone_locks: GoneLocks,
    pub(in crate::keyspace) guards: Guards,
}

impl Followed for SideTables {
    fn lock_has_gone(&mut self, hash: u64) {
        self.gone_locks.add(hash);
    }
}

/// The new contents of a database.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) enum Replacement {
    /// The database does not change.
    None,
    /// Nothing: the database is emptied.
    Nothing,
    /// The keys of another database.
    Database(usize),
}

/// Noting changes of keys.
impl Transaction<'_> {
    /// Notes an event, if a client wants events of its class. Handlers call it after the change.
    #[inline(always)]
    pub fn event(&self, class: EventClass, name: &'static str, key: &[u8]) {
        if self.wanted.event(class) {
            self.push_event(name, self.database, key);
        }
    }

    /// Notes an event of a key in another database.
    pub fn event_in(&self, database: usize, class: EventClass, name: &'static str, key: &[u8]) {
        if self.wanted.event(class) {
            self.push_event(name, database, key);
        }
    }

    #[cold]
    pub(in crate::keyspace) fn push_event(&self, name: &'static str, database: usize, key: &[u8]) {
        self.leave_effect(Effect::Event { name, database, key: key.into() });
    }

    /// Notes that a command is about to write a value of this kind, in place of any other one. Handlers call
    /// it before the write, where Redis reports such events before the command's own.
    #[inline(always)]
    pub fn event_of_replacing(&self, key: &[u8], kind: u8) {
        if let Some(before) = self.replaced_kind(key) {
            self.event_replaced(self.database, key, before, kind);
        }
    }

    /// The kind of the value of a key, for a command that replaces one of them by another; `None` if the key
    /// is absent, or if no client wants to know.
    #[inline(always)]
    pub fn replaced_kind(&self, key: &[u8]) -> Option<u8> {
        const CLASSES: EventClass = EventClass::OVERWRITTEN.and(EventClass::TYPE_CHANGED);
        if self.wanted.event(CLASSES) { self.find(key).map(Entry::kind) } else { None }
    }

    /// Notes that a value of the kind `before` was replaced by one of the kind `after`.
    #[cold]
    pub fn event_replaced(&self, database: usize, key: &[u8], before: u8, after: u8) {
        self.event_in(database, EventClass::OVERWRITTEN, "overwritten", key);
        if before != after {
            self.event_in(database, EventClass::TYPE_CHANGED, "type_changed", key);
        }
    }

    /// Notes a write. The caller calls it before the write, and the key may be absent. An expired entry is
    /// freed first.
    #[cold]
    pub(in crate::keyspace) fn follow_put(&mut self, key: &[u8]) {
        self.make_way(key);
        self.follow_change(key, Extent::Whole);
        if self.wanted.event(EventClass::NEW) && self.entry(key).is_none() {
            self.event(EventClass::NEW, "new", key);
        }
    }

    /// Notes how much of a key changes, or that it is deleted.
    #[inline(always)]
    pub(in crate::keyspace) fn follow_change(&self, key: &[u8], extent: Extent) {
        if self.wanted.changes() {
            self.note_change(key, extent);
        }
    }

    /// Lets clients that watch or track a key know that it was written, although nothing has changed.
    pub fn signal_written(&self, key: &[u8]) {
        if !self.wanted.changes() {
            return;
        }
        let (spot, shard) = self.shard(key);
        if let Some(side_tables) = shard.side_tables() {
            side_tables.watched.mark(spot.hash, self.database, key, true);
        }
        if self.wanted.tracking() {
            self.leave_effect(Effect::Changed { key: key.into(), by_itself: false });
        }
    }

    #[cold]
    fn note_change(&self, key: &[u8], extent: Extent) {
        let (spot, shard) = self.shard(key);
        if let Some(side_tables) = shard.side_tables() {
            side_tables.watched.mark(spot.hash, self.database, key, true);
            match extent {
                Extent::Whole => self.doubt_anew(key, None),
                Extent::Expiry | Extent::Part => self.doubt(key, None),
            }
        }
        if self.wanted.surveyed() {
            self.keyspace().followers().surveys.mark(self.database, key);
        }
        if self.wanted.records_keys() {
            self.record_write(key);
        }
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(self.database, key, extent));
        }
        if self.wanted.tracking() {
            self.leave_effect(Effect::Changed { key: key.into(), by_itself: false });
        }
        if self.wanted.blocked() {
            self.note_ready(self.database, key);
        }
    }
}

/// Noting changes of databases.
impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Notes that databases are emptied or exchanged. The caller calls it before that.
    pub(in crate::keyspace) fn follow_replacement(&mut self, replacement: impl Fn(usize) -> Replacement) {
        if self.wanted.tracking() {
            self.leave_effect(Effect::Flushed);
        }
        if self.wanted.surveyed() {
            self.keyspace().followers().surveys.mark_all();
        }
        if !self.wanted.watched() {
            return;
        }
        self.lose_replaced(&replacement);
        let now_ms = self.now_ms();
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.side_tables().is_some()) {
            let mut watched = std::mem::take(&mut shard.side_tables_mut().watched);
            let presence = |database: usize, hash: u64, key: &[u8]| {
                let found = shard.table(database).and_then(|table| table.find(KeyLocation::of(hash), key));
                match found.map(|entry| entry.ends_at_ms()) {
                    None => Presence::Absent,
                    Some(Some(ends_at_ms)) if ends_at_ms <= now_ms => Presence::Expired,
                    Some(_) => Presence::There,
                }
            };
            watched.mark_replaced(|database, hash, key| {
                let after = match replacement(database) {
                    Replacement::None => return None,
                    Replacement::Nothing => Presence::Absent,
                    Replacement::Database(other) => presence(other, hash, key),
                };
                Some((presence(database, hash, key), after))
            });
            shard.side_tables_mut().watched = watched;
        }
    }
}
