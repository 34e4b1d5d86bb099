//! Which version of Redis Keyfast says it is, and what that promises.
//!
//! The rule: it is the highest version whose commands on data are all here, with all their options. Vector
//! sets do not count: Redis 8 has them, but as a module, and Valkey does not.

use std::collections::BTreeSet;

use keyfast::internals::REDIS_VERSION;
use keyfast::internals::commands::facts::lookup::{find_full, own_names};
use keyfast::internals::commands::facts::{Argument, Command};
use serde_json::Value;

use crate::table::{Facts, options};
use support::server::Server;

/// The versions of Redis, from 7.0 on.
const VERSIONS: &[(u32, u32)] = &[(7, 0), (7, 2), (7, 4), (8, 0), (8, 2), (8, 4), (8, 6)];

/// The groups of commands that work on values. Those of the other groups are about servers and clients.
const DATA: &[&str] =
    &["string", "bitmap", "hyperloglog", "hash", "list", "set", "sorted-set", "geo", "stream"];

/// Commands that Redis documents for its own log and replicas, not for clients.
const INTERNAL: &[&str] = &["xidmprecord"];

/// The commands on data and their options, with the version of Redis that brought each.
fn asked_for() -> Vec<((u32, u32), String, Option<String>)> {
    let mut asked = Vec::new();
    for (name, facts) in &Facts::read().redis {
        let is_of_data = facts["group"].as_str().is_some_and(|group| DATA.contains(&group));
        if !is_of_data || INTERNAL.contains(&name.as_str()) {
            continue;
        }
        asked.push((version(&facts["since"]), name.clone(), None));
        let since = version(&facts["since"]);
        let words = options(&facts["arguments"]);
        for change in facts["history"].as_array().into_iter().flatten() {
            let tokens = change["tokens"].as_array().into_iter().flatten().filter_map(Value::as_str);
            // Other words are about the reply.
            for token in tokens.filter(|token| words.iter().any(|(word, _)| word == token)) {
                asked.push((version(&change["since"]).max(since), name.clone(), Some(token.to_owned())));
            }
        }
        let mut found = Vec::new();
        collect_options(&facts["arguments"], since, &mut found);
        asked.extend(found.into_iter().map(|(since, token)| (since, name.clone(), Some(token))));
    }
    assert!(asked.len() > 250, "{}", asked.len());
    asked
}

/// The options of a command, each with the version that its facts name, or else with the command's version.
fn collect_options(arguments: &Value, since: (u32, u32), options: &mut Vec<((u32, u32), String)>) {
    for argument in arguments.as_array().into_iter().flatten() {
        let since = if argument["since"].is_string() { version(&argument["since"]) } else { since };
        // If the command is older than the file, an option that is newer must have a version.
        if let Some(token) = argument["token"].as_str().filter(|_| since > (7, 0)) {
            options.push((since, token.to_owned()));
        }
        collect_options(&argument["arguments"], since, options);
    }
}

fn version(text: &Value) -> (u32, u32) {
    parse(text.as_str().expect("a version"))
}

fn parse(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().expect("a number"));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// Whether a command is here, and this option of it.
fn is_here(name: &str, option: Option<&str>) -> bool {
    let Some(found) = find_full(own_names(), name.as_bytes()) else { return false };
    let command: &Command = found.command;
    option.is_none_or(|option| tokens(command.arguments).contains(option))
}

fn tokens(arguments: &'static [Argument]) -> BTreeSet<&'static str> {
    let own = arguments.iter().filter_map(|argument| argument.token);
    own.chain(arguments.iter().flat_map(|argument| tokens(argument.arguments))).collect()
}

/// The change that adds the last command of a newer version of Redis raises the constant.
#[test]
fn the_version_is_the_highest_whose_commands_on_data_are_all_here() {
    let asked = asked_for();
    let missing: Vec<_> =
        asked.iter().filter(|(_, name, option)| !is_here(name, option.as_deref())).collect();
    let is_whole = |version: &&(u32, u32)| missing.iter().all(|(since, ..)| since > *version);
    let highest = VERSIONS.iter().rev().find(is_whole).expect("one of them");
    let next: Vec<_> = VERSIONS.iter().filter(|version| *version > highest).take(1).collect();
    let lacking: Vec<_> =
        missing.iter().filter(|(since, ..)| next.iter().any(|next| since <= *next)).collect();
    assert_eq!(
        parse(REDIS_VERSION),
        *highest,
        "REDIS_VERSION is {REDIS_VERSION}; all commands of {highest:?} are here; of {next:?} there lack {lacking:?}"
    );
}

#[test]
fn a_missing_command_or_option_is_found() {
    assert!(is_here("set", Some("KEEPTTL")) && is_here("setnx", None));
    assert!(!is_here("set", Some("NOSUCH")) && !is_here("nosuch", None));
    let asked = asked_for();
    let has = |since, name: &str, option: Option<&str>| {
        asked.iter().any(|asked| *asked == (since, name.to_owned(), option.map(str::to_owned)))
    };
    assert!(has((7, 4), "hexpire", None) && has((7, 4), "hexpire", Some("FIELDS")));
    assert!(has((8, 2), "xadd", Some("KEEPREF")) && has((8, 4), "set", Some("IFEQ")));
    assert!(!asked.iter().any(|(_, name, _)| name == "vadd" || name == "delifeq"));
}

#[test]
fn the_page_on_compatibility_says_which_version_it_is() {
    let page = include_str!("../../src/guide/compatibility.md");
    let (major, minor) = parse(REDIS_VERSION);
    let told = format!("Keyfast says {REDIS_VERSION} there: {major}.{minor} is the highest");
    assert!(page.split_whitespace().collect::<Vec<_>>().join(" ").contains(&told), "{told}");
}

#[test]
fn clients_can_be_told_another_version() {
    let mut client = Server::start_with(&["--redis-version", "6.2.14"]).into_client();
    let told = |client: &mut support::client::Client| {
        let hello = client.line("HELLO").items();
        let info = client.line("INFO server").text();
        let line =
            info.lines().find(|line| line.starts_with("redis_version:")).expect("a version").to_owned();
        (hello[3].to_string().trim_matches('"').to_owned(), line)
    };
    assert_eq!(told(&mut client), ("6.2.14".to_owned(), "redis_version:6.2.14".to_owned()));
    client.line("CONFIG SET redis-version 7.4.1").is_ok();
    assert_eq!(told(&mut client), ("7.4.1".to_owned(), "redis_version:7.4.1".to_owned()));
    for wrong in ["7", "7.4", "7.4.x", "7.4.1.2", "7..1", "07.4.1", "v7.4.1", "7.4.1000"] {
        client.cmd(["CONFIG", "SET", "redis-version", wrong]).is_error(
            "ERR CONFIG SET failed (possibly related to argument 'redis-version') - \
             argument must be a version of three numbers, such as 7.0.15",
        );
    }
    let mut client = Server::start().into_client();
    assert_eq!(told(&mut client).0, REDIS_VERSION);
}
