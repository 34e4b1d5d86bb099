//! The command behind a change of a lock, and its client.

use std::sync::Arc;

use crate::clients::Who;
use crate::digest::digest;
use crate::resp::Request;

/// The command that changed a lock, and its client.
#[derive(Clone)]
pub struct Cause<'a> {
    /// The client that sent the request.
    pub who: Arc<Who>,
    /// The command's name.
    pub command: &'static str,
    /// The request as the client sent it; for a command of a script, the request that runs the script.
    pub request: Request<'a>,
    /// Whether a script called the command.
    pub is_script: bool,
    /// Whether it is one of several that run as one: in a script or a transaction.
    pub is_grouped: bool,
}

impl Cause<'_> {
    /// Arguments that are looked at, and how long one may be to be. Redisson renews a hundred locks at once,
    /// with a key and a token for each.
    const TOKENS_MAX: usize = 256;
    const TOKEN_BYTES_MAX: usize = 1024;

    /// Whether the client has shown a lock's value, which only its holder should know.
    pub(super) fn shows(&self, token: u64) -> bool {
        let arguments = self.request.from(1).take(Self::TOKENS_MAX);
        arguments
            .filter(|argument| argument.len() <= Self::TOKEN_BYTES_MAX)
            .any(|argument| digest(argument) == token)
    }

    /// Whether it deletes a lock, by itself or by comparing.
    pub(super) fn deletes(&self) -> bool {
        const DELETING: &[&str] = &["del", "unlink", "getdel", "delifeq", "delex"];
        DELETING.contains(&self.command)
    }

    /// Whether it looks into a lock that is a hash.
    pub(super) fn looks(&self) -> bool {
        const LOOKING: &[&str] = &["hexists", "hget", "hmget", "hgetall"];
        LOOKING.contains(&self.command)
    }

    /// Whether it changes when a lock expires.
    pub(super) fn extends(&self) -> bool {
        const EXTENDING: &[&str] = &["expire", "pexpire", "expireat", "pexpireat", "persist", "getex"];
        EXTENDING.contains(&self.command)
    }

    /// Whether it writes a lock's value as a whole; a key that is changed otherwise is no lock.
    pub(super) fn rewrites(&self) -> bool {
        const REWRITING: &[&str] =
            &["set", "setnx", "getset", "setex", "psetex", "mset", "msetex", "restore"];
        REWRITING.contains(&self.command)
    }
}
