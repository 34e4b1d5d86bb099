//! Holders that come back when their lock has ended, and clients that come with a token of none.
//!
//! A holder comes back by its token, or by its connection if it acts without one. Some scripts both take and
//! renew: a holder that comes back by such a script is late only if it has renewed by it before. Some holders
//! only read the key first, and do nothing more if another has it.

use super::{Lock, Wrong};
use crate::keyspace::LockNews;
use crate::lens::cause::Cause;
use crate::lens::rules::Rule;
use crate::lens::tenure::{End, Tenure};
use crate::lens::timeline::OF_ANOTHER;

impl Lock {
    /// Checks whether the client held the lock before and no longer does.
    pub(super) fn came_back(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        if self.is_held() && cause.shows(self.tenure.token.digest) || self.is_taken_by(cause.script_id()) {
            return None;
        }
        if let Some(covered) = self.tenure.covered.filter(|_| self.is_held())
            && cause.compares()
            && cause.shows(covered)
        {
            return self.wrong(true, Rule::OverwrittenByHolder, cause);
        }
        let acts = cause.acts();
        if self.is_hash() && !acts && !cause.looks() || cause.script.is_some_and(|script| !script.acts) {
            return None;
        }
        // Threads with different tokens may share a connection, so a token tells more than a connection.
        let means = |tenure: &&mut Tenure| tenure.ended.is_some() && tenure.is_meant_by(cause);
        let shown = std::iter::once(&mut self.tenure).chain(&mut self.past).find(means).is_some();
        let is_present_holder = self.is_held() && self.tenure.holder.id == cause.who.id;
        // A script that renews the locks of many jobs has their tokens in one argument, where none is shown.
        let renewed = |tenure: &Tenure| tenure.holder.id == cause.who.id && tenure.is_renewed_by(cause);
        let mut tenures = std::iter::once(&self.tenure).chain(&self.past);
        let renews = !is_present_holder && tenures.any(|tenure| tenure.ended.is_some() && renewed(tenure));
        if !shown && !renews && (!acts || is_present_holder || cause.compares()) {
            return self.meet_stranger(cause);
        }
        let is_him = |tenure: &&mut Tenure| {
            let is_him = if shown { tenure.is_meant_by(cause) } else { tenure.holder.id == cause.who.id };
            tenure.ended.is_some() && is_him
        };
        let (is_hash, last_fence) = (self.is_hash(), self.tenure.fence);
        let tenure = std::iter::once(&mut self.tenure).chain(&mut self.past).find(is_him)?;
        let ended = tenure.ended?;
        let rule = match ended.how {
            End::Expired | End::Flushed | End::Evicted => tenure.lost_by()?,
            // A renewal may come just behind the release. It is another script. Once another client has had
            // the lock, a client with one token for all its locks may mean another attempt than the one it
            // had.
            End::Released if ended.at_ms <= news.at_ms && tenure.fence == last_fence => {
                let is_again = match cause.script_id() {
                    None => cause.deletes(),
                    script => script == ended.script && !is_hash,
                };
                let is_same = ended.by == cause.who.id || shown && tenure.token.is_long;
                (is_again && is_same).then_some(Rule::ReleasedTwice)?
            }
            _ => return None,
        };
        if !tenure.tell_once(rule) {
            return None;
        }
        Some(self.describe(rule, cause))
    }

    /// A script that takes the lock has found that another has it: its client was refused, unless it has
    /// renewed the lock by this script before.
    pub(super) fn turn_away(&mut self, news: &LockNews, cause: &Cause<'_>) -> Option<Wrong> {
        let Some(rule) = self.renews_too_late(cause) else { return self.refuse(news, cause) };
        self.step(news, cause, OF_ANOTHER);
        Some(self.describe(rule, cause))
    }

    fn renews_too_late(&mut self, cause: &Cause<'_>) -> Option<Rule> {
        // A hash may be taken once more by the script that takes it.
        if self.is_hash() || cause.shows(self.tenure.token.digest) {
            return None;
        }
        let tenure = self.past.iter_mut().find(|tenure| tenure.is_meant_by(cause))?;
        let rule = tenure.lost_by().filter(|_| tenure.is_renewed_by(cause))?;
        tenure.tell_once(rule).then_some(rule)
    }

    /// Checks who takes the lock, before it passes to `next`: a holder that renews it by a script which takes
    /// it, since it has expired meanwhile; or a connection that has the token of another.
    pub(in crate::lens) fn judge_next(
        &mut self,
        news: &LockNews,
        cause: &Cause<'_>,
        next: &Tenure,
    ) -> Option<Wrong> {
        let is_same = self.tenure.token.digest == next.token.digest;
        if !self.is_hash() && is_same && self.tenure.is_meant_by(cause) && self.tenure.is_renewed_by(cause) {
            // A holder renews at least once in the time that the lock lasts.
            let renewed_ms = self.tenure.renewals.last_ms.unwrap_or_default();
            let lasts_ms = self.tenure.expires_at_ms.unwrap_or_default().saturating_sub(renewed_ms);
            let is_soon = self.tenure.ended.is_some_and(|ended| news.at_ms < ended.at_ms + lasts_ms);
            if let Some(rule) = self.tenure.lost_by().filter(|_| is_soon) {
                return self.wrong(true, rule, cause);
            }
        }
        let is_of_script = next.token.is_long && cause.is_script();
        let mut tenures = std::iter::once(&self.tenure).chain(&self.past);
        let is_shared = tenures.any(|tenure| {
            let is_compared = self.evidence.is_compared || tenure.was_compared;
            // A process may have one token for all its connections, one after the other.
            let is_of_another = tenure.holder.id != next.holder.id && !tenure.client_is_gone;
            is_compared && is_of_another && tenure.token.digest == next.token.digest
        });
        // A process may have one token for all its connections, and a script for which it is its name.
        if !is_shared || self.is_hash() || is_of_script || std::mem::replace(&mut self.told_shared, true) {
            return None;
        }
        let wrong = self.describe(Rule::TokenNotUnique, cause);
        Some(Wrong { is_quiet: wrong.is_quiet || next.token.is_long, ..wrong })
    }

    /// A client has read the lock: a holder that has lost it and looks before it releases or renews it, or a
    /// client to which the key is something else.
    pub(super) fn look_first(&mut self, cause: &Cause<'_>) -> Option<Wrong> {
        if !self.is_held() || cause.acts() || cause.is_grouped {
            return None;
        }
        let client = cause.who.id;
        if self.tenure.holder.id == client {
            self.tenure.was_looked_at = true;
            return None;
        }
        let Some(tenure) = self.past.iter_mut().find(|tenure| tenure.holder.id == client) else {
            self.is_read_by_others = true;
            return None;
        };
        // What programs make and read again, and read from each other, is rather an entry of a cache.
        let is_value = self.is_read_by_others || tenure.was_looked_at;
        // A short one is rather a token if releases compare it.
        let is_no_number = self.evidence.is_compared && !tenure.token.is_small_number;
        let is_token = tenure.token.is_word && (tenure.token.is_long || is_no_number);
        let rule = tenure.lost_by().filter(|_| is_token)?;
        if is_value && self.evidence().is_none() {
            return None;
        }
        let tenure = self.past.iter_mut().find(|tenure| tenure.holder.id == client)?;
        tenure.tell_once(rule).then(|| self.describe(rule, cause))
    }

    /// A client compares in order to release a lock, and shows no token of a holder. Nor did one ever try to
    /// take the lock by it, as far as is known.
    fn meet_stranger(&mut self, cause: &Cause<'_>) -> Option<Wrong> {
        if self.is_hash() || !self.is_held() || cause.settles_it {
            return None;
        }
        let tokens = cause.releases_by(self.tenure.token);
        if tokens.is_empty() || tokens.into_iter().any(|token| self.knows(token)) {
            return None;
        }
        let wrong = self.wrong(true, Rule::ReleasedByStranger, cause)?;
        // Another client may clean up after an attempt that has never come. And a code that users type in is
        // compared, too, and sometimes it is the wrong one.
        let is_holder = self.tenure.holder.id == cause.who.id;
        Some(Wrong { is_quiet: !is_holder || !self.evidence.is_more_than_compared(), ..wrong })
    }
}
