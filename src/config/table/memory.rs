//! Keys and the memory that they take.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::EVICTION_POLICIES;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "maxmemory",
        help: "Bytes of memory beyond which keys are evicted or writes refused; 0 for no limit",
        default: "0",
        kind: Kind::Bytes { min: 0, max: u64::MAX },
        place: Place::Field(|config| Field::Integer(&config.maxmemory)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-clients",
        help: "Bytes of memory, or percent of maxmemory, beyond which the largest clients are closed",
        default: "0",
        kind: Kind::BytesOrPercent,
        place: Place::Field(|config| Field::Integer(&config.maxmemory_clients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-policy",
        help: "Which keys are evicted when memory is short",
        default: "noeviction",
        kind: Kind::Choice(EVICTION_POLICIES),
        place: Place::Field(|config| Field::Choice(&config.maxmemory_policy)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-samples",
        help: "Keys that are compared before one is evicted",
        default: "5",
        kind: Kind::Integer { min: 1, max: 64 },
        place: Place::Field(|config| Field::Integer(&config.maxmemory_samples)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lfu-decay-time",
        help: "Minutes without use after which the count of a key's use falls; 0 for never",
        default: "1",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.lfu_decay_time)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lfu-log-factor",
        help: "How much slower the count of a key's use grows the larger it is",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.lfu_log_factor)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "databases",
        help: "Number of databases",
        default: "16",
        kind: Kind::Integer { min: 1, max: 16_384 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.databases)),
        ..Parameter::DEFAULTS
    },
];
