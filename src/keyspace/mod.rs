//! The data set: databases of keys, cut into shards that are locked one by one.
//!
//! A key's hash names its shard, in every database alike, so that what concerns one key (also its move to
//! another database) needs one lock. Nobody outside this room sees a shard: handlers work on a
//! [`Transaction`], which holds the shards of the keys it was begun for, locked in ascending order, so that
//! transactions can wait for each other but never in a circle.
//!
//! [`entry`] is how one key lies in memory, [`buckets`] how it is found, [`shard`] the tables,
//! [`transaction`] what a command can do, [`scan`] how one goes over all keys without stopping anybody,
//! [`expiry`] how keys whose time has come are freed when nobody asks for them, [`access`] what is noted of
//! their use, [`eviction`] which keys go when memory is short, [`interest`] who wants to know of changes and
//! [`following`] how they come to know, [`changes`] what a transaction notes of its own, [`parts`] how a part
//! of a value is changed, [`records`] and [`journal`] what is logged, [`aftermath`] what a transaction leaves
//! to others, [`lens`] which keys act as locks, [`locking`] how shards are waited for and
//! [`sync`] with what, [`snapshot`] how a state of one moment is taken out while clients go on, [`totals`]
//! what all shards come to.

pub mod access;
mod aftermath;
mod buckets;
mod changes;
mod entry;
mod eviction;
pub mod expiry;
mod following;
mod interest;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod journal;
mod lens;
mod locking;
mod parts;
pub mod records;
mod scan;
mod shard;
mod snapshot;
mod sync;
mod totals;
mod transaction;
mod watching;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::clock::Clock;
use crate::events::EventClass;
use access::Access;
pub use aftermath::Garbage;
pub use entry::Encoding;
use eviction::Pool;
pub use eviction::{Candidates, First};
use interest::Interest;
pub use interest::{Effect, Mark};
pub use journal::{Journal, Piece};
use lens::Allowance;
pub use lens::{LockChange, LockNews, Token};
use locking::LongHeld;
pub use locking::{Busy, NotNow};
pub use parts::Part;
pub use scan::{Cursor, Names, ScanLimit};
use shard::LockedShard;
pub use shard::{DatabaseSize, KeyspaceCounters};
use snapshot::PreservedBytes;
pub use snapshot::{SavedKey, Slice, Snapshot, Use};
use sync::Mutex;
use totals::Losses;
pub use totals::Totals;
pub use transaction::{Expiry, Facts, Transaction};
pub use watching::Watching;

/// How many shards there are. In a prototype with 8 million keys the longest insert while tables grow was
/// 343 ms with one shard and 0.55 ms with 1,024; with 4,096 reads became 5–10% slower.
/// A model needs few, to go through all of them.
const SHARDS: usize = if cfg!(all(test, feature = "shuttle")) { 4 } else { 1024 };

/// All databases.
#[derive(Debug)]
pub struct Keyspace {
    shards: Box<[LockedShard; SHARDS]>,
    /// Seeded with the system's random numbers, so that nobody outside, who sees neither a hash nor the order
    /// of a table, can aim keys at one bucket. SipHash would promise more and costs 0.2 µs a command here.
    hashing: SeedableRandomState,
    clock: Clock,
    access: Access,
    /// One at a time: what was read before a turn of the clock is not to be noted after it.
    following: Mutex<()>,
    pool: Pool,
    losses: Losses,
    interest: Interest,
    journal: Journal,
    lock_allowance: Allowance,
    /// Whether a script has held shards for so long that nobody else is to wait for them.
    is_busy: Arc<AtomicBool>,
    long_held: LongHeld,
    /// Lets other threads serve the clients of the one that calls it; from when somebody says how.
    hand_over: OnceLock<fn()>,
    /// Whether a snapshot waits for entries.
    has_snapshot: AtomicBool,
    preserved_bytes: PreservedBytes,
    /// How often all databases were emptied at once.
    flushes: AtomicU64,
    databases: usize,
    /// How long a value may become.
    value_bytes_max: AtomicUsize,
    /// Whether keys may have to go because of their use.
    evicts_by_use: AtomicBool,
}

impl Keyspace {
    /// An empty keyspace of `databases` databases.
    pub fn new(databases: usize) -> Keyspace {
        // In its place from the beginning: it is large for a stack.
        let shards: Vec<_> = (0..SHARDS).map(|_| LockedShard::default()).collect();
        let shards = shards.try_into().unwrap_or_else(|_| unreachable!("there are so many"));
        let hashing = SeedableRandomState::with_seed(random_number(), &HASH_SEED);
        Keyspace {
            shards,
            hashing,
            clock: Clock::default(),
            access: Access::default(),
            following: Mutex::default(),
            pool: Pool::default(),
            losses: Losses::default(),
            interest: Interest::default(),
            journal: Journal::default(),
            lock_allowance: Allowance::default(),
            is_busy: Arc::default(),
            long_held: LongHeld::default(),
            hand_over: OnceLock::new(),
            has_snapshot: AtomicBool::new(false),
            preserved_bytes: PreservedBytes::default(),
            flushes: AtomicU64::new(0),
            databases,
            value_bytes_max: AtomicUsize::new(usize::MAX),
            evicts_by_use: AtomicBool::new(false),
        }
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.databases
    }

    /// The clock by which keys expire.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Lets what is noted of the use of keys follow the clock; to be called more often than once a second.
    pub fn follow_clock(&self) {
        let _following = self.following.lock();
        self.access.advance(self.clock.since_epoch());
    }

    /// Changes what is noted of the use of keys, and how: see [`Access::configure`].
    pub fn configure_access(&self, counts_frequency: bool, log_factor: u32, decay_minutes: u32) {
        let _following = self.following.lock();
        self.access.configure(counts_frequency, log_factor, decay_minutes, self.clock.since_epoch());
    }

    /// Changes how long a value may become.
    pub fn set_value_bytes_max(&self, bytes: usize) {
        self.value_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Says whether keys may have to go because of their use: with a limit to memory, and LRU or LFU.
    pub fn set_evicts_by_use(&self, is_on: bool) {
        self.evicts_by_use.store(is_on, Ordering::Relaxed);
    }

    /// Says how a thread that is about to wait for a shard lets others serve its clients.
    pub fn set_hand_over(&self, hand_over: fn()) {
        // There is but one way in a process.
        let _ = self.hand_over.set(hand_over);
    }

    /// Chooses the events that are published.
    pub fn set_event_classes(&self, classes: EventClass) {
        self.interest.set_classes(classes);
    }

    /// Says whether anybody keeps copies of keys and wants to know when they change.
    pub fn set_tracking(&self, is_on: bool) {
        self.interest.set_tracking(is_on);
    }

    /// What is written down of changes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// How often keys were written or deleted; none if somebody holds a shard for long.
    pub fn changes(&self) -> Option<u64> {
        (0..SHARDS).map(|number| Some(self.lock_soon(number)?.changes)).sum()
    }

    /// How often all databases were emptied at once.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// What is noted of the use of keys.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Makes ready what a transaction on a key will look at, without waiting for it: the memory of many
    /// keys comes in the time of one if all are touched before the first is used. Measured at a million keys
    /// and pipelines of a hundred: a GET takes 0.73 of the processor time.
    #[inline]
    pub fn touch(&self, database: usize, spot: &mut Spot) {
        let Spot { hash, place } = spot;
        let hash = *hash;
        // Whoever holds the shard may do so for long, and nothing depends on this.
        if let Some(shard) = self.shards[shard_of(hash)].try_lock()
            && let Some(table) = shard.table(database)
            && let Some(touched) = table.touch(hash)
        {
            *place = touched;
        }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hashing.build_hasher();
        hasher.write(key);
        hasher.finish()
    }
}

/// The part of the hashes' seed that all keyspaces of a process share.
static HASH_SEED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random_number()));

/// The standard library seeds its hashers with the system's random numbers.
fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

/// Where the entry of a key may be: nowhere but in the bucket of its hash, and probably at the place that was
/// looked at when it was [touched](Keyspace::touch), whatever may have happened since.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    hash: u64,
    place: usize,
}

impl Spot {
    /// That of a hash, if no more is known.
    pub fn of(hash: u64) -> Spot {
        Spot { hash, place: usize::MAX }
    }
}

/// The shard of a hash. A table takes its bucket from the low half and its tag from the highest eight bits,
/// so the shard comes from between.
fn shard_of(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}
