//! Expiry in etcd: a key with an expiry is bound to a lease, and etcd deletes it when the lease ends. No
//! clock of a front-end decides.
//!
//! A lease for each key would double the work of etcd. So all keys of a front-end that expire in the same
//! second share a lease, which ends at the end of that second: a key goes up to a second late by that, and up
//! to half a second more until etcd comes by. etcd makes no lease shorter than its elections, which is two
//! seconds. And a new leader begins all leases anew: it knows how long they are, and not when they began. So
//! keys go late, and never early.
//!
//! Seconds are counted on this process's own clock, which only goes on. But it stands still while a virtual
//! machine is paused or a computer sleeps, and etcd's does not: a lease that was made before would end too
//! early for a key that is bound to it afterwards. So a lease is shared for a few seconds only, and no longer
//! if the clock of the machine has run further than this process's own since it was made.

use std::collections::HashMap;

use tokio::task::JoinSet;
use tonic::Status;

use super::system_us;
use super::wire::Wire;
use crate::remote::batch::Part;
use crate::remote::clock::own_us;

/// The shortest lease, in seconds: etcd makes shorter ones as long as this anyway.
const SECONDS_MIN: i64 = 2;
/// The longest lease, in seconds: etcd's own limit.
const SECONDS_MAX: i64 = 9_000_000_000;
/// How long a lease is shared after it was made, by this process's own clock.
const SHARED_US: i64 = 3_000_000;
/// How far the two clocks may part meanwhile: more than NTP slews a clock in that time.
const APART_US_MAX: i64 = 20_000;
/// How long the mark of a watched key is there, in seconds: an EXEC that comes later fails.
const MARK_SECONDS: i64 = 3_600;
/// How much of that a mark has at least.
const MARK_SECONDS_MIN: i64 = MARK_SECONDS / 2;

/// How long a key lives that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It has no expiry.
    Endless,
    /// It keeps its lease.
    Kept,
    /// Until the end of this second on this process's clock.
    Until(i64),
}

impl Life {
    /// The second in which the lease ends, if the key gets one.
    fn second(self) -> Option<i64> {
        match self {
            Life::Until(second) => Some(second),
            Life::Endless | Life::Kept => None,
        }
    }

    /// Of a part that writes a value, with the moment of its expiry in milliseconds since 1970.
    pub(super) fn of(part: &Part, now_ms: u64, own_us: i64) -> (Life, Option<u64>) {
        let Some(moment_ms) = part.written.as_ref().and_then(|row| row.expires_at_ms()) else {
            return (Life::Endless, None);
        };
        let lifetime_ms = match part.lifetime_ms {
            Some(lifetime_ms) => lifetime_ms,
            None if part.seen.expires_at_ms() == Some(moment_ms) => return (Life::Kept, Some(moment_ms)),
            None => moment_ms.saturating_sub(now_ms),
        };
        let lifetime_ms = lifetime_ms.min(SECONDS_MAX as u64 * 1_000);
        let moment_ms = part.lifetime_ms.map_or(moment_ms, |lifetime_ms| now_ms.saturating_add(lifetime_ms));
        (Life::Until(second_after(own_us + lifetime_ms as i64 * 1_000)), Some(moment_ms))
    }
}

/// How long each part of a batch lives, and the moment of its expiry for people.
pub(super) type Lives = Vec<(Life, Option<u64>)>;

/// The first second that begins at a moment or later.
fn second_after(moment_us: i64) -> i64 {
    (moment_us + 999_999) / 1_000_000
}

/// The two clocks of this machine at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    own_us: i64,
    system_us: i64,
}

impl Moment {
    fn now() -> Moment {
        Moment { own_us: own_us(), system_us: system_us() }
    }

    /// Whether what was made at this moment may still be used at another one.
    fn is_close_to(self, now: Moment, span_us: i64) -> bool {
        let (own_us, system_us) = (now.own_us - self.own_us, now.system_us - self.system_us);
        own_us < span_us && (system_us - own_us).abs() <= APART_US_MAX
    }
}

/// A lease, and the moment before it was made.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: i64,
    made: Moment,
}

/// The leases of a front-end.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By the seconds in which they end.
    by_second: HashMap<i64, Lease>,
    /// That of the marks of watched keys.
    of_marks: Option<Lease>,
}

/// The leases of one batch.
#[derive(Debug, Default)]
pub(super) struct BatchLeases {
    /// One for each part; 0 for keys without one.
    pub(super) of_parts: Vec<i64>,
    /// That of marks; 0 if the batch makes none.
    pub(super) of_marks: i64,
}

impl Leases {
    /// Returns the leases that a batch needs. Missing ones are made.
    pub(super) async fn prepare(
        &mut self,
        wire: &Wire,
        lives: &Lives,
        needs_mark: bool,
    ) -> Result<BatchLeases, Status> {
        let now = Moment::now();
        self.by_second.retain(|_, lease| lease.made.is_close_to(now, SHARED_US));
        let mut grants = JoinSet::new();
        let mut wanted: Vec<i64> = lives.iter().filter_map(|(life, _)| life.second()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for second in wanted.into_iter().filter(|second| !self.by_second.contains_key(second)) {
            let wire = wire.clone();
            grants.spawn(async move {
                // The lease begins later than this moment, so it ends in this second or later.
                let made = Moment::now();
                let seconds = second - made.own_us / 1_000_000;
                let id = wire.grant(seconds.clamp(SECONDS_MIN, SECONDS_MAX)).await?;
                Ok::<_, Status>((second, Lease { id, made }))
            });
        }
        while let Some(granted) = grants.join_next().await {
            let granted = granted.map_err(|_| Status::cancelled("a lease was given up"))?;
            self.by_second.extend([granted?]);
        }
        let mark_us = (MARK_SECONDS - MARK_SECONDS_MIN) * 1_000_000;
        if needs_mark && !self.of_marks.is_some_and(|lease| lease.made.is_close_to(now, mark_us)) {
            self.of_marks = Some(Lease { id: wire.grant(MARK_SECONDS).await?, made: now });
        }
        let of_parts = lives.iter().map(|(life, _)| match life.second() {
            None => Ok(0),
            // Without its lease, the key would be there for ever.
            Some(second) => self
                .by_second
                .get(&second)
                .map(|lease| lease.id)
                .filter(|id| *id != 0)
                .ok_or(Status::cancelled("a lease is missing")),
        });
        let of_parts = of_parts.collect::<Result<_, _>>()?;
        let of_marks = self.of_marks.filter(|_| needs_mark).map_or(0, |lease| lease.id);
        Ok(BatchLeases { of_parts, of_marks })
    }

    /// Forgets all leases: one of them is not there any more.
    pub(super) fn forget(&mut self) {
        *self = Leases::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::remote::row::{Key, Live, Row};

    #[test]
    fn a_lease_is_shared_for_some_seconds_unless_the_clocks_part() {
        let made = Moment { own_us: 5_000_000, system_us: 1_000_000_000 };
        let after = |own_ms: i64, system_ms: i64| Moment {
            own_us: made.own_us + own_ms * 1_000,
            system_us: made.system_us + system_ms * 1_000,
        };
        assert!(made.is_close_to(after(2_999, 3_001), SHARED_US));
        assert!(!made.is_close_to(after(3_000, 3_000), SHARED_US), "it is too old");
        assert!(!made.is_close_to(after(10, 8_010), SHARED_US), "the machine was paused");
        assert!(!made.is_close_to(after(10, -8_000), SHARED_US), "the machine's clock was turned back");
    }

    #[test]
    fn a_key_lives_until_the_end_of_the_second_in_which_it_expires() {
        let row = |expires_at_ms| {
            let live = Live { kind: 0, value: Bytes::new(), expires_at_ms, is_lock: false };
            Arc::new(Row { live: Some(live), ..Row::default() })
        };
        let part = |seen, written, lifetime_ms| Part {
            is_renewed: false,
            key: Key::new(0, b"k"),
            group: 0,
            seen: row(seen),
            is_strict: false,
            written: Some(row(written)),
            lifetime_ms,
            holder: None,
        };
        let life = |part| Life::of(&part, 1_000_000, 5_500_000);
        assert_eq!(life(part(None, None, None)), (Life::Endless, None));
        assert_eq!(life(part(Some(9), None, None)), (Life::Endless, None));
        assert_eq!(life(part(Some(9), Some(9), None)), (Life::Kept, Some(9)));
        assert_eq!(life(part(Some(9), Some(9), Some(400))), (Life::Until(6), Some(1_000_400)));
        assert_eq!(life(part(None, Some(1), Some(500))), (Life::Until(6), Some(1_000_500)));
        assert_eq!(life(part(None, Some(1), Some(501))), (Life::Until(7), Some(1_000_501)));
        assert_eq!(life(part(None, Some(1_002_000), None)), (Life::Until(8), Some(1_002_000)));
        assert_eq!(life(part(None, Some(1), None)), (Life::Until(6), Some(1)));
        let far = life(part(None, Some(u64::MAX), None)).0;
        assert_eq!(far, Life::Until(SECONDS_MAX + 6));
    }
}
