//! The expiry of keys: EXPIRE, TTL, PERSIST and their variants.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};

use crate::commands::args::{self, Options, TimeUnit, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[EXPIRE, EXPIREAT, EXPIRETIME, PERSIST, PEXPIRE, PEXPIREAT, PEXPIRETIME, PTTL, TTL];

/// The facts that most commands of this file share.
const KEY: Command = Command {
    flags: Flags::FAST,
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    ..Command::DEFAULTS
};

const TTL: Command = Command {
    name: "ttl",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the seconds until a key expires: -1 if it never does, -2 if it is absent.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("SET mykey Hello", "OK"), ("EXPIRE mykey 10", "(integer) 1"), ("TTL mykey", "(integer) 10")],
    run: Run::Read(ttl),
    ..KEY
};

fn ttl(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // Rounded as Redis does: a key set to expire in ten seconds still has ten a moment later.
    Ok(reply.integer(remaining(tx, request.at(1), |remaining_ms| (remaining_ms + 500) / 1000)))
}

const PTTL: Command = Command {
    name: "pttl",
    summary: "Returns the milliseconds until a key expires: -1 if it never does, -2 if it is absent.",
    since: "2.6.0",
    example: &[("SET mykey Hello", "OK"), ("PTTL mykey", "(integer) -1"), ("PTTL nosuchkey", "(integer) -2")],
    run: Run::Read(pttl),
    ..TTL
};

fn pttl(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(remaining(tx, request.at(1), |remaining_ms| remaining_ms)))
}

/// The time a key has left, in the unit that `convert` makes of milliseconds.
fn remaining(tx: &Transaction<'_>, key: &[u8], convert: impl Fn(u64) -> u64) -> i64 {
    told(tx, key, |expires_at_ms| convert(tx.remaining_ms(expires_at_ms)))
}

/// The reply for a key's expiry, converted by `convert`; -1 if it never expires, -2 if it is absent.
fn told(tx: &Transaction<'_>, key: &[u8], convert: impl Fn(u64) -> u64) -> i64 {
    match tx.expires_at_ms(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(expires_at_ms)) => convert(expires_at_ms) as i64,
    }
}

const EXPIRE: Command = Command {
    name: "expire",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    locks: LockUse::EXTENDS,
    summary: "Sets a key to expire after a number of seconds; 0 or less deletes it.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::integer("seconds"), ExpireConditions::ARGUMENT],
    example: &[
        ("SET mykey Hello", "OK"),
        ("EXPIRE mykey 10", "(integer) 1"),
        ("TTL mykey", "(integer) 10"),
        ("EXPIRE mykey 20 NX", "(integer) 0"),
        ("EXPIRE nosuchkey 10", "(integer) 0"),
    ],
    run: Run::Write(|tx, request, reply| set_expiry("expire", TimeUnit::SECONDS, tx, request, reply)),
    ..KEY
};

const PEXPIRE: Command = Command {
    name: "pexpire",
    locks: LockUse::EXTENDS,
    summary: "Sets a key to expire after a number of milliseconds; 0 or less deletes it.",
    since: "2.6.0",
    arguments: &[Argument::KEY, Argument::integer("milliseconds"), ExpireConditions::ARGUMENT],
    example: &[
        ("SET mykey Hello", "OK"),
        ("PEXPIRE mykey 1500", "(integer) 1"),
        ("PEXPIRE mykey 1000 GT", "(integer) 0"),
    ],
    run: Run::Write(|tx, request, reply| set_expiry("pexpire", TimeUnit::MILLISECONDS, tx, request, reply)),
    ..EXPIRE
};

/// Sets a key to expire at the moment that the request names.
fn set_expiry(
    command: &str,
    unit: TimeUnit,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let key = request.at(1);
    let conditions = ExpireConditions::parse(request)?;
    let amount = args::integer(request.at(2))?;
    let moment_ms = unit.moment_ms(tx, amount).ok_or_else(|| Error::invalid_expire(command))?;
    let Some(current_ms) = tx.use_expiry(key) else { return Ok(reply.bool(false)) };
    let are_met = conditions.are_met(current_ms, moment_ms);
    if are_met {
        // A moment before 1970 has passed as well as 1970 itself.
        tx.set_expiry(key, Some(u64::try_from(moment_ms).unwrap_or(0)));
    }
    Ok(reply.bool(are_met))
}

/// The options of the EXPIRE family: what must hold for the expiry to be changed.
#[derive(Default)]
struct ExpireConditions {
    has_none: bool,
    has_one: bool,
    is_later: bool,
    is_earlier: bool,
}

impl ExpireConditions {
    /// How they are asked for.
    const ARGUMENT: Argument =
        Argument::one_of("condition", &Argument::words(["NX", "XX", "GT", "LT"])).since("7.0.0").optional();

    fn parse(request: Request<'_>) -> Result<ExpireConditions> {
        let mut conditions = ExpireConditions::default();
        for option in Options::new(request, 3) {
            match option {
                _ if is_word(option, "nx") => conditions.has_none = true,
                _ if is_word(option, "xx") => conditions.has_one = true,
                _ if is_word(option, "gt") => conditions.is_later = true,
                _ if is_word(option, "lt") => conditions.is_earlier = true,
                _ => return Err(Error::quoting("ERR Unsupported option ", option, "")),
            }
        }
        let ExpireConditions { has_none, has_one, is_later, is_earlier } = conditions;
        if has_none && (has_one || is_later || is_earlier) {
            return Err(Error::fixed("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if is_later && is_earlier {
            return Err(Error::fixed("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// A key without an expiry counts as one that expires later than any moment.
    fn are_met(&self, current_ms: Option<u64>, moment_ms: i64) -> bool {
        let current_ms = current_ms.map(|current_ms| current_ms as i64);
        (!self.has_none || current_ms.is_none())
            && (!self.has_one || current_ms.is_some())
            && (!self.is_later || current_ms.is_some_and(|current_ms| moment_ms > current_ms))
            && (!self.is_earlier || current_ms.is_none_or(|current_ms| moment_ms < current_ms))
    }
}

const PERSIST: Command = Command {
    name: "persist",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    locks: LockUse::EXTENDS,
    summary: "Removes the expiry of a key.",
    since: "2.2.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey Hello EX 10", "OK"),
        ("PERSIST mykey", "(integer) 1"),
        ("TTL mykey", "(integer) -1"),
        ("PERSIST mykey", "(integer) 0"),
    ],
    run: Run::Write(persist),
    ..KEY
};

fn persist(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let has_expiry = tx.use_expiry(key).flatten().is_some();
    if has_expiry {
        tx.set_expiry(key, None);
    }
    Ok(reply.bool(has_expiry))
}

const EXPIREAT: Command = Command {
    name: "expireat",
    locks: LockUse::EXTENDS,
    summary: "Sets a key to expire at a Unix time in seconds; a time in the past deletes it.",
    since: "1.2.0",
    arguments: &[Argument::KEY, Argument::unix_time("unix-time-seconds"), ExpireConditions::ARGUMENT],
    example: &[
        ("SET mykey Hello", "OK"),
        ("EXPIREAT mykey 33177117420", "(integer) 1"),
        ("EXPIRETIME mykey", "(integer) 33177117420"),
        ("EXPIREAT mykey 1293840000", "(integer) 1"),
        ("EXISTS mykey", "(integer) 0"),
    ],
    run: Run::Write(|tx, request, reply| set_expiry("expireat", TimeUnit::UNIX_SECONDS, tx, request, reply)),
    ..EXPIRE
};

const PEXPIREAT: Command = Command {
    name: "pexpireat",
    locks: LockUse::EXTENDS,
    summary: "Sets a key to expire at a Unix time in milliseconds; a time in the past deletes it.",
    since: "2.6.0",
    arguments: &[Argument::KEY, Argument::unix_time("unix-time-milliseconds"), ExpireConditions::ARGUMENT],
    example: &[
        ("SET mykey Hello", "OK"),
        ("PEXPIREAT mykey 33177117420000", "(integer) 1"),
        ("PEXPIRETIME mykey", "(integer) 33177117420000"),
    ],
    run: Run::Write(|tx, request, reply| {
        set_expiry("pexpireat", TimeUnit::UNIX_MILLISECONDS, tx, request, reply)
    }),
    ..EXPIRE
};

const EXPIRETIME: Command = Command {
    name: "expiretime",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the Unix time in seconds when a key expires: -1 if it never does, -2 if it is absent.",
    since: "7.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey Hello", "OK"),
        ("EXPIREAT mykey 33177117420", "(integer) 1"),
        ("EXPIRETIME mykey", "(integer) 33177117420"),
    ],
    run: Run::Read(expiretime),
    ..KEY
};

fn expiretime(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(told(tx, request.at(1), |expires_at_ms| (expires_at_ms + 500) / 1000)))
}

const PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    summary: "Returns the Unix time in milliseconds when a key expires: -1 if it never does, -2 if it is absent.",
    example: &[
        ("SET mykey Hello", "OK"),
        ("PEXPIREAT mykey 33177117420000", "(integer) 1"),
        ("PEXPIRETIME mykey", "(integer) 33177117420000"),
    ],
    run: Run::Read(pexpiretime),
    ..EXPIRETIME
};

fn pexpiretime(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(told(tx, request.at(1), |expires_at_ms| expires_at_ms)))
}
