//! The options of SORT, and the keys that they name or stand for.
//!
//! One walk over the arguments serves the handler and the key specifications, so a transaction holds what the
//! handler uses.

use super::pattern::Pattern;
use crate::commands::args::{integer, is_word};
use crate::commands::error::Error;
use crate::commands::facts::Result;
use crate::keyspace::Surveyed;
use crate::resp::Request;

/// The options of SORT.
#[derive(Debug)]
pub(super) struct Sorting<'a> {
    /// The last BY.
    pub by: Option<Pattern<'a>>,
    /// Whether a BY asks for no order: its pattern has no place for an element.
    pub is_unsorted: bool,
    pub is_descending: bool,
    /// Whether texts are compared rather than numbers.
    pub is_alpha: bool,
    /// How many elements are left out in front; below zero: none.
    offset: i64,
    /// How many elements follow at most; below zero: all.
    count: i64,
    /// The patterns for the values that are returned instead of each element, if any.
    pub gets: Vec<Pattern<'a>>,
    /// The key to which the result is written rather than returned.
    pub target: Option<&'a [u8]>,
}

impl<'a> Sorting<'a> {
    /// Reads the options of a request. `may_store` is whether STORE is among them; `may_read_all` returns
    /// whether the client may read all keys, which it must for most patterns.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`], [`Error::NOT_AN_INTEGER`], and an error for patterns that the client may not use:
    /// the first of them, as Redis finds it.
    pub(super) fn parse(
        request: Request<'a>,
        may_store: bool,
        may_read_all: impl Fn() -> bool,
    ) -> Result<Sorting<'a>> {
        let mut sorting = Sorting {
            by: None,
            is_unsorted: false,
            is_descending: false,
            is_alpha: false,
            offset: 0,
            count: -1,
            gets: Vec::new(),
            target: None,
        };
        for option in options(request) {
            match option {
                SortOption::Ascending => sorting.is_descending = false,
                SortOption::Descending => sorting.is_descending = true,
                SortOption::Alpha => sorting.is_alpha = true,
                SortOption::Limit(offset, count) => {
                    (sorting.offset, sorting.count) = (integer(offset)?, integer(count)?);
                }
                SortOption::By(pattern) if pattern.has_place() && !may_read_all() => {
                    return Err(Error::fixed(
                        "ERR BY option of SORT denied due to insufficient ACL permissions.",
                    ));
                }
                SortOption::By(pattern) => {
                    sorting.is_unsorted |= !pattern.has_place();
                    sorting.by = Some(pattern);
                }
                // As in Redis, even for patterns that read no key.
                SortOption::Get(_) if !may_read_all() => {
                    return Err(Error::fixed(
                        "ERR GET option of SORT denied due to insufficient ACL permissions.",
                    ));
                }
                SortOption::Get(pattern) => sorting.gets.push(pattern),
                SortOption::Store(position) if may_store => sorting.target = Some(request.at(position)),
                SortOption::Store(_) | SortOption::Unknown => return Err(Error::SYNTAX),
            }
        }
        Ok(sorting)
    }

    /// The keys that patterns stand for.
    pub(super) fn surveyed(&self) -> Vec<Surveyed> {
        self.by.iter().chain(&self.gets).filter_map(|pattern| pattern.surveyed()).collect()
    }

    /// The positions of the elements that are returned, out of `len`.
    pub(super) fn range(&self, len: usize) -> std::ops::Range<usize> {
        let natural = |number: i64| usize::try_from(number);
        let start = natural(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        // A count below zero is none.
        let count = natural(self.count).unwrap_or(usize::MAX).min(len - start);
        start..start + count
    }
}

/// The position of the key that STORE names: the last STORE counts.
pub(super) fn target_position(request: Request<'_>) -> Option<usize> {
    let positions = options(request).filter_map(|option| match option {
        SortOption::Store(position) => Some(position),
        _ => None,
    });
    positions.last()
}

/// Whether patterns stand for keys that the request does not name.
pub(super) fn uses_patterns(request: Request<'_>) -> bool {
    options(request).any(|option| match option {
        SortOption::By(pattern) | SortOption::Get(pattern) => pattern.has_place(),
        _ => false,
    })
}

/// One option of a request.
enum SortOption<'a> {
    Ascending,
    Descending,
    Alpha,
    Limit(&'a [u8], &'a [u8]),
    By(Pattern<'a>),
    Get(Pattern<'a>),
    /// The position of the key.
    Store(usize),
    /// No option, or one whose values are missing.
    Unknown,
}

/// The options of a request. Like Redis when it looks for keys, it goes on behind what it does not know.
fn options<'a>(request: Request<'a>) -> impl Iterator<Item = SortOption<'a>> {
    let mut at = 2;
    std::iter::from_fn(move || {
        let word = request.get(at)?;
        let (first, second) = (request.get(at + 1), request.get(at + 2));
        let (option, values) = match (first, second) {
            _ if is_word(word, "asc") => (SortOption::Ascending, 0),
            _ if is_word(word, "desc") => (SortOption::Descending, 0),
            _ if is_word(word, "alpha") => (SortOption::Alpha, 0),
            (Some(offset), Some(count)) if is_word(word, "limit") => (SortOption::Limit(offset, count), 2),
            (Some(pattern), _) if is_word(word, "by") => (SortOption::By(Pattern::new(pattern)), 1),
            (Some(pattern), _) if is_word(word, "get") => (SortOption::Get(Pattern::new(pattern)), 1),
            (Some(_), _) if is_word(word, "store") => (SortOption::Store(at + 1), 1),
            _ => (SortOption::Unknown, 0),
        };
        at += 1 + values;
        Some(option)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::OwnedRequest;

    fn parse(line: &str) -> Result<String> {
        let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
        let sorting = Sorting::parse(owned.request().expect(line), true, || false)?;
        Ok(format!("{} {:?}", sorting.is_unsorted, sorting.range(5)))
    }

    #[test]
    fn a_limit_ends_with_the_elements() {
        for (limit, expected) in [
            ("", 0..5),
            ("LIMIT 1 2", 1..3),
            ("LIMIT -3 2", 0..2),
            ("LIMIT 2 -1", 2..5),
            ("LIMIT 4 9223372036854775807", 4..5),
            ("LIMIT 5 1", 5..5),
            ("LIMIT 9223372036854775807 9223372036854775807", 5..5),
            ("LIMIT -9223372036854775808 -9223372036854775808", 0..5),
            ("LIMIT 0 0", 0..0),
            ("limit 1 1 LIMIT 2 2", 2..4),
        ] {
            assert_eq!(parse(&format!("SORT l {limit}")), Ok(format!("false {expected:?}")), "{limit}");
        }
    }

    #[test]
    fn the_first_mistake_is_reported() {
        for (options, expected) in [
            ("FOO LIMIT x 1", Error::SYNTAX),
            ("LIMIT x 1 FOO", Error::NOT_AN_INTEGER),
            ("LIMIT 1", Error::SYNTAX),
            ("BY", Error::SYNTAX),
            ("STORE", Error::SYNTAX),
            ("FOO BY w_*", Error::SYNTAX),
        ] {
            assert_eq!(parse(&format!("SORT l {options}")), Err(expected), "{options}");
        }
        let denied = |line: &str| {
            parse(line).unwrap_err().as_bytes().starts_with(b"ERR ") && parse(line) != Err(Error::SYNTAX)
        };
        assert!(denied("SORT l BY w_* FOO") && denied("SORT l GET # FOO"));
        assert_eq!(parse("SORT l BY nosort"), Ok("true 0..5".into()));
    }

    #[test]
    fn keys_are_found_where_the_handler_finds_them() {
        for (line, target, uses) in [
            ("SORT l", None, false),
            ("SORT l STORE a BY nosort STORE b", Some(7), false),
            ("SORT l STORE STORE STORE d", Some(5), false),
            ("SORT l GET STORE BY STORE", None, false),
            ("SORT l LIMIT 0 STORE GET # STORE d", Some(8), false),
            ("SORT l foo STORE d BY w*", Some(4), true),
            ("SORT l GET # GET w*->f", None, true),
            ("SORT l STORE", None, false),
        ] {
            let owned = OwnedRequest::of_line(line.as_bytes()).expect(line);
            let request = owned.request().expect(line);
            assert_eq!(target_position(request), target, "{line}");
            assert_eq!(uses_patterns(request), uses, "{line}");
        }
    }
}
