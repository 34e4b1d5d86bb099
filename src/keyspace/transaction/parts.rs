//! Changing parts of values in place, without copying what stays.
//!
//! The log records which bytes changed, and no handler can forget to note them: [`Part::bytes_mut`] is the
//! only way to change a value in place, and it notes its range.

use std::ops::Range;

use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::{Expiry, Transaction};
use crate::values::{Encoding, WrongType};

/// A value that is being changed in place.
#[derive(Debug)]
pub struct Part<'v> {
    value: &'v mut [u8],
    /// Whether the key is new, or its value became longer.
    has_grown: bool,
    /// How often the value was changed.
    changes: u64,
    /// The ranges that were changed, if there is a log.
    ranges: Option<Vec<Range<usize>>>,
}

impl Part<'_> {
    /// All of the value as it is now.
    pub fn value(&self) -> &[u8] {
        self.value
    }

    /// Whether the key is new, or its value became longer.
    pub fn has_grown(&self) -> bool {
        self.has_grown
    }

    /// Whether the value was changed.
    pub fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// A range of the value, to be changed.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.changes += 1;
        if let Some(ranges) = &mut self.ranges {
            ranges.push(range.clone());
        }
        &mut self.value[range]
    }
}

impl Transaction<'_> {
    /// Makes the value of a key at least `bytes` long, filled up with zeros, and calls `change` to change it.
    /// An absent key is made, without expiry.
    ///
    /// # Errors
    ///
    /// [`WrongType`], if the value is no string.
    pub fn change_part<T>(
        &mut self,
        key: &[u8],
        bytes: usize,
        change: impl FnOnce(&mut Part<'_>) -> T,
    ) -> Result<T, WrongType> {
        let before = match self.peek_entry(key) {
            Some(entry) => Some(entry.text()?.len()),
            None => None,
        };
        if before.is_none() {
            self.remove(key);
            self.insert(key, b"", Expiry::Never, false);
        }
        let is_logged = before.is_some() && self.wanted.journal();
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        let entry = shard.entry_mut(database, spot, key).expect("it was made if it was not there");
        let before_bytes = before.unwrap_or(0);
        if before_bytes < bytes {
            entry.grow_text(bytes);
        }
        entry.set_encoding(Encoding::Raw);
        let has_grown = before.is_none() || before_bytes < bytes;
        let ranges = is_logged.then(Vec::new);
        let mut part = Part { value: entry.text_mut(), has_grown, changes: 0, ranges };
        let result = change(&mut part);
        let (changes, after_bytes, ranges) = (part.changes, part.value.len(), part.ranges);
        // A new key was counted when it was made.
        shard.changes += changes.saturating_sub(u64::from(before.is_none()));
        if before.is_some() && (changes > 0 || has_grown) {
            self.follow_change(key, Extent::Part);
        }
        if let Some(mut ranges) = ranges {
            if has_grown && ranges.iter().all(|range| range.end < after_bytes) {
                // Only the length changed. A step of the last byte restores it.
                ranges.push(after_bytes - 1..after_bytes);
            }
            if !ranges.is_empty() {
                self.note_steps(key, before_bytes, &ranges);
            }
        }
        Ok(result)
    }
}
