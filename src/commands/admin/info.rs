//! INFO: the server's state, in the fields that people and exporters know from Redis.
//!
//! A section is a list of fields, each printed once; INFO joins them to a text, and metrics are made of the
//! same fields ([`numbers`]), so that both report the same values.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::acl::log::Reason;
use crate::config::{EVICTION_POLICIES, print_percentile};
use crate::instance::Instance;
use crate::keyspace::{Histogram, KeySizes, SIZED_KINDS, Totals};
use crate::persistence::LoadReport;
use crate::platform::memory::available_bytes;
use crate::platform::{processor, system};
use crate::pubsub::ChannelKind;
use crate::resp::{Reply, Request};
use crate::statistics::Count;
use crate::statistics::commands::CommandTotals;

use super::memory::MemoryUse;
use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::facts::lookup::registered;
use crate::commands::facts::{Argument, Categories, Command, Context, Flags, Group, Result, Run, Scope};

pub(in crate::commands) const COMMANDS: &[Command] = &[INFO];

/// Writes the fields of one section.
type Describe = fn(&mut Section, &View<'_>);

/// The sections, in the order in which they are printed, and whether they are printed by default.
const SECTIONS: &[(&str, bool, Describe)] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Threads", true, threads),
    ("Stats", true, stats),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, |_, _| ()),
    ("Commandstats", false, command_statistics),
    ("Errorstats", true, error_statistics),
    ("Latencystats", false, latency_statistics),
    ("Cluster", true, |section, _| section.field("cluster_enabled", 0)),
    ("Keyspace", true, keyspace),
    (KEY_SIZES, true, key_sizes),
    ("Locks", true, locks),
    ("Store", true, store),
];

/// The section for which all keys are looked at.
const KEY_SIZES: &str = "Keysizes";

/// The sections with one line for each of many things, which [`numbers`] leaves out.
const LISTS: &[&str] = &["Threads", "Commandstats", "Errorstats", "Latencystats", "Keyspace", KEY_SIZES];

/// The source of INFO and metrics.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The server that is described.
    pub instance: &'a Instance,
    /// The sums over its shards; `None` if they were busy. Then the fields that need them are missing.
    pub totals: Option<Totals>,
    /// Bytes of memory that were in use before anything was printed.
    pub used_memory: usize,
    /// The sizes of its keys, for each database; `None` if they are not asked for.
    sizes: Option<Arc<Vec<KeySizes>>>,
}

impl<'a> View<'a> {
    /// The view of a server whose shards add up to `totals`.
    pub(crate) fn new(instance: &'a Instance, totals: Option<Totals>) -> View<'a> {
        View { instance, totals, used_memory: instance.used_memory(), sizes: None }
    }
}

/// A line of INFO.
#[derive(Debug)]
pub(crate) struct Field {
    /// The name before the colon.
    pub name: Cow<'static, str>,
    /// Its value, as INFO prints it.
    pub value: String,
}

const INFO: Command = Command {
    name: "info",
    flags: Flags::LOADING.and(Flags::STALE),
    scope: Scope::Walk,
    categories: Categories::DANGEROUS,
    group: Group::SERVER,
    summary: "Returns the state of the server: all sections, or those named.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::string("section").optional().multiple()],
    example: &[("INFO nosuchsection", "\"\"")],
    run: Run::Server(info),
    ..Command::DEFAULTS
};

fn info(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let asks_for = |word: &str| request.from(1).any(|asked| is_word(asked, word));
    let (wants_default, wants_all) =
        (request.len() == 1 || asks_for("default"), asks_for("all") || asks_for("everything"));
    let is_asked_for =
        |name: &str, is_default: bool| wants_all || wants_default && is_default || asks_for(name);
    let used_memory = context.used_memory();
    crate::commands::locks::correcting::correct_in(context.instance, context.tx)?;
    let walk = context.tx.walk()?;
    let sizes = match asks_for(KEY_SIZES) {
        true => Some(context.instance.key_sizes.count(&walk)),
        false if is_asked_for(KEY_SIZES, true) => context.instance.key_sizes.estimate(&walk),
        false => None,
    };
    let view = View { instance: context.instance, totals: Some(walk.totals()), used_memory, sizes };
    let mut text = String::new();
    let asked = SECTIONS.iter().filter(|(name, is_default, _)| is_asked_for(name, *is_default));
    for (name, _, describe) in asked {
        let mut section = Section::default();
        describe(&mut section, &view);
        if *name == "Store" && section.0.is_empty() {
            // There is none.
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.extend(["# ", name, "\r\n"]);
        section.0.iter().for_each(|field| text.extend([&field.name, ":", &field.value, "\r\n"]));
    }
    Ok(reply.verbatim(&text))
}

/// The fields of all sections but [`LISTS`].
pub(crate) fn numbers(view: &View<'_>) -> Vec<Field> {
    let mut section = Section::default();
    for (_, _, describe) in SECTIONS.iter().filter(|(name, ..)| !LISTS.contains(name)) {
        describe(&mut section, view);
    }
    section.0
}

/// The commands that were called or refused, with what is counted of them.
pub(crate) fn used_commands(instance: &Instance) -> impl Iterator<Item = (&'static str, CommandTotals)> {
    let totals = registered()
        .map(|registered| (registered.command.name, instance.statistics.usage(registered.number)));
    totals.filter(|(_, totals)| totals.usage.calls + totals.usage.rejected + totals.usage.failed > 0)
}

/// The commands that were called while `latency-tracking` was on, with how long that took; none while it is
/// off, as in Redis.
pub(crate) fn tracked_commands(instance: &Instance) -> impl Iterator<Item = (&'static str, CommandTotals)> {
    let tracked = registered().take_while(|_| instance.config.latency_tracking.get());
    let totals =
        tracked.map(|registered| (registered.command.name, instance.statistics.latencies(registered.number)));
    totals.filter(|(_, totals)| totals.usage.calls > 0)
}

/// A section that is being written.
#[derive(Default)]
struct Section(Vec<Field>);

impl Section {
    fn field(&mut self, name: impl Into<Cow<'static, str>>, value: impl Display) {
        self.0.push(Field { name: name.into(), value: value.to_string() });
    }

    /// A field that is not always known.
    fn known(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// A number of bytes, once as it is and once for people.
    fn bytes(&mut self, name: &'static str, bytes: usize) {
        self.field(name, bytes);
        self.field(format!("{name}_human"), human(bytes));
    }
}

/// The counts of the lock lens.
fn locks(section: &mut Section, view: &View<'_>) {
    let instance = view.instance;
    let now_ms = instance.clock.now_ms();
    section.field("lock_lens", u8::from(instance.config.lock_lens.get()));
    for (name, value) in crate::commands::locks::watching::fields(instance, now_ms, view.totals.as_ref()) {
        section.field(format!("locks_{}", name.replace('-', "_")), value);
    }
    for (number, (metrics, held)) in instance.lens.metrics(now_ms).into_iter().enumerate() {
        let counts = metrics.counts();
        let [taken, refused, renewals] = [counts.taken, counts.refused, counts.renewals];
        let losses: u64 = counts.losses.iter().sum();
        let (waiting, holding) = (&metrics.waiting, &metrics.holding);
        let [wait_p50, wait_p99] = [50, 99].map(|percent| waiting.percentile_ms(percent));
        let [hold_p50, hold_p99] = [50, 99].map(|percent| holding.percentile_ms(percent));
        section.field(
            format!("lock_metrics_{number}"),
            format_args!(
                "pattern={},held={held},taken={taken},refused={refused},renewals={renewals},losses={losses},\
                 wait_ms_p50={wait_p50},wait_ms_p99={wait_p99},hold_ms_p50={hold_p50},hold_ms_p99={hold_p99}",
                plain(&metrics.pattern)
            ),
        );
    }
}

/// A pattern as part of a field with commas and equals signs, in which clients look for these.
fn plain(pattern: &[u8]) -> String {
    String::from_utf8_lossy(pattern).replace([',', '='], "_")
}

/// How the store does, if there is one.
fn store(section: &mut Section, view: &View<'_>) {
    let Some(remote) = view.instance.remote.get() else { return };
    let health = &remote.health;
    let is_refusing = health.is_refusing.load(Ordering::Relaxed);
    let is_connected = health.is_connected.load(Ordering::Relaxed) && !is_refusing;
    section.field("store_connected", u8::from(is_connected));
    section.field("store_away", u8::from(health.is_away.load(Ordering::Relaxed)));
    for (name, counter) in [
        ("store_connections", &health.connections),
        ("store_batches", &health.batches),
        ("store_requests", &health.requests),
        ("store_batch_microseconds", &health.took_us),
        ("store_overtaken", &health.overtaken),
        ("store_failed", &health.failed),
        ("store_unknown", &health.unknown),
        ("store_confirmations", &health.confirmations),
        ("store_dead_rows", &health.dead_rows),
    ] {
        section.field(name, counter.load(Ordering::Relaxed));
    }
    section.field("store_clock_ahead_ms", health.clock_ahead_ms.load(Ordering::Relaxed));
}

/// A number of bytes as Redis prints it for people.
fn human(bytes: usize) -> String {
    let units = [(1_u64 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match units.iter().find(|(size, _)| bytes as u64 >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes as f64 / *size as f64),
        None => format!("{bytes}B"),
    }
}

fn server(section: &mut Section, view: &View<'_>) {
    let instance = view.instance;
    let now = instance.clock.since_epoch();
    let uptime_s = instance.uptime().as_secs();
    let executable = std::env::current_exe().unwrap_or_default();
    section.field("redis_version", String::from_utf8_lossy(&instance.config.redis_version.get()));
    section.field("redis_git_sha1", "00000000");
    section.field("redis_git_dirty", 0);
    section.field("redis_build_id", 0);
    section.field("redis_mode", "standalone");
    // Valkey alone has a `server_name`. Libraries refuse a name there that they do not know.
    section.field("keyfast_version", env!("CARGO_PKG_VERSION"));
    section.field("os", format_args!("{} {}", system::name_and_version(), std::env::consts::ARCH));
    section.field("arch_bits", usize::BITS);
    section.field("monotonic_clock", "POSIX clock_gettime");
    section.field("multiplexing_api", system::MULTIPLEXING_API);
    section.field("atomicvar_api", "rust");
    // Redis: the version if it was not compiled by gcc.
    section.field("gcc_version", "0.0.0");
    section.field("process_id", std::process::id());
    section.field("process_supervised", instance.supervisor.get().unwrap_or(&"no"));
    section.field("run_id", &instance.run_id);
    section.field("tcp_port", instance.port());
    section.field("server_time_usec", now.as_micros());
    section.field("uptime_in_seconds", uptime_s);
    section.field("uptime_in_days", uptime_s / (24 * 60 * 60));
    section.field("hz", instance.config.hz.get());
    section.field("configured_hz", instance.config.hz.get());
    // Redis: 24 bits of seconds.
    section.field("lru_clock", now.as_secs() & 0xff_ffff);
    // CLOCK may have stopped or moved the clock, which Redis cannot do.
    let clock = instance.clock.read();
    section.field("clock_frozen", u8::from(clock.is_frozen));
    section.field("clock_offset_ms", clock.ahead_ms);
    section.field("executable", executable.display());
    let config_file = instance.config.file.as_deref().unwrap_or(Path::new(""));
    section.field("config_file", config_file.display());
    // No thread does only input and output.
    section.field("io_threads_active", 0);
    listeners(section, view);
}

/// Where clients may connect: by TCP, over a Unix socket and over TLS, numbered in this order.
fn listeners(section: &mut Section, view: &View<'_>) {
    let config = &view.instance.config;
    let bind = String::from_utf8_lossy(&config.bind.get()).into_owned();
    let binds: String = bind.split_whitespace().map(|address| format!("bind={address},")).collect();
    let socket = config.unixsocket.get();
    let (port, tls_port) = (view.instance.port(), config.tls_port.get());
    let of_port = |name: &str, port: u64| format!("name={name},{binds}port={port}");
    // The port is that of TLS if there is no other one.
    let is_plain = config.port.get() > 0 || tls_port == 0 && socket.is_empty();
    let tcp = is_plain.then(|| of_port("tcp", u64::from(port)));
    let unix = (!socket.is_empty()).then(|| format!("name=unix,bind={}", String::from_utf8_lossy(&socket)));
    let tls = (tls_port > 0).then(|| of_port("tls", tls_port as u64));
    for (number, listener) in [tcp, unix, tls].into_iter().flatten().enumerate() {
        section.field(format!("listener{number}"), listener);
    }
}

fn clients(section: &mut Section, view: &View<'_>) {
    let all = view.instance.clients.all();
    let largest_query = all.iter().map(|client| client.footprint.input().query_bytes).max();
    let largest_output = all.iter().map(|client| client.output().bytes).max();
    section.field("connected_clients", all.len());
    section.field("cluster_connections", 0);
    section.field("maxclients", view.instance.config.maxclients.get());
    section.field("client_recent_max_input_buffer", largest_query.unwrap_or(0));
    section.field("client_recent_max_output_buffer", largest_output.unwrap_or(0));
    let blocked = all.iter().filter(|client| client.is_blocked());
    section.field("blocked_clients", blocked.count());
    section.field("tracking_clients", view.instance.tracking.totals().clients);
    let states: Vec<_> = all.iter().map(|client| client.profile.lock().state).collect();
    let listening = states.iter().filter(|state| state.subscriptions != [0; 3]);
    section.field("pubsub_clients", listening.count());
    section.field("watching_clients", states.iter().filter(|state| state.watched > 0).count());
    section.field("clients_in_timeout_table", 0);
    let followed = view.totals.as_ref().map(|totals| totals.followed);
    section.known("total_watched_keys", followed.map(|followed| followed.watched));
    section.known("total_blocking_keys", followed.map(|followed| followed.blocking));
    section.known("total_blocking_keys_on_nokey", followed.map(|followed| followed.blocking_on_absence));
    let long = view.instance.long_requests.totals();
    section.field("long_requests_waiting", long.waiting);
    section.field("long_requests_running", long.running);
    section.field("long_requests_reply_bytes", long.reply_bytes);
    section.field("long_requests_reply_bytes_max", view.instance.long_replies_bytes_max());
    section.field("long_requests_refused", long.refused);
}

fn memory(section: &mut Section, view: &View<'_>) {
    let config = &view.instance.config;
    let table_bytes = view.totals.as_ref().map(Totals::table_bytes);
    let memory = MemoryUse::of(view.instance, view.used_memory, table_bytes.unwrap_or(0));
    let fragmentation = memory.resident as f64 / memory.used.max(1) as f64;
    let free = memory.resident.saturating_sub(memory.used);
    section.bytes("used_memory", memory.used);
    section.bytes("used_memory_rss", memory.resident);
    section.bytes("used_memory_peak", memory.peak);
    section.field("used_memory_peak_time", view.instance.note_peak());
    section.field("used_memory_peak_perc", format_args!("{:.2}%", percent(memory.used, memory.peak)));
    section.known("used_memory_overhead", table_bytes.map(|_| memory.overhead()));
    section.field("used_memory_startup", memory.startup);
    section.known("used_memory_dataset", table_bytes.map(|_| memory.dataset()));
    let beyond_startup = memory.used.saturating_sub(memory.startup);
    let dataset_percent = format!("{:.2}%", percent(memory.dataset(), beyond_startup));
    section.known("used_memory_dataset_perc", table_bytes.map(|_| dataset_percent));
    section.field("allocator_allocated", memory.used);
    section.field("allocator_active", memory.used);
    section.field("allocator_resident", memory.resident);
    section.field("allocator_muzzy", 0);
    section.bytes("total_system_memory", available_bytes());
    scripts(section, view);
    section.bytes("maxmemory", config.maxmemory.size());
    section.field("maxmemory_policy", EVICTION_POLICIES[config.maxmemory_policy.get()]);
    section.field("allocator_frag_ratio", "1.00");
    section.field("allocator_frag_bytes", 0);
    section.field("allocator_rss_ratio", format_args!("{fragmentation:.2}"));
    section.field("allocator_rss_bytes", free);
    section.field("rss_overhead_ratio", "1.00");
    section.field("rss_overhead_bytes", 0);
    section.field("mem_fragmentation_ratio", format_args!("{fragmentation:.2}"));
    section.field("mem_fragmentation_bytes", free);
    section.field("mem_not_counted_for_evict", view.instance.uncounted_memory());
    section.field("mem_replication_backlog", 0);
    section.field("mem_total_replication_buffers", 0);
    section.field("mem_replica_full_sync_buffer", 0);
    section.field("mem_clients_slaves", 0);
    section.field("mem_clients_normal", memory.clients);
    section.field("mem_cluster_slot_migration_output_buffer", 0);
    section.field("mem_cluster_slot_migration_input_buffer", 0);
    section.field("mem_cluster_slot_migration_input_buffer_peak", 0);
    section.field("mem_cluster_links", 0);
    section.field("mem_aof_buffer", view.instance.followers.journal.pending_bytes());
    section.field("mem_allocator", "libc");
    // A table that grows has moved its entries when the command ends.
    section.field("mem_overhead_db_hashtable_rehashing", 0);
    section.field("active_defrag_running", 0);
    section.field("lazyfree_pending_objects", view.instance.freed.pending());
    section.field("lazyfreed_objects", view.instance.freed.done());
}

/// What scripts and libraries take. There is one interpreter for both: all of it counts as that of EVAL.
fn scripts(section: &mut Section, view: &View<'_>) {
    let scripting = &view.instance.scripting;
    let usage = scripting.usage();
    let libraries = scripting.libraries();
    section.bytes("used_memory_lua", usage.bytes);
    section.field("used_memory_vm_eval", usage.bytes);
    section.field("used_memory_scripts_eval", usage.script_bytes);
    section.field("number_of_cached_scripts", usage.scripts);
    section.field("number_of_functions", libraries.function_count());
    section.field("number_of_libraries", libraries.all().len());
    section.field("used_memory_vm_functions", 0);
    section.bytes("used_memory_vm_total", usage.bytes);
    section.field("used_memory_functions", libraries.bytes());
    section.bytes("used_memory_scripts", usage.script_bytes + libraries.bytes());
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// All threads serve all clients, so they count as one.
fn threads(section: &mut Section, view: &View<'_>) {
    let (clients, statistics) = (view.instance.clients.count(), &view.instance.statistics);
    let (reads, writes) = (statistics.total(Count::Reads), statistics.total(Count::Writes));
    section.field("io_thread_0", format_args!("clients={clients},reads={reads},writes={writes}"));
}

fn stats(section: &mut Section, view: &View<'_>) {
    let statistics = &view.instance.statistics;
    let keyspace = view.totals.as_ref().map(|totals| totals.counters);
    section.field("total_connections_received", statistics.total(Count::ConnectionsReceived));
    section.field("total_commands_processed", statistics.total(Count::CommandsProcessed));
    section.field("instantaneous_ops_per_sec", statistics.commands_rate.get());
    section.field("total_net_input_bytes", statistics.total(Count::InputBytes));
    section.field("total_net_output_bytes", statistics.total(Count::OutputBytes));
    section.field("total_net_repl_input_bytes", 0);
    section.field("total_net_repl_output_bytes", 0);
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    section.field("instantaneous_input_kbps", kilobytes(statistics.input_rate.get()));
    section.field("instantaneous_output_kbps", kilobytes(statistics.output_rate.get()));
    section.field("instantaneous_input_repl_kbps", kilobytes(0));
    section.field("instantaneous_output_repl_kbps", kilobytes(0));
    section.field("rejected_connections", statistics.total(Count::ConnectionsRejected));
    section.field("sync_full", 0);
    section.field("sync_partial_ok", 0);
    section.field("sync_partial_err", 0);
    section.known("expired_subkeys", keyspace.map(|counters| counters.expired_fields));
    section.known("expired_subkeys_active", keyspace.map(|counters| counters.swept_fields));
    section.known("expired_keys", keyspace.map(|counters| counters.expired));
    section.known("expired_keys_active", keyspace.map(|counters| counters.swept));
    section.field("expired_stale_perc", "0.00");
    section.field("expired_time_cap_reached_count", 0);
    section.field("expire_cycle_cpu_milliseconds", statistics.total(Count::SweepMicros) / 1000);
    section.known("evicted_keys", keyspace.map(|counters| counters.evicted));
    section.field("evicted_clients", statistics.total(Count::ClientsEvicted));
    section.field("evicted_scripts", view.instance.scripting.forgotten());
    let exceeded = view.instance.exceeding.report();
    section.field("total_eviction_exceeded_time", exceeded.total.as_millis());
    section.field("current_eviction_exceeded_time", exceeded.current.as_millis());
    section.known("keyspace_hits", keyspace.map(|counters| counters.hits));
    section.known("keyspace_misses", keyspace.map(|counters| counters.misses));
    section.field("pubsub_channels", view.instance.pubsub.count(ChannelKind::Channel));
    section.field("pubsub_patterns", view.instance.pubsub.count(ChannelKind::Pattern));
    section.field("pubsubshard_channels", view.instance.pubsub.count(ChannelKind::Shard));
    section.field("migrate_cached_sockets", 0);
    section.field("slave_expires_tracked_keys", 0);
    section.field("active_defrag_hits", 0);
    section.field("active_defrag_misses", 0);
    section.field("active_defrag_key_hits", 0);
    section.field("active_defrag_key_misses", 0);
    section.field("total_active_defrag_time", 0);
    section.field("current_active_defrag_time", 0);
    section.field("latest_fork_usec", 0);
    section.field("total_forks", 0);
    let tracked = view.instance.tracking.totals();
    section.field("tracking_total_keys", tracked.keys);
    section.field("tracking_total_items", tracked.items);
    section.field("tracking_total_prefixes", tracked.prefixes);
    section.field("unexpected_error_replies", 0);
    section.field("dump_payload_sanitizations", 0);
    section.field("total_error_replies", statistics.errors.total());
    section.field("total_reads_processed", statistics.total(Count::Reads));
    section.field("total_writes_processed", statistics.total(Count::Writes));
    // There are no threads for input and output, and no reply buffers of a fixed size.
    for name in [
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
        "io_threaded_total_prefetch_batches",
        "io_threaded_total_prefetch_entries",
    ] {
        section.field(name, 0);
    }
    section.field("client_query_buffer_limit_disconnections", statistics.total(Count::QueriesTooLong));
    section.field("client_output_buffer_limit_disconnections", view.instance.clients.cut_off());
    for name in ["reply_buffer_shrinks", "reply_buffer_expands"] {
        section.field(name, 0);
    }
    // Instead of one loop of events there is a turn for each read from a socket.
    let nanos: u64 = used_commands(view.instance).map(|(_, totals)| totals.usage.nanos).sum();
    let (turns, micros) = (statistics.reads_rate.get(), statistics.processor_rate.get());
    section.field("eventloop_cycles", statistics.total(Count::Reads));
    section.field("eventloop_duration_sum", statistics.processor_micros());
    section.field("eventloop_duration_cmd_sum", nanos / 1000);
    section.field("instantaneous_eventloop_cycles_per_sec", turns);
    section.field("instantaneous_eventloop_duration_usec", micros.checked_div(turns).unwrap_or(0));
    let log = &view.instance.acl_log;
    section.field("acl_access_denied_auth", log.count(Reason::Auth));
    section.field("acl_access_denied_cmd", log.count(Reason::Command));
    section.field("acl_access_denied_key", log.count(Reason::Key));
    section.field("acl_access_denied_channel", log.count(Reason::Channel));
    section.field("acl_access_denied_tls_cert", 0);
    section.field("faults_planted", view.instance.faults.count());
    section.field("faults_struck", statistics.total(Count::Faults));
}

fn persistence(section: &mut Section, view: &View<'_>) {
    let instance = view.instance;
    let of_keys = view.totals.as_ref().map(|totals| totals.changes);
    let changes = instance.persistence.changes(of_keys.unwrap_or(0), instance.keyspace.flushes());
    let report = instance.persistence.report(changes);
    let (written, keys) = report.progress;
    let preserved = report.background.map_or(0, |_| view.instance.keyspace.preserved_bytes());
    let seconds = |took: Option<Duration>| took.map_or(-1, |took| took.as_secs() as i64);
    let loading = instance.persistence.loading.report();
    section.field("loading", u8::from(loading.is_some()));
    section.field("async_loading", 0);
    section.field("current_cow_peak", preserved);
    section.field("current_cow_size", preserved);
    section.field("current_cow_size_age", 0);
    section.field("current_fork_perc", format_args!("{:.2}", percent(written, keys)));
    section.field("current_save_keys_processed", written);
    section.field("current_save_keys_total", keys);
    section.known("rdb_changes_since_last_save", of_keys.map(|_| report.changes));
    section.field("rdb_bgsave_in_progress", u8::from(report.background.is_some()));
    section.field("rdb_last_save_time", report.last_save_s);
    section.field("rdb_last_bgsave_status", if report.is_well { "ok" } else { "err" });
    section.field("rdb_last_bgsave_time_sec", seconds(report.last_took));
    section.field("rdb_current_bgsave_time_sec", seconds(report.background));
    section.field("rdb_saves", report.saves);
    section.field("rdb_saves_consecutive_failures", report.failures);
    section.field("rdb_last_cow_size", report.last_preserved_bytes);
    section.field("rdb_last_load_keys_expired", report.loaded.expired);
    section.field("rdb_last_load_keys_loaded", report.loaded.keys);
    let log = instance.persistence.aof.report();
    let is_well = |is_well| if is_well { "ok" } else { "err" };
    section.field("aof_enabled", u8::from(log.is_on));
    section.field("aof_rewrite_in_progress", u8::from(log.rewrite.is_some()));
    section.field("aof_rewrite_scheduled", u8::from(log.is_scheduled));
    section.field("aof_last_rewrite_time_sec", seconds(log.last_rewrite.map(|(took, _)| took)));
    section.field("aof_current_rewrite_time_sec", seconds(log.rewrite));
    section.field("aof_last_bgrewrite_status", is_well(log.last_rewrite.is_none_or(|(_, is_well)| is_well)));
    section.field("aof_rewrites", log.rewrites);
    section.field("aof_rewrites_consecutive_failures", log.failures);
    section.field("aof_last_write_status", is_well(log.is_well));
    section.field("aof_last_cow_size", 0);
    section.field("module_fork_in_progress", 0);
    section.field("module_fork_last_cow_size", 0);
    if log.is_on {
        section.field("aof_current_size", log.bytes);
        section.field("aof_base_size", log.base_bytes);
        section.field("aof_pending_rewrite", 0);
        section.field("aof_buffer_length", instance.followers.journal.pending_bytes());
        section.field("aof_pending_bio_fsync", u8::from(log.is_syncing));
        section.field("aof_delayed_fsync", log.delayed_syncs);
    }
    if let Some(LoadReport { started_s, used_bytes, progress }) = loading {
        section.field("loading_start_time", started_s);
        section.field("loading_total_bytes", progress.total.unwrap_or(0));
        section.field("loading_rdb_used_mem", used_bytes);
        section.field("loading_loaded_bytes", progress.done);
        section.field("loading_loaded_perc", format_args!("{:.2}", progress.share().unwrap_or(0.0) * 100.0));
        section.field("loading_eta_seconds", progress.left().map_or(-1, |left| left.as_secs() as i64));
    }
}

fn replication(section: &mut Section, view: &View<'_>) {
    section.field("role", "master");
    section.field("connected_slaves", 0);
    section.field("master_failover_state", "no-failover");
    section.field("master_replid", view.instance.replication_id.get());
    section.field("master_replid2", "0".repeat(40));
    section.field("master_repl_offset", 0);
    section.field("second_repl_offset", -1);
    section.field("repl_backlog_active", 0);
    section.field("repl_backlog_size", 0);
    section.field("repl_backlog_first_byte_offset", 0);
    section.field("repl_backlog_histlen", 0);
}

/// Processor time of this process and of its main thread, in seconds.
fn cpu(section: &mut Section, _: &View<'_>) {
    let mut field = |name, time: Duration| section.field(name, format_args!("{:.6}", time.as_secs_f64()));
    let (process, children) = (processor::of_process(), processor::of_children());
    field("used_cpu_sys", process.system);
    field("used_cpu_user", process.user);
    field("used_cpu_sys_children", children.system);
    field("used_cpu_user_children", children.user);
    if let Some(main_thread) = processor::of_main_thread() {
        field("used_cpu_sys_main_thread", main_thread.system);
        field("used_cpu_user_main_thread", main_thread.user);
    }
}

fn command_statistics(section: &mut Section, view: &View<'_>) {
    for (name, totals) in used_commands(view.instance) {
        let usage = totals.usage;
        let micros = usage.nanos / 1000;
        let mean = usage.nanos as f64 / 1000.0 / usage.calls.max(1) as f64;
        section.field(
            format!("cmdstat_{name}"),
            format_args!(
                "calls={},usec={micros},usec_per_call={mean:.2},rejected_calls={},failed_calls={}",
                usage.calls, usage.rejected, usage.failed
            ),
        );
    }
}

fn error_statistics(section: &mut Section, view: &View<'_>) {
    for (kind, count) in view.instance.statistics.errors.all() {
        section.field(format!("errorstat_{kind}"), format_args!("count={count}"));
    }
}

fn latency_statistics(section: &mut Section, view: &View<'_>) {
    let percentiles = view.instance.config.latency_percentiles();
    for (name, totals) in tracked_commands(view.instance) {
        let told = percentiles
            .iter()
            .map(|percent| format!("p{}={:.3}", print_percentile(*percent), totals.percentile_us(*percent)));
        let told = told.collect::<Vec<_>>().join(",");
        section.field(format!("latency_percentiles_usec_{name}"), told);
    }
}

fn keyspace(section: &mut Section, view: &View<'_>) {
    let sizes = view.totals.iter().flat_map(|totals| totals.sizes.iter().enumerate());
    for (number, size) in sizes.filter(|(_, size)| size.keys > 0) {
        let ttl_ms = size.mean_ttl_ms(view.instance.clock.now_ms());
        let (keys, expires, subexpiry) = (size.keys, size.expiring, size.field_expiring);
        section.field(
            format!("db{}", view.instance.keyspace.shown_database(number)),
            format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms},subexpiry={subexpiry}"),
        );
    }
}

/// How many keys of each type have how many elements, and with `key-memory-histograms` how many bytes.
fn key_sizes(section: &mut Section, view: &View<'_>) {
    const ELEMENTS: [&str; SIZED_KINDS] =
        ["strings_sizes", "lists_items", "sets_items", "zsets_items", "hashes_items"];
    const BYTES: [&str; SIZED_KINDS] = ["", "lists_sizes", "sets_sizes", "zsets_sizes", "hashes_sizes"];
    let with_bytes = view.instance.config.key_memory_histograms.get();
    for (number, sizes) in view.sizes.iter().flat_map(|sizes| sizes.iter().enumerate()) {
        let number = view.instance.keyspace.shown_database(number);
        let mut add = |names: [&str; SIZED_KINDS], of_kinds: &[Histogram; SIZED_KINDS]| {
            for (name, histogram) in names.iter().zip(of_kinds).filter(|(name, _)| !name.is_empty()) {
                let bars: Vec<_> = histogram.bars().map(|(label, keys)| format!("{label}={keys}")).collect();
                if !bars.is_empty() {
                    section.field(format!("db{number}_distrib_{name}"), bars.join(","));
                }
            }
        };
        add(ELEMENTS, &sizes.elements);
        if with_bytes {
            add(BYTES, &sizes.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_printed_for_people() {
        assert_eq!(human(0), "0B");
        assert_eq!(human(1023), "1023B");
        assert_eq!(human(1_062_736), "1.01M");
        assert_eq!(human(3 << 30), "3.00G");
    }
}
