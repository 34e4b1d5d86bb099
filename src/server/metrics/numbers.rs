//! The values of all metrics: those of INFO, and those of commands, errors, databases, slow requests and
//! locks.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use crate::commands::admin::info::{self, View};
use crate::config::print_percentile;
use crate::instance::Instance;
use crate::keyspace::DatabaseSize;
use crate::lens::{End, Histogram, PatternCounts, PatternMetrics, Rule};
use crate::statistics::commands::CommandTotals;

use super::page::{MetricKind, Page};
use super::table::metrics;

/// The upper limits of the histograms are the powers of two up to this one, in microseconds: about 1 s. The
/// page always has all of them: a limit that appeared later would have no history.
const LARGEST_POWER: u32 = 20;

/// The fields of INFO by their names.
type Fields<'a> = HashMap<&'a str, &'a str>;

/// Writes all metrics. `started_s` is when the server was started, in seconds since 1970.
pub(super) fn tell(page: &mut Page, view: &View<'_>, started_s: u64) {
    let instance = view.instance;
    let fields = info::numbers(view);
    let fields: Fields<'_> = fields.iter().map(|field| (&*field.name, &*field.value)).collect();
    page.single("redis_up", MetricKind::Gauge, "Whether the server runs.", 1);
    let help = "When the server was started, in seconds since 1970.";
    page.single("redis_start_time_seconds", MetricKind::Gauge, help, started_s);
    tell_instance(page, &fields);
    for metric in metrics() {
        if let Some(value) = fields.get(metric.field).copied().and_then(number) {
            page.single(metric.name, metric.kind, metric.help, in_units(value, metric.units));
        }
    }
    tell_findings(page, &fields);
    tell_patterns(page, instance);
    tell_parameters(page, instance);
    tell_databases(page, view);
    tell_commands(page, instance);
    tell_errors(page, instance);
    tell_slow_requests(page, instance);
    tell_long_events(page, instance);
}

/// Writes the metrics of the scrape itself.
pub(super) fn tell_scrape(page: &mut Page, scrapes: u64, took: Duration, has_shards: bool) {
    let help = "The version of the exporter: the server itself.";
    let mut build = page.family("redis_exporter_build_info", MetricKind::Gauge, help);
    build.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let help = "How often metrics were scraped.";
    page.single("redis_exporter_scrapes_total", MetricKind::Counter, help, scrapes);
    let help = "Seconds that this scrape took.";
    page.single("redis_exporter_last_scrape_duration_seconds", MetricKind::Gauge, help, took.as_secs_f64());
    let help =
        "Whether something is missing, and why: totals of keys are missing while a script has the keys.";
    let mut error = page.family("redis_exporter_last_scrape_error", MetricKind::Gauge, help);
    let why = if has_shards { "" } else { "a script has the keys" };
    error.sample(&[("err", why)], u8::from(!has_shards));
}

/// The value of a sample from a value of INFO: a number as it is, or 1 for `ok` and 0 for `err`.
fn number(value: &str) -> Option<&str> {
    match value {
        "ok" => Some("1"),
        "err" => Some("0"),
        _ => value.parse::<f64>().ok().map(|_| value),
    }
}

/// A number in a unit that is so many times as large.
fn in_units(value: &str, units: u32) -> Cow<'_, str> {
    match (units, value.parse::<f64>()) {
        (1, _) | (_, Err(_)) => Cow::Borrowed(value),
        (units, Ok(number)) => Cow::Owned((number / f64::from(units)).to_string()),
    }
}

fn tell_instance(page: &mut Page, fields: &Fields<'_>) {
    const LABELS: [&str; 10] = [
        "role",
        "redis_version",
        "redis_build_id",
        "redis_mode",
        "os",
        "maxmemory_policy",
        "tcp_port",
        "run_id",
        "process_id",
        "master_replid",
    ];
    let labels = LABELS.map(|name| (name, fields.get(name).copied().unwrap_or_default()));
    page.family("redis_instance_info", MetricKind::Gauge, "Labels that identify the server.")
        .sample(&labels, 1);
    let versions = [("version", env!("CARGO_PKG_VERSION"))];
    page.family("keyfast_build_info", MetricKind::Gauge, "The version of Keyfast.").sample(&versions, 1);
}

/// Writes the findings about locks. INFO has a field for each rule.
fn tell_findings(page: &mut Page, fields: &Fields<'_>) {
    let help = "Problems with locks, by the rules of LOCKS LOG.";
    let mut findings = page.family("keyfast_locks_findings_total", MetricKind::Counter, help);
    for rule in Rule::ALL {
        let field = format!("locks_{}", rule.name().replace('-', "_"));
        if let Some(count) = fields.get(field.as_str()) {
            findings.sample(&[("rule", rule.name())], count);
        }
    }
}

/// Writes what is counted by the patterns of `lock-metrics`.
fn tell_patterns(page: &mut Page, instance: &Instance) {
    let all = instance.lens.metrics(instance.clock.now_ms());
    let all: Vec<_> = all
        .iter()
        .map(|(metrics, held)| (String::from_utf8_lossy(&metrics.pattern), &**metrics, *held))
        .collect();
    let help = "Locks that are held now, by the patterns of lock-metrics.";
    let mut family = page.family("keyfast_locks_pattern_held", MetricKind::Gauge, help);
    all.iter().for_each(|(pattern, _, held)| family.sample(&[("pattern", pattern)], held));
    let mut tell = |name, help, value: fn(&PatternCounts) -> u64| {
        let mut family = page.family(name, MetricKind::Counter, help);
        for (pattern, metrics, _) in &all {
            family.sample(&[("pattern", pattern)], value(&metrics.counts()));
        }
    };
    tell("keyfast_locks_pattern_taken_total", "How often a lock was taken.", |counts| counts.taken);
    tell("keyfast_locks_pattern_refused_total", "How many attempts failed.", |counts| counts.refused);
    let help = "How often a holder has renewed its lock.";
    tell("keyfast_locks_pattern_renewals_total", help, |counts| counts.renewals);
    let help = "How often a holder has lost its lock, by the way in which it was lost.";
    let mut losses = page.family("keyfast_locks_pattern_losses_total", MetricKind::Counter, help);
    for (pattern, metrics, _) in &all {
        for (end, times) in End::LOSSES.iter().zip(metrics.counts().losses) {
            losses.sample(&[("pattern", pattern), ("reason", end.name())], times);
        }
    }
    let mut tell = |name, help, histogram: fn(&PatternMetrics) -> &Histogram| {
        let mut family = page.family(name, MetricKind::Histogram, help);
        for (pattern, metrics, _) in &all {
            let histogram = histogram(metrics);
            let mut count = 0;
            for (limit_ms, within) in histogram.cumulative() {
                let limit = limit_ms.map_or("+Inf".to_owned(), |ms| (ms as f64 / 1e3).to_string());
                family.part("_bucket", &[("pattern", pattern), ("le", &limit)], within);
                count = within;
            }
            family.part("_sum", &[("pattern", pattern)], histogram.total_ms() as f64 / 1e3);
            family.part("_count", &[("pattern", pattern)], count);
        }
    };
    let help = "For how long clients waited that have taken a lock.";
    tell("keyfast_locks_pattern_wait_seconds", help, |metrics| &metrics.waiting);
    let help = "For how long clients held a lock.";
    tell("keyfast_locks_pattern_hold_seconds", help, |metrics| &metrics.holding);
}

fn tell_parameters(page: &mut Page, instance: &Instance) {
    let config = &instance.config;
    for (name, parameter) in [
        ("redis_config_maxclients", &config.maxclients),
        ("redis_config_maxmemory", &config.maxmemory),
        ("redis_config_io_threads", &config.io_threads),
    ] {
        page.single(name, MetricKind::Gauge, "The value of the parameter.", parameter.get());
    }
}

/// Writes the metrics of databases that have keys, and of database 0.
fn tell_databases(page: &mut Page, view: &View<'_>) {
    let Some(totals) = &view.totals else { return };
    let sizes = totals.sizes.iter().enumerate();
    let sizes: Vec<_> = sizes
        .filter(|(number, size)| *number == 0 || size.keys > 0)
        .map(|(number, size)| (format!("db{number}"), size))
        .collect();
    let mut tell = |name, help, value: fn(&DatabaseSize) -> usize| {
        let mut family = page.family(name, MetricKind::Gauge, help);
        sizes.iter().for_each(|(database, size)| family.sample(&[("db", database)], value(size)));
    };
    tell("redis_db_keys", "Keys of each database.", |size| size.keys);
    tell("redis_db_keys_expiring", "Keys of each database that expire.", |size| size.expiring);
    tell(
        "keyfast_db_hashes_with_expiring_fields",
        "Hashes of each database of which some fields expire.",
        |size| size.field_expiring,
    );
    let now_ms = view.instance.clock.now_ms();
    let help = "For how long the keys of each database that expire stay on average.";
    let mut family = page.family("redis_db_avg_ttl_seconds", MetricKind::Gauge, help);
    for (database, size) in &sizes {
        family.sample(&[("db", database)], size.mean_ttl_ms(now_ms) as f64 / 1e3);
    }
}

/// Writes the counts and times of each command that was used.
fn tell_commands(page: &mut Page, instance: &Instance) {
    let used: Vec<_> = info::used_commands(instance).collect();
    let mut tell = |name, help, value: fn(&CommandTotals) -> f64| {
        let mut family = page.family(name, MetricKind::Counter, help);
        used.iter().for_each(|(command, totals)| family.sample(&[("cmd", command)], value(totals)));
    };
    tell("redis_commands_total", "How often each command was run.", |totals| totals.usage.calls as f64);
    let help = "Seconds that each command ran, all calls together.";
    tell("redis_commands_duration_seconds_total", help, |totals| totals.usage.nanos as f64 / 1e9);
    let help = "How often each command was refused before it ran.";
    tell("redis_commands_rejected_calls_total", help, |totals| totals.usage.rejected as f64);
    let help = "How often each command ran and returned an error.";
    tell("redis_commands_failed_calls_total", help, |totals| totals.usage.failed as f64);
    let called: Vec<_> = info::tracked_commands(instance).collect();
    let help = "How long each command ran, in microseconds.";
    let mut latencies = page.family("redis_commands_latencies_usec", MetricKind::Histogram, help);
    for (command, totals) in &called {
        let points = totals.cumulative_us();
        let within = |limit_us| {
            points.iter().take_while(|(point_us, _)| *point_us <= limit_us).last().map_or(0, |point| point.1)
        };
        for limit_us in (0..=LARGEST_POWER).map(|power| 1_u64 << power) {
            let labels = [("cmd", *command), ("le", &*limit_us.to_string())];
            latencies.part("_bucket", &labels, within(limit_us));
        }
        let calls = within(u64::MAX);
        latencies.part("_bucket", &[("cmd", command), ("le", "+Inf")], calls);
        latencies.part("_sum", &[("cmd", command)], totals.usage.nanos as f64 / 1e3);
        latencies.part("_count", &[("cmd", command)], calls);
    }
    let help = "Microseconds within which this share of the calls of each command ended.";
    let mut percentiles = page.family("redis_latency_percentiles_usec", MetricKind::Summary, help);
    for (command, totals) in &called {
        for percent in instance.config.latency_percentiles() {
            let labels = [("cmd", *command), ("quantile", &*print_percentile(percent))];
            percentiles.sample(&labels, totals.percentile_us(percent));
        }
        percentiles.part("_sum", &[("cmd", command)], totals.usage.nanos as f64 / 1e3);
        percentiles.part("_count", &[("cmd", command)], totals.usage.calls);
    }
}

fn tell_errors(page: &mut Page, instance: &Instance) {
    let help = "Error replies, by their first word.";
    let mut errors = page.family("redis_errors_total", MetricKind::Counter, help);
    for (kind, count) in instance.statistics.errors.all() {
        errors.sample(&[("err", &kind)], count);
    }
}

fn tell_slow_requests(page: &mut Page, instance: &Instance) {
    let slowlog = &instance.statistics.command_logs.slow;
    let newest = slowlog.newest(1).pop();
    page.single("redis_slowlog_length", MetricKind::Gauge, "Requests that SLOWLOG keeps.", slowlog.len());
    let id = newest.as_ref().map_or(0, |request| request.id);
    page.single(
        "redis_slowlog_last_id",
        MetricKind::Gauge,
        "The number of the newest of these requests.",
        id,
    );
    let took_s = newest.map_or(0.0, |request| request.measure as f64 / 1e6);
    let help = "Seconds that the newest of these requests took.";
    page.single("redis_last_slow_execution_duration_seconds", MetricKind::Gauge, help, took_s);
}

/// Writes the events of LATENCY.
fn tell_long_events(page: &mut Page, instance: &Instance) {
    let events = instance.statistics.latency.all();
    let spikes: Vec<_> = events
        .iter()
        .filter_map(|(event, history)| Some(([("event_name", *event)], history.samples.back()?)))
        .collect();
    let help = "When an event last took long, in seconds since 1970.";
    let mut last = page.family("redis_latency_spike_last", MetricKind::Gauge, help);
    spikes.iter().for_each(|(labels, (at_s, _))| last.sample(labels, at_s));
    let help = "Seconds that the event took that time.";
    let mut duration = page.family("redis_latency_spike_duration_seconds", MetricKind::Gauge, help);
    spikes.iter().for_each(|(labels, (_, took_ms))| duration.sample(labels, *took_ms as f64 / 1e3));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::super::table::Metric;
    use super::*;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::Hooks;
    use crate::remote::clock::OnJump;
    use crate::remote::store_keys::StoreKeys;
    use crate::remote::{Remote, Settings, Target, TlsFiles};

    fn fields() -> Vec<(String, String)> {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        // Some fields exist only with a log.
        instance.persistence.aof.turn(true);
        // Others exist only with a store.
        let settings = Settings {
            target: Target::Postgres("postgres://nowhere".to_owned()),
            databases: 16,
            store_keys: StoreKeys::new(b""),
            name: "server".to_owned(),
            patience: Duration::from_secs(1),
            batch_requests_max: 1,
            tls: TlsFiles::default(),
            clock_jump_max: Duration::from_secs(1),
            on_clock_jump: OnJump::Correct,
        };
        let _ = instance.remote.set(Arc::new(Remote::new(settings)));
        // And others while data are loaded.
        let _running = instance.persistence.loading.begin(1, 0, 0);
        let totals = instance.keyspace.totals_soon();
        let fields = info::numbers(&View::new(&instance, totals));
        fields.into_iter().map(|field| (field.name.into_owned(), field.value)).collect()
    }

    #[test]
    fn every_number_of_info_is_a_metric() {
        // Labels of redis_instance_info, numbers that are constant or repeat others, and the rules of the
        // lens, which are labels.
        const NO_METRICS: &str = "redis_git_sha1 redis_git_dirty redis_build_id arch_bits tcp_port \
            server_time_usec uptime_in_days lru_clock rss_overhead_ratio rss_overhead_bytes \
            current_cow_peak current_cow_size_age current_fork_perc loading_start_time \
            loading_rdb_used_mem loading_loaded_perc io_threads_active used_memory_peak_time allocator_muzzy \
            mem_replica_full_sync_buffer mem_cluster_slot_migration_output_buffer \
            mem_cluster_slot_migration_input_buffer mem_cluster_slot_migration_input_buffer_peak \
            mem_overhead_db_hashtable_rehashing total_net_repl_input_bytes total_net_repl_output_bytes \
            instantaneous_input_repl_kbps instantaneous_output_repl_kbps total_active_defrag_time \
            current_active_defrag_time io_threaded_reads_processed io_threaded_writes_processed \
            io_threaded_total_prefetch_batches io_threaded_total_prefetch_entries reply_buffer_shrinks \
            reply_buffer_expands eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum \
            instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec \
            acl_access_denied_tls_cert";
        let rules = Rule::ALL.map(|rule| format!("locks_{}", rule.name().replace('-', "_")));
        for (name, value) in fields() {
            let is_hexadecimal = ["run_id", "master_replid", "master_replid2"].contains(&name.as_str());
            let is_known = metrics().any(|metric| metric.field == name)
                || NO_METRICS.split_whitespace().any(|other| other == name)
                || rules.contains(&name);
            assert!(
                is_known || is_hexadecimal || number(&value).is_none(),
                "{name} is {value}, and no metric"
            );
        }
    }

    #[test]
    fn every_metric_has_its_field_and_a_name_of_its_own() {
        let fields = fields();
        let mut names = HashSet::new();
        for metric in metrics() {
            let value = fields.iter().find(|(name, _)| name == metric.field).map(|(_, value)| value);
            let value = value.unwrap_or_else(|| panic!("INFO has no field {}", metric.field));
            assert!(number(value).is_some(), "{} is {value}", metric.field);
            assert!(names.insert(metric.name), "{} twice", metric.name);
        }
    }

    #[test]
    fn metrics_of_our_own_count_whole_units() {
        for Metric { field, name, units, .. } in metrics().filter(|it| it.name.starts_with("keyfast_")) {
            let parts: Vec<&str> = name.split('_').collect();
            let small = ["microseconds", "milliseconds", "usec", "us", "ms", "kilobytes"];
            assert!(!small.iter().any(|unit| parts.contains(unit)), "{name}");
            let expected = match field.rsplit('_').next() {
                Some("microseconds" | "usec") => 1_000_000,
                Some("ms") => 1000,
                _ => 1,
            };
            assert_eq!(units, expected, "{name}");
        }
        assert_eq!(in_units("1234", 1), "1234");
        assert_eq!(in_units("1234567", 1_000_000), "1.234567");
        assert_eq!(in_units("-250", 1000), "-0.25");
    }
}
