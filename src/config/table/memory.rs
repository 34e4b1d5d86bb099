//! How many databases there are, how much memory keys may take, and how they expire.

use super::super::{Changes, Kind, Origin, Owner, Parameter};
use super::words::EVICTION_POLICIES;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "databases",
        help: "Number of databases",
        default: "16",
        kind: Kind::Integer { min: 1, max: 16_384 },
        unit: "databases",
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.databases)
    },
    Parameter {
        name: "sandboxes",
        help: "Number of sandboxes: databases that are whole servers; 0 for none",
        detail: "`databases` is then their number times `sandbox-databases`",
        default: "0",
        kind: Kind::Integer { min: 0, max: 16_384 },
        unit: "sandboxes",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.sandboxes)
    },
    Parameter {
        name: "sandbox-databases",
        help: "Number of databases of each sandbox",
        default: "1",
        kind: Kind::Integer { min: 1, max: 16_384 },
        unit: "databases",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.sandbox_databases)
    },
    Parameter {
        name: "maxmemory",
        help: "Memory limit; 0 for none",
        detail: "Above it keys are evicted or writes are refused, as `maxmemory-policy` says",
        default: "0",
        kind: Kind::Bytes { min: 0, max: u64::MAX },
        is_essential: true,
        ..Parameter::integer(|config| &config.maxmemory)
    },
    Parameter {
        name: "maxmemory-policy",
        help: "Which keys to evict at the memory limit",
        default: "noeviction",
        kind: Kind::Choice(EVICTION_POLICIES),
        is_essential: true,
        ..Parameter::choice(|config| &config.maxmemory_policy)
    },
    Parameter {
        name: "maxmemory-samples",
        help: "Number of keys compared to choose one to evict",
        default: "5",
        kind: Kind::Integer { min: 1, max: 64 },
        unit: "keys",
        ..Parameter::integer(|config| &config.maxmemory_samples)
    },
    Parameter {
        name: "lfu-decay-time",
        help: "Time without access after which a key's LFU counter falls by one; 0 for never",
        default: "1",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "minutes",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.lfu_decay_time)
    },
    Parameter {
        name: "lfu-log-factor",
        help: "How slowly a key's LFU counter grows: the larger, the slower",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.lfu_log_factor)
    },
    Parameter {
        name: "hz",
        help: "Sweeps for expired keys per second; a value outside 1 to 500 becomes the nearer of the two",
        default: "10",
        kind: Kind::Frequency,
        unit: "per second",
        ..Parameter::integer(|config| &config.hz)
    },
    Parameter {
        name: "active-expire-effort",
        help: "Share of one core that sweeps for expired keys may take: 25 percent at 1, 43 percent at 10",
        default: "1",
        kind: Kind::Integer { min: 1, max: 10 },
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.active_expire_effort)
    },
];
