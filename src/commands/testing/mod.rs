//! What tests ask of a server: another time ([`clock`]), [`faults`], and a look at its inside ([`debug`]).

pub(crate) mod clock;
pub(crate) mod debug;
pub(crate) mod faults;
pub(crate) mod sandboxes;
