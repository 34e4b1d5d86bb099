//! Changes lists.
//!
//! A change of a list is logged as a request with the same effect. These requests depend on nothing but the
//! list: they repeat the change wherever the list is the same.

use std::cmp::Reverse;
use std::ops::Range;

use super::{List, ListEnd, PACKED_BYTES_MAX, entries_max, unpacked};
use crate::keyspace::Change;
use crate::values::Structure;
use crate::values::packed::{self, Length, Strings};
use crate::values::tree::Sequence;

/// The place of a new element beside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// In front of it.
    Before,
    /// Behind it, nearer to the tail.
    After,
}

impl Change<'_, List> {
    /// Adds an element at an end.
    pub fn push(&mut self, end: ListEnd, element: &[u8]) {
        let (position, request) = match end {
            ListEnd::Head => (0, "LPUSH"),
            ListEnd::Tail => (self.view().len(), "RPUSH"),
        };
        self.insert_at(position, element);
        self.note(request, &[element]);
    }

    /// Removes `count` elements at an end: at least one, and at most all.
    pub fn pop(&mut self, end: ListEnd, count: usize) {
        let (positions, request) = match end {
            ListEnd::Head => (0..count, "LPOP"),
            ListEnd::Tail => (self.view().len() - count..self.view().len(), "RPOP"),
        };
        self.remove_at(positions);
        match count {
            1 => self.note_alone(request, &[]),
            _ => self.note_alone(request, &[itoa::Buffer::new().format(count).as_bytes()]),
        }
        self.count_more(count - 1);
    }

    /// Replaces the element at a position, which there must be.
    pub fn set(&mut self, position: usize, element: &[u8]) {
        match self.large_mut::<Sequence>() {
            Some(sequence) => sequence.replace(position, element),
            None => {
                let place = place(self.packed(), position);
                let length = Length::of(element);
                if self.packed().len() - place.len() + length.bytes().len() + element.len()
                    <= self.bytes_max()
                {
                    self.splice(place, &[length.bytes(), element], 0);
                } else {
                    self.unpack().replace(position, element);
                }
            }
        }
        self.note_alone("LSET", &[itoa::Buffer::new().format(position).as_bytes(), element]);
    }

    /// Inserts an element beside the first one that is equal to `pivot`. Returns whether there is one.
    pub fn insert(&mut self, beside: Beside, pivot: &[u8], element: &[u8]) -> bool {
        let Some(position) = self.view().iter().position(|other| other == pivot) else { return false };
        let (position, word) = match beside {
            Beside::Before => (position, b"BEFORE".as_slice()),
            Beside::After => (position + 1, b"AFTER".as_slice()),
        };
        self.insert_at(position, element);
        self.note_alone("LINSERT", &[word, pivot, element]);
        true
    }

    /// Removes at most `count_max` elements that are equal to `wanted`, counted from this end. Returns how
    /// many it has removed.
    pub fn remove(&mut self, wanted: &[u8], end: ListEnd, count_max: usize) -> usize {
        let list = self.view();
        let len = list.len();
        let elements = match end {
            ListEnd::Head => list.range(0..len),
            ListEnd::Tail => list.reversed(0..len),
        };
        let matches = elements.enumerate().filter(|(_, element)| *element == wanted).take(count_max);
        let positions = matches.map(|(at, _)| if end == ListEnd::Head { at } else { len - 1 - at });
        let mut runs = runs(positions);
        let count = runs.iter().map(Range::len).sum();
        // From the tail on: so the positions of the other runs stay as they are.
        runs.sort_unstable_by_key(|run| Reverse(run.start));
        runs.into_iter().for_each(|run| self.remove_at(run));
        if count > 0 {
            let signed = count as i64 * if end == ListEnd::Head { 1 } else { -1 };
            self.note_alone("LREM", &[itoa::Buffer::new().format(signed).as_bytes(), wanted]);
            self.count_more(count - 1);
        }
        count
    }

    /// Removes all elements but those of some positions, of which there must be one at least if the range is
    /// not empty.
    pub fn trim(&mut self, kept: Range<usize>) {
        let len = self.view().len();
        if kept.is_empty() {
            self.remove_at(0..len);
            // The key goes with its last element, so this request is never logged.
            self.note_alone("LTRIM", &[b"1", b"0"]);
            self.count_more(len - 1);
        } else if kept.len() < len {
            self.remove_at(kept.end..len);
            self.remove_at(0..kept.start);
            let (mut start, mut stop) = (itoa::Buffer::new(), itoa::Buffer::new());
            let words = [start.format(kept.start).as_bytes(), stop.format(kept.end - 1).as_bytes()];
            self.note_alone("LTRIM", &words);
            self.count_more(len - kept.len() - 1);
        }
    }

    /// Inserts an element at a position, at the length of the list at most.
    fn insert_at(&mut self, position: usize, element: &[u8]) {
        if let Some(sequence) = self.large_mut::<Sequence>() {
            sequence.insert(position, element);
            return;
        }
        let (packed, entries_max) = (self.packed(), entries_max(self.limit()));
        let length = Length::of(element);
        let bytes = packed.len() + length.bytes().len() + element.len();
        if bytes <= self.bytes_max() && packed::count(packed) < entries_max {
            let at = place(packed, position).start;
            self.splice(at..at, &[length.bytes(), element], 1);
        } else {
            self.unpack().insert(position, element);
        }
    }

    /// Removes the elements of some positions, all of which there must be.
    fn remove_at(&mut self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        let Some(sequence) = self.large_mut::<Sequence>() else {
            let count =
                i16::try_from(positions.len()).expect("an element takes a byte of a packed list at least");
            let bytes =
                place(self.packed(), positions.start).start..place(self.packed(), positions.end).start;
            self.splice(bytes, &[], -count);
            return;
        };
        let before = sequence.bytes();
        let remains = sequence.remove(positions);
        let gone = before.saturating_sub(sequence.bytes());
        self.leave(remains, gone);
    }

    fn bytes_max(&self) -> usize {
        PACKED_BYTES_MAX.min(self.limit().bytes)
    }

    /// Turns a packed list into a sequence.
    #[cold]
    fn unpack(&mut self) -> &mut Sequence {
        let sequence = unpacked(self.packed());
        self.enlarge(Structure::Sequence(sequence));
        self.large_mut::<Sequence>().expect("it was made a moment ago")
    }
}

/// The bytes that the element at a position takes with its length. Behind the last element: the end.
fn place(packed: &[u8], position: usize) -> Range<usize> {
    if position >= packed::count(packed) {
        return packed.len()..packed.len();
    }
    let mut strings = Strings::of(packed);
    strings.pass_over(position);
    let start = strings.place();
    strings.next();
    start..strings.place()
}

/// Positions, which ascend or descend, as ranges of neighbours.
fn runs(positions: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for position in positions {
        match runs.last_mut() {
            Some(run) if run.end == position => run.end += 1,
            Some(run) if run.start == position + 1 => run.start -= 1,
            _ => runs.push(position..position + 1),
        }
    }
    runs
}
