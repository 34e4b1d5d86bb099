//! The interface through which scripts use the server.

use crate::resp::{Protocol, Request};

/// Runs the commands of a script.
pub trait Host {
    /// Runs a command and appends its reply to `out`.
    ///
    /// # Errors
    ///
    /// With the error's text, from its code on. Then `out` is unchanged.
    fn call(&mut self, request: Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Refused>;

    /// Whether the client may run a command.
    ///
    /// # Errors
    ///
    /// If there is no such command.
    fn may_call(&mut self, request: Request<'_>) -> Result<bool, NoCommand>;

    /// Notes an error in a script's reply. `is_counted` says that it is a command's error, which has been
    /// counted.
    fn note_error(&self, text: &[u8], is_counted: bool);
}

/// Why a request is that of no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCommand {
    /// There is no command of its name.
    Unknown,
    /// It has too few or too many arguments.
    Arity,
}

/// Why a command was not run, or failed.
#[derive(Debug)]
pub struct Refused {
    /// The error's text, from its code on.
    pub text: Vec<u8>,
}
