//! Where transactions come from.
//!
//! Handlers only see a transaction; an engine begins it over what a request needs, and ends it. The data of
//! [`memory`] is in this process. A request that reads much of a large value runs [`unlocked_reads`]. That of
//! [`remote`] is in a store outside of it: a request runs on an [`scratch`] of the rows of its keys.

pub mod all_keys;
pub mod memory;
pub mod remote;
pub mod scratch;
pub mod unlocked_reads;
