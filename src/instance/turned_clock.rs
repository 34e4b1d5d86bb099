//! What the log says of a clock that a client turns (CLOCK).
//!
//! A turned clock changes what every client sees, and it stays turned when the test that turned it has ended.
//! So each turn leaves a line, and so does a clock that stands still for minutes: nothing expires meanwhile,
//! and clients that wait for an expiry wait on. Lines warn of files, too: they get expiries by the turned
//! clock.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clients::Address;

use super::Instance;

/// A clock that has stood still for so long was probably forgotten by a test that ended early.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Since when the clock has stood still, until the log says so.
#[derive(Debug, Default)]
pub struct Standstill {
    since: Mutex<Option<Instant>>,
}

impl Standstill {
    /// Follows a turn of the clock, after which it stands or goes on.
    fn note(&self, is_frozen: bool, now: Instant) {
        *self.since.lock() = is_frozen.then_some(now);
    }

    /// Whether the log has to say later that the clock stands still.
    pub(super) fn is_awaited(&self) -> bool {
        self.since.lock().is_some()
    }

    /// Whether the clock has stood still for so long that the log has to say it now. True once for each turn.
    fn is_to_be_told(&self, now: Instant) -> bool {
        self.since.lock().take_if(|since| now.duration_since(*since) >= FORGOTTEN_AFTER).is_some()
    }
}

/// Where the clock is, in words.
fn beside_system(ahead_ms: i64) -> String {
    let beside = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("{} ms {beside} the system's", ahead_ms.unsigned_abs())
}

impl Instance {
    /// Warns of a file that is written while the clock is turned (CLOCK). The expiries in it are moments of
    /// that clock, and a server that loads it goes by another.
    pub(super) fn warn_of_turned_clock(&self, file: &str) {
        if !self.clock.is_turned() {
            return;
        }
        self.persistence.note_turned_moments(true);
        let ahead_ms = self.clock.read().ahead_ms;
        let longer = if ahead_ms < 0 { "for a shorter time" } else { "longer" };
        tracing::warn!(
            "The {file} is written while the clock is turned, {}: in a server that loads it, keys with an \
             expiry live {longer} by as much",
            beside_system(ahead_ms)
        );
    }

    /// Follows a turn of the clock by this client: the append-only file has expiries by it, and after its
    /// return to the system's time, files may have those of another one.
    pub fn note_clock_turned(&self, by: &Address) {
        let reading = self.clock.read();
        self.standstill.note(reading.is_frozen, Instant::now());
        let state = if reading.is_frozen { "stands still" } else { "goes on" };
        match self.clock.is_turned() {
            true => tracing::info!(
                "Client {by} turned the clock: it {state}, {}",
                beside_system(reading.ahead_ms)
            ),
            false => tracing::info!("Client {by} returned the clock to the system's time"),
        }
        if self.clock.is_turned() {
            if self.persistence.aof.is_on() && !self.persistence.note_turned_moments(true) {
                self.warn_of_turned_clock("log");
            }
        } else if self.persistence.note_turned_moments(false) {
            tracing::warn!(
                "The clock shows the system's time again. Keys that were written while it was turned keep \
                 their expiries by the turned clock, in memory and in the files that were saved or logged \
                 meanwhile"
            );
        }
    }

    /// Says in the log that the clock has stood still for long, once for each time.
    pub fn warn_of_standing_clock(&self) {
        if self.standstill.is_to_be_told(Instant::now()) {
            tracing::warn!(
                "The clock has stood still for {} minutes: no key expires until CLOCK ADVANCE or CLOCK RESUME",
                FORGOTTEN_AFTER.as_secs() / 60
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_for_two_minutes_after_its_last_turn_is_told_once() {
        let (standstill, begin) = (Standstill::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        assert!(!standstill.is_to_be_told(after(1000)), "it never stood");
        standstill.note(true, begin);
        standstill.note(true, after(60));
        assert!(!standstill.is_to_be_told(after(179)) && standstill.is_awaited());
        assert!(standstill.is_to_be_told(after(180)));
        assert!(!standstill.is_to_be_told(after(1000)) && !standstill.is_awaited());
        standstill.note(true, after(1000));
        standstill.note(false, after(1001));
        assert!(!standstill.is_to_be_told(after(2000)));
    }
}
