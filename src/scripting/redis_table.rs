//! The table `redis` of scripts, without the functions that run commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::host::NoCommand;
use super::raised::Raised;
use super::{Digest, ffi};
use crate::resp::OwnedRequest;

/// The levels of `redis.log`.
const LEVELS: [(&str, i64); 4] =
    [("LOG_DEBUG", 0), ("LOG_VERBOSE", 1), ("LOG_NOTICE", 2), ("LOG_WARNING", 3)];
/// The arguments of `redis.set_repl`. They have no effect: nothing is replicated.
const REPLICATION: [(&str, i64); 5] =
    [("REPL_NONE", 0), ("REPL_AOF", 1), ("REPL_SLAVE", 2), ("REPL_REPLICA", 2), ("REPL_ALL", 3)];

/// Makes the table. `redis.setresp` changes `speaks_resp3`.
pub(super) fn build(lua: &Lua, speaks_resp3: &Arc<AtomicBool>) -> Result<Table> {
    let table = lua.create_table()?;
    for (name, value) in LEVELS.into_iter().chain(REPLICATION) {
        table.raw_set(name, value)?;
    }
    table.raw_set("REDIS_VERSION", crate::REDIS_VERSION)?;
    table.raw_set("REDIS_VERSION_NUM", version_number(crate::REDIS_VERSION))?;
    table.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    table.raw_set("log", lua.create_function(log)?)?;
    table.raw_set("error_reply", lua.create_function(error_reply)?)?;
    table.raw_set("status_reply", lua.create_function(status_reply)?)?;
    table.raw_set("acl_check_cmd", lua.create_function(acl_check_cmd)?)?;
    let speaks_resp3 = Arc::clone(speaks_resp3);
    let set_resp = move |lua: &Lua, arguments: MultiValue| setresp(lua, &speaks_resp3, arguments);
    table.raw_set("setresp", lua.create_function(set_resp)?)?;
    table.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    table.raw_set("set_repl", lua.create_function(set_repl)?)?;
    // There is no debugger: the script continues.
    table.raw_set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    table.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    Ok(table)
}

/// The version as a number with one byte per part.
fn version_number(version: &str) -> i64 {
    version.split('.').fold(0, |number, part| number << 8 | part.parse::<i64>().unwrap_or(0))
}

/// A string, or the text of a number.
fn text(lua: &Lua, value: Option<&Value>) -> Result<Option<LuaString>> {
    match value {
        Some(value @ (Value::String(_) | Value::Integer(_) | Value::Number(_))) => {
            lua.coerce_string(value.clone())
        }
        _ => Ok(None),
    }
}

/// A number, or a string that is one, without its fraction.
fn whole_number(lua: &Lua, value: Option<&Value>) -> Result<Option<i64>> {
    let number = value.map(|value| lua.coerce_number(value.clone())).transpose()?.flatten();
    // What is no number is no level, no version and no flag.
    Ok(number.map(|number| if number.is_nan() { i64::MIN } else { number as i64 }))
}

fn sha1hex(lua: &Lua, arguments: MultiValue) -> Result<LuaString> {
    if arguments.len() != 1 {
        return Err(Raised::reply("ERR wrong number of arguments"));
    }
    let text = text(lua, arguments.front())?;
    ffi::work(lua, text.as_ref().map_or(0, |text| text.as_bytes().len()))?;
    let digest = text.map_or_else(|| Digest::of(b""), |text| Digest::of(&text.as_bytes()));
    lua.create_string(digest.as_bytes())
}

fn log(lua: &Lua, arguments: MultiValue) -> Result<()> {
    if arguments.len() < 2 {
        return Err(Raised::reply("ERR redis.log() requires two arguments or more."));
    }
    let Some(level) = whole_number(lua, arguments.front())? else {
        return Err(Raised::reply("ERR First argument must be a number (log level)."));
    };
    let mut line = String::new();
    for value in arguments.iter().skip(1) {
        let Some(text) = text(lua, Some(value))? else { continue };
        if !line.is_empty() {
            line.push(' ');
        }
        escape_onto(&mut line, &text.to_string_lossy());
    }
    match level {
        0 => tracing::trace!("{line}"),
        1 => tracing::debug!("{line}"),
        2 => tracing::info!("{line}"),
        3 => tracing::warn!("{line}"),
        _ => return Err(Raised::reply("ERR Invalid log level.")),
    }
    Ok(())
}

/// Appends a text to a log line. It is escaped, so that it cannot begin another line or control a terminal.
fn escape_onto(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\t' => line.push(character),
            _ if character.is_control() => line.extend(character.escape_default()),
            _ => line.push(character),
        }
    }
}

/// A table with one field; the error table if the argument is no string.
fn field(lua: &Lua, name: &str, value: Option<&[u8]>) -> Result<Table> {
    let table = lua.create_table()?;
    match value {
        Some(value) => table.raw_set(name, lua.create_string(value)?)?,
        None => table.raw_set("err", "ERR wrong number or type of arguments")?,
    }
    Ok(table)
}

/// The only argument, if it is a string. As in Redis, a number is none here.
fn only_text(arguments: &MultiValue) -> Option<Vec<u8>> {
    match (arguments.len(), arguments.front()) {
        (1, Some(Value::String(text))) => Some(text.as_bytes().to_vec()),
        _ => None,
    }
}

/// A text of one word is a message without a code: it gets one.
fn error_reply(lua: &Lua, arguments: MultiValue) -> Result<Table> {
    let Some(text) = only_text(&arguments) else { return field(lua, "err", None) };
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    let text = text.strip_suffix(b"\r\n").unwrap_or(text);
    match text.contains(&b' ') {
        true => field(lua, "err", Some(text)),
        false => field(lua, "err", Some(&[b"ERR ", text].concat())),
    }
}

fn status_reply(lua: &Lua, arguments: MultiValue) -> Result<Table> {
    let text = only_text(&arguments);
    field(lua, "ok", text.as_deref())
}

fn setresp(lua: &Lua, speaks_resp3: &AtomicBool, arguments: MultiValue) -> Result<()> {
    if arguments.len() != 1 {
        return Err(Raised::reply("ERR redis.setresp() requires one argument."));
    }
    let version = whole_number(lua, arguments.front())?.filter(|version| (2..=3).contains(version));
    let Some(version) = version else {
        return Err(Raised::reply("ERR RESP version must be 2 or 3."));
    };
    speaks_resp3.store(version == 3, Ordering::Relaxed);
    Ok(())
}

fn set_repl(lua: &Lua, arguments: MultiValue) -> Result<()> {
    if arguments.len() != 1 {
        return Err(Raised::reply("ERR redis.set_repl() requires one argument."));
    }
    match whole_number(lua, arguments.front())? {
        // As in Redis, what is no number is none of the flags.
        None | Some(0..=3) => Ok(()),
        _ => Err(Raised::reply(
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
    }
}

fn acl_check_cmd(lua: &Lua, arguments: MultiValue) -> Result<bool> {
    if arguments.is_empty() {
        return Err(Raised::reply("ERR Please specify at least one argument for this redis lib call"));
    }
    let mut request = OwnedRequest::default();
    for argument in &arguments {
        let argument = text(lua, Some(argument))?;
        if !argument.is_some_and(|argument| request.push(&argument.as_bytes())) {
            return Err(Raised::reply(
                "ERR redis.acl_check_cmd() require all arguments to be strings or integers.",
            ));
        }
    }
    let may = ffi::with(|context| request.request().map(|request| context.host.may_call(request))).flatten();
    may.unwrap_or(Err(NoCommand::Unknown)).map_err(|why| {
        Raised::reply(match why {
            NoCommand::Unknown => "ERR Invalid command passed to redis.acl_check_cmd()",
            NoCommand::Arity => "ERR Wrong number of args for redis.acl_check_cmd()",
        })
    })
}
