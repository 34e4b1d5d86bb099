//! Strings: one value of a key, [`basics`] of it, [`counters`], parts of it ([`ranges`]), conditions on what
//! it is ([`compare`]), [`several`] at once, and a counter that stays within its bounds ([`bounded`]).

pub(super) mod basics;
pub(super) mod bounded;
pub(super) mod compare;
pub(super) mod counters;
pub(super) mod ranges;
pub(super) mod several;
