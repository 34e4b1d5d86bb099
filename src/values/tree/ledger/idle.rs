//! The pending entries of a group by the time of their delivery: a client that asks for idle ones (XREADGROUP
//! CLAIM) gets the longest idle first.
//!
//! A group has this index only once a client has asked for idle entries. It is built in steps, in the order
//! of the IDs, so that no client waits for another one's long list.
//!
//! Entries that consumers have given back (XNACK) come before all of these, whatever their IDs, in the order
//! in which they were given back. They have an index of their own of the same kind, with 0 as their time.

use super::super::remains::Remains;
use super::super::sequence::Sequence;
use super::id::EntryId;

/// Entries that are added to the index with each step.
pub(super) const STEP_ENTRIES: usize = 5_000;

/// An index of pending entries. A record has the time of the delivery, its number, and the ID.
#[derive(Debug)]
pub(super) struct Idle {
    records: Sequence,
    /// The index has the pending entries up to this one.
    pub(super) up_to: EntryId,
    /// The number of the last delivery. Those from before the index have none: they go by their IDs.
    last: u64,
}

impl Default for Idle {
    fn default() -> Idle {
        Idle { records: Sequence::new(), up_to: EntryId::ZERO, last: 0 }
    }
}

impl Clone for Idle {
    fn clone(&self) -> Idle {
        Idle { records: self.records.share(), ..*self }
    }
}

fn record(id: EntryId, at_ms: u64, number: u64) -> [u8; 32] {
    let mut record = [0; 32];
    record[..8].copy_from_slice(&at_ms.to_be_bytes());
    record[8..16].copy_from_slice(&number.to_be_bytes());
    record[16..].copy_from_slice(&id.to_bytes());
    record
}

impl Idle {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Idle>() + self.records.bytes()
    }

    /// The number for the next delivery.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether the index has the pending entries up to an ID.
    pub(super) fn covers(&self, id: EntryId) -> bool {
        id <= self.up_to
    }

    pub(super) fn add(&mut self, id: EntryId, at_ms: u64, number: u64) {
        let record = record(id, at_ms, number);
        if let Err(at) = self.records.search(&record) {
            self.records.insert(at, &record);
        }
    }

    pub(super) fn remove(&mut self, id: EntryId, at_ms: u64, number: u64) {
        if let Ok(at) = self.records.search(&record(id, at_ms, number)) {
            drop(self.records.remove(at..at + 1));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Removes everything; returns what is to be freed.
    pub(super) fn clear(&mut self) -> Remains {
        self.records.clear()
    }

    /// The entries and the times of their deliveries, the one that was delivered first in front.
    pub(super) fn entries(&self) -> impl Iterator<Item = (EntryId, u64)> {
        self.records.range(0..self.records.len()).filter_map(|record| {
            let (at_ms, rest) = record.split_first_chunk()?;
            Some((EntryId::of_record(rest.get(8..)?), u64::from_be_bytes(*at_ms)))
        })
    }
}
