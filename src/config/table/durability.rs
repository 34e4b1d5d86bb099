//! What outlives the server: snapshots and the append-only file.

use super::super::{Changes, Kind, Origin, Parameter};
use super::words::{APPEND_FSYNC, SANITIZED_PAYLOADS, UNKNOWN_TYPES};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "dir",
        help: "Directory of snapshots and the AOF",
        detail: "Relative paths of other parameters begin here",
        default: "./",
        kind: Kind::Directory,
        is_essential: true,
        changes: Changes::Protected,
        ..Parameter::text(|config| &config.dir)
    },
    Parameter {
        name: "dbfilename",
        help: "Name of the snapshot file in `dir`",
        default: "dump.rdb",
        kind: Kind::FileName { parameter: "dbfilename", noun: "filename", may_be_empty: true },
        changes: Changes::Protected,
        ..Parameter::text(|config| &config.dbfilename)
    },
    Parameter {
        name: "save",
        help: "When to write snapshots: seconds and changes",
        detail: "A snapshot is written after that many seconds if at least that many changes were made; further pairs may follow; empty for never",
        default: "3600 1 300 100 60 10000",
        kind: Kind::SavePoints,
        is_essential: true,
        adds_up: true,
        ..Parameter::text(|config| &config.save)
    },
    Parameter {
        name: "rdbcompression",
        help: "Compress long strings in snapshots",
        default: "yes",
        ..Parameter::flag(|config| &config.rdbcompression)
    },
    Parameter {
        name: "rdbchecksum",
        help: "Write a checksum at the end of snapshots and verify it on load",
        default: "yes",
        changes: Changes::AtStart,
        ..Parameter::flag(|config| &config.rdbchecksum)
    },
    Parameter {
        name: "sanitize-dump-payload",
        help: "What becomes of a damaged value of a file: with yes, it is refused, otherwise loaded as far \
               as it has a meaning; RESTORE always checks",
        default: "no",
        kind: Kind::Choice(SANITIZED_PAYLOADS),
        ..Parameter::choice(|config| &config.sanitize_dump_payload)
    },
    Parameter {
        name: "unknown-types",
        help: "Refuse a snapshot with keys of modules' types, or skip these keys",
        default: "refuse",
        kind: Kind::Choice(UNKNOWN_TYPES),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.unknown_types)
    },
    Parameter {
        name: "key-load-delay",
        help: "Slow loading down, for tests: microseconds of rest after each key",
        default: "0",
        kind: Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 },
        is_hidden: true,
        ..Parameter::integer(|config| &config.key_load_delay)
    },
    Parameter {
        name: "stop-writes-on-bgsave-error",
        help: "Refuse writes after a snapshot has failed",
        default: "yes",
        ..Parameter::flag(|config| &config.stop_writes_on_bgsave_error)
    },
    Parameter {
        name: "appendonly",
        help: "Write every change to an append-only file (AOF)",
        default: "no",
        is_essential: true,
        ..Parameter::flag(|config| &config.appendonly)
    },
    Parameter {
        name: "appendfsync",
        help: "When to flush the AOF to the disk: before replies (always), every second, or when the system does (no)",
        default: "everysec",
        kind: Kind::Choice(APPEND_FSYNC),
        ..Parameter::choice(|config| &config.appendfsync)
    },
    Parameter {
        name: "appenddirname",
        help: "Name of the directory of the AOF in `dir`",
        default: "appendonlydir",
        kind: Kind::FileName { parameter: "appenddirname", noun: "dirname", may_be_empty: false },
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.appenddirname)
    },
    Parameter {
        name: "appendfilename",
        help: "Beginning of the names of the AOF's files",
        default: "appendonly.aof",
        kind: Kind::FileName { parameter: "appendfilename", noun: "filename", may_be_empty: false },
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.appendfilename)
    },
    Parameter {
        name: "auto-aof-rewrite-percentage",
        help: "Growth of the AOF after which it is rewritten; 0 for never",
        default: "100",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "percent",
        ..Parameter::integer(|config| &config.auto_aof_rewrite_percentage)
    },
    Parameter {
        name: "auto-aof-rewrite-min-size",
        help: "Size up to which the AOF is not rewritten automatically",
        default: "64mb",
        kind: Kind::Bytes { min: 0, max: i64::MAX as u64 },
        ..Parameter::integer(|config| &config.auto_aof_rewrite_min_size)
    },
    Parameter {
        name: "aof-load-truncated",
        help: "Start even if the end of the AOF is missing",
        default: "yes",
        ..Parameter::flag(|config| &config.aof_load_truncated)
    },
    Parameter {
        name: "aof-load-corrupt-tail-max-size",
        help: "Start even if the end of the AOF is damaged, if it has fewer bytes than this",
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "bytes",
        ..Parameter::integer(|config| &config.aof_load_corrupt_tail_max_size)
    },
    Parameter {
        name: "aof-use-rdb-preamble",
        help: "Write the base of the AOF as a snapshot (yes) or as commands (no)",
        default: "yes",
        ..Parameter::flag(|config| &config.aof_use_rdb_preamble)
    },
    Parameter {
        name: "aof-timestamp-enabled",
        help: "Note times in the AOF, at which redis-check-aof can cut it off",
        default: "no",
        ..Parameter::flag(|config| &config.aof_timestamp_enabled)
    },
];
