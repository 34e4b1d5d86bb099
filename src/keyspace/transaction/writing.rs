//! What a command writes: values, expiries, copies and deletions.

use std::time::Duration;

use super::Transaction;
use crate::events::EventClass;
use crate::keyspace::access::Access;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::store::table::{LockBefore, NewEntry, Removed};
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::lens::Grouping;
use crate::keyspace::transaction::following::losses::Loss;
use crate::keyspace::transaction::following::news::{LockChange, LossReason};
use crate::values::{Content, Encoding, LONG_TEXT_BYTES, STRING_KIND, Value};

/// When a written key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key does not expire; an earlier expiry is removed.
    Never,
    /// Its expiry stays as it was; never, if the key was absent.
    Keep,
    /// At this moment, in milliseconds since 1970. A key whose moment has passed is written and has expired:
    /// as in Redis, it is reported as written first, and as expired when it is freed.
    At(u64),
}

impl Transaction<'_> {
    /// Writes a key, whether it is there or not.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let expires_at_ms = self.resolve(key, expiry);
        if self.wanted.any() {
            self.follow_put(key);
        }
        let (stamp, database) = (self.stamp_of_written(key), self.database);
        let (spot, shard) = self.shard_mut(key);
        shard.changes += 1;
        let is_done = expires_at_ms.is_none() && shard.table_mut(database).overwrite(spot, key, value, stamp);
        if !is_done {
            self.put_anew(key, value, expires_at_ms, stamp);
        }
    }

    /// Writes a key whose entry, if it has one, cannot just take the new value.
    #[inline(never)]
    fn put_anew(&mut self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>, stamp: u32) {
        let long = (value.len() >= LONG_TEXT_BYTES).then(|| self.long_text(value));
        let new = NewEntry { key, value, long, expires_at_ms, stamp };
        let renews = self.may_renew(key, Some(value));
        let (keyspace, database) = (self.keyspace, self.database);
        let (spot, shard) = self.shard_mut(key);
        let rehash = |entry: &Entry| keyspace.hash(entry.key());
        let replaced = shard.table_mut(database).put(spot, new, rehash);
        let was_lock = replaced.lock.is_some()
            || shard.side_tables().is_some_and(|side_tables| side_tables.gone_locks.has(spot.hash));
        // Clients that wait for a lock must know when it expires now.
        let concerns_waiters =
            replaced.was_collection || replaced.expires_at_ms.is_some() || expires_at_ms.is_some();
        if concerns_waiters && self.wanted.blocked() {
            self.note_ready(database, key);
        }
        if let Some(entry) = replaced.entry {
            self.discard(entry);
        }
        let had_expired = replaced.expires_at_ms.is_some_and(|expired_at_ms| self.is_over(expired_at_ms));
        if had_expired {
            self.follow_loss(key, Loss::Expired);
        }
        match replaced.lock {
            None => {}
            Some(LockBefore::Text(before)) => self.follow_rewritten(key, value, before, had_expired),
            Some(LockBefore::Hash) => self.follow_replaced(key, had_expired),
        }
        if (replaced.is_new || had_expired) && (was_lock || self.grouping != Grouping::Alone) {
            self.follow_new(key, value, was_lock);
        }
        if renews {
            self.follow_renewed(key, expires_at_ms);
        }
    }

    /// Writes a key as [`put`](Self::put) does, with a value of another encoding.
    pub fn put_encoded(&mut self, key: &[u8], value: &[u8], expiry: Expiry, encoding: Encoding) {
        self.put(key, value, expiry);
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.entry_mut(database, spot, key) {
            entry.set_encoding(encoding);
        }
    }

    /// Writes a key as [`put`](Self::put) does, with a value of any type.
    pub fn put_any(&mut self, key: &[u8], value: Value<'_>, expiry: Expiry) {
        if let Content::Bytes(string) = value.content
            && value.facts.kind == STRING_KIND
        {
            return self.put(key, string, expiry);
        }
        let expires_at_ms = self.resolve(key, expiry);
        let entry = Entry::of(key, value, expires_at_ms);
        entry.set_stamp(Access::first(self.keyspace.access.now()));
        self.overwrite(key, entry);
    }

    /// Replaces the value of a key, whether it is there or not. That counts as one change, and a key that was
    /// there is not reported as new.
    fn overwrite(&mut self, key: &[u8], entry: Entry) {
        if self.remove(key) {
            self.shard_mut(key).1.changes -= 1;
            self.follow_change(key, Extent::Whole);
            self.place_entry(key, entry);
        } else {
            self.insert_entry(key, entry);
        }
    }

    /// Counts more changes of a key that was written, beside the one that was counted then. Redis counts the
    /// elements of some values.
    pub fn count_more(&mut self, key: &[u8], changes: usize) {
        self.shard_mut(key).1.changes += changes as u64;
    }

    /// How many changes the shard of a key has counted, for
    /// [`count_changes_as`](Self::count_changes_as).
    pub fn counted_changes(&self, key: &[u8]) -> u64 {
        self.shard(key).1.changes
    }

    /// Counts all changes of a key since `before` as this number of changes, if there are any. Redis counts
    /// some commands as one change, whatever they do.
    pub fn count_changes_as(&mut self, key: &[u8], before: u64, changes: u64) {
        let shard = self.shard_mut(key).1;
        let made = shard.changes - before;
        if made > 0 {
            shard.changes = before + changes;
            self.uncounted_changes += made.saturating_sub(changes);
        }
    }

    /// How many changes were made that [`count_changes_as`](Self::count_changes_as) has not counted.
    pub fn uncounted_changes(&self) -> u64 {
        self.uncounted_changes
    }

    /// Replaces a key, whether it is there or not, by an entry. That counts as one change.
    fn replace(&mut self, key: &[u8], entry: Entry) {
        if self.remove(key) {
            self.shard_mut(key).1.changes -= 1;
        }
        self.insert_entry(key, entry);
    }

    /// Writes a key only if it is absent; returns whether it did.
    ///
    /// This is SETNX: of all clients that call it for one key, exactly one gets `true`.
    #[inline]
    pub fn insert_if_absent(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> bool {
        let (spot, shard) = self.shard(key);
        match shard.table(self.database).and_then(|table| table.find(spot, key)) {
            Some(entry) if !self.has_expired(entry) => {
                self.note_use(entry);
                if entry.is_lock() {
                    self.report_lock(key, LockChange::Refused);
                }
                return false;
            }
            // That it finds an expired lock is no news but that it takes it.
            Some(_) => self.make_way(key),
            None => {}
        }
        self.insert(key, value, expiry, !self.is_replay);
        self.follow_taken(key, value);
        true
    }

    /// Writes a key that is known to be absent, with the mark of a lock or without.
    #[inline]
    pub(in crate::keyspace) fn insert(&mut self, key: &[u8], value: &[u8], expiry: Expiry, is_lock: bool) {
        let expires_at_ms = match expiry {
            Expiry::Never | Expiry::Keep => None,
            Expiry::At(expires_at_ms) => Some(expires_at_ms),
        };
        let long = (value.len() >= LONG_TEXT_BYTES).then(|| self.long_text(value));
        let stamp = Access::first(self.keyspace.access.now());
        let new = NewEntry { key, value, long, expires_at_ms, stamp };
        if self.wanted.any() {
            self.follow_put(key);
        }
        let entry = new.into_entry();
        if is_lock {
            entry.set_lock(true);
        }
        self.add_entry(key, entry);
    }

    pub(super) fn insert_entry(&mut self, key: &[u8], entry: Entry) {
        if self.wanted.any() {
            self.follow_put(key);
        }
        self.place_entry(key, entry);
    }

    fn place_entry(&mut self, key: &[u8], entry: Entry) {
        let may_serve = self.wanted.blocked() && entry.is_collection();
        self.add_entry(key, entry);
        if may_serve {
            self.note_ready(self.database, key);
        }
    }

    /// Puts the entry of an absent key into its table. A new string serves no client that waits.
    #[inline(never)]
    fn add_entry(&mut self, key: &[u8], entry: Entry) {
        let (keyspace, database) = (self.keyspace, self.database);
        let (spot, shard) = self.shard_mut(key);
        let rehash = |entry: &Entry| keyspace.hash(entry.key());
        shard.changes += 1;
        shard.table_mut(database).insert(spot, entry, rehash);
    }

    /// Returns when a key that is written now expires.
    #[inline(always)]
    fn resolve(&self, key: &[u8], expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Never => None,
            Expiry::Keep => self.kept_expiry(key),
            Expiry::At(expires_at_ms) => Some(expires_at_ms),
        }
    }

    /// Returns when a key expires that keeps its expiry.
    #[inline(never)]
    fn kept_expiry(&self, key: &[u8]) -> Option<u64> {
        self.peek_expiry(key).flatten()
    }

    /// The access stamp of a key that is written now. A key that is there keeps its count.
    #[inline]
    fn stamp_of_written(&self, key: &[u8]) -> u32 {
        let access = &self.keyspace.access;
        let now = access.now();
        if !access.counts_frequency() {
            return now;
        }
        match self.find(key) {
            Some(entry) if self.stamp == 0 => entry.stamp(),
            Some(entry) => self.next_count(entry, now),
            None => {
                self.counts_first_use(key);
                Access::first(now)
            }
        }
    }

    /// Marks the value of a key as raw bytes, whatever they contain.
    pub fn make_raw(&mut self, key: &[u8]) {
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.entry_mut(database, spot, key) {
            entry.set_encoding(Encoding::Raw);
        }
    }

    /// Replaces `target` in a database by a copy of `source` in the current database, with its expiry. The
    /// copy counts as new, and `source`, which must be there, as used.
    pub fn copy(&mut self, source: &[u8], target_database: usize, target: &[u8]) {
        let mut copy = self.peek_entry(source).map(|entry| entry.renamed(target));
        if let Some(copy) = &mut copy {
            copy.set_stamp(self.keyspace.access.first_now());
            if copy.fence().is_some() {
                // It is another lock, though the same token holds it.
                copy.set_fence(self.next_fence(target_database, target));
            }
        }
        let is_large = copy.as_ref().is_some_and(|entry| entry.structure().is_some());
        let source_database = std::mem::replace(&mut self.database, target_database);
        if let Some(copy) = copy {
            self.replace(target, copy);
        }
        self.database = source_database;
        if is_large && self.wanted.journal() {
            self.note_copy(source, target_database, target);
        }
    }

    /// Replaces `target` as [`copy`](Self::copy) does, and deletes `source`.
    pub fn carry(&mut self, source: &[u8], target_database: usize, target: &[u8]) {
        self.copy(source, target_database, target);
        self.note_moved(source);
        if self.remove(source) {
            self.shard_mut(source).1.changes -= 1;
        }
    }

    /// Sets for how long a key has not been used, or how often it is used, whichever the stamps keep.
    pub fn set_use(&mut self, key: &[u8], idle: Option<Duration>, frequency: Option<u8>) {
        let access = &self.keyspace.access;
        let stamp = idle
            .and_then(|idle| access.stamp_of_idle(idle))
            .or_else(|| frequency.and_then(|frequency| access.stamp_of_frequency(frequency)));
        if let (Some(stamp), Some(entry)) = (stamp, self.find(key)) {
            entry.set_stamp(stamp);
        }
    }

    /// Frees an entry that has left its table: a small entry at once, a large one when the locks are free.
    #[inline]
    pub(in crate::keyspace) fn discard(&mut self, entry: Entry) {
        if entry.is_long_to_free() {
            self.leave_entry(entry);
        }
    }

    /// Deletes a key; returns whether it was there.
    #[inline]
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Some(removed) = self.take(key) else {
            self.follow_miss(key);
            return false;
        };
        self.remove_taken(key, removed)
    }

    /// Deletes a lock for a caller that need not be its holder. It is there.
    pub fn break_lock(&mut self, key: &[u8]) {
        let Some(removed) = self.take(key) else { return };
        if removed.is_lock {
            self.report_lock(key, LockChange::Broken);
        }
        self.doubt(key, Some(LossReason::Broken));
        self.follow_removal(key, removed);
    }

    /// Deletes a key in whose place a command would have written its result, if that were not empty; returns
    /// whether it was there. As in Redis, this is a deletion even of a key that has expired.
    pub fn remove_for_nothing(&mut self, key: &[u8]) -> bool {
        let Some(removed) = self.take(key) else {
            self.follow_miss(key);
            return false;
        };
        self.report_removed_lock(key, &removed);
        self.follow_removal(key, Removed { expires_at_ms: None, fields: None, ..removed })
    }

    /// Deletes a collection whose last element was removed. Fields of a hash may have expired before.
    pub(super) fn remove_emptied(&mut self, key: &[u8]) {
        let Some(mut removed) = self.take(key) else { return };
        removed.fields = None;
        if self.remove_taken(key, removed) {
            // The removal of the field was counted.
            self.shard_mut(key).1.changes -= 1;
        }
    }

    #[inline]
    fn remove_taken(&mut self, key: &[u8], removed: Removed) -> bool {
        self.report_removed_lock(key, &removed);
        self.follow_removal(key, removed)
    }

    #[inline]
    fn report_removed_lock(&self, key: &[u8], removed: &Removed) {
        if removed.is_lock {
            match self.was_over(removed) {
                true => self.report_lock(key, LockChange::Missed),
                false => self.report_freed(key, removed.entry.as_ref()),
            }
        }
    }

    /// Frees a key that is about to be written, if it has expired. That the writer found it gone is no news:
    /// it did not look for it.
    pub(in crate::keyspace) fn make_way(&mut self, key: &[u8]) {
        if self.is_expired(key)
            && let Some(removed) = self.take(key)
        {
            self.follow_removal(key, removed);
        }
    }

    /// Takes a key out of its table. Its shard remembers a lock for a while.
    #[inline]
    fn take(&mut self, key: &[u8]) -> Option<Removed> {
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        let removed = shard.remove(database, spot, key)?;
        if removed.is_lock {
            shard.side_tables_mut().gone_locks.add(spot.hash);
        }
        Some(removed)
    }

    fn was_over(&self, removed: &Removed) -> bool {
        self.loss_of(removed).is_some()
    }

    /// Why a removed key counted as absent already, if it did.
    #[inline]
    fn loss_of(&self, removed: &Removed) -> Option<Loss> {
        if removed.expires_at_ms.is_some_and(|expires_at_ms| self.is_over(expires_at_ms)) {
            return Some(Loss::Expired);
        }
        let (_, fields) = removed.fields.filter(|(latest_ms, _)| self.is_over(*latest_ms))?;
        Some(Loss::FieldsExpired(fields))
    }

    /// Notes what follows from a removal, and frees the entry. Returns whether the key had not expired.
    #[inline]
    fn follow_removal(&mut self, key: &[u8], removed: Removed) -> bool {
        let loss = self.loss_of(&removed);
        match loss {
            Some(loss) => self.follow_loss(key, loss),
            None => {
                self.shard_mut(key).1.changes += 1;
                self.follow_change(key, Extent::Whole);
            }
        }
        if let Some(entry) = removed.entry {
            self.discard(entry);
        }
        loss.is_none()
    }

    /// Makes a key that is there expire at a moment, in milliseconds since 1970, or never. A moment in the
    /// past deletes the key, with the event of a deletion.
    pub fn set_expiry(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        if expires_at_ms.is_some_and(|expires_at_ms| self.is_over(expires_at_ms)) {
            self.remove(key);
            self.event(EventClass::GENERIC, "del", key);
            return;
        }
        let name = if expires_at_ms.is_some() { "expire" } else { "persist" };
        self.event(EventClass::GENERIC, name, key);
        self.follow_change(key, Extent::Expiry);
        let renews = self.may_renew(key, None);
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        shard.changes += 1;
        if shard.table_mut(database).set_expiry(spot, key, expires_at_ms) {
            self.report_lock(key, LockChange::Expiry(expires_at_ms));
        } else if self.made.is_some() || self.grouping != Grouping::Alone {
            self.follow_made(key, expires_at_ms);
            self.follow_dated(key, expires_at_ms);
            if renews {
                self.follow_renewed(key, expires_at_ms);
            }
        }
    }

    /// Whether the transaction passed over a key because it had expired. After a command that only read, its
    /// entry is still there: the caller should [free](Self::free_expired) it.
    #[inline]
    pub fn has_seen_expired(&self) -> bool {
        self.has_seen_expired.get()
    }

    /// Frees a key that a command has found expired, or fields of it, when the command has run. Other clients
    /// hear of it as if the command had freed it when it looked for it.
    pub fn free_seen(&mut self, key: &[u8]) {
        let effects = self.count_effects();
        self.free_expired(key);
        self.put_before_miss(key, effects);
    }

    /// The same for a command that writes, which frees no fields.
    pub fn free_seen_key(&mut self, key: &[u8]) {
        if self.is_expired(key) {
            self.free_seen(key);
        }
    }

    /// Frees a key if it has expired, or some of its fields if these have.
    pub fn free_expired(&mut self, key: &[u8]) {
        if self.is_expired(key) {
            self.remove(key);
        } else {
            self.free_fields(key);
        }
    }
}
