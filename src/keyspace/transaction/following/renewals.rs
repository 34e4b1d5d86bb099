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
use crate::keyspace::transaction::following::guarded::Guarded;
use crate::keyspace::transaction::following::guards::{Guard, PERMIT_END_MS_MAX};
use crate::keyspace::transaction::following::lifelines::Cut;
use crate::keyspace::transaction::following::news::{Effect, KeptLock};
use crate::keyspace::transaction::{Everything, Transaction};

impl Guard {
    /// A moment, or the latest one at which the lock may end, if that is sooner.
    pub(crate) fn limited(&self, expires_at_ms: u64) -> u64 {
        let latest_ms = if self.name.permit.is_some() { PERMIT_END_MS_MAX } else { NEVER };
        expires_at_ms.min(self.end_ms_max.unwrap_or(NEVER)).min(latest_ms)
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
        self.end_ms = after_ms.unwrap_or(self.end_ms);
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
        self.end_ms = after_ms;
        Some(after_ms)
    }
}

impl Transaction<'_> {
    /// Looks after the bond of a lock or a permit, if it has one: ends it with its connection, or renews the
    /// lock. `may_remove` says whether a permit that ends by it may be removed now.
    #[cold]
    pub(in crate::keyspace) fn tend_bond(&mut self, name: &Guarded, may_remove: bool) {
        let (key, permit) = (&*name.key, name.permit.as_deref());
        let Some(guard) = self.guard(key, permit) else { return };
        let Some(expires_at_ms) = self.end_of(guard) else { return };
        let (now_ms, cut) = (self.now_ms(), guard.cut());
        let after_ms = guard.due(cut, expires_at_ms, now_ms);
        let ends_now = permit.is_some() && after_ms.is_some_and(|after_ms| after_ms <= now_ms);
        if ends_now && !may_remove {
            return;
        }
        if let Some(after_ms) = after_ms {
            match self.guarded_form(key).zip(permit).filter(|_| ends_now) {
                Some((form, token)) => (form.remove)(self, key, token),
                None => self.keep_until(key, permit, after_ms),
            }
            if permit.is_some() && cut.is_some() {
                // Others may be granted a permit sooner.
                self.note_ready(name.database, key);
            }
        }
        if let Some(guard) = self.guard_mut(key, permit) {
            guard.tended(cut, after_ms, now_ms);
            if guard.is_idle() {
                self.remove_guard(key, permit);
            }
        }
    }

    /// Whether a key has expired, or a permit has ended, and neither was freed yet.
    pub(in crate::keyspace) fn is_to_free(&self, name: &Guarded) -> bool {
        if name.permit.is_none() {
            return self.is_expired(&name.key);
        }
        let Some(guard) = self.guard(&name.key, name.permit.as_deref()) else { return false };
        let is_now = |after_ms: u64| after_ms <= self.now_ms();
        let end_ms = self.end_of(guard);
        end_ms.is_none_or(|end_ms| guard.due(guard.cut(), end_ms, self.now_ms()).is_some_and(is_now))
    }

    /// Has a lock end at the latest when it must, whatever expiry a command has set.
    pub(super) fn limit_end(&mut self, key: &[u8], permit: Option<&[u8]>) {
        let Some(guard) = self.guard(key, permit) else { return };
        let expires_at_ms = self.unseen(key).and_then(|entry| self.end_in(entry, guard));
        if let Some(end_ms) = expires_at_ms.and_then(|expires_at_ms| guard.excess(expires_at_ms)) {
            self.keep_until(key, permit, end_ms);
            self.guard_mut(key, permit).into_iter().for_each(|guard| guard.end_ms = end_ms);
        }
    }

    /// Notes that others than its bond have a lock or a permit last until a moment at least.
    pub fn promise_lock(&mut self, key: &[u8], permit: Option<&[u8]>, until_ms: u64) {
        if let Some(bond) = self.guard_mut(key, permit).and_then(|guard| guard.bond.as_mut()) {
            bond.others_expiry_ms = bond.others_expiry_ms.max(until_ms);
        }
    }

    /// When a lock is renewed next, if it is bound to a connection.
    pub(super) fn renewal_of(&self, key: &[u8]) -> Option<u64> {
        self.guard(key, None)?.renew_at_ms()
    }

    /// The connection to which a lock or a permit is bound, if it is.
    pub fn bond_of(&self, key: &[u8], permit: Option<&[u8]>) -> Option<BondShown> {
        let bond = self.guard(key, permit)?.bond.as_ref()?;
        Some(BondShown { client: bond.lifeline.client, locks: bond.lifeline.count() })
    }

    /// Has a lock end before its time, as if it had expired at a moment that has passed.
    pub fn lose_lock(&mut self, key: &[u8], at_ms: u64) {
        self.keep_key_until(key, at_ms);
        self.doubt(key, None);
    }

    /// Notes that a permit ends before its time, at a moment that has passed. The caller removes it.
    pub fn note_permit_lost(&mut self, key: &[u8], token: &[u8], at_ms: u64) {
        self.guard_mut(key, Some(token)).into_iter().for_each(|guard| guard.end_ms = at_ms);
    }

    /// Sets the end of a lock or a permit by itself.
    fn keep_until(&mut self, key: &[u8], permit: Option<&[u8]>, end_ms: u64) {
        match self.guarded_form(key).zip(permit) {
            Some((form, token)) => (form.set_end)(self, key, token, end_ms),
            None => self.keep_key_until(key, end_ms),
        }
    }

    /// Sets the expiry of a key by itself. The log and the lens hear of it, and no client.
    pub fn keep_key_until(&mut self, key: &[u8], expires_at_ms: u64) {
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
    /// Renews the bound locks after a turn of the clock, before which it showed this time since 1970. The
    /// permits that end by that are lost.
    pub(in crate::keyspace) fn renew_turned(&mut self, before: Duration) {
        if !self.wanted.watched() {
            return;
        }
        let (before_ms, current) = (before.as_millis() as u64, self.database());
        let mut guarded: Vec<Guarded> = Vec::new();
        for (_, shard) in self.shards_mut().iter().filter(|(_, shard)| shard.side_tables().is_some()) {
            let guards = shard.side_tables().into_iter().flat_map(|it| it.guards.all());
            let guards = guards.filter(|guard| guard.bond.is_some() || guard.name.permit.is_some());
            guarded.extend(guards.map(|guard| guard.name.clone()));
        }
        for Guarded { database, key, permit } in guarded {
            self.select(database);
            let (now_ms, permit) = (self.now_ms(), permit.as_deref());
            let ended = self.entry(&key).zip(self.guard(&key, permit));
            let end_ms = ended.and_then(|(entry, guard)| self.end_in(entry, guard)?);
            let Some(end_ms) = end_ms.filter(|end_ms| *end_ms > before_ms) else { continue };
            let turned = self.guard_mut(&key, permit).and_then(|guard| guard.turned(end_ms, now_ms));
            if let Some(after_ms) = turned {
                self.keep_until(&key, permit, after_ms);
            }
            permit.into_iter().for_each(|token| self.doubt_permit(&key, token));
            self.set_guard_alarm(&key, permit);
        }
        self.settle_doubts();
        self.select(current);
    }
}
