//! Compiles libraries, and has them register their functions.
//!
//! While a library is loaded it sees only a `redis` that can register functions and log, as in Redis: no Lua
//! library, no `pcall`, no command. Later its functions run in the same environment table, which then reads
//! through to another table. If a library keeps the `redis` of its loading, that stays as it was.
//!
//! New functions wait in a staging table until the caller calls [`Loader::make_callable`].

use std::collections::HashSet;
use std::sync::Arc;

use mlua::{Function, Lua, LuaString, MultiValue, Result, Table, Value};
use parking_lot::Mutex;

use super::ffi;
use super::libraries;
use super::raised::Raised;
use super::registered::{self, BYTES_MAX, FUNCTIONS_MAX};
use super::sandbox::{World, with_room};
use super::shebang::Flags;

/// The fields of `redis` while a library is loaded, besides `register_function`.
const OFFERED: &[&str] =
    &["log", "LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING", "REDIS_VERSION", "REDIS_VERSION_NUM"];
/// The name of the staging table for new functions.
const STAGED: &str = "functions that are being loaded";

/// Builds the environment of libraries. Returns the environment, its metatable, and the table that it reads
/// through to while a library is loaded.
const BUILD: &str = r#"
local seal, offered, real = ...
local error, tostring = error, tostring
local missing = { __index = function(_, name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end }
setmetatable(offered, missing)
local switch = { __index = real }
local environment = setmetatable({}, switch)
local while_loaded = setmetatable({ redis = offered, server = offered }, missing)
seal(environment)
seal(while_loaded)
return environment, switch, while_loaded
"#;

/// The functions of libraries, compiled.
#[derive(Debug)]
pub(super) struct Loader {
    lua: Lua,
    catch: Function,
    write: Function,
    /// The globals of libraries and their functions.
    environment: Table,
    /// The metatable of `environment`.
    switch: Table,
    /// The tables that `environment` reads through to: while a library is loaded, and afterwards.
    while_loaded: Table,
    afterwards: Table,
    /// The functions by name. This is a Lua table, because mlua cannot hold that many references.
    functions: Table,
    registration: Arc<Mutex<Option<Registration>>>,
}

/// The functions that the library has registered so far.
#[derive(Debug, Default)]
struct Registration {
    functions: Vec<registered::Function>,
    /// Their names in lower case.
    names: HashSet<String>,
    bytes: usize,
}

impl Loader {
    /// A loader without functions.
    pub(super) fn new(world: &World) -> Result<Loader> {
        let World { lua, globals, redis, catch, seal, write, .. } = world;
        let registration = Arc::new(Mutex::new(None));
        let offered = lua.create_table()?;
        for name in OFFERED {
            offered.raw_set(*name, redis.raw_get::<Value>(*name)?)?;
        }
        let registering = Arc::clone(&registration);
        let register = lua.create_function(move |lua, arguments| register(lua, &registering, &arguments))?;
        offered.raw_set("register_function", register)?;
        let (environment, switch, while_loaded) =
            lua.load(BUILD).set_name("=[C]").call((seal, offered, globals))?;
        Ok(Loader {
            lua: lua.clone(),
            catch: catch.clone(),
            write: write.clone(),
            environment,
            switch,
            while_loaded,
            afterwards: globals.clone(),
            functions: lua.create_table()?,
            registration,
        })
    }

    /// The function of this name.
    pub(super) fn function(&self, name: &str) -> Result<Function> {
        self.functions.raw_get(name)
    }

    /// Runs a library's code, and returns the functions that it registers.
    ///
    /// # Errors
    ///
    /// With the text of Redis.
    pub(super) fn load(&mut self, code: &[u8]) -> std::result::Result<Vec<registered::Function>, Vec<u8>> {
        *self.registration.lock() = Some(Registration::default());
        let loaded = self.call(code);
        let registration = self.registration.lock().take().unwrap_or_default();
        loaded.map(|()| registration.functions)
    }

    fn call(&self, code: &[u8]) -> std::result::Result<(), Vec<u8>> {
        let compiled = with_room(&self.lua, || {
            let chunk = self.lua.load(code).set_name("@user_function");
            chunk.set_environment(self.environment.clone()).into_function()
        });
        let library = compiled.map_err(|error| {
            ffi::set_ending(&self.lua, false);
            format!("ERR Error compiling function: {}", libraries::text_of(&error)).into_bytes()
        })?;
        let called = self.see(&self.while_loaded).and_then(|()| self.catch.call::<(bool, Value)>(library));
        ffi::set_ending(&self.lua, false);
        let called = self.see(&self.afterwards).and(called);
        let text = match called {
            Ok((true, _)) => return Ok(()),
            Ok((false, Value::Table(raised))) => raised.raw_get::<Option<LuaString>>("err").ok().flatten(),
            // There was not enough memory for a table with the error: the text has no code.
            Ok((false, Value::String(text))) => return Err(unregistered(&text.to_string_lossy())),
            Ok((false, Value::Error(error))) => return Err(unregistered(&libraries::text_of(&error))),
            Err(error) => match error.downcast_ref() {
                Some(Raised::Killed { why, .. }) => {
                    Some(self.lua.create_string(why)).transpose().ok().flatten()
                }
                _ => return Err(unregistered(&libraries::text_of(&error))),
            },
            Ok((false, _)) => None,
        };
        let text = text.map_or(b"ERR unknown error".to_vec(), |text| text.as_bytes().to_vec());
        Err([b"ERR Error registering functions: ", &text[..]].concat())
    }

    fn see(&self, globals: &Table) -> Result<()> {
        self.write.call((&self.switch, "__index", globals))
    }

    /// Makes exactly these functions callable: those that were just loaded, and old ones.
    ///
    /// # Errors
    ///
    /// If there is not enough memory. Nothing has changed then.
    pub(super) fn make_callable<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
    ) -> std::result::Result<(), Vec<u8>> {
        let make_callable = || {
            let staged = staged(&self.lua)?;
            let settled = self.lua.create_table()?;
            for name in names {
                let function = match staged.raw_get::<Value>(name)? {
                    Value::Nil => self.functions.raw_get(name)?,
                    function => function,
                };
                settled.raw_set(name, function)?;
            }
            self.functions = settled;
            Ok::<_, mlua::Error>(())
        };
        make_callable().map_err(|error| format!("ERR {}", libraries::text_of(&error)).into())
    }

    /// Makes only these functions callable, which were so before, and collects the others. Memory has no
    /// limit meanwhile: libraries that have used up all of it must be removable. It takes some dozens of
    /// bytes for each name.
    pub(super) fn keep_only<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let limit = self.lua.set_memory_limit(0);
        // A function that is not listed cannot be called, even if this fails.
        let _ = self.make_callable(names);
        self.collect();
        if let Ok(bytes) = limit {
            let _ = self.lua.set_memory_limit(bytes);
        }
    }

    /// Collects functions that are no longer callable.
    pub(super) fn collect(&mut self) {
        self.tidy_up();
        let _ = self.lua.gc_collect();
    }

    /// Drops functions that were loaded but not settled.
    pub(super) fn tidy_up(&mut self) {
        let _ = self.lua.unset_named_registry_value(STAGED);
    }
}

fn unregistered(why: &str) -> Vec<u8> {
    format!("ERR Error registering functions: ERR {why}").into()
}

/// The staging table.
fn staged(lua: &Lua) -> Result<Table> {
    if let Some(staged) = lua.named_registry_value(STAGED)? {
        return Ok(staged);
    }
    let staged = lua.create_table()?;
    lua.set_named_registry_value(STAGED, &staged)?;
    Ok(staged)
}

/// `redis.register_function`
fn register(lua: &Lua, registration: &Mutex<Option<Registration>>, arguments: &MultiValue) -> Result<()> {
    if registration.lock().is_none() {
        return Err(Raised::reply("ERR redis.register_function can only be called on FUNCTION LOAD command"));
    }
    let (function, callback) = match arguments.len() {
        1 => named(lua, &arguments[0])?,
        2 => positional(lua, &arguments[0], &arguments[1])?,
        _ => return Err(Raised::reply("ERR wrong number of arguments to redis.register_function")),
    };
    let registration = &mut *registration.lock();
    let registration = registration.get_or_insert_default();
    if !registration.names.insert(function.name.to_ascii_lowercase()) {
        return Err(Raised::reply("ERR Function already exists in the library"));
    }
    registration.bytes += function.bytes();
    if registration.functions.len() == FUNCTIONS_MAX || registration.bytes > BYTES_MAX {
        return Err(Raised::reply("ERR Too many functions in the library"));
    }
    staged(lua)?.raw_set(function.name.as_str(), callback)?;
    registration.functions.push(function);
    Ok(())
}

/// A string, or the text of a number.
fn text(lua: &Lua, value: &Value) -> Result<Option<Vec<u8>>> {
    let text = match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone())?,
        _ => None,
    };
    Ok(text.map(|text| text.as_bytes().to_vec()))
}

/// Reads the arguments `name, function`.
fn positional(lua: &Lua, name: &Value, callback: &Value) -> Result<(registered::Function, Function)> {
    let Some(name) = text(lua, name)? else {
        return Err(Raised::reply("ERR first argument to redis.register_function must be a string"));
    };
    let Value::Function(callback) = callback else {
        return Err(Raised::reply("ERR second argument to redis.register_function must be a function"));
    };
    let name = registered::valid_name(&name).map_err(Raised::reply)?;
    Ok((registered::Function { name, description: None, flags: Flags::default() }, callback.clone()))
}

/// Reads the argument table with named fields.
fn named(lua: &Lua, arguments: &Value) -> Result<(registered::Function, Function)> {
    let Value::Table(arguments) = arguments else {
        return Err(Raised::reply(
            "ERR calling redis.register_function with a single argument is only applicable to Lua table \
             (representing named arguments).",
        ));
    };
    let (mut name, mut callback, mut description, mut flags) = (None, None, None, Flags::default());
    for pair in arguments.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Some(key) = text(lua, &key)? else {
            return Err(Raised::reply(
                "ERR named argument key given to redis.register_function is not a string",
            ));
        };
        match key.to_ascii_lowercase().as_slice() {
            b"function_name" => name = Some(named_text(lua, "function_name", &value)?),
            b"description" => description = Some(named_text(lua, "description", &value)?),
            b"callback" => match value {
                Value::Function(function) => callback = Some(function),
                _ => {
                    return Err(Raised::reply(
                        "ERR callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => flags = flags_of(&value)?,
            _ => return Err(Raised::reply("ERR unknown argument given to redis.register_function")),
        }
    }
    let missing =
        |what: &str| Raised::reply(format!("ERR redis.register_function must get a {what} argument"));
    let name = name.ok_or_else(|| missing("function name"))?;
    let callback = callback.ok_or_else(|| missing("callback"))?;
    let name = registered::valid_name(&name).map_err(Raised::reply)?;
    Ok((registered::Function { name, description, flags }, callback))
}

fn named_text(lua: &Lua, name: &str, value: &Value) -> Result<Vec<u8>> {
    text(lua, value)?.ok_or_else(|| {
        Raised::reply(format!("ERR {name} argument given to redis.register_function must be a string"))
    })
}

fn flags_of(value: &Value) -> Result<Flags> {
    let Value::Table(names) = value else {
        return Err(Raised::reply(
            "ERR flags argument to redis.register_function must be a table representing function flags",
        ));
    };
    let mut flags = Flags::default();
    for name in names.sequence_values::<Value>() {
        let is_known = match name? {
            Value::String(name) => flags.set(&name.as_bytes().to_ascii_lowercase()),
            _ => false,
        };
        if !is_known {
            return Err(Raised::reply("ERR unknown flag given"));
        }
    }
    Ok(flags)
}
