//! Ranges of ranks, scores and members. Each is a range of positions in a sorted set.

use std::ops::Range;

use super::{SortedSetView, score};

/// A range of members, as a request states it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bounds<'a> {
    /// By rank, from the first to the last. A rank below zero counts from the end.
    Ranks(i64, i64),
    /// By score, from the lowest to the highest.
    Scores(End<f64>, End<f64>),
    /// By the order of bytes, where all scores are equal.
    Members(Edge<'a>, Edge<'a>),
}

/// An end of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<T> {
    value: T,
    /// Whether the range is without the value itself.
    is_exclusive: bool,
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edge<'a> {
    /// In front of all members: `-`.
    Lowest,
    /// Behind all members: `+`.
    Highest,
    /// At a member, which need not be there: `[member` or `(member`.
    At(End<&'a [u8]>),
}

impl End<f64> {
    /// Reads an end of a range of scores: a number, behind `(` if the range is without it.
    pub(crate) fn parse(text: &[u8]) -> Option<End<f64>> {
        let (number, is_exclusive) = match text {
            [b'(', number @ ..] => (number, true),
            _ => (text, false),
        };
        Some(End { value: score::parse_decimal(number)?, is_exclusive })
    }
}

impl<'a> Edge<'a> {
    /// Reads an end of a range of members: `-`, `+`, or a member behind `[` or `(`.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Edge<'a>> {
        match text {
            // Redis looks for the end of a C string here.
            [b'-'] | [b'-', 0, ..] => Some(Edge::Lowest),
            [b'+'] | [b'+', 0, ..] => Some(Edge::Highest),
            [b'[', value @ ..] => Some(Edge::At(End { value, is_exclusive: false })),
            [b'(', value @ ..] => Some(Edge::At(End { value, is_exclusive: true })),
            _ => None,
        }
    }

    /// The number of members in front of the edge; those at the edge are behind it if the range starts there
    /// with them, or ends there without them.
    fn position(self, set: SortedSetView<'_>, is_start: bool) -> usize {
        match self {
            Edge::Lowest => 0,
            Edge::Highest => set.len(),
            Edge::At(end) if end.is_exclusive == is_start => set.first_member_above(end.value),
            Edge::At(end) => set.first_member_at_least(end.value),
        }
    }
}

impl Bounds<'_> {
    /// The positions of the members in the range.
    pub(crate) fn positions(self, set: SortedSetView<'_>) -> Range<usize> {
        let len = set.len();
        let (start, end) = match self {
            Bounds::Ranks(first, last) => {
                let last = from_end(last, len);
                (from_end(first, len).max(0), last.saturating_add(1))
            }
            Bounds::Scores(min, max) => {
                let position = |end: End<f64>, is_start: bool| {
                    let is_behind = end.is_exclusive == is_start;
                    if is_behind { set.first_above(end.value) } else { set.first_at_least(end.value) }
                };
                return ascending(position(min, true), position(max, false));
            }
            Bounds::Members(min, max) => {
                return ascending(min.position(set, true), max.position(set, false));
            }
        };
        let within = |position: i64| usize::try_from(position).unwrap_or(0).min(len);
        ascending(within(start), within(end))
    }
}

/// A rank counted from the start; below zero it is in front of the first member.
fn from_end(rank: i64, len: usize) -> i64 {
    if rank < 0 { rank.saturating_add_unsigned(len as u64) } else { rank }
}

/// The positions from a start to an end; none if the end is in front.
fn ascending(start: usize, end: usize) -> Range<usize> {
    start..end.max(start)
}
