//! The engine whose data is in this process: takes the locks, runs the command, lets go.

use std::time::Instant;

use crate::clients::Paused;
use crate::commands::Command;
use crate::commands::command::{Result, Run, Scope};
use crate::commands::error::Error;
use crate::commands::execute::{
    admit, busy, check_busy, check_listening, conclude, not_saved, resolve, run, settle,
};
use crate::commands::faults::{Fate, strike};
use crate::commands::intent::{Intent, intent};
use crate::commands::lookup::{Finder, Registered};
use crate::commands::permission::Origin;
use crate::commands::traces::{is_small, show};
use crate::commands::tracking::answered;
use crate::commands::transactions::{check_queueing, queue, queued, refused};
use crate::instance::Instance;
use crate::keyspace::{Garbage, Keyspace, NotNow, Spot, Transaction};
use crate::resp::{Reply, Request};
use crate::scripting::{NotYet, Turn};
use crate::session::{Contention, Session, Wait};

use super::meter::Meter;
use super::room::{Room, make_room};

/// What is known of a request before it is executed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The command of its name.
    command: Option<&'static Registered>,
    /// Where the entry of its key may be, if it names exactly one.
    spot: Option<Spot>,
}

impl Plan {
    /// For a request.
    #[inline(always)]
    pub fn new(keyspace: &Keyspace, finder: &mut Finder, request: Request<'_>) -> Plan {
        let command = finder.find(request.name());
        let spot = command.and_then(|registered| match &registered.plain {
            Some(plain) => request.get(plain.key).map(|key| Spot::of(keyspace.hash(key))),
            None => Plan::spot_of_any(keyspace, registered, request),
        });
        Plan { command, spot }
    }

    #[inline(never)]
    fn spot_of_any(keyspace: &Keyspace, registered: &Registered, request: Request<'_>) -> Option<Spot> {
        registered.command.only_key_in(request).map(|key| Spot::of(keyspace.hash(key)))
    }

    /// Has what it needs fetched from memory, while others are executed.
    #[inline(always)]
    pub fn prepare(&mut self, keyspace: &Keyspace, database: usize) {
        if let Some(spot) = &mut self.spot {
            keyspace.touch(database, spot);
        }
    }
}

/// Executes one request and appends its reply to `out`; answers whether the next one may follow at once.
#[inline(always)]
pub fn execute(
    instance: &Instance,
    session: &mut Session,
    request: &Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) -> bool {
    if execute_plain(instance, session, request, plan, meter, out) {
        return true;
    }
    execute_any(instance, session, *request, plan, meter, out);
    meter.look(session);
    !session.is_closing && session.wait.is_none()
}

/// Executes what nearly every request is: a brief command on one key, while nothing is special about the
/// client and nobody wants anything but that it is executed. False if it is anything else, or is to be
/// refused; then nothing has happened yet. It does what [`execute_any`] does, without all that does not
/// concern such a request.
#[inline(always)]
fn execute_plain(
    instance: &Instance,
    session: &mut Session,
    request: &Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let (Some(registered), Some(spot)) = (plan.command, plan.spot) else { return false };
    let Some(plain) = &registered.plain else { return false };
    let is_right = plain.arguments.contains(&request.len()) && is_small(request);
    if !meter.is_plain() || !is_right || !session.user.is_unrestricted() {
        return false;
    }
    let mark = out.len();
    let result = {
        let begun = instance.keyspace.begin_at(session.database, request.at(plain.key), spot);
        let Ok(mut tx) = begun else { return false };
        session.last_command = registered.command.name;
        let reply = Reply::new(out, session.protocol);
        let result = match plain.run {
            Run::Read(handler) => handler(&tx, *request, reply),
            Run::Write(handler) => handler(&mut tx, *request, reply),
            _ => return false,
        };
        if tx.leaves_anything() {
            settle(registered.command, instance, session, &mut tx, *request, None);
            commit(session, &mut tx);
        }
        result
    };
    meter.end_tallied(registered, session, request, out.len() - mark);
    if let Err(error) = result {
        meter.failed(registered);
        instance.statistics.errors.count(error.as_bytes());
        conclude(session, Err(error), out, mark);
    }
    true
}

/// Executes any request, and does all that may have to be done before and after it.
#[inline(never)]
fn execute_any(
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) {
    let Plan { command: found, spot } = *plan;
    let mark = out.len();
    let is_plain = meter.is_plain();
    let subscriptions = session.subscriptions.total();
    let mut admitted = admit(instance, session, found, request);
    let mut is_heard = true;
    if !is_plain {
        admitted = admitted.and_then(|registered| judge(instance, session, registered, request));
        if let (Ok(registered), Some(paused)) = (&admitted, meter.paused)
            && has_to_wait(instance, session, registered, request, paused)
        {
            session.wait = Some(Wait::Pause);
            return;
        }
        match fate(instance, session, &admitted, request) {
            Fate::Spared => {}
            Fate::Unheard => is_heard = false,
            Fate::Failed(error) => admitted = Err(error),
            Fate::Withheld => return,
        }
        if admitted.is_ok() && queue(session, found, request, out) {
            conclude(session, Ok(()), out, mark);
            if !is_heard {
                out.truncate(mark);
            }
            return;
        }
    }
    let result = match admitted {
        Ok(registered) => {
            let is_tallied = meter.begin(registered, session, request);
            let ran = begin_and_run(instance, session, registered.command, request, spot, out);
            let result = match ran {
                Ok(result) => result,
                Err(contention) => return postpone(session, contention, is_heard),
            };
            if is_tallied {
                meter.end_tallied(registered, session, &request, out.len() - mark);
            } else {
                meter.end(registered, session, request);
                if meter.is_watched {
                    show(instance, session, Origin::Request, registered.command, request);
                }
            }
            if result.is_err() {
                meter.failed(registered);
            }
            result
        }
        Err(refusal) => {
            meter.refused(found.and_then(|registered| resolve(registered, request).ok()));
            Err(refused(instance, session, found, refusal))
        }
    };
    if let Err(error) = &result {
        instance.statistics.errors.count(error.as_bytes());
    }
    conclude(session, result, out, mark);
    if !is_plain {
        if !is_heard {
            out.truncate(mark);
        }
        deliver_mail(session, out, mark, subscriptions);
        answered(session, found, request);
    }
}

/// Has a request tried again once what it needs may be free. Nothing has happened yet, but that it was shown
/// to the faults.
#[cold]
fn postpone(session: &mut Session, contention: Contention, is_heard: bool) {
    session.wait = Some(Wait::Contention(contention));
    session.was_delayed = true;
    session.is_unheard = !is_heard;
}

/// Runs an admitted request on a transaction over what it needs, unless another has that for long.
fn begin_and_run(
    instance: &Instance,
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    spot: Option<Spot>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, Contention> {
    // Before the first shard is locked: whoever has the turn may wait for more of them.
    let turn = match command.scope {
        Scope::Keys | Scope::Everything => Ok(None),
        Scope::Queue | Scope::Script => take_turn(instance, session, command),
    };
    let turn = match turn {
        Ok(turn) => turn,
        Err(NotYet::Busy) => return Ok(Err(busy(instance))),
        Err(NotYet::Contended) => return Err(Contention::Turn),
    };
    if turn.as_ref().is_some_and(|turn| turn.has_waited) {
        // A script is not slow because others were.
        session.began = Instant::now();
    }
    let flushes = instance.keyspace.flushes();
    let mut tx = match begin(instance, session, command, request, spot) {
        Ok(tx) => tx,
        Err(NotNow::Busy) => return Ok(Err(busy(instance))),
        Err(NotNow::Contended(shard)) => return Err(Contention::Shard(shard)),
    };
    if session.leaves_keys_untouched {
        tx.leave_untouched();
    }
    let reply = Reply::new(out, session.protocol);
    let result = run(command, instance, session, &mut tx, request, reply, None).map(|_sent| ());
    commit(session, &mut tx);
    let garbage = tx.take_large_garbage();
    drop((tx, turn));
    if let Some(garbage) = garbage {
        free(instance, garbage);
    }
    if instance.keyspace.flushes() != flushes {
        instance.save_flushed();
    }
    Ok(result)
}

/// Frees what takes long. Only the client that asked for it waits.
#[cold]
fn free(instance: &Instance, garbage: Garbage) {
    instance.hand_over();
    drop(garbage);
}

/// Has logged what a request has changed.
fn commit(session: &mut Session, tx: &mut Transaction<'_>) {
    if let Some(end) = tx.commit() {
        session.logged = end;
    }
}

/// The turn to run scripts, where the command needs it.
#[cold]
fn take_turn<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
) -> std::result::Result<Option<Turn<'a>>, NotYet> {
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

/// Judges what rarely matters: whether the client queues what cannot be, whether there is memory, whether
/// data can be saved, whether the client may do nothing but listen, whether a script has been running for too
/// long. The order is that of Redis.
#[cold]
fn judge(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<&'static Registered> {
    check_queueing(session, registered.command)?;
    // A script that has been running for too long holds the shards that make_room would wait for.
    if !instance.keyspace.is_busy() {
        check_memory(instance, session, registered, request)?;
    }
    check_disk(instance, session, registered, request)?;
    check_listening(session, registered.command)?;
    check_busy(instance, registered.command)?;
    Ok(registered)
}

/// Whether a request that was admitted has to wait for the end of a pause.
#[cold]
fn has_to_wait(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
    paused: Paused,
) -> bool {
    paused == Paused::All || does_any(instance, session, registered, request, |intent| intent.may_replicate)
}

/// Whether a request may do something, or for EXEC whether one of those may that were queued.
fn does_any(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
    does: impl Fn(Intent) -> bool,
) -> bool {
    match &session.queue {
        Some(queue) if registered.command.scope == Scope::Queue => {
            queued(queue).any(|(registered, request)| does(intent(instance, registered.command, request)))
        }
        _ => does(intent(instance, registered.command, request)),
    }
}

/// What a fault makes of a request that was admitted, unless one has delayed it already.
#[cold]
fn fate(
    instance: &Instance,
    session: &mut Session,
    admitted: &Result<&'static Registered>,
    request: Request<'_>,
) -> Fate {
    let was_delayed = std::mem::take(&mut session.was_delayed);
    if std::mem::take(&mut session.is_unheard) {
        return Fate::Unheard;
    }
    match admitted {
        Ok(registered) if !was_delayed && instance.faults.are_planted() => {
            strike(instance, session, registered, request)
        }
        _ => Fate::Spared,
    }
}

/// Refuses what writes, and PING by which others look whether all is well, after data could not be saved.
fn check_disk(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<()> {
    let is_refused = instance.refuses_writes()
        && (registered.command.name == "ping"
            || does_any(instance, session, registered, request, |intent| intent.writes));
    if is_refused { Err(not_saved(instance)) } else { Ok(()) }
}

/// Makes room before a command that may need it. Refuses a command that needs memory where there is none, an
/// EXEC of such commands, and what a transaction would have to keep.
fn check_memory(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
    request: Request<'_>,
) -> Result<()> {
    if make_room(instance) != Room::None {
        return Ok(());
    }
    let is_refused = match (&session.queue, registered.command.name) {
        (Some(_), "discard" | "quit" | "reset") => false,
        (Some(_), name) if name != "exec" => true,
        _ => does_any(instance, session, registered, request, |intent| intent.needs_memory),
    };
    if is_refused { Err(Error::OUT_OF_MEMORY) } else { Ok(()) }
}

/// Gives a client that listens to channels, or tracks keys, what it was sent meanwhile, before the reply to
/// what it asked: that may be its own message. What may concern the reply comes after it: news of keys that
/// it has read, and of those that it has changed, and messages of a channel that it has just subscribed to,
/// beyond the `subscriptions` that it had.
#[cold]
fn deliver_mail(session: &Session, out: &mut Vec<u8>, mark: usize, subscriptions: usize) {
    let client = &session.client;
    if client.has_mail() {
        let has_read = session.tracking.as_ref().is_some_and(|tracks| tracks.has_read);
        let is_answered_first = has_read || session.subscriptions.total() > subscriptions;
        let reply = if is_answered_first { Vec::new() } else { out.split_off(mark) };
        client.take_mail(false).move_to(out);
        out.extend_from_slice(&reply);
        out.extend_from_slice(&client.take_mail_after_reply());
    }
}

/// A transaction over what the command needs; `spot` is that of the request's key, if it names exactly one.
fn begin<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<Spot>,
) -> std::result::Result<Transaction<'a>, NotNow> {
    let (keyspace, database) = (&instance.keyspace, session.database);
    if let (Some(spot), [spec]) = (spot, command.keys) {
        return keyspace.begin_at(database, request.at(spec.first), spot);
    }
    match (command.scope, command.only_key_in(request)) {
        // A script may come to hold more than the keys that it declares.
        (Scope::Keys | Scope::Script, Some(key)) => {
            keyspace.begin_at(database, key, Spot::of(keyspace.hash(key)))
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
fn begin_queued<'a>(
    keyspace: &'a Keyspace,
    session: &Session,
) -> std::result::Result<Transaction<'a>, NotNow> {
    let database = session.database;
    let Some(queue) = &session.queue else { return Ok(keyspace.begin_none(database)) };
    if queue.is_broken {
        return Ok(keyspace.begin_none(database));
    }
    if queued(queue).any(|(registered, _)| registered.command.needs_everything()) {
        return keyspace.begin_all_for_client(database);
    }
    let keys = queued(queue).flat_map(|(registered, request)| registered.command.keys_of(request));
    keyspace.begin_many(database, session.watching.keys().chain(keys.map(|(key, _)| key)))
}
