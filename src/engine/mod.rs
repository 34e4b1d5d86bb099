//! Where transactions come from.
//!
//! Handlers only see a transaction; an engine begins it over what a request needs, and ends it. The data of
//! [`memory`] is in this process. What takes long runs [`off_locks`]. The data of [`remote`] is in a store
//! outside of it: a request runs on an [`scratch`] of the rows of its keys.

pub(crate) mod all_keys;
pub(crate) mod memory;
pub(crate) mod off_locks;
pub(crate) mod remote;
pub(crate) mod scratch;
