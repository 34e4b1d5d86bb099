//! The help: one screen for `-h`, all parameters for `--help`, and the options as clap knows them, of which
//! completions and the page of the manual are made too.
//!
//! Everything comes from the table of parameters: headings, sentences, defaults, and which parameters the one
//! screen shows. The lines are broken here rather than by clap, whose feature for it brings two more crates.

use std::ffi::OsString;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use crate::config::table::{FAMILIES, Family, inert};
use crate::config::{Changes, Kind, Parameter, parameters};

use super::documents;

/// How the program is called.
const USAGE: &str = "keyfast [/path/to/redis.conf] [--parameter value …] [-]\n       \
                     keyfast cli [-h host] [-p port] [option …] [command [argument …]]";

const EXAMPLES: &str = "\
Examples:
  keyfast --port 7000 --requirepass secret --appendonly yes
  keyfast /etc/redis/redis.conf --maxmemory 1gb
  keyfast cli SET lock:report worker-1 NX PX 30000

All parameters: keyfast --help   The manual: keyfast --man | man -l -
";

/// Characters of a line without a terminal.
const COLUMNS: usize = 80;
/// Fewer would break the usage, and longer lines are hard to read.
const COLUMNS_MIN: usize = 72;
const COLUMNS_MAX: usize = 100;
/// How far clap indents what an option is for.
const INDENT: usize = 10;
/// Characters of a list of words that stands beside the option's name.
const WORDS_BESIDE_MAX: usize = 40;

/// Characters of a line of help: those of the terminal, or as many as `COLUMNS` says.
pub(super) fn columns(environment: &[(OsString, OsString)]) -> usize {
    let named = environment.iter().find(|(name, _)| name == "COLUMNS").and_then(|(_, value)| value.to_str());
    let named = named.and_then(|value| value.parse().ok());
    named.or_else(columns_of_terminal).unwrap_or(COLUMNS).clamp(COLUMNS_MIN, COLUMNS_MAX)
}

/// The client's line editor can ask for them without unsafe code of ours.
fn columns_of_terminal() -> Option<usize> {
    let (columns, _) = rustyline::DefaultEditor::new().ok()?.dimensions()?;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

/// One screen of 24 lines with 80 characters: the usage, the essential parameters, examples.
pub(super) fn short() -> String {
    let title = "a server that speaks the Redis protocol, built around locks";
    let mut text = format!("Keyfast {}: {title}\n\nUsage: {USAGE}\n\n", env!("CARGO_PKG_VERSION"));
    for parameter in parameters().filter(|parameter| parameter.is_essential) {
        let line = format!("  --{:<22}{}", parameter.name, parameter.help);
        let default = default(parameter);
        let has_room = line.chars().count() + default.chars().count() <= COLUMNS;
        text.extend([&*line, if has_room { &default } else { "" }, "\n"]);
    }
    text + "\n" + EXAMPLES
}

/// All parameters under their headings, in lines of so many characters.
pub(super) fn long(columns: usize) -> String {
    let text = command_in(columns).after_help(wrap(&notes(), columns)).render_help().to_string();
    // Lines of clap that have no text end in blanks.
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The options, with texts that are not broken into lines.
pub(super) fn command() -> Command {
    command_in(usize::MAX).after_help(notes())
}

fn command_in(columns: usize) -> Command {
    let about = wrap(env!("CARGO_PKG_DESCRIPTION"), columns);
    let help = |text: &str| wrap(text, columns.saturating_sub(INDENT));
    Command::new("keyfast")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .override_usage(USAGE)
        .disable_help_flag(true)
        // A column beside the longest option would begin beyond the edge of most terminals.
        .next_line_help(true)
        .args([
            Arg::new("h").short('h').help("Print one screen of help").action(ArgAction::SetTrue),
            Arg::new("help").long("help").help("Print all parameters").action(ArgAction::SetTrue),
        ])
        .args(documents::options())
        .args(FAMILIES.iter().flat_map(|family| {
            family.parameters.iter().map(move |parameter| {
                option(parameter).help(help(&sentences(parameter))).help_heading(family.title)
            })
        }))
        .args(inert_parameters().map(|parameter| option(parameter).hide(true)))
}

/// Whether a parameter is an option that the help mentions.
fn is_option(parameter: &&Parameter) -> bool {
    parameter.changes != Changes::Never && !parameter.is_hidden
}

/// The options that have no effect.
fn inert_parameters() -> impl Iterator<Item = &'static Parameter> {
    inert::FAMILIES.iter().flat_map(|family| family.parameters).filter(is_option)
}

/// What follows the options: other arguments, and the options without an effect.
fn notes() -> String {
    let mut text = String::from(
        "'-' reads more of the configuration from standard input.\n'keyfast cli' is a client like redis-cli, \
         also if the program is called redis-cli; 'keyfast cli --help' lists its options.\n\
         'keyfast check-aof' and 'keyfast check-rdb' check files, and repair a log, as redis-check-aof and \
         redis-check-rdb do.\n\n\
         These options have no effect. Their values are checked as Redis checks them.",
    );
    for Family { title, parameters } in inert::FAMILIES {
        let names: Vec<_> = parameters.iter().filter(is_option).map(|parameter| parameter.name).collect();
        text.extend([&format!("\n\nBecause {title}:\n"), &*names.join(" ")]);
    }
    text
}

/// What a parameter is for, which words it takes if they do not stand beside its name, and its default.
fn sentences(parameter: &Parameter) -> String {
    let detail = if parameter.detail.is_empty() { "" } else { ". " };
    let mut text = [parameter.help, detail, parameter.detail].concat();
    if let Some(words) = words(&parameter.kind).filter(|words| !stand_beside(words)) {
        text += &format!(" [one of: {}]", words.join(", "));
    }
    if !parameter.default.is_empty() {
        text += &format!(" [default: {}]", parameter.default);
    }
    text
}

/// The default as the short help shows it.
fn default(parameter: &Parameter) -> String {
    if parameter.default.is_empty() { String::new() } else { format!(" [{}]", parameter.default) }
}

fn option(parameter: &'static Parameter) -> Arg {
    let arg = Arg::new(parameter.name)
        .long(parameter.name)
        .action(ArgAction::Set)
        .overrides_with(parameter.name)
        .value_hint(match parameter.kind {
            Kind::Directory => ValueHint::DirPath,
            Kind::Path | Kind::FileName { .. } => ValueHint::AnyPath,
            Kind::Hostname => ValueHint::Hostname,
            // Otherwise shells would offer files for numbers.
            _ => ValueHint::Other,
        });
    match words(&parameter.kind) {
        Some(words) => {
            let value_name = if stand_beside(words) { words.join("|") } else { "word".to_owned() };
            arg.value_name(value_name)
                .value_parser(PossibleValuesParser::new(words))
                .hide_possible_values(true)
        }
        None => arg.value_name(value_name(parameter)),
    }
}

/// The words of which a kind takes one.
fn words(kind: &Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::Flag => Some(&["yes", "no"]),
        Kind::Choice(words) | Kind::ChoiceWithSynonym { words, .. } | Kind::Only { words, .. } => Some(words),
        _ => None,
    }
}

/// Whether these words are so few that they stand beside the option's name.
fn stand_beside(words: &[&str]) -> bool {
    words.iter().map(|word| word.len() + 1).sum::<usize>() <= WORDS_BESIDE_MAX
}

/// What stands for the value beside the option's name.
fn value_name(parameter: &Parameter) -> &'static str {
    match parameter.kind {
        _ if !parameter.unit().is_empty() => parameter.unit(),
        Kind::Addresses | Kind::IpAddresses => "addresses",
        Kind::Words(_) | Kind::WordsOrAll(_) => "words",
        Kind::Events => "letters",
        Kind::Limits => "limits",
        Kind::Directory => "directory",
        Kind::FileName { .. } => "name",
        Kind::Path => "path",
        Kind::SavePoints => "seconds changes",
        Kind::Percentiles | Kind::Scores => "numbers",
        Kind::Version => "version",
        Kind::Text | Kind::Hostname | Kind::Locale | Kind::Title | Kind::Patterns { .. } => "text",
        _ => "number",
    }
}

/// Breaks lines between words, so that none has more than so many characters unless a word has.
fn wrap(text: &str, columns: usize) -> String {
    let mut wrapped = String::with_capacity(text.len() + 16);
    for line in text.split('\n') {
        let mut used = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if used > 0 && used + 1 + length > columns {
                wrapped.push('\n');
                used = 0;
            } else if used > 0 {
                wrapped.push(' ');
                used += 1;
            }
            wrapped.push_str(word);
            used += length;
        }
        wrapped.push('\n');
    }
    wrapped.pop();
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        for (text, expected) in [
            ("one two three", "one two\nthree"),
            ("one two", "one two"),
            ("", ""),
            ("a\n\nb", "a\n\nb"),
            ("incomprehensible a", "incomprehensible\na"),
            ("… … … … …", "… … … …\n…"),
        ] {
            assert_eq!(wrap(text, 7), expected, "{text:?}");
        }
    }

    #[test]
    fn the_short_help_fits_a_small_terminal() {
        let text = short();
        assert!(text.lines().count() <= 24, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for parameter in parameters().filter(|parameter| parameter.is_essential) {
            assert!(text.contains(&format!("  --{} ", parameter.name)), "{}", parameter.name);
            assert!(!parameter.is_inert(), "{}", parameter.name);
        }
    }

    #[test]
    fn no_line_of_the_help_is_longer_than_the_terminal_is_wide() {
        for columns in [COLUMNS_MIN, 80, COLUMNS_MAX] {
            for line in long(columns).lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
        assert!(long(100).lines().count() < long(80).lines().count());
    }

    #[test]
    fn the_width_is_that_of_the_environment_within_bounds() {
        for (value, expected) in [("90", 90), ("20", COLUMNS_MIN), ("200", COLUMNS_MAX)] {
            assert_eq!(columns(&[("COLUMNS".into(), value.into())]), expected);
        }
    }
}
