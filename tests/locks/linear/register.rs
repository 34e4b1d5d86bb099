//! A model of one key: requests, replies, and their effects.
//!
//! Time is what makes it interesting. A client does not know when the server looked at its clock, only that
//! it was between sending and being answered; so an expiry is a span, within which a key may be there or not.
//! What is told here is as strict as that allows, and no stricter.

use std::fmt;

/// What a key holds. Every write of a history writes a token of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Token(pub(super) u32);

impl Token {
    /// Any value that was written, but whose writer got no reply, and that was never read.
    pub(super) const UNSEEN: Token = Token(0);
}

/// How long a key is to live, in milliseconds.
pub(super) type Lifetime = Option<u64>;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// GET.
    Get,
    /// GETEX PX, with milliseconds.
    GetEx(u64),
    /// GETSET.
    GetSet(Token),
    /// SET, with or without PX.
    Set(Token, Lifetime),
    /// SETNX, or SET NX PX.
    SetNx(Token, Lifetime),
    /// DEL.
    Del,
    /// DELIFEQ.
    DelIfEq(Token),
    /// PEXPIRE, with milliseconds.
    Expire(u64),
    /// LOCK EXTEND: milliseconds, if the key has this token.
    ExtendIfEq(Token, u64),
    /// LOCK ACQUIRE with AGAIN of the holder: the later of its end and of these milliseconds.
    ProlongIfEq(Token, u64),
    /// LOCK FENCE: whether the key has this token.
    Holds(Token),
    /// EXEC of a SET, if the key is as it was when it was watched and read: with this token, or absent.
    Swap(Option<Token>, Token),
}

/// The reply that a client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Whether anything was done: 1 or OK, and 0 or nil.
    Done(bool),
    /// What was there.
    Found(Option<Token>),
    /// Nothing: the connection ended.
    Lost,
}

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Nanoseconds of a clock that never goes back: what came first.
    pub(super) nanos: u64,
    /// Milliseconds of the clock by which keys expire.
    pub(super) wall_ms: u64,
    /// The same, rounded up, as the moment of an expiry is.
    pub(super) next_ms: u64,
}

impl Moment {
    /// Before all others.
    pub(super) const BEGINNING: Moment = Moment { nanos: 0, wall_ms: 0, next_ms: 0 };
}

/// A moment that never comes.
const NEVER_MS: u64 = u64::MAX;

/// One request on one key, and its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) connection: usize,
    pub(super) key: usize,
    pub(super) request: Request,
    pub(super) answer: Answer,
    pub(super) sent: Moment,
    /// When it was answered, or had been done at the latest. One that was lost may never have been done.
    pub(super) ended: Option<Moment>,
}

/// What is there: a token, and from when on it may be gone and must be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) token: Token,
    may_be_gone_ms: u64,
    must_be_gone_ms: u64,
}

/// A key, or its absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Register {
    pub(super) held: Option<Held>,
    /// The clock shows at least this, since something had expired by then. It does not go back.
    pub(super) now_ms: u64,
}

impl Operation {
    /// What the operation makes of a key, if it can have been answered as it was.
    ///
    /// A key that may be gone is taken to be there where that will do: then it may still turn out to be gone.
    /// What was lost may have been done or not; it is taken to have done what it could.
    pub(super) fn apply(&self, register: Register) -> Option<Register> {
        if register.now_ms > self.latest_ms() {
            return None;
        }
        let there = register.held.filter(|held| self.sent.wall_ms < held.must_be_gone_ms);
        let after = there.and_then(|held| self.apply_to_present(held));
        if let Some(held) = after {
            return Some(Register { held, ..register });
        }
        let gone_ms = register.held.map_or(0, |held| held.may_be_gone_ms);
        let after = self.apply_to_absent().filter(|_| gone_ms <= self.latest_ms());
        match after {
            Some(held) => Some(Register { held, now_ms: register.now_ms.max(gone_ms) }),
            None => (self.answer == Answer::Lost).then_some(register),
        }
    }

    fn apply_to_present(&self, held: Held) -> Option<Option<Held>> {
        let after = match self.request {
            Request::Get if self.may_say(Answer::Found(Some(held.token))) => Some(held),
            Request::GetEx(ms) if self.may_say(Answer::Found(Some(held.token))) => {
                self.write(held.token, Some(ms))
            }
            Request::GetSet(token) if self.may_say(Answer::Found(Some(held.token))) => {
                self.write(token, None)
            }
            Request::Set(token, lifetime) => self.write(token, lifetime),
            Request::SetNx(..) if self.answer == Answer::Done(false) => Some(held),
            Request::Del if self.may_say(Answer::Done(true)) => None,
            Request::DelIfEq(token) if token != held.token && self.may_say(Answer::Done(false)) => Some(held),
            Request::DelIfEq(token) if token == held.token && self.may_say(Answer::Done(true)) => None,
            Request::Expire(ms) if self.may_say(Answer::Done(true)) => self.write(held.token, Some(ms)),
            Request::ExtendIfEq(token, ms) if token == held.token && self.may_say(Answer::Done(true)) => {
                self.write(token, Some(ms))
            }
            Request::ProlongIfEq(token, ms) if token == held.token && self.may_say(Answer::Done(true)) => {
                let later = self.write(token, Some(ms)).unwrap_or(held);
                Some(Held {
                    token,
                    may_be_gone_ms: held.may_be_gone_ms.max(later.may_be_gone_ms),
                    must_be_gone_ms: held.must_be_gone_ms.max(later.must_be_gone_ms),
                })
            }
            Request::ExtendIfEq(token, _) | Request::Holds(token)
                if self.may_say(Answer::Done(token == held.token)) =>
            {
                Some(held)
            }
            Request::Swap(..) if self.answer == Answer::Done(false) => Some(held),
            Request::Swap(Some(seen), token) if seen == held.token => self.write(token, None),
            _ => return None,
        };
        Some(after)
    }

    fn apply_to_absent(&self) -> Option<Option<Held>> {
        let after = match self.request {
            Request::Get | Request::GetEx(_) if self.may_say(Answer::Found(None)) => None,
            Request::GetSet(token) if self.may_say(Answer::Found(None)) => self.write(token, None),
            Request::Set(token, lifetime) => self.write(token, lifetime),
            Request::SetNx(token, lifetime) if self.may_say(Answer::Done(true)) => {
                self.write(token, lifetime)
            }
            Request::Del
            | Request::DelIfEq(_)
            | Request::Expire(_)
            | Request::ExtendIfEq(..)
            | Request::Holds(_)
                if self.may_say(Answer::Done(false)) =>
            {
                None
            }
            Request::Swap(..) if self.answer == Answer::Done(false) => None,
            Request::Swap(None, token) => self.write(token, None),
            _ => return None,
        };
        Some(after)
    }

    /// Whether this was the answer, or may have been.
    fn may_say(&self, answer: Answer) -> bool {
        self.answer == answer || self.answer == Answer::Lost
    }

    fn latest_ms(&self) -> u64 {
        self.ended.map_or(NEVER_MS - 1, |ended| ended.wall_ms)
    }

    fn write(&self, token: Token, lifetime: Lifetime) -> Option<Held> {
        let latest_ms = self.ended.map_or(NEVER_MS - 1, |ended| ended.next_ms);
        let span = |lifetime_ms| (self.sent.wall_ms + lifetime_ms, latest_ms.saturating_add(lifetime_ms));
        let (may_be_gone_ms, must_be_gone_ms) = lifetime.map_or((NEVER_MS, NEVER_MS), span);
        Some(Held { token, may_be_gone_ms, must_be_gone_ms })
    }

    /// Whether it was answered as one is who only looks: wherever it may be answered so, it changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        match self.answer {
            Answer::Done(is_done) => !is_done || matches!(self.request, Request::Holds(_)),
            Answer::Found(found) => match self.request {
                Request::Get => true,
                Request::GetEx(_) => found.is_none(),
                _ => false,
            },
            Answer::Lost => false,
        }
    }

    /// The token that it writes, or would.
    pub(super) fn written(&self) -> Option<Token> {
        match self.request {
            Request::GetSet(token)
            | Request::Set(token, _)
            | Request::SetNx(token, _)
            | Request::Swap(_, token) => Some(token),
            _ => None,
        }
    }

    /// The token that it has shown to be there.
    pub(super) fn observed(&self) -> Option<Token> {
        match (self.request, self.answer) {
            (_, Answer::Found(found)) => found,
            (
                Request::DelIfEq(token)
                | Request::ExtendIfEq(token, _)
                | Request::ProlongIfEq(token, _)
                | Request::Holds(token),
                Answer::Done(true),
            ) => Some(token),
            (Request::Swap(seen, _), Answer::Done(true)) => seen,
            _ => None,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operation { connection, key, request, answer, sent, ended } = self;
        let ended =
            ended.map_or(String::new(), |ended| format!("{}µs ({}ms)", ended.nanos / 1000, ended.wall_ms));
        write!(f, "connection {connection}, key {key}: {request:?} -> {answer:?}, ")?;
        write!(f, "{}µs ({}ms) to {ended}", sent.nanos / 1000, sent.wall_ms)
    }
}
