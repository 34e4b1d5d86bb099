//! The table of commands, as the server tells it: against the facts of Redis, its own examples, the README.
//!
//! `facts.json` holds what redis-server 7.0.15 answers to COMMAND INFO and COMMAND DOCS, and what Valkey 8.1
//! does for the commands that came after; of those that Redis 8.4 and Valkey 9 brought, what their pages say.

use std::collections::{BTreeMap, BTreeSet};

use keyfast::commands::absent::{self, Absent};
use keyfast::commands::all;
use keyfast::commands::facts::lookup::{find_full, own_names};
use keyfast::commands::facts::{Command, Flags, Run};
use serde_json::{Map, Value, json};

use crate::client::{Client, Reply};
use crate::server::Server;

/// What the documents say and COMMAND DOCS of Redis 7.0 does not: SETNX is deprecated, too.
const DOCUMENTED_OTHERWISE: &[(&str, &str, &str)] = &[
    ("setnx", "deprecated_since", "2.6.12"),
    ("setnx", "replaced_by", "`SET` with the `NX` argument"),
    ("setnx", "doc_flags", "deprecated"),
];

/// The arity of what has got an option since Redis 7.0.
const NEWER_ARITIES: &[(&str, i64)] = &[("zrank", -3), ("zrevrank", -3)];

/// The families of commands that no Redis has.
const OWN: &[&str] = &["clock", "fault", "locks"];

#[test]
fn facts_are_those_of_redis() {
    let all_facts: Value = serde_json::from_str(include_str!("facts.json")).expect("the facts");
    let server = Server::start();
    let mut client = server.client3();
    let mut differences = Vec::new();
    let is_own = |name: &String| OWN.contains(&name.split('|').next().unwrap_or_default());
    for name in names(&mut client).into_iter().filter(|name| !is_own(name)) {
        let mut expected = all_facts[&name].clone();
        assert!(expected.is_object(), "{name} is no command of Redis");
        for (_, field, value) in DOCUMENTED_OTHERWISE.iter().filter(|(command, ..)| *command == name) {
            expected[*field] = json!(if *field == "doc_flags" { json!([value]) } else { json!(value) });
        }
        if expected["acl"].as_array().is_some_and(|acl| acl.contains(&json!("@blocking"))) {
            // Since Redis 7.2 scripts may use the commands that block. They never wait there.
            expected["flags"].as_array_mut().unwrap().retain(|flag| flag != "noscript");
        }
        for (_, arity) in NEWER_ARITIES.iter().filter(|(command, _)| *command == name) {
            expected["arity"] = json!(arity);
        }
        let mut told = facts(&mut client, &name);
        forget_newer(&mut told["arguments"]);
        for field in expected.as_object().unwrap().keys() {
            let (told, expected) = (sorted(told[field].clone()), sorted(expected[field].clone()));
            if told != expected {
                differences.push(format!("{name}.{field}:\n  expected {expected}\n  told     {told}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// SET, CLIENT KILL, ZRANK and GEOSEARCH have learned something since Redis 7.0.
fn forget_newer(arguments: &mut Value) {
    const NEWER: [&str; 5] = ["7.2.0", "7.4.0", "8.1.0", "8.4.0", "9.0.0"];
    let Some(arguments) = arguments.as_array_mut() else { return };
    arguments.retain(|argument| !NEWER.iter().any(|version| argument["since"] == *version));
    for argument in arguments.iter_mut().filter_map(Value::as_object_mut) {
        argument.get_mut("arguments").into_iter().for_each(forget_newer);
    }
}

/// All commands and subcommands.
fn names(client: &mut Client) -> Vec<String> {
    let names: Vec<String> = client.line("COMMAND LIST").items().iter().map(text).collect();
    assert!(names.len() > 30);
    names
}

/// What INFO and DOCS tell about a command, under the names that `facts.json` uses.
fn facts(client: &mut Client, name: &str) -> Value {
    let info = client.cmd(["COMMAND", "INFO", name]).items().remove(0);
    let Reply::Array(info) = info else { panic!("no info about {name}") };
    let Reply::Map(mut docs) = client.cmd(["COMMAND", "DOCS", name]).reply() else { panic!("no docs") };
    let mut facts = match value(docs.remove(0).1) {
        Value::Object(facts) => facts,
        other => panic!("{name} is documented as {other}"),
    };
    let fields = ["arity", "flags", "first_key", "last_key", "step", "acl", "tips", "key_specs"];
    facts.extend(fields.into_iter().map(str::to_owned).zip(info.into_iter().skip(1).map(value)));
    for spec in facts["key_specs"].as_array_mut().unwrap() {
        // A remark for people, which the facts leave out.
        spec.as_object_mut().unwrap().remove("notes");
    }
    Value::Object(facts)
}

fn value(reply: Reply) -> Value {
    match reply {
        Reply::Integer(integer) => json!(integer),
        Reply::Null => Value::Null,
        Reply::Array(items) | Reply::Set(items) => items.into_iter().map(value).collect(),
        Reply::Map(pairs) => Value::Object(
            pairs.into_iter().map(|(key, item)| (text(&key), value(item))).collect::<Map<_, _>>(),
        ),
        other => json!(text(&other)),
    }
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) => text.clone(),
        other => panic!("not a text: {other:?}"),
    }
}

/// Sets have no order: their members are sorted wherever they are.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.into_iter().map(sorted).collect();
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
            Value::Array(items)
        }
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, field)| (name, sorted(field))).collect())
        }
        other => other,
    }
}

#[test]
fn nothing_about_a_command_was_forgotten() {
    for command in with_subcommands() {
        let name = command.name;
        assert!(!command.since.is_empty() && !command.complexity.is_empty(), "{name}");
        assert!(command.summary.ends_with('.'), "the summary of {name} is a sentence");
        let needs_subcommands = matches!(command.run, Run::Subcommands);
        assert!(!needs_subcommands || !command.subcommands.is_empty(), "{name} does nothing");
        let needs_none = command.flags.contains(Flags::NO_MANDATORY_KEYS);
        for (number, spec) in command.keys.iter().enumerate() {
            let shortest = command.arity.number().unsigned_abs() as usize;
            let has_key = spec.positions_among(shortest, 1).next().is_some();
            let is_searched = !spec.is_of_keys() || spec.search.is_some();
            // PFMERGE needs a target, and no source.
            let is_optional = number > 0 && spec.last < 0 && name == "pfmerge";
            assert!(has_key || needs_none || is_searched || is_optional, "{name} may come without its key");
        }
    }
}

fn with_subcommands() -> impl Iterator<Item = &'static Command> {
    all().flat_map(|command| std::iter::once(command).chain(command.subcommands))
}

/// What rules may name beside the commands that are there.
#[test]
fn every_command_of_redis_is_there_or_known_to_be_absent() {
    let all_facts: Value = serde_json::from_str(include_str!("facts.json")).expect("the facts");
    let absent: BTreeMap<&str, Absent> = absent::all().map(|absent| (absent.name, absent)).collect();
    for (name, facts) in all_facts.as_object().unwrap() {
        if find_full(own_names(), name.as_bytes()).is_some() {
            continue;
        }
        let absent = absent.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(json!(absent.arity.number()), facts["arity"], "{name}");
        let categories: Vec<String> =
            absent.category_names().map(|category| format!("@{category}")).collect();
        assert_eq!(sorted(json!(categories)), sorted(facts["acl"].clone()), "{name}");
        let is_of_redis_7 = facts["since"].as_str().is_some_and(|since| since <= "7.0.15");
        assert_eq!(absent.is_of_redis_7, is_of_redis_7, "{name}");
    }
}

#[test]
fn every_example_runs_as_documented() {
    let options = ["--enable-clock-command", "yes", "--enable-fault-command", "yes"];
    let server = Server::start_with(&options);
    let mut examples = 0;
    for command in with_subcommands() {
        let mut client = server.client();
        client.line("FLUSHALL").is_ok();
        client.line("CLOCK RESUME").is_ok();
        for (request, expected) in command.example {
            examples += 1;
            let reply = client.line(request).reply().to_string();
            assert_eq!(reply, *expected, "{}: {request}", command.name);
        }
    }
    assert!(examples > 60);
}

#[test]
fn every_command_with_keys_has_an_example() {
    for command in with_subcommands().filter(|command| !command.keys.is_empty()) {
        assert!(!command.example.is_empty(), "{}", command.name);
    }
}

#[test]
fn the_readme_lists_exactly_the_commands_that_are_there() {
    let readme = include_str!("../../README.md");
    let table = readme.split("<!-- commands -->").nth(1).expect("a table between two marks");
    let listed: BTreeSet<String> =
        table.split('`').skip(1).step_by(2).map(|name| name.to_lowercase().replace(' ', "|")).collect();
    for name in &listed {
        assert!(
            find_full(own_names(), name.as_bytes()).is_some(),
            "the README lists {name}, which is not there"
        );
    }
    for command in with_subcommands().filter(|command| command.subcommands.is_empty()) {
        assert!(listed.contains(command.name), "the README does not list {}", command.name);
    }
}
