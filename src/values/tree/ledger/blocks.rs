//! The blocks of a ledger in their order, and the directory that finds them by their IDs.
//!
//! Entries come at the end and mostly leave at the front. The last block, the only one that grows, is at
//! hand: a write reads no directory, and a stream of one block has none. The directory of the others is a
//! list of lists, no tree: a [`Shelf`] has up to [`SHELF_BLOCKS_MAX`] blocks with IDs and counts side by
//! side, and the directory has the shelves. A copy shares the directory, the shelves and the blocks; a write
//! copies the one of each that it changes. With a billion entries in blocks of a hundred the directory has
//! 80,000 shelves, and its copy takes some 0.3 ms.

use std::sync::Arc;

use super::super::page::shared_bytes;
use super::super::remains::{self, Remains, Rest};
use super::block::Block;
use super::id::EntryId;
use crate::allocator::taken_bytes;

/// Blocks of a shelf at most.
const SHELF_BLOCKS_MAX: usize = if cfg!(test) { 3 } else { 128 };

/// The blocks of a ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// All blocks but the last. No shelf is empty.
    shelves: Arc<Vec<Arc<Shelf>>>,
    /// The last block, if there are any.
    last: Option<Kept>,
    /// The number of all blocks.
    len: usize,
    bytes: usize,
}

#[derive(Clone, Debug, Default)]
struct Shelf(Vec<Kept>);

/// A block, and what is known of it without a look at it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// The ID of the block: that of its first entry, deleted or not.
    pub(super) id: EntryId,
    /// Entries that are not deleted.
    pub(super) live: u32,
    /// Bytes that the block takes.
    bytes: u32,
    pub(super) block: Arc<Block>,
}

/// A block's place: in the directory, or [behind](LAST) it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace {
    shelf: usize,
    index: usize,
}

/// The place of the last block.
const LAST: BlockPlace = BlockPlace { shelf: usize::MAX, index: 0 };
/// The place behind it.
const END: BlockPlace = BlockPlace { index: 1, ..LAST };

impl Kept {
    fn new(id: EntryId, live: u32, block: Block) -> Kept {
        let bytes = own_bytes(&block);
        Kept { id, live, bytes, block: Arc::new(block) }
    }
}

fn own_bytes(block: &Block) -> u32 {
    u32::try_from(shared_bytes(size_of::<Block>()) + block.bytes()).unwrap_or(u32::MAX)
}

fn shelf_bytes(shelf: &Shelf) -> usize {
    shared_bytes(size_of::<Shelf>()) + taken_bytes(shelf.0.capacity() * size_of::<Kept>())
}

impl Blocks {
    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the blocks and the directory.
    pub(super) fn bytes(&self) -> usize {
        let directory = self.shelves.capacity() * size_of::<Arc<Shelf>>();
        shared_bytes(size_of::<Vec<Arc<Shelf>>>()) + taken_bytes(directory) + self.bytes
    }

    pub(super) fn get(&self, place: BlockPlace) -> Option<&Kept> {
        if place == LAST {
            return self.last.as_ref();
        }
        self.shelves.get(place.shelf)?.0.get(place.index)
    }

    /// The place of the first block.
    pub(super) fn first(&self) -> Option<BlockPlace> {
        match self.len {
            0 => None,
            1 => Some(LAST),
            _ => Some(BlockPlace { shelf: 0, index: 0 }),
        }
    }

    /// The place of the last block.
    pub(super) fn last(&self) -> Option<BlockPlace> {
        self.last.as_ref().map(|_| LAST)
    }

    /// The last block that does not begin behind an ID: the only one that may have it.
    pub(super) fn find(&self, id: EntryId) -> Option<BlockPlace> {
        let begins = |kept: Option<&Kept>| kept.is_some_and(|kept| kept.id <= id);
        if begins(self.last.as_ref()) {
            return Some(LAST);
        }
        let shelf = self.shelves.partition_point(|shelf| begins(shelf.0.first())).checked_sub(1)?;
        let index = self.shelves[shelf].0.partition_point(|kept| begins(Some(kept))).checked_sub(1)?;
        Some(BlockPlace { shelf, index })
    }

    /// The place behind a place, which may have no block.
    pub(super) fn behind(&self, place: BlockPlace) -> BlockPlace {
        let BlockPlace { shelf, index } = place;
        if shelf == LAST.shelf {
            return END;
        }
        let next = [BlockPlace { shelf, index: index + 1 }, BlockPlace { shelf: shelf + 1, index: 0 }];
        next.into_iter().find(|next| self.get(*next).is_some()).unwrap_or(LAST)
    }

    /// The place in front of a place, if there is one.
    pub(super) fn before(&self, place: BlockPlace) -> Option<BlockPlace> {
        let BlockPlace { shelf, index } = place;
        if let Some(index) = index.checked_sub(1) {
            return Some(BlockPlace { shelf, index });
        }
        let shelf = shelf.min(self.shelves.len()).checked_sub(1)?;
        Some(BlockPlace { shelf, index: self.shelves.get(shelf)?.0.len().checked_sub(1)? })
    }

    /// All blocks, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.shelves.iter().flat_map(|shelf| &shelf.0).chain(&self.last)
    }

    /// Appends a block. The one before it will not grow any more.
    pub(super) fn push(&mut self, id: EntryId, live: u32, mut block: Block) {
        if let Some(full) = self.last.as_mut().and_then(|full| Arc::get_mut(&mut full.block)) {
            full.leave_room_to(&mut block);
        }
        let kept = Kept::new(id, live, block);
        self.len += 1;
        self.bytes += kept.bytes as usize;
        if let Some(full) = self.last.replace(kept) {
            self.shelve(full);
        }
    }

    /// Appends a block to the directory.
    fn shelve(&mut self, mut full: Kept) {
        if let Some(block) = Arc::get_mut(&mut full.block) {
            block.shrink();
            let bytes = own_bytes(block);
            self.bytes = self.bytes + bytes as usize - full.bytes as usize;
            full.bytes = bytes;
        }
        let shelves = Arc::make_mut(&mut self.shelves);
        match shelves.last_mut() {
            Some(shelf) if shelf.0.len() < SHELF_BLOCKS_MAX => {
                let before = shelf_bytes(shelf);
                let shelf = Arc::make_mut(shelf);
                shelf.0.push(full);
                self.bytes = self.bytes + shelf_bytes(shelf) - before;
            }
            _ => {
                let shelf = Shelf(vec![full]);
                self.bytes += shelf_bytes(&shelf);
                shelves.push(Arc::new(shelf));
            }
        }
    }

    /// Changes a block, and adds to its number of entries that are not deleted.
    pub(super) fn change(&mut self, place: BlockPlace, added: i32, change: impl FnOnce(EntryId, &mut Block)) {
        let kept = if place == LAST {
            self.last.as_mut()
        } else {
            let Some(shelf) = Arc::make_mut(&mut self.shelves).get_mut(place.shelf) else { return };
            let before = shelf_bytes(shelf);
            let shelf = Arc::make_mut(shelf);
            self.bytes = self.bytes + shelf_bytes(shelf) - before;
            shelf.0.get_mut(place.index)
        };
        let Some(kept) = kept else { return };
        change(kept.id, Arc::make_mut(&mut kept.block));
        let bytes = own_bytes(&kept.block);
        self.bytes = self.bytes + bytes as usize - kept.bytes as usize;
        kept.bytes = bytes;
        kept.live = kept.live.saturating_add_signed(added);
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, place: BlockPlace) -> Remains {
        let removed = if place == LAST {
            let before = self.before(LAST).and_then(|before| self.take(before));
            std::mem::replace(&mut self.last, before)
        } else {
            self.take(place)
        };
        let Some(removed) = removed else { return Remains::default() };
        self.len -= 1;
        self.bytes -= removed.bytes as usize;
        Remains::of([Gone::Block(removed.block)])
    }

    /// Takes a block out of the directory. It still counts.
    fn take(&mut self, place: BlockPlace) -> Option<Kept> {
        self.get(place)?;
        let shelves = Arc::make_mut(&mut self.shelves);
        let before = shelf_bytes(&shelves[place.shelf]);
        let shelf = Arc::make_mut(&mut shelves[place.shelf]);
        let kept = shelf.0.remove(place.index);
        self.bytes = self.bytes + shelf_bytes(shelf) - before;
        if shelf.0.is_empty() {
            self.bytes -= shelf_bytes(shelf);
            shelves.remove(place.shelf);
        }
        Some(kept)
    }

    /// Removes the blocks in front of a place.
    pub(super) fn remove_before(&mut self, place: BlockPlace) -> Remains {
        if self.first() == Some(place) {
            return Remains::default();
        }
        if place == END {
            return self.clear();
        }
        let shelves = Arc::make_mut(&mut self.shelves);
        let mut gone = Vec::new();
        for shelf in shelves.drain(..place.shelf.min(shelves.len())) {
            self.len -= shelf.0.len();
            self.bytes -= shelf_bytes(&shelf) + shelf.0.iter().map(|kept| kept.bytes as usize).sum::<usize>();
            gone.push(Gone::Shelf(shelf));
        }
        if let Some(shelf) = shelves.first_mut().filter(|_| place.index > 0) {
            let before = shelf_bytes(shelf);
            let shelf = Arc::make_mut(shelf);
            let count = place.index.min(shelf.0.len());
            self.len -= count;
            for kept in shelf.0.drain(..count) {
                self.bytes -= kept.bytes as usize;
                gone.push(Gone::Block(kept.block));
            }
            self.bytes = self.bytes + shelf_bytes(shelf) - before;
        }
        shelves.shrink_to(shelves.len() * 2);
        Remains::of(gone)
    }

    /// Removes all blocks, in constant time.
    pub(super) fn clear(&mut self) -> Remains {
        let Blocks { shelves, last, .. } = std::mem::take(self);
        let last = last.map(|last| Gone::Block(last.block));
        Remains::of([Gone::All(Arc::new(Shelves(shelves)))].into_iter().chain(last))
    }
}

/// What has left the directory.
enum Gone {
    Block(Arc<Block>),
    Shelf(Arc<Shelf>),
    All(Arc<Shelves>),
}

/// All shelves of a directory.
struct Shelves(Arc<Vec<Arc<Shelf>>>);

impl From<Gone> for Rest {
    fn from(gone: Gone) -> Rest {
        match gone {
            Gone::Block(block) => Rest::Branch(block),
            Gone::Shelf(shelf) => Rest::Branch(shelf),
            Gone::All(shelves) => Rest::Branch(shelves),
        }
    }
}

impl remains::Branch for Block {
    fn take_apart(self: Arc<Self>, _: &mut Vec<Rest>) -> usize {
        Arc::into_inner(self).map_or(0, |block| own_bytes(&block) as usize)
    }
}

impl remains::Branch for Shelf {
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize {
        let Some(shelf) = Arc::into_inner(self) else { return 0 };
        let bytes = shelf_bytes(&shelf);
        kids.extend(shelf.0.into_iter().map(|kept| Rest::from(Gone::Block(kept.block))));
        bytes
    }
}

impl remains::Branch for Shelves {
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize {
        let shelves = Arc::into_inner(self).and_then(|shelves| Arc::into_inner(shelves.0));
        let Some(shelves) = shelves else { return 0 };
        let bytes = shelves.capacity() * size_of::<Arc<Shelf>>();
        kids.extend(shelves.into_iter().map(|shelf| Rest::from(Gone::Shelf(shelf))));
        bytes
    }
}
