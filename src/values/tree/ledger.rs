//! Entries in the order of their IDs, with the groups that read them.
//!
//! Entries are only added at the end, so they lie in [`block`]s of a few dozen, one behind the other, and
//! only the last block grows. A block is a listpack as Redis has it, in the same bytes: an entry takes as
//! much memory as there, files have the blocks as they are, and whatever depends on where a block ends
//! (approximate trimming) is the same. [`blocks`] keeps them, [`group`] what was delivered to which consumer.

mod block;
mod blocks;
mod delivery;
mod group;
mod id;
mod idle;
mod producers;
mod salvage;
mod trimming;

use std::sync::Arc;

use super::page::shared_bytes;
use super::remains::Remains;
use crate::allocator::taken_bytes;
use crate::cancel;
use crate::dump::strings::DecodeError;

use block::{Block, Entries};
use blocks::{BlockPlace, Blocks};

pub(crate) use block::Entry;
pub(crate) use delivery::Delivery;
pub(crate) use group::{Consumer, Group};
pub(crate) use id::{EntryId, ID_TEXT_BYTES_MAX};
pub(crate) use producers::{MESSAGES, Message, Producers, SECONDS};
pub(crate) use salvage::Salvage;
pub(crate) use trimming::{Keep, References, Trim};

/// Bytes of a block at most, whatever the limits are. Redis: `STREAM_LISTPACK_MAX_SIZE`.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 30;

/// Entries, and the groups that read them.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    blocks: Blocks,
    /// Entries that are not deleted.
    len: usize,
    /// How many more entries the ledger is [said to have](Ledger::length).
    surplus: i64,
    /// The highest ID that an entry has had.
    pub last_id: EntryId,
    /// The highest ID of an entry that was deleted, other than by trimming.
    pub max_deleted_id: EntryId,
    /// How many entries were added in the ledger's life.
    pub entries_added: u64,
    /// In the order of their names.
    groups: Arc<Vec<Arc<Group>>>,
    /// Bytes of the groups.
    groups_bytes: usize,
    /// What the producers have added that name their messages, if there ever was one.
    producers: Option<Box<Producers>>,
}

impl Ledger {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of entries that the ledger is said to have. Trimming in versions of Redis up to 7.0.0 could
    /// leave streams that count more entries than they have. They live on from file to file, and clients see
    /// that count as their length.
    pub fn length(&self) -> u64 {
        (self.len as i64).saturating_add(self.surplus).max(0) as u64
    }

    /// Sets what a file says of the number of entries.
    pub fn set_length(&mut self, length: u64) {
        self.surplus = i64::try_from(length).unwrap_or(i64::MAX).saturating_sub(self.len as i64);
    }

    /// Bytes of memory below this value. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        let groups = taken_bytes(self.groups.capacity() * size_of::<Arc<Group>>());
        let own = taken_bytes(size_of::<Ledger>()) + shared_bytes(size_of::<Vec<Arc<Group>>>());
        let producers = self.producers.as_ref().map_or(0, |producers| producers.bytes());
        own + groups + self.blocks.bytes() + self.groups_bytes + producers
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Ledger {
        self.clone()
    }

    /// Removes everything, in constant time. Returns what is to be freed, in steps.
    pub fn clear(&mut self) -> Remains {
        let mut old = std::mem::take(self);
        let mut remains = old.blocks.clear();
        if let Some(groups) = Arc::into_inner(old.groups) {
            remains.append(Remains::of(groups));
        }
        if let Some(mut producers) = old.producers {
            remains.append(producers.forget());
        }
        remains
    }

    /// Adds an entry behind all others. Its names and values take turns. `bytes_max` and `entries_max` bound
    /// a block; 0 is no bound.
    pub fn add<'f>(
        &mut self,
        id: EntryId,
        fields: impl ExactSizeIterator<Item = &'f [u8]> + Clone,
        bytes_max: usize,
        entries_max: usize,
    ) {
        debug_assert!(id > self.last_id);
        let bytes: usize = fields.clone().map(<[u8]>::len).sum();
        let bytes_max = if bytes_max == 0 { BLOCK_BYTES_MAX } else { bytes_max.min(BLOCK_BYTES_MAX) };
        let has_room = |block: &Block| {
            block.listpack().len().saturating_add(bytes) < bytes_max
                && (entries_max == 0 || block.count() < entries_max)
        };
        let last = self.blocks.last();
        match last.filter(|last| self.blocks.get(*last).is_some_and(|last| has_room(&last.block))) {
            Some(last) => self.blocks.change(last, 1, |base, block| block.append(base, id, fields)),
            None => self.blocks.push(id, 1, Block::new(fields)),
        }
        self.len += 1;
        self.entries_added = self.entries_added.saturating_add(1);
        self.last_id = id;
    }

    /// The entries from one ID to another, with both.
    pub fn range(&self, from: EntryId, to: EntryId) -> Range<'_> {
        let place = self.blocks.find(from).or_else(|| self.blocks.first());
        Range { blocks: &self.blocks, place, entries: None, from, to }
    }

    /// The same, the last one first.
    pub fn range_back(&self, from: EntryId, to: EntryId) -> RangeBack<'_> {
        RangeBack { blocks: &self.blocks, place: self.blocks.find(to), entries: None, from, to }
    }

    /// How many entries there are behind an ID, about: with those of its block. Counts to `most` at most, and
    /// to the end of a block.
    pub fn len_behind(&self, id: EntryId, most: usize) -> usize {
        let (mut place, mut len) = (self.blocks.find(id).or_else(|| self.blocks.first()), 0);
        while let Some(at) = place.filter(|_| len < most) {
            let kept = self.blocks.get(at);
            len += kept.map_or(0, |kept| kept.live as usize);
            place = kept.map(|_| self.blocks.behind(at));
        }
        len
    }

    /// The first entry.
    pub fn first(&self) -> Option<Entry<'_>> {
        self.range(EntryId::ZERO, EntryId::MAX).next()
    }

    /// The last entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.range_back(EntryId::ZERO, EntryId::MAX).next()
    }

    /// The entry of an ID, unless it is absent or deleted.
    pub fn get(&self, id: EntryId) -> Option<Entry<'_>> {
        let kept = self.blocks.get(self.blocks.find(id)?)?;
        kept.block.entries(kept.id).find(id)
    }

    /// Deletes an entry; returns whether it was there.
    pub fn delete(&mut self, id: EntryId) -> bool {
        let Some(place) = self.blocks.find(id) else { return false };
        let Some(kept) = self.blocks.get(place) else { return false };
        let Some(entry) = kept.block.entries(kept.id).find(id) else { return false };
        if kept.live == 1 {
            drop(self.blocks.remove(place));
        } else {
            let at = entry.place();
            self.blocks.change(place, -1, |_, block| block.delete(&[at]));
        }
        self.len -= 1;
        true
    }

    /// The blocks, each with its ID.
    pub fn listpacks(&self) -> impl Iterator<Item = (EntryId, &[u8])> {
        self.blocks.iter().map(|kept| (kept.id, kept.block.listpack()))
    }

    /// The number of blocks.
    pub fn listpacks_count(&self) -> usize {
        self.blocks.len()
    }

    /// The number of nodes of the radix tree in which Redis would keep the IDs of the blocks.
    pub fn radix_nodes(&self) -> usize {
        radix_nodes(self.blocks.iter().map(|kept| u128::from_be_bytes(kept.id.to_bytes())))
    }

    /// Appends a block from a file, as [`listpacks`](Self::listpacks) has it.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if it is damaged, or not behind the blocks so far; with the listpack.
    pub fn append_listpack(&mut self, id: EntryId, listpack: Vec<u8>) -> Result<(), (DecodeError, Vec<u8>)> {
        let behind = (self.blocks.len() > 0).then_some(self.last_id);
        let (block, live, last) = Block::checked(listpack, id, behind)?;
        self.blocks.push(id, live, block);
        self.len += live as usize;
        self.last_id = last;
        Ok(())
    }

    /// The groups in the order of their names.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.groups.iter().map(|group| &**group)
    }

    /// The group with this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.search_group(name).ok().map(|at| &*self.groups[at])
    }

    /// The group with this name as it is now, to be kept.
    pub fn share_group(&self, name: &[u8]) -> Option<Arc<Group>> {
        self.search_group(name).ok().map(|at| Arc::clone(&self.groups[at]))
    }

    /// Puts a group in the place of the one of which it was made, which has the same name. Returns what is to
    /// be freed, and whether that one was still there, unchanged.
    pub fn exchange_group(&mut self, before: Arc<Group>, after: Group) -> (Remains, bool) {
        let found = self.search_group(before.name());
        let Some(at) = found.ok().filter(|at| Arc::ptr_eq(&self.groups[*at], &before)) else {
            return (Remains::of([before, Arc::new(after)]), false);
        };
        self.groups_bytes = self.groups_bytes + after.bytes() - before.bytes();
        Arc::make_mut(&mut self.groups)[at] = Arc::new(after);
        (Remains::of([before]), true)
    }

    fn search_group(&self, name: &[u8]) -> Result<usize, usize> {
        self.groups.binary_search_by(|group| group.name().cmp(name))
    }

    /// Adds a group; returns false if there is one of this name.
    pub fn add_group(&mut self, name: &[u8], last_id: EntryId, entries_read: Option<u64>) -> bool {
        let Err(at) = self.search_group(name) else { return false };
        let group = Group::new(name, last_id, entries_read);
        self.groups_bytes += group.bytes();
        Arc::make_mut(&mut self.groups).insert(at, Arc::new(group));
        true
    }

    /// Changes the group with this name, if there is one.
    pub fn change_group<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let at = self.search_group(name).ok()?;
        let before = self.groups[at].bytes();
        let group = Arc::make_mut(&mut Arc::make_mut(&mut self.groups)[at]);
        let result = change(group);
        self.groups_bytes = self.groups_bytes + group.bytes() - before;
        Some(result)
    }

    /// Whether a group still needs an entry: one has not read up to its ID, or one has it pending.
    pub fn is_referenced(&self, id: EntryId) -> bool {
        self.groups().any(|group| group.last_id < id || group.pending_at(id).is_some())
    }

    /// What the producers have added that name their messages, if there ever was one.
    pub fn producers(&self) -> Option<&Producers> {
        self.producers.as_deref()
    }

    /// The same, to be changed.
    pub fn producers_mut(&mut self) -> &mut Producers {
        self.producers.get_or_insert_default()
    }

    /// Removes a group; returns what is to be freed, or nothing if there is no such group.
    pub fn remove_group(&mut self, name: &[u8]) -> Option<Remains> {
        let at = self.search_group(name).ok()?;
        let group = Arc::make_mut(&mut self.groups).remove(at);
        self.groups_bytes -= group.bytes();
        Some(Remains::of([group]))
    }
}

/// Counts the nodes of a radix tree of these keys, which ascend: a node for each key, for each place where
/// keys part, and for each run of bytes between these.
fn radix_nodes(keys: impl Iterator<Item = u128>) -> usize {
    let mut keys = keys.peekable();
    if keys.peek().is_none() {
        return 1;
    }
    // A run lies between a node and its parent if these are more than one byte apart.
    let run = |depth: usize, parent: Option<usize>| match parent {
        Some(parent) => usize::from(depth > parent + 1),
        None => usize::from(depth > 0),
    };
    let (mut nodes, mut partings) = (0, Vec::<usize>::new());
    while let Some(key) = keys.next() {
        let common = keys.peek().map(|next| (key ^ next).leading_zeros() as usize / 8);
        nodes += 1 + run(EntryId::BYTES, partings.last().copied().max(common));
        while let Some(depth) = partings.pop_if(|depth| common.is_none_or(|common| *depth > common)) {
            nodes += 1 + run(depth, partings.last().copied().max(common));
        }
        if let Some(common) = common
            && partings.last() != Some(&common)
        {
            partings.push(common);
        }
    }
    nodes
}

/// Some entries of a ledger.
pub struct Range<'l> {
    blocks: &'l Blocks,
    place: Option<BlockPlace>,
    entries: Option<Entries<'l>>,
    from: EntryId,
    to: EntryId,
}

impl<'l> Iterator for Range<'l> {
    type Item = Entry<'l>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'l>> {
        loop {
            let Some(entries) = &mut self.entries else {
                cancel::check();
                let kept = self.blocks.get(self.place?)?;
                if kept.id > self.to {
                    return None;
                }
                self.entries = Some(kept.block.entries(kept.id));
                continue;
            };
            match entries.forth() {
                None => {
                    self.entries = None;
                    self.place = self.place.map(|place| self.blocks.behind(place));
                }
                Some(entry) if entry.id > self.to => {
                    self.place = None;
                    self.entries = None;
                }
                Some(entry) if entry.is_deleted() || entry.id < self.from => {}
                Some(entry) => return Some(entry),
            }
        }
    }
}

/// Some entries of a ledger, the last one first.
pub struct RangeBack<'l> {
    blocks: &'l Blocks,
    place: Option<BlockPlace>,
    entries: Option<Entries<'l>>,
    from: EntryId,
    to: EntryId,
}

impl<'l> Iterator for RangeBack<'l> {
    type Item = Entry<'l>;

    fn next(&mut self) -> Option<Entry<'l>> {
        loop {
            let Some(entries) = &mut self.entries else {
                cancel::check();
                let kept = self.blocks.get(self.place?)?;
                self.entries = Some(kept.block.entries(kept.id));
                continue;
            };
            match entries.back() {
                None => {
                    self.entries = None;
                    self.place = self.place.and_then(|place| self.blocks.before(place));
                }
                Some(entry) if entry.id < self.from => {
                    self.place = None;
                    self.entries = None;
                }
                Some(entry) if entry.is_deleted() || entry.id > self.to => {}
                Some(entry) => return Some(entry),
            }
        }
    }
}

#[cfg(test)]
mod tests;
