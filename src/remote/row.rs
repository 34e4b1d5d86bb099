//! A key with its value, as a store has it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::quality::RandomState;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A key of one database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The number of the database.
    pub database: u32,
    /// The key's name.
    pub name: Arc<[u8]>,
}

impl Key {
    /// A key of a database.
    pub fn new(database: usize, name: &[u8]) -> Key {
        Key { database: database as u32, name: name.into() }
    }

    /// A hash of the key, the same on all machines: a number of 62 bits.
    pub fn slot(&self) -> i64 {
        (xxh3_64_with_seed(&self.name, u64::from(self.database)) >> 2) as i64
    }
}

/// A table by keys.
pub(crate) type KeyMap<V> = HashMap<Key, V, RandomState>;
/// A set of keys.
pub(crate) type KeySet = HashSet<Key, RandomState>;

/// In etcd, all that a batch writes has one version, and may have this number of fencing numbers. The fewer
/// they are, the surer is the clock, in microseconds, ahead of them: etcd would have to write nearly 4,000
/// versions a second all the time.
pub(super) const FENCES_PER_VERSION: usize = 256;
/// The first of them are those of its rows, in their order, to which no request gives a number. A batch draws
/// the others.
pub(super) const FENCES_OF_ROWS: usize = 128;

/// What a store has for a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Different after each change; 0 where the store has nothing at all.
    pub version: i64,
    /// The value; `None` for a key that was deleted, or has expired by the store's clock.
    pub live: Option<Live>,
    /// The fencing number of the value, where the front-end has to remember it; 0 if it is not known.
    pub fence: i64,
    /// The fencing number that a request gives to the value; 0 if it gives none.
    pub granted: i64,
    /// Who has written it, if the store was asked.
    pub tenure: Option<Arc<Tenure>>,
}

/// Who has written a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// The front-end and the client.
    pub holder: String,
    /// The fencing number: it grows whenever the value changes, over all keys.
    pub fence: i64,
    /// When that was, in milliseconds since 1970 by the store's clock.
    pub since_ms: u64,
}

/// A key that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// The number of its type.
    pub kind: u8,
    /// A string as it is, and any other value as DUMP makes it.
    pub value: Bytes,
    /// When it expires, in milliseconds since 1970 by the store's clock; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// Whether it is a lock: a key that was written because it was absent, and what keys of locks are.
    pub is_lock: bool,
}

impl Row {
    /// A guess of the rows of keys that were never seen.
    pub fn absent() -> Arc<Row> {
        Arc::default()
    }

    /// A version that no row has: that of a row which has to be read first.
    pub const UNREAD: i64 = -1;

    /// A row that has to be read first.
    pub fn unread() -> Arc<Row> {
        Arc::new(Row { version: Row::UNREAD, ..Row::default() })
    }

    /// Whether it is a row that a request has made, and not one of the store: that has a version.
    pub(super) fn is_image(&self) -> bool {
        self.version == 0 && self.live.is_some()
    }

    /// The fencing number of a lock, if it is known.
    pub fn known_fence(&self) -> Option<i64> {
        let of_tenure = || self.tenure.as_ref().map(|tenure| tenure.fence);
        Some(self.granted).filter(|granted| *granted != 0).or_else(of_tenure)
    }

    /// Whether a row that is written over this one keeps its fencing number, and its holder: the value is the
    /// same, and no other number was given to it.
    pub fn keeps_tenure_in(&self, written: &Row) -> bool {
        let is_same = match (&self.live, &written.live) {
            (Some(old), Some(new)) => old.kind == new.kind && old.value == new.value,
            _ => false,
        };
        is_same && (written.granted == 0 || self.known_fence() == Some(written.granted))
    }

    /// When it expires, in milliseconds since 1970; `None` for never, and where nothing is.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.live.as_ref()?.expires_at_ms
    }

    /// Bytes of memory that the row takes, about.
    pub fn bytes(&self) -> usize {
        size_of::<Row>() + self.live.as_ref().map_or(0, |live| live.value.len())
    }
}
