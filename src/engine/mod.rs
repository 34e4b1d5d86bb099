//! Where transactions come from.
//!
//! Handlers only see a transaction; an engine begins it over what a request needs, and ends it. There is one
//! engine, [`memory`]; another one could fetch a command's keys from elsewhere and write them back.

pub mod memory;
