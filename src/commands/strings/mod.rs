//! Strings: one value of a key, [`basics`] of it, [`counters`], parts of it ([`ranges`]), conditions on what
//! it is ([`compare`]), several at once ([`mget_mset`]), and a counter that stays within its bounds
//! ([`increx`]).

pub(super) mod basics;
pub(super) mod compare;
pub(super) mod counters;
pub(super) mod increx;
pub(super) mod mget_mset;
pub(super) mod ranges;
