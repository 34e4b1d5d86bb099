//! The tables of one shard: one for each database that was ever written to.
//!
//! A table knows how many of its entries have an expiry, and from when on a sweep for expired ones is worth
//! its time. It does not know what time it is, nor which keys are its own: the transaction
//! does.

use std::cell::Cell;
use std::ops::Deref;

use super::Spot;
use super::buckets::Buckets;
use super::entry::Entry;
use super::interest::WatchedKeys;
use super::lens::{GoneLocks, Token};
use super::snapshot::{Place, Preserved, PreservedBytes, Slice};
use super::sync::Mutex;

/// A shard and its lock, in cache lines of their own. What a command on a key of the first database needs of
/// them is in the first line, so that it takes one look at memory.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct LockedShard(Mutex<Shard>);

impl Deref for LockedShard {
    type Target = Mutex<Shard>;

    #[inline(always)]
    fn deref(&self) -> &Mutex<Shard> {
        &self.0
    }
}

/// What is behind one lock. What happens is counted here, where counting is free.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Shard {
    rarities: Option<Box<Rarities>>,
    /// Reads that found a key.
    pub(super) hits: Cell<u64>,
    /// How often a key was written or deleted. Redis: `dirty`.
    pub(super) changes: u64,
    /// That of the first database.
    first: Table,
    /// Those of the others, in their order; fewer than there are until the last one is written to.
    others: Box<[Table]>,
    /// Reads that found none.
    pub(super) misses: Cell<u64>,
    /// Locks that were taken and not followed.
    pub(super) unfollowed: u64,
}

/// What a shard has only if something happened in it that rarely does.
#[derive(Debug, Default)]
pub(super) struct Rarities {
    /// Tables that are in no database any more, but a snapshot waits for them.
    awaited: Vec<Table>,
    pub(super) watched: WatchedKeys,
    pub(super) gone_locks: GoneLocks,
}

/// What happened in all shards since the start, or since CONFIG RESETSTAT.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyspaceCounters {
    /// Keys that a reading command found.
    pub hits: u64,
    /// Keys that a reading command did not find.
    pub misses: u64,
    /// Keys that were freed because their time had come.
    pub expired: u64,
    /// Keys that were freed because memory was short.
    pub evicted: u64,
}

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

impl Shard {
    #[inline(always)]
    pub(super) fn table(&self, database: usize) -> Option<&Table> {
        if database == 0 { Some(&self.first) } else { self.others.get(database - 1) }
    }

    #[inline(always)]
    pub(super) fn table_mut(&mut self, database: usize) -> &mut Table {
        if database == 0 { &mut self.first } else { self.other_mut(database) }
    }

    #[inline(never)]
    fn other_mut(&mut self, database: usize) -> &mut Table {
        if database > self.others.len() {
            let mut others = std::mem::take(&mut self.others).into_vec();
            others.resize_with(database, Table::default);
            self.others = others.into_boxed_slice();
        }
        &mut self.others[database - 1]
    }

    /// What rarely happens, if it has.
    #[inline(always)]
    pub(super) fn rarities(&self) -> Option<&Rarities> {
        self.rarities.as_deref()
    }

    /// The same, to note it.
    pub(super) fn rarities_mut(&mut self) -> &mut Rarities {
        self.rarities.get_or_insert_default()
    }

    /// Sets all counters to zero.
    pub(super) fn reset_counters(&mut self) {
        (self.hits, self.misses, self.unfollowed) = Default::default();
    }

    /// How many databases have a table: those up to the last one that was ever written to.
    pub(super) fn databases(&self) -> usize {
        1 + self.others.len()
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Empties a database; the caller drops what was in it, once no lock is held.
    pub(super) fn take_table(&mut self, database: usize) -> Option<Table> {
        let table = std::mem::take(all(&mut self.first, &mut self.others).nth(database)?);
        self.changes += table.len() as u64;
        if table.awaited.is_some() {
            self.rarities_mut().awaited.push(table);
            return None;
        }
        Some(table)
    }

    /// Has a snapshot wait for all entries there are.
    pub(super) fn begin_snapshot(&mut self, preserved_bytes: &PreservedBytes) {
        for (database, table) in all(&mut self.first, &mut self.others).enumerate() {
            table.begin_snapshot(database, preserved_bytes);
        }
    }

    /// Gives a snapshot what it waits for, from `place` on, until it has enough of it. Answers whether that
    /// was all.
    pub(super) fn give_awaited(&mut self, place: &mut Place, slice: &mut Slice) -> bool {
        if let Some(rarities) = &mut self.rarities {
            slice.add_tables(rarities.awaited.drain(..));
        }
        all(&mut self.first, &mut self.others).all(|table| table.give_awaited(place, slice))
    }

    /// Exchanges two databases.
    pub(super) fn swap_tables(&mut self, one: usize, other: usize) {
        if one != other {
            let table = std::mem::take(self.table_mut(one));
            let table = std::mem::replace(self.table_mut(other), table);
            *self.table_mut(one) = table;
        }
    }

    /// Whether a sweep is worth its time.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.tables().any(|table| table.sweep_at_ms <= now_ms)
    }

    /// Frees the expired entries of every table that is due, and tells of each with the number of its
    /// database. Answers how many it looked at.
    pub(super) fn sweep(
        &mut self,
        now_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        freed: impl FnMut(usize, &Entry),
    ) -> usize {
        self.sweep_where(|table| table.sweep_at_ms <= now_ms, now_ms, Table::REST_MS, hash, freed)
    }

    /// The same for every table that may have any, however few that would be.
    pub(super) fn sweep_all(
        &mut self,
        now_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        freed: impl FnMut(usize, &Entry),
    ) -> usize {
        self.sweep_where(|table| table.expiring > 0, now_ms, 0, hash, freed)
    }

    fn sweep_where(
        &mut self,
        is_meant: impl Fn(&Table) -> bool,
        now_ms: u64,
        rest_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut freed: impl FnMut(usize, &Entry),
    ) -> usize {
        let mut looked_at = 0;
        for (database, table) in all(&mut self.first, &mut self.others).enumerate() {
            if is_meant(table) {
                looked_at += table.entries.len();
                let rarities = &mut self.rarities;
                table.sweep(now_ms, rest_ms, &hash, |entry| {
                    if entry.is_lock() {
                        rarities.get_or_insert_default().gone_locks.add(hash(entry));
                    }
                    freed(database, entry);
                });
            }
        }
        looked_at
    }
}

/// All tables of a shard.
fn all<'a>(first: &'a mut Table, others: &'a mut [Table]) -> impl Iterator<Item = &'a mut Table> {
    std::iter::once(first).chain(others)
}

/// The keys of one database in one shard.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Table {
    entries: Buckets,
    /// Entries of this epoch are in the running snapshot already, or newer; without a snapshot all are. One
    /// of the other epoch is preserved before it changes.
    epoch: bool,
    /// Goes on whenever entries may change their places; between two such moments each stays where it is.
    layout: u32,
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
    const REST_MS: u64 = 1000;

    #[inline(always)]
    pub(super) fn find(&self, spot: Spot, key: &[u8]) -> Option<&Entry> {
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
    pub(super) fn touch(&self, hash: u64) -> Option<usize> {
        // The first with the same eight bits of the hash: rarely it is another one's.
        self.entries.find(hash, |entry| {
            entry.prefetch();
            true
        })
    }

    /// Writes a key, whether it is there or not; answers what is to be known of what was there. What was a
    /// lock stays one.
    #[inline]
    pub(super) fn put(&mut self, spot: Spot, new: NewEntry<'_>, rehash: impl Fn(&Entry) -> u64) -> Replaced {
        let place = self.place(spot, new.key);
        let Some(entry) = place.and_then(|place| self.entries.get_mut(place)) else {
            self.insert(spot, new.into_entry(), rehash);
            return Replaced { expires_at_ms: None, lock: None };
        };
        let expires_at_ms = entry.expires_at_ms();
        let lock = entry.is_lock().then(|| Token::of(entry.value()));
        if entry.epoch() == self.epoch && entry.replace_in_place(new.value, new.expires_at_ms) {
            entry.set_stamp(new.stamp);
        } else {
            let replaced = std::mem::replace(entry, new.into_entry());
            if lock.is_some() {
                entry.set_lock(true);
            }
            entry.set_epoch(self.epoch);
            if replaced.epoch() != self.epoch
                && let Some(awaited) = &mut self.awaited
            {
                awaited.preserved.push(replaced);
            }
        }
        self.count_expiry(expires_at_ms, new.expires_at_ms);
        Replaced { expires_at_ms, lock }
    }

    /// Writes a key that is not there.
    pub(super) fn insert(&mut self, spot: Spot, mut entry: Entry, rehash: impl Fn(&Entry) -> u64) {
        entry.set_epoch(self.epoch);
        if self.entries.len() == self.entries.capacity() {
            self.layout = self.layout.wrapping_add(1);
        }
        self.count_expiry(None, entry.expires_at_ms());
        self.entries.insert(spot.hash, entry, rehash);
    }

    /// An entry that is there, to be changed in its value only.
    pub(super) fn entry_mut(&mut self, spot: Spot, key: &[u8]) -> Option<&mut Entry> {
        let place = self.place(spot, key)?;
        let entry = self.entries.get_mut(place)?;
        if entry.epoch() != self.epoch {
            preserve(&mut self.awaited, entry, self.epoch);
        }
        Some(entry)
    }

    /// Replaces the expiry of a key that is there; answers whether it is a lock.
    pub(super) fn set_expiry(&mut self, spot: Spot, key: &[u8], expires_at_ms: Option<u64>) -> bool {
        let Some(entry) = self.entry_mut(spot, key) else { return false };
        let (before_ms, is_lock) = (entry.expires_at_ms(), entry.is_lock());
        entry.set_expiry(expires_at_ms);
        self.count_expiry(before_ms, expires_at_ms);
        is_lock
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, spot: Spot, key: &[u8]) -> Option<Entry> {
        let place = self.place(spot, key)?;
        let mut entry = self.entries.remove(spot.hash, place)?;
        self.count_expiry(entry.expires_at_ms(), None);
        if entry.epoch() != self.epoch {
            preserve(&mut self.awaited, &mut entry, self.epoch);
        }
        if self.is_mostly_empty() && self.entries.capacity() > Buckets::CAPACITY_MIN {
            // The next sweep gives the room back.
            self.sweep_at_ms = 0;
        }
        Some(entry)
    }

    /// Whether so few slots are in use that it is worth while to lay out the entries anew in fewer.
    fn is_mostly_empty(&self) -> bool {
        self.entries.len() * 8 < self.entries.capacity()
    }

    /// Gives back the slots of a table that is mostly empty.
    pub(super) fn give_back_slots(&mut self, hash: impl Fn(&Entry) -> u64) {
        if self.is_mostly_empty() {
            self.layout = self.layout.wrapping_add(1);
            self.entries.shrink_to(self.entries.len() * 2, hash);
        }
    }

    /// Has a snapshot wait for all entries there are.
    fn begin_snapshot(&mut self, database: usize, preserved_bytes: &PreservedBytes) {
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
    fn give_awaited(&mut self, place: &mut Place, slice: &mut Slice) -> bool {
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
    pub(super) fn awaited(&self) -> impl Iterator<Item = (u16, &Entry)> {
        let waiting = self.entries.iter().filter(|entry| entry.epoch() != self.epoch);
        self.awaited.iter().flat_map(move |awaited| {
            waiting.clone().chain(awaited.preserved.entries()).map(|entry| (awaited.database, entry))
        })
    }

    /// All entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of places for entries, and the entry at one of them.
    pub(super) fn places(&self) -> usize {
        self.entries.places()
    }

    /// The entry at a place.
    pub(super) fn at(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place)
    }

    /// Which layout the entries are in: while it stays the same, so do their places.
    pub(super) fn layout(&self) -> u32 {
        self.layout
    }

    pub(super) fn size(&self) -> DatabaseSize {
        DatabaseSize {
            keys: self.entries.len(),
            expiring: self.expiring,
            table_bytes: self.entries.allocation_size(),
        }
    }

    /// Frees what has expired; answers how many that were. If it was too early, the next one waits at least
    /// for `rest_ms`.
    ///
    /// The whole table is looked at under its lock: with 1,024 shards and 12 ns an entry that is 0.1 ms for a
    /// database of 8 million keys.
    fn sweep(
        &mut self,
        now_ms: u64,
        rest_ms: u64,
        hash: impl Fn(&Entry) -> u64,
        mut tell: impl FnMut(&Entry),
    ) -> usize {
        let (expiring, mut freed, mut earliest_ms) = (self.expiring, 0, u64::MAX);
        self.entries.retain(&hash, |entry| match entry.expires_at_ms() {
            Some(expires_at_ms) if expires_at_ms <= now_ms => {
                freed += 1;
                tell(entry);
                false
            }
            Some(expires_at_ms) => {
                earliest_ms = earliest_ms.min(expires_at_ms);
                true
            }
            None => true,
        });
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

/// Puts a copy of an entry aside for the snapshot that waits for it; then it may change.
#[cold]
fn preserve(awaited: &mut Option<Box<Awaited>>, entry: &mut Entry, epoch: bool) {
    if let Some(awaited) = awaited {
        awaited.preserved.copy(entry, epoch);
    }
}

/// What was there before it was written anew.
pub(super) struct Replaced {
    /// When it was to expire.
    pub(super) expires_at_ms: Option<u64>,
    /// Its value, if it was a lock.
    pub(super) lock: Option<Token>,
}

/// What is to be written.
#[derive(Clone, Copy)]
pub(super) struct NewEntry<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) expires_at_ms: Option<u64>,
    pub(super) stamp: u32,
}

impl NewEntry<'_> {
    #[inline]
    pub(super) fn into_entry(self) -> Entry {
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

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn what_a_command_needs_of_a_shard_is_in_its_first_cache_line() {
        let shard = LockedShard::default();
        let start = std::ptr::from_ref(&shard).addr();
        let locked = shard.try_lock().expect("nobody has it");
        let last = std::ptr::from_ref(&locked.first.layout).addr() + size_of::<u32>();
        assert!(last - start <= 64, "{}", last - start);
        assert_eq!((start % 64, size_of::<LockedShard>()), (0, 128));
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
