//! Hashes: values by fields.
//!
//! A small hash is packed: the strings of its fields and values in turn, in the order in which they were
//! written. A large hash is a map.

use std::io;
use std::ops::Range;

use crate::dump::Compressor;
use crate::dump::collections::{self, HASH, HASH_LISTPACK, HASH_TYPES};
use crate::dump::packed::writing::ListpackWriter;
use crate::dump::strings::{DecodeError, Source, write_length, write_string};
use crate::events::EventClass;
use crate::keyspace::{Change, records};
use crate::values::packed::{self, COUNT_MAX, Length, Packer, Strings};
use crate::values::tree::Map;
use crate::values::{Content, HASH_KIND, Limit, Sink, Structure, Type, TypeFacts};

/// The type of hashes.
#[derive(Debug)]
pub enum Hash {}

impl Type for Hash {
    const FACTS: &'static TypeFacts = &FACTS;
    const EMPTY: &'static [u8] = packed::EMPTY;
    type View<'v> = HashView<'v>;

    #[inline(always)]
    fn view(content: Content<'_>) -> HashView<'_> {
        match content.map() {
            Some(map) => HashView::Large(map),
            None => HashView::Packed(content.bytes().unwrap_or_default()),
        }
    }
}

/// The facts about hashes.
pub const FACTS: TypeFacts = TypeFacts {
    name: "hash",
    kind: HASH_KIND,
    events: EventClass::HASH,
    encoding: |content, _, _| if content.map().is_some() { "hashtable" } else { "listpack" },
    len: |content| Hash::view(content).len(),
    each: |content, visit| Hash::view(content).iter().for_each(|(field, value)| visit(&[field, value])),
    is_ordered: false,
    log,
    rdb_types: HASH_TYPES,
    rdb_type,
    save,
    load,
};

/// A hash that is read.
#[derive(Clone, Copy, Debug)]
pub enum HashView<'v> {
    /// A small hash.
    Packed(&'v [u8]),
    /// A large hash.
    Large(&'v Map),
}

impl<'v> HashView<'v> {
    /// The number of fields.
    pub fn len(self) -> usize {
        match self {
            HashView::Packed(packed) => packed::count(packed),
            HashView::Large(map) => map.len(),
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
            HashView::Packed(packed) => find(packed, field).map(|found| found.value),
            HashView::Large(map) => map.get(field),
        }
    }

    /// Fields with their values.
    pub fn iter(self) -> impl Iterator<Item = (&'v [u8], &'v [u8])> {
        let (small, large) = match self {
            HashView::Packed(packed) => (Some(pairs(packed)), None),
            HashView::Large(map) => (None, Some(map.iter())),
        };
        small.into_iter().flatten().chain(large.into_iter().flatten())
    }

    /// The field at a position below the number of fields, with its value. Positions are those of
    /// [`iter`](Self::iter).
    pub fn at(self, position: usize) -> Option<(&'v [u8], &'v [u8])> {
        match self {
            HashView::Packed(packed) => pairs(packed).nth(position),
            HashView::Large(map) => map.at(position),
        }
    }
}

/// A field that was found in a packed hash.
struct Found<'v> {
    value: &'v [u8],
    /// The bytes of the field and of its value, with their lengths.
    pair: Range<usize>,
    /// The bytes of the value with its length.
    place: Range<usize>,
}

#[inline]
fn find<'v>(packed: &'v [u8], field: &[u8]) -> Option<Found<'v>> {
    let mut strings = Strings::of(packed);
    loop {
        let start = strings.place();
        let is_wanted = strings.next()? == field;
        let middle = strings.place();
        let value = strings.next()?;
        if is_wanted {
            let end = strings.place();
            return Some(Found { value, pair: start..end, place: middle..end });
        }
    }
}

fn pairs(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut strings = Strings::of(packed);
    std::iter::from_fn(move || Some((strings.next()?, strings.next()?)))
}

impl Change<'_, Hash> {
    /// Sets the value of a field; returns whether the field is new.
    pub fn insert(&mut self, field: &[u8], value: &[u8]) -> bool {
        let is_new = match self.map_mut() {
            Some(map) => map.insert(field, value),
            None => self.insert_packed(field, value),
        };
        self.note("HSET", &[field, value]);
        is_new
    }

    fn insert_packed(&mut self, field: &[u8], value: &[u8]) -> bool {
        let (limit, packed) = (self.limit(), self.packed());
        let found = find(packed, field).map(|found| found.place);
        let end = packed.len();
        let is_short = field.len() <= limit.bytes && value.len() <= limit.bytes;
        // Also where a field gets another value: the limit may have been lowered.
        let fields = packed::count(packed) + usize::from(found.is_none());
        if !is_short || fields > limit.entries.min(COUNT_MAX) {
            self.unpack();
            return self.map_mut().is_some_and(|map| map.insert(field, value));
        }
        let (field_length, value_length) = (Length::of(field), Length::of(value));
        match found {
            Some(place) => {
                self.splice(place, &[value_length.bytes(), value], 0);
                false
            }
            None => {
                self.splice(end..end, &[field_length.bytes(), field, value_length.bytes(), value], 1);
                true
            }
        }
    }

    /// Removes a field; returns whether it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        let was_there = match self.map_mut() {
            Some(map) => map.remove(field),
            None => match find(self.packed(), field) {
                Some(found) => {
                    self.splice(found.pair, &[], -1);
                    true
                }
                None => false,
            },
        };
        if was_there {
            self.note("HDEL", &[field]);
        }
        was_there
    }

    /// Turns a packed hash into a map.
    #[cold]
    fn unpack(&mut self) {
        let map = unpacked(self.packed());
        self.enlarge(Structure::Map(map));
    }
}

fn log(sink: &mut dyn Sink, key: &[u8], content: Content<'_>, expires_at_ms: Option<u64>) -> io::Result<()> {
    let elements = Hash::view(content).iter().map(|(field, value)| [field, value]);
    records::collection(sink, key, "HSET", elements, expires_at_ms)
}

fn rdb_type(content: Content<'_>) -> u8 {
    if content.map().is_some() { HASH } else { HASH_LISTPACK }
}

fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    mut compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    let hash = Hash::view(content);
    let HashView::Large(map) = hash else {
        let mut listpack = ListpackWriter::default();
        hash.iter().flat_map(|(field, value)| [field, value]).for_each(|text| listpack.push(text));
        write_string(sink.buffer(), &listpack.finish(), compressor);
        return sink.pass_on();
    };
    write_length(sink.buffer(), map.len() as u64);
    for (field, value) in map.iter() {
        write_string(sink.buffer(), field, compressor.as_deref_mut());
        write_string(sink.buffer(), value, compressor.as_deref_mut());
        sink.pass_on()?;
    }
    Ok(())
}

fn load(
    rdb_type: u8,
    input: &mut dyn Source,
    limit: Limit,
    value: &mut Vec<u8>,
) -> Result<Option<Structure>, DecodeError> {
    let mut packer = Packer::begin(value);
    let mut large: Option<Map> = None;
    collections::hash(rdb_type, input, &mut |field, value| {
        let is_short = field.len() <= limit.bytes && value.len() <= limit.bytes;
        if large.is_none() && !(is_short && packer.count() < limit.entries.min(COUNT_MAX)) {
            large = Some(unpacked(packer.packed()));
        }
        let is_new = match &mut large {
            Some(map) => map.insert(field, value),
            None if find(packer.packed(), field).is_some() => false,
            None => {
                packer.string(field);
                packer.string(value);
                packer.count_one();
                true
            }
        };
        if is_new { Ok(()) } else { Err(DecodeError::Invalid("a hash has a field twice")) }
    })?;
    Ok(large.map(Structure::Map))
}

/// The map of a packed hash.
fn unpacked(packed: &[u8]) -> Map {
    let mut map = Structure::map();
    for (field, value) in pairs(packed) {
        map.insert(field, value);
    }
    map
}
