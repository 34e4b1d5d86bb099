//! FAULT: injects faults, to test how clients handle them.

use std::time::Duration;

use crate::faults::{
    AFTER_MS_MAX, Action, Blow, DELAY_MS_MAX, FAULTS_MAX, Fault, Losing, Sequel, TEXT_BYTES_MAX, TooMany,
};
use crate::glob::Pattern;
use crate::instance::Instance;
use crate::name_table::NameTable;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, tree};
use crate::session::{Session, Wait};
use crate::statistics::Count;
use crate::types::sorted_sets::score;

use crate::commands::args::{self, Options, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::permission::check_enabled;
use crate::commands::facts::help::reply_help;
use crate::commands::facts::lookup::{Registered, find_full};
use crate::commands::facts::{Argument, Command, Context, Flags, Group, Result, Run, Traits};
use crate::commands::locks::losing;

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

/// Errors of Redis that are actions by their code words.
static NAMED: [(&str, Error); 9] = [
    ("READONLY", Error::READ_ONLY),
    ("LOADING", Error::LOADING),
    ("OOM", Error::OUT_OF_MEMORY),
    ("BUSY", Error::BUSY),
    ("NOSCRIPT", Error::NO_SCRIPT),
    ("NOAUTH", Error::NOT_AUTHENTICATED),
    ("MASTERDOWN", Error::MASTER_DOWN),
    ("TRYAGAIN", Error::TRY_AGAIN),
    ("CLUSTERDOWN", Error::CLUSTER_DOWN),
];

/// Their names as arguments.
const NAMES: [Argument; NAMED.len()] = {
    let mut names = [""; NAMED.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = NAMED[at].0;
        at += 1;
    }
    Argument::words(names)
};

/// The slots of a cluster.
const SLOTS: u64 = 1 << 14;

/// What a node of a cluster says of a key that another node has.
const REDIRECTION: &[Argument] = &[Argument::integer("slot"), Argument::string("host:port")];

const FAULT_ADD: Command = Command {
    name: "fault|add",
    summary: "Adds a fault that applies to matching requests; returns its ID.",
    complexity: "O(1)",
    arguments: &[
        Argument::string("command").token("ON").optional(),
        Argument::pattern("pattern").token("MATCH").optional(),
        Argument::string("name").token("CLIENT").optional(),
        Argument::double("probability").token("PROBABILITY").optional(),
        Argument::integer("count").token("TIMES").optional(),
        Argument::one_of(
            "action",
            &[
                Argument::string("text").token("ERROR"),
                Argument::integer("milliseconds").token("DELAY"),
                Argument::word("CLOSE"),
                Argument::word("DROP-REPLY"),
                Argument::integer("bytes").token("CUT"),
                Argument::block(
                    "lose-lock",
                    &[
                        Argument::pure_token("lose-lock", "LOSE-LOCK"),
                        Argument::integer("milliseconds").token("AFTER").optional(),
                    ],
                ),
                Argument::one_of("name", &NAMES),
                Argument::block("moved", REDIRECTION).token("MOVED"),
                Argument::block("ask", REDIRECTION).token("ASK"),
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
    let fault = parse(&context.instance.names, request)?;
    if matches!(fault.action, Action::LoseLock(_)) && context.instance.remote.get().is_some() {
        return Err(Error::fixed("ERR LOSE-LOCK ends locks in memory, and this server has a store"));
    }
    let planted = context.instance.faults.plant(fault);
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
    let (mut on, mut pattern, mut client) = (None, None, None);
    let (mut probability, mut times_left) = (None, None);
    let action = loop {
        match options.value()? {
            word if is_word(word, "on") && on.is_none() => on = Some(target(names, options.value()?)?),
            word if is_word(word, "match") && pattern.is_none() => {
                pattern = Some(Pattern::owned(&text(options.value()?)?));
            }
            word if is_word(word, "client") && client.is_none() => client = Some(text(options.value()?)?),
            word if is_word(word, "probability") && probability.is_none() => {
                probability = Some(likelihood(options.value()?)?);
            }
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
            word if is_word(word, "cut") => {
                break Action::Cut(within(options.value()?, 0, i64::MAX as u64, "CUT")? as usize);
            }
            word if is_word(word, "lose-lock") => break Action::LoseLock(read_after(&mut options)?),
            word if is_word(word, "moved") => break redirection("MOVED", &mut options)?,
            word if is_word(word, "ask") => break redirection("ASK", &mut options)?,
            word => {
                let named = NAMED.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
                let (_, error) = named.ok_or(Error::SYNTAX)?;
                break Action::Error(error.as_bytes().into());
            }
        }
    };
    match options.next() {
        Some(_) => Err(Error::SYNTAX),
        None => Ok(Fault { id: 0, on, pattern, client, probability, times_left, action, struck: 0 }),
    }
}

/// How likely a request is struck: above 0, since such a fault would do nothing.
fn likelihood(text: &[u8]) -> Result<f64> {
    let number = score::parse(text).ok_or(Error::NOT_A_FLOAT)?;
    let is_chance = number > 0.0 && number <= 1.0;
    is_chance.then_some(number).ok_or(Error::fixed("ERR PROBABILITY must be above 0 and at most 1"))
}

/// After which time a lock is lost: at once, if it is not said.
fn read_after(options: &mut Options<'_>) -> Result<u64> {
    match options.next() {
        None => Ok(0),
        Some(word) if is_word(word, "after") => within(options.value()?, 0, AFTER_MS_MAX, "AFTER"),
        Some(_) => Err(Error::SYNTAX),
    }
}

/// The error with which a node of a cluster sends clients to another node. As in Redis, the host may be
/// missing: then it is the same one.
fn redirection(code: &str, options: &mut Options<'_>) -> Result<Action> {
    let slot = within(options.value()?, 0, SLOTS - 1, "the slot")?;
    let address = text(options.value()?)?;
    let colon = address.iter().rposition(|byte| *byte == b':');
    let port = colon.and_then(|at| parse_integer(&address[at + 1..]));
    let is_port = port.is_some_and(|port| (1..=i64::from(u16::MAX)).contains(&port));
    if !is_port || !address.iter().all(u8::is_ascii_graphic) {
        return Err(Error::text(format!("ERR {code} takes a slot and the address of a node: host:port")));
    }
    Ok(Action::Error([format!("{code} {slot} ").as_bytes(), &address].concat().into()))
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
            ("probability", fault.probability.map_or_else(tree::null, tree::double)),
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
        Action::Cut(bytes) => format!("CUT {bytes}").into_bytes(),
        Action::LoseLock(after_ms) => format!("LOSE-LOCK AFTER {after_ms}").into_bytes(),
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
    /// It is executed, and then this happens.
    Followed(Sequel),
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
    let Some(blow) = instance.faults.strike(command.name, keys.clone(), is_client) else {
        return Fate::Spared;
    };
    if !matches!(blow, Blow::LoseLock { .. }) {
        instance.statistics.add(Count::Faults, 1);
    }
    match blow {
        Blow::Error(text) => Fate::Failed(Error::bytes(text.to_vec())),
        Blow::Sequel(sequel) => Fate::Followed(sequel),
        Blow::LoseLock { fault, after_ms, pattern } => {
            let database = session.database;
            let is_meant = |key: &&[u8]| pattern.as_ref().is_none_or(|pattern| pattern.matches(key));
            let before = losing::before(instance, database, keys.filter(is_meant), request);
            Fate::Followed(Sequel::LoseLock(Box::new(Losing { fault, after_ms, database, before })))
        }
        Blow::Close => {
            close(session);
            Fate::Withheld
        }
        Blow::Delay(delay) => {
            session.was_delayed = true;
            session.wait = Some(Wait::Delay(delay));
            Fate::Withheld
        }
    }
}

/// Does what a fault does after a request, whose reply begins here: now, or once the reply is complete, if
/// the client waits for it. The request is not known any more if it was a long one: none of these takes a
/// lock.
#[cold]
pub(crate) fn follow_up(
    instance: &Instance,
    session: &mut Session,
    request: Option<Request<'_>>,
    sequel: Sequel,
    (out, reply): (&mut Vec<u8>, usize),
) {
    if sequel == Sequel::DropReply {
        session.drop_reply();
        out.truncate(reply);
    }
    if session.wait.is_some_and(Wait::is_for_reply) {
        session.sequel = Some(sequel);
        return;
    }
    match sequel {
        Sequel::DropReply => {}
        Sequel::Cut(bytes) => {
            out.truncate(reply.saturating_add(bytes));
            close(session);
        }
        Sequel::LoseLock(losing) => {
            if request.is_some_and(|request| losing::after(instance, &losing, request)) {
                instance.statistics.add(Count::Faults, 1);
                // One that is lost at once is lost before the client's next request.
                losing::lose_due(instance);
            }
        }
    }
}

/// Ends the connection once what was written has arrived.
fn close(session: &mut Session) {
    (session.is_closing, session.lingers) = (true, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_error_is_its_code_word() {
        for (name, error) in &NAMED {
            assert_eq!(error.as_bytes().split(|byte| *byte == b' ').next(), Some(name.as_bytes()));
        }
    }

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
