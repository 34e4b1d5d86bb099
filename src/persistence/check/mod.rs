//! The programs that check files: what `redis-check-aof` and `redis-check-rdb` are to Redis, with the same
//! options, texts and exit codes.
//!
//! The readers that load files also check them, so what is accepted here can be loaded. [`aof`] checks a log,
//! alone or with all files of its manifest, and repairs one by cutting off what is behind the damage, if a
//! person agrees. [`rdb`] checks a snapshot, more closely than a server does that loads it.

mod aof;
mod rdb;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// It checks a log.
    Aof,
    /// It checks a snapshot.
    Rdb,
}

/// The program names that select a check, and the first argument that does.
const NAMES: [(&str, Check); 8] = [
    ("redis-check-aof", Check::Aof),
    ("redis-check-rdb", Check::Rdb),
    ("valkey-check-aof", Check::Aof),
    ("valkey-check-rdb", Check::Rdb),
    ("keyfast-check-aof", Check::Aof),
    ("keyfast-check-rdb", Check::Rdb),
    ("check-aof", Check::Aof),
    ("check-rdb", Check::Rdb),
];

/// A check that a command line asks for: which one, the name of the program, and its arguments.
#[derive(Debug)]
pub struct Asked {
    check: Check,
    program: String,
    arguments: Vec<OsString>,
}

/// Why a check ends early.
enum Stop {
    /// What it found is printed already.
    Failed,
    /// Standard output is closed.
    Closed,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Closed
    }
}

type Result<T> = std::result::Result<T, Stop>;

/// The check that a command line selects: by the program's name, or by the first argument.
pub fn asked(command_line: impl IntoIterator<Item = OsString>) -> Option<Asked> {
    let mut command_line = command_line.into_iter();
    let program = command_line.next()?;
    let name = Path::new(&program).file_name()?.as_bytes().to_vec();
    let is_named = |known: &str, name: &[u8]| known.as_bytes() == name;
    let found = |name: &[u8]| NAMES.iter().find(|(known, _)| is_named(known, name)).map(|(_, check)| *check);
    let shown = program.to_string_lossy().into_owned();
    if let Some(check) = found(&name) {
        return Some(Asked { check, program: shown, arguments: command_line.collect() });
    }
    let first = command_line.next()?;
    let check = found(first.as_bytes()).filter(|_| first.as_bytes().starts_with(b"check-"))?;
    let program = format!("{shown} {}", first.to_string_lossy());
    Some(Asked { check, program, arguments: command_line.collect() })
}

/// Runs a check.
pub fn run(asked: &Asked) -> ExitCode {
    let mut out = io::stdout().lock();
    let arguments: Vec<&[u8]> = asked.arguments.iter().map(|argument| argument.as_bytes()).collect();
    if let [b"-v" | b"--version"] = *arguments {
        let name = if asked.check == Check::Aof { "redis-check-aof" } else { "redis-check-rdb" };
        return code(writeln!(out, "{name} {}", version()).map_err(Stop::from));
    }
    code(match asked.check {
        Check::Aof => aof::check(&asked.program, &arguments, &mut out, &mut io::stdin().lock()),
        Check::Rdb => rdb::check(&asked.program, &arguments, &mut out),
    })
}

fn code(result: Result<()>) -> ExitCode {
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The version, in the form of those of Redis.
fn version() -> String {
    let (redis, own) = (crate::REDIS_VERSION, env!("CARGO_PKG_VERSION"));
    format!("{redis} (keyfast {own})")
}
