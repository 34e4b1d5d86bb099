//! Persistence: snapshots of the data set, and a log of all changes, in files that Redis reads and writes.
//!
//! [`rdb`] is the format of snapshots, and [`aof`] is the log. A [`Job`] is a snapshot that has begun:
//! everything was locked for a moment, and now it is written, while clients go on. [`Target`] is the file
//! that it replaces. [`load`] reads one at start. [`Persistence`] knows what was saved and when, and what is
//! due. Only one snapshot is written at a time. [`check`] has the programs that check files.

pub(crate) mod aof;
pub(crate) mod check;
mod file;
mod job;
mod loading;
pub(crate) mod rdb;

use std::ops::DerefMut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::SavePoint;
use crate::keyspace::{Everything, Transaction, Walk};

pub(crate) use aof::Aof;
pub(crate) use file::{Target, WriterNumber, nameless, tidy_up_after_the_dead};
pub(crate) use job::{Destination, Job, Purpose, SnapshotPlan, Wanted, functions_alone};
pub(crate) use loading::{Conflicts, LoadReport, Loaded, Loading, Reading, Running, load, load_from, verify};

/// How long automatic saving pauses after a failed snapshot. Redis: `CONFIG_BGSAVE_RETRY_DELAY`.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The state of snapshots and of the log.
#[derive(Debug)]
pub struct Persistence {
    /// The log of all changes.
    pub aof: Aof,
    /// The load that is running, if one is.
    pub loading: Loading,
    /// The number by which this server's temporary files are named.
    pub writer: WriterNumber,
    state: Mutex<State>,
    /// Whether the last snapshot in the background failed.
    has_failed: AtomicBool,
    /// Whether the background snapshot must be given up.
    is_abandoned: AtomicBool,
    /// Whether files have expiries by a clock that a client has turned.
    has_turned_moments: AtomicBool,
    /// Keys of the current snapshot that have been written.
    keys_written: AtomicUsize,
    /// Changes of saved data that are not keys: libraries.
    other_changes: AtomicU64,
    /// Wakes the background thread that writes snapshots.
    called: Notify,
    /// Notified when a snapshot has ended.
    ended: Notify,
}

#[derive(Debug)]
struct State {
    last_save_s: u64,
    /// The moment of that save on the clock that no client turns; at first that of the start.
    last_save: Instant,
    /// The changes that the last successful snapshot contains.
    saved: Changes,
    current: Option<Current>,
    /// The job that waits for the background thread.
    job: Option<Job>,
    /// A background snapshot must begin as soon as possible.
    is_due: bool,
    /// BGSAVE has asked for a snapshot that could not begin at once.
    is_scheduled: bool,
    last_try: Option<Instant>,
    last_took: Option<Duration>,
    last_preserved_bytes: usize,
    saves: u64,
    failures: u64,
    loaded: Loaded,
}

/// Counts of changes of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Keys written or deleted, libraries loaded or deleted.
    pub all: u64,
    /// All databases emptied at once.
    pub flushes: u64,
}

/// A snapshot that is being written.
#[derive(Clone, Copy, Debug)]
struct Current {
    started: Instant,
    keys: usize,
    is_in_background: bool,
    purpose: Purpose,
}

/// The facts that INFO shows.
#[derive(Clone, Debug)]
pub struct Report {
    /// Time of the last successful save, in seconds since 1970; at first the server's start.
    pub last_save_s: u64,
    /// Changes since the last successful save.
    pub changes: u64,
    /// How long the current background snapshot has been running.
    pub background: Option<Duration>,
    /// Keys of the current snapshot: written, and in total.
    pub progress: (usize, usize),
    /// Whether the last background snapshot succeeded.
    pub is_well: bool,
    /// How long the last background snapshot took.
    pub last_took: Option<Duration>,
    /// The most bytes that were preserved for the last background snapshot.
    pub last_preserved_bytes: usize,
    /// How many snapshots have begun.
    pub saves: u64,
    /// How many background snapshots in a row have failed.
    pub failures: u64,
    /// What was loaded at start.
    pub loaded: Loaded,
}

/// How a snapshot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The file has been replaced.
    Saved,
    /// The old file is still there; the log says why.
    Failed,
    /// It was given up; the old file is still there.
    Abandoned,
}

impl Persistence {
    /// The state of a server that has saved nothing yet. `now_s` is in seconds since 1970.
    pub fn new(now_s: u64) -> Persistence {
        Persistence {
            aof: Aof::default(),
            loading: Loading::default(),
            writer: WriterNumber::next(),
            state: Mutex::new(State {
                last_save_s: now_s,
                last_save: Instant::now(),
                saved: Changes::default(),
                current: None,
                job: None,
                is_due: false,
                is_scheduled: false,
                last_try: None,
                last_took: None,
                last_preserved_bytes: 0,
                saves: 0,
                failures: 0,
                loaded: Loaded::default(),
            }),
            has_failed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            has_turned_moments: AtomicBool::new(false),
            keys_written: AtomicUsize::new(0),
            other_changes: AtomicU64::new(0),
            called: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Counts a change of data that are not keys.
    pub fn note_change(&self) {
        self.other_changes.fetch_add(1, Ordering::Relaxed);
    }

    /// All changes, given those of keys.
    pub fn changes(&self, of_keys: u64, flushes: u64) -> Changes {
        Changes { all: of_keys + self.other_changes.load(Ordering::Relaxed), flushes }
    }

    /// Whether the last snapshot in the background failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Time of the last successful save, in seconds since 1970; at first the server's start.
    pub fn last_save_s(&self) -> u64 {
        self.state.lock().last_save_s
    }

    /// Notes whether files have expiries by a clock that a client has turned; returns whether they had.
    pub fn note_turned_moments(&self, has_turned_moments: bool) -> bool {
        self.has_turned_moments.swap(has_turned_moments, Ordering::Relaxed)
    }

    /// Whether a snapshot is being written.
    pub fn is_saving(&self) -> bool {
        self.state.lock().current.is_some()
    }

    /// Whether a background snapshot is running. Writing the base of a log does not count.
    pub fn is_saving_in_background(&self) -> bool {
        let is_one = |current: Current| current.is_in_background && current.purpose == Purpose::Snapshot;
        self.state.lock().current.is_some_and(is_one)
    }

    /// Begins a snapshot of this moment. Returns `None` if one is already running.
    pub fn begin_snapshot(
        &self,
        tx: &mut Everything<&mut Transaction<'_>>,
        plan: SnapshotPlan,
    ) -> Option<Job> {
        let mut state = self.state.lock();
        if state.current.is_some() {
            return None;
        }
        let job = Job::begin(tx, plan, |of_keys, flushes| self.changes(of_keys, flushes))?;
        let (is_in_background, purpose) = (job.is_in_background(), job.purpose());
        let started = Instant::now();
        state.current = Some(Current { started, keys: job.keys(), is_in_background, purpose });
        if purpose == Purpose::Snapshot {
            state.saves += 1;
        }
        if is_in_background && purpose == Purpose::Snapshot {
            tracing::info!("Background saving started");
            state.last_try = Some(Instant::now());
            (state.is_due, state.is_scheduled) = (false, false);
        }
        self.is_abandoned.store(false, Ordering::Relaxed);
        self.keys_written.store(0, Ordering::Relaxed);
        Some(job)
    }

    /// Writes a snapshot to its end. `now_s` returns the time in seconds since 1970.
    pub fn write<'a>(
        &self,
        mut job: Job,
        walk: &mut Walk<impl DerefMut<Target = Transaction<'a>>>,
        now_s: impl Fn() -> u64,
    ) -> Ended {
        let is_in_background = job.is_in_background();
        let (keyspace, flushes) = (walk.keyspace(), job.changes().flushes);
        let is_snapshot = job.purpose() == Purpose::Snapshot;
        let mut most_preserved = 0;
        let ended = job.write(walk, |keys| {
            if is_in_background {
                // With one processor, clients that wait for it come first.
                thread::yield_now();
            }
            self.keys_written.fetch_add(keys, Ordering::Relaxed);
            most_preserved = most_preserved.max(keyspace.preserved_bytes());
            // Flushed data must not come back from a snapshot; the log has the flush itself.
            let is_outdated = is_snapshot && keyspace.flushes() != flushes;
            !(is_in_background && (is_outdated || self.is_abandoned.load(Ordering::Relaxed)))
        });
        let mut state = self.state.lock();
        let current = state.current.take();
        if !is_snapshot {
            drop(state);
            self.ended.notify_waiters();
            return ended;
        }
        if ended == Ended::Saved {
            (state.last_save_s, state.last_save) = (now_s(), Instant::now());
            state.saved = job.changes();
        }
        if is_in_background {
            state.last_took = current.map(|current| current.started.elapsed());
            state.last_preserved_bytes = most_preserved;
        }
        // The result is set first, so that a client that sees the snapshot ended also sees its result.
        match &ended {
            Ended::Saved => {
                state.failures = 0;
                self.has_failed.store(false, Ordering::Relaxed);
            }
            Ended::Failed if is_in_background => {
                state.failures += 1;
                self.has_failed.store(true, Ordering::Relaxed);
            }
            Ended::Failed | Ended::Abandoned => {}
        }
        drop(state);
        match &ended {
            Ended::Saved => {
                tracing::info!("DB saved on disk");
                if is_in_background {
                    tracing::info!("Background saving terminated with success");
                }
            }
            Ended::Failed if is_in_background => tracing::warn!("Background saving error"),
            Ended::Failed | Ended::Abandoned => {}
        }
        self.ended.notify_waiters();
        ended
    }

    /// Whether the base of a log is being written.
    pub fn is_rewriting(&self) -> bool {
        self.state.lock().current.is_some_and(|current| current.purpose == Purpose::Base)
    }

    /// Wakes the background thread.
    pub fn call(&self) {
        self.called.notify_one();
    }

    /// Hands a snapshot to the background thread.
    pub fn hand_over(&self, job: Job) {
        self.state.lock().job = Some(job);
        self.called.notify_one();
    }

    /// Schedules a background snapshot.
    pub fn schedule(&self) {
        self.state.lock().is_scheduled = true;
    }

    /// Waits until the background thread has work.
    pub async fn called(&self) {
        self.called.notified().await;
    }

    /// Takes the job that was handed over.
    pub fn take_job(&self) -> Option<Job> {
        self.state.lock().job.take()
    }

    /// Whether a background snapshot must begin. The background thread takes jobs first.
    pub fn is_due(&self) -> bool {
        self.state.lock().is_due
    }

    /// Checks whether a background snapshot is due, and wakes the background thread if so. Calls `changes`
    /// only if needed.
    pub fn look(&self, points: &[SavePoint], now: Instant, changes: impl FnOnce() -> Option<Changes>) {
        let mut state = self.state.lock();
        if state.current.is_some() || state.is_due {
            return;
        }
        let is_resting = self.has_failed() && state.last_try.is_some_and(|last| last.elapsed() < RETRY_DELAY);
        if is_resting {
            return;
        }
        state.is_due = state.is_scheduled || state.has_reached(points, now, changes);
        if state.is_due {
            drop(state);
            self.called.notify_one();
        }
    }

    /// Whether no snapshot is written or due, and no number of seconds makes one due.
    pub fn is_at_rest(&self, points: &[SavePoint], changes: impl FnOnce() -> Option<Changes>) -> bool {
        let state = self.state.lock();
        let is_busy = state.current.is_some() || state.job.is_some() || state.is_due || state.is_scheduled;
        !is_busy && (points.is_empty() || changes().is_some_and(|changes| changes == state.saved))
    }

    /// Gives up the background snapshot, which ends soon and without effect.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
    }

    /// Waits until no snapshot is being written.
    pub async fn settled(&self) {
        loop {
            let ended = self.ended.notified();
            if !self.is_saving() {
                return;
            }
            ended.await;
        }
    }

    /// Notes that the data are as loaded.
    pub fn note_loaded(&self, loaded: Loaded, changes: Changes) {
        let mut state = self.state.lock();
        state.loaded = loaded;
        state.saved = changes;
    }

    /// Resets the counters of INFO.
    pub fn reset_counts(&self) {
        self.state.lock().saves = 0;
    }

    /// The facts that INFO shows, given the changes so far.
    pub fn report(&self, changes: Changes) -> Report {
        let state = self.state.lock();
        let current = state.current.filter(|current| current.purpose == Purpose::Snapshot);
        let background = current.filter(|current| current.is_in_background);
        let keys = state.current.map_or(0, |current| current.keys);
        let written = self.keys_written.load(Ordering::Relaxed);
        Report {
            last_save_s: state.last_save_s,
            changes: changes.all.saturating_sub(state.saved.all),
            background: background.map(|current| current.started.elapsed()),
            progress: state.current.map_or((0, 0), |_| (written, keys)),
            is_well: !self.has_failed(),
            last_took: state.last_took,
            last_preserved_bytes: state.last_preserved_bytes,
            saves: state.saves,
            failures: state.failures,
            loaded: state.loaded,
        }
    }
}

impl State {
    /// Whether a snapshot point is reached: its time has passed, and there are enough changes. Logs which
    /// one.
    fn has_reached(
        &self,
        points: &[SavePoint],
        now: Instant,
        changes: impl FnOnce() -> Option<Changes>,
    ) -> bool {
        let passed = now.saturating_duration_since(self.last_save);
        if points.is_empty() {
            return false;
        }
        let Some(changes) = changes() else { return false };
        if changes.flushes != self.saved.flushes {
            // Flushed data must not come back. Redis saves at once then.
            return true;
        }
        let made = changes.all.saturating_sub(self.saved.all);
        let has_passed = |point: &SavePoint| passed > Duration::from_secs(point.seconds);
        let reached = points.iter().find(|point| has_passed(point) && made >= point.changes);
        if let Some(point) = reached {
            tracing::info!("{} changes in {} seconds. Saving...", point.changes, point.seconds);
        }
        reached.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many seconds after the last save.
    fn after(persistence: &Persistence, passed_s: u64) -> Instant {
        persistence.state.lock().last_save + Duration::from_secs(passed_s)
    }

    fn is_due(persistence: &Persistence, passed_s: u64, all: u64) -> bool {
        let points = [SavePoint { seconds: 60, changes: 1000 }, SavePoint { seconds: 900, changes: 1 }];
        persistence.look(&points, after(persistence, passed_s), || Some(Changes { all, flushes: 0 }));
        std::mem::take(&mut persistence.state.lock().is_due)
    }

    #[test]
    fn a_snapshot_is_due_after_so_much_time_and_so_many_changes() {
        let persistence = Persistence::new(1000);
        assert!(!is_due(&persistence, 60, 5000) && !is_due(&persistence, 61, 999));
        assert!(is_due(&persistence, 61, 1000));
        assert!(!is_due(&persistence, 900, 1) && is_due(&persistence, 901, 1));
        assert!(!is_due(&persistence, 9999, 0));
        persistence.note_loaded(Loaded::default(), Changes { all: 500, flushes: 0 });
        assert!(!is_due(&persistence, 61, 1499) && is_due(&persistence, 61, 1500));
    }

    #[test]
    fn after_a_flush_one_is_due_at_once_where_any_is() {
        let persistence = Persistence::new(1000);
        let flushed = || Some(Changes { all: 0, flushes: 1 });
        persistence.look(&[], Instant::now(), flushed);
        assert!(!persistence.is_due());
        persistence.look(&[SavePoint { seconds: 60, changes: 1000 }], Instant::now(), flushed);
        assert!(persistence.is_due());
    }

    #[test]
    fn what_was_scheduled_comes_whatever_the_points_but_not_right_after_a_failure() {
        let persistence = Persistence::new(1000);
        persistence.schedule();
        persistence.has_failed.store(true, Ordering::Relaxed);
        persistence.state.lock().last_try = Some(Instant::now());
        persistence.look(&[], Instant::now(), || None);
        assert!(!persistence.is_due());
        persistence.has_failed.store(false, Ordering::Relaxed);
        persistence.look(&[], Instant::now(), || None);
        assert!(persistence.is_due());
    }
}
