//! Questions about all keys. They are asked on a connection of their own, so that no batch waits for them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;
use tonic::Status;

use super::messages::{DeleteRangeRequest, KeyValue, Operation, Outcome, RangeRequest, RequestOp};
use super::names::{Named, Names, kind_of, read};
use super::wire::{Wire, describe};
use crate::remote::Remote;
use crate::remote::whole::{LOCKS_MAX, NAMES_MAX, NotTold, Question, Told, step_after};

/// Names that are read at once.
const PAGE_KEYS: i64 = 10_000;
/// Keys that are read at once with their values, to find locks.
const PAGE_LOCKS: i64 = 1_000;
/// Keys that are read at once with their values, for their types.
const TYPED_KEYS: usize = 100;

/// Asks the clients' questions until the process ends.
pub(in crate::remote) async fn run(remote: &Arc<Remote>) {
    let Some(mut questions) = remote.questions.receiver.lock().take() else { return };
    let mut connection: Option<(Wire, Names)> = None;
    while let Some((question, asker)) = questions.recv().await {
        let answered = timeout(remote.settings.patience, async {
            let (wire, names) = match connection.take() {
                Some(connection) => connection,
                None => super::open(remote).await.map_err(|why| NotTold::NotDone(why.into()))?,
            };
            let told = ask(&wire, &names, question).await.map_err(|status| match question {
                Question::Flush(_) => NotTold::Unknown,
                _ => NotTold::NotDone(describe(&status).into()),
            })?;
            connection = Some((wire, names));
            Ok(told)
        });
        let answer = answered.await.unwrap_or(Err(NotTold::Unknown));
        // The client may have left.
        let _ = asker.send(answer);
    }
}

async fn ask(wire: &Wire, names: &Names, question: Question) -> Result<Told, Status> {
    let mut told = Told::default();
    match question {
        Question::Count(database) => {
            let [key, range_end] = names.all_keys(Some(database));
            let request = RangeRequest { key, range_end, count_only: true, ..RangeRequest::default() };
            told.count = usize::try_from(wire.range(request).await?.count).unwrap_or(0);
        }
        Question::Names(database) => {
            let [key, range_end] = names.all_keys(Some(database));
            let mut request =
                RangeRequest { key, range_end, limit: PAGE_KEYS, keys_only: true, ..RangeRequest::default() };
            loop {
                let page = wire.range(request.clone()).await?;
                // All pages are of the same moment.
                request.revision = page.header.map_or(0, |header| header.revision);
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
            let last = some(&mut told, wire, names, (database, from), keys, !with_types).await?;
            if let Some((slot, name)) = last {
                finish_step(&mut told, wire, names, (database, slot, name), !with_types).await?;
                told.next = Some(step_after(slot));
            }
        }
        Question::Any { database, from } => {
            for from in [from, 0] {
                if told.keys.is_empty() {
                    some(&mut told, wire, names, (database, from), 1, true).await?;
                }
            }
        }
        Question::Locks(database) => {
            // Locks have no index here: all keys are read.
            let [key, range_end] = names.all_keys(Some(database));
            let mut request = RangeRequest { key, range_end, limit: PAGE_LOCKS, ..RangeRequest::default() };
            loop {
                let page = wire.range(request.clone()).await?;
                request.revision = page.header.map_or(0, |header| header.revision);
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
            let [key, range_end] = names.all_keys(database);
            let request = Some(Operation::DeleteRange(DeleteRangeRequest { key, range_end }));
            let done = wire.all(vec![RequestOp { request }]).await?;
            if let Some(Outcome::DeleteRange(done)) =
                done.responses.into_iter().next().and_then(|done| done.response)
            {
                told.count = usize::try_from(done.deleted).unwrap_or(0);
            }
        }
    }
    Ok(told)
}

/// Names some keys from a slot on. If there are more, returns the slot of the last one, and its name in etcd.
async fn some(
    told: &mut Told,
    wire: &Wire,
    names: &Names,
    (database, from): (u32, i64),
    keys: usize,
    keys_only: bool,
) -> Result<Option<(i64, Bytes)>, Status> {
    let [key, range_end] = names.keys_from(database, from);
    let limit = keys.max(1) as i64;
    let page =
        wire.range(RangeRequest { key, range_end, limit, keys_only, ..RangeRequest::default() }).await?;
    let name = page.kvs.last().map(|key| key.key.clone()).filter(|_| page.more);
    Ok(add(told, names, page.kvs).zip(name))
}

/// Names all keys behind this one that belong to the same step of a cursor.
async fn finish_step(
    told: &mut Told,
    wire: &Wire,
    names: &Names,
    (database, slot, mut last): (u32, i64, Bytes),
    keys_only: bool,
) -> Result<(), Status> {
    let [range_end, _] = names.keys_from(database, step_after(slot));
    let limit = if keys_only { PAGE_KEYS } else { PAGE_LOCKS };
    loop {
        let (key, range_end) = ([&last[..], &[0]].concat().into(), range_end.clone());
        let page =
            wire.range(RangeRequest { key, range_end, limit, keys_only, ..RangeRequest::default() }).await?;
        let name = page.kvs.last().map(|key| key.key.clone()).filter(|_| page.more);
        add(told, names, page.kvs);
        match name {
            Some(name) => last = name,
            None => return Ok(()),
        }
    }
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
