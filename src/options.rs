//! The command line: one option for each parameter, by its name.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};

use crate::config::{Config, Kind, PARAMETERS, Parameter};

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// A server with these parameters.
    Serve(Box<Config>),
    /// A text: the help, or the version.
    Print(String),
}

/// Reads a command line, the program's name included.
///
/// # Errors
///
/// With one line for people.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let matches = match command().try_get_matches_from(join_values(arguments)) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Asked::Print(error.to_string()));
        }
        Err(error) => return Err(first_line(&error.to_string())),
    };
    let config = Box::new(Config::new());
    for parameter in PARAMETERS {
        let Some(text) = matches.get_one::<String>(parameter.name) else { continue };
        let checked = parameter
            .check(text.as_bytes())
            .map_err(|refusal| format!("invalid value '{text}' for '--{}': {refusal}", parameter.name))?;
        config.store(checked);
    }
    Ok(Asked::Serve(config))
}

/// Makes one argument of an option and its values: everything up to the next option, as redis-server reads
/// its command line. So `--bind 127.0.0.1 -::1` has two values, and `--timeout -1` a negative one.
fn join_values(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut has_value = true;
    for argument in arguments {
        match joined.last_mut() {
            Some(option) if option.starts_with("--") && !argument.starts_with("--") => {
                option.push(if has_value { ' ' } else { '=' });
                option.push_str(&argument);
                has_value = true;
            }
            _ => {
                has_value = argument.contains('=');
                joined.push(argument);
            }
        }
    }
    joined
}

fn command() -> Command {
    Command::new("keyfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .override_usage("keyfast [--parameter value …]")
        .args(PARAMETERS.iter().map(option))
}

fn option(parameter: &'static Parameter) -> Arg {
    let default = match parameter.default {
        "" => String::new(),
        default => format!(" [default: {default}]"),
    };
    let arg = Arg::new(parameter.name)
        .long(parameter.name)
        .help(format!("{}{default}", parameter.help))
        .action(ArgAction::Set)
        .overrides_with(parameter.name);
    match (parameter.name, &parameter.kind) {
        ("bind", _) => arg.value_name("addresses"),
        (_, Kind::Integer { .. } | Kind::Octal { .. }) => arg.value_name("number"),
        (_, Kind::Bytes { .. }) => arg.value_name("bytes"),
        (_, Kind::Flag | Kind::Only("yes" | "no", _)) => arg.value_name("yes|no"),
        (_, Kind::Choice(words)) => arg.value_name(words.join("|")),
        (_, Kind::Events) => arg.value_name("letters"),
        (_, Kind::Limits) => arg.value_name("limits"),
        (_, Kind::Text | Kind::Only(..)) => arg.value_name("text"),
    }
}

/// The library explains at length; what is wrong is on the first line.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or(text).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Box<Config>, String> {
        match parse(format!("keyfast {line}").split(' ').map(str::to_owned))? {
            Asked::Serve(config) => Ok(config),
            Asked::Print(text) => Err(text),
        }
    }

    #[test]
    fn parameters_are_options() {
        let config = parsed("--port 7000 --bind 127.0.0.1 -::1 --timeout 3 --protected-mode no").unwrap();
        assert_eq!(config.port.get(), 7000);
        assert_eq!(&*config.bind.get(), b"127.0.0.1 -::1");
        assert_eq!(config.timeout.get(), 3);
        assert!(!config.protected_mode.get());
        assert_eq!(parsed("--port 1 --port 2").unwrap().port.get(), 2, "the last one counts");
    }

    #[test]
    fn a_mistake_is_one_line() {
        for (line, expected) in [
            ("--nosuch 1", "unexpected argument '--nosuch' found"),
            ("--port", "a value is required for '--port <number>' but none was supplied"),
            ("--port x", "invalid value 'x' for '--port': argument couldn't be parsed into an integer"),
            ("--port -1", "invalid value '-1' for '--port': argument must be between 0 and 65535 inclusive"),
        ] {
            assert_eq!(parsed(line).unwrap_err(), expected);
        }
    }
}
