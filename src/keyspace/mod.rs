//! The data set: databases of keys, cut into shards. Each shard has its own lock.
//!
//! The hash of a key selects its shard, and the shard is the same in every database. So a command on one key
//! needs one lock, even if it moves the key to another database. No module outside this folder sees a shard:
//! handlers work on a [`Transaction`], which holds the shards of the keys that it was begun for. It locks
//! them in ascending order, so transactions can wait for each other, but never in a circle.
//!
//! - [`store`] holds keys and values in memory.
//! - [`transaction`] is what a command can do to them.
//! - [`transaction::following`] records changes for clients that watch or listen, for the log and for the
//!   lock lens.
//! - [`scan`] visits all keys while other clients go on.
//! - [`snapshot`] copies the state of one moment while clients go on.
//! - [`expiry`] frees expired keys that no command asks for.
//! - [`access`] keeps how recently or how often each key was used.
//! - [`eviction`] chooses the keys to free when memory is short.
//! - [`totals`] sums up all shards.
//! - [`fencing`] numbers the holders of locks.

pub(crate) mod access;
mod eviction;
pub(crate) mod expiry;
pub(crate) mod fencing;
#[cfg(all(test, feature = "shuttle"))]
pub(crate) mod interleavings;
mod scan;
mod sizes;
mod snapshot;
mod store;
mod totals;
mod transaction;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::clock::Clock;
use crate::sync::Mutex;
use crate::values::{Content, KINDS, Limits, TypeFacts, Value};
use access::Access;
use eviction::Pool;
pub(crate) use eviction::{Candidates, First};
use fencing::Fencing;
pub(crate) use scan::{Cursor, Names, ScanLimit};
pub(crate) use sizes::{CountedSizes, Histogram, KeySizes, SIZED_KINDS};
pub(crate) use snapshot::{SavedKey, Slice, Snapshot, Use};
use store::copies::PreservedBytes;
use store::entry::Entry;
use store::locking::LongHeld;
pub(crate) use store::locking::{Busy, NotNow};
pub(crate) use store::shard::KeyspaceCounters;
pub(crate) use store::table::DatabaseSize;
pub(crate) use store::token::Token;
use totals::ReadsOfCopies;
pub(crate) use totals::Totals;
pub use transaction::Expiry;
pub(crate) use transaction::change::Change;
pub(crate) use transaction::following::Followers;
use transaction::following::SideTables;
pub(crate) use transaction::following::aftermath::Garbage;
pub use transaction::following::blocked::Outcome;
pub(crate) use transaction::following::blocked::{
    Attempt, Attempted, Claimed, Served, Waiter, WaitingClients,
};
pub(crate) use transaction::following::bonds::{BondShown, BondTerms};
pub(crate) use transaction::following::guarded::Guarded;
pub(crate) use transaction::following::guards::{
    Guard, GuardWish, PERMIT_END_MS_MAX, PermitForm, PermitWish,
};
pub(crate) use transaction::following::interest::Interest;
pub(crate) use transaction::following::journal::{Journal, LongKey, Own, Piece};
use transaction::following::lens::Allowance;
pub(crate) use transaction::following::lens::Grouping;
pub(crate) use transaction::following::lifelines::{Cut, Lifeline};
use transaction::following::losses::Losses;
pub(crate) use transaction::following::news::{Effect, KeptLock, LockChange, LockNews, LossReason, LostLock};
pub(crate) use transaction::following::records;
pub(crate) use transaction::following::surveys::{KeySurvey, Survey, Surveyed};
pub(crate) use transaction::following::watching::Watching;
pub(crate) use transaction::long_texts::{Missed, Prepared, Shared, complete, missing_bytes};
pub(crate) use transaction::parts::Part;
pub(crate) use transaction::{
    Everything, Facts, Glimpse, Hold, HoldsSome, Missing, NotEverything, Transaction, Walk,
};

/// The shards of a keyspace for many keys, and the most that one may have. In a prototype with 8 million keys
/// the longest insert while tables grow was 343 ms with one shard and 0.55 ms with 1,024. With 4,096 shards
/// reads became 5–10% slower.
pub(crate) const SHARDS_MAX: usize = 1024;

/// A shard of this keyspace, without and with its lock.
type Shard = store::shard::Shard<SideTables>;
type LockedShard = store::shard::LockedShard<SideTables>;

/// The number of databases and of shards.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many databases there are.
    pub databases: usize,
    /// The number by which clients know the first one.
    pub first_database: usize,
    /// Shards: a power of two, at most 1,024.
    pub shards: usize,
    /// The types of its values.
    pub types: &'static [&'static TypeFacts],
}

impl Shape {
    /// A server's keyspace. The model of the threads uses few shards, so that it can visit all of them.
    pub fn of(databases: usize, types: &'static [&'static TypeFacts]) -> Shape {
        let shards = if cfg!(all(test, feature = "shuttle")) { 4 } else { SHARDS_MAX };
        Shape { databases, first_database: 0, types, shards }
    }
}

/// The keys and values of all databases.
#[derive(Debug)]
pub struct Keyspace {
    /// The number of shards is in the [`Shape`].
    shards: Box<[LockedShard]>,
    /// Seeded with random numbers of the system. An attacker sees neither a hash nor the order of a table, so
    /// he cannot aim keys at one bucket. SipHash would promise more, but costs 0.2 µs a command here.
    hashing: SeedableRandomState,
    clock: Arc<Clock>,
    followers: Arc<Followers>,
    fencing: Arc<Fencing>,
    access: Access,
    /// Held while `access` follows the clock: after the clock was turned, no thread may store a moment that
    /// it read before.
    following_clock: Mutex<()>,
    pool: Pool,
    losses: Losses,
    reads_of_copies: ReadsOfCopies,
    lock_allowance: Allowance,
    /// Whether a script has held shards for so long that no other client should wait for them.
    is_busy: Arc<AtomicBool>,
    long_held: LongHeld,
    /// Lets other threads serve the clients of the calling thread. The server sets it.
    hand_over: OnceLock<fn()>,
    /// Keys that no client sees, if there are any.
    hidden: OnceLock<scan::Hidden>,
    /// Frees garbage on another thread. The server sets it.
    background: OnceLock<FreeInBackground>,
    /// Whether a snapshot waits for entries.
    has_snapshot: AtomicBool,
    preserved_bytes: PreservedBytes,
    /// How often a command emptied all databases at once.
    flushes: AtomicU64,
    databases: usize,
    first_database: usize,
    /// The types by their kinds.
    types: [&'static TypeFacts; KINDS],
    /// Up to which size collections are packed.
    limits: Limits,
    /// The most bytes that a value may have.
    value_bytes_max: AtomicUsize,
    /// Whether DUMP compresses long strings.
    compresses_dumps: AtomicBool,
    /// Whether payloads and files are read whatever their checksums are.
    skips_checksums: AtomicBool,
}

impl Keyspace {
    /// An empty keyspace. Its keys expire by this clock, and these followers get its changes.
    ///
    /// # Panics
    ///
    /// If the number of shards is not a power of two, or is above 1,024.
    pub fn new(shape: Shape, clock: Arc<Clock>, followers: Arc<Followers>) -> Keyspace {
        let Shape { databases, first_database, shards, types } = shape;
        let mut by_kind = [types[0]; KINDS];
        types.iter().for_each(|facts| by_kind[usize::from(facts.kind)] = facts);
        assert!(shards.is_power_of_two() && shards <= SHARDS_MAX, "{shards} shards");
        let shards = (0..shards).map(|_| LockedShard::default()).collect();
        let hashing = SeedableRandomState::with_seed(random_number(), &HASH_SEED);
        let fencing = Arc::new(Fencing::new(clock.now_ms()));
        Keyspace {
            shards,
            hashing,
            clock,
            followers,
            fencing,
            access: Access::default(),
            following_clock: Mutex::default(),
            pool: Pool::default(),
            losses: Losses::default(),
            reads_of_copies: ReadsOfCopies::default(),
            lock_allowance: Allowance::default(),
            is_busy: Arc::default(),
            long_held: LongHeld::default(),
            hand_over: OnceLock::new(),
            hidden: OnceLock::new(),
            background: OnceLock::new(),
            has_snapshot: AtomicBool::new(false),
            preserved_bytes: PreservedBytes::default(),
            flushes: AtomicU64::new(0),
            databases,
            first_database,
            types: by_kind,
            limits: Limits::default(),
            value_bytes_max: AtomicUsize::new(usize::MAX),
            compresses_dumps: AtomicBool::new(true),
            skips_checksums: AtomicBool::new(false),
        }
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.databases
    }

    /// The numbers by which clients know the databases.
    pub fn database_numbers(&self) -> Range<usize> {
        self.first_database..self.first_database + self.databases
    }

    /// The number by which clients know a database.
    pub fn shown_database(&self, database: usize) -> usize {
        self.first_database + database
    }

    /// Lets the stamps of used keys follow the clock. The caller must call it more often than once a second.
    pub fn follow_clock(&self) {
        let _following = self.following_clock.lock();
        self.access.advance(self.clock.since_epoch());
    }

    /// Changes what the stamps of used keys contain, and whether reading is a use: see [`Access`].
    pub fn configure_access(
        &self,
        goes_by_writes: bool,
        counts_frequency: bool,
        log_factor: u32,
        decay_minutes: u32,
    ) {
        let _following = self.following_clock.lock();
        self.access.go_by_writes(goes_by_writes);
        self.access.configure(counts_frequency, log_factor, decay_minutes, self.clock.since_epoch());
    }

    /// Changes the most bytes that a value may have.
    pub fn set_value_bytes_max(&self, bytes: usize) {
        self.value_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// The most bytes that a value may have.
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max.load(Ordering::Relaxed)
    }

    /// Sets whether DUMP compresses long strings.
    pub fn set_compresses_dumps(&self, is_on: bool) {
        self.compresses_dumps.store(is_on, Ordering::Relaxed);
    }

    /// Whether DUMP compresses long strings.
    pub fn compresses_dumps(&self) -> bool {
        self.compresses_dumps.load(Ordering::Relaxed)
    }

    /// Sets whether payloads and files are read whatever their checksums are (DEBUG
    /// SET-SKIP-CHECKSUM-VALIDATION).
    pub fn set_skips_checksums(&self, is_on: bool) {
        self.skips_checksums.store(is_on, Ordering::Relaxed);
    }

    /// Whether payloads and files are read whatever their checksums are.
    pub fn skips_checksums(&self) -> bool {
        self.skips_checksums.load(Ordering::Relaxed)
    }

    /// Sets how a thread that is about to wait for a shard lets other threads serve its clients.
    pub fn set_hand_over(&self, hand_over: fn()) {
        // A process has only one way, so the first one stays.
        let _ = self.hand_over.set(hand_over);
    }

    /// Sets how garbage is freed on another thread.
    pub fn set_background(&self, free: impl Fn(Garbage) -> Option<Garbage> + Send + Sync + 'static) {
        let _ = self.background.set(FreeInBackground(Box::new(free)));
    }

    /// Frees garbage on another thread, for a caller that holds no lock. If that thread has too much to do,
    /// the caller frees it.
    pub(in crate::keyspace) fn free_in_background(&self, garbage: Garbage) {
        let left = match self.background.get() {
            Some(background) => (background.0)(garbage),
            None => Some(garbage),
        };
        drop(left);
    }

    /// The clients and the log that want to know of changes.
    pub fn followers(&self) -> &Followers {
        &self.followers
    }

    /// The fencing numbers of locks.
    pub fn fencing(&self) -> &Arc<Fencing> {
        &self.fencing
    }

    /// How often keys were written or deleted; `None` if another thread holds a shard for long.
    pub fn changes(&self) -> Option<u64> {
        self.shard_numbers().map(|number| Some(self.lock_soon(number)?.changes)).sum()
    }

    /// How often a command emptied all databases at once.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// How many fields of hashes were freed because they had expired.
    pub fn expired_fields(&self) -> u64 {
        self.losses.expired_fields()
    }

    /// The moment and the rules for the stamps of used keys.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Asks the processor to fetch the memory that a transaction on a key will read, and does not wait for
    /// it. If a batch touches all its keys before it uses the first, the memory of many keys arrives in the
    /// time of one. Measured with a million keys and pipelines of a hundred: a GET takes 0.73 of the
    /// processor time.
    #[inline]
    pub fn touch(&self, database: usize, spot: &mut KeyLocation) {
        let KeyLocation { hash, place } = spot;
        let hash = *hash;
        // Another thread may hold the shard for long. Then nothing is fetched, which is harmless.
        if let Some(shard) = self.shards[self.shard_of(hash)].try_lock()
            && let Some(table) = shard.table(database)
            && let Some(touched) = table.touch(hash)
        {
            *place = touched;
        }
    }

    /// The value of an entry, with the facts of its type. Of a hash, all fields are there, expired or not.
    fn value_of<'e>(&self, entry: &'e Entry) -> Value<'e> {
        self.value_of_kind(entry.kind(), entry.content())
    }

    /// A value of the type with this kind.
    fn value_of_kind<'v>(&self, kind: u8, content: Content<'v>) -> Value<'v> {
        Value { facts: self.types[usize::from(kind)], content }
    }

    /// Up to which size collections are packed.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The numbers of all shards.
    fn shard_numbers(&self) -> Range<usize> {
        0..self.shards.len()
    }

    /// The shard of a hash. A table takes its bucket from the low half of the hash and its tag from the
    /// highest eight bits, so the shard comes from the bits between them.
    #[inline(always)]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// Passes garbage to another thread; returns it if that thread has too much to do.
struct FreeInBackground(Box<dyn Fn(Garbage) -> Option<Garbage> + Send + Sync>);

impl fmt::Debug for FreeInBackground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FreeInBackground")
    }
}

/// The part of the hashes' seed that all keyspaces of a process share.
static HASH_SEED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random_number()));

/// The standard library seeds its hashers with random numbers of the system.
fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Where the entry of a key may be: always in the bucket of its hash, and probably at the place where it was
/// [touched](Keyspace::touch). The entry may have moved since.
#[derive(Clone, Copy, Debug)]
pub struct KeyLocation {
    hash: u64,
    place: usize,
}

impl KeyLocation {
    /// The spot of a hash, if nothing more is known.
    pub fn of(hash: u64) -> KeyLocation {
        KeyLocation { hash, place: usize::MAX }
    }
}

#[cfg(test)]
impl Keyspace {
    /// A keyspace with its own clock and without followers.
    pub fn alone(databases: usize) -> Keyspace {
        const STRINGS: TypeFacts = TypeFacts {
            limit: |_| crate::values::Limit::default(),
            name: "string",
            kind: crate::values::STRING_KIND,
            events: crate::events::EventClass::STRING,
            encoding: |_, _, _| "raw",
            len: |_| 1,
            each: |_, _| (),
            is_ordered: true,
            log: |sink, key, content, expires_at_ms| {
                records::set(sink, key, content.text().unwrap_or_default(), expires_at_ms)
            },
            rdb_types: &[],
            rdb_type: |_| 0,
            save: |_, _, _, _| Ok(()),
            load: |_, _, _, _| Ok(crate::values::Loaded::Packed),
        };
        Keyspace::new(Shape::of(databases, &[&STRINGS]), Arc::default(), Arc::default())
    }

    /// The number of a key's shard.
    pub fn shard_of_key(&self, key: &[u8]) -> usize {
        self.shard_of(self.hash(key))
    }

    /// The clock by which keys expire.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The log's records.
    pub fn journal(&self) -> &Journal {
        &self.followers.journal
    }
}

#[cfg(test)]
impl Transaction<'_> {
    /// The bytes of a value, as for a command that reads.
    pub fn get_bytes(&self, key: &[u8]) -> Option<&[u8]> {
        self.get_any(key).and_then(|value| value.content.bytes())
    }
}
