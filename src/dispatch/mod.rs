//! The way of a client's request from its plan to its reply. It is admitted, or refused, queued, delayed or
//! withheld. An engine begins a transaction over the keys that it needs. Its command runs. Then the result is
//! counted, shown to MONITOR, logged, and sent as the reply.
//!
//! Nearly every request is a brief command on one key, and nothing is special about its client or the server:
//! it takes a short cut. [`meter`] measures each batch of requests.

pub(crate) mod meter;

#[cfg(all(test, not(feature = "shuttle")))]
mod hold_times;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::clients::Paused;
use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::execution::admission::{admit, busy, does_any};
use crate::commands::execution::cost::{cost_before, cost_of};
use crate::commands::execution::origin::Origin;
use crate::commands::execution::permission::may_run;
use crate::commands::execution::placing::{Home, place};
use crate::commands::execution::run::{conclude, deliver_effects, run, run_without_keys};
use crate::commands::execution::traces::{error_bytes, show};
use crate::commands::execution::tracking::answered;
use crate::commands::facts::lookup::{Finder, Plain, PlainRun, Registered, find, resolve};
use crate::commands::facts::{Cost, Prepares, Reach, Result, Run, Scope, Taken, is_small};
use crate::commands::testing::faults::{Fate, follow_up, strike};
use crate::commands::transactions::{ended, queue, refused};
use crate::engine::all_keys;
use crate::engine::memory::{NotBegun, Unfinished, begin_transaction};
use crate::engine::off_locks::{Copies, Patience, TookLong, derive_first};
use crate::engine::remote::{self, NotAnswered};
use crate::faults::Sequel;
use crate::instance::Instance;
use crate::keyspace::{KeyLocation, Keyspace};
use crate::remote::Remote;
use crate::remote::batch::Seat;
use crate::remote::row::Key;
use crate::resp::{Reply, Request};
use crate::session::{AttemptResult, Pending, Session, Wait};

use meter::Meter;

/// The facts of a request that are known before it is executed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The command, or `None` if the name is unknown.
    command: Option<&'static Registered>,
    /// Where the entry of its key may be, if it names exactly one.
    spot: Option<KeyLocation>,
}

impl Plan {
    /// For a request, on a server without a store.
    #[inline(always)]
    pub fn new(keyspace: &Keyspace, finder: &mut Finder<'_>, request: Request<'_>) -> Plan {
        let Some(registered) = finder.find(request.name()) else { return Plan { command: None, spot: None } };
        match &registered.plain {
            Some(plain) => Plan::plain(keyspace, registered, plain, request),
            None => Plan::any(keyspace, registered, request),
        }
    }

    /// Beside a store. A request that names a key there has no spot, so that it does not take the fast path.
    pub fn beside_store(
        keyspace: &Keyspace,
        remote: &Remote,
        finder: &mut Finder<'_>,
        request: Request<'_>,
    ) -> Plan {
        let command = finder.find(request.name());
        let key = command.and_then(|registered| registered.command.only_key_in(request));
        let key = key.filter(|key| !remote.settings.store_keys.has(key));
        Plan { command, spot: key.map(|key| KeyLocation::of(keyspace.hash(key))) }
    }

    #[inline(always)]
    fn plain(
        keyspace: &Keyspace,
        registered: &'static Registered,
        plain: &Plain,
        request: Request<'_>,
    ) -> Plan {
        let spot = request.get(plain.key).map(|key| KeyLocation::of(keyspace.hash(key)));
        Plan { command: Some(registered), spot }
    }

    #[inline(never)]
    fn any(keyspace: &Keyspace, registered: &'static Registered, request: Request<'_>) -> Plan {
        if !registered.subcommands.is_empty()
            && let Ok(subcommand) = resolve(registered, request)
            && let Some(plain) = &subcommand.plain
            && (subcommand.command.keys.len() == 1 || plain.arguments.contains(&request.len()))
        {
            return Plan::plain(keyspace, subcommand, plain, request);
        }
        let command = registered.command;
        let has_keys = !command.keys.is_empty();
        let spot = has_keys.then(|| Plan::spot_of_named(keyspace, command, request)).flatten();
        Plan { command: Some(registered), spot }
    }

    #[inline(never)]
    fn spot_of_named(keyspace: &Keyspace, command: &Command, request: Request<'_>) -> Option<KeyLocation> {
        command.only_key_in(request).map(|key| KeyLocation::of(keyspace.hash(key)))
    }

    /// Whether executing it leaves the special states of server and client as they are. A script cannot call
    /// a command that does (NOSCRIPT).
    #[inline]
    fn changes_no_state(&self) -> bool {
        let Some(Registered { command, .. }) = self.command else { return false };
        matches!(command.run, Run::Read(_) | Run::Write(_) | Run::Message(_))
            || command.scope == Scope::Script
    }

    /// Fetches what it needs from memory, while other requests are executed.
    #[inline(always)]
    pub fn prepare(&mut self, keyspace: &Keyspace, database: usize) {
        if let Some(spot) = &mut self.spot {
            keyspace.touch(database, spot);
        }
    }
}

/// Executes one request and appends its reply to `out`. Returns whether the next one may follow at once.
#[inline(always)]
pub fn execute(
    instance: &Instance,
    session: &mut Session,
    request: &Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) -> bool {
    match execute_plain(instance, session, request, plan, meter, out) {
        ShortCut::Done => return true,
        ShortCut::Waits => return false,
        ShortCut::NotTaken => {}
    }
    execute_any(instance, session, *request, plan, meter, out);
    if !session.ahead.is_empty() && session.wait.is_none() {
        session.ahead.answered();
    }
    if !plan.changes_no_state() || !meter.is_still_plain() {
        meter.reload(session);
    }
    !session.is_closing && session.wait.is_none()
}

/// What became of a request on the short cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShortCut {
    /// It was executed.
    Done,
    /// It was executed. Its client waits for the rest of the reply.
    Waits,
    /// Nothing has happened yet.
    NotTaken,
}

/// Executes what nearly every request is: a brief command on one key, while neither the client nor the server
/// is in a special state. It does not take any other request, nor one that may have to be refused. It does
/// what [`execute_any`] does for such a request, and no more.
#[inline(always)]
fn execute_plain(
    instance: &Instance,
    session: &mut Session,
    request: &Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) -> ShortCut {
    let (Some(registered), Some(spot)) = (plan.command, plan.spot) else { return ShortCut::NotTaken };
    let Some(plain) = &registered.plain else { return ShortCut::NotTaken };
    if !meter.is_plain() || !plain.arguments.contains(&request.len()) || !is_small(request) {
        return ShortCut::NotTaken;
    }
    let key = request.at(plain.key);
    if !session.user.is_unrestricted() && !may_run(session, registered, *request, key) {
        return ShortCut::NotTaken;
    }
    let mark = out.len();
    let mut unfinished = None;
    let result = {
        let begun = instance.keyspace.begin_at(session.database, key, spot);
        let Ok(mut tx) = begun else { return ShortCut::NotTaken };
        if session.client.must_leave() {
            return ShortCut::NotTaken;
        }
        session.last_command = registered.command.name;
        let reply = Reply::new(out, session.protocol);
        let result = match plain.run {
            PlainRun::Read(handler) => handler(&tx, *request, reply),
            PlainRun::Write(handler) => handler(&mut tx, *request, reply),
            PlainRun::Take(blocking) => match (blocking.take)(&mut tx, *request, None, reply) {
                Ok(Taken::Something(sent)) => Ok(sent),
                Ok(Taken::Nothing(reply)) => Ok((blocking.nothing)(reply)),
                Err(error) => Err(error),
            },
            PlainRun::Fill(handler) => {
                if tx.may_serve() && !tx.hold_targets_if_free(key, request.len()) {
                    return ShortCut::NotTaken;
                }
                handler(&mut tx, *request, reply)
            }
            PlainRun::ChangePart(handler, costs) => {
                let shared = tx.long_text_shared(key);
                if shared == Some(true) || !costs.is_brief_part(request, shared.is_some()) {
                    return ShortCut::NotTaken;
                }
                handler(&mut tx, *request, reply)
            }
        };
        if tx.leaves_anything() {
            deliver_effects(registered.command, instance, session, &mut tx, *request, None);
            unfinished = Some(Unfinished::of(session, &mut tx));
        }
        result
    };
    if let Some(unfinished) = unfinished {
        unfinished.finish(instance, session, out);
        if session.wait.is_some() {
            let reply_bytes = out.len() - mark + session.missing_bytes();
            meter.end_plain(registered, session, request, reply_bytes);
            return ShortCut::Waits;
        }
    }
    meter.end_plain(registered, session, request, out.len() - mark);
    if let Err(error) = result {
        meter.failed(registered);
        instance.statistics.errors.count(error.as_bytes());
        conclude(session, Err(error), out, mark);
    }
    ShortCut::Done
}

/// Executes any request, with everything that may have to happen before and after it.
#[inline(never)]
fn execute_any(
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    plan: &Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) {
    if session.must_leave() {
        session.is_closing = true;
        return;
    }
    let Plan { command: found, spot } = *plan;
    let mark = out.len();
    let is_plain = meter.is_plain();
    let subscriptions = session.subscriptions.total();
    let mut admitted = admit(instance, session, found, request, is_plain);
    let mut sequel = None;
    if !is_plain {
        if let (Ok(registered), Some(paused)) = (&admitted, meter.paused)
            && has_to_wait(instance, session, registered, request, paused)
        {
            session.wait = Some(Wait::Pause);
            return;
        }
        match fate(instance, session, &admitted, request) {
            Fate::Spared => {}
            Fate::Followed(by) => sequel = Some(by),
            Fate::Failed(error) => admitted = Err(error),
            Fate::Withheld => return,
        }
        if let Ok(registered) = &admitted
            && queue(session, registered, request, out)
        {
            conclude(session, Ok(()), out, mark);
            if let Some(sequel) = sequel.filter(|sequel| !matches!(sequel, Sequel::LoseLock(_))) {
                follow_up(instance, session, Some(request), sequel, (out, mark));
            }
            session.is_late = false;
            return;
        }
    }
    let result = match admitted {
        Ok(registered) => {
            let is_tallied = meter.begin_command(registered, session, request);
            let ran = begin_and_run(instance, session, registered.command, request, spot, out);
            let result = match ran {
                Ok(result) => result,
                Err(wait) => return postpone(session, wait, sequel),
            };
            let reply_bytes = match &result {
                Ok(()) => out.len() - mark + session.missing_bytes(),
                Err(error) => error_bytes(error.as_bytes()),
            };
            if is_tallied {
                meter.end_tallied(registered, session, &request, reply_bytes);
            } else {
                meter.end(registered, session, request, reply_bytes);
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
            // The next request in the pipeline must not take its place.
            session.give_up_resumed();
            meter.refused(found.and_then(|registered| resolve(registered, request).ok()));
            Err(refused(instance, session, found, refusal))
        }
    };
    if let Err(error) = &result {
        instance.statistics.errors.count(error.as_bytes());
    }
    conclude(session, result, out, mark);
    if !is_plain {
        finish_struck(instance, session, request, sequel, (out, mark, subscriptions));
        answered(session, found, request);
        session.is_late = false;
    }
}

/// Delivers the client's mail with the reply, and does what a fault does after the request. Nothing comes
/// behind half a reply, and the news that a lock is lost behind the reply that grants it.
#[cold]
fn finish_struck(
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    sequel: Option<Sequel>,
    (out, mark, subscriptions): (&mut Vec<u8>, usize, usize),
) {
    let (first, last) = match sequel {
        Some(Sequel::LoseLock(_)) => (None, sequel),
        _ => (sequel, None),
    };
    let is_cut = matches!(first, Some(Sequel::Cut(_)));
    if let Some(sequel) = first {
        follow_up(instance, session, Some(request), sequel, (out, mark));
    }
    if !is_cut {
        deliver_mail(session, out, mark, subscriptions);
    }
    if let Some(sequel) = last {
        follow_up(instance, session, Some(request), sequel, (out, mark));
    }
}

/// Lets a request wait until what it needs may be free. It is tried again then. Nothing has happened yet,
/// except that the faults have seen it.
#[cold]
fn postpone(session: &mut Session, wait: Wait, sequel: Option<Sequel>) {
    session.wait = Some(wait);
    session.was_delayed = true;
    session.sequel = sequel;
}

/// Runs an admitted request on a transaction over what it needs. Returns an error if it has to wait first.
fn begin_and_run(
    instance: &Instance,
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    spot: Option<KeyLocation>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, Wait> {
    if command.reach == Reach::Process
        && let Some(first) = instance.first_sandbox()
    {
        return run_in_memory(&first, session, command, request, spot, out);
    }
    if let Some(remote) = instance.remote.get() {
        match place(&remote.settings.store_keys, instance.keyspace.databases(), session, command, request) {
            Ok(Home::Memory) => {}
            Ok(Home::Store(keys)) => {
                return run_in_store((instance, remote), session, command, request, keys, out);
            }
            Ok(Home::Everywhere) => {
                return run_everywhere((instance, remote), session, command, request, out);
            }
            Err(error) => {
                ended_if_exec(instance, session, command);
                return Ok(Err(error));
            }
        }
    }
    run_in_memory(instance, session, command, request, spot, out)
}

/// Runs an admitted request on keys in memory.
#[inline]
fn run_in_memory(
    instance: &Instance,
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    spot: Option<KeyLocation>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, Wait> {
    let cost = cost_before(session, command, request);
    if cost.is_long() && session.long.is_none() {
        return wait_for_thread(instance, session, command, cost);
    }
    let reply = Reply::new(out, session.protocol);
    if let Some(result) = run_without_keys(command, instance, session, request, reply) {
        return Ok(result.map(|_sent| ()));
    }
    let (result, rest) = {
        let refuse = |why| match why {
            NotBegun::Busy => Ok(Err(busy(instance))),
            NotBegun::Contended(contention) => Err(Wait::Contention(contention)),
        };
        let mut begun = match begin_transaction(instance, session, command, request, spot) {
            Ok(begun) => begun,
            Err(why) => return refuse(why),
        };
        if session.must_leave() {
            return Err(Wait::Leaving);
        }
        let cost = cost_of(session, command, &begun.tx, request);
        let mut patience = Patience::Client;
        if cost.is_long() && session.long.is_none() {
            if !cost.may_be_tried() {
                drop(begun);
                return wait_for_thread(instance, session, command, cost);
            }
            patience = Patience::Moment;
        }
        if cost.is_long()
            && !cost.only_reads
            && let Prepares::Derived(derive) = command.prepares
        {
            derive_first(derive, instance, session, command, &mut begun.tx, request)?;
        }
        if cost.copies_shared
            && let Err(why) = begun.copy_shared(instance, session, command, request, spot)
        {
            return refuse(why);
        }
        if let Err(why) = begun.hold_targets(session, command, request) {
            return refuse(why);
        }
        let mark = out.len();
        let reply = Reply::new(out, session.protocol);
        let result = match Copies::of(instance, command, &begun.tx, request, &cost) {
            Some(copies) => {
                let how = (command, patience);
                copies.run_unlocked(how, instance, session, &mut begun.tx, request, reply)
            }
            None if patience == Patience::Moment => Err(TookLong),
            None => Ok(run(command, instance, session, &mut begun.tx, request, reply, None)),
        };
        let Ok(result) = result.map(|result| result.map(|_sent| ())) else {
            drop(begun);
            out.truncate(mark);
            return wait_for_thread(instance, session, command, cost);
        };
        if session.outbox.is_some() {
            instance.follow_collected(session, request);
        }
        let rest = begun.end(session);
        // With appendfsync always, other clients hear of changes when these are durable.
        if session.outbox.is_some() {
            instance.deliver(session, request);
        }
        (result, rest)
    };
    rest.finish(instance, session, out);
    ended_if_exec(instance, session, command);
    if session.migration.is_some()
        && let Some(wait) = session.wait.take_if(|wait| *wait == Wait::Migration)
    {
        return Err(wait);
    }
    if session.long.is_some() && session.wait.is_none() {
        session.wait = Some(Wait::Turn);
    }
    Ok(result)
}

/// Lets a request that takes long wait for a thread for such requests. Returns its error if the results of
/// others take too much memory already.
#[cold]
fn wait_for_thread(
    instance: &Instance,
    session: &mut Session,
    command: &Command,
    cost: Cost,
) -> std::result::Result<Result<()>, Wait> {
    let bytes_max = instance.long_replies_bytes_max();
    // What it derives from other values is about as large as these.
    let derives = matches!(command.prepares, Prepares::Derived(_)) && !cost.only_reads;
    let bytes = (cost.reply_bytes, if derives { cost.bytes } else { 0 });
    match instance.long_requests.admit(&session.client, bytes, cost.is_repeated, bytes_max) {
        Ok(mut long) => {
            let may_write = command.replicates() || command.scope == Scope::Queue;
            long.outlives_client = may_write && !cost.only_reads;
            session.long = Some(Box::new(long));
            Err(Wait::Long)
        }
        Err(_too_much) => {
            ended_if_exec(instance, session, command);
            Ok(Err(Error::fixed(
                "BUSY Too many long requests: their results would take more than long-requests-memory. Try \
                 again later, or ask for less at once.",
            )))
        }
    }
}

/// Ends the transaction that EXEC has run or refused.
fn ended_if_exec(instance: &Instance, session: &mut Session, command: &Command) {
    if command.scope == Scope::Queue {
        ended(instance, session);
    }
}

/// The error for a request that concerns all keys in memory.
const ALL_KEYS_TAKEN: &str = "TRYAGAIN Another client has all keys for long";

/// Runs an admitted request that concerns all keys, in memory and in the store.
#[cold]
fn run_everywhere(
    (instance, remote): (&Instance, &Arc<Remote>),
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, Wait> {
    let cost = cost_before(session, command, request);
    if cost.is_long() && session.long.is_none() {
        return wait_for_thread(instance, session, command, cost);
    }
    let in_memory = |session: &mut Session, out: &mut Vec<u8>| {
        let ran = run_in_memory(instance, session, command, request, None, out);
        ran.unwrap_or(Err(Error::fixed(ALL_KEYS_TAKEN)))
    };
    match all_keys::execute(remote, session, command, request, in_memory, out) {
        Ok(result) => Ok(result),
        Err(_not_answered) => Err(Wait::Store),
    }
}

/// Runs an admitted request on keys in the store. Returns an error if it has to wait first.
#[cold]
fn run_in_store(
    place: (&Instance, &Arc<Remote>),
    session: &mut Session,
    command: &'static Command,
    request: Request<'_>,
    keys: Vec<Key>,
    out: &mut Vec<u8>,
) -> std::result::Result<Result<()>, Wait> {
    let result = match remote::execute(place, session, command, request, keys, out) {
        Ok(result) => result,
        Err(NotAnswered::Busy) => Err(busy(place.0)),
        Err(NotAnswered::Store) => return Err(Wait::Store),
        Err(NotAnswered::Contended(contention)) => return Err(Wait::Contention(contention)),
    };
    ended_if_exec(place.0, session, command);
    Ok(result)
}

/// The most requests that travel beside one of their client.
const AHEAD_MAX: usize = 256;
/// The most bytes of their replies, about.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// How long they run at most, about: other clients wait for the thread.
const AHEAD_TIME_MAX: Duration = Duration::from_millis(2);

/// Lets the store begin with a request that waits for it. Requests behind it in the client's pipeline travel
/// with it, as long as they only read or write keys in the store. The store does all of them or none, so it
/// does none before those in front of it.
#[cold]
pub(crate) fn set_off<'r>(
    instance: &Instance,
    session: &mut Session,
    meter: &mut Meter<'_>,
    requests: impl Iterator<Item = Request<'r>>,
) {
    let Some(remote) = instance.remote.get() else { return };
    let seat = session.pending.as_ref().and_then(|pending| pending.seat_for_others());
    if let Some(seat) = seat.filter(|_| session.ahead.is_empty()) {
        let was_delayed = std::mem::take(&mut session.was_delayed);
        meter.reload(session);
        if meter.is_plain() && session.user.is_unrestricted() {
            let (began, mut reply_bytes) = (Instant::now(), 0);
            for request in requests.take(AHEAD_MAX) {
                let Some(pending) = run_ahead((instance, remote), session, request, seat) else { break };
                reply_bytes += pending.result.as_ref().map_or(0, AttemptResult::reply_bytes);
                session.ahead.push(pending);
                if reply_bytes > AHEAD_BYTES_MAX || began.elapsed() > AHEAD_TIME_MAX {
                    break;
                }
            }
        }
        session.was_delayed = was_delayed;
    }
    remote.set_off();
}

/// Runs a request of which nothing is special, if it can travel beside another one.
fn run_ahead(
    (instance, remote): (&Instance, &Arc<Remote>),
    session: &mut Session,
    request: Request<'_>,
    beside: Seat,
) -> Option<Box<Pending>> {
    let registered = admit(instance, session, find(&instance.names, request.name()), request, true).ok()?;
    let command = registered.command;
    if !matches!(command.run, Run::Read(_) | Run::Write(_)) {
        return None;
    }
    match place(&remote.settings.store_keys, instance.keyspace.databases(), session, command, request) {
        Ok(Home::Store(keys)) => {
            remote::run_ahead((instance, remote), session, command, request, keys, beside)
        }
        _ => None,
    }
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

/// What a fault does to an admitted request. A request that a fault has delayed already is spared.
#[cold]
fn fate(
    instance: &Instance,
    session: &mut Session,
    admitted: &Result<&'static Registered>,
    request: Request<'_>,
) -> Fate {
    let was_delayed = std::mem::take(&mut session.was_delayed);
    if let Some(sequel) = session.sequel.take() {
        return Fate::Followed(sequel);
    }
    match admitted {
        Ok(registered) if !was_delayed && instance.faults.are_planted() => {
            strike(instance, session, registered, request)
        }
        _ => Fate::Spared,
    }
}

/// Writes a client's mail into its output. Messages of others come before the reply. What may concern the
/// reply comes after it: messages that the command itself has sent, news of keys that the client has read or
/// changed, and messages of a channel that it has just subscribed to, which it shows by more than the
/// `subscriptions` it had.
#[cold]
fn deliver_mail(session: &mut Session, out: &mut Vec<u8>, mark: usize, subscriptions: usize) {
    let client = Arc::clone(&session.client);
    if client.has_mail() {
        let has_read = session.tracking.as_ref().is_some_and(|tracks| tracks.has_read);
        let is_answered_first = has_read || session.subscriptions.total() > subscriptions;
        let reply = if is_answered_first { Vec::new() } else { out.split_off(mark) };
        client.take_mail(false).move_to(out);
        if !reply.is_empty() {
            session.shift_reply(out.len() - mark);
        }
        out.extend_from_slice(&reply);
        out.extend_from_slice(&client.take_mail_after_reply());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::{Address, Leaving, Registration};
    use crate::commands::facts::LONG_COPY_BYTES;
    use crate::commands::facts::lookup::{find, own_names};
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::Hooks;
    use crate::pubsub::ChannelKind;
    use crate::resp::OwnedRequest;

    /// A server without sockets, and one client of it.
    pub(super) fn server() -> (Instance, Session, Registration) {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let (session, registration) = client(&instance);
        (instance, session, registration)
    }

    fn client(instance: &Instance) -> (Session, Registration) {
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        (Session::new(registration.client.clone(), &instance.users), registration)
    }

    /// Returns the mail of a client.
    fn mail(session: &Session) -> String {
        let mut bytes = Vec::new();
        session.client.take_mail(true).move_to(&mut bytes);
        String::from_utf8(bytes).expect("text")
    }

    /// Executes requests as a client sends them; returns the replies.
    fn say(instance: &Instance, session: &mut Session, lines: &[&str]) -> String {
        let (mut meter, mut out) = (Meter::new(instance), Vec::new());
        for line in lines {
            meter.reload(session);
            say_one(instance, session, line, &mut meter, &mut out);
        }
        meter.finish(session);
        String::from_utf8(out).expect("text")
    }

    /// Executes one of a batch.
    fn say_one(
        instance: &Instance,
        session: &mut Session,
        line: &str,
        meter: &mut Meter<'_>,
        out: &mut Vec<u8>,
    ) {
        let request = OwnedRequest::of_line(line.as_bytes()).expect("a line");
        let request = request.request().expect("a request");
        let plan = Plan::new(&instance.keyspace, &mut Finder::new(&instance.names), request);
        execute(instance, session, &request, &plan, meter, out);
    }

    /// Runs EXEC's handler. Then undoes what it did, as if the commit had been overtaken.
    fn run_exec_in_vain(instance: &Instance, session: &mut Session) -> String {
        let request = OwnedRequest::of_line(b"EXEC").expect("a line");
        let (request, command) =
            (request.request().expect("a request"), find(own_names(), b"exec").expect("EXEC").command);
        let mut begun =
            begin_transaction(instance, session, command, request, None).expect("nothing is in its way");
        let mut out = Vec::new();
        let reply = Reply::new(&mut out, session.protocol);
        let result = run(command, instance, session, &mut begun.tx, request, reply, None);
        assert!(result.is_ok());
        drop(begun);
        session.outbox = None;
        instance.keyspace.begin_all(0).expect("nothing is in its way").flush_database();
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_others_have_done_during_a_long_command_concerns_the_next_one() {
        let (instance, mut session, _registration) = server();
        let (mut meter, mut out) = (Meter::new(&instance), Vec::new());
        meter.reload(&session);
        instance.clients.pause.begin(Instant::now() + Duration::from_secs(60), Paused::Writes);
        for line in ["EVAL 'for i = 1, 5000000 do end return 1' 0", "SET k v"] {
            say_one(&instance, &mut session, line, &mut meter, &mut out);
        }
        assert_eq!((out.as_slice(), session.wait), (&b":1\r\n"[..], Some(Wait::Pause)));
    }

    #[test]
    fn exec_can_run_again_until_the_engine_has_committed_it() {
        let (instance, mut session, _registration) = server();
        let queued = [
            "WATCH other",
            "MULTI",
            "SETNX k v",
            "GET k",
            "UNWATCH",
            "EVAL 'return redis.call(\"incr\",\"n\")' 0",
        ];
        say(&instance, &mut session, &queued);
        let expected = "*4\r\n:1\r\n$1\r\nv\r\n+OK\r\n:1\r\n";
        for _ in 0..3 {
            assert_eq!(run_exec_in_vain(&instance, &mut session), expected);
            assert!(session.runs_queue() && !session.may_not_wait && !session.watching.is_empty());
        }
        assert_eq!(say(&instance, &mut session, &["EXEC", "GET k"]), [expected, "$1\r\nv\r\n"].concat());
        assert!(session.queue.is_none() && session.watching.is_forgotten());
        let without = "-ERR EXEC without MULTI\r\n";
        assert_eq!(say(&instance, &mut session, &["EXEC"]), without);
    }

    #[test]
    fn nothing_is_sent_until_exec_is_committed_and_then_everything_once() {
        let (instance, mut session, _registration) = server();
        let ((mut listener, _listens), (mut reader, _reads)) = (client(&instance), client(&instance));
        say(&instance, &mut session, &["CONFIG SET notify-keyspace-events Kg$"]);
        say(&instance, &mut listener, &["HELLO 3", "SUBSCRIBE c", "PSUBSCRIBE __keyspace@0__:*"]);
        say(&instance, &mut reader, &["HELLO 3", "CLIENT TRACKING ON", "GET k"]);
        let calls = "EVAL 'redis.call(\"del\",\"k\") return redis.call(\"publish\",\"c\",\"2\")' 0";
        say(&instance, &mut session, &["MULTI", "PUBLISH c 1", "SETNX k v", calls, "PUBLISH c 3"]);
        let expected = "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n";
        for _ in 0..3 {
            assert_eq!(run_exec_in_vain(&instance, &mut session), expected);
            assert_eq!(mail(&listener), "");
        }
        assert_eq!(mail(&reader), "");
        let taken = instance.lens.stats(0).taken;
        assert_eq!((say(&instance, &mut session, &["EXEC"]), taken), (expected.to_owned(), 0));
        let message = |text: &str| format!(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n{text}\r\n");
        let event = |name: &str| {
            let pattern = ">4\r\n$8\r\npmessage\r\n$16\r\n__keyspace@0__:*\r\n";
            format!("{pattern}$16\r\n__keyspace@0__:k\r\n${}\r\n{name}\r\n", name.len())
        };
        let all = [message("1"), event("set"), event("del"), message("2"), message("3")];
        assert_eq!(mail(&listener), all.concat());
        assert_eq!(mail(&reader), ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
        assert_eq!(instance.lens.stats(0).taken, 1);
    }

    #[test]
    fn letters_count_for_the_receivers_limits_until_they_are_sent_or_dropped() {
        let (instance, mut session, _registration) = server();
        let (mut listener, _listens) = client(&instance);
        say(&instance, &mut session, &["CONFIG SET client-output-buffer-limit 'pubsub 40000 0 0'"]);
        say(&instance, &mut listener, &["SUBSCRIBE c"]);
        let text = "x".repeat(10_000);
        let publish = format!("PUBLISH c {text}");
        say(&instance, &mut session, &["MULTI", &publish, &publish, &publish]);
        for _ in 0..3 {
            run_exec_in_vain(&instance, &mut session);
        }
        assert_eq!(say(&instance, &mut session, &["EXEC"]), "*3\r\n:1\r\n:1\r\n:1\r\n");
        assert!(listener.client.leaving() == Leaving::Not && mail(&listener).len() > 30_000);
        say(&instance, &mut session, &["MULTI", &publish, &publish, &publish, &publish]);
        say(&instance, &mut session, &["EXEC"]);
        assert!(listener.client.leaving() == Leaving::Now, "it was sent more than it may have");
    }

    #[test]
    fn a_client_that_has_stopped_listening_gets_no_letter_but_its_own() {
        let (instance, mut session, _registration) = server();
        let (mut listener, _listens) = client(&instance);
        say(&instance, &mut listener, &["SUBSCRIBE c"]);
        let own =
            say(&instance, &mut session, &["MULTI", "SUBSCRIBE c", "PUBLISH c m", "UNSUBSCRIBE c", "EXEC"]);
        assert!(own.contains("$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"), "{own}");
        assert!(!mail(&listener).is_empty());
        session.may_not_wait = true;
        assert_eq!(instance.publish(&mut session, ChannelKind::Channel, b"c", b"m"), 1);
        session.may_not_wait = false;
        say(&instance, &mut listener, &["UNSUBSCRIBE c"]);
        let request = OwnedRequest::of_line(b"EXEC").expect("a line");
        instance.deliver(&mut session, request.request().expect("a request"));
        assert_eq!(mail(&listener), "");
    }

    #[test]
    fn messages_come_whole_before_a_reply_that_is_completed_later() {
        let (instance, mut session, _registration) = server();
        let (mut other, _others) = client(&instance);
        let (bytes, hello) = (LONG_COPY_BYTES, "HELLO 3");
        say(&instance, &mut session, &[hello, "SUBSCRIBE c", &format!("SETRANGE text {} x", bytes - 1)]);
        say(&instance, &mut other, &["PUBLISH c message"]);
        let reply = say(&instance, &mut session, &["GET text"]);
        assert_eq!(session.wait.take(), Some(Wait::Reply));
        let mut whole = reply.into_bytes();
        session.long.take().expect("it waits for a thread").complete(&mut whole);
        let message = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$7\r\nmessage\r\n";
        let head = format!("${bytes}\r\n");
        assert!(whole.starts_with(&[message, head.as_bytes()].concat()) && whole.ends_with(b"\0x\r\n"));
        assert_eq!(whole.len(), message.len() + head.len() + bytes + "\r\n".len());
    }

    #[test]
    fn a_transaction_that_does_nothing_ends_as_well() {
        let (instance, mut session, _registration) = server();
        let overtaken = ["WATCH k", "SET k 1", "MULTI", "SET k 2", "EXEC", "GET k"];
        assert!(say(&instance, &mut session, &overtaken).ends_with("+QUEUED\r\n*-1\r\n$1\r\n1\r\n"));
        assert!(session.queue.is_none() && session.watching.is_forgotten());
        let broken = ["WATCH k", "MULTI", "SET k", "EXEC", "GET k"];
        assert!(say(&instance, &mut session, &broken).contains("-EXECABORT "));
        assert!(session.queue.is_none() && session.watching.is_forgotten());
    }
}
