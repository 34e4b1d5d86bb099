//! What it costs that data outlive the server: the pause of a snapshot, and the price of a log.
//!
//! The files are where the system keeps what is temporary (`TMPDIR`), which decides what a wait for the disk
//! is.

use std::io::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::Verb;
use crate::options::Options;
use crate::pause::{self, Waits};
use crate::report::{Figures, Report, median};
use crate::server::{Program, Scratch, Server, pin_this_process};
use crate::{fill, measure, start_all};

/// How often it is looked whether a snapshot is over.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a client that writes and reads in turn may have to wait while all keys are saved in the
/// background.
pub(crate) fn compare_snapshots(
    options: &Options,
    programs: &[Program],
    report: &mut Report,
) -> Result<(), String> {
    let keys = options.snapshot_keys;
    let (mut idle, mut waits, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for program in programs {
        let scratch = Scratch::new()?;
        let server =
            program.with_options(&program.name, &["--dir", &scratch.path()]).start(options.server_cores)?;
        pin_this_process(options.server_cores);
        fill(options, &server, keys, options.value_bytes, None)?;
        // What the machine alone lets a client wait for.
        let rest = Duration::from_secs_f64(options.seconds);
        idle.push(pause::measure(&server, set_and_get(keys, options.value_bytes), || {
            thread::sleep(rest);
            Ok(())
        })?);
        let mut took = Duration::ZERO;
        waits.push(pause::measure(&server, set_and_get(keys, options.value_bytes), || {
            let started = Instant::now();
            save(&server)?;
            took = started.elapsed();
            Ok(())
        })?);
        seconds.push(took.as_secs_f64());
    }
    let saved = format!("a SET or GET while {keys} keys are saved");
    for (what, waits) in [("a SET or GET while nothing is saved", idle), (&*saved, waits)] {
        let of = |figure: fn(&Waits) -> f64| waits.iter().map(figure).collect();
        report.add(what, "longest wait, ms", of(|waits| waits.longest_ms));
        report.add("", "99.9th percentile, ms", of(|waits| waits.most_ms));
    }
    report.add("", "seconds that it takes", seconds);
    Ok(())
}

/// Writes one of the keys, then reads another, and so on.
fn set_and_get(keys: usize, value_bytes: usize) -> impl FnMut(&mut Vec<u8>) -> usize {
    let value = "w".repeat(value_bytes);
    let reply_bytes = format!("${value_bytes}\r\n{value}\r\n").len();
    let mut turn = 0_usize;
    move |request| {
        turn += 1;
        // Never two neighbours in a row.
        let key = turn.wrapping_mul(7_919) % keys;
        let is_write = turn.is_multiple_of(2);
        let written = match is_write {
            true => {
                write!(request, "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${value_bytes}\r\n{value}\r\n")
            }
            false => write!(request, "*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n"),
        };
        written.expect("memory takes all that is written");
        if is_write { "+OK\r\n".len() } else { reply_bytes }
    }
}

/// Has all keys saved in the background, and waits until they are.
fn save(server: &Server) -> Result<(), String> {
    let reply = server.ask("BGSAVE")?;
    if !reply.starts_with("+Background saving started") {
        return Err(format!("BGSAVE was answered {reply}"));
    }
    loop {
        thread::sleep(GLANCE);
        let info = server.ask("INFO persistence")?;
        if info.contains("rdb_bgsave_in_progress:0") {
            let is_well = info.contains("rdb_last_bgsave_status:ok");
            return if is_well { Ok(()) } else { Err("the snapshot failed".to_owned()) };
        }
    }
}

/// Throughput and processor time of commands that write where all is logged. What waits for the disk waits
/// for it alike.
pub(crate) fn compare_durability(
    options: &Options,
    programs: &[Program],
    report: &mut Report,
) -> Result<(), String> {
    for (policy, verbs) in [("always", &[Verb::Set][..]), ("everysec", &[Verb::Set, Verb::Incr, Verb::HSet])]
    {
        let scratches = programs.iter().map(|_| Scratch::new()).collect::<Result<Vec<_>, _>>()?;
        let logging: Vec<Program> = programs
            .iter()
            .zip(&scratches)
            .map(|(program, scratch)| {
                let path = scratch.path();
                let log = ["--dir", &path, "--appendonly", "yes", "--appendfsync", policy];
                // Nothing is rewritten meanwhile.
                program.with_options(
                    &program.name,
                    &[&log[..], &["--auto-aof-rewrite-percentage", "0"]].concat(),
                )
            })
            .collect();
        let servers = start_all(options, &logging)?;
        for (depth, verb) in
            options.depths.iter().flat_map(|depth| verbs.iter().map(move |verb| (depth, verb)))
        {
            let mut figures = vec![Vec::new(); servers.len()];
            for _ in 0..options.rounds {
                for (server, figures) in servers.iter().zip(&mut figures) {
                    figures.push(measure(options, server, *verb, *depth)?);
                }
            }
            let of = |figure: fn(&Figures) -> f64| {
                figures.iter().map(|rounds| median(rounds.iter().map(figure).collect())).collect()
            };
            let what = format!("{} at depth {depth}, appendfsync {policy}", verb.name());
            report.add_rate(&what, "1,000 commands per second", of(|figures| figures.thousands_per_second));
            report.add("", "CPU µs per command", of(|figures| figures.cpu_us));
        }
    }
    Ok(())
}
