//! Keyfast beside other servers of its kind: `cargo bench --bench compare`.
//!
//! Starts Keyfast and every Redis-compatible server it finds, drives them in alternating rounds with the same
//! load, and prints medians: throughput, the processor time that the server itself spent on a command (from
//! the operating system's accounting), and bytes of memory for a key. On a noisy machine only the ratios
//! hold, and processor time holds better than throughput.

mod chart;
mod collections;
mod disk;
mod load;
mod long;
mod options;
mod pause;
mod report;
mod results;
mod server;
#[expect(dead_code, reason = "another picture uses the rest")]
#[path = "../../tests/server/pictures/svg.rs"]
mod svg;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use keyfast::internals::progress;

use load::{Load, Verb};
use options::{Options, Part};
use report::{Figures, Report, median};
use results::{Results, Run};
use server::{Program, Server, pin_this_process};
use svg::Theme;

fn main() {
    if let Err(why) = run() {
        eprintln!("compare: {why}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let Some(options) = options::parse(std::env::args())? else { return Ok(()) };
    if !options.from.is_empty() {
        let results = Results::read(&options.from)?;
        keep_results(&options, &results)?;
        return draw_charts(&options, &results);
    }
    let programs = options.programs()?;
    let run =
        Run { date: today()?, machine: server::machine(), settings: settings(&options), parts: Vec::new() };
    progress::allow_bars();
    let mut report = Report::new(&programs, options.rows());
    println!("{}", describe(&options, &programs));
    for part in options.parts() {
        report.begin(part);
        match part {
            Part::Cpu => compare_cpu(&options, &programs, &mut report)?,
            Part::Memory => compare_memory(&options, &programs, &mut report)?,
            Part::Pause => compare_pauses(&options, &programs, &mut report)?,
            Part::Snapshot => disk::compare_snapshots(&options, &programs, &mut report)?,
            Part::Durable => disk::compare_durability(&options, &programs, &mut report)?,
            Part::Connections => compare_connections(&options, &programs, &mut report)?,
            Part::Threads => compare_threads(&options, &programs, &mut report)?,
            Part::Scripts => compare_scripts(&options, &programs, &mut report)?,
            Part::Limits => compare_limits(&options, &programs, &mut report)?,
            Part::Collections => collections::compare(&options, &programs, &mut report)?,
            Part::Long => long::compare(&options, &programs, &mut report)?,
            Part::Lens => report = compare_lens(&options, &programs[0])?,
        }
        // After each part: a long run that is stopped has then not been in vain.
        keep_results(&options, &report.results(run.clone()))?;
    }
    let finished = report.finish();
    print!("{}", report.table());
    draw_charts(&options, &report.results(run))?;
    finished
}

/// Writes the results to the file that the options name, if they do.
fn keep_results(options: &Options, results: &Results) -> Result<(), String> {
    options.results.as_ref().map_or(Ok(()), |path| write(path, &results.text()))
}

/// Draws the results for light and for dark pages, if the options name a chart.
fn draw_charts(options: &Options, results: &Results) -> Result<(), String> {
    let Some(name) = &options.chart else { return Ok(()) };
    for theme in Theme::ALL {
        let path = format!("{}-{}.svg", name.display(), theme.name());
        write(path.as_ref(), &chart::draw(results, theme)?)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("could not write {}: {error}", path.display()))
}

/// The date in UTC, as `2026-01-31`.
fn today() -> Result<String, String> {
    let output = Command::new("date").args(["-u", "+%F"]).output();
    let output = output.map_err(|error| format!("could not run date: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn settings(options: &Options) -> String {
    format!(
        "{} connections, {}-byte values, {} random keys (memory: {}), medians of {} rounds of {} s; \
         servers have {} core{}, clients another",
        options.connections,
        options.value_bytes,
        options.keys,
        options.memory_keys,
        options.rounds,
        options.seconds,
        options.server_cores,
        if options.server_cores == 1 { "" } else { "s" }
    )
}

fn describe(options: &Options, programs: &[Program]) -> String {
    let versions: Vec<&str> = programs.iter().map(|program| program.version.as_str()).collect();
    format!("{}\n{}\n", versions.join("\n"), settings(options))
}

/// Throughput and processor time of every command at every depth.
fn compare_cpu(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers = start_all(options, programs)?;
    for server in &servers {
        fill(options, server, options.keys, options.value_bytes, None)?;
    }
    for depth in &options.depths {
        for verb in [Verb::Set, Verb::Get, Verb::SetNx] {
            let mut figures = vec![Vec::new(); servers.len()];
            for _ in 0..options.rounds {
                // In turn, so that whatever else the machine does falls on all alike.
                for (server, figures) in servers.iter().zip(&mut figures) {
                    figures.push(measure(options, server, verb, *depth)?);
                }
            }
            let what = format!("{} at depth {depth}", verb.name());
            let of = |figure: fn(&Figures) -> f64| {
                figures.iter().map(|rounds| median(rounds.iter().map(figure).collect())).collect()
            };
            report.add(&what, "CPU µs per command", of(|figures| figures.cpu_us));
            report.add("", "  of it in user space", of(|figures| figures.user_us));
            report.add_rate("", "1,000 commands per second", of(|figures| figures.thousands_per_second));
        }
    }
    Ok(())
}

fn start_all(options: &Options, programs: &[Program]) -> Result<Vec<Server>, String> {
    let servers = programs.iter().map(|program| program.start(options.server_cores)).collect();
    pin_this_process(options.server_cores);
    servers
}

/// Writes so many keys, each once.
fn fill(
    options: &Options,
    server: &Server,
    keys: usize,
    value_bytes: usize,
    expiry_ms: Option<u64>,
) -> Result<(), String> {
    let mut load = Load::new(server.address(), options.connections.min(keys), keys, value_bytes, expiry_ms)?;
    load.fill()
}

fn measure(options: &Options, server: &Server, verb: Verb, depth: usize) -> Result<Figures, String> {
    let mut load = Load::new(server.address(), options.connections, options.keys, options.value_bytes, None)?;
    if matches!(verb, Verb::Release) {
        load.load_script()?;
    }
    // A moment to warm up, which is not counted.
    load.drive(verb, depth, options.seconds / 10.0)?;
    let (cpu_before, ticks_before, started) = (server.cpu_seconds()?, server.ticks()?, Instant::now());
    let commands = load.drive(verb, depth, options.seconds)? as f64;
    let (cpu_after, ticks_after, elapsed) = (server.cpu_seconds()?, server.ticks()?, started.elapsed());
    let cpu_us = (cpu_after - cpu_before) * 1e6 / commands;
    let [user, system] = [0, 1].map(|mode| ticks_after[mode] - ticks_before[mode]);
    Ok(Figures {
        cpu_us,
        // At least one tick is divided by: a round may be shorter than that.
        user_us: cpu_us * user / (user + system).max(1.0),
        thousands_per_second: commands / elapsed.as_secs_f64() / 1000.0,
    })
}

/// Memory when idle, for a key in several shapes, and for idle connections.
fn compare_memory(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let idle = each_fresh(options, programs, |server| Ok(server.resident_bytes()? / 1048576.0))?;
    report.add("memory", "MiB when idle", idle);
    let keys = options.memory_keys;
    let shapes = [
        (format!("bytes per key, {keys} of 16 bytes, values of 32"), keys, 32, None),
        ("  the same with an expiry on every key".to_owned(), keys, 32, Some(100_000_000)),
        ("  with values of 1 KiB, a tenth as many keys".to_owned(), (keys / 10).max(1), 1024, None),
    ];
    for (what, keys, value_bytes, expiry_ms) in shapes {
        let bytes = each_fresh(options, programs, |server| {
            let before = server.resident_bytes()?;
            fill(options, server, keys, value_bytes, expiry_ms)?;
            Ok((server.resident_bytes()? - before) / keys as f64)
        })?;
        report.add("", &what, bytes);
    }
    let connected = each_fresh(options, programs, |server| {
        let load = Load::new(server.address(), 1000, 1, 32, None)?;
        let resident = server.resident_bytes()? / 1048576.0;
        drop(load);
        Ok(resident)
    })?;
    report.add("", "MiB with 1,000 idle connections", connected);
    Ok(())
}

/// How long a client may have to wait while another one fills the server as fast as it can, and while a
/// million keys expire in the same second.
fn compare_pauses(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    const EXPIRING: usize = 1_000_000;
    const EXPIRY_MS: u64 = 5000;
    /// Longer than the expiry and the freeing of them all take.
    const WATCHED: Duration = Duration::from_secs(9);
    let keys = options.pause_keys;
    let (mut inserting, mut expiring) = (Vec::new(), Vec::new());
    for program in programs {
        let server = program.start(options.server_cores)?;
        pin_this_process(options.server_cores);
        let work = || fill(options, &server, keys, options.value_bytes, None);
        inserting.push(pause::measure(&server, pause::get_missing, work)?);
        drop(server);
        let server = program.start(options.server_cores)?;
        fill(options, &server, EXPIRING, options.value_bytes, Some(EXPIRY_MS))?;
        expiring.push(pause::measure(&server, pause::get_missing, || {
            thread::sleep(WATCHED);
            Ok(())
        })?);
    }
    for (what, waits) in [
        (format!("a GET while {keys} keys are inserted"), inserting),
        (format!("a GET while {EXPIRING} keys expire"), expiring),
    ] {
        report.add(&what, "longest wait, ms", waits.iter().map(|waits| waits.longest_ms).collect());
        report.add("", "99.9th percentile, ms", waits.iter().map(|waits| waits.most_ms).collect());
    }
    Ok(())
}

/// Throughput for a second of processor time, with few clients and with many.
fn compare_connections(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    rlimit::increase_nofile_limit(6000).map_err(|error| format!("no room for 5,000 sockets: {error}"))?;
    for connections in [50, 5000] {
        let mut options = options.clone();
        options.connections = connections;
        let servers = start_all(&options, programs)?;
        let mut figures = Vec::new();
        for server in &servers {
            let rounds = rounds_of_gets(&options, server, 1)?;
            figures.push(median(rounds.iter().map(|figures| 1000.0 / figures.cpu_us).collect()));
        }
        report.add_rate(&format!("GET from {connections} clients"), "1,000 commands per CPU second", figures);
    }
    Ok(())
}

/// What GETs cost a server that holds all the keys.
fn rounds_of_gets(options: &Options, server: &Server, depth: usize) -> Result<Vec<Figures>, String> {
    fill(options, server, options.keys, options.value_bytes, None)?;
    (0..options.rounds).map(|_| measure(options, server, Verb::Get, depth)).collect()
}

/// What it costs to let a lock go by a script, beside a plain GET.
fn compare_scripts(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers = start_all(options, programs)?;
    for depth in &options.depths {
        for verb in [Verb::Get, Verb::Release] {
            let mut figures = vec![Vec::new(); servers.len()];
            for _ in 0..options.rounds {
                for (server, figures) in servers.iter().zip(&mut figures) {
                    // What was let go is there again.
                    fill(options, server, options.keys, options.value_bytes, None)?;
                    figures.push(measure(options, server, verb, *depth)?.cpu_us);
                }
            }
            let what = format!("{} at depth {depth}", verb.name());
            report.add(&what, "CPU µs per command", figures.into_iter().map(median).collect());
        }
    }
    Ok(())
}

/// What people set in production, and the options that set it. The keys of the load match the pattern.
const LIMITS: [(&str, &[&str]); 3] = [
    ("with maxmemory", &["--maxmemory", "100gb"]),
    ("as a user of one prefix", &["--user", "default", "on", "nopass", "~key:*", "+@all", "-@dangerous"]),
    ("with a slow log from 500 µs", &["--slowlog-log-slower-than", "500"]),
];

/// What SET and GET cost where something is limited.
fn compare_limits(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    for (limit, arguments) in LIMITS {
        let programs: Vec<Program> =
            programs.iter().map(|program| program.with_options(&program.name, arguments)).collect();
        let servers = start_all(options, &programs)?;
        for server in &servers {
            fill(options, server, options.keys, options.value_bytes, None)?;
        }
        for depth in &options.depths {
            for verb in [Verb::Set, Verb::Get] {
                let mut figures = vec![Vec::new(); servers.len()];
                for _ in 0..options.rounds {
                    for (server, figures) in servers.iter().zip(&mut figures) {
                        figures.push(measure(options, server, verb, *depth)?.cpu_us);
                    }
                }
                let what = format!("{} at depth {depth}, {limit}", verb.name());
                report.add(&what, "CPU µs per command", figures.into_iter().map(median).collect());
            }
        }
    }
    Ok(())
}

/// What it costs Keyfast to follow locks: SETNX on keys that are not there, and whole lives of locks.
fn compare_lens(options: &Options, keyfast: &Program) -> Result<Report, String> {
    let programs = [
        keyfast.with_options("lens open", &["--lock-lens", "yes"]),
        keyfast.with_options("lens closed", &["--lock-lens", "no"]),
    ];
    let mut report = Report::new(&programs, options.rows());
    report.begin(Part::Lens);
    for depth in &options.depths {
        for verb in [Verb::SetNx, Verb::Lock] {
            let mut figures = vec![Vec::new(); programs.len()];
            for _ in 0..options.rounds {
                for (server, figures) in start_all(options, &programs)?.iter().zip(&mut figures) {
                    figures.push(measure(options, server, verb, *depth)?.cpu_us);
                }
            }
            let what = format!("{} at depth {depth}", verb.name());
            report.add(&what, "CPU µs per command", figures.into_iter().map(median).collect());
        }
    }
    Ok(report)
}

/// Processor time of a command when more threads serve.
fn compare_threads(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    for cores in [1, 2] {
        let mut options = options.clone();
        options.server_cores = cores;
        let servers = start_all(&options, programs)?;
        let mut figures = Vec::new();
        for server in &servers {
            figures.push(rounds_of_gets(&options, server, 16)?);
        }
        let of = |figure: fn(&Figures) -> f64| {
            figures.iter().map(|rounds| median(rounds.iter().map(figure).collect())).collect()
        };
        report.add(
            &format!("GET at depth 16, {cores} cores"),
            "CPU µs per command",
            of(|figures| figures.cpu_us),
        );
        report.add_rate("", "1,000 commands per second", of(|figures| figures.thousands_per_second));
    }
    Ok(())
}

/// Takes one figure of each program, each newly started.
fn each_fresh(
    options: &Options,
    programs: &[Program],
    figure: impl Fn(&Server) -> Result<f64, String>,
) -> Result<Vec<f64>, String> {
    programs.iter().map(|program| figure(&program.start(options.server_cores)?)).collect()
}
