//! Runs one script at a time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use mlua::{Error, Function, HookTriggers, Lua, Result, Table, Value, VmState};

use super::ffi::{self, Buffers, CallContext, Given, Runner};
use super::host::Host;
use super::libraries;
use super::loader::Loader;
use super::raised::Raised;
use super::redis_table;
use super::running::{Failure, Killed, Tick};
use super::sandbox::{self, place_of, with_room};
use super::shebang::Flags;
use super::values::Answer;
use super::{Digest, bytecode};
use crate::resp::{Reply, Request, Sent};

/// The most bytes of memory for all scripts together. A script that needs more fails: "not enough memory".
const MEMORY_BYTES_MAX: usize = 512 << 20;
/// Instructions between two checks whether the script was killed or is slow. Redis: the same.
const EVERY_SO_OFTEN: HookTriggers = HookTriggers::new().every_nth_instruction(100_000);
/// The most scripts that are cached because of EVAL; clients can send them again. Redis 7.4: the same.
const PASSING_MAX: usize = 500;
/// The most bytes of their texts.
const PASSING_BYTES_MAX: usize = 16 << 20;
/// The most bytes of one script's text. A compiled script takes up to 20 times the bytes of its text, so
/// neither one script nor all those that EVAL has cached can take all the memory. Redis has no limit.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Bytes of garbage that may remain for the next script; more, if more memory is in use.
const KEPT_GARBAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of capacity that a buffer may keep for the next script.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The interpreter and its cached scripts.
pub struct Interpreter {
    lua: Lua,
    /// Runs scripts, and catches their errors.
    runner: Runner,
    /// A Lua function that runs a function of a library, and catches its errors.
    run_function: Function,
    /// The compiled scripts by index. This is a Lua table, because mlua cannot hold that many references.
    compiled: Table,
    /// The facts about cached scripts.
    scripts: HashMap<Digest, Script, RandomState>,
    /// The same by text, so that EVAL need not compute the digest of a cached script. The digest took a
    /// quarter of the instructions of a lock's release, on a processor without instructions for SHA-1.
    texts: HashMap<Arc<[u8]>, Known, RandomState>,
    /// How many of them were forgotten, as there were too many.
    forgotten: u64,
    /// The scripts that EVAL has cached.
    passing: Vec<Digest>,
    /// Bytes of their texts.
    passing_bytes: usize,
    /// Free indices. All others below the number of scripts are in use.
    vacant: Vec<i32>,
    /// How many scripts have run, and when the script with an index was used last, counted in these.
    runs: u64,
    used: Vec<u64>,
    /// The functions of libraries.
    loader: Loader,
    speaks_resp3: Arc<AtomicBool>,
    buffers: Buffers,
    tick: Tick,
    /// Lua's own `next`.
    next: Function,
    /// When a script ends with more memory than this, in bytes, garbage is collected.
    collect_from_bytes: usize,
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter").field("scripts", &self.scripts.len()).finish_non_exhaustive()
    }
}

/// A cached script.
#[derive(Debug)]
struct Script {
    text: Arc<[u8]>,
    known: Known,
    /// Whether SCRIPT LOAD has loaded it, so that it stays.
    is_kept: bool,
}

/// The facts that are needed to run a script.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The script's digest.
    pub digest: Digest,
    /// What the script may do.
    pub flags: Flags,
    /// Its index among the compiled scripts.
    place: i32,
    /// Whether it only reads items of its keys and arguments.
    only_looks: bool,
}

/// A script or a function that can run.
#[derive(Clone, Copy, Debug)]
pub enum Callable<'a> {
    /// A script of EVAL or EVALSHA.
    Script(&'a Known),
    /// A function of a library, by its name.
    Function(&'a str),
}

impl<'a> Callable<'a> {
    fn name(self) -> &'a [u8] {
        match self {
            Callable::Script(known) => known.digest.as_bytes(),
            Callable::Function(name) => name.as_bytes(),
        }
    }
}

/// A call: a script or a function, and what it runs on.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    /// The script or function.
    pub what: Callable<'a>,
    /// The request: its command, the script or function, the number of keys, keys, arguments.
    pub request: Request<'a>,
    /// How many of the request's arguments are keys.
    pub keys: usize,
}

impl fmt::Debug for Invocation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invocation")
            .field("what", &self.what)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// The position of the first key in a request.
const FIRST_KEY: usize = 3;

// SAFETY: all references to its Lua are in it or in that Lua: what must stay on one thread at a time moves
// with it. See `ffi`.
#[allow(unsafe_code)]
unsafe impl Send for Interpreter {}

impl Interpreter {
    /// An interpreter that calls `tick` at intervals while a script runs.
    ///
    /// # Panics
    ///
    /// If there is not enough memory for it.
    pub fn new(tick: impl Fn() -> std::result::Result<(), Killed> + Send + Sync + 'static) -> Interpreter {
        let tick: Tick = Arc::new(tick);
        let speaks_resp3 = Arc::new(AtomicBool::new(false));
        let make = || {
            let world = sandbox::build(|lua| redis_table::build(lua, &speaks_resp3))?;
            world.lua.set_memory_limit(MEMORY_BYTES_MAX)?;
            watch(&world.lua, Arc::clone(&tick))?;
            Ok::<_, Error>((Loader::new(&world)?, world))
        };
        let (loader, world) = make().expect("an empty interpreter takes little memory");
        Interpreter {
            lua: world.lua,
            runner: world.runner,
            run_function: world.run_function,
            compiled: world.compiled,
            scripts: HashMap::default(),
            texts: HashMap::default(),
            forgotten: 0,
            passing: Vec::new(),
            passing_bytes: 0,
            vacant: Vec::new(),
            runs: 0,
            used: Vec::new(),
            loader,
            speaks_resp3,
            buffers: Buffers::default(),
            tick,
            next: world.next,
            collect_from_bytes: KEPT_GARBAGE_BYTES_MAX,
        }
    }

    /// Bytes of memory that the interpreter uses.
    pub fn bytes(&self) -> usize {
        self.lua.used_memory()
    }

    /// The number of cached scripts, and bytes of their texts.
    pub fn scripts(&self) -> (usize, usize) {
        (self.scripts.len(), self.scripts.values().map(|script| script.text.len()).sum())
    }

    /// The script with this digest, if it is cached.
    pub fn script(&self, digest: &Digest) -> Option<Known> {
        self.scripts.get(digest).map(|script| script.known)
    }

    /// The script with this text, if it is cached.
    pub fn script_of(&self, text: &[u8]) -> Option<Known> {
        self.texts.get(text).copied()
    }

    /// The text of a cached script.
    pub fn text(&self, digest: &Digest) -> Option<&[u8]> {
        self.scripts.get(digest).map(|script| &*script.text)
    }

    /// Compiles a script and caches it: for good with `is_kept`, otherwise until it is the one of too many
    /// that was used longest ago.
    ///
    /// # Errors
    ///
    /// With the text of Redis, if it cannot be compiled; or if its text is too long.
    pub fn define(
        &mut self,
        text: &[u8],
        code: &[u8],
        flags: Flags,
        is_kept: bool,
    ) -> std::result::Result<Known, Vec<u8>> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(uncompiled(&format!("the text is longer than {} MiB", TEXT_BYTES_MAX >> 20)));
        }
        let digest = Digest::of(text);
        if let Some(script) = self.scripts.get_mut(&digest) {
            let known = script.known;
            if is_kept && !std::mem::replace(&mut script.is_kept, true) {
                self.passing_bytes -= script.text.len();
                self.passing.retain(|other| *other != digest);
            }
            return Ok(known);
        }
        let place = self.vacant.last().copied().unwrap_or(self.scripts.len() as i32 + 1);
        let compiled = with_room(&self.lua, || {
            let function = self.lua.load(code).set_name("@user_script").into_function()?;
            let only_looks = bytecode::only_looks(&function.dump(false));
            self.compiled.raw_set(place, function)?;
            Ok(Known { digest, flags, place, only_looks })
        });
        // The compiler leaves garbage, whether it succeeds or not.
        self.tidy_up();
        let known = compiled.map_err(|error| {
            ffi::set_ending(&self.lua, false);
            uncompiled(&libraries::text_of(&error))
        })?;
        self.vacant.pop();
        let text: Arc<[u8]> = text.into();
        self.texts.insert(Arc::clone(&text), known);
        self.passing_bytes += if is_kept { 0 } else { text.len() };
        self.scripts.insert(digest, Script { text, known, is_kept });
        self.note_use(known);
        if !is_kept {
            self.passing.push(digest);
            self.forget_unused();
        }
        Ok(known)
    }

    /// How many scripts of EVAL were forgotten, as there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Notes that a script is used.
    fn note_use(&mut self, known: Known) {
        let place = known.place as usize;
        if self.used.len() <= place {
            self.used.resize(place + 1, 0);
        }
        self.runs += 1;
        self.used[place] = self.runs;
    }

    /// Removes the scripts of EVAL that were used longest ago, if there are too many.
    fn forget_unused(&mut self) {
        while self.passing.len() > PASSING_MAX || self.passing_bytes > PASSING_BYTES_MAX {
            let used =
                |digest: &Digest| self.scripts.get(digest).map(|it| self.used[it.known.place as usize]);
            let Some(at) = (0..self.passing.len()).min_by_key(|at| used(&self.passing[*at])) else { return };
            let digest = self.passing.swap_remove(at);
            let Some(Script { text, known, .. }) = self.scripts.remove(&digest) else { continue };
            self.passing_bytes -= text.len();
            self.texts.remove(&text);
            let _ = self.compiled.raw_set(known.place, Value::Nil);
            self.vacant.push(known.place);
            self.forgotten += 1;
        }
    }

    /// Removes all cached scripts.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
        self.texts.clear();
        self.passing.clear();
        self.passing_bytes = 0;
        self.vacant.clear();
        self.used = Vec::new();
        let _ = self.compiled.clear();
        let _ = self.lua.gc_collect();
    }

    /// The loader of libraries.
    pub(super) fn loader(&mut self) -> &mut Loader {
        &mut self.loader
    }

    /// Runs a script or a function, and returns its reply.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub fn run(
        &mut self,
        invocation: Invocation<'_>,
        host: &mut impl Host,
        reply: Reply<'_>,
    ) -> std::result::Result<Sent, Failure> {
        self.speaks_resp3.store(false, Ordering::Relaxed);
        let name = invocation.what.name();
        let returned = self.call(invocation, host);
        self.tidy_up();
        let raised = match returned {
            Ok((true, value)) => {
                let speaks_resp3 = self.speaks_resp3.load(Ordering::Relaxed);
                let answer = Answer { speaks_resp3, host, tick: &self.tick, next: &self.next };
                return answer.write(value, reply);
            }
            Ok((false, raised)) => raised,
            Err(error) => Value::Error(Box::new(error)),
        };
        ffi::set_ending(&self.lua, false);
        Err(failure(&raised, name))
    }

    fn call(&mut self, invocation: Invocation<'_>, host: &mut impl Host) -> Result<(bool, Value)> {
        let Invocation { what, request, keys } = invocation;
        let (place, only_looks) = match what {
            Callable::Script(known) => {
                self.note_use(*known);
                (known.place, known.only_looks)
            }
            Callable::Function(_) => (0, false),
        };
        let lent = &self.runner.lent;
        let given = Given { place, only_looks, lent, request, first: FIRST_KEY, keys };
        let mut context =
            CallContext { host, speaks_resp3: &self.speaks_resp3, buffers: &mut self.buffers, given };
        match what {
            Callable::Script(..) => self.runner.run(&mut context),
            Callable::Function(name) => {
                lent.take();
                let function: Function = self.loader.function(name)?;
                ffi::open(&mut context, || self.run_function.call(function))
            }
        }
    }

    /// Collects garbage if there is much. Lua does so only while memory grows, so after a script has ended
    /// the garbage would stay.
    pub(super) fn tidy_up(&mut self) {
        if self.lua.used_memory() > self.collect_from_bytes {
            let _ = self.lua.gc_collect();
            let used = self.lua.used_memory();
            // At most half of what is left, so that the next script has the other half.
            let most = used.midpoint(MEMORY_BYTES_MAX.max(used));
            self.collect_from_bytes = (2 * used).max(KEPT_GARBAGE_BYTES_MAX).min(most);
        }
        if self.buffers.bytes() > KEPT_BYTES_MAX {
            self.buffers = Buffers::default();
        }
    }
}

fn uncompiled(why: &str) -> Vec<u8> {
    format!("ERR Error compiling script (new function): {why}").into_bytes()
}

/// The error that the client gets: the raised text, the script's name, and the place.
fn failure(raised: &Value, name: &[u8]) -> Failure {
    let uncounted = |text: Vec<u8>| Failure { text, is_counted: false };
    let table = match raised {
        Value::Table(table) => table,
        // There was not enough memory for a table with the error.
        Value::String(text) => return uncounted([b"ERR ", &*text.as_bytes()].concat()),
        Value::Error(error) => match error.downcast_ref() {
            Some(Raised::Killed { why, place }) => {
                let place = place.as_ref().map(|(source, line)| (source.as_bytes(), line.to_string()));
                let place = place.as_ref().map(|(source, line)| (*source, line.as_bytes()));
                return uncounted(with_place(why.as_bytes().to_vec(), name, place));
            }
            _ => return uncounted([b"ERR ", libraries::text_of(error).as_bytes()].concat()),
        },
        _ => return uncounted(b"ERR unknown error".to_vec()),
    };
    let field = |name: &str| match table.raw_get::<Value>(name) {
        Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
        Ok(Value::Integer(number)) => Some(number.to_string().into_bytes()),
        Ok(Value::Number(number)) => Some(number.to_string().into_bytes()),
        _ => None,
    };
    let text = field("err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    let (source, line) = (field("source"), field("line"));
    let text = with_place(text, name, source.as_deref().zip(line.as_deref()));
    let is_counted = matches!(table.raw_get("ignore_error_stats_update"), Ok(Value::Boolean(true)));
    Failure { text, is_counted }
}

/// Appends the script's name and the place to a text, if the place is known.
fn with_place(mut text: Vec<u8>, name: &[u8], place: Option<(&[u8], &[u8])>) -> Vec<u8> {
    if let Some((source, line)) = place {
        text.extend([&b" script: "[..], name, b", on ", source, b":", line, b"."].concat());
    }
    text
}

/// Has `tick` called at intervals while a script runs.
fn watch(lua: &Lua, tick: Tick) -> Result<()> {
    /// The level of the function that runs.
    const RUNNING: usize = 0;
    lua.set_global_hook(EVERY_SO_OFTEN, move |lua, _| match tick() {
        Ok(()) => Ok(VmState::Continue),
        Err(Killed(why)) => {
            ffi::set_ending(lua, true);
            Err(Error::external(Raised::Killed { why, place: place_of(lua, RUNNING) }))
        }
    })
}
