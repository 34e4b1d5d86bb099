//! Locks: those who take them ([`holding`], [`permits`]), and those who look at them: at each one
//! ([`watching`]), and at all of a pattern ([`patterns`]).

mod arguments;
pub(crate) mod correcting;
pub(crate) mod holding;
mod patterns;
mod permits;
pub(crate) mod watching;
