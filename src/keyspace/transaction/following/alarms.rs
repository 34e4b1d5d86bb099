//! When the locks expire for which clients wait in line: the next in line gets the lock to the millisecond,
//! though no client asks for the key then. And the locks with a [guard](super::guards): when they are to be
//! renewed, or expire.
//!
//! There is one alarm for each such key, and for each permit that has a guard. It is set when the first
//! client begins to wait, or the guard comes, and whenever the expiry changes. The server's background work
//! [waits](Alarms::changed) for the earliest one. Keys that are [called](Alarms::call) come before all
//! alarms: a call is not lost if another thread sets the alarm of the key at that moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::sync::Notify;

use crate::keyspace::transaction::following::guarded::Guarded;
use crate::sync::Mutex;

/// Locks that are granted or renewed before the thread serves other clients: each takes some ten
/// microseconds.
const RUNG_AT_ONCE_MAX: usize = 64;

/// The alarms of a keyspace.
#[derive(Debug, Default)]
pub struct Alarms {
    set: Mutex<Set>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Set {
    moments_ms: BTreeMap<Guarded, u64>,
    in_order: BTreeSet<(u64, Guarded)>,
    /// What comes before all alarms. Most servers never have any of it, and need no room for it.
    urgent: Option<Box<Urgent>>,
    /// Whether no alarm rings any more: the server ends.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Urgent {
    /// Keys whose turn is now, whatever their alarms.
    called: VecDeque<Guarded>,
    /// Keys to which nothing can be done now. They are called again soon.
    put_off: Vec<Guarded>,
}

impl Alarms {
    /// Sets the alarm of a key or a permit, in milliseconds since 1970, or takes it away.
    #[cold]
    pub(in crate::keyspace) fn set(&self, name: Guarded, moment_ms: Option<u64>) {
        let mut set = self.set.lock();
        if set.is_over {
            return;
        }
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

    /// Has keys looked at as soon as possible.
    pub(in crate::keyspace) fn call(&self, keys: impl Iterator<Item = Guarded>) {
        // A client may have very many locks.
        let mut keys: VecDeque<Guarded> = keys.collect();
        let mut set = self.set.lock();
        if set.is_over {
            return;
        }
        let called = &mut set.urgent.get_or_insert_default().called;
        match called.is_empty() {
            true => *called = keys,
            false => called.append(&mut keys),
        }
        self.changed.notify_one();
    }

    /// Puts off a key that was due, until the next [`resume`](Self::resume).
    pub(in crate::keyspace) fn put_off(&self, key: Guarded) {
        let mut set = self.set.lock();
        if !set.is_over {
            set.urgent.get_or_insert_default().put_off.push(key);
        }
    }

    /// Has no alarm ring any more. The end of a server ends the connections of all holders, and is no end of
    /// their locks: what is left of these when it starts again is left.
    pub fn stop(&self) {
        *self.set.lock() = Set { is_over: true, ..Set::default() };
    }

    /// Calls the keys that were put off.
    pub fn resume(&self) {
        if let Some(Urgent { called, put_off }) = self.set.lock().urgent.as_deref_mut() {
            called.extend(put_off.drain(..));
        }
    }

    /// Whether keys were put off.
    pub fn have_put_off(&self) -> bool {
        self.set.lock().urgent.as_ref().is_some_and(|urgent| !urgent.put_off.is_empty())
    }

    /// The moment of the first alarm, in milliseconds since 1970; 0 if a key is called.
    pub fn first_ms(&self) -> Option<u64> {
        let set = self.set.lock();
        let first = set.in_order.first().map(|(moment_ms, _)| *moment_ms);
        let is_called = set.urgent.as_ref().is_some_and(|urgent| !urgent.called.is_empty());
        if is_called { Some(0) } else { first }
    }

    /// Has the first moment looked at again: there may be another one that is no alarm.
    pub fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Returns when an alarm was set that is the first one.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The first keys that are called or whose moments have come. The latter have no alarm any more.
    pub(in crate::keyspace) fn take_due(&self, now_ms: u64) -> Vec<Guarded> {
        let mut set = self.set.lock();
        let mut due = Vec::new();
        // However many are called, others are renewed in time.
        if let Some(Urgent { called, .. }) = set.urgent.as_deref_mut() {
            due.extend(called.drain(..called.len().min(RUNG_AT_ONCE_MAX / 2)));
        }
        // The room that very many have needed is given back.
        set.urgent.take_if(|urgent| urgent.called.is_empty() && urgent.put_off.is_empty());
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
