//! Records what a request does in a keyspace that it has borrowed, where the rows that are left do not show
//! it: which keys it has written, though they may be as they were, and which expiries it has asked for as
//! spans of time.

use std::collections::{BTreeMap, BTreeSet};

use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::guards::GuardWish;

/// What a transaction has done.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The keys that were written, by their databases.
    written: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    /// Those that were written more than once.
    rewritten: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    /// When the spans end that were asked for, in milliseconds since 1970.
    pub span_ends_ms: BTreeSet<u64>,
    /// Fencing numbers that the store has offered, in descending order.
    offered_fences: Vec<u64>,
    /// The largest number of a lock that has come from elsewhere: those that it is given must be larger.
    pub former_fence: u64,
    /// How many more numbers were wanted.
    pub missing_fences: usize,
    /// The keys for which a number was wanted, by their databases.
    fenced: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    /// Whether the number of a lock was wanted that the row does not show.
    pub wants_known_fences: bool,
    /// The keys that expire at a moment, whatever spans were asked for, by their databases.
    exact: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    /// The keys of which its client has what it wants already, by their databases.
    kept: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    /// The locks that it cannot take, with the numbers of their databases, and when it may, in milliseconds
    /// since 1970.
    pub lacked: Vec<(usize, Box<[u8]>, Option<u64>)>,
    /// What the client wants besides of locks, with the numbers of their databases, in their order.
    pub wishes: Vec<(usize, GuardWish)>,
}

impl Recorded {
    /// Whether a key was written.
    pub fn has_written(&self, database: usize, key: &[u8]) -> bool {
        has(&self.written, database, key)
    }

    /// Whether a key was written more than once.
    pub fn has_rewritten(&self, database: usize, key: &[u8]) -> bool {
        has(&self.rewritten, database, key)
    }

    /// Whether a fencing number was wanted for a key: a new one, or that of a lock that is there.
    pub fn has_fenced(&self, database: usize, key: &[u8]) -> bool {
        has(&self.fenced, database, key)
    }

    /// Whether a key expires at a moment, though a span was asked for that ends then.
    pub fn is_exact(&self, database: usize, key: &[u8]) -> bool {
        has(&self.exact, database, key)
    }

    /// Whether its client has what it wants of a key already, so that it takes nothing from others there.
    pub fn has_kept(&self, database: usize, key: &[u8]) -> bool {
        has(&self.kept, database, key)
    }
}

fn has(keys: &BTreeMap<usize, BTreeSet<Box<[u8]>>>, database: usize, key: &[u8]) -> bool {
    keys.get(&database).is_some_and(|keys| keys.contains(key))
}

fn note(keys: &mut BTreeMap<usize, BTreeSet<Box<[u8]>>>, database: usize, key: &[u8]) {
    let keys = keys.entry(database).or_default();
    if !keys.contains(key) {
        keys.insert(key.into());
    }
}

impl Transaction<'_> {
    /// Records that a key of the current database is written.
    pub(in crate::keyspace) fn record_write(&self, key: &[u8]) {
        let database = self.database();
        self.leave(|aftermath| {
            let Recorded { written, rewritten, .. } = aftermath.recorded();
            if has(written, database, key) {
                note(rewritten, database, key);
            }
            note(written, database, key);
        });
    }

    /// Records that something is to live until then, counted from now on.
    #[cold]
    pub(in crate::keyspace) fn record_span(&self, ends_at_ms: u64) {
        self.leave(|aftermath| _ = aftermath.recorded().span_ends_ms.insert(ends_at_ms));
    }

    /// Offers fencing numbers to a request that runs in a borrowed keyspace.
    pub fn offer_fences(&self, numbers: impl DoubleEndedIterator<Item = u64>) {
        self.leave(|aftermath| aftermath.recorded().offered_fences = numbers.rev().collect());
    }

    /// Takes the next number that was offered, for a key.
    #[cold]
    pub(in crate::keyspace) fn take_offered_fence(&self, database: usize, key: &[u8]) -> Option<u64> {
        let mut taken = None;
        self.leave(|aftermath| {
            note(&mut aftermath.recorded().fenced, database, key);
            let Recorded { offered_fences, former_fence, missing_fences, .. } = aftermath.recorded();
            taken = offered_fences.pop().filter(|number| number > former_fence);
            *missing_fences += usize::from(taken.is_none());
        });
        taken
    }

    /// Records that a key gets the number that is taken for another one.
    #[cold]
    pub(in crate::keyspace) fn record_fenced(&self, key: &[u8]) {
        let database = self.database();
        self.leave(|aftermath| note(&mut aftermath.recorded().fenced, database, key));
    }

    /// Records that a lock had this number where it came from.
    #[cold]
    pub(in crate::keyspace) fn record_former_fence(&self, number: u64) {
        self.leave(|aftermath| {
            let former = &mut aftermath.recorded().former_fence;
            *former = number.max(*former);
        });
    }

    /// Records that the number of a lock was wanted that the row does not show.
    #[cold]
    pub(in crate::keyspace) fn record_wanted_fence(&self, key: &[u8]) {
        let database = self.database();
        self.leave(|aftermath| {
            note(&mut aftermath.recorded().fenced, database, key);
            aftermath.recorded().wants_known_fences = true;
        });
    }

    /// Records that a key is to expire at the moment that the request has set, which its value repeats.
    pub fn expires_exactly(&self, key: &[u8]) {
        if self.wanted.records_spans() {
            let database = self.database();
            self.leave(|aftermath| note(&mut aftermath.recorded().exact, database, key));
        }
    }

    /// Records that a client which may wait has what it wants of a key already. It need not be its turn.
    pub fn keeps(&self, key: &[u8]) {
        if self.wanted.records_spans() {
            let database = self.database();
            self.leave(|aftermath| note(&mut aftermath.recorded().kept, database, key));
        }
    }

    /// Records that a client which wants several locks at once cannot take this one, and when it may, if no
    /// other client changes it.
    pub fn lacks(&self, key: &[u8], until_ms: Option<u64>) {
        if self.wanted.records_spans() {
            let lacked = (self.database(), key.into(), until_ms);
            self.leave(|aftermath| aftermath.recorded().lacked.push(lacked));
        }
    }

    /// Records what a client wants besides of a lock.
    #[cold]
    pub(in crate::keyspace) fn record_wish(&self, wish: GuardWish) {
        let database = self.database();
        self.leave(|aftermath| aftermath.recorded().wishes.push((database, wish)));
    }

    /// Takes what was recorded.
    pub fn take_recorded(&mut self) -> Recorded {
        self.left
            .get_mut()
            .if_any()
            .and_then(|left| left.recorded.take())
            .map(|recorded| *recorded)
            .unwrap_or_default()
    }
}
