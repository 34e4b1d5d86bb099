//! What a request concerns, and where it stands among the arguments.

use std::ops::Range;

use crate::resp::Request;

/// What a request concerns. A server with a store decides by this where the request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The values of the keys that it names. It concerns no key if it names none.
    Values,
    /// Whether the keys that it names change later on.
    Changes,
    /// Who holds the keys that it names.
    Holders,
    /// All keys of the client's database, or of all databases.
    AllKeys(AllKeys),
    /// Databases as a whole, which change places.
    Databases,
}

/// What a request that concerns all keys wants of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllKeys {
    /// To know how many there are.
    Count,
    /// To know the names of those that match a pattern.
    Names,
    /// To know the next ones from a cursor on.
    Scan,
    /// To know any one of them.
    Any,
    /// To know those that are locks.
    Locks,
    /// To delete those in the client's database.
    Flush,
    /// To delete those in all databases.
    FlushAll,
}

/// The arguments of a request that are channels, or patterns of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// The place of the first one.
    pub first: usize,
    /// Their number at most.
    pub count: usize,
    /// Whether they are patterns.
    pub are_patterns: bool,
}

impl Channels {
    /// None of the arguments.
    pub const NONE: Channels = Channels { first: 1, count: 0, are_patterns: false };
    /// The first argument.
    pub const FIRST: Channels = Channels { count: 1, ..Channels::NONE };
    /// All arguments behind the name.
    pub const ALL: Channels = Channels { count: usize::MAX, ..Channels::NONE };
    /// All arguments, which are patterns.
    pub const PATTERNS: Channels = Channels { are_patterns: true, ..Channels::ALL };
}

/// How far a command reaches, on a server with sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To the client and to its sandbox: no other one notices it.
    Sandbox,
    /// To the server: its process, its files and its users. It does the same in all sandboxes, and runs in
    /// the first one.
    Process,
}

/// The script that a request runs. What names it is the first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request runs no script.
    None,
    /// The argument is the script.
    Text,
    /// The argument is the digest of a script that the server knows.
    Digest,
    /// The argument is the name of a function.
    Function,
}

/// The other database in which a request uses its last key, of those that clients know by these numbers.
/// `None`: the request is wrong, and fails when it runs. The first number is that of the client's own one.
pub(crate) type OtherDatabase = fn(Request<'_>, usize, Range<usize>) -> Option<usize>;
