//! The client: what redis-cli is to Redis, under its names and in its words.
//!
//! [`options`] reads the command line; [`session`] holds the conversation with the server: it connects (and
//! again, when the connection is lost), sends a command and prints the reply. [`connection`] is the socket,
//! plain or in TLS, [`replies`] decodes what comes out of it, [`mod@format`] prints it as people, scripts,
//! CSV or JSON want it. What is sent comes from the arguments, from standard input, or from the line editor
//! of [`repl`], which takes hints and help from [`help`]. The other files are modes of their own.
//!
//! Texts, formats and exit codes are those of redis-cli 7.0.15, measured; `tests/it/cli.rs` compares them
//! byte for byte. It trusts a server no more than the server trusts its clients: nothing that is only
//! announced takes memory, and replies may be nested so deep and no deeper.

mod connection;
mod eval;
mod format;
mod help;
mod keys;
mod latency;
mod options;
mod pipe;
mod quoting;
mod repl;
mod replies;
mod session;
mod stat;
mod terminal;
mod tls;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use crate::progress::{allow_bars, beside_bar};

use options::{LastArgument, Mode, Options, Parsed};
use session::Session;

/// Names that make the program this client.
const NAMES: [&str; 3] = ["keyfast-cli", "redis-cli", "valkey-cli"];
/// The first argument that does the same.
const FIRST_ARGUMENT: &str = "cli";

/// Why something ends before it is done.
enum Stop {
    /// The program, with this code.
    Exit(u8),
    /// The connection was lost; with a new one there may be another try.
    Lost,
}

type Result<T> = std::result::Result<T, Stop>;

impl From<io::Error> for Stop {
    /// Only standard output fails this way: whoever read it has gone, and there is nobody to tell.
    fn from(_: io::Error) -> Stop {
        Stop::Exit(1)
    }
}

/// The client's arguments, if it is the client that a command line calls for: by the program's name, or by
/// `cli` as its first argument.
pub fn arguments(command_line: impl IntoIterator<Item = OsString>) -> Option<Vec<Vec<u8>>> {
    let mut command_line = command_line.into_iter();
    let program = command_line.next()?;
    let name = Path::new(&program).file_name()?;
    let is_called_by_name = NAMES.iter().any(|known| name == *known);
    if !is_called_by_name && command_line.next()?.as_bytes() != FIRST_ARGUMENT.as_bytes() {
        return None;
    }
    Some(command_line.map(OsStringExt::into_vec).collect())
}

/// Does what the arguments ask for.
pub fn run(arguments: Vec<Vec<u8>>) -> ExitCode {
    allow_bars();
    let options = match Options::parse(arguments) {
        Ok(Parsed::Run(options)) => options,
        Ok(Parsed::Print(text)) => {
            return match io::stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if options.warns_of_password() {
        eprintln!(
            "Warning: Using a password with '-a' or '-u' option on the command line interface may not be safe."
        );
    }
    let mut session = match Session::new(*options) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("Could not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match obey(&mut session) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Exit(code)) => ExitCode::from(code),
        Err(Stop::Lost) => ExitCode::FAILURE,
    }
}

fn obey(session: &mut Session) -> Result<()> {
    match &session.options.mode {
        Mode::Commands if session.options.command.is_empty() => repl::run(session),
        Mode::Commands => run_arguments(session),
        Mode::Eval(file) => {
            let file = file.clone();
            session.must_connect()?;
            eval::run(session, &file)
        }
        Mode::Pipe => {
            session.must_connect()?;
            pipe::run(session)
        }
        Mode::Scan => {
            session.must_connect()?;
            keys::list(session)
        }
        Mode::Biggest(measure) => {
            let measure = *measure;
            session.must_connect()?;
            keys::find_biggest(session, measure)
        }
        Mode::Stat => {
            session.must_connect()?;
            stat::run(session)
        }
        Mode::Hot => {
            session.must_connect()?;
            keys::find_hot(session)
        }
        Mode::Latency => {
            session.must_connect()?;
            latency::run(session)
        }
        Mode::LatencyHistory => {
            session.must_connect()?;
            latency::run_history(session)
        }
        Mode::LatencySpectrum => {
            session.must_connect()?;
            latency::run_spectrum(session)
        }
        Mode::IntrinsicLatency(seconds) => latency::run_intrinsic(*seconds),
    }
}

/// Sends the command that the arguments make.
fn run_arguments(session: &mut Session) -> Result<()> {
    session.connect_quietly()?;
    let mut command = session.options.command.clone();
    if session.options.is_input_quoted {
        let unquoted: Option<Vec<_>> = command.iter().map(|argument| quoting::unquote(argument)).collect();
        let Some(unquoted) = unquoted else {
            say("Invalid quoted string")?;
            return Err(Stop::Exit(1));
        };
        command = unquoted;
    }
    match &session.options.last_argument {
        LastArgument::Given => {}
        LastArgument::FromInput => command.push(read_input()?),
        LastArgument::FromInputFor(tag) => match command.iter_mut().find(|argument| *argument == tag) {
            Some(argument) => *argument = read_input()?,
            None => {
                eprintln!("Using -X option but stdin tag not match.");
                return Err(Stop::Exit(1));
            }
        },
    }
    let repeat = session.options.repeat;
    session.issue(&command, repeat)
}

/// Prints a line at once, above the bar if there is one.
fn say(line: impl Display) -> Result<()> {
    Ok(beside_bar(|| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    })?)
}

fn read_input() -> Result<Vec<u8>> {
    let mut input = Vec::new();
    match io::stdin().lock().read_to_end(&mut input) {
        Ok(_) => Ok(input),
        Err(error) => {
            eprintln!("Reading from standard input: {}", connection::plain_text(&error));
            Err(Stop::Exit(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::arguments;

    #[test]
    fn the_programs_name_or_its_first_argument_makes_it_the_client() {
        let called = |line: &str| arguments(line.split(' ').map(OsString::from));
        let get: Option<Vec<Vec<u8>>> = Some(vec![b"get".to_vec(), b"cli".to_vec()]);
        assert_eq!(called("/usr/bin/redis-cli get cli"), get);
        assert_eq!(called("valkey-cli get cli"), get);
        assert_eq!(called("keyfast-cli get cli"), get);
        assert_eq!(called("./keyfast cli get cli"), get);
        assert_eq!(called("redis-cli"), Some(Vec::new()));
        assert_eq!(called("keyfast --port 1"), None);
        assert_eq!(called("redis-cli/keyfast get cli"), None);
        assert_eq!(called("keyfast"), None);
    }
}
