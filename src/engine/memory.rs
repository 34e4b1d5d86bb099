//! The engine whose data is in this process. It locks the shards that a command needs, and unlocks them.

use std::time::Instant;

use crate::commands::Command;
use crate::commands::facts::lookup::queued;
use crate::commands::facts::{KeyFlags, LONG_COPY_BYTES, Prepares, Scope, Traits};
use crate::instance::Instance;
use crate::keyspace::{
    Garbage, Hold, KeyLocation, Keyspace, Missed, NotNow, Prepared, Served, Shared, Transaction, complete,
    missing_bytes,
};
use crate::resp::Request;
use crate::scripting::{NotYet, Turn};
use crate::session::{Contention, Replies, Session};
use crate::values::LONG_TEXT_BYTES;

/// How often shared strings are copied without a lock before a command. Another client that changes them
/// meanwhile makes the copy useless. After this number of tries they are copied under the lock.
const COPYING_TRIES_MAX: usize = 8;
/// A transaction has fewer of its values made before it begins: a compressed payload may become a value of
/// fifty times its size, and memory is checked before each command only.
const VALUES_PREPARED_MAX: usize = 16;

/// A transaction that was begun, and what its command needs besides.
#[derive(Debug)]
pub(crate) struct Begun<'a> {
    /// A transaction over the keys that it needs.
    pub tx: Transaction<'a>,
    /// The scripts' turn, if the command may run a script.
    turn: Option<Turn<'a>>,
    /// How often all databases had been emptied before it began.
    flushes: u64,
}

/// Why a command cannot run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// A script has been running for too long.
    Busy,
    /// Another client has what it needs, for more than a moment.
    Contended(Contention),
}

impl From<NotNow> for NotBegun {
    fn from(why: NotNow) -> NotBegun {
        match why {
            NotNow::Busy => NotBegun::Busy,
            NotNow::Contended(shard) => NotBegun::Contended(Contention::Shard(shard)),
        }
    }
}

/// Begins a transaction over what a request needs; `spot` is that of its key, if it names exactly one.
///
/// # Errors
///
/// [`NotBegun`]
pub(crate) fn begin_transaction<'a>(
    instance: &'a Instance,
    session: &mut Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<KeyLocation>,
) -> Result<Begun<'a>, NotBegun> {
    // Before the first shard is locked: the script that has the turn may wait for more shards.
    let turn = match command.scope {
        Scope::Keys | Scope::Everything | Scope::Walk => None,
        Scope::Queue | Scope::Script | Scope::EverythingInTurn => take_turn(instance, session, command)
            .map_err(|why| match why {
                NotYet::Busy => NotBegun::Busy,
                NotYet::Contended => NotBegun::Contended(Contention::Turn),
            })?,
    };
    if turn.as_ref().is_some_and(|turn| turn.has_waited) {
        // The time that it waited for other scripts does not count as its own.
        session.began = Instant::now();
    }
    let prepared = prepare(&instance.keyspace, session, command, request);
    let flushes = instance.keyspace.flushes();
    let hold = lock(instance, session, command, request, spot)?;
    // Nothing below takes the address of the transaction, so that the compiler builds it where the caller
    // keeps it. It takes some 100 instructions to move one.
    let tx = instance.keyspace.begin_on(session.database, hold, prepared);
    let mut begun = Begun { tx, turn, flushes };
    if session.leaves_keys_untouched {
        begun.tx.leave_untouched();
    }
    if begun.turn.is_some() {
        begun.tx.allow_more();
    }
    Ok(begun)
}

impl<'a> Begun<'a> {
    /// Copies the long strings that the command may change in part and that others share
    /// ([`Cost::copies_shared`](crate::commands::facts::Cost)), while no other client waits for them. Called
    /// before the command runs.
    ///
    /// # Errors
    ///
    /// [`NotBegun`]
    #[cold]
    pub(crate) fn copy_shared(
        &mut self,
        instance: &'a Instance,
        session: &Session,
        command: &Command,
        request: Request<'a>,
        spot: Option<KeyLocation>,
    ) -> Result<(), NotBegun> {
        for _ in 0..COPYING_TRIES_MAX {
            let shared = match &session.queue {
                Some(queue) if command.scope == Scope::Queue => {
                    let keys =
                        queued(queue).filter_map(|(queued, request)| queued.command.key_changed_in(request));
                    self.tx.shared_texts(keys)
                }
                _ => self.tx.shared_texts(command.key_changed_in(request).into_iter()),
            };
            if shared.is_empty() {
                break;
            }
            self.tx.let_go();
            let copied = shared.into_iter().map(Shared::copied).collect();
            self.tx.hold_again(lock(instance, session, command, request, spot)?);
            self.tx.replace_shared(copied);
        }
        Ok(())
    }

    /// Holds what the clients need that the command may serve: the targets of BLMOVE. Called before the
    /// command runs, and after everything that unlocks shards.
    ///
    /// # Errors
    ///
    /// [`NotBegun`]
    #[inline(always)]
    pub(crate) fn hold_targets(
        &mut self,
        session: &Session,
        command: &Command,
        request: Request<'a>,
    ) -> Result<(), NotBegun> {
        if self.tx.may_serve() { self.hold_any_targets(session, command, request) } else { Ok(()) }
    }

    #[cold]
    fn hold_any_targets(
        &mut self,
        session: &Session,
        command: &Command,
        request: Request<'a>,
    ) -> Result<(), NotBegun> {
        match &session.queue {
            // It is refused.
            Some(queue) if command.scope == Scope::Queue && queue.is_broken => {}
            Some(queue) if command.scope == Scope::Queue => {
                let requests = queued(queue).map(|(queued, request)| (queued.command, request));
                let keys = requests.clone().flat_map(|(command, request)| keys_filled(command, request));
                let elements_max = requests
                    .map(|(command, request)| elements_max(command, request))
                    .fold(0, usize::saturating_add);
                self.tx.hold_targets(keys, elements_max)?;
            }
            _ => self.tx.hold_targets(keys_filled(command, request), elements_max(command, request))?,
        }
        Ok(())
    }

    /// Logs the changes. Returns what is left to do when this is dropped, which unlocks the shards.
    pub(crate) fn end(&mut self, session: &mut Session) -> Ended {
        let mut unfinished = None;
        if self.tx.leaves_anything() {
            unfinished = Some(Unfinished::of(session, &mut self.tx));
        }
        Ended { unfinished, flushes: self.flushes }
    }
}

/// The rest of a request, for when its locks are free.
#[derive(Debug)]
pub(crate) struct Ended {
    unfinished: Option<Unfinished>,
    flushes: u64,
}

impl Ended {
    /// Finishes the request. Its reply is the last one in `out`.
    pub(crate) fn finish(self, instance: &Instance, session: &mut Session, out: &mut Vec<u8>) {
        if let Some(unfinished) = self.unfinished {
            unfinished.finish(instance, session, out);
        }
        if instance.keyspace.flushes() != self.flushes {
            instance.save_flushed();
        }
    }
}

/// The work for a request that remains when its locks are free. Nearly always there is none.
#[derive(Debug)]
pub(crate) struct Unfinished {
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
    pub(crate) fn of(session: &mut Session, tx: &mut Transaction<'_>) -> Unfinished {
        session.logged.commit(tx);
        let (garbage, served, missed) = (tx.take_large_garbage(), tx.take_served(), tx.take_missed());
        Unfinished { garbage, served, missed }
    }

    /// Does the work, for a caller that holds no lock: delivers the replies of the clients that were served,
    /// frees the garbage, and completes the last reply in `out`. If that takes long, another thread does it,
    /// for which the client waits.
    #[cold]
    pub(crate) fn finish(self, instance: &Instance, session: &mut Session, out: &mut Vec<u8>) {
        self.served.into_iter().for_each(|served| served.deliver(session.logged.end));
        if let Some(garbage) = self.garbage {
            instance.free(garbage);
        }
        let takes_long = missing_bytes(&self.missed) >= LONG_COPY_BYTES;
        if session.replies != Replies::On {
            // It is not sent.
        } else if takes_long && session.long.is_none() && session.wait.is_none() {
            session.complete_reply_later(&instance.long_requests, self.missed);
        } else {
            complete(out, self.missed);
        }
    }
}

/// Copies long strings that the request may write, and reads long payloads, while no other client waits for
/// its keys.
#[inline]
fn prepare(keyspace: &Keyspace, session: &Session, command: &Command, request: Request<'_>) -> Vec<Prepared> {
    match &session.queue {
        Some(queue) if command.scope == Scope::Queue => {
            let mut values_left = VALUES_PREPARED_MAX;
            let each = queued(queue).filter(|(queued, _)| {
                let is_value = matches!(queued.command.prepares, Prepares::Values(_));
                values_left -= usize::from(is_value && values_left > 0);
                !is_value || values_left > 0
            });
            each.flat_map(|(queued, request)| prepare_one(keyspace, queued.command, request)).collect()
        }
        _ => prepare_one(keyspace, command, request),
    }
}

#[inline]
fn prepare_one(keyspace: &Keyspace, command: &Command, request: Request<'_>) -> Vec<Prepared> {
    match command.prepares {
        // What it stores is derived when its cost is known.
        Prepares::Nothing | Prepares::Derived(_) => Vec::new(),
        Prepares::Texts if request.bytes() < LONG_TEXT_BYTES => Vec::new(),
        Prepares::Texts => Prepared::of(request).collect(),
        Prepares::Values(read) => read(request, keyspace),
    }
}

/// The keys that a request may fill.
fn keys_filled<'a>(
    command: &Command,
    request: Request<'a>,
) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
    let keys = command.keys_of(request).filter(|(_, flags)| !flags.contains(KeyFlags::RO));
    keys.map(|(key, _)| key)
}

/// How many elements a request may bring at most to the lists of its keys.
fn elements_max(command: &Command, request: Request<'_>) -> usize {
    if command.traits.contains(Traits::BRINGS_ARGUMENTS) { request.len() } else { usize::MAX }
}

/// The turn to run scripts, where the command needs it.
#[cold]
pub(super) fn take_turn<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
) -> Result<Option<Turn<'a>>, NotYet> {
    let takes_turn = match (&session.queue, command.scope) {
        (Some(queue), Scope::Queue) => {
            queued(queue).any(|(registered, _)| registered.command.scope.takes_turn())
        }
        (_, scope) => scope.takes_turn(),
    };
    if !takes_turn {
        return Ok(None);
    }
    instance.scripting.take_turn().map(Some)
}

/// Locks what the command needs; `spot` is that of the request's key, if it names exactly one.
#[inline(always)]
fn lock<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<KeyLocation>,
) -> Result<Hold<'a>, NotNow> {
    let keyspace = &instance.keyspace;
    match command.scope {
        // A script may come to hold more than the keys that it declares.
        Scope::Keys | Scope::Script => {}
        Scope::Everything | Scope::EverythingInTurn => return keyspace.hold_all(),
        Scope::Walk => return keyspace.hold_none_when_free(),
        Scope::Queue => return lock_queued(keyspace, session),
    }
    if let Some(spot) = spot
        && let Some(key) = command.known_only_key_in(request)
    {
        return keyspace.hold_at(key, spot);
    }
    if command.keys.is_empty() { Ok(Hold::nothing()) } else { lock_named(keyspace, command, request) }
}

/// Locks the keys that a request names.
fn lock_named<'a>(
    keyspace: &'a Keyspace,
    command: &Command,
    request: Request<'a>,
) -> Result<Hold<'a>, NotNow> {
    if let Some(key) = command.only_key_in(request) {
        return keyspace.hold_at(key, KeyLocation::of(keyspace.hash(key)));
    }
    if command.leaves_keys_unnamed(request) {
        return keyspace.hold_all();
    }
    let keys = command.keys_of(request).map(|(key, _)| key);
    match keys.clone().next() {
        Some(_) => keyspace.hold_many(keys),
        None => Ok(Hold::nothing()),
    }
}

/// Locks what the commands need that a client has queued, and the keys that it watches.
fn lock_queued<'a>(keyspace: &'a Keyspace, session: &Session) -> Result<Hold<'a>, NotNow> {
    let Some(queue) = &session.queue else { return Ok(Hold::nothing()) };
    if queue.is_broken {
        return Ok(Hold::nothing());
    }
    if queued(queue).any(|(registered, request)| registered.command.needs_everything(request)) {
        return keyspace.hold_all();
    }
    let keys = queued(queue).flat_map(|(registered, request)| registered.command.keys_of(request));
    keyspace.hold_many(session.watching.keys().chain(keys.map(|(key, _)| key)))
}
