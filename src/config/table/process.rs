//! How the process starts, how it is supervised, and how it ends.

use super::super::{Changes, Kind, Origin, Owner, Parameter};
use crate::platform::oom_score;

use super::words::{OOM_SCORE_ADJUSTMENTS, SHUTDOWN_WORDS, SUPERVISORS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "daemonize",
        help: "Run in the background",
        default: "no",
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::flag(|config| &config.daemonize)
    },
    Parameter {
        name: "pidfile",
        help: "File for the process ID; if empty, /var/run/redis.pid in the background and none otherwise",
        kind: Kind::Path,
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::text(|config| &config.pidfile)
    },
    Parameter {
        name: "supervised",
        help: "Supervisor to notify: upstart, systemd, the one that is found (auto) or none (no)",
        default: "no",
        kind: Kind::Choice(SUPERVISORS),
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::choice(|config| &config.supervised)
    },
    Parameter {
        name: "set-proc-title",
        help: "Show a title in place of the command line, which may hold secrets, to all users of the machine",
        detail: "With `no`, a command line with a secret is cut to the program's name",
        default: "yes",
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::flag(|config| &config.set_proc_title)
    },
    Parameter {
        name: "proc-title-template",
        help: "The title: variables are title (the program's name), listen-addr, config-file, port, tls-port, unixsocket",
        default: "{title} {listen-addr} {server-mode}",
        kind: Kind::Title,
        owner: Owner::Process,
        ..Parameter::text(|config| &config.proc_title_template)
    },
    Parameter {
        name: "shutdown-on-sigint",
        help: "What SIGINT does: default, or some of save, nosave, now, force",
        default: "default",
        kind: Kind::Words(SHUTDOWN_WORDS),
        owner: Owner::Process,
        ..Parameter::integer(|config| &config.shutdown_on_sigint)
    },
    Parameter {
        name: "shutdown-on-sigterm",
        help: "What SIGTERM does: default, or some of save, nosave, now, force",
        default: "default",
        kind: Kind::Words(SHUTDOWN_WORDS),
        owner: Owner::Process,
        ..Parameter::integer(|config| &config.shutdown_on_sigterm)
    },
    Parameter {
        name: "shutdown-timeout",
        help: "Time to let clients read their last replies at shutdown (capped at 0.7 seconds)",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "seconds",
        ..Parameter::integer(|config| &config.shutdown_timeout)
    },
    Parameter {
        name: "oom-score-adj",
        help: "Adjust the score by which Linux chooses a process to kill: relative to the score at start (yes) or absolute",
        default: "no",
        kind: Kind::ChoiceWithSynonym {
            words: OOM_SCORE_ADJUSTMENTS,
            synonym: 2,
            obstacle: oom_score::OBSTACLE,
        },
        owner: Owner::Process,
        ..Parameter::choice(|config| &config.oom_score_adj)
    },
    Parameter {
        name: "oom-score-adj-values",
        help: "Three adjustments: primary, replica, child; only the first is used",
        default: "0 200 800",
        kind: Kind::Scores,
        owner: Owner::Process,
        ..Parameter::text(|config| &config.oom_score_adj_values)
    },
    Parameter {
        name: "ignore-unsupported",
        help: "Start even if replication, a cluster, a sentinel or a module is configured",
        default: "no",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        owner: Owner::Process,
        ..Parameter::flag(|config| &config.ignore_unsupported)
    },
];
