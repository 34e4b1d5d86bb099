//! Keys that live in a store outside of the server.

use super::super::{Changes, Field, Kind, Parameter, Place};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "store",
        help: "URL of a store that several servers share, postgres://user@host/db or etcd://host,host; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        is_secret: true,
        place: Place::Field(|config| Field::Text(&config.store)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-keys",
        help: "Patterns of the keys that live in the store; all others live in memory",
        default: "*",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_keys)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-name",
        help: "Name of this server among those that use the store; empty for the machine's",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_name)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-timeout",
        help: "Milliseconds that a request waits for the store at most",
        default: "5000",
        kind: Kind::Integer { min: 10, max: 3_600_000 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.store_timeout)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-value-max-bytes",
        help: "Bytes of a value in the store at most",
        default: "1mb",
        kind: Kind::Bytes { min: 64, max: 512 << 20 },
        place: Place::Field(|config| Field::Integer(&config.store_value_max_bytes)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-batch-max",
        help: "Requests that travel to the store together at most",
        default: "512",
        kind: Kind::Integer { min: 1, max: 10_000 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.store_batch_max)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-ca-cert-file",
        help: "File with the certificate authorities of the store, in PEM; empty for those of the system",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_ca_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-cert-file",
        help: "File with the certificate that the store asks this server for, in PEM; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "store-tls-key-file",
        help: "File with the key of that certificate, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.store_tls_key_file)),
        ..Parameter::DEFAULTS
    },
];
