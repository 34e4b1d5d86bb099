//! The four libraries that Redis gives to its scripts: `bit`, `cjson`, `cmsgpack` and `struct`.
//!
//! Each file makes one table of functions. They return, print and fail as the C libraries of Redis 7.0 do,
//! because scripts compare texts. [`raise`] is how they fail: how a script sees the error of a Rust function,
//! and what the interpreter must do for that.
//!
//! Strings are bytes. No function here recurses deeper than a named limit, whatever a script passes, and none
//! reserves memory for a length that is only announced.

mod bit;
mod cjson;
mod cmsgpack;
mod raise;
mod structs;
#[cfg(test)]
mod trial;

use mlua::{Lua, Result, Table};

pub(super) use cjson::array_mark;
pub(super) use raise::{Call, catch_as_values, text_of, value_of};

/// The libraries, with the names under which scripts know them.
pub(super) fn all(lua: &Lua) -> Result<[(&'static str, Table); 4]> {
    Ok([
        ("bit", bit::bit(lua)?),
        ("cjson", cjson::cjson(lua)?),
        ("cmsgpack", cmsgpack::cmsgpack(lua)?),
        ("struct", structs::structs(lua)?),
    ])
}
