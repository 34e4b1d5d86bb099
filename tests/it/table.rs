//! The table of commands, as the server returns it: against the facts of Redis, its own examples, and
//! the page of commands.
//!
//! `facts.json` holds what redis-server 7.0.15 answers to COMMAND INFO and COMMAND DOCS, and what Valkey 8.1
//! does for the commands that came after; of those that Redis 8.4 and Valkey 9 brought, what their pages say.
//! `facts-newer.json` holds what Redis 8.6.3 and Valkey 9.1.2 answer, where that is something else.

use std::collections::{BTreeMap, BTreeSet};

use keyfast::internals::commands::all;
use keyfast::internals::commands::facts::lookup::{find_full, own_names};
use keyfast::internals::commands::facts::{Argument, ArgumentKind, Command, Flags, Group, Run};
use keyfast::internals::commands::unsupported::{self, Absent};
use serde_json::{Map, Value, json};

use crate::client::{Client, Reply, words};
use crate::server::Server;

/// What the documents say and COMMAND DOCS of Redis 7.0 does not: SETNX is deprecated, too.
const DOCUMENTED_OTHERWISE: &[(&str, &str, &str)] = &[
    ("setnx", "deprecated_since", "2.6.12"),
    ("setnx", "replaced_by", "`SET` with the `NX` argument"),
    ("setnx", "doc_flags", "deprecated"),
];

/// Options in the pages of Redis 8.8 and 8.10, which are newer than the servers of the files.
const OF_LATER_PAGES: &[(&str, &[&str], &str)] = &[
    ("8.8.0", &["zinter", "zinterstore", "zunion", "zunionstore"], "COUNT"),
    ("8.10.0", &["xread", "xreadgroup"], "MAXCOUNT"),
    ("8.10.0", &["xread", "xreadgroup"], "MAXSIZE"),
];

/// The families of commands that no Redis has.
const OWN: &[&str] = &["clock", "fault", "lock", "locks"];

/// What each server returns about its commands.
struct Facts {
    /// Redis 7.0, and what came after it as far as it was looked up by hand.
    seven: Value,
    /// Redis 8.6.3 and Valkey 9.1.2: what Redis 7.0 lacks.
    added: [Value; 2],
    /// What they return about commands of Redis 7.0, if that differs.
    changed: [Value; 2],
}

impl Facts {
    fn read() -> Facts {
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("the facts");
        let newer = read(include_str!("facts-newer.json"));
        let section = |name: &str| {
            let section = newer[name].as_object().unwrap_or_else(|| panic!("no section {name}"));
            section.iter().map(|(name, facts)| (name.to_lowercase(), facts.clone())).collect()
        };
        let both = |what: &str| {
            ["redis 8.6.3", "valkey 9.1.2"].map(|server| section(&format!("{server}, {what} redis 7.0.15")))
        };
        Facts {
            seven: read(include_str!("facts.json")),
            added: both("lacking in"),
            changed: both("where it differs from"),
        }
    }

    /// What servers return about a command: Redis 7.0 first, then Redis 8.6, then Valkey 9.1. Those that lack
    /// it have no entry, and the newer ones have only what differs.
    fn of(&self, name: &str) -> Vec<&Value> {
        let newer = self.added.iter().chain(&self.changed).map(|server| &server[name]);
        std::iter::once(&self.seven[name]).chain(newer).filter(|facts| facts.is_object()).collect()
    }
}

/// Each fact is that of one of the servers, beside the options that came later: each of these is one that a
/// newer server has, since a version that it tells.
#[test]
fn facts_are_those_of_redis_or_valkey() {
    let all_facts = Facts::read();
    let server = Server::start();
    let mut client = server.client3();
    let mut differences = Vec::new();
    let is_own = |name: &String| OWN.contains(&name.split('|').next().unwrap_or_default());
    for name in names(&mut client).into_iter().filter(|name| !is_own(name)) {
        let known = all_facts.of(&name);
        assert!(!known.is_empty(), "{name} is no command of Redis or Valkey");
        let told = facts(&mut client, &name);
        let is_seven = all_facts.seven[&name].is_object();
        let mut basic = told.clone();
        if is_seven {
            differences.extend(wrong_options(&name, &told["arguments"], &known));
            forget_newer(&mut basic["arguments"]);
        }
        for field in known[0].as_object().unwrap().keys().filter(|field| *field != "history") {
            let expected: Vec<Value> =
                known.iter().map(|facts| sorted(expected(&name, field, facts, is_seven))).collect();
            let is_known = |told: &Value| expected.contains(&sorted(without_display(told.clone())));
            if !is_known(&basic[field]) && !is_known(&told[field]) {
                let expected =
                    expected.iter().map(Value::to_string).collect::<Vec<_>>().join("\n  or       ");
                let told = sorted(basic[field].clone());
                differences.push(format!("{name}.{field}:\n  expected {expected}\n  told     {told}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What a server returns for a field, as Keyfast must return it.
fn expected(name: &str, field: &str, facts: &Value, is_seven: bool) -> Value {
    let otherwise = DOCUMENTED_OTHERWISE.iter().find(|other| other.0 == name && other.1 == field);
    if let Some((.., value)) = otherwise {
        return if field == "doc_flags" { json!([value]) } else { json!(value) };
    }
    let mut expected = without_display(facts[field].clone());
    let blocks = facts["acl"].as_array().is_some_and(|acl| acl.contains(&json!("@blocking")));
    if field == "flags" && blocks && is_seven {
        // Since Redis 7.2 scripts may use the commands that block. They never wait there.
        expected.as_array_mut().unwrap().retain(|flag| flag != "noscript");
    }
    expected
}

/// Facts without the words that an argument is shown with, which are its name or nearly so.
fn without_display(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("display_text");
        fields.values_mut().for_each(|field| *field = without_display(field.take()));
    }
    if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(|item| *item = without_display(item.take()));
    }
    value
}

/// The options that came after Redis 7.0 and are not as one of the servers tells: it has the word, and either
/// does not say since when or names the same version.
fn wrong_options(name: &str, arguments: &Value, known: &[&Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_of_later_page = |token: &str, since: &str| {
        OF_LATER_PAGES
            .iter()
            .any(|(version, names, option)| *version == since && *option == token && names.contains(&name))
    };
    for (token, since) in options(arguments).into_iter().filter(|(_, since)| is_newer(since)) {
        if is_of_later_page(&token, &since) {
            continue;
        }
        let same: Vec<(String, String)> = known
            .iter()
            .flat_map(|facts| options(&facts["arguments"]))
            .filter(|(other, _)| *other == token)
            .collect();
        let of_history =
            known.iter().flat_map(|facts| facts["history"].as_array().cloned().unwrap_or_default());
        let mut versions: Vec<String> =
            of_history.filter_map(|change| Some(change["since"].as_str()?.to_owned())).collect();
        versions.extend(same.iter().map(|(_, since)| since.clone()).filter(|since| !since.is_empty()));
        if same.is_empty() || !versions.is_empty() && !versions.contains(&since) {
            wrong.push(format!("{name}: {token} since {since}, but one of {versions:?}"));
        }
    }
    wrong
}

/// The words of a command's options, and the version that added each; empty if that is unknown.
fn options(arguments: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for argument in arguments.as_array().into_iter().flatten() {
        let text = |field: &str| argument[field].as_str().unwrap_or_default().to_owned();
        if argument["token"].is_string() {
            found.push((text("token"), text("since")));
        }
        found.extend(options(&argument["arguments"]));
    }
    found
}

/// Whether a version is newer than Redis 7.0.
pub(crate) fn is_newer(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next(), parts.next()) > (Some(7), Some(0))
}

/// Leaves out what came after Redis 7.0.
fn forget_newer(arguments: &mut Value) {
    let Some(arguments) = arguments.as_array_mut() else { return };
    arguments.retain(|argument| !is_newer(argument["since"].as_str().unwrap_or_default()));
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

/// What COMMAND INFO and DOCS return about a command, under the names that `facts.json` uses.
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
        assert!(!command.since.is_empty(), "{name}");
        // Of these, Redis tells none.
        let tells_no_complexity = matches!(name, "psync" | "sync");
        assert_eq!(command.complexity.is_empty(), tells_no_complexity, "{name}");
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
    let all_facts = Facts::read();
    let absent: BTreeMap<&str, Absent> = unsupported::all().map(|absent| (absent.name, absent)).collect();
    let names = |facts: &Value| facts.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let all_names = names(&all_facts.seven).into_iter().chain(all_facts.added.iter().flat_map(names));
    for name in all_names.collect::<BTreeSet<String>>() {
        if find_full(own_names(), name.as_bytes()).is_some() {
            continue;
        }
        let known = all_facts.of(&name);
        let is_told =
            |field: &str, value: Value| known.iter().any(|facts| sorted(facts[field].clone()) == value);
        let absent = absent.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not known"));
        assert!(is_told("arity", json!(absent.arity.number())), "{name}");
        let categories: Vec<String> =
            absent.category_names().map(|category| format!("@{category}")).collect();
        assert!(is_told("acl", sorted(json!(categories))), "{name}: {categories:?}");
        let is_of_redis_7 = known[0]["since"].as_str().is_some_and(|since| !is_newer(since));
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

/// Commands that ask about a key and not for its value use none of it, as in Redis (`LOOKUP_NOTOUCH`). LOCKS
/// asks the lens.
const ASK_ABOUT_KEYS: &[&str] =
    &["exists", "expiretime", "locks", "object", "pexpiretime", "pttl", "ttl", "type", "watch"];

/// How often a key was used, on a scale that counts each use; `None` if it is absent.
fn uses(client: &mut Client, key: &Reply) -> Option<i64> {
    let Reply::Bulk(key) = key else { panic!("no key: {key}") };
    match client.cmd([b"OBJECT", b"FREQ".as_slice(), key]).reply() {
        Reply::Integer(uses) => Some(uses),
        _ => None,
    }
}

/// The rule for eviction by use: a command uses a key once, however often it looks it up. A key that it makes
/// is new. Redis looks some keys up twice, and counts that.
#[test]
fn every_command_uses_each_of_its_keys_once() {
    const NEW: i64 = 5;
    let counting = ["--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0", "--lfu-decay-time", "0"];
    let own = ["--enable-clock-command", "yes", "--enable-fault-command", "yes"];
    let server = Server::start_with(&[&counting[..], &own[..]].concat());
    let mut checked = BTreeSet::new();
    for command in with_subcommands().filter(|command| !command.keys.is_empty()) {
        let (mut client, mut other) = (server.client(), server.client());
        other.line("FLUSHALL").is_ok();
        for (line, _) in command.example {
            let words = words(line);
            let name = words[0].to_ascii_lowercase();
            let asked = ["COMMAND", "GETKEYS"].map(str::to_owned).into_iter().chain(words.clone());
            let mut keys = match other.cmd(asked).reply() {
                Reply::Array(keys) => keys,
                _ => Vec::new(),
            };
            keys.sort_by_key(Reply::to_string);
            keys.dedup();
            let before: Vec<Option<i64>> = keys.iter().map(|key| uses(&mut other, key)).collect();
            let reply = client.cmd(&words).reply();
            if matches!(reply, Reply::Error(_)) || reply == Reply::Simple("QUEUED".to_owned()) {
                continue;
            }
            for (at, (key, before)) in keys.iter().zip(before).enumerate() {
                if at > 0 && name == "blmovem" && reply == Reply::Null {
                    // There was too little to move, so it has not come to the target.
                    continue;
                }
                let Some(after) = uses(&mut other, key) else { continue };
                let is_replaced = name == "copy" && at == 0 && reply == Reply::Integer(1);
                let expected = match before {
                    Some(before) if ASK_ABOUT_KEYS.contains(&&*name) => before,
                    Some(before) if !is_replaced => before + 1,
                    _ => NEW,
                };
                assert_eq!(after, expected, "{key} of {line} in the example of {}", command.name);
                if before.is_some() && command.name.split('|').next() == Some(&*name) {
                    checked.insert(command.name);
                }
            }
        }
    }
    assert!(checked.len() > 140, "{} commands only", checked.len());
    // A transaction, or a script, has several commands.
    let mut client = server.client();
    let mut other = server.client();
    other.line("FLUSHALL").is_ok();
    for (lines, uses_of_k) in [
        (&["SET k 1", "SETNX m 1"][..], NEW),
        (&["MULTI", "INCR k", "INCR m", "EXPIRE k 100", "EXEC"], NEW + 2),
        (&["EVAL redis.call('INCR',KEYS[1]);redis.call('APPEND',KEYS[1],'0') 1 k"], NEW + 4),
        (&["CLIENT NO-TOUCH ON", "INCR k", "EXPIRE k 100", "CLIENT NO-TOUCH OFF"], NEW + 4),
    ] {
        lines.iter().for_each(|line| client.line(line).ignored());
        assert_eq!(uses(&mut other, &Reply::from("k")), Some(uses_of_k), "{lines:?}");
    }
}

#[test]
fn every_command_with_keys_has_an_example() {
    for command in with_subcommands().filter(|command| !command.keys.is_empty()) {
        assert!(!command.example.is_empty(), "{}", command.name);
    }
}

/// The page lists every command. `KEYFAST_WRITE_PAGES=1` rewrites it.
#[test]
fn the_page_of_commands_is_made_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/commands.md");
    let page = page_of_commands();
    if std::env::var("KEYFAST_WRITE_PAGES").is_ok_and(|value| value == "1") {
        std::fs::write(path, &page).expect("the page is written");
    }
    let kept = std::fs::read_to_string(path).expect("the page");
    for (number, (kept, made)) in kept.lines().zip(page.lines()).enumerate() {
        assert_eq!(kept, made, "{path}:{}: KEYFAST_WRITE_PAGES=1 rewrites the page", number + 1);
    }
    assert_eq!(kept, page, "{path}: KEYFAST_WRITE_PAGES=1 rewrites the page");
}

/// The headings of the page of commands, in their order.
const HEADINGS: &[(Group, &str)] = &[
    (Group::STRING, "Strings"),
    (Group::BITMAP, "Bits"),
    (Group::HYPERLOGLOG, "HyperLogLogs"),
    (Group::HASH, "Hashes"),
    (Group::LIST, "Lists"),
    (Group::SET, "Sets"),
    (Group::SORTED_SET, "Sorted sets"),
    (Group::GEO, "Places"),
    (Group::STREAM, "Streams"),
    (Group::GENERIC, "Keys of any type"),
    (Group::TRANSACTIONS, "Transactions"),
    (Group::PUBSUB, "Channels"),
    (Group::SCRIPTING, "Scripts and functions"),
    (Group::CONNECTION, "The connection"),
    (Group::SERVER, "The server"),
    (Group::CLUSTER, "Cluster, disabled"),
];

fn page_of_commands() -> String {
    let mut page = String::from(
        "# Commands\n\n\
         All commands of Keyfast, with their arguments, by subject. This page is made of the table of \
         commands (`src/commands`),\nand so are the replies of `COMMAND DOCS` and `keyfast cli HELP`. \
         \"Since\" is the first version of Redis or Valkey that has the\ncommand; commands of Keyfast alone \
         say so. [Compatibility][compatibility] says how replies compare, and what is not here.\n",
    );
    for (group, heading) in HEADINGS {
        page += &format!("\n## {heading}\n\n");
        if *group == Group::CLUSTER {
            page +=
                "Keyfast is no cluster. These commands reply as those of a server without cluster mode.\n\n";
        }
        page += "| command | since | what it does |\n| --- | --- | --- |\n";
        let mut commands: Vec<_> = with_subcommands()
            .filter(|command| command.group == *group && command.subcommands.is_empty())
            .collect();
        commands.sort_by_key(|command| command.name);
        for command in commands {
            let name = command.name.to_uppercase().replace('|', " ");
            let syntax = [name, arguments(command.arguments, " ")].join(" ");
            let is_own = OWN.contains(&command.name.split('|').next().unwrap_or_default());
            let since = if is_own { "Keyfast" } else { command.since };
            let summary = command.summary.replace('|', "\\|");
            page += &format!("| `{}` | {since} | {summary} |\n", syntax.trim_end().replace('|', "\\|"));
        }
    }
    let has_heading = |command: &Command| HEADINGS.iter().any(|(group, _)| *group == command.group);
    assert!(with_subcommands().all(has_heading), "a group of commands has no heading");
    page + "\n[compatibility]: compatibility.md\n"
}

fn arguments(arguments: &[Argument], separator: &str) -> String {
    arguments.iter().map(argument).collect::<Vec<_>>().join(separator)
}

/// An argument as documentation writes it: `[EX seconds|PX milliseconds]`, `key [key ...]`.
fn argument(facts: &Argument) -> String {
    let value = match facts.kind {
        ArgumentKind::OneOf => arguments(facts.arguments, "|"),
        ArgumentKind::Block => arguments(facts.arguments, " "),
        ArgumentKind::PureToken => String::new(),
        _ => facts.name.to_owned(),
    };
    let token = match facts.token {
        None => String::new(),
        Some("") => "\"\" ".to_owned(),
        Some(token) => format!("{token} "),
    };
    let again = match (facts.is_multiple, facts.repeats_token) {
        (false, _) => String::new(),
        (true, false) => format!(" [{value} ...]"),
        (true, true) => format!(" [{token}{value} ...]"),
    };
    let text = format!("{}{again}", format!("{token}{value}").trim_end());
    if facts.is_optional { format!("[{text}]") } else { text }
}
