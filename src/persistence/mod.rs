//! What outlives the process.

pub mod rdb;
