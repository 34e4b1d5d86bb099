//! What the server counts and notes about its own work: totals, the use of each command, slow requests,
//! events that took long.
//!
//! What is counted with every batch of requests is counted by each thread in a share of its own, so that
//! threads never write to the same cache line; readers add the shares up. A share takes memory for the
//! commands that its thread has run. [`commands`] counts the use of each command, [`errors`] the kinds of
//! errors; [`command_log`] keeps the slowest and the longest requests, [`latency`] the longest events, and
//! [`hot_keys`] the keys that take most.

pub(crate) mod command_log;
pub(crate) mod commands;
pub(crate) mod errors;
pub(crate) mod hot_keys;
pub(crate) mod latency;

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::platform::processor;

use command_log::CommandLogs;
use commands::{CommandShares, CommandTotals, Tally, Untracked, Usage};
use errors::ErrorCounts;
use hot_keys::HotKeys;
use latency::LatencyEvents;

/// The counters of INFO.
#[derive(Clone, Copy, Debug)]
pub enum Count {
    /// Connections that were accepted, the rejected ones included.
    ConnectionsReceived,
    /// Connections that were refused because there were `maxclients` already.
    ConnectionsRejected,
    /// Commands that were executed, those within transactions and scripts as well.
    CommandsProcessed,
    /// Bytes read from clients.
    InputBytes,
    /// Bytes written to clients.
    OutputBytes,
    /// Reads from clients' sockets.
    Reads,
    /// Writes to clients' sockets.
    Writes,
    /// Clients that were made to leave because all of them took more than `maxmemory-clients`.
    ClientsEvicted,
    /// Requests that were struck by a fault.
    Faults,
    /// Clients that were disconnected since they had sent more than `client-query-buffer-limit`.
    QueriesTooLong,
    /// Microseconds of the sweep for expired keys.
    SweepMicros,
}

const COUNTS: usize = Count::SweepMicros as usize + 1;

/// All that is counted and noted; what happens to keys is counted in the keyspace's shards.
#[derive(Debug)]
pub struct Statistics {
    shares: Box<[Share]>,
    /// How many commands there are.
    commands: usize,
    untracked: Mutex<Untracked>,
    /// How many errors of each kind were sent to clients.
    pub errors: ErrorCounts,
    /// The slowest requests and the longest.
    pub command_logs: CommandLogs,
    /// The longest events.
    pub latency: LatencyEvents,
    /// The keys that take most, while a client wants to know.
    pub hot_keys: HotKeys,
    /// Commands a second, lately.
    pub commands_rate: Rate,
    /// Bytes read a second, lately.
    pub input_rate: Rate,
    /// Bytes written a second, lately.
    pub output_rate: Rate,
    /// Reads from clients' sockets a second, lately.
    pub reads_rate: Rate,
    /// Microseconds of processor time a second, lately.
    pub processor_rate: Rate,
    /// What the process had taken when the counts were set to zero.
    processor_micros_before: AtomicU64,
}

/// The counts of one thread, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct Share {
    counts: [AtomicU64; COUNTS],
    commands: CommandShares,
}

thread_local! {
    /// The index of this thread's share, the same in each server of the process.
    static SHARE: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Statistics {
    /// Empty statistics, for this number of threads and commands.
    pub fn new(threads: usize, commands: usize) -> Statistics {
        let share = || Share { counts: Default::default(), commands: CommandShares::new(commands) };
        Statistics {
            commands,
            shares: (0..threads.max(1)).map(|_| share()).collect(),
            untracked: Mutex::default(),
            errors: ErrorCounts::default(),
            command_logs: CommandLogs::default(),
            latency: LatencyEvents::default(),
            hot_keys: HotKeys::default(),
            commands_rate: Rate::default(),
            input_rate: Rate::default(),
            output_rate: Rate::default(),
            reads_rate: Rate::default(),
            processor_rate: Rate::default(),
            processor_micros_before: AtomicU64::new(0),
        }
    }

    /// Adds to a count.
    #[inline]
    pub fn add(&self, count: Count, amount: u64) {
        self.share().counts[count as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum of a counter over all threads.
    pub fn total(&self, count: Count) -> u64 {
        self.shares.iter().map(|share| share.counts[count as usize].load(Ordering::Relaxed)).sum()
    }

    /// Microseconds of processor time that the process has taken since the counts were set to zero.
    pub fn processor_micros(&self) -> u64 {
        let before = self.processor_micros_before.load(Ordering::Relaxed);
        processor_micros().saturating_sub(before)
    }

    /// Adds to the use of the command with this number.
    #[inline]
    pub fn add_usage(&self, command: usize, usage: Usage) {
        self.share().commands.of(command).add(usage);
    }

    /// Counts a call of the command with this number, which took `nanos` nanoseconds.
    pub fn add_call(&self, command: usize, nanos: u64) {
        let share = self.share();
        share.counts[Count::CommandsProcessed as usize].fetch_add(1, Ordering::Relaxed);
        share.commands.of(command).add(Usage { calls: 1, nanos, ..Usage::default() });
    }

    /// Counts the calls that were tallied, which took `took` together; returns how many they are.
    pub fn add_tally(&self, tally: &mut Tally, took: Duration) -> u64 {
        let share = self.share();
        let calls = tally.divide(took, |command, usage| share.commands.of(command).add(usage));
        share.counts[Count::CommandsProcessed as usize].fetch_add(calls, Ordering::Relaxed);
        calls
    }

    /// The use of the command with this number.
    pub fn usage(&self, command: usize) -> CommandTotals {
        self.shares.iter().fold(CommandTotals::default(), |mut totals, share| {
            share.commands.used(command).into_iter().for_each(|used| totals.add(used));
            totals
        })
    }

    /// The same with the times of those calls only that were made while `latency-tracking` was on.
    pub fn latencies(&self, command: usize) -> CommandTotals {
        let mut totals = self.usage(command);
        self.untracked.lock().remove_from(command, &mut totals);
        totals
    }

    /// Notes that `latency-tracking` is on or off now.
    pub fn track_latencies(&self, is_on: bool) {
        let numbers = 0..self.commands;
        let used =
            numbers.map(|number| (number, self.usage(number))).filter(|(_, totals)| totals.usage.calls > 0);
        self.untracked.lock().switch(is_on, used);
    }

    /// Sets all counts to zero (CONFIG RESETSTAT); what is noted stays.
    pub fn reset(&self) {
        for share in &self.shares {
            share.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        }
        self.processor_micros_before.store(processor_micros(), Ordering::Relaxed);
        self.reset_usage(|_| true);
        self.errors.reset();
        let rates = [&self.commands_rate, &self.input_rate, &self.output_rate];
        for rate in rates.into_iter().chain([&self.reads_rate, &self.processor_rate]) {
            rate.reset();
        }
    }

    /// Forgets the use of commands, chosen by their numbers.
    pub fn reset_usage(&self, is_meant: impl Fn(usize) -> bool) {
        for share in &self.shares {
            let meant = (0..self.commands).filter(|number| is_meant(*number));
            meant.filter_map(|number| share.commands.used(number)).for_each(|used| used.reset());
        }
        self.untracked.lock().forget(is_meant);
    }

    /// Updates the rates; called every `elapsed_ms` milliseconds.
    pub fn sample_rates(&self, elapsed_ms: u64) {
        self.commands_rate.sample(self.total(Count::CommandsProcessed), elapsed_ms);
        self.input_rate.sample(self.total(Count::InputBytes), elapsed_ms);
        self.output_rate.sample(self.total(Count::OutputBytes), elapsed_ms);
        self.reads_rate.sample(self.total(Count::Reads), elapsed_ms);
        self.processor_rate.sample(self.processor_micros(), elapsed_ms);
    }

    /// Whether nothing was counted since the rates were updated, and all of them are down to zero.
    pub fn is_at_rest(&self) -> bool {
        self.commands_rate.is_at_rest(self.total(Count::CommandsProcessed))
            && self.input_rate.is_at_rest(self.total(Count::InputBytes))
            && self.output_rate.is_at_rest(self.total(Count::OutputBytes))
    }

    #[inline]
    fn share(&self) -> &Share {
        match SHARE.get().and_then(|number| self.shares.get(number)) {
            Some(share) => share,
            None => self.take_share(),
        }
    }

    /// Gives a thread its share. With more threads than shares some have one in common, which is only slower.
    #[cold]
    fn take_share(&self) -> &Share {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed) % self.shares.len();
        SHARE.set(Some(number));
        &self.shares[number]
    }
}

fn processor_micros() -> u64 {
    let times = processor::of_process();
    (times.user + times.system).as_micros() as u64
}

/// How fast a count has grown over the last samples, in units a second.
#[derive(Debug, Default)]
pub struct Rate {
    /// The bits of numbers of single precision: exact up to 16 million, and half as large as integers. Each
    /// instance has some hundred.
    samples: [AtomicU32; Rate::SAMPLES],
    next: AtomicU32,
    last: AtomicU64,
}

impl Rate {
    /// The mean is over this many samples. Redis: `STATS_METRIC_SAMPLES`.
    const SAMPLES: usize = 16;

    /// The mean of the samples.
    pub fn get(&self) -> u64 {
        let sample = |sample: &AtomicU32| f64::from(f32::from_bits(sample.load(Ordering::Relaxed)));
        (self.samples.iter().map(sample).sum::<f64>() / Rate::SAMPLES as f64) as u64
    }

    fn sample(&self, total: u64, elapsed_ms: u64) {
        let grown = total.saturating_sub(self.last.swap(total, Ordering::Relaxed));
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % Rate::SAMPLES;
        let grown = (grown * 1000 / elapsed_ms.max(1)) as f32;
        self.samples[at].store(grown.to_bits(), Ordering::Relaxed);
    }

    fn is_at_rest(&self, total: u64) -> bool {
        self.last.load(Ordering::Relaxed) == total
            && self.samples.iter().all(|sample| sample.load(Ordering::Relaxed) == 0)
    }

    fn reset(&self) {
        self.last.store(0, Ordering::Relaxed);
        self.samples.iter().for_each(|sample| sample.store(0, Ordering::Relaxed));
    }
}
