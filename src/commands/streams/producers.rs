//! Producers that name their messages (XADD IDMP), so that a stream can reject duplicates.

use std::ops::RangeInclusive;

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::ledger::{MESSAGES, Producers, SECONDS};

use super::ids;
use crate::commands::args::{integer, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XCFGSET, XIDMPRECORD];

const XCFGSET: Command = Command {
    name: "xcfgset",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Sets how long, and how many of, a producer's message IDs are kept to reject duplicates (XADD IDMP).",
    since: "8.6.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::block(
            "idmp-duration-block",
            &[Argument::pure_token("idmp-duration-token", "IDMP-DURATION"), Argument::integer("duration")],
        )
        .optional(),
        Argument::block(
            "idmp-maxsize-block",
            &[Argument::pure_token("idmp-maxsize-token", "IDMP-MAXSIZE"), Argument::integer("maxsize")],
        )
        .optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XCFGSET mystream IDMP-DURATION 300 IDMP-MAXSIZE 1000", "OK"),
    ],
    run: Run::Write(xcfgset),
    ..Command::DEFAULTS
};

fn xcfgset(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    tx.peek::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    let (mut seconds, mut messages_max, mut at) = (None, None, 2);
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).ok_or(Error::SYNTAX)?;
        match option {
            _ if is_word(option, "idmp-duration") => {
                seconds = Some(once(seconds, "IDMP-DURATION", value, SECONDS, "seconds")?);
            }
            _ if is_word(option, "idmp-maxsize") => {
                messages_max = Some(once(messages_max, "IDMP-MAXSIZE", value, MESSAGES, "entries")?);
            }
            _ => return Err(Error::SYNTAX),
        }
        at += 2;
    }
    if seconds.is_none() && messages_max.is_none() {
        return Err(Error::fixed("ERR At least one parameter must be specified"));
    }
    tx.adjust::<Stream, _>(key, |stream| stream.set_producers(seconds, messages_max))?;
    Ok(reply.ok())
}

/// Reads a value that may be given once, and has bounds.
fn once(
    before: Option<u64>,
    name: &str,
    value: &[u8],
    bounds: RangeInclusive<u64>,
    unit: &str,
) -> Result<u64> {
    if before.is_some() {
        return Err(Error::text(format!("ERR {name} specified multiple times")));
    }
    let number = u64::try_from(integer(value)?).ok().filter(|number| bounds.contains(number));
    let (start, end) = (bounds.start(), bounds.end());
    number.ok_or_else(|| Error::text(format!("ERR {name} must be between {start} and {end} {unit}")))
}

const XIDMPRECORD: Command = Command {
    name: "xidmprecord",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Records the message ID of an existing entry, to reject duplicates; the append-only file uses it.",
    since: "8.6.2",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::string("pid"),
        Argument::string("iid"),
        Argument::string("stream-id"),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XIDMPRECORD mystream producer message 1-1", "OK"),
    ],
    run: Run::Write(xidmprecord),
    ..Command::DEFAULTS
};

fn xidmprecord(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let id = ids::parse(request.at(4))?;
    let (key, producer, name, now_ms) = (request.at(1), request.at(2), request.at(3), tx.now_ms());
    if producer.is_empty() {
        return Err(Error::fixed("ERR producer ID must be non-empty"));
    }
    if name.is_empty() {
        return Err(Error::fixed("ERR idempotent ID must be non-empty"));
    }
    let stream = tx.peek::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    // The log of a stream may name messages that were deleted since.
    if stream.get(id).is_none() && !tx.is_replay() {
        return Err(Error::fixed("ERR No such message in stream"));
    }
    let find = |producers: &Producers| producers.find(producer, name, now_ms);
    match stream.producers().and_then(find) {
        Some(known) if known == id => {}
        Some(_) => {
            return Err(Error::fixed("ERR IID already exists for this producer with a different stream ID"));
        }
        None => {
            tx.adjust::<Stream, _>(key, |stream| stream.remember(producer, name, id, now_ms))?;
        }
    }
    Ok(reply.ok())
}
