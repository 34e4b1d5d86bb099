//! The lens on locks, and keys that live in a store outside of the server.

use super::super::{Changes, Field, Kind, Origin, Parameter, Place};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "lock-lens",
        help: "Track who holds each lock, and report misuse (LOCKS)",
        default: "yes",
        kind: Kind::Flag,
        origin: Origin::Keyfast,
        place: Place::Field(|config| Field::Flag(&config.lock_lens)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "lock-lens-ignore",
        help: "Patterns of keys that the lens does not follow, with blanks between them",
        detail: "For keys that one process makes and another deletes, as frameworks do for unique jobs",
        default: "",
        kind: Kind::Text,
        origin: Origin::Keyfast,
        place: Place::Field(|config| Field::Text(&config.lock_lens_ignore)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store",
        help: "Store that servers share: a postgres:// or etcd:// URL",
        detail: "For example postgres://user@host/db or etcd://host,host; empty for none",
        default: "",
        kind: Kind::Text,
        origin: Origin::Keyfast,
        is_essential: true,
        changes: Changes::AtStart,
        is_secret: true,
        place: Place::Field(|config| Field::Text(&config.store)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-password-file",
        help: "File with the password for the store, if it is not in the URL",
        default: "",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_password_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-keys",
        help: "Patterns of the keys that live in the store, with blanks between them; other keys live in memory",
        default: "*",
        kind: Kind::Text,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_keys)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-name",
        help: "Name of this server among those that share the store; empty for host name and port",
        default: "",
        kind: Kind::Text,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_name)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-timeout",
        help: "Maximum time that a request waits for the store",
        default: "5000",
        kind: Kind::Integer { min: 10, max: 3_600_000 },
        unit: "milliseconds",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.store_timeout)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-value-max-bytes",
        help: "Maximum size of a value in the store",
        default: "1mb",
        kind: Kind::Bytes { min: 64, max: 512 << 20 },
        origin: Origin::Keyfast,
        place: Place::Field(|config| Field::Integer(&config.store_value_max_bytes)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-batch-max",
        help: "Maximum number of requests sent to the store together",
        default: "512",
        kind: Kind::Integer { min: 1, max: 10_000 },
        unit: "requests",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.store_batch_max)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-clock-jump-max",
        help: "How far ahead the clock of PostgreSQL may jump, at a failover or later",
        default: "1000",
        kind: Kind::Integer { min: 10, max: 86_400_000 },
        unit: "milliseconds",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.store_clock_jump_max)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-clock-jump",
        help: "What to do if it jumps further: keep the time as it was, or refuse the store until its clock is right",
        default: "correct",
        kind: Kind::Choice(&["correct", "refuse"]),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.store_clock_jump)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-ca-cert-file",
        help: "CA certificates (PEM) that must have signed the store's certificate; empty for those of the system",
        default: "",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_ca_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-cert-file",
        help: "Certificate (PEM) that this server shows to the store; empty for none",
        default: "",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-key-file",
        help: "Private key (PEM) of `store-tls-cert-file`",
        default: "",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_key_file)),
        ..Parameter::DEFAULTS
    },
];
