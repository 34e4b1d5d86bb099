//! Encrypted connections, and the certificates of both sides.

use super::super::{Changes, Kind, Parameter};
use super::words::TLS_AUTH_CLIENTS;

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "tls-port",
        help: "Port to listen on for TLS; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.tls_port)
    },
    Parameter {
        name: "tls-cert-file",
        help: "Certificate of the server (PEM)",
        detail: "`CONFIG SET` with the same name reads it anew, for new connections; with `tls-key-file` in the same call if that has changed",
        kind: Kind::Path,
        ..Parameter::text(|config| &config.tls_cert_file)
    },
    Parameter {
        name: "tls-key-file",
        help: "Private key of the server's certificate (PEM)",
        kind: Kind::Path,
        ..Parameter::text(|config| &config.tls_key_file)
    },
    Parameter {
        name: "tls-ca-cert-file",
        help: "CA certificates (PEM) that must have signed the client's certificate",
        kind: Kind::Path,
        ..Parameter::text(|config| &config.tls_ca_cert_file)
    },
    Parameter {
        name: "tls-ca-cert-dir",
        help: "Directory with CA certificates (PEM), beside those of `tls-ca-cert-file`",
        detail: "All its files with certificates count, whatever their names; `CONFIG SET` with the same name reads them anew",
        kind: Kind::Path,
        ..Parameter::text(|config| &config.tls_ca_cert_dir)
    },
    Parameter {
        name: "tls-auth-clients",
        help: "Certificates of clients: required (yes), optional, or not asked for (no)",
        default: "yes",
        kind: Kind::Choice(TLS_AUTH_CLIENTS),
        ..Parameter::choice(|config| &config.tls_auth_clients)
    },
    Parameter {
        name: "tls-protocols",
        help: "Versions of TLS: TLSv1.2, TLSv1.3 or both, which is the default",
        detail: "A list with older versions only is refused",
        ..Parameter::text(|config| &config.tls_protocols)
    },
    Parameter {
        name: "tls-ciphers",
        help: "Cipher suites of TLS 1.2, by OpenSSL's names with colons between them; empty for all",
        detail: "DEFAULT and HIGH stand for all; a list with another word, or with no suite of Keyfast, is \
                 refused",
        ..Parameter::text(|config| &config.tls_ciphers)
    },
    Parameter {
        name: "tls-ciphersuites",
        help: "Cipher suites of TLS 1.3, with colons between them; empty for all",
        ..Parameter::text(|config| &config.tls_ciphersuites)
    },
    Parameter {
        name: "tls-prefer-server-ciphers",
        help: "Choose the cipher suite by the server's order instead of the client's",
        default: "no",
        ..Parameter::flag(|config| &config.tls_prefer_server_ciphers)
    },
];
