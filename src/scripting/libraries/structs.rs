//! `struct`: binary structures, as the library of Roberto Ierusalimschy (0.2) packs and unpacks them.
//!
//! A format is read one letter at a time, by the same [`Format`] for all three functions:
//!
//! - `>` big endian, `<` little endian, `![n]` alignment, space for nothing
//! - `b`/`B` a byte, `h`/`H` two, `l`/`L` eight, `T` eight, `i[n]`/`I[n]` n (4), signed and unsigned
//! - `f` and `d` floating point, `x` a byte of padding
//! - `c[n]` n bytes of a string (1); `c0` the whole string, or as many as the number before it says
//! - `s` a string with a zero byte behind it
//!
//! A size in a format is trusted only after the string or the data turned out to be that long.

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::raise::{Call, STACK_SLOTS_MAX, add, truncate};

/// Longest integer, in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// Longest text in bytes: the longest string that commands take.
const PACKED_BYTES_MAX: usize = 512 << 20;
/// The alignment for `!` without a number.
const ALIGNMENT_DEFAULT: usize = 8;

const TOO_MANY: &[u8] = b"stack overflow (too many results)";

/// Makes the table of functions.
pub(in crate::scripting) fn structs(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, mut arguments: MultiValue| {
        // The C library pushes a mark behind the arguments; its errors take it for an argument that is nil.
        if !arguments.is_empty() {
            arguments.push_back(Value::Nil);
        }
        pack(&Call::new(lua, arguments))
    })?;
    table.raw_set("pack", pack)?;
    add(lua, &table, "unpack", |call| {
        unpack(call).map_err(|error| match error {
            Error::StackError => call.error(TOO_MANY),
            other => other,
        })
    })?;
    add(lua, &table, "size", size)?;
    Ok(table)
}

/// One letter of a format.
#[derive(Clone, Copy)]
struct Item {
    letter: u8,
    /// Bytes in the data; 0 if the data decide, or if there are none.
    bytes: usize,
    /// Bytes of padding before it.
    padding: usize,
}

impl Item {
    fn is_integer(&self) -> bool {
        matches!(self.letter, b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I')
    }

    fn is_signed(&self) -> bool {
        self.letter.is_ascii_lowercase()
    }
}

/// A format, with the options set so far.
struct Format<'a> {
    call: &'a Call<'a>,
    text: &'a [u8],
    is_big_endian: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(call: &'a Call<'a>, text: &'a [u8]) -> Format<'a> {
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Format { call, text, is_big_endian: cfg!(target_endian = "big"), alignment: 1 }
    }

    /// The next item, at this position of the data.
    fn next(&mut self, position: usize) -> Result<Option<Item>> {
        let Some((letter, rest)) = self.text.split_first() else { return Ok(None) };
        self.call.work(1)?;
        let letter = *letter;
        self.text = rest;
        let bytes = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => self.count(4)?,
            _ => 0,
        };
        if matches!(letter, b'i' | b'I') && bytes > INTEGER_BYTES_MAX {
            let text = format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}");
            return Err(self.call.error(text.as_bytes()));
        }
        // Sizes that are no power of two align to odd positions, as in C.
        let aligned = bytes.min(self.alignment);
        let padding = match letter {
            b'c' => 0,
            _ if bytes == 0 => 0,
            _ => aligned.wrapping_sub(position & (aligned - 1)) & (aligned - 1),
        };
        Ok(Some(Item { letter, bytes, padding }))
    }

    /// A number in the format, or the default.
    fn count(&mut self, default: usize) -> Result<usize> {
        if !self.text.first().is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut count = 0_i32;
        while let Some((digit, rest)) = self.text.split_first().filter(|(byte, _)| byte.is_ascii_digit()) {
            let more = count.checked_mul(10).and_then(|tens| tens.checked_add(i32::from(digit - b'0')));
            count = more.ok_or_else(|| self.call.error(b"integral size overflow"))?;
            self.text = rest;
        }
        Ok(count.unsigned_abs() as usize)
    }

    /// Applies a letter that sets an option.
    fn set(&mut self, letter: u8) -> Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.count(ALIGNMENT_DEFAULT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(self.call.error(text.as_bytes()));
                }
                self.alignment = alignment;
            }
            _ => {
                let what = [b"invalid format option '", &[letter][..], b"'"].concat();
                return Err(self.call.bad_argument(1, &what));
            }
        }
        Ok(())
    }

    /// Reverses bytes if the order is big endian.
    fn ordered<const BYTES: usize>(&self, mut bytes: [u8; BYTES]) -> [u8; BYTES] {
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes
    }
}

/// `struct.pack(format, ...)`
fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(call, &text);
    let mut packed = Vec::new();
    let mut argument = 2;
    while let Some(item) = format.next(packed.len())? {
        packed.resize(packed.len() + item.padding, 0);
        match item.letter {
            _ if item.is_integer() => {
                pack_integer(&mut packed, call.number(argument)?, item.bytes, format.is_big_endian);
                argument += 1;
            }
            b'x' => packed.push(0),
            b'f' => {
                let number = call.number(argument)? as f32;
                packed.extend(format.ordered(number.to_le_bytes()));
                argument += 1;
            }
            b'd' => {
                packed.extend(format.ordered(call.number(argument)?.to_le_bytes()));
                argument += 1;
            }
            b'c' | b's' => {
                let string = call.string(argument)?;
                let string = string.as_bytes();
                argument += 1;
                let bytes = if item.bytes == 0 { string.len() } else { item.bytes };
                let Some(taken) = string.get(..bytes) else {
                    // The C library has already moved on to the next argument.
                    return Err(call.bad_argument(argument, b"string too short"));
                };
                call.work_on(bytes)?;
                if packed.len() + bytes > PACKED_BYTES_MAX {
                    return Err(call.error(b"not enough memory"));
                }
                packed.extend_from_slice(taken);
                if item.letter == b's' {
                    packed.push(0);
                }
            }
            other => format.set(other)?,
        }
    }
    call.lua.create_string(packed)
}

fn pack_integer(packed: &mut Vec<u8>, number: f64, bytes: usize, is_big_endian: bool) {
    let value = if number < 0.0 { truncate(number).cast_unsigned() } else { truncate_unsigned(number) };
    let mut all = [0; INTEGER_BYTES_MAX];
    all[..8].copy_from_slice(&value.to_le_bytes());
    let taken = &mut all[..bytes];
    if is_big_endian {
        taken.reverse();
    }
    packed.extend_from_slice(taken);
}

/// `struct.unpack(format, data[, position])`
fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let text = call.string(1)?;
    let data = call.string(2)?;
    let first = call.integer_or(3, 1)?;
    if first == 0 {
        return Err(call.bad_argument(3, b"offset must be 1 or greater"));
    }
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let mut format = Format::new(call, &text);
    let mut position = first.cast_unsigned().wrapping_sub(1) as usize;
    let mut results = Vec::new();
    while let Some(item) = format.next(position)? {
        position = position.wrapping_add(item.padding);
        let Some(mut rest) = data.get(position..).filter(|rest| rest.len() >= item.bytes) else {
            return Err(call.bad_argument(2, b"data string too short"));
        };
        if results.len() + 3 > STACK_SLOTS_MAX {
            return Err(call.error(TOO_MANY));
        }
        let mut bytes = item.bytes;
        match item.letter {
            _ if item.is_integer() => {
                results.push(Value::Number(unpack_integer(&rest[..bytes], item, format.is_big_endian)));
            }
            b'x' => {}
            b'f' => {
                let number = rest.first_chunk().map(|bytes| f32::from_le_bytes(format.ordered(*bytes)));
                results.push(Value::Number(number.unwrap_or_default().into()));
            }
            b'd' => {
                let number = rest.first_chunk().map(|bytes| f64::from_le_bytes(format.ordered(*bytes)));
                results.push(Value::Number(number.unwrap_or_default()));
            }
            b'c' => {
                if bytes == 0 {
                    let size = call.lua.coerce_number(results.pop().unwrap_or_default())?;
                    let size = size.ok_or_else(|| call.error(b"format 'c0' needs a previous size"))?;
                    bytes = truncate_unsigned(size) as usize;
                }
                rest = rest.get(..bytes).ok_or_else(|| call.bad_argument(2, b"data string too short"))?;
                results.push(Value::String(call.lua.create_string(rest)?));
            }
            b's' => {
                let end = memchr::memchr(0, rest).ok_or_else(|| call.error(b"unfinished string in data"))?;
                results.push(Value::String(call.lua.create_string(&rest[..end])?));
                bytes = end + 1;
            }
            other => format.set(other)?,
        }
        position = position.wrapping_add(bytes);
    }
    results.push(Value::Number(position.wrapping_add(1).cast_signed() as f64));
    Ok(MultiValue::from_vec(results))
}

/// Reads an integer. Of more than eight bytes only the lowest eight count.
fn unpack_integer(bytes: &[u8], item: Item, is_big_endian: bool) -> f64 {
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if is_big_endian { bytes.iter().fold(0, push) } else { bytes.iter().rev().fold(0, push) };
    if !item.is_signed() {
        return value as f64;
    }
    // The shift is taken modulo 64, as the processor does.
    let mask = u64::MAX << ((item.bytes * 8).wrapping_sub(1) & 63);
    let extended = if value & mask != 0 { value | mask } else { value };
    extended.cast_signed() as f64
}

/// `struct.size(format)`
fn size(call: &Call<'_>) -> Result<f64> {
    let text = call.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(call, &text);
    let mut position = 0_usize;
    while let Some(item) = format.next(position)? {
        match item.letter {
            b's' => return Err(call.bad_argument(1, b"option 's' has no fixed size")),
            b'c' if item.bytes == 0 => {
                return Err(call.bad_argument(1, b"option 'c0' has no fixed size"));
            }
            letter if !letter.is_ascii_alphanumeric() => format.set(letter)?,
            _ => {}
        }
        position = position.wrapping_add(item.padding).wrapping_add(item.bytes);
    }
    Ok(position.cast_signed() as f64)
}

/// The 64-bit unsigned integer that x86 makes of a double.
fn truncate_unsigned(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF {
        truncate(number - HALF).cast_unsigned() ^ 1 << 63
    } else {
        truncate(number).cast_unsigned()
    }
}
