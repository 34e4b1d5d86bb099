//! The expiry of hash fields: HEXPIRE, HTTL, HPERSIST and their variants.
//!
//! Replies and errors are those of Redis 8. A field's expiry has the same rules as a key's: a moment that is
//! not in the future deletes the field, and a field that gets a new value has no expiry any more.

use crate::dump::collections::FIELD_MOMENT_MS_MAX;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::hashes::{Condition, Hash};

use crate::commands::args::{self, TimeUnit, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[HEXPIRE, HEXPIREAT, HEXPIRETIME, HPERSIST, HPEXPIRE, HPEXPIREAT, HPEXPIRETIME, HPTTL, HTTL];

/// The fields of a request, behind their number.
pub(super) const FIELDS: Argument =
    Argument::block("fields", &[Argument::integer("numfields"), Argument::string("field").multiple()])
        .token("FIELDS");

/// The condition for a change of a field's expiry.
const CONDITION: Argument =
    Argument::one_of("condition", &Argument::words(["NX", "XX", "GT", "LT"])).optional();

/// The reply for a field that is absent...
const ABSENT: i64 = -2;
/// ... and for one that never expires.
const NEVER: i64 = -1;
/// The reply for a field whose new moment has passed, so that it was removed.
const REMOVED: i64 = 2;

/// Reads a time as the moment when fields expire, in milliseconds since 1970.
///
/// # Errors
///
/// An error if it is no number, below zero, or too far in the future.
pub(super) fn field_moment_ms(
    unit: TimeUnit,
    tx: &Transaction<'_>,
    argument: &[u8],
    command: &str,
) -> Result<u64> {
    let amount = args::integer(argument)?;
    if amount < 0 {
        return Err(Error::fixed("ERR invalid expire time, must be >= 0"));
    }
    match unit.moment_ms(tx, amount).map(i64::cast_unsigned) {
        // 0 is the moment at which all fields are there.
        Some(moment_ms @ 0..=FIELD_MOMENT_MS_MAX) => Ok(moment_ms.max(1)),
        // The log of another server may have later ones.
        _ if tx.is_replay() => Ok(FIELD_MOMENT_MS_MAX),
        _ => Err(Error::invalid_expire(command)),
    }
}

/// The facts that most commands of this file share.
const HASH: Command =
    Command { flags: Flags::FAST, categories: Categories::HASH, group: Group::HASH, ..Command::DEFAULTS };

const HEXPIRE: Command = Command {
    name: "hexpire",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets hash fields to expire after a number of seconds.",
    since: "7.4.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("seconds"), CONDITION, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HEXPIRE myhash 10 FIELDS 2 a none", "[(integer) 1, (integer) -2]"),
        ("HTTL myhash FIELDS 2 a b", "[(integer) 10, (integer) -1]"),
    ],
    run: Run::Write(|tx, request, reply| expire("hexpire", TimeUnit::SECONDS, tx, request, reply)),
    ..HASH
};

const HPEXPIRE: Command = Command {
    name: "hpexpire",
    summary: "Sets hash fields to expire after a number of milliseconds.",
    arguments: &[Argument::KEY, Argument::integer("milliseconds"), CONDITION, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HPEXPIRE myhash 10000 FIELDS 1 a", "[(integer) 1]"),
        ("HPEXPIRE myhash 5000 GT FIELDS 1 a", "[(integer) 0]"),
    ],
    run: Run::Write(|tx, request, reply| expire("hpexpire", TimeUnit::MILLISECONDS, tx, request, reply)),
    ..HEXPIRE
};

const HEXPIREAT: Command = Command {
    name: "hexpireat",
    summary: "Sets hash fields to expire at a Unix time in seconds.",
    arguments: &[Argument::KEY, Argument::unix_time("unix-time-seconds"), CONDITION, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HEXPIREAT myhash 33177117420 FIELDS 1 a", "[(integer) 1]"),
        ("HEXPIREAT myhash 1 FIELDS 1 b", "[(integer) 2]"),
        ("HKEYS myhash", "[\"a\"]"),
    ],
    run: Run::Write(|tx, request, reply| expire("hexpireat", TimeUnit::UNIX_SECONDS, tx, request, reply)),
    ..HEXPIRE
};

const HPEXPIREAT: Command = Command {
    name: "hpexpireat",
    summary: "Sets hash fields to expire at a Unix time in milliseconds.",
    arguments: &[Argument::KEY, Argument::unix_time("unix-time-milliseconds"), CONDITION, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HPEXPIREAT myhash 33177117420123 FIELDS 1 a", "[(integer) 1]"),
        ("HPEXPIRETIME myhash FIELDS 1 a", "[(integer) 33177117420123]"),
    ],
    run: Run::Write(|tx, request, reply| {
        expire("hpexpireat", TimeUnit::UNIX_MILLISECONDS, tx, request, reply)
    }),
    ..HEXPIRE
};

/// Makes fields expire at the moment that the request names, if they meet its condition.
fn expire(
    command: &str,
    unit: TimeUnit,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let key = request.at(1);
    tx.peek::<Hash>(key)?;
    let moment_ms = field_moment_ms(unit, tx, request.at(2), command)?;
    let (condition, fields) = parse_expire(request)?;
    let is_over = tx.is_over(moment_ms);
    let event = if is_over { "hdel" } else { "hexpire" };
    let mut replies = Vec::with_capacity(fields.len());
    tx.change::<Hash, _>(key, event, |hash| {
        let mut changed = Vec::new();
        for field in fields.iter(request) {
            let is_met =
                |current_ms| condition.is_none_or(|condition| condition.is_met(current_ms, moment_ms));
            replies.push(match hash.view().expires_at_ms(field) {
                None => ABSENT,
                Some(current_ms) if !is_met(current_ms) => 0,
                Some(_) if is_over => {
                    hash.remove(field);
                    REMOVED
                }
                Some(_) => {
                    hash.set_moment(field, Some(moment_ms));
                    changed.push(field);
                    1
                }
            });
        }
        hash.note_moments(&changed, moment_ms);
    })?;
    tx.count_expired_fields(replies.iter().filter(|reply| **reply == REMOVED).count());
    replies.resize(fields.len(), ABSENT);
    Ok(reply.array_of(replies.into_iter(), |number, reply| reply.integer(number)))
}

/// The places of the fields that a request names, or of its pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    first: usize,
    count: usize,
}

impl Fields {
    /// How many there are.
    pub(super) fn len(self) -> usize {
        self.count
    }

    /// The fields, in the order of the request.
    pub(in crate::commands) fn iter<'r>(self, request: Request<'r>) -> impl Iterator<Item = &'r [u8]> {
        (self.first..self.first + self.count).map(move |at| request.at(at))
    }

    /// Fields and values in turn.
    pub(super) fn pairs<'r>(
        self,
        request: Request<'r>,
    ) -> impl Iterator<Item = (&'r [u8], &'r [u8])> + Clone {
        (0..self.count).map(move |at| (request.at(self.first + 2 * at), request.at(self.first + 2 * at + 1)))
    }

    /// Reads the number of fields at a place of a request, which the caller has found to be there, and where
    /// they are. Each takes `arguments` arguments.
    ///
    /// # Errors
    ///
    /// `error` if it is no number above zero; another one if there are fewer fields.
    pub(super) fn after(
        request: Request<'_>,
        at: usize,
        arguments: usize,
        error: &'static str,
    ) -> Result<Fields> {
        let left = request.len() - at;
        let count = args::positive(request.at(at), error)?;
        // Redis has 31 bits for it.
        if i32::try_from(count).is_err() {
            return Err(Error::fixed(error));
        }
        if count * arguments > left - 1 {
            return Err(Error::fixed("ERR wrong number of arguments"));
        }
        Ok(Fields { first: at + 1, count })
    }

    /// The place behind them, if each takes `arguments` arguments.
    pub(super) fn end(self, arguments: usize) -> usize {
        self.first + self.count * arguments
    }

    /// Reads `FIELDS number field ...` at the end of a request, with nothing in front or behind.
    ///
    /// # Errors
    ///
    /// An error if it is not there, or not the number of the fields that follow.
    pub(super) fn at_end(request: Request<'_>) -> Result<Fields> {
        if !is_word(request.at(2), "fields") {
            return Err(Error::fixed(
                "ERR Mandatory argument FIELDS is missing or not at the right position",
            ));
        }
        let count = args::positive(request.at(3), "ERR Number of fields must be a positive integer")?;
        if count != request.len() - 4 {
            return Err(Error::fixed("ERR The `numfields` parameter must match the number of arguments"));
        }
        Ok(Fields { first: 4, count })
    }
}

/// Reads the condition and the fields of a request, which may come in any order.
fn parse_expire(request: Request<'_>) -> Result<(Option<Condition>, Fields)> {
    let (mut conditions, mut fields) = (Vec::new(), None);
    let mut at = 3;
    while let Some(option) = request.get(at) {
        at += 1;
        let named = match option {
            _ if is_word(option, "nx") => Condition::HasNone,
            _ if is_word(option, "xx") => Condition::HasOne,
            _ if is_word(option, "gt") => Condition::IsLater,
            _ if is_word(option, "lt") => Condition::IsEarlier,
            _ if is_word(option, "fields") => {
                if request.len() < at + 2 {
                    return Err(Error::fixed(
                        "ERR FIELDS requires at least numfields and one field argument",
                    ));
                }
                let read =
                    Fields::after(request, at, 1, "ERR Parameter `numFields` should be greater than 0")?;
                at = read.end(1);
                only_once(&mut fields, read)?;
                continue;
            }
            _ => return Err(Error::quoting("ERR unknown argument: ", option, "")),
        };
        if !conditions.contains(&named) {
            conditions.push(named);
        }
    }
    let fields = fields.ok_or(MISSING_FIELDS)?;
    match conditions[..] {
        [] => Ok((None, fields)),
        [condition] => Ok((Some(condition), fields)),
        _ => Err(Error::fixed("ERR Multiple condition flags specified")),
    }
}

/// The error of a request without fields.
pub(super) const MISSING_FIELDS: Error = Error::fixed("ERR missing FIELDS argument");

/// Keeps the fields of a request, which it must name only once.
pub(super) fn only_once(fields: &mut Option<Fields>, read: Fields) -> Result<()> {
    match fields.replace(read) {
        None => Ok(()),
        Some(_) => Err(Error::fixed("ERR FIELDS keyword specified multiple times")),
    }
}

const HTTL: Command = Command {
    name: "httl",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the seconds until hash fields expire: -1 if never, -2 if the field is absent.",
    since: "7.4.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HEXPIRE myhash 10 FIELDS 1 a", "[(integer) 1]"),
        ("HTTL myhash FIELDS 3 a b none", "[(integer) 10, (integer) -1, (integer) -2]"),
    ],
    run: Run::Read(|tx, request, reply| told(tx, request, reply, |_, left_ms| left_ms.div_ceil(1000))),
    ..HASH
};

const HPTTL: Command = Command {
    name: "hpttl",
    summary: "Returns the milliseconds until hash fields expire: -1 if never, -2 if the field is absent.",
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HPTTL myhash FIELDS 2 a none", "[(integer) -1, (integer) -2]"),
    ],
    run: Run::Read(|tx, request, reply| told(tx, request, reply, |_, left_ms| left_ms)),
    ..HTTL
};

const HEXPIRETIME: Command = Command {
    name: "hexpiretime",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the Unix times in seconds when hash fields expire: -1 if never, -2 if absent.",
    since: "7.4.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HEXPIREAT myhash 33177117420 FIELDS 1 a", "[(integer) 1]"),
        ("HEXPIRETIME myhash FIELDS 2 a b", "[(integer) 33177117420, (integer) -1]"),
    ],
    run: Run::Read(|tx, request, reply| told(tx, request, reply, |at_ms, _| at_ms.div_ceil(1000))),
    ..HASH
};

const HPEXPIRETIME: Command = Command {
    name: "hpexpiretime",
    summary: "Returns the Unix times in milliseconds when hash fields expire: -1 if never, -2 if absent.",
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HPEXPIREAT myhash 33177117420123 FIELDS 1 a", "[(integer) 1]"),
        ("HPEXPIRETIME myhash FIELDS 2 a b", "[(integer) 33177117420123, (integer) -1]"),
    ],
    run: Run::Read(|tx, request, reply| told(tx, request, reply, |at_ms, _| at_ms)),
    ..HEXPIRETIME
};

/// Replies for each field with what `convert` makes of its moment and of the milliseconds until then.
fn told(
    tx: &Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
    convert: fn(u64, u64) -> u64,
) -> Result {
    let hash = tx.get::<Hash>(request.at(1))?;
    let fields = Fields::at_end(request)?;
    let number = |field| match hash.and_then(|hash| hash.expires_at_ms(field)) {
        None => ABSENT,
        Some(None) => NEVER,
        // In a replay, fields are seen whose moments have passed.
        Some(Some(at_ms)) => convert(at_ms, tx.remaining_ms(at_ms)) as i64,
    };
    Ok(reply.array_of_len(fields.len(), fields.iter(request), |field, reply| reply.integer(number(field))))
}

const HPERSIST: Command = Command {
    name: "hpersist",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Removes the expiry of hash fields.",
    since: "7.4.0",
    complexity: "O(N) where N is the number of specified fields",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, FIELDS],
    example: &[
        ("HSET myhash a Hello b World", "(integer) 2"),
        ("HEXPIRE myhash 10 FIELDS 1 a", "[(integer) 1]"),
        ("HPERSIST myhash FIELDS 3 a b none", "[(integer) 1, (integer) -1, (integer) -2]"),
    ],
    run: Run::Write(hpersist),
    ..HASH
};

fn hpersist(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    tx.peek::<Hash>(key)?;
    let fields = Fields::at_end(request)?;
    let mut replies = Vec::with_capacity(fields.len());
    tx.change::<Hash, _>(key, "hpersist", |hash| {
        let mut changed = Vec::new();
        for field in fields.iter(request) {
            replies.push(match hash.view().expires_at_ms(field) {
                None => ABSENT,
                Some(None) => NEVER,
                Some(Some(_)) => {
                    hash.set_moment(field, None);
                    changed.push(field);
                    1
                }
            });
        }
        hash.note_persisted(&changed);
    })?;
    replies.resize(fields.len(), ABSENT);
    Ok(reply.array_of(replies.into_iter(), |number, reply| reply.integer(number)))
}
