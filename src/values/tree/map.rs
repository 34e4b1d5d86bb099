//! A map of names to bytes: a trie of the names' hashes above pages.
//!
//! A [`Branch`] takes six bits of the hash, from the top, so it has 64 slots. A page serves as many
//! neighbouring slots as fit: when it is full, it is split by the next bit of the hash, and when only one
//! slot is left to it, by a branch of its own. A lookup goes through one branch at a thousand elements, two
//! at 100,000 and three at 10 million, and then looks for the hash's last byte in the page's column of keys.
//!
//! The elements therefore lie in the order of their hashes, and everything else follows from that. A cursor
//! is a hash: it stays valid whatever splits or merges. Two neighbours that have become small merge, so a map
//! that was large does not stay so. A branch counts what is below each kid, so the element at a position, and
//! with it a random one, is found in one walk.
//!
//! Every change looks the element up first. The walk that changes it then copies what is shared and never has
//! to turn back. No walk recurses; a trie is [`DEPTH_MAX`] branches deep at most.

mod branch;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;

use crate::cancel;

use self::branch::{BRANCH_BITS, Branch, Kid, Node, SLOTS, branch_bytes, shift, slot};
use super::page::{PAGE_BYTES_MAX, Page, Record};
use super::remains::Remains;

/// Branches above a page at most: ten take 60 of the hash's 64 bits. A page below them is never split; names
/// whose hashes agree in these bits share a large page.
const DEPTH_MAX: u32 = 10;
/// A page that uses less than this merges with its neighbour if both together are small.
const MERGING_BYTES_MAX: usize = PAGE_BYTES_MAX / 4;
/// Names of this length or longer have their length in eight more bytes.
const LONG_NAME_BYTES: usize = 255;

/// The numbers that names are multiplied with, random in each process. If they were the library's
/// constants (`FixedState`), a client that knows these could choose names that all have one hash, whatever
/// a map's seed.
static SHARED_SEED: LazyLock<SharedSeed> =
    LazyLock::new(|| SharedSeed::from_u64(RandomState::new().hash_one(0)));

/// Bytes by names. A copy that [`Map::share`] makes takes the same nodes; a write copies those it changes.
pub struct Map {
    root: Node,
    hasher: SeedableRandomState,
    len: usize,
    bytes: usize,
}

/// Where an element is, or would be.
struct Spot<'m> {
    page: &'m Page<1>,
    depth: u32,
    index: Option<usize>,
}

impl Map {
    /// An empty map whose order follows from the seed, within one process. Copies have the original's seed.
    pub fn new(seed: u64) -> Map {
        let root = Page::empty();
        let bytes = root.bytes();
        let hasher = SeedableRandomState::with_seed(seed, &SHARED_SEED);
        Map { root: Node::Page(root), hasher, len: 0, bytes }
    }

    /// An empty map with the seed of this one.
    pub(super) fn empty_alike(&self) -> Map {
        let root = Page::empty();
        let bytes = root.bytes();
        Map { root: Node::Page(root), hasher: self.hasher.clone(), len: 0, bytes }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory below this value, as the C library rounds them. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Map {
        let (root, hasher) = (self.root.clone(), self.hasher.clone());
        Map { root, hasher, len: self.len, bytes: self.bytes }
    }

    /// Whether the two have the same nodes: as long as both live, a change of one replaces its root.
    pub fn is_same(&self, other: &Map) -> bool {
        match (&self.root, &other.root) {
            (Node::Page(one), Node::Page(other)) => one.is_same(other),
            (Node::Branch(one), Node::Branch(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The value of a name.
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let hash = self.hash(name);
        let (page, _) = self.page(hash);
        find(page, hash, name).map(|index| split_record(page.record(index)).1)
    }

    /// Whether there is a name.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }

    /// The element at a position below `len`. The order is the trie's own; it changes with the elements.
    pub fn at(&self, position: usize) -> Option<(&[u8], &[u8])> {
        let (mut node, mut rest) = (&self.root, position);
        loop {
            match node {
                Node::Page(page) if rest < page.len() => return Some(split_record(page.record(rest))),
                Node::Page(_) => return None,
                Node::Branch(branch) => {
                    let kid = branch.kids.iter().find(|kid| {
                        let is_here = rest < kid.len;
                        rest -= if is_here { 0 } else { kid.len };
                        is_here
                    });
                    node = &kid?.node;
                }
            }
        }
    }

    /// Sets the value of a name; true if the name is new.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> bool {
        let mut is_new = false;
        self.update(name, |old| {
            is_new = old.is_none();
            Some(value)
        });
        is_new
    }

    /// Sets the value of a name to what the function returns, which gets the value there is. Without a new
    /// value, nothing changes.
    pub fn update<V: AsRef<[u8]>>(&mut self, name: &[u8], change: impl FnOnce(Option<&[u8]>) -> Option<V>) {
        let hash = self.hash(name);
        let mut spot = self.spot(hash, name);
        let old = spot.index.map(|index| split_record(spot.page.record(index)).1);
        let old_size = old.map(<[u8]>::len);
        let Some(value) = change(old) else { return };
        let value = value.as_ref();
        if let Some(index) = spot.index
            && old_size == Some(value.len())
        {
            own_page(&mut self.root, hash, |_| {}).overwrite_end(index, value);
            return;
        }
        let mut prefix = [0; 9];
        let record =
            Record { key: [hash as u8], parts: &[name_prefix(name.len(), &mut prefix), name, value] };
        while spot.is_full_for(record.size()) {
            self.split(hash);
            spot = self.spot(hash, name);
        }
        let gone = spot.replaced();
        let is_new = gone.is_empty();
        self.len += usize::from(is_new);
        let page = own_page(&mut self.root, hash, |len| *len += usize::from(is_new));
        let before = page.bytes();
        page.splice(gone, Some(record));
        self.bytes = self.bytes + page.bytes() - before;
    }

    /// Removes a name; true if there was one.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.take(name, |_| ()).is_some()
    }

    /// Removes a name. Returns what the function makes of the value there was.
    pub fn take<R>(&mut self, name: &[u8], read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let hash = self.hash(name);
        let spot = self.spot(hash, name);
        let (gone, index) = (spot.replaced(), spot.index?);
        let taken = read(split_record(spot.page.record(index)).1);
        self.len -= 1;
        let page = own_page(&mut self.root, hash, |len| *len -= 1);
        let before = page.bytes();
        let used = page.splice(gone, None);
        self.bytes = self.bytes + page.bytes() - before;
        if used < MERGING_BYTES_MAX {
            while self.merge(hash) && self.page(hash).0.used() < MERGING_BYTES_MAX {}
        }
        Some(taken)
    }

    /// All elements, in the trie's order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut next = Some(0);
        std::iter::from_fn(move || {
            cancel::check();
            let (portion, cursor) = self.scan(next?);
            next = (cursor != 0).then_some(cursor);
            Some(portion)
        })
        .flatten()
    }

    /// The elements of one page from a cursor on, and the cursor for the next call; 0 is the first cursor,
    /// and the last one returned. An element that is in the map from the first call to the last is returned
    /// exactly once, whatever else happens to the map between the calls. Any number may be given as a cursor.
    pub fn scan(&self, cursor: u64) -> (impl Iterator<Item = (&[u8], &[u8])>, u64) {
        let from = cursor.reverse_bits();
        let (page, start, end) = self.page_with_range(from);
        // Pages may have merged since the cursor was returned; then the page begins before it.
        let is_due = move |name: &[u8]| start == from || self.hash(name) >= from;
        let records = page.records().map(|(_, record)| split_record(record));
        // The bits of a cursor are those of a hash in reverse: small numbers, as clients know them.
        (records.filter(move |(name, _)| is_due(name)), end.reverse_bits())
    }

    /// Of two cursors that [`scan`](Self::scan) has returned, the one that comes first.
    pub(super) fn nearer_cursor(&self, one: u64, other: u64) -> u64 {
        // 0 is the end.
        let place = |cursor: u64| cursor.reverse_bits().wrapping_sub(1);
        if place(one) <= place(other) { one } else { other }
    }

    /// Whether an element of this name comes before a cursor that [`scan`](Self::scan) has returned.
    pub(super) fn is_before(&self, name: &[u8], cursor: u64) -> bool {
        cursor == 0 || self.hash(name) < cursor.reverse_bits()
    }

    /// Removes all elements, in constant time. Returns their nodes, to be freed in steps.
    pub fn clear(&mut self) -> Remains {
        let empty = Page::empty();
        (self.len, self.bytes) = (0, empty.bytes());
        Remains::of([std::mem::replace(&mut self.root, Node::Page(empty))])
    }

    fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(name);
        hasher.finish()
    }

    fn spot(&self, hash: u64, name: &[u8]) -> Spot<'_> {
        let (page, depth) = self.page(hash);
        Spot { page, depth, index: find(page, hash, name) }
    }

    /// The page of a hash, and how many branches are above it.
    #[inline]
    fn page(&self, hash: u64) -> (&Page<1>, u32) {
        let (mut node, mut depth) = (&self.root, 0);
        loop {
            match node {
                Node::Page(page) => return (page, depth),
                Node::Branch(branch) => node = &branch.kids[branch.index(slot(hash, depth))].node,
            }
            depth += 1;
        }
    }

    /// The page of a hash, the first hash that it serves, and the first behind it; 0 if there is none.
    fn page_with_range(&self, hash: u64) -> (&Page<1>, u64, u64) {
        let (mut node, mut depth) = (&self.root, 0);
        let (mut start, mut end) = (0, 0u64);
        loop {
            match node {
                Node::Page(page) => return (page, start, end),
                Node::Branch(branch) => {
                    let slot = slot(hash, depth);
                    let (first, width) = branch.range(slot);
                    // The bits above those of this branch, which all hashes below it have in common.
                    let common = hash & !(u64::MAX >> (BRANCH_BITS * depth));
                    start = common | u64::from(first) << shift(depth);
                    end = start.wrapping_add(u64::from(width) << shift(depth));
                    node = &branch.kids[branch.index(slot)].node;
                    depth += 1;
                }
            }
        }
    }

    /// Splits the page of a hash into two.
    fn split(&mut self, hash: u64) {
        let hash_of = hash_of_record(self.hasher.clone());
        let (mut node, mut depth) = (&mut self.root, 0);
        loop {
            if let Node::Page(page) = node {
                let kid = Kid { len: page.len(), node: Node::Page(page.clone()) };
                *node = Node::Branch(Arc::new(Branch {
                    starts: 1,
                    indexes: [0; SLOTS as usize],
                    kids: vec![kid],
                }));
                self.bytes += branch_bytes(1);
            }
            let Node::Branch(branch) = node else { unreachable!("it is one since the line above") };
            let branch = Arc::make_mut(branch);
            let slot = slot(hash, depth);
            if let Some(page) = branch.divisible_page(slot) {
                let before = page.bytes() + branch_bytes(branch.kids.len());
                let halves = branch.split(slot, |record| hash_of(record) >> shift(depth));
                self.bytes = self.bytes + halves + branch_bytes(branch.kids.len()) - before;
                return;
            }
            let index = branch.index(slot);
            node = &mut branch.kids[index].node;
            depth += 1;
        }
    }

    /// Merges the page of a hash with its neighbour if both are small; true if that changed anything.
    fn merge(&mut self, hash: u64) -> bool {
        let Some(above) = self.page(hash).1.checked_sub(1) else { return false };
        let mut node = &mut self.root;
        for depth in 0..above {
            let Node::Branch(branch) = node else { unreachable!("the page is deeper") };
            let branch = Arc::make_mut(branch);
            let index = branch.index(slot(hash, depth));
            node = &mut branch.kids[index].node;
        }
        let Node::Branch(branch) = node else { unreachable!("the page is just below") };
        let branch = Arc::make_mut(branch);
        let before = branch_bytes(branch.kids.len());
        let Some((halves, merged)) = branch.merge(slot(hash, above)) else { return false };
        let mut after = branch_bytes(branch.kids.len());
        if branch.kids.len() == 1 {
            // A page that serves all slots needs no branch.
            let kid = branch.kids.remove(0);
            *node = kid.node;
            after = 0;
        }
        self.bytes = self.bytes + merged + after - halves - before;
        true
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("len", &self.len).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Spot<'_> {
    /// The records that a new one replaces: one or none.
    fn replaced(&self) -> std::ops::Range<usize> {
        // A new record is the last of its page, so that no other one moves.
        self.index.map_or(self.page.len()..self.page.len(), |index| index..index + 1)
    }

    /// Whether the page must be split before it takes a record of this size.
    fn is_full_for(&self, size: usize) -> bool {
        let others = self.page.len() - self.replaced().len();
        others > 0
            && self.depth < DEPTH_MAX
            && self.page.used_after(self.replaced(), Some(size)) > PAGE_BYTES_MAX
    }
}

/// The page of a hash, for a change: on the way to it, shared nodes are copied and counts are changed.
fn own_page(root: &mut Node, hash: u64, count: impl Fn(&mut usize)) -> &mut Page<1> {
    let (mut node, mut depth) = (root, 0);
    loop {
        match node {
            Node::Page(page) => return page,
            Node::Branch(branch) => {
                let branch = Arc::make_mut(branch);
                let index = branch.index(slot(hash, depth));
                let kid = &mut branch.kids[index];
                count(&mut kid.len);
                node = &mut kid.node;
                depth += 1;
            }
        }
    }
}

/// The record of a name within a page.
#[inline]
fn find(page: &Page<1>, hash: u64, name: &[u8]) -> Option<usize> {
    let keys = page.keys();
    let mut from = 0;
    while let Some(step) = memchr::memchr(hash as u8, &keys[from..]) {
        if split_record(page.record(from + step)).0 == name {
            return Some(from + step);
        }
        from += step + 1;
    }
    None
}

fn hash_of_record(hasher: SeedableRandomState) -> impl Fn(&[u8]) -> u64 {
    move |record| {
        let mut hasher = hasher.build_hasher();
        hasher.write(split_record(record).0);
        hasher.finish()
    }
}

/// What stands before a name: its length in one byte or nine.
fn name_prefix(length: usize, prefix: &mut [u8; 9]) -> &[u8] {
    if length < LONG_NAME_BYTES {
        prefix[0] = length as u8;
        return &prefix[..1];
    }
    prefix[0] = LONG_NAME_BYTES as u8;
    prefix[1..].copy_from_slice(&(length as u64).to_le_bytes());
    prefix
}

/// The name and the value of a record.
#[inline]
fn split_record(record: &[u8]) -> (&[u8], &[u8]) {
    let (&[short], rest) = record.split_first_chunk().unwrap_or((&[0], record));
    if usize::from(short) < LONG_NAME_BYTES {
        return rest.split_at(short.into());
    }
    let (length, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], rest));
    rest.split_at(u64::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests;
