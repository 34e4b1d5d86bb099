//! The engine whose data is in this process. It locks the shards that a command needs, and unlocks them.

use std::time::Instant;

use crate::commands::Command;
use crate::commands::facts::{Flags, Group, Scope};
use crate::commands::transactions::queued;
use crate::instance::Instance;
use crate::keyspace::{Garbage, Keyspace, Missed, NotNow, Prepared, Served, Spot, Transaction, complete};
use crate::resp::Request;
use crate::scripting::{NotYet, Turn};
use crate::session::{Contention, Session};
use crate::values::LONG_TEXT_BYTES;

/// What a command runs on.
#[derive(Debug)]
pub struct Begun<'a> {
    /// A transaction over the keys that it needs.
    pub tx: Transaction<'a>,
    /// The scripts' turn, if the command may run a script.
    turn: Option<Turn<'a>>,
    /// How often all databases had been emptied before it began.
    flushes: u64,
}

/// Why a command cannot run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// A script has been running for too long.
    Busy,
    /// Another client has what it needs, for more than a moment.
    Contended(Contention),
}

/// Begins a transaction over what a request needs; `spot` is that of its key, if it names exactly one.
///
/// # Errors
///
/// [`NotBegun`]
pub fn begin<'a>(
    instance: &'a Instance,
    session: &mut Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<Spot>,
) -> Result<Begun<'a>, NotBegun> {
    // Before the first shard is locked: the script that has the turn may wait for more shards.
    let turn = match command.scope {
        Scope::Keys | Scope::Everything => None,
        Scope::Queue | Scope::Script => take_turn(instance, session, command).map_err(|why| match why {
            NotYet::Busy => NotBegun::Busy,
            NotYet::Contended => NotBegun::Contended(Contention::Turn),
        })?,
    };
    if turn.as_ref().is_some_and(|turn| turn.has_waited) {
        // The time that it waited for other scripts does not count as its own.
        session.began = Instant::now();
    }
    let prepared = prepare(session, command, request);
    let flushes = instance.keyspace.flushes();
    let mut begun = match lock(instance, session, command, request, spot) {
        Ok(tx) => Begun { tx, turn, flushes },
        Err(NotNow::Busy) => return Err(NotBegun::Busy),
        Err(NotNow::Contended(shard)) => return Err(NotBegun::Contended(Contention::Shard(shard))),
    };
    if !prepared.is_empty() {
        begun.tx.prepare(prepared);
    }
    if session.leaves_keys_untouched {
        begun.tx.leave_untouched();
    }
    if begun.turn.is_some() {
        begun.tx.allow_more();
    }
    Ok(begun)
}

impl Begun<'_> {
    /// Logs the changes. Returns what is left to do when this is dropped, which unlocks the shards.
    pub fn end(&mut self, session: &mut Session) -> Ended {
        let mut unfinished = None;
        if self.tx.leaves_anything() {
            unfinished = Some(Unfinished::of(session, &mut self.tx));
        }
        Ended { unfinished, flushes: self.flushes }
    }
}

/// The rest of a request, for when its locks are free.
#[derive(Debug)]
pub struct Ended {
    unfinished: Option<Unfinished>,
    flushes: u64,
}

impl Ended {
    /// Finishes the request. Its reply is the last one in `out`.
    pub fn finish(self, instance: &Instance, session: &Session, out: &mut Vec<u8>) {
        if let Some(unfinished) = self.unfinished {
            unfinished.finish(instance, session, out);
        }
        if instance.keyspace.flushes() != self.flushes {
            instance.save_flushed();
        }
    }
}

/// What is left to do for a request when its locks are free. Nearly always that is nothing.
#[derive(Debug)]
pub struct Unfinished {
    /// Large garbage to free.
    garbage: Option<Garbage>,
    /// Clients that the request has served.
    served: Vec<Served>,
    /// Long strings that are missing in the reply.
    missed: Vec<Missed>,
}

impl Unfinished {
    /// Logs the changes of a transaction that is about to end, and takes what is left to do.
    #[cold]
    pub fn of(session: &mut Session, tx: &mut Transaction<'_>) -> Unfinished {
        if let Some(end) = tx.commit() {
            session.logged = end;
        }
        let (garbage, served, missed) = (tx.take_large_garbage(), tx.take_served(), tx.take_missed());
        Unfinished { garbage, served, missed }
    }

    /// Does it, for a caller that holds no lock: delivers the replies of the clients that were served, frees
    /// the garbage, and completes the last reply in `out`.
    #[cold]
    pub fn finish(self, instance: &Instance, session: &Session, out: &mut Vec<u8>) {
        self.served.into_iter().for_each(|served| served.deliver(session.logged));
        if let Some(garbage) = self.garbage {
            instance.free(garbage);
        }
        complete(out, self.missed);
    }
}

/// Copies long strings that the request may write, while no other client waits for its keys.
#[inline]
fn prepare(session: &Session, command: &Command, request: Request<'_>) -> Vec<Prepared> {
    let has_long = |command: &Command, request: &Request<'_>| {
        request.bytes() >= LONG_TEXT_BYTES
            && command.group == Group::String
            && command.flags.contains(Flags::DENYOOM)
    };
    match &session.queue {
        Some(queue) if command.scope == Scope::Queue => {
            let long = queued(queue).filter(|(registered, request)| has_long(registered.command, request));
            long.flat_map(|(_, request)| Prepared::of(request)).collect()
        }
        _ if has_long(command, &request) => Prepared::of(request).collect(),
        _ => Vec::new(),
    }
}

/// The turn to run scripts, where the command needs it.
#[cold]
fn take_turn<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
) -> Result<Option<Turn<'a>>, NotYet> {
    let runs_script = match (&session.queue, command.scope) {
        (Some(queue), Scope::Queue) => {
            queued(queue).any(|(registered, _)| registered.command.scope == Scope::Script)
        }
        (_, scope) => scope == Scope::Script,
    };
    if !runs_script {
        return Ok(None);
    }
    instance.scripting.take_turn().map(Some)
}

/// A transaction over what the command needs; `spot` is that of the request's key, if it names exactly one.
fn lock<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<Spot>,
) -> Result<Transaction<'a>, NotNow> {
    let (keyspace, database) = (&instance.keyspace, session.database);
    match (command.scope, command.only_key_in(request)) {
        // A script may come to hold more than the keys that it declares.
        (Scope::Keys | Scope::Script, Some(key)) => {
            let spot = spot.unwrap_or_else(|| Spot::of(keyspace.hash(key)));
            keyspace.begin_at(database, key, spot)
        }
        (Scope::Keys | Scope::Script, None) if command.leaves_keys_unnamed(request) => {
            keyspace.begin_all_for_client(database)
        }
        (Scope::Keys | Scope::Script, None) => {
            let keys = command.keys_of(request).map(|(key, _)| key);
            match keys.clone().next() {
                Some(_) => keyspace.begin_many(database, keys),
                None => Ok(keyspace.begin_none(database)),
            }
        }
        (Scope::Everything, _) => keyspace.begin_all_for_client(database),
        (Scope::Queue, _) => begin_queued(keyspace, session),
    }
}

/// A transaction over what the commands need that a client has queued, and over the keys that it watches.
fn begin_queued<'a>(keyspace: &'a Keyspace, session: &Session) -> Result<Transaction<'a>, NotNow> {
    let database = session.database;
    let Some(queue) = &session.queue else { return Ok(keyspace.begin_none(database)) };
    if queue.is_broken {
        return Ok(keyspace.begin_none(database));
    }
    if queued(queue).any(|(registered, request)| registered.command.needs_everything(request)) {
        return keyspace.begin_all_for_client(database);
    }
    let keys = queued(queue).flat_map(|(registered, request)| registered.command.keys_of(request));
    keyspace.begin_many(database, session.watching.keys().chain(keys.map(|(key, _)| key)))
}
