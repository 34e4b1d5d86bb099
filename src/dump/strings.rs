//! Strings and lengths, as they are written in payloads and in snapshots.
//!
//! A length takes one, two, five or nine bytes; the two highest bits of the first say how it goes on. In its
//! place may be a string in another form: one that is an integer of at most 32 bits is kept as such, and one
//! above twenty bytes is compressed where that makes it shorter.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use super::lzf::{self, Compressor};
use crate::resp::number::parse_integer;

/// The two highest bits of a length say how it goes on.
const LENGTH_KIND: u8 = 0xc0;
const LENGTH_14_BITS: u8 = 0x40;
const LENGTH_32_BITS: u8 = 0x80;
const LENGTH_64_BITS: u8 = 0x81;
/// Not a length but a string in another form.
const ENCODED: u8 = 0xc0;
const ENCODED_INT8: u8 = ENCODED;
const ENCODED_INT16: u8 = ENCODED | 1;
const ENCODED_INT32: u8 = ENCODED | 2;
pub(super) const ENCODED_LZF: u8 = ENCODED | 3;

/// A longer text is not looked at for an integer.
const INTEGER_BYTES_MAX: usize = 11;
/// A shorter string is not compressed.
const COMPRESSED_FROM_BYTES: usize = 21;
/// The bytes that compression must save to be used.
const SAVED_BYTES_MIN: usize = 4;
/// Bytes for which room is made before any of them has come.
const TRUSTED_BYTES_MAX: usize = 64 << 10;

/// Writes a string, compressed if there is a compressor and that saves space.
pub fn write_string(output: &mut Vec<u8>, string: &[u8], compressor: Option<&mut Compressor>) {
    let integer = if string.len() <= INTEGER_BYTES_MAX { parse_integer(string) } else { None };
    if let Some(integer) = integer {
        if let Ok(integer) = i8::try_from(integer) {
            output.push(ENCODED_INT8);
            return output.extend(integer.to_le_bytes());
        }
        if let Ok(integer) = i16::try_from(integer) {
            output.push(ENCODED_INT16);
            return output.extend(integer.to_le_bytes());
        }
        if let Ok(integer) = i32::try_from(integer) {
            output.push(ENCODED_INT32);
            return output.extend(integer.to_le_bytes());
        }
    }
    if string.len() >= COMPRESSED_FROM_BYTES
        && let Some(compressor) = compressor
        && let Some(compressed) = compressor.compress(string, string.len() - SAVED_BYTES_MIN)
    {
        output.push(ENCODED_LZF);
        write_length(output, compressed.len() as u64);
        write_length(output, string.len() as u64);
        return output.extend(compressed);
    }
    write_length(output, string.len() as u64);
    output.extend(string);
}

/// Writes a length, or another number.
pub fn write_length(output: &mut Vec<u8>, length: u64) {
    match length {
        0..64 => output.push(length as u8),
        64..16_384 => output.extend((length as u16 | u16::from(LENGTH_14_BITS) << 8).to_be_bytes()),
        _ => match u32::try_from(length) {
            Ok(length) => {
                output.push(LENGTH_32_BITS);
                output.extend(length.to_be_bytes());
            }
            Err(_) => {
                output.push(LENGTH_64_BITS);
                output.extend(length.to_be_bytes());
            }
        },
    }
}

/// Why something cannot be read.
#[derive(Debug)]
pub enum DecodeError {
    /// The input ends too early.
    Ended,
    /// The input is malformed.
    Invalid(&'static str),
    /// A string is longer than any can be.
    TooLong,
    /// A collection has no elements. It was read to its end, so a reader may skip it and go on.
    Empty,
    /// The system could not read it.
    Failed(io::Error),
}

impl From<io::Error> for DecodeError {
    fn from(error: io::Error) -> DecodeError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => DecodeError::Ended,
            _ => DecodeError::Failed(error),
        }
    }
}

/// Reads strings and lengths, one after the other. What is announced is never believed before it came.
#[derive(Debug)]
pub(crate) struct Decoder<R> {
    /// The rest of the input.
    pub input: R,
    string_bytes_max: usize,
    compressed: Vec<u8>,
    /// Whether values are read that are not as they should be.
    is_lenient: bool,
    forgiven: Option<&'static str>,
    /// The templates of hashes that were read, by their numbers.
    templates: BTreeMap<u64, Arc<Template>>,
}

/// A length, or the form of the string that is in its place.
enum Announced {
    Length(u64),
    Encoded(u8),
}

/// The source from which a type reads its values: a [`Decoder`], whatever its input.
pub trait Source {
    /// Reads a length, or another number.
    fn length(&mut self) -> Result<u64, DecodeError>;

    /// Reads a string in the place of what was in `string`.
    fn string(&mut self, string: &mut Vec<u8>) -> Result<(), DecodeError>;

    /// Reads as many bytes as `bytes` has, in their place.
    fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), DecodeError>;

    /// Decides about a value that can be read and is not as it should be, such as a set with a member twice.
    /// Redis loads such a value from a file without a look, and only looks closely at what a client restores.
    ///
    /// # Errors
    ///
    /// The error itself, unless the source is [lenient](Decoder::lenient).
    fn forgive(&mut self, why: DecodeError) -> Result<(), DecodeError>;

    /// The fields of a template of hashes, which a file has in front of the hashes.
    fn template(&self, number: u64) -> Option<Arc<Template>>;
}

/// The fields that several hashes have, in their order.
pub(crate) type Template = Vec<Vec<u8>>;

impl<R: Read> Source for Decoder<R> {
    fn length(&mut self) -> Result<u64, DecodeError> {
        Decoder::length(self)
    }

    fn string(&mut self, string: &mut Vec<u8>) -> Result<(), DecodeError> {
        Decoder::string(self, string)
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> Result<(), DecodeError> {
        self.input.read_exact(bytes).map_err(DecodeError::from)
    }

    fn forgive(&mut self, why: DecodeError) -> Result<(), DecodeError> {
        match why {
            DecodeError::Invalid(why) if self.is_lenient => {
                self.forgiven.get_or_insert(why);
                Ok(())
            }
            why => Err(why),
        }
    }

    fn template(&self, number: u64) -> Option<Arc<Template>> {
        self.templates.get(&number).cloned()
    }
}

impl<R: Read> Decoder<R> {
    /// A reader of strings of at most `string_bytes_max` bytes each.
    pub(crate) fn new(input: R, string_bytes_max: usize) -> Decoder<R> {
        Decoder {
            input,
            string_bytes_max,
            compressed: Vec::new(),
            is_lenient: false,
            forgiven: None,
            templates: BTreeMap::new(),
        }
    }

    /// The same reader, for values as files have them: one that is not as it should be is read as far as it
    /// has a meaning.
    pub(crate) fn lenient(self, is_lenient: bool) -> Decoder<R> {
        Decoder { is_lenient, ..self }
    }

    /// Takes out what was wrong with the value that was read, if something was.
    pub(crate) fn take_forgiven(&mut self) -> Option<&'static str> {
        self.forgiven.take()
    }

    /// Reads a template of hashes: its number and its fields.
    ///
    /// # Errors
    ///
    /// [`DecodeError`], also if there is one of this number.
    pub(crate) fn read_template(&mut self) -> Result<(), DecodeError> {
        let number = self.length()?;
        let template = Arc::new(read_names(self)?);
        match self.templates.insert(number, template) {
            None => Ok(()),
            Some(_) => Err(DecodeError::Invalid("Duplicate hash template ID")),
        }
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// [`DecodeError`], as all that is read.
    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads some bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        self.input.read_exact(&mut array)?;
        Ok(array)
    }

    /// Reads a length, or another number.
    pub(crate) fn length(&mut self) -> Result<u64, DecodeError> {
        match self.announced()? {
            Announced::Length(length) => Ok(length),
            Announced::Encoded(_) => Err(DecodeError::Invalid("a string in the place of a length")),
        }
    }

    /// Reads a string in the place of what was in `string`.
    pub(crate) fn string(&mut self, string: &mut Vec<u8>) -> Result<(), DecodeError> {
        let integer = match self.announced()? {
            Announced::Length(length) => {
                let length = self.string_length(length)?;
                return read_bytes(&mut self.input, length, string);
            }
            Announced::Encoded(ENCODED_INT8) => i32::from(i8::from_le_bytes(self.array()?)),
            Announced::Encoded(ENCODED_INT16) => i32::from(i16::from_le_bytes(self.array()?)),
            Announced::Encoded(ENCODED_INT32) => i32::from_le_bytes(self.array()?),
            Announced::Encoded(ENCODED_LZF) => {
                let (compressed, length) = (self.length()?, self.length()?);
                let (compressed, length) = (self.string_length(compressed)?, self.string_length(length)?);
                read_bytes(&mut self.input, compressed, &mut self.compressed)?;
                let decompressed = lzf::decompress(&self.compressed, length);
                *string = decompressed.ok_or(DecodeError::Invalid("Invalid LZF compressed string"))?;
                return Ok(());
            }
            Announced::Encoded(_) => return Err(DecodeError::Invalid("Unknown RDB string encoding type")),
        };
        string.clear();
        string.extend(itoa::Buffer::new().format(integer).as_bytes());
        Ok(())
    }

    fn string_length(&self, length: u64) -> Result<usize, DecodeError> {
        let length = usize::try_from(length).ok();
        length.filter(|length| *length <= self.string_bytes_max).ok_or(DecodeError::TooLong)
    }

    fn announced(&mut self) -> Result<Announced, DecodeError> {
        let first = self.byte()?;
        Ok(Announced::Length(match first & LENGTH_KIND {
            0 => u64::from(first),
            LENGTH_14_BITS => u64::from(first & !LENGTH_KIND) << 8 | u64::from(self.byte()?),
            _ if first == LENGTH_32_BITS => u64::from(u32::from_be_bytes(self.array()?)),
            _ if first == LENGTH_64_BITS => u64::from_be_bytes(self.array()?),
            ENCODED => return Ok(Announced::Encoded(first)),
            _ => return Err(DecodeError::Invalid("Unknown length encoding")),
        }))
    }
}

/// Reads the fields of a template behind their number.
pub(super) fn read_names(source: &mut dyn Source) -> Result<Template, DecodeError> {
    let mut names = Vec::new();
    for _ in 0..source.length()? {
        let mut name = Vec::new();
        source.string(&mut name)?;
        names.push(name);
    }
    match names.is_empty() {
        true => Err(DecodeError::Invalid("a template of hashes has zero fields")),
        false => Ok(names),
    }
}

/// Reads `length` bytes. Room is made for at most twice what has come by then.
fn read_bytes(input: &mut impl Read, length: usize, bytes: &mut Vec<u8>) -> Result<(), DecodeError> {
    bytes.clear();
    while bytes.len() < length {
        let from = bytes.len();
        bytes.resize(length.min(from + from.max(TRUSTED_BYTES_MAX)), 0);
        input.read_exact(&mut bytes[from..])?;
    }
    Ok(())
}
