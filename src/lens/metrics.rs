//! What happens to locks, counted by the patterns of `lock-metrics`.
//!
//! A lock counts for the first pattern that its key matches. A client waits from its first attempt that
//! failed, or from the beginning of LOCK ACQUIRE … WAIT, until it takes the lock. An attempt that comes long
//! after the one before begins a new wait. A client that takes a lock at its first attempt has waited 0 ms.
//! One that tries again by another connection, as those of pools do, is known by its token, if it is long.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::tenure::End;
use crate::glob::Pattern;

/// If a client tries again after a longer time, it begins to wait anew.
const PAUSE_MAX_MS: u64 = 10_000;
/// The names of clients that wait for locks of one pattern, at most. A client has one by its connection and
/// one by each argument that may be its token. The waits of others count as 0 ms.
const WAITS_MAX: usize = 8192;
/// How often those that wait no longer are removed.
const TIDY_EVERY_MS: u64 = 1000;

/// The metrics of all patterns.
#[derive(Debug, Default)]
pub(super) struct Metrics(RwLock<Vec<Arc<PatternMetrics>>>);

/// What happened to the locks of one pattern since the start or the last reset.
#[derive(Debug)]
pub(crate) struct PatternMetrics {
    /// The pattern of `lock-metrics`.
    pub(crate) pattern: Box<[u8]>,
    taken: AtomicU64,
    refused: AtomicU64,
    renewals: AtomicU64,
    losses: [AtomicU64; End::LOSSES.len()],
    /// For how long clients waited that have taken a lock.
    pub(crate) waiting: Histogram,
    /// For how long clients held a lock.
    pub(crate) holding: Histogram,
    waits: Mutex<Waits>,
}

/// The clients that want locks.
#[derive(Debug, Default)]
struct Waits {
    by_place: HashMap<Place, Wait>,
    /// When those were removed last that wait no longer.
    tidied_ms: u64,
}

/// By what a client is known that wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The number of its connection.
    Connection(u64),
    /// The digest of its token.
    Token(u64),
}

/// A client, and the hash of the key that it wants to lock.
type Place = (Name, u64);

/// The time for which a client wants a lock that another has.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since_ms: u64,
    /// When its last attempt was.
    last_ms: u64,
    /// Whether it stands in line.
    is_in_line: bool,
}

/// How often something took how long, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// What took at most 0, 1, 2, 4 … ms, and longer than the one before. The last one has no limit.
    counts: [AtomicU64; Histogram::LIMITS + 1],
    total_ms: AtomicU64,
}

/// The numbers of a pattern, as they were at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternCounts {
    /// How often a lock was taken.
    pub(crate) taken: u64,
    /// How many attempts to take one failed.
    pub(crate) refused: u64,
    /// How often a holder has renewed its lock.
    pub(crate) renewals: u64,
    /// How often a holder has lost its lock, in the order of [`End::LOSSES`].
    pub(crate) losses: [u64; End::LOSSES.len()],
}

impl Metrics {
    /// Counts by these patterns from now on, with blanks between them. What was counted for one that stays is
    /// kept. Returns whether they are others than before.
    pub(super) fn set(&self, patterns: &[u8]) -> bool {
        let wanted = || patterns.split(u8::is_ascii_whitespace).filter(|pattern| !pattern.is_empty());
        let mut metrics = self.0.write();
        if metrics.iter().map(|metrics| &*metrics.pattern).eq(wanted()) {
            return false;
        }
        let kept = |pattern: &[u8]| metrics.iter().find(|metrics| *metrics.pattern == *pattern).cloned();
        let next = wanted().map(|pattern| kept(pattern).unwrap_or_else(|| PatternMetrics::new(pattern)));
        let next = next.collect();
        *metrics = next;
        true
    }

    /// The metrics for a key, if a pattern matches it.
    pub(super) fn of(&self, key: &[u8]) -> Option<Arc<PatternMetrics>> {
        let metrics = self.0.read();
        metrics.iter().find(|metrics| Pattern::new(&metrics.pattern, false).matches(key)).cloned()
    }

    /// The metrics of all patterns, in their order.
    pub(super) fn all(&self) -> Vec<Arc<PatternMetrics>> {
        self.0.read().clone()
    }
}

impl PatternMetrics {
    fn new(pattern: &[u8]) -> Arc<PatternMetrics> {
        Arc::new(PatternMetrics {
            pattern: pattern.into(),
            taken: AtomicU64::default(),
            refused: AtomicU64::default(),
            renewals: AtomicU64::default(),
            losses: Default::default(),
            waiting: Histogram::default(),
            holding: Histogram::default(),
            waits: Mutex::default(),
        })
    }

    /// A client that is known by these names has taken a lock.
    pub(super) fn note_taken(&self, names: impl Iterator<Item = Name>, hash: u64, at_ms: u64) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let places = &mut self.waits.lock().by_place;
        let waits = names.filter_map(|name| places.remove(&(name, hash))).filter(|wait| wait.goes_on(at_ms));
        let since_ms = waits.map(|wait| wait.since_ms).min();
        self.waiting.note(since_ms.map_or(0, |since_ms| at_ms.saturating_sub(since_ms)));
    }

    /// A client that may be known by these names wants a lock that another has. It stands in line, or its
    /// attempt has failed.
    pub(super) fn note_wanted(
        &self,
        names: impl Iterator<Item = Name>,
        hash: u64,
        at_ms: u64,
        is_in_line: bool,
    ) {
        self.refused.fetch_add(u64::from(!is_in_line), Ordering::Relaxed);
        let mut waits = self.waits.lock();
        waits.make_room(at_ms);
        for name in names {
            let has_room = waits.by_place.len() < WAITS_MAX;
            let new = Wait { since_ms: at_ms, last_ms: at_ms, is_in_line };
            match waits.by_place.entry((name, hash)) {
                Entry::Occupied(mut entry) => {
                    let since_ms = if entry.get().goes_on(at_ms) { entry.get().since_ms } else { at_ms };
                    entry.insert(Wait { since_ms, ..new });
                }
                Entry::Vacant(entry) if has_room => _ = entry.insert(new),
                Entry::Vacant(_) => {}
            }
        }
    }

    /// A client does not hold a lock any more.
    pub(super) fn note_end(&self, how: End, held_ms: u64) {
        if how == End::Unseen {
            return;
        }
        self.holding.note(held_ms);
        if let Some(at) = End::LOSSES.iter().position(|loss| *loss == how) {
            self.losses[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A holder has renewed its lock.
    pub(super) fn note_renewal(&self) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> PatternCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PatternCounts {
            taken: count(&self.taken),
            refused: count(&self.refused),
            renewals: count(&self.renewals),
            losses: self.losses.each_ref().map(count),
        }
    }

    /// Begins to count anew. Clients that wait go on to wait.
    pub(super) fn reset(&self) {
        let PatternMetrics { taken, refused, renewals, losses, waiting, holding, .. } = self;
        let histograms = [waiting, holding].into_iter().flat_map(Histogram::counters);
        for counter in [taken, refused, renewals].into_iter().chain(losses).chain(histograms) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl Waits {
    /// Removes those that wait no longer if there are many, not too often: it takes a while.
    fn make_room(&mut self, now_ms: u64) {
        if self.by_place.len() >= WAITS_MAX && now_ms.abs_diff(self.tidied_ms) >= TIDY_EVERY_MS {
            self.by_place.retain(|_, wait| wait.goes_on(now_ms));
            self.tidied_ms = now_ms;
        }
    }
}

impl Wait {
    fn goes_on(&self, now_ms: u64) -> bool {
        self.is_in_line || now_ms.saturating_sub(self.last_ms) <= PAUSE_MAX_MS
    }
}

impl Histogram {
    /// The number of limits: 0 ms, and the powers of two up to 2^21 ms, about 35 minutes.
    const LIMITS: usize = 23;

    fn note(&self, ms: u64) {
        let at = match ms {
            0 => 0,
            _ => (ms - 1).checked_ilog2().map_or(1, |log| log as usize + 2),
        };
        self.counts[at.min(Histogram::LIMITS)].fetch_add(1, Ordering::Relaxed);
        self.total_ms.fetch_add(ms, Ordering::Relaxed);
    }

    fn counters(&self) -> impl Iterator<Item = &AtomicU64> {
        self.counts.iter().chain([&self.total_ms])
    }

    /// For each limit in milliseconds, how often it took at most as long. The last limit is `None`.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let mut sum = 0;
        self.counts.iter().enumerate().map(move |(at, count)| {
            sum += count.load(Ordering::Relaxed);
            (Histogram::limit_ms(at), sum)
        })
    }

    fn limit_ms(at: usize) -> Option<u64> {
        match at {
            0 => Some(0),
            Histogram::LIMITS => None,
            _ => Some(1 << (at - 1)),
        }
    }

    /// Milliseconds, all together.
    pub(crate) fn total_ms(&self) -> u64 {
        self.total_ms.load(Ordering::Relaxed)
    }

    /// The least limit within which this share of all lies; 0 if there are none, and the largest limit if it
    /// lies beyond.
    pub(crate) fn percentile_ms(&self, percent: u64) -> u64 {
        let points: Vec<_> = self.cumulative().collect();
        let count = points.last().map_or(0, |(_, count)| *count);
        let rank = (count * percent).div_ceil(100);
        let within = points.iter().find(|(_, within)| *within >= rank);
        within.and_then(|(limit_ms, _)| *limit_ms).unwrap_or(1 << (Histogram::LIMITS - 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_is_counted_under_the_next_limit() {
        let histogram = Histogram::default();
        let last = 1 << 21;
        for ms in [0, 1, 2, 3, 4, 5, 8, 9, last, last + 1, u64::from(u32::MAX)] {
            histogram.note(ms);
        }
        let counted: Vec<_> = histogram.cumulative().collect();
        let at = |limit_ms| counted.iter().find(|(limit, _)| *limit == limit_ms).unwrap().1;
        let limits =
            [Some(0), Some(1), Some(2), Some(4), Some(8), Some(16), Some(last / 2), Some(last), None];
        assert_eq!(limits.map(at), [1, 2, 3, 5, 7, 8, 8, 9, 11]);
        assert_eq!(
            [1, 50, 72, 73, 82, 100].map(|percent| histogram.percentile_ms(percent)),
            [0, 8, 16, last, last, last]
        );
        assert_eq!(Histogram::default().percentile_ms(99), 0);
    }

    #[test]
    fn a_wait_goes_on_if_the_client_tries_again_soon_or_stands_in_line() {
        let waited = |attempts: &[(u64, bool)], taken_ms| {
            let metrics = PatternMetrics::new(b"*");
            let names = || [Name::Connection(1), Name::Token(2)].into_iter();
            for (at_ms, is_in_line) in attempts {
                metrics.note_wanted(names(), 1, *at_ms, *is_in_line);
            }
            metrics.note_taken(names(), 1, taken_ms);
            assert!(metrics.waits.lock().by_place.is_empty());
            metrics.waiting.total_ms()
        };
        let late = PAUSE_MAX_MS + 1;
        assert_eq!(waited(&[], 5), 0);
        assert_eq!(waited(&[(5, false), (7, false)], 9), 4);
        assert_eq!(waited(&[(5, false)], 5 + late), 0);
        assert_eq!(waited(&[(5, false), (5 + late, false)], 8 + late), 3);
        assert_eq!(waited(&[(5, true)], 5 + late), late);
        assert_eq!(waited(&[(5, true), (5 + late, false)], 5 + 2 * late), 0);
    }

    #[test]
    fn the_waits_of_very_many_clients_are_bounded() {
        let metrics = PatternMetrics::new(b"*");
        for client in 0..2 * WAITS_MAX as u64 {
            metrics.note_wanted([Name::Connection(client)].into_iter(), 1, 1, true);
        }
        assert_eq!(metrics.waits.lock().by_place.len(), WAITS_MAX);
        // Those that do not stand in line make room when they have not tried again.
        let metrics = PatternMetrics::new(b"*");
        for client in 0..2 * WAITS_MAX as u64 {
            let at_ms = client * (3 * PAUSE_MAX_MS) / (2 * WAITS_MAX as u64);
            metrics.note_wanted([Name::Connection(client)].into_iter(), 1, at_ms, false);
        }
        assert!(metrics.waits.lock().by_place.contains_key(&(Name::Connection(2 * WAITS_MAX as u64 - 1), 1)));
    }
}
