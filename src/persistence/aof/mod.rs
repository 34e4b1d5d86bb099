//! The append-only file (AOF): a log of all changes, in the layout of Redis 7.
//!
//! The keyspace's journal collects the records. [`writer`] writes them to the file, in space that [`room`]
//! reserves. [`manifest`] lists the files, and [`reader`] reads them at start. From time to time the log is
//! rewritten: a new base gets the state of one moment, and a new increment begins at that moment. The old
//! base and all increments count until the manifest names the new base.
//!
//! A client gets its reply when its changes are written, so that they survive the process, or with
//! `appendfsync always` when they are on the disk ([`Aof::settled`]).

mod manifest;
mod reader;
mod room;
mod writer;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::select;
use tokio::sync::watch;
use tokio::time::sleep;

pub(crate) use manifest::{AofPlace, Manifest, Part};
pub(crate) use reader::{AofReader, Damage, hidden_request};
use writer::{Output, Pen};

use super::RETRY_DELAY;
use crate::files::reason;

/// When written records are synced to the disk (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before the client gets its reply.
    Always,
    /// Within a second.
    EverySecond,
    /// When the operating system does it.
    Never,
}

/// How long a client waits for the changes of others while the system takes nothing for the log. Then it is
/// served, if its own changes are written.
const OTHERS_PATIENCE: Duration = Duration::from_millis(100);

/// The log: its state and its progress. It may be off.
#[derive(Debug)]
pub struct Aof {
    /// Locked before `state`.
    pen: Mutex<Pen>,
    state: Mutex<State>,
    /// Held while files are loaded, or files that no longer count are deleted. Locked before `state`.
    in_use: Mutex<()>,
    /// Whether changes are logged (`appendonly`).
    is_on: AtomicBool,
    /// Whether the manifest's files hold all data. They do not before the first base is complete.
    is_whole: AtomicBool,
    /// Whether the last attempt to write failed.
    has_failed: AtomicBool,
    /// Journal offset up to which replies may be sent.
    upto: AtomicU64,
    /// Whether replies wait until changes are durable, not only written (`always`).
    waits_for_sync: AtomicBool,
    /// Journal offset up to which records are durable.
    durable: AtomicU64,
    /// Journal offset up to which the files have all records, durable or not.
    written: AtomicU64,
    /// Whether a sync is running.
    is_syncing: AtomicBool,
    /// How often something was written although a sync had been running for too long.
    delayed_syncs: AtomicU64,
    /// Notified when `upto` or `durable` has changed, or writing has failed.
    progress: watch::Sender<()>,
    /// The server ends: written records are synced at once.
    is_ending: AtomicBool,
    /// All records are synced, and the reserved space is given back.
    has_ended: AtomicBool,
    /// Whether the writer thread must end.
    is_stopped: AtomicBool,
    /// Records before this journal offset may be missing in the files, because a sync has failed; 0 if none
    /// are. Changes under the lock of `state`.
    gap_until: AtomicU64,
    /// Bytes written by this process.
    bytes: AtomicU64,
    /// The value of `bytes` when the current increment began, less the bytes that it already had.
    increment_began_at: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    place: Option<AofPlace>,
    manifest: Manifest,
    /// The files for the records behind each of the journal's cuts that the writer has not reached yet.
    next: VecDeque<Output>,
    failure: String,
    rewrite: Rewrite,
    last_rewrite: Option<(Duration, bool)>,
    last_failed: Option<Instant>,
    failures: u64,
    rewrites: u64,
    /// How often the log was turned on or off.
    turns: u64,
    /// Bytes of the files before the current increment.
    older_bytes: u64,
    /// The base contains the current increment, too: a rewrite has ended, but the writer has not yet reached
    /// the cut at which it began.
    is_replaced: bool,
    /// Bytes of the log just after its last rewrite.
    base_bytes: u64,
    /// Whether the writer has a file open.
    is_writing: bool,
    /// The log's directory, locked against other servers. The lock is `None` if the file system has none.
    lock: Option<(PathBuf, Option<File>)>,
}

/// The state of the rewrite.
#[derive(Clone, Copy, Debug, Default)]
enum Rewrite {
    #[default]
    Not,
    /// Begins when no snapshot is running.
    Scheduled,
    /// Begins as soon as possible.
    Due,
    Since(Instant),
}

/// How a rewrite ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// There is a new base.
    Well,
    /// An error stopped it; the log says which.
    Failed,
    /// It was given up, because it was no longer wanted.
    Abandoned,
}

/// How long automatic rewriting pauses after this many failures in a row. Redis:
/// `AOF_REWRITE_LIMITE_THRESHOLD` and `AOF_REWRITE_LIMITE_MAX_MINUTES`.
fn delay_after(failures: u64) -> Duration {
    const THRESHOLD: u64 = 3;
    const MINUTES_MAX: u64 = 60;
    match failures.checked_sub(THRESHOLD) {
        None => RETRY_DELAY,
        Some(more) => Duration::from_secs(60 * (1 << more.min(6)).min(MINUTES_MAX)),
    }
}

/// The result of a request to rewrite the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The rewrite begins now.
    Begins,
    /// The rewrite begins when no snapshot is running.
    Scheduled,
    /// A rewrite is already running.
    InProgress,
}

/// The facts that INFO shows.
#[derive(Clone, Copy, Debug)]
pub struct LogReport {
    /// Whether the log is on.
    pub is_on: bool,
    /// How long the current rewrite has been running.
    pub rewrite: Option<Duration>,
    /// Whether a rewrite is scheduled.
    pub is_scheduled: bool,
    /// How long the last rewrite took, and whether it succeeded.
    pub last_rewrite: Option<(Duration, bool)>,
    /// How many rewrites have begun.
    pub rewrites: u64,
    /// How many rewrites in a row have failed.
    pub failures: u64,
    /// Whether the last write succeeded.
    pub is_well: bool,
    /// Whether a sync is running.
    pub is_syncing: bool,
    /// How often something was written although a sync had been running for too long.
    pub delayed_syncs: u64,
    /// Bytes of all files that count.
    pub bytes: u64,
    /// Bytes of the log just after its last rewrite.
    pub base_bytes: u64,
}

impl State {
    /// How long automatic rewriting pauses after a failure. While there is a gap, writes are refused until
    /// there is a new base.
    fn delay(&self, has_gap: bool) -> Duration {
        if has_gap { RETRY_DELAY } else { delay_after(self.failures) }
    }
}

impl Default for Aof {
    fn default() -> Aof {
        Aof {
            pen: Mutex::default(),
            state: Mutex::default(),
            in_use: Mutex::default(),
            is_on: AtomicBool::new(false),
            is_whole: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            upto: AtomicU64::new(u64::MAX),
            durable: AtomicU64::new(0),
            waits_for_sync: AtomicBool::new(false),
            written: AtomicU64::new(0),
            is_syncing: AtomicBool::new(false),
            delayed_syncs: AtomicU64::new(0),
            progress: watch::Sender::new(()),
            is_ending: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            gap_until: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            increment_began_at: AtomicU64::new(0),
        }
    }
}

/// Durability: what has been written, and which replies may be sent.
impl Aof {
    /// Whether a reply may be sent that depends on the journal up to `end`.
    #[inline]
    pub fn is_settled(&self, end: u64) -> bool {
        end <= self.upto.load(Ordering::Acquire)
    }

    /// Whether replies wait until changes are durable, not only written.
    pub fn waits_for_sync(&self) -> bool {
        self.waits_for_sync.load(Ordering::Acquire)
    }

    /// Waits until a reply may be sent to a client that has seen the journal up to `end` and has logged its
    /// own last change up to `own`; returns whether it may. While syncs are waited for and the disk fails, a
    /// client gets replies only if its own changes are durable.
    pub async fn settled(&self, end: u64, own: u64) -> bool {
        let (mut progress, mut patience) = (self.progress(), pin!(sleep(OTHERS_PATIENCE)));
        let mut waits_for_others = true;
        loop {
            if self.is_settled(end) {
                return true;
            }
            let waits_for_sync = self.waits_for_sync();
            if waits_for_sync && self.has_failed() {
                return self.is_settled(own);
            }
            if !waits_for_sync && !waits_for_others && self.is_settled(own) {
                return true;
            }
            select! {
                // It cannot fail: `self` owns the sender.
                _ = progress.changed() => {}
                () = &mut patience, if waits_for_others && !waits_for_sync => waits_for_others = false,
            }
        }
    }

    /// Notified of progress from now on.
    fn progress(&self) -> watch::Receiver<()> {
        let progress = self.progress.subscribe();
        // It counts as a receiver before the caller looks at the progress so far.
        fence(Ordering::SeqCst);
        progress
    }

    /// Notifies those that wait for progress, after it was stored.
    fn announce(&self) {
        fence(Ordering::SeqCst);
        if self.progress.receiver_count() > 0 {
            self.progress.send_replace(());
        }
    }

    /// Whether the journal up to `end` is on the disk, and would be loaded from there.
    pub fn is_durable(&self, end: u64) -> bool {
        self.is_on() && self.is_whole() && end <= self.durable.load(Ordering::Acquire)
    }

    /// Bytes of the journal up to `end` that are not durable yet.
    pub fn undurable_bytes(&self, end: u64) -> u64 {
        end.saturating_sub(self.durable.load(Ordering::Acquire))
    }

    /// Waits until the journal up to `end` is durable, or the log is turned off.
    pub async fn durable(&self, end: u64) {
        let mut progress = self.progress();
        while self.is_on() && !self.is_durable(end) {
            // It cannot fail: `self` owns the sender.
            let _ = progress.changed().await;
        }
    }

    /// Waits until the journal up to `end` is on the disk and the reserved space is given back, or until a
    /// write fails. `call` wakes the writer thread. It may be called again after more changes.
    pub async fn finish(&self, end: u64, call: impl Fn()) {
        let mut progress = self.progress();
        self.has_ended.store(false, Ordering::Release);
        self.is_ending.store(true, Ordering::Release);
        call();
        let is_over =
            || self.has_ended.load(Ordering::Acquire) && self.durable.load(Ordering::Acquire) >= end;
        while self.is_on() && !is_over() && !self.has_failed() {
            let _ = progress.changed().await;
        }
    }

    /// Goes on after [`finish`](Self::finish): the server does not end after all.
    pub fn go_on_after_finish(&self) {
        self.is_ending.store(false, Ordering::Release);
    }

    /// Ends the writer thread, the next time that it wakes.
    pub fn stop_writer(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Reports that the files are complete.
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.progress.send_replace(());
    }

    /// Whether the files have all records up to this journal offset, durable or not.
    pub fn has_written(&self, end: u64) -> bool {
        end <= self.written.load(Ordering::Acquire)
    }

    /// Publishes the progress of writing, and with it up to where replies may be sent.
    fn publish(&self, pen: &Pen, sync: &dyn Fn() -> Sync) {
        // The lock is held: a change of the parameter is either seen here, or comes later and calls
        // `tighten`.
        let state = self.state.lock();
        let waits_for_sync = pen.output.is_some() && self.is_whole() && sync() == Sync::Always;
        let upto = match () {
            () if waits_for_sync => pen.durable,
            () if pen.output.is_none() && !self.is_on() => u64::MAX,
            // As in Redis: those whose changes could not be written get their replies, and the next writes
            // are refused.
            () if pen.is_stuck => u64::MAX,
            () => pen.written,
        };
        self.waits_for_sync.store(waits_for_sync, Ordering::Release);
        self.written.store(pen.written, Ordering::Release);
        let before = self.upto.swap(upto, Ordering::AcqRel);
        let has_come_on = self.durable.swap(pen.durable, Ordering::AcqRel) != pen.durable;
        drop(state);
        if has_come_on || before != upto {
            self.announce();
        }
    }

    /// After a change to `always`, holds back replies until their changes are durable.
    pub fn tighten(&self, sync: Sync) {
        let _state = self.state.lock();
        if sync == Sync::Always && self.is_on() && self.is_whole() {
            self.waits_for_sync.store(true, Ordering::Release);
            self.upto.store(self.durable.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Whether the last attempt to write failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The system's message about the last failed write.
    pub fn failure(&self) -> String {
        self.state.lock().failure.clone()
    }

    fn fail(&self, why: String) {
        self.state.lock().failure = why;
        self.has_failed.store(true, Ordering::Release);
        self.progress.send_replace(());
    }

    /// Whether the files may lack records that were written, because a sync has failed.
    fn has_gap(&self) -> bool {
        self.gap_until.load(Ordering::Acquire) != 0
    }

    /// Notes that a sync has failed when the journal was written up to `written`. A base that begins there or
    /// later closes the gap.
    fn note_gap(&self, written: u64, why: String) {
        let state = self.state.lock();
        self.gap_until.store(written, Ordering::Release);
        drop(state);
        self.fail(why);
    }

    /// Notes that the log has ended.
    fn forget_gap(&self) {
        let _state = self.state.lock();
        self.gap_until.store(0, Ordering::Release);
    }

    fn recover(&self) {
        if self.has_gap() {
            return;
        }
        tracing::warn!("AOF write error looks solved, Keyfast can write again.");
        self.has_failed.store(false, Ordering::Release);
        self.progress.send_replace(());
    }
}

/// The files, and where the log continues.
impl Aof {
    /// Whether changes are logged.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The name of the file that gets new records, without a path.
    pub fn current_file(&self) -> Vec<u8> {
        let state = self.state.lock();
        state.manifest.increments.last().map(|part| part.name.clone()).unwrap_or_default()
    }

    /// Locks a directory against other servers, until the log is off.
    pub fn lock(&self, place: &AofPlace) -> Result<(), String> {
        let mut state = self.state.lock();
        let is_held = state.lock.as_ref().is_some_and(|(directory, _)| *directory == place.directory);
        if !is_held {
            state.lock = Some((place.directory.clone(), place.lock()?));
        }
        Ok(())
    }

    /// Unlocks the directory if the log is off and all of its records are written.
    pub fn unlock_if_off(&self) {
        let mut state = self.state.lock();
        if !self.is_on() && !state.is_writing && state.next.is_empty() {
            state.lock = None;
        }
    }

    /// Notes that the writer has closed its file.
    fn note_closed(&self) {
        self.state.lock().is_writing = false;
        self.unlock_if_off();
    }

    /// Waits until the log is turned on.
    pub async fn turned_on(&self) {
        let mut progress = self.progress();
        while !self.is_on() {
            let _ = progress.changed().await;
        }
    }

    /// Turns the log on or off; returns whether that changes anything. A new log is not whole at first, and
    /// earlier failures say nothing about it.
    pub fn turn(&self, is_on: bool) -> bool {
        let mut state = self.state.lock();
        let is_new = self.is_on.swap(is_on, Ordering::AcqRel) != is_on;
        if is_new {
            state.turns += 1;
            (state.failures, state.last_failed) = (0, None);
            self.is_whole.store(false, Ordering::Release);
            if is_on {
                // From the first record on, replies wait for it.
                self.upto.store(self.written.load(Ordering::Acquire), Ordering::Release);
            }
            self.progress.send_replace(());
        }
        is_new
    }

    /// How often the log was turned on or off.
    pub fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Whether the files hold all data, so that new increments continue them.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Waits until the files hold all data, or the log is off.
    pub async fn became_whole(&self) {
        let mut progress = self.progress();
        while self.is_on() && !self.is_whole() {
            let _ = progress.changed().await;
        }
    }

    /// Sets the manifest and its sizes: bytes of all files, and of the base.
    pub fn found(&self, place: &AofPlace, manifest: Manifest, older_bytes: u64, base_bytes: u64) {
        let mut state = self.state.lock();
        state.place = Some(place.clone());
        state.manifest = manifest;
        (state.older_bytes, state.base_bytes) = (older_bytes, base_bytes);
        self.is_whole.store(true, Ordering::Release);
    }

    /// Keeps the files that [`files`](Self::files) names from being deleted, while the result exists.
    pub fn keep_files(&self) -> MutexGuard<'_, ()> {
        self.in_use.lock()
    }

    /// The manifest, and the place of its files: `place`, or the current place of a log that is being
    /// written.
    pub fn files(&self, place: AofPlace) -> Result<(AofPlace, Manifest), String> {
        let mut state = self.state.lock();
        if self.is_whole()
            && let Some(place) = &state.place
        {
            return Ok((place.clone(), state.manifest.clone()));
        }
        state.manifest = Manifest::read(&place)?.unwrap_or_default();
        state.place = Some(place.clone());
        Ok((place, state.manifest.clone()))
    }

    /// Continues the log in a new file, which has `length` bytes, at the journal's next cut. The caller makes
    /// that cut.
    pub fn go_on_in(&self, file: File, length: u64) {
        self.state.lock().next.push_back(Output::new(file, length));
    }

    /// Continues the log in the last increment; makes a first one if there is none.
    pub fn go_on(&self, place: &AofPlace) -> Result<(), String> {
        let mut manifest = self.state.lock().manifest.clone();
        let (file, length) = match manifest.increments.last() {
            Some(part) => {
                let path = place.path(&part.name);
                let opened = OpenOptions::new().append(true).create(true).open(&path);
                let measured = opened.and_then(|file| Ok((file.metadata()?.len(), file)));
                let (length, file) = measured.map_err(|error| {
                    format!("Can't open the append-only file {}: {}", path.display(), reason(&error))
                })?;
                tracing::info!("Opening AOF incr file {} on server start", part.name.escape_ascii());
                (file, length)
            }
            None => {
                let part = manifest.next_increment(place);
                tracing::info!("Creating AOF incr file {} on server start", part.name.escape_ascii());
                let file = place.create(&part)?;
                manifest.increments.push(part);
                manifest.persist(place)?;
                (file, 0)
            }
        };
        let mut state = self.state.lock();
        state.manifest = manifest;
        state.older_bytes = state.older_bytes.saturating_sub(length);
        drop(state);
        self.go_on_in(file, length);
        Ok(())
    }

    /// Replaces the manifest.
    pub fn set_manifest(&self, manifest: Manifest) {
        self.state.lock().manifest = manifest;
    }

    /// Notes that a rewrite has ended: a base of `base_bytes` replaces everything before the current
    /// increment, and closes the gap that a failed sync has left before `cut`, the journal's end when the
    /// base began. Has no effect if the log was turned on or off since, so that `turns` differs.
    pub fn rewritten(&self, place: &AofPlace, manifest: Manifest, base_bytes: u64, cut: u64, turns: u64) {
        let mut state = self.state.lock();
        if state.turns != turns {
            return;
        }
        if self.gap_until.load(Ordering::Acquire) <= cut {
            self.gap_until.store(0, Ordering::Release);
        }
        state.place = Some(place.clone());
        state.manifest = manifest;
        state.older_bytes = base_bytes;
        state.is_replaced = !state.next.is_empty();
        let increment_bytes = if state.is_replaced { 0 } else { self.increment_bytes() };
        state.base_bytes = base_bytes + increment_bytes;
        if self.is_on() {
            self.is_whole.store(true, Ordering::Release);
            self.progress.send_replace(());
        }
    }

    /// Bytes of the files that count.
    fn size(&self, state: &State) -> u64 {
        state.older_bytes + if state.is_replaced { 0 } else { self.increment_bytes() }
    }

    fn increment_bytes(&self) -> u64 {
        let began = self.increment_began_at.load(Ordering::Relaxed);
        self.bytes.load(Ordering::Relaxed).wrapping_sub(began)
    }
}

/// Rewriting the log.
impl Aof {
    /// Asks for a rewrite; `is_blocked` says whether a running snapshot blocks it.
    pub fn ask_rewrite(&self, is_blocked: bool) -> Asked {
        let mut state = self.state.lock();
        match state.rewrite {
            Rewrite::Due | Rewrite::Since(_) => return Asked::InProgress,
            Rewrite::Not | Rewrite::Scheduled => {}
        }
        // As in Redis: the cause of earlier failures may have been repaired.
        (state.failures, state.last_failed) = (0, None);
        let (rewrite, asked) = match is_blocked {
            true => (Rewrite::Scheduled, Asked::Scheduled),
            false => (Rewrite::Due, Asked::Begins),
        };
        state.rewrite = rewrite;
        asked
    }

    /// Checks whether a rewrite is due: one is wanted, or the log is larger than `min_bytes` and has grown by
    /// `percentage` since the last rewrite (`auto-aof-rewrite-percentage`, `auto-aof-rewrite-min-size`).
    pub fn look(&self, percentage: u64, min_bytes: u64) -> bool {
        let mut state = self.state.lock();
        match state.rewrite {
            Rewrite::Due | Rewrite::Scheduled => return true,
            Rewrite::Since(_) => return false,
            Rewrite::Not => {}
        }
        let delay = state.delay(self.has_gap());
        let rests = state.last_failed.is_some_and(|failed| failed.elapsed() < delay);
        if rests || !self.is_on() {
            return false;
        }
        let bytes = self.size(&state);
        let growth = (bytes * 100 / state.base_bytes.max(1)).saturating_sub(100);
        let has_grown = percentage > 0 && bytes > min_bytes && growth >= percentage;
        if has_grown && self.is_whole() {
            tracing::info!("Starting automatic rewriting of AOF on {growth}% growth");
        }
        let has_to_be = !self.is_whole() || self.has_gap();
        if has_grown || has_to_be {
            state.rewrite = Rewrite::Due;
        }
        has_grown || has_to_be
    }

    /// Whether there is no log, and no rewrite is running or will be.
    pub fn is_at_rest(&self) -> bool {
        !self.is_on() && matches!(self.state.lock().rewrite, Rewrite::Not)
    }

    /// Whether a rewrite is running or due.
    pub fn is_rewriting(&self) -> bool {
        matches!(self.state.lock().rewrite, Rewrite::Due | Rewrite::Since(_))
    }

    /// Whether a rewrite must begin now.
    pub fn is_rewrite_due(&self) -> bool {
        matches!(self.state.lock().rewrite, Rewrite::Due | Rewrite::Scheduled)
    }

    /// Notes that the rewrite begins.
    pub fn rewrite_begins(&self) {
        let mut state = self.state.lock();
        state.rewrite = Rewrite::Since(Instant::now());
        state.rewrites += 1;
    }

    /// Notes how the rewrite ended.
    pub fn rewrite_ended(&self, rewritten: Rewritten) {
        let mut state = self.state.lock();
        let mut took = Duration::ZERO;
        if let Rewrite::Since(began) = state.rewrite {
            (took, state.rewrite) = (began.elapsed(), Rewrite::Not);
        }
        match rewritten {
            Rewritten::Well => {
                (state.failures, state.last_failed) = (0, None);
                state.last_rewrite = Some((took, true));
            }
            Rewritten::Failed => {
                (state.failures, state.last_failed) = (state.failures + 1, Some(Instant::now()));
                state.last_rewrite = Some((took, false));
                let delay = state.delay(self.has_gap());
                if delay > RETRY_DELAY {
                    tracing::warn!(
                        "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in \
                         {} minutes",
                        delay.as_secs() / 60
                    );
                }
            }
            // As in Redis: a rewrite that was given up says nothing about the next one.
            Rewritten::Abandoned => {}
        }
    }

    /// Begins to count anew (CONFIG RESETSTAT).
    pub fn reset_counts(&self) {
        self.delayed_syncs.store(0, Ordering::Relaxed);
    }

    /// The facts that INFO shows.
    pub fn report(&self) -> LogReport {
        let state = self.state.lock();
        LogReport {
            is_on: self.is_on(),
            rewrite: match state.rewrite {
                Rewrite::Due => Some(Duration::ZERO),
                Rewrite::Since(began) => Some(began.elapsed()),
                Rewrite::Not | Rewrite::Scheduled => None,
            },
            is_scheduled: match state.rewrite {
                Rewrite::Scheduled => true,
                // Its first base is still to be written: it begins with the next look, or after a rest.
                Rewrite::Not => self.is_on() && !self.is_whole(),
                Rewrite::Due | Rewrite::Since(_) => false,
            },
            last_rewrite: state.last_rewrite,
            rewrites: state.rewrites,
            failures: state.failures,
            is_well: !self.has_failed(),
            is_syncing: self.is_syncing.load(Ordering::Relaxed),
            delayed_syncs: self.delayed_syncs.load(Ordering::Relaxed),
            bytes: self.size(&state),
            base_bytes: state.base_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewrite_that_fails_again_and_again_is_tried_ever_more_rarely() {
        let minutes = |failures| delay_after(failures).as_secs() / 60;
        assert_eq!((1..=12).map(minutes).collect::<Vec<_>>(), [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!((minutes(u64::MAX), delay_after(2)), (60, RETRY_DELAY));
        let state = State { failures: 9, ..State::default() };
        assert_eq!((state.delay(false), state.delay(true)), (delay_after(9), RETRY_DELAY));
    }

    #[test]
    fn a_log_that_is_not_whole_is_being_written_or_will_be() {
        let aof = Aof::default();
        let is_ready = || {
            let report = aof.report();
            report.rewrite.is_none() && !report.is_scheduled
        };
        assert!(is_ready());
        aof.turn(true);
        aof.rewrite_begins();
        // The log is turned off and on, and the rewrite is given up.
        aof.turn(false);
        aof.turn(true);
        assert!(!is_ready());
        aof.rewrite_ended(Rewritten::Abandoned);
        assert!(!is_ready() && aof.report().rewrite.is_none());
        aof.rewrite_begins();
        aof.rewrite_ended(Rewritten::Failed);
        assert!(!is_ready() && !aof.look(0, 0), "it rests");
        aof.turn(false);
        assert!(is_ready());
        aof.turn(true);
        assert!(!is_ready() && aof.look(0, 0), "it has no reason to rest");
        aof.rewrite_begins();
        let place = AofPlace { root: "/".into(), directory: "/nosuch".into(), name: b"log".to_vec() };
        aof.rewritten(&place, Manifest::default(), 0, 0, aof.turns());
        aof.rewrite_ended(Rewritten::Well);
        assert!(is_ready());
    }

    #[test]
    fn one_that_is_given_up_is_no_failure() {
        let aof = Aof::default();
        aof.turn(true);
        for (rewritten, is_well, failures) in [
            (Rewritten::Failed, false, 1),
            (Rewritten::Abandoned, false, 1),
            (Rewritten::Failed, false, 2),
            (Rewritten::Well, true, 0),
            (Rewritten::Abandoned, true, 0),
        ] {
            aof.rewrite_begins();
            aof.rewrite_ended(rewritten);
            let report = aof.report();
            assert_eq!((report.last_rewrite.unwrap().1, report.failures), (is_well, failures));
            assert_eq!(aof.look(0, 0), failures == 0, "it rests after a failure");
            aof.state.lock().rewrite = Rewrite::Not;
        }
    }
}
