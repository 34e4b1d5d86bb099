//! Frees keys while memory is short.
//!
//! To know exactly which key is the oldest, the least used or the next to expire, the server would have to
//! keep all keys in order. That would cost memory, and time with every use. So, as in Redis (`evict.c`), it
//! samples a few keys and frees the best of them. The others stay in a pool and compete with the next
//! samples, which comes close to the exact choice. Sampling locks one shard, and another one only if the
//! first has no key to offer.

use super::Shard;
use super::store::entry::Entry;
use super::store::table::Table;
use super::transaction::Held;
use super::transaction::following::losses::Loss;
use super::transaction::following::news::Effect;
use super::{KeyLocation, Keyspace};
use crate::sync::Mutex;

/// The most candidates that the pool keeps for the next time. Redis: `EVPOOL_SIZE`.
const POOL_MAX: usize = 16;

/// The keys that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// All keys, with an expiry or without.
    All,
    /// Keys with an expiry.
    Expiring,
}

/// The order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The key that has not been used for the longest time first.
    Idlest,
    /// The key that is used least first.
    LeastUsed,
    /// The key that expires next first.
    NextToExpire,
    /// Any key, at random.
    Any,
}

/// Candidates that earlier samples have left.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Candidate>>);

/// A key that may be evicted.
#[derive(Debug)]
struct Candidate {
    /// The candidate with the highest score is evicted first.
    score: u64,
    database: usize,
    key: Vec<u8>,
}

impl Keyspace {
    /// Frees the best of this many samples, and adds the effects for clients to `effects`. Returns whether it
    /// freed a key.
    pub fn evict(
        &self,
        candidates: Candidates,
        first: First,
        samples: usize,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let mut pool = self.pool.0.lock();
        if first == First::Any {
            // Scores of another policy mean nothing.
            pool.clear();
        }
        self.sample(candidates, first, if first == First::Any { 1 } else { samples }, &mut pool);
        pool.sort_by_key(|candidate| candidate.score);
        pool.dedup_by(|one, other| one.database == other.database && one.key == other.key);
        let surplus = pool.len().saturating_sub(POOL_MAX);
        pool.drain(..surplus);
        while let Some(candidate) = pool.pop() {
            if self.evict_candidate(&candidate, candidates, effects) {
                return true;
            }
        }
        false
    }

    /// Frees a key if it is still there and may still be evicted.
    fn evict_candidate(
        &self,
        candidate: &Candidate,
        candidates: Candidates,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let hash = self.hash(&candidate.key);
        let number = self.shard_of(hash);
        let Some(mut shard) = self.lock_soon(number) else { return false };
        // Gone by now, with all others of its database?
        if shard.table(candidate.database).is_none() {
            return false;
        }
        let is_bound = self.is_bound(&shard, candidate.database, &candidate.key);
        let table = shard.table_mut(candidate.database);
        let may_go = !is_bound
            && table
                .find(KeyLocation::of(hash), &candidate.key)
                .is_some_and(|entry| may_go(entry, candidates));
        if may_go {
            let evicted = table.remove(KeyLocation::of(hash), &candidate.key);
            // A table with few keys takes as much memory as its keys do.
            table.give_back_slots(|entry| self.hash(entry.key()));
            shard.drop_empty_tables();
            let mut tx = self.transaction(candidate.database, Held::Many(vec![(number, shard)]));
            tx.follow_loss(&candidate.key, Loss::Evicted);
            if evicted.as_ref().is_some_and(|evicted| evicted.is_lock) {
                tx.follow_evicted(&candidate.key);
            }
            if let Some(entry) = evicted.and_then(|evicted| evicted.entry) {
                tx.discard(entry);
            }
            // Clients that wait for the stream's groups are notified that it was removed.
            tx.serve_blocked();
            let logged = tx.commit().unwrap_or(0);
            tx.take_served().into_iter().for_each(|served| served.deliver(logged));
            effects.append(&mut tx.take_effects());
            let garbage = tx.take_large_garbage();
            drop(tx);
            garbage.into_iter().for_each(|garbage| self.free_in_background(garbage));
        }
        may_go
    }

    /// Adds samples to the pool, starting at a random shard.
    fn sample(&self, candidates: Candidates, first: First, samples: usize, pool: &mut Vec<Candidate>) {
        let mut left = samples;
        let start = fastrand::usize(self.shard_numbers());
        for distance in self.shard_numbers() {
            let Some(shard) = self.lock_soon((start + distance) % self.shards.len()) else { continue };
            self.sample_shard(&shard, candidates, first, &mut left, pool);
            if left == 0 {
                return;
            }
        }
    }

    fn sample_shard(
        &self,
        shard: &Shard,
        candidates: Candidates,
        first: First,
        left: &mut usize,
        pool: &mut Vec<Candidate>,
    ) {
        let start = fastrand::usize(..shard.databases());
        for distance in 0..shard.databases() {
            let database = (start + distance) % shard.databases();
            let Some(table) = shard.table(database) else { continue };
            if candidates == Candidates::Expiring && table.size().expiring == 0 {
                continue;
            }
            let may_go =
                |entry: &&Entry| may_go(entry, candidates) && !self.is_bound(shard, database, entry.key());
            for entry in from_anywhere(table).filter(may_go).take(*left) {
                let score = self.score(entry, first);
                pool.push(Candidate { score, database, key: entry.key().to_vec() });
                *left -= 1;
            }
        }
    }

    /// Whether a key is a lock that is bound to a connection: its holder is at work.
    fn is_bound(&self, shard: &Shard, database: usize, key: &[u8]) -> bool {
        let guards = shard.side_tables().map(|side_tables| &side_tables.guards);
        guards.is_some_and(|guards| !guards.is_empty() && guards.is_bound(self.hash(key), database, key))
    }

    fn score(&self, entry: &Entry, first: First) -> u64 {
        match first {
            First::Idlest => self.access.idle(entry.stamp()).as_millis() as u64,
            First::LeastUsed => u64::from(u8::MAX - self.access.frequency(entry.stamp())),
            First::NextToExpire => u64::MAX - entry.expires_at_ms().unwrap_or(u64::MAX),
            First::Any => 0,
        }
    }
}

fn may_go(entry: &Entry, candidates: Candidates) -> bool {
    candidates == Candidates::All || entry.expires_at_ms().is_some()
}

/// All entries of a table, from a random place on and around.
fn from_anywhere(table: &Table) -> impl Iterator<Item = &Entry> {
    let places = table.places();
    let start = fastrand::usize(..places.max(1));
    (0..places).filter_map(move |distance| table.at((start + distance) % places))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keyspace::Expiry;

    const SAMPLES: usize = 5;

    fn put(keyspace: &Keyspace, key: &str, expiry: Expiry) {
        keyspace.begin(0, key.as_bytes()).unwrap().put(key.as_bytes(), b"value", expiry);
    }

    fn keys(keyspace: &Keyspace) -> usize {
        keyspace.begin_all(0).unwrap().database_size().keys
    }

    #[test]
    fn only_keys_that_may_go_are_evicted() {
        let keyspace = Keyspace::alone(2);
        let later = keyspace.clock().now_ms() + 1_000_000;
        for number in 0..100 {
            put(&keyspace, &format!("stays:{number}"), Expiry::Never);
        }
        for number in 0..10 {
            put(&keyspace, &format!("goes:{number}"), Expiry::At(later));
        }
        for first in [First::Any, First::Idlest] {
            for _ in 0..5 {
                assert!(keyspace.evict(Candidates::Expiring, first, SAMPLES, &mut Vec::new()));
            }
        }
        assert!(!keyspace.evict(Candidates::Expiring, First::NextToExpire, SAMPLES, &mut Vec::new()));
        assert_eq!((keys(&keyspace), keyspace.begin_all(0).unwrap().counters().evicted), (100, 10));
        while keyspace.evict(Candidates::All, First::Any, SAMPLES, &mut Vec::new()) {}
        assert_eq!(keys(&keyspace), 0);
    }

    #[test]
    fn keys_in_use_outlive_the_others() {
        let keyspace = Keyspace::alone(1);
        for number in 0..2000 {
            put(&keyspace, &number.to_string(), Expiry::Never);
        }
        keyspace.access().advance(Duration::from_secs(60));
        for number in 0..1000 {
            let key = number.to_string();
            keyspace.begin(0, key.as_bytes()).unwrap().get_bytes(key.as_bytes());
        }
        for _ in 0..500 {
            assert!(keyspace.evict(Candidates::All, First::Idlest, SAMPLES, &mut Vec::new()));
        }
        let tx = keyspace.begin_all(0).unwrap();
        let in_use = tx.keys().filter(|key| std::str::from_utf8(key).unwrap().parse::<u32>().unwrap() < 1000);
        assert!(in_use.count() > 950, "sampling is wrong, but rarely");
    }

    #[test]
    fn the_next_to_expire_goes_first() {
        let keyspace = Keyspace::alone(1);
        let now_ms = keyspace.clock().now_ms();
        for number in 1..=500_u64 {
            put(&keyspace, &number.to_string(), Expiry::At(now_ms + 1_000_000 * number));
        }
        for _ in 0..200 {
            assert!(keyspace.evict(Candidates::Expiring, First::NextToExpire, SAMPLES, &mut Vec::new()));
        }
        let tx = keyspace.begin_all(0).unwrap();
        let late = tx.keys().filter(|key| std::str::from_utf8(key).unwrap().parse::<u32>().unwrap() > 250);
        assert!(late.count() > 220, "sampling is wrong, but rarely");
    }
}
