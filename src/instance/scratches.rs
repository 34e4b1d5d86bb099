//! Keyspaces that hold nothing but the rows of one request, whose keys live in a store.

use std::sync::Arc;

use parking_lot::Mutex;

use super::Instance;
use crate::clock::Clock;
use crate::keyspace::{Followers, Keyspace, Shape};
use crate::types;

/// A keyspace for one request at a time. It is empty before and after.
#[derive(Debug)]
pub struct Scratch {
    /// The keyspace: a single shard, no log.
    pub keyspace: Keyspace,
    /// Its clock, which stands.
    clock: Arc<Clock>,
}

/// Scratches that no request uses now.
#[derive(Debug, Default)]
pub struct Scratches(Mutex<Vec<Scratch>>);

/// How many are kept.
const KEPT_MAX: usize = 16;

impl Scratches {
    /// An empty one. Its clock stands at a moment, in milliseconds since 1970. Its clients want to know what
    /// those of the instance want to know.
    pub fn take(&self, instance: &Instance, now_ms: u64) -> Scratch {
        let kept = self.0.lock().pop();
        let scratch = kept.unwrap_or_else(|| {
            let clock = Arc::<Clock>::default();
            clock.freeze();
            let databases = instance.keyspace.databases();
            let shape = Shape { databases, first_database: 0, shards: 1, types: types::ALL };
            let keyspace = Keyspace::new(shape, Arc::clone(&clock), Arc::<Followers>::default());
            Scratch { keyspace, clock }
        });
        // A moment that the clock refuses is none at which a store is used.
        let _ = scratch.clock.set(now_ms);
        let keyspace = &scratch.keyspace;
        keyspace.set_compresses_dumps(false);
        keyspace.set_skips_checksums(instance.keyspace.skips_checksums());
        keyspace.set_value_bytes_max(instance.config.proto_max_bulk_len.size());
        for facts in types::ALL {
            keyspace.limits().set(facts.kind, instance.keyspace.limits().of(facts.kind));
        }
        let producers = instance.keyspace.limits().of_producers();
        producers.into_iter().for_each(|limits| keyspace.limits().set_of_producers(limits));
        keyspace.allow_lock_news(instance.config.lock_lens.get());
        keyspace.followers().interest.follow(&instance.followers.interest);
        scratch
    }

    /// Keeps one for the next request.
    pub fn give_back(&self, scratch: Scratch) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT_MAX {
            kept.push(scratch);
        }
    }
}
