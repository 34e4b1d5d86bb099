//! What scripts ask of the server.

use crate::resp::{Protocol, Request};

/// Who runs the commands of a script.
pub trait Host {
    /// Runs a command and appends its reply to `out`.
    ///
    /// # Errors
    ///
    /// With the error's text, from its code word on; nothing is appended then.
    fn call(&mut self, request: Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Refused>;

    /// Whether the client may run a command; none if there is no such command.
    fn may_call(&mut self, request: Request<'_>) -> Option<bool>;

    /// Notes an error that a script answers: one of a command, which is counted already, or one of its own.
    fn note_error(&self, text: &[u8], is_counted: bool);
}

/// Why a command was not run, or failed.
#[derive(Debug)]
pub struct Refused {
    /// The text, from its code word on.
    pub text: Vec<u8>,
}
