//! The command behind a change of a lock, and its client.

use std::sync::Arc;

use memchr::memmem;

use super::lock_use::LockUse;
use super::script::{Script, is_script, text_of_script, tokens_of_script};
use crate::clients::Who;
use crate::digest::{self, digest};
use crate::keyspace::Token;
use crate::resp::Request;

/// The command that changed a lock, and its client.
#[derive(Clone)]
pub struct Cause<'a> {
    /// The client that sent the request.
    pub who: Arc<Who>,
    /// The command's name.
    pub command: &'static str,
    /// What it means for a lock.
    pub means: LockUse,
    /// The request as the client sent it; for a command of a script, the request that runs the script.
    pub request: Request<'a>,
    /// The script that called the command, if one did.
    pub script: Option<Script>,
    /// Whether it is one of several that run as one: in a script or a transaction.
    pub is_grouped: bool,
    /// Whether it is one of EXEC, and the client watched the key.
    pub is_watched: bool,
    /// Whether the same script takes or frees the lock, too: what it finds before is no failure.
    pub settles_it: bool,
    /// Whether the same script has looked at the lock before, or asked for it.
    pub looks_again: bool,
    /// Whether there is a list of all locks, which has the key.
    pub is_listed: bool,
}

impl<'a> Cause<'a> {
    /// A command that belongs to no others.
    pub fn alone(
        who: Arc<Who>,
        (command, means): (&'static str, LockUse),
        request: Request<'a>,
    ) -> Cause<'a> {
        Cause {
            who,
            command,
            means,
            request,
            script: None,
            is_grouped: false,
            is_watched: false,
            settles_it: false,
            looks_again: false,
            is_listed: false,
        }
    }

    /// Whether the client has shown a lock's value, which only its holder should know, or the digest of it
    /// (IFDEQ).
    pub(super) fn shows(&self, token: u64) -> bool {
        if let Some(is_shown) = shows(self.request, token) {
            return is_shown;
        }
        if self.means.has(LockUse::KEYS_ONLY) {
            return false;
        }
        let step = if self.means.has(LockUse::PAIRS) { 2 } else { 1 };
        let mut arguments = self.request.from(2).step_by(step).take(TOKENS_MAX);
        arguments.any(|argument| is_token(argument, token) || digest::parse(argument) == Some(token))
    }

    /// Whether the client has sent a script that knows a lock's value.
    pub(super) fn shows_part(&self, value: &[u8]) -> bool {
        shows_part(self.request, value)
    }

    /// The digests of what the client has sent that may be a token, as far as it is looked at.
    pub(super) fn shown(&self) -> impl Iterator<Item = u64> {
        /// A script has a token and options; before a command's options, there are a key and a token at most.
        const SHOWN_MAX: usize = 8;
        const BEFORE_OPTIONS: usize = 2;
        let tokens = tokens_of_script(self.request).into_iter().flatten();
        let first = if is_script(self.request) { self.request.len() } else { 2.min(self.request.len()) };
        let sent = self.request.from(first).take(BEFORE_OPTIONS);
        let short = tokens.chain(sent).filter(|token| token.len() <= TOKEN_BYTES_MAX);
        short.take(SHOWN_MAX).map(digest)
    }

    /// The digests of the tokens that the client compares the lock's value with, in order to delete the lock.
    /// A script may have other arguments, too: only those as long as the token may be meant.
    pub(super) fn releases_by(&self, token: Token) -> Vec<u64> {
        match self.script {
            Some(script) if script.deletes && token.is_long => {
                let arguments = tokens_of_script(self.request).into_iter().flatten();
                let alike = |argument: &&[u8]| argument.len() == token.bytes;
                arguments.filter(alike).map(digest).collect()
            }
            None if self.means.has(LockUse::DELETES.and(LockUse::COMPARES)) && self.compares() => {
                // More keys may follow the token of a command of LOCK.
                const TOKEN_OF_LOCK_AT: usize = 3;
                let is_of_lock = self.means.has(LockUse::IS_FOR_LOCKS);
                let at = if is_of_lock { TOKEN_OF_LOCK_AT } else { self.request.len() - 1 };
                let compared = self.request.get(at).unwrap_or_default();
                digest::parse(compared).into_iter().chain([digest(compared)]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether a script called the command.
    pub(super) fn is_script(&self) -> bool {
        self.script.is_some()
    }

    /// The script that called the command, by its number.
    pub(super) fn script_id(&self) -> Option<u64> {
        self.script.map(|script| script.id)
    }

    /// Whether it ends a lock or changes its end.
    pub(super) fn acts(&self) -> bool {
        self.deletes() || self.extends()
    }

    /// Whether it deletes a lock, by itself or by comparing.
    pub(super) fn deletes(&self) -> bool {
        self.means.has(LockUse::DELETES)
    }

    /// Whether it looks into a lock that is a hash.
    pub(super) fn looks(&self) -> bool {
        self.means.has(LockUse::LOOKS_INTO)
    }

    /// Whether it changes when a lock expires.
    pub(super) fn extends(&self) -> bool {
        self.means.has(LockUse::EXTENDS)
    }

    /// Whether it compares the lock's value with one that the client sends.
    pub(super) fn compares(&self) -> bool {
        let may_compare = self.means.has(LockUse::COMPARES) || self.means.has(LockUse::MAY_COMPARE);
        self.is_script() || may_compare && self.request.len() > 2
    }

    /// Whether its client waits in line if another has the lock: an option says so.
    pub(super) fn is_ready_to_wait(&self) -> bool {
        self.means.has(LockUse::MAY_WAIT) && !self.is_grouped && has_option(self.request, 6, &[b"wait"])
    }

    /// Whether it compares the lock's value with one that the client sends, and does nothing if they differ.
    pub(super) fn compares_token(&self) -> bool {
        let is_sure = self.is_script() || self.means.has(LockUse::COMPARES);
        self.compares() && (is_sure || sets_if_equal(self.request))
    }
}

/// Whether a script that a client has sent knows a lock's value: as a part of an argument or of its text,
/// or by an argument that is a part of the value.
pub(crate) fn shows_part(script: Request<'_>, value: &[u8]) -> bool {
    /// Bytes that are searched.
    const SEARCHED_MAX: usize = 256 << 10;
    let arguments = tokens_of_script(script).into_iter().flatten();
    let mut left = SEARCHED_MAX;
    let mut sent = arguments.chain(text_of_script(script)).take_while(|argument| {
        let is_near = argument.len() <= left;
        left = left.saturating_sub(argument.len());
        is_near
    });
    sent.any(|argument| has_part(argument, value) || has_part(value, argument))
}

/// Whether a SET compares before it writes.
fn sets_if_equal(request: Request<'_>) -> bool {
    has_option(request, 3, &[b"ifeq", b"ifdeq"])
}

/// Whether a request has one of some options, behind its first arguments.
fn has_option(request: Request<'_>, behind: usize, names: &[&[u8]]) -> bool {
    let mut options = request.from(behind.min(request.len())).take(TOKENS_MAX);
    options.any(|option| names.iter().any(|name| option.eq_ignore_ascii_case(name)))
}

/// Arguments that are looked at, and how long one may be to be. Redisson renews a hundred locks at once, with
/// a key and a token for each.
const TOKENS_MAX: usize = 256;
const TOKEN_BYTES_MAX: usize = 1024;

/// Whether a request that runs a script shows a lock's value; `None` for another request. Keys, and the
/// number of keys, are no tokens: the commonest token is 1.
pub(crate) fn shows(request: Request<'_>, token: u64) -> Option<bool> {
    tokens_of_script(request).map(|mut tokens| tokens.any(|argument| is_token(argument, token)))
}

/// Whether a value is a part of another one, as a token is of a JSON text or of what msgpack has packed: a
/// whole word. `worker-1` is no part of `worker-10`.
fn has_part(whole: &[u8], part: &[u8]) -> bool {
    /// A shorter one may be there by chance.
    const PART_BYTES_MIN: usize = 8;
    /// The sign of msgpack for a string whose length is the next byte…
    const STR8: u8 = 0xd9;
    /// … and for one of no bytes, from which it counts up to 31.
    const FIXSTR: u8 = 0xa0;
    if part.len() < PART_BYTES_MIN || part.len() > whole.len() {
        return false;
    }
    let is_apart = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
    memmem::find_iter(whole, part).any(|at| {
        let is_packed = match whole[..at] {
            [.., STR8, bytes] => usize::from(bytes) == part.len(),
            [.., sign] => usize::from(sign) == usize::from(FIXSTR) + part.len(),
            [] => false,
        };
        is_packed || is_apart(whole[..at].last()) && is_apart(whole.get(at + part.len()))
    })
}

/// Whether an argument is the value with this digest.
fn is_token(argument: &[u8], token: u64) -> bool {
    argument.len() <= TOKEN_BYTES_MAX && digest(argument) == token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_whole_word() {
        for (whole, part, expected) in [
            ("{\"token\":\"8f14e45f-ceea\",\"ms\":30000}", "8f14e45f-ceea", true),
            ("token=8f14e45f-ceea", "8f14e45f-ceea", true),
            ("8f14e45f-ceea", "8f14e45f-ceea", true),
            ("worker-10", "worker-1", false),
            ("my-worker-1 is worker-10", "worker-1", true),
            ("a worker-10", "worker-1", false),
            ("1 is short", "1", false),
            ("short", "8f14e45f-ceea", false),
        ] {
            assert_eq!(has_part(whole.as_bytes(), part.as_bytes()), expected, "{part} in {whole}");
        }
        // What follows a string in msgpack may be any byte; here, as its length, an X comes before it.
        let token = "t".repeat(usize::from(b'X'));
        let packed = [b"\x82\xa5token\xd9X".as_slice(), token.as_bytes(), b"7"].concat();
        assert!(has_part(&packed, token.as_bytes()));
        assert!(has_part(b"\x91\xa9worker-107", b"worker-10"));
    }
}
