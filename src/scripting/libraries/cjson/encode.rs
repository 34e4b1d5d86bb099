//! `cjson.encode`.
//!
//! [`Encoder::table`] calls itself once per level of arrays and objects, at most [`DEPTH_MAX`] times.
//! Everything that it does not need across that call is in other functions, so that a level needs little
//! stack.

use std::ops::RangeInclusive;

use mlua::{Error, LuaString, Table, Value};

use super::{ARRAY_MARK, DEPTH_MAX, InvalidNumbers, Options};
use crate::resp::number::write_general;
use crate::scripting::libraries::raise::{Call, type_name};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Longest text in bytes: the longest string that commands take. If any holes are allowed, one element is
/// enough for an array of gigabytes. In tests the limit is lower.
const TEXT_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 512 << 20 };
/// Bytes of a string per step. The result may be six times as long.
const PIECE_BYTES: usize = 64 << 10;

/// Encodes a value.
pub(super) fn encode(call: &Call<'_>, options: Options) -> Result<LuaString> {
    if call.count() != 1 {
        return Err(call.bad_argument(1, b"expected 1 argument"));
    }
    let mut encoder = Encoder { call, options, text: Vec::new(), counted_bytes: 0 };
    match call.value(1) {
        Value::Table(table) => encoder.table(table, 1).map_err(|error| *error)?,
        other => encoder.scalar(other)?,
    }
    call.lua.create_string(&encoder.text)
}

/// The rest of a table that is being written.
enum Inside<'a> {
    /// The indices of the elements.
    Array(RangeInclusive<i32>),
    Object {
        /// The offset at which the object's text begins.
        start: usize,
        pairs: Box<dyn Iterator<Item = Result<(Value, Value)>> + 'a>,
    },
}

struct Encoder<'a> {
    call: &'a Call<'a>,
    options: Options,
    text: Vec<u8>,
    /// Bytes of the text that have been counted as work.
    counted_bytes: usize,
}

impl Encoder<'_> {
    /// Writes a table at this depth; the outermost has depth 1.
    ///
    /// Errors are boxed here to keep the stack of each level small.
    fn table(&mut self, table: &Table, depth: i32) -> Result<(), Box<Error>> {
        let mut inside = self.open(table, depth)?;
        while let Some(inner) = self.up_to_table(table, &mut inside)? {
            self.table(&inner, depth + 1)?;
        }
        self.close(&inside)
    }

    #[inline(never)]
    fn open<'b>(&mut self, table: &'b Table, depth: i32) -> Result<Box<Inside<'b>>, Box<Error>> {
        if depth > self.options.encode_max_depth.min(DEPTH_MAX) {
            return Err(Box::new(self.too_deep(depth)));
        }
        if let Some(length) = self.array_length(table).map_err(Box::new)? {
            self.text.push(b'[');
            return Ok(Box::new(Inside::Array(1..=length)));
        }
        self.text.push(b'{');
        let pairs = Box::new(table.pairs::<Value, Value>());
        Ok(Box::new(Inside::Object { start: self.text.len(), pairs }))
    }

    #[inline(never)]
    fn close(&mut self, inside: &Inside<'_>) -> Result<(), Box<Error>> {
        self.text.push(if matches!(inside, Inside::Array(_)) { b']' } else { b'}' });
        self.check_length().map_err(Box::new)
    }

    /// Writes the content of a table, up to the next table in it.
    #[inline(never)]
    fn up_to_table(&mut self, table: &Table, inside: &mut Inside<'_>) -> Result<Option<Table>, Box<Error>> {
        let inner = match inside {
            Inside::Array(indices) => self.elements(table, indices),
            Inside::Object { start, pairs } => self.members(pairs, *start),
        };
        inner.map_err(Box::new)
    }

    /// Writes elements of an array, up to the next table. Of the table only the comma before it is written.
    fn elements(&mut self, table: &Table, indices: &mut RangeInclusive<i32>) -> Result<Option<Table>> {
        for index in indices {
            if index > 1 {
                self.text.push(b',');
            }
            if let Value::Table(inner) = self.scalar_or_table(table.raw_get(index)?)? {
                return Ok(Some(inner));
            }
        }
        Ok(None)
    }

    /// Writes members of an object, up to the next table. Of the table only its key is written.
    fn members(
        &mut self,
        pairs: &mut dyn Iterator<Item = Result<(Value, Value)>>,
        start: usize,
    ) -> Result<Option<Table>> {
        for pair in pairs {
            let (key, value) = pair?;
            if self.text.len() > start {
                self.text.push(b',');
            }
            match &key {
                Value::String(key) => self.string(key)?,
                Value::Number(_) | Value::Integer(_) => {
                    self.text.push(b'"');
                    self.scalar(&key)?;
                    self.text.push(b'"');
                }
                other => return Err(self.refused(other, "table key must be a number or string")),
            }
            self.text.push(b':');
            if let Value::Table(inner) = self.scalar_or_table(value)? {
                return Ok(Some(inner));
            }
        }
        Ok(None)
    }

    /// Writes a value, or returns it if it is a table.
    fn scalar_or_table(&mut self, value: Value) -> Result<Value> {
        if !value.is_table() {
            self.scalar(&value)?;
        }
        Ok(value)
    }

    /// Writes a value that is not a table.
    fn scalar(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::Boolean(true) => self.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.text.extend_from_slice(b"false"),
            Value::Number(number) => self.number(*number, value)?,
            Value::Integer(integer) => self.number(*integer as f64, value)?,
            Value::String(string) => self.string(string)?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.text.extend_from_slice(b"null"),
            other => return Err(self.refused(other, "type not supported")),
        }
        self.check_length()
    }

    fn check_length(&mut self) -> Result<()> {
        self.call.work_on(self.text.len() - self.counted_bytes)?;
        self.counted_bytes = self.text.len();
        if self.text.len() > TEXT_BYTES_MAX { Err(self.call.error(b"not enough memory")) } else { Ok(()) }
    }

    fn number(&mut self, number: f64, value: &Value) -> Result<()> {
        match self.options.encode_invalid_numbers {
            _ if number.is_finite() => {}
            InvalidNumbers::Refuse => return Err(self.refused(value, "must not be NaN or Inf")),
            InvalidNumbers::Write => {}
            InvalidNumbers::WriteNull => {
                self.text.extend_from_slice(b"null");
                return Ok(());
            }
        }
        write_general(&mut self.text, number, self.options.encode_number_precision.unsigned_abs() as usize);
        Ok(())
    }

    fn string(&mut self, string: &LuaString) -> Result<()> {
        self.text.push(b'"');
        for piece in string.as_bytes().chunks(PIECE_BYTES) {
            let mut rest = piece;
            while let Some(plain) = rest.iter().position(|byte| ESCAPES[usize::from(*byte)] != 0) {
                self.text.extend_from_slice(&rest[..plain]);
                self.escape(rest[plain]);
                rest = &rest[plain + 1..];
            }
            self.text.extend_from_slice(rest);
            self.check_length()?;
        }
        self.text.push(b'"');
        Ok(())
    }

    /// Writes a byte that must be escaped in strings.
    fn escape(&mut self, byte: u8) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
                self.text.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            letter => self.text.extend_from_slice(&[b'\\', letter]),
        }
    }

    /// The number of elements of an array; `None` if the table is an object.
    fn array_length(&self, table: &Table) -> Result<Option<i32>> {
        if let Some(mark) = table.metatable()
            && !matches!(mark.get(ARRAY_MARK)?, Value::Nil | Value::Boolean(false))
        {
            return Ok(Some(i32::try_from(table.raw_len()).unwrap_or(i32::MAX)));
        }
        let (mut last, mut items) = (0_i32, 0_i32);
        for pair in table.pairs::<Value, Value>() {
            self.call.work(1)?;
            let key = match pair?.0 {
                Value::Number(number) => number,
                Value::Integer(integer) => integer as f64,
                _ => return Ok(None),
            };
            if key < 1.0 || key.floor() != key {
                return Ok(None);
            }
            if key > f64::from(last) {
                // In C a number that is too large becomes the smallest integer: such a table is written as an
                // object.
                last = if key > f64::from(i32::MAX) { i32::MIN } else { key as i32 };
            }
            items = items.wrapping_add(1);
        }
        let options = &self.options;
        let elements_max = items.wrapping_mul(options.encode_sparse_ratio);
        if options.encode_sparse_ratio > 0 && last > elements_max && last > options.encode_sparse_safe {
            if options.encode_sparse_convert {
                return Ok(None);
            }
            return Err(self.call.error(b"Cannot serialise table: excessively sparse array"));
        }
        Ok(Some(last).filter(|last| *last > 0))
    }

    #[cold]
    fn refused(&self, value: &Value, reason: &str) -> Error {
        self.call.error(format!("Cannot serialise {}: {reason}", type_name(value)).as_bytes())
    }

    #[cold]
    fn too_deep(&self, depth: i32) -> Error {
        self.call.error(format!("Cannot serialise, excessive nesting ({depth})").as_bytes())
    }
}

/// The letter of each byte's escape, `u` if it has none of its own; 0 if the byte needs no escape.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        escapes[byte] = match byte as u8 {
            b'\x08' => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            b'\x0c' => b'f',
            b'\r' => b'r',
            byte @ (b'"' | b'\\' | b'/') => byte,
            ..b' ' | 0x7f => b'u',
            _ => 0,
        };
        byte += 1;
    }
    escapes
};
