//! One key with its value and its expiry, in one allocation behind one thin pointer.
//!
//! This is the room with `unsafe` in it, for a measured reason: with 16-byte keys and 32-byte values such an
//! entry and its slot take 83 bytes (Redis 7.0: 145). In prototypes `HashMap<Box<[u8]>, Box<[u8]>>` took 155
//! and `HashMap<Bytes, Bytes>` 228–262, and a read cost fewer instructions (209 against 235 and 261).
//!
//! The allocation, without padding:
//!
//! | bytes | what | when |
//! | --- | --- | --- |
//! | 1 | flags: has an expiry, has long lengths | always |
//! | 1 + 2 | length of the key, of the value | always; unused if the lengths are long |
//! | 4 + 4 | length of the key, of the value | a key above 255 or a value above 65,535 bytes |
//! | 8 | the expiry, in milliseconds since 1970 | only where there is one |
//! | … | the key, then the value | always |
//!
//! Invariants, established by [`Entry::new`] and kept by every method:
//!
//! 1. `pointer` comes from the global allocator with the layout that [`Shape::layout`] computes from the
//!    shape stored in the first bytes, and is owned by this entry alone.
//! 2. All bytes of the allocation are initialised.
//! 3. The shape stored never changes while the allocation lives; to change it, a new entry is made.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::slice;

const HAS_EXPIRY: u8 = 1;
const HAS_LONG_LENGTHS: u8 = 2;

const HEADER_BYTES: usize = 4;
const LONG_LENGTHS_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;

/// A key, its value, and when it expires.
#[derive(Debug)]
pub(super) struct Entry {
    pointer: NonNull<u8>,
}

// SAFETY: an entry owns its allocation alone (invariant 1) and holds plain bytes.
unsafe impl Send for Entry {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Entry {}

/// What decides the places in an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    key_bytes: usize,
    value_bytes: usize,
    has_expiry: bool,
}

impl Shape {
    fn has_long_lengths(self) -> bool {
        self.key_bytes > usize::from(u8::MAX) || self.value_bytes > usize::from(u16::MAX)
    }

    fn expiry_offset(self) -> usize {
        HEADER_BYTES + if self.has_long_lengths() { LONG_LENGTHS_BYTES } else { 0 }
    }

    fn key_offset(self) -> usize {
        self.expiry_offset() + if self.has_expiry { EXPIRY_BYTES } else { 0 }
    }

    fn value_offset(self) -> usize {
        self.key_offset() + self.key_bytes
    }

    fn bytes(self) -> usize {
        self.value_offset() + self.value_bytes
    }

    fn layout(self) -> Layout {
        Layout::from_size_align(self.bytes(), 1).expect("two lengths of 32 bits are within an address space")
    }

    /// The header, with the long lengths behind it whether they are needed or not.
    fn header(self) -> ([u8; HEADER_BYTES + LONG_LENGTHS_BYTES], usize) {
        let mut header = [0; HEADER_BYTES + LONG_LENGTHS_BYTES];
        header[0] = if self.has_expiry { HAS_EXPIRY } else { 0 };
        if self.has_long_lengths() {
            header[0] |= HAS_LONG_LENGTHS;
            header[4..8].copy_from_slice(&(self.key_bytes as u32).to_ne_bytes());
            header[8..12].copy_from_slice(&(self.value_bytes as u32).to_ne_bytes());
        } else {
            header[1] = self.key_bytes as u8;
            header[2..4].copy_from_slice(&(self.value_bytes as u16).to_ne_bytes());
        }
        (header, self.expiry_offset())
    }
}

impl Entry {
    /// A new entry with copies of `key` and `value`.
    ///
    /// # Panics
    ///
    /// If either is longer than 4 GiB; the protocol's limits are far below.
    pub(super) fn new(key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Entry {
        assert!(key.len() <= u32::MAX as usize && value.len() <= u32::MAX as usize);
        let shape =
            Shape { key_bytes: key.len(), value_bytes: value.len(), has_expiry: expires_at_ms.is_some() };
        let layout = shape.layout();
        // SAFETY: the layout's size is at least that of the header, so it is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let (header, header_bytes) = shape.header();
        let write = |offset: usize, bytes: &[u8]| {
            debug_assert!(offset + bytes.len() <= shape.bytes());
            // SAFETY: `offset + bytes.len()` is within the allocation: the parts written below are those
            // whose sizes `Shape::bytes` adds up. Fresh memory overlaps with no slice.
            unsafe { pointer.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        };
        write(0, &header[..header_bytes]);
        if let Some(expires_at_ms) = expires_at_ms {
            write(shape.expiry_offset(), &expires_at_ms.to_ne_bytes());
        }
        write(shape.key_offset(), key);
        write(shape.value_offset(), value);
        Entry { pointer }
    }

    /// Has the processor fetch the entry's first two cache lines, and goes on at once. Entries are not
    /// aligned to lines, so a small one often lies on two.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in 0..2 {
                let address = self.pointer.as_ptr().wrapping_add(64 * line);
                // SAFETY: a prefetch changes nothing and faults at no address.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
            }
        }
    }

    /// The key.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        let shape = self.shape();
        self.part(shape.key_offset(), shape.key_bytes)
    }

    /// The value.
    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        let shape = self.shape();
        self.part(shape.value_offset(), shape.value_bytes)
    }

    /// When the entry expires, in milliseconds since 1970.
    #[inline]
    pub(super) fn expires_at_ms(&self) -> Option<u64> {
        let [flags] = self.array::<1>(0);
        if flags & HAS_EXPIRY == 0 {
            return None;
        }
        Some(u64::from_ne_bytes(self.array(self.shape().expiry_offset())))
    }

    /// Replaces the value and the expiry in place, if they take as much room as those before; answers whether
    /// they do. One that does not is to be replaced by a new entry.
    #[inline]
    pub(super) fn replace_in_place(&mut self, value: &[u8], expires_at_ms: Option<u64>) -> bool {
        let shape = self.shape();
        if shape.value_bytes != value.len() || shape.has_expiry != expires_at_ms.is_some() {
            return false;
        }
        self.part_mut(shape.value_offset(), shape.value_bytes).copy_from_slice(value);
        if let Some(expires_at_ms) = expires_at_ms {
            self.part_mut(shape.expiry_offset(), EXPIRY_BYTES).copy_from_slice(&expires_at_ms.to_ne_bytes());
        }
        true
    }

    /// Replaces the expiry alone.
    pub(super) fn set_expiry(&mut self, expires_at_ms: Option<u64>) {
        let shape = self.shape();
        match expires_at_ms {
            Some(expires_at_ms) if shape.has_expiry => self
                .part_mut(shape.expiry_offset(), EXPIRY_BYTES)
                .copy_from_slice(&expires_at_ms.to_ne_bytes()),
            None if !shape.has_expiry => {}
            _ => *self = Entry::new(self.key(), self.value(), expires_at_ms),
        }
    }

    /// The size of the allocation, as it was asked for.
    pub(super) fn bytes(&self) -> usize {
        self.shape().bytes()
    }

    /// The shape that the first bytes tell.
    #[inline]
    fn shape(&self) -> Shape {
        let [flags, key_bytes, value_low, value_high] = self.array::<HEADER_BYTES>(0);
        let has_expiry = flags & HAS_EXPIRY != 0;
        if flags & HAS_LONG_LENGTHS == 0 {
            let value_bytes = usize::from(u16::from_ne_bytes([value_low, value_high]));
            return Shape { key_bytes: usize::from(key_bytes), value_bytes, has_expiry };
        }
        let key_bytes = u32::from_ne_bytes(self.array(HEADER_BYTES)) as usize;
        let value_bytes = u32::from_ne_bytes(self.array(HEADER_BYTES + 4)) as usize;
        Shape { key_bytes, value_bytes, has_expiry }
    }

    /// `N` bytes at `offset`, which must be within the part of the allocation that the shape promises.
    #[inline]
    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        // SAFETY: the header is always there, and callers read the long lengths and the expiry only where
        // the flags say that the allocation has them; all bytes are initialised (invariant 2). An array of
        // bytes has no alignment to keep.
        unsafe { self.pointer.add(offset).cast::<[u8; N]>().read() }
    }

    #[inline]
    fn part(&self, offset: usize, bytes: usize) -> &[u8] {
        // SAFETY: callers name a part of their own shape, which lies in the allocation (invariants 1 to 3);
        // the borrow of `self` keeps it alive and unchanged.
        unsafe { slice::from_raw_parts(self.pointer.add(offset).as_ptr(), bytes) }
    }

    #[inline]
    fn part_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        // SAFETY: as in `part`; the unique borrow of `self` makes this the only reference. Callers write
        // the value or the expiry, never the header (invariant 3).
        unsafe { slice::from_raw_parts_mut(self.pointer.add(offset).as_ptr(), bytes) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let layout = self.shape().layout();
        // SAFETY: invariant 1; the entry is gone afterwards.
        unsafe { dealloc(self.pointer.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_shape_keep_what_they_were_given() {
        for key_bytes in [0, 1, 16, 255, 256, 70_000] {
            for value_bytes in [0, 1, 32, 65_535, 65_536, 200_000] {
                for expires_at_ms in [None, Some(0), Some(u64::MAX)] {
                    let (key, value) = (vec![b'k'; key_bytes], vec![b'v'; value_bytes]);
                    let entry = Entry::new(&key, &value, expires_at_ms);
                    assert_eq!(entry.key(), key);
                    assert_eq!(entry.value(), value);
                    assert_eq!(entry.expires_at_ms(), expires_at_ms);
                    assert!(entry.bytes() >= key_bytes + value_bytes);
                }
            }
        }
    }

    #[test]
    fn a_key_of_16_and_a_value_of_32_bytes_take_52() {
        let (key, value) = ([b'k'; 16], [b'v'; 32]);
        assert_eq!(Entry::new(&key, &value, None).bytes(), 52);
        assert_eq!(Entry::new(&key, &value, Some(1)).bytes(), 60);
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }

    #[test]
    fn what_takes_as_much_room_is_replaced_in_place() {
        let mut entry = Entry::new(b"key", b"one", None);
        assert!(entry.replace_in_place(b"two", None));
        assert_eq!((entry.key(), entry.value(), entry.expires_at_ms()), (&b"key"[..], &b"two"[..], None));
        for (value, expires_at_ms) in [(&b"three"[..], None), (b"", None), (b"six", Some(3))] {
            assert!(!entry.replace_in_place(value, expires_at_ms));
        }
        let mut entry = Entry::new(b"key", &[1; 100_000], Some(1));
        assert!(entry.replace_in_place(&[2; 100_000], Some(2)));
        assert_eq!((entry.value(), entry.expires_at_ms()), (&[2; 100_000][..], Some(2)));
        assert_eq!(entry.key(), b"key");
    }

    #[test]
    fn the_expiry_alone_can_come_change_and_go() {
        let mut entry = Entry::new(b"key", b"value", None);
        for expires_at_ms in [None, Some(1), Some(2), None, Some(3)] {
            entry.set_expiry(expires_at_ms);
            assert_eq!(
                (entry.key(), entry.value(), entry.expires_at_ms()),
                (&b"key"[..], &b"value"[..], expires_at_ms)
            );
        }
    }
}
