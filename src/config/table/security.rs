//! Who may connect, and what they may do.

use super::super::{Changes, Field, Kind, Origin, Parameter, Place};
use super::words::{ENABLED_FOR, PUBSUB_DEFAULTS};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "protected-mode",
        help: "Refuse clients from other machines while no password is set",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.protected_mode)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "requirepass",
        help: "Password of the user `default`; empty for none",
        kind: Kind::Text,
        is_essential: true,
        is_secret: true,
        place: Place::Field(|config| Field::Text(&config.requirepass)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "aclfile",
        help: "File of the ACL users, one per line as ACL LIST prints them; empty for none",
        default: "",
        kind: Kind::Path,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.aclfile)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "acllog-max-len",
        help: "Maximum number of refusals that ACL LOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "entries",
        place: Place::Field(|config| Field::Integer(&config.acllog_max_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "acl-pubsub-default",
        help: "Pub/Sub channels that new users may use: all or none",
        default: "resetchannels",
        kind: Kind::Choice(PUBSUB_DEFAULTS),
        place: Place::Field(|config| Field::Choice(&config.acl_pubsub_default)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-protected-configs",
        help: "Which clients may change `dir` and `dbfilename`: none, all or local ones",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_protected_configs)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "enable-debug-command",
        help: "Which clients may use DEBUG: none, all or local ones",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.enable_debug_command)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "local-addresses",
        help: "IP addresses that count as local, besides loopback, where a parameter says `local`",
        default: "",
        kind: Kind::IpAddresses,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.local_addresses)),
        ..Parameter::DEFAULTS
    },
];
