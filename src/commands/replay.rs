//! Does again what a log has, through the same door as what clients ask for.

use std::path::Path;
use std::time::Instant;

use crate::acl::Users;
use crate::clients::Address;
use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::{OwnedRequest, Protocol, Reply, Request};
use crate::session::Session;

use super::command::{Command, Run, Scope};
use super::execute::{resolve, run};
use super::lookup::{Registered, catalog, find_own};

/// Loads the log, if there is one, and begins to write it; called before there are clients.
///
/// # Errors
///
/// With one line for people.
pub fn load(instance: &Instance) -> Result<(), String> {
    let nowhere = Address::Unix(Path::new("").into());
    let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
    // Whoever may do what now, it was done.
    let everybody = Users::new(catalog());
    let mut session = Session::new(registration.client.clone(), &everybody);
    let mut out = Vec::new();
    instance.load_log(&mut |tx, request| again(instance, &mut session, tx, request, &mut out))
}

fn again(
    instance: &Instance,
    session: &mut Session,
    tx: &mut Transaction<'_>,
    request: &OwnedRequest,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let Some(request) = request.request() else { return Ok(()) };
    let name = || request.name().escape_ascii();
    let command = find(request).ok_or_else(|| format!("Unknown command '{}'", name()))?.command;
    if !may_be_done_again(command) {
        return Err(format!("Command '{}', which has no place there,", name()));
    }
    let _turn = match command.scope {
        Scope::Script => {
            session.began = Instant::now();
            Some(instance.scripting.take_turn().ok_or("a script runs")?)
        }
        _ => None,
    };
    out.clear();
    tx.select(session.database);
    let reply = Reply::new(out, Protocol::Resp2);
    match run(command, instance, session, tx, request, reply, None) {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = format!("{} answered '{}'", name(), error.as_bytes().escape_ascii());
            if command.name == "select" {
                // What follows belongs into a database that there is not.
                return Err(why);
            }
            // Whoever wrote it may have done a part of it, which is done now, too.
            tracing::warn!("While the log was loaded {why}");
            Ok(())
        }
    }
}

fn find(request: Request<'_>) -> Option<&'static Registered> {
    let registered = resolve(find_own(request.name())?, request).ok()?;
    registered.command.arity.allows(request.len()).then_some(registered)
}

/// Whether a command may be in a log: what changes data, and what only looks at them, which others have left
/// there.
fn may_be_done_again(command: &Command) -> bool {
    command.may_write() && !matches!(command.name, "publish" | "spublish")
        || matches!(command.run, Run::Read(_))
        || command.name == "select"
}
