//! Commands that wait: they take something from a key, or block the client until something is there.

use crate::keyspace::Transaction;
use crate::resp::{Reply, Request, Sent};

use super::context::Result;

/// How a blocking command works.
#[derive(Debug)]
pub struct Blocking {
    /// The kind of the values that it waits for.
    pub kind: u8,
    /// Checks a request, and returns its timeout as the client wrote it.
    pub check: fn(Request<'_>) -> Result<&[u8]>,
    /// For how many of its keys it waits, the first ones.
    pub keys: usize,
    /// Takes something from the keys of the request, or from one of them alone.
    pub take: Take,
    /// Replies that there is nothing.
    pub nothing: fn(Reply<'_>) -> Sent,
}

/// Takes something from the keys of a request, or, if it names one, from this key alone.
pub type Take = for<'r> fn(&mut Transaction<'_>, Request<'_>, Option<&[u8]>, Reply<'r>) -> Result<Taken<'r>>;

/// The result of a blocking command.
#[derive(Debug)]
pub enum Taken<'r> {
    /// The reply is written.
    Something(Sent),
    /// There is nothing to take. The command may still reply.
    Nothing(Reply<'r>),
    /// The transaction does not hold all that is needed.
    Later,
}
