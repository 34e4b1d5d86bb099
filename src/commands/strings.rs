//! Strings: SETNX, SET, GET and what is around them.

use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request};

use super::args::{self, Options, is_word};
use super::command::{
    Argument, Arity, Categories, Command, Deprecated, Flags, Group, KeyFlags, KeySpec, Result, Run,
};
use super::error::Error;

pub(super) const COMMANDS: &[Command] = &[GET, GETSET, INCR, MGET, MSET, MSETNX, SET, SETNX, STRLEN];

const SETNX: Command = Command {
    name: "setnx",
    arity: Arity::Exactly(3),
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::OW.and(KeyFlags::INSERT))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Writes a string only if its key is absent: 1 if it did, 0 if not.",
    since: "1.0.0",
    complexity: "O(1)",
    deprecated: Some(Deprecated { since: "2.6.12", replaced_by: "`SET` with the `NX` argument" }),
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("SETNX mykey Hello", "(integer) 1"),
        ("SETNX mykey World", "(integer) 0"),
        ("GET mykey", "\"Hello\""),
    ],
    run: Run::Write(setnx),
    ..Command::DEFAULTS
};

fn setnx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_inserted = tx.insert_if_absent(request.at(1), request.at(2), Expiry::Never);
    Ok(reply.bool(is_inserted))
}

const GET: Command = Command {
    name: "get",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Reads a string.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[Argument::KEY],
    example: &[("GET nonexisting", "(nil)"), ("SET mykey Hello", "OK"), ("GET mykey", "\"Hello\"")],
    run: Run::Read(get),
    ..Command::DEFAULTS
};

fn get(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bulk_or_nil(tx.get(request.at(1))))
}

const GETSET: Command = Command {
    name: "getset",
    arity: Arity::Exactly(3),
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Writes a string and answers the one before, in one step.",
    since: "1.0.0",
    complexity: "O(1)",
    deprecated: Some(Deprecated { since: "6.2.0", replaced_by: "`SET` with the `!GET` argument" }),
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("INCR mycounter", "(integer) 1"),
        ("GETSET mycounter 0", "\"1\""),
        ("GET mycounter", "\"0\""),
    ],
    run: Run::Write(getset),
    ..Command::DEFAULTS
};

fn getset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let sent = reply.bulk_or_nil(tx.get(key));
    tx.put(key, request.at(2), Expiry::Never);
    Ok(sent)
}

const SET: Command = Command {
    name: "set",
    arity: Arity::AtLeast(3),
    flags: Flags::DENYOOM,
    keys: &[KeySpec::first(
        KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE).and(KeyFlags::VARIABLE_FLAGS),
    )
    .variable(set_key_flags, "RW and ACCESS due to the optional `GET` argument")],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Writes a string, whatever was there; on conditions and with an expiry, if asked to.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[
        Argument::KEY,
        Argument::string("value"),
        Argument::one_of("condition", &[Argument::pure_token("nx", "NX"), Argument::pure_token("xx", "XX")])
            .since("2.6.12")
            .optional(),
        Argument::pure_token("get", "GET").since("6.2.0").optional(),
        Argument::one_of(
            "expiration",
            &[
                Argument::integer("seconds").token("EX").since("2.6.12"),
                Argument::integer("milliseconds").token("PX").since("2.6.12"),
                Argument::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                Argument::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                Argument::pure_token("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ],
    example: &[
        ("SET mykey Hello", "OK"),
        ("GET mykey", "\"Hello\""),
        ("SET mykey World NX", "(nil)"),
        ("SET mykey World XX GET", "\"Hello\""),
        ("SET anotherkey \"will expire in a minute\" EX 60", "OK"),
        ("TTL anotherkey", "(integer) 60"),
    ],
    run: Run::Write(set),
    ..Command::DEFAULTS
};

fn set(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = SetOptions::parse(request)?;
    let (key, value) = (request.at(1), request.at(2));
    let expiry = options.expires.resolve(tx)?;
    if options.answers_old_value {
        let old = tx.get(key);
        let is_met = options.condition.is_met(old.is_some());
        let sent = reply.bulk_or_nil(old);
        if is_met {
            tx.put(key, value, expiry);
        }
        return Ok(sent);
    }
    let is_written = match options.condition {
        Condition::Absent => tx.insert_if_absent(key, value, expiry),
        condition => {
            let is_met = condition == Condition::None || tx.peek(key).is_some();
            if is_met {
                tx.put(key, value, expiry);
            }
            is_met
        }
    };
    Ok(if is_written { reply.ok() } else { reply.nil() })
}

/// What follows key and value.
struct SetOptions<'a> {
    condition: Condition,
    answers_old_value: bool,
    expires: Expires<'a>,
}

/// What must hold for SET to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    Absent,
    Present,
}

impl Condition {
    fn is_met(self, is_present: bool) -> bool {
        match self {
            Condition::None => true,
            Condition::Absent => !is_present,
            Condition::Present => is_present,
        }
    }
}

impl<'a> SetOptions<'a> {
    fn parse(request: Request<'a>) -> Result<SetOptions<'a>> {
        let mut parsed =
            SetOptions { condition: Condition::None, answers_old_value: false, expires: Expires::Never };
        let mut options = Options::new(request, 3);
        while let Some(option) = options.next() {
            match option {
                _ if is_word(option, "nx") && parsed.condition != Condition::Present => {
                    parsed.condition = Condition::Absent;
                }
                _ if is_word(option, "xx") && parsed.condition != Condition::Absent => {
                    parsed.condition = Condition::Present;
                }
                _ if is_word(option, "get") => parsed.answers_old_value = true,
                _ => parsed.expires = parsed.expires.or(option, &mut options)?,
            }
        }
        Ok(parsed)
    }
}

/// When SET's key is to expire, as it was asked.
#[derive(Clone, Copy)]
enum Expires<'a> {
    Never,
    Keep,
    In { amount: &'a [u8], unit_ms: i64 },
    At { amount: &'a [u8], unit_ms: i64 },
}

impl<'a> Expires<'a> {
    /// Takes up an option, unless another kind of expiry was asked for before it.
    fn or(self, option: &[u8], options: &mut Options<'a>) -> Result<Expires<'a>> {
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
    fn resolve(self, tx: &Transaction<'_>) -> Result<Expiry> {
        let (amount, unit_ms, is_relative) = match self {
            Expires::Never => return Ok(Expiry::Never),
            Expires::Keep => return Ok(Expiry::Keep),
            Expires::In { amount, unit_ms } => (amount, unit_ms, true),
            Expires::At { amount, unit_ms } => (amount, unit_ms, false),
        };
        let amount = args::integer(amount)?;
        let base_ms = if is_relative { tx.now_ms() as i64 } else { 0 };
        let moment_ms = amount.checked_mul(unit_ms).and_then(|delay_ms| delay_ms.checked_add(base_ms));
        match moment_ms {
            Some(moment_ms) if amount > 0 => Ok(Expiry::At(moment_ms as u64)),
            _ => Err(Error::invalid_expire("set")),
        }
    }
}

/// SET reads its key only if asked for the old value.
fn set_key_flags(request: Request<'_>) -> KeyFlags {
    match request.from(3).any(|option| is_word(option, "get")) {
        true => KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE),
        false => KeyFlags::OW.and(KeyFlags::UPDATE),
    }
}

const STRLEN: Command = Command {
    name: "strlen",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Tells the length of a string in bytes, 0 if it is absent.",
    since: "2.2.0",
    complexity: "O(1)",
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey \"Hello world\"", "OK"),
        ("STRLEN mykey", "(integer) 11"),
        ("STRLEN nonexisting", "(integer) 0"),
    ],
    run: Run::Read(strlen),
    ..Command::DEFAULTS
};

fn strlen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.get(request.at(1)).map_or(0, <[u8]>::len)))
}

const INCR: Command = Command {
    name: "incr",
    arity: Arity::Exactly(2),
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Adds one to the integer in a string, taking an absent one for 0.",
    since: "1.0.0",
    complexity: "O(1)",
    arguments: &[Argument::KEY],
    example: &[("SET mykey 10", "OK"), ("INCR mykey", "(integer) 11"), ("GET mykey", "\"11\"")],
    run: Run::Write(incr),
    ..Command::DEFAULTS
};

fn incr(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let before = tx.peek(key).map_or(Ok(0), args::integer)?;
    let after = before.checked_add(1).ok_or(Error::OVERFLOW)?;
    tx.put(key, itoa::Buffer::new().format(after).as_bytes(), Expiry::Keep);
    Ok(reply.integer(after))
}

const MGET: Command = Command {
    name: "mget",
    arity: Arity::AtLeast(2),
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Reads several strings in one step.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys to retrieve.",
    tips: &["request_policy:multi_shard"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SET key1 Hello", "OK"),
        ("SET key2 World", "OK"),
        ("MGET key1 key2 nonexisting", "[\"Hello\", \"World\", (nil)]"),
    ],
    run: Run::Read(mget),
    ..Command::DEFAULTS
};

fn mget(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.array_of(request.from(1), |key, reply| reply.bulk_or_nil(tx.get(key))))
}

const MSET: Command = Command {
    name: "mset",
    arity: Arity::AtLeast(3),
    flags: Flags::DENYOOM,
    keys: &[KeySpec::every(2, KeyFlags::OW.and(KeyFlags::UPDATE))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Writes several strings in one step.",
    since: "1.0.1",
    complexity: "O(N) where N is the number of keys to set.",
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    arguments: &[Argument::block("key_value", &[Argument::KEY, Argument::string("value")]).multiple()],
    example: &[("MSET key1 Hello key2 World", "OK"), ("GET key1", "\"Hello\""), ("GET key2", "\"World\"")],
    run: Run::Write(mset),
    ..Command::DEFAULTS
};

fn mset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    put_pairs(tx, pairs("mset", request)?);
    Ok(reply.ok())
}

const MSETNX: Command = Command {
    name: "msetnx",
    arity: Arity::AtLeast(3),
    flags: Flags::DENYOOM,
    keys: &[KeySpec::every(2, KeyFlags::OW.and(KeyFlags::INSERT))],
    categories: Categories::STRING,
    group: Group::String,
    summary: "Writes several strings in one step, but none if any of their keys is present.",
    since: "1.0.1",
    complexity: "O(N) where N is the number of keys to set.",
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    arguments: &[Argument::block("key_value", &[Argument::KEY, Argument::string("value")]).multiple()],
    example: &[
        ("MSETNX key1 Hello key2 there", "(integer) 1"),
        ("MSETNX key2 new key3 World", "(integer) 0"),
        ("MGET key1 key2 key3", "[\"Hello\", \"there\", (nil)]"),
    ],
    run: Run::Write(msetnx),
    ..Command::DEFAULTS
};

fn msetnx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let pairs = pairs("msetnx", request)?;
    let are_absent = pairs.clone().all(|(key, _)| tx.peek(key).is_none());
    if are_absent {
        put_pairs(tx, pairs);
    }
    Ok(reply.bool(are_absent))
}

/// The keys and values that are a request's arguments in turn.
fn pairs<'a>(
    command: &str,
    request: Request<'a>,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>> {
    if request.len().is_multiple_of(2) {
        return Err(Error::wrong_arity(command));
    }
    let (keys, values) = (request.from(1).step_by(2), request.from(2).step_by(2));
    Ok(keys.zip(values))
}

fn put_pairs<'a>(tx: &mut Transaction<'_>, pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    for (key, value) in pairs {
        tx.put(key, value, Expiry::Never);
    }
}
