//! Ziplists: what Redis packed small collections in before version 7.
//!
//! ```text
//! bytes of the whole: u32   offset of the last element: u32   elements: u16   element ...   0xff
//! ```
//!
//! Integers are little-endian. An element begins with the length of the element before it, for readers that
//! read backwards: one byte, or the byte 254 and four more. Redis does not shrink that field, so the long
//! form may hold a short length. A byte for the encoding and the content follow.

use super::{COUNT_UNKNOWN, DecodeError, Element, TERMINATOR, array, byte, count_is, integer_24};
use super::{long_text, text};

const CORRUPT: DecodeError = DecodeError::Invalid("Ziplist integrity check failed.");
/// Two lengths of 32 bits and a count of 16.
const HEADER_BYTES: usize = 4 + 4 + 2;
/// The length of the element before takes four more bytes.
const LONG_LENGTH: u8 = 254;

/// The elements of a ziplist.
#[derive(Clone, Debug)]
pub(crate) struct Ziplist<'a> {
    /// The elements that were not read yet.
    rest: &'a [u8],
    /// The number of elements in the header.
    announced: u16,
    /// How many elements were read.
    count: usize,
    /// The bytes from the beginning of the last element to the end, by the offset in the header.
    tail_bytes: usize,
    /// The same for the last element that was read; all bytes while none was read.
    last_bytes: usize,
    /// The length of that element, in bytes; zero while none was read.
    previous_bytes: usize,
}

impl<'a> Ziplist<'a> {
    /// Begins to read a ziplist.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if `blob` is not as long as it says, has no terminator, or its last element
    /// lies outside.
    pub(crate) fn new(blob: &'a [u8]) -> Result<Ziplist<'a>, DecodeError> {
        Ziplist::open(blob).ok_or(CORRUPT)
    }

    fn open(blob: &'a [u8]) -> Option<Ziplist<'a>> {
        let mut rest = blob.strip_suffix(&[TERMINATOR])?;
        let bytes = usize::try_from(u32::from_le_bytes(array(&mut rest)?)).ok()?;
        let tail_offset = usize::try_from(u32::from_le_bytes(array(&mut rest)?)).ok()?;
        let announced = u16::from_le_bytes(array(&mut rest)?);
        let tail_bytes = rest.len().checked_sub(tail_offset.checked_sub(HEADER_BYTES)?)?;
        let (count, last_bytes, previous_bytes) = (0, rest.len(), 0);
        let ziplist = Ziplist { rest, announced, count, tail_bytes, last_bytes, previous_bytes };
        (bytes == blob.len()).then_some(ziplist)
    }

    fn read_element(&mut self) -> Option<Element<'a>> {
        let bytes_before = self.rest.len();
        let previous_bytes = match byte(&mut self.rest)? {
            TERMINATOR => return None,
            LONG_LENGTH => usize::try_from(u32::from_le_bytes(array(&mut self.rest)?)).ok()?,
            length => usize::from(length),
        };
        if previous_bytes != self.previous_bytes {
            return None;
        }
        let element = read_content(&mut self.rest)?;
        (self.last_bytes, self.previous_bytes) = (bytes_before, bytes_before - self.rest.len());
        Some(element)
    }
}

impl<'a> Iterator for Ziplist<'a> {
    type Item = Result<Element<'a>, DecodeError>;

    fn next(&mut self) -> Option<Result<Element<'a>, DecodeError>> {
        let element = if !self.rest.is_empty() {
            self.read_element()
        } else if count_is(self.announced, self.count) && self.last_bytes == self.tail_bytes {
            return None;
        } else {
            None
        };
        self.count += 1;
        if element.is_none() {
            // The next call must find nothing to complain about.
            (self.rest, self.announced, self.last_bytes) = (&[], COUNT_UNKNOWN, self.tail_bytes);
        }
        Some(element.ok_or(CORRUPT))
    }
}

/// Takes an element without the length of the one before it from the front.
fn read_content<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let first = byte(rest)?;
    Some(match first {
        0x00..=0x3f => Element::Text(text(rest, usize::from(first))?),
        0x40..=0x7f => {
            let length = u16::from_be_bytes([first & 0x3f, byte(rest)?]);
            Element::Text(text(rest, usize::from(length))?)
        }
        0x80 => {
            // Lengths of strings are big-endian, unlike all else.
            let length = u32::from_be_bytes(array(rest)?);
            Element::Text(long_text(rest, length)?)
        }
        0xc0 => Element::Integer(i64::from(i16::from_le_bytes(array(rest)?))),
        0xd0 => Element::Integer(i64::from(i32::from_le_bytes(array(rest)?))),
        0xe0 => Element::Integer(i64::from_le_bytes(array(rest)?)),
        0xf0 => Element::Integer(integer_24(rest)?),
        0xfe => Element::Integer(i64::from(i8::from_le_bytes(array(rest)?))),
        // The integers from 0 to 12 have no content.
        0xf1..=0xfd => Element::Integer(i64::from(first & 0x0f) - 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A ziplist of elements without the length of the one before, which `is_long` has in the long form.
    fn ziplist(announced: u16, contents: &[Vec<u8>], is_long: impl Fn(usize) -> bool) -> Vec<u8> {
        let (mut elements, mut previous, mut tail) = (vec![], 0_usize, HEADER_BYTES);
        for (place, content) in contents.iter().enumerate() {
            tail = HEADER_BYTES + elements.len();
            if previous >= 254 || is_long(place) {
                elements.push(LONG_LENGTH);
                elements.extend((previous as u32).to_le_bytes());
            } else {
                elements.push(previous as u8);
            }
            elements.extend(content);
            previous = HEADER_BYTES + elements.len() - tail;
        }
        let bytes = (HEADER_BYTES + elements.len() + 1) as u32;
        let header = [&bytes.to_le_bytes()[..], &(tail as u32).to_le_bytes(), &announced.to_le_bytes()];
        [&header.concat(), &elements[..], &[TERMINATOR]].concat()
    }

    fn read(blob: &[u8]) -> Option<Vec<Element<'_>>> {
        Ziplist::new(blob).and_then(Iterator::collect).ok()
    }

    /// The example in the story of Redis's `ziplist.c`, and what it becomes by one more push.
    #[test]
    fn the_examples_of_redis_are_read() {
        let two = b"\x0f\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x00\xf3\x02\xf6\xff";
        assert_eq!(read(two), Some(vec![Element::Integer(2), Element::Integer(5)]));
        let hello = b"\x02\x0bHello World";
        let three = b"\x1c\x00\x00\x00\x0e\x00\x00\x00\x03\x00\x00\xf3\x02\xf6";
        let three = [&three[..], hello, &[TERMINATOR]].concat();
        let elements = vec![Element::Integer(2), Element::Integer(5), Element::Text(b"Hello World")];
        assert_eq!(read(&three), Some(elements));
        assert_eq!(read(b"\x0b\x00\x00\x00\x0a\x00\x00\x00\x00\x00\xff"), Some(vec![]));
    }

    #[test]
    fn every_encoding_is_read() {
        let long = vec![b'x'; 20_000];
        for (content, element) in [
            (&b"\xf1"[..], Element::Integer(0)),
            (b"\xfd", Element::Integer(12)),
            (b"\xfe\x80", Element::Integer(-128)),
            (b"\xfe\x0d", Element::Integer(13)),
            (b"\xc0\x00\x80", Element::Integer(-32_768)),
            (b"\xf0\xff\xff\x7f", Element::Integer(8_388_607)),
            (b"\xf0\x00\x00\x80", Element::Integer(-8_388_608)),
            (b"\xd0\x00\x00\x00\x80", Element::Integer(-2_147_483_648)),
            (b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f", Element::Integer(i64::MAX)),
            (b"\x00", Element::Text(b"")),
            (b"\x03abc", Element::Text(b"abc")),
            (b"\x40\x03abc", Element::Text(b"abc")),
            (&[b"\x41\x00", &long[..256]].concat(), Element::Text(&long[..256])),
            (b"\x80\x00\x00\x00\x03abc", Element::Text(b"abc")),
            (&[b"\x80\x00\x00\x4e\x20", &long[..]].concat(), Element::Text(&long)),
        ] {
            // The second element says how long the first is.
            let blob = ziplist(2, &[content.to_vec(), vec![0xf1]], |_| false);
            let elements = vec![element, Element::Integer(0)];
            assert_eq!(read(&blob), Some(elements), "{}", content[..1].escape_ascii());
        }
    }

    #[test]
    fn a_short_length_may_stand_in_the_long_form() {
        let blob = ziplist(2, &[b"\x03abc".to_vec(), b"\x03def".to_vec()], |place| place == 1);
        assert_eq!(&blob[HEADER_BYTES..][..10], b"\x00\x03abc\xfe\x05\x00\x00\x00");
        assert_eq!(read(&blob), Some(vec![Element::Text(b"abc"), Element::Text(b"def")]));
    }

    #[test]
    fn the_number_of_elements_must_be_right_if_it_is_known() {
        let blob = |announced| ziplist(announced, &[vec![0xf1], vec![0xf2], vec![0xf3]], |_| false);
        for (announced, is_right) in [(3, true), (COUNT_UNKNOWN, true), (0, false), (2, false), (4, false)] {
            assert_eq!(read(&blob(announced)).is_some(), is_right, "{announced}");
        }
        let many = ziplist(COUNT_UNKNOWN, &vec![vec![0xf1]; 65_537], |_| false);
        assert_eq!(read(&many).map(|elements| elements.len()), Some(65_537));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for blob in [
            &b""[..],
            b"\xff",
            b"\x0a\x00\x00\x00\x0a\x00\x00\x00\x00\xff",
            b"\x0b\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00",
            b"\x0c\x00\x00\x00\x0a\x00\x00\x00\x00\x00\xff",
            // The last element begins in the header, at the terminator, nowhere.
            b"\x0d\x00\x00\x00\x09\x00\x00\x00\x01\x00\x00\xf1\xff",
            b"\x0d\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x00\xf1\xff",
            b"\x0d\x00\x00\x00\x0d\x00\x00\x00\x01\x00\x00\xf1\xff",
            b"\x0d\x00\x00\x00\xff\xff\xff\xff\x01\x00\x00\xf1\xff",
            // There is none, and it is not where the first would be.
            b"\x0b\x00\x00\x00\x0b\x00\x00\x00\x00\x00\xff",
            // It is the second, not the first.
            b"\x0f\x00\x00\x00\x0a\x00\x00\x00\x02\x00\x00\xf3\x02\xf6\xff",
            // The lengths of the elements before them are wrong.
            b"\x0d\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x01\xf1\xff",
            b"\x0f\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x00\xf3\x03\xf6\xff",
            b"\x13\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x00\xf3\xfe\x02\x00\x00\x01\xf6\xff",
            b"\x0f\x00\x00\x00\x0c\x00\x00\x00\x02\x00\x00\xf3\xff\xf6\xff",
        ] {
            assert_eq!(read(blob), None, "{}", blob.escape_ascii());
        }
        for content in [
            &b""[..],
            b"\x04abc",
            b"\x02abc",
            b"\x40",
            b"\x7f\xffabc",
            b"\x80\xff\xff\xff\xffabc",
            b"\x81\x00\x00\x00\x03abc",
            b"\xc0\x00",
            b"\xc1\x00\x00",
            b"\xe0abc",
            b"\xff",
        ] {
            let blob = ziplist(1, &[content.to_vec()], |_| false);
            assert_eq!(read(&blob), None, "{}", content.escape_ascii());
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        for (announced, second) in [(2, b"\xff"), (3, b"\xf1")] {
            let blob = ziplist(announced, &[vec![0xf1], second.to_vec()], |_| false);
            let elements: Vec<_> = Ziplist::new(&blob).unwrap().collect();
            assert!(
                matches!(elements.split_last(), Some((Err(_), right)) if right.iter().all(Result::is_ok))
            );
        }
    }

    /// An element without the length of the one before it.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        let string = vec(any::<u8>(), 0..400).prop_map(|text| match text.len() {
            0..64 => [&[text.len() as u8], &text[..]].concat(),
            length => [&[0x40 | (length >> 8) as u8, length as u8], &text[..]].concat(),
        });
        let integer = any::<i32>().prop_map(|integer| [&[0xd0], &integer.to_le_bytes()[..]].concat());
        prop_oneof![string, integer, (0xf1..=0xfd_u8).prop_map(|integer| vec![integer])]
    }

    proptest! {
        #[test]
        fn a_ziplist_that_was_cut_or_changed_is_refused_or_read_to_its_end(
            contents in vec(content(), 0..20),
            long in any::<u32>(),
            (at, bit, cut) in (any::<prop::sample::Index>(), 0..8_u8, any::<prop::sample::Index>()),
        ) {
            let mut blob = ziplist(contents.len() as u16, &contents, |place| long >> place & 1 == 1);
            prop_assert_eq!(read(&blob).map(|read| read.len()), Some(contents.len()));
            prop_assert_eq!(read(&blob[..cut.index(blob.len())]), None);
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            let changed = read(&blob);
            // The header and the terminator leave no choice.
            prop_assert!((HEADER_BYTES..blob.len() - 1).contains(&at) || changed.is_none());
        }

        #[test]
        fn garbage_does_no_harm(elements in vec(any::<u8>(), 0..100), announced in any::<u16>()) {
            let _ = read(&elements);
            let mut blob = ziplist(announced, &[vec![0xf1]], |_| false);
            blob.splice(HEADER_BYTES..HEADER_BYTES + 2, elements);
            let bytes = blob.len() as u32;
            blob[..4].copy_from_slice(&bytes.to_le_bytes());
            let _ = read(&blob);
        }
    }
}
