//! The world that scripts see.
//!
//! All scripts share one interpreter, so nothing that one does may be left for the next: what they share
//! cannot be written. Redis has tables for that which are marked as read-only in a Lua of its own. In the
//! original Lua a table can always be written (`rawset`, `table.insert`), so here what is shared stands
//! behind a userdata that reads through to it. It is a `userdata` to `type`, and `pairs` does not go over
//! it; all else is the same. The globals themselves stay a table, which scripts cannot get hold of.

use std::sync::Arc;

use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

use super::door::{self, Runner};
use super::libraries::{self, Call};
use super::random::Random;

/// Functions of Lua that scripts may call. Those that reach files, processes, other environments or the
/// interpreter itself are left out.
const FUNCTIONS: &[&str] = &[
    "assert",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
    "_VERSION",
];

/// Builds the world. It is given what is behind the shared names, and answers how to make something shared,
/// the globals as they really are, and as scripts see them.
///
/// Compiled code must not be loaded: Lua does not check it.
const BUILD: &str = r#"
local globals, functions, libraries = ...
local newproxy, getmetatable, setmetatable, error, tostring, type, loadstring, byte, concat =
  newproxy, getmetatable, setmetatable, error, tostring, type, loadstring, string.byte, table.concat

local function refuse() error('Attempt to modify a readonly table', 2) end

local function share(real)
  local shared = newproxy(true)
  local metatable = getmetatable(shared)
  metatable.__index = real
  metatable.__newindex = refuse
  metatable.__len = function() return #real end
  metatable.__metatable = false
  return shared
end

local real = setmetatable({}, { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end })
for _, name in ipairs(functions) do real[name] = globals[name] end
for name, library in pairs(libraries) do real[name] = share(library) end

local text_of_strings = getmetatable('')
text_of_strings.__index = real.string
text_of_strings.__metatable = share({ __index = real.string })

local function load_text(text, name)
  if type(text) == 'string' and byte(text) == 27 then
    return nil, "attempt to load a binary chunk"
  end
  return loadstring(text, name)
end
real.loadstring = load_text
real.load = function(read, name)
  local parts = {}
  while true do
    local part = read()
    if part == nil or part == '' then break end
    if type(part) ~= 'string' then return nil, 'reader function must return a string' end
    parts[#parts + 1] = part
  end
  return load_text(concat(parts), name or '=(load)')
end
-- What a script wants for itself alone: the others would have to do without.
local collect = globals.collectgarbage
local kept = { stop = true, restart = true, setpause = true, setstepmul = true }
real.collectgarbage = function(what, ...)
  if kept[what] then return 0 end
  return collect(what or 'collect', ...)
end
real._G = share(real)
return share, real, setmetatable({}, { __index = real, __newindex = refuse })
"#;

/// Runs what it is given, and catches what that raises, with the place where it did: a function of a library,
/// or a library that registers its functions. Neither sees what the last script has left behind.
const RUN: &str = "
local xpcall, note_place, given, globals = ...
return function(run)
    local keys, arguments = given()
    globals.KEYS, globals.ARGV = nil, nil
    return xpcall(function() return run(keys, arguments) end, note_place)
  end,
  function(run) return xpcall(run, note_place) end
";

/// A new interpreter and what one needs of its world.
pub(super) struct World {
    pub(super) lua: Lua,
    /// The globals, to be written.
    pub(super) globals: Table,
    /// Behind the global `redis`.
    pub(super) redis: Table,
    /// The scripts by their places.
    pub(super) compiled: Table,
    /// Runs the script that is given, and catches what it raises.
    pub(super) runner: Runner,
    /// The same for a function of a library, which is its argument.
    pub(super) run_function: Function,
    /// Calls a function without arguments and catches what it raises.
    pub(super) catch: Function,
    /// Makes something that can only be read.
    pub(super) share: Function,
}

/// Makes a world around a table of the server's own functions.
pub(super) fn build(redis: impl FnOnce(&Lua) -> Result<Table>) -> Result<World> {
    let lua = Lua::new();
    let globals = lua.globals();
    let xpcall: Function = globals.raw_get("xpcall")?;
    libraries::catch_as_values(&lua)?;
    let redis = redis(&lua)?;
    let doors = door::functions(&lua)?;
    redis.raw_set("call", doors.call)?;
    redis.raw_set("pcall", doors.pcall)?;
    let math: Table = globals.raw_get("math")?;
    draw_from_random(&lua, &math)?;
    let shared = lua.create_table()?;
    for name in ["coroutine", "math", "string", "table"] {
        shared.raw_set(name, globals.raw_get::<Table>(name)?)?;
    }
    shared.raw_set("bit", libraries::bit(&lua)?)?;
    shared.raw_set("cjson", libraries::cjson(&lua)?)?;
    shared.raw_set("cmsgpack", libraries::cmsgpack(&lua)?)?;
    shared.raw_set("struct", libraries::structs(&lua)?)?;
    shared.raw_set("redis", &redis)?;
    shared.raw_set("server", &redis)?;
    let note_place = lua.create_function(|lua, error: Value| note_place(lua, error))?;
    let functions = lua.create_sequence_from(FUNCTIONS.iter().copied())?;
    let built: (Function, Table, Table) =
        lua.load(BUILD).set_name("=[C]").call((globals, functions, shared))?;
    let (share, globals, seen) = built;
    lua.set_globals(seen)?;
    let compiled = lua.create_table()?;
    let runner = Runner::new(&lua, note_place.clone(), &compiled, &globals)?;
    let (run_function, catch) =
        lua.load(RUN).set_name("=[C]").call((xpcall, note_place, doors.given, &globals))?;
    Ok(World { lua, globals, redis, compiled, runner, run_function, catch, share })
}

/// Puts the generator of Redis in the place of that of the C library.
fn draw_from_random(lua: &Lua, math: &Table) -> Result<()> {
    let random = Arc::new(Mutex::new(Random::default()));
    let drawn_from = Arc::clone(&random);
    let draw = lua.create_function(move |lua, arguments: MultiValue| {
        let call = Call::new(lua, arguments);
        let drawn = drawn_from.lock().next();
        match call.count() {
            0 => Ok(drawn),
            1 => {
                let last = call.integer(1)?;
                if last < 1 {
                    return Err(call.bad_argument(1, b"interval is empty"));
                }
                Ok((drawn * last as f64).floor() + 1.0)
            }
            2 => {
                let (first, last) = (call.integer(1)?, call.integer(2)?);
                if first > last {
                    return Err(call.bad_argument(2, b"interval is empty"));
                }
                let width = last.wrapping_sub(first).wrapping_add(1);
                Ok((drawn * width as f64).floor() + first as f64)
            }
            _ => Err(call.error(b"wrong number of arguments")),
        }
    })?;
    math.raw_set("random", draw)?;
    let seed = lua.create_function(move |lua, arguments: MultiValue| {
        let seed = Call::new(lua, arguments).integer(1)?;
        random.lock().seed(seed as i32);
        Ok(())
    })?;
    math.raw_set("randomseed", seed)
}

/// Makes a table of what was raised, unless it is one, and notes where that was.
fn note_place(lua: &Lua, error: Value) -> Result<Value> {
    let error = match error {
        Value::Error(error) => libraries::value_of(lua, &error)?,
        other => other,
    };
    let table = match error {
        Value::Table(table) => table,
        other => {
            let table = lua.create_table()?;
            let text = [b"ERR ".to_vec(), text_of(lua, other)?].concat();
            table.raw_set("err", lua.create_string(text)?)?;
            table
        }
    };
    // Whoever raised it; where that was no script, whoever called it.
    let place = |level: usize| {
        let place = lua.inspect_stack(level, |caller| {
            let source = caller.source().source.map(|source| source.into_owned());
            (source.unwrap_or_default(), caller.current_line().unwrap_or(0))
        });
        place.filter(|(source, _)| ![NO_SCRIPT, NO_LONGER].contains(&source.as_str()))
    };
    let raised_by = (RAISED_BY..RAISED_BY + LEVELS_MAX).find_map(place);
    if let Some((source, line)) = raised_by {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// How far up the stack whoever raised an error is: above the function that notes it.
const RAISED_BY: usize = 1;
/// How many functions that are no scripts may be between an error and the script.
const LEVELS_MAX: usize = 4;
/// The source of functions in C, and of those in Lua that stand for some.
const NO_SCRIPT: &str = "=[C]";
/// The source of functions that have ended with a call.
const NO_LONGER: &str = "=(tail call)";

fn text_of(lua: &Lua, value: Value) -> Result<Vec<u8>> {
    let text: Option<LuaString> = match &value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone())?,
        _ => None,
    };
    Ok(match text {
        Some(text) => text.as_bytes().to_vec(),
        None => value.to_string()?.into_bytes(),
    })
}
