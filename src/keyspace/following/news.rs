//! News for clients: an event, an outdated copy, or something that happened to a lock.

use crate::digest::digest;
use crate::resp::number::parse_integer;

/// News for clients.
#[derive(Debug)]
pub enum Effect {
    /// An event of a class that a client wants.
    Event {
        /// Its name, such as `set`.
        name: &'static str,
        /// The number of the key's database.
        database: usize,
        /// The key that the event is about.
        key: Box<[u8]>,
    },
    /// A key has changed, and some client keeps copies of keys.
    Changed {
        /// The key that has changed, in any database.
        key: Box<[u8]>,
        /// Whether the server removed the key, because it expired or memory was short, and not a command.
        by_itself: bool,
    },
    /// All keys were removed, and some client keeps copies of keys.
    Flushed,
    /// Something happened to a lock.
    Lock(LockNews),
    /// All keys of a database were removed, or all keys: with the locks among them.
    LocksFlushed {
        /// The number of the database; `None` for all.
        database: Option<usize>,
    },
    /// Two databases were exchanged, with the locks in them.
    LocksSwapped {
        /// The number of the one.
        one: usize,
        /// The number of the other.
        other: usize,
    },
}

/// What happened to a lock.
#[derive(Debug)]
pub struct LockNews {
    /// The hash of its key.
    pub hash: u64,
    /// The number of its database.
    pub database: usize,
    /// The key that is the lock.
    pub key: Box<[u8]>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What happened to it.
    pub change: LockChange,
    /// For a hash that was made, its field, cut if it is long. For a lock that was freed, the list that wakes
    /// the next holder, if the same commands have made one.
    pub name: Option<Box<[u8]>>,
    /// The fencing number that the lock has, if it has one.
    pub fence: Option<u64>,
    /// The number of the client that has waited for the lock and was granted it, and the name of its command.
    /// Another client has freed the lock then, or it has expired.
    pub served: Option<(u64, &'static str)>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockChange {
    /// It was absent and is taken now.
    Taken {
        /// The digest of its value and other facts; the value itself is not kept.
        token: Token,
        /// When it expires.
        expires_at_ms: Option<u64>,
    },
    /// A script, or several commands of EXEC, found it absent and then wrote it, with an expiry.
    TakenInSteps {
        /// The same facts about its value.
        token: Token,
        /// When it expires.
        expires_at_ms: u64,
        /// The command that wrote it.
        by: &'static str,
    },
    /// A hash was made together with its expiry, with one field and the value 1.
    TakenAsHash {
        /// The same facts about its field, which is the holder's token.
        token: Token,
        /// When it expires.
        expires_at_ms: Option<u64>,
        /// The command that made it.
        by: &'static str,
    },
    /// The number in a hash is another one now.
    Depth(u64),
    /// A hash has become something else than a lock.
    Changed,
    /// It was taken, so another client did not get it.
    Refused,
    /// A client asked whether it is there.
    Sought,
    /// Its value was read.
    Read,
    /// Its value was replaced.
    Written {
        /// The value before.
        before: Token,
        /// The value now.
        token: Token,
        /// When it expires now.
        expires_at_ms: Option<u64>,
    },
    /// When it expires was changed.
    Expiry(Option<u64>),
    /// It was written after its end, by a command that writes whether the key is there or not.
    Remade {
        /// The same facts about its value.
        token: Token,
        /// When it expires.
        expires_at_ms: u64,
    },
    /// It was deleted.
    Freed,
    /// It was evicted, since memory was short.
    Evicted,
    /// A client looked for it after it was deleted or had expired.
    Missed,
    /// It was there, but not with the value that the command expected.
    Unmet,
}

impl LockChange {
    /// Whether a client holds the lock from now on.
    pub fn is_taken(self) -> bool {
        matches!(
            self,
            LockChange::Taken { .. } | LockChange::TakenInSteps { .. } | LockChange::TakenAsHash { .. }
        )
    }
}

/// The part of a lock's value that is kept: enough to recognise the value, too little to use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The digest that DIGEST returns.
    pub digest: u64,
    /// The moment in the value, in milliseconds since 1970, if it looks like a moment.
    pub stamp_ms: Option<u64>,
    /// Whether the value is long enough that two clients hardly ever have the same one by chance.
    pub is_long: bool,
    /// Whether the value is a small integer: what a script writes with an expiry is rather a count or a flag.
    pub is_small_number: bool,
}

impl Token {
    /// The token of a value.
    pub fn of(value: &[u8]) -> Token {
        /// Below that of UUIDs and of other random tokens, and above that of `locked` and `worker-1`.
        const LONG_BYTES: usize = 16;
        const SMALL_DIGITS: usize = 7;
        Token {
            digest: digest(value),
            stamp_ms: stamp_ms(value),
            is_long: value.len() >= LONG_BYTES,
            is_small_number: value.len() <= SMALL_DIGITS && parse_integer(value).is_some(),
        }
    }
}

/// Reads a value as a moment, which is what the algorithm on SETNX's page stores: in seconds, with or without
/// a fraction, milliseconds or microseconds since 1970. The unit follows from the magnitude, for the years
/// 2001 to 5138.
fn stamp_ms(value: &[u8]) -> Option<u64> {
    const LENGTH_MAX: usize = 32;
    let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= LENGTH_MAX)?;
    let number: f64 = text.parse().ok()?;
    let ms = match number {
        1e9..1e11 => number * 1e3,
        1e12..1e14 => number,
        1e15..1e17 => number / 1e3,
        _ => return None,
    };
    Some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magnitude_of_a_moment_tells_its_unit() {
        for (value, ms) in [
            ("1700000000", Some(1_700_000_000_000)),
            ("1700000000.25", Some(1_700_000_000_250)),
            ("1700000000123", Some(1_700_000_000_123)),
            ("1700000000123456", Some(1_700_000_000_123)),
            ("17", None),
            ("99999999999999999999", None),
            ("NaN", None),
            ("-1700000000", None),
            ("8f14e45f-ceea", None),
            ("", None),
        ] {
            assert_eq!(stamp_ms(value.as_bytes()), ms, "{value}");
        }
    }
}
