//! Values that are too large to be packed into an entry.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::values::Structure;
use crate::values::tree::{Map, Ranking};

/// A shape of large values. Each is one line in the list of the module [`values`](super).
pub trait Shape: Sized {
    /// The number of elements.
    fn elements(&self) -> usize;
    /// Bytes of memory below the value. What copies share counts for each.
    fn bytes(&self) -> usize;
    /// A copy with the same nodes, in constant time.
    fn share(&self) -> Self;
    /// The value, if it has this shape.
    fn of(structure: &Structure) -> Option<&Self>;
    /// The same, to change it.
    fn of_mut(structure: &mut Structure) -> Option<&mut Self>;
}

/// Declares the shapes: the name, what a [`Structure`] keeps, and the shape with its number of elements and
/// its bytes.
macro_rules! shapes {
    ($($(#[$about:meta])* $name:ident($kept:ty): $shape:ty, $elements:expr, $bytes:expr;)+) => {
        /// A large value: a long string, or one of the shapes that [`tree`] offers.
        #[derive(Debug)]
        pub enum Structure {
            $($(#[$about])* $name($kept),)+
        }

        impl Structure {
            /// The number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Structure::$name(shape) => shape.elements(),)+
                }
            }

            /// Bytes of memory below this value. What copies share counts for each.
            pub fn bytes(&self) -> usize {
                match self {
                    $(Structure::$name(shape) => <$shape as Shape>::bytes(shape),)+
                }
            }

            /// Whether the two share all their nodes. Streams, and hashes with fields that expire, never do.
            pub fn is_same(&self, other: &Structure) -> bool {
                match (self, other) {
                    (Structure::Map(one), Structure::Map(other)) => one.is_same(other),
                    (Structure::Sequence(one), Structure::Sequence(other)) => one.is_same(other),
                    (Structure::Ranking(one), Structure::Ranking(other)) => one.is_same(other),
                    (Structure::Text(one), Structure::Text(other)) => one.is_same(other),
                    _ => false,
                }
            }

            /// A copy with the same nodes, in constant time.
            pub fn share(&self) -> Structure {
                match self {
                    $(Structure::$name(shape) => Structure::$name(<$shape as Shape>::share(shape).into()),)+
                }
            }
        }

        $(impl Shape for $shape {
            fn elements(&self) -> usize {
                ($elements)(self)
            }

            fn bytes(&self) -> usize {
                ($bytes)(self)
            }

            fn share(&self) -> $shape {
                <$shape>::share(self)
            }

            #[inline(always)]
            fn of(structure: &Structure) -> Option<&$shape> {
                if let Structure::$name(shape) = structure { Some(shape) } else { None }
            }

            #[inline(always)]
            fn of_mut(structure: &mut Structure) -> Option<&mut $shape> {
                if let Structure::$name(shape) = structure { Some(shape) } else { None }
            }
        })+
    };
}

pub(super) use shapes;

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

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
