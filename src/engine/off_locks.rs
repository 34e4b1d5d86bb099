//! What takes long runs here, while it holds no lock.
//!
//! What a request reads is copied into a keyspace that holds nothing else. That takes no time: a copy of
//! a large value shares its nodes. Then the locks are free, so other clients use the keys meanwhile. The
//! copies are those of one moment, at which their clock stands.
//!
//! A request that only reads runs on the copies. If its client leaves meanwhile, the work ends: nothing but
//! the copies is in its hands. So does the work of a request that may be brief, and turns out not to be
//! ([`Patience::Moment`]): it begins again on a thread for long requests.
//!
//! A request that stores what it derives from other keys ([`Prepares::Derived`]) derives it from the copies,
//! and begins again: it is admitted once more, locks its keys, and stores what was derived if the keys that
//! it has read are as they were. If not, it derives it anew; after [`DERIVED_TIMES_MAX`] times it does so
//! under its locks.
//!
//! EXEC and scripts hold their locks to the end, and what they read is read under them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cancel::{self, Cancelled};
use crate::clients::Leaving;
use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::execution::run::handle;
use crate::commands::execution::tracking::remember;
use crate::commands::facts::{Cost, Derive, Derived, KeyFlags, Prepares, Result};
use crate::instance::{Doer, Instance, Scratch};
use crate::keyspace::{KeyspaceCounters, Prepared, Transaction};
use crate::platform::sockets::has_hung_up;
use crate::resp::{Reply, Request};
use crate::session::{Session, Wait};
use crate::values::LONG_TEXT_BYTES;

/// For how long a request may run on copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as its client waits.
    Client,
    /// For a moment: other clients wait for this thread.
    Moment,
}

/// A request has taken longer than a moment. It has done nothing, and is to begin again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TookLong;

/// How often a request derives what it stores while others may change what it has read.
const DERIVED_TIMES_MAX: u32 = 3;

/// Copies of what a request reads.
#[derive(Debug)]
pub(crate) struct Copies {
    scratch: Scratch,
}

/// What a request stores, for when it begins again.
#[derive(Debug)]
struct DerivedBefore {
    /// From what it was derived.
    copies: Copies,
    derived: Result<Arc<Derived>>,
    /// How often it was derived.
    times: u32,
    /// How long that has taken in all.
    took: Duration,
}

impl Copies {
    /// Copies what a request reads, if it reads much of a large value, or of a small one many times. If
    /// something has expired, the request shall free it, so it runs on the keyspace itself.
    #[inline(always)]
    pub(crate) fn of(
        instance: &Instance,
        command: &Command,
        tx: &Transaction<'_>,
        request: Request<'_>,
        cost: &Cost,
    ) -> Option<Copies> {
        let reads_much = cost.only_reads && (cost.bytes >= LONG_TEXT_BYTES as u64 || cost.is_long());
        if reads_much { Copies::of_large(instance, command, tx, request) } else { None }
    }

    #[inline(never)]
    fn of_large(
        instance: &Instance,
        command: &Command,
        tx: &Transaction<'_>,
        request: Request<'_>,
    ) -> Option<Copies> {
        if command.keys.is_empty() || command.leaves_keys_unnamed(request) || tx.has_seen_expired() {
            return None;
        }
        let scratch = instance.scratches.take(instance, tx.now_ms());
        scratch.keyspace.set_compresses_dumps(instance.keyspace.compresses_dumps());
        let mut copies = scratch.keyspace.begin_alone(tx.database());
        read_by(command, request).for_each(|key| tx.copy_to(&mut copies, key));
        copies.commit();
        drop(copies);
        Some(Copies { scratch })
    }

    /// Runs the request on them, and unlocks everything before.
    ///
    /// # Errors
    ///
    /// [`TookLong`]. What is returned may be an error of the command.
    #[cold]
    pub(crate) fn run_unlocked(
        self,
        (command, patience): (&'static Command, Patience),
        instance: &Instance,
        session: &mut Session,
        tx: &mut Transaction<'_>,
        request: Request<'_>,
        reply: Reply<'_>,
    ) -> std::result::Result<Result, TookLong> {
        if session.tracking.is_some() {
            // The client gets an invalidation for each change of these keys from now on.
            remember(instance, session, command, request);
        }
        tx.let_go();
        let mut copies = self.scratch.keyspace.begin_alone(tx.database());
        let before = counts(&copies);
        let wanted = is_wanted(session);
        let work = || handle(command, instance, session, &mut copies, request, reply, None);
        let handled = match patience {
            Patience::Client => cancel::while_wanted(wanted, work),
            Patience::Moment => cancel::for_a_moment(work),
        };
        let sent = match handled {
            Ok(sent) => Ok(sent),
            Err(Cancelled) if patience == Patience::Moment => Err(TookLong),
            Err(Cancelled) => {
                session.is_closing = true;
                session.long.iter_mut().for_each(|long| long.was_cancelled = true);
                Ok(Err(Error::fixed("ERR The client has gone")))
            }
        };
        if sent.is_ok() {
            count(instance, session, (command, request), &mut copies, before);
        }
        drop(copies);
        self.give_back(instance, command, tx.database(), request);
        sent
    }

    /// Whether all is still there as it was copied.
    fn are_there(&self, command: &Command, tx: &Transaction<'_>, request: Request<'_>) -> bool {
        let copies = self.scratch.keyspace.begin_alone(tx.database());
        read_by(command, request).all(|key| tx.is_as_copied(&copies, key))
    }

    /// Keeps their keyspace for others.
    fn give_back(self, instance: &Instance, command: &Command, database: usize, request: Request<'_>) {
        let mut copies = self.scratch.keyspace.begin_alone(database);
        read_by(command, request).for_each(|key| _ = copies.remove(key));
        copies.commit();
        drop(copies.take_effects());
        if let Some(garbage) = copies.take_large_garbage() {
            instance.free(garbage);
        }
        drop(copies);
        instance.scratches.give_back(self.scratch);
    }
}

/// Has a long request derive what it stores from copies, while nothing is locked. Returns once the request
/// may run: its transaction has what was derived before, unless the handler is to do it under the locks.
///
/// # Errors
///
/// [`Wait::Long`] if it has been derived now, and [`Wait::Leaving`] if the client was asked to leave
/// meanwhile. The transaction holds nothing any more.
#[cold]
pub(crate) fn derive_first(
    derive: Derive,
    instance: &Instance,
    session: &mut Session,
    command: &'static Command,
    tx: &mut Transaction<'_>,
    request: Request<'_>,
) -> std::result::Result<(), Wait> {
    let Some(long) = &mut session.long else { return Ok(()) };
    let before = long.derived.take().and_then(|before| before.downcast::<DerivedBefore>().ok());
    let (mut times, mut took) = (0, Duration::ZERO);
    if let Some(before) = before {
        let DerivedBefore { copies, derived, .. } = *before;
        (times, took) = (before.times, before.took);
        let are_there = copies.are_there(command, tx, request);
        copies.give_back(instance, command, tx.database(), request);
        if are_there {
            tx.add_prepared(match derived {
                Ok(derived) => Prepared::value(request.name(), derived),
                Err(error) => Prepared::value(request.name(), Arc::new(error)),
            });
        }
        if are_there || times == DERIVED_TIMES_MAX {
            session.took_before_wait = took;
            return Ok(());
        }
    }
    let Some(copies) = Copies::of_large(instance, command, tx, request) else {
        session.took_before_wait = took;
        return Ok(());
    };
    tx.let_go();
    let began = Instant::now();
    let mut copied = copies.scratch.keyspace.begin_alone(tx.database());
    let (before, client) = (counts(&copied), Arc::clone(&session.client));
    // It ends by CLIENT KILL alone: others shall see what a client has asked for that has left.
    let derived = cancel::while_wanted(move || !client.must_leave(), || derive(&copied, request));
    if times == 0 {
        count(instance, session, (command, request), &mut copied, before);
    }
    drop(copied);
    let Ok(derived) = derived else {
        copies.give_back(instance, command, tx.database(), request);
        return Err(Wait::Leaving);
    };
    (times, took) = (times + 1, took + began.elapsed());
    if let Some(long) = &mut session.long {
        long.note_made(derived.as_ref().map_or(0, Derived::bytes));
        let derived = derived.map(Arc::new);
        long.derived = Some(Box::new(DerivedBefore { copies, derived, times, took }));
    }
    Err(Wait::Long)
}

/// The keys that a request reads. Those that it overwrites are not copied.
fn read_by<'a>(command: &Command, request: Request<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
    let stores = matches!(command.prepares, Prepares::Derived(_));
    let keys = command.keys_of(request).filter(move |(_, flags)| !stores || !flags.contains(KeyFlags::OW));
    keys.map(|(key, _)| key)
}

/// Counts what was read of copies, and lets others know of it.
fn count(
    instance: &Instance,
    session: &mut Session,
    (command, request): (&'static Command, Request<'_>),
    copies: &mut Transaction<'_>,
    before: KeyspaceCounters,
) {
    let (effects, after) = (copies.take_effects(), counts(copies));
    instance.keyspace.count_reads_of_copies(after.hits - before.hits, after.misses - before.misses);
    if !effects.is_empty() {
        instance.follow(&effects, Doer { session, command: command.for_lens(), request });
        instance.notify(effects, Some(session.client.id));
    }
}

/// Whether the client of a long request still waits for its reply.
fn is_wanted(session: &Session) -> impl FnMut() -> bool + 'static {
    let client = Arc::clone(&session.client);
    let socket = session.long.as_ref().and_then(|long| long.socket.as_ref()?.try_clone().ok());
    move || client.leaving() == Leaving::Not && !socket.as_ref().is_some_and(has_hung_up)
}

/// The counts of an scratch since it was made.
fn counts(tx: &Transaction<'_>) -> KeyspaceCounters {
    tx.everything().map(|all| all.counters()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::Address;
    use crate::commands::facts::{Context, Costs, KeyFlags, KeySpec, Run};
    use crate::commands::known;
    use crate::config::Config;
    use crate::engine::memory::begin_transaction;
    use crate::instance::Hooks;
    use crate::keyspace::Expiry;
    use crate::resp::OwnedRequest;
    use crate::types::strings::Text;

    /// Deletes its key in the server's keyspace, and replies with the length that it had.
    const LOOK: &Command = &Command {
        name: "look",
        keys: &[KeySpec::first(KeyFlags::RO)],
        cost: Costs::of(|estimate| estimate.reading(u64::MAX)),
        run: Run::Server(look),
        ..Command::DEFAULTS
    };

    fn look(context: &mut Context<'_, '_>, request: Request<'_>, reply: Reply<'_>) -> Result {
        let mut other = context.instance.keyspace.begin_all(0).expect("nothing is in its way");
        assert!(other.remove(request.at(1)));
        drop(other);
        Ok(reply.count(context.tx.get::<Text>(request.at(1))?.map_or(0, <[u8]>::len)))
    }

    #[test]
    fn others_have_the_keys_while_the_request_reads_them() {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        let mut session = Session::new(registration.client.clone(), &instance.users);
        let request = OwnedRequest::of_line(b"LOOK k").expect("a line");
        let request = request.request().expect("a request");
        let put = |bytes: usize| {
            let mut tx = instance.keyspace.begin(0, b"k").expect("nothing is in its way");
            tx.put(b"k", &vec![b'v'; bytes], Expiry::Never);
        };
        put(LONG_TEXT_BYTES - 1);
        let begun =
            begin_transaction(&instance, &mut session, LOOK, request, None).expect("nothing is in its way");
        let copies = |tx: &Transaction<'_>| {
            let cost = LOOK.cost_on(tx, request);
            Copies::of(&instance, LOOK, tx, request, &cost)
        };
        assert!(copies(&begun.tx).is_none());
        drop(begun);
        put(LONG_TEXT_BYTES);
        let mut begun =
            begin_transaction(&instance, &mut session, LOOK, request, None).expect("nothing is in its way");
        let copies = copies(&begun.tx).expect("the value is large");
        let mut out = Vec::new();
        let reply = Reply::new(&mut out, session.protocol);
        let how = (LOOK, Patience::Client);
        let ran = copies.run_unlocked(how, &instance, &mut session, &mut begun.tx, request, reply);
        assert!(ran.is_ok_and(|sent| sent.is_ok()));
        drop(begun);
        assert_eq!(out, format!(":{LONG_TEXT_BYTES}\r\n").into_bytes());
        let all = instance.keyspace.begin_all(0).expect("nothing is in its way");
        assert_eq!((all.database_size().keys, all.counters().hits), (0, 1));
    }
}
