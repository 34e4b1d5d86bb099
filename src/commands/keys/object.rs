//! OBJECT: the encoding, the use and the references of a key's value.

use crate::keyspace::{Facts, Transaction};
use crate::resp::{Reply, Request};

use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Group, KeyFlags, KeySpec, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[OBJECT];

/// The number of references to any value: since version 8, Redis shares none either.
pub(in crate::commands) const REFERENCES: i64 = 1;

/// The facts that the subcommands share.
const OF_KEY: Command = Command {
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RO)],
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    complexity: "O(1)",
    cost: costs::BRIEF,
    tips: &["nondeterministic_output"],
    arguments: &[Argument::KEY],
    ..Command::DEFAULTS
};

const OBJECT: Command = Command {
    name: "object",
    group: Group::GENERIC,
    summary: "Inspects how the server stores and uses a key.",
    since: "2.2.3",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[OBJECT_ENCODING, OBJECT_FREQ, OBJECT_HELP, OBJECT_IDLETIME, OBJECT_REFCOUNT],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const OBJECT_ENCODING: Command = Command {
    name: "object|encoding",
    summary: "Returns the encoding that Redis would use for a value.",
    since: "2.2.3",
    example: &[
        ("SET mykey 1000", "OK"),
        ("OBJECT ENCODING mykey", "\"int\""),
        ("APPEND mykey bar", "(integer) 7"),
        ("OBJECT ENCODING mykey", "\"raw\""),
    ],
    run: Run::Read(encoding),
    ..OF_KEY
};

fn encoding(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let name = tx.facts(request.at(2)).map(|facts| encoding_name(&facts));
    Ok(reply.bulk_or_nil(name.map(str::as_bytes)))
}

/// The encoding in which Redis would keep a value.
pub(in crate::commands) fn encoding_name(facts: &Facts<'_>) -> &'static str {
    (facts.value.facts.encoding)(facts.value.content, facts.encoding, facts.limit)
}

const OBJECT_FREQ: Command = Command {
    name: "object|freq",
    summary: "Returns how often a key is used, on a logarithmic scale; needs an LFU eviction policy.",
    since: "4.0.0",
    example: &[("SET mykey Hello", "OK")],
    run: Run::Read(freq),
    ..OF_KEY
};

fn freq(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    match tx.facts(request.at(2)) {
        None => Ok(reply.nil()),
        Some(_) if !tx.counts_frequency() => Err(Error::fixed(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        )),
        Some(facts) => Ok(reply.integer(i64::from(facts.frequency))),
    }
}

const OBJECT_IDLETIME: Command = Command {
    name: "object|idletime",
    summary: "Returns the number of seconds since a key was last used.",
    since: "2.2.3",
    example: &[("SET mykey Hello", "OK"), ("OBJECT IDLETIME mykey", "(integer) 0")],
    run: Run::Read(idletime),
    ..OF_KEY
};

fn idletime(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    match tx.facts(request.at(2)) {
        None => Ok(reply.nil()),
        Some(_) if tx.counts_frequency() => Err(Error::fixed(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching \
             between policies at runtime LRU and LFU data will take some time to adjust.",
        )),
        Some(facts) => Ok(reply.integer(facts.idle.as_secs() as i64)),
    }
}

const OBJECT_REFCOUNT: Command = Command {
    name: "object|refcount",
    summary: "Returns the reference count that Redis would report for a value.",
    since: "2.2.3",
    example: &[("SET mykey Hello", "OK"), ("OBJECT REFCOUNT mykey", "(integer) 1")],
    run: Run::Read(refcount),
    ..OF_KEY
};

fn refcount(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    match tx.facts(request.at(2)) {
        None => Ok(reply.nil()),
        Some(_) => Ok(reply.integer(REFERENCES)),
    }
}

const OBJECT_HELP: Command = Command {
    categories: Categories::KEYSPACE,
    group: Group::GENERIC,
    ..Command::help("object|help", "6.2.0", || &OBJECT)
};
