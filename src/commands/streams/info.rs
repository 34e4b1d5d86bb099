//! XINFO: describes a stream, its groups and their consumers.

use crate::keyspace::Transaction;
use crate::resp::reply::Nested;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::types::streams::counting::lag;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{Consumer, Entry, EntryId, Group as ConsumerGroup, Producers};

use super::budget::Budget;
use super::{EntryWriter, no_group};
use crate::commands::args::{integer, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XINFO];

const XINFO: Command = Command {
    name: "xinfo",
    group: Group::STREAM,
    summary: "Inspects streams, consumer groups and consumers.",
    since: "5.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[CONSUMERS, GROUPS, HELP, STREAM],
    ..Command::DEFAULTS
};

const HELP: Command = Command {
    categories: Categories::STREAM,
    group: Group::STREAM,
    ..Command::help("xinfo|help", "5.0.0", || &XINFO)
};

/// The key of a subcommand.
const KEY: KeySpec = KeySpec::range(2, 0, 1, KeyFlags::RO.and(KeyFlags::ACCESS));

fn stream<'t>(tx: &'t Transaction<'_>, request: Request<'_>) -> Result<&'t Ledger> {
    tx.get::<Stream>(request.at(2))?.ok_or(Error::NO_SUCH_KEY)
}

const CONSUMERS: Command = Command {
    name: "xinfo|consumers",
    keys: &[KEY],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Lists the consumers of a group.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::UP_TO_ALL,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY, Argument::string("group")],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XINFO CONSUMERS mystream mygroup", "[]"),
    ],
    run: Run::Read(consumers),
    ..Command::DEFAULTS
};

fn consumers(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let group = stream(tx, request)?.group(request.at(3));
    let group = group.ok_or_else(|| no_group(request.at(2), request.at(3)))?;
    let now_ms = tx.now_ms();
    reply.nested(|parts| {
        parts.array(group.consumers_count());
        for (_, consumer) in group.consumers() {
            // A clock that was set back shows none of the moments that are to come. -1 means never.
            let since = |moment_ms: u64| now_ms.saturating_sub(moment_ms) as i64;
            parts.map(4);
            text(parts, "name", consumer.name());
            number(parts, "pending", consumer.pending_count() as i64);
            number(parts, "idle", since(consumer.seen_ms()));
            number(parts, "inactive", consumer.active_ms().map_or(-1, since));
        }
        Ok(())
    })
}

const GROUPS: Command = Command {
    name: "xinfo|groups",
    keys: &[KEY],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Lists the consumer groups of a stream.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::UP_TO_ALL,
    arguments: &[Argument::KEY],
    example: &[("XADD mystream 1-1 name Sara", "\"1-1\""), ("XINFO GROUPS mystream", "[]")],
    run: Run::Read(groups),
    ..Command::DEFAULTS
};

fn groups(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let stream = stream(tx, request)?;
    let first = stream.first().map(|first| first.id);
    let mut writer = EntryWriter::default();
    reply.nested(|parts| {
        parts.array(stream.groups().len());
        for group in stream.groups() {
            parts.map(6);
            text(parts, "name", group.name());
            number(parts, "consumers", group.consumers_count() as i64);
            number(parts, "pending", group.pending_count() as i64);
            progress(parts, &mut writer, stream, first, group);
        }
        Ok(())
    })
}

fn name(parts: &mut Nested<'_>, name: &str) {
    let _ = parts.part().bulk(name.as_bytes());
}

fn text(parts: &mut Nested<'_>, key: &str, text: &[u8]) {
    name(parts, key);
    let _ = parts.part().bulk(text);
}

fn number(parts: &mut Nested<'_>, key: &str, number: i64) {
    name(parts, key);
    let _ = parts.part().integer(number);
}

fn number_if_known(parts: &mut Nested<'_>, key: &str, number: Option<i64>) {
    name(parts, key);
    let _ = match number {
        Some(number) => parts.part().integer(number),
        None => parts.part().nil(),
    };
}

/// Writes how far a group has read: three pairs.
fn progress(
    parts: &mut Nested<'_>,
    writer: &mut EntryWriter,
    stream: &Ledger,
    first: Option<EntryId>,
    group: &ConsumerGroup,
) {
    name(parts, "last-delivered-id");
    writer.id(group.last_id, parts);
    number_if_known(parts, "entries-read", group.entries_read.map(|read| read as i64));
    number_if_known(parts, "lag", lag(stream, first, group));
}

const STREAM: Command = Command {
    name: "xinfo|stream",
    keys: &[KEY],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Returns details of a stream; FULL adds entries, groups and consumers.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::UP_TO_ALL,
    arguments: &[
        Argument::KEY,
        Argument::block(
            "full-block",
            &[Argument::word("FULL"), Argument::integer("count").token("COUNT").optional()],
        )
        .optional(),
    ],
    example: &[("XINFO STREAM mystream", "(error) ERR no such key")],
    run: Run::Read(describe),
    ..Command::DEFAULTS
};

fn describe(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    /// Entries of each list if there is no COUNT.
    const COUNT: usize = 10;
    let stream = stream(tx, request)?;
    let (first, now_ms) = (stream.first().map(|first| first.id), tx.now_ms());
    let wrong = || Error::wrong_subcommand(request);
    let count = match (request.get(3), request.get(4), request.get(5)) {
        (None, ..) => None,
        _ if !matches!(request.len(), 4 | 6) => return Err(wrong()),
        (Some(full), None, _) if is_word(full, "full") => Some(COUNT),
        (Some(full), Some(word), Some(count)) if is_word(full, "full") && is_word(word, "count") => {
            Some(usize::try_from(integer(count)?).unwrap_or(COUNT))
        }
        _ => return Err(wrong()),
    };
    let mut writer = EntryWriter::default();
    reply.nested(|parts| {
        let none = Producers::default();
        let producers = stream.producers().unwrap_or(&none);
        parts.map(if count.is_some() { 15 } else { 16 });
        number(parts, "length", stream.length() as i64);
        number(parts, "radix-tree-keys", stream.listpacks_count() as i64);
        number(parts, "radix-tree-nodes", stream.radix_nodes() as i64);
        for (key, id) in
            [("last-generated-id", stream.last_id), ("max-deleted-entry-id", stream.max_deleted_id)]
        {
            name(parts, key);
            writer.id(id, parts);
        }
        number(parts, "entries-added", stream.entries_added as i64);
        name(parts, "recorded-first-entry-id");
        writer.id(first.unwrap_or_default(), parts);
        number(parts, "idmp-duration", producers.seconds as i64);
        number(parts, "idmp-maxsize", producers.messages_max as i64);
        number(parts, "pids-tracked", producers.producers_count(now_ms) as i64);
        number(parts, "iids-tracked", producers.messages_count(now_ms) as i64);
        number(parts, "iids-added", producers.added as i64);
        number(parts, "iids-duplicates", producers.repeated as i64);
        let Some(count) = count else {
            number(parts, "groups", stream.groups().len() as i64);
            entry_if_any(parts, &mut writer, "first-entry", stream.first());
            entry_if_any(parts, &mut writer, "last-entry", stream.last());
            return Ok(());
        };
        name(parts, "entries");
        writer.entries(stream.range(EntryId::ZERO, EntryId::MAX), &mut Budget::of_count(count), parts)?;
        name(parts, "groups");
        parts.array(stream.groups().len());
        for group in stream.groups() {
            parts.map(if group.released_count() > 0 { 8 } else { 7 });
            text(parts, "name", group.name());
            progress(parts, &mut writer, stream, first, group);
            group_in_full(parts, &mut writer, group, count);
        }
        Ok(())
    })
}

fn entry_if_any(parts: &mut Nested<'_>, writer: &mut EntryWriter, key: &str, entry: Option<Entry<'_>>) {
    name(parts, key);
    match entry {
        Some(entry) => writer.entry(entry, parts),
        None => drop(parts.part().nil()),
    }
}

/// Writes what is pending in a group, in all and for each consumer: three pairs, and a fourth while there
/// are entries that were given back.
fn group_in_full(parts: &mut Nested<'_>, writer: &mut EntryWriter, group: &ConsumerGroup, count: usize) {
    let shown = |all: usize| if count == 0 { all } else { all.min(count) };
    let owner = |number: u32| group.consumer(number).map_or(&[][..], Consumer::name);
    number(parts, "pel-count", group.pending_count() as i64);
    if group.released_count() > 0 {
        number(parts, "nacked-count", group.released_count() as i64);
    }
    name(parts, "pending");
    parts.array(shown(group.pending_count()));
    for (id, delivery) in group.pending(EntryId::ZERO, EntryId::MAX).take(shown(group.pending_count())) {
        parts.array(4);
        writer.id(id, parts);
        let _ = parts.part().bulk(owner(delivery.consumer));
        let _ = parts.part().integer(delivery.at_ms as i64);
        let _ = parts.part().integer(delivery.count as i64);
    }
    name(parts, "consumers");
    parts.array(group.consumers_count());
    for (_, consumer) in group.consumers() {
        parts.map(5);
        text(parts, "name", consumer.name());
        number(parts, "seen-time", consumer.seen_ms() as i64);
        number(parts, "active-time", consumer.active_ms().map_or(-1, |active_ms| active_ms as i64));
        number(parts, "pel-count", consumer.pending_count() as i64);
        name(parts, "pending");
        parts.array(shown(consumer.pending_count()));
        let own = consumer.pending(EntryId::ZERO, EntryId::MAX).take(shown(consumer.pending_count()));
        for id in own {
            let delivery = group.pending_at(id);
            parts.array(3);
            writer.id(id, parts);
            let _ = parts.part().integer(delivery.map_or(0, |delivery| delivery.at_ms as i64));
            let _ = parts.part().integer(delivery.map_or(0, |delivery| delivery.count as i64));
        }
    }
}
