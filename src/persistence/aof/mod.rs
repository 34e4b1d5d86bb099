//! What outlives the process change by change: a log of what was done, in the layout of Redis 7.
//!
//! The journal of the keyspace has what is to be written, [`writer`] brings it to the disk, where [`room`] is
//! kept for it, [`manifest`] says which files there are, [`reader`] reads them when the server starts. Now
//! and then the log is rewritten: a new base is the state of one moment, at which a new increment begins.
//! Until the list of files names the new base, the old one and all increments since count.
//!
//! With `appendfsync always` nobody is answered before what was done is on the disk ([`Aof::settled`]).

mod manifest;
mod reader;
mod room;
mod writer;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

pub use manifest::{Manifest, Part, Place};
pub use reader::{AofReader, Damage, hidden_request};
use writer::Output;

use super::RETRY_DELAY;
use crate::files::reason;

/// When what is written has to be on the disk (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Before anybody is told that it was done.
    Always,
    /// Within a second.
    EverySecond,
    /// When the system pleases.
    Never,
}

/// A log, or none.
#[derive(Debug)]
pub struct Aof {
    state: Mutex<State>,
    /// Whether there is to be one (`appendonly`).
    is_on: AtomicBool,
    /// Whether the files that the list names make the data: not until the first base is there.
    is_whole: AtomicBool,
    /// Whether the last attempt to write failed.
    has_failed: AtomicBool,
    /// Replies may be given that depend on what the journal has up to here…
    upto: AtomicU64,
    /// … and it lasts up to here.
    durable: AtomicU64,
    /// The files have all records up to this offset of the journal, durable or not.
    written: AtomicU64,
    /// Called whenever one of the two has changed, or writing has failed.
    progress: watch::Sender<()>,
    /// The server ends: what is written is brought to the disk at once…
    is_ending: AtomicBool,
    /// … and the file takes no more room than it needs.
    has_ended: AtomicBool,
    /// Whether the thread that writes is to end.
    is_stopped: AtomicBool,
    /// What was written may be lost: only a new base has it.
    needs_rewrite: AtomicBool,
    /// Bytes written by this process.
    bytes: AtomicU64,
    /// How many of them when the current increment began, less what was in it.
    increment_began_at: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    place: Option<Place>,
    manifest: Manifest,
    /// Where to go on after each of the journal's cuts that the writer has not come to yet.
    next: VecDeque<Output>,
    failure: String,
    rewrite: Rewrite,
    last_rewrite: Option<(Duration, bool)>,
    last_failed: Option<Instant>,
    failures: u64,
    rewrites: u64,
    /// How often the log was turned on or off.
    turns: u64,
    /// Bytes of the files before the current increment, of which the base has so many.
    older_bytes: u64,
    /// A base stands for the current increment, too: a rewrite has ended, and the writer has not come yet to
    /// the cut at which it began.
    is_replaced: bool,
    /// How large the log was after it was last rewritten.
    base_bytes: u64,
    /// Whether the writer has a file open.
    is_writing: bool,
    /// The directory that no other server may log in, and its lock.
    lock: Option<(PathBuf, Option<File>)>,
}

/// Whether a log is being rewritten.
#[derive(Clone, Copy, Debug, Default)]
enum Rewrite {
    #[default]
    Not,
    /// Once no snapshot is in the way.
    Scheduled,
    /// As soon as possible.
    Due,
    Since(Instant),
}

/// How a rewrite ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// There is a new base.
    Well,
    /// It failed.
    Failed,
    /// It was not wanted any more.
    Abandoned,
}

/// How long the log is not rewritten by itself after so many failures, one after the other. Redis:
/// `AOF_REWRITE_LIMITE_THRESHOLD` and `AOF_REWRITE_LIMITE_MAX_MINUTES`.
fn delay_after(failures: u64) -> Duration {
    const THRESHOLD: u64 = 3;
    const MINUTES_MAX: u64 = 60;
    match failures.checked_sub(THRESHOLD) {
        None => RETRY_DELAY,
        Some(more) => Duration::from_secs(60 * (1 << more.min(6)).min(MINUTES_MAX)),
    }
}

/// What came of asking for a log to be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It begins.
    Begins,
    /// It begins when no snapshot is in the way.
    Scheduled,
    /// It is being rewritten.
    InProgress,
}

/// What INFO tells.
#[derive(Clone, Copy, Debug)]
pub struct LogReport {
    /// Whether there is a log.
    pub is_on: bool,
    /// Whether it is being rewritten, and for how long.
    pub rewrite: Option<Duration>,
    /// Whether it will be.
    pub is_scheduled: bool,
    /// How long the last time took, and whether it succeeded.
    pub last_rewrite: Option<(Duration, bool)>,
    /// How often it was begun.
    pub rewrites: u64,
    /// How often it failed since it last succeeded.
    pub failures: u64,
    /// Whether it can be written.
    pub is_well: bool,
    /// Bytes of all its files.
    pub bytes: u64,
    /// The same after it was last rewritten.
    pub base_bytes: u64,
}

impl State {
    /// Whether the log is not rewritten by itself, because that has failed.
    fn is_resting(&self) -> bool {
        self.last_failed.is_some_and(|failed| failed.elapsed() < delay_after(self.failures))
    }
}

impl Default for Aof {
    fn default() -> Aof {
        Aof {
            state: Mutex::default(),
            is_on: AtomicBool::new(false),
            is_whole: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            upto: AtomicU64::new(u64::MAX),
            durable: AtomicU64::new(0),
            written: AtomicU64::new(0),
            progress: watch::Sender::new(()),
            is_ending: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            needs_rewrite: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            increment_began_at: AtomicU64::new(0),
        }
    }
}

/// Whether it lasts.
impl Aof {
    /// Whether a reply may be given that depends on what the journal has up to `end`.
    #[inline]
    pub fn is_settled(&self, end: u64) -> bool {
        end <= self.upto.load(Ordering::Acquire)
    }

    /// Waits until it may be given; answers whether it may. While the disk fails only those may be answered
    /// whose own changes, which are before `own`, do last.
    pub async fn settled(&self, end: u64, own: u64) -> bool {
        let mut progress = self.progress.subscribe();
        loop {
            if self.is_settled(end) {
                return true;
            }
            if self.has_failed() {
                return self.is_settled(own);
            }
            // Its sender is here.
            let _ = progress.changed().await;
        }
    }

    /// Whether what the journal has up to `end` is on the disk, and would be loaded from there.
    pub fn is_durable(&self, end: u64) -> bool {
        self.is_on() && self.is_whole() && end <= self.durable.load(Ordering::Acquire)
    }

    /// Waits until it is.
    pub async fn durable(&self, end: u64) {
        let mut progress = self.progress.subscribe();
        while !self.is_durable(end) {
            // Its sender is here.
            let _ = progress.changed().await;
        }
    }

    /// Waits until what the journal has up to `end` is on the disk, or cannot be brought there, and the files
    /// are as they are to be left. `call` wakes the thread that writes. May be called again, once there is
    /// more to be written.
    pub async fn finish(&self, end: u64, call: impl Fn()) {
        let mut progress = self.progress.subscribe();
        self.has_ended.store(false, Ordering::Release);
        self.is_ending.store(true, Ordering::Release);
        call();
        let is_over =
            || self.has_ended.load(Ordering::Acquire) && self.durable.load(Ordering::Acquire) >= end;
        while self.is_on() && !is_over() && !self.has_failed() {
            let _ = progress.changed().await;
        }
    }

    /// Has the thread that writes end, as soon as it is called.
    pub fn stop_writer(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Says that the files are as they are to be left.
    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.progress.send_replace(());
    }

    /// Whether the files have all records up to this offset of the journal, durable or not.
    pub fn has_written(&self, end: u64) -> bool {
        end <= self.written.load(Ordering::Acquire)
    }

    /// Says how far it has come; how far replies may be given unless that is as far as it lasts.
    fn publish(&self, is_written: bool, unless_always: u64, durable: u64, sync: &dyn Fn() -> Sync) {
        // Asked under the lock: whoever changes it comes after this, or is seen here.
        let state = self.state.lock();
        let upto =
            if is_written && self.is_whole() && sync() == Sync::Always { durable } else { unless_always };
        let before = self.upto.swap(upto, Ordering::AcqRel);
        let has_come_on = self.durable.swap(durable, Ordering::AcqRel) != durable;
        drop(state);
        if has_come_on || before != upto {
            self.progress.send_replace(());
        }
    }

    /// Lets nobody be answered any more before what was done is on the disk, if it is to be from now on.
    pub fn tighten(&self, sync: Sync) {
        let _state = self.state.lock();
        if sync == Sync::Always && self.is_on() && self.is_whole() {
            self.upto.store(self.durable.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// Whether the last attempt to write failed.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Why, in the words of the system.
    pub fn failure(&self) -> String {
        self.state.lock().failure.clone()
    }

    fn fail(&self, why: String) {
        self.state.lock().failure = why;
        self.has_failed.store(true, Ordering::Release);
        self.progress.send_replace(());
    }

    fn recover(&self) {
        tracing::warn!("AOF write error looks solved, Keyfast can write again.");
        self.has_failed.store(false, Ordering::Release);
    }
}

/// Its files.
impl Aof {
    /// Whether there is to be a log.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Keeps other servers from logging in a directory, until the log is off.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn lock(&self, place: &Place) -> Result<(), String> {
        let mut state = self.state.lock();
        let is_held = state.lock.as_ref().is_some_and(|(directory, _)| *directory == place.directory);
        if !is_held {
            state.lock = Some((place.directory.clone(), place.lock()?));
        }
        Ok(())
    }

    /// Lets other servers log there, if this one does not, and has written all that it was to write.
    pub fn unlock_if_off(&self) {
        let mut state = self.state.lock();
        if !self.is_on() && !state.is_writing && state.next.is_empty() {
            state.lock = None;
        }
    }

    /// Says that the writer has closed its file.
    fn note_closed(&self) {
        self.state.lock().is_writing = false;
        self.unlock_if_off();
    }

    /// Waits until there is to be one.
    pub async fn turned_on(&self) {
        let mut progress = self.progress.subscribe();
        while !self.is_on() {
            let _ = progress.changed().await;
        }
    }

    /// Says whether there is to be one; answers whether that is new. At first it is not whole.
    pub fn turn(&self, is_on: bool) -> bool {
        let mut state = self.state.lock();
        let is_new = self.is_on.swap(is_on, Ordering::AcqRel) != is_on;
        if is_new {
            state.turns += 1;
            self.is_whole.store(false, Ordering::Release);
            self.progress.send_replace(());
        }
        is_new
    }

    /// How often the log was turned on or off.
    pub fn turns(&self) -> u64 {
        self.state.lock().turns
    }

    /// Whether the files make the data, so that the next ones go on from them.
    pub fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Says that the files that a list names, of so many bytes together, of which the base has so many, make
    /// the data.
    pub fn found(&self, place: &Place, manifest: Manifest, older_bytes: u64, base_bytes: u64) {
        let mut state = self.state.lock();
        state.place = Some(place.clone());
        state.manifest = manifest;
        (state.older_bytes, state.base_bytes) = (older_bytes, base_bytes);
        self.is_whole.store(true, Ordering::Release);
    }

    /// Lets nobody be answered before the writer has begun its work.
    pub fn expect_writer(&self) {
        self.upto.store(0, Ordering::Release);
    }

    /// The list of the files, and where they are: `place`, unless a log that is being written is elsewhere.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn files(&self, place: Place) -> Result<(Place, Manifest), String> {
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

    /// Lets the log go on, after the journal's next cut, in a file of so many bytes. That cut must follow.
    pub fn go_on_in(&self, file: File, length: u64) {
        self.state.lock().next.push_back(Output::new(file, length));
    }

    /// The same for an increment that is there; without one, a new one.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn go_on(&self, place: &Place) -> Result<(), String> {
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

    /// Says that the list is another one now.
    pub fn set_manifest(&self, manifest: Manifest) {
        self.state.lock().manifest = manifest;
    }

    /// Says that the log was rewritten: a base of so many bytes stands for all before the current increment.
    /// If the log was turned on or off since there were so many `turns`, that means nothing any more.
    pub fn rewritten(&self, place: &Place, manifest: Manifest, base_bytes: u64, turns: u64) {
        let mut state = self.state.lock();
        if state.turns != turns {
            return;
        }
        state.place = Some(place.clone());
        state.manifest = manifest;
        state.older_bytes = base_bytes;
        state.is_replaced = !state.next.is_empty();
        let increment_bytes = if state.is_replaced { 0 } else { self.increment_bytes() };
        state.base_bytes = base_bytes + increment_bytes;
        if self.is_on() {
            self.is_whole.store(true, Ordering::Release);
        }
    }

    /// Bytes of the files that make the data.
    fn size(&self, state: &State) -> u64 {
        state.older_bytes + if state.is_replaced { 0 } else { self.increment_bytes() }
    }

    fn increment_bytes(&self) -> u64 {
        let began = self.increment_began_at.load(Ordering::Relaxed);
        self.bytes.load(Ordering::Relaxed).wrapping_sub(began)
    }
}

/// Rewriting it.
impl Aof {
    /// Asks for it; `is_blocked` says whether a snapshot is in the way.
    pub fn ask_rewrite(&self, is_blocked: bool) -> Asked {
        let mut state = self.state.lock();
        match state.rewrite {
            Rewrite::Due | Rewrite::Since(_) => return Asked::InProgress,
            Rewrite::Not | Rewrite::Scheduled => {}
        }
        // As in Redis: what was wrong may have been repaired.
        (state.failures, state.last_failed) = (0, None);
        let (rewrite, asked) = match is_blocked {
            true => (Rewrite::Scheduled, Asked::Scheduled),
            false => (Rewrite::Due, Asked::Begins),
        };
        state.rewrite = rewrite;
        asked
    }

    /// Looks whether the log is to be rewritten, since it has grown by so many percent beyond so many bytes
    /// (`auto-aof-rewrite-percentage`, `auto-aof-rewrite-min-size`), or has to be.
    pub fn look(&self, percentage: u64, min_bytes: u64) -> bool {
        let mut state = self.state.lock();
        match state.rewrite {
            Rewrite::Due | Rewrite::Scheduled => return true,
            Rewrite::Since(_) => return false,
            Rewrite::Not => {}
        }
        if state.is_resting() || !self.is_on() {
            return false;
        }
        let bytes = self.size(&state);
        let growth = (bytes * 100 / state.base_bytes.max(1)).saturating_sub(100);
        let has_grown = percentage > 0 && bytes > min_bytes && growth >= percentage;
        if has_grown && self.is_whole() {
            tracing::info!("Starting automatic rewriting of AOF on {growth}% growth");
        }
        let has_to_be = !self.is_whole() || self.needs_rewrite.load(Ordering::Relaxed);
        if has_grown || has_to_be {
            state.rewrite = Rewrite::Due;
        }
        has_grown || has_to_be
    }

    /// Whether it is being rewritten, or about to be.
    pub fn is_rewriting(&self) -> bool {
        matches!(self.state.lock().rewrite, Rewrite::Due | Rewrite::Since(_))
    }

    /// Whether it is to begin.
    pub fn is_rewrite_due(&self) -> bool {
        matches!(self.state.lock().rewrite, Rewrite::Due | Rewrite::Scheduled)
    }

    /// Says that it begins.
    pub fn rewrite_begins(&self) {
        let mut state = self.state.lock();
        state.rewrite = Rewrite::Since(Instant::now());
        state.rewrites += 1;
    }

    /// Says that it is over.
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
                self.needs_rewrite.store(false, Ordering::Relaxed);
            }
            Rewritten::Failed => {
                (state.failures, state.last_failed) = (state.failures + 1, Some(Instant::now()));
                state.last_rewrite = Some((took, false));
                let delay = delay_after(state.failures);
                if delay > RETRY_DELAY {
                    tracing::warn!(
                        "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in \
                         {} minutes",
                        delay.as_secs() / 60
                    );
                }
            }
            // As in Redis: that it was not wanted any more says nothing of how well the next one will go.
            Rewritten::Abandoned => {}
        }
    }

    /// What INFO tells.
    pub fn report(&self) -> LogReport {
        let state = self.state.lock();
        LogReport {
            is_on: self.is_on(),
            rewrite: match state.rewrite {
                Rewrite::Due => Some(Duration::ZERO),
                Rewrite::Since(began) => Some(began.elapsed()),
                Rewrite::Not | Rewrite::Scheduled => None,
            },
            is_scheduled: matches!(state.rewrite, Rewrite::Scheduled),
            last_rewrite: state.last_rewrite,
            rewrites: state.rewrites,
            failures: state.failures,
            is_well: !self.has_failed(),
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
