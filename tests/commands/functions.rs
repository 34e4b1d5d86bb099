//! Functions: FUNCTION and FCALL.

use std::time::Duration;

use support::client::{Client, Reply};
use support::server::{PATIENCE, Server, is_redis};

/// A library of this name whose code follows the first line.
fn library(name: &str, code: &str) -> String {
    format!("#!lua name={name}\n{code}")
}

/// The error of loading this code as the library `lib`, or its name.
#[track_caller]
fn load(client: &mut Client, code: &str) -> String {
    client.cmd(["FUNCTION", "LOAD", "REPLACE", &library("lib", code)]).text()
}

/// Makes `f` a function with this body, and calls it with a key and two arguments.
#[track_caller]
fn call(client: &mut Client, body: &str) -> String {
    let code = format!("redis.register_function('f', function(keys, args) {body} end)");
    assert_eq!(load(client, &code), "lib");
    client.cmd(["FCALL", "f", "1", "mykey", "a", "b"]).reply().to_string()
}

/// The libraries that there are, with their functions.
#[track_caller]
fn listed(client: &mut Client) -> Vec<String> {
    let mut libraries: Vec<String> =
        client.line("FUNCTION LIST").items().iter().map(Reply::to_string).collect();
    libraries.sort();
    libraries
}

marked!(also_redis: a_library_is_loaded_called_replaced_and_deleted);
fn a_library_is_loaded_called_replaced_and_deleted() {
    let mut client = Server::start().into_client();
    let counter =
        "local n = 0\nredis.register_function('count', function(keys, args) n = n + args[1] return n end)";
    client.cmd(["FUNCTION", "LOAD", &library("counting", counter)]).is("counting");
    client.line("FCALL count 0 5").is(5);
    client.line("FCALL COUNT 0 2").is(7);
    client
        .cmd(["FUNCTION", "LOAD", &library("counting", counter)])
        .is_error("ERR Library 'counting' already exists");
    client
        .cmd(["FUNCTION", "LOAD", &library("other", counter)])
        .is_error("ERR Function count already exists");
    client.line("FCALL count 0 1").is(8);
    let other = "redis.register_function('other', function() return 'changed' end)";
    client.cmd(["FUNCTION", "LOAD", "replace", &library("counting", other)]).is("counting");
    client.line("FCALL count 0 1").is_error("ERR Function not found");
    client.line("FCALL other 0").is("changed");
    client.line("FUNCTION DELETE COUNTING").is_error("ERR Library not found");
    client.line("FUNCTION DELETE counting").is_ok();
    client.line("FCALL other 0").is_error("ERR Function not found");
    assert!(listed(&mut client).is_empty());
}

marked!(also_redis: a_lock_is_taken_and_let_go_by_functions);
fn a_lock_is_taken_and_let_go_by_functions() {
    let mut client = Server::start().into_client();
    let code = "
        redis.register_function('acquire', function(keys, args)
            return redis.call('SET', keys[1], args[1], 'NX', 'PX', args[2])
        end)
        redis.register_function('release', function(keys, args)
            if redis.call('GET', keys[1]) == args[1] then return redis.call('DEL', keys[1]) end
            return 0
        end)";
    assert_eq!(load(&mut client, code), "lib");
    client.line("FCALL acquire 1 lock me 10000").is_ok();
    client.line("FCALL acquire 1 lock you 10000").is_nil();
    client.line("FCALL release 1 lock you").is(0);
    client.line("FCALL release 1 lock me").is(1);
    client.line("EXISTS lock").is(0);
}

marked!(also_redis: a_first_line_that_is_none_is_refused);
fn a_first_line_that_is_none_is_refused() {
    let mut client = Server::start().into_client();
    for (code, error) in [
        ("", "Missing library metadata"),
        ("return 1", "Missing library metadata"),
        ("#!lua name=a", "Invalid library metadata"),
        ("#!lua name=\"a\n", "Invalid library metadata"),
        ("#!lua\n", "Library name was not given"),
        ("#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
        ("#!lua foo=1\n", "Invalid metadata value given: foo=1"),
        ("#! lua name=a\n", "Invalid metadata value given: lua"),
        ("#!js name=a\n", "Engine 'js' not found"),
        ("#!lua name=a\n", "No functions registered"),
        ("#!LUA NAME='a'\n", "No functions registered"),
    ] {
        client.cmd(["FUNCTION", "LOAD", code]).is_error(&format!("ERR {error}"));
    }
    for name in ["", "a-b", "'a b'", "\u{e4}"] {
        client.cmd(["FUNCTION", "LOAD", &format!("#!lua name={name}\n")]).is_error(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        );
    }
    client.line("FUNCTION LOAD").is_error("ERR wrong number of arguments for 'function|load' command");
    client.line("FUNCTION LOAD foo x").is_error("ERR Unknown option given: foo");
}

marked!(also_redis: a_library_sees_nothing_but_its_redis_while_it_is_loaded);
fn a_library_sees_nothing_but_its_redis_while_it_is_loaded() {
    let mut client = Server::start().into_client();
    for name in ["error", "pcall", "string", "math", "_G", "KEYS", "loadstring"] {
        assert_eq!(
            load(&mut client, &format!("local x = {name}")),
            format!(
                "ERR Error registering functions: ERR user_function:2: Script attempted to access \
                 nonexistent global variable '{name}'"
            )
        );
    }
    for name in ["call", "pcall", "setresp", "sha1hex", "REPL_ALL", "nosuchthing"] {
        assert_eq!(
            load(&mut client, &format!("\nredis.{name}('get', 'a')")),
            format!(
                "ERR Error registering functions: ERR user_function:3: Script attempted to access \
                 nonexistent global variable '{name}'"
            )
        );
    }
    for change in ["x = 1", "redis.x = 1", "redis = 1"] {
        let error =
            "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table";
        assert_eq!(load(&mut client, change), error);
    }
    let seen = "local seen = redis.LOG_WARNING .. redis.REDIS_VERSION .. redis.REDIS_VERSION_NUM
        redis.log(redis.LOG_DEBUG, seen)";
    assert_eq!(load(&mut client, seen), "ERR No functions registered");
    for (code, error) in [
        ("x =", "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'"),
        (
            "local f; f()",
            "ERR Error registering functions: ERR user_function:2: attempt to call local 'f' (a nil value)",
        ),
        (
            "local function f() return f() + 1 end f()",
            "ERR Error registering functions: ERR user_function:2: stack overflow",
        ),
        ("redis.log()", "ERR Error registering functions: ERR redis.log() requires two arguments or more."),
    ] {
        assert_eq!(load(&mut client, code), error);
    }
    assert!(listed(&mut client).is_empty());
}

marked!(also_redis: functions_are_registered_only_while_a_library_is_loaded);
/// What a library keeps of its `redis` stays what it was.
fn functions_are_registered_only_while_a_library_is_loaded() {
    let mut client = Server::start().into_client();
    let kept = |what: &str| format!("local kept = redis redis.register_function('f', function() {what} end)");
    assert_eq!(load(&mut client, &kept("kept.register_function('g', function() end)")), "lib");
    client.line("FCALL f 0").is_error(
        "ERR redis.register_function can only be called on FUNCTION LOAD command script: f, on \
         @user_function:2.",
    );
    assert_eq!(load(&mut client, &kept("return kept.call('get', 'x')")), "lib");
    client.line("FCALL f 0").is_error(
        "ERR user_function:2: Script attempted to access nonexistent global variable 'call' script: f, on \
         @user_function:2.",
    );
    assert_eq!(
        call(&mut client, "redis.register_function('g', function() end)"),
        "(error) ERR user_function:2: attempt to call field 'register_function' (a nil value) script: f, on \
         @user_function:2."
    );
    assert_eq!(call(&mut client, "return redis.call('ping')"), "PONG");
}

marked!(also_redis: what_is_no_function_is_not_registered);
fn what_is_no_function_is_not_registered() {
    let mut client = Server::start().into_client();
    let f = "function_name = 'f', callback = function() end";
    for (arguments, error) in [
        ("", "wrong number of arguments to redis.register_function"),
        ("'f', f, 3", "wrong number of arguments to redis.register_function"),
        (
            "'f'",
            "calling redis.register_function with a single argument is only applicable to Lua table \
             (representing named arguments).",
        ),
        ("f, 'f'", "first argument to redis.register_function must be a string"),
        ("'f', 1", "second argument to redis.register_function must be a function"),
        ("{}", "redis.register_function must get a function name argument"),
        ("{callback = f}", "redis.register_function must get a function name argument"),
        ("{function_name = 'f'}", "redis.register_function must get a callback argument"),
        ("{callback = 1}", "callback argument given to redis.register_function must be a function"),
        ("{function_name = {}}", "function_name argument given to redis.register_function must be a string"),
        ("{1}", "unknown argument given to redis.register_function"),
        ("{foo = 1}", "unknown argument given to redis.register_function"),
        ("{[{}] = 1}", "named argument key given to redis.register_function is not a string"),
        (
            &format!("{{{f}, description = {{}}}}"),
            "description argument given to redis.register_function must be a string",
        ),
        (
            &format!("{{{f}, flags = 'no-writes'}}"),
            "flags argument to redis.register_function must be a table representing function flags",
        ),
        (&format!("{{{f}, flags = {{'no-writes', 'no-reads'}}}}"), "unknown flag given"),
        (
            "'f-', f",
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        ),
        ("'f', f) redis.register_function('f', f", "Function already exists in the library"),
    ] {
        let code = format!("local function f() end\nredis.register_function({arguments})");
        assert_eq!(
            load(&mut client, &code),
            format!("ERR Error registering functions: ERR {error}"),
            "{arguments}"
        );
    }
    assert!(listed(&mut client).is_empty());
}

marked!(also_redis: a_failed_library_leaves_the_old_one_alone);
fn a_failed_library_leaves_the_old_one_alone() {
    let mut client = Server::start().into_client();
    assert_eq!(call(&mut client, "return 'old'"), "\"old\"");
    load(&mut client, "redis.register_function('f', function() return 'new' end)\nnonexistent()");
    load(&mut client, "redis.register_function('f', function() return 'new' end)\nx =");
    client.line("FCALL f 0").is("old");
}

marked!(also_redis: loading_takes_half_a_second_at_most);
fn loading_takes_half_a_second_at_most() {
    let mut client = Server::start().into_client();
    let endless = "redis.register_function('f', function() end)\nwhile true do end";
    assert_eq!(load(&mut client, endless), "ERR Error registering functions: ERR FUNCTION LOAD timeout");
    client.line("FCALL f 0").is_error("ERR Function not found");
    assert_eq!(call(&mut client, "return 1"), "(integer) 1");
}

marked!(also_redis: a_function_is_given_keys_and_arguments_and_nothing_else);
fn a_function_is_given_keys_and_arguments_and_nothing_else() {
    let mut client = Server::start().into_client();
    client.line("EVAL \"return #KEYS\" 1 x").is(1);
    assert_eq!(call(&mut client, "return {keys, args}"), "[[\"mykey\"], [\"a\", \"b\"]]");
    for name in ["KEYS", "ARGV", "nosuchthing"] {
        assert_eq!(
            call(&mut client, &format!("return {name}")),
            format!(
                "(error) ERR user_function:2: Script attempted to access nonexistent global variable \
                 '{name}' script: f, on @user_function:2."
            )
        );
    }
    assert_eq!(
        call(&mut client, "x = 1"),
        "(error) ERR user_function:2: Attempt to modify a readonly table script: f, on @user_function:2."
    );
    assert_eq!(
        load(&mut client, "redis.register_function('f', function(...) return select('#', ...) end)"),
        "lib"
    );
    client.line("FCALL f 0").is(2);
    client.line("EVAL \"return select('#', ...)\" 0").is(0);
}

marked!(also_redis: errors_name_the_function_and_the_line);
fn errors_name_the_function_and_the_line() {
    let mut client = Server::start().into_client();
    for (body, error) in [
        ("error('x')", "ERR user_function:2: x"),
        ("error({err = 'MY x'})", "MY x"),
        ("\nreturn redis.call('get')", "ERR Wrong number of args calling Redis command from script"),
        ("return redis.call('fcall', 'f', 0)", "ERR This Redis command is not allowed from script"),
        ("return redis.call('function', 'list')", "ERR This Redis command is not allowed from script"),
    ] {
        let line = if body.starts_with('\n') { 3 } else { 2 };
        let expected = format!("(error) {error} script: f, on @user_function:{line}.");
        assert_eq!(call(&mut client, body), expected);
    }
    assert_eq!(call(&mut client, "return {err = 'bad'}"), "(error) bad");
    for (request, error) in [
        ("FCALL nosuch x", "ERR Function not found"),
        ("FCALL f x", "ERR Bad number of keys provided"),
        ("FCALL f -1", "ERR Number of keys can't be negative"),
        ("FCALL f 2 x", "ERR Number of keys can't be greater than number of args"),
        ("FCALL f", "ERR wrong number of arguments for 'fcall' command"),
    ] {
        client.line(request).is_error(error);
    }
}

/// Makes `f` a function with these flags that does what its first argument says.
fn load_with_flags(client: &mut Client, flags: &str) {
    let code = format!(
        "redis.register_function{{function_name = 'f', flags = {{{flags}}}, callback = function(keys, args)
            return redis.call(unpack(args))
        end}}"
    );
    assert_eq!(load(client, &code), "lib");
}

marked!(also_redis: flags_say_what_a_function_may_do);
fn flags_say_what_a_function_may_do() {
    let mut client = Server::start().into_client();
    let only_reads = "ERR Can not execute a script with write flag using *_ro command.";
    load_with_flags(&mut client, "");
    client.line("FCALL f 0 set k v").is_ok();
    client.line("FCALL_RO f 0 get k").is_error(only_reads);
    load_with_flags(&mut client, "'NO-WRITES'");
    client.line("FCALL f 0 set k w").is_error(
        "ERR Write commands are not allowed from read-only scripts. script: f, on @user_function:3.",
    );
    client.line("FCALL_RO f 0 get k").is("v");
    client.line("CONFIG SET maxmemory 1").is_ok();
    client.line("FCALL f 0 get k").is("v");
    client.line("CONFIG SET maxmemory 0").is_ok();
    for (flags, is_refused) in [("", true), ("'allow-stale', 'no-cluster'", true), ("'allow-oom'", false)] {
        load_with_flags(&mut client, flags);
        client.line("CONFIG SET maxmemory 1").is_ok();
        let answer = client.line("FCALL f 0 set k v");
        match is_refused {
            true => answer.is_error("OOM command not allowed when used memory > 'maxmemory'."),
            false => answer.is_ok(),
        }
        client.line("CONFIG SET maxmemory 0").is_ok();
    }
    client.line("CONFIG SET maxmemory 1").is_ok();
    client.line("FCALL_RO f 0 get k").is_error(only_reads);
    assert!(load(&mut client, "").starts_with("OOM "));
    client.line("FUNCTION FLUSH").is_ok();
}

marked!(also_redis: libraries_are_listed_with_all_that_is_known);
fn libraries_are_listed_with_all_that_is_known() {
    let server = Server::start();
    let mut client = server.client();
    let code = "redis.register_function{function_name = 'g', callback = function() end, description = 'why',
        flags = {'allow-oom', 'no-writes', 'allow-cross-slot-keys', 'no-cluster', 'allow-stale'}}";
    assert_eq!(load(&mut client, code), "lib");
    let head = "\"library_name\", \"lib\", \"engine\", \"LUA\", \"functions\", ";
    let function = "[[\"name\", \"g\", \"description\", \"why\", \"flags\", [no-writes, allow-oom, allow-stale, \
                    no-cluster, allow-cross-slot-keys]]]";
    let full = format!("[[{head}{function}, \"library_code\", \"{}\"]]", library("lib", code));
    for client in [&mut client, &mut server.client3()] {
        assert_eq!(client.line("FUNCTION LIST").reply().to_string(), format!("[[{head}{function}]]"));
        assert_eq!(client.line("FUNCTION LIST withcode LIBRARYNAME L*").reply().to_string(), full);
        assert_eq!(client.line("FUNCTION LIST LIBRARYNAME x*").reply().to_string(), "[]");
        for (options, error) in [
            ("LIBRARYNAME", "ERR library name argument was not given"),
            ("WITHCODE WITHCODE", "ERR Unknown argument WITHCODE"),
            ("LIBRARYNAME a LIBRARYNAME b", "ERR Unknown argument LIBRARYNAME"),
            ("foo", "ERR Unknown argument foo"),
        ] {
            client.line(&format!("FUNCTION LIST {options}")).is_error(error);
        }
    }
    let Reply::Map(library) = &server.client3().line("FUNCTION LIST").items()[0] else { panic!("no map") };
    let Reply::Array(functions) = &library[2].1 else { panic!("no array") };
    let Reply::Map(function) = &functions[0] else { panic!("no map") };
    assert!(matches!(&function[2].1, Reply::Set(flags) if flags.len() == 5));
}

marked!(also_redis: all_libraries_are_forgotten_at_once);
fn all_libraries_are_forgotten_at_once() {
    let mut client = Server::start().into_client();
    for mode in ["", "SYNC", "async"] {
        assert_eq!(call(&mut client, "return 1"), "(integer) 1");
        client.line(&format!("FUNCTION FLUSH {mode}")).is_ok();
        client.line("FCALL f 0").is_error("ERR Function not found");
    }
    client.line("FUNCTION FLUSH x").is_error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    client
        .line("FUNCTION flush SYNC SYNC")
        .is_error("ERR unknown subcommand or wrong number of arguments for 'flush'. Try FUNCTION HELP.");
    assert_eq!(call(&mut client, "return 1"), "(integer) 1");
    client.line("SCRIPT FLUSH").is_ok();
    client.line("FLUSHALL").is_ok();
    client.line("FCALL f 0").is(1);
}

/// What redis-server 7.0.15 makes of the library that [`one`] answers for `a`.
const DUMPED: &[u8] =
    b"\xf5@B#!lua name=a\nredis.register_function(\"fa\",function() return 1 end)\n\x00\x90\x8b+\\p\xbd7\xd6";

fn one(name: &str) -> String {
    library(name, &format!("redis.register_function(\"f{name}\",function() return 1 end)"))
}

#[track_caller]
fn restore(client: &mut Client, payload: &[u8], policy: &str) -> String {
    let policy = (!policy.is_empty()).then_some(policy.as_bytes());
    client.cmd([&b"FUNCTION"[..], b"RESTORE", payload].into_iter().chain(policy)).text()
}

fn dump(client: &mut Client) -> Vec<u8> {
    match client.line("FUNCTION DUMP").reply() {
        Reply::Bulk(payload) => payload,
        other => panic!("a payload, not {other}"),
    }
}

marked!(also_redis: libraries_travel_between_servers);
fn libraries_travel_between_servers() {
    let mut client = Server::start().into_client();
    // Redis 8 writes version 13, which older servers do not read.
    if !is_redis() {
        assert_eq!(dump(&mut client), b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda");
    }
    client.cmd(["FUNCTION", "LOAD", &one("a")]).is("a");
    if !is_redis() {
        assert_eq!(dump(&mut client), DUMPED);
    }
    let mut other = Server::start().into_client();
    assert_eq!(restore(&mut other, DUMPED, ""), "OK");
    other.line("FCALL fa 0").is(1);
    // A long one is compressed.
    let long = one("b") + &"\n-- again and again".repeat(1000);
    client.cmd(["FUNCTION", "LOAD", &long]).is("b");
    let both = dump(&mut client);
    assert!(both.len() < 1000);
    assert_eq!(restore(&mut other, &both, "FLUSH"), "OK");
    assert_eq!(listed(&mut other), listed(&mut client));
    assert!(other.line("FUNCTION LIST LIBRARYNAME b WITHCODE").reply().to_string().contains(&long));
}

marked!(also_redis: libraries_are_restored_as_the_policy_says);
fn libraries_are_restored_as_the_policy_says() {
    let mut client = Server::start().into_client();
    let payload = DUMPED;
    client
        .cmd(["FUNCTION", "LOAD", &library("a", "redis.register_function('old', function() return 0 end)")])
        .ignored();
    client.cmd(["FUNCTION", "LOAD", &one("b")]).ignored();
    for policy in ["", "APPEND"] {
        assert_eq!(restore(&mut client, payload, policy), "ERR Library a already exists");
    }
    client.line("FCALL old 0").is(0);
    assert_eq!(restore(&mut client, payload, "replace"), "OK");
    client.line("FCALL old 0").is_error("ERR Function not found");
    assert_eq!(listed(&mut client).len(), 2);
    assert_eq!(restore(&mut client, payload, "Flush"), "OK");
    assert_eq!(listed(&mut client).len(), 1);
    client.line("FCALL fa 0").is(1);
    // The name of a function is taken.
    client.line("FUNCTION FLUSH").is_ok();
    client
        .cmd(["FUNCTION", "LOAD", &library("c", "redis.register_function('FA', function() return 2 end)")])
        .ignored();
    for policy in ["APPEND", "REPLACE"] {
        assert_eq!(restore(&mut client, payload, policy), "ERR Function fa already exists");
    }
    client.line("FCALL fa 0").is(2);
    let error = "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
    assert_eq!(restore(&mut client, payload, "KEEP"), error);
    client
        .line("FUNCTION RESTORE x FLUSH y")
        .is_error("ERR unknown subcommand or wrong number of arguments for 'RESTORE'. Try FUNCTION HELP.");
}

marked!(also_redis: payloads_that_lie_are_refused);
/// Their checksums are right.
fn payloads_that_lie_are_refused() {
    let mut client = Server::start().into_client();
    assert_eq!(call(&mut client, "return 1"), "(integer) 1");
    for (payload, error) in [
        (&b""[..], "ERR DUMP payload version or checksum are wrong"),
        (b"123456789", "ERR DUMP payload version or checksum are wrong"),
        (&DUMPED[1..], "ERR DUMP payload version or checksum are wrong"),
        // The value of a key.
        (b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb", "ERR given type is not a function"),
        (
            b"\xf5\x81\xff\xff\xff\xff\xff\xff\xff\xff\n\x00\xbc@J\xdex\xb7\x10\xe0",
            "ERR Failed loading library payload",
        ),
        (b"\xf5\x05abcde\n\x00|\xc6\xa4\xda,\x1c\xe9\xb3", "ERR Missing library metadata"),
    ] {
        for policy in ["APPEND", "REPLACE", "FLUSH"] {
            assert_eq!(restore(&mut client, payload, policy), error, "{}", payload.escape_ascii());
        }
    }
    client.line("FCALL f 0").is(1);
}

const BUSY: &str = "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

/// Starts a function that does not end by itself, and waits until other clients get the error BUSY.
fn occupy(server: &Server, busy: &mut Client, client: &mut Client, body: &str) {
    client.line("CONFIG SET busy-reply-threshold 20").is_ok();
    assert_eq!(
        load(client, &format!("redis.register_function('loop', function(keys, args) {body} end)")),
        "lib"
    );
    busy.send(b"FCALL loop 1 k arg\r\n");
    server.wait_for_output("Slow script detected");
    client.line("GET x").is_error(BUSY);
}

marked!(also_redis: a_function_that_does_not_end_is_shown_and_killed);
fn a_function_that_does_not_end_is_shown_and_killed() {
    // A real Redis sends no replies at all in the meantime if it does not check its clients.
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function(e) return e end) end",
    ] {
        let server = Server::start();
        let (mut busy, mut client) = (server.client(), server.client());
        occupy(&server, &mut busy, &mut client, body);
        client.line("SCRIPT KILL").is_error(BUSY);
        let stats = client.line("FUNCTION STATS").reply().to_string();
        let start = "[\"running_script\", [\"name\", \"loop\", \"command\", [\"FCALL\", \"loop\", \"1\", \"k\", \
                     \"arg\"], \"duration_ms\", (integer) ";
        let end = "], \"engines\", [\"LUA\", [\"libraries_count\", (integer) 1, \"functions_count\", (integer) 1]]]";
        assert!(stats.starts_with(start) && stats.ends_with(end), "{stats}");
        client.line("FUNCTION KILL").is_ok();
        busy.reply()
            .is_error("ERR Script killed by user with SCRIPT KILL... script: loop, on @user_function:2.");
        client.line("FUNCTION KILL").is_error("NOTBUSY No scripts in execution right now.");
        let stats = client.line("FUNCTION STATS").reply().to_string();
        assert!(stats.starts_with("[\"running_script\", (nil), \"engines\", "), "{stats}");
        client.line("SET x 1").is_ok();
    }
}

marked!(also_redis: a_function_that_has_written_is_not_killed);
fn a_function_that_has_written_is_not_killed() {
    let server = Server::start();
    let (mut busy, mut client) = (server.client(), server.client());
    occupy(&server, &mut busy, &mut client, "redis.call('set', keys[1], 1) while true do end");
    for command in ["FUNCTION KILL", "SCRIPT KILL"] {
        client.line(command).is_error(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
             wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        );
    }
    assert!(busy.is_silent_for(Duration::from_millis(10)));
}

marked!(also_redis: a_script_is_no_function);
fn a_script_is_no_function() {
    let server = Server::start();
    let (mut busy, mut client) = (server.client(), server.client());
    client.line("CONFIG SET busy-reply-threshold 20").is_ok();
    busy.send(b"EVAL \"while true do coroutine.resume(coroutine.create(function() while true do end end)) end\" 0\r\n");
    server.wait_for_output("Slow script detected");
    let text = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
    client.line("FUNCTION KILL").is_error(text);
    client.line("FUNCTION STATS").is_error(text);
    if is_redis() {
        // It does not end: each coroutine takes the blow for the script.
        return;
    }
    client.line("SCRIPT KILL").is_ok();
    assert!(busy.reply().text().starts_with("ERR Script killed by user with SCRIPT KILL..."));
}

marked!(also_redis: functions_take_part_in_transactions);
fn functions_take_part_in_transactions() {
    let mut client = Server::start().into_client();
    client.line("MULTI").is_ok();
    client.cmd(["FUNCTION", "LOAD", &one("a")]).is_simple("QUEUED");
    client.line("FCALL fa 0").is_simple("QUEUED");
    client.line("FUNCTION DELETE a").is_simple("QUEUED");
    client.line("FCALL fa 0").is_simple("QUEUED");
    let answers = client.line("EXEC").reply().to_string();
    assert_eq!(answers, "[\"a\", (integer) 1, OK, (error) ERR Function not found]");
}

marked!(also_redis: info_tells_of_scripts_and_libraries);
fn info_tells_of_scripts_and_libraries() {
    let mut client = Server::start().into_client();
    let fields = ["number_of_cached_scripts", "number_of_functions", "number_of_libraries"];
    assert_eq!(fields.map(|field| client.info(field)), ["0", "0", "0"]);
    client.line("EVAL \"return 1\" 0").is(1);
    let code = "redis.register_function('f', function() end) redis.register_function('g', function() end)";
    assert_eq!(load(&mut client, code), "lib");
    assert_eq!(fields.map(|field| client.info(field)), ["1", "2", "1"]);
    for field in ["used_memory_vm_eval", "used_memory_functions", "used_memory_scripts"] {
        assert_ne!(client.info(field), "0", "{field}");
    }
    client.line("FUNCTION FLUSH").is_ok();
    client.line("SCRIPT FLUSH").is_ok();
    assert_eq!(fields.map(|field| client.info(field)), ["0", "0", "0"]);
}

marked!(also_redis: permissions_are_those_of_who_calls);
fn permissions_are_those_of_who_calls() {
    let server = Server::start();
    let (mut client, mut limited) = (server.client(), server.client());
    load_with_flags(&mut client, "");
    client.line("ACL SETUSER bob on nopass ~own* +fcall +get").is_ok();
    limited.line("AUTH bob x").is_ok();
    limited.line("FCALL f 1 own get own").is_nil();
    limited.line("FCALL f 1 other get own").is_error("NOPERM No permissions to access a key");
    assert!(limited.line("FCALL f 1 own get other").text().contains("No permissions to access a key"));
    assert!(
        limited
            .line("FCALL f 1 own set own x")
            .text()
            .contains("User bob has no permissions to run the 'set' command")
    );
    limited
        .line("FUNCTION DELETE lib")
        .is_error("NOPERM User bob has no permissions to run the 'function|delete' command");
}

/// Redis ends then.
#[test]
fn a_library_that_wants_all_memory_is_refused() {
    let mut client = Server::start().into_client();
    // On a busy machine its time may end first.
    let errors = ["not enough memory", "FUNCTION LOAD timeout"];
    let errors = errors.map(|error| format!("ERR Error registering functions: ERR {error}"));
    let refused = load(&mut client, "local s = 'x' while true do s = s .. s end");
    assert!(errors.contains(&refused), "{refused}");
    assert_eq!(call(&mut client, "return 1"), "(integer) 1");
}

/// Redis has no limits here.
#[test]
fn there_may_be_many_functions_but_not_any_number() {
    let mut client = Server::start().into_client();
    let many = |last: usize| {
        format!("for i = 1, {last} do redis.register_function('f' .. i, function() return i end) end")
    };
    assert_eq!(load(&mut client, &many(10_000)), "lib");
    client.line("FCALL f10000 0").is(10_000);
    assert_eq!(
        load(&mut client, &many(10_001)),
        "ERR Error registering functions: ERR Too many functions in the library"
    );
    assert_eq!(
        client.cmd(["FUNCTION", "LOAD", &one("a")]).text(),
        "ERR Too many libraries: there may be 1000 with 10000 functions and 64 MiB of code"
    );
    client.line("FCALL f9999 0").is(9999);
    let started = std::time::Instant::now();
    client.line("FUNCTION DELETE lib").is_ok();
    assert!(started.elapsed() < PATIENCE);
}
