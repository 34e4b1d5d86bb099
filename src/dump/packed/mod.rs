//! The packed encodings of small collections: each is one string in payloads and snapshots.
//!
//! Redis keeps a small collection in one block of memory and saves that block as it is. Redis 7 writes
//! [`listpack`]s, and [`intset`]s for sets of integers. Older versions wrote [`ziplist`]s, and the oldest
//! wrote [`zipmap`]s for hashes.
//!
//! Each decoder is an iterator over the elements of a blob. It checks the size of the blob first, every
//! element before it returns it, and the number of elements after the last one. An error ends the iterator.
//! Elements are parts of the blob: nothing is allocated. A blob without elements is well-formed here;
//! [`collections`](super::collections) refuses it.

pub(crate) mod intset;
pub(crate) mod listpack;
pub(crate) mod writing;
pub(crate) mod ziplist;
pub(crate) mod zipmap;

use super::strings::DecodeError;

/// Behind the last element of every encoding but the intset.
const TERMINATOR: u8 = 0xff;
/// In the place of the number of elements: it is unknown, since it does not fit in two bytes.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// An element of a listpack, a ziplist or an intset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Element<'a> {
    /// A string that is stored as such.
    Text(&'a [u8]),
    /// A string that is the decimal text of an integer.
    Integer(i64),
}

impl<'a> Element<'a> {
    /// Returns the string. `digits` is where an integer is printed.
    pub fn text(self, digits: &'a mut itoa::Buffer) -> &'a [u8] {
        match self {
            Element::Text(text) => text,
            Element::Integer(integer) => digits.format(integer).as_bytes(),
        }
    }
}

/// Compares the number of elements that a listpack or a ziplist announces with those that were read.
fn count_is(announced: u16, count: usize) -> bool {
    announced == COUNT_UNKNOWN || usize::from(announced) == count
}

/// Takes one byte from the front.
fn byte(input: &mut &[u8]) -> Option<u8> {
    input.split_off_first().copied()
}

/// Takes `N` bytes from the front.
fn array<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (array, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*array)
}

/// Takes an integer of 24 bits from the front.
fn integer_24(input: &mut &[u8]) -> Option<i64> {
    let [low, middle, high] = array(input)?;
    Some(i64::from(i32::from_le_bytes([0, low, middle, high]) >> 8))
}

/// Takes `length` bytes from the front.
fn text<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    input.split_off(..length)
}

/// Takes `length` bytes from the front, for lengths of 32 bits.
fn long_text<'a>(input: &mut &'a [u8], length: u32) -> Option<&'a [u8]> {
    text(input, usize::try_from(length).ok()?)
}
