//! Who wants to know of changes, and what they are told.
//!
//! Nearly always nobody does: then a write costs one look at a number that is read when its transaction
//! begins. Otherwise a transaction marks the clients that watch a key (WATCH) at once, under the key's lock,
//! and collects the rest as [`Effect`]s: whoever ran the command takes them and tells those concerned before
//! the locks are free, so that nobody hears of two changes of one key in the wrong order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use super::Keyspace;
use super::lens::LockNews;
use super::shard::Shard;
use super::sync::{AtomicBool, AtomicU64};
use crate::events::EventClass;

/// What somebody has to be told of.
#[derive(Debug)]
pub enum Effect {
    /// An event of a class that somebody wants.
    Event {
        /// Its name, such as `set`.
        name: &'static str,
        /// The database.
        database: usize,
        /// The key.
        key: Box<[u8]>,
    },
    /// A key is not what it was, and somebody keeps copies of keys.
    Changed {
        /// The key.
        key: Box<[u8]>,
        /// No command did it: the key had expired, or memory was short.
        by_itself: bool,
    },
    /// All keys are gone, and somebody keeps copies of keys.
    Flushed,
    /// Something happened to a lock.
    Lock(LockNews),
}

/// Whether a transaction of WATCH has been overtaken; shared by a client and the keys that it watches.
#[derive(Debug, Default)]
pub struct Mark(AtomicBool);

impl Mark {
    /// Says that a watched key is not what it was.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether one was.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What anybody wants to know: in the low half event classes, the journal and tracking, in the high half how
/// many keys are watched.
#[derive(Debug, Default)]
pub(super) struct Interest(AtomicU64);

const TRACKING: u64 = 1 << 31;
const ONE_WATCHED: u64 = 1 << 32;
const JOURNAL: u64 = 1 << 30;
const CLASSES: u64 = JOURNAL - 1;

impl Interest {
    #[inline]
    pub(super) fn load(&self) -> Wanted {
        Wanted(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set_classes(&self, classes: EventClass) {
        let change = |before: u64| Some(before & !CLASSES | u64::from(classes.bits()));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    pub(super) fn set_tracking(&self, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(TRACKING, Ordering::Relaxed),
            false => self.0.fetch_and(!TRACKING, Ordering::Relaxed),
        };
    }

    pub(super) fn set_journal(&self, is_on: bool) {
        match is_on {
            true => self.0.fetch_or(JOURNAL, Ordering::Relaxed),
            false => self.0.fetch_and(!JOURNAL, Ordering::Relaxed),
        };
    }

    pub(super) fn add_watched(&self) {
        self.0.fetch_add(ONE_WATCHED, Ordering::Relaxed);
    }

    pub(super) fn remove_watched(&self) {
        self.0.fetch_sub(ONE_WATCHED, Ordering::Relaxed);
    }
}

/// What anybody wanted to know when a transaction began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted(u64);

impl Wanted {
    /// Whether anybody wants to know anything.
    #[inline(always)]
    pub(super) fn any(self) -> bool {
        self.0 != 0
    }

    /// The same, but that changes are not logged.
    pub(super) fn without_journal(self) -> Wanted {
        Wanted(self.0 & !JOURNAL)
    }

    /// Whether a change of a key means more than itself.
    #[inline(always)]
    pub(super) fn changes(self) -> bool {
        self.0 & (TRACKING | JOURNAL | u64::from(EventClass::NEW.bits())) != 0 || self.0 >= ONE_WATCHED
    }

    pub(super) fn tracking(self) -> bool {
        self.0 & TRACKING != 0
    }

    /// Whether changes are written down.
    #[inline(always)]
    pub(super) fn journal(self) -> bool {
        self.0 & JOURNAL != 0
    }

    pub(super) fn watched(self) -> bool {
        self.0 >= ONE_WATCHED
    }

    /// Whether events of a class are published at all.
    #[inline(always)]
    pub(super) fn event(self, class: EventClass) -> bool {
        const WAYS: u64 = EventClass::AS_KEYSPACE.and(EventClass::AS_KEYEVENT).bits() as u64;
        self.0 & u64::from(class.bits()) != 0 && self.0 & WAYS != 0
    }
}

impl Keyspace {
    /// Follows a key that was freed without any command: because it had expired, or memory was short.
    pub(super) fn follow_loss(
        &self,
        shard: &Shard,
        database: usize,
        key: Box<[u8]>,
        class: EventClass,
        effects: &mut Vec<Effect>,
    ) {
        let wanted = self.interest.load();
        let has_expired = class == EventClass::EXPIRED;
        if let Some(rarities) = shard.rarities() {
            rarities.watched.mark(self.hash(&key), database, &key, !has_expired);
        }
        if wanted.journal() {
            self.journal.note_loss(database, &key);
        }
        if wanted.tracking() {
            effects.push(Effect::Changed { key: key.clone(), by_itself: true });
        }
        if wanted.event(class) {
            let name = if has_expired { "expired" } else { "evicted" };
            effects.push(Effect::Event { name, database, key });
        }
    }
}

/// The watched keys of one shard, with those who watch them.
#[derive(Debug, Default)]
pub(super) struct WatchedKeys(HashTable<WatchedKey>);

#[derive(Debug)]
struct WatchedKey {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    watchers: Vec<Watcher>,
}

/// What there is of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Nothing.
    Absent,
    /// An entry that has expired.
    Expired,
    /// An entry.
    There,
}

#[derive(Debug)]
struct Watcher {
    mark: Arc<Mark>,
    /// The key had expired when it was first watched, and still is there: that it goes is no change.
    had_expired: bool,
}

impl WatchedKeys {
    fn is(watched: &WatchedKey, database: usize, key: &[u8]) -> bool {
        watched.database == database && *watched.key == *key
    }

    /// Marks those who watch a key that changes. Where it was not there any more, because it had expired,
    /// that is news only to those who began to watch before it had.
    pub(super) fn mark(&self, hash: u64, database: usize, key: &[u8], was_there: bool) {
        if let Some(watched) = self.0.find(hash, |watched| Self::is(watched, database, key)) {
            let concerned = watched.watchers.iter().filter(|watcher| was_there || !watcher.had_expired);
            concerned.for_each(|watcher| watcher.mark.set());
        }
    }

    /// Marks those who watch a key that is replaced; `replacement` says what each key is and becomes, where
    /// its database is emptied or exchanged. A key that had expired, or has when it comes, counts as absent.
    pub(super) fn mark_replaced(
        &mut self,
        replacement: impl Fn(usize, u64, &[u8]) -> Option<(Presence, Presence)>,
    ) {
        for watched in &mut self.0 {
            let Some((before, after)) = replacement(watched.database, watched.hash, &watched.key) else {
                continue;
            };
            for watcher in &mut watched.watchers {
                match (watcher.had_expired, before, after) {
                    (_, Presence::Absent, Presence::Absent) => {}
                    (true, _, Presence::Absent) => watcher.had_expired = false,
                    (true, _, Presence::Expired) => {}
                    (false, Presence::Absent, Presence::Expired) => watcher.had_expired = true,
                    _ => watcher.mark.set(),
                }
            }
        }
    }

    /// Whether a key had expired when one of its watchers began to watch it, and still is there.
    pub(super) fn had_expired(&self, hash: u64, database: usize, key: &[u8], mark: &Arc<Mark>) -> bool {
        let watched = self.0.find(hash, |watched| Self::is(watched, database, key));
        let mut watchers = watched.into_iter().flat_map(|watched| &watched.watchers);
        watchers.any(|watcher| watcher.had_expired && Arc::ptr_eq(&watcher.mark, mark))
    }

    pub(super) fn add(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        mark: &Arc<Mark>,
        had_expired: bool,
    ) {
        let found = self.0.entry(hash, |watched| Self::is(watched, database, key), |watched| watched.hash);
        let new = || WatchedKey { hash, database, key: key.into(), watchers: Vec::new() };
        let watcher = Watcher { mark: Arc::clone(mark), had_expired };
        found.or_insert_with(new).into_mut().watchers.push(watcher);
    }

    /// Ends the watching of a key by one of those who do.
    pub(super) fn remove(&mut self, hash: u64, database: usize, key: &[u8], mark: &Arc<Mark>) {
        let Ok(mut found) = self.0.find_entry(hash, |watched| Self::is(watched, database, key)) else {
            return;
        };
        let watchers = &mut found.get_mut().watchers;
        watchers.retain(|watcher| !Arc::ptr_eq(&watcher.mark, mark));
        if watchers.is_empty() {
            found.remove();
        }
        if self.0.is_empty() {
            self.0 = HashTable::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_needs_a_way_to_be_told() {
        let interest = Interest::default();
        interest.set_classes(EventClass::STRING);
        assert!(!interest.load().event(EventClass::STRING));
        interest.set_classes(EventClass::STRING.and(EventClass::AS_KEYEVENT));
        assert!(interest.load().event(EventClass::STRING));
        assert!(!interest.load().event(EventClass::GENERIC));
        assert!(!interest.load().changes());
        interest.add_watched();
        assert!(interest.load().changes() && interest.load().event(EventClass::STRING));
        interest.remove_watched();
        assert!(!interest.load().changes());
    }
}
