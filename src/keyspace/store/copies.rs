//! Copies of entries, in the order in which a snapshot writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::allocator::taken_bytes;
use crate::keyspace::store::entry::Entry;
use crate::values::Content;

/// Entries of one slice. Copying this many takes a fraction of a millisecond, even if none is in the caches.
const SLICE_ENTRIES_MAX: usize = 1024;
/// Bytes of one slice. The last entry is copied whole, so it may exceed the limit; long values are shared.
const SLICE_BYTES_MAX: usize = 256 << 10;

/// Bytes of all preserved entries of a keyspace.
pub(in crate::keyspace) type PreservedBytes = Arc<AtomicUsize>;

/// Entries that a snapshot waits for, and that have left their table or have changed since.
#[derive(Debug)]
pub(in crate::keyspace) struct Preserved {
    entries: Vec<Entry>,
    /// The sum over the keyspace, to which these bytes are added.
    bytes: PreservedBytes,
}

impl Preserved {
    /// No entries yet. `bytes` is the sum over the keyspace.
    pub(in crate::keyspace) fn new(bytes: &PreservedBytes) -> Preserved {
        Preserved { entries: Vec::new(), bytes: Arc::clone(bytes) }
    }

    /// Preserves a copy of an entry that is about to change.
    #[cold]
    pub(in crate::keyspace) fn copy(&mut self, entry: &mut Entry, epoch: bool) {
        self.push(entry.copied());
        entry.set_epoch(epoch);
    }

    /// Preserves an entry that has left its table.
    #[cold]
    pub(in crate::keyspace) fn push(&mut self, entry: Entry) {
        self.bytes.fetch_add(taken_bytes(entry.bytes_in_all()), Ordering::Relaxed);
        self.entries.push(entry);
    }

    pub(in crate::keyspace) fn entries(&self) -> std::slice::Iter<'_, Entry> {
        self.entries.iter()
    }
}

impl Drop for Preserved {
    fn drop(&mut self) {
        let bytes = self.entries.iter().map(|entry| taken_bytes(entry.bytes_in_all())).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The writer's place in a shard: a place in one table, valid while the table keeps its layout.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Position {
    table: Option<(u16, u32)>,
    pub(in crate::keyspace) number: usize,
}

impl Position {
    /// Returns the place in a table where the writer goes on.
    pub(in crate::keyspace) fn enter(&mut self, database: u16, layout: u32) -> usize {
        let table = Some((database, layout));
        if self.table != table {
            *self = Position { table, number: 0 };
        }
        self.number
    }
}

/// Entries of one slice of a snapshot.
#[derive(Debug)]
pub(in crate::keyspace) struct Copies {
    entries_max: usize,
    bytes_max: usize,
    small: Vec<Small>,
    /// The keys and values of `small`, one after the other.
    bytes: Vec<u8>,
    /// Shares of large values and of long strings, and locks with fencing numbers.
    shares: Vec<(u16, Entry)>,
    preserved: Vec<(u16, Preserved)>,
    /// Whether it takes no more, though there is room.
    is_closed: bool,
}

#[derive(Debug)]
struct Small {
    database: u16,
    stamp: u32,
    kind: u8,
    key_bytes: usize,
    value_bytes: usize,
    expires_at_ms: Option<u64>,
}

/// A copy of a small entry.
#[derive(Debug)]
pub(in crate::keyspace) struct Copied<'a> {
    pub(in crate::keyspace) database: u16,
    pub(in crate::keyspace) stamp: u32,
    pub(in crate::keyspace) kind: u8,
    pub(in crate::keyspace) key: &'a [u8],
    pub(in crate::keyspace) value: &'a [u8],
    pub(in crate::keyspace) expires_at_ms: Option<u64>,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies::with_limits(SLICE_ENTRIES_MAX, SLICE_BYTES_MAX)
    }
}

impl Copies {
    /// None yet, with room for at most `entries_max` entries and `bytes_max` bytes.
    pub(in crate::keyspace) fn with_limits(entries_max: usize, bytes_max: usize) -> Copies {
        let (small, bytes, shares, preserved) = Default::default();
        Copies { entries_max, bytes_max, small, bytes, shares, preserved, is_closed: false }
    }

    /// Whether there are enough, so that the writer lets other threads have their turn.
    pub(in crate::keyspace) fn is_full(&self) -> bool {
        let entries = self.small.len() + self.shares.len();
        self.is_closed || entries >= self.entries_max || self.bytes.len() >= self.bytes_max
    }

    /// Takes no more.
    pub(in crate::keyspace) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether there is none.
    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.shares.is_empty() && self.preserved.is_empty()
    }

    /// Removes all, and keeps the memory for the next ones.
    pub(in crate::keyspace) fn clear(&mut self) {
        self.small.clear();
        self.bytes.clear();
        // A long value has made the buffer large.
        self.bytes.shrink_to(2 * self.bytes_max);
        self.shares.clear();
        self.preserved.clear();
        self.is_closed = false;
    }

    /// Adds an entry of a database.
    pub(in crate::keyspace) fn add(&mut self, database: u16, entry: &Entry) {
        let value = match entry.content() {
            Content::Bytes(value) if entry.fence().is_none() => value,
            _ => return self.shares.push((database, entry.copied())),
        };
        let (key, kind) = (entry.key(), entry.kind());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.small.push(Small {
            database,
            stamp: entry.stamp(),
            kind,
            key_bytes: key.len(),
            value_bytes: value.len(),
            expires_at_ms: entry.expires_at_ms(),
        });
    }

    /// Adds what was preserved of a database.
    pub(in crate::keyspace) fn add_preserved(&mut self, database: u16, preserved: Preserved) {
        if !preserved.entries.is_empty() {
            self.preserved.push((database, preserved));
        }
    }

    /// The small entries.
    pub(in crate::keyspace) fn copied(&self) -> impl Iterator<Item = Copied<'_>> {
        let mut rest = self.bytes.as_slice();
        self.small.iter().map(move |small| {
            let (key, after) = rest.split_at(small.key_bytes);
            let (value, after) = after.split_at(small.value_bytes);
            rest = after;
            let Small { database, stamp, kind, expires_at_ms, .. } = *small;
            Copied { database, stamp, kind, key, value, expires_at_ms }
        })
    }

    /// All other entries, with their databases.
    pub(in crate::keyspace) fn entries(&self) -> impl Iterator<Item = (u16, &Entry)> {
        let preserved = self.preserved.iter();
        let preserved =
            preserved.flat_map(|(database, entries)| entries.entries().map(|entry| (*database, entry)));
        self.shares.iter().map(|(database, entry)| (*database, entry)).chain(preserved)
    }
}
