//! The entries of a stream: adding, reading and removing them.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{BLOCK_BYTES_MAX, EntryId, ID_TEXT_BYTES_MAX};

use super::EntryWriter;
use super::budget::Budget;
use super::ids::{self, NewId};
use super::options::{IDMP, Options, REFERENCES, TRIM, TRIM_WITH_REFERENCES, logged_count, natural};
use crate::commands::args::{integer, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XADD, XDEL, XLEN, XRANGE, XREVRANGE, XSETID, XTRIM];

/// Fields beyond these, and their values, may take much longer to write than the first ones.
const BRIEF_ARGUMENTS_MAX: usize = 32;

/// The facts that most commands of this file share.
const STREAM: Command = Command { categories: Categories::STREAM, group: Group::STREAM, ..Command::DEFAULTS };

const XADD: Command = Command {
    name: "xadd",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))
        .noted("UPDATE instead of INSERT because of the optional trimming feature")],
    summary: "Adds an entry to a stream, creating it if it is absent; can trim it as well.",
    since: "5.0.0",
    complexity: "O(1) when adding a new entry, O(N) when trimming where N being the number of entries evicted.",
    cost: costs::ARGUMENTS.brief_up_to(BRIEF_ARGUMENTS_MAX),
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::word("NOMKSTREAM").since("6.2.0").optional(),
        REFERENCES.optional(),
        IDMP.optional(),
        TRIM.optional(),
        Argument::one_of("id-selector", &[Argument::pure_token("auto-id", "*"), Argument::string("id")]),
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XADD mystream 1-* name Bill", "\"1-2\""),
        ("XADD mystream MAXLEN 2 2 name Ann", "\"2-0\""),
        ("XRANGE mystream - +", "[[\"1-2\", [\"name\", \"Bill\"]], [\"2-0\", [\"name\", \"Ann\"]]]"),
    ],
    run: Run::Write(xadd),
    ..STREAM
};

fn xadd(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = Options::parse(tx, request, true)?;
    let fields_count = request.len().saturating_sub(options.end + 1);
    if fields_count == 0 || !fields_count.is_multiple_of(2) {
        return Err(Error::wrong_arity("xadd"));
    }
    let fields = request.from(options.end + 1);
    if options.id == NewId::Exactly(EntryId::ZERO) {
        return Err(Error::fixed("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (key, now_ms) = (request.at(1), tx.now_ms());
    let stream = tx.peek::<Stream>(key)?;
    if stream.is_none() && options.makes_nothing {
        return Ok(reply.nil());
    }
    let name = options.message.map(|message| message.name(fields.clone()));
    if let (Some(message), Some(name)) = (options.message, &name)
        && options.id == NewId::Auto
        && let Some(producers) = stream.and_then(Ledger::producers)
        && let Some(id) = producers.find(message.producer, name, now_ms)
    {
        tx.adjust::<Stream, _>(key, |stream| stream.count_repeated())?;
        return Ok(reply.bulk(id.digits(&mut [0; ID_TEXT_BYTES_MAX])));
    }
    // Redis also logs a message that it has not added again. Only there a named message has no ID yet.
    if name.is_some() && options.id == NewId::Auto && tx.is_replay() {
        return Ok(reply.nil());
    }
    let last_id = stream.map_or(EntryId::ZERO, |stream| stream.last_id);
    let id = new_id(options.id, last_id, now_ms)?;
    if fields.clone().map(<[u8]>::len).sum::<usize>() > BLOCK_BYTES_MAX {
        return Err(Error::fixed("ERR Elements are too large to be stored"));
    }
    let (is_new, limits) = (stream.is_none(), tx.keyspace().limits().of_producers());
    tx.make::<Stream, _>(key, "xadd", |stream| {
        stream.add(id, fields);
        stream.begin_with_producers(limits.filter(|_| is_new));
    })?;
    if let (Some(message), Some(name)) = (options.message, name) {
        tx.adjust::<Stream, _>(key, |stream| stream.remember(message.producer, &name, id, now_ms))?;
    }
    if let Some(trim) = options.trim {
        tx.change::<Stream, _>(key, "xtrim", |stream| stream.trim(trim))?;
    }
    Ok(reply.bulk(id.digits(&mut [0; ID_TEXT_BYTES_MAX])))
}

/// The ID of an entry that is added behind another one.
fn new_id(wanted: NewId, last: EntryId, now_ms: u64) -> Result<EntryId> {
    let full = Error::fixed("ERR The stream has exhausted the last possible ID, unable to add more items");
    let small =
        Error::fixed("ERR The ID specified in XADD is equal or smaller than the target stream top item");
    let next = last.next().ok_or(full)?;
    let id = match wanted {
        NewId::Auto if now_ms > last.ms => EntryId { ms: now_ms, seq: 0 },
        NewId::Auto => next,
        NewId::AutoIn(ms) if ms == next.ms => EntryId { ms, seq: if last.ms == ms { next.seq } else { 0 } },
        NewId::AutoIn(ms) => EntryId { ms, seq: 0 },
        NewId::Exactly(id) => id,
    };
    if id > last { Ok(id) } else { Err(small) }
}

const XTRIM: Command = Command {
    name: "xtrim",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Removes the oldest entries of a stream, down to a length or up to an ID.",
    since: "5.0.0",
    complexity: "O(N), with N being the number of evicted entries. Constant times are very small however, since entries are organized in macro nodes containing multiple entries that can be released with a single deallocation.",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY, TRIM_WITH_REFERENCES],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XADD mystream 2-1 name Bill", "\"2-1\""),
        ("XTRIM mystream MINID 2", "(integer) 1"),
        ("XTRIM mystream MAXLEN 1", "(integer) 0"),
    ],
    run: Run::Write(xtrim),
    ..STREAM
};

fn xtrim(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = Options::parse(tx, request, false)?;
    let Some(trim) = options.trim else { return Err(Error::SYNTAX) };
    let trimmed = tx.change::<Stream, _>(request.at(1), "xtrim", |stream| stream.trim(trim))?;
    Ok(reply.count(trimmed.unwrap_or(0)))
}

const XLEN: Command = Command {
    name: "xlen",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RO)],
    summary: "Returns the number of entries in a stream.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY],
    example: &[("XADD mystream 1-1 name Sara", "\"1-1\""), ("XLEN mystream", "(integer) 1")],
    run: Run::Read(xlen),
    ..STREAM
};

fn xlen(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let length = tx.get::<Stream>(request.at(1))?.map_or(0, Ledger::length);
    Ok(reply.integer(length as i64))
}

const XRANGE: Command = Command {
    name: "xrange",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the entries between two IDs, oldest first.",
    since: "5.0.0",
    complexity: "O(N) with N being the number of elements being returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
    cost: costs::WITHIN_COUNT,
    arguments: &[
        Argument::KEY,
        Argument::string("start"),
        Argument::string("end"),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XADD mystream 2-1 name Bill", "\"2-1\""),
        ("XRANGE mystream 2 +", "[[\"2-1\", [\"name\", \"Bill\"]]]"),
        ("XRANGE mystream - + COUNT 1", "[[\"1-1\", [\"name\", \"Sara\"]]]"),
    ],
    run: Run::Read(|tx, request, reply| range(tx, request, false, reply)),
    ..STREAM
};

const XREVRANGE: Command = Command {
    name: "xrevrange",
    summary: "Returns the entries between two IDs, newest first.",
    complexity: "O(N) with N being the number of elements returned. If N is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1).",
    cost: costs::WITHIN_COUNT,
    arguments: &[
        Argument::KEY,
        Argument::string("end"),
        Argument::string("start"),
        Argument::integer("count").token("COUNT").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XADD mystream 2-1 name Bill", "\"2-1\""),
        ("XREVRANGE mystream + - COUNT 1", "[[\"2-1\", [\"name\", \"Bill\"]]]"),
    ],
    run: Run::Read(|tx, request, reply| range(tx, request, true, reply)),
    ..XRANGE
};

fn range(tx: &Transaction<'_>, request: Request<'_>, is_back: bool, reply: Reply<'_>) -> Result {
    let (start, end) = if is_back { (3, 2) } else { (2, 3) };
    let (start, end) = (ids::parse_start(request.at(start))?, ids::parse_end(request.at(end))?);
    let mut count = None;
    let mut at = 4;
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).filter(|_| is_word(option, "count")).ok_or(Error::SYNTAX)?;
        count = Some(integer(value)?.max(0) as usize);
        at += 2;
    }
    let Some(stream) = tx.get::<Stream>(request.at(1))? else {
        return Ok(reply.array_of([(); 0].into_iter(), |(), reply| reply.nil()));
    };
    if count == Some(0) {
        return Ok(reply.nil_array());
    }
    let (mut writer, mut budget) = (EntryWriter::default(), Budget::of_count(count.unwrap_or(0)));
    reply.nested(|parts| match is_back {
        true => writer.entries(stream.range_back(start, end), &mut budget, parts),
        false => writer.entries(stream.range(start, end), &mut budget, parts),
    })
}

const XDEL: Command = Command {
    name: "xdel",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Deletes entries from a stream; returns how many were present.",
    since: "5.0.0",
    complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("id").multiple()],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XDEL mystream 1-1 2-1", "(integer) 1"),
        ("XLEN mystream", "(integer) 0"),
    ],
    run: Run::Write(xdel),
    ..STREAM
};

fn xdel(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    if tx.peek::<Stream>(key)?.is_none() {
        return Ok(reply.count(0));
    }
    let ids = request.from(2).map(ids::parse).collect::<Result<Vec<_>>>()?;
    let deleted =
        tx.change::<Stream, _>(key, "xdel", |stream| ids.iter().filter(|id| stream.delete(**id)).count())?;
    Ok(reply.count(deleted.unwrap_or(0)))
}

const XSETID: Command = Command {
    name: "xsetid",
    flags: Flags::DENYOOM.and(Flags::FAST),
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets the last ID of a stream; servers use it for replication.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::string("last-id"),
        Argument::integer("entries-added").token("ENTRIESADDED").since("7.0.0").optional(),
        Argument::string("max-deleted-id").token("MAXDELETEDID").since("7.0.0").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XSETID mystream 7-0 ENTRIESADDED 10", "OK"),
        ("XADD mystream 7-* name Bill", "\"7-1\""),
    ],
    run: Run::Write(xsetid),
    ..STREAM
};

fn xsetid(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, id) = (request.at(1), ids::parse(request.at(2))?);
    let (mut added, mut max_deleted) = (None, EntryId::ZERO);
    let mut at = 3;
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).ok_or(Error::SYNTAX)?;
        match option {
            _ if is_word(option, "entriesadded") => {
                added = Some(match logged_count(tx, value) {
                    Some(added) => added,
                    None => natural(value, "ERR entries_added must be positive")? as u64,
                });
            }
            _ if is_word(option, "maxdeletedid") => {
                max_deleted = ids::parse(value)?;
                if id < max_deleted {
                    return Err(Error::fixed(
                        "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
            }
            _ => return Err(Error::SYNTAX),
        }
        at += 2;
    }
    let is_replay = tx.is_replay();
    let stream = tx.peek::<Stream>(key)?.ok_or(Error::NO_SUCH_KEY)?;
    // Redis before version 7 runs such a request, so its logs may have one.
    if id < stream.max_deleted_id && !is_replay {
        return Err(Error::fixed(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if let Some(last) = stream.last() {
        if id < last.id {
            return Err(Error::fixed(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if added.is_some_and(|added| added < stream.length()) {
            return Err(Error::fixed(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    let max_deleted = (max_deleted != EntryId::ZERO).then_some(max_deleted);
    tx.adjust::<Stream, _>(key, |stream| stream.set_last_id(id, added, max_deleted))?;
    tx.event(crate::events::EventClass::STREAM, "xsetid", key);
    Ok(reply.ok())
}
