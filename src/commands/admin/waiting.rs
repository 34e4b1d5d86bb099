//! Waiting: WAIT, WAITAOF, CLIENT PAUSE, and the commands that end a wait.

use std::time::{Duration, Instant};

use crate::clients::{Paused, Waiting};
use crate::clock::system_s;
use crate::instance::Instance;
use crate::resp::number::parse_integer;
use crate::resp::{Reply, Request, Sent};
use crate::session::{Session, Wait};

use crate::commands::args::{self, is_word};
use crate::commands::costs;
use crate::commands::error::Error;
use crate::commands::facts::{Argument, Categories, Command, Context, Flags, Group, Result, Run};

pub(in crate::commands) const COMMANDS: &[Command] = &[WAIT, WAITAOF];

/// The facts that most commands of this file share.
const CONNECTION: Command = Command {
    flags: Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE),
    categories: Categories::CONNECTION,
    group: Group::CONNECTION,
    cost: costs::ARGUMENTS,
    ..Command::DEFAULTS
};

const WAIT: Command = Command {
    name: "wait",
    flags: Flags::BLOCKING,
    categories: Categories::CONNECTION.and(Categories::BLOCKING),
    group: Group::GENERIC,
    summary: "Waits for replicas to receive this connection's writes. There are none: blocks until the timeout.",
    since: "3.0.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    arguments: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
    example: &[("WAIT 0 100", "(integer) 0"), ("WAIT 1 1", "(integer) 0")],
    run: Run::Session(wait),
    ..CONNECTION
};

fn wait(session: &mut Session, request: Request<'_>, reply: Reply<'_>) -> Result {
    let replicas = args::integer(request.at(1))?;
    let timeout_ms = timeout_ms(request.at(2))?;
    if replicas > 0 && !session.may_not_wait {
        session.client.set_waiting(Waiting::Yes);
        session.wait = Some(end_after(timeout_ms).map_or(Wait::ForEver, Wait::Until));
    }
    Ok(reply.count(0))
}

/// The moment after this many milliseconds; `None` after 0, which means for ever.
fn end_after(timeout_ms: u64) -> Option<Instant> {
    Some(timeout_ms).filter(|ms| *ms > 0).and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)))
}

const WAITAOF: Command = Command {
    name: "waitaof",
    flags: Flags::BLOCKING,
    categories: Categories::CONNECTION.and(Categories::BLOCKING),
    group: Group::GENERIC,
    summary: "Waits until this connection's writes are durable in the append-only file, here and on replicas.",
    since: "7.2.0",
    complexity: "O(1)",
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    arguments: &[
        Argument::integer("numlocal"),
        Argument::integer("numreplicas"),
        Argument::integer("timeout"),
    ],
    example: &[("WAITAOF 0 0 0", "[(integer) 0, (integer) 0]")],
    run: Run::Server(wait_aof),
    ..CONNECTION
};

/// The reply of WAITAOF where no append-only file is written, or no longer.
pub(crate) const NO_LOG: Error =
    Error::fixed("ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");

fn wait_aof(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    let Context { instance, session, .. } = context;
    let out_of_range = Error::fixed("ERR value is out of range, value must between 0 and 1");
    let local = Some(args::integer(request.at(1))?).filter(|local| (0..=1).contains(local));
    let local = local.ok_or(out_of_range)?;
    let replicas = args::natural(request.at(2))?;
    let timeout_ms = timeout_ms(request.at(3))?;
    if local > 0 && !instance.persistence.aof.is_on() {
        return Err(NO_LOG);
    }
    let is_durable = instance.is_durable(session.logged.end);
    if (replicas > 0 || local > 0 && !is_durable) && !session.may_not_wait {
        session.client.set_waiting(Waiting::Yes);
        session.wait = Some(Wait::Durable { until: end_after(timeout_ms), is_enough: replicas == 0 });
    }
    Ok(tell_durability(instance, session, reply))
}

/// The reply of WAITAOF: whether the client's changes are durable here, and on how many replicas (none).
pub(crate) fn tell_durability(instance: &Instance, session: &Session, reply: Reply<'_>) -> Sent {
    let is_durable = instance.is_durable(session.logged.end);
    reply.pair(|reply| reply.count(is_durable.into()), |reply| reply.count(0))
}

fn timeout_ms(text: &[u8]) -> Result<u64> {
    let timeout_ms =
        parse_integer(text).ok_or(Error::fixed("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| Error::fixed("ERR timeout is negative"))?;
    // Redis adds the time since 1970, and has 63 bits for the sum.
    match timeout_ms.saturating_add(system_s() * 1000) > i64::MAX as u64 {
        true => Err(Error::fixed("ERR timeout is out of range")),
        false => Ok(timeout_ms),
    }
}

pub(in crate::commands) const CLIENT_PAUSE: Command = Command {
    name: "client|pause",
    summary: "Suspends all clients, or only their writes, for a number of milliseconds.",
    since: "3.0.0",
    complexity: "O(1)",
    arguments: &[
        Argument::integer("timeout"),
        Argument::one_of("mode", &Argument::words(["WRITE", "ALL"])).since("6.2.0").optional(),
    ],
    example: &[("CLIENT PAUSE 0", "OK")],
    run: Run::Server(pause),
    ..CONNECTION
};

fn pause(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Error::check_longest(request, 4)?;
    let paused = match request.get(3) {
        None => Paused::All,
        Some(mode) if is_word(mode, "all") => Paused::All,
        Some(mode) if is_word(mode, "write") => Paused::Writes,
        Some(_) => return Err(Error::fixed("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let until = Instant::now().checked_add(Duration::from_millis(timeout_ms(request.at(2))?));
    let until = until.ok_or(Error::fixed("ERR timeout is not an integer or out of range"))?;
    context.instance.clients.pause.begin(until, paused);
    Ok(reply.ok())
}

pub(in crate::commands) const CLIENT_UNPAUSE: Command = Command {
    name: "client|unpause",
    summary: "Ends a CLIENT PAUSE before its time.",
    since: "6.2.0",
    complexity: "O(N) Where N is the number of paused clients",
    example: &[("CLIENT UNPAUSE", "OK")],
    run: Run::Server(unpause),
    ..CONNECTION
};

fn unpause(context: &mut Context<'_, '_>, _: Request<'_>, reply: Reply<'_>) -> Result {
    context.instance.clients.pause.end();
    Ok(reply.ok())
}

pub(in crate::commands) const CLIENT_UNBLOCK: Command = Command {
    name: "client|unblock",
    summary: "Unblocks a client that waits in a blocking command, with a timeout or an error.",
    since: "5.0.0",
    complexity: "O(log N) where N is the number of client connections",
    arguments: &[
        Argument::integer("client-id"),
        Argument::one_of("unblock-type", &Argument::words(["TIMEOUT", "ERROR"])).optional(),
    ],
    example: &[("CLIENT UNBLOCK 999999", "(integer) 0")],
    run: Run::Server(unblock),
    ..CONNECTION
};

fn unblock(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
    Error::check_longest(request, 4)?;
    let how = match request.get(3) {
        None => Waiting::TimedOut,
        Some(reason) if is_word(reason, "timeout") => Waiting::TimedOut,
        Some(reason) if is_word(reason, "error") => Waiting::Failed,
        Some(_) => return Err(Error::fixed("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let id = args::integer(request.at(2))?;
    let all = context.instance.clients.all();
    let found = all.iter().find(|client| i64::try_from(client.id) == Ok(id));
    Ok(reply.bool(found.is_some_and(|client| client.end_waiting(how))))
}
