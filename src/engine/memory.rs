//! The engine whose data is in this process: takes the locks, runs the command, lets go.

use std::time::Instant;

use crate::clients::Paused;
use crate::commands::Command;
use crate::commands::command::{Flags, Result, Run, Scope};
use crate::commands::error::Error;
use crate::commands::execute::{
    admit, busy, check_busy, check_listening, conclude, not_saved, resolve, run, settle,
};
use crate::commands::faults::{Fate, strike};
use crate::commands::lookup::{Finder, Registered};
use crate::commands::permission::Origin;
use crate::commands::traces::{is_small, show};
use crate::commands::tracking::answered;
use crate::commands::transactions::{check_queueing, queue, queued, refused};
use crate::instance::Instance;
use crate::keyspace::{Busy, Keyspace, Spot, Transaction};
use crate::resp::{Reply, Request};
use crate::scripting::Turn;
use crate::session::Session;

use super::meter::Meter;
use super::room::make_room;

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

    /// Whether the request has to wait for the end of a pause.
    pub fn has_to_wait(&self, session: &Session, paused: Paused) -> bool {
        let Some(registered) = self.command else { return paused == Paused::All };
        let writes = match (&session.queue, registered.command.scope) {
            (Some(queue), Scope::Queue) => {
                queued(queue).any(|(registered, _)| registered.command.may_write())
            }
            // What is only queued does nothing yet.
            (Some(_), _) => false,
            (None, _) => registered.command.may_write(),
        };
        paused == Paused::All || writes
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
            commit(registered.command, session, &mut tx, *request);
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
    let mut admitted = admit(instance, session, found, request);
    let mut is_heard = true;
    if !is_plain {
        admitted = admitted.and_then(|registered| judge(instance, session, registered));
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
            let result = begin_and_run(instance, session, registered.command, request, spot, out);
            if is_tallied {
                meter.end_tallied(registered, session, &request, out.len() - mark);
            } else {
                meter.end(registered, session, request);
                if meter.is_watched && result.is_ok() {
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
        deliver_mail(session, out, mark);
        answered(session, found, request);
    }
}

/// Runs an admitted request on a transaction over what it needs.
fn begin_and_run(
    instance: &Instance,
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    spot: Option<Spot>,
    out: &mut Vec<u8>,
) -> Result<()> {
    // Before the first shard is locked: whoever has the turn may wait for more of them.
    let turn = match command.scope {
        Scope::Keys | Scope::Everything => None,
        Scope::Queue | Scope::Script => take_turn(instance, session, command)?,
    };
    if turn.as_ref().is_some_and(|turn| turn.has_waited) {
        // A script is not slow because others were.
        session.began = Instant::now();
    }
    let mut tx = begin(instance, session, command, request, spot).map_err(|Busy| busy(instance))?;
    if session.leaves_keys_untouched {
        tx.leave_untouched();
    }
    let reply = Reply::new(out, session.protocol);
    let result = run(command, instance, session, &mut tx, request, reply, None).map(|_sent| ());
    commit(command, session, &mut tx, request);
    result
}

/// Has written down what a request has changed.
fn commit(command: &Command, session: &mut Session, tx: &mut Transaction<'_>, request: Request<'_>) {
    if let Some(end) = tx.commit(Some((command.name, request))) {
        session.logged = end;
    }
}

/// The turn to run scripts, where the command needs it.
#[cold]
fn take_turn<'a>(instance: &'a Instance, session: &Session, command: &Command) -> Result<Option<Turn<'a>>> {
    let runs_script = match (&session.queue, command.scope) {
        (Some(queue), Scope::Queue) => {
            queued(queue).any(|(registered, _)| registered.command.scope == Scope::Script)
        }
        (_, scope) => scope == Scope::Script,
    };
    if !runs_script {
        return Ok(None);
    }
    instance.scripting.take_turn().map(Some).ok_or_else(|| busy(instance))
}

/// Judges what rarely matters: whether there is memory, whether a script has been running for too long,
/// whether the client may do nothing but listen, or queues what cannot be.
#[cold]
fn judge(
    instance: &Instance,
    session: &Session,
    registered: &'static Registered,
) -> Result<&'static Registered> {
    // First this: whoever makes room would wait for the shards that a script holds.
    check_busy(instance, registered.command)?;
    check_disk(instance, session, registered.command)?;
    check_memory(instance, registered)?;
    check_listening(session, registered.command)?;
    check_queueing(session, registered.command)?;
    Ok(registered)
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
    match admitted {
        Ok(registered) if !was_delayed && instance.faults.are_planted() => {
            strike(instance, session, registered, request)
        }
        _ => Fate::Spared,
    }
}

/// Refuses what writes, and PING by which others look whether all is well, after data could not be saved.
fn check_disk(instance: &Instance, session: &Session, command: &Command) -> Result<()> {
    let is_refused = instance.refuses_writes()
        && match &session.queue {
            Some(waiting) if command.scope == Scope::Queue => {
                queued(waiting).any(|(registered, _)| registered.command.writes())
            }
            _ => command.writes() || command.name == "ping",
        };
    if is_refused { Err(not_saved(instance)) } else { Ok(()) }
}

/// Makes room before a command that may need it; refuses one that does where there is none to be had.
fn check_memory(instance: &Instance, registered: &'static Registered) -> Result<()> {
    match instance.config.maxmemory.size() {
        0 => Ok(()),
        limit_bytes if !make_room(instance, limit_bytes) => Ok(()),
        _ if registered.command.flags.contains(Flags::DENYOOM) => Err(Error::OUT_OF_MEMORY),
        _ => Ok(()),
    }
}

/// Gives a client that listens to channels, or tracks keys, what it was sent meanwhile, before the reply to
/// what it asked: that may be its own message. Only what may concern a value in the reply comes after it: of
/// keys that it has read, and those that it has changed.
#[cold]
fn deliver_mail(session: &Session, out: &mut Vec<u8>, mark: usize) {
    let mail = session.client.mail();
    if mail.is_waiting() {
        let has_read = session.tracking.as_ref().is_some_and(|tracks| tracks.has_read);
        let reply = if has_read { Vec::new() } else { out.split_off(mark) };
        mail.take(out);
        out.extend_from_slice(&reply);
        mail.take_after_reply(out);
    }
}

/// A transaction over what the command needs; `spot` is that of the request's key, if it names exactly one.
fn begin<'a>(
    instance: &'a Instance,
    session: &Session,
    command: &Command,
    request: Request<'a>,
    spot: Option<Spot>,
) -> std::result::Result<Transaction<'a>, Busy> {
    let (keyspace, database) = (&instance.keyspace, session.database);
    if let (Some(spot), [spec]) = (spot, command.keys) {
        return keyspace.begin_at(database, request.at(spec.first), spot);
    }
    match (command.scope, command.only_key_in(request)) {
        // A script may come to hold more than the keys that it declares.
        (Scope::Keys | Scope::Script, Some(key)) => keyspace.begin(database, key),
        (Scope::Keys | Scope::Script, None) => {
            let keys = command.keys_of(request).map(|(key, _)| key);
            match keys.clone().next() {
                Some(_) => keyspace.begin_many(database, keys),
                None => Ok(keyspace.begin_none(database)),
            }
        }
        (Scope::Everything, _) => keyspace.begin_all(database),
        (Scope::Queue, _) => begin_queued(keyspace, session),
    }
}

/// A transaction over what the commands need that a client has queued, and over the keys that it watches.
fn begin_queued<'a>(keyspace: &'a Keyspace, session: &Session) -> std::result::Result<Transaction<'a>, Busy> {
    let database = session.database;
    let Some(queue) = &session.queue else { return Ok(keyspace.begin_none(database)) };
    if queue.is_broken {
        return Ok(keyspace.begin_none(database));
    }
    if queued(queue).any(|(registered, _)| registered.command.needs_everything()) {
        return keyspace.begin_all(database);
    }
    let keys = queued(queue).flat_map(|(registered, request)| registered.command.keys_of(request));
    keyspace.begin_many(database, session.watching.keys().chain(keys.map(|(key, _)| key)))
}
