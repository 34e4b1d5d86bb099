//! Errors that a Rust function raises in a script, as plain data.
//!
//! They are kept as bytes, not as Lua values. Otherwise a script that collects errors would fill mlua's table
//! of references, which holds some 8,000.

use std::fmt;

use mlua::{Error, Lua, Result, Value};

/// A raised error.
#[derive(Debug)]
pub(super) enum Raised {
    /// A string value.
    Text(Vec<u8>),
    /// The script must end: no code in it can catch this.
    Killed {
        /// The error for the client, from its code on.
        why: &'static str,
        /// The source and the line that ran.
        place: Option<(String, usize)>,
    },
    /// The error of a command or of a function of `redis`: a table with the field `err`.
    Reply {
        /// The error's text, from its code on.
        err: Vec<u8>,
        /// Whether it is a command's error, which has been counted.
        is_counted: bool,
    },
}

impl Raised {
    /// An error of a function of `redis`.
    pub(super) fn reply(text: impl Into<Vec<u8>>) -> Error {
        Error::external(Raised::Reply { err: text.into(), is_counted: false })
    }

    /// The value that a script sees.
    pub(super) fn to_value(&self, lua: &Lua) -> Result<Value> {
        match self {
            Raised::Text(text) => lua.create_string(text).map(Value::String),
            Raised::Killed { why, place } => {
                let table = lua.create_table()?;
                table.raw_set("err", *why)?;
                if let Some((source, line)) = place {
                    table.raw_set("source", source.as_str())?;
                    table.raw_set("line", *line)?;
                }
                Ok(Value::Table(table))
            }
            Raised::Reply { err, is_counted } => {
                let table = lua.create_table()?;
                table.raw_set("err", lua.create_string(err)?)?;
                if *is_counted {
                    table.raw_set("ignore_error_stats_update", true)?;
                }
                Ok(Value::Table(table))
            }
        }
    }
}

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raised::Text(text) | Raised::Reply { err: text, .. } => {
                formatter.write_str(&String::from_utf8_lossy(text))
            }
            Raised::Killed { why, .. } => formatter.write_str(why),
        }
    }
}

impl std::error::Error for Raised {}
