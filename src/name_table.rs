//! A table that finds numbers by short names, in any case and without allocation.
//!
//! A server has a few hundred commands and looks one up for every request. The table hashes the length and
//! the first eight bytes of a name, so one look and one comparison find nearly all of them.

/// Names, each with the number that it stands for.
#[derive(Debug)]
pub struct NameTable {
    names: Box<[(Vec<u8>, u16)]>,
    slots: Box<[Option<Slot>; NameTable::SLOTS]>,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of the name.
    pub number: u16,
    /// Whether each name that is packed in the same way is this one.
    pub is_exact: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    packed: Packed,
    found: Found,
    /// The index of the name.
    name: u16,
}

/// The length of a name with its first eight bytes in lower case, as one comparable value.
///
/// Case is folded by setting the bit in which upper and lower letters differ. That makes some other bytes
/// equal too, but none to a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    length: usize,
    folded: u64,
}

impl Packed {
    /// Reads the bytes in two overlapping halves, which is quicker than one by one.
    #[inline]
    pub fn new(name: &[u8]) -> Packed {
        let head = &name[..name.len().min(8)];
        let four = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (low, high) = match head {
            [_, _, _, _, ..] => (four(&head[..4]), four(&head[head.len() - 4..])),
            [first, second, rest @ ..] => {
                (u32::from(*first) | u32::from(*second) << 8, rest.first().copied().map_or(0, u32::from))
            }
            [only] => (u32::from(*only), 0),
            [] => (0, 0),
        };
        let folded = (u64::from(high) << 32 | u64::from(low)) | 0x2020_2020_2020_2020;
        Packed { length: name.len(), folded }
    }

    /// Whether each name that is packed as this one is the same name. `name` is what was packed.
    pub fn is_exact(self, name: &[u8]) -> bool {
        self.length <= 8 && name.iter().all(u8::is_ascii_lowercase)
    }

    #[inline]
    fn slot(self) -> usize {
        let mixed = (self.folded ^ self.length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % NameTable::SLOTS
    }
}

impl NameTable {
    /// More than twice the number of commands, so that runs of taken slots stay short; a power of two.
    const SLOTS: usize = 1024;
    /// Names in one table: half of the slots stay free.
    pub const NAMES_MAX: usize = NameTable::SLOTS / 2;

    /// A table of these names, which are in lower case and differ from each other.
    ///
    /// # Panics
    ///
    /// If there are more than [`NAMES_MAX`](Self::NAMES_MAX).
    pub fn new(names: impl IntoIterator<Item = (Vec<u8>, u16)>) -> NameTable {
        let names: Box<[_]> = names.into_iter().collect();
        assert!(names.len() <= NameTable::NAMES_MAX, "{} names are too many", names.len());
        let mut slots = Box::new([None; NameTable::SLOTS]);
        for (place, (name, number)) in (0..).zip(&names) {
            let packed = Packed::new(name);
            let mut at = packed.slot();
            while slots[at].is_some() {
                at = (at + 1) % NameTable::SLOTS;
            }
            let found = Found { number: *number, is_exact: packed.is_exact(name) };
            slots[at] = Some(Slot { packed, found, name: place });
        }
        NameTable { names, slots }
    }

    /// Looks a name up, in any case; `packed` is the same name, packed.
    pub fn find(&self, packed: Packed, name: &[u8]) -> Option<Found> {
        let mut at = packed.slot();
        while let Some(slot) = self.slots[at] {
            let is_whole = |slot: Slot| {
                slot.found.is_exact || self.names[usize::from(slot.name)].0.eq_ignore_ascii_case(name)
            };
            if slot.packed == packed && is_whole(slot) {
                return Some(slot.found);
            }
            at = (at + 1) % NameTable::SLOTS;
        }
        None
    }

    /// The names with their numbers, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], u16)> + Clone {
        self.names.iter().map(|(name, number)| (name.as_slice(), *number))
    }

    /// Of these names, how many are found at the first look.
    #[cfg(test)]
    pub(crate) fn found_at_once(&self) -> usize {
        let is_first = |name: &[u8]| {
            let first = self.slots[Packed::new(name).slot()];
            first.is_some_and(|slot| self.names[usize::from(slot.name)].0 == name)
        };
        self.iter().filter(|(name, _)| is_first(name)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_finds_each_name_and_no_other() {
        let names: Vec<_> = (0..NameTable::NAMES_MAX as u16)
            .map(|number| (format!("name{number}").into_bytes(), number))
            .collect();
        let table = NameTable::new(names.clone());
        for (name, number) in &names {
            let upper = name.to_ascii_uppercase();
            let found = table.find(Packed::new(&upper), &upper);
            assert_eq!(found.map(|found| found.number), Some(*number));
        }
        for other in [&b"name"[..], b"", b"name512", b"nam\x05", b"name0\0"] {
            assert_eq!(table.find(Packed::new(other), other), None, "{other:?}");
        }
        assert!(table.iter().map(|(_, number)| number).eq(0..NameTable::NAMES_MAX as u16));
    }
}
