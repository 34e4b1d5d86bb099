//! Encrypted connections, and the certificates of both sides.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::TLS_AUTH_CLIENTS;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "tls-port",
        help: "Port to listen on for TLS; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.tls_port)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-cert-file",
        help: "Certificate of the server (PEM)",
        default: "",
        kind: Kind::Path,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-key-file",
        help: "Private key of the server's certificate (PEM)",
        default: "",
        kind: Kind::Path,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_key_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-ca-cert-file",
        help: "CA certificates (PEM) that must have signed the client's certificate",
        default: "",
        kind: Kind::Path,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_ca_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-auth-clients",
        help: "Certificates of clients: required (yes), optional, or not asked for (no)",
        difference: "Keyfast reads certificates only at start",
        default: "yes",
        kind: Kind::Choice(TLS_AUTH_CLIENTS),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.tls_auth_clients)),
        ..Parameter::DEFAULTS
    },
];
