//! The engine whose data is in this process: takes the locks, runs the command, lets go.

use crate::clients::{Address, Paused};
use crate::commands::Command;
use crate::commands::command::{Flags, Result, Run, Scope};
use crate::commands::error::Error;
use crate::commands::execute::{admit, conclude, resolve, run};
use crate::commands::lookup::{Registered, find};
use crate::commands::secrets::visible_arguments;
use crate::instance::Instance;
use crate::keyspace::{KeyHash, Transaction};
use crate::resp::Request;
use crate::resp::reply::write_quoted;
use crate::session::Session;

use super::meter::Meter;
use super::room::make_room;

/// What is known of a request before it is executed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The command of its name.
    command: Option<&'static Registered>,
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
    #[inline(always)]
    pub fn for_later(instance: &Instance, session: &Session, request: Request<'_>) -> Plan {
        let command = find(request.name());
        let key = command.and_then(|registered| request.get(registered.command.only_key()?));
        Plan { command, hash: key.map(|key| instance.keyspace.touch(session.database, key)) }
    }

    /// Whether the request has to wait for the end of a pause.
    pub fn has_to_wait(&self, paused: Paused) -> bool {
        let writes = self.command.is_some_and(|registered| matches!(registered.command.run, Run::Write(_)));
        paused == Paused::All || writes
    }
}

/// Executes one request and appends its reply to `out`.
#[inline(always)]
pub fn execute(
    instance: &Instance,
    session: &mut Session,
    request: Request<'_>,
    plan: Plan,
    meter: &mut Meter<'_>,
    out: &mut Vec<u8>,
) {
    let mark = out.len();
    let mut admitted = admit(session, plan.command, request);
    if !meter.is_plain() {
        admitted = admitted.and_then(|registered| check_memory(instance, registered));
    }
    let result = match admitted {
        Ok(registered) => {
            let command = registered.command;
            let is_tallied = meter.begin(registered, request);
            let mut tx = begin(instance, session.database, command, request, plan.hash);
            if session.leaves_keys_untouched {
                tx.leave_untouched();
            }
            let result = run(command, instance, session, &mut tx, request, out);
            if tx.has_seen_expired() && matches!(command.run, Run::Read(_)) {
                free_expired(&mut tx, command, request);
            }
            drop(tx);
            if is_tallied {
                meter.end_tallied(registered, session, request, out.len() - mark);
            } else {
                meter.end(registered, session, request);
                if meter.is_watched && result.is_ok() {
                    show(instance, session, command, request);
                }
            }
            if result.is_err() {
                meter.failed(registered);
            }
            result
        }
        Err(refusal) => {
            meter.refused(plan.command.and_then(|registered| resolve(registered, request).ok()));
            Err(refusal)
        }
    };
    if let Err(error) = &result {
        instance.statistics.errors.count(error.as_bytes());
    }
    conclude(session, result, out, mark);
}

/// Makes room before a command that may need it; refuses one that does where there is none to be had.
#[cold]
fn check_memory(instance: &Instance, registered: &'static Registered) -> Result<&'static Registered> {
    match instance.config.maxmemory.size() {
        0 => Ok(registered),
        limit_bytes if !make_room(instance, limit_bytes) => Ok(registered),
        _ if registered.command.flags.contains(Flags::DENYOOM) => Err(Error::OUT_OF_MEMORY),
        _ => Ok(registered),
    }
}

/// Shows a request to those who see every command, but for what is too dangerous to be shown.
#[cold]
fn show(instance: &Instance, session: &Session, command: &Command, request: Request<'_>) {
    if command.flags.contains(Flags::ADMIN) || command.flags.contains(Flags::SKIP_MONITOR) {
        return;
    }
    let now = instance.keyspace.clock().since_epoch();
    let (seconds, micros) = (now.as_secs(), now.subsec_micros());
    let from = match &session.client.address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    };
    let mut line = format!("+{seconds}.{micros:06} [{} {from}]", session.database).into_bytes();
    for argument in visible_arguments(command, request) {
        line.push(b' ');
        write_quoted(&mut line, argument);
    }
    line.extend_from_slice(b"\r\n");
    instance.clients.send_to_monitors(&line);
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
