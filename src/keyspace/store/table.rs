//! The keys of one database in one shard.
//!
//! A table knows how many of its entries have an expiry, and from when on a sweep for expired entries is
//! worth its time. It does not know what time it is, nor which keys belong to it: the transaction does.

use crate::keyspace::Spot;
use crate::keyspace::following::news::Token;
use crate::keyspace::snapshot::{Place, Preserved, PreservedBytes, Slice};
use crate::keyspace::store::buckets::Buckets;
use crate::keyspace::store::entry::Entry;

/// How large a database is.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatabaseSize {
    /// Keys, also those that have expired and are not yet freed.
    pub keys: usize,
    /// Of these, the ones with an expiry.
    pub expiring: usize,
    /// Bytes of the tables that point to the entries.
    pub table_bytes: usize,
}

/// The keys of one database in one shard.
#[derive(Debug)]
#[repr(C)]
pub(in crate::keyspace) struct Table {
    entries: Buckets,
    /// Entries of this epoch are in the running snapshot already, or newer; without a snapshot all are. One
    /// of the other epoch is preserved before it changes.
    epoch: bool,
    /// Goes on whenever entries may change their places; between two such moments each stays where it is.
    pub(super) layout: u32,
    /// Entries with an expiry.
    expiring: usize,
    /// A sweep before this moment would find nothing, or too little.
    sweep_at_ms: u64,
    /// What a snapshot waits for.
    awaited: Option<Box<Awaited>>,
}

/// That a snapshot waits for entries of a table: those of the other epoch, and some that are not there any
/// more.
#[derive(Debug)]
struct Awaited {
    /// The number that the database had when the snapshot began.
    database: u16,
    /// Entries that are not in the table any more, or have changed.
    preserved: Preserved,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            entries: Buckets::default(),
            epoch: false,
            layout: 0,
            expiring: 0,
            sweep_at_ms: u64::MAX,
            awaited: None,
        }
    }
}

impl Table {
    /// A sweep that frees less than one in so many of the entries with an expiry was too early…
    const WORTHWHILE_SHARE: usize = 10;
    /// … and the next one waits so long, unless somebody asks for all. Redis, too, tolerates one expired key
    /// in ten.
    pub(super) const REST_MS: u64 = 1000;

    #[inline(always)]
    pub(in crate::keyspace) fn find(&self, spot: Spot, key: &[u8]) -> Option<&Entry> {
        match self.entries.get(spot.place) {
            Some(entry) if entry.has_key(key) => Some(entry),
            _ => self.search(spot.hash, key),
        }
    }

    #[inline(never)]
    fn search(&self, hash: u64, key: &[u8]) -> Option<&Entry> {
        self.entries.get(self.entries.find(hash, |entry| entry.has_key(key))?)
    }

    /// The place of the entry of a key.
    #[inline(always)]
    fn place(&self, spot: Spot, key: &[u8]) -> Option<usize> {
        match self.entries.get(spot.place) {
            Some(entry) if entry.has_key(key) => Some(spot.place),
            _ => self.entries.find(spot.hash, |entry| entry.has_key(key)),
        }
    }

    /// Has the processor fetch the entry that a key of this hash probably has, if it is there, and goes on at
    /// once; answers its place.
    #[inline]
    pub(in crate::keyspace) fn touch(&self, hash: u64) -> Option<usize> {
        // The first with the same eight bits of the hash: rarely it is another one's.
        self.entries.find(hash, |entry| {
            entry.prefetch();
            true
        })
    }

    /// Writes a key, whether it is there or not; answers what is to be known of what was there. What was a
    /// lock stays one.
    #[inline]
    pub(in crate::keyspace) fn put(
        &mut self,
        spot: Spot,
        new: NewEntry<'_>,
        rehash: impl Fn(&Entry) -> u64,
    ) -> Replaced {
        let place = self.place(spot, new.key);
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            self.insert(spot, new.into_entry(), rehash);
            return Replaced { expires_at_ms: None, lock: None, entry: None };
        };
        let expires_at_ms = entry.expires_at_ms();
        let lock = entry.is_lock().then(|| Token::of(entry.value()));
        let mut old = None;
        if entry.epoch() == self.epoch && entry.replace_in_place(new.value, new.expires_at_ms) {
            entry.set_stamp(new.stamp);
        } else {
            let replaced = std::mem::replace(entry, new.into_entry());
            if lock.is_some() {
                entry.set_lock(true);
            }
            entry.set_epoch(self.epoch);
            old = preserve(&mut self.awaited, replaced, self.epoch);
        }
        self.count_expiry(expires_at_ms, new.expires_at_ms);
        Replaced { expires_at_ms, lock, entry: old }
    }

    /// Writes a key that is not there.
    pub(in crate::keyspace) fn insert(
        &mut self,
        spot: Spot,
        mut entry: Entry,
        rehash: impl Fn(&Entry) -> u64,
    ) {
        entry.set_epoch(self.epoch);
        if self.entries.len() == self.entries.capacity() {
            self.layout = self.layout.wrapping_add(1);
        }
        self.count_expiry(None, entry.expires_at_ms());
        self.entries.insert(spot.hash, entry, rehash);
    }

    /// An entry that is there, to be changed in its value only.
    pub(in crate::keyspace) fn entry_mut(&mut self, spot: Spot, key: &[u8]) -> Option<&mut Entry> {
        let place = self.place(spot, key)?;
        let entry = self.entries.get_mut(place)?;
        if entry.epoch() != self.epoch {
            preserve_copy(&mut self.awaited, entry, self.epoch);
        }
        Some(entry)
    }

    /// Replaces the expiry of a key that is there; answers whether it is a lock.
    pub(in crate::keyspace) fn set_expiry(
        &mut self,
        spot: Spot,
        key: &[u8],
        expires_at_ms: Option<u64>,
    ) -> bool {
        let Some(entry) = self.entry_mut(spot, key) else { return false };
        let (before_ms, is_lock) = (entry.expires_at_ms(), entry.is_lock());
        entry.set_expiry(expires_at_ms);
        self.count_expiry(before_ms, expires_at_ms);
        is_lock
    }

    /// Removes a key; returns what it was, if it was there.
    pub(in crate::keyspace) fn remove(&mut self, spot: Spot, key: &[u8]) -> Option<Removed> {
        let place = self.place(spot, key)?;
        let entry = self.entries.remove(spot.hash, place)?;
        let (expires_at_ms, is_lock) = (entry.expires_at_ms(), entry.is_lock());
        self.count_expiry(expires_at_ms, None);
        let entry = preserve(&mut self.awaited, entry, self.epoch);
        if self.is_mostly_empty() && self.entries.capacity() > Buckets::CAPACITY_MIN {
            // The next sweep gives the room back.
            self.sweep_at_ms = 0;
        }
        Some(Removed { expires_at_ms, is_lock, entry })
    }

    /// Whether so few slots are in use that it is worth while to lay out the entries anew in fewer.
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

    /// Whether a snapshot waits for entries.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// Has a snapshot wait for all entries there are.
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

    /// Gives a snapshot copies of what it waits for, from `place` on, until it has enough. Answers whether
    /// that was all.
    ///
    /// Whatever happens between two calls, each entry is given once: what was given has the table's epoch. An
    /// entry whose time has come may have been freed before: whoever loads the snapshot would not keep it.
    pub(super) fn give_awaited(&mut self, place: &mut Place, slice: &mut Slice) -> bool {
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
                slice.copy(database, entry);
                entry.set_epoch(self.epoch);
            }
        }
        if let Some(awaited) = self.awaited.take() {
            slice.add_preserved(database, awaited.preserved);
        }
        true
    }

    /// Gives all that a snapshot still waits for, for a table that is nobody's any more: the number of its
    /// database, and the entries.
    pub(in crate::keyspace) fn awaited(&self) -> impl Iterator<Item = (u16, &Entry)> {
        let waiting = self.entries.iter().filter(|entry| entry.epoch() != self.epoch);
        self.awaited.iter().flat_map(move |awaited| {
            waiting.clone().chain(awaited.preserved.entries()).map(|entry| (awaited.database, entry))
        })
    }

    /// All entries.
    pub(in crate::keyspace) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many there are.
    pub(in crate::keyspace) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of places for entries, and the entry at one of them.
    pub(in crate::keyspace) fn places(&self) -> usize {
        self.entries.places()
    }

    /// The entry at a place.
    pub(in crate::keyspace) fn at(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place)
    }

    /// Which layout the entries are in: while it stays the same, so do their places.
    pub(in crate::keyspace) fn layout(&self) -> u32 {
        self.layout
    }

    pub(in crate::keyspace) fn size(&self) -> DatabaseSize {
        DatabaseSize {
            keys: self.entries.len(),
            expiring: self.expiring,
            table_bytes: self.entries.allocation_size(),
        }
    }

    /// Removes every expired entry, and passes it to `gone`; returns how many there were. If that was too
    /// early, the next sweep waits at least for `rest_ms`.
    ///
    /// The whole table is looked at under its lock: with 1,024 shards and 12 ns an entry that is 0.1 ms for a
    /// database of 8 million keys.
    pub(super) fn sweep(
        &mut self,
        now_ms: u64,
        rest_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        gone: impl FnMut(Entry),
    ) -> usize {
        let (expiring, before, mut earliest_ms) = (self.expiring, self.len(), u64::MAX);
        let stays = |entry: &Entry| match entry.expires_at_ms() {
            Some(expires_at_ms) if expires_at_ms <= now_ms => false,
            Some(expires_at_ms) => {
                earliest_ms = earliest_ms.min(expires_at_ms);
                true
            }
            None => true,
        };
        self.entries.retain(&hash, stays, gone);
        let freed = before - self.len();
        self.expiring -= freed;
        let was_worthwhile = freed * Self::WORTHWHILE_SHARE >= expiring;
        self.sweep_at_ms = if was_worthwhile { earliest_ms } else { earliest_ms.max(now_ms + rest_ms) };
        self.give_back_slots(hash);
        freed
    }

    /// Follows the expiry of one entry from what it was to what it is.
    #[inline]
    fn count_expiry(&mut self, before_ms: Option<u64>, after_ms: Option<u64>) {
        self.expiring = self.expiring + usize::from(after_ms.is_some()) - usize::from(before_ms.is_some());
        if let Some(after_ms) = after_ms {
            self.sweep_at_ms = self.sweep_at_ms.min(after_ms);
        }
    }
}

/// Moves an entry that has left its table to the snapshot that waits for it; returns it if none does.
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

/// Gives the snapshot that waits for an entry a copy; then the entry may change.
#[cold]
fn preserve_copy(awaited: &mut Option<Box<Awaited>>, entry: &mut Entry, epoch: bool) {
    if let Some(awaited) = awaited {
        awaited.preserved.copy(entry, epoch);
    }
}

/// What a written key was before.
pub(in crate::keyspace) struct Replaced {
    /// When it was to expire.
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    /// Its value, if it was a lock.
    pub(in crate::keyspace) lock: Option<Token>,
    /// Its entry, if that is to be freed.
    pub(in crate::keyspace) entry: Option<Entry>,
}

/// What a removed key was.
pub(in crate::keyspace) struct Removed {
    /// When it was to expire.
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    /// Whether it was a lock.
    pub(in crate::keyspace) is_lock: bool,
    /// Its entry, unless a snapshot waits for it.
    pub(in crate::keyspace) entry: Option<Entry>,
}

/// What is to be written.
#[derive(Clone, Copy)]
pub(in crate::keyspace) struct NewEntry<'a> {
    pub(in crate::keyspace) key: &'a [u8],
    pub(in crate::keyspace) value: &'a [u8],
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
    pub(in crate::keyspace) stamp: u32,
}

impl NewEntry<'_> {
    #[inline]
    pub(in crate::keyspace) fn into_entry(self) -> Entry {
        let entry = Entry::new(self.key, self.value, self.expires_at_ms);
        entry.set_stamp(self.stamp);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A poor hash, so that keys collide.
    fn spot(key: &[u8]) -> Spot {
        Spot::of(key.len() as u64)
    }

    fn rehash(entry: &Entry) -> u64 {
        spot(entry.key()).hash
    }

    fn new(key: &[u8], expires_at_ms: Option<u64>) -> NewEntry<'_> {
        NewEntry { key, value: b"value", expires_at_ms, stamp: 0 }
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
        table.set_expiry(Spot::of(1), b"missing", Some(7));
        assert_eq!((table.size().keys, table.size().expiring), (3, 2));
        for key in [b"a", b"b", b"c"] {
            assert!(table.remove(spot(key), key).is_some());
        }
        assert!(table.remove(spot(b"a"), b"a").is_none());
        assert_eq!((table.size().keys, table.size().expiring), (0, 0));
    }

    #[test]
    fn a_sweep_frees_what_has_expired_and_knows_when_to_come_again() {
        let mut table = table(&[("a", None), ("b", Some(5)), ("c", Some(9)), ("dd", Some(5))]);
        assert_eq!(table.sweep_at_ms, 5);
        assert_eq!(table.sweep(5, Table::REST_MS, rehash, |_| ()), 2);
        assert_eq!((table.size().keys, table.size().expiring, table.sweep_at_ms), (2, 1, 9));
        assert_eq!(table.sweep(9, Table::REST_MS, rehash, |_| ()), 1);
        assert_eq!((table.size().keys, table.size().expiring, table.sweep_at_ms), (1, 0, u64::MAX));
    }

    #[test]
    fn a_table_of_which_little_expires_is_left_alone_for_a_while() {
        let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let mut table = Table::default();
        for (key, expires_at_ms) in keys.iter().zip(100..) {
            table.put(spot(key.as_bytes()), new(key.as_bytes(), Some(expires_at_ms)), rehash);
        }
        assert_eq!(table.sweep(100, Table::REST_MS, rehash, |_| ()), 1);
        assert_eq!(table.sweep_at_ms, 100 + Table::REST_MS);
        assert_eq!(table.sweep(101, 0, rehash, |_| ()), 1);
        assert_eq!(table.sweep_at_ms, 102);
    }

    #[test]
    fn a_table_that_empties_gives_its_slots_back() {
        let mut table = Table::default();
        for number in 0..10_000_u64 {
            table.put(Spot::of(number), new(&number.to_ne_bytes(), Some(1)), |entry| {
                u64::from_ne_bytes(entry.key().try_into().unwrap())
            });
        }
        let before = table.entries.allocation_size();
        table.sweep(1, Table::REST_MS, rehash, |_| ());
        assert!(table.entries.allocation_size() < before / 100);
    }
}
