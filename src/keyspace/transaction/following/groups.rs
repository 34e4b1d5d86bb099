//! Clients that wait for several locks, or permits of them, and take all of them at once, or none: LOCK
//! ACQUIRE … WAIT … ALSO.
//!
//! Such a client stands in the line of each of its keys, and reserves none of them. A key that is freed goes
//! to the first in its line that can take all it has asked for. So a client that waits for {a, b} keeps no
//! free b from one that holds a and asks for b, which would be a deadlock. It may be overtaken, and counts
//! how often. It overtakes no client before it that waits for one lock: so readers of several locks leave
//! each one to the writer who came before them.
//!
//! A thousand such clients may stand in one line. So each knows one key that it lacks: a change of another
//! key cannot help it, and its place in the line of that one is passed by for a look at a number. When the
//! key that it lacks is freed, it looks at all of its keys, and takes them, or knows another one that it
//! lacks. What it lacks is written while the shards of both keys are held: so whichever client frees the key
//! that it lacks now, finds it there.
//!
//! A transaction that frees a key does not hold the other keys of such a client. It locks their shards if
//! they are free, or soon. Otherwise the client executes its command again on its own, and the next in line
//! is looked at.

use std::sync::atomic::Ordering;

use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::blocked::Waiter;
use crate::waiting::{Ticket, Want};

impl Waiter {
    /// Whether it is a client that takes several keys at once.
    pub(super) fn is_group(&self) -> bool {
        self.keys.len() > 1 && self.attempt.takes_all()
    }

    /// Whether a key that has a value of this kind now may help it, as far as the key that it lacks shows.
    pub(super) fn is_helped_by(&self, key: &[u8], kind: u8) -> bool {
        !self.is_group() || self.is_for(kind) && !self.lacks_other(key)
    }

    /// Whether it lacks another key than this one.
    fn lacks_other(&self, key: &[u8]) -> bool {
        let lacking = self.keys.get(self.lacking.load(Ordering::Relaxed) as usize);
        lacking.is_some_and(|lacking| **lacking != *key)
    }

    /// Finds a key that it cannot take, and notes it. The transaction holds all of its keys.
    fn finds_lacking(&self, tx: &Transaction<'_>) -> bool {
        let lacking = self.attempt.lacks(tx, &self.keys, self.ticket());
        if let Some(place) = lacking {
            self.lacking.store(place as u64, Ordering::Relaxed);
        }
        lacking.is_some()
    }

    /// How often one of its keys went to a client that came later.
    pub(super) fn overtaken(&self) -> u64 {
        self.overtaken.load(Ordering::Relaxed)
    }
}

impl Transaction<'_> {
    /// Has a client know which key it lacks, when it begins to wait. If it lacks none, it has left one to
    /// those before it in line, who are served next.
    pub(super) fn begin_to_lack(&mut self, waiter: &Waiter) {
        if waiter.is_group() && !waiter.finds_lacking(self) {
            self.note_ready(self.database(), &waiter.keys[0]);
        }
    }

    /// Whether a client before this ticket waits for a lock, and for no other one. A client that takes
    /// several leaves it to that one.
    pub fn is_awaited_before(&self, key: &[u8], ticket: Ticket) -> bool {
        let singles = self.line(key).into_iter().flat_map(|line| line.that_want(Want::Lock));
        singles.take_while(|(other, _)| *other < ticket).any(|(_, waiter)| waiter.is_waiting())
    }

    /// Whether a client can take all of its keys, which the transaction holds from now on. `None` if another
    /// client holds a shard of them, for more than a moment if `is_patient` allows to wait for that.
    pub(super) fn finds_all(&mut self, waiter: &Waiter, is_patient: bool) -> Option<bool> {
        if !waiter.is_group() {
            return Some(true);
        }
        let mut holds = |key: &[u8]| {
            self.hold([key].into_iter()).is_ok()
                || self.hold_if_free(key)
                || is_patient && self.hold_soon(key)
        };
        waiter.keys.iter().all(|key| holds(key)).then(|| !waiter.finds_lacking(self))
    }

    /// Notes that a key was taken past the clients that came before this ticket, or before all others.
    #[cold]
    pub(in crate::keyspace) fn note_overtaking(&self, key: &[u8], by: Option<Ticket>) {
        for waiter in self.line(key).into_iter().flat_map(|line| line.before(by)) {
            waiter.overtaken.fetch_add(1, Ordering::Relaxed);
        }
    }
}
