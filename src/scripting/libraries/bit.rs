//! `bit`: operations on integers of 32 bits, as Lua BitOp 1.0.2 has them.
//!
//! A number is taken modulo 2^32, after rounding to the nearest integer, half to even; what comes back is signed.
//! Both follow from one addition: a double that is increased by 2^52 + 2^51 has the integer in its lower bits.

use mlua::{Lua, MultiValue, Result, Table};

use super::raise::Call;

/// 2^52 + 2^51.
const ROUNDING: f64 = 6_755_399_441_055_744.0;
/// The digits of 32 bits.
const HEX_DIGITS: u32 = 8;

/// Makes the table of functions.
pub(in crate::scripting) fn bit(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    one(lua, &table, "tobit", |bits| bits)?;
    one(lua, &table, "bnot", |bits| !bits)?;
    one(lua, &table, "bswap", u32::swap_bytes)?;
    all(lua, &table, "band", |bits, other| bits & other)?;
    all(lua, &table, "bor", |bits, other| bits | other)?;
    all(lua, &table, "bxor", |bits, other| bits ^ other)?;
    shift(lua, &table, "lshift", |bits, count| bits << count)?;
    shift(lua, &table, "rshift", |bits, count| bits >> count)?;
    shift(lua, &table, "arshift", |bits, count| (bits.cast_signed() >> count).cast_unsigned())?;
    shift(lua, &table, "rol", u32::rotate_left)?;
    shift(lua, &table, "ror", u32::rotate_right)?;
    table.raw_set("tohex", lua.create_function(|lua, arguments| hex(&Call::new(lua, arguments)))?)?;
    Ok(table)
}

/// The bits of an argument.
fn bits(call: &Call<'_>, position: usize) -> Result<u32> {
    match call.lua.coerce_number(call.value(position).clone())? {
        Some(number) => Ok((number + ROUNDING).to_bits() as u32),
        None => Err(call.wrong_type(position, "number")),
    }
}

/// A function of one argument.
fn one(lua: &Lua, table: &Table, name: &str, operation: fn(u32) -> u32) -> Result<()> {
    let function = lua.create_function(move |lua, arguments: MultiValue| {
        let result = operation(bits(&Call::new(lua, arguments), 1)?);
        Ok(f64::from(result.cast_signed()))
    })?;
    table.raw_set(name, function)
}

/// A function that takes all its arguments together, the first and then the others from the end.
fn all(lua: &Lua, table: &Table, name: &str, operation: fn(u32, u32) -> u32) -> Result<()> {
    let function = lua.create_function(move |lua, arguments: MultiValue| {
        let call = Call::new(lua, arguments);
        let mut result = bits(&call, 1)?;
        for position in (2..=call.count()).rev() {
            result = operation(result, bits(&call, position)?);
        }
        Ok(f64::from(result.cast_signed()))
    })?;
    table.raw_set(name, function)
}

/// A function of bits and a count of 0 to 31.
fn shift(lua: &Lua, table: &Table, name: &str, operation: fn(u32, u32) -> u32) -> Result<()> {
    let function = lua.create_function(move |lua, arguments: MultiValue| {
        let call = Call::new(lua, arguments);
        let result = operation(bits(&call, 1)?, bits(&call, 2)? & 31);
        Ok(f64::from(result.cast_signed()))
    })?;
    table.raw_set(name, function)
}

/// The last digits in base 16, in capitals where their count is negative.
fn hex(call: &Call<'_>) -> Result<String> {
    let bits_given = bits(call, 1)?;
    let count = if call.count() < 2 { HEX_DIGITS.cast_signed() } else { bits(call, 2)?.cast_signed() };
    let digits = if count < 0 { format!("{bits_given:08X}") } else { format!("{bits_given:08x}") };
    let kept = count.unsigned_abs().min(HEX_DIGITS) as usize;
    Ok(digits[digits.len() - kept..].to_owned())
}
