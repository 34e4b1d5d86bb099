//! Where a request comes from: this decides which checks apply, and the text of a refusal.

use crate::session::Session;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client, which wants it run now.
    Request,
    /// A client, which wants it run later (between MULTI and EXEC).
    Queue,
    /// EXEC, which runs what was queued.
    Transaction,
    /// A script.
    Script,
    /// The log, which is loaded.
    Replay,
}

impl Origin {
    /// Where a request comes from that a session is asked to run.
    pub fn of(session: &Session) -> Origin {
        match &session.queue {
            Some(queue) if queue.running.is_none() => Origin::Queue,
            _ if session.may_not_wait => Origin::Transaction,
            _ => Origin::Request,
        }
    }
}
