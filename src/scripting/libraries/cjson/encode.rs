//! `cjson.encode`.
//!
//! [`Encoder::table`] calls itself once for each level of arrays and objects, [`DEPTH_MAX`] times at most.
//! What it does not need across that call lives in other functions, so that a level takes little of a
//! thread's stack.

use std::ops::RangeInclusive;

use mlua::{Error, LuaString, Table, Value};

use super::{DEPTH_MAX, InvalidNumbers, Options};
use crate::resp::number::write_general;
use crate::scripting::libraries::raise::{Call, type_name};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Longest text: the longest string that commands take. Where any holes are allowed, one element is enough
/// for an array of gigabytes.
const TEXT_BYTES_MAX: usize = 512 << 20;

/// Writes a value.
pub(super) fn encode(call: &Call<'_>, options: Options) -> Result<LuaString> {
    if call.count() != 1 {
        return Err(call.bad_argument(1, b"expected 1 argument"));
    }
    let mut encoder = Encoder { call, options, text: Vec::new() };
    match call.value(1) {
        Value::Table(table) => encoder.table(table, 1).map_err(|error| *error)?,
        other => encoder.scalar(other)?,
    }
    call.lua.create_string(&encoder.text)
}

/// What is still to be written of a table.
enum Inside<'a> {
    /// The indices of the elements.
    Array(RangeInclusive<i32>),
    Object {
        /// Where its text begins.
        start: usize,
        pairs: Box<dyn Iterator<Item = Result<(Value, Value)>> + 'a>,
    },
}

struct Encoder<'a> {
    call: &'a Call<'a>,
    options: Options,
    text: Vec<u8>,
}

impl Encoder<'_> {
    /// Writes a table, which lies in `depth - 1` others.
    ///
    /// Errors are boxed here to keep small what each level takes.
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

    /// Writes what a table holds, up to a table.
    #[inline(never)]
    fn up_to_table(&mut self, table: &Table, inside: &mut Inside<'_>) -> Result<Option<Table>, Box<Error>> {
        let inner = match inside {
            Inside::Array(indices) => self.elements(table, indices),
            Inside::Object { start, pairs } => self.members(pairs, *start),
        };
        inner.map_err(Box::new)
    }

    /// Writes elements of an array, up to one that is a table, of which only the comma before it is written.
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

    /// Writes members of an object, up to one that is a table, of which only the key is written.
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
                Value::String(key) => self.string(key),
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

    /// Writes a value, unless it is a table.
    fn scalar_or_table(&mut self, value: Value) -> Result<Value> {
        if !value.is_table() {
            self.scalar(&value)?;
        }
        Ok(value)
    }

    /// Writes what is no table.
    fn scalar(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Nil => self.text.extend_from_slice(b"null"),
            Value::Boolean(true) => self.text.extend_from_slice(b"true"),
            Value::Boolean(false) => self.text.extend_from_slice(b"false"),
            Value::Number(number) => self.number(*number, value)?,
            Value::Integer(integer) => self.number(*integer as f64, value)?,
            Value::String(string) => self.string(string),
            Value::LightUserData(pointer) if pointer.0.is_null() => self.text.extend_from_slice(b"null"),
            other => return Err(self.refused(other, "type not supported")),
        }
        self.check_length()
    }

    fn check_length(&self) -> Result<()> {
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

    fn string(&mut self, string: &LuaString) {
        self.text.push(b'"');
        for byte in string.as_bytes().iter() {
            match escape(*byte) {
                None if *byte < b' ' || *byte == 0x7f => {
                    self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                }
                None => self.text.push(*byte),
                Some(letter) => self.text.extend_from_slice(&[b'\\', letter]),
            }
        }
        self.text.push(b'"');
    }

    /// How many elements an array has; nothing if the table is an object.
    fn array_length(&self, table: &Table) -> Result<Option<i32>> {
        let (mut last, mut items) = (0_i32, 0_i32);
        for pair in table.pairs::<Value, Value>() {
            let key = match pair?.0 {
                Value::Number(number) => number,
                Value::Integer(integer) => integer as f64,
                _ => return Ok(None),
            };
            if key < 1.0 || key.floor() != key {
                return Ok(None);
            }
            if key > f64::from(last) {
                // In C, what is too large becomes the smallest: such a table is written as an object.
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

/// The letter of a byte's short escape.
fn escape(byte: u8) -> Option<u8> {
    match byte {
        b'\x08' => Some(b'b'),
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        b'\x0c' => Some(b'f'),
        b'\r' => Some(b'r'),
        b'"' | b'\\' | b'/' => Some(byte),
        _ => None,
    }
}
