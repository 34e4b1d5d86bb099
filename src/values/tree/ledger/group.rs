//! Groups of consumers: what each group was given last, and what its consumers have not acknowledged yet.
//!
//! An entry that was delivered is pending until it is acknowledged. The group keeps its pending entries in
//! the order of their IDs, each with its consumer, and each consumer the IDs of its own. A consumer is known
//! by a number, its place in the group, which a later consumer gets when it is gone.

use std::ops::Range;
use std::sync::Arc;

use super::super::page::shared_bytes;
use super::super::remains::{self, Remains, Rest};
use super::super::sequence::Sequence;
use super::id::EntryId;
use crate::allocator::taken_bytes;

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
}

/// A consumer of a group.
#[derive(Debug)]
pub struct Consumer {
    name: Box<[u8]>,
    /// When it was heard of last, in milliseconds since 1970.
    seen_ms: u64,
    /// The IDs of its pending entries.
    pending: Sequence,
}

/// How an entry was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the consumer that has it.
    pub consumer: u32,
    /// When it was delivered, in milliseconds since 1970.
    pub at_ms: u64,
    /// How often it was delivered.
    pub count: u64,
}

impl Delivery {
    /// The record of a pending entry.
    fn record(self, id: EntryId) -> Vec<u8> {
        let mut record = Vec::with_capacity(32);
        record.extend_from_slice(&id.to_bytes());
        record.extend_from_slice(&self.at_ms.to_le_bytes());
        write_number(&mut record, u64::from(self.consumer));
        write_number(&mut record, self.count);
        record
    }

    fn of_record(record: &[u8]) -> Delivery {
        let rest = record.get(EntryId::BYTES..).unwrap_or_default();
        let (at_ms, mut rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let consumer = read_number(&mut rest) as u32;
        Delivery { at_ms: u64::from_le_bytes(*at_ms), consumer, count: read_number(&mut rest) }
    }
}

/// Appends a number in as many groups of seven bits as it needs.
fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_number(rest: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let Some(byte) = rest.split_off_first() else { break };
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
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
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// When it was heard of last, in milliseconds since 1970.
    pub fn seen_ms(&self) -> u64 {
        self.seen_ms
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
        Consumer { name: self.name.clone(), seen_ms: self.seen_ms, pending: self.pending.share() }
    }
}

impl Clone for Group {
    fn clone(&self) -> Group {
        Group {
            name: self.name.clone(),
            pending: self.pending.share(),
            consumers: self.consumers.clone(),
            by_name: self.by_name.clone(),
            ..*self
        }
    }
}

impl Group {
    /// A group without consumers.
    pub(super) fn new(name: &[u8], last_id: EntryId, entries_read: Option<u64>) -> Group {
        let (consumers, by_name) = Default::default();
        let pending = Sequence::new();
        Group { name: name.into(), last_id, entries_read, pending, consumers, by_name, consumers_bytes: 0 }
    }

    /// Its name.
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
        let consumer = Consumer { name: name.into(), seen_ms, pending: Sequence::new() };
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
        if count == self.pending.len() {
            remains = self.pending.clear();
        } else if count > self.pending.len() / 2 {
            // What stays is gathered sooner than most is removed.
            let stays = |record: &&[u8]| Delivery::of_record(record).consumer != number;
            let staying = self.pending.range(0..self.pending.len()).filter(stays);
            let gathered = Sequence::gather(staying.map(|record| record.split_at(EntryId::BYTES)));
            remains = std::mem::replace(&mut self.pending, gathered).clear();
        } else {
            for id in consumer.pending(EntryId::ZERO, EntryId::MAX) {
                if let Ok(at) = search(&self.pending, id) {
                    remains.append(self.pending.remove(at..at + 1));
                }
            }
        }
        remains.append(Remains::of([consumer]));
        (count, remains)
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

    /// Makes an entry pending, or changes how it was delivered.
    pub fn deliver(&mut self, id: EntryId, delivery: Delivery) {
        let record = delivery.record(id);
        let owner = match search(&self.pending, id) {
            Ok(at) => {
                let owner = self.pending.get(at).map(|record| Delivery::of_record(record).consumer);
                self.pending.replace(at, &record);
                owner
            }
            Err(at) => {
                self.pending.insert(at, &record);
                None
            }
        };
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

    /// Removes an entry from the pending ones; returns whether it was one.
    pub fn acknowledge(&mut self, id: EntryId) -> bool {
        let Ok(at) = search(&self.pending, id) else { return false };
        let owner = self.pending.get(at).map(|record| Delivery::of_record(record).consumer);
        drop(self.pending.remove(at..at + 1));
        if let Some(owner) = owner {
            self.take_from(owner, id);
        }
        true
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
        self.pending.insert(len, &Delivery { consumer: u32::MAX, at_ms, count }.record(id));
        true
    }

    /// Gives a pending entry that no consumer has to a consumer; returns false if there is no such entry.
    pub fn own(&mut self, id: EntryId, consumer: u32) -> bool {
        let is_free = |delivery: &Delivery| delivery.consumer == u32::MAX;
        let Some(delivery) = self.pending_at(id).filter(is_free) else { return false };
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
        kids.extend(group.consumers.drain(..).flatten().map(Rest::from));
        size_of::<Group>() + group.name.len()
    }
}
