//! Records in an order: a B+ tree above pages that counts.
//!
//! A [`Branch`] has up to [`branch::KIDS_MAX`] kids and knows how many records are below each, so a position
//! is found by adding these counts up, from the nearer end. All pages are equally deep.
//!
//! A sequence that is kept in the order of its records' bytes can be searched, too. For that, a branch keeps
//! of each kid a number, the bound: not more than the first eight bytes of any record below it, and not less
//! than those of any record before it. Records that are removed do not change it. Only for kids with equal
//! bounds a search compares their first records. (For a sorted set the eight bytes are the score.)
//!
//! Every change is made in a page first, by one walk. A page that has become too large is then split, and the
//! walk to it splits full branches on its way; a page that has become small merges with a neighbour, and the
//! walk to it merges small branches. So no walk has to turn back, and none recurses.

mod branch;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use self::branch::{
    Branch, KIDS_MAX, Kid, Node, ToPosition, ToRecord, Way, bound_of, branch_bytes, bytes_below,
};
use super::page::{PAGE_BYTES_MAX, Page, Record};
use super::remains::Remains;
use crate::cancel;

/// Kids of a branch at most when many records are gathered: some can be added before it is split.
const GATHERED_KIDS: usize = KIDS_MAX / 4 * 3;
/// A page that uses less than this merges with a neighbour if both together are small.
const MERGING_BYTES_MAX: usize = PAGE_BYTES_MAX / 4;

/// Records by their positions. A copy by [`Sequence::share`] has the same nodes; a write copies
/// the nodes that it changes.
pub struct Sequence {
    root: Node,
    len: usize,
    bytes: usize,
}

/// The page in which records were replaced.
struct Spliced {
    /// The place of these records in it; 0 if there is no such page any more.
    offset: usize,
    is_small: bool,
    is_large: bool,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence::new()
    }
}

impl Sequence {
    /// A sequence without records.
    pub fn new() -> Sequence {
        let root = Page::empty();
        let bytes = root.bytes();
        Sequence { root: Node::Page(root), len: 0, bytes }
    }

    /// A sequence of records in their order, each given in two parts. It takes a fraction of the time of
    /// inserting them one by one.
    pub(super) fn gather<'r>(records: impl Iterator<Item = (&'r [u8], &'r [u8])>) -> Sequence {
        let mut kids = Vec::new();
        let mut page = PageInMaking::default();
        let mut len = 0;
        for (front, back) in records {
            len += 1;
            if !page.has_room_for(front.len() + back.len()) {
                kids.push(page.take());
            }
            page.push(front, back);
        }
        kids.push(page.take());
        let mut bytes = kids.iter().map(|kid| kid.node.bytes()).sum();
        while kids.len() > 1 {
            let share = kids.len().div_ceil(kids.len().div_ceil(GATHERED_KIDS));
            let branch = |kids: &[Kid]| Kid::of(Node::Branch(Arc::new(Branch::of(kids.iter().cloned()))));
            kids = kids.chunks(share).map(branch).collect();
            bytes += kids.iter().map(|kid| kid.node.bytes()).sum::<usize>();
        }
        let root = kids.pop().map_or_else(|| Node::Page(Page::empty()), |kid| kid.node);
        Sequence { root, len, bytes }
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without records.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory below this value, as the C library rounds them. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Sequence {
        Sequence { root: self.root.clone(), len: self.len, bytes: self.bytes }
    }

    /// Whether the two have the same nodes: as long as both live, a change of one replaces its root.
    pub fn is_same(&self, other: &Sequence) -> bool {
        match (&self.root, &other.root) {
            (Node::Page(one), Node::Page(other)) => one.is_same(other),
            (Node::Branch(one), Node::Branch(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The record at a position.
    #[inline]
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        (position < self.len).then(|| {
            let (page, offset) = self.page(position);
            page.record(offset)
        })
    }

    /// The records of some positions, from either end. A range that ends behind the last record ends with it.
    pub fn range(&self, positions: Range<usize>) -> Records<'_> {
        Records {
            sequence: self,
            rest: positions.start..positions.end.min(self.len),
            front: None,
            back: None,
        }
    }

    /// Finds a record among records that are in the order of their bytes: its position, or the one at which
    /// it could be inserted.
    pub fn search(&self, record: &[u8]) -> Result<usize, usize> {
        self.search_by(bound_of(&[record]), |other| other.cmp(record))
    }

    /// Finds a record by a function that compares others to it. `bound` is the number of its first eight
    /// bytes: records that begin with a lower number are before it, and with a higher one behind it.
    pub(super) fn search_by(&self, bound: u64, compare: impl Fn(&[u8]) -> Ordering) -> Result<usize, usize> {
        let (mut node, mut len, mut before) = (&self.root, self.len, 0);
        loop {
            match node {
                Node::Page(page) => {
                    let offset = page.partition_point(|other| compare(other).is_lt());
                    let is_there = offset < page.len() && compare(page.record(offset)).is_eq();
                    return if is_there { Ok(before + offset) } else { Err(before + offset) };
                }
                Node::Branch(branch) => {
                    let index = branch.search(bound, &compare);
                    before += branch.len_before(index, len);
                    let kid = &branch.kids[index];
                    (node, len) = (&kid.node, kid.len);
                }
            }
        }
    }

    /// Inserts a record at a position, before the record that is there now; at `len` at most.
    pub fn insert(&mut self, position: usize, record: &[u8]) {
        assert!(position <= self.len, "a record is inserted behind the end");
        let page = self.splice(self.way_to(position), 0, Some(&[record]));
        if page.is_large {
            self.split_page_of(position);
        }
    }

    /// Inserts a record, given in parts, where [`Sequence::search_by`] finds its place.
    pub(super) fn insert_by(
        &mut self,
        bound: u64,
        compare: impl Fn(&[u8]) -> Ordering + Copy,
        record: &[&[u8]],
    ) {
        if self.splice(ToRecord { bound, compare }, 0, Some(record)).is_large {
            let (Ok(position) | Err(position)) = self.search_by(bound, compare);
            self.split_page_of(position);
        }
    }

    /// Removes a record that [`Sequence::search_by`] finds.
    pub(super) fn remove_by(&mut self, bound: u64, compare: impl Fn(&[u8]) -> Ordering + Copy) {
        if self.len == 1 {
            drop(self.clear());
        } else if self.splice(ToRecord { bound, compare }, 1, None).is_small {
            let (Ok(position) | Err(position)) = self.search_by(bound, compare);
            while self.merge(position) {}
        }
    }

    /// Replaces the record at a position that there is.
    pub fn replace(&mut self, position: usize, record: &[u8]) {
        assert!(position < self.len, "a record is replaced behind the end");
        let page = self.splice(self.way_to(position), 1, Some(&[record]));
        if page.is_large {
            self.split_page_of(position);
        }
        if page.is_small {
            while self.merge(position) {}
        }
    }

    /// Removes the records of some positions. A range that ends behind the last record ends with it. Returns
    /// the nodes of which nothing is left, to be freed in steps.
    pub fn remove(&mut self, positions: Range<usize>) -> Remains {
        let positions = positions.start..positions.end.min(self.len);
        if positions.is_empty() {
            return Remains::default();
        }
        if positions.len() == self.len {
            return self.clear();
        }
        if positions.len() == 1 || self.is_in_one_page(&positions) {
            let page = self.splice(self.way_to(positions.start), positions.len(), None);
            if page.is_small {
                while self.merge(positions.start - page.offset) {}
            }
            return Remains::default();
        }
        let removed = self.cut(positions.clone());
        // What is left at the edges may be small, whole branches as well as pages.
        for edge in [positions.start.saturating_sub(1), positions.start] {
            while self.merge(edge) {}
        }
        removed
    }

    /// Removes all records, in constant time. Returns their nodes, to be freed in steps.
    pub fn clear(&mut self) -> Remains {
        Remains::of([std::mem::take(self).root])
    }

    /// The page of a position, and the record's place in it. Behind the end: the last page.
    #[inline]
    fn page(&self, position: usize) -> (&Page<0>, usize) {
        let (mut node, mut len, mut at) = (&self.root, self.len, position);
        loop {
            match node {
                Node::Page(page) => return (page, at),
                Node::Branch(branch) => {
                    let (index, offset) = branch.route(len, at);
                    let kid = &branch.kids[index];
                    (node, len, at) = (&kid.node, kid.len, offset);
                }
            }
        }
    }

    fn is_in_one_page(&self, positions: &Range<usize>) -> bool {
        let (page, offset) = self.page(positions.start);
        offset + positions.len() <= page.len()
    }

    /// Replaces `gone` records of one page with a new one or with none. No node stays without records but the
    /// root.
    fn splice(&mut self, mut way: impl Way, gone: usize, new: Option<&[&[u8]]>) -> Spliced {
        let changed = |len: usize| len - gone + usize::from(new.is_some());
        let bound = new.map_or(u64::MAX, bound_of);
        self.len = changed(self.len);
        let mut node = &mut self.root;
        let page = loop {
            match node {
                Node::Page(page) => break page,
                Node::Branch(branch) => {
                    let branch = Arc::make_mut(branch);
                    let index = way.descend(branch);
                    let len = changed(branch.kids[index].len);
                    if len == 0 {
                        self.bytes -= branch.leave_out(index);
                        return Spliced { offset: 0, is_small: true, is_large: false };
                    }
                    let kid = &mut branch.kids[index];
                    kid.len = len;
                    kid.bound = kid.bound.min(bound);
                    node = &mut kid.node;
                }
            }
        };
        let before = page.bytes();
        let offset = way.offset(page);
        let used = page.splice(offset..offset + gone, new.map(|parts| Record { key: [], parts }));
        self.bytes = self.bytes + page.bytes() - before;
        let is_large = used > PAGE_BYTES_MAX && page.len() > 1;
        Spliced { offset, is_small: used < MERGING_BYTES_MAX, is_large }
    }

    /// Removes records, but not all, by taking out whole nodes. Of the others, at most two paths change.
    ///
    /// The bytes below a node are not kept. Therefore the bytes of the nodes on one side are added up, of
    /// those removed or of those left, which reads branches but no page: 0.5 ms at most at 10 million
    /// records.
    fn cut(&mut self, gone: Range<usize>) -> Remains {
        let is_most = gone.len() > self.len / 2;
        self.len -= gone.len();
        let (mut before, mut after) = (0, 0);
        let mut removed = Vec::new();
        let mut paths = vec![(&mut self.root, gone)];
        while let Some((node, gone)) = paths.pop() {
            before += node.bytes();
            match node {
                Node::Page(page) => {
                    page.splice(gone, None);
                    after += page.bytes();
                }
                Node::Branch(branch) => {
                    let branch = Arc::make_mut(branch);
                    let gone = branch.take_out(gone, &mut removed);
                    after += branch.bytes();
                    paths.extend(branch.cut_kids(gone));
                }
            }
        }
        self.bytes = if is_most {
            bytes_below([&self.root])
        } else {
            self.bytes + after - before - bytes_below(&removed)
        };
        Remains::of(removed)
    }

    fn way_to(&self, position: usize) -> ToPosition {
        ToPosition { len: self.len, at: position }
    }

    /// Splits the page of a position, which is large, until it is so no more.
    #[cold]
    fn split_page_of(&mut self, position: usize) {
        loop {
            self.split(position);
            let (page, _) = self.page(position);
            if page.used() <= PAGE_BYTES_MAX || page.len() == 1 {
                break;
            }
        }
    }

    /// Splits the page of a position into two, and full branches above it.
    fn split(&mut self, position: usize) {
        if self.root.is_full() {
            let root = std::mem::replace(&mut self.root, Node::Page(Page::empty()));
            self.root = Node::Branch(Arc::new(Branch::of([Kid::of(root)].into_iter())));
            self.bytes += branch_bytes(1);
        }
        let (is_first, is_last) = (position == 0, position + 1 == self.len);
        let (mut node, mut len, mut at) = (&mut self.root, self.len, position);
        while let Node::Branch(branch) = node {
            let branch = Arc::make_mut(branch);
            let (mut index, mut offset) = branch.route(len, at);
            if branch.kids[index].node.is_full() {
                let before = branch.bytes() + branch.kids[index].node.bytes();
                branch.split(index, is_first, is_last);
                let halves = branch.kids[index].node.bytes() + branch.kids[index + 1].node.bytes();
                self.bytes = self.bytes + branch.bytes() + halves - before;
                (index, offset) = branch.route(len, at);
            }
            let kid = &mut branch.kids[index];
            (node, len, at) = (&mut kid.node, kid.len, offset);
        }
    }

    /// Merges two nodes on the way to a position; true if there were any.
    fn merge(&mut self, position: usize) -> bool {
        if let Node::Branch(branch) = &mut self.root
            && branch.kids.len() == 1
        {
            let kid = Arc::make_mut(branch).kids.remove(0);
            self.root = kid.node;
            self.bytes -= branch_bytes(1);
            return true;
        }
        let (mut node, mut len, mut at) = (&mut self.root, self.len, position);
        while let Node::Branch(branch) = node {
            let branch = Arc::make_mut(branch);
            let (index, offset) = branch.route(len, at);
            if let Some((less, more)) = branch.merge(index) {
                self.bytes = self.bytes + more - less;
                return true;
            }
            let kid = &mut branch.kids[index];
            (node, len, at) = (&mut kid.node, kid.len, offset);
        }
        false
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequence").field("len", &self.len).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Some records of a sequence, from either end.
pub struct Records<'s> {
    sequence: &'s Sequence,
    rest: Range<usize>,
    /// The pages of the last record from each end, and the positions of their first records.
    front: Option<(&'s Page<0>, usize)>,
    back: Option<(&'s Page<0>, usize)>,
}

impl<'s> Iterator for Records<'s> {
    type Item = &'s [u8];

    fn next(&mut self) -> Option<&'s [u8]> {
        let position = self.rest.next()?;
        Some(record_at(self.sequence, &mut self.front, position))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rest.size_hint()
    }
}

impl<'s> DoubleEndedIterator for Records<'s> {
    fn next_back(&mut self) -> Option<&'s [u8]> {
        let position = self.rest.next_back()?;
        Some(record_at(self.sequence, &mut self.back, position))
    }
}

impl ExactSizeIterator for Records<'_> {}

/// A record, of the page at hand if it is there.
fn record_at<'s>(of: &'s Sequence, hand: &mut Option<(&'s Page<0>, usize)>, position: usize) -> &'s [u8] {
    if let Some((page, first)) = *hand
        && (first..first + page.len()).contains(&position)
    {
        return page.record(position - first);
    }
    cancel::check();
    let (page, offset) = of.page(position);
    *hand = Some((page, position - offset));
    page.record(offset)
}

/// Records that will be a page.
#[derive(Default)]
struct PageInMaking {
    bytes: Vec<u8>,
    /// The end of each record.
    ends: Vec<usize>,
}

impl PageInMaking {
    /// Bytes of a page beside its records and what it notes of each, at most.
    const AROUND_BYTES: usize = 24;
    /// Bytes that a page notes of each record.
    const NOTED_BYTES: usize = 2;

    fn has_room_for(&self, record_bytes: usize) -> bool {
        let noted = (self.ends.len() + 1) * Self::NOTED_BYTES;
        self.ends.is_empty() || Self::AROUND_BYTES + noted + self.bytes.len() + record_bytes <= PAGE_BYTES_MAX
    }

    fn push(&mut self, front: &[u8], back: &[u8]) {
        self.bytes.extend_from_slice(front);
        self.bytes.extend_from_slice(back);
        self.ends.push(self.bytes.len());
    }

    /// Makes the page, and begins the next one.
    fn take(&mut self) -> Kid {
        let starts = std::iter::once(&0).chain(&self.ends);
        let records = starts.zip(&self.ends).map(|(start, end)| (&[][..], &self.bytes[*start..*end]));
        let page = Page::gather(records, 0);
        self.bytes.clear();
        self.ends.clear();
        Kid::of(Node::Page(page))
    }
}

#[cfg(test)]
mod tests;
