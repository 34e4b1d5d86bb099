//! The kinds of misuse of locks, and the command to use instead.
//!
//! The rules are hints: a key that SETNX has made may be a lock, or remember that something was done once.

use std::sync::Arc;

use crate::clients::Who;

/// A way in which locks go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// A lock without expiry whose holder has disconnected.
    NoExpiry,
    /// The expiry came in a second command.
    ExpirySetSeparately,
    /// A client deleted a lock that another holds.
    DeletedByAnother,
    /// A holder came back when its lock had expired.
    ExpiredWhileHeld,
    /// GETSET by a contender that lost has moved the winner's time stamp.
    TakeoverOverwritten,
    /// A holder released a lock that it had released before.
    ReleasedTwice,
}

impl Rule {
    /// All of them, in the order of their numbers.
    pub const ALL: [Rule; 6] = [
        Rule::NoExpiry,
        Rule::ExpirySetSeparately,
        Rule::DeletedByAnother,
        Rule::ExpiredWhileHeld,
        Rule::TakeoverOverwritten,
        Rule::ReleasedTwice,
    ];

    /// Its name in LOCKS LOG, LOCKS STATS, INFO and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Rule::NoExpiry => "no-expiry",
            Rule::ExpirySetSeparately => "expiry-set-separately",
            Rule::DeletedByAnother => "deleted-by-another",
            Rule::ExpiredWhileHeld => "expired-while-held",
            Rule::TakeoverOverwritten => "takeover-overwritten",
            Rule::ReleasedTwice => "released-twice",
        }
    }

    /// The meaning for a user, if the key is a lock.
    pub fn hint(self) -> &'static str {
        match self {
            Rule::NoExpiry => {
                "If this is a lock, no client can take it any more: its holder has disconnected and it never \
                 expires."
            }
            Rule::ExpirySetSeparately => {
                "If this is a lock and its holder crashes between the two commands, the lock never expires."
            }
            Rule::DeletedByAnother => {
                "If this is a lock, a client that does not hold it has released it: the next client takes it \
                 while the holder still works."
            }
            Rule::ExpiredWhileHeld => {
                "If this is a lock, it expired while its holder still worked: another client may have held \
                 it at the same time."
            }
            Rule::TakeoverOverwritten => {
                "If this is a lock whose value is its expiry time, a client that failed to take it has \
                 replaced the holder's time with its own: the lock ends at the wrong time."
            }
            Rule::ReleasedTwice => {
                "If this is a lock, the second release would have deleted the next holder's lock."
            }
        }
    }

    /// The command to use instead.
    pub fn instead(self) -> &'static str {
        match self {
            Rule::NoExpiry | Rule::ExpirySetSeparately => "SET key token NX PX milliseconds",
            Rule::DeletedByAnother | Rule::ReleasedTwice => "DELIFEQ key token",
            Rule::ExpiredWhileHeld => {
                "SET key token IFEQ token PX milliseconds, before it expires, to extend it; and pass the \
                 fencing number of LOCKS GET to the resource that the lock protects"
            }
            Rule::TakeoverOverwritten => "SET key token NX PX milliseconds, then DELIFEQ key token",
        }
    }

    /// Its bit in a set of rules.
    pub(super) fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Something that went wrong with a lock.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its number; later findings have larger ones.
    pub id: u64,
    /// In which way.
    pub rule: Rule,
    /// The lock's database.
    pub database: usize,
    /// The lock's key.
    pub key: Box<[u8]>,
    /// When it was noticed, in milliseconds since 1970.
    pub at_ms: u64,
    /// The clients that were involved; the one that acted comes first.
    pub clients: Vec<Arc<Who>>,
    /// The history of the lock until then, one step a line.
    pub timeline: Vec<String>,
}
