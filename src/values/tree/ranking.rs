//! Members in the order of their scores: a sequence, and a map of each member to its score.
//!
//! A record of the sequence is eight bytes of score and the member. The score's bits are changed so that the
//! order of the bytes is the order of the numbers ([`sortable`]). The order of the records is then the order
//! of Redis: by score, and members with equal scores by their bytes. These eight bytes are also the bound by
//! which the sequence searches ([`Sequence`]), so it compares members only where scores are equal.
//!
//! A position is found from a score by a search, and from a member by its score in the map and then a search.
//! Every range by scores, members or ranks is therefore a range of positions, whose ends take a search each.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::{Map, Remains, Sequence};

/// The bytes of a score, in a record and in the map.
const SCORE_BYTES: usize = 8;

/// Members with scores, in the order of (score, member). A copy that [`Ranking::share`] makes takes the same
/// nodes; a write copies those that it changes.
pub struct Ranking {
    order: Sequence,
    scores: Map,
}

impl Ranking {
    /// A ranking without members. The seed is that of the map of scores.
    pub fn new(seed: u64) -> Ranking {
        Ranking { order: Sequence::new(), scores: Map::new(seed) }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True without members.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Bytes of memory below this value, as the C library rounds them. What copies share counts for each.
    pub fn bytes(&self) -> usize {
        self.order.bytes() + self.scores.bytes()
    }

    /// A copy with the same nodes, in constant time.
    pub fn share(&self) -> Ranking {
        Ranking { order: self.order.share(), scores: self.scores.share() }
    }

    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.sortable_of(member).map(score_of)
    }

    /// Sets the score of a member. Returns the score that it had before. The score may be infinite; -0
    /// becomes +0. A caller refuses what is not a number: it would be in the order somewhere outside of the
    /// infinite.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let new = sortable(score);
        let mut old = None;
        self.scores.update(member, |found| {
            old = found.map(sortable_in);
            (old != Some(new)).then(|| new.to_be_bytes())
        });
        if old == Some(new) {
            return Some(score_of(new));
        }
        if let Some(old) = old {
            self.order.remove_by(old, |record| compare(record, old, |other| other.cmp(member)));
        }
        let place = |record: &[u8]| compare(record, new, |other| other.cmp(member));
        self.order.insert_by(new, place, &[&new.to_be_bytes(), member]);
        old.map(score_of)
    }

    /// Fills an empty ranking with members in their order, of which each has one score. It takes a fraction
    /// of the time of inserting them one by one.
    pub fn fill<'m>(&mut self, members: impl Iterator<Item = (&'m [u8], f64)> + Clone) {
        debug_assert!(self.is_empty());
        let scores: Vec<[u8; SCORE_BYTES]> =
            members.clone().map(|(_, score)| sortable(score).to_be_bytes()).collect();
        let members = members.map(|(member, _)| member);
        for (member, score) in members.clone().zip(&scores) {
            self.scores.insert(member, score);
        }
        self.order = Sequence::gather(scores.iter().map(|score| &score[..]).zip(members));
    }

    /// Members with their scores from a cursor on, and the cursor for the next call, as [`Map::scan`] returns
    /// them.
    pub fn scan(&self, cursor: u64) -> (impl Iterator<Item = (&[u8], f64)>, u64) {
        let (members, next) = self.scores.scan(cursor);
        (members.map(|(member, score)| (member, score_of(sortable_in(score)))), next)
    }

    /// Removes a member. Returns the score that it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let old = self.scores.take(member, sortable_in)?;
        self.order.remove_by(old, |record| compare(record, old, |other| other.cmp(member)));
        Some(score_of(old))
    }

    /// Removes the members at some positions. A range that ends behind the last member ends with it. Returns
    /// the nodes of which nothing is left, to be freed in steps.
    pub fn remove_range(&mut self, positions: Range<usize>) -> Remains {
        let positions = positions.start..positions.end.min(self.len());
        let mut remains = Remains::default();
        if positions.len() > self.len() / 2 {
            // A map of those that stay is made sooner than most are removed from the old one.
            remains = self.scores.clear();
            let staying =
                self.order.range(0..positions.start).chain(self.order.range(positions.end..self.len()));
            for (score, member) in staying.map(split) {
                self.scores.insert(member, &score.to_be_bytes());
            }
        } else {
            for (_, member) in self.order.range(positions.clone()).map(split) {
                self.scores.remove(member);
            }
        }
        remains.append(self.order.remove(positions));
        remains
    }

    /// The position of a member: the number of members before it.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.search(self.sortable_of(member)?, member).ok()
    }

    /// The member at a position, and its score. With a random position this is a random member.
    pub fn at(&self, position: usize) -> Option<(&[u8], f64)> {
        self.order.get(position).map(entry)
    }

    /// The members at some positions with their scores, from either end. A range that ends behind the last
    /// member ends with it.
    pub fn range(
        &self,
        positions: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], f64)> + ExactSizeIterator {
        self.order.range(positions).map(entry)
    }

    /// The number of members with lower scores: the position of the first with this score or a higher one.
    pub fn first_at_least(&self, score: f64) -> usize {
        self.bound(sortable(score), |_| Ordering::Greater)
    }

    /// The position of the first member with a higher score.
    pub fn first_above(&self, score: f64) -> usize {
        self.bound(sortable(score), |_| Ordering::Less)
    }

    /// The position of the first member that is not less in the order of bytes, if all members have the same
    /// score. Some position if they have not.
    pub fn first_member_at_least(&self, member: &[u8]) -> usize {
        self.bound(self.common_score(), |other| other.cmp(member).then(Ordering::Greater))
    }

    /// The same for the first member that is greater.
    pub fn first_member_above(&self, member: &[u8]) -> usize {
        self.bound(self.common_score(), |other| other.cmp(member).then(Ordering::Less))
    }

    /// Removes all members, in constant time. Returns their nodes, to be freed in steps.
    pub fn clear(&mut self) -> Remains {
        let mut remains = self.order.clear();
        remains.append(self.scores.clear());
        remains
    }

    /// The score of all members, if they have the same.
    fn common_score(&self) -> u64 {
        self.order.get(0).map_or(0, |first| split(first).0)
    }

    fn sortable_of(&self, member: &[u8]) -> Option<u64> {
        self.scores.get(member).map(sortable_in)
    }

    /// The position of a member with this score, or the one at which it could be inserted.
    fn search(&self, score: u64, member: &[u8]) -> Result<usize, usize> {
        self.order.search_by(score, |record| compare(record, score, |other| other.cmp(member)))
    }

    /// The first position behind all members with lower scores, and behind those with this score for which
    /// the function returns that they are less.
    fn bound(&self, score: u64, of_member: impl Fn(&[u8]) -> Ordering) -> usize {
        let (Ok(position) | Err(position)) =
            self.order.search_by(score, |record| compare(record, score, &of_member));
        position
    }
}

impl fmt::Debug for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranking").field("order", &self.order).field("scores", &self.scores).finish()
    }
}

/// Compares a record to a score, and its member by the function where the scores are equal.
#[inline]
fn compare(record: &[u8], score: u64, of_member: impl Fn(&[u8]) -> Ordering) -> Ordering {
    let (other, member) = split(record);
    other.cmp(&score).then_with(|| of_member(member))
}

/// The score and the member of a record.
#[inline]
fn split(record: &[u8]) -> (u64, &[u8]) {
    let (score, member) = record.split_first_chunk::<SCORE_BYTES>().expect("a record begins with its score");
    (u64::from_be_bytes(*score), member)
}

/// The score in a value of the map.
fn sortable_in(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().expect("a value is a score"))
}

fn entry(record: &[u8]) -> (&[u8], f64) {
    let (score, member) = split(record);
    (member, score_of(score))
}

/// A number whose order is that of the scores, with one zero: bits of negative numbers run the other way.
fn sortable(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn score_of(sortable: u64) -> f64 {
    f64::from_bits(if sortable >> 63 == 1 { sortable & !(1 << 63) } else { !sortable })
}

#[cfg(test)]
mod tests;
