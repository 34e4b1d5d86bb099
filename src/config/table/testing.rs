//! What only tests need: another time, and failures on purpose.

use super::super::{Changes, Kind, Origin, Parameter};
use super::words::ENABLED_FOR;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "enable-clock-command",
        help: "Which clients may use CLOCK: none, all or local",
        detail: "CLOCK changes the time of the server, so that tests need not wait",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        origin: Origin::Keyfast,
        is_essential: true,
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.enable_clock_command)
    },
    Parameter {
        name: "enable-fault-command",
        help: "Which clients may use FAULT: none, all or local",
        detail: "FAULT makes requests fail, wait or lose their replies, to test clients",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.enable_fault_command)
    },
];
