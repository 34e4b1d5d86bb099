//! Limits the connections to a number of places. A client cannot block the others.
//!
//! A connection that sends nothing, reads nothing or does not end would hold its place for seconds. Sixteen
//! of them would block `/healthz`. So if all places are taken and another connection comes, the server closes
//! the one for which it has waited longest. It never closes one whose response is being made.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::select;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The places of all connections, of which there are so many.
pub(super) struct ConnectionLimit {
    free: Arc<Semaphore>,
    taken: Mutex<Vec<Arc<Waiting>>>,
}

/// A place that is taken.
#[derive(Default)]
struct Waiting {
    /// Since when the server has waited for the client; `None` while it does not wait.
    since: Mutex<Option<Instant>>,
    leave: Notify,
}

/// A connection's place, which is free again when this is dropped.
pub(super) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    waiting: Arc<Waiting>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(super) fn new(count: usize) -> Arc<ConnectionLimit> {
        Arc::new(ConnectionLimit { free: Arc::new(Semaphore::new(count)), taken: Mutex::default() })
    }

    /// Waits for a free place and takes it. Returns `None` when the server ends.
    pub(super) async fn take(self: &Arc<Self>) -> Option<ConnectionPermit> {
        if self.free.available_permits() == 0 {
            self.ask_one_to_leave();
        }
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        let waiting = Arc::new(Waiting::default());
        self.taken.lock().push(Arc::clone(&waiting));
        Some(ConnectionPermit { limit: Arc::clone(self), waiting, _permit: permit })
    }

    fn ask_one_to_leave(&self) {
        let taken = self.taken.lock();
        let since = |place: &Arc<Waiting>| *place.since.lock();
        if let Some(longest) =
            taken.iter().filter(|place| since(place).is_some()).min_by_key(|place| since(place))
        {
            longest.leave.notify_one();
        }
    }
}

impl ConnectionPermit {
    /// Waits for something that the client must do. Returns `None` if the place is needed.
    pub(super) async fn wait<T>(&self, done: impl Future<Output = T>) -> Option<T> {
        *self.waiting.since.lock() = Some(Instant::now());
        let done = select! {
            // A result that is ready comes first.
            biased;
            done = done => Some(done),
            () = self.waiting.leave.notified() => None,
        };
        *self.waiting.since.lock() = None;
        done
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limit.taken.lock().retain(|other| !Arc::ptr_eq(other, &self.waiting));
    }
}
