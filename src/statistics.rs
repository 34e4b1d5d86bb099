//! What INFO counts about connections and traffic.
//!
//! Connections add to these once a batch of requests, not once a request.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, until CONFIG RESETSTAT.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What it has come to.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// All counters of the server; those of the keyspace are kept in its shards.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Connections that were accepted, the rejected ones included.
    pub connections_received: Counter,
    /// Connections that were refused because there were `maxclients` already.
    pub connections_rejected: Counter,
    /// Commands that were executed, or refused.
    pub commands_processed: Counter,
    /// Commands and requests that were answered with an error.
    pub error_replies: Counter,
    /// Bytes read from clients.
    pub input_bytes: Counter,
    /// Bytes written to clients.
    pub output_bytes: Counter,
    /// Reads from clients' sockets.
    pub reads: Counter,
    /// Writes to clients' sockets.
    pub writes: Counter,
    /// Commands a second, lately.
    pub commands_rate: Rate,
    /// Bytes read a second, lately.
    pub input_rate: Rate,
    /// Bytes written a second, lately.
    pub output_rate: Rate,
}

impl Statistics {
    /// Sets all of them to zero.
    pub fn reset(&self) {
        let Statistics {
            connections_received,
            connections_rejected,
            commands_processed,
            error_replies,
            input_bytes,
            output_bytes,
            reads,
            writes,
            commands_rate,
            input_rate,
            output_rate,
        } = self;
        for counter in [
            connections_received,
            connections_rejected,
            commands_processed,
            error_replies,
            input_bytes,
            output_bytes,
            reads,
            writes,
        ] {
            counter.reset();
        }
        for rate in [commands_rate, input_rate, output_rate] {
            rate.reset();
        }
    }

    /// Brings the rates up to date; called every so many milliseconds.
    pub fn sample_rates(&self, elapsed_ms: u64) {
        self.commands_rate.sample(self.commands_processed.get(), elapsed_ms);
        self.input_rate.sample(self.input_bytes.get(), elapsed_ms);
        self.output_rate.sample(self.output_bytes.get(), elapsed_ms);
    }
}

/// How fast a counter has grown over the last samples, in units a second.
#[derive(Debug, Default)]
pub struct Rate {
    samples: [AtomicU64; Rate::SAMPLES],
    next: AtomicU64,
    last: AtomicU64,
}

impl Rate {
    /// Redis: `STATS_METRIC_SAMPLES`.
    const SAMPLES: usize = 16;

    /// The mean of the samples.
    pub fn get(&self) -> u64 {
        self.samples.iter().map(|sample| sample.load(Ordering::Relaxed)).sum::<u64>() / Rate::SAMPLES as u64
    }

    fn sample(&self, total: u64, elapsed_ms: u64) {
        let grown = total.saturating_sub(self.last.swap(total, Ordering::Relaxed));
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % Rate::SAMPLES;
        self.samples[at].store(grown * 1000 / elapsed_ms.max(1), Ordering::Relaxed);
    }

    fn reset(&self) {
        self.last.store(0, Ordering::Relaxed);
        self.samples.iter().for_each(|sample| sample.store(0, Ordering::Relaxed));
    }
}
