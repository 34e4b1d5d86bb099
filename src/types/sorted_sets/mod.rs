//! Sorted sets: members in the order of their scores, and members with equal scores in the order of their
//! bytes.
//!
//! A small one is packed: members with their scores, in this order. A large one is a
//! [`Ranking`]. Both find a member's rank and the bounds of a range, so every range of
//! scores, members or ranks is a range of positions ([`ranges`]), and whatever reads or removes a range needs
//! only these.

pub(crate) mod gathering;
pub(crate) mod permits;
pub(crate) mod ranges;
pub(crate) mod score;

mod changing;
mod packing;

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use crate::dump::Compressor;
use crate::dump::collections::{self, SORTED_SET, SORTED_SET_LISTPACK, SORTED_SET_TYPES, write_score};
use crate::dump::packed::writing::ListpackWriter;
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::events::EventClass;
use crate::keyspace::records;
use crate::values::pairs;
use crate::values::tree::Ranking;
use crate::values::{Content, Limit, Loaded, SORTED_SET_KIND, Sink, Type, TypeFacts};

use gathering::Gathering;

/// The type of sorted sets.
#[derive(Debug)]
pub enum SortedSet {}

impl Type for SortedSet {
    const FACTS: &'static TypeFacts = &FACTS;
    const EMPTY: &'static [u8] = pairs::EMPTY;
    type View<'v> = SortedSetView<'v>;

    #[inline(always)]
    fn view(content: Content<'_>) -> SortedSetView<'_> {
        match content.large::<Ranking>() {
            Some(ranking) => SortedSetView::Large(ranking),
            None => SortedSetView::Packed(content.bytes().unwrap_or_default()),
        }
    }
}

/// The facts about sorted sets.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "zset",
    kind: SORTED_SET_KIND,
    events: EventClass::SORTED_SET,
    limit: |of| Limit::by(of, "zset-max-listpack-entries", "zset-max-listpack-value"),
    encoding: |content, _, _| if content.large::<Ranking>().is_some() { "skiplist" } else { "listpack" },
    len: |content| SortedSet::view(content).len(),
    each,
    is_ordered: false,
    log,
    rdb_types: SORTED_SET_TYPES,
    rdb_type,
    save,
    load,
};

/// A sorted set that is read.
#[derive(Clone, Copy, Debug)]
pub enum SortedSetView<'v> {
    /// A small sorted set.
    Packed(&'v [u8]),
    /// A large sorted set.
    Large(&'v Ranking),
}

impl<'v> SortedSetView<'v> {
    /// The number of members.
    #[inline]
    pub fn len(self) -> usize {
        match self {
            SortedSetView::Packed(packed) => pairs::count(packed),
            SortedSetView::Large(ranking) => ranking.len(),
        }
    }

    /// Whether there are no members. Only a sorted set that is being changed may have none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether it is a small one.
    pub(super) fn is_packed(self) -> bool {
        matches!(self, SortedSetView::Packed(_))
    }

    /// Whether members may have the score -0. In a packed sorted set only a file can have brought it, and
    /// no request can.
    fn may_have_negative_zeros(self) -> bool {
        matches!(self, SortedSetView::Large(ranking) if ranking.has_negative_zeros())
    }

    /// The score of a member.
    #[inline]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSetView::Packed(packed) => packing::find(packed, member).map(|found| found.score),
            SortedSetView::Large(ranking) => ranking.score(member),
        }
    }

    /// The rank of a member: the number of members before it.
    pub fn rank(self, member: &[u8]) -> Option<usize> {
        match self {
            SortedSetView::Packed(packed) => packing::scored(packed).position(|(other, _)| other == member),
            SortedSetView::Large(ranking) => ranking.rank(member),
        }
    }

    /// All members with their scores.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (&'v [u8], f64)> {
        self.range(0..self.len())
    }

    /// The members at some positions with their scores, from either end. A range that ends behind the last
    /// member ends with it.
    pub fn range(self, positions: Range<usize>) -> impl DoubleEndedIterator<Item = (&'v [u8], f64)> {
        let (small, large) = match self {
            SortedSetView::Packed(packed) => {
                let some = packing::scored(packed).skip(positions.start).take(positions.len());
                (Some(some.collect::<Vec<_>>()), None)
            }
            SortedSetView::Large(ranking) => (None, Some(ranking.range(positions))),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// The number of members with lower scores: the position of the first with this score or a higher one.
    pub fn first_at_least(self, score: f64) -> usize {
        match self {
            SortedSetView::Packed(packed) => count_while(packed, |_, other| other < score),
            SortedSetView::Large(ranking) => ranking.first_at_least(score),
        }
    }

    /// The position of the first member with a higher score.
    pub fn first_above(self, score: f64) -> usize {
        match self {
            SortedSetView::Packed(packed) => count_while(packed, |_, other| other <= score),
            SortedSetView::Large(ranking) => ranking.first_above(score),
        }
    }

    /// The position of the first member that is not less in the order of bytes, if all members have the same
    /// score. Some position if they have not.
    pub fn first_member_at_least(self, member: &[u8]) -> usize {
        match self {
            SortedSetView::Packed(packed) => count_while(packed, |other, _| other < member),
            SortedSetView::Large(ranking) => ranking.first_member_at_least(member),
        }
    }

    /// The same for the first member that is greater.
    pub fn first_member_above(self, member: &[u8]) -> usize {
        match self {
            SortedSetView::Packed(packed) => count_while(packed, |other, _| other <= member),
            SortedSetView::Large(ranking) => ranking.first_member_above(member),
        }
    }
}

/// The number of members in front of the first for which the function is false.
fn count_while(packed: &[u8], is_before: impl Fn(&[u8], f64) -> bool) -> usize {
    packing::scored(packed).take_while(|(member, score)| is_before(member, *score)).count()
}

/// Calls a function with each member and its score as a text.
fn each(content: Content<'_>, visit: &mut dyn FnMut(&[&[u8]])) {
    let mut text = Vec::new();
    for (member, score) in SortedSet::view(content).iter() {
        text.clear();
        score::write(&mut text, score);
        visit(&[member, &text]);
    }
}

fn log(sink: &mut dyn Sink, key: &[u8], content: Content<'_>, expires_at_ms: Option<u64>) -> io::Result<()> {
    let set = SortedSet::view(content);
    let element = |(member, score)| {
        let mut text = Vec::new();
        score::write(&mut text, score);
        [Cow::Owned(text), Cow::Borrowed(member)]
    };
    // While it is replayed the set is small at first, and a small one makes 0 of -0. So members with -0 get
    // another score first, and -0 when all members are there.
    let is_signed = |score: f64| score == 0.0 && score.is_sign_negative();
    let with_signs = if set.may_have_negative_zeros() { 0..set.len() } else { 0..0 };
    let signed = set.range(with_signs).filter(|(_, score)| is_signed(*score));
    let unsigned = |(member, score)| (member, if is_signed(score) { 1.0 } else { score });
    let elements = set.iter().map(unsigned).chain(signed).map(element);
    records::collection(sink, key, "ZADD", elements, expires_at_ms)
}

fn rdb_type(content: Content<'_>) -> u8 {
    if content.large::<Ranking>().is_some() { SORTED_SET } else { SORTED_SET_LISTPACK }
}

fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let SortedSetView::Large(ranking) = SortedSet::view(content) else {
        let mut listpack = ListpackWriter::default();
        let mut text = Vec::new();
        for (member, score) in SortedSet::view(content).iter() {
            text.clear();
            score::write_packed(&mut text, score);
            listpack.push(member);
            listpack.push(&text);
        }
        write_string(sink.buffer(), &listpack.finish(), compressor);
        return sink.pass_on();
    };
    write_length(sink.buffer(), ranking.len() as u64);
    // Redis writes the last member first, since its skiplist loads faster from there.
    for (member, score) in ranking.range(0..ranking.len()).rev() {
        write_string(sink.buffer(), member, compressor.as_deref_mut());
        write_score(sink.buffer(), score);
        sink.pass_on()?;
    }
    Ok(())
}

fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    limit: Limit,
    value: &mut Vec<u8>,
) -> Result<Loaded, DecodeError> {
    let (mut gathering, mut has_twice) = (Gathering::default(), false);
    collections::sorted_set(rdb_type, input, &mut |member, score| {
        gathering.merge(member, score, |_| {
            has_twice = true;
            score
        });
        Ok(())
    })?;
    if has_twice {
        // The last one counts.
        input.forgive(DecodeError::Invalid("a sorted set has a member twice"))?;
    }
    Ok(gathering.finish_as_stored(limit, value).into())
}
#[cfg(test)]
mod tests;
