//! COMMAND: what the server knows about its own commands, for people and for client libraries.

use redis_protocol::resp3::types::OwnedFrame;

use crate::glob::Pattern;
use crate::name_table::NameTable;
use crate::resp::{Reply, Request, Sent, tree};

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::lookup::{callable, find, find_full, resolve};
use crate::commands::facts::{
    Argument, ArgumentKind, Arity, Categories, Command, Context, Flags, Group, KeyFlags, KeySearch, KeySpec,
    Keyword, Part, Result, Run, Secrets,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[COMMAND];

/// The facts that most commands of this file share.
const SERVER: Command = Command {
    flags: Flags::LOADING.and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::SERVER,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const COMMAND: Command = Command {
    name: "command",
    arity: Some(Arity::AtLeast(1)),
    summary: "Returns details of all commands, as COMMAND INFO does.",
    since: "2.8.13",
    complexity: "O(N) where N is the total number of Redis commands",
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        COMMAND_COUNT,
        COMMAND_DOCS,
        COMMAND_GETKEYS,
        COMMAND_GETKEYSANDFLAGS,
        COMMAND_HELP,
        COMMAND_INFO,
        COMMAND_LIST,
    ],
    run: Run::Server(command),
    ..SERVER
};

fn command(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let commands: Vec<_> = callable(&context.instance.names).collect();
    Ok(reply.array_of(commands.into_iter(), write_info))
}

const COMMAND_COUNT: Command = Command {
    name: "command|count",
    summary: "Returns the number of commands.",
    since: "2.8.13",
    complexity: "O(1)",
    run: Run::Server(count),
    ..SERVER
};

fn count(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.count(callable(&context.instance.names).count()))
}

const COMMAND_INFO: Command = Command {
    name: "command|info",
    summary: "Returns the arity, flags, keys and ACL categories of some or all commands.",
    since: "2.8.13",
    complexity: "O(N) where N is the number of commands to look up",
    cost: costs::described::<10, 400>(),
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::string("command-name").optional().multiple()],
    example: &[("COMMAND INFO nosuch", "[(nil)]")],
    run: Run::Server(info),
    ..SERVER
};

fn info(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if request.len() == 2 {
        return command(context, request, reply);
    }
    Ok(reply.array_of(request.from(2), |name, reply| match find_full(&context.instance.names, name) {
        Some(registered) => write_info(registered.command, reply),
        None => reply.nil(),
    }))
}

/// The ten facts of COMMAND INFO, in their order.
fn write_info(command: &'static Command, reply: Reply<'_>) -> Sent {
    let (first, last, step) = key_range(command).unwrap_or_default();
    reply.array_of(0..10, |fact, reply| match fact {
        0 => reply.bulk(command.name.as_bytes()),
        1 => reply.integer(command.arity().number()),
        2 => reply.tree(&tree::set_of_simple(command.flag_names())),
        3 => reply.integer(first),
        4 => reply.integer(last),
        5 => reply.integer(step),
        6 => reply.tree(&tree::set_of_simple(command.category_names())),
        7 => reply.set_of(command.tips.iter(), |tip, reply| reply.bulk(tip.as_bytes())),
        8 => reply.set_of(command.keys.iter(), |spec, reply| reply.tree(&describe_keys(spec))),
        _ => reply.set_of(command.subcommands.iter(), write_info),
    })
}

/// The first key, the last and the step between two, as COMMAND INFO had them before key specifications: one
/// range over all whose places are the same in all requests.
fn key_range(command: &Command) -> Option<(i64, i64, i64)> {
    let mut ranges = command.keys.iter().filter(|spec| spec.count_at.is_none() && spec.is_numbered());
    let first = ranges.next()?;
    let last = ranges.next_back().unwrap_or(first);
    let end = if last.last < 0 { last.last } else { last.last + last.first as isize };
    Some((first.first as i64, end as i64, first.step as i64))
}

fn describe_keys(spec: &KeySpec) -> OwnedFrame {
    let typed = |kind: &str, spec| tree::map([("type", tree::bulk(kind)), ("spec", spec)]);
    let behind = |word: &str, from| {
        let from = ("startfrom", tree::integer(from));
        typed("keyword", tree::map([("keyword", tree::bulk(word)), from]))
    };
    let begin = match spec.search {
        Some(KeySearch::Keyword(Keyword { word, from, .. })) => behind(word, from as i64),
        Some(KeySearch::Behind { word, from, .. }) => behind(word, from as i64),
        Some(KeySearch::Position(_) | KeySearch::Unnamed(_)) => typed("unknown", tree::map([])),
        None | Some(KeySearch::Unless(_)) => {
            let first = spec.count_at.unwrap_or(spec.first);
            typed("index", tree::map([("index", tree::integer(first as i64))]))
        }
    };
    let step = ("keystep", tree::integer(spec.step as i64));
    let (kind, find) = match (spec.search, spec.count_at) {
        (Some(KeySearch::Behind { part: part @ (Part::Half | Part::All), .. }), _) => {
            let limit = if part == Part::Half { 2 } else { 0 };
            let (last, limit) = (("lastkey", tree::integer(-1)), ("limit", tree::integer(limit)));
            ("range", tree::map([last, step, limit]))
        }
        (Some(KeySearch::Position(_) | KeySearch::Unnamed(_)), _) => ("unknown", tree::map([])),
        (Some(KeySearch::Behind { part: Part::Stated, .. }), _) | (_, Some(_)) => {
            ("keynum", tree::map([("keynumidx", tree::integer(0)), ("firstkey", tree::integer(1)), step]))
        }
        (_, None) => {
            let last = ("lastkey", tree::integer(spec.last as i64));
            ("range", tree::map([last, step, ("limit", tree::integer(0))]))
        }
    };
    let notes = spec.notes.map(|notes| ("notes", tree::bulk(notes)));
    tree::map(notes.into_iter().chain([
        ("flags", tree::set_of_simple(spec.flags.names())),
        ("begin_search", begin),
        ("find_keys", typed(kind, find)),
    ]))
}

const COMMAND_DOCS: Command = Command {
    name: "command|docs",
    summary: "Returns the documentation of some or all commands: purpose, version and arguments.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of commands to look up",
    cost: costs::described::<100, 400>(),
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::string("command-name").optional().multiple()],
    example: &[("COMMAND DOCS nosuch", "[]")],
    run: Run::Server(docs),
    ..SERVER
};

fn docs(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let find = |name| find_full(&context.instance.names, name);
    let document = |command: &'static Command| (command.name, describe(command));
    Ok(reply.tree(&match request.len() {
        2 => tree::map(callable(&context.instance.names).map(document)),
        _ => tree::map(request.from(2).filter_map(find).map(|registered| document(registered.command))),
    }))
}

fn describe(command: &'static Command) -> OwnedFrame {
    let mut facts = vec![
        ("summary", tree::bulk(command.summary)),
        ("since", tree::bulk(command.since)),
        ("group", tree::bulk(command.group.0)),
    ];
    if !command.complexity.is_empty() {
        facts.push(("complexity", tree::bulk(command.complexity)));
    }
    let doc_flags = [("deprecated", command.deprecated.is_some()), ("syscmd", command.is_system)];
    let doc_flags: Vec<&str> =
        doc_flags.into_iter().filter(|(_, applies)| *applies).map(|(name, _)| name).collect();
    if !doc_flags.is_empty() {
        facts.push(("doc_flags", tree::set_of_simple(doc_flags)));
    }
    if let Some(deprecated) = &command.deprecated {
        facts.push(("deprecated_since", tree::bulk(deprecated.since)));
        facts.push(("replaced_by", tree::bulk(deprecated.replaced_by)));
    }
    if !command.arguments.is_empty() {
        facts.push(("arguments", tree::array(command.arguments.iter().map(describe_argument))));
    }
    if !command.subcommands.is_empty() {
        let subcommands = command.subcommands.iter().map(|command| (command.name, describe(command)));
        facts.push(("subcommands", tree::map(subcommands)));
    }
    tree::map(facts)
}

fn describe_argument(argument: &Argument) -> OwnedFrame {
    let name = argument.name.to_ascii_lowercase();
    let mut facts = vec![("name", tree::bulk(&name)), ("type", tree::bulk(argument.kind.name()))];
    facts.extend(argument.shown().map(|text| ("display_text", tree::bulk(text))));
    // What is no key belongs to a specification only if it says so: a pattern of keys.
    if argument.kind == ArgumentKind::Key || argument.key_spec > 0 {
        facts.push(("key_spec_index", tree::integer(argument.key_spec as i64)));
    }
    let texts = [
        ("token", argument.token),
        ("since", argument.since),
        ("deprecated_since", argument.deprecated_since),
    ];
    facts.extend(texts.into_iter().filter_map(|(name, text)| Some((name, tree::bulk(text?)))));
    let flags = [
        ("optional", argument.is_optional),
        ("multiple", argument.is_multiple),
        ("multiple_token", argument.repeats_token),
    ];
    if flags.iter().any(|(_, applies)| *applies) {
        let flags = flags.into_iter().filter(|(_, applies)| *applies).map(|(name, _)| name);
        facts.push(("flags", tree::set_of_simple(flags)));
    }
    if !argument.arguments.is_empty() {
        facts.push(("arguments", tree::array(argument.arguments.iter().map(describe_argument))));
    }
    tree::map(facts)
}

const COMMAND_LIST: Command = Command {
    name: "command|list",
    summary: "Returns the names of all commands, or those that match a filter.",
    since: "7.0.0",
    complexity: "O(N) where N is the total number of Redis commands",
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::one_of(
        "filterby",
        &[
            Argument::string("module-name").token("MODULE"),
            Argument::string("category").token("ACLCAT"),
            Argument::pattern("pattern").token("PATTERN"),
        ],
    )
    .token("FILTERBY")
    .optional()],
    example: &[
        ("COMMAND LIST FILTERBY PATTERN setn*", "[\"setnx\"]"),
        ("COMMAND LIST FILTERBY MODULE json", "[]"),
    ],
    run: Run::Server(list),
    ..SERVER
};

fn list(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let filter = parse_filter(request)?;
    let with_subcommands = callable(&context.instance.names)
        .flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let names: Vec<_> =
        with_subcommands.filter(|command| filter.matches(command)).map(|command| command.name).collect();
    Ok(reply.array_of(names.into_iter(), |name, reply| reply.bulk(name.as_bytes())))
}

fn parse_filter(request: Request<'_>) -> Result<Filter<'_>> {
    let is_filter = |word: &[u8]| {
        request.len() == 5 && is_word(request.at(2), "filterby") && request.at(3).eq_ignore_ascii_case(word)
    };
    match request.len() {
        2 => Ok(Filter::None),
        _ if is_filter(b"module") => Ok(Filter::Module),
        _ if is_filter(b"aclcat") => Ok(Filter::Category(request.at(4))),
        _ if is_filter(b"pattern") => Ok(Filter::Pattern(Pattern::new(request.at(4), true))),
        _ => Err(Error::SYNTAX),
    }
}

/// The filter of COMMAND LIST.
enum Filter<'a> {
    None,
    /// Commands of a module; there are no modules.
    Module,
    /// Commands of an ACL category, written without its `@`.
    Category(&'a [u8]),
    Pattern(Pattern<'a>),
}

impl Filter<'_> {
    fn matches(&self, command: &Command) -> bool {
        match self {
            Filter::None => true,
            Filter::Module => false,
            Filter::Category(category) => command
                .category_names()
                .iter()
                .any(|name| name.as_bytes()[1..].eq_ignore_ascii_case(category)),
            Filter::Pattern(pattern) => pattern.matches(command.name.as_bytes()),
        }
    }
}

const COMMAND_GETKEYS: Command = Command {
    name: "command|getkeys",
    summary: "Returns the keys among the arguments of a command.",
    since: "2.8.13",
    complexity: "O(N) where N is the number of arguments to the command",
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    example: &[("COMMAND GETKEYS SETNX mykey Hello", "[\"mykey\"]")],
    secrets: Secrets::Of(2),
    run: Run::Server(get_keys),
    ..SERVER
};

fn get_keys(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let keys = keys_of(&context.instance.names, request.without_first(2))?;
    Ok(reply.array_of(keys.into_iter(), |(key, _), reply| reply.bulk(key)))
}

const COMMAND_GETKEYSANDFLAGS: Command = Command {
    name: "command|getkeysandflags",
    summary: "Returns the keys among the arguments of a command, and how it uses each.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of arguments to the command",
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    example: &[("COMMAND GETKEYSANDFLAGS SETNX mykey Hello", "[[\"mykey\", [OW, insert]]]")],
    secrets: Secrets::Of(2),
    run: Run::Server(get_keys_and_flags),
    ..SERVER
};

fn get_keys_and_flags(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let keys = keys_of(&context.instance.names, request.without_first(2))?;
    Ok(reply.array_of(keys.into_iter(), |(key, flags), reply| {
        reply.array_of(0..2, |part, reply| match part {
            0 => reply.bulk(key),
            _ => reply.tree(&tree::set_of_simple(flags.names())),
        })
    }))
}

fn keys_of<'a>(names: &NameTable, request: Request<'a>) -> Result<Vec<(&'a [u8], KeyFlags)>> {
    let found = find(names, request.name()).and_then(|found| resolve(found, request).ok());
    let command = found.ok_or(Error::fixed("ERR Invalid command specified"))?.command;
    if command.keys.is_empty() {
        return Err(Error::fixed("ERR The command has no key arguments"));
    }
    if !command.arity().allows(request.len()) {
        return Err(Error::fixed("ERR Invalid number of arguments specified for command"));
    }
    // As in Redis, a place for keys must have some, even where the command itself needs none there.
    let has_none = |spec: &KeySpec| spec.search.is_none() && spec.first >= request.len();
    let is_invalid = command.keys.iter().any(|spec| !spec.is_whole_in(request) || has_none(spec));
    let keys: Vec<_> = command.keys_of(request).collect();
    if (is_invalid || keys.is_empty()) && !command.flags.contains(Flags::NO_MANDATORY_KEYS) {
        return Err(Error::fixed("ERR Invalid arguments specified for command"));
    }
    // A script that announces more keys than there are arguments has none, as in Redis.
    Ok(if is_invalid { Vec::new() } else { keys })
}

const COMMAND_HELP: Command =
    Command { categories: Categories::CONNECTION, ..Command::help("command|help", "5.0.0", || &COMMAND) };
