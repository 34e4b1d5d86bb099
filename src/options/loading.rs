//! Configuration files, line by line, with the grammar and the complaints of Redis.
//!
//! A line is a directive and its values, split into words as inline requests are; the last one of a name
//! counts. What is not there yet when it is named (commands that rename others, users who may run them) is
//! collected, and done when the server starts.
//!
//! The options of the command line are read as such lines, too. What is wrong with one of them is said of the
//! option: a user who has no file must not be sent to look for a line of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::acl::{Mistake, Refused, Users, shown_rule};
use crate::commands::absent;
use crate::commands::catalog;
use crate::commands::facts::lookup::{self, Renamed};
use crate::config::foreign::{self, Values};
use crate::config::{Changes, Config, Parameter, is_secret};
use crate::files;
use crate::resp::{OwnedRequest, Request};

use super::suggestions;

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
    /// Directives without an effect here that would have one in Redis.
    pub(super) foreign: Vec<String>,
    /// What the server cannot do although it was asked to.
    pub(super) missing: Vec<Missing>,
    /// The points of all lines `save` since the last one without any.
    save_points: Vec<u8>,
}

/// Where a line is from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The configuration file, or standard input after it.
    File,
    /// A file that another one includes.
    Included(&'a Path),
    /// The command line.
    Options,
}

/// A line that asks for what Keyfast does not have.
#[derive(Debug)]
pub(super) struct Missing {
    /// The name of the directive.
    pub(super) directive: String,
    /// What a user would miss.
    pub(super) why: &'static str,
    /// The complaint, if the server must not start without it.
    complaint: String,
}

/// Why reading ends.
enum Wrong {
    /// This line is not right.
    Line(String),
    /// There is no directive of this name.
    Unknown(String),
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
    /// With what Redis prints for a line of a file, and one line for an option.
    pub(super) fn load(&mut self, text: &[u8], source: Source<'_>, depth: usize) -> Result<(), String> {
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let place = Place { source, number, line };
            self.obey(&place, depth).map_err(|wrong| match wrong {
                Wrong::Line(why) => place.complain(&why),
                Wrong::Unknown(name) => place.complain_of_unknown(&name),
                Wrong::Said(text) => text,
            })?;
        }
        Ok(())
    }

    /// Whether the server may start with what has been read.
    ///
    /// # Errors
    ///
    /// If it would lack what the configuration asks for.
    pub(super) fn check_missing(&self) -> Result<(), String> {
        match self.missing.first() {
            Some(missing) if !self.config.ignore_unsupported.get() => Err(missing.complaint.clone()),
            _ => Ok(()),
        }
    }

    fn obey(&mut self, place: &Place<'_>, depth: usize) -> Result<(), Wrong> {
        if place.line.len() > LINE_BYTES_MAX {
            return Err("Configuration line is too long".into());
        }
        let words = OwnedRequest::of_line(place.line).ok_or("Unbalanced quotes in configuration line")?;
        let Some(request) = words.request() else { return Ok(()) };
        let name = String::from_utf8_lossy(request.name()).to_ascii_lowercase();
        let parameter = Parameter::named(name.as_bytes());
        if let Some(parameter) = parameter.filter(|parameter| parameter.changes != Changes::Never) {
            return self.set(parameter, request);
        }
        let value = request.from(1).collect::<Vec<_>>().join(&b' ');
        if let Some(values) = foreign::find(&name) {
            let is_right = match values {
                Values::One => request.len() == 2,
                Values::Several => request.len() >= 2,
            };
            if !is_right {
                return Err("wrong number of arguments".into());
            }
            match foreign::missing(&name, &value) {
                Some(why) => self.miss(name, why, place),
                // The last line of a name counts.
                None if foreign::is_default(&name, &value) => {
                    self.foreign.retain(|other| *other != name);
                    self.missing.retain(|other| other.directive != name);
                }
                None => self.pass_over(name),
            }
            return Ok(());
        }
        match (name.as_str(), request.len()) {
            ("include", 2) => return self.include(request.at(1), depth).map_err(Wrong::Said),
            ("rename-command", 3) => return self.rename(request.at(1), request.at(2)),
            ("user", 2..) => return self.declare_user(words),
            ("sentinel", _) | ("loadmodule", 2..) => {
                if let Some(why) = foreign::missing(&name, &value) {
                    self.miss(name, why, place);
                }
            }
            ("include" | "rename-command" | "user" | "loadmodule", _) => {
                return Err("Bad directive or wrong number of arguments".into());
            }
            (module, 1) if module.contains('.') => return Err("Module config specified without value".into()),
            (module, _) if module.contains('.') => {
                self.miss(
                    name,
                    "Keyfast loads no modules, so there is none that this could configure",
                    place,
                );
            }
            _ => return Err(Wrong::Unknown(name)),
        }
        Ok(())
    }

    fn miss(&mut self, directive: String, why: &'static str, place: &Place<'_>) {
        let remedy = format!(
            "{why}. Remove {}, or add '--ignore-unsupported yes' to start anyway",
            place.source.noun()
        );
        let complaint = place.complain(&remedy);
        self.missing.push(Missing { directive, why, complaint });
    }

    fn set(&mut self, parameter: &'static Parameter, request: Request<'_>) -> Result<(), Wrong> {
        if !parameter.takes_several() && request.len() != 2 {
            return Err("wrong number of arguments".into());
        }
        let words = request.from(1).flat_map(|word| match parameter.takes_several() {
            // Quotes may hold a list together.
            true => word.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect(),
            false => vec![word],
        });
        let mut text = words.collect::<Vec<_>>().join(&b' ');
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

    fn pass_over(&mut self, name: String) {
        if !self.foreign.contains(&name) {
            self.foreign.push(name);
        }
    }

    fn include(&mut self, path: &[u8], depth: usize) -> Result<(), String> {
        if depth == INCLUDED_MAX {
            return Err(fatal(&format!("More than {INCLUDED_MAX} configuration files include each other")));
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let text = read_file(path)?;
        self.load(&text, Source::Included(path), depth + 1)
    }

    fn rename(&mut self, old: &[u8], new: &[u8]) -> Result<(), Wrong> {
        let old = String::from_utf8_lossy(old).to_ascii_lowercase();
        let names = lookup::names(&self.renamed);
        let is_taken = |name: &[u8]| names.iter().any(|(other, _)| other == name);
        if absent::all().any(|absent| absent.name == old) && !is_taken(old.as_bytes()) {
            // There is nothing to be renamed, which is as good.
            return Ok(());
        }
        if !is_taken(old.as_bytes()) {
            return Err("No such command in rename-command".into());
        }
        let new = new.to_ascii_lowercase();
        if is_taken(&new) {
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
        match Users::new(catalog()).set(b"somebody", declared.from(2), false) {
            // Redis names another word here and has forgotten what was wrong.
            Err(Refused::Unclosed(place)) => {
                return Err(wrong(declared.at(2 + place), "Unmatched parenthesis in selector definition."));
            }
            Err(Refused::Rule(rule, mistake)) if mistake != Mistake::UnknownCommand => {
                return Err(wrong(shown_rule(&rule), &mistake.to_string()));
            }
            // A command that is not there is an error when the users are made.
            _ => {}
        }
        self.users.push(words);
        Ok(())
    }
}

impl Source<'_> {
    /// What a user would remove.
    fn noun(self) -> &'static str {
        match self {
            Source::File | Source::Included(_) => "this line",
            Source::Options => "this option",
        }
    }
}

/// A line, and where it is.
struct Place<'a> {
    source: Source<'a>,
    number: usize,
    line: &'a [u8],
}

impl Place<'_> {
    /// What to print if the line is wrong.
    fn complain(&self, why: &str) -> String {
        let of_file = match self.source {
            Source::Options => {
                let end = self.line.iter().position(u8::is_ascii_whitespace).unwrap_or(self.line.len());
                let option = option(&self.line[..end]);
                return format!("keyfast: option {option}: {why}");
            }
            Source::File => String::new(),
            Source::Included(path) => format!(" of {}", path.display()),
        };
        let line = self.shown();
        fatal(&format!(
            "Reading the configuration file, at line {}{of_file}\n>>> '{line}'\n{why}",
            self.number
        ))
    }

    /// The line, without passwords.
    fn shown(&self) -> String {
        let name = self.line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        match is_secret(name) || name.eq_ignore_ascii_case(b"user") {
            true => format!("{} (redacted)", String::from_utf8_lossy(name)),
            false => String::from_utf8_lossy(self.line).into_owned(),
        }
    }

    /// What to print if there is no directive of this name.
    fn complain_of_unknown(&self, name: &str) -> String {
        let meant = suggestions::of(name);
        match self.source {
            Source::Options => {
                let meant = meant.map(|meant| format!(", did you mean --{meant}?")).unwrap_or_default();
                format!("keyfast: unknown option {}{meant}", option(name.as_bytes()))
            }
            _ => {
                let meant = meant.map(|meant| format!(", did you mean '{meant}'?")).unwrap_or_default();
                self.complain(&format!("Bad directive or wrong number of arguments{meant}"))
            }
        }
    }
}

/// A name as it was typed on the command line: a line begins without its dashes, unless there was one alone.
fn option(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_matches('"');
    if name.starts_with('-') { name.to_owned() } else { format!("--{name}") }
}

/// A mistake in a file, in the form in which Redis prints it: users and tools search for this line.
fn fatal(text: &str) -> String {
    format!("\n*** FATAL CONFIG FILE ERROR (Keyfast {}) ***\n{text}", env!("CARGO_PKG_VERSION"))
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
        loader.load(text.as_bytes(), Source::File, 0)?;
        loader.check_missing().map(|()| loader)
    }

    fn complaint(text: &str) -> String {
        let complaint = loaded(text).unwrap_err();
        complaint.lines().last().unwrap_or_default().to_owned()
    }

    #[test]
    fn lines_are_directives_and_the_last_one_counts() {
        let loader = loaded(
            "# comment\n\t PORT 7000 \r\nport 7001\nrequirepass \"a\\x41 \\\"b\"\nmaxmemory 100MB\nbind 127.0.0.1 \
             -::1\nclient-output-buffer-limit pubsub 1mb 1 1\nlua-time-limit 7\nhz 10\nhz 20\nmptcp yes",
        );
        let loader = loader.unwrap();
        assert_eq!(loader.config.port.get(), 7001);
        assert_eq!(&*loader.config.requirepass.get(), b"aA \"b");
        assert_eq!(loader.config.maxmemory.get(), 100 << 20);
        assert_eq!(&*loader.config.bind.get(), b"127.0.0.1 -::1");
        assert_eq!(loader.config.busy_reply_threshold.get(), 7);
        assert_eq!(loader.config.hz.get(), 20);
        assert_eq!(loader.foreign, ["mptcp"]);
        assert!(loader.config.client_output_buffer_limit.print().ends_with("pubsub 1048576 1 1"));
    }

    #[test]
    fn mistakes_are_told_in_the_words_of_redis() {
        assert_eq!(
            loaded("\nfoo bar").unwrap_err(),
            format!(
                "\n*** FATAL CONFIG FILE ERROR (Keyfast {}) ***\nReading the configuration file, at line 2\n\
                 >>> 'foo bar'\nBad directive or wrong number of arguments",
                env!("CARGO_PKG_VERSION")
            )
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
            ("portt 1", "Bad directive or wrong number of arguments, did you mean 'port'?"),
            (
                "replicaof a 1",
                "Keyfast has no replication: it would start as a primary of its own, without the data of \
                 the other server. Remove this line, or add '--ignore-unsupported yes' to start anyway",
            ),
            ("a.b", "Module config specified without value"),
        ] {
            assert_eq!(complaint(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_missing_may_be_ignored_also_by_a_later_line() {
        for line in
            ["slaveof a 1", "cluster-enabled yes", "loadmodule x.so", "sentinel monitor a b 1 1", "bf.size 1"]
        {
            assert!(complaint(line).ends_with("to start anyway"), "{line}");
            let loader = loaded(&format!("{line}\nignore-unsupported yes")).unwrap();
            assert_eq!(loader.missing.len(), 1);
        }
        let loader = loaded("replicaof a 1\nhz 9\nreplicaof no one\ncluster-enabled no\nhz 10").unwrap();
        assert!(loader.foreign.is_empty() && loader.missing.is_empty());
    }

    #[test]
    fn commands_that_are_not_here_can_be_renamed_too() {
        assert!(
            loaded("rename-command slaveof \"\"\nrename-command MIGRATE migrate2")
                .unwrap()
                .renamed
                .is_empty()
        );
    }

    #[test]
    fn a_line_with_a_password_is_not_printed() {
        let lines = [
            "requirepass top secret",
            "RequirePass \"secret",
            "masterauth secret secret",
            "user a >secret (~a",
            "user a <secret",
            "user a #secret",
        ];
        for line in lines {
            let why = loaded(line).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_pattern_without_files_includes_nothing() {
        assert!(loaded("include /nosuch/*.conf").is_ok());
    }
}
