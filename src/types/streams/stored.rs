//! Streams in files and in the log.

use std::collections::BTreeSet;
use std::io;

use super::Stream;
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::dump::{Compressor, STREAM_WITH_ACTIVITY, STREAM_WITH_PRODUCERS, STREAM_WITH_RELEASED};
use crate::keyspace::records;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{Delivery, EntryId, Group, MESSAGES, Message, Producers, SECONDS, Salvage};
use crate::values::{Content, Limit, Loaded, Sink, Structure, Type};

/// The RDB type of streams before Redis 7.0, without counters.
const STREAM: u8 = 15;
/// The one of Redis 7.0, which Keyfast writes where it has all that there is.
const STREAM_2: u8 = 19;
/// The time at which a consumer has got an entry that never has. Redis: -1.
const NEVER: u64 = u64::MAX;
/// The RDB types that are read.
pub(super) const RDB_TYPES: &[u8] =
    &[STREAM, STREAM_2, STREAM_WITH_ACTIVITY, STREAM_WITH_PRODUCERS, STREAM_WITH_RELEASED];

const WRONG_KEY: DecodeError = DecodeError::Invalid("a block of a stream has no ID");
const WRONG_COUNT: DecodeError = DecodeError::Invalid("Stream metadata contradicts the entries.");
const DOUBLE_GROUP: DecodeError = DecodeError::Invalid("Duplicated consumer group name");
const DOUBLE_CONSUMER: DecodeError = DecodeError::Invalid("Duplicate stream consumer detected");
const DOUBLE_PENDING: DecodeError = DecodeError::Invalid("Duplicated global PEL entry");
const PENDING_ORDER: DecodeError = DecodeError::Invalid("pending entries are not in the order of their IDs");
const TWO_OWNERS: DecodeError = DecodeError::Invalid("an entry is pending for two consumers");
const NOT_PENDING: DecodeError = DecodeError::Invalid("Consumer entry not found in group global PEL");
const WRONG_PRODUCERS: DecodeError = DecodeError::Invalid("Stream IDMP configuration out of range");
const DOUBLE_MESSAGE: DecodeError = DecodeError::Invalid("Duplicate stream IDMP entry");
const NOT_FREE: DecodeError = DecodeError::Invalid("Stream NACK zone entry has a consumer assigned");
const NO_OWNER: DecodeError = DecodeError::Invalid("NACK entry without consumer");

fn write_id(out: &mut Vec<u8>, id: EntryId) {
    write_length(out, id.ms);
    write_length(out, id.seq);
}

/// The producers of a stream, if it has what [`STREAM_2`] has not.
fn producers(stream: &Ledger) -> Option<&Producers> {
    stream.producers().filter(|producers| !producers.is_new())
}

/// The RDB type as which a stream is written: that of 7.0, which all servers read, wherever it has room. It
/// has one time for a consumer, when it was heard of.
pub(super) fn rdb_type(content: Content<'_>) -> u8 {
    match Stream::view(content) {
        stream if stream.groups().any(|group| group.released_count() > 0) => STREAM_WITH_RELEASED,
        stream if producers(stream).is_some() => STREAM_WITH_PRODUCERS,
        _ => STREAM_2,
    }
}

/// Writes a stream as Redis does.
pub(super) fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let stream = Stream::view(content);
    write_length(sink.buffer(), stream.listpacks_count() as u64);
    for (id, listpack) in stream.listpacks() {
        write_string(sink.buffer(), &id.to_bytes(), None);
        write_string(sink.buffer(), listpack, compressor.as_deref_mut());
        sink.pass_on()?;
    }
    let out = sink.buffer();
    // Redis refuses a file with a stream that counts entries and has none.
    write_length(out, if stream.is_empty() { 0 } else { stream.length() });
    write_id(out, stream.last_id);
    write_id(out, stream.first().map_or(EntryId::ZERO, |first| first.id));
    write_id(out, stream.max_deleted_id);
    write_length(out, stream.entries_added);
    write_length(out, stream.groups().len() as u64);
    let (producers, rdb_type) = (producers(stream), rdb_type(content));
    for group in stream.groups() {
        save_group(sink, group, rdb_type, compressor.as_deref_mut())?;
    }
    match producers {
        Some(producers) => save_producers(sink, producers)?,
        None if rdb_type == STREAM_WITH_RELEASED => save_producers(sink, &Producers::default())?,
        None => {}
    }
    sink.pass_on()
}

fn save_producers(sink: &mut dyn Sink, producers: &Producers) -> io::Result<()> {
    let out = sink.buffer();
    write_length(out, producers.seconds);
    write_length(out, producers.messages_max);
    write_length(out, producers.len() as u64);
    let mut messages = producers.messages().peekable();
    while let Some(first) = messages.peek().copied() {
        let is_own = |message: &Message<'_>| message.producer == first.producer;
        let count = producers.messages_of(first.producer);
        write_string(sink.buffer(), first.producer, None);
        write_length(sink.buffer(), count as u64);
        while let Some(message) = messages.next_if(is_own) {
            write_string(sink.buffer(), message.name, None);
            write_id(sink.buffer(), message.id);
            sink.pass_on()?;
        }
    }
    let out = sink.buffer();
    write_length(out, producers.added);
    write_length(out, producers.repeated);
    Ok(())
}

fn save_group(
    sink: &mut dyn Sink,
    group: &Group,
    rdb_type: u8,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let out = sink.buffer();
    write_string(out, group.name(), compressor.as_deref_mut());
    write_id(out, group.last_id);
    // Redis: -1 is unknown.
    write_length(out, group.entries_read.unwrap_or(u64::MAX));
    write_length(out, group.pending_count() as u64);
    for (id, delivery) in group.pending(EntryId::ZERO, EntryId::MAX) {
        let out = sink.buffer();
        out.extend_from_slice(&id.to_bytes());
        out.extend_from_slice(&delivery.at_ms.to_le_bytes());
        write_length(out, delivery.count);
        sink.pass_on()?;
    }
    write_length(sink.buffer(), group.consumers_count() as u64);
    for (_, consumer) in group.consumers() {
        let out = sink.buffer();
        write_string(out, consumer.name(), compressor.as_deref_mut());
        out.extend_from_slice(&consumer.seen_ms().to_le_bytes());
        if rdb_type != STREAM_2 {
            out.extend_from_slice(&consumer.active_ms().unwrap_or(NEVER).to_le_bytes());
        }
        write_length(out, consumer.pending_count() as u64);
        for id in consumer.pending(EntryId::ZERO, EntryId::MAX) {
            sink.buffer().extend_from_slice(&id.to_bytes());
            sink.pass_on()?;
        }
    }
    if rdb_type == STREAM_WITH_RELEASED {
        write_length(sink.buffer(), group.released_count() as u64);
        for id in group.released() {
            sink.buffer().extend_from_slice(&id.to_bytes());
            sink.pass_on()?;
        }
    }
    Ok(())
}

fn read_id(input: &mut dyn Source) -> Result<EntryId, DecodeError> {
    Ok(EntryId { ms: input.length()?, seq: input.length()? })
}

fn read_raw_id(input: &mut dyn Source) -> Result<EntryId, DecodeError> {
    let mut bytes = [0; EntryId::BYTES];
    input.bytes(&mut bytes)?;
    Ok(EntryId::from_bytes(bytes))
}

fn read_moment(input: &mut dyn Source) -> Result<u64, DecodeError> {
    let mut bytes = [0; 8];
    input.bytes(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads a stream of one of [`RDB_TYPES`].
pub(super) fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    _: Limit,
    _: &mut Vec<u8>,
) -> Result<Loaded, DecodeError> {
    let mut stream = load_blocks(input)?;
    let (length, last_id) = (input.length()?, read_id(input)?);
    if last_id < stream.last_id || length > 0 && stream.is_empty() {
        input.forgive(WRONG_COUNT)?;
    }
    if length != stream.len() as u64 && !stream.is_empty() {
        // Redis takes it from clients, too: see `Ledger::length`.
        let _ = input.forgive(WRONG_COUNT);
        stream.set_length(length);
    }
    (stream.last_id, stream.entries_added) = (last_id.max(stream.last_id), length);
    if rdb_type != STREAM {
        // The first ID follows from the entries.
        let _ = read_id(input)?;
        stream.max_deleted_id = read_id(input)?;
        stream.entries_added = input.length()?;
    }
    for _ in 0..input.length()? {
        load_group(rdb_type, input, &mut stream)?;
    }
    if matches!(rdb_type, STREAM_WITH_PRODUCERS | STREAM_WITH_RELEASED) {
        load_producers(input, &mut stream)?;
    }
    Ok(Loaded::Large(Structure::Ledger(stream)))
}

/// Reads the blocks of a stream. From one on that is not as it should be, the entries are taken out of them.
fn load_blocks(input: &mut dyn Source) -> Result<Box<Ledger>, DecodeError> {
    let mut stream = Box::<Ledger>::default();
    let (mut key, mut salvage) = (Vec::new(), None::<Salvage>);
    for _ in 0..input.length()? {
        input.string(&mut key)?;
        let id = EntryId::from_bytes(key.as_slice().try_into().map_err(|_| WRONG_KEY)?);
        let mut listpack = Vec::new();
        input.string(&mut listpack)?;
        listpack.shrink_to_fit();
        match &mut salvage {
            Some(salvage) => salvage.add(id, listpack)?,
            None => {
                if let Err((why, listpack)) = stream.append_listpack(id, listpack) {
                    input.forgive(why)?;
                    salvage.insert(Salvage::of(&stream)).add(id, listpack)?;
                }
            }
        }
    }
    Ok(salvage.map_or(stream, |salvage| Box::new(salvage.finish())))
}

fn load_producers(input: &mut dyn Source, stream: &mut Ledger) -> Result<(), DecodeError> {
    let (seconds, messages_max) = (input.length()?, input.length()?);
    if !SECONDS.contains(&seconds) || !MESSAGES.contains(&messages_max) {
        return Err(WRONG_PRODUCERS);
    }
    let mut producers = Producers::default();
    (producers.seconds, producers.messages_max) = (seconds, messages_max);
    let (mut producer, mut name) = (Vec::new(), Vec::new());
    for _ in 0..input.length()? {
        input.string(&mut producer)?;
        for _ in 0..input.length()? {
            input.string(&mut name)?;
            if !producers.append(&producer, &name, read_id(input)?) {
                return Err(DOUBLE_MESSAGE);
            }
        }
    }
    (producers.added, producers.repeated) = (input.length()?, input.length()?);
    // A stream without any is written by Redis in this way, too.
    if !producers.is_new() {
        *stream.producers_mut() = producers;
    }
    Ok(())
}

fn load_group(rdb_type: u8, input: &mut dyn Source, stream: &mut Ledger) -> Result<(), DecodeError> {
    let mut name = Vec::new();
    input.string(&mut name)?;
    let last_id = read_id(input)?;
    let entries_read = match rdb_type {
        STREAM => {
            let first = stream.first().map(|first| first.id);
            super::counting::entries_up_to(stream, first, last_id)
        }
        // A count that began near the end of all numbers may be beyond it.
        _ => Some(input.length()?).filter(|read| *read != u64::MAX),
    };
    if !stream.add_group(&name, last_id, entries_read) {
        return Err(DOUBLE_GROUP);
    }
    let loaded = stream.change_group(&name, |group| {
        for _ in 0..input.length()? {
            let (id, at_ms) = (read_raw_id(input)?, read_moment(input)?);
            let count = input.length()?;
            if !group.append_pending(id, at_ms, count) {
                if group.pending_at(id).is_some() {
                    return Err(DOUBLE_PENDING);
                }
                input.forgive(PENDING_ORDER)?;
                group.deliver(id, Delivery { at_ms, ..Delivery::released(count) });
            }
        }
        load_consumers(rdb_type, input, group)?;
        let released = if rdb_type == STREAM_WITH_RELEASED { input.length()? } else { 0 };
        load_released(input, group, released)
    });
    loaded.unwrap_or(Err(DOUBLE_GROUP))
}

fn load_consumers(rdb_type: u8, input: &mut dyn Source, group: &mut Group) -> Result<(), DecodeError> {
    let mut name = Vec::new();
    for _ in 0..input.length()? {
        input.string(&mut name)?;
        let seen_ms = read_moment(input)?;
        let active_ms = match rdb_type {
            STREAM | STREAM_2 => seen_ms,
            _ => read_moment(input)?,
        };
        let (consumer, is_new) = group.add_consumer(&name, seen_ms);
        group.set_active(consumer, Some(active_ms).filter(|active_ms| *active_ms != NEVER));
        if !is_new {
            return Err(DOUBLE_CONSUMER);
        }
        for _ in 0..input.length()? {
            let id = read_raw_id(input)?;
            if !group.own(id, consumer) {
                let delivery = group.pending_at(id).ok_or(NOT_PENDING)?;
                input.forgive(TWO_OWNERS)?;
                group.deliver(id, Delivery { consumer, ..delivery });
            }
        }
    }
    Ok(())
}

/// Reads the entries that no consumer has, in the order in which they were given back. Others that no
/// consumer has are pending nowhere.
fn load_released(input: &mut dyn Source, group: &mut Group, released: u64) -> Result<(), DecodeError> {
    let mut named = BTreeSet::new();
    for _ in 0..released {
        let id = read_raw_id(input)?;
        let delivery = group.pending_at(id).ok_or(NOT_PENDING)?;
        if delivery.has_consumer() {
            return Err(NOT_FREE);
        }
        group.deliver(id, Delivery::released(delivery.count));
        named.insert(id);
    }
    if named.len() != group.released_count() {
        input.forgive(NO_OWNER)?;
        let all = group.pending(EntryId::ZERO, EntryId::MAX);
        let is_lost = |(id, delivery): &(EntryId, Delivery)| !delivery.has_consumer() && !named.contains(id);
        let lost: Vec<EntryId> = all.filter(is_lost).map(|(id, _)| id).collect();
        lost.into_iter().for_each(|id| _ = group.acknowledge(id));
    }
    Ok(())
}

/// Appends the requests that write a stream. An entry can only become pending while it is there, so those
/// that were deleted since are added, too, and deleted in the end.
pub(super) fn log(
    sink: &mut dyn Sink,
    key: &[u8],
    content: Content<'_>,
    expires_at_ms: Option<u64>,
) -> io::Result<()> {
    let stream = Stream::view(content);
    let (mut buffer, mut id) = (itoa::Buffer::new(), Vec::new());
    records::request(sink.buffer(), &[b"DEL", key]);
    let pending = stream.groups().flat_map(|group| group.pending(EntryId::ZERO, EntryId::MAX));
    let gone: BTreeSet<EntryId> = pending.map(|(id, _)| id).filter(|id| stream.get(*id).is_none()).collect();
    if stream.is_empty() && gone.is_empty() {
        records::request(sink.buffer(), &[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
    }
    let mut rest = gone.iter().peekable();
    for entry in stream.range(EntryId::ZERO, EntryId::MAX) {
        while let Some(gone) = rest.next_if(|gone| **gone < entry.id) {
            add_for_a_while(sink, key, *gone, &mut id);
        }
        entry.id.write(&mut id);
        let parts = entry.fields.flat_map(|(name, value)| [name, value]);
        let parts: Vec<Vec<u8>> = parts.map(|part| part.text(&mut buffer).to_vec()).collect();
        let words: Vec<&[u8]> =
            [b"XADD", key, &id].into_iter().chain(parts.iter().map(Vec::as_slice)).collect();
        records::request(sink.buffer(), &words);
        sink.pass_on()?;
    }
    for gone in rest {
        add_for_a_while(sink, key, *gone, &mut id);
        sink.pass_on()?;
    }
    // Redis 8 compares how much a group has read with how much was added, which must therefore come first.
    let last_id = gone.last().map_or(stream.last_id, |gone| stream.last_id.max(*gone));
    let added = stream.entries_added.max((stream.len() + gone.len()) as u64);
    log_counters(sink, key, last_id, added, stream.max_deleted_id);
    for group in stream.groups() {
        log_group(sink, key, group)?;
    }
    if !gone.is_empty() {
        log_deletions(sink, key, stream, &gone)?;
        log_counters(sink, key, stream.last_id, stream.entries_added, stream.max_deleted_id);
    }
    if let Some(producers) = producers(stream) {
        log_producers(sink, key, producers)?;
    }
    if expires_at_ms.is_some() {
        records::expiry(sink.buffer(), key, expires_at_ms);
    }
    sink.pass_on()
}

/// Appends the requests that delete the entries that were only added for a while.
fn log_deletions(
    sink: &mut dyn Sink,
    key: &[u8],
    stream: &Ledger,
    gone: &BTreeSet<EntryId>,
) -> io::Result<()> {
    let live = stream.first().map(|first| first.id);
    if gone.first().is_some_and(|gone| live.is_none_or(|live| *gone < live)) {
        let edge = live.map_or_else(|| b"0".to_vec(), EntryId::text);
        let rule: &[u8] = if live.is_some() { b"MINID" } else { b"MAXLEN" };
        records::request(sink.buffer(), &[b"XTRIM", key, rule, b"=", &edge]);
    }
    for gone in gone.iter().filter(|gone| live.is_some_and(|live| **gone > live)) {
        records::request(sink.buffer(), &[b"XDEL", key, &gone.text()]);
        sink.pass_on()?;
    }
    Ok(())
}

/// Appends the requests that set the last ID of a stream, and its counters. The ID may lie below that of a
/// deleted entry, but not of one that the same request names.
fn log_counters(sink: &mut dyn Sink, key: &[u8], last_id: EntryId, added: u64, max_deleted_id: EntryId) {
    let (id, deleted, mut buffer) = (last_id.text(), max_deleted_id.text(), itoa::Buffer::new());
    let (highest, added) = (last_id.max(max_deleted_id).text(), buffer.format(added).as_bytes());
    let words: [&[u8]; 7] = [b"XSETID", key, &highest, b"ENTRIESADDED", added, b"MAXDELETEDID", &deleted];
    records::request(sink.buffer(), &words);
    if highest != id {
        records::request(sink.buffer(), &[b"XSETID", key, &id]);
    }
}

fn log_producers(sink: &mut dyn Sink, key: &[u8], producers: &Producers) -> io::Result<()> {
    let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (seconds, messages_max) = (first.format(producers.seconds), second.format(producers.messages_max));
    let values: [&[u8]; 2] = [seconds.as_bytes(), messages_max.as_bytes()];
    let words: [&[u8]; 6] = [b"XCFGSET", key, b"IDMP-DURATION", values[0], b"IDMP-MAXSIZE", values[1]];
    records::request(sink.buffer(), &words);
    for message in producers.messages() {
        let id = message.id.text();
        records::request(sink.buffer(), &[b"XIDMPRECORD", key, message.producer, message.name, &id]);
        sink.pass_on()?;
    }
    Ok(())
}

fn add_for_a_while(sink: &mut dyn Sink, key: &[u8], id: EntryId, text: &mut Vec<u8>) {
    id.write(text);
    records::request(sink.buffer(), &[b"XADD", key, text, b"x", b"y"]);
}

fn log_group(sink: &mut dyn Sink, key: &[u8], group: &Group) -> io::Result<()> {
    let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
    let read = group.entries_read.map_or("-1", |read| first.format(read));
    let (name, id) = (group.name(), group.last_id.text());
    let create: [&[u8]; 7] = [b"XGROUP", b"CREATE", key, name, &id, b"ENTRIESREAD", read.as_bytes()];
    records::request(sink.buffer(), &create);
    for (_, consumer) in group.consumers() {
        records::request(sink.buffer(), &[b"XGROUP", b"CREATECONSUMER", key, name, consumer.name()]);
        sink.pass_on()?;
    }
    for id in group.released() {
        let count = group.pending_at(id).map_or(0, |delivery| delivery.count);
        let words: [&[u8]; 10] = [
            b"XNACK",
            key,
            name,
            b"FAIL",
            b"IDS",
            b"1",
            &id.text(),
            b"RETRYCOUNT",
            first.format(count).as_bytes(),
            b"FORCE",
        ];
        records::request(sink.buffer(), &words);
        sink.pass_on()?;
    }
    for (id, delivery) in group.pending(EntryId::ZERO, EntryId::MAX) {
        let Some(consumer) = group.consumer(delivery.consumer) else { continue };
        let (at_ms, count) = (first.format(delivery.at_ms), second.format(delivery.count));
        let claim: [&[u8]; 12] = [
            b"XCLAIM",
            key,
            name,
            consumer.name(),
            b"0",
            &id.text(),
            b"TIME",
            at_ms.as_bytes(),
            b"RETRYCOUNT",
            count.as_bytes(),
            b"JUSTID",
            b"FORCE",
        ];
        records::request(sink.buffer(), &claim);
        sink.pass_on()?;
    }
    Ok(())
}
