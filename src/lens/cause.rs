//! The command behind a change of a lock, and its client.

use std::sync::Arc;

use super::script::{Script, tokens_of_script};
use crate::clients::Who;
use crate::digest::{self, digest};
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
    /// The script that called the command, if one did.
    pub script: Option<Script>,
    /// Whether it is one of several that run as one: in a script or a transaction.
    pub is_grouped: bool,
    /// Whether the same script takes the lock later on: what it finds before is no failure.
    pub takes_it_next: bool,
}

impl Cause<'_> {
    /// Whether the client has shown a lock's value, which only its holder should know.
    pub(super) fn shows(&self, token: u64) -> bool {
        shows(self.request, token)
    }

    /// Whether a script called the command.
    pub(super) fn is_script(&self) -> bool {
        self.script.is_some()
    }

    /// The script that called the command, by its number.
    pub(super) fn script_id(&self) -> Option<u64> {
        self.script.map(|script| script.id)
    }

    /// Whether it deletes a lock, by itself or by comparing.
    pub(super) fn deletes(&self) -> bool {
        const DELETING: &[&str] = &["del", "unlink", "getdel", "delifeq", "delex", "lock|release"];
        DELETING.contains(&self.command)
    }

    /// Whether it looks into a lock that is a hash.
    pub(super) fn looks(&self) -> bool {
        const LOOKING: &[&str] = &["hexists", "hget", "hmget", "hgetall"];
        LOOKING.contains(&self.command)
    }

    /// Whether it changes when a lock expires.
    pub(super) fn extends(&self) -> bool {
        const EXTENDING: &[&str] =
            &["expire", "pexpire", "expireat", "pexpireat", "persist", "getex", "lock|extend"];
        EXTENDING.contains(&self.command)
    }

    /// Whether it compares the lock's value with one that the client sends.
    pub(super) fn compares(&self) -> bool {
        const COMPARING: &[&str] = &["delifeq", "delex", "set", "lock|release", "lock|extend", "lock|fence"];
        self.is_script() || COMPARING.contains(&self.command) && self.request.len() > 2
    }
}

/// Whether a command writes a lock's value as a whole; a key that is changed otherwise is no lock.
pub(crate) fn rewrites(command: &str) -> bool {
    const REWRITING: &[&str] =
        &["set", "setnx", "getset", "setex", "psetex", "mset", "msetnx", "msetex", "restore"];
    REWRITING.contains(&command)
}

/// Arguments that are looked at, and how long one may be to be. Redisson renews a hundred locks at once, with
/// a key and a token for each.
const TOKENS_MAX: usize = 256;
const TOKEN_BYTES_MAX: usize = 1024;

/// Whether a request shows a lock's value, or the digest of it (IFDEQ). Keys, and the number of keys of a
/// script, are no tokens: the commonest token is 1.
pub(crate) fn shows(request: Request<'_>, token: u64) -> bool {
    if let Some(mut tokens) = tokens_of_script(request) {
        return tokens.any(|argument| is_token(argument, token));
    }
    // Commands of which all arguments are keys.
    const KEYS_ONLY: &[&[u8]] = &[b"del", b"unlink", b"rename", b"renamenx", b"copy", b"sinterstore"];
    const PAIRS: &[&[u8]] = &[b"mset", b"msetnx"];
    let is_one_of = |names: &[&[u8]]| names.iter().any(|name| request.name().eq_ignore_ascii_case(name));
    if is_one_of(KEYS_ONLY) {
        return false;
    }
    let step = if is_one_of(PAIRS) { 2 } else { 1 };
    let first = 2.min(request.len());
    let mut arguments = request.from(first).step_by(step).take(TOKENS_MAX);
    arguments.any(|argument| is_token(argument, token) || digest::parse(argument) == Some(token))
}

/// Whether an argument is the value with this digest.
fn is_token(argument: &[u8], token: u64) -> bool {
    argument.len() <= TOKEN_BYTES_MAX && digest(argument) == token
}
