//! Rows as they were seen last. They decide nothing: the store checks each one that a request relied on.

use std::sync::Arc;

use super::row::{Key, KeyMap, Row};

/// Bytes of the rows that were used lately. As many may be kept of those before them.
const BYTES_MAX: usize = 16 << 20;
/// Longer values are not kept.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// What a row takes beside its value and its key, about.
const OVERHEAD_BYTES: usize = 160;

/// Rows in two generations: when the young one is full, the old one is forgotten.
#[derive(Debug, Default)]
pub(super) struct Hints {
    young: KeyMap<Arc<Row>>,
    old: KeyMap<Arc<Row>>,
    young_bytes: usize,
}

impl Hints {
    /// The row of a key, or a guess.
    pub(super) fn get(&mut self, key: &Key) -> Arc<Row> {
        if let Some(row) = self.young.get(key) {
            return Arc::clone(row);
        }
        match self.old.remove(key) {
            Some(row) => {
                self.put(key.clone(), Arc::clone(&row));
                row
            }
            None => Row::absent(),
        }
    }

    /// Keeps a row. Absent ones are what is guessed anyway.
    pub(super) fn put(&mut self, key: Key, row: Arc<Row>) {
        if row.live.is_none() || row.bytes() > VALUE_BYTES_MAX {
            self.forget(&key);
            return;
        }
        self.young_bytes += key.name.len() + row.bytes() + OVERHEAD_BYTES;
        self.young.insert(key, row);
        if self.young_bytes > BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    /// Forgets a row.
    pub(super) fn forget(&mut self, key: &Key) {
        self.young.remove(key);
        self.old.remove(key);
    }

    /// Forgets the guesses of all keys.
    pub(super) fn clear(&mut self) {
        *self = Hints::default();
    }
}
