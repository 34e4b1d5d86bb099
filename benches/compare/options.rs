//! What is to be compared, and how.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction};

use crate::LIMITS;
use crate::collections;
use crate::long;
use crate::server::Program;

/// The options of a comparison.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) connections: usize,
    pub(crate) keys: usize,
    pub(crate) value_bytes: usize,
    pub(crate) depths: Vec<usize>,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) memory_keys: usize,
    pub(crate) pause_keys: usize,
    pub(crate) snapshot_keys: usize,
    /// Members of the sorted set that is saved, deleted and expires.
    pub(crate) large_members: usize,
    /// Where the charts go: `-light.svg` and `-dark.svg` are added.
    pub(crate) chart: Option<PathBuf>,
    /// Where the results go.
    pub(crate) results: Option<PathBuf>,
    /// Files of results to take instead of measuring.
    pub(crate) from: Vec<PathBuf>,
    pub(crate) server_cores: usize,
    keyfast: PathBuf,
    /// Other servers, by `[NAME=]PATH`; those that are found if there is none.
    beside: Vec<String>,
    only: Vec<Part>,
}

/// A part of the comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Cpu,
    Memory,
    Pause,
    Snapshot,
    Durable,
    Connections,
    Threads,
    Scripts,
    Limits,
    Lens,
    Collections,
    Long,
}

impl Part {
    /// In the order in which they are compared.
    pub(crate) const ALL: [Part; 12] = [
        Part::Cpu,
        Part::Memory,
        Part::Pause,
        Part::Snapshot,
        Part::Durable,
        Part::Connections,
        Part::Threads,
        Part::Scripts,
        Part::Limits,
        Part::Collections,
        Part::Long,
        Part::Lens,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Cpu => "cpu",
            Part::Memory => "memory",
            Part::Pause => "pause",
            Part::Snapshot => "snapshot",
            Part::Durable => "durable",
            Part::Connections => "connections",
            Part::Threads => "threads",
            Part::Scripts => "scripts",
            Part::Limits => "limits",
            Part::Lens => "lens",
            Part::Collections => "collections",
            Part::Long => "long",
        }
    }

    fn named(name: &str) -> Result<Part, String> {
        let found = Part::ALL.into_iter().find(|part| part.name() == name);
        found.ok_or_else(|| format!("--only {name} is none of {}", Part::names()))
    }

    fn names() -> String {
        Part::ALL.map(Part::name).join(", ")
    }
}

/// Servers that are looked for on PATH where none is named.
const KNOWN: [&str; 2] = ["redis-server", "valkey-server"];

impl Options {
    /// What is compared, in this order.
    pub(crate) fn parts(&self) -> Vec<Part> {
        if self.only.is_empty() {
            return vec![Part::Cpu, Part::Memory];
        }
        // The pauses of a snapshot are pauses, too.
        let is_wanted = |part: &Part| {
            self.only.contains(part) || *part == Part::Snapshot && self.only.contains(&Part::Pause)
        };
        Part::ALL.into_iter().filter(is_wanted).collect()
    }

    /// How many rows the report will have.
    pub(crate) fn rows(&self) -> u64 {
        let depths = self.depths.len();
        let of_part = |part| match part {
            Part::Cpu => 9 * depths,
            Part::Memory | Part::Snapshot => 5,
            Part::Pause => 4,
            // Two figures of SET with `always`, and of SET, INCR and HSET with `everysec`.
            Part::Durable => 8 * depths,
            Part::Connections => 2,
            Part::Threads => 4,
            Part::Scripts | Part::Lens => 2 * depths,
            Part::Limits => 2 * LIMITS.len() * depths,
            Part::Collections => collections::rows(depths),
            Part::Long => long::ROWS,
        };
        self.parts().into_iter().map(|part| of_part(part) as u64).sum()
    }

    /// Keyfast, and the others.
    pub(crate) fn programs(&self) -> Result<Vec<Program>, String> {
        let mut programs = vec![Program::new(&self.keyfast, None)?];
        if self.beside.is_empty() {
            programs.extend(KNOWN.iter().filter_map(|name| Program::new(name.as_ref(), None).ok()));
            programs.extend(built_servers());
        }
        for server in &self.beside {
            let (name, path) =
                server.split_once('=').map_or((None, &**server), |(name, path)| (Some(name), path));
            programs.push(Program::new(path.as_ref(), name)?);
        }
        if programs.len() == 1 {
            return Err(format!(
                "neither {} is on PATH, benches/servers has built none, and no --beside was given",
                KNOWN.join(" nor ")
            ));
        }
        Ok(programs)
    }
}

/// What `benches/servers` has built, under the names of their folders.
fn built_servers() -> Vec<Program> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/servers");
    let listed = Command::new(script).arg("--list").output().map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let named = listed.lines().filter_map(|line| {
        let path = Path::new(line);
        Program::new(path, path.parent()?.file_name()?.to_str()).ok()
    });
    named.collect()
}

/// Reads the command line; `None` if it only asked for help.
pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(help) if help.kind() == ErrorKind::DisplayHelp => {
            print!("{help}");
            return Ok(None);
        }
        Err(error) => return Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    };
    let only: Vec<Part> = match matches.get_one::<String>("only") {
        Some(only) => only.split(',').map(Part::named).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    if only.contains(&Part::Lens) && only.len() > 1 {
        return Err("--only lens compares Keyfast with itself, and takes a run of its own".to_owned());
    }
    let text = |name: &str| matches.get_one::<String>(name).expect("a default").as_str();
    let number = |name: &str| number(name, text(name));
    let paths = |name: &str| matches.get_many::<String>(name).into_iter().flatten().map(PathBuf::from);
    Ok(Some(Options {
        connections: number("connections")?,
        keys: number("keys")?,
        value_bytes: number("value-bytes")?,
        depths: text("depth")
            .split(',')
            .map(|depth| self::number("depth", depth))
            .collect::<Result<_, _>>()?,
        seconds: text("seconds").parse().map_err(|_| "--seconds is no number".to_owned())?,
        rounds: number("rounds")?,
        memory_keys: number("memory-keys")?,
        server_cores: number("server-cores")?,
        keyfast: paths("keyfast").next().unwrap_or_else(|| env!("CARGO_BIN_EXE_keyfast").into()),
        beside: matches.get_many::<String>("beside").into_iter().flatten().cloned().collect(),
        pause_keys: number("pause-keys")?,
        snapshot_keys: number("snapshot-keys")?,
        large_members: number("large-members")?,
        chart: paths("chart").next(),
        results: paths("results").next(),
        from: paths("from").collect(),
        only,
    }))
}

fn number(name: &str, text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or(format!("--{name} {text} is no number above zero"))
}

fn command() -> clap::Command {
    let option = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help)
    };
    clap::Command::new("compare").about("Compares Keyfast with other servers that speak the Redis protocol").args([
        Arg::new("keyfast").long("keyfast").help("Keyfast's program [default: the one just built]"),
        Arg::new("beside").long("beside").value_name("[NAME=]PATH").action(ArgAction::Append).help(
            "Another server's program; may be repeated [default: those on PATH, and what benches/servers built]",
        ),
        Arg::new("only").long("only").help(format!(
            "Parts to compare, with commas in between: {} [default: the first two]",
            Part::names()
        )),
        Arg::new("results").long("results").value_name("FILE").help("Writes the results to this file, as JSON"),
        Arg::new("chart").long("chart").value_name("NAME").help(
            "Draws a chart of the results, into NAME-light.svg and NAME-dark.svg",
        ),
        Arg::new("from").long("from").value_name("FILE").num_args(1..).help(
            "Takes the results of these files instead of measuring; later files replace parts of earlier ones",
        ),
        option("connections", "50", "Clients at once"),
        option("keys", "1000000", "Random keys"),
        option("value-bytes", "32", "Length of the values"),
        option("depth", "1,16,100", "Pipeline depths"),
        option("seconds", "2", "Length of a round"),
        option("rounds", "5", "Rounds for each server, in turn"),
        option("memory-keys", "2000000", "Keys for the figures of memory"),
        option("pause-keys", "8000000", "Keys that are inserted while pauses are measured"),
        option("snapshot-keys", "10000000", "Keys that are saved while pauses are measured"),
        option("large-members", "10000000", "Members of the sorted set of which pauses are measured"),
        option("server-cores", "1", "Cores for the server; the client takes the next"),
        // What cargo passes to every benchmark.
        Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true),
    ])
}
