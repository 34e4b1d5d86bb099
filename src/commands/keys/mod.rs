//! Keys, whatever their types: [`basics`], [`expiries`], [`browsing`] through many, sorting what they hold
//! ([`sorting`]), what is kept about one ([`object`]), and its value as bytes ([`dumping`]).

pub mod basics;
pub mod browsing;
pub mod dumping;
pub mod expiries;
pub mod object;
pub mod sorting;
