//! Locks: those who take them ([`holding`]), and those who look at them ([`watching`]).

pub(crate) mod holding;
pub(crate) mod watching;
