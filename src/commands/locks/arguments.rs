//! The arguments of LOCK: the form that its commands share, and the options of those that take and extend
//! locks.

use std::ops::Range;

use crate::keyspace::{BondTerms, Grouping, Transaction};
use crate::resp::Request;
use crate::resp::number::parse_integer;

use crate::commands::args::{self, Options, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Argument, ArgumentKind, Result, Timeout};

/// Longest token, in bytes. A token is compared under a shard's lock, and kept in the entry.
const TOKEN_BYTES_MAX: usize = 1024;

pub(super) const TOKEN: Argument = Argument::string("token");
pub(super) const PX: Argument = Argument::integer("milliseconds").token("PX");

pub(super) const BOUND: Argument = Argument::block(
    "bound",
    &[
        Argument::pure_token("bound", "BOUND"),
        Argument::integer("milliseconds").token("GRACE").optional(),
        Argument::integer("milliseconds").token("MAX").optional(),
    ],
);

pub(super) const HOLDERS: Argument = Argument::one_of(
    "holders",
    &[Argument::pure_token("shared", "SHARED"), Argument::integer("limit").token("LIMIT")],
);

/// More keys, behind their number.
pub(super) const ALSO: Argument = Argument::block(
    "also",
    &[
        Argument::integer("count").token("ALSO"),
        Argument::new("key", ArgumentKind::Key).multiple().of_spec(1),
    ],
);

/// Most keys of a request: their shards are locked at once, and a client that waits stands in a line for
/// each.
const KEYS_MAX: usize = 128;

/// The shortest lease that is renewed, in milliseconds: a thread may be late by a good part of less.
const BOUND_LEASE_MS_MIN: i64 = 100;

/// The place of the token among the arguments of all but BREAK.
pub(super) const TOKEN_AT: usize = 3;

/// The arguments of LOCK RELEASE without more keys.
pub(super) const WITHOUT_MORE: usize = 4;

/// The arguments of LOCK ACQUIRE and LOCK EXTEND without options.
pub(super) const WITHOUT_OPTIONS: usize = 6;

/// The arguments of LOCK ACQUIRE.
pub(super) struct Acquiring<'a> {
    pub(super) token: &'a [u8],
    pub(super) lifetime: &'a [u8],
    pub(super) wait: Timeout<'a>,
    /// Whether the token may hold the lock already.
    pub(super) is_again: bool,
    /// How the lock is bound to the client's connection, if it is.
    pub(super) bound: Option<Bound>,
    /// Whether the client is notified when it loses the lock.
    pub(super) is_notified: bool,
    /// How many clients may hold the lock at a time, if it is not to be one alone.
    pub(super) limit: Option<u64>,
    /// The places of more keys, which it takes together with the first.
    pub(super) also: Range<usize>,
}

/// The places of the keys behind ALSO in LOCK ACQUIRE and LOCK EXTEND.
pub(super) fn also_among_options(request: Request<'_>) -> Range<usize> {
    also_from(request, WITHOUT_OPTIONS)
}

/// The places of the keys behind ALSO in LOCK RELEASE.
pub(super) fn also_behind_token(request: Request<'_>) -> Range<usize> {
    also_from(request, WITHOUT_MORE)
}

/// The places of the keys behind the first ALSO from a place on. No value of another option is a word, so
/// where the handler understands the request, this is the ALSO that it reads.
fn also_from(request: Request<'_>, from: usize) -> Range<usize> {
    let also = request.from(from).position(|argument| is_word(argument, "also"));
    also.map_or(0..0, |at| keys_behind(request, from + at + 1))
}

/// The places of the keys behind their number, as far as they are there.
fn keys_behind(request: Request<'_>, count_at: usize) -> Range<usize> {
    let first = (count_at + 1).min(request.len());
    let stated = request.get(count_at).and_then(parse_integer);
    let stated = stated.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    first..first + stated.min(request.len() - first)
}

/// Reads ALSO with its keys, if the option is that, and they are all there. Returns whether it is.
pub(super) fn read_also(
    also: &mut Range<usize>,
    option: &[u8],
    options: &mut Options<'_>,
    request: Request<'_>,
) -> Result<bool> {
    if also.start < also.end || !is_word(option, "also") {
        return Ok(false);
    }
    let count_at = request.len() - options.left();
    if options.peek().is_none() {
        return Err(Error::SYNTAX);
    }
    if args::key_count(request, count_at)? >= KEYS_MAX {
        return Err(Error::fixed("ERR LOCK takes 128 keys at most"));
    }
    *also = keys_behind(request, count_at);
    options.by_ref().take(1 + also.len()).for_each(drop);
    Ok(true)
}

/// The places of the keys behind ALSO, in a request of LOCK RELEASE that has more than a key and a token.
pub(super) fn read_more(request: Request<'_>) -> Result<Range<usize>> {
    let mut also = 0..0;
    let mut options = Options::new(request, WITHOUT_MORE);
    while let Some(option) = options.next() {
        if !read_also(&mut also, option, &mut options, request)? {
            return Err(Error::SYNTAX);
        }
    }
    Ok(also)
}

/// The first key, and those at other places.
pub(super) fn with_first<'a>(
    request: Request<'a>,
    also: Range<usize>,
) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
    request.from(2).take(1).chain(request.from(also.start).take(also.len()))
}

/// The values of BOUND, in milliseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Bound {
    grace_ms: Option<u64>,
    max_ms: Option<u64>,
}

impl Bound {
    /// Reads one option, if it is BOUND or one of those that follow it. Returns whether it is.
    pub(super) fn read<'a>(
        bound: &mut Option<Bound>,
        option: &[u8],
        options: &mut Options<'a>,
    ) -> Result<bool> {
        let mut milliseconds = |is_enough: fn(i64) -> bool, error| {
            let milliseconds = args::integer(options.value()?)?;
            u64::try_from(milliseconds).ok().filter(|_| is_enough(milliseconds)).ok_or(error).map(Some)
        };
        match bound {
            None if is_word(option, "bound") => *bound = Some(Bound::default()),
            Some(Bound { grace_ms: grace @ None, .. }) if is_word(option, "grace") => {
                *grace = milliseconds(|ms| ms >= 0, Error::fixed("ERR GRACE must not be negative"))?;
            }
            Some(Bound { max_ms: max @ None, .. }) if is_word(option, "max") => {
                *max = milliseconds(|ms| ms > 0, Error::fixed("ERR MAX must be positive"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The terms for a lease, if it is long enough.
    pub(super) fn terms(self, lifetime: &[u8]) -> Result<BondTerms> {
        let lease_ms = args::integer(lifetime)?;
        if lease_ms < BOUND_LEASE_MS_MIN {
            return Err(Error::fixed("ERR BOUND needs a PX of 100 milliseconds at least"));
        }
        let Bound { grace_ms, max_ms } = self;
        Ok(BondTerms { lease_ms: lease_ms.unsigned_abs(), grace_ms, max_ms })
    }
}

impl<'a> Acquiring<'a> {
    #[inline]
    pub(super) fn parse(request: Request<'a>) -> Result<Acquiring<'a>> {
        let (token, lifetime) = token_and_lifetime(request)?;
        let (wait, is_again, bound, is_notified, limit, also) =
            (Timeout::None, false, None, false, None, 0..0);
        let mut acquiring = Acquiring { token, lifetime, wait, is_again, bound, is_notified, limit, also };
        if request.len() > WITHOUT_OPTIONS {
            acquiring.read_options(request)?;
        }
        Ok(acquiring)
    }

    fn read_options(&mut self, request: Request<'a>) -> Result<()> {
        let mut options = Options::new(request, WITHOUT_OPTIONS);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "wait") && matches!(self.wait, Timeout::None) => {
                    let timeout_ms = u64::try_from(args::integer(options.value()?)?);
                    let timeout_ms = timeout_ms.map_err(|_| Error::fixed("ERR timeout is negative"))?;
                    self.wait = Timeout::Milliseconds(timeout_ms);
                }
                _ if Bound::read(&mut self.bound, option, &mut options)? => {}
                _ if is_word(option, "again") && !self.is_again => self.is_again = true,
                _ if is_word(option, "notify") && !self.is_notified => self.is_notified = true,
                _ if is_word(option, "shared") && self.limit.is_none() => self.limit = Some(u64::MAX),
                _ if is_word(option, "limit") && self.limit.is_none() => {
                    let limit = args::positive(options.value()?, "ERR LIMIT must be positive")?;
                    self.limit = Some(limit as u64);
                }
                _ if read_also(&mut self.also, option, &mut options, request)? => {}
                _ => return Err(Error::SYNTAX),
            }
        }
        Ok(())
    }

    /// Whether the client waits if it does not get the lock.
    pub(super) fn waits(&self, tx: &Transaction<'_>) -> bool {
        !matches!(self.wait, Timeout::None) && tx.grouping() == Grouping::Alone
    }
}

/// The token and the lifetime of a request whose form is `LOCK name key token PX milliseconds`.
#[inline]
pub(super) fn token_and_lifetime(request: Request<'_>) -> Result<(&[u8], &[u8])> {
    if !is_word(request.at(4), "px") {
        return Err(Error::SYNTAX);
    }
    Ok((token(request)?, request.at(5)))
}

#[inline]
pub(super) fn token(request: Request<'_>) -> Result<&[u8]> {
    match request.at(TOKEN_AT) {
        token if token.len() <= TOKEN_BYTES_MAX => Ok(token),
        _ => Err(Error::fixed("ERR token is too long: it may have 1024 bytes at most")),
    }
}

/// When a lock expires that is taken or extended now, in milliseconds since 1970.
pub(super) fn expiry(tx: &Transaction<'_>, lifetime: &[u8], command: &str) -> Result<u64> {
    let lifetime_ms = args::integer(lifetime)?;
    let moment_ms = Some(lifetime_ms).filter(|ms| *ms > 0).and_then(|ms| tx.expiry_in_ms(ms));
    moment_ms.and_then(|ms| u64::try_from(ms).ok()).ok_or_else(|| Error::invalid_expire(command))
}
