//! Compare, then act: how only its holder releases or extends a lock.
//!
//! Two dialects: DELIFEQ is Valkey's, DELEX and DIGEST are those of Redis. SET takes the same conditions.

use crate::digest;
use crate::events::EventClass;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request};
use crate::types::strings::Text;

use super::basics::Condition;
use crate::commands::args::Options;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Categories, Command, Flags, Group, KeyFlags, KeySpec, LockUse, Result, Run,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[DELEX, DELIFEQ, DIGEST];

/// The facts that most commands of this file share.
const STRING: Command =
    Command { flags: Flags::FAST, categories: Categories::STRING, group: Group::STRING, ..Command::DEFAULTS };

const DELIFEQ: Command = Command {
    name: "delifeq",
    keys: &[KeySpec::first(KeyFlags::RM.and(KeyFlags::DELETE))],
    locks: LockUse::DELETES.and(LockUse::COMPARES),
    summary: "Deletes a key only if its string equals the given one: the safe way to release a lock.",
    since: "9.0.0",
    complexity: "O(1)",
    cost: costs::BRIEF,
    arguments: &[Argument::KEY, Argument::string("value")],
    example: &[
        ("SET mylock token-1", "OK"),
        ("DELIFEQ mylock token-2", "(integer) 0"),
        ("DELIFEQ mylock token-1", "(integer) 1"),
        ("EXISTS mylock", "(integer) 0"),
    ],
    run: Run::Write(delifeq),
    ..STRING
};

fn delifeq(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bool(delete_if(tx, request.at(1), Condition::Equal(request.at(2)))?))
}

const DELEX: Command = Command {
    name: "delex",
    keys: &[KeySpec::first(KeyFlags::RW.and(KeyFlags::DELETE).and(KeyFlags::VARIABLE_FLAGS))
        .variable(delex_key_flags)],
    locks: LockUse::DELETES.and(LockUse::COMPARES),
    summary: "Deletes a key, optionally only if its string, or its string's digest, equals or differs from one.",
    since: "8.4.0",
    complexity: "O(1) for IFEQ/IFNE, O(N) for IFDEQ/IFDNE where N is the length of the string value.",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::KEY,
        Argument::one_of(
            "condition",
            &[
                Argument::string("ifeq-value").token("IFEQ"),
                Argument::string("ifne-value").token("IFNE"),
                Argument::integer("ifdeq-digest").token("IFDEQ"),
                Argument::integer("ifdne-digest").token("IFDNE"),
            ],
        )
        .optional(),
    ],
    example: &[
        ("SET mylock token-1", "OK"),
        ("DELEX mylock IFEQ token-2", "(integer) 0"),
        ("DELEX mylock IFNE token-2", "(integer) 1"),
        ("DELEX mylock", "(integer) 0"),
    ],
    run: Run::Write(delex),
    ..STRING
};

/// DELEX reads its key only for a condition.
fn delex_key_flags(request: Request<'_>) -> KeyFlags {
    if request.len() == 2 { KeyFlags::RM } else { KeyFlags::RW }.and(KeyFlags::DELETE)
}

fn delex(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let key = request.at(1);
    match request.len() {
        // Without a condition it deletes a key of any type.
        2 => {
            let was_there = tx.remove(key);
            if was_there {
                tx.event(EventClass::GENERIC, "del", key);
            }
            Ok(reply.bool(was_there))
        }
        4 => {
            let mut options = Options::new(request, 2);
            let unknown = Error::fixed("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
            let condition = Condition::of_value(options.value()?, &mut options)?.ok_or(unknown)?;
            let deleted = delete_if(tx, key, condition).map_err(|error| match error {
                error if error == Error::WRONG_TYPE => {
                    Error::fixed("ERR Key should be of string type if conditions are specified")
                }
                error => error,
            });
            Ok(reply.bool(deleted?))
        }
        _ => Err(Error::wrong_arity("delex")),
    }
}

/// Deletes a key if its string fulfils a condition. Returns whether it did.
pub(in crate::commands) fn delete_if(
    tx: &mut Transaction<'_>,
    key: &[u8],
    condition: Condition<'_>,
) -> Result<bool> {
    let value = tx.peek::<Text>(key)?;
    let is_met = value.is_some() && condition.is_met(value)?;
    if is_met {
        tx.remove(key);
        tx.event(EventClass::GENERIC, "del", key);
    } else {
        tx.follow_unmet(key);
    }
    Ok(is_met)
}

const DIGEST: Command = Command {
    name: "digest",
    keys: &[KeySpec::first(KeyFlags::RO.and(KeyFlags::ACCESS))],
    locks: LockUse::READS,
    summary: "Returns the XXH3 digest of a string as 16 hexadecimal digits, for use in conditions.",
    since: "8.4.0",
    complexity: "O(N) where N is the length of the string value.",
    cost: costs::ALL,
    arguments: &[Argument::KEY],
    example: &[
        ("SET mykey \"Hello world\"", "OK"),
        ("DIGEST mykey", "\"b6acb9d84a38ff74\""),
        ("DIGEST nonexisting", "(nil)"),
    ],
    run: Run::Read(tell_digest),
    ..STRING
};

fn tell_digest(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let digest = tx.get::<Text>(request.at(1))?.map(|value| digest::to_text(digest::digest(value)));
    Ok(reply.bulk_or_nil(digest.as_deref().map(str::as_bytes)))
}
