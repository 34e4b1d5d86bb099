//! Runs one script at a time.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::chunk::ChunkMode;
use mlua::{Error, Function, HookTriggers, Lua, MultiValue, Result, Scope, Table, Value, VmState};

use super::host::Host;
use super::libraries;
use super::loader::Loader;
use super::raised::Raised;
use super::running::Killed;
use super::sandbox::{self, World};
use super::shebang::Flags;
use super::{redis_table, values};
use crate::resp::{OwnedRequest, Protocol, Reply, Request, Sent};

/// What all scripts together may take. One that needs more fails: "not enough memory".
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Instructions between two looks at whether the script was killed, or is slow. Redis: the same.
const EVERY_SO_OFTEN: HookTriggers = HookTriggers::new().every_nth_instruction(100_000);
/// Scripts that EVAL has brought are forgotten beyond so many; clients send them again. Redis 7.4: the same.
const PASSING_MAX: usize = 500;
/// What a buffer may keep for the next script.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The interpreter and the scripts that it knows.
pub struct Interpreter {
    lua: Lua,
    /// The globals, to be written.
    globals: Table,
    /// Behind the global `redis`.
    redis: Table,
    catch: Function,
    /// The scripts by their digests. A table of Lua: mlua cannot hold on to so many functions.
    compiled: Table,
    /// What else is known of them.
    scripts: HashMap<String, Script>,
    /// Those that were not loaded to stay, the eldest first.
    passing: VecDeque<String>,
    /// The functions of libraries.
    loader: Loader,
    speaks_resp3: Arc<AtomicBool>,
    buffers: RefCell<Buffers>,
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

/// A script that is known.
#[derive(Debug)]
struct Script {
    text: Box<[u8]>,
    flags: Flags,
    /// Whether it was loaded to stay (SCRIPT LOAD).
    is_kept: bool,
}

/// What is on its way between a script and the server.
#[derive(Debug, Default)]
struct Buffers {
    request: OwnedRequest,
    reply: Vec<u8>,
}

/// What can be run.
#[derive(Clone, Copy, Debug)]
pub enum Callable<'a> {
    /// A script that is known, by its digest.
    Script(&'a str),
    /// A function of a library, by its name.
    Function(&'a str),
}

impl<'a> Callable<'a> {
    fn name(self) -> &'a str {
        let (Callable::Script(name) | Callable::Function(name)) = self;
        name
    }
}

/// What is to be run, and on what.
#[derive(Debug)]
pub struct Invocation<'a, Keys, Arguments> {
    /// What.
    pub what: Callable<'a>,
    /// What a script calls `KEYS`; the first argument of a function.
    pub keys: Keys,
    /// What a script calls `ARGV`; the second argument of a function.
    pub arguments: Arguments,
}

/// Why a script failed.
#[derive(Debug)]
pub struct Failure {
    /// The text, from its code word on.
    pub text: Vec<u8>,
    /// Whether it is counted already among the errors that commands answered.
    pub is_counted: bool,
}

impl Interpreter {
    /// An interpreter that calls `tick` every so often while a script runs.
    ///
    /// # Panics
    ///
    /// If there is no memory for it.
    pub fn new(tick: impl Fn() -> std::result::Result<(), Killed> + Send + 'static) -> Interpreter {
        let speaks_resp3 = Arc::new(AtomicBool::new(false));
        let make = || {
            let World { lua, globals, redis, catch, share } =
                sandbox::build(|lua| redis_table::build(lua, &speaks_resp3))?;
            lua.set_memory_limit(MEMORY_BYTES_MAX)?;
            let compiled = lua.create_table()?;
            let loader = Loader::new(&lua, share, &redis, &globals, &catch)?;
            Ok::<_, Error>((lua, globals, redis, catch, compiled, loader))
        };
        let (lua, globals, redis, catch, compiled, loader) =
            make().expect("an empty interpreter takes little memory");
        watch(&lua, tick).expect("a hook takes little memory");
        Interpreter {
            lua,
            globals,
            redis,
            catch,
            compiled,
            scripts: HashMap::new(),
            passing: VecDeque::new(),
            loader,
            speaks_resp3,
            buffers: RefCell::default(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// How many scripts are known, and bytes of their texts.
    pub fn scripts(&self) -> (usize, usize) {
        (self.scripts.len(), self.scripts.values().map(|script| script.text.len()).sum())
    }

    /// What a script may do, if it is known.
    pub fn script(&self, digest: &str) -> Option<Flags> {
        self.scripts.get(digest).map(|script| script.flags)
    }

    /// Its text.
    pub fn text(&self, digest: &str) -> Option<&[u8]> {
        self.scripts.get(digest).map(|script| &*script.text)
    }

    /// Compiles a script, and knows it from now on by its digest: for good if it `is_kept`, and otherwise
    /// until too many others have come.
    ///
    /// # Errors
    ///
    /// With the text of Redis, if it cannot be compiled.
    pub fn define(
        &mut self,
        digest: &str,
        text: &[u8],
        code: &[u8],
        flags: Flags,
        is_kept: bool,
    ) -> std::result::Result<(), Vec<u8>> {
        if let Some(known) = self.scripts.get_mut(digest) {
            known.is_kept |= is_kept;
            return Ok(());
        }
        let chunk = self.lua.load(code).set_name("@user_script").set_mode(ChunkMode::Text);
        let compiled = chunk.into_function().and_then(|function| self.compiled.raw_set(digest, function));
        compiled.map_err(|error| {
            let text = libraries::text_of(&error);
            format!("ERR Error compiling script (new function): {text}").into_bytes()
        })?;
        self.scripts.insert(digest.to_owned(), Script { text: text.into(), flags, is_kept });
        if !is_kept {
            self.passing.push_back(digest.to_owned());
            self.forget_eldest();
        }
        Ok(())
    }

    /// Forgets a script that was not loaded to stay, once there are too many of them.
    fn forget_eldest(&mut self) {
        while self.passing.len() > PASSING_MAX {
            let Some(digest) = self.passing.pop_front() else { return };
            if self.scripts.get(&digest).is_some_and(|script| !script.is_kept) {
                self.scripts.remove(&digest);
                let _ = self.compiled.raw_remove(digest);
            }
        }
    }

    /// Forgets all scripts.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
        self.passing.clear();
        let _ = self.compiled.clear();
        let _ = self.lua.gc_collect();
    }

    /// What knows the functions of libraries.
    pub(super) fn loader(&mut self) -> &mut Loader {
        &mut self.loader
    }

    /// Runs a script and answers what it returns.
    ///
    /// # Errors
    ///
    /// If it fails.
    pub fn run<'k, 'a>(
        &mut self,
        invocation: Invocation<'_, impl Iterator<Item = &'k [u8]>, impl Iterator<Item = &'a [u8]>>,
        host: &mut impl Host,
        reply: Reply<'_>,
    ) -> std::result::Result<Sent, Failure> {
        self.speaks_resp3.store(false, Ordering::Relaxed);
        let name = invocation.what.name();
        let returned = self.call(invocation, host);
        self.tidy_up();
        let (is_well, value) = returned.map_err(|error| Failure {
            text: [b"ERR ", libraries::text_of(&error).as_bytes()].concat(),
            is_counted: false,
        })?;
        if is_well {
            return Ok(values::answer(&value, self.speaks_resp3.load(Ordering::Relaxed), reply));
        }
        Err(failure(&value, name))
    }

    fn call<'k, 'a>(
        &self,
        invocation: Invocation<'_, impl Iterator<Item = &'k [u8]>, impl Iterator<Item = &'a [u8]>>,
        host: &mut impl Host,
    ) -> Result<(bool, Value)> {
        let keys = self.table_of(invocation.keys)?;
        let arguments = self.table_of(invocation.arguments)?;
        let (function, globals, given) = match invocation.what {
            Callable::Script(digest) => {
                (self.compiled.raw_get(digest)?, (Some(keys), Some(arguments)), (None, None))
            }
            Callable::Function(name) => {
                (self.loader.function(name)?, (None, None), (Some(keys), Some(arguments)))
            }
        };
        let (function, (keys, arguments)): (Function, _) = (function, given);
        self.globals.raw_set("KEYS", globals.0)?;
        self.globals.raw_set("ARGV", globals.1)?;
        let server = RefCell::new(host);
        self.lua.scope(|scope| {
            self.open_doors(scope, &server)?;
            self.catch.call((function, keys, arguments))
        })
    }

    fn table_of<'a>(&self, texts: impl Iterator<Item = &'a [u8]>) -> Result<Table> {
        let table = self.lua.create_table()?;
        for text in texts {
            table.raw_push(self.lua.create_string(text)?)?;
        }
        Ok(table)
    }

    /// Makes the functions of `redis` that reach the server, for as long as one script runs.
    fn open_doors<'scope, 'env, H: Host>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        host: &'env RefCell<&mut H>,
    ) -> Result<()> {
        let call = scope.create_function(|lua, arguments| self.call_command(lua, host, &arguments))?;
        self.redis.raw_set("call", call)?;
        let pcall = scope.create_function(|lua, arguments| {
            self.call_command(lua, host, &arguments).or_else(|error| match error.downcast_ref::<Raised>() {
                Some(raised) => raised.to_value(lua),
                None => Err(error),
            })
        })?;
        self.redis.raw_set("pcall", pcall)?;
        let check = scope.create_function(|_, arguments| self.check_command(host, &arguments))?;
        self.redis.raw_set("acl_check_cmd", check)
    }

    /// `redis.call`
    fn call_command(
        &self,
        lua: &Lua,
        host: &RefCell<&mut impl Host>,
        arguments: &MultiValue,
    ) -> Result<Value> {
        if arguments.is_empty() {
            return Err(Raised::reply("ERR Please specify at least one argument for this redis lib call"));
        }
        let buffers = &mut *self.buffers.borrow_mut();
        let Some(request) = fill(&mut buffers.request, arguments) else {
            return Err(Raised::reply("ERR Lua redis lib command arguments must be strings or integers"));
        };
        let protocol = match self.speaks_resp3.load(Ordering::Relaxed) {
            true => Protocol::Resp3,
            false => Protocol::Resp2,
        };
        buffers.reply.clear();
        match host.borrow_mut().call(request, protocol, &mut buffers.reply) {
            Ok(()) => values::from_reply(lua, &buffers.reply, protocol),
            Err(refused) => Err(Error::external(Raised::Reply { err: refused.text, is_counted: true })),
        }
    }

    /// `redis.acl_check_cmd`
    fn check_command(&self, host: &RefCell<&mut impl Host>, arguments: &MultiValue) -> Result<bool> {
        if arguments.is_empty() {
            return Err(Raised::reply(
                "ERR Please specify at least one argument for this redis.acl_check_cmd() call",
            ));
        }
        let buffers = &mut *self.buffers.borrow_mut();
        let request = fill(&mut buffers.request, arguments);
        let request = request.ok_or_else(|| {
            Raised::reply("ERR redis.acl_check_cmd() require all arguments to be strings or integers.")
        })?;
        let may = host.borrow_mut().may_call(request);
        may.ok_or_else(|| Raised::reply("ERR Invalid command passed to redis.acl_check_cmd()"))
    }

    /// Leaves nothing large behind for the next script.
    fn tidy_up(&self) {
        self.lua.gc_restart();
        let buffers = &mut *self.buffers.borrow_mut();
        if buffers.request.bytes() + buffers.reply.capacity() > KEPT_BYTES_MAX {
            *buffers = Buffers::default();
        }
    }
}

/// Makes a request of what a script wants to be run; none if it holds what is no argument.
fn fill<'a>(request: &'a mut OwnedRequest, arguments: &MultiValue) -> Option<Request<'a>> {
    request.clear();
    let are_arguments = arguments.iter().all(|argument| values::push_argument(request, argument));
    if are_arguments { request.request() } else { None }
}

/// What a client is told of a table that was raised: its error, which script that was, and where.
fn failure(raised: &Value, name: &str) -> Failure {
    let Value::Table(table) = raised else {
        return Failure { text: b"ERR unknown error".to_vec(), is_counted: false };
    };
    let field = |name: &str| match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
        Ok(Value::Number(number)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let mut text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source"), field("line")) {
        text.extend([&b" script: "[..], name.as_bytes(), b", on ", &source, b":", &line, b"."].concat());
    }
    let is_counted = matches!(table.raw_get("ignore_error_stats_update"), Ok(Value::Boolean(true)));
    Failure { text, is_counted }
}

/// Has a script looked after while it runs.
fn watch(lua: &Lua, tick: impl Fn() -> std::result::Result<(), Killed> + Send + 'static) -> Result<()> {
    lua.set_global_hook(EVERY_SO_OFTEN, move |_, _| match tick() {
        Ok(()) => Ok(VmState::Continue),
        Err(Killed(why)) => Err(Error::external(Raised::Killed(why))),
    })
}
