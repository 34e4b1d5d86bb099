//! The fields of INFO that are metrics, under the names of redis_exporter.
//!
//! Existing dashboards and alerts use these names. So each metric has the same type as there, even if another
//! type would fit better. Metrics that Redis does not have begin with `keyfast_`. They count seconds and
//! bytes, as Prometheus wants it.

use super::page::Kind;

/// A field of INFO that is a metric.
#[derive(Debug)]
pub(super) struct Metric {
    /// The field's name in INFO.
    pub(super) field: &'static str,
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// How many of the field's units make one of the metric's.
    pub(super) units: u32,
}

const fn gauge(field: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { field, kind: Kind::Gauge, name, help, units: 1 }
}

const fn counter(field: &'static str, name: &'static str, help: &'static str) -> Metric {
    Metric { field, kind: Kind::Counter, name, help, units: 1 }
}

impl Metric {
    /// The metric, with `units` of the field's unit in one of its own.
    const fn of_units(self, units: u32) -> Metric {
        Metric { units, ..self }
    }
}

/// All these metrics, in the order of INFO.
pub(super) const METRICS: &[Metric] = &[
    // Server.
    gauge("uptime_in_seconds", "redis_uptime_in_seconds", "Seconds since the start."),
    gauge("process_id", "redis_process_id", "Process ID."),
    gauge("hz", "redis_hz", "Rounds of background work in a second."),
    gauge("configured_hz", "redis_configured_hz", "Rounds of background work in a second, as configured."),
    // Clients.
    gauge("connected_clients", "redis_connected_clients", "Clients that are connected."),
    gauge("cluster_connections", "redis_cluster_connections", "Connections to other nodes of a cluster."),
    gauge("maxclients", "redis_max_clients", "Clients that may be connected at once."),
    gauge(
        "client_recent_max_input_buffer",
        "redis_client_recent_max_input_buffer_bytes",
        "Bytes of the longest incomplete request.",
    ),
    gauge(
        "client_recent_max_output_buffer",
        "redis_client_recent_max_output_buffer_bytes",
        "Bytes of the longest output buffer.",
    ),
    gauge("blocked_clients", "redis_blocked_clients", "Clients that wait."),
    gauge("tracking_clients", "redis_tracking_clients", "Clients that keep copies of keys."),
    gauge("clients_in_timeout_table", "redis_clients_in_timeout_table", "Waiting clients with a timeout."),
    gauge("long_requests_waiting", "redis_long_requests_waiting", "Long requests that wait for a thread."),
    gauge("long_requests_running", "redis_long_requests_running", "Long requests that run."),
    gauge(
        "long_requests_reply_bytes",
        "redis_long_requests_reply_bytes",
        "Bytes of the replies of long requests that their clients have not taken yet.",
    ),
    counter(
        "long_requests_refused",
        "redis_long_requests_refused_total",
        "Long requests refused for want of memory.",
    ),
    // Memory.
    gauge("used_memory", "redis_memory_used_bytes", "Bytes taken from the allocator."),
    gauge("used_memory_rss", "redis_memory_used_rss_bytes", "Bytes that the system holds for the process."),
    gauge(
        "used_memory_peak",
        "redis_memory_used_peak_bytes",
        "The most bytes that were ever taken from the allocator.",
    ),
    gauge(
        "used_memory_overhead",
        "redis_memory_used_overhead_bytes",
        "Bytes taken by anything but keys and values.",
    ),
    gauge(
        "used_memory_startup",
        "redis_memory_used_startup_bytes",
        "Bytes taken before there were clients and keys.",
    ),
    gauge("used_memory_dataset", "redis_memory_used_dataset_bytes", "Bytes taken by keys and values."),
    gauge("allocator_allocated", "redis_allocator_allocated_bytes", "Bytes taken from the allocator."),
    gauge(
        "allocator_active",
        "redis_allocator_active_bytes",
        "Bytes of the allocator's pages that are in use.",
    ),
    gauge(
        "allocator_resident",
        "redis_allocator_resident_bytes",
        "Bytes that the system holds for the allocator.",
    ),
    gauge("total_system_memory", "redis_total_system_memory_bytes", "Bytes of memory of the machine."),
    gauge("used_memory_lua", "redis_memory_used_lua_bytes", "Bytes of the interpreter of scripts."),
    gauge("used_memory_vm_eval", "redis_memory_used_vm_eval_bytes", "Bytes of the interpreter of scripts."),
    gauge(
        "used_memory_scripts_eval",
        "redis_memory_used_scripts_eval_bytes",
        "Bytes of the texts of scripts.",
    ),
    gauge("number_of_cached_scripts", "redis_number_of_cached_scripts", "Cached scripts."),
    gauge("number_of_functions", "redis_number_of_functions", "Loaded functions."),
    gauge("number_of_libraries", "redis_number_of_libraries", "Loaded libraries."),
    gauge(
        "used_memory_vm_functions",
        "redis_memory_used_vm_functions_bytes",
        "Bytes of a separate interpreter for functions.",
    ),
    gauge("used_memory_vm_total", "redis_memory_used_vm_total", "Bytes of all interpreters."),
    gauge("used_memory_functions", "redis_memory_used_functions_bytes", "Bytes of the texts of libraries."),
    gauge(
        "used_memory_scripts",
        "redis_memory_used_scripts_bytes",
        "Bytes of the texts of scripts and libraries.",
    ),
    gauge(
        "maxmemory",
        "redis_memory_max_bytes",
        "Bytes beyond which keys are evicted or writes refused; 0 for no limit.",
    ),
    gauge(
        "allocator_frag_ratio",
        "redis_allocator_frag_ratio",
        "Bytes of pages in use for each that is taken.",
    ),
    gauge("allocator_frag_bytes", "redis_allocator_frag_bytes", "Bytes of pages in use that are not taken."),
    gauge(
        "allocator_rss_ratio",
        "redis_allocator_rss_ratio",
        "Bytes that the system holds for each that is in use.",
    ),
    gauge(
        "allocator_rss_bytes",
        "redis_allocator_rss_bytes",
        "Bytes that the system holds and that are not in use.",
    ),
    gauge(
        "mem_fragmentation_ratio",
        "redis_mem_fragmentation_ratio",
        "Bytes that the system holds for each that is taken.",
    ),
    gauge(
        "mem_fragmentation_bytes",
        "redis_mem_fragmentation_bytes",
        "Bytes that the system holds and that are not taken.",
    ),
    gauge(
        "mem_not_counted_for_evict",
        "redis_mem_not_counted_for_eviction_bytes",
        "Bytes that do not count for maxmemory.",
    ),
    gauge(
        "mem_replication_backlog",
        "redis_mem_replication_backlog_bytes",
        "Bytes of the replication backlog.",
    ),
    gauge(
        "mem_total_replication_buffers",
        "redis_mem_total_replication_buffers_bytes",
        "Bytes of all buffers for replicas.",
    ),
    gauge("mem_clients_slaves", "redis_mem_clients_slaves", "Bytes that replicas take."),
    gauge("mem_clients_normal", "redis_mem_clients_normal", "Bytes that clients take."),
    gauge(
        "mem_cluster_links",
        "redis_mem_cluster_links_bytes",
        "Bytes that links to other nodes of a cluster take.",
    ),
    gauge(
        "mem_aof_buffer",
        "redis_mem_aof_buffer_bytes",
        "Bytes that wait to be written to the append only file.",
    ),
    gauge("active_defrag_running", "redis_active_defrag_running", "Whether memory is being defragmented."),
    gauge("lazyfree_pending_objects", "redis_lazyfree_pending_objects", "Values that wait to be freed."),
    gauge("lazyfreed_objects", "redis_lazyfreed_objects", "Values that were freed in the background."),
    // Persistence.
    gauge("loading", "redis_loading_dump_file", "Whether the data set is being loaded."),
    gauge(
        "async_loading",
        "redis_async_loading",
        "Whether a data set is being loaded while the old one serves clients.",
    ),
    gauge("loading_total_bytes", "keyfast_loading_bytes", "Bytes of the files that are being loaded."),
    gauge("loading_loaded_bytes", "keyfast_loading_loaded_bytes", "Bytes of these files that are loaded."),
    gauge(
        "loading_eta_seconds",
        "keyfast_loading_left_seconds",
        "Seconds that loading the rest is expected to take; -1 if unknown.",
    ),
    gauge("current_cow_size", "keyfast_save_preserved_bytes", "Bytes preserved for the current snapshot."),
    gauge(
        "current_save_keys_processed",
        "keyfast_save_keys_written",
        "Keys of the current snapshot that are written.",
    ),
    gauge("current_save_keys_total", "keyfast_save_keys", "Keys of the current snapshot."),
    gauge(
        "rdb_changes_since_last_save",
        "redis_rdb_changes_since_last_save",
        "Changes since the last snapshot.",
    ),
    gauge("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress", "Whether a snapshot is being written."),
    gauge(
        "rdb_last_save_time",
        "redis_rdb_last_save_timestamp_seconds",
        "When the last snapshot was written, in seconds since 1970.",
    ),
    gauge("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status", "Whether the last snapshot was written."),
    gauge(
        "rdb_last_bgsave_time_sec",
        "redis_rdb_last_bgsave_duration_sec",
        "Seconds that the last snapshot took; -1 for none.",
    ),
    gauge(
        "rdb_current_bgsave_time_sec",
        "redis_rdb_current_bgsave_duration_sec",
        "Seconds that the current snapshot has taken; -1 for none.",
    ),
    gauge("rdb_saves", "redis_rdb_saves_total", "Snapshots that were written."),
    gauge(
        "rdb_last_cow_size",
        "redis_rdb_last_cow_size_bytes",
        "The most bytes that were kept for the last snapshot.",
    ),
    gauge(
        "rdb_last_load_keys_expired",
        "redis_rdb_last_load_expired_keys",
        "Keys of the snapshot at the start that had expired.",
    ),
    gauge(
        "rdb_last_load_keys_loaded",
        "redis_rdb_last_load_loaded_keys",
        "Keys of the snapshot at the start.",
    ),
    gauge("aof_enabled", "redis_aof_enabled", "Whether writes are logged."),
    gauge(
        "aof_rewrite_in_progress",
        "redis_aof_rewrite_in_progress",
        "Whether the append only file is being rewritten.",
    ),
    gauge(
        "aof_rewrite_scheduled",
        "redis_aof_rewrite_scheduled",
        "Whether a rewrite of the append only file is scheduled.",
    ),
    gauge(
        "aof_last_rewrite_time_sec",
        "redis_aof_last_rewrite_duration_sec",
        "Seconds that the last rewrite took; -1 for none.",
    ),
    gauge(
        "aof_current_rewrite_time_sec",
        "redis_aof_current_rewrite_duration_sec",
        "Seconds that the current rewrite has taken; -1 for none.",
    ),
    gauge(
        "aof_last_bgrewrite_status",
        "redis_aof_last_bgrewrite_status",
        "Whether the last rewrite succeeded.",
    ),
    gauge("aof_rewrites", "redis_aof_rewrites_total", "Rewrites that were begun."),
    gauge(
        "aof_rewrites_consecutive_failures",
        "redis_aof_rewrites_consecutive_failures",
        "Rewrites that have failed since the last that succeeded.",
    ),
    gauge(
        "aof_current_size",
        "redis_aof_current_size_bytes",
        "Bytes of the append only file, where there is one.",
    ),
    gauge(
        "aof_base_size",
        "redis_aof_base_size_bytes",
        "Bytes of the append only file after its last rewrite.",
    ),
    gauge("aof_pending_rewrite", "redis_aof_pending_rewrite", "Whether a rewrite waits for a snapshot."),
    gauge(
        "aof_buffer_length",
        "redis_aof_buffer_length",
        "Bytes that wait to be written to the append only file.",
    ),
    gauge("aof_pending_bio_fsync", "redis_aof_pending_bio_fsync", "Pending syncs of the append only file."),
    gauge("aof_delayed_fsync", "redis_aof_delayed_fsync", "Delayed syncs of the append only file."),
    gauge(
        "aof_last_write_status",
        "redis_aof_last_write_status",
        "Whether the last write to the append only file succeeded.",
    ),
    gauge(
        "aof_last_cow_size",
        "redis_aof_last_cow_size_bytes",
        "Bytes that were copied for the last rewrite.",
    ),
    gauge(
        "module_fork_in_progress",
        "redis_module_fork_in_progress",
        "Whether a module runs in a process of its own.",
    ),
    gauge(
        "module_fork_last_cow_size",
        "redis_module_fork_last_cow_size",
        "Bytes that were copied for a module's process.",
    ),
    // Stats.
    counter(
        "total_connections_received",
        "redis_connections_received_total",
        "Connections that were accepted.",
    ),
    counter(
        "total_commands_processed",
        "redis_commands_processed_total",
        "Commands that were executed or refused.",
    ),
    gauge("instantaneous_ops_per_sec", "redis_instantaneous_ops_per_sec", "Commands per second, lately."),
    counter("total_net_input_bytes", "redis_net_input_bytes_total", "Bytes read from clients."),
    counter("total_net_output_bytes", "redis_net_output_bytes_total", "Bytes written to clients."),
    gauge(
        "instantaneous_input_kbps",
        "redis_instantaneous_input_kbps",
        "KiB per second read from clients, lately.",
    ),
    gauge(
        "instantaneous_output_kbps",
        "redis_instantaneous_output_kbps",
        "KiB per second written to clients, lately.",
    ),
    counter("rejected_connections", "redis_rejected_connections_total", "Connections that were refused."),
    gauge("sync_full", "redis_replica_resyncs_full", "Full synchronizations with replicas."),
    gauge(
        "sync_partial_ok",
        "redis_replica_partial_resync_accepted",
        "Partial synchronizations with replicas.",
    ),
    gauge("sync_partial_err", "redis_replica_partial_resync_denied", "Refused partial synchronizations."),
    counter(
        "expired_subkeys",
        "redis_expired_subkeys_total",
        "Fields of hashes that were freed because they had expired.",
    ),
    counter("expired_keys", "redis_expired_keys_total", "Keys that were freed because they had expired."),
    gauge(
        "expired_stale_perc",
        "redis_expired_stale_percentage",
        "Percentage of keys that have expired and are not freed.",
    ),
    counter(
        "expired_time_cap_reached_count",
        "redis_expired_time_cap_reached_total",
        "Rounds of freeing expired keys that ran out of time.",
    ),
    counter("evicted_keys", "redis_evicted_keys_total", "Keys that were freed because memory was short."),
    counter(
        "evicted_clients",
        "redis_evicted_clients_total",
        "Clients that were closed because memory was short.",
    ),
    counter("keyspace_hits", "redis_keyspace_hits_total", "Keys that a reading command found."),
    counter("keyspace_misses", "redis_keyspace_misses_total", "Keys that a reading command did not find."),
    gauge("pubsub_channels", "redis_pubsub_channels", "Channels with subscribers."),
    gauge("pubsub_patterns", "redis_pubsub_patterns", "Patterns of channels with subscribers."),
    gauge("migrate_cached_sockets", "redis_migrate_cached_sockets_total", "Sockets kept for MIGRATE."),
    gauge(
        "slave_expires_tracked_keys",
        "redis_slave_expires_tracked_keys",
        "Keys that a writable replica expires by itself.",
    ),
    gauge("active_defrag_hits", "redis_defrag_hits", "Values that were moved by defragmentation."),
    gauge("active_defrag_misses", "redis_defrag_misses", "Values that defragmentation left in place."),
    gauge("active_defrag_key_hits", "redis_defrag_key_hits", "Keys that were moved by defragmentation."),
    gauge("active_defrag_key_misses", "redis_defrag_key_misses", "Keys that defragmentation left in place."),
    gauge("latest_fork_usec", "redis_latest_fork_seconds", "Always 0: the process does not fork."),
    counter("total_forks", "redis_total_forks", "Forks of the process: none."),
    gauge("tracking_total_keys", "redis_tracking_total_keys", "Keys of which clients keep copies."),
    gauge("tracking_total_items", "redis_tracking_total_items", "Copies that clients keep."),
    gauge("tracking_total_prefixes", "redis_tracking_total_prefixes", "Key prefixes that clients track."),
    counter("unexpected_error_replies", "redis_unexpected_error_replies", "Unexpected errors."),
    counter(
        "dump_payload_sanitizations",
        "redis_dump_payload_sanitizations",
        "Values of RESTORE that were verified.",
    ),
    counter("total_error_replies", "redis_total_error_replies", "Error replies."),
    counter("total_reads_processed", "redis_total_reads_processed", "Reads from clients' sockets."),
    counter("total_writes_processed", "redis_total_writes_processed", "Writes to clients' sockets."),
    counter("acl_access_denied_auth", "redis_acl_access_denied_auth_total", "Failed logins."),
    counter(
        "acl_access_denied_cmd",
        "redis_acl_access_denied_cmd_total",
        "Commands that were not permitted.",
    ),
    counter("acl_access_denied_key", "redis_acl_access_denied_key_total", "Keys that were not permitted."),
    counter(
        "acl_access_denied_channel",
        "redis_acl_access_denied_channel_total",
        "Channels that were not permitted.",
    ),
    gauge("faults_planted", "keyfast_faults_planted", "Faults that may still strike."),
    counter("faults_struck", "keyfast_faults_struck_total", "Requests that were struck by a fault."),
    // Replication.
    gauge("connected_slaves", "redis_connected_slaves", "Replicas that are connected."),
    gauge("master_repl_offset", "redis_master_repl_offset", "Bytes of replication so far."),
    gauge(
        "second_repl_offset",
        "redis_second_repl_offset",
        "Bytes of replication so far under the former replication ID.",
    ),
    gauge("repl_backlog_active", "redis_repl_backlog_is_active", "Whether there is a replication backlog."),
    gauge("repl_backlog_size", "redis_replication_backlog_bytes", "Most bytes of the replication backlog."),
    gauge(
        "repl_backlog_first_byte_offset",
        "redis_repl_backlog_first_byte_offset",
        "Offset of the first byte in the replication backlog.",
    ),
    gauge("repl_backlog_histlen", "redis_repl_backlog_history_bytes", "Bytes in the replication backlog."),
    // CPU.
    counter(
        "used_cpu_sys",
        "redis_cpu_sys_seconds_total",
        "Seconds of processor time that the system spent for the process.",
    ),
    counter(
        "used_cpu_user",
        "redis_cpu_user_seconds_total",
        "Seconds of processor time that the process spent.",
    ),
    counter(
        "used_cpu_sys_children",
        "redis_cpu_sys_children_seconds_total",
        "Seconds of processor time that the system spent for child processes.",
    ),
    counter(
        "used_cpu_user_children",
        "redis_cpu_user_children_seconds_total",
        "Seconds of processor time that child processes spent.",
    ),
    counter(
        "used_cpu_sys_main_thread",
        "redis_cpu_sys_main_thread_seconds_total",
        "Seconds of processor time that the system spent for the main thread.",
    ),
    counter(
        "used_cpu_user_main_thread",
        "redis_cpu_user_main_thread_seconds_total",
        "Seconds of processor time that the main thread spent.",
    ),
    // Cluster.
    gauge("cluster_enabled", "redis_cluster_enabled", "Whether the server is a node of a cluster."),
    // Locks.
    gauge("lock_lens", "keyfast_lock_lens", "Whether the server tracks who holds each lock."),
    gauge("locks_followed", "keyfast_locks_followed", "Locks that are tracked."),
    gauge("locks_held", "keyfast_locks_held", "Locks that are held."),
    counter("locks_taken", "keyfast_locks_taken_total", "How often a lock was taken."),
    counter("locks_refused", "keyfast_locks_refused_total", "How often a client did not get a lock."),
    counter("locks_released", "keyfast_locks_released_total", "How often a lock was released."),
    counter("locks_expired", "keyfast_locks_expired_total", "How often a lock expired."),
    counter("locks_reentered", "keyfast_locks_reentered_total", "How often a holder took a lock once more."),
    counter("locks_woken", "keyfast_locks_woken_total", "How often a release woke a client through a list."),
    // The store.
    gauge("store_connected", "keyfast_store_connected", "Whether the store is connected."),
    gauge("store_away", "keyfast_store_away", "Whether requests on keys in the store are refused."),
    counter("store_connections", "keyfast_store_connections_total", "Connections to the store."),
    counter("store_batches", "keyfast_store_batches_total", "Batches that the store has answered."),
    counter("store_requests", "keyfast_store_requests_total", "Requests in these batches."),
    counter(
        "store_batch_microseconds",
        "keyfast_store_batch_seconds_total",
        "Seconds that the batches took together.",
    )
    .of_units(1_000_000),
    counter(
        "store_overtaken",
        "keyfast_store_overtaken_total",
        "Requests that ran again: their guess was wrong, or another front-end was faster.",
    ),
    counter("store_failed", "keyfast_store_failed_total", "Requests that the store could not execute."),
    counter("store_unknown", "keyfast_store_unknown_total", "Requests whose outcome is unknown."),
    gauge(
        "store_confirmations",
        "keyfast_store_confirmations",
        "Replicas that have to confirm each commit of PostgreSQL.",
    ),
    gauge(
        "store_dead_rows",
        "keyfast_store_dead_rows",
        "Old versions of front-ends' rows that PostgreSQL keeps: thousands slow each batch.",
    ),
    gauge(
        "store_clock_ahead_ms",
        "keyfast_store_clock_ahead_seconds",
        "How far the time of PostgreSQL's keys is ahead of the clock of its server.",
    )
    .of_units(1000),
    counter("locks_unfollowed", "keyfast_locks_unfollowed_total", "Locks that were taken and not tracked."),
];
