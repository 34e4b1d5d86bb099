//! `redis.call` and `redis.pcall`: C functions that Lua calls without mlua in between. And the additions of
//! our interpreter to Lua 5.1.5 (`lua/additions.h`).
//!
//! This module contains `unsafe` code. mlua's safe functions must be made anew for each run, because they
//! borrow data that only live for the run. With them the release of a lock by EVALSHA took 11.9 µs at
//! pipeline depth 16; redis-server took 2.5.
//!
//! What must hold:
//! - A [`CallContext`] is reachable through [`OPEN`] only while [`open`] runs. [`open`] borrows it mutably
//!   for that time, so no other code uses it. A script stays on the thread that runs it.
//! - Only Lua calls the functions here, with a valid state. They never run within each other, except that
//!   [`run_script`] runs the script that calls the others. [`run_script`] holds no part of the context
//!   meanwhile. No command that a script calls runs a script.
//! - Functions of Lua that may raise an error leave by a jump to the next `lua_pcall`: that of mlua, or that
//!   of [`Runner::run`]. So they are called only where no value waits to be dropped: all values that own
//!   memory live within [`ask`], which calls none of these functions.
//! - A [`Runner`] belongs to the Lua that it was made for, and stays with it: an interpreter has both. It
//!   runs nothing while Lua runs something else.
//! - The tables that are lent to scripts go only to scripts that do nothing but read their items, as the
//!   bytecode shows ([`only_looks`](super::bytecode::only_looks)). No other script ever gets them.
//! - No panic may leave a function that Lua calls: [`ask`] catches it.
//! - The functions of `lua/additions.h` are called as that file says. [`Functions::write`] is never given to
//!   scripts: it writes tables that are read-only to them.
//! - An interpreter moves between threads as a whole. All references to its Lua are in it or in that Lua,
//!   and it returns none to its callers. mlua counts these references without locks; its locks would only
//!   repeat the one that the caller holds anyway.

#![expect(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use mlua::ffi::{self, lua_State};
use mlua::{Function, Lua, Result, Table, Value};

use super::host::Host;
use crate::resp::number::parse_integer;
use crate::resp::shortest::write_shortest;
use crate::resp::{OwnedRequest, Protocol, Request};

unsafe extern "C-unwind" {
    fn keyfast_setreadonly(state: *mut lua_State, index: c_int);
    fn keyfast_rawset(state: *mut lua_State, index: c_int);
    fn keyfast_charge(state: *mut lua_State, units: usize);
    fn keyfast_work(state: *mut lua_State, units: usize);
    fn keyfast_setending(state: *mut lua_State, is_ending: c_int);
    fn keyfast_setsecrets(first: u64, second: u64, third: u64);
}

thread_local! {
    /// The context of the script that runs on this thread.
    static OPEN: Cell<Option<NonNull<CallContext<'static>>>> = const { Cell::new(None) };
}

/// A script's connection to the server, while the script runs.
pub(super) struct CallContext<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) speaks_resp3: &'a AtomicBool,
    pub(super) buffers: &'a mut Buffers,
    pub(super) given: Given<'a>,
}

/// The request and the reply that pass between a script and the server.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    request: OwnedRequest,
    reply: Vec<u8>,
}

impl Buffers {
    /// Bytes that the buffers hold.
    pub(super) fn bytes(&self) -> usize {
        self.request.bytes() + self.reply.capacity()
    }
}

/// What a script runs on.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// The index of the script among those that are compiled. Unused for a function.
    pub(super) place: c_int,
    /// Whether the script only reads items of its keys and arguments.
    pub(super) only_looks: bool,
    /// What the tables that are lent to scripts contain now.
    pub(super) lent: &'a Lent,
    /// The request that runs the script.
    pub(super) request: Request<'a>,
    /// The position of the first key.
    pub(super) first: usize,
    /// The number of keys; the arguments follow them.
    pub(super) keys: usize,
}

/// The functions that scripts and their environment use.
pub(super) struct Functions {
    /// `redis.call`
    pub(super) call: Function,
    /// `redis.pcall`
    pub(super) pcall: Function,
    /// Returns the keys and the arguments of the current run.
    pub(super) given: Function,
    /// Makes a table read-only for good.
    pub(super) seal: Function,
    /// Sets a field of a table, read-only or not: table, key, value.
    pub(super) write: Function,
}

impl Given<'_> {
    /// The position of the first argument in the request.
    fn middle(&self) -> usize {
        self.first + self.keys
    }

    /// What the current run is given; `None` if nothing runs.
    ///
    /// # Safety
    ///
    /// The caller must be a function that Lua calls, and must not keep the result beyond its own end: the
    /// context is open only that long.
    unsafe fn now<'a>() -> Option<Given<'a>> {
        // SAFETY: see `with`.
        OPEN.get().map(|context| unsafe { context.as_ref() }.given)
    }
}

/// Appends a number to a request, in few digits. Returns whether there was room.
fn push_number(request: &mut OwnedRequest, number: f64) -> bool {
    /// Integers below this are printed with all their digits.
    const PLAIN_MAX: f64 = 1e18;
    if number.trunc() == number && number.abs() < PLAIN_MAX {
        return request.push(itoa::Buffer::new().format(number as i64).as_bytes());
    }
    let mut text = Vec::new();
    write_shortest(&mut text, number);
    request.push(&text)
}

/// Makes the functions for an interpreter.
pub(super) fn functions(lua: &Lua) -> Result<Functions> {
    // SAFETY: they follow the rules above for functions that Lua calls.
    unsafe {
        Ok(Functions {
            call: lua.create_c_function(call)?,
            pcall: lua.create_c_function(pcall)?,
            given: lua.create_c_function(given)?,
            seal: lua.create_c_function(seal)?,
            write: lua.create_c_function(write)?,
        })
    }
}

/// Chooses the secrets of the string hashes. The caller calls it before it makes an interpreter.
///
/// All interpreters of a process share them, and the first one decides.
pub(super) fn choose_secrets() {
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        // If the system has no random numbers, the compiled-in secrets stay.
        if let (Ok(first), Ok(second), Ok(third)) = (getrandom::u64(), getrandom::u64(), getrandom::u64()) {
            // SAFETY: it sets three numbers, and `Once` makes other threads wait meanwhile.
            unsafe { keyfast_setsecrets(first, second, third) };
        }
    });
}

/// With `is_ending`, no code of the script can catch errors from now on, so that the next error ends it.
/// Otherwise scripts may catch errors again.
pub(super) fn set_ending(lua: &Lua, is_ending: bool) {
    // SAFETY: it sets a flag of the interpreter, and raises no error.
    let _ = unsafe { lua.exec_raw::<()>((), |state| keyfast_setending(state, c_int::from(is_ending))) };
}

/// Counts work that a Rust function does for a script, in instructions of a script. Runs the hook if it is
/// due.
///
/// # Errors
///
/// If the script must end.
pub(super) fn work(lua: &Lua, units: usize) -> Result<()> {
    // SAFETY: functions that scripts call may raise errors; this one does so within `exec_raw`.
    unsafe { lua.exec_raw((), |state| keyfast_work(state, units)) }
}

/// Runs scripts without mlua in between, which took 600 instructions per run.
pub(super) struct Runner {
    state: NonNull<lua_State>,
    /// The reference to [`run_script`] in Lua's registry.
    run: c_int,
    /// The reference to the function that handles the script's errors.
    handle: c_int,
    /// The reference to the table through which mlua takes over a returned value. It holds one value.
    returned: c_int,
    returned_table: Table,
    /// What the tables that are lent to scripts contain now.
    pub(super) lent: Lent,
}

/// The numbers of keys and of arguments in the tables that are lent to scripts. `None` if the globals `KEYS`
/// and `ARGV` may be other tables.
pub(super) type Lent = Cell<Option<[usize; 2]>>;

/// The upvalues of [`run_script`].
const SCRIPTS: c_int = ffi::lua_upvalueindex(1);
const GLOBALS: c_int = ffi::lua_upvalueindex(2);
/// The names of the globals, and the tables that are lent.
const GIVEN: [(c_int, c_int); 2] = [
    (ffi::lua_upvalueindex(3), ffi::lua_upvalueindex(4)),
    (ffi::lua_upvalueindex(5), ffi::lua_upvalueindex(6)),
];
const OWN_VALUES: c_int = 6;
/// References that leave no room in Lua's registry. They are given back.
const REFERENCES_MORE: usize = 16;

impl Runner {
    /// A runner that passes errors to `handle`. `scripts` has the compiled scripts by their index; `globals`
    /// is the table in which they see their globals.
    pub(super) fn new(lua: &Lua, handle: Function, scripts: &Table, globals: &Table) -> Result<Runner> {
        let list = |length: usize| lua.create_table_with_capacity(length, 0);
        let own = (scripts, globals, "KEYS", list(LENT_LENGTH_MAX)?, "ARGV", list(LENT_LENGTH_MAX)?);
        let returned_table = list(1)?;
        let (mut lua_state, mut places) = (std::ptr::null_mut(), [0; 3]);
        // SAFETY: `run_script` follows the rules for functions that Lua calls. Its upvalues are the topmost
        // values of the stack, in the order that it expects. References are taken from the top, too.
        unsafe {
            lua.exec_raw::<()>((&returned_table, handle, own), |state| {
                ffi::lua_pushcclosure(state, run_script, OWN_VALUES);
                places = [(); 3].map(|()| ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX));
                // When the registry has no more room, Lua makes an array of those with small numbers, where
                // they are found with fewer instructions.
                let more = [(); REFERENCES_MORE].map(|()| {
                    ffi::lua_pushboolean(state, 1);
                    ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX)
                });
                more.iter().for_each(|place| ffi::luaL_unref(state, ffi::LUA_REGISTRYINDEX, *place));
                lua_state = state;
            })?;
        }
        let [run, handle, returned] = places;
        let state = NonNull::new(lua_state).expect("there is a state where Lua calls something");
        Ok(Runner { state, run, handle, returned, returned_table, lent: Cell::default() })
    }

    /// Runs the given script. Returns whether it succeeded, and its result, or what `handle` made of the
    /// error.
    pub(super) fn run(&self, context: &mut CallContext<'_>) -> Result<(bool, Value)> {
        let state = self.state.as_ptr();
        // SAFETY: the state is that of our Lua, in which nothing runs, and its stack has room for more than
        // three values. Only `lua_pcall` may raise an error, and it catches it: all other functions here
        // neither call code nor allocate, because the table has room for the value.
        let (is_well, plain) = open(context, || unsafe {
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.handle);
            ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.run);
            let is_well = ffi::lua_pcall(state, 0, 1, -2) == ffi::LUA_OK;
            let plain = match ffi::lua_type(state, -1) {
                ffi::LUA_TNIL => Some(Value::Nil),
                ffi::LUA_TBOOLEAN => Some(Value::Boolean(ffi::lua_toboolean(state, -1) != 0)),
                ffi::LUA_TNUMBER => Some(Value::Number(ffi::lua_tonumber(state, -1))),
                _ => None,
            };
            if plain.is_none() {
                ffi::lua_rawgeti_(state, ffi::LUA_REGISTRYINDEX, self.returned);
                ffi::lua_insert(state, -2);
                ffi::lua_rawseti_(state, -2, 1);
            }
            ffi::lua_settop(state, -3);
            (is_well, plain)
        });
        if let Some(value) = plain {
            return Ok((is_well, value));
        }
        let value = self.returned_table.raw_get(1)?;
        self.returned_table.raw_set(1, Value::Nil)?;
        Ok((is_well, value))
    }
}

/// Makes a context reachable while `run` runs.
pub(super) fn open<T>(context: &mut CallContext<'_>, run: impl FnOnce() -> T) -> T {
    /// Restores the old state, however `run` ends.
    struct Close(Option<NonNull<CallContext<'static>>>);

    impl Drop for Close {
        fn drop(&mut self) {
            OPEN.set(self.0);
        }
    }

    let _close = Close(OPEN.replace(Some(NonNull::from(context).cast())));
    run()
}

/// Calls `act` with the current context, if there is one.
pub(super) fn with<T>(act: impl FnOnce(&mut CallContext<'_>) -> T) -> Option<T> {
    let mut context = OPEN.get()?;
    // SAFETY: `open` has borrowed it, and only the functions here use it, one at a time.
    Some(act(unsafe { context.as_mut() }))
}

/// The server's reply to a command. It owns no memory, so nothing must be dropped.
#[derive(Clone, Copy)]
enum Asked {
    /// A reply in RESP.
    Reply { text: NonNull<[u8]>, protocol: Protocol },
    /// The text of an error, and whether the error is already counted.
    Error { text: NonNull<[u8]>, is_counted: bool },
}

unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this.
    unsafe { answer(state, true) }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this.
    unsafe { answer(state, false) }
}

unsafe extern "C-unwind" fn seal(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this; the argument is a table.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        keyfast_setreadonly(state, 1);
    }
    0
}

unsafe extern "C-unwind" fn write(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this; the first argument is a table, and a key and a value lie above it.
    unsafe {
        ffi::luaL_checktype(state, 1, ffi::LUA_TTABLE);
        ffi::lua_settop(state, 3);
        keyfast_rawset(state, 1);
    }
    0
}

/// The work of a command, in instructions of a script, without its reply.
const COMMAND_UNITS: usize = 200;
/// How many copied bytes count as one instruction.
pub(super) const UNIT_BYTES: usize = 16;
/// Arguments above this many bytes count as work.
const LONG_BYTES: usize = 1024;

/// Returns a command's reply to the script. Raises an error of the command if `raises`, otherwise returns it.
///
/// # Safety
///
/// The caller must be a function that Lua calls, with its state.
unsafe fn answer(state: *mut lua_State, raises: bool) -> c_int {
    // SAFETY: the state is valid. From here on no value waits to be dropped. The text is in the buffers of
    // the context, which do not change before the next command.
    unsafe {
        let asked = ask(state);
        let (Asked::Reply { text, .. } | Asked::Error { text, .. }) = asked;
        keyfast_charge(state, COMMAND_UNITS + text.len() / UNIT_BYTES);
        // The arguments may have filled the stack.
        ffi::lua_settop(state, 0);
        match asked {
            Asked::Reply { text, protocol } => Reader { state, rest: text.as_ref(), protocol }.push(),
            Asked::Error { text, is_counted } => {
                push_tagged(state, c"err", text.as_ref());
                if is_counted {
                    ffi::lua_pushboolean(state, 1);
                    ffi::lua_setfield(state, -2, c"ignore_error_stats_update".as_ptr());
                }
                if raises {
                    ffi::lua_error(state);
                }
            }
        }
    }
    1
}

/// Runs the command whose arguments are on the stack.
///
/// # Safety
///
/// The same as for [`answer`].
unsafe fn ask(state: *mut lua_State) -> Asked {
    let fixed = |text: &'static str| Asked::Error { text: NonNull::from(text.as_bytes()), is_counted: false };
    // SAFETY: reading the stack raises no error.
    let count = unsafe { ffi::lua_gettop(state) };
    if count == 0 {
        return fixed("ERR Please specify at least one argument for this redis lib call");
    }
    let asked = catch_unwind(AssertUnwindSafe(|| {
        with(|context| {
            // SAFETY: as before.
            if !unsafe { take_arguments(state, count, &mut context.buffers.request) } {
                return fixed("ERR Lua redis lib command arguments must be strings or integers");
            }
            call_host(context)
        })
    }));
    match asked {
        Ok(Some(asked)) => asked,
        Ok(None) => fixed("ERR redis.call can only be called inside a script invocation"),
        Err(_panic) => fixed("ERR the command has failed inside the server"),
    }
}

fn call_host(context: &mut CallContext<'_>) -> Asked {
    let is_resp3 = context.speaks_resp3.load(Ordering::Relaxed);
    let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let Buffers { request, reply } = &mut *context.buffers;
    reply.clear();
    let refused = match request.request() {
        Some(request) => context.host.call(request, protocol, reply).err(),
        None => None,
    };
    match refused {
        None => Asked::Reply { text: NonNull::from(&**reply), protocol },
        Some(refused) => {
            *reply = refused.text;
            Asked::Error { text: NonNull::from(&**reply), is_counted: true }
        }
    }
}

/// Makes a request of the values on the stack. Returns `false` if one of them is no string or number.
///
/// # Safety
///
/// The same as for [`answer`].
unsafe fn take_arguments(state: *mut lua_State, count: c_int, request: &mut OwnedRequest) -> bool {
    request.clear();
    (1..=count).all(|index| {
        // SAFETY: the index is on the stack. Reading a string as a string, or a number as a number, changes
        // nothing and raises no error. The string stays in its place while it is on the stack.
        unsafe {
            match ffi::lua_type(state, index) {
                ffi::LUA_TSTRING => {
                    let mut length = 0;
                    let text = ffi::lua_tolstring(state, index, &mut length);
                    if length > LONG_BYTES {
                        keyfast_charge(state, length / UNIT_BYTES);
                    }
                    request.push(std::slice::from_raw_parts(text.cast(), length))
                }
                ffi::LUA_TNUMBER => push_number(request, ffi::lua_tonumber(state, index)),
                _ => false,
            }
        }
    })
}

unsafe extern "C-unwind" fn run_script(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with more room on the stack than it needs, and no value waits to be dropped.
    unsafe {
        let Some(given) = Given::now() else { return 0 };
        show(state, given);
        ffi::lua_rawgeti_(state, SCRIPTS, given.place);
        ffi::lua_call(state, 0, 1);
    }
    1
}

unsafe extern "C-unwind" fn given(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with more room on the stack than it needs, and no value waits to be dropped.
    unsafe {
        let Some(given) = Given::now() else { return 0 };
        push_texts(state, given.request, given.first, given.middle());
        push_texts(state, given.request, given.middle(), given.request.len());
    }
    2
}

/// Sets the globals `KEYS` and `ARGV` for a script. If it only reads them, it gets tables that were made
/// once. New tables for each run took a sixth of the instructions of a lock's release, with their share of
/// garbage collection; a check whether the last tables are unchanged took a tenth.
///
/// # Safety
///
/// The caller must be [`run_script`], with room for three values on the stack.
unsafe fn show(state: *mut lua_State, given: Given<'_>) {
    let parts = [(given.first, given.middle()), (given.middle(), given.request.len())];
    let lengths = parts.map(|(first, end)| end - first);
    let is_lent = given.only_looks && lengths.iter().all(|length| *length <= LENT_LENGTH_MAX);
    // If an error is raised before the end, the tables count as unknown.
    let before = given.lent.take();
    for (which, ((name, table), (first, end))) in GIVEN.into_iter().zip(parts).enumerate() {
        // SAFETY: the caller's.
        unsafe {
            if before.is_none() || !is_lent {
                ffi::lua_pushvalue(state, name);
                if is_lent {
                    ffi::lua_pushvalue(state, table);
                } else {
                    push_texts(state, given.request, first, end);
                }
                keyfast_rawset(state, GLOBALS);
            }
            if is_lent {
                fill(state, table, given.request, first, end);
                let length_before = before.map_or(LENT_LENGTH_MAX, |lengths| lengths[which]);
                for index in lengths[which]..length_before {
                    ffi::lua_pushnil(state);
                    ffi::lua_rawseti_(state, table, index as c_int + 1);
                }
            }
        }
    }
    given.lent.set(is_lent.then_some(lengths));
}

/// Pushes a new table of some arguments of a request.
///
/// # Safety
///
/// There must be room for two values on the stack, and no value may wait to be dropped.
unsafe fn push_texts(state: *mut lua_State, request: Request<'_>, first: usize, end: usize) {
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, c_int::try_from(end - first).unwrap_or(0), 0);
        fill(state, -2, request, first, end);
    }
}

/// Fills a table with some arguments of a request. `table` is its index after one more value was pushed.
///
/// # Safety
///
/// The same as for [`push_texts`], with room for one value.
unsafe fn fill(state: *mut lua_State, table: c_int, request: Request<'_>, first: usize, end: usize) {
    for (index, text) in (1..).zip(request.from(first).take(end - first)) {
        // SAFETY: the caller's.
        unsafe {
            push_text(state, text);
            ffi::lua_rawseti_(state, table, index);
        }
    }
}

/// The longest list that is lent. Longer ones are made anew, and left to the garbage collector.
const LENT_LENGTH_MAX: usize = 8;

/// Pushes a string.
///
/// # Safety
///
/// There must be room on the stack, and no value may wait to be dropped.
unsafe fn push_text(state: *mut lua_State, text: &[u8]) {
    // SAFETY: the caller's; Lua copies the text.
    unsafe { ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len()) };
}

/// Pushes a table of one field.
///
/// # Safety
///
/// The same as for [`push_text`], with room for two values.
unsafe fn push_tagged(state: *mut lua_State, name: &CStr, text: &[u8]) {
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        push_text(state, text);
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// Reads a reply that the server itself wrote, so that it is well formed and not nested too deep.
struct Reader<'a> {
    state: *mut lua_State,
    rest: &'a [u8],
    protocol: Protocol,
}

impl<'a> Reader<'a> {
    /// Pushes the next value.
    ///
    /// # Safety
    ///
    /// The state must be valid, with room for four values on the stack, and no value may wait to be dropped.
    unsafe fn push(&mut self) {
        let state = self.state;
        let kind = self.rest.first().copied().unwrap_or(b'_');
        let line = self.line();
        let number = parse_integer(line);
        let length = number.and_then(|length| usize::try_from(length).ok());
        // SAFETY: the caller's.
        unsafe {
            match (kind, length) {
                (b'$', Some(length)) => push_text(state, self.take(length)),
                (b'*' | b'>', Some(length)) => self.push_array(length),
                (b'$' | b'*', None) => ffi::lua_pushboolean(state, 0),
                (b':', _) => ffi::lua_pushnumber(state, number.unwrap_or(0) as f64),
                (b'+', _) => push_tagged(state, c"ok", line),
                (b'-', _) => push_tagged(state, c"err", line),
                (b'%', _) => self.push_map(length.unwrap_or(0)),
                (b'~', _) => self.push_set(length.unwrap_or(0)),
                (b'#', _) => ffi::lua_pushboolean(state, c_int::from(line == b"t")),
                (b',', _) => push_double(state, line),
                (b'(', _) => push_tagged(state, c"big_number", line),
                (b'=', _) => self.push_verbatim(length.unwrap_or(0)),
                _ if self.protocol == Protocol::Resp3 => ffi::lua_pushnil(state),
                _ => ffi::lua_pushboolean(state, 0),
            }
        }
    }

    /// The rest of the line, after the type byte.
    fn line(&mut self) -> &'a [u8] {
        // Nearly all lines are lengths, of a few digits.
        let end = self.rest.iter().position(|byte| *byte == b'\r').unwrap_or(self.rest.len());
        let line = self.rest.get(1..end).unwrap_or_default();
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        line
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest.get(2..).unwrap_or_default();
        taken
    }

    /// # Safety
    ///
    /// This and the next four: the same as for [`push`](Self::push).
    unsafe fn push_array(&mut self, length: usize) {
        // SAFETY: the caller's.
        unsafe {
            self.make_room();
            ffi::lua_createtable(self.state, c_int::try_from(length).unwrap_or(0), 0);
            for (index, _) in (1..).zip(0..length) {
                self.push();
                ffi::lua_rawseti(self.state, -2, index);
            }
        }
    }

    unsafe fn push_map(&mut self, pairs: usize) {
        // SAFETY: the caller's.
        unsafe {
            self.make_room();
            ffi::lua_createtable(self.state, 0, 1);
            ffi::lua_createtable(self.state, 0, c_int::try_from(pairs).unwrap_or(0));
            for _ in 0..pairs {
                self.push();
                self.push();
                ffi::lua_rawset(self.state, -3);
            }
            ffi::lua_setfield(self.state, -2, c"map".as_ptr());
        }
    }

    unsafe fn push_set(&mut self, members: usize) {
        // SAFETY: the caller's.
        unsafe {
            self.make_room();
            ffi::lua_createtable(self.state, 0, 1);
            ffi::lua_createtable(self.state, 0, c_int::try_from(members).unwrap_or(0));
            for _ in 0..members {
                self.push();
                ffi::lua_pushboolean(self.state, 1);
                ffi::lua_rawset(self.state, -3);
            }
            ffi::lua_setfield(self.state, -2, c"set".as_ptr());
        }
    }

    /// Makes room for two tables, a key, and the value that is pushed next.
    unsafe fn make_room(&self) {
        // SAFETY: the caller's.
        unsafe { ffi::luaL_checkstack(self.state, 8, std::ptr::null()) };
    }

    unsafe fn push_verbatim(&mut self, length: usize) {
        let bytes = self.take(length);
        let (format, text) = bytes.split_at(bytes.len().min(3));
        // SAFETY: the caller's.
        unsafe {
            ffi::lua_createtable(self.state, 0, 1);
            push_tagged(self.state, c"format", format);
            push_text(self.state, text.get(1..).unwrap_or_default());
            ffi::lua_setfield(self.state, -2, c"string".as_ptr());
            ffi::lua_setfield(self.state, -2, c"verbatim_string".as_ptr());
        }
    }
}

/// # Safety
///
/// The same as for [`push_tagged`].
unsafe fn push_double(state: *mut lua_State, text: &[u8]) {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushnumber(state, number);
        ffi::lua_setfield(state, -2, c"double".as_ptr());
    }
}
