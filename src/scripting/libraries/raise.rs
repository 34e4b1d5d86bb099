//! Errors like those that a C function of Lua raises.
//!
//! `luaL_error` raises a string. If a Lua function called, the string begins with the place of the call
//! (`user_script:1: `). `luaL_argerror` adds the number of the argument and the name under which the function
//! was called. A [`Call`] makes the same texts from the interpreter's stack at the moment of the error. A Lua
//! wrapper around the function could not: `return cjson.decode(x)` is a tail call, which would remove the
//! caller, and with it the place, from the stack before the wrapper runs.
//!
//! mlua raises the error of a Rust function as a userdata, which contains the text as a [`Raised`]. Two
//! conversions turn it into the string that a script expects. [`catch_as_values`] replaces `pcall`, `xpcall`
//! and `coroutine.resume` by functions that return strings. [`value_of`] is for the code that runs the whole
//! script. `coroutine.wrap` passes such an error on unchanged to one of the two; it does not prefix its own
//! place, as it does with strings.

use std::cell::Cell;

use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::scripting::ffi;
use crate::scripting::raised::Raised;

/// The stack level of the caller of a library's function.
const CALLER: usize = 1;
/// The stack level of the function itself.
const FUNCTION: usize = 0;

/// The most values that a C function may have on the stack of Lua 5.1. A call for which the C library would
/// need more fails.
pub(super) const STACK_SLOTS_MAX: usize = 8_000;

/// The arguments of a call, numbered from 1.
pub(in crate::scripting) struct Call<'a> {
    /// The interpreter that makes the call.
    pub(super) lua: &'a Lua,
    arguments: MultiValue,
    /// Work that is not counted yet, in instructions of a script.
    uncounted_units: Cell<usize>,
}

/// Adds a function to the table of a library.
///
/// # Errors
///
/// If memory is short.
pub(super) fn add<R: IntoLuaMulti>(
    lua: &Lua,
    table: &Table,
    name: &str,
    function: impl Fn(&Call<'_>) -> Result<R> + 'static,
) -> Result<()> {
    let function = lua.create_function(move |lua, arguments| function(&Call::new(lua, arguments)))?;
    table.raw_set(name, function)
}

/// The most uncounted work, in instructions of a script.
const UNCOUNTED_UNITS_MAX: usize = 2_000;

impl<'a> Call<'a> {
    /// A call with these arguments. To be made within the function.
    pub(in crate::scripting) fn new(lua: &'a Lua, arguments: MultiValue) -> Call<'a> {
        Call { lua, arguments, uncounted_units: Cell::new(0) }
    }

    /// Counts work, in instructions of a script. So a killed script ends within the function, too.
    ///
    /// # Errors
    ///
    /// If the script must end.
    pub(super) fn work(&self, units: usize) -> Result<()> {
        let units = self.uncounted_units.get() + units;
        if units <= UNCOUNTED_UNITS_MAX {
            self.uncounted_units.set(units);
            return Ok(());
        }
        self.uncounted_units.set(0);
        ffi::work(self.lua, units)
    }

    /// Counts the work of copying so many bytes.
    ///
    /// # Errors
    ///
    /// If the script must end.
    pub(super) fn work_on(&self, bytes: usize) -> Result<()> {
        self.work(1 + bytes / ffi::UNIT_BYTES)
    }

    /// The number of arguments, with those that are nil.
    pub(in crate::scripting) fn count(&self) -> usize {
        self.arguments.len()
    }

    /// An argument; nil if it is missing.
    pub(super) fn value(&self, position: usize) -> &Value {
        self.arguments.get(position - 1).unwrap_or(&Value::Nil)
    }

    /// A number, or a string that reads as one.
    pub(super) fn number(&self, position: usize) -> Result<f64> {
        match self.lua.coerce_number(self.value(position).clone())? {
            Some(number) => Ok(number),
            None => Err(self.wrong_type(position, "number")),
        }
    }

    /// A number without its fraction.
    pub(in crate::scripting) fn integer(&self, position: usize) -> Result<i64> {
        self.number(position).map(truncate)
    }

    /// A number without its fraction, or `default` for nil or a missing argument.
    pub(super) fn integer_or(&self, position: usize, default: i64) -> Result<i64> {
        if self.value(position).is_nil() { Ok(default) } else { self.integer(position) }
    }

    /// A string, or the text of a number.
    pub(super) fn string(&self, position: usize) -> Result<LuaString> {
        match self.lua.coerce_string(self.value(position).clone())? {
            Some(string) => Ok(string),
            None => Err(self.wrong_type(position, "string")),
        }
    }

    /// The position of a string among the allowed ones.
    pub(super) fn option(&self, position: usize, options: &[&str]) -> Result<usize> {
        let given = self.string(position)?;
        let given = given.as_bytes();
        let given = given.split(|byte| *byte == 0).next().unwrap_or_default();
        let found = options.iter().position(|option| option.as_bytes() == given);
        found.ok_or_else(|| self.bad_argument(position, &[b"invalid option '", given, b"'"].concat()))
    }

    /// The error of an argument that has the wrong type.
    pub(super) fn wrong_type(&self, position: usize, expected: &str) -> Error {
        let found = if position > self.count() { "no value" } else { type_name(self.value(position)) };
        self.bad_argument(position, format!("{expected} expected, got {found}").as_bytes())
    }

    /// The error of an argument, like that of `luaL_argerror`.
    pub(in crate::scripting) fn bad_argument(&self, position: usize, what: &[u8]) -> Error {
        let names = self.lua.inspect_stack(FUNCTION, |function| {
            let names = function.names();
            (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
        });
        let (name, is_method) = names.unwrap_or_default();
        let name = name.as_deref().unwrap_or("?");
        let beginning = match position.checked_sub(usize::from(is_method)) {
            Some(0) if is_method => format!("calling '{name}' on bad self ("),
            position => format!("bad argument #{} to '{name}' (", position.unwrap_or(0)),
        };
        self.error(&[beginning.as_bytes(), what, b")"].concat())
    }

    /// An error like that of `luaL_error`.
    pub(in crate::scripting) fn error(&self, text: &[u8]) -> Error {
        let place = self.lua.inspect_stack(CALLER, |caller| {
            let source = caller.source().short_src.map(|source| source.into_owned());
            let line = caller.current_line().filter(|line| *line > 0);
            line.map(|line| format!("{}:{line}: ", source.unwrap_or_default()))
        });
        let place = place.flatten().unwrap_or_default();
        Error::external(Raised::Text([place.as_bytes(), text].concat()))
    }

    /// An error that Lua itself raises within a C function: it has no place.
    pub(super) fn error_of_lua(&self, text: &[u8]) -> Error {
        Error::external(Raised::Text(text.to_vec()))
    }
}

/// The name of a value's type in Lua.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::LightUserData(_) | Value::Error(_) | Value::Other(_) => "userdata",
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}

/// The 64-bit signed integer that x86 makes of a double, also of one that is too large.
pub(super) fn truncate(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

/// The value that a script would catch if C code had raised the error.
pub(in crate::scripting) fn value_of(lua: &Lua, error: &Error) -> Result<Value> {
    match error.downcast_ref::<Raised>() {
        Some(raised) => raised.to_value(lua),
        None => lua.create_string(text_of(error)).map(Value::String),
    }
}

/// The text of an error that Lua or mlua raised.
pub(in crate::scripting) fn text_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => text_of(cause),
        // mlua appends a stack trace to the text.
        Error::RuntimeError(text) => text.split("\nstack traceback:\n").next().unwrap_or_default().to_owned(),
        Error::SyntaxError { message, .. } => message.clone(),
        Error::MemoryError(_) => "not enough memory".to_owned(),
        Error::StackError => "stack overflow".to_owned(),
        other => other.to_string(),
    }
}

/// The replacements of `pcall`, `xpcall` and `coroutine.resume`. The `pcall` of Redis replaces a raised table
/// by its field `err`. If there is none, it returns the table and the field's value.
const CATCHING: &str = "
local pcall, xpcall, resume, value_of, type, select = ...
local function handed(ok, ...)
  if ok or type((...)) ~= 'userdata' then return ok, ... end
  return ok, value_of((...))
end
local function opened(ok, ...)
  if ok then return ok, ... end
  local e = ...
  if type(e) == 'userdata' then e = value_of(e) end
  if type(e) ~= 'table' then return ok, e end
  local err = e.err
  if type(err) == 'string' or type(err) == 'number' then return ok, err end
  return ok, e, err
end
return function(...)
    if select('#', ...) == 0 then return false, 'attempt to call a boolean value' end
    return opened(pcall(...))
  end,
  function(run, handle)
    return xpcall(run, function(e)
      if type(e) == 'userdata' then e = value_of(e) end
      return handle(e)
    end)
  end,
  function(...) return handed(resume(...)) end
";

/// Makes `pcall`, `xpcall` and `coroutine.resume` return strings for errors of Rust functions, and makes
/// `pcall` treat raised tables as in Redis.
pub(in crate::scripting) fn catch_as_values(lua: &Lua) -> Result<()> {
    let globals = lua.globals();
    let coroutines: Table = globals.get("coroutine")?;
    let value_of = lua.create_function(|lua, value: Value| match value {
        Value::Error(error) => value_of(lua, &error),
        other => Ok(other),
    })?;
    let functions = (
        globals.get::<Value>("pcall")?,
        globals.get::<Value>("xpcall")?,
        coroutines.get::<Value>("resume")?,
        value_of,
        globals.get::<Value>("type")?,
        globals.get::<Value>("select")?,
    );
    let caught: (Value, Value, Value) = lua.load(CATCHING).set_name("=[C]").call(functions)?;
    globals.raw_set("pcall", caught.0)?;
    globals.raw_set("xpcall", caught.1)?;
    coroutines.raw_set("resume", caught.2)
}

#[cfg(test)]
mod tests {
    use crate::scripting::libraries::trial::result_of;

    #[test]
    fn an_error_that_nothing_catches_has_its_place() {
        let text = result_of("local a = 1\nreturn cjson.decode('x')");
        assert_eq!(text, "user_script:2: Expected value but found invalid token at character 1");
        assert_eq!(result_of("\nerror('of a script')"), "user_script:2: of a script");
    }

    /// A script that keeps its errors must not use up mlua's references.
    #[test]
    fn twenty_thousand_errors_may_be_kept() {
        let script = "local e = {} for i = 1, 20000 do e[i] = {pcall(cjson.decode, 'x')} end return #e";
        assert_eq!(result_of(script), "20000");
    }
}
