//! Logging changes: whether, where, and when the log is rewritten, as the parameters say.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::Instance;
use crate::config::APPEND_FSYNC;
use crate::keyspace::{Busy, Own};
use crate::persistence::aof::{AofPlace, Asked, Manifest, Rewritten, Sync};
use crate::persistence::{Destination, Ended, Purpose, Target};

/// Writing and rewriting.
impl Instance {
    /// Writes the log, until [`stop_log_writer`](Self::stop_log_writer).
    pub fn write_aof(&self) {
        self.persistence.aof.write(&self.followers.journal, &|| self.aof_sync());
    }

    /// Ends the thread that writes the log. Records that it has not written yet are lost.
    pub fn stop_log_writer(&self) {
        self.persistence.aof.stop_writer();
        self.followers.journal.call();
    }

    /// Whether a client may get a reply that depends on the changes so far.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.persistence.aof.is_settled(self.followers.journal.end())
    }

    /// How far the log has come, written or not: a reply may depend on changes up to there.
    pub fn logged(&self) -> u64 {
        self.followers.journal.end()
    }

    /// Whether replies wait for the disk, so that a client's thread can do nothing for them.
    pub fn waits_for_sync(&self) -> bool {
        self.persistence.aof.waits_for_sync()
    }

    /// Writes the log up to here, unless that is for another thread. Returns whether a client may get a reply
    /// that depends on the changes up to `logged`.
    pub fn write_log(&self, logged: u64) -> bool {
        self.persistence.aof.write_up_to(logged, &self.followers.journal, &|| self.aof_sync())
    }

    /// Waits until a client that has logged `own` may get such a reply, and has another thread write. Returns
    /// whether it may.
    pub async fn settled(&self, logged: u64, own: Own) -> bool {
        if !self.waits_for_sync() {
            self.followers.journal.call();
        }
        self.persistence.aof.settled(logged, own.end).await
    }

    /// Whether the changes that the journal has up to `own` are on the disk, and would be loaded from there.
    pub fn is_durable(&self, own: u64) -> bool {
        self.persistence.aof.is_durable(own)
    }

    /// Waits until they are.
    pub async fn durable(&self, own: u64) {
        self.followers.journal.call();
        self.persistence.aof.durable(own).await;
    }

    /// Waits until all changes are on the disk, or cannot be written. Returns whether they are; without a log
    /// there is nothing to wait for.
    pub async fn finish_aof(&self) -> bool {
        let (aof, journal) = (&self.persistence.aof, &self.followers.journal);
        aof.finish(journal.end(), || journal.call()).await;
        !aof.is_on() || !aof.has_failed()
    }

    /// Bytes of changes that are logged but not durable yet.
    pub fn undurable_bytes(&self) -> u64 {
        self.persistence.aof.undurable_bytes(self.followers.journal.end())
    }

    fn aof_sync(&self) -> Sync {
        match APPEND_FSYNC[self.config.appendfsync.get()] {
            "always" => Sync::Always,
            "no" => Sync::Never,
            _ => Sync::EverySecond,
        }
    }

    /// Asks for a rewrite of the log, if the log can be written where it is. `is_grouped` says whether a
    /// command of an EXEC or a script asks: then the rewrite waits for the end of that group.
    ///
    /// # Errors
    ///
    /// With one line for people. The rewrite has failed then.
    pub fn ask_rewrite(&self, is_grouped: bool) -> Result<Asked, String> {
        let aof = &self.persistence.aof;
        if !aof.is_rewriting() {
            let probed = aof.files(self.aof_place()).and_then(|(place, _)| self.probe(&place));
            probed.inspect_err(|_| aof.rewrite_ended(Rewritten::Failed))?;
        }
        Ok(self.begin_rewrite(is_grouped))
    }

    fn begin_rewrite(&self, is_grouped: bool) -> Asked {
        let asked = self.persistence.aof.ask_rewrite(self.persistence.is_saving() || is_grouped);
        if asked != Asked::InProgress {
            self.persistence.call();
        }
        asked
    }

    /// Checks whether the log could be written to its place.
    pub fn probe_aof(&self) -> Result<(), String> {
        self.probe(&self.aof_place())
    }

    fn probe(&self, place: &AofPlace) -> Result<(), String> {
        place.probe().and_then(|()| self.persistence.aof.lock(place))
    }

    /// Begins or ends the log, if `appendonly` has changed.
    pub(super) fn configure_aof(&self) {
        let (aof, is_on) = (&self.persistence.aof, self.config.appendonly.get());
        if aof.turn(is_on) {
            if is_on {
                self.begin_rewrite(false);
            } else {
                self.end_aof();
            }
        }
        // The log's sync policy may have changed.
        aof.tighten(self.aof_sync());
        self.followers.journal.call();
    }

    fn end_aof(&self) {
        self.keyspace.stop_journal();
        if self.persistence.is_rewriting() {
            self.persistence.abandon();
        }
    }

    /// Checks whether a rewrite of the log is due.
    pub(super) fn look_after_aof(&self) {
        let config = &self.config;
        let (percentage, min_bytes) =
            (config.auto_aof_rewrite_percentage.size(), config.auto_aof_rewrite_min_size.size());
        if self.persistence.aof.look(percentage as u64, min_bytes as u64) {
            self.persistence.call();
        }
    }

    /// Writes a new base of the log. The log goes on from it.
    pub fn rewrite_aof(&self) {
        self.persistence.aof.rewrite_begins();
        let aof = &self.persistence.aof;
        let turns = aof.turns();
        let rewritten = match self.try_rewrite() {
            Ok(Rewritten::Well) => {
                tracing::info!("Background AOF rewrite finished successfully");
                Rewritten::Well
            }
            Ok(rewritten) => {
                tracing::info!("Background AOF rewrite given up: it is no longer wanted");
                rewritten
            }
            Err(why) if aof.turns() != turns => {
                tracing::info!("Background AOF rewrite given up: {why}");
                Rewritten::Abandoned
            }
            Err(why) => {
                tracing::warn!("Background AOF rewrite terminated with error: {why}");
                Rewritten::Failed
            }
        };
        aof.rewrite_ended(rewritten);
        aof.unlock_if_off();
    }

    /// Writes a new base, and returns how that ended.
    pub(crate) fn try_rewrite(&self) -> Result<Rewritten, String> {
        let aof = &self.persistence.aof;
        let turns = aof.turns();
        let (place, manifest) = aof.files(self.aof_place())?;
        place.make()?;
        aof.lock(&place)?;
        if !place.manifest().exists() {
            // The list of files comes first: a server that stops during its first rewrite must not leave
            // files without a list.
            Manifest::default().persist(&place)?;
        }
        let increment = aof.is_on().then(|| manifest.next_increment(&place));
        let mut file = None;
        if let Some(part) = &increment {
            tracing::info!("Creating AOF incr file {} on background rewrite", part.name.escape_ascii());
            file = Some(place.create(part)?);
        }
        // Changes after the cut count from their first byte on.
        let mut current = manifest.clone();
        if let Some(part) = increment.iter().find(|_| aof.is_whole()) {
            current.increments.push(part.clone());
            current.persist(&place)?;
            aof.set_manifest(current.clone());
        }
        let is_rdb = self.config.aof_use_rdb_preamble.get();
        let base = current.next_base(&place, is_rdb);
        let name = OsStr::from_bytes(&base.name).to_owned();
        let target = Target::new(place.directory.clone(), name, self.persistence.writer);
        let (job, cut) = {
            let _turn = self.scripting.wait_for_turn().ok_or("a script runs")?;
            let mut tx = self.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
            let plan = self.snapshot_plan(Purpose::Base, Destination::File(target.clone()), is_rdb, true);
            let job = self
                .persistence
                .begin_snapshot(&mut tx.as_mut(), plan)
                .ok_or("a snapshot is being written")?;
            self.warn_of_turned_clock("base of the log");
            if let Some(file) = file {
                aof.go_on_in(file, 0);
                tx.cut_journal();
            }
            (job, self.followers.journal.end())
        };
        if increment.is_some() && !self.config.appendonly.get() {
            self.end_aof();
        }
        tracing::info!("Background append only file rewriting started");
        match self.write_snapshot(job) {
            Ended::Saved => tracing::info!("Background AOF rewrite terminated with success"),
            Ended::Failed => return Err("the base could not be written".to_owned()),
            Ended::Abandoned => return Ok(Rewritten::Abandoned),
        }
        if aof.turns() != turns {
            return Err("the log was turned off meanwhile".to_owned());
        }
        let bytes = fs::metadata(target.path()).map_or(0, |metadata| metadata.len());
        let number = base.number;
        let mut rewritten = current.replaced(base, increment);
        rewritten.persist(&place).inspect_err(|_| {
            // The next base must not take the place of this one: other increments belong to it.
            current.doubtful_base = number;
            aof.set_manifest(current);
        })?;
        aof.rewritten(&place, rewritten.clone(), bytes, cut, turns);
        aof.tighten(self.aof_sync());
        self.followers.journal.call();
        {
            let _free = aof.keep_files();
            rewritten.delete_history(&place);
        }
        aof.set_manifest(rewritten);
        Ok(Rewritten::Well)
    }

    pub(super) fn aof_place(&self) -> AofPlace {
        let config = &self.config;
        let root = config.directory();
        let directory = root.join(OsStr::from_bytes(&config.appenddirname.get()));
        AofPlace { root, directory, name: config.appendfilename.get().to_vec() }
    }
}
