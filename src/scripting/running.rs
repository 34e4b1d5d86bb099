//! What other threads may know of the script that runs, and do to it.
//!
//! The interpreter calls [`Running::tick`] every so many instructions. There a script that was killed learns
//! of it; and one that has been running for longer than `busy-reply-threshold` is declared to be slow: from
//! then on others are told so instead of being kept waiting, and the thread hands its other clients over,
//! since it will not come back to them before the script ends.
//!
//! What changes with every run lies in one word, [`State::run`], so that beginning and ending one takes no
//! lock: the number of the run, and bits that tell what it is and what has become of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The script that runs, if one does. Clones are the same.
#[derive(Clone, Debug)]
pub struct Running(Arc<State>);

#[derive(Debug)]
struct State {
    /// The number of the run, and its bits; only the number between two runs. Whoever has the turn writes it;
    /// others do no more than add [`IS_KILLED`], to the run that they mean.
    run: AtomicU64,
    /// When it began, in nanoseconds since the beginning of all.
    started_ns: AtomicU64,
    beginning: Instant,
    /// What was called last, of functions.
    called: Mutex<Called>,
    /// Whether it has been declared to be slow; others look at this before they wait.
    is_busy: Arc<AtomicBool>,
    /// Those who wait already are notified of it.
    slow: Notify,
    /// When whatever runs that is no script has to end.
    deadline: Mutex<Option<Instant>>,
    /// `busy-reply-threshold`, in milliseconds; 0 for never.
    threshold_ms: AtomicI64,
    /// Lets other threads serve the clients of this one.
    hand_over: fn(),
}

/// Something runs.
const RUNS: u64 = 1;
/// It is a function.
const IS_FUNCTION: u64 = 1 << 1;
/// It was killed.
const IS_KILLED: u64 = 1 << 2;
/// It has written.
const HAS_WRITTEN: u64 = 1 << 3;
/// The number of the run begins here.
const ONE_RUN: u64 = 1 << 4;

/// One run.
#[derive(Clone, Debug)]
pub struct Current {
    /// What runs.
    pub kind: Kind,
    /// How it was called, for a function.
    pub called: Called,
    /// Since when.
    pub started: Instant,
}

/// How a function was called.
#[derive(Clone, Debug, Default)]
pub struct Called {
    /// Its name.
    pub name: Vec<u8>,
    /// The request.
    pub request: Vec<Vec<u8>>,
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

    /// Changes after how many milliseconds a script is slow; 0 for never.
    pub fn set_threshold_ms(&self, threshold_ms: i64) {
        self.0.threshold_ms.store(threshold_ms, Ordering::Relaxed);
    }

    /// Says that a script runs from now on, which is the moment `started`.
    pub fn begin(&self, started: Instant) -> Run<'_> {
        self.begin_run(RUNS, started)
    }

    /// Says the same of a function.
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

    /// Gives so much time to the loading of libraries, which is neither slow nor killed.
    pub(super) fn limit(&self, time: Duration) -> Limit<'_> {
        *self.0.deadline.lock() = Some(Instant::now() + time);
        Limit(self)
    }

    /// What runs.
    pub fn current(&self) -> Option<Current> {
        let state = &self.0;
        let run = state.run.load(Ordering::Acquire);
        (run & RUNS != 0).then(|| match kind(run) {
            kind @ Kind::Script => Current { kind, called: Called::default(), started: self.started() },
            kind @ Kind::Function => {
                Current { kind, called: state.called.lock().clone(), started: self.started() }
            }
        })
    }

    fn started(&self) -> Instant {
        self.0.beginning + Duration::from_nanos(self.0.started_ns.load(Ordering::Relaxed))
    }

    /// Says that the script has written, or sent, something: it can be killed no longer.
    pub fn note_write(&self) {
        let run = &self.0.run;
        if run.load(Ordering::Relaxed) & HAS_WRITTEN == 0 {
            run.fetch_or(HAS_WRITTEN, Ordering::Relaxed);
        }
    }

    /// Whether the script that runs is slow.
    pub fn is_busy(&self) -> bool {
        self.0.is_busy.load(Ordering::Acquire)
    }

    /// Waits until a script is declared to be slow.
    pub(super) fn slow(&self) -> Notified<'_> {
        self.0.slow.notified()
    }

    /// Kills what runs.
    ///
    /// # Errors
    ///
    /// If it cannot be killed.
    pub fn kill(&self, wanted: Kind) -> Result<(), Unkilled> {
        let check = |run: u64| match run {
            _ if run & RUNS == 0 => Err(Unkilled::NotRunning),
            _ if run & HAS_WRITTEN != 0 => Err(Unkilled::HasWritten),
            _ if kind(run) != wanted => Err(Unkilled::OtherKind),
            _ => Ok(run | IS_KILLED),
        };
        // All that was looked at still holds when the run is killed: it is the same one, and has not written.
        let killed = self.0.run.fetch_update(Ordering::AcqRel, Ordering::Acquire, |run| check(run).ok());
        killed.or_else(check).map(|_| ())
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
        if state.run.load(Ordering::Acquire) & IS_KILLED != 0 {
            return Err(Killed("ERR Script killed by user with SCRIPT KILL..."));
        }
        let threshold_ms = state.threshold_ms.load(Ordering::Relaxed);
        if self.is_busy() || threshold_ms <= 0 || state.run.load(Ordering::Relaxed) & RUNS == 0 {
            return Ok(());
        }
        let elapsed = self.started().elapsed();
        if elapsed >= Duration::from_millis(threshold_ms.unsigned_abs()) {
            // First this: whoever serves the clients from now on must not wait for the script.
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

/// What a run is of.
fn kind(run: u64) -> Kind {
    if run & IS_FUNCTION == 0 { Kind::Script } else { Kind::Function }
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
        assert_eq!(running.kill(Kind::Script), Err(Unkilled::NotRunning));
        let run = running.begin(Instant::now());
        assert!(running.tick().is_ok());
        assert_eq!(running.kill(Kind::Function), Err(Unkilled::OtherKind));
        assert_eq!(running.kill(Kind::Script), Ok(()));
        assert!(running.tick().is_err());
        drop(run);
        let run = running.begin(Instant::now());
        assert!(running.tick().is_ok());
        running.note_write();
        assert_eq!(running.kill(Kind::Script), Err(Unkilled::HasWritten));
        drop(run);
        assert_eq!(running.kill(Kind::Script), Err(Unkilled::NotRunning));
        let _run = running.begin(Instant::now());
        assert_eq!(running.kill(Kind::Script), Ok(()));
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
            (Kind::Function, b"f".to_vec(), started)
        );
        drop(run);
        assert!(running.current().is_none());
        let _run = running.begin(started);
        assert_eq!(running.current().map(|current| current.kind), Some(Kind::Script));
    }
}
