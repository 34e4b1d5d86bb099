//! Saves the data to disk (SAVE, BGSAVE, BGREWRITEAOF), also a last time at the end (SHUTDOWN).

use std::sync::Arc;

use crate::clients::Waiting;
use crate::instance::{NotSaved, Saving, ShutdownRequest};
use crate::persistence::aof::Asked;
use crate::resp::{Reply, Request};
use crate::session::Wait;

use crate::commands::args::is_word;
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::execution::admission::busy;
use crate::commands::facts::{
    Argument, Categories, Command, Context, Flags, Group, Reach, Result, Run, Scope,
};

pub(in crate::commands) const COMMANDS: &[Command] = &[BGREWRITEAOF, BGSAVE, LASTSAVE, SAVE, SHUTDOWN];

const IN_PROGRESS: Error = Error::fixed("ERR Background save already in progress");

const SAVE: Command = Command {
    name: "save",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING).and(Flags::NO_MULTI),
    group: Group::SERVER,
    summary: "Saves the data to a snapshot on disk. The caller waits; other clients do not.",
    since: "1.0.0",
    complexity: "O(N) where N is the total number of keys in all databases",
    cost: costs::ARGUMENTS,
    reach: Reach::Process,
    run: Run::Server(save),
    ..Command::DEFAULTS
};

fn save(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let instance = context.instance;
    if instance.persistence.is_saving() {
        return Err(IN_PROGRESS);
    }
    instance.hand_over();
    match instance.save() {
        Ok(()) => Ok(reply.ok()),
        Err(NotSaved::Busy) => Err(busy(instance)),
        Err(NotSaved::InProgress) => Err(IN_PROGRESS),
        Err(NotSaved::Failed) => Err(Error::fixed("ERR")),
    }
}

const BGSAVE: Command = Command {
    name: "bgsave",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING),
    scope: Scope::Everything,
    group: Group::SERVER,
    summary: "Saves the data, as of now, to a snapshot on disk in the background.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[Argument::word("SCHEDULE").since("3.2.2").optional()],
    example: &[("BGSAVE LATER", "(error) ERR syntax error")],
    reach: Reach::Process,
    run: Run::Server(bgsave),
    ..Command::DEFAULTS
};

fn bgsave(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Context { instance, session, tx } = context;
    match (request.get(1), request.len()) {
        (None, _) => {}
        (Some(option), 2) if is_word(option, "schedule") => {}
        _ => return Err(Error::SYNTAX),
    }
    let is_scheduled = request.len() == 2;
    if instance.persistence.is_rewriting() && !is_scheduled {
        return Err(Error::fixed(
            "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
             order to schedule a BGSAVE whenever possible.",
        ));
    }
    // One of several commands that are as one: the state between two of them is none to be saved.
    let waits = instance.persistence.is_rewriting();
    if waits || session.may_not_wait && !instance.persistence.is_saving() {
        instance.persistence.schedule();
        return Ok(reply.simple("Background saving scheduled"));
    }
    let job = instance.begin_save(&mut tx.everything_mut()?, true).ok_or(IN_PROGRESS)?;
    instance.persistence.hand_over(job);
    Ok(reply.simple("Background saving started"))
}

const BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::NO_ASYNC_LOADING),
    group: Group::SERVER,
    summary: "Compacts the append-only file in the background.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    reach: Reach::Process,
    run: Run::Server(bgrewriteaof),
    ..Command::DEFAULTS
};

fn bgrewriteaof(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let asked = context.instance.ask_rewrite(context.session.may_not_wait).map_err(|why| {
        tracing::warn!("{why}");
        Error::fixed(
            "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
        )
    })?;
    match asked {
        Asked::Begins => Ok(reply.simple("Background append only file rewriting started")),
        Asked::Scheduled => Ok(reply.simple("Background append only file rewriting scheduled")),
        Asked::InProgress => {
            Err(Error::fixed("ERR Background append only file rewriting already in progress"))
        }
    }
}

const LASTSAVE: Command = Command {
    name: "lastsave",
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    categories: Categories::ADMIN.and(Categories::DANGEROUS),
    group: Group::SERVER,
    summary: "Returns the Unix time of the last successful snapshot, or of the start of the server.",
    since: "1.0.0",
    complexity: "O(1)",
    cost: costs::ARGUMENTS,
    tips: &["nondeterministic_output"],
    reach: Reach::Process,
    run: Run::Server(lastsave),
    ..Command::DEFAULTS
};

fn lastsave(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    Ok(reply.integer(context.instance.persistence.last_save_s() as i64))
}

const SHUTDOWN: Command = Command {
    name: "shutdown",
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::ALLOW_BUSY)
        .and(Flags::NO_MULTI),
    group: Group::SERVER,
    summary: "Saves the data if configured or asked to, and stops the server.",
    since: "1.0.0",
    complexity: "O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)",
    cost: costs::ARGUMENTS,
    arguments: &[
        Argument::one_of("save-selector", &Argument::words(["NOSAVE", "SAVE"])).optional(),
        Argument::word("NOW").since("7.0.0").optional(),
        Argument::word("FORCE").since("7.0.0").optional(),
        Argument::word("ABORT").since("7.0.0").optional(),
    ],
    example: &[("SHUTDOWN ABORT", "(error) ERR No shutdown in progress.")],
    reach: Reach::Process,
    run: Run::Server(shutdown),
    ..Command::DEFAULTS
};

fn shutdown(context: &mut Context<'_, '_>, request: Request<'_>, _: Reply<'_>) -> Result {
    let (mut saves, mut does_not_save, mut is_forced, mut aborts) = (false, false, false, false);
    for option in request.from(1) {
        match option {
            _ if is_word(option, "save") => saves = true,
            _ if is_word(option, "nosave") => does_not_save = true,
            // There are no replicas to wait for.
            _ if is_word(option, "now") => {}
            _ if is_word(option, "force") => is_forced = true,
            _ if is_word(option, "abort") => aborts = true,
            _ => return Err(Error::SYNTAX),
        }
    }
    if aborts && request.len() > 2 || saves && does_not_save {
        return Err(Error::SYNTAX);
    }
    if aborts {
        return Err(Error::fixed("ERR No shutdown in progress."));
    }
    let Context { instance, session, .. } = context;
    if !does_not_save && instance.keyspace.is_busy() {
        return Err(busy(instance));
    }
    let saving = match (saves, does_not_save) {
        (true, _) => Saving::Yes,
        (_, true) => Saving::No,
        _ => Saving::IfConfigured,
    };
    // The client gets a reply only if the server goes on.
    session.client.set_waiting(Waiting::Yes);
    session.wait = Some(Wait::ForEver);
    instance.shutdown.ask(ShutdownRequest { saving, is_forced, client: Some(Arc::clone(&session.client)) });
    Err(Error::fixed("ERR Errors trying to SHUTDOWN. Check logs."))
}
