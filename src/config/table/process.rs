//! The process: how it starts, how often it tidies, and how it ends.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::{OOM_SCORE_ADJUSTMENTS, SHUTDOWN_WORDS, SUPERVISORS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "daemonize",
        help: "Whether to go on in the background",
        default: "no",
        kind: Kind::Flag,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Flag(&config.daemonize)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "pidfile",
        help: "File for the number of the process; in the background /var/run/redis.pid if empty",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.pidfile)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "supervised",
        help: "Who is told that the server is ready: upstart, systemd, whichever is there, or nobody",
        default: "no",
        kind: Kind::Choice(SUPERVISORS),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.supervised)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "hz",
        help: "How often in a second a sweep for expired keys begins",
        default: "10",
        kind: Kind::Frequency,
        place: Place::Field(|config| Field::Integer(&config.hz)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "active-expire-effort",
        help: "How much of one core such a sweep takes: 1 for a quarter, 10 for 43 percent",
        default: "1",
        kind: Kind::Integer { min: 1, max: 10 },
        place: Place::Field(|config| Field::Integer(&config.active_expire_effort)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "shutdown-on-sigint",
        help: "How SIGINT ends the server: default, or some of save, nosave, now, force",
        default: "default",
        kind: Kind::Words(SHUTDOWN_WORDS),
        place: Place::Field(|config| Field::Integer(&config.shutdown_on_sigint)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "shutdown-on-sigterm",
        help: "How SIGTERM ends the server, in the same words",
        default: "default",
        kind: Kind::Words(SHUTDOWN_WORDS),
        place: Place::Field(|config| Field::Integer(&config.shutdown_on_sigterm)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "shutdown-timeout",
        help: "Seconds that the end waits for clients to read their last replies; never more than 0.7",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.shutdown_timeout)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "oom-score-adj",
        help: "How the score is adjusted by which Linux chooses a process to kill",
        default: "no",
        kind: Kind::ChoiceWithSynonym { words: OOM_SCORE_ADJUSTMENTS, synonym: 2 },
        place: Place::Field(|config| Field::Choice(&config.oom_score_adj)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "oom-score-adj-values",
        help: "By how much: of three numbers the first, the others are for replicas and children",
        default: "0 200 800",
        kind: Kind::Scores,
        place: Place::Field(|config| Field::Text(&config.oom_score_adj_values)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "ignore-unsupported",
        help: "Start although replication, a cluster, a sentinel or a module is configured",
        default: "no",
        kind: Kind::Flag,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Flag(&config.ignore_unsupported)),
        ..Parameter::DEFAULTS
    },
];
