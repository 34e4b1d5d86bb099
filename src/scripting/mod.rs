//! Scripts in Lua 5.1, as EVAL and FCALL run them.
//!
//! There is one interpreter, and one script runs at a time, as in Redis: a script sees all changes of another
//! or none, and may need any key. [`interpreter`] runs a script. What it asks of the server goes to a
//! [`Host`], so that no code here knows a command; [`ffi`] connects the two. [`sandbox`] is the environment
//! of scripts. [`values`] turns replies into Lua values and Lua values into replies. [`libraries`] are those
//! that Redis gives to scripts, and [`random`] is their random numbers. [`functions`] has the libraries of
//! functions, [`registered`] is one of these, and [`loader`] compiles them. [`running`] lets other threads
//! see and kill the running script.

mod bytecode;
mod ffi;
pub(crate) mod functions;
mod host;
mod interpreter;
mod libraries;
mod loader;
mod raised;
mod random;
mod redis_table;
mod registered;
pub(crate) mod running;
mod sandbox;
pub(crate) mod shebang;
mod values;

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sha1::{Digest as _, Sha1};
use tokio::select;
use tokio::sync::Notify;

use functions::Libraries;
pub use host::{Host, NoCommand, Refused};
pub(crate) use interpreter::Known;
pub use interpreter::{Callable, Interpreter, Invocation};
pub use running::Failure;
use running::Running;

/// The scripting of one server.
#[derive(Debug)]
pub struct Scripting {
    /// Held while a script runs or the known scripts change; taken before any shard.
    turn: Mutex<()>,
    queue: TurnQueue,
    /// Locked only by the thread that has the turn. Made when it is first needed.
    interpreter: Mutex<Option<Interpreter>>,
    /// Bytes of the interpreter. While a script runs, the bytes before that script.
    bytes: AtomicUsize,
    /// The usage when it was last measured.
    usage: Mutex<Usage>,
    /// How many scripts had been forgotten when counting began anew.
    forgotten_before: AtomicU64,
    /// Changed only by the thread that has the turn.
    libraries: Mutex<Libraries>,
    /// What other threads may know of the running script.
    pub running: Running,
}

/// The memory of scripting; zero before there is an interpreter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of the interpreter, with everything that scripts and libraries keep.
    pub bytes: usize,
    /// The number of cached scripts.
    pub scripts: usize,
    /// Bytes of their texts.
    pub script_bytes: usize,
    /// How many scripts of EVAL were forgotten, as there were too many.
    pub forgotten: u64,
}

/// The turn to run scripts: a lock that is held until this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The lock's guard. Taken out when the turn ends.
    guard: Option<MutexGuard<'a, ()>>,
    queue: &'a TurnQueue,
    /// Whether the caller had to wait for the turn.
    pub has_waited: bool,
}

/// The clients that wait for their turn without a thread.
#[derive(Debug, Default)]
struct TurnQueue {
    waiting: AtomicUsize,
    freed: Notify,
}

/// Why the caller does not get the turn now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// A script has been running for too long to be waited for.
    Busy,
    /// Another client has had the turn for more than [`SOON`].
    Contended,
}

/// How long a thread waits for the turn before it checks for a slow script.
const GLANCE: Duration = Duration::from_millis(10);
/// How long a thread that has other clients to serve waits for the turn.
const SOON: Duration = Duration::from_millis(1);

impl Scripting {
    /// Scripting without any script.
    pub fn new(running: Running) -> Scripting {
        Scripting {
            turn: Mutex::default(),
            queue: TurnQueue::default(),
            interpreter: Mutex::default(),
            bytes: AtomicUsize::new(0),
            usage: Mutex::default(),
            forgotten_before: AtomicU64::new(0),
            libraries: Mutex::default(),
            running,
        }
    }

    /// Takes the turn; waits up to [`SOON`] for it. The caller must hold no shard.
    pub fn take_turn(&self) -> Result<Turn<'_>, NotYet> {
        let turn = |guard, has_waited| Turn { guard: Some(guard), queue: &self.queue, has_waited };
        if let Some(guard) = self.turn.try_lock() {
            return Ok(turn(guard, false));
        }
        // If others already wait without a thread, the caller waits behind them.
        if self.queue.waiting.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.turn.try_lock_for(SOON)
        {
            return Ok(turn(guard, true));
        }
        Err(if self.running.is_busy() { NotYet::Busy } else { NotYet::Contended })
    }

    /// Waits for the turn, for a thread that serves no clients. Returns `None` if a script is slow.
    pub fn wait_for_turn(&self) -> Option<Turn<'_>> {
        loop {
            if let Some(guard) = self.turn.try_lock_for(GLANCE) {
                return Some(Turn { guard: Some(guard), queue: &self.queue, has_waited: true });
            }
            if self.running.is_busy() {
                return None;
            }
        }
    }

    /// Waits without a thread until the turn may be free, or a script is slow.
    pub async fn turn_freed(&self) {
        let _waiting = Waiting::new(&self.queue.waiting);
        let (freed, slow) = (self.queue.freed.notified(), self.running.slow());
        let (mut freed, mut slow) = (pin!(freed), pin!(slow));
        // From here on no notification is lost.
        freed.as_mut().enable();
        slow.as_mut().enable();
        fence(Ordering::SeqCst);
        if !self.turn.is_locked() || self.running.is_busy() {
            return;
        }
        select! {
            () = freed => {}
            () = slow => {}
        }
    }

    /// Calls `act` with the interpreter. The caller must have the turn.
    pub fn with<T>(&self, act: impl FnOnce(&mut Interpreter) -> T) -> T {
        let mut interpreter = self.interpreter.lock();
        let interpreter = interpreter.get_or_insert_with(|| Interpreter::new(self.running.hook()));
        let answer = act(interpreter);
        self.bytes.store(interpreter.bytes(), Ordering::Relaxed);
        answer
    }

    /// The text of a cached script, by its name in hexadecimal digits; `None` also while a script runs.
    pub fn text_of(&self, name: &[u8]) -> Option<Vec<u8>> {
        let digest = Digest::parse(name)?;
        self.interpreter.try_lock()?.as_ref()?.text(&digest).map(<[u8]>::to_vec)
    }

    /// Bytes of the interpreter. While a script runs, the bytes before that script.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The flags of a cached script. Waits for a running script, unless that is slow.
    pub fn flags_of_script(&self, digest: &Digest) -> Option<shebang::Flags> {
        loop {
            if let Some(interpreter) = self.interpreter.try_lock_for(GLANCE) {
                return Some(interpreter.as_ref()?.script(digest)?.flags);
            }
            if self.running.is_busy() {
                return None;
            }
        }
    }

    /// Locks the libraries of functions. The caller must keep the lock only for a moment.
    pub fn libraries(&self) -> MutexGuard<'_, Libraries> {
        self.libraries.lock()
    }

    /// The memory of scripting. While a script runs, the last measured values.
    pub fn usage(&self) -> Usage {
        let mut usage = self.usage.lock();
        if let Some(interpreter) = self.interpreter.try_lock() {
            *usage = interpreter.as_ref().map_or_else(Usage::default, |interpreter| {
                let (scripts, script_bytes) = interpreter.scripts();
                let (bytes, forgotten) = (interpreter.bytes(), interpreter.forgotten());
                Usage { bytes, scripts, script_bytes, forgotten }
            });
        }
        *usage
    }

    /// How many scripts of EVAL were forgotten since the start, or since CONFIG RESETSTAT.
    pub fn forgotten(&self) -> u64 {
        self.usage().forgotten.saturating_sub(self.forgotten_before.load(Ordering::Relaxed))
    }

    /// Counts anew (CONFIG RESETSTAT).
    pub fn reset_counts(&self) {
        self.forgotten_before.store(self.usage().forgotten, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        // Either this thread sees the waiting clients, or they see that the turn is free.
        fence(Ordering::SeqCst);
        if self.queue.waiting.load(Ordering::Relaxed) > 0 {
            self.queue.freed.notify_one();
        }
    }
}

/// Counts a waiting client while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The name of a script: the SHA-1 of its text in 40 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    const BYTES: usize = 40;

    /// The name of the script with this text.
    pub fn of(text: &[u8]) -> Digest {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut digits = [0; Digest::BYTES];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(Sha1::digest(text)) {
            pair.copy_from_slice(&[byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]));
        }
        Digest(digits)
    }

    /// Parses a digest from a client, in either case. Returns `None` if it is none.
    pub fn parse(text: &[u8]) -> Option<Digest> {
        <[u8; Digest::BYTES]>::try_from(text).ok().map(|mut digits| {
            digits.make_ascii_lowercase();
            Digest(digits)
        })
    }

    /// The digits, in lower case.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
