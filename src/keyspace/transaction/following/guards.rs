//! Locks whose holders want more of the server than that others are refused: to be notified when they lose
//! them (LOCK ACQUIRE … NOTIFY), or that the lock lives as long as their connection (BOUND).
//!
//! A guard stands beside the lock in its shard, and knows the fencing number of the lock and what its holder
//! wants. A transaction that changes such a key, in whatever way, notes a doubt, where it also marks the
//! clients that watch the key. When its command has ended, and before the next in line is served, it looks
//! whether the lock still has the number ([`settle_doubts`](Transaction::settle_doubts)). If not, the guard
//! leaves, and the loss is news for clients ([`Effect::LockLost`]). So one place defines what a loss is, and
//! no command has to know of guards. Some say more than what can be seen: that the lock was moved, or broken.
//!
//! A guard has an [alarm](super::alarms), so that the holder hears of the end of a lock that no client looks
//! at, and [bonds](super::bonds) are [renewed](super::renewals). A guard outlives its client: others may
//! listen to the channel of the lock.

use std::collections::HashMap;
use std::mem::take;
use std::ops::DerefMut;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::keyspace::transaction::following::Replacement;
use crate::keyspace::transaction::following::bonds::{Bond, BondTerms, NEVER, moment_after};
use crate::keyspace::transaction::following::interest::Interest;
use crate::keyspace::transaction::following::lifelines::{Cut, Lifeline};
use crate::keyspace::transaction::following::losses::DatabaseKey;
use crate::keyspace::transaction::following::news::{Effect, LossReason, LostLock};
use crate::keyspace::transaction::{Everything, Transaction};

/// The guards of one shard.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Guards(HashTable<Guard>);

/// A lock, and what its holder wants of the server. Locks in a store have the same, and no place in a shard.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(super) hash: u64,
    pub(super) database: usize,
    pub(super) key: Box<[u8]>,
    /// The fencing number of the lock.
    pub(super) number: u64,
    /// The client that is notified, if one is.
    notified: Option<u64>,
    /// The tie to the connection of its holder, if there is one.
    pub(super) bond: Option<Bond>,
    /// When the lock ends at the latest, in milliseconds since 1970, if that is limited.
    pub(super) end_ms_max: Option<u64>,
}

/// What a client that is granted a lock, or extends it, wants besides.
#[derive(Debug)]
pub struct GuardWish {
    /// The key that is the lock.
    pub key: Box<[u8]>,
    /// Whether it is notified when it loses it.
    pub is_notified: bool,
    /// How the lock is bound to its connection, if it is.
    pub bond: Option<BondTerms>,
}

/// A key with a guard that a transaction has changed.
#[derive(Debug)]
pub(in crate::keyspace) struct Doubt {
    key: DatabaseKey,
    /// Why the lock is lost, if it is; `None` if the key itself shows it.
    why: Option<LossReason>,
}

impl Guard {
    fn is(&self, database: usize, key: &[u8]) -> bool {
        self.database == database && *self.key == *key
    }

    /// Of a lock in a store.
    pub(crate) fn in_store(database: usize, key: &[u8], number: u64) -> Guard {
        Guard::new(0, database, key, number)
    }

    fn new(hash: u64, database: usize, key: &[u8], number: u64) -> Guard {
        Guard { hash, database, key: key.into(), number, notified: None, bond: None, end_ms_max: None }
    }

    /// Does what a client wishes that has the lock now, and nothing for another client any more.
    pub(crate) fn grant<'l>(
        &mut self,
        wish: &GuardWish,
        client: u64,
        lifeline: impl FnOnce() -> &'l Arc<Lifeline>,
        expires_at_ms: Option<u64>,
        now_ms: u64,
    ) {
        if wish.is_notified {
            self.notified = Some(client);
        }
        if let Some(terms) = wish.bond {
            self.bind(terms, Arc::clone(lifeline()), expires_at_ms, now_ms);
        }
    }

    /// Takes over what it lacks from a guard that the same lock has had.
    pub(crate) fn inherit(&mut self, mut before: Guard) {
        self.notified = self.notified.or(before.notified);
        self.end_ms_max = [self.end_ms_max, before.end_ms_max].into_iter().flatten().min();
        match self.bond {
            Some(_) => before.unbind(),
            None => self.bond = before.bond.take(),
        }
    }

    /// The client that is notified of the loss, if one is.
    pub(crate) fn notified(&self) -> Option<u64> {
        self.notified
    }

    /// How the connection has ended to which the lock is bound, if it has.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.bond.as_ref()?.cut()
    }

    /// The connection to which the lock is bound, if it is.
    pub(crate) fn lifeline(&self) -> Option<&Arc<Lifeline>> {
        self.bond.as_ref().map(|bond| &bond.lifeline)
    }

    /// When the lock is renewed next, if it is bound to a connection.
    pub(crate) fn renew_at_ms(&self) -> Option<u64> {
        self.bond.as_ref().map(|bond| bond.renew_at_ms)
    }

    /// Notes the expiry that the lock has after what others have done.
    pub(crate) fn note_expiry(&mut self, expires_at_ms: Option<u64>) {
        self.bond.iter_mut().for_each(|bond| bond.note_expiry(expires_at_ms));
    }

    /// Notes the expiry that the lock has by the request that has bound it.
    pub(crate) fn note_own_expiry(&mut self, expires_at_ms: Option<u64>) {
        let own_expiry_ms = self.limited(expires_at_ms.unwrap_or(NEVER));
        self.bond.iter_mut().for_each(|bond| bond.own_expiry_ms = own_expiry_ms);
    }

    /// Whether it has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.notified.is_none() && self.bond.is_none() && self.end_ms_max.is_none()
    }

    /// Breaks the bond, if there is one, since the lock is lost or bound to another connection.
    pub(crate) fn unbind(&mut self) {
        if let Some(bond) = self.bond.take() {
            bond.untie(self.database, &self.key);
        }
    }

    /// Binds the lock to a connection, and to no other any more.
    fn bind(&mut self, terms: BondTerms, lifeline: Arc<Lifeline>, expires_at_ms: Option<u64>, now_ms: u64) {
        self.unbind();
        let end_ms = terms.max_ms.map(|max_ms| moment_after(now_ms, max_ms));
        self.end_ms_max = [self.end_ms_max, end_ms].into_iter().flatten().min();
        let place = (self.database, &*self.key);
        let own_expiry_ms = self.limited(expires_at_ms.unwrap_or(NEVER));
        self.bond = Some(Bond::new(terms, lifeline, place, own_expiry_ms, now_ms));
    }

    /// Why the lock is lost now, if this is the reason that is seen.
    pub(crate) fn reason(&self, seen: LossReason, now_ms: u64) -> LossReason {
        match seen {
            LossReason::Expired if self.end_ms_max.is_some_and(|ms| ms <= now_ms) => LossReason::Max,
            seen => seen,
        }
    }

    /// The news that the lock is lost, if its holder wants to know.
    pub(crate) fn lost(mut self, why: LossReason) -> Option<Box<LostLock>> {
        self.unbind();
        let Guard { notified, database, key, number, .. } = self;
        let client = notified?;
        Some(Box::new(LostLock { client, database, key, number, why }))
    }
}

impl Guards {
    /// Whether a key has a guard.
    pub(in crate::keyspace) fn has(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        self.find(hash, database, key).is_some()
    }

    /// Whether a key is a lock that is bound to a connection.
    pub(in crate::keyspace) fn is_bound(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        self.find(hash, database, key).is_some_and(|guard| guard.bond.is_some())
    }

    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn find(&self, hash: u64, database: usize, key: &[u8]) -> Option<&Guard> {
        self.0.find(hash, |guard| guard.is(database, key))
    }

    pub(super) fn find_mut(&mut self, hash: u64, database: usize, key: &[u8]) -> Option<&mut Guard> {
        self.0.find_mut(hash, |guard| guard.is(database, key))
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Guard> {
        self.0.iter_mut()
    }

    pub(super) fn remove(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        interest: &Interest,
    ) -> Option<Guard> {
        let found = self.0.find_entry(hash, |guard| guard.is(database, key)).ok()?;
        interest.remove_watched();
        Some(found.remove().0)
    }

    /// Adds a guard where there is none.
    fn add(&mut self, guard: Guard, interest: &Interest) {
        interest.add_watched();
        self.0.insert_unique(guard.hash, guard, |guard| guard.hash);
    }
}

impl Transaction<'_> {
    /// Notes what a client wants besides of a lock that it has got. A handler does not know its client: the
    /// caller of the handler [grants](Self::grant_wishes) it.
    #[cold]
    pub fn wish(&self, wish: GuardWish) {
        if !self.is_replay() {
            self.leave(|aftermath| aftermath.wishes.push(wish));
        }
    }

    /// Grants what the command of a client has wished.
    pub fn grant_wishes<'l>(&mut self, client: u64, lifeline: impl Fn() -> &'l Arc<Lifeline>) {
        let wishes = self.left.get_mut().if_any().map(|aftermath| take(&mut aftermath.wishes));
        for wish in wishes.unwrap_or_default() {
            match self.is_in_store() {
                false => self.guard_lock(&wish, client, &lifeline),
                // It is granted when the store has done what the request has.
                true => self.record_wish(wish),
            }
        }
    }

    #[cold]
    fn guard_lock<'l>(
        &mut self,
        wish: &GuardWish,
        client: u64,
        lifeline: impl FnOnce() -> &'l Arc<Lifeline>,
    ) {
        let key = &*wish.key;
        // What it has come across may be the end of the holder before.
        self.doubt(key, None);
        self.settle_doubts();
        let Some(entry) = self.unseen(key) else { return };
        let (Some(number), expires_at_ms) = (entry.fence(), entry.expires_at_ms()) else { return };
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let now_ms = self.now_ms();
        let (spot, shard) = self.shard_mut(key);
        let guards = &mut shard.side_tables_mut().guards;
        // The same lock may have been taken by another connection of its holder.
        let new = || Guard::new(spot.hash, database, key, number);
        let mut guard = guards.remove(spot.hash, database, key, interest).unwrap_or_else(new);
        guard.grant(wish, client, lifeline, expires_at_ms, now_ms);
        let is_cut = guard.cut().is_some();
        guards.add(guard, interest);
        // Commands that follow in this transaction count.
        self.wanted = self.wanted.with_watched();
        self.limit_end(key);
        self.set_alarm(key);
        if is_cut {
            self.keyspace().followers().alarms.call(std::iter::once((database, key.into())));
        }
    }

    /// Notes that a key was changed or lost, which may be a lock with a guard, and why, if that is known.
    #[inline]
    pub(in crate::keyspace) fn doubt(&self, key: &[u8], why: Option<LossReason>) {
        if !self.has_guard(key) {
            return;
        }
        let database = self.database();
        self.leave(|aftermath| {
            let last = aftermath.doubts.last();
            let is_known = |last: &Doubt| (last.key.0, &*last.key.1, last.why) == (database, key, why);
            if !last.is_some_and(is_known) {
                aftermath.doubts.push(Doubt { key: (database, key.into()), why });
            }
        });
    }

    /// Notes that a key is about to get another name or place, if it is there.
    pub fn note_moved(&self, key: &[u8]) {
        self.doubt(key, Some(LossReason::Moved));
    }

    /// Whether a key has a guard.
    pub(in crate::keyspace) fn has_guard(&self, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        shard.side_tables().is_some_and(|it| it.guards.has(spot.hash, self.database(), key))
    }

    /// Looks whether the locks are lost that the transaction has changed, in the order in which it has
    /// changed them first. The first reason counts that was noted for a key.
    pub(in crate::keyspace) fn settle_doubts(&mut self) {
        let Some(aftermath) = self.left.get_mut().if_any() else { return };
        if aftermath.doubts.is_empty() {
            return;
        }
        let (doubts, current) = (take(&mut aftermath.doubts), self.database());
        let mut reasons: HashMap<&DatabaseKey, Option<LossReason>> = HashMap::new();
        for Doubt { key, why } in &doubts {
            let reason = reasons.entry(key).or_default();
            *reason = reason.or(*why);
        }
        for Doubt { key, .. } in &doubts {
            let Some(why) = reasons.remove(key) else { continue };
            self.select(key.0);
            self.settle(&key.1, why);
        }
        self.select(current);
    }

    fn settle(&mut self, key: &[u8], why: Option<LossReason>) {
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let (found, now_ms) = (self.unseen(key), self.now_ms());
        let is_there = found.is_some();
        let found = found.and_then(|entry| Some((entry.fence()?, entry.expires_at_ms())));
        let (spot, shard) = self.shard_mut(key);
        let guards = &mut shard.side_tables_mut().guards;
        let Some(guard) = guards.find_mut(spot.hash, database, key) else { return };
        match found {
            Some((number, expires_at_ms)) if number == guard.number => {
                guard.note_expiry(expires_at_ms);
                self.limit_end(key);
            }
            _ => {
                let seen = if is_there { LossReason::Overwritten } else { LossReason::Deleted };
                let why = guard.reason(why.unwrap_or(seen), now_ms);
                let lost = guards.remove(spot.hash, database, key, interest);
                if let Some(lost) = lost.and_then(|guard| guard.lost(why)) {
                    self.leave_effect(Effect::LockLost(lost));
                }
            }
        }
        self.set_alarm(key);
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// The locks are lost whose databases are emptied or exchanged.
    pub(in crate::keyspace) fn lose_replaced(&mut self, replacement: impl Fn(usize) -> Replacement) {
        let followers = self.keyspace().followers();
        let mut lost = Vec::new();
        let why_of = |guard: &Guard| match replacement(guard.database) {
            Replacement::None => None,
            Replacement::Nothing => Some(LossReason::Flushed),
            Replacement::Database(_) => Some(LossReason::Moved),
        };
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.side_tables().is_some()) {
            let guards = &mut shard.side_tables_mut().guards.0;
            for guard in guards.extract_if(|guard| why_of(guard).is_some()) {
                followers.interest.remove_watched();
                followers.alarms.set(guard.database, &guard.key, None);
                let why = why_of(&guard).unwrap_or(LossReason::Moved);
                lost.extend(guard.lost(why));
            }
        }
        lost.into_iter().for_each(|lost| self.leave_effect(Effect::LockLost(lost)));
    }
}
