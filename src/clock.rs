//! The one clock of the server.
//!
//! Whoever needs the time of day asks here, so that everything agrees about it: expiry, TTL, TIME, INFO, the
//! use of keys. It tells the system's time unless somebody turns it (CLOCK), as tests do that will not wait:
//! then it stands still, or goes on from another moment. What measures how long something takes, or how long
//! to wait, goes by [`Instant`](std::time::Instant) instead and notices nothing; the log has the system's
//! time.
//!
//! That it can be turned costs one look at a number while it is not.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The first moment to which a clock can be turned, in milliseconds since 1970.
pub const FIRST_MS: u64 = 1;
/// The last one: the end of the year 9999, where the dates of many languages end, too.
pub const LAST_MS: u64 = 253_402_300_799_999;

/// Tells the time of day.
#[derive(Debug, Default)]
pub struct Clock {
    /// 0 while it tells the system's time. Otherwise microseconds, doubled: how far it is ahead of the
    /// system's, or, with [`STANDS`], the moment at which it stands.
    turned: AtomicI64,
}

/// The bit that is free since microseconds are doubled.
const STANDS: i64 = 1;

/// What a clock tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it stands still.
    pub is_frozen: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// Milliseconds by which it is ahead of the system's; negative if it is behind.
    pub ahead_ms: i64,
}

/// A moment that no clock can be turned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Clock {
    /// Milliseconds since 1970, as expiry counts them.
    pub fn now_ms(&self) -> u64 {
        self.since_epoch().as_millis() as u64
    }

    /// Time since 1970.
    #[inline]
    pub fn since_epoch(&self) -> Duration {
        match self.turned.load(Ordering::Relaxed) {
            0 => system_time(),
            turned => turned_time(turned, system_time()),
        }
    }

    /// All that it tells of itself.
    pub fn read(&self) -> Reading {
        let (turned, system) = (self.turned.load(Ordering::Relaxed), system_time());
        let now = turned_time(turned, system);
        Reading {
            is_frozen: turned & STANDS != 0,
            now_ms: now.as_millis() as u64,
            ahead_ms: (micros(now) - micros(system)) / 1000,
        }
    }
}

/// Turning it. Whoever does must see to it that nobody goes by it meanwhile, nor turns it as well:
/// `Transaction::turn_clock` does.
impl Clock {
    /// Lets it stand still, at a whole millisecond, so that all who tell the time tell the same.
    pub fn freeze(&self) {
        self.stand_at(self.now_ms());
    }

    /// Turns it on by so many milliseconds. It stands, or goes on, as it did before.
    ///
    /// # Errors
    ///
    /// If that is beyond [`LAST_MS`]; nothing has changed then.
    pub fn advance(&self, by_ms: u64) -> Result<(), OutOfRange> {
        self.now_ms().checked_add(by_ms).filter(|moment_ms| *moment_ms <= LAST_MS).ok_or(OutOfRange)?;
        self.turned.fetch_add(by_ms as i64 * 1000 * 2, Ordering::Relaxed);
        Ok(())
    }

    /// Turns it on or back to a moment in milliseconds since 1970. It stands, or goes on, as it did before.
    ///
    /// # Errors
    ///
    /// If the moment is not between [`FIRST_MS`] and [`LAST_MS`]; nothing has changed then.
    pub fn set(&self, moment_ms: u64) -> Result<(), OutOfRange> {
        if !(FIRST_MS..=LAST_MS).contains(&moment_ms) {
            return Err(OutOfRange);
        }
        if self.read().is_frozen {
            self.stand_at(moment_ms);
        } else {
            let ahead_us = moment_ms as i64 * 1000 - micros(system_time());
            self.turned.store(ahead_us * 2, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes it tell the system's time again.
    pub fn resume(&self) {
        self.turned.store(0, Ordering::Relaxed);
    }

    fn stand_at(&self, moment_ms: u64) {
        self.turned.store((moment_ms as i64 * 1000 * 2) | STANDS, Ordering::Relaxed);
    }
}

fn system_time() -> Duration {
    // A machine set to before 1970 has no keys that could expire.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// What a clock tells that was turned.
#[cold]
fn turned_time(turned: i64, system: Duration) -> Duration {
    let turned_us = turned >> 1;
    let now_us = if turned & STANDS == 0 { micros(system) + turned_us } else { turned_us };
    // The system's own clock may have been set back meanwhile.
    Duration::from_micros(u64::try_from(now_us).unwrap_or(0))
}

fn micros(time: Duration) -> i64 {
    time.as_micros() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_is_turned_to_the_millisecond() {
        let clock = Clock::default();
        clock.freeze();
        let frozen_ms = clock.now_ms();
        clock.advance(30_000).unwrap();
        assert_eq!(clock.since_epoch(), Duration::from_millis(frozen_ms + 30_000));
        clock.freeze();
        assert_eq!(clock.now_ms(), frozen_ms + 30_000);
        for moment_ms in [FIRST_MS, frozen_ms, LAST_MS] {
            clock.set(moment_ms).unwrap();
            assert_eq!((clock.now_ms(), clock.read().is_frozen), (moment_ms, true));
        }
    }

    #[test]
    fn a_clock_that_goes_goes_on_from_where_it_was_turned_to() {
        const LONG_MS: u64 = 1_000_000;
        let clock = Clock::default();
        clock.advance(LONG_MS).unwrap();
        let Reading { is_frozen, ahead_ms, .. } = clock.read();
        assert_eq!((is_frozen, ahead_ms), (false, LONG_MS as i64));
        clock.set(LONG_MS).unwrap();
        let before = clock.since_epoch();
        assert!((LONG_MS..2 * LONG_MS).contains(&(before.as_millis() as u64)));
        while clock.since_epoch() == before {}
        assert!(clock.since_epoch() > before && clock.read().ahead_ms < 0);
        clock.resume();
        let system = system_time();
        let told = clock.since_epoch();
        assert!((system..=system_time()).contains(&told));
        assert_eq!((clock.read().is_frozen, clock.read().ahead_ms), (false, 0));
    }

    #[test]
    fn no_clock_goes_beyond_its_ends() {
        let clock = Clock::default();
        for moment_ms in [0, LAST_MS + 1, u64::MAX] {
            assert_eq!(clock.set(moment_ms), Err(OutOfRange));
        }
        for by_ms in [LAST_MS, i64::MAX as u64, u64::MAX] {
            assert_eq!(clock.advance(by_ms), Err(OutOfRange));
        }
        assert_eq!(clock.read().ahead_ms, 0);
        clock.set(LAST_MS).unwrap();
        assert!(clock.now_ms() >= LAST_MS && clock.advance(1).is_err());
        clock.freeze();
        assert!(clock.now_ms() >= LAST_MS);
    }
}
