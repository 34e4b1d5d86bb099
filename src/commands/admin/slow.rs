//! SLOWLOG and COMMANDLOG: slow requests, large requests and large replies. SLOWLOG is the older name of the
//! first of these logs.

use crate::instance::Instance;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, tree};
use crate::statistics::command_log::CommandLog;

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[COMMANDLOG, SLOWLOG];

/// The facts that most commands of this file share.
const SERVER: Command = Command {
    flags: Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const SLOWLOG: Command = Command {
    name: "slowlog",
    group: Group::SERVER,
    summary: "Manages the log of slow commands.",
    cost: costs::ARGUMENTS,
    subcommands: &[SLOWLOG_GET, SLOWLOG_HELP, SLOWLOG_LEN, SLOWLOG_RESET],
    since: "2.2.12",
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const SLOWLOG_GET: Command = Command {
    name: "slowlog|get",
    summary: "Lists slow commands, newest first: ten, a given number, or all (-1).",
    since: "2.2.12",
    complexity: "O(N) where N is the number of entries returned",
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    arguments: &[Argument::integer("count").optional()],
    example: &[
        ("SLOWLOG GET 0", "[]"),
        ("SLOWLOG GET -2", "(error) ERR count should be greater than or equal to -1"),
    ],
    run: Run::Server(slowlog_get),
    ..SERVER
};

fn slowlog_get(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    const COUNT: &[u8] = b"10";
    Error::check_longest(request, 3)?;
    list(&context.instance.statistics.command_logs.slow, request.get(2).unwrap_or(COUNT), reply)
}

/// The newest entries of a log; `count` says how many.
fn list(log: &CommandLog, count: &[u8], reply: Reply<'_>) -> Result {
    let count = parse_integer(count).filter(|count| *count >= -1);
    let count = count.ok_or(Error::fixed("ERR count should be greater than or equal to -1"))?;
    // -1 is all.
    let newest = log.newest(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(reply.tree(&tree::array(newest.into_iter().map(|request| {
        tree::array([
            tree::integer(request.id as i64),
            tree::integer(request.at_s as i64),
            tree::integer(request.measure as i64),
            tree::array(request.arguments.iter().map(tree::bulk)),
            tree::bulk(request.address),
            tree::bulk(request.client_name),
        ])
    }))))
}

const SLOWLOG_LEN: Command = Command {
    name: "slowlog|len",
    summary: "Returns the number of entries in the slow log.",
    since: "2.2.12",
    complexity: "O(1)",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    example: &[("SLOWLOG RESET", "OK"), ("SLOWLOG LEN", "(integer) 0")],
    run: Run::Server(slowlog_len),
    ..SERVER
};

fn slowlog_len(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(context.instance.statistics.command_logs.slow.len()))
}

const SLOWLOG_RESET: Command = Command {
    name: "slowlog|reset",
    summary: "Removes all entries from the slow log.",
    since: "2.2.12",
    complexity: "O(N) where N is the number of entries in the slowlog",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    example: &[("SLOWLOG RESET", "OK")],
    run: Run::Server(slowlog_reset),
    ..SERVER
};

fn slowlog_reset(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.statistics.command_logs.slow.clear();
    Ok(reply.ok())
}

const SLOWLOG_HELP: Command = Command::help("slowlog|help", "6.2.0", || &SLOWLOG);

const COMMANDLOG: Command = Command {
    name: "commandlog",
    group: Group::SERVER,
    summary: "Manages the logs of slow commands, large requests and large replies.",
    cost: costs::ARGUMENTS,
    subcommands: &[COMMANDLOG_GET, COMMANDLOG_HELP, COMMANDLOG_LEN, COMMANDLOG_RESET],
    since: "8.1.0",
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

/// The log that a request names.
const LOG: Argument = Argument::one_of("type", &Argument::words(["SLOW", "LARGE-REQUEST", "LARGE-REPLY"]));

fn log_of<'a>(instance: &'a Instance, word: &[u8]) -> Result<&'a CommandLog> {
    let logs = &instance.statistics.command_logs;
    match word {
        _ if is_word(word, "slow") => Ok(&logs.slow),
        _ if is_word(word, "large-request") => Ok(&logs.large_requests),
        _ if is_word(word, "large-reply") => Ok(&logs.large_replies),
        _ => Err(Error::fixed("ERR type should be one of the following: slow, large-request, large-reply")),
    }
}

const COMMANDLOG_GET: Command = Command {
    name: "commandlog|get",
    summary: "Lists the entries of one log, newest first: a given number, or all (-1).",
    since: "8.1.0",
    complexity: "O(N) where N is the number of entries returned",
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    arguments: &[Argument::integer("count"), LOG],
    example: &[
        ("COMMANDLOG GET 10 LARGE-REPLY", "[]"),
        ("COMMANDLOG GET -2 SLOW", "(error) ERR count should be greater than or equal to -1"),
    ],
    run: Run::Server(commandlog_get),
    ..SERVER
};

fn commandlog_get(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    list(log_of(context.instance, request.at(3))?, request.at(2), reply)
}

const COMMANDLOG_LEN: Command = Command {
    name: "commandlog|len",
    summary: "Returns the number of entries in one log.",
    since: "8.1.0",
    complexity: "O(1)",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    arguments: &[LOG],
    example: &[("COMMANDLOG LEN LARGE-REQUEST", "(integer) 0")],
    run: Run::Server(commandlog_len),
    ..SERVER
};

fn commandlog_len(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(log_of(context.instance, request.at(2))?.len()))
}

const COMMANDLOG_RESET: Command = Command {
    name: "commandlog|reset",
    summary: "Removes all entries from one log.",
    since: "8.1.0",
    complexity: "O(N) where N is the number of entries in the commandlog",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[LOG],
    example: &[("COMMANDLOG RESET SLOW", "OK")],
    run: Run::Server(commandlog_reset),
    ..SERVER
};

fn commandlog_reset(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    log_of(context.instance, request.at(2))?.clear();
    Ok(reply.ok())
}

const COMMANDLOG_HELP: Command = Command::help("commandlog|help", "8.1.0", || &COMMANDLOG);
