//! What a client's request costs, also that of EXEC: it costs what all its commands do.

use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::session::Session;

use crate::commands::Command;
use crate::commands::facts::lookup::queued;
use crate::commands::facts::{Cost, Scope};

/// The cost of a request before its keys are locked.
#[inline]
pub(crate) fn cost_before(session: &Session, command: &Command, request: Request<'_>) -> Cost {
    match &session.queue {
        Some(queue) if command.scope == Scope::Queue => Cost::of_copied(queue.bytes),
        _ => command.cost_before(request),
    }
}

/// The cost of a request on the keys of its transaction, or of all that EXEC runs.
#[inline]
pub(crate) fn cost_of(
    session: &Session,
    command: &Command,
    tx: &Transaction<'_>,
    request: Request<'_>,
) -> Cost {
    match &session.queue {
        Some(queue) if command.scope == Scope::Queue => {
            let mut sum = Cost::default();
            if !queue.is_broken {
                queued(queue).for_each(|(queued, request)| sum.add(queued.command.cost_on(tx, request)));
            }
            sum
        }
        _ => command.cost_on(tx, request),
    }
}
