//! Keys, whatever their types: [`basics`], [`expiries`], [`browsing`] through many, sorting what they hold
//! ([`sorting`]), what is kept about one ([`object`]), its value as bytes ([`dumping`]), and keys on the way
//! to another server ([`migrating`]).

pub(crate) mod basics;
pub(crate) mod browsing;
pub(crate) mod dumping;
pub(crate) mod expiries;
pub(crate) mod migrating;
pub(crate) mod object;
pub(crate) mod sorting;
