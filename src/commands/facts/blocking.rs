//! Commands that wait: they take something from a key, or block the client until something is there.

use crate::keyspace::Transaction;
use crate::resp::{OwnedRequest, Reply, Request, Sent};
use crate::waiting::Ticket;

use super::context::Result;

/// How a blocking command works.
#[derive(Debug)]
pub struct Blocking {
    /// The kind of the values that it waits for; [`ABSENT_KIND`](crate::values::ABSENT_KIND) if it waits
    /// until the key is absent.
    pub kind: u8,
    /// Checks a request, and returns how its client waits.
    pub check: fn(Request<'_>) -> Result<Patience<'_>>,
    /// For how many of its keys it waits, the first ones. The others are held when it is served.
    pub keys: usize,
    /// Takes something from the keys of the request, or from some of them alone.
    pub take: Take,
    /// Replies that there is nothing.
    pub nothing: fn(Reply<'_>) -> Sent,
    /// The rules for clients that read streams, where they differ.
    pub waiting: WaitingRules,
}

/// Finds one of these keys of a request that its client cannot take, in line with this ticket, and returns
/// its place among them.
pub(super) type Lacks = fn(&Transaction<'_>, Request<'_>, &[Box<[u8]>], Ticket) -> Option<usize>;

/// When the client of a request that waits for a lock has to look at the key again.
pub(super) type AgainAt = fn(&Transaction<'_>, Request<'_>, &[u8]) -> Option<u64>;

/// How clients wait for a key.
#[derive(Debug)]
pub struct WaitingRules {
    /// Makes the request that waits of the one that the client sent, where the two differ.
    pub waits_with: Option<fn(&Transaction<'_>, Request<'_>) -> OwnedRequest>,
    /// Whether clients may find something where one before them has found nothing.
    pub is_shared: bool,
    /// Whether the client tries again when its key has no value of the kind any more, and gets the error.
    pub ends_without_value: bool,
    /// Replies that the client has waited in vain.
    pub timed_out: fn(Reply<'_>) -> Sent,
    /// The place of the argument by which a client is known that waits, if another attempt may take over its
    /// place in line.
    pub token: Option<usize>,
    /// When a client that waits for a lock has to look again though the key does not change, in milliseconds
    /// since 1970.
    pub again_at_ms: Option<AgainAt>,
    /// Finds a key that the client cannot take, if it takes all of its keys at once, or none.
    pub takes_all: Option<Lacks>,
    /// In how many milliseconds the client may find something though no key changes, if it may.
    pub again: Option<fn(&mut Transaction<'_>, Request<'_>) -> Option<u64>>,
}

impl WaitingRules {
    /// The request waits as it is, and until it gets something.
    pub const PLAIN: WaitingRules = WaitingRules {
        waits_with: None,
        is_shared: false,
        ends_without_value: false,
        timed_out: |reply| reply.nil_array(),
        token: None,
        again_at_ms: None,
        takes_all: None,
        again: None,
    };
}

/// How a client waits that finds nothing.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'r> {
    /// For how long.
    pub timeout: Timeout<'r>,
    /// Whether it takes over the place of an attempt with the same token.
    pub comes_again: bool,
    /// The kind of a value that it joins, besides the kind for which it waits.
    pub joins: Option<u8>,
}

impl<'r> From<Timeout<'r>> for Patience<'r> {
    fn from(timeout: Timeout<'r>) -> Patience<'r> {
        Patience { timeout, comes_again: false, joins: None }
    }
}

/// For how long a client is ready to wait.
#[derive(Clone, Copy, Debug)]
pub enum Timeout<'r> {
    /// So many seconds, as the client wrote it; 0 is for ever.
    Seconds(&'r [u8]),
    /// So many milliseconds; 0 is for ever.
    Milliseconds(u64),
    /// Not at all.
    None,
}

/// Takes something from the keys of a request, or from these alone.
pub(crate) type Take =
    for<'r> fn(&mut Transaction<'_>, Request<'_>, Only<'_>, Reply<'r>) -> Result<Taken<'r>>;

/// The keys of a request that have changed, for a client that waits; `None` for all of its keys.
pub(crate) type Only<'k> = Option<&'k [&'k [u8]]>;

/// Whether a request is to look at this key.
pub(crate) fn looks_at(only: Only<'_>, key: &[u8]) -> bool {
    only.is_none_or(|only| only.contains(&key))
}

/// The result of a blocking command.
#[derive(Debug)]
pub enum Taken<'r> {
    /// The reply is written.
    Something(Sent),
    /// There is nothing to take. The command may still reply.
    Nothing(Reply<'r>),
}
