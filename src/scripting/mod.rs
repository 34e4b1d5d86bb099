//! Scripts in Lua 5.1, as EVAL and FCALL run them.
//!
//! There is one interpreter, and one script runs at a time, as in Redis: scripts see each other's work
//! whole or not at all, and may come to need any key. [`interpreter`] runs a script; what it asks of the
//! server goes to a [`Host`], so that nothing here knows a command; [`door`] is the way there. [`sandbox`]
//! is the world that scripts see, [`values`] turns replies into values and values into replies,
//! [`libraries`] are those that Redis gives to scripts, [`random`] the numbers that they draw.
//! [`functions`] is what is known of libraries, [`loader`] compiles them. [`running`] is what other threads
//! may know of the script that runs, and do to it.

mod bytecode;
mod door;
pub mod functions;
mod host;
mod interpreter;
mod libraries;
mod loader;
mod raised;
mod random;
mod redis_table;
pub mod running;
mod sandbox;
pub mod shebang;
mod values;

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sha1::{Digest as _, Sha1};

use functions::Libraries;
pub use host::{Host, Refused};
pub use interpreter::{Callable, Failure, Interpreter, Invocation, Known};
use running::Running;

/// All that concerns scripts in one server.
#[derive(Debug)]
pub struct Scripting {
    /// Held by whoever runs a script, or changes those that are known, from before the first shard is locked.
    turn: Mutex<()>,
    /// Locked only by whoever has the turn; made when it is first needed.
    interpreter: Mutex<Option<Interpreter>>,
    /// As it was when it was last looked at.
    usage: Mutex<Usage>,
    /// Changed only by whoever has the turn.
    libraries: Mutex<Libraries>,
    /// What others may know of the script that runs.
    pub running: Running,
}

/// What the interpreter takes; nothing before it is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of the interpreter with all that scripts and libraries keep.
    pub bytes: usize,
    /// How many scripts are known.
    pub scripts: usize,
    /// Bytes of their texts.
    pub script_bytes: usize,
}

/// Whose turn it is to run scripts.
#[derive(Debug)]
pub struct Turn<'a> {
    _guard: MutexGuard<'a, ()>,
    /// Whether it had to be waited for.
    pub has_waited: bool,
}

/// How long one waits for the turn before looking whether to wait any longer.
const GLANCE: Duration = Duration::from_millis(10);

impl Scripting {
    /// No script known yet.
    pub fn new(running: Running) -> Scripting {
        Scripting {
            turn: Mutex::default(),
            interpreter: Mutex::default(),
            usage: Mutex::default(),
            libraries: Mutex::default(),
            running,
        }
    }

    /// Waits for the turn, for somebody who holds no shard; none if a script runs for too long.
    pub fn take_turn(&self) -> Option<Turn<'_>> {
        if let Some(guard) = self.turn.try_lock() {
            return Some(Turn { _guard: guard, has_waited: false });
        }
        loop {
            if let Some(guard) = self.turn.try_lock_for(GLANCE) {
                return Some(Turn { _guard: guard, has_waited: true });
            }
            if self.running.is_busy() {
                return None;
            }
        }
    }

    /// Does something with the interpreter. The caller has the turn: its command says so.
    pub fn with<T>(&self, act: impl FnOnce(&mut Interpreter) -> T) -> T {
        let mut interpreter = self.interpreter.lock();
        act(interpreter.get_or_insert_with(|| Interpreter::new(self.running.hook())))
    }

    /// The libraries of functions, to be looked at for a moment.
    pub fn libraries(&self) -> MutexGuard<'_, Libraries> {
        self.libraries.lock()
    }

    /// What the interpreter takes; while a script runs, what it took when it was last looked at.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage.lock();
        if let Some(interpreter) = self.interpreter.try_lock() {
            *usage = interpreter.as_ref().map_or_else(Usage::default, |interpreter| {
                let (scripts, script_bytes) = interpreter.scripts();
                Usage { bytes: interpreter.bytes(), scripts, script_bytes }
            });
        }
        *usage
    }
}

/// The name of a script: the SHA-1 of its text in 40 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    const BYTES: usize = 40;

    /// That of a text.
    pub fn of(text: &[u8]) -> Digest {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; Digest::BYTES];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(Sha1::digest(text)) {
            pair.copy_from_slice(&[byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]));
        }
        Digest(digits)
    }

    /// What a client calls a script, with letters in any case; none if it cannot be one.
    pub fn parse(text: &[u8]) -> Option<Digest> {
        <[u8; Digest::BYTES]>::try_from(text).ok().map(|mut digits| {
            digits.make_ascii_lowercase();
            Digest(digits)
        })
    }

    /// Its digits, in lower case.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
