//! What a handler is: the function that executes a command, by what it is given.

use crate::commands::error::Error;
use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::{Reply, Request, Sent};
use crate::session::Session;

/// What a handler returns: the proof that it has written its reply, or the error to reply with.
pub type Result<T = Sent> = std::result::Result<T, Error>;

/// A handler. The type of what it is given is its permission.
#[derive(Clone, Copy)]
pub enum Run {
    /// Reads keys.
    Read(fn(&Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Writes keys.
    Write(fn(&mut Transaction<'_>, Request<'_>, Reply<'_>) -> Result),
    /// Works on the state of the client's own connection.
    Session(fn(&mut Session, Request<'_>, Reply<'_>) -> Result),
    /// Works on the server.
    Server(fn(&mut Context<'_, '_>, Request<'_>, Reply<'_>) -> Result),
    /// None: only the command's subcommands have handlers.
    Subcommands,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Read(_) => "Read",
            Run::Write(_) => "Write",
            Run::Session(_) => "Session",
            Run::Server(_) => "Server",
            Run::Subcommands => "Subcommands",
        })
    }
}

/// What is given to a handler that works on the server.
#[derive(Debug)]
pub struct Context<'a, 'k> {
    /// The server.
    pub instance: &'a Instance,
    /// The client's state.
    pub session: &'a mut Session,
    /// The shards of the command's scope.
    pub tx: &'a mut Transaction<'k>,
}

impl Context<'_, '_> {
    /// INFO's `used_memory`: the bytes in use, without those of the running command itself.
    pub fn used_memory(&self) -> usize {
        self.instance.used_memory().saturating_sub(self.tx.own_bytes())
    }
}
