//! What outlives the server: snapshots and the log.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::APPEND_FSYNC;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "dir",
        help: "Directory of the server's files",
        default: "./",
        kind: Kind::Directory,
        changes: Changes::Protected,
        place: Place::Field(|config| Field::Text(&config.dir)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "dbfilename",
        help: "File of snapshots, in `dir`",
        default: "dump.rdb",
        kind: Kind::FileName { parameter: "dbfilename", noun: "filename", may_be_empty: true },
        changes: Changes::Protected,
        place: Place::Field(|config| Field::Text(&config.dbfilename)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "save",
        help: "When snapshots are due: seconds and changes, any number of times; empty for never",
        default: "3600 1 300 100 60 10000",
        kind: Kind::SavePoints,
        place: Place::Field(|config| Field::Text(&config.save)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "rdbcompression",
        help: "Whether long strings in snapshots are compressed",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.rdbcompression)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "rdbchecksum",
        help: "Whether snapshots end with a checksum, and that of one that is loaded is looked at",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Flag(&config.rdbchecksum)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "key-load-delay",
        help: "Slow loading down, for tests: microseconds of rest after each key",
        default: "0",
        kind: Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 },
        is_hidden: true,
        place: Place::Field(|config| Field::Integer(&config.key_load_delay)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "stop-writes-on-bgsave-error",
        help: "Whether commands that write are refused after a snapshot has failed",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.stop_writes_on_bgsave_error)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "appendonly",
        help: "Whether what is done is logged to disk",
        default: "no",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.appendonly)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "appendfsync",
        help: "When the log is on the disk: before any reply, within a second, or whenever",
        default: "everysec",
        kind: Kind::Choice(APPEND_FSYNC),
        place: Place::Field(|config| Field::Choice(&config.appendfsync)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "appenddirname",
        help: "Directory of the log, in `dir`",
        default: "appendonlydir",
        kind: Kind::FileName { parameter: "appenddirname", noun: "dirname", may_be_empty: false },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.appenddirname)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "appendfilename",
        help: "What the names of the log's files begin with",
        default: "appendonly.aof",
        kind: Kind::FileName { parameter: "appendfilename", noun: "filename", may_be_empty: false },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.appendfilename)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "auto-aof-rewrite-percentage",
        help: "By how many percent the log grows before it is rewritten; 0 for never",
        default: "100",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.auto_aof_rewrite_percentage)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "auto-aof-rewrite-min-size",
        help: "Bytes up to which the log is not rewritten by itself",
        default: "64mb",
        kind: Kind::Bytes { min: 0, max: i64::MAX as u64 },
        place: Place::Field(|config| Field::Integer(&config.auto_aof_rewrite_min_size)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "aof-load-truncated",
        help: "Whether to start although the end of the log is missing",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.aof_load_truncated)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "aof-use-rdb-preamble",
        help: "Whether the base of the log is a snapshot; otherwise it is commands",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.aof_use_rdb_preamble)),
        ..Parameter::DEFAULTS
    },
];
