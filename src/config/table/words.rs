//! The words that parameters take.

/// The policies of eviction, in the order in which Redis lists them.
pub(crate) const EVICTION_POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "volatile-lrm",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "allkeys-lrm",
    "noeviction",
];

/// The values of `appendfsync`, in the order in which Redis lists them.
pub(crate) const APPEND_FSYNC: &[&str] = &["everysec", "always", "no"];

/// The values of `acl-pubsub-default`, in the order in which Redis lists them.
pub(crate) const PUBSUB_DEFAULTS: &[&str] = &["allchannels", "resetchannels"];

/// The values of `enable-debug-command` and of the other parameters that turn a command on.
pub(crate) const ENABLED_FOR: &[&str] = &["no", "yes", "local"];

/// The values of `auth-iam`: the first one stands for none of the others.
pub(crate) const CLOUDS: &[&str] = &["none", "aws", "azure", "gcp"];

/// The values of `auth-iam-clients`.
pub(crate) const TOKENS_FROM: &[&str] = &["local", "all"];

/// The values of `tls-auth-clients`.
pub(crate) const TLS_AUTH_CLIENTS: &[&str] = &["no", "yes", "optional"];

/// The values of `log-format`; `legacy` is Valkey's name for `redis`.
pub(crate) const LOG_FORMATS: &[&str] = &["auto", "redis", "json", "pretty", "legacy"];

/// The values of `unknown-types`.
pub(crate) const UNKNOWN_TYPES: &[&str] = &["refuse", "skip"];

/// The values of `supervised`, in the order in which Redis lists them.
pub(crate) const SUPERVISORS: &[&str] = &["upstart", "systemd", "auto", "no"];

/// The values of `loglevel`, from the most to the least talkative.
pub(crate) const LOG_LEVELS: &[&str] = &["debug", "verbose", "notice", "warning", "nothing"];

/// The words of `shutdown-on-sigint` and `shutdown-on-sigterm`.
pub(crate) const SHUTDOWN_WORDS: &[&str] = &["default", "save", "nosave", "now", "force"];

/// The values of `oom-score-adj`: `relative` means the same as `yes` and is printed so, as in Redis.
pub(crate) const OOM_SCORE_ADJUSTMENTS: &[&str] = &["no", "yes", "relative", "absolute"];

pub(super) const SYSLOG_FACILITIES: &[&str] =
    &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];
pub(super) const DISKLESS_LOADS: &[&str] = &["disabled", "on-empty-db", "swapdb", "flushdb"];
pub(crate) const SANITIZED_PAYLOADS: &[&str] = &["no", "yes", "clients"];
pub(super) const ENDPOINT_TYPES: &[&str] = &["ip", "hostname", "unknown-endpoint"];
pub(super) const PROPAGATION_ERRORS: &[&str] = &["ignore", "panic", "panic-on-replicas"];
pub(super) const SLOT_STATISTICS: &[&str] = &["no", "yes", "cpu", "net", "mem"];
pub(super) const CERTIFICATE_FIELDS: &[&str] = &["CN", "off"];
