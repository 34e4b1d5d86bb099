//! What values parameters take: how a text becomes a value, in the words of Redis where it does not, and how
//! a value is printed.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use crate::events::EventClass;
use crate::files::reason;
use crate::resp::number::parse_integer;

use super::bytes::parse_bytes;
use super::limits::{self, ClientClass, OutputLimit};
use super::refusal::{Refusal, place_among};
use super::{lists, points, texts};

/// What values a parameter takes.
#[derive(Debug)]
pub enum Kind {
    /// A whole number within a range, both ends included.
    Integer {
        /// The smallest number allowed.
        min: i64,
        /// The largest number allowed.
        max: i64,
    },
    /// A number of bytes within a range, both ends included, with or without a unit: `100mb`.
    Bytes {
        /// The fewest bytes allowed.
        min: u64,
        /// The most bytes allowed.
        max: u64,
    },
    /// A number in octal, 0 or more.
    Octal {
        /// The largest number allowed.
        max: i64,
    },
    /// A number of bytes, or a percentage from 0 to 100, which is stored as a negative number.
    BytesOrPercent,
    /// A number of bytes above zero; fewer than 16 KiB become 16 KiB.
    Backlog,
    /// Times per second. Numbers from 0 on are accepted; 0 becomes 1, and above 500 becomes 500.
    Frequency,
    /// `yes` or `no`.
    Flag,
    /// One of these words, in any case, of which all but one are refused for a reason.
    Only {
        /// The words, in the order in which a refusal lists them.
        words: &'static [&'static str],
        /// The index of the word that is not refused.
        accepted: usize,
        /// Why the others are.
        obstacle: &'static str,
    },
    /// Any text, also none.
    Text,
    /// The path of a file or a directory, which need not exist; also none.
    Path,
    /// The name of a host, or nothing.
    Hostname,
    /// The name of a locale in which characters are in the order of their bytes, or nothing.
    Locale,
    /// Patterns of keys with blanks between them, in UTF-8; also none.
    Patterns {
        /// The most patterns.
        max: usize,
    },
    /// Three numbers with dots between them.
    Version,
    /// A template of the process's title, with variables in braces.
    Title,
    /// An existing directory; stored as an absolute path.
    Directory,
    /// The name of a file or a directory, without a path.
    FileName {
        /// The parameter's name, for a refusal.
        parameter: &'static str,
        /// What a refusal calls such a name: `filename` or `dirname`.
        noun: &'static str,
        /// Whether an empty name is accepted.
        may_be_empty: bool,
    },
    /// Addresses to listen on.
    Addresses,
    /// IP addresses of clients.
    IpAddresses,
    /// Pairs of seconds and changes, after which snapshots are due.
    SavePoints,
    /// Letters of event classes.
    Events,
    /// Limits of the replies that wait for clients, by the clients' class.
    Limits,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// One of some words, of which one means the same as the word before it.
    ChoiceWithSynonym {
        /// The words, in the order in which a refusal lists them.
        words: &'static [&'static str],
        /// The index of the word that is stored as the one before it.
        synonym: usize,
        /// Why all words but the first are refused, if they are.
        obstacle: Option<&'static str>,
    },
    /// Some of these words, in any case. The first one means none of the others.
    Words(&'static [&'static str]),
    /// The same, but the second one means all of the others.
    WordsOrAll(&'static [&'static str]),
    /// Percentiles, each from 0 to 100.
    Percentiles,
    /// Three adjustments of the score by which the system chooses a process to kill.
    Scores,
}

/// A value of a parameter.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Of all kinds of numbers; for [`Kind::Bytes`] the bits of an unsigned one, for [`Kind::Words`] one bit
    /// for each word but the first.
    Integer(i64),
    /// The value of a [`Kind::Flag`].
    Flag(bool),
    /// The canonical text of everything else.
    Text(Arc<[u8]>),
    /// The place in the list of words.
    Choice(usize),
    /// The limits of some classes of clients.
    Limits(Vec<(ClientClass, OutputLimit)>),
}

impl Kind {
    /// Whether a value is a list of words, which a line of a configuration file gives one by one.
    pub(super) fn is_list(&self) -> bool {
        matches!(
            self,
            Kind::Addresses
                | Kind::IpAddresses
                | Kind::SavePoints
                | Kind::Limits
                | Kind::Words(_)
                | Kind::WordsOrAll(_)
                | Kind::Percentiles
                | Kind::Scores
        )
    }

    /// Reads a value; if it is a relative path, it begins in `directory`.
    pub(super) fn parse(&self, directory: &Path, text: &[u8]) -> Result<Value, Refusal> {
        match *self {
            Kind::Integer { min, max } => within(parse_number(text)?, min, max),
            Kind::Frequency => match within(parse_number(text)?, 0, i64::from(i32::MAX))? {
                Value::Integer(times) => Ok(Value::Integer(times.clamp(1, FREQUENCY_MAX))),
                other => Ok(other),
            },
            Kind::Bytes { min, max } => {
                let bytes = parse_bytes(text).ok_or("argument must be a memory value")?;
                match (min..=max).contains(&bytes) {
                    true => Ok(Value::Integer(bytes as i64)),
                    false => Err(Refusal(format!("argument must be between {min} and {max} inclusive"))),
                }
            }
            Kind::BytesOrPercent => parse_bytes_or_percent(text).map(Value::Integer),
            Kind::Backlog => match (Kind::Bytes { min: 1, max: i64::MAX as u64 }).parse(directory, text)? {
                Value::Integer(bytes) => Ok(Value::Integer(bytes.max(BACKLOG_BYTES_MIN))),
                other => Ok(other),
            },
            Kind::Octal { max } => parse_octal(text, max),
            Kind::Flag => parse_flag(text).map(Value::Flag),
            Kind::Only { words, accepted, obstacle } => match place_among(text, words)? {
                place if place == accepted => Ok(Value::Choice(place)),
                _ => Err(obstacle.into()),
            },
            Kind::Text | Kind::Path => Ok(Value::Text(text.into())),
            Kind::Locale => texts::check_locale(text).map(|()| Value::Text(text.into())),
            Kind::Hostname => texts::check_hostname(text).map(|()| Value::Text(text.into())),
            Kind::Patterns { max } => texts::check_patterns(text, max).map(|()| Value::Text(text.into())),
            Kind::Version => texts::check_version(text).map(|()| Value::Text(text.into())),
            Kind::Title => texts::check_title(text).map(|()| Value::Text(text.into())),
            Kind::Directory => parse_directory(directory, text).map(Value::Text),
            Kind::FileName { parameter, may_be_empty: false, .. } if text.is_empty() => {
                Err(Refusal(format!("{parameter} can't be empty")))
            }
            Kind::FileName { parameter, noun, .. } if text.contains(&b'/') => {
                Err(Refusal(format!("{parameter} can't be a path, just a {noun}")))
            }
            Kind::FileName { .. } => Ok(Value::Text(text.into())),
            Kind::Addresses => lists::check_addresses(text).map(|()| Value::Text(text.into())),
            Kind::IpAddresses => lists::check_ip_addresses(text).map(|()| Value::Text(text.into())),
            Kind::SavePoints => {
                let points = points::parse(text).ok_or("Invalid save parameters")?;
                Ok(Value::Text(points::print(&points).into_bytes().into()))
            }
            Kind::Events => {
                let wrong = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
                let classes = EventClass::parse(text).ok_or(wrong)?;
                Ok(Value::Integer(i64::from(classes.bits())))
            }
            Kind::Limits => limits::parse(text).map(Value::Limits).map_err(Refusal::from),
            Kind::Choice(words) => place_among(text, words).map(Value::Choice),
            Kind::ChoiceWithSynonym { words, synonym, obstacle } => {
                let place = place_among(text, words)?;
                if let Some(why) = obstacle.filter(|_| place > 0) {
                    return Err(why.into());
                }
                Ok(Value::Choice(if place == synonym { place - 1 } else { place }))
            }
            Kind::Words(words) => lists::parse_words(text, words).map(Value::Integer),
            Kind::WordsOrAll(words) => lists::parse_words_or_all(text, words).map(Value::Integer),
            Kind::Percentiles => {
                let percentiles = lists::parse_percentiles(text)?;
                Ok(Value::Text(lists::print_percentiles(&percentiles).into_bytes().into()))
            }
            Kind::Scores => {
                let scores = lists::parse_scores(text)?.map(|score| score.to_string());
                Ok(Value::Text(scores.join(" ").into_bytes().into()))
            }
        }
    }

    /// A value as CONFIG GET prints it.
    pub(super) fn print(&self, value: &Value) -> Vec<u8> {
        match (value, self) {
            (Value::Integer(number), Kind::Octal { .. }) => format!("{number:o}").into_bytes(),
            (Value::Integer(number), Kind::Bytes { .. }) => (*number as u64).to_string().into_bytes(),
            (Value::Integer(percent @ ..0), Kind::BytesOrPercent) => format!("{}%", -percent).into_bytes(),
            (Value::Integer(number), Kind::Events) => EventClass::from_bits(*number as u32).letters(),
            (Value::Integer(number), Kind::Words(words)) => lists::print_words(*number, words),
            (Value::Integer(number), Kind::WordsOrAll(words)) => lists::print_words_or_all(*number, words),
            (Value::Integer(number), _) => number.to_string().into_bytes(),
            (Value::Flag(value), _) => if *value { "yes" } else { "no" }.into(),
            (Value::Text(text), _) => text.to_vec(),
            (
                Value::Choice(place),
                Kind::Choice(words) | Kind::ChoiceWithSynonym { words, .. } | Kind::Only { words, .. },
            ) => words[*place].into(),
            // The field prints limits: a value may have only some of the classes.
            (Value::Choice(_) | Value::Limits(_), _) => Vec::new(),
        }
    }
}

/// Times per second. Redis: `CONFIG_MAX_HZ`.
const FREQUENCY_MAX: i64 = 500;

/// The fewest bytes of [`Kind::Backlog`]. Redis: `CONFIG_REPL_BACKLOG_MIN_SIZE`.
const BACKLOG_BYTES_MIN: i64 = 16 << 10;

fn parse_number(text: &[u8]) -> Result<i64, Refusal> {
    parse_integer(text).ok_or("argument couldn't be parsed into an integer".into())
}

fn within(value: i64, min: i64, max: i64) -> Result<Value, Refusal> {
    if (min..=max).contains(&value) {
        return Ok(Value::Integer(value));
    }
    Err(Refusal(format!("argument must be between {min} and {max} inclusive")))
}

fn parse_bytes_or_percent(text: &[u8]) -> Result<i64, Refusal> {
    const WRONG: &str = "argument must be a memory or percent value";
    let Some(percent) = text.strip_suffix(b"%") else {
        let bytes = parse_bytes(text).and_then(|bytes| i64::try_from(bytes).ok());
        return bytes.ok_or(WRONG.into());
    };
    match parse_integer(percent).filter(|percent| *percent >= 0).ok_or(WRONG)? {
        percent @ 0..=100 => Ok(-percent),
        _ => Err("percentage argument must be less or equal to 100".into()),
    }
}

fn parse_octal(text: &[u8], max: i64) -> Result<Value, Refusal> {
    let number = std::str::from_utf8(text).ok().and_then(|text| i64::from_str_radix(text, 8).ok());
    let number = number.ok_or("argument couldn't be parsed as an octal number")?;
    let beyond = |_| Refusal(format!("argument must be between 0 and {max:o} inclusive"));
    within(number, 0, max).map_err(beyond)
}

/// Finds a directory; a relative path begins in `base`.
fn parse_directory(base: &Path, text: &[u8]) -> Result<Arc<[u8]>, Refusal> {
    let path = base.join(OsStr::from_bytes(text));
    let found = path.canonicalize().and_then(|path| match path.is_dir() {
        true => Ok(path),
        false => Err(ErrorKind::NotADirectory.into()),
    });
    if found.is_err() && text == b"./" {
        // The directory that the program runs in was deleted on purpose.
        return Ok(text.into());
    }
    let found = found.map_err(|error| {
        Refusal(match error.kind() {
            ErrorKind::NotADirectory => "Not a directory".to_owned(),
            _ => reason(&error),
        })
    })?;
    Ok(found.into_os_string().into_vec().into())
}

fn parse_flag(text: &[u8]) -> Result<bool, Refusal> {
    match text {
        _ if text.eq_ignore_ascii_case(b"yes") => Ok(true),
        _ if text.eq_ignore_ascii_case(b"no") => Ok(false),
        _ => Err("argument must be 'yes' or 'no'".into()),
    }
}
