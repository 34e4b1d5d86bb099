//! The server: how much it holds, and emptying it.

use crate::keyspace::{Garbage, Transaction};
use crate::resp::{Reply, Request};

use super::args::is_word;
use super::command::{Argument, Arity, Categories, Command, Flags, Group, Result, Run, Scope};
use super::error::Error;

pub(super) const COMMANDS: &[Command] = &[DBSIZE, FLUSHALL, FLUSHDB];

const DBSIZE: Command = Command {
    name: "dbsize",
    arity: Arity::Exactly(1),
    flags: Flags::FAST,
    scope: Scope::Everything,
    categories: Categories::KEYSPACE,
    group: Group::Server,
    summary: "Counts the keys of the database.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    example: &[("SET mykey Hello", "OK"), ("DBSIZE", "(integer) 1")],
    run: Run::Read(dbsize),
    ..Command::DEFAULTS
};

fn dbsize(tx: &Transaction<'_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.database_size().keys))
}

const FLUSHDB: Command = Command {
    name: "flushdb",
    arity: Arity::AtLeast(1),
    scope: Scope::Everything,
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::Server,
    summary: "Empties the database.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys in the selected database",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "async",
        &[
            Argument::pure_token("async", "ASYNC").since("4.0.0"),
            Argument::pure_token("sync", "SYNC").since("6.2.0"),
        ],
    )
    .optional()],
    example: &[("SET mykey Hello", "OK"), ("FLUSHDB", "OK"), ("DBSIZE", "(integer) 0")],
    run: Run::Write(flushdb),
    ..Command::DEFAULTS
};

fn flushdb(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_async = parse_flush(request)?;
    tx.flush_database();
    free_flushed(tx, is_async);
    Ok(reply.ok())
}

const FLUSHALL: Command = Command {
    name: "flushall",
    arity: Arity::AtLeast(1),
    scope: Scope::Everything,
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    group: Group::Server,
    summary: "Empties all databases.",
    since: "1.0.0",
    complexity: "O(N) where N is the total number of keys in all databases",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "async",
        &[
            Argument::pure_token("async", "ASYNC").since("4.0.0"),
            Argument::pure_token("sync", "SYNC").since("6.2.0"),
        ],
    )
    .optional()],
    example: &[("SET mykey Hello", "OK"), ("FLUSHALL ASYNC", "OK"), ("DBSIZE", "(integer) 0")],
    run: Run::Write(flushall),
    ..Command::DEFAULTS
};

fn flushall(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_async = parse_flush(request)?;
    tx.flush_all();
    free_flushed(tx, is_async);
    Ok(reply.ok())
}

/// Frees memory while the client goes on.
pub(super) fn free_elsewhere(garbage: Garbage) {
    // Where there is no thread to be had, it is freed here and now.
    let _ = std::thread::Builder::new().spawn(move || drop(garbage));
}

/// Whether the memory is to be freed in the background.
fn parse_flush(request: Request<'_>) -> Result<bool> {
    match (request.get(1), request.len()) {
        (None, _) => Ok(false),
        (Some(mode), 2) if is_word(mode, "async") => Ok(true),
        (Some(mode), 2) if is_word(mode, "sync") => Ok(false),
        _ => Err(Error::SYNTAX),
    }
}

/// Without ASYNC the transaction frees what it emptied once its locks are free: only this client waits.
fn free_flushed(tx: &mut Transaction<'_>, is_async: bool) {
    if is_async {
        free_elsewhere(tx.take_garbage());
    }
}
