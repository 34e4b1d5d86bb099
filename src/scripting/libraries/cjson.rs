//! `cjson`: JSON, as Lua CJSON 2.1.0 writes and reads it.
//!
//! A table is an array if all its keys are integers from 1 up, otherwise an object; an empty table is an
//! object. Null is a light userdata, `cjson.null`, because a Lua table cannot hold nil. Strings are bytes:
//! neither direction checks for UTF-8. A text ends at its first zero byte. Numbers are what `strtod` accepts,
//! unless the options forbid it.
//!
//! Every table that `cjson.new` makes has its own options. [`DEPTH_MAX`] always holds.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mlua::{Lua, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

use super::raise::{Call, add};

/// The deepest nesting of arrays and objects, whatever the options say. CJSON would allow 4,000 to 8,000,
/// where the stack of Lua ends.
const DEPTH_MAX: i32 = 1_000;

/// The words for a switch.
const SWITCH: &[&str] = &["off", "on"];
/// The words for what happens to a number that JSON cannot express.
const INVALID_NUMBERS: &[&str] = &["off", "on", "null"];

/// The options of one table of functions.
#[derive(Clone, Copy)]
struct Options {
    /// Whether arrays with too many holes become objects.
    encode_sparse_convert: bool,
    /// The most elements per element that is not nil; 0 for no limit.
    encode_sparse_ratio: i32,
    /// The largest index up to which an array may have any holes.
    encode_sparse_safe: i32,
    encode_max_depth: i32,
    decode_max_depth: i32,
    /// Significant digits of numbers, 1 to 14.
    encode_number_precision: i32,
    /// Has no effect: threads would have to share a buffer that stays.
    encode_keep_buffer: bool,
    encode_invalid_numbers: InvalidNumbers,
    decode_invalid_numbers: bool,
    /// Whether an array that is decoded is marked as one, so that it is encoded as one, even if it is empty.
    decode_array_with_array_mt: bool,
}

/// The field of a metatable that marks an array.
const ARRAY_MARK: &str = "__is_cjson_array";

/// What happens to infinity and to NaN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InvalidNumbers {
    Refuse,
    Write,
    WriteNull,
}

impl Options {
    const DEFAULT: Options = Options {
        encode_sparse_convert: false,
        encode_sparse_ratio: 2,
        encode_sparse_safe: 10,
        encode_max_depth: DEPTH_MAX,
        decode_max_depth: DEPTH_MAX,
        encode_number_precision: 14,
        encode_keep_buffer: true,
        encode_invalid_numbers: InvalidNumbers::Refuse,
        decode_invalid_numbers: true,
        decode_array_with_array_mt: false,
    };
}

/// A function that sets an option, if it has arguments, and returns the option.
type Setting = fn(&Call<'_>, &mut Options) -> Result<MultiValue>;

/// The settings, and the most arguments of each.
const SETTINGS: &[(&str, usize, Setting)] = &[
    ("encode_sparse_array", 3, encode_sparse_array),
    ("encode_max_depth", 1, |call, options| {
        integer(call, 1, &mut options.encode_max_depth, 1, i32::MAX).map(only)
    }),
    ("decode_max_depth", 1, |call, options| {
        integer(call, 1, &mut options.decode_max_depth, 1, i32::MAX).map(only)
    }),
    ("encode_number_precision", 1, |call, options| {
        integer(call, 1, &mut options.encode_number_precision, 1, 14).map(only)
    }),
    ("encode_keep_buffer", 1, |call, options| switch(call, &mut options.encode_keep_buffer).map(only)),
    ("encode_invalid_numbers", 1, encode_invalid_numbers),
    ("decode_invalid_numbers", 1, |call, options| {
        switch(call, &mut options.decode_invalid_numbers).map(only)
    }),
    ("decode_array_with_array_mt", 1, |call, options| {
        switch(call, &mut options.decode_array_with_array_mt).map(only)
    }),
];

/// The metatable of arrays that are marked. The sandbox makes it read-only.
pub(in crate::scripting) fn array_mark(lua: &Lua) -> Result<Table> {
    const NAME: &str = "metatable of arrays";
    if let Some(mark) = lua.named_registry_value(NAME)? {
        return Ok(mark);
    }
    let mark = lua.create_table()?;
    mark.raw_set(ARRAY_MARK, true)?;
    lua.set_named_registry_value(NAME, &mark)?;
    Ok(mark)
}

/// Makes the table of functions.
pub(in crate::scripting) fn cjson(lua: &Lua) -> Result<Table> {
    let options = Arc::new(Mutex::new(Options::DEFAULT));
    let table = lua.create_table()?;
    let shared = options.clone();
    add(lua, &table, "encode", move |call| {
        let options = *shared.lock();
        encode::encode(call, options)
    })?;
    let shared = options.clone();
    add(lua, &table, "decode", move |call| {
        let options = *shared.lock();
        decode::decode(call, options)
    })?;
    for &(name, arguments_max, setting) in SETTINGS {
        let shared = options.clone();
        add(lua, &table, name, move |call| {
            if call.count() > arguments_max {
                return Err(call.bad_argument(arguments_max + 1, b"found too many arguments"));
            }
            setting(call, &mut shared.lock())
        })?;
    }
    table.raw_set("new", lua.create_function(|lua, _: MultiValue| cjson(lua))?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn only(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

/// Sets an integer, unless the argument is nil, and returns it.
///
/// The error names the first argument, whichever it was: so does CJSON.
fn integer(call: &Call<'_>, position: usize, setting: &mut i32, min: i32, max: i32) -> Result<Value> {
    if !call.value(position).is_nil() {
        let value = call.integer(position)? as i32; // as C does: the lower half
        if !(min..=max).contains(&value) {
            let what = format!("expected integer between {min} and {max}");
            return Err(call.bad_argument(1, what.as_bytes()));
        }
        *setting = value;
    }
    Ok(Value::Number(f64::from(*setting)))
}

/// Sets a switch, unless the argument is nil, and returns it.
fn switch(call: &Call<'_>, setting: &mut bool) -> Result<Value> {
    match call.value(1) {
        Value::Nil => {}
        Value::Boolean(value) => *setting = *value,
        _ => *setting = call.option(1, SWITCH)? == 1,
    }
    Ok(Value::Boolean(*setting))
}

/// `encode_sparse_array([convert[, ratio[, safe]]])`. Arguments before a wrong one take effect.
fn encode_sparse_array(call: &Call<'_>, options: &mut Options) -> Result<MultiValue> {
    let convert = switch(call, &mut options.encode_sparse_convert)?;
    let ratio = integer(call, 2, &mut options.encode_sparse_ratio, 0, i32::MAX)?;
    let safe = integer(call, 3, &mut options.encode_sparse_safe, 0, i32::MAX)?;
    Ok(MultiValue::from_vec(vec![convert, ratio, safe]))
}

/// `encode_invalid_numbers([setting])`.
fn encode_invalid_numbers(call: &Call<'_>, options: &mut Options) -> Result<MultiValue> {
    let chosen = match call.value(1) {
        Value::Nil => None,
        Value::Boolean(value) => Some(usize::from(*value)),
        _ => Some(call.option(1, INVALID_NUMBERS)?),
    };
    match chosen {
        None => {}
        Some(0) => options.encode_invalid_numbers = InvalidNumbers::Refuse,
        Some(1) => options.encode_invalid_numbers = InvalidNumbers::Write,
        Some(_) => options.encode_invalid_numbers = InvalidNumbers::WriteNull,
    }
    Ok(only(match options.encode_invalid_numbers {
        InvalidNumbers::WriteNull => Value::String(call.lua.create_string("null")?),
        other => Value::Boolean(other == InvalidNumbers::Write),
    }))
}
