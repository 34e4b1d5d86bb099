//! Locks: those who take them ([`holding`]), and those who look at them ([`watching`]).

pub mod holding;
pub mod watching;
