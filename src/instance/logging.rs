//! Logging what is done: whether, where, and when the log is rewritten, as the parameters say.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use super::Instance;
use crate::config::APPEND_FSYNC;
use crate::files::reason;
use crate::keyspace::{Busy, Transaction};
use crate::persistence::log::{Asked, Damage, LogReader, Manifest, Part, Place, Sync};
use crate::persistence::rdb::is_snapshot;
use crate::persistence::{Ended, Loaded, Purpose, Target, load_from};
use crate::resp::OwnedRequest;

/// Bytes of a log that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Does a request of a log again, on the transaction.
pub type Again<'a> = dyn FnMut(&mut Transaction<'_>, &OwnedRequest) -> Result<(), String> + 'a;

/// Writing and rewriting.
impl Instance {
    /// Writes the log, for ever.
    pub fn write_log(&self) {
        self.persistence.log.write(self.keyspace.journal(), &|| self.log_sync());
    }

    /// Whether a reply may be given that depends on what was done so far.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.persistence.log.is_settled(self.keyspace.journal().end())
    }

    /// Waits until it may be given, to a client whose own changes are in the journal up to `own`; answers
    /// whether it may.
    pub async fn settled(&self, own: u64) -> bool {
        self.persistence.log.settled(self.keyspace.journal().end(), own).await
    }

    /// Waits until all that was done is on the disk, or cannot be brought there.
    pub async fn finish_log(&self) {
        let journal = self.keyspace.journal();
        if self.persistence.log.is_on() {
            tracing::info!("Calling fsync() on the AOF file.");
            self.persistence.log.finish(journal.end(), || journal.call()).await;
        }
    }

    fn log_sync(&self) -> Sync {
        match APPEND_FSYNC[self.config.appendfsync.get()] {
            "always" => Sync::Always,
            "no" => Sync::Never,
            _ => Sync::EverySecond,
        }
    }

    /// Asks for the log to be rewritten.
    pub fn ask_rewrite(&self) -> Asked {
        let asked = self.persistence.log.ask_rewrite(self.persistence.is_saving());
        if asked != Asked::InProgress {
            self.persistence.call();
        }
        asked
    }

    /// Looks whether there could be a log where it would be.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn probe_log(&self) -> Result<(), String> {
        self.log_place().probe()
    }

    /// Begins or ends the log, if that has changed.
    pub(super) fn configure_log(&self) {
        let (log, is_on) = (&self.persistence.log, self.config.appendonly.get());
        if log.turn(is_on) {
            if is_on {
                self.ask_rewrite();
            } else {
                self.end_log();
            }
        }
        // How soon it has to be on the disk may have changed.
        log.tighten(self.log_sync());
        self.keyspace.journal().call();
    }

    fn end_log(&self) {
        self.keyspace.stop_journal();
        if self.persistence.is_rewriting() {
            self.persistence.abandon();
        }
    }

    /// Looks whether the log is to be rewritten.
    pub(super) fn look_after_log(&self) {
        let config = &self.config;
        let (percentage, min_bytes) =
            (config.auto_aof_rewrite_percentage.size(), config.auto_aof_rewrite_min_size.size());
        if self.persistence.log.look(percentage as u64, min_bytes as u64) {
            self.persistence.call();
        }
    }

    /// Writes a new base, from which the log goes on.
    pub fn rewrite_log(&self) {
        self.persistence.log.rewrite_begins();
        let rewritten = self.try_rewrite();
        match &rewritten {
            Ok(()) => tracing::info!("Background AOF rewrite finished successfully"),
            Err(why) => tracing::warn!("Background AOF rewrite terminated with error: {why}"),
        }
        self.persistence.log.rewrite_ended(rewritten.is_ok());
    }

    fn try_rewrite(&self) -> Result<(), String> {
        let log = &self.persistence.log;
        let turns = log.turns();
        let (place, manifest) = log.files(self.log_place())?;
        place.make()?;
        let increment = log.is_on().then(|| manifest.next_increment(&place));
        let mut file = None;
        if let Some(part) = &increment {
            tracing::info!("Creating AOF incr file {} on background rewrite", part.name.escape_ascii());
            file = Some(place.create(part)?);
        }
        // What is done after the cut counts from its first byte on.
        let mut current = manifest.clone();
        if let Some(part) = increment.iter().find(|_| log.is_whole()) {
            current.increments.push(part.clone());
            current.persist(&place)?;
            log.set_manifest(current.clone());
        }
        let is_rdb = self.config.aof_use_rdb_preamble.get();
        let base = current.next_base(&place, is_rdb);
        let name = OsStr::from_bytes(&base.name).to_owned();
        let target = Target::new(place.directory.clone(), name);
        let job = {
            let _turn = self.scripting.take_turn().ok_or("a script runs")?;
            let mut tx = self.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
            let plan = self.plan(Purpose::Base, target.clone(), is_rdb, true);
            let job = self.persistence.begin(&mut tx, plan).ok_or("a snapshot is being written")?;
            if let Some(file) = file {
                log.go_on_in(file, 0);
                tx.cut_journal();
            }
            job
        };
        if increment.is_some() && !self.config.appendonly.get() {
            self.end_log();
        }
        tracing::info!("Background append only file rewriting started");
        match self.write_snapshot(job) {
            Ended::Saved => tracing::info!("Background AOF rewrite terminated with success"),
            Ended::Failed => return Err("the base could not be written".to_owned()),
            Ended::Abandoned => return Err("it is not wanted any more".to_owned()),
        }
        if log.turns() != turns {
            return Err("the log was turned off meanwhile".to_owned());
        }
        let bytes = fs::metadata(target.path()).map_or(0, |metadata| metadata.len());
        let mut rewritten = current.replaced(base, increment);
        rewritten.persist(&place)?;
        log.rewritten(&place, rewritten.clone(), bytes, turns);
        log.tighten(self.log_sync());
        self.keyspace.journal().call();
        rewritten.delete_history(&place);
        log.set_manifest(rewritten);
        Ok(())
    }

    fn log_place(&self) -> Place {
        let config = &self.config;
        let root = PathBuf::from(OsStr::from_bytes(&config.dir.get()));
        let directory = root.join(OsStr::from_bytes(&config.appenddirname.get()));
        Place { root, directory, name: config.appendfilename.get().to_vec() }
    }
}

/// Loading.
impl Instance {
    /// Does again what the log has, if there is one, and begins to log; called before there are clients.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn load_log(&self, again: &mut Again<'_>) -> Result<(), String> {
        let (place, log) = (self.log_place(), &self.persistence.log);
        place.tidy_up();
        let mut manifest = Manifest::read(&place)?;
        let is_half_taken_over = manifest.as_ref().is_some_and(|manifest| {
            let mut parts = manifest.parts();
            let is_only = |part: &Part| part.name == place.name && !place.path(&part.name).exists();
            parts.next().is_some_and(is_only) && parts.next().is_none()
        });
        if manifest.is_none() || is_half_taken_over {
            manifest = Manifest::take_over(&place)?.or(manifest);
        }
        log.turn(true);
        match manifest {
            Some(mut manifest) => {
                let (bytes, base_bytes) = self.load_parts(&place, &manifest, again)?;
                manifest.delete_history(&place);
                log.found(&place, manifest, bytes, base_bytes);
                log.go_on(&place)?;
                let mut tx = self.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
                tx.cut_journal();
            }
            None => {
                if self.snapshot_target().path().exists() {
                    tracing::warn!(
                        "There is a snapshot but no log: with appendonly the data begin with nothing, as in \
                         Redis. To keep them, start with appendonly no, then CONFIG SET appendonly yes."
                    );
                }
                tracing::info!("Creating AOF base file on server start");
                self.try_rewrite()?;
            }
        }
        log.expect_writer();
        Ok(())
    }

    /// Loads all files; answers their bytes, and those of the base.
    fn load_parts(
        &self,
        place: &Place,
        manifest: &Manifest,
        again: &mut Again<'_>,
    ) -> Result<(u64, u64), String> {
        let started = Instant::now();
        let mut tx = self.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
        tx.keep_expired();
        self.keyspace.allow_lock_news(false);
        let length = |part: &Part| {
            let path = place.path(&part.name);
            let measured = fs::metadata(&path).map(|metadata| metadata.len());
            measured.map_err(|error| {
                let shown = part.name.escape_ascii();
                format!("Fatal error: can't open the append log file {shown} for reading: {}", reason(&error))
            })
        };
        let parts = manifest.parts().map(|part| Ok((part, length(part)?)));
        let parts = parts.collect::<Result<Vec<_>, String>>()?;
        // Behind the last one that has anything in it nothing was done.
        let last = parts.iter().rposition(|(_, bytes)| *bytes > 0);
        let (mut loaded, mut sum, mut base_bytes) = (Loaded::default(), 0, 0);
        for (at, (part, _)) in parts.iter().enumerate() {
            let (part_started, is_base) = (Instant::now(), manifest.base.as_ref() == Some(part));
            let file = LogFile { place, part, is_last: Some(at) >= last };
            let bytes = self.load_part(&file, &mut tx, &mut loaded, again)?;
            sum += bytes;
            base_bytes += if is_base { bytes } else { 0 };
            tracing::info!(
                "DB loaded from {} file {}: {:.3} seconds",
                if is_base { "base" } else { "incr" },
                part.name.escape_ascii(),
                part_started.elapsed().as_secs_f64()
            );
        }
        tracing::info!("DB loaded from append only file: {:.3} seconds", started.elapsed().as_secs_f64());
        self.allow_lock_news();
        self.note_loaded(loaded, &tx);
        Ok((sum, base_bytes))
    }

    /// Loads one file; answers its bytes.
    fn load_part(
        &self,
        file: &LogFile<'_>,
        tx: &mut Transaction<'_>,
        loaded: &mut Loaded,
        again: &mut Again<'_>,
    ) -> Result<u64, String> {
        let path = file.place.path(&file.part.name);
        let shown = file.part.name.escape_ascii();
        let unreadable =
            |error: std::io::Error| format!("Unrecoverable error reading {shown}: {}", reason(&error));
        let mut input = BufReader::with_capacity(READ_BYTES, File::open(&path).map_err(unreadable)?);
        let mut offset = 0;
        if is_snapshot(input.fill_buf().map_err(unreadable)?) {
            let mut libraries = Vec::new();
            let mut counted = Counted { input: &mut input, bytes: 0 };
            *loaded = load_from(&mut counted, self.config.rdbchecksum.get(), tx, |code| {
                libraries.push(code.to_vec());
            })
            .map_err(|why| format!("Error reading the RDB preamble of the AOF file {shown}: {why}"))?;
            offset = counted.bytes;
            self.load_libraries(libraries)?;
        }
        let mut reader = LogReader::new(input, offset);
        let mut unit = Unit::default();
        // Up to where what was done was done whole.
        let mut whole = offset;
        loop {
            let mut request = OwnedRequest::default();
            let read = reader.next(&mut request);
            loaded.fencing = loaded.fencing.max(reader.fencing());
            let is_torn = match read {
                Ok(true) => false,
                Ok(false) if unit.is_open => true,
                Ok(false) => return Ok(reader.offset()),
                Err(Damage::Torn) => true,
                Err(Damage::Garbled) => {
                    return Err(format!(
                        "Bad file format reading the append only file {shown}: make a backup of your AOF \
                         file, then use ./redis-check-aof --fix <filename.manifest>"
                    ));
                }
                Err(Damage::Unreadable(error)) => return Err(unreadable(error)),
            };
            if is_torn {
                file.cut_off(whole, self.config.aof_load_truncated.get())?;
                return Ok(whole);
            }
            let again_at = |tx: &mut Transaction<'_>, request: &OwnedRequest| {
                again(tx, request).map_err(|why| format!("{why} reading the append only file {shown}"))
            };
            unit.take(request, tx, again_at)?;
            if !unit.is_open {
                whole = reader.offset();
            }
        }
    }
}

/// What is done as one: what is between MULTI and EXEC, or one request.
#[derive(Default)]
struct Unit {
    is_open: bool,
    requests: Vec<OwnedRequest>,
}

impl Unit {
    fn take(
        &mut self,
        request: OwnedRequest,
        tx: &mut Transaction<'_>,
        mut again: impl FnMut(&mut Transaction<'_>, &OwnedRequest) -> Result<(), String>,
    ) -> Result<(), String> {
        let is_named =
            |name: &[u8]| request.request().is_some_and(|request| request.name().eq_ignore_ascii_case(name));
        match self.is_open {
            false if is_named(b"multi") => self.is_open = true,
            false => again(tx, &request)?,
            true if is_named(b"exec") => {
                self.is_open = false;
                for request in std::mem::take(&mut self.requests) {
                    again(tx, &request)?;
                }
            }
            true => self.requests.push(request),
        }
        drop(tx.take_garbage());
        Ok(())
    }
}

/// A file of a log that is being loaded.
struct LogFile<'a> {
    place: &'a Place,
    part: &'a Part,
    /// Whether nothing comes after it.
    is_last: bool,
}

impl LogFile<'_> {
    /// Cuts off what was not written to its end, if that is wanted.
    fn cut_off(&self, whole: u64, is_wanted: bool) -> Result<(), String> {
        let shown = self.part.name.escape_ascii();
        if !is_wanted {
            return Err(format!(
                "Unexpected end of file reading the append only file {shown}. You can: 1) Make a backup of \
                 your AOF file, then use ./redis-check-aof --fix <filename.manifest>. 2) Alternatively you \
                 can set the 'aof-load-truncated' configuration option to yes and restart the server."
            ));
        }
        if !self.is_last {
            return Err(format!("Fatal error: the truncated file {shown} is not the last file"));
        }
        tracing::warn!("!!! Warning: short read while loading the AOF file {shown}!!!");
        tracing::warn!("AOF loaded anyway because aof-load-truncated is enabled");
        tracing::warn!("Truncating the AOF {shown} at offset {whole}");
        let path = self.place.path(&self.part.name);
        let cut = File::options().write(true).open(&path).and_then(|file| {
            file.set_len(whole)?;
            file.sync_all()
        });
        cut.map_err(|error| format!("Error truncating the AOF file {shown}: {}", reason(&error)))
    }
}

/// Counts what is read.
struct Counted<'a, R> {
    input: &'a mut R,
    bytes: u64,
}

impl<R: std::io::Read> std::io::Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}
