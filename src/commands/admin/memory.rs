//! MEMORY: how much memory each part of the server takes.

use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::platform::heap;
use crate::platform::memory::resident_bytes;
use crate::resp::{Reply, Request, tree};
use crate::session::Session;

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{
    Argument, Command, Context, Group, KeyFlags, KeySpec, Reach, Result, Run, Scope,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[MEMORY];

const MEMORY: Command = Command {
    name: "memory",
    group: Group::SERVER,
    summary: "Inspects and frees memory.",
    cost: costs::ARGUMENTS,
    subcommands: &[MEMORY_DOCTOR, MEMORY_HELP, MEMORY_MALLOC_STATS, MEMORY_PURGE, MEMORY_STATS, MEMORY_USAGE],
    since: "4.0.0",
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const MEMORY_USAGE: Command = Command {
    name: "memory|usage",
    keys: &[KeySpec::range(2, 0, 1, KeyFlags::RO)],
    group: Group::SERVER,
    summary: "Returns the bytes of memory that a key takes, with its value and table entry.",
    since: "4.0.0",
    complexity: "O(N) where N is the number of samples.",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::KEY, Argument::integer("count").token("SAMPLES").optional()],
    example: &[("MEMORY USAGE nosuchkey", "(nil)")],
    run: Run::Read(usage),
    ..Command::DEFAULTS
};

fn usage(tx: &Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // A string is not sampled. As in Redis, the option may be repeated.
    for at in (3..request.len()).step_by(2) {
        let samples = request.get(at + 1).filter(|_| is_word(request.at(at), "samples"));
        if args::integer(samples.ok_or(Error::SYNTAX)?)? < 0 {
            return Err(Error::SYNTAX);
        }
    }
    match tx.facts(request.at(2)) {
        Some(facts) => Ok(reply.count(facts.bytes_taken())),
        None => Ok(reply.nil()),
    }
}

const MEMORY_STATS: Command = Command {
    name: "memory|stats",
    scope: Scope::Everything,
    group: Group::SERVER,
    summary: "Returns how much memory each part of the server uses.",
    since: "4.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Run::Server(stats),
    ..Command::DEFAULTS
};

fn stats(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let totals = context.tx.walk()?.totals();
    let memory = MemoryUse::of(context.instance, context.used_memory(), totals.table_bytes());
    let sizes: Vec<_> = totals.sizes.iter().enumerate().filter(|(_, size)| size.keys > 0).collect();
    let keys: usize = sizes.iter().map(|(_, size)| size.keys).sum();
    let count = |name, bytes| (name, tree::count(bytes));
    let scripting = &context.instance.scripting;
    let ratio = |part: usize, whole: usize| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let databases = sizes.iter().map(|(number, size)| {
        let overheads =
            [count("overhead.hashtable.main", size.table_bytes), count("overhead.hashtable.expires", 0)];
        (format!("db.{}", context.instance.keyspace.shown_database(*number)), tree::map(overheads))
    });
    let databases: Vec<_> = databases.collect();
    let before = [
        count("peak.allocated", memory.peak),
        count("total.allocated", memory.used),
        count("startup.allocated", memory.startup),
        count("replication.backlog", 0),
        count("replica.fullsync.buffer", 0),
        count("clients.slaves", 0),
        count("clients.normal", memory.clients),
        count("cluster.links", 0),
        count("aof.buffer", 0),
        count("lua.caches", scripting.usage().script_bytes),
        count("functions.caches", scripting.libraries().bytes()),
        count("script.VMs", scripting.bytes()),
    ];
    let after = [
        count("overhead.db.hashtable.lut", memory.tables),
        count("overhead.db.hashtable.rehashing", 0),
        count("overhead.total", memory.overhead()),
        count("db.dict.rehashing.count", 0),
        count("keys.count", keys),
        count(
            "keys.bytes-per-key",
            memory.used.saturating_sub(memory.startup).checked_div(keys).unwrap_or(0),
        ),
        count("dataset.bytes", memory.dataset()),
        ("dataset.percentage", tree::double(100.0 * ratio(memory.dataset(), memory.used - memory.startup))),
        ("peak.percentage", tree::double(100.0 * ratio(memory.used, memory.peak))),
        count("allocator.allocated", memory.used),
        count("allocator.active", memory.used),
        count("allocator.resident", memory.resident),
        count("allocator.muzzy", 0),
        ("allocator-fragmentation.ratio", tree::double(1.0)),
        count("allocator-fragmentation.bytes", 0),
        ("allocator-rss.ratio", tree::double(ratio(memory.resident, memory.used))),
        count("allocator-rss.bytes", memory.resident.saturating_sub(memory.used)),
        ("rss-overhead.ratio", tree::double(1.0)),
        count("rss-overhead.bytes", 0),
        ("fragmentation", tree::double(ratio(memory.resident, memory.used))),
        count("fragmentation.bytes", memory.resident.saturating_sub(memory.used)),
    ];
    let databases = databases.iter().map(|(name, frame)| (name.as_str(), frame.clone()));
    Ok(reply.tree(&tree::map(before.into_iter().chain(databases).chain(after))))
}

/// How the memory is used, in bytes.
pub(super) struct MemoryUse {
    /// Bytes that were taken from the allocator.
    pub(in crate::commands) used: usize,
    /// The most that ever was.
    pub(in crate::commands) peak: usize,
    /// Bytes in use before there were clients and keys.
    pub(in crate::commands) startup: usize,
    /// Bytes of physical memory that the process has.
    pub(in crate::commands) resident: usize,
    /// The clients' part.
    pub(in crate::commands) clients: usize,
    /// The tables' part.
    pub(in crate::commands) tables: usize,
}

impl MemoryUse {
    pub(in crate::commands) fn of(instance: &Instance, used_bytes: usize, table_bytes: usize) -> MemoryUse {
        MemoryUse {
            used: used_bytes,
            peak: instance.peak_memory(),
            startup: instance.startup_bytes,
            resident: resident_bytes(),
            clients: instance.clients.memory().bytes(),
            tables: table_bytes,
        }
    }

    /// Bytes that everything but keys and values takes.
    pub(super) fn overhead(&self) -> usize {
        (self.startup + self.clients + self.tables).min(self.used)
    }

    /// Bytes that keys and values take.
    pub(super) fn dataset(&self) -> usize {
        self.used - self.overhead()
    }
}

const MEMORY_DOCTOR: Command = Command {
    name: "memory|doctor",
    scope: Scope::Everything,
    group: Group::SERVER,
    summary: "Returns a report on memory problems, with advice.",
    since: "4.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Run::Server(doctor),
    ..Command::DEFAULTS
};

fn doctor(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    /// With less memory than this, the ratios below mean nothing. Redis has the same bound.
    const LITTLE_BYTES: usize = 5 << 20;
    let table_bytes = context.tx.walk()?.totals().table_bytes();
    let memory = MemoryUse::of(context.instance, context.used_memory(), table_bytes);
    let mut findings = Vec::new();
    if memory.used < LITTLE_BYTES {
        return Ok(reply.verbatim("The server uses very little memory: there is nothing to diagnose.\n"));
    }
    if memory.peak > memory.used + memory.used / 2 {
        findings.push(
            "Peak: the server once used more than 150% of its current memory. The process may still hold \
             freed memory; MEMORY PURGE returns it to the system.",
        );
    }
    if memory.resident > memory.used + memory.used / 2 {
        findings.push(
            "Fragmentation: the process holds more than 150% of the memory in use. Values that change their \
             lengths leave gaps; MEMORY PURGE returns free memory to the system.",
        );
    }
    if memory.clients > memory.used / 10 {
        findings.push(
            "Clients: their buffers take more than 10% of the memory. CLIENT LIST shows the size of each.",
        );
    }
    let report = match findings.as_slice() {
        [] => "No memory problem was found.\n".to_owned(),
        _ => findings.iter().map(|finding| format!("- {finding}\n")).collect(),
    };
    Ok(reply.verbatim(&report))
}

const MEMORY_PURGE: Command = Command {
    name: "memory|purge",
    group: Group::SERVER,
    summary: "Returns free memory to the operating system.",
    since: "4.0.0",
    complexity: "Depends on how much memory is allocated, could be slow",
    cost: costs::ARGUMENTS,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    example: &[("MEMORY PURGE", "OK")],
    reach: Reach::Process,
    run: Run::Session(purge),
    ..Command::DEFAULTS
};

fn purge(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    heap::give_back();
    Ok(reply.ok())
}

const MEMORY_MALLOC_STATS: Command = Command {
    name: "memory|malloc-stats",
    group: Group::SERVER,
    summary: "Returns statistics of the memory allocator. Always the text that there are none.",
    since: "4.0.0",
    complexity: "Depends on how much memory is allocated, could be slow",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Run::Session(malloc_stats),
    ..Command::DEFAULTS
};

fn malloc_stats(_: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.bulk(b"Stats not supported for the current allocator"))
}

const MEMORY_HELP: Command = Command::help("memory|help", "4.0.0", || &MEMORY);
