//! How recently, or how often, each key was used. Eviction by LRU and LFU, OBJECT IDLETIME and OBJECT FREQ
//! use it.
//!
//! Each entry carries a stamp of 32 bits. It has one of two forms, and the highest bit says which, so a stamp
//! from before a change of policy is not misread:
//!
//! - By recency (all policies but LFU) the stamp is the moment of the last use, in ticks of a second, as in
//!   Redis. A key that is used often need not be written each time.
//! - By frequency the stamp is what Redis keeps (`evict.c` describes it): a logarithmic counter of 8 bits,
//!   and the minute of its last update. The larger the counter is, the more slowly it grows. It decays while
//!   the key is not used.
//!
//! The moments are those of the server's clock, cut to their lower bits. A stamp may seem to lie in the
//! future, because the clock was turned or set back. It then counts as a stamp of now.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The length of a tick of recency.
const TICK: Duration = Duration::from_secs(1);

const BY_FREQUENCY: u32 = 1 << 31;
/// The bits of a moment by recency: 68 years of ticks. Half of them count as the future.
const TICKS: u32 = !BY_FREQUENCY;
/// The bits of a moment by frequency: 16 years of minutes.
const MINUTES: u32 = TICKS >> 8;
/// The count of a new key, so that it is not evicted before it can be used. Redis: `LFU_INIT_VAL`.
const NEW_KEY_COUNT: u32 = 5;

/// The stamp that a key gets when it is used now, and the rules for counting.
#[derive(Debug)]
pub struct Access {
    now: AtomicU32,
    /// How slowly counts grow (parameter `lfu-log-factor`).
    log_factor: AtomicU32,
    /// Redis: `lfu-decay-time`, in minutes; 0 for never.
    decay_minutes: AtomicU32,
}

impl Default for Access {
    fn default() -> Access {
        Access { now: AtomicU32::new(1), log_factor: AtomicU32::new(10), decay_minutes: AtomicU32::new(1) }
    }
}

impl Access {
    /// Moves to a moment, given as the time since 1970. It may move back. The caller calls it more often than
    /// once a second.
    pub fn advance(&self, since: Duration) {
        let now = match self.counts_frequency() {
            true => BY_FREQUENCY | ((since.as_secs() / 60) as u32 & MINUTES) << 8,
            false => (since.as_millis() / TICK.as_millis()) as u32 & TICKS,
        };
        // Zero means that a transaction notes no use.
        self.now.store(now.max(1), Ordering::Relaxed);
    }

    /// Changes the form of stamps, and the rules for counting. Stamps of the other form stay readable.
    pub fn configure(&self, counts_frequency: bool, log_factor: u32, decay_minutes: u32, since: Duration) {
        self.log_factor.store(log_factor, Ordering::Relaxed);
        self.decay_minutes.store(decay_minutes, Ordering::Relaxed);
        self.now.store(if counts_frequency { BY_FREQUENCY } else { 1 }, Ordering::Relaxed);
        self.advance(since);
    }

    /// Whether stamps count uses rather than date the last one.
    pub fn counts_frequency(&self) -> bool {
        self.now.load(Ordering::Relaxed) & BY_FREQUENCY != 0
    }

    /// The moment in the form of a stamp.
    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// Whether a stamp dates the last use.
    #[inline]
    pub(super) fn is_by_recency(stamp: u32) -> bool {
        stamp & BY_FREQUENCY == 0
    }

    /// The stamp of a key that is written for the first time.
    #[inline]
    pub(super) fn first(now: u32) -> u32 {
        if now & BY_FREQUENCY == 0 { now } else { now | NEW_KEY_COUNT }
    }

    /// The stamp of a key that is written for the first time, now.
    pub(super) fn first_now(&self) -> u32 {
        Access::first(self.now())
    }

    /// The stamp of a key that is used once more.
    #[inline]
    pub(super) fn next(&self, stamp: u32, now: u32) -> u32 {
        if now & BY_FREQUENCY == 0 { now } else { self.next_count(stamp, now) }
    }

    #[cold]
    fn next_count(&self, stamp: u32, now: u32) -> u32 {
        let count = self.decayed(stamp, now);
        let factor = self.log_factor.load(Ordering::Relaxed);
        let above_new = f64::from(count.saturating_sub(NEW_KEY_COUNT));
        let grows = count < 255 && fastrand::f64() < 1.0 / (above_new * f64::from(factor) + 1.0);
        now & !0xff | (count + u32::from(grows))
    }

    /// The count of a stamp, less the decay for the minutes without a use.
    fn decayed(&self, stamp: u32, now: u32) -> u32 {
        if stamp & BY_FREQUENCY == 0 {
            return NEW_KEY_COUNT;
        }
        let passed = passed(stamp >> 8, now >> 8, MINUTES);
        let decay_minutes = self.decay_minutes.load(Ordering::Relaxed);
        (stamp & 0xff).saturating_sub(passed.checked_div(decay_minutes).unwrap_or(0))
    }

    /// For how long a key with this stamp has not been used; zero for a stamp by frequency.
    pub(super) fn idle(&self, stamp: u32) -> Duration {
        let now = self.now();
        match (now | stamp) & BY_FREQUENCY {
            0 => TICK * passed(stamp, now, TICKS),
            _ => Duration::ZERO,
        }
    }

    /// The count of a stamp, decayed until now.
    pub(super) fn frequency(&self, stamp: u32) -> u8 {
        self.decayed(stamp, self.now()) as u8
    }

    /// The stamp of a key that was idle for this long, for RESTORE.
    pub(super) fn stamp_of_idle(&self, idle: Duration) -> Option<u32> {
        let ticks = u32::try_from(idle.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).min(TICKS / 2);
        (!self.counts_frequency()).then(|| self.now().wrapping_sub(ticks) & TICKS)
    }

    /// The stamp of a key with this frequency, for RESTORE.
    pub(super) fn stamp_of_frequency(&self, frequency: u8) -> Option<u32> {
        self.counts_frequency().then(|| self.now() & !0xff | u32::from(frequency))
    }
}

/// The time between two moments of which only these lower bits are known.
fn passed(from: u32, to: u32, bits: u32) -> u32 {
    let passed = to.wrapping_sub(from) & bits;
    if passed <= bits / 2 { passed } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn idleness_is_measured_in_ticks() {
        let access = Access::default();
        access.advance(HOUR);
        let stamp = access.next(0, access.now());
        access.advance(HOUR + Duration::from_secs(7));
        assert_eq!(access.idle(stamp), Duration::from_secs(7));
        assert_eq!(access.idle(access.stamp_of_idle(HOUR / 2).unwrap()), HOUR / 2);
        assert_eq!(access.idle(access.stamp_of_idle(2 * HOUR).unwrap()), 2 * HOUR);
        assert!(access.idle(access.stamp_of_idle(Duration::MAX).unwrap()) > 24 * 365 * 30 * HOUR);
    }

    #[test]
    fn after_the_clock_is_set_back_a_used_key_is_not_idle() {
        let (access, later) = (Access::default(), 24 * 365 * 60 * HOUR);
        access.advance(later + HOUR);
        let by_recency = access.next(0, access.now());
        access.advance(later);
        assert_eq!(access.idle(by_recency), Duration::ZERO);
        access.configure(true, 10, 1, later + HOUR);
        let by_frequency = access.stamp_of_frequency(77).unwrap();
        access.advance(later);
        assert_eq!(access.frequency(by_frequency), 77);
        access.advance(later + 2 * HOUR);
        assert_eq!(access.frequency(by_frequency), 17);
    }

    #[test]
    fn the_count_of_a_key_grows_with_use_and_decays_without() {
        let access = Access::default();
        access.configure(true, 0, 1, HOUR);
        let mut stamp = Access::first(access.now());
        assert_eq!(access.frequency(stamp), 5);
        for _ in 0..300 {
            stamp = access.next(stamp, access.now());
        }
        assert_eq!(access.frequency(stamp), 255);
        access.advance(HOUR + Duration::from_secs(10 * 60));
        assert_eq!(access.frequency(stamp), 245);
        access.configure(true, 10, 0, 2 * HOUR);
        assert_eq!(access.frequency(stamp), 255, "without decay the count stays");
        assert_eq!(access.frequency(access.stamp_of_frequency(77).unwrap()), 77);
    }

    #[test]
    fn the_counter_is_logarithmic() {
        let access = Access::default();
        access.configure(true, 10, 1, HOUR);
        let after_a_thousand_uses = || {
            let mut stamp = Access::first(access.now());
            for _ in 0..1000 {
                stamp = access.next(stamp, access.now());
            }
            u32::from(access.frequency(stamp))
        };
        // Redis documents 18 with a factor of ten. A single key may have 12 or 26.
        let mean = (0..100).map(|_| after_a_thousand_uses()).sum::<u32>() / 100;
        assert!((16..=21).contains(&mean), "{mean}");
    }

    #[test]
    fn stamps_from_before_a_change_of_policy_are_not_misread() {
        let access = Access::default();
        access.advance(HOUR);
        let by_recency = access.next(0, access.now());
        access.configure(true, 10, 1, HOUR);
        assert_eq!(access.frequency(by_recency), 5);
        let by_frequency = access.next(by_recency, access.now());
        access.configure(false, 10, 1, HOUR);
        assert_eq!(access.idle(by_frequency), Duration::ZERO);
    }
}
