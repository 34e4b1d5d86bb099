//! Questions about all keys of the store: their number, their names, their deletion.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::row::Row;

/// A question to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// How many keys a database has.
    Count(u32),
    /// The names of all keys of a database.
    Names(u32),
    /// Some keys of a database, and with the last one all others of its [place](SLOTS_OF_PLACE).
    Some {
        /// The number of the database.
        database: u32,
        /// The first slot that is wanted: where a step begins.
        from: i64,
        /// How many keys are wanted. All keys of a step are returned together.
        keys: usize,
        /// Whether their types are wanted, too.
        with_types: bool,
    },
    /// Any key of a database.
    Any {
        /// The number of the database.
        database: u32,
        /// A random slot.
        from: i64,
    },
    /// The locks of a database, those first that are held for longest.
    Locks(u32),
    /// Deletes all keys, of a database or of all.
    Flush(Option<u32>),
}

/// Slots between two numbers from which SCAN can go on: a slot has 62 bits, and the number in a cursor 52. So
/// a reply names all keys of a place, or none.
pub(crate) const SLOTS_OF_PLACE: i64 = 1 << 10;

/// The last slot of the place of a slot.
pub(super) fn end_of_place(slot: i64) -> i64 {
    slot | (SLOTS_OF_PLACE - 1)
}

/// The first slot of the next place; `None` behind the last one.
pub(super) fn next_place(slot: i64) -> Option<i64> {
    Some(end_of_place(slot) + 1).filter(|next| *next < 1 << 62)
}

/// The most keys that are named at once.
pub(crate) const NAMES_MAX: usize = 1_000_000;

/// The most locks that are listed at once.
pub(crate) const LOCKS_MAX: usize = 4_096;

/// The store's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// A number of keys.
    pub count: usize,
    /// Keys with the names of their types, if these are known.
    pub keys: Vec<(Vec<u8>, String)>,
    /// The locks' keys, with their rows.
    pub locks: Vec<(Vec<u8>, Row)>,
    /// The slot from which to go on, if there may be more.
    pub next: Option<i64>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTold {
    /// It has done nothing, for this reason.
    NotDone(Arc<str>),
    /// It may have done it.
    Unknown,
}

impl fmt::Display for NotTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotTold::NotDone(why) => why,
            NotTold::Unknown => "no reply in time",
        })
    }
}

/// A question on its way.
pub(super) type Asked = (Question, oneshot::Sender<Result<Told, NotTold>>);

/// Questions that wait.
const WAITING_MAX: usize = 1_000;

/// The questions of all clients, one after the other.
#[derive(Debug)]
pub(super) struct Questions {
    pub(super) sender: mpsc::Sender<Asked>,
    pub(super) receiver: parking_lot::Mutex<Option<mpsc::Receiver<Asked>>>,
}

impl Default for Questions {
    fn default() -> Questions {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Questions { sender, receiver: parking_lot::Mutex::new(Some(receiver)) }
    }
}

/// Receives the store's answer.
pub(crate) type Answering = oneshot::Receiver<Result<Told, NotTold>>;
