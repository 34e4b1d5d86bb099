//! Locks: those who take them ([`holding`], [`permits`], [`several`] at once), those who lose them by a fault
//! ([`losing`]), and those who look at them: at each one ([`watching`]), at all of a pattern ([`patterns`]),
//! and at who waits for whom ([`graph`]).

mod arguments;
mod awaiting;
pub(crate) mod correcting;
mod graph;
pub(crate) mod holding;
pub(crate) mod losing;
mod owning;
mod patterns;
mod permits;
mod several;
pub(crate) mod showing;
pub(crate) mod watching;
