//! How recently, or how often, each key was used. Eviction by LRU and LFU, OBJECT IDLETIME and OBJECT FREQ
//! use it.
//!
//! Each entry carries a stamp of 32 bits. It has one of two forms, and the highest bit says which, so a stamp
//! from before a change of policy is not misread:
//!
//! - By recency (all policies but LFU) the stamp is the moment of the last use, in ticks of a second, as in
//!   Redis. A key that is used often need not be written each time. With LRM only a write is a use.
//! - By frequency the stamp is what Redis keeps (`evict.c` describes it): a logarithmic counter of 8 bits,
//!   and the minute of its last update. The larger the counter is, the more slowly it grows. It decays while
//!   the key is not used.
//!
//! The moments are those of the server's clock, cut to their lower bits. A stamp may seem to lie in the
//! future, because the clock was turned or set back. It then counts as a stamp of now. When the clock is
//! turned so far that stamps could be misread, they are all written anew ([`Turn`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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

/// How far from the moment at which all stamps were written the clock may be turned: half of the span
/// between two stamps. So each stamp is nearer than that span to any moment that the clock shows.
const TURN_MAX: Duration = Duration::from_secs(60 * (MINUTES / 4) as u64);

/// A turn of the clock after which the stamps must be written anew: from one moment to another, both since
/// 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    before: Duration,
    after: Duration,
}

/// The stamp that a key gets when it is used now, and the rules for counting.
#[derive(Debug)]
pub struct Access {
    /// When all stamps were written anew last, in seconds since 1970; 0 if they never were.
    rewritten_s: AtomicU64,
    now: AtomicU32,
    /// What a key gets that is only read: the same, or 0 for nothing, where stamps date writes.
    read: AtomicU32,
    /// Whether reading a key is no use (LRM: the least recently modified keys are evicted first).
    goes_by_writes: AtomicBool,
    /// How slowly counts grow (parameter `lfu-log-factor`).
    log_factor: AtomicU32,
    /// Redis: `lfu-decay-time`, in minutes; 0 for never.
    decay_minutes: AtomicU32,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            rewritten_s: AtomicU64::new(0),
            now: AtomicU32::new(1),
            read: AtomicU32::new(1),
            goes_by_writes: AtomicBool::new(false),
            log_factor: AtomicU32::new(10),
            decay_minutes: AtomicU32::new(1),
        }
    }
}

impl Access {
    /// Moves to a moment, given as the time since 1970. It may move back. The caller calls it more often than
    /// once a second.
    pub fn advance(&self, since: Duration) {
        let now = match self.counts_frequency() {
            true => by_frequency(since),
            false => by_recency(since),
        };
        self.now.store(now, Ordering::Relaxed);
        let read = if self.goes_by_writes.load(Ordering::Relaxed) { 0 } else { now };
        self.read.store(read, Ordering::Relaxed);
    }

    /// Whether reading a key is a use from now on.
    pub fn go_by_writes(&self, goes_by_writes: bool) {
        self.goes_by_writes.store(goes_by_writes, Ordering::Relaxed);
    }

    /// The moment in the form of a stamp for keys that are read; 0 if reading is no use.
    #[inline]
    pub(super) fn read(&self) -> u32 {
        self.read.load(Ordering::Relaxed)
    }

    /// Whether only writes date a key.
    pub(super) fn dates_writes(&self) -> bool {
        self.goes_by_writes.load(Ordering::Relaxed)
    }

    /// Changes the form of stamps, and the rules for counting. Stamps of the other form stay readable.
    pub fn configure(&self, counts_frequency: bool, log_factor: u32, decay_minutes: u32, since: Duration) {
        self.log_factor.store(log_factor, Ordering::Relaxed);
        self.decay_minutes.store(decay_minutes, Ordering::Relaxed);
        self.now.store(if counts_frequency { BY_FREQUENCY } else { 1 }, Ordering::Relaxed);
        self.advance(since);
    }

    /// Notes that the clock was turned. Returns the turn if the stamps of all keys must be written anew.
    pub(super) fn note_turn(&self, before: Duration, after: Duration) -> Option<Turn> {
        let rewritten = match self.rewritten_s.load(Ordering::Relaxed) {
            0 => before,
            seconds => Duration::from_secs(seconds),
        };
        let is_far = rewritten.abs_diff(after) > TURN_MAX;
        let rewritten = if is_far { after } else { rewritten };
        self.rewritten_s.store(rewritten.as_secs(), Ordering::Relaxed);
        is_far.then_some(Turn { before, after })
    }

    /// The stamp of a key after a turn. What has passed by the clock has passed without a use, up to 17
    /// years, so that it stays readable until the next such turn. A moment that is still to come counts as
    /// now.
    pub(super) fn stamp_after(&self, stamp: u32, turn: Turn) -> u32 {
        let on = turn.after.saturating_sub(turn.before).as_secs();
        let back = turn.before.saturating_sub(turn.after).as_secs();
        let moved = |units: u32, unit_s: u64, max: u32| {
            let units = u64::from(units).saturating_add(on / unit_s).saturating_sub(back / unit_s);
            units.min(u64::from(max)) as u32
        };
        if Access::is_by_recency(stamp) {
            let idle = moved(passed(stamp, by_recency(turn.before), TICKS), TICK.as_secs(), TICKS / 4);
            return by_recency(turn.after).wrapping_sub(idle) & TICKS;
        }
        let minutes = moved(passed(stamp >> 8, by_frequency(turn.before) >> 8, MINUTES), 60, u32::MAX);
        by_frequency(turn.after) | self.less_decay(stamp & 0xff, minutes)
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

    /// The count of a stamp, less the decay for the minutes without a use. A key whose last use was dated has
    /// not been counted yet: as in Redis, it counts as one that decayed long ago.
    fn decayed(&self, stamp: u32, now: u32) -> u32 {
        if stamp & BY_FREQUENCY == 0 {
            return 0;
        }
        self.less_decay(stamp & 0xff, passed(stamp >> 8, now >> 8, MINUTES))
    }

    /// A count after so many minutes without a use.
    fn less_decay(&self, count: u32, minutes: u32) -> u32 {
        let decay_minutes = self.decay_minutes.load(Ordering::Relaxed);
        count.saturating_sub(minutes.checked_div(decay_minutes).unwrap_or(0))
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

/// A moment in the form of a stamp that dates the last use. It is never zero, which means that a transaction
/// notes no use.
fn by_recency(since: Duration) -> u32 {
    ((since.as_millis() / TICK.as_millis()) as u32 & TICKS).max(1)
}

/// A moment in the form of a stamp that counts, with a count of 0.
fn by_frequency(since: Duration) -> u32 {
    BY_FREQUENCY | ((since.as_secs() / 60) as u32 & MINUTES) << 8
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
    fn a_clock_that_is_turned_by_any_time_leaves_stamps_readable() {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let access = Access::default();
        let (mut now, mut stamp, mut count) = (YEAR * 56, 0, 0);
        let mut turn_to = |after: Duration, stamp: &mut u32, count: &mut u32| {
            if let Some(turn) = access.note_turn(now, after) {
                *stamp = access.stamp_after(*stamp, turn);
                *count = access.stamp_after(*count, turn);
            }
            now = after;
            access.configure(true, 10, 1, after);
            let frequency = access.frequency(*count);
            access.configure(false, 10, 1, after);
            (access.idle(*stamp), frequency)
        };
        turn_to(YEAR * 56, &mut stamp, &mut count);
        (stamp, count) = (by_recency(YEAR * 56), by_frequency(YEAR * 56) | 77);
        let second = Duration::from_secs(1);
        assert_eq!(turn_to(second, &mut stamp, &mut count), (Duration::ZERO, 77));
        // In small steps, each of which is near enough.
        for years in 1..=60 {
            let (idle, frequency) = turn_to(YEAR * years, &mut stamp, &mut count);
            let at_least = (YEAR * years - second).min(YEAR * 17);
            assert!(at_least <= idle && idle < YEAR * years, "{years} years: {idle:?}");
            assert_eq!(frequency, 0);
        }
        assert!(turn_to(YEAR * 8000, &mut stamp, &mut count).0 >= YEAR * 17);
        assert_eq!(turn_to(second, &mut stamp, &mut count).0, Duration::ZERO);
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
        assert_eq!(access.frequency(by_recency), 0, "8.6.3: OBJECT FREQ of a key from before");
        let by_frequency = access.next(by_recency, access.now());
        access.configure(false, 10, 1, HOUR);
        assert_eq!(access.idle(by_frequency), Duration::ZERO);
    }
}
