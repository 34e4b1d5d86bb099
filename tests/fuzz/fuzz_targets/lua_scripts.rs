//! Runs scripts that are made of the input in the server's interpreter, one after the other in the same one.
//!
//! The first byte chooses how. The rest is the text of a script, or data for the functions that read what
//! others have written (patterns, formats, JSON, MessagePack, structures), or a list of choices of which
//! [`Writer`] makes a script that calls the libraries with odd values. Whatever happens, the interpreter must
//! live, must end a script that goes on for too long, and must be as it was for the next script.
//! `tests/sanitizers/run` builds this with sanitizers; the interpreter's own checks are on then.

#![no_main]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyfast::internals::resp::{OwnedRequest, Protocol, Reply, Request};
use keyfast::internals::scripting::running::Killed;
use keyfast::internals::scripting::shebang::Flags;
use keyfast::internals::scripting::{Callable, Failure, Host, Interpreter, Invocation, NoCommand, Refused};
use libfuzzer_sys::fuzz_target;

/// After so many looks at the time, which is after 100,000 instructions each, a script is killed.
const TICKS_MAX: usize = 20;

/// What every script must find as it is here.
const WORLD: &str = "local t = {} for k, v in pairs(_G) do t[#t + 1] = k end table.sort(t) \
                     return table.concat(t, ' ') .. ('x'):rep(2) .. cjson.new().encode({1, 'a'}) \
                     .. bit.tohex(255) .. tostring(pcall(rawset, redis, 'x', 1)) .. #KEYS .. ARGV[1]";

thread_local! {
    static SERVER: RefCell<Server> = RefCell::new(Server::new());
}

fuzz_target!(|data: &[u8]| {
    let [mode, rest @ ..] = data else { return };
    SERVER.with_borrow_mut(|server| match mode % 4 {
        0 => server.run(rest, &[]),
        1 => {
            let (first, second) = rest.split_at(rest.len() / 2);
            server.run(READERS.as_bytes(), &[first, second]);
        }
        _ => server.run(Writer::new(rest).script().as_bytes(), &[rest]),
    });
});

/// Reads data in all the ways there are.
const READERS: &str = "
local a, b = ARGV[1], ARGV[2]
local calls = {
  function() return cjson.encode(cjson.decode(a)) end,
  function() return cjson.new().encode({[a] = b, {a, b}}) end,
  function() return cmsgpack.pack(cmsgpack.unpack(a)) end,
  function() return cmsgpack.unpack_one(a, #b) end,
  function() return cmsgpack.unpack_limit(a, #b, 1) end,
  function() return struct.unpack(a, b) end,
  function() return struct.unpack(a, b, #a) end,
  function() return struct.pack(a, b, 1, 2.5, b, -1) end,
  function() return struct.size(a) end,
  function() return b:find(a) end,
  function() return b:find(a, 1, true) end,
  function() return b:match(a) end,
  function() return b:gsub(a, b) end,
  function() return b:gsub(a, {x = 1}) end,
  function() return b:gsub(a, function(...) return ... end) end,
  function() local n = 0 for x in b:gmatch(a) do n = n + 1 if n > 100 then break end end return n end,
  function() return a:format(b, 1, -1, 2.5, b, 1e308) end,
  function() return loadstring(a, b) end,
  function() return loadstring(a)() end,
  function() local n = 0 return load(function() n = n + 1 local c = a:sub(n, n) if n % 7 == 0 then
    collectgarbage() end return c ~= '' and c or nil end, b) end,
  function() return tonumber(a), tonumber(a, 16), a < b, a .. b, a == b end,
  function() return redis.pcall(a, b) end,
  function() return redis.error_reply(a) end,
  function() return redis.sha1hex(a .. b) end,
}
local results = {}
for i = 1, #calls do results[i] = {pcall(calls[i])} end
return results
";

/// An interpreter, with what the server would give it.
struct Server {
    interpreter: Interpreter,
    ticks: Arc<AtomicUsize>,
    world: Vec<u8>,
}

impl Server {
    fn new() -> Server {
        let ticks = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ticks);
        let tick = move || match seen.fetch_add(1, Ordering::Relaxed) {
            0..TICKS_MAX => Ok(()),
            _ => Err(Killed("ERR killed")),
        };
        let mut server = Server { interpreter: Interpreter::new(tick), ticks, world: Vec::new() };
        server.world = server.reply(WORLD.as_bytes(), &[b"v"]).expect("a whole world");
        server
    }

    /// Runs a script, and looks whether all is as it was.
    fn run(&mut self, script: &[u8], arguments: &[&[u8]]) {
        let _ = self.reply(script, arguments);
        let ticks = self.ticks.load(Ordering::Relaxed);
        assert!(ticks <= TICKS_MAX + 2, "a script went on after it was killed");
        let world = self.reply(WORLD.as_bytes(), &[b"v"]).map_err(|failure| {
            String::from_utf8_lossy(&failure.text).into_owned()
        });
        assert_eq!(world.as_ref(), Ok(&self.world), "a script has left something behind");
    }

    fn reply(&mut self, script: &[u8], arguments: &[&[u8]]) -> Result<Vec<u8>, Failure> {
        self.ticks.store(0, Ordering::Relaxed);
        let known = match self.interpreter.script_of(script) {
            Some(known) => known,
            None => {
                let defined = self.interpreter.define(script, script, Flags::default(), false);
                defined.map_err(|text| Failure { text, is_counted: false })?
            }
        };
        let mut request = OwnedRequest::default();
        let given = [&b"EVAL"[..], script, b"0"].into_iter().chain(arguments.iter().copied());
        given.for_each(|argument| assert!(request.push(argument)));
        let request = request.request().expect("a whole request");
        let invocation = Invocation { what: Callable::Script(&known), request, keys: 0 };
        let mut out = Vec::new();
        let protocol = if script.len() % 2 == 0 { Protocol::Resp2 } else { Protocol::Resp3 };
        let answered = self.interpreter.run(invocation, &mut Echo, Reply::new(&mut out, protocol));
        answered.map(|_sent| out)
    }
}

/// A server whose commands reply with what they were given.
struct Echo;

impl Host for Echo {
    fn call(&mut self, request: Request<'_>, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), Refused> {
        let reply = Reply::new(out, protocol);
        let _sent = match request.name() {
            b"nil" => reply.nil(),
            b"integer" => reply.integer(request.len() as i64),
            b"double" => reply.double(0.1),
            b"map" => reply.map_of(request.len(), 0..2 * request.len(), |at, reply| reply.bulk(request.at(at / 2))),
            b"set" => reply.set_of(request.from(0), |word, reply| reply.bulk(word)),
            b"status" => reply.status(request.at(request.len() - 1)),
            b"verbatim" => reply.verbatim("text"),
            b"array" => reply.array_of(request.from(0), |word, reply| {
                reply.pair(|reply| reply.bulk(word), |reply| reply.bool(true))
            }),
            b"bulk" => reply.bulk(request.at(request.len() - 1)),
            other => return Err(Refused { text: [b"ERR no command ", other].concat() }),
        };
        Ok(())
    }

    fn may_call(&mut self, request: Request<'_>) -> Result<bool, NoCommand> {
        match request.len() % 4 {
            0 => Err(NoCommand::Unknown),
            1 => Err(NoCommand::Arity),
            length => Ok(length == 2),
        }
    }

    fn note_error(&self, _text: &[u8], _is_counted: bool) {}
}

/// Makes a script of choices, one a byte.
struct Writer<'a> {
    choices: &'a [u8],
    text: String,
}

const FUNCTIONS: &[&str] = &[
    "string.byte", "string.char", "string.dump", "string.find", "string.format", "string.gmatch", "string.gsub",
    "string.len", "string.lower", "string.match", "string.rep", "string.reverse", "string.sub", "string.upper",
    "table.concat", "table.foreach", "table.foreachi", "table.getn", "table.maxn", "table.insert", "table.remove",
    "table.setn", "table.sort", "unpack", "select", "tonumber", "tostring", "type", "next", "pairs", "ipairs",
    "rawget", "rawset", "rawequal", "setmetatable", "getmetatable", "pcall", "xpcall", "error", "assert", "load",
    "loadstring", "collectgarbage", "gcinfo", "coroutine.create", "coroutine.resume", "coroutine.running",
    "coroutine.status", "coroutine.wrap", "coroutine.yield", "math.floor", "math.random", "math.max", "math.fmod",
    "math.ldexp", "math.frexp", "cjson.encode", "cjson.decode", "cjson.new", "cjson.encode_sparse_array",
    "cjson.encode_max_depth", "cjson.decode_max_depth", "cjson.encode_number_precision",
    "cjson.encode_invalid_numbers", "cmsgpack.pack", "cmsgpack.unpack", "cmsgpack.unpack_one",
    "cmsgpack.unpack_limit", "struct.pack", "struct.unpack", "struct.size", "bit.tobit", "bit.tohex", "bit.bnot",
    "bit.bor", "bit.bswap", "bit.lshift", "bit.rol", "redis.call", "redis.pcall", "redis.sha1hex",
    "redis.error_reply", "redis.status_reply", "redis.setresp", "redis.acl_check_cmd", "redis.set_repl",
];

const VALUES: &[&str] = &[
    "nil", "true", "false", "0", "1", "-1", "2", "3", "7", "255", "256", "8000", "2147483647", "-2147483648",
    "4294967295", "2^53", "9223372036854775807", "-9223372036854775808", "0.5", "1e308", "0/0", "1/0", "-1/0", "''",
    "'x'", "'a'", "'%a+'", "'(.-)%1'", "'%b()'", "'%f[%w]'", "'[^%z-\\255]*'", "'a-b?c*'", "'()'", "'%d%s%5.3f%q'",
    "'%c%x%i'", "'>I4c0'", "'!8dBs'", "'I1H<l'", "'[1,{\"a\":null}]'", "'\\145\\1'", "'\\129\\1\\2'", "'\\219\\255'",
    "'return ...'", "'=name'", "'#'", "'collect'", "'step'", "'count'", "'map'", "'set'", "'array'", "'bulk'",
    "cjson.null", "_G", "redis", "string", "{}", "{1, 2, 3}", "{a = 1}", "{{}, {{}}}", "{err = 'x\\r\\ny'}",
    "{ok = 'x'}", "{double = 1.5}", "{map = {a = {1}}}", "{set = {[1] = true}}", "{big_number = '1\\r\\n'}",
    "{verbatim_string = {format = 'txt', string = 'y'}}", "function(...) return ... end",
    "function() return coroutine.yield(1) end", "function() error({}) end", "function(a, b) return a < b end",
    "function() collectgarbage() end", "function() while true do end end", "v1", "v2", "v3", "v4", "v5", "ARGV",
    "ARGV[1]", "('x'):rep(300)", "('a?'):rep(300)", "('('):rep(500)", "setmetatable({}, m)",
];

impl<'a> Writer<'a> {
    fn new(choices: &'a [u8]) -> Writer<'a> {
        Writer { choices, text: String::new() }
    }

    fn choose(&mut self, below: usize) -> usize {
        let Some((choice, rest)) = self.choices.split_first() else { return 0 };
        self.choices = rest;
        usize::from(*choice) % below
    }

    fn script(mut self) -> String {
        self.text.push_str("local v1, v2, v3, v4, v5 local m = {__index = function(t, k) return k end, ");
        self.text.push_str("__newindex = rawset, __call = function(...) return ... end, ");
        self.text.push_str("__lt = function() return true end, __concat = function() return 'c' end, ");
        self.text.push_str("__tostring = function() return 't' end, __mode = 'kv'}\n");
        let mut statements = 0;
        while !self.choices.is_empty() && statements < 40 {
            statements += 1;
            self.statement();
        }
        self.text.push_str("return {v1, v2, v3, {v4, v5}}\n");
        self.text
    }

    fn statement(&mut self) {
        let variable = self.choose(5) + 1;
        match self.choose(8) {
            0 => {
                self.text.push_str("pcall(function() ");
                let _ = write!(self.text, "for k, v in pairs(");
                self.value(0);
                let _ = write!(self.text, ") do v{variable} = {{k, v}} end end)\n");
            }
            1 => {
                let _ = write!(self.text, "pcall(function() v{variable}[");
                self.value(0);
                self.text.push_str("] = ");
                self.value(1);
                self.text.push_str(" end)\n");
            }
            2 => {
                let operator = ["..", "+", "<", "==", "%", "^"][self.choose(6)];
                let _ = write!(self.text, "pcall(function() v{variable} = (");
                self.value(1);
                let _ = write!(self.text, ") {operator} (");
                self.value(1);
                self.text.push_str(") end)\n");
            }
            3 => {
                let _ = write!(self.text, "v{variable} = {{pcall(coroutine.wrap(function(...) return ");
                self.call(2);
                self.text.push_str(" end))}\n");
            }
            _ => {
                let _ = write!(self.text, "pcall(function() v{variable} = ");
                self.call(2);
                self.text.push_str(" end)\n");
            }
        }
    }

    fn call(&mut self, depth: usize) {
        let function = FUNCTIONS[self.choose(FUNCTIONS.len())];
        let _ = write!(self.text, "{function}(");
        for argument in 0..self.choose(5) {
            if argument > 0 {
                self.text.push_str(", ");
            }
            self.value(depth);
        }
        self.text.push(')');
    }

    fn value(&mut self, depth: usize) {
        match self.choose(4) {
            0 if depth > 0 => self.call(depth - 1),
            1 => {
                let length = self.choose(12).min(self.choices.len());
                let (bytes, rest) = self.choices.split_at(length);
                self.choices = rest;
                self.text.push('\'');
                bytes.iter().for_each(|byte| drop(write!(self.text, "\\{byte:03}")));
                self.text.push('\'');
            }
            _ => {
                let value = VALUES[self.choose(VALUES.len())];
                self.text.push_str(value);
            }
        }
    }
}
