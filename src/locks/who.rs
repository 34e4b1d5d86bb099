//! Who did something to a lock, and how.

use std::fmt;
use std::sync::Arc;

use crate::clients::{Address, Client};
use crate::digest::digest;
use crate::resp::Request;

/// A client as it was when it was seen; it may have left since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its number.
    pub id: u64,
    /// Its name (CLIENT SETNAME); empty for none.
    pub name: String,
    /// Where it connects from.
    pub address: Address,
    /// Its library with the version (CLIENT SETINFO); empty if it does not say.
    pub library: String,
}

impl Who {
    /// The client as it is now.
    pub fn of(client: &Client) -> Who {
        let profile = client.profile.lock();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let library = match (profile.lib_name.is_empty(), profile.lib_version.is_empty()) {
            (false, false) => format!("{} {}", text(&profile.lib_name), text(&profile.lib_version)),
            _ => text(&profile.lib_name),
        };
        Who { id: client.id, name: text(&profile.name), address: client.address.clone(), library }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}", self.id)?;
        match self.name.is_empty() {
            true => write!(f, " ({})", self.address),
            false => write!(f, " '{}' ({})", self.name, self.address),
        }
    }
}

/// Which command of which client did something.
#[derive(Clone)]
pub struct Cause<'a> {
    /// The client.
    pub who: Arc<Who>,
    /// The command's name.
    pub command: &'static str,
    /// The request as the client sent it: for a command of a script the one that runs the script.
    pub request: Request<'a>,
    /// Whether a script called the command.
    pub is_script: bool,
    /// Whether it is one of several that run as one: in a script or a transaction.
    pub is_grouped: bool,
}

impl Cause<'_> {
    /// Arguments that are looked at, and how long one may be to be.
    const TOKENS_MAX: usize = 16;
    const TOKEN_BYTES_MAX: usize = 1024;

    /// Whether the client has shown a lock's value: only who has taken the lock should know it.
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
