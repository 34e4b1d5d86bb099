//! Marks keys that act as locks, and reports what happens to them.
//!
//! A key that SETNX or SET NX has made gets a mark, a bit in its entry. The lock lens gets news of it, and of
//! every later command that meets a marked entry. For other keys this costs a look at that bit. When a lock
//! is deleted or expires, its shard remembers the hash for a while. So if its holder comes back too late and
//! finds nothing, or writes the key anew, that is news, too.
//!
//! Many libraries take a lock in a script instead: it asks whether the key is there (EXISTS, GET, MSETNX),
//! and writes it with an expiry if it is not. So a script's transaction remembers which keys it found absent.
//!
//! A hash gets the mark if one transaction makes it and sets its expiry: several commands of a script or of
//! EXEC. It must have one field, the holder, with the value 1, the number of times that it holds it. It loses
//! the mark when it gets another field, or a value that is no such number. For other hashes this costs one
//! note in the transaction that makes them, and a look at the bit.
//!
//! So does a sorted set with a token and the word for a lock of one holder, as Symfony makes it.
//!
//! Some clients wait at a list until a lock is released. A transaction that makes a list of one element with
//! an expiry, and then deletes a lock, wakes the next holder by that list.
//!
//! Some scripts take a lock without asking, since they have taken the job that it is for. Such a key is a
//! lock once a script renews it by the same value, or by another expiry, and its client has sent the value.
//!
//! An [`Allowance`] bounds the number of reports. It is filled up ten times a second. When the allowance for
//! changes is used up, new keys get their mark without a report, and a marked key that changes loses its
//! mark. When the allowance for looks is used up, looks are not reported, and refused attempts are only
//! counted. So a missing report does not prove that nothing happened.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::excerpt::excerpt;
use crate::keyspace::Keyspace;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::token::{LONG_BYTES, Token};
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::following::news::{Effect, LockChange, LockNews};
use crate::resp::number::parse_integer;
use crate::values::{HASH_KIND, LIST_KIND, SORTED_SET_KIND, Value};

/// A longer value is no token.
const TOKEN_BYTES_MAX: usize = 1024;

/// How many reports are allowed until the allowance is filled up again.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Allowance {
    changes: AtomicI32,
    /// Clients that wait for a lock look at it far more often than it changes.
    looks: AtomicI32,
    /// When a change was not reported the last time, in milliseconds since 1970.
    unreported_ms: AtomicU64,
    /// Attempts to take a lock that failed and were not reported, in parts that different shards count.
    refused_unseen: [AtomicU64; Allowance::PARTS],
}

impl Allowance {
    /// The reports of either kind in a tenth of a second. Each takes some microseconds with cold caches, so
    /// all of them take one or two percent of a core.
    const FULL: i32 = 500;
    const PARTS: usize = 8;

    /// Whether a report of a change is allowed.
    #[inline(always)]
    fn is_open(&self) -> bool {
        self.changes.load(Ordering::Relaxed) > 0
    }

    fn spend_on(&self, change: LockChange) -> bool {
        let left = match change {
            LockChange::Refused
            | LockChange::Waits
            | LockChange::TakenAgain
            | LockChange::FieldRefused { .. }
            | LockChange::Read
            | LockChange::Sought => &self.looks,
            _ => &self.changes,
        };
        left.load(Ordering::Relaxed) > 0 && left.fetch_sub(1, Ordering::Relaxed) > 0
    }

    fn count_refused(&self, hash: u64) {
        self.refused_unseen[hash as usize % Allowance::PARTS].fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::keyspace) fn refused_unseen(&self) -> u64 {
        self.refused_unseen.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }

    pub(in crate::keyspace) fn reset(&self) {
        self.refused_unseen.iter().for_each(|part| part.store(0, Ordering::Relaxed));
    }
}

impl Keyspace {
    /// Fills up the allowance for the next tenth of a second, or stops reports of locks.
    pub fn allow_lock_news(&self, are_allowed: bool) {
        let allowed = if are_allowed { Allowance::FULL } else { 0 };
        self.lock_allowance.changes.store(allowed, Ordering::Relaxed);
        self.lock_allowance.looks.store(allowed, Ordering::Relaxed);
    }
}

impl Keyspace {
    /// When a change of a lock was not reported the last time, in milliseconds since 1970.
    pub fn lock_news_missed_ms(&self) -> u64 {
        self.lock_allowance.unreported_ms.load(Ordering::Relaxed)
    }
}

/// The hashes of the last few deleted or expired locks of a shard.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct GoneLocks {
    hashes: Vec<u64>,
    next: usize,
}

impl GoneLocks {
    /// With eight hashes in each shard there is room for twice as many locks as are followed.
    const MAX: usize = 8;

    pub(in crate::keyspace) fn add(&mut self, hash: u64) {
        if self.has(hash) {
            return;
        }
        if self.hashes.len() < Self::MAX {
            self.hashes.push(hash);
        } else {
            self.hashes[self.next] = hash;
            self.next = (self.next + 1) % Self::MAX;
        }
    }

    #[inline]
    pub(in crate::keyspace) fn has(&self, hash: u64) -> bool {
        self.hashes.contains(&hash)
    }
}

/// The last collection that a transaction has made where the key was absent.
#[derive(Clone, Copy, Debug)]
pub(in crate::keyspace) struct Made {
    hash: u64,
    database: usize,
    kind: u8,
    by: &'static str,
}

/// How the commands of a transaction belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// They do not: there is one command.
    #[default]
    Alone,
    /// EXEC runs them one after the other. None can depend on what another one has found.
    Queue,
    /// A script calls them.
    Script,
}

/// The last keys that a script, or MSETNX, has found absent.
#[derive(Debug, Default)]
pub(in crate::keyspace) struct Absences {
    newest: Vec<Absence>,
    next: usize,
}

/// A key that was absent.
#[derive(Clone, Copy, Debug)]
struct Absence {
    hash: u64,
    database: usize,
    /// The command that has written it since, without an expiry.
    by: Option<&'static str>,
}

impl Absences {
    /// A lock over several keys seldom has more.
    const MAX: usize = 32;

    fn add(&mut self, absence: Absence) {
        if let Some(before) = self.get(absence.hash, absence.database) {
            *before = absence;
        } else if self.newest.len() < Self::MAX {
            self.newest.push(absence);
        } else {
            self.newest[self.next] = absence;
            self.next = (self.next + 1) % Self::MAX;
        }
    }

    fn get(&mut self, hash: u64, database: usize) -> Option<&mut Absence> {
        self.newest.iter_mut().find(|absence| (absence.hash, absence.database) == (hash, database))
    }

    fn remove(&mut self, hash: u64, database: usize) {
        // The place that is free now is filled by the next one.
        if let Some(absence) = self.get(hash, database) {
            absence.database = usize::MAX;
        }
    }
}

/// The member of a sorted set which says that its other member is the only holder, as in Symfony's locks.
const ONE_HOLDER: &[u8] = b"__write__";

/// The holder of a lock that is a collection, and how often it has taken it: the field of a hash with
/// a single field, and the number in it; or the token in a sorted set that has one, beside [`ONE_HOLDER`].
fn owner(value: Value<'_>) -> Option<(Box<[u8]>, Token, u64)> {
    let members = match value.facts.kind {
        HASH_KIND => 1,
        SORTED_SET_KIND => 2,
        _ => return None,
    };
    if (value.facts.len)(value.content) != members {
        return None;
    }
    let (mut found, mut has_one_holder) = (None, members == 1);
    (value.facts.each)(value.content, &mut |element| match element {
        [ONE_HOLDER, _] if members == 2 => has_one_holder = true,
        [token, _] if members == 2 => found = Some((excerpt(token).into(), Token::of(token), 1)),
        [field, number] => {
            let number = parse_integer(number).and_then(|number| u64::try_from(number).ok());
            found = number.map(|number| (excerpt(field).into(), Token::of(field), number));
        }
        _ => {}
    });
    found.filter(|_| has_one_holder)
}

/// Whether a sorted set has lost its token and keeps [`ONE_HOLDER`], which a release takes out next.
fn is_being_released(value: Value<'_>) -> bool {
    let mut is_alone = value.facts.kind == SORTED_SET_KIND && (value.facts.len)(value.content) == 1;
    if is_alone {
        (value.facts.each)(value.content, &mut |element| is_alone = element.first() == Some(&ONE_HOLDER));
    }
    is_alone
}

/// Reports of locks.
impl Transaction<'_> {
    /// Notes a collection that was made where the key was absent.
    #[inline]
    pub(in crate::keyspace) fn note_made(&mut self, hash: u64, kind: u8, by: &'static str) {
        self.made = Some(Made { hash, database: self.database, kind, by });
    }

    /// Marks a hash or a sorted set that got its expiry, if the transaction has made it, as locks are made.
    #[cold]
    pub(in crate::keyspace) fn follow_made(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        let (keyspace, database) = (self.keyspace(), self.database());
        let (spot, shard) = self.shard(key);
        let is_meant =
            |made: &Made| (made.hash, made.database) == (spot.hash, database) && made.kind != LIST_KIND;
        let Some(Made { by, kind, .. }) = self.made.filter(is_meant) else { return };
        let entry = shard.table(database).and_then(|table| table.find(spot, key));
        let Some((field, token, 1)) = entry.and_then(|entry| owner(self.value_of(entry))) else { return };
        if expires_at_ms.is_none() || self.is_replay() {
            return;
        }
        self.made = None;
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.entry_mut(database, spot, key) else { return };
        entry.set_lock(true);
        if keyspace.lock_allowance.is_open() {
            match kind {
                HASH_KIND => {
                    self.report(key, LockChange::TakenAsHash { token, expires_at_ms, by }, Some(field))
                }
                _ => self.report(key, LockChange::TakenAsSet { token, expires_at_ms, by }, None),
            }
        } else {
            shard.unfollowed += 1;
        }
    }

    /// Says how the next commands belong together.
    pub fn group(&mut self, grouping: Grouping) {
        self.grouping = grouping;
        self.has_read = false;
        if let Some(absences) = self.absences() {
            *absences = Absences::default();
        }
    }

    /// Notes that the script that runs has read a string: it may compare it.
    pub fn note_read(&mut self) {
        self.has_read = true;
    }

    /// How the commands that run belong together.
    pub fn grouping(&self) -> Grouping {
        self.grouping
    }

    /// Notes that a script found a key absent, or that the command `by` did and writes it now.
    #[cold]
    pub(in crate::keyspace) fn note_absent(&self, key: &[u8], by: Option<&'static str>) {
        let (hash, database) = (self.shard(key).0.hash, self.database());
        self.leave(|aftermath| aftermath.absences.add(Absence { hash, database, by }));
    }

    /// The keys that were found absent, if any were.
    fn absences(&mut self) -> Option<&mut Absences> {
        self.left.get_mut().if_any().map(|aftermath| &mut aftermath.absences)
    }

    /// Notes keys that the command `by` has found absent, all of them, and writes now. Handlers of such
    /// commands call it before they write.
    pub fn note_all_absent<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>, by: &'static str) {
        if self.grouping != Grouping::Alone {
            keys.for_each(|key| self.note_absent(key, Some(by)));
        }
    }

    /// Follows a string that was written where the key was absent, by a command that did not ask.
    /// `was_lock` says whether it was a lock a short time ago.
    #[cold]
    pub(in crate::keyspace) fn follow_new(&mut self, key: &[u8], value: &[u8], was_lock: bool) {
        let by = "set";
        let (hash, database) = (self.shard(key).0.hash, self.database());
        let expires_at_ms = self.entry(key).and_then(Entry::expires_at_ms);
        let found = self.absences().and_then(|absences| absences.get(hash, database));
        match (found, expires_at_ms) {
            (Some(_), Some(expires_at_ms)) => self.take_in_steps(key, value, expires_at_ms, by),
            (found, _) => {
                if let Some(absence) = found {
                    absence.by.get_or_insert(by);
                }
                // What is written for ever is the result of something rather than a lock.
                if let Some(expires_at_ms) = expires_at_ms
                    && was_lock
                    && !self.is_replay()
                {
                    let change = LockChange::Remade { token: Token::of(value), expires_at_ms };
                    self.report_with(key, change, None, self.entry(key));
                }
            }
        }
    }

    /// Follows the expiry of a string that the transaction has written where it had found the key absent.
    #[cold]
    pub(in crate::keyspace) fn follow_dated(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        let (hash, database) = (self.shard(key).0.hash, self.database());
        let found = self.absences().and_then(|absences| absences.get(hash, database));
        let by = found.and_then(|absence| absence.by);
        let (Some(by), Some(expires_at_ms)) = (by, expires_at_ms) else { return };
        let text = self.entry(key).and_then(|entry| entry.text().ok());
        let Some(value) = text.map(<[u8]>::to_vec) else { return };
        self.take_in_steps(key, &value, expires_at_ms, by);
    }

    fn take_in_steps(&mut self, key: &[u8], value: &[u8], expires_at_ms: u64, by: &'static str) {
        let (keyspace, database) = (self.keyspace(), self.database());
        if self.is_replay() {
            return;
        }
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.entry_mut(database, spot, key) else { return };
        entry.set_lock(true);
        let hash = spot.hash;
        if keyspace.lock_allowance.is_open() {
            self.report(key, LockChange::TakenInSteps { token: Token::of(value), expires_at_ms, by }, None);
        } else {
            shard.unfollowed += 1;
        }
        if let Some(absences) = self.absences() {
            absences.remove(hash, database);
        }
    }

    /// Whether a script that has read strings would renew a key to which it gives this value, or the one that
    /// it has: a string without the mark of a lock, with a value as long as tokens are, and with an expiry.
    #[inline(always)]
    pub(in crate::keyspace) fn may_renew(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        self.has_read && self.would_renew(key, value)
    }

    #[cold]
    fn would_renew(&self, key: &[u8], value: Option<&[u8]>) -> bool {
        let Some(entry) = self.entry(key).filter(|entry| !entry.is_lock() && !self.is_replay()) else {
            return false;
        };
        let is_same = |text: &[u8]| {
            (LONG_BYTES..=TOKEN_BYTES_MAX).contains(&text.len()) && value.is_none_or(|value| value == text)
        };
        entry.expires_at_ms().is_some() && !self.has_expired(entry) && entry.text().is_ok_and(is_same)
    }

    /// Follows a string that a script [may have renewed](Self::may_renew).
    #[cold]
    pub(in crate::keyspace) fn follow_renewed(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        let (keyspace, database) = (self.keyspace(), self.database());
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.entry_mut(database, spot, key) else { return };
        let (Ok(text), Some(expires_at_ms)) = (entry.text(), expires_at_ms) else { return };
        let token = Token::of(text);
        if keyspace.lock_allowance.is_open() {
            entry.set_lock(true);
            self.report_with(key, LockChange::Renewed { token, expires_at_ms }, None, self.entry(key));
        }
    }

    /// Follows a hash or a sorted set that is a lock and was changed.
    #[cold]
    pub(in crate::keyspace) fn follow_depth(&self, key: &[u8]) {
        let Some(entry) = self.entry(key) else { return };
        let value = self.value_of(entry);
        match owner(value) {
            _ if is_being_released(value) => {}
            // Its holder has moved its end.
            Some(_) if value.facts.kind == SORTED_SET_KIND => {}
            Some((_, _, depth)) => self.report_lock(key, LockChange::Depth(depth)),
            None => {
                entry.set_lock(false);
                self.report_lock(key, LockChange::Changed);
            }
        }
    }

    /// The list that the transaction has made to wake the next holder of a lock.
    fn signal(&self) -> Option<Box<[u8]>> {
        let made = self.made.filter(|made| made.kind == LIST_KIND && made.database == self.database())?;
        let entry = self.entry_of_hash(made.hash)?;
        let value = self.value_of(entry);
        let is_signal = value.facts.kind == LIST_KIND
            && (value.facts.len)(value.content) == 1
            && entry.expires_at_ms().is_some();
        is_signal.then(|| entry.key().into())
    }

    /// Reports a key that was inserted, with its mark, because it was absent.
    #[inline(always)]
    pub(in crate::keyspace) fn follow_taken(&mut self, key: &[u8], value: &[u8]) {
        if self.keyspace().lock_allowance.is_open() {
            self.report_taken(key, value);
        } else {
            self.shard_mut(key).1.unfollowed += 1;
        }
    }

    #[cold]
    fn report_taken(&self, key: &[u8], value: &[u8]) {
        // The key is absent if it expired at once.
        let Some(entry) = self.entry(key) else { return };
        let expires_at_ms = entry.expires_at_ms();
        self.report_lock(key, LockChange::Taken { token: Token::of(value), expires_at_ms });
    }

    /// Removes the mark of a key, which is no lock after all.
    #[cold]
    pub fn unfollow(&self, key: &[u8]) {
        if let Some(entry) = self.entry(key) {
            entry.set_lock(false);
        }
    }

    /// Reports a marked key, or a key that had a mark when it was removed.
    #[cold]
    pub(in crate::keyspace) fn report_lock(&self, key: &[u8], change: LockChange) {
        match change {
            LockChange::Freed => self.report_freed(key, None),
            LockChange::Expiry(_) => self.report_with(key, change, None, self.entry(key)),
            _ => self.report(key, change, None),
        }
    }

    /// Reports a key that had a mark when it was removed, with its entry if that is known.
    #[cold]
    pub(in crate::keyspace) fn report_freed(&self, key: &[u8], entry: Option<&Entry>) {
        self.report_with(key, LockChange::Freed, self.signal(), entry);
    }

    fn report(&self, key: &[u8], change: LockChange, name: Option<Box<[u8]>>) {
        self.report_with(key, change, name, None);
    }

    /// Reports a change. A script that acts on the entry may have compared its value with an argument.
    fn report_with(&self, key: &[u8], change: LockChange, name: Option<Box<[u8]>>, entry: Option<&Entry>) {
        let (spot, _) = self.shard(key);
        if self.keyspace().lock_allowance.spend_on(change) {
            let entry = entry.filter(|_| self.grouping == Grouping::Script);
            let value = entry.and_then(|entry| self.token_of(entry));
            let (hash, database, at_ms) = (spot.hash, self.database(), self.now_ms());
            // A number that only the store knows is none here.
            let fence = self.entry(key).and_then(|entry| entry.fence()).filter(|fence| *fence > 0);
            let (key, served) = (key.into(), None);
            let news = LockNews { hash, database, key, at_ms, change, name, value, fence, served };
            self.leave_effect(Effect::Lock(news));
            return;
        }
        if !change.is_look() {
            self.keyspace().lock_allowance.unreported_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        match change {
            LockChange::Refused => self.keyspace().lock_allowance.count_refused(spot.hash),
            // What the lens knows of it is outdated.
            LockChange::Written { .. } | LockChange::Expiry(_) | LockChange::Depth(_) => self.unfollow(key),
            _ => {}
        }
    }

    /// The value of a lock, or the field of one that is a hash, if it is no longer than a token.
    fn token_of(&self, entry: &Entry) -> Option<Box<[u8]>> {
        match entry.text() {
            Ok(text) => (text.len() <= TOKEN_BYTES_MAX).then(|| text.into()),
            Err(_) => owner(self.value_of(entry)).map(|(field, ..)| field),
        }
    }

    /// Whether news of locks are reported now.
    #[inline]
    pub fn reports_locks(&self) -> bool {
        self.keyspace().lock_allowance.is_open() && !self.is_replay()
    }

    /// Reports what happened to a field of a hash that acts as a lock. No mark shows which fields do: their
    /// names do.
    #[cold]
    pub fn follow_field(&self, key: &[u8], field: &[u8], change: LockChange) {
        let keyspace = self.keyspace();
        if keyspace.lock_allowance.spend_on(change) {
            let hash = self.shard(key).0.hash ^ keyspace.hash(field).rotate_left(32);
            let (database, at_ms, name) = (self.database(), self.now_ms(), Some(field.into()));
            let (key, value, fence, served) = (key.into(), None, None, None);
            let news = LockNews { hash, database, key, at_ms, change, name, value, fence, served };
            self.leave_effect(Effect::Lock(news));
        }
    }

    /// Reports that a lock was evicted.
    pub(in crate::keyspace) fn follow_evicted(&mut self, key: &[u8]) {
        let (spot, shard) = self.shard_mut(key);
        shard.side_tables_mut().gone_locks.add(spot.hash);
        self.report(key, LockChange::Evicted, None);
    }

    /// Reports that a command did not write a lock, because it was there.
    #[inline]
    pub fn follow_refused(&self, key: &[u8]) {
        if self.is_lock(key) {
            self.report_lock(key, LockChange::Refused);
        }
    }

    /// Follows a lock whose value was replaced. If the old lock had expired, the key loses its mark: an
    /// expired lock is no lock until it is taken again.
    #[cold]
    pub(in crate::keyspace) fn follow_rewritten(
        &mut self,
        key: &[u8],
        value: &[u8],
        before: Token,
        had_expired: bool,
    ) {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        let Some(entry) = shard.entry_mut(database, spot, key) else { return };
        let expires_at_ms = entry.expires_at_ms();
        if had_expired {
            entry.set_lock(false);
            shard.side_tables_mut().gone_locks.add(spot.hash);
            return;
        }
        self.report_lock(key, LockChange::Written { before, token: Token::of(value), expires_at_ms });
    }

    /// Follows a lock that is a hash and was replaced by a string.
    #[cold]
    pub(in crate::keyspace) fn follow_replaced(&mut self, key: &[u8], had_expired: bool) {
        let (spot, shard) = self.shard_mut(key);
        shard.side_tables_mut().gone_locks.add(spot.hash);
        if !had_expired {
            self.report_lock(key, LockChange::Freed);
        }
    }

    /// Follows a look at an absent key, which may have been a lock.
    #[inline]
    pub(in crate::keyspace) fn follow_miss(&self, key: &[u8]) {
        let (spot, shard) = self.shard(key);
        if shard.side_tables().is_some_and(|side_tables| side_tables.gone_locks.has(spot.hash)) {
            self.report_lock(key, LockChange::Missed);
        }
    }

    /// Reports that a command left a lock unchanged because its value was not the expected one. Handlers of
    /// such commands call it.
    pub fn follow_unmet(&self, key: &[u8]) {
        if self.is_lock(key) {
            self.report_lock(key, LockChange::Unmet);
        }
    }

    /// Reports that the holder of a lock has asked for it again.
    pub fn follow_taken_again(&self, key: &[u8]) {
        if self.is_lock(key) {
            self.report_lock(key, LockChange::TakenAgain);
        }
    }

    /// Marks a key that is a lock already: it comes from elsewhere.
    pub fn follow_again(&mut self, key: &[u8]) {
        let database = self.database();
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.entry_mut(database, spot, key) {
            entry.set_lock(true);
        }
    }

    /// Whether a key is marked as a lock, and is that of this token as far as a look can tell.
    pub fn is_lock_of(&self, key: &[u8], token: Token) -> bool {
        let found = self.unseen(key).filter(|entry| entry.is_lock());
        let is_other = |text: &[u8]| Token::of(text).digest != token.digest;
        found.is_some_and(|entry| !entry.text().is_ok_and(is_other))
    }

    /// Whether a key is marked as a lock and has not expired.
    pub fn is_lock(&self, key: &[u8]) -> bool {
        let (spot, shard) = self.shard(key);
        let found = shard.table(self.database()).and_then(|table| table.find(spot, key));
        found.is_some_and(|entry| entry.is_lock() && !self.has_expired(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyspace::Expiry;

    fn reported(tx: &mut Transaction<'_>) -> Vec<LockChange> {
        let effects = tx.take_effects();
        let changes = effects.into_iter().map(|effect| match effect {
            Effect::Lock(news) => news.change,
            other => panic!("{other:?}"),
        });
        changes.collect()
    }

    #[test]
    fn only_changes_of_locks_are_reported() {
        let keyspace = Keyspace::alone(1);
        keyspace.allow_lock_news(true);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        tx.put(b"k", b"v", Expiry::Never);
        tx.get_bytes(b"k");
        assert!(!tx.insert_if_absent(b"k", b"a", Expiry::Never));
        tx.remove(b"k");
        tx.remove(b"k");
        assert_eq!(reported(&mut tx), []);

        let [a, b] = [b"a", b"b"].map(|value| Token::of(value));
        assert!(tx.insert_if_absent(b"k", b"a", Expiry::Never));
        assert_eq!(reported(&mut tx), [LockChange::Taken { token: a, expires_at_ms: None }]);
        assert!(!tx.insert_if_absent(b"k", b"b", Expiry::Never));
        tx.get_bytes(b"k");
        tx.put(b"k", b"b", Expiry::Never);
        let written = LockChange::Written { before: a, token: b, expires_at_ms: None };
        assert_eq!(reported(&mut tx), [LockChange::Refused, LockChange::Read, written]);
        let later_ms = tx.now_ms() + 60_000;
        tx.set_expiry(b"k", Some(later_ms));
        tx.follow_unmet(b"k");
        tx.put(b"k", b"bb", Expiry::Keep);
        assert!(tx.is_lock(b"k"), "however it is rewritten");
        tx.remove(b"k");
        let before_last = reported(&mut tx);
        assert_eq!(before_last[..2], [LockChange::Expiry(Some(later_ms)), LockChange::Unmet]);
        assert_eq!(before_last[3..], [LockChange::Freed]);
        tx.remove(b"k");
        assert_eq!(reported(&mut tx), [LockChange::Missed]);
    }

    #[test]
    fn who_takes_an_expired_lock_has_not_missed_it_with_or_without_a_log() {
        for has_log in [false, true] {
            let keyspace = Keyspace::alone(1);
            if has_log {
                keyspace.begin_all(0).unwrap().cut_journal();
            }
            keyspace.allow_lock_news(true);
            keyspace.clock().freeze();
            let later_ms = keyspace.clock().now_ms() + 30_000;
            let taken = |expiry: Expiry| {
                let mut tx = keyspace.begin(0, b"k").unwrap();
                assert!(tx.insert_if_absent(b"k", b"v", expiry));
                tx.commit();
                reported(&mut tx)
            };
            let token = Token::of(b"v");
            let first = LockChange::Taken { token, expires_at_ms: Some(later_ms) };
            assert_eq!(taken(Expiry::At(later_ms)), [first]);
            keyspace.clock().set(later_ms).unwrap();
            let second = LockChange::Taken { token, expires_at_ms: None };
            assert_eq!(taken(Expiry::Never), [second], "with a log: {has_log}");
            assert_eq!(keyspace.begin_all(0).unwrap().counters().expired, 1);
        }
    }

    #[test]
    fn a_lock_whose_change_is_not_reported_loses_its_mark() {
        let keyspace = Keyspace::alone(1);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        assert!(tx.insert_if_absent(b"k", b"v", Expiry::Never));
        assert!(tx.is_lock(b"k") && reported(&mut tx).is_empty(), "it has its mark all the same");
        tx.remove(b"k");
        keyspace.allow_lock_news(true);
        assert!(tx.insert_if_absent(b"k", b"v", Expiry::Never));
        assert!(tx.is_lock(b"k"));
        keyspace.allow_lock_news(false);
        tx.get_bytes(b"k");
        assert!(tx.is_lock(b"k"), "a look does not remove the mark");
        tx.put(b"k", b"w", Expiry::Never);
        assert!(!tx.is_lock(b"k"));
        drop(tx);
        assert_eq!(keyspace.begin_all(0).unwrap().unfollowed_locks(), 1);
    }

    #[test]
    fn a_script_takes_what_it_has_found_absent_and_writes_with_an_expiry() {
        let keyspace = Keyspace::alone(1);
        keyspace.allow_lock_news(true);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        let expiry = Expiry::At(tx.now_ms() + 60_000);
        let put = |tx: &mut Transaction<'_>, expiry: Expiry| tx.put(b"k", b"v", expiry);
        let is_taken = |tx: &mut Transaction<'_>| {
            let changes = reported(tx);
            let is_taken = changes.iter().any(|change| matches!(change, LockChange::TakenInSteps { .. }));
            assert_eq!(tx.is_lock(b"k"), is_taken, "{changes:?}");
            tx.remove(b"k");
            tx.take_effects();
            is_taken
        };
        for grouping in [Grouping::Alone, Grouping::Queue] {
            tx.group(grouping);
            tx.exists(b"k");
            put(&mut tx, expiry);
            assert!(!is_taken(&mut tx), "a command that was sent does not depend on what others find");
        }
        tx.group(Grouping::Script);
        put(&mut tx, expiry);
        assert!(!is_taken(&mut tx), "it has not asked");
        tx.group(Grouping::Script);
        tx.exists(b"k");
        put(&mut tx, Expiry::Never);
        assert!(!is_taken(&mut tx), "it has no expiry");
        tx.group(Grouping::Script);
        tx.exists(b"k");
        put(&mut tx, expiry);
        assert!(is_taken(&mut tx));
        for grouping in [Grouping::Queue, Grouping::Script] {
            tx.group(grouping);
            tx.note_all_absent([b"k".as_slice()].into_iter(), "msetnx");
            put(&mut tx, Expiry::Never);
            let later_ms = tx.now_ms() + 60_000;
            tx.set_expiry(b"k", Some(later_ms));
            assert!(is_taken(&mut tx));
        }
        let mut absences = Absences::default();
        let absence = |hash| Absence { hash, database: 0, by: None };
        (0..100).for_each(|hash| absences.add(absence(hash)));
        assert!(absences.get(99, 0).is_some() && absences.get(0, 0).is_none());
        assert_eq!(absences.newest.len(), Absences::MAX);
    }

    #[test]
    fn a_lock_that_is_written_after_its_end_is_news() {
        let keyspace = Keyspace::alone(1);
        keyspace.allow_lock_news(true);
        let mut tx = keyspace.begin(0, b"k").unwrap();
        assert!(tx.insert_if_absent(b"k", b"v", Expiry::Never));
        tx.remove(b"k");
        tx.take_effects();
        let expires_at_ms = tx.now_ms() + 60_000;
        tx.put(b"k", b"v", Expiry::At(expires_at_ms));
        assert_eq!(reported(&mut tx), [LockChange::Remade { token: Token::of(b"v"), expires_at_ms }]);
        assert!(!tx.is_lock(b"k"), "the lens decides");
        tx.remove(b"k");
        tx.put(b"k", b"v", Expiry::Never);
        assert_eq!(reported(&mut tx), []);
    }

    #[test]
    fn a_shard_remembers_its_last_removed_locks() {
        let mut gone = GoneLocks::default();
        (0..20).for_each(|hash| gone.add(hash));
        gone.add(19);
        assert_eq!((0..20).filter(|hash| gone.has(*hash)).collect::<Vec<_>>(), (12..20).collect::<Vec<_>>());
    }
}
