//! The Redis serialization protocol as bytes: what clients send, and the replies.
//!
//! This module knows no command. [`request`] cuts the stream of a client into requests. It copies nothing,
//! and trusts no length that the stream announces. [`reply`] writes one reply straight into the output
//! buffer; [`tree`] writes nested ones as frames of the crate `redis-protocol`, for both versions of the
//! protocol from one description.
//!
//! Specification: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

pub(crate) mod number;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod shortest;
pub mod tree;

pub(crate) use reply::Nested;
pub use reply::{Reply, Sent};
pub(crate) use request::words;
pub use request::{Limits, OwnedRequest, ProtocolError, Request, RequestReader};

/// The version of the protocol that a connection speaks; HELLO chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, what every connection begins with.
    #[default]
    Resp2,
    /// RESP3: maps, sets, verbatim strings, one null.
    Resp3,
}

impl Protocol {
    /// The number that HELLO and CLIENT LIST print.
    pub fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}
