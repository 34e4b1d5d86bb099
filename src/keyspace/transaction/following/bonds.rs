//! The ties of locks to the connections of their holders: LOCK ACQUIRE … BOUND.
//!
//! A bond is a part of the lock's guard, and hangs on the connection's [lifeline](super::lifelines). It knows
//! when the lock is to be renewed, what is left of the lock when the connection has ended, and what others
//! have done to its expiry meanwhile (LOCK EXTEND, PEXPIRE, PERSIST): the lock lives at least as long as
//! that.

use std::sync::Arc;

use crate::keyspace::transaction::following::guarded::Guarded;
use crate::keyspace::transaction::following::lifelines::{Cut, Lifeline};

/// A lease is renewed when this part of it has passed. So two renewals may fail before it ends.
const RENEWALS: u64 = 3;

/// So many moments within a lease are those at which locks with this lease are renewed.
const SHARED_MOMENTS: u64 = 32;

/// How a lock is bound to a connection. Spans are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondTerms {
    /// The lease, which is renewed.
    pub lease_ms: u64,
    /// What is left of it when the connection ends; `None` for the rest of the lease.
    pub grace_ms: Option<u64>,
    /// After what time the lock ends in any case, if that is limited.
    pub max_ms: Option<u64>,
}

/// The tie of a lock to a connection.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(super) lifeline: Arc<Lifeline>,
    /// The strand of the lifeline.
    strand: u64,
    pub(super) lease_ms: u64,
    grace_ms: Option<u64>,
    /// The expiry that was set last for the sake of the bond.
    pub(super) own_expiry_ms: u64,
    /// The expiry that others have set last; 0 for none, [`NEVER`] if they took the expiry away.
    pub(super) others_expiry_ms: u64,
    /// When it is renewed next.
    pub(super) renew_at_ms: u64,
}

/// In place of the moment of an expiry: there is none.
pub(super) const NEVER: u64 = u64::MAX;

/// The last moment that clients and files can be given, as an integer with a sign.
const MOMENT_MS_MAX: u64 = i64::MAX as u64;

/// The moment that comes so long after another one.
pub(super) fn moment_after(from_ms: u64, span_ms: u64) -> u64 {
    from_ms.saturating_add(span_ms).min(MOMENT_MS_MAX)
}

/// What clients may see of a bond.
#[derive(Clone, Copy, Debug)]
pub struct BondShown {
    /// The number of the client on whose connection the lock hangs.
    pub client: u64,
    /// How many locks hang there.
    pub locks: u64,
}

impl Bond {
    /// The bond of a lock that has this expiry, which was set for the sake of the bond.
    pub(super) fn new(
        terms: BondTerms,
        lifeline: Arc<Lifeline>,
        name: &Guarded,
        own_expiry_ms: u64,
        now_ms: u64,
    ) -> Bond {
        let BondTerms { lease_ms, grace_ms, .. } = terms;
        let strand = lifeline.tie(name, lease_ms);
        let (others_expiry_ms, renew_at_ms) = (0, 0);
        let mut bond =
            Bond { lifeline, strand, lease_ms, grace_ms, own_expiry_ms, others_expiry_ms, renew_at_ms };
        bond.postpone(now_ms);
        bond
    }

    /// How its connection ended, if it has.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.lifeline.cut_of(self.strand)
    }

    pub(super) fn untie(&self, name: &Guarded) {
        self.lifeline.untie(self.strand, name);
    }

    /// Notes the expiry that the lock has after a command.
    pub(super) fn note_expiry(&mut self, expires_at_ms: Option<u64>) {
        let expires_at_ms = expires_at_ms.unwrap_or(NEVER);
        if expires_at_ms != self.own_expiry_ms {
            self.others_expiry_ms = expires_at_ms;
        }
    }

    /// Sets the moment of the next renewal. Locks with the same lease are renewed at the same moments, some
    /// sooner than they must be: the thread wakes up once for many of them.
    pub(super) fn postpone(&mut self, now_ms: u64) {
        let renew_at_ms = moment_after(now_ms, (self.lease_ms / RENEWALS).max(1));
        let sooner_ms = renew_at_ms % (self.lease_ms / SHARED_MOMENTS).max(1);
        self.renew_at_ms = renew_at_ms - sooner_ms;
    }

    /// The expiry of a lock whose connection has ended.
    pub(super) fn last_expiry_ms(&self, cut: Cut, expires_at_ms: u64) -> u64 {
        let last_sign_ms = cut.at_ms.saturating_sub(cut.silent_ms);
        let own_ms = match self.grace_ms {
            Some(grace_ms) => moment_after(last_sign_ms, grace_ms),
            None => expires_at_ms.min(moment_after(last_sign_ms, self.lease_ms)),
        };
        own_ms.max(self.others_expiry_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bond(grace_ms: Option<u64>, others_expiry_ms: u64) -> Bond {
        let lifeline = Arc::new(Lifeline::new(1));
        let strand = lifeline.tie(&Guarded::key(0, b"l"), 300);
        Bond {
            lifeline,
            strand,
            lease_ms: 300,
            grace_ms,
            own_expiry_ms: 1300,
            others_expiry_ms,
            renew_at_ms: 0,
        }
    }

    #[test]
    fn what_is_left_after_the_end_counts_from_the_last_sign_of_life() {
        let cut = |silent_ms| Cut::at(1200, silent_ms);
        assert_eq!(bond(None, 0).last_expiry_ms(cut(0), 1300), 1300, "the rest of the lease");
        assert_eq!(bond(None, 0).last_expiry_ms(cut(250), 1300), 1250, "no longer than a lease");
        assert_eq!(bond(None, 0).last_expiry_ms(cut(0), 1210), 1210, "another client has brought it nearer");
        assert_eq!(bond(Some(0), 0).last_expiry_ms(cut(0), 1300), 1200);
        assert_eq!(bond(Some(500), 0).last_expiry_ms(cut(200), 1300), 1500);
        assert_eq!(bond(Some(0), 1700).last_expiry_ms(cut(0), 1700), 1700, "another client has extended it");
        assert_eq!(bond(Some(0), NEVER).last_expiry_ms(cut(0), NEVER), NEVER);
        assert_eq!(bond(Some(i64::MAX as u64), 0).last_expiry_ms(cut(0), 1300), MOMENT_MS_MAX);
    }

    #[test]
    fn locks_are_renewed_together_when_about_a_third_of_the_lease_has_passed() {
        let mut moments = std::collections::BTreeSet::new();
        for now_ms in 1000..1300 {
            let mut bond = bond(None, 0);
            bond.postpone(now_ms);
            assert!((now_ms + 90..=now_ms + 100).contains(&bond.renew_at_ms), "{bond:?}");
            moments.insert(bond.renew_at_ms);
        }
        assert!(moments.len() <= 34, "{moments:?}");
    }
}
