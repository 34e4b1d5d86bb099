//! Where transactions come from.
//!
//! Handlers only see a transaction; an engine begins it, has the handler run on it, and ends it. There is one
//! engine, [`memory`]; another could fetch a command's keys from elsewhere and write them back.

pub mod memory;
pub mod meter;
pub mod room;
