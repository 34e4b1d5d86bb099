//! The one door: every request, wherever it comes from, is admitted and run here.
//!
//! [`admit`] judges a request by the facts of its command alone; the engine then takes the locks that the
//! command's keys need; [`run`] calls the handler on the transaction and writes the error, if it is one.

use std::time::Instant;

use crate::instance::{Doer, Instance};
use crate::keyspace::Transaction;
use crate::resp::reply::write_error;
use crate::resp::{Protocol, Reply, Request, Sent};
use crate::scripting::running::Kind;
use crate::session::{Replies, Session};
use crate::statistics::commands::Usage;

use super::Command;
use super::command::{Context, Flags, Result, Run};
use super::error::Error;
use super::lookup::Registered;
use super::permission::{self, Origin};
use super::traces::{charge, show};
use super::tracking;

/// Judges whether a request may run now; `found` is the command of its name, if there is one.
///
/// # Errors
///
/// With what is to be answered instead.
#[inline]
pub fn admit(
    instance: &Instance,
    session: &mut Session,
    found: Option<&'static Registered>,
    request: Request<'_>,
) -> Result<&'static Registered> {
    if session.replies == Replies::SkipNext {
        session.replies = Replies::SkipThis;
    }
    let Some(registered) = found else { return Err(unknown(session, request)) };
    let registered = resolve(registered, request)?;
    session.last_command = registered.command.name;
    check_arity(registered.command, request)?;
    check_permission(instance, session, registered, request)?;
    Ok(registered)
}

/// The subcommand that a request names, where its command has any.
///
/// # Errors
///
/// If there is no such subcommand.
#[inline]
pub fn resolve(registered: &'static Registered, request: Request<'_>) -> Result<&'static Registered> {
    if registered.subcommands.is_empty() {
        return Ok(registered);
    }
    match request.get(1) {
        None => Ok(registered),
        Some(name) => registered
            .subcommand(name)
            .ok_or_else(|| Error::unknown_subcommand(registered.command.name, name)),
    }
}

/// A name that is none. A web browser that was made to talk to the server sends such names: its connection
/// is closed without a word before what it sends next could be taken for commands.
#[cold]
fn unknown(session: &mut Session, request: Request<'_>) -> Error {
    if [&b"post"[..], b"host:"].iter().any(|name| request.name().eq_ignore_ascii_case(name)) {
        tracing::warn!(
            "Possible SECURITY ATTACK detected. It looks like somebody is sending POST or Host: commands to \
             Keyfast. This is likely due to an attacker attempting to use Cross Protocol Scripting to \
             compromise your Keyfast instance. Connection from {} aborted.",
            session.client.address
        );
        session.replies = Replies::Off;
        session.is_closing = true;
    }
    Error::unknown_command(request)
}

#[inline]
fn check_arity(command: &Command, request: Request<'_>) -> Result<()> {
    if command.arity.allows(request.len()) { Ok(()) } else { Err(Error::wrong_arity(command.name)) }
}

#[inline]
fn check_permission(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<()> {
    match session.is_authenticated && session.user.is_unrestricted() {
        true => Ok(()),
        false => permission::check(instance, session, registered, request, Origin::of(session)),
    }
}

/// A client of RESP2 that listens to channels could not tell a reply from a message.
///
/// # Errors
///
/// If the command is not one of those that it understands then.
pub fn check_listening(session: &Session, command: &Command) -> Result<()> {
    const ALLOWED: &[&str] = &[
        "ping",
        "subscribe",
        "psubscribe",
        "ssubscribe",
        "unsubscribe",
        "punsubscribe",
        "sunsubscribe",
        "quit",
        "reset",
    ];
    if session.subscriptions.is_empty()
        || session.protocol == Protocol::Resp3
        || ALLOWED.contains(&command.name)
    {
        return Ok(());
    }
    Err(Error::text(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
         this context",
        command.name
    )))
}

/// While a script runs for too long, only what may end it, or does nothing, is possible.
///
/// # Errors
///
/// [`Error::BUSY`]
pub fn check_busy(instance: &Instance, command: &Command) -> Result<()> {
    if instance.keyspace.is_busy() && !command.flags.contains(Flags::ALLOW_BUSY) {
        return Err(busy(instance));
    }
    Ok(())
}

/// What clients are told while a script runs for too long.
pub fn busy(instance: &Instance) -> Error {
    match instance.scripting.running.current() {
        Some(current) if current.kind == Kind::Function => Error::BUSY_FUNCTION,
        _ => Error::BUSY,
    }
}

/// What clients are told that want to write where data cannot be saved.
pub fn not_saved(instance: &Instance) -> Error {
    match instance.persistence.aof.has_failed() {
        true => Error::text(format!(
            "MISCONF Errors writing to the AOF file: {}",
            instance.persistence.aof.failure()
        )),
        false => Error::NOT_SAVED,
    }
}

/// Runs an admitted request on a transaction over its keys, and tells those who want to know what came of it.
/// `script` is the request that runs a script, if the script has called this one.
#[inline]
pub fn run(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
    script: Option<Request<'_>>,
) -> Result {
    let sent = match command.run {
        Run::Read(handler) => handler(tx, request, reply),
        Run::Write(handler) => handler(tx, request, reply),
        Run::Session(handler) => handler(session, request, reply),
        Run::Server(handler) => {
            if script.is_none() {
                // What a script does is not the client's own state.
                session.show(|_| {});
            }
            tracking::prepare(session, command, request);
            let sent = handler(&mut Context { instance, session, tx }, request, reply);
            if tx.is_tracked() && !session.may_not_wait {
                // What several commands as one have changed.
                instance.tell_prefixes(Some(session));
            }
            sent
        }
        Run::Subcommands => Err(Error::wrong_arity(command.name)),
    };
    if tx.leaves_anything() {
        settle(command, instance, session, tx, request, script);
    }
    if session.tracking.is_some() {
        tracking::remember(instance, session, command, request);
    }
    sent
}

/// Sees to what a command leaves behind, before the locks are free: those who want to know of it are told.
#[cold]
pub fn settle(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    script: Option<Request<'_>>,
) {
    let is_paused = || instance.clients.pause.paused().is_some();
    if tx.has_seen_expired() && matches!(command.run, Run::Read(_)) && !is_paused() {
        // What only reads leaves it in place. In a pause data stay as they are.
        command.keys_of(request).for_each(|(key, _)| tx.free_expired(key));
    }
    let effects = tx.take_effects();
    if !effects.is_empty() {
        let (request, is_script) = (script.unwrap_or(request), script.is_some());
        instance.tell(effects, Some(Doer { session, command: command.name, request, is_script }));
    }
}

/// Runs a request that shares its transaction with others, and answers its reply or its error.
pub fn call(
    context: &mut Context<'_, '_>,
    registered: &'static Registered,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Sent {
    let Context { instance, session, tx } = context;
    let reply = reply.in_protocol(session.protocol);
    if let Err(error) = check_permission(instance, session, registered, request) {
        instance.statistics.errors.count(error.as_bytes());
        return reply.error(error.as_bytes());
    }
    let started = Instant::now();
    session.began = started;
    tx.select(session.database);
    let answered =
        reply.attempt(|reply| run(registered.command, instance, session, tx, request, reply, None));
    let ended = session.ended.take().unwrap_or_else(Instant::now);
    charge(instance, session, registered, request, ended - started);
    if instance.clients.has_monitors() {
        show(instance, session, Origin::Request, registered.command, request);
    }
    answered.unwrap_or_else(|(error, reply)| {
        instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
        instance.statistics.errors.count(error.as_bytes());
        reply.error(error.as_bytes())
    })
}

/// Makes of what a request has written what its client is to be told: the error in place of anything half
/// written, or nothing at all where no reply is wanted.
#[inline]
pub fn conclude(session: &mut Session, result: Result<()>, out: &mut Vec<u8>, mark: usize) {
    if let Err(error) = result {
        out.truncate(mark);
        write_error(out, error.as_bytes());
    }
    if session.replies != Replies::On {
        out.truncate(mark);
        if session.replies == Replies::SkipThis {
            session.replies = Replies::On;
        }
    }
}
