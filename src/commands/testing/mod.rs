//! What tests ask of a server: another time ([`clock`]), [`faults`], and a look at its inside ([`debug`]).

pub mod clock;
pub mod debug;
pub mod faults;
pub mod fingerprint;
