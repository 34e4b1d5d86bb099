//! MGET, MSET, MSETNX and MSETEX: several strings in one atomic step.

use crate::events::EventClass;
use crate::keyspace::{Expiry, Transaction};
use crate::resp::{Reply, Request};
use crate::types::strings::Text;

use super::basics::{Condition, Expires, reply_text, tell_of_write};
use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Prepares, Result, Run,
};
use crate::values::STRING_KIND;

pub(in crate::commands) const COMMANDS: &[Command] = &[MGET, MSET, MSETEX, MSETNX];

/// The facts that most commands of this file share.
const STRING: Command = Command { categories: Categories::STRING, group: Group::STRING, ..Command::DEFAULTS };

const MGET: Command = Command {
    name: "mget",
    flags: Flags::FAST,
    keys: &[KeySpec::every(1, KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns the strings at several keys, all read at the same moment.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys to retrieve.",
    cost: costs::BRIEF_ALONE,
    tips: &["request_policy:multi_shard"],
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("SET key1 Hello", "OK"),
        ("SET key2 World", "OK"),
        ("MGET key1 key2 nonexisting", "[\"Hello\", \"World\", (nil)]"),
    ],
    run: Run::Read(mget),
    ..STRING
};

fn mget(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let text = |key| tx.get::<Text>(key).unwrap_or_default();
    Ok(reply.array_of(request.from(1), |key, reply| reply_text(tx, key, text(key), reply)))
}

const MSET: Command = Command {
    name: "mset",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::every(2, KeyFlags::OW.and(KeyFlags::UPDATE))],
    locks: LockUse::REWRITES.and(LockUse::PAIRS),
    summary: "Sets several keys to strings in one atomic step.",
    since: "1.0.1",
    complexity: "O(N) where N is the number of keys to set.",
    cost: costs::ARGUMENTS,
    prepares: Prepares::Texts,
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    arguments: &[Argument::block("data", &[Argument::KEY, Argument::string("value")]).multiple()],
    example: &[("MSET key1 Hello key2 World", "OK"), ("GET key1", "\"Hello\""), ("GET key2", "\"World\"")],
    run: Run::Write(mset),
    ..STRING
};

fn mset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    put_pairs(tx, pairs("mset", request)?);
    Ok(reply.ok())
}

const MSETNX: Command = Command {
    name: "msetnx",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::every(2, KeyFlags::OW.and(KeyFlags::INSERT))],
    locks: LockUse::REWRITES.and(LockUse::PAIRS),
    summary: "Sets several keys to strings in one atomic step, only if none of the keys is present.",
    since: "1.0.1",
    complexity: "O(N) where N is the number of keys to set.",
    cost: costs::ARGUMENTS,
    prepares: Prepares::Texts,
    arguments: &[Argument::block("data", &[Argument::KEY, Argument::string("value")]).multiple()],
    example: &[
        ("MSETNX key1 Hello key2 there", "(integer) 1"),
        ("MSETNX key2 new key3 World", "(integer) 0"),
        ("MGET key1 key2 key3", "[\"Hello\", \"there\", (nil)]"),
    ],
    run: Run::Write(msetnx),
    ..STRING
};

fn msetnx(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let pairs = pairs("msetnx", request)?;
    let are_absent = pairs.clone().all(|(key, _)| !tx.is_there(key));
    if are_absent {
        tx.note_all_absent(pairs.clone().map(|(key, _)| key), "msetnx");
        put_pairs(tx, pairs);
    } else {
        pairs.for_each(|(key, _)| tx.follow_refused(key));
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
        tx.event_of_replacing(key, STRING_KIND);
        tx.put(key, value, Expiry::Never);
        tell_of_write(tx, key, Expiry::Never);
    }
}

const MSETEX: Command = Command {
    name: "msetex",
    flags: Flags::DENYOOM,
    keys: &[KeySpec::counted(1, 2, KeyFlags::OW.and(KeyFlags::UPDATE))],
    locks: LockUse::REWRITES,
    summary: "Sets several keys to strings in one atomic step, with optional conditions and one shared expiry.",
    since: "8.4.0",
    complexity: "O(N) where N is the number of keys to set.",
    cost: costs::ARGUMENTS,
    prepares: Prepares::Texts,
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    arguments: &[
        Argument::integer("numkeys"),
        Argument::block("data", &[Argument::KEY, Argument::string("value")]).multiple(),
        Argument::one_of("condition", &Argument::words(["NX", "XX"])).optional(),
        Argument::one_of(
            "expiration",
            &[
                Argument::integer("seconds").token("EX"),
                Argument::integer("milliseconds").token("PX"),
                Argument::unix_time("unix-time-seconds").token("EXAT"),
                Argument::unix_time("unix-time-milliseconds").token("PXAT"),
                Argument::word("KEEPTTL"),
            ],
        )
        .optional(),
    ],
    example: &[
        ("MSETEX 2 key1 Hello key2 World EX 60", "(integer) 1"),
        ("TTL key2", "(integer) 60"),
        ("MSETEX 2 key2 new key3 new NX", "(integer) 0"),
        ("EXISTS key3", "(integer) 0"),
    ],
    run: Run::Write(msetex),
    ..STRING
};

fn msetex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let count = args::integer(request.at(1)).ok().and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or(Error::fixed("ERR invalid numkeys value"))?;
    let pairs_end = 2 + 2 * count;
    if pairs_end > request.len() {
        return Err(Error::fixed("ERR wrong number of key-value pairs"));
    }
    let (mut condition, mut expires) = (Condition::None, Expires::Never);
    let mut options = Options::new(request, pairs_end);
    while let Some(option) = options.next() {
        match option {
            _ if is_word(option, "nx") => condition = condition.or(Condition::Absent)?,
            _ if is_word(option, "xx") => condition = condition.or(Condition::Present)?,
            _ => expires = expires.or(option, &mut options)?,
        }
    }
    let expiry = expires.resolve("msetex", tx)?;
    let keys = || request.from(2).step_by(2).take(count);
    let are_met = keys().map(|key| condition.is_met_by(tx, key)).find(|is_met| *is_met != Ok(true));
    let are_met = are_met.unwrap_or(Ok(true))?;
    if are_met {
        for (key, value) in keys().zip(request.from(3).step_by(2)) {
            tx.event_of_replacing(key, STRING_KIND);
            tx.put(key, value, expiry);
            // As in Redis: the events of an expiry stand in front here, and behind in SET.
            if let Expiry::At(_) = expiry {
                tx.event(EventClass::GENERIC, "expire", key);
            }
            tell_of_write(tx, key, Expiry::Never);
        }
    }
    Ok(reply.bool(are_met))
}
