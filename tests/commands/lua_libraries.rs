//! What the libraries of scripts return, and how they fail, as redis-server 7.0.15 does.

use support::server::Server;

/// Prints everything that the function `run` returns, or the error that it raises.
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
return all(pcall(run))
"#;

/// Runs scripts and compares their results with the observed ones.
fn compare(observed: &[(&str, &str)]) {
    let server = Server::start();
    let mut client = server.client();
    for (script, expected) in observed {
        let whole = format!("local function run() {script} end {PRINT}");
        assert_eq!(client.cmd(["EVAL", &whole, "0"]).text(), *expected, "{script}");
    }
}

marked!(also_redis: bits_are_combined_and_printed_as_in_redis);
fn bits_are_combined_and_printed_as_in_redis() {
    compare(BIT);
}

#[rustfmt::skip]
const BIT: &[(&str, &str)] = &[
    ("return bit.tobit(2^31)", "true -2147483648"),
    ("return bit.tobit(2^52+1)", "true 0"),
    (r#"return bit.tobit("0xff")"#, "true 255"),
    ("return bit.tobit(1.5)", "true 2"),
    ("return bit.tobit(2.5)", "true 2"),
    ("return bit.tobit(-0.5)", "true 0"),
    ("return bit.tobit(1/0)", "true 0"),
    ("return bit.bnot(0)", "true -1"),
    ("return bit.bswap(0x12345678)", "true 2018915346"),
    ("return bit.band(0xff, 0x0f, 7)", "true 7"),
    ("return bit.bor(1, 2, 4)", "true 7"),
    ("return bit.bxor(5, 1, -1)", "true -5"),
    ("return bit.lshift(1, 33)", "true 2"),
    ("return bit.rshift(-1, 28)", "true 15"),
    ("return bit.arshift(-256, 4)", "true -16"),
    ("return bit.rol(0x12345678, 8)", "true 878082066"),
    ("return bit.ror(0x12345678, 8)", "true 2014458966"),
    ("return bit.rol(7, 0)", "true 7"),
    ("return bit.tohex(255)", r#"true "000000ff""#),
    ("return bit.tohex(255, 2)", r#"true "ff""#),
    ("return bit.tohex(-1, -4)", r#"true "FFFF""#),
    ("return bit.tohex(1, 0)", r#"true """#),
    ("return bit.tohex(1, -2147483648)", r#"true "00000001""#),
    ("return bit.tohex(1, nil)", r#"false "user_script:1: bad argument #2 to 'tohex' (number expected, got nil)""#),
    ("return bit.band()", r#"false "user_script:1: bad argument #1 to 'band' (number expected, got no value)""#),
    (r#"return bit.band(1, "x", {})"#, r#"false "user_script:1: bad argument #3 to 'band' (number expected, got table)""#),
    ("return bit.band(nil)", r#"false "user_script:1: bad argument #1 to 'band' (number expected, got nil)""#),
    ("return bit:band()", r#"false "user_script:1: calling 'band' on bad self (number expected, got table)""#),
    ("local f = bit.rol return f(1)", r#"false "user_script:1: bad argument #2 to 'f' (number expected, got no value)""#),
    ("return pcall(bit.bnot, {})", r#"true false "bad argument #1 to '?' (number expected, got table)""#),
    ("local t = {deep = {f = bit.bnot}} t.deep.f()", r#"false "user_script:1: bad argument #1 to 'f' (number expected, got no value)""#),
    (r#"return xpcall(bit.bnot, function(e) return "<" .. e .. ">" end)"#, r#"true false "<bad argument #1 to '?' (number expected, got no value)>""#),
    ("return coroutine.resume(coroutine.create(function() bit.bnot() end))", r#"true false "user_script:1: bad argument #1 to 'bnot' (number expected, got no value)""#),
    ("local function f() return bit.bnot() end return f()", r#"false "user_script:1: bad argument #1 to 'bnot' (number expected, got no value)""#),
];

marked!(also_redis: cjson_writes_and_reads_as_in_redis);
fn cjson_writes_and_reads_as_in_redis() {
    compare(CJSON);
}

#[rustfmt::skip]
const CJSON: &[(&str, &str)] = &[
    ("return cjson.encode(nil)", r#"true "null""#),
    ("return cjson.encode(true)", r#"true "true""#),
    ("return cjson.encode(12)", r#"true "12""#),
    ("return cjson.encode(-0)", r#"true "-0""#),
    ("return cjson.encode(0.1)", r#"true "0.1""#),
    ("return cjson.encode(1/3)", r#"true "0.33333333333333""#),
    ("return cjson.encode(1e14)", r#"true "1e+14""#),
    ("return cjson.encode(1e15)", r#"true "1e+15""#),
    ("return cjson.encode(1e-5)", r#"true "1e-05""#),
    ("return cjson.encode(2^53)", r#"true "9.007199254741e+15""#),
    ("return cjson.encode(-1e300)", r#"true "-1e+300""#),
    (r#"return cjson.encode("")"#, r#"true """""#),
    (r#"return cjson.encode("a/\"\\\n\1\127\255")"#, r#"true ""a\/\"\\\n\u0001\u007f\255."""#),
    ("return cjson.encode({})", r#"true "{}""#),
    ("return cjson.encode({1, 2, 3})", r#"true "[1,2,3]""#),
    ("return cjson.encode({1, nil, 3})", r#"true "[1,null,3]""#),
    ("return cjson.encode({a = {b = {1}}})", r#"true "{"a":{"b":[1]}}""#),
    ("return cjson.encode({[1] = 1, [11] = 2})", r#"false "user_script:1: Cannot serialise table: excessively sparse array""#),
    ("return cjson.encode({[100] = 1})", r#"false "user_script:1: Cannot serialise table: excessively sparse array""#),
    ("return cjson.encode({[0] = 1})", r#"true "{"0":1}""#),
    ("return cjson.encode({[1.5] = 1})", r#"true "{"1.5":1}""#),
    ("return cjson.encode({[true] = 1})", r#"false "user_script:1: Cannot serialise boolean: table key must be a number or string""#),
    ("return cjson.encode({[2^31] = 1})", r#"true "{"2147483648":1}""#),
    ("return cjson.encode({[1/0] = 1})", r#"false "user_script:1: Cannot serialise number: must not be NaN or Inf""#),
    ("return cjson.encode({cjson.null})", r#"true "[null]""#),
    ("return cjson.encode(cjson.null)", r#"true "null""#),
    ("return cjson.encode(0/0)", r#"false "user_script:1: Cannot serialise number: must not be NaN or Inf""#),
    ("return cjson.encode(tostring)", r#"false "user_script:1: Cannot serialise function: type not supported""#),
    ("return cjson.encode({1, 2, a = 3})", r#"true "{"1":1,"2":2,"a":3}""#),
    ("return cjson.encode({x = 1, y = 2, z = 3, w = 4, v = 5})", r#"true "{"y":2,"x":1,"z":3,"w":4,"v":5}""#),
    ("return cjson.decode('1')", "true 1"),
    ("return cjson.decode('-')", r#"false "user_script:1: Expected value but found invalid number at character 1""#),
    ("return cjson.decode('+1')", "true 1"),
    ("return cjson.decode('1.5e3x')", r#"false "user_script:1: Expected the end but found invalid token at character 6""#),
    ("return cjson.decode('0x10')", "true 16"),
    ("return cjson.decode('0x1.8p3')", "true 12"),
    ("return cjson.decode('00012')", "true 12"),
    ("return cjson.decode('1e999')", "true inf"),
    ("return cjson.decode('-inf')", "true -inf"),
    ("return cjson.decode('NaN')", "true nan"),
    ("return cjson.decode('nan(a1)')", "true nan"),
    ("return cjson.decode('nul')", r#"false "user_script:1: Expected value but found invalid token at character 1""#),
    ("return cjson.decode('[]')", "true {}"),
    ("return cjson.decode('[1,]')", r#"false "user_script:1: Expected value but found T_ARR_END at character 4""#),
    ("return cjson.decode('[1 2]')", r#"false "user_script:1: Expected comma or array end but found T_NUMBER at character 4""#),
    ("return cjson.decode('{}')", "true {}"),
    (r#"return cjson.decode('{"a" 1}')"#, r#"false "user_script:1: Expected colon but found T_NUMBER at character 6""#),
    (r#"return cjson.decode('{"a":1,}')"#, r#"false "user_script:1: Expected object key string but found T_OBJ_END at character 8""#),
    (r#"return cjson.decode('{"a":{"b":[1,null]}}')"#, r#"true {["a"]={["b"]={[1]=1,[2]=null}}}"#),
    ("return cjson.decode('{1:2}')", r#"false "user_script:1: Expected object key string but found T_NUMBER at character 2""#),
    (r#"return cjson.decode('"a')"#, r#"false "user_script:1: Expected value but found unexpected end of string at character 3""#),
    (r#"return cjson.decode('"\\u00e9\\ud83d\\ude00"')"#, r#"true "\195.\169.\240.\159.\152.\128.""#),
    (r#"return cjson.decode('"\\ud83d"')"#, r#"false "user_script:1: Expected value but found invalid unicode escape code at character 2""#),
    (r#"return cjson.decode('"\\u12g4"')"#, r#"false "user_script:1: Expected value but found invalid unicode escape code at character 2""#),
    (r#"return cjson.decode('"\\x"')"#, r#"false "user_script:1: Expected value but found invalid escape code at character 2""#),
    (r#"return cjson.decode('1\0x')"#, r#"false "user_script:1: JSON parser does not support UTF-16 or UTF-32""#),
    (r#"return cjson.decode('\0\0')"#, r#"false "user_script:1: JSON parser does not support UTF-16 or UTF-32""#),
    (r#"return cjson.decode('"a\0"')"#, r#"false "user_script:1: Expected value but found unexpected end of string at character 3""#),
    ("return cjson.decode('x')", r#"false "user_script:1: Expected value but found invalid token at character 1""#),
    ("return cjson.decode('1 2')", r#"false "user_script:1: Expected the end but found T_NUMBER at character 3""#),
    ("return cjson.decode('[[[]]')", r#"false "user_script:1: Expected comma or array end but found T_END at character 6""#),
    ("return cjson.decode('')", r#"false "user_script:1: Expected value but found T_END at character 1""#),
    (r#"return cjson.decode('"\200\127"')"#, r#"true "\200.\127.""#),
    ("return cjson.decode()", r#"false "user_script:1: bad argument #1 to 'decode' (expected 1 argument)""#),
    ("return cjson.encode(1, 2)", r#"false "user_script:1: bad argument #1 to 'encode' (expected 1 argument)""#),
    ("return cjson.decode({})", r#"false "user_script:1: bad argument #1 to 'decode' (string expected, got table)""#),
    (r#"return pcall(cjson.decode, "x")"#, r#"true false "Expected value but found invalid token at character 1""#),
    ("return cjson.decode(12.5)", "true 12.5"),
    ("local c = cjson.new() return c.encode_sparse_array(true, 3, 5), c.encode({[7] = 1})", r#"true true "{"7":1}""#),
    ("return cjson.new().encode_sparse_array(true, -1)", r#"false "user_script:1: bad argument #1 to 'encode_sparse_array' (expected integer between 0 and 2147483647)""#),
    ("return cjson.new().encode_sparse_array(1, 2, 3, 4)", r#"false "user_script:1: bad argument #4 to 'encode_sparse_array' (found too many arguments)""#),
    ("return cjson.new().encode_max_depth(0)", r#"false "user_script:1: bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)""#),
    ("return cjson.new().encode_max_depth(2^32 + 5)", "true 5"),
    ("local c = cjson.new() c.encode_max_depth(1) return c.encode({{}})", r#"false "user_script:1: Cannot serialise, excessive nesting (2)""#),
    (r#"local c = cjson.new() c.decode_max_depth(2) return c.decode("[[[]]]")"#, r#"false "user_script:1: Found too many nested data structures (3) at character 3""#),
    ("local c = cjson.new() c.encode_number_precision(3) return c.encode({1/3, 1234567, 1e-7})", r#"true "[0.333,1.23e+06,1e-07]""#),
    ("return cjson.new().encode_number_precision(15)", r#"false "user_script:1: bad argument #1 to 'encode_number_precision' (expected integer between 1 and 14)""#),
    ("local c = cjson.new() c.encode_invalid_numbers(true) return c.encode({0/0, 1/0, -1/0})", r#"true "[nan,inf,-inf]""#),
    (r#"local c = cjson.new() c.encode_invalid_numbers("null") return c.encode({0/0, 1/0}), c.encode_invalid_numbers()"#, r#"true "[null,null]" "null""#),
    (r#"return cjson.new().encode_invalid_numbers("x")"#, r#"false "user_script:1: bad argument #1 to 'encode_invalid_numbers' (invalid option 'x')""#),
    (r#"local c = cjson.new() c.decode_invalid_numbers("off") return c.decode("0x10")"#, r#"false "user_script:1: Expected value but found invalid number at character 1""#),
    (r#"local c = cjson.new() c.decode_invalid_numbers("off") return c.decode("nan")"#, r#"false "user_script:1: Expected value but found invalid token at character 1""#),
    (r#"return cjson.new().encode_keep_buffer("off")"#, "true false"),
    ("return cjson._NAME, cjson._VERSION, type(cjson.null)", r#"true "cjson" "2.1.0" "userdata""#),
    ("local t = {} t[1] = t return cjson.encode(t)", r#"false "user_script:1: Cannot serialise, excessive nesting (1001)""#),
    ("local t = {} for i = 1, 999 do t = {a = t} end return #cjson.encode(t)", "true 5996"),
    (r#"return #cjson.decode(string.rep("[", 1000) .. string.rep("]", 1000))"#, "true 1"),
    (r#"return cjson.decode(string.rep("[", 1001))"#, r#"false "user_script:1: Found too many nested data structures (1001) at character 1001""#),
    (r#"return cjson.decode(string.rep("[", 100000))"#, r#"false "user_script:1: Found too many nested data structures (1001) at character 1001""#),
];

marked!(also_redis: cmsgpack_packs_and_unpacks_as_in_redis);
fn cmsgpack_packs_and_unpacks_as_in_redis() {
    compare(CMSGPACK);
}

#[rustfmt::skip]
const CMSGPACK: &[(&str, &str)] = &[
    ("return cmsgpack.pack(nil)", r#"true "\192.""#),
    ("return cmsgpack.pack(true)", r#"true "\195.""#),
    ("return cmsgpack.pack(0)", r#"true "\0.""#),
    ("return cmsgpack.pack(127)", r#"true "\127.""#),
    ("return cmsgpack.pack(128)", r#"true "\204.\128.""#),
    ("return cmsgpack.pack(255)", r#"true "\204.\255.""#),
    ("return cmsgpack.pack(256)", r#"true "\205.\1.\0.""#),
    ("return cmsgpack.pack(65536)", r#"true "\206.\0.\1.\0.\0.""#),
    ("return cmsgpack.pack(2^32)", r#"true "\207.\0.\0.\0.\1.\0.\0.\0.\0.""#),
    ("return cmsgpack.pack(2^63)", r#"true "\202._\0.\0.\0.""#),
    ("return cmsgpack.pack(-1)", r#"true "\255.""#),
    ("return cmsgpack.pack(-32)", r#"true "\224.""#),
    ("return cmsgpack.pack(-33)", r#"true "\208.\223.""#),
    ("return cmsgpack.pack(-129)", r#"true "\209.\255.\127.""#),
    ("return cmsgpack.pack(-32769)", r#"true "\210.\255.\255.\127.\255.""#),
    ("return cmsgpack.pack(-2^31 - 1)", r#"true "\211.\255.\255.\255.\255.\127.\255.\255.\255.""#),
    ("return cmsgpack.pack(-2^63)", r#"true "\211.\128.\0.\0.\0.\0.\0.\0.\0.""#),
    ("return cmsgpack.pack(1.5)", r#"true "\202.?\192.\0.\0.""#),
    ("return cmsgpack.pack(0.1)", r#"true "\203.?\185.\153.\153.\153.\153.\153.\154.""#),
    ("return cmsgpack.pack(1/0)", r#"true "\202.\127.\128.\0.\0.""#),
    ("return cmsgpack.pack(0/0)", r#"true "\203.\255.\248.\0.\0.\0.\0.\0.\0.""#),
    (r#"return cmsgpack.pack("")"#, r#"true "\160.""#),
    (r#"return cmsgpack.pack("abc")"#, r#"true "\163.abc""#),
    (r#"return cmsgpack.pack(string.rep("a", 32))"#, r#"true "\217. aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#),
    ("return cmsgpack.pack({})", r#"true "\144.""#),
    ("return cmsgpack.pack({1, 2})", r#"true "\146.\1.\2.""#),
    ("return cmsgpack.pack({1, nil, 3})", r#"true "\130.\1.\1.\3.\3.""#),
    ("return cmsgpack.pack({a = 1})", r#"true "\129.\161.a\1.""#),
    ("return cmsgpack.pack({[0] = 1})", r#"true "\129.\0.\1.""#),
    ("return cmsgpack.pack({[1.5] = 1})", r#"true "\129.\202.?\192.\0.\0.\1.""#),
    ("return cmsgpack.pack({tostring})", r#"true "\145.\192.""#),
    ("return cmsgpack.pack(cjson.null)", r#"true "\192.""#),
    (r#"return cmsgpack.pack(1, "a", {2})"#, r#"true "\1.\161.a\145.\2.""#),
    (r#"return #cmsgpack.pack(string.rep("a", 255))"#, "true 257"),
    (r#"return #cmsgpack.pack(string.rep("a", 256))"#, "true 259"),
    (r#"return #cmsgpack.pack(string.rep("a", 65536))"#, "true 65541"),
    (r#"return cmsgpack.unpack("\1\255\192\195")"#, "true 1 -1 nil true"),
    (r#"return cmsgpack.unpack("\203\63\248\0\0\0\0\0\0")"#, "true 1.5"),
    (r#"return cmsgpack.unpack("\202\63\192\0\0")"#, "true 1.5"),
    (r#"return cmsgpack.unpack("\207\255\255\255\255\255\255\255\254")"#, "true -2"),
    (r#"return cmsgpack.unpack("\206\255\255\255\255")"#, "true 4294967295"),
    (r#"return cmsgpack.unpack("\210\255\255\255\255")"#, "true -1"),
    (r#"return cmsgpack.unpack("\163abc")"#, r#"true "abc""#),
    (r#"return cmsgpack.unpack("\163ab")"#, r#"false "user_script:1: Missing bytes in input.""#),
    (r#"return cmsgpack.unpack("\217\2ab")"#, r#"true "ab""#),
    (r#"return cmsgpack.unpack("\218\0\2ab")"#, r#"true "ab""#),
    (r#"return cmsgpack.unpack("\219\255\255\255\255ab")"#, r#"false "user_script:1: Missing bytes in input.""#),
    (r#"return cmsgpack.unpack("\221\255\255\255\255\1")"#, r#"false "user_script:1: Missing bytes in input.""#),
    (r#"return cmsgpack.unpack("\223\255\255\255\255\1")"#, r#"false "user_script:1: Missing bytes in input.""#),
    (r#"return cmsgpack.unpack("\146\1\146\2\192")"#, "true {[1]=1,[2]={[1]=2}}"),
    (r#"return cmsgpack.unpack("\130\161a\1\161b\144")"#, r#"true {["a"]=1,["b"]={}}"#),
    (r#"return cmsgpack.unpack("\129\192\1")"#, r#"false "table index is nil""#),
    (r#"return cmsgpack.unpack("\129\203\127\248\0\0\0\0\0\0\1")"#, r#"false "table index is NaN""#),
    (r#"return cmsgpack.unpack("\193")"#, r#"false "user_script:1: Bad data format in input.""#),
    (r#"return cmsgpack.unpack("\199")"#, r#"false "user_script:1: Bad data format in input.""#),
    (r#"return cmsgpack.unpack("")"#, "true"),
    ("return cmsgpack.unpack()", r#"false "user_script:1: bad argument #1 to 'unpack' (string expected, got no value)""#),
    ("return cmsgpack.unpack({})", r#"false "user_script:1: bad argument #1 to 'unpack' (string expected, got table)""#),
    ("return cmsgpack.unpack(12)", "true 49 50"),
    (r#"return cmsgpack.unpack(string.rep("\145", 100000))"#, r#"false "user_script:1: stack overflow (in function mp_decode_to_lua_array)""#),
    (r#"return cmsgpack.unpack(string.rep("\1", 9000))"#, r#"false "user_script:1: stack overflow (too many return values at once; use unpack_one or unpack_limit instead.)""#),
    (r#"return cmsgpack.unpack_one("\1\2\3")"#, "true 1 1"),
    (r#"return cmsgpack.unpack_one("\1\2\3", 2)"#, "true -1 3"),
    (r#"return cmsgpack.unpack_one("\1\2\3", 3)"#, "true -1"),
    (r#"return cmsgpack.unpack_one("\1", 2)"#, r#"false "user_script:1: Start offset 2 greater than input length 1.""#),
    (r#"return cmsgpack.unpack_one("\1", -1)"#, r#"false "user_script:1: Invalid request to unpack with offset of -1 and limit of 1.""#),
    (r#"return cmsgpack.unpack_limit("\1\2\3", 2)"#, "true 2 1 2"),
    (r#"return cmsgpack.unpack_limit("\1\2\3", 1, 1)"#, "true 2 2"),
    (r#"return cmsgpack.unpack_limit("\1\2\3", 0, 0)"#, "true 1 2 3"),
    (r#"return cmsgpack.unpack_limit("\1")"#, r#"false "user_script:1: bad argument #2 to 'unpack_limit' (number expected, got no value)""#),
    (r#"return cmsgpack.unpack_limit("\1", -1)"#, r#"false "user_script:1: Invalid request to unpack with offset of 0 and limit of 1.""#),
    ("return cmsgpack.pack()", r#"false "user_script:1: bad argument #0 to 'pack' (MessagePack pack needs input.)""#),
    ("return pcall(cmsgpack.pack)", r#"true false "bad argument #0 to '?' (MessagePack pack needs input.)""#),
    ("local t = {} t[1] = t return cmsgpack.pack(t)", r#"true "\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\145.\192.""#),
    ("local t = {1} for i = 1, 20 do t = {a = t} end return cmsgpack.pack(t)", r#"true "\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\129.\161.a\192.""#),
    ("return cmsgpack._NAME, cmsgpack._VERSION, cmsgpack._COPYRIGHT, cmsgpack._DESCRIPTION", r#"true "cmsgpack" "lua-cmsgpack 0.4.0" "Copyright (C) 2012, Salvatore Sanfilippo" "MessagePack C implementation for Lua""#),
];

marked!(also_redis: struct_packs_and_unpacks_as_in_redis);
fn struct_packs_and_unpacks_as_in_redis() {
    compare(STRUCT);
}

#[rustfmt::skip]
const STRUCT: &[(&str, &str)] = &[
    (r#"return struct.pack("b", 200)"#, r#"true "\200.""#),
    (r#"return struct.pack(">h", -2)"#, r#"true "\255.\254.""#),
    (r#"return struct.pack("<i", 2^31)"#, r#"true "\0.\0.\0.\128.""#),
    (r#"return struct.pack(">l", -1)"#, r#"true "\255.\255.\255.\255.\255.\255.\255.\255.""#),
    (r#"return struct.pack("L", 2^63)"#, r#"true "\0.\0.\0.\0.\0.\0.\0.\128.""#),
    (r#"return struct.pack("L", 1e300)"#, r#"true "\0.\0.\0.\0.\0.\0.\0.\0.""#),
    (r#"return struct.pack("i3", 70000)"#, r#"true "p\17.\1.""#),
    (r#"return struct.pack(">i16", -1)"#, r#"true "\0.\0.\0.\0.\0.\0.\0.\0.\255.\255.\255.\255.\255.\255.\255.\255.""#),
    (r#"return struct.pack("i33", 1)"#, r#"false "user_script:1: integral size 33 is larger than limit of 32""#),
    (r#"return struct.pack("f", 0.1)"#, r#"true "\205.\204.\204.=""#),
    (r#"return struct.pack(">d", 1.5)"#, r#"true "?\248.\0.\0.\0.\0.\0.\0.""#),
    (r#"return struct.pack("!4 b i h", 1, 2, 3)"#, r#"true "\1.\0.\0.\0.\2.\0.\0.\0.\3.\0.""#),
    (r#"return struct.pack("!bd", 1, 2)"#, r#"true "\1.\0.\0.\0.\0.\0.\0.\0.\0.\0.\0.\0.\0.\0.\0.@""#),
    (r#"return struct.pack("!3", 1)"#, r#"false "user_script:1: alignment 3 is not a power of 2""#),
    (r#"return struct.pack("xs", "ab")"#, r#"true "\0.ab\0.""#),
    (r#"return struct.pack("c3", "abcdef")"#, r#"true "abc""#),
    (r#"return struct.pack("c0", "abc")"#, r#"true "abc""#),
    (r#"return struct.pack("c5", "abc")"#, r#"false "user_script:1: bad argument #3 to 'pack' (string too short)""#),
    (r#"return struct.pack("c2147483648", "a")"#, r#"false "user_script:1: integral size overflow""#),
    (r#"return struct.pack("b")"#, r#"false "user_script:1: bad argument #2 to 'pack' (number expected, got nil)""#),
    (r#"return struct.pack("b", "x")"#, r#"false "user_script:1: bad argument #2 to 'pack' (number expected, got string)""#),
    (r#"return struct.pack("s", {})"#, r#"false "user_script:1: bad argument #2 to 'pack' (string expected, got table)""#),
    (r#"return struct.pack("z", 1)"#, r#"false "user_script:1: bad argument #1 to 'pack' (invalid format option 'z')""#),
    (r#"return struct.pack("\200", 1)"#, r#"false "user_script:1: bad argument #1 to 'pack' (invalid format option '\200.')""#),
    (r#"return struct.pack("b\0z", 1)"#, r#"true "\1.""#),
    ("return struct.pack()", r#"false "user_script:1: bad argument #1 to 'pack' (string expected, got no value)""#),
    (r#"return struct.unpack("b", "\200")"#, "true -56 2"),
    (r#"return struct.unpack("B", "\200")"#, "true 200 2"),
    (r#"return struct.unpack(">h", "\255\254")"#, "true -2 3"),
    (r#"return struct.unpack("T", "\1\0\0\0\0\0\0\128")"#, "true 9.2233720368547758e+18 9"),
    (r#"return struct.unpack("i9", string.rep("\200", 9))"#, "true -56 10"),
    (r#"return struct.unpack(">i16", string.rep("\255", 16))"#, "true -1 17"),
    (r#"return struct.unpack("f", "\0\0\128\63")"#, "true 1 5"),
    (r#"return struct.unpack(">d", "\63\248\0\0\0\0\0\0")"#, "true 1.5 9"),
    (r#"return struct.unpack("!4bi", "abcdefgh")"#, "true 97 1751606885 9"),
    (r#"return struct.unpack("s", "ab\0c")"#, r#"true "ab" 4"#),
    (r#"return struct.unpack("s", "ab")"#, r#"false "user_script:1: unfinished string in data""#),
    (r#"return struct.unpack("Bc0", "\3abcd")"#, r#"true "abc" 5"#),
    (r#"return struct.unpack("Bc0", "\5abcd")"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.unpack("c0", "1")"#, r#"false "user_script:1: format 'c0' needs a previous size""#),
    (r#"return struct.unpack("c2x", "abc")"#, r#"true "ab" 4"#),
    (r#"return struct.unpack("i", "abc")"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.unpack("b", "abc", 3)"#, "true 99 4"),
    (r#"return struct.unpack("b", "abc", 4)"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.unpack("b", "abc", 0)"#, r#"false "user_script:1: bad argument #3 to 'unpack' (offset must be 1 or greater)""#),
    (r#"return struct.unpack("b", "abc", -1)"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.unpack("", "", -5)"#, "true -5"),
    (r#"return struct.unpack("!4i", "abcdefgh", -1)"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.unpack("c2147483647", "a")"#, r#"false "user_script:1: bad argument #2 to 'unpack' (data string too short)""#),
    (r#"return struct.size("!8 b d")"#, "true 16"),
    (r#"return struct.size("i5 c7 x")"#, "true 13"),
    (r#"return struct.size("s")"#, r#"false "user_script:1: bad argument #1 to 'size' (option 's' has no fixed size)""#),
    (r#"return struct.size("c0")"#, r#"false "user_script:1: bad argument #1 to 'size' (option 'c0' has no fixed size)""#),
    (r#"return struct.size("?")"#, r#"false "user_script:1: bad argument #1 to 'size' (invalid format option '?')""#),
    (r#"return struct.size("c2147483647c2147483647")"#, "true 4294967294"),
    (r#"return pcall(struct.unpack, string.rep("c", 9000), string.rep("a", 9000))"#, r#"true false "stack overflow (too many results)""#),
    (r#"return select('#', struct.unpack(string.rep("b", 7000), string.rep("a", 7000)))"#, "true 7001"),
];

marked!(also_redis: errors_of_libraries_are_caught_as_in_redis);
fn errors_of_libraries_are_caught_as_in_redis() {
    compare(ERRORS);
}

#[rustfmt::skip]
const ERRORS: &[(&str, &str)] = &[
    ("return pcall()", "true false \"attempt to call a boolean value\""),
    ("return pcall(error)", "true false nil"),
    ("return pcall(error, {err = 'x'})", "true false \"x\""),
    ("error({err = 'x'})", "false \"x\""),
    ("error({a = 1})", "false {[\"a\"]=1} nil"),
    ("return pcall(error, 'x', 1, 2)", "true false \"x\""),
    ("return select('#', pcall(tostring, 1))", "true 2"),
    ("local ok, e = pcall(cjson.decode, 'x') error(e)", "false \"user_script:1: Expected value but found invalid token at character 1\""),
    ("return xpcall(cjson.decode, function(e) return e:upper() end)", "true false \"BAD ARGUMENT #1 TO '?' (EXPECTED 1 ARGUMENT)\""),
    ("return coroutine.resume(coroutine.create(function() cjson.decode('x') end))", "true false \"user_script:1: Expected value but found invalid token at character 1\""),
    ("return coroutine.wrap(function() return 1, 2 end)()", "true 1 2"),
];
