//! Groups of consumers: making, moving and removing them.

use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::Ledger;
use crate::values::tree::ledger::{EntryId, Group as ConsumerGroup};

use super::options::logged_count;
use super::{ids, no_group};
use crate::commands::args::{integer, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Context, Flags, Group, KeyFlags, KeySpec, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[XGROUP];

/// The facts that most commands of this file share.
const STREAM: Command = Command { categories: Categories::STREAM, group: Group::STREAM, ..Command::DEFAULTS };

const XGROUP: Command = Command {
    name: "xgroup",
    group: Group::STREAM,
    summary: "Manages consumer groups of a stream.",
    since: "5.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[CREATE, CREATECONSUMER, DELCONSUMER, DESTROY, HELP, SETID],
    ..Command::DEFAULTS
};

const HELP: Command = Command {
    categories: Categories::STREAM,
    group: Group::STREAM,
    ..Command::help("xgroup|help", "5.0.0", || &XGROUP)
};

/// The key of a subcommand.
const fn key(flags: KeyFlags) -> KeySpec {
    KeySpec::range(2, 0, 1, flags)
}

/// The ID from which on a group reads, as COMMAND DOCS prints it.
const ID: Argument =
    Argument::one_of("id-selector", &[Argument::string("id"), Argument::pure_token("new-id", "$")]);

const CREATE: Command = Command {
    name: "xgroup|create",
    flags: Flags::DENYOOM,
    keys: &[key(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Creates a group that reads the entries after an ID.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        ID,
        Argument::word("MKSTREAM").optional(),
        Argument::integer("entriesread").shown_as("entries-read").token("ENTRIESREAD").optional(),
    ],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XGROUP CREATE mystream mygroup $", "(error) BUSYGROUP Consumer Group name already exists"),
    ],
    run: Run::Write(create),
    ..STREAM
};

const NO_KEY: Error = Error::fixed(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
     MKSTREAM option to create an empty stream automatically.",
);

/// The options of CREATE and SETID.
#[derive(Debug, Default)]
struct Options {
    makes_stream: bool,
    entries_read: Option<u64>,
    is_replay: bool,
}

impl Options {
    fn parse(tx: &Transaction<'_>, request: Request<'_>, may_make_stream: bool) -> Result<Options> {
        let mut options = Options { is_replay: tx.is_replay(), ..Options::default() };
        let mut at = 5;
        while let Some(option) = request.get(at) {
            let value = request.get(at + 1).filter(|_| is_word(option, "entriesread"));
            if may_make_stream && is_word(option, "mkstream") {
                options.makes_stream = true;
                at += 1;
            } else if let Some(value) = value {
                options.entries_read = match logged_count(tx, value) {
                    Some(read) => Some(read),
                    None => entries_read(value)?,
                };
                at += 2;
            } else {
                return Err(Error::wrong_subcommand(request));
            }
        }
        Ok(options)
    }

    /// How many entries the group has read: never more than were added to the stream. A log has what a group
    /// had, which may be more if it was restored from a payload of another server.
    fn read_of(&self, added: u64) -> Option<u64> {
        self.entries_read.map(|read| if self.is_replay { read } else { read.min(added) })
    }
}

/// Reads how many entries a group has read: -1 if that is not known.
fn entries_read(text: &[u8]) -> Result<Option<u64>> {
    let below_zero = Error::fixed("ERR value for ENTRIESREAD must be positive or -1");
    match integer(text)? {
        -1 => Ok(None),
        read => u64::try_from(read).map(Some).map_err(|_| below_zero),
    }
}

/// Reads an ID, or `$` for the last one of a stream.
fn id_or_last(text: &[u8], stream: Option<&Ledger>) -> Result<EntryId> {
    match text {
        b"$" => Ok(stream.map_or(EntryId::ZERO, |stream| stream.last_id)),
        text => ids::parse(text),
    }
}

fn create(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    const ARGUMENTS_MAX: usize = 8;
    let options = Options::parse(tx, request, true)?;
    let (key, name) = (request.at(2), request.at(3));
    let stream = tx.peek::<Stream>(key)?;
    if stream.is_none() && !options.makes_stream {
        return Err(NO_KEY);
    }
    if request.len() > ARGUMENTS_MAX {
        return Err(Error::wrong_subcommand(request));
    }
    let id = id_or_last(request.at(4), stream)?;
    let read = options.read_of(stream.map_or(0, |stream| stream.entries_added));
    let is_new = match stream.is_some() {
        true => {
            let added = tx.adjust::<Stream, _>(key, |stream| stream.add_group(name, id, read))?;
            let is_new = added.unwrap_or(false);
            if is_new {
                tx.event(EventClass::STREAM, "xgroup-create", key);
            }
            is_new
        }
        false => {
            let limits = tx.keyspace().limits().of_producers();
            tx.make::<Stream, _>(key, "xgroup-create", |stream| {
                stream.ensure_exists();
                let is_new = stream.add_group(name, id, read);
                stream.begin_with_producers(limits);
                is_new
            })?
        }
    };
    match is_new {
        true => Ok(reply.ok()),
        false => Err(Error::fixed("BUSYGROUP Consumer Group name already exists")),
    }
}

/// Checks that a stream is there and has the group of a request.
fn check_group(tx: &Transaction<'_>, request: Request<'_>) -> Result<()> {
    let (key, name) = (request.at(2), request.at(3));
    let stream = tx.peek::<Stream>(key)?.ok_or(NO_KEY)?;
    stream.group(name).map(|_| ()).ok_or_else(|| no_group(key, name))
}

const SETID: Command = Command {
    name: "xgroup|setid",
    keys: &[key(KeyFlags::RW.and(KeyFlags::UPDATE))],
    summary: "Sets the ID after which a group continues to read.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        ID,
        Argument::integer("entriesread").shown_as("entries-read").token("ENTRIESREAD").optional(),
    ],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XGROUP SETID mystream mygroup 0", "OK"),
    ],
    run: Run::Write(setid),
    ..STREAM
};

fn setid(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let options = Options::parse(tx, request, false)?;
    check_group(tx, request)?;
    if !matches!(request.len(), 5 | 7) {
        return Err(Error::wrong_subcommand(request));
    }
    let key = request.at(2);
    let read = options.read_of(tx.peek::<Stream>(key)?.map_or(0, |stream| stream.entries_added));
    // Unlike CREATE, it takes the ends of an interval, too.
    let id = match request.at(4) {
        b"-" => EntryId::ZERO,
        b"+" => EntryId::MAX,
        text => id_or_last(text, tx.peek::<Stream>(key)?)?,
    };
    tx.adjust::<Stream, _>(key, |stream| stream.set_group(request.at(3), id, read))?;
    tx.event(EventClass::STREAM, "xgroup-setid", key);
    Ok(reply.ok())
}

const DESTROY: Command = Command {
    name: "xgroup|destroy",
    keys: &[key(KeyFlags::RW.and(KeyFlags::DELETE))],
    summary: "Deletes a group with its consumers.",
    since: "5.0.0",
    complexity: "O(N) where N is the number of entries in the group's pending entries list (PEL).",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("group")],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XGROUP DESTROY mystream mygroup", "(integer) 1"),
    ],
    run: Run::Write(destroy),
    ..STREAM
};

fn destroy(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(2);
    let removed = tx.adjust::<Stream, _>(key, |stream| stream.remove_group(request.at(3)))?;
    let was_there = removed.ok_or(NO_KEY)?;
    if was_there {
        tx.event(EventClass::STREAM, "xgroup-destroy", key);
        // Clients that wait for the group are notified that it was deleted.
        tx.wake_waiting(key);
    }
    Ok(reply.bool(was_there))
}

const CREATECONSUMER: Command = Command {
    name: "xgroup|createconsumer",
    flags: Flags::DENYOOM,
    keys: &[key(KeyFlags::RW.and(KeyFlags::INSERT))],
    summary: "Adds a consumer to a group.",
    since: "6.2.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("group"), Argument::string("consumer")],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XGROUP CREATECONSUMER mystream mygroup Alice", "(integer) 1"),
    ],
    run: Run::Write(createconsumer),
    ..STREAM
};

fn createconsumer(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    check_group(tx, request)?;
    let (key, now_ms) = (request.at(2), tx.now_ms());
    let name = request.at(4);
    let group = tx.peek::<Stream>(key)?.and_then(|stream| stream.group(request.at(3)));
    if group.is_some_and(|group| group.find_consumer(name).is_some()) {
        return Ok(reply.bool(false));
    }
    let met = tx.adjust::<Stream, _>(key, |stream| stream.meet_consumer(request.at(3), name, now_ms))?;
    let is_new = met.flatten().is_some_and(|(_, is_new)| is_new);
    if is_new {
        tx.event(EventClass::STREAM, "xgroup-createconsumer", key);
    }
    Ok(reply.bool(is_new))
}

const DELCONSUMER: Command = Command {
    name: "xgroup|delconsumer",
    flags: Flags::WRITE,
    keys: &[key(KeyFlags::RW.and(KeyFlags::DELETE))],
    categories: Categories::STREAM.and(Categories::WRITE),
    group: Group::STREAM,
    summary: "Removes a consumer from a group, with its pending entries.",
    since: "5.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("group"), Argument::string("consumer")],
    example: &[
        ("XGROUP CREATE mystream mygroup $ MKSTREAM", "OK"),
        ("XGROUP CREATECONSUMER mystream mygroup Alice", "(integer) 1"),
        ("XGROUP DELCONSUMER mystream mygroup Alice", "(integer) 0"),
    ],
    run: Run::Server(delconsumer),
    ..Command::DEFAULTS
};

/// A consumer with more pending entries than this is removed from a copy of its group.
const REMOVED_AT_ONCE_MAX: usize = 1000;
/// How often that begins anew because the group has changed meanwhile. Then the stream is locked.
const COPIES_MAX: usize = 3;

fn delconsumer(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let tx = &mut *context.tx;
    check_group(tx, request)?;
    let (key, group, name) = (request.at(2), request.at(3), request.at(4));
    let is_alone = !context.session.may_not_wait && !context.session.is_in_script;
    let mut pending = if is_alone { remove_from_copy(tx, request)? } else { None };
    if pending.is_none() {
        let removed = tx.adjust::<Stream, _>(key, |stream| stream.remove_consumer(group, name))?;
        pending = removed.flatten();
    }
    if pending.is_some() {
        tx.event(EventClass::STREAM, "xgroup-delconsumer", key);
    }
    Ok(reply.count(pending.unwrap_or(0)))
}

/// Removes a consumer with many pending entries from a copy of its group, which shares the nodes, while the
/// stream is not locked. Then the copy becomes the group, if that is still the same. Returns the number of
/// these entries; nothing if they are few, or if the group changes all the time.
fn remove_from_copy(tx: &mut Transaction<'_>, request: Request<'_>) -> Result<Option<usize>> {
    let (key, name) = (request.at(2), request.at(4));
    for _ in 0..COPIES_MAX {
        let group = tx.peek::<Stream>(key)?.and_then(|stream| stream.share_group(request.at(3)));
        let Some(before) = group else { return Ok(None) };
        let number = before.find_consumer(name);
        let consumer = number.and_then(|number| Some((number, before.consumer(number)?.pending_count())));
        let Some((number, _)) = consumer.filter(|(_, pending)| *pending > REMOVED_AT_ONCE_MAX) else {
            return Ok(None);
        };
        tx.let_go();
        let mut after = ConsumerGroup::clone(&before);
        let (pending, remains) = after.remove_consumer(number);
        drop(remains);
        tx.hold_only(key);
        let exchanged = tx.adjust::<Stream, _>(key, |stream| stream.exchange_group(before, after, name))?;
        if exchanged == Some(true) {
            return Ok(Some(pending));
        }
        check_group(tx, request)?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::Address;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::{Hooks, Instance};
    use crate::resp::{OwnedRequest, Protocol};
    use crate::session::Session;

    /// Adds entries, and delivers them to two consumers in turn, `run` entries at a time.
    fn fill(tx: &mut Transaction<'_>, entries: u64, run: u64) {
        let filled = tx.make::<Stream, _>(b"x", "xadd", |stream| {
            let id = |ms: u64| EntryId { ms, seq: 1 };
            for ms in 1..=entries {
                stream.add(id(ms), [&b"field"[..], b"value"].into_iter());
            }
            stream.add_group(b"g", EntryId::ZERO, None);
            for (at, name) in [(0, b"one"), (1, b"two")] {
                let consumer = stream.meet_consumer(b"g", name, 1).map_or(0, |(number, _)| number);
                let own = (1..=entries).filter(|ms| (ms - 1) / run % 2 == at);
                let ids: Vec<EntryId> = own.map(id).collect();
                stream.read(b"g", consumer, &ids, 1, false);
            }
        });
        assert!(filled.is_ok());
    }

    #[test]
    fn a_consumer_with_many_pending_entries_is_removed_without_a_lock() {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let (keyspace, nowhere) = (&instance.keyspace, Address::Unix(Path::new("").into()));
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        let mut session = Session::new(registration.client.clone(), &instance.users);
        let request = OwnedRequest::of_line(b"XGROUP DELCONSUMER x g one").expect("a line");
        let request = request.request().expect("a request");
        for (entries, run, is_in_exec) in
            [(4000, 1, false), (4000, 100, false), (4000, 4000, false), (400, 1, false), (4000, 1, true)]
        {
            // With all held, the transaction shows whether it has let go.
            let mut tx = keyspace.begin_alone(0);
            tx.remove(b"x");
            fill(&mut tx, entries, run);
            session.may_not_wait = is_in_exec;
            let mut out = Vec::new();
            let mut context = Context { instance: &instance, session: &mut session, tx: &mut tx };
            assert!(delconsumer(&mut context, request, Reply::new(&mut out, Protocol::Resp2)).is_ok());
            let gone = if run == entries { entries } else { entries / 2 };
            assert_eq!(out, format!(":{gone}\r\n").into_bytes());
            assert_eq!(tx.everything().is_err(), entries == 4000 && !is_in_exec, "{entries} {run}");
            let group = tx.peek::<Stream>(b"x").ok().flatten().and_then(|stream| stream.group(b"g"));
            let group = group.expect("the group is there");
            let left: Vec<u32> =
                group.pending(EntryId::ZERO, EntryId::MAX).map(|(_, delivery)| delivery.consumer).collect();
            assert_eq!(left.len() as u64, entries - gone);
            assert!(left.iter().all(|owner| Some(*owner) == group.find_consumer(b"two")));
            assert_eq!(group.find_consumer(b"one"), None);
        }
    }

    #[test]
    fn a_group_that_has_changed_is_not_replaced() {
        let keyspace = crate::keyspace::Keyspace::new(
            crate::keyspace::Shape::of(1, crate::types::ALL),
            std::sync::Arc::default(),
            std::sync::Arc::default(),
        );
        let mut tx = keyspace.begin_alone(0);
        fill(&mut tx, 10, 1);
        let share = |tx: &Transaction<'_>| {
            let stream = tx.peek::<Stream>(b"x").ok().flatten();
            stream.and_then(|stream| stream.share_group(b"g")).expect("the group is there")
        };
        let (before, after) = (share(&tx), ConsumerGroup::clone(&share(&tx)));
        let acknowledged =
            tx.adjust::<Stream, _>(b"x", |stream| stream.acknowledge(b"g", &[EntryId { ms: 1, seq: 1 }]));
        assert_eq!(acknowledged, Ok(Some(1)));
        let exchanged = tx.adjust::<Stream, _>(b"x", |stream| stream.exchange_group(before, after, b"one"));
        assert_eq!(exchanged, Ok(Some(false)));
        assert_eq!(share(&tx).pending_count(), 9);
        let after = ConsumerGroup::clone(&share(&tx));
        let before = share(&tx);
        let exchanged = tx.adjust::<Stream, _>(b"x", |stream| stream.exchange_group(before, after, b"one"));
        assert_eq!(exchanged, Ok(Some(true)));
    }
}
