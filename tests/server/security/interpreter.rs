//! Section A: the interpreter of scripts.

use std::time::Instant;

use support::client::{Client, Reply, request};
use support::server::{PATIENCE, Server, is_redis};

/// A server whose scripts are slow after 50 ms.
fn impatient() -> Server {
    Server::start_with(&["--busy-reply-threshold", "50"])
}

/// What a script replies, in the form of redis-cli.
#[track_caller]
fn eval(client: &mut Client, script: impl AsRef<[u8]>) -> String {
    client.cmd([&b"EVAL"[..], script.as_ref(), b"0"]).reply().to_string()
}

/// The error that a script ends with, without its name and place.
#[track_caller]
fn error_of(client: &mut Client, script: impl AsRef<[u8]>) -> String {
    let reply = eval(client, script.as_ref());
    let text = reply.strip_prefix("(error) ").unwrap_or_else(|| panic!("no error: {reply}"));
    text.split(" script: ").next().unwrap_or_default().to_owned()
}

/// The server replies to this client and to a new one.
#[track_caller]
fn lives(server: &Server, client: &mut Client) {
    client.line("PING").is_simple("PONG");
    server.client().line("PING").is_simple("PONG");
}

/// Runs a script until it is slow, kills it, and checks that it ends, whatever it catches.
#[track_caller]
fn is_killed(server: &Server, script: &str) {
    let (mut runner, mut client) = (server.client(), server.client());
    runner.send(&request(["EVAL", script, "0"]));
    kill(&mut client, "SCRIPT KILL", script);
    let Reply::Error(text) = runner.reply().reply() else { panic!("{script} was not killed") };
    assert!(text.contains("Script killed by user with SCRIPT KILL"), "{script}: {text}");
    lives(server, &mut runner);
}

/// Kills what runs once it is slow.
#[track_caller]
fn kill(client: &mut Client, command: &str, script: &str) {
    let started = Instant::now();
    while !matches!(client.line("GET x").reply(), Reply::Error(text) if text.starts_with("BUSY ")) {
        assert!(started.elapsed() < PATIENCE, "{script} is not slow");
    }
    client.line(command).is_ok();
}

/// Loads a library of these lines; returns its name, or the error.
#[track_caller]
fn load(client: &mut Client, code: &str) -> String {
    client.cmd(["FUNCTION", "LOAD", "REPLACE", &format!("#!lua name=lib\n{code}")]).text()
}

#[test]
fn a1_the_name_of_a_chunk_lives_as_long_as_its_parser() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["", ", 'name'", ", ('x'):rep(200)", ", 'a\\0b'"] {
        let script = format!(
            "local n = 0 local f, e = load(function() n = n + 1 if n == 2 then collectgarbage() \
             collectgarbage() local t = {{}} for i = 1, 5000 do t[i] = 'AAAAAAA' .. i end return '=' end \
             end{name}) return {{tostring(f), tostring(e), n}}"
        );
        let reply = eval(&mut client, script);
        let is_function = reply.starts_with("[\"function");
        let names = ["(load)", "name", "x", "a"].map(|name| format!("[\"nil\", \"[string \\\"{name}"));
        let is_error = reply.contains(":1: unexpected symbol near '='");
        assert!(is_function || is_error && !reply.contains("AAAA"), "{names:?} {reply}");
    }
    // A library has no `load` while it is loaded.
    assert!(load(&mut client, "load(function() end)").contains("nonexistent global variable 'load'"));
    lives(&server, &mut client);
}

#[test]
fn a2_unpack_counts_its_results_without_overflow() {
    let server = Server::start();
    let mut client = server.client();
    let ranges = [
        "-2, 2147483647",
        "0, 2147483647",
        "-1, 2147483646",
        "-2147483648, 0",
        "-2147483648, -1",
        "-2147483648, -2",
        "-2147483648, 2147483647",
    ];
    for range in ranges {
        for script in [
            format!("return {{unpack({{1, 2, 3}}, {range})}}"),
            format!(
                "local ok, e = pcall(unpack, {{1, 2, 3}}, {range}) return redis.error_reply('ERR ' .. e)"
            ),
            format!("return coroutine.wrap(function() return unpack({{1, 2, 3}}, {range}) end)()"),
        ] {
            let error = error_of(&mut client, &script);
            assert!(error.ends_with("too many results to unpack"), "{script}: {error}");
            let reply = client.cmd(["EVAL_RO", &script, "0"]).text();
            assert!(reply.contains("too many results to unpack"), "{script}: {reply}");
        }
        let function = format!("redis.register_function('f', function() return unpack({{}}, {range}) end)");
        load(&mut client, &function);
        assert!(client.line("FCALL f 0").text().contains("too many results to unpack"));
    }
    assert_eq!(eval(&mut client, "return select('#', unpack({}, 2147483646, 2147483647))"), "(integer) 2");
    assert_eq!(eval(&mut client, "return select('#', unpack({1, 2, 3}, -1, -2))"), "(integer) 0");
    assert_eq!(eval(&mut client, "return select('#', unpack({1}, -2147483648, -2147483648))"), "(integer) 1");
    assert_eq!(eval(&mut client, "return {unpack({1, 2, 3}, 2)}"), "[(integer) 2, (integer) 3]");
    lives(&server, &mut client);
}

#[test]
fn a3_metatables_of_basic_types_cannot_be_changed() {
    let server = Server::start();
    let mut client = server.client();
    for value in
        ["''", "nil", "1.5", "true", "function() end", "coroutine.create(function() end)", "cjson.null"]
    {
        let script = format!("getmetatable({value}).__index = function() return 1 end");
        let error = error_of(&mut client, &script);
        let is_refused = error.ends_with("Attempt to modify a readonly table");
        assert!(is_refused || error.ends_with("attempt to index a nil value"), "{script}: {error}");
    }
    error_of(&mut client, "getmetatable('').__add = tostring");
    error_of(&mut client, "rawset(getmetatable(''), '__add', tostring)");
    error_of(&mut client, "getmetatable('').__index.upper = nil");
    assert_eq!(eval(&mut client, "return ('x').y"), "(nil)");
    assert_eq!(eval(&mut client, "return ('x'):upper()"), "\"X\"");
    lives(&server, &mut client);
}

#[test]
fn a4_long_brackets_are_counted_to_their_end() {
    let server = Server::start();
    let mut client = server.client();
    for (chunk, error) in [
        ("x=[=", Some("invalid long string delimiter")),
        ("x=[==x", Some("invalid long string delimiter")),
        ("--[==", None),
        ("--[==[ x", Some("unfinished long comment")),
        ("x=[==[ ]=] ]=", Some("unfinished long string")),
        ("x=[[ [[ ]]", None),
    ] {
        let reply = eval(&mut client, format!("local f, e = loadstring('{chunk}') return tostring(e)"));
        assert!(error.map_or(reply == "\"nil\"", |error| reply.contains(error)), "{chunk}: {reply}");
    }
    let long = "local s = ('='):rep(100000) return #loadstring('return [' .. s .. '[x]' .. s .. ']')()";
    assert_eq!(eval(&mut client, long), "(integer) 1");
    // 2^31 equals signs do not fit into the 512 MiB that scripts may take, nor into a request.
    lives(&server, &mut client);
}

#[test]
fn a5_an_error_in_the_first_token_is_an_ordinary_one() {
    let server = Server::start();
    let mut client = server.client();
    for chunk in ["'[='", "'\"'", "'\\0'", "'\\255'", "'\\n[='", "('\\n'):rep(1000) .. '[='"] {
        let reply = eval(&mut client, format!("local f, e = loadstring({chunk}) return {{tostring(f), e}}"));
        assert!(reply.starts_with("[\"nil\", \"[string"), "{chunk}: {reply}");
    }
    lives(&server, &mut client);
}

#[test]
fn a6_scripts_have_no_finalizers() {
    let server = Server::start();
    let mut client = server.client();
    let script =
        "local p = newproxy(true) getmetatable(p).__gc = function() return redis.call('get', 'x') end";
    assert!(error_of(&mut client, script).contains("nonexistent global variable 'newproxy'"));
    // Tables have none in Lua 5.1.
    let table = "setmetatable({}, {__gc = function() redis.call('set', 'x', '1') end}) collectgarbage()";
    assert_eq!(eval(&mut client, table), "(nil)");
    for line in ["SCRIPT FLUSH SYNC", "SCRIPT FLUSH ASYNC", "FUNCTION FLUSH", "FUNCTION FLUSH ASYNC"] {
        client.line(line).is_ok();
    }
    client.line("GET x").is_nil();
    lives(&server, &mut client);
}

#[test]
fn a7_a_function_of_many_parameters_gets_its_stack() {
    let server = Server::start();
    let mut client = server.client();
    let script = "local f = loadstring('local ' .. ('a,'):rep(180) .. 'a = ... return a') \
                  for i = 1, 200 do f() end return 1";
    assert_eq!(eval(&mut client, script), "(integer) 1");
    let names: Vec<String> = (1..=50).map(|number| format!("a{number}")).collect();
    let names = names.join(", ");
    let script = format!(
        "local depth = 0 local f f = function({names}, ...) depth = depth + 1 \
         if depth < 200 then f() end return select('#', ...) end return {{f(), depth}}"
    );
    assert_eq!(eval(&mut client, script), "[(integer) 0, (integer) 200]");
    lives(&server, &mut client);
}

#[test]
fn a8_compiled_code_is_not_loaded() {
    let server = Server::start();
    let mut client = server.client();
    for load in [
        "loadstring(string.dump(function() end))",
        "load(function() local p = d d = nil return p end)",
        "load((function() local d = string.dump(function() end) return function() local p = d d = nil \
         return p end end)())",
        "load((function() local d, n = string.dump(function() end), 0 return function() n = n + 1 \
         return d:sub(n, n) end end)())",
        "loadstring('\\27')",
        "loadstring('\\27Lua', '=name')",
    ] {
        let script =
            format!("local d = string.dump(function() end) local f, e = {load} return {{tostring(f), e}}");
        let reply = eval(&mut client, script);
        assert!(
            reply.contains("\"nil\"") && reply.contains("unexpected symbol near 'char(27)'"),
            "{load}: {reply}"
        );
    }
    let reply = client.cmd([&b"EVAL"[..], b"\x1bLuaQ\0\x01\x04", b"0"]).text();
    assert!(reply.starts_with("ERR Error compiling script"), "{reply}");
    let reply = client.cmd([&b"SCRIPT"[..], b"LOAD", b"\x1bLua"]).text();
    assert!(reply.starts_with("ERR Error compiling script"), "{reply}");
    let reply = client.cmd([&b"FUNCTION"[..], b"LOAD", b"#!lua name=lib\n\x1bLuaQ"]).text();
    assert!(reply.starts_with("ERR Error compiling function"), "{reply}");
    lives(&server, &mut client);
}

#[test]
fn a9_what_the_server_pushes_has_room_on_the_stack() {
    let server = Server::start();
    let mut client = server.client();
    let many =
        "local t = {} for i = 1, 7990 do t[i] = 'k' .. i end return #redis.call('mget', unpack(t, 1, 7990))";
    assert_eq!(eval(&mut client, many), "(integer) 7990");
    let nested = "local function f(n) if n == 0 then return redis.call('mget', 'a', 'b') end \
                  local r = f(n - 1) return r end return #f(150)";
    assert_eq!(eval(&mut client, nested), "(integer) 2");
    let deep = "local function f(n) if n == 0 then return #redis.call('command', 'docs', 'set') end \
                return coroutine.wrap(function() return f(n - 1) end)() end return f(50) > 0";
    assert_eq!(eval(&mut client, deep), "(integer) 1");
    let endless = "local function f() return coroutine.wrap(function() return f() end)() end return f()";
    assert!(error_of(&mut client, endless).contains("C stack overflow"));
    let filled = "local function f(n, ...) if n == 0 then return redis.call('mget', 'a', 'b') end \
                  return f(n - 1, ...) end local t = {} for i = 1, 7900 do t[i] = i end \
                  return #f(3, unpack(t))";
    eval(&mut client, filled);
    let wrong = "local t = {} for i = 1, 7900 do t[i] = {} end return redis.pcall('mget', unpack(t))";
    let expected = "Lua redis lib command arguments must be strings or integers";
    assert!(error_of(&mut client, wrong).contains(expected));
    eval(&mut client, "redis.setresp(3) return #redis.call('command')");
    lives(&server, &mut client);
}

/// As Redis hashes strings, one loop over 20,000 of these takes no longer than another.
#[test]
fn a10_strings_that_differ_in_few_bytes_cost_no_more_than_others() {
    let server = Server::start();
    let mut client = server.client();
    // Plain Lua 5.1.5 takes 10 s for each of these; none may take a large part of that, even here.
    let strings = "local a, b = ('x'):rep(605), ('y'):rep(11) local t = {} \
                   for i = 1, 20000 do t[i] = a .. ('%09d'):format(i) .. b end return #t";
    let long = "local a, t = ('x'):rep(100000), {} for i = 1, 1000 do t[i] = a .. i .. a end return #t";
    let keys = "local a, b = ('x'):rep(605), ('y'):rep(11) local t, n = {}, 0 \
                for i = 1, 20000 do t[a .. ('%09d'):format(i) .. b] = i end \
                for _ in pairs(t) do n = n + 1 end return n";
    for (script, expected) in [(strings, 20_000), (long, 1_000), (keys, 20_000)] {
        let started = Instant::now();
        client.cmd(["EVAL", script, "0"]).is(expected);
        assert!(started.elapsed() < PATIENCE / 2, "{script} took {:?}", started.elapsed());
    }
    let texts: Vec<String> =
        (0..20_000).map(|number| format!("\"{}{number:09}{}\"", "x".repeat(605), "y".repeat(11))).collect();
    let array = format!("[{}]", texts.join(","));
    let object =
        format!("{{{}}}", texts.iter().map(|text| format!("{text}:1")).collect::<Vec<_>>().join(","));
    for json in [array, object] {
        let started = Instant::now();
        client
            .cmd([
                "EVAL",
                "local n = 0 for _ in pairs(cjson.decode(ARGV[1])) do n = n + 1 end return n",
                "0",
                &json,
            ])
            .is(20_000);
        assert!(started.elapsed() < PATIENCE / 2, "JSON took {:?}", started.elapsed());
    }
    lives(&server, &mut client);
}

/// The hash that decides the order of keys in a table is known: keys of one and the same value can be chosen.
#[test]
fn a10_keys_that_are_chosen_to_collide_are_spread() {
    // Redis looks through all of them each time.
    let server = Server::start();
    let mut client = server.client();
    // Blocks of three bytes that leave the hash as it is behind them, whatever follows.
    let order = |text: &[u8]| {
        text.iter().rev().fold(text.len() as u32, |hash, byte| {
            hash ^ (hash << 5).wrapping_add(hash >> 2).wrapping_add(u32::from(*byte))
        })
    };
    let mut found: std::collections::HashMap<u32, Vec<String>> = std::collections::HashMap::new();
    for number in 0..3_000_000_u32 {
        // Only the lowest bits decide the place in a table of 4,096 nodes.
        let text = format!("{number:07}");
        let same = found.entry(order(text.as_bytes()) & 0xffff).or_default();
        same.push(text);
    }
    let chosen: Vec<&String> = found.values().filter(|same| same.len() > 40).flatten().take(20_000).collect();
    let json = |keys: &[&String]| {
        let members: Vec<String> = keys.iter().map(|key| format!("\"{key}\":1")).collect();
        format!("{{{}}}", members.join(","))
    };
    let count = "local t, n = cjson.decode(ARGV[1]), 0 for k in pairs(t) do n = n + t[k] end return n";
    let started = Instant::now();
    client.cmd(["EVAL", count, "0", &json(&chosen)]).is(chosen.len() as i64);
    assert!(started.elapsed() < PATIENCE / 2, "took {:?}", started.elapsed());
    // A table that is spread is read, written and walked over like any other.
    let one = found.into_values().max_by_key(Vec::len).expect("many keys");
    let script = "local t, n = {}, 0 for i, k in ipairs(ARGV) do t[k] = i end \
                  for i, k in ipairs(ARGV) do if t[k] == i then n = n + 1 end end \
                  for k in pairs(t) do t[k] = nil n = n + 1 end return {n, next(t) == nil}";
    let arguments = ["EVAL", script, "0"].into_iter().chain(one.iter().map(String::as_str));
    let expected = format!("[(integer) {}, (integer) 1]", 2 * one.len());
    assert_eq!(client.cmd(arguments).reply().to_string(), expected);
    // Numbers collide as well: the two halves of these have one sum.
    let numbers = "local t, n = {}, 0 for i = 1, 20000 do \
                   t[struct.unpack('<d', struct.pack('<I4I4', 2^30 - i, 2^30 + i))] = i end \
                   for _ in pairs(t) do n = n + 1 end return n";
    let started = Instant::now();
    client.cmd(["EVAL", numbers, "0"]).is(20_000);
    assert!(started.elapsed() < PATIENCE / 2, "numbers took {:?}", started.elapsed());
    lives(&server, &mut client);
}

#[test]
fn a11_a_pattern_that_is_too_deep_is_an_error() {
    // Redis's stack ends, and the process with it.
    let server = Server::start();
    let mut client = server.client();
    for call in [
        "string.find('', ('a-'):rep(300000))",
        "string.find(('a'):rep(200000), ('a?'):rep(200000))",
        "string.find(('a'):rep(200000), ('a*'):rep(200000))",
        "string.match(('a'):rep(200000), ('a-'):rep(200000) .. 'b')",
        "string.gsub(('a'):rep(200000), ('a?'):rep(200000), '')",
        "string.gmatch(('a'):rep(200000), ('a?'):rep(200000))()",
        "coroutine.wrap(function() return string.find('', ('a-'):rep(300000)) end)()",
    ] {
        let error = error_of(&mut client, format!("return {call}"));
        assert!(error.ends_with("pattern too complex"), "{call}: {error}");
        let caught = eval(&mut client, format!("return pcall(function() return {call} end)"));
        assert_eq!(caught, "(nil)", "{call}");
    }
    assert!(
        error_of(&mut client, "return string.find('x', ('()'):rep(300000))").contains("too many captures")
    );
    let library = "('a'):find(('a-'):rep(300000))";
    assert!(load(&mut client, library).ends_with("pattern too complex"));
    // What Lua 5.2 takes for too complex is none.
    assert_eq!(eval(&mut client, "return #('a'):rep(900):match(('a?'):rep(900))"), "(integer) 900");
    lives(&server, &mut client);
}

#[test]
fn a12_work_within_one_function_is_seen_and_ended() {
    // In Redis, no hook runs there.
    let server = impatient();
    for script in [
        "return string.find(('a'):rep(60), ('a?'):rep(60) .. ('a'):rep(60))",
        "return string.find(('('):rep(300000), '%b()')",
        "return string.find(('a'):rep(1000000), ('a'):rep(500000) .. 'b', 1, true)",
        "return (('a'):rep(30000):gsub('a-a-a-b', ''))",
        "for word in ('a'):rep(50000):gmatch('.-.-.-b') do end",
        "return string.find(('a'):rep(30000), ('[^b]*'):rep(20) .. 'b')",
        "while true do string.rep('', 2147483647) end",
        "while true do ('x'):rep(20000000) end",
        "local s = ('x'):rep(20000000) while true do local t = s .. 'y' end",
        "local s = ('x'):rep(20000000) local t = s .. 'y' while true do local b = s < t end",
        "local t = {} for i = 1, 50000 do t[i] = 'x' end while true do table.concat(t, ',') end",
        "local t = {} for i = 1, 50000 do t[i] = 'x' .. i end while true do table.sort(t) end",
        "table.insert({}, -2147483648, 1)",
        "local l = ('x'):rep(1000000) while true do string.format('%s%s%q', l, l, l) end",
        "local s = 'return ' .. ('1+'):rep(500000) .. '1' while true do loadstring(s) end",
        "local s = '--' .. ('x'):rep(20000000) while true do loadstring(s) end",
        "local t = {} for i = 1, 100000 do t[i] = {} end while true do collectgarbage() end",
        "local t = {} for i = 1, 200000 do t['k' .. i] = 1 end for k in pairs(t) do t[k] = nil end \
         while true do next(t) end",
        "local s = '[' .. ('1,'):rep(100000) .. '1]' while true do pcall(cjson.decode, s) end",
        "local t = {1} for i = 1, 40 do t = {t, t} end return cjson.encode(t)",
        "local t = {1} for i = 1, 14 do t = {t, t, t, t, t} end return cmsgpack.pack(t)",
        "while true do coroutine.wrap(function() for i = 1, 50000 do end end)() end",
        "local function f(...) return f(...) end local t = {} for i = 1, 7900 do t[i] = i end f(unpack(t))",
        "local function g(...) return ... end local t = {} for i = 1, 7900 do t[i] = i end \
         while true do g(g(g(g(g(g(unpack(t))))))) end",
    ] {
        is_killed(&server, script);
    }
}

marked!(also_redis: a13_a_value_becomes_a_reply_without_recursion_and_within_limits);
fn a13_a_value_becomes_a_reply_without_recursion_and_within_limits() {
    let server = impatient();
    let mut client = server.client();
    let deep = |client: &mut Client, script: &str| {
        client.send(&request(["EVAL", script, "0"]));
        let text = String::from_utf8_lossy(&client.reply_bytes()).into_owned();
        assert!(text.ends_with("-ERR reached lua stack limit\r\n"), "{script}");
    };
    deep(&mut client, "local t = {} for i = 1, 1000000 do t = {t} end return t");
    deep(&mut client, "local t = {} t[1] = t return t");
    deep(&mut client, "redis.setresp(3) local t = {} t.map = {k = t} return t");
    lives(&server, &mut client);
    if is_redis() {
        return; // The others do not end there.
    }
    client.send(&request(["EVAL", "redis.setresp(3) local t = {} t.set = {[t] = true} return t", "0"]));
    let text = String::from_utf8_lossy(&client.reply_bytes()).into_owned();
    assert!(text.ends_with("-ERR reached lua stack limit\r\n"));
    is_killed(&server, "local t = {1} for i = 1, 40 do t = {t, t} end return t");
    is_killed(
        &server,
        "redis.setresp(3) local t = {1} for i = 1, 40 do t = {map = {a = t, b = t}} end return t",
    );
    is_killed(
        &server,
        "redis.setresp(3) local t = {1} for i = 1, 40 do t = {t, {set = {[t] = true}}} end return t",
    );
    let large = "local s = ('x'):rep(10000000) local t = {} for i = 1, 60 do t[i] = s end return t";
    assert_eq!(eval(&mut client, large), "(error) ERR the reply of the script is larger than 512 MiB");
    // Nor is anything left out below the limit.
    let many = "redis.setresp(3) local t = {} for i = 1, 20000 do t['k' .. i] = i end return {map = t}";
    assert_eq!(client.cmd(["EVAL", many, "0"]).items().len(), 40_000);
    lives(&server, &mut client);
}

#[test]
fn a14_the_world_of_scripts_is_a_list_of_what_is_let_in() {
    let server = Server::start();
    let mut client = server.client();
    for name in [
        "package", "io", "require", "module", "dofile", "loadfile", "debug", "getfenv", "setfenv",
        "newproxy", "print",
    ] {
        assert_eq!(eval(&mut client, format!("return tostring(rawget(_G, '{name}'))")), "\"nil\"");
        let error = error_of(&mut client, format!("return {name}"));
        assert!(error.contains(&format!("nonexistent global variable '{name}'")), "{error}");
    }
    assert_eq!(
        eval(&mut client, "local n = 0 for name in pairs(os) do n = n + 1 end return n"),
        "(integer) 1"
    );
    assert_eq!(eval(&mut client, "return type(os.clock())"), "\"number\"");
    for name in ["io.open", "package.loadlib", "debug.getregistry"] {
        error_of(&mut client, format!("return tostring({name})"));
    }
    let listed = "local t = {} for k, v in pairs(_G) do \
                  if k ~= '__redis__err__handler' and k ~= 'server' then t[#t + 1] = k end end \
                  table.sort(t) return table.concat(t, ' ')";
    assert_eq!(
        eval(&mut client, listed),
        "\"ARGV KEYS _G _VERSION assert bit cjson cmsgpack collectgarbage coroutine error gcinfo getmetatable \
         ipairs load loadstring math next os pairs pcall rawequal rawget rawset redis select setmetatable \
         string struct table tonumber tostring type unpack xpcall\""
    );
    lives(&server, &mut client);
}

#[test]
fn a15_what_scripts_share_cannot_be_written() {
    let server = Server::start();
    let mut client = server.client();
    let attempts = [
        "redis.call = function() return 'mine' end",
        "string.format = function() return 'mine' end",
        "rawset(_G, 'tostring', function() return 'mine' end)",
        "tostring = function() return 'mine' end",
        "_G.tostring = nil",
        "setmetatable(_G, {__index = function() return 'mine' end})",
        "getmetatable(_G).__index = nil",
        "table.insert(redis, 1)",
        "table.remove(redis, 1) redis[1] = 1",
        "setmetatable(redis, {__index = function() return 'mine' end})",
        "table.sort(redis, function() end) rawset(redis, 'call', nil)",
        "cjson.encode = nil",
        "rawset(math, 'pi', 3)",
        "bit.band = nil",
        "struct.pack = nil",
        "cmsgpack.pack = nil",
        "coroutine.wrap = nil",
        "for k in pairs(_G) do _G[k] = nil end",
    ];
    for attempt in attempts {
        let error = error_of(&mut client, attempt);
        assert!(error.ends_with("Attempt to modify a readonly table"), "{attempt}: {error}");
    }
    error_of(&mut client, "getmetatable(redis).__index = function() return 'mine' end");
    client.cmd(["EVAL", "KEYS.x = 1 setmetatable(KEYS, {__len = 1})", "1", "k"]).is_nil();
    let looks = "return {type(redis), type(_G), type(string), #KEYS, tostring(KEYS.x), \
                 tostring(getmetatable(KEYS)), \
                 tostring(1), string.format('%d', 1), type(math.pi), cjson.encode({1}), redis.call('ping')}";
    let untouched = "[\"table\", \"table\", \"table\", (integer) 1, \"nil\", \"nil\", \"1\", \"1\", \"number\", \
                     \"[1]\", PONG]";
    assert_eq!(client.cmd(["EVAL", looks, "1", "k"]).reply().to_string(), untouched);
    // Libraries, while they are loaded and when they are called.
    for attempt in ["redis.log = nil", "x = 1", "redis.register_function = nil"] {
        let reply = load(&mut client, attempt);
        assert!(reply.ends_with("Attempt to modify a readonly table"), "{attempt}: {reply}");
    }
    for attempt in attempts {
        load(&mut client, &format!("redis.register_function('f', function() {attempt} end)"));
        let reply = client.line("FCALL f 0").text();
        assert!(reply.contains("Attempt to modify a readonly table"), "{attempt}: {reply}");
    }
    assert_eq!(client.cmd(["EVAL", looks, "1", "k"]).reply().to_string(), untouched);
    lives(&server, &mut client);
}

#[test]
fn a16_arguments_of_strange_types_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for arguments in [
        "setmetatable({}, {__tostring = function() end})",
        "nil",
        "true",
        "print_nothing",
        "tostring",
        "{}",
        "'get', cjson.null",
        "'get', {}",
        "'get', nil",
        "'get', coroutine.create(function() end)",
    ] {
        for call in ["call", "pcall"] {
            let arguments = arguments.replace("print_nothing", "redis.call");
            let error = error_of(&mut client, format!("return redis.{call}({arguments})"));
            let expected = "ERR Lua redis lib command arguments must be strings or integers";
            assert_eq!(error, expected, "{call} {arguments}");
        }
    }
    // A number is one, even if it is none.
    eval(&mut client, "return redis.call('get', 0/0)");
    lives(&server, &mut client);
}

#[test]
fn a17_calls_without_arguments_are_errors() {
    let server = Server::start();
    let mut client = server.client();
    for (call, error) in [
        ("call", "ERR Please specify at least one argument for this redis.call() call"),
        ("pcall", "ERR Please specify at least one argument for this redis.pcall() call"),
        ("sha1hex", "ERR wrong number of arguments"),
        ("error_reply", "ERR wrong number or type of arguments"),
        ("status_reply", "ERR wrong number or type of arguments"),
        ("log", "ERR redis.log() requires two arguments or more."),
        ("setresp", "ERR redis.setresp() requires one argument."),
        ("acl_check_cmd", "ERR Please specify at least one argument for this redis lib call"),
        ("set_repl", "ERR redis.set_repl() requires one argument."),
    ] {
        let found = error_of(&mut client, format!("return redis.{call}()"));
        let general = "ERR Please specify at least one argument for this redis lib call";
        assert!(found == error || found == general, "{call}: {found}");
    }
    assert!(error_of(&mut client, "redis.register_function()").contains("register_function"));
    assert!(load(&mut client, "redis.register_function()").contains("wrong number of arguments"));
    lives(&server, &mut client);
}

#[test]
fn a18_whatever_is_raised_becomes_one_error() {
    let server = Server::start();
    let mut client = server.client();
    for raise in [
        "error({})",
        "error({err = {}})",
        "error({err = 5})",
        "error()",
        "error(nil)",
        "error(true)",
        "error(tostring)",
        "error(cjson.null)",
        "error(setmetatable({}, {__index = function() error('x') end}))",
        "error(setmetatable({}, {__tostring = function() error('x') end}))",
    ] {
        error_of(&mut client, raise);
        eval(&mut client, format!("return pcall(function() {raise} end)"));
        eval(&mut client, format!("return xpcall(function() {raise} end, function(e) return e end)"));
        lives(&server, &mut client);
    }
    let untouched = "return setmetatable({}, {__index = function() foo() end, __len = function() foo() end})";
    assert_eq!(eval(&mut client, untouched), "[]");
    assert_eq!(eval(&mut client, "return {err = {}}"), "[]");
    assert_eq!(client.cmd(["EVAL", "return {err = ''}", "0"]).reply(), Reply::Error(String::new()));
    lives(&server, &mut client);
}

#[test]
fn a19_texts_of_errors_and_states_stay_on_one_line() {
    let server = Server::start();
    for script in [
        "return redis.error_reply('a\\r\\n+OK')",
        "return {err = 'a\\r\\n:1'}",
        "return {ok = 'a\\r\\n:1'}",
        "return redis.status_reply('a\\r\\n:1')",
        "error('a\\r\\nb')",
        "error({err = 'a\\r\\nb'})",
        "return {1, {err = 'x\\r\\n:9'}}",
        "return {1, {ok = 'x\\r\\n:9'}}",
        "return {1, {err = '\\0x\\r\\n:9'}}",
        "error({err = '\\0a\\r\\n:1'})",
        "return {big_number = '1\\r\\n:2'}",
        "return {verbatim_string = {format = 'a\\r\\n', string = 'b'}}",
        "local f, e = loadstring('x y', '=a\\r\\n+OK') error(e)",
        "return redis.call('a\\r\\n+OK')",
        "return redis.call('set', 'a\\r\\n+OK')",
        "return redis.pcall('config', 'a\\r\\n+OK')",
        "return loadstring('error()', '=a\\r\\n+OK')()",
        "return x['a\\r\\n+OK']",
    ] {
        for mut client in [server.client(), server.client3()] {
            // Both are sent at once: the second reply must be that of PING, whatever the first one is.
            client.send(&[request(["EVAL", script, "0"]), request(["PING"])].concat());
            client.reply_bytes();
            client.reply().is_simple("PONG");
            // In RESP3 the script itself may have said so.
            let three = format!("redis.setresp(3) {script}");
            client.send(&[request(["EVAL", &three, "0"]), request(["PING"])].concat());
            client.reply_bytes();
            client.reply().is_simple("PONG");
        }
    }
}

#[test]
fn a20_the_first_line_of_a_script_or_library_stays_on_one_line() {
    let server = Server::start();
    let mut client = server.client();
    for script in [
        "#!lua flags=\"\\r\\n+OK\"\nreturn 1",
        "#!lua \"\\r\\n+OK\"\nreturn 1",
        "#!\"\\r\\n+OK\"\nreturn 1",
        "#!lua flags=\r+OK\nreturn 1",
        "#!lua\rx\nreturn 1",
        "#!\r",
        "#!",
        "#!lua",
    ] {
        client.send(&[request(["EVAL", script, "0"]), request(["PING"])].concat());
        let reply = client.reply().reply();
        assert!(matches!(reply, Reply::Error(_)), "{script}: {reply:?}");
        client.reply().is_simple("PONG");
    }
    for library in [
        "#!lua \"x\\r\\n+OK\" name=a\nredis.register_function('f', function() end)",
        "#!\"lua\\r\\n+OK\" name=a\nredis.register_function('f', function() end)",
        "#!lua name=\"a\\r\\n+OK\"\nredis.register_function('f', function() end)",
        "#!lua x\r+OK name=a\nredis.register_function('f', function() end)",
        "#!lua \"name=a",
    ] {
        let load = request(["FUNCTION", "LOAD", library]);
        client.send(&[load, request(["PING"])].concat());
        let reply = client.reply().reply();
        assert!(matches!(reply, Reply::Error(_)), "{library}: {reply:?}");
        client.reply().is_simple("PONG");
    }
    lives(&server, &mut client);
}

marked!(also_redis: a21_what_is_killed_ends_whatever_it_catches);
fn a21_what_is_killed_ends_whatever_it_catches() {
    let server = impatient();
    for script in [
        "while true do pcall(function() while true do end end) end",
        "local t = setmetatable({}, {__index = function() while true do end end}) \
         while true do pcall(function() return t.x end) end",
        "local t = {} for i = 1, 100 do t[i] = i end \
         while true do pcall(table.sort, t, function() while true do end end) end",
        "while true do pcall(string.gsub, 'aaa', 'a', function() while true do end end) end",
    ] {
        is_killed(&server, script);
    }
    if is_redis() {
        return; // The others go on there.
    }
    for script in [
        "local function f() while true do end end while true do xpcall(f, f) end",
        "xpcall(function() while true do end end, function() while true do end end) return 1",
        "xpcall(function() error('x') end, function() while true do end end) return 1",
        "while true do xpcall(error, function() local x = 1 + nil end) end",
        "xpcall(function() while true do end end, tostring) return 1",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do pcall(coroutine.wrap(function() while true do end end)) end",
        "while true do load(function() while true do end end) end",
        "while true do pcall(pcall, xpcall, function() while true do end end, pcall) end",
    ] {
        is_killed(&server, script);
    }
    let mut client = server.client();
    load(
        &mut client,
        "redis.register_function('f', function() while true do pcall(function() while true do end end) end end)",
    );
    let mut runner = server.client();
    runner.send(&request(["FCALL", "f", "0"]));
    kill(&mut client, "FUNCTION KILL", "a function");
    assert!(runner.reply().text().contains("Script killed by user"));
    lives(&server, &mut client);
}

#[test]
fn a22_the_look_at_the_time_belongs_to_one_run() {
    let server = impatient();
    is_killed(&server, "while true do end");
    let mut client = server.client();
    assert_eq!(eval(&mut client, "return pcall(function() error('caught') end) == false"), "(integer) 1");
    assert_eq!(
        eval(&mut client, "local n = 0 for i = 1, 300000 do n = n + 1 end return n"),
        "(integer) 300000"
    );
    let reply = load(&mut client, "while true do end");
    assert!(reply.contains("FUNCTION LOAD timeout"), "{reply}");
    assert_eq!(load(&mut client, "redis.register_function('f', function() return 1 end)"), "lib");
    // The client leaves while its script is slow; the script can still be killed.
    let mut runner = server.client();
    runner.send(&request(["EVAL", "while true do end", "0"]));
    drop(runner);
    kill(&mut client, "SCRIPT KILL", "one whose client has left");
    let started = Instant::now();
    while matches!(client.line("PING").reply(), Reply::Error(_)) {
        assert!(started.elapsed() < PATIENCE);
    }
    is_killed(&server, "while true do end");
    assert_eq!(client.line("FCALL f 0").integer(), 1);
    lives(&server, &mut client);
}

#[test]
fn a23_replies_within_a_script_have_no_limit_of_output() {
    let server = Server::start();
    let (mut admin, mut client) = (server.client(), server.client());
    admin.cmd(["CONFIG", "SET", "client-output-buffer-limit", "normal 100000 0 0"]).is_ok();
    client.cmd(["SET", "k", &"x".repeat(90_000)]).is_ok();
    let script = "local n = 0 for i = 1, 200 do n = n + #redis.call('get', 'k') end return n";
    client.cmd(["EVAL", script, "0"]).is(18_000_000);
    // A reply beyond the limit: the client is served, or closed; no other one is.
    let mut greedy = server.client();
    greedy.send(&request(["EVAL", "return ('x'):rep(50000000)", "0"]));
    let _ = greedy.try_reply_bytes();
    lives(&server, &mut client);
    admin.line("PING").is_simple("PONG");
}

#[test]
fn a24_there_is_no_debugger() {
    // Redis has one.
    let server = Server::start();
    let mut client = server.client();
    client.line("SCRIPT DEBUG NO").is_ok();
    for line in ["SCRIPT DEBUG YES", "SCRIPT DEBUG SYNC"] {
        assert!(matches!(client.line(line).reply(), Reply::Error(_)), "{line}");
    }
    assert_eq!(eval(&mut client, "return {redis.breakpoint(), redis.debug('x')}"), "[(nil)]");
    lives(&server, &mut client);
}

marked!(also_redis: a26_texts_of_scripts_do_not_pile_up);
fn a26_texts_of_scripts_do_not_pile_up() {
    let server = Server::start();
    let mut client = server.client();
    let texts = |from: usize| {
        let requests = (from..from + 5_000).map(|number| request(["EVAL", &format!("return {number}"), "0"]));
        requests.collect::<Vec<_>>().concat()
    };
    client.send(&texts(0));
    (0..5_000).for_each(|number| client.reply().is(number));
    if !is_redis() {
        let scripts: usize = client.info("number_of_cached_scripts").parse().expect("a number");
        assert!(scripts <= 500, "{scripts}");
        // They are counted in bytes, too.
        for number in 0..30 {
            let script = format!("return {number} -- {}", "x".repeat(2 << 20));
            client.cmd(["EVAL", &script, "0"]).is(number);
        }
        let bytes: usize = client.info("used_memory_scripts").parse().expect("a number");
        assert!(bytes < 48 << 20, "{bytes}");
        client.cmd(["EVAL", "return 29 -- ", "0"]).is(29);
    }
    for number in 0..5_000 {
        client.cmd(["SCRIPT", "LOAD", &format!("return 'loaded {number}'")]).text();
    }
    client.line("SCRIPT FLUSH").is_ok();
    assert_eq!(client.info("number_of_cached_scripts"), "0");
    lives(&server, &mut client);
}

marked!(also_redis: a27_indices_at_the_ends_of_an_integer_are_harmless);
fn a27_indices_at_the_ends_of_an_integer_are_harmless() {
    let server = Server::start();
    let mut client = server.client();
    for (script, expected) in [
        ("local t = {} for i = 0, 31 do t[2^i] = 1 end return #t", "(integer) 4"),
        ("local t = {} for i = 0, 31 do t[2^i - 1] = 1 end return #t", "(integer) 1"),
        ("local t = {} for i = 0, 31 do t[2^i + 1] = 1 end return #t", "(integer) 0"),
        ("local t = {} table.insert(t, 2147483647, 1) return t[2147483647]", "(integer) 1"),
        (
            "local t = {[-2147483648] = 1, [2147483647] = 2} return t[-2147483648] + t[2147483647]",
            "(integer) 3",
        ),
        ("return ('x'):sub(-2147483648, 2147483647)", "\"x\""),
        ("return ('x'):byte(-2147483648, 2147483647)", "(integer) 120"),
        ("return #('x'):rep(-2147483648)", "(integer) 0"),
        ("return select('#', select(2147483647, 1, 2))", "(integer) 0"),
    ] {
        assert_eq!(eval(&mut client, script), expected, "{script}");
    }
    for script in [
        "return table.concat({}, '', -2147483648, 2147483647)",
        "return table.concat({}, '', 2147483647, 2147483647)",
        "return select(-2147483648)",
        "return table.remove({1}, -2147483648) .. ''",
        "return string.char(-2147483648)",
        "return ('x'):rep(1, 2, 3):format(2147483647) .. nil",
    ] {
        error_of(&mut client, script);
    }
    // A table that was built so that the search for its end is long.
    if !is_redis() {
        let script = "local t = {} for i = 150000, 1, -1 do t[i] = 1 end for i = 17, 31 do t[2^i] = 1 end \
                      local n = 0 for i = 1, 20 do n = #t end return n > 0";
        assert_eq!(eval(&mut client, script), "(integer) 1");
    }
    lives(&server, &mut client);
}

#[test]
fn a28_memory_may_end_anywhere() {
    // Redis has no limit, and ends.
    let server = Server::start();
    let mut client = server.client();
    client.cmd(["SET", "big", &"x".repeat(1 << 20)]).is_ok();
    // A library fills the memory up to a few kilobytes, and keeps all of it.
    let fill = "local kept = {} redis.register_function('fill', function() \
                for _, size in ipairs({16777216, 1048576, 65536, 4096}) do collectgarbage() \
                while pcall(function() kept[#kept + 1] = ('x'):rep(size - #kept % 1000) end) do end end end)";
    assert_eq!(load(&mut client, fill), "lib");
    client.line("FCALL fill 0").is_nil();
    for script in [
        "return redis.call('get', 'big')",
        "return redis.pcall('get', 'big')",
        "return cjson.encode({('y'):rep(100000)})",
        "return cjson.decode('[' .. ('[],'):rep(1000) .. '1]')",
        "return cmsgpack.pack({('y'):rep(100000)})",
        "return struct.pack('c0', ('y'):rep(100000))",
        "error(('y'):rep(100000))",
        "error({err = 'ERR y'})",
        "return coroutine.wrap(function() return ('y'):rep(100000) end)()",
        "local t = {} for i = 1, 10000 do t[i] = {i} end return t",
        "return xpcall(function() return ('y'):rep(100000) end, function(e) return e .. ('z'):rep(100000) end)",
        "return loadstring(('local a = 1 '):rep(10000))",
        "return {(('y'):rep(100):gsub('y', function(c) return c:rep(10000) end))}",
        "return {1, 2, {3, 'x'}, {err = 'ERR y'}, {ok = 'y'}}",
        "local t = {} for i = 1, 1000 do t[i] = coroutine.create(function() end) end return #t",
    ] {
        // Whatever it is, it is one reply.
        client.send(&request(["EVAL", script, "0"]));
        client.reply_bytes();
        client.send(&request(["EVAL", "return {KEYS[1], ARGV[1], {1}}", "1", "k", &"v".repeat(10_000)]));
        client.reply_bytes();
        client.line("FCALL fill 0").ignored();
        lives(&server, &mut client);
    }
    load(&mut client, "redis.register_function('f', function() return 1 end)");
    client.line("FUNCTION FLUSH").is_ok();
    assert_eq!(eval(&mut client, "return #('x'):rep(1000000)"), "(integer) 1000000");
    let error = "ERR Error registering functions: ERR not enough memory";
    let reply = load(&mut client, "local t = {} for i = 1, 1e9 do t[i] = {i} end");
    assert!(reply == error || reply.ends_with("FUNCTION LOAD timeout"), "{reply}");
    assert_eq!(load(&mut client, "redis.register_function('f', function() return 1 end)"), "lib");
    lives(&server, &mut client);
}

#[test]
fn h17_what_a_script_logs_stays_on_one_line() {
    // Redis logs line ends as they are.
    let server = Server::start();
    let mut client = server.client();
    client.cmd(["EVAL", "redis.log(3, 'x\\r\\n1:M 01 Jan 2030 FAKE\\27[31m', 'y')", "0"]).is_nil();
    server.wait_for_output("x\\r\\n1:M 01 Jan 2030 FAKE\\u{1b}[31m y");
    assert!(!server.output().lines().any(|line| line.starts_with("1:M 01 Jan")));
}
