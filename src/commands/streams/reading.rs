//! Following streams: XREAD for a client alone, XREADGROUP for one that shares the entries with others.

use std::ops::Range;

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::reply::Nested;
use crate::resp::{OwnedRequest, Protocol, Reply, Request, Sent};
use crate::types::streams::Stream;
use crate::values::STREAM_KIND;
use crate::values::tree::ledger::{Delivery, EntryId};

use super::{EntryWriter, ids, no_key_or_group};
use crate::commands::args::{integer, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Arity, Blocking, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run, Taken,
    Timeout, WaitingRules,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[XREAD, XREADGROUP];

/// The keys and IDs, as COMMAND DOCS prints them.
const STREAMS: Argument =
    Argument::block("streams", &[Argument::KEY.multiple(), Argument::string("id").multiple()])
        .token("STREAMS");

const XREAD: Command = Command {
    name: "xread",
    arity: Arity::AtLeast(4),
    flags: Flags::BLOCKING.and(Flags::READONLY),
    keys: &[KeySpec::behind("STREAMS", 1, keys, KeyFlags::RO.and(KeyFlags::ACCESS))],
    categories: Categories::STREAM,
    group: Group::Stream,
    summary: "Returns the entries of streams behind IDs, or waits for some.",
    since: "5.0.0",
    complexity: "For each stream mentioned: O(N) with N being the number of elements being returned, it means that XREAD-ing with a fixed COUNT is O(1). Note that when the BLOCK option is used, XADD will pay O(M) time in order to serve the M clients blocked on the stream getting new data.",
    arguments: &[
        Argument::integer("count").token("COUNT").optional(),
        Argument::integer("milliseconds").token("BLOCK").optional(),
        STREAMS,
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XREAD COUNT 2 STREAMS mystream 0", "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]"),
        ("XREAD BLOCK 10 STREAMS mystream $", "(nil)"),
    ],
    run: Run::Block(&Blocking {
        kind: STREAM_KIND,
        keys: usize::MAX,
        check: |request| Reading::parse(request, false).map(|reading| reading.timeout),
        take: |tx, request, only, reply| read(tx, request, false, only, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules { waits_with: Some(from_now), is_shared: true, gone: None },
    }),
    ..Command::DEFAULTS
};

const XREADGROUP: Command = Command {
    name: "xreadgroup",
    arity: Arity::AtLeast(7),
    flags: Flags::BLOCKING,
    keys: &[KeySpec::behind("STREAMS", 4, keys, KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns entries that no consumer of a group has got yet, or those that one has not acknowledged.",
    complexity: "For each stream mentioned: O(M) with M being the number of elements returned. If M is constant (e.g. always asking for the first 10 elements with COUNT), you can consider it O(1). On the other side when XREADGROUP blocks, XADD will pay the O(N) time in order to serve the N clients blocked on the stream getting new data.",
    arguments: &[
        Argument::block("group_consumer", &[Argument::string("group"), Argument::string("consumer")])
            .token("GROUP"),
        Argument::integer("count").token("COUNT").optional(),
        Argument::integer("milliseconds").token("BLOCK").optional(),
        Argument::pure_token("noack", "NOACK").optional(),
        STREAMS,
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XREADGROUP GROUP mygroup Bob STREAMS mystream >", "(nil)"),
        ("XACK mystream mygroup 1-1", "(integer) 1"),
    ],
    run: Run::Block(&Blocking {
        kind: STREAM_KIND,
        keys: usize::MAX,
        check: |request| Reading::parse(request, true).map(|reading| reading.timeout),
        take: |tx, request, only, reply| read(tx, request, true, only, reply),
        nothing: |reply| reply.nil_array(),
        waiting: WaitingRules {
            waits_with: None,
            is_shared: true,
            gone: Some("UNBLOCKED the stream key no longer exists"),
        },
    }),
    ..XREAD
};

/// The positions of the keys of a request, which are found as the handler finds them.
fn keys(request: Request<'_>) -> Range<usize> {
    let mut at = 1;
    while let Some(option) = request.get(at) {
        at += match option {
            _ if is_word(option, "streams") => {
                return at + 1..at + 1 + (request.len() - at - 1) / 2;
            }
            _ if is_word(option, "block") || is_word(option, "count") => 2,
            _ if is_word(option, "group") => 3,
            _ => 1,
        };
    }
    0..0
}

/// What a request wants to read.
struct Reading<'a> {
    /// The group and its consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    /// The most entries of each stream; 0 for any number.
    count: usize,
    timeout: Timeout<'a>,
    is_acknowledged: bool,
    /// Whether the client has waited.
    has_waited: bool,
    /// The position of the first key.
    first: usize,
    streams: usize,
}

impl<'a> Reading<'a> {
    fn parse(request: Request<'a>, is_group: bool) -> Result<Reading<'a>> {
        let mut reading = Reading {
            group: None,
            count: 0,
            timeout: Timeout::None,
            is_acknowledged: false,
            has_waited: false,
            first: 0,
            streams: 0,
        };
        let mut at = 1;
        while let Some(option) = request.get(at) {
            let more = request.len() - at - 1;
            if is_word(option, "block") && more > 0 {
                at += 1;
                reading.timeout = timeout(request.at(at))?;
            } else if is_word(option, "count") && more > 0 {
                at += 1;
                reading.count = integer(request.at(at))?.max(0) as usize;
            } else if is_word(option, "streams") && more > 0 {
                if !more.is_multiple_of(2) {
                    return Err(Error::fixed(
                        "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                         specified.",
                    ));
                }
                (reading.first, reading.streams) = (at + 1, more / 2);
                break;
            } else if is_word(option, "group") && more > 1 {
                if !is_group {
                    return Err(only_of_groups("GROUP"));
                }
                reading.group = Some((request.at(at + 1), request.at(at + 2)));
                at += 2;
            } else if is_word(option, "noack") {
                if !is_group {
                    return Err(only_of_groups("NOACK"));
                }
                reading.is_acknowledged = true;
            } else {
                return Err(Error::SYNTAX);
            }
            at += 1;
        }
        if reading.first == 0 {
            return Err(Error::SYNTAX);
        }
        if is_group && reading.group.is_none() {
            return Err(Error::fixed("ERR Missing GROUP option for XREADGROUP"));
        }
        Ok(reading)
    }

    /// The keys, each with the ID behind which the client wants to read.
    fn streams(&self, request: Request<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (first, streams) = (self.first, self.streams);
        (first..first + streams).map(move |at| (request.at(at), request.at(at + streams)))
    }
}

fn only_of_groups(option: &str) -> Error {
    Error::text(format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."))
}

/// Reads a timeout in milliseconds.
fn timeout(text: &[u8]) -> Result<Timeout<'_>> {
    let number = parse_integer(text).ok_or(Error::fixed("ERR timeout is not an integer or out of range"))?;
    let milliseconds = u64::try_from(number).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    // Redis: with the time of day, it must be an integer of 64 bits.
    if milliseconds > i64::MAX as u64 / 2 {
        return Err(Error::fixed("ERR timeout is out of range"));
    }
    Ok(Timeout::Milliseconds(milliseconds))
}

/// The request of a client that begins to wait: `$` is the last ID of now.
fn from_now(tx: &Transaction<'_>, request: Request<'_>) -> OwnedRequest {
    let Ok(reading) = Reading::parse(request, false) else { return OwnedRequest::of(request) };
    let ids = reading.first + reading.streams;
    let mut owned = OwnedRequest::default();
    for (at, word) in request.from(0).enumerate() {
        let now = (at >= ids && word == b"$").then(|| {
            let stream = tx.peek::<Stream>(request.at(at - reading.streams)).ok().flatten();
            stream.map_or(EntryId::ZERO, |stream| stream.last_id).text()
        });
        // There is room: the request came in one piece, and an ID is short.
        owned.push(now.as_deref().unwrap_or(word));
    }
    owned
}

/// What is read of one stream.
struct Part<'a> {
    key: &'a [u8],
    behind: EntryId,
    /// Whether these are entries that the consumer has got before.
    is_history: bool,
}

/// Reads the streams of a request, or one of them for a client that waits.
fn read<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    is_group: bool,
    only: Option<&[u8]>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    /// The most entries that a client gets which has waited and has not said how many.
    const COUNT_WAITED: usize = 1000;
    let mut reading = Reading::parse(request, is_group)?;
    let mut parts = Vec::new();
    match only {
        Some(only) => {
            reading.has_waited = true;
            reading.count = if reading.count == 0 { COUNT_WAITED } else { reading.count };
            let Some((key, id)) = reading.streams(request).find(|(key, _)| *key == only) else {
                return Ok(Taken::Nothing(reply));
            };
            let Some(part) = waited_part(tx, &reading, key, id)? else { return Ok(Taken::Nothing(reply)) };
            parts.push(part);
        }
        None => {
            // All is checked before anything changes.
            for (key, id) in reading.streams(request) {
                parts.extend(part(tx, &reading, key, id)?);
            }
            // Redis looks each key up again.
            for (key, _) in reading.streams(request) {
                let _ = tx.get::<Stream>(key)?;
            }
        }
    }
    if parts.is_empty() {
        return Ok(Taken::Nothing(reply));
    }
    write(tx, &reading, &parts, reply).map(Taken::Something)
}

/// What a client gets that has waited for a stream. As in Redis, entries that are gone again wake it, too.
fn waited_part<'a>(
    tx: &Transaction<'_>,
    reading: &Reading<'_>,
    key: &'a [u8],
    id: &[u8],
) -> Result<Option<Part<'a>>> {
    let Some(stream) = tx.peek::<Stream>(key)? else { return Ok(None) };
    let behind = match reading.group {
        None => ids::parse(id)?,
        Some((name, _)) => {
            let gone = "NOGROUP the consumer group this client was blocked on no longer exists";
            stream.group(name).ok_or(Error::fixed(gone))?.last_id
        }
    };
    Ok((stream.last_id > behind).then_some(Part { key, behind, is_history: false }))
}

/// What a client gets of a stream at once, if anything.
fn part<'a>(
    tx: &Transaction<'_>,
    reading: &Reading<'_>,
    key: &'a [u8],
    id: &[u8],
) -> Result<Option<Part<'a>>> {
    let stream = tx.get::<Stream>(key)?;
    let group = match reading.group {
        Some((name, _)) => {
            let group = stream.and_then(|stream| stream.group(name));
            let missing = || no_key_or_group(key, name, " in XREADGROUP with GROUP option");
            Some(group.ok_or_else(missing)?)
        }
        None => None,
    };
    let behind = match (id, group) {
        (b"$", Some(_)) => {
            return Err(Error::fixed(
                "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
                 this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
                 would just return an empty result set.",
            ));
        }
        (b">", None) => {
            return Err(Error::fixed(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                 <consumer> option.",
            ));
        }
        (b"$", None) => stream.map_or(EntryId::ZERO, |stream| stream.last_id),
        (b">", Some(_)) => EntryId::MAX,
        (id, _) => ids::parse(id)?,
    };
    let Some(stream) = stream else { return Ok(None) };
    let behind = match group {
        Some(group) if behind == EntryId::MAX => group.last_id,
        Some(_) => return Ok(Some(Part { key, behind, is_history: true })),
        None => behind,
    };
    let has_more = || stream.last().is_some_and(|last| last.id > behind);
    Ok((stream.last_id > behind && has_more()).then_some(Part { key, behind, is_history: false }))
}

/// Adds the consumer to the group of a stream, or notes that it was heard of.
fn meet(tx: &mut Transaction<'_>, reading: &Reading<'_>, key: &[u8]) -> Result<()> {
    let Some((group, consumer)) = reading.group else { return Ok(()) };
    let now_ms = tx.now_ms();
    let met = tx.adjust::<Stream, _>(key, |stream| stream.meet_consumer(group, consumer, now_ms))?;
    if met.flatten().is_some_and(|(_, is_new)| is_new) {
        tx.event(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    Ok(())
}

/// Writes what is read, and notes what a group has read.
fn write(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    parts: &[Part<'_>],
    reply: Reply<'_>,
) -> Result<Sent> {
    let mut writer = EntryWriter::default();
    let is_map = reply.protocol() == Protocol::Resp3;
    reply.nested(|out| {
        out.map_or_array_counted(|out| {
            let mut count = 0;
            for part in parts {
                // A stream may come twice: the group has read it then.
                let behind = match (reading.group, part.is_history) {
                    (Some((group, _)), false) => new_of_group(tx, part.key, group, reading.has_waited)?,
                    _ => Some(part.behind),
                };
                let Some(behind) = behind else { continue };
                let part = Part { behind, ..*part };
                meet(tx, reading, part.key)?;
                if !is_map {
                    out.array(2);
                }
                let _ = out.part().bulk(part.key);
                match part.is_history {
                    true => write_history(tx, reading, &part, &mut writer, out)?,
                    false => write_new(tx, reading, &part, &mut writer, out)?,
                }
                count += 1;
            }
            Ok(count)
        })
    })
}

/// The ID behind which a stream has entries that a group has not read yet, if it has.
fn new_of_group(tx: &Transaction<'_>, key: &[u8], group: &[u8], has_waited: bool) -> Result<Option<EntryId>> {
    let Some(stream) = tx.peek::<Stream>(key)? else { return Ok(None) };
    let Some(group) = stream.group(group) else { return Ok(None) };
    let has_new = stream.last_id > group.last_id
        && (has_waited || stream.last().is_some_and(|last| last.id > group.last_id));
    Ok(has_new.then_some(group.last_id))
}

/// Writes entries that a client, or its group, has not got yet.
fn write_new(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    part: &Part<'_>,
    writer: &mut EntryWriter,
    out: &mut Nested<'_>,
) -> Result<()> {
    let mut ids = Vec::new();
    if let Some(stream) = tx.peek::<Stream>(part.key)? {
        let from = part.behind.next().unwrap_or(EntryId::MAX);
        let entries = stream.range(from, EntryId::MAX).inspect(|entry| {
            if reading.group.is_some() {
                ids.push(entry.id);
            }
        });
        writer.entries(entries, reading.count, out)?;
    }
    let Some((group, consumer)) = reading.group else { return Ok(()) };
    let now_ms = tx.now_ms();
    tx.adjust::<Stream, _>(part.key, |stream| {
        let number = stream.view().group(group).and_then(|group| group.find_consumer(consumer));
        if let Some(number) = number {
            stream.read(group, number, &ids, now_ms, reading.is_acknowledged);
        }
    })?;
    Ok(())
}

/// Writes entries that a consumer has got before and has not acknowledged.
fn write_history(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    part: &Part<'_>,
    writer: &mut EntryWriter,
    out: &mut Nested<'_>,
) -> Result<()> {
    let Some((group_name, name)) = reading.group else { return Ok(()) };
    let now_ms = tx.now_ms();
    let mut delivered = Vec::new();
    if let Some(stream) = tx.peek::<Stream>(part.key)?
        && let Some(group) = stream.group(group_name)
        && let Some(consumer) = group.find_consumer(name).and_then(|number| group.consumer(number))
    {
        let from = part.behind.next().unwrap_or(EntryId::MAX);
        let pending = consumer.pending(from, EntryId::MAX);
        let count = if reading.count == 0 { pending.len() } else { reading.count.min(pending.len()) };
        out.array(count);
        for id in pending.take(count) {
            let Some(entry) = stream.get(id) else {
                out.array(2);
                writer.id(id, out);
                let _ = out.part().nil_array();
                continue;
            };
            writer.entry(entry, out);
            let delivery = group.pending_at(id);
            delivered.extend(delivery.map(|delivery| {
                (id, Delivery { at_ms: now_ms, count: delivery.count.wrapping_add(1), ..delivery })
            }));
        }
    }
    tx.adjust::<Stream, _>(part.key, |stream| {
        for (id, delivery) in delivered {
            stream.deliver(group_name, id, delivery);
        }
    })?;
    Ok(())
}
