//! Makes a list outside of the keyspace, element by element.
//!
//! It is packed as long as the limits allow, and a sequence from then on.

use super::{PACKED_BYTES_MAX, entries_max, unpacked};
use crate::values::packed::{Length, Packer};
use crate::values::tree::Sequence;
use crate::values::{Limit, Structure};

/// A list that is being made.
#[derive(Debug)]
pub(crate) struct NewList<'p> {
    packer: Packer<'p>,
    limit: Limit,
    /// All elements, once there are too many for the packed form.
    large: Option<Sequence>,
}

impl<'p> NewList<'p> {
    /// Begins a list in an empty buffer, which gets the packed elements up to a limit.
    pub(crate) fn in_buffer(packed: &'p mut Vec<u8>, limit: Limit) -> NewList<'p> {
        NewList { packer: Packer::in_buffer(packed), limit, large: None }
    }

    /// Adds an element at the tail.
    pub(crate) fn push(&mut self, element: &[u8]) {
        if self.large.is_none() && !self.fits(element) {
            self.large = Some(unpacked(self.packer.packed()));
        }
        match &mut self.large {
            Some(sequence) => sequence.insert(sequence.len(), element),
            None => {
                self.packer.string(element);
                self.packer.count_one();
            }
        }
    }

    fn fits(&self, element: &[u8]) -> bool {
        let bytes = self.packer.packed().len() + Length::of(element).bytes().len() + element.len();
        bytes <= PACKED_BYTES_MAX.min(self.limit.bytes) && self.packer.count() < entries_max(self.limit)
    }

    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.large.as_ref().map_or(self.packer.count(), Sequence::len)
    }

    /// The structure of the list, if the buffer does not hold it.
    pub(crate) fn finish(self) -> Option<Structure> {
        self.large.map(Structure::Sequence)
    }
}
