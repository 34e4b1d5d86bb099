//! Holding other shards than the transaction was begun with.
//!
//! A script comes to hold more, one script at a time: see [`locking`](crate::keyspace::store::locking). A
//! command on very many keys may hold one after the other instead of all at once, where it need not see all
//! of them at one moment ([`Transaction::hold_only`]).

use super::{Held, Hold, Transaction, is_same};
use crate::keyspace::Keyspace;
use crate::keyspace::Shard;
use crate::sync::MutexGuard;

/// A script named a key, and its transaction may not hold more shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing;

impl<'a> Transaction<'a> {
    /// Holds this after everything was [unlocked](Self::let_go), for a command that has not begun.
    pub fn hold_again(&mut self, Hold(held): Hold<'a>) {
        self.held = held;
        // What is held now is looked at for the first time.
        self.moment.set(0);
        self.wanted = self.keyspace.followers.interest.load();
    }

    /// Whether the transaction may hold more shards, however long it waits for them.
    pub(in crate::keyspace) fn may_hold_more(&self) -> bool {
        self.may_hold_more
    }

    /// Allows the transaction to hold more shards from now on. The caller has the turn of scripts: no other
    /// transaction may wait for a shard while it holds others.
    pub fn allow_more(&mut self) {
        self.may_hold_more = true;
    }

    /// Holds these keys as well, however long that takes.
    ///
    /// # Errors
    ///
    /// [`Missing`], for a transaction that was not [allowed](Self::allow_more) to hold more.
    pub fn hold<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) -> Result<(), Missing> {
        for key in keys {
            match &self.held {
                Held::One { key: held, .. } if is_same(held, key) => {}
                _ => self.hold_shard(self.keyspace.shard_of(self.keyspace.hash(key)))?,
            }
        }
        Ok(())
    }

    /// Holds everything, however long that takes.
    ///
    /// # Errors
    ///
    /// [`Missing`], as for [`hold`](Self::hold).
    pub fn hold_everything(&mut self) -> Result<(), Missing> {
        self.keyspace.shard_numbers().try_for_each(|number| self.hold_shard(number))
    }

    /// Unlocks everything and holds this key alone, however long that takes, at a moment of its own.
    pub fn hold_only(&mut self, key: &[u8]) {
        self.hold_only_now(key);
        self.moment.set(0);
    }

    /// The same, while the moment of the transaction stays: expired is what was then.
    pub fn hold_only_now(&mut self, key: &[u8]) {
        let wanted = self.keyspace.shard_of(self.keyspace.hash(key));
        if !matches!(&self.held, Held::Many(shards) if matches!(&shards[..], [(held, _)] if *held == wanted))
        {
            let mut shards = match std::mem::replace(&mut self.held, Held::Many(Vec::new())) {
                Held::Many(shards) => shards,
                Held::One { .. } => Vec::new(),
            };
            // No transaction waits for a shard while it holds another one.
            shards.clear();
            shards.push((wanted, self.keyspace.lock_at_last(wanted)));
            self.held = Held::Many(shards);
        }
        self.wanted = self.keyspace.followers.interest.load();
    }

    /// Holds everything anew, however long that takes, for a command that holds no key that it still uses.
    pub fn hold_all_at_last(&mut self) {
        self.let_go();
        self.hold_again(Hold(Held::Many(self.keyspace.lock_all_at_last())));
    }

    /// Unlocks everything, for a command that has read all that it needs. It uses no key any more, unless the
    /// transaction [holds](Self::hold_again) them again. What it has read is remembered already for a client
    /// that keeps copies: execution remembers it before a handler runs that may call this.
    pub fn let_go(&mut self) {
        self.held = Held::Many(Vec::new());
    }

    /// Holds a key as well, if that needs no waiting: the transaction may hold others.
    pub fn hold_if_free(&mut self, key: &[u8]) -> bool {
        self.hold_by(key, Keyspace::lock_if_free)
    }

    /// Holds a key as well, unless another client holds it for more than a moment.
    pub(in crate::keyspace) fn hold_soon(&mut self, key: &[u8]) -> bool {
        self.hold_by(key, Keyspace::lock_soon)
    }

    fn hold_by(
        &mut self,
        key: &[u8],
        lock: fn(&'a Keyspace, usize) -> Option<MutexGuard<'a, Shard>>,
    ) -> bool {
        let wanted = self.keyspace.shard_of(self.keyspace.hash(key));
        let is_held = match &self.held {
            Held::One { spot, .. } => self.keyspace.shard_of(spot.hash) == wanted,
            Held::Many(shards) => shards.iter().any(|(number, _)| *number == wanted),
        };
        if is_held {
            self.hold_as_many();
            return true;
        }
        let Some(shard) = lock(self.keyspace, wanted) else { return false };
        self.hold_as_many();
        if let Held::Many(shards) = &mut self.held
            && let Err(at) = shards.binary_search_by_key(&wanted, |(number, _)| *number)
        {
            shards.insert(at, (wanted, shard));
        }
        self.wanted = self.keyspace.followers.interest.load();
        true
    }

    /// Holds a single shard in the form in which several are held.
    fn hold_as_many(&mut self) {
        if let Held::One { .. } = &self.held
            && let Held::One { spot, shard, .. } = std::mem::replace(&mut self.held, Held::Many(Vec::new()))
        {
            self.held = Held::Many(vec![(self.keyspace.shard_of(spot.hash), shard)]);
        }
    }

    fn hold_shard(&mut self, wanted: usize) -> Result<(), Missing> {
        self.hold_as_many();
        let Held::Many(shards) = &mut self.held else { return Err(Missing) };
        let Err(at) = shards.binary_search_by_key(&wanted, |(number, _)| *number) else { return Ok(()) };
        if !self.may_hold_more {
            return Err(Missing);
        }
        shards.insert(at, (wanted, self.keyspace.lock_at_last(wanted)));
        // The interest of others covers what the transaction holds: another client may have read a key of
        // this shard since the transaction began.
        self.wanted = self.keyspace.followers.interest.load();
        Ok(())
    }
}
