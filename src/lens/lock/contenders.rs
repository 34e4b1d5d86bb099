//! Clients that want a lock which another has: those that were refused, and those that wait. And the tokens
//! that they have sent, so that the token of a stranger is recognised.

use std::sync::Arc;

use super::{Lock, Wrong};
use crate::clients::Who;
use crate::keyspace::LockNews;
use crate::lens::cause::Cause;
use crate::lens::metrics::Name;
use crate::lens::rules::Rule;
use crate::lens::timeline::{REFUSED, WAITS, What};

/// Refused clients that are kept of each lock.
const REFUSED_MAX: usize = 8;

/// A client that did not get a lock at once.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The client, as it was at its last attempt.
    pub who: Arc<Who>,
    /// How many attempts failed since the lock is followed. One that waits in line has not failed.
    pub times: u64,
    /// When the last attempt was, in milliseconds since 1970.
    pub last_ms: u64,
    /// When it was that the client sent a token of its own; 0 for never.
    own_ms: u64,
}

/// The tokens with which clients have taken a lock, or tried to: the last 64 and up to 64 before, each as two
/// bits of a set. So a token that is not there is unknown for certain, if it is not older.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KnownTokens {
    newest: [u64; 8],
    older: [u64; 8],
    count: u8,
}

impl KnownTokens {
    const MAX: u8 = 64;

    pub(super) fn add(&mut self, token: u64) {
        if Self::bits(token).all(|(word, bit)| self.newest[word] & bit != 0) {
            return;
        }
        if self.count == Self::MAX {
            *self = KnownTokens { older: self.newest, ..KnownTokens::default() };
        }
        self.count += 1;
        Self::bits(token).for_each(|(word, bit)| self.newest[word] |= bit);
    }

    pub(super) fn has(&self, token: u64) -> bool {
        [self.newest, self.older].iter().any(|set| Self::bits(token).all(|(word, bit)| set[word] & bit != 0))
    }

    /// The two bits of a token, by different parts of its digest.
    fn bits(token: u64) -> impl Iterator<Item = (usize, u64)> {
        [token, token >> 32].into_iter().map(|part| ((part >> 6) as usize % 8, 1 << (part % 64)))
    }
}

impl Lock {
    /// Notes the token of a client.
    pub(super) fn remember(&mut self, token: u64) {
        self.known.get_or_insert_default().add(token);
    }

    /// Whether a client is known to have had this token.
    pub(super) fn knows(&self, token: u64) -> bool {
        self.had(token) || self.known.as_ref().is_some_and(|known| known.has(token))
    }

    /// Whether this client has tried to take the lock from its present holder.
    pub(super) fn has_refused(&self, client: u64) -> bool {
        let since_ms = self.tenure.since_ms;
        self.refused_by.iter().any(|refused| refused.who.id == client && refused.last_ms >= since_ms)
    }

    /// Whether a client has tried to take the lock from its present holder.
    pub(super) fn is_contended(&self) -> bool {
        self.refused_by.iter().any(|refused| refused.last_ms >= self.tenure.since_ms)
    }

    /// An attempt to take it failed.
    pub(super) fn refuse(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        self.contend(news, cause, REFUSED)
    }

    /// A client wants it that another has. If no client can take it any more, that is worth a line in the
    /// log.
    pub(super) fn contend(&mut self, news: &LockNews, cause: &Cause<'_>, what: What) -> Option<Wrong> {
        let was_quiet = self.is_quiet(Rule::NoExpiry);
        let failed = u64::from(what != WAITS);
        self.refused += failed;
        if let Some(metrics) = &self.metrics {
            let names = cause.shown().map(Name::Token).chain([Name::Connection(cause.who.id)]);
            metrics.note_wanted(names, self.hash, news.at_ms, what == WAITS);
        }
        cause.shown().for_each(|token| self.remember(token));
        let at = self.refused_by.iter().position(|refused| refused.who.id == cause.who.id);
        let mut refused = match at {
            Some(at) => self.refused_by.remove(at),
            None => Refused { who: Arc::clone(&cause.who), times: 0, last_ms: 0, own_ms: 0 },
        };
        refused.times += failed;
        refused.last_ms = news.at_ms;
        // What all clients write is no token.
        if !cause.shows(self.tenure.token.digest) {
            let before_ms = std::mem::replace(&mut refused.own_ms, news.at_ms);
            self.evidence.note_asked(before_ms, news.at_ms, self.tenure.since_ms);
        }
        if self.refused_by.len() == REFUSED_MAX {
            self.refused_by.remove(0);
        }
        self.refused_by.push(refused);
        self.step(news, cause, what);
        let is_stuck = self.is_held() && self.tenure.has_left && self.tenure.is_for_ever();
        if self.field.is_some() {
            return self.wrong(is_stuck, Rule::NoExpiry, cause);
        }
        let is_worth_a_line = is_stuck && was_quiet && !self.is_quiet(Rule::NoExpiry);
        is_worth_a_line.then(|| Wrong { is_known: true, ..self.describe(Rule::NoExpiry, cause) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::digest;

    #[test]
    fn the_last_tokens_are_known_and_few_others() {
        let token = |number: u32| digest(&number.to_le_bytes());
        let mut known = KnownTokens::default();
        assert!(!known.has(token(0)));
        for number in 0..1000 {
            known.add(token(number));
            assert!((number.saturating_sub(63)..=number).all(|number| known.has(token(number))));
        }
        let strange = (2000..3000).filter(|number| known.has(token(*number))).count();
        assert!(strange < 200, "{strange} of 1000 count as known");
    }
}
