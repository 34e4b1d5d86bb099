//! Values that are too large to be packed into an entry.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::values::LongText;
use crate::values::tree::{ExpiringMap, Ledger, Map, Ranking, Sequence};

/// A large value: a long string, or one of the shapes that [`tree`](super::tree) offers.
#[derive(Debug)]
pub enum Structure {
    /// Strings by name: a hash, or a set.
    Map(Map),
    /// Records in an order: a list.
    Sequence(Sequence),
    /// Members in the order of their scores: a sorted set.
    Ranking(Ranking),
    /// A long string.
    Text(LongText),
    /// Entries in the order of their IDs: a stream.
    Ledger(Box<Ledger>),
    /// Strings by name, of which some expire: a hash.
    Expiring(Box<ExpiringMap>),
}

/// The seed of all maps, random in each process. Their hash has further secrets: see [`Map::new`].
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

impl Structure {
    /// An empty map.
    pub fn map() -> Map {
        Map::new(*SEED)
    }

    /// An empty ranking.
    pub fn ranking() -> Ranking {
        Ranking::new(*SEED)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Structure::Map(map) => map.len(),
            Structure::Sequence(sequence) => sequence.len(),
            Structure::Ranking(ranking) => ranking.len(),
            Structure::Text(_) => 1,
            Structure::Ledger(ledger) => ledger.len(),
            Structure::Expiring(map) => map.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory below this value. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        match self {
            Structure::Map(map) => map.bytes(),
            Structure::Sequence(sequence) => sequence.bytes(),
            Structure::Ranking(ranking) => ranking.bytes(),
            Structure::Text(text) => text.bytes(),
            Structure::Ledger(ledger) => ledger.bytes(),
            Structure::Expiring(map) => size_of::<ExpiringMap>() + map.bytes(),
        }
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Structure {
        match self {
            Structure::Map(map) => Structure::Map(map.share()),
            Structure::Sequence(sequence) => Structure::Sequence(sequence.share()),
            Structure::Ranking(ranking) => Structure::Ranking(ranking.share()),
            Structure::Text(text) => Structure::Text(text.clone()),
            Structure::Ledger(ledger) => Structure::Ledger(Box::new(ledger.share())),
            Structure::Expiring(map) => Structure::Expiring(Box::new(map.share())),
        }
    }
}
