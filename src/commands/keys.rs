//! Keys of any type: whether they are there, and until when.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};

use super::args::{self, Options, is_word};
use super::command::{Argument, Arity, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};
use super::error::Error;

pub(super) const COMMANDS: &[Command] = &[DEL, EXISTS, EXPIRE, PERSIST, PEXPIRE, PTTL, TTL, TYPE];

const DEL: Command = Command {
    name: "del",
    arity: Arity::AtLeast(2),
    keys: &[KeySpec::every(1, KeyFlags::RM.and(KeyFlags::DELETE))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Deletes keys; answers how many of them were there.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys that will be removed. When a key to remove holds a value other than a string, the individual complexity for this key is O(M) where M is the number of elements in the list, set, sorted set or hash. Removing a single key that holds a string value is O(1).",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[("SET key1 Hello", "OK"), ("SET key2 World", "OK"), ("DEL key1 key2 key3", "(integer) 2")],
    run: Run::Write(del),
    ..Command::DEFAULTS
};

fn del(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(request.from(1).filter(|key| tx.remove(key)).count()))
}

const EXISTS: Command = Command {
    name: "exists",
    arity: Arity::AtLeast(2),
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RO)],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Counts how many of these keys are there; one named twice counts twice.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys to check.",
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SET key1 Hello", "OK"),
        ("EXISTS key1", "(integer) 1"),
        ("EXISTS nosuchkey", "(integer) 0"),
        ("SET key2 World", "OK"),
        ("EXISTS key1 key2 nosuchkey", "(integer) 2"),
    ],
    run: Run::Read(exists),
    ..Command::DEFAULTS
};

fn exists(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(request.from(1).filter(|key| tx.exists(key)).count()))
}

const TYPE: Command = Command {
    name: "type",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Tells the type of a key's value; `none` if it is absent.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[Argument::KEY],
    example: &[("SET key1 value", "OK"), ("TYPE key1", "string"), ("TYPE nosuchkey", "none")],
    run: Run::Read(kind),
    ..Command::DEFAULTS
};

fn kind(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.simple(if tx.exists(request.at(1)) { "string" } else { "none" }))
}

const TTL: Command = Command {
    name: "ttl",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Tells in how many seconds a key expires: -1 for never, -2 if it is absent.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("SET mykey Hello", "OK"), ("EXPIRE mykey 10", "(integer) 1"), ("TTL mykey", "(integer) 10")],
    run: Run::Read(ttl),
    ..Command::DEFAULTS
};

fn ttl(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // Rounded as Redis does: a key set to expire in ten seconds still has ten a moment later.
    Ok(reply.integer(remaining(tx, request.at(1), |remaining_ms| (remaining_ms + 500) / 1000)))
}

const PTTL: Command = Command {
    name: "pttl",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Tells in how many milliseconds a key expires: -1 for never, -2 if it is absent.",
    since: "2.6.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    example: &[("SET mykey Hello", "OK"), ("PTTL mykey", "(integer) -1"), ("PTTL nosuchkey", "(integer) -2")],
    run: Run::Read(pttl),
    ..Command::DEFAULTS
};

fn pttl(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(remaining(tx, request.at(1), |remaining_ms| remaining_ms)))
}

/// The time a key has left, in the unit that `convert` makes of milliseconds.
fn remaining(tx: &Transaction<'_>, key: &[u8], convert: impl Fn(i64) -> i64) -> i64 {
    match tx.expires_at_ms(key) {
        None => -2,
        Some(None) => -1,
        Some(Some(expires_at_ms)) => convert(expires_at_ms.saturating_sub(tx.now_ms()) as i64),
    }
}

const EXPIRE: Command = Command {
    name: "expire",
    arity: Arity::AtLeast(3),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Makes a key expire in so many seconds; one that is not in the future deletes it.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[
        Argument::KEY,
        Argument::integer("seconds"),
        Argument::one_of(
            "condition",
            &[
                Argument::pure_token("nx", "NX"),
                Argument::pure_token("xx", "XX"),
                Argument::pure_token("gt", "GT"),
                Argument::pure_token("lt", "LT"),
            ],
        )
        .since("7.0.0")
        .optional(),
    ],
    example: &[
        ("SET mykey Hello", "OK"),
        ("EXPIRE mykey 10", "(integer) 1"),
        ("TTL mykey", "(integer) 10"),
        ("EXPIRE mykey 20 NX", "(integer) 0"),
        ("EXPIRE nosuchkey 10", "(integer) 0"),
    ],
    run: Run::Write(expire),
    ..Command::DEFAULTS
};

fn expire(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    expire_in("expire", 1000, tx, request, reply)
}

const PEXPIRE: Command = Command {
    name: "pexpire",
    arity: Arity::AtLeast(3),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Makes a key expire in so many milliseconds; one that is not in the future deletes it.",
    since: "2.6.0",
    complexity: "O(1)",
    arguments: &[
        Argument::KEY,
        Argument::integer("milliseconds"),
        Argument::one_of(
            "condition",
            &[
                Argument::pure_token("nx", "NX"),
                Argument::pure_token("xx", "XX"),
                Argument::pure_token("gt", "GT"),
                Argument::pure_token("lt", "LT"),
            ],
        )
        .since("7.0.0")
        .optional(),
    ],
    example: &[
        ("SET mykey Hello", "OK"),
        ("PEXPIRE mykey 1500", "(integer) 1"),
        ("PEXPIRE mykey 1000 GT", "(integer) 0"),
    ],
    run: Run::Write(pexpire),
    ..Command::DEFAULTS
};

fn pexpire(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    expire_in("pexpire", 1, tx, request, reply)
}

fn expire_in(
    command: &str,
    unit_ms: i64,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let key = request.at(1);
    let conditions = ExpireConditions::parse(request)?;
    let amount = args::integer(request.at(2))?;
    let delay_ms = amount.checked_mul(unit_ms).ok_or_else(|| Error::invalid_expire(command))?;
    let moment_ms = delay_ms.checked_add(tx.now_ms() as i64).ok_or_else(|| Error::invalid_expire(command))?;
    let Some(current_ms) = tx.expires_at_ms(key) else { return Ok(reply.bool(false)) };
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
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::KEYSPACE,
    group: Group::Generic,
    summary: "Takes the expiry off a key.",
    since: "2.2.0",
    complexity: "O(1)",
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey Hello EX 10", "OK"),
        ("PERSIST mykey", "(integer) 1"),
        ("TTL mykey", "(integer) -1"),
        ("PERSIST mykey", "(integer) 0"),
    ],
    run: Run::Write(persist),
    ..Command::DEFAULTS
};

fn persist(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let has_expiry = tx.expires_at_ms(key).flatten().is_some();
    if has_expiry {
        tx.set_expiry(key, None);
    }
    Ok(reply.bool(has_expiry))
}
