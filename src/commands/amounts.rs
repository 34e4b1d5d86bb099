//! How much of a large value a request may read, for [`Command::reads_much`](super::facts::Command).
//!
//! These functions look at the request only. If it sets no limit, it may read the whole value.

use crate::resp::Request;
use crate::resp::number::parse_integer;

use super::args::is_word;

/// This number of elements counts as much: a reply with them takes some 20 µs.
const MANY: u64 = 1000;

/// For a command that always reads the whole value, or may have to.
pub(super) fn all(_: Request<'_>) -> bool {
    true
}

/// For a command that reads the elements from one rank to another: arguments 2 and 3.
pub(super) fn between_ranks(request: Request<'_>) -> bool {
    let rank = |at| request.get(at).and_then(parse_integer);
    match (rank(2), rank(3)) {
        (Some(first), Some(last)) if (first < 0) == (last < 0) => last.saturating_sub(first) >= MANY as i64,
        _ => true,
    }
}

/// For a command that reads a range of a sorted set, by ranks or with the option LIMIT.
pub(super) fn in_range(request: Request<'_>) -> bool {
    match behind(request, 4, "limit", 2) {
        Some(count) => is_many(count),
        None => {
            let is_other = |option: &[u8]| is_word(option, "byscore") || is_word(option, "bylex");
            request.from(4).any(is_other) || between_ranks(request)
        }
    }
}

/// For a command that reads a range whose ends are no ranks, perhaps with the option LIMIT.
pub(super) fn within_limit(request: Request<'_>) -> bool {
    behind(request, 4, "limit", 2).is_none_or(is_many)
}

/// For a command that reads a range, perhaps with the option COUNT.
pub(super) fn within_count(request: Request<'_>) -> bool {
    behind(request, 4, "count", 1).is_none_or(is_many)
}

/// For a command that reads few elements unless the option COUNT asks for more.
pub(super) fn with_count(request: Request<'_>) -> bool {
    behind(request, 3, "count", 1).is_some_and(is_many)
}

/// For a command whose argument 2 is the number of elements to read; without it, it reads one.
pub(super) fn as_counted(request: Request<'_>) -> bool {
    request.get(2).is_some_and(is_many)
}

/// For a search in an area. A search in a polygon shares what it searches by itself: with many corners it
/// takes long in small sets, too.
pub(super) fn all_outside_polygons(request: Request<'_>) -> bool {
    !request.from(2).any(|argument| is_word(argument, "bypolygon"))
}

/// For a command that may write its result to another key: such a request does not only read.
pub(super) fn all_unless_stored(request: Request<'_>) -> bool {
    !request.from(2).any(|argument| is_word(argument, "store") || is_word(argument, "storedist"))
}

/// The argument `places` behind an option, which is searched for from position `from` on.
fn behind<'a>(request: Request<'a>, from: usize, option: &str, places: usize) -> Option<&'a [u8]> {
    let at = request.from(from).position(|argument| is_word(argument, option))?;
    request.get(from + at + places)
}

/// Whether an argument asks for many elements. A number below zero means that elements may come twice, or all
/// of them.
fn is_many(count: &[u8]) -> bool {
    parse_integer(count).is_none_or(|count| count == -1 || count.unsigned_abs() >= MANY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    fn reads_much(of: fn(Request<'_>) -> bool, line: &str) -> bool {
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        of(request.request().expect("a request"))
    }

    #[test]
    fn a_request_says_how_much_it_reads() {
        for (of, little, much) in [
            (between_ranks as fn(Request<'_>) -> bool, "LRANGE k 5 1004", "LRANGE k 5 1005"),
            (between_ranks, "LRANGE k -1000 -1", "LRANGE k 0 -1"),
            (in_range, "ZRANGE k 0 9 REV", "ZRANGE k 0 -1"),
            (in_range, "ZRANGE k 0 inf BYSCORE LIMIT 7 999", "ZRANGE k 0 9 BYSCORE"),
            (within_limit, "ZRANGEBYSCORE k 0 9 limit 0 10", "ZRANGEBYSCORE k 0 9 LIMIT 0 -1"),
            (within_count, "XRANGE k - + COUNT 10", "XRANGE k - +"),
            (with_count, "HSCAN k 0", "HSCAN k 0 MATCH * COUNT 1000"),
            (as_counted, "SRANDMEMBER k -999", "SRANDMEMBER k -1000"),
            (all_unless_stored, "SORT k STORE l", "SORT k"),
        ] {
            assert!(!reads_much(of, little), "{little}");
            assert!(reads_much(of, much), "{much}");
        }
    }
}
