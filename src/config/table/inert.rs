//! Parameters of Redis that have no effect here. Their values are checked as redis-server checks them,
//! stored, returned by CONFIG GET and written by CONFIG REWRITE, so that tools and test suites that tune a
//! Redis can tune this server.

use super::super::{Changes, Kind, Parameter};
use super::Family;
use super::words::{
    CERTIFICATE_FIELDS, DISKLESS_LOADS, ENABLED_FOR, ENDPOINT_TYPES, PROPAGATION_ERRORS, SLOT_STATISTICS,
    SYSLOG_FACILITIES,
};

/// The parameters by the reason why they have no effect.
pub static FAMILIES: &[Family] = &[
    Family { title: "Keyfast has no replicas", parameters: REPLICATION },
    Family { title: "Keyfast has no cluster mode", parameters: CLUSTER },
    Family { title: "lists are not compressed", parameters: COMPRESSION },
    Family { title: "memory is allocated and freed in another way", parameters: FREEING },
    Family { title: "files are written in another way", parameters: FILES },
    Family { title: "Keyfast has no such settings of TLS", parameters: TLS },
    Family { title: "the process does not need it", parameters: PROCESS },
];

const INT: Kind = Kind::Integer { min: 0, max: i32::MAX as i64 };
const INT_ABOVE_ZERO: Kind = Kind::Integer { min: 1, max: i32::MAX as i64 };
const ANY_INT: Kind = Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64 };
const LONG: Kind = Kind::Integer { min: 0, max: i64::MAX };
const PORT: Kind = Kind::Integer { min: 0, max: 65_535 };

const fn inert(name: &'static str, default: &'static str, kind: Kind) -> Parameter {
    Parameter { name, default, kind, ..Parameter::DEFAULTS }
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

    const fn unlike(self, difference: &'static str) -> Parameter {
        Parameter { difference, ..self }
    }

    const fn hidden(self) -> Parameter {
        Parameter { is_hidden: true, ..self }
    }
}

/// How a text differs from that of Redis.
const UNCHECKED: &str = "Keyfast takes any text";

const REPLICATION: &[Parameter] = &[
    inert("masterauth", "", Kind::Text).secret(),
    inert("masteruser", "", Kind::Text).secret(),
    inert("min-replicas-max-lag", "10", INT).or("min-slaves-max-lag"),
    inert("min-replicas-to-write", "0", INT).or("min-slaves-to-write"),
    inert("propagation-error-behavior", "ignore", Kind::Choice(PROPAGATION_ERRORS)),
    inert("rdb-del-sync-files", "no", Kind::Flag),
    inert("repl-backlog-size", "1mb", Kind::Backlog),
    inert("repl-backlog-ttl", "3600", LONG),
    inert("repl-disable-tcp-nodelay", "no", Kind::Flag),
    inert("repl-diskless-load", "disabled", Kind::Choice(DISKLESS_LOADS)),
    inert("repl-diskless-sync", "yes", Kind::Flag),
    inert("repl-diskless-sync-delay", "5", INT),
    inert("repl-diskless-sync-max-replicas", "0", INT),
    inert("repl-ping-replica-period", "10", INT_ABOVE_ZERO).or("repl-ping-slave-period"),
    inert("repl-timeout", "60", INT_ABOVE_ZERO),
    inert("replica-full-sync-buffer-limit", "0", Kind::Bytes { min: 0, max: i64::MAX as u64 }),
    inert("replica-announce-ip", "", Kind::Text).or("slave-announce-ip"),
    inert("replica-announce-port", "0", PORT).or("slave-announce-port"),
    inert("replica-announced", "yes", Kind::Flag),
    inert("replica-ignore-disk-write-errors", "no", Kind::Flag),
    inert("replica-ignore-maxmemory", "yes", Kind::Flag).or("slave-ignore-maxmemory"),
    inert("replica-lazy-flush", "no", Kind::Flag).or("slave-lazy-flush"),
    inert("replica-priority", "100", INT).or("slave-priority"),
    inert("replica-read-only", "yes", Kind::Flag).or("slave-read-only"),
    inert("replica-serve-stale-data", "yes", Kind::Flag).or("slave-serve-stale-data"),
    inert("replicaof", "", Kind::Text).or("slaveof").never(),
    inert("bind-source-addr", "", Kind::Text),
];

const CLUSTER: &[Parameter] = &[
    inert("cluster-allow-pubsubshard-when-down", "yes", Kind::Flag),
    inert("cluster-allow-reads-when-down", "no", Kind::Flag),
    inert("cluster-allow-replica-migration", "yes", Kind::Flag),
    inert("cluster-announce-bus-port", "0", PORT),
    inert("cluster-announce-hostname", "", Kind::Hostname),
    inert("cluster-announce-human-nodename", "", Kind::Text).unlike(UNCHECKED),
    inert("cluster-announce-ip", "", Kind::Text).unlike(UNCHECKED),
    inert("cluster-announce-port", "0", PORT),
    inert("cluster-announce-tls-port", "0", PORT),
    inert("cluster-compatibility-sample-ratio", "0", Kind::Integer { min: 0, max: 100 }),
    inert("cluster-config-file", "nodes.conf", Kind::Path).at_start(),
    inert("cluster-enabled", "no", Kind::Flag).never(),
    inert("cluster-link-sendbuf-limit", "0", Kind::Bytes { min: 0, max: u64::MAX }),
    inert("cluster-migration-barrier", "1", INT),
    inert("cluster-node-timeout", "15000", LONG),
    inert("cluster-port", "0", PORT).at_start(),
    inert("cluster-preferred-endpoint-type", "ip", Kind::Choice(ENDPOINT_TYPES)),
    inert("cluster-replica-no-failover", "no", Kind::Flag).or("cluster-slave-no-failover"),
    inert("cluster-replica-validity-factor", "10", INT).or("cluster-slave-validity-factor"),
    inert("cluster-require-full-coverage", "yes", Kind::Flag),
    inert(
        "cluster-slot-migration-handoff-max-lag-bytes",
        "1mb",
        Kind::Bytes { min: 0, max: i64::MAX as u64 },
    ),
    inert("cluster-slot-migration-write-pause-timeout", "10000", LONG),
    inert("cluster-slot-stats-enabled", "no", Kind::WordsOrAll(SLOT_STATISTICS)),
];

const COMPRESSION: &[Parameter] = &[inert("list-compress-depth", "0", INT)];

const FREEING: &[Parameter] = &[
    inert("active-defrag-cycle-max", "25", Kind::Integer { min: 1, max: 99 }),
    inert("active-defrag-cycle-min", "1", Kind::Integer { min: 1, max: 99 }),
    inert("active-defrag-ignore-bytes", "100mb", Kind::Bytes { min: 1, max: i64::MAX as u64 }),
    inert("active-defrag-max-scan-fields", "1000", Kind::Integer { min: 1, max: i64::MAX }),
    inert("active-defrag-threshold-lower", "10", Kind::Integer { min: 0, max: 1000 }),
    inert("active-defrag-threshold-upper", "100", Kind::Integer { min: 0, max: 1000 }),
    inert("activedefrag", "no", Kind::Flag),
    inert("activerehashing", "yes", Kind::Flag),
    inert("jemalloc-bg-thread", "yes", Kind::Flag),
    inert("lazyfree-lazy-eviction", "no", Kind::Flag),
    inert("lazyfree-lazy-expire", "no", Kind::Flag),
    inert("lazyfree-lazy-server-del", "no", Kind::Flag),
    inert("lazyfree-lazy-user-del", "no", Kind::Flag),
    inert("lazyfree-lazy-user-flush", "no", Kind::Flag),
    inert("maxmemory-eviction-tenacity", "10", Kind::Integer { min: 0, max: 100 }),
];

const FILES: &[Parameter] = &[
    inert("aof-disable-auto-gc", "no", Kind::Flag).hidden(),
    inert("aof-rewrite-incremental-fsync", "yes", Kind::Flag),
    inert(
        "loading-process-events-interval-bytes",
        "524288",
        Kind::Integer { min: 1024, max: i32::MAX as i64 },
    )
    .hidden(),
    inert("no-appendfsync-on-rewrite", "no", Kind::Flag),
    inert("rdb-key-save-delay", "0", ANY_INT).hidden(),
    inert("rdb-save-incremental-fsync", "yes", Kind::Flag),
];

/// A server that started anyway would serve these clients as the default user.
const NO_USERS_BY_CERTIFICATES: &str = "Keyfast does not choose a client's user by its certificate";

const TLS: &[Parameter] = &[
    inert(
        "tls-auth-clients-user",
        "off",
        Kind::Only { words: CERTIFICATE_FIELDS, accepted: 1, obstacle: NO_USERS_BY_CERTIFICATES },
    ),
    inert("tls-client-cert-file", "", Kind::Path),
    inert("tls-client-key-file", "", Kind::Path),
    inert("tls-client-key-file-pass", "", Kind::Text).secret(),
    inert("tls-cluster", "no", Kind::Flag),
    inert("tls-dh-params-file", "", Kind::Path),
    inert("tls-key-file-pass", "", Kind::Text).secret(),
    inert("tls-replication", "no", Kind::Flag),
    inert("tls-session-cache-size", "20480", INT),
    inert("tls-session-cache-timeout", "300", INT),
    inert("tls-session-caching", "yes", Kind::Flag),
];

const PROCESS: &[Parameter] = &[
    inert("always-show-logo", "no", Kind::Flag).at_start(),
    inert("aof-rewrite-cpulist", "", Kind::Text).or("aof_rewrite_cpulist").at_start(),
    inert("bgsave-cpulist", "", Kind::Text).or("bgsave_cpulist").at_start(),
    inert("bio-cpulist", "", Kind::Text).or("bio_cpulist").at_start(),
    inert("crash-log-enabled", "yes", Kind::Flag),
    inert("crash-memcheck-enabled", "yes", Kind::Flag),
    inert("disable-thp", "yes", Kind::Flag).at_start(),
    inert("dynamic-hz", "yes", Kind::Flag),
    inert("enable-module-command", "no", Kind::Choice(ENABLED_FOR)).at_start(),
    inert("hide-user-data-from-log", "no", Kind::Flag),
    inert("ignore-warnings", "", Kind::Text),
    inert("locale-collate", "", Kind::Locale),
    inert("lookahead", "16", INT_ABOVE_ZERO),
    inert("max-new-connections-per-cycle", "10", Kind::Integer { min: 1, max: 1000 }),
    inert("max-new-tls-connections-per-cycle", "1", Kind::Integer { min: 1, max: 1000 }),
    inert("server-cpulist", "", Kind::Text).or("server_cpulist").at_start(),
    inert("socket-mark-id", "0", Kind::Integer { min: 0, max: u32::MAX as i64 }).at_start(),
    inert("syslog-enabled", "no", Kind::Flag).at_start(),
    inert("syslog-facility", "local0", Kind::Choice(SYSLOG_FACILITIES)).at_start(),
    inert("syslog-ident", "redis", Kind::Text).at_start(),
    inert("use-exit-on-panic", "no", Kind::Flag).hidden(),
    inert("vset-force-single-threaded-execution", "no", Kind::Flag),
    inert("watchdog-period", "0", INT).hidden(),
];
