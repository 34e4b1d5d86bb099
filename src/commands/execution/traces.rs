//! What a command leaves in statistics and logs: its use is counted, MONITOR shows it, SLOWLOG and LATENCY
//! note it if it took long, COMMANDLOG if it or its reply was long, and HOTKEYS its keys.

use std::time::Duration;

use crate::clients::Address;
use crate::excerpt::excerpt;
use crate::instance::Instance;
use crate::resp::Request;
use crate::resp::reply::write_quoted;
use crate::session::Session;
use crate::statistics::command_log::{Least, LoggedRequest, cut};

use super::origin::Origin;
use super::secrets::visible_arguments;
use crate::commands::facts::lookup::Registered;
use crate::commands::facts::{Command, Flags, SMALL_BYTES_MAX};

/// Below this threshold of the log of slow requests, each request is timed.
const THOROUGH_BELOW_US: i64 = 1000;

/// Whether each request is timed and measured, also those that cost little.
pub(crate) fn is_thorough(instance: &Instance) -> bool {
    const SMALL: std::ops::RangeInclusive<i64> = 0..=SMALL_BYTES_MAX as i64;
    let config = &instance.config;
    (0..THOROUGH_BELOW_US).contains(&config.slowlog_log_slower_than.get())
        || SMALL.contains(&config.commandlog_request_larger_than.get())
        || SMALL.contains(&config.commandlog_reply_larger_than.get())
}

/// The measurements of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measures {
    /// How long it took.
    pub took: Duration,
    /// How long its reply is.
    pub reply_bytes: usize,
}

/// Counts a call, and notes it if it was slow, or long, or got a long reply.
pub(crate) fn charge(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
    origin: Origin,
    Measures { took, reply_bytes }: Measures,
) {
    let statistics = &instance.statistics;
    let nanos = took.as_nanos() as u64;
    statistics.add_call(registered.number, nanos);
    session.client.traffic.commands.add(1);
    if statistics.hot_keys.is_active() && origin != Origin::Script {
        // What a script takes is charged to the keys that it declares.
        let keys = registered.command.keys_of(request).map(|(key, _)| key);
        let bytes = (request.bytes_as_array() + reply_bytes) as u64;
        statistics.hot_keys.note(keys, nanos, bytes, instance.clock.now_ms());
    }
    let config = &instance.config;
    let threshold_ms = config.latency_monitor_threshold.size() as u64;
    if threshold_ms > 0 && nanos / 1_000_000 >= threshold_ms {
        let is_fast = registered.command.flags.contains(Flags::FAST);
        statistics.latency.note(
            if is_fast { "fast-command" } else { "command" },
            instance.clock.since_epoch().as_secs(),
            took,
        );
    }
    if registered.command.flags.contains(Flags::SKIP_SLOWLOG) {
        return;
    }
    let describe = || describe(instance, session, registered.command, request);
    let logs = &statistics.command_logs;
    let least = Least::of(config.slowlog_log_slower_than.get());
    if least.takes(nanos / 1000) {
        logs.slow.note(nanos / 1000, config.slowlog_max_len.size(), describe);
    }
    let least = Least::of(config.commandlog_request_larger_than.get());
    // What a script calls has no bytes: its client has not sent it. Others are added up where it may matter.
    let is_sent = origin != Origin::Script;
    if least.takes(if is_sent { request.bytes_as_array_max() as u64 } else { 0 }) {
        let bytes = if is_sent { request.bytes_as_array() as u64 } else { 0 };
        if least.takes(bytes) {
            logs.large_requests.note(bytes, config.commandlog_large_request_max_len.size(), describe);
        }
    }
    let (least, bytes) = (Least::of(config.commandlog_reply_larger_than.get()), reply_bytes as u64);
    if least.takes(bytes) {
        logs.large_replies.note(bytes, config.commandlog_large_reply_max_len.size(), describe);
    }
}

/// Makes a log's entry of a request.
#[cold]
fn describe(
    instance: &Instance,
    session: &Session,
    command: &'static Command,
    request: Request<'_>,
) -> LoggedRequest {
    LoggedRequest {
        id: 0,
        at_s: instance.clock.since_epoch().as_secs(),
        measure: 0,
        arguments: cut(visible_arguments(&instance.names, command, request).into_iter()),
        address: session.client.address.to_string(),
        client_name: excerpt(&session.client.profile.lock().name).into_owned(),
    }
}

/// Bytes of the reply that an error is.
pub(crate) fn error_bytes(text: &[u8]) -> usize {
    "-".len() + text.len() + "\r\n".len()
}

/// Shows a request that has run to MONITOR's clients, unless it is too dangerous to be shown.
#[cold]
pub(crate) fn show(
    instance: &Instance,
    session: &Session,
    origin: Origin,
    command: &Command,
    request: Request<'_>,
) {
    if !command.flags.contains(Flags::ADMIN) && !command.flags.contains(Flags::SKIP_MONITOR) {
        show_always(instance, session, origin, command, request);
    }
}

/// The same for every request.
pub(crate) fn show_always(
    instance: &Instance,
    session: &Session,
    origin: Origin,
    command: &Command,
    request: Request<'_>,
) {
    let now = instance.clock.since_epoch();
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let from = match &session.client.address {
        _ if origin == Origin::Script => "lua".to_owned(),
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    };
    let mut line = format!("+{seconds}.{micros:06} [{} {from}]", session.shown_database()).into_bytes();
    for argument in visible_arguments(&instance.names, command, request) {
        line.push(b' ');
        write_quoted(&mut line, argument);
    }
    line.extend_from_slice(b"\r\n");
    instance.clients.send_to_monitors(&line);
}
