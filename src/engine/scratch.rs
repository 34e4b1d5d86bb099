//! Runs a request on rows of a store, in a keyspace of its own that holds nothing else.
//!
//! The keyspace's clock stands at the store's time. What the request has changed is taken out afterwards, and
//! the effects for other clients wait in the session's outbox.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;

use crate::commands::Command;
use crate::commands::error::Error;
use crate::commands::execution::run::run;
use crate::commands::facts::{Result, Run};
use crate::commands::keys::dumping::{payload_of, read_payload};
use crate::instance::Instance;
use crate::keyspace::{Expiry, GuardWish, Keyspace, Transaction, complete};
use crate::remote::row::{Key, Live, Row};
use crate::remote::{Lacked, StoreWish};
use crate::resp::{OwnedRequest, Reply, Request};
use crate::session::{Outbox, Session};
use crate::values::STRING_KIND;

/// The result of a run: changes for the store, and effects for other clients.
#[derive(Debug)]
pub struct Ran {
    /// Its reply, or its error.
    pub reply: std::result::Result<Vec<u8>, Error>,
    /// The new row of each key; `None` for a key that did not change.
    pub written: Vec<Option<Arc<Row>>>,
    /// The effects for other clients.
    pub outbox: Option<Box<Outbox>>,
    /// Whether it found nothing to take, and would wait.
    pub found_nothing: bool,
    /// The request with which it would wait, if that is another one.
    pub waits_with: Option<OwnedRequest>,
    /// In how many milliseconds it may find something though no key changes, if it may.
    pub again_ms: Option<u64>,
    /// When the spans end for which the request has asked, in milliseconds since 1970: keys that expire then
    /// live for so long from when the store writes them.
    pub span_ends_ms: BTreeSet<u64>,
    /// The moment at which it ran, in milliseconds since 1970.
    pub now_ms: u64,
    /// How many fencing numbers it needs to run on its rows, if it lacks some, or the numbers of locks that
    /// are there. What it has done does not count then.
    pub wants_fences: Option<usize>,
    /// The numbers must be larger than this one, which a lock had where it came from.
    pub fences_beyond: u64,
    /// Whether each key expires at a moment, though a span was asked for that ends then.
    pub exact: Vec<bool>,
    /// Whether its client has what it wants of each key already, so that it takes nothing from others there.
    pub kept: Vec<bool>,
    /// The locks that it cannot take, if it wants several at once.
    pub lacked: Vec<Lacked>,
    /// Whether each key is one for which it wants a number, or has taken one that was offered.
    pub fenced: Vec<bool>,
    /// What its client wants besides of locks that it has got.
    pub wishes: Vec<StoreWish>,
    /// Whether each key has a new holder, though its value may be as it was: its client takes over a lock,
    /// maybe from another connection, or the value has changed on the way.
    pub renewed: Vec<bool>,
}

/// A request, and the rows on which it runs.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    /// The request's command, or subcommand.
    pub command: &'static Command,
    /// The request as its client sent it.
    pub request: Request<'a>,
    /// The keys that it names.
    pub keys: &'a Arc<[Key]>,
    /// One row for each key, in the order of the keys.
    pub rows: &'a [Arc<Row>],
    /// The moment at the store, in milliseconds since 1970.
    pub now_ms: u64,
    /// The fencing numbers that it may give.
    pub fences: &'a [u64],
}

/// Runs a request on the rows of its keys. Nothing is done by that yet.
///
/// # Errors
///
/// If a row cannot be read, or a new value is longer than one in the store may be.
pub(crate) fn run_on_rows(instance: &Instance, session: &mut Session, work: Work<'_>) -> Result<Ran> {
    let scratch = instance.scratches.take(instance, work.now_ms);
    let keyspace = &scratch.keyspace;
    let ran = load(keyspace, work.keys, work.rows);
    let ran = ran.and_then(|()| run_loaded(keyspace, instance, session, work));
    session.outbox = None;
    if !unload(keyspace, work.keys) {
        // The next request would find what this one has left, so the keyspace is dropped.
        tracing::error!("{} has written a key in the store that it does not name", work.command.name);
        return Err(Error::fixed("ERR A request may only write keys in the store that it names"));
    }
    instance.scratches.give_back(scratch);
    ran
}

/// Looks at a row as at a key in memory. `None` if the row cannot be read.
pub(crate) fn look_at<R>(
    instance: &Instance,
    (key, row): (&Key, &Arc<Row>),
    now_ms: u64,
    look: impl FnOnce(&Transaction<'_>) -> R,
) -> Option<R> {
    let scratch = instance.scratches.take(instance, now_ms);
    let (keys, rows) = (std::slice::from_ref(key), std::slice::from_ref(row));
    let loaded = load(&scratch.keyspace, keys, rows);
    let seen = loaded.ok().map(|()| {
        let tx = scratch.keyspace.begin_alone(key.database as usize);
        let seen = look(&tx);
        end(tx);
        seen
    });
    if unload(&scratch.keyspace, keys) {
        instance.scratches.give_back(scratch);
    }
    seen
}

/// Removes these keys; returns whether nothing is left.
fn unload(keyspace: &Keyspace, keys: &[Key]) -> bool {
    let mut tx = keyspace.begin_alone(0);
    for key in keys {
        tx.select(key.database as usize);
        tx.remove(&key.name);
    }
    let is_clean = is_empty(&tx);
    end(tx);
    is_clean
}

fn load(keyspace: &Keyspace, keys: &[Key], rows: &[Arc<Row>]) -> Result<()> {
    let mut tx = keyspace.begin_alone(0);
    let mut loaded = Ok(());
    for (key, row) in keys.iter().zip(rows) {
        let Some(live) = &row.live else { continue };
        let expiry = match live.expires_at_ms {
            Some(moment_ms) => Expiry::At(moment_ms),
            None => Expiry::Never,
        };
        tx.select(key.database as usize);
        if live.kind == STRING_KIND {
            tx.put(&key.name, &live.value, expiry);
        } else {
            match read_payload(&live.value, &tx) {
                Ok(payload) => tx.put_any(&key.name, payload.value(), expiry),
                Err(_) => loaded = Err(Error::fixed("ERR The store has a value that cannot be read")),
            }
        }
        if live.is_lock {
            tx.follow_again(&key.name);
            let fence = row.known_fence().and_then(|fence| u64::try_from(fence).ok());
            tx.set_fence(&key.name, fence.unwrap_or(Transaction::FENCE_UNKNOWN));
        }
    }
    end(tx);
    loaded
}

fn run_loaded(
    keyspace: &Keyspace,
    instance: &Instance,
    session: &mut Session,
    work: Work<'_>,
) -> Result<Ran> {
    let Work { command, request, keys, rows, .. } = work;
    keyspace.followers().interest.record(keys.len() > 1);
    let mut tx = keyspace.begin_alone(session.database);
    let changes = |tx: &Transaction<'_>| tx.everything().map_or(0, |all| all.changes());
    let (mut out, before, expired_before) = (Vec::new(), changes(&tx), keyspace.expired_fields());
    // What it does for other clients waits, and a command that finds nothing does not wait in here.
    (session.may_not_wait, session.found_nothing) = (true, false);
    session.keys_in_store = Some(Arc::clone(keys));
    if !work.fences.is_empty() {
        tx.offer_fences(work.fences.iter().copied());
    }
    let reply = Reply::new(&mut out, session.protocol);
    let result = run(command, instance, session, &mut tx, request, reply, None).map(|_sent| ());
    session.may_not_wait = false;
    session.keys_in_store = None;
    complete(&mut out, tx.take_missed());
    let made = changes(&tx) - before + tx.uncounted_changes();
    // A command that only reads comes across fields that have expired, too. They go once.
    let has_freed = keyspace.expired_fields() > expired_before;
    let mut recorded = tx.take_recorded();
    let mut written = vec![None; keys.len()];
    if made > 0 || has_freed {
        for ((key, row), written) in keys.iter().zip(rows).zip(&mut written) {
            tx.select(key.database as usize);
            let (live, fence) = live(&tx, &key.name);
            // As in memory, a key that was written has changed for its watchers, though it may be as it was.
            let is_written = keys.len() == 1 || recorded.has_written(key.database as usize, &key.name);
            if is_written || live != row.live {
                *written = Some(Arc::new(row_of(live, fence, row)));
            }
        }
    }
    let has_changed_more = made > written.iter().flatten().count() as u64;
    let (wishes, mut renewed) = grant(&mut tx, work, &mut written, take(&mut recorded.wishes));
    for (key, renewed) in keys.iter().zip(&mut renewed).filter(|_| has_changed_more) {
        *renewed |= keys.len() == 1 || recorded.has_rewritten(key.database as usize, &key.name);
    }
    let (found_nothing, waits_with, again_ms) = match command.run {
        Run::Block(blocking) if session.found_nothing && result.is_ok() => {
            let again_ms = blocking.waiting.again.and_then(|again| again(&mut tx, request));
            // One that wants several locks is called for what it lacks.
            let again_at_ms = match &keys[..] {
                [key] => blocking.waiting.again_at_ms.and_then(|again| again(&tx, request, &key.name)),
                _ => None,
            };
            let again_ms = again_ms.or(again_at_ms.map(|at_ms| at_ms.saturating_sub(work.now_ms)));
            (true, blocking.waiting.waits_with.map(|waits_with| waits_with(&tx, request)), again_ms)
        }
        _ => (false, None, None),
    };
    let outbox = session.outbox.take();
    end(tx);
    let limit = instance.config.store_value_max_bytes.size();
    let lengths = written.iter().flatten().filter_map(|row| row.live.as_ref()).map(|live| live.value.len());
    if lengths.max().is_some_and(|bytes| bytes > limit) {
        return Err(Error::text(format!(
            "ERR A value in the store may have {limit} bytes at most (store-value-max-bytes)"
        )));
    }
    let missing = recorded.missing_fences;
    let wants_fences = (missing > 0 || recorded.wants_known_fences).then_some(missing + work.fences.len());
    let is_fenced = |key: &Key| recorded.has_fenced(key.database as usize, &key.name);
    let fenced = keys.iter().map(is_fenced).collect();
    let is_exact = |key: &Key| recorded.is_exact(key.database as usize, &key.name);
    let exact = keys.iter().map(is_exact).collect();
    let kept = keys.iter().map(|key| recorded.has_kept(key.database as usize, &key.name)).collect();
    let lacked = recorded.lacked.iter().filter_map(|(database, name, until_ms)| {
        let key = Key::new(*database, name);
        let row = &rows[keys.binary_search(&key).ok()?];
        Some(Lacked { key, version: row.version, until_ms: *until_ms })
    });
    let lacked = lacked.collect();
    let (reply, now_ms) = (result.map(|()| out), work.now_ms);
    let span_ends_ms = recorded.span_ends_ms;
    Ok(Ran {
        reply,
        written,
        outbox,
        found_nothing,
        waits_with,
        again_ms,
        span_ends_ms,
        now_ms,
        wants_fences,
        fences_beyond: recorded.former_fence,
        exact,
        kept,
        lacked,
        fenced,
        wishes,
        renewed,
    })
}

/// What the client gets besides of the locks that it has, and whether each key is a lock that it takes over:
/// its row is written then, though it may be as it was, and says who has it.
fn grant(
    tx: &mut Transaction<'_>,
    work: Work<'_>,
    written: &mut [Option<Arc<Row>>],
    wishes: Vec<(usize, GuardWish)>,
) -> (Vec<StoreWish>, Vec<bool>) {
    let mut taken_over = vec![false; written.len()];
    let mut granted: Vec<StoreWish> = Vec::new();
    for (database, wish) in wishes {
        let key = Key::new(database, &wish.key);
        tx.select(database);
        if let Some(permit) = &wish.permit {
            let (token, number) = (Bytes::copy_from_slice(&permit.token), permit.number);
            if let Some(end_ms) = tx.permit_end_of(&wish.key, permit) {
                granted.push(StoreWish { key, token, number, expires_at_ms: Some(end_ms), wish });
            }
            continue;
        }
        let found = work.keys.binary_search(&key).ok().zip(tx.fence_in_row(&wish.key));
        let Some((place, number)) = found.filter(|(_, number)| *number != Transaction::FENCE_UNKNOWN) else {
            continue;
        };
        let (Some(live), _) = live(tx, &wish.key) else { continue };
        let (token, expires_at_ms) = (live.value.clone(), live.expires_at_ms);
        if wish.bond.is_some() {
            let row = row_of(Some(live), Some(number), &work.rows[place]);
            written[place] = Some(Arc::new(Row { granted: number.cast_signed(), ..row }));
            taken_over[place] = true;
        }
        granted.push(StoreWish { key, token, number, expires_at_ms, wish });
    }
    (granted, taken_over)
}

/// Whether no database has a key.
fn is_empty(tx: &Transaction<'_>) -> bool {
    tx.everything().is_ok_and(|all| all.database_sizes().all(|size| size.keys == 0))
}

/// The row that a request writes over another one. `fence` is the number of a lock, if it has one.
fn row_of(live: Option<Live>, fence: Option<u64>, seen: &Row) -> Row {
    let fence = fence.and_then(|fence| i64::try_from(fence).ok()).unwrap_or(0);
    let mut row = Row { live, granted: fence, ..Row::default() };
    if seen.version != 0 && seen.keeps_tenure_in(&row) {
        // The store has it.
        (row.granted, row.tenure) = (0, seen.tenure.clone());
    }
    row
}

/// A key as it is now, and the fencing number of a lock.
fn live(tx: &Transaction<'_>, name: &[u8]) -> (Option<Live>, Option<u64>) {
    let fence = tx.fence_in_row(name);
    (live_value(tx, name, fence.is_some()), fence)
}

fn live_value(tx: &Transaction<'_>, name: &[u8], has_fence: bool) -> Option<Live> {
    let expires_at_ms = tx.peek_expiry(name)?;
    let value = tx.get_any(name)?;
    let kind = value.facts.kind;
    let value = match value.content.text() {
        Some(text) if kind == STRING_KIND => Bytes::copy_from_slice(text),
        _ => Bytes::from(payload_of(value, tx.keyspace())),
    };
    Some(Live { kind, value, expires_at_ms, is_lock: has_fence || tx.is_lock(name) })
}

/// Ends a transaction and drops its effects.
fn end(mut tx: Transaction<'_>) {
    tx.commit();
    drop(tx.take_effects());
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clients::Address;
    use crate::commands::facts::{KeyFlags, KeySpec};
    use crate::commands::known;
    use crate::config::Config;
    use crate::instance::Hooks;

    /// Writes its key, and one that it does not name.
    const STRAY: &Command = &Command {
        name: "stray",
        keys: &[KeySpec::first(KeyFlags::OW)],
        run: Run::Write(stray),
        ..Command::DEFAULTS
    };

    fn stray(tx: &mut Transaction<'_>, request: Request<'_>, reply: Reply<'_>) -> Result {
        tx.put(request.at(1), b"v", Expiry::Never);
        if request.len() > 2 {
            tx.put(b"other", b"v", Expiry::Never);
        }
        Ok(reply.ok())
    }

    #[test]
    fn what_writes_a_key_that_it_does_not_name_is_refused_and_leaves_nothing_to_others() {
        let instance = Instance::new(Config::new(), 1, known(&[]), Hooks::default());
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        let mut session = Session::new(registration.client.clone(), &instance.users);
        let (keys, rows): (Arc<[Key]>, _) = ([Key::new(0, b"k")].into(), [Row::absent()]);
        let mut run = |line: &[u8]| {
            let request = OwnedRequest::of_line(line).expect("a line");
            let request = request.request().expect("a request");
            let work = Work { command: STRAY, request, keys: &keys, rows: &rows, now_ms: 1, fences: &[] };
            run_on_rows(&instance, &mut session, work)
        };
        for _ in 0..3 {
            assert!(run(b"STRAY k").is_ok_and(|ran| ran.written.iter().all(Option::is_some)));
            assert!(run(b"STRAY k more").is_err());
        }
    }
}
