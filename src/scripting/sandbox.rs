//! The environment of scripts.
//!
//! All scripts share one interpreter, so no script may leave anything for the next: shared tables are marked
//! as read-only, which our interpreter supports, as that of Redis does. The environment is a list of what is
//! allowed: of `os`, for instance, only the clock. `io` and `debug` are not even opened.

use std::sync::Arc;

use mlua::{Error, Function, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value};
use parking_lot::Mutex;

use super::ffi::{self, Runner};
use super::libraries::{self, Call};
use super::random::Random;

/// The Lua functions that scripts may call. Functions that reach files, processes, other environments or the
/// interpreter itself are missing.
const FUNCTIONS: &[&str] = &[
    "assert",
    "collectgarbage",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
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

/// Builds the environment. Its arguments: the globals of Lua, the names of those that scripts see, libraries,
/// and the function that makes a table read-only. It returns the globals of scripts, and a function that
/// seals a table with everything reachable from it.
const BUILD: &str = r#"
local globals, functions, libraries, seal_one = ...
local next, type, error, tostring, getmetatable = next, type, error, tostring, getmetatable

local sealed = {}
local function seal(table)
  if sealed[table] then return end
  sealed[table] = true
  for _, value in next, table do
    if type(value) == 'table' then seal(value) end
  end
  local metatable = getmetatable(table)
  if metatable then seal(metatable) end
  seal_one(table)
end

local world = setmetatable({}, { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end })
for _, name in ipairs(functions) do world[name] = globals[name] end
for name, library in pairs(libraries) do world[name] = library end
world._G = world
seal(world)
seal(getmetatable(''))
return world, seal
"#;

/// Runs its argument, and catches its errors with their place. The argument is a function of a library, or a
/// library that registers its functions. Neither sees anything that the last script has left behind.
const RUN: &str = "
local xpcall, note_place, given, write, globals = ...
return function(run)
    local keys, arguments = given()
    write(globals, 'KEYS', nil)
    write(globals, 'ARGV', nil)
    return xpcall(function() return run(keys, arguments) end, note_place)
  end,
  function(run) return xpcall(run, note_place) end
";

/// A new interpreter and the parts of its environment that the server needs.
pub(super) struct World {
    pub(super) lua: Lua,
    /// The globals of scripts, writable.
    pub(super) globals: Table,
    /// The table behind the global `redis`.
    pub(super) redis: Table,
    /// The compiled scripts by index.
    pub(super) compiled: Table,
    /// Runs scripts, and catches their errors.
    pub(super) runner: Runner,
    /// A Lua function that runs a function of a library, and catches its errors.
    pub(super) run_function: Function,
    /// A Lua function that calls a function without arguments, and catches its errors.
    pub(super) catch: Function,
    /// Makes a table read-only, with everything reachable from it.
    pub(super) seal: Function,
    /// Sets a field of a table that is read-only to scripts.
    pub(super) write: Function,
    /// Lua's own `next`.
    pub(super) next: Function,
}

/// Makes the environment around a table of the server's functions.
pub(super) fn build(redis: impl FnOnce(&Lua) -> Result<Table>) -> Result<World> {
    let lua = new_lua()?;
    let globals = lua.globals();
    let xpcall: Function = globals.raw_get("xpcall")?;
    libraries::catch_as_values(&lua)?;
    let redis = redis(&lua)?;
    let lent = ffi::functions(&lua)?;
    redis.raw_set("call", lent.call)?;
    redis.raw_set("pcall", lent.pcall)?;
    let math: Table = globals.raw_get("math")?;
    draw_from_random(&lua, &math)?;
    let shared = lua.create_table()?;
    let os = lua.create_table()?;
    os.raw_set("clock", globals.raw_get::<Table>("os")?.raw_get::<Function>("clock")?)?;
    shared.raw_set("os", os)?;
    for name in ["coroutine", "math", "string", "table"] {
        shared.raw_set(name, globals.raw_get::<Table>(name)?)?;
    }
    lent.seal.call::<()>(libraries::array_mark(&lua)?)?;
    for (name, library) in libraries::all(&lua)? {
        shared.raw_set(name, library)?;
    }
    shared.raw_set("redis", &redis)?;
    shared.raw_set("server", &redis)?;
    let note_place = lua.create_function(|lua, error: Value| note_place(lua, error))?;
    let functions = lua.create_sequence_from(FUNCTIONS.iter().copied())?;
    let (globals, seal): (Table, Function) =
        lua.load(BUILD).set_name("=[C]").call((globals, functions, shared, lent.seal))?;
    lua.set_globals(globals.clone())?;
    let compiled = lua.create_table()?;
    let runner = Runner::new(&lua, note_place.clone(), &compiled, &globals)?;
    let (run_function, catch) =
        lua.load(RUN).set_name("=[C]").call((xpcall, note_place, lent.given, &lent.write, &globals))?;
    let next = globals.raw_get("next")?;
    Ok(World { lua, globals, redis, compiled, runner, run_function, catch, seal, write: lent.write, next })
}

/// An interpreter with only those Lua libraries of which scripts may see something.
pub(super) fn new_lua() -> Result<Lua> {
    ffi::choose_secrets();
    // The default `pcall` and `xpcall` are our interpreter's; mlua's would catch the error that ends a
    // script.
    Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS, LuaOptions::new())
}

/// Runs `act`. If there is not enough memory, collects all garbage and runs it again. Lua itself collects
/// garbage when twice as much memory is in use as after the last time, which may be beyond the limit.
pub(super) fn with_room<T>(lua: &Lua, act: impl Fn() -> Result<T>) -> Result<T> {
    match act() {
        Err(Error::MemoryError(_)) => lua.gc_collect().and_then(|()| act()),
        result => result,
    }
}

/// Replaces the generator of the C library by that of Redis.
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

/// Turns a raised value into a table, unless it is one, and notes its place.
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
    let raised_by = place_of(lua, RAISED_BY);
    if let Some((source, line)) = raised_by {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// The place in the script at a level of the stack, or at the next level above that is a script.
pub(super) fn place_of(lua: &Lua, level: usize) -> Option<(String, usize)> {
    (level..level + LEVELS_MAX).find_map(|level| {
        let place = lua.inspect_stack(level, |caller| {
            let source = caller.source().source.map(|source| source.into_owned());
            (source.unwrap_or_default(), caller.current_line().unwrap_or(0))
        });
        place.filter(|(source, _)| ![NO_SCRIPT, NO_LONGER].contains(&source.as_str()))
    })
}

/// The stack level of the function that raised an error, seen from the function that notes it.
const RAISED_BY: usize = 1;
/// The most functions between an error and the script.
const LEVELS_MAX: usize = 8;
/// The source of C functions, and of Lua functions that replace some.
const NO_SCRIPT: &str = "=[C]";
/// The source of functions that have ended with a tail call.
const NO_LONGER: &str = "=(tail call)";

fn text_of(lua: &Lua, value: Value) -> Result<Vec<u8>> {
    let text: Option<LuaString> = match &value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone())?,
        _ => None,
    };
    Ok(match text {
        Some(text) => text.as_bytes().to_vec(),
        // The C library prints it this way for Lua.
        None if value.is_null() => b"userdata: (nil)".to_vec(),
        None => value.to_string()?.into_bytes(),
    })
}
