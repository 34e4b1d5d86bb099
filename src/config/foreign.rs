//! Directives of configuration files that are no parameters here. Some, of Valkey and of newer versions of
//! Redis, tune features that Keyfast does not have. Some are left over from older versions of Redis. Others
//! would make this another server (a replica, a node of a cluster).
//!
//! A file with these directives is accepted. One warning names those whose value differs from the default in
//! Redis; the others would change nothing in Redis either. A name that is neither here nor in the table of
//! parameters is a mistake.
//!
//! A few ask for what a user relies on and Keyfast does not have, such as replication: these stop the start,
//! unless `ignore-unsupported` is on ([`missing`]).

use super::bytes::parse_bytes;

/// The directives that take one value.
const ONE_VALUE: &str = "
    active-defrag-cycle-us availability-zone cluster-announce-client-ipv4 cluster-announce-client-ipv6
    cluster-announce-client-port cluster-announce-client-tls-port cluster-blacklist-ttl
    cluster-databases cluster-enabled cluster-manual-failover-timeout cluster-ping-interval
    cluster-slot-migration-log-max-len debug-assert-enabled
    dual-channel-replication-enabled enable-debug-assert events-per-io-thread
    extended-redis-compatibility hash-seed import-mode io-threads-always-active io-threads-do-reads
    list-max-ziplist-entries list-max-ziplist-value log-timestamp-format
    lua-enable-deprecated-api lua-enable-insecure-api lua-replicate-commands
    min-io-threads-avoid-copy-reply min-io-threads-value-prefetch-off min-string-size-avoid-copy-reply
    mptcp prefetch-batch-max-size primaryauth primaryuser rdb-version-check rdma-completion-vector
    rdma-port rdma-rx-size set-disable-deny-scripts unixsocketgroup
";

/// The directives that take one or more values.
const SEVERAL_VALUES: &[&str] = &["primaryof", "rdma-bind", "replicaof", "slaveof"];

/// Their defaults in Redis and Valkey, where the default is known and not empty.
const DEFAULTS: &[(&str, &str)] = &[
    ("active-defrag-cycle-us", "500"),
    ("cluster-blacklist-ttl", "60"),
    ("cluster-enabled", "no"),
    ("dual-channel-replication-enabled", "no"),
    ("enable-debug-assert", "no"),
    ("events-per-io-thread", "2"),
    ("extended-redis-compatibility", "no"),
    ("import-mode", "no"),
    ("io-threads-always-active", "no"),
    ("io-threads-do-reads", "no"),
    ("list-max-ziplist-entries", "512"),
    ("list-max-ziplist-value", "64"),
    ("log-timestamp-format", "legacy"),
    ("mptcp", "no"),
    ("prefetch-batch-max-size", "16"),
    ("rdb-version-check", "strict"),
    ("rdma-port", "0"),
    ("replicaof", "no one"),
    ("primaryof", "no one"),
    ("slaveof", "no one"),
];

/// How many values a directive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Exactly one value.
    One,
    /// One or more.
    Several,
}

/// How many values a directive takes, if it is one of these; the name is in lower case.
pub(crate) fn find(name: &str) -> Option<Values> {
    if SEVERAL_VALUES.contains(&name) {
        return Some(Values::Several);
    }
    ONE_VALUE.split_ascii_whitespace().any(|other| other == name).then_some(Values::One)
}

/// The names of all these directives, for suggestions.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ONE_VALUE.split_ascii_whitespace().chain(SEVERAL_VALUES.iter().copied())
}

/// Whether Redis would behave the same without this directive: its value is the default there.
pub(crate) fn is_default(name: &str, value: &[u8]) -> bool {
    let default = DEFAULTS.iter().find(|(other, _)| *other == name).map_or("", |(_, default)| default);
    let is_same_size =
        || parse_bytes(default.as_bytes()).is_some_and(|size| Some(size) == parse_bytes(value));
    default.as_bytes().eq_ignore_ascii_case(value) || is_same_size()
}

/// What a user of this directive would miss here, as the words of a message; none if nothing. A server that
/// started anyway would be empty and alone, and accept writes.
pub(crate) fn missing(name: &str, value: &[u8]) -> Option<&'static str> {
    match name {
        "replicaof" | "slaveof" | "primaryof" if !is_default(name, value) => Some(
            "Keyfast has no replication: it would start as a primary of its own, without the data of the other server",
        ),
        "cluster-enabled" if !is_default(name, value) => Some(
            "Keyfast has no cluster mode: it would start alone, without the slots and the data of the cluster",
        ),
        "loadmodule" => {
            Some("Keyfast loads no modules: the commands and the data types of this one would be missing")
        }
        "sentinel" => Some("Keyfast is not a Sentinel: it would start as a server for data instead"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_is_known_however_it_is_written() {
        for (name, value) in [
            ("list-max-ziplist-entries", "512b"),
            ("mptcp", "NO"),
            ("list-max-ziplist-value", "64"),
            ("primaryauth", ""),
        ] {
            assert!(is_default(name, value.as_bytes()), "{name} {value}");
        }
        for (name, value) in [
            ("list-max-ziplist-entries", "512k"),
            ("mptcp", "yes"),
            ("primaryauth", "x"),
            ("list-max-ziplist-value", "x"),
        ] {
            assert!(!is_default(name, value.as_bytes()), "{name} {value}");
        }
    }

    #[test]
    fn what_a_user_would_miss_is_named() {
        for (name, value) in
            [("replicaof", "a 1"), ("slaveof", "a 1"), ("cluster-enabled", "yes"), ("loadmodule", "x.so")]
        {
            assert!(missing(name, value.as_bytes()).is_some(), "{name} {value}");
        }
        for (name, value) in [("replicaof", "no one"), ("cluster-enabled", "NO"), ("mptcp", "yes")] {
            assert!(missing(name, value.as_bytes()).is_none(), "{name} {value}");
        }
    }

    #[test]
    fn names_are_whole_and_in_lower_case() {
        assert_eq!(find("mptcp"), Some(Values::One));
        assert_eq!(find("list-max-ziplist-value"), Some(Values::One));
        assert_eq!(find("slaveof"), Some(Values::Several));
        for name in ["MPTCP", "m", "", "mptcp lookahead", "port"] {
            assert_eq!(find(name), None, "{name}");
        }
    }
}
