//! How shards are waited for.
//!
//! Transactions lock the shards they need in ascending order and then hold them until they end, so they never
//! wait for each other in a circle. One script at a time is excepted: it may come to need a shard that nobody
//! foresaw, and waits for it while it holds others, in any order ([`Transaction::hold`]). So nobody else may
//! hold shards and wait for long: who does not get one lets go of all and begins anew.
//!
//! A script may also run for ever. Once the keyspace is said to be busy with it, nobody waits for a shard any
//! longer: transactions do not begin.
//!
//! [`Transaction::hold`]: super::Transaction::hold

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Keyspace;
use super::shard::Shard;
use super::sync::{Mutex, MutexGuard};

/// A script holds shards and has been running for too long to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// Locked shards with their numbers, which ascend.
pub(super) type HeldShards<'a> = Vec<(usize, MutexGuard<'a, Shard>)>;

/// How long somebody who holds shards waits for another one, or somebody who could do without it.
const SOON: Duration = Duration::from_millis(1);
/// How long somebody who holds none waits before looking whether to wait any longer.
const GLANCE: Duration = Duration::from_millis(10);

impl Keyspace {
    /// What says whether a script has been running for too long; whoever runs scripts sets it.
    pub fn busy_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_busy)
    }

    /// Whether one has.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Locks one shard, for somebody who holds none.
    #[inline(always)]
    pub(super) fn lock_one(&self, number: usize) -> Result<MutexGuard<'_, Shard>, Busy> {
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

    /// Locks several shards, named in ascending order, for somebody who holds none.
    pub(super) fn lock_many(
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

    /// Locks one shard, unless somebody else holds it for long.
    pub(super) fn lock_soon(&self, number: usize) -> Option<MutexGuard<'_, Shard>> {
        let shard = &self.shards[number];
        shard.try_lock().or_else(|| shard.try_lock_for(SOON))
    }
}
