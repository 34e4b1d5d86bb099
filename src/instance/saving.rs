//! Saving and loading the data: when, where and in which form, as the parameters say.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::Instance;
use crate::clock;
use crate::config::{EVICTION_POLICIES, SANITIZED_PAYLOADS, UNKNOWN_TYPES};
use crate::keyspace::{Busy, Everything, Transaction, Use};
use crate::persistence::rdb::Form;
use crate::persistence::{
    Changes, Conflicts, Destination, Ended, Job, Loaded, Purpose, Reading, Running, SnapshotPlan, Target,
    load, tidy_up_after_the_dead, verify,
};
use crate::scripting::functions::Policy;

/// Why nothing was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSaved {
    /// A script has been running for too long.
    Busy,
    /// A snapshot is already running.
    InProgress,
    /// Saving failed; the log says why.
    Failed,
}

impl Instance {
    /// Begins a snapshot, unless one is running.
    pub fn begin_save(
        &self,
        tx: &mut Everything<&mut Transaction<'_>>,
        is_in_background: bool,
    ) -> Option<Job> {
        let plan = self.snapshot_plan(
            Purpose::Snapshot,
            Destination::File(self.snapshot_target()),
            true,
            is_in_background,
        );
        let job = self.persistence.begin_snapshot(tx, plan)?;
        self.warn_of_turned_clock("snapshot");
        Some(job)
    }

    /// How to write the data and the libraries of functions as they are now.
    pub(super) fn snapshot_plan(
        &self,
        purpose: Purpose,
        destination: Destination,
        is_rdb: bool,
        is_in_background: bool,
    ) -> SnapshotPlan {
        let policy = EVICTION_POLICIES[self.config.maxmemory_policy.get()];
        let use_kept = match policy.rsplit('-').next() {
            Some("lru") => Use::Idle,
            Some("lfu") => Use::Frequency,
            _ => Use::Omitted,
        };
        SnapshotPlan {
            purpose,
            destination,
            form: is_rdb.then(|| self.rdb_form()),
            use_kept,
            libraries: self.scripting.libraries().all().cloned().collect(),
            fencing: self.keyspace.fencing().last(),
            has_times: self.config.aof_timestamp_enabled.get(),
            is_in_background,
            now_s: clock::system_s(),
            taken_bytes: self.taken_bytes(),
        }
    }

    /// Writes a snapshot to its end, for a caller that holds nothing.
    pub fn write_snapshot(&self, job: Job) -> Ended {
        self.persistence.write(job, &mut self.keyspace.begin_walk(), clock::system_s)
    }

    /// Saves the data as they are now, and waits until they are saved. Clients go on meanwhile.
    pub fn save(&self) -> Result<(), NotSaved> {
        let job = self.begin_alone(false)?;
        match self.write_snapshot(job) {
            Ended::Saved => Ok(()),
            Ended::Failed | Ended::Abandoned => Err(NotSaved::Failed),
        }
    }

    /// Saves the data after all databases were emptied, if there are snapshot points: flushed data must not
    /// come back. If a snapshot is running in the background, it is either given up soon, or began after the
    /// flush. If something else is being written, a snapshot is due when that has ended.
    #[cold]
    pub fn save_flushed(&self) {
        const GLANCE: Duration = Duration::from_millis(1);
        if self.config.save_points().is_empty() {
            return;
        }
        self.hand_over();
        // A failure is logged; the snapshot stays due.
        while self.save() == Err(NotSaved::InProgress) && self.persistence.is_saving_in_background() {
            thread::sleep(GLANCE);
        }
    }

    /// Saves the data for a caller whose transaction holds everything. All clients wait.
    pub fn save_within(&self, tx: &mut Everything<&mut Transaction<'_>>) -> Result<(), NotSaved> {
        let job = self.begin_save(tx, false).ok_or(NotSaved::InProgress)?;
        match self.persistence.write(job, &mut tx.walk_mut(), clock::system_s) {
            Ended::Saved => Ok(()),
            Ended::Failed | Ended::Abandoned => Err(NotSaved::Failed),
        }
    }

    /// Does the saving that waits for the background thread.
    pub fn save_in_background(&self) {
        let job = match self.persistence.take_job() {
            Some(job) => Some(job),
            None if self.persistence.is_due() => self.begin_alone(true).ok(),
            None => None,
        };
        if let Some(job) = job {
            self.write_snapshot(job);
        }
        if self.persistence.aof.is_rewrite_due() && !self.persistence.is_saving() {
            self.rewrite_aof();
        }
    }

    fn begin_alone(&self, is_in_background: bool) -> Result<Job, NotSaved> {
        let mut tx = self.keyspace.begin_all(0).map_err(|Busy| NotSaved::Busy)?;
        self.begin_save(&mut tx.as_mut(), is_in_background).ok_or(NotSaved::InProgress)
    }

    /// Checks whether a snapshot, or a new base of the log, is due. Called at intervals.
    pub fn look_after_snapshots(&self) {
        self.look_after_aof();
        let points = self.config.save_points();
        let flushes = self.keyspace.flushes();
        self.persistence.look(&points, Instant::now(), || {
            Some(self.persistence.changes(self.keyspace.changes()?, flushes))
        });
    }

    /// Whether no snapshot is written or due, and no number of seconds makes one due.
    pub(super) fn snapshots_are_at_rest(&self) -> bool {
        let flushes = self.keyspace.flushes();
        self.persistence.is_at_rest(&self.config.save_points(), || {
            Some(self.persistence.changes(self.keyspace.changes()?, flushes))
        })
    }

    /// Whether commands that write are refused because the data could not be saved
    /// (`stop-writes-on-bgsave-error`).
    #[inline]
    pub fn refuses_writes(&self) -> bool {
        self.persistence.aof.has_failed() || self.persistence.has_failed() && self.is_to_refuse_writes()
    }

    #[cold]
    fn is_to_refuse_writes(&self) -> bool {
        self.config.stop_writes_on_bgsave_error.get() && !self.config.save_points().is_empty()
    }

    /// Loads the last snapshot, if there is one. Called before there are clients.
    pub fn load(&self) -> Result<(), String> {
        let (path, started) = (self.snapshot_target().path(), Instant::now());
        let fatal = |why: String| format!("Fatal error loading the DB {}: {why}. Exiting.", path.display());
        let mut libraries = Vec::new();
        let mut tx = self.keyspace.begin_all(0).map_err(|Busy| fatal("a script runs".to_owned()))?;
        let (reading, refused) = (self.reading(), Conflicts::Refused);
        let running = self.begin_loading(bytes_of(&path));
        let loaded = load(&path, reading, refused, &running, &mut tx.as_mut(), |code| {
            libraries.push(code.to_vec());
        });
        drop(running);
        let Some(loaded) = loaded.map_err(fatal)? else { return Ok(()) };
        self.load_libraries(&libraries).map_err(fatal)?;
        self.note_loaded(loaded, &tx.as_mut());
        tracing::info!("DB loaded from disk: {:.3} seconds", started.elapsed().as_secs_f64());
        Ok(())
    }

    /// The options of the RDB format, as the parameters say.
    pub(super) fn rdb_form(&self) -> Form {
        Form { compresses: self.config.rdbcompression.get(), has_checksum: self.config.rdbchecksum.get() }
    }

    /// How files are read, as the parameters say.
    pub(super) fn reading(&self) -> Reading {
        Reading {
            verifies: self.config.rdbchecksum.get() && !self.keyspace.skips_checksums(),
            sanitizes: SANITIZED_PAYLOADS[self.config.sanitize_dump_payload.get()] == "yes",
            skips_foreign: UNKNOWN_TYPES[self.config.unknown_types.get()] == "skip",
        }
    }

    /// Begins to load files of so many bytes together.
    pub(super) fn begin_loading(&self, bytes: u64) -> Running<'_> {
        self.persistence.loading.begin(bytes, clock::system_s(), self.config.key_load_delay.get())
    }

    pub(super) fn load_libraries(&self, codes: &[Vec<u8>]) -> Result<(), String> {
        if codes.is_empty() {
            return Ok(());
        }
        one_line(self.scripting.load_libraries(codes))
    }

    /// Replaces the data and libraries by those of the last snapshot, or adds the snapshot to them (DEBUG
    /// RELOAD). The caller has the turn of scripts.
    ///
    /// # Errors
    ///
    /// If there is no readable snapshot, or if one of its keys or libraries is already there. In the second
    /// case the keys before it were loaded.
    pub fn reload(
        &self,
        tx: &mut Everything<&mut Transaction<'_>>,
        flushes: bool,
        conflicts: Conflicts,
    ) -> Result<(), String> {
        let (path, reading) = (self.snapshot_target().path(), self.reading());
        if !verify(&path, reading)? {
            return Err(format!("there is no {}", path.display()));
        }
        if flushes {
            tx.flush_all();
        }
        let running = self.begin_loading(bytes_of(&path));
        let mut libraries = Vec::new();
        let loaded = load(&path, reading, conflicts, &running, tx, |code| libraries.push(code.to_vec()))?;
        self.note_loaded(loaded.unwrap_or_default(), tx);
        let policy = match conflicts {
            _ if flushes => Policy::Flush,
            Conflicts::Replaced => Policy::Replace,
            Conflicts::Refused => Policy::Append,
        };
        if libraries.is_empty() && !flushes {
            return Ok(());
        }
        one_line(self.scripting.restore_libraries(libraries.into_iter().map(Ok), policy))
    }

    /// The number of changes of the data.
    pub fn changes(&self, tx: &Everything<&mut Transaction<'_>>) -> Changes {
        self.persistence.changes(tx.changes(), self.keyspace.flushes())
    }

    /// Deletes the temporary files of servers that ended while they wrote them.
    pub fn tidy_up_files(&self) {
        tidy_up_after_the_dead(&self.config.directory());
    }

    /// The file of snapshots.
    pub fn snapshot_target(&self) -> Target {
        let name = self.config.dbfilename.get();
        Target::new(self.config.directory(), OsStr::from_bytes(&name).into(), self.persistence.writer)
    }

    pub(super) fn note_loaded(&self, loaded: Loaded, tx: &Everything<&mut Transaction<'_>>) {
        self.keyspace.fencing().go_beyond(loaded.fencing);
        self.persistence.note_loaded(loaded, self.changes(tx));
    }
}

/// The result of loading libraries. A script chooses the text of its error, which must become one line.
fn one_line(loaded: Result<(), Vec<u8>>) -> Result<(), String> {
    loaded.map_err(|why| String::from_utf8_lossy(&why).replace(|c: char| c.is_control(), " "))
}

/// The length of a file; 0 if there is none, or it has none.
fn bytes_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
