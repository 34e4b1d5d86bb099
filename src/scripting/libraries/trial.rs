//! Scripts on an interpreter that has the libraries and nothing else, for the tests of this folder. What the
//! libraries return is compared with Redis in `tests/commands/lua_libraries.rs`.

use mlua::{Lua, Value};

/// An interpreter with the libraries.
fn interpreter() -> mlua::Result<Lua> {
    let lua = Lua::new();
    super::catch_as_values(&lua)?;
    let globals = lua.globals();
    for (name, library) in super::all(&lua)? {
        globals.raw_set(name, library)?;
    }
    Ok(lua)
}

/// The text of what a script returns, or of the error that ends it.
pub(super) fn result_of(script: &str) -> String {
    let lua = interpreter().expect("an interpreter");
    let returned = lua.load(script).set_name("@user_script").eval::<Value>();
    let value = returned.or_else(|error| super::raise::value_of(&lua, &error));
    value.and_then(|value| value.to_string()).expect("a text")
}
