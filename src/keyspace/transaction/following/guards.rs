//! Locks whose holders want more of the server than that others are refused: to be notified when they lose
//! them (LOCK ACQUIRE … NOTIFY), or that the lock lives as long as their connection (BOUND).
//!
//! A guard stands beside the lock in its shard, and knows the fencing number of the lock and what its holder
//! wants. If several clients hold the lock, each of their permits may have a guard, which knows the token.
//! Such a key may have thousands of them, so a change of one permit costs a look at that one alone. A
//! transaction that changes such a key has [doubts](super::doubts), and settles them when its command has
//! ended.
//!
//! A guard has an [alarm](super::alarms), so that the holder hears of the end of a lock that no client looks
//! at, and [bonds](super::bonds) are [renewed](super::renewals). A guard outlives its client: others may
//! listen to the channel of the lock.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::bonds::{Bond, BondTerms, NEVER, moment_after};
use crate::keyspace::transaction::following::guarded::Guarded;
use crate::keyspace::transaction::following::interest::Interest;
use crate::keyspace::transaction::following::lifelines::{Cut, Lifeline};
use crate::keyspace::transaction::following::news::{LossReason, LostLock};
use crate::values::Value;

/// The latest end of a permit, in milliseconds since 1970: a score is exact up to here.
pub(crate) const PERMIT_END_MS_MAX: u64 = 1 << 53;

/// The guards of one shard.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Guards {
    /// Those of locks that one client holds.
    whole: HashTable<Guard>,
    /// Those of permits, by their keys.
    shared: HashTable<SharedLock>,
}

/// A key at which permits have guards.
#[derive(Debug)]
struct SharedLock {
    hash: u64,
    database: usize,
    key: Box<[u8]>,
    form: &'static PermitForm,
    /// By the tokens of the permits.
    guards: HashMap<Box<[u8]>, Guard>,
}

/// How permits lie in the value of a key, for a keyspace that does not know types.
#[derive(Debug)]
pub struct PermitForm {
    /// When the permit of a token ends or has ended, in milliseconds since 1970, in a value that expires
    /// then, if it has permits.
    pub end_of: fn(Value<'_>, Option<u64>, &[u8]) -> Option<u64>,
    /// Whether a value that expires then has permits.
    pub is_met: fn(Value<'_>, Option<u64>) -> bool,
    /// Sets the end of a permit by itself: no client has done it.
    pub set_end: fn(&mut Transaction<'_>, &[u8], &[u8], u64),
    /// Removes a permit.
    pub remove: fn(&mut Transaction<'_>, &[u8], &[u8]),
}

/// A lock, and what its holder wants of the server. Locks in a store have the same, and no place in a shard.
#[derive(Debug)]
pub(crate) struct Guard {
    hash: u64,
    pub(super) name: Guarded,
    /// The fencing number of the lock. A permit has none: it is that of the reply to its client.
    pub(super) number: u64,
    /// When a permit ends, as it was seen last, in milliseconds since 1970. Of a lock the key shows it.
    pub(super) end_ms: u64,
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
    /// The permit that the client has got there, if it is one.
    pub permit: Option<PermitWish>,
    /// Whether it is notified when it loses it.
    pub is_notified: bool,
    /// How the lock is bound to its connection, if it is.
    pub bond: Option<BondTerms>,
}

/// A permit that a client has got, and wants more of.
#[derive(Debug)]
pub struct PermitWish {
    /// The token that has it.
    pub token: Box<[u8]>,
    /// The number in the reply.
    pub number: u64,
    /// Whether the token had none.
    pub is_anew: bool,
    /// How it lies at its key.
    pub form: &'static PermitForm,
}

impl Guard {
    /// Of a lock in a store.
    pub(crate) fn in_store(name: Guarded, number: u64) -> Guard {
        Guard::new(0, name, number)
    }

    fn new(hash: u64, name: Guarded, number: u64) -> Guard {
        Guard { hash, name, number, end_ms: 0, notified: None, bond: None, end_ms_max: None }
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
            self.number = wish.permit.as_ref().map_or(self.number, |permit| permit.number);
        }
        self.end_ms = expires_at_ms.unwrap_or(NEVER);
        if let Some(terms) = wish.bond {
            self.bind(terms, Arc::clone(lifeline()), expires_at_ms, now_ms);
        }
    }

    /// Takes over what it lacks from a guard that the same lock has had.
    pub(crate) fn inherit(&mut self, mut before: Guard) {
        if self.notified.is_none() && before.notified.is_some() {
            (self.notified, self.number) = (before.notified, before.number);
        }
        self.end_ms_max = [self.end_ms_max, before.end_ms_max].into_iter().flatten().min();
        match self.bond {
            Some(_) => before.unbind(),
            None => self.bond = before.bond.take(),
        }
    }

    /// Whether it is that of a permit.
    pub(crate) fn is_of_permit(&self) -> bool {
        self.name.permit.is_some()
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
        self.end_ms = expires_at_ms.unwrap_or(NEVER);
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
            bond.untie(&self.name);
        }
    }

    /// Binds the lock to a connection, and to no other any more.
    fn bind(&mut self, terms: BondTerms, lifeline: Arc<Lifeline>, expires_at_ms: Option<u64>, now_ms: u64) {
        self.unbind();
        let end_ms = terms.max_ms.map(|max_ms| moment_after(now_ms, max_ms));
        self.end_ms_max = [self.end_ms_max, end_ms].into_iter().flatten().min();
        let own_expiry_ms = self.limited(expires_at_ms.unwrap_or(NEVER));
        self.bond = Some(Bond::new(terms, lifeline, &self.name, own_expiry_ms, now_ms));
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
        let Guard { notified, name, number, .. } = self;
        let (client, Guarded { database, key, .. }) = (notified?, name);
        Some(Box::new(LostLock { client, database, key, number, why }))
    }
}

impl SharedLock {
    fn is(&self, database: usize, key: &[u8]) -> bool {
        self.database == database && *self.key == *key
    }
}

impl Guards {
    /// Whether a key has a guard, or one of the permits there.
    pub(in crate::keyspace) fn has(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        self.find(hash, database, key, None).is_some() || self.shared_at(hash, database, key).is_some()
    }

    /// Whether a key is a lock that is bound to a connection, or one of the permits there is.
    pub(in crate::keyspace) fn is_bound(&self, hash: u64, database: usize, key: &[u8]) -> bool {
        let mut permits = self.shared_at(hash, database, key).into_iter().flat_map(|it| it.guards.values());
        self.find(hash, database, key, None).is_some_and(|guard| guard.bond.is_some())
            || permits.any(|guard| guard.bond.is_some())
    }

    pub(in crate::keyspace) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.shared.is_empty()
    }

    fn shared_at(&self, hash: u64, database: usize, key: &[u8]) -> Option<&SharedLock> {
        self.shared.find(hash, |shared| shared.is(database, key))
    }

    /// How permits lie at a key, if one of them has a guard.
    pub(super) fn form_at(&self, hash: u64, database: usize, key: &[u8]) -> Option<&'static PermitForm> {
        self.shared_at(hash, database, key).map(|shared| shared.form)
    }

    pub(super) fn find(
        &self,
        hash: u64,
        database: usize,
        key: &[u8],
        permit: Option<&[u8]>,
    ) -> Option<&Guard> {
        match permit {
            None => self.whole.find(hash, |guard| guard.name.database == database && *guard.name.key == *key),
            Some(token) => self.shared_at(hash, database, key)?.guards.get(token),
        }
    }

    pub(super) fn find_mut(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        permit: Option<&[u8]>,
    ) -> Option<&mut Guard> {
        match permit {
            None => {
                self.whole.find_mut(hash, |guard| guard.name.database == database && *guard.name.key == *key)
            }
            Some(token) => {
                self.shared.find_mut(hash, |shared| shared.is(database, key))?.guards.get_mut(token)
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Guard> {
        self.whole.iter().chain(self.shared.iter().flat_map(|shared| shared.guards.values()))
    }

    pub(super) fn remove(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        permit: Option<&[u8]>,
        interest: &Interest,
    ) -> Option<Guard> {
        let removed = match permit {
            None => {
                let is_it = |guard: &Guard| guard.name.database == database && *guard.name.key == *key;
                self.whole.find_entry(hash, is_it).ok()?.remove().0
            }
            Some(token) => {
                let mut found = self.shared.find_entry(hash, |shared| shared.is(database, key)).ok()?;
                let removed = found.get_mut().guards.remove(token)?;
                if found.get().guards.is_empty() {
                    found.remove();
                }
                removed
            }
        };
        interest.remove_watched();
        Some(removed)
    }

    /// Removes those of all permits of a key, in the order of their numbers.
    pub(super) fn remove_shared(
        &mut self,
        hash: u64,
        database: usize,
        key: &[u8],
        interest: &Interest,
    ) -> Vec<Guard> {
        let found = self.shared.find_entry(hash, |shared| shared.is(database, key)).ok();
        let removed = found.map(|found| found.remove().0.guards).unwrap_or_default();
        let mut removed: Vec<Guard> = removed.into_values().collect();
        removed.iter().for_each(|_| interest.remove_watched());
        removed.sort_unstable_by_key(|guard| guard.number);
        removed
    }

    /// Removes those that fulfil a condition, which is one on their databases.
    pub(super) fn remove_in(&mut self, is_in: impl Fn(usize) -> bool, interest: &Interest) -> Vec<Guard> {
        let mut removed: Vec<Guard> = self.whole.extract_if(|guard| is_in(guard.name.database)).collect();
        for shared in self.shared.extract_if(|shared| is_in(shared.database)) {
            removed.extend(shared.guards.into_values());
        }
        removed.iter().for_each(|_| interest.remove_watched());
        removed
    }

    /// Adds a guard where there is none. `form` is that of a permit.
    fn add(&mut self, guard: Guard, form: Option<&'static PermitForm>, interest: &Interest) {
        interest.add_watched();
        let Some((form, token)) = form.zip(guard.name.permit.clone()) else {
            self.whole.insert_unique(guard.hash, guard, |guard| guard.hash);
            return;
        };
        let (hash, database, key) = (guard.hash, guard.name.database, &*guard.name.key);
        let entry = self.shared.entry(hash, |shared| shared.is(database, key), |shared| shared.hash);
        let new = || SharedLock { hash, database, key: key.into(), form, guards: HashMap::new() };
        let mut shared = entry.or_insert_with(new);
        shared.get_mut().guards.insert(token, guard);
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
        let (key, permit) = (&*wish.key, wish.permit.as_ref());
        // What it has come across may be the end of the holder before.
        self.doubt(key, None);
        self.settle_doubts();
        let Some(entry) = self.unseen(key) else { return };
        let (number, expires_at_ms) = match permit {
            None => (entry.fence(), entry.expires_at_ms()),
            Some(PermitWish { token, number, form, .. }) => match self.permit_end(entry, form, token) {
                Some(end_ms) => (Some(*number), Some(end_ms)),
                None => return,
            },
        };
        let Some(number) = number else { return };
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let (now_ms, token) = (self.now_ms(), permit.map(|permit| &*permit.token));
        let name = Guarded::new(database, key, token);
        let (spot, shard) = self.shard_mut(key);
        let guards = &mut shard.side_tables_mut().guards;
        // The same lock may have been taken by another connection of its holder.
        let new = || Guard::new(spot.hash, name.clone(), number);
        let mut guard = guards.remove(spot.hash, database, key, token, interest).unwrap_or_else(new);
        guard.grant(wish, client, lifeline, expires_at_ms, now_ms);
        let is_cut = guard.cut().is_some();
        guards.add(guard, permit.map(|permit| permit.form), interest);
        // Commands that follow in this transaction count.
        self.wanted = self.wanted.with_watched();
        self.limit_end(key, token);
        self.set_guard_alarm(key, token);
        if is_cut {
            self.keyspace().followers().alarms.call(std::iter::once(name));
        }
    }

    /// The guards of the shard of a key, if there are any.
    fn guards(&self, key: &[u8]) -> Option<(u64, &Guards)> {
        let (spot, shard) = self.shard(key);
        Some((spot.hash, &shard.side_tables()?.guards))
    }

    /// The guard of a key, or of a permit there.
    pub(super) fn guard(&self, key: &[u8], permit: Option<&[u8]>) -> Option<&Guard> {
        let (hash, guards) = self.guards(key)?;
        guards.find(hash, self.database(), key, permit)
    }

    pub(super) fn guard_mut(&mut self, key: &[u8], permit: Option<&[u8]>) -> Option<&mut Guard> {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        shard.side_tables()?;
        shard.side_tables_mut().guards.find_mut(spot.hash, database, key, permit)
    }

    pub(super) fn remove_guard(&mut self, key: &[u8], permit: Option<&[u8]>) -> Option<Guard> {
        let (interest, database) = (&self.keyspace().followers().interest, self.database());
        let (spot, shard) = self.shard_mut(key);
        shard.side_tables()?;
        shard.side_tables_mut().guards.remove(spot.hash, database, key, permit, interest)
    }

    /// How permits lie at a key, if one of them has a guard.
    pub(in crate::keyspace) fn guarded_form(&self, key: &[u8]) -> Option<&'static PermitForm> {
        let (hash, guards) = self.guards(key)?;
        guards.form_at(hash, self.database(), key)
    }

    /// Whether a key has a guard, or one of the permits there.
    pub(in crate::keyspace) fn has_guard(&self, key: &[u8]) -> bool {
        self.guards(key).is_some_and(|(hash, guards)| guards.has(hash, self.database(), key))
    }

    /// When a permit ends, in milliseconds since 1970, if it is at its key.
    pub fn permit_end_of(&self, key: &[u8], permit: &PermitWish) -> Option<u64> {
        self.permit_end(self.unseen(key)?, permit.form, &permit.token)
    }

    fn permit_end(&self, entry: &Entry, form: &PermitForm, token: &[u8]) -> Option<u64> {
        (form.end_of)(self.keyspace().value_of(entry), entry.expires_at_ms(), token)
    }

    /// When the lock of a guard ends by its entry, if that is the lock still: the inner `None` for never. A
    /// permit may have ended.
    pub(super) fn end_in(&self, entry: &Entry, guard: &Guard) -> Option<Option<u64>> {
        match &guard.name.permit {
            None => (entry.fence() == Some(guard.number)).then(|| entry.expires_at_ms()),
            Some(token) => {
                let form = self.guarded_form(&guard.name.key)?;
                self.permit_end(entry, form, token).map(Some)
            }
        }
    }

    /// When the lock of a guard ends, if it has not: the inner `None` for never.
    pub(super) fn end_of(&self, guard: &Guard) -> Option<Option<u64>> {
        let end_ms = self.end_in(self.unseen(&guard.name.key)?, guard)?;
        (guard.name.permit.is_none() || end_ms > Some(self.now_ms())).then_some(end_ms)
    }

    /// Sets the alarm of a guard.
    pub(in crate::keyspace) fn set_guard_alarm(&self, key: &[u8], permit: Option<&[u8]>) {
        if permit.is_none() {
            return self.set_alarm(key);
        }
        let guard = self.guard(key, permit);
        let moment_ms = guard.map(|guard| guard.renew_at_ms().unwrap_or(NEVER).min(guard.end_ms));
        self.keyspace().followers().alarms.set(Guarded::new(self.database(), key, permit), moment_ms);
    }
}
