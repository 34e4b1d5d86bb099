//! How many databases there are, how much memory keys may take, and how they expire.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::EVICTION_POLICIES;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "databases",
        help: "Number of databases",
        default: "16",
        kind: Kind::Integer { min: 1, max: 16_384 },
        unit: "databases",
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.databases)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory",
        help: "Memory limit; 0 for none",
        detail: "Above it keys are evicted or writes are refused, as `maxmemory-policy` says",
        default: "0",
        kind: Kind::Bytes { min: 0, max: u64::MAX },
        is_essential: true,
        place: Place::Field(|config| Field::Integer(&config.maxmemory)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-policy",
        help: "Which keys to evict at the memory limit",
        default: "noeviction",
        kind: Kind::Choice(EVICTION_POLICIES),
        is_essential: true,
        place: Place::Field(|config| Field::Choice(&config.maxmemory_policy)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-samples",
        help: "Number of keys compared to choose one to evict",
        difference: "Keyfast takes at most 64, as later versions of Redis do: with more, other clients would wait",
        default: "5",
        kind: Kind::Integer { min: 1, max: 64 },
        unit: "keys",
        place: Place::Field(|config| Field::Integer(&config.maxmemory_samples)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lfu-decay-time",
        help: "Time without access after which a key's LFU counter falls by one; 0 for never",
        default: "1",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "minutes",
        place: Place::Field(|config| Field::Integer(&config.lfu_decay_time)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lfu-log-factor",
        help: "How slowly a key's LFU counter grows: the larger, the slower",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.lfu_log_factor)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "hz",
        help: "Sweeps for expired keys per second; a value outside 1 to 500 becomes the nearer of the two",
        default: "10",
        kind: Kind::Frequency,
        unit: "per second",
        place: Place::Field(|config| Field::Integer(&config.hz)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "active-expire-effort",
        help: "Share of one core that sweeps for expired keys may take: 25 percent at 1, 43 percent at 10",
        default: "1",
        kind: Kind::Integer { min: 1, max: 10 },
        place: Place::Field(|config| Field::Integer(&config.active_expire_effort)),
        ..Parameter::DEFAULTS
    },
];
