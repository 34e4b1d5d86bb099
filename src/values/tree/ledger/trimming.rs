//! Trimming: removes the first entries of a ledger.
//!
//! Whole blocks are removed at once. If groups' references decide which entries may be removed
//! ([`References`]), entries are checked one by one.

use super::super::remains::Remains;
use super::block::Entries;
use super::{EntryId, Ledger};

/// Which entries are trimmed: the first ones.
#[derive(Clone, Copy, Debug)]
pub struct Trim {
    /// Which entries stay.
    pub keep: Keep,
    /// Whether only whole blocks are removed.
    pub is_approximate: bool,
    /// The most entries to remove; 0 for any number.
    pub limit: usize,
    /// How groups' references to an entry decide whether it may be removed.
    pub references: References,
}

/// Which entries stay when others are trimmed.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// So many, the last ones.
    Last(usize),
    /// Those from this ID on.
    From(EntryId),
}

/// What an entry that is to be deleted means to the groups that still need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// It leaves, and stays pending where it is (KEEPREF).
    #[default]
    Stay,
    /// It leaves, and is no longer pending anywhere (DELREF).
    Leave,
    /// It stays until each group has read and acknowledged it (ACKED).
    Decide,
}

impl Ledger {
    /// The same rule for the entries that there are: a ledger may be said to have more.
    fn as_counted(&self, trim: Trim) -> Trim {
        let keep = match trim.keep {
            Keep::Last(count) => {
                let count = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(self.surplus);
                Keep::Last(usize::try_from(count).unwrap_or(0))
            }
            keep => keep,
        };
        Trim { keep, ..trim }
    }

    /// Trims entries, whatever the groups need; returns how many, and what is to be freed.
    pub fn trim(&mut self, trim: Trim) -> (usize, Remains) {
        let trim = self.as_counted(trim);
        let (mut trimmed, Some(mut place)) = (0, self.blocks.first()) else {
            return (0, Remains::default());
        };
        let mut at_edge = Vec::new();
        while let Some(kept) = self.blocks.get(place) {
            let (live, left) = (kept.live as usize, self.len - trimmed);
            let is_enough = matches!(trim.keep, Keep::Last(count) if left <= count);
            if is_enough || trim.limit > 0 && trimmed + live > trim.limit {
                break;
            }
            let goes = match trim.keep {
                Keep::Last(count) => left - live >= count,
                // What begins behind the block, if anything does, is behind all of its entries.
                Keep::From(id) => {
                    let next = self.blocks.get(self.blocks.behind(place)).map(|next| next.id);
                    next.is_some_and(|next| next <= id)
                        || kept.block.last_id(kept.id).is_none_or(|last| last < id)
                }
            };
            if !goes {
                if !trim.is_approximate {
                    at_edge = first_entries(kept.block.entries(kept.id), trim.keep, left);
                }
                break;
            }
            trimmed += live;
            place = self.blocks.behind(place);
        }
        if !at_edge.is_empty() {
            trimmed += at_edge.len();
            self.blocks.change(place, -(at_edge.len() as i32), |_, block| block.delete(&at_edge));
        }
        self.len -= trimmed;
        (trimmed, self.blocks.remove_before(place))
    }

    /// Trims entries one by one. Where groups decide, the entries that they still need stay. Returns the IDs
    /// of the entries that have left, and what is to be freed. As in Redis, it goes on within a block even
    /// if it trims approximately. It looks at a bounded number of entries: where groups need most of them,
    /// the rest is left to the next trimming.
    pub fn trim_one_by_one(&mut self, trim: Trim) -> (Vec<EntryId>, Remains) {
        /// Some 5 ms.
        const LOOKED_AT_MAX: usize = 20_000;
        let trim = self.as_counted(trim);
        let read_by_all = match trim.references {
            References::Decide => self.groups().map(|group| group.last_id).min().unwrap_or(EntryId::MAX),
            References::Stay | References::Leave => EntryId::MAX,
        };
        let mut looked_at = 0;
        let (mut ids, mut blocks) = (Vec::new(), Vec::new());
        let (mut left, mut place) = (self.len, self.blocks.first());
        while let Some(kept) = place.and_then(|place| self.blocks.get(place)) {
            let live = kept.live as usize;
            let is_enough = matches!(trim.keep, Keep::Last(count) if left <= count)
                || kept.id > read_by_all
                || trim.references == References::Decide && looked_at >= LOOKED_AT_MAX;
            if is_enough || trim.limit > 0 && ids.len() + live > trim.limit {
                break;
            }
            looked_at += live;
            let may_go_on = match trim.keep {
                Keep::Last(count) => left - live >= count,
                Keep::From(id) => kept.block.last_id(kept.id).is_none_or(|last| last < id),
            };
            let (mut entries, mut places) = (kept.block.entries(kept.id), Vec::new());
            while let Some(entry) = entries.forth() {
                let is_enough = match trim.keep {
                    Keep::Last(count) => left <= count,
                    Keep::From(id) => entry.id >= id,
                };
                if is_enough {
                    break;
                }
                let stays = trim.references == References::Decide && self.is_referenced(entry.id);
                if !entry.is_deleted() && !stays {
                    places.push(entry.place());
                    ids.push(entry.id);
                    left -= 1;
                }
            }
            blocks.push((kept.id, places, may_go_on));
            if !may_go_on {
                break;
            }
            place = place.map(|place| self.blocks.behind(place));
        }
        let mut remains = Remains::default();
        for (id, places, may_leave) in blocks {
            let Some(place) = self.blocks.find(id) else { continue };
            let live = self.blocks.get(place).map_or(0, |kept| kept.live as usize);
            // One that ends with a deleted entry to which the rule does not apply stays, as in Redis.
            if may_leave && places.len() == live {
                remains.append(self.blocks.remove(place));
            } else if !places.is_empty() {
                self.blocks.change(place, -(places.len() as i32), |_, block| block.delete(&places));
            }
        }
        self.len = left;
        (ids, remains)
    }
}

/// The places of the first entries of a block, which are trimmed while `left` entries are there.
fn first_entries(mut entries: Entries<'_>, keep: Keep, mut left: usize) -> Vec<usize> {
    let mut places = Vec::new();
    while let Some(entry) = entries.forth() {
        let is_enough = match keep {
            Keep::Last(count) => left <= count,
            Keep::From(id) => entry.id >= id,
        };
        if is_enough {
            break;
        }
        if !entry.is_deleted() {
            left -= 1;
            places.push(entry.place());
        }
    }
    places
}
