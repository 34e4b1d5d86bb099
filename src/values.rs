//! Values as the keyspace holds them: bytes, and the facts of their type. No type is named here: the types
//! are in the module `types`.

use std::fmt;

use crate::dump::Compressor;
use crate::dump::strings::{DecodeError, Source};

/// What the server needs to know of a type, wherever it handles values of any type.
pub struct TypeFacts {
    /// The name that TYPE returns and SCAN TYPE takes.
    pub name: &'static str,
    /// The type's place in `types::ALL`. It marks values in memory only; no file has it.
    pub kind: u8,
    /// Returns the name of the encoding in which Redis would keep a value, for OBJECT ENCODING.
    pub encoding: fn(&[u8], Encoding) -> &'static str,
    /// Writes a key into the log.
    pub log: LogKey,
    /// The types of the RDB format in which the value may have been written, by any version.
    pub rdb_types: &'static [u8],
    /// Returns the type of the RDB format in which a value is written here.
    pub rdb_type: fn(&[u8]) -> u8,
    /// Appends a value in that form; its strings are compressed if there is a compressor.
    pub save: fn(&mut Vec<u8>, &[u8], Option<&mut Compressor>),
    /// Reads a value of one of the types above into an empty buffer.
    pub load: fn(u8, &mut dyn Source, &mut Vec<u8>) -> Result<(), DecodeError>,
}

/// Appends the requests that make a key anew, one for a string, any number for other types: its name, its value, and when it expires, in milliseconds since
/// 1970.
pub type LogKey = fn(&mut Vec<u8>, &[u8], &[u8], Option<u64>);

impl fmt::Debug for TypeFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Two are the same if they are of one type.
impl PartialEq for TypeFacts {
    fn eq(&self, other: &TypeFacts) -> bool {
        self.kind == other.kind
    }
}

impl Eq for TypeFacts {}

/// The kind of strings, which are kept without a mark.
pub const STRING_KIND: u8 = 0;

/// A value of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'v> {
    /// The facts of its type.
    pub facts: &'static TypeFacts,
    /// The value as its type packs it.
    pub bytes: &'v [u8],
}

/// How a value was written, as far as OBJECT ENCODING tells: Redis keeps some strings in other forms than
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A string that was written whole: an integer is kept as one.
    Plain,
    /// A string that INCRBYFLOAT printed: never kept as an integer.
    Text,
    /// A string that was changed in parts: kept as bytes that may grow.
    Raw,
    /// A value of another type.
    Packed,
}

/// A type, as commands look values up: `tx.get::<Text>(key)?`.
pub trait Type: 'static {
    /// Its facts.
    const FACTS: &'static TypeFacts;
    /// What a command reads of a value.
    type View<'v>: Copy;

    /// Looks at a value of this type.
    fn view(bytes: &[u8]) -> Self::View<'_>;
}

/// A command asked for a value of another type than the key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;
