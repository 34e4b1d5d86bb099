//! The table of commands, as the server returns it: against the facts of Redis, its own examples, and
//! the page of commands.
//!
//! `facts-8.6.3.json` holds what redis-server 8.6.3 answers to COMMAND INFO, COMMAND DOCS and ACL CAT.
//! `facts-others.json` holds what Valkey 9.1.2 answers about commands and options that Redis 8.6.3 lacks, and
//! what the pages of Redis 8.8 and 8.10 say about later commands.

use std::collections::{BTreeMap, BTreeSet};

use keyfast::internals::commands::all;
use keyfast::internals::commands::facts::lookup::{find_full, own_names};
use keyfast::internals::commands::facts::{Argument, ArgumentKind, Command, Flags, Group, Run};
use keyfast::internals::commands::unsupported::{self, Absent};
use serde_json::{Map, Value, json};

use support::client::{Client, Reply, words};
use support::server::Server;

/// The commands of Redis 8.6.3 that are left out, and why.
const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "Vector sets: Redis has them as a module, and Valkey has none.",
        &[
            "vadd",
            "vcard",
            "vdim",
            "vemb",
            "vgetattr",
            "vinfo",
            "vismember",
            "vlinks",
            "vrandmember",
            "vrange",
            "vrem",
            "vsetattr",
            "vsim",
        ],
    ),
    ("Keyfast has no replica that could take over.", &["failover"]),
    (
        "Keyfast is no node of a cluster, so that no slots move.",
        &["cluster|migration", "cluster|slot-stats", "cluster|syncslots", "trimslots"],
    ),
    ("Keyfast is no node of a cluster, so that it is part of no shard.", &["cluster|myshardid"]),
];

/// Options in the pages of Redis 8.8 and 8.10, which are newer than the servers of the files.
const OF_LATER_PAGES: &[(&str, &[&str], &str)] = &[
    ("8.8.0", &["zinter", "zinterstore", "zunion", "zunionstore"], "COUNT"),
    ("8.10.0", &["xread", "xreadgroup"], "MAXCOUNT"),
    ("8.10.0", &["xread", "xreadgroup"], "MAXSIZE"),
];

/// The families of commands that no Redis has.
const OWN: &[&str] = &["clock", "fault", "lock", "locks", "sandbox"];

/// What is compared of a command.
const FIELDS: &[&str] = &[
    "arity",
    "flags",
    "first_key",
    "last_key",
    "step",
    "acl",
    "tips",
    "key_specs",
    "since",
    "group",
    "complexity",
    "doc_flags",
    "deprecated_since",
    "replaced_by",
    "arguments",
];

/// What other servers return about their commands.
pub(crate) struct Facts {
    /// The commands of Redis 8.6.3.
    pub(crate) redis: Map<String, Value>,
    /// The ACL categories of Redis 8.6.3, each with its commands.
    pub(crate) categories: Map<String, Value>,
    /// The commands of Valkey 9.1.2 that Redis 8.6.3 lacks.
    valkey: Map<String, Value>,
    /// The arguments, and their history, of the commands that have more options in Valkey 9.1.2.
    valkey_options: Map<String, Value>,
    /// The commands of later versions of Redis.
    later: Map<String, Value>,
}

impl Facts {
    pub(crate) fn read() -> Facts {
        let read = |text: &str| serde_json::from_str::<Map<String, Value>>(text).expect("the facts");
        let section = |of: &mut Map<String, Value>, name: &str| match of.remove(name) {
            Some(Value::Object(section)) => section,
            _ => panic!("no section {name}"),
        };
        let mut redis = read(include_str!("facts-8.6.3.json"));
        let mut others = read(include_str!("facts-others.json"));
        Facts {
            redis: section(&mut redis, "commands"),
            categories: section(&mut redis, "acl cat"),
            valkey: section(&mut others, "valkey 9.1.2, lacking in redis 8.6.3"),
            valkey_options: section(&mut others, "valkey 9.1.2, with options that redis 8.6.3 lacks"),
            later: section(&mut others, "pages of redis 8.8 and 8.10"),
        }
    }

    /// The facts by which a command is judged: those of Redis 8.6.3 if it has the command.
    fn of(&self, name: &str) -> Option<&Value> {
        [&self.redis, &self.valkey, &self.later].into_iter().find_map(|server| server.get(name))
    }
}

/// Whether a command, or a subcommand, belongs to Keyfast alone.
fn is_own(name: &str) -> bool {
    OWN.contains(&name.split('|').next().unwrap_or_default())
}

/// Each fact is that of Redis 8.6.3, or of the other server that has the command. Options may be added that
/// another server has, since the version that they name.
#[test]
fn facts_are_those_of_redis_or_valkey() {
    let known = Facts::read();
    let server = Server::start();
    let mut client = server.client3();
    let mut differences = Vec::new();
    for name in names(&mut client).into_iter().filter(|name| !is_own(name)) {
        let expected = known.of(&name).unwrap_or_else(|| panic!("{name} is no command of Redis or Valkey"));
        let mut told = facts(&mut client, &name);
        let added = take_added(&mut told["arguments"], &expected["arguments"]);
        differences.extend(added.iter().filter_map(|option| why_wrong(&name, option, &known)));
        for field in FIELDS {
            let (mut expected, told) = (comparable(&expected[*field]), comparable(&told[*field]));
            if name == "blmovem" && *field == "flags" {
                // Since Redis 7.2 scripts may use the commands that block, whatever the page says.
                expected.as_array_mut().unwrap().retain(|flag| flag != "noscript");
            }
            if told != expected {
                differences.push(format!("{name}.{field}:\n  expected {expected}\n  told     {told}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A command that has come to be here leaves the list. One that a later version of the facts adds joins it,
/// or comes here.
#[test]
fn what_is_left_out_of_redis_has_a_reason() {
    let known = Facts::read();
    let is_here = |name: &str| find_full(own_names(), name.as_bytes()).is_some();
    let lacking: BTreeSet<&str> =
        known.redis.keys().map(String::as_str).filter(|name| !is_here(name)).collect();
    let mut left_out = BTreeSet::new();
    for (reason, names) in LEFT_OUT {
        assert!(reason.ends_with('.'), "{reason}");
        for name in *names {
            assert!(left_out.insert(*name), "{name} is listed twice");
        }
    }
    assert_eq!(left_out, lacking);
}

/// Rules about users may name the commands of Redis that are left out, so ACL CAT lists those, too.
#[test]
fn categories_have_the_commands_of_redis() {
    let known = Facts::read();
    let mut client = Server::start().into_client();
    let told = |client: &mut Client, line: &str| -> BTreeSet<String> {
        client.line(line).items().iter().map(text).collect()
    };
    let categories = told(&mut client, "ACL CAT");
    let of_redis: BTreeSet<String> = known.categories.keys().cloned().collect();
    assert!(categories.is_superset(&of_redis), "{categories:?}");
    // A type that only Keyfast has may have a category of its own.
    for category in categories.difference(&of_redis) {
        let told = told(&mut client, &format!("ACL CAT {category}"));
        assert!(told.iter().all(|name| is_own(name)), "{category}: {told:?}");
    }
    for (category, commands) in &known.categories {
        let expected: BTreeSet<String> =
            commands.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        let told = told(&mut client, &format!("ACL CAT {category}"));
        let lacking: Vec<_> = expected.difference(&told).collect();
        assert!(lacking.is_empty(), "{category} lacks {lacking:?}");
        for name in told.difference(&expected) {
            // What Redis 8.6.3 has is in its own categories only.
            let is_of_others = known.valkey.contains_key(name) || known.later.contains_key(name);
            assert!(is_own(name) || is_of_others, "{category} has {name}");
        }
    }
}

/// Takes out the arguments that the expected ones lack, at any depth, and returns them.
fn take_added(told: &mut Value, expected: &Value) -> Vec<Value> {
    let (Some(told), Some(expected)) = (told.as_array_mut(), expected.as_array()) else { return Vec::new() };
    let mut expected = expected.iter().peekable();
    let mut added = Vec::new();
    told.retain_mut(|argument| {
        let is_same =
            |known: &&Value| known["name"] == argument["name"] && known["token"] == argument["token"];
        let Some(known) = expected.next_if(is_same) else {
            added.push(argument.take());
            return false;
        };
        if let Some(parts) = argument.get_mut("arguments") {
            added.extend(take_added(parts, &known["arguments"]));
        }
        true
    });
    added
}

/// Why an option must not be added, if so: each of its words must be one that another server has, and the
/// version one that this server names, if it names any.
fn why_wrong(name: &str, option: &Value, known: &Facts) -> Option<String> {
    let since = option["since"].as_str().unwrap_or_default();
    let words = options(&json!([option]));
    let valkey = known.valkey_options.get(name).unwrap_or(&Value::Null);
    let of_valkey = options(&valkey["arguments"]);
    let is_known = |word: &str| {
        let is_of_later_page = OF_LATER_PAGES
            .iter()
            .any(|(version, names, option)| *version == since && *option == word && names.contains(&name));
        let same: Vec<_> = of_valkey.iter().filter(|(other, _)| other == word).collect();
        let mut versions: Vec<&str> = valkey["history"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["since"].as_str())
            .collect();
        versions.extend(same.iter().map(|(_, since)| since.as_str()).filter(|since| !since.is_empty()));
        is_of_later_page || !same.is_empty() && (versions.is_empty() || versions.contains(&since))
    };
    let is_right = !since.is_empty() && !words.is_empty() && words.iter().all(|(word, _)| is_known(word));
    (!is_right).then(|| format!("{name}: no other server has {option}"))
}

/// A fact without what an argument is shown as where that is its name, as the files have it. Sets are sorted,
/// and nothing is as good as an empty list.
fn comparable(fact: &Value) -> Value {
    match sorted(without_names_shown(fact.clone())) {
        Value::Array(items) if items.is_empty() => Value::Null,
        fact => fact,
    }
}

fn without_names_shown(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        if fields.get("display_text").is_some_and(|text| *text == fields["name"]) {
            fields.remove("display_text");
        }
        fields.values_mut().for_each(|field| *field = without_names_shown(field.take()));
    }
    if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(|item| *item = without_names_shown(item.take()));
    }
    value
}

/// The words of a command's options, and the version that added each; empty if that is unknown.
pub(crate) fn options(arguments: &Value) -> Vec<(String, String)> {
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

/// All commands and subcommands.
fn names(client: &mut Client) -> Vec<String> {
    let names: Vec<String> = client.line("COMMAND LIST").items().iter().map(text).collect();
    assert!(names.len() > 30);
    names
}

/// What COMMAND INFO and DOCS return about a command, under the names that the files use.
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
        let tells_no_complexity = matches!(name, "lolwut" | "monitor" | "psync" | "sync" | "xread");
        assert_eq!(command.complexity.is_empty(), tells_no_complexity, "{name}");
        assert!(command.summary.ends_with('.'), "the summary of {name} is a sentence");
        let needs_subcommands = matches!(command.run, Run::Subcommands);
        assert!(!needs_subcommands || !command.subcommands.is_empty(), "{name} does nothing");
        let needs_none = command.flags.contains(Flags::NO_MANDATORY_KEYS);
        for (number, spec) in command.keys.iter().enumerate() {
            let shortest = command.arity().number().unsigned_abs() as usize;
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
    let known = Facts::read();
    let absent: BTreeMap<&str, Absent> = unsupported::all().map(|absent| (absent.name, absent)).collect();
    for name in absent.keys() {
        assert!(find_full(own_names(), name.as_bytes()).is_none(), "{name} is here");
    }
    for (name, facts) in known.redis.iter().chain(&known.valkey) {
        if find_full(own_names(), name.as_bytes()).is_some() {
            continue;
        }
        let absent = absent.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not known"));
        assert_eq!(facts["arity"], json!(absent.arity.number()), "{name}");
        let categories: Vec<String> =
            absent.category_names().map(|category| format!("@{category}")).collect();
        assert_eq!(sorted(facts["acl"].clone()), sorted(json!(categories)), "{name}");
        assert_eq!(absent.is_of_redis, known.redis.contains_key(name), "{name}");
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
        _ => facts.shown().unwrap_or_default(),
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
