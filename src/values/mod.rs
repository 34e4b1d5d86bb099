//! Values in the form in which the keyspace holds them, and the facts of their types. This module names no
//! type: the types are in the module `types`.
//!
//! A string is its bytes. A small collection is [`packed`] into bytes, so it lies in its entry and is copied
//! as a string is. A large one is a [`Structure`], which its entry owns, and so is a long string.

pub(crate) mod expiring;
pub(crate) mod packed;
pub(crate) mod pairs;
pub(crate) mod tree;

mod kept;
mod limits;
mod long_text;
mod structure;

use std::fmt;
use std::io;

use crate::dump::Compressor;
use crate::dump::strings::{DecodeError, Source};
use crate::events::EventClass;
use crate::values::expiring::Expiring;
use crate::values::tree::{ExpiringMap, Ledger, Map, Ranking, Sequence};

pub(crate) use kept::Kept;
pub use limits::Limits;
pub(crate) use limits::{Limit, PACKED_BYTES_MAX, size};
pub(crate) use long_text::{LONG_TEXT_BYTES, LongText};
pub(crate) use structure::Shape;

structure::shapes! {
    /// Strings by name: a hash, or a set.
    Map(Map): Map, Map::len, Map::bytes;
    /// Records in an order: a list.
    Sequence(Sequence): Sequence, Sequence::len, Sequence::bytes;
    /// Members in the order of their scores: a sorted set.
    Ranking(Ranking): Ranking, Ranking::len, Ranking::bytes;
    /// A long string.
    Text(LongText): LongText, |_: &LongText| 1, LongText::bytes;
    /// Entries in the order of their IDs: a stream.
    Ledger(Box<Ledger>): Ledger, Ledger::len, Ledger::bytes;
    /// Strings by name, of which some expire: a hash.
    Expiring(Box<ExpiringMap>): ExpiringMap, ExpiringMap::len, expiring_bytes;
}

/// Bytes of a map with its own, since the value owns it by a pointer.
fn expiring_bytes(map: &ExpiringMap) -> usize {
    size_of::<ExpiringMap>() + map.bytes()
}

/// The facts about a type, for modules that handle values of any type.
pub struct TypeFacts {
    /// The name for TYPE and SCAN TYPE.
    pub name: &'static str,
    /// Redis's number for the type, as DEBUG DIGEST needs it.
    pub kind: u8,
    /// The class of the events of its commands.
    pub events: EventClass,
    /// Returns the name of the encoding that Redis would use for a value, for OBJECT ENCODING. The limit is
    /// the one of the type.
    pub encoding: fn(Content<'_>, Encoding, Limit) -> &'static str,
    /// Up to which size a value is packed, by the values of parameters.
    pub limit: LimitOf,
    /// Returns the number of elements; 1 for a value that stays without elements, too. With 0, a change
    /// removes the key.
    pub len: fn(Content<'_>) -> usize,
    /// Calls a function with the strings of each element.
    pub each: EachElement,
    /// Whether the elements have an order that is part of the value.
    pub is_ordered: bool,
    /// Appends the requests that write a key, for the log.
    pub log: LogKey,
    /// The types of the RDB format for such a value, in all versions of the format.
    pub rdb_types: &'static [u8],
    /// Returns the type of the RDB format in which Keyfast writes a value.
    pub rdb_type: fn(Content<'_>) -> u8,
    /// Appends a value in that format. It compresses the strings if it gets a compressor.
    pub save: SaveValue,
    /// Reads a value of one of `rdb_types`: into an empty buffer, or as a structure.
    pub load: LoadValue,
}

/// Returns up to which size a value is packed. Its argument returns the values of parameters by their names.
pub(crate) type LimitOf = fn(&dyn Fn(&str) -> i64) -> Limit;

/// Appends the requests that write a key: one for a string, any number for other types. The arguments are the
/// key's name, its value, and its expiry in milliseconds since 1970.
pub(crate) type LogKey = fn(&mut dyn Sink, &[u8], Content<'_>, Option<u64>) -> io::Result<()>;

/// Calls a function with the strings of each element: one for a string, a list and a set, two for a hash and
/// a sorted set, and more for a stream.
pub(crate) type EachElement = fn(Content<'_>, &mut dyn FnMut(&[&[u8]]));

/// Appends a value in the RDB format. A list is divided into nodes within the limit of its type.
pub(crate) type SaveValue = fn(&mut dyn Sink, Content<'_>, Limit, Option<&mut Compressor>) -> io::Result<()>;

/// Reads a value of a type of the RDB format, by the numbers of [`Author::form`](crate::dump::Author::form).
/// A value within the limit of its type is packed into the buffer, which is empty; any other is returned.
pub(crate) type LoadValue = fn(u8, &mut dyn Source, Limit, &mut Vec<u8>) -> Result<Loaded, DecodeError>;

/// Where a value is that was read.
#[derive(Debug)]
pub enum Loaded {
    /// In the buffer.
    Packed,
    /// In the buffer: a hash of which some fields expire.
    Expiring,
    /// In this structure: it is too large to be packed.
    Large(Structure),
}

impl Loaded {
    /// The value, whose buffer this is.
    pub fn content<'v>(&'v self, buffer: &'v [u8]) -> Content<'v> {
        match self {
            Loaded::Packed => Content::Bytes(buffer),
            Loaded::Expiring => Content::Expiring(Expiring::Packed(buffer), 0),
            Loaded::Large(structure) => Content::Large(structure),
        }
    }
}

impl From<Option<Structure>> for Loaded {
    fn from(large: Option<Structure>) -> Loaded {
        large.map_or(Loaded::Packed, Loaded::Large)
    }
}

/// The destination of a value that is written: a buffer that may be passed on while it grows.
pub trait Sink {
    /// The buffer to which the writer appends.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Appends bytes that may be many. A sink that writes to a file need not copy them.
    ///
    /// # Errors
    ///
    /// The errors of the file to which it writes.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer().extend_from_slice(bytes);
        Ok(())
    }

    /// Passes the contents of the buffer on if they are long. Writers call it after each element.
    ///
    /// # Errors
    ///
    /// The errors of the file to which it writes.
    fn pass_on(&mut self) -> io::Result<()>;
}

/// A buffer that keeps everything.
impl Sink for Vec<u8> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self
    }

    fn pass_on(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TypeFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Facts are equal if they belong to one type.
impl PartialEq for TypeFacts {
    fn eq(&self, other: &TypeFacts) -> bool {
        self.kind == other.kind
    }
}

impl Eq for TypeFacts {}

/// Kinds are below this number.
pub(crate) const KINDS: usize = 16;

/// The kind of no type: what an absent key has, for clients that wait until it is absent.
pub(crate) const ABSENT_KIND: u8 = 0x7f;
/// The kind of strings. They are kept without a mark.
pub(crate) const STRING_KIND: u8 = 0;
/// The kinds of the other types, by Redis's numbers.
pub(crate) const LIST_KIND: u8 = 1;
/// The kind of sets.
pub(crate) const SET_KIND: u8 = 2;
/// The kind of sorted sets.
pub(crate) const SORTED_SET_KIND: u8 = 3;
/// The kind of hashes.
pub(crate) const HASH_KIND: u8 = 4;
/// Streams. Number 5 is that of modules' types.
pub(crate) const STREAM_KIND: u8 = 6;

/// A value of any type.
#[derive(Clone, Copy, Debug)]
pub struct Value<'v> {
    /// The facts of the value's type.
    pub facts: &'static TypeFacts,
    /// The value itself.
    pub content: Content<'v>,
}

/// A value without its type.
#[derive(Clone, Copy, Debug)]
pub enum Content<'v> {
    /// A string that is not long, or a small value as its type packs it.
    Bytes(&'v [u8]),
    /// A large value.
    Large(&'v Structure),
    /// A hash of which some fields expire, as it is at a moment in milliseconds since 1970. At moment 0 all
    /// its fields are there.
    Expiring(Expiring<'v>, u64),
}

impl<'v> Content<'v> {
    /// Whether two values are alike: the same bytes, or all nodes shared. If not, they may be alike, too.
    pub fn is_same(self, other: Content<'_>) -> bool {
        match (self, other) {
            (Content::Bytes(one), Content::Bytes(other)) => one == other,
            (Content::Large(one), Content::Large(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// The bytes of a value that is not large.
    #[inline]
    pub fn bytes(self) -> Option<&'v [u8]> {
        match self {
            Content::Bytes(bytes) => Some(bytes),
            Content::Large(_) | Content::Expiring(..) => None,
        }
    }

    /// A string of any length.
    #[inline]
    pub fn text(self) -> Option<&'v [u8]> {
        match self {
            Content::Bytes(bytes) => Some(bytes),
            Content::Large(Structure::Text(text)) => Some(text.as_bytes()),
            Content::Large(_) | Content::Expiring(..) => None,
        }
    }

    /// A large value, if it has this shape.
    #[inline(always)]
    pub fn large<S: Shape>(self) -> Option<&'v S> {
        match self {
            Content::Large(structure) => S::of(structure),
            Content::Bytes(_) | Content::Expiring(..) => None,
        }
    }
}

impl Value<'_> {
    /// Appends the requests that write a key with this value, for the log.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn log(&self, sink: &mut dyn Sink, key: &[u8], expires_at_ms: Option<u64>) -> io::Result<()> {
        (self.facts.log)(sink, key, self.content, expires_at_ms)
    }

    /// The type of the RDB format in which Keyfast writes the value.
    pub fn rdb_type(&self) -> u8 {
        (self.facts.rdb_type)(self.content)
    }

    /// Appends the value in that format, with the limit of its type. It compresses the strings if it gets a
    /// compressor.
    ///
    /// # Errors
    ///
    /// The errors of the sink.
    pub fn save(
        &self,
        sink: &mut dyn Sink,
        limit: Limit,
        compressor: Option<&mut Compressor>,
    ) -> io::Result<()> {
        (self.facts.save)(sink, self.content, limit, compressor)
    }
}

/// How a value was written. OBJECT ENCODING needs it, because Redis keeps some strings in other forms than
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A string that was written as a whole. Redis keeps it as an integer if it is one.
    Plain,
    /// A string that INCRBYFLOAT printed. Redis never keeps it as an integer.
    Text,
    /// A string that was changed in parts. Redis keeps it as bytes that may grow.
    Raw,
    /// A value of another type: a small one, or a large one.
    Typed,
}

/// A type, as commands name it in a lookup: `tx.get::<Text>(key)?`.
pub trait Type: 'static {
    /// The facts of the type.
    const FACTS: &'static TypeFacts;
    /// The form in which a command reads a value.
    type View<'v>: Copy;
    /// The packed form of a collection without elements.
    const EMPTY: &'static [u8];

    /// Returns a view of a value of this type.
    fn view(content: Content<'_>) -> Self::View<'_>;
}

/// The key has a value of another type than the command asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;
