//! Parameters of Redis that can have no effect here. What they are given is checked as redis-server checks
//! it, kept, told by CONFIG GET and written by CONFIG REWRITE, so that tools and test suites that tune a
//! Redis can tune this server; nothing acts on it.

use super::super::{Changes, Kind, Parameter, Place};
use super::Family;
use super::words::{
    DISKLESS_LOADS, ENABLED_FOR, ENDPOINT_TYPES, PROPAGATION_ERRORS, SANITIZED_PAYLOADS, SYSLOG_FACILITIES,
};

/// The parameters by the reason why nothing acts on them.
pub static FAMILIES: &[Family] = &[
    Family { title: "there are no replicas", parameters: REPLICATION },
    Family { title: "there is no cluster", parameters: CLUSTER },
    Family { title: "there are no values of these types yet", parameters: ENCODINGS },
    Family { title: "values are freed and memory is laid out without them", parameters: FREEING },
    Family { title: "files are written another way", parameters: FILES },
    Family { title: "TLS is that of rustls with its own choices", parameters: TLS },
    Family { title: "the process does without", parameters: PROCESS },
];

const INT: Kind = Kind::Integer { min: 0, max: i32::MAX as i64 };
const INT_ABOVE_ZERO: Kind = Kind::Integer { min: 1, max: i32::MAX as i64 };
const ANY_INT: Kind = Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 };
const LONG: Kind = Kind::Integer { min: 0, max: i64::MAX };
const PORT: Kind = Kind::Integer { min: 0, max: 65_535 };

const fn kept(name: &'static str, default: &'static str, kind: Kind) -> Parameter {
    Parameter { name, default, kind, place: Place::Kept, ..Parameter::DEFAULTS }
}

impl Parameter {
    const fn or(self, alias: &'static str) -> Parameter {
        Parameter { alias: Some(alias), ..self }
    }

    const fn at_start(self) -> Parameter {
        Parameter { changes: Changes::AtStart, ..self }
    }

    const fn never(self) -> Parameter {
        Parameter { changes: Changes::Never, ..self }
    }

    const fn secret(self) -> Parameter {
        Parameter { is_secret: true, ..self }
    }

    const fn hidden(self) -> Parameter {
        Parameter { is_hidden: true, ..self }
    }
}

const REPLICATION: &[Parameter] = &[
    kept("masterauth", "", Kind::Text).secret(),
    kept("masteruser", "", Kind::Text).secret(),
    kept("min-replicas-max-lag", "10", INT).or("min-slaves-max-lag"),
    kept("min-replicas-to-write", "0", INT).or("min-slaves-to-write"),
    kept("propagation-error-behavior", "ignore", Kind::Choice(PROPAGATION_ERRORS)),
    kept("rdb-del-sync-files", "no", Kind::Flag),
    kept("repl-backlog-size", "1mb", Kind::Backlog),
    kept("repl-backlog-ttl", "3600", LONG),
    kept("repl-disable-tcp-nodelay", "no", Kind::Flag),
    kept("repl-diskless-load", "disabled", Kind::Choice(DISKLESS_LOADS)),
    kept("repl-diskless-sync", "yes", Kind::Flag),
    kept("repl-diskless-sync-delay", "5", INT),
    kept("repl-diskless-sync-max-replicas", "0", INT),
    kept("repl-ping-replica-period", "10", INT_ABOVE_ZERO).or("repl-ping-slave-period"),
    kept("repl-timeout", "60", INT_ABOVE_ZERO),
    kept("replica-announce-ip", "", Kind::Text).or("slave-announce-ip"),
    kept("replica-announce-port", "0", PORT).or("slave-announce-port"),
    kept("replica-announced", "yes", Kind::Flag),
    kept("replica-ignore-disk-write-errors", "no", Kind::Flag),
    kept("replica-ignore-maxmemory", "yes", Kind::Flag).or("slave-ignore-maxmemory"),
    kept("replica-lazy-flush", "no", Kind::Flag).or("slave-lazy-flush"),
    kept("replica-priority", "100", INT).or("slave-priority"),
    kept("replica-read-only", "yes", Kind::Flag).or("slave-read-only"),
    kept("replica-serve-stale-data", "yes", Kind::Flag).or("slave-serve-stale-data"),
    kept("replicaof", "", Kind::Text).or("slaveof").never(),
    kept("bind-source-addr", "", Kind::Text),
];

const CLUSTER: &[Parameter] = &[
    kept("cluster-allow-pubsubshard-when-down", "yes", Kind::Flag),
    kept("cluster-allow-reads-when-down", "no", Kind::Flag),
    kept("cluster-allow-replica-migration", "yes", Kind::Flag),
    kept("cluster-announce-bus-port", "0", PORT),
    kept("cluster-announce-hostname", "", Kind::Hostname),
    kept("cluster-announce-ip", "", Kind::Text),
    kept("cluster-announce-port", "0", PORT),
    kept("cluster-announce-tls-port", "0", PORT),
    kept("cluster-config-file", "nodes.conf", Kind::Text).at_start(),
    kept("cluster-enabled", "no", Kind::Flag).never(),
    kept("cluster-link-sendbuf-limit", "0", Kind::Bytes { min: 0, max: u64::MAX }),
    kept("cluster-migration-barrier", "1", INT),
    kept("cluster-node-timeout", "15000", LONG),
    kept("cluster-port", "0", PORT).at_start(),
    kept("cluster-preferred-endpoint-type", "ip", Kind::Choice(ENDPOINT_TYPES)),
    kept("cluster-replica-no-failover", "no", Kind::Flag).or("cluster-slave-no-failover"),
    kept("cluster-replica-validity-factor", "10", INT).or("cluster-slave-validity-factor"),
    kept("cluster-require-full-coverage", "yes", Kind::Flag),
];

const ENCODINGS: &[Parameter] = &[kept("list-compress-depth", "0", INT)];

/// What Redis answers where it was built without its own allocator.
const NO_DEFRAGMENTATION: &str = "Active defragmentation cannot be enabled: it requires a Redis server \
    compiled with a modified Jemalloc like the one shipped by default with the Redis source distribution";

const FREEING: &[Parameter] = &[
    kept("active-defrag-cycle-max", "25", Kind::Integer { min: 1, max: 99 }),
    kept("active-defrag-cycle-min", "1", Kind::Integer { min: 1, max: 99 }),
    kept("active-defrag-ignore-bytes", "100mb", Kind::Bytes { min: 1, max: i64::MAX as u64 }),
    kept("active-defrag-max-scan-fields", "1000", Kind::Integer { min: 1, max: i64::MAX }),
    kept("active-defrag-threshold-lower", "10", Kind::Integer { min: 0, max: 1000 }),
    kept("active-defrag-threshold-upper", "100", Kind::Integer { min: 0, max: 1000 }),
    kept("activedefrag", "no", Kind::Never(NO_DEFRAGMENTATION)),
    kept("activerehashing", "yes", Kind::Flag),
    kept("jemalloc-bg-thread", "yes", Kind::Flag),
    kept("lazyfree-lazy-eviction", "no", Kind::Flag),
    kept("lazyfree-lazy-expire", "no", Kind::Flag),
    kept("lazyfree-lazy-server-del", "no", Kind::Flag),
    kept("lazyfree-lazy-user-del", "no", Kind::Flag),
    kept("lazyfree-lazy-user-flush", "no", Kind::Flag),
    kept("maxmemory-eviction-tenacity", "10", Kind::Integer { min: 0, max: 100 }),
];

const FILES: &[Parameter] = &[
    kept("aof-disable-auto-gc", "no", Kind::Flag),
    kept("aof-rewrite-incremental-fsync", "yes", Kind::Flag),
    kept("aof-timestamp-enabled", "no", Kind::Flag),
    kept(
        "loading-process-events-interval-bytes",
        "2097152",
        Kind::Integer { min: 1024, max: i32::MAX as i64 },
    )
    .hidden(),
    kept("no-appendfsync-on-rewrite", "no", Kind::Flag),
    kept("rdb-key-save-delay", "0", ANY_INT).hidden(),
    kept("rdb-save-incremental-fsync", "yes", Kind::Flag),
    kept("sanitize-dump-payload", "no", Kind::Choice(SANITIZED_PAYLOADS)),
];

const TLS: &[Parameter] = &[
    kept("tls-ca-cert-dir", "", Kind::Text),
    kept("tls-ciphers", "", Kind::Text),
    kept("tls-ciphersuites", "", Kind::Text),
    kept("tls-client-cert-file", "", Kind::Text),
    kept("tls-client-key-file", "", Kind::Text),
    kept("tls-client-key-file-pass", "", Kind::Text).secret(),
    kept("tls-cluster", "no", Kind::Flag),
    kept("tls-dh-params-file", "", Kind::Text),
    kept("tls-key-file-pass", "", Kind::Text).secret(),
    kept("tls-prefer-server-ciphers", "no", Kind::Flag),
    kept("tls-protocols", "", Kind::Text),
    kept("tls-replication", "no", Kind::Flag),
    kept("tls-session-cache-size", "20480", INT),
    kept("tls-session-cache-timeout", "300", INT),
    kept("tls-session-caching", "yes", Kind::Flag),
];

const PROCESS: &[Parameter] = &[
    kept("always-show-logo", "no", Kind::Flag).at_start(),
    kept("aof_rewrite_cpulist", "", Kind::Text).at_start(),
    kept("bgsave_cpulist", "", Kind::Text).at_start(),
    kept("bio_cpulist", "", Kind::Text).at_start(),
    kept("crash-log-enabled", "yes", Kind::Flag),
    kept("crash-memcheck-enabled", "yes", Kind::Flag),
    kept("disable-thp", "yes", Kind::Flag).at_start(),
    kept("dynamic-hz", "yes", Kind::Flag),
    kept("enable-module-command", "no", Kind::Choice(ENABLED_FOR)).at_start(),
    kept("ignore-warnings", "", Kind::Text),
    kept("io-threads-do-reads", "no", Kind::Flag).at_start(),
    kept("proc-title-template", "{title} {listen-addr} {server-mode}", Kind::Title),
    kept("server_cpulist", "", Kind::Text).at_start(),
    kept("set-proc-title", "yes", Kind::Flag).at_start(),
    kept("socket-mark-id", "0", Kind::Integer { min: 0, max: u32::MAX as i64 }).at_start(),
    kept("syslog-enabled", "no", Kind::Flag).at_start(),
    kept("syslog-facility", "local0", Kind::Choice(SYSLOG_FACILITIES)).at_start(),
    kept("syslog-ident", "redis", Kind::Text).at_start(),
    kept("use-exit-on-panic", "no", Kind::Flag).hidden(),
    kept("watchdog-period", "0", INT).hidden(),
];
