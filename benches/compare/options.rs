//! What is to be compared, and how.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction};

use crate::collections;
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
    pub(crate) chart: Option<PathBuf>,
    pub(crate) server_cores: usize,
    keyfast: PathBuf,
    /// Other servers, by `[NAME=]PATH`; those that are found if there is none.
    beside: Vec<String>,
    only: Option<Part>,
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
    Lens,
    Collections,
}

impl Part {
    fn named(name: &str) -> Result<Part, String> {
        let found = PARTS.iter().find(|(known, _)| *known == name);
        found.map(|(_, part)| *part).ok_or_else(|| format!("--only {name} is none of {}", Part::names()))
    }

    fn names() -> String {
        PARTS.map(|(name, _)| name).join(", ")
    }
}

/// The parts by their names.
const PARTS: [(&str, Part); 10] = [
    ("cpu", Part::Cpu),
    ("memory", Part::Memory),
    ("pause", Part::Pause),
    ("snapshot", Part::Snapshot),
    ("durable", Part::Durable),
    ("connections", Part::Connections),
    ("threads", Part::Threads),
    ("scripts", Part::Scripts),
    ("lens", Part::Lens),
    ("collections", Part::Collections),
];

/// Servers that are looked for on PATH where none is named.
const KNOWN: [&str; 2] = ["redis-server", "valkey-server"];

impl Options {
    pub(crate) fn does(&self, part: Part) -> bool {
        match self.only {
            Some(only) => only == part,
            None => matches!(part, Part::Cpu | Part::Memory),
        }
    }

    /// How many rows the report will have.
    pub(crate) fn rows(&self) -> u64 {
        let depths = self.depths.len();
        let of_part = |part| match part {
            Part::Cpu => 9 * depths,
            Part::Memory | Part::Snapshot => 5,
            // With those of `Snapshot`.
            Part::Pause => 9,
            Part::Durable => 4 * depths,
            Part::Connections => 2,
            Part::Threads => 4,
            Part::Scripts | Part::Lens => 2 * depths,
            Part::Collections => collections::rows(depths),
        };
        PARTS.iter().filter(|(_, part)| self.does(*part)).map(|(_, part)| of_part(*part) as u64).sum()
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
        only: matches.get_one::<String>("only").map(|only| Part::named(only)).transpose()?,
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
        Arg::new("only").long("only").help(format!("One of {} [default: the first two]", Part::names())),
        Arg::new("chart").long("chart").help("Draws CPU per command and bytes per key into this SVG file"),
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
