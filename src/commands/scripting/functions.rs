//! Functions: FCALL, FUNCTION.

use std::sync::Arc;

use crate::dump;
use crate::glob::Pattern;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, Sent};
use crate::scripting::functions::{BYTES_MAX, Function, Library, Policy};
use crate::scripting::running::{Called, Current, ScriptKind};
use crate::scripting::{Callable, Invocation};

use super::scripts::{kill, show_script};
use crate::commands::args::{Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::admission::busy;
use crate::commands::execution::bridge::Bridge;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Code, Command, Context, Flags, Group, KeyFlags, KeySpec, Result, Run,
    Scope, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[FCALL, FCALL_RO, FUNCTION];

/// The flags of commands that call a function, as for scripts.
const CALL_FLAGS: Flags =
    Flags::NOSCRIPT.and(Flags::STALE).and(Flags::SKIP_MONITOR).and(Flags::NO_MANDATORY_KEYS);
const CALL_ARGUMENTS: &[Argument] = &[
    Argument::string("function"),
    Argument::integer("numkeys"),
    Argument::new("key", ArgumentKind::Key).optional().multiple(),
    Argument::string("arg").optional().multiple(),
];
/// The flags of commands that change the libraries.
const CHANGE: Flags = Flags::NOSCRIPT.and(Flags::WRITE);
const CHANGE_CATEGORIES: Categories = Categories::SCRIPTING.and(Categories::WRITE);
const TO_ALL_SHARDS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

/// The facts that most commands of this file share.
const SCRIPTING: Command = Command {
    categories: Categories::SCRIPTING,
    group: Group::SCRIPTING,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const FCALL: Command = Command {
    name: "fcall",
    flags: CALL_FLAGS,
    keys: &[KeySpec::counted(2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE))
        .noted("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")],
    scope: Scope::Script,
    code: Code::Function,
    summary: "Runs a library function as one atomic step.",
    since: "7.0.0",
    complexity: "Depends on the function that is executed.",
    arguments: CALL_ARGUMENTS,
    example: &[("FCALL nosuchfunction 1 mykey", "(error) ERR Function not found")],
    may_replicate: true,
    run: Run::Server(fcall),
    ..SCRIPTING
};

fn fcall(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let function = function(context, request)?;
    call(context, &function, request, reply)
}

const FCALL_RO: Command = Command {
    name: "fcall_ro",
    flags: CALL_FLAGS.and(Flags::READONLY),
    keys: &[KeySpec::counted(2, 1, KeyFlags::RO.and(KeyFlags::ACCESS))
        .noted("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")],
    scope: Scope::Script,
    code: Code::Function,
    summary: "Runs a library function that only reads data.",
    since: "7.0.0",
    complexity: "Depends on the function that is executed.",
    arguments: CALL_ARGUMENTS,
    example: &[("FCALL_RO nosuchfunction 1 mykey", "(error) ERR Function not found")],
    run: Run::Server(fcall_ro),
    ..SCRIPTING
};

fn fcall_ro(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let function = function(context, request)?;
    if !function.flags.no_writes {
        // Redis looks at the memory first.
        Bridge::new(context, request, function.flags, false)?;
        key_count(request)?;
        return Err(Error::fixed("ERR Can not execute a script with write flag using *_ro command."));
    }
    call(context, &function, request, reply)
}

fn function(context: &Context<'_, '_>, request: Request<'_>) -> Result<Arc<Function>> {
    show_script(context, request);
    let found = context.instance.scripting.libraries().function(request.at(1));
    found.ok_or(Error::fixed("ERR Function not found"))
}

fn key_count(request: Request<'_>) -> Result<usize> {
    match parse_integer(request.at(2)) {
        Some(_) => super::scripts::key_count(request),
        None => Err(Error::fixed("ERR Bad number of keys provided")),
    }
}

fn call(
    context: &mut Context<'_, '_>,
    function: &Function,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let instance = context.instance;
    let mut bridge = Bridge::new(context, request, function.flags, false)?;
    let keys = key_count(request)?;
    let called = Called {
        name: function.name.as_bytes().to_vec(),
        request: request.from(0).map(<[u8]>::to_vec).collect(),
    };
    let _run = instance.scripting.running.begin_function(called, bridge.started());
    let what = Callable::Function(&function.name);
    let invocation = Invocation { what, request, keys };
    let answered = reply.attempt(|reply| {
        instance.scripting.with(|interpreter| interpreter.run(invocation, &mut bridge, reply))
    });
    bridge.conclude(answered)
}

const FUNCTION: Command = Command {
    name: "function",
    group: Group::SCRIPTING,
    summary: "Manages function libraries.",
    since: "7.0.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        FUNCTION_DELETE,
        FUNCTION_DUMP,
        FUNCTION_FLUSH,
        FUNCTION_HELP,
        FUNCTION_KILL,
        FUNCTION_LIST,
        FUNCTION_LOAD,
        FUNCTION_RESTORE,
        FUNCTION_STATS,
    ],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

/// The library of the examples.
const MYLIB: (&str, &str) = (
    "FUNCTION LOAD REPLACE \"#!lua name=mylib\n redis.register_function('myfunc', function(keys, args) return args[1] end)\"",
    "\"mylib\"",
);

const FUNCTION_LOAD: Command = Command {
    name: "function|load",
    flags: CHANGE.and(Flags::DENYOOM),
    scope: Scope::Script,
    traits: Traits::STAYS,
    categories: CHANGE_CATEGORIES,
    group: Group::SCRIPTING,
    summary: "Loads a library and returns its name, which the first line of its code states.",
    since: "7.0.0",
    complexity: "O(1) (considering compilation time is redundant)",
    cost: costs::ARGUMENTS,
    tips: TO_ALL_SHARDS,
    arguments: &[Argument::word("REPLACE").optional(), Argument::string("function-code")],
    example: &[MYLIB, ("FCALL myfunc 0 hello", "\"hello\"")],
    run: Run::Server(load),
    ..Command::DEFAULTS
};

fn load(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let code = request.at(request.len() - 1);
    let options = request.from(2).take(request.len() - 3);
    let mut replaces = false;
    for option in options {
        if !is_word(option, "replace") {
            return Err(Error::quoting("ERR Unknown option given: ", option, ""));
        }
        replaces = true;
    }
    let name = context.instance.scripting.load_library(code, replaces, context.tx.is_replay());
    let name = name.map_err(Error::bytes)?;
    context.instance.persistence.note_change();
    context.tx.note_request(&[b"FUNCTION", b"LOAD", b"REPLACE", code]);
    Ok(reply.bulk(name.as_bytes()))
}

const FUNCTION_DELETE: Command = Command {
    name: "function|delete",
    flags: CHANGE,
    scope: Scope::Script,
    traits: Traits::STAYS,
    categories: CHANGE_CATEGORIES,
    group: Group::SCRIPTING,
    summary: "Removes a library with all its functions.",
    since: "7.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: TO_ALL_SHARDS,
    arguments: &[Argument::string("library-name")],
    example: &[MYLIB, ("FUNCTION DELETE mylib", "OK"), ("FCALL myfunc 0", "(error) ERR Function not found")],
    run: Run::Server(delete),
    ..Command::DEFAULTS
};

fn delete(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    match context.instance.scripting.delete_library(request.at(2)) {
        true => {
            context.instance.persistence.note_change();
            context.tx.note_request(&[b"FUNCTION", b"DELETE", request.at(2)]);
            Ok(reply.ok())
        }
        false => Err(Error::fixed("ERR Library not found")),
    }
}

const FUNCTION_FLUSH: Command = Command {
    name: "function|flush",
    flags: CHANGE,
    scope: Scope::Script,
    traits: Traits::STAYS,
    categories: CHANGE_CATEGORIES,
    group: Group::SCRIPTING,
    summary: "Removes all libraries.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of functions deleted",
    cost: costs::ARGUMENTS,
    tips: TO_ALL_SHARDS,
    arguments: &[Argument::one_of("flush-type", &Argument::words(["ASYNC", "SYNC"])).optional()],
    example: &[("FUNCTION FLUSH", "OK")],
    run: Run::Server(flush),
    ..Command::DEFAULTS
};

fn flush(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Error::check_longest(request, 3)?;
    if !request.from(2).all(|mode| is_word(mode, "async") || is_word(mode, "sync")) {
        return Err(Error::fixed("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    context.instance.scripting.forget_libraries();
    context.instance.persistence.note_change();
    context.tx.note_request(&[b"FUNCTION", b"FLUSH"]);
    Ok(reply.ok())
}

const FUNCTION_LIST: Command = Command {
    name: "function|list",
    flags: Flags::NOSCRIPT,
    scope: Scope::Script,
    summary: "Lists the libraries and their functions, optionally only names that match a pattern.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of functions",
    tips: &["nondeterministic_output_order"],
    arguments: &[
        Argument::string("library-name-pattern").token("LIBRARYNAME").optional(),
        Argument::word("WITHCODE").optional(),
    ],
    example: &[
        MYLIB,
        (
            "FUNCTION LIST LIBRARYNAME my*",
            "[[\"library_name\", \"mylib\", \"engine\", \"LUA\", \"functions\", [[\"name\", \"myfunc\", \
             \"description\", (nil), \"flags\", []]]]]",
        ),
    ],
    run: Run::Server(list),
    ..SCRIPTING
};

fn list(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (mut pattern, mut with_code) = (None, false);
    let mut options = Options::new(request, 2);
    while let Some(option) = options.next() {
        match option {
            _ if is_word(option, "withcode") && !with_code => with_code = true,
            _ if is_word(option, "libraryname") && pattern.is_none() => {
                let missing = Error::fixed("ERR library name argument was not given");
                pattern = Some(options.next().ok_or(missing)?);
            }
            _ => return Err(Error::quoting("ERR Unknown argument ", option, "")),
        }
    }
    let libraries = context.instance.scripting.libraries().clone();
    let pattern = pattern.map(|pattern| Pattern::new(pattern, true));
    let is_wanted = |library: &&Arc<Library>| {
        pattern.as_ref().is_none_or(|pattern| pattern.matches(library.name.as_bytes()))
    };
    let wanted: Vec<_> = libraries.all().filter(is_wanted).collect();
    Ok(reply.array_of(wanted.into_iter(), |library, reply| describe(library, with_code, reply)))
}

/// A library, with its functions.
fn describe(library: &Library, with_code: bool, reply: Reply<'_>) -> Sent {
    let fields = if with_code { 4 } else { 3 };
    reply.map_of(fields, 0..2 * fields, |part, reply| match part {
        0 => reply.bulk(b"library_name"),
        1 => reply.bulk(library.name.as_bytes()),
        2 => reply.bulk(b"engine"),
        3 => reply.bulk(b"LUA"),
        4 => reply.bulk(b"functions"),
        5 => reply.array_of(library.functions.iter(), |function, reply| describe_function(function, reply)),
        6 => reply.bulk(b"library_code"),
        _ => reply.bulk(&library.code),
    })
}

fn describe_function(function: &Function, reply: Reply<'_>) -> Sent {
    reply.map_of(3, 0..6, |part, reply| match part {
        0 => reply.bulk(b"name"),
        1 => reply.bulk(function.name.as_bytes()),
        2 => reply.bulk(b"description"),
        3 => reply.bulk_or_nil(function.description.as_deref()),
        4 => reply.bulk(b"flags"),
        _ => reply.set_of(function.flags.names().into_iter(), |name, reply| reply.simple(name)),
    })
}

const FUNCTION_DUMP: Command = Command {
    name: "function|dump",
    flags: Flags::NOSCRIPT,
    scope: Scope::Script,
    summary: "Returns all libraries as one payload for FUNCTION RESTORE.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of functions",
    run: Run::Server(dump),
    ..SCRIPTING
};

fn dump(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let libraries = context.instance.scripting.libraries().clone();
    Ok(reply.bulk(&dump::encode_libraries(libraries.all().map(|library| library.code.as_slice()))))
}

const FUNCTION_RESTORE: Command = Command {
    name: "function|restore",
    flags: CHANGE.and(Flags::DENYOOM),
    scope: Scope::Script,
    traits: Traits::STAYS,
    categories: CHANGE_CATEGORIES,
    group: Group::SCRIPTING,
    summary: "Loads the libraries from a payload of FUNCTION DUMP.",
    since: "7.0.0",
    complexity: "O(N) where N is the number of functions on the payload",
    cost: costs::ARGUMENTS,
    tips: TO_ALL_SHARDS,
    arguments: &[
        Argument::string("serialized-value"),
        Argument::one_of("policy", &Argument::words(["FLUSH", "APPEND", "REPLACE"])).optional(),
    ],
    example: &[("FUNCTION RESTORE garbage", "(error) ERR DUMP payload version or checksum are wrong")],
    run: Run::Server(restore),
    ..Command::DEFAULTS
};

fn restore(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Error::check_longest(request, 4)?;
    let policy = match request.get(3) {
        None => Policy::Append,
        Some(word) if is_word(word, "append") => Policy::Append,
        Some(word) if is_word(word, "replace") => Policy::Replace,
        Some(word) if is_word(word, "flush") => Policy::Flush,
        Some(_) => {
            return Err(Error::fixed(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let verifies = !context.instance.keyspace.skips_checksums();
    let codes = dump::Libraries::of(request.at(2), BYTES_MAX, verifies)
        .map_err(|_| Error::fixed("ERR DUMP payload version or checksum are wrong"))?;
    let codes = codes.map(|code| code.map_err(|why| why.as_bytes().to_vec()));
    context.instance.scripting.restore_libraries(codes, policy).map_err(Error::bytes)?;
    context.instance.persistence.note_change();
    // A replay may find libraries that were absent when the command first ran.
    let policy: &[u8] = if policy == Policy::Flush { b"FLUSH" } else { b"REPLACE" };
    context.tx.note_request(&[b"FUNCTION", b"RESTORE", request.at(2), policy]);
    Ok(reply.ok())
}

const FUNCTION_STATS: Command = Command {
    name: "function|stats",
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    summary: "Returns the function that is running, and the number of libraries and functions.",
    since: "7.0.0",
    complexity: "O(1)",
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    run: Run::Server(stats),
    ..SCRIPTING
};

fn stats(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let scripting = &context.instance.scripting;
    let current = scripting.running.current();
    if scripting.running.is_busy()
        && current.as_ref().is_some_and(|current| current.kind == ScriptKind::Script)
    {
        return Err(busy(context.instance));
    }
    let current = current.filter(|current| current.kind == ScriptKind::Function);
    let (libraries, functions) = {
        let known = scripting.libraries();
        (known.all().len(), known.function_count())
    };
    let counts = |reply: Reply<'_>| {
        reply.map_of(2, 0..4, |part, reply| match part {
            0 => reply.bulk(b"libraries_count"),
            1 => reply.count(libraries),
            2 => reply.bulk(b"functions_count"),
            _ => reply.count(functions),
        })
    };
    Ok(reply.map_of(2, 0..4, |part, reply| match (part, &current) {
        (0, _) => reply.bulk(b"running_script"),
        (1, Some(current)) => describe_run(current, reply),
        (1, None) => reply.nil(),
        (2, _) => reply.bulk(b"engines"),
        _ => reply.map_of(1, 0..2, |part, reply| match part {
            0 => reply.bulk(b"LUA"),
            _ => counts(reply),
        }),
    }))
}

fn describe_run(current: &Current, reply: Reply<'_>) -> Sent {
    reply.map_of(3, 0..6, |part, reply| match part {
        0 => reply.bulk(b"name"),
        1 => reply.bulk(&current.called.name),
        2 => reply.bulk(b"command"),
        3 => reply.array_of(current.called.request.iter(), |word, reply| reply.bulk(word)),
        4 => reply.bulk(b"duration_ms"),
        _ => reply.integer(i64::try_from(current.started.elapsed().as_millis()).unwrap_or(i64::MAX)),
    })
}

const FUNCTION_KILL: Command = Command {
    name: "function|kill",
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    summary: "Stops the running function, unless it has already written data.",
    since: "7.0.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    example: &[("FUNCTION KILL", "(error) NOTBUSY No scripts in execution right now.")],
    run: Run::Server(kill_function),
    ..SCRIPTING
};

fn kill_function(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    kill(context, ScriptKind::Function, reply)
}

const FUNCTION_HELP: Command = Command {
    categories: Categories::SCRIPTING,
    group: Group::SCRIPTING,
    ..Command::help("function|help", "7.0.0", || &FUNCTION)
};
