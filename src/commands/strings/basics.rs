//! Strings: SETNX, SET, GET and their variants.

use crate::digest;
use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request, Sent};
use crate::types::strings::Text;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, LockUse, Prepares, Result,
    Run,
};
use crate::values::STRING_KIND;

pub(in crate::commands) const COMMANDS: &[Command] = &[GET, GETDEL, GETEX, GETSET, PSETEX, SET, SETEX, SETNX];

/// The facts that most commands of this file share.
const STRING: Command = Command { categories: Categories::STRING, group: Group::STRING, ..Command::DEFAULTS };

const SETNX: Command = Command {
    name: "setnx",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::INSERT))],
    locks: LockUse::REWRITES,
    summary: "Sets a key to a string only if the key is absent; returns 1 if it was set, 0 if not.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    prepares: Prepares::Texts,
    deprecated: Some(Deprecated { since: "2.6.12", replaced_by: "`SET` with the `NX` argument" }),
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("SETNX mykey Hello", "(integer) 1"),
        ("SETNX mykey World", "(integer) 0"),
        ("GET mykey", "\"Hello\""),
    ],
    run: Run::Write(setnx),
    ..STRING
};

fn setnx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let is_inserted = tx.insert_if_absent(key, request.at(2), Expiry::Never);
    if is_inserted {
        tell_of_write(tx, key, Expiry::Never);
    }
    Ok(reply.bool(is_inserted))
}

/// Emits the events of a written string: `set`, and `expire` if it has an expiry.
#[inline(always)]
pub(in crate::commands) fn tell_of_write(tx: &Transaction<'_>, key: &[u8], expiry: Expiry) {
    tx.event(EventClass::STRING, "set", key);
    if let Expiry::At(_) = expiry {
        tx.event(EventClass::GENERIC, "expire", key);
    }
}

const GET: Command = Command {
    name: "get",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns the string at a key.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("GET nonexisting", "(nil)"), ("SET mykey Hello", "OK"), ("GET mykey", "\"Hello\"")],
    run: Run::Read(get),
    ..STRING
};

fn get(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    Ok(reply_text(tx, key, tx.get::<Text>(key)?, reply))
}

/// Replies with the string of a key, or with null.
#[inline(always)]
pub(super) fn reply_text(tx: &Transaction<'_>, key: &[u8], text: Option<&[u8]>, reply: Reply<'_>) -> Sent {
    match text {
        Some(text) => tx.reply_text(key, text, 0..text.len(), reply),
        None => reply.nil(),
    }
}

const GETSET: Command = Command {
    name: "getset",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    locks: LockUse::REWRITES.and(LockUse::TAKES_OVER),
    summary: "Sets a key to a string and returns the old string, in one atomic step.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    prepares: Prepares::Texts,
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`SET` with the `!GET` argument" }),
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("INCR mycounter", "(integer) 1"),
        ("GETSET mycounter 0", "\"1\""),
        ("GET mycounter", "\"0\""),
    ],
    run: Run::Write(getset),
    ..STRING
};

fn getset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let sent = reply_text(tx, key, tx.get::<Text>(key)?, reply);
    tx.event_of_replacing(key, STRING_KIND);
    tx.put(key, request.at(2), Expiry::Never);
    tell_of_write(tx, key, Expiry::Never);
    Ok(sent)
}

const SET: Command = Command {
    name: "set",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(
        KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE).and(KeyFlags::VARIABLE_FLAGS),
    )
    .variable(set_key_flags)
    .noted("RW and ACCESS due to the optional `GET` argument")],
    locks: LockUse::REWRITES.and(LockUse::MAY_COMPARE),
    summary: "Sets a key to a string, replacing any value; takes conditions and an expiry.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    prepares: Prepares::Texts,
    arguments: &[
        Argument::KEY,
        Argument::string("value"),
        Argument::one_of(
            "condition",
            &[
                Argument::word("NX"),
                Argument::word("XX"),
                Argument::string("ifeq-value").token("IFEQ").since("8.4.0"),
                Argument::string("ifne-value").token("IFNE").since("8.4.0"),
                Argument::integer("ifdeq-digest").token("IFDEQ").since("8.4.0"),
                Argument::integer("ifdne-digest").token("IFDNE").since("8.4.0"),
            ],
        )
        .since("2.6.12")
        .optional(),
        Argument::word("GET").since("6.2.0").optional(),
        Expires::ARGUMENT,
    ],
    example: &[
        ("SET mykey Hello", "OK"),
        ("GET mykey", "\"Hello\""),
        ("SET mykey World NX", "(nil)"),
        ("SET mykey World XX GET", "\"Hello\""),
        ("SET mykey Moon IFEQ World", "OK"),
        ("SET anotherkey \"will expire in a minute\" EX 60", "OK"),
        ("TTL anotherkey", "(integer) 60"),
    ],
    run: Run::Write(set),
    ..STRING
};

fn set(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = SetOptions::parse(request)?;
    let (key, value) = (request.at(1), request.at(2));
    let expiry = options.expires.resolve("set", tx)?;
    if options.answers_old_value {
        let old = tx.get::<Text>(key)?;
        let is_met = options.presence.is_met(old)? && options.condition.is_met(old)?;
        let sent = reply_text(tx, key, old, reply);
        if is_met {
            // An absent key that comes to be so may be a lock.
            match options.condition {
                Condition::Absent => _ = tx.insert_if_absent(key, value, expiry),
                _ => {
                    tx.event_of_replacing(key, STRING_KIND);
                    tx.put(key, value, expiry);
                }
            }
            tell_of_write(tx, key, expiry);
        }
        return Ok(sent);
    }
    let is_written = match options.condition {
        Condition::Absent => tx.insert_if_absent(key, value, expiry),
        condition => {
            let is_met = options.presence.is_met_by(tx, key)? && condition.is_met_by(tx, key)?;
            match is_met {
                true => {
                    tx.event_of_replacing(key, STRING_KIND);
                    tx.put(key, value, expiry);
                }
                false => tx.follow_unmet(key),
            }
            is_met
        }
    };
    if !is_written {
        return Ok(reply.nil());
    }
    tell_of_write(tx, key, expiry);
    Ok(reply.ok())
}

/// The options of SET.
struct SetOptions<'a> {
    condition: Condition<'a>,
    /// Whether the key must be there, or not, beside a condition that only Redis has.
    presence: Condition<'a>,
    answers_old_value: bool,
    expires: Expires<'a>,
}

/// The condition for writing or deleting a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Condition<'a> {
    /// The request states no condition.
    None,
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key is present, with this value.
    Equal(&'a [u8]),
    /// The key is absent, or has another value.
    Unequal(&'a [u8]),
    /// The key is present, with a value of this digest.
    EqualDigest(&'a [u8]),
    /// The key is absent, or its value has another digest.
    UnequalDigest(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// The condition on the value that an option asks for, if it is one.
    pub(super) fn of_value(option: &[u8], options: &mut Options<'a>) -> Result<Option<Condition<'a>>> {
        Ok(Some(match option {
            _ if is_word(option, "ifdeq") => Condition::EqualDigest(options.value()?),
            _ if is_word(option, "ifdne") => Condition::UnequalDigest(options.value()?),
            _ if is_word(option, "ifeq") => Condition::Equal(options.value()?),
            _ if is_word(option, "ifne") => Condition::Unequal(options.value()?),
            _ => return Ok(None),
        }))
    }

    /// Takes up another condition; only one can be asked for, though NX and XX may be repeated.
    pub(in crate::commands) fn or(self, asked: Condition<'a>) -> Result<Condition<'a>> {
        let is_repeated = self == asked && matches!(asked, Condition::Absent | Condition::Present);
        if self == Condition::None || is_repeated { Ok(asked) } else { Err(Error::SYNTAX) }
    }

    /// Whether it holds for a key, for a command that writes. What only asks whether the key is there is
    /// blind to types.
    ///
    /// # Errors
    ///
    /// [`Error::WRONG_TYPE`]
    #[inline(always)]
    pub(super) fn is_met_by(self, tx: &Transaction<'_>, key: &[u8]) -> Result<bool> {
        if let Condition::None = self { Ok(true) } else { self.is_met_there(tx, key) }
    }

    fn is_met_there(self, tx: &Transaction<'_>, key: &[u8]) -> Result<bool> {
        Ok(match self {
            Condition::None => true,
            Condition::Absent => !tx.is_there(key),
            Condition::Present => tx.is_there(key),
            _ => self.is_met(tx.peek::<Text>(key)?)?,
        })
    }

    /// Whether it holds for a key with this value.
    ///
    /// # Errors
    ///
    /// [`Error::NOT_A_DIGEST`]
    pub(super) fn is_met(self, value: Option<&[u8]>) -> Result<bool> {
        Ok(match self {
            Condition::None => true,
            Condition::Absent => value.is_none(),
            Condition::Present => value.is_some(),
            Condition::Equal(expected) => value == Some(expected),
            Condition::Unequal(other) => value != Some(other),
            Condition::EqualDigest(expected) => has_digest(value, expected)?,
            Condition::UnequalDigest(other) => !has_digest(value, other)?,
        })
    }
}

/// Whether a value is there and has this digest. As in Redis, only the length of the text is checked, and
/// only if there is a value.
fn has_digest(value: Option<&[u8]>, text: &[u8]) -> Result<bool> {
    match value {
        None => Ok(false),
        Some(_) if text.len() != digest::DIGITS => Err(Error::NOT_A_DIGEST),
        Some(value) => Ok(digest::parse(text) == Some(digest::digest(value))),
    }
}

impl<'a> SetOptions<'a> {
    fn parse(request: Request<'a>) -> Result<SetOptions<'a>> {
        let mut parsed = SetOptions {
            condition: Condition::None,
            presence: Condition::None,
            answers_old_value: false,
            expires: Expires::Never,
        };
        let mut options = Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "nx") => parsed.be(Condition::Absent)?,
                _ if is_word(option, "xx") => parsed.be(Condition::Present)?,
                _ if is_word(option, "get") => parsed.answers_old_value = true,
                _ => match Condition::of_value(option, &mut options)? {
                    Some(asked) => parsed.condition = parsed.condition.or(asked)?,
                    None => parsed.expires = parsed.expires.or(option, &mut options)?,
                },
            }
        }
        Ok(parsed)
    }

    /// Takes up NX or XX. Behind IFEQ they are an error as in Valkey, behind the conditions that only Redis
    /// has they must hold, too.
    fn be(&mut self, asked: Condition<'a>) -> Result<()> {
        let place = match self.condition {
            Condition::Unequal(_) | Condition::EqualDigest(_) | Condition::UnequalDigest(_) => {
                &mut self.presence
            }
            _ => &mut self.condition,
        };
        *place = place.or(asked)?;
        Ok(())
    }
}

/// When a key is to expire, as it was asked.
#[derive(Clone, Copy)]
pub(super) enum Expires<'a> {
    /// The key does not expire; an earlier expiry is removed.
    Never,
    /// When it did before.
    Keep,
    /// After this time from now.
    In { amount: &'a [u8], unit_ms: i64 },
    /// At a moment.
    At { amount: &'a [u8], unit_ms: i64 },
}

impl Expires<'_> {
    /// How it is asked for.
    pub(super) const ARGUMENT: Argument = Argument::one_of(
        "expiration",
        &[
            Argument::integer("seconds").token("EX").since("2.6.12"),
            Argument::integer("milliseconds").token("PX").since("2.6.12"),
            Argument::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
            Argument::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
            Argument::word("KEEPTTL").since("6.0.0"),
        ],
    )
    .optional();
}

impl<'a> Expires<'a> {
    /// Takes up an option, unless another kind of expiry was asked for before it.
    pub(in crate::commands) fn or(self, option: &[u8], options: &mut Options<'a>) -> Result<Expires<'a>> {
        let mut amount = || options.value();
        let asked = match option {
            _ if is_word(option, "keepttl") => Expires::Keep,
            _ if is_word(option, "ex") => Expires::In { amount: amount()?, unit_ms: 1000 },
            _ if is_word(option, "px") => Expires::In { amount: amount()?, unit_ms: 1 },
            _ if is_word(option, "exat") => Expires::At { amount: amount()?, unit_ms: 1000 },
            _ if is_word(option, "pxat") => Expires::At { amount: amount()?, unit_ms: 1 },
            _ => return Err(Error::SYNTAX),
        };
        if matches!(self, Expires::Never) || self.is_same_option(asked) {
            Ok(asked)
        } else {
            Err(Error::SYNTAX)
        }
    }

    fn is_same_option(self, other: Expires<'_>) -> bool {
        match (self, other) {
            (Expires::Keep, Expires::Keep) => true,
            (Expires::In { unit_ms: one, .. }, Expires::In { unit_ms: two, .. })
            | (Expires::At { unit_ms: one, .. }, Expires::At { unit_ms: two, .. }) => one == two,
            _ => false,
        }
    }

    /// The moment meant, which must lie after 1970 and within the range of Redis's clock.
    pub(super) fn resolve(self, command: &str, tx: &Transaction<'_>) -> Result<Expiry> {
        let (amount, unit_ms, is_relative) = match self {
            Expires::Never => return Ok(Expiry::Never),
            Expires::Keep => return Ok(Expiry::Keep),
            Expires::In { amount, unit_ms } => (amount, unit_ms, true),
            Expires::At { amount, unit_ms } => (amount, unit_ms, false),
        };
        let amount = args::integer(amount)?;
        let amount_ms = amount.checked_mul(unit_ms);
        let moment_ms = if is_relative { amount_ms.and_then(|ms| tx.expiry_in_ms(ms)) } else { amount_ms };
        match moment_ms {
            Some(moment_ms) if amount > 0 => Ok(Expiry::At(moment_ms as u64)),
            _ => Err(Error::invalid_expire(command)),
        }
    }
}

/// SET reads its key only if asked for the old value.
fn set_key_flags(request: Request<'_>) -> KeyFlags {
    // As in Redis, a value that reads like one of these words counts as this word.
    let has = |word| request.from(3).any(|option| is_word(option, word));
    if has("get") {
        KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE)
    } else if ["ifeq", "ifne", "ifdeq", "ifdne"].into_iter().any(has) {
        KeyFlags::RW.and(KeyFlags::UPDATE)
    } else {
        KeyFlags::OW.and(KeyFlags::UPDATE)
    }
}

const GETDEL: Command = Command {
    name: "getdel",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::DELETE))],
    locks: LockUse::DELETES,
    summary: "Returns the string at a key and deletes the key, in one atomic step.",
    since: "6.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("SET mykey Hello", "OK"), ("GETDEL mykey", "\"Hello\""), ("GET mykey", "(nil)")],
    run: Run::Write(getdel),
    ..STRING
};

fn getdel(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let found = tx.get::<Text>(key)?;
    let is_there = found.is_some();
    let sent = reply_text(tx, key, found, reply);
    if is_there && tx.remove(key) {
        tx.event(EventClass::GENERIC, "del", key);
    }
    Ok(sent)
}

/// The expiry that GETEX and INCREX set or take off, as COMMAND DOCS prints it.
pub(super) const EXPIRATION: Argument = Argument::one_of(
    "expiration",
    &[
        Argument::integer("seconds").token("EX"),
        Argument::integer("milliseconds").token("PX"),
        Argument::unix_time("unix-time-seconds").token("EXAT"),
        Argument::unix_time("unix-time-milliseconds").token("PXAT"),
        Argument::word("PERSIST"),
    ],
)
.optional();

const GETEX: Command = Command {
    name: "getex",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))
        .noted("RW and UPDATE because it changes the TTL")],
    locks: LockUse::EXTENDS,
    summary: "Returns the string at a key and sets or removes the key's expiry.",
    since: "6.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, EXPIRATION],
    example: &[
        ("SET mykey Hello", "OK"),
        ("GETEX mykey EX 60", "\"Hello\""),
        ("TTL mykey", "(integer) 60"),
        ("GETEX mykey PERSIST", "\"Hello\""),
        ("TTL mykey", "(integer) -1"),
    ],
    run: Run::Write(getex),
    ..STRING
};

fn getex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let (mut expires, mut persists) = (Expires::Never, false);
    let mut options = Options::new(request, 2);
    while let Some(option) = options.next() {
        match option {
            _ if is_word(option, "persist") && matches!(expires, Expires::Never) => persists = true,
            _ if persists || is_word(option, "keepttl") => return Err(Error::SYNTAX),
            _ => expires = expires.or(option, &mut options)?,
        }
    }
    let Some(value) = tx.get::<Text>(key)? else { return Ok(reply.nil()) };
    let expiry = expires.resolve("getex", tx)?;
    let sent = reply_text(tx, key, Some(value), reply);
    match expiry {
        Expiry::At(expires_at_ms) => tx.set_expiry(key, Some(expires_at_ms)),
        _ if persists && tx.peek_expiry(key).flatten().is_some() => tx.set_expiry(key, None),
        _ => {}
    }
    Ok(sent)
}

const SETEX: Command = Command {
    name: "setex",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE))],
    locks: LockUse::REWRITES,
    summary: "Sets a key to a string that expires after a number of seconds.",
    since: "2.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    prepares: Prepares::Texts,
    deprecated: Some(Deprecated { since: "2.6.12", replaced_by: "`SET` with the `EX` argument" }),
    arguments: &[Argument::KEY, Argument::integer("seconds"), Argument::string("value")],
    example: &[
        ("SETEX mykey 10 Hello", "OK"),
        ("TTL mykey", "(integer) 10"),
        ("SETEX mykey 0 Hello", "(error) ERR invalid expire time in 'setex' command"),
    ],
    run: Run::Write(setex),
    ..STRING
};

fn setex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    set_for("setex", 1000, tx, request, reply)
}

const PSETEX: Command = Command {
    name: "psetex",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::UPDATE))],
    locks: LockUse::REWRITES,
    summary: "Sets a key to a string that expires after a number of milliseconds.",
    since: "2.6.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    prepares: Prepares::Texts,
    deprecated: Some(Deprecated { since: "2.6.12", replaced_by: "`SET` with the `PX` argument" }),
    arguments: &[Argument::KEY, Argument::integer("milliseconds"), Argument::string("value")],
    example: &[("PSETEX mykey 10000 Hello", "OK"), ("TTL mykey", "(integer) 10"), ("GET mykey", "\"Hello\"")],
    run: Run::Write(psetex),
    ..STRING
};

fn psetex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    set_for("psetex", 1, tx, request, reply)
}

fn set_for(
    command: &str,
    unit_ms: i64,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let expiry = Expires::In { amount: request.at(2), unit_ms }.resolve(command, tx)?;
    tx.event_of_replacing(request.at(1), STRING_KIND);
    tx.put(request.at(1), request.at(3), expiry);
    tell_of_write(tx, request.at(1), expiry);
    Ok(reply.ok())
}
