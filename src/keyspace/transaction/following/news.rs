//! News for clients: an event, an outdated copy, or something that happened to a lock.

use crate::keyspace::store::token::Token;

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
    /// A holder has lost a lock, and wants to know.
    LockLost(Box<LostLock>),
    /// A lock has got another expiry by no command.
    LockKept(Box<KeptLock>),
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

/// A lock that its holder has lost.
#[derive(Debug)]
pub struct LostLock {
    /// The number of the client that has taken it.
    pub client: u64,
    /// The number of its database.
    pub database: usize,
    /// The key that was the lock.
    pub key: Box<[u8]>,
    /// The fencing number that it had.
    pub number: u64,
    /// Why it was lost.
    pub why: LossReason,
}

/// A lock that has got another expiry by no command.
#[derive(Debug)]
pub struct KeptLock {
    /// The hash of its key.
    pub hash: u64,
    /// The number of its database.
    pub database: usize,
    /// The key that is the lock.
    pub key: Box<[u8]>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// Why a holder has lost a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Its time had come.
    Expired,
    /// A command has deleted it.
    Deleted,
    /// A command has written the key: the token has no number any more, or is another one.
    Overwritten,
    /// Its database was emptied.
    Flushed,
    /// Memory was short.
    Evicted,
    /// It has another name, or is in another database or server.
    Moved,
    /// An administrator has broken it.
    Broken,
    /// It was bound to a connection, and its time was limited.
    Max,
}

impl LossReason {
    /// Its name in what the holder gets.
    pub fn name(self) -> &'static str {
        match self {
            LossReason::Expired => "expired",
            LossReason::Deleted => "deleted",
            LossReason::Overwritten => "overwritten",
            LossReason::Flushed => "flushed",
            LossReason::Evicted => "evicted",
            LossReason::Moved => "moved",
            LossReason::Broken => "broken",
            LossReason::Max => "max",
        }
    }

    /// Whether no client has meant it.
    fn is_by_itself(self) -> bool {
        matches!(self, LossReason::Expired | LossReason::Evicted | LossReason::Max)
    }
}

impl LostLock {
    /// Whether its holder has done it, if this client has: then it knows.
    pub fn is_known(&self, by: Option<u64>) -> bool {
        by == Some(self.client) && !self.why.is_by_itself()
    }

    /// The channel of the lock, whose database clients know by this number, and the message there.
    pub fn message(&self, database: usize) -> (Vec<u8>, Vec<u8>) {
        let LostLock { key, number, why, .. } = self;
        let channel = [format!("__lock@{database}__:").as_bytes(), key].concat();
        (channel, format!("{number} {}", why.name()).into_bytes())
    }
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
    /// For a hash that was made, its field, cut if it is long. For a lock that is a field, its name. For a
    /// lock that was freed, the list that wakes the next holder, if the same commands have made one.
    pub name: Option<Box<[u8]>>,
    /// The value that it had, if a script has deleted it, changed its expiry or made it anew. `None` also
    /// if it is too long for a token, or if a snapshot has it.
    pub value: Option<Box<[u8]>>,
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
    /// A sorted set was made together with its expiry, with one token and the word for a lock of one holder.
    TakenAsSet {
        /// The same facts about its token.
        token: Token,
        /// When it expires.
        expires_at_ms: Option<u64>,
        /// The command that made it.
        by: &'static str,
    },
    /// A script has renewed a string with an expiry that no mark shows to be a lock.
    Renewed {
        /// The same facts about its value.
        token: Token,
        /// When it expires now.
        expires_at_ms: u64,
    },
    /// A field of a hash, whose name speaks of a lock, was absent and is set now.
    FieldTaken {
        /// The same facts about its value.
        token: Token,
        /// When the hash expires, if it does.
        expires_at_ms: Option<u64>,
    },
    /// Such a field was there, so another client did not set it.
    FieldRefused {
        /// When the field expires, or the hash.
        expires_at_ms: Option<u64>,
    },
    /// Such a field was deleted.
    FieldFreed,
    /// The number in a hash is another one now.
    Depth(u64),
    /// A hash or a sorted set has become something else than a lock.
    Changed,
    /// It was taken, so another client did not get it.
    Refused,
    /// It was taken, so another client waits for it in line.
    Waits,
    /// A client has waited for it in vain.
    GaveUp,
    /// Its holder has asked for it again, since it may not know that it holds it. It may have another
    /// connection now.
    TakenAgain,
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
    /// It was deleted by a client that need not hold it, and has said so.
    Broken,
    /// It was evicted, since memory was short.
    Evicted,
    /// A client looked for it after it was deleted or had expired.
    Missed,
    /// It was there, but not with the value that the command expected.
    Unmet,
}

impl LockChange {
    /// Whether a client has looked at the lock, or has asked for it in vain.
    pub fn is_look(self) -> bool {
        matches!(self, LockChange::Read | LockChange::Sought | LockChange::Refused)
    }

    /// Whether a client holds the lock from now on, as far as is known.
    pub fn is_taken(self) -> bool {
        matches!(
            self,
            LockChange::Taken { .. }
                | LockChange::TakenInSteps { .. }
                | LockChange::TakenAsHash { .. }
                | LockChange::TakenAsSet { .. }
                | LockChange::FieldTaken { .. }
                | LockChange::Renewed { .. }
        )
    }
}
