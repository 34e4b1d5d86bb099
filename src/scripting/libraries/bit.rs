//! `bit`: operations on integers of 32 bits, as in Lua BitOp 1.0.2.
//!
//! A number is rounded to the nearest integer, half to even, and taken modulo 2^32; results are signed. One
//! addition does both: a double plus 2^52 + 2^51 has the integer in its lower bits.

use mlua::{Lua, Result, Table};

use super::raise::{Call, add};

/// 2^52 + 2^51.
const ROUNDING: f64 = 6_755_399_441_055_744.0;
/// Hexadecimal digits of 32 bits.
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
    add(lua, &table, "tohex", hex)?;
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
    add(lua, table, name, move |call| Ok(f64::from(operation(bits(call, 1)?).cast_signed())))
}

/// A function of any number of arguments: it combines the first one with the others, beginning at the last.
fn all(lua: &Lua, table: &Table, name: &str, operation: fn(u32, u32) -> u32) -> Result<()> {
    add(lua, table, name, move |call| {
        let mut result = bits(call, 1)?;
        for position in (2..=call.count()).rev() {
            result = operation(result, bits(call, position)?);
        }
        Ok(f64::from(result.cast_signed()))
    })
}

/// A function of bits and a count of 0 to 31.
fn shift(lua: &Lua, table: &Table, name: &str, operation: fn(u32, u32) -> u32) -> Result<()> {
    add(lua, table, name, move |call| {
        let result = operation(bits(call, 1)?, bits(call, 2)? & 31);
        Ok(f64::from(result.cast_signed()))
    })
}

/// The last digits in base 16; in capitals if their count is negative.
fn hex(call: &Call<'_>) -> Result<String> {
    let bits_given = bits(call, 1)?;
    let count = if call.count() < 2 { HEX_DIGITS.cast_signed() } else { bits(call, 2)?.cast_signed() };
    let digits = if count < 0 { format!("{bits_given:08X}") } else { format!("{bits_given:08x}") };
    let kept = count.unsigned_abs().min(HEX_DIGITS) as usize;
    Ok(digits[digits.len() - kept..].to_owned())
}
