//! A page: a few dozen records, packed into one allocation.
//!
//! ```text
//! count, slots | bounds: slots + 1 numbers | keys: slots of KEY bytes | spare | records without gaps | spare
//! ```
//!
//! Record `i` lies between bound `i` and bound `i + 1`, so it needs no length of its own. Its key is a few
//! bytes in a column, where a search looks first. All numbers take two bytes, or eight in a page above 64
//! KiB: a large record simply makes a large page.
//!
//! One operation changes a page: [`Page::splice`] replaces some neighbouring records with at most one new
//! one. It moves the records behind, which costs less than a list of holes as long as pages are small. At
//! either end nothing moves but the bounds: the first record may begin behind spare room, so that a list can
//! be pushed to and popped from at its front, too. A page that is shared is copied first. Pages grow by an
//! eighth and shrink when three eighths are unused.

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
    /// Whether the two are one allocation.
    pub(super) fn is_same(&self, other: &Page<KEY>) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

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
        let mut end = 0;
        write(bytes, COUNT, count);
        for (i, (key, record)) in records.enumerate() {
            bytes[layout.keys + i * KEY..][..KEY].copy_from_slice(key);
            bytes[layout.records + end..][..record.len()].copy_from_slice(record);
            end += record.len();
            write(bytes, BOUNDS + i + 1, end);
        }
        Page(page)
    }

    /// A page of some neighbouring records, with room for `spare` bytes more behind them.
    pub(super) fn part(&self, records: Range<usize>, spare: usize) -> Page<KEY> {
        let layout = Layout::with_spare::<KEY>(records.len(), self.size(records.clone()), spare);
        self.copy_to(layout, records, 0)
    }

    /// The same, with the room in front of them.
    pub(super) fn part_behind_room(&self, records: Range<usize>, spare: usize) -> Page<KEY> {
        let size = self.size(records.clone());
        let layout = Layout::with_spare::<KEY>(records.len(), size, spare);
        self.copy_to(layout, records, layout.total - layout.records - size)
    }

    /// Removes all records but one, which is moved to the front of the room, or to its back. The room stays.
    /// Returns false if the allocation is shared; then nothing has changed.
    pub(super) fn keep_only(&mut self, i: usize, is_behind_room: bool) -> bool {
        let record = self.bound(i)..self.bound(i + 1);
        let Some(bytes) = Arc::get_mut(&mut self.0) else { return false };
        let layout = Layout::of::<KEY>(bytes);
        let room = layout.total - layout.records;
        let start = if is_behind_room { room - record.len() } else { 0 };
        bytes.copy_within(layout.keys + i * KEY..layout.keys + (i + 1) * KEY, layout.keys);
        let end = start + record.len();
        bytes.copy_within(layout.records + record.start..layout.records + record.end, layout.records + start);
        write(bytes, COUNT, 1);
        write(bytes, BOUNDS, start);
        write(bytes, BOUNDS + 1, end);
        true
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
        let size = self.size(0..self.len()) - self.size(gone) + new_size.unwrap_or(0);
        Layout::narrowest::<KEY>(count, size).total
    }

    /// The keys of all records, one after the other.
    #[inline]
    pub(super) fn keys(&self) -> &[u8] {
        let layout = Layout::of::<KEY>(&self.0);
        &self.0[layout.keys..][..self.len() * KEY]
    }

    /// The record at an index, from 0.
    #[inline(always)]
    pub(super) fn record(&self, i: usize) -> &[u8] {
        let records = &self.0[Layout::of::<KEY>(&self.0).records..];
        &records[self.bound(i)..self.bound(i + 1)]
    }

    /// The first record for which the function is false, if it is true for all before it and for none behind.
    #[inline]
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let records = &self.0[Layout::of::<KEY>(&self.0).records..];
        let bounds = BOUNDS..BOUNDS + self.len() + 1;
        if is_narrow(&self.0) {
            let bounds = &self.0.as_chunks::<2>().0[bounds];
            partition_point(bounds.len() - 1, |i| {
                let (from, to) = (u16::from_le_bytes(bounds[i]), u16::from_le_bytes(bounds[i + 1]));
                is_before(&records[from.into()..to.into()])
            })
        } else {
            partition_point(bounds.len() - 1, |i| is_before(self.record(i)))
        }
    }

    /// All records with their keys.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        let (keys, records) = (self.keys(), &self.0[Layout::of::<KEY>(&self.0).records..]);
        (0..self.len()).map(move |i| (&keys[i * KEY..][..KEY], &records[self.bound(i)..self.bound(i + 1)]))
    }

    /// Replaces some of the records with at most one new one. Returns the bytes that the page would have
    /// without spare room. Inlined with its parts, which takes a tenth off the instructions of a write.
    #[inline(always)]
    pub(super) fn splice(&mut self, gone: Range<usize>, new: Option<Record<'_, KEY>>) -> usize {
        let new_count = usize::from(new.is_some());
        let new_size = new.as_ref().map_or(0, Record::size);
        let mut change = Change::new(&self.0, gone, new_count, new_size);
        if change.is_larger() && !change.fits(&Layout::of::<KEY>(&self.0)) {
            self.grow(&change);
            change.move_to_front();
        }
        let bytes = Arc::make_mut(&mut self.0);
        let layout = Layout::of::<KEY>(bytes);
        let at = change.make_gap::<KEY>(bytes, &layout);
        if let Some(record) = new {
            bytes[layout.keys + change.gone.start * KEY..][..KEY].copy_from_slice(&record.key);
            let mut rest = &mut bytes[layout.records + at..];
            for part in record.parts {
                let (here, behind) = rest.split_at_mut(part.len());
                here.copy_from_slice(part);
                rest = behind;
            }
        }
        let (count, size) = (change.count_after(), change.size_after());
        let used = Layout::narrowest::<KEY>(count, size).total;
        // Spare room is given back if there is much of it.
        let is_wasted = layout.total > SHRINKING_BYTES_MIN && used < layout.total / 8 * 5;
        if change.is_smaller() && (is_wasted || count == 0) {
            self.move_to(Layout::with_spare::<KEY>(count, size, 0));
        }
        used
    }

    /// Changes the last bytes of a record, which keeps its size.
    pub(super) fn overwrite_end(&mut self, i: usize, end: &[u8]) {
        let record_end = self.bound(i + 1);
        let bytes = Arc::make_mut(&mut self.0);
        let at = Layout::of::<KEY>(bytes).records + record_end - end.len();
        bytes[at..][..end.len()].copy_from_slice(end);
    }

    /// Makes room for a change.
    fn grow(&mut self, change: &Change) {
        let layout = Layout::of::<KEY>(&self.0);
        let count = change.count.max(change.count_after());
        // What is replaced leaves its room when the records behind it move, not before.
        let size = (change.end - change.first).max(change.size_after());
        if count <= layout.slots && size <= layout.total - layout.records {
            self.move_to(layout);
            return;
        }
        let used = Layout::narrowest::<KEY>(count, size).total;
        // A page that is full is split next, or it has one large record, or hashes that are all alike.
        let spare = if used < PAGE_BYTES_MAX { (used / SPARE_SHARE).max(SPARE_BYTES_MIN) } else { 0 };
        self.move_to(Layout::with_spare::<KEY>(count, size, spare));
    }

    /// Moves the records into a new allocation, at the front of its room.
    fn move_to(&mut self, layout: Layout) {
        *self = self.copy_to(layout, 0..self.len(), 0);
    }

    /// Copies some records into a new allocation, where they begin at a byte of its room.
    fn copy_to(&self, layout: Layout, records: Range<usize>, start: usize) -> Page<KEY> {
        let (old, old_layout, count) = (&*self.0, Layout::of::<KEY>(&self.0), records.len());
        let mut page = layout.allocate();
        let new = Arc::make_mut(&mut page);
        write(new, COUNT, count);
        let first = self.bound(records.start);
        if is_narrow(old) && is_narrow(new) {
            let bounds = &old[(BOUNDS + records.start) * 2..][..(count + 1) * 2];
            new[BOUNDS * 2..][..bounds.len()].copy_from_slice(bounds);
            shift_bounds(new, 0..count + 1, start.wrapping_sub(first));
        } else {
            for i in 0..=count {
                write(new, BOUNDS + i, self.bound(records.start + i) - first + start);
            }
        }
        let keys = &old[old_layout.keys..][records.start * KEY..records.end * KEY];
        new[layout.keys..][..keys.len()].copy_from_slice(keys);
        let bytes = &old[old_layout.records + first..][..self.size(records)];
        new[layout.records + start..][..bytes.len()].copy_from_slice(bytes);
        Page(page)
    }

    /// The first record of which most bytes are behind the middle; both sides of it get at least one record.
    pub(super) fn middle(&self) -> usize {
        let (first, last) = (self.bound(0), self.bound(self.len()));
        let (mut low, mut high) = (1, self.len() - 1);
        while low < high {
            let cut = low.midpoint(high);
            if self.bound(cut + 1) <= first.midpoint(last) {
                low = cut + 1;
            } else {
                high = cut;
            }
        }
        low
    }

    /// The allocation, which may be shared.
    pub(super) fn into_allocation(self) -> Arc<[u8]> {
        self.0
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

/// A change that is to be made: which records are replaced, and with how many records and bytes.
struct Change {
    gone: Range<usize>,
    new_count: usize,
    new_size: usize,
    /// The number of all records before the change, and the bounds of all.
    count: usize,
    first: usize,
    end: usize,
    /// The bounds of those that are replaced.
    from: usize,
    to: usize,
}

impl Change {
    #[inline(always)]
    fn new(bytes: &[u8], gone: Range<usize>, new_count: usize, new_size: usize) -> Change {
        let bound = |i: usize| read(bytes, BOUNDS + i);
        let count = read(bytes, COUNT);
        let (from, to) = (bound(gone.start), bound(gone.end));
        Change { new_count, new_size, count, first: bound(0), end: bound(count), from, to, gone }
    }

    /// Follows the records to the front of the room.
    fn move_to_front(&mut self) {
        let before = std::mem::take(&mut self.first);
        for bound in [&mut self.end, &mut self.from, &mut self.to] {
            *bound -= before;
        }
    }

    fn count_after(&self) -> usize {
        self.count - self.gone.len() + self.new_count
    }

    /// Bytes of all records after the change.
    fn size_after(&self) -> usize {
        self.end - self.first - (self.to - self.from) + self.new_size
    }

    /// Whether it may need more room than there is.
    fn is_larger(&self) -> bool {
        self.new_count > self.gone.len() || self.new_size > self.to - self.from
    }

    fn is_smaller(&self) -> bool {
        self.new_count < self.gone.len() || self.new_size < self.to - self.from
    }

    /// Whether the new record goes where the first record ended, so that those behind it stay where they are.
    fn is_in_front(&self) -> bool {
        self.gone.start == 0 && self.to >= self.new_size
    }

    fn fits(&self, layout: &Layout) -> bool {
        self.count_after() <= layout.slots
            && (self.is_in_front()
                || self.end - (self.to - self.from) + self.new_size <= layout.total - layout.records)
    }

    /// Moves what is behind, where there is room for the change. Returns where the new record is to be
    /// written.
    #[inline(always)]
    fn make_gap<const KEY: usize>(&self, bytes: &mut [u8], layout: &Layout) -> usize {
        if !self.is_larger() && !self.is_smaller() {
            return self.from;
        }
        let new_to = if self.is_in_front() { self.to } else { self.from + self.new_size };
        let next = self.gone.start + self.new_count;
        let is_column_moved = next != self.gone.end;
        if self.gone.end < self.count {
            let behind = self.gone.end..self.count;
            if new_to != self.to {
                bytes.copy_within(
                    layout.records + self.to..layout.records + self.end,
                    layout.records + new_to,
                );
            }
            if KEY > 0 && is_column_moved {
                let keys = layout.keys + behind.start * KEY..layout.keys + behind.end * KEY;
                bytes.copy_within(keys, layout.keys + next * KEY);
            }
            move_bounds(bytes, behind, next, new_to.wrapping_sub(self.to));
        }
        if is_column_moved {
            write(bytes, COUNT, self.count_after());
        }
        write(bytes, BOUNDS + next, new_to);
        let at = new_to - self.new_size;
        if self.gone.start == 0 {
            write(bytes, BOUNDS, at);
        }
        at
    }
}

/// Moves the bounds behind the records `from` so that the first of these is record `to`, and adds to them,
/// modulo 2^64.
fn move_bounds(bytes: &mut [u8], from: Range<usize>, to: usize, add: usize) {
    let width = if is_narrow(bytes) { 2 } else { 8 };
    if from.start != to {
        let first = BOUNDS + from.start + 1;
        bytes.copy_within(first * width..(first + from.len()) * width, (BOUNDS + to + 1) * width);
    }
    shift_bounds(bytes, to + 1..to + 1 + from.len(), add);
}

/// The first number below `count` for which the function is false, if it is true for all before it and for
/// none behind.
#[inline]
fn partition_point(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Adds to some bounds, modulo 2^64.
fn shift_bounds(bytes: &mut [u8], bounds: Range<usize>, add: usize) {
    let numbers = BOUNDS + bounds.start..BOUNDS + bounds.end;
    if add == 0 {
        return;
    }
    if is_narrow(bytes) {
        for number in &mut bytes.as_chunks_mut::<2>().0[numbers] {
            *number = u16::from_le_bytes(*number).wrapping_add(add as u16).to_le_bytes();
        }
    } else {
        for number in &mut bytes.as_chunks_mut::<8>().0[numbers] {
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

    /// The layout for exactly `slots` records with `size` bytes in all.
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

#[cfg(test)]
mod tests;
