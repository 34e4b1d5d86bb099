//! Groups of consumers: what each group was given last, and what its consumers have not acknowledged yet.
//!
//! An entry that was delivered is pending until it is acknowledged. The group keeps its pending entries in
//! the order of their IDs, each with its consumer, and each consumer the IDs of its own. A consumer is known
//! by a number, its place in the group, which a later consumer gets when it is deleted.

use std::ops::Range;
use std::sync::Arc;

use super::super::page::shared_bytes;
use super::super::remains::{self, Remains, Rest};
use super::super::sequence::Sequence;
use super::delivery::Delivery;
use super::id::EntryId;
use super::idle::{Idle, STEP_ENTRIES};
use crate::allocator::taken_bytes;

/// If a consumer has more pieces than one in this number of records, all records are gathered anew to remove
/// them.
const GATHERED_SHARE: usize = 16;

/// A group of consumers.
#[derive(Debug)]
pub struct Group {
    name: Box<[u8]>,
    /// The ID up to which entries were delivered.
    pub last_id: EntryId,
    /// How many entries were delivered in the life of the stream, if that is known.
    pub entries_read: Option<u64>,
    /// Records of an ID and a [`Delivery`].
    pending: Sequence,
    /// By their numbers.
    consumers: Vec<Option<Arc<Consumer>>>,
    /// The numbers in the order of the names.
    by_name: Vec<u32>,
    /// Bytes of the consumers.
    consumers_bytes: usize,
    /// The pending entries by the time of their delivery, once a client has asked for them. Those that no
    /// consumer has are not there.
    idle: Option<Box<Idle>>,
    /// The pending entries that no consumer has, in the order in which they were given back, once there was
    /// one.
    released: Option<Box<Idle>>,
    /// How many pending entries no consumer has.
    released_count: usize,
}

/// A consumer of a group.
#[derive(Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    /// When it was heard of last, in milliseconds since 1970.
    seen_ms: u64,
    /// When it has got an entry last, in milliseconds since 1970, if it ever has.
    active_ms: Option<u64>,
    /// The IDs of its pending entries.
    pending: Sequence,
}

/// The position of an ID among records that begin with IDs, or the one at which it could be inserted.
fn search(records: &Sequence, id: EntryId) -> Result<usize, usize> {
    let bytes = id.to_bytes();
    // A record is longer than its ID, so it is behind it.
    match records.search(&bytes) {
        Err(at) if records.get(at).is_some_and(|record| record.starts_with(&bytes)) => Ok(at),
        found => found,
    }
}

/// The positions of the IDs from one to another, with both.
fn positions(records: &Sequence, from: EntryId, to: EntryId) -> Range<usize> {
    let (Ok(start) | Err(start)) = search(records, from);
    let end = match search(records, to) {
        Ok(last) => last + 1,
        Err(end) => end,
    };
    start..end.max(start)
}

impl Consumer {
    /// The consumer's name; any bytes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// When it was heard of last, in milliseconds since 1970.
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
    }

    /// When it has got an entry last, in milliseconds since 1970, if it ever has.
    pub fn active_ms(&self) -> Option<u64> {
        self.active_ms
    }

    /// How many entries it has not acknowledged.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The IDs of its pending entries from one to another, with both.
    pub fn pending(&self, from: EntryId, to: EntryId) -> impl ExactSizeIterator<Item = EntryId> {
        self.pending.range(positions(&self.pending, from, to)).map(EntryId::of_record)
    }

    fn bytes(&self) -> usize {
        shared_bytes(size_of::<Consumer>()) + taken_bytes(self.name.len()) + self.pending.bytes()
    }
}

impl Clone for Consumer {
    fn clone(&self) -> Consumer {
        Consumer { name: self.name.clone(), pending: self.pending.share(), ..*self }
    }
}

impl Clone for Group {
    fn clone(&self) -> Group {
        Group {
            name: self.name.clone(),
            pending: self.pending.share(),
            consumers: self.consumers.clone(),
            by_name: self.by_name.clone(),
            idle: self.idle.clone(),
            released: self.released.clone(),
            ..*self
        }
    }
}

impl Group {
    /// A group without consumers.
    pub(super) fn new(name: &[u8], last_id: EntryId, entries_read: Option<u64>) -> Group {
        Group {
            name: name.into(),
            last_id,
            entries_read,
            pending: Sequence::new(),
            consumers: Vec::new(),
            by_name: Vec::new(),
            consumers_bytes: 0,
            idle: None,
            released: None,
            released_count: 0,
        }
    }

    /// The group's name; any bytes.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Bytes of the group with all that belongs to it.
    pub(super) fn bytes(&self) -> usize {
        shared_bytes(size_of::<Group>())
            + taken_bytes(self.name.len())
            + taken_bytes(self.consumers.capacity() * size_of::<Option<Arc<Consumer>>>())
            + taken_bytes(self.by_name.capacity() * size_of::<u32>())
            + self.pending.bytes()
            + self.consumers_bytes
            + self.idle.as_ref().map_or(0, |idle| idle.bytes())
            + self.released.as_ref().map_or(0, |released| released.bytes())
    }

    /// The number of consumers.
    pub fn consumers_count(&self) -> usize {
        self.by_name.len()
    }

    /// The consumers in the order of their names, with their numbers.
    pub fn consumers(&self) -> impl Iterator<Item = (u32, &Consumer)> + Clone {
        self.by_name.iter().filter_map(|number| Some((*number, self.consumer(*number)?)))
    }

    /// The consumer with this number.
    pub fn consumer(&self, number: u32) -> Option<&Consumer> {
        self.consumers.get(number as usize)?.as_deref()
    }

    /// The number of the consumer with this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<u32> {
        self.search_consumer(name).ok().map(|at| self.by_name[at])
    }

    fn search_consumer(&self, name: &[u8]) -> Result<usize, usize> {
        let name_of = |number: u32| self.consumer(number).map_or(&[][..], Consumer::name);
        self.by_name.binary_search_by(|number| name_of(*number).cmp(name))
    }

    /// Adds a consumer; returns its number and whether it was not there.
    pub fn add_consumer(&mut self, name: &[u8], seen_ms: u64) -> (u32, bool) {
        let at = match self.search_consumer(name) {
            Ok(at) => return (self.by_name[at], false),
            Err(at) => at,
        };
        let consumer = Consumer { name: name.into(), seen_ms, active_ms: None, pending: Sequence::new() };
        self.consumers_bytes += consumer.bytes();
        let free = self.consumers.iter().position(Option::is_none).unwrap_or(self.consumers.len());
        match self.consumers.get_mut(free) {
            Some(place) => *place = Some(Arc::new(consumer)),
            None => self.consumers.push(Some(Arc::new(consumer))),
        }
        // A group with four billion consumers would not fit into memory.
        let number = free as u32;
        self.by_name.insert(at, number);
        (number, true)
    }

    /// Notes that a consumer was heard of.
    pub fn see_consumer(&mut self, number: u32, seen_ms: u64) {
        self.change_consumer(number, |consumer| consumer.seen_ms = seen_ms);
    }

    /// Notes when a consumer has got an entry last, if it ever has.
    pub fn set_active(&mut self, number: u32, active_ms: Option<u64>) {
        self.change_consumer(number, |consumer| consumer.active_ms = active_ms);
    }

    fn change_consumer(&mut self, number: u32, change: impl FnOnce(&mut Consumer)) {
        if let Some(Some(consumer)) = self.consumers.get_mut(number as usize) {
            let consumer = Arc::make_mut(consumer);
            let before = consumer.bytes();
            change(consumer);
            self.consumers_bytes = self.consumers_bytes + consumer.bytes() - before;
        }
    }

    /// Removes a consumer with all its pending entries. Returns their number, and what is to be freed.
    pub fn remove_consumer(&mut self, number: u32) -> (usize, Remains) {
        let Some(consumer) = self.consumers.get_mut(number as usize).and_then(Option::take) else {
            return (0, Remains::default());
        };
        self.by_name.retain(|other| *other != number);
        self.consumers_bytes -= consumer.bytes();
        let count = consumer.pending.len();
        let mut remains = Remains::default();
        // The index by time is made again for the next client that asks.
        let idle = self.idle.take_if(|_| count > 0).map(|mut idle| idle.clear());
        if count == self.pending.len() {
            remains = self.pending.clear();
        } else {
            let runs = self.runs_of(&consumer);
            if runs.len() > self.pending.len() / GATHERED_SHARE {
                // To gather what stays is faster than to remove this number of pieces.
                let stays = |record: &&[u8]| Delivery::of_record(record).consumer != number;
                let staying = self.pending.range(0..self.pending.len()).filter(stays);
                let gathered = Sequence::gather(staying.map(|record| record.split_at(EntryId::BYTES)));
                remains = std::mem::replace(&mut self.pending, gathered).clear();
            } else {
                // From the last one on, so that the others stay where they are.
                for run in runs.into_iter().rev() {
                    remains.append(self.pending.remove(run));
                }
            }
        }
        remains.append(Remains::of([consumer]));
        remains.append(idle.unwrap_or_default());
        (count, remains)
    }

    /// Where the pending entries of a consumer lie among those of the group, as ranges of neighbours: it got
    /// them some at a time.
    fn runs_of(&self, consumer: &Consumer) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut own = consumer.pending(EntryId::ZERO, EntryId::MAX).peekable();
        while let Some(first) = own.next() {
            let Ok(start) = search(&self.pending, first) else { continue };
            let behind = self.pending.range(start + 1..self.pending.len()).map(EntryId::of_record);
            let more = behind.take_while(|id| own.next_if_eq(id).is_some()).count();
            runs.push(start..start + 1 + more);
        }
        runs
    }

    /// The number of pending entries.
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// How a pending entry was delivered.
    pub fn pending_at(&self, id: EntryId) -> Option<Delivery> {
        search(&self.pending, id).ok().and_then(|at| self.pending.get(at)).map(Delivery::of_record)
    }

    /// The pending entries from one ID to another, with both, from either end.
    pub fn pending(
        &self,
        from: EntryId,
        to: EntryId,
    ) -> impl DoubleEndedIterator<Item = (EntryId, Delivery)> + ExactSizeIterator {
        let records = self.pending.range(positions(&self.pending, from, to));
        records.map(|record| (EntryId::of_record(record), Delivery::of_record(record)))
    }

    /// How many pending entries no consumer has.
    pub fn released_count(&self) -> usize {
        self.released_count
    }

    /// The pending entries that no consumer has, in the order in which they were given back. Those that were
    /// deleted meanwhile may come last.
    pub fn released(&self) -> impl Iterator<Item = EntryId> {
        let indexed = self.released.iter().flat_map(|released| released.entries()).map(|(id, _)| id);
        let is_whole = self.released.as_ref().map_or(0, |released| released.len()) == self.released_count;
        let all = self.pending.range(0..if is_whole { 0 } else { self.pending.len() });
        let is_forgotten = |(delivery, number): (Delivery, u64)| !delivery.has_consumer() && number == 0;
        let forgotten = all.filter(move |record| is_forgotten(Delivery::with_number(record)));
        indexed.chain(forgotten.map(EntryId::of_record))
    }

    /// Makes an entry pending, or changes how it was delivered. One that no consumer has any more is behind
    /// all that were given back before.
    pub fn deliver(&mut self, id: EntryId, delivery: Delivery) {
        let found = search(&self.pending, id);
        let before = found.ok().and_then(|at| self.pending.get(at)).map(Delivery::with_number);
        let number = self.index_delivery(id, before, delivery);
        let record = delivery.record(id, number);
        match found {
            Ok(at) => self.pending.replace(at, &record),
            Err(at) => self.pending.insert(at, &record),
        }
        let owner = before.map(|(before, _)| before.consumer);
        if owner != Some(delivery.consumer) {
            if let Some(owner) = owner {
                self.take_from(owner, id);
            }
            self.change_consumer(delivery.consumer, |consumer| {
                if let Err(at) = search(&consumer.pending, id) {
                    consumer.pending.insert(at, &id.to_bytes());
                }
            });
        }
    }

    /// Makes entries pending for a consumer, as [`deliver`](Self::deliver) does with each. Their IDs ascend.
    /// Those behind all pending ones, as new entries are, need no search.
    pub fn deliver_all(&mut self, ids: &[EntryId], delivery: Delivery) {
        let last = self.pending.len().checked_sub(1).and_then(|at| self.pending.get(at));
        let last = last.map(EntryId::of_record);
        let Some(first) = ids.first() else { return };
        let is_indexed = self.idle.as_ref().is_some_and(|idle| idle.covers(*first));
        let has_consumer = self.consumer(delivery.consumer).is_some();
        let behind = match is_indexed || !has_consumer {
            true => ids.len(),
            false => ids.partition_point(|id| last.is_some_and(|last| *id <= last)),
        };
        let (searched, new) = ids.split_at(behind);
        searched.iter().for_each(|id| self.deliver(*id, delivery));
        for id in new {
            self.pending.insert(self.pending.len(), &delivery.record(*id, 0));
        }
        self.change_consumer(delivery.consumer, |consumer| {
            // Its own entries are among those of the group, so they are behind these, too.
            for id in new {
                consumer.pending.insert(consumer.pending.len(), &id.to_bytes());
            }
        });
    }

    /// Removes an entry from the pending ones; returns whether it was one.
    pub fn acknowledge(&mut self, id: EntryId) -> bool {
        let Ok(at) = search(&self.pending, id) else { return false };
        let delivery = self.pending.get(at).map(Delivery::with_number);
        drop(self.pending.remove(at..at + 1));
        if let Some((delivery, number)) = delivery {
            self.take_from(delivery.consumer, id);
            self.forget_delivery(id, delivery, number);
        }
        true
    }

    /// Puts a delivery into the index to which it belongs, if there is one, and takes the one before out of
    /// its own; returns the number in the index, or 0.
    fn index_delivery(&mut self, id: EntryId, before: Option<(Delivery, u64)>, delivery: Delivery) -> u64 {
        if let Some((before, number)) = before {
            self.forget_delivery(id, before, number);
        }
        let index = if delivery.has_consumer() {
            self.idle.as_mut().filter(|idle| idle.covers(id))
        } else {
            self.released_count += 1;
            Some(self.released.get_or_insert_default())
        };
        let Some(index) = index else { return 0 };
        let number = index.next_number();
        index.add(id, delivery.at_ms, number);
        number
    }

    /// Takes a delivery that is over out of its index.
    fn forget_delivery(&mut self, id: EntryId, delivery: Delivery, number: u64) {
        if !delivery.has_consumer() {
            self.released_count -= 1;
        }
        if let Some(index) = self.index_of(delivery) {
            index.remove(id, delivery.at_ms, number);
        }
    }

    /// The index to which a delivery belongs, if there is one.
    fn index_of(&mut self, delivery: Delivery) -> Option<&mut Idle> {
        let index = if delivery.has_consumer() { &mut self.idle } else { &mut self.released };
        index.as_deref_mut()
    }

    /// Adds some pending entries to the index by time, which is made if it is not there; returns whether it
    /// has all of them now.
    pub fn index_some(&mut self) -> bool {
        let idle = self.idle.get_or_insert_default();
        if idle.up_to == EntryId::MAX {
            return true;
        }
        let from = idle.up_to.next().unwrap_or(EntryId::MAX);
        let positions = positions(&self.pending, from, EntryId::MAX);
        for record in self.pending.range(positions).take(STEP_ENTRIES) {
            idle.up_to = EntryId::of_record(record);
            let (delivery, number) = Delivery::with_number(record);
            if delivery.has_consumer() {
                idle.add(idle.up_to, delivery.at_ms, number);
            }
        }
        if search(&self.pending, idle.up_to).is_ok_and(|at| at + 1 < self.pending.len()) {
            return false;
        }
        idle.up_to = EntryId::MAX;
        true
    }

    /// The pending entries with the times of their deliveries: those that no consumer has, and then the one
    /// that was delivered first, as far as the [index by time](Self::index_some) has them.
    pub fn by_idle_time(&self) -> impl Iterator<Item = (EntryId, u64)> {
        self.released.iter().chain(&self.idle).flat_map(|index| index.entries())
    }

    /// Removes entries from their index alone: they are still pending, but were deleted.
    pub fn forget_idle(&mut self, ids: &[EntryId]) {
        for id in ids {
            let Ok(at) = search(&self.pending, *id) else { continue };
            let Some(found) = self.pending.get(at).map(Delivery::with_number) else { continue };
            let (delivery, number) = found;
            if let Some(index) = self.index_of(delivery) {
                index.remove(*id, delivery.at_ms, number);
            }
            if !delivery.has_consumer() {
                // So it is found among those that no consumer has: see `released`.
                self.pending.replace(at, &delivery.record(*id, 0));
            }
        }
    }

    fn take_from(&mut self, owner: u32, id: EntryId) {
        self.change_consumer(owner, |consumer| {
            if let Ok(at) = search(&consumer.pending, id) {
                drop(consumer.pending.remove(at..at + 1));
            }
        });
    }

    /// Makes an entry pending whose ID is behind those of all other pending entries. No consumer has it
    /// yet: see [`own`](Self::own). Returns false if the ID is not behind the others.
    pub fn append_pending(&mut self, id: EntryId, at_ms: u64, count: u64) -> bool {
        let len = self.pending.len();
        if search(&self.pending, id) != Err(len) {
            return false;
        }
        let consumer = Delivery::NO_CONSUMER;
        self.pending.insert(len, &Delivery { consumer, at_ms, count }.record(id, 0));
        self.released_count += 1;
        true
    }

    /// Gives a pending entry that no consumer has to a consumer; returns false if there is no such entry.
    pub fn own(&mut self, id: EntryId, consumer: u32) -> bool {
        let Some(delivery) = self.pending_at(id).filter(|delivery| !delivery.has_consumer()) else {
            return false;
        };
        self.deliver(id, Delivery { consumer, ..delivery });
        true
    }
}

impl From<Arc<Consumer>> for Rest {
    fn from(consumer: Arc<Consumer>) -> Rest {
        Rest::Branch(consumer)
    }
}

impl From<Arc<Group>> for Rest {
    fn from(group: Arc<Group>) -> Rest {
        Rest::Branch(group)
    }
}

impl remains::Branch for Consumer {
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize {
        let Some(mut consumer) = Arc::into_inner(self) else { return 0 };
        consumer.pending.clear().give_to(kids);
        size_of::<Consumer>() + consumer.name.len()
    }
}

impl remains::Branch for Group {
    fn take_apart(self: Arc<Self>, kids: &mut Vec<Rest>) -> usize {
        let Some(mut group) = Arc::into_inner(self) else { return 0 };
        group.pending.clear().give_to(kids);
        for mut index in group.idle.into_iter().chain(group.released) {
            index.clear().give_to(kids);
        }
        kids.extend(group.consumers.drain(..).flatten().map(Rest::from));
        size_of::<Group>() + group.name.len()
    }
}
