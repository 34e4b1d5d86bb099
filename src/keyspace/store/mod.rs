//! The memory for keys and values.
//!
//! - [`entry`] is one key with its value.
//! - [`buckets`] finds an entry by its hash.
//! - [`table`] is the keys of one database in one shard.
//! - [`copies`] are copies of entries for a snapshot, and [`token`] is what is kept of a lock.
//! - [`shard`] is the data behind one lock.
//! - [`locking`] is how threads wait for shards.
//! - [`sync`](crate::sync) is the locks.

pub(in crate::keyspace) mod buckets;
pub(in crate::keyspace) mod copies;
mod due;
pub(in crate::keyspace) mod entry;
pub(in crate::keyspace) mod locking;
pub(in crate::keyspace) mod shard;
pub(in crate::keyspace) mod table;
pub(in crate::keyspace) mod token;
