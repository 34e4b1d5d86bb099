//! Runs admitted requests: [`run`] calls the handler on a transaction over the keys that its command names,
//! and delivers what the command did to clients that follow it.

use std::time::Instant;

use crate::instance::{Doer, Instance};
use crate::keyspace::Transaction;
use crate::resp::reply::write_error;
use crate::resp::{Reply, Request, Sent};
use crate::session::{Replies, Session};
use crate::statistics::commands::Usage;

use super::admission::admit_queued;
use super::blocking;
use super::origin::Origin;
use super::traces::{Measures, charge, error_bytes, show};
use super::tracking;
use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::facts::help::reply_help;
use crate::commands::facts::lookup::Registered;
use crate::commands::facts::{Context, Reach, Result, Run, Scope};

/// Runs an admitted request on a transaction over its keys, and delivers what it did to clients that follow
/// it. What the commands of an EXEC or a script did stays in the session's outbox, which the caller delivers
/// before the locks are free. `script` is the request that runs a script, if the script has called this one.
#[inline]
pub(crate) fn run(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
    script: Option<Request<'_>>,
) -> Result {
    // Such a handler may unlock what it has read before it returns.
    let may_let_go = matches!(command.run, Run::Server(_)) && command.scope == Scope::Keys;
    if may_let_go && session.tracking.is_some() {
        tracking::remember(instance, session, command, request);
    }
    tx.begin_command();
    let sent = handle(command, instance, session, tx, request, reply, script);
    if tx.leaves_anything() {
        deliver_effects(command, instance, session, tx, request, script);
    }
    if !may_let_go && session.tracking.is_some() {
        tracking::remember(instance, session, command, request);
    }
    sent
}

/// Calls the handler of an admitted request. What it did for other clients stays in the transaction.
#[inline(always)]
pub(crate) fn handle(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    reply: Reply<'_>,
    script: Option<Request<'_>>,
) -> Result {
    match command.run {
        Run::Read(handler) => handler(tx, request, reply),
        Run::Write(handler) => handler(tx, request, reply),
        Run::Block(blocking) => {
            blocking::take_or_wait(command, blocking, instance, session, tx, request, reply)
        }
        Run::Session(handler) => handler(session, request, reply),
        Run::Message(handler) => handler(instance, session, request, reply),
        Run::Server(handler) => {
            if script.is_none() {
                // What a script does is not the client's own state.
                session.show(|_| {});
            }
            handler(&mut Context { instance, session, tx }, request, reply)
        }
        Run::Help(command) => Ok(reply_help(command(), reply)),
        Run::Subcommands => Err(Error::wrong_arity(command.name)),
    }
}

/// Runs an admitted request of a command that uses no key, on its own and without a transaction. Returns
/// `None` for any other command; then nothing has happened yet.
#[inline]
pub(crate) fn run_without_keys(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Option<Result> {
    match command.run {
        Run::Session(handler) => Some(handler(session, request, reply)),
        Run::Message(handler) => Some(handler(instance, session, request, reply)),
        _ => None,
    }
}

/// Delivers what a command did, before the locks are free, to clients that follow it.
#[cold]
pub(crate) fn deliver_effects(
    command: &'static Command,
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
    script: Option<Request<'_>>,
) {
    tx.grant_wishes(session.client.id, || session.client.lifeline());
    let is_paused = || instance.clients.pause.paused().is_some();
    // Handlers leave what has expired in place, unless they write the key. In a pause, data do not change.
    if tx.has_seen_expired() && !is_paused() {
        let keys = command.keys_of(request).map(|(key, _)| key);
        match command.run {
            Run::Read(_) => keys.for_each(|key| tx.free_seen(key)),
            Run::Write(_) | Run::Block(_) => keys.for_each(|key| tx.free_seen_key(key)),
            _ => {}
        }
    }
    let is_one_of_several = session.may_not_wait || script.is_some();
    if !is_one_of_several {
        tx.serve_blocked();
    }
    let mut effects = tx.take_effects();
    instance.sift(&mut effects, tx, session, command.locks, script);
    // What was done for clients that waited comes after what EXEC's own commands did.
    if !effects.is_empty() && (is_one_of_several || session.outbox.is_some()) {
        instance.collect(effects, session, command.for_lens(), script.is_some());
    } else if !effects.is_empty() {
        instance.follow(&effects, Doer { session, command: command.for_lens(), request });
        // With appendfsync always, other clients hear of changes when these are durable.
        session.logged.commit(tx);
        instance.notify(effects, Some(session.client.id));
    }
}

/// Runs a request that shares its transaction with others, and writes its reply or its error.
pub(crate) fn call(
    context: &mut Context<'_, '_>,
    registered: &'static Registered,
    request: Request<'_>,
    reply: Reply<'_>,
) -> Sent {
    let Context { instance, session, tx } = context;
    let reply = reply.in_protocol(session.protocol);
    let is_servers = registered.command.reach == Reach::Process;
    let first = is_servers.then(|| instance.first_sandbox()).flatten();
    let refusal = match &first {
        Some(_) if registered.command.scope == Scope::Everything => Some(Error::fixed(
            "ERR In a transaction this command runs in database 0 only: it needs the data of the server",
        )),
        _ => admit_queued(instance, session, registered, request).err(),
    };
    if let Some(error) = refusal {
        instance.statistics.errors.count(error.as_bytes());
        return reply.error(error.as_bytes());
    }
    let started = Instant::now();
    session.began = started;
    tx.select(session.database);
    let answered = reply.attempt_measured(|reply| {
        let instance = first.as_deref().unwrap_or(instance);
        run(registered.command, instance, session, tx, request, reply, None)
    });
    let ended = session.ended.take().unwrap_or_else(Instant::now);
    let reply_bytes = match &answered {
        Ok((_, bytes)) => *bytes,
        Err((error, _)) => error_bytes(error.as_bytes()),
    };
    let measures = Measures { took: ended - started, reply_bytes };
    charge(instance, session, registered, request, Origin::Request, measures);
    if instance.clients.has_monitors() {
        show(instance, session, Origin::Request, registered.command, request);
    }
    answered.map(|(sent, _)| sent).unwrap_or_else(|(error, reply)| {
        instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
        instance.statistics.errors.count(error.as_bytes());
        reply.error(error.as_bytes())
    })
}

/// Completes the reply: writes an error in place of a half written reply, and removes a reply that the client
/// does not want.
#[inline]
pub(crate) fn conclude(session: &mut Session, result: Result<()>, out: &mut Vec<u8>, mark: usize) {
    if let Err(error) = result {
        session.drop_reply();
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
