//! The four libraries that Redis gives to its scripts: `bit`, `cjson`, `cmsgpack` and `struct`.
//!
//! Each file makes one table of functions that answer, print and fail as the C library of Redis 7.0 does,
//! since scripts compare texts. [`raise`] is how they fail: it says what an error of a function in Rust looks
//! like to a script, and what the interpreter must do for that.
//!
//! Strings are bytes. Nothing here recurses deeper than a named limit, whatever a script hands in, and
//! nothing reserves memory for a length that was only announced.

mod bit;
mod cjson;
mod cmsgpack;
#[cfg(test)]
mod observed;
mod raise;
mod structs;

pub(super) use bit::bit;
pub(super) use cjson::cjson;
pub(super) use cmsgpack::cmsgpack;
pub(super) use raise::{Call, catch_as_values, text_of, value_of};
pub(super) use structs::structs;
