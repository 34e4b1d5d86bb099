//! Where the server listens, and to whom.

use super::super::{Changes, Field, Kind, Parameter, Place};
use super::words::TLS_AUTH_CLIENTS;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "bind",
        help: "Addresses to listen on; one after `-` may be missing on this machine",
        default: "* -::*",
        kind: Kind::Addresses,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.bind)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "port",
        help: "Port to listen on; 0 asks for a free one, or for none if there is a Unix socket or TLS",
        default: "6379",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.port)),
        ..Parameter::DEFAULTS
    },
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
        name: "tls-auth-clients",
        help: "Whether clients must have a certificate, may have one, or need none",
        default: "yes",
        kind: Kind::Choice(TLS_AUTH_CLIENTS),
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Choice(&config.tls_auth_clients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-ca-cert-file",
        help: "File with the certificates of those who vouch for clients, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_ca_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-cert-file",
        help: "File with the server's certificate, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-key-file",
        help: "File with the key of the certificate, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.tls_key_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "unixsocket",
        help: "Path of the Unix socket to listen on; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.unixsocket)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "unixsocketperm",
        help: "Permissions of the Unix socket, in octal; 0 for those of any new file",
        default: "0",
        kind: Kind::Octal { max: 0o777 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.unixsocketperm)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "protected-mode",
        help: "Refuse clients from other machines while there is no password",
        default: "yes",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.protected_mode)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tcp-backlog",
        help: "Connections the system holds ready before they are accepted",
        default: "511",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.tcp_backlog)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tcp-keepalive",
        help: "Seconds between keepalive probes of new connections; 0 for none",
        default: "300",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.tcp_keepalive)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "timeout",
        help: "Seconds without a request after which a client is closed; 0 for never",
        default: "0",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        place: Place::Field(|config| Field::Integer(&config.timeout)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "metrics-bind",
        help: "Addresses to serve metrics at, as in bind; whoever reaches them needs no password",
        default: "127.0.0.1 -::1",
        kind: Kind::Addresses,
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Text(&config.metrics_bind)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "metrics-port",
        help: "Port that serves /metrics for Prometheus, and /healthz; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        place: Place::Field(|config| Field::Integer(&config.metrics_port)),
        ..Parameter::DEFAULTS
    },
];
