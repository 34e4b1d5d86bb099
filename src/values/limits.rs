//! Up to which size collections are packed, for each type.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::KINDS;
use super::packed::COUNT_MAX;

/// The most bytes of all strings of a packed hash, set or sorted set, whatever the parameters say. A packed
/// value is moved under its shard's lock whenever it grows: a mebibyte in a fraction of a millisecond, a
/// gibibyte (`SIZE_SAFETY_LIMIT` in Redis) in a fraction of a second.
pub(crate) const PACKED_BYTES_MAX: usize = 1 << 20;

/// The limits of all types, by their kinds. The parameters that set them are those of Redis, and so are the
/// limits.
#[derive(Debug, Default)]
pub struct Limits {
    of_kinds: [Atomics; KINDS],
    /// How long, and how many of, the messages of a producer a new stream remembers.
    producers: [AtomicU64; 2],
}

#[derive(Debug, Default)]
struct Atomics {
    entries: AtomicUsize,
    bytes: AtomicUsize,
    integers: AtomicUsize,
}

/// The value of a parameter whose range begins at zero.
pub(crate) fn size(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// Up to which size a collection of one type is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// The most elements.
    pub entries: usize,
    /// The most bytes of one string. For lists: of all strings.
    pub bytes: usize,
    /// The most elements if all are integers.
    pub integers: usize,
}

impl Limit {
    /// The limits that two parameters set: one for the number of elements, one for the bytes of a string.
    pub fn by(parameter: &dyn Fn(&str) -> i64, entries: &str, bytes: &str) -> Limit {
        Limit { entries: size(parameter(entries)), bytes: size(parameter(bytes)), integers: 0 }
    }

    /// Whether a hash, a set of strings or a sorted set is packed: `elements` of them, the longest string of
    /// `longest` bytes, and all strings of `total` bytes.
    #[inline]
    pub fn allows(self, elements: usize, longest: usize, total: usize) -> bool {
        elements <= self.entries.min(COUNT_MAX) && longest <= self.bytes && total <= PACKED_BYTES_MAX
    }
}

impl Limits {
    /// The limit of the type with this kind.
    #[inline]
    pub fn of(&self, kind: u8) -> Limit {
        self.of_kinds.get(usize::from(kind)).map_or(Limit::default(), |limit| Limit {
            entries: limit.entries.load(Ordering::Relaxed),
            bytes: limit.bytes.load(Ordering::Relaxed),
            integers: limit.integers.load(Ordering::Relaxed),
        })
    }

    /// For how many seconds, and how many of, a producer's messages a new stream remembers; none if that is
    /// left to the stream.
    pub fn of_producers(&self) -> Option<[u64; 2]> {
        let limits = self.producers.each_ref().map(|limit| limit.load(Ordering::Relaxed));
        Some(limits).filter(|[seconds, messages_max]| *seconds > 0 && *messages_max > 0)
    }

    /// Changes what new streams remember of their producers.
    pub fn set_of_producers(&self, limits: [u64; 2]) {
        self.producers.iter().zip(limits).for_each(|(limit, new)| limit.store(new, Ordering::Relaxed));
    }

    /// Changes the limit of the type with this kind. Values that are there stay as they are.
    pub fn set(&self, kind: u8, limit: Limit) {
        if let Some(of_type) = self.of_kinds.get(usize::from(kind)) {
            of_type.entries.store(limit.entries, Ordering::Relaxed);
            of_type.bytes.store(limit.bytes, Ordering::Relaxed);
            of_type.integers.store(limit.integers, Ordering::Relaxed);
        }
    }
}
