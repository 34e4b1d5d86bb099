//! Expiry in etcd: a key with an expiry is bound to a lease, and etcd deletes it when the lease ends. No
//! clock of a front-end decides.
//!
//! A lease for each key would double the work of etcd. So all keys of a front-end that expire in the same
//! second share a lease, which ends at the end of that second: a key goes up to a second late by that, and up
//! to half a second more until etcd comes by. etcd makes no lease shorter than its elections, which is two
//! seconds. And a new leader begins all leases anew: it knows how long they are, and not when they began. So
//! keys go late, and never early.
//!
//! Seconds are counted on this process's own clock, which only goes on.

use std::collections::{HashMap, HashSet};

use tokio::task::JoinSet;
use tonic::Status;

use super::wire::Wire;
use crate::remote::batch::Part;
use crate::remote::clock::own_us;

/// The shortest lease, in seconds: etcd makes shorter ones as long as this anyway.
const SECONDS_MIN: i64 = 2;
/// The longest lease, in seconds: etcd's own limit.
const SECONDS_MAX: i64 = 9_000_000_000;
/// Leases that are known. With more, all are forgotten: they end by themselves.
const LEASES_MAX: usize = 100_000;
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

/// The leases of a front-end.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// By the seconds in which they end.
    by_second: HashMap<i64, i64>,
    /// That of the marks of watched keys, and the second in which it ends.
    of_marks: Option<(i64, i64)>,
}

impl Leases {
    /// Makes the leases that a batch needs and that are not there yet.
    pub(super) async fn prepare(
        &mut self,
        wire: &Wire,
        lives: &Lives,
        needs_mark: bool,
    ) -> Result<(), Status> {
        let now = own_us() / 1_000_000;
        if self.by_second.len() > LEASES_MAX {
            self.by_second.clear();
        }
        let wanted = lives.iter().filter_map(|(life, _)| match life {
            Life::Until(second) if !self.by_second.contains_key(second) => Some(*second),
            _ => None,
        });
        let wanted: HashSet<i64> = wanted.collect();
        if !wanted.is_empty() {
            self.by_second.retain(|second, _| *second >= now);
        }
        let mut grants = JoinSet::new();
        for second in wanted {
            let wire = wire.clone();
            grants.spawn(async move {
                // The lease begins later than this moment, so it ends in this second or later.
                let seconds = second - own_us() / 1_000_000;
                let id = wire.grant(seconds.clamp(SECONDS_MIN, SECONDS_MAX)).await?;
                Ok::<_, Status>((second, id))
            });
        }
        while let Some(granted) = grants.join_next().await {
            let granted = granted.map_err(|_| Status::cancelled("a lease was given up"))?;
            self.by_second.extend([granted?]);
        }
        if needs_mark && self.of_marks.is_none_or(|(_, end)| end - now < MARK_SECONDS_MIN) {
            self.of_marks = Some((wire.grant(MARK_SECONDS).await?, now + MARK_SECONDS));
        }
        Ok(())
    }

    /// The lease of keys that live until then, once it was made.
    pub(super) fn of(&self, life: Life) -> i64 {
        match life {
            Life::Until(second) => self.by_second.get(&second).copied().unwrap_or(0),
            Life::Endless | Life::Kept => 0,
        }
    }

    /// The lease of marks, once it was made.
    pub(super) fn of_marks(&self) -> i64 {
        self.of_marks.map_or(0, |(id, _)| id)
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
