//! How many keys have how many elements or bytes, for INFO keysizes.
//!
//! Redis keeps these numbers with each change of each key. Here a request that asks for them counts: it looks
//! at one shard after the other, and other clients wait for a thousandth of the keys at most. So SET and GET
//! pay nothing. A request that only asks for everything gets what was counted before, unless that took less
//! than a hundredth of the time since: an exporter that asks every second costs a hundredth of a core.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Keyspace;
use super::store::entry::Entry;
use super::transaction::{Transaction, Walk};
use crate::allocator::taken_bytes;
use crate::values::STRING_KIND;

/// The kinds of which the sizes are counted, from that of strings on: strings, lists, sets, sorted sets and
/// hashes, as in Redis.
pub(crate) const SIZED_KINDS: usize = 5;

/// Counting may take one in this many parts of the time, unless a client asks for nothing else.
const SHARE: u32 = 100;

/// Behind more keys than these, about a millisecond's, other threads serve the clients of this one.
const KEYS_AT_ONCE: usize = 50_000;

/// The sizes of the keys of one database, by their kinds.
#[derive(Clone, Debug, Default)]
pub struct KeySizes {
    /// Keys by their elements; strings by their bytes.
    pub elements: [Histogram; SIZED_KINDS],
    /// Collections by the bytes that they take.
    pub bytes: [Histogram; SIZED_KINDS],
}

/// Counts keys by the number of digits of their binary sizes, up to the largest that occurs: what was counted
/// last stays in memory, and most databases have no keys.
#[derive(Clone, Debug, Default)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    fn add(&mut self, size: usize) {
        let digits = (usize::BITS - size.leading_zeros()) as usize;
        if self.0.len() <= digits {
            self.0.resize(digits + 1, 0);
        }
        self.0[digits] += 1;
    }

    /// The sizes that occur, each a power of two or 0 for all up to the next one, and how many keys have it.
    pub fn bars(&self) -> impl Iterator<Item = (String, u64)> {
        let label = |digits: usize| match digits.checked_sub(1) {
            None => "0".to_owned(),
            Some(power) => {
                let unit = ["", "K", "M", "G", "T", "P", "E"][power / 10];
                format!("{}{unit}", 1 << (power % 10))
            }
        };
        let counts = self.0.iter().copied().enumerate().filter(|(_, keys)| *keys > 0);
        counts.map(move |(digits, keys)| (label(digits), keys))
    }
}

impl KeySizes {
    fn add(&mut self, keyspace: &Keyspace, entry: &Entry) {
        let kind = usize::from(entry.kind());
        if kind >= SIZED_KINDS {
            return;
        }
        let value = keyspace.value_of(entry);
        let len = match value.content.text() {
            Some(text) if entry.kind() == STRING_KIND => text.len(),
            _ => (value.facts.len)(value.content),
        };
        self.elements[kind].add(len);
        if entry.kind() != STRING_KIND {
            self.bytes[kind].add(taken_bytes(entry.bytes()) + entry.bytes_in_all() - entry.bytes());
        }
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Walk<T> {
    /// Counts the keys of all databases by their sizes.
    fn sizes(&self) -> Vec<KeySizes> {
        let keyspace = self.keyspace();
        let mut sizes = vec![KeySizes::default(); keyspace.databases()];
        let (mut keys, mut has_handed_over) = (0, false);
        for number in keyspace.shard_numbers() {
            if keys > KEYS_AT_ONCE && !has_handed_over {
                has_handed_over = true;
                keyspace.hand_over.get().inspect(|hand_over| hand_over());
            }
            self.visit(number, |shard| {
                for (database, sizes) in sizes.iter_mut().enumerate() {
                    let Some(table) = shard.table(database) else { continue };
                    let is_there =
                        |entry: &&Entry| !entry.expires_at_ms().is_some_and(|at_ms| self.is_over(at_ms));
                    keys += table.len();
                    table.entries().filter(is_there).for_each(|entry| sizes.add(keyspace, entry));
                }
            });
        }
        sizes
    }
}

/// The sizes of keys as they were counted last.
#[derive(Debug, Default)]
pub struct CountedSizes(Mutex<Option<Counted>>);

#[derive(Debug)]
struct Counted {
    sizes: Arc<Vec<KeySizes>>,
    at: Instant,
    took: Duration,
}

impl CountedSizes {
    /// Counts the keys now, and keeps the result for [`estimate`](Self::estimate).
    pub fn count<'a, T: Deref<Target = Transaction<'a>>>(&self, walk: &Walk<T>) -> Arc<Vec<KeySizes>> {
        let began = Instant::now();
        let sizes = Arc::new(walk.sizes());
        let counted = Counted { sizes: Arc::clone(&sizes), at: Instant::now(), took: began.elapsed() };
        *self.0.lock() = Some(counted);
        sizes
    }

    /// Counts now, if counting has not taken much of the time so far. A transaction that holds everything
    /// does not count: all other clients would wait.
    pub fn estimate<'a, T: Deref<Target = Transaction<'a>>>(
        &self,
        walk: &Walk<T>,
    ) -> Option<Arc<Vec<KeySizes>>> {
        let last = self
            .0
            .lock()
            .as_ref()
            .map(|counted| (Arc::clone(&counted.sizes), counted.at.elapsed() / SHARE < counted.took));
        match last {
            Some((sizes, true)) => Some(sizes),
            last if walk.holds_everything() => last.map(|(sizes, _)| sizes),
            _ => Some(self.count(walk)),
        }
    }
}
