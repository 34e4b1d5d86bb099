//! Scripts, with the results that redis-server 7.0.15 gave.

use mlua::{Lua, LuaString};

/// Prints everything that a function returns, or the error that it raised.
const PRINT: &str = r#"
local function print(value)
  local kind = type(value)
  if kind == 'string' then
    return '"' .. value:gsub('[^%w%p ]', function(c) return string.format('\\%d.', c:byte()) end) .. '"'
  elseif kind == 'number' then
    return string.format('%.17g', value)
  elseif kind == 'table' then
    local members = {}
    for k, v in pairs(value) do members[#members + 1] = '[' .. print(k) .. ']=' .. print(v) end
    return '{' .. table.concat(members, ',') .. '}'
  elseif kind == 'userdata' then
    return value == cjson.null and 'null' or 'userdata'
  end
  return (tostring(value):gsub(':.*', ''))
end
local function all(...)
  local printed = {}
  for i = 1, select('#', ...) do printed[i] = print((select(i, ...))) end
  return table.concat(printed, ' ')
end
return all(pcall(...))
"#;

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

/// Runs scripts and compares their results with the expected ones.
pub(super) fn compare(observed: &[(&str, &str)]) {
    let lua = interpreter().expect("an interpreter");
    let print = lua.load(PRINT).set_name("@print").into_function().expect("a function");
    for (script, expected) in observed {
        let run = lua.load(*script).set_name("@user_script").into_function().expect(script);
        let answer: LuaString = print.call(run).expect(script);
        assert_eq!(answer.to_string_lossy(), *expected, "{script}");
    }
}

/// The error that ends a script which catches nothing.
pub(super) fn uncaught(script: &str) -> String {
    let lua = interpreter().expect("an interpreter");
    let error = lua.load(script).set_name("@user_script").exec().expect_err(script);
    super::raise::value_of(&lua, &error).and_then(|value| value.to_string()).expect("a text")
}
