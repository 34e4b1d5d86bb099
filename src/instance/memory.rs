//! The memory in use, as `maxmemory` counts it: the data set and the memory of clients.
//!
//! Three things are not counted, as in Redis: the interpreter of scripts, which has a limit of its own, the
//! records that wait to be written to the log, and copies that only a running snapshot needs.
//!
//! The one instance of a process counts all that the process takes, also what the library takes around it.
//! Where several share the process, each counts what was taken on its [`Account`]: itself, and what threads
//! take while they work for it ([`Instance::charged`]). What a thread keeps for the next instance counts for
//! the instance for which it was made: a buffer, a compiled pattern. Tables that all instances share count
//! for none if the host has made them before.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Instance;
use crate::allocator::{self, Account, charged};
use crate::platform::memory::available_bytes;

/// Without a limit of their own, the results of long requests may take this part of the memory that the
/// process may have.
const LONG_REPLIES_PART: usize = 4;

/// When the memory in use reached its peak, as far as the server has looked: each tick, and for INFO.
#[derive(Debug, Default)]
pub struct Peak {
    bytes: AtomicUsize,
    at_s: AtomicU64,
}

/// For how long memory has been above `maxmemory`, and eviction could not change it.
#[derive(Debug, Default)]
pub struct Exceeding(Mutex<Exceeded>);

/// For how long memory was above `maxmemory`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exceeded {
    /// When it last began; `None` if it is over.
    began: Option<Instant>,
    /// How long it has been since then.
    pub current: Duration,
    /// How long all together, since the start or since CONFIG RESETSTAT.
    pub total: Duration,
}

impl Exceeding {
    /// Notes whether eviction has left memory above `maxmemory`.
    pub fn note(&self, is_above: bool) {
        let mut exceeded = self.0.lock();
        match exceeded.began {
            None if is_above => exceeded.began = Some(Instant::now()),
            Some(began) if !is_above => {
                exceeded.total += began.elapsed();
                exceeded.began = None;
            }
            _ => {}
        }
    }

    /// For how long memory was above it.
    pub fn report(&self) -> Exceeded {
        let exceeded = *self.0.lock();
        let current = exceeded.began.map_or(Duration::ZERO, |began| began.elapsed());
        Exceeded { current, total: exceeded.total + current, ..exceeded }
    }

    /// Counts anew (CONFIG RESETSTAT).
    pub fn reset(&self) {
        *self.0.lock() = Exceeded::default();
    }
}

impl Instance {
    /// Looks at the peak of the memory in use; returns when it was reached, in seconds since 1970: INFO's
    /// `used_memory_peak_time`.
    pub fn note_peak(&self) -> u64 {
        let bytes = self.peak_memory();
        if self.peak.bytes.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.peak.at_s.store(self.clock.since_epoch().as_secs(), Ordering::Relaxed);
        }
        self.peak.at_s.load(Ordering::Relaxed)
    }

    /// Bytes in use, without those of the interpreter: INFO's `used_memory`.
    pub fn used_memory(&self) -> usize {
        self.taken_bytes().saturating_sub(self.scripting.bytes())
    }

    /// The most bytes that were in use: INFO's `used_memory_peak`.
    pub fn peak_memory(&self) -> usize {
        self.account.as_deref().map_or_else(allocator::peak_bytes, Account::peak_bytes)
    }

    /// Bytes that were taken from the allocator.
    pub(super) fn taken_bytes(&self) -> usize {
        taken_bytes(self.account.as_deref())
    }

    /// Whether these are more than a limit. It costs some instructions, and no thread waits for another. No
    /// instance takes more than its process, so mostly one look at the process is enough.
    #[inline(always)]
    pub fn takes_more_than(&self, limit_bytes: usize) -> bool {
        allocator::uses_more_than(limit_bytes) && self.takes_it_itself(limit_bytes)
    }

    /// Whether it is this instance that takes more than a limit, and not another one of its process.
    #[cold]
    fn takes_it_itself(&self, limit_bytes: usize) -> bool {
        self.account.as_ref().is_none_or(|account| account.uses_more_than(limit_bytes))
    }

    /// Does work for this instance: what it takes from the allocator and gives back is the instance's.
    #[inline]
    pub fn charged<T>(&self, act: impl FnOnce() -> T) -> T {
        charged(self.account.as_deref(), act)
    }

    /// Bytes that the results of long requests may take together.
    pub fn long_replies_bytes_max(&self) -> usize {
        match self.config.long_requests_memory.size() {
            0 => available_bytes() / LONG_REPLIES_PART,
            bytes => bytes,
        }
    }

    /// The part of them that `maxmemory` does not count: INFO's `mem_not_counted_for_evict`. Clients that
    /// have not authenticated push out no data: `maxclients` and their own limits bound what they take.
    pub fn uncounted_memory(&self) -> usize {
        let strangers_bytes = self.clients.memory().strangers_bytes();
        self.keyspace.preserved_bytes() + self.followers.journal.pending_bytes() + strangers_bytes
    }

    /// Whether the memory in use is above a limit.
    #[inline]
    pub fn uses_more_memory_than(&self, limit_bytes: usize) -> bool {
        self.taken_bytes() > limit_bytes
            && self.used_memory().saturating_sub(self.uncounted_memory()) > limit_bytes
    }
}

/// Bytes that were taken from the allocator on an account, or without one by the whole process.
pub(super) fn taken_bytes(account: Option<&Account>) -> usize {
    account.map_or_else(allocator::used_bytes, Account::used_bytes)
}
