//! `cmsgpack`: MessagePack, as lua-cmsgpack 0.4.0 writes and reads it.
//!
//! A table is an array if its keys are the integers from 1 to their number, otherwise a map; an empty table
//! is an array. Tables nested deeper than [`NESTING_MAX`] become nil. So does what MessagePack cannot
//! express, such as functions.
//!
//! The reader keeps incomplete arrays and maps in a list. The C library keeps them on Lua's stack, and fails
//! when that is full: [`Unpacker::slots`] counts what it would need.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::raise::{Call, STACK_SLOTS_MAX, add, truncate};

/// The deepest nesting of tables when they are written.
const NESTING_MAX: usize = 16;
/// Longest text in bytes: the longest string that commands take. One table may contain another a million
/// times.
const PACKED_BYTES_MAX: usize = 512 << 20;

const NIL: u8 = 0xc0;
const FALSE: u8 = 0xc2;
const TRUE: u8 = 0xc3;
const FLOAT: u8 = 0xca;
const DOUBLE: u8 = 0xcb;
const UINT_8: u8 = 0xcc;
const UINT_16: u8 = 0xcd;
const UINT_32: u8 = 0xce;
const UINT_64: u8 = 0xcf;
const INT_8: u8 = 0xd0;
const INT_16: u8 = 0xd1;
const INT_32: u8 = 0xd2;
const INT_64: u8 = 0xd3;
const STRING_8: u8 = 0xd9;
const STRING_16: u8 = 0xda;
const STRING_32: u8 = 0xdb;
const ARRAY_16: u8 = 0xdc;
const ARRAY_32: u8 = 0xdd;
const MAP_16: u8 = 0xde;
const MAP_32: u8 = 0xdf;
/// Short maps, arrays and strings: the lower bits are their length.
const SHORT_MAP: u8 = 0x80;
const SHORT_ARRAY: u8 = 0x90;
const SHORT_STRING: u8 = 0xa0;
/// Bytes from here on are negative integers.
const NEGATIVE: u8 = 0xe0;

/// Makes the table of functions.
pub(in crate::scripting) fn cmsgpack(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    add(lua, &table, "pack", pack)?;
    add(lua, &table, "unpack", |call| unpack(call, call.count(), 0, 0))?;
    add(lua, &table, "unpack_one", |call| unpack(call, 1, 1, call.integer_or(2, 0)?))?;
    add(lua, &table, "unpack_limit", |call| {
        let (limit, offset) = (call.integer(2)?, call.integer_or(3, 0)?);
        unpack(call, 1, limit, offset)
    })?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(table)
}

/// `cmsgpack.pack(...)`: all arguments, one behind the other.
fn pack(call: &Call<'_>) -> Result<LuaString> {
    if call.count() == 0 {
        return Err(call.bad_argument(0, b"MessagePack pack needs input."));
    }
    // The C library has each argument on its stack twice.
    if 2 * call.count() > STACK_SLOTS_MAX {
        return Err(call.bad_argument(0, b"Too many arguments for MessagePack pack."));
    }
    let mut packed = Vec::new();
    for position in 1..=call.count() {
        pack_value(call, &mut packed, call.value(position), 0)?;
    }
    call.lua.create_string(packed)
}

/// Writes a value that is nested in `level` tables.
fn pack_value(call: &Call<'_>, packed: &mut Vec<u8>, value: &Value, level: usize) -> Result<()> {
    let before = packed.len();
    match value {
        Value::String(string) => pack_string(packed, &string.as_bytes()),
        Value::Boolean(value) => packed.push(if *value { TRUE } else { FALSE }),
        Value::Number(number) => pack_number(packed, *number),
        Value::Integer(integer) => pack_integer(packed, *integer),
        Value::Table(table) if level < NESTING_MAX => match array_length(call, table)? {
            Some(length) => {
                pack_length(packed, length as u64, SHORT_ARRAY, ARRAY_16);
                for index in 1..=length {
                    pack_value(call, packed, &table.raw_get(index)?, level + 1)?;
                }
            }
            None => {
                let length = table.pairs::<Value, Value>().count();
                pack_length(packed, length as u64, SHORT_MAP, MAP_16);
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    pack_value(call, packed, &key, level + 1)?;
                    pack_value(call, packed, &value, level + 1)?;
                }
            }
        },
        _ => packed.push(NIL),
    }
    if packed.len() > PACKED_BYTES_MAX {
        return Err(call.error(b"not enough memory"));
    }
    if value.is_table() { call.work(1) } else { call.work_on(packed.len() - before) }
}

/// The number of elements of an array; `None` if the table is a map.
fn array_length(call: &Call<'_>, table: &Table) -> Result<Option<usize>> {
    let (mut last, mut count) = (0, 0);
    for pair in table.pairs::<Value, Value>() {
        call.work(1)?;
        let key = match pair?.0 {
            Value::Number(number) => number,
            Value::Integer(integer) => integer as f64,
            _ => return Ok(None),
        };
        if key <= 0.0 || f64::from(key as i32) != key {
            return Ok(None);
        }
        last = last.max(key as usize);
        count += 1;
    }
    Ok(Some(count).filter(|count| *count == last))
}

fn pack_string(packed: &mut Vec<u8>, string: &[u8]) {
    match string.len() {
        length @ 0..32 => packed.push(SHORT_STRING | length as u8),
        length @ 32..0x100 => packed.extend([STRING_8, length as u8]),
        length => pack_wide_length(packed, length as u64, STRING_16),
    }
    packed.extend_from_slice(string);
}

/// Writes the length of an array or a map.
fn pack_length(packed: &mut Vec<u8>, length: u64, short: u8, wide: u8) {
    if length < 16 {
        packed.push(short | length as u8);
    } else {
        pack_wide_length(packed, length, wide);
    }
}

/// Writes a length in 16 bits, or in 32 with the next type byte.
fn pack_wide_length(packed: &mut Vec<u8>, length: u64, wide: u8) {
    match u16::try_from(length) {
        Ok(length) => {
            packed.push(wide);
            packed.extend(length.to_be_bytes());
        }
        Err(_) => {
            packed.push(wide + 1);
            packed.extend((length as u32).to_be_bytes());
        }
    }
}

fn pack_number(packed: &mut Vec<u8>, number: f64) {
    let integer = truncate(number);
    if integer as f64 == number {
        return pack_integer(packed, integer);
    }
    let float = number as f32;
    if f64::from(float) == number {
        packed.push(FLOAT);
        packed.extend(float.to_be_bytes());
    } else {
        packed.push(DOUBLE);
        packed.extend(number.to_be_bytes());
    }
}

fn pack_integer(packed: &mut Vec<u8>, integer: i64) {
    let (kind, bytes) = match integer {
        -32..0x80 => return packed.push(integer as u8),
        0x80..0x100 => (UINT_8, 1),
        0x100..0x1_0000 => (UINT_16, 2),
        0x1_0000..0x1_0000_0000 => (UINT_32, 4),
        0x1_0000_0000.. => (UINT_64, 8),
        -0x80..-32 => (INT_8, 1),
        -0x8000..-0x80 => (INT_16, 2),
        -0x8000_0000..-0x8000 => (INT_32, 4),
        ..-0x8000_0000 => (INT_64, 8),
    };
    packed.push(kind);
    packed.extend_from_slice(&integer.to_be_bytes()[8 - bytes..]);
}

/// Reads `limit` values from `offset` on; all if both are 0.
///
/// `arguments` is how many of its arguments the C library leaves on its stack.
fn unpack(call: &Call<'_>, arguments: usize, limit: i64, offset: i64) -> Result<MultiValue> {
    let input = call.string(1)?;
    let input = input.as_bytes();
    let takes_all = limit == 0 && offset == 0;
    if offset < 0 || limit < 0 {
        let (offset, length) = (offset as i32, input.len() as i32);
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return Err(call.error(text.as_bytes()));
    }
    let Some(rest) = input.get(offset.unsigned_abs() as usize..) else {
        let (offset, length) = (offset as i32, input.len() as i32);
        let text = format!("Start offset {offset} greater than input length {length}.");
        return Err(call.error(text.as_bytes()));
    };
    let limit = if takes_all { i64::from(i32::MAX) } else { limit };
    let mut unpacker = Unpacker { call, rest, slots: arguments, open: Vec::new() };
    let mut values = Vec::new();
    while !unpacker.rest.is_empty() && (values.len() as i64) < limit {
        let value = unpacker.value().map_err(|error| match error {
            Error::StackError => call.error(TOO_MANY),
            other => other,
        })?;
        values.push(value);
        unpacker.slots += 1;
    }
    if !takes_all {
        let end = input.len() - unpacker.rest.len();
        let next = if unpacker.rest.is_empty() { -1.0 } else { end as f64 };
        values.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(values))
}

const TOO_MANY: &[u8] =
    b"stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)";
const TOO_DEEP: &[u8] = b"stack overflow (in function mp_decode_to_lua_array)";

/// An incomplete array or map, and how many values or pairs are missing.
enum Open {
    /// An array, and the index of its next element.
    Array(Table, usize, usize),
    /// A map, and the key of the next value, once it is read.
    Map(Table, Option<Value>, usize),
}

/// The beginning of a value.
enum Begun {
    Whole(Value),
    Array(usize),
    Map(usize),
}

struct Unpacker<'a> {
    call: &'a Call<'a>,
    rest: &'a [u8],
    /// Slots of the stack that the C library would use.
    slots: usize,
    open: Vec<Open>,
}

impl<'a> Unpacker<'a> {
    /// Reads one value with everything in it.
    fn value(&mut self) -> Result<Value> {
        loop {
            let mut value = match self.read_head()? {
                Begun::Whole(value) => value,
                Begun::Array(length) => {
                    let table = self.call.lua.create_table()?;
                    if self.slots + 2 > STACK_SLOTS_MAX {
                        return Err(self.call.error(TOO_DEEP));
                    }
                    if length > 0 {
                        self.slots += 2; // the table and the index
                        self.open.push(Open::Array(table, 1, length));
                        continue;
                    }
                    Value::Table(table)
                }
                Begun::Map(length) => {
                    let table = self.call.lua.create_table()?;
                    if length > 0 {
                        self.slots += 1;
                        self.open.push(Open::Map(table, None, length));
                        continue;
                    }
                    Value::Table(table)
                }
            };
            loop {
                match self.open.pop() {
                    None => return Ok(value),
                    Some(open) => match self.add(open, value)? {
                        Some(complete) => value = complete,
                        None => break,
                    },
                }
            }
        }
    }

    /// Adds a value to the open array or map. Returns that if it is complete.
    fn add(&mut self, open: Open, value: Value) -> Result<Option<Value>> {
        match open {
            Open::Array(table, index, left) => {
                table.raw_set(index, value)?;
                if left == 1 {
                    self.slots -= 2;
                    return Ok(Some(Value::Table(table)));
                }
                self.open.push(Open::Array(table, index + 1, left - 1));
            }
            Open::Map(table, None, left) => {
                self.slots += 1;
                self.open.push(Open::Map(table, Some(value), left));
            }
            Open::Map(table, Some(key), left) => {
                match &key {
                    Value::Nil => return Err(self.call.error_of_lua(b"table index is nil")),
                    Value::Number(number) if number.is_nan() => {
                        return Err(self.call.error_of_lua(b"table index is NaN"));
                    }
                    _ => table.raw_set(key, value)?,
                }
                self.slots -= 1;
                if left == 1 {
                    self.slots -= 1;
                    return Ok(Some(Value::Table(table)));
                }
                self.open.push(Open::Map(table, None, left - 1));
            }
        }
        Ok(None)
    }

    /// Reads a value, or the length of the array or map that begins here.
    fn read_head(&mut self) -> Result<Begun> {
        self.call.work(1)?;
        let [kind] = self.bytes()?;
        if self.slots + 1 > STACK_SLOTS_MAX {
            return Err(self.call.error(TOO_MANY));
        }
        let number = match kind {
            0..SHORT_MAP => f64::from(kind),
            NEGATIVE.. => f64::from(kind.cast_signed()),
            UINT_8 => f64::from(u8::from_be_bytes(self.bytes()?)),
            UINT_16 => f64::from(u16::from_be_bytes(self.bytes()?)),
            UINT_32 => f64::from(u32::from_be_bytes(self.bytes()?)),
            INT_8 => f64::from(i8::from_be_bytes(self.bytes()?)),
            INT_16 => f64::from(i16::from_be_bytes(self.bytes()?)),
            INT_32 => f64::from(i32::from_be_bytes(self.bytes()?)),
            // The C library reads both as signed.
            UINT_64 | INT_64 => i64::from_be_bytes(self.bytes()?) as f64,
            FLOAT => f64::from(f32::from_be_bytes(self.bytes()?)),
            DOUBLE => f64::from_be_bytes(self.bytes()?),
            SHORT_STRING..NIL => return self.string(usize::from(kind & 0x1f)),
            STRING_8 => return self.length::<1>().and_then(|length| self.string(length)),
            STRING_16 => return self.length::<2>().and_then(|length| self.string(length)),
            STRING_32 => return self.length::<4>().and_then(|length| self.string(length)),
            SHORT_ARRAY..SHORT_STRING => return Ok(Begun::Array(usize::from(kind & 0xf))),
            ARRAY_16 => return self.length::<2>().map(Begun::Array),
            ARRAY_32 => return self.length::<4>().map(Begun::Array),
            SHORT_MAP..SHORT_ARRAY => return Ok(Begun::Map(usize::from(kind & 0xf))),
            MAP_16 => return self.length::<2>().map(Begun::Map),
            MAP_32 => return self.length::<4>().map(Begun::Map),
            NIL => return Ok(Begun::Whole(Value::Nil)),
            TRUE => return Ok(Begun::Whole(Value::Boolean(true))),
            FALSE => return Ok(Begun::Whole(Value::Boolean(false))),
            _ => return Err(self.call.error(b"Bad data format in input.")),
        };
        Ok(Begun::Whole(Value::Number(number)))
    }

    fn string(&mut self, length: usize) -> Result<Begun> {
        let (string, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.missing())?;
        self.rest = rest;
        self.call.work_on(length)?;
        Ok(Begun::Whole(Value::String(self.call.lua.create_string(string)?)))
    }

    fn length<const BYTES: usize>(&mut self) -> Result<usize> {
        let bytes: [u8; BYTES] = self.bytes()?;
        Ok(bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn bytes<const BYTES: usize>(&mut self) -> Result<[u8; BYTES]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.missing())?;
        self.rest = rest;
        Ok(*bytes)
    }

    #[cold]
    fn missing(&self) -> Error {
        self.call.error(b"Missing bytes in input.")
    }
}
