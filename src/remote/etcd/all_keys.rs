//! Questions about all keys. They are asked on a connection of their own, so that no batch waits for them.

use tonic::Status;

use super::look_at_flushes;
use super::messages::{KeyValue, RangeRequest, TxnRequest, put};
use super::names::{Named, Names, kind_of, read};
use super::wire::{Wire, describe};
use crate::remote::Remote;
use crate::remote::all_keys::{LOCKS_MAX, NAMES_MAX, NotTold, Question, Told, next_place};

/// Names that are read at once.
const PAGE_KEYS: i64 = 10_000;
/// Keys that are read at once with their values, to find locks.
const PAGE_LOCKS: i64 = 1_000;
/// Keys that are read at once with their values, for their types.
const TYPED_KEYS: usize = 100;

/// A connection for questions.
pub(in crate::remote) struct Asking {
    wire: Wire,
    names: Names,
}

pub(super) async fn connect(remote: &Remote, last: Option<Asking>) -> Result<Asking, String> {
    match last {
        Some(asking) => Ok(asking),
        None => super::open(remote).await.map(|(wire, names)| Asking { wire, names }),
    }
}

pub(super) async fn ask(asking: Asking, question: Question) -> (Result<Told, NotTold>, Option<Asking>) {
    match told(&asking.wire, &asking.names, question).await {
        Ok(told) => (Ok(told), Some(asking)),
        Err(_) if matches!(question, Question::Flush(_)) => (Err(NotTold::Unknown), None),
        Err(status) => (Err(NotTold::NotDone(describe(&status).into())), None),
    }
}

async fn told(wire: &Wire, names: &Names, question: Question) -> Result<Told, Status> {
    let mut told = Told::default();
    // All that is read is of this revision, so that no flush comes between.
    let (names, revision) = &look_at_flushes(wire, names).await?;
    let revision = *revision;
    match question {
        Question::Count(database) => {
            let [key, range_end] = names.all_keys(database);
            let request =
                RangeRequest { key, range_end, revision, count_only: true, ..RangeRequest::default() };
            told.count = usize::try_from(wire.range(request).await?.count).unwrap_or(0);
        }
        Question::Names(database) => {
            let [key, range_end] = names.all_keys(database);
            let mut request = RangeRequest {
                key,
                range_end,
                revision,
                limit: PAGE_KEYS,
                keys_only: true,
                ..RangeRequest::default()
            };
            loop {
                let page = wire.range(request.clone()).await?;
                let last = page.kvs.last().map(|key| key.key.clone());
                add(&mut told, names, page.kvs);
                match last {
                    Some(last) if page.more && told.keys.len() <= NAMES_MAX => {
                        request.key = [&last[..], &[0]].concat().into();
                    }
                    _ => break,
                }
            }
        }
        Question::Some { database, from, keys, with_types } => {
            let keys = if with_types { keys.min(TYPED_KEYS) } else { keys.min(PAGE_KEYS as usize) };
            let (last, more) =
                some(&mut told, (wire, names, revision), (database, from), keys, !with_types).await?;
            told.next = last.filter(|_| more).and_then(next_place);
        }
        Question::Any { database, from } => {
            for from in [from, 0] {
                if told.keys.is_empty() {
                    some(&mut told, (wire, names, revision), (database, from), 1, true).await?;
                }
            }
        }
        Question::Locks(database) => {
            // Locks have no index here: all keys are read.
            let [key, range_end] = names.all_keys(database);
            let mut request =
                RangeRequest { key, range_end, revision, limit: PAGE_LOCKS, ..RangeRequest::default() };
            loop {
                let page = wire.range(request.clone()).await?;
                let last = page.kvs.last().map(|key| key.key.clone());
                for found in page.kvs {
                    let row = read(&found.value, found.mod_revision);
                    if let Some(Named::Key(key)) = names.read(&found.key)
                        && row.live.as_ref().is_some_and(|live| live.is_lock)
                    {
                        told.locks.push((key.name.to_vec(), row));
                    }
                }
                match last {
                    Some(last) if page.more && told.locks.len() < LOCKS_MAX => {
                        request.key = [&last[..], &[0]].concat().into();
                    }
                    _ => break,
                }
            }
            told.locks.sort_by_key(|(_, row)| row.tenure.as_ref().map(|tenure| tenure.since_ms));
        }
        Question::Flush(database) => {
            let mut names = names.clone();
            loop {
                let value = names.flushes().with(database).to_string().into();
                let done = wire.txn(TxnRequest {
                    compare: vec![names.are_current()],
                    success: vec![put(names.flushes_name(), value, 0)],
                    ..TxnRequest::default()
                });
                if done.await?.succeeded {
                    break;
                }
                // Another flush was faster.
                (names, _) = look_at_flushes(wire, &names).await?;
            }
        }
    }
    Ok(told)
}

/// Names some keys from a slot on, and all others of the last one's place. Returns the slot of the last one,
/// and whether there are more.
async fn some(
    told: &mut Told,
    (wire, names, revision): (&Wire, &Names, i64),
    (database, from): (u32, i64),
    keys: usize,
    keys_only: bool,
) -> Result<(Option<i64>, bool), Status> {
    let [key, range_end] = names.keys_from(database, from);
    let limit = keys.max(1) as i64;
    let mut request = RangeRequest { key, range_end, revision, limit, keys_only, ..RangeRequest::default() };
    let page = wire.range(request.clone()).await?;
    let (mut last_name, is_over) = (page.kvs.last().map(|key| key.key.clone()), !page.more);
    let Some(last) = add(told, names, page.kvs).filter(|_| !is_over) else { return Ok((None, false)) };
    let Some(next) = next_place(last) else { return Ok((None, false)) };
    let [end, _] = names.keys_from(database, next);
    while let Some(name) = last_name.take() {
        (request.key, request.range_end) = ([&name[..], &[0]].concat().into(), end.clone());
        let page = wire.range(request.clone()).await?;
        last_name = page.kvs.last().filter(|_| page.more).map(|key| key.key.clone());
        add(told, names, page.kvs);
    }
    Ok((Some(last), true))
}

/// Adds keys; returns the slot of the last one.
fn add(told: &mut Told, names: &Names, keys: Vec<KeyValue>) -> Option<i64> {
    let mut last = None;
    for found in keys {
        if let Some(Named::Key(key)) = names.read(&found.key) {
            last = Some(key.slot());
            told.keys.push((key.name.to_vec(), kind_of(&found.value).unwrap_or_default().to_owned()));
        }
    }
    last
}
