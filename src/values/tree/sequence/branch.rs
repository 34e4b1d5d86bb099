//! The nodes of a sequence, and what concerns one branch with its kids.
//!
//! A walk goes down by a [`Way`]: to a position, or to a record in its order. What a walk has to change
//! besides the record is here, too: a branch splits a kid, merges two of them, or leaves out those of which
//! nothing is left. None of this looks further down than at the first record below a kid.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::super::page::{PAGE_BYTES_MAX, Page, shared_bytes};
use super::super::remains::{self, Rest};
use crate::allocator::taken_bytes;

/// Kids of a branch at most: 10 million records of ten bytes make a tree of three branches above a page.
pub(super) const KIDS_MAX: usize = if cfg!(test) { 6 } else { 64 };
/// The room for kids is a multiple of this. Lists that grow by one kid at a time would leave holes of all
/// sizes between the pages.
const KIDS_STEP: usize = if cfg!(test) { 2 } else { 8 };
/// Two branches merge if both together have no more kids than this, so that the next few do not split them
/// again.
const MERGED_KIDS_MAX: usize = KIDS_MAX / 2;
/// Two pages merge if both together use no more than this.
const MERGED_BYTES_MAX: usize = PAGE_BYTES_MAX / 2;

#[derive(Clone)]
pub(super) enum Node {
    Page(Page<0>),
    Branch(Arc<Branch>),
}

/// Never without kids. The list has the room that [`room_for`] their number gives.
pub(super) struct Branch {
    pub(super) kids: Vec<Kid>,
}

impl Clone for Branch {
    fn clone(&self) -> Branch {
        Branch::of(self.kids.iter().cloned())
    }
}

/// The room of a list of this number of kids.
pub(super) fn room_for(kids: usize) -> usize {
    kids.next_multiple_of(KIDS_STEP)
}

#[derive(Clone)]
pub(super) struct Kid {
    pub(super) node: Node,
    /// Records below it.
    pub(super) len: usize,
    /// Not more than the first bytes of its first record, and not less than those of any record before it.
    pub(super) bound: u64,
}

/// How a walk finds its way to a page, and a place in it.
pub(super) trait Way {
    /// Chooses a kid of a branch and goes there.
    fn descend(&mut self, branch: &Branch) -> usize;
    /// The place in the page.
    fn offset(&self, page: &Page<0>) -> usize;
}

/// To a position in a node that has `len` records.
pub(super) struct ToPosition {
    pub(super) len: usize,
    pub(super) at: usize,
}

/// To a record, or to where it would be, as [`super::Sequence::search_by`] finds it.
pub(super) struct ToRecord<C> {
    pub(super) bound: u64,
    pub(super) compare: C,
}

impl Way for ToPosition {
    #[inline]
    fn descend(&mut self, branch: &Branch) -> usize {
        let (index, offset) = branch.route(self.len, self.at);
        (self.len, self.at) = (branch.kids[index].len, offset);
        index
    }

    #[inline]
    fn offset(&self, _: &Page<0>) -> usize {
        self.at
    }
}

impl<C: Fn(&[u8]) -> Ordering> Way for ToRecord<C> {
    #[inline]
    fn descend(&mut self, branch: &Branch) -> usize {
        branch.search(self.bound, &self.compare)
    }

    #[inline]
    fn offset(&self, page: &Page<0>) -> usize {
        page.partition_point(|record| (self.compare)(record).is_lt())
    }
}

impl Node {
    /// Whether it is split when a walk that splits comes by: pages are, unless they have a single record.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Node::Page(page) => page.used() > PAGE_BYTES_MAX && page.len() > 1,
            Node::Branch(branch) => branch.kids.len() >= KIDS_MAX,
        }
    }

    /// Bytes of the node without what is below it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Node::Page(page) => page.bytes(),
            Node::Branch(branch) => branch.bytes(),
        }
    }

    /// The first record below it.
    pub(super) fn first(&self) -> Option<&[u8]> {
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
    pub(super) fn of(kids: impl ExactSizeIterator<Item = Kid>) -> Branch {
        let mut all = Vec::with_capacity(room_for(kids.len()));
        all.extend(kids);
        Branch { kids: all }
    }

    /// Gives the room back of kids that were removed.
    fn shrink(&mut self) {
        self.kids.shrink_to(room_for(self.kids.len()));
    }

    pub(super) fn bytes(&self) -> usize {
        branch_bytes(self.kids.len())
    }

    /// The kid of a position, and the position in it; `len` is the sum of all kids. Behind the end: the last
    /// kid.
    #[inline]
    pub(super) fn route(&self, len: usize, position: usize) -> (usize, usize) {
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
    #[inline]
    pub(super) fn search(&self, bound: u64, compare: impl Fn(&[u8]) -> Ordering) -> usize {
        let lower = self.kids[1..].partition_point(|kid| kid.bound < bound);
        let rest = &self.kids[1 + lower..];
        if rest.first().is_none_or(|kid| kid.bound > bound) {
            return lower;
        }
        let begins_behind =
            |kid: &Kid| kid.bound > bound || kid.node.first().is_some_and(|first| compare(first).is_gt());
        lower + rest.partition_point(|kid| !begins_behind(kid))
    }

    /// Records below the kids in front of one; `len` is the sum of all kids.
    #[inline]
    pub(super) fn len_before(&self, index: usize, len: usize) -> usize {
        let (before, behind) = self.kids.split_at(index);
        let sum = |kids: &[Kid]| kids.iter().map(|kid| kid.len).sum::<usize>();
        if before.len() < behind.len() { sum(before) } else { len - sum(behind) }
    }

    /// Splits a kid into two: in the middle, or at an end of the sequence so that what is not at the end
    /// stays full.
    pub(super) fn split(&mut self, index: usize, is_first: bool, is_last: bool) {
        let bound = self.kids[index].bound;
        let node = &mut self.kids[index].node;
        let right = match node {
            Node::Page(page) if is_first || is_last => {
                let end = split_page_at_an_end(page, is_first);
                if is_first { std::mem::replace(node, end) } else { end }
            }
            Node::Page(page) => {
                const SPARE: usize = PAGE_BYTES_MAX / 16;
                let (middle, count) = (page.middle(), page.len());
                let right = page.part(middle..count, SPARE);
                *page = page.part(0..middle, SPARE);
                Node::Page(right)
            }
            Node::Branch(branch) => {
                let count = branch.kids.len();
                let cut = if is_last { count - 1 } else { count / 2 };
                let cut = if is_first { 1 } else { cut };
                let half = |kids: &[Kid]| Node::Branch(Arc::new(Branch::of(kids.iter().cloned())));
                let (left, right) = (half(&branch.kids[..cut]), half(&branch.kids[cut..]));
                *node = left;
                right
            }
        };
        let left = node.clone();
        self.kids[index] = Kid { bound, ..Kid::of(left) };
        if self.kids.len() == self.kids.capacity() {
            self.kids.reserve_exact(KIDS_STEP);
        }
        self.kids.insert(index + 1, Kid::of(right));
    }

    /// Removes the kids whose records are all gone. Returns what is gone of the other kids.
    pub(super) fn take_out(&mut self, gone: Range<usize>, removed: &mut Vec<Node>) -> Range<usize> {
        let (mut start, mut taken) = (0, 0);
        let whole = self.kids.extract_if(.., |kid| {
            let records = start..start + kid.len;
            start = records.end;
            let is_gone = gone.start <= records.start && records.end <= gone.end;
            taken += if is_gone { kid.len } else { 0 };
            is_gone
        });
        removed.extend(whole.map(|kid| kid.node));
        self.shrink();
        gone.start..gone.end - taken
    }

    /// The kids of which some records are gone, and which of these. Their counts are changed.
    pub(super) fn cut_kids(&mut self, gone: Range<usize>) -> impl Iterator<Item = (&mut Node, Range<usize>)> {
        let mut end = 0;
        self.kids.iter_mut().filter_map(move |kid| {
            let start = end;
            end += kid.len;
            let cut = gone.start.clamp(start, end) - start..gone.end.clamp(start, end) - start;
            kid.len -= cut.len();
            (!cut.is_empty()).then_some((&mut kid.node, cut))
        })
    }

    /// Removes a kid whose records are all in one page. Returns how many bytes that frees.
    pub(super) fn leave_out(&mut self, index: usize) -> usize {
        let before = self.bytes();
        let gone = bytes_below([&self.kids.remove(index).node]);
        self.shrink();
        before + gone - self.bytes()
    }

    /// Merges a kid with a neighbour if both are small. Returns the bytes of these nodes before and after, or
    /// nothing if nothing was merged.
    pub(super) fn merge(&mut self, index: usize) -> Option<(usize, usize)> {
        let before = self.bytes();
        let pairs = [index.checked_sub(1), (index + 1 < self.kids.len()).then_some(index)];
        for left in pairs.into_iter().flatten() {
            let [a, b] = &self.kids[left..=left + 1] else { continue };
            if let Some(merged) = merged(&a.node, &b.node) {
                let halves = a.node.bytes() + b.node.bytes();
                let bytes = merged.bytes();
                self.kids[left] = Kid { bound: a.bound, ..Kid::of(merged) };
                self.kids.remove(left + 1);
                self.shrink();
                return Some((before + halves, self.bytes() + bytes));
            }
        }
        None
    }
}

/// Leaves the record at one end of the sequence alone in its page, whose room suits what comes there. The
/// others go to a new page, which is full, and mostly changes no more: it has no spare room. A page at an end
/// that grew, or was made anew each time, would leave holes between others.
fn split_page_at_an_end(page: &mut Page<0>, is_first: bool) -> Node {
    let count = page.len();
    let (kept, rest) = if is_first { (0, 1..count) } else { (count - 1, 0..count - 1) };
    let rest = page.part(rest, 0);
    let mut end = std::mem::replace(page, rest);
    if end.bytes() > 2 * PAGE_BYTES_MAX || !end.keep_only(kept, is_first) {
        end = match is_first {
            true => end.part_behind_room(kept..kept + 1, PAGE_BYTES_MAX),
            false => end.part(kept..kept + 1, PAGE_BYTES_MAX),
        };
    }
    Node::Page(end)
}

/// One node of two that are small and next to each other.
fn merged(a: &Node, b: &Node) -> Option<Node> {
    match (a, b) {
        (Node::Page(a), Node::Page(b)) if a.used() + b.used() <= MERGED_BYTES_MAX => {
            Some(Node::Page(Page::gather(a.records().chain(b.records()), 0)))
        }
        (Node::Branch(a), Node::Branch(b)) if a.kids.len() + b.kids.len() <= MERGED_KIDS_MAX => {
            let kids: Vec<Kid> = a.kids.iter().chain(&b.kids).cloned().collect();
            Some(Node::Branch(Arc::new(Branch::of(kids.into_iter()))))
        }
        _ => None,
    }
}

/// Bytes of some nodes with what is below them.
pub(super) fn bytes_below<'n>(nodes: impl IntoIterator<Item = &'n Node>) -> usize {
    let mut rest: Vec<&Node> = nodes.into_iter().collect();
    let mut bytes = 0;
    while let Some(node) = rest.pop() {
        bytes += node.bytes();
        let Node::Branch(branch) = node else { continue };
        for kid in &branch.kids {
            match &kid.node {
                Node::Page(page) => bytes += page.bytes(),
                branch => rest.push(branch),
            }
        }
    }
    bytes
}

impl remains::Branch for Branch {
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize {
        let Some(branch) = Arc::into_inner(self) else { return 0 };
        let bytes = branch_bytes(branch.kids.len());
        kids.extend(branch.kids.into_iter().map(|kid| Rest::from(kid.node)));
        bytes
    }
}

impl From<Node> for Rest {
    fn from(node: Node) -> Rest {
        match node {
            Node::Page(page) => Rest::Page(page.into_allocation()),
            Node::Branch(branch) => Rest::Branch(branch),
        }
    }
}

impl Kid {
    pub(super) fn of(node: Node) -> Kid {
        let len = match &node {
            Node::Page(page) => page.len(),
            Node::Branch(branch) => branch.kids.iter().map(|kid| kid.len).sum(),
        };
        let bound = match &node {
            Node::Page(page) if page.len() > 0 => bound_of(&[page.record(0)]),
            Node::Page(_) => 0,
            Node::Branch(branch) => branch.kids.first().map_or(0, |kid| kid.bound),
        };
        Kid { node, len, bound }
    }
}

/// The first eight bytes of a record as a number, so that a record in front of another has no higher number.
pub(super) fn bound_of(record: &[&[u8]]) -> u64 {
    let mut first = [0; 8];
    let mut length = 0;
    for part in record {
        let size = part.len().min(first.len() - length);
        first[length..length + size].copy_from_slice(&part[..size]);
        length += size;
    }
    u64::from_be_bytes(first)
}

/// Bytes of a branch, without what is below it.
pub(super) fn branch_bytes(kids: usize) -> usize {
    shared_bytes(size_of::<Branch>()) + taken_bytes(room_for(kids) * size_of::<Kid>())
}
