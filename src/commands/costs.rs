//! What requests cost, for [`Command::cost`](super::facts::Command): the ways of working that several
//! commands share.
//!
//! Most of these functions look at the request only. If it sets no limit, it may touch the whole values.

use crate::resp::Request;
use crate::resp::number::parse_integer;
use crate::values::{LONG_TEXT_BYTES, Shape};

use super::args::is_word;
use super::facts::{Cost, Costs, Estimate};

/// About the same for all requests that are small. Otherwise each argument takes its time.
pub(super) const BRIEF: Costs = ARGUMENTS.brief_up_to(usize::MAX);
/// The same for a command whose requests are brief if they have but one argument, a key.
pub(super) const BRIEF_ALONE: Costs = ARGUMENTS.brief_up_to(2);
/// As much as there are arguments, whatever the values are.
pub(super) const ARGUMENTS: Costs = Costs::ARGUMENTS;
/// The whole values, which it reads, or may have to.
pub(super) const ALL: Costs = Costs::of(|estimate| estimate.reading(u64::MAX));
/// A part of the values that may be small, or all of them.
pub(super) const UP_TO_ALL: Costs = Costs::of(up_to_all);
/// The same for a command that replies with a number, or with some.
pub(super) const UP_TO_ALL_COUNTED: Costs = Costs::of(|estimate| up_to_all(estimate).with_small_reply());
/// It goes over the whole values and changes keys.
pub(super) const ALL_CHANGING: Costs =
    Costs::of(|estimate| estimate.reading(u64::MAX).changing().with_small_reply());
/// It counts in the whole value of its key, or in a range of it.
pub(super) const ALL_UNLESS_IN_RANGE: Costs = Costs::of(all_unless_in_range);
/// It compares each byte of one string with each of another.
pub(super) const EACH_WITH_EACH: Costs = Costs::of(each_with_each);
/// It looks for something from an end on, and changes it.
pub(super) const SEARCHED: Costs =
    Costs::of(|estimate| Cost { only_reads: false, ..estimate.reading(u64::MAX).with_small_reply() });
/// It looks up the members of the smallest of its sets, from argument 1 on, in the others.
pub(super) const SMALLEST: Costs = Costs::of(|estimate| smallest_of(estimate, estimate.request.from(1)));
/// The same for a command that names the number of its keys first.
pub(super) const SMALLEST_COUNTED: Costs =
    Costs::of(|estimate| smallest_of(estimate, counted_keys(estimate.request, 1)));
/// The same for a command that only counts.
pub(super) const SMALLEST_SUMMED_UP: Costs =
    Costs::of(|estimate| smallest_of(estimate, counted_keys(estimate.request, 1)).with_small_reply());
/// It writes what the sets from argument 2 on have in common to the key in front of them.
pub(super) const SMALLEST_CHANGING: Costs =
    Costs::of(|estimate| smallest_of(estimate, estimate.request.from(2)).changing().with_small_reply());
/// The same for a command that names the number of these sets behind that key.
pub(super) const SMALLEST_COUNTED_CHANGING: Costs = Costs::of(|estimate| {
    smallest_of(estimate, counted_keys(estimate.request, 2)).changing().with_small_reply()
});
/// The elements from one rank to another: arguments 2 and 3.
pub(super) const BETWEEN_RANKS: Costs = Costs::of(between_ranks);
/// A range of a sorted set, by ranks or with the option LIMIT.
pub(super) const IN_RANGE: Costs = Costs::of(in_range);
/// A range whose ends are no ranks, perhaps with the option LIMIT.
pub(super) const WITHIN_LIMIT: Costs = Costs::of(|estimate| within(estimate, "limit", 2));
/// A range, perhaps with the option COUNT.
pub(super) const WITHIN_COUNT: Costs = Costs::of(|estimate| within(estimate, "count", 1));
/// Few elements unless the option COUNT asks for more.
pub(super) const WITH_COUNT: Costs =
    Costs::of(|estimate| estimate.reading(stated_count(estimate.request, 3).unwrap_or(1)));
/// The same for a command that changes what it finds.
pub(super) const WITH_COUNT_CHANGING: Costs =
    Costs::of(|estimate| estimate.reading(stated_count(estimate.request, 2).unwrap_or(1)).changing());
/// Few keys of the whole keyspace unless the option COUNT asks for more.
pub(super) const KEYS_WITH_COUNT: Costs =
    Costs::of(|estimate| estimate.reading(stated_count(estimate.request, 2).unwrap_or(1)));
/// The number of elements that argument 2 says; without it, one.
pub(super) const AS_COUNTED: Costs = Costs::of(as_counted);
/// The same for a command that removes them.
pub(super) const AS_COUNTED_CHANGING: Costs =
    Costs::of(|estimate| estimate.reading(estimate.request.get(2).map_or(1, number)).changing());
/// For a list of pending entries: a summary has a line for each consumer, and entries that have not been idle
/// for long are passed over.
pub(super) const OF_PENDING: Costs = Costs::of(of_pending);
/// A search in an area. A search in a polygon compares each member with the corners.
pub(super) const ALL_OUTSIDE_POLYGONS: Costs = Costs::of(all_outside_polygons);
/// A search in an area that may write its result to another key: such a request does not only read.
pub(super) const UP_TO_ALL_UNLESS_STORED: Costs = Costs::of(|estimate| all_unless_stored(estimate).or_less());
/// SORT, which may read a key, or several, for each element.
pub(super) const SORTED: Costs = Costs::of(sorted);

/// It describes each of the things that it names, or all, which takes as long as reading so many elements.
pub(super) const fn described<const WEIGHT: u64, const ALL: u64>() -> Costs {
    Costs::of(|estimate| {
        let named = estimate.request.from(2).count() as u64;
        estimate.reading(WEIGHT * if named == 0 { ALL } else { named })
    })
}

fn up_to_all(estimate: &Estimate<'_>) -> Cost {
    estimate.reading(u64::MAX).or_less()
}

fn all_unless_in_range(estimate: &Estimate<'_>) -> Cost {
    let all = estimate.reading(u64::MAX).with_small_reply();
    if estimate.request.len() == 2 { all } else { all.or_less() }
}

/// Pairs of bytes that are compared as fast as an element is read.
const COMPARED_PAIRS: u64 = 64;

fn each_with_each(estimate: &Estimate<'_>) -> Cost {
    let Cost { elements, bytes, .. } = estimate.arguments();
    let compared = estimate.pairs_of_bytes() / COMPARED_PAIRS;
    let read = estimate.reading(u64::MAX);
    Cost { elements: elements + compared, bytes: bytes.max(read.bytes), reply_bytes: 0, ..read }
}

fn between_ranks(estimate: &Estimate<'_>) -> Cost {
    let rank = |at| estimate.request.get(at).and_then(parse_integer);
    estimate.reading(match (rank(2), rank(3)) {
        (Some(first), Some(last)) if (first < 0) == (last < 0) => {
            last.saturating_sub(first).saturating_add(1).max(0).unsigned_abs()
        }
        _ => u64::MAX,
    })
}

fn in_range(estimate: &Estimate<'_>) -> Cost {
    match behind(estimate.request, 4, "limit", 2) {
        Some(count) => estimate.reading(number(count)),
        None => {
            let is_other = |option: &[u8]| is_word(option, "byscore") || is_word(option, "bylex");
            if estimate.request.from(4).any(is_other) { up_to_all(estimate) } else { between_ranks(estimate) }
        }
    }
}

fn within(estimate: &Estimate<'_>, option: &str, places: usize) -> Cost {
    match behind(estimate.request, 4, option, places) {
        Some(count) => estimate.reading(number(count)),
        None => up_to_all(estimate),
    }
}

/// What the option COUNT asks for, which is searched for from position `from` on.
pub(super) fn stated_count(request: Request<'_>, from: usize) -> Option<u64> {
    behind(request, from, "count", 1).map(number)
}

/// With a number below zero it may read each element several times.
fn as_counted(estimate: &Estimate<'_>) -> Cost {
    let Some(count) = estimate.request.get(2) else { return estimate.reading(1) };
    // Each element with its value or score makes two. More than a reply can announce is an error.
    let count_max = if estimate.request.len() == 3 { i64::MAX } else { i64::MAX / 2 };
    match parse_integer(count) {
        Some(count) if count.unsigned_abs() > count_max.unsigned_abs() => estimate.reading(1),
        Some(count @ ..0) => estimate.reading_again(count.unsigned_abs()),
        _ => estimate.reading(number(count)),
    }
}

fn of_pending(estimate: &Estimate<'_>) -> Cost {
    match estimate.request.get(3) {
        Some(option) if !is_word(option, "idle") => match estimate.request.get(5) {
            Some(count) => estimate.reading(number(count)),
            None => up_to_all(estimate),
        },
        _ => up_to_all(estimate),
    }
}

fn all_outside_polygons(estimate: &Estimate<'_>) -> Cost {
    let request = estimate.request;
    match request.from(2).position(|argument| is_word(argument, "bypolygon")) {
        Some(at) => estimate.reading(u64::MAX).weighing((request.len() - at) as u64 / 2),
        None => up_to_all(estimate),
    }
}

fn all_unless_stored(estimate: &Estimate<'_>) -> Cost {
    let is_stored =
        estimate.request.from(2).any(|argument| is_word(argument, "store") || is_word(argument, "storedist"));
    let all = estimate.reading(u64::MAX);
    if is_stored { all.changing() } else { all }
}

fn sorted(estimate: &Estimate<'_>) -> Cost {
    let patterns =
        estimate.request.from(2).filter(|argument| is_word(argument, "get") || is_word(argument, "by"));
    all_unless_stored(estimate).weighing(1 + 4 * patterns.count() as u64)
}

/// The keys behind an argument that says how many there are.
fn counted_keys<'a>(request: Request<'a>, at: usize) -> impl Iterator<Item = &'a [u8]> {
    let count = request.get(at).and_then(parse_integer).and_then(|count| usize::try_from(count).ok());
    request.from(at + 1).take(count.unwrap_or(0))
}

/// As many elements of each set as the smallest has. Small sets are alike.
fn smallest_of<'a>(estimate: &Estimate<'a>, keys: impl Iterator<Item = &'a [u8]>) -> Cost {
    estimate.reading(keys.map(|key| estimate.elements_of(key)).min().unwrap_or(0))
}

/// The argument `places` behind an option, which is searched for from position `from` on.
fn behind<'a>(request: Request<'a>, from: usize, option: &str, places: usize) -> Option<&'a [u8]> {
    let at = request.from(from).position(|argument| is_word(argument, option))?;
    request.get(from + at + places)
}

/// An argument that is the number of elements. A number below zero means all of them.
fn number(count: &[u8]) -> u64 {
    match parse_integer(count) {
        Some(count @ 0..) => count.unsigned_abs(),
        _ => u64::MAX,
    }
}

/// Bytes of so many elements of a large value, about, if they are so many that they are written into the
/// reply when the locks are free.
pub(super) fn long_part(value: &impl Shape, elements: usize) -> Option<usize> {
    let bytes = (value.bytes() / value.elements().max(1)).saturating_mul(elements);
    (bytes >= LONG_TEXT_BYTES).then_some(bytes)
}
