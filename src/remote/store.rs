//! The interface of a store.

use std::sync::Arc;

use super::Remote;
use super::all_keys::{NotTold, Question, Told};
use super::batch::{Answer, Batch};
use super::clock::Window;
use super::news::Ears;

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
#[cfg_attr(
    all(feature = "etcd", not(feature = "postgres")),
    expect(dead_code, reason = "etcd has no such failures")
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

/// A store. Its value is a connection that takes one batch at a time; news and questions about all keys have
/// connections of their own.
pub(super) trait Store: Sized + Send {
    /// Connects, makes the store ready, and sets the clock of `remote`. The second time, `front` is what the
    /// first connection has got.
    fn connect(
        remote: &Remote,
        front: &mut Option<Front>,
    ) -> impl Future<Output = Result<Self, String>> + Send;

    /// Sends a batch with this number, and waits until it is done. If the store has a clock, the batch is not
    /// begun later than `window` says.
    fn exchange(
        &mut self,
        batch: &Batch,
        number: i64,
        window: Window,
    ) -> impl Future<Output = Result<Timed<Answer>, Failure>> + Send;

    /// Finds out whether the batch of this number was done, and which groups. If it was not, it never will
    /// be.
    fn resolve(
        &mut self,
        batch: &Batch,
        number: i64,
    ) -> impl Future<Output = Result<Option<Answer>, Failure>> + Send;

    /// Has the store do what batches do, and take it back. No batch has this number yet.
    fn try_out(&mut self, number: i64) -> impl Future<Output = Result<(), Failure>> + Send;

    /// A connection for questions about all keys.
    type Asking: Send;

    /// Connects for questions, or keeps the last connection.
    fn connect_to_ask(
        remote: &Remote,
        last: Option<Self::Asking>,
    ) -> impl Future<Output = Result<Self::Asking, String>> + Send;

    /// Asks a question. Returns the connection, too, if it can be used again.
    fn ask(
        remote: &Remote,
        asking: Self::Asking,
        question: Question,
    ) -> impl Future<Output = (Result<Told, NotTold>, Option<Self::Asking>)> + Send;

    /// Receives the news of other front-ends and sends those of this one, until the process ends.
    fn exchange_news(remote: &Arc<Remote>, ears: &impl Ears) -> impl Future<Output = ()> + Send;
}
