//! How an entry was delivered, and the record that a group keeps of it.

use super::id::EntryId;

/// How an entry was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the consumer that has it, or [`NO_CONSUMER`](Self::NO_CONSUMER).
    pub consumer: u32,
    /// When it was delivered, in milliseconds since 1970.
    pub at_ms: u64,
    /// How often it was delivered.
    pub count: u64,
}

impl Delivery {
    /// The number that stands for no consumer: the entry was given back, and waits for the next one.
    pub const NO_CONSUMER: u32 = u32::MAX;
    /// The highest number of deliveries. Redis: `LLONG_MAX`.
    pub const COUNT_MAX: u64 = i64::MAX as u64;

    /// The delivery of an entry that was given back after `count` deliveries.
    pub fn released(count: u64) -> Delivery {
        Delivery { consumer: Delivery::NO_CONSUMER, at_ms: 0, count }
    }

    /// Whether a consumer has the entry.
    pub fn has_consumer(&self) -> bool {
        self.consumer != Delivery::NO_CONSUMER
    }

    /// The number of deliveries with one more, which stays at the highest.
    pub fn count_after(&self) -> u64 {
        if self.count == Delivery::COUNT_MAX { self.count } else { self.count.wrapping_add(1) }
    }

    /// The record of a pending entry. The number is that of the index in which it is, or 0.
    pub(super) fn record(self, id: EntryId, number: u64) -> Vec<u8> {
        let mut record = Vec::with_capacity(32);
        record.extend_from_slice(&id.to_bytes());
        record.extend_from_slice(&self.at_ms.to_le_bytes());
        write_number(&mut record, u64::from(self.consumer));
        write_number(&mut record, self.count);
        if number > 0 {
            write_number(&mut record, number);
        }
        record
    }

    pub(super) fn of_record(record: &[u8]) -> Delivery {
        Delivery::with_number(record).0
    }

    pub(super) fn with_number(record: &[u8]) -> (Delivery, u64) {
        let rest = record.get(EntryId::BYTES..).unwrap_or_default();
        let (at_ms, mut rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let consumer = read_number(&mut rest) as u32;
        let count = read_number(&mut rest);
        (Delivery { at_ms: u64::from_le_bytes(*at_ms), consumer, count }, read_number(&mut rest))
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
