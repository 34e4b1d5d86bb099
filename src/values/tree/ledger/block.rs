//! A block: a few dozen entries in one listpack, as Redis has them in memory and in files.
//!
//! ```text
//! live, deleted, n, name 1 ... name n, 0 | entry | entry ...
//! entry: flags, ms, seq, value 1 ... value n, pieces             with the names in front
//! entry: flags, ms, seq, m, name 1, value 1 ... value m, pieces  with names of its own
//! ```
//!
//! An ID is kept as its distance from the ID of the block. An entry with the names of the block's first
//! entry does not repeat them. A deleted entry stays and has a flag, until all entries of the block are
//! deleted. The number of pieces is the number of elements in front of it, so a block can be read backwards,
//! too.

use std::mem::take;

use super::id::EntryId;
use crate::allocator::taken_bytes;
use crate::dump::packed::Element;
use crate::dump::packed::listpack::{Elements, Listpack, element_before};
use crate::dump::packed::writing::{ListpackWriter, replace_by_integer};
use crate::dump::strings::DecodeError;

/// Where the first element of a listpack begins.
const FIRST: usize = 6;
const IS_DELETED: i64 = 1;
const HAS_NAMES_OF_BLOCK: i64 = 2;
/// Elements of an entry beside its names and values: flags and ID.
const FIXED_PIECES: i64 = 3;
/// A block that grows gets this part of its size as spare room...
const SPARE_SHARE: usize = 8;
/// ... and at least this number of bytes.
const SPARE_BYTES_MIN: usize = 64;

/// A block with more room than this leaves none to the next one, which may stay small.
const LEFT_BYTES_MAX: usize = 16 << 10;

const CORRUPT: DecodeError = DecodeError::Invalid("Stream listpack integrity check failed.");

/// The entries of a listpack.
#[derive(Clone, Debug)]
pub(super) struct Block(Vec<u8>);

/// An entry of a block.
#[derive(Clone, Debug)]
pub struct Entry<'l> {
    /// The entry's ID.
    pub id: EntryId,
    /// Its fields and values.
    pub fields: Fields<'l>,
    is_deleted: bool,
    /// Where it begins.
    place: usize,
}

/// The fields of an entry and their values, in their order.
#[derive(Clone, Debug)]
pub struct Fields<'l> {
    /// The names, if they are those of the block.
    names: Option<Elements<'l>>,
    rest: Elements<'l>,
    left: usize,
}

impl<'l> Iterator for Fields<'l> {
    type Item = (Element<'l>, Element<'l>);

    #[inline]
    fn next(&mut self) -> Option<(Element<'l>, Element<'l>)> {
        self.left = self.left.checked_sub(1)?;
        let name = self.names.as_mut().unwrap_or(&mut self.rest).next()?;
        Some((name, self.rest.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// What the elements in front of the entries say.
struct Front<'l> {
    names: Elements<'l>,
    names_count: usize,
    /// Where the first entry begins.
    entries: usize,
}

fn integer(element: Element<'_>) -> Option<i64> {
    if let Element::Integer(integer) = element { Some(integer) } else { None }
}

impl Block {
    /// A block with one entry, whose ID is that of the block. Names and values take turns.
    pub(super) fn new<'f>(fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone) -> Block {
        let mut writer = ListpackWriter::default();
        writer.push_integer(0);
        writer.push_integer(0);
        writer.push_integer((fields.len() / 2) as i64);
        fields.clone().step_by(2).for_each(|name| writer.push(name));
        writer.push_integer(0);
        let mut block = Block(writer.finish());
        block.append(EntryId::ZERO, EntryId::ZERO, fields);
        block
    }

    /// The bytes of the listpack, as Redis stores it.
    pub(super) fn listpack(&self) -> &[u8] {
        &self.0
    }

    /// Bytes of memory that the listpack takes.
    pub(super) fn bytes(&self) -> usize {
        taken_bytes(self.0.capacity())
    }

    /// Gives spare room back. No entry will be added to the block.
    pub(super) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    /// Leaves the room of a block to which no entry will be added to the next one, which will need as much.
    /// Blocks that grow, each from a small one on, would leave holes of all sizes between others.
    pub(super) fn leave_room_to(&mut self, next: &mut Block) {
        // One that was read from a file is large already.
        if self.0.capacity() <= LEFT_BYTES_MAX && next.0.len() < self.0.len() / 2 {
            let full = self.0.as_slice().to_vec();
            let mut room = std::mem::replace(&mut self.0, full);
            room.clear();
            room.extend_from_slice(&next.0);
            next.0 = room;
        }
    }

    /// The number of all entries, deleted or not.
    pub(super) fn count(&self) -> usize {
        let mut elements = Elements::at(&self.0, FIRST);
        let mut number = || elements.integer().unwrap_or(0);
        number().saturating_add(number()).max(0) as usize
    }

    fn front(&self) -> Option<Front<'_>> {
        let mut elements = Elements::at(&self.0, FIRST);
        // How many entries there are, and how many are deleted.
        elements.pass_over(2)?;
        let names_count = usize::try_from(elements.integer()?).ok()?;
        let names = elements.clone();
        elements.pass_over(names_count + 1)?;
        Some(Front { names, names_count, entries: self.place(&elements) })
    }

    /// Where the next element of a reader begins.
    fn place(&self, elements: &Elements<'_>) -> usize {
        self.0.len() - 1 - elements.bytes_left()
    }

    /// Whether the names of some fields are those of the block.
    fn has_names<'f>(&self, fields: impl ExactSizeIterator<Item = &'f [u8]>) -> bool {
        let mut names = Elements::at(&self.0, FIRST);
        let (_, _, count) = (names.next(), names.next(), names.integer());
        let names_count = count.and_then(|count| usize::try_from(count).ok());
        let mut digits = itoa::Buffer::new();
        names_count.and_then(|count| count.checked_mul(2)) == Some(fields.len())
            && fields.step_by(2).all(|name| names.next().is_some_and(|own| own.text(&mut digits) == name))
    }

    /// Appends an entry to the block, which has the ID `base`.
    pub(super) fn append<'f>(
        &mut self,
        base: EntryId,
        id: EntryId,
        fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone,
    ) {
        /// Bytes around a string of a listpack, and around an entry, at most.
        const AROUND_BYTES: usize = 10;
        let has_names = self.has_names(fields.clone());
        let step = if has_names { 2 } else { 1 };
        let parts = fields.clone().skip(step - 1).step_by(step);
        let room: usize =
            parts.clone().map(|part| part.len() + AROUND_BYTES).sum::<usize>() + 4 * AROUND_BYTES;
        if self.0.capacity() - self.0.len() < room {
            self.0.reserve_exact(room + (self.0.len() / SPARE_SHARE).max(SPARE_BYTES_MIN));
        }
        let mut writer = ListpackWriter::resume(take(&mut self.0));
        writer.push_integer(if has_names { HAS_NAMES_OF_BLOCK } else { 0 });
        writer.push_integer(id.ms.wrapping_sub(base.ms) as i64);
        writer.push_integer(id.seq.wrapping_sub(base.seq) as i64);
        if !has_names {
            writer.push_integer((fields.len() / 2) as i64);
        }
        let mut pieces = FIXED_PIECES + i64::from(!has_names);
        for part in parts {
            writer.push(part);
            pieces += 1;
        }
        writer.push_integer(pieces);
        self.0 = writer.finish();
        self.count_live(1);
    }

    /// Adds to the number of entries that are not deleted.
    fn count_live(&mut self, added: i64) {
        // Small numbers take one byte each.
        if let Some(byte @ 0..=0x7f) = self.0.get_mut(FIRST)
            && let small @ 0..=0x7f = i64::from(*byte) + added
        {
            *byte = small as u8;
            return;
        }
        let live = Elements::at(&self.0, FIRST).integer().unwrap_or(0);
        self.replace(FIRST, live + added);
    }

    fn replace(&mut self, place: usize, value: i64) {
        match (self.0.get_mut(place), u8::try_from(value)) {
            // Small numbers take one byte each, and most numbers are small.
            (Some(byte @ 0..=0x7f), Ok(small @ 0..=0x7f)) => *byte = small,
            _ => replace_by_integer(&mut self.0, place, value),
        }
    }

    /// Marks the entries at some places as deleted.
    pub(super) fn delete(&mut self, places: &[usize]) {
        // Flags keep their size, so all places stay where they are until the counts change.
        for place in places {
            let flags = Elements::at(&self.0, *place).integer().unwrap_or(0);
            self.replace(*place, flags | IS_DELETED);
        }
        self.count_live(-(places.len() as i64));
        let mut elements = Elements::at(&self.0, FIRST);
        let _ = elements.next();
        let place = self.place(&elements);
        let deleted = elements.integer().unwrap_or(0);
        self.replace(place, deleted + places.len() as i64);
    }

    /// The entries from either end.
    pub(super) fn entries(&self, base: EntryId) -> Entries<'_> {
        let front = self.front();
        let start = front.as_ref().map_or(self.0.len(), |front| front.entries);
        Entries { block: self, front, base, start, end: self.0.len() - 1 }
    }

    /// The ID of the last entry, deleted or not.
    pub(super) fn last_id(&self, base: EntryId) -> Option<EntryId> {
        self.entries(base).back().map(|entry| entry.id)
    }

    /// Takes a listpack from a file if it is the one of a block behind an ID. Returns it with its number of
    /// entries that are not deleted and the ID of the last one of these.
    ///
    /// A deleted entry may be anywhere behind the base: XSETID takes no notice of it, so those that came
    /// later may have smaller IDs.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if the listpack is damaged, its numbers contradict each other, or the IDs of
    /// its entries do not ascend; with the listpack.
    pub(super) fn checked(
        listpack: Vec<u8>,
        base: EntryId,
        behind: Option<EntryId>,
    ) -> Result<(Block, u32, EntryId), (DecodeError, Vec<u8>)> {
        let block = Block(listpack);
        match block.check(base, behind) {
            Ok((live, last)) => Ok((block, live, last)),
            Err(why) => Err((why, block.0)),
        }
    }

    /// The number of entries that are not deleted, and the ID of the last one of these.
    fn check(&self, base: EntryId, behind: Option<EntryId>) -> Result<(u32, EntryId), DecodeError> {
        if behind.is_some_and(|behind| base <= behind) {
            return Err(CORRUPT);
        }
        let (mut live, mut deleted, mut last) = (0, 0, None);
        let announced = {
            let mut elements = Listpack::new(&self.0)?;
            let mut next = || elements.next().transpose()?.ok_or(CORRUPT);
            let mut number = || integer(next()?).ok_or(CORRUPT);
            let announced = (number()?, number()?);
            let names = number()?;
            if names < 0 {
                return Err(CORRUPT);
            }
            for _ in 0..names {
                elements.next().ok_or(CORRUPT)??;
            }
            if integer(elements.next().ok_or(CORRUPT)??) != Some(0) {
                return Err(CORRUPT);
            }
            while let Some(flags) = elements.next() {
                let flags = integer(flags?).filter(|flags| (0..4).contains(flags)).ok_or(CORRUPT)?;
                let mut number = || integer(elements.next().ok_or(CORRUPT)??).ok_or(CORRUPT);
                let id = base.plus(number()?, number()?);
                let (mut parts, mut pieces) = (names, FIXED_PIECES);
                if flags & HAS_NAMES_OF_BLOCK == 0 {
                    parts = number()?.checked_mul(2).filter(|parts| *parts >= 0).ok_or(CORRUPT)?;
                    pieces += 1;
                }
                for _ in 0..parts {
                    elements.next().ok_or(CORRUPT)??;
                }
                pieces += parts;
                let is_deleted = flags & IS_DELETED != 0;
                let is_ascending = id >= base && (is_deleted || last.is_none_or(|last| last < id));
                if integer(elements.next().ok_or(CORRUPT)??) != Some(pieces) || !is_ascending {
                    return Err(CORRUPT);
                }
                if is_deleted {
                    deleted += 1;
                } else {
                    (live, last) = (live + 1, Some(id));
                }
            }
            announced
        };
        let is_right = announced == (live, deleted) && live + deleted > 0;
        let live = u32::try_from(live).ok().filter(|_| is_right).ok_or(CORRUPT)?;
        Ok((live, last.unwrap_or(base)))
    }

    /// The listpack of a file, whatever is in it, to find its entries: they are read up to the first one that
    /// cannot be.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if it has not the length that it says, or nothing is in it.
    pub(super) fn unchecked(listpack: Vec<u8>) -> Result<Block, DecodeError> {
        let has_anything = Listpack::new(&listpack)?.next().is_some();
        if has_anything { Ok(Block(listpack)) } else { Err(CORRUPT) }
    }
}

/// The entries of a block, from either end.
pub(super) struct Entries<'l> {
    block: &'l Block,
    front: Option<Front<'l>>,
    base: EntryId,
    /// Where the entries begin and end that were not read yet.
    start: usize,
    end: usize,
}

impl<'l> Entries<'l> {
    /// Reads the entry at a place; returns it with its end.
    #[inline]
    fn read(&self, place: usize) -> Option<(Entry<'l>, usize)> {
        let front = self.front.as_ref()?;
        let mut rest = Elements::at(&self.block.0, place);
        let flags = rest.integer()?;
        let id = self.base.plus(rest.integer()?, rest.integer()?);
        let has_names = flags & HAS_NAMES_OF_BLOCK != 0;
        let left = match has_names {
            true => front.names_count,
            false => usize::try_from(rest.integer()?).ok()?,
        };
        let names = has_names.then(|| front.names.clone());
        let fields = Fields { names, rest: rest.clone(), left };
        rest.pass_over(if has_names { left } else { 2 * left } + 1)?;
        Some((Entry { id, fields, is_deleted: flags & IS_DELETED != 0, place }, self.block.place(&rest)))
    }

    /// The next entry, deleted or not.
    #[inline]
    pub(super) fn forth(&mut self) -> Option<Entry<'l>> {
        if self.start >= self.end {
            return None;
        }
        let (entry, end) = self.read(self.start)?;
        self.start = end;
        Some(entry)
    }

    /// The last entry, deleted or not.
    pub(super) fn back(&mut self) -> Option<Entry<'l>> {
        if self.start >= self.end {
            return None;
        }
        let listpack = &self.block.0;
        let mut place = element_before(listpack, self.end)?;
        let pieces = Elements::at(listpack, place).integer()?;
        for _ in 0..pieces {
            place = element_before(listpack, place)?;
        }
        self.end = place;
        self.read(place).map(|(entry, _)| entry)
    }

    /// Finds an entry that is not deleted.
    pub(super) fn find(mut self, id: EntryId) -> Option<Entry<'l>> {
        loop {
            let entry = self.forth()?;
            if entry.id >= id && !entry.is_deleted {
                return (entry.id == id).then_some(entry);
            }
        }
    }
}

impl Entry<'_> {
    /// Whether it is deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.is_deleted
    }

    /// Where it begins in its block.
    pub(super) fn place(&self) -> usize {
        self.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: EntryId = EntryId { ms: 5, seq: 3 };

    fn block(entries: &[(EntryId, &str)]) -> Block {
        let mut block: Option<Block> = None;
        for (id, fields) in entries {
            let fields = fields.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter();
            match &mut block {
                None => block = Some(Block::new(fields)),
                Some(block) => block.append(BASE, *id, fields),
            }
        }
        block.unwrap()
    }

    fn shown(entry: Entry<'_>) -> String {
        let mut text = String::from_utf8(entry.id.text()).unwrap();
        let mut digits = (itoa::Buffer::new(), itoa::Buffer::new());
        for (name, value) in entry.fields {
            let (name, value) = (name.text(&mut digits.0), value.text(&mut digits.1));
            text += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
        }
        text
    }

    fn sample() -> Block {
        let behind = |ms, seq| EntryId { ms, seq };
        block(&[
            (BASE, "a 1 b x"),
            (behind(5, 9), "a 2 b y"),
            (behind(6, 0), "b 2"),
            (behind(1 << 40, u64::MAX), "a 0071 b -7"),
        ])
    }

    #[test]
    fn entries_come_back_from_either_end() {
        let block = sample();
        let mut entries = block.entries(BASE);
        let mut texts: Vec<String> = std::iter::from_fn(|| entries.forth()).map(shown).collect();
        let last = format!("{}-{} a=0071 b=-7", 1_u64 << 40, u64::MAX);
        assert_eq!(texts, ["5-3 a=1 b=x", "5-9 a=2 b=y", "6-0 b=2", &last]);
        let mut entries = block.entries(BASE);
        let back: Vec<String> = std::iter::from_fn(|| entries.back()).map(shown).collect();
        texts.reverse();
        assert_eq!(back, texts);
    }

    #[test]
    fn a_deleted_entry_stays_in_its_place() {
        let mut block = sample();
        let entry = block.entries(BASE).find(EntryId { ms: 5, seq: 9 }).unwrap().place();
        block.delete(&[entry]);
        assert!(block.entries(BASE).find(EntryId { ms: 5, seq: 9 }).is_none());
        assert_eq!(block.count(), 4);
        let (block, live, last) = Block::checked(block.0, BASE, None).unwrap();
        assert_eq!((live, Some(last)), (3, block.last_id(BASE)));
    }

    #[test]
    fn many_entries_are_counted() {
        let mut block = block(&[(BASE, "a 1")]);
        for seq in 4..5000 {
            block.append(BASE, EntryId { seq, ..BASE }, [&b"a"[..], b"1"].into_iter());
        }
        let places: Vec<usize> = {
            let mut entries = block.entries(BASE);
            std::iter::from_fn(|| entries.forth()).map(|entry| entry.place()).collect()
        };
        assert_eq!((block.count(), places.len()), (4997, 4997));
        block.delete(&places[10..4990]);
        let mut entries = block.entries(BASE);
        let live = std::iter::from_fn(|| entries.forth()).filter(|entry| !entry.is_deleted).count();
        assert_eq!((block.count(), live), (4997, 17));
        assert!(Block::checked(block.0, BASE, None).is_ok());
    }

    #[test]
    fn damaged_blocks_are_refused() {
        let whole = sample().0;
        assert!(Block::checked(whole.clone(), BASE, None).is_ok());
        assert!(Block::checked(whole.clone(), BASE, Some(BASE)).is_err(), "the first ID is not behind");
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut changed = whole.clone();
                changed[at] ^= 1 << bit;
                if let Ok((block, live, _)) = Block::checked(changed, BASE, None) {
                    let mut entries = block.entries(BASE);
                    let count = std::iter::from_fn(|| entries.forth()).filter(|entry| !entry.is_deleted);
                    assert_eq!(count.count(), live as usize);
                }
            }
            assert!(Block::checked(whole[..at].to_vec(), BASE, None).is_err());
        }
    }
}
