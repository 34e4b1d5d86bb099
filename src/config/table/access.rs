//! Who may do what.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::{ENABLED_FOR, PUBSUB_DEFAULTS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "requirepass",
        help: "Password of the user `default`; empty for none",
        kind: Kind::Text,
        is_secret: true,
        place: Place::Field(|config| Field::Text(&config.requirepass)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "aclfile",
        help: "File with the users, one a line as ACL LIST prints them; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.aclfile)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "acllog-max-len",
        help: "Refusals that ACL LOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.acllog_max_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "acl-pubsub-default",
        help: "Channels that new users may use: all, or none",
        default: "resetchannels",
        kind: Kind::Choice(PUBSUB_DEFAULTS),
        place: Place::Field(|config| Field::Choice(&config.acl_pubsub_default)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "local-addresses",
        help: "IP addresses besides loopback whose clients enable-clock-command local and its like let in",
        default: "",
        kind: Kind::IpAddresses,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.local_addresses)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-clock-command",
        help: "Who may turn the clock by CLOCK: nobody, everybody, clients on this machine",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_clock_command)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-debug-command",
        help: "Who may use DEBUG: no client, all clients, or those on this machine (local)",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_debug_command)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-fault-command",
        help: "Who may use FAULT: no client, all clients, or those on this machine (local)",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_fault_command)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-protected-configs",
        help: "Who may change where files are: no client, all clients, or those on this machine (local)",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_protected_configs)),
        ..Parameter::DEFAULTS
    },
];
