//! Locks: those who take them ([`holding`], [`permits`]), and those who look at them: at each one
//! ([`watching`]), at all of a pattern ([`patterns`]), and at who waits for whom ([`graph`]).

mod arguments;
pub(crate) mod correcting;
mod graph;
pub(crate) mod holding;
mod patterns;
mod permits;
pub(crate) mod showing;
pub(crate) mod watching;
