//! Connections on which locks hang: LOCK ACQUIRE … BOUND.
//!
//! Each connection that has taken such a lock has a [`Lifeline`], which knows the keys, and which the
//! [guards](super::guards) of these locks know. When the connection ends, the lifeline is
//! [cut](Keyspace::cut) under no lock but its own. The keys are then looked at one after the other by what
//! rings the [alarms](super::alarms): a shard that another client holds for long delays no client that
//! leaves. What is tied later to a lifeline that has ended, by a client that has granted the lock at that
//! moment, is found to be cut.

use std::collections::HashMap;
use std::mem::take;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::Notify;

use crate::keyspace::Keyspace;
use crate::keyspace::transaction::following::guarded::Guarded;
use crate::sync::{AtomicU64, Mutex};

/// What the bound locks of one connection hang on.
#[derive(Debug)]
pub struct Lifeline {
    /// The number of the client.
    pub client: u64,
    state: Mutex<State>,
    /// The number of locks, for a look without the mutex.
    count: AtomicU64,
    /// The shortest lease among them, in milliseconds; 0 if there is none.
    shortest_ms: AtomicU64,
    /// Wakes those that look after its locks in a store.
    was_cut: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// How often it was cut. What was tied before the last time is cut.
    strand: u64,
    is_over: bool,
    last_cut: Option<Cut>,
    /// The lease of each lock, in milliseconds.
    keys: HashMap<Guarded, u64>,
}

/// How a lifeline was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// When, by the clock that counts for the lock.
    pub(super) at_ms: u64,
    /// For how long the client had given no sign of life by then.
    pub(super) silent_ms: u64,
    /// When, by the process's clock.
    at: Instant,
}

impl Cut {
    /// A cut now, when the clock that counts shows this time.
    pub(super) fn at(at_ms: u64, silent_ms: u64) -> Cut {
        Cut { at_ms, silent_ms, at: Instant::now() }
    }

    /// The same cut by another clock, which shows this time now.
    pub(crate) fn by_clock(self, now_ms: u64) -> Cut {
        Cut { at_ms: now_ms.saturating_sub(self.at.elapsed().as_millis() as u64), ..self }
    }
}

impl Lifeline {
    /// The lifeline of a client that is connected.
    pub fn new(client: u64) -> Lifeline {
        Lifeline {
            client,
            state: Mutex::default(),
            count: AtomicU64::new(0),
            shortest_ms: AtomicU64::new(0),
            was_cut: Notify::new(),
        }
    }

    /// How many locks hang on it.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The shortest lease of the locks on it, in milliseconds; 0 if there is none.
    #[inline]
    pub fn shortest_ms(&self) -> u64 {
        self.shortest_ms.load(Ordering::Relaxed)
    }

    /// Ties a lock to it. Returns the strand on which the lock hangs.
    pub(super) fn tie(&self, name: &Guarded, lease_ms: u64) -> u64 {
        let mut state = self.state.lock();
        if state.is_over {
            // One that is cut already.
            return state.strand.saturating_sub(1);
        }
        state.keys.insert(name.clone(), lease_ms);
        let others_ms = if state.keys.len() > 1 { self.shortest_ms() } else { u64::MAX };
        self.show(&state, others_ms.min(lease_ms));
        state.strand
    }

    /// Unties a lock from this strand.
    pub(super) fn untie(&self, strand: u64, name: &Guarded) {
        let mut state = self.state.lock();
        if state.strand == strand && state.keys.remove(name).is_some() {
            let shortest_ms = if state.keys.is_empty() { 0 } else { self.shortest_ms() };
            self.show(&state, shortest_ms);
        }
    }

    /// How a strand was cut, if it was.
    pub(super) fn cut_of(&self, strand: u64) -> Option<Cut> {
        let state = self.state.lock();
        state.last_cut.filter(|_| state.strand != strand)
    }

    /// Returns when it is cut the next time, or `is_cut` already.
    pub async fn cut_next(&self, is_cut: impl Fn() -> bool) {
        let mut cut = pin!(self.was_cut.notified());
        cut.as_mut().enable();
        if !is_cut() {
            cut.await;
        }
    }

    fn show(&self, state: &State, shortest_ms: u64) {
        self.count.store(state.keys.len() as u64, Ordering::Relaxed);
        self.shortest_ms.store(shortest_ms, Ordering::Relaxed);
    }

    fn cut(&self, cut: Cut, is_over: bool) -> HashMap<Guarded, u64> {
        let mut state = self.state.lock();
        if state.is_over {
            return HashMap::new();
        }
        state.strand += 1;
        state.is_over = is_over;
        state.last_cut = Some(cut);
        let keys = take(&mut state.keys);
        self.show(&state, 0);
        self.was_cut.notify_waiters();
        keys
    }
}

impl Keyspace {
    /// Lets go of the locks that hang on a connection: it ends (`is_over`), or is reset. The client may have
    /// been silent for a while by now.
    #[cold]
    pub fn cut(&self, lifeline: &Lifeline, silent_ms: u64, is_over: bool) {
        let cut = Cut::at(self.clock.now_ms(), silent_ms);
        let keys = lifeline.cut(cut, is_over);
        if !keys.is_empty() {
            self.followers.alarms.call(keys.into_keys());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tied_before_a_cut_is_cut_and_what_is_tied_later_is_not() {
        let lifeline = Lifeline::new(1);
        let (first, second) =
            (lifeline.tie(&Guarded::key(0, b"a"), 30), lifeline.tie(&Guarded::key(0, b"b"), 20));
        assert_eq!((lifeline.count(), lifeline.shortest_ms()), (2, 20));
        lifeline.untie(second, &Guarded::key(0, b"b"));
        assert_eq!((lifeline.count(), lifeline.cut_of(first)), (1, None));
        let cut = Cut::at(7, 3);
        assert_eq!(lifeline.cut(cut, false).into_keys().collect::<Vec<_>>(), [Guarded::key(0, b"a")]);
        assert_eq!((lifeline.count(), lifeline.shortest_ms(), lifeline.cut_of(first)), (0, 0, Some(cut)));
        let third = lifeline.tie(&Guarded::key(0, b"a"), 50);
        lifeline.untie(first, &Guarded::key(0, b"a"));
        assert_eq!((lifeline.count(), lifeline.shortest_ms(), lifeline.cut_of(third)), (1, 50, None));
        lifeline.cut(cut, true);
        let late = lifeline.tie(&Guarded::key(0, b"c"), 5);
        assert_eq!((lifeline.count(), lifeline.cut_of(late)), (0, Some(cut)));
        assert!(lifeline.cut(Cut::at(9, 0), true).is_empty());
        assert_eq!(lifeline.cut_of(third), Some(cut), "it was cut before");
    }
}
