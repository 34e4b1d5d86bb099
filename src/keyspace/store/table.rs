//! The keys of one database in one shard.
//!
//! A table knows how many of its entries have an expiry, which of them expire next, and the moment from which
//! on a sweep has something to do. It does not know the time, nor which keys belong to it: the transaction
//! does.

use crate::keyspace::KeyLocation;
use crate::keyspace::store::buckets::Buckets;
use crate::keyspace::store::copies::{Copies, Position, Preserved, PreservedBytes};
use crate::keyspace::store::due::{self, DueSoon};
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::token::Token;
use crate::values::LongText;

/// How large a database is.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseSize {
    /// Keys, including expired keys that are not freed yet.
    pub keys: usize,
    /// Keys with an expiry.
    pub expiring: usize,
    /// The sum of their expiries, in milliseconds since 1970.
    pub expiries_sum_ms: u128,
    /// Hashes of which some fields have an expiry.
    pub field_expiring: usize,
    /// Bytes of the tables that point to the entries.
    pub table_bytes: usize,
}

impl DatabaseSize {
    /// Adds another part of a database.
    pub(in crate::keyspace) fn add(&mut self, part: DatabaseSize) {
        self.keys += part.keys;
        self.expiring += part.expiring;
        self.expiries_sum_ms += part.expiries_sum_ms;
        self.field_expiring += part.field_expiring;
        self.table_bytes += part.table_bytes;
    }

    /// For how long the keys with an expiry stay on average, in milliseconds.
    pub fn mean_ttl_ms(&self, now_ms: u64) -> u64 {
        let mean_ms = self.expiries_sum_ms.checked_div(self.expiring as u128).unwrap_or(0);
        u64::try_from(mean_ms).unwrap_or(u64::MAX).saturating_sub(now_ms)
    }
}

/// An expiry as a part of a sum. What expires after the year 2109 counts as if it did then, so that the sum
/// of four million expiries fits into 64 bits.
#[inline]
fn term(expires_at_ms: Option<u64>) -> u64 {
    expires_at_ms.map_or(0, |at_ms| at_ms.min(1 << 42))
}

/// The keys of one database in one shard.
#[derive(Debug)]
#[repr(C)]
pub(in crate::keyspace) struct Table {
    entries: Buckets,
    /// Entries of this epoch are already in the running snapshot, or newer. Without a snapshot all entries
    /// have it. An entry of the other epoch is preserved before it changes.
    epoch: bool,
    /// Incremented whenever entries may change their places. While it stays the same, so do the places.
    pub(super) layout: u32,
    /// Entries with an expiry. 32 bits are enough: the table has one shard's part of a database.
    expiring: u32,
    /// Hashes of which some fields have an expiry.
    field_expiring: u32,
    /// The sum of the [terms](term) of the expiries of entries.
    expiries_sum_ms: u64,
    /// A sweep before this moment has nothing to do.
    sweep_at_ms: u64,
    /// The next entries to expire. Without it, a sweep looks at the whole table.
    due_soon: Option<Box<DueSoon>>,
    /// The running snapshot's claim, if it waits for entries of this table.
    awaited: Option<Box<Awaited>>,
}

/// A snapshot waits for the entries of the other epoch, and for preserved ones.
#[derive(Debug)]
struct Awaited {
    /// The number that the database had when the snapshot began.
    database: u16,
    /// Entries that have left the table or changed since the snapshot began.
    preserved: Preserved,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            entries: Buckets::default(),
            epoch: false,
            layout: 0,
            expiring: 0,
            field_expiring: 0,
            expiries_sum_ms: 0,
            sweep_at_ms: u64::MAX,
            due_soon: None,
            awaited: None,
        }
    }
}

impl Table {
    /// If a sweep of the whole table frees less than one in this many of the entries with an expiry, it was
    /// too early…
    const WORTHWHILE_SHARE: usize = 10;
    /// … and the next one comes this much later, unless a sweep of all tables comes first. Redis, too,
    /// tolerates one expired key in ten.
    pub(super) const REST_MS: u64 = 1000;

    #[inline(always)]
    pub(in crate::keyspace) fn find(&self, spot: KeyLocation, key: &[u8]) -> Option<&Entry> {
        match self.entries.get(spot.place) {
            Some(entry) if entry.has_key(key) => Some(entry),
            _ => self.search(spot.hash, key),
        }
    }

    #[inline(never)]
    fn search(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        self.entries.get(self.entries.find(hash, |entry| entry.has_key(key))?)
    }

    /// The entry with this hash for which `is_meant` returns true.
    pub(in crate::keyspace) fn find_by(
        &self,
        hash: u64,
        is_meant: impl FnMut(&Entry) -> bool,
    ) -> Option<&Entry> {
        self.entries.get(self.entries.find(hash, is_meant)?)
    }

    /// The place of the entry of a key.
    #[inline(always)]
    fn place(&self, spot: KeyLocation, key: &[u8]) -> Option<usize> {
        match self.entries.get(spot.place) {
            Some(entry) if entry.has_key(key) => Some(spot.place),
            _ => self.entries.find(spot.hash, |entry| entry.has_key(key)),
        }
    }

    /// Asks the processor to fetch the entry that a key of this hash probably has, and does not wait for it.
    /// Returns the place of the entry.
    #[inline]
    pub(in crate::keyspace) fn touch(&self, hash: u64) -> Option<usize> {
        // The first entry with the same eight bits of the hash. It is rarely the entry of another key.
        self.entries.find(hash, |entry| {
            entry.prefetch();
            true
        })
    }

    /// Overwrites a key in place, if its entry is at its spot and is [ordinary](Entry::overwrite). Returns
    /// whether it did. If it did not, the caller must [put](Self::put) the key.
    #[inline(always)]
    pub(in crate::keyspace) fn overwrite(
        &mut self,
        spot: KeyLocation,
        key: &[u8],
        value: &[u8],
        stamp: u32,
    ) -> bool {
        let epoch = self.epoch;
        self.entries.get_mut(spot.place).is_some_and(|entry| entry.overwrite(key, value, stamp, epoch))
    }

    /// Writes a key, whether it is there or not. Returns the facts about the old entry. A lock stays a lock.
    #[inline]
    pub(in crate::keyspace) fn put(
        &mut self,
        spot: KeyLocation,
        new: NewEntry<'_>,
        rehash: impl Fn(&Entry) -> u64,
    ) -> Replaced {
        let place = self.place(spot, new.key);
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            self.insert(spot, new.into_entry(), rehash);
            return Replaced {
                is_new: true,
                expires_at_ms: None,
                lock: None,
                was_collection: false,
                entry: None,
            };
        };
        let (expires_at_ms, new_expires_at_ms) = (entry.expires_at_ms(), new.expires_at_ms);
        let was_collection = entry.is_collection();
        let lock = entry.is_lock().then(|| match entry.text() {
            Ok(text) => LockBefore::Text(Token::of(text)),
            Err(_) => LockBefore::Hash,
        });
        let mut old = None;
        if entry.epoch() == self.epoch && entry.replace_in_place(new.value, new.expires_at_ms) {
            entry.set_stamp(new.stamp);
        } else {
            let replaced = std::mem::replace(entry, new.into_entry());
            self.field_expiring -= u32::from(replaced.has_field_expiries());
            if let Some(LockBefore::Text(_)) = lock {
                entry.set_lock(true);
            }
            entry.set_epoch(self.epoch);
            old = preserve(&mut self.awaited, replaced, self.epoch);
        }
        self.count_expiry(spot.hash, expires_at_ms, new_expires_at_ms);
        Replaced { is_new: false, expires_at_ms, lock, was_collection, entry: old }
    }

    /// Writes a key that is absent.
    pub(in crate::keyspace) fn insert(
        &mut self,
        spot: KeyLocation,
        mut entry: Entry,
        rehash: impl Fn(&Entry) -> u64,
    ) {
        entry.set_epoch(self.epoch);
        if self.entries.len() == self.entries.capacity() {
            self.layout = self.layout.wrapping_add(1);
        }
        if entry.may_expire() {
            self.count_expiry(spot.hash, None, entry.expires_at_ms());
            if entry.has_field_expiries() {
                self.count_field_expiries(spot.hash, false, entry.next_field_expiry_ms());
            }
        }
        self.entries.insert(spot.hash, entry, rehash);
    }

    /// The entry at the place where a key was touched: probably that of the key.
    #[inline]
    pub(in crate::keyspace) fn touched(&self, spot: KeyLocation) -> Option<&Entry> {
        self.entries.get(spot.place)
    }

    /// Whether a snapshot waits for an entry of this table.
    pub(in crate::keyspace) fn awaits(&self, entry: &Entry) -> bool {
        entry.epoch() != self.epoch
    }

    /// The entry of a key. The caller may change only its value.
    pub(in crate::keyspace) fn entry_mut(&mut self, spot: KeyLocation, key: &[u8]) -> Option<&mut Entry> {
        let place = self.place(spot, key)?;
        let entry = self.entries.get_mut(place)?;
        if entry.epoch() != self.epoch {
            preserve_copy(&mut self.awaited, entry, self.epoch);
        }
        Some(entry)
    }

    /// Replaces the expiry of a key if the key is there. Returns whether the key is a lock.
    pub(in crate::keyspace) fn set_expiry(
        &mut self,
        spot: KeyLocation,
        key: &[u8],
        expires_at_ms: Option<u64>,
    ) -> bool {
        let Some(entry) = self.entry_mut(spot, key) else { return false };
        let (before_ms, is_lock) = (entry.expires_at_ms(), entry.is_lock());
        entry.set_expiry(expires_at_ms);
        self.count_expiry(spot.hash, before_ms, expires_at_ms);
        is_lock
    }

    /// Removes a key. Returns the facts about its entry, if it was there.
    pub(in crate::keyspace) fn remove(&mut self, spot: KeyLocation, key: &[u8]) -> Option<Removed> {
        let place = self.place(spot, key)?;
        let entry = self.entries.remove(spot.hash, place)?;
        let (expires_at_ms, is_lock) = (entry.expires_at_ms(), entry.is_lock());
        self.count_expiry(spot.hash, expires_at_ms, None);
        let fields = entry.expiring().map(|fields| (fields.latest_ms(), fields.len()));
        if fields.is_some() {
            self.count_field_expiries(spot.hash, true, None);
        }
        let entry = preserve(&mut self.awaited, entry, self.epoch);
        if self.is_mostly_empty() && self.entries.capacity() > Buckets::CAPACITY_MIN {
            // The next sweep gives the slots back.
            self.sweep_at_ms = 0;
        }
        Some(Removed { expires_at_ms, fields, is_lock, entry })
    }

    /// Whether so few slots are in use that it pays to lay the entries out in fewer.
    fn is_mostly_empty(&self) -> bool {
        self.entries.len() * 8 < self.entries.capacity()
    }

    /// Gives back the slots of a table that is mostly empty.
    pub(in crate::keyspace) fn give_back_slots(&mut self, hash: impl Fn(&Entry) -> u64) {
        if self.is_mostly_empty() {
            self.layout = self.layout.wrapping_add(1);
            self.entries.shrink_to(self.entries.len() * 2, hash);
        }
    }

    /// Whether a sweep is worth its time.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.sweep_at_ms <= now_ms
    }

    /// When a sweep is worth its time; the largest number if nothing expires.
    pub(super) fn sweep_at_ms(&self) -> u64 {
        self.sweep_at_ms
    }

    /// Whether a snapshot waits for entries.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Makes a snapshot wait for all current entries.
    pub(super) fn begin_snapshot(&mut self, database: usize, preserved_bytes: &PreservedBytes) {
        debug_assert!(self.awaited.is_none(), "there is one snapshot at a time");
        if !self.entries.is_empty()
            && let Ok(database) = u16::try_from(database)
        {
            self.epoch = !self.epoch;
            let preserved = Preserved::new(preserved_bytes);
            self.awaited = Some(Box::new(Awaited { database, preserved }));
        }
    }

    /// Gives a snapshot copies of the entries that it waits for, from `place` on, until the slice is full.
    /// Returns whether there are no more.
    ///
    /// Whatever happens between two calls, the snapshot gets each entry once: an entry that it has got has
    /// the table's epoch. An expired entry may have been freed before. That is no loss, since an expired key
    /// is not loaded.
    pub(super) fn give_awaited(&mut self, place: &mut Position, slice: &mut Copies) -> bool {
        let Some(Awaited { database, .. }) = self.awaited.as_deref() else { return true };
        let database = *database;
        let start = place.enter(database, self.layout);
        for at in start..self.entries.places() {
            if slice.is_full() {
                place.number = at;
                return false;
            }
            if let Some(entry) = self.entries.get_mut(at)
                && entry.epoch() != self.epoch
            {
                slice.add(database, entry);
                entry.set_epoch(self.epoch);
            }
        }
        if let Some(awaited) = self.awaited.take() {
            slice.add_preserved(database, awaited.preserved);
        }
        true
    }

    /// The entries that a snapshot still waits for, with the number of their database. The table belongs to
    /// no database any more.
    pub(in crate::keyspace) fn awaited(&self) -> impl Iterator<Item = (u16, &Entry)> {
        let waiting = self.entries.iter().filter(|entry| entry.epoch() != self.epoch);
        self.awaited.iter().flat_map(move |awaited| {
            waiting.clone().chain(awaited.preserved.entries()).map(|entry| (awaited.database, entry))
        })
    }

    /// All entries, in no particular order.
    pub(in crate::keyspace) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many entries there are.
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many places for entries there are.
    pub(in crate::keyspace) fn places(&self) -> usize {
        self.entries.places()
    }

    /// The entry at a place.
    pub(in crate::keyspace) fn at(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place)
    }

    /// The number of the layout. While it stays the same, so do the places of the entries.
    pub(in crate::keyspace) fn layout(&self) -> u32 {
        self.layout
    }

    pub(in crate::keyspace) fn size(&self) -> DatabaseSize {
        DatabaseSize {
            keys: self.entries.len(),
            expiring: self.expiring as usize,
            field_expiring: self.field_expiring as usize,
            expiries_sum_ms: u128::from(self.expiries_sum_ms),
            table_bytes: self.entries.allocation_size(),
        }
    }

    /// Whether a key or a field may have expired at any time.
    pub(super) fn may_expire(&self) -> bool {
        self.expiries() > 0
    }

    /// Removes every expired entry, and passes it to `gone`. Passes the hashes of which some fields have
    /// expired to `due`: those fields are not removed here, since they may be many. Returns how many entries
    /// it looked at. If a look at the whole table was too early, the next one waits for at least `rest_ms`.
    ///
    /// A look at the whole table is under its lock. With 1,024 shards and 12 ns an entry that is 0.1 ms for a
    /// database of 8 million keys.
    pub(super) fn sweep(
        &mut self,
        now_ms: u64,
        rest_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut gone: impl FnMut(Entry),
        mut due: impl FnMut(&Entry),
    ) -> usize {
        let (mut looked_at, mut due_soon) = (0, self.due_soon.take());
        let is_whole_due = match &mut due_soon {
            Some(due_soon) => {
                for hash_due in due_soon.take_due(now_ms) {
                    looked_at += 1;
                    self.sweep_one(hash_due, now_ms, &hash, &mut gone, &mut due);
                }
                self.sweep_at_ms = due_soon.next_ms();
                due_soon.has_ended(now_ms) && (rest_ms == 0 || !due_soon.rests(now_ms))
            }
            None => true,
        };
        if is_whole_due {
            let expiries = self.expiries();
            looked_at += self.len();
            let mut anew = DueSoon::default();
            let found = self.sweep_whole(now_ms, &hash, &mut gone, &mut due, &mut anew);
            let rests_until_ms = if found * Self::WORTHWHILE_SHARE < expiries { now_ms + rest_ms } else { 0 };
            if self.expiries() > due::FEW {
                anew.rest_until(rests_until_ms);
                self.sweep_at_ms = anew.next_ms();
                due_soon = Some(Box::new(anew));
            } else {
                self.sweep_at_ms = anew.first_ms().max(rests_until_ms);
                due_soon = None;
            }
        }
        self.due_soon = due_soon.filter(|_| self.may_expire());
        self.give_back_slots(hash);
        looked_at
    }

    /// Sweeps the entry with this hash, if it has expired. It may have gone, or got another expiry.
    fn sweep_one(
        &mut self,
        hash: u64,
        now_ms: u64,
        hash_of: impl Fn(&Entry) -> u64,
        mut gone: impl FnMut(Entry),
        due: impl FnMut(&Entry),
    ) {
        let is_due = |entry: &Entry| entry.next_expiry_ms() <= now_ms && hash_of(entry) == hash;
        let Some(place) = self.entries.find(hash, is_due) else { return };
        let Some(entry) = self.entries.get(place) else { return };
        if entry.ends_at_ms().is_some_and(|ends_at_ms| ends_at_ms <= now_ms) {
            let Some(entry) = self.entries.remove(hash, place) else { return };
            self.expiring -= u32::from(entry.expires_at_ms().is_some());
            self.expiries_sum_ms = self.expiries_sum_ms.wrapping_sub(term(entry.expires_at_ms()));
            self.field_expiring -= u32::from(entry.has_field_expiries());
            gone(entry);
        } else {
            // The caller that removes its fields notes when the next field expires.
            Some(entry).into_iter().for_each(due);
        }
    }

    /// Sweeps all entries, and notes when the others expire. Returns how many entries it removed or passed to
    /// `due`.
    fn sweep_whole(
        &mut self,
        now_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut gone: impl FnMut(Entry),
        mut due: impl FnMut(&Entry),
        due_soon: &mut DueSoon,
    ) -> usize {
        let (before, expiries) = (self.len(), self.expiries());
        let mut hashes_due = 0;
        let stays = |entry: &Entry| {
            if !entry.may_expire() {
                return true;
            }
            if entry.ends_at_ms().is_some_and(|ends_at_ms| ends_at_ms <= now_ms) {
                return false;
            }
            if let Some(at_ms) = entry.expires_at_ms() {
                due_soon.note(at_ms, hash(entry), expiries);
            }
            match entry.next_field_expiry_ms() {
                // The caller that removes its fields notes when the next field expires.
                Some(at_ms) if at_ms <= now_ms => {
                    hashes_due += 1;
                    due(entry);
                }
                Some(at_ms) => due_soon.note(at_ms, hash(entry), expiries),
                None => {}
            }
            true
        };
        let (mut keys, mut hashes, mut sum_ms) = (0, 0, 0_u64);
        self.entries.retain(&hash, stays, |entry| {
            keys += u32::from(entry.expires_at_ms().is_some());
            sum_ms = sum_ms.wrapping_add(term(entry.expires_at_ms()));
            hashes += u32::from(entry.has_field_expiries());
            gone(entry);
        });
        self.expiring -= keys;
        self.expiries_sum_ms = self.expiries_sum_ms.wrapping_sub(sum_ms);
        self.field_expiring -= hashes;
        before - self.len() + hashes_due
    }

    /// How many keys have an expiry, and how many hashes have fields with one.
    fn expiries(&self) -> usize {
        self.expiring as usize + self.field_expiring as usize
    }

    /// Updates the sum when a hash gets its first field with an expiry, or loses the last one. `next_ms` is
    /// the first moment at which one of its fields expires, if it has such fields now.
    pub(in crate::keyspace) fn count_field_expiries(
        &mut self,
        hash: u64,
        had_some: bool,
        next_ms: Option<u64>,
    ) {
        self.field_expiring = self.field_expiring + u32::from(next_ms.is_some()) - u32::from(had_some);
        if let Some(next_ms) = next_ms {
            self.note_expiry(hash, next_ms);
        }
    }

    /// Updates the sums when the expiry of one entry changes.
    #[inline]
    fn count_expiry(&mut self, hash: u64, before_ms: Option<u64>, after_ms: Option<u64>) {
        self.expiring = self.expiring + u32::from(after_ms.is_some()) - u32::from(before_ms.is_some());
        self.expiries_sum_ms =
            self.expiries_sum_ms.wrapping_add(term(after_ms)).wrapping_sub(term(before_ms));
        if let Some(after_ms) = after_ms {
            self.note_expiry(hash, after_ms);
        }
    }

    #[inline]
    fn note_expiry(&mut self, hash: u64, at_ms: u64) {
        let expiries = self.expiries();
        if let Some(due_soon) = &mut self.due_soon {
            due_soon.note(at_ms, hash, expiries);
        }
        self.sweep_at_ms = self.sweep_at_ms.min(at_ms);
    }
}

/// Moves an entry that has left its table to the snapshot that waits for it. If none waits, returns the
/// entry.
#[inline]
fn preserve(awaited: &mut Option<Box<Awaited>>, entry: Entry, epoch: bool) -> Option<Entry> {
    match awaited {
        Some(awaited) if entry.epoch() != epoch => {
            awaited.preserved.push(entry);
            None
        }
        _ => Some(entry),
    }
}

/// Copies an entry for the snapshot that waits for it. Then the entry may change.
#[cold]
fn preserve_copy(awaited: &mut Option<Box<Awaited>>, entry: &mut Entry, epoch: bool) {
    if let Some(awaited) = awaited {
        awaited.preserved.copy(entry, epoch);
    }
}

/// The facts about a key that was overwritten.
pub(in crate::keyspace) struct Replaced {
    /// Whether there was none.
    pub(in crate::keyspace) is_new: bool,
    /// When it would have expired.
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    /// What it was as a lock, if it was one.
    pub(in crate::keyspace) lock: Option<LockBefore>,
    /// Whether it was a collection.
    pub(in crate::keyspace) was_collection: bool,
    /// Its entry, if the caller must free it.
    pub(in crate::keyspace) entry: Option<Entry>,
}

/// What a lock was before it was replaced.
pub(in crate::keyspace) enum LockBefore {
    /// A string, with the digest of its value.
    Text(Token),
    /// A hash that a script made together with its expiry.
    Hash,
}

/// The facts about a removed key.
pub(in crate::keyspace) struct Removed {
    /// When it would have expired.
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    /// When the last of its fields would have expired, and how many there were, if it was a hash of which
    /// some fields expire.
    pub(in crate::keyspace) fields: Option<(u64, usize)>,
    /// Whether it was a lock.
    pub(in crate::keyspace) is_lock: bool,
    /// Its entry, unless a snapshot waits for it.
    pub(in crate::keyspace) entry: Option<Entry>,
}

/// A key to write, with a string.
pub(in crate::keyspace) struct NewEntry<'a> {
    pub(in crate::keyspace) key: &'a [u8],
    pub(in crate::keyspace) value: &'a [u8],
    /// The same string, if it is long: the entry keeps it.
    pub(in crate::keyspace) long: Option<LongText>,
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    pub(in crate::keyspace) stamp: u32,
}

impl NewEntry<'_> {
    #[inline]
    pub(in crate::keyspace) fn into_entry(self) -> Entry {
        let entry = match self.long {
            Some(text) => Entry::long(self.key, text, self.expires_at_ms),
            None => Entry::new(self.key, self.value, self.expires_at_ms),
        };
        entry.set_stamp(self.stamp);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A poor hash, so that keys collide.
    fn spot(key: &[u8]) -> KeyLocation {
        KeyLocation::of(key.len() as u64)
    }

    fn rehash(entry: &Entry) -> u64 {
        spot(entry.key()).hash
    }

    fn new(key: &[u8], expires_at_ms: Option<u64>) -> NewEntry<'_> {
        NewEntry { key, value: b"value", long: None, expires_at_ms, stamp: 0 }
    }

    fn table(keys: &[(&str, Option<u64>)]) -> Table {
        let mut table = Table::default();
        for (key, expires_at_ms) in keys {
            table.put(spot(key.as_bytes()), new(key.as_bytes(), *expires_at_ms), rehash);
        }
        table
    }

    #[test]
    fn sums_follow_every_change() {
        let mut table = table(&[("a", None), ("b", Some(5)), ("c", Some(9))]);
        assert_eq!((table.size().keys, table.size().expiring), (3, 2));
        table.put(spot(b"b"), new(b"b", None), rehash);
        table.set_expiry(spot(b"a"), b"a", Some(7));
        table.set_expiry(KeyLocation::of(1), b"missing", Some(7));
        assert_eq!((table.size().keys, table.size().expiring), (3, 2));
        for key in [b"a", b"b", b"c"] {
            assert!(table.remove(spot(key), key).is_some());
        }
        assert!(table.remove(spot(b"a"), b"a").is_none());
        assert_eq!((table.size().keys, table.size().expiring), (0, 0));
    }

    /// Sweeps, and returns how many entries are gone.
    fn sweep(table: &mut Table, now_ms: u64, rest_ms: u64) -> usize {
        let before = table.len();
        table.sweep(now_ms, rest_ms, rehash, |_| (), |_| ());
        before - table.len()
    }

    #[test]
    fn a_sweep_frees_expired_entries_and_plans_the_next_sweep() {
        let mut table = table(&[("a", None), ("b", Some(5)), ("c", Some(9)), ("dd", Some(5))]);
        assert_eq!(table.sweep_at_ms, 5);
        assert_eq!(sweep(&mut table, 5, Table::REST_MS), 2);
        assert_eq!((table.size().keys, table.size().expiring, table.sweep_at_ms), (2, 1, 9));
        assert_eq!(sweep(&mut table, 9, Table::REST_MS), 1);
        assert_eq!((table.size().keys, table.size().expiring, table.sweep_at_ms), (1, 0, u64::MAX));
        assert!(table.due_soon.is_none());
    }

    #[test]
    fn a_sweep_of_a_small_table_that_frees_little_delays_the_next() {
        let keys: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let mut table = Table::default();
        for (key, expires_at_ms) in keys.iter().zip(100..) {
            table.put(spot(key.as_bytes()), new(key.as_bytes(), Some(expires_at_ms)), rehash);
        }
        assert_eq!(sweep(&mut table, 100, Table::REST_MS), 1);
        assert_eq!((table.sweep_at_ms, table.due_soon.is_none()), (100 + Table::REST_MS, true));
        assert_eq!(sweep(&mut table, 101, 0), 1);
        assert_eq!(table.sweep_at_ms, 102);
    }

    #[test]
    fn entries_are_freed_in_time_and_few_others_are_looked_at() {
        const HOUR_MS: u64 = 3_600_000;
        let keys: Vec<String> = (0..2000).map(|number| format!("key:{number}")).collect();
        let expiry_of = |number: u64| number * 7919 % 2000 * HOUR_MS / 2000 + 1;
        let mut table = Table::default();
        for (key, number) in keys.iter().zip(0..) {
            table.put(spot(key.as_bytes()), new(key.as_bytes(), Some(expiry_of(number))), rehash);
        }
        let (mut looked_at, mut freed_ms) = (0, 0);
        for now_ms in (0..=HOUR_MS + 1000).step_by(100) {
            if table.is_due(now_ms) {
                looked_at += table.sweep(now_ms, Table::REST_MS, rehash, |_| (), |_| ());
                freed_ms = now_ms;
            }
            let late = table.entries().filter(|entry| entry.next_expiry_ms() + Table::REST_MS <= now_ms);
            assert_eq!(late.count(), 0, "{now_ms}, swept at {freed_ms}");
        }
        assert_eq!((table.len(), table.due_soon.is_none()), (0, true));
        assert!(looked_at < 2000 * 80, "{looked_at}");
    }

    #[test]
    fn an_expiry_that_changes_is_kept_whatever_is_remembered() {
        [30, 120, 500].into_iter().for_each(expiries_change);
    }

    fn expiries_change(count: usize) {
        let keys: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
        let mut table = Table::default();
        let mut expiries: Vec<Option<u64>> = vec![None; keys.len()];
        let mut random = 4711_u64;
        for now_ms in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (number, kind) = ((random >> 33) as usize % keys.len(), random >> 60);
            let key = keys[number].as_bytes();
            let at_ms = now_ms + 1 + (random >> 20) % (if kind < 8 { 50 } else { 5000 });
            expiries[number] = match kind {
                0 => {
                    table.remove(spot(key), key);
                    None
                }
                1 => {
                    table.put(spot(key), new(key, None), rehash);
                    None
                }
                2..6 if table.find(spot(key), key).is_some() => {
                    table.set_expiry(spot(key), key, Some(at_ms));
                    Some(at_ms)
                }
                _ => {
                    table.put(spot(key), new(key, Some(at_ms)), rehash);
                    Some(at_ms)
                }
            };
            if table.is_due(now_ms) {
                table.sweep(now_ms, 0, rehash, |_| (), |_| ());
            }
            let is_late = |at_ms: &Option<u64>| at_ms.is_some_and(|at_ms| at_ms <= now_ms);
            for (key, at_ms) in keys.iter().zip(&mut expiries).filter(|(_, at_ms)| is_late(at_ms)) {
                assert!(table.find(spot(key.as_bytes()), key.as_bytes()).is_none(), "{key} at {now_ms}");
                *at_ms = None;
            }
            let expected = expiries.iter().filter(|at_ms| at_ms.is_some()).count();
            assert_eq!(table.size().expiring, expected);
        }
    }

    #[test]
    fn a_table_that_empties_gives_its_slots_back() {
        let mut table = Table::default();
        for number in 0..10_000_u64 {
            table.put(KeyLocation::of(number), new(&number.to_ne_bytes(), Some(1)), |entry| {
                u64::from_ne_bytes(entry.key().try_into().unwrap())
            });
        }
        let before = table.entries.allocation_size();
        table.sweep(1, Table::REST_MS, rehash, |_| (), |_| ());
        assert!(table.entries.allocation_size() < before / 100);
    }
}
