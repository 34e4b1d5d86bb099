//! Where keys and values lie: [`entry`] is one key in memory, [`buckets`] how it is found, [`table`] the keys
//! of one database in one shard, [`shard`] what lies behind one lock, [`locking`] how shards are waited for
//! and [`sync`] what the locks are made of.

pub(in crate::keyspace) mod buckets;
pub(in crate::keyspace) mod entry;
pub(in crate::keyspace) mod locking;
pub(in crate::keyspace) mod shard;
pub(in crate::keyspace) mod sync;
pub(in crate::keyspace) mod table;
