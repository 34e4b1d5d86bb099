//! Lists: strings in an order.
//!
//! A small list is packed: its elements one behind the other. A large list is a sequence. An element at the
//! tail of a packed list is found by a walk from its head, so only lists up to 1 KiB are packed. Redis
//! packs more into one listpack, and OBJECT ENCODING returns what Redis would do.
//!
//! A list is read here, changed in `changing` and made anew in `gathering`. `stored` writes it to files and
//! to the log.

mod changing;
mod gathering;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod stored;

use std::iter::Rev;
use std::ops::Range;
use std::vec;

use crate::dump::collections::{LIST_QUICKLIST_2, LIST_TYPES};
use crate::events::EventClass;
use crate::values::packed::{self, COUNT_MAX, Strings};
use crate::values::tree::{Records, Sequence};
use crate::values::{Content, LIST_KIND, Limit, Type, TypeFacts};

pub(crate) use changing::Beside;
pub(crate) use gathering::NewList;

/// The most bytes of a packed list.
const PACKED_BYTES_MAX: usize = 1 << 10;
/// The type of lists.
#[derive(Debug)]
pub enum List {}

impl Type for List {
    const FACTS: &'static TypeFacts = &FACTS;
    const EMPTY: &'static [u8] = packed::EMPTY;
    type View<'v> = ListView<'v>;

    #[inline(always)]
    fn view(content: Content<'_>) -> ListView<'_> {
        match content.large::<Sequence>() {
            Some(sequence) => ListView::Large(sequence),
            None => ListView::Packed(content.bytes().unwrap_or_default()),
        }
    }
}

/// The limits of a node. Redis: `quicklistNodeLimit`. Below zero it stands for 4, 8, 16, 32 or 64 KiB.
fn node_limit(size: i64) -> Limit {
    let (entries, bytes) = match size {
        0.. => (usize::try_from(size).unwrap_or(usize::MAX), usize::MAX),
        _ => (usize::MAX, 2048 << size.unsigned_abs().min(5)),
    };
    Limit { entries, bytes, integers: 0 }
}

/// The facts about lists.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "list",
    kind: LIST_KIND,
    events: EventClass::LIST,
    limit: |of| node_limit(of("list-max-listpack-size")),
    encoding: |content, _, limit| stored::encoding(content, limit),
    len: |content| List::view(content).len(),
    each: |content, visit| List::view(content).iter().for_each(|element| visit(&[element])),
    is_ordered: true,
    log: stored::log,
    rdb_types: LIST_TYPES,
    rdb_type: |_| LIST_QUICKLIST_2,
    save: stored::save,
    load: stored::load,
};

/// The limit by which lists are divided in files: Redis's default.
pub(crate) const NODE_LIMIT: Limit = Limit { entries: usize::MAX, bytes: 8 << 10, integers: 0 };

/// One of the two ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The end where the first element is: the left one.
    Head,
    /// The end where the last element is: the right one.
    Tail,
}

/// A list that is read.
#[derive(Clone, Copy, Debug)]
pub enum ListView<'v> {
    /// A small list.
    Packed(&'v [u8]),
    /// A large list.
    Large(&'v Sequence),
}

impl<'v> ListView<'v> {
    /// A list without elements, for a key that is absent.
    pub const EMPTY: ListView<'static> = ListView::Packed(packed::EMPTY);

    /// Whether there are no elements: the key is absent.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The number of elements.
    pub fn len(self) -> usize {
        match self {
            ListView::Packed(packed) => packed::count(packed),
            ListView::Large(sequence) => sequence.len(),
        }
    }

    /// The element at a position.
    #[inline]
    pub fn get(self, position: usize) -> Option<&'v [u8]> {
        match self {
            ListView::Packed(packed) => Strings::of(packed).nth(position),
            ListView::Large(sequence) => sequence.get(position),
        }
    }

    /// All elements, from the head to the tail.
    pub fn iter(self) -> Elements<'v> {
        self.range(0..self.len())
    }

    /// The elements of some positions. A range that ends behind the last element ends with it.
    pub fn range(self, positions: Range<usize>) -> Elements<'v> {
        let end = positions.end.min(self.len());
        let start = positions.start.min(end);
        match self {
            ListView::Packed(packed) => {
                let mut strings = Strings::of(packed);
                strings.pass_over(start);
                Elements::Packed { strings, left: end - start }
            }
            ListView::Large(sequence) => Elements::Large(sequence.range(start..end)),
        }
    }

    /// The same elements in reverse.
    pub fn reversed(self, positions: Range<usize>) -> Elements<'v> {
        match self.range(positions) {
            elements if elements.len() <= 1 => elements,
            Elements::Large(records) => Elements::LargeReversed(records.rev()),
            elements => Elements::PackedReversed(elements.collect::<Vec<_>>().into_iter().rev()),
        }
    }

    /// So many elements at an end, the outermost first.
    pub fn outermost(self, end: ListEnd, count: usize) -> Elements<'v> {
        let len = self.len();
        match end {
            ListEnd::Head => self.range(0..count),
            ListEnd::Tail => self.reversed(len.saturating_sub(count)..len),
        }
    }
}

/// Some elements of a list.
pub enum Elements<'v> {
    /// The elements of a small list.
    Packed {
        /// These elements, and those behind them.
        strings: Strings<'v>,
        /// How many are left.
        left: usize,
    },
    /// The same in reverse.
    PackedReversed(Rev<vec::IntoIter<&'v [u8]>>),
    /// The elements of a large list.
    Large(Records<'v>),
    /// The same in reverse.
    LargeReversed(Rev<Records<'v>>),
}

impl<'v> Iterator for Elements<'v> {
    type Item = &'v [u8];

    fn next(&mut self) -> Option<&'v [u8]> {
        match self {
            Elements::Packed { strings, left } => {
                *left = left.checked_sub(1)?;
                strings.next()
            }
            Elements::PackedReversed(elements) => elements.next(),
            Elements::Large(records) => records.next(),
            Elements::LargeReversed(records) => records.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Elements::Packed { left, .. } => (*left, Some(*left)),
            Elements::PackedReversed(elements) => elements.size_hint(),
            Elements::Large(records) => records.size_hint(),
            Elements::LargeReversed(records) => records.size_hint(),
        }
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The most elements of a packed list. Redis takes a limit of 0 for 1.
fn entries_max(limit: Limit) -> usize {
    limit.entries.clamp(1, COUNT_MAX)
}

/// The sequence of a packed list.
fn unpacked(packed: &[u8]) -> Sequence {
    let mut sequence = Sequence::new();
    for element in Strings::of(packed) {
        sequence.insert(sequence.len(), element);
    }
    sequence
}

#[cfg(test)]
mod tests;
