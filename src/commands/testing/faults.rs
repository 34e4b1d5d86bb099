//! FAULT: injects faults, to test how clients handle them.

use std::time::Duration;

use crate::faults::{Action, Blow, DELAY_MS_MAX, FAULTS_MAX, Fault, TEXT_BYTES_MAX, TooMany};
use crate::glob::Pattern;
use crate::instance::Instance;
use crate::name_table::NameTable;
use crate::resp::{Reply, Request, tree};
use crate::session::{Session, Wait};
use crate::statistics::Count;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::check_enabled;
use crate::commands::facts::help::reply_help;
use crate::commands::facts::lookup::{Registered, find_full};
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run, Traits};

pub(in crate::commands) const COMMANDS: &[Command] = &[FAULT];

/// What is the same for all of them. Redis has no such commands: the version is Keyfast's own.
const FAULTS: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE).and(Flags::NO_MULTI),
    traits: Traits::NEVER_STRUCK,
    is_system: true,
    group: Group::SERVER,
    since: "1.0.0",
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const FAULT: Command = Command {
    name: "fault",
    summary: "Injects faults, to test clients; off unless `enable-fault-command` allows it.",
    subcommands: &[FAULT_ADD, FAULT_CLEAR, FAULT_DEL, FAULT_HELP, FAULT_LIST],
    complexity: "Depends on subcommand.",
    run: Run::Subcommands,
    flags: Flags::NONE,
    ..FAULTS
};

const FAULT_ADD: Command = Command {
    name: "fault|add",
    summary: "Adds a fault that applies to matching requests; returns its ID.",
    complexity: "O(1)",
    arguments: &[
        Argument::string("command").token("ON").optional(),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::string("name").token("CLIENT").optional(),
        Argument::integer("count").token("TIMES").optional(),
        Argument::one_of(
            "action",
            &[
                Argument::string("text").token("ERROR"),
                Argument::integer("milliseconds").token("DELAY"),
                Argument::word("CLOSE"),
                Argument::word("DROP-REPLY"),
            ],
        ),
    ],
    example: &[
        ("FAULT ADD ON get TIMES 1 ERROR \"TRYAGAIN the first time fails\"", "(integer) 1"),
        ("GET mykey", "(error) TRYAGAIN the first time fails"),
        ("GET mykey", "(nil)"),
        ("FAULT CLEAR", "(integer) 1"),
    ],
    run: Run::Server(add),
    ..FAULTS
};

fn add(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    let planted = context.instance.faults.plant(parse(&context.instance.names, request)?);
    let id = planted.map_err(|TooMany| {
        Error::text(format!("ERR there are {FAULTS_MAX} faults already; FAULT DEL and FAULT CLEAR make room"))
    })?;
    let words: Vec<String> = request.from(2).map(|word| word.escape_ascii().to_string()).collect();
    let by = &context.session.client.address;
    tracing::warn!("Fault {id} was planted by client {by}: {}", words.join(" "));
    Ok(reply.integer(id as i64))
}

/// Reads what is to be planted: filters in any order, each at most once, and then the action.
fn parse(names: &NameTable, request: Request<'_>) -> Result<Fault> {
    let mut options = Options::new(request, 2);
    let (mut on, mut pattern, mut client, mut times_left) = (None, None, None, None);
    let action = loop {
        match options.value()? {
            word if is_word(word, "on") && on.is_none() => on = Some(target(names, options.value()?)?),
            word if is_word(word, "match") && pattern.is_none() => {
                pattern = Some(Pattern::owned(&text(options.value()?)?));
            }
            word if is_word(word, "client") && client.is_none() => client = Some(text(options.value()?)?),
            word if is_word(word, "times") && times_left.is_none() => {
                times_left = Some(within(options.value()?, 1, i64::MAX as u64, "TIMES")?);
            }
            word if is_word(word, "error") => {
                break Action::Error(error_line(text(options.value()?)?).into());
            }
            word if is_word(word, "delay") => {
                let delay_ms = within(options.value()?, 0, DELAY_MS_MAX, "DELAY")?;
                break Action::Delay(Duration::from_millis(delay_ms));
            }
            word if is_word(word, "close") => break Action::Close,
            word if is_word(word, "drop-reply") => break Action::DropReply,
            _ => return Err(Error::SYNTAX),
        }
    };
    match options.next() {
        Some(_) => Err(Error::SYNTAX),
        None => Ok(Fault { id: 0, on, pattern, client, times_left, action, struck: 0 }),
    }
}

/// The command of a name, if a fault may apply to it.
fn target(names: &NameTable, name: &[u8]) -> Result<&'static str> {
    let quoted = &name[..name.len().min(128)];
    let found = find_full(names, name).ok_or_else(|| Error::quoting("ERR unknown command '", quoted, "'"))?;
    if is_never_struck(found.command) {
        return Err(Error::quoting("ERR a fault cannot apply to '", quoted, "'"));
    }
    Ok(found.command.name)
}

fn text(bytes: &[u8]) -> Result<Vec<u8>> {
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(Error::text(format!("ERR a text of a fault may have at most {TEXT_BYTES_MAX} bytes")));
    }
    Ok(bytes.to_vec())
}

fn within(text: &[u8], min: u64, max: u64, what: &str) -> Result<u64> {
    let number = u64::try_from(args::integer(text)?).ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| Error::text(format!("ERR {what} must be between {min} and {max}")))
}

/// The error that is sent. Clients distinguish errors by their first word: an error without a code word gets
/// `ERR`. Line ends become blanks, as in every error that is sent.
fn error_line(mut text: Vec<u8>) -> Vec<u8> {
    if text.first() == Some(&b'-') {
        text.remove(0);
    }
    text.iter_mut().filter(|byte| matches!(byte, b'\r' | b'\n')).for_each(|byte| *byte = b' ');
    let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_code_byte = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    match code.first().is_some_and(u8::is_ascii_uppercase) && code.iter().all(is_code_byte) {
        true => text,
        false => [b"ERR ", text.as_slice()].concat(),
    }
}

const FAULT_LIST: Command = Command {
    name: "fault|list",
    summary: "Lists the faults, oldest first; one that has struck its last time has 0 times left.",
    complexity: "O(N) where N is the number of faults",
    example: &[("FAULT LIST", "[]")],
    run: Run::Server(list),
    ..FAULTS
};

fn list(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    let all = context.instance.faults.all();
    Ok(reply.tree(&tree::array(all.iter().map(|fault| {
        let text = |text: Option<&[u8]>| text.map_or_else(tree::null, tree::bulk);
        tree::map([
            ("id", tree::integer(fault.id as i64)),
            ("on", text(fault.on.map(str::as_bytes))),
            ("match", text(fault.pattern.as_ref().map(Pattern::bytes))),
            ("client", text(fault.client.as_deref())),
            ("times-left", fault.times_left.map_or_else(tree::null, |times| tree::integer(times as i64))),
            ("action", tree::bulk(describe(&fault.action))),
            ("struck", tree::integer(fault.struck as i64)),
        ])
    }))))
}

/// An action as FAULT ADD takes it.
fn describe(action: &Action) -> Vec<u8> {
    match action {
        Action::Error(text) => [b"ERROR ", &text[..]].concat(),
        Action::Delay(duration) => format!("DELAY {}", duration.as_millis()).into_bytes(),
        Action::Close => b"CLOSE".to_vec(),
        Action::DropReply => b"DROP-REPLY".to_vec(),
    }
}

const FAULT_DEL: Command = Command {
    name: "fault|del",
    summary: "Removes a fault by its ID; requests that it has already delayed stay delayed.",
    complexity: "O(N) where N is the number of faults",
    arguments: &[Argument::integer("id")],
    example: &[("FAULT DEL 999999", "(integer) 0")],
    run: Run::Server(del),
    ..FAULTS
};

fn del(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    let id = args::integer(request.at(2))?;
    Ok(reply.bool(u64::try_from(id).is_ok_and(|id| context.instance.faults.remove(id))))
}

const FAULT_CLEAR: Command = Command {
    name: "fault|clear",
    summary: "Removes all faults and ends their delays; returns the number of faults removed.",
    complexity: "O(N) where N is the number of faults and of delayed requests",
    example: &[
        ("FAULT CLEAR", "(integer) 0"),
        ("FAULT ADD ON get CLOSE", "(integer) 2"),
        ("FAULT CLEAR", "(integer) 1"),
    ],
    run: Run::Server(clear),
    ..FAULTS
};

fn clear(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    Ok(reply.count(context.instance.faults.clear()))
}

const FAULT_HELP: Command = Command {
    flags: FAULTS.flags,
    traits: FAULTS.traits,
    is_system: FAULTS.is_system,
    run: Run::Server(help),
    ..Command::help("fault|help", FAULTS.since, || &FAULT)
};

fn help(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    check_gate(context)?;
    Ok(reply_help(&FAULT, reply))
}

/// Whether `enable-fault-command` lets this client in.
fn check_gate(context: &Context<'_, '_>) -> Result<()> {
    let enabled = &context.instance.config.enable_fault_command;
    check_enabled(context, "FAULT", "enable-fault-command", enabled)
}

fn is_never_struck(command: &Command) -> bool {
    command.traits.contains(Traits::NEVER_STRUCK)
}

/// The outcome of a fault for a request.
#[derive(Debug)]
pub(crate) enum Fate {
    /// All: none struck it.
    Spared,
    /// All but its reply.
    Unheard,
    /// An error in place of its reply; it was not executed.
    Failed(Error),
    /// Nothing for now, and nothing at all if its connection is being closed.
    Withheld,
}

/// Lets a fault strike a request that would be executed, or queued, as its client sends it: EXEC and EVAL are
/// struck, what they execute is not.
#[cold]
pub(crate) fn strike(
    instance: &Instance,
    session: &mut Session,
    registered: &Registered,
    request: Request<'_>,
) -> Fate {
    let command = registered.command;
    if is_never_struck(command) {
        return Fate::Spared;
    }
    let keys = command.keys_of(request).map(|(key, _)| key);
    let is_client = |name: &[u8]| session.client.profile.lock().name == name;
    let Some(blow) = instance.faults.strike(command.name, keys, is_client) else { return Fate::Spared };
    instance.statistics.add(Count::Faults, 1);
    match blow {
        Blow::Error(text) => Fate::Failed(Error::bytes(text.to_vec())),
        Blow::DropReply => Fate::Unheard,
        Blow::Close => {
            session.is_closing = true;
            Fate::Withheld
        }
        Blow::Delay(delay) => {
            session.was_delayed = true;
            session.wait = Some(Wait::Delay(delay));
            Fate::Withheld
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_code_word() {
        for (text, expected) in [
            ("LOADING not yet", "LOADING not yet"),
            ("-LOADING not yet", "LOADING not yet"),
            ("READONLY", "READONLY"),
            ("E2_BIG x", "E2_BIG x"),
            ("boom", "ERR boom"),
            ("Not yet", "ERR Not yet"),
            ("42 is wrong", "ERR 42 is wrong"),
            ("", "ERR "),
            (" X", "ERR  X"),
            ("X\r\n+OK\r\n", "X  +OK  "),
        ] {
            let line = error_line(text.as_bytes().to_vec());
            assert_eq!(String::from_utf8(line).unwrap(), expected, "{text:?}");
        }
    }
}
