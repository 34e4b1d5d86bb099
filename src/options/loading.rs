//! Configuration files, line by line, with the grammar and the complaints of Redis.
//!
//! A line is a directive and its values, split into words as inline requests are; the last one of a name
//! counts. What is not there yet when it is named (commands that rename others, users who may run them) is
//! collected, and done when the server starts.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::acl::{Mistake, Refused, Users};
use crate::commands::lookup::{self, Renamed};
use crate::config::foreign::{self, Values};
use crate::config::{Config, Parameter};
use crate::files;
use crate::resp::{OwnedRequest, Request};

/// Bytes of one file, or of standard input: that of Redis has a hundred thousand, nearly all of them
/// comments.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that are read within others. One that includes itself makes Redis crash.
const INCLUDED_MAX: usize = 16;
/// Bytes of one line: words are found by the reader of inline requests, which takes no more.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Loader {
    /// The parameters.
    pub(super) config: Config,
    /// Lines that declare users.
    pub(super) users: Vec<OwnedRequest>,
    /// Commands with the names that they get; an empty one is none.
    pub(super) renamed: Renamed,
    /// Directives without a meaning here.
    pub(super) foreign: Vec<String>,
    /// The points of all lines `save` since the last one without any.
    save_points: Vec<u8>,
}

/// Why reading ends.
enum Wrong {
    /// This line is not right.
    Line(String),
    /// All is said already: in a file that the line includes.
    Said(String),
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Wrong {
        Wrong::Line(why.to_owned())
    }
}

impl Loader {
    /// One that has read nothing and goes on from these parameters.
    pub(super) fn new(config: Config) -> Loader {
        Loader { config, ..Loader::default() }
    }

    /// Reads a text; `depth` is how many files it is within.
    ///
    /// # Errors
    ///
    /// With what Redis prints.
    pub(super) fn load(&mut self, text: &[u8], depth: usize) -> Result<(), String> {
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.obey(line, depth).map_err(|wrong| match wrong {
                Wrong::Line(why) => {
                    let line = String::from_utf8_lossy(line);
                    fatal(&format!("Reading the configuration file, at line {number}\n>>> '{line}'\n{why}"))
                }
                Wrong::Said(text) => text,
            })?;
        }
        Ok(())
    }

    fn obey(&mut self, line: &[u8], depth: usize) -> Result<(), Wrong> {
        if line.len() > LINE_BYTES_MAX {
            return Err("Configuration line is too long".into());
        }
        let words = OwnedRequest::of_line(line).ok_or("Unbalanced quotes in configuration line")?;
        let Some(request) = words.request() else { return Ok(()) };
        let name = String::from_utf8_lossy(request.name()).to_ascii_lowercase();
        if let Some(parameter) = Parameter::named(name.as_bytes()) {
            return self.set(parameter, request);
        }
        if let Some(values) = foreign::find(&name) {
            return self.pass_over(name, values, request);
        }
        match (name.as_str(), request.len()) {
            ("include", 2) => self.include(request.at(1), depth).map_err(Wrong::Said),
            ("rename-command", 3) => self.rename(request.at(1), request.at(2)),
            ("user", 2..) => self.declare_user(words),
            ("loadmodule", 2..) => Err("Modules cannot be loaded".into()),
            ("sentinel", 2..) => Err("sentinel directive while not in sentinel mode".into()),
            (module, 1) if module.contains('.') => Err("Module config specified without value".into()),
            (module, _) if module.contains('.') => Err("There is no module that this could concern".into()),
            _ => Err("Bad directive or wrong number of arguments".into()),
        }
    }

    fn set(&mut self, parameter: &'static Parameter, request: Request<'_>) -> Result<(), Wrong> {
        if !parameter.takes_several() && request.len() != 2 {
            return Err("wrong number of arguments".into());
        }
        let mut text = request.from(1).collect::<Vec<_>>().join(&b' ');
        if parameter.name == "save" && !text.is_empty() && !self.save_points.is_empty() {
            text = [&*self.save_points, &*text].join(&b' ');
        }
        match parameter.check(&text) {
            Ok(checked) => self.config.store(checked),
            Err(refusal) => return Err(Wrong::Line(refusal.to_string())),
        }
        if parameter.name == "save" {
            self.save_points = text;
        }
        Ok(())
    }

    fn pass_over(&mut self, name: String, values: Values, request: Request<'_>) -> Result<(), Wrong> {
        let is_right = match values {
            Values::One => request.len() == 2,
            Values::Several => request.len() >= 2,
        };
        if !is_right {
            return Err("wrong number of arguments".into());
        }
        self.add_foreign(name);
        Ok(())
    }

    fn add_foreign(&mut self, name: String) {
        if !self.foreign.contains(&name) {
            self.foreign.push(name);
        }
    }

    fn include(&mut self, path: &[u8], depth: usize) -> Result<(), String> {
        if depth == INCLUDED_MAX {
            return Err(fatal(&format!("More than {INCLUDED_MAX} configuration files include each other")));
        }
        let text = read_file(Path::new(std::ffi::OsStr::from_bytes(path)))?;
        self.load(&text, depth + 1)
    }

    fn rename(&mut self, old: &[u8], new: &[u8]) -> Result<(), Wrong> {
        let old = String::from_utf8_lossy(old).to_ascii_lowercase();
        let names = lookup::names_after(&self.renamed);
        if !names.contains(old.as_bytes()) {
            return Err("No such command in rename-command".into());
        }
        let new = new.to_ascii_lowercase();
        if names.contains(&new) {
            return Err("Target command name already exists".into());
        }
        self.renamed.push((old, new));
        Ok(())
    }

    /// Checks a user's rules as far as Redis does at this point.
    fn declare_user(&mut self, words: OwnedRequest) -> Result<(), Wrong> {
        let Some(declared) = words.request() else { return Ok(()) };
        let wrong = |word: &[u8], why: &str| {
            Wrong::Line(format!("Error in user declaration '{}': {why}", String::from_utf8_lossy(word)))
        };
        let is_same =
            |other: &OwnedRequest| other.request().is_some_and(|other| other.at(1) == declared.at(1));
        if self.users.iter().any(is_same) {
            let why = "Duplicate user found. A user can only be defined once in config files";
            return Err(wrong(declared.at(1), why));
        }
        match Users::new(lookup::catalog()).set(b"somebody", declared.from(2), false) {
            // Redis names another word here and has forgotten what was wrong.
            Err(Refused::Unclosed(place)) => {
                return Err(wrong(declared.at(2 + place), "Unmatched parenthesis in selector definition."));
            }
            Err(Refused::Rule(rule, mistake)) if mistake != Mistake::UnknownCommand => {
                return Err(wrong(&rule, &mistake.to_string()));
            }
            // A command that is not there is an error when the users are made.
            _ => {}
        }
        self.users.push(words);
        Ok(())
    }
}

/// An error as Redis prints it, to whose text people and tools search their way.
pub(super) fn fatal(text: &str) -> String {
    format!("\n*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n{text}")
}

/// The text of a file, or of all files that a pattern matches, if it is one.
///
/// # Errors
///
/// In the words of Redis.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let is_pattern = path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
    let paths = if is_pattern { matching(path) } else { vec![path.to_owned()] };
    let mut text = Vec::new();
    for path in paths {
        let wrong =
            |why: &str| format!("keyfast: Fatal error, can't open config file '{}': {why}", path.display());
        let read = File::open(&path).and_then(read_all);
        text.extend(read.map_err(|error| wrong(&files::reason(&error)))?);
    }
    Ok(text)
}

/// Everything that there is to be read.
///
/// # Errors
///
/// If that fails, or if it is too much.
pub(super) fn read_all(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The files that a pattern matches, by their names; none is no error.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let options = ::glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: true,
    };
    let found = pattern.to_str().and_then(|pattern| ::glob::glob_with(pattern, options).ok());
    found.into_iter().flatten().filter_map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Loader, String> {
        let mut loader = Loader::new(Config::new());
        loader.load(text.as_bytes(), 0).map(|()| loader)
    }

    fn complaint(text: &str) -> String {
        let complaint = loaded(text).unwrap_err();
        complaint.lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn lines_are_directives_and_the_last_one_counts() {
        let loader = loaded(
            "# comment\n\t PORT 7000 \r\nport 7001\nrequirepass \"a\\x41 \\\"b\"\nmaxmemory 100MB\nbind 127.0.0.1 \
             -::1\nclient-output-buffer-limit pubsub 1mb 1 1\nlua-time-limit 7\nhz 10\nhz 20\nreplicaof a 1",
        );
        let loader = loader.unwrap();
        assert_eq!(loader.config.port.get(), 7001);
        assert_eq!(&*loader.config.requirepass.get(), b"aA \"b");
        assert_eq!(loader.config.maxmemory.get(), 100 << 20);
        assert_eq!(&*loader.config.bind.get(), b"127.0.0.1 -::1");
        assert_eq!(loader.config.busy_reply_threshold.get(), 7);
        assert_eq!(loader.foreign, ["hz", "replicaof"]);
        assert!(loader.config.client_output_buffer_limit.print().ends_with("pubsub 1048576 1 1"));
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_redis() {
        assert_eq!(
            loaded("\nfoo bar").unwrap_err(),
            "\n*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\nReading the configuration file, at line 2\n\
             >>> 'foo bar'\nBad directive or wrong number of arguments"
        );
        for (line, expected) in [
            ("port \"1", "Unbalanced quotes in configuration line"),
            ("port", "wrong number of arguments"),
            ("maxmemory 1mb # much", "wrong number of arguments"),
            ("hz", "wrong number of arguments"),
            ("hz 10 # often", "wrong number of arguments"),
            ("port x", "argument couldn't be parsed into an integer"),
            ("include a b", "Bad directive or wrong number of arguments"),
            (
                "include /nosuch",
                "keyfast: Fatal error, can't open config file '/nosuch': No such file or directory",
            ),
            ("rename-command nosuch x", "No such command in rename-command"),
            ("rename-command get SET", "Target command name already exists"),
            ("rename-command get \"\"\nrename-command get x", "No such command in rename-command"),
            (
                "user a on\nuser a off",
                "Error in user declaration 'a': Duplicate user found. A user can only be defined once in config files",
            ),
            (
                "user a (+get",
                "Error in user declaration '(+get': Unmatched parenthesis in selector definition.",
            ),
            ("user a x", "Error in user declaration 'x': Syntax error"),
            ("sentinel x", "sentinel directive while not in sentinel mode"),
            ("a.b", "Module config specified without value"),
        ] {
            assert_eq!(complaint(line), expected, "{line}");
        }
    }

    #[test]
    fn a_pattern_without_files_includes_nothing() {
        assert!(loaded("include /nosuch/*.conf").is_ok());
    }
}
