//! Records in an order: a B+ tree above pages that counts.
//!
//! A [`Branch`] has up to [`KIDS_MAX`] kids and knows how many records are below each, so a position is found
//! by adding these counts up, from the nearer end. All pages are equally deep.
//!
//! A sequence that is kept in the order of its records' bytes can be searched, too. For that, a branch keeps
//! of each kid a number, the bound: the first eight bytes of its first record, when it was last set. Records
//! that are removed do not change it: a bound may be lower than the first record, but never lower than what
//! is before it. Only for kids with equal bounds a search compares their first records. (For a sorted set
//! the eight bytes are the score.)
//!
//! Every change is made in a page first. A page that has become too large is then split, and the walk to it
//! splits full branches on its way; a page that has become small merges with a neighbour, and the walk to it
//! merges small branches. So no walk has to turn back, and none recurses.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::page::{PAGE_BYTES_MAX, Page, Record, shared_bytes};
use crate::allocator::taken_bytes;

/// Kids of a branch at most: 10 million records of ten bytes make a tree of three branches above a page.
const KIDS_MAX: usize = if cfg!(test) { 6 } else { 64 };
/// Two branches merge if both together have no more kids than this, so that the next few do not split them
/// again.
const MERGED_KIDS_MAX: usize = KIDS_MAX / 2;
/// A page that uses less than this merges with a neighbour...
const MERGING_BYTES_MAX: usize = PAGE_BYTES_MAX / 4;
/// ... if both together use less than this.
const MERGED_BYTES_MAX: usize = PAGE_BYTES_MAX / 2;

/// Records by their positions. A copy that [`Sequence::share`] makes takes the same nodes; a write copies
/// those that it changes.
pub struct Sequence {
    root: Node,
    len: usize,
    bytes: usize,
    /// What [`Sequence::free_some`] has taken apart and not yet freed.
    remains: Vec<Kid>,
}

#[derive(Clone)]
enum Node {
    Page(Page<0>),
    Branch(Arc<Branch>),
}

/// Never without kids; the list has no spare room.
#[derive(Clone)]
struct Branch {
    kids: Vec<Kid>,
}

#[derive(Clone)]
struct Kid {
    node: Node,
    /// Records below it.
    len: usize,
    /// Not more than the first bytes of its first record, and not less than those of any record before it.
    bound: u64,
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
        Sequence { root: Node::Page(root), len: 0, bytes, remains: Vec::new() }
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
        Sequence { root: self.root.clone(), len: self.len, bytes: self.bytes, remains: Vec::new() }
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
        let (mut node, mut before) = (&self.root, 0);
        loop {
            match node {
                Node::Page(page) => {
                    let offset = partition_point(0..page.len(), |i| page.record(i) < record);
                    let is_there = offset < page.len() && page.record(offset) == record;
                    return if is_there { Ok(before + offset) } else { Err(before + offset) };
                }
                Node::Branch(branch) => {
                    let index = branch.search(record);
                    before += branch.kids[..index].iter().map(|kid| kid.len).sum::<usize>();
                    node = &branch.kids[index].node;
                }
            }
        }
    }

    /// Inserts a record at a position, before the record that is there now; at `len` at most.
    pub fn insert(&mut self, position: usize, record: &[u8]) {
        assert!(position <= self.len, "a record is inserted behind the end");
        self.splice(position, 0, Some(record));
        while self.is_too_large(position) {
            self.split(position);
        }
    }

    /// Replaces the record at a position that there is.
    pub fn replace(&mut self, position: usize, record: &[u8]) {
        assert!(position < self.len, "a record is replaced behind the end");
        self.splice(position, 1, Some(record));
        while self.is_too_large(position) {
            self.split(position);
        }
        self.merge_if_small(position);
    }

    /// Removes the records of some positions, page by page. A range that ends behind the last record ends
    /// with it.
    pub fn remove(&mut self, positions: Range<usize>) {
        let mut rest = positions.end.min(self.len).saturating_sub(positions.start);
        while rest > 0 {
            let (page, offset) = self.page(positions.start);
            let count = rest.min(page.len() - offset);
            // A position that stays in the page, or else one beside it.
            let beside = positions.start - offset;
            self.splice(positions.start, count, None);
            self.merge_if_small(beside);
            rest -= count;
        }
    }

    /// Empties the sequence, so that nothing large is freed at once: frees so many nodes at most, and returns
    /// true once nothing is left to free. The sequence has no records from the first call on. Nodes that a
    /// copy has, too, are left to it.
    pub fn free_some(&mut self, nodes: usize) -> bool {
        if self.len > 0 || matches!(self.root, Node::Branch(_)) {
            let remains = std::mem::take(&mut self.remains);
            let full = std::mem::replace(self, Sequence { remains, ..Sequence::new() });
            self.remains.push(Kid { node: full.root, len: full.len, bound: 0 });
        }
        for _ in 0..nodes {
            let Some(kid) = self.remains.pop() else { break };
            // Of several owners who let go at the same time, exactly one gets the branch.
            if let Node::Branch(branch) = kid.node
                && let Some(branch) = Arc::into_inner(branch)
            {
                self.remains.extend(branch.kids);
            }
        }
        self.remains.is_empty()
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

    /// Replaces `gone` records of one page with a new one or with none. No node stays without records but the
    /// root.
    fn splice(&mut self, position: usize, gone: usize, new: Option<&[u8]>) {
        let (mut node, mut len, mut at) = (&mut self.root, self.len, position);
        let changed = |len: usize| len - gone + usize::from(new.is_some());
        self.len = changed(self.len);
        if self.len == 0 {
            self.bytes -= below(node);
            *node = Node::Page(Page::empty());
            self.bytes += node.bytes();
            return;
        }
        let page = loop {
            match node {
                Node::Page(page) => break page,
                Node::Branch(branch) => {
                    let branch = Arc::make_mut(branch);
                    let (index, offset) = branch.route(len, at);
                    if changed(branch.kids[index].len) == 0 {
                        self.bytes -= branch.leave_out(index);
                        return;
                    }
                    let kid = &mut branch.kids[index];
                    (len, at) = (kid.len, offset);
                    kid.len = changed(kid.len);
                    if let Some(record) = new.filter(|_| at == 0) {
                        kid.bound = bound_of(record);
                    }
                    node = &mut kid.node;
                }
            }
        };
        let before = page.bytes();
        match new {
            Some(record) => page.splice(at..at + gone, Some(Record { key: [], parts: &[record] })),
            None => page.splice(at..at + gone, None),
        }
        self.bytes = self.bytes + page.bytes() - before;
    }

    fn is_too_large(&self, position: usize) -> bool {
        let (page, _) = self.page(position);
        page.used() > PAGE_BYTES_MAX && page.len() > 1
    }

    /// Splits the page of a position into two, and full branches above it.
    fn split(&mut self, position: usize) {
        if self.root.is_full() {
            let root = std::mem::replace(&mut self.root, Node::Page(Page::empty()));
            self.root = Node::Branch(Arc::new(Branch { kids: vec![Kid::of(root)] }));
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

    /// Merges the page of a position with a neighbour if both are small, and small branches above it.
    fn merge_if_small(&mut self, position: usize) {
        if self.page(position).0.used() < MERGING_BYTES_MAX {
            while self.merge(position) {}
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
    let (page, offset) = of.page(position);
    *hand = Some((page, position - offset));
    page.record(offset)
}

impl Node {
    /// Whether it is split when a walk that splits comes by: pages are, unless they have a single record.
    fn is_full(&self) -> bool {
        match self {
            Node::Page(page) => page.used() > PAGE_BYTES_MAX && page.len() > 1,
            Node::Branch(branch) => branch.kids.len() >= KIDS_MAX,
        }
    }

    /// Bytes of the node without what is below it.
    fn bytes(&self) -> usize {
        match self {
            Node::Page(page) => page.bytes(),
            Node::Branch(branch) => branch.bytes(),
        }
    }

    /// The first record below it.
    fn first(&self) -> Option<&[u8]> {
        let mut node = self;
        while let Node::Branch(branch) = node {
            node = &branch.kids.first()?.node;
        }
        match node {
            Node::Page(page) if page.len() > 0 => Some(page.record(0)),
            _ => None,
        }
    }
}

impl Branch {
    fn bytes(&self) -> usize {
        branch_bytes(self.kids.len())
    }

    /// The kid of a position, and the position in it; `len` is the sum of all kids. Behind the end: the last
    /// kid.
    #[inline]
    fn route(&self, len: usize, position: usize) -> (usize, usize) {
        if position < len / 2 {
            let mut at = position;
            for (index, kid) in self.kids.iter().enumerate() {
                if at < kid.len {
                    return (index, at);
                }
                at -= kid.len;
            }
        }
        let mut start = len;
        for (index, kid) in self.kids.iter().enumerate().rev() {
            start -= kid.len;
            if position >= start {
                return (index, position - start);
            }
        }
        (0, position)
    }

    /// The last kid that does not begin behind a record; the first if all do.
    fn search(&self, record: &[u8]) -> usize {
        let bound = bound_of(record);
        let kids = 1..self.kids.len();
        let equal = partition_point(kids.clone(), |i| self.kids[i].bound < bound);
        let higher = partition_point(equal..kids.end, |i| self.kids[i].bound == bound);
        let begins_behind = |i: usize| self.kids[i].node.first().is_some_and(|first| first > record);
        partition_point(equal..higher, |i| !begins_behind(i)) - 1
    }

    /// Splits a kid into two: in the middle, or at an end of the sequence so that what is not at the end
    /// stays full.
    fn split(&mut self, index: usize, is_first: bool, is_last: bool) {
        let (left, right) = match &self.kids[index].node {
            Node::Page(page) => split_page(page, is_first, is_last),
            Node::Branch(branch) => {
                let count = branch.kids.len();
                let cut = if is_last { count - 1 } else { count / 2 };
                let cut = if is_first { 1 } else { cut };
                let half = |kids: &[Kid]| Node::Branch(Arc::new(Branch { kids: kids.to_vec() }));
                (half(&branch.kids[..cut]), half(&branch.kids[cut..]))
            }
        };
        let bound = self.kids[index].bound;
        self.kids[index] = Kid { bound, ..Kid::of(left) };
        self.kids.reserve_exact(1);
        self.kids.insert(index + 1, Kid::of(right));
    }

    /// Removes a kid whose records are all in one page. Returns how many bytes that frees.
    fn leave_out(&mut self, index: usize) -> usize {
        let before = self.bytes();
        let gone = below(&self.kids.remove(index).node);
        self.kids.shrink_to_fit();
        before + gone - self.bytes()
    }

    /// Merges a kid with a neighbour if both are small. Returns the bytes of these nodes before and after, or
    /// nothing if nothing was merged.
    fn merge(&mut self, index: usize) -> Option<(usize, usize)> {
        let before = self.bytes();
        let pairs = [index.checked_sub(1), (index + 1 < self.kids.len()).then_some(index)];
        for left in pairs.into_iter().flatten() {
            let [a, b] = &self.kids[left..=left + 1] else { continue };
            if let Some(merged) = merged(&a.node, &b.node) {
                let halves = a.node.bytes() + b.node.bytes();
                let bytes = merged.bytes();
                self.kids[left] = Kid { bound: a.bound, ..Kid::of(merged) };
                self.kids.remove(left + 1);
                self.kids.shrink_to_fit();
                return Some((before + halves, self.bytes() + bytes));
            }
        }
        None
    }
}

/// Splits a page, by bytes in the middle.
fn split_page(page: &Page<0>, is_first: bool, is_last: bool) -> (Node, Node) {
    let count = page.len();
    let half: usize = page.records().map(|(_, record)| record.len()).sum::<usize>() / 2;
    let mut size = 0;
    let middle = page.records().take_while(|(_, record)| {
        size += record.len();
        size <= half
    });
    let cut = match (is_first, is_last) {
        (true, _) => 1,
        (_, true) => count - 1,
        _ => middle.count().clamp(1, count - 1),
    };
    // The page at an end gets all its room at once; the other one will not grow.
    let spare = |grows: bool, others: bool| match (grows, others) {
        (true, _) => PAGE_BYTES_MAX / 8 * 7,
        (_, true) => 0,
        _ => PAGE_BYTES_MAX / 16,
    };
    let left = Page::gather(page.records().take(cut), spare(is_first, is_last));
    let right = Page::gather(page.records().skip(cut), spare(is_last && !is_first, is_first));
    (Node::Page(left), Node::Page(right))
}

/// One node of two that are small and next to each other.
fn merged(a: &Node, b: &Node) -> Option<Node> {
    match (a, b) {
        (Node::Page(a), Node::Page(b)) if a.used() + b.used() <= MERGED_BYTES_MAX => {
            Some(Node::Page(Page::gather(a.records().chain(b.records()), 0)))
        }
        (Node::Branch(a), Node::Branch(b)) if a.kids.len() + b.kids.len() <= MERGED_KIDS_MAX => {
            let mut kids = Vec::with_capacity(a.kids.len() + b.kids.len());
            kids.extend_from_slice(&a.kids);
            kids.extend_from_slice(&b.kids);
            Some(Node::Branch(Arc::new(Branch { kids })))
        }
        _ => None,
    }
}

/// Bytes of a node that has one page, with what is below it.
fn below(node: &Node) -> usize {
    let (mut node, mut bytes) = (node, node.bytes());
    while let Node::Branch(branch) = node
        && let [kid] = &branch.kids[..]
    {
        node = &kid.node;
        bytes += node.bytes();
    }
    bytes
}

impl Kid {
    fn of(node: Node) -> Kid {
        let len = match &node {
            Node::Page(page) => page.len(),
            Node::Branch(branch) => branch.kids.iter().map(|kid| kid.len).sum(),
        };
        let bound = match &node {
            Node::Page(page) if page.len() > 0 => bound_of(page.record(0)),
            Node::Page(_) => 0,
            Node::Branch(branch) => branch.kids.first().map_or(0, |kid| kid.bound),
        };
        Kid { node, len, bound }
    }
}

/// The first eight bytes of a record as a number, so that a record in front of another has no higher number.
fn bound_of(record: &[u8]) -> u64 {
    let mut first = [0; 8];
    let length = record.len().min(first.len());
    first[..length].copy_from_slice(&record[..length]);
    u64::from_be_bytes(first)
}

/// Bytes of a branch, without what is below it.
fn branch_bytes(kids: usize) -> usize {
    shared_bytes(size_of::<Branch>()) + taken_bytes(kids * size_of::<Kid>())
}

/// The first number of a range for which something is not so, where it is so for all before and for none
/// behind.
fn partition_point(range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
