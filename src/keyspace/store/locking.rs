//! How threads wait for shards.
//!
//! A transaction locks its shards in ascending order and holds them until it ends. So transactions never wait
//! for each other in a circle. There is one exception, one script at a time: it may need another shard while
//! it runs, and waits for it while it holds others, in any order ([`Transaction::hold`]). So no other
//! transaction may hold shards and wait for long. If it does not get a shard soon, it unlocks all its shards
//! and begins again.
//!
//! A script may also run for ever. Once it has marked the keyspace as busy, no thread waits for a shard any
//! longer, and transactions do not begin.
//!
//! A client's request never waits for long, because its thread has other clients to serve. After a moment it
//! is [contended](NotNow::Contended), and its client tries again when the shard is free. If a shard is known
//! to be held for long, the next requests for it do not wait even for that moment.
//!
//! [`Transaction::hold`]: crate::keyspace::Transaction::hold

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::keyspace::{Hold, Shard};
use crate::keyspace::{Keyspace, SHARDS_MAX};
use crate::sync::{Mutex, MutexGuard};

/// A script holds shards, and has run for so long that no thread waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Why a transaction does not begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// A script has run for so long that no thread waits for it.
    Busy,
    /// Another thread holds the shard of this number for more than a moment.
    Contended(usize),
}

/// A bit for each shard: the last request for the shard waited in vain.
#[derive(Debug)]
pub(in crate::keyspace) struct LongHeld([AtomicU64; SHARDS_MAX / 64]);

impl Default for LongHeld {
    fn default() -> LongHeld {
        LongHeld(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LongHeld {
    fn has(&self, number: usize) -> bool {
        self.0[number / 64].load(Ordering::Relaxed) >> (number % 64) & 1 == 1
    }

    fn add(&self, number: usize) {
        self.0[number / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    fn remove(&self, number: usize) {
        self.0[number / 64].fetch_and(!(1 << (number % 64)), Ordering::Relaxed);
    }
}

/// Numbers of shards, a bit for each.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct ShardSet([u64; SHARDS_MAX / 64]);

impl ShardSet {
    pub(in crate::keyspace) fn add(&mut self, number: usize) {
        self.0[number / 64] |= 1 << (number % 64);
    }

    /// The numbers in ascending order.
    pub(in crate::keyspace) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let lowest = (left != 0).then(|| 64 * word + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(lowest)
            })
        })
    }
}

/// Locked shards with their numbers, in ascending order.
pub(in crate::keyspace) type HeldShards<'a> = Vec<(usize, MutexGuard<'a, Shard>)>;

/// How long a thread waits for a shard while it holds others, or if it can do without it.
const SOON: Duration = Duration::from_millis(1);
/// How long a thread that holds no shard waits before it checks whether a script keeps the keyspace busy.
const GLANCE: Duration = Duration::from_millis(10);

impl Keyspace {
    /// The flag that says whether the keyspace is busy with a script. The module that runs scripts sets it.
    pub fn busy_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_busy)
    }

    /// Whether the keyspace is busy with a script.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Locks one shard for a client's request, unless another thread holds it for long.
    #[inline(always)]
    pub(in crate::keyspace) fn lock_for_client(
        &self,
        number: usize,
    ) -> Result<MutexGuard<'_, Shard>, NotNow> {
        self.shards[number].try_lock().map_or_else(|| self.wait_for_client(number), Ok)
    }

    #[cold]
    fn wait_for_client(&self, number: usize) -> Result<MutexGuard<'_, Shard>, NotNow> {
        if !self.long_held.has(number)
            && let Some(held) = self.shards[number].try_lock_for(SOON)
        {
            return Ok(held);
        }
        if self.is_busy() {
            return Err(NotNow::Busy);
        }
        self.long_held.add(number);
        Err(NotNow::Contended(number))
    }

    /// Whether a client may try again to lock a shard: it is free, or the keyspace is busy and the client
    /// gets an error.
    pub fn is_free(&self, number: usize) -> bool {
        let is_free = self.shards[number].try_lock().is_some();
        if is_free {
            self.long_held.remove(number);
        }
        is_free || self.is_busy()
    }

    /// Locks one shard, for a caller that holds none.
    #[inline(always)]
    pub(in crate::keyspace) fn lock_one(&self, number: usize) -> Result<MutexGuard<'_, Shard>, Busy> {
        let shard = &self.shards[number];
        shard.try_lock().map_or_else(|| self.wait_for(shard), Ok)
    }

    #[cold]
    fn wait_for<'a>(&self, shard: &'a Mutex<Shard>) -> Result<MutexGuard<'a, Shard>, Busy> {
        loop {
            match shard.try_lock_for(GLANCE) {
                Some(held) => return Ok(held),
                None if self.is_busy() => return Err(Busy),
                None => {}
            }
        }
    }

    /// Locks several shards, named in ascending order, for a caller that holds none.
    pub(in crate::keyspace) fn lock_many(
        &self,
        wanted: impl Iterator<Item = usize> + Clone,
    ) -> Result<HeldShards<'_>, Busy> {
        loop {
            let locked = wanted.clone().map(|number| Some((number, self.lock_soon(number)?)));
            match locked.collect() {
                Some(held) => return Ok(held),
                None if self.is_busy() => return Err(Busy),
                None => {}
            }
        }
    }

    /// Locks several shards, named in ascending order, for a client's request, unless another thread holds
    /// one of them for long.
    pub(in crate::keyspace) fn lock_many_for_client(
        &self,
        wanted: impl Iterator<Item = usize>,
    ) -> Result<HeldShards<'_>, NotNow> {
        wanted.map(|number| Ok((number, self.lock_for_client(number)?))).collect()
    }

    /// Checks that no other thread holds a shard for long, for a request that looks at one after the other.
    pub fn hold_none_when_free(&self) -> Result<Hold<'_>, NotNow> {
        self.shard_numbers().try_for_each(|number| self.lock_for_client(number).map(drop))?;
        Ok(Hold::nothing())
    }

    /// Locks one shard, however long it takes. Meanwhile other threads serve the clients of this thread.
    pub(in crate::keyspace) fn lock_at_last(&self, number: usize) -> MutexGuard<'_, Shard> {
        self.lock_soon(number).unwrap_or_else(|| {
            self.hand_over.get().into_iter().for_each(|hand_over| hand_over());
            self.shards[number].lock()
        })
    }

    /// Locks all shards, however long it takes, for a caller that holds none.
    pub(in crate::keyspace) fn lock_all_at_last(&self) -> HeldShards<'_> {
        loop {
            match self.lock_many(self.shard_numbers()) {
                Ok(held) => return held,
                // The caller holds no shard, so it does not delay the script.
                Err(Busy) => {
                    self.hand_over.get().into_iter().for_each(|hand_over| hand_over());
                    thread::sleep(GLANCE);
                }
            }
        }
    }

    /// Locks one shard, unless another thread holds it for more than a moment.
    pub(in crate::keyspace) fn lock_soon(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        self.lock_if_free(number).or_else(|| self.shards[number].try_lock_for(SOON))
    }

    /// Locks one shard, unless another thread holds it.
    pub(in crate::keyspace) fn lock_if_free(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        self.shards[number].try_lock()
    }
}
