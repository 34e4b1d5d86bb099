//! Who may connect, and what they may do.

use super::super::{Changes, Kind, Origin, Owner, Parameter};
use super::words::{CLOUDS, ENABLED_FOR, PUBSUB_DEFAULTS, TOKENS_FROM};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "protected-mode",
        help: "Refuse clients from other machines while no password is set",
        default: "yes",
        ..Parameter::flag(|config| &config.protected_mode)
    },
    Parameter {
        name: "requirepass",
        help: "Password of the user `default`; empty for none",
        is_essential: true,
        is_secret: true,
        ..Parameter::text(|config| &config.requirepass)
    },
    Parameter {
        name: "aclfile",
        help: "File of the ACL users, one per line as ACL LIST prints them; empty for none",
        kind: Kind::Path,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.aclfile)
    },
    Parameter {
        name: "acllog-max-len",
        help: "Maximum number of refusals that ACL LOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        unit: "entries",
        owner: Owner::Sandbox,
        ..Parameter::integer(|config| &config.acllog_max_len)
    },
    Parameter {
        name: "acl-pubsub-default",
        help: "Pub/Sub channels that new users may use: all or none",
        default: "resetchannels",
        kind: Kind::Choice(PUBSUB_DEFAULTS),
        ..Parameter::choice(|config| &config.acl_pubsub_default)
    },
    Parameter {
        name: "enable-protected-configs",
        help: "Which clients may change `dir` and `dbfilename`: none, all or local ones",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.enable_protected_configs)
    },
    Parameter {
        name: "enable-debug-command",
        help: "Which clients may use DEBUG: none, all or local ones",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.enable_debug_command)
    },
    Parameter {
        name: "auth-iam",
        help: "Managed services whose tokens stand for passwords, unsigned: none, or some of aws, azure, gcp",
        detail: "For tests of applications: no cloud is asked, and no signature checked",
        default: "none",
        kind: Kind::Words(CLOUDS),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        adds_up: true,
        ..Parameter::integer(|config| &config.auth_iam)
    },
    Parameter {
        name: "auth-iam-cache",
        help: "Name of the cache for which tokens of aws must be; empty for any",
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.auth_iam_cache)
    },
    Parameter {
        name: "auth-iam-clients",
        help: "Which clients may authenticate by tokens of auth-iam: local ones, or all",
        default: "local",
        kind: Kind::Choice(TOKENS_FROM),
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::choice(|config| &config.auth_iam_clients)
    },
    Parameter {
        name: "local-addresses",
        help: "IP addresses that count as local, besides loopback, where a parameter says `local`",
        kind: Kind::IpAddresses,
        origin: Origin::Keyfast,
        changes: Changes::AtStart,
        ..Parameter::text(|config| &config.local_addresses)
    },
];
