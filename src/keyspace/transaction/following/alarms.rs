//! When the locks expire for which clients wait in line: the next in line gets the lock to the millisecond,
//! though no client asks for the key then. And the locks whose holders are notified when they lose them.
//!
//! There is one alarm for each such key. It is set when the first client begins to wait, or a holder to be
//! notified, and whenever the lock's expiry changes. The server's background work [waits](Alarms::changed)
//! for the earliest one.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::Notify;

use crate::keyspace::transaction::following::losses::DatabaseKey;
use crate::sync::Mutex;

/// Locks that are granted before the thread serves other clients: each takes some ten microseconds.
const RUNG_AT_ONCE_MAX: usize = 64;

/// The alarms of a keyspace.
#[derive(Debug, Default)]
pub struct Alarms {
    set: Mutex<Set>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Set {
    moments_ms: BTreeMap<DatabaseKey, u64>,
    in_order: BTreeSet<(u64, DatabaseKey)>,
}

impl Alarms {
    /// Sets the alarm of a key, in milliseconds since 1970, or takes it away.
    #[cold]
    pub(in crate::keyspace) fn set(&self, database: usize, key: &[u8], moment_ms: Option<u64>) {
        let mut set = self.set.lock();
        let name: DatabaseKey = (database, key.into());
        let before_ms = match moment_ms {
            Some(moment_ms) => set.moments_ms.insert(name.clone(), moment_ms),
            None => set.moments_ms.remove(&name),
        };
        if before_ms == moment_ms {
            return;
        }
        if let Some(before_ms) = before_ms {
            set.in_order.remove(&(before_ms, name.clone()));
        }
        if let Some(moment_ms) = moment_ms {
            set.in_order.insert((moment_ms, name));
            if set.in_order.first().is_some_and(|(first_ms, _)| *first_ms == moment_ms) {
                self.changed.notify_one();
            }
        }
    }

    /// The moment of the first alarm, in milliseconds since 1970.
    pub fn first_ms(&self) -> Option<u64> {
        self.set.lock().in_order.first().map(|(moment_ms, _)| *moment_ms)
    }

    /// Returns when an alarm was set that is the first one.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The first keys whose moments have come. They have no alarm any more.
    pub(in crate::keyspace) fn take_due(&self, now_ms: u64) -> Vec<DatabaseKey> {
        let mut set = self.set.lock();
        let mut due = Vec::new();
        while due.len() < RUNG_AT_ONCE_MAX
            && set.in_order.first().is_some_and(|(moment_ms, _)| *moment_ms <= now_ms)
        {
            let Some((_, name)) = set.in_order.pop_first() else { break };
            set.moments_ms.remove(&name);
            due.push(name);
        }
        due
    }
}
