//! Frees expired keys that nobody asks for.
//!
//! A sweep goes over the shards in turn. Each table knows the earliest moment at which a sweep of it is worth
//! its time, so a keyspace in which nothing expires costs one comparison a table. In prototypes sweeping cost
//! 12 ns a key looked at and no memory; an ordered index of expiries cost 31 bytes and 200 ns a key.
//!
//! The work is cut into slices of [`SLICE`]; between two of them whoever runs the sweep serves clients for
//! [`PAUSE`], which bounds both the delay of any client and the share of one core: a quarter, as in Redis.

use std::time::{Duration, Instant};

use super::Keyspace;

/// How long the sweep works before it lets others work.
pub const SLICE: Duration = Duration::from_millis(1);
/// How long it then lets them, while there is more to do.
pub const PAUSE: Duration = Duration::from_millis(3);
/// How long it rests after a whole round over the shards. Redis: `hz 10`.
pub const REST: Duration = Duration::from_millis(100);

/// Entries to look at between two looks at the clock.
const ENTRIES_PER_GLANCE: usize = 4096;

/// A round over the shards.
#[derive(Debug, Default)]
pub struct Sweep {
    next_shard: usize,
}

impl Sweep {
    /// Frees what has expired at `now_ms`, for one slice, from where the last one ended; answers how long to
    /// wait before the next.
    pub fn slice(&mut self, keyspace: &Keyspace, now_ms: u64) -> Duration {
        let started = Instant::now();
        let mut looked_at = 0;
        while let Some(shard) = keyspace.shards.get(self.next_shard) {
            looked_at += shard.lock().sweep(now_ms, |entry| keyspace.hash(entry.key()));
            self.next_shard += 1;
            if looked_at >= ENTRIES_PER_GLANCE {
                looked_at = 0;
                if started.elapsed() >= SLICE {
                    return PAUSE;
                }
            }
        }
        self.next_shard = 0;
        REST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    #[test]
    fn keys_that_nobody_asks_for_are_freed() {
        let keyspace = Keyspace::new(2);
        let soon_ms = keyspace.clock().now_ms() + 1_000_000;
        for number in 0..10_000 {
            let key = format!("key:{number}");
            let expiry = if number % 2 == 0 { Expiry::At(soon_ms) } else { Expiry::Never };
            keyspace.begin(number % 2, key.as_bytes()).put(key.as_bytes(), b"v", expiry);
        }
        let mut sweep = Sweep::default();
        while sweep.slice(&keyspace, soon_ms) != REST {}
        let tx = keyspace.begin_all(0);
        assert_eq!(tx.database_sizes().map(|size| size.keys).collect::<Vec<_>>(), [0, 5000]);
        assert_eq!(tx.counters().expired, 5000);
    }
}
