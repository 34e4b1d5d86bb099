//! The IDs of entries: a moment in milliseconds, and a number within it.

/// Bytes of an ID as clients see it, at most: two numbers of 64 bits.
pub(crate) const ID_TEXT_BYTES_MAX: usize = 41;

/// The ID of an entry. The order of IDs is the order of the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Milliseconds since 1970, or whatever number the client has chosen.
    pub ms: u64,
    /// The number within the millisecond.
    pub seq: u64,
}

impl EntryId {
    /// In front of all entries: no entry has it.
    pub const ZERO: EntryId = EntryId { ms: 0, seq: 0 };
    /// The last ID that there can be.
    pub const MAX: EntryId = EntryId { ms: u64::MAX, seq: u64::MAX };
    /// Bytes of an ID in files and in directories.
    pub const BYTES: usize = 16;

    /// The ID behind it.
    pub fn next(self) -> Option<EntryId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(EntryId { seq, ..self }),
            None => Some(EntryId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID in front of it.
    pub fn previous(self) -> Option<EntryId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(EntryId { seq, ..self }),
            None => Some(EntryId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Its bytes, whose order is that of the IDs.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The ID with these bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> EntryId {
        let number = u128::from_be_bytes(bytes);
        EntryId { ms: (number >> 64) as u64, seq: number as u64 }
    }

    /// The ID at the beginning of a record.
    pub(super) fn of_record(record: &[u8]) -> EntryId {
        record.first_chunk().map_or(EntryId::ZERO, |bytes| EntryId::from_bytes(*bytes))
    }

    /// The ID at some distance behind it, which may lie in front of it in the second number.
    pub(super) fn plus(self, ms: i64, seq: i64) -> EntryId {
        EntryId { ms: self.ms.wrapping_add_signed(ms), seq: self.seq.wrapping_add_signed(seq) }
    }

    /// Replaces a text by the ID as clients see it.
    pub fn write(self, text: &mut Vec<u8>) {
        text.clear();
        text.extend_from_slice(self.digits(&mut [0; ID_TEXT_BYTES_MAX]));
    }

    /// The ID as clients see it.
    pub fn text(self) -> Vec<u8> {
        self.digits(&mut [0; ID_TEXT_BYTES_MAX]).to_vec()
    }

    /// The ID as clients see it, at the beginning of some memory of the caller.
    pub fn digits(self, memory: &mut [u8; ID_TEXT_BYTES_MAX]) -> &[u8] {
        let mut digits = itoa::Buffer::new();
        let ms = digits.format(self.ms).as_bytes();
        let dash = ms.len();
        memory[..dash].copy_from_slice(ms);
        memory[dash] = b'-';
        let seq = digits.format(self.seq).as_bytes();
        let end = dash + 1 + seq.len();
        memory[dash + 1..end].copy_from_slice(seq);
        &memory[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_step_away() {
        let edge = EntryId { ms: 7, seq: u64::MAX };
        assert_eq!(edge.next(), Some(EntryId { ms: 8, seq: 0 }));
        assert_eq!(edge.next().and_then(EntryId::previous), Some(edge));
        assert_eq!((EntryId::MAX.next(), EntryId::ZERO.previous()), (None, None));
        let ids = [EntryId::ZERO, edge, EntryId { ms: 8, seq: 0 }, EntryId::MAX];
        assert!(ids.is_sorted() && ids.is_sorted_by_key(|id| id.to_bytes()));
        assert!(ids.iter().all(|id| EntryId::from_bytes(id.to_bytes()) == *id));
        assert_eq!(edge.text(), b"7-18446744073709551615");
        assert_eq!(EntryId::MAX.text().len(), ID_TEXT_BYTES_MAX);
    }
}
