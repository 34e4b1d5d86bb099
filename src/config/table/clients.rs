//! How many clients are served, and what each of them may take.

use crate::REDIS_VERSION;

use super::super::{Changes, Field, Kind, Origin, Owner, Parameter, Place};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "maxclients",
        help: "Maximum number of connected clients",
        default: "10000",
        kind: Kind::Integer { min: 1, max: u32::MAX as i64 },
        unit: "clients",
        place: Place::Field(|config| Field::Integer(&config.maxclients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "timeout",
        help: "Time without a request after which a client is disconnected; 0 for never",
        default: "0",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "seconds",
        place: Place::Field(|config| Field::Integer(&config.timeout)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "io-threads",
        help: "Threads that serve clients; 0 for one per core",
        difference: "0, the default, is one thread per core",
        default: "0",
        kind: Kind::Integer { min: 0, max: 128 },
        unit: "threads",
        changes: Changes::AtStart,
        owner: Owner::Process,
        place: Place::Field(|config| Field::Integer(&config.io_threads)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "client-output-buffer-limit",
        help: "Limits of replies that a client has not read: class, hard limit, soft limit, seconds",
        detail: "A client is disconnected above the hard limit, or above the soft limit for that many seconds; 0 for no limit",
        default: "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        kind: Kind::Limits,
        place: Place::Field(|config| Field::Limits(&config.client_output_buffer_limit)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "client-query-buffer-limit",
        help: "Bytes that a client may send before its request is complete",
        difference: "Keyfast finds arguments by 32-bit offsets, so the limit is below 4 GiB",
        default: "1gb",
        // A request's arguments are found by 32-bit offsets.
        kind: Kind::Bytes { min: 1 << 20, max: u32::MAX as u64 - (64 << 20) },
        place: Place::Field(|config| Field::Integer(&config.client_query_buffer_limit)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "proto-max-bulk-len",
        help: "Maximum size of one argument of a request",
        difference: "in Keyfast a value has at most 512 MiB",
        default: "512mb",
        kind: Kind::Bytes { min: 1 << 20, max: 512 << 20 },
        place: Place::Field(|config| Field::Integer(&config.proto_max_bulk_len)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "maxmemory-clients",
        help: "Memory of all clients together above which the largest are disconnected; 0 for no limit",
        detail: "A percentage is of `maxmemory`",
        default: "0",
        kind: Kind::BytesOrPercent,
        place: Place::Field(|config| Field::Integer(&config.maxmemory_clients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "long-requests-memory",
        help: "Memory that the replies of long requests may take together; 0 for a quarter of the machine's",
        detail: "A long request beyond it gets an error, until other clients have taken their replies",
        default: "0",
        kind: Kind::Bytes { min: 0, max: i64::MAX as u64 },
        origin: Origin::Keyfast,
        place: Place::Field(|config| Field::Integer(&config.long_requests_memory)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tracking-table-max-keys",
        help: "Maximum number of keys tracked for invalidation; 0 for no limit",
        default: "1000000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "keys",
        place: Place::Field(|config| Field::Integer(&config.tracking_table_max_keys)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "busy-reply-threshold",
        alias: Some("lua-time-limit"),
        help: "Time after which a running script makes other clients get BUSY; 0 for never",
        default: "5000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "milliseconds",
        place: Place::Field(|config| Field::Integer(&config.busy_reply_threshold)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "redis-version",
        help: "Version of Redis that HELLO and INFO report, for clients that need another one",
        default: REDIS_VERSION,
        kind: Kind::Version,
        origin: Origin::Keyfast,
        place: Place::Field(|config| Field::Text(&config.redis_version)),
        ..Parameter::DEFAULTS
    },
];
