//! Clients: how many, and what each may take.

use crate::REDIS_VERSION;

use super::super::{Changes, Field, Kind, Parameter, Place};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "redis-version",
        help: "Version of Redis that HELLO and INFO tell clients, for those that want another one",
        default: REDIS_VERSION,
        kind: Kind::Version,
        place: Place::Field(|config| Field::Text(&config.redis_version)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxclients",
        help: "Clients served at once",
        default: "10000",
        kind: Kind::Integer { min: 1, max: u32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.maxclients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "io-threads",
        help: "Threads that serve clients; 0 for one a core",
        default: "0",
        kind: Kind::Integer { min: 0, max: 128 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.io_threads)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "client-output-buffer-limit",
        help: "Bytes that may wait for a client: class, hard limit, soft limit, seconds",
        default: "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        kind: Kind::Limits,
        place: Place::Field(|config| Field::Limits(&config.client_output_buffer_limit)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "client-query-buffer-limit",
        help: "Bytes a client may send without completing a request",
        default: "1gb",
        // A request's arguments are found by 32-bit offsets.
        kind: Kind::Bytes { min: 1 << 20, max: u32::MAX as u64 - (64 << 20) },
        place: Place::Field(|config| Field::Integer(&config.client_query_buffer_limit)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "proto-max-bulk-len",
        help: "Bytes of one argument",
        default: "512mb",
        kind: Kind::Bytes { min: 1 << 20, max: 512 << 20 },
        place: Place::Field(|config| Field::Integer(&config.proto_max_bulk_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tracking-table-max-keys",
        help: "Keys of which it is remembered which clients have read them; 0 for any number",
        default: "1000000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.tracking_table_max_keys)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "busy-reply-threshold",
        alias: Some("lua-time-limit"),
        help: "Milliseconds after which clients are told that a script runs; 0 for never",
        default: "5000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        place: Place::Field(|config| Field::Integer(&config.busy_reply_threshold)),
        ..Parameter::DEFAULTS
    },
];
