//! The engine whose data is in this process: takes the locks, runs the command, lets go.

use crate::commands::command::{Run, Scope};
use crate::commands::execute::{admit, conclude, run};
use crate::commands::{Command, find};
use crate::instance::Instance;
use crate::keyspace::{KeyHash, Transaction};
use crate::resp::Request;
use crate::session::Session;

/// What is known of a request before it is executed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The command of its name.
    command: Option<&'static Command>,
    /// The hash of its one key, if it has been touched.
    hash: Option<KeyHash>,
}

impl Plan {
    /// For a request that is executed at once.
    #[inline]
    pub fn for_now(request: Request<'_>) -> Plan {
        Plan { command: find(request.name()), hash: None }
    }

    /// For a request that is executed after others: what it needs is fetched from memory meanwhile.
    #[inline]
    pub fn for_later(instance: &Instance, session: &Session, request: Request<'_>) -> Plan {
        let command = find(request.name());
        let key = command.and_then(|command| request.get(command.only_key()?));
        Plan { command, hash: key.map(|key| instance.keyspace.touch(session.database, key)) }
    }
}

/// Executes one request and appends its reply to `out`. Answers whether the reply is an error.
#[inline]
pub fn execute(
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    plan: Plan,
    out: &mut Vec<u8>,
) -> bool {
    let mark = out.len();
    let result = admit(session, plan.command, request).and_then(|command| {
        let mut tx = begin(instance, session.database, command, request, plan.hash);
        if session.leaves_keys_untouched {
            tx.leave_untouched();
        }
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
    hash: Option<KeyHash>,
) -> Transaction<'a> {
    let keyspace = &instance.keyspace;
    if let (Some(hash), [spec]) = (hash, command.keys) {
        return keyspace.begin_hashed(database, request.at(spec.first), hash);
    }
    match (command.scope, command.only_key()) {
        (Scope::Keys, Some(position)) => keyspace.begin(database, request.at(position)),
        (Scope::Everything, _) => keyspace.begin_all(database),
        (Scope::Keys, None) if command.keys.is_empty() => keyspace.begin_none(database),
        (Scope::Keys, None) => keyspace.begin_many(database, command.keys_of(request).map(|(key, _)| key)),
    }
}

/// A command that only reads leaves what it found expired in place; it goes before the locks do.
#[cold]
fn free_expired(tx: &mut Transaction<'_>, command: &Command, request: Request<'_>) {
    for (key, _) in command.keys_of(request) {
        tx.free_expired(key);
    }
}
