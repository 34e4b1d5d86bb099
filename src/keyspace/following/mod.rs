//! Who wants to know of changes, and how they come to know.
//!
//! Nearly always no client wants to know anything, and a write costs one look at a number ([`interest`]).
//! Otherwise the transaction that changes a key notes it: marks for clients that watch keys ([`watching`]),
//! events, news for clients that keep copies and of locks ([`lens`]), and what the log needs ([`changes`]).
//! They leave with its [`aftermath`]; the log's records ([`records`]) wait in the [`journal`] for the log's
//! writer.

pub(in crate::keyspace) mod aftermath;
pub(in crate::keyspace) mod changes;
pub(in crate::keyspace) mod interest;
pub(in crate::keyspace) mod journal;
pub(in crate::keyspace) mod lens;
pub(in crate::keyspace) mod losses;
pub(in crate::keyspace) mod news;
pub mod records;
pub(in crate::keyspace) mod watching;

use std::ops::DerefMut;

use crate::events::EventClass;
use crate::keyspace::Spot;
use crate::keyspace::following::changes::Extent;
use crate::keyspace::following::interest::Interest;
use crate::keyspace::following::journal::Journal;
use crate::keyspace::following::news::Effect;
use crate::keyspace::following::watching::Presence;
use crate::keyspace::transaction::{Everything, Transaction};

/// Who wants to know of the changes in a keyspace.
#[derive(Debug, Default)]
pub struct Followers {
    /// What clients want to know.
    pub interest: Interest,
    /// What the log gets.
    pub journal: Journal,
}

/// What replaces a database.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) enum Replacement {
    /// Nothing changes.
    None,
    /// The database is emptied.
    Nothing,
    /// The keys of another one.
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
        self.tell(Effect::Event { name, database, key: key.into() });
    }

    /// Notes a write. Called before it, since the key may be absent: an expired entry is freed first.
    #[cold]
    pub(in crate::keyspace) fn follow_put(&mut self, key: &[u8]) {
        self.free_expired(key);
        self.follow_change(key, Extent::Whole);
        if self.entry(key).is_none() {
            self.event(EventClass::NEW, "new", key);
        }
    }

    /// Notes that a key changes to such an extent, or is deleted.
    #[inline(always)]
    pub(in crate::keyspace) fn follow_change(&self, key: &[u8], extent: Extent) {
        if self.wanted.changes() {
            self.tell_of_change(key, extent);
        }
    }

    #[cold]
    fn tell_of_change(&self, key: &[u8], extent: Extent) {
        let (spot, shard) = self.shard(key);
        if let Some(rarities) = shard.rarities() {
            rarities.watched.mark(spot.hash, self.database, key, true);
        }
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(self.database, key, extent));
        }
        if self.wanted.tracking() {
            self.tell(Effect::Changed { key: key.into(), by_itself: false });
        }
    }
}

/// Noting changes of databases.
impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Notes that databases are emptied, or exchanged. Called before that.
    pub(in crate::keyspace) fn follow_replacement(&mut self, replacement: impl Fn(usize) -> Replacement) {
        if self.wanted.tracking() {
            self.tell(Effect::Flushed);
        }
        if !self.wanted.watched() {
            return;
        }
        let now_ms = self.now_ms();
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.rarities().is_some()) {
            let mut watched = std::mem::take(&mut shard.rarities_mut().watched);
            let presence = |database: usize, hash: u64, key: &[u8]| {
                let found = shard.table(database).and_then(|table| table.find(Spot::of(hash), key));
                match found.map(|entry| entry.expires_at_ms()) {
                    None => Presence::Absent,
                    Some(Some(expires_at_ms)) if expires_at_ms <= now_ms => Presence::Expired,
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
            shard.rarities_mut().watched = watched;
        }
    }
}
