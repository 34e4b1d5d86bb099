//! What a command can do to the data set, and the locks under which it does it.
//!
//! A [`Transaction`] holds the shards of the keys that a command names, or all of them, from its beginning to
//! its end: what it sees and does is one moment. Reading takes `&self` and writing `&mut self`, so a command
//! that was given a shared reference cannot write.
//!
//! An expired key counts as absent from its very millisecond on, whether it has been freed or not. The clock
//! is read after the locks are taken, and only once something that expires was found: for the keys of one
//! shard time never runs backwards, unless somebody who holds them all turns the clock back, and keys without
//! an expiry do not pay for it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::allocator::taken_bytes;
use crate::clock::Clock;

use super::access::Access;
use super::aftermath::Left;
use super::changes::Extent;
use super::entry::{Encoding, Entry};
use super::following::Replacement;
use super::interest::Wanted;
use super::lens::LockChange;
use super::locking::{Busy, HeldShards, NotNow};
use super::shard::{DatabaseSize, KeyspaceCounters, NewEntry, Shard, Table};
use super::sync::MutexGuard;
use super::{Keyspace, SHARDS, Spot, shard_of};
use crate::events::EventClass;

/// How long a value may become while a log is replayed, whatever the parameters are now: as long as the
/// largest `proto-max-bulk-len` has ever allowed. A damaged offset must not take any memory there is.
const REPLAYED_VALUE_BYTES_MAX: usize = 512 << 20;

/// When a written key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// When it would have before it was written; never, if it was absent.
    Keep,
    /// At this moment, in milliseconds since 1970. One that has passed deletes the key.
    At(u64),
}

/// Locked shards, and the moment at which everything in them is looked at.
#[derive(Debug)]
pub struct Transaction<'a> {
    keyspace: &'a Keyspace,
    pub(super) database: usize,
    pub(super) held: Held<'a>,
    /// The moment as access stamps tell it; 0 if no use is to be noted.
    stamp: u32,
    /// The moment, once it mattered; 0 before.
    now_ms: Cell<u64>,
    /// Whether something was passed over because it had expired.
    has_seen_expired: Cell<bool>,
    /// What anybody wants to know of changes.
    pub(super) wanted: Wanted,
    /// Whether it does again what a log has.
    is_replay: bool,
    /// What it leaves to others. Declared after `held`: dropped once the locks are free.
    pub(super) left: RefCell<Left>,
}

/// What OBJECT tells of a key.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'t> {
    /// The value.
    pub value: &'t [u8],
    /// How its value came to be.
    pub encoding: Encoding,
    /// For how long it has not been used; zero while use is counted rather than dated.
    pub idle: Duration,
    /// How often it is used, on a logarithmic scale.
    pub frequency: u8,
    /// Bytes of its entry, without the allocator's rounding.
    pub bytes: usize,
}

/// The shards that are locked.
#[derive(Debug)]
pub(super) enum Held<'a> {
    /// That of one key, whose spot is remembered.
    One { key: &'a [u8], spot: Spot, shard: MutexGuard<'a, Shard> },
    /// Several, by their numbers in ascending order.
    Many(HeldShards<'a>),
}

impl Keyspace {
    /// Begins a transaction on one key.
    ///
    /// # Errors
    ///
    /// This and [`begin_all`](Self::begin_all): if a script holds a shard and has been running for too long.
    #[inline]
    pub fn begin<'a>(&'a self, database: usize, key: &'a [u8]) -> Result<Transaction<'a>, Busy> {
        let spot = Spot::of(self.hash(key));
        let shard = self.lock_one(shard_of(spot.hash))?;
        Ok(self.transaction(database, Held::One { key, spot, shard }))
    }

    /// The same for a client's request, on a key that has been touched.
    ///
    /// # Errors
    ///
    /// This and the others for clients: [`NotNow`]
    #[inline(always)]
    pub fn begin_at<'a>(
        &'a self,
        database: usize,
        key: &'a [u8],
        spot: Spot,
    ) -> Result<Transaction<'a>, NotNow> {
        debug_assert_eq!(spot.hash, self.hash(key));
        let shard = self.lock_for_client(shard_of(spot.hash))?;
        Ok(self.transaction(database, Held::One { key, spot, shard }))
    }

    /// Begins a transaction on any number of keys, for a client's request.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    pub fn begin_many<'k>(
        &self,
        database: usize,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Transaction<'_>, NotNow> {
        let mut is_wanted = [false; SHARDS];
        for key in keys {
            is_wanted[shard_of(self.hash(key))] = true;
        }
        let wanted = (0..SHARDS).filter(|number| is_wanted[*number]);
        Ok(self.transaction(database, Held::Many(self.lock_many_for_client(wanted)?)))
    }

    /// Begins a transaction on everything, for a client's request. Others wait until it ends.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    pub fn begin_all_for_client(&self, database: usize) -> Result<Transaction<'_>, NotNow> {
        Ok(self.transaction(database, Held::Many(self.lock_many_for_client(0..SHARDS)?)))
    }

    /// Begins a transaction on everything. Others wait until it ends.
    ///
    /// # Errors
    ///
    /// [`Busy`]
    pub fn begin_all(&self, database: usize) -> Result<Transaction<'_>, Busy> {
        Ok(self.transaction(database, Held::Many(self.lock_many(0..SHARDS)?)))
    }

    /// Begins a transaction on everything, however long that takes: for a client's command that holds nothing
    /// and has begun already.
    pub(super) fn begin_all_at_last(&self, database: usize) -> Transaction<'_> {
        self.transaction(database, Held::Many(self.lock_all_at_last()))
    }

    /// Begins a transaction that holds nothing. It may go over shards one after the other.
    pub fn begin_none(&self, database: usize) -> Transaction<'_> {
        self.transaction(database, Held::Many(Vec::new()))
    }

    #[inline(always)]
    pub(super) fn transaction<'a>(&'a self, database: usize, held: Held<'a>) -> Transaction<'a> {
        Transaction {
            keyspace: self,
            database,
            held,
            stamp: self.access.now(),
            now_ms: Cell::new(0),
            has_seen_expired: Cell::new(false),
            wanted: self.interest.load(),
            is_replay: false,
            left: RefCell::default(),
        }
    }
}

/// Reading.
impl<'a> Transaction<'a> {
    /// The transaction's moment, in milliseconds since 1970; the same however often it is asked for.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        if self.now_ms.get() == 0 {
            self.now_ms.set(self.keyspace.clock().now_ms());
        }
        self.now_ms.get()
    }

    /// The value of a key, for a command that reads: it counts as a hit or a miss, and as a use.
    #[inline(always)]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.read(key);
        if let Some(entry) = found {
            self.note_use(entry);
            if entry.is_lock() {
                self.tell_of_lock(key, LockChange::Read);
            }
        }
        found.map(Entry::value)
    }

    /// Whether a key is there, for a command that reads: it counts as a hit or a miss.
    pub fn exists(&self, key: &[u8]) -> bool {
        self.read(key).is_some()
    }

    /// When a key expires: `None` if it is absent, `Some(None)` if it never does. Counts as a hit or a miss.
    pub fn expires_at_ms(&self, key: &[u8]) -> Option<Option<u64>> {
        self.read(key).map(Entry::expires_at_ms)
    }

    /// The value of a key, for a command that writes: it counts as a use only.
    #[inline]
    pub fn peek(&self, key: &[u8]) -> Option<&[u8]> {
        let (spot, shard) = self.shard(key);
        let entry = self.find(shard, spot, key)?;
        self.note_use(entry);
        Some(entry.value())
    }

    /// When a key expires, for a command that writes: nothing is counted.
    pub fn peek_expiry(&self, key: &[u8]) -> Option<Option<u64>> {
        let (spot, shard) = self.shard(key);
        self.find(shard, spot, key).map(Entry::expires_at_ms)
    }

    /// What there is to know about a key besides its value; nothing is counted.
    pub fn facts(&self, key: &[u8]) -> Option<Facts<'_>> {
        let (spot, shard) = self.shard(key);
        let entry = self.find(shard, spot, key)?;
        let access = &self.keyspace.access;
        Some(Facts {
            value: entry.value(),
            encoding: entry.encoding(),
            idle: access.idle(entry.stamp()),
            frequency: access.frequency(entry.stamp()),
            bytes: entry.bytes(),
        })
    }

    /// Notes no use from now on (CLIENT NO-TOUCH).
    pub fn leave_untouched(&mut self) {
        self.stamp = 0;
    }

    /// Notes a use of a key, even where none are noted; answers whether it is there.
    pub fn touch(&self, key: &[u8]) -> bool {
        let found = self.read(key);
        if let Some(entry) = found {
            let access = &self.keyspace.access;
            entry.set_stamp(access.next(entry.stamp(), access.now()));
        }
        found.is_some()
    }

    /// Whether the frequency of use is noted, rather than the moment of the last one.
    pub fn counts_frequency(&self) -> bool {
        self.keyspace.access.counts_frequency()
    }

    /// Whether keys may have to go because of their use.
    pub fn evicts_by_use(&self) -> bool {
        self.keyspace.evicts_by_use.load(Ordering::Relaxed)
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.keyspace.databases()
    }

    /// How long a value may become; handlers that make one longer ask.
    pub fn value_bytes_max(&self) -> usize {
        match self.is_replay {
            false => self.keyspace.value_bytes_max.load(Ordering::Relaxed),
            true => REPLAYED_VALUE_BYTES_MAX,
        }
    }

    /// The number of the database that is looked at.
    pub fn database(&self) -> usize {
        self.database
    }

    /// Looks at another database from now on; what is held stays held, since a key has the same shard in all.
    pub fn select(&mut self, database: usize) {
        debug_assert!(database < self.keyspace.databases());
        self.database = database;
    }

    /// All keys of the database. The transaction must hold everything.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let tables = self.all_shards().filter_map(|shard| shard.table(self.database));
        tables.flat_map(Table::entries).filter(|entry| !self.has_expired(entry)).map(Entry::key)
    }

    /// Looks at one shard: one of those that are held, or, if none is, one that is locked just for that.
    pub(super) fn visit<T>(&self, number: usize, look: impl FnOnce(&Shard) -> T) -> T {
        match &self.held {
            Held::Many(shards) if shards.is_empty() => look(&self.keyspace.lock_at_last(number)),
            Held::Many(shards) if shards.len() == SHARDS => look(&shards[number].1),
            _ => stray(),
        }
    }

    /// The same to change it.
    pub(super) fn visit_mut<T>(&mut self, number: usize, change: impl FnOnce(&mut Shard) -> T) -> T {
        match &mut self.held {
            Held::Many(shards) if shards.is_empty() => change(&mut self.keyspace.lock_at_last(number)),
            Held::Many(shards) if shards.len() == SHARDS => change(&mut shards[number].1),
            _ => stray(),
        }
    }

    /// How large the current database is. The transaction must hold everything.
    pub fn database_size(&self) -> DatabaseSize {
        self.size_of(self.database)
    }

    /// How large every database is, by its number. The transaction must hold everything.
    pub fn database_sizes(&self) -> impl Iterator<Item = DatabaseSize> {
        (0..self.keyspace.databases()).map(|database| self.size_of(database))
    }

    /// What happened since the start or the last reset. The transaction must hold everything.
    pub fn counters(&self) -> KeyspaceCounters {
        let mut sum = KeyspaceCounters::default();
        for shard in self.all_shards() {
            sum.hits += shard.hits.get();
            sum.misses += shard.misses.get();
        }
        sum.expired = self.keyspace.losses.expired();
        sum.evicted = self.keyspace.losses.evicted();
        sum
    }

    /// Bytes of memory that the transaction itself takes: nobody wants to be told of them.
    pub fn own_bytes(&self) -> usize {
        match &self.held {
            Held::One { .. } => 0,
            Held::Many(shards) => {
                taken_bytes(shards.capacity() * size_of::<(usize, MutexGuard<'_, Shard>)>())
            }
        }
    }

    /// How often keys were written or deleted. The transaction must hold everything.
    pub fn changes(&self) -> u64 {
        self.all_shards().map(|shard| shard.changes).sum()
    }

    fn size_of(&self, database: usize) -> DatabaseSize {
        let mut sum = DatabaseSize::default();
        for table in self.all_shards().filter_map(|shard| shard.table(database)) {
            let size = table.size();
            sum.keys += size.keys;
            sum.expiring += size.expiring;
            sum.table_bytes += size.table_bytes;
        }
        sum
    }

    #[inline(always)]
    fn read(&self, key: &[u8]) -> Option<&Entry> {
        let (spot, shard) = self.shard(key);
        let found = self.find(shard, spot, key);
        let counter = if found.is_some() { &shard.hits } else { &shard.misses };
        counter.set(counter.get() + 1);
        if found.is_none() && self.wanted.event(EventClass::MISS) {
            self.push_event("keymiss", self.database, key);
        }
        found
    }

    #[inline(always)]
    fn find<'t>(&'t self, shard: &'t Shard, spot: Spot, key: &[u8]) -> Option<&'t Entry> {
        let found = shard.table(self.database).and_then(|table| table.find(spot, key));
        match found {
            Some(entry) if !self.has_expired(entry) => Some(entry),
            found => {
                self.pass_over(key, found);
                None
            }
        }
    }

    /// Notes that a key is absent, although its entry may be there.
    fn pass_over(&self, key: &[u8], expired: Option<&Entry>) {
        let Some(expired) = expired else { return self.follow_miss(key) };
        self.has_seen_expired.set(true);
        if expired.is_lock() {
            self.tell_of_lock(key, LockChange::Missed);
        }
    }

    /// The data set.
    pub fn keyspace(&self) -> &'a Keyspace {
        self.keyspace
    }

    /// Whether a key is there and has expired.
    pub(super) fn is_expired(&self, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        let found = shard.table(self.database).and_then(|table| table.find(spot, key));
        found.is_some_and(|entry| self.has_expired(entry))
    }

    /// Whether an entry counts as absent.
    #[inline(always)]
    pub(super) fn has_expired(&self, entry: &Entry) -> bool {
        entry.expires_at_ms().is_some_and(|expires_at_ms| self.is_over(expires_at_ms))
    }

    /// Whether what expires at a moment has expired.
    #[inline(always)]
    fn is_over(&self, expires_at_ms: u64) -> bool {
        expires_at_ms <= self.now_ms() && !self.is_replay
    }

    /// Whether it does again what a log has: then nothing expires, although its time has come.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Begins to do again what a log has. Nothing expires from now on: what was done was done when it had not
    /// expired yet. Values become as long as they may be at all. What the log has is not logged once more.
    pub fn begin_replay(&mut self) {
        self.is_replay = true;
        self.wanted = self.wanted.without_journal();
    }

    /// What comes now is done for the first time.
    pub fn end_replay(&mut self) {
        self.is_replay = false;
        self.wanted = self.keyspace.interest.load();
    }

    #[inline(always)]
    fn note_use(&self, entry: &Entry) {
        if self.stamp == 0 {
            return;
        }
        let (before, after) = (entry.stamp(), self.keyspace.access.next(entry.stamp(), self.stamp));
        // What is not written stays in the caches of other processors, too.
        if before != after {
            entry.set_stamp(after);
        }
    }
}

/// Writing.
impl Transaction<'_> {
    /// Writes a key, whatever was there before.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let Some(expires_at_ms) = self.resolve(key, expiry) else {
            self.remove(key);
            self.event(EventClass::EXPIRED, "expired", key);
            return;
        };
        if self.wanted.any() {
            self.follow_put(key);
        }
        let new = NewEntry { key, value, expires_at_ms, stamp: self.stamp_of_written(key) };
        let (keyspace, database) = (self.keyspace, self.database);
        let (spot, shard) = self.shard_mut(key);
        let rehash = |entry: &Entry| keyspace.hash(entry.key());
        shard.changes += 1;
        let replaced = shard.table_mut(database).put(spot, new, rehash);
        let had_expired = replaced.expires_at_ms.is_some_and(|expired_at_ms| self.is_over(expired_at_ms));
        if had_expired {
            self.keyspace.losses.count_expired(1);
        }
        if let Some(before) = replaced.lock {
            self.follow_rewritten(key, value, before, had_expired);
        }
    }

    /// The same for a value that is not kept as plain ones are.
    pub fn put_encoded(&mut self, key: &[u8], value: &[u8], expiry: Expiry, encoding: Encoding) {
        self.put(key, value, expiry);
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.table_mut(database).entry_mut(spot, key) {
            entry.set_encoding(encoding);
        }
    }

    /// Writes a key only if it is absent; answers whether it did.
    ///
    /// This is SETNX: of any number of clients that call it for one key, exactly one is told yes.
    #[inline]
    pub fn insert_if_absent(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> bool {
        let (spot, shard) = self.shard(key);
        match shard.table(self.database).and_then(|table| table.find(spot, key)) {
            Some(entry) if !self.has_expired(entry) => {
                self.note_use(entry);
                if entry.is_lock() {
                    self.tell_of_lock(key, LockChange::Refused);
                }
                return false;
            }
            Some(_) => self.put(key, value, expiry),
            None => self.insert(key, value, expiry),
        }
        self.follow_taken(key, value);
        true
    }

    /// Writes a key that is known to be absent.
    #[inline]
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let expires_at_ms = match expiry {
            Expiry::Never | Expiry::Keep => None,
            Expiry::At(expires_at_ms) if self.is_over(expires_at_ms) => return,
            Expiry::At(expires_at_ms) => Some(expires_at_ms),
        };
        let new = NewEntry { key, value, expires_at_ms, stamp: Access::first(self.keyspace.access.now()) };
        self.insert_entry(key, new.into_entry());
    }

    fn insert_entry(&mut self, key: &[u8], entry: Entry) {
        if self.wanted.any() {
            self.follow_put(key);
        }
        let (keyspace, database) = (self.keyspace, self.database);
        let (spot, shard) = self.shard_mut(key);
        let rehash = |entry: &Entry| keyspace.hash(entry.key());
        shard.changes += 1;
        shard.table_mut(database).insert(spot, entry, rehash);
    }

    /// When a key that is written now is to expire; `None` if at once.
    #[inline]
    fn resolve(&self, key: &[u8], expiry: Expiry) -> Option<Option<u64>> {
        match expiry {
            Expiry::Never => Some(None),
            Expiry::Keep => Some(self.peek_expiry(key).flatten()),
            Expiry::At(expires_at_ms) if self.is_over(expires_at_ms) => None,
            Expiry::At(expires_at_ms) => Some(Some(expires_at_ms)),
        }
    }

    /// The access stamp of a key that is written now. One that was there goes on being counted.
    #[inline]
    fn stamp_of_written(&self, key: &[u8]) -> u32 {
        let access = &self.keyspace.access;
        let now = access.now();
        if !access.counts_frequency() {
            return now;
        }
        let (spot, shard) = self.shard(key);
        match self.find(shard, spot, key) {
            Some(entry) if self.stamp == 0 => entry.stamp(),
            Some(entry) => access.next(entry.stamp(), now),
            None => Access::first(now),
        }
    }

    /// Says that the value of a key is kept as plain bytes, whatever it looks like.
    pub fn make_raw(&mut self, key: &[u8]) {
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.table_mut(database).entry_mut(spot, key) {
            entry.set_encoding(Encoding::Raw);
        }
    }

    /// Writes `target` in a database with the value, the expiry and all else of `source`, which must be
    /// there, in the current one. Whatever was there before goes.
    pub fn copy(&mut self, source: &[u8], target_database: usize, target: &[u8]) {
        let (spot, shard) = self.shard(source);
        let copy = self.find(shard, spot, source).map(|entry| entry.renamed(target));
        let source_database = std::mem::replace(&mut self.database, target_database);
        if self.remove(target) {
            // It counts once as changed.
            self.shard_mut(target).1.changes -= 1;
        }
        if let Some(copy) = copy {
            self.insert_entry(target, copy);
        }
        self.database = source_database;
    }

    /// The same, and deletes `source`.
    pub fn carry(&mut self, source: &[u8], target_database: usize, target: &[u8]) {
        self.copy(source, target_database, target);
        if self.remove(source) {
            self.shard_mut(source).1.changes -= 1;
        }
    }

    /// Makes a key that is there tell of so much idleness, or of such a frequency, whichever is noted.
    pub fn set_use(&mut self, key: &[u8], idle: Option<Duration>, frequency: Option<u8>) {
        let access = &self.keyspace.access;
        let stamp = idle
            .and_then(|idle| access.stamp_of_idle(idle))
            .or_else(|| frequency.and_then(|frequency| access.stamp_of_frequency(frequency)));
        let (spot, shard) = self.shard(key);
        if let (Some(stamp), Some(entry)) = (stamp, self.find(shard, spot, key)) {
            entry.set_stamp(stamp);
        }
    }

    /// Deletes a key; answers whether it was there.
    #[inline]
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.take(key).is_some()
    }

    /// Deletes a key whose memory is freed once the locks are; answers whether it was there.
    pub fn unlink(&mut self, key: &[u8]) -> bool {
        let entry = self.take(key);
        let was_there = entry.is_some();
        if let Some(entry) = entry {
            self.leave_entry(entry);
        }
        was_there
    }

    /// Takes a key out, and counts it as expired rather than there if its time had come.
    #[inline]
    fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.table_mut(database).remove(spot, key) else {
            self.follow_miss(key);
            return None;
        };
        let has_expired = self.has_expired(&entry);
        if entry.is_lock() {
            self.follow_gone(key, if has_expired { LockChange::Missed } else { LockChange::Freed });
        }
        if !has_expired {
            self.shard_mut(key).1.changes += 1;
            self.follow_change(key, Extent::Whole);
            return Some(entry);
        }
        self.keyspace.losses.count_expired(1);
        self.follow_expiry(key);
        None
    }

    /// Makes a key that is there expire at a moment, or never. A moment that has passed deletes it, and tells
    /// so.
    pub fn set_expiry(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        if expires_at_ms.is_some_and(|expires_at_ms| self.is_over(expires_at_ms)) {
            self.remove(key);
            self.event(EventClass::GENERIC, "del", key);
            return;
        }
        let name = if expires_at_ms.is_some() { "expire" } else { "persist" };
        self.event(EventClass::GENERIC, name, key);
        self.follow_change(key, Extent::Expiry);
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        shard.changes += 1;
        if shard.table_mut(database).set_expiry(spot, key, expires_at_ms) {
            self.tell_of_lock(key, LockChange::Expiry(expires_at_ms));
        }
    }

    /// Empties the current database. The transaction must hold everything.
    pub fn flush_database(&mut self) {
        self.note_flush(Some(self.database));
        self.flush(self.database..self.database + 1);
    }

    /// Empties every database. The transaction must hold everything.
    pub fn flush_all(&mut self) {
        self.keyspace.flushes.fetch_add(1, Ordering::Relaxed);
        self.note_flush(None);
        self.flush(0..self.keyspace.databases());
    }

    fn flush(&mut self, databases: std::ops::Range<usize>) {
        self.follow_replacement(|database| match databases.contains(&database) {
            true => Replacement::Nothing,
            false => Replacement::None,
        });
        let Held::Many(shards) = &mut self.held else { return };
        let aftermath = self.left.get_mut().get();
        for (_, shard) in shards {
            aftermath.leave_tables(databases.clone().filter_map(|database| shard.take_table(database)));
        }
    }

    /// Exchanges two databases. The transaction must hold everything.
    pub fn swap_databases(&mut self, one: usize, other: usize) {
        self.follow_replacement(|database| match database {
            _ if one == other => Replacement::None,
            _ if database == one => Replacement::Database(other),
            _ if database == other => Replacement::Database(one),
            _ => Replacement::None,
        });
        self.note_swap(one, other);
        let Held::Many(shards) = &mut self.held else { return };
        for (number, shard) in shards {
            shard.changes += u64::from(*number == 0);
            shard.swap_tables(one, other);
        }
    }

    /// Sets all counters to zero. The transaction must hold everything.
    pub fn reset_counters(&mut self) {
        let Held::Many(shards) = &mut self.held else { return };
        for (_, shard) in shards {
            shard.reset_counters();
        }
        self.keyspace.losses.reset();
    }

    /// Counts locks that are not followed from zero on. The transaction must hold everything.
    pub fn reset_unfollowed_locks(&mut self) {
        let Held::Many(shards) = &mut self.held else { return };
        shards.iter_mut().for_each(|(_, shard)| shard.unfollowed = 0);
    }

    /// Whether a key was passed over because it had expired. Its entry is still there after a command that
    /// only read; whoever ran it should [`free_expired`](Self::free_expired).
    #[inline]
    pub fn has_seen_expired(&self) -> bool {
        self.has_seen_expired.get()
    }

    /// Frees a key if it has expired.
    pub fn free_expired(&mut self, key: &[u8]) {
        let (spot, shard) = self.shard(key);
        let entry = shard.table(self.database).and_then(|table| table.find(spot, key));
        if entry.is_some_and(|entry| self.has_expired(entry)) {
            self.remove(key);
        }
    }
}

/// Turning the clock.
impl Transaction<'_> {
    /// Turns the clock of the keyspace, and with it the transaction's own moment: what follows in it goes by
    /// the new time. The transaction must hold everything, so that nobody looks at a key meanwhile.
    pub fn turn_clock<T>(&mut self, turn: impl FnOnce(&Clock) -> T) -> T {
        assert!(self.holds_everything(), "only a transaction on everything may turn the clock");
        let turned = turn(self.keyspace.clock());
        self.keyspace.follow_clock();
        self.now_ms.set(0);
        if self.stamp != 0 {
            self.stamp = self.keyspace.access.now();
        }
        turned
    }

    /// Frees all that has expired, in every database, and tells of it in the order in which it did. The
    /// transaction must hold everything.
    pub fn free_all_expired(&mut self) {
        let (keyspace, now_ms, is_told) = (self.keyspace, self.now_ms(), self.wanted.any());
        let Held::Many(shards) = &mut self.held else { return };
        let mut freed: Vec<(Option<u64>, usize, Box<[u8]>)> = Vec::new();
        let mut count = 0;
        for (_, shard) in shards {
            let hash = |entry: &Entry| keyspace.hash(entry.key());
            shard.sweep_all(now_ms, hash, |database, entry| {
                count += 1;
                if is_told {
                    freed.push((entry.expires_at_ms(), database, entry.key().into()));
                }
            });
        }
        keyspace.losses.count_expired(count);
        freed.sort_unstable();
        let current = self.database;
        for (_, database, key) in freed {
            self.select(database);
            self.follow_expiry(&key);
        }
        self.select(current);
    }
}

/// Holding more than what the transaction was begun for: only a script may, and only one at a time, see
/// [`locking`](super::locking).
impl Transaction<'_> {
    /// Holds these keys as well, whatever it takes.
    pub fn hold<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        for key in keys {
            match &self.held {
                Held::One { key: held, .. } if is_same(held, key) => {}
                _ => self.hold_shard(shard_of(self.keyspace.hash(key))),
            }
        }
    }

    /// Holds everything, whatever it takes.
    pub fn hold_everything(&mut self) {
        (0..SHARDS).for_each(|number| self.hold_shard(number));
    }

    fn hold_shard(&mut self, wanted: usize) {
        if let Held::One { .. } = &self.held {
            let Held::One { spot, shard, .. } = std::mem::replace(&mut self.held, Held::Many(Vec::new()))
            else {
                return;
            };
            self.held = Held::Many(vec![(shard_of(spot.hash), shard)]);
        }
        let Held::Many(shards) = &mut self.held else { return };
        if let Err(at) = shards.binary_search_by_key(&wanted, |(number, _)| *number) {
            shards.insert(at, (wanted, self.keyspace.lock_at_last(wanted)));
            // What is wanted is known for what is held: somebody may have read here since the beginning.
            self.wanted = self.keyspace.interest.load();
        }
    }
}

/// Finding the shard of a key.
impl Transaction<'_> {
    #[inline(always)]
    pub(super) fn shard(&self, key: &[u8]) -> (Spot, &Shard) {
        match &self.held {
            Held::One { key: held, spot, shard } if is_same(held, key) => (*spot, shard),
            Held::One { .. } => stray(),
            Held::Many(shards) => {
                let (spot, at) = place(self.keyspace, shards, key);
                (spot, &shards[at].1)
            }
        }
    }

    #[inline(always)]
    pub(super) fn shard_mut(&mut self, key: &[u8]) -> (Spot, &mut Shard) {
        match &mut self.held {
            Held::One { key: held, spot, shard } if is_same(held, key) => (*spot, shard),
            Held::One { .. } => stray(),
            Held::Many(shards) => {
                let (spot, at) = place(self.keyspace, shards, key);
                (spot, &mut shards[at].1)
            }
        }
    }

    pub(super) fn holds_everything(&self) -> bool {
        matches!(&self.held, Held::Many(shards) if shards.len() == SHARDS)
    }

    pub(super) fn all_shards(&self) -> impl Iterator<Item = &Shard> {
        let shards = match &self.held {
            Held::Many(shards) => shards.as_slice(),
            Held::One { .. } => &[],
        };
        assert_eq!(shards.len(), SHARDS, "only a transaction on everything can tell");
        shards.iter().map(|(_, shard)| &**shard)
    }
}

impl Facts<'_> {
    /// Bytes that the key takes from the allocator, its place in a table included: a pointer and a tag, in a
    /// table that is three quarters full on average.
    pub fn bytes_taken(&self) -> usize {
        const PLACE_BYTES: usize = (size_of::<usize>() + 1) * 4 / 3;
        taken_bytes(self.bytes) + PLACE_BYTES
    }
}

/// The spot of a key, and the place of its shard among several.
#[inline(never)]
fn place(keyspace: &Keyspace, shards: &HeldShards<'_>, key: &[u8]) -> (Spot, usize) {
    let hash = keyspace.hash(key);
    let at = shards.binary_search_by_key(&shard_of(hash), |(number, _)| *number);
    (Spot::of(hash), at.unwrap_or_else(|_| stray()))
}

/// Whether two keys are the same; nearly always they are the same bytes in memory, too.
#[inline]
fn is_same(held: &[u8], key: &[u8]) -> bool {
    std::ptr::eq(held, key) || held == key
}

#[cold]
fn stray() -> ! {
    panic!("a handler touched a key that its command does not name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_hold_different_keys_of_one_name() {
        let keyspace = Keyspace::new(2);
        keyspace.begin(0, b"k").unwrap().put(b"k", b"zero", Expiry::Never);
        assert_eq!(keyspace.begin(1, b"k").unwrap().get(b"k"), None);
        assert!(keyspace.begin(1, b"k").unwrap().insert_if_absent(b"k", b"one", Expiry::Never));
        assert_eq!(keyspace.begin(0, b"k").unwrap().get(b"k"), Some(&b"zero"[..]));
        keyspace.begin_all(1).unwrap().flush_database();
        let sizes: Vec<usize> =
            keyspace.begin_all(0).unwrap().database_sizes().map(|size| size.keys).collect();
        assert_eq!(sizes, [1, 0]);
    }

    #[test]
    fn several_keys_are_held_whatever_their_shards() {
        let keyspace = Keyspace::new(1);
        let keys: Vec<String> = (0..5000).map(|number| format!("key:{number}")).collect();
        let mut tx = keyspace.begin_many(0, keys.iter().map(|key| key.as_bytes())).unwrap();
        for key in &keys {
            assert!(tx.insert_if_absent(key.as_bytes(), b"v", Expiry::Never));
        }
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().database_size().keys, keys.len());
    }

    #[test]
    fn what_was_touched_is_found_whatever_has_happened_since() {
        let keyspace = Keyspace::new(1);
        let keys: Vec<Vec<u8>> = (0..20_000).map(|number| format!("key:{number}").into_bytes()).collect();
        let (there, new) = keys.split_at(5_000);
        for key in there {
            keyspace.begin(0, key).unwrap().put(key, b"old", Expiry::Never);
        }
        let mut spots: Vec<Spot> = keys.iter().map(|key| Spot::of(keyspace.hash(key))).collect();
        spots.iter_mut().for_each(|spot| keyspace.touch(0, spot));
        // Others come to where some were, and tables grow.
        for key in there.iter().step_by(2) {
            keyspace.begin(0, key).unwrap().remove(key);
        }
        for key in new {
            keyspace.begin(0, key).unwrap().put(key, b"new", Expiry::Never);
        }
        for (number, (key, spot)) in keys.iter().zip(spots).enumerate() {
            let expected = match number {
                0..5_000 if number % 2 == 0 => None,
                0..5_000 => Some(&b"old"[..]),
                _ => Some(&b"new"[..]),
            };
            let mut tx = keyspace.begin_at(0, key, spot).unwrap();
            assert_eq!(tx.get(key), expected, "{number}");
            tx.put(key, b"newest", Expiry::Never);
            assert_eq!(tx.get(key), Some(&b"newest"[..]), "{number}");
            assert!(tx.remove(key) && tx.get(key).is_none(), "{number}");
        }
    }

    #[test]
    fn an_expired_key_is_absent_before_it_is_freed() {
        let keyspace = Keyspace::new(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        let now_ms = tx.now_ms();
        tx.put(b"k", b"v", Expiry::At(now_ms + 1));
        assert_eq!(tx.get(b"k"), Some(&b"v"[..]));
        tx.now_ms.set(now_ms + 1);
        assert_eq!(tx.get(b"k"), None);
        assert!(tx.has_seen_expired());
        assert!(tx.insert_if_absent(b"k", b"w", Expiry::Keep), "an expired lock can be taken");
        assert_eq!(tx.expires_at_ms(b"k"), Some(None), "and keeps nothing of the old one");
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().counters().expired, 1);
    }

    #[test]
    fn an_expiry_that_has_passed_deletes() {
        let keyspace = Keyspace::new(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.put(b"k", b"v", Expiry::Never);
        tx.put(b"k", b"v", Expiry::At(1));
        assert_eq!(tx.get(b"k"), None);
        tx.put(b"k", b"v", Expiry::Never);
        tx.set_expiry(b"k", Some(1));
        assert_eq!(tx.get(b"k"), None);
    }

    #[test]
    #[should_panic(expected = "a handler touched a key")]
    fn a_key_that_was_not_named_cannot_be_touched() {
        let keyspace = Keyspace::new(1);
        keyspace.begin(0, b"a").unwrap().put(b"b", b"v", Expiry::Never);
    }
}
