//! What time it is at the store, estimated so that it is never ahead.
//!
//! The estimate is the store's last time, and how long ago that was by this process's own clock, which only
//! goes on. So it tells a clock that was set from one that has gone on: a store whose time is far from the
//! estimate is in doubt, and the estimate stays as it is until the store's time was put right. The own clock
//! stands still while this machine is paused; then the system's clock says for how long it was.
//!
//! Clients cannot read etcd's clock: there this machine's clock stands in for it, and only says how much
//! longer keys should live. It is never in doubt.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The store's clock beside this process's own.
#[derive(Debug, Default)]
pub struct StoreClock {
    /// Microseconds from this process's clock to the store's; 0 before the store has sent its time.
    offset_us: AtomicI64,
    /// Microseconds from this process's clock to the system's, when the store has sent its time last.
    system_us: AtomicI64,
    /// How many microseconds the store's clock may jump ahead; 0 if it is never in doubt.
    jump_max_us: i64,
    is_in_doubt: AtomicBool,
    /// Since when it has been in doubt before its time was ever known.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd's clock is never in doubt"))]
    doubted_since: OnceLock<Instant>,
}

/// The time of the store when something is sent to it: in microseconds since 1970.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "clients cannot read etcd's clock"))]
pub(super) struct Window {
    /// The estimate, which is not ahead of it.
    pub(super) estimate_us: i64,
    /// The latest time that it can be, if its clock was not set.
    pub(super) latest_us: i64,
}

/// What a front-end does if the clock of a store has jumped ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnJump {
    /// The store's time goes on as it was.
    Correct,
    /// Nothing is served until the clock was set right.
    Refuse,
}

/// Where this process's clock begins.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How many microseconds the store's clock may go back before it is in doubt: so much is corrected by and by
/// where clocks are synchronised.
pub(super) const BACK_MAX_US: i64 = 100_000; // In `MOMENT` of PostgreSQL's statements, too.

/// Microseconds on this process's clock, which only goes on.
pub(super) fn own_us() -> i64 {
    BEGINNING.elapsed().as_micros() as i64
}

/// Microseconds since 1970 by the clock of this machine.
pub(super) fn system_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

impl StoreClock {
    /// The clock of a store whose time is in doubt if it jumps further ahead than that.
    pub(super) fn that_may_jump(most: Duration) -> StoreClock {
        StoreClock { jump_max_us: most.as_micros() as i64, ..StoreClock::default() }
    }

    /// Milliseconds since 1970 at the store, or somewhat less: at most as much as a message travels.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.at_us(own_us()) / 1000).unwrap_or(0)
    }

    /// The estimate for a moment of this process's clock, in microseconds since 1970.
    pub(super) fn at_us(&self, own_us: i64) -> i64 {
        own_us + self.offset_us.load(Ordering::Relaxed)
    }

    /// The time of the store now.
    pub(super) fn window(&self) -> Window {
        let own_us = own_us();
        Window { estimate_us: self.at_us(own_us), latest_us: self.latest_at_us(own_us, system_us()) }
    }

    fn latest_at_us(&self, own_us: i64, system_us: i64) -> i64 {
        self.unpaused_at_us(own_us, system_us) + self.jump_max_us
    }

    /// The estimate for a moment, if the own clock has stood still for as long as the system's clock says.
    fn unpaused_at_us(&self, own_us: i64, system_us: i64) -> i64 {
        let paused_us = system_us - own_us - self.system_us.load(Ordering::Relaxed);
        self.at_us(own_us) + paused_us.max(0)
    }

    /// The same for a moment that was not long ago.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd counts leases itself"))]
    pub(super) fn unpaused_us(&self, then_us: i64) -> i64 {
        let now_us = own_us();
        self.unpaused_at_us(now_us, system_us()) - (now_us - then_us)
    }

    /// Whether the store has sent its time.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "clients cannot read etcd's clock"))]
    pub(super) fn is_known(&self) -> bool {
        self.offset_us.load(Ordering::Relaxed) != 0
    }

    /// Whether the store's time is far from the estimate.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Ordering::Relaxed)
    }

    /// How long a store has been in doubt whose time was never known.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "etcd's clock is never in doubt"))]
    pub(super) fn doubted_for(&self) -> Duration {
        self.doubted_since.get_or_init(Instant::now).elapsed()
    }

    /// Starts anew, with the time of a store that has just been connected.
    pub(super) fn set(&self, store_us: i64, received_us: i64) {
        self.offset_us.store(store_us - received_us, Ordering::Relaxed);
        self.system_us.store(system_us() - own_us(), Ordering::Relaxed);
        self.is_in_doubt.store(false, Ordering::Relaxed);
    }

    /// Learns from a message with the store's time: it was sent after `sent_us` and arrived at `received_us`.
    pub(super) fn learn(&self, store_us: i64, sent_us: i64, received_us: i64) {
        self.learn_at(store_us, (sent_us, received_us), system_us());
    }

    fn learn_at(&self, store_us: i64, (sent_us, received_us): (i64, i64), system_us: i64) {
        let (least, most) = (store_us - received_us, (store_us - sent_us).max(store_us - received_us));
        let offset_us = self.offset_us.load(Ordering::Relaxed);
        let is_ahead = store_us > self.latest_at_us(received_us, system_us);
        if self.jump_max_us > 0 && (is_ahead || most < offset_us - BACK_MAX_US) {
            self.is_in_doubt.store(true, Ordering::Relaxed);
            return;
        }
        self.offset_us.store(offset_us.clamp(least, most), Ordering::Relaxed);
        self.system_us.store(system_us - received_us, Ordering::Relaxed);
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
        assert!(!clock.is_in_doubt(), "this one never is");
    }

    #[test]
    fn a_store_whose_clock_was_set_is_in_doubt_and_a_pause_of_this_machine_is_none() {
        const SECOND: i64 = 1_000_000;
        let clock = || {
            let clock = StoreClock::that_may_jump(Duration::from_secs(1));
            clock.offset_us.store(100 * SECOND, Ordering::Relaxed);
            clock
        };
        // The own clock, the system's, the store's, and whether the store is in doubt.
        let cases = [
            (5, 5, 105, false),
            (5, 5, 106, false),
            (5, 5, 107, true),
            (5, 5, 104, true),
            (5, 15, 115, false),
            (5, 15, 117, true),
            (5, 1, 105, false),
            (5, 1, 107, true),
        ];
        for (own, system, store, is_in_doubt) in cases {
            let clock = clock();
            clock.learn_at(store * SECOND, (own * SECOND, own * SECOND), system * SECOND);
            assert_eq!(clock.is_in_doubt(), is_in_doubt, "{own} {system} {store}");
            let is_learnt = clock.offset_us.load(Ordering::Relaxed) == (store - own) * SECOND;
            assert_eq!(is_learnt, !is_in_doubt, "{own} {system} {store}");
        }
        let slow = clock();
        slow.learn_at(104 * SECOND, (3 * SECOND, 5 * SECOND), 5 * SECOND);
        assert!(!slow.is_in_doubt(), "it may have been sent a second ago");
    }
}
