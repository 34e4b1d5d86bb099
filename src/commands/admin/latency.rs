//! LATENCY: slow events, and the distribution of the times of commands.

use std::collections::BTreeMap;

use crate::resp::{Reply, Request, tree};
use crate::statistics::latency::History;

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::lookup::{Registered, find_full, registered};
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[LATENCY];

/// The facts that most commands of this file share.
const SERVER: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    group: Group::SERVER,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const LATENCY: Command = Command {
    name: "latency",
    group: Group::SERVER,
    summary: "Inspects slow events inside the server.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        LATENCY_DOCTOR,
        LATENCY_GRAPH,
        LATENCY_HELP,
        LATENCY_HISTOGRAM,
        LATENCY_HISTORY,
        LATENCY_LATEST,
        LATENCY_RESET,
    ],
    since: "2.8.13",
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const LATENCY_LATEST: Command = Command {
    name: "latency|latest",
    summary: "Lists the slow events: time and duration of the latest one, and the longest duration.",
    since: "2.8.13",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    example: &[("LATENCY LATEST", "[]")],
    run: Run::Server(latency_latest),
    ..SERVER
};

fn latency_latest(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let events = context.instance.statistics.latency.all();
    let describe = |(event, history): (&str, History)| {
        let (at_s, took_ms) = history.samples.back().copied().unwrap_or_default();
        let numbers = [at_s, took_ms, history.longest_ms].map(|number| tree::integer(number as i64));
        tree::array([tree::bulk(event)].into_iter().chain(numbers))
    };
    Ok(reply.tree(&tree::array(events.into_iter().map(describe))))
}

const LATENCY_HISTORY: Command = Command {
    name: "latency|history",
    summary: "Lists when an event was slow, and how many milliseconds it took.",
    since: "2.8.13",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    example: &[("LATENCY HISTORY command", "[]")],
    run: Run::Server(latency_history),
    ..SERVER
};

fn latency_history(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let events = context.instance.statistics.latency.all();
    let found = events.into_iter().find(|(event, _)| event.as_bytes() == request.at(2));
    let samples = found.map(|(_, history)| history.samples).unwrap_or_default();
    Ok(reply.array_of(samples.iter(), |(at_s, took_ms), reply| {
        reply.pair(|reply| reply.integer(*at_s as i64), |reply| reply.integer(*took_ms as i64))
    }))
}

const LATENCY_RESET: Command = Command {
    name: "latency|reset",
    summary: "Removes the records of some or all events; returns how many events had any.",
    since: "2.8.13",
    complexity: "O(1)",
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    arguments: &[Argument::string("event").optional().multiple()],
    example: &[("LATENCY RESET", "(integer) 0")],
    run: Run::Server(latency_reset),
    ..SERVER
};

fn latency_reset(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_meant = |event: &str| request.len() == 2 || request.from(2).any(|word| is_word(word, event));
    Ok(reply.count(context.instance.statistics.latency.forget(is_meant)))
}

const LATENCY_HISTOGRAM: Command = Command {
    name: "latency|histogram",
    summary: "Returns the distribution of execution times for some or all commands, in microseconds.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of commands with latency information being retrieved.",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("command").optional().multiple()],
    example: &[("LATENCY HISTOGRAM nosuchcommand", "[]")],
    run: Run::Server(latency_histogram),
    ..SERVER
};

fn latency_histogram(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let with_subcommands = |found: &'static Registered| std::iter::once(found).chain(&found.subcommands);
    let find = |name| find_full(&context.instance.names, name);
    let meant: Vec<&Registered> = match request.len() {
        2 => registered().collect(),
        _ => request.from(2).filter_map(find).flat_map(with_subcommands).collect(),
    };
    let meant: BTreeMap<&str, &Registered> =
        meant.into_iter().map(|registered| (registered.command.name, registered)).collect();
    let statistics = &context.instance.statistics;
    let described = meant.into_iter().filter_map(|(name, registered)| {
        let totals = statistics.latencies(registered.number);
        let points = totals
            .cumulative_us()
            .into_iter()
            .map(|(us, calls)| [us, calls].map(|n| tree::integer(n as i64)));
        let histogram = tree::map_of(points.map(|[us, calls]| (us, calls)));
        let calls = ("calls", tree::integer(totals.usage.calls as i64));
        (totals.usage.calls > 0).then(|| (name, tree::map([calls, ("histogram_usec", histogram)])))
    });
    Ok(reply.tree(&tree::map(described)))
}

const LATENCY_DOCTOR: Command = Command {
    name: "latency|doctor",
    summary: "Returns a report on slow events, with advice.",
    since: "2.8.13",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    run: Run::Server(latency_doctor),
    ..SERVER
};

fn latency_doctor(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let instance = context.instance;
    let events = instance.statistics.latency.all();
    if instance.config.latency_monitor_threshold.get() == 0 && events.is_empty() {
        return Ok(reply.verbatim(
            "Latency monitoring is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on; \
             longer events are then recorded.\n",
        ));
    }
    if events.is_empty() {
        return Ok(reply.verbatim(
            "No event took longer than latency-monitor-threshold: there is no problem to report.\n",
        ));
    }
    let mut report = String::from("Events that took longer than latency-monitor-threshold:\n\n");
    for (event, history) in &events {
        let count = history.samples.len() as u64;
        let mean_ms = history.samples.iter().map(|(_, took_ms)| took_ms).sum::<u64>() / count.max(1);
        report += &format!(
            "- {event}: {count} times, {mean_ms} ms on average, {} ms at worst\n",
            history.longest_ms
        );
    }
    report += "\nAdvice:\n\n- SLOWLOG GET lists slow requests. Look first at those with many keys or long \
               values.\n- Use SCAN instead of KEYS, and UNLINK instead of DEL for long values: they do not \
               delay other clients.\n";
    Ok(reply.verbatim(&report))
}

const LATENCY_GRAPH: Command = Command {
    name: "latency|graph",
    summary: "Returns a text graph of the durations of an event.",
    since: "2.8.13",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    example: &[("LATENCY GRAPH command", "(error) ERR No samples available for event 'command'")],
    run: Run::Server(latency_graph),
    ..SERVER
};

fn latency_graph(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let instance = context.instance;
    let events = instance.statistics.latency.all();
    let unknown = || Error::quoting("ERR No samples available for event '", request.at(2), "'");
    let found = events.into_iter().find(|(event, _)| event.as_bytes() == request.at(2));
    let (event, history) = found.ok_or_else(unknown)?;
    Ok(reply.verbatim(&history.draw(event, instance.clock.since_epoch().as_secs())))
}

const LATENCY_HELP: Command = Command::help("latency|help", "2.8.13", || &LATENCY);
