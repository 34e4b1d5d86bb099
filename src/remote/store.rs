//! What a store does, whichever it is.

use super::Remote;
use super::batch::{Answer, Batch};

/// By what the store knows this front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// Its number.
    pub(super) id: i64,
    /// The number of the last batch.
    pub(super) last: i64,
}

/// Why a store has not answered a batch.
#[derive(Debug)]
#[cfg_attr(
    not(any(feature = "etcd", feature = "postgres")),
    expect(dead_code, reason = "no store is built in")
)]
pub(super) enum Failure {
    /// It has done nothing, and would do the same batch another time.
    Again,
    /// It has done nothing, and says why.
    Refused(String),
    /// The connection has ended. It may have done the batch.
    Lost(String),
}

/// A result with the time of the store's own clock, in microseconds since 1970.
pub(super) type Timed<T> = (T, i64);

/// One connection to a store, which takes one batch at a time.
pub(super) trait Store: Sized {
    /// Connects, and makes the store ready. The second time, `front` is what the first connection has got.
    async fn connect(remote: &Remote, front: &mut Option<Front>) -> Result<Timed<Self>, String>;

    /// Has a batch done, which gets this number.
    async fn exchange(&mut self, batch: &Batch, number: i64) -> Result<Timed<Answer>, Failure>;

    /// Whether the batch of this number was done; the groups that were. If it was not, it never will be.
    async fn settle(&mut self, batch: &Batch, number: i64) -> Result<Option<Answer>, Failure>;
}
