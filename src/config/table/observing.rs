//! What the server tells of itself and of keys.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::{LOG_FORMATS, LOG_LEVELS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "loglevel",
        help: "What is logged: debug, verbose, notice or warning",
        default: "notice",
        kind: Kind::Choice(LOG_LEVELS),
        place: Place::Field(|config| Field::Choice(&config.loglevel)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "logfile",
        help: "File to log to; empty for standard output",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.logfile)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "log-format",
        help: "Form of log lines: auto is pretty on a terminal and redis elsewhere",
        default: "auto",
        kind: Kind::Choice(LOG_FORMATS),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.log_format)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "slowlog-log-slower-than",
        alias: Some("commandlog-execution-slower-than"),
        help: "Microseconds from which on SLOWLOG notes a request; negative for never",
        default: "10000",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.slowlog_log_slower_than)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "slowlog-max-len",
        alias: Some("commandlog-slow-execution-max-len"),
        help: "Requests that SLOWLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.slowlog_max_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "commandlog-request-larger-than",
        help: "Bytes from which on COMMANDLOG notes a request; negative for never",
        default: "1048576",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.commandlog_request_larger_than)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "commandlog-large-request-max-len",
        help: "Long requests that COMMANDLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.commandlog_large_request_max_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "commandlog-reply-larger-than",
        help: "Bytes of a reply from which on COMMANDLOG notes its request; negative for never",
        default: "1048576",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.commandlog_reply_larger_than)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "commandlog-large-reply-max-len",
        help: "Requests with long replies that COMMANDLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.commandlog_large_reply_max_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "latency-monitor-threshold",
        help: "Milliseconds from which on LATENCY notes an event; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.latency_monitor_threshold)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "notify-keyspace-events",
        help: "Which events of keys are published, by the letters of Redis",
        default: "",
        kind: Kind::Events,
        place: Place::Field(|config| Field::Integer(&config.notify_keyspace_events)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lock-lens",
        help: "Whether it is followed who holds which lock, and what goes wrong with it",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.lock_lens)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "latency-tracking",
        help: "Whether INFO latencystats and LATENCY HISTOGRAM tell how long commands take",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.latency_tracking)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "latency-tracking-info-percentiles",
        help: "Percentiles that INFO latencystats tells",
        default: "50 99 99.9",
        kind: Kind::Percentiles,
        place: Place::Field(|config| Field::Text(&config.latency_tracking_info_percentiles)),
        ..Parameter::DEFAULTS
    },
];
