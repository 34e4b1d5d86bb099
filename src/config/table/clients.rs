//! How many clients are served, and what each of them may take.

use crate::REDIS_VERSION;

use super::super::{Changes, Kind, Origin, Owner, Parameter};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "maxclients",
        help: "Maximum number of connected clients",
        default: "10000",
        kind: Kind::Integer { min: 1, max: u32::MAX as i64 },
        unit: "clients",
        ..Parameter::integer(|config| &config.maxclients)
    },
    Parameter {
        name: "timeout",
        help: "Idle time after which a client is disconnected that neither waits nor listens; 0 for never",
        default: "0",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "seconds",
        ..Parameter::integer(|config| &config.timeout)
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
        ..Parameter::integer(|config| &config.io_threads)
    },
    Parameter {
        name: "client-output-buffer-limit",
        help: "Limits of replies that a client has not read: class, hard limit, soft limit, seconds",
        detail: "A client is disconnected above the hard limit, or above the soft limit for that many seconds; 0 for no limit",
        default: "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        kind: Kind::Limits,
        ..Parameter::limits(|config| &config.client_output_buffer_limit)
    },
    Parameter {
        name: "client-query-buffer-limit",
        help: "Bytes that a client may send before its request is complete",
        difference: "Keyfast finds arguments by 32-bit offsets, so the limit is below 4 GiB",
        default: "1gb",
        // A request's arguments are found by 32-bit offsets.
        kind: Kind::Bytes { min: 1 << 20, max: u32::MAX as u64 - (64 << 20) },
        ..Parameter::integer(|config| &config.client_query_buffer_limit)
    },
    Parameter {
        name: "proto-max-bulk-len",
        help: "Maximum size of one argument of a request",
        difference: "in Keyfast a value has at most 512 MiB",
        default: "512mb",
        kind: Kind::Bytes { min: 1 << 20, max: 512 << 20 },
        ..Parameter::integer(|config| &config.proto_max_bulk_len)
    },
    Parameter {
        name: "maxmemory-clients",
        help: "Memory of all clients together above which the largest are disconnected; 0 for no limit",
        detail: "A percentage is of `maxmemory`",
        default: "0",
        kind: Kind::BytesOrPercent,
        ..Parameter::integer(|config| &config.maxmemory_clients)
    },
    Parameter {
        name: "long-requests-memory",
        help: "Memory that the results of long requests may take together; 0 for a quarter of the machine's \
               or container's",
        detail: "Results are replies until clients take them, and what is made until it is stored; a request \
                 beyond it gets an error",
        default: "0",
        kind: Kind::Bytes { min: 0, max: i64::MAX as u64 },
        origin: Origin::Keyfast,
        ..Parameter::integer(|config| &config.long_requests_memory)
    },
    Parameter {
        name: "tracking-table-max-keys",
        help: "Maximum number of keys tracked for invalidation; 0 for no limit",
        default: "1000000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "keys",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.tracking_table_max_keys)
    },
    Parameter {
        name: "busy-reply-threshold",
        alias: Some("lua-time-limit"),
        help: "Time after which a running script makes other clients get BUSY; 0 for never",
        default: "5000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "milliseconds",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.busy_reply_threshold)
    },
    Parameter {
        name: "redis-version",
        help: "Version of Redis that HELLO and INFO report, for clients that need another one",
        default: REDIS_VERSION,
        kind: Kind::Version,
        origin: Origin::Keyfast,
        ..Parameter::text(|config| &config.redis_version)
    },
];
