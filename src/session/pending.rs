//! A request whose keys live in a store, from its first run to its reply.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::Outbox;
use crate::clients::Waiting;
use crate::remote::all_keys::{Answering, NotTold, Told};
use crate::remote::batch::{Seat, Ticket, Verdict};
use crate::remote::row::{KeyMap, Row};
use crate::remote::{Lacked, Listening, OwnWrites, Promised, StoreWish, Turn};
use crate::resp::OwnedRequest;

/// How far the request is.
#[derive(Debug, Default)]
pub struct Pending {
    /// The answer that it waits for; `None` if it waits for a change of its keys.
    pub ticket: Option<Ticket>,
    /// The store's verdict, once it has come.
    pub verdict: Option<Verdict>,
    /// The result of its last run, if the verdict is about that; otherwise it is about other requests.
    pub result: Option<AttemptResult>,
    /// Where it is in the batch with which it travels.
    pub seat: Option<Seat>,
    /// The guards of locks that it is granted if the store does it.
    pub promised: Option<Promised>,
    /// The locks with guards that it ends if the store does it.
    pub own_writes: Option<OwnWrites>,
    /// Rows that the store has returned instead of doing the request.
    pub told_rows: Option<Arc<KeyMap<Arc<Row>>>>,
    /// The fencing numbers that it draws while it reads the rows of their keys, if that is what it does.
    pub draws: Option<Draw>,
    /// What it has read and drawn by that.
    pub drawn: Option<Drawn>,
    /// Whether it has waited for a change of its keys.
    pub has_waited: bool,
    /// Whether the store has said that nothing was there for it.
    pub has_found_nothing: bool,
    /// When it may find something though no key changes, if it may.
    pub again: Option<Instant>,
    /// The request with which it waits, if that is another one: the `$` of XREAD is what it was at first.
    pub waits_with: Option<OwnedRequest>,
    /// How often the store has not done it.
    pub tries: u32,
    /// The turn for which it has asked other front-ends, since they keep changing its keys.
    pub turn: Option<Turn>,
    /// When it goes on though others have not had their turns, if it leaves its keys to them.
    pub yields_until: Option<Instant>,
    /// Whether that was because one of its own keys had changed.
    pub was_overtaken: bool,
    /// How often it has let others travel first since it travelled last.
    pub stood_back: u32,
    /// When it ran first; not counting the time in which it waits for a change of its keys.
    pub began: Option<Instant>,
    /// The keys for which it waits, if its command does.
    pub listening: Option<Listening>,
    /// When that wait times out; `None` for never.
    pub until: Option<Instant>,
    /// The answer to a question about all keys, for which it waits.
    pub answering: Option<Answering>,
    /// The answer that has come to that question, until the request uses it.
    pub told: Option<Result<Told, NotTold>>,
    /// How another client has ended it, if one has.
    pub unblocked: Option<Waiting>,
}

/// A wish for fencing numbers.
#[derive(Debug)]
pub struct Draw {
    /// How many numbers.
    pub count: usize,
    /// The keys that they are for, by their places among the keys of the request, in ascending order.
    pub places: Vec<usize>,
}

/// Fencing numbers that were drawn with the rows of the keys that they are for. They are larger than those of
/// all former holders, as long as none of these rows has changed since. So a request keeps them while others
/// change its other keys, and travels on condition that these rows are as they were.
#[derive(Debug)]
pub struct Drawn {
    /// The rows of these keys, by their places among the keys of the request.
    pub rows: BTreeMap<usize, Arc<Row>>,
    /// The numbers, in ascending order.
    pub fences: Vec<u64>,
    /// When they were drawn.
    pub at: Instant,
}

impl Pending {
    /// Where it is in a batch, if it has its reply once the batch is done. A request that may wait for its
    /// keys even then is nothing to travel with.
    pub fn seat_for_others(&self) -> Option<Seat> {
        self.seat.filter(|_| self.result.is_some() && self.listening.is_none())
    }
}

/// Requests that travel beside the one before them: their client has sent them without waiting for replies.
/// They are executed in turn, and each finds here how far it is.
#[derive(Debug, Default)]
pub struct Ahead {
    waiting: VecDeque<Box<Pending>>,
    /// Whether the request that is being executed is one of them, or the one before them.
    is_expected: bool,
}

impl Ahead {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds the last one.
    pub fn push(&mut self, pending: Box<Pending>) {
        self.waiting.push_back(pending);
    }

    /// How far the request is that is executed now. `own` is that of a request that has waited itself.
    pub fn take(&mut self, own: Option<Box<Pending>>) -> Box<Pending> {
        self.is_expected = true;
        own.or_else(|| self.waiting.pop_front()).unwrap_or_default()
    }

    /// Forgets all: none of them was done.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Notes that a request has its reply. If it was none of these, they are not those that follow.
    pub fn answered(&mut self) {
        if !std::mem::take(&mut self.is_expected) {
            self.waiting.clear();
        }
    }
}

/// The result of a run of a request, for when the store has done it.
#[derive(Debug)]
pub struct AttemptResult {
    /// Its reply, or its error.
    pub reply: Result<Vec<u8>, Vec<u8>>,
    /// Whether it found nothing to take, and waits until there is something.
    pub found_nothing: bool,
    /// The request with which it waits, if that is another one.
    pub waits_with: Option<OwnedRequest>,
    /// In how many milliseconds it may find something though no key changes, if it may.
    pub again_ms: Option<u64>,
    /// The effects for other clients.
    pub outbox: Option<Box<Outbox>>,
    /// What the client wants besides of locks that it gets.
    pub wishes: Vec<StoreWish>,
    /// The locks that it cannot take, if it wants several at once.
    pub lacked: Vec<Lacked>,
}

impl AttemptResult {
    /// Bytes of its reply, or of its error.
    pub fn reply_bytes(&self) -> usize {
        let (Ok(bytes) | Err(bytes)) = &self.reply;
        bytes.len()
    }
}
