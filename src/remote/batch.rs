//! What is sent to a store, and its replies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::oneshot;

use super::row::{Key, KeyMap, KeySet, Row};

/// What one request has read and written, on a guess.
#[derive(Debug)]
pub struct Attempt {
    /// Its keys: each one once.
    pub parts: Vec<AttemptPart>,
    /// Who makes it, for people.
    pub holder: Arc<str>,
    /// Whether its command only reads. One that waits for something, and finds nothing, does not count.
    pub is_reader: bool,
    /// The place of another request of the same client. If the store does one of them, it does both.
    pub beside: Option<Seat>,
    /// Whether the store has not done it before, since one of its own keys had changed.
    pub was_overtaken: bool,
    /// How often it has let other requests travel first since it travelled last.
    pub stood_back: u32,
    /// How many fencing numbers it draws.
    pub draws: usize,
    /// They must be larger than this one, with which a lock came from another server.
    pub draws_beyond: u64,
}

/// The place of a request in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The number of the batch, within this front-end.
    pub batch: u64,
    /// Its group, which may become a part of another one.
    pub group: usize,
    /// How many fencing numbers were drawn before its own.
    pub drawn: usize,
}

/// One key of an attempt.
#[derive(Debug)]
pub struct AttemptPart {
    /// The key, of which there is one part.
    pub key: Key,
    /// The row on which the request ran.
    pub seen: Arc<Row>,
    /// Whether even the version of an absent row must be the same, as for a key that is watched.
    pub is_strict: bool,
    /// What the request writes, if it does. Its version does not count.
    pub written: Option<Arc<Row>>,
    /// Whether the row is to say that the client has the key from now on, though its value is as it was: it
    /// takes over a lock, or has released it and taken it again.
    pub is_renewed: bool,
    /// How many milliseconds from now on the key lives, if the request has said so.
    pub lifetime_ms: Option<u64>,
}

impl Attempt {
    /// How often a name may travel in one batch: etcd wants it for each condition and each operation.
    const NAME_COPIES: usize = 5;

    /// Bytes that it takes while it travels, about.
    pub fn bytes(&self) -> usize {
        let names = self.parts.iter().map(|part| part.key.name.len() * Attempt::NAME_COPIES).sum::<usize>();
        names + self.parts.iter().filter_map(|part| Some(part.written.as_ref()?.bytes())).sum::<usize>()
    }
}

/// The attempts that travel together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In ascending order of the slots of their keys. Each key is there once; or twice, if a group only reads
    /// it and another group names it, too. The part that is only read comes first.
    pub parts: Vec<Part>,
    /// How many groups there are.
    pub groups: usize,
    /// How many fencing numbers it draws.
    pub draws: usize,
    /// They must be larger than this one.
    pub draws_beyond: u64,
    /// Whether the store was asked to do it without counting it. If the connection is lost then, nothing says
    /// what it has done.
    pub is_uncounted: AtomicBool,
}

/// One key of a batch.
#[derive(Debug)]
pub(crate) struct Part {
    /// The key, of which there may be a second part that is only read.
    pub key: Key,
    /// The group to which it belongs: its writes are all made, or none is.
    pub group: usize,
    /// The row that the store must have, for the group to be done.
    pub seen: Arc<Row>,
    /// Whether even the version of an absent row must be the same.
    pub is_strict: bool,
    /// What the group writes.
    pub written: Option<Arc<Row>>,
    /// Whether its value has changed on the way, though it may be the same again.
    pub is_renewed: bool,
    /// How many milliseconds from now on it lives, by the store's clock; `None` if its expiry is a moment.
    pub lifetime_ms: Option<u64>,
    /// Who writes it, for people.
    pub holder: Option<Arc<str>>,
}

impl Part {
    /// Whether a row is as it was guessed.
    pub(super) fn is_as_guessed(&self, row: &Row) -> bool {
        let counts = self.is_strict || row.live.is_some();
        row.live.is_some() == self.seen.live.is_some() && (!counts || row.version == self.seen.version)
    }
}

/// What a store has done with a batch.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The version of all rows that it has written.
    pub version: i64,
    /// What it has of the keys of groups that it has not done, by the places of their parts.
    pub rows: HashMap<usize, Row>,
    /// When keys expire that were given a lifetime, by the places of their parts.
    pub expiries: HashMap<usize, u64>,
    /// Whether each group was done.
    pub done: Vec<bool>,
    /// The fencing numbers that the batch has drawn, in ascending order: larger than all that were given
    /// before the rows were read, and smaller than those that are given later.
    pub fences: Vec<u64>,
    /// In etcd, the fencing number of the first row of the batch, if it was written and no request has given
    /// it one. The next row has the next number. 0 if only the store knows it.
    pub first_fence: i64,
    /// What it has refused, if it does not do all that batches ask.
    pub refusal: Option<Refusal>,
}

/// What a store has refused of a batch.
#[derive(Debug)]
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "only etcd refuses a part of a batch"))]
pub(crate) struct Refusal {
    /// The groups of which nothing was done.
    pub groups: HashSet<usize>,
    /// The reason, for people.
    pub why: Arc<str>,
}

/// What the store has instead of what a group has guessed.
#[derive(Debug, Default)]
pub struct Found {
    /// The rows of its keys.
    pub rows: Arc<KeyMap<Arc<Row>>>,
    /// The keys of which the rows were not as guessed.
    pub changed: KeySet,
    /// The fencing numbers that the batch has drawn.
    pub fences: Arc<[u64]>,
}

/// What has come of one request.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The rows were as guessed, and what it writes is written.
    Done,
    /// Rows of its group were others. Nothing was written.
    Overtaken(Arc<Found>),
    /// Nothing is known of the rows. Nothing was written.
    Again,
    /// The store could not do it. Nothing was written.
    Failed(Arc<str>),
    /// The store has not said in time whether it has done it.
    Unknown,
}

/// A promise of a verdict.
pub(crate) type Ticket = oneshot::Receiver<Verdict>;
