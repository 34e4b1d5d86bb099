//! What a client may send, and the errors of streams that break these limits or the protocol.

use std::fmt;

/// An inline request, or the line that holds a length, in bytes. Redis: `PROTO_INLINE_MAX_SIZE`.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// The arguments of one request. What Redis documents as its limit; each takes eight bytes here once it came.
pub(crate) const ARGUMENTS_MAX: usize = 1 << 20;

/// What a client may send. Two of the limits are tighter before it has authenticated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one argument (`proto-max-bulk-len`).
    pub bulk_bytes_max: usize,
    /// Whether the client may send only what authentication takes: ten arguments of 16 KiB.
    pub unauthenticated: bool,
}

impl Limits {
    pub(super) const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
    pub(super) const UNAUTHENTICATED_BULK_BYTES_MAX: i64 = 16 << 10;

    /// What any argument may have, whatever else is to be said about it.
    pub(super) fn plain_bulk_bytes_max(&self) -> usize {
        self.bulk_bytes_max.min(Limits::UNAUTHENTICATED_BULK_BYTES_MAX as usize)
    }
}

/// Why a stream cannot be read further. Its text is what Redis replies before it closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The number after `*` is none, or too large; or more arguments came than a request may have.
    InvalidArrayLength,
    /// The number after `$` is none, negative, or above the limit.
    InvalidBulkLength,
    /// Something other than `$` where an argument should begin.
    ExpectedBulk(u8),
    /// A line beginning with `*` that does not end in time.
    ArrayLineTooLong,
    /// A line beginning with `$` that does not end in time.
    BulkLineTooLong,
    /// An inline request that does not end in time.
    InlineTooLong,
    /// An inline request whose quotes do not match.
    UnbalancedQuotes,
    /// More arguments than a client may send before it authenticates.
    UnauthenticatedArrayLength,
    /// A longer argument than a client may send before it authenticates.
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// The text as bytes: the one byte it may quote need not be UTF-8.
    pub fn message(&self) -> Vec<u8> {
        self.to_string().chars().map(|character| character as u8).collect()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ERR Protocol error: ")?;
        match self {
            ProtocolError::InvalidArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::InvalidBulkLength => f.write_str("invalid bulk length"),
            ProtocolError::ExpectedBulk(b'\r' | b'\n') => f.write_str("expected '$', got ' '"),
            ProtocolError::ExpectedBulk(byte) => write!(f, "expected '$', got '{}'", char::from(*byte)),
            ProtocolError::ArrayLineTooLong => f.write_str("too big mbulk count string"),
            ProtocolError::BulkLineTooLong => f.write_str("too big bulk count string"),
            ProtocolError::InlineTooLong => f.write_str("too big inline request"),
            ProtocolError::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::UnauthenticatedArrayLength => f.write_str("unauthenticated multibulk length"),
            ProtocolError::UnauthenticatedBulkLength => f.write_str("unauthenticated bulk length"),
        }
    }
}
