//! Whether the locks are lost that a transaction has changed, and that have a [guard](super::guards).
//!
//! A transaction that changes such a key, in whatever way, notes a doubt, where it also marks the clients
//! that watch the key; a change of a member of a sorted set, where permits lie, notes one about that permit
//! alone. When its command has ended, and before the next in line is served, it looks whether the lock still
//! has its number, and whether the permit is still there ([`settle_doubts`](Transaction::settle_doubts)). If
//! not, the guard leaves, and the loss is news for clients ([`Effect::LockLost`]). So one place defines what
//! a loss is, and no command has to know of guards. Some say more than what can be seen: that the lock was
//! moved, or broken, or that a token has got a permit anew.

use std::collections::HashMap;
use std::mem::take;
use std::ops::DerefMut;

use crate::keyspace::transaction::following::Replacement;
use crate::keyspace::transaction::following::guarded::Guarded;
use crate::keyspace::transaction::following::guards::Guard;
use crate::keyspace::transaction::following::losses::DatabaseKey;
use crate::keyspace::transaction::following::news::{Effect, LossReason};
use crate::keyspace::transaction::{Everything, Transaction};

/// A key with a guard that a transaction has changed, or a permit.
#[derive(Debug, PartialEq)]
pub(in crate::keyspace) struct Doubt {
    name: Guarded,
    /// Whether the permits are lost that were there, whatever is there now.
    is_anew: bool,
    /// Why the lock is lost, if it is; `None` if the key itself shows it.
    why: Option<LossReason>,
}

/// All doubts about one key.
#[derive(Debug, Default)]
struct Doubts {
    is_anew: bool,
    why: Option<LossReason>,
    /// Those about a permit each.
    permits: Vec<Doubt>,
}

impl Transaction<'_> {
    /// Notes that a key was changed or lost, which may be a lock with a guard, and why, if that is known.
    #[inline]
    pub(in crate::keyspace) fn doubt(&self, key: &[u8], why: Option<LossReason>) {
        if self.has_guard(key) {
            self.leave_doubt(Doubt { name: Guarded::key(self.database(), key), is_anew: false, why });
        }
    }

    /// The same of a key whose value was removed or replaced as a whole.
    #[inline]
    pub(in crate::keyspace) fn doubt_anew(&self, key: &[u8], why: Option<LossReason>) {
        if self.has_guard(key) {
            self.leave_doubt(Doubt { name: Guarded::key(self.database(), key), is_anew: true, why });
        }
    }

    /// Notes that a permit was changed.
    pub(in crate::keyspace) fn doubt_permit(&self, key: &[u8], token: &[u8]) {
        self.doubt_one(key, token, false, None);
    }

    /// Notes that a token is granted a permit anew. One that it had has ended before (`is_over`), or was
    /// removed.
    pub fn note_permit_anew(&self, key: &[u8], token: &[u8], is_over: bool) {
        let why = if is_over { LossReason::Expired } else { LossReason::Deleted };
        self.doubt_one(key, token, true, Some(why));
    }

    fn doubt_one(&self, key: &[u8], token: &[u8], is_anew: bool, why: Option<LossReason>) {
        if self.guard(key, Some(token)).is_some() {
            self.leave_doubt(Doubt { name: Guarded::new(self.database(), key, Some(token)), is_anew, why });
        }
    }

    fn leave_doubt(&self, doubt: Doubt) {
        self.leave(|aftermath| {
            if aftermath.doubts.last() != Some(&doubt) {
                aftermath.doubts.push(doubt);
            }
        });
    }

    /// Notes that a key is about to get another name or place, if it is there.
    pub fn note_moved(&self, key: &[u8]) {
        self.doubt(key, Some(LossReason::Moved));
    }

    /// Looks whether the locks are lost that the transaction has changed, in the order in which it has
    /// changed them first. The first reason counts that was noted for a key.
    pub(in crate::keyspace) fn settle_doubts(&mut self) {
        let Some(aftermath) = self.left.get_mut().if_any() else { return };
        if aftermath.doubts.is_empty() {
            return;
        }
        let (noted, current) = (take(&mut aftermath.doubts), self.database());
        let (mut places, mut of_keys) = (HashMap::new(), Vec::<(DatabaseKey, Doubts)>::new());
        for doubt in noted {
            let key = (doubt.name.database, doubt.name.key.clone());
            let place = *places.entry(key.clone()).or_insert(of_keys.len());
            if place == of_keys.len() {
                of_keys.push((key, Doubts::default()));
            }
            let doubts = &mut of_keys[place].1;
            if doubt.name.permit.is_some() {
                doubts.permits.push(doubt);
                continue;
            }
            doubts.is_anew |= doubt.is_anew;
            doubts.why = doubts.why.or(doubt.why);
        }
        for ((database, key), doubts) in of_keys {
            self.select(database);
            self.settle(&key, None, doubts.is_anew, doubts.why);
            self.settle_permits(&key, &doubts);
        }
        self.select(current);
    }

    fn settle_permits(&mut self, key: &[u8], doubts: &Doubts) {
        let Some(form) = self.guarded_form(key) else { return };
        let entry = self.unseen(key);
        let is_met =
            entry.is_some_and(|entry| (form.is_met)(self.keyspace().value_of(entry), entry.expires_at_ms()));
        if !doubts.is_anew && is_met {
            for doubt in &doubts.permits {
                self.settle(key, doubt.name.permit.as_deref(), doubt.is_anew, doubts.why.or(doubt.why));
            }
            return;
        }
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let is_there = entry.is_some();
        let (spot, shard) = self.shard_mut(key);
        for guard in shard.side_tables_mut().guards.remove_shared(spot.hash, database, key, interest) {
            self.set_guard_alarm(key, guard.name.permit.as_deref());
            self.lose(guard, is_there, doubts.why);
        }
    }

    /// Looks whether the lock of a guard is lost: that of a key, or a permit there.
    fn settle(&mut self, key: &[u8], permit: Option<&[u8]>, is_anew: bool, why: Option<LossReason>) {
        let Some(guard) = self.guard(key, permit) else { return };
        match self.end_of(guard).filter(|_| permit.is_none() || !is_anew) {
            Some(expires_at_ms) => {
                self.guard_mut(key, permit).into_iter().for_each(|guard| guard.note_expiry(expires_at_ms));
                self.limit_end(key, permit);
            }
            None => {
                let entry = self.unseen(key);
                let is_overwritten = permit.is_none() && entry.is_some();
                // Its end may be seen first when it has passed.
                let end_ms = entry.and_then(|entry| self.end_in(entry, guard)).flatten();
                let mut lost = self.remove_guard(key, permit);
                if let Some((guard, end_ms)) = lost.as_mut().zip(end_ms.filter(|_| !is_anew)) {
                    guard.end_ms = end_ms;
                }
                lost.into_iter().for_each(|guard| self.lose(guard, is_overwritten, why));
            }
        }
        self.set_guard_alarm(key, permit);
    }

    /// Leaves the news that a lock is lost.
    fn lose(&self, guard: Guard, is_overwritten: bool, why: Option<LossReason>) {
        let now_ms = self.now_ms();
        let seen = match is_overwritten {
            _ if guard.name.permit.is_some() && guard.end_ms <= now_ms => LossReason::Expired,
            true => LossReason::Overwritten,
            false => LossReason::Deleted,
        };
        let why = guard.reason(why.unwrap_or(seen), now_ms);
        guard.lost(why).into_iter().for_each(|lost| self.leave_effect(Effect::LockLost(lost)));
    }
}

impl<'a, T: DerefMut<Target = Transaction<'a>>> Everything<T> {
    /// The locks are lost whose databases are emptied or exchanged.
    pub(in crate::keyspace) fn lose_replaced(&mut self, replacement: impl Fn(usize) -> Replacement) {
        let followers = self.keyspace().followers();
        let is_replaced = |database| !matches!(replacement(database), Replacement::None);
        let mut lost = Vec::new();
        for (_, shard) in self.shards_mut().iter_mut().filter(|(_, shard)| shard.side_tables().is_some()) {
            for guard in shard.side_tables_mut().guards.remove_in(is_replaced, &followers.interest) {
                followers.alarms.set(guard.name.clone(), None);
                let why = match replacement(guard.name.database) {
                    Replacement::Nothing => LossReason::Flushed,
                    Replacement::None | Replacement::Database(_) => LossReason::Moved,
                };
                lost.extend(guard.lost(why));
            }
        }
        lost.into_iter().for_each(|lost| self.leave_effect(Effect::LockLost(lost)));
    }
}
