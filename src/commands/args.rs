//! Reads the arguments of requests: numbers, words, and options in any order.

use std::ops::Range;

use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, Sent};

use super::error::Error;
use super::facts::{Only, Patience, Result, Timeout, looks_at};

/// A 64-bit integer.
///
/// # Errors
///
/// [`Error::NOT_AN_INTEGER`]
pub(crate) fn integer(argument: &[u8]) -> Result<i64> {
    parse_integer(argument).ok_or(Error::NOT_AN_INTEGER)
}

/// An integer that is not below zero.
///
/// # Errors
///
/// An error if it is below zero, or no integer.
pub(crate) fn natural(argument: &[u8]) -> Result<usize> {
    let number = parse_integer(argument).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Error::fixed("ERR value is out of range, must be positive"))
}

/// An integer above zero.
///
/// # Errors
///
/// The given error if it is not above zero, or no integer.
pub(crate) fn positive(argument: &[u8], error: &'static str) -> Result<usize> {
    let number = parse_integer(argument).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or(Error::fixed(error))
}

/// The end of a request that pops from the first of several keys: LMPOP, ZMPOP and those that block.
pub(crate) struct PopFromSeveral<E> {
    /// Where the keys are, in the order in which they are looked at.
    pub keys: Range<usize>,
    /// From which end elements are popped.
    pub end: E,
    /// How many at most.
    pub count: usize,
}

impl<E> PopFromSeveral<E> {
    /// Reads the number of keys, which is at this position, the keys, the end and COUNT.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`], the error of `parse_end`, and errors for numbers below 1.
    pub(crate) fn parse(request: Request<'_>, at: usize, parse_end: fn(&[u8]) -> Result<E>) -> Result<Self> {
        let keys = positive(request.at(at), "ERR numkeys should be greater than 0")?;
        let end_at = keys.saturating_add(at + 1);
        let end = parse_end(request.get(end_at).ok_or(Error::SYNTAX)?)?;
        let mut count = None;
        let mut options = Options::new(request, end_at + 1);
        while let Some(option) = options.next() {
            if count.is_some() || !is_word(option, "count") {
                return Err(Error::SYNTAX);
            }
            count = Some(positive(options.value()?, "ERR count should be greater than 0")?);
        }
        Ok(PopFromSeveral { keys: at + 1..end_at, end, count: count.unwrap_or(1) })
    }

    /// Has `pop` pop from the first of the keys that is there, or only from these, and reply. It returns the
    /// permission to reply if its key is absent, and so does this if all are.
    ///
    /// # Errors
    ///
    /// Those of `pop`.
    pub(super) fn pop_first<'a, 'r>(
        &self,
        request: Request<'a>,
        only: Only<'_>,
        mut reply: Reply<'r>,
        mut pop: impl FnMut(&'a [u8], Reply<'r>) -> Result<std::result::Result<Sent, Reply<'r>>>,
    ) -> Result<std::result::Result<Sent, Reply<'r>>> {
        let keys = self.keys.clone().map(|at| request.at(at));
        for key in keys.filter(|key| looks_at(only, key)) {
            match pop(key, reply)? {
                Ok(sent) => return Ok(Ok(sent)),
                Err(unused) => reply = unused,
            }
        }
        Ok(Err(reply))
    }
}

/// The number of keys that a request announces at a position. The keys follow it.
///
/// # Errors
///
/// An error if it is not above zero, or if there are fewer arguments.
pub(crate) fn key_count(request: Request<'_>, position: usize) -> Result<usize> {
    let count = positive(request.at(position), "ERR numkeys should be greater than 0")?;
    if count > request.len() - position - 1 {
        return Err(Error::fixed("ERR Number of keys can't be greater than number of args"));
    }
    Ok(count)
}

/// The last argument of a request, which is the timeout of most commands that wait.
///
/// # Errors
///
/// None: it has the form of the check of a blocking command.
pub(crate) fn last(request: Request<'_>) -> Result<Patience<'_>> {
    Ok(Timeout::Seconds(request.at(request.len() - 1)).into())
}

/// Parses the number by which clients know a database, one of `numbers`. Returns its number here, from zero.
///
/// # Errors
///
/// [`Error::NOT_AN_INTEGER`], [`Error::NOT_A_SHORT_INTEGER`], [`Error::NO_SUCH_DATABASE`]
pub(crate) fn database(argument: &[u8], numbers: Range<usize>) -> Result<usize> {
    let number = i32::try_from(integer(argument)?).map_err(|_| Error::NOT_A_SHORT_INTEGER)?;
    let found = usize::try_from(number).ok().filter(|number| numbers.contains(number));
    found.map(|number| number - numbers.start).ok_or(Error::NO_SUCH_DATABASE)
}

/// How an argument counts time.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeUnit {
    /// Milliseconds of its unit.
    ms: i64,
    /// Whether it counts from now on, rather than from 1970.
    is_relative: bool,
}

impl TimeUnit {
    /// Seconds from now on.
    pub(super) const SECONDS: TimeUnit = TimeUnit { ms: 1000, is_relative: true };
    /// Milliseconds from now on.
    pub(super) const MILLISECONDS: TimeUnit = TimeUnit { ms: 1, is_relative: true };
    /// Seconds since 1970.
    pub(super) const UNIX_SECONDS: TimeUnit = TimeUnit { ms: 1000, is_relative: false };
    /// Milliseconds since 1970.
    pub(super) const UNIX_MILLISECONDS: TimeUnit = TimeUnit { ms: 1, is_relative: false };

    /// The moment of a time in this unit, in milliseconds since 1970; `None` if it is too far in the future.
    pub(super) fn moment_ms(self, tx: &Transaction<'_>, amount: i64) -> Option<i64> {
        let amount_ms = amount.checked_mul(self.ms)?;
        if self.is_relative { tx.expiry_in_ms(amount_ms) } else { Some(amount_ms) }
    }
}

/// Whether an argument is this word, in any case.
pub(crate) fn is_word(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// ON or OFF.
///
/// # Errors
///
/// [`Error::SYNTAX`]
pub(crate) fn on_or_off(argument: &[u8]) -> Result<bool> {
    match argument {
        _ if is_word(argument, "on") => Ok(true),
        _ if is_word(argument, "off") => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

/// Goes over the options at the end of a request.
pub(crate) struct Options<'a> {
    request: Request<'a>,
    next: usize,
}

impl<'a> Options<'a> {
    /// The options from position `first` on.
    pub(crate) fn new(request: Request<'a>, first: usize) -> Options<'a> {
        Options { request, next: first }
    }

    /// How many arguments are left.
    pub(crate) fn left(&self) -> usize {
        self.request.len() - self.next
    }

    /// The next argument, which is not taken yet.
    pub(crate) fn peek(&self) -> Option<&'a [u8]> {
        self.request.get(self.next)
    }

    /// The next argument, if it is such a one; else it is left.
    pub(crate) fn next_if(&mut self, is_taken: impl FnOnce(&'a [u8]) -> bool) -> Option<&'a [u8]> {
        if self.peek().is_some_and(is_taken) { self.next() } else { None }
    }

    /// The value that must follow the option just read.
    ///
    /// # Errors
    ///
    /// [`Error::SYNTAX`] if the request ends there.
    pub(crate) fn value(&mut self) -> Result<&'a [u8]> {
        self.next().ok_or(Error::SYNTAX)
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let option = self.request.get(self.next)?;
        self.next += 1;
        Some(option)
    }
}
