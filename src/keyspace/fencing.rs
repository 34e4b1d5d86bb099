//! Fencing numbers: each holder of a lock gets one, and a later holder always gets a larger one.
//!
//! A holder that was paused may go on beside the next one. Only what the lock protects can refuse it: by a
//! number that is smaller than one that it has seen.
//!
//! The next number is the greater of two: the last one and one more, and the clock. The first keeps numbers
//! apart and in order at one server, whatever its clock does. The second keeps them in order where the last
//! number is not known: after a start without data or with those of an old backup, and at another server that
//! takes the lock over. The clock is the system's: one that a client has turned says nothing about others.
//! Where the clocks of two servers differ, the number that comes with a lock (DUMP, MIGRATE) does the same.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of all locks of a keyspace.
#[derive(Debug)]
pub struct Fencing(AtomicU64);

/// As long as a server gives fewer numbers in a millisecond, on average, the clock is ahead of them.
const NUMBERS_PER_MS: u64 = 1000;

/// The first number that no right clock shows before the year 2112. Beyond it, numbers come from files only:
/// a clock or a payload that is wrong must not use up those below 2⁵³, which JavaScript and Lua can read.
pub(crate) const BEYOND_CLOCKS: u64 = 1 << 52;

/// The number that a clock stands for, in microseconds since 1970; 0 if it is wrong by far.
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) fn number_of_clock(now_us: i64) -> i64 {
    if (0..BEYOND_CLOCKS as i64).contains(&now_us) { now_us } else { 0 }
}

impl Fencing {
    /// Numbers that are larger than the clock.
    pub fn new(now_ms: u64) -> Fencing {
        Fencing(AtomicU64::new(Fencing::at(now_ms)))
    }

    /// The number that a clock stands for; 0 if it is wrong by far.
    fn at(now_ms: u64) -> u64 {
        let number = now_ms.saturating_mul(NUMBERS_PER_MS);
        if number < BEYOND_CLOCKS { number } else { 0 }
    }

    /// The last number that was given, or a larger one.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The next number, by the system's clock in milliseconds since 1970. No number is given twice.
    pub fn next(&self, now_ms: u64) -> u64 {
        let least = Fencing::at(now_ms);
        if self.last() < least {
            self.0.fetch_max(least, Ordering::Relaxed);
        }
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives larger numbers than this from now on: an earlier run, or another server, has given it. A number
    /// that was never given (a file that is damaged, or forged) must not use all of them up.
    pub fn go_beyond(&self, number: u64) {
        if number < u64::MAX / 2 {
            self.0.fetch_max(number, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_number_is_larger_than_the_last_one_and_not_behind_the_clock() {
        let fencing = Fencing::new(5);
        assert_eq!([5, 5, 9, 7, 0].map(|now_ms| fencing.next(now_ms)), [5001, 5002, 9001, 9002, 9003]);
        fencing.go_beyond(20_000);
        assert_eq!([9, 20, 21].map(|now_ms| fencing.next(now_ms)), [20_001, 20_002, 21_001]);
    }

    #[test]
    fn a_clock_that_is_wrong_by_far_and_a_forged_number_use_up_nothing() {
        let fencing = Fencing::new(u64::MAX);
        assert_eq!([u64::MAX, BEYOND_CLOCKS].map(|now_ms| fencing.next(now_ms)), [1, 2]);
        fencing.go_beyond(u64::MAX);
        assert_eq!(fencing.next(3), 3001);
    }
}
