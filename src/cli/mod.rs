//! The client: what redis-cli is to Redis, with the same options and texts.
//!
//! [`mod@options`] parses the command line. [`session`] talks to the server: it connects, also again after a
//! lost connection, sends commands and prints replies. [`connection`] is the socket, plain or TLS.
//! [`replies`] decodes what comes from it, and [`mod@format`] prints it for people, for scripts, as CSV or as
//! JSON.
//! Commands come from the arguments, from standard input, or from the line editor of [`repl`], which gets
//! hints and help from [`help`]. Each other file is a mode of its own.
//!
//! Texts, formats and exit codes are those of redis-cli 8.6.3, as measured; `tests/server/cli.rs`
//! compares them byte for byte. The client trusts a server as little as the server trusts its clients: an
//! announced length takes no memory, and the nesting of replies is limited.

mod connection;
mod eval;
mod format;
mod help;
mod keys;
mod latency;
mod options;
mod pipe;
mod quoting;
mod rdb;
mod repl;
mod replies;
mod session;
mod stat;
mod statistics;
mod terminal;
mod tls;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::ExitCode;

use crate::files::reason;
use crate::progress::{allow_bars, beside_bar};

use options::{Family, LastArgument, Mode, Options, Parsed};
use session::Session;

/// Program names that select the client, and whose client it is then.
const NAMES: [(&str, Family); 3] =
    [("keyfast-cli", Family::Redis), ("redis-cli", Family::Redis), ("valkey-cli", Family::Valkey)];
/// The first argument that selects the client.
const FIRST_ARGUMENT: &str = "cli";

/// Why a mode ends early.
enum Stop {
    /// The program ends with this code.
    Exit(u8),
    /// The connection was lost; a new one may help.
    Lost,
}

type Result<T> = std::result::Result<T, Stop>;

impl From<io::Error> for Stop {
    /// Only writes to standard output fail this way: the reader of the output has gone, so no message helps.
    fn from(_: io::Error) -> Stop {
        Stop::Exit(1)
    }
}

/// What the client is asked for: whose client it is, and its arguments.
#[derive(Debug, PartialEq)]
pub struct Asked {
    family: Family,
    arguments: Vec<Vec<u8>>,
}

/// What the client is asked for, if the command line selects the client: by the program's name, or by the
/// first argument `cli`.
pub fn asked(command_line: impl IntoIterator<Item = OsString>) -> Option<Asked> {
    let mut command_line = command_line.into_iter();
    let program = command_line.next()?;
    let name = Path::new(&program).file_name()?;
    let called = NAMES.iter().find(|(known, _)| name == *known).map(|(_, family)| *family);
    if called.is_none() && command_line.next()?.as_bytes() != FIRST_ARGUMENT.as_bytes() {
        return None;
    }
    let arguments = command_line.map(OsStringExt::into_vec).collect();
    Some(Asked { family: called.unwrap_or_default(), arguments })
}

/// The options with their values, and what they do, for completions and the manual. Those that are refused
/// are left out.
pub(crate) fn options() -> impl Iterator<Item = (&'static [&'static str], Option<&'static str>, &'static str)>
{
    options::all().filter(|(_, _, help)| !help.starts_with(options::NOT_HERE))
}

/// Runs the client.
pub fn run(asked: Asked) -> ExitCode {
    allow_bars();
    let mut options = match Options::parse(asked.arguments, asked.family) {
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
    if options.asks_password {
        options.password = repl::ask_password();
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
        Mode::Commands if session.options.command.is_empty() => repl::run_lines(session),
        Mode::Commands => run_arguments(session),
        Mode::Eval(file) => {
            let file = file.clone();
            session.must_connect()?;
            eval::run_script(session, &file)
        }
        Mode::Pipe => {
            session.must_connect()?;
            pipe::send_input(session)
        }
        Mode::Snapshot { file, is_of_functions } => {
            let (file, is_of_functions) = (file.clone(), *is_of_functions);
            session.must_connect()?;
            rdb::run(session, &file, is_of_functions)
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
        Mode::Statistics(samples) => {
            let samples = *samples;
            session.must_connect()?;
            statistics::print(session, samples)
        }
        Mode::LruTest(keys) => {
            let keys = *keys;
            session.must_connect()?;
            latency::simulate_cache(session, keys)
        }
        Mode::Replica => {
            session.must_connect()?;
            rdb::follow(session)
        }
        Mode::Stat => {
            session.must_connect()?;
            stat::print_figures(session)
        }
        Mode::Hot => {
            session.must_connect()?;
            keys::find_hot(session)
        }
        Mode::Latency => {
            session.must_connect()?;
            latency::measure_ping(session)
        }
        Mode::LatencyHistory => {
            session.must_connect()?;
            latency::measure_history(session)
        }
        Mode::LatencySpectrum => {
            session.must_connect()?;
            latency::draw_spectrum(session)
        }
        Mode::IntrinsicLatency(seconds) => latency::measure_intrinsic(*seconds),
    }
}

/// Sends the command in the arguments.
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

/// Prints a line above the bar, if there is one, and flushes it.
fn say(line: impl Display) -> Result<()> {
    Ok(beside_bar(|| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    })?)
}

/// The system's text of an error, without Rust's additions.
fn plain_text(error: &io::Error) -> String {
    reason(error).trim_start_matches("failed to lookup address information: ").to_owned()
}

fn read_input() -> Result<Vec<u8>> {
    let mut input = Vec::new();
    match io::stdin().lock().read_to_end(&mut input) {
        Ok(_) => Ok(input),
        Err(error) => {
            eprintln!("Reading from standard input: {}", plain_text(&error));
            Err(Stop::Exit(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{Family, asked};

    #[test]
    fn the_programs_name_or_its_first_argument_makes_it_the_client() {
        let family = |line: &str| asked(line.split(' ').map(OsString::from)).map(|asked| asked.family);
        assert_eq!(family("/usr/bin/valkey-cli get"), Some(Family::Valkey));
        assert_eq!(family("keyfast cli get"), Some(Family::Redis));
        let called = |line: &str| asked(line.split(' ').map(OsString::from)).map(|asked| asked.arguments);
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
