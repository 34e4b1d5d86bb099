//! What the commands of LOCK do to a key: a string with the token of its holder, an expiry, and a fencing
//! number that no other holder of any lock has.
//!
//! The number is drawn while the key's shard is held, in the step that grants the lock. So it is larger than
//! those of all earlier holders of the key. It stays with the token as long as the token is not written:
//! SET, APPEND and the like take it away. A lock that comes under another name, or from a DUMP, gets a number
//! of its own there, which is larger than the one that it had.

use super::Transaction;
use crate::clock;
use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::following::changes::Extent;
use crate::keyspace::transaction::following::news::LockChange;

impl Transaction<'_> {
    /// Grants a lock to a token, if the key is absent; returns the fencing number. The expiry, in
    /// milliseconds since 1970, must be in the future. If another client holds it, `otherwise` is what the
    /// lens hears of it.
    #[inline]
    pub fn acquire(
        &mut self,
        key: &[u8],
        token: &[u8],
        expires_at_ms: u64,
        otherwise: Option<LockChange>,
    ) -> Option<u64> {
        if !self.finds_free(key, otherwise) {
            return None;
        }
        let fence = self.next_fence(self.database, key);
        self.grant(key, token, expires_at_ms, fence);
        Some(fence)
    }

    /// Whether a lock is free. If another client holds it, `otherwise` is what the lens hears of it.
    #[inline(always)]
    pub fn finds_free(&mut self, key: &[u8], otherwise: Option<LockChange>) -> bool {
        match self.entry(key) {
            None => {}
            Some(entry) if self.has_expired(entry) => self.make_way(key),
            Some(entry) => {
                self.note_use(entry);
                if let Some(otherwise) = otherwise.filter(|_| entry.is_lock()) {
                    self.report_lock(key, otherwise);
                }
                return false;
            }
        }
        true
    }

    /// Grants a free lock to a token, with a fencing number that was [drawn](Self::fence_for_all) for it.
    #[inline(always)]
    pub fn grant(&mut self, key: &[u8], token: &[u8], expires_at_ms: u64, fence: u64) {
        let entry = Entry::fenced(key, token, fence, Some(expires_at_ms));
        entry.set_stamp(self.keyspace.access.first_now());
        entry.set_lock(!self.is_replay);
        self.insert_entry(key, entry);
        self.follow_taken(key, token);
    }

    /// Draws one fencing number for several locks: it is larger than those of all earlier holders of each.
    /// The caller holds all of them. `None` if there is no key.
    pub fn fence_for_all(&self, keys: &[&[u8]]) -> Option<u64> {
        let (first, others) = keys.split_first()?;
        if self.wanted.records_spans() {
            others.iter().for_each(|key| self.record_fenced(key));
        }
        Some(self.next_fence(self.database, first))
    }

    /// Whether a client in line takes a lock that is free, so that the caller must leave it to that one. It
    /// is served when the caller's command has ended. The lock is free if its holder's time has just passed.
    #[inline]
    pub fn leaves_to_line(&mut self, key: &[u8]) -> bool {
        self.wanted.blocked() && self.is_left_to_line(key)
    }

    fn is_left_to_line(&mut self, key: &[u8]) -> bool {
        if !self.has_line(key) {
            return false;
        }
        self.make_way(key);
        let is_left = self.entry(key).is_none() && self.has_taker(key);
        if is_left {
            self.note_ready(self.database, key);
        }
        is_left
    }

    /// Notes that a client was granted a lock for which others may stand in line. They lack another one.
    #[inline]
    pub fn passes_line(&self, key: &[u8]) {
        if self.wanted.blocked() {
            self.note_overtaking(key, None);
        }
    }

    /// Whether the key is absent, for a client that waits until it is.
    pub fn is_free(&self, key: &[u8]) -> bool {
        self.unseen(key).is_none()
    }

    /// Whether a key has a value of this kind. The lens hears of no such look.
    pub fn is_of_kind(&self, key: &[u8], kind: u8) -> bool {
        self.unseen(key).is_some_and(|entry| entry.kind() == kind)
    }

    /// Whether clients wait in line for a lock, so that the caller must leave to them what several may hold.
    /// They are served when the caller's command has ended, if they can be.
    pub fn leaves_permit_to_line(&mut self, key: &[u8]) -> bool {
        if !self.wanted.blocked() || !self.has_line(key) {
            return false;
        }
        self.make_way(key);
        let is_left = self.has_taker(key);
        if is_left {
            self.note_ready(self.database, key);
        }
        is_left
    }

    /// Reports that a client was refused a lock, if the key is one.
    pub fn refuse_lock(&self, key: &[u8]) {
        if self.is_lock(key) {
            self.report_lock(key, LockChange::Refused);
        }
    }

    /// A new number for permits of these locks, which several clients hold. No key keeps it, so the log has
    /// it as the last one that was given. `None` if there is no key.
    pub fn number_permits(&self, keys: &[&[u8]]) -> Option<u64> {
        let number = self.fence_for_all(keys)?;
        self.keyspace.followers.journal.note_fencing(number);
        Some(number)
    }

    /// Whether the keys are those of a store, in a keyspace that the request has borrowed.
    pub fn is_in_store(&self) -> bool {
        self.wanted.records_spans()
    }

    /// The fencing number of a key that is there, if it has one.
    pub fn fence_of(&self, key: &[u8]) -> Option<u64> {
        let fence = self.unseen(key)?.fence()?;
        if fence == Self::FENCE_UNKNOWN {
            self.record_wanted_fence(key);
        }
        Some(fence)
    }

    /// The fencing number of a key that is there, if it has one; 0 if only the store knows it.
    pub fn fence_in_row(&self, key: &[u8]) -> Option<u64> {
        self.unseen(key)?.fence()
    }

    /// Gives a new fencing number to a short string that is there, and returns it.
    pub fn give_fence(&mut self, key: &[u8]) -> u64 {
        let fence = self.next_fence(self.database, key);
        self.set_fence(key, fence);
        self.follow_change(key, Extent::Whole);
        fence
    }

    /// Gives a new fencing number to a short string that comes from elsewhere, where it had this number.
    pub fn give_fence_beyond(&mut self, key: &[u8], number: u64) {
        match self.wanted.records_spans() {
            true => self.record_former_fence(number),
            false => self.keyspace.fencing.go_beyond(number),
        }
        self.give_fence(key);
    }

    /// Restores the fencing number of a short string that is there.
    pub fn set_fence(&mut self, key: &[u8], fence: u64) {
        let database = self.database;
        let (spot, shard) = self.shard_mut(key);
        if let Some(entry) = shard.entry_mut(database, spot, key) {
            entry.set_fence(fence);
        }
    }

    /// In a borrowed keyspace: the number of a lock that the store knows, and the request does not know yet.
    pub const FENCE_UNKNOWN: u64 = 0;

    /// A fencing number that was never given, for a key. In a borrowed keyspace it comes from the store.
    pub(super) fn next_fence(&self, database: usize, key: &[u8]) -> u64 {
        match self.wanted.records_spans() {
            true => self.take_offered_fence(database, key).unwrap_or(Self::FENCE_UNKNOWN),
            false => self.keyspace.fencing.next(self.system_ms()),
        }
    }

    /// The system's time in milliseconds since 1970, whether a client has turned the clock or not.
    fn system_ms(&self) -> u64 {
        if self.keyspace.clock.is_turned() { clock::system_ms() } else { self.now_ms() }
    }
}
