//! Lists: what happens at their [`ends`], [`moving`] several at once, and their [`elements`] by position or
//! by value.
//!
//! The commands at the ends are made of [`ends::pop`] and [`ends::move_between`]. Both find out first whether
//! there is an element, and change nothing if there is none.

pub(super) mod blocking;
pub(super) mod elements;
pub(super) mod ends;
pub(super) mod moving;
