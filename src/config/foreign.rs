//! Directives of configuration files that have a meaning in Redis or Valkey, but none here: what they tune
//! is not there (replicas, clusters, encodings of other types), or needs no tuning.
//!
//! A file that has them is read all the same, and they are named in one warning; what they are given is not
//! looked at. A name that is neither here nor in the table of parameters is a mistake. Where a name is in
//! both, the table counts.

/// Those that take one value: all of Redis 7.0 and Valkey 8, and what they still read of older versions.
const ONE_VALUE: &str = "
    active-defrag-cycle-max active-defrag-cycle-min active-defrag-cycle-us active-defrag-ignore-bytes
    active-defrag-max-scan-fields active-defrag-threshold-lower active-defrag-threshold-upper
    active-expire-effort activedefrag activerehashing always-show-logo aof-disable-auto-gc
    aof-rewrite-cpulist aof-rewrite-incremental-fsync aof-timestamp-enabled aof_rewrite_cpulist
    availability-zone bgsave-cpulist bgsave_cpulist bind-source-addr bio-cpulist bio_cpulist
    cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down cluster-allow-replica-migration
    cluster-announce-bus-port cluster-announce-client-ipv4 cluster-announce-client-ipv6
    cluster-announce-client-port cluster-announce-client-tls-port cluster-announce-hostname
    cluster-announce-human-nodename cluster-announce-ip cluster-announce-port cluster-announce-tls-port
    cluster-blacklist-ttl cluster-config-file cluster-databases cluster-enabled cluster-link-sendbuf-limit
    cluster-manual-failover-timeout cluster-migration-barrier cluster-node-timeout cluster-ping-interval
    cluster-port cluster-preferred-endpoint-type cluster-replica-no-failover
    cluster-replica-validity-factor cluster-require-full-coverage cluster-slave-no-failover
    cluster-slave-validity-factor cluster-slot-migration-log-max-len cluster-slot-stats-enabled
    commandlog-execution-slower-than commandlog-large-reply-max-len commandlog-large-request-max-len
    commandlog-reply-larger-than commandlog-request-larger-than commandlog-slow-execution-max-len
    crash-log-enabled crash-memcheck-enabled debug-assert-enabled disable-thp
    dual-channel-replication-enabled dynamic-hz enable-debug-assert enable-module-command
    events-per-io-thread extended-redis-compatibility hash-max-listpack-entries hash-max-listpack-value
    hash-max-ziplist-entries hash-max-ziplist-value hash-seed hide-user-data-from-log hll-sparse-max-bytes
    hz ignore-warnings import-mode io-threads-always-active io-threads-do-reads jemalloc-bg-thread
    key-load-delay latency-tracking lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del
    lazyfree-lazy-user-del lazyfree-lazy-user-flush list-compress-depth list-max-listpack-size
    list-max-ziplist-entries list-max-ziplist-size list-max-ziplist-value
    loading-process-events-interval-bytes locale-collate log-timestamp-format lookahead
    lua-enable-deprecated-api lua-enable-insecure-api lua-replicate-commands masterauth masteruser
    max-new-connections-per-cycle max-new-tls-connections-per-cycle maxmemory-clients
    maxmemory-eviction-tenacity min-io-threads-avoid-copy-reply min-io-threads-value-prefetch-off
    min-replicas-max-lag min-replicas-to-write min-slaves-max-lag min-slaves-to-write
    min-string-size-avoid-copy-reply mptcp no-appendfsync-on-rewrite oom-score-adj prefetch-batch-max-size
    primaryauth primaryuser proc-title-template propagation-error-behavior rdb-del-sync-files
    rdb-key-save-delay rdb-save-incremental-fsync rdb-version-check rdma-completion-vector rdma-port
    rdma-rx-size repl-backlog-size repl-backlog-ttl repl-disable-tcp-nodelay repl-diskless-load
    repl-diskless-sync repl-diskless-sync-delay repl-diskless-sync-max-replicas repl-ping-replica-period
    repl-ping-slave-period repl-timeout replica-announce-ip replica-announce-port replica-announced
    replica-full-sync-buffer-limit replica-ignore-disk-write-errors replica-ignore-maxmemory
    replica-lazy-flush replica-priority replica-read-only replica-serve-stale-data sanitize-dump-payload
    server-cpulist server_cpulist set-disable-deny-scripts set-max-intset-entries set-max-listpack-entries
    set-max-listpack-value set-proc-title shutdown-timeout slave-announce-ip slave-announce-port
    slave-ignore-maxmemory slave-lazy-flush slave-priority slave-read-only slave-serve-stale-data
    socket-mark-id stream-node-max-bytes stream-node-max-entries syslog-enabled syslog-facility
    syslog-ident tls-auth-clients-user tls-ca-cert-dir tls-ciphers tls-ciphersuites tls-client-cert-file
    tls-client-key-file tls-client-key-file-pass tls-cluster tls-dh-params-file tls-key-file-pass
    tls-prefer-server-ciphers tls-protocols tls-replication tls-session-cache-size
    tls-session-cache-timeout tls-session-caching unixsocketgroup use-exit-on-panic watchdog-period
    zset-max-listpack-entries zset-max-listpack-value zset-max-ziplist-entries zset-max-ziplist-value
";

/// Those that take any number.
const SEVERAL_VALUES: &[&str] = &[
    "latency-tracking-info-percentiles",
    "oom-score-adj-values",
    "primaryof",
    "rdma-bind",
    "replicaof",
    "shutdown-on-sigint",
    "shutdown-on-sigterm",
    "slaveof",
];

/// How many values a directive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// One.
    One,
    /// At least one.
    Several,
}

/// What a directive of this name takes, if it is one of these; names are in lower case.
pub fn find(name: &str) -> Option<Values> {
    if SEVERAL_VALUES.contains(&name) {
        return Some(Values::Several);
    }
    ONE_VALUE.split_ascii_whitespace().any(|other| other == name).then_some(Values::One)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_in_lower_case() {
        assert_eq!(find("hz"), Some(Values::One));
        assert_eq!(find("zset-max-ziplist-value"), Some(Values::One));
        assert_eq!(find("slaveof"), Some(Values::Several));
        for name in ["HZ", "h", "", "hz dir", "port"] {
            assert_eq!(find(name), None, "{name}");
        }
    }
}
