//! The parameters: one typed table, from which the command line, the configuration file, CONFIG, the
//! environment's names and the help derive.
//!
//! A parameter is one entry of [`PARAMETERS`]: its name as in redis.conf, what it is for, its default, its
//! type with its range, whether it can be changed while the server runs, and the field of [`Config`] that
//! holds it. Whoever needs a value reads that field (`config.timeout.get()`), typed and without a lock.
//! A parameter of Redis that has no meaning here is not in the table but in that of [`foreign`]: a
//! configuration file may have it, but CONFIG SET answers with an error rather than a silent yes.

mod fields;
pub mod foreign;
mod limits;
mod points;
pub mod rewrite;

use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::events::EventClass;
use crate::files::reason;
use crate::resp::number::parse_integer;
pub use fields::{Choice, Flag, Integer, Text};
pub use limits::{ClientClass, OutputLimit, OutputLimits};
pub use points::SavePoint;

/// The values of all parameters.
#[derive(Debug, Default)]
pub struct Config {
    /// The configuration file that they were read from, if there is one: CONFIG REWRITE writes it.
    pub file: Option<PathBuf>,
    /// Which channels a new user may use.
    pub acl_pubsub_default: Choice,
    /// The file that users are read from; empty for none.
    pub aclfile: Text,
    /// Refusals that ACL LOG keeps.
    pub acllog_max_len: Integer,
    /// The port clients connect to; 0 asks the system for a free one, or for none if there are other ways to
    /// connect.
    pub port: Integer,
    /// The port for clients that use TLS; 0 for none.
    pub tls_port: Integer,
    /// The file with the server's certificate.
    pub tls_cert_file: Text,
    /// The file with its key.
    pub tls_key_file: Text,
    /// The file with the certificates of those who vouch for clients.
    pub tls_ca_cert_file: Text,
    /// Whether clients need a certificate.
    pub tls_auth_clients: Choice,
    /// The path of the Unix socket; empty for none.
    pub unixsocket: Text,
    /// The permissions of the Unix socket; 0 for those of any new file.
    pub unixsocketperm: Integer,
    /// The addresses to listen on.
    pub bind: Text,
    /// The port that serves metrics; 0 for none.
    pub metrics_port: Integer,
    /// The addresses at which it does.
    pub metrics_bind: Text,
    /// Connections that the system may hold ready before they are accepted.
    pub tcp_backlog: Integer,
    /// Refuse clients from other machines while there is no password.
    pub protected_mode: Flag,
    /// The password of the user `default`; empty for none.
    pub requirepass: Text,
    /// How many databases there are.
    pub databases: Integer,
    /// Clients served at once.
    pub maxclients: Integer,
    /// Seconds without a request after which a client is closed; 0 for never.
    pub timeout: Integer,
    /// Seconds between TCP keepalive probes; 0 for none.
    pub tcp_keepalive: Integer,
    /// Threads that serve clients; 0 for one a core.
    pub io_threads: Integer,
    /// Bytes of one argument.
    pub proto_max_bulk_len: Integer,
    /// How much may wait for a client that is slow to take it.
    pub client_output_buffer_limit: Arc<OutputLimits>,
    /// Which events of keys are published.
    pub notify_keyspace_events: Integer,
    /// Milliseconds after which a script is said to run for too long.
    pub busy_reply_threshold: Integer,
    /// Bytes of a client's incomplete requests.
    pub client_query_buffer_limit: Integer,
    /// Whether it is followed who holds which lock.
    pub lock_lens: Flag,
    /// Whether the server goes on in the background.
    pub daemonize: Flag,
    /// The file with the number of the process; empty for none.
    pub pidfile: Text,
    /// Who started the server and wants to hear of it.
    pub supervised: Choice,
    /// The form of the log's lines.
    pub log_format: Choice,
    /// The file that is logged to; empty for standard output.
    pub logfile: Text,
    /// What is logged.
    pub loglevel: Choice,
    /// Microseconds from which on a request is noted as slow; negative for never.
    pub slowlog_log_slower_than: Integer,
    /// Slow requests that are kept.
    pub slowlog_max_len: Integer,
    /// Keys of which it is remembered who has read them; 0 for any number.
    pub tracking_table_max_keys: Integer,
    /// Milliseconds from which on an event is noted; 0 for none.
    pub latency_monitor_threshold: Integer,
    /// Who may use CLOCK.
    pub enable_clock_command: Choice,
    /// Who may use DEBUG.
    pub enable_debug_command: Choice,
    /// Who may use FAULT.
    pub enable_fault_command: Choice,
    /// Bytes of memory beyond which keys are evicted or writes refused; 0 for no limit.
    pub maxmemory: Integer,
    /// Which keys are evicted.
    pub maxmemory_policy: Choice,
    /// Keys that are compared before one is evicted.
    pub maxmemory_samples: Integer,
    /// How much slower the count of a key's use grows the larger it is.
    pub lfu_log_factor: Integer,
    /// Minutes without use after which the count of a key's use falls by one; 0 for never.
    pub lfu_decay_time: Integer,
    /// The directory of the server's files, from the root on.
    pub dir: Text,
    /// The file of snapshots, in that directory.
    pub dbfilename: Text,
    /// Whether long strings in it are compressed.
    pub rdbcompression: Flag,
    /// Whether it ends with a checksum, and that is looked at.
    pub rdbchecksum: Flag,
    /// When snapshots are due.
    pub save: Text,
    /// Whether commands that write are refused after a snapshot has failed.
    pub stop_writes_on_bgsave_error: Flag,
    /// Who may change where files are.
    pub enable_protected_configs: Choice,
    /// Whether what is done is logged to disk.
    pub appendonly: Flag,
    /// The directory of the log, in `dir`.
    pub appenddirname: Text,
    /// What the names of the log's files begin with.
    pub appendfilename: Text,
    /// When the log has to be on the disk.
    pub appendfsync: Choice,
    /// By how many percent the log may grow before it is rewritten; 0 for any.
    pub auto_aof_rewrite_percentage: Integer,
    /// Bytes up to which the log is never rewritten by itself.
    pub auto_aof_rewrite_min_size: Integer,
    /// Whether the server starts although the end of the log is missing.
    pub aof_load_truncated: Flag,
    /// Whether the base of the log is a snapshot.
    pub aof_use_rdb_preamble: Flag,
}

/// All parameters, by name.
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "acl-pubsub-default",
        help: "Channels that new users may use: all, or none",
        default: "resetchannels",
        kind: Kind::Choice(PUBSUB_DEFAULTS),
        changes: Changes::Anytime,
        field: |config| Field::Choice(&config.acl_pubsub_default),
    },
    Parameter {
        name: "aclfile",
        help: "File with the users, one a line as ACL LIST prints them; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.aclfile),
    },
    Parameter {
        name: "acllog-max-len",
        help: "Refusals that ACL LOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: 1 << 20 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.acllog_max_len),
    },
    Parameter {
        name: "aof-load-truncated",
        help: "Whether to start although the end of the log is missing",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.aof_load_truncated),
    },
    Parameter {
        name: "aof-use-rdb-preamble",
        help: "Whether the base of the log is a snapshot; otherwise it is commands",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.aof_use_rdb_preamble),
    },
    Parameter {
        name: "appenddirname",
        help: "Directory of the log, in `dir`",
        default: "appendonlydir",
        kind: Kind::FileName { parameter: "appenddirname", noun: "dirname", may_be_empty: false },
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.appenddirname),
    },
    Parameter {
        name: "appendfilename",
        help: "What the names of the log's files begin with",
        default: "appendonly.aof",
        kind: Kind::FileName { parameter: "appendfilename", noun: "filename", may_be_empty: false },
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.appendfilename),
    },
    Parameter {
        name: "appendfsync",
        help: "When the log is on the disk: before any reply, within a second, or whenever",
        default: "everysec",
        kind: Kind::Choice(APPEND_FSYNC),
        changes: Changes::Anytime,
        field: |config| Field::Choice(&config.appendfsync),
    },
    Parameter {
        name: "appendonly",
        help: "Whether what is done is logged to disk",
        default: "no",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.appendonly),
    },
    Parameter {
        name: "auto-aof-rewrite-min-size",
        help: "Bytes up to which the log is not rewritten by itself",
        default: "64mb",
        kind: Kind::Bytes { min: 0, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.auto_aof_rewrite_min_size),
    },
    Parameter {
        name: "auto-aof-rewrite-percentage",
        help: "By how many percent the log grows before it is rewritten; 0 for never",
        default: "100",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.auto_aof_rewrite_percentage),
    },
    Parameter {
        name: "bind",
        help: "Addresses to listen on; one after `-` may be missing on this machine",
        default: "* -::*",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.bind),
    },
    Parameter {
        name: "busy-reply-threshold",
        help: "Milliseconds after which clients are told that a script runs; 0 for never",
        default: "5000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.busy_reply_threshold),
    },
    Parameter {
        name: "client-output-buffer-limit",
        help: "Bytes that may wait for a client: class, hard limit, soft limit, seconds",
        default: "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60",
        kind: Kind::Limits,
        changes: Changes::Anytime,
        field: |config| Field::Limits(&config.client_output_buffer_limit),
    },
    Parameter {
        name: "client-query-buffer-limit",
        help: "Bytes a client may send without completing a request",
        default: "1gb",
        // A request's arguments are found by 32-bit offsets.
        kind: Kind::Bytes { min: 1 << 20, max: u32::MAX as i64 - (64 << 20) },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.client_query_buffer_limit),
    },
    Parameter {
        name: "daemonize",
        help: "Whether to go on in the background",
        default: "no",
        kind: Kind::Flag,
        changes: Changes::AtStart,
        field: |config| Field::Flag(&config.daemonize),
    },
    Parameter {
        name: "databases",
        help: "Number of databases",
        default: "16",
        kind: Kind::Integer { min: 1, max: 16_384 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.databases),
    },
    Parameter {
        name: "dbfilename",
        help: "File of snapshots, in `dir`",
        default: "dump.rdb",
        kind: Kind::FileName { parameter: "dbfilename", noun: "filename", may_be_empty: true },
        changes: Changes::Protected,
        field: |config| Field::Text(&config.dbfilename),
    },
    Parameter {
        name: "dir",
        help: "Directory of the server's files",
        default: "./",
        kind: Kind::Directory,
        changes: Changes::Protected,
        field: |config| Field::Text(&config.dir),
    },
    Parameter {
        name: "enable-clock-command",
        help: "Who may turn the clock by CLOCK: nobody, everybody, clients on this machine",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.enable_clock_command),
    },
    Parameter {
        name: "enable-debug-command",
        help: "Who may use DEBUG: nobody, everybody, clients on this machine",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.enable_debug_command),
    },
    Parameter {
        name: "enable-fault-command",
        help: "Who may use FAULT: nobody, everybody, clients on this machine",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.enable_fault_command),
    },
    Parameter {
        name: "enable-protected-configs",
        help: "Who may change where files are: nobody, everybody, clients on this machine",
        default: "no",
        kind: Kind::Choice(ENABLED_FOR),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.enable_protected_configs),
    },
    Parameter {
        name: "io-threads",
        help: "Threads that serve clients; 0 for one a core",
        default: "0",
        kind: Kind::Integer { min: 0, max: 128 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.io_threads),
    },
    Parameter {
        name: "latency-monitor-threshold",
        help: "Milliseconds from which on LATENCY notes an event; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.latency_monitor_threshold),
    },
    Parameter {
        name: "lfu-decay-time",
        help: "Minutes without use after which the count of a key's use falls; 0 for never",
        default: "1",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.lfu_decay_time),
    },
    Parameter {
        name: "lfu-log-factor",
        help: "How much slower the count of a key's use grows the larger it is",
        default: "10",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.lfu_log_factor),
    },
    Parameter {
        name: "lock-lens",
        help: "Whether it is followed who holds which lock, and what goes wrong with it",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.lock_lens),
    },
    Parameter {
        name: "log-format",
        help: "Form of log lines: auto is pretty on a terminal and redis elsewhere",
        default: "auto",
        kind: Kind::Choice(LOG_FORMATS),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.log_format),
    },
    Parameter {
        name: "logfile",
        help: "File to log to; empty for standard output",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.logfile),
    },
    Parameter {
        name: "loglevel",
        help: "What is logged: debug, verbose, notice or warning",
        default: "notice",
        kind: Kind::Choice(LOG_LEVELS),
        changes: Changes::Anytime,
        field: |config| Field::Choice(&config.loglevel),
    },
    Parameter {
        name: "maxclients",
        help: "Clients served at once",
        default: "10000",
        kind: Kind::Integer { min: 1, max: u32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.maxclients),
    },
    Parameter {
        name: "maxmemory",
        help: "Bytes of memory beyond which keys are evicted or writes refused; 0 for no limit",
        default: "0",
        kind: Kind::Bytes { min: 0, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.maxmemory),
    },
    Parameter {
        name: "maxmemory-policy",
        help: "Which keys are evicted when memory is short",
        default: "noeviction",
        kind: Kind::Choice(EVICTION_POLICIES),
        changes: Changes::Anytime,
        field: |config| Field::Choice(&config.maxmemory_policy),
    },
    Parameter {
        name: "maxmemory-samples",
        help: "Keys that are compared before one is evicted",
        default: "5",
        kind: Kind::Integer { min: 1, max: 64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.maxmemory_samples),
    },
    Parameter {
        name: "metrics-bind",
        help: "Addresses to serve metrics at, as in bind; whoever reaches them needs no password",
        default: "127.0.0.1 -::1",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.metrics_bind),
    },
    Parameter {
        name: "metrics-port",
        help: "Port that serves /metrics for Prometheus, and /healthz; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.metrics_port),
    },
    Parameter {
        name: "notify-keyspace-events",
        help: "Which events of keys are published, by the letters of Redis",
        default: "",
        kind: Kind::Events,
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.notify_keyspace_events),
    },
    Parameter {
        name: "pidfile",
        help: "File for the number of the process; in the background /var/run/redis.pid if empty",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.pidfile),
    },
    Parameter {
        name: "port",
        help: "Port to listen on; 0 asks for a free one, or for none if there is a Unix socket or TLS",
        default: "6379",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.port),
    },
    Parameter {
        name: "protected-mode",
        help: "Refuse clients from other machines while there is no password",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.protected_mode),
    },
    Parameter {
        name: "proto-max-bulk-len",
        help: "Bytes of one argument",
        default: "512mb",
        kind: Kind::Bytes { min: 1 << 20, max: 512 << 20 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.proto_max_bulk_len),
    },
    Parameter {
        name: "rdbchecksum",
        help: "Whether snapshots end with a checksum, and that of one that is loaded is looked at",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::AtStart,
        field: |config| Field::Flag(&config.rdbchecksum),
    },
    Parameter {
        name: "rdbcompression",
        help: "Whether long strings in snapshots are compressed",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.rdbcompression),
    },
    Parameter {
        name: "requirepass",
        help: "Password of the user `default`; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::Anytime,
        field: |config| Field::Text(&config.requirepass),
    },
    Parameter {
        name: "save",
        help: "When snapshots are due: seconds and changes, any number of times; empty for never",
        default: "3600 1 300 100 60 10000",
        kind: Kind::SavePoints,
        changes: Changes::Anytime,
        field: |config| Field::Text(&config.save),
    },
    Parameter {
        name: "slowlog-log-slower-than",
        help: "Microseconds from which on SLOWLOG notes a request; negative for never",
        default: "10000",
        kind: Kind::Integer { min: -1, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.slowlog_log_slower_than),
    },
    Parameter {
        name: "slowlog-max-len",
        help: "Requests that SLOWLOG keeps",
        default: "128",
        kind: Kind::Integer { min: 0, max: 1 << 20 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.slowlog_max_len),
    },
    Parameter {
        name: "stop-writes-on-bgsave-error",
        help: "Whether commands that write are refused after a snapshot has failed",
        default: "yes",
        kind: Kind::Flag,
        changes: Changes::Anytime,
        field: |config| Field::Flag(&config.stop_writes_on_bgsave_error),
    },
    Parameter {
        name: "supervised",
        help: "Who is told that the server is ready: upstart, systemd, whichever is there, or nobody",
        default: "no",
        kind: Kind::Choice(SUPERVISORS),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.supervised),
    },
    Parameter {
        name: "tcp-backlog",
        help: "Connections the system holds ready before they are accepted",
        default: "511",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.tcp_backlog),
    },
    Parameter {
        name: "tcp-keepalive",
        help: "Seconds between keepalive probes of new connections; 0 for none",
        default: "300",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.tcp_keepalive),
    },
    Parameter {
        name: "timeout",
        help: "Seconds without a request after which a client is closed; 0 for never",
        default: "0",
        kind: Kind::Integer { min: 0, max: i32::MAX as i64 },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.timeout),
    },
    Parameter {
        name: "tls-auth-clients",
        help: "Whether clients must have a certificate, may have one, or need none",
        default: "yes",
        kind: Kind::Choice(TLS_AUTH_CLIENTS),
        changes: Changes::AtStart,
        field: |config| Field::Choice(&config.tls_auth_clients),
    },
    Parameter {
        name: "tls-ca-cert-file",
        help: "File with the certificates of those who vouch for clients, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.tls_ca_cert_file),
    },
    Parameter {
        name: "tls-cert-file",
        help: "File with the server's certificate, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.tls_cert_file),
    },
    Parameter {
        name: "tls-key-file",
        help: "File with the key of the certificate, in PEM",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.tls_key_file),
    },
    Parameter {
        name: "tls-port",
        help: "Port to listen on for TLS; 0 for none",
        default: "0",
        kind: Kind::Integer { min: 0, max: 65_535 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.tls_port),
    },
    Parameter {
        name: "tracking-table-max-keys",
        help: "Keys of which it is remembered which clients have read them; 0 for any number",
        default: "1000000",
        kind: Kind::Integer { min: 0, max: i64::MAX },
        changes: Changes::Anytime,
        field: |config| Field::Integer(&config.tracking_table_max_keys),
    },
    Parameter {
        name: "unixsocket",
        help: "Path of the Unix socket to listen on; empty for none",
        default: "",
        kind: Kind::Text,
        changes: Changes::AtStart,
        field: |config| Field::Text(&config.unixsocket),
    },
    Parameter {
        name: "unixsocketperm",
        help: "Permissions of the Unix socket, in octal; 0 for those of any new file",
        default: "0",
        kind: Kind::Octal { max: 0o777 },
        changes: Changes::AtStart,
        field: |config| Field::Integer(&config.unixsocketperm),
    },
];

/// The policies of eviction, in the order in which Redis lists them.
pub const EVICTION_POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

/// The values of `appendfsync`, in the order in which Redis lists them.
pub const APPEND_FSYNC: &[&str] = &["everysec", "always", "no"];

/// The values of `acl-pubsub-default`, in the order in which Redis lists them.
pub const PUBSUB_DEFAULTS: &[&str] = &["allchannels", "resetchannels"];

/// The values of `enable-debug-command` and its like.
pub const ENABLED_FOR: &[&str] = &["no", "yes", "local"];

/// The values of `tls-auth-clients`.
pub const TLS_AUTH_CLIENTS: &[&str] = &["no", "yes", "optional"];

/// The values of `log-format`; `legacy` is what Valkey calls that of Redis.
pub const LOG_FORMATS: &[&str] = &["auto", "redis", "json", "pretty", "legacy"];

/// The values of `supervised`, in the order in which Redis lists them.
pub const SUPERVISORS: &[&str] = &["upstart", "systemd", "auto", "no"];

/// Other names of parameters, of older versions of Redis.
pub const ALIASES: &[(&str, &str)] = &[("lua-time-limit", "busy-reply-threshold")];

/// The values of `loglevel`, from the most to the least talkative.
pub const LOG_LEVELS: &[&str] = &["debug", "verbose", "notice", "warning"];

/// One parameter.
#[derive(Debug)]
pub struct Parameter {
    /// As in redis.conf.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// As a person would write it.
    pub default: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// When it can be set.
    pub changes: Changes,
    /// Where its value is.
    field: for<'a> fn(&'a Config) -> Field<'a>,
}

/// What values a parameter takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number within a range, both ends included.
    Integer {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A number of bytes within a range, both ends included; `100mb` and the like are understood.
    Bytes {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A number in octal.
    Octal {
        /// The largest.
        max: i64,
    },
    /// `yes` or `no`.
    Flag,
    /// Any text.
    Text,
    /// A directory that there is; kept as the path from the root.
    Directory,
    /// The name of a file or a directory, without a path.
    FileName {
        /// Whose it is, …
        parameter: &'static str,
        /// … what it is called, as a refusal says …
        noun: &'static str,
        /// … and whether there may be none.
        may_be_empty: bool,
    },
    /// When snapshots are due.
    SavePoints,
    /// Letters of event classes.
    Events,
    /// How much may wait for clients, by their class.
    Limits,
    /// One of some words, in any case.
    Choice(&'static [&'static str]),
}

/// When a parameter can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// On the command line and in the configuration file only.
    AtStart,
    /// By CONFIG SET as well, where `enable-protected-configs` allows it.
    Protected,
    /// By CONFIG SET as well.
    Anytime,
}

/// A place for one parameter's value.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Integer(&'a Integer),
    Flag(&'a Flag),
    Text(&'a Text),
    Limits(&'a OutputLimits),
    Choice(&'a Choice),
}

/// A value that a parameter takes, checked and ready to be stored.
#[derive(Debug)]
pub struct Checked {
    parameter: &'static Parameter,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Integer(i64),
    Flag(bool),
    Text(Arc<[u8]>),
    Choice(usize),
    Limits(Vec<(ClientClass, OutputLimit)>),
}

/// Why a value was refused. The text is that of Redis, without the parameter's name.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Parameter {
    /// The parameter of a name, or of another name that it has, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        let is_named = |own: &str| own.as_bytes().eq_ignore_ascii_case(name);
        let alias = ALIASES.iter().find(|(alias, _)| is_named(alias));
        PARAMETERS.iter().find(|parameter| match alias {
            Some((_, own)) => parameter.name == *own,
            None => is_named(parameter.name),
        })
    }

    /// Whether a line of a configuration file may give it several values.
    pub fn takes_several(&self) -> bool {
        matches!(self.name, "bind" | "client-output-buffer-limit" | "metrics-bind" | "save")
    }

    /// Checks a value as a person writes it.
    ///
    /// # Errors
    ///
    /// With the text of Redis, if it is none that the parameter takes.
    pub fn check(&'static self, text: &[u8]) -> Result<Checked, Refusal> {
        Ok(Checked { parameter: self, value: self.kind.parse(text)? })
    }

    /// Whether its value is nobody's business.
    pub fn is_secret(&self) -> bool {
        self.name == "requirepass"
    }

    /// The current value, as CONFIG GET prints it.
    pub fn print(&self, config: &Config) -> Vec<u8> {
        match (self.field)(config) {
            Field::Integer(field) => match self.kind {
                Kind::Octal { .. } => format!("{:o}", field.get()).into_bytes(),
                Kind::Events => EventClass::from_bits(field.get() as u32).letters(),
                _ => field.get().to_string().into_bytes(),
            },
            Field::Flag(field) => if field.get() { "yes" } else { "no" }.into(),
            Field::Text(field) => field.get().to_vec(),
            Field::Limits(field) => field.print().into_bytes(),
            Field::Choice(field) => match self.kind {
                Kind::Choice(words) => words[field.get()].into(),
                _ => Vec::new(),
            },
        }
    }
}

impl Kind {
    fn parse(&self, text: &[u8]) -> Result<Value, Refusal> {
        match *self {
            Kind::Integer { min, max } => {
                let refusal = || Refusal("argument couldn't be parsed into an integer".into());
                within(parse_integer(text).ok_or_else(refusal)?, min, max)
            }
            Kind::Bytes { min, max } => {
                let refusal = || Refusal("argument must be a memory value".into());
                within(parse_bytes(text).ok_or_else(refusal)?, min, max)
            }
            Kind::Octal { max } => {
                let number =
                    std::str::from_utf8(text).ok().and_then(|text| i64::from_str_radix(text, 8).ok());
                let refusal = || Refusal("argument couldn't be parsed as an octal number".into());
                let number = number.ok_or_else(refusal)?;
                let beyond = |_| Refusal(format!("argument must be between 0 and {max:o} inclusive"));
                within(number, 0, max).map_err(beyond)
            }
            Kind::Flag => parse_flag(text).map(Value::Flag),
            Kind::Text => Ok(Value::Text(text.into())),
            Kind::Directory => parse_directory(text).map(Value::Text),
            Kind::FileName { parameter, may_be_empty: false, .. } if text.is_empty() => {
                Err(Refusal(format!("{parameter} can't be empty")))
            }
            Kind::FileName { parameter, noun, .. } if text.contains(&b'/') => {
                Err(Refusal(format!("{parameter} can't be a path, just a {noun}")))
            }
            Kind::FileName { .. } => Ok(Value::Text(text.into())),
            Kind::SavePoints => {
                let points = points::parse(text).ok_or_else(|| Refusal("Invalid save parameters".into()))?;
                Ok(Value::Text(points::print(&points).into_bytes().into()))
            }
            Kind::Events => {
                let wrong = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                let classes = EventClass::parse(text).ok_or_else(|| Refusal(wrong.into()))?;
                Ok(Value::Integer(i64::from(classes.bits())))
            }
            Kind::Limits => limits::parse(text).map(Value::Limits).map_err(|why| Refusal(why.into())),
            Kind::Choice(words) => {
                let chosen = words.iter().position(|word| word.as_bytes().eq_ignore_ascii_case(text));
                let refusal =
                    || Refusal(format!("argument(s) must be one of the following: {}", words.join(", ")));
                chosen.map(Value::Choice).ok_or_else(refusal)
            }
        }
    }
}

fn within(value: i64, min: i64, max: i64) -> Result<Value, Refusal> {
    if (min..=max).contains(&value) {
        return Ok(Value::Integer(value));
    }
    Err(Refusal(format!("argument must be between {min} and {max} inclusive")))
}

/// Finds a directory.
fn parse_directory(text: &[u8]) -> Result<Arc<[u8]>, Refusal> {
    let path = Path::new(OsStr::from_bytes(text));
    let found = path.canonicalize().and_then(|path| match path.is_dir() {
        true => Ok(path),
        false => Err(ErrorKind::NotADirectory.into()),
    });
    if found.is_err() && text == b"./" {
        // Whoever deletes the directory that a program runs in means to.
        return Ok(text.into());
    }
    let found = found.map_err(|error| {
        Refusal(match error.kind() {
            ErrorKind::NotADirectory => "Not a directory".to_owned(),
            _ => reason(&error),
        })
    })?;
    Ok(found.into_os_string().into_vec().into())
}

fn parse_flag(text: &[u8]) -> Result<bool, Refusal> {
    match text {
        _ if text.eq_ignore_ascii_case(b"yes") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"no") => Ok(false),
        _ => Err(Refusal("argument must be 'yes' or 'no'".into())),
    }
}

/// Reads a number of bytes as redis.conf writes it: `1k` is a thousand, `1kb` is 1,024.
fn parse_bytes(text: &[u8]) -> Option<i64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'-').count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    parse_integer(number)?.checked_mul(factor).filter(|bytes| *bytes >= 0)
}

impl Config {
    /// All defaults.
    pub fn new() -> Config {
        let config = Config::default();
        for parameter in PARAMETERS {
            config.store(parameter.check(parameter.default.as_bytes()).expect("defaults are in range"));
        }
        config
    }

    /// When snapshots are due.
    pub fn save_points(&self) -> Vec<SavePoint> {
        points::parse(&self.save.get()).unwrap_or_default()
    }

    /// Stores a value.
    pub fn store(&self, checked: Checked) {
        match ((checked.parameter.field)(self), checked.value) {
            (Field::Integer(field), Value::Integer(value)) => field.set(value),
            (Field::Flag(field), Value::Flag(value)) => field.set(value),
            (Field::Text(field), Value::Text(value)) => field.set(value),
            (Field::Limits(field), Value::Limits(limits)) => {
                limits.into_iter().for_each(|(class, limit)| field.set(class, limit));
            }
            (Field::Choice(field), Value::Choice(value)) => field.set(value),
            (_, value) => unreachable!("{} is not a {value:?}", checked.parameter.name),
        }
    }
}

#[cfg(test)]
mod tests;
