//! Hashes of which some fields expire: the forms in which an entry keeps them, and freeing what has expired.
//!
//! A field that has expired counts as absent from its very millisecond on: what a transaction shows of a hash
//! is as of the transaction's moment. The field itself is freed later: when a command has come across it, or
//! by the sweep ([`expiry`](crate::keyspace::expiry)), some at a time. A hash whose last field has expired
//! counts as absent as a whole, and is freed as a whole.

use crate::keyspace::store::entry::Entry;
use crate::keyspace::transaction::Transaction;
use crate::keyspace::transaction::change::Change;
use crate::keyspace::transaction::following::losses::Loss;
use crate::keyspace::transaction::following::records::Recorder;
use crate::values::expiring::{self, Expiring};
use crate::values::pairs;
use crate::values::tree::{ExpiringMap, Remains};
use crate::values::{Structure, Type};

/// Expired fields that are freed at a time, under the lock of the hash: that takes about half a millisecond.
const FIELDS_AT_A_TIME: usize = 200;

/// The forms of a hash.
impl<T: Type> Change<'_, T> {
    /// The fields of a hash of which some expire.
    #[inline]
    pub fn expiring(&self) -> Option<Expiring<'_>> {
        self.entry.expiring()
    }

    /// The map of a large hash of which some fields expire.
    pub fn expiring_mut(&mut self) -> Option<&mut ExpiringMap> {
        expiring_map(self.entry)
    }

    /// Replaces a packed hash by another form of the same fields: a packed one in which some fields expire.
    pub fn replace_packed(&mut self, packed: &[u8]) {
        replace_packed(self.entry, packed, true);
    }

    /// Replaces a large hash by a map of the same fields, of which some may expire.
    pub fn begin_expiries(&mut self) {
        begin_expiries(self.entry);
    }

    /// Gives the hash the form without moments if no field expires any more. A change of fields ends with it.
    pub fn normalize_expiries(&mut self) {
        normalize(self.entry);
    }
}

fn expiring_map(entry: &mut Entry) -> Option<&mut ExpiringMap> {
    match entry.structure_mut() {
        Some(Structure::Expiring(map)) => Some(map),
        _ => None,
    }
}

fn replace_packed(entry: &mut Entry, packed: &[u8], has_field_expiries: bool) {
    let before = entry.packed().map_or(0, <[u8]>::len);
    entry.splice(0..before, &[packed]);
    entry.set_field_expiries(has_field_expiries);
}

fn begin_expiries(entry: &mut Entry) {
    if let Some(structure) = entry.structure_mut()
        && let Structure::Map(map) = structure
    {
        let map = std::mem::replace(map, Structure::map());
        *structure = Structure::Expiring(Box::new(ExpiringMap::of(map)));
        entry.set_field_expiries(true);
    }
}

fn normalize(entry: &mut Entry) {
    let Some(fields) = entry.expiring() else { return };
    if fields.earliest_ms() != u64::MAX {
        return;
    }
    if let Expiring::Packed(bytes) = fields {
        let mut plain = pairs::EMPTY.to_vec();
        expiring::pairs(bytes).for_each(|pair| pairs::push(&mut plain, pair.name, pair.value));
        debug_assert_eq!(fields.len(), pairs::count(&plain));
        return replace_packed(entry, &plain, false);
    }
    if let Some(structure) = entry.structure_mut()
        && let Structure::Expiring(map) = structure
    {
        let map = std::mem::replace(map, Box::new(ExpiringMap::of(Structure::map())));
        *structure = match map.into_lasting() {
            Ok(map) => Structure::Map(map),
            Err(map) => return *structure = Structure::Expiring(map),
        };
        entry.set_field_expiries(false);
    }
}

/// Freeing fields that have expired.
impl Transaction<'_> {
    /// Whether fields of a hash have expired since a moment and are not freed yet.
    pub(in crate::keyspace) fn has_lost_fields_since(&self, key: &[u8], since_ms: u64) -> bool {
        let fields = self.entry(key).and_then(Entry::expiring);
        fields.is_some_and(|fields| fields.expired(self.field_moment_ms()) > fields.expired(since_ms))
    }

    /// Frees some fields of a hash that have expired, and reports it. Returns whether there are more.
    pub(in crate::keyspace) fn free_fields(&mut self, key: &[u8]) -> FreedFields {
        let is_due =
            |entry: &Entry| entry.next_field_expiry_ms().is_some_and(|next_ms| self.is_over(next_ms));
        if !self.entry(key).is_some_and(|entry| is_due(entry) && !self.has_expired(entry)) {
            return FreedFields::default();
        }
        let (now_ms, database) = (self.now_ms(), self.database);
        let mut steps = self.wanted.journal().then(|| Recorder::of(key));
        let (spot, shard) = self.shard_mut(key);
        let table = shard.table_mut(database);
        let Some(entry) = table.entry_mut(spot, key) else { return FreedFields::default() };
        let mut count = 0;
        let (remains, freed_bytes) = remove_expired(entry, now_ms, |name| {
            count += 1;
            if let Some(steps) = &mut steps {
                steps.add("HDEL", &[name]);
            }
        });
        normalize(entry);
        let (next_ms, is_lock, bytes) = (entry.next_field_expiry_ms(), entry.is_lock(), entry.bytes_in_all());
        table.count_field_expiries(spot.hash, true, next_ms);
        self.leave_remains(remains, freed_bytes);
        if let Some((records, count)) = steps.map(Recorder::finish) {
            self.note_records(key, records, count, bytes);
        }
        self.follow_loss(key, Loss::SomeFieldsExpired(count));
        if is_lock {
            self.follow_depth(key);
        }
        FreedFields { count, has_more: next_ms.is_some_and(|next_ms| next_ms <= now_ms) }
    }
}

/// What was freed of the expired fields of a hash.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::keyspace) struct FreedFields {
    /// How many fields.
    pub(in crate::keyspace) count: usize,
    /// Whether more have expired.
    pub(in crate::keyspace) has_more: bool,
}

/// Removes some expired fields, and passes their names to `gone`. Returns nodes of which nothing is left, and
/// their bytes.
fn remove_expired(entry: &mut Entry, now_ms: u64, mut gone: impl FnMut(&[u8])) -> (Remains, usize) {
    if let Some(map) = expiring_map(entry) {
        let before = map.bytes();
        let remains = map.remove_expired(now_ms, FIELDS_AT_A_TIME, gone);
        return (remains, before - map.bytes());
    }
    if let Some(fields @ Expiring::Packed(bytes)) = entry.expiring() {
        let has_expired = |pair: &expiring::Pair<'_>| pair.at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        expiring::pairs(bytes).filter(has_expired).for_each(|pair| gone(pair.name));
        let left = expiring::pack(fields.iter(now_ms));
        replace_packed(entry, &left, true);
    }
    (Remains::default(), 0)
}
