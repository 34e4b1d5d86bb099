//! A page: a few dozen records, packed into one allocation.
//!
//! ```text
//! count, slots | bounds: slots + 1 numbers | keys: slots of KEY bytes | records, without gaps ... | spare
//! ```
//!
//! Record `i` lies between bound `i` and bound `i + 1`, so it needs no length of its own. Its key is a few
//! bytes in a column, where a search looks first. All numbers take two bytes, or eight in a page above 64
//! KiB: a large record simply makes a large page.
//!
//! One operation changes a page: [`Page::splice`] replaces some neighbouring records with at most one new
//! one. It moves the records behind, which costs less than a list of holes as long as pages are small. A page
//! that is shared is copied first. Pages grow by an eighth and shrink when three eighths are unused.

use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;

use crate::allocator::taken_bytes;

/// The size above which a page is split: 4 KiB would save 2% of memory, but a write to a shared page would
/// copy half as much again. Tests split early.
pub(super) const PAGE_BYTES_MAX: usize = if cfg!(test) { 200 } else { 2 << 10 };
/// The size up to which two bytes are enough for every number in a page.
const NARROW_BYTES_MAX: usize = u16::MAX as usize;
/// A page that grows gets this part of its size as spare room.
const SPARE_SHARE: usize = 8;
/// The least spare room of a page that grows, so that the first records do not move with each new one.
const SPARE_BYTES_MIN: usize = 64;
/// Pages up to this size do not shrink: there is too little to gain.
const SHRINKING_BYTES_MIN: usize = 256;
/// The two counts of an `Arc`.
const COUNTS_BYTES: usize = 16;
/// The C library takes this for itself before each allocation, and rounds up to a multiple of twice as much.
const CHUNK_BYTES: usize = 8;

/// Where the numbers in front of a page are: the count of records, the count of slots, the first bound.
const COUNT: usize = 0;
const SLOTS: usize = 1;
const BOUNDS: usize = 2;

/// Bytes that an allocation with reference counts takes in all.
pub(super) fn shared_bytes(size: usize) -> usize {
    taken_bytes(COUNTS_BYTES + size)
}

/// Records with keys of `KEY` bytes. A clone shares the allocation.
#[derive(Clone)]
pub(super) struct Page<const KEY: usize>(Arc<[u8]>);

/// A record to be: its key, and the parts of which its bytes consist.
pub(super) struct Record<'r, const KEY: usize> {
    pub(super) key: [u8; KEY],
    pub(super) parts: &'r [&'r [u8]],
}

impl<const KEY: usize> Record<'_, KEY> {
    pub(super) fn size(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

impl<const KEY: usize> Page<KEY> {
    /// A page without records.
    pub(super) fn empty() -> Page<KEY> {
        Page::gather(std::iter::empty(), 0)
    }

    /// A page of these records, with room for `spare` bytes more.
    pub(super) fn gather<'p>(
        records: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
        spare: usize,
    ) -> Page<KEY> {
        let (mut count, mut size) = (0, 0);
        for (_, record) in records.clone() {
            count += 1;
            size += record.len();
        }
        let mut page = Layout::with_spare::<KEY>(count, size, spare).allocate();
        let bytes = Arc::make_mut(&mut page);
        let layout = Layout::of::<KEY>(bytes);
        write(bytes, COUNT, count);
        let mut end = 0;
        for (i, (key, record)) in records.enumerate() {
            bytes[layout.keys + i * KEY..][..KEY].copy_from_slice(key);
            bytes[layout.records + end..][..record.len()].copy_from_slice(record);
            end += record.len();
            write(bytes, BOUNDS + i + 1, end);
        }
        Page(page)
    }

    /// The number of records.
    #[inline]
    pub(super) fn len(&self) -> usize {
        read(&self.0, COUNT)
    }

    /// Bytes of memory that the page takes.
    pub(super) fn bytes(&self) -> usize {
        shared_bytes(self.0.len())
    }

    /// Bytes that the page would have without spare room.
    pub(super) fn used(&self) -> usize {
        self.used_after(0..0, None)
    }

    /// The same, after a splice.
    pub(super) fn used_after(&self, gone: Range<usize>, new_size: Option<usize>) -> usize {
        let count = self.len() - gone.len() + usize::from(new_size.is_some());
        let size = self.bound(self.len()) - self.size(gone) + new_size.unwrap_or(0);
        Layout::narrowest::<KEY>(count, size).total
    }

    /// The keys of all records, one after the other.
    #[inline]
    pub(super) fn keys(&self) -> &[u8] {
        let layout = Layout::of::<KEY>(&self.0);
        &self.0[layout.keys..][..self.len() * KEY]
    }

    /// A record.
    #[inline]
    pub(super) fn record(&self, i: usize) -> &[u8] {
        let records = &self.0[Layout::of::<KEY>(&self.0).records..];
        &records[self.bound(i)..self.bound(i + 1)]
    }

    /// All records with their keys.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let keys = self.keys();
        (0..self.len()).map(move |i| (&keys[i * KEY..][..KEY], self.record(i)))
    }

    /// Replaces some of the records with at most one new one.
    pub(super) fn splice(&mut self, gone: Range<usize>, new: Option<Record<'_, KEY>>) {
        let (old_size, new_size) = (self.size(gone.clone()), new.as_ref().map_or(0, Record::size));
        let may_shrink = new.is_none() || new_size < old_size;
        match new {
            // Nothing moves: the frequent case of a value of fixed length.
            Some(new) if gone.len() == 1 && old_size == new_size => self.write_record(gone.start, new),
            Some(new) => {
                self.make_gap(gone.clone(), 1, new_size);
                self.write_record(gone.start, new);
            }
            None => self.make_gap(gone, 0, 0),
        }
        if may_shrink {
            self.shrink();
        }
    }

    /// Replaces some of the records with one whose bytes are to be written, or with none.
    fn make_gap(&mut self, gone: Range<usize>, new: usize, new_size: usize) {
        let (count, total) = (self.len(), self.bound(self.len()));
        let (from, old_end) = (self.bound(gone.start), self.bound(gone.end));
        let (new_end, next) = (from + new_size, gone.start + new);
        let (new_count, new_total) = (count - gone.len() + new, total - old_end + new_end);
        self.reserve(count.max(new_count), total.max(new_total));
        let bytes = Arc::make_mut(&mut self.0);
        if gone.end < count {
            let layout = Layout::of::<KEY>(bytes);
            bytes.copy_within(layout.records + old_end..layout.records + total, layout.records + new_end);
            let keys = layout.keys + gone.end * KEY..layout.keys + count * KEY;
            bytes.copy_within(keys, layout.keys + next * KEY);
            move_bounds(bytes, gone.end..count, next, new_end.wrapping_sub(old_end));
        }
        write(bytes, COUNT, new_count);
        if new > 0 {
            write(bytes, BOUNDS + next, new_end);
        }
    }

    /// Writes a record where there is one of its size.
    fn write_record(&mut self, i: usize, record: Record<'_, KEY>) {
        let from = self.bound(i);
        let bytes = Arc::make_mut(&mut self.0);
        let layout = Layout::of::<KEY>(bytes);
        bytes[layout.keys + i * KEY..][..KEY].copy_from_slice(&record.key);
        let mut at = layout.records + from;
        for part in record.parts {
            bytes[at..][..part.len()].copy_from_slice(part);
            at += part.len();
        }
    }

    /// Gives spare room back if there is much of it.
    fn shrink(&mut self) {
        let (count, total) = (self.len(), self.0.len());
        if count == 0 || (total > SHRINKING_BYTES_MIN && self.used() < total / 8 * 5) {
            self.move_to(Layout::with_spare::<KEY>(count, self.bound(count), 0));
        }
    }

    /// Makes room for so many records with so many bytes in all.
    fn reserve(&mut self, count: usize, size: usize) {
        let layout = Layout::of::<KEY>(&self.0);
        if count <= layout.slots && layout.records + size <= layout.total {
            return;
        }
        let used = Layout::narrowest::<KEY>(count, size).total;
        // A page that is full is split next, or it has one large record, or hashes that are all alike.
        let spare = if used < PAGE_BYTES_MAX { (used / SPARE_SHARE).max(SPARE_BYTES_MIN) } else { 0 };
        self.move_to(Layout::with_spare::<KEY>(count, size, spare));
    }

    /// Moves the records into a new allocation.
    fn move_to(&mut self, layout: Layout) {
        let (old, old_layout, count) = (&*self.0, Layout::of::<KEY>(&self.0), self.len());
        let mut page = layout.allocate();
        let new = Arc::make_mut(&mut page);
        write(new, COUNT, count);
        if is_narrow(old) && is_narrow(new) {
            let bounds = BOUNDS * 2..(BOUNDS + count + 1) * 2;
            new[bounds.clone()].copy_from_slice(&old[bounds]);
        } else {
            (0..=count).for_each(|i| write(new, BOUNDS + i, read(old, BOUNDS + i)));
        }
        new[layout.keys..][..count * KEY].copy_from_slice(&old[old_layout.keys..][..count * KEY]);
        let size = self.bound(count);
        new[layout.records..][..size].copy_from_slice(&old[old_layout.records..][..size]);
        self.0 = page;
    }

    /// The allocation, by which tests compare pages.
    #[cfg(test)]
    pub(super) fn allocation(&self) -> Arc<[u8]> {
        self.0.clone()
    }

    #[inline]
    fn bound(&self, i: usize) -> usize {
        read(&self.0, BOUNDS + i)
    }

    /// Bytes of some of the records.
    fn size(&self, of: Range<usize>) -> usize {
        self.bound(of.end) - self.bound(of.start)
    }
}

/// Moves the bounds behind the records `from` so that the first of these is record `to`, and adds to them,
/// modulo 2^64.
fn move_bounds(bytes: &mut [u8], from: Range<usize>, to: usize, add: usize) {
    if from.start == to && add == 0 {
        return;
    }
    let (first, last, target) = (BOUNDS + from.start + 1, BOUNDS + from.end, BOUNDS + to + 1);
    let count = from.len();
    if is_narrow(bytes) {
        bytes.copy_within(first * 2..(last + 1) * 2, target * 2);
        for number in &mut bytes.as_chunks_mut::<2>().0[target..target + count] {
            *number = u16::from_le_bytes(*number).wrapping_add(add as u16).to_le_bytes();
        }
    } else {
        bytes.copy_within(first * 8..(last + 1) * 8, target * 8);
        for number in &mut bytes.as_chunks_mut::<8>().0[target..target + count] {
            *number = u64::from_le_bytes(*number).wrapping_add(add as u64).to_le_bytes();
        }
    }
}

/// Where the columns of a page begin.
#[derive(Clone, Copy)]
struct Layout {
    slots: usize,
    keys: usize,
    records: usize,
    total: usize,
}

impl Layout {
    /// Of a page that there is.
    #[inline]
    fn of<const KEY: usize>(bytes: &[u8]) -> Layout {
        let slots = read(bytes, SLOTS);
        let keys = (BOUNDS + slots + 1) * if is_narrow(bytes) { 2 } else { 8 };
        Layout { slots, keys, records: keys + slots * KEY, total: bytes.len() }
    }

    /// For exactly so many records with so many bytes in all.
    fn narrowest<const KEY: usize>(slots: usize, size: usize) -> Layout {
        let layout = |width: usize| {
            let keys = (BOUNDS + slots + 1) * width;
            let records = keys + slots * KEY;
            // What the C library rounds up to belongs to the page.
            let around = COUNTS_BYTES + CHUNK_BYTES;
            let total = (records + size + around).next_multiple_of(2 * CHUNK_BYTES) - around;
            Layout { slots, keys, records, total }
        };
        let narrow = layout(2);
        if narrow.total <= NARROW_BYTES_MAX { narrow } else { layout(8) }
    }

    /// The same, and for `spare` bytes more, in records of the mean size.
    fn with_spare<const KEY: usize>(count: usize, size: usize, spare: usize) -> Layout {
        let record = size.checked_div(count).unwrap_or(0);
        let more = spare / (record + KEY + 2);
        Layout::narrowest::<KEY>(count + more, size + more * record)
    }

    /// Zeros of this size that say how many slots there are.
    fn allocate(self) -> Arc<[u8]> {
        static ZEROS: [u8; 2 * PAGE_BYTES_MAX] = [0; 2 * PAGE_BYTES_MAX];
        let mut page: Arc<[u8]> = match ZEROS.get(..self.total) {
            Some(zeros) => Arc::from(zeros),
            None => repeat_n(0, self.total).collect(),
        };
        write(Arc::make_mut(&mut page), SLOTS, self.slots);
        page
    }
}

#[inline]
fn is_narrow(bytes: &[u8]) -> bool {
    bytes.len() <= NARROW_BYTES_MAX
}

/// A number of a page.
#[inline]
fn read(bytes: &[u8], index: usize) -> usize {
    if is_narrow(bytes) {
        u16::from_le_bytes(bytes.as_chunks::<2>().0[index]).into()
    } else {
        u64::from_le_bytes(bytes.as_chunks::<8>().0[index]) as usize
    }
}

#[inline]
fn write(bytes: &mut [u8], index: usize, number: usize) {
    if is_narrow(bytes) {
        bytes.as_chunks_mut::<2>().0[index] = (number as u16).to_le_bytes();
    } else {
        bytes.as_chunks_mut::<8>().0[index] = (number as u64).to_le_bytes();
    }
}
