//! What the server logs, measures and publishes about itself and its keys.

use super::super::{Changes, Kind, Origin, Owner, Parameter};
use super::words::{LOG_FORMATS, LOG_LEVELS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "loglevel",
        help: "How much to log: debug logs most, warning least",
        default: "notice",
        kind: Kind::Choice(LOG_LEVELS),
        is_essential: true,
        owner: Owner::Process,
        ..Parameter::choice(|config| &config.loglevel)
    },
    Parameter {
        name: "logfile",
        help: "Log file; empty for standard output",
        kind: Kind::Path,
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::text(|config| &config.logfile)
    },
    Parameter {
        name: "log-format",
        help: "Form of log lines; auto is pretty on a terminal and redis elsewhere",
        default: "auto",
        kind: Kind::Choice(LOG_FORMATS),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::choice(|config| &config.log_format)
    },
    Parameter {
        name: "metrics-port",
        help: "Port for /metrics and /healthz; 0 for none",
        detail: "/metrics is for Prometheus",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        origin: Origin::Keyfast,
        is_essential: true,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.metrics_port)
    },
    Parameter {
        name: "metrics-bind",
        help: "Addresses at which to serve metrics, written as in `bind`",
        detail: "Clients need no password there",
        default: "127.0.0.1 -::1",
        kind: Kind::Addresses,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.metrics_bind)
    },
    Parameter {
        name: "slowlog-log-slower-than",
        alias: Some("commandlog-execution-slower-than"),
        help: "Duration from which SLOWLOG records a request; negative for never",
        default: "10000",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        unit: "microseconds",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.slowlog_log_slower_than)
    },
    Parameter {
        name: "slowlog-max-len",
        alias: Some("commandlog-slow-execution-max-len"),
        help: "Maximum number of requests that SLOWLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "entries",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.slowlog_max_len)
    },
    Parameter {
        name: "commandlog-request-larger-than",
        help: "Size from which COMMANDLOG records a request; negative for never",
        default: "1048576",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        unit: "bytes",
        origin: Origin::Valkey,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.commandlog_request_larger_than)
    },
    Parameter {
        name: "commandlog-large-request-max-len",
        help: "Maximum number of large requests that COMMANDLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "entries",
        origin: Origin::Valkey,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.commandlog_large_request_max_len)
    },
    Parameter {
        name: "commandlog-reply-larger-than",
        help: "Size of a reply from which COMMANDLOG records its request; negative for never",
        default: "1048576",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        unit: "bytes",
        origin: Origin::Valkey,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.commandlog_reply_larger_than)
    },
    Parameter {
        name: "commandlog-large-reply-max-len",
        help: "Maximum number of requests with large replies that COMMANDLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "entries",
        origin: Origin::Valkey,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.commandlog_large_reply_max_len)
    },
    Parameter {
        name: "latency-monitor-threshold",
        help: "Duration from which LATENCY records an event; 0 for never",
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "milliseconds",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.latency_monitor_threshold)
    },
    Parameter {
        name: "latency-tracking",
        help: "Measure how long commands take (INFO latencystats, LATENCY HISTOGRAM)",
        default: "yes",
        owner: Owner::Sandbox,
        ..Parameter::flag(|config| &config.latency_tracking)
    },
    Parameter {
        name: "latency-tracking-info-percentiles",
        help: "Percentiles that INFO latencystats reports",
        default: "50 99 99.9",
        kind: Kind::Percentiles,
        owner: Owner::Sandbox,
        ..Parameter::text(|config| &config.latency_tracking_info_percentiles)
    },
    Parameter {
        name: "key-memory-histograms",
        help: "Count keys by the bytes that they take, too, in INFO keysizes",
        default: "no",
        origin: Origin::RedisSince("8.6"),
        owner: Owner::Sandbox,
        ..Parameter::flag(|config| &config.key_memory_histograms)
    },
    Parameter {
        name: "notify-keyspace-events",
        help: "Keyspace events to publish, by Redis's letters; empty for none",
        kind: Kind::Events,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.notify_keyspace_events)
    },
];
