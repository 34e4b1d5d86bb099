//! A batch as a transaction of etcd: one transaction within it for each group, which looks whether the rows
//! are as they were guessed, and writes them, or else reads them.
//!
//! A key that is absent has no version in etcd, so it cannot be seen there that it was made and deleted
//! meanwhile. So WATCH of an absent key leaves a mark beside it, and every request that makes a key deletes
//! its mark: the version of an absent key is the revision in which its mark was written. A mark has a lease,
//! and an EXEC that finds it gone fails, as for a key that has changed.

use std::vec::IntoIter;

use super::leases::{BatchLeases, Life, Lives};
use super::messages::{
    KeyValue, Operation, PutRequest, RequestOp, ResponseOp, TxnRequest, TxnResponse, delete, is_absent,
    is_of, nested, put, range, range_at,
};
use super::names::{Names, RowNumber, read, write};
use super::system_us;
use crate::remote::batch::{Answer, Batch, Part};
use crate::remote::row::{FENCES_OF_ROWS, Row};

/// Operations of one transaction that only reads.
pub(super) const OPERATIONS_MAX: usize = 120;
/// Bytes of rows that are known, and are read all the same, in one batch.
const SEEN_BYTES_MAX: usize = 256 << 10;

/// The groups of a batch.
pub(super) struct Groups<'b> {
    batch: &'b Batch,
    names: &'b Names,
    /// The places of their parts.
    places: Vec<Vec<usize>>,
}

impl<'b> Groups<'b> {
    /// Of a batch.
    pub(super) fn of(batch: &'b Batch, names: &'b Names) -> Groups<'b> {
        let mut places = vec![Vec::new(); batch.groups];
        for (place, part) in batch.parts.iter().enumerate() {
            places[part.group].push(place);
        }
        Groups { batch, names, places }
    }

    fn parts(&self, group: usize) -> impl Iterator<Item = &'b Part> {
        self.places[group].iter().map(|place| &self.batch.parts[*place])
    }

    /// Whether a key of the group is to be watched. Such a group only reads, since it has guessed nothing.
    fn only_reads(&self, group: usize) -> bool {
        self.parts(group).any(is_to_be_watched)
    }

    /// Whether an absent key may get a mark.
    pub(super) fn needs_mark(&self) -> bool {
        self.batch.parts.iter().any(is_to_be_watched)
    }

    /// The transactions of all groups.
    pub(super) fn operations(&self, leases: &BatchLeases, lives: &Lives) -> impl Iterator<Item = RequestOp> {
        (0..self.places.len()).map(|group| nested(self.operation(group, leases, lives)))
    }

    /// The groups that write nothing, and at most delete, with their transactions: those that an etcd without
    /// space does.
    pub(super) fn sparing(&self) -> (Vec<usize>, Vec<RequestOp>) {
        let writes = |part: &Part| part.written.as_ref().is_some_and(|row| row.live.is_some());
        let spares = |group: &usize| !self.parts(*group).any(|part| writes(part) || is_to_be_watched(part));
        let groups: Vec<usize> = (0..self.places.len()).filter(spares).collect();
        let (leases, lives) = (BatchLeases::default(), Lives::default());
        let operations = groups.iter().map(|group| nested(self.operation(*group, &leases, &lives))).collect();
        (groups, operations)
    }

    fn operation(&self, group: usize, leases: &BatchLeases, lives: &Lives) -> TxnRequest {
        let mut txn = TxnRequest::default();
        if self.only_reads(group) {
            txn.success.extend(self.parts(group).map(|part| match is_to_be_watched(part) {
                true => nested(self.watch(part, leases)),
                false => nested(TxnRequest { success: self.reads(part, range), ..TxnRequest::default() }),
            }));
            return txn;
        }
        for place in &self.places[group] {
            let part = &self.batch.parts[*place];
            let key = || self.names.key(&part.key);
            match &part.seen.live {
                // An absent key fulfils the condition that its revision is 0. No key has revision 1.
                Some(_) => txn.compare.push(is_of(key(), part.seen.version.max(1))),
                None => txn.compare.push(is_absent(key())),
            }
            if needs_mark(part) {
                txn.compare.push(is_of(self.names.mark(&part.key), part.seen.version));
            }
            match part.written.as_ref().map(|row| (row, &row.live)) {
                Some((row, Some(live))) => {
                    let (life, expires_at_ms) = lives[*place];
                    let keeps = !part.is_renewed && part.seen.keeps_tenure_in(row);
                    let number = match if keeps { part.seen.fence } else { row.granted } {
                        0 => RowNumber::OfPlace(self.names.numbers(), *place),
                        number => RowNumber::Given(number),
                    };
                    let now_ms = system_us() as u64 / 1_000;
                    // What is the same value has the same holder.
                    let before = part.seen.tenure.as_deref().filter(|_| keeps);
                    let holder = match before {
                        Some(before) => &before.holder,
                        None => part.holder.as_deref().unwrap_or_default(),
                    };
                    let since_ms = before.map_or(now_ms, |before| before.since_ms);
                    txn.success.push(RequestOp {
                        request: Some(Operation::Put(PutRequest {
                            key: key(),
                            value: write(live, expires_at_ms, (number, since_ms), holder),
                            lease: leases.of_parts[*place],
                            ignore_lease: life == Life::Kept,
                        })),
                    });
                    if part.seen.live.is_none() {
                        txn.success.push(delete(self.names.mark(&part.key)));
                    }
                }
                Some((_, None)) if part.seen.live.is_some() => txn.success.push(delete(key())),
                // It was made and deleted again: those that watch it find their mark gone.
                Some((_, None)) => txn.success.push(delete(self.names.mark(&part.key))),
                None => {}
            }
            txn.failure.extend(self.reads(part, range));
        }
        txn
    }

    /// Reads a key that is to be watched. If it is absent and has no mark, it gets one.
    fn watch(&self, part: &Part, leases: &BatchLeases) -> TxnRequest {
        let (key, mark) = (self.names.key(&part.key), self.names.mark(&part.key));
        TxnRequest {
            compare: vec![is_absent(key), is_absent(mark.clone())],
            success: vec![put(mark, "".into(), leases.of_marks)],
            failure: self.reads(part, range),
        }
    }

    /// Reads what the row of a part is made of.
    fn reads(&self, part: &Part, read: impl Fn(bytes::Bytes) -> RequestOp) -> Vec<RequestOp> {
        let mut reads = vec![read(self.names.key(&part.key))];
        if needs_mark(part) {
            reads.push(read(self.names.mark(&part.key)));
        }
        reads
    }

    /// What the transactions have done, which have given all that they wrote this version.
    pub(super) fn answer(&self, responses: impl Iterator<Item = ResponseOp>, version: i64) -> Answer {
        let answer = self.answer_of((0..self.places.len()).zip(responses), version);
        Answer { fences: self.fences(version), ..answer }
    }

    /// What the transactions of these groups have done, without the fencing numbers that the batch draws.
    pub(super) fn answer_of(
        &self,
        responses: impl Iterator<Item = (usize, ResponseOp)>,
        version: i64,
    ) -> Answer {
        let done = vec![false; self.places.len()];
        let mut answer = Answer { done, ..self.answer_in(version) };
        for (group, response) in responses {
            let Some(txn) = response.into_txn() else { continue };
            if !self.only_reads(group) && txn.succeeded {
                answer.done[group] = true;
                continue;
            }
            let mut reads = txn.responses.into_iter();
            for place in &self.places[group] {
                let part = &self.batch.parts[*place];
                let row = match self.only_reads(group) {
                    false => row(part, &mut reads),
                    true => match reads.next().and_then(ResponseOp::into_txn) {
                        Some(TxnResponse { succeeded: true, .. }) if is_to_be_watched(part) => {
                            Row { version, ..Row::default() }
                        }
                        Some(txn) => row(part, &mut txn.responses.into_iter()),
                        None => continue,
                    },
                };
                answer.rows.insert(*place, row);
            }
        }
        answer
    }

    /// The fencing numbers that the batch draws in its version. No other batch has this version.
    fn fences(&self, version: i64) -> Vec<u64> {
        let first = self.names.numbers().first_of(version).unsigned_abs() + FENCES_OF_ROWS as u64;
        (first..).take(self.batch.draws).collect()
    }

    /// An answer without rows.
    fn answer_in(&self, version: i64) -> Answer {
        Answer { version, first_fence: self.names.numbers().first_of(version), ..Answer::default() }
    }

    /// Reads of all that the batch looked at, as it was in this revision; 0 for now.
    pub(super) fn reads_at(&self, revision: i64) -> Vec<RequestOp> {
        let parts = self.batch.parts.iter();
        parts.flat_map(|part| self.reads(part, |key| range_at(key, revision))).collect()
    }

    /// Reads of all that the batch looks at, if it only looks, and if what is read twice by that is not long.
    pub(super) fn only_looks(&self) -> Option<Vec<RequestOp>> {
        let writes = self.needs_mark() || self.batch.parts.iter().any(|part| part.written.is_some());
        if writes || self.batch.parts.iter().map(|part| part.seen.bytes()).sum::<usize>() > SEEN_BYTES_MAX {
            return None;
        }
        Some(self.reads_at(0)).filter(|reads| reads.len() <= OPERATIONS_MAX)
    }

    /// Whether each group was done, judged by the rows that were found.
    pub(super) fn judge(&self, found: Vec<ResponseOp>, version: i64) -> Answer {
        let mut found = found.into_iter();
        let mut answer = self.answer_in(version);
        answer.done = (0..self.places.len()).map(|group| !self.only_reads(group)).collect();
        for (place, part) in self.batch.parts.iter().enumerate() {
            let row = row(part, &mut found);
            let is_right = row.live.is_some() == part.seen.live.is_some()
                && (row.version == part.seen.version || row.live.is_none() && !needs_mark(part));
            answer.done[part.group] &= is_right;
            // One that is to be watched may have got a mark by that.
            if !is_to_be_watched(part) {
                answer.rows.insert(place, row);
            }
        }
        answer
    }
}

fn is_to_be_watched(part: &Part) -> bool {
    part.is_strict && part.seen.version == Row::UNREAD
}

/// Whether the version of the absent key counts.
fn needs_mark(part: &Part) -> bool {
    part.is_strict && part.seen.live.is_none()
}

/// The row of a part, of what was read.
fn row(part: &Part, reads: &mut IntoIter<ResponseOp>) -> Row {
    let key = reads.next().and_then(ResponseOp::into_key);
    let mark = needs_mark(part).then(|| reads.next().and_then(ResponseOp::into_key)).flatten();
    match key {
        Some(KeyValue { value, mod_revision, .. }) => read(&value, mod_revision),
        None => Row { version: mark.map_or(0, |mark| mark.mod_revision), ..Row::default() },
    }
}
