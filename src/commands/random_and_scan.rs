//! Random elements of collections (HRANDFIELD, SRANDMEMBER, ZRANDMEMBER) and scans of them (HSCAN, SSCAN,
//! ZSCAN): the code that these commands share.

use crate::cancel;
use std::collections::BTreeSet;

use crate::glob::Pattern;
use crate::resp::number::parse_integer;
use crate::resp::{Nested, Protocol, Reply, Request};

use super::args::{self, Options, is_word};
use super::error::Error;
use super::facts::Result;

/// The most bytes of one reply of random elements. A count below zero asks for any number of them.
const REPLY_BYTES_MAX: usize = 512 << 20;

/// The shortest bulk string.
const EMPTY_BULK_BYTES: usize = b"$0\r\n\r\n".len();
const TOO_LONG: Error = Error::fixed("ERR reply exceeds maximum allowed size (512MB)");

/// How many random elements a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So many different elements, or all if there are fewer.
    Different(usize),
    /// Exactly this number of elements, each drawn from all.
    Any(usize),
}

impl Wanted {
    /// Reads a count: below zero for elements that may repeat.
    ///
    /// # Errors
    ///
    /// [`Error::NOT_AN_INTEGER`], and an error for the smallest integer, which has no positive twin.
    pub(super) fn of(count: &[u8]) -> Result<Wanted> {
        let count = args::integer(count)?;
        if count == i64::MIN {
            return Err(Error::HAS_NO_OPPOSITE);
        }
        let number = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        Ok(if count < 0 { Wanted::Any(number) } else { Wanted::Different(number) })
    }

    /// Reads the count and the option behind it, which stands for a second string of each element.
    ///
    /// # Errors
    ///
    /// [`Error::NOT_AN_INTEGER`], [`Error::SYNTAX`], and an error for counts whose double is no integer.
    pub(super) fn parse(request: Request<'_>, option: &str) -> Result<(Wanted, bool)> {
        let wanted = Wanted::of(request.at(2))?;
        let with_both = match (request.get(3), request.len()) {
            (None, _) => false,
            (Some(word), 4) if is_word(word, option) => true,
            _ => return Err(Error::SYNTAX),
        };
        let (Wanted::Different(count) | Wanted::Any(count)) = wanted;
        if with_both && count as u64 > i64::MAX.unsigned_abs() / 2 {
            return Err(Error::fixed("ERR value is out of range"));
        }
        Ok((wanted, with_both))
    }

    /// How many elements of a collection of `len` that is.
    fn count(self, len: usize) -> usize {
        match self {
            Wanted::Different(count) => count.min(len),
            Wanted::Any(_) if len == 0 => 0,
            Wanted::Any(count) => count,
        }
    }

    /// Draws positions in a collection of `len` elements. Different ones are in ascending order.
    fn positions(self, len: usize) -> Box<dyn Iterator<Item = usize>> {
        let count = self.count(len);
        match self {
            Wanted::Any(_) => Box::new((0..count).map(move |_| fastrand::usize(..len))),
            Wanted::Different(_) if count == len => Box::new(0..len),
            Wanted::Different(_) => Box::new(different_positions(count, len).into_iter()),
        }
    }

    /// Replies with random elements of a collection of `len`: an array of names, or of names and what belongs
    /// to them, which RESP3 has in pairs. `write` writes the strings of the element at a position.
    ///
    /// # Errors
    ///
    /// An error if the reply is longer than 512 MiB.
    pub(super) fn reply(
        self,
        len: usize,
        with_both: bool,
        reply: Reply<'_>,
        mut write: impl FnMut(usize, &mut Nested<'_>),
    ) -> Result {
        let (count, is_paired) = (self.count(len), with_both && reply.protocol() == Protocol::Resp3);
        if count > REPLY_BYTES_MAX / EMPTY_BULK_BYTES {
            return Err(TOO_LONG);
        }
        reply.nested(|parts| {
            let begin = parts.written();
            parts.array(if with_both && !is_paired { 2 * count } else { count });
            for position in self.positions(len) {
                cancel::check();
                if parts.written() - begin > REPLY_BYTES_MAX {
                    return Err(TOO_LONG);
                }
                if is_paired {
                    parts.array(2);
                }
                write(position, parts);
            }
            Ok(())
        })
    }
}

/// Draws `count` different positions below `len`, in ascending order.
fn different_positions(count: usize, len: usize) -> Vec<usize> {
    if count > len / 4 {
        // Each position is drawn with the chance that the rest needs it.
        let mut left = count;
        let is_drawn = |position: &usize| {
            let is_drawn = fastrand::usize(..len - position) < left;
            left -= usize::from(is_drawn);
            is_drawn
        };
        return (0..len).filter(is_drawn).collect();
    }
    let mut drawn = BTreeSet::new();
    while drawn.len() < count {
        drawn.insert(fastrand::usize(..len));
    }
    drawn.into_iter().collect()
}

/// Which of the visited elements HSCAN, SSCAN and ZSCAN return.
pub(super) struct Selection<'a> {
    /// Where to go on.
    pub(super) cursor: u64,
    /// Elements to look at, at least.
    pub(super) count: usize,
    /// Whether only names are wanted, without what belongs to them.
    pub(super) only_names: bool,
    pattern: Option<Pattern<'a>>,
}

impl<'a> Selection<'a> {
    /// Redis: the default of COUNT.
    const COUNT: usize = 10;

    /// Reads the cursor of a request.
    ///
    /// # Errors
    ///
    /// An error for a cursor that is no number.
    pub(super) fn cursor(request: Request<'_>) -> Result<u64> {
        parse_cursor(request.at(2)).ok_or(Error::fixed("ERR invalid cursor"))
    }

    /// Reads MATCH, COUNT, and the option by which a command leaves out what belongs to a name.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`], [`Error::NOT_AN_INTEGER`]
    pub(super) fn parse(
        cursor: u64,
        request: Request<'a>,
        only_names: Option<&str>,
    ) -> Result<Selection<'a>> {
        let mut selection = Selection { cursor, count: Selection::COUNT, only_names: false, pattern: None };
        let mut pattern = None;
        let mut options = Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "match") => pattern = Some(options.value()?),
                _ if is_word(option, "count") => selection.count = count(options.value()?)?,
                _ if only_names.is_some_and(|word| is_word(option, word)) => selection.only_names = true,
                _ => return Err(unknown_option(option)),
            }
        }
        selection.pattern = pattern.filter(|pattern| *pattern != b"*").map(|it| Pattern::new(it, false));
        Ok(selection)
    }

    /// Goes over a large collection from the cursor on until it has seen enough elements; returns the next
    /// cursor. `scan` returns the elements from a cursor on, and the next cursor.
    pub(super) fn over<E, I: Iterator<Item = E>>(
        &self,
        scan: impl Fn(u64) -> (I, u64),
        mut visit: impl FnMut(E),
    ) -> u64 {
        let (mut cursor, mut seen) = (self.cursor, 0);
        loop {
            let (elements, next) = scan(cursor);
            for element in elements {
                seen += 1;
                visit(element);
            }
            cursor = next;
            if cursor == 0 || seen >= self.count {
                return cursor;
            }
        }
    }

    /// Whether a name is wanted.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// Reads COUNT: how many elements to look at.
///
/// # Errors
///
/// [`Error::NOT_AN_INTEGER`], [`Error::SYNTAX`]
pub(super) fn count(text: &[u8]) -> Result<usize> {
    usize::try_from(args::integer(text)?).ok().filter(|count| *count > 0).ok_or(Error::SYNTAX)
}

/// Reads a cursor as Redis does: a number below zero is none, and what is no integer in its usual form is
/// left to `strtoull` of C, which passes over blanks and wraps a negative number around.
pub(crate) fn parse_cursor(text: &[u8]) -> Option<u64> {
    if let Some(integer) = parse_integer(text) {
        return u64::try_from(integer).ok();
    }
    let text = std::str::from_utf8(text).ok()?.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let number: u64 = digits.parse().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(if text.starts_with('-') { number.wrapping_neg() } else { number })
}

/// Replies with a cursor and the strings that were found.
pub(super) fn reply_scanned(next: u64, found: &[impl AsRef<[u8]>], reply: Reply<'_>) -> Result {
    Ok(reply.pair(
        |reply| reply.bulk(itoa::Buffer::new().format(next).as_bytes()),
        |reply| reply.array_of(found.iter(), |string, reply| reply.bulk(string.as_ref())),
    ))
}

/// The error for an option that a command that scans does not have.
pub(super) fn unknown_option(option: &[u8]) -> Error {
    match option {
        _ if is_word(option, "novalues") => Error::fixed("ERR NOVALUES option can only be used in HSCAN"),
        _ if is_word(option, "noscores") => Error::fixed("ERR NOSCORES option can only be used in ZSCAN"),
        _ => Error::SYNTAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_positions_are_as_many_as_wanted_and_all_are_drawn() {
        for len in [1, 2, 3, 10, 100] {
            for count in [1, 2, len / 2, len, len + 5] {
                let mut seen = vec![0; len];
                for _ in 0..400 {
                    let drawn: Vec<usize> = Wanted::Different(count).positions(len).collect();
                    assert_eq!(drawn.len(), count.min(len));
                    assert!(drawn.is_sorted_by(|one, next| one < next), "{drawn:?}");
                    drawn.iter().for_each(|position| seen[*position] += 1);
                }
                if count.min(len) * 400 >= 40 * len {
                    assert!(seen.iter().all(|times| *times > 0), "{count} of {len}: {seen:?}");
                }
            }
        }
    }

    #[test]
    fn positions_that_may_repeat_are_as_many_as_wanted() {
        assert_eq!(Wanted::Any(5).positions(2).count(), 5);
        assert_eq!(Wanted::Any(5).positions(0).count(), 0);
    }
}
