//! Entries that were delivered to a consumer and not acknowledged yet.

use crate::commands::costs;
use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{Delivery, EntryId};

use super::{EntryWriter, ids, no_key_or_group, printed};
use crate::commands::args::{integer, is_word};
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XACK, XAUTOCLAIM, XCLAIM, XPENDING];

/// The facts that most commands of this file share.
const STREAM: Command = Command { categories: Categories::STREAM, group: Group::STREAM, ..Command::DEFAULTS };

const XACK: Command = Command {
    name: "xack",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Acknowledges entries for a group; returns how many were pending.",
    since: "5.0.0",
    complexity: "O(1) for each message ID processed.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("group"), Argument::string("id").multiple()],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XACK mystream mygroup 1-1 2-1", "(integer) 1"),
    ],
    run: Run::Write(xack),
    ..STREAM
};

fn xack(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, group) = (request.at(1), request.at(2));
    if tx.get::<Stream>(key)?.is_none_or(|stream| stream.group(group).is_none()) {
        return Ok(reply.count(0));
    }
    let ids = request.from(3).map(ids::parse).collect::<Result<Vec<_>>>()?;
    let done = tx.adjust::<Stream, _>(key, |stream| stream.acknowledge(group, &ids))?;
    Ok(reply.count(done.unwrap_or(0)))
}

const XPENDING: Command = Command {
    name: "xpending",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    summary: "Returns the pending entries of a group: a summary, or one by one.",
    since: "5.0.0",
    complexity: "O(N) with N being the number of elements returned, so asking for a small fixed number of entries per call is O(1). O(M), where M is the total number of entries scanned when used with the IDLE filter. When the command returns just the summary and the list of consumers is small, it runs in O(1) time; otherwise, an additional O(N) time for iterating every consumer.",
    cost: costs::OF_PENDING,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        Argument::block(
            "filters",
            &[
                Argument::integer("min-idle-time").token("IDLE").since("6.2.0").optional(),
                Argument::string("start"),
                Argument::string("end"),
                Argument::integer("count"),
                Argument::string("consumer").optional(),
            ],
        )
        .optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XPENDING mystream mygroup", "[(integer) 1, \"1-1\", \"1-1\", [[\"Alice\", \"1\"]]]"),
    ],
    run: Run::Read(xpending),
    ..STREAM
};

/// The filter of XPENDING.
struct Listing<'a> {
    idle_ms_min: i64,
    from: EntryId,
    to: EntryId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Listing<'a> {
    fn parse(request: Request<'a>) -> Result<Option<Listing<'a>>> {
        let (mut first, mut idle_ms_min) = (3, 0);
        match request.len() {
            3 => return Ok(None),
            6..=9 => {}
            _ => return Err(Error::SYNTAX),
        }
        if is_word(request.at(3), "idle") {
            idle_ms_min = integer(request.at(4))?;
            if request.len() < 8 {
                return Err(Error::SYNTAX);
            }
            first = 5;
        }
        let count = integer(request.at(first + 2))?.max(0) as usize;
        let (from, to) = (ids::parse_start(request.at(first))?, ids::parse_end(request.at(first + 1))?);
        Ok(Some(Listing { idle_ms_min, from, to, count, consumer: request.get(first + 3) }))
    }
}

fn xpending(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let listing = Listing::parse(request)?;
    let (key, name) = (request.at(1), request.at(2));
    let group = tx.get::<Stream>(key)?.and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_key_or_group(key, name, ""))?;
    let mut writer = EntryWriter::default();
    let Some(listing) = listing else {
        return reply.nested(|parts| {
            let mut pending = group.pending(EntryId::ZERO, EntryId::MAX);
            parts.array(4);
            let _ = parts.part().count(group.pending_count());
            let Some((first, _)) = pending.next() else {
                let _ = parts.part().nil();
                let _ = parts.part().nil();
                let _ = parts.part().nil_array();
                return Ok(());
            };
            writer.id(first, parts);
            writer.id(pending.next_back().map_or(first, |(last, _)| last), parts);
            let owners = group.consumers().filter(|(_, consumer)| consumer.pending_count() > 0);
            parts.array(owners.clone().count());
            for (_, consumer) in owners {
                parts.array(2);
                let _ = parts.part().bulk(consumer.name());
                let count = itoa::Buffer::new().format(consumer.pending_count()).as_bytes().to_vec();
                let _ = parts.part().bulk(&count);
            }
            Ok(())
        });
    };
    let consumer = match listing.consumer.map(|name| group.find_consumer(name)) {
        Some(None) => return Ok(reply.array_of([(); 0].into_iter(), |(), reply| reply.nil())),
        Some(number) => number,
        None => None,
    };
    // One of the two lists is empty.
    let (from, to) = (listing.from, listing.to);
    let own = consumer.and_then(|number| group.consumer(number)).map(|consumer| consumer.pending(from, to));
    let own = own.into_iter().flatten().filter_map(|id| Some((id, group.pending_at(id)?)));
    let all = consumer.is_none().then(|| group.pending(from, to)).into_iter().flatten();
    let now_ms = tx.now_ms() as i64;
    let idle_ms = |delivery: &Delivery| now_ms.saturating_sub(delivery.at_ms as i64);
    let listed = own
        .chain(all)
        .filter(|(_, delivery)| is_idle(delivery, listing.idle_ms_min, now_ms))
        .take(listing.count);
    reply.nested(|parts| {
        parts.array_counted(|parts| {
            let mut count = 0;
            for (id, delivery) in listed {
                parts.array(4);
                writer.id(id, parts);
                let name = group.consumer(delivery.consumer).map_or(&[][..], |consumer| consumer.name());
                let _ = parts.part().bulk(name);
                let idle_ms = if delivery.has_consumer() { idle_ms(&delivery).max(0) } else { -1 };
                let _ = parts.part().integer(idle_ms);
                let _ = parts.part().integer(delivery.count as i64);
                count += 1;
            }
            Ok(count)
        })
    })
}

const XCLAIM: Command = Command {
    name: "xclaim",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Transfers given pending entries to another consumer, and returns them.",
    since: "5.0.0",
    complexity: "O(log N) with N being the number of messages in the PEL of the consumer group.",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        Argument::string("consumer"),
        Argument::string("min-idle-time"),
        Argument::string("id").multiple(),
        Argument::integer("ms").token("IDLE").optional(),
        Argument::unix_time("unix-time-milliseconds").token("TIME").optional(),
        Argument::integer("count").token("RETRYCOUNT").optional(),
        Argument::word("FORCE").optional(),
        Argument::word("JUSTID").optional(),
        Argument::string("lastid").token("LASTID").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XCLAIM mystream mygroup Bob 0 1-1", "[[\"1-1\", [\"name\", \"Sara\"]]]"),
        ("XCLAIM mystream mygroup Bob 3600000 1-1 JUSTID", "[]"),
    ],
    run: Run::Write(xclaim),
    ..STREAM
};

/// The options of XCLAIM.
struct Claim {
    idle_ms_min: i64,
    ids: Vec<EntryId>,
    at_ms: Option<i64>,
    count: Option<u64>,
    is_forced: bool,
    just_ids: bool,
    last_id: EntryId,
}

impl Claim {
    fn parse(request: Request<'_>, now_ms: i64) -> Result<Claim> {
        let ids: Vec<EntryId> = request.from(5).map_while(|text| ids::parse(text).ok()).collect();
        let mut at = 5 + ids.len();
        let mut claim = Claim {
            idle_ms_min: idle_ms_min(request.at(4), "XCLAIM")?,
            ids,
            at_ms: None,
            count: None,
            is_forced: false,
            just_ids: false,
            last_id: EntryId::ZERO,
        };
        while let Some(option) = request.get(at) {
            let value = request.get(at + 1);
            let number = |name: &str, value: &[u8]| {
                let wrong = || Error::text(format!("ERR Invalid {name} option argument for XCLAIM"));
                parse_integer(value).ok_or_else(wrong)
            };
            at += match value {
                _ if is_word(option, "force") => {
                    claim.is_forced = true;
                    1
                }
                _ if is_word(option, "justid") => {
                    claim.just_ids = true;
                    1
                }
                Some(value) if is_word(option, "idle") => {
                    claim.at_ms = Some(now_ms.wrapping_sub(number("IDLE", value)?));
                    2
                }
                Some(value) if is_word(option, "time") => {
                    claim.at_ms = Some(number("TIME", value)?);
                    2
                }
                Some(value) if is_word(option, "retrycount") => {
                    claim.count = u64::try_from(number("RETRYCOUNT", value)?).ok();
                    2
                }
                Some(value) if is_word(option, "lastid") => {
                    claim.last_id = ids::parse(value)?;
                    2
                }
                _ => return Err(Error::quoting("ERR Unrecognized XCLAIM option '", printed(option), "'")),
            };
        }
        Ok(claim)
    }

    /// How an entry was delivered before it is claimed, or nothing if it cannot be.
    fn before(&self, stream: &Ledger, group: &[u8], id: EntryId, now_ms: i64) -> Option<Delivery> {
        let is_idle = |delivery: &Delivery| is_idle(delivery, self.idle_ms_min, now_ms);
        match stream.group(group)?.pending_at(id) {
            Some(delivery) => Some(delivery).filter(is_idle),
            None => self.is_forced.then_some(Delivery { count: 1, ..Delivery::released(1) }),
        }
    }
}

/// Whether an entry has been pending for at least this time. An entry without a consumer need not wait.
fn is_idle(delivery: &Delivery, idle_ms_min: i64, now_ms: i64) -> bool {
    let idle_ms = now_ms.saturating_sub(delivery.at_ms as i64);
    idle_ms_min == 0 || !delivery.has_consumer() || idle_ms >= idle_ms_min
}

fn idle_ms_min(text: &[u8], command: &str) -> Result<i64> {
    let wrong = || Error::text(format!("ERR Invalid min-idle-time argument for {command}"));
    parse_integer(text).map(|number| number.max(0)).ok_or_else(wrong)
}

/// Adds the consumer that claims entries to its group, or notes that it was heard of, whether it gets any or
/// not. Returns its number.
fn meet(tx: &mut Transaction<'_>, key: &[u8], group: &[u8], name: &[u8]) -> Result<u32> {
    let now_ms = tx.now_ms();
    let met = tx.adjust::<Stream, _>(key, |stream| stream.meet_consumer(group, name, now_ms))?;
    let (consumer, is_new) = met.flatten().ok_or_else(|| no_key_or_group(key, group, ""))?;
    if is_new {
        tx.event(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    Ok(consumer)
}

fn xclaim(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, group) = (request.at(1), request.at(2));
    if tx.get::<Stream>(key)?.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_key_or_group(key, group, ""));
    }
    let now_ms = tx.now_ms() as i64;
    let claim = Claim::parse(request, now_ms)?;
    // A moment that cannot be is taken for now: the clocks of clients differ.
    let at_ms = claim.at_ms.filter(|at_ms| (0..=now_ms).contains(at_ms)).unwrap_or(now_ms) as u64;
    let consumer = meet(tx, key, group, request.at(3))?;
    let mut claimed = Vec::new();
    tx.adjust::<Stream, _>(key, |stream| {
        let before = stream.view().group(group).map(|group| (group.last_id, group.entries_read));
        if let Some((last_id, read)) = before
            && claim.last_id > last_id
        {
            stream.set_group(group, claim.last_id, read);
        }
        for id in &claim.ids {
            if stream.view().get(*id).is_none() {
                stream.acknowledge(group, &[*id]);
                continue;
            }
            let Some(before) = claim.before(stream.view(), group, *id, now_ms) else { continue };
            let count_after = if claim.just_ids { before.count } else { before.count_after() };
            let count = claim.count.unwrap_or(count_after);
            stream.deliver(group, *id, Delivery { consumer, at_ms, count });
            claimed.push(*id);
        }
        if !claimed.is_empty() {
            stream.note_activity(group, consumer, now_ms as u64);
        }
    })?;
    reply.nested(|parts| write_claimed(tx, key, &claimed, claim.just_ids, parts))
}

/// Writes the entries that were claimed, or their IDs.
fn write_claimed(
    tx: &Transaction<'_>,
    key: &[u8],
    claimed: &[EntryId],
    just_ids: bool,
    parts: &mut crate::resp::reply::Nested<'_>,
) -> Result<()> {
    let mut writer = EntryWriter::default();
    let stream = tx.peek::<Stream>(key)?;
    parts.array(claimed.len());
    for id in claimed {
        match stream.and_then(|stream| stream.get(*id)) {
            Some(entry) if !just_ids => writer.entry(entry, parts),
            _ => writer.id(*id, parts),
        }
    }
    Ok(())
}

const XAUTOCLAIM: Command = Command {
    name: "xautoclaim",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Transfers idle pending entries to another consumer, batch by batch.",
    since: "6.2.0",
    complexity: "O(1) if COUNT is small.",
    cost: costs::WITH_COUNT_CHANGING,
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        Argument::string("consumer"),
        Argument::string("min-idle-time"),
        Argument::string("start"),
        Argument::integer("count").token("COUNT").optional(),
        Argument::word("JUSTID").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XAUTOCLAIM mystream mygroup Bob 0 0 JUSTID", "[\"0-0\", [\"1-1\"], []]"),
    ],
    run: Run::Write(xautoclaim),
    ..STREAM
};

fn xautoclaim(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    /// Entries that are looked at for each that may be claimed.
    const ATTEMPTS: u64 = 10;
    /// Redis: the length of this many IDs still fits into 64 bits.
    const COUNT_MAX: u64 = i64::MAX as u64 / 16;
    /// No server has memory for the IDs of more.
    const COUNT_OF_MEMORY: u64 = 1 << 43;
    /// Entries that one request claims, whatever its COUNT, which is a limit only: that takes some
    /// milliseconds. The cursor of the reply says where the client goes on, as always.
    const CLAIMED_AT_ONCE_MAX: u64 = 5000;
    /// The same for entries that it looks at: some have not been idle for long enough.
    const SEEN_AT_ONCE_MAX: u64 = 10_000;
    let (key, group) = (request.at(1), request.at(2));
    // Redis looks the key up first, whatever the options are.
    let _ = tx.get_any(key);
    let (idle_ms_min, start) = (idle_ms_min(request.at(4), "XAUTOCLAIM")?, ids::parse_start(request.at(5))?);
    let (mut count, mut just_ids, mut at) = (100, false, 6);
    while let Some(option) = request.get(at) {
        match request.get(at + 1) {
            Some(value) if is_word(option, "count") => {
                let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                let number = number.filter(|number| (1..=COUNT_MAX).contains(number));
                count = number.ok_or(Error::fixed("ERR COUNT must be > 0"))?;
                at += 1;
            }
            _ if is_word(option, "justid") => just_ids = true,
            _ => return Err(Error::SYNTAX),
        }
        at += 1;
    }
    if tx.peek::<Stream>(key)?.is_none_or(|stream| stream.group(group).is_none()) {
        return Err(no_key_or_group(key, group, ""));
    }
    if count > COUNT_OF_MEMORY {
        return Err(Error::fixed(
            "ERR Insufficient memory, failed allocating transient memory, COUNT too high.",
        ));
    }
    count = count.min(CLAIMED_AT_ONCE_MAX);
    let now_ms = tx.now_ms();
    let (mut claimed, mut deleted, mut next) = (Vec::new(), Vec::new(), EntryId::ZERO);
    if let Some(stream) = tx.peek::<Stream>(key)?
        && let Some(group) = stream.group(group)
    {
        let mut attempts = count.saturating_mul(ATTEMPTS).min(SEEN_AT_ONCE_MAX);
        for (id, delivery) in group.pending(start, EntryId::MAX) {
            if attempts == 0 || count == 0 {
                next = id;
                break;
            }
            attempts -= 1;
            if stream.get(id).is_none() {
                deleted.push(id);
                count -= 1;
            } else if is_idle(&delivery, idle_ms_min, now_ms as i64) {
                let deliveries = if just_ids { delivery.count } else { delivery.count_after() };
                claimed.push((id, Delivery { consumer: 0, at_ms: now_ms, count: deliveries }));
                count -= 1;
            }
        }
    }
    let consumer = meet(tx, key, group, request.at(3))?;
    tx.adjust::<Stream, _>(key, |stream| {
        if !claimed.is_empty() {
            stream.note_activity(group, consumer, now_ms);
        }
        for (id, delivery) in &claimed {
            stream.deliver(group, *id, Delivery { consumer, ..*delivery });
        }
        stream.acknowledge(group, &deleted);
    })?;
    let claimed: Vec<EntryId> = claimed.into_iter().map(|(id, _)| id).collect();
    let mut writer = EntryWriter::default();
    reply.nested(|parts| {
        parts.array(3);
        writer.id(next, parts);
        write_claimed(tx, key, &claimed, just_ids, parts)?;
        parts.array(deleted.len());
        deleted.iter().for_each(|id| writer.id(*id, parts));
        Ok(())
    })
}
