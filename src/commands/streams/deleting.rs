//! Deleting entries with regard to the groups that still need them.

use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::ledger::{EntryId, References};

use super::ids;
use super::options::{REFERENCES, references};
use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XACKDEL, XDELEX];

/// The IDs behind their number, as COMMAND DOCS prints them.
pub(super) const IDS: Argument =
    Argument::block("ids", &[Argument::integer("numids"), Argument::string("id").multiple()]).token("IDS");

/// There is no such entry; of XACKDEL: it was not pending.
const ABSENT: i64 = -1;
/// The entry is deleted.
const DELETED: i64 = 1;
/// A group still needs the entry.
const NEEDED: i64 = 2;

/// The options of both commands.
struct Options {
    references: References,
    first: usize,
    count: usize,
}

impl Options {
    fn parse(request: Request<'_>, mut at: usize) -> Result<Options> {
        let (mut kept, mut ids) = (None, None);
        while let Some(option) = request.get(at) {
            if kept.is_none()
                && let Some(references) = references(option)
            {
                kept = Some(references);
                at += 1;
                continue;
            }
            let count = request.get(at + 1).filter(|_| is_word(option, "ids")).ok_or(Error::SYNTAX)?;
            let count = parse_integer(count).and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let count = count.ok_or(Error::fixed("ERR Number of IDs must be a positive integer"))?;
            if count > request.len() - at - 2 {
                return Err(Error::fixed("ERR The `numids` parameter must match the number of arguments"));
            }
            ids = Some((at + 2, count));
            at += 2 + count;
        }
        let (first, count) = ids.ok_or(Error::fixed("ERR IDS option is required"))?;
        Ok(Options { references: kept.unwrap_or_default(), first, count })
    }

    fn ids(&self, request: Request<'_>) -> Result<Vec<EntryId>> {
        request.from(self.first).take(self.count).map(ids::parse).collect()
    }

    /// Removes entries that are to be deleted from what is pending in the groups, if that is wanted; returns
    /// whether they may be deleted.
    fn release(&self, tx: &mut Transaction<'_>, key: &[u8], ids: &[EntryId]) -> Result<Vec<bool>> {
        if self.references == References::Leave {
            tx.adjust::<Stream, _>(key, |stream| stream.acknowledge_in_all(ids))?;
        }
        let decides = self.references == References::Decide;
        let stream = tx.peek::<Stream>(key)?;
        let may_go = |id: &EntryId| !decides || stream.is_none_or(|stream| !stream.is_referenced(*id));
        Ok(ids.iter().map(may_go).collect())
    }
}

const XDELEX: Command = Command {
    name: "xdelex",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Deletes entries, as consumer groups' references allow; returns the outcome for each entry.",
    since: "8.2.0",
    complexity: "O(1) for each single item to delete in the stream, regardless of the stream size.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, REFERENCES.optional(), IDS],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        ("XDELEX mystream ACKED IDS 1 1-1", "[(integer) 2]"),
        ("XDELEX mystream IDS 2 1-1 2-1", "[(integer) 1, (integer) -1]"),
    ],
    run: Run::Write(xdelex),
    ..Command::DEFAULTS
};

fn xdelex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    let is_absent = tx.peek::<Stream>(key)?.is_none();
    let options = Options::parse(request, 2)?;
    if is_absent {
        return Ok(reply.array_of(0..options.count, |_, reply| reply.integer(ABSENT)));
    }
    let ids = options.ids(request)?;
    let may_go = options.release(tx, key, &ids)?;
    let results = tx.change::<Stream, _>(key, "xdel", |stream| {
        let mut delete = |(id, may_go): (&EntryId, bool)| match (may_go, may_go && stream.delete(*id)) {
            (false, _) => NEEDED,
            (true, true) => DELETED,
            (true, false) => ABSENT,
        };
        ids.iter().zip(may_go).map(&mut delete).collect::<Vec<_>>()
    })?;
    Ok(reply.array_of(results.unwrap_or_default().into_iter(), |result, reply| reply.integer(result)))
}

const XACKDEL: Command = Command {
    name: "xackdel",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE).and(KeyFlags::DELETE))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Acknowledges and deletes entries, as groups' references allow; returns the outcome for each entry.",
    since: "8.2.0",
    complexity: "O(1) for each message ID processed.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::string("group"), REFERENCES.optional(), IDS],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XACKDEL mystream mygroup IDS 2 1-1 2-1", "[(integer) 1, (integer) -1]"),
        ("XLEN mystream", "(integer) 0"),
    ],
    run: Run::Write(xackdel),
    ..Command::DEFAULTS
};

fn xackdel(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, group) = (request.at(1), request.at(2));
    let is_absent = tx.get::<Stream>(key)?.is_none_or(|stream| stream.group(group).is_none());
    let options = Options::parse(request, 3)?;
    if is_absent {
        return Ok(reply.array_of(0..options.count, |_, reply| reply.integer(ABSENT)));
    }
    let ids = options.ids(request)?;
    let were_pending = tx.adjust::<Stream, _>(key, |stream| {
        ids.iter().map(|id| stream.acknowledge(group, &[*id]) > 0).collect::<Vec<_>>()
    })?;
    let were_pending = were_pending.unwrap_or_default();
    let done: Vec<EntryId> =
        ids.iter().zip(&were_pending).filter(|(_, was)| **was).map(|(id, _)| *id).collect();
    let may_go = options.release(tx, key, &done)?;
    let mut results = may_go.iter().map(|may_go| if *may_go { DELETED } else { NEEDED });
    let results: Vec<i64> = were_pending
        .into_iter()
        .map(|was| if was { results.next().unwrap_or(ABSENT) } else { ABSENT })
        .collect();
    tx.change::<Stream, _>(key, "xdel", |stream| {
        for (id, _) in done.iter().zip(&may_go).filter(|(_, may_go)| **may_go) {
            // Its group may have had it longer than the stream.
            stream.delete(*id);
        }
    })?;
    Ok(reply.array_of(results.into_iter(), |result, reply| reply.integer(result)))
}
