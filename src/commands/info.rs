//! INFO: the server's state, in the fields that people and exporters know from Redis.

use std::fmt::{Display, Write as _};
use std::fs;

use crate::allocator;
use crate::resp::{Reply, Request};
use crate::statistics::Count;

use super::args::is_word;
use super::command::{Argument, Arity, Categories, Command, Context, Flags, Group, Result, Run, Scope};
use super::connection::REDIS_VERSION;

pub(super) const COMMANDS: &[Command] = &[INFO];

/// Writes the fields of one section.
type Describe = fn(&mut Section, &Context<'_, '_>);

/// The sections, in the order in which they are printed.
const SECTIONS: &[(&str, Describe)] =
    &[("Server", server), ("Clients", clients), ("Memory", memory), ("Stats", stats), ("Keyspace", keyspace)];

const INFO: Command = Command {
    name: "info",
    arity: Arity::AtLeast(1),
    flags: Flags::LOADING.and(Flags::STALE),
    scope: Scope::Everything,
    categories: Categories::DANGEROUS,
    group: Group::Server,
    summary: "Tells the state of the server, all of it or some sections.",
    since: "1.0.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    arguments: &[Argument::string("section").optional().multiple()],
    example: &[("INFO nosuchsection", "\"\"")],
    run: Run::Server(info),
    ..Command::DEFAULTS
};

fn info(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_asked_for = |name: &str| {
        let is_meant = |word: &[u8]| {
            is_word(word, name) || ["all", "default", "everything"].iter().any(|all| is_word(word, all))
        };
        request.len() == 1 || request.from(1).any(is_meant)
    };
    let mut text = String::new();
    for (name, describe) in SECTIONS.iter().filter(|(name, _)| is_asked_for(name)) {
        let separator = if text.is_empty() { "" } else { "\r\n" };
        let mut section = Section { text: format!("{separator}# {name}\r\n") };
        describe(&mut section, context);
        text.push_str(&section.text);
    }
    Ok(reply.verbatim(&text))
}

/// A section that is being written.
struct Section {
    text: String,
}

impl Section {
    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// A number of bytes, once as it is and once for people.
    fn bytes(&mut self, name: &str, bytes: usize) {
        self.field(name, bytes);
        self.field(&format!("{name}_human"), human(bytes));
    }
}

/// A number of bytes as Redis prints it for people.
fn human(bytes: usize) -> String {
    let units = [(1_u64 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match units.iter().find(|(size, _)| bytes as u64 >= *size) {
        Some((size, unit)) => format!("{:.2}{unit}", bytes as f64 / *size as f64),
        None => format!("{bytes}B"),
    }
}

fn server(section: &mut Section, context: &Context<'_, '_>) {
    let instance = context.instance;
    let now = instance.keyspace.clock().since_epoch();
    let uptime_s = instance.uptime().as_secs();
    let kernel = |file: &str| fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    section.field("redis_version", REDIS_VERSION);
    section.field("redis_git_sha1", "00000000");
    section.field("redis_git_dirty", 0);
    section.field("redis_build_id", 0);
    section.field("redis_mode", "standalone");
    section.field("server_name", env!("CARGO_PKG_NAME"));
    section.field("keyfast_version", env!("CARGO_PKG_VERSION"));
    section.field(
        "os",
        format_args!("{} {} {}", kernel("ostype").trim(), kernel("osrelease").trim(), std::env::consts::ARCH),
    );
    section.field("arch_bits", usize::BITS);
    section.field("multiplexing_api", "epoll");
    section.field("process_id", std::process::id());
    section.field("process_supervised", "no");
    section.field("run_id", &instance.run_id);
    section.field("tcp_port", instance.port());
    section.field("server_time_usec", now.as_micros());
    section.field("uptime_in_seconds", uptime_s);
    section.field("uptime_in_days", uptime_s / (24 * 60 * 60));
    section.field("hz", 10);
    section.field("configured_hz", 10);
    // Redis: 24 bits of seconds.
    section.field("lru_clock", now.as_secs() & 0xff_ffff);
    section.field("executable", executable.display());
    section.field("config_file", "");
}

fn clients(section: &mut Section, context: &Context<'_, '_>) {
    let all = context.instance.clients.all();
    let largest_query = all.iter().map(|client| client.profile.lock().query_bytes).max();
    section.field("connected_clients", all.len());
    section.field("cluster_connections", 0);
    section.field("maxclients", context.instance.config.maxclients.get());
    section.field("client_recent_max_input_buffer", largest_query.unwrap_or(0));
    section.field("client_recent_max_output_buffer", 0);
    section.field("blocked_clients", 0);
    section.field("tracking_clients", 0);
    section.field("clients_in_timeout_table", 0);
}

fn memory(section: &mut Section, context: &Context<'_, '_>) {
    let dataset: usize = context.tx.database_sizes().map(|size| size.table_bytes).sum();
    let resident = Resident::read();
    section.bytes("used_memory", allocator::used_bytes());
    section.bytes("used_memory_rss", resident.now);
    section.bytes("used_memory_peak", resident.peak);
    section.field("used_memory_peak_perc", format_args!("{:.2}%", percent(resident.now, resident.peak)));
    section.field("used_memory_overhead", resident.now.saturating_sub(dataset));
    section.field("used_memory_dataset", dataset);
    section.field("used_memory_dataset_perc", format_args!("{:.2}%", percent(dataset, resident.now)));
    section.bytes("total_system_memory", system_memory());
    section.bytes("maxmemory", 0);
    section.field("maxmemory_policy", "noeviction");
    section.field("mem_fragmentation_ratio", "1.00");
    section.field("mem_fragmentation_bytes", 0);
    section.field("mem_allocator", "libc");
    section.field("active_defrag_running", 0);
    section.field("lazyfree_pending_objects", 0);
}

fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Memory of this process that the system holds for it.
struct Resident {
    now: usize,
    peak: usize,
}

impl Resident {
    fn read() -> Resident {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Resident { now: kilobytes(&status, "VmRSS:"), peak: kilobytes(&status, "VmHWM:") }
    }
}

/// Bytes that the system holds for this process.
pub(super) fn resident_bytes() -> usize {
    Resident::read().now
}

fn system_memory() -> usize {
    kilobytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// The bytes on the line of a file in `/proc` that begins with `name`; 0 where there is no such file.
fn kilobytes(text: &str, name: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    number.unwrap_or(0) * 1024
}

fn stats(section: &mut Section, context: &Context<'_, '_>) {
    let statistics = &context.instance.statistics;
    let keyspace = context.tx.counters();
    section.field("total_connections_received", statistics.total(Count::ConnectionsReceived));
    section.field("total_commands_processed", statistics.total(Count::CommandsProcessed));
    section.field("instantaneous_ops_per_sec", statistics.commands_rate.get());
    section.field("total_net_input_bytes", statistics.total(Count::InputBytes));
    section.field("total_net_output_bytes", statistics.total(Count::OutputBytes));
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    section.field("instantaneous_input_kbps", kilobytes(statistics.input_rate.get()));
    section.field("instantaneous_output_kbps", kilobytes(statistics.output_rate.get()));
    section.field("rejected_connections", statistics.total(Count::ConnectionsRejected));
    section.field("expired_keys", keyspace.expired);
    section.field("evicted_keys", 0);
    section.field("evicted_clients", 0);
    section.field("keyspace_hits", keyspace.hits);
    section.field("keyspace_misses", keyspace.misses);
    section.field("pubsub_channels", 0);
    section.field("pubsub_patterns", 0);
    section.field("latest_fork_usec", 0);
    section.field("total_forks", 0);
    section.field("total_error_replies", statistics.total(Count::ErrorReplies));
    section.field("total_reads_processed", statistics.total(Count::Reads));
    section.field("total_writes_processed", statistics.total(Count::Writes));
}

fn keyspace(section: &mut Section, context: &Context<'_, '_>) {
    for (number, size) in context.tx.database_sizes().enumerate() {
        if size.keys > 0 {
            let line = format_args!("keys={},expires={},avg_ttl=0", size.keys, size.expiring);
            section.field(&format!("db{number}"), line);
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

    #[test]
    fn a_line_of_proc_is_read() {
        assert_eq!(kilobytes("VmPeak:\t  9 kB\nVmRSS:\t   12 kB\n", "VmRSS:"), 12 * 1024);
        assert_eq!(kilobytes("", "VmRSS:"), 0);
    }
}
