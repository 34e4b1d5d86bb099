//! Configuration files, line by line, with the grammar and the complaints of Redis.
//!
//! A line is a directive and its values, split into words as inline requests are; the last line of a name
//! counts. Renamed commands and users are collected here, and made when the server starts.
//!
//! The options of the command line are read as such lines, too. A complaint about one of them names the
//! option: a user without a file must not be sent to look for a line of it.
//!
//! The complaints about files are those of Redis, which users and tools search for. After them, or in
//! parentheses, stands what Redis leaves out: which file and which line, how many values, what to do.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::acl::{Mistake, Refused, Users, shown_rule};
use crate::commands::catalog;
use crate::commands::facts::lookup::{self, Renamed};
use crate::commands::unsupported;
use crate::config::foreign::{self, Values};
use crate::config::rewrite::FILE_BYTES_MAX;
use crate::config::{Changes, Config, Parameter, is_secret};
use crate::files;
use crate::resp::{OwnedRequest, Request};

use super::suggestions;

/// How deep files may include each other. Redis has no limit, and crashes if a file includes itself.
const INCLUDED_MAX: usize = 16;

/// The configuration as far as it has been read.
#[derive(Debug, Default)]
pub(super) struct Loader {
    /// The value of every parameter.
    pub(super) config: Config,
    /// Lines that declare users.
    pub(super) users: Vec<OwnedRequest>,
    /// Commands with their new names; an empty name removes the command.
    pub(super) renamed: Renamed,
    /// Files with initial data, in their order.
    pub(super) initial: Vec<PathBuf>,
    /// Directives that have no effect here, and would have one in Redis.
    pub(super) foreign: Vec<String>,
    /// Directives that ask for a feature that Keyfast lacks.
    pub(super) missing: Vec<Missing>,
    /// The values of parameters whose lines [add up](Parameter::adds_up), since the last line that has said
    /// that there are none.
    sums: HashMap<&'static str, Vec<u8>>,
    /// The line that declares the first user, for a complaint.
    first_user: Option<String>,
    /// The files that are being read, outermost first: none of them may be included again.
    open_files: Vec<PathBuf>,
}

/// The text that a line is part of.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// The configuration file by its path, or standard input, with or without a file before it.
    File(Option<&'a Path>),
    /// A file that another one includes.
    Included(&'a Path),
    /// The command line.
    Options,
}

/// A line that asks for what Keyfast does not have.
#[derive(Debug)]
pub(super) struct Missing {
    /// The name, in lower case.
    pub(super) directive: String,
    /// What a user would miss.
    pub(super) why: &'static str,
    /// The complaint, if the server must not start without it.
    complaint: String,
}

/// Why a line is wrong.
enum Wrong {
    /// For this reason, to which the complaint adds the line.
    Line(String),
    /// There is no directive of this name.
    Unknown(String),
    /// With this whole complaint, for instance about a line of an included file.
    Complaint(String),
}

impl From<&str> for Wrong {
    fn from(why: &str) -> Wrong {
        Wrong::Line(why.to_owned())
    }
}

impl Loader {
    /// A loader that has read nothing yet, and begins with these values.
    pub(super) fn new(config: Config) -> Loader {
        let file = config.file.as_deref().and_then(|file| file.canonicalize().ok());
        Loader { config, open_files: file.into_iter().collect(), ..Loader::default() }
    }

    /// Reads a text; `depth` is how many files include it.
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
            let place = SourceLine { source, number, line };
            self.obey(&place, depth).map_err(|wrong| match wrong {
                Wrong::Line(why) => place.complain(&why),
                Wrong::Unknown(name) => place.complain_of_unknown(&name),
                Wrong::Complaint(text) => text,
            })?;
        }
        Ok(())
    }

    /// Checks that the server has every feature that the configuration asks for.
    ///
    /// # Errors
    ///
    /// With one line or the lines of Redis, if it lacks one and `ignore-unsupported` is off.
    pub(super) fn check_missing(&self) -> Result<(), String> {
        match self.missing.first() {
            Some(missing) if !self.config.ignore_unsupported.get() => Err(missing.complaint.clone()),
            _ => Ok(()),
        }
    }

    /// Checks that users are in the configuration or in a file of their own, but not in both.
    ///
    /// # Errors
    ///
    /// With the text of Redis and the two places.
    pub(super) fn check_users(&self) -> Result<(), String> {
        let file = self.config.aclfile.get();
        match &self.first_user {
            Some(first_user) if !file.is_empty() => Err(format!(
                "keyfast: Configuring Redis with users defined in redis.conf and at the same setting an \
                 ACL file path is invalid. This setup is very likely to lead to configuration errors and \
                 security holes, please define either an ACL file or declare users directly in your \
                 redis.conf, but not both. {first_user}, and aclfile names {}",
                String::from_utf8_lossy(&file)
            )),
            _ => Ok(()),
        }
    }

    fn obey(&mut self, place: &SourceLine<'_>, depth: usize) -> Result<(), Wrong> {
        // A line may have all bytes of its file: CONFIG REWRITE writes a user with many patterns on one.
        let words =
            OwnedRequest::of_long_line(place.line).ok_or("Unbalanced quotes in configuration line")?;
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
                let count = if values == Values::One { "one value" } else { "at least one value" };
                return Err(wrong_number("wrong number of arguments", &name, count, request));
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
            ("include", 2) => return self.include(request.at(1), place, depth),
            ("rename-command", 3) => return self.rename(request.at(1), request.at(2)),
            ("init", 2) => return self.take_initial(request.at(1)),
            ("user", 2..) => return self.declare_user(words, place),
            ("sentinel", _) | ("loadmodule", 2..) => {
                if let Some(why) = foreign::missing(&name, &value) {
                    self.miss(name, why, place);
                }
            }
            ("include" | "init" | "rename-command" | "user" | "loadmodule", _) => {
                let count = match name.as_str() {
                    "include" | "init" => "one file",
                    "rename-command" => "the name of a command and its new name",
                    "user" => "a name",
                    _ => "a path",
                };
                let why = "Bad directive or wrong number of arguments";
                return Err(wrong_number(why, &name, count, request));
            }
            (module, 2..) if module.contains('.') => {
                self.miss(name, "Keyfast loads no modules, so this line configures none", place);
            }
            _ => return Err(Wrong::Unknown(name)),
        }
        Ok(())
    }

    fn miss(&mut self, directive: String, why: &'static str, place: &SourceLine<'_>) {
        let remedy = format!(
            "{why}. Remove {}, or add '--ignore-unsupported yes' to start anyway",
            place.source.noun()
        );
        let complaint = place.complain(&remedy);
        self.missing.push(Missing { directive, why, complaint });
    }

    fn set(&mut self, parameter: &'static Parameter, request: Request<'_>) -> Result<(), Wrong> {
        if !parameter.takes_several() && request.len() != 2 {
            return Err(wrong_number("wrong number of arguments", parameter.name, "one value", request));
        }
        let words = request.from(1).flat_map(|word| match parameter.takes_several() {
            // A list may be one word in quotes.
            true => word.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect(),
            false => vec![word],
        });
        let mut text = words.collect::<Vec<_>>().join(&b' ');
        let before = self.sums.get(parameter.name).filter(|before| !before.is_empty());
        let is_none = text.is_empty() || text.eq_ignore_ascii_case(b"none");
        if let Some(before) = before.filter(|_| parameter.adds_up && !is_none) {
            text = [before, &*text].join(&b' ');
        }
        match parameter.check(&text) {
            Ok(checked) => self.config.store(checked),
            Err(refusal) => return Err(Wrong::Line(parameter.explain(&text, &refusal))),
        }
        if parameter.adds_up {
            self.sums.insert(parameter.name, text);
        }
        Ok(())
    }

    fn pass_over(&mut self, name: String) {
        if !self.foreign.contains(&name) {
            self.foreign.push(name);
        }
    }

    fn include(&mut self, path: &[u8], place: &SourceLine<'_>, depth: usize) -> Result<(), Wrong> {
        if depth == INCLUDED_MAX {
            return Err(Wrong::Line(format!(
                "More than {INCLUDED_MAX} configuration files include each other"
            )));
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let found = files_of(path).into_iter().filter_map(|file| file.canonicalize().ok());
        let outer_files = self.open_files.len();
        for file in found {
            if self.open_files[..outer_files].contains(&file) {
                return Err(Wrong::Line(format!("{} includes {} again", place.location(), file.display())));
            }
            self.open_files.push(file);
        }
        let include = if let Source::Options = place.source { "" } else { "include in " };
        let from = |why: String| Wrong::Complaint(format!("{why} ({include}{})", place.location()));
        let text = read_file(path).map_err(from)?;
        self.load(&text, Source::Included(path), depth + 1).map_err(Wrong::Complaint)?;
        self.open_files.truncate(outer_files);
        Ok(())
    }

    /// Takes the name of a file with initial data, which is read when the server starts.
    fn take_initial(&mut self, path: &[u8]) -> Result<(), Wrong> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let absolute = std::path::absolute(path);
        self.initial.push(absolute.map_err(|error| Wrong::Line(files::reason(&error).to_string()))?);
        Ok(())
    }

    fn rename(&mut self, old: &[u8], new: &[u8]) -> Result<(), Wrong> {
        let old = String::from_utf8_lossy(old).to_ascii_lowercase();
        let names = lookup::names(&self.renamed);
        let is_taken = |name: &[u8]| names.iter().any(|(other, _)| other == name);
        if unsupported::all().any(|absent| absent.name == old) && !is_taken(old.as_bytes()) {
            // Keyfast does not have this command of Redis, so the old name does nothing already.
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
    fn declare_user(&mut self, words: OwnedRequest, place: &SourceLine<'_>) -> Result<(), Wrong> {
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
        match Users::new(catalog()).set(b"user", declared.from(2), false) {
            // Redis names another word here, and no reason.
            Err(Refused::Unclosed(place)) => {
                return Err(wrong(declared.at(2 + place), "Unmatched parenthesis in selector definition."));
            }
            Err(Refused::Rule(rule, mistake)) if mistake != Mistake::UnknownCommand => {
                return Err(wrong(shown_rule(&rule), &mistake.to_string()));
            }
            // An unknown command is an error only when the users are made.
            _ => {}
        }
        if self.first_user.is_none() {
            let name = String::from_utf8_lossy(declared.at(1));
            self.first_user = Some(format!("{} defines user {name}", place.location()));
        }
        if let Source::Included(_) | Source::Options = place.source {
            self.config.users_elsewhere.push(declared.at(1).to_vec());
        }
        self.users.push(words);
        Ok(())
    }
}

impl Source<'_> {
    /// The noun for what a user would remove.
    fn noun(self) -> &'static str {
        match self {
            Source::File(_) | Source::Included(_) => "this line",
            Source::Options => "this option",
        }
    }
}

/// A line, with the text that it is in and its number there, from 1.
struct SourceLine<'a> {
    source: Source<'a>,
    number: usize,
    line: &'a [u8],
}

impl SourceLine<'_> {
    /// The file and the number of the line, or the option, for a sentence.
    fn location(&self) -> String {
        match self.source {
            Source::File(Some(path)) | Source::Included(path) => {
                format!("{}:{}", path.display(), self.number)
            }
            Source::File(None) => format!("line {} of the configuration", self.number),
            Source::Options => format!("option {}", self.option()),
        }
    }

    /// The option that the line was made of.
    fn option(&self) -> String {
        let end = self.line.iter().position(u8::is_ascii_whitespace).unwrap_or(self.line.len());
        option(&self.line[..end])
    }

    /// The complaint about the line.
    fn complain(&self, why: &str) -> String {
        let of_file = match self.source {
            Source::Options => {
                let is_save = name_of(self.line).eq_ignore_ascii_case(b"save");
                let form = if is_save { ": seconds and changes, as in --save 3600 1 300 100" } else { "" };
                return format!("keyfast: option {}: {why}{form}", self.option());
            }
            Source::File(_) => String::new(),
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
        let name = name_of(self.line);
        match is_about_secret(name) {
            true => format!("{} (redacted)", String::from_utf8_lossy(name)),
            false => String::from_utf8_lossy(self.line).into_owned(),
        }
    }

    /// The complaint if there is no directive of this name.
    fn complain_of_unknown(&self, name: &str) -> String {
        let meant = suggestions::of(name);
        match self.source {
            Source::Options => {
                let meant = match name.trim_start_matches('-') {
                    "c" | "conf" | "config" | "config-file" | "f" | "file" => {
                        "; a configuration file goes without an option: keyfast FILE".to_owned()
                    }
                    _ => meant.map(|meant| format!(", did you mean --{meant}?")).unwrap_or_default(),
                };
                format!("keyfast: unknown option {}{meant}", option(name.as_bytes()))
            }
            _ => {
                let meant = meant.map(|meant| format!(", did you mean '{meant}'?")).unwrap_or_default();
                self.complain(&format!("Bad directive or wrong number of arguments{meant}"))
            }
        }
    }
}

/// Whether one of these lines holds a secret: a password, or the name of a command that no client shall
/// guess.
pub(super) fn holds_secret(text: &[u8]) -> bool {
    let mut names = text.split(|byte| *byte == b'\n').map(name_of);
    names.any(|name| is_about_secret(name) || name.eq_ignore_ascii_case(b"rename-command"))
}

/// The directive of a line.
fn name_of(line: &[u8]) -> &[u8] {
    line.trim_ascii_start().split(u8::is_ascii_whitespace).next().unwrap_or_default()
}

/// Whether the values of a directive are or may hold passwords.
fn is_about_secret(directive: &[u8]) -> bool {
    is_secret(directive) || directive.eq_ignore_ascii_case(b"user")
}

/// Complains about how many values a directive has. A comment behind a value is the common mistake.
fn wrong_number(why: &str, name: &str, count: &str, request: Request<'_>) -> Wrong {
    let has_comment = request.len() > 2 && request.from(2).any(|word| word.starts_with(b"#"));
    let comment = if has_comment { "; a comment needs a line of its own" } else { "" };
    Wrong::Line(format!("{why}: {name} needs {count}{comment}"))
}

/// A name as it was typed on the command line: a line begins without its dashes, unless there was one alone.
fn option(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let name = name.trim_matches('"');
    if name.starts_with('-') { name.to_owned() } else { format!("--{name}") }
}

/// A complaint about a file, in the form of Redis.
fn fatal(text: &str) -> String {
    format!("\n*** FATAL CONFIG FILE ERROR (Keyfast {}) ***\n{text}", env!("CARGO_PKG_VERSION"))
}

/// The text of a file, or of all files that a pattern matches, if it is one.
///
/// # Errors
///
/// In the words of Redis.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    for path in files_of(path) {
        let wrong =
            |why: &str| format!("keyfast: Fatal error, can't open config file '{}': {why}", path.display());
        let read = File::open(&path).and_then(read_all);
        text.extend(read.map_err(|error| wrong(&files::reason(&error)))?);
    }
    Ok(text)
}

/// The files that a path stands for: itself, or all that match if it is a pattern.
fn files_of(path: &Path) -> Vec<PathBuf> {
    let is_pattern = path.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
    if is_pattern { matching(path) } else { vec![path.to_owned()] }
}

/// Reads to the end.
///
/// # Errors
///
/// If reading fails, or if there are more than `FILE_BYTES_MAX` bytes.
pub(super) fn read_all(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// The files that a pattern matches, in the order of their names; there may be none.
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
        loader.load(text.as_bytes(), Source::File(None), 0)?;
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
            ("port", "wrong number of arguments: port needs one value"),
            (
                "maxmemory 1mb # much",
                "wrong number of arguments: maxmemory needs one value; a comment needs a line of its own",
            ),
            ("mptcp", "wrong number of arguments: mptcp needs one value"),
            ("replicaof", "wrong number of arguments: replicaof needs at least one value"),
            ("port x", "argument couldn't be parsed into an integer"),
            ("include a b", "Bad directive or wrong number of arguments: include needs one file"),
            ("dir /nosuch", "'/nosuch': No such file or directory"),
            (
                "include /nosuch",
                "keyfast: Fatal error, can't open config file '/nosuch': No such file or directory \
                 (include in line 1 of the configuration)",
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
        assert!(loaded("rename-command failover \"\"\nrename-command VADD add").unwrap().renamed.is_empty());
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
