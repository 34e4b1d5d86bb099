//! Entries of a ledger from a file whose blocks are not as they should be.
//!
//! Redis loads such blocks as they are, and finds their entries by walking from element to element. Here each
//! entry that can be read is taken out, and a ledger is made of these anew.

use std::collections::BTreeMap;

use super::block::Block;
use super::{EntryId, Ledger};
use crate::dump::strings::DecodeError;

/// Bytes of a block of the new ledger, and its entries. Redis: `stream-node-max-bytes` and -`entries`.
const BLOCK_BYTES: usize = 4096;
const BLOCK_ENTRIES: usize = 100;

/// The entries that were found so far, with their names and values in turn.
#[derive(Debug)]
pub(crate) struct Salvage(BTreeMap<EntryId, Vec<Vec<u8>>>);

impl Salvage {
    /// Begins with the entries of a ledger.
    pub(crate) fn of(ledger: &Ledger) -> Salvage {
        let mut salvage = Salvage(BTreeMap::new());
        for kept in ledger.blocks.iter() {
            salvage.take(&kept.block, kept.id);
        }
        salvage
    }

    /// Adds the entries of a block that can be read. Of two with the same ID the last one counts.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Invalid`] if it has not the length that it says, or nothing is in it.
    pub(crate) fn add(&mut self, id: EntryId, listpack: Vec<u8>) -> Result<(), DecodeError> {
        self.take(&Block::unchecked(listpack)?, id);
        Ok(())
    }

    fn take(&mut self, block: &Block, base: EntryId) {
        let (mut name_digits, mut value_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        let mut entries = block.entries(base);
        while let Some(entry) = entries.forth() {
            // No entry has the ID 0-0.
            if entry.is_deleted() || entry.id == EntryId::ZERO {
                continue;
            }
            let mut fields = Vec::new();
            for (name, value) in entry.fields {
                fields.push(name.text(&mut name_digits).to_vec());
                fields.push(value.text(&mut value_digits).to_vec());
            }
            self.0.insert(entry.id, fields);
        }
    }

    /// The ledger of these entries.
    pub(crate) fn finish(self) -> Ledger {
        let mut ledger = Ledger::default();
        for (id, fields) in self.0 {
            ledger.add(id, fields.iter().map(Vec::as_slice), BLOCK_BYTES, BLOCK_ENTRIES);
        }
        ledger
    }
}
