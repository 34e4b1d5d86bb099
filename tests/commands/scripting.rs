//! Scripts, beyond what the observed conversations hold.

use std::thread;
use std::time::{Duration, Instant};

use support::client::{Client, Reply, request};
use support::server::{Server, is_redis, wait_until};

const NEVER_ENDING: &str = "while true do end";

/// A server whose scripts are slow after 50 ms.
fn impatient(options: &[&str]) -> Server {
    let mut all = vec!["--busy-reply-threshold", "50"];
    all.extend(options);
    Server::start_with(&all)
}

/// Waits until other clients get the error that a script runs for too long.
fn wait_until_busy(client: &mut Client) {
    wait_until(
        "clients hear that the script is slow",
        || matches!(client.line("GET other").reply(), Reply::Error(text) if text.starts_with("BUSY ")),
    );
}

fn one_thread() -> &'static [&'static str] {
    if is_redis() { &[] } else { &["--io-threads", "1"] }
}

#[test]
fn a_script_that_does_not_end_keeps_no_server_from_its_end() {
    let mut server = impatient(&[]);
    let (mut runner, mut client) = (server.client(), server.client());
    runner.send(&request(["EVAL", NEVER_ENDING, "1", "key"]));
    wait_until_busy(&mut client);
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert!(runner.reply().text().contains("Script killed by user"), "it was ended before its client was");
    assert!(server.wait_for_end().success() && runner.is_closed() && client.is_closed());
}

marked!(also_redis: a_script_that_does_not_end_can_be_killed);
fn a_script_that_does_not_end_can_be_killed() {
    for options in [&[][..], one_thread()] {
        let server = impatient(options);
        let (mut runner, mut client, mut killer) = (server.client(), server.client(), server.client());
        client.line("SCRIPT KILL").is_error("NOTBUSY No scripts in execution right now.");
        runner.send(&request(["EVAL", NEVER_ENDING, "1", "key"]));
        wait_until_busy(&mut client);
        let busy = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
        client.line("GET key").is_error(busy);
        // Requests that come together are made ready together, which must not wait for the script either.
        client.send(&[request(["GET", "key"]), request(["SET", "key", "v"])].concat());
        client.reply().is_error(busy);
        client.reply().is_error(busy);
        client.line("EVAL \"return 1\" 0").is_error(busy);
        client.line("PING").is_error(busy);
        client.line("MULTI").is_ok();
        client.line("GET key").is_error(busy);
        client.line("DISCARD").is_ok();
        // A new client comes in as well.
        server.client().line("FUNCTION KILL").reply();
        killer.line("SCRIPT KILL").is_ok();
        let Reply::Error(text) = runner.reply().reply() else { panic!("an error") };
        assert!(text.contains("Script killed by user with SCRIPT KILL"), "{text}");
        client.line("SET key v").is_ok();
        runner.line("EVAL \"return redis.call('get', KEYS[1])\" 1 key").is("v");
    }
}

marked!(also_redis: a_script_cannot_escape_its_end_by_catching_it);
fn a_script_cannot_escape_its_end_by_catching_it() {
    let server = impatient(&[]);
    let (mut runner, mut client) = (server.client(), server.client());
    let script = "while true do pcall(function() while true do end end) end";
    runner.send(&request(["EVAL", script, "0"]));
    wait_until_busy(&mut client);
    client.line("SCRIPT KILL").is_ok();
    assert!(matches!(runner.reply().reply(), Reply::Error(_)));
    client.line("PING").is_simple("PONG");
}

marked!(also_redis: a_script_that_has_written_cannot_be_killed_but_the_server_can_be_ended);
fn a_script_that_has_written_cannot_be_killed_but_the_server_can_be_ended() {
    let mut server = impatient(&[]);
    let (mut runner, mut client) = (server.client(), server.client());
    let script = format!("redis.call('set', KEYS[1], 'v') {NEVER_ENDING}");
    runner.send(&request(["EVAL", &script, "1", "key"]));
    wait_until_busy(&mut client);
    client.line("SCRIPT KILL").is_error(
        "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either \
         wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
    );
    client.send(&request(["SHUTDOWN", "NOSAVE"]));
    let status = server.wait_for_end();
    assert!(status.success(), "{status}");
}

marked!(also_redis: a_server_that_is_ended_does_not_wait_for_a_script_that_has_written);
fn a_server_that_is_ended_does_not_wait_for_a_script_that_has_written() {
    let took = || {
        let mut server = impatient(&[]);
        let (mut runner, mut waiting, mut client) = (server.client(), server.client(), server.client());
        let script = format!("redis.call('set', KEYS[1], 'v') {NEVER_ENDING}");
        runner.send(&request(["EVAL", &script, "1", "key"]));
        wait_until_busy(&mut client);
        waiting.line("GET key").ignored();
        let began = Instant::now();
        client.send(&request(["SHUTDOWN", "NOSAVE"]));
        assert!(server.wait_for_end().success());
        began.elapsed()
    };
    // A server that waited would take 700 ms each time. A busy machine may do so once.
    assert!((0..10).any(|_| took() < Duration::from_millis(500)));
}

marked!(also_redis: a_script_is_seen_whole_or_not_at_all_whatever_keys_it_declares);
fn a_script_is_seen_whole_or_not_at_all_whatever_keys_it_declares() {
    let server = Server::start();
    let script =
        "local n = redis.call('incr', 'a') for i = 1, 20 do redis.call('set', 'k' .. i, n) end return n";
    let keys: Vec<String> = (1..=20).map(|number| format!("k{number}")).collect();
    thread::scope(|scope| {
        for declared in [0, 1] {
            let mut client = server.client();
            scope.spawn(move || {
                for _ in 0..500 {
                    let arguments = ["EVAL", script, if declared == 1 { "1" } else { "0" }, "k7"];
                    client.cmd(&arguments[..3 + declared]).integer();
                }
            });
        }
        let (mut mget, mut multi) = (server.client(), server.client());
        let keys = &keys;
        let request: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        scope.spawn(move || {
            for _ in 0..300 {
                multi.line("MULTI").is_ok();
                multi.line("GET k20").is_simple("QUEUED");
                multi.line("GET k1").is_simple("QUEUED");
                let seen = multi.line("EXEC").items();
                assert_eq!(seen[0], seen[1]);
            }
        });
        for _ in 0..300 {
            let seen = mget.cmd(&request).items();
            assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
        }
    });
}

marked!(also_redis: scripts_transactions_and_commands_on_the_same_keys_never_wait_in_a_circle);
fn scripts_transactions_and_commands_on_the_same_keys_never_wait_in_a_circle() {
    let server = Server::start();
    thread::scope(|scope| {
        for client_number in 0..6_usize {
            let mut client = server.client();
            scope.spawn(move || {
                for round in 0..400_usize {
                    let keys = [0, 7, 13, 29].map(|step| (client_number * 31 + round * step) % 40);
                    let keys = keys.map(|number| format!("k{number}"));
                    let [a, b, c, d] = keys.each_ref().map(String::as_str);
                    match client_number % 3 {
                        // Undeclared, and in any order.
                        0 => drop(client.cmd([
                            "EVAL",
                            "for i = #ARGV, 1, -1 do redis.call('incr', ARGV[i]) end return redis.call('incr', KEYS[1])",
                            "1", a, d, b, c,
                        ])),
                        1 => {
                            client.line("MULTI").is_ok();
                            for key in [c, a, d] {
                                client.cmd(["INCR", key]).is_simple("QUEUED");
                            }
                            client.line("EXEC").reply();
                        }
                        _ => drop(client.cmd(["MGET", d, a, c, b])),
                    }
                }
            });
        }
    });
}

marked!(also_redis: nothing_that_a_script_does_is_left_for_the_next);
fn nothing_that_a_script_does_is_left_for_the_next() {
    let mut client = Server::start().into_client();
    for attempt in [
        "x = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "setmetatable(_G, {})",
        "redis.x = 1",
        "redis.call = nil",
        "string.upper = nil",
        "table.insert(redis, 1)",
        "rawset(string, 'upper', nil)",
        "getmetatable('').__index = nil",
        "getmetatable('').__index.upper = nil",
        "getmetatable(_G).__index = nil",
        "cjson.encode = nil",
        "loadstring('x = 1')()",
        "coroutine.wrap(function() x = 1 end)()",
    ] {
        let reply = client.cmd(["EVAL", attempt, "0"]).reply();
        assert!(matches!(reply, Reply::Error(_)), "{attempt}: {reply:?}");
    }
    client.cmd(["EVAL", "return ('x'):upper() .. #redis", "0"]).is("X0");
    client.cmd(["EVAL", "return pcall(function() return x end)", "0"]).is_nil();
    client.cmd(["EVAL", "KEYS[1] = 'changed' return 1", "1", "k"]).is(1);
    client.cmd(["EVAL", "return KEYS[1]", "1", "k"]).is("k");
    client.cmd(["EVAL", "collectgarbage('stop') return 1", "0"]).is(1);
}

marked!(also_redis: scripts_cannot_reach_files_processes_or_the_interpreter);
fn scripts_cannot_reach_files_processes_or_the_interpreter() {
    let mut client = Server::start().into_client();
    for name in [
        "io", "debug", "package", "require", "module", "dofile", "loadfile", "print", "newproxy", "setfenv",
        "getfenv",
    ] {
        let reply = client.cmd(["EVAL", &format!("return {name}"), "0"]).reply();
        assert!(matches!(reply, Reply::Error(_)), "{name}: {reply:?}");
    }
    let of_os = "local names = {} for name in pairs(os) do names[#names + 1] = name end return names";
    client.cmd(["EVAL", of_os, "0"]).is(Reply::Array(vec!["clock".into()]));
    let compiled = "return loadstring(string.dump(function() return 1 end))";
    client.cmd(["EVAL", compiled, "0"]).is_nil();
    let compiled = "local d = string.dump(function() return 1 end) \
                    return load(function() local p = d d = nil return p end)";
    client.cmd(["EVAL", compiled, "0"]).is_nil();
    let reply = client.cmd([&b"EVAL"[..], b"\x1bLua", b"0"]).reply();
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
}

marked!(also_redis: a_script_that_wants_too_much_fails_alone);
fn a_script_that_wants_too_much_fails_alone() {
    let mut client = Server::start().into_client();
    for greedy in [
        "local t = {} for i = 1, 1e9 do t[i] = {i, i} end",
        "return string.rep(string.rep('x', 1000), 1e6)",
        "local function f() return f() + 1 end return f()",
    ] {
        if is_redis() && !greedy.contains("return f()") {
            continue; // It has no limit.
        }
        let reply = client.cmd(["EVAL", greedy, "0"]).reply();
        assert!(matches!(reply, Reply::Error(_)), "{greedy}");
        client.line("PING").is_simple("PONG");
    }
    client.cmd(["EVAL", "return 'well'", "0"]).is("well");
}

marked!(also_redis: a_reply_of_a_script_may_be_nested_deeper_than_any_use);
fn a_reply_of_a_script_may_be_nested_deeper_than_any_use() {
    let mut client = Server::start().into_client();
    for (depth, expected) in [(100, "[]"), (100_000, "ERR reached lua stack limit")] {
        if is_redis() && depth > 100 {
            continue; // Its limit is another one.
        }
        let script = format!("local t = {{}} for i = 1, {depth} do t = {{t}} end return t");
        client.send(&request(["EVAL", &script, "0"]));
        let text = String::from_utf8(client.reply_bytes()).unwrap();
        assert!(
            text.ends_with(&format!("{}\r\n", if expected == "[]" { "*0" } else { expected })),
            "{depth}"
        );
        client.line("PING").is_simple("PONG");
    }
}

marked!(also_redis: what_a_script_selects_its_client_does_not);
fn what_a_script_selects_its_client_does_not() {
    let mut client = Server::start().into_client();
    client.cmd(["EVAL", "redis.call('select', 3) return redis.call('set', 'k', 'v')", "0"]).is_ok();
    client.line("GET k").is_nil();
    client.line("SELECT 3").is_ok();
    client.line("GET k").is("v");
    client.cmd(["EVAL", "return redis.call('get', 'k')", "0"]).is("v");
}

marked!(also_redis: a_watched_key_is_changed_by_a_script_as_by_any_command);
fn a_watched_key_is_changed_by_a_script_as_by_any_command() {
    let server = Server::start();
    let (mut watcher, mut client) = (server.client(), server.client());
    watcher.line("WATCH k").is_ok();
    client.cmd(["EVAL", "return redis.call('set', KEYS[1], 1)", "1", "k"]).is_ok();
    watcher.line("MULTI").is_ok();
    watcher.line("EXEC").is_nil();
}

#[test]
fn scripts_are_forgotten_once_too_many_have_come_unless_they_were_loaded_to_stay() {
    // Redis 7.0 keeps all of them.
    let mut client = Server::start().into_client();
    let kept = client.cmd(["SCRIPT", "LOAD", "return 'kept'"]).text();
    let first = client.cmd(["EVAL", "return redis.sha1hex('return 0')", "0"]).text();
    for number in 0..600 {
        client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number);
    }
    client.cmd(["EVALSHA", &kept, "0"]).is("kept");
    let is_forgotten = "NOSCRIPT No matching script. Please use EVAL.";
    client.cmd(["EVALSHA", &first, "0"]).is_error(is_forgotten);
    client.cmd(["EVAL", "return 0", "0"]).is(0);
    client.cmd(["EVALSHA", &first, "0"]).is(0);
    client.line("SCRIPT FLUSH").is_ok();
    client.cmd(["EVALSHA", &first, "0"]).is_error(is_forgotten);
    client.cmd(["EVAL", "return 0", "0"]).is(0);
    client.cmd(["EVALSHA", &first, "0"]).is(0);
}

#[test]
fn of_too_many_scripts_the_one_that_was_used_longest_ago_is_forgotten() {
    let mut client = Server::start().into_client();
    let digest = client.cmd(["EVAL", "return redis.sha1hex('return 1')", "0"]).text();
    let uses: [&[&[&str]]; 5] = [
        &[&["EVALSHA", &digest, "0"]],
        &[&["EVALSHA_RO", &digest, "0"]],
        &[&["EVAL", "return 1", "0"]],
        &[&["EVAL_RO", "return 1", "0"]],
        &[&["MULTI"], &["EVALSHA", &digest, "0"], &["EXEC"]],
    ];
    for requests in uses {
        client.line("SCRIPT FLUSH").is_ok();
        for number in 1..=500 {
            client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number);
        }
        requests.iter().for_each(|request| client.cmd(request.iter().copied()).ignored());
        for number in 501..=999 {
            client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number);
        }
        client.cmd(["EVALSHA", &digest, "0"]).is(1);
        (501..=999).for_each(|number| client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number));
        client.cmd(["EVAL", "return 'one more'", "0"]).is("one more");
        let is_forgotten = "NOSCRIPT No matching script. Please use EVAL.";
        client.cmd(["EVALSHA", &digest, "0"]).is_error(is_forgotten);
    }
    // One that SCRIPT LOAD has loaded stays, although EVAL had cached it.
    client.cmd(["EVAL", "return 1", "0"]).is(1);
    client.cmd(["SCRIPT", "LOAD", "return 1"]).is(digest.as_str());
    (1000..1501).for_each(|number| client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number));
    client.cmd(["EVALSHA", &digest, "0"]).is(1);
}

#[test]
fn time_stands_still_within_a_script_and_a_transaction() {
    let mut client = Server::start().into_client();
    let wait = "local begin = os.clock() while os.clock() - begin < 0.005 do end";
    let same = "local t, u = redis.call('TIME'), nil WAIT u = redis.call('TIME') \
                redis.call('SET', 'k', 'v', 'PX', 1000) \
                local ms = t[1] * 1000 + math.floor(t[2] / 1000) \
                return {t[1] == u[1] and t[2] == u[2], redis.call('PEXPIRETIME', 'k') - ms}";
    let same = same.replace("WAIT", wait);
    let expected = [Reply::Integer(1), Reply::Integer(1000)];
    for _ in 0..20 {
        assert_eq!(client.cmd(["EVAL", &same, "1", "k"]).items(), expected);
    }
    let library = format!("#!lua name=l\nredis.register_function('f', function() {same} end)");
    client.cmd(["FUNCTION", "LOAD", &library]).is("l");
    assert_eq!(client.line("FCALL f 1 k").items(), expected);
    client.line("MULTI").is_ok();
    for request in [&["TIME"][..], &["EVAL", wait, "0"], &["TIME"], &["EVAL", &same, "1", "k"]] {
        client.cmd(request.iter().copied()).is_simple("QUEUED");
    }
    let replies = client.line("EXEC").items();
    assert_eq!(replies[0], replies[2]);
    // TIME has microseconds, too: not all replies have the same within their millisecond.
    let times: Vec<String> = (0..50)
        .map(|_| client.cmd(["EVAL", "return redis.call('TIME')[2] % 1000", "0"]).integer().to_string())
        .collect();
    assert!(times.iter().any(|time| *time != times[0]), "{times:?}");
}

#[test]
fn numbers_that_a_script_gives_to_redis_may_be_strings() {
    let mut client = Server::start().into_client();
    for (script, expected) in [
        ("redis.log('2', 'x')", None),
        ("redis.log(' 0x2 ', 'x')", None),
        ("redis.log('2.9', 'x')", None),
        ("redis.log(-0.5, 'x')", None),
        ("redis.log(7, 'x')", Some("ERR Invalid log level.")),
        ("redis.log('-1', 'x')", Some("ERR Invalid log level.")),
        ("redis.log('nan', 'x')", Some("ERR Invalid log level.")),
        ("redis.log('x', 'y')", Some("ERR First argument must be a number (log level).")),
        ("redis.setresp('3')", None),
        ("redis.setresp('2.9')", None),
        ("redis.setresp('4')", Some("ERR RESP version must be 2 or 3.")),
        ("redis.setresp({})", Some("ERR RESP version must be 2 or 3.")),
        ("redis.set_repl('3')", None),
        ("redis.set_repl('x')", None),
        ("redis.set_repl(nil)", None),
        ("redis.set_repl(4)", Some("ERR Invalid replication flags.")),
    ] {
        let reply = client.cmd(["EVAL", &format!("{script} return 'done'"), "0"]);
        let text = reply.reply().to_string();
        let is_expected = text.contains(expected.unwrap_or("done"));
        assert!(is_expected, "{script}: {text}");
    }
}

#[test]
fn an_array_that_is_decoded_can_stay_one() {
    let mut client = Server::start().into_client();
    let marked = "cjson.decode_array_with_array_mt(true) local a = cjson.decode(ARGV[1]) \
                  cjson.decode_array_with_array_mt(false) ";
    for (text, then, expected) in [
        (r#"{"a":[]}"#, "", r#"{"a":[]}"#),
        (r#"{"a":{}}"#, "", r#"{"a":{}}"#),
        ("[[],[1]]", "", "[[],[1]]"),
        ("[]", "a.name, a[1] = 1, 2", "[2]"),
        ("[]", "a[3] = 2", "[]"),
        ("[1,2,3,4,5]", "a[2] = nil", "[1,null,3,4,5]"),
        ("[]", "a = setmetatable({}, {__is_cjson_array = false})", "{}"),
        ("[]", "a = setmetatable({}, {__is_cjson_array = 'yes'})", "[]"),
        ("[]", "a = setmetatable({}, getmetatable(a))", "[]"),
        ("[]", "a = cjson.decode('[]')", "{}"),
        ("[]", "a = pcall(function() getmetatable(a).x = 1 end)", "false"),
        ("[]", "a = cjson.decode_array_with_array_mt()", "false"),
    ] {
        let script = [marked, then, " return cjson.encode(a)"].concat();
        client.cmd(["EVAL", &script, "0", text]).is(expected);
    }
    let own = "local c = cjson.new() c.decode_array_with_array_mt('on') \
               return c.encode(c.decode('[]')) .. c.encode(cjson.decode('[]'))";
    client.cmd(["EVAL", own, "0"]).is("[]{}");
}

#[test]
fn the_flags_of_a_script_may_be_quoted_and_none_may_be_empty() {
    let mut client = Server::start().into_client();
    for flags in ["\"no-writes\"", "'no-writes,allow-oom'", "", "\"no\\x2dwrites\" "] {
        client.cmd(["EVAL", &format!("#!lua flags={flags}\nreturn 1"), "0"]).is(1);
    }
    client
        .cmd(["EVAL", "#!\"lua\" 'flags=no-writes'\nreturn redis.call('SET', 'k', 'v')", "1", "k"])
        .is_error(
            "ERR Write commands are not allowed from read-only scripts. script: \
         08e4b18b166c445204e0d1f038450785a853d2b6, on @user_script:2.",
        );
    for (line, error) in [
        ("lua flags=no-writes,", "ERR Unexpected flag in script shebang: "),
        ("lua flags=,", "ERR Unexpected flag in script shebang: "),
        ("lua flags=no-writes, allow-oom", "ERR Unexpected flag in script shebang: "),
        ("lua flags= no-writes", "ERR Unknown lua shebang option: no-writes"),
        ("lua \"\"", "ERR Unknown lua shebang option: "),
        ("lua flags=\"no-writes", "ERR Invalid engine in script shebang"),
        ("lua flags=\"no-writes\"x", "ERR Invalid engine in script shebang"),
        (" lua", "ERR Unexpected engine in script shebang: #!"),
        ("LUA", "ERR Unexpected engine in script shebang: #!LUA"),
    ] {
        client.cmd(["EVAL", &format!("#!{line}\nreturn 1"), "0"]).is_error(error);
    }
}

/// A text of about so many bytes that takes some 14 times as many when it is compiled.
fn dense(number: usize, bytes: usize) -> String {
    const ONE: &str = "_=function()end ";
    format!("-- {number}\n{}", ONE.repeat(bytes / ONE.len()))
}

#[test]
fn a_script_that_is_too_long_takes_nothing_from_the_scripts_of_others() {
    // Redis has no limit.
    const MIB: usize = 1 << 20;
    const RELEASE: &str =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
    let server = Server::start();
    let (mut holder, mut eve) = (server.client(), server.client());
    holder.line("ACL SETUSER eve on >secret resetkeys -@all +eval").is_ok();
    eve.line("AUTH eve secret").is_ok();
    holder.cmd(["EVAL", RELEASE, "1", "lock", "me"]).is(0);
    let digest = holder.cmd(["EVAL", &format!("return redis.sha1hex({RELEASE:?})"), "0"]).text();
    let is_too_long = "ERR Error compiling script (new function): the text is longer than 4 MiB";
    eve.cmd(["EVAL", &dense(0, 28 * MIB), "0"]).is_error(is_too_long);
    eve.cmd(["EVAL", &dense(1, 35 * MIB), "0"]).is_error(is_too_long);
    for number in 0..3 {
        // These are garbage as soon as they were compiled, or are cached.
        let broken = dense(number, 3 * MIB) + "(";
        assert!(matches!(eve.cmd(["EVAL", &broken, "0"]).reply(), Reply::Error(_)));
        eve.cmd(["EVAL", &dense(number, 3 * MIB), "0"]).ignored();
        holder.line("SET lock me").is_ok();
        holder.cmd(["EVALSHA", &digest, "1", "lock", "me"]).is(1);
        holder.cmd(["EVAL", &format!("return {number}"), "0"]).is(number as i64);
    }
}

#[test]
fn new_scripts_are_compiled_although_loaded_ones_have_met_the_limit_of_memory() {
    // Redis has no limit.
    let mut client = Server::start().into_client();
    client.cmd(["EVAL", "return 'first'", "0"]).is("first");
    let mut number = 0;
    let refused = loop {
        match client.cmd(["SCRIPT", "LOAD", &dense(number, 3_300_000)]).reply() {
            Reply::Error(text) => break text,
            _ => number += 1,
        }
        assert!(number < 100, "there is no limit");
    };
    assert_eq!(refused, "ERR Error compiling script (new function): not enough memory");
    for number in 0..3 {
        client.cmd(["EVAL", &format!("return {number}"), "0"]).is(number);
    }
    let digest = client.cmd(["SCRIPT", "LOAD", "return 'loaded'"]).text();
    client.cmd(["EVALSHA", &digest, "0"]).is("loaded");
    let library = "#!lua name=mine\nredis.register_function('f', function() return 'called' end)";
    client.cmd(["FUNCTION", "LOAD", library]).is("mine");
    client.line("FCALL f 0").is("called");
}

marked!(also_redis: what_is_called_from_a_script_is_counted_shown_and_told_of);
fn what_is_called_from_a_script_is_counted_shown_and_told_of() {
    let server = Server::start();
    let (mut client, mut monitor, mut listener) = (server.client(), server.client(), server.client());
    client.line("CONFIG RESETSTAT").is_ok();
    client.line("CONFIG SET notify-keyspace-events E$").is_ok();
    listener.line("SUBSCRIBE __keyevent@0__:set").reply();
    monitor.line("MONITOR").is_ok();
    client
        .cmd([
            "EVAL",
            "redis.call('set', KEYS[1], ARGV[1]) return redis.pcall('incr', KEYS[1])",
            "1",
            "k",
            "v",
        ])
        .ignored();
    let shown: Vec<String> = (0..3).map(|_| format!("{:?}", monitor.reply().reply())).collect();
    assert!(shown[0].contains("EVAL") && shown[1].contains("[0 lua] \\\"set\\\""), "{shown:?}");
    assert_eq!(listener.reply().items().len(), 3);
    let used = client.line("INFO commandstats").text();
    for expected in ["cmdstat_set:calls=1,", "cmdstat_incr:calls=1,", "cmdstat_eval:calls=1,"] {
        assert!(used.contains(expected), "{used}");
    }
}

marked!(also_redis: what_a_script_has_called_is_counted_for_the_next_client_that_asks);
fn what_a_script_has_called_is_counted_for_the_next_client_that_asks() {
    let mut client = Server::start().into_client();
    let script = "redis.call('set', KEYS[1], 'v') return redis.call('get', KEYS[1])";
    let eval = request(["EVAL", script, "1", "k"]);
    let info = request(["INFO", "commandstats"]);
    let is_counted = |statistics: &str, calls: usize| {
        for name in ["get", "set"] {
            assert!(statistics.contains(&format!("cmdstat_{name}:calls={calls},")), "{calls}: {statistics}");
        }
    };
    client.send(&[&eval[..], &eval, &info].concat());
    client.reply().is("v");
    client.reply().is("v");
    is_counted(&client.reply().text(), 2);
    client.line("MULTI").is_ok();
    client.send(&[&eval[..], &info].concat());
    client.reply().is_simple("QUEUED");
    client.reply().is_simple("QUEUED");
    is_counted(&client.line("EXEC").reply().to_string(), 3);
    let asks = "redis.call('set', KEYS[1], 'v') redis.call('get', KEYS[1]) \
                return redis.call('info', 'commandstats')";
    is_counted(&client.cmd(["EVAL", asks, "1", "k"]).text(), 4);
}

marked!(also_redis: the_rights_of_a_user_hold_within_scripts);
fn the_rights_of_a_user_hold_within_scripts() {
    let server = Server::start();
    let (mut admin, mut user) = (server.client(), server.client());
    admin.line("ACL SETUSER u on nopass ~mine* +@all -incr resetchannels").is_ok();
    user.line("AUTH u x").is_ok();
    let mut refused = |script: &str, reason: &str| {
        let Reply::Error(text) = user.cmd(["EVAL", script, "1", "mine"]).reply() else { panic!("{script}") };
        assert!(text.starts_with(&format!("ERR ACL failure in script: {reason}")), "{text}");
    };
    refused("return redis.call('incr', KEYS[1])", "User u has no permissions to run the 'incr' command");
    refused("return redis.call('get', 'other')", "No permissions to access a key");
    refused("return redis.call('publish', 'c', 'm')", "No permissions to access a channel");
    user.cmd(["EVAL", "return redis.acl_check_cmd('incr', 'mine')", "0"]).is_nil();
    user.cmd(["EVAL", "return redis.acl_check_cmd('get', 'mine')", "0"]).is(1);
}

const ACCOUNTS: usize = 100;

marked!(also_redis: a_bank_whose_tellers_use_scripts_and_watch_at_once_neither_makes_money_nor_loses_any);
fn a_bank_whose_tellers_use_scripts_and_watch_at_once_neither_makes_money_nor_loses_any() {
    let server = Server::start();
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        client.cmd(["SET", &format!("account:{account}"), "100"]).is_ok();
    }
    let digest = client.cmd(["SCRIPT", "LOAD", TRANSFER]).text();
    thread::scope(|scope| {
        for teller in 0..32 {
            let (mut client, digest) = (server.client(), &digest);
            scope.spawn(move || {
                for transfer in 0..60 {
                    let from = format!("account:{}", (teller * 7 + transfer * 13) % ACCOUNTS);
                    let to = format!("account:{}", (teller * 11 + transfer * 17 + 1) % ACCOUNTS);
                    match teller % 3 {
                        _ if from == to => {}
                        0 => drop(client.cmd(["EVALSHA", digest, "2", &from, &to])),
                        // Undeclared keys.
                        1 => drop(client.cmd(["EVAL", UNDECLARED_TRANSFER, "0", &from, &to])),
                        _ => while !transfer_by_watch(&mut client, &from, &to) {},
                    }
                }
            });
        }
        let mut auditor = server.client();
        for _ in 0..50 {
            assert_eq!(total(&mut auditor), 100 * ACCOUNTS as i64);
        }
    });
    assert_eq!(total(&mut client), 100 * ACCOUNTS as i64);
}

const TRANSFER: &str = "local a, b = redis.call('get', KEYS[1]), redis.call('get', KEYS[2]) \
                        redis.call('set', KEYS[1], a - 1) redis.call('set', KEYS[2], b + 1)";
const UNDECLARED_TRANSFER: &str = "local a = redis.call('get', ARGV[1]) redis.call('set', ARGV[1], a - 1) \
                                   redis.call('incr', ARGV[2])";

fn transfer_by_watch(client: &mut Client, from: &str, to: &str) -> bool {
    client.cmd(["WATCH", from, to]).is_ok();
    let balances = [from, to].map(|account| client.cmd(["GET", account]).text().parse::<i64>().unwrap());
    client.line("MULTI").is_ok();
    client.cmd(["SET", from, &(balances[0] - 1).to_string()]).is_simple("QUEUED");
    client.cmd(["SET", to, &(balances[1] + 1).to_string()]).is_simple("QUEUED");
    client.line("EXEC").reply() != Reply::Null
}

fn total(client: &mut Client) -> i64 {
    let sum = "local sum = 0 for i = 0, 99 do sum = sum + redis.call('get', 'account:' .. i) end return sum";
    client.cmd(["EVAL", sum, "0"]).integer()
}

marked!(also_redis: a_thread_that_runs_a_slow_script_loses_no_client);
fn a_thread_that_runs_a_slow_script_loses_no_client() {
    let server = impatient(one_thread());
    let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
    let (mut runner, mut killer) = (server.client(), server.client());
    for _ in 0..3 {
        runner.send(&request(["EVAL", NEVER_ENDING, "0"]));
        wait_until_busy(&mut clients[0]);
        clients.iter_mut().for_each(|client| assert!(matches!(client.line("PING").reply(), Reply::Error(_))));
        killer.line("SCRIPT KILL").is_ok();
        runner.reply().ignored();
        clients.iter_mut().for_each(|client| client.line("PING").is_simple("PONG"));
    }
    thread::sleep(Duration::from_millis(20));
    runner.line("PING").is_simple("PONG");
}

marked!(also_redis: every_script_has_its_own_keys_and_arguments_and_nothing_else);
fn every_script_has_its_own_keys_and_arguments_and_nothing_else() {
    let mut client = Server::start().into_client();
    let describe = "local s = '' for k, v in pairs(KEYS) do s = s .. k .. '=' .. v .. ' ' end \
                    for k, v in pairs(ARGV) do s = s .. k .. ':' .. v .. ' ' end \
                    return s .. #KEYS .. #ARGV .. tostring(getmetatable(KEYS))";
    let is_clean = |client: &mut Client| {
        client.cmd(["EVAL", describe, "1", "a", "b"]).is("1=a 1:b 11nil");
        client.cmd(["EVAL", describe, "1", "b", "c"]).is("1=b 1:c 11nil");
        client.cmd(["EVAL", describe, "0"]).is("00nil");
        client.cmd(["EVAL", describe, "2", "a", "b", "c", "d"]).is("1=a 2=b 1:c 2:d 22nil");
        client.cmd(["EVAL", describe, "2", "c", "d", "a", "b"]).is("1=c 2=d 1:a 2:b 22nil");
    };
    is_clean(&mut client);
    for spoil in [
        "KEYS[3] = 'x' ARGV[100] = 'y'",
        "KEYS.name = 'x' ARGV[1.5] = 'y' ARGV[-1] = 'z' ARGV[0] = 'z'",
        "setmetatable(KEYS, {__index = function() return 'x' end}) ARGV[true] = 'y'",
        "KEYS, ARGV = nil, 3",
        "KEYS[1] = nil ARGV[1] = {} ARGV[2] = {}",
        "for i = 1, 100 do KEYS[i] = i end for i = 1, 100 do ARGV[i] = nil end",
        "table.insert(KEYS, 'x') error('oh')",
        "KEYS[1], KEYS[2] = KEYS[2], KEYS[1] return KEYS",
    ] {
        client.cmd(["EVAL", spoil, "2", "k1", "k2", "a1", "a2"]).ignored();
        is_clean(&mut client);
    }
    let many: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let arguments = ["EVAL", "return #ARGV", "0"].into_iter().chain(many.iter().map(String::as_str));
    client.cmd(arguments).is(50);
    is_clean(&mut client);
}

marked!(also_redis: a_script_that_only_looks_sees_what_it_was_given_whatever_others_were);
fn a_script_that_only_looks_sees_what_it_was_given_whatever_others_were() {
    let mut client = Server::start().into_client();
    let library = "#!lua name=lib\n redis.register_function('spoil', function(keys, arguments) \
                   arguments[5] = 'x' pcall(loadstring('KEYS[5] = 1')) pcall(loadstring('ARGV[5] = 1')) end)";
    let look = "return #KEYS .. #ARGV .. ' ' .. tostring(KEYS[1]) .. tostring(KEYS[2]) .. tostring(KEYS[5]) \
                .. ' ' .. tostring(ARGV[1]) .. tostring(ARGV[2]) .. tostring(ARGV[5]) .. tostring(ARGV.name)";
    let looks = |client: &mut Client| {
        client.cmd(["EVAL", look, "1", "a", "b"]).is("11 anilnil bnilnilnil");
        client.cmd(["EVAL", look, "2", "a", "b", "c", "d"]).is("22 abnil cdnilnil");
        client.cmd(["EVAL", look, "1", "b", "1", "2", "3", "4", "5"]).is("15 bnilnil 125nil");
        client.cmd(["EVAL", look, "0"]).is("00 nilnilnil nilnilnilnil");
        client.cmd(["EVAL", look, "0", "", "2"]).is("02 nilnilnil 2nilnil");
        client.cmd(["EVAL", look, "5", "1", "2", "3", "4", "5"]).is("50 125 nilnilnilnil");
    };
    looks(&mut client);
    for spoil in [
        "KEYS[5] = 'x' ARGV[5] = 'y' ARGV.name = 'z'",
        "setmetatable(KEYS, {__index = function() return 'x' end}) ARGV = setmetatable({}, {__index = KEYS})",
        "local keys = KEYS keys[5] = 'x'",
        "_G.KEYS[5] = 'x' rawset(_G.ARGV, 'name', 'x')",
        "loadstring('KEYS[5] = 1 ARGV[5] = 2')()",
        "KEYS, ARGV = nil, 3",
        "return KEYS[1] .. nil",
        "return unpack(ARGV)",
    ] {
        client.cmd(["EVAL", spoil, "2", "k1", "k2", "a1", "a2"]).ignored();
        looks(&mut client);
    }
    client.cmd(["FUNCTION", "LOAD", library]).is("lib");
    client.cmd(["FCALL", "spoil", "1", "a", "b"]).is_nil();
    looks(&mut client);
    let many: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let arguments = ["EVAL", look, "0"].into_iter().chain(many.iter().map(String::as_str));
    client.cmd(arguments).is("050 nilnilnil 014nil");
    looks(&mut client);
}

marked!(also_redis: errors_that_a_script_answers_are_counted_once);
fn errors_that_a_script_answers_are_counted_once() {
    let mut client = Server::start().into_client();
    for script in [
        "return redis.error_reply('MYERR x')",
        "return {err='MYERR y'}",
        "return redis.pcall('incr', 'k', 'k')",
        "return redis.pcall('nosuchcommand')",
        "error({err='MYERR z'})",
    ] {
        assert!(matches!(client.cmd(["EVAL", script, "0"]).reply(), Reply::Error(_)));
    }
    let statistics = client.line("INFO errorstats").text();
    assert!(statistics.contains("errorstat_MYERR:count=3"), "{statistics}");
    assert!(statistics.contains("errorstat_ERR:count=2"), "{statistics}");
    let usage = client.line("INFO commandstats").text();
    let usage = usage.lines().find(|line| line.starts_with("cmdstat_eval:")).unwrap();
    assert!(usage.contains("failed_calls=5"), "{usage}");
}

marked!(also_redis: a_function_may_keep_its_keys);
fn a_function_may_keep_its_keys() {
    let mut client = Server::start().into_client();
    let library = "#!lua name=lib\n local kept = {} \
                   redis.register_function('keep', function(keys, arguments) \
                   kept[#kept + 1] = keys return kept end)";
    client.cmd(["FUNCTION", "LOAD", library]).is("lib");
    client.line("FCALL keep 1 a").ignored();
    client.line("EVAL \"return KEYS[1]\" 1 b").is("b");
    assert_eq!(client.line("FCALL keep 1 c").reply().to_string(), "[[\"a\"], [\"c\"]]");
}

marked!(also_redis: nothing_waits_for_replicas_within_a_script);
fn nothing_waits_for_replicas_within_a_script() {
    let server = Server::start();
    let mut client = server.client();
    for (script, reply) in [
        ("return redis.call('wait', 1, 0)", "(integer) 0"),
        ("redis.call('set', 'k', 'v') return redis.call('wait', 1, 0)", "(integer) 0"),
        ("return redis.call('waitaof', 0, 1, 0)", "[(integer) 0, (integer) 0]"),
        ("#!lua flags=no-writes\nreturn redis.call('wait', 1, 0)", "(integer) 0"),
        ("return redis.pcall('wait', 1, -1)", "(error) ERR timeout is negative"),
        ("return redis.pcall('wait', 'x', 0)", "(error) ERR value is not an integer or out of range"),
    ] {
        assert_eq!(client.cmd(["EVAL", script, "0"]).reply().to_string(), reply, "{script}");
    }
    client.cmd(["EVAL_RO", "return redis.call('wait', 1, 0)", "0"]).is(0);
    // A user without the commands that block may not wait there either.
    client.line("ACL SETUSER bob on nopass ~* &* +@all -@blocking").is_ok();
    client.line("AUTH bob any").is_ok();
    client.line("WAIT 0 0").is_error("NOPERM User bob has no permissions to run the 'wait' command");
    let refused = "ERR ACL failure in script: User bob has no permissions to run the 'wait' command";
    client.cmd(["EVAL", "return redis.pcall('wait', 0, 0)", "0"]).is_error(refused);
}

marked!(also_redis: a_script_that_only_reads_may_not_publish);
fn a_script_that_only_reads_may_not_publish() {
    const REFUSED: &str = "ERR Write commands are not allowed from read-only scripts.";
    let server = Server::start();
    let (mut client, mut listener) = (server.client(), server.client());
    listener.line("SUBSCRIBE c").ignored();
    client
        .cmd([
            "FUNCTION",
            "LOAD",
            "#!lua name=lib
             redis.register_function{function_name='f', flags={'no-writes'}, callback=function()
             return redis.pcall('publish', 'c', 'm') end}",
        ])
        .is("lib");
    for publish in ["PUBLISH", "SPUBLISH"] {
        let script = format!("return redis.pcall('{publish}', 'c', 'm')");
        client.cmd(["EVAL_RO", &script, "0"]).is_error(REFUSED);
        client.cmd(["EVAL", &format!("#!lua flags=no-writes\n{script}"), "0"]).is_error(REFUSED);
    }
    client.line("FCALL f 0").is_error(REFUSED);
    client.line("FCALL_RO f 0").is_error(REFUSED);
    client.line("EVAL \"#!lua\nreturn redis.call('publish', 'c', 'end')\" 0").is(1);
    assert!(listener.reply().reply().to_string().contains("\"end\""));
}

marked!(also_redis: a_script_that_has_written_is_not_stopped_for_want_of_memory);
fn a_script_that_has_written_is_not_stopped_for_want_of_memory() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let mut client = Server::start().into_client();
    client.line("SET k v").is_ok();
    client.line("CONFIG SET maxmemory 1").is_ok();
    client.line("EVAL \"return redis.pcall('set', 'l', 'v')\" 0").is_error(OOM);
    client.line("EVAL \"redis.call('get', 'k') return redis.pcall('set', 'l', 'v')\" 0").is_error(OOM);
    client.line("EVAL \"redis.call('del', 'k') return redis.pcall('set', 'l', 'v')\" 0").is_ok();
    client.line("EVAL \"#!lua\nreturn 1\" 0").is_error(OOM);
    client.line("GET l").is("v");
}

marked!(also_redis: a_number_is_no_text_of_a_reply);
fn a_number_is_no_text_of_a_reply() {
    let mut client = Server::start().into_client();
    for made in ["status_reply(1)", "error_reply(1)", "status_reply()", "error_reply('a', 'b')"] {
        client
            .cmd(["EVAL", &format!("return redis.{made}"), "0"])
            .is_error("ERR wrong number or type of arguments");
    }
    client.cmd(["EVAL", "return redis.status_reply('1')", "0"]).is_simple("1");
}

/// Redis 7.0 has no WAIT in scripts.
#[test]
fn a_script_does_not_wait_for_replicas() {
    let mut client = Server::start().into_client();
    client.line("EVAL \"return redis.call('WAIT', '1', '0')\" 0").is(0);
}
