//! Texts and tables as redis-server 7.0.15 writes and reads them.

use crate::scripting::libraries::observed::compare;

#[test]
fn it_answers_as_redis_does() {
    compare(OBSERVED);
}

#[rustfmt::skip]
const OBSERVED: &[(&str, &str)] = &[
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

/// In tests a text may have one MiB.
#[test]
fn a_text_has_a_longest_length() {
    compare(&[
        ("return #cjson.encode(string.rep('\\0', 170000))", "true 1020002"),
        ("return cjson.encode(string.rep('\\0', 180000))", r#"false "user_script:1: not enough memory""#),
        (
            "local s = string.rep('x', 200000) return cjson.encode({s, s, {[s] = s}, s, s})",
            r#"false "user_script:1: not enough memory""#,
        ),
        (
            "local c = cjson.new() c.encode_sparse_array(true, 1, 2^31 - 1) return c.encode({[2^31 - 1] = 1})",
            r#"false "user_script:1: not enough memory""#,
        ),
    ]);
}

/// The deepest nesting, on a thread whose stack is a quarter of the server's threads'.
#[test]
fn a_thousand_levels_fit_on_a_small_stack() {
    let deep = "local t = {} for i = 1, 999 do t = i % 2 == 0 and {t} or {a = t} end return #cjson.encode(t)";
    let observed = [(deep, "true 4000")];
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(move || compare(&observed));
    thread.expect("a thread").join().expect("an answer");
}
