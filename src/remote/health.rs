//! The state of the store: for metrics, INFO and `/healthz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Counters of one front-end. They are for people, but for [`is_away`](Health::is_away) and
/// [`is_refusing`](Health::is_refusing).
#[derive(Debug, Default)]
pub struct Health {
    /// Whether the store has been away for longer than a request waits. Requests are refused at once then.
    pub is_away: AtomicBool,
    /// Why it cannot be reached, in one line; empty while it can.
    pub why_away: Mutex<String>,
    /// Whether there is a connection.
    pub is_connected: AtomicBool,
    /// Whether the store has refused a batch, and has not shown since that it does what batches ask.
    pub is_refusing: AtomicBool,
    /// Batches that the store has answered.
    pub batches: AtomicU64,
    /// Requests in them.
    pub requests: AtomicU64,
    /// Requests that ran again, since another front-end was faster or a guess was wrong.
    pub overtaken: AtomicU64,
    /// Requests that the store could not do.
    pub failed: AtomicU64,
    /// Requests of which the store has not said in time whether it did them.
    pub unknown: AtomicU64,
    /// The most replicas that have had to confirm a commit of PostgreSQL, as its settings say.
    pub confirmations: Arc<AtomicU64>,
    /// Old versions of the front-ends' rows in PostgreSQL that it has not removed.
    pub dead_rows: AtomicU64,
    /// How many milliseconds the store's time is ahead of the clock of the server that keeps its rows.
    pub clock_ahead_ms: AtomicI64,
    /// Connections that were made.
    pub connections: AtomicU64,
    /// Microseconds that the batches took, together.
    pub took_us: AtomicU64,
}

impl Health {
    /// That the store cannot be reached, and why, if that is known.
    pub fn unreachable(&self) -> String {
        match self.why_away.lock().as_str() {
            "" => "cannot be reached".to_owned(),
            why => format!("cannot be reached: {why}"),
        }
    }

    /// What is wrong with the store, if something is, in one line.
    pub fn complaint(&self) -> Option<&'static str> {
        match (self.is_away.load(Ordering::Relaxed), self.is_refusing.load(Ordering::Relaxed)) {
            (true, _) => Some("the store cannot be reached"),
            (false, true) => Some("the store refuses requests"),
            (false, false) => None,
        }
    }

    pub(super) fn answered(&self, requests: usize, took: Duration) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
        self.took_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
}
