//! What others are told of what a transaction does: events for those who listen, marks for those who watch,
//! changes for those who keep copies.

use super::Spot;
use super::changes::Extent;
use super::interest::{Effect, Presence};
use super::transaction::{Held, Transaction};
use crate::events::EventClass;

/// What comes in the place of a database.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replacement {
    /// Nothing changes.
    None,
    /// It is emptied.
    Nothing,
    /// The keys of another one.
    Database(usize),
}

/// Following changes, for those who want to know of them.
impl Transaction<'_> {
    /// Tells of an event, if anybody wants to know of its class. Handlers do, once what they tell of is done.
    #[inline(always)]
    pub fn event(&self, class: EventClass, name: &'static str, key: &[u8]) {
        if self.wanted.event(class) {
            self.push_event(name, self.database, key);
        }
    }

    /// The same for a key of another database.
    pub fn event_in(&self, database: usize, class: EventClass, name: &'static str, key: &[u8]) {
        if self.wanted.event(class) {
            self.push_event(name, database, key);
        }
    }

    /// Whether somebody keeps copies of keys.
    pub fn is_tracked(&self) -> bool {
        self.wanted.tracking()
    }

    #[cold]
    pub(super) fn push_event(&self, name: &'static str, database: usize, key: &[u8]) {
        self.tell(Effect::Event { name, database, key: key.into() });
    }

    /// To be called before a key is written that may be absent.
    #[cold]
    pub(super) fn follow_put(&self, key: &[u8]) {
        self.follow_change(key, Extent::Whole);
        let (spot, shard) = self.shard(key);
        match shard.table(self.database).and_then(|table| table.find(spot, key)) {
            Some(entry) if !self.has_expired(entry) => {}
            found => {
                if found.is_some() {
                    self.event(EventClass::EXPIRED, "expired", key);
                }
                self.event(EventClass::NEW, "new", key);
            }
        }
    }

    /// To be called for every key that changes, to such an extent, or is deleted.
    #[inline(always)]
    pub(super) fn follow_change(&self, key: &[u8], extent: Extent) {
        if self.wanted.changes() {
            self.tell_of_change(key, extent, true);
        }
    }

    /// To be called for every key that was freed because it had expired.
    #[cold]
    pub(super) fn follow_expiry(&self, key: &[u8]) {
        self.tell_of_change(key, Extent::Whole, false);
        self.event(EventClass::EXPIRED, "expired", key);
    }

    #[cold]
    fn tell_of_change(&self, key: &[u8], extent: Extent, was_there: bool) {
        let (spot, shard) = self.shard(key);
        if let Some(rarities) = shard.rarities() {
            rarities.watched.mark(spot.hash, self.database, key, was_there);
        }
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(self.database, key, extent));
        }
        if self.wanted.tracking() {
            self.tell(Effect::Changed { key: key.into(), by_itself: !was_there });
        }
    }

    /// To be called before databases are emptied, or exchanged for others.
    pub(super) fn follow_replacement(&mut self, replacement: impl Fn(usize) -> Replacement) {
        if self.wanted.tracking() {
            self.tell(Effect::Flushed);
        }
        if !self.wanted.watched() {
            return;
        }
        let now_ms = self.now_ms();
        let Held::Many(shards) = &mut self.held else { return };
        for (_, shard) in shards.iter_mut().filter(|(_, shard)| shard.rarities().is_some()) {
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
