//! Up to which size collections are packed. The names and the defaults are those of Redis.

use super::super::{Field, Kind, Parameter, Place};

const COUNT: Kind = Kind::Integer { min: 0, max: i64::MAX };
const BYTES: Kind = Kind::Bytes { min: 0, max: i64::MAX as u64 };

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "hash-max-listpack-entries",
        alias: Some("hash-max-ziplist-entries"),
        help: "Fields of a hash up to which it is packed",
        default: "512",
        kind: COUNT,
        place: Place::Field(|config| Field::Integer(&config.hash_max_listpack_entries)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "hash-max-listpack-value",
        alias: Some("hash-max-ziplist-value"),
        help: "Bytes of a field or value up to which a hash is packed",
        default: "64",
        kind: BYTES,
        place: Place::Field(|config| Field::Integer(&config.hash_max_listpack_value)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "hll-sparse-max-bytes",
        help: "Bytes of a HyperLogLog up to which it is sparse",
        default: "3000",
        kind: BYTES,
        place: Place::Field(|config| Field::Integer(&config.hll_sparse_max_bytes)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "list-max-listpack-size",
        alias: Some("list-max-ziplist-size"),
        help: "Elements of a list up to which it is packed; -1 to -5: 4 to 64 KiB",
        default: "-2",
        kind: Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.list_max_listpack_size)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "set-max-intset-entries",
        help: "Members of a set of integers up to which it is packed",
        default: "512",
        kind: COUNT,
        place: Place::Field(|config| Field::Integer(&config.set_max_intset_entries)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "set-max-listpack-entries",
        help: "Members of any set up to which it is packed",
        default: "128",
        kind: COUNT,
        place: Place::Field(|config| Field::Integer(&config.set_max_listpack_entries)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "set-max-listpack-value",
        help: "Bytes of a member up to which a set is packed",
        default: "64",
        kind: BYTES,
        place: Place::Field(|config| Field::Integer(&config.set_max_listpack_value)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "zset-max-listpack-entries",
        alias: Some("zset-max-ziplist-entries"),
        help: "Members of a sorted set up to which it is packed",
        default: "128",
        kind: COUNT,
        place: Place::Field(|config| Field::Integer(&config.zset_max_listpack_entries)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "zset-max-listpack-value",
        alias: Some("zset-max-ziplist-value"),
        help: "Bytes of a member up to which a sorted set is packed",
        default: "64",
        kind: BYTES,
        place: Place::Field(|config| Field::Integer(&config.zset_max_listpack_value)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "stream-node-max-bytes",
        help: "Bytes of a block of a stream's entries; 0 for 1 GiB",
        default: "4096",
        kind: BYTES,
        place: Place::Field(|config| Field::Integer(&config.stream_node_max_bytes)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "stream-node-max-entries",
        help: "Entries of a block of a stream; 0 for any number",
        default: "100",
        kind: COUNT,
        place: Place::Field(|config| Field::Integer(&config.stream_node_max_entries)),
        ..Parameter::DEFAULTS
    },
];
