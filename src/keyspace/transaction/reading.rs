//! What a command reads: values, expiries, and the facts for OBJECT.
//!
//! A command that reads counts hits and misses, and a command that writes does not, as in Redis.

use std::cell::RefCell;
use std::time::Duration;

use super::{Expiry, Transaction};
use crate::allocator::taken_bytes;
use crate::events::EventClass;
use crate::keyspace::KeyLocation;
use crate::keyspace::Shard;
use crate::keyspace::access::Access;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::following::lens::Grouping;
use crate::keyspace::transaction::following::news::LockChange;
use crate::values::{Encoding, Limit, Structure, Type, TypeFacts, Value, WrongType};

/// The most bytes of a value while a log is replayed, whatever the parameters are now: the largest value that
/// `proto-max-bulk-len` has ever allowed. A damaged offset must not take all memory.
const REPLAYED_VALUE_BYTES_MAX: usize = 512 << 20;

/// A key, for a look that is no client's.
#[derive(Clone, Copy, Debug)]
pub struct Glimpse<'t> {
    /// The key's value.
    pub value: Value<'t>,
    /// The same if it is a string.
    pub text: Option<&'t [u8]>,
    /// When it expires, in milliseconds since 1970, if it does.
    pub expires_at_ms: Option<u64>,
    /// The fencing number that it has as a lock, if it has one.
    pub fence: Option<u64>,
    /// Whether it has the mark of a lock.
    pub is_lock: bool,
}

/// The facts about a key that OBJECT returns.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'t> {
    /// The key's value.
    pub value: Value<'t>,
    /// How the value was written.
    pub encoding: Encoding,
    /// Up to which size a collection of its type is packed now.
    pub limit: Limit,
    /// For how long the key has not been used; zero while uses are counted rather than dated.
    pub idle: Duration,
    /// How often the key is used, on a logarithmic scale.
    pub frequency: u8,
    /// Bytes of the entry, without the allocator's rounding.
    pub bytes: usize,
    /// Bytes of a large value, which lies outside the entry.
    pub large_bytes: usize,
}

impl Transaction<'_> {
    /// Returns the value of a key, for a command that reads. Counts a hit or a miss, and a use.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    #[inline(always)]
    pub fn get<T: Type>(&self, key: &[u8]) -> Result<Option<T::View<'_>>, WrongType> {
        self.get_entry(key).map(|entry| self.view_of::<T>(entry)).transpose()
    }

    /// Returns the value of a key whatever its type, as [`get`](Self::get) does.
    pub fn get_any(&self, key: &[u8]) -> Option<Value<'_>> {
        self.get_entry(key).map(|entry| self.value_of(entry))
    }

    #[inline(always)]
    fn get_entry(&self, key: &[u8]) -> Option<&Entry> {
        let found = self.read(key);
        if let Some(entry) = found {
            self.note_use(entry);
            if entry.is_lock() {
                self.report_lock(key, LockChange::Read);
            }
        }
        found
    }

    /// Returns whether a key is there, for a command that reads. Counts a hit or a miss.
    pub fn exists(&self, key: &[u8]) -> bool {
        let found = self.read(key);
        if let Some(entry) = found
            && entry.is_lock()
            && (entry.is_collection() || self.grouping == Grouping::Script)
        {
            self.report_lock(key, LockChange::Sought);
        }
        found.is_some()
    }

    /// Returns when a key expires: `None` if it is absent, `Some(None)` if it never expires. Counts a hit or
    /// a miss.
    pub fn expires_at_ms(&self, key: &[u8]) -> Option<Option<u64>> {
        self.read(key).map(Entry::expires_at_ms)
    }

    /// Returns the value of a key, for a command that writes. Counts a use.
    ///
    /// # Errors
    ///
    /// [`WrongType`]
    #[inline]
    pub fn peek<T: Type>(&self, key: &[u8]) -> Result<Option<T::View<'_>>, WrongType> {
        self.peek_entry(key).map(|entry| self.view_of::<T>(entry)).transpose()
    }

    /// Returns the value of a key whatever its type, as [`peek`](Self::peek) does.
    pub fn peek_any(&self, key: &[u8]) -> Option<Value<'_>> {
        self.peek_entry(key).map(|entry| self.value_of(entry))
    }

    /// Returns the value of a key whatever its type, to judge what a request costs. Counts nothing.
    pub fn glance(&self, key: &[u8]) -> Option<Value<'_>> {
        self.find(key).map(|entry| self.value_of(entry))
    }

    /// The same for a value that must be of a type.
    pub fn glance_at<T: Type>(&self, key: &[u8]) -> Option<T::View<'_>> {
        let value = self.glance(key).filter(|value| value.facts.kind == T::FACTS.kind);
        value.map(|value| T::view(value.content))
    }

    /// Returns whether a key is there, whatever its type, for a command that writes. Counts a use.
    #[inline]
    pub fn is_there(&self, key: &[u8]) -> bool {
        self.peek_entry(key).is_some()
    }

    #[inline]
    pub(super) fn peek_entry(&self, key: &[u8]) -> Option<&Entry> {
        let entry = self.find(key)?;
        self.note_use(entry);
        Some(entry)
    }

    /// Returns the type of a key, for a command that reads. Counts a hit or a miss.
    pub fn type_of(&self, key: &[u8]) -> Option<&'static TypeFacts> {
        self.read(key).map(|entry| self.value_of(entry).facts)
    }

    /// Returns when a key expires, for a command that changes that: `None` if the key is absent. Counts a
    /// use.
    pub fn use_expiry(&self, key: &[u8]) -> Option<Option<u64>> {
        self.peek_entry(key).map(Entry::expires_at_ms)
    }

    /// Returns when a key expires, for a command that writes. Counts nothing.
    pub fn peek_expiry(&self, key: &[u8]) -> Option<Option<u64>> {
        self.find(key).map(Entry::expires_at_ms)
    }

    /// Returns the facts about a key, for OBJECT. Counts nothing.
    pub fn facts(&self, key: &[u8]) -> Option<Facts<'_>> {
        let entry = self.find(key)?;
        let access = &self.keyspace.access;
        Some(Facts {
            value: self.value_of(entry),
            encoding: entry.encoding(),
            limit: self.keyspace.limits.of(entry.kind()),
            idle: access.idle(entry.stamp()),
            frequency: access.frequency(entry.stamp()),
            bytes: entry.bytes(),
            large_bytes: entry.bytes_in_all() - entry.bytes(),
        })
    }

    /// Bytes of the value of a key that lie outside its entry; 0 if it is small or absent.
    pub fn large_bytes(&self, key: &[u8]) -> usize {
        self.find(key).and_then(Entry::structure).map_or(0, Structure::bytes)
    }

    /// The elements of the value of a key and their bytes, if they lie outside its entry; otherwise 0.
    pub fn large_size(&self, key: &[u8]) -> (usize, usize) {
        let structure = self.find(key).and_then(Entry::structure);
        structure.map_or((0, 0), |structure| (structure.len(), structure.bytes()))
    }

    /// Copies a key with its expiry to the same database of another transaction. The copy of a large value
    /// shares its nodes. Counts a use.
    pub fn copy_to(&self, other: &mut Transaction<'_>, key: &[u8]) {
        if let Some(entry) = self.peek_entry(key) {
            let expiry = entry.expires_at_ms().map_or(Expiry::Never, Expiry::At);
            other.put_any(key, self.value_of(entry), expiry);
        }
    }

    /// Whether the key of a copy is still as it was when it was copied to that transaction.
    pub fn is_as_copied(&self, copies: &Transaction<'_>, key: &[u8]) -> bool {
        match (self.peek_entry(key), copies.peek_entry(key)) {
            (None, None) => true,
            (Some(now), Some(then)) => {
                let is_alike = now.kind() == then.kind() && now.expires_at_ms() == then.expires_at_ms();
                is_alike && now.content().is_same(then.content())
            }
            _ => false,
        }
    }

    /// Notes a use of a key, even in a transaction that notes none; returns whether the key is there.
    pub fn touch(&self, key: &[u8]) -> bool {
        let found = self.read(key);
        if let Some(entry) = found {
            let access = &self.keyspace.access;
            entry.set_stamp(access.next(entry.stamp(), access.now()));
        }
        found.is_some()
    }

    /// Whether stamps count how often a key is used, rather than date its last use.
    pub fn counts_frequency(&self) -> bool {
        self.keyspace.access.counts_frequency()
    }

    /// Up to which size a collection of a type is packed.
    pub fn limit<T: Type>(&self) -> Limit {
        self.keyspace.limits.of(T::FACTS.kind)
    }

    /// The most bytes that a value may have. Handlers that lengthen a value check it.
    pub fn value_bytes_max(&self) -> usize {
        match self.is_replay {
            false => self.keyspace.value_bytes_max(),
            true => REPLAYED_VALUE_BYTES_MAX,
        }
    }

    #[inline(always)]
    fn read(&self, key: &[u8]) -> Option<&Entry> {
        let (spot, shard) = self.shard(key);
        let found = self.find_in(shard, spot, key);
        let counter = if found.is_some() { &shard.hits } else { &shard.misses };
        counter.set(counter.get() + 1);
        if found.is_none() {
            if self.wanted.event(EventClass::MISS) {
                self.push_event("keymiss", self.database, key);
            }
            if self.grouping == Grouping::Script {
                self.note_absent(key, None);
            }
        }
        found
    }

    /// The entry of a key that has not expired.
    #[inline(always)]
    pub(in crate::keyspace) fn find(&self, key: &[u8]) -> Option<&Entry> {
        let (spot, shard) = self.shard(key);
        self.find_in(shard, spot, key)
    }

    #[inline(always)]
    fn find_in<'t>(&'t self, shard: &'t Shard, spot: KeyLocation, key: &[u8]) -> Option<&'t Entry> {
        let found = shard.table(self.database).and_then(|table| table.find(spot, key));
        match found {
            Some(entry) if !self.has_expired(entry) => Some(entry),
            found => {
                self.pass_over(key, found);
                None
            }
        }
    }

    /// Notes that a key counts as absent. Its expired entry may still be there.
    fn pass_over(&self, key: &[u8], expired: Option<&Entry>) {
        let Some(expired) = expired else { return self.follow_miss(key) };
        self.has_seen_expired.set(true);
        if expired.is_lock() {
            self.report_lock(key, LockChange::Missed);
        }
    }

    /// The entry of a key that has not expired, for a look that is no client's. The lock lens gets no news of
    /// it.
    pub(in crate::keyspace) fn unseen(&self, key: &[u8]) -> Option<&Entry> {
        self.entry(key).filter(|entry| !self.has_expired(entry))
    }

    /// Looks at a key as [`unseen`](Self::unseen) does.
    pub fn glimpse(&self, key: &[u8]) -> Option<Glimpse<'_>> {
        let entry = self.unseen(key)?;
        Some(Glimpse {
            value: self.value_of(entry),
            text: entry.text().ok(),
            expires_at_ms: entry.expires_at_ms(),
            fence: entry.fence(),
            is_lock: entry.is_lock(),
        })
    }

    /// Whether the entry of a key is there and has expired.
    pub(in crate::keyspace) fn is_expired(&self, key: &[u8]) -> bool {
        self.entry(key).is_some_and(|entry| self.has_expired(entry))
    }

    #[inline(always)]
    pub(super) fn note_use(&self, entry: &Entry) {
        if self.stamp == 0 {
            return;
        }
        let (before, after) = (entry.stamp(), self.next_stamp(entry, self.stamp));
        // A cache line that is not written stays in the caches of other processors.
        if before != after {
            entry.set_stamp(after);
        }
    }
}

/// Counting each use once.
impl Transaction<'_> {
    /// The stamp of an entry that is used at the moment `now`.
    #[inline(always)]
    fn next_stamp(&self, entry: &Entry, now: u32) -> u32 {
        if Access::is_by_recency(now) { now } else { self.next_count(entry, now) }
    }

    /// A command uses a key once, however often it looks it up.
    #[cold]
    pub(super) fn next_count(&self, entry: &Entry, now: u32) -> u32 {
        match self.counts_first_use(entry.key()) {
            true => self.keyspace.access.next(entry.stamp(), now),
            false => entry.stamp(),
        }
    }

    /// Notes that the running command uses a key; returns whether it had not used it before.
    pub(super) fn counts_first_use(&self, key: &[u8]) -> bool {
        let used = (self.database, self.keyspace.hash(key));
        COUNTED.with_borrow_mut(|counted| {
            if !self.has_counted.replace(true) {
                counted.clear();
            }
            if counted.contains(&used) {
                return false;
            }
            if counted.len() < COUNTED_MAX {
                counted.push(used);
            }
            true
        })
    }

    /// Begins to count uses anew, for the next one of several commands.
    pub fn begin_command(&self) {
        self.has_counted.set(false);
    }
}

/// How many keys of a command are remembered, at most. A command on more keys uses each of them once.
const COUNTED_MAX: usize = 64;

thread_local! {
    /// The keys, by database and hash, that the running command has used, while uses are counted. It has a
    /// meaning only for the transaction that has noted so: a transaction stays in its thread.
    static COUNTED: RefCell<Vec<(usize, u64)>> = const { RefCell::new(Vec::new()) };
}

impl Facts<'_> {
    /// Bytes that the key takes from the allocator. That includes its place in a table: a pointer and a tag,
    /// in a table that is three quarters full on average.
    pub fn bytes_taken(&self) -> usize {
        const PLACE_BYTES: usize = (size_of::<usize>() + 1) * 4 / 3;
        taken_bytes(self.bytes) + self.large_bytes + PLACE_BYTES
    }
}
