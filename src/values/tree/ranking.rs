//! Members in the order of their scores: a sequence, and a map of each member to its score.
//!
//! A record of the sequence is eight bytes of score and the member. The score's bits are changed so that the
//! order of the bytes is the order of the numbers ([`sortable`]). The order of the records is then the order
//! of Redis: by score, and members with equal scores by their bytes. These eight bytes are also the bound by
//! which the sequence searches ([`Sequence`]), so it compares members only where scores are equal.
//!
//! -0 and +0 are equal in the order, so a record has one zero for both. The map has the score as it was
//! given, with its sign, and the ranking counts the members with -0. Only while there are any does a reader
//! of records ask the map.
//!
//! A position is found from a score by a search, and from a member by its score in the map and then a search.
//! Every range by scores, members or ranks is therefore a range of positions, whose ends take a search each.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::{Map, Remains, Sequence};

/// The bytes of a score, in a record and in the map.
const SCORE_BYTES: usize = 8;

/// Members with scores, in the order of (score, member). A copy by [`Ranking::share`] has the same
/// nodes; a write copies the nodes that it changes.
pub struct Ranking {
    order: Sequence,
    scores: Map,
    /// How many members have the score -0.
    negative_zeros: usize,
}

impl Ranking {
    /// A ranking without members. The seed is that of the map of scores.
    pub fn new(seed: u64) -> Ranking {
        Ranking { order: Sequence::new(), scores: Map::new(seed), negative_zeros: 0 }
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
        let Ranking { order, scores, negative_zeros } = self;
        Ranking { order: order.share(), scores: scores.share(), negative_zeros: *negative_zeros }
    }

    /// Whether the two have the same nodes.
    pub fn is_same(&self, other: &Ranking) -> bool {
        self.order.is_same(&other.order) && self.scores.is_same(&other.scores)
    }

    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.sortable_of(member).map(score_of)
    }

    /// Sets the score of a member. Returns the score that it had before. A member whose score is equal keeps
    /// it, so -0 does not replace +0. The score may be infinite. A caller refuses what is not a number: it
    /// would be in the order somewhere outside of the infinite.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let (exact, new) = (sortable(score), in_order(sortable(score)));
        let mut found = None;
        self.scores.update(member, |value| {
            found = value.map(sortable_in);
            (found.map(in_order) != Some(new)).then(|| exact.to_be_bytes())
        });
        let old = found.map(in_order);
        if old == Some(new) {
            return found.map(score_of);
        }
        if let Some(old) = old {
            self.order.remove_by(old, |record| compare(record, old, |other| other.cmp(member)));
            self.negative_zeros -= usize::from(found == Some(NEGATIVE_ZERO));
        }
        let place = |record: &[u8]| compare(record, new, |other| other.cmp(member));
        self.order.insert_by(new, place, &[&new.to_be_bytes(), member]);
        self.negative_zeros += usize::from(exact == NEGATIVE_ZERO);
        found.map(score_of)
    }

    /// Fills an empty ranking with members in their order, of which each has one score. It takes a fraction
    /// of the time of inserting them one by one.
    pub fn fill<'m>(&mut self, members: impl Iterator<Item = (&'m [u8], f64)> + Clone) {
        debug_assert!(self.is_empty());
        let scores: Vec<[u8; SCORE_BYTES]> =
            members.clone().map(|(_, score)| in_order(sortable(score)).to_be_bytes()).collect();
        for (member, score) in members.clone() {
            let exact = sortable(score);
            self.scores.insert(member, &exact.to_be_bytes());
            self.negative_zeros += usize::from(exact == NEGATIVE_ZERO);
        }
        let members = members.map(|(member, _)| member);
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
        let exact = self.scores.take(member, sortable_in)?;
        let old = in_order(exact);
        self.order.remove_by(old, |record| compare(record, old, |other| other.cmp(member)));
        self.negative_zeros -= usize::from(exact == NEGATIVE_ZERO);
        Some(score_of(exact))
    }

    /// Removes the members at some positions. A range that ends behind the last member ends with it. Returns
    /// the nodes of which nothing is left, to be freed in steps.
    pub fn remove_range(&mut self, positions: Range<usize>) -> Remains {
        let positions = positions.start..positions.end.min(self.len());
        let mut remains = Remains::default();
        if positions.len() > self.len() / 2 {
            // A map of those that stay is made sooner than most are removed from the old one.
            let staying = [0..positions.start, positions.end..self.len()];
            let signed = self.negative_zeros_at(staying.clone());
            remains = self.scores.clear();
            for (score, member) in
                staying.into_iter().flat_map(|positions| self.order.range(positions)).map(split)
            {
                self.scores.insert(member, &score.to_be_bytes());
            }
            for member in &signed {
                self.scores.insert(member, &NEGATIVE_ZERO.to_be_bytes());
            }
            self.negative_zeros = signed.len();
        } else {
            for (_, member) in self.order.range(positions.clone()).map(split) {
                let score = self.scores.take(member, sortable_in);
                self.negative_zeros -= usize::from(score == Some(NEGATIVE_ZERO));
            }
        }
        remains.append(self.order.remove(positions));
        remains
    }

    /// Whether a member has the score -0.
    pub fn has_negative_zeros(&self) -> bool {
        self.negative_zeros > 0
    }

    /// The position of a member: the number of members before it.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.search(in_order(self.sortable_of(member)?), member).ok()
    }

    /// The member at a position, and its score. With a random position this is a random member.
    pub fn at(&self, position: usize) -> Option<(&[u8], f64)> {
        self.order.get(position).map(|record| self.entry(record))
    }

    /// The members at some positions with their scores, from either end. A range that ends behind the last
    /// member ends with it.
    pub fn range(
        &self,
        positions: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = (&[u8], f64)> + ExactSizeIterator {
        self.order.range(positions).map(|record| self.entry(record))
    }

    /// The number of members with lower scores: the position of the first with this score or a higher one.
    pub fn first_at_least(&self, score: f64) -> usize {
        self.bound(in_order(sortable(score)), |_| Ordering::Greater)
    }

    /// The position of the first member with a higher score.
    pub fn first_above(&self, score: f64) -> usize {
        self.bound(in_order(sortable(score)), |_| Ordering::Less)
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
        self.negative_zeros = 0;
        remains
    }

    /// The score of all members, if they have the same.
    fn common_score(&self) -> u64 {
        self.order.get(0).map_or(0, |first| split(first).0)
    }

    fn sortable_of(&self, member: &[u8]) -> Option<u64> {
        self.scores.get(member).map(sortable_in)
    }

    /// The members at some positions whose score is -0.
    fn negative_zeros_at(&self, positions: [Range<usize>; 2]) -> Vec<Vec<u8>> {
        if self.negative_zeros == 0 {
            return Vec::new();
        }
        let members = positions.into_iter().flat_map(|positions| self.range(positions));
        let signed = members.filter(|(_, score)| sortable(*score) == NEGATIVE_ZERO);
        signed.map(|(member, _)| member.to_vec()).collect()
    }

    /// The member of a record, and its score.
    #[inline]
    fn entry<'r>(&self, record: &'r [u8]) -> (&'r [u8], f64) {
        let (score, member) = split(record);
        let is_negative_zero =
            || score == ZERO && self.negative_zeros > 0 && self.sortable_of(member) == Some(NEGATIVE_ZERO);
        (member, score_of(if is_negative_zero() { NEGATIVE_ZERO } else { score }))
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

/// [`sortable`] of -0 and of +0.
const NEGATIVE_ZERO: u64 = i64::MAX as u64;
const ZERO: u64 = NEGATIVE_ZERO + 1;

/// A number whose order is that of the scores: bits of negative numbers run the other way. -0 is in front of
/// +0.
fn sortable(score: f64) -> u64 {
    let bits = score.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The number of a score in the order of the records, which has one zero.
fn in_order(sortable: u64) -> u64 {
    if sortable == NEGATIVE_ZERO { ZERO } else { sortable }
}

fn score_of(sortable: u64) -> f64 {
    f64::from_bits(if sortable >> 63 == 1 { sortable & !(1 << 63) } else { !sortable })
}

#[cfg(test)]
mod tests;
