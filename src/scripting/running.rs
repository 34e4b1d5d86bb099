//! What other threads may know of the running script, and how they kill it.
//!
//! The interpreter calls [`Running::tick`] at intervals. There a killed script finds out that it must end. A
//! script that has been running longer than `busy-reply-threshold` is marked as slow: from then on other
//! clients get an error instead of waiting, and the thread hands its other clients over, since it cannot
//! serve them before the script ends.
//!
//! Everything that changes with each run is in one word, [`State::run`], so that a run begins and ends
//! without a lock. The word has the number of the run, and bits for its kind and state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The running script, if there is one. Clones share it.
#[derive(Clone, Debug)]
pub struct Running(Arc<State>);

#[derive(Debug)]
struct State {
    /// The number of the run and its bits; only the number between two runs. The thread that has the turn
    /// writes it. Other threads only set [`IS_KILLED`], and only for the run that they have seen.
    run: AtomicU64,
    /// When the run began, in nanoseconds since `beginning`.
    started_ns: AtomicU64,
    beginning: Instant,
    /// The call of the last function that ran.
    called: Mutex<Called>,
    /// Whether the script is slow. Other threads check this before they wait.
    is_busy: Arc<AtomicBool>,
    /// Notifies waiting clients that the script is slow.
    slow: Notify,
    /// When the loading of libraries must end, if libraries are being loaded.
    deadline: Mutex<Option<Instant>>,
    /// `busy-reply-threshold`, in milliseconds; 0 for never.
    threshold_ms: AtomicI64,
    /// Lets other threads serve the clients of the calling thread.
    hand_over: fn(),
}

/// Bit: a script or a function runs.
const RUNS: u64 = 1;
/// Bit: it is a function.
const IS_FUNCTION: u64 = 1 << 1;
/// Bit: it was killed.
const IS_KILLED: u64 = 1 << 2;
/// Bit: it has written data.
const HAS_WRITTEN: u64 = 1 << 3;
/// The lowest bit of the run's number.
const ONE_RUN: u64 = 1 << 4;

/// The current run.
#[derive(Clone, Debug)]
pub struct Current {
    /// A script or a function.
    pub kind: ScriptKind,
    /// The call, for a function.
    pub called: Called,
    /// When the run began.
    pub started: Instant,
}

/// The call of a function.
#[derive(Clone, Debug, Default)]
pub struct Called {
    /// The function's name.
    pub name: Vec<u8>,
    /// The client's request, argument by argument.
    pub request: Vec<Vec<u8>>,
}

/// Kinds of scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// A script of EVAL or EVALSHA.
    Script,
    /// A function of a library.
    Function,
}

/// Why a kill was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkilled {
    /// No script is running.
    NotRunning,
    /// It has written data already.
    HasWritten,
    /// A function is running instead of a script, or the reverse.
    OtherKind,
}

/// The error of a killed script, from its code on.
#[derive(Debug)]
pub struct Killed(pub &'static str);

/// Called at intervals while a script runs. An error ends the script.
pub(super) type Tick = Arc<dyn Fn() -> std::result::Result<(), Killed> + Send + Sync>;

/// Why a script failed.
#[derive(Debug)]
pub struct Failure {
    /// The error's text, from its code on.
    pub text: Vec<u8>,
    /// Whether it is a command's error, which has been counted.
    pub is_counted: bool,
}

/// Ends a time limit when it is dropped.
#[derive(Debug)]
pub(crate) struct Limit<'a>(&'a Running);

/// Ends a run when it is dropped.
#[derive(Debug)]
pub struct Run<'a>(&'a Running);

impl Running {
    /// Nothing runs. `is_busy` is set while a script is slow. `hand_over` lets other threads serve the
    /// clients of the thread that calls it.
    pub fn new(is_busy: Arc<AtomicBool>, hand_over: fn()) -> Running {
        Running(Arc::new(State {
            run: AtomicU64::new(0),
            started_ns: AtomicU64::new(0),
            beginning: Instant::now(),
            called: Mutex::default(),
            is_busy,
            slow: Notify::new(),
            deadline: Mutex::default(),
            threshold_ms: AtomicI64::new(0),
            hand_over,
        }))
    }

    /// Sets after how many milliseconds a script is slow; 0 for never.
    pub fn set_threshold_ms(&self, threshold_ms: i64) {
        self.0.threshold_ms.store(threshold_ms, Ordering::Relaxed);
    }

    /// Notes that a script begins, at the moment `started`.
    pub fn begin_script(&self, started: Instant) -> Run<'_> {
        self.begin_run(RUNS, started)
    }

    /// Notes that a function begins, at the moment `started`.
    pub fn begin_function(&self, called: Called, started: Instant) -> Run<'_> {
        *self.0.called.lock() = called;
        self.begin_run(RUNS | IS_FUNCTION, started)
    }

    fn begin_run(&self, bits: u64, started: Instant) -> Run<'_> {
        let state = &self.0;
        let started_ns = started.saturating_duration_since(state.beginning).as_nanos() as u64;
        state.started_ns.store(started_ns, Ordering::Relaxed);
        let number = state.run.load(Ordering::Relaxed) / ONE_RUN + 1;
        state.run.store(number * ONE_RUN + bits, Ordering::Release);
        Run(self)
    }

    /// Limits the time for loading libraries. Loading is never slow and cannot be killed.
    pub(super) fn limit(&self, time: Duration) -> Limit<'_> {
        *self.0.deadline.lock() = Some(Instant::now() + time);
        Limit(self)
    }

    /// The current run, if there is one.
    pub fn current(&self) -> Option<Current> {
        let state = &self.0;
        let run = state.run.load(Ordering::Acquire);
        (run & RUNS != 0).then(|| match kind(run) {
            kind @ ScriptKind::Script => Current { kind, called: Called::default(), started: self.started() },
            kind @ ScriptKind::Function => {
                Current { kind, called: state.called.lock().clone(), started: self.started() }
            }
        })
    }

    fn started(&self) -> Instant {
        self.0.beginning + Duration::from_nanos(self.0.started_ns.load(Ordering::Relaxed))
    }

    /// Notes that the script has written or sent something. It can no longer be killed.
    pub fn note_write(&self) {
        let run = &self.0.run;
        if run.load(Ordering::Relaxed) & HAS_WRITTEN == 0 {
            run.fetch_or(HAS_WRITTEN, Ordering::Relaxed);
        }
    }

    /// Whether the running script is slow.
    pub fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::Acquire)
    }

    /// Waits until a script becomes slow.
    pub(super) fn slow(&self) -> Notified<'_> {
        self.0.slow.notified()
    }

    /// Kills the running script or function.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill(&self, wanted: ScriptKind) -> Result<(), Unkilled> {
        let check = |run: u64| match run {
            _ if run & RUNS == 0 => Err(Unkilled::NotRunning),
            _ if run & HAS_WRITTEN != 0 => Err(Unkilled::HasWritten),
            _ if kind(run) != wanted => Err(Unkilled::OtherKind),
            _ => Ok(run | IS_KILLED),
        };
        // The check still holds when the bit is set: the exchange fails if the run has changed or has
        // written.
        let killed = self.0.run.fetch_update(Ordering::AcqRel, Ordering::Acquire, |run| check(run).ok());
        killed.or_else(check).map(|_| ())
    }

    /// The function that the interpreter calls at intervals.
    pub(super) fn hook(&self) -> impl Fn() -> Result<(), Killed> + Send + Sync + 'static {
        let running = self.clone();
        move || running.tick()
    }

    /// Checks whether the script was killed, or is slow.
    ///
    /// # Errors
    ///
    /// If it was killed, or loading has taken too long.
    fn tick(&self) -> Result<(), Killed> {
        let state = &self.0;
        if let Some(deadline) = *state.deadline.lock() {
            let is_over = Instant::now() >= deadline;
            return if is_over { Err(Killed("ERR FUNCTION LOAD timeout")) } else { Ok(()) };
        }
        if state.run.load(Ordering::Acquire) & IS_KILLED != 0 {
            return Err(Killed("ERR Script killed by user with SCRIPT KILL..."));
        }
        let threshold_ms = state.threshold_ms.load(Ordering::Relaxed);
        if self.is_busy() || threshold_ms <= 0 || state.run.load(Ordering::Relaxed) & RUNS == 0 {
            return Ok(());
        }
        let elapsed = self.started().elapsed();
        if elapsed >= Duration::from_millis(threshold_ms.unsigned_abs()) {
            // This comes first: the thread that takes over the clients must not wait for the script.
            state.is_busy.store(true, Ordering::Release);
            state.slow.notify_waiters();
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

/// The kind of a run.
fn kind(run: u64) -> ScriptKind {
    if run & IS_FUNCTION == 0 { ScriptKind::Script } else { ScriptKind::Function }
}

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        *self.0.0.deadline.lock() = None;
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.run.store(state.run.load(Ordering::Relaxed) / ONE_RUN * ONE_RUN, Ordering::Release);
        state.is_busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_run_ends_with_it() {
        let running = Running::new(Arc::default(), || ());
        assert_eq!(running.kill(ScriptKind::Script), Err(Unkilled::NotRunning));
        let run = running.begin_script(Instant::now());
        assert!(running.tick().is_ok());
        assert_eq!(running.kill(ScriptKind::Function), Err(Unkilled::OtherKind));
        assert_eq!(running.kill(ScriptKind::Script), Ok(()));
        assert!(running.tick().is_err());
        drop(run);
        let run = running.begin_script(Instant::now());
        assert!(running.tick().is_ok());
        running.note_write();
        assert_eq!(running.kill(ScriptKind::Script), Err(Unkilled::HasWritten));
        drop(run);
        assert_eq!(running.kill(ScriptKind::Script), Err(Unkilled::NotRunning));
        let _run = running.begin_script(Instant::now());
        assert_eq!(running.kill(ScriptKind::Script), Ok(()));
    }

    #[test]
    fn a_function_is_known_as_long_as_it_runs() {
        let running = Running::new(Arc::default(), || ());
        let (called, started) =
            (Called { name: b"f".to_vec(), request: vec![b"FCALL".to_vec()] }, Instant::now());
        let run = running.begin_function(called, started);
        let current = running.current().expect("it runs");
        assert_eq!(
            (current.kind, current.called.name, current.started),
            (ScriptKind::Function, b"f".to_vec(), started)
        );
        drop(run);
        assert!(running.current().is_none());
        let _run = running.begin_script(started);
        assert_eq!(running.current().map(|current| current.kind), Some(ScriptKind::Script));
    }
}
