//! Where the values of all parameters are.

use std::path::PathBuf;
use std::sync::Arc;

use super::fields::{Choice, Flag, Integer, Kept, Text};
use super::limits::OutputLimits;

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
    /// Addresses whose clients count as those of this machine where a command is enabled for these.
    pub local_addresses: Text,
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
    /// The URL of the store in which keys live; empty for none.
    pub store: Text,
    /// Which keys live there.
    pub store_keys: Text,
    /// The name of this server among those that use the store; empty for the machine's.
    pub store_name: Text,
    /// Milliseconds that a request waits for the store.
    pub store_timeout: Integer,
    /// Bytes of a value in the store.
    pub store_value_max_bytes: Integer,
    /// Requests that travel to the store together.
    pub store_batch_max: Integer,
    /// The file with the certificate authorities of the store; empty for those of the system.
    pub store_tls_ca_cert_file: Text,
    /// The file with the certificate that this server shows the store; empty for none.
    pub store_tls_cert_file: Text,
    /// The file with its key.
    pub store_tls_key_file: Text,
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
    /// The version of Redis in the replies to INFO and HELLO.
    pub redis_version: Text,
    /// What is logged.
    pub loglevel: Choice,
    /// Microseconds from which on a request is noted as slow; negative for never.
    pub slowlog_log_slower_than: Integer,
    /// Slow requests that are kept.
    pub slowlog_max_len: Integer,
    /// Bytes from which on a request is noted as long; negative for never.
    pub commandlog_request_larger_than: Integer,
    /// Long requests that are kept.
    pub commandlog_large_request_max_len: Integer,
    /// Bytes from which on a request is noted for its reply; negative for never.
    pub commandlog_reply_larger_than: Integer,
    /// Requests with long replies that are kept.
    pub commandlog_large_reply_max_len: Integer,
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
    /// Bytes of memory that all clients may take, or less than 0 for so many percent of `maxmemory`; 0 for no
    /// limit.
    pub maxmemory_clients: Integer,
    /// Which keys are evicted.
    pub maxmemory_policy: Choice,
    /// Keys that are compared before one is evicted.
    pub maxmemory_samples: Integer,
    /// How much slower the count of a key's use grows the larger it is.
    pub lfu_log_factor: Integer,
    /// Minutes without use after which the count of a key's use falls by one; 0 for never.
    pub lfu_decay_time: Integer,
    /// Fields of a hash up to which it is packed.
    pub hash_max_listpack_entries: Integer,
    /// Bytes of a field or value up to which a hash is packed.
    pub hash_max_listpack_value: Integer,
    /// Bytes of a HyperLogLog up to which it is sparse.
    pub hll_sparse_max_bytes: Integer,
    /// Elements of a list up to which it is packed; -1 to -5: 4 to 64 KiB.
    pub list_max_listpack_size: Integer,
    /// Members of a set of integers up to which it is packed.
    pub set_max_intset_entries: Integer,
    /// Members of any set up to which it is packed.
    pub set_max_listpack_entries: Integer,
    /// Bytes of a member up to which a set is packed.
    pub set_max_listpack_value: Integer,
    /// Members of a sorted set up to which it is packed.
    pub zset_max_listpack_entries: Integer,
    /// Bytes of a member up to which a sorted set is packed.
    pub zset_max_listpack_value: Integer,
    /// Bytes of a block of a stream; 0 for 1 GiB.
    pub stream_node_max_bytes: Integer,
    /// Entries of a block of a stream; 0 for any number.
    pub stream_node_max_entries: Integer,
    /// The directory of the server's files, from the root on.
    pub dir: Text,
    /// The file of snapshots, in that directory.
    pub dbfilename: Text,
    /// Whether long strings in it are compressed.
    pub rdbcompression: Flag,
    /// Whether it ends with a checksum, and that is looked at.
    pub rdbchecksum: Flag,
    /// Microseconds of rest after each key or request that is loaded; if below 0, one microsecond after one
    /// in so many.
    pub key_load_delay: Integer,
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
    /// Whether the server starts although its configuration asks for what is not there, such as replication.
    pub ignore_unsupported: Flag,
    /// How often in a second a sweep for expired keys begins.
    pub hz: Integer,
    /// How much of the time such a sweep may take, from 1 to 10.
    pub active_expire_effort: Integer,
    /// Whether INFO and LATENCY HISTOGRAM tell how long commands take.
    pub latency_tracking: Flag,
    /// The percentiles that INFO tells, separated by blanks.
    pub latency_tracking_info_percentiles: Text,
    /// What SIGINT asks for: bits of [`SHUTDOWN_WORDS`](super::SHUTDOWN_WORDS).
    pub shutdown_on_sigint: Integer,
    /// What SIGTERM asks for.
    pub shutdown_on_sigterm: Integer,
    /// Seconds that the end waits for clients to read their last replies, if that is less than usual.
    pub shutdown_timeout: Integer,
    /// How the score is adjusted by which the system chooses a process to kill.
    pub oom_score_adj: Choice,
    /// By how much: for a primary, a replica, a process that saves.
    pub oom_score_adj_values: Text,
    /// Values that are only kept.
    pub(super) kept: Kept,
}
