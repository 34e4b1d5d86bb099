//! Where a request comes from: this decides which checks apply, and the text of a refusal.

use crate::session::Session;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, to be run now.
    Request,
    /// A client, to be run later (between MULTI and EXEC).
    Queue,
    /// EXEC, which runs what was queued.
    Transaction,
    /// A script, by `redis.call` or `redis.pcall`.
    Script,
    /// The log that is being loaded.
    Replay,
}

impl Origin {
    /// The origin of a request that a session runs now.
    pub(crate) fn of(session: &Session) -> Origin {
        match &session.queue {
            Some(queue) if queue.running.is_none() => Origin::Queue,
            _ if session.may_not_wait => Origin::Transaction,
            _ => Origin::Request,
        }
    }
}
