//! One key with its value and its expiry, in one allocation behind one thin pointer.
//!
//! This module uses `unsafe` for a measured reason: with 16-byte keys and 32-byte values such an entry and
//! its slot take 77 bytes (Redis 7.0: 145). In prototypes `HashMap<Box<[u8]>, Box<[u8]>>` took 155 and
//! `HashMap<Bytes, Bytes>` 228–262, and a read cost fewer instructions (209 against 235 and 261).
//!
//! The allocation, without padding:
//!
//! | bytes | what | when |
//! | --- | --- | --- |
//! | 1 | flags: has an expiry, has long lengths, the encoding, is a lock, the epoch, fields expire | always |
//! | 1 + 2 | length of the key, of the value | always; unused if the lengths are long |
//! | 4 | the access stamp, see [`access`](crate::keyspace::access) | always |
//! | 4 + 4 | length of the key, of the value | a key above 255 or a value above 65,535 bytes |
//! | 8 | the expiry, in milliseconds since 1970 | only where there is one |
//! | … | the key, then the value | always |
//!
//! A value that is no string begins with its kind. If it is large, a pointer to a [`Structure`] follows,
//! which the entry owns. If it is small, its packed bytes follow. A long string is kept as a large value. A
//! small value of the kind of strings is a lock's token with its fencing number, 8 bytes, before it.
//!
//! Invariants: [`Entry::new`] establishes them, and every method keeps them.
//!
//! 1. `pointer` comes from the global allocator with the layout that [`Shape::layout`] computes from the
//!    shape stored in the first bytes, and is owned by this entry alone.
//! 2. All bytes of the allocation are initialised.
//! 3. The shape stored changes only together with the allocation, in [`Entry::resize`].
//! 4. The flags' encoding, lock and epoch, and the access stamp, are no part of the shape. The lock and the
//!    stamp are written through shared references: a slice is made of the header only within methods that
//!    have a unique one, and an entry is not `Sync`.
//! 5. The value of an entry with the flags [`IS_TYPED`] and the mark [`LARGE`] in its kind is a pointer that
//!    came from `Box::into_raw` and that no other entry has. Only [`Entry::large`] makes such a value. While
//!    an entry has it, its value is copied only by [`Entry::moved`], which takes it from the old entry.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use crate::values::expiring::Expiring;
use crate::values::{
    Content, Encoding, LONG_TEXT_BYTES, LongText, STRING_KIND, Structure, Type, Value, WrongType,
};

const HAS_EXPIRY: u8 = 1;
const HAS_LONG_LENGTHS: u8 = 2;
const IS_TEXT: u8 = 4;
const IS_RAW: u8 = 8;
const IS_LOCK: u8 = 16;
const EPOCH: u8 = 32;
/// The value is a hash of which some fields expire: its form is another one.
const HAS_FIELD_EXPIRIES: u8 = 64;
/// Both bits for an encoding at once: the value is of another type than strings, or a long string. Its first
/// byte is its kind.
const IS_TYPED: u8 = IS_TEXT | IS_RAW;
/// The mark of a large value in its kind.
const LARGE: u8 = 0x80;
/// Bytes of a fencing number…
const FENCE_BYTES: usize = 8;
/// … and where the token begins that follows it: before it are the kind and the number.
const TOKEN_OFFSET: usize = 1 + FENCE_BYTES;
/// Bytes of a large value: the kind and the pointer.
const LARGE_VALUE_BYTES: usize = 1 + size_of::<usize>();
/// The flags that determine the shape.
const SHAPE: u8 = HAS_EXPIRY | HAS_LONG_LENGTHS;

/// Flags and short lengths, before the stamp.
const LENGTHS_BYTES: usize = 4;
const STAMP_BYTES: usize = 4;
const HEADER_BYTES: usize = LENGTHS_BYTES + STAMP_BYTES;
const LONG_LENGTHS_BYTES: usize = 8;
const EXPIRY_BYTES: usize = 8;

/// A key, its value, and when it expires.
#[derive(Debug)]
pub(in crate::keyspace) struct Entry {
    pointer: NonNull<u8>,
}

// SAFETY: an entry owns its allocation alone (invariant 1). It holds plain bytes, or a structure, which may
// go to another thread, as the lines below check.
unsafe impl Send for Entry {}

const _: fn() = || {
    fn may_go_to_another_thread<T: Send + Sync>() {}
    may_go_to_another_thread::<Structure>();
};

/// The sizes of the parts of an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    key_bytes: usize,
    value_bytes: usize,
    has_expiry: bool,
    has_long_lengths: bool,
}

impl Shape {
    fn new(key_bytes: usize, value_bytes: usize, has_expiry: bool) -> Shape {
        let has_long_lengths = key_bytes > usize::from(u8::MAX) || value_bytes > usize::from(u16::MAX);
        Shape { key_bytes, value_bytes, has_expiry, has_long_lengths }
    }

    fn expiry_offset(self) -> usize {
        HEADER_BYTES + if self.has_long_lengths { LONG_LENGTHS_BYTES } else { 0 }
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

    /// The header with the long lengths behind it, which the caller leaves out if they are not needed.
    fn header(self) -> [u8; HEADER_BYTES + LONG_LENGTHS_BYTES] {
        let mut header = [0; HEADER_BYTES + LONG_LENGTHS_BYTES];
        header[0] = if self.has_expiry { HAS_EXPIRY } else { 0 };
        if self.has_long_lengths {
            header[0] |= HAS_LONG_LENGTHS;
            header[8..12].copy_from_slice(&(self.key_bytes as u32).to_ne_bytes());
            header[12..16].copy_from_slice(&(self.value_bytes as u32).to_ne_bytes());
        } else {
            header[1] = self.key_bytes as u8;
            header[2..4].copy_from_slice(&(self.value_bytes as u16).to_ne_bytes());
        }
        header
    }
}

impl Entry {
    /// A new entry with copies of `key` and of `value`, a string.
    ///
    /// # Panics
    ///
    /// If either is longer than 4 GiB; the protocol's limits are far below.
    #[inline]
    pub(in crate::keyspace) fn new(key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Entry {
        if value.len() >= LONG_TEXT_BYTES {
            return Entry::long(key, LongText::new(value, 0), expires_at_ms);
        }
        Entry::with_value(key, value, expires_at_ms)
    }

    /// A new entry with a long string.
    #[cold]
    pub(in crate::keyspace) fn long(key: &[u8], text: LongText, expires_at_ms: Option<u64>) -> Entry {
        Entry::large(key, STRING_KIND, Structure::Text(text), expires_at_ms)
    }

    /// A new entry with a lock: the token that holds it, which is short, and its fencing number.
    pub(in crate::keyspace) fn fenced(
        key: &[u8],
        token: &[u8],
        fence: u64,
        expires_at_ms: Option<u64>,
    ) -> Entry {
        let mut head = [STRING_KIND; TOKEN_OFFSET];
        head[1..].copy_from_slice(&fence.to_ne_bytes());
        let mut entry = Entry::with_parts(key, &head, token, expires_at_ms);
        entry.mark_typed();
        entry
    }

    /// The fencing number of a lock, if the value has one.
    #[inline]
    pub(in crate::keyspace) fn fence(&self) -> Option<u64> {
        if self.is_typed() { self.split_fence().map(|(fence, _)| fence) } else { None }
    }

    /// The fencing number of a typed value that has one, and the token behind it.
    fn split_fence(&self) -> Option<(u64, &[u8])> {
        let (kind, rest) = self.value().split_first()?;
        let (fence, token) = rest.split_first_chunk::<FENCE_BYTES>()?;
        (*kind == STRING_KIND).then(|| (u64::from_ne_bytes(*fence), token))
    }

    /// Gives a fencing number to a string that is not long.
    pub(in crate::keyspace) fn set_fence(&mut self, fence: u64) {
        if let Ok(token) = self.text()
            && token.len() < LONG_TEXT_BYTES
        {
            let mut fenced = Entry::fenced(self.key(), token, fence, self.expires_at_ms());
            fenced.set_stamp(self.stamp());
            fenced.set_flags(fenced.flags() | self.flags() & (IS_LOCK | EPOCH));
            *self = fenced;
        }
    }

    /// Makes a lock's token an ordinary string again, before it is changed in place.
    fn drop_fence(&mut self) {
        if self.is_typed()
            && let Some((_, token)) = self.split_fence()
        {
            let mut plain = Entry::with_value(self.key(), token, self.expires_at_ms()).with_notes_of(self);
            plain.set_flags(plain.flags() & !IS_TYPED);
            *self = plain;
        }
    }

    /// A new entry with a copy of `key`, and with the bytes of a value in the form in which entries have it.
    fn with_value(key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Entry {
        Entry::with_parts(key, &[], value, expires_at_ms)
    }

    /// The same with a value in two parts.
    #[inline(always)]
    fn with_parts(key: &[u8], head: &[u8], rest: &[u8], expires_at_ms: Option<u64>) -> Entry {
        let value_bytes = head.len() + rest.len();
        assert!(key.len() <= u32::MAX as usize && value_bytes <= u32::MAX as usize);
        let shape = Shape::new(key.len(), value_bytes, expires_at_ms.is_some());
        let layout = shape.layout();
        // SAFETY: the layout's size is at least that of the header, so it is not zero.
        let Some(pointer) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let header = shape.header();
        let write = |offset: usize, bytes: &[u8]| {
            debug_assert!(offset + bytes.len() <= shape.bytes());
            // SAFETY: `offset + bytes.len()` is within the allocation: the parts written below are those
            // whose sizes `Shape::bytes` adds up. Fresh memory overlaps with no slice.
            unsafe { pointer.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        };
        // Two copies of known size compile to two moves rather than a call.
        write(0, &header[..HEADER_BYTES]);
        if shape.has_long_lengths {
            write(HEADER_BYTES, &header[HEADER_BYTES..]);
        }
        if let Some(expires_at_ms) = expires_at_ms {
            write(shape.expiry_offset(), &expires_at_ms.to_ne_bytes());
        }
        write(shape.key_offset(), key);
        if !head.is_empty() {
            write(shape.value_offset(), head);
        }
        write(shape.value_offset() + head.len(), rest);
        Entry { pointer }
    }

    /// A new entry with a copy of `key` and a value of any type. A large value is shared.
    pub(in crate::keyspace) fn of(key: &[u8], value: Value<'_>, expires_at_ms: Option<u64>) -> Entry {
        match value.content {
            Content::Bytes(bytes) if value.facts.kind == STRING_KIND => Entry::new(key, bytes, expires_at_ms),
            Content::Bytes(bytes) => {
                let mut entry = Entry::with_value(key, &[&[value.facts.kind], bytes].concat(), expires_at_ms);
                entry.mark_typed();
                entry
            }
            Content::Large(structure) => {
                Entry::large(key, value.facts.kind, structure.share(), expires_at_ms)
            }
            Content::Expiring(Expiring::Packed(bytes), _) => {
                let content = Content::Bytes(bytes);
                let mut entry = Entry::of(key, Value { facts: value.facts, content }, expires_at_ms);
                entry.set_field_expiries(true);
                entry
            }
            Content::Expiring(Expiring::Large(map), _) => {
                let share = Structure::Expiring(Box::new(map.share()));
                Entry::large(key, value.facts.kind, share, expires_at_ms)
            }
        }
    }

    /// A new entry with a copy of `key` and a large value of the type with this kind.
    fn large(key: &[u8], kind: u8, structure: Structure, expires_at_ms: Option<u64>) -> Entry {
        let has_field_expiries = matches!(structure, Structure::Expiring(_));
        let pointer = Box::into_raw(Box::new(structure));
        let mut value = [kind | LARGE; LARGE_VALUE_BYTES];
        value[1..].copy_from_slice(&pointer.expose_provenance().to_ne_bytes());
        let mut entry = Entry::with_value(key, &value, expires_at_ms);
        entry.mark_typed();
        entry.set_field_expiries(has_field_expiries);
        entry
    }

    /// A new entry with the same value, expiry and encoding under another key. It is no lock.
    pub(in crate::keyspace) fn renamed(&self, key: &[u8]) -> Entry {
        let renamed = self.copied_as(key);
        renamed.set_lock(false);
        renamed
    }

    /// A copy of the entry. A large value is shared.
    pub(in crate::keyspace) fn copied(&self) -> Entry {
        self.copied_as(self.key())
    }

    fn copied_as(&self, key: &[u8]) -> Entry {
        let copy = match self.structure() {
            None => Entry::with_value(key, self.value(), self.expires_at_ms()),
            Some(structure) => Entry::large(key, self.kind(), structure.share(), self.expires_at_ms()),
        };
        copy.with_notes_of(self)
    }

    /// Moves the value to a new allocation with another expiry. The old entry has none afterwards.
    fn moved(&mut self, expires_at_ms: Option<u64>) -> Entry {
        let moved = Entry::with_value(self.key(), self.value(), expires_at_ms).with_notes_of(self);
        // The pointer to a large value belongs to the new entry from here on (invariant 5).
        self.set_flags(self.flags() & !IS_TYPED);
        moved
    }

    /// Asks the processor to fetch the entry's first two cache lines, and does not wait for them. Entries are
    /// not aligned to lines, so a small entry often lies on two.
    #[inline]
    pub(in crate::keyspace) fn prefetch(&self) {
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

    /// The key's name.
    #[inline]
    pub(in crate::keyspace) fn key(&self) -> &[u8] {
        let shape = self.shape();
        self.part(shape.key_offset(), shape.key_bytes)
    }

    /// Whether the entry has this key.
    #[inline]
    pub(in crate::keyspace) fn has_key(&self, key: &[u8]) -> bool {
        is_same(self.key(), key)
    }

    /// The value in the form in which the entry has it: of a string that is not long, its bytes.
    #[inline]
    fn value(&self) -> &[u8] {
        let shape = self.shape();
        self.part(shape.value_offset(), shape.value_bytes)
    }

    /// The bytes of a string of any length.
    ///
    /// # Errors
    ///
    /// [`WrongType`], if the value is no string.
    #[inline(always)]
    pub(in crate::keyspace) fn text(&self) -> Result<&[u8], WrongType> {
        if self.is_typed() { self.long_text() } else { Ok(self.value()) }
    }

    #[cold]
    fn long_text(&self) -> Result<&[u8], WrongType> {
        match self.structure() {
            Some(Structure::Text(text)) => Ok(text.as_bytes()),
            _ => self.split_fence().map(|(_, token)| token).ok_or(WrongType),
        }
    }

    /// Whether the value is a collection.
    pub(in crate::keyspace) fn is_collection(&self) -> bool {
        self.kind() != STRING_KIND
    }

    /// Whether the value is marked with its kind.
    #[inline(always)]
    fn is_typed(&self) -> bool {
        self.flags() & IS_TYPED == IS_TYPED
    }

    fn mark_typed(&mut self) {
        self.set_flags(self.flags() | IS_TYPED);
    }

    /// The kind of the value's type.
    #[inline]
    pub(in crate::keyspace) fn kind(&self) -> u8 {
        if self.is_typed() { self.value()[0] & !LARGE } else { STRING_KIND }
    }

    /// The value without its kind. Of a hash, all fields are there, expired or not.
    #[inline]
    pub(in crate::keyspace) fn content(&self) -> Content<'_> {
        if self.has_field_expiries() { self.content_at(0) } else { self.plain_content() }
    }

    /// The value without its kind, as it is at a moment.
    #[inline(always)]
    pub(in crate::keyspace) fn content_at(&self, now_ms: u64) -> Content<'_> {
        match self.expiring() {
            Some(expiring) => Content::Expiring(expiring, now_ms),
            None => self.plain_content(),
        }
    }

    /// Whether the value is a hash of which some fields expire.
    #[inline(always)]
    pub(in crate::keyspace) fn has_field_expiries(&self) -> bool {
        self.flags() & HAS_FIELD_EXPIRIES != 0
    }

    /// Whether the key or a field of it has an expiry.
    #[inline(always)]
    pub(in crate::keyspace) fn may_expire(&self) -> bool {
        self.flags() & (HAS_EXPIRY | HAS_FIELD_EXPIRIES) != 0
    }

    /// Sets whether the value is a hash of which some fields expire. The caller gives it the form.
    pub(in crate::keyspace) fn set_field_expiries(&mut self, has_some: bool) {
        self.set_flags(self.flags() & !HAS_FIELD_EXPIRIES | if has_some { HAS_FIELD_EXPIRIES } else { 0 });
    }

    /// The fields of a hash of which some expire.
    #[inline]
    pub(in crate::keyspace) fn expiring(&self) -> Option<Expiring<'_>> {
        if !self.has_field_expiries() {
            return None;
        }
        match self.structure() {
            Some(Structure::Expiring(map)) => Some(Expiring::Large(map)),
            Some(_) => None,
            None => Some(Expiring::Packed(&self.value()[1..])),
        }
    }

    /// The moment from which on the key counts as absent: its expiry, or the moment at which the last of its
    /// fields expires.
    pub(in crate::keyspace) fn ends_at_ms(&self) -> Option<u64> {
        let of_fields = self.expiring().map(Expiring::latest_ms).filter(|latest_ms| *latest_ms != u64::MAX);
        match (self.expires_at_ms(), of_fields) {
            (Some(of_key), Some(of_fields)) => Some(of_key.min(of_fields)),
            (of_key, of_fields) => of_key.or(of_fields),
        }
    }

    /// The first moment at which a field of a hash expires, if some do.
    pub(in crate::keyspace) fn next_field_expiry_ms(&self) -> Option<u64> {
        self.expiring().map(Expiring::earliest_ms)
    }

    /// The first moment at which the key or a field of it expires; the greatest number if neither does.
    pub(in crate::keyspace) fn next_expiry_ms(&self) -> u64 {
        let of_fields = self.next_field_expiry_ms().unwrap_or(u64::MAX);
        self.expires_at_ms().unwrap_or(u64::MAX).min(of_fields)
    }

    /// The value without its kind, if it is no hash of which some fields expire.
    #[inline]
    fn plain_content(&self) -> Content<'_> {
        match self.structure() {
            Some(structure) => Content::Large(structure),
            None if self.is_typed() => {
                let token = self.split_fence().map(|(_, token)| token);
                Content::Bytes(token.unwrap_or_else(|| &self.value()[1..]))
            }
            None => Content::Bytes(self.value()),
        }
    }

    /// The value if it is large.
    #[inline]
    pub(in crate::keyspace) fn structure(&self) -> Option<&Structure> {
        let pointer = self.structure_pointer()?;
        // SAFETY: the pointer is that of a structure which this entry owns (invariant 5). The reference lives
        // as long as that to the entry, and while it lives, no method has a unique one.
        Some(unsafe { pointer.as_ref() })
    }

    /// The value if it is large, to be changed.
    pub(in crate::keyspace) fn structure_mut(&mut self) -> Option<&mut Structure> {
        let mut pointer = self.structure_pointer()?;
        // SAFETY: as for `structure`; the reference to the entry is unique, and so is this one.
        Some(unsafe { pointer.as_mut() })
    }

    /// Frees a large value. The entry has none afterwards.
    #[cold]
    fn drop_structure(&mut self) {
        if let Some(pointer) = self.structure_pointer() {
            self.set_flags(self.flags() & !IS_TYPED);
            // SAFETY: the pointer came from `Box::into_raw` (invariant 5), and the entry has lost it.
            drop(unsafe { Box::from_raw(pointer.as_ptr()) });
        }
    }

    #[inline]
    fn structure_pointer(&self) -> Option<NonNull<Structure>> {
        if !self.is_typed() {
            return None;
        }
        let value: &[u8; LARGE_VALUE_BYTES] = self.value().try_into().ok()?;
        let (kind, address) = value.split_first()?;
        if kind & LARGE == 0 {
            return None;
        }
        let address = usize::from_ne_bytes(address.try_into().ok()?);
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Replaces a small value by a large one of the same type.
    pub(in crate::keyspace) fn enlarge(&mut self, structure: Structure) {
        debug_assert!(self.is_typed() && self.structure().is_none());
        let large = Entry::large(self.key(), self.kind(), structure, self.expires_at_ms());
        let has_field_expiries = large.has_field_expiries();
        *self = large.with_notes_of(self);
        self.set_field_expiries(has_field_expiries);
    }

    /// The bytes of a small value, without its kind.
    pub(in crate::keyspace) fn packed(&self) -> Option<&[u8]> {
        let is_small = self.is_typed() && self.structure().is_none();
        is_small.then(|| &self.value()[1..])
    }

    /// Replaces a range of a small value, without its kind, by other bytes: all of `parts`.
    pub(in crate::keyspace) fn splice(&mut self, range: Range<usize>, parts: &[&[u8]]) {
        debug_assert!(self.is_typed() && self.structure().is_none());
        let (start, end, before) = (range.start + 1, range.end + 1, self.value().len());
        let new_end = start + parts.iter().map(|part| part.len()).sum::<usize>();
        let after = before - end + new_end;
        if after > before {
            self.resize(after);
        }
        self.value_mut().copy_within(end..before, new_end);
        let mut at = start;
        for part in parts {
            self.value_mut()[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        if after < before {
            self.resize(after);
        }
    }

    /// Returns the value as type `T` presents it.
    ///
    /// # Errors
    ///
    /// [`WrongType`], if the value is of another type.
    #[inline(always)]
    pub(in crate::keyspace) fn view<T: Type>(&self) -> Result<T::View<'_>, WrongType> {
        if T::FACTS.kind == STRING_KIND {
            return self.text().map(|text| T::view(Content::Bytes(text)));
        }
        if self.kind() == T::FACTS.kind { Ok(T::view(self.content())) } else { Err(WrongType) }
    }

    /// Returns the value as type `T` presents it at a moment.
    ///
    /// # Errors
    ///
    /// [`WrongType`], if the value is of another type.
    #[cold]
    pub(in crate::keyspace) fn view_at<T: Type>(&self, now_ms: u64) -> Result<T::View<'_>, WrongType> {
        if self.kind() == T::FACTS.kind { Ok(T::view(self.content_at(now_ms))) } else { Err(WrongType) }
    }

    /// When the entry expires, in milliseconds since 1970.
    #[inline]
    pub(in crate::keyspace) fn expires_at_ms(&self) -> Option<u64> {
        let [flags] = self.array::<1>(0);
        if flags & HAS_EXPIRY == 0 {
            return None;
        }
        Some(u64::from_ne_bytes(self.array(self.shape().expiry_offset())))
    }

    /// Replaces the value and the stamp, if the entry has this key and nothing else changes. The old value
    /// must be a string as long as the new one that was written whole, with neither an expiry nor a mark
    /// beside this epoch. Returns whether it did. Most writes of a key that is there end here.
    #[inline(always)]
    pub(in crate::keyspace) fn overwrite(
        &mut self,
        key: &[u8],
        value: &[u8],
        stamp: u32,
        epoch: bool,
    ) -> bool {
        let shape = Shape::new(key.len(), value.len(), false);
        let mut header = shape.header();
        header[0] |= if epoch { EPOCH } else { 0 };
        let is_alike = !shape.has_long_lengths && self.array::<LENGTHS_BYTES>(0) == header[..LENGTHS_BYTES];
        if !is_alike || !is_same(self.part(shape.key_offset(), shape.key_bytes), key) {
            return false;
        }
        self.part_mut(shape.value_offset(), shape.value_bytes).copy_from_slice(value);
        self.set_stamp(stamp);
        true
    }

    /// Replaces the value and the expiry in place if they take as much room as the old ones. Returns whether
    /// it did. If it did not, the caller must replace the whole entry.
    #[inline]
    pub(in crate::keyspace) fn replace_in_place(&mut self, value: &[u8], expires_at_ms: Option<u64>) -> bool {
        let shape = self.shape();
        let is_alike = shape.value_bytes == value.len() && shape.has_expiry == expires_at_ms.is_some();
        if !is_alike || self.is_typed() {
            return false;
        }
        self.part_mut(shape.value_offset(), shape.value_bytes).copy_from_slice(value);
        if let Some(expires_at_ms) = expires_at_ms {
            self.part_mut(shape.expiry_offset(), EXPIRY_BYTES).copy_from_slice(&expires_at_ms.to_ne_bytes());
        }
        self.set_flags(self.flags() & !(IS_TEXT | IS_RAW));
        true
    }

    /// Makes a string at least `bytes` long: fills it up with zeros.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new), and if the value is no string.
    pub(in crate::keyspace) fn grow_text(&mut self, bytes: usize) {
        self.drop_fence();
        let before_bytes = self.text().expect("the caller has checked that it is a string").len();
        if let Some(Structure::Text(text)) = self.structure_mut() {
            text.grow(bytes);
        } else if bytes >= LONG_TEXT_BYTES {
            let text = LongText::new(self.value(), bytes);
            *self = Entry::long(self.key(), text, self.expires_at_ms()).with_notes_of(self);
            self.mark_typed();
        } else if bytes > before_bytes {
            self.resize(bytes);
        }
    }

    /// A string, to be changed in place.
    ///
    /// # Panics
    ///
    /// If the value is no string.
    pub(in crate::keyspace) fn text_mut(&mut self) -> &mut [u8] {
        self.drop_fence();
        if !self.is_typed() {
            return self.value_mut();
        }
        match self.structure_mut() {
            Some(Structure::Text(text)) => text.bytes_mut(),
            _ => panic!("the caller has checked that it is a string"),
        }
    }

    /// Makes the value `value_bytes` long: cuts it, or fills it up with zeros.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    fn resize(&mut self, value_bytes: usize) {
        assert!(value_bytes <= u32::MAX as usize);
        let before = self.shape();
        let after = Shape::new(before.key_bytes, value_bytes, before.has_expiry);
        if before.has_long_lengths != after.has_long_lengths {
            self.resize_elsewhere(value_bytes);
            return;
        }
        // SAFETY: the layout is the one of the allocation (invariant 1), and the new size is not zero and was
        // checked by `Shape::layout` not to overflow.
        let moved = unsafe { realloc(self.pointer.as_ptr(), before.layout(), after.layout().size()) };
        let Some(moved) = NonNull::new(moved) else { handle_alloc_error(after.layout()) };
        self.pointer = moved;
        if after.bytes() > before.bytes() {
            // SAFETY: what lies between the old end and the new one belongs to the allocation now; it is
            // initialised here (invariant 2).
            unsafe { moved.add(before.bytes()).write_bytes(0, after.bytes() - before.bytes()) };
        }
        let (flags, stamp) = (self.flags(), self.stamp());
        let (header, header_bytes) = (after.header(), after.expiry_offset());
        self.part_mut(0, header_bytes).copy_from_slice(&header[..header_bytes]);
        self.set_flags(flags);
        self.set_stamp(stamp);
    }

    /// Moves the entry to a new allocation: the new length and the old one lie on different sides of the
    /// limit of short lengths, so the parts have other places.
    #[cold]
    fn resize_elsewhere(&mut self, value_bytes: usize) {
        let kept = self.value().len().min(value_bytes);
        let mut value = self.value()[..kept].to_vec();
        value.resize(value_bytes, 0);
        *self = Entry::with_value(self.key(), &value, self.expires_at_ms()).with_notes_of(self);
    }

    /// The value in the form in which the entry has it, to be changed in place.
    fn value_mut(&mut self) -> &mut [u8] {
        let shape = self.shape();
        self.part_mut(shape.value_offset(), shape.value_bytes)
    }

    /// How the value was written.
    pub(in crate::keyspace) fn encoding(&self) -> Encoding {
        match self.flags() {
            flags if flags & IS_TYPED == IS_TYPED && self.is_collection() => Encoding::Typed,
            flags if flags & IS_TYPED == IS_TYPED && self.structure().is_none() => Encoding::Plain,
            flags if flags & IS_RAW != 0 => Encoding::Raw,
            flags if flags & IS_TEXT != 0 => Encoding::Text,
            _ => Encoding::Plain,
        }
    }

    /// The same entry with the encoding, the lock, the epoch and the stamp of another.
    fn with_notes_of(mut self, other: &Entry) -> Entry {
        self.set_stamp(other.stamp());
        self.set_flags(self.flags() & SHAPE | other.flags() & !SHAPE);
        self
    }

    /// Sets how a string was written. Of a long string that is known: Redis keeps each as bytes.
    pub(in crate::keyspace) fn set_encoding(&mut self, encoding: Encoding) {
        let flag = match encoding {
            _ if self.is_typed() => return,
            Encoding::Plain | Encoding::Typed => 0,
            Encoding::Text => IS_TEXT,
            Encoding::Raw => IS_RAW,
        };
        self.set_flags(self.flags() & !(IS_TEXT | IS_RAW) | flag);
    }

    /// The epoch. It says whether a running snapshot has the entry already: see
    /// [`Table`](crate::keyspace::store::table::Table).
    #[inline]
    pub(in crate::keyspace) fn epoch(&self) -> bool {
        self.flags() & EPOCH != 0
    }

    /// Replaces the epoch.
    #[inline]
    pub(in crate::keyspace) fn set_epoch(&mut self, epoch: bool) {
        self.set_flags(self.flags() & !EPOCH | if epoch { EPOCH } else { 0 });
    }

    /// The access stamp.
    #[inline]
    pub(in crate::keyspace) fn stamp(&self) -> u32 {
        u32::from_ne_bytes(self.array(LENGTHS_BYTES))
    }

    /// Replaces the access stamp.
    #[inline]
    pub(in crate::keyspace) fn set_stamp(&self, stamp: u32) {
        // SAFETY: the stamp's place is in every header, is covered by no slice, and no other thread has a
        // reference to this entry (invariant 4).
        unsafe { self.pointer.add(LENGTHS_BYTES).cast::<[u8; STAMP_BYTES]>().write(stamp.to_ne_bytes()) };
    }

    /// Whether the key acts as a lock.
    #[inline(always)]
    pub(in crate::keyspace) fn is_lock(&self) -> bool {
        self.flags() & IS_LOCK != 0
    }

    /// Sets whether the key acts as a lock.
    pub(in crate::keyspace) fn set_lock(&self, is_lock: bool) {
        let flags = self.flags() & !IS_LOCK | if is_lock { IS_LOCK } else { 0 };
        // SAFETY: the flags' place is in every header, the shape they describe stays the same, the place is
        // covered by no slice, and no other thread has a reference to this entry (invariant 4).
        unsafe { self.pointer.write(flags) };
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        let [flags] = self.array(0);
        flags
    }

    /// Replaces the flags by others of the same shape.
    #[inline]
    fn set_flags(&mut self, flags: u8) {
        debug_assert_eq!((flags ^ self.flags()) & SHAPE, 0);
        self.part_mut(0, 1)[0] = flags;
    }

    /// Replaces the expiry alone.
    pub(in crate::keyspace) fn set_expiry(&mut self, expires_at_ms: Option<u64>) {
        let shape = self.shape();
        match expires_at_ms {
            Some(expires_at_ms) if shape.has_expiry => self
                .part_mut(shape.expiry_offset(), EXPIRY_BYTES)
                .copy_from_slice(&expires_at_ms.to_ne_bytes()),
            None if !shape.has_expiry => {}
            _ => *self = self.moved(expires_at_ms),
        }
    }

    /// Whether freeing the entry takes so long that it must not happen under a lock: about 0.1 µs for each
    /// page that goes back to the system.
    #[inline]
    pub(in crate::keyspace) fn is_long_to_free(&self) -> bool {
        const LONG_BYTES: usize = 256 << 10;
        self.flags() & HAS_LONG_LENGTHS != 0 && self.bytes() >= LONG_BYTES || self.structure().is_some()
    }

    /// Bytes of the entry and of its large value.
    pub(in crate::keyspace) fn bytes_in_all(&self) -> usize {
        self.bytes() + self.structure().map_or(0, |large| size_of::<Structure>() + large.bytes())
    }

    /// The size that was asked of the allocator.
    pub(in crate::keyspace) fn bytes(&self) -> usize {
        self.shape().bytes()
    }

    /// The shape that the first bytes describe.
    #[inline]
    fn shape(&self) -> Shape {
        let [flags, key_bytes, value_low, value_high] = self.array::<LENGTHS_BYTES>(0);
        let has_expiry = flags & HAS_EXPIRY != 0;
        if flags & HAS_LONG_LENGTHS == 0 {
            let value_bytes = usize::from(u16::from_ne_bytes([value_low, value_high]));
            let key_bytes = usize::from(key_bytes);
            return Shape { key_bytes, value_bytes, has_expiry, has_long_lengths: false };
        }
        let key_bytes = u32::from_ne_bytes(self.array(HEADER_BYTES)) as usize;
        let value_bytes = u32::from_ne_bytes(self.array(HEADER_BYTES + 4)) as usize;
        Shape { key_bytes, value_bytes, has_expiry, has_long_lengths: true }
    }

    /// `N` bytes at `offset`. They must lie within the part of the allocation that the shape guarantees.
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
        // the value or the expiry; `resize` alone writes the header, for what it has made of the allocation.
        unsafe { slice::from_raw_parts_mut(self.pointer.add(offset).as_ptr(), bytes) }
    }
}

/// Whether two keys are the same. Many keys have 16 to 32 bytes. These are compared here in two halves, which
/// may overlap: a call to the C library costs more than the comparison.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    if !(16..=32).contains(&one.len()) {
        return one == other;
    }
    let number = |half: Option<&[u8; 16]>| half.copied().map_or(0, u128::from_ne_bytes);
    let differs_in_front = number(one.first_chunk()) ^ number(other.first_chunk());
    differs_in_front | (number(one.last_chunk()) ^ number(other.last_chunk())) == 0
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {
        if self.is_typed() {
            self.drop_structure();
        }
        let layout = self.shape().layout();
        // SAFETY: invariant 1; the entry is gone afterwards.
        unsafe { dealloc(self.pointer.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_shape_keep_their_contents() {
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
    fn a_key_of_16_and_a_value_of_32_bytes_take_56() {
        let (key, value) = ([b'k'; 16], [b'v'; 32]);
        assert_eq!(Entry::new(&key, &value, None).bytes(), 56);
        assert_eq!(Entry::new(&key, &value, Some(1)).bytes(), 64);
        assert_eq!(size_of::<Option<Entry>>(), 8);
    }

    #[test]
    fn a_fencing_number_stays_with_the_token_until_the_value_is_written_or_changed() {
        let fenced = || Entry::fenced(b"lock", b"a", 7, Some(3));
        let entry = fenced();
        assert_eq!((entry.text(), entry.fence(), entry.kind()), (Ok(&b"a"[..]), Some(7), STRING_KIND));
        assert!(matches!(entry.content(), Content::Bytes(b"a")));
        assert_eq!((entry.encoding(), entry.is_collection()), (Encoding::Plain, false));
        assert!(entry.structure().is_none() && !entry.is_long_to_free());
        for expires_at_ms in [Some(9), None] {
            let mut entry = fenced();
            entry.set_expiry(expires_at_ms);
            assert_eq!((entry.text(), entry.fence()), (Ok(&b"a"[..]), Some(7)));
        }
        assert_eq!(fenced().copied().fence(), Some(7));
        // A token of eight bytes makes the value as long as that of a large one.
        let long = Entry::fenced(b"lock", b"12345678", u64::MAX, None);
        assert_eq!((long.text(), long.fence()), (Ok(&b"12345678"[..]), Some(u64::MAX)));
        let none = Entry::fenced(b"lock", b"", u64::MAX, None);
        assert_eq!((none.text(), none.fence()), (Ok(&b""[..]), Some(u64::MAX)));
        let mut entry = fenced();
        assert!(!entry.replace_in_place(b"a", Some(3)) && !entry.overwrite(b"lock", b"a", 0, false));
        entry.text_mut()[0] = b'b';
        assert_eq!((entry.text(), entry.fence()), (Ok(&b"b"[..]), None));
        assert_eq!(entry.expires_at_ms(), Some(3));
        let mut entry = fenced();
        entry.grow_text(LONG_TEXT_BYTES);
        assert_eq!((entry.text().map(<[u8]>::len), entry.fence()), (Ok(LONG_TEXT_BYTES), None));
        assert_eq!(Entry::new(b"k", b"12345678", None).fence(), None);
    }

    #[test]
    fn a_value_of_the_same_size_is_replaced_in_place() {
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
    fn only_an_entry_without_marks_is_overwritten() {
        let mut entry = Entry::new(b"key", b"one", None);
        assert!(entry.overwrite(b"key", b"two", 7, false));
        assert_eq!((entry.key(), entry.value(), entry.stamp()), (&b"key"[..], &b"two"[..], 7));
        assert!(!entry.overwrite(b"key", b"three", 8, false), "another length");
        assert!(!entry.overwrite(b"kex", b"six", 8, false), "another key");
        assert!(!entry.overwrite(b"ke", b"four", 8, false), "as many bytes in all");
        assert!(!entry.overwrite(b"key", b"six", 8, true), "a snapshot waits for it");
        entry.set_epoch(true);
        assert!(entry.overwrite(b"key", b"one", 8, true));
        let marks: [fn(&mut Entry); 5] = [
            |entry| entry.set_lock(true),
            |entry| entry.set_expiry(Some(1)),
            |entry| entry.set_encoding(Encoding::Raw),
            |entry| entry.set_encoding(Encoding::Text),
            |entry| entry.mark_typed(),
        ];
        for mark in marks {
            let mut entry = Entry::new(b"key", b"one", None);
            mark(&mut entry);
            assert!(!entry.overwrite(b"key", b"two", 9, false));
            assert_eq!((entry.value(), entry.stamp()), (&b"one"[..], 0));
        }
        let mut long = Entry::new(&[b'k'; 256], b"one", None);
        assert!(!long.overwrite(&[b'k'; 256], b"two", 9, false));
    }

    #[test]
    fn the_expiry_can_be_set_changed_and_removed_alone() {
        let mut entry = Entry::new(b"key", b"value", None);
        for expires_at_ms in [None, Some(1), Some(2), None, Some(3)] {
            entry.set_expiry(expires_at_ms);
            assert_eq!(
                (entry.key(), entry.value(), entry.expires_at_ms()),
                (&b"key"[..], &b"value"[..], expires_at_ms)
            );
        }
    }
    #[test]
    fn keys_that_differ_anywhere_are_different() {
        for bytes in [0, 1, 3, 7, 8, 9, 15, 16, 17, 24, 63, 64, 65, 100] {
            let key = vec![b'k'; bytes];
            let entry = Entry::new(&key, b"value", None);
            assert!(entry.has_key(&key));
            assert!(!entry.has_key(&[&key[..], b"k"].concat()));
            for at in 0..bytes {
                let mut other = key.clone();
                other[at] = b'x';
                assert!(!entry.has_key(&other), "{at} of {bytes}");
            }
        }
    }

    #[test]
    fn a_value_grows_and_shrinks_whatever_its_lengths() {
        for expires_at_ms in [None, Some(7)] {
            let mut entry = Entry::new(b"key", b"value", expires_at_ms);
            entry.set_encoding(Encoding::Raw);
            entry.set_epoch(true);
            entry.set_stamp(9);
            let mut expected = b"value".to_vec();
            for bytes in [5, 6, 0, 3, 65_535, 65_536, 200_000, 70_000, 65_535, 1] {
                entry.resize(bytes);
                expected.resize(bytes, 0);
                assert_eq!((entry.key(), entry.value()), (&b"key"[..], expected.as_slice()));
                assert_eq!((entry.expires_at_ms(), entry.stamp()), (expires_at_ms, 9));
                assert_eq!((entry.encoding(), entry.epoch()), (Encoding::Raw, true));
                entry.value_mut().fill(b'x');
                expected.fill(b'x');
            }
        }
    }

    #[test]
    fn stamp_encoding_and_epoch_stay_with_the_value() {
        let mut entry = Entry::new(b"key", b"value", None);
        entry.set_encoding(Encoding::Text);
        entry.set_epoch(true);
        entry.set_stamp(u32::MAX);
        entry.set_expiry(Some(1));
        assert!(entry.epoch());
        assert_eq!(
            (entry.encoding(), entry.stamp(), entry.value()),
            (Encoding::Text, u32::MAX, &b"value"[..])
        );
        let renamed = entry.renamed(b"another");
        assert_eq!((renamed.key(), renamed.value()), (&b"another"[..], &b"value"[..]));
        assert_eq!((renamed.encoding(), renamed.stamp()), (Encoding::Text, u32::MAX));
        assert!(renamed.epoch());
        assert!(entry.replace_in_place(b"12345", Some(1)));
        assert_eq!(entry.encoding(), Encoding::Plain, "a value that was written whole is a new one");
        assert!(entry.epoch());
        entry.set_epoch(false);
        assert!(!entry.epoch() && entry.expires_at_ms() == Some(1));
    }
}
