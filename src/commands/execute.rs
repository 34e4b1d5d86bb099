//! The one door: every request, wherever it comes from, is admitted and run here.
//!
//! [`admit`] judges a request by the facts of its command alone; the engine then takes the locks that the
//! command's keys need; [`run`] calls the handler on the transaction and writes the error, if it is one.

use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::reply::write_error;
use crate::resp::{Reply, Request};
use crate::session::{Replies, Session};

use super::Command;
use super::command::{Context, Flags, Result, Run};
use super::error::Error;
use super::lookup::Registered;

/// Judges whether a request may run now; `found` is the command of its name, if there is one.
///
/// # Errors
///
/// With what is to be answered instead.
#[inline]
pub fn admit(
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
    check_authentication(session, registered.command)?;
    Ok(registered)
}

/// The subcommand that a request names, where its command has any.
///
/// # Errors
///
/// If there is no such subcommand.
#[inline]
pub fn resolve(registered: &'static Registered, request: Request<'_>) -> Result<&'static Registered> {
    match request.get(1) {
        Some(name) if !registered.subcommands.is_empty() => registered
            .subcommand(name)
            .ok_or_else(|| Error::unknown_subcommand(registered.command.name, name)),
        _ => Ok(registered),
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
fn check_authentication(session: &Session, command: &Command) -> Result<()> {
    match session.is_authenticated || command.flags.contains(Flags::NO_AUTH) {
        true => Ok(()),
        false => Err(Error::NOT_AUTHENTICATED),
    }
}

/// Runs an admitted request on a transaction over its keys.
#[inline]
pub fn run(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let reply = Reply::new(out, session.protocol);
    let sent = match command.run {
        Run::Read(handler) => handler(tx, request, reply),
        Run::Write(handler) => handler(tx, request, reply),
        Run::Session(handler) => handler(session, request, reply),
        Run::Server(handler) => {
            session.publish(|_| {});
            handler(&mut Context { instance, session, tx }, request, reply)
        }
        Run::Subcommands => Err(Error::wrong_arity(command.name)),
    };
    sent.map(|_sent| ())
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
