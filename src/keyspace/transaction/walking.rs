//! Looking at one shard after the other, for SCAN, RANDOMKEY and snapshots.

use std::ops::{Deref, DerefMut};

use super::{Everything, Held, Transaction};
use crate::keyspace::Keyspace;
use crate::keyspace::Shard;

/// A transaction that may look at any shard: it holds every shard, or none and locks each for a look.
#[derive(Debug)]
pub struct Walk<T>(T);

/// The transaction holds some shards, so it must not wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldsSome;

impl<'a> Transaction<'a> {
    /// Returns the transaction as one that may look at any shard.
    ///
    /// # Errors
    ///
    /// [`HoldsSome`]: the command names keys, or its scope is wrong.
    pub fn walk(&self) -> Result<Walk<&Transaction<'a>>, HoldsSome> {
        match &self.held {
            Held::Many(shards) if shards.is_empty() || self.holds_everything() => Ok(Walk(self)),
            _ => Err(HoldsSome),
        }
    }
}

impl Keyspace {
    /// Begins a transaction that may look at any shard, and holds none.
    pub fn begin_walk(&self) -> Walk<Box<Transaction<'_>>> {
        Walk(Box::new(self.begin_none(0)))
    }
}

impl<'a> Everything<&mut Transaction<'a>> {
    /// Returns the transaction as one that may change any shard.
    pub fn walk_mut(&mut self) -> Walk<&mut Transaction<'a>> {
        Walk(self)
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Walk<T> {
    /// Looks at one shard.
    pub(in crate::keyspace) fn visit<R>(&self, number: usize, look: impl FnOnce(&Shard) -> R) -> R {
        match &self.held {
            Held::Many(shards) if !shards.is_empty() => look(&shards[number].1),
            _ => look(&self.keyspace.lock_at_last(number)),
        }
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Walk<T> {
    /// Changes one shard.
    pub(in crate::keyspace) fn visit_mut<R>(
        &mut self,
        number: usize,
        change: impl FnOnce(&mut Shard) -> R,
    ) -> R {
        let keyspace = self.keyspace;
        match &mut self.0.held {
            Held::Many(shards) if !shards.is_empty() => change(&mut shards[number].1),
            _ => change(&mut keyspace.lock_at_last(number)),
        }
    }
}

impl<'a, T: Deref<Target = Transaction<'a>>> Deref for Walk<T> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.0
    }
}
