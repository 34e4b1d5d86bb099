//! Zipmaps: what Redis packed small hashes in before version 2.6.
//!
//! ```text
//! fields: u8   length   field   length   unused bytes: u8   value   unused   length ...   0xff
//! ```
//!
//! A length is one byte, or the byte 254 and four more, little-endian. A value that became shorter leaves
//! unused bytes behind it. From 254 fields on, their number is unknown.

use super::{DecodeError, TERMINATOR, array, byte, long_text, text};

const CORRUPT: DecodeError = DecodeError::Invalid("Zipmap integrity check failed.");
/// A length takes four more bytes. As the number of fields: it is unknown.
const LONG: u8 = 254;

/// The fields of a zipmap and their values.
#[derive(Clone, Debug)]
pub(crate) struct Zipmap<'a> {
    /// The fields that were not read yet.
    rest: &'a [u8],
    /// The number of fields, where it is known.
    announced: Option<u8>,
    /// How many fields were read.
    count: usize,
}

impl<'a> Zipmap<'a> {
    /// Begins to read a zipmap.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if `blob` has no terminator, or no number of fields.
    pub(crate) fn new(blob: &'a [u8]) -> Result<Zipmap<'a>, DecodeError> {
        let mut rest = blob.strip_suffix(&[TERMINATOR]).ok_or(CORRUPT)?;
        let announced = match byte(&mut rest).ok_or(CORRUPT)? {
            TERMINATOR => return Err(CORRUPT),
            LONG => None,
            count => Some(count),
        };
        Ok(Zipmap { rest, announced, count: 0 })
    }
}

impl<'a> Iterator for Zipmap<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Result<(&'a [u8], &'a [u8]), DecodeError>> {
        let pair = if !self.rest.is_empty() {
            read_pair(&mut self.rest)
        } else if self.announced.is_none_or(|announced| usize::from(announced) == self.count) {
            return None;
        } else {
            None
        };
        self.count += 1;
        if pair.is_none() {
            (self.rest, self.announced) = (&[], None);
        }
        Some(pair.ok_or(CORRUPT))
    }
}

/// Takes a field and its value from the front.
fn read_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let length = read_length(rest)?;
    let field = long_text(rest, length)?;
    let length = read_length(rest)?;
    let unused = byte(rest)?;
    let value = long_text(rest, length)?;
    text(rest, usize::from(unused))?;
    Some((field, value))
}

fn read_length(rest: &mut &[u8]) -> Option<u32> {
    match byte(rest)? {
        TERMINATOR => None,
        // CVE-2026-25243: where one byte is enough, Redis wrote one.
        LONG => array(rest).map(u32::from_le_bytes).filter(|length| *length >= u32::from(LONG)),
        length => Some(u32::from(length)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn read(blob: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
        Zipmap::new(blob).and_then(Iterator::collect).ok()
    }

    /// A field or a value with the length in front of it, and behind that what is to come there.
    fn with_length(string: &[u8], behind: &[u8]) -> Vec<u8> {
        let length = match string.len() {
            0..254 => vec![string.len() as u8],
            _ => [&[LONG], &(string.len() as u32).to_le_bytes()[..]].concat(),
        };
        [&length, behind, string].concat()
    }

    /// A pair with `unused` bytes behind it.
    fn pair(field: &[u8], value: &[u8], unused: u8) -> Vec<u8> {
        let unused_bytes = vec![TERMINATOR; usize::from(unused)];
        [with_length(field, &[]), with_length(value, &[unused]), unused_bytes].concat()
    }

    fn zipmap(announced: u8, pairs: &[u8]) -> Vec<u8> {
        [&[announced], pairs, &[TERMINATOR]].concat()
    }

    /// The example in the story of Redis's `zipmap.c`, with a value that has become shorter.
    #[test]
    fn the_example_of_redis_is_read() {
        let blob = b"\x02\x03foo\x03\x00bar\x05hello\x03\x02you??\xff";
        assert_eq!(read(blob), Some(vec![(&b"foo"[..], &b"bar"[..]), (b"hello", b"you")]));
        assert_eq!(read(b"\x00\xff"), Some(vec![]));
    }

    #[test]
    fn lengths_have_two_forms() {
        for length in [0, 1, 253, 254, 255, 256, 70_000] {
            let text = vec![b'x'; length];
            let blob = zipmap(2, &[pair(&text, b"", 0), pair(b"", &text, 255)].concat());
            assert_eq!(read(&blob), Some(vec![(&text[..], &b""[..]), (b"", &text)]), "{length}");
        }
    }

    #[test]
    fn the_number_of_fields_must_be_right_if_it_is_known() {
        let three = pair(b"f", b"v", 0).repeat(3);
        for (announced, is_right) in [(3, true), (254, true), (255, false), (2, false), (4, false)] {
            assert_eq!(read(&zipmap(announced, &three)).is_some(), is_right, "{announced}");
        }
        let many = pair(b"f", b"v", 0).repeat(300);
        assert_eq!(read(&zipmap(254, &many)).map(|pairs| pairs.len()), Some(300));
        assert_eq!(read(&zipmap(44, &many)), None);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for blob in [&b""[..], b"\xff", b"\x00", b"\xff\xff", b"\x00\x00", b"\x01\xff", b"\x00\xff\xff"] {
            assert_eq!(read(blob), None, "{}", blob.escape_ascii());
        }
        for pairs in [
            &b"\x03foo"[..],
            b"\x04foo\x03\x00bar",
            b"\x03foo\x03",
            b"\x03foo\x03\x00ba",
            b"\x03foo\x03\x00bar?",
            b"\x03foo\x03\x01bar",
            b"\xff\x03\x00bar",
            b"\x03foo\xff\x00bar",
            b"\xfe\xff\xff\xff\xfffoo\x03\x00bar",
            b"\x03foo\xfe\xff\xff\xff\xff\x00bar",
            b"\x03foo\xfe\x03\x00",
        ] {
            assert_eq!(read(&zipmap(1, pairs)), None, "{}", pairs.escape_ascii());
            assert_eq!(read(&zipmap(254, pairs)), None, "{}", pairs.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn a_zipmap_that_was_cut_or_changed_does_no_harm(
            pairs in vec((vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..300), any::<u8>()), 0..10),
            (at, bit, cut) in (any::<prop::sample::Index>(), 0..8_u8, any::<prop::sample::Index>()),
        ) {
            let encoded = pairs.iter().flat_map(|(field, value, unused)| pair(field, value, *unused));
            let mut blob = zipmap(pairs.len() as u8, &encoded.collect::<Vec<_>>());
            let expected = pairs.iter().map(|(field, value, _)| (&field[..], &value[..])).collect();
            prop_assert_eq!(read(&blob), Some(expected));
            // A cut may end with a byte that looks like the terminator, but then a field is missing.
            prop_assert_eq!(read(&blob[..cut.index(blob.len())]), None);
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            let _ = read(&blob);
        }

        #[test]
        fn garbage_does_no_harm(pairs in vec(any::<u8>(), 0..100), announced in any::<u8>()) {
            let _ = read(&pairs);
            let _ = read(&zipmap(announced, &pairs));
        }
    }
}
