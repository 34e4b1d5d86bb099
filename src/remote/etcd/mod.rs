//! Rows in etcd: one key each, under a prefix.
//!
//! A batch is one transaction. It counts the batch in the front-end's ledger, unless the ledger has this
//! batch or a later one already, and does the groups. A batch that comes too late finds another number there,
//! and does nothing. If a connection is lost, the ledger shows whether the batch was done, and in which
//! revision. etcd keeps the revisions before it for some time, so what each group has found can be read
//! again.
//!
//! If etcd is silent, that is the same as a lost connection. A batch that is only slow is mostly done before
//! the question what has become of it; otherwise it does nothing, and its requests run again.
//!
//! A batch that only reads is not counted, and etcd writes nothing for it.
//!
//! A flush of a database changes the names of its keys ([`names`]), and each batch is done on condition that
//! there was no flush of which its front-end does not know. [`flushed`] deletes the keys of before.
//!
//! All reads are linearizable: on a node that is cut off from the others they fail.
//!
//! - **Versions** of rows are revisions of etcd, and fencing numbers are made of them ([`names`]). They only
//!   grow, over all front-ends, keys and leaders. In an etcd that was restored from a snapshot, revisions
//!   come again, and fencing numbers do not.
//! - **Expiry** is by leases: [`leases`] says how late keys expire. A key exists as long as etcd has it. The
//!   expiry beside a value is a time of the writer's own clock. It only shows how much longer the key should
//!   live: etcd has no clock that clients can read, so the clock of this process replaces it. So two
//!   front-ends return different PTTLs if their clocks differ, and a time in a request (EXPIREAT) counts by
//!   the front-end's clock. Fields of hashes that expire are within a value, of which etcd knows nothing.
//!   They expire by the clock of the front-end that serves the request.
//! - **WATCH** sees every change, also that an absent key was made and deleted, or has expired: [`groups`]
//!   says how. If a client watches an absent key for half an hour, its EXEC may fail without a change.
//! - **Limits** of etcd are these of a request: 60 keys, and a value of about 1.4 MiB. A batch has 120 keys.
//! - **Space**: an etcd whose database is full (`--quota-backend-bytes`) writes nothing until its alarm is
//!   disarmed, so it cannot count batches. Then only what reads or deletes is sent. If the connection is lost
//!   meanwhile, it is not known what was deleted.
//! - **The history** that etcd keeps grows with each change until it is compacted: etcd should be started
//!   with `--auto-compaction-retention`. If it was compacted since a connection was lost, the outcome is
//!   unknown.

mod all_keys;
mod flushed;
mod groups;
mod leases;
mod messages;
mod names;
mod notifications;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tonic::Status;

use super::Remote;
use super::all_keys::{NotTold, Question, Told};
use super::batch::{Answer, Batch, Part, Refusal};
use super::clock::{Window, own_us, system_us};
use super::news::Ears;
use super::store::{Failure, Front, Store, Timed};
use super::target::{EtcdPlace, Target};
use crate::keyspace::fencing::number_of_clock;
use all_keys::Asking;
use groups::{Groups, OPERATIONS_MAX};
use leases::{Leases, Life, Lives};
use messages::{
    Compare, DeleteRangeRequest, KeyValue, Operation, RangeRequest, RequestOp, ResponseOp, TxnRequest,
    TxnResponse, WatchCreateRequest, is_absent, is_less, is_of, put, range, range_at,
};
use names::{FORMAT, FORMAT_BEFORE, Flushes, Names, Numbers};
use wire::{Watch, Wire, describe, failure, is_about_lease, is_full};

/// How long a front-end's ledger is kept after it was heard of last, in seconds.
const LEDGER_SECONDS: i64 = 24 * 3_600;

/// A connection to etcd for batches.
pub(super) struct Etcd {
    wire: Wire,
    names: Names,
    front: i64,
    leases: Leases,
    /// It ends with the connection. One that is made anew may be to an etcd that was restored meanwhile.
    life: Watch,
    /// Whether it has no space left, as far as is known.
    is_full: bool,
}

impl Store for Etcd {
    async fn connect(remote: &Remote, front: &mut Option<Front>) -> Result<Etcd, String> {
        let (wire, names) = open(remote).await?;
        let front = match front {
            Some(front) => front,
            None => {
                let id = register(&wire, &names).await.map_err(|status| describe(&status))?;
                front.insert(Front { id, last: 0 })
            }
        };
        let watched = WatchCreateRequest { key: names.numbers_name(), ..WatchCreateRequest::default() };
        let life = wire.watch(watched).await.map_err(|status| describe(&status))?;
        let raised = raise_numbers(&wire, names.clone(), number_of_clock(system_us())).await;
        // A full one gives no numbers before it has space, and was tried out.
        let is_full = raised.as_ref().is_err_and(is_full);
        let names = if is_full { names } else { raised.map_err(|status| describe(&status))? };
        remote.clock.set(system_us(), own_us());
        Ok(Etcd { wire, names, front: front.id, leases: Leases::default(), life, is_full })
    }

    async fn exchange(
        &mut self,
        batch: &Batch,
        number: i64,
        _window: Window,
    ) -> Result<Timed<Answer>, Failure> {
        expect_connected(&mut self.life)?;
        if self.is_full {
            return self.exchange_without_space(batch).await;
        }
        if batch.draws_beyond > 0 {
            let beyond = i64::try_from(batch.draws_beyond).unwrap_or(i64::MAX);
            let raised = raise_numbers(&self.wire, self.names.clone(), beyond).await;
            self.names = raised.map_err(|status| failure(&status))?;
        }
        let groups = Groups::of(batch, &self.names);
        if let Some(success) = groups.only_looks() {
            // etcd writes nothing for a transaction that only reads.
            let compare = vec![self.names.are_current()];
            let failure = vec![range(self.names.flushes_name())];
            let found = self.wire.txn_soon(TxnRequest { compare, success, failure }).await;
            let found = found.map_err(|status| wire::failure(&status))?;
            if !found.succeeded {
                return Err(self.after_flush(found.responses.into_iter().next()));
            }
            let version = found.revision();
            return Ok((groups.judge(found.responses, version), system_us()));
        }
        let (now_ms, now_us) = (system_us() as u64 / 1_000, own_us());
        let lives: Lives = batch.parts.iter().map(|part| Life::of(part, now_ms, now_us)).collect();
        let leases = self.leases.prepare(&self.wire, &lives, groups.needs_mark()).await;
        let leases = match leases {
            Err(status) if is_full(&status) => return self.exchange_without_space(batch).await,
            leases => leases.map_err(|status| failure(&status))?,
        };
        let ledger = self.names.ledger(self.front);
        let mut success = vec![put(ledger.clone(), names::ledger(number, true), self.front)];
        success.extend(groups.operations(&leases, &lives));
        let are_known = [self.names.are_current(), self.names.are_numbered()];
        let compare = [is_less(ledger.clone(), names::before(number))].into_iter().chain(are_known).collect();
        let otherwise =
            [ledger, self.names.flushes_name(), self.names.numbers_name()].into_iter().map(range).collect();
        let done = match self.wire.txn_soon(TxnRequest { compare, success, failure: otherwise }).await {
            Err(status) if is_full(&status) => {
                // It has ended, and the ledger says whether it was done.
                let ledger = self.wire.range_soon(self.names.ledger(self.front)).await;
                let ledger = ledger.map_err(|status| failure(&status))?.kvs.into_iter().next();
                return match self.outcome(batch, number, ledger).await? {
                    Some(answer) => Ok((answer, system_us())),
                    None => self.exchange_without_space(batch).await,
                };
            }
            Err(status) => {
                if is_about_lease(&status) {
                    self.leases.forget();
                }
                return Err(failure(&status));
            }
            Ok(done) => done,
        };
        expect_connected(&mut self.life)?;
        if !done.succeeded {
            let mut found = done.responses.into_iter();
            let ledger = found.next().and_then(ResponseOp::into_key);
            if ledger.is_none_or(|ledger| ledger.value >= names::before(number)) {
                return Err(Failure::Lost("its ledger is gone, or knows of a later batch".to_owned()));
            }
            let flushes = found.next();
            self.names = self.names.numbered(numbers_of(found.next()).map_err(Failure::Refused)?);
            return Err(self.after_flush(flushes));
        }
        let version = done.revision();
        let mut answer = groups.answer(done.responses.into_iter().skip(1), version);
        for (place, (_, expires_at_ms)) in lives.into_iter().enumerate() {
            answer.expiries.extend(expires_at_ms.map(|moment_ms| (place, moment_ms)));
        }
        Ok((answer, system_us()))
    }

    async fn resolve(&mut self, batch: &Batch, number: i64) -> Result<Option<Answer>, Failure> {
        if self.is_full && batch.parts.iter().all(|part| part.written.is_none()) {
            // It makes no difference, and could not be noted.
            return Ok(None);
        }
        let ledger = self.names.ledger(self.front);
        let settled = self.wire.txn_soon(TxnRequest {
            compare: vec![is_less(ledger.clone(), names::before(number))],
            success: vec![put(ledger.clone(), names::ledger(number, false), self.front)],
            failure: vec![range(ledger)],
        });
        let settled = settled.await.map_err(|status| failure(&status))?;
        if settled.succeeded {
            return Ok(None);
        }
        let found = settled.responses.into_iter().next().and_then(ResponseOp::into_key);
        self.outcome(batch, number, found).await
    }

    /// Does what batches do: gives itself the fencing numbers of now, and counts the batch before once more.
    async fn try_out(&mut self, number: i64) -> Result<(), Failure> {
        let least = number_of_clock(system_us());
        self.names = raise_numbers(&self.wire, self.names.clone(), least).await.map_err(refused_if_full)?;
        let ledger = self.names.ledger(self.front);
        let request = TxnRequest {
            compare: vec![is_less(ledger.clone(), names::before(number))],
            success: vec![put(ledger, names::ledger(number - 1, true), self.front)],
            failure: Vec::new(),
        };
        self.wire.txn_soon(request).await.map_err(refused_if_full)?;
        self.is_full = false;
        Ok(())
    }

    type Asking = Asking;

    async fn connect_to_ask(remote: &Remote, last: Option<Asking>) -> Result<Asking, String> {
        all_keys::connect(remote, last).await
    }

    async fn ask(
        _remote: &Remote,
        asking: Asking,
        question: Question,
    ) -> (Result<Told, NotTold>, Option<Asking>) {
        all_keys::ask(asking, question).await
    }

    async fn exchange_news(remote: &Arc<Remote>, ears: &impl Ears) {
        notifications::exchange(remote, ears).await;
    }
}

impl Etcd {
    /// Does what needs no space, and refuses the rest.
    async fn exchange_without_space(&mut self, batch: &Batch) -> Result<Timed<Answer>, Failure> {
        self.is_full = true;
        let groups = Groups::of(batch, &self.names);
        let (sparing, success) = groups.sparing();
        let deletes = |part: &Part| part.written.is_some() && sparing.contains(&part.group);
        batch.is_uncounted.store(batch.parts.iter().any(deletes), Ordering::Relaxed);
        let request = TxnRequest {
            compare: vec![self.names.are_current()],
            success,
            failure: vec![range(self.names.flushes_name())],
        };
        let done = self.wire.txn_soon(request).await.map_err(refused_if_full)?;
        expect_connected(&mut self.life)?;
        if !done.succeeded {
            return Err(self.after_flush(done.responses.into_iter().next()));
        }
        let version = done.revision();
        let mut answer = groups.answer_of(sparing.iter().copied().zip(done.responses), version);
        let refused = (0..batch.groups).filter(|group| !sparing.contains(group)).collect();
        answer.refusal = Some(Refusal { groups: refused, why: wire::no_space().into() });
        Ok((answer, system_us()))
    }

    /// What has become of a batch that is no longer under way, as the ledger says.
    async fn outcome(
        &self,
        batch: &Batch,
        number: i64,
        ledger: Option<KeyValue>,
    ) -> Result<Option<Answer>, Failure> {
        let Some(KeyValue { value, mod_revision: version, .. }) = ledger else {
            return Err(Failure::Refused("etcd has forgotten this front-end".to_owned()));
        };
        if value < names::before(number) || value == names::ledger(number, false) {
            return Ok(None);
        }
        if value != names::ledger(number, true) {
            return Err(Failure::Refused("another front-end has taken its number".to_owned()));
        }
        // All conditions were looked at in the revision before.
        let known = [self.names.flushes_name(), self.names.numbers_name()];
        let success = known.into_iter().map(|name| range_at(name, version - 1)).collect();
        let known = TxnRequest { success, ..TxnRequest::default() };
        let found = self.wire.txn_soon(known).await.map_err(|status| failure(&status))?;
        let mut found = found.responses.into_iter();
        let names = self.names.after(flushes_of(found.next()).map_err(Failure::Refused)?);
        let names = names.numbered(numbers_of(found.next()).map_err(Failure::Refused)?);
        let groups = Groups::of(batch, &names);
        let mut found = Vec::with_capacity(batch.parts.len());
        for reads in groups.reads_at(version - 1).chunks(OPERATIONS_MAX) {
            let read = TxnRequest { success: reads.to_vec(), ..TxnRequest::default() };
            found.extend(self.wire.txn_soon(read).await.map_err(|status| failure(&status))?.responses);
        }
        Ok(Some(groups.judge(found, version)))
    }

    /// The failure of a batch of which nothing was done, since this front-end did not know of a flush. Now it
    /// does.
    fn after_flush(&mut self, found: Option<ResponseOp>) -> Failure {
        match flushes_of(found) {
            Ok(flushes) => {
                self.names = self.names.after(flushes);
                Failure::Again
            }
            Err(why) => Failure::Refused(why),
        }
    }
}

/// The failure of what was not done if etcd is full.
fn refused_if_full(status: Status) -> Failure {
    match is_full(&status) {
        true => Failure::Refused(describe(&status)),
        false => failure(&status),
    }
}

/// An error if the connection has ended since the fencing numbers were read on it.
fn expect_connected(life: &mut Watch) -> Result<(), Failure> {
    match life.has_ended() {
        true => Err(Failure::Lost("the connection has ended".to_owned())),
        false => Ok(()),
    }
}

/// The flushes, as they were read.
fn flushes_of(found: Option<ResponseOp>) -> Result<Flushes, String> {
    let found = found.and_then(ResponseOp::into_key);
    Flushes::of(found.as_ref()).ok_or_else(|| UNREADABLE.to_owned())
}

/// The fencing numbers, as they were read.
fn numbers_of(found: Option<ResponseOp>) -> Result<Numbers, String> {
    let found = found.and_then(ResponseOp::into_key);
    Numbers::of(found.as_ref()).ok_or_else(|| NUMBERS_UNREADABLE.to_owned())
}

/// What another program has written.
const UNREADABLE: &str = "its key `flushes` cannot be read";
const NUMBERS_UNREADABLE: &str = "its key `numbers` cannot be read";

/// Lets the fencing numbers that are given from now on be larger than this one, and returns the names with
/// them. The numbers never become smaller: the key is written on condition that it is as it was read.
async fn raise_numbers(wire: &Wire, names: Names, least: i64) -> Result<Names, Status> {
    loop {
        let found = wire.range(RangeRequest { key: names.numbers_name(), ..RangeRequest::default() }).await?;
        let revision = found.header.map_or(0, |header| header.revision);
        let known = Numbers::of(found.kvs.first()).ok_or_else(|| Status::data_loss(NUMBERS_UNREADABLE))?;
        let names = names.numbered(known);
        // What is written next has the next revision, or a later one.
        if known.are_beyond(least, revision + 1) {
            return Ok(names);
        }
        let earlier = if known == Numbers::default() { (revision + 1).saturating_mul(1024) } else { 0 };
        // An earlier version has given 1,024 times the revision.
        let from = Numbers::beyond(least.max(earlier), revision + 1);
        let success = vec![put(names.numbers_name(), from, 0)];
        wire.txn(TxnRequest { compare: vec![names.are_numbered()], success, failure: Vec::new() }).await?;
    }
}

/// Reads the flushes. Returns the names after them, and the revision in which they were read.
async fn look_at_flushes(wire: &Wire, names: &Names) -> Result<(Names, i64), Status> {
    let request = RangeRequest { key: names.flushes_name(), ..RangeRequest::default() };
    let found = wire.range(request).await?;
    let flushes = Flushes::of(found.kvs.first()).ok_or_else(|| Status::data_loss(UNREADABLE))?;
    Ok((names.after(flushes), found.header.map_or(0, |header| header.revision)))
}

/// The place of the store in etcd.
fn place(remote: &Remote) -> Result<&EtcdPlace, String> {
    match &remote.settings.target {
        Target::Etcd(place) => Ok(place),
        Target::Postgres(_) => Err("not etcd".to_owned()),
    }
}

/// Connects, and checks whether this version can read the data there.
async fn open(remote: &Remote) -> Result<(Wire, Names), String> {
    let place = place(remote)?;
    let names = Names::new(&place.prefix);
    let (wire, found) = Wire::open(place, &remote.settings, names.format()).await?;
    let format = match found.kvs.into_iter().next() {
        Some(format) if format.value == FORMAT_BEFORE => renew(&wire, &names, format.mod_revision).await,
        Some(format) => Ok(String::from_utf8_lossy(&format.value).into_owned()),
        None => write_first_format(&wire, &names).await,
    };
    match format.map_err(|status| describe(&status))?.as_str() {
        FORMAT => {
            let (names, _) = look_at_flushes(&wire, &names).await.map_err(|status| describe(&status))?;
            Ok((wire, names))
        }
        other => Err(format!("its keys are of version {other}, and this program needs version {FORMAT}")),
    }
}

/// Writes the version of the form, if no other front-end is faster. Returns what is there.
async fn write_first_format(wire: &Wire, names: &Names) -> Result<String, Status> {
    let success = vec![put(names.format(), FORMAT.into(), 0)];
    write_format(wire, names, is_absent(names.format()), success).await
}

/// Makes keys of the version before those of this one. A front-end of that version would give other fencing
/// numbers: it loses its ledger, does nothing more, and finds the new version.
async fn renew(wire: &Wire, names: &Names, revision: i64) -> Result<String, Status> {
    let [key, range_end] = names.all_ledgers();
    let request = Some(Operation::DeleteRange(DeleteRangeRequest { key, range_end }));
    let success = vec![RequestOp { request }, put(names.format(), FORMAT.into(), 0)];
    write_format(wire, names, is_of(names.format(), revision), success).await
}

async fn write_format(
    wire: &Wire,
    names: &Names,
    condition: Compare,
    success: Vec<RequestOp>,
) -> Result<String, Status> {
    let failure = vec![range(names.format())];
    let TxnResponse { responses, succeeded, .. } =
        wire.txn(TxnRequest { compare: vec![condition], success, failure }).await?;
    let found = responses.into_iter().next().and_then(ResponseOp::into_key).filter(|_| !succeeded);
    Ok(found.map_or(FORMAT.to_owned(), |key| String::from_utf8_lossy(&key.value).into_owned()))
}

/// Makes the front-end's ledger. Its number is that of the ledger's lease, which no other has.
async fn register(wire: &Wire, names: &Names) -> Result<i64, Status> {
    let id = wire.grant(LEDGER_SECONDS).await?;
    let operation: RequestOp = put(names.ledger(id), names::ledger(0, true), id);
    wire.all(vec![operation]).await?;
    Ok(id)
}
