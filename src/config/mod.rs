//! The parameters: one typed table, from which the command line, the configuration file, CONFIG, the
//! environment's names and the help derive.
//!
//! A parameter is one entry of [`table`]: its name as in redis.conf, its documentation, its default, its type
//! with its range ([`kinds`]) and its unit, when it can be changed, and the field of [`Config`] that holds
//! its value. The code that needs a value reads that field (`config.timeout.get()`), typed, without a lock.
//!
//! The parameters of Redis 8.6 are in the table. Those without an effect here have no field: their values are
//! checked as Redis checks them and stored ([`table::inert`]), and the help lists them apart. Directives of
//! other versions are in [`foreign`]: a configuration file may have them, but CONFIG does not know them.

mod bytes;
mod fields;
pub(crate) mod foreign;
mod kinds;
mod limits;
mod lists;
mod points;
mod refusal;
pub(crate) mod rewrite;
mod settings;
pub(crate) mod table;
mod texts;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::files::NamedFile;

pub(crate) use fields::{Choice, Flag, Integer, Text};
pub use kinds::Kind;
use kinds::Value;
pub(crate) use limits::{ClientClass, OutputLimits};
pub(crate) use lists::print_percentile;
pub(crate) use points::SavePoint;
pub(crate) use refusal::Refusal;
pub use settings::Config;
pub(crate) use table::by_name;
pub use table::parameters;
pub(crate) use table::words::{
    APPEND_FSYNC, CLOUDS, ENABLED_FOR, EVICTION_POLICIES, LOG_FORMATS, LOG_LEVELS, OOM_SCORE_ADJUSTMENTS,
    PUBSUB_DEFAULTS, SANITIZED_PAYLOADS, SHUTDOWN_WORDS, SUPERVISORS, TLS_AUTH_CLIENTS, TOKENS_FROM,
    UNKNOWN_TYPES,
};
pub(crate) use texts::expand_title;

/// An entry of the table.
#[derive(Debug)]
pub struct Parameter {
    /// The name in redis.conf, or a name of Keyfast's own.
    pub name: &'static str,
    /// A second name, from an older version of Redis or from Valkey.
    pub alias: Option<&'static str>,
    /// What it is for, in one sentence without a period. Empty for a parameter without an effect.
    pub help: &'static str,
    /// A second such sentence, for which the short help has no room; empty for none.
    pub detail: &'static str,
    /// How it differs from the parameter of this name in Redis 8.6, and why; empty if it does not.
    pub difference: &'static str,
    /// The default, as a person writes it in a configuration file.
    pub default: &'static str,
    /// The type of its values, with their range.
    pub kind: Kind,
    /// What a number counts, in the plural (`seconds`, `keys`); empty if its kind says it, or nothing does.
    pub unit: &'static str,
    /// Which server had it first.
    pub origin: Origin,
    /// When it can be set.
    pub changes: Changes,
    /// Whose it is, if it has an effect.
    pub owner: Owner,
    /// Whether the short help shows it.
    pub is_essential: bool,
    /// Whether its value is hidden from MONITOR and SLOWLOG.
    pub is_secret: bool,
    /// Whether the lines of a configuration add up, instead of the last one counting.
    pub adds_up: bool,
    /// Whether CONFIG GET returns it only if its whole name is asked for, and no pattern.
    pub is_hidden: bool,
    /// The field that holds its value, if it has an effect.
    field: Field,
}

/// Which server had a parameter first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Redis 7.0, or an older version.
    Redis,
    /// This later version of Redis.
    RedisSince(&'static str),
    /// Valkey 8; Redis does not have it.
    Valkey,
    /// Keyfast; neither Redis nor Valkey has it.
    Keyfast,
}

/// When a parameter can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Never: another value would make it another server, such as a replica. CONFIG SET refuses it with the
    /// same error as a parameter that is set at start.
    Never,
    /// On the command line and in the configuration file only.
    AtStart,
    /// By CONFIG SET as well, where `enable-protected-configs` allows it.
    Protected,
    /// By CONFIG SET as well.
    Anytime,
}

/// Whose a parameter is. It matters where a process has several instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The process's: its title, its log, its signals, its threads. Only the program's own server, or the
    /// caller that makes the instances, follows it.
    Process,
    /// The server's, with its sockets and files: each has a value of its own, which counts in all of its
    /// sandboxes.
    Instance,
    /// The sandbox's: each has a value of its own.
    Sandbox,
}

/// The field in which a parameter's value is stored, for the code that needs the value to read.
#[derive(Clone, Copy, Debug)]
enum Field {
    Integer(fn(&Config) -> &Integer),
    Flag(fn(&Config) -> &Flag),
    Text(fn(&Config) -> &Text),
    Limits(fn(&Config) -> &OutputLimits),
    Choice(fn(&Config) -> &Choice),
    /// None: it is in the list of values that have no effect.
    Inert,
}

/// A value that a parameter takes, checked and ready to be stored.
#[derive(Clone, Debug)]
pub struct Checked {
    parameter: &'static Parameter,
    value: Value,
}

/// Directives of Valkey without an effect here whose values are secrets.
const FOREIGN_SECRETS: &[&str] = &["primaryauth", "primaryuser"];

/// Whether the value of a parameter of this name is a secret.
pub(crate) fn is_secret(name: &[u8]) -> bool {
    match Parameter::named(name) {
        Some(parameter) => parameter.is_secret,
        None => FOREIGN_SECRETS.iter().any(|secret| secret.as_bytes().eq_ignore_ascii_case(name)),
    }
}

/// Whether there is a parameter of this name, here or in Redis or Valkey.
pub(crate) fn is_known(name: &[u8]) -> bool {
    Parameter::named(name).is_some()
        || std::str::from_utf8(name).is_ok_and(|name| foreign::find(&name.to_ascii_lowercase()).is_some())
}

impl Parameter {
    /// What most parameters have in common.
    const DEFAULTS: Parameter = Parameter {
        name: "",
        alias: None,
        help: "",
        detail: "",
        difference: "",
        default: "",
        kind: Kind::Text,
        unit: "",
        origin: Origin::Redis,
        changes: Changes::Anytime,
        owner: Owner::Instance,
        is_essential: false,
        is_secret: false,
        adds_up: false,
        is_hidden: false,
        field: Field::Inert,
    };

    /// A parameter that is a number in this field.
    const fn integer(field: fn(&Config) -> &Integer) -> Parameter {
        Parameter { field: Field::Integer(field), ..Parameter::DEFAULTS }
    }

    /// A parameter that is `yes` or `no` in this field.
    const fn flag(field: fn(&Config) -> &Flag) -> Parameter {
        Parameter { kind: Kind::Flag, field: Field::Flag(field), ..Parameter::DEFAULTS }
    }

    /// A parameter that is a text in this field.
    const fn text(field: fn(&Config) -> &Text) -> Parameter {
        Parameter { field: Field::Text(field), ..Parameter::DEFAULTS }
    }

    /// A parameter that is a word of several, in this field.
    const fn choice(field: fn(&Config) -> &Choice) -> Parameter {
        Parameter { field: Field::Choice(field), ..Parameter::DEFAULTS }
    }

    /// A parameter that limits the output of clients, in this field.
    const fn limits(field: fn(&Config) -> &OutputLimits) -> Parameter {
        Parameter { kind: Kind::Limits, field: Field::Limits(field), ..Parameter::DEFAULTS }
    }

    /// The parameter with this name or alias, in any case of letters.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        let is_named = |own: &str| own.as_bytes().eq_ignore_ascii_case(name);
        parameters().find(|parameter| is_named(parameter.name) || parameter.alias.is_some_and(is_named))
    }

    /// Its name, and its alias if it has one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// Whether its value has no effect.
    pub fn is_inert(&self) -> bool {
        matches!(self.field, Field::Inert)
    }

    /// What a number that it takes counts; empty if that is nothing in particular.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Bytes { .. } | Kind::Backlog => "bytes",
            Kind::BytesOrPercent => "bytes or percent",
            _ => self.unit,
        }
    }

    /// The text of a refusal for people, with what Redis leaves out of it: which directory cannot be used.
    pub fn explain(&self, text: &[u8], refusal: &Refusal) -> String {
        match self.kind {
            Kind::Directory => {
                let path = Path::new(OsStr::from_bytes(text));
                let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
                format!("'{}': {refusal}", path.display())
            }
            _ => refusal.to_string(),
        }
    }

    /// Whether a line of a configuration file may give it several values.
    pub fn takes_several(&self) -> bool {
        self.kind.is_list()
    }

    /// Checks a value as a person writes it.
    ///
    /// # Errors
    ///
    /// With the text of Redis, if the parameter does not take it.
    pub fn check(&'static self, text: &[u8]) -> Result<Checked, Refusal> {
        self.check_in(Path::new(""), text)
    }

    /// Checks a value; if it is a relative path, it begins in this directory.
    ///
    /// # Errors
    ///
    /// If the value is refused.
    pub fn check_in(&'static self, directory: &Path, text: &[u8]) -> Result<Checked, Refusal> {
        Ok(Checked { parameter: self, value: self.kind.parse(directory, text)? })
    }

    /// The current value, as CONFIG GET prints it.
    pub fn print(&self, config: &Config) -> Vec<u8> {
        match self.field {
            Field::Text(field) => field(config).get().to_vec(),
            Field::Limits(field) => field(config).print().into_bytes(),
            _ => self.value(config).map_or_else(|| self.print_default(), |value| self.kind.print(&value)),
        }
    }

    /// The current value; `None` for one without an effect that was never set.
    fn value(&self, config: &Config) -> Option<Value> {
        Some(match self.field {
            Field::Inert => return config.inert.get(self.name),
            Field::Integer(field) => Value::Integer(field(config).get()),
            Field::Flag(field) => Value::Flag(field(config).get()),
            Field::Text(field) => Value::Text(field(config).get()),
            // All instances of a process share them.
            Field::Limits(_) => return None,
            Field::Choice(field) => Value::Choice(field(config).get()),
        })
    }

    /// The default as CONFIG GET prints it: `100mb` as a number of bytes.
    fn print_default(&self) -> Vec<u8> {
        let value = self.kind.parse(Path::new(""), self.default.as_bytes()).expect("defaults are in range");
        self.kind.print(&value)
    }
}

impl Config {
    /// Every parameter at its default.
    pub fn new() -> Config {
        let config = Config::default();
        for parameter in parameters().filter(|parameter| !parameter.is_inert()) {
            config.store(parameter.check(parameter.default.as_bytes()).expect("defaults are in range"));
        }
        config
    }

    /// The same values once more, for another instance of the process.
    pub fn copy(&self) -> Config {
        let limits = Arc::clone(&self.client_output_buffer_limit);
        let config =
            Config { file: self.file.clone(), client_output_buffer_limit: limits, ..Config::default() };
        for parameter in parameters() {
            if let Some(value) = parameter.value(self) {
                config.store(Checked { parameter, value });
            }
        }
        config
    }

    /// The file that a parameter names, if it names one. A relative path begins in `dir`.
    pub fn file_of(&self, parameter: &Text) -> Option<NamedFile> {
        let name = parameter.get();
        let name = Path::new(OsStr::from_bytes(&name));
        let is_named = !name.as_os_str().is_empty();
        is_named.then(|| NamedFile { path: self.directory().join(name), name: name.to_owned() })
    }

    /// The value of a parameter that is a whole number; 0 if there is no such parameter.
    pub fn integer(&self, name: &str) -> i64 {
        match Parameter::named(name.as_bytes()).map(|parameter| parameter.field) {
            Some(Field::Integer(field)) => field(self).get(),
            _ => 0,
        }
    }

    /// Where relative paths begin, and where the files of the data set are (`dir`).
    pub fn directory(&self) -> PathBuf {
        OsStr::from_bytes(&self.dir.get()).into()
    }

    /// The limit of the memory of all clients together, in bytes; none if there is no limit.
    pub fn clients_bytes_max(&self) -> Option<usize> {
        /// With less the server could not be spoken to at all. Redis: `getClientEvictionLimit`.
        const LEAST_BYTES: usize = 128 << 10;
        let bytes = match (self.maxmemory_clients.get(), self.maxmemory.size()) {
            (0, _) | (..0, 0) => return None,
            (percent @ ..0, maxmemory) => (maxmemory as f64 * -percent as f64 / 100.0) as usize,
            (bytes, _) => bytes as usize,
        };
        Some(bytes.max(LEAST_BYTES))
    }

    /// When snapshots are due.
    pub fn save_points(&self) -> Vec<SavePoint> {
        points::parse(&self.save.get()).unwrap_or_default()
    }

    /// The percentiles of latencies that INFO reports, each from 0 to 100.
    pub fn latency_percentiles(&self) -> Vec<f64> {
        lists::parse_percentiles(&self.latency_tracking_info_percentiles.get()).unwrap_or_default()
    }

    /// By how much `oom-score-adj-values` adjusts the score of a server without a primary.
    pub fn oom_score_adj_of_primary(&self) -> i64 {
        lists::parse_scores(&self.oom_score_adj_values.get()).map_or(0, |[primary, ..]| primary)
    }

    /// Whether a word is among those of `shutdown-on-sigint` or `shutdown-on-sigterm`.
    pub fn shuts_down_by(&self, words: &Integer, word: &str) -> bool {
        lists::is_among(words.get(), SHUTDOWN_WORDS, word)
    }

    /// The names of parameters that were given another value than their default, which has no effect.
    pub fn inert_names(&self) -> Vec<&'static str> {
        let is_changed = |parameter: &&Parameter| {
            parameter.is_inert() && parameter.print(self) != parameter.print_default()
        };
        parameters().filter(is_changed).map(|parameter| parameter.name).collect()
    }

    /// Stores a value.
    pub fn store(&self, checked: Checked) {
        let Checked { parameter, value } = checked;
        match (parameter.field, value) {
            (Field::Inert, value) => self.inert.set(parameter.name, value),
            (Field::Integer(field), Value::Integer(value)) => field(self).set(value),
            (Field::Flag(field), Value::Flag(value)) => field(self).set(value),
            (Field::Text(field), Value::Text(value)) => field(self).set(value),
            (Field::Limits(field), Value::Limits(limits)) => {
                limits.into_iter().for_each(|(class, limit)| field(self).set(class, limit));
            }
            (Field::Choice(field), Value::Choice(value)) => field(self).set(value),
            (_, value) => unreachable!("{} is not a {value:?}", parameter.name),
        }
    }
}

#[cfg(test)]
mod tests;
