//! How much of the values of its keys a request may touch, for
//! [`Command::reads_much`](super::facts::Command).
//!
//! Most of these functions look at the request only. If it sets no limit, it may touch the whole values.

use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::resp::number::parse_integer;

use super::args::is_word;
use super::facts::Amount;

/// For a command that always reads the whole values, or may have to.
pub(super) fn all(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount::ALL
}

/// For a command that reads a part of the values that may be small, or all of them.
pub(super) fn up_to_all(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount::UP_TO_ALL
}

/// The same for a command that replies with a number, or with some.
pub(super) fn up_to_all_counted(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount::UP_TO_ALL.with_small_reply()
}

/// For a command that counts in the whole value of its key, or in a range of it.
pub(super) fn all_unless_in_range(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    if request.len() == 2 { Amount::ALL.with_small_reply() } else { Amount::UP_TO_ALL.with_small_reply() }
}

/// For a command that goes over the whole values and changes keys.
pub(super) fn all_changing(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount::ALL.changing().with_small_reply()
}

/// For a command that compares each byte of one string with each of another.
pub(super) fn each_with_each(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount { is_product: true, ..Amount::ALL }
}

/// For a command that looks for something from an end on, and changes it.
pub(super) fn searched(_: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount { only_reads: false, ..Amount::ALL.with_small_reply() }
}

/// For a command that looks up the members of the smallest of its sets, from argument 1 on or from argument
/// 2 on, in the others.
pub(super) fn smallest(request: Request<'_>, tx: Option<&Transaction<'_>>) -> Amount {
    smallest_of(request.from(1), tx)
}

/// The same for a command that names the number of its keys first.
pub(super) fn smallest_counted(request: Request<'_>, tx: Option<&Transaction<'_>>) -> Amount {
    smallest_of(counted_keys(request, 1), tx)
}

/// The same for a command that only counts.
pub(super) fn smallest_summed_up(request: Request<'_>, tx: Option<&Transaction<'_>>) -> Amount {
    smallest_counted(request, tx).with_small_reply()
}

/// The same for a command that writes its result to the key in front of the others.
pub(super) fn smallest_changing(request: Request<'_>, tx: Option<&Transaction<'_>>) -> Amount {
    smallest_of(request.from(2), tx).changing().with_small_reply()
}

/// The same for a command that names the number of the others behind it.
pub(super) fn smallest_counted_changing(request: Request<'_>, tx: Option<&Transaction<'_>>) -> Amount {
    smallest_of(counted_keys(request, 2), tx).changing().with_small_reply()
}

/// For a command that describes each of the things that it names, or all, which takes as long as reading so
/// many elements.
pub(super) fn described<const WEIGHT: u64, const ALL: u64>(
    request: Request<'_>,
    _: Option<&Transaction<'_>>,
) -> Amount {
    let named = request.from(2).count() as u64;
    Amount::of(WEIGHT * if named == 0 { ALL } else { named })
}

/// For a command that reads the elements from one rank to another: arguments 2 and 3.
pub(super) fn between_ranks(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    let rank = |at| request.get(at).and_then(parse_integer);
    match (rank(2), rank(3)) {
        (Some(first), Some(last)) if (first < 0) == (last < 0) => {
            Amount::of(last.saturating_sub(first).saturating_add(1).max(0).unsigned_abs())
        }
        _ => Amount::ALL,
    }
}

/// For a command that reads a range of a sorted set, by ranks or with the option LIMIT.
pub(super) fn in_range(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    match behind(request, 4, "limit", 2) {
        Some(count) => of_count(count),
        None => {
            let is_other = |option: &[u8]| is_word(option, "byscore") || is_word(option, "bylex");
            if request.from(4).any(is_other) { Amount::UP_TO_ALL } else { between_ranks(request, None) }
        }
    }
}

/// For a command that reads a range whose ends are no ranks, perhaps with the option LIMIT.
pub(super) fn within_limit(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    behind(request, 4, "limit", 2).map_or(Amount::UP_TO_ALL, of_count)
}

/// For a command that reads a range, perhaps with the option COUNT.
pub(super) fn within_count(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    behind(request, 4, "count", 1).map_or(Amount::UP_TO_ALL, of_count)
}

/// What the option COUNT asks for, which is searched for from position `from` on.
pub(super) fn stated_count(request: Request<'_>, from: usize) -> Option<Amount> {
    behind(request, from, "count", 1).map(of_count)
}

/// For a command that reads few elements unless the option COUNT asks for more.
pub(super) fn with_count(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    behind(request, 3, "count", 1).map_or(Amount::NONE, of_count)
}

/// The same for a command that changes what it finds, or notes who has read it.
pub(super) fn with_count_changing(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    behind(request, 2, "count", 1).map_or(Amount::NONE, of_count).changing()
}

/// For a command whose argument 2 is the number of elements to read; without it, it reads one. With a number
/// below zero it may read each of them several times.
pub(super) fn as_counted(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    let Some(count) = request.get(2) else { return Amount::NONE };
    // Each element with its value or score makes two. More than a reply can announce is an error.
    let count_max = if request.len() == 3 { i64::MAX } else { i64::MAX / 2 };
    match parse_integer(count) {
        Some(count) if count.unsigned_abs() > count_max.unsigned_abs() => Amount::NONE,
        Some(count @ ..0) => Amount { may_repeat: true, ..Amount::of(count.unsigned_abs()) },
        _ => of_count(count),
    }
}

/// For a command whose argument 2 is the number of elements to remove; without it, it removes one.
pub(super) fn as_counted_changing(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    request.get(2).map_or(Amount::NONE, of_count).changing()
}

/// For a list of pending entries: a summary has a line for each consumer, and entries that have not been idle
/// for long are passed over.
pub(super) fn of_pending(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    match request.get(3) {
        Some(option) if !is_word(option, "idle") => request.get(5).map_or(Amount::UP_TO_ALL, of_count),
        _ => Amount::UP_TO_ALL,
    }
}

/// For a search in an area. A search in a polygon compares each member with the corners.
pub(super) fn all_outside_polygons(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    match request.from(2).position(|argument| is_word(argument, "bypolygon")) {
        Some(at) => Amount { weight: (request.len() - at) as u64 / 2, ..Amount::ALL },
        None => Amount::UP_TO_ALL,
    }
}

/// For a command that may write its result to another key: such a request does not only read.
pub(super) fn all_unless_stored(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    let is_stored =
        request.from(2).any(|argument| is_word(argument, "store") || is_word(argument, "storedist"));
    if is_stored { Amount::ALL.changing() } else { Amount::ALL }
}

/// The same for a search in an area.
pub(super) fn up_to_all_unless_stored(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    Amount { is_certain: false, ..all_unless_stored(request, None) }
}

/// For SORT, which may read a key, or several, for each element.
pub(super) fn sorted(request: Request<'_>, _: Option<&Transaction<'_>>) -> Amount {
    let patterns = request.from(2).filter(|argument| is_word(argument, "get") || is_word(argument, "by"));
    Amount { weight: 1 + 4 * patterns.count() as u64, ..all_unless_stored(request, None) }
}

/// The keys behind an argument that says how many there are.
fn counted_keys<'a>(request: Request<'a>, at: usize) -> impl Iterator<Item = &'a [u8]> {
    let count = request.get(at).and_then(parse_integer).and_then(|count| usize::try_from(count).ok());
    request.from(at + 1).take(count.unwrap_or(0))
}

/// As many elements of each set as the smallest has. Small sets are alike.
fn smallest_of<'a>(keys: impl Iterator<Item = &'a [u8]>, tx: Option<&Transaction<'_>>) -> Amount {
    let Some(tx) = tx else { return Amount::ALL };
    let smallest = keys.map(|key| tx.large_size(key).0).min();
    Amount::of(smallest.unwrap_or(0) as u64)
}

/// The argument `places` behind an option, which is searched for from position `from` on.
fn behind<'a>(request: Request<'a>, from: usize, option: &str, places: usize) -> Option<&'a [u8]> {
    let at = request.from(from).position(|argument| is_word(argument, option))?;
    request.get(from + at + places)
}

/// An argument that is the number of elements. A number below zero means all of them.
fn of_count(count: &[u8]) -> Amount {
    match parse_integer(count) {
        Some(count @ 0..) => Amount::of(count.unsigned_abs()),
        _ => Amount::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    type ReadsMuch = fn(Request<'_>, Option<&Transaction<'_>>) -> Amount;

    fn reads_much(of: ReadsMuch, line: &str) -> bool {
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        of(request.request().expect("a request"), None).is_much_read()
    }

    #[test]
    fn a_request_says_how_much_it_reads() {
        for (of, little, much) in [
            (between_ranks as ReadsMuch, "LRANGE k 5 1003", "LRANGE k 5 1004"),
            (between_ranks, "LRANGE k -999 -1", "LRANGE k 0 -1"),
            (in_range, "ZRANGE k 0 9 REV", "ZRANGE k 0 -1"),
            (in_range, "ZRANGE k 0 inf BYSCORE LIMIT 7 999", "ZRANGE k 0 9 BYSCORE"),
            (within_limit, "ZRANGEBYSCORE k 0 9 limit 0 10", "ZRANGEBYSCORE k 0 9 LIMIT 0 -1"),
            (within_count, "XRANGE k - + COUNT 10", "XRANGE k - +"),
            (with_count, "HSCAN k 0", "HSCAN k 0 MATCH * COUNT 1000"),
            (as_counted, "SRANDMEMBER k -999", "SRANDMEMBER k -1000"),
            (as_counted, "SRANDMEMBER k -9223372036854775808", "SRANDMEMBER k -9223372036854775807"),
            (as_counted, "ZRANDMEMBER k -4611686018427387904 x", "ZRANDMEMBER k -4611686018427387903 x"),
            (of_pending, "XPENDING k g - + 10", "XPENDING k g - + 1000"),
            (of_pending, "XPENDING k g - + 10 idle", "XPENDING k g IDLE 9 - + 10"),
            (all_unless_stored, "SORT k STORE l", "SORT k"),
        ] {
            assert!(!reads_much(of, little), "{little}");
            assert!(reads_much(of, much), "{much}");
        }
    }
}
