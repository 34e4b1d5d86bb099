//! Looks after locks that are bound to connections.
//!
//! What rings the [alarms](super::alarms) renews a lease each time that a third of it has passed
//! ([`tend_bond`](Transaction::tend_bond)). A renewal changes the expiry and the log. It is no use of the
//! key, and no change for clients that watch it, listen to events or keep copies. It never brings the expiry
//! nearer, and it does not bring back a lock whose time has passed. When the lifeline was cut, the lock keeps
//! its grace, and the bond is gone.
//!
//! A lock may have an end that nothing postpones. It is a limit of the expiry itself, and so stands in the
//! log as well ([`limit_end`](Transaction::limit_end)).

use std::ops::DerefMut;
use std::time::Duration;

use crate::keyspace::transaction::following::bonds::{BondShown, NEVER, moment_after};
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::guards::Guard;
use crate::keyspace::transaction::following::lifelines::Cut;
use crate::keyspace::transaction::following::losses::DatabaseKey;
use crate::keyspace::transaction::following::news::{Effect, KeptLock};
use crate::keyspace::transaction::{Everything, Transaction};

impl Guard {
    /// A moment, or the latest one at which the lock may end, if that is sooner.
    pub(crate) fn limited(&self, expires_at_ms: u64) -> u64 {
        self.end_ms_max.map_or(expires_at_ms, |end_ms| end_ms.min(expires_at_ms))
    }

    /// The expiry that the bond gives the lock now, if that is another one: a renewal if it is time for one,
    /// or what is left since its connection was cut.
    pub(crate) fn due(&self, cut: Option<Cut>, expires_at_ms: Option<u64>, now_ms: u64) -> Option<u64> {
        let (before_ms, bond) = (expires_at_ms.unwrap_or(NEVER), self.bond.as_ref()?);
        let after_ms = match cut {
            Some(cut) => self.limited(bond.last_expiry_ms(cut, before_ms)),
            None if bond.renew_at_ms <= now_ms => {
                self.limited(moment_after(now_ms, bond.lease_ms)).max(before_ms)
            }
            None => before_ms,
        };
        (after_ms != before_ms).then_some(after_ms)
    }

    /// Notes that the lock has got what was [due](Self::due). A bond whose connection was cut has ended.
    pub(crate) fn tended(&mut self, cut: Option<Cut>, after_ms: Option<u64>, now_ms: u64) {
        if cut.is_some() {
            self.bond = None;
        } else if let Some(bond) = self.bond.as_mut().filter(|bond| bond.renew_at_ms <= now_ms) {
            bond.postpone(now_ms);
            bond.own_expiry_ms = after_ms.unwrap_or(bond.own_expiry_ms);
        }
    }

    /// The end of the lock that nothing postpones, if its expiry is later.
    pub(crate) fn excess(&self, expires_at_ms: Option<u64>) -> Option<u64> {
        self.end_ms_max.filter(|end_ms| expires_at_ms.is_none_or(|at_ms| at_ms > *end_ms))
    }

    /// The expiry after a turn of the clock, which ends no lock that is bound to a connection: the same span
    /// is left as after a renewal. What others have set is a moment, and stays if it is later.
    fn turned(&mut self, before_ms: u64, now_ms: u64) -> Option<u64> {
        let is_own = self.bond.as_ref().filter(|bond| bond.cut().is_none())?.own_expiry_ms == before_ms;
        let after_ms = self.limited(moment_after(now_ms, self.bond.as_ref()?.lease_ms));
        let bond = self.bond.as_mut()?;
        bond.postpone(now_ms);
        if !is_own && after_ms <= before_ms {
            return None;
        }
        bond.own_expiry_ms = after_ms;
        Some(after_ms)
    }
}

impl Transaction<'_> {
    /// Looks after the bond of a lock, if it has one: ends it with its connection, or renews the lock.
    #[cold]
    pub(in crate::keyspace) fn tend_bond(&mut self, key: &[u8]) {
        let Some(entry) = self.unseen(key) else { return };
        let (number, expires_at_ms, now_ms) = (entry.fence(), entry.expires_at_ms(), self.now_ms());
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let (spot, shard) = self.shard_mut(key);
        if shard.side_tables().is_none() {
            return;
        }
        let guards = &mut shard.side_tables_mut().guards;
        let Some(guard) = guards.find_mut(spot.hash, database, key) else { return };
        if number != Some(guard.number) {
            return;
        }
        let cut = guard.cut();
        let after_ms = guard.due(cut, expires_at_ms, now_ms);
        guard.tended(cut, after_ms, now_ms);
        if guard.is_idle() {
            guards.remove(spot.hash, database, key, interest);
        }
        if let Some(after_ms) = after_ms {
            self.keep_until(key, after_ms);
        }
    }

    /// Has a lock end at the latest when it must, whatever expiry a command has set.
    pub(super) fn limit_end(&mut self, key: &[u8]) {
        let (spot, shard) = self.shard(key);
        let Some(side_tables) = shard.side_tables() else { return };
        let guard = side_tables.guards.find(spot.hash, self.database(), key);
        let Some((guard, entry)) = guard.zip(self.unseen(key)) else { return };
        if let Some(end_ms) = guard.excess(entry.expires_at_ms()) {
            self.keep_until(key, end_ms);
        }
    }

    /// Notes that others than its bond have the lock last until a moment at least.
    pub fn promise_lock(&mut self, key: &[u8], until_ms: u64) {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        if shard.side_tables().is_none() {
            return;
        }
        let guard = shard.side_tables_mut().guards.find_mut(spot.hash, database, key);
        if let Some(bond) = guard.and_then(|guard| guard.bond.as_mut()) {
            bond.others_expiry_ms = bond.others_expiry_ms.max(until_ms);
        }
    }

    /// When a lock is renewed next, if it is bound to a connection.
    pub(super) fn renewal_of(&self, key: &[u8]) -> Option<u64> {
        let (spot, shard) = self.shard(key);
        let guard = shard.side_tables()?.guards.find(spot.hash, self.database(), key)?;
        Some(guard.bond.as_ref()?.renew_at_ms)
    }

    /// The connection to which a lock is bound, if it is.
    pub fn bond_of(&self, key: &[u8]) -> Option<BondShown> {
        let (spot, shard) = self.shard(key);
        let bond = shard.side_tables()?.guards.find(spot.hash, self.database(), key)?.bond.as_ref()?;
        Some(BondShown { client: bond.lifeline.client, locks: bond.lifeline.count() })
    }

    /// Sets the expiry of a lock by itself. The log and the lens hear of it, and no client.
    fn keep_until(&mut self, key: &[u8], expires_at_ms: u64) {
        let database = self.database();
        if self.wanted.journal() {
            self.leave(|aftermath| aftermath.changes.add_key(database, key, Extent::Expiry));
        }
        let (spot, shard) = self.shard_mut(key);
        if shard.table_mut(database).set_expiry(spot, key, Some(expires_at_ms)) {
            let kept = KeptLock { hash: spot.hash, database, key: key.into(), expires_at_ms };
            self.leave_effect(Effect::LockKept(Box::new(kept)));
        }
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// Renews the bound locks after a turn of the clock, before which it showed this time since 1970.
    pub(in crate::keyspace) fn renew_turned(&mut self, before: Duration) {
        if !self.wanted.watched() {
            return;
        }
        let (before_ms, current) = (before.as_millis() as u64, self.database());
        let mut bound: Vec<DatabaseKey> = Vec::new();
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.side_tables().is_some()) {
            let guards = shard.side_tables_mut().guards.all_mut().filter(|guard| guard.bond.is_some());
            bound.extend(guards.map(|guard| (guard.database, guard.key.clone())));
        }
        for (database, key) in bound {
            self.select(database);
            let now_ms = self.now_ms();
            let found = self.entry(&key).map(|entry| (entry.fence(), entry.expires_at_ms()));
            let Some((number, Some(expires_at_ms))) = found.filter(|(_, ends)| *ends > Some(before_ms))
            else {
                continue;
            };
            let (spot, shard) = self.shard_mut(&key);
            let guards = &mut shard.side_tables_mut().guards;
            let guard = guards.find_mut(spot.hash, database, &key);
            let guard = guard.filter(|guard| number == Some(guard.number));
            if let Some(after_ms) = guard.and_then(|guard| guard.turned(expires_at_ms, now_ms)) {
                self.keep_until(&key, after_ms);
            }
            self.set_alarm(&key);
        }
        self.select(current);
    }
}
