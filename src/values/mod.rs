//! Values in the form in which the keyspace holds them: bytes and the facts of their type. This module names
//! no type: the types are in the module `types`.

pub mod tree;

use std::fmt;

use crate::dump::Compressor;
use crate::dump::strings::{DecodeError, Source};

/// The facts about a type, for modules that handle values of any type.
pub struct TypeFacts {
    /// The name for TYPE and SCAN TYPE.
    pub name: &'static str,
    /// The type's place in `types::ALL`. It marks values in memory only, never in files.
    pub kind: u8,
    /// Returns the name of the encoding that Redis would use for a value, for OBJECT ENCODING.
    pub encoding: fn(&[u8], Encoding) -> &'static str,
    /// Appends the requests that write a key, for the log.
    pub log: LogKey,
    /// The types of the RDB format for such a value, in all versions of the format.
    pub rdb_types: &'static [u8],
    /// Returns the type of the RDB format in which Keyfast writes a value.
    pub rdb_type: fn(&[u8]) -> u8,
    /// Appends a value in that format. It compresses the strings if it gets a compressor.
    pub save: fn(&mut Vec<u8>, &[u8], Option<&mut Compressor>),
    /// Reads a value of one of `rdb_types` into an empty buffer.
    pub load: fn(u8, &mut dyn Source, &mut Vec<u8>) -> Result<(), DecodeError>,
}

/// Appends the requests that write a key: one for a string, any number for other types. The arguments are the
/// key's name, its value, and its expiry in milliseconds since 1970.
pub type LogKey = fn(&mut Vec<u8>, &[u8], &[u8], Option<u64>);

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

/// The kind of strings. They are kept without a mark.
pub const STRING_KIND: u8 = 0;

/// A value of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'v> {
    /// The facts of the value's type.
    pub facts: &'static TypeFacts,
    /// The value, packed as its type packs it.
    pub bytes: &'v [u8],
}

impl Value<'_> {
    /// Appends the requests that write a key with this value, for the log.
    pub fn log(&self, out: &mut Vec<u8>, key: &[u8], expires_at_ms: Option<u64>) {
        (self.facts.log)(out, key, self.bytes, expires_at_ms);
    }

    /// The type of the RDB format in which Keyfast writes the value.
    pub fn rdb_type(&self) -> u8 {
        (self.facts.rdb_type)(self.bytes)
    }

    /// Appends the value in that format. It compresses the strings if it gets a compressor.
    pub fn save(&self, out: &mut Vec<u8>, compressor: Option<&mut Compressor>) {
        (self.facts.save)(out, self.bytes, compressor);
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
    /// A value of another type.
    Packed,
}

/// A type, as commands name it in a lookup: `tx.get::<Text>(key)?`.
pub trait Type: 'static {
    /// The facts of the type.
    const FACTS: &'static TypeFacts;
    /// The form in which a command reads a value.
    type View<'v>: Copy;

    /// Returns a view of a value of this type.
    fn view(bytes: &[u8]) -> Self::View<'_>;
}

/// The key has a value of another type than the command asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;
