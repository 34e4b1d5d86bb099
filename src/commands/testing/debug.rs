//! DEBUG: tools for testing clients and servers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::glob;
use crate::instance::NotSaved;
use crate::keyspace::Expiry;
use crate::persistence::Conflicts;
use crate::resp::number::parse_integer;
use crate::resp::{Protocol, Reply, Request, tree};

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::check_enabled;
use crate::commands::execution::replay;
use crate::commands::facts::{Arity, Command, Context, Flags, Group, Result, Run, Scope};
use crate::commands::fingerprint::Fingerprint;
use crate::commands::keys::dumping::payload_of;
use crate::commands::keys::object;

pub(in crate::commands) const COMMANDS: &[Command] = &[DEBUG];

/// The longest time that DEBUG SLEEP stops the server for.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The double that DEBUG PROTOCOL returns.
#[expect(clippy::approx_constant, reason = "it is what Redis answers")]
const SHOWN_DOUBLE: f64 = 3.141;
/// The longest text that DEBUG STRINGMATCH-LEN creates, in bytes.
const TEXT_BYTES_MAX: i64 = 1 << 20;

const DEBUG: Command = Command {
    name: "debug",
    arity: Some(Arity::AtLeast(2)),
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    // LOADAOF loads libraries.
    scope: Scope::EverythingInTurn,
    cost: costs::ARGUMENTS,
    is_system: true,
    group: Group::SERVER,
    summary: "Provides tools for testing clients and servers; off unless `enable-debug-command` allows it.",
    since: "1.0.0",
    complexity: "Depends on subcommand.",
    run: Run::Server(debug),
    ..Command::DEFAULTS
};

fn debug(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let enabled = &context.instance.config.enable_debug_command;
    check_enabled(context, "DEBUG", "enable-debug-command", enabled)?;
    let name = request.at(1);
    match request.len() {
        2 if is_word(name, "help") => Ok(reply.array_of(HELP.iter(), |line, reply| reply.simple(line))),
        3 if is_word(name, "sleep") => sleep(context, request, reply),
        3 if is_word(name, "set-active-expire") => {
            let is_active = parse_integer(request.at(2)).is_some_and(|number| number != 0);
            context.instance.expires_actively.store(is_active, Ordering::Relaxed);
            Ok(reply.ok())
        }
        3 if is_word(name, "object") => tell_object(context, request, reply),
        3 if is_word(name, "set-skip-checksum-validation") => {
            let skips = parse_integer(request.at(2)).is_some_and(|number| number != 0);
            context.instance.keyspace.set_skips_checksums(skips);
            Ok(reply.ok())
        }
        3 if is_word(name, "set-disable-deny-scripts") => match parse_integer(request.at(2)) {
            Some(0) => Ok(reply.ok()),
            _ => Err(Error::fixed(
                "ERR DEBUG SET-DISABLE-DENY-SCRIPTS is not supported: a command that scripts may not call \
                 cannot run while a script has its locks",
            )),
        },
        3 if is_word(name, "quicklist-packed-threshold") => match parse_integer(request.at(2)) {
            Some(0) => Ok(reply.ok()),
            _ => Err(Error::fixed(
                "ERR DEBUG QUICKLIST-PACKED-THRESHOLD is not supported: lists have no nodes of single elements",
            )),
        },
        4 if is_word(name, "stringmatch-len") => {
            let length = parse_integer(request.at(2)).filter(|length| (0..=TEXT_BYTES_MAX).contains(length));
            let text = vec![b'a'; length.ok_or(Error::NOT_AN_INTEGER)? as usize];
            Ok(reply.bool(glob::matches(request.at(3), &text, false)))
        }
        3..=5 if is_word(name, "populate") => populate(context, request, reply),
        2 if is_word(name, "digest") => Ok(reply.simple(&Fingerprint::of_all(context.tx)?.to_text())),
        _ if is_word(name, "digest-value") => {
            let tx = &*context.tx;
            let digests = request.from(2).map(|key| Fingerprint::of_value(tx, key).to_text());
            let digests: Vec<String> = digests.collect();
            Ok(reply.array_of(digests.iter(), |digest, reply| reply.simple(digest)))
        }
        _ if ["assert", "oom", "panic", "segfault"].iter().any(|crash| is_word(name, crash)) => {
            tracing::error!("DEBUG {} aborts the process, as a crash would", name.escape_ascii());
            // Nothing is saved or written any more, and the system may keep a core.
            std::process::abort()
        }
        2 if is_word(name, "change-repl-id") => {
            tracing::warn!("Changing replication IDs after receiving DEBUG change-repl-id");
            context.instance.replication_id.change();
            Ok(reply.ok())
        }
        2 if is_word(name, "config-rewrite-force-all") => {
            crate::commands::admin::config::rewrite_file(context.instance, true)?;
            Ok(reply.ok())
        }
        3 if is_word(name, "pause-cron") => {
            let is_paused = parse_integer(request.at(2)).is_some_and(|number| number != 0);
            context.instance.pauses_cron.store(is_paused, Ordering::Relaxed);
            Ok(reply.ok())
        }
        // No reply is copied in the way that this switches off.
        3 if is_word(name, "reply-copy-avoidance") => Ok(reply.ok()),
        _ if is_word(name, "reload") => reload(context, request, reply),
        2 if is_word(name, "loadaof") => load_aof(context, reply),
        3 if is_word(name, "protocol") => show_type(request, reply),
        3 if is_word(name, "error") => Err(Error::bytes(request.at(2).to_vec())),
        3 if is_word(name, "log") => {
            tracing::warn!("DEBUG LOG: {}", request.at(2).escape_ascii());
            Ok(reply.ok())
        }
        _ => Err(Error::wrong_subcommand(request)),
    }
}

const HELP: &[&str] = &[
    "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ASSERT, OOM, PANIC, SEGFAULT",
    "    Aborts the process at once (SIGABRT), as a crash would.",
    "CHANGE-REPL-ID",
    "    Replaces `master_replid` in INFO with a new random ID.",
    "CONFIG-REWRITE-FORCE-ALL",
    "    Rewrites the configuration file as CONFIG REWRITE does, but with every parameter.",
    "DIGEST",
    "    Returns a digest of all data; Redis returns the same one for the same data.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Returns a digest of the value of each key.",
    "ERROR <string>",
    "    Returns this text as an error.",
    "LOADAOF",
    "    Flushes the append-only file to disk, then replaces all data by loading it.",
    "LOG <message>",
    "    Writes this message to the server log.",
    "OBJECT <key>",
    "    Returns internal details of a value.",
    "PAUSE-CRON <0|1>",
    "    Pauses (1) or resumes (0) periodic work, such as the removal of expired keys.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Creates <count> keys named <prefix>:<number>; the prefix is `key` by default. Skips existing keys.",
    "PROTOCOL <type>",
    "    Returns a sample of a type: string, integer, double, bignum, null, array, set, map, attrib, push,",
    "    verbatim, true, false.",
    "QUICKLIST-PACKED-THRESHOLD <size>",
    "    Not supported, as lists have no nodes of single elements: only 0, the default, is accepted.",
    "RELOAD [option ...]",
    "    Saves the data to a snapshot and loads it again. Options:",
    "    * MERGE: keys from the file replace existing keys.",
    "    * NOFLUSH: keeps the current data; a key or a library that also is in the file is an error without",
    "      MERGE.",
    "    * NOSAVE: loads the existing file without saving first.",
    "SET-ACTIVE-EXPIRE <0|1>",
    "    Turns on (1) or off (0) the removal of expired keys that no command uses.",
    "SET-DISABLE-DENY-SCRIPTS <0|1>",
    "    Not supported, as scripts cannot run the commands that are denied to them: only 0 is accepted.",
    "SET-SKIP-CHECKSUM-VALIDATION <0|1>",
    "    Turns off (1) or on (0) the checks of checksums in snapshots and payloads of RESTORE.",
    "SLEEP <seconds>",
    "    Locks all keys for this time; fractions of a second are allowed.",
    "STRINGMATCH-LEN <length> <pattern>",
    "    Matches the pattern against a string of <length> letters a; returns 1 or 0.",
    "HELP",
    "    Prints this help.",
];

/// Keys and values are named as Redis names them. A value of a given size ends with zeros.
fn populate(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let positive = |argument| {
        let number = parse_integer(argument).and_then(|number| usize::try_from(number).ok());
        number.ok_or(Error::fixed("ERR value is out of range, must be positive"))
    };
    let (tx, prefix) = (&mut *context.tx, request.get(3).unwrap_or(b"key"));
    let count = positive(request.at(2))?;
    let size = request.get(4).map_or(Ok(0), positive)?;
    if size > tx.value_bytes_max() {
        return Err(Error::STRING_TOO_LONG);
    }
    for number in 0..count {
        let key = [prefix, format!(":{number}").as_bytes()].concat();
        let mut value = format!("value:{number}").into_bytes();
        if size > 0 {
            value.resize(size, 0);
        }
        if !tx.is_there(&key) {
            tx.put(&key, &value, Expiry::Never);
        }
    }
    Ok(reply.ok())
}

/// All keys are locked meanwhile: no other client gets at one. What concerns no key is served.
fn sleep(context: &Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let seconds = std::str::from_utf8(request.at(2)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    context.instance.hand_over();
    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default().min(SLEEP_MAX));
    Ok(reply.ok())
}

/// Everything is locked meanwhile: it is one moment for all others.
fn reload(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let (mut saves, mut flushes, mut conflicts) = (true, true, Conflicts::Refused);
    for option in request.from(2) {
        match option {
            _ if is_word(option, "nosave") => saves = false,
            _ if is_word(option, "noflush") => flushes = false,
            _ if is_word(option, "merge") => conflicts = Conflicts::Replaced,
            _ => {
                return Err(Error::fixed(
                    "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.",
                ));
            }
        }
    }
    let instance = context.instance;
    if instance.first_sandbox().is_some() {
        return Err(NO_FILES);
    }
    let mut everything = context.tx.everything_mut()?;
    if saves {
        instance.save_within(&mut everything).map_err(|why| match why {
            NotSaved::InProgress => Error::fixed("ERR Background save already in progress"),
            NotSaved::Busy | NotSaved::Failed => Error::fixed("ERR"),
        })?;
    }
    instance.reload(&mut everything, flushes, conflicts).map_err(|why| {
        tracing::warn!("Error trying to load the RDB dump: {why}");
        Error::fixed("ERR Error trying to load the RDB dump, check server logs.")
    })?;
    tracing::warn!("DB reloaded by DEBUG RELOAD");
    Ok(reply.ok())
}

/// Only the first sandbox of a server has files.
const NO_FILES: Error =
    Error::fixed("ERR A sandbox lives in memory only: database 0 has the files of the server");

fn load_aof(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Result {
    if context.instance.first_sandbox().is_some() {
        return Err(NO_FILES);
    }
    replay::load_again(context.instance, &mut context.tx.everything_mut()?).map_err(|why| {
        tracing::warn!("Error trying to load the AOF files: {why}");
        Error::fixed("ERR Error trying to load the AOF files, check server logs.")
    })?;
    tracing::warn!("Append Only File loaded by DEBUG LOADAOF");
    Ok(reply.ok())
}

fn tell_object(context: &Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let facts = context.tx.facts(request.at(2)).ok_or(Error::NO_SUCH_KEY)?;
    // The size of DUMP's payload, without the type and the footer.
    let serialized = payload_of(facts.value, context.tx.keyspace()).len() - 1 - 10;
    // Redis: 24 bits of seconds, as `lru_clock` of INFO.
    let used_at = context.instance.clock.since_epoch().saturating_sub(facts.idle);
    Ok(reply.simple(&format!(
        "Value at:{:p} refcount:{} encoding:{} serializedlength:{serialized} lru:{} lru_seconds_idle:{}",
        facts.value.content.bytes().map_or(std::ptr::null(), <[u8]>::as_ptr),
        object::REFERENCES,
        object::encoding_name(&facts),
        used_at.as_secs() & 0xff_ffff,
        facts.idle.as_secs(),
    )))
}

fn show_type(request: Request<'_>, reply: Reply<'_>) -> Result {
    let integers = || (0..3).map(tree::integer);
    let frame = match request.at(2) {
        kind if is_word(kind, "string") => tree::bulk("Hello World"),
        kind if is_word(kind, "integer") => tree::integer(12345),
        kind if is_word(kind, "double") => tree::double(SHOWN_DOUBLE),
        kind if is_word(kind, "bignum") => tree::big_number("1234567999999999999999999999999999999"),
        kind if is_word(kind, "null") => return Ok(reply.nil()),
        kind if is_word(kind, "array") => tree::array(integers()),
        kind if is_word(kind, "set") => tree::set_of(integers()),
        kind if is_word(kind, "map") => tree::map_of(integers().zip([false, true, false].map(tree::boolean))),
        kind if is_word(kind, "attrib") => tree::bulk_with_attribute(
            "Some real reply following the attribute",
            "key-popularity",
            tree::array([tree::bulk("key:123"), tree::integer(90)]),
        ),
        kind if is_word(kind, "push") && reply.protocol() == Protocol::Resp2 => {
            return Err(Error::fixed("ERR RESP2 is not supported by this command"));
        }
        kind if is_word(kind, "push") => tree::push([tree::bulk("server-cpu-usage"), tree::integer(42)]),
        kind if is_word(kind, "verbatim") => tree::verbatim("This is a verbatim\nstring"),
        kind if is_word(kind, "true") => tree::boolean(true),
        kind if is_word(kind, "false") => tree::boolean(false),
        _ => {
            return Err(Error::fixed(
                "ERR Wrong protocol type name. Please use one of the following: \
                 string|integer|double|null|array|set|map|attrib|push|verbatim|true|false",
            ));
        }
    };
    Ok(reply.tree(&frame))
}
