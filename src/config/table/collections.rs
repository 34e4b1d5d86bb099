//! Up to which size collections are packed. The names and the defaults are those of Redis.

use super::super::{Kind, Origin, Owner, Parameter};

const COUNT: Kind = Kind::Integer { min: 0, max: i64::MAX };
const BYTES: Kind = Kind::Bytes { min: 0, max: i64::MAX as u64 };

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "hash-max-listpack-entries",
        alias: Some("hash-max-ziplist-entries"),
        help: "Maximum number of fields of a packed hash",
        default: "512",
        kind: COUNT,
        unit: "fields",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.hash_max_listpack_entries)
    },
    Parameter {
        name: "hash-max-listpack-value",
        alias: Some("hash-max-ziplist-value"),
        help: "Maximum size of a field or a value of a packed hash",
        default: "64",
        kind: BYTES,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.hash_max_listpack_value)
    },
    Parameter {
        name: "hll-sparse-max-bytes",
        help: "Maximum size of a HyperLogLog in its sparse form",
        default: "3000",
        kind: BYTES,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.hll_sparse_max_bytes)
    },
    Parameter {
        name: "list-max-listpack-size",
        alias: Some("list-max-ziplist-size"),
        help: "Maximum number of elements of a packed list; -1 to -5 mean 4, 8, 16, 32 or 64 KiB instead",
        default: "-2",
        kind: Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 },
        unit: "elements",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.list_max_listpack_size)
    },
    Parameter {
        name: "set-max-intset-entries",
        help: "Maximum number of members of a packed set of integers",
        default: "512",
        kind: COUNT,
        unit: "members",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.set_max_intset_entries)
    },
    Parameter {
        name: "set-max-listpack-entries",
        help: "Maximum number of members of any packed set",
        default: "128",
        kind: COUNT,
        unit: "members",
        origin: Origin::RedisSince("7.2"),
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.set_max_listpack_entries)
    },
    Parameter {
        name: "set-max-listpack-value",
        help: "Maximum size of a member of a packed set",
        default: "64",
        kind: COUNT,
        unit: "bytes",
        origin: Origin::RedisSince("7.2"),
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.set_max_listpack_value)
    },
    Parameter {
        name: "zset-max-listpack-entries",
        alias: Some("zset-max-ziplist-entries"),
        help: "Maximum number of members of a packed sorted set",
        default: "128",
        kind: COUNT,
        unit: "members",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.zset_max_listpack_entries)
    },
    Parameter {
        name: "zset-max-listpack-value",
        alias: Some("zset-max-ziplist-value"),
        help: "Maximum size of a member of a packed sorted set",
        default: "64",
        kind: BYTES,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.zset_max_listpack_value)
    },
    Parameter {
        name: "stream-node-max-bytes",
        help: "Maximum size of a block of stream entries; 0 for 1 GiB",
        default: "4096",
        kind: BYTES,
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.stream_node_max_bytes)
    },
    Parameter {
        name: "stream-node-max-entries",
        help: "Maximum number of entries in a block of a stream; 0 for no limit",
        default: "100",
        kind: COUNT,
        unit: "entries",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.stream_node_max_entries)
    },
    Parameter {
        name: "stream-idmp-duration",
        help: "How long a new stream remembers the messages of a producer (XADD IDMP)",
        default: "100",
        kind: Kind::Integer { min: 1, max: 86_400 },
        unit: "seconds",
        origin: Origin::RedisSince("8.6"),
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.stream_idmp_duration)
    },
    Parameter {
        name: "stream-idmp-maxsize",
        help: "How many messages of a producer a new stream remembers",
        default: "100",
        kind: Kind::Integer { min: 1, max: 10_000 },
        unit: "messages",
        origin: Origin::RedisSince("8.6"),
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.stream_idmp_maxsize)
    },
];
