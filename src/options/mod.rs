//! How a server is configured: by the environment, a configuration file, standard input and the command line.
//! Each of them overrules those before it.
//!
//! [`arguments`] takes the command line apart as redis-server does, [`loading`] reads the lines that it and
//! the files hold, [`environment`] reads environment variables; [`suggestions`] guesses what a user meant by
//! an unknown name; [`help`] and [`documents`] are made of the table of parameters.

mod arguments;
mod documents;
mod environment;
mod help;
mod loading;
mod suggestions;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use crate::REDIS_VERSION;
use crate::commands::facts::lookup::Renamed;
use crate::config::Config;
use crate::dump::CHECKSUM;
use crate::files::{self, NamedFile};
use crate::resp::OwnedRequest;

use arguments::Arguments;
use loading::{Loader, Source};

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// To start a server.
    Serve(Box<Startup>),
    /// To print a text: the help, the version, completions or the page of the manual.
    Print(String),
}

/// The configuration of a server that starts.
#[derive(Debug, Default)]
pub struct Startup {
    /// The value of every parameter.
    pub config: Config,
    /// The lines that declare users, as their words.
    pub users: Vec<OwnedRequest>,
    /// Commands with their new names; an empty name removes the command.
    pub renamed: Renamed,
    /// Files with initial data, in their order.
    pub initial: Vec<PathBuf>,
    /// Directives that have no effect here, and would have one in Redis.
    pub foreign: Vec<String>,
    /// Directives for features that Keyfast lacks, and what the user would miss.
    pub missing: Vec<(String, &'static str)>,
    /// Whether the command line holds a secret, which other users of the machine could read.
    pub has_secret_arguments: bool,
    /// What to log about variables of the environment that look like parameters, and are none.
    pub strange_variables: Vec<String>,
    /// Whether there was a configuration file or an argument.
    pub is_configured: bool,
}

/// Reads a command line, the program's name included, with the files that it names and the environment.
///
/// # Errors
///
/// With the text to print: for a mistake in a file the lines that Redis prints, otherwise one line.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &[(OsString, OsString)],
) -> Result<Asked, String> {
    let mut arguments = arguments.into_iter();
    // The name by which the program was called changes nothing.
    let _program = arguments.next();
    match arguments::read(arguments.collect()) {
        Arguments::ShortHelp => Ok(Asked::Print(help::short())),
        Arguments::Help => Ok(Asked::Print(help::long(help::columns(environment)))),
        Arguments::Version => Ok(Asked::Print(version())),
        Arguments::Completions(shell) => documents::completions(help::command(), &shell).map(Asked::Print),
        Arguments::Manual => Ok(Asked::Print(documents::manual(help::command()))),
        Arguments::Serve { file, reads_input, lines } => {
            let mut config = Config::new();
            let hint = file.as_deref().map_or("", hint);
            config.file = absolute(file)?;
            let wrong = |why| format!("keyfast: {why}");
            let unknown_variables = environment::apply(&config, environment).map_err(wrong)?;
            let is_configured = lines.is_some();
            let text = text(config.file.as_deref(), reads_input).map_err(|why| why + hint)?;
            let file = config.file.clone();
            let mut loader = Loader::new(config);
            // Lines of standard input are counted on from those of the file, so they are in no file.
            let source = Source::File(file.as_deref().filter(|_| !reads_input));
            loader.load(&text, source, 0)?;
            let lines = lines.unwrap_or_default();
            loader.load(&lines, Source::Options, 0)?;
            loader.check_missing()?;
            loader.check_users()?;
            check_log_file(&loader.config)?;
            let Loader { config, users, renamed, initial, mut foreign, missing, .. } = loader;
            let has_users = !users.is_empty() || !config.aclfile.get().is_empty();
            let strange_variables =
                environment::judge(&unknown_variables, &config, has_users).map_err(wrong)?;
            foreign.extend(config.inert_names().into_iter().map(str::to_owned));
            let missing = missing.into_iter().map(|missing| (missing.directive, missing.why)).collect();
            Ok(Asked::Serve(Box::new(Startup {
                config,
                users,
                renamed,
                initial,
                foreign,
                missing,
                has_secret_arguments: loading::holds_secret(&lines),
                strange_variables,
                is_configured,
            })))
        }
    }
}

/// The file and standard input as one text, which is how Redis counts lines.
fn text(file: Option<&Path>, reads_input: bool) -> Result<Vec<u8>, String> {
    let mut text = match file {
        Some(path) => loading::read_file(path)?,
        None => Vec::new(),
    };
    if reads_input {
        let read = loading::read_all(io::stdin().lock());
        text.extend(read.map_err(|error| format!("keyfast: standard input: {}", files::reason(&error)))?);
    }
    Ok(text)
}

/// What to add if a configuration file cannot be opened: a word without a dot or a slash was probably meant
/// as a command.
fn hint(file: &Path) -> &'static str {
    match file.to_str() {
        Some("version") => "; for the version: keyfast --version",
        Some("server" | "serve" | "start" | "run") => "; to start a server: keyfast",
        Some(word) if !word.contains(['.', '/']) => "; for help: keyfast --help",
        _ => "",
    }
}

/// An absolute path, which stays right when the process changes its directory.
fn absolute(path: Option<PathBuf>) -> Result<Option<PathBuf>, String> {
    let wrong = |error: io::Error| format!("keyfast: {}", files::reason(&error));
    path.map(|path| std::path::absolute(path).map_err(wrong)).transpose()
}

/// Checks that the log file can be written, while the user who starts the server still sees errors.
fn check_log_file(config: &Config) -> Result<(), String> {
    let Some(NamedFile { path, .. }) = config.file_of(&config.logfile) else { return Ok(()) };
    let opened = OpenOptions::new().append(true).create(true).open(&path);
    let wrong =
        |error| format!("keyfast: can't open the log file '{}': {}", path.display(), files::reason(&error));
    opened.map(drop).map_err(wrong)
}

/// The version, in one line under whatever name the program was called. The second half has the form of
/// redis-server's: tools read the version from there.
fn version() -> String {
    let features = match (cfg!(feature = "etcd"), cfg!(feature = "postgres")) {
        (true, true) => "; etcd, postgres",
        (true, false) => "; etcd",
        (false, true) => "; postgres",
        (false, false) => "",
    };
    let (own, commit) = (env!("CARGO_PKG_VERSION"), env!("KEYFAST_COMMIT"));
    let sha = if commit == "unknown" { "00000000" } else { commit };
    let build = CHECKSUM.checksum(format!("{own} {commit}{features}").as_bytes());
    format!(
        "keyfast {own} ({commit}{features}) Redis server v={REDIS_VERSION} sha={sha}:0 malloc=libc bits={} \
         build={build:016x}\n",
        usize::BITS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Box<Startup>, String> {
        match parse(format!("keyfast {line}").split(' ').map(OsString::from), &[])? {
            Asked::Serve(startup) => Ok(startup),
            Asked::Print(text) => Err(text),
        }
    }

    #[test]
    fn parameters_are_options() {
        let config =
            parsed("--port 7000 --bind 127.0.0.1 -::1 --timeout 3 --protected-mode no").unwrap().config;
        assert_eq!(config.port.get(), 7000);
        assert_eq!(&*config.bind.get(), b"127.0.0.1 -::1");
        assert_eq!(config.timeout.get(), 3);
        assert!(!config.protected_mode.get());
        assert_eq!(parsed("--port 1 --port 2").unwrap().config.port.get(), 2, "the last one counts");
    }

    #[test]
    fn the_command_line_overrules_the_environment() {
        let environment = [("KEYFAST_PORT", "1"), ("KEYFAST_TIMEOUT", "2")];
        let environment = environment.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let arguments = ["keyfast", "--port", "7000"].map(OsString::from);
        let Asked::Serve(startup) = parse(arguments, &environment).unwrap() else { panic!("a server") };
        assert_eq!((startup.config.port.get(), startup.config.timeout.get()), (7000, 2));
    }

    #[test]
    fn the_version_is_the_same_under_every_name() {
        let said = ["/usr/bin/redis-server", "valkey-server", "./keyfast"].map(|program| {
            let Asked::Print(text) = parse([program, "--version"].map(OsString::from), &[]).unwrap() else {
                panic!("a text")
            };
            text
        });
        assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
        let begins = format!("keyfast {} (", env!("CARGO_PKG_VERSION"));
        let has = format!(") Redis server v={REDIS_VERSION} sha=");
        assert!(said[0].starts_with(&begins) && said[0].contains(&has), "{}", said[0]);
        assert_eq!(said[0].find('\n'), Some(said[0].len() - 1), "one line");
    }
}
