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
        detail: "`CONFIG SET` with the same name reads it anew, for new connections; with `tls-key-file` in the same call if that has changed",
        default: "",
        kind: Kind::Path,
        place: Place::Field(|config| Field::Text(&config.tls_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-key-file",
        help: "Private key of the server's certificate (PEM)",
        default: "",
        kind: Kind::Path,
        place: Place::Field(|config| Field::Text(&config.tls_key_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-ca-cert-file",
        help: "CA certificates (PEM) that must have signed the client's certificate",
        default: "",
        kind: Kind::Path,
        place: Place::Field(|config| Field::Text(&config.tls_ca_cert_file)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-auth-clients",
        help: "Certificates of clients: required (yes), optional, or not asked for (no)",
        default: "yes",
        kind: Kind::Choice(TLS_AUTH_CLIENTS),
        place: Place::Field(|config| Field::Choice(&config.tls_auth_clients)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-protocols",
        help: "Versions of TLS: TLSv1.2, TLSv1.3 or both, which is the default",
        detail: "A list with older versions only is refused",
        default: "",
        kind: Kind::Text,
        place: Place::Field(|config| Field::Text(&config.tls_protocols)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-ciphers",
        help: "Cipher suites of TLS 1.2, as a cipher list of OpenSSL; empty for all",
        detail: "A list that has none of the suites of Keyfast is refused",
        default: "",
        kind: Kind::Text,
        place: Place::Field(|config| Field::Text(&config.tls_ciphers)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-ciphersuites",
        help: "Cipher suites of TLS 1.3, with colons between them; empty for all",
        default: "",
        kind: Kind::Text,
        place: Place::Field(|config| Field::Text(&config.tls_ciphersuites)),
        ..Parameter::DEFAULTS
    },
    Parameter {
        name: "tls-prefer-server-ciphers",
        help: "Choose the cipher suite by the server's order instead of the client's",
        default: "no",
        kind: Kind::Flag,
        place: Place::Field(|config| Field::Flag(&config.tls_prefer_server_ciphers)),
        ..Parameter::DEFAULTS
    },
];
