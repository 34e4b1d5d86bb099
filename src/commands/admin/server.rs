//! The server as a whole: DBSIZE, FLUSHDB, FLUSHALL, TIME, ROLE, LOLWUT and MONITOR.

use std::sync::Arc;

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request, tree};
use crate::session::Session;

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    AllKeys, Argument, Categories, Command, Concern, Context, Flags, Group, Result, Run, Scope,
};

pub(in crate::commands) const COMMANDS: &[Command] =
    &[DBSIZE, FLUSHALL, FLUSHDB, LOLWUT, MONITOR, ROLE, TIME];

/// The facts that most commands of this file share.
const SERVER: Command = Command { group: Group::SERVER, cost: costs::ARGUMENTS, ..Command::DEFAULTS };

const DBSIZE: Command = Command {
    name: "dbsize",
    flags: Flags::FAST,
    scope: Scope::Everything,
    concern: Concern::AllKeys(AllKeys::Count),
    categories: Categories::KEYSPACE,
    summary: "Returns the number of keys in the current database.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    example: &[("SET mykey Hello", "OK"), ("DBSIZE", "(integer) 1")],
    run: Run::Read(dbsize),
    ..SERVER
};

fn dbsize(tx: &Transaction<'_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(tx.everything()?.database_size().keys - tx.walk()?.hidden_keys()))
}

/// Whether keys are freed later, or before the reply.
const ASYNC_OR_SYNC: Argument = Argument::one_of(
    "flush-type",
    &[Argument::word("ASYNC").since("4.0.0"), Argument::word("SYNC").since("6.2.0")],
)
.optional();

const FLUSHDB: Command = Command {
    name: "flushdb",
    scope: Scope::Everything,
    concern: Concern::AllKeys(AllKeys::Flush),
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    summary: "Deletes all keys of the current database.",
    since: "1.0.0",
    complexity: "O(N) where N is the number of keys in the selected database",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[ASYNC_OR_SYNC],
    example: &[("SET mykey Hello", "OK"), ("FLUSHDB", "OK"), ("DBSIZE", "(integer) 0")],
    run: Run::Write(flushdb),
    ..SERVER
};

fn flushdb(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_async = parse_flush(request)?;
    tx.everything_mut()?.flush_database();
    if is_async {
        tx.free_in_background();
    }
    Ok(reply.ok())
}

const FLUSHALL: Command = Command {
    name: "flushall",
    scope: Scope::Everything,
    concern: Concern::AllKeys(AllKeys::FlushAll),
    categories: Categories::DANGEROUS.and(Categories::KEYSPACE),
    summary: "Deletes all keys of all databases.",
    since: "1.0.0",
    complexity: "O(N) where N is the total number of keys in all databases",
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[ASYNC_OR_SYNC],
    example: &[("SET mykey Hello", "OK"), ("FLUSHALL ASYNC", "OK"), ("DBSIZE", "(integer) 0")],
    run: Run::Write(flushall),
    ..SERVER
};

fn flushall(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_async = parse_flush(request)?;
    tx.everything_mut()?.flush_all();
    if is_async {
        tx.free_in_background();
    }
    Ok(reply.ok())
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

const TIME: Command = Command {
    name: "time",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    summary: "Returns the server's time: Unix seconds, and microseconds of the second.",
    since: "2.6.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output"],
    run: Run::Server(time),
    ..SERVER
};

fn time(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let now = match context.session.may_not_wait {
        // For the commands of EXEC and of a script time stands still.
        true => context.session.time_of_unit(context.tx.next_ms(), context.instance.clock.since_epoch()),
        false => context.instance.clock.since_epoch(),
    };
    let part = |number: u64, reply: Reply<'_>| reply.bulk(itoa::Buffer::new().format(number).as_bytes());
    Ok(reply.pair(|reply| part(now.as_secs(), reply), |reply| part(u64::from(now.subsec_micros()), reply)))
}

const ROLE: Command = Command {
    name: "role",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST),
    categories: Categories::ADMIN.and(Categories::DANGEROUS),
    summary: "Returns the replication role: always a primary without replicas.",
    since: "2.8.12",
    complexity: "O(1)",
    example: &[("ROLE", "[\"master\", (integer) 0, []]")],
    run: Run::Session(role),
    ..SERVER
};

fn role(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.tree(&tree::array([tree::bulk("master"), tree::integer(0), tree::array([])])))
}

const LOLWUT: Command = Command {
    name: "lolwut",
    flags: Flags::FAST.and(Flags::READONLY),
    categories: Categories::READ,
    summary: "Returns a small drawing and the version, for fun.",
    since: "5.0.0",
    arguments: &[Argument::integer("version").token("VERSION").optional()],
    run: Run::Server(lolwut),
    ..SERVER
};

fn lolwut(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let version = match request.get(1) {
        Some(word) if is_word(word, "version") && request.len() > 2 => args::integer(request.at(2))?,
        _ => 0,
    };
    let drawing = if version == 5 || version == 6 { padlocks() } else { String::new() };
    let version = context.instance.config.redis_version.get();
    Ok(reply.verbatim(&format!("{drawing}Redis ver. {}\n", String::from_utf8_lossy(&version))))
}

/// Rows of padlocks, of which each has an even chance to be open.
fn padlocks() -> String {
    const ROWS: usize = 3;
    const LOCKS: usize = 8;
    let mut drawing = String::new();
    for _ in 0..ROWS {
        let sides: String =
            (0..LOCKS).map(|_| if fastrand::bool() { "  |     " } else { "  | |   " }).collect();
        for line in ["  .-.   ".repeat(LOCKS), sides, " [ o ]  ".repeat(LOCKS)] {
            drawing.push_str(line.trim_end());
            drawing.push('\n');
        }
        drawing.push('\n');
    }
    drawing
}

const MONITOR: Command = Command {
    name: "monitor",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    summary: "Streams every command that the server executes to this connection.",
    since: "1.0.0",
    run: Run::Server(monitor),
    ..SERVER
};

fn monitor(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    if context.session.may_not_wait {
        return Err(Error::fixed("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    context.instance.clients.add_monitor(Arc::clone(&context.session.client));
    Ok(reply.ok())
}
