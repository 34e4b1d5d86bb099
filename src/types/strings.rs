//! Strings. A value is its bytes, unchanged.

use crate::dump::Compressor;
use crate::dump::strings::{DecodeError, Source, write_string};
use crate::keyspace::records;
use crate::resp::number::parse_integer;
use crate::values::{Encoding, STRING_KIND, Type, TypeFacts};

/// The type of strings.
#[derive(Debug)]
pub enum Text {}

impl Type for Text {
    const FACTS: &'static TypeFacts = &FACTS;
    type View<'v> = &'v [u8];

    #[inline(always)]
    fn view(bytes: &[u8]) -> &[u8] {
        bytes
    }
}

/// The facts about strings.
pub const FACTS: TypeFacts = TypeFacts {
    name: "string",
    kind: STRING_KIND,
    encoding,
    log: records::set,
    rdb_types: &[RDB_TYPE],
    rdb_type: |_| RDB_TYPE,
    save,
    load,
};

/// The type of strings in the RDB format.
const RDB_TYPE: u8 = 0;
/// The longest string that Redis keeps in one allocation with its object. Redis:
/// `OBJ_ENCODING_EMBSTR_SIZE_LIMIT`.
const EMBEDDED_BYTES_MAX: usize = 44;
/// The longest text that Redis tries to keep as an integer. Redis: `tryObjectEncoding`.
const INTEGER_BYTES_MAX: usize = 20;

fn encoding(value: &[u8], encoding: Encoding) -> &'static str {
    let is_integer = value.len() <= INTEGER_BYTES_MAX && parse_integer(value).is_some();
    match encoding {
        Encoding::Plain if is_integer => "int",
        Encoding::Plain | Encoding::Text if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

fn save(output: &mut Vec<u8>, value: &[u8], compressor: Option<&mut Compressor>) {
    write_string(output, value, compressor);
}

fn load(_: u8, input: &mut dyn Source, value: &mut Vec<u8>) -> Result<(), DecodeError> {
    input.string(value)
}
