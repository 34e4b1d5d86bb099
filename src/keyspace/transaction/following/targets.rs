//! What clients that wait need besides the keys for which they wait: the targets of BLMOVE.
//!
//! A client that fills a key serves the waiters on its own transaction, so that one must hold their targets,
//! too. A transaction that holds shards must not wait for more. So it holds the targets before its command
//! runs, and also the targets of the clients that wait for those. If another client holds one of them, the
//! transaction unlocks everything and begins again with all of them, in ascending order. A script holds the
//! targets when it serves: it may wait for more shards at any time.
//!
//! A list may have thousands of waiters, each with a target of its own. Only those at the front that the
//! command may serve count. If one of these gives up at the last moment, the one behind it may lack its
//! target; then the transaction waits for the target for a moment, and nearly always gets it.

use std::collections::BTreeSet;

use crate::keyspace::NotNow;
use crate::keyspace::store::locking::ShardSet;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::blocked::Waiter;
use crate::values::LIST_KIND;

/// How often a transaction begins again because it lacks targets. After that it holds everything.
const TRIES_MAX: usize = 8;

impl<'a> Transaction<'a> {
    /// Whether any client waits, so that a command may have to serve it. A script does not ask before it
    /// serves.
    #[inline(always)]
    pub fn may_serve(&self) -> bool {
        self.wanted.blocked() && !self.may_hold_more()
    }

    /// Holds the targets of the clients that wait for these keys, for a command that has not begun and brings
    /// at most so many elements. What the transaction holds may have changed when this returns.
    ///
    /// # Errors
    ///
    /// [`NotNow`]
    #[cold]
    pub fn hold_targets<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        elements_max: usize,
    ) -> Result<(), NotNow> {
        for _ in 0..TRIES_MAX {
            let Some(needed) = self.hold_free_targets(keys.clone(), elements_max) else { return Ok(()) };
            self.let_go();
            self.hold_again(self.keyspace().hold_shards(&needed)?);
        }
        self.let_go();
        self.hold_again(self.keyspace().hold_all()?);
        Ok(())
    }

    /// Whether the targets of the clients that wait for a key were free, so that the transaction holds them.
    #[cold]
    pub fn hold_targets_if_free(&mut self, key: &[u8], elements_max: usize) -> bool {
        self.hold_free_targets([key].into_iter(), elements_max).is_none()
    }

    /// Holds all targets that are free. If one is not, returns the shards that it needs in all.
    fn hold_free_targets<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        elements_max: usize,
    ) -> Option<ShardSet> {
        let mut targets: Vec<Box<[u8]>> = Vec::new();
        keys.for_each(|key| self.add_targets(key, elements_max, &mut targets));
        let (mut known, mut lacking) = (BTreeSet::new(), Vec::new());
        while let Some(target) = targets.pop() {
            if known.contains(&target) {
                continue;
            }
            if self.hold_if_free(&target) {
                self.add_targets(&target, elements_max, &mut targets);
            } else {
                lacking.push(self.keyspace().shard_of(self.keyspace().hash(&target)));
            }
            known.insert(target);
        }
        if lacking.is_empty() {
            return None;
        }
        let mut needed = self.held.numbers(self.keyspace());
        lacking.into_iter().for_each(|number| needed.add(number));
        Some(needed)
    }

    /// Adds the targets of the clients that are the next ones to be served with so many elements.
    fn add_targets(&self, key: &[u8], elements_max: usize, targets: &mut Vec<Box<[u8]>>) {
        let (spot, shard) = self.shard(key);
        let Some(side_tables) = shard.side_tables() else { return };
        for line in side_tables.blocked.in_any_database(spot.hash, key) {
            let mut left = elements_max;
            for (_, waiter) in line.all() {
                if left == 0 {
                    break;
                }
                targets.extend(waiter.targets.iter().cloned());
                left -= usize::from(takes_an_element(waiter));
            }
        }
    }

    /// Holds the targets of a client that is about to be served.
    pub(super) fn hold_for(&mut self, waiter: &Waiter) -> bool {
        let targets = waiter.targets.iter();
        targets.map(|target| &**target).all(|key| self.hold([key].into_iter()).is_ok() || self.hold_soon(key))
    }
}

/// Whether a client surely takes an element if there is one.
fn takes_an_element(waiter: &Waiter) -> bool {
    waiter.attempt.kind() == LIST_KIND && !waiter.attempt.is_shared() && waiter.is_waiting()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::transaction::following::blocked::{Attempt, Attempted};
    use crate::keyspace::{Keyspace, Transaction};

    /// A client that is never served.
    struct Client {
        is_shared: bool,
    }

    impl Attempt for Client {
        fn kind(&self) -> u8 {
            LIST_KIND
        }

        fn is_shared(&self) -> bool {
            self.is_shared
        }

        fn attempt(&self, _: &mut Transaction<'_>, _: &[&[u8]], _: &mut Vec<u8>) -> Attempted {
            Attempted::Nothing
        }

        fn ends_without_value(&self) -> bool {
            false
        }

        fn wake(&self) {}

        fn client(&self) -> u64 {
            0
        }
    }

    /// A key in this shard.
    fn key_in(keyspace: &Keyspace, shard: usize) -> Vec<u8> {
        let mut names = (0..).map(|number: u32| number.to_string().into_bytes());
        names.find(|name| keyspace.shard_of_key(name) == shard).expect("a key")
    }

    fn wait(keyspace: &Keyspace, key: &[u8], target: &[u8], is_shared: bool) {
        let mut tx = keyspace.begin(0, key).unwrap();
        let _ = tx.block([key].into_iter(), [target].into_iter(), None, Box::new(Client { is_shared }));
    }

    #[test]
    fn a_push_needs_the_targets_of_the_clients_that_it_serves_and_no_others() {
        let keyspace = Keyspace::alone(1);
        let keys: Vec<Vec<u8>> = (0..6).map(|shard| key_in(&keyspace, shard)).collect();
        // The first one may take nothing, and the third one waits for the target of the second.
        wait(&keyspace, &keys[5], &keys[0], true);
        wait(&keyspace, &keys[5], &keys[1], false);
        wait(&keyspace, &keys[1], &keys[2], false);
        wait(&keyspace, &keys[5], &keys[3], false);
        let holds = |elements_max: usize| {
            let mut tx = keyspace.begin(0, &keys[5]).unwrap();
            assert!(tx.may_serve());
            tx.hold_targets([&*keys[5]].into_iter(), elements_max).map(|()| {
                let numbers: Vec<usize> = tx.held.numbers(&keyspace).numbers().collect();
                numbers
            })
        };
        assert_eq!(holds(0), Ok(vec![5]));
        assert_eq!(holds(1), Ok(vec![0, 1, 2, 5]));
        assert_eq!(holds(usize::MAX), Ok(vec![0, 1, 2, 3, 5]));
        let third = keyspace.begin(0, &keys[3]).unwrap();
        assert_eq!(holds(1), Ok(vec![0, 1, 2, 5]));
        assert_eq!(holds(2), Err(NotNow::Contended(3)));
        drop(third);
        assert_eq!(holds(2), Ok(vec![0, 1, 2, 3, 5]));
    }

    #[test]
    fn a_ring_of_lists_has_an_end() {
        let keyspace = Keyspace::alone(1);
        let keys: Vec<Vec<u8>> = (0..3).map(|shard| key_in(&keyspace, shard)).collect();
        for at in 0..3 {
            wait(&keyspace, &keys[at], &keys[(at + 1) % 3], false);
        }
        let mut tx = keyspace.begin(0, &keys[1]).unwrap();
        assert!(tx.hold_targets_if_free(&keys[1], 1));
        assert_eq!(tx.held.numbers(&keyspace).numbers().collect::<Vec<usize>>(), [0, 1, 2]);
    }
}
