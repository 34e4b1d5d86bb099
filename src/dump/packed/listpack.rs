//! Listpacks: what Redis packs small collections in from version 7 on.
//!
//! ```text
//! bytes of the whole: u32   elements: u16   element ...   0xff
//! ```
//!
//! Integers are little-endian. An element is a byte for the encoding, the content, and the *backlen*: the
//! length of both, for readers that read backwards. The backlen takes one to five bytes of seven bits
//! each, the highest first; all but the first have their top bit set.

use super::{COUNT_UNKNOWN, DecodeError, Element, TERMINATOR, array, byte, count_is, integer_24};
use super::{long_text, text};

const CORRUPT: DecodeError = DecodeError::Invalid("Listpack integrity check failed.");

/// The elements of a listpack.
#[derive(Clone, Debug)]
pub(crate) struct Listpack<'a> {
    /// The elements that were not read yet.
    rest: &'a [u8],
    /// The number of elements in the header.
    announced: u16,
    /// How many elements were read.
    count: usize,
}

impl<'a> Listpack<'a> {
    /// Begins to read a listpack.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if `blob` is not as long as it says, or has no terminator.
    pub(crate) fn new(blob: &'a [u8]) -> Result<Listpack<'a>, DecodeError> {
        let mut rest = blob.strip_suffix(&[TERMINATOR]).ok_or(CORRUPT)?;
        let bytes = u32::from_le_bytes(array(&mut rest).ok_or(CORRUPT)?);
        let announced = u16::from_le_bytes(array(&mut rest).ok_or(CORRUPT)?);
        if usize::try_from(bytes) != Ok(blob.len()) {
            return Err(CORRUPT);
        }
        Ok(Listpack { rest, announced, count: 0 })
    }
}

/// Elements of a listpack that was checked before, to its last one.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// Begins to read at the element at a place.
    pub(crate) fn at(listpack: &'a [u8], place: usize) -> Elements<'a> {
        let end = listpack.len().saturating_sub(1);
        Elements(listpack.get(place..end).unwrap_or_default())
    }

    /// Bytes of the elements that were not read yet. The terminator follows them.
    pub(crate) fn bytes_left(&self) -> usize {
        self.0.len()
    }

    /// Reads an element that is an integer.
    #[inline]
    pub(crate) fn integer(&mut self) -> Option<i64> {
        match self.next()? {
            Element::Integer(integer) => Some(integer),
            Element::Text(_) => None,
        }
    }

    /// Skips this number of elements.
    #[inline]
    pub(crate) fn pass_over(&mut self, elements: usize) -> Option<()> {
        for _ in 0..elements {
            let bytes = element_bytes_at(self.0)?;
            self.0 = self.0.get(bytes..)?;
        }
        Some(())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        // Nearly all elements are small integers and short texts, whose backlen is one byte.
        match *self.0 {
            [small @ 0x00..=0x7f, _, ref rest @ ..] => {
                self.0 = rest;
                Some(Element::Integer(i64::from(small)))
            }
            [first @ 0x80..=0xbf, ref rest @ ..] => {
                let (text, rest) = rest.split_at_checked(usize::from(first & 0x3f))?;
                self.0 = rest.get(1..)?;
                Some(Element::Text(text))
            }
            _ => read_unchecked(&mut self.0),
        }
    }
}

/// The end of the element at a place of a listpack that was checked before.
pub(super) fn end_of_element(listpack: &[u8], place: usize) -> Option<usize> {
    Some(place + element_bytes_at(listpack.get(place..)?)?)
}

/// The place of the element that ends at a place of a listpack that was checked before.
pub(crate) fn element_before(listpack: &[u8], end: usize) -> Option<usize> {
    const BACKLEN_BYTES_MAX: usize = 5;
    let mut length = 0;
    for group in 0..BACKLEN_BYTES_MAX {
        let byte = *listpack.get(end.checked_sub(group + 1)?)?;
        length |= usize::from(byte & 0x7f) << (7 * group);
        if byte & 0x80 == 0 {
            return end.checked_sub(length + group + 1);
        }
    }
    None
}

/// Bytes of the first of some elements, with its backlen.
#[inline]
fn element_bytes_at(rest: &[u8]) -> Option<usize> {
    let length = match *rest.first()? {
        0x00..=0x7f => 1,
        first @ 0x80..=0xbf => 1 + usize::from(first & 0x3f),
        0xc0..=0xdf => 2,
        first @ 0xe0..=0xef => 2 + usize::from(u16::from_be_bytes([first & 0x0f, *rest.get(1)?])),
        0xf0 => 5 + u32::from_le_bytes(*rest.get(1..)?.first_chunk()?) as usize,
        0xf1 => 3,
        0xf2 => 4,
        0xf3 => 5,
        0xf4 => 9,
        0xf5..=0xff => return None,
    };
    Some(length + backlen_bytes(length))
}

impl<'a> Iterator for Listpack<'a> {
    type Item = Result<Element<'a>, DecodeError>;

    fn next(&mut self) -> Option<Result<Element<'a>, DecodeError>> {
        let element = if !self.rest.is_empty() {
            read_element(&mut self.rest)
        } else if count_is(self.announced, self.count) {
            return None;
        } else {
            None
        };
        self.count += 1;
        if element.is_none() {
            // The next call must find nothing to complain about.
            (self.rest, self.announced) = (&[], COUNT_UNKNOWN);
        }
        Some(element.ok_or(CORRUPT))
    }
}

/// Takes an element from the front, and checks the length behind it.
fn read_element<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let bytes_before = rest.len();
    let element = read_content(rest)?;
    let length = bytes_before - rest.len();
    (read_backlen(rest, backlen_bytes(length))? == length).then_some(element)
}

/// Takes an element from the front, and passes over the length behind it.
fn read_unchecked<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let bytes_before = rest.len();
    let element = read_content(rest)?;
    let length = bytes_before - rest.len();
    *rest = rest.get(backlen_bytes(length)..)?;
    Some(element)
}

/// Takes an element without the length behind it from the front.
#[inline]
fn read_content<'a>(rest: &mut &'a [u8]) -> Option<Element<'a>> {
    let first = byte(rest)?;
    Some(match first {
        0x00..=0x7f => Element::Integer(i64::from(first)),
        0x80..=0xbf => Element::Text(text(rest, usize::from(first & 0x3f))?),
        0xc0..=0xdf => {
            // The three highest bits go, and the fourth is the sign.
            let integer = i16::from_be_bytes([first, byte(rest)?]) << 3 >> 3;
            Element::Integer(i64::from(integer))
        }
        0xe0..=0xef => {
            let length = u16::from_be_bytes([first & 0x0f, byte(rest)?]);
            Element::Text(text(rest, usize::from(length))?)
        }
        0xf0 => {
            let length = u32::from_le_bytes(array(rest)?);
            Element::Text(long_text(rest, length)?)
        }
        0xf1 => Element::Integer(i64::from(i16::from_le_bytes(array(rest)?))),
        0xf2 => Element::Integer(integer_24(rest)?),
        0xf3 => Element::Integer(i64::from(i32::from_le_bytes(array(rest)?))),
        0xf4 => Element::Integer(i64::from_le_bytes(array(rest)?)),
        0xf5..=0xff => return None,
    })
}

/// How many bytes a backlen takes. Redis compares with "less than": the greatest length of each size
/// already takes one more byte, except for the smallest size. Redis: `lpEncodeBacklen`.
#[inline]
pub(super) fn backlen_bytes(length: usize) -> usize {
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Takes a backlen of `bytes` bytes from the front.
fn read_backlen(rest: &mut &[u8], bytes: usize) -> Option<usize> {
    let (first, others) = text(rest, bytes)?.split_first()?;
    let is_right = first & 0x80 == 0 && others.iter().all(|byte| byte & 0x80 != 0);
    let length = |length: usize, byte: &u8| length << 7 | usize::from(byte & 0x7f);
    is_right.then(|| others.iter().fold(usize::from(*first), length))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A listpack of elements that are encoded already.
    fn listpack(announced: u16, elements: &[u8]) -> Vec<u8> {
        let bytes = u32::try_from(4 + 2 + elements.len() + 1).unwrap();
        [&bytes.to_le_bytes()[..], &announced.to_le_bytes(), elements, &[TERMINATOR]].concat()
    }

    /// The backlen as Redis writes it, another way than it is read here.
    fn backlen(length: usize) -> Vec<u8> {
        let bytes = backlen_bytes(length);
        let byte = |place: usize| (length >> (7 * (bytes - 1 - place)) & 0x7f) as u8;
        (0..bytes).map(|place| byte(place) | if place == 0 { 0 } else { 0x80 }).collect()
    }

    fn encoded(content: &[u8]) -> Vec<u8> {
        [content, &backlen(content.len())].concat()
    }

    fn read(blob: &[u8]) -> Option<Vec<Element<'_>>> {
        Listpack::new(blob).and_then(Iterator::collect).ok()
    }

    #[test]
    fn every_encoding_is_read() {
        let long = vec![b'x'; 5000];
        for (content, element) in [
            (&b"\x00"[..], Element::Integer(0)),
            (b"\x7f", Element::Integer(127)),
            (b"\xc0\x80", Element::Integer(128)),
            (b"\xcf\xff", Element::Integer(4095)),
            (b"\xd0\x00", Element::Integer(-4096)),
            (b"\xdf\xff", Element::Integer(-1)),
            (b"\xf1\x00\x10", Element::Integer(4096)),
            (b"\xf1\x00\x80", Element::Integer(-32_768)),
            (b"\xf2\xff\xff\x7f", Element::Integer(8_388_607)),
            (b"\xf2\x00\x00\x80", Element::Integer(-8_388_608)),
            (b"\xf3\x00\x00\x00\x80", Element::Integer(-2_147_483_648)),
            (b"\xf4\xff\xff\xff\xff\xff\xff\xff\x7f", Element::Integer(i64::MAX)),
            (b"\xf4\x00\x00\x00\x00\x00\x00\x00\x80", Element::Integer(i64::MIN)),
            (b"\x80", Element::Text(b"")),
            (b"\x83abc", Element::Text(b"abc")),
            (b"\xe0\x03abc", Element::Text(b"abc")),
            (&[b"\xe1\x00", &long[..256]].concat(), Element::Text(&long[..256])),
            (b"\xf0\x03\x00\x00\x00abc", Element::Text(b"abc")),
            (&[b"\xf0\x88\x13\x00\x00", &long[..]].concat(), Element::Text(&long)),
        ] {
            let blob = listpack(1, &encoded(content));
            assert_eq!(read(&blob), Some(vec![element]), "{}", content[..1].escape_ascii());
        }
    }

    /// Lengths at which the backlen gets one more byte. Redis 7.0.15 writes these.
    #[test]
    fn backlens_are_those_of_redis() {
        for (length, bytes) in [
            (1, &b"\x01"[..]),
            (127, b"\x7f"),
            (128, b"\x01\x80"),
            (16_382, b"\x7f\xfe"),
            (16_383, b"\x00\xff\xff"),
            (16_384, b"\x01\x80\x80"),
            (2_097_150, b"\x7f\xff\xfe"),
            (2_097_151, b"\x00\xff\xff\xff"),
            (268_435_454, b"\x7f\xff\xff\xfe"),
            (268_435_455, b"\x00\xff\xff\xff\xff"),
            (u32::MAX as usize, b"\x0f\xff\xff\xff\xff"),
        ] {
            assert_eq!(read_backlen(&mut &bytes[..], backlen_bytes(length)), Some(length));
        }
        for bytes in [&b"\x80\x80"[..], b"\x00\x01", b"\x7f"] {
            assert_eq!(read_backlen(&mut &bytes[..], 2), None);
        }
    }

    #[test]
    fn the_number_of_elements_must_be_right_if_it_is_known() {
        let three = encoded(b"\x01").repeat(3);
        for (announced, is_right) in [(3, true), (COUNT_UNKNOWN, true), (0, false), (2, false), (4, false)] {
            assert_eq!(read(&listpack(announced, &three)).is_some(), is_right, "{announced}");
        }
        let many = encoded(b"\x01").repeat(usize::from(u16::MAX) + 2);
        assert_eq!(read(&listpack(COUNT_UNKNOWN, &many)).map(|elements| elements.len()), Some(65_537));
        assert_eq!(read(&listpack(1, &many)), None);
        assert_eq!(read(&listpack(0, b"")), Some(vec![]));
        assert_eq!(read(&listpack(COUNT_UNKNOWN, b"")), Some(vec![]));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let valid = listpack(1, b"\x83abc\x04");
        assert_eq!(read(&valid), Some(vec![Element::Text(b"abc")]));
        for blob in [
            &b""[..],
            b"\xff",
            b"\x06\x00\x00\x00\x00\xff",
            b"\x07\x00\x00\x00\x00\x00\x00",
            b"\x08\x00\x00\x00\x00\x00\xff",
            b"\x07\x00\x00\x00\x00\x00\xff\xff",
        ] {
            assert!(Listpack::new(blob).is_err(), "{blob:?}");
        }
        for elements in [
            &b"\x83abc"[..],
            b"\x83abc\x03",
            b"\x83abc\x84",
            b"\x84abc\x04",
            b"\xbfabc\x04",
            b"\xef\xffabc\x05",
            b"\xf0\xff\xff\xff\xffabc\x08",
            b"\xf4abc\x04",
            b"\xf5\x01",
            b"\xfe\x01",
            b"\xff\x01",
            b"\x01\x01\xff",
            b"\x01",
        ] {
            assert_eq!(read(&listpack(1, elements)), None, "{}", elements.escape_ascii());
            assert_eq!(read(&listpack(COUNT_UNKNOWN, elements)), None, "{}", elements.escape_ascii());
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        for blob in [listpack(2, b"\x01\x01\xf5\x01"), listpack(2, b"\x01\x01")] {
            let mut elements = Listpack::new(&blob).unwrap();
            assert!(matches!(elements.next(), Some(Ok(Element::Integer(1)))));
            assert!(matches!(elements.next(), Some(Err(_))));
            assert!(elements.next().is_none());
        }
    }

    /// An element that is encoded, in the smallest of the forms for strings.
    fn element() -> impl Strategy<Value = Vec<u8>> {
        let string = vec(any::<u8>(), 0..200).prop_map(|text| match text.len() {
            0..64 => [&[0x80 | text.len() as u8], &text[..]].concat(),
            _ => [&[0xe0, text.len() as u8], &text[..]].concat(),
        });
        let integer = any::<i64>().prop_map(|integer| [&[0xf4], &integer.to_le_bytes()[..]].concat());
        prop_oneof![string, integer, (0..128_u8).prop_map(|integer| vec![integer])]
    }

    proptest! {
        #[test]
        fn a_listpack_that_was_cut_or_changed_is_refused_or_read_to_its_end(
            elements in vec(element(), 0..20),
            (at, bit, cut) in (any::<prop::sample::Index>(), 0..8_u8, any::<prop::sample::Index>()),
        ) {
            let encoded: Vec<u8> = elements.iter().flat_map(|content| encoded(content)).collect();
            let mut blob = listpack(elements.len() as u16, &encoded);
            prop_assert_eq!(read(&blob).map(|read| read.len()), Some(elements.len()));
            prop_assert_eq!(read(&blob[..cut.index(blob.len())]), None);
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            let changed = read(&blob);
            // The header and the terminator leave no choice.
            prop_assert!((6..blob.len() - 1).contains(&at) || changed.is_none());
        }

        #[test]
        fn what_was_checked_is_read_the_same_without_checks(
            elements in vec(element(), 0..20),
            passed in 0..25_usize,
        ) {
            const FIRST: usize = 6;
            let encoded: Vec<u8> = elements.iter().flat_map(|content| encoded(content)).collect();
            let blob = listpack(elements.len() as u16, &encoded);
            let checked = read(&blob).unwrap();
            let mut unchecked = Elements::at(&blob, FIRST);
            prop_assert_eq!(unchecked.clone().collect::<Vec<_>>(), &checked[..]);
            prop_assert_eq!(unchecked.pass_over(passed).is_some(), passed <= checked.len());
            if let Some(rest) = checked.get(passed..) {
                prop_assert_eq!(unchecked.bytes_left() == 0, rest.is_empty());
                prop_assert_eq!(unchecked.collect::<Vec<_>>(), rest);
            }
        }

        #[test]
        fn garbage_does_no_harm(elements in vec(any::<u8>(), 0..100), announced in any::<u16>()) {
            let _ = read(&elements);
            let _ = read(&listpack(announced, &elements));
        }
    }
}
