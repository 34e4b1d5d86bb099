//! Waits until the clients that have just been answered have sent their next requests.
//!
//! A batch costs PostgreSQL and its replicas about a millisecond of processor time, whatever is in it. So a
//! short wait pays if clients send one request after the other: without it they would travel in two halves,
//! by turns. If clients do not send again so soon, the lane stops waiting for a while.

use std::time::Duration;

use tokio::time::timeout;

use super::Remote;

/// How long the lane waits at most; the runtime's clock ticks in milliseconds.
const PATIENCE: Duration = Duration::from_millis(1);
/// After so many waits that timed out, …
const FAILURES_MAX: u32 = 3;
/// … so many batches leave at once.
const BATCHES_WITHOUT: u32 = 50;

/// Whether waiting has paid lately.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    failures: u32,
    batches_without: u32,
}

impl Gathering {
    /// Waits after a batch with so many requests was answered.
    pub(super) async fn gather(&mut self, remote: &Remote, answered: usize) {
        if self.batches_without > 0 {
            self.batches_without -= 1;
            return;
        }
        let expected = (answered + remote.formed()).min(remote.settings.batch_requests_max);
        if timeout(PATIENCE, remote.has_formed(expected)).await.is_ok() {
            self.failures = 0;
            return;
        }
        // Nearly all are as good as all.
        if remote.formed() * 8 >= expected * 7 {
            return;
        }
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            (self.failures, self.batches_without) = (0, BATCHES_WITHOUT);
        }
    }
}
