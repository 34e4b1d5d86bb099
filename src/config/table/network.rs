//! Where the server listens.

use super::super::{Changes, Kind, Parameter};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "bind",
        help: "Addresses to listen on",
        detail: "An address after `-` may be missing on this machine",
        default: "* -::*",
        kind: Kind::Addresses,
        is_essential: true,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.bind)
    },
    Parameter {
        name: "port",
        help: "Port to listen on",
        detail: "0 means any free port, or no port if `unixsocket` or `tls-port` is set",
        default: "6379",
        kind: Kind::Integer { min: 0, max: 65_535 },
        is_essential: true,
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.port)
    },
    Parameter {
        name: "unixsocket",
        help: "Path of a Unix socket to listen on; empty for none",
        kind: Kind::Path,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.unixsocket)
    },
    Parameter {
        name: "unixsocketperm",
        help: "Permissions of the Unix socket, in octal; 0 for those of any new file",
        default: "0",
        kind: Kind::Octal { max: 0o777 },
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.unixsocketperm)
    },
    Parameter {
        name: "tcp-backlog",
        help: "Connections that the system may queue before the server accepts them",
        default: "511",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "connections",
        changes: Changes::AtStart,
        ..Parameter::integer(|config| &config.tcp_backlog)
    },
    Parameter {
        name: "tcp-keepalive",
        help: "Interval of the TCP keepalive probes of new connections; 0 for none",
        default: "300",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        unit: "seconds",
        ..Parameter::integer(|config| &config.tcp_keepalive)
    },
];
