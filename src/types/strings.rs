//! Strings. A value is its bytes, unchanged.

use std::io;

use crate::dump::Compressor;
use crate::dump::strings::{DecodeError, Source, write_string};
use crate::events::EventClass;
use crate::keyspace::records;
use crate::resp::number::parse_integer;
use crate::values::{Content, Encoding, Limit, Loaded, STRING_KIND, Sink, Type, TypeFacts, size};

/// The type of strings.
#[derive(Debug)]
pub enum Text {}

impl Type for Text {
    const FACTS: &'static TypeFacts = &FACTS;
    type View<'v> = &'v [u8];
    const EMPTY: &'static [u8] = b"";

    #[inline(always)]
    fn view(content: Content<'_>) -> &[u8] {
        content.text().unwrap_or_default()
    }
}

/// The facts about strings.
pub(crate) const FACTS: TypeFacts = TypeFacts {
    name: "string",
    kind: STRING_KIND,
    events: EventClass::STRING,
    // No string is packed, but HyperLogLogs have a smaller form.
    limit: |of| Limit { bytes: size(of("hll-sparse-max-bytes")), ..Limit::default() },
    encoding,
    len: |_| 1,
    each: |content, visit| visit(&[Text::view(content)]),
    is_ordered: true,
    log,
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

fn encoding(content: Content<'_>, encoding: Encoding, _: Limit) -> &'static str {
    let value = Text::view(content);
    let is_integer = value.len() <= INTEGER_BYTES_MAX && parse_integer(value).is_some();
    match encoding {
        Encoding::Plain if is_integer => "int",
        Encoding::Plain | Encoding::Text if value.len() <= EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

fn log(sink: &mut dyn Sink, key: &[u8], content: Content<'_>, expires_at_ms: Option<u64>) -> io::Result<()> {
    records::set(sink, key, Text::view(content), expires_at_ms)
}

fn save(
    sink: &mut dyn Sink,
    content: Content<'_>,
    _: Limit,
    compressor: Option<&mut Compressor>,
) -> io::Result<()> {
    write_string(sink.buffer(), Text::view(content), compressor);
    sink.pass_on()
}

fn load(_: u8, input: &mut dyn Source, _: Limit, value: &mut Vec<u8>) -> Result<Loaded, DecodeError> {
    input.string(value)?;
    Ok(Loaded::Packed)
}
