//! Several commands as one: MULTI, EXEC, DISCARD, WATCH, UNWATCH.

use std::sync::Arc;

use crate::instance::Instance;
use crate::keyspace::Grouping;
use crate::resp::{Reply, Request};
use crate::session::{Queue, Session};

use super::costs;
use super::error::Error;
use super::execution::run::call;
use super::facts::lookup::{Registered, queued_command};
use super::facts::{
    Argument, Categories, Command, Concern, Context, Flags, Group, KeyFlags, KeySpec, Result, Run, Scope,
    Traits,
};

pub(super) const COMMANDS: &[Command] = &[DISCARD, EXEC, MULTI, UNWATCH, WATCH];

/// The facts that most commands of this file share.
const TRANSACTION: Command = Command {
    categories: Categories::TRANSACTION,
    group: Group::TRANSACTIONS,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const MULTI: Command = Command {
    name: "multi",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST).and(Flags::ALLOW_BUSY),
    traits: Traits::AT_ONCE,
    summary: "Starts a transaction: later commands are queued until EXEC runs them.",
    since: "1.2.0",
    complexity: "O(1)",
    example: &[
        ("MULTI", "OK"),
        ("INCR mykey", "QUEUED"),
        ("INCR mykey", "QUEUED"),
        ("EXEC", "[(integer) 1, (integer) 2]"),
    ],
    run: Run::Session(multi),
    ..TRANSACTION
};

fn multi(session: &mut Session, _: Request<'_>, reply: Reply<'_>) -> Result {
    if session.queue.is_some() {
        return Err(Error::fixed("ERR MULTI calls can not be nested"));
    }
    session.queue = Some(Queue::default());
    Ok(reply.ok())
}

/// Puts an admitted command into the client's queue, if there is one and it belongs there, and returns that
/// it is.
pub(crate) fn queue(
    session: &mut Session,
    registered: &'static Registered,
    request: Request<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Some(queue) = &mut session.queue else { return false };
    if registered.command.traits.contains(Traits::AT_ONCE) {
        return false;
    }
    queue.push(registered.number, request);
    out.extend_from_slice(b"+QUEUED\r\n");
    true
}

/// The error for a client whose command was refused. It also ends the client's transaction.
pub(crate) fn refused(
    instance: &Instance,
    session: &mut Session,
    found: Option<&'static Registered>,
    refusal: Error,
) -> Error {
    if found.is_none_or(|found| found.command.scope != Scope::Queue) {
        session.queue.iter_mut().for_each(|queue| queue.is_broken = true);
        return refusal;
    }
    end(instance, session);
    let why = refusal.as_bytes();
    Error::quoting(
        "EXECABORT Transaction discarded because of: ",
        why.strip_prefix(b"ERR ").unwrap_or(why),
        "",
    )
}

/// Ends the client's transaction, if there is one, and its watching of keys. EXEC leaves that to its caller,
/// which calls this once the engine has committed what EXEC did: until then EXEC may have to run again.
pub(crate) fn ended(instance: &Instance, session: &mut Session) {
    if session.queue.is_some() {
        end(instance, session);
    }
}

/// Ends the transaction, and the watching of keys. The caller holds none of these.
fn end(instance: &Instance, session: &mut Session) {
    session.queue = None;
    session.watched_in_store.clear();
    instance.keyspace.unwatch(&mut session.watching);
}

const EXEC: Command = Command {
    name: "exec",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::SKIP_SLOWLOG),
    scope: Scope::Queue,
    traits: Traits::AT_ONCE,
    summary: "Runs the queued commands in one atomic step, unless a watched key has changed.",
    since: "1.2.0",
    complexity: "Depends on commands in the transaction",
    example: &[("EXEC", "(error) ERR EXEC without MULTI"), ("MULTI", "OK"), ("EXEC", "[]")],
    run: Run::Server(exec),
    ..TRANSACTION
};

fn exec(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    let Some(queue) = &context.session.queue else {
        return Err(Error::fixed("ERR EXEC without MULTI"));
    };
    if queue.is_broken {
        return Err(Error::fixed("EXECABORT Transaction discarded because of previous errors."));
    }
    let commands = Arc::clone(&queue.commands);
    if context.tx.is_overtaken(&context.session.watching) {
        return Ok(reply.nil_array());
    }
    context.session.begin_unit();
    context.tx.group(Grouping::Queue);
    let sent = reply.array_of(commands.iter().enumerate(), |(index, queued), reply| {
        context.session.queue.iter_mut().for_each(|queue| queue.running = Some(index));
        match queued_command(queued) {
            Some((registered, request)) => call(context, registered, request, reply),
            // Never: only commands that were found are queued.
            None => reply.nil(),
        }
    });
    context.session.may_not_wait = false;
    context.tx.group(Grouping::Alone);
    Ok(sent)
}

const DISCARD: Command = Command {
    name: "discard",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST).and(Flags::ALLOW_BUSY),
    traits: Traits::AT_ONCE,
    summary: "Ends the transaction: drops its queued commands and stops watching keys.",
    since: "2.0.0",
    complexity: "O(N), when N is the number of queued commands",
    example: &[
        ("DISCARD", "(error) ERR DISCARD without MULTI"),
        ("MULTI", "OK"),
        ("SET mykey 1", "QUEUED"),
        ("DISCARD", "OK"),
        ("GET mykey", "(nil)"),
    ],
    run: Run::Server(discard),
    ..TRANSACTION
};

fn discard(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    if context.session.queue.is_none() {
        return Err(Error::fixed("ERR DISCARD without MULTI"));
    }
    end(context.instance, context.session);
    Ok(reply.ok())
}

/// A WATCH of more keys locks one after the other: adding a key takes about a microsecond. Each key is
/// watched from its own moment on, and all are when the client gets its reply. No client can tell the
/// difference.
const WATCHED_AT_ONCE_MAX: usize = 1000;

const WATCH: Command = Command {
    name: "watch",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST).and(Flags::ALLOW_BUSY),
    keys: &[KeySpec::every(1, KeyFlags::RO)],
    traits: Traits::AT_ONCE,
    concern: Concern::Changes,
    summary: "Watches keys: if one of them changes, the next EXEC runs nothing and returns null.",
    since: "2.2.0",
    complexity: "O(1) for every key.",
    arguments: &[Argument::KEY.multiple()],
    example: &[
        ("WATCH mykey", "OK"),
        ("SET mykey 1", "OK"),
        ("MULTI", "OK"),
        ("INCR mykey", "QUEUED"),
        ("EXEC", "(nil)"),
        ("GET mykey", "\"1\""),
    ],
    run: Run::Server(watch),
    ..TRANSACTION
};

fn watch(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    if context.session.queue.is_some() {
        return Err(Error::fixed("ERR WATCH inside MULTI is not allowed"));
    }
    let takes_long = request.len() > WATCHED_AT_ONCE_MAX;
    for key in request.from(1) {
        if takes_long {
            context.tx.hold_only(key);
        }
        context.tx.watch(&mut context.session.watching, key);
    }
    Ok(reply.ok())
}

const UNWATCH: Command = Command {
    name: "unwatch",
    flags: Flags::NOSCRIPT.and(Flags::LOADING).and(Flags::STALE).and(Flags::FAST).and(Flags::ALLOW_BUSY),
    summary: "Stops watching all keys.",
    since: "2.2.0",
    complexity: "O(1)",
    example: &[("WATCH mykey", "OK"), ("UNWATCH", "OK")],
    run: Run::Server(unwatch),
    ..TRANSACTION
};

fn unwatch(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    if !context.session.runs_queue() {
        context.session.watched_in_store.clear();
        context.instance.keyspace.unwatch(&mut context.session.watching);
    }
    // Otherwise EXEC holds the watched keys, which it has looked at already. Their watching ends with it.
    Ok(reply.ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::Address;
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::Hooks;
    use crate::keyspace::Expiry;
    use crate::resp::{OwnedRequest, Protocol};

    #[test]
    fn a_client_that_watches_very_many_keys_does_not_hold_all_of_them() {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let (keyspace, nowhere) = (&instance.keyspace, Address::Unix(Path::new("").into()));
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        for (keys, free_min) in [(WATCHED_AT_ONCE_MAX - 1, 0), (20 * WATCHED_AT_ONCE_MAX, 1023)] {
            let mut session = Session::new(registration.client.clone(), &instance.users);
            let mut owned = OwnedRequest::default();
            owned.push(b"WATCH");
            for number in 0..keys {
                owned.push(number.to_string().as_bytes());
            }
            let request = owned.request().expect("a request");
            let mut tx = keyspace.begin_many(0, request.from(1)).expect("nothing is in its way");
            let mut out = Vec::new();
            let mut context = Context { instance: &instance, session: &mut session, tx: &mut tx };
            assert!(watch(&mut context, request, Reply::new(&mut out, Protocol::Resp2)).is_ok());
            let free = (0..1024).filter(|number| keyspace.is_free(*number)).count();
            assert!(free >= free_min && (free_min > 0 || free < 900), "{free} shards are free");
            drop(tx);
            let last = request.at(keys);
            for key in [request.at(1), last] {
                assert!(!session.watching.has_changed() || key == last);
                keyspace.begin(0, key).expect("it is free").put(key, b"v", Expiry::Never);
                assert!(session.watching.has_changed());
            }
            keyspace.unwatch(&mut session.watching);
        }
    }
}
