//! What clients that follow streams get: new entries, those that they have got before, and those of other
//! consumers that they claim.

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::reply::Nested;
use crate::resp::{Protocol, Reply, Request, Sent};
use crate::types::streams::Stream;
use crate::values::tree::ledger::{Delivery, EntryId};

use super::budget::Budget;
use super::wishes::Reading;
use super::{EntryWriter, ids, no_key_or_group};
use crate::commands::error::Error;
use crate::commands::facts::{Only, Result, Taken, looks_at};

/// The request for one stream.
struct Part<'a> {
    key: &'a [u8],
    behind: EntryId,
    /// Whether these are entries that the consumer has got before.
    is_history: bool,
    /// Whether entries may be claimed that are pending, and for how long they must have been.
    idle_ms_min: Option<u64>,
}

/// Reads the streams of a request, or those that have changed, for a client that waits.
pub(super) fn read<'r>(
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    is_group: bool,
    only: Only<'_>,
    reply: Reply<'r>,
) -> Result<Taken<'r>> {
    let mut reading = Reading::parse(request, is_group)?;
    let mut parts = Vec::new();
    // All is checked before anything changes.
    for (key, id) in reading.streams(request).filter(|(key, _)| looks_at(only, key)) {
        let part = part(tx, &reading, key, id)?;
        if part.as_ref().is_some_and(|part| part.is_history) {
            // As in Redis: the streams behind it have nothing to claim.
            reading.idle_ms_min = None;
        }
        parts.push((key, part));
    }
    if parts.iter().all(|(_, part)| part.is_none()) {
        for (key, _) in &parts {
            reach(tx, &reading, key)?;
        }
        return Ok(Taken::Nothing(reply));
    }
    write(tx, &reading, &parts, reply).map(Taken::Something)
}

/// The part of one stream in the reply, if it has anything at once.
fn part<'a>(
    tx: &mut Transaction<'_>,
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
        (b"$", Some(_)) => return Err(meaningless("$")),
        (b"+", Some(_)) => return Err(meaningless("+")),
        (b">", None) => {
            return Err(Error::fixed(
                "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                 <consumer> option.",
            ));
        }
        (b"$", None) => stream.map_or(EntryId::ZERO, |stream| stream.last_id),
        (b"+", None) => stream.and_then(|stream| stream.last()).map_or(EntryId::ZERO, |last| before(last.id)),
        (b">", Some(_)) => EntryId::MAX,
        (id, _) => ids::parse(id)?,
    };
    let Some(stream) = stream else { return Ok(None) };
    let behind = match group {
        Some(group) if behind == EntryId::MAX => group.last_id,
        Some(_) => return Ok(Some(Part { key, behind, is_history: true, idle_ms_min: None })),
        None => behind,
    };
    let has_new = stream.last_id > behind && stream.last().is_some_and(|last| last.id > behind);
    let has_more = has_new || has_idle(tx, reading, key)?;
    let idle_ms_min = reading.idle_ms_min;
    Ok(has_more.then_some(Part { key, behind, is_history: false, idle_ms_min }))
}

/// The ID behind which an entry is the first one.
fn before(id: EntryId) -> EntryId {
    id.previous().unwrap_or(EntryId::ZERO)
}

/// The error for an ID that XREADGROUP does not take, though XREAD does.
fn meaningless(id: &str) -> Error {
    Error::text(format!(
        "ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this \
         consumer by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just \
         return an empty result set."
    ))
}

/// Whether a stream has an entry that the client may claim.
fn has_idle(tx: &mut Transaction<'_>, reading: &Reading<'_>, key: &[u8]) -> Result<bool> {
    Ok(idle_entries(tx, reading, reading.idle_ms_min, key, 1)?.is_some_and(|(idle, _)| !idle.is_empty()))
}

/// Pending entries with their deliveries, and when the first of the others was delivered.
type IdleEntries = (Vec<(EntryId, Delivery)>, Option<u64>);

/// The entries that the client may claim, as many as it asks for.
fn idle_entries(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    idle_ms_min: Option<u64>,
    key: &[u8],
    count: usize,
) -> Result<Option<IdleEntries>> {
    let (Some(idle_ms_min), Some((group, _))) = (idle_ms_min, reading.group) else { return Ok(None) };
    let Some(before_ms) = tx.now_ms().checked_sub(idle_ms_min) else { return Ok(None) };
    Ok(tx.adjust::<Stream, _>(key, |stream| stream.idle_entries(group, before_ms, count))?)
}

/// In how many milliseconds a client that waits may find an entry to claim, though nothing is added.
pub(super) fn next_claim_ms(tx: &mut Transaction<'_>, request: Request<'_>) -> Option<u64> {
    /// A client looks again no sooner.
    const PAUSE_MS: u64 = 10;
    let reading = Reading::parse(request, true).ok()?;
    let (idle_ms_min, now_ms) = (reading.idle_ms_min?, tx.now_ms());
    let mut next_ms = idle_ms_min;
    for (key, _) in reading.streams(request) {
        let found = idle_entries(tx, &reading, reading.idle_ms_min, key, 1).ok().flatten();
        if let Some((_, Some(at_ms))) = found {
            next_ms = next_ms.min(at_ms.saturating_add(idle_ms_min).saturating_sub(now_ms));
        }
    }
    Some(next_ms.max(PAUSE_MS))
}

/// Adds the consumer to the group of a stream, if this is there, or notes that it was heard of.
fn meet(tx: &mut Transaction<'_>, reading: &Reading<'_>, key: &[u8]) -> Result<()> {
    let Some((group, consumer)) = reading.group else { return Ok(()) };
    let now_ms = tx.now_ms();
    let met = tx.adjust::<Stream, _>(key, |stream| stream.meet_consumer(group, consumer, now_ms))?;
    if met.flatten().is_some_and(|(_, is_new)| is_new) {
        tx.event(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    Ok(())
}

/// Begins with the next stream. Redis looks its key up again, and since 7.2 it hears of the consumer whatever
/// this one gets.
fn reach(tx: &mut Transaction<'_>, reading: &Reading<'_>, key: &[u8]) -> Result<()> {
    let _ = tx.get::<Stream>(key)?;
    meet(tx, reading, key)
}

/// Writes what is read of each stream, until the reply has enough, and notes what a group has read.
fn write(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    parts: &[(&[u8], Option<Part<'_>>)],
    reply: Reply<'_>,
) -> Result<Sent> {
    let mut writer = EntryWriter::default();
    let is_map = reply.protocol() == Protocol::Resp3;
    reply.nested(|out| {
        let mut budget = Budget::of_reply(reading.count_of_all, reading.bytes_max, out.written());
        out.map_or_array_counted(|out| {
            let mut count = 0;
            for (key, part) in parts {
                if !budget.begin_stream(reading.count, out.written()) {
                    break;
                }
                reach(tx, reading, key)?;
                let Some(part) = part else { continue };
                // A stream may come twice: the group has read it then.
                let behind = match (reading.group, part.is_history) {
                    (Some((group, _)), false) => new_of_group(tx, part.key, group)?,
                    _ => Some(part.behind),
                };
                let idle = idle_entries(tx, reading, part.idle_ms_min, part.key, budget.count())?;
                let idle = idle.map(|(idle, _)| idle).unwrap_or_default();
                let part = match behind {
                    Some(behind) => Part { behind, ..*part },
                    None if idle.is_empty() => continue,
                    None => Part { behind: EntryId::MAX, ..*part },
                };
                if !is_map {
                    out.array(2);
                }
                let _ = out.part().bulk(part.key);
                let counted = tx.counted_changes(part.key);
                match part.is_history {
                    true => write_history(tx, reading, &part, &mut budget, &mut writer, out)?,
                    false => write_new(tx, reading, &part, idle, &mut budget, &mut writer, out)?,
                }
                // Redis counts what a group gets of a stream as one change, and what it gets again as none.
                tx.count_changes_as(part.key, counted, u64::from(!part.is_history));
                count += 1;
            }
            Ok(count)
        })
    })
}

/// The ID behind which a stream has entries that a group has not read yet, if it has.
fn new_of_group(tx: &Transaction<'_>, key: &[u8], group: &[u8]) -> Result<Option<EntryId>> {
    let Some(stream) = tx.peek::<Stream>(key)? else { return Ok(None) };
    let Some(group) = stream.group(group) else { return Ok(None) };
    let has_new = stream.last_id > group.last_id && stream.last().is_some_and(|last| last.id > group.last_id);
    Ok(has_new.then_some(group.last_id))
}

/// Writes entries that a client claims, and those that it, or its group, has not got yet.
fn write_new(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    part: &Part<'_>,
    idle: Vec<(EntryId, Delivery)>,
    budget: &mut Budget,
    writer: &mut EntryWriter,
    out: &mut Nested<'_>,
) -> Result<()> {
    let (mut ids, mut taken, now_ms) = (Vec::new(), Vec::new(), tx.now_ms());
    let tells_deliveries = part.idle_ms_min.is_some();
    if let Some(stream) = tx.peek::<Stream>(part.key)? {
        let from = part.behind.next().unwrap_or(EntryId::MAX);
        let new = stream.range(from, EntryId::MAX).inspect(|entry| {
            if reading.group.is_some() {
                ids.push(entry.id);
            }
        });
        let claimed = idle.into_iter().filter_map(|(id, delivery)| {
            let entry = stream.get(id)?;
            taken.push((id, delivery));
            Some((entry, now_ms.saturating_sub(delivery.at_ms), delivery.count))
        });
        match tells_deliveries {
            true => {
                let entries = claimed.chain(new.map(|entry| (entry, 0, 0)));
                writer.deliveries(entries, budget, out)?;
            }
            false => writer.entries(new, budget, out)?,
        }
    }
    let Some((group, consumer)) = reading.group else { return Ok(()) };
    tx.adjust::<Stream, _>(part.key, |stream| {
        let number = stream.view().group(group).and_then(|group| group.find_consumer(consumer));
        if let Some(consumer) = number {
            if !taken.is_empty() || !ids.is_empty() && !reading.is_acknowledged {
                stream.note_activity(group, consumer, now_ms);
            }
            for (id, before) in taken {
                let count = before.count_after();
                stream.deliver(group, id, Delivery { consumer, at_ms: now_ms, count });
            }
            stream.read(group, consumer, &ids, now_ms, reading.is_acknowledged);
        }
    })?;
    Ok(())
}

/// Writes entries that a consumer has got before and has not acknowledged.
fn write_history(
    tx: &mut Transaction<'_>,
    reading: &Reading<'_>,
    part: &Part<'_>,
    budget: &mut Budget,
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
        let mut pending = consumer.pending(from, EntryId::MAX);
        out.array_counted(|out| {
            let mut count = 0;
            while let Some(id) = budget.next(&mut pending, out) {
                count += 1;
                let Some(entry) = stream.get(id) else {
                    out.array(2);
                    writer.id(id, out);
                    let _ = out.part().nil_array();
                    continue;
                };
                writer.entry(entry, out);
                let delivery = group.pending_at(id);
                delivered.extend(delivery.map(|delivery| {
                    (id, Delivery { at_ms: now_ms, count: delivery.count_after(), ..delivery })
                }));
            }
            Ok::<_, Error>(count)
        })?;
    }
    tx.adjust::<Stream, _>(part.key, |stream| {
        for (id, delivery) in delivered {
            stream.deliver(group_name, id, delivery);
        }
    })?;
    Ok(())
}
