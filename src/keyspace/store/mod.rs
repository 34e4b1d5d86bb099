//! The memory for keys and values.
//!
//! - [`entry`] is one key with its value.
//! - [`buckets`] finds an entry by its hash.
//! - [`table`] is the keys of one database in one shard.
//! - [`shard`] is the data behind one lock.
//! - [`locking`] is how threads wait for shards.
//! - [`sync`] is the locks.

pub(in crate::keyspace) mod buckets;
mod due;
pub(in crate::keyspace) mod entry;
pub(in crate::keyspace) mod locking;
pub(in crate::keyspace) mod shard;
pub(in crate::keyspace) mod sync;
pub(in crate::keyspace) mod table;
