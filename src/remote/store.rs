//! The interface of a store.

use super::Remote;
use super::batch::{Answer, Batch};
use super::clock::Window;

/// The identity of this front-end in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// The front-end's number, which the store has given.
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
    /// The store has done nothing. The same batch may succeed another time.
    Again,
    /// The store has done nothing: by its clock, the batch came too late. It has to be asked for the time.
    Late,
    /// The store has done nothing, for this reason.
    Refused(String),
    /// The store has done nothing, for this reason, and the connection is of no more use.
    Unusable(String),
    /// The store has done nothing: what it keeps of this front-end is gone. It begins anew, as another one.
    Forgotten(String),
    /// The connection has ended. It may have done the batch.
    Lost(String),
}

/// A result with the time of the store's own clock, in microseconds since 1970.
pub(super) type Timed<T> = (T, i64);

/// One connection to a store, which takes one batch at a time.
pub(super) trait Store: Sized {
    /// Connects, makes the store ready, and sets the clock of `remote`. The second time, `front` is what the
    /// first connection has got.
    async fn connect(remote: &Remote, front: &mut Option<Front>) -> Result<Self, String>;

    /// Sends a batch with this number, and waits until it is done. If the store has a clock, the batch is not
    /// begun later than `window` says.
    async fn exchange(
        &mut self,
        batch: &Batch,
        number: i64,
        window: Window,
    ) -> Result<Timed<Answer>, Failure>;

    /// Finds out whether the batch of this number was done, and which groups. If it was not, it never will
    /// be.
    async fn resolve(&mut self, batch: &Batch, number: i64) -> Result<Option<Answer>, Failure>;

    /// Has the store do what batches do, and take it back. No batch has this number yet.
    async fn try_out(&mut self, number: i64) -> Result<(), Failure>;
}
