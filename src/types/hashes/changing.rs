//! Changing a hash.

use super::{Hash, pairs_of, unpacked};
use crate::keyspace::Change;
use crate::values::Structure;
use crate::values::expiring::{self, EARLIEST, Expiring, Pair};
use crate::values::packed;
use crate::values::pairs::{self, Lengths};
use crate::values::tree::{ExpiringMap, Map};

/// The condition for a change of a field's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The field has no expiry.
    HasNone,
    /// The field has an expiry.
    HasOne,
    /// The field has an expiry, and the new one is later.
    IsLater,
    /// The new one is earlier. A field without an expiry counts as one that expires later than any moment.
    IsEarlier,
}

impl Condition {
    /// Whether it holds for a field that expires at one moment, or never, and for another moment.
    pub(crate) fn is_met(self, current_ms: Option<u64>, new_ms: u64) -> bool {
        match self {
            Condition::HasNone => current_ms.is_none(),
            Condition::HasOne => current_ms.is_some(),
            Condition::IsLater => current_ms.is_some_and(|current_ms| new_ms > current_ms),
            Condition::IsEarlier => current_ms.is_none_or(|current_ms| new_ms < current_ms),
        }
    }
}

impl Change<'_, Hash> {
    /// Sets the value of a field, which does not expire any more; returns whether the field is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_new = if let Some(map) = self.large_mut::<Map>() {
            map.insert(field, value)
        } else if self.expiring().is_some() {
            self.insert_beside_expiries(field, value, None)
        } else {
            self.insert_packed(field, value)
        };
        self.note("HSET", &[field, value]);
        is_new
    }

    /// Sets the value of a field, which expires when it did before; returns whether the field is new.
    pub fn replace(&mut self, field: &[u8], value: &[u8]) -> bool {
        let Some(at_ms) = self.view().expires_at_ms(field).flatten() else {
            return self.insert(field, value);
        };
        self.insert_beside_expiries(field, value, Some(at_ms));
        self.note("HSET", &[field, value]);
        if self.is_logged() {
            self.note_moments(&[field], at_ms);
        }
        false
    }

    /// Sets the value of a field that expires at a moment in the future. The caller
    /// [notes](Self::note_moments) the moment.
    pub fn insert_until(&mut self, field: &[u8], value: &[u8], at_ms: u64) {
        self.allow_expiries();
        self.insert_beside_expiries(field, value, Some(at_ms));
        self.note("HSET", &[field, value]);
    }

    /// Sets when a field that is there expires: at a moment in the future, or never. The caller notes it when
    /// all fields are done: [`note_moments`](Self::note_moments), [`note_persisted`](Self::note_persisted).
    pub fn set_moment(&mut self, field: &[u8], at_ms: Option<u64>) {
        self.allow_expiries();
        if let Some(map) = self.expiring_mut() {
            let value = map.get(field, 0).map(|(value, _)| value.to_vec());
            value.into_iter().for_each(|value| _ = map.insert(field, &value, at_ms));
        } else if let Some(value) = self.pair(field).map(|pair| pair.value.to_vec()) {
            self.write_pair(field, &value, at_ms);
        }
    }

    /// Notes that fields expire at a moment.
    pub fn note_moments(&mut self, fields: &[&[u8]], at_ms: u64) {
        if fields.is_empty() {
            return;
        }
        self.count_more(fields.len() - 1);
        let (mut moment, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
        let count = count.format(fields.len()).as_bytes();
        let head = [moment.format(at_ms).as_bytes(), b"FIELDS", count];
        self.note_alone("HPEXPIREAT", &[&head, fields].concat());
    }

    /// Notes that fields never expire any more.
    pub fn note_persisted(&mut self, fields: &[&[u8]]) {
        self.normalize_expiries();
        if fields.is_empty() {
            return;
        }
        self.count_more(fields.len() - 1);
        let mut count = itoa::Buffer::new();
        let head = [b"FIELDS", count.format(fields.len()).as_bytes()];
        self.note_alone("HPERSIST", &[&head, fields].concat());
    }

    fn insert_packed(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (limit, packed) = (self.limit(), self.packed());
        let found = pairs::find(packed, field).map(|pair| (pair.place, pair.value.len()));
        let end = packed.len();
        // Also where a field gets another value: the limit may have been lowered.
        let fields = pairs::count(packed) + usize::from(found.is_none());
        let before = found.as_ref().map_or(end + field.len(), |(_, bytes)| end - bytes);
        if !limit.allows(fields, field.len().max(value.len()), before + value.len()) {
            self.unpack();
            return self.large_mut::<Map>().is_some_and(|map| map.insert(field, value));
        }
        let lengths = Lengths::of(field, value);
        match found {
            // The lengths stay.
            Some((place, bytes)) if bytes == value.len() => {
                self.splice(place.end - bytes..place.end, &[value], 0)
            }
            Some((place, _)) => self.splice(place, &lengths.parts(field, value), 0),
            None => {
                self.splice_pairs(end..end, &lengths.parts(field, value), fields);
                return true;
            }
        }
        false
    }

    /// Sets the value and the expiry of a field in a hash of which some fields expire. Returns whether the
    /// field is new. A field that has expired is.
    fn insert_beside_expiries(&mut self, field: &[u8], value: &[u8], at_ms: Option<u64>) -> bool {
        let is_new = self.view().get(field).is_none();
        if is_new && self.expiring().is_some_and(|fields| fields.get(field, 0).is_some()) {
            self.note_expired_field();
        }
        let limit = self.limit();
        if self.expiring_mut().is_none() {
            let fields = packed::count(self.packed()) + usize::from(self.pair(field).is_none());
            let total = self.packed().len() + field.len() + value.len();
            if limit.allows(fields, field.len().max(value.len()), total) {
                if let Some(expired) = self.pair(field).filter(|_| is_new).map(|pair| pair.place) {
                    // A new field is the last one.
                    self.splice(expired, &[], -1);
                }
                self.write_pair(field, value, at_ms);
            } else {
                self.unpack();
            }
        }
        if let Some(map) = self.expiring_mut() {
            map.insert(field, value, at_ms);
        }
        self.normalize_expiries();
        is_new
    }

    /// The pair of a field in a packed hash of which some fields expire.
    fn pair(&self, field: &[u8]) -> Option<Pair<'_>> {
        expiring::pairs(self.packed()).find(|pair| pair.name == field)
    }

    /// Writes a pair to such a hash. As in Redis, those that expire stand in front, the earliest first, and a
    /// field whose moment changes moves.
    fn write_pair(&mut self, field: &[u8], value: &[u8], at_ms: Option<u64>) {
        let mut pair = Vec::with_capacity(field.len() + value.len() + 16);
        expiring::push(&mut pair, field, value, at_ms);
        match self.pair(field).map(|pair| (pair.place, pair.at_ms)) {
            Some((place, before_ms)) if before_ms == at_ms => return self.splice(place, &[&pair], 0),
            Some((place, _)) => self.splice(place, &[], -1),
            None => {}
        }
        let is_later =
            |other: &Pair<'_>| at_ms.is_some_and(|at_ms| other.at_ms.is_none_or(|other_ms| other_ms > at_ms));
        let behind = expiring::pairs(self.packed()).find(is_later).map(|pair| pair.place.start);
        let at = behind.unwrap_or(self.packed().len());
        self.splice(at..at, &[&pair], 1);
        self.note_earliest();
    }

    /// Keeps the first moment of a packed hash in front of its fields.
    fn note_earliest(&mut self) {
        let moments = expiring::pairs(self.packed()).filter_map(|pair| pair.at_ms);
        let earliest_ms = moments.min().unwrap_or(u64::MAX);
        self.splice(EARLIEST, &[&earliest_ms.to_le_bytes()], 0);
    }

    /// Removes a field; returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let was_there = if let Some(map) = self.large_mut::<Map>() {
            map.remove(field)
        } else if self.expiring().is_some() {
            self.remove_beside_expiries(field)
        } else if let Some(place) = pairs::find(self.packed(), field).map(|pair| pair.place) {
            let fields = pairs::count(self.packed()) - 1;
            self.splice_pairs(place, &[], fields);
            true
        } else {
            false
        };
        if was_there {
            self.note("HDEL", &[field]);
        }
        was_there
    }

    fn remove_beside_expiries(&mut self, field: &[u8]) -> bool {
        // A field that has expired is left to the sweep.
        if self.view().get(field).is_none() {
            return false;
        }
        if let Some(map) = self.expiring_mut() {
            map.remove(field);
        } else if let Some(place) = self.pair(field).map(|pair| pair.place) {
            self.splice(place, &[], -1);
            self.note_earliest();
        }
        self.normalize_expiries();
        true
    }

    /// Gives the hash the form in which fields may expire.
    fn allow_expiries(&mut self) {
        if self.expiring().is_some() {
            return;
        }
        if self.large_mut::<Map>().is_some() {
            return self.begin_expiries();
        }
        let packed = expiring::pack(pairs_of(self.packed()).map(|(field, value)| (field, value, None)));
        self.replace_packed(&packed);
    }

    /// Turns a packed hash into a map.
    #[cold]
    fn unpack(&mut self) {
        let structure = match self.expiring() {
            Some(fields) => Structure::Expiring(Box::new(unpacked_expiring(fields))),
            None => Structure::Map(unpacked(self.packed())),
        };
        self.enlarge(structure);
    }
}

/// The map of a packed hash of which some fields expire.
pub(super) fn unpacked_expiring(fields: Expiring<'_>) -> ExpiringMap {
    let mut map = ExpiringMap::of(Structure::map());
    for (field, value, at_ms) in fields.iter(0) {
        map.insert(field, value, at_ms);
    }
    map
}
