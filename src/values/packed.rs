//! Small collections as bytes: the number of elements, then strings, each behind its length.
//!
//! ```text
//! count: 2 bytes | length, string | length, string | ...
//! ```
//!
//! A length takes one byte up to [`SHORT_BYTES_MAX`], three up to 64 KiB, five above. What an element
//! consists of is for its type to say: a list's element is one string, a hash's two.

use std::ops::Range;

/// A packed collection without elements.
pub(crate) const EMPTY: &[u8] = &[0; COUNT_BYTES];
/// The most elements that a packed collection can count.
pub(crate) const COUNT_MAX: usize = u16::MAX as usize;
/// Bytes of the count.
pub(crate) const COUNT_BYTES: usize = 2;

/// The longest string whose length takes one byte.
const SHORT_BYTES_MAX: usize = 253;
/// Stands before a length of two bytes...
const TWO_BYTES: u8 = 254;
/// ... and of four.
const FOUR_BYTES: u8 = 255;

/// The number of elements of a packed collection.
#[inline]
pub(crate) fn count(packed: &[u8]) -> usize {
    packed.first_chunk().map_or(0, |count| usize::from(u16::from_le_bytes(*count)))
}

/// The strings of a packed collection, from a place on.
#[derive(Clone, Debug)]
pub struct Strings<'v> {
    packed: &'v [u8],
    at: usize,
}

impl<'v> Strings<'v> {
    /// All strings of a packed collection.
    #[inline]
    pub fn of(packed: &'v [u8]) -> Strings<'v> {
        Strings { packed, at: COUNT_BYTES }
    }

    /// The strings from a place on. A string or the end must be there.
    pub fn from(packed: &'v [u8], at: usize) -> Strings<'v> {
        Strings { packed, at }
    }

    /// The place of the next string, with its length.
    #[inline]
    pub fn place(&self) -> usize {
        self.at
    }

    /// Skips this number of strings, to the end at most.
    #[inline]
    pub fn pass_over(&mut self, strings: usize) {
        for _ in 0..strings {
            match self.packed.get(self.at) {
                None => return,
                Some(short) if *short < TWO_BYTES => self.at += 1 + usize::from(*short),
                Some(_) => _ = self.next(),
            }
        }
    }
}

impl<'v> Iterator for Strings<'v> {
    type Item = &'v [u8];

    #[inline]
    fn next(&mut self) -> Option<&'v [u8]> {
        let short = usize::from(*self.packed.get(self.at)?);
        let (start, length) = match short {
            0..=SHORT_BYTES_MAX => (self.at + 1, short),
            _ => long(self.packed, self.at)?,
        };
        self.at = start + length;
        self.packed.get(start..self.at)
    }

    #[inline]
    fn nth(&mut self, passed: usize) -> Option<&'v [u8]> {
        self.pass_over(passed);
        self.next()
    }
}

/// The start and the length of a long string.
#[cold]
fn long(packed: &[u8], at: usize) -> Option<(usize, usize)> {
    let behind = &packed[at + 1..];
    Some(match packed[at] {
        TWO_BYTES => (at + 3, usize::from(u16::from_le_bytes(*behind.first_chunk()?))),
        _ => (at + 5, u32::from_le_bytes(*behind.first_chunk()?) as usize),
    })
}

/// The length that stands before a string.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    bytes: [u8; 5],
    used: usize,
}

impl Length {
    /// The length of a string.
    ///
    /// # Panics
    ///
    /// If the string is longer than 4 GiB. Packed strings are far shorter.
    #[inline]
    pub(crate) fn of(string: &[u8]) -> Length {
        let mut bytes = [0; 5];
        let used = match string.len() {
            short @ 0..=SHORT_BYTES_MAX => {
                bytes[0] = short as u8;
                1
            }
            length => match u16::try_from(length) {
                Ok(length) => {
                    bytes[0] = TWO_BYTES;
                    bytes[1..3].copy_from_slice(&length.to_le_bytes());
                    3
                }
                Err(_) => {
                    let length = u32::try_from(length).expect("packed strings are short");
                    bytes[0] = FOUR_BYTES;
                    bytes[1..].copy_from_slice(&length.to_le_bytes());
                    5
                }
            },
        };
        Length { bytes, used }
    }

    /// The length as it is stored: 1, 3 or 5 bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// A packed collection that is being written, one string after the other.
#[derive(Debug)]
pub(crate) struct Packer<'p> {
    packed: &'p mut Vec<u8>,
    count: usize,
}

impl<'p> Packer<'p> {
    /// Begins a collection in an empty buffer.
    pub(crate) fn in_buffer(packed: &'p mut Vec<u8>) -> Packer<'p> {
        packed.extend_from_slice(EMPTY);
        Packer { packed, count: 0 }
    }

    /// Appends a string.
    pub(crate) fn string(&mut self, string: &[u8]) {
        self.packed.extend_from_slice(Length::of(string).bytes());
        self.packed.extend_from_slice(string);
    }

    /// How many elements there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The collection so far.
    pub(crate) fn packed(&self) -> &[u8] {
        self.packed
    }

    /// Counts an element.
    ///
    /// # Panics
    ///
    /// If there are more than [`COUNT_MAX`].
    pub(crate) fn count_one(&mut self) {
        self.count += 1;
        let count = u16::try_from(self.count).expect("packed collections are small");
        self.packed[..COUNT_BYTES].copy_from_slice(&count.to_le_bytes());
    }
}

/// Finds the place of a string: the bytes that it takes with its length.
pub(crate) fn find(strings: &mut Strings<'_>, wanted: &[u8]) -> Option<Range<usize>> {
    loop {
        let start = strings.place();
        if strings.next()? == wanted {
            return Some(start..strings.place());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_every_length_come_back() {
        let strings: Vec<Vec<u8>> =
            [0, 1, 253, 254, 255, 65_535, 65_536, 200_000].map(|bytes| vec![b'x'; bytes]).to_vec();
        let mut packed = Vec::new();
        let mut packer = Packer::in_buffer(&mut packed);
        for string in &strings {
            packer.string(string);
            packer.count_one();
        }
        assert_eq!(count(&packed), strings.len());
        assert!(Strings::of(&packed).eq(strings.iter().map(|string| &**string)));
        let place = find(&mut Strings::of(&packed), &[b'x'; 253]).unwrap();
        assert_eq!(Strings::from(&packed, place.end).next(), Some(&[b'x'; 254][..]));
        for passed in 0..=strings.len() + 1 {
            let mut rest = Strings::of(&packed);
            assert_eq!(rest.nth(passed), strings.get(passed).map(Vec::as_slice), "{passed}");
        }
    }

    #[test]
    fn a_collection_that_is_cut_off_ends_early() {
        let mut packed = Vec::new();
        let mut packer = Packer::in_buffer(&mut packed);
        packer.string(&[b'x'; 300]);
        for bytes in 0..packed.len() {
            assert_eq!(Strings::of(&packed[..bytes]).count(), 0, "{bytes}");
        }
    }
}
