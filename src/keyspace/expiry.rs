//! Frees expired keys that no client asks for.
//!
//! A sweep visits the shards one after the other. Each table knows which entries expire next, and when. So a
//! keyspace in which nothing expires costs one comparison a table, and an entry that expires costs a look at
//! some 32 others. In prototypes a look cost 12 ns. An ordered index of all expiries cost 31 bytes and 200 ns
//! a key.
//!
//! Fields of hashes expire in the same sweep. A hash whose last field has expired leaves its table as an
//! expired key does. Of another hash, the sweep frees a few fields at a time, and lets go of the lock in
//! between; the hash itself knows which fields are next.
//!
//! The work is cut into slices of [`SLICE`]. Between two slices the thread serves clients. That bounds both
//! the delay of a client and the sweep's share of one core: a quarter by default, as in Redis. [`Pace`] says
//! how long the thread serves clients, and how often a sweep begins.

use std::time::{Duration, Instant};

use super::Keyspace;
use super::store::shard::SweepScope;
use super::transaction::following::guarded::Guarded;
use super::transaction::following::losses::{DatabaseKey, Loss};
use super::transaction::following::news::Effect;
use super::transaction::{Held, Transaction};

/// How long the sweep works before its thread serves clients.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// How long a sweep pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After each slice, while there is more to do.
    pub pause: Duration,
    /// After a whole round of the shards.
    pub rest: Duration,
}

impl Pace {
    /// The pace for `hz` and `active-expire-effort` (1 to 10). As in Redis, each step of effort is two
    /// hundredths of a core.
    pub fn new(hz: u32, effort: u32) -> Pace {
        let share_percent = 25 + 2 * effort.clamp(1, 10).saturating_sub(1);
        Pace {
            pause: SLICE * (100 - share_percent) / share_percent,
            rest: Duration::from_secs(1) / hz.max(1),
        }
    }
}

/// Entries between two looks at the clock.
const ENTRIES_PER_GLANCE: usize = 512;

/// A round of the shards.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next_shard: usize,
    /// Hashes of the shard before, of which some fields have expired, with their databases.
    due: Vec<DatabaseKey>,
    /// Such hashes whose shards were held by other threads for long. They have their turn in the next round.
    postponed: Vec<DatabaseKey>,
}

impl Sweep {
    /// Frees expired keys for one slice, and starts where the last slice ended. Returns how long to wait
    /// before the next. Calls `notify` with the effects for clients, under the lock.
    pub(crate) fn slice(
        &mut self,
        keyspace: &Keyspace,
        pace: Pace,
        mut notify: impl FnMut(Vec<Effect>),
    ) -> Duration {
        let (started, started_ms) = (Instant::now(), keyspace.clock.now_ms());
        let (mut looked_at, mut has_waited) = (0, false);
        loop {
            while let Some((database, key)) = self.due.pop() {
                match free_fields(keyspace, database, &key, &mut notify) {
                    Some(has_more) => self.due.extend(has_more.then_some((database, key))),
                    None => self.postponed.push((database, key)),
                }
                if started.elapsed() >= SLICE {
                    return pace.pause;
                }
            }
            if self.next_shard >= keyspace.shards.len() {
                break;
            }
            // The sweep does not wait for a shard that another thread holds for long. Other threads may hold
            // all of them, and this thread has clients to serve.
            let shard = match has_waited {
                true => keyspace.lock_if_free(self.next_shard),
                false => keyspace.lock_soon(self.next_shard),
            };
            has_waited |= shard.is_none();
            if let Some(shard) = shard
                && shard.is_due(started_ms)
            {
                let mut tx = keyspace.transaction(0, Held::Many(vec![(self.next_shard, shard)]));
                let (entries, due) = tx.sweep(SweepScope::Due);
                looked_at += entries;
                self.due = due;
                end(tx, keyspace, &mut notify);
            }
            self.next_shard += 1;
            if looked_at >= ENTRIES_PER_GLANCE {
                looked_at = 0;
                if started.elapsed() >= SLICE {
                    return pace.pause;
                }
            }
        }
        self.next_shard = 0;
        self.due.append(&mut self.postponed);
        pace.rest
    }
}

impl Keyspace {
    /// When a sweep has something to do, in milliseconds since 1970: now, if another thread holds a shard for
    /// long. `None` if nothing expires.
    pub fn sweep_at_ms(&self) -> Option<u64> {
        let of_shard = |number| self.lock_soon(number).map_or(0, |shard| shard.sweep_at_ms());
        self.shard_numbers().map(of_shard).min().filter(|at_ms| *at_ms < u64::MAX)
    }

    /// Looks after some of the locks whose alarms are due. Renews those that are bound to connections, and
    /// if it may, frees those that have expired, and grants each to the next in line. Calls `notify` with the
    /// effects for clients, under the lock. The caller holds nothing.
    pub fn ring_alarms(&self, may_free: bool, mut notify: impl FnMut(Vec<Effect>)) {
        let alarms = &self.followers.alarms;
        for name in alarms.take_due(self.clock.now_ms()) {
            let tend = |tx: &mut Transaction<'_>| tx.tend_bond(&name, may_free);
            if !self.visit(&name, may_free, tend, &mut notify) {
                alarms.put_off(name);
            }
        }
    }

    /// Looks after one lock or permit by no command of a client, and then, if it may, frees it if it has
    /// expired, and grants it to the next in line. Calls `notify` with the effects for clients, under the
    /// lock of the shard. Returns whether it could: another thread may hold the shard for long. The caller
    /// holds nothing.
    pub(crate) fn visit(
        &self,
        name: &Guarded,
        may_free: bool,
        look_after: impl FnOnce(&mut Transaction<'_>),
        mut notify: impl FnMut(Vec<Effect>),
    ) -> bool {
        let (database, key) = (name.database, &*name.key);
        let number = self.shard_of(self.hash(key));
        let Some(shard) = self.lock_soon(number) else { return false };
        let mut tx = self.transaction(database, Held::Many(vec![(number, shard)]));
        look_after(&mut tx);
        if may_free {
            tx.free_expired(key);
            // If it has not expired, it gets an alarm again.
            match &name.permit {
                Some(token) => tx.doubt_permit(key, token),
                None => {
                    tx.note_ready(database, key);
                    tx.doubt(key, None);
                }
            }
        } else if tx.is_to_free(name) {
            self.followers.alarms.put_off(name.clone());
        } else {
            tx.set_guard_alarm(key, name.permit.as_deref());
        }
        end(tx, self, &mut notify);
        true
    }
}

/// Frees some expired fields of a hash. Returns whether there are more; nothing if another thread holds the
/// shard for long.
fn free_fields(
    keyspace: &Keyspace,
    database: usize,
    key: &[u8],
    notify: &mut impl FnMut(Vec<Effect>),
) -> Option<bool> {
    let number = keyspace.shard_of(keyspace.hash(key));
    let shard = keyspace.lock_soon(number)?;
    let mut tx = keyspace.transaction(database, Held::Many(vec![(number, shard)]));
    let freed = tx.free_fields(key);
    keyspace.losses.count_swept(Loss::SomeFieldsExpired(freed.count));
    end(tx, keyspace, notify);
    Some(freed.has_more)
}

/// Ends a transaction that no client has begun.
fn end(mut tx: Transaction<'_>, keyspace: &Keyspace, notify: &mut impl FnMut(Vec<Effect>)) {
    tx.serve_blocked();
    let logged = tx.commit().unwrap_or(0);
    tx.take_served().into_iter().for_each(|served| served.deliver(logged));
    let effects = tx.take_effects();
    if !effects.is_empty() {
        notify(effects);
    }
    let garbage = tx.take_large_garbage();
    drop(tx);
    garbage.into_iter().for_each(|garbage| keyspace.free_in_background(garbage));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    #[test]
    fn more_effort_means_less_rest() {
        let milliseconds = |hz, effort| {
            let Pace { pause, rest } = Pace::new(hz, effort);
            (pause.as_micros(), rest.as_millis())
        };
        assert_eq!(milliseconds(10, 1), (3000, 100));
        assert_eq!(milliseconds(500, 10), (1325, 2));
        assert_eq!(milliseconds(0, 0), (3000, 1000));
    }

    #[test]
    fn expired_keys_that_no_client_asks_for_are_freed() {
        let keyspace = Keyspace::alone(2);
        let soon_ms = keyspace.clock.now_ms() + 1_000_000;
        let (mut sweep, pace) = (Sweep::default(), Pace::new(10, 1));
        for number in 0..10_000 {
            let key = format!("key:{number}");
            let expiry = if number % 2 == 0 { Expiry::At(soon_ms) } else { Expiry::Never };
            keyspace.begin(number % 2, key.as_bytes()).unwrap().put(key.as_bytes(), b"v", expiry);
        }
        while sweep.slice(&keyspace, pace, |_| ()) != pace.rest {}
        assert_eq!(keyspace.begin_all(0).unwrap().counters().expired, 0);
        keyspace.clock.set(soon_ms).unwrap();
        while sweep.slice(&keyspace, pace, |_| ()) != pace.rest {}
        let tx = keyspace.begin_all(0).unwrap();
        assert_eq!(tx.database_sizes().map(|size| size.keys).collect::<Vec<_>>(), [0, 5000]);
        assert_eq!(tx.counters().expired, 5000);
    }
}
