//! Writes listpacks and intsets, the forms in which Redis 7 keeps small collections.

use super::TERMINATOR;
use super::listpack::{backlen_bytes, end_of_element};
use crate::resp::number::parse_integer;

/// Bytes of a listpack in front of its elements.
const HEADER_BYTES: usize = 6;
/// Bytes of a listpack without elements.
pub(crate) const EMPTY_LISTPACK_BYTES: usize = HEADER_BYTES + 1;
/// Longer texts are no integers.
const INTEGER_BYTES_MAX: usize = 20;

/// A listpack that is being written: see [`listpack`](super::listpack) for its form.
#[derive(Debug)]
pub(crate) struct ListpackWriter {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for ListpackWriter {
    fn default() -> ListpackWriter {
        ListpackWriter { bytes: vec![0; HEADER_BYTES], count: 0 }
    }
}

impl ListpackWriter {
    /// Appends an element. A text that is an integer in decimal is written as an integer.
    ///
    /// # Panics
    ///
    /// If the text is longer than 4 GiB.
    pub(crate) fn push(&mut self, text: &[u8]) {
        match integer(text) {
            Some(integer) => encode_integer(&mut self.bytes, integer),
            None => encode_text(&mut self.bytes, text),
        }
        self.count += 1;
    }

    /// Goes on with a listpack that [`finish`](Self::finish) has returned. A count that is not known stays
    /// unknown.
    pub(crate) fn resume(mut listpack: Vec<u8>) -> ListpackWriter {
        debug_assert_eq!(listpack.last(), Some(&TERMINATOR));
        listpack.pop();
        let count = u16::from_le_bytes([listpack[4], listpack[5]]);
        ListpackWriter { bytes: listpack, count: usize::from(count) }
    }

    /// Appends an element that is an integer.
    pub(crate) fn push_integer(&mut self, integer: i64) {
        encode_integer(&mut self.bytes, integer);
        self.count += 1;
    }

    /// Returns the listpack.
    ///
    /// # Panics
    ///
    /// If it is longer than 4 GiB.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(TERMINATOR);
        let size = u32::try_from(self.bytes.len()).expect("listpacks are short");
        // Redis: a count of 65,535 means that it is not known.
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        self.bytes[..4].copy_from_slice(&size.to_le_bytes());
        self.bytes[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes
    }
}

/// Appends an element that is an integer.
fn encode_integer(out: &mut Vec<u8>, integer: i64) {
    let (start, bytes) = (out.len(), integer.to_le_bytes());
    match integer {
        0..128 => out.push(integer as u8),
        -4096..4096 => {
            let thirteen = integer as u16 & 0x1fff;
            out.extend([0xc0 | (thirteen >> 8) as u8, thirteen as u8]);
        }
        -0x8000..0x8000 => tagged(out, 0xf1, &bytes[..2]),
        -0x80_0000..0x80_0000 => tagged(out, 0xf2, &bytes[..3]),
        -0x8000_0000..0x8000_0000 => tagged(out, 0xf3, &bytes[..4]),
        _ => tagged(out, 0xf4, &bytes),
    }
    let length = out.len() - start;
    backlen(out, length);
}

/// Appends an element that is any text.
fn encode_text(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    match text.len() {
        length @ 0..64 => out.push(0x80 | length as u8),
        length @ 64..4096 => out.extend([0xe0 | (length >> 8) as u8, length as u8]),
        length => {
            let length = u32::try_from(length).expect("packed strings are short");
            tagged(out, 0xf0, &length.to_le_bytes());
        }
    }
    out.extend_from_slice(text);
    let length = out.len() - start;
    backlen(out, length);
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    out.extend_from_slice(bytes);
}

/// Appends the length of an element, in groups of seven bits.
fn backlen(out: &mut Vec<u8>, length: usize) {
    let groups = backlen_bytes(length);
    for group in (0..groups).rev() {
        let bits = (length >> (7 * group)) as u8 & 0x7f;
        out.push(if group + 1 == groups { bits } else { bits | 0x80 });
    }
}

/// Replaces the element at a place of a listpack by an integer.
pub(crate) fn replace_by_integer(listpack: &mut Vec<u8>, place: usize, integer: i64) {
    let mut element = Vec::new();
    encode_integer(&mut element, integer);
    let Some(end) = end_of_element(listpack, place) else { return };
    listpack.splice(place..end, element);
    let size = u32::try_from(listpack.len()).expect("listpacks are short");
    listpack[..4].copy_from_slice(&size.to_le_bytes());
}

/// The integer that a text is in decimal.
fn integer(text: &[u8]) -> Option<i64> {
    if text.len() <= INTEGER_BYTES_MAX { parse_integer(text) } else { None }
}

/// How many bytes an element takes in a listpack.
pub(crate) fn element_bytes(text: &[u8]) -> usize {
    let bytes = match (integer(text), text.len()) {
        (Some(0..128), _) => 1,
        (Some(-4096..4096), _) => 2,
        (Some(-0x8000..0x8000), _) => 3,
        (Some(-0x80_0000..0x80_0000), _) => 4,
        (Some(-0x8000_0000..0x8000_0000), _) => 5,
        (Some(_), _) => 9,
        (None, length @ 0..64) => 1 + length,
        (None, length @ 64..4096) => 2 + length,
        (None, length) => 5 + length,
    };
    bytes + backlen_bytes(bytes)
}

/// Writes an intset: integers in ascending order, all as wide as the widest of them.
pub(crate) fn intset(integers: impl ExactSizeIterator<Item = i64> + Clone) -> Vec<u8> {
    let fits = |width: u32| {
        integers.clone().all(|integer| integer >> (8 * width - 1) == 0 || integer >> (8 * width - 1) == -1)
    };
    let width: u32 = if fits(2) {
        2
    } else if fits(4) {
        4
    } else {
        8
    };
    let mut bytes = width.to_le_bytes().to_vec();
    bytes.extend((integers.len() as u32).to_le_bytes());
    for integer in integers {
        bytes.extend_from_slice(&integer.to_le_bytes()[..width as usize]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::intset::Intset;
    use super::super::listpack::Listpack;
    use super::*;

    #[test]
    fn elements_of_every_size_are_read_again() {
        let mut texts: Vec<Vec<u8>> = [0, 1, 63, 64, 4095, 4096, 70_000].map(|n| vec![b'x'; n]).to_vec();
        let edges = [0, 127, 128, 4095, 4096, 32_767, 32_768, 8_388_607, 8_388_608, 2_147_483_647];
        for edge in edges.into_iter().chain([2_147_483_648, i64::MAX]) {
            texts.extend([edge, -edge, -edge - 1].map(|integer| integer.to_string().into_bytes()));
        }
        texts.extend([&b"007"[..], b"-0", b"+1", b"1.5", b"99999999999999999999"].map(<[u8]>::to_vec));
        let mut writer = ListpackWriter::default();
        for text in &texts {
            let before = writer.bytes.len() + 1;
            writer.push(text);
            assert_eq!(element_bytes(text), (writer.bytes.len() + 1) - before);
        }
        assert_eq!(writer.count, texts.len());
        let (size, blob) = ((writer.bytes.len() + 1), writer.finish());
        assert_eq!(size, blob.len());
        let mut buffer = itoa::Buffer::new();
        let mut elements = Listpack::new(&blob).unwrap();
        for text in &texts {
            assert_eq!(elements.next().unwrap().unwrap().text(&mut buffer), text);
        }
        assert!(elements.next().is_none());
    }

    #[test]
    fn integers_of_every_width_are_read_again() {
        for integers in [
            &[1_i64][..],
            &[-32_768, 0, 32_767],
            &[-32_769, 5],
            &[0, 2_147_483_647],
            &[i64::MIN, -1, 2_147_483_648, i64::MAX],
        ] {
            let blob = intset(integers.iter().copied());
            let read: Vec<i64> = Intset::new(&blob).unwrap().map(Result::unwrap).collect();
            assert_eq!(read, integers);
        }
    }
}
