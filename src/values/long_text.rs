//! Strings that take so long to copy that no other client should wait for it.

use std::sync::Arc;

use crate::allocator::taken_bytes;

/// A string of at least this many bytes is kept as a [`LongText`]: copying it takes some 20 µs.
pub(crate) const LONG_TEXT_BYTES: usize = 256 << 10;
/// The reference counts and the buffer's pointer, capacity and length.
const HEADER_BYTES: usize = 2 * size_of::<usize>() + size_of::<Vec<u8>>();

/// A long string. A copy shares its bytes. A change in place copies them first if another copy has them, too:
/// a reply that is being written, or a running snapshot.
#[derive(Clone, Debug)]
pub struct LongText(Arc<Vec<u8>>);

impl LongText {
    /// A new string with a copy of `bytes`, filled up with zeros to `bytes_min`.
    pub fn new(bytes: &[u8], bytes_min: usize) -> LongText {
        if bytes.len() >= bytes_min {
            return LongText(Arc::new(bytes.to_vec()));
        }
        // The system has zeros at hand: memory that is not used yet takes no time.
        let mut text = vec![0; bytes_min];
        text[..bytes.len()].copy_from_slice(bytes);
        LongText(Arc::new(text))
    }

    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A copy that shares the bytes, in constant time.
    pub fn share(&self) -> LongText {
        self.clone()
    }

    /// A new string with a copy of the bytes.
    pub fn copied(&self) -> LongText {
        LongText::new(self.as_bytes(), 0)
    }

    /// Whether another copy shares the bytes, so that a change in place copies them first.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether the two share their bytes.
    pub fn is_same(&self, other: &LongText) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The string, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.0).as_mut_slice()
    }

    /// Fills the string up with zeros to this length.
    pub fn grow(&mut self, bytes: usize) {
        if bytes / 2 > self.len() {
            // There are fewer bytes to copy than zeros to write.
            *self = LongText::new(&self.0, bytes);
            return;
        }
        let text = Arc::make_mut(&mut self.0);
        // No spare room: the system moves pages of a long buffer without copying them.
        text.reserve_exact(bytes.saturating_sub(text.len()));
        text.resize(bytes.max(text.len()), 0);
    }

    /// The length of the string.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory below this value.
    pub fn bytes(&self) -> usize {
        taken_bytes(HEADER_BYTES) + taken_bytes(self.0.capacity())
    }
}
