//! The one clock of the server.
//!
//! Whoever needs the time asks here, so that everything agrees about it: expiry, TTL, INFO, the log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time of day.
#[derive(Debug, Default)]
pub struct Clock(());

impl Clock {
    /// Milliseconds since 1970, as expiry counts them.
    pub fn now_ms(&self) -> u64 {
        self.since_epoch().as_millis() as u64
    }

    /// Time since 1970.
    pub fn since_epoch(&self) -> Duration {
        // A machine set to before 1970 has no keys that could expire.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
