//! Replays a log, in the same way in which requests of clients run.
//!
//! Redis executes whatever command a log has, and goes on where it fails. So a log may have any command here.
//! Those that change nothing on which later requests build are left out: to administer a server is not for
//! its log, and a client that listens or waits is not there. The server's log names each of them once.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use crate::acl::Users;
use crate::clients::Address;
use crate::instance::{Instance, Replay};
use crate::keyspace::{Everything, Transaction};
use crate::resp::{Protocol, Reply, Request};
use crate::session::Session;

use super::admission::admit_logged;
use super::run::run;
use crate::commands::catalog;
use crate::commands::error::Error;
use crate::commands::facts::lookup::{find, own_names, resolve};
use crate::commands::facts::{Command, Run, Scope, Traits};

/// Loads the log, if there is one, and begins to write it. Called before there are clients.
///
/// # Errors
///
/// With one line of text.
pub fn load(instance: &Instance) -> Result<(), String> {
    instance.load_aof(&mut Replayer::new(instance, false))
}

/// Replaces all data and libraries by those of the log. The caller has the turn of scripts.
///
/// # Errors
///
/// With one line of text.
pub fn load_again(instance: &Instance, tx: &mut Everything<&mut Transaction<'_>>) -> Result<(), String> {
    instance.reload_aof(tx, &mut Replayer::new(instance, true))
}

/// Runs the requests of a log, one after the other, as a user with all permissions.
pub(super) struct Replayer<'a> {
    instance: &'a Instance,
    session: Session,
    /// Whether the caller has the turn of scripts.
    has_turn: bool,
    out: Vec<u8>,
    /// The commands that were left out.
    left_out: BTreeSet<&'static str>,
}

impl Replayer<'_> {
    pub(super) fn new(instance: &Instance, has_turn: bool) -> Replayer<'_> {
        let nowhere = Address::Unix(Path::new("").into());
        let registration = instance.clients.register(nowhere.clone(), nowhere, -1);
        // Users were allowed to do what the log holds, even if they may not do it now.
        let everybody = Users::new(catalog());
        let session = Session::new(registration.client.clone(), &everybody);
        Replayer { instance, session, has_turn, out: Vec::new(), left_out: BTreeSet::new() }
    }

    /// The command of a request, if there is one and it has enough arguments.
    fn find(&self, request: Request<'_>) -> Result<&'static Command, String> {
        let found =
            find(own_names(), request.name()).and_then(|registered| resolve(registered, request).ok());
        let registered =
            found.ok_or_else(|| format!("Unknown command '{}'", request.name().escape_ascii()))?;
        let text = |why: Error| String::from_utf8_lossy(why.as_bytes()).into_owned();
        admit_logged(self.instance, &self.session, registered, request).map_err(text)?;
        Ok(registered.command)
    }
}

impl Replay for Replayer<'_> {
    fn check(&self, request: Request<'_>) -> Result<(), String> {
        self.find(request).map(|_| ())
    }

    fn knows(&self, name: &[u8]) -> bool {
        find(own_names(), name).is_some()
    }

    fn redo(
        &mut self,
        tx: &mut Transaction<'_>,
        request: Request<'_>,
        fence: Option<u64>,
    ) -> Result<(), String> {
        let command = self.find(request)?;
        if !has_effect(command) {
            if self.left_out.insert(command.name) {
                let name = command.name.replace('|', " ").to_uppercase();
                tracing::warn!("While the log was replayed: {name} was left out, as it has no effect there");
            }
            return Ok(());
        }
        match self.execute(tx, command, request, fence)? {
            Ok(()) => Ok(()),
            Err(error) => {
                let mut why = format!("{} failed: '{}'", shown(request), error.as_bytes().escape_ascii());
                // The next requests would change another database.
                if command.traits.contains(Traits::PROVIDES) {
                    why.push_str(" (the parameter 'databases' may have to be larger)");
                    return Err(why);
                }
                // The server that logged it may have done a part of it. That part is done again now.
                tracing::warn!("While the log was replayed: {why}");
                Ok(())
            }
        }
    }
}

impl Replayer<'_> {
    /// Runs a request that must succeed.
    ///
    /// # Errors
    ///
    /// With a line for people.
    pub(super) fn demand(&mut self, tx: &mut Transaction<'_>, request: Request<'_>) -> Result<(), String> {
        let command = self.find(request)?;
        if !has_effect(command) {
            return Err(format!("{} changes no data", command.name.replace('|', " ").to_uppercase()));
        }
        let text = |why: Error| String::from_utf8_lossy(why.as_bytes()).into_owned();
        self.execute(tx, command, request, None)?.map_err(text)
    }

    /// Runs a request, and returns the error with which it fails. If it writes a lock that has a number,
    /// `fence` is that.
    fn execute(
        &mut self,
        tx: &mut Transaction<'_>,
        command: &'static Command,
        request: Request<'_>,
        fence: Option<u64>,
    ) -> Result<Result<(), Error>, String> {
        let Replayer { instance, session, has_turn, out, .. } = self;
        // There is no client that could wait.
        session.may_not_wait = matches!(command.run, Run::Block(_));
        let _turn = match command.scope {
            Scope::Script => {
                session.began = Instant::now();
                match has_turn {
                    true => None,
                    false => Some(instance.scripting.wait_for_turn().ok_or("a script runs")?),
                }
            }
            _ => None,
        };
        out.clear();
        tx.select(session.database);
        let reply = Reply::new(out, Protocol::Resp2);
        let result = run(command, instance, session, tx, request, reply, None);
        drop(tx.take_missed());
        if let (Some(fence), Some(key), Ok(_)) = (fence, command.only_key_in(request), &result) {
            tx.set_fence(key, fence);
        }
        instance.deliver(session, request);
        Ok(result.map(|_sent| ()))
    }
}

/// Whether a command changes, or may read, something in a log.
fn has_effect(command: &Command) -> bool {
    let reads = matches!(command.run, Run::Read(_));
    command.replicates() || reads || command.traits.contains(Traits::LOGGED)
}

/// A request as a log line names it: with the first line of a library that it loads.
fn shown(request: Request<'_>) -> String {
    const SHOWN_BYTES_MAX: usize = 100;
    let code = request.from(1).last().filter(|last| last.starts_with(b"#!"));
    let first_line = code.and_then(|code| code.split(|byte| *byte == b'\n').next()).unwrap_or_default();
    let cut = &first_line[..first_line.len().min(SHOWN_BYTES_MAX)];
    let of = if cut.is_empty() { "" } else { " of " };
    format!("{}{of}{}", request.name().escape_ascii(), cut.escape_ascii())
}
