//! What time it is at the store, estimated so that it is never ahead.
//!
//! Clients cannot read etcd's clock: there this machine's clock stands in for it, and only says how much
//! longer keys should live.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

/// The store's clock beside this process's own.
#[derive(Debug, Default)]
pub struct StoreClock {
    /// Microseconds from this process's clock to the store's; 0 before the store has sent its time.
    offset_us: AtomicI64,
}

/// Where this process's clock begins.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Microseconds on this process's clock, which only goes on.
pub(super) fn own_us() -> i64 {
    BEGINNING.elapsed().as_micros() as i64
}

impl StoreClock {
    /// Milliseconds since 1970 at the store, or somewhat less: at most as much as a message travels.
    pub fn now_ms(&self) -> u64 {
        let now_us = own_us() + self.offset_us.load(Ordering::Relaxed);
        u64::try_from(now_us / 1000).unwrap_or(0)
    }

    /// Starts anew, with the time of a store that has just been connected.
    pub(super) fn set(&self, store_us: i64, received_us: i64) {
        self.offset_us.store(store_us - received_us, Ordering::Relaxed);
    }

    /// Learns from a message with the store's time: it was sent after `sent_us` and arrived at `received_us`.
    pub(super) fn learn(&self, store_us: i64, sent_us: i64, received_us: i64) {
        let (least, most) = (store_us - received_us, store_us - sent_us);
        let offset_us = self.offset_us.load(Ordering::Relaxed).clamp(least, most.max(least));
        self.offset_us.store(offset_us, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_never_ahead_of_the_store_and_as_close_as_it_can_be() {
        let clock = StoreClock::default();
        let offset = || clock.offset_us.load(Ordering::Relaxed);
        clock.set(1_000_000, 500);
        assert_eq!(offset(), 999_500);
        clock.learn(1_000_300, 600, 700);
        assert_eq!(offset(), 999_600, "the message took less time");
        clock.learn(1_005_000, 1_000, 9_000);
        assert_eq!(offset(), 999_600, "a slow message tells nothing");
        clock.learn(1_000_000, 2_000, 2_100);
        assert_eq!(offset(), 998_000, "the store's clock was turned back");
    }
}
