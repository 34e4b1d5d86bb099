//! Hashes, lists, sets and sorted sets: processor time of a command, bytes of an element and of a small
//! collection, and how long other clients wait while a large one is saved, copied, deleted and so on.
//!
//! Every server gets the same requests in the same order, and the same number of them, however fast it is:
//! what a list or a set holds when it is measured does not depend on the server.

use std::fmt::{Display, Write as _};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::{Load, Next};
use crate::options::Options;
use crate::pause;
use crate::report::{Report, median};
use crate::server::{Program, Scratch, Server, pin_this_process};
use crate::start_all;

/// Elements of a large collection.
const ELEMENTS: usize = 100_000;
/// Hashes of 20 fields, and lists: enough that their keys are not all in the cache.
const KEYS: usize = 10_000;
/// Lists of jobs, and sets that grow.
const QUEUES: usize = 1000;
/// Elements that one request writes where many are written.
const CHUNK: usize = 100;

/// Compares all of it.
pub(crate) fn compare(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    compare_cpu(options, programs, report)?;
    compare_memory(options, programs, report)?;
    compare_waits(options, programs, report)
}

/// How many rows it adds to the report at so many depths.
pub(crate) fn rows(depths: usize) -> usize {
    /// Those of [`compare_waits`].
    const WAITS: usize = 11;
    depths * SUBJECTS.len() + LONG_SUBJECTS.len() + SHAPES.len() + WAITS
}

/// A command that is compared.
struct Subject {
    name: &'static str,
    next: Next,
    /// What must be there before so many requests of it are sent.
    before: fn(usize) -> Vec<String>,
}

/// A command of which nothing must be prepared but what [`fill`] has written.
const fn subject(name: &'static str, next: Next) -> Subject {
    Subject { name, next, before: |_| Vec::new() }
}

const SUBJECTS: &[Subject] = &[
    // What each command costs that does nothing.
    subject("PING", |line, _, _| put(line, format_args!("PING"))),
    subject("HSET, 20 fields", |line, random, _| {
        put(line, format_args!("HSET hash:{} field:{:02} other", random.below(KEYS), random.below(20)));
    }),
    subject("HGET, 20 fields", |line, random, _| {
        put(line, format_args!("HGET hash:{} field:{:02}", random.below(KEYS), random.below(20)));
    }),
    subject("HSET, 100,000", |line, random, _| {
        put(line, format_args!("HSET hash f{:09} v000000001", random.below(ELEMENTS)));
    }),
    subject("HGET, 100,000", |line, random, _| {
        put(line, format_args!("HGET hash f{:09}", random.below(ELEMENTS)));
    }),
    Subject {
        name: "LPUSH",
        next: |line, _, number| put(line, format_args!("LPUSH queue:{} element:{number}", number % QUEUES)),
        before: |_| (0..QUEUES).map(|queue| format!("DEL queue:{queue}")).collect(),
    },
    Subject {
        name: "RPOP",
        next: |line, _, number| put(line, format_args!("RPOP queue:{}", number % QUEUES)),
        before: |requests| (0..QUEUES).flat_map(|queue| full_queue(queue, requests)).collect(),
    },
    subject("LRANGE of 100", |line, random, _| {
        put(line, format_args!("LRANGE list:{} 0 -1", random.below(KEYS)));
    }),
    Subject {
        name: "SADD",
        next: |line, random, number| {
            put(line, format_args!("SADD new:{} m{:09}", number % 10, random.below(10 * ELEMENTS)));
        },
        before: |_| (0..10).map(|set| format!("DEL new:{set}")).collect(),
    },
    subject("SISMEMBER of 100,000", |line, random, _| {
        put(line, format_args!("SISMEMBER set m{:09}", random.below(ELEMENTS)));
    }),
    subject("ZADD, 100,000", |line, random, _| {
        let (score, member) = (random.below(1_000_000), random.below(ELEMENTS));
        put(line, format_args!("ZADD ranking {score} m{member:09}"));
    }),
    subject("ZSCORE, 100,000", |line, random, _| {
        put(line, format_args!("ZSCORE ranking m{:09}", random.below(ELEMENTS)));
    }),
    subject("ZRANK, 100,000", |line, random, _| {
        put(line, format_args!("ZRANK ranking m{:09}", random.below(ELEMENTS)));
    }),
    subject("ZRANGEBYSCORE of 10", |line, random, _| {
        put(line, format_args!("ZRANGEBYSCORE ranking {} +inf LIMIT 0 10", random.below(900_000)));
    }),
    Subject {
        name: "XADD",
        next: |line, _, number| {
            put(line, format_args!("XADD events:{} * name value:{number}", number % QUEUES));
        },
        before: |_| (0..QUEUES).map(|stream| format!("DEL events:{stream}")).collect(),
    },
    Subject {
        name: "XREAD of 10",
        next: |line, random, _| {
            put(line, format_args!("XREAD COUNT 10 STREAMS read:{} 5", random.below(QUEUES)));
        },
        before: |_| (0..QUEUES).flat_map(short_stream).collect(),
    },
];

/// The requests that write a stream of 20 entries.
fn short_stream(stream: usize) -> impl Iterator<Item = String> {
    let entries = (1..=20).map(move |entry| format!("XADD read:{stream} {entry}-1 name value:{entry}"));
    std::iter::once(format!("DEL read:{stream}")).chain(entries)
}

/// Commands on two collections of 100,000, of which half are in both.
const LONG_SUBJECTS: &[Subject] = &[
    subject("ZUNIONSTORE of two", |line, _, _| put(line, format_args!("ZUNIONSTORE result 2 ranking other"))),
    subject("SINTER of two", |line, _, _| put(line, format_args!("SINTER set half"))),
];

fn put(line: &mut String, request: std::fmt::Arguments<'_>) {
    line.write_fmt(request).expect("memory takes all that is written");
}

/// The requests that write such elements by hundreds: `HSET key e1 e2 …`.
fn chunks(
    command: impl Display,
    elements: Range<usize>,
    element: impl Fn(usize) -> String,
) -> impl Iterator<Item = String> {
    let mut rest = elements;
    std::iter::from_fn(move || {
        let chunk: Vec<String> = rest.by_ref().take(CHUNK).map(&element).collect();
        (!chunk.is_empty()).then(|| format!("{command} {}", chunk.join(" ")))
    })
}

/// A list with as many elements as so many requests pop of it, and some more.
fn full_queue(queue: usize, requests: usize) -> Vec<String> {
    let elements = requests / QUEUES + 2;
    let mut all = vec![format!("DEL queue:{queue}")];
    all.extend(chunks(format!("LPUSH queue:{queue}"), 0..elements, |number| format!("element:{number}")));
    all
}

/// Fills what the subjects use.
fn fill(server: &Server) -> Result<(), String> {
    let mut load = Load::new(server.address(), 1, 1, 1, None)?;
    let (all, half) = (0..ELEMENTS, ELEMENTS / 2..ELEMENTS * 3 / 2);
    let member = |number: usize| format!("m{number:09}");
    // Scores in another order than the members.
    let scored = |number: usize| format!("{} m{number:09}", number * 7_919 % 1_000_003);
    load.send_all(chunks("HSET hash", all.clone(), |number| format!("f{number:09} v{number:09}")))?;
    load.send_all(chunks("SADD set", all.clone(), member))?;
    load.send_all(chunks("SADD half", half.clone(), member))?;
    load.send_all(chunks("ZADD ranking", all, scored))?;
    load.send_all(chunks("ZADD other", half, scored))?;
    load.send_all((0..KEYS).flat_map(|key| {
        let hash = chunks(format!("HSET hash:{key}"), 0..20, |field| format!("field:{field:02} value"));
        let list = chunks(format!("RPUSH list:{key}"), 0..100, |number| format!("element:{number}"));
        hash.chain(list).collect::<Vec<_>>()
    }))
}

fn compare_cpu(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let servers = start_all(options, programs)?;
    servers.iter().try_for_each(fill)?;
    for depth in &options.depths {
        for subject in SUBJECTS {
            let figures = rounds(options, &servers, subject, options.connections, *depth)?;
            report.add(&format!("{}, at depth {depth}", subject.name), "CPU µs per command", figures);
        }
    }
    for subject in LONG_SUBJECTS {
        let figures = rounds(options, &servers, subject, 1, 1)?;
        report.add(&format!("{} with 100,000", subject.name), "CPU µs per command", figures);
    }
    Ok(())
}

/// The median of each server's processor time for a command. A round has as many requests as the slowest
/// server answers in the time of a round.
fn rounds(
    options: &Options,
    servers: &[Server],
    subject: &Subject,
    connections: usize,
    depth: usize,
) -> Result<Vec<f64>, String> {
    let mut batches = usize::MAX;
    for server in servers {
        batches = batches.min(batches_in(options.seconds, server, subject, connections, depth)?);
    }
    let warm_up = batches.div_ceil(10);
    let requests = |batches: usize| batches * connections * depth;
    let mut figures = vec![Vec::new(); servers.len()];
    for _ in 0..options.rounds {
        // In turn, so that whatever else the machine does falls on all alike.
        for (server, figures) in servers.iter().zip(&mut figures) {
            let mut load = Load::new(server.address(), connections, 1, 1, None)?;
            load.send_all((subject.before)(requests(warm_up + batches)).into_iter())?;
            load.drive_with(subject.next, depth, warm_up)?;
            let before = server.cpu_seconds()?;
            load.drive_with(subject.next, depth, batches)?;
            figures.push((server.cpu_seconds()? - before) * 1e6 / requests(batches) as f64);
        }
    }
    Ok(figures.into_iter().map(median).collect())
}

/// Batches that a server answers in so many seconds, roughly.
fn batches_in(
    seconds: f64,
    server: &Server,
    subject: &Subject,
    connections: usize,
    depth: usize,
) -> Result<usize, String> {
    let mut load = Load::new(server.address(), connections, 1, 1, None)?;
    let mut batches = 1;
    loop {
        load.send_all((subject.before)(batches * connections * depth).into_iter())?;
        let started = Instant::now();
        load.drive_with(subject.next, depth, batches)?;
        let took = started.elapsed().as_secs_f64();
        if took >= seconds / 20.0 {
            return Ok(((batches as f64 * seconds / took) as usize).max(1));
        }
        batches *= 2;
    }
}

/// What is measured, how many of them there are, and the request that writes one of them.
type Shape = (&'static str, usize, fn(usize) -> String);

/// So many small collections that what the system gives in pieces of 2 MiB does not decide. The names of all
/// have six digits.
const SMALL: usize = 9 * ELEMENTS;

/// Elements are those of ten large collections.
const SHAPES: &[Shape] = &[
    ("bytes per field, 10 + 10 bytes", 10 * ELEMENTS, |number| {
        format!("HSET hash:{} f{number:09} v{number:09}", number / ELEMENTS)
    }),
    ("bytes per member of a set", 10 * ELEMENTS, |number| {
        format!("SADD set:{} m{number:09}", number / ELEMENTS)
    }),
    ("bytes per member of a sorted set", 10 * ELEMENTS, |number| {
        format!("ZADD ranking:{} {} m{number:09}", number / ELEMENTS, number * 7_919 % 1_000_003)
    }),
    ("bytes per element of a list", 10 * ELEMENTS, |number| {
        format!("RPUSH list:{} e{number:09}", number / ELEMENTS)
    }),
    ("bytes per hash of 5 fields", SMALL, |number| {
        format!("HSET hash:{number:06} a 1 bb 22 ccc 333 dddd 4444 eeeee 55555")
    }),
    ("bytes per set of 10 integers", SMALL, |number| {
        format!("SADD set:{number:06} 1 2 3 40 50 60 700 800 900 1000")
    }),
    ("bytes per list of 10", SMALL, |number| {
        format!("RPUSH list:{number:06} element:0 e1 e2 e3 e4 e5 e6 e7 e8 element:9")
    }),
    ("bytes per sorted set of 10", SMALL, |number| {
        format!("ZADD rank:{number:06} 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h 9 i 10 j")
    }),
];

fn compare_memory(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    for (what, count, request) in SHAPES {
        let bytes = programs.iter().map(|program| bytes_each(options, program, *count, *request));
        report.add("collections", what, bytes.collect::<Result<_, _>>()?);
    }
    Ok(())
}

/// Bytes of a server for each of `count` elements. It has a tenth more of them before, so that what it needs
/// for the first ones, its code and buffers, is not counted.
fn bytes_each(
    options: &Options,
    program: &Program,
    count: usize,
    request: fn(usize) -> String,
) -> Result<f64, String> {
    let server = program.start(options.server_cores)?;
    pin_this_process(options.server_cores);
    let mut load = Load::new(server.address(), 1, 1, 1, None)?;
    load.send_all((count..count + count / 10).map(request))?;
    let before = settled_bytes(&server)?;
    load.send_all((0..count).map(request))?;
    Ok((settled_bytes(&server)? - before) / count as f64)
}

/// Memory of a server once it has given back what it will not use again.
fn settled_bytes(server: &Server) -> Result<f64, String> {
    thread::sleep(SETTLING);
    server.resident_bytes()
}

/// Long enough for what frees memory in the background.
const SETTLING: Duration = Duration::from_secs(2);

/// The longest wait of a client that asks for another key, while a sorted set of many members is worked on.
fn compare_waits(options: &Options, programs: &[Program], report: &mut Report) -> Result<(), String> {
    let figures = programs.iter().map(|program| waits_of(options, program));
    let figures = figures.collect::<Result<Vec<_>, _>>()?;
    for (row, (what, unit, _)) in figures[0].iter().enumerate() {
        let of_all = figures.iter().map(|rows| rows[row].2).collect();
        report.add(
            &what.replace("large", &format!("a sorted set of {}", options.large_members)),
            unit,
            of_all,
        );
    }
    Ok(())
}

/// What is looked at, its unit and the figure of one server.
type Figure = (&'static str, &'static str, f64);

fn waits_of(options: &Options, program: &Program) -> Result<Vec<Figure>, String> {
    const WAIT: &str = "longest wait, ms";
    let scratch = Scratch::new()?;
    let server =
        program.with_options(&program.name, &["--dir", &scratch.path()]).start(options.server_cores)?;
    pin_this_process(options.server_cores);
    let fill = || {
        let scored = |number: usize| format!("{} member:{number}", number * 7 % 1_000_003);
        Load::new(server.address(), 1, 1, 1, None)?.send_all(chunks(
            "ZADD large",
            0..options.large_members,
            scored,
        ))
    };
    let wait_during = |work: &dyn Fn() -> Result<(), String>| {
        Ok::<_, String>(pause::measure(&server, pause::get_missing, work)?.longest_ms)
    };
    // Sends a command, and looks on for a while: the work may go on in the background.
    let wait_after = |command: &str, reply: &str| {
        wait_during(&|| {
            expect(&server, command, reply)?;
            thread::sleep(SETTLING);
            Ok(())
        })
    };
    let resident_mib = || Ok::<_, String>(server.resident_bytes()? / 1048576.0);
    let empty_mib = resident_mib()?;
    fill()?;
    let mut figures = vec![("a GET while nothing happens to large", WAIT, wait_after("PING", "+PONG")?)];
    let saved = wait_during(&|| in_background(&server, "BGSAVE", "rdb_bgsave_in_progress"))?;
    figures.push(("a GET while large is saved", WAIT, saved));
    let logged = wait_during(&|| in_background(&server, "BGREWRITEAOF", "aof_rewrite_in_progress"))?;
    figures.push(("a GET while large is rewritten into a log", WAIT, logged));
    figures.push(("a GET while large is copied", WAIT, wait_after("COPY large copy", ":1")?));
    figures.push(("a GET while large is dumped", WAIT, wait_after("DUMP large", "")?));
    expect(&server, "DEL copy", ":1")?;
    thread::sleep(SETTLING);
    let mut took_ms = 0.0;
    let deleted = pause::measure(&server, pause::get_missing, || {
        took_ms = timed_ms(|| expect(&server, "DEL large", ":1"))?;
        thread::sleep(SETTLING);
        Ok(())
    })?;
    figures.push(("a GET while large is deleted", WAIT, deleted.longest_ms));
    figures.push(("DEL of large", "ms until its reply", took_ms));
    figures.push(("", "MiB more than before it, after that", resident_mib()? - empty_mib));
    fill()?;
    figures.push(("a GET while large expires", WAIT, wait_after("PEXPIRE large 100", ":1")?));
    fill()?;
    figures.push(("a GET while large is evicted", WAIT, wait_during(&|| evict(&server))?));
    fill()?;
    figures.push(("a GET while large is flushed", WAIT, wait_after("FLUSHALL", "+OK")?));
    Ok(figures)
}

/// Sends a command whose reply must begin like this.
fn expect(server: &Server, command: &str, reply: &str) -> Result<(), String> {
    let given = server.ask(command)?;
    if given.starts_with(reply) { Ok(()) } else { Err(format!("{command} was answered {given}")) }
}

fn timed_ms(work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

/// Starts what goes on in the background, and waits until the field of INFO says that it is over.
fn in_background(server: &Server, command: &str, field: &str) -> Result<(), String> {
    expect(server, command, "+Background")?;
    until(|| Ok(server.ask("INFO persistence")?.contains(&format!("{field}:0"))), command)
}

/// Takes the server's memory until it has evicted its only key.
fn evict(server: &Server) -> Result<(), String> {
    expect(server, "CONFIG SET maxmemory-policy allkeys-random maxmemory 1", "+OK")?;
    until(|| Ok(server.ask("DBSIZE")?.starts_with(":0")), "eviction")?;
    thread::sleep(SETTLING);
    expect(server, "CONFIG SET maxmemory 0", "+OK")
}

/// Waits until something is so.
fn until(is_so: impl Fn() -> Result<bool, String>, what: &str) -> Result<(), String> {
    let started = Instant::now();
    while !is_so()? {
        if started.elapsed() > Duration::from_secs(120) {
            return Err(format!("{what} does not end"));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
