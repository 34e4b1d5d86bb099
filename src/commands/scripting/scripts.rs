//! Scripts: EVAL, EVALSHA, SCRIPT.

use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request};
use crate::scripting::running::{ScriptKind, Unkilled};
use crate::scripting::{Callable, Digest, Interpreter, Invocation, Known};

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::admission::busy;
use crate::commands::execution::bridge::Bridge;
use crate::commands::execution::intent::flags_of;
use crate::commands::execution::origin::Origin;
use crate::commands::execution::traces::show_always;
use crate::commands::facts::lookup::find;
use crate::commands::facts::{
    Argument, ArgumentKind, Categories, Code, Command, Context, Flags, Group, KeyFlags, KeySpec, Result, Run,
    Scope, Traits,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[EVAL, EVALSHA, EVALSHA_RO, EVAL_RO, SCRIPT];

/// The keys of a script.
const KEYS: KeySpec = KeySpec::counted(2, 1, KeyFlags::RW.and(KeyFlags::ACCESS).and(KeyFlags::UPDATE));
/// The keys of a command that only reads.
const READ_KEYS: KeySpec = KeySpec::counted(2, 1, KeyFlags::RO.and(KeyFlags::ACCESS));
/// The number of keys, behind a script or its name.
const NUMKEYS: Argument = Argument::integer("numkeys");
const SCRIPT_KEYS: Argument = Argument::new("key", ArgumentKind::Key).optional().multiple();
const ARGS: Argument = Argument::string("arg").optional().multiple();
const FLAGS: Flags = Flags::NOSCRIPT.and(Flags::STALE).and(Flags::SKIP_MONITOR).and(Flags::NO_MANDATORY_KEYS);

/// The facts that most commands of this file share.
const SCRIPTING: Command = Command {
    categories: Categories::SCRIPTING,
    group: Group::SCRIPTING,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const EVAL: Command = Command {
    name: "eval",
    flags: FLAGS,
    keys: &[KEYS.noted("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")],
    scope: Scope::Script,
    code: Code::Text,
    summary: "Runs a Lua script as one atomic step.",
    since: "2.6.0",
    complexity: "Depends on the script that is executed.",
    arguments: &[Argument::string("script"), NUMKEYS, SCRIPT_KEYS, ARGS],
    example: &[
        ("EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 mykey Hello", "OK"),
        ("GET mykey", "\"Hello\""),
    ],
    may_replicate: true,
    run: Run::Server(|context, request, reply| run_text(context, request, false, reply)),
    ..SCRIPTING
};

const EVAL_RO: Command = Command {
    name: "eval_ro",
    flags: FLAGS.and(Flags::READONLY),
    keys: &[READ_KEYS.noted("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")],
    scope: Scope::Script,
    code: Code::Text,
    summary: "Runs a Lua script that only reads data.",
    since: "7.0.0",
    complexity: "Depends on the script that is executed.",
    arguments: &[Argument::string("script"), NUMKEYS, SCRIPT_KEYS, ARGS],
    example: &[("EVAL_RO \"return redis.call('get', KEYS[1])\" 1 mykey", "(nil)")],
    run: Run::Server(|context, request, reply| run_text(context, request, true, reply)),
    ..SCRIPTING
};

const EVALSHA: Command = Command {
    name: "evalsha",
    keys: &[KEYS],
    code: Code::Digest,
    summary: "Runs a cached Lua script, given its SHA-1.",
    arguments: &[Argument::string("sha1"), NUMKEYS, SCRIPT_KEYS, ARGS],
    example: &[
        ("SCRIPT LOAD \"return 1\"", "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\""),
        ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "(integer) 1"),
    ],
    run: Run::Server(|context, request, reply| run_known(context, request, false, reply)),
    ..EVAL
};

const EVALSHA_RO: Command = Command {
    name: "evalsha_ro",
    keys: &[READ_KEYS],
    code: Code::Digest,
    summary: "Runs a cached Lua script that only reads data, given its SHA-1.",
    arguments: &[Argument::string("sha1"), NUMKEYS, SCRIPT_KEYS, ARGS],
    example: &[(
        "EVALSHA_RO ffffffffffffffffffffffffffffffffffffffff 0",
        "(error) NOSCRIPT No matching script. Please use EVAL.",
    )],
    run: Run::Server(|context, request, reply| run_known(context, request, true, reply)),
    ..EVAL_RO
};

fn run_text(
    context: &mut Context<'_, '_>,
    request: Request<'_>,
    is_read_only: bool,
    reply: Reply<'_>,
) -> Result {
    let instance = context.instance;
    show_script(context, request);
    let (text, keys) = (request.at(1), key_count(request)?);
    instance.scripting.with(|interpreter| {
        // Compiling is part of the run: it takes time, too, and SCRIPT KILL may come before the script has
        // begun. With a run of its own for each of the two, that kill would end with the first one.
        let _run = instance.scripting.running.begin_script(context.session.began);
        let known = match interpreter.script_of(text) {
            Some(known) => known,
            None => define(interpreter, text, false)?,
        };
        run_script(context, interpreter, known, keys, is_read_only, request, reply)
    })
}

fn run_known(
    context: &mut Context<'_, '_>,
    request: Request<'_>,
    is_read_only: bool,
    reply: Reply<'_>,
) -> Result {
    let instance = context.instance;
    show_script(context, request);
    let digest = Digest::parse(request.at(1)).ok_or(Error::NO_SCRIPT)?;
    let keys = key_count(request)?;
    instance.scripting.with(|interpreter| {
        let known = interpreter.script(&digest).ok_or(Error::NO_SCRIPT)?;
        let _run = instance.scripting.running.begin_script(context.session.began);
        run_script(context, interpreter, known, keys, is_read_only, request, reply)
    })
}

/// How many of the arguments are keys.
pub(super) fn key_count(request: Request<'_>) -> Result<usize> {
    let told = parse_integer(request.at(2)).ok_or(Error::NOT_AN_INTEGER)?;
    let keys = usize::try_from(told).map_err(|_| Error::fixed("ERR Number of keys can't be negative"))?;
    if keys > request.len() - 3 {
        return Err(Error::fixed("ERR Number of keys can't be greater than number of args"));
    }
    Ok(keys)
}

/// Compiles a script and makes it known to the interpreter.
fn define(interpreter: &mut Interpreter, text: &[u8], is_kept: bool) -> Result<Known> {
    let (flags, code) = flags_of(text)?;
    interpreter.define(text, code, flags, is_kept).map_err(Error::bytes)
}

/// Runs a script that the interpreter knows. The caller has begun the run.
fn run_script(
    context: &mut Context<'_, '_>,
    interpreter: &mut Interpreter,
    known: Known,
    keys: usize,
    is_read_only: bool,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Result {
    let mut bridge = Bridge::new(context, request, known.flags, is_read_only)?;
    let what = Callable::Script(&known);
    let invocation = Invocation { what, request, keys };
    let answered = reply.attempt(|reply| interpreter.run(invocation, &mut bridge, reply));
    bridge.conclude(answered)
}

/// Sends a script to MONITOR clients before the commands that it calls.
pub(super) fn show_script(context: &Context<'_, '_>, request: Request<'_>) {
    if context.instance.clients.has_monitors()
        && let Some(registered) = find(&context.instance.names, request.name())
    {
        show_always(
            context.instance,
            context.session,
            Origin::of(context.session),
            registered.command,
            request,
        );
    }
}

const SCRIPT: Command = Command {
    name: "script",
    group: Group::SCRIPTING,
    summary: "Manages the cache of Lua scripts.",
    since: "2.6.0",
    complexity: "Depends on subcommand.",
    cost: costs::ARGUMENTS,
    subcommands: &[
        SCRIPT_DEBUG,
        SCRIPT_EXISTS,
        SCRIPT_FLUSH,
        SCRIPT_HELP,
        SCRIPT_KILL,
        SCRIPT_LOAD,
        SCRIPT_SHOW,
    ],
    run: Run::Subcommands,
    ..Command::DEFAULTS
};

const SCRIPT_LOAD: Command = Command {
    name: "script|load",
    flags: Flags::NOSCRIPT.and(Flags::STALE),
    scope: Scope::Script,
    traits: Traits::LOGGED,
    summary: "Caches a script without running it, and returns its SHA-1.",
    since: "2.6.0",
    complexity: "O(N) with N being the length in bytes of the script body.",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("script")],
    example: &[("SCRIPT LOAD \"return 1\"", "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\"")],
    run: Run::Server(load),
    ..SCRIPTING
};

fn load(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let known = context.instance.scripting.with(|interpreter| define(interpreter, request.at(2), true))?;
    Ok(reply.bulk(known.digest.as_bytes()))
}

const SCRIPT_EXISTS: Command = Command {
    name: "script|exists",
    flags: Flags::NOSCRIPT,
    scope: Scope::Script,
    summary: "Returns, for each SHA-1, whether its script is cached.",
    since: "2.6.0",
    complexity: "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).",
    tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
    arguments: &[Argument::string("sha1").multiple()],
    example: &[("SCRIPT EXISTS ffffffffffffffffffffffffffffffffffffffff", "[(integer) 0]")],
    run: Run::Server(exists),
    ..SCRIPTING
};

fn exists(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.scripting.with(|interpreter| {
        Ok(reply.array_of(request.from(2), |digest, reply| {
            reply.bool(Digest::parse(digest).is_some_and(|digest| interpreter.script(&digest).is_some()))
        }))
    })
}

const SCRIPT_SHOW: Command = Command {
    name: "script|show",
    flags: Flags::NOSCRIPT.and(Flags::STALE),
    scope: Scope::Script,
    summary: "Returns the text of a cached script, given its SHA-1.",
    since: "8.0.0",
    complexity: "O(1).",
    arguments: &[Argument::string("sha1")],
    example: &[
        ("SCRIPT LOAD \"return 1\"", "\"e0e1f9fabfc9d4800c877a703b823ac0578ff8db\""),
        ("SCRIPT SHOW e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "\"return 1\""),
    ],
    run: Run::Server(show_text),
    ..SCRIPTING
};

fn show_text(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    // Unlike EVALSHA's, this error does not advise EVAL.
    let unknown = || Error::fixed("NOSCRIPT No matching script.");
    let digest = Digest::parse(request.at(2)).ok_or_else(unknown)?;
    context.instance.scripting.with(|interpreter| {
        let text = interpreter.text(&digest).ok_or_else(unknown)?;
        Ok(reply.bulk(text))
    })
}

const SCRIPT_FLUSH: Command = Command {
    name: "script|flush",
    flags: Flags::NOSCRIPT,
    scope: Scope::Script,
    traits: Traits::LOGGED,
    summary: "Removes all scripts from the cache.",
    since: "2.6.0",
    complexity: "O(N) with N being the number of scripts in cache",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of("flush-type", &Argument::words(["ASYNC", "SYNC"]))
        .since("6.2.0")
        .optional()],
    example: &[("SCRIPT FLUSH", "OK")],
    run: Run::Server(flush),
    ..SCRIPTING
};

fn flush(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let is_known = request.from(2).all(|mode| is_word(mode, "async") || is_word(mode, "sync"));
    if request.len() > 3 || !is_known {
        return Err(Error::fixed("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    context.instance.scripting.with(Interpreter::forget_scripts);
    Ok(reply.ok())
}

const SCRIPT_KILL: Command = Command {
    name: "script|kill",
    flags: Flags::NOSCRIPT.and(Flags::ALLOW_BUSY),
    summary: "Stops the running script, unless it has already written data.",
    since: "2.6.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
    example: &[("SCRIPT KILL", "(error) NOTBUSY No scripts in execution right now.")],
    run: Run::Server(kill_script),
    ..SCRIPTING
};

fn kill_script(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    kill(context, ScriptKind::Script, reply)
}

/// Kills the running script or function, if it is of this kind.
pub(super) fn kill(context: &Context<'_, '_>, kind: ScriptKind, reply: Reply<'_>) -> Result {
    match context.instance.scripting.running.kill(kind) {
        Ok(()) => Ok(reply.ok()),
        Err(Unkilled::NotRunning) => Err(Error::fixed("NOTBUSY No scripts in execution right now.")),
        Err(Unkilled::HasWritten) => Err(Error::fixed(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
             wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        )),
        Err(Unkilled::OtherKind) => Err(busy(context.instance)),
    }
}

const SCRIPT_DEBUG: Command = Command {
    name: "script|debug",
    flags: Flags::NOSCRIPT,
    summary: "Turns the debugger of scripts off, with NO. There is none.",
    since: "3.2.0",
    complexity: "O(1)",
    arguments: &[Argument::one_of("mode", &Argument::words(["YES", "SYNC", "NO"]))],
    example: &[("SCRIPT DEBUG NO", "OK")],
    run: Run::Server(debug),
    ..SCRIPTING
};

fn debug(_: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let mode = request.at(2);
    if is_word(mode, "no") {
        return Ok(reply.ok());
    }
    if is_word(mode, "yes") || is_word(mode, "sync") {
        // A tool that got OK would run the script without stopping in it.
        return Err(Error::fixed(
            "ERR There is no debugger of scripts: a script would run for real, at once",
        ));
    }
    Err(Error::fixed("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

const SCRIPT_HELP: Command = Command {
    categories: Categories::SCRIPTING,
    group: Group::SCRIPTING,
    ..Command::help("script|help", "5.0.0", || &SCRIPT)
};

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::clients::Address;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::{Hooks, Instance};
    use crate::resp::{OwnedRequest, Protocol};
    use crate::scripting::running::Running;
    use crate::session::Session;

    thread_local! {
        static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
        static KILLED: Cell<Option<std::result::Result<(), Unkilled>>> = const { Cell::new(None) };
    }

    /// Kills the script of this thread, once, as another client does when the script is declared to be slow.
    fn kill_when_slow() {
        if let Some(running) = RUNNING.take() {
            KILLED.set(Some(running.kill(ScriptKind::Script)));
        }
    }

    /// The comment takes one and a half times the work that lies between two ticks. So the only tick within
    /// the compiling is the one that declares the script to be slow, and the next one is the script's.
    #[test]
    fn a_kill_while_a_script_is_compiled_ends_the_script() {
        let hooks = Hooks { hand_over: kill_when_slow, ..Hooks::default() };
        let instance = Instance::new(Config::new(), 1, known(&[]), hooks);
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        let mut session = Session::new(registration.client.clone(), &instance.users);
        RUNNING.set(Some(instance.scripting.running.clone()));
        instance.scripting.running.set_threshold_ms(1);
        session.began = Instant::now();
        // The first tick finds the threshold exceeded, however fast the machine is.
        thread::sleep(Duration::from_millis(2));

        let text = format!("--{}\nfor i = 1, 1000000 do end return 1", "x".repeat(150_000));
        let mut request = OwnedRequest::default();
        assert!([b"EVAL", text.as_bytes(), b"0"].iter().all(|argument| request.push(argument)));
        let request = request.request().expect("a request");
        let mut tx = instance.keyspace.begin_all(0).expect("nothing is in its way");
        let mut context = Context { instance: &instance, session: &mut session, tx: &mut tx };
        let mut out = Vec::new();
        let error =
            run_text(&mut context, request, false, Reply::new(&mut out, Protocol::Resp2)).map(|_| ()).err();

        assert_eq!(KILLED.get(), Some(Ok(())));
        let text = error.map(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let text = text.expect("the script is killed");
        assert!(text.starts_with("ERR Script killed by user with SCRIPT KILL... script: "), "{text}");
    }
}
