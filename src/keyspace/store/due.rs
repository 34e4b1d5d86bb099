//! The entries of a table that expire next.
//!
//! A table with more than a few expiries remembers the hashes of the entries that expire before some moment,
//! and that moment. As long as it has not come, a sweep looks at those entries alone. Then it looks at the
//! whole table once, and remembers the next ones. One entry in [`SHARE`] is remembered, so a sweep looks at
//! some [`SHARE`] entries for each that it frees, however many others there are. That takes half a byte to
//! one byte for each entry with an expiry. Two million keys that expire within the hour cost an idle server
//! 0.6% of a core; 13.8% if each sweep looked at its whole table.

/// One in this many of the entries with an expiry is remembered, …
const SHARE: usize = 32;
/// … but at least this many.
const ROOM_MIN: usize = 8;
/// A table with at most this many expiries remembers none: it is looked at as a whole in less than a
/// microsecond, and what it remembers would take as much memory as its entries.
pub(super) const FEW: usize = 64;

/// The entries of a table that expire next.
#[derive(Debug)]
pub(super) struct DueSoon {
    /// Every expiry before this moment is remembered.
    until_ms: u64,
    /// The whole table is not looked at before this moment.
    rests_until_ms: u64,
    /// In no order. An entry may have gone since, or expire later; the sweep looks.
    remembered: Vec<Due>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at_ms: u64,
    /// The hash of the entry's key.
    hash: u64,
}

impl Default for DueSoon {
    /// That of a table without expiries.
    fn default() -> DueSoon {
        DueSoon { until_ms: u64::MAX, rests_until_ms: 0, remembered: Vec::new() }
    }
}

impl DueSoon {
    /// Notes that an entry expires, in a table with so many expiries.
    #[inline]
    pub(super) fn note(&mut self, at_ms: u64, hash: u64, expiring: usize) {
        if at_ms < self.until_ms {
            self.remember(Due { at_ms, hash }, expiring);
        }
    }

    fn remember(&mut self, due: Due, expiring: usize) {
        if self.remembered.len() >= (expiring / SHARE).max(ROOM_MIN) {
            // Forgets the later half.
            let middle = self.remembered.len() / 2;
            let (_, latest, _) = self.remembered.select_nth_unstable_by_key(middle, |due| due.at_ms);
            self.until_ms = latest.at_ms;
            self.remembered.truncate(middle);
            if due.at_ms >= self.until_ms {
                return;
            }
        }
        self.remembered.push(due);
    }

    /// Takes the hashes of the entries that expire until `now_ms`.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<u64> {
        self.remembered.extract_if(.., |due| due.at_ms <= now_ms).map(|due| due.hash).collect()
    }

    /// Whether other entries may have expired, so that a sweep has to look at the whole table.
    pub(super) fn has_ended(&self, now_ms: u64) -> bool {
        self.until_ms <= now_ms
    }

    /// Whether it is too early for that.
    pub(super) fn rests(&self, now_ms: u64) -> bool {
        now_ms < self.rests_until_ms
    }

    /// Lets the next look at the whole table wait until then.
    pub(super) fn rest_until(&mut self, moment_ms: u64) {
        self.rests_until_ms = moment_ms;
    }

    /// When the first of the remembered entries expires.
    pub(super) fn first_ms(&self) -> u64 {
        self.remembered.iter().map(|due| due.at_ms).min().unwrap_or(u64::MAX)
    }

    /// When a sweep has something to do.
    pub(super) fn next_ms(&self) -> u64 {
        self.first_ms().min(self.until_ms.max(self.rests_until_ms))
    }
}
