//! How a server is told what to do: by the environment, a configuration file, standard input and the command
//! line, of which each overrules those before it.
//!
//! [`arguments`] takes the command line apart as redis-server does, [`loading`] reads the lines that it and
//! the files hold, [`environment`] what the environment says; [`suggestions`] guess what a user meant by an
//! unknown name; [`documents`] are made of the same options.

mod arguments;
mod documents;
mod environment;
mod loading;
mod suggestions;

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use crate::REDIS_VERSION;
use crate::commands::facts::lookup::Renamed;
use crate::config::table::{FAMILIES, Family, kept};
use crate::config::{Changes, Config, Kind, Parameter};
use crate::files::{self, NamedFile};
use crate::resp::OwnedRequest;

use arguments::Arguments;
use loading::{Loader, Source};

/// What is asked for.
#[derive(Debug)]
pub enum Asked {
    /// A server.
    Serve(Box<Startup>),
    /// A text: the help, the version, or what packages bring along.
    Print(String),
}

/// All that a server begins with.
#[derive(Debug, Default)]
pub struct Startup {
    /// Its parameters.
    pub config: Config,
    /// Users that the configuration file declares, in its words.
    pub users: Vec<OwnedRequest>,
    /// Commands that go by other names, or by none where that is empty.
    pub renamed: Renamed,
    /// Directives that have no effect here, and would have one in Redis.
    pub foreign: Vec<String>,
    /// Directives that ask for what is not there, and what a user would miss.
    pub missing: Vec<(String, &'static str)>,
    /// Whether anything was said at all.
    pub is_configured: bool,
}

/// Reads a command line, the program's name included, and what it and the environment name.
///
/// # Errors
///
/// With what is to be printed: that of Redis for a mistake in a line, else one line for people.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &[(OsString, OsString)],
) -> Result<Asked, String> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().unwrap_or_default();
    match arguments::read(arguments.collect()) {
        Arguments::Help => Ok(Asked::Print(command().render_help().to_string())),
        Arguments::Version => Ok(Asked::Print(version(Path::new(&program)))),
        Arguments::Completions(shell) => documents::completions(command(), &shell).map(Asked::Print),
        Arguments::Manual => Ok(Asked::Print(documents::manual(command()))),
        Arguments::Serve { file, reads_input, lines } => {
            let mut config = Config::new();
            config.file = absolute(file)?;
            environment::apply(&config, environment).map_err(|why| format!("keyfast: {why}"))?;
            let is_configured = lines.is_some();
            let text = text(config.file.as_deref(), reads_input)?;
            let mut loader = Loader::new(config);
            loader.load(&text, Source::File, 0)?;
            loader.load(&lines.unwrap_or_default(), Source::Options, 0)?;
            loader.check_missing()?;
            check_log_file(&loader.config)?;
            let Loader { config, users, renamed, mut foreign, missing, .. } = loader;
            foreign.extend(config.kept_names().into_iter().map(str::to_owned));
            let missing = missing.into_iter().map(|missing| (missing.directive, missing.why)).collect();
            Ok(Asked::Serve(Box::new(Startup { config, users, renamed, foreign, missing, is_configured })))
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

/// The path that means the same wherever the process will be.
fn absolute(path: Option<PathBuf>) -> Result<Option<PathBuf>, String> {
    let wrong = |error: io::Error| format!("keyfast: {}", files::reason(&error));
    path.map(|path| std::path::absolute(path).map_err(wrong)).transpose()
}

/// A log that cannot be written is found out before the server is on its own.
fn check_log_file(config: &Config) -> Result<(), String> {
    let Some(NamedFile { path, .. }) = config.file_of(&config.logfile) else { return Ok(()) };
    let opened = OpenOptions::new().append(true).create(true).open(&path);
    let wrong =
        |error| format!("keyfast: can't open the log file '{}': {}", path.display(), files::reason(&error));
    opened.map(drop).map_err(wrong)
}

/// The version, in the form that tools expect of the program that they think they have called.
fn version(program: &Path) -> String {
    let like = |name: &str| {
        format!("{name} server v={REDIS_VERSION} sha=00000000:0 malloc=libc bits={} build=0\n", usize::BITS)
    };
    match program.file_name().and_then(OsStr::to_str) {
        Some("redis-server") => like("Redis"),
        Some("valkey-server") => like("Valkey"),
        _ => command().render_version(),
    }
}

fn command() -> Command {
    Command::new("keyfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .override_usage(
            "keyfast [/path/to/redis.conf] [--parameter value …] [-]\n       \
             keyfast cli [-h host] [-p port] [option …] [command [argument …]]",
        )
        // A column beside the longest option would begin beyond the edge of most terminals.
        .next_line_help(true)
        .args(FAMILIES.iter().flat_map(|family| {
            family.parameters.iter().map(|parameter| option(parameter).help_heading(family.title))
        }))
        .args(documents::options())
        .args(kept_parameters().map(|parameter| option(parameter).hide(true)))
        .after_help(kept_names())
}

/// Whether a parameter is an option of which the help should speak.
fn is_option(parameter: &&Parameter) -> bool {
    parameter.changes != Changes::Never && !parameter.is_hidden
}

/// The options that have no effect.
fn kept_parameters() -> impl Iterator<Item = &'static Parameter> {
    kept::FAMILIES.iter().flat_map(|family| family.parameters).filter(is_option)
}

/// What the help says of those, and of what is no option.
fn kept_names() -> String {
    let mut text = String::from(
        "'-' reads more of the configuration from standard input.\n'keyfast cli' is a client like redis-cli, \
         also where the program is called redis-cli; 'keyfast cli --help' lists its options.\n\n\
         These are options too. Their values are checked as Redis checks them, and kept, but nothing acts on \
         them.",
    );
    for Family { title, parameters } in kept::FAMILIES {
        let mut line = format!("\n\nBecause {title}:");
        for parameter in parameters.iter().filter(is_option) {
            if line.trim_start().len() + parameter.name.len() > HELP_CHARACTERS_MAX {
                text.push_str(&line);
                line = "\n ".to_owned();
            }
            line.extend([" ", parameter.name]);
        }
        text.push_str(&line);
    }
    text
}

/// Characters on a line of names.
const HELP_CHARACTERS_MAX: usize = 96;

fn option(parameter: &'static Parameter) -> Arg {
    let default = match parameter.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let arg = Arg::new(parameter.name)
        .long(parameter.name)
        .help(format!("{}{default}", parameter.help))
        .action(ArgAction::Set)
        .overrides_with(parameter.name)
        .value_hint(match parameter.kind {
            Kind::Directory => ValueHint::DirPath,
            Kind::Text | Kind::FileName { .. } => ValueHint::AnyPath,
            Kind::Hostname => ValueHint::Hostname,
            // Otherwise shells would offer files for numbers.
            _ => ValueHint::Other,
        });
    match parameter.kind {
        Kind::Addresses | Kind::IpAddresses => arg.value_name("addresses"),
        Kind::Integer { .. } | Kind::Octal { .. } | Kind::Frequency => arg.value_name("number"),
        Kind::BytesOrPercent => arg.value_name("bytes or percent"),
        Kind::Bytes { .. } | Kind::Backlog => arg.value_name("bytes"),
        Kind::Flag | Kind::Never(_) => one_of(arg, &["yes", "no"]),
        Kind::Choice(words) | Kind::ChoiceWithSynonym { words, .. } => one_of(arg, words),
        Kind::Words(_) => arg.value_name("words"),
        Kind::Events => arg.value_name("letters"),
        Kind::Limits => arg.value_name("limits"),
        Kind::Directory => arg.value_name("directory"),
        Kind::FileName { .. } => arg.value_name("name"),
        Kind::SavePoints => arg.value_name("seconds changes"),
        Kind::Percentiles | Kind::Scores => arg.value_name("numbers"),
        Kind::Version => arg.value_name("version"),
        Kind::Text | Kind::Hostname | Kind::Title => arg.value_name("text"),
    }
}

/// Says which words an option takes: in its name's place in the help, one by one in completions.
fn one_of(arg: Arg, words: &'static [&'static str]) -> Arg {
    arg.value_name(words.join("|")).value_parser(PossibleValuesParser::new(words)).hide_possible_values(true)
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
    fn the_version_has_the_form_of_the_program_that_was_called() {
        for (program, expected) in [
            ("/usr/bin/redis-server", format!("Redis server v={REDIS_VERSION} ")),
            ("valkey-server", format!("Valkey server v={REDIS_VERSION} ")),
            ("./keyfast", "keyfast ".to_owned()),
        ] {
            let arguments = [program, "--version"].map(OsString::from);
            let Asked::Print(text) = parse(arguments, &[]).unwrap() else { panic!("a text") };
            assert!(text.starts_with(&expected) && text.ends_with('\n'), "{text}");
        }
    }
}
