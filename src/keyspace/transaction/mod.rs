//! What a command can do to the data set, and the locks under which it does it.
//!
//! A [`Transaction`] holds the shards of the keys that a command names, or every shard, from its beginning to
//! its end: what it sees and does is one moment. Reading takes `&self` and writing `&mut self`, so a command
//! that was given a shared reference cannot write. What needs every shard is a method of [`Everything`],
//! which only a transaction that holds every shard can become.
//!
//! An expired key counts as absent from its very millisecond on, whether it has been freed or not. The clock
//! is read after the locks are taken, and only once an entry with an expiry was found. So time never runs
//! backwards for the keys of one shard, unless a transaction on everything turns the clock back, and keys
//! without an expiry do not pay for it.
//!
//! [`reading`] and [`writing`] are what a command does to keys, [`acquiring`] how it takes a lock, [`parts`]
//! how it changes a part of a string, [`change`] how it changes a collection, [`fields`] how fields of hashes
//! expire, [`everything`] what needs every shard, [`walking`] what looks at one shard after the other,
//! [`holding`] how a script comes to hold more, and [`long_texts`] why no long string is copied under a lock.

mod acquiring;
pub(in crate::keyspace) mod change;
mod everything;
mod fields;
pub(in crate::keyspace) mod following;
mod holding;
pub(in crate::keyspace) mod long_texts;
pub(in crate::keyspace) mod parts;
mod reading;
mod walking;
mod writing;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use crate::allocator::taken_bytes;
use crate::keyspace::Shard;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::locking::{Busy, HeldShards, NotNow, ShardSet};
use crate::keyspace::transaction::following::aftermath::Left;
use crate::keyspace::transaction::following::interest::Wanted;
use crate::keyspace::transaction::following::lens::{Grouping, Made};
use crate::keyspace::{KeyLocation, Keyspace};
use crate::sync::{MutexGuard, unshared};
use crate::values::{Content, HASH_KIND, Type, Value, WrongType};

use long_texts::Prepared;

pub(crate) use everything::{Everything, NotEverything};
pub(crate) use holding::Missing;
pub(crate) use reading::{Facts, Glimpse};
pub(crate) use walking::{HoldsSome, Walk};
pub use writing::Expiry;

/// Locked shards, and the moment at which the transaction looks at everything in them.
#[derive(Debug)]
pub struct Transaction<'a> {
    keyspace: &'a Keyspace,
    pub(in crate::keyspace) database: usize,
    pub(in crate::keyspace) held: Held<'a>,
    /// The moment in the form of access stamps; 0 if the transaction notes no use.
    stamp: u32,
    /// The moment, once the transaction has read the clock; 0 before. It is twice the milliseconds since
    /// 1970, and one more if it lies between two of them.
    moment: Cell<u64>,
    /// Whether the transaction passed over an entry because it had expired.
    has_seen_expired: Cell<bool>,
    /// How many changes were made and are [not counted](Self::count_changes_as).
    uncounted_changes: u64,
    /// Whether the running command has counted a use of a key.
    has_counted: Cell<bool>,
    /// The interest of clients and of the log in changes.
    pub(in crate::keyspace) wanted: Wanted,
    /// Whether the transaction replays a log.
    is_replay: bool,
    /// Whether the transaction may come to hold more shards.
    may_hold_more: bool,
    /// The last collection that the transaction has made.
    pub(in crate::keyspace) made: Option<Made>,
    /// How the commands of the transaction belong together.
    pub(in crate::keyspace) grouping: Grouping,
    /// Whether the script that runs has read a string.
    pub(in crate::keyspace) has_read: bool,
    /// The effects, changes and garbage of the transaction. Declared after `held`, so it is dropped when the
    /// locks are free.
    pub(in crate::keyspace) left: RefCell<Left>,
}

/// The shards that a transaction has locked.
#[derive(Debug)]
pub(in crate::keyspace) enum Held<'a> {
    /// The shard of one key, with the spot of that key.
    One { key: &'a [u8], spot: KeyLocation, shard: MutexGuard<'a, Shard> },
    /// Several shards, or none, in ascending order of their numbers.
    Many(HeldShards<'a>),
}

/// The shards that a transaction is to hold. It is small, so that it costs little to pass it on.
#[derive(Debug)]
pub struct Hold<'a>(Held<'a>);

impl Hold<'_> {
    /// No shard, for commands that use no key.
    pub fn nothing() -> Self {
        Hold(Held::Many(Vec::new()))
    }
}

impl Held<'_> {
    /// The numbers of the held shards.
    pub(in crate::keyspace) fn numbers(&self, keyspace: &Keyspace) -> ShardSet {
        let mut numbers = ShardSet::default();
        match self {
            Held::One { spot, .. } => numbers.add(keyspace.shard_of(spot.hash)),
            Held::Many(shards) => shards.iter().for_each(|(number, _)| numbers.add(*number)),
        }
        numbers
    }

    /// Every held shard.
    pub(in crate::keyspace) fn shards_mut(&mut self) -> impl Iterator<Item = &mut Shard> {
        let (one, many) = match self {
            Held::One { shard, .. } => (Some(&mut **shard), [].as_mut_slice()),
            Held::Many(shards) => (None, shards.as_mut_slice()),
        };
        one.into_iter().chain(many.iter_mut().map(|(_, shard)| &mut **shard))
    }
}

impl Keyspace {
    /// Begins a transaction on one key.
    ///
    /// # Errors
    ///
    /// [`Busy`]
    #[inline]
    pub fn begin<'a>(&'a self, database: usize, key: &'a [u8]) -> Result<Transaction<'a>, Busy> {
        let spot = KeyLocation::of(self.hash(key));
        let shard = self.lock_one(self.shard_of(spot.hash))?;
        Ok(self.transaction(database, Held::One { key, spot, shard }))
    }

    /// Begins a transaction on a key that has been [touched](Keyspace::touch), for a client's request.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    #[inline(always)]
    pub fn begin_at<'a>(
        &'a self,
        database: usize,
        key: &'a [u8],
        spot: KeyLocation,
    ) -> Result<Transaction<'a>, NotNow> {
        Ok(self.transaction(database, self.hold_at(key, spot)?.0))
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
        Ok(self.transaction(database, self.hold_many(keys)?.0))
    }

    /// Begins a transaction on what is held. It owns these copies of long arguments. The transaction is
    /// large: the caller should build it where it stays.
    #[inline(always)]
    pub fn begin_on<'a>(
        &'a self,
        database: usize,
        Hold(held): Hold<'a>,
        prepared: Vec<Prepared>,
    ) -> Transaction<'a> {
        let left = RefCell::new(Left::with_prepared(prepared));
        Transaction { left, ..self.transaction(database, held) }
    }

    /// Holds a key that has been [touched](Keyspace::touch), for a client's request.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    #[inline(always)]
    pub fn hold_at<'a>(&'a self, key: &'a [u8], spot: KeyLocation) -> Result<Hold<'a>, NotNow> {
        debug_assert_eq!(spot.hash, self.hash(key));
        let shard = self.lock_for_client(self.shard_of(spot.hash))?;
        Ok(Hold(Held::One { key, spot, shard }))
    }

    /// Holds any number of keys, for a client's request.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    pub fn hold_many<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) -> Result<Hold<'_>, NotNow> {
        let mut wanted = ShardSet::default();
        for key in keys {
            wanted.add(self.shard_of(self.hash(key)));
        }
        Ok(Hold(Held::Many(self.lock_many_for_client(wanted.numbers())?)))
    }

    /// Holds these shards, for a client's request.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    pub(in crate::keyspace) fn hold_shards(&self, wanted: &ShardSet) -> Result<Hold<'_>, NotNow> {
        Ok(Hold(Held::Many(self.lock_many_for_client(wanted.numbers())?)))
    }

    /// Holds everything, for a client's request. Other clients wait until it ends.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    pub fn hold_all(&self) -> Result<Hold<'_>, NotNow> {
        Ok(Hold(Held::Many(self.lock_many_for_client(self.shard_numbers())?)))
    }

    /// Begins a transaction on everything. Other clients wait until it ends.
    ///
    /// # Errors
    ///
    /// [`Busy`]
    pub fn begin_all(&self, database: usize) -> Result<Everything<Box<Transaction<'_>>>, Busy> {
        let held = self.lock_many(self.shard_numbers())?;
        Ok(Everything::of(Box::new(self.transaction(database, Held::Many(held)))))
    }

    /// Begins a transaction on everything, in a keyspace that no other thread uses.
    pub fn begin_alone(&self, database: usize) -> Transaction<'_> {
        self.transaction(database, Held::Many(unshared(|| self.lock_all_at_last())))
    }

    /// Begins a transaction that holds nothing. It may lock one shard after the other.
    pub fn begin_none(&self, database: usize) -> Transaction<'_> {
        self.transaction(database, Held::Many(Vec::new()))
    }

    #[inline(always)]
    pub(in crate::keyspace) fn transaction<'a>(&'a self, database: usize, held: Held<'a>) -> Transaction<'a> {
        Transaction {
            keyspace: self,
            database,
            held,
            stamp: self.access.read(),
            moment: Cell::new(0),
            has_seen_expired: Cell::new(false),
            uncounted_changes: 0,
            has_counted: Cell::new(false),
            wanted: self.followers.interest.load(),
            is_replay: false,
            may_hold_more: false,
            made: None,
            grouping: Grouping::Alone,
            has_read: false,
            left: RefCell::default(),
        }
    }
}

impl<'a> Transaction<'a> {
    /// The transaction's moment, in milliseconds since 1970. It stays the same until the transaction ends,
    /// but for the clients that it serves.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.moment() >> 1
    }

    /// Has the transaction go on at a later moment, with a command that is not one of its own.
    pub(in crate::keyspace) fn move_on(&mut self) {
        self.moment.set(0);
    }

    /// The first whole millisecond that is not before the transaction's moment: from here on, spans count.
    #[inline]
    pub fn next_ms(&self) -> u64 {
        self.moment().div_ceil(2)
    }

    #[inline]
    fn moment(&self) -> u64 {
        if self.moment.get() == 0 {
            let now = self.keyspace.clock.since_epoch();
            let is_between = !now.subsec_nanos().is_multiple_of(1_000_000);
            self.moment.set(2 * now.as_millis() as u64 + u64::from(is_between));
        }
        self.moment.get()
    }

    /// When something expires that is to live for so many milliseconds from now on. It is rounded up to a
    /// whole millisecond, so nothing lives for less: a client may count on a lock for as long as it has asked
    /// for. `None` if that is too far in the future.
    #[inline]
    pub fn expiry_in_ms(&self, delay_ms: i64) -> Option<i64> {
        let from_ms = if delay_ms > 0 { self.next_ms() } else { self.now_ms() };
        let moment_ms = delay_ms.checked_add(from_ms as i64);
        if self.wanted.records_spans()
            && let Some(moment_ms) = moment_ms
        {
            self.record_span(u64::try_from(moment_ms).unwrap_or(0));
        }
        moment_ms
    }

    /// How many whole milliseconds are left until an expiry: as many as it was to live, at the moment at
    /// which it was set.
    pub fn remaining_ms(&self, expires_at_ms: u64) -> u64 {
        expires_at_ms.saturating_sub(self.next_ms())
    }

    /// The data set.
    pub fn keyspace(&self) -> &'a Keyspace {
        self.keyspace
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.keyspace.databases()
    }

    /// The numbers by which clients know the databases.
    pub fn database_numbers(&self) -> Range<usize> {
        self.keyspace.database_numbers()
    }

    /// The number of the current database.
    pub fn database(&self) -> usize {
        self.database
    }

    /// Makes another database the current one. The transaction holds the same keys there: a key has one shard
    /// in all databases.
    pub fn select(&mut self, database: usize) {
        debug_assert!(database < self.keyspace.databases());
        self.database = database;
    }

    /// Notes no use of keys from now on (CLIENT NO-TOUCH).
    pub fn leave_untouched(&mut self) {
        self.stamp = 0;
    }

    /// Whether an entry counts as absent.
    #[inline(always)]
    pub(in crate::keyspace) fn has_expired(&self, entry: &Entry) -> bool {
        entry.may_expire()
            && (entry.expires_at_ms().is_some_and(|expires_at_ms| self.is_over(expires_at_ms))
                || entry.has_field_expiries() && self.has_no_field(entry))
    }

    /// Whether a hash has no field any more, since all have expired.
    #[cold]
    fn has_no_field(&self, entry: &Entry) -> bool {
        entry.ends_at_ms().is_some_and(|ends_at_ms| self.is_over(ends_at_ms))
    }

    /// The moment at which the transaction looks at the fields of hashes. In a replay none has expired.
    pub(in crate::keyspace) fn field_moment_ms(&self) -> u64 {
        if self.is_replay { 0 } else { self.now_ms() }
    }

    /// The value of an entry at the transaction's moment, with the facts of its type.
    pub(in crate::keyspace) fn value_of<'e>(&self, entry: &'e Entry) -> Value<'e> {
        let content = if entry.has_field_expiries() { self.content_of(entry) } else { entry.content() };
        self.keyspace.value_of_kind(entry.kind(), content)
    }

    /// The fields of a hash at the transaction's moment. If some have expired, the transaction notes that it
    /// passed over them.
    #[cold]
    fn content_of<'e>(&self, entry: &'e Entry) -> Content<'e> {
        let now_ms = self.field_moment_ms();
        self.pass_over_fields(entry, now_ms);
        entry.content_at(now_ms)
    }

    fn pass_over_fields(&self, entry: &Entry, now_ms: u64) {
        if entry.expiring().is_some_and(|fields| fields.earliest_ms() <= now_ms) {
            self.has_seen_expired.set(true);
        }
    }

    /// An entry as a type presents it, at the transaction's moment.
    ///
    /// # Errors
    ///
    /// [`WrongType`], if the value is of another type.
    #[inline(always)]
    pub(super) fn view_of<'e, T: Type>(&self, entry: &'e Entry) -> Result<T::View<'e>, WrongType> {
        if T::FACTS.kind == HASH_KIND && entry.has_field_expiries() {
            let now_ms = self.field_moment_ms();
            self.pass_over_fields(entry, now_ms);
            return entry.view_at::<T>(now_ms);
        }
        entry.view::<T>()
    }

    /// Whether the moment of an expiry has come.
    #[inline(always)]
    pub fn is_over(&self, expires_at_ms: u64) -> bool {
        expires_at_ms <= self.now_ms() && !self.is_replay
    }

    /// Whether the transaction replays a log.
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }

    /// Begins to replay a log. Nothing expires from now on: a replayed request must see keys as they were
    /// when it was logged. Values may be as long as the protocol ever allows, and changes are not logged
    /// again.
    pub fn begin_replay(&mut self) {
        self.is_replay = true;
        self.wanted = self.wanted.without_journal();
    }

    /// Ends the replay. From now on commands run for the first time.
    pub fn end_replay(&mut self) {
        self.is_replay = false;
        self.wanted = self.keyspace.followers.interest.load();
    }

    /// Bytes of memory that the transaction itself takes, which INFO leaves out.
    pub fn own_bytes(&self) -> usize {
        match &self.held {
            Held::One { .. } => 0,
            Held::Many(shards) => {
                taken_bytes(shards.capacity() * size_of::<(usize, MutexGuard<'_, Shard>)>())
            }
        }
    }
}

/// The shards of keys.
impl Transaction<'_> {
    #[inline(always)]
    pub(in crate::keyspace) fn shard(&self, key: &[u8]) -> (KeyLocation, &Shard) {
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
    pub(in crate::keyspace) fn shard_mut(&mut self, key: &[u8]) -> (KeyLocation, &mut Shard) {
        match &mut self.held {
            Held::One { key: held, spot, shard } if is_same(held, key) => (*spot, shard),
            Held::One { .. } => stray(),
            Held::Many(shards) => {
                let (spot, at) = place(self.keyspace, shards, key);
                (spot, &mut shards[at].1)
            }
        }
    }

    /// The entry of a key in the current database, expired or not.
    #[inline(always)]
    pub(in crate::keyspace) fn entry(&self, key: &[u8]) -> Option<&Entry> {
        let (spot, shard) = self.shard(key);
        shard.table(self.database).and_then(|table| table.find(spot, key))
    }

    /// The entry of the key with this hash in the current database, if the transaction holds its shard.
    #[cold]
    pub(in crate::keyspace) fn entry_of_hash(&self, hash: u64) -> Option<&Entry> {
        let shard = match &self.held {
            Held::One { spot, shard, .. } if spot.hash == hash => shard,
            Held::One { .. } => return None,
            Held::Many(shards) => {
                let at = shards.binary_search_by_key(&self.keyspace.shard_of(hash), |(number, _)| *number);
                &shards[at.ok()?].1
            }
        };
        let is_meant = |entry: &Entry| self.keyspace.hash(entry.key()) == hash;
        shard.table(self.database)?.find_by(hash, is_meant)
    }
}

/// The spot of a key, and the position of its shard in `shards`.
#[inline(never)]
fn place(keyspace: &Keyspace, shards: &HeldShards<'_>, key: &[u8]) -> (KeyLocation, usize) {
    let hash = keyspace.hash(key);
    let at = shards.binary_search_by_key(&keyspace.shard_of(hash), |(number, _)| *number);
    (KeyLocation::of(hash), at.unwrap_or_else(|_| stray()))
}

/// Whether two keys are the same. Nearly always they are even the same bytes in memory.
#[inline]
fn is_same(held: &[u8], key: &[u8]) -> bool {
    std::ptr::eq(held, key) || held == key
}

/// Panics: the facts of a command are wrong. No request can cause it: the keys of a script's command are held
/// before the command runs ([`Transaction::hold`]).
#[cold]
fn stray() -> ! {
    panic!("a handler touched a key that its command does not name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_hold_different_keys_of_one_name() {
        let keyspace = Keyspace::alone(2);
        keyspace.begin(0, b"k").unwrap().put(b"k", b"zero", Expiry::Never);
        assert_eq!(keyspace.begin(1, b"k").unwrap().get_bytes(b"k"), None);
        assert!(keyspace.begin(1, b"k").unwrap().insert_if_absent(b"k", b"one", Expiry::Never));
        assert_eq!(keyspace.begin(0, b"k").unwrap().get_bytes(b"k"), Some(&b"zero"[..]));
        keyspace.begin_all(1).unwrap().flush_database();
        let sizes: Vec<usize> =
            keyspace.begin_all(0).unwrap().database_sizes().map(|size| size.keys).collect();
        assert_eq!(sizes, [1, 0]);
    }

    #[test]
    fn several_keys_in_any_shards_are_held() {
        let keyspace = Keyspace::alone(1);
        let keys: Vec<String> = (0..5000).map(|number| format!("key:{number}")).collect();
        let mut tx = keyspace.begin_many(0, keys.iter().map(|key| key.as_bytes())).unwrap();
        for key in &keys {
            assert!(tx.insert_if_absent(key.as_bytes(), b"v", Expiry::Never));
        }
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().database_size().keys, keys.len());
    }

    #[test]
    fn a_touched_key_is_found_after_any_changes() {
        let keyspace = Keyspace::alone(1);
        let keys: Vec<Vec<u8>> = (0..20_000).map(|number| format!("key:{number}").into_bytes()).collect();
        let (there, new) = keys.split_at(5_000);
        for key in there {
            keyspace.begin(0, key).unwrap().put(key, b"old", Expiry::Never);
        }
        let mut spots: Vec<KeyLocation> =
            keys.iter().map(|key| KeyLocation::of(keyspace.hash(key))).collect();
        spots.iter_mut().for_each(|spot| keyspace.touch(0, spot));
        // New keys take old places, and tables grow.
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
            assert_eq!(tx.get_bytes(key), expected, "{number}");
            tx.put(key, b"newest", Expiry::Never);
            assert_eq!(tx.get_bytes(key), Some(&b"newest"[..]), "{number}");
            assert!(tx.remove(key) && tx.get_bytes(key).is_none(), "{number}");
        }
    }

    #[test]
    fn an_expired_key_is_absent_before_it_is_freed() {
        let keyspace = Keyspace::alone(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        let now_ms = tx.now_ms();
        tx.put(b"k", b"v", Expiry::At(now_ms + 1));
        assert_eq!(tx.get_bytes(b"k"), Some(&b"v"[..]));
        tx.moment.set(2 * (now_ms + 1));
        assert_eq!(tx.get_bytes(b"k"), None);
        assert!(tx.has_seen_expired());
        assert!(tx.insert_if_absent(b"k", b"w", Expiry::Keep), "an expired lock can be taken");
        assert_eq!(tx.expires_at_ms(b"k"), Some(None), "and keeps nothing of the old one");
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().counters().expired, 1);
    }

    #[test]
    fn an_expiry_that_has_passed_deletes() {
        let keyspace = Keyspace::alone(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.put(b"k", b"v", Expiry::Never);
        tx.put(b"k", b"v", Expiry::At(1));
        assert_eq!(tx.get_bytes(b"k"), None);
        tx.put(b"k", b"v", Expiry::Never);
        tx.set_expiry(b"k", Some(1));
        assert_eq!(tx.get_bytes(b"k"), None);
    }

    #[test]
    #[should_panic(expected = "a handler touched a key")]
    fn a_key_that_was_not_named_cannot_be_touched() {
        let keyspace = Keyspace::alone(1);
        keyspace.begin(0, b"a").unwrap().put(b"b", b"v", Expiry::Never);
    }
}
