//! Scripts in Lua 5.1, as EVAL and FCALL run them.
//!
//! There is one interpreter, and one script runs at a time, as in Redis: scripts see each other's work
//! whole or not at all, and may come to need any key. [`interpreter`] runs a script; what it asks of the
//! server goes to a [`Host`], so that nothing here knows a command; [`ffi`] is the way there. [`sandbox`]
//! is the world that scripts see, [`values`] turns replies into values and values into replies,
//! [`libraries`] are those that Redis gives to scripts, [`random`] the numbers that they draw.
//! [`functions`] is what is known of libraries, [`loader`] compiles them. [`running`] is what other threads
//! may know of the script that runs, and do to it.

mod bytecode;
mod ffi;
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

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sha1::{Digest as _, Sha1};
use tokio::select;
use tokio::sync::Notify;

use functions::Libraries;
pub use host::{Host, Refused};
pub use interpreter::{Callable, Failure, Interpreter, Invocation, Known};
use running::Running;

/// All that concerns scripts in one server.
#[derive(Debug)]
pub struct Scripting {
    /// Held by whoever runs a script, or changes those that are known, from before the first shard is locked.
    turn: Mutex<()>,
    queue: TurnQueue,
    /// Locked only by whoever has the turn; made when it is first needed.
    interpreter: Mutex<Option<Interpreter>>,
    /// Bytes that it takes; while a script runs, those that it took before.
    bytes: AtomicUsize,
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
    /// Taken when it ends.
    guard: Option<MutexGuard<'a, ()>>,
    queue: &'a TurnQueue,
    /// Whether it had to be waited for.
    pub has_waited: bool,
}

/// Those who wait for their turn without a thread.
#[derive(Debug, Default)]
struct TurnQueue {
    waiting: AtomicUsize,
    freed: Notify,
}

/// Why it is nobody's turn yet who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotYet {
    /// A script has been running for too long to be waited for.
    Busy,
    /// Another has had the turn for more than a moment.
    Contended,
}

/// How long a thread waits for the turn before looking whether to wait any longer.
const GLANCE: Duration = Duration::from_millis(10);
/// How long a thread that has other clients to serve waits for the turn.
const SOON: Duration = Duration::from_millis(1);

impl Scripting {
    /// No script known yet.
    pub fn new(running: Running) -> Scripting {
        Scripting {
            turn: Mutex::default(),
            queue: TurnQueue::default(),
            interpreter: Mutex::default(),
            bytes: AtomicUsize::new(0),
            usage: Mutex::default(),
            libraries: Mutex::default(),
            running,
        }
    }

    /// Takes the turn, for a caller that holds no shard, or waits for it for a moment.
    ///
    /// # Errors
    ///
    /// [`NotYet`]
    pub fn take_turn(&self) -> Result<Turn<'_>, NotYet> {
        let turn = |guard, has_waited| Turn { guard: Some(guard), queue: &self.queue, has_waited };
        if let Some(guard) = self.turn.try_lock() {
            return Ok(turn(guard, false));
        }
        // Where others wait without a thread already, this one does, too.
        if self.queue.waiting.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.turn.try_lock_for(SOON)
        {
            return Ok(turn(guard, true));
        }
        Err(if self.running.is_busy() { NotYet::Busy } else { NotYet::Contended })
    }

    /// Waits for the turn, for a thread that serves no clients; none if a script runs for too long.
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

    /// Waits without a thread until the turn may be free, or is not worth being waited for.
    pub async fn turn_freed(&self) {
        let _waiting = Waiting::new(&self.queue.waiting);
        let (freed, slow) = (self.queue.freed.notified(), self.running.slow());
        let (mut freed, mut slow) = (pin!(freed), pin!(slow));
        // From here on no notification is missed.
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

    /// Does something with the interpreter. The caller has the turn: its command says so.
    pub fn with<T>(&self, act: impl FnOnce(&mut Interpreter) -> T) -> T {
        let mut interpreter = self.interpreter.lock();
        let interpreter = interpreter.get_or_insert_with(|| Interpreter::new(self.running.hook()));
        let answer = act(interpreter);
        self.bytes.store(interpreter.bytes(), Ordering::Relaxed);
        answer
    }

    /// Bytes that the interpreter takes; while a script runs, those that it took before.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a script says that it may do, if it is known. Waits for another that runs, unless that has been
    /// running for too long.
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        // Either this sees those who wait, or they see that the turn is free.
        fence(Ordering::SeqCst);
        if self.queue.waiting.load(Ordering::Relaxed) > 0 {
            self.queue.freed.notify_one();
        }
    }
}

/// Counts one who waits, as long as it does.
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
