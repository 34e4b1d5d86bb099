//! How often each command was called, how long it took, and how that time was distributed.
//!
//! Times are kept in a histogram whose buckets grow by an eighth of a power of two, from a nanosecond on, so
//! a percentile is right to within 12%; Redis's is right to within 1%, for twenty times the memory.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets for each power of two.
const STEPS: usize = 8;
/// Buckets in all: for times up to 2^40 ns, 18 minutes.
const BUCKETS: usize = 40 * STEPS;

/// Some uses of one command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// How often it was run.
    pub calls: u64,
    /// How long it ran, all calls together, in nanoseconds.
    pub nanos: u64,
    /// How often it was not run at all: wrong arity, no permission.
    pub rejected: u64,
    /// How often it ran and returned an error.
    pub failed: u64,
}

/// Calls of small commands, which share the time of their run evenly. Reading the clock twice for each would
/// cost more than many a command itself.
#[derive(Debug, Default)]
pub struct Tally {
    /// The kinds that have calls come first.
    kinds: [Calls; Tally::KINDS_MAX],
}

/// Such calls by scripts, with the time that these scripts ran.
#[derive(Debug, Default)]
pub struct Called {
    /// The calls that were made, by command.
    pub tally: Tally,
    /// The time that they share.
    pub took: Duration,
}

/// A number of calls of one command.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    command: usize,
    calls: u64,
}

impl Tally {
    /// Kinds of commands that share a time.
    const KINDS_MAX: usize = 8;

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.kinds[0].calls == 0
    }

    /// Adds a call of the command with this number; returns whether there was room.
    #[inline(always)]
    #[must_use]
    pub fn add(&mut self, command: usize) -> bool {
        let [first, ..] = &mut self.kinds;
        // Pipelines are mostly of one kind.
        if first.command == command || first.calls == 0 {
            *first = Calls { command, calls: first.calls + 1 };
            return true;
        }
        self.add_another(command)
    }

    #[cold]
    fn add_another(&mut self, command: usize) -> bool {
        let found = self.kinds.iter_mut().find(|kind| kind.command == command || kind.calls == 0);
        found.map(|kind| *kind = Calls { command, calls: kind.calls + 1 }).is_some()
    }

    /// Calls `count` with the use of each kind, given the time that all have taken together, and starts anew.
    /// Returns how many calls there were.
    pub fn divide(&mut self, took: Duration, mut count: impl FnMut(usize, Usage)) -> u64 {
        let all: u64 = self.kinds.iter().map(|kind| kind.calls).sum();
        let share = took.as_nanos() as u64 / all.max(1);
        for kind in self.kinds.iter_mut().take_while(|kind| kind.calls > 0) {
            let calls = std::mem::take(&mut kind.calls);
            count(kind.command, Usage { calls, nanos: share * calls, ..Usage::default() });
        }
        all
    }
}

/// The counts of one thread for one command.
#[derive(Debug, Default)]
pub(super) struct CommandShare {
    nanos: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// How many calls took how long; all together are the calls.
    histogram: OnceLock<Box<[AtomicU64; BUCKETS]>>,
}

/// The counts of one thread for all commands, in blocks: most servers use few commands, and an instance that
/// runs none takes a pointer for each block.
#[derive(Debug)]
pub(super) struct CommandShares(Box<[OnceLock<Box<[CommandShare; CommandShares::BLOCK]>>]>);

impl CommandShares {
    /// Commands of a block. Neighbours in the table are of one family.
    const BLOCK: usize = 16;

    pub(super) fn new(commands: usize) -> CommandShares {
        CommandShares((0..commands.div_ceil(CommandShares::BLOCK)).map(|_| OnceLock::new()).collect())
    }

    /// The counts of the command with this number.
    #[inline]
    pub(super) fn of(&self, command: usize) -> &CommandShare {
        let block = self.0[command / CommandShares::BLOCK].get_or_init(Box::default);
        &block[command % CommandShares::BLOCK]
    }

    /// The same, if the thread has run one of that block.
    pub(super) fn used(&self, command: usize) -> Option<&CommandShare> {
        let block = self.0[command / CommandShares::BLOCK].get()?;
        Some(&block[command % CommandShares::BLOCK])
    }
}

/// How many calls took how long.
type Histogram = [u64; BUCKETS];

/// The sum of all threads' counts for one command.
#[derive(Clone, Debug)]
pub struct CommandTotals {
    /// The sum of all threads' uses.
    pub usage: Usage,
    histogram: Histogram,
}

/// The calls while `latency-tracking` is off. They are in the histograms all the same, so that a call costs
/// the same either way, and are taken out where the histograms are shown.
#[derive(Debug, Default)]
pub(super) struct Untracked {
    /// The histograms at the moment when it was switched off, by the numbers of the commands; nothing while
    /// it is on.
    since: Option<HashMap<usize, Box<Histogram>>>,
    /// The counts of all earlier periods.
    before: HashMap<usize, Box<Histogram>>,
}

impl Untracked {
    /// Notes that it is switched on or off; `used` are the commands that were called, with their totals.
    pub(super) fn switch(&mut self, is_on: bool, used: impl Iterator<Item = (usize, CommandTotals)>) {
        match (is_on, self.since.take()) {
            (true, Some(since)) => {
                for (command, totals) in used {
                    let start = since.get(&command).map_or([0; BUCKETS], |start| **start);
                    let before = self.before.entry(command).or_insert_with(|| Box::new([0; BUCKETS]));
                    let counts = totals.histogram.iter().zip(start);
                    let grown = counts.map(|(now, start)| now.saturating_sub(start));
                    before.iter_mut().zip(grown).for_each(|(sum, grown)| *sum += grown);
                }
            }
            (false, None) => {
                self.since =
                    Some(used.map(|(command, totals)| (command, Box::new(totals.histogram))).collect());
            }
            (_, since) => self.since = since,
        }
    }

    /// Takes what was not tracked out of a command's totals.
    pub(super) fn remove_from(&self, command: usize, totals: &mut CommandTotals) {
        if let Some(since) = &self.since {
            totals.histogram = since.get(&command).map_or([0; BUCKETS], |start| **start);
        }
        if let Some(before) = self.before.get(&command) {
            let counts = totals.histogram.iter_mut().zip(before.iter());
            counts.for_each(|(count, untracked)| *count = count.saturating_sub(*untracked));
        }
        totals.usage.calls = totals.histogram.iter().sum();
    }

    /// Forgets commands whose counts begin at zero again, chosen by their numbers.
    pub(super) fn forget(&mut self, is_meant: impl Fn(usize) -> bool) {
        self.since.iter_mut().for_each(|since| since.retain(|command, _| !is_meant(*command)));
        self.before.retain(|command, _| !is_meant(*command));
    }
}

impl Default for CommandTotals {
    fn default() -> CommandTotals {
        CommandTotals { usage: Usage::default(), histogram: [0; BUCKETS] }
    }
}

impl CommandShare {
    #[inline]
    pub(super) fn add(&self, usage: Usage) {
        if let Some(mean_nanos) = usage.nanos.checked_div(usage.calls) {
            self.nanos.fetch_add(usage.nanos, Ordering::Relaxed);
            let histogram = self.histogram.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
            histogram[bucket(mean_nanos)].fetch_add(usage.calls, Ordering::Relaxed);
        }
        if usage.rejected + usage.failed > 0 {
            self.rejected.fetch_add(usage.rejected, Ordering::Relaxed);
            self.failed.fetch_add(usage.failed, Ordering::Relaxed);
        }
    }

    pub(super) fn reset(&self) {
        for count in [&self.nanos, &self.rejected, &self.failed] {
            count.store(0, Ordering::Relaxed);
        }
        let buckets = self.histogram.get().into_iter().flat_map(|histogram| histogram.iter());
        buckets.for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

impl CommandTotals {
    pub(super) fn add(&mut self, share: &CommandShare) {
        self.usage.nanos += share.nanos.load(Ordering::Relaxed);
        self.usage.rejected += share.rejected.load(Ordering::Relaxed);
        self.usage.failed += share.failed.load(Ordering::Relaxed);
        let counts = share.histogram.get().into_iter().flat_map(|histogram| histogram.iter());
        for (sum, count) in self.histogram.iter_mut().zip(counts) {
            let calls = count.load(Ordering::Relaxed);
            *sum += calls;
            self.usage.calls += calls;
        }
    }

    /// The time within which `percent` of the calls ended, in microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let calls: u64 = self.histogram.iter().sum();
        let wanted = ((percent / 100.0 * calls as f64).ceil() as u64).clamp(1, calls.max(1));
        let mut sum = 0;
        let found = self.histogram.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        found.map_or(0.0, |bucket| bucket_end(bucket) as f64 / 1000.0)
    }

    /// For each power of two of microseconds up to which new calls ended: that power, and how many calls
    /// ended within it.
    pub fn cumulative_us(&self) -> Vec<(u64, u64)> {
        let (mut points, mut told, mut sum, mut bucket) = (Vec::new(), 0, 0, 0);
        let calls: u64 = self.histogram.iter().sum();
        let mut limit_us = 1;
        while told < calls {
            while bucket < BUCKETS && bucket_end(bucket) <= limit_us * 1000 {
                sum += self.histogram[bucket];
                bucket += 1;
            }
            if sum > told {
                points.push((limit_us, sum));
                told = sum;
            }
            if bucket == BUCKETS {
                break;
            }
            limit_us *= 2;
        }
        points
    }
}

/// The bucket of a time.
#[inline]
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.max(STEPS as u64);
    let power = nanos.ilog2();
    let step = (nanos >> (power - STEPS.ilog2())) as usize % STEPS;
    (power as usize * STEPS + step).min(BUCKETS - 1)
}

/// The longest time of a bucket, in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    let width = (1_u64 << power) / STEPS as u64;
    (1 << power) + (step as u64 + 1) * width - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(nanos: &[u64]) -> CommandTotals {
        let share = CommandShare::default();
        for &nanos in nanos {
            share.add(Usage { calls: 1, nanos, ..Usage::default() });
        }
        let mut totals = CommandTotals::default();
        totals.add(&share);
        totals
    }

    #[test]
    fn a_bucket_holds_what_it_says() {
        for nanos in [8, 9, 15, 16, 1000, 1023, 1024, 1_000_000, 123_456_789] {
            let end = bucket_end(bucket(nanos));
            assert!(nanos <= end && end as f64 <= nanos as f64 * 1.125, "{nanos} is in a bucket to {end}");
        }
        assert_eq!(bucket(0), bucket(8));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_near() {
        let nanos: Vec<u64> = (1..=1000).map(|number| number * 1000).collect();
        let totals = totals(&nanos);
        for (percent, expected_us) in [(50.0, 500.0), (99.0, 990.0), (99.9, 999.0), (100.0, 1000.0)] {
            let found_us = totals.percentile_us(percent);
            assert!((expected_us..=expected_us * 1.13).contains(&found_us), "{percent}: {found_us}");
        }
        assert_eq!(CommandTotals::default().percentile_us(50.0), 0.0);
    }

    #[test]
    fn calls_that_are_not_tracked_are_in_no_percentile() {
        let mut untracked = Untracked::default();
        let used = |nanos: &[u64]| [(7, totals(nanos))].into_iter();
        let visible = |untracked: &Untracked, nanos: &[u64]| {
            let mut totals = totals(nanos);
            untracked.remove_from(7, &mut totals);
            totals.cumulative_us()
        };
        untracked.switch(false, used(&[1000]));
        untracked.switch(false, used(&[1000, 1000]));
        assert_eq!(visible(&untracked, &[1000, 9000]), [(2, 1)]);
        untracked.switch(true, used(&[1000, 9000]));
        assert_eq!(visible(&untracked, &[1000, 9000, 1000]), [(2, 2)]);
        untracked.switch(false, used(&[1000, 9000, 1000]));
        untracked.switch(true, used(&[1000, 9000, 1000, 70_000]));
        assert_eq!(visible(&untracked, &[1000, 9000, 1000, 70_000]), [(2, 2)]);
        untracked.forget(|command| command == 7);
        assert_eq!(visible(&untracked, &[9000]), [(16, 1)]);
    }

    #[test]
    fn tallied_calls_share_a_time_evenly() {
        let mut tally = Tally::default();
        for command in [7, 7, 3, 7] {
            assert!(tally.add(command));
        }
        let mut told = Vec::new();
        tally.divide(Duration::from_nanos(400), |command, usage| {
            told.push((command, usage.calls, usage.nanos))
        });
        assert_eq!(told, [(7, 3, 300), (3, 1, 100)]);
        assert!(tally.is_empty());
    }

    #[test]
    fn a_tally_has_room_for_so_many_kinds() {
        let mut tally = Tally::default();
        assert!((0..Tally::KINDS_MAX).all(|command| tally.add(command)));
        assert!(!tally.add(Tally::KINDS_MAX) && tally.add(Tally::KINDS_MAX - 1));
        tally.divide(Duration::ZERO, |_, _| ());
        assert!(tally.add(Tally::KINDS_MAX));
    }

    #[test]
    fn powers_of_two_are_told_where_calls_are() {
        let totals = totals(&[500, 700, 3000, 3500, 900_000]);
        assert_eq!(totals.cumulative_us(), [(1, 2), (4, 4), (1024, 5)]);
        assert!(CommandTotals::default().cumulative_us().is_empty());
    }
}
