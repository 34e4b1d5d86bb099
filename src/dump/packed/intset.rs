//! Intsets: small sets of integers, in ascending order.
//!
//! ```text
//! bytes of an integer: u32   integers: u32   integer ...
//! ```
//!
//! All is little-endian. The integers have one width: two, four or eight bytes.

use super::{DecodeError, array};

const CORRUPT: DecodeError = DecodeError::Invalid("Intset integrity check failed.");

/// The integers of an intset.
#[derive(Clone, Debug)]
pub(crate) struct Intset<'a> {
    /// The integers that were not read yet.
    rest: &'a [u8],
    width: Width,
    /// The last integer that was read, if the next one must be greater.
    previous: Option<i64>,
    is_ordered: bool,
}

#[derive(Clone, Copy, Debug)]
enum Width {
    Two,
    Four,
    Eight,
}

impl<'a> Intset<'a> {
    /// Begins to read an intset.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if `blob` has another length than its integers would take, or they are of a
    /// width that there is not.
    pub(crate) fn new(blob: &'a [u8]) -> Result<Intset<'a>, DecodeError> {
        Intset::open(blob).ok_or(CORRUPT)
    }

    fn open(blob: &'a [u8]) -> Option<Intset<'a>> {
        let mut rest = blob;
        let bytes = u32::from_le_bytes(array(&mut rest)?);
        let count = u32::from_le_bytes(array(&mut rest)?);
        let width = match bytes {
            2 => Width::Two,
            4 => Width::Four,
            8 => Width::Eight,
            _ => return None,
        };
        let is_whole = u64::from(count) * u64::from(bytes) == rest.len() as u64;
        is_whole.then_some(Intset { rest, width, previous: None, is_ordered: true })
    }

    /// The same integers, whatever their order is.
    pub(crate) fn unordered(self) -> Intset<'a> {
        Intset { is_ordered: false, ..self }
    }

    fn read_integer(&mut self) -> Option<i64> {
        let integer = match self.width {
            Width::Two => i64::from(i16::from_le_bytes(array(&mut self.rest)?)),
            Width::Four => i64::from(i32::from_le_bytes(array(&mut self.rest)?)),
            Width::Eight => i64::from_le_bytes(array(&mut self.rest)?),
        };
        let is_greater = self.previous.is_none_or(|previous| previous < integer);
        self.previous = Some(integer).filter(|_| self.is_ordered);
        is_greater.then_some(integer)
    }
}

impl Iterator for Intset<'_> {
    type Item = Result<i64, DecodeError>;

    fn next(&mut self) -> Option<Result<i64, DecodeError>> {
        if self.rest.is_empty() {
            return None;
        }
        let integer = self.read_integer();
        if integer.is_none() {
            self.rest = &[];
        }
        Some(integer.ok_or(CORRUPT))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn read(blob: &[u8]) -> Option<Vec<i64>> {
        Intset::new(blob).and_then(Iterator::collect).ok()
    }

    fn intset(width: u32, count: u32, integers: &[u8]) -> Vec<u8> {
        [&width.to_le_bytes()[..], &count.to_le_bytes(), integers].concat()
    }

    #[test]
    fn every_width_is_read() {
        assert_eq!(read(&intset(2, 2, b"\x00\x80\xff\x7f")), Some(vec![-32_768, 32_767]));
        let four = b"\x00\x00\x00\x80\xff\xff\xff\xff\xff\xff\xff\x7f";
        assert_eq!(read(&intset(4, 3, four)), Some(vec![i32::MIN.into(), -1, i32::MAX.into()]));
        let eight = [i64::MIN.to_le_bytes(), 0_i64.to_le_bytes(), i64::MAX.to_le_bytes()].concat();
        assert_eq!(read(&intset(8, 3, &eight)), Some(vec![i64::MIN, 0, i64::MAX]));
        assert_eq!(read(&intset(2, 0, b"")), Some(vec![]));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for blob in [
            vec![],
            b"\x02\x00\x00\x00\x00\x00\x00".to_vec(),
            intset(0, 0, b""),
            intset(1, 1, b"\x01"),
            intset(3, 1, b"\x01\x02\x03"),
            intset(16, 0, b""),
            intset(u32::MAX, 0, b""),
            intset(2, 1, b""),
            intset(2, 0, b"\x01\x00"),
            intset(2, 1, b"\x01\x00\x02"),
            intset(8, 0x2000_0001, b"\x01\x00\x00\x00\x00\x00\x00\x00"),
            intset(2, 2, b"\x01\x00\x01\x00"),
            intset(2, 2, b"\x02\x00\x01\x00"),
            intset(2, 2, b"\x01\x00\xff\xff"),
        ] {
            assert_eq!(read(&blob), None, "{}", blob.escape_ascii());
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        let blob = intset(2, 3, b"\x02\x00\x01\x00\x03\x00");
        let integers: Vec<_> = Intset::new(&blob).unwrap().collect();
        assert!(matches!(&integers[..], [Ok(2), Err(_)]), "{integers:?}");
    }

    proptest! {
        #[test]
        fn an_intset_that_was_cut_or_changed_is_refused_or_in_order(
            integers in btree_set(any::<i64>(), 0..20),
            (at, bit, cut) in (any::<prop::sample::Index>(), 0..8_u8, any::<prop::sample::Index>()),
        ) {
            let encoded: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
            let mut blob = intset(8, integers.len() as u32, &encoded);
            let count = integers.len();
            prop_assert_eq!(read(&blob), Some(integers.into_iter().collect::<Vec<_>>()));
            prop_assert_eq!(read(&blob[..cut.index(blob.len())]), None);
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            if let Some(changed) = read(&blob) {
                // The header leaves no choice.
                prop_assert!(at >= 8);
                prop_assert!(changed.len() == count && changed.is_sorted());
            }
        }

        #[test]
        fn garbage_does_no_harm(blob in vec(any::<u8>(), 0..100), width in prop_oneof![Just(2), Just(4)]) {
            let _ = read(&blob);
            let _ = read(&intset(width, blob.len() as u32 / width, &blob));
        }
    }
}
