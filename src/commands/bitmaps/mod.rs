//! Strings as rows of bits: single [`bits`] and counts of them, and integers of any width ([`bitfield`]).

pub(super) mod bitfield;
pub(super) mod bits;
