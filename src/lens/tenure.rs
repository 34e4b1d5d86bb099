//! The time for which one client holds a lock, and how it ends.

use std::sync::Arc;

use super::cause::Cause;
use super::rules::Rule;
use crate::clients::Who;
use crate::keyspace::{LockChange, LockNews, Token};

/// The time for which one client holds a lock.
#[derive(Clone, Debug)]
pub struct Tenure {
    /// The client that holds it, or held it.
    pub holder: Arc<Who>,
    /// The fencing number, which grows from one holder of a lock to the next.
    pub fence: u64,
    /// The command by which the client took the lock.
    pub command: &'static str,
    /// When the client took it, in milliseconds since 1970.
    pub since_ms: u64,
    /// When it expires, in milliseconds since 1970; `None` for never.
    pub expires_at_ms: Option<u64>,
    /// The token of its value.
    pub token: Token,
    /// For a hash, its field and the number in it.
    pub entered: Option<Entered>,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
    /// How often its holder has renewed it, and when for the last time.
    pub renewals: Renewals,
    /// Whether it is a sorted set.
    pub(super) is_set: bool,
    /// The script that took it, if one did.
    pub(super) script: Option<u64>,
    /// The token that its holder had before it wrote something else over it.
    pub(super) covered: Option<u64>,
    /// Whether its holder has looked at it, and has done nothing with it since.
    pub(super) was_looked_at: bool,
    /// Whether a request that compared the token has released it.
    pub(super) was_compared: bool,
    /// Whether it had an expiry when it was taken.
    pub(super) was_dated: bool,
    pub(super) was_grouped: bool,
    /// Whether the client has disconnected while it held the lock.
    pub(super) has_left: bool,
    /// Whether the client has disconnected, at whatever time.
    pub(super) client_is_gone: bool,
    /// For how long it was taken, in milliseconds; 0 if it had no expiry.
    lease_ms: u64,
    told: u32,
}

/// A hash that is a lock.
#[derive(Clone, Debug)]
pub struct Entered {
    /// Its field, cut if it is long: the holder's token.
    pub owner: Box<[u8]>,
    /// How often its holder has taken it without releasing it.
    pub depth: u64,
}

/// Renewals of a lock by its holder.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewals {
    /// How many there were.
    pub times: u64,
    /// When the last one was, in milliseconds since 1970.
    pub last_ms: Option<u64>,
    /// The script of the last one, if a script did it.
    script: Option<u64>,
}

/// How the time for which a client holds a lock ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its holder released it, or another client that knew its value.
    Released,
    /// Its holder had disconnected, no client had tried to take it, and another client deleted it.
    ReleasedElsewhere,
    /// Another client deleted it.
    Deleted,
    /// The lock expired.
    Expired,
    /// Another client broke it, as an administrator.
    Broken,
    /// Another client took it over.
    TakenOver,
    /// Another client wrote its own value into it.
    Overwritten,
    /// All keys were removed.
    Flushed,
    /// It was evicted, since memory was short.
    Evicted,
    /// The end was not seen.
    Unseen,
}

impl End {
    /// The ends by which a holder loses its lock.
    pub(crate) const LOSSES: [End; 7] = [
        End::Expired,
        End::Deleted,
        End::Broken,
        End::TakenOver,
        End::Overwritten,
        End::Flushed,
        End::Evicted,
    ];

    /// Its name in LOCKS GET.
    pub fn name(self) -> &'static str {
        match self {
            End::Released => "released",
            End::ReleasedElsewhere => "released-elsewhere",
            End::Deleted => "deleted-by-another",
            End::Expired => "expired",
            End::Broken => "broken",
            End::TakenOver => "taken-over",
            End::Overwritten => "overwritten-by-another",
            End::Flushed => "flushed",
            End::Evicted => "evicted",
            End::Unseen => "unseen",
        }
    }
}

/// The end of the time for which a client holds a lock.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The kind of end.
    pub how: End,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    /// The number of the client that ended it; 0 if no client did.
    pub by: u64,
    /// The script that ended it, if one did.
    pub(super) script: Option<u64>,
}

impl Tenure {
    pub(super) fn new(
        news: &LockNews,
        cause: &Cause<'_>,
        fence: u64,
        mut token: Token,
        expires_at_ms: Option<u64>,
    ) -> Tenure {
        /// Clocks of clients go before by less, and locks last longer.
        const AHEAD_MS: u64 = 1000;
        // A moment is an expiry that clients agree upon only if it is to come, and if the key has no expiry
        // of its own. Otherwise it is a token like any other.
        let is_expiry = |stamp_ms: &u64| expires_at_ms.is_none() && *stamp_ms >= news.at_ms + AHEAD_MS;
        token.stamp_ms = token.stamp_ms.filter(is_expiry);
        let is_hash = matches!(news.change, LockChange::TakenAsHash { .. });
        let is_renewed = matches!(news.change, LockChange::Renewed { .. });
        let owner = news.name.clone().filter(|_| is_hash);
        Tenure {
            holder: Arc::clone(&cause.who),
            fence,
            command: cause.command,
            since_ms: news.at_ms,
            expires_at_ms,
            token,
            entered: owner.map(|owner| Entered { owner, depth: 1 }),
            ended: None,
            renewals: Renewals::default(),
            is_set: matches!(news.change, LockChange::TakenAsSet { .. }),
            // A script that renews does not take.
            script: cause.script_id().filter(|_| !is_renewed),
            covered: None,
            was_looked_at: false,
            was_compared: false,
            was_dated: expires_at_ms.is_some(),
            was_grouped: cause.is_grouped,
            has_left: false,
            client_is_gone: false,
            lease_ms: expires_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(news.at_ms)),
            told: 0,
        }
    }

    /// Whether the value is the expiry that clients agree upon.
    pub(super) fn is_stamped(&self) -> bool {
        self.token.stamp_ms.is_some() && self.expires_at_ms.is_none()
    }

    /// Whether the value is the expiry that clients agree upon, and has passed.
    pub(super) fn stamp_has_passed(&self, now_ms: u64) -> bool {
        self.is_stamped() && self.token.stamp_ms.is_some_and(|stamp_ms| stamp_ms <= now_ms)
    }

    /// Whether it never ends by itself.
    pub(super) fn is_for_ever(&self) -> bool {
        self.expires_at_ms.is_none() && !self.is_stamped()
    }

    /// Whether the value tells that a client means this holder. A short one may be the same for all clients,
    /// so it is a holder's only if it comes from the holder's connection.
    pub(super) fn is_meant_by(&self, cause: &Cause<'_>) -> bool {
        (self.token.is_long || self.holder.id == cause.who.id) && cause.shows(self.token.digest)
    }

    /// Notes that the holder has renewed it: for [`Lock::renew`](super::Lock), which counts it, too.
    pub(super) fn note_renewal(&mut self, cause: &Cause<'_>, at_ms: u64) {
        let times = self.renewals.times + 1;
        self.renewals = Renewals { times, last_ms: Some(at_ms), script: cause.script_id() };
        self.was_looked_at = false;
    }

    /// Whether its holder was done within one lease.
    fn was_brief(&self) -> bool {
        self.renewals.times == 0 && self.ended.is_some_and(|ended| ended.how == End::Released)
    }

    /// Whether its holder renews it for far longer than these, who held it before, have needed it. None of
    /// them has renewed it, and all have gone on to do something else: those that lead or do a service for as
    /// long as they live renew, or leave with their lock.
    pub(super) fn is_renewed_too_long<'t>(&self, past: impl Iterator<Item = &'t Tenure>, at_ms: u64) -> bool {
        /// It was renewed as often, and is held for as many leases.
        const LEASES_MIN: u64 = 60;
        /// The holders before that are looked at.
        const HOLDERS_MIN: usize = 3;
        let (held_ms, mut brief) = (at_ms.saturating_sub(self.since_ms), 0);
        let lease_ms = self.expires_at_ms.map_or(u64::MAX, |end_ms| end_ms.saturating_sub(at_ms));
        let lease_ms = self.lease_ms.max(lease_ms);
        self.renewals.times >= LEASES_MIN
            && held_ms >= lease_ms.saturating_mul(LEASES_MIN)
            && past.take(HOLDERS_MIN).all(|tenure| {
                brief += 1;
                tenure.was_brief() && !tenure.client_is_gone
            })
            && brief == HOLDERS_MIN
    }

    /// Whether a script is the one that has renewed it for this holder, and not for one that has started
    /// anew: its connection had gone, and it may have the same token.
    pub(super) fn is_renewed_by(&self, cause: &Cause<'_>) -> bool {
        let has_started_anew = self.has_left && self.holder.id != cause.who.id;
        cause.is_script() && self.renewals.script == cause.script_id() && !has_started_anew
    }

    /// Whether it was lost before its holder was done, and by which rule that is wrong.
    pub(super) fn lost_by(&self) -> Option<Rule> {
        match self.ended?.how {
            End::Expired => Some(Rule::ExpiredWhileHeld),
            End::Flushed | End::Evicted => Some(Rule::LostWhileHeld),
            _ => None,
        }
    }

    /// Whether this is the first finding of a rule for the holder.
    pub(super) fn tell_once(&mut self, rule: Rule) -> bool {
        let is_first = self.told & rule.bit() == 0;
        self.told |= rule.bit();
        is_first
    }
}
