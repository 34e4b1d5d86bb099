//! The requests of clients about a lock, the replies, and what both mean for the model of a key.

use std::fmt;

use crate::linear::register::{self, Moment, Operation, Token};

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// LOCK ACQUIRE, with its lifetime, and how long the client waits; both in milliseconds. With AGAIN, if
    /// it may hold the lock already.
    Acquire { token: Token, lifetime_ms: u64, wait_ms: Option<u64>, is_again: bool },
    /// LOCK EXTEND, with the new lifetime.
    Extend { token: Token, lifetime_ms: u64 },
    /// LOCK RELEASE, by this token.
    Release(Token),
    /// LOCK FENCE: the number of this token.
    Fence(Token),
    /// SET NX PX, as other libraries take a lock.
    SetNx { token: Token, lifetime_ms: u64 },
    /// The script of Redlock: deletes the key if it has the token.
    DeleteIfEq(Token),
    /// GET.
    Get,
    /// DEL.
    Del,
}

/// The reply that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    /// A fencing number, or nil.
    Number(Option<u64>),
    /// Whether anything was done.
    Done(bool),
    /// What was there.
    Found(Option<Token>),
    /// Nothing: the connection ended.
    Lost,
}

/// A request and its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) connection: usize,
    /// The number of the client, as the server knows it.
    pub(super) client: u64,
    /// The server that was asked: one of those that show the same keys.
    pub(super) front: usize,
    pub(super) key: usize,
    pub(super) request: Request,
    pub(super) answer: Answer,
    pub(super) sent: Moment,
    /// When the reply came; if it was lost, from when on the request certainly has no effect any more.
    pub(super) ended: Option<Moment>,
    /// From when on the client certainly stood in line, in nanoseconds.
    pub(super) stood_ns: Option<u64>,
    /// From when on something else may have ended its wait: it has left, or was unblocked.
    pub(super) left_ns: Option<u64>,
    /// Whether it was a part of a transaction or of a script.
    pub(super) is_wrapped: bool,
    /// Whether the lock is bound to the connection, so that it does not expire while that lives.
    pub(super) is_bound: bool,
}

/// How late a key may expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// To the millisecond.
    Exact,
    /// Some time after its moment, but not before.
    Late,
}

impl Told {
    /// The end of a connection, which has freed a lock that was bound to it, or will.
    pub(super) fn unbound(
        connection: usize,
        key: usize,
        token: Token,
        (sent, ended): (Moment, Option<Moment>),
    ) -> Told {
        Told {
            connection,
            client: 0,
            front: 0,
            key,
            request: Request::DeleteIfEq(token),
            answer: Answer::Lost,
            sent,
            ended,
            stood_ns: None,
            left_ns: None,
            is_wrapped: false,
            is_bound: false,
        }
    }

    pub(super) fn ended_ns(&self) -> u64 {
        self.ended.map_or(u64::MAX, |ended| ended.nanos)
    }

    /// The number that the reply shows.
    pub(super) fn number(&self) -> Option<u64> {
        match self.answer {
            Answer::Number(number) => number,
            _ => None,
        }
    }

    /// How long the client waits, if it does.
    pub(super) fn wait_ms(&self) -> Option<u64> {
        match self.request {
            Request::Acquire { wait_ms, .. } => wait_ms,
            _ => None,
        }
    }

    /// The token of a request that takes a lock which gets a number.
    pub(super) fn token(&self) -> Option<Token> {
        match self.request {
            Request::Acquire { token, .. } => Some(token),
            _ => None,
        }
    }

    /// Whether it takes a lock that gets a number.
    pub(super) fn is_acquire(&self) -> bool {
        matches!(self.request, Request::Acquire { .. })
    }

    /// The token that the reply shows to hold the lock at some moment until it came.
    pub(super) fn shown(&self) -> Option<Token> {
        match (self.request, self.answer) {
            (_, Answer::Found(found)) => found,
            (
                Request::Acquire { token, .. } | Request::Extend { token, .. } | Request::Fence(token),
                Answer::Number(Some(_)),
            ) => Some(token),
            (
                Request::Release(token) | Request::DeleteIfEq(token) | Request::SetNx { token, .. },
                Answer::Done(true),
            ) => Some(token),
            _ => None,
        }
    }

    /// The same for the model of a key, which knows no numbers.
    pub(super) fn operation(&self, expiry: Expiry) -> Operation {
        let request = match self.request {
            Request::Acquire { token, lifetime_ms, .. } | Request::SetNx { token, lifetime_ms } => {
                register::Request::SetNx(token, Some(lifetime_ms).filter(|_| !self.is_bound))
            }
            Request::Extend { token, lifetime_ms } => register::Request::ExtendIfEq(token, lifetime_ms),
            Request::Release(token) | Request::DeleteIfEq(token) => register::Request::DelIfEq(token),
            Request::Fence(token) => register::Request::Holds(token),
            Request::Get => register::Request::Get,
            Request::Del => register::Request::Del,
        };
        let answer = match self.answer {
            Answer::Number(number) => register::Answer::Done(number.is_some()),
            Answer::Done(is_done) => register::Answer::Done(is_done),
            Answer::Found(found) => register::Answer::Found(found),
            Answer::Lost => register::Answer::Lost,
        };
        let ended = self.ended.map(|ended| match expiry {
            Expiry::Exact => ended,
            Expiry::Late => Moment { next_ms: ended.next_ms + LATE_MS, ..ended },
        });
        let Told { connection, key, sent, .. } = *self;
        Operation { connection, key, request, answer, sent, ended }
    }
}

/// Longer than any history.
const LATE_MS: u64 = 1_000_000_000;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { connection, front, key, request, answer, sent, stood_ns, left_ns, .. } = self;
        write!(f, "connection {connection} of {front}, key {key}: {request:?} -> {answer:?}, ")?;
        write!(f, "{}µs ({}ms) to ", sent.nanos / 1000, sent.wall_ms)?;
        if let Some(ended) = self.ended {
            write!(f, "{}µs ({}ms)", ended.nanos / 1000, ended.wall_ms)?;
        }
        for (what, nanos) in [("stood", stood_ns), ("left", left_ns)] {
            if let Some(nanos) = nanos {
                write!(f, ", {what} {}µs", nanos / 1000)?;
            }
        }
        Ok(())
    }
}
