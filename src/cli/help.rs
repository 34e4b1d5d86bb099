//! Hints while the user types, and the texts of `help`, from COMMAND DOCS.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::options::{Family, version};
use super::replies::Message;
use super::terminal;
use crate::resp::request::words;

/// The documentation of all commands.
#[derive(Default)]
pub(super) struct Help {
    /// All commands and subcommands, sorted by name.
    entries: Vec<Entry>,
    groups: BTreeSet<String>,
}

/// A command, or a subcommand.
#[derive(Default)]
struct Entry {
    /// The words of its name, in capitals.
    words: Vec<String>,
    arguments: String,
    summary: String,
    since: Option<String>,
    group: String,
}

/// What `help` alone prints.
pub(super) fn general() -> String {
    format!(
        "{}\n\
         To get help about Redis commands type:\n      \
         \"help @<group>\" to get a list of commands in <group>\n      \
         \"help <command>\" for help on <command>\n      \
         \"help <tab>\" to get a list of possible help topics\n      \
         \"quit\" to exit\n\
         \n\
         To set redis-cli preferences:\n      \
         \":set hints\" enable online hints\n      \
         \":set nohints\" disable online hints\n\
         Set your preferences in ~/.redisclirc",
        version(Family::Redis)
    )
}

impl Help {
    /// The documentation in a reply of COMMAND DOCS.
    pub(super) fn of(docs: &Message) -> Help {
        let mut help = Help::default();
        for (name, facts) in docs.pairs() {
            help.add(vec![text(name).to_uppercase()], facts);
        }
        help.entries.sort_by(|a, b| a.words.cmp(&b.words));
        help.groups = help.entries.iter().map(|entry| format!("@{}", entry.group)).collect();
        help
    }

    fn add(&mut self, words: Vec<String>, facts: &Message) {
        let mut entry = Entry { words, ..Entry::default() };
        for (name, fact) in facts.pairs() {
            match name.text().unwrap_or_default() {
                b"summary" => entry.summary = text(fact),
                b"since" => entry.since = Some(text(fact)),
                b"group" => entry.group = text(fact),
                b"arguments" => entry.arguments = joined(fact.members(), " "),
                b"subcommands" => {
                    for (name, facts) in fact.pairs() {
                        let name = text(name).to_uppercase();
                        let subcommand = name.split_once('|').map_or(name.as_str(), |(_, name)| name);
                        self.add(vec![entry.words[0].clone(), subcommand.to_owned()], facts);
                    }
                }
                _ => {}
            }
        }
        self.entries.push(entry);
    }

    /// Prints what is known of a group, or of all commands that begin with the given words.
    pub(super) fn write(&self, out: &mut impl Write, asked: &[String]) -> io::Result<()> {
        let group = asked[0].strip_prefix('@');
        for entry in &self.entries {
            let is_asked_for = match group {
                Some(group) => entry.group.eq_ignore_ascii_case(group),
                None => {
                    asked.len() <= entry.words.len()
                        && asked
                            .iter()
                            .zip(&entry.words)
                            .all(|(asked, word)| asked.eq_ignore_ascii_case(word))
                }
            };
            if is_asked_for {
                entry.write(out, group.is_none())?;
            }
        }
        out.write_all(b"\r\n")?;
        out.flush()
    }

    /// The arguments that may still follow a line.
    pub(super) fn hint(&self, line: &str) -> Option<String> {
        let typed = words(line.as_bytes())?;
        let typed: Vec<String> =
            typed.iter().map(|word| String::from_utf8_lossy(word).to_uppercase()).collect();
        // The argument of some commands is itself a command.
        let begins =
            |words: &[&str]| typed.len() > words.len() && typed.iter().zip(words).all(|(a, b)| a == b);
        let typed = if typed.len() > 3 && begins(&["ACL", "DRYRUN"]) {
            &typed[3..]
        } else if begins(&["COMMAND", "GETKEYS"]) || begins(&["COMMAND", "GETKEYSANDFLAGS"]) {
            &typed[2..]
        } else {
            &typed[..]
        };
        let matching = self.entries.iter().filter(|entry| typed.starts_with(&entry.words));
        let entry = matching.max_by_key(|entry| entry.words.len())?;
        let mut rest = entry.arguments.as_str();
        for _ in entry.words.len()..typed.len() {
            // Optional arguments are shown until the line ends.
            let end = rest.find([' ', '[']);
            rest = match end {
                Some(end) if rest[end..].starts_with(' ') => &rest[end + 1..],
                Some(end) => {
                    rest = &rest[end..];
                    break;
                }
                None => "",
            };
        }
        let gap = if line.ends_with(char::is_whitespace) { "" } else { " " };
        Some(format!("{gap}{rest}"))
    }

    /// The names that complete a line, and the position at which they replace it.
    pub(super) fn completions(&self, line: &str) -> (usize, Vec<String>) {
        let is_help = line.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("help "));
        let start = if is_help { line.len() - line[5..].trim_start().len() } else { 0 };
        let typed = line[start..].to_uppercase();
        let names = self.entries.iter().map(|entry| entry.words.join(" "));
        let groups = self.groups.iter().filter(|_| is_help).cloned();
        let fits = |name: &String| name.to_uppercase().starts_with(&typed);
        (start, groups.chain(names).filter(fits).collect())
    }
}

impl Entry {
    fn write(&self, out: &mut impl Write, with_group: bool) -> io::Result<()> {
        write!(out, "\r\n  \x1b[1m{}\x1b[0m \x1b[90m{}\x1b[0m\r\n", self.words.join(" "), self.arguments)?;
        write!(out, "  \x1b[33msummary:\x1b[0m {}\r\n", self.summary)?;
        if let Some(since) = &self.since {
            write!(out, "  \x1b[33msince:\x1b[0m {since}\r\n")?;
        }
        if with_group {
            write!(out, "  \x1b[33mgroup:\x1b[0m {}\r\n", self.group)?;
        }
        Ok(())
    }
}

fn text(message: &Message) -> String {
    terminal::shown(message.text().unwrap_or_default())
}

fn joined(arguments: &[Message], separator: &str) -> String {
    arguments.iter().map(argument).collect::<Vec<_>>().join(separator)
}

/// An argument in the form of the documentation: `[EX seconds|PX milliseconds]`, `key [key ...]`.
fn argument(facts: &Message) -> String {
    let or_quotes = |text: String| if text.is_empty() { "\"\"".to_owned() } else { text };
    let (mut name, mut token, mut kind) = (String::new(), String::new(), String::new());
    let (mut arguments, mut flags): (&[Message], &[Message]) = (&[], &[]);
    for (key, fact) in facts.pairs() {
        match key.text().unwrap_or_default() {
            b"name" => name = text(fact),
            b"token" => token = or_quotes(text(fact)),
            b"type" => kind = text(fact),
            b"arguments" => arguments = fact.members(),
            b"flags" => flags = fact.members(),
            _ => {}
        }
    }
    let has = |flag: &[u8]| flags.iter().any(|known| known.text() == Some(flag));
    let repeated = match kind.as_str() {
        "oneof" => joined(arguments, "|"),
        "block" => joined(arguments, " "),
        "pure-token" => String::new(),
        _ => or_quotes(name),
    };
    if !token.is_empty() && kind != "pure-token" {
        token.push(' ');
    }
    let again = match (has(b"multiple"), has(b"multiple_token")) {
        (false, _) => String::new(),
        (true, false) => format!(" [{repeated} ...]"),
        (true, true) => format!(" [{token}{repeated} ...]"),
    };
    match has(b"optional") {
        false => format!("{token}{repeated}{again}"),
        true => format!("[{token}{repeated}{again}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, arguments: &str) -> Entry {
        let words = name.split(' ').map(str::to_owned).collect();
        Entry { words, arguments: arguments.to_owned(), ..Entry::default() }
    }

    fn help() -> Help {
        let entries = vec![
            entry("CLIENT", ""),
            entry("CLIENT KILL", "ip:port"),
            entry("GET", "key"),
            entry("SET", "key value [NX|XX] [GET]"),
            entry("SUBSCRIBE", "channel [channel ...]"),
        ];
        Help { entries, groups: BTreeSet::from(["@string".to_owned()]) }
    }

    #[test]
    fn a_hint_is_what_is_not_yet_typed() {
        for (line, expected) in [
            ("get", Some(" key")),
            ("get ", Some("key")),
            ("get a", Some(" ")),
            ("set a", Some(" value [NX|XX] [GET]")),
            ("set a b c ", Some("[NX|XX] [GET]")),
            ("SUBSCRIBE a b c ", Some("[channel ...]")),
            ("client kill ", Some("ip:port")),
            ("client foo", Some(" ")),
            ("acl dryrun alice get ", Some("key")),
            ("command getkeys get ", Some("key")),
            ("nosuch", None),
            ("", None),
            ("get \"a", None),
        ] {
            assert_eq!(help().hint(line).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn names_complete_what_is_typed() {
        assert_eq!(help().completions("cli"), (0, vec!["CLIENT".to_owned(), "CLIENT KILL".to_owned()]));
        assert_eq!(help().completions("help  @s"), (6, vec!["@string".to_owned()]));
        assert_eq!(help().completions("@s"), (0, Vec::new()));
    }
}
