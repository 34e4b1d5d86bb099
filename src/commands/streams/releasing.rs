//! Entries that a consumer gives back to its group, for others to try (XNACK).

use crate::keyspace::Transaction;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::types::streams::Stream;
use crate::values::tree::ledger::{Delivery, EntryId};

use super::deleting::IDS;
use super::{ids, no_key_or_group, printed};
use crate::commands::args::{integer, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[XNACK];

const XNACK: Command = Command {
    name: "xnack",
    flags: Flags::FAST,
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::UPDATE))],
    categories: Categories::STREAM,
    group: Group::STREAM,
    summary: "Returns pending entries to their group; its next reader gets them first.",
    since: "8.8.0",
    complexity: "O(1) for each message ID processed.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::string("group"),
        Argument::one_of("mode", &Argument::words(["SILENT", "FAIL", "FATAL"])),
        IDS,
        Argument::integer("count").token("RETRYCOUNT").optional(),
        Argument::word("FORCE").optional(),
    ],
    example: &[
        ("XADD mystream 1-1 name Sara", "\"1-1\""),
        ("XGROUP CREATE mystream mygroup 0", "OK"),
        (
            "XREADGROUP GROUP mygroup Alice STREAMS mystream >",
            "[[\"mystream\", [[\"1-1\", [\"name\", \"Sara\"]]]]]",
        ),
        ("XNACK mystream mygroup FAIL IDS 1 1-1", "(integer) 1"),
        ("XPENDING mystream mygroup - + 1", "[[\"1-1\", \"\", (integer) -1, (integer) 1]]"),
    ],
    run: Run::Write(xnack),
    ..Command::DEFAULTS
};

/// What happens to the number of deliveries.
#[derive(Clone, Copy)]
enum Mode {
    /// The last delivery does not count.
    Silent,
    /// The last delivery counts, as one that failed.
    Fail,
    /// No consumer is to try the entry any more.
    Fatal,
}

/// The options of XNACK.
struct Release {
    mode: Mode,
    ids: Vec<EntryId>,
    count: Option<u64>,
    is_forced: bool,
}

impl Release {
    fn parse(request: Request<'_>) -> Result<Release> {
        const MODES: Error = Error::fixed("ERR mode must be SILENT, FAIL, or FATAL");
        const COUNT: Error = Error::fixed("ERR numids must be a positive integer");
        let mode = match request.at(3) {
            word if is_word(word, "silent") => Mode::Silent,
            word if is_word(word, "fail") => Mode::Fail,
            word if is_word(word, "fatal") => Mode::Fatal,
            _ => return Err(MODES),
        };
        let (mut ids, mut retries, mut is_forced, mut at) = (0..0, None, false, 4);
        while let Some(option) = request.get(at) {
            let value = request.get(at + 1);
            at += match value {
                Some(count) if is_word(option, "ids") => {
                    let count =
                        parse_integer(count).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
                    let count = count.ok_or(COUNT)? as usize;
                    if count > request.len() - at - 2 {
                        return Err(Error::fixed("ERR number of IDs doesn't match numids"));
                    }
                    ids = at + 2..at + 2 + count;
                    2 + count
                }
                _ if is_word(option, "force") => {
                    is_forced = true;
                    1
                }
                Some(count) if is_word(option, "retrycount") => {
                    let below_zero = Error::fixed("ERR Invalid RETRYCOUNT value, must be >= 0");
                    retries = Some(u64::try_from(integer(count)?).map_err(|_| below_zero)?);
                    2
                }
                _ => {
                    return Err(Error::quoting("ERR Unrecognized XNACK option '", printed(option), "'"));
                }
            };
        }
        if ids.is_empty() {
            return Err(Error::fixed("ERR syntax error, expected IDS keyword"));
        }
        let ids = ids.map(|at| ids::parse(request.at(at))).collect::<Result<_>>()?;
        Ok(Release { mode, ids, count: retries, is_forced })
    }

    /// The number of deliveries that an entry has then.
    fn count(&self, before: u64) -> u64 {
        self.count.unwrap_or(match self.mode {
            Mode::Silent => before.saturating_sub(1),
            Mode::Fail => before,
            Mode::Fatal => Delivery::COUNT_MAX,
        })
    }
}

fn xnack(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (key, name) = (request.at(1), request.at(2));
    let stream = tx.peek::<Stream>(key)?.filter(|stream| stream.group(name).is_some());
    if stream.is_none() {
        return Err(no_key_or_group(key, name, ""));
    }
    let release = Release::parse(request)?;
    let done = tx.adjust::<Stream, _>(key, |stream| {
        stream.release(name, &release.ids, release.is_forced, |before| release.count(before))
    })?;
    let done = done.unwrap_or(0);
    if done > 0 {
        // A client that waits for entries to claim gets these at once.
        tx.wake_waiting(key);
    }
    Ok(reply.count(done))
}
