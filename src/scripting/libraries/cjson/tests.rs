//! The limits of texts: their length, and how deep they nest.

use crate::scripting::libraries::trial::result_of;

/// In tests a text may have one MiB.
#[test]
fn a_text_has_a_longest_length() {
    assert_eq!(result_of("return #cjson.encode(string.rep('\\0', 170000))"), "1020002");
    for script in [
        "return cjson.encode(string.rep('\\0', 180000))",
        "local s = string.rep('x', 200000) return cjson.encode({s, s, {[s] = s}, s, s})",
        "local c = cjson.new() c.encode_sparse_array(true, 1, 2^31 - 1) return c.encode({[2^31 - 1] = 1})",
    ] {
        assert_eq!(result_of(script), "user_script:1: not enough memory", "{script}");
    }
}

/// The deepest nesting, on a thread whose stack is a quarter of the server's threads'.
#[test]
fn a_thousand_levels_fit_on_a_small_stack() {
    let deep = "local t = {} for i = 1, 999 do t = i % 2 == 0 and {t} or {a = t} end return #cjson.encode(t)";
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(move || result_of(deep));
    assert_eq!(thread.expect("a thread").join().expect("an answer"), "4000");
}
