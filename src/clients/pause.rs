//! Clients that must not be served for a while: CLIENT PAUSE.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

/// A pause for all clients, or none.
#[derive(Debug, Default)]
pub struct Pause {
    /// Looked at once a batch; the rest only if it is set.
    is_on: AtomicBool,
    current: Mutex<Option<Current>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    until: Instant,
    paused: Paused,
}

/// The commands that wait in a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// Commands that write, or may send something to replicas.
    Writes,
    /// All commands, whether they read or write.
    All,
}

impl Pause {
    /// Begins a pause. One that goes on already becomes longer and stricter, never shorter or milder.
    pub fn begin(&self, until: Instant, paused: Paused) {
        let mut current = self.current.lock();
        let before = current.filter(|before| before.until > Instant::now());
        *current = Some(Current {
            until: before.map_or(until, |before| before.until.max(until)),
            paused: before.map_or(paused, |before| before.paused.max(paused)),
        });
        self.is_on.store(true, Ordering::Release);
    }

    /// Ends the pause at once, and lets all clients go on.
    pub fn end(&self) {
        *self.current.lock() = None;
        self.is_on.store(false, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The commands that wait now; `None` without a pause.
    #[inline]
    pub fn paused(&self) -> Option<Paused> {
        if self.is_on.load(Ordering::Acquire) { self.current().map(|current| current.paused) } else { None }
    }

    fn current(&self) -> Option<Current> {
        let mut current = self.current.lock();
        if current.is_some_and(|current| current.until <= Instant::now()) {
            *current = None;
            self.is_on.store(false, Ordering::Release);
        }
        *current
    }

    /// Waits until the pause may be over.
    pub async fn ended(&self) {
        let changed = self.changed.notified();
        let Some(current) = self.current() else { return };
        tokio::select! {
            () = changed => {}
            () = sleep_until(current.until.into()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_pause_becomes_longer_and_stricter_only() {
        let (pause, now) = (Pause::default(), Instant::now());
        assert_eq!(pause.paused(), None);
        pause.begin(now + Duration::from_secs(60), Paused::All);
        pause.begin(now + Duration::from_secs(1), Paused::Writes);
        assert_eq!(pause.paused(), Some(Paused::All));
        assert!(pause.current().unwrap().until > now + Duration::from_secs(30));
        pause.end();
        assert_eq!(pause.paused(), None);
        pause.begin(now, Paused::All);
        assert_eq!(pause.paused(), None, "its time is over");
    }
}
