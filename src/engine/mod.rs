//! Where transactions come from.
//!
//! Handlers only see a transaction; an engine begins it over what a request needs, and ends it. The data of
//! [`memory`] is in this process. A request that reads much of a large value runs [`aside`]. That of
//! [`remote`] is in a store outside of it: a request runs on an [`overlay`] of the rows of its keys.

pub mod aside;
pub mod memory;
pub mod overlay;
pub mod remote;
pub mod whole;
