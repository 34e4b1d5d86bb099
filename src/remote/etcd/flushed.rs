//! Deletes the keys of databases before they were flushed: some at a time, since etcd does one thing after
//! the other. The front-end with the least number does, of those that are connected.
//!
//! etcd 3.4 looks at all keys of a range, however few are asked for, and writers wait meanwhile. So the keys
//! are not listed: they are deleted by their slots, as many slots at a time as are about 500 keys.

use tonic::Status;

use super::look_at_flushes;
use super::messages::{DeleteRangeRequest, Operation, OperationResponse, RangeRequest, RequestOp};
use super::names::Names;
use super::wire::Wire;

/// About how many keys are deleted at once.
const KEYS: i64 = 500;
/// Slots, and how many are deleted at once at first.
const SLOTS: i64 = 1 << 62;
const SPAN: i64 = SLOTS >> 12;

/// The keys that were flushed.
#[derive(Debug)]
pub(super) struct Flushed {
    names: Names,
    /// How many databases there are.
    databases: u32,
    /// The rooms that are known to be left.
    rooms: Vec<String>,
    /// Where the last one of these goes on, and how many slots are deleted next.
    from: i64,
    span: i64,
    /// The next database in which others are looked for: those of flushes that this front-end has missed.
    next: u32,
}

impl Flushed {
    /// Before it is known whether there are any.
    pub(super) fn new(names: &Names, databases: usize) -> Flushed {
        let databases = databases as u32;
        Flushed { names: names.clone(), databases, rooms: Vec::new(), from: 0, span: SPAN, next: 0 }
    }

    /// Looks whether there was a flush.
    pub(super) async fn look(&mut self, wire: &Wire) -> Result<(), Status> {
        let (names, _) = look_at_flushes(wire, &self.names).await?;
        if names.flushes() != self.names.flushes() {
            let rooms = (0..self.databases).map(|database| (self.names.room(database), names.room(database)));
            let flushed = rooms.filter(|(before, after)| before != after).map(|(before, _)| before);
            // The last one is being deleted.
            self.rooms.splice(..0, flushed);
            (self.names, self.next) = (names, 0);
        }
        Ok(())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.rooms.is_empty() && self.next == self.databases
    }

    /// Deletes some of them.
    pub(super) async fn free_some(&mut self, wire: &Wire) -> Result<(), Status> {
        let Some(room) = self.rooms.last() else { return self.find(wire).await };
        let end = self.from.saturating_add(self.span).min(SLOTS);
        let [key, range_end] = self.names.slots_in(room, self.from..end);
        let request = Some(Operation::DeleteRange(DeleteRangeRequest { key, range_end }));
        let done = wire.all(vec![RequestOp { request }]).await?;
        let deleted = match done.responses.into_iter().next().and_then(|done| done.response) {
            Some(OperationResponse::DeleteRange(done)) => done.deleted,
            _ => 0,
        };
        self.from = end;
        if deleted < KEYS / 2 {
            self.span = self.span.saturating_mul(2);
        } else if deleted > KEYS * 2 {
            self.span = (self.span / 2).max(1);
        }
        if end == SLOTS {
            self.rooms.pop();
            (self.from, self.span) = (0, SPAN);
        }
        Ok(())
    }

    /// Looks for others in the next database that was flushed.
    async fn find(&mut self, wire: &Wire) -> Result<(), Status> {
        while self.next < self.databases {
            let Some(ranges) = self.names.all_flushed(self.next) else {
                self.next += 1;
                continue;
            };
            for [key, range_end] in ranges {
                let request =
                    RangeRequest { key, range_end, limit: 1, keys_only: true, ..RangeRequest::default() };
                let found = wire.range(request).await?.kvs.into_iter().next();
                let room = found.as_ref().and_then(|found| self.names.room_in(&found.key));
                if let Some(room) = room {
                    self.rooms.push(room.to_owned());
                    return Ok(());
                }
            }
            self.next += 1;
            return Ok(());
        }
        Ok(())
    }
}
