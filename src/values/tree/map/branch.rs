//! The nodes of a map, and what concerns one branch with its kids.
//!
//! A kid serves a range of the branch's slots. A range that is split is halved, so two ranges that may merge
//! differ in one bit.

use std::sync::Arc;

use super::super::page::{PAGE_BYTES_MAX, Page, shared_bytes};
use super::super::remains::{self, Rest};
use crate::allocator::taken_bytes;

/// Bits of the hash that a branch takes.
pub(super) const BRANCH_BITS: u32 = 6;
/// Slots of a branch.
pub(super) const SLOTS: u32 = 1 << BRANCH_BITS;
/// Two pages merge if both together use no more than this, so that the next few elements do not split them
/// again.
const MERGED_BYTES_MAX: usize = PAGE_BYTES_MAX / 2;

#[derive(Clone)]
pub(super) enum Node {
    /// The key of a record is the last byte of its hash.
    Page(Page<1>),
    Branch(Arc<Branch>),
}

#[derive(Clone)]
pub(super) struct Branch {
    /// A bit for each slot, set where the range of a kid begins.
    pub(super) starts: u64,
    /// The kid that serves each slot: the number of bits up to it, less one.
    pub(super) indexes: [u8; SLOTS as usize],
    /// In the order of their ranges.
    pub(super) kids: Vec<Kid>,
}

#[derive(Clone)]
pub(super) struct Kid {
    pub(super) node: Node,
    /// Elements below it.
    pub(super) len: usize,
}

impl Branch {
    /// The kid that serves a slot.
    #[inline]
    pub(super) fn index(&self, slot: u32) -> usize {
        self.indexes[slot as usize % self.indexes.len()].into()
    }

    /// The first slot of the kid that serves a slot, and how many it serves.
    pub(super) fn range(&self, slot: u32) -> (u32, u32) {
        let first = slot - (self.starts << (SLOTS - 1 - slot)).leading_zeros();
        let behind = (self.starts >> first >> 1).trailing_zeros();
        (first, (behind + 1).min(SLOTS - first))
    }

    /// The page of a slot if it serves other slots, too.
    pub(super) fn divisible_page(&self, slot: u32) -> Option<&Page<1>> {
        match &self.kids[self.index(slot)].node {
            Node::Page(page) if self.range(slot).1 > 1 => Some(page),
            _ => None,
        }
    }

    /// Splits the page of a slot in the middle of its slots. `slot_of` finds a record's slot, in the lowest
    /// bits. Returns the bytes of both halves.
    pub(super) fn split(&mut self, slot: u32, slot_of: impl Fn(&[u8]) -> u64) -> usize {
        let (first, width) = self.range(slot);
        let index = self.index(slot);
        let Node::Page(page) = &self.kids[index].node else { unreachable!("only pages are split") };
        // Ranges are halved, so the two halves differ in exactly one bit.
        let bit = u64::from(width / 2);
        let is_right: Vec<bool> = page.records().map(|(_, record)| slot_of(record) & bit != 0).collect();
        let half = |right: bool| {
            let chosen = page.records().zip(&is_right).filter(move |(_, is)| **is == right);
            Kid::of(Page::gather(chosen.map(|(record, _)| record), PAGE_BYTES_MAX / 16))
        };
        let (left, right) = (half(false), half(true));
        let bytes = left.page_bytes() + right.page_bytes();
        self.kids[index] = left;
        self.kids.reserve_exact(1);
        self.kids.insert(index + 1, right);
        self.starts |= 1 << (first + width / 2);
        self.indexes[(first + width / 2) as usize..].iter_mut().for_each(|index| *index += 1);
        bytes
    }

    /// Merges the page of a slot with the other half of the range from which both were split, if that is a
    /// page and both are small. Returns the bytes of the halves and of what they have become.
    pub(super) fn merge(&mut self, slot: u32) -> Option<(usize, usize)> {
        let (first, width) = self.range(slot);
        if width == SLOTS || self.range(first ^ width) != (first ^ width, width) {
            return None;
        }
        let right_slot = first | width;
        let right = self.index(right_slot);
        let [Kid { node: Node::Page(a), .. }, Kid { node: Node::Page(b), .. }] =
            &self.kids[right - 1..=right]
        else {
            return None;
        };
        if a.used() + b.used() > MERGED_BYTES_MAX {
            return None;
        }
        let halves = a.bytes() + b.bytes();
        let merged = Kid::of(Page::gather(a.records().chain(b.records()), 0));
        let bytes = merged.page_bytes();
        self.kids[right - 1] = merged;
        self.kids.remove(right);
        self.kids.shrink_to_fit();
        self.starts &= !(1 << right_slot);
        self.indexes[right_slot as usize..].iter_mut().for_each(|index| *index -= 1);
        Some((halves, bytes))
    }
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
    pub(super) fn of(page: Page<1>) -> Kid {
        Kid { len: page.len(), node: Node::Page(page) }
    }

    pub(super) fn page_bytes(&self) -> usize {
        match &self.node {
            Node::Page(page) => page.bytes(),
            Node::Branch(_) => 0,
        }
    }
}

/// Bytes of a branch, without what is below it. Its list of kids has no spare room.
pub(super) fn branch_bytes(kids: usize) -> usize {
    shared_bytes(size_of::<Branch>()) + taken_bytes(kids * size_of::<Kid>())
}

/// How far a hash is shifted to have the bits of a branch lowest.
#[inline]
pub(super) fn shift(depth: u32) -> u32 {
    u64::BITS - BRANCH_BITS * (depth + 1)
}

#[inline]
pub(super) fn slot(hash: u64, depth: u32) -> u32 {
    (hash >> shift(depth)) as u32 % SLOTS
}
