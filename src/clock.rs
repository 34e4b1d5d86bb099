//! The one clock of the server.
//!
//! All parts of the server read the time of day here, so that they agree: expiry, TTL, TIME, INFO, the use of
//! keys. The clock shows the system's time unless a client turns it (CLOCK), as tests do to save waiting.
//! Then it stands still, or goes on from another moment. Code that measures or limits a duration uses
//! [`Instant`](std::time::Instant) instead, so it is not affected. The server's log messages have the
//! system's time, and so have snapshots: when the last one was written, and how old a file is.
//!
//! As long as no client has turned the clock, a reading costs one more look at a number.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The first moment to which a clock can be turned, in milliseconds since 1970.
pub(crate) const FIRST_MS: u64 = 1;
/// The last such moment: the end of the year 9999, where the dates of many languages end, too.
pub(crate) const LAST_MS: u64 = 253_402_300_799_999;

/// The clock. It shows the time of day.
#[derive(Debug, Default)]
pub struct Clock {
    /// 0 while the clock shows the system's time. Otherwise twice a number of microseconds: how far the clock
    /// is ahead of the system's clock, or, with the bit [`STANDS`], the moment at which it stands.
    turned: AtomicI64,
}

/// Set while the clock stands. The bit is free because the microseconds are doubled.
const STANDS: i64 = 1;

/// The state of a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it stands still.
    pub is_frozen: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// Milliseconds by which it is ahead of the system's clock; negative if it is behind.
    pub ahead_ms: i64,
}

/// The clock cannot be turned to this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl Clock {
    /// Milliseconds since 1970, the unit of expiries.
    pub fn now_ms(&self) -> u64 {
        self.since_epoch().as_millis() as u64
    }

    /// The next whole millisecond since 1970, or this one if it has just begun.
    fn next_ms(&self) -> u64 {
        self.since_epoch().as_nanos().div_ceil(1_000_000) as u64
    }

    /// Time since 1970.
    #[inline]
    pub fn since_epoch(&self) -> Duration {
        match self.turned.load(Ordering::Relaxed) {
            0 => system_time(),
            turned => turned_time(turned, system_time()),
        }
    }

    /// Whether a client has turned it, or stopped it.
    pub fn is_turned(&self) -> bool {
        self.turned.load(Ordering::Relaxed) != 0
    }

    /// The state of the clock.
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

/// Turning the clock. The caller must ensure that no other thread reads or turns it meanwhile:
/// `Transaction::turn_clock` does.
impl Clock {
    /// Stops the clock at a whole millisecond, so that TIME and the expiries agree.
    pub fn freeze(&self) {
        self.stand_at(self.next_ms());
    }

    /// Turns the clock on by this many milliseconds, to a whole one. It stands, or goes on, as before. What
    /// was to expire in so many milliseconds has expired then: expiries are rounded up as well.
    ///
    /// # Errors
    ///
    /// If the moment would be after [`LAST_MS`]; the clock is unchanged then.
    pub fn advance(&self, by_ms: u64) -> Result<(), OutOfRange> {
        self.set(self.next_ms().checked_add(by_ms).ok_or(OutOfRange)?)
    }

    /// Turns the clock to a moment in milliseconds since 1970. It stands, or goes on, as before.
    ///
    /// # Errors
    ///
    /// If the moment is not between [`FIRST_MS`] and [`LAST_MS`]; the clock is unchanged then.
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

    /// Returns the clock to the system's time.
    pub fn resume(&self) {
        self.turned.store(0, Ordering::Relaxed);
    }

    fn stand_at(&self, moment_ms: u64) {
        self.turned.store((moment_ms as i64 * 1000 * 2) | STANDS, Ordering::Relaxed);
    }
}

/// Seconds since 1970 by the system's clock, for moments that belong to files and not to keys.
pub(crate) fn system_s() -> u64 {
    system_time().as_secs()
}

/// Milliseconds since 1970 by the system's clock, for what must not follow a clock that a client has turned.
pub(crate) fn system_ms() -> u64 {
    system_time().as_millis() as u64
}

fn system_time() -> Duration {
    // While the system's clock is before 1970, no key expires.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time of a clock that was turned.
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
    fn a_frozen_clock_is_turned_to_the_millisecond() {
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
    fn a_running_clock_goes_on_from_the_moment_it_was_turned_to() {
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
        let shown = clock.since_epoch();
        assert!((system..=system_time()).contains(&shown));
        assert_eq!((clock.read().is_frozen, clock.read().ahead_ms), (false, 0));
    }

    #[test]
    fn a_clock_stays_between_its_first_and_last_moment() {
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
