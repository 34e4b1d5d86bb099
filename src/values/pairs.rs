//! Small collections of pairs as bytes: the number of pairs, then a name and a value for each.
//!
//! ```text
//! count: 1 byte | lengths: 1 byte, name, value | lengths: 1 byte, name, value | ...
//! ```
//!
//! The upper half of a byte is the length of a name, the lower half that of its value. If one of them is
//! longer, [`LONG`] stands there, and a name and a value follow that have lengths of their own, as in a
//! [`packed`](super::packed) collection. A count of [`MANY`] says that the pairs must be counted.

use std::ops::Range;

use super::packed::{Length, Strings};

/// A packed collection without pairs.
pub(crate) const EMPTY: &[u8] = &[0];
/// The place of the count.
const COUNT: usize = 0;
/// The place of the first pair.
pub(crate) const FIRST: usize = 1;
/// The greatest count: it stands for this number of pairs, or more.
const MANY: u8 = u8::MAX;
/// The longest name and value whose lengths take half a byte.
const SHORT_BYTES_MAX: usize = 15;
/// Stands for two lengths. No pair has it as lengths: two strings of 15 bytes are long.
const LONG: u8 = u8::MAX;

/// A pair in a packed collection.
#[derive(Clone, Debug)]
pub(crate) struct Pair<'v> {
    /// The field's name.
    pub name: &'v [u8],
    /// The field's value.
    pub value: &'v [u8],
    /// Its bytes in the collection.
    pub place: Range<usize>,
}

/// The pairs of a packed collection.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'v> {
    packed: &'v [u8],
    at: usize,
}

impl<'v> Pairs<'v> {
    /// All pairs of a packed collection.
    #[inline]
    pub(crate) fn of(packed: &'v [u8]) -> Pairs<'v> {
        Pairs { packed, at: FIRST }
    }

    /// The pairs from a place on. A pair or the end must be there.
    pub(crate) fn from(packed: &'v [u8], at: usize) -> Pairs<'v> {
        Pairs { packed, at }
    }

    /// The place of the next pair.
    pub(crate) fn place(&self) -> usize {
        self.at
    }

    #[cold]
    fn next_long(&mut self) -> Option<Pair<'v>> {
        let start = self.at;
        let mut strings = Strings::from(self.packed, start + 1);
        let (name, value) = (strings.next()?, strings.next()?);
        self.at = strings.place();
        Some(Pair { name, value, place: start..self.at })
    }
}

impl<'v> Iterator for Pairs<'v> {
    type Item = Pair<'v>;

    #[inline]
    fn next(&mut self) -> Option<Pair<'v>> {
        let start = self.at;
        let lengths = *self.packed.get(start)?;
        if lengths == LONG {
            return self.next_long();
        }
        let middle = start + 1 + usize::from(lengths >> 4);
        let end = middle + usize::from(lengths & 0xf);
        self.at = end;
        Some(Pair {
            name: self.packed.get(start + 1..middle)?,
            value: self.packed.get(middle..end)?,
            place: start..end,
        })
    }
}

/// Finds the pair of a name.
#[inline]
pub(crate) fn find<'v>(packed: &'v [u8], name: &[u8]) -> Option<Pair<'v>> {
    Pairs::of(packed).find(|pair| pair.name == name)
}

/// The number of pairs.
#[inline]
pub(crate) fn count(packed: &[u8]) -> usize {
    match packed.get(COUNT) {
        Some(&MANY) => Pairs::of(packed).count(),
        count => usize::from(count.copied().unwrap_or_default()),
    }
}

/// The place of the count, and the count of `pairs` pairs.
#[inline]
pub(crate) fn counted(pairs: usize) -> (Range<usize>, [u8; 1]) {
    (COUNT..FIRST, [u8::try_from(pairs).unwrap_or(MANY)])
}

/// The lengths that stand before a name and before its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    first: [u8; 1],
    long: Option<(Length, Length)>,
}

impl Lengths {
    /// The lengths of a pair.
    #[inline]
    pub(crate) fn of(name: &[u8], value: &[u8]) -> Lengths {
        let (name_bytes, value_bytes) = (name.len(), value.len());
        let is_short = name_bytes <= SHORT_BYTES_MAX
            && value_bytes <= SHORT_BYTES_MAX
            && name_bytes + value_bytes < 2 * SHORT_BYTES_MAX;
        if is_short {
            return Lengths { first: [(name_bytes << 4 | value_bytes) as u8], long: None };
        }
        Lengths { first: [LONG], long: Some((Length::of(name), Length::of(value))) }
    }

    /// The bytes of a pair, in parts.
    #[inline]
    pub(crate) fn parts<'p>(&'p self, name: &'p [u8], value: &'p [u8]) -> [&'p [u8]; 5] {
        let (name_length, value_length) = match &self.long {
            Some((name, value)) => (name.bytes(), value.bytes()),
            None => (&[][..], &[][..]),
        };
        [&self.first, name_length, name, value_length, value]
    }
}

/// Appends a pair to a collection that does not have its name. The collection is not without bytes.
pub(crate) fn push(packed: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    packed[COUNT] = packed[COUNT].saturating_add(1);
    Lengths::of(name, value).parts(name, value).iter().for_each(|part| packed.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let mut packed = EMPTY.to_vec();
        pairs.iter().for_each(|(name, value)| push(&mut packed, name, value));
        packed
    }

    #[test]
    fn pairs_of_every_length_come_back() {
        let lengths = [0, 1, 14, 15, 16, 253, 254, 65_536];
        let pairs: Vec<_> = lengths
            .iter()
            .flat_map(|name| lengths.iter().map(|value| (vec![b'n'; *name], vec![b'v'; *value])))
            .collect();
        let packed = packed(&pairs);
        assert_eq!(count(&packed), pairs.len());
        let found: Vec<_> =
            Pairs::of(&packed).map(|pair| (pair.name.to_vec(), pair.value.to_vec())).collect();
        assert!(found == pairs);
        assert_eq!(find(&packed, &[b'n'; 14]).map(|pair| pair.value), Some(&b""[..]));
        let bytes: usize = Pairs::of(&packed).map(|pair| pair.place.len()).sum();
        assert_eq!(bytes + EMPTY.len(), packed.len());
        let one = super::tests::packed(&[(vec![b'n'; 15], vec![b'v'; 14])]);
        assert_eq!(one.len(), EMPTY.len() + 1 + 15 + 14);
    }

    #[test]
    fn many_pairs_are_counted() {
        for pairs in [253, 254, 255, 256, 1000] {
            let all: Vec<_> = (0..pairs).map(|pair| (format!("{pair}").into_bytes(), Vec::new())).collect();
            assert_eq!(count(&packed(&all)), pairs);
        }
        assert_eq!((count(EMPTY), count(&[])), (0, 0));
    }

    #[test]
    fn a_collection_that_is_cut_off_ends_early() {
        let packed = packed(&[(vec![b'n'; 15], vec![b'v'; 3]), (vec![b'n'; 300], vec![b'v'; 300])]);
        for bytes in 0..packed.len() {
            assert!(Pairs::of(&packed[..bytes]).count() < 2, "{bytes}");
        }
    }
}
