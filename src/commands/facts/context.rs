//! The arguments and the result of a command's handler.

use crate::commands::error::Error;
use crate::instance::Instance;
use crate::keyspace::Transaction;
use crate::resp::Sent;
use crate::session::Session;

/// The result of a handler: the proof that it has written its reply, or the error to reply with.
pub(crate) type Result<T = Sent> = std::result::Result<T, Error>;

/// The argument of a handler that works on the server.
#[derive(Debug)]
pub struct Context<'a, 'k> {
    /// The server that the client is connected to.
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
