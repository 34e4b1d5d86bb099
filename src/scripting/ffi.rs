//! `redis.call` and `redis.pcall`: functions in C, as Lua calls them, without anything in between; and what
//! our interpreter has beyond Lua 5.1.5 (`lua/additions.h`).
//!
//! A room with `unsafe`. Through mlua's safe functions, which must be made anew for each run since they
//! borrow what only lives that long, the release of a lock by EVALSHA took 11.9 µs at pipeline depth 16,
//! where redis-server took 2.5.
//!
//! What must hold:
//! - A [`Doorway`] is reachable by [`OPEN`] only while [`open`] runs, which borrows it mutably for that time:
//!   nobody else can use it meanwhile. A script stays on the thread that runs it.
//! - The functions here are only called by Lua, with a valid state, and never within each other, but for
//!   [`run_script`], which holds nothing of the doorway while the script runs that calls the others: what the
//!   server does for a script runs no script.
//! - Functions of Lua that may raise an error leave by a jump, as far as the next `lua_pcall`: that of mlua,
//!   or of [`Runner::run`]. They are called only where nothing waits to be dropped: all that owns memory
//!   lives within [`ask`], which calls none of them.
//! - A [`Runner`] belongs to the Lua that it was made for, and goes no further than that: an [`Interpreter`]
//!   has both. It runs nothing while Lua runs something else.
//! - The tables that are lent to scripts are given only to those that do nothing but look at their items,
//!   which their bytecode tells ([`only_looks`](super::bytecode::only_looks)): nobody else ever has them.
//! - No panic may leave a function that Lua calls: [`ask`] catches it.
//! - The functions of `lua/additions.h` are called as that file says. [`Functions::write`] is never given to
//!   scripts: it writes tables that are read-only to them.
//! - An [`Interpreter`] goes from thread to thread as a whole: what refers to its Lua is in it or in that
//!   Lua, and nothing of the kind is ever answered to whoever uses it. mlua counts these references without
//!   regard for other threads; its locks would stand for one that is held anyway.

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
use super::interpreter::Interpreter;
use super::values::push_number;
use crate::resp::number::parse_integer;
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
    /// The way from the script that runs on this thread to the server.
    static OPEN: Cell<Option<NonNull<Doorway<'static>>>> = const { Cell::new(None) };
}

/// The way from a script to the server, as long as it runs.
pub(super) struct Doorway<'a> {
    pub(super) host: &'a mut dyn Host,
    pub(super) speaks_resp3: &'a AtomicBool,
    pub(super) buffers: &'a mut Buffers,
    pub(super) given: Given<'a>,
}

/// What is on its way between a script and the server.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    request: OwnedRequest,
    reply: Vec<u8>,
}

impl Buffers {
    /// Bytes that they take.
    pub(super) fn bytes(&self) -> usize {
        self.request.bytes() + self.reply.capacity()
    }
}

/// What a script is run on.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    /// Where the script lies among those that are compiled; a function is not there.
    pub(super) place: c_int,
    /// Whether it does nothing with the tables of its keys and arguments but look at their items.
    pub(super) only_looks: bool,
    /// What is known of the tables that are lent to such scripts.
    pub(super) lent: &'a Lent,
    /// The request that runs it.
    pub(super) request: Request<'a>,
    /// Where the keys begin.
    pub(super) first: usize,
    /// How many there are; the arguments follow.
    pub(super) keys: usize,
}

/// The functions that scripts are given.
pub(super) struct Functions {
    /// `redis.call`
    pub(super) call: Function,
    /// `redis.pcall`
    pub(super) pcall: Function,
    /// Answers the keys and the arguments of what runs.
    pub(super) given: Function,
    /// Makes its argument, a table, read-only for good.
    pub(super) seal: Function,
    /// Sets a field of a table, read-only or not: table, key, value.
    pub(super) write: Function,
}

impl Given<'_> {
    /// Where in the request the arguments begin.
    fn middle(&self) -> usize {
        self.first + self.keys
    }

    /// What is given now; none where nothing runs.
    ///
    /// # Safety
    ///
    /// To be called by a function that Lua calls, and not to be kept beyond its end: so long the way is open.
    unsafe fn now<'a>() -> Option<Given<'a>> {
        // SAFETY: see `with`.
        OPEN.get().map(|doorway| unsafe { doorway.as_ref() }.given)
    }
}

// SAFETY: see above: all that must be on one thread at a time goes with it.
unsafe impl Send for Interpreter {}

/// Makes the functions.
pub(super) fn functions(lua: &Lua) -> Result<Functions> {
    // SAFETY: they keep the rules of functions that Lua calls, see above.
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

/// Chooses the secrets of the hashes of strings; to be called before an interpreter is made.
///
/// All interpreters of a process share them, and the first one decides.
pub(super) fn choose_secrets() {
    static CHOSEN: Once = Once::new();
    CHOSEN.call_once(|| {
        // Without random numbers from the system the secrets stay as they are compiled in.
        if let (Ok(first), Ok(second), Ok(third)) = (getrandom::u64(), getrandom::u64(), getrandom::u64()) {
            // SAFETY: it sets three numbers, and `Once` keeps others waiting meanwhile.
            unsafe { keyfast_setsecrets(first, second, third) };
        }
    });
}

/// From now on nothing in a script catches an error, so that the next one ends it; or else scripts may catch
/// errors again.
pub(super) fn set_ending(lua: &Lua, is_ending: bool) {
    // SAFETY: it sets a flag of the interpreter, and raises no error.
    let _ = unsafe { lua.exec_raw::<()>((), |state| keyfast_setending(state, c_int::from(is_ending))) };
}

/// Counts work that a function in Rust does for a script, in instructions of a script, and lets the hook look
/// at the time if it is due.
///
/// # Errors
///
/// If the script is to end.
pub(super) fn work(lua: &Lua, units: usize) -> Result<()> {
    // SAFETY: a function that scripts call may raise errors; this one does so within `exec_raw`.
    unsafe { lua.exec_raw((), |state| keyfast_work(state, units)) }
}

/// Runs scripts, without anything of mlua's in between: that took 600 instructions for each.
pub(super) struct Runner {
    state: NonNull<lua_State>,
    /// Where in Lua's registry [`run_script`] lies,
    run: c_int,
    /// and what makes something of the errors that scripts raise,
    handle: c_int,
    /// and the table by which mlua takes over what a script has returned. It has room for one thing.
    returned: c_int,
    returned_table: Table,
    /// What is known of the tables that are lent to scripts.
    pub(super) lent: Lent,
}

/// How many items the tables of keys and arguments have that are lent to scripts, one after the other; none
/// if anything else may lie where scripts look for them.
pub(super) type Lent = Cell<Option<[usize; 2]>>;

/// The own values of [`run_script`].
const SCRIPTS: c_int = ffi::lua_upvalueindex(1);
const GLOBALS: c_int = ffi::lua_upvalueindex(2);
/// Names of what scripts are given, and tables to lend them.
const GIVEN: [(c_int, c_int); 2] = [
    (ffi::lua_upvalueindex(3), ffi::lua_upvalueindex(4)),
    (ffi::lua_upvalueindex(5), ffi::lua_upvalueindex(6)),
];
const OWN_VALUES: c_int = 6;

impl Runner {
    /// One that has `handle` for the errors that are raised. `scripts` has them by their places; `globals`
    /// are those that they see, to be written.
    pub(super) fn new(lua: &Lua, handle: Function, scripts: &Table, globals: &Table) -> Result<Runner> {
        let list = |length: usize| lua.create_table_with_capacity(length, 0);
        let own = (scripts, globals, "KEYS", list(LENT_LENGTH_MAX)?, "ARGV", list(LENT_LENGTH_MAX)?);
        let returned_table = list(1)?;
        let (mut lua_state, mut places) = (std::ptr::null_mut(), [0; 3]);
        // SAFETY: `run_script` keeps the rules of functions that Lua calls, and has its own values where it
        // looks for them: they are the uppermost on the stack. References are taken from the top, too.
        unsafe {
            lua.exec_raw::<()>((&returned_table, handle, own), |state| {
                ffi::lua_pushcclosure(state, run_script, OWN_VALUES);
                places = [(); 3].map(|()| ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX));
                lua_state = state;
            })?;
        }
        let [run, handle, returned] = places;
        let state = NonNull::new(lua_state).expect("there is a state where Lua calls something");
        Ok(Runner { state, run, handle, returned, returned_table, lent: Cell::default() })
    }

    /// Runs the script that is given. Answers whether all went well, and what it returned, or what has been
    /// made of the error.
    pub(super) fn run(&self, doorway: &mut Doorway<'_>) -> Result<(bool, Value)> {
        let state = self.state.as_ptr();
        // SAFETY: the state is that of our Lua, in which nothing runs, and which has room for more than three
        // on its stack. Whatever may raise an error does so within `lua_pcall`: all else neither calls nor
        // makes anything, for there is room in the table for what is put there.
        let (is_well, plain) = open(doorway, || unsafe {
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

/// Opens the way while `run` runs.
pub(super) fn open<T>(doorway: &mut Doorway<'_>, run: impl FnOnce() -> T) -> T {
    /// Closes it, however `run` ends.
    struct Close(Option<NonNull<Doorway<'static>>>);

    impl Drop for Close {
        fn drop(&mut self) {
            OPEN.set(self.0);
        }
    }

    let _close = Close(OPEN.replace(Some(NonNull::from(doorway).cast())));
    run()
}

/// Does something with the way that is open, if one is.
pub(super) fn with<T>(act: impl FnOnce(&mut Doorway<'_>) -> T) -> Option<T> {
    let mut doorway = OPEN.get()?;
    // SAFETY: it is open, so `open` has borrowed it for nobody but the functions here, of which one runs.
    Some(act(unsafe { doorway.as_mut() }))
}

/// What the server has answered: nothing that would have to be dropped.
#[derive(Clone, Copy)]
enum Asked {
    /// A reply in RESP.
    Reply { text: NonNull<[u8]>, protocol: Protocol },
    /// The text of an error, and whether it is counted already.
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

/// What a command counts as, in instructions of a script, beside its reply.
const COMMAND_UNITS: usize = 200;
/// So many bytes that are copied count as one instruction.
pub(super) const UNIT_BYTES: usize = 16;
/// Arguments beyond so many bytes are counted.
const LONG_BYTES: usize = 1024;

/// Answers a command's reply, or its error, which it raises if it is to.
///
/// # Safety
///
/// To be called by a function that Lua calls, with its state.
unsafe fn answer(state: *mut lua_State, raises: bool) -> c_int {
    // SAFETY: the state is valid. From here on nothing waits to be dropped, and the text lies in the
    // buffers of the doorway, which nobody touches before the next command is asked for.
    unsafe {
        let asked = ask(state);
        let (Asked::Reply { text, .. } | Asked::Error { text, .. }) = asked;
        keyfast_charge(state, COMMAND_UNITS + text.len() / UNIT_BYTES);
        // The arguments may have left no room for the reply.
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

/// Has a command run that lies on the stack.
///
/// # Safety
///
/// As for [`answer`].
unsafe fn ask(state: *mut lua_State) -> Asked {
    let fixed = |text: &'static str| Asked::Error { text: NonNull::from(text.as_bytes()), is_counted: false };
    // SAFETY: reading the stack raises no error.
    let count = unsafe { ffi::lua_gettop(state) };
    if count == 0 {
        return fixed("ERR Please specify at least one argument for this redis lib call");
    }
    let asked = catch_unwind(AssertUnwindSafe(|| {
        with(|doorway| {
            // SAFETY: as before.
            if !unsafe { take_arguments(state, count, &mut doorway.buffers.request) } {
                return fixed("ERR Lua redis lib command arguments must be strings or integers");
            }
            run(doorway)
        })
    }));
    match asked {
        Ok(Some(asked)) => asked,
        Ok(None) => fixed("ERR redis.call can only be called inside a script invocation"),
        Err(_panic) => fixed("ERR the command has failed inside the server"),
    }
}

fn run(doorway: &mut Doorway<'_>) -> Asked {
    let is_resp3 = doorway.speaks_resp3.load(Ordering::Relaxed);
    let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let Buffers { request, reply } = &mut *doorway.buffers;
    reply.clear();
    let refused = match request.request() {
        Some(request) => doorway.host.call(request, protocol, reply).err(),
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

/// Makes a request of what lies on the stack; answers whether all of it may be in one.
///
/// # Safety
///
/// As for [`answer`].
unsafe fn take_arguments(state: *mut lua_State, count: c_int, request: &mut OwnedRequest) -> bool {
    request.clear();
    (1..=count).all(|index| {
        // SAFETY: the index is on the stack. Looking at a string as a string and at a number as a number
        // changes nothing and raises no error; the string stays where it is as long as it is on the stack.
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
    // SAFETY: Lua calls this, with more room on the stack than it takes, and nothing waits to be dropped.
    unsafe {
        let Some(given) = Given::now() else { return 0 };
        show(state, given);
        ffi::lua_rawgeti_(state, SCRIPTS, given.place);
        ffi::lua_call(state, 0, 1);
    }
    1
}

unsafe extern "C-unwind" fn given(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with more room on the stack than it takes, and nothing waits to be dropped.
    unsafe {
        let Some(given) = Given::now() else { return 0 };
        push_texts(state, given.request, given.first, given.middle());
        push_texts(state, given.request, given.middle(), given.request.len());
    }
    2
}

/// Lets a script see what it is given as the globals `KEYS` and `ARGV`: in tables that were made once for
/// all, if it only looks at them. New ones for each run took a sixth of the instructions of a lock's release,
/// with their part in the collecting of garbage; looking whether the last ones are as new, a tenth.
///
/// # Safety
///
/// To be called by [`run_script`], with room for three on the stack.
unsafe fn show(state: *mut lua_State, given: Given<'_>) {
    let parts = [(given.first, given.middle()), (given.middle(), given.request.len())];
    let lengths = parts.map(|(first, end)| end - first);
    let is_lent = given.only_looks && lengths.iter().all(|length| *length <= LENT_LENGTH_MAX);
    // Nothing is known if an error is raised before the end.
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
/// There must be room for two on the stack, and nothing that waits to be dropped.
unsafe fn push_texts(state: *mut lua_State, request: Request<'_>, first: usize, end: usize) {
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, c_int::try_from(end - first).unwrap_or(0), 0);
        fill(state, -2, request, first, end);
    }
}

/// Fills a table with some arguments of a request. `table` is its index where one more is on the stack.
///
/// # Safety
///
/// As for [`push_texts`], with room for one.
unsafe fn fill(state: *mut lua_State, table: c_int, request: Request<'_>, first: usize, end: usize) {
    for (index, text) in (1..).zip(request.from(first).take(end - first)) {
        // SAFETY: the caller's.
        unsafe {
            push_text(state, text);
            ffi::lua_rawseti_(state, table, index);
        }
    }
}

/// Items of a table that is lent; longer ones are made anew, and left to the collector.
const LENT_LENGTH_MAX: usize = 8;

/// Pushes a string.
///
/// # Safety
///
/// There must be room on the stack, and nothing that waits to be dropped.
unsafe fn push_text(state: *mut lua_State, text: &[u8]) {
    // SAFETY: the caller's; Lua copies the text.
    unsafe { ffi::lua_pushlstring_(state, text.as_ptr().cast(), text.len()) };
}

/// Pushes a table of one field.
///
/// # Safety
///
/// As for [`push_text`], with room for two.
unsafe fn push_tagged(state: *mut lua_State, name: &CStr, text: &[u8]) {
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        push_text(state, text);
        ffi::lua_setfield(state, -2, name.as_ptr());
    }
}

/// Reads a reply of the server's own. What is nested is nested as the server does it.
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
    /// The state must be valid, with room for four on the stack, and nothing may wait to be dropped.
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

    /// The rest of the line, after the byte that tells the kind.
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
    /// This and the next four: as for [`push`](Self::push).
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
/// As for [`push_tagged`].
unsafe fn push_double(state: *mut lua_State, text: &[u8]) {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
    // SAFETY: the caller's.
    unsafe {
        ffi::lua_createtable(state, 0, 1);
        ffi::lua_pushnumber(state, number);
        ffi::lua_setfield(state, -2, c"double".as_ptr());
    }
}
