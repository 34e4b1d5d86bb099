//! What other threads may know of the script that runs, and do to it.
//!
//! The interpreter calls [`Running::tick`] every so many instructions. There a script that was killed learns
//! of it; and one that has been running for longer than `busy-reply-threshold` is declared to be slow: from
//! then on others are told so instead of being kept waiting, and the thread hands its other clients over,
//! since it will not come back to them before the script ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The script that runs, if one does. Clones are the same.
#[derive(Clone, Debug)]
pub struct Running(Arc<State>);

#[derive(Debug)]
struct State {
    current: Mutex<Option<Current>>,
    is_killed: AtomicBool,
    has_written: AtomicBool,
    /// Whether it has been declared to be slow; others look at this before they wait.
    is_busy: Arc<AtomicBool>,
    /// When whatever runs that is no script has to end.
    deadline: Mutex<Option<Instant>>,
    /// `busy-reply-threshold`, in milliseconds; 0 for never.
    threshold_ms: AtomicI64,
    /// Lets other threads serve the clients of this one.
    hand_over: fn(),
}

/// One run.
#[derive(Clone, Debug)]
pub struct Current {
    /// What runs.
    pub kind: Kind,
    /// Its name, for a function.
    pub name: Vec<u8>,
    /// The request, for a function.
    pub request: Vec<Vec<u8>>,
    /// Since when.
    pub started: Instant,
}

/// Kinds of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One that EVAL was given.
    Script,
    /// A function of a library.
    Function,
}

/// Why a script was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkilled {
    /// None runs.
    NotRunning,
    /// It has written already.
    HasWritten,
    /// What runs is of the other kind.
    OtherKind,
}

/// A script was killed; what it is told, from the code word on.
#[derive(Debug)]
pub struct Killed(pub &'static str);

/// Keeps a limit of time until whatever has it ends.
#[derive(Debug)]
pub struct Limit<'a>(&'a Running);

/// Keeps a run known until it ends.
#[derive(Debug)]
pub struct Run<'a>(&'a Running);

impl Running {
    /// Nothing runs. `is_busy` is set while a script is slow; `hand_over` lets other threads serve the
    /// clients of the one that calls it.
    pub fn new(is_busy: Arc<AtomicBool>, hand_over: fn()) -> Running {
        Running(Arc::new(State {
            current: Mutex::default(),
            is_killed: AtomicBool::new(false),
            has_written: AtomicBool::new(false),
            is_busy,
            deadline: Mutex::default(),
            threshold_ms: AtomicI64::new(0),
            hand_over,
        }))
    }

    /// Changes after how many milliseconds a script is slow; 0 for never.
    pub fn set_threshold_ms(&self, threshold_ms: i64) {
        self.0.threshold_ms.store(threshold_ms, Ordering::Relaxed);
    }

    /// Says what runs from now on, which is the moment `started`.
    pub fn begin(&self, kind: Kind, name: &[u8], request: Vec<Vec<u8>>, started: Instant) -> Run<'_> {
        let state = &self.0;
        state.is_killed.store(false, Ordering::Relaxed);
        state.has_written.store(false, Ordering::Relaxed);
        *state.current.lock() = Some(Current { kind, name: name.to_vec(), request, started });
        Run(self)
    }

    /// Gives so much time to the loading of libraries, which is neither slow nor killed.
    pub(super) fn limit(&self, time: Duration) -> Limit<'_> {
        *self.0.deadline.lock() = Some(Instant::now() + time);
        Limit(self)
    }

    /// What runs.
    pub fn current(&self) -> Option<Current> {
        self.0.current.lock().clone()
    }

    /// Says that the script has written, or sent, something: it can be killed no longer.
    pub fn note_write(&self) {
        self.0.has_written.store(true, Ordering::Relaxed);
    }

    /// Whether the script that runs is slow.
    pub fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::Acquire)
    }

    /// Kills what runs.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill(&self, kind: Kind) -> Result<(), Unkilled> {
        let current = self.0.current.lock();
        match current.as_ref() {
            None => Err(Unkilled::NotRunning),
            Some(_) if self.0.has_written.load(Ordering::Relaxed) => Err(Unkilled::HasWritten),
            Some(current) if current.kind != kind => Err(Unkilled::OtherKind),
            Some(_) => {
                self.0.is_killed.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// What the interpreter calls every so often.
    pub(super) fn hook(&self) -> impl Fn() -> Result<(), Killed> + Send + Sync + 'static {
        let running = self.clone();
        move || running.tick()
    }

    /// Looks after the script that runs.
    ///
    /// # Errors
    ///
    /// If it was killed.
    fn tick(&self) -> Result<(), Killed> {
        let state = &self.0;
        if let Some(deadline) = *state.deadline.lock() {
            let is_over = Instant::now() >= deadline;
            return if is_over { Err(Killed("ERR FUNCTION LOAD timeout")) } else { Ok(()) };
        }
        if state.is_killed.load(Ordering::Acquire) {
            return Err(Killed("ERR Script killed by user with SCRIPT KILL..."));
        }
        let threshold_ms = state.threshold_ms.load(Ordering::Relaxed);
        if self.is_busy() || threshold_ms <= 0 {
            return Ok(());
        }
        let Some(started) = state.current.lock().as_ref().map(|current| current.started) else {
            return Ok(());
        };
        let elapsed = started.elapsed();
        if elapsed >= Duration::from_millis(threshold_ms.unsigned_abs()) {
            // First this: whoever serves the clients from now on must not wait for the script.
            state.is_busy.store(true, Ordering::Release);
            tracing::warn!(
                "Slow script detected: still in execution after {} milliseconds. You can try killing the \
                 script using the SCRIPT KILL command.",
                elapsed.as_millis()
            );
            (state.hand_over)();
        }
        Ok(())
    }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        *self.0.0.deadline.lock() = None;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let state = &self.0.0;
        *state.current.lock() = None;
        state.is_busy.store(false, Ordering::Release);
    }
}
