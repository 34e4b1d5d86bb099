//! Fencing numbers: each holder of a lock gets one, and a later holder always gets a larger one.
//!
//! A holder that was paused may go on beside the next one. Only what the lock protects can refuse it: by a
//! number that is smaller than one that it has seen.

use std::sync::atomic::{AtomicU64, Ordering};

/// The numbers of all locks of a keyspace.
#[derive(Debug)]
pub struct Fencing(AtomicU64);

/// As long as a server gives fewer numbers in a millisecond, on average, the clock is ahead of them: a server
/// that starts without its data gives larger ones. All are below 2⁵³ until the year 2255, so that JavaScript
/// and Lua can read them.
const NUMBERS_PER_MS: u64 = 1000;

impl Fencing {
    /// Numbers that are larger than those of any earlier run, by the clock. If it was set back, the caller
    /// must state the last number with [`go_beyond`](Self::go_beyond).
    pub fn new(now_ms: u64) -> Fencing {
        Fencing(AtomicU64::new(now_ms.saturating_mul(NUMBERS_PER_MS)))
    }

    /// The last number that was given.
    pub fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The next number. No number is given twice.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives larger numbers than this from now on: an earlier run has given it. A number that was never given
    /// (a file that is damaged, or forged) must not use all of them up.
    pub fn go_beyond(&self, number: u64) {
        if number < u64::MAX / 2 {
            self.0.fetch_max(number, Ordering::Relaxed);
        }
    }
}
