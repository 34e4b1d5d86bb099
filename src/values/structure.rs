//! Values that are too large to be packed into an entry.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::values::tree::{Map, Ranking, Remains, Sequence};

/// A large value: one of the shapes that [`tree`](super::tree) offers.
#[derive(Debug)]
pub enum Structure {
    /// Strings by name: a hash, or a set.
    Map(Map),
    /// Records in an order: a list.
    Sequence(Sequence),
    /// Members in the order of their scores: a sorted set.
    Ranking(Ranking),
}

/// The seed of all maps. It is random, so clients cannot choose names whose hashes are alike.
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
        }
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Structure {
        match self {
            Structure::Map(map) => Structure::Map(map.share()),
            Structure::Sequence(sequence) => Structure::Sequence(sequence.share()),
            Structure::Ranking(ranking) => Structure::Ranking(ranking.share()),
        }
    }

    /// Empties the value; returns what is to be freed, in steps.
    pub fn clear(&mut self) -> Remains {
        match self {
            Structure::Map(map) => map.clear(),
            Structure::Sequence(sequence) => sequence.clear(),
            Structure::Ranking(ranking) => ranking.clear(),
        }
    }
}
