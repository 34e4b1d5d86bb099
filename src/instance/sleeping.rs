//! An instance that has nothing to do sleeps: no timer of its periodic work runs, and it costs no processor
//! time, however many such instances there are.
//!
//! The instance falls asleep when nothing is left that only time would bring about: no rate that falls, no
//! snapshot that is due, no client that is to be disconnected. It wakes when a client's batch of requests
//! begins or ends, when a client connects, and when a key expires. So a batch costs two looks at a flag.
//!
//! No expiry is missed. It is set under the lock of its shard, and after that its batch ends, which looks at
//! the flag. The instance sets the flag, and then looks under the same locks when the first key expires. One
//! of the two comes first, and the other one sees it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::Instance;

/// Whether an instance sleeps.
#[derive(Debug, Default)]
pub struct Sleep {
    is_asleep: AtomicBool,
    /// How often it has woken up.
    wakings: AtomicU64,
    woken: Notify,
}

impl Sleep {
    /// Whether the instance sleeps.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed)
    }

    /// How often the instance has woken up. Read before a look at what there is to do.
    pub fn wakings(&self) -> u64 {
        self.wakings.load(Ordering::SeqCst)
    }

    /// Waits until the instance has woken up more often than that, though it may sleep again.
    pub async fn woken(&self, wakings: u64) {
        loop {
            let mut woken = pin!(self.woken.notified());
            woken.as_mut().enable();
            if self.wakings() != wakings {
                return;
            }
            woken.await;
        }
    }
}

impl Instance {
    /// Wakes the instance if it sleeps. Called by what may bring it work.
    #[inline]
    pub fn stir(&self) {
        if self.sleep.is_asleep() {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // No thread has followed the clock meanwhile.
        self.clients.follow_clock();
        self.keyspace.follow_clock();
        self.sleep.is_asleep.store(false, Ordering::SeqCst);
        self.sleep.wakings.fetch_add(1, Ordering::SeqCst);
        self.sleep.woken.notify_waiters();
    }

    /// Falls asleep if it has nothing to do. Returns whether it does.
    pub fn falls_asleep(&self) -> bool {
        if !self.has_nothing_to_do() {
            return false;
        }
        self.sleep.is_asleep.store(true, Ordering::SeqCst);
        // What came meanwhile may not have seen it asleep.
        let sleeps_on = self.has_nothing_to_do();
        if !sleeps_on {
            self.wake();
        }
        sleeps_on
    }

    /// Whether time alone changes nothing, but that keys expire.
    fn has_nothing_to_do(&self) -> bool {
        self.statistics.is_at_rest()
            && !self.pauses_cron.load(Ordering::Relaxed)
            && !self.standstill.is_awaited()
            && self.clients.pause.paused().is_none()
            && self.scripting.running.current().is_none()
            && self.long_requests.are_at_rest()
            && self.remote.get().is_none()
            && !self.config.appendonly.get()
            && self.persistence.aof.is_at_rest()
            && self.tracking.is_at_rest()
            && self.lens.is_at_rest()
            && self.clients_are_at_rest()
            && !self.is_short_of_memory()
            && self.snapshots_are_at_rest()
    }

    /// Whether no client is to be disconnected after a time.
    fn clients_are_at_rest(&self) -> bool {
        let has_limit = self.config.timeout.size() > 0 || self.config.auth_iam.get() != 0;
        self.clients.count() == 0 || !has_limit && self.clients.have_no_output()
    }

    fn is_short_of_memory(&self) -> bool {
        let limit_bytes = self.config.maxmemory.size();
        let clients_bytes_max = self.config.clients_bytes_max().unwrap_or(usize::MAX);
        limit_bytes > 0 && self.uses_more_memory_than(limit_bytes)
            || self.clients.memory().bytes() >= clients_bytes_max
    }
}
