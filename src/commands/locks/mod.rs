//! Locks: those who take them ([`holding`]), and those who look at them: at each one
//! ([`watching`]), and at all of a pattern ([`patterns`]).

mod arguments;
pub(crate) mod correcting;
pub(crate) mod holding;
mod patterns;
pub(crate) mod watching;
