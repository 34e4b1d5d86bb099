//! The engine whose data is in this process: takes the locks, runs the command, lets go.

use crate::commands::Command;
use crate::commands::command::{Run, Scope};
use crate::commands::execute::{admit, conclude, run};
use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::Request;
use crate::session::Session;

/// Executes one request and appends its reply to `out`. Answers whether the reply is an error.
#[inline]
pub fn execute(instance: &Instance, session: &mut Session, request: Request<'_>, out: &mut Vec<u8>) -> bool {
    let mark = out.len();
    let result = admit(session, request).and_then(|command| {
        let mut tx = begin(instance, session.database, command, request);
        let result = run(command, instance, session, &mut tx, request, out);
        if tx.has_seen_expired() && matches!(command.run, Run::Read(_)) {
            free_expired(&mut tx, command, request);
        }
        result
    });
    conclude(session, result, out, mark)
}

/// A transaction over what the command needs.
#[inline]
fn begin<'a>(
    instance: &'a Instance,
    database: usize,
    command: &Command,
    request: Request<'a>,
) -> Transaction<'a> {
    let keyspace = &instance.keyspace;
    match (command.scope, command.keys) {
        (Scope::Everything, _) => keyspace.begin_all(database),
        (Scope::Keys, []) => keyspace.begin_none(database),
        (Scope::Keys, [spec]) if spec.last == 0 => keyspace.begin(database, request.at(spec.first)),
        (Scope::Keys, _) => keyspace.begin_many(database, command.keys_of(request).map(|(key, _)| key)),
    }
}

/// A command that only reads leaves what it found expired in place; it goes before the locks do.
#[cold]
fn free_expired(tx: &mut Transaction<'_>, command: &Command, request: Request<'_>) {
    for (key, _) in command.keys_of(request) {
        tx.free_expired(key);
    }
}
