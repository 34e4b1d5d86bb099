//! Streams: entries in the order of their IDs, and groups of consumers that read them.
//!
//! Each file is a family: [`entries`] for what a stream has, [`deleting`] for entries that groups may still
//! need, [`producers`] for those that name their messages, [`reading`] for clients that follow streams, alone
//! or in groups, [`delivering`] for what these get, [`budget`] for how much of it, [`groups`] for the groups
//! themselves, [`pending`] for entries that were delivered and not acknowledged, [`releasing`] for those that
//! a consumer gives back, [`info`] for what is known of all of these. [`ids`] reads IDs, [`options`] and
//! [`wishes`] what several commands are asked.

pub(super) mod deleting;
pub(super) mod entries;
pub(super) mod groups;
pub(super) mod info;
pub(super) mod pending;
pub(super) mod producers;
pub(super) mod reading;
pub(super) mod releasing;

mod budget;
mod delivering;
mod ids;
mod options;
mod wishes;

use crate::resp::reply::Nested;
use crate::values::tree::ledger::{Entry, EntryId, ID_TEXT_BYTES_MAX};

use super::error::Error;
use super::facts::Result;
use budget::Budget;

/// Writes entries into replies. What it needs to print them is used again.
struct EntryWriter {
    id: [u8; ID_TEXT_BYTES_MAX],
    digits: itoa::Buffer,
}

impl Default for EntryWriter {
    fn default() -> EntryWriter {
        EntryWriter { id: [0; ID_TEXT_BYTES_MAX], digits: itoa::Buffer::new() }
    }
}

impl EntryWriter {
    /// Writes an ID, as a part of an array.
    fn id(&mut self, id: EntryId, parts: &mut Nested<'_>) {
        let _ = parts.part().bulk(id.digits(&mut self.id));
    }

    /// An entry: its ID, and its fields and values in turn.
    fn entry(&mut self, entry: Entry<'_>, parts: &mut Nested<'_>) {
        parts.array(2);
        self.halves(entry, parts);
    }

    /// The two parts of an entry.
    fn halves(&mut self, entry: Entry<'_>, parts: &mut Nested<'_>) {
        self.id(entry.id, parts);
        parts.array(2 * entry.fields.len());
        for (name, value) in entry.fields {
            let _ = parts.part().bulk(name.text(&mut self.digits));
            let _ = parts.part().bulk(value.text(&mut self.digits));
        }
    }

    /// Entries, each with the milliseconds since its delivery and the number of its deliveries, as far as
    /// there is room.
    fn deliveries<'l>(
        &mut self,
        mut entries: impl Iterator<Item = (Entry<'l>, u64, u64)>,
        budget: &mut Budget,
        parts: &mut Nested<'_>,
    ) -> Result<()> {
        parts.array_counted(|parts| {
            let mut count = 0;
            while let Some((entry, idle_ms, deliveries)) = budget.next(&mut entries, parts) {
                parts.array(4);
                self.halves(entry, parts);
                let _ = parts.part().integer(idle_ms as i64);
                let _ = parts.part().integer(deliveries as i64);
                count += 1;
            }
            Ok(count)
        })
    }

    /// Entries, as far as there is room.
    fn entries<'l>(
        &mut self,
        mut entries: impl Iterator<Item = Entry<'l>>,
        budget: &mut Budget,
        parts: &mut Nested<'_>,
    ) -> Result<()> {
        parts.array_counted(|parts| {
            let mut count = 0;
            while let Some(entry) = budget.next(&mut entries, parts) {
                self.entry(entry, parts);
                count += 1;
            }
            Ok(count)
        })
    }
}

/// A text as C prints it: it ends with its first NUL.
fn printed(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A key that is absent, or has not this group.
fn no_key_or_group(key: &[u8], group: &[u8], after: &str) -> Error {
    let parts: [&[u8]; 6] = [
        b"NOGROUP No such key '",
        printed(key),
        b"' or consumer group '",
        printed(group),
        b"'",
        after.as_bytes(),
    ];
    Error::bytes(parts.concat())
}

/// A stream that has not this group.
fn no_group(key: &[u8], group: &[u8]) -> Error {
    let parts: [&[u8]; 5] =
        [b"NOGROUP No such consumer group '", printed(group), b"' for key name '", printed(key), b"'"];
    Error::bytes(parts.concat())
}
