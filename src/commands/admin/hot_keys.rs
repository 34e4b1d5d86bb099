//! HOTKEYS: the keys that use the most processor time or network traffic.
//!
//! A client starts a measurement, lets the server work, and reads the keys that used the most. The server
//! charges the time of a command, and the bytes of its request and reply, to the keys that the request names.
//! It charges each command that EXEC runs to the keys of that command, and a script to the keys that it
//! declares.

use redis_protocol::resp3::types::OwnedFrame;

use crate::platform::processor;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, tree};
use crate::statistics::hot_keys::{IsActive, Report, Settings};

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Arity, Command, Context, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[HOTKEYS];

const HOTKEYS: Command = Command {
    name: "hotkeys",
    group: Group::SERVER,
    summary: "Measures which keys use the most processor time or network traffic.",
    cost: costs::ARGUMENTS,
    subcommands: &[GET, HELP, RESET, START, STOP],
    since: "8.6.0",
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const START: Command = Command {
    name: "hotkeys|start",
    arity: Some(Arity::AtLeast(2)),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT),
    group: Group::SERVER,
    summary: "Starts a measurement.",
    since: "8.6.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:special"],
    arguments: &[
        Argument::block(
            "metrics",
            &[Argument::integer("count"), Argument::word("CPU").optional(), Argument::word("NET").optional()],
        )
        .token("METRICS"),
        Argument::integer("k").token("COUNT").optional(),
        Argument::integer("seconds").token("DURATION").optional(),
        Argument::integer("ratio").token("SAMPLE").optional(),
        Argument::block("slots", &[Argument::integer("count"), Argument::integer("slot").multiple()])
            .token("SLOTS")
            .optional(),
    ],
    example: &[
        ("HOTKEYS START METRICS 2 CPU NET COUNT 3", "OK"),
        ("HOTKEYS STOP", "OK"),
        ("HOTKEYS RESET", "OK"),
    ],
    run: Run::Server(start),
    ..Command::DEFAULTS
};

/// An integer within limits.
fn within(text: &[u8], least: i64, most: i64, error: &'static str) -> Result<i64> {
    parse_integer(text).filter(|number| (least..=most).contains(number)).ok_or(Error::fixed(error))
}

fn parse(request: Request<'_>) -> Result<Settings> {
    const METRICS: i64 = 2;
    if request.len() < 4 || !is_word(request.at(2), "metrics") {
        return Err(Error::fixed("ERR METRICS parameter is required"));
    }
    let metrics = within(request.at(3), 1, METRICS, "ERR METRICS count must be > 0 and <= 2")? as usize;
    let mut settings = Settings { count: 10, ratio: 1, ..Settings::default() };
    for metric in request.from(4).take(metrics) {
        // Words that are no metrics are let through, as in Redis.
        let (chosen, twice) = match metric {
            _ if is_word(metric, "cpu") => (&mut settings.by_time, "ERR METRICS CPU defined more than once!"),
            _ if is_word(metric, "net") => {
                (&mut settings.by_bytes, "ERR METRICS NET defined more than once!")
            }
            _ => continue,
        };
        if std::mem::replace(chosen, true) {
            return Err(Error::fixed(twice));
        }
    }
    if request.len() < 4 + metrics {
        return Err(Error::fixed("ERR METRICS count does not match number of metric types provided"));
    }
    if !settings.by_time && !settings.by_bytes {
        return Err(Error::fixed("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut at = 4 + metrics;
    while let Some(option) = request.get(at) {
        let value = request.get(at + 1).ok_or(Error::fixed("ERR syntax error"))?;
        if is_word(option, "count") {
            settings.count = within(value, 1, 64, "ERR COUNT must be between 1 and 64")? as usize;
        } else if is_word(option, "duration") {
            let seconds = within(value, 1, 1_000_000, "ERR DURATION must be between 1 and 1000000")?;
            settings.lasts_ms = Some(seconds as u64 * 1000);
        } else if is_word(option, "sample") {
            let ratio = within(value, 1, i64::from(i32::MAX), "ERR SAMPLE ratio must be positive")?;
            settings.ratio = ratio as u32;
        } else if is_word(option, "slots") {
            return Err(Error::fixed("ERR SLOTS parameter cannot be used in non-cluster mode"));
        } else {
            return Err(Error::SYNTAX);
        }
        at += 2;
    }
    Ok(settings)
}

fn start(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    const ACTIVE: Error = Error::fixed("ERR hotkey tracking session already in progress");
    let (hot_keys, now_ms) = (&context.instance.statistics.hot_keys, context.instance.clock.now_ms());
    if hot_keys.report(now_ms).is_some_and(|report| report.is_active) {
        return Err(ACTIVE);
    }
    let settings = parse(request)?;
    hot_keys.start(settings, now_ms, processor::of_process().as_ms()).map_err(|IsActive| ACTIVE)?;
    Ok(reply.ok())
}

const STOP: Command = Command {
    name: "hotkeys|stop",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT),
    group: Group::SERVER,
    summary: "Stops the measurement and keeps its results.",
    since: "8.6.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:special"],
    example: &[("HOTKEYS STOP", "(nil)")],
    run: Run::Server(stop),
    ..Command::DEFAULTS
};

fn stop(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let was_active = context.instance.statistics.hot_keys.stop(context.instance.clock.now_ms());
    Ok(if was_active { reply.ok() } else { reply.nil() })
}

const RESET: Command = Command {
    name: "hotkeys|reset",
    summary: "Removes the results of the last measurement.",
    example: &[("HOTKEYS RESET", "OK"), ("HOTKEYS GET", "(nil)")],
    run: Run::Server(reset),
    ..STOP
};

fn reset(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let reset = context.instance.statistics.hot_keys.reset(context.instance.clock.now_ms());
    let active = Error::fixed("ERR hotkey tracking session in progress, stop tracking first");
    reset.map(|()| reply.ok()).map_err(|IsActive| active)
}

const GET: Command = Command {
    name: "hotkeys|get",
    summary: "Returns the keys that used the most, and the totals.",
    complexity: "O(K) where K is the number of hotkeys returned.",
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    example: &[("HOTKEYS GET", "(nil)")],
    run: Run::Server(get),
    ..STOP
};

fn get(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let report = context.instance.statistics.hot_keys.report(context.instance.clock.now_ms());
    Ok(match report {
        Some(report) => reply.tree(&tree::array([describe(report)])),
        None => reply.nil(),
    })
}

/// The reply for a report. The fields are those of Redis, in its order.
fn describe(report: Report) -> OwnedFrame {
    const SLOT_LAST: i64 = 16_383;
    const NANOS_A_MICRO: u64 = 1000;
    let Settings { by_time, by_bytes, ratio, .. } = report.settings;
    let number = |number: u64| tree::integer(i64::try_from(number).unwrap_or(i64::MAX));
    let ranked = |keys: Vec<(Box<[u8]>, u64)>, unit: u64| {
        let taken = keys.into_iter().map(|(key, taken)| (key, taken / unit)).filter(|(_, taken)| *taken > 0);
        tree::array(taken.flat_map(|(key, taken)| [tree::bulk(key), number(taken)]))
    };
    let mut fields = vec![
        ("tracking-active", number(u64::from(report.is_active))),
        ("sample-ratio", number(u64::from(ratio))),
        ("selected-slots", tree::array([tree::array([0, SLOT_LAST].map(tree::integer))])),
        ("all-commands-all-slots-us", number(report.nanos / NANOS_A_MICRO)),
        ("net-bytes-all-commands-all-slots", number(report.bytes)),
        ("collection-start-time-unix-ms", number(report.began_ms)),
        ("collection-duration-ms", number(report.lasted_ms)),
    ];
    if by_time {
        let [user_ms, system_ms] = processor::of_process().as_ms();
        let [user_before_ms, system_before_ms] = report.processor_ms;
        fields.push(("total-cpu-time-user-ms", number(user_ms.saturating_sub(user_before_ms))));
        fields.push(("total-cpu-time-sys-ms", number(system_ms.saturating_sub(system_before_ms))));
    }
    if by_bytes {
        fields.push(("total-net-bytes", number(report.bytes_ranked)));
    }
    if by_time {
        fields.push(("by-cpu-time-us", ranked(report.by_time, NANOS_A_MICRO)));
    }
    if by_bytes {
        fields.push(("by-net-bytes", ranked(report.by_bytes, 1)));
    }
    tree::map(fields)
}

const HELP: Command = Command::help("hotkeys|help", "8.6.1", || &HOTKEYS);
