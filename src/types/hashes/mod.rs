//! Hashes: values by fields.
//!
//! A small hash is packed as [`pairs`] of fields and values, in the order in which they were written. A large
//! hash is a map. If some of its fields expire, either form has their moments, too
//! ([`expiring`](crate::values::expiring)); a hash that has lost its last moment has the form without them.

mod changing;
mod stored;
#[cfg(test)]
mod tests;

use crate::dump::collections::HASH_TYPES;
use crate::events::EventClass;
use crate::values::expiring::Expiring;
use crate::values::pairs::{self, Pairs};
use crate::values::tree::Map;
use crate::values::{Content, HASH_KIND, Limit, Structure, Type, TypeFacts};

pub(crate) use changing::Condition;
use stored::{load, log, rdb_type, save};

/// The type of hashes.
#[derive(Debug)]
pub enum Hash {}

impl Type for Hash {
    const FACTS: &'static TypeFacts = &FACTS;
    const EMPTY: &'static [u8] = pairs::EMPTY;
    type View<'v> = HashView<'v>;

    #[inline(always)]
    fn view(content: Content<'_>) -> HashView<'_> {
        match content {
            Content::Bytes(packed) => HashView::Packed(packed),
            Content::Large(Structure::Map(map)) => HashView::Large(map),
            Content::Large(Structure::Expiring(map)) => HashView::Expiring(Expiring::Large(map), 0),
            Content::Large(_) => HashView::Packed(pairs::EMPTY),
            Content::Expiring(fields, now_ms) => HashView::Expiring(fields, now_ms),
        }
    }
}

/// The facts about hashes.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "hash",
    kind: HASH_KIND,
    events: EventClass::HASH,
    limit: |of| Limit::by(of, "hash-max-listpack-entries", "hash-max-listpack-value"),
    encoding: |content, _, _| encoding(content),
    len: |content| Hash::view(content).len(),
    each: |content, visit| Hash::view(content).iter().for_each(|(field, value)| visit(&[field, value])),
    is_ordered: false,
    log,
    rdb_types: HASH_TYPES,
    rdb_type,
    save,
    load,
};

/// The encoding for OBJECT. Redis has a name for small hashes of which some fields expire. Valkey has none.
fn encoding(content: Content<'_>) -> &'static str {
    match Hash::view(content) {
        HashView::Packed(_) => "listpack",
        HashView::Expiring(Expiring::Packed(_), _) => "listpackex",
        HashView::Large(_) | HashView::Expiring(Expiring::Large(_), _) => "hashtable",
    }
}

/// A hash that is read.
#[derive(Clone, Copy, Debug)]
pub enum HashView<'v> {
    /// A small hash.
    Packed(&'v [u8]),
    /// A large hash.
    Large(&'v Map),
    /// A hash of which some fields expire, as it is at a moment.
    Expiring(Expiring<'v>, u64),
}

impl<'v> HashView<'v> {
    /// The number of fields.
    pub fn len(self) -> usize {
        match self {
            HashView::Packed(packed) => pairs::count(packed),
            HashView::Large(map) => map.len(),
            HashView::Expiring(fields, now_ms) => fields.len() - fields.expired(now_ms),
        }
    }

    /// Whether there are no fields.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value of a field.
    #[inline]
    pub fn get(self, field: &[u8]) -> Option<&'v [u8]> {
        match self {
            HashView::Packed(packed) => pairs::find(packed, field).map(|pair| pair.value),
            HashView::Large(map) => map.get(field),
            HashView::Expiring(fields, now_ms) => fields.get(field, now_ms).map(|(value, _)| value),
        }
    }

    /// When a field expires: `None` if it is absent, `Some(None)` if it never expires.
    pub fn expires_at_ms(self, field: &[u8]) -> Option<Option<u64>> {
        match self {
            HashView::Expiring(fields, now_ms) => fields.get(field, now_ms).map(|(_, at_ms)| at_ms),
            _ => self.get(field).map(|_| None),
        }
    }

    /// Whether the hash is small, so that going through it is fast.
    pub fn is_packed(self) -> bool {
        matches!(self, HashView::Packed(_) | HashView::Expiring(Expiring::Packed(_), _))
    }

    /// Fields with their values, and when they expire.
    pub fn with_expiries(self) -> impl Iterator<Item = (&'v [u8], &'v [u8], Option<u64>)> {
        let (some, none) = match self {
            HashView::Expiring(fields, now_ms) => (Some(fields.iter(now_ms)), None),
            _ => (None, Some(self.iter().map(|(field, value)| (field, value, None)))),
        };
        some.into_iter().flatten().chain(none.into_iter().flatten())
    }

    /// Fields with their values.
    pub fn iter(self) -> impl Iterator<Item = (&'v [u8], &'v [u8])> {
        let (small, large, expiring) = match self {
            HashView::Packed(packed) => (Some(pairs_of(packed)), None, None),
            HashView::Large(map) => (None, Some(map.iter()), None),
            HashView::Expiring(fields, now_ms) => (None, None, Some(fields.iter(now_ms))),
        };
        let expiring = expiring.into_iter().flatten().map(|(field, value, _)| (field, value));
        small.into_iter().flatten().chain(large.into_iter().flatten()).chain(expiring)
    }

    /// The field at a position below the number of fields, with its value. Positions are those of
    /// [`iter`](Self::iter).
    pub fn at(self, position: usize) -> Option<(&'v [u8], &'v [u8])> {
        match self {
            HashView::Packed(packed) => pairs_of(packed).nth(position),
            HashView::Large(map) => map.at(position),
            HashView::Expiring(fields, now_ms) => fields.at(position, now_ms),
        }
    }
}

/// The fields of a packed hash with their values.
fn pairs_of(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    Pairs::of(packed).map(|pair| (pair.name, pair.value))
}

/// The map of a packed hash.
fn unpacked(packed: &[u8]) -> Map {
    let mut map = Structure::map();
    for pair in Pairs::of(packed) {
        map.insert(pair.name, pair.value);
    }
    map
}
