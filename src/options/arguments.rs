//! The command line as redis-server reads it: a configuration file, `-` for standard input, and directives.
//!
//! The arguments from the first `--` on are the text of a configuration file in another form: each option
//! begins a line, everything up to the next is its values. `--port 7000 --bind 127.0.0.1 -::1` is read as
//! `port "7000"` and `bind "127.0.0.1" "-::1"`; `"--save 60 1"` is a line already.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::config::Parameter;
use crate::resp::OwnedRequest;
use crate::resp::reply::write_quoted;

/// What the arguments ask the program to do.
#[derive(Debug, PartialEq)]
pub(super) enum Arguments {
    /// To start a server.
    Serve {
        /// The configuration file, as it was typed.
        file: Option<PathBuf>,
        /// Whether standard input holds more of the configuration.
        reads_input: bool,
        /// The lines that the options make, which come last; none if there was no argument.
        lines: Option<Vec<u8>>,
    },
    /// To print one screen of help.
    ShortHelp,
    /// To print the help with all parameters.
    Help,
    /// To print the version.
    Version,
    /// To print completions for the shell of this name.
    Completions(Vec<u8>),
    /// To print the page of the manual.
    Manual,
}

/// Reads the arguments, without the program's name.
pub(super) fn read(arguments: Vec<OsString>) -> Arguments {
    let arguments: Vec<Vec<u8>> = arguments.into_iter().map(OsString::into_vec).collect();
    match arguments.first().map(Vec::as_slice) {
        None => return Arguments::Serve { file: None, reads_input: false, lines: None },
        Some(b"-h") => return Arguments::ShortHelp,
        Some(b"-v" | b"-V") => return Arguments::Version,
        Some(b"--man") => return Arguments::Manual,
        Some(b"--completions") => {
            return Arguments::Completions(arguments.get(1).cloned().unwrap_or_default());
        }
        Some(_) => {}
    }
    let file = arguments.first().filter(|first| !first.starts_with(b"-"));
    let file = file.map(|path| PathBuf::from(std::ffi::OsStr::from_bytes(path)));
    let last = arguments.len() - 1;
    let mut reads_input = false;
    let mut lines = Lines::default();
    for (place, argument) in arguments.iter().enumerate().skip(usize::from(file.is_some())) {
        let next = arguments.get(place + 1);
        match argument.as_slice() {
            b"-" if place == 0 || place == last => reads_input = true,
            b"--help" if lines.takes_option => return Arguments::Help,
            b"--version" if lines.takes_option => return Arguments::Version,
            [b'-', b'-', option @ ..] if lines.takes_option => lines.begin_option(option, next),
            value => lines.add_value(value),
        }
    }
    Arguments::Serve { file, reads_input, lines: Some(lines.text) }
}

/// The lines that arguments make, while they are read.
struct Lines {
    text: Vec<u8>,
    /// Whether `--` begins an option here; if not, it begins the value of the last option.
    takes_option: bool,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { text: Vec::new(), takes_option: true }
    }
}

impl Lines {
    fn begin_option(&mut self, option: &[u8], next: Option<&Vec<u8>>) {
        if !self.text.is_empty() {
            self.text.push(b'\n');
        }
        if let Some((name, value)) = split_at_equals(option) {
            self.text.extend_from_slice(name);
            return self.add_value(value);
        }
        self.text.extend_from_slice(option);
        self.text.push(b' ');
        let words = OwnedRequest::of_line(option);
        let is_name_alone =
            words.as_ref().and_then(OwnedRequest::request).is_some_and(|words| words.len() == 1);
        let is_followed_by_option = next.is_none_or(|next| next.starts_with(b"--"));
        let is_empty_save = option.eq_ignore_ascii_case(b"save") && is_followed_by_option;
        if is_empty_save {
            // `--save` without a value means no save points.
            self.text.extend_from_slice(b"\"\"");
        }
        self.takes_option = !is_name_alone || is_empty_save;
    }

    fn add_value(&mut self, value: &[u8]) {
        if self.text.last().is_some_and(|last| !last.is_ascii_whitespace()) {
            self.text.push(b' ');
        }
        write_quoted(&mut self.text, value);
        self.text.push(b' ');
        self.takes_option = true;
    }
}

/// Splits `--port=7000`. redis-server refuses it, but no parameter's name contains `=`, so it is unambiguous.
fn split_at_equals(option: &[u8]) -> Option<(&[u8], &[u8])> {
    let place = option.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (&option[..place], &option[place + 1..]);
    Parameter::named(name).map(|_| (name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(arguments: &[&str]) -> String {
        match read(arguments.iter().map(OsString::from).collect()) {
            Arguments::Serve { lines, .. } => String::from_utf8(lines.unwrap_or_default()).unwrap(),
            other => panic!("{arguments:?} asks for {other:?}"),
        }
    }

    #[test]
    fn arguments_become_lines() {
        for (arguments, expected) in [
            (
                &["--port", "7000", "--bind", "127.0.0.1", "-::1"][..],
                "port \"7000\" \nbind \"127.0.0.1\" \"-::1\" ",
            ),
            (&["--save 60 1", "--timeout", "-1"], "save 60 1 \ntimeout \"-1\" "),
            (&["--save", "--port", "1"], "save \"\"\nport \"1\" "),
            (&["--port", "1", "--save"], "port \"1\" \nsave \"\""),
            (&["--requirepass", "--secret"], "requirepass \"--secret\" "),
            (&["--port=7000", "--requirepass=a b"], "port \"7000\" \nrequirepass \"a b\" "),
            (&["--nosuch=7000", "--port", "1"], "nosuch=7000 \"--port\" \"1\" "),
            (&["-p", "1"], "\"-p\" \"1\" "),
        ] {
            assert_eq!(lines(arguments), expected, "{arguments:?}");
        }
    }

    #[test]
    fn the_first_argument_may_be_a_file_and_the_first_or_last_standard_input() {
        let asked = |arguments: &[&str]| match read(arguments.iter().map(OsString::from).collect()) {
            Arguments::Serve { file, reads_input, lines } => (file, reads_input, lines.unwrap_or_default()),
            other => panic!("{arguments:?} asks for {other:?}"),
        };
        let file = || Some(PathBuf::from("a.conf"));
        assert_eq!(asked(&[]), (None, false, vec![]));
        assert_eq!(asked(&["-"]), (None, true, vec![]));
        assert_eq!(asked(&["a.conf"]), (file(), false, vec![]));
        assert_eq!(asked(&["a.conf", "-"]), (file(), true, vec![]));
        assert_eq!(asked(&["a.conf", "--x", "1", "-"]), (file(), true, b"x \"1\" ".to_vec()));
        assert_eq!(asked(&["a.conf", "-", "--x", "1"]), (file(), false, b"\"-\" \nx \"1\" ".to_vec()));
    }

    #[test]
    fn help_and_version_are_options_and_can_be_values() {
        let asked = |arguments: &[&str]| read(arguments.iter().map(OsString::from).collect());
        for help in [&["--help"][..], &["--port", "1", "--help"]] {
            assert_eq!(asked(help), Arguments::Help);
        }
        assert_eq!(asked(&["-h"]), Arguments::ShortHelp);
        for version in [&["--version"][..], &["-v"], &["-V"]] {
            assert_eq!(asked(version), Arguments::Version);
        }
        assert_eq!(lines(&["--requirepass", "--help"]), "requirepass \"--help\" ");
    }
}
