//! Hashes, lists, sets and sorted sets: processor time of a command, bytes of an element and of a small
//! collection, and how long other clients wait while a large one is saved, deleted or expires.

use std::thread;
use std::time::{Duration, Instant};

use crate::load::{Load, Random};
use crate::options::Options;
use crate::pause;
use crate::report::{Report, median};
use crate::server::{Program, Server, pin_this_process};

/// Elements of a large collection.
const ELEMENTS: usize = 100_000;
/// Small collections whose memory is measured.
const SMALL: usize = 50_000;

/// A command that is compared: its name, and the words of a request.
type Subject = (&'static str, fn(&mut Random) -> Vec<String>);

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

const SUBJECTS: &[Subject] = &[
    ("HSET, 20 fields", |random| words(&format!("HSET hash20 field:{:02} value", random.below(20)))),
    ("HGET, 20 fields", |random| words(&format!("HGET hash20 field:{:02}", random.below(20)))),
    ("HSET, 100,000", |random| words(&format!("HSET hash f{:09} v000000001", random.below(ELEMENTS)))),
    ("HGET, 100,000", |random| words(&format!("HGET hash f{:09}", random.below(ELEMENTS)))),
    ("LPUSH", |_| words("LPUSH queue element:1")),
    ("RPOP", |_| words("RPOP queue")),
    ("LRANGE of 100", |_| words("LRANGE list100 0 -1")),
    ("SADD", |random| words(&format!("SADD new m{:09}", random.below(ELEMENTS)))),
    ("SISMEMBER of 100,000", |random| words(&format!("SISMEMBER set m{:09}", random.below(ELEMENTS)))),
    ("ZADD, 100,000", |random| {
        words(&format!("ZADD ranking {} m{:09}", random.below(1_000_000), random.below(ELEMENTS)))
    }),
    ("ZSCORE, 100,000", |random| words(&format!("ZSCORE ranking m{:09}", random.below(ELEMENTS)))),
    ("ZRANK, 100,000", |random| words(&format!("ZRANK ranking m{:09}", random.below(ELEMENTS)))),
    ("ZRANGEBYSCORE of 10", |random| {
        words(&format!("ZRANGEBYSCORE ranking {} +inf LIMIT 0 10", random.below(900_000)))
    }),
];

/// Fills what the subjects use.
fn fill(server: &Server) -> Result<(), String> {
    let mut load = Load::new(server.address(), 1, 1, 1, None)?;
    let element = |number: usize| -> Vec<Vec<String>> {
        vec![
            words(&format!("HSET hash f{number:09} v{number:09}")),
            words(&format!("SADD set m{number:09}")),
            words(&format!("ZADD ranking {} m{number:09}", number * 7 % 1_000_000)),
        ]
    };
    load.send_all((0..ELEMENTS).flat_map(element))?;
    load.send_all((0..20).map(|number| words(&format!("HSET hash20 field:{number:02} value:{number}"))))?;
    load.send_all((0..100).map(|number| words(&format!("RPUSH list100 element:{number}"))))
}

/// Compares all of it.
pub(crate) fn compare(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    compare_cpu(options, programs, report)?;
    compare_memory(options, programs, report)?;
    compare_waits(options, programs, report)
}

fn compare_cpu(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers = programs.iter().map(|program| program.start(options.server_cores));
    let servers: Vec<Server> = servers.collect::<Result<_, _>>()?;
    pin_this_process(options.server_cores);
    servers.iter().try_for_each(fill)?;
    for depth in &options.depths {
        for (name, request) in SUBJECTS {
            let mut figures = vec![Vec::new(); servers.len()];
            for _ in 0..options.rounds {
                for (server, figures) in servers.iter().zip(&mut figures) {
                    let mut load = Load::new(server.address(), options.connections, 1, 1, None)?;
                    load.drive_with(*request, *depth, options.seconds / 10.0)?;
                    let before = server.cpu_time()?;
                    let commands = load.drive_with(*request, *depth, options.seconds)? as f64;
                    figures.push((server.cpu_time()?.total() - before.total()) * 1e6 / commands);
                }
            }
            let what = format!("{name}, at depth {depth}");
            report.add(&what, "CPU µs per command", figures.into_iter().map(median).collect());
        }
    }
    Ok(())
}

/// Bytes of a server for each of `count` elements, which `fill` writes.
fn bytes_each(
    options: &Options,
    programs: &[Program],
    count: usize,
    fill: impl Fn(usize) -> Vec<String>,
) -> Result<Vec<f64>, String> {
    let measure = |program: &Program| {
        let server = program.start(options.server_cores)?;
        pin_this_process(options.server_cores);
        let before = server.resident_bytes()?;
        Load::new(server.address(), 1, 1, 1, None)?.send_all((0..count).map(&fill))?;
        Ok((server.resident_bytes()? - before) / count as f64)
    };
    programs.iter().map(measure).collect()
}

fn compare_memory(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    /// What is measured, how many of them there are, and the request that writes one.
    type Shape = (&'static str, usize, fn(usize) -> Vec<String>);
    let shapes: [Shape; 7] = [
        ("bytes per field, 10 + 10 bytes", ELEMENTS, |number| {
            words(&format!("HSET hash f{number:09} v{number:09}"))
        }),
        ("bytes per member of a set", ELEMENTS, |number| words(&format!("SADD set m{number:09}"))),
        ("bytes per member of a sorted set", ELEMENTS, |number| {
            words(&format!("ZADD ranking {number} m{number:09}"))
        }),
        ("bytes per hash of 5 fields", SMALL, |number| {
            words(&format!("HSET hash:{number:06} a 1 bb 22 ccc 333 dddd 4444 eeeee 55555"))
        }),
        ("bytes per set of 10 integers", SMALL, |number| {
            words(&format!("SADD set:{number:06} 1 2 3 40 50 60 700 800 900 1000"))
        }),
        ("bytes per list of 10", SMALL, |number| {
            words(&format!("RPUSH list:{number:06} element:0 e1 e2 e3 e4 e5 e6 e7 e8 element:9"))
        }),
        ("bytes per sorted set of 10", SMALL, |number| {
            words(&format!("ZADD rank:{number:06} 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h 9 i 10 j"))
        }),
    ];
    for (what, count, fill) in shapes {
        report.add("collections", what, bytes_each(options, programs, count, fill)?);
    }
    Ok(())
}

/// The longest wait of a client that asks for another key, while a sorted set of many members is worked on.
fn compare_waits(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    const MARGIN: Duration = Duration::from_secs(2);
    let members = options.large_members;
    let (mut saved, mut deleted, mut expired) = (Vec::new(), Vec::new(), Vec::new());
    for program in programs {
        let server = program.start(options.server_cores)?;
        pin_this_process(options.server_cores);
        let fill = || {
            let mut load = Load::new(server.address(), 1, 1, 1, None)?;
            load.send_all((0..members.div_ceil(100)).map(|part| {
                let pair = |number: usize| [(number * 7 % 1_000_003).to_string(), format!("member:{number}")];
                let pairs = (100 * part..members.min(100 * part + 100)).flat_map(pair);
                ["ZADD".to_owned(), "large".to_owned()].into_iter().chain(pairs).collect()
            }))
        };
        let waits = |work: &dyn Fn() -> Result<(), String>| pause::measure(&server, pause::get_missing, work);
        fill()?;
        saved.push(waits(&|| {
            server.ask("BGSAVE")?;
            let started = Instant::now();
            while !server.ask("INFO persistence")?.contains("rdb_bgsave_in_progress:0") {
                if started.elapsed() > Duration::from_secs(120) {
                    return Err("BGSAVE does not end".to_owned());
                }
                thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        })?);
        deleted.push(waits(&|| {
            server.ask("DEL large")?;
            thread::sleep(MARGIN);
            Ok(())
        })?);
        fill()?;
        expired.push(waits(&|| {
            server.ask("PEXPIRE large 100")?;
            thread::sleep(MARGIN);
            Ok(())
        })?);
    }
    for (what, waits) in [("is saved", saved), ("is deleted", deleted), ("expires", expired)] {
        let what = format!("a GET while a sorted set of {members} {what}");
        report.add(&what, "longest wait, ms", waits.iter().map(|waits| waits.longest_ms).collect());
    }
    Ok(())
}
