//! A pattern that was read once, for texts that are long or many.
//!
//! The segment before the first star has to match at the beginning of the text, the one behind the last star
//! at its end, and each one between them at the first place behind the one before. Such a place is found in
//! linear time if the segment is plain bytes. Otherwise place after place is tried, and if that takes too
//! long, a bit for each element tells whether the segment up to it matches the text up to here ("shift-and"),
//! and 64 of them are moved on at a time.

use std::collections::HashMap;

use memchr::memmem;

use super::{Element, Item, Items, ends, fold};

/// Elements of a segment for which there can be a table, which takes 2 MiB then. A longer segment with stars
/// on both sides that is not plain bytes, and for which trying takes too long, is found nowhere. Redis gives
/// up likewise where stars are too many.
const TABLE_ELEMENTS_MAX: usize = 64 << 10;

/// A pattern that was read.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    /// Codes of all elements.
    codes: Vec<Code>,
    /// The classes that are meant by codes. The same one is here once.
    classes: Vec<Class>,
    /// Bytes that a text has at least.
    text_bytes_min: usize,
    ignore_case: bool,
}

/// An element: a byte, or one of those below.
type Code = u32;
const ANY: Code = 256;
const STAR: Code = 257;
/// Those of classes begin here.
const CLASS: Code = 258;

/// A bit for each byte: whether the class means it.
type Class = [u64; 4];

/// A part of a pattern without stars.
#[derive(Clone, Copy)]
struct Segment<'c> {
    codes: &'c [Code],
    classes: &'c [Class],
}

impl Compiled {
    pub(super) fn new(pattern: &[u8], ignore_case: bool) -> Compiled {
        let mut codes = Vec::with_capacity(pattern.len());
        let (mut classes, mut numbers) = (Vec::new(), HashMap::new());
        let mut rest = pattern;
        while let Some((element, bytes)) = Element::first(rest) {
            let is_star = rest[0] == b'*';
            rest = &rest[bytes..];
            codes.push(match element {
                Element::Byte(_) if is_star && codes.last() == Some(&STAR) => continue,
                Element::Byte(_) if is_star => STAR,
                Element::Byte(byte) => Code::from(fold(byte, ignore_case)),
                Element::Any => ANY,
                Element::Class { items, is_negated } => {
                    let class = class(items, is_negated, ignore_case);
                    *numbers.entry(class).or_insert_with(|| {
                        classes.push(class);
                        CLASS + classes.len() as Code - 1
                    })
                }
            });
        }
        let text_bytes_min = codes.iter().filter(|code| **code != STAR).count();
        Compiled { codes, classes, text_bytes_min, ignore_case }
    }

    /// Whether all of a text, which is not empty, matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        if text.len() < self.text_bytes_min {
            return false;
        }
        let folded;
        let text = Text {
            bytes: text,
            folded: match self.ignore_case {
                true => {
                    folded = text.to_ascii_lowercase();
                    &folded
                }
                false => text,
            },
        };
        let mut segments = self.codes.split(|code| *code == STAR);
        let segment = |codes| Segment { codes, classes: &self.classes };
        // There is one, if it may be empty.
        let first = segment(segments.next().unwrap_or_default());
        let Some(last) = segments.next_back().map(segment) else {
            return text.bytes.len() == first.codes.len() && text.has_at(first, 0);
        };
        let end = text.bytes.len() - last.codes.len();
        if !text.has_at(first, 0) || !text.has_at(last, end) {
            return false;
        }
        let text = Text { bytes: &text.bytes[..end], folded: &text.folded[..end] };
        segments.try_fold(first.codes.len(), |at, codes| text.find(segment(codes), at)).is_some()
    }
}

/// A text, also with small letters only where case is ignored.
#[derive(Clone, Copy)]
struct Text<'t> {
    bytes: &'t [u8],
    folded: &'t [u8],
}

impl Text<'_> {
    /// Whether a segment matches at a place.
    fn has_at(self, segment: Segment<'_>, start: usize) -> bool {
        self.same_at(segment, start) == segment.codes.len()
    }

    /// How many elements of a segment match from a place on.
    fn same_at(self, segment: Segment<'_>, start: usize) -> usize {
        let bytes = self.bytes[start..].iter().zip(&self.folded[start..]);
        let both = segment.codes.iter().zip(bytes);
        both.take_while(|(code, (byte, folded))| segment.means(**code, **byte, **folded)).count()
    }

    /// Where a segment ends that matches at some place from `start` on, the first of them.
    fn find(self, segment: Segment<'_>, start: usize) -> Option<usize> {
        /// Elements that are tried for each byte of the text.
        const STEPS_PER_BYTE: usize = 8;
        let length = segment.codes.len();
        let last = self.bytes.len().checked_sub(length)?;
        if let Some(plain) = segment.plain() {
            return memmem::find(&self.folded[start..], &plain).map(|at| start + at + length);
        }
        let mut steps_left = STEPS_PER_BYTE * (self.bytes.len() - start);
        for place in start..=last {
            let same = self.same_at(segment, place);
            if same == length {
                return Some(place + length);
            }
            let Some(left) = steps_left.checked_sub(same + 1) else {
                let rest = Text { bytes: &self.bytes[place..], folded: &self.folded[place..] };
                return Table::new(segment)?.find(rest).map(|end| place + end);
            };
            steps_left = left;
        }
        None
    }
}

impl Segment<'_> {
    fn means(self, code: Code, byte: u8, folded: u8) -> bool {
        match code {
            ANY => true,
            0..ANY => code == Code::from(folded),
            _ => has(&self.classes[(code - CLASS) as usize], byte),
        }
    }

    /// The bytes that it matches, if it matches but one text.
    fn plain(self) -> Option<Vec<u8>> {
        self.codes.iter().map(|code| u8::try_from(*code).ok()).collect()
    }
}

/// For each byte, as it is in the text, the elements of a segment that mean it.
struct Table {
    /// Words of a row.
    words: usize,
    rows: Vec<u64>,
    last: usize,
}

impl Table {
    /// None if the segment is too long.
    fn new(segment: Segment<'_>) -> Option<Table> {
        let elements = segment.codes.len();
        if elements > TABLE_ELEMENTS_MAX {
            return None;
        }
        let words = elements.div_ceil(64);
        let mut rows = vec![0; 2 * 256 * words];
        for (number, code) in segment.codes.iter().enumerate() {
            let (word, bit) = (number / 64, 1 << (number % 64));
            match *code {
                // Those that are compared with folded bytes are in the second half.
                byte @ 0..ANY => rows[(256 + byte as usize) * words + word] |= bit,
                other => (0..=u8::MAX).filter(|byte| segment.means(other, *byte, 0)).for_each(|byte| {
                    rows[usize::from(byte) * words + word] |= bit;
                }),
            }
        }
        Some(Table { words, rows, last: elements - 1 })
    }

    /// Where the segment ends at the first place at which it matches.
    fn find(&self, text: Text<'_>) -> Option<usize> {
        let mut state = vec![0_u64; self.words];
        // Beyond these words no element has been reached.
        let mut reached = 1;
        for (at, (byte, folded)) in text.bytes.iter().zip(text.folded).enumerate() {
            let row = |number: usize| &self.rows[number * self.words..][..reached];
            let rows = row(usize::from(*byte)).iter().zip(row(256 + usize::from(*folded)));
            let mut carry = 1;
            for (word, (meant, meant_folded)) in state.iter_mut().zip(rows) {
                let moved = *word << 1 | carry;
                carry = *word >> 63;
                *word = moved & (meant | meant_folded);
            }
            if state[self.last / 64] >> (self.last % 64) & 1 == 1 {
                return Some(at + 1);
            }
            if reached < self.words && state[reached - 1] >> 63 == 1 {
                reached += 1;
            }
            while reached > 1 && state[reached - 1] == 0 && state[reached - 2] >> 63 == 0 {
                reached -= 1;
            }
        }
        None
    }
}

fn has(class: &Class, byte: u8) -> bool {
    class[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
}

/// Which bytes a class means. It may be long, so that each item is looked at but once.
fn class(items: Items<'_>, is_negated: bool, ignore_case: bool) -> Class {
    let place = |byte: u8| (i16::from(byte.cast_signed()) + 128) as usize;
    let mut escaped = [false; 256];
    // How many more ranges cover a byte than cover the one before.
    let mut steps = [0_i64; 257];
    for item in items {
        let (low, high) = match item {
            Item::Escaped(byte) => {
                escaped[usize::from(byte)] = true;
                continue;
            }
            Item::Byte(byte) => (fold(byte, ignore_case), fold(byte, ignore_case)),
            Item::Range(first, last) => ends(first, last, ignore_case),
        };
        if place(low) <= place(high) {
            steps[place(low)] += 1;
            steps[place(high) + 1] -= 1;
        }
    }
    let (mut covers, mut covered) = (0, [false; 256]);
    for (covered, step) in covered.iter_mut().zip(steps) {
        covers += step;
        *covered = covers > 0;
    }
    let mut class = Class::default();
    for byte in 0..=u8::MAX {
        let is_member = escaped[usize::from(byte)] || covered[place(fold(byte, ignore_case))];
        class[usize::from(byte / 64)] |= u64::from(is_member != is_negated) << (byte % 64);
    }
    class
}
