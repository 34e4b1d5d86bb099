//! The lens on locks, and keys that live in a store outside of the server.

use super::super::{Changes, Kind, Origin, Owner, Parameter};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "lock-lens",
        help: "Track who holds each lock, and report misuse (LOCKS)",
        default: "yes",
        origin: Origin::Keyfast,
        owner: Owner::Sandbox,
        ..Parameter::flag(|config| &config.lock_lens)
    },
    Parameter {
        name: "lock-lens-ignore",
        help: "Patterns of keys that the lens does not follow, with blanks between them",
        detail: "For keys that one process makes and another deletes, as frameworks do for unique jobs",
        origin: Origin::Keyfast,
        owner: Owner::Sandbox,
        ..Parameter::text(|config| &config.lock_lens_ignore)
    },
    Parameter {
        name: "lock-lens-only",
        help: "Patterns of all keys that are locks, with blanks between them; empty if the lens shall find them",
        detail: "The lens follows no other keys, and the log has a line about every misuse of these",
        origin: Origin::Keyfast,
        owner: Owner::Sandbox,
        ..Parameter::text(|config| &config.lock_lens_only)
    },
    Parameter {
        name: "lock-metrics",
        help: "Patterns of locks for which waits, holding times and losses are counted, with blanks between them",
        detail: "A lock counts for the first pattern that matches; see LOCKS PATTERNS, INFO and /metrics",
        // Each one has its histograms, in memory and on the page of metrics.
        kind: Kind::Patterns { max: 64 },
        origin: Origin::Keyfast,
        owner: Owner::Sandbox,
        ..Parameter::text(|config| &config.lock_metrics)
    },
    Parameter {
        name: "store",
        help: "Store that servers share: a postgres:// or etcd:// URL",
        detail: "For example postgres://user@host/db or etcd://host,host; empty for none",
        origin: Origin::Keyfast,
        is_essential: true,
        changes: Changes::AtStart,
        is_secret: true,
        ..Parameter::text(|config| &config.store)
    },
    Parameter {
        name: "store-password-file",
        help: "File with the password for the store, if it is not in the URL",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_password_file)
    },
    Parameter {
        name: "store-keys",
        help: "Patterns of the keys that live in the store, with blanks between them; other keys live in memory",
        default: "*",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_keys)
    },
    Parameter {
        name: "store-name",
        help: "Name of this server among those that share the store; empty for host name and port",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_name)
    },
    Parameter {
        name: "store-timeout",
        help: "Maximum time that a request waits for the store",
        default: "5000",
        kind: Kind::Integer { min: 10, max: 3_600_000 },
        unit: "milliseconds",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.store_timeout)
    },
    Parameter {
        name: "store-value-max-bytes",
        help: "Maximum size of a value in the store",
        default: "1mb",
        kind: Kind::Bytes { min: 64, max: 512 << 20 },
        origin: Origin::Keyfast,
        ..Parameter::integer(|config| &config.store_value_max_bytes)
    },
    Parameter {
        name: "store-batch-max",
        help: "Maximum number of requests sent to the store together",
        default: "512",
        kind: Kind::Integer { min: 1, max: 10_000 },
        unit: "requests",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.store_batch_max)
    },
    Parameter {
        name: "store-clock-jump-max",
        help: "How far ahead the clock of PostgreSQL may jump, at a failover or later",
        default: "1000",
        kind: Kind::Integer { min: 10, max: 86_400_000 },
        unit: "milliseconds",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.store_clock_jump_max)
    },
    Parameter {
        name: "store-clock-jump",
        help: "What to do if it jumps further: keep the time as it was, or refuse the store until its clock is right",
        default: "correct",
        kind: Kind::Choice(&["correct", "refuse"]),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.store_clock_jump)
    },
    Parameter {
        name: "store-tls-ca-cert-file",
        help: "CA certificates (PEM) that must have signed the store's certificate; empty for those of the system",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_tls_ca_cert_file)
    },
    Parameter {
        name: "store-tls-cert-file",
        help: "Certificate (PEM) that this server shows to the store; empty for none",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_tls_cert_file)
    },
    Parameter {
        name: "store-tls-key-file",
        help: "Private key (PEM) of `store-tls-cert-file`",
        kind: Kind::Path,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.store_tls_key_file)
    },
];
