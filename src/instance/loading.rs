//! Loading the log when the server starts: its requests run again.
//!
//! A log must be an unbroken beginning of all changes, or the server refuses it. It cuts off only what one
//! interrupted write can leave at the end (`aof-load-truncated`): an incomplete request, or a `MULTI` without
//! its `EXEC`, if the rest can be read. It keeps the part that it cuts off beside the log. Any other damage
//! is in the middle, and valid requests may follow it. The server leaves such a log to people, who may allow
//! it to cut off damage that is short (`aof-load-corrupt-tail-max-size`): after a failure of the power a file
//! may end with zeros.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use super::Instance;
use crate::files::reason;
use crate::keyspace::{Busy, Everything, Transaction};
use crate::persistence::aof::{AofPlace, AofReader, Damage, Manifest, Part, hidden_request};
use crate::persistence::rdb::is_snapshot;
use crate::persistence::{Loaded, Running, load_from};
use crate::resp::{OwnedRequest, Request};

/// Bytes of a log that are read in one go.
const READ_BYTES: usize = 1 << 20;

/// Runs the requests of a log.
pub trait Replay {
    /// Checks whether a request may be in a log.
    ///
    /// # Errors
    ///
    /// If it may not, with the beginning of a line for people.
    fn check(&self, request: Request<'_>) -> Result<(), String>;

    /// Whether there is a command of this name.
    fn knows(&self, name: &[u8]) -> bool;

    /// Runs a request that may be in a log. If it writes a lock that has one, `fence` is its fencing number.
    ///
    /// # Errors
    ///
    /// With the beginning of a line for people, if the requests behind it cannot run either.
    fn redo(
        &mut self,
        tx: &mut Transaction<'_>,
        request: Request<'_>,
        fence: Option<u64>,
    ) -> Result<(), String>;
}

impl Instance {
    /// Runs the requests of the log, if there is one, and begins to log. Called before there are clients.
    pub fn load_aof(&self, replay: &mut dyn Replay) -> Result<(), String> {
        let (place, aof) = (self.aof_place(), &self.persistence.aof);
        aof.lock(&place)?;
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
        aof.turn(true);
        match manifest.filter(|manifest| manifest.parts().next().is_some()) {
            Some(mut manifest) => {
                let mut tx = self.keyspace.begin_all(0).map_err(|Busy| "a script runs")?;
                let (bytes, base_bytes) = self.load_parts(&place, &manifest, &mut tx.as_mut(), replay)?;
                drop(tx);
                manifest.delete_history(&place);
                aof.found(&place, manifest, bytes, base_bytes);
                aof.go_on(&place)?;
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
        Ok(())
    }

    /// Replaces all data and libraries by those of the log (DEBUG LOADAOF). The caller has the turn of
    /// scripts.
    ///
    /// # Errors
    ///
    /// With one line for people, if pending records cannot be written, or the log cannot be loaded.
    pub fn reload_aof(
        &self,
        tx: &mut Everything<&mut Transaction<'_>>,
        replay: &mut dyn Replay,
    ) -> Result<(), String> {
        self.write_all()?;
        // A rewrite that ends meanwhile leaves the files that it has replaced.
        let _kept = self.persistence.aof.keep_files();
        // A log that is being written stays where it is, whatever the parameters say now.
        let (place, manifest) = self.persistence.aof.files(self.aof_place())?;
        if manifest.parts().next().is_none() {
            return Err(format!("there is no log in {}", place.directory.display()));
        }
        let database = tx.database();
        tx.begin_replay();
        tx.flush_all();
        self.scripting.forget_libraries();
        let loaded = self.load_parts(&place, &manifest, tx, replay).map(drop);
        tx.select(database);
        tx.end_replay();
        tx.note_all_ready();
        loaded
    }

    /// Waits until the files of the log have all records. The caller holds everything.
    fn write_all(&self) -> Result<(), String> {
        const GLANCE: Duration = Duration::from_millis(1);
        let (journal, aof) = (&self.followers.journal, &self.persistence.aof);
        self.hand_over();
        while aof.is_on() && !aof.has_written(journal.end()) {
            if aof.has_failed() {
                return Err("the log cannot be written".to_owned());
            }
            journal.call();
            thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Loads all files. Returns their bytes, and the bytes of the base.
    fn load_parts(
        &self,
        place: &AofPlace,
        manifest: &Manifest,
        tx: &mut Everything<&mut Transaction<'_>>,
        replay: &mut dyn Replay,
    ) -> Result<(u64, u64), String> {
        let started = Instant::now();
        tx.begin_replay();
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
        // The files behind the last file with content have no changes.
        let last = parts.iter().rposition(|(_, bytes)| *bytes > 0);
        let (mut loaded, mut sum, mut base_bytes) = (Loaded::default(), 0, 0);
        let running = self.begin_loading(parts.iter().map(|(_, bytes)| bytes).sum());
        for (at, (part, bytes)) in parts.iter().enumerate() {
            let (part_started, is_base) = (Instant::now(), manifest.base.as_ref() == Some(part));
            let (is_last, bytes, running) = (Some(at) >= last, *bytes, &running);
            let file = LogFile { place, part, is_last, bytes, before: sum, running };
            let bytes = self.load_part(&file, tx, &mut loaded, replay)?;
            sum += bytes;
            base_bytes += if is_base { bytes } else { 0 };
            tracing::info!(
                "DB loaded from {} file {}: {:.3} seconds",
                if is_base { "base" } else { "incr" },
                part.name.escape_ascii(),
                part_started.elapsed().as_secs_f64()
            );
        }
        drop(running);
        tracing::info!("DB loaded from append only file: {:.3} seconds", started.elapsed().as_secs_f64());
        self.allow_lock_news();
        self.note_loaded(loaded, tx);
        Ok((sum, base_bytes))
    }

    /// Loads one file; returns its bytes.
    fn load_part(
        &self,
        file: &LogFile<'_>,
        tx: &mut Everything<&mut Transaction<'_>>,
        loaded: &mut Loaded,
        replay: &mut dyn Replay,
    ) -> Result<u64, String> {
        let shown = file.part.name.escape_ascii();
        let unreadable = |error: std::io::Error| file.unreadable(&error);
        let opened = File::open(file.place.path(&file.part.name)).map_err(unreadable)?;
        let mut input = BufReader::with_capacity(READ_BYTES, opened);
        let mut offset = 0;
        if is_snapshot(input.fill_buf().map_err(unreadable)?) {
            let mut libraries = Vec::new();
            let mut counted = Counted { input: &mut input, bytes: 0 };
            let counting = file.running.counting(&mut counted);
            *loaded = load_from(counting, self.reading(), file.running, tx, |code| {
                libraries.push(code.to_vec());
            })
            .map_err(|why| format!("Error reading the RDB preamble of the AOF file {shown}: {why}"))?;
            offset = counted.bytes;
            self.load_libraries(&libraries)
                .map_err(|why| format!("Error reading the RDB preamble of the AOF file {shown}: {why}"))?;
        }
        let mut reader = AofReader::new(input, offset);
        let mut unit = Unit::default();
        // The end of the last complete unit.
        let mut whole = offset;
        loop {
            let at = reader.offset();
            let mut request = OwnedRequest::default();
            let read = reader.next(&mut request);
            loaded.fencing = loaded.fencing.max(reader.fencing());
            match read {
                Ok(true) => {
                    let refused =
                        |why: String| format!("{why} reading the append only file {shown} at offset {at}");
                    let goes_on = reader.is_divided();
                    unit.take((request, reader.fence()), goes_on, tx, replay).map_err(refused)?;
                    file.running.reach(file.before + reader.offset());
                    file.running.rest();
                    if !unit.is_open && !goes_on {
                        whole = reader.offset();
                    }
                }
                Ok(false) if unit.is_open => {
                    tracing::warn!("Revert incomplete MULTI/EXEC transaction from AOF file {shown}");
                    file.cut_off(whole, self.config.aof_load_truncated.get())?;
                    return Ok(whole);
                }
                Ok(false) => return Ok(reader.offset()),
                Err(Damage::Torn) => {
                    file.check_torn(reader.request_at(), replay)?;
                    file.cut_off(whole, self.config.aof_load_truncated.get())?;
                    return Ok(whole);
                }
                Err(Damage::Garbled) => {
                    let damaged = file.bytes.saturating_sub(whole);
                    if damaged < self.config.aof_load_corrupt_tail_max_size.get().unsigned_abs() {
                        file.cut_off_damage(whole)?;
                        return Ok(whole);
                    }
                    return Err(format!(
                        "Bad file format reading the append only file {shown}: make a backup of your AOF \
                         file, then use 'keyfast check-aof --fix <filename.manifest>', which cuts off all \
                         that comes after the damage (in the request at offset {at}, found at offset {}). \
                         Alternatively you can set the 'aof-load-corrupt-tail-max-size' configuration option \
                         to {} and restart the server",
                        reader.offset(),
                        damaged + 1
                    ));
                }
                Err(Damage::Unreadable(error)) => return Err(unreadable(error)),
            }
        }
    }
}

/// The requests that run as one: those between MULTI and EXEC, or a single one.
#[derive(Default)]
struct Unit {
    is_open: bool,
    /// Each with the fencing number of the lock that it writes, if it writes one.
    requests: Vec<(OwnedRequest, Option<u64>)>,
}

impl Unit {
    /// Takes the next request, and runs the unit that it completes. If the request `goes_on`, the next one is
    /// its rest. A request is checked when it is read: otherwise a unit that has lost its EXEC would swallow
    /// all requests behind it.
    fn take(
        &mut self,
        (owned, fence): (OwnedRequest, Option<u64>),
        goes_on: bool,
        tx: &mut Everything<&mut Transaction<'_>>,
        replay: &mut dyn Replay,
    ) -> Result<(), String> {
        let Some(request) = owned.request() else { return Ok(()) };
        let is_named = |name: &[u8]| request.name().eq_ignore_ascii_case(name);
        match self.is_open {
            _ if is_named(b"multi") => {
                if self.is_open {
                    return Err("MULTI within MULTI".to_owned());
                }
                self.is_open = true;
            }
            true if is_named(b"exec") => {
                self.is_open = false;
                self.redo_all(tx, replay)?;
            }
            is_open => {
                replay.check(request)?;
                self.requests.push((owned, fence));
                if !is_open && !goes_on {
                    self.redo_all(tx, replay)?;
                }
            }
        }
        drop(tx.take_garbage());
        Ok(())
    }

    fn redo_all(
        &mut self,
        tx: &mut Everything<&mut Transaction<'_>>,
        replay: &mut dyn Replay,
    ) -> Result<(), String> {
        self.requests.drain(..).try_for_each(|(owned, fence)| match owned.request() {
            Some(request) => replay.redo(tx, request, fence),
            None => Ok(()),
        })
    }
}

/// A file of a log that is being loaded.
struct LogFile<'a> {
    place: &'a AofPlace,
    part: &'a Part,
    /// Whether it is the last file with content.
    is_last: bool,
    /// The bytes that it has.
    bytes: u64,
    /// The bytes of the files before it.
    before: u64,
    running: &'a Running<'a>,
}

impl LogFile<'_> {
    fn unreadable(&self, error: &std::io::Error) -> String {
        format!("Unrecoverable error reading {}: {}", self.part.name.escape_ascii(), reason(error))
    }

    /// Refuses a request at the end of the file if the file only seems to end in it: the length of an
    /// argument is wrong, so that the argument contains all requests behind it.
    fn check_torn(&self, at: u64, replay: &dyn Replay) -> Result<(), String> {
        let path = self.place.path(&self.part.name);
        let found = hidden_request(&path, at, |name| replay.knows(name));
        match found.map_err(|error| self.unreadable(&error))? {
            None => Ok(()),
            Some(hidden) => Err(format!(
                "Bad file format reading the append only file {}: the request at offset {at} says that it is \
                 longer than the file, but there is another one in it, at offset {hidden}. Make a backup of \
                 your AOF file; then either repair the lengths of the request, or cut the file off at offset \
                 {at} to go on without all that comes after that",
                self.part.name.escape_ascii()
            )),
        }
    }

    /// Cuts off the incomplete end, if that is wanted, and keeps it in a file of its own.
    fn cut_off(&self, whole: u64, is_wanted: bool) -> Result<(), String> {
        let shown = self.part.name.escape_ascii();
        if !is_wanted {
            return Err(format!(
                "Unexpected end of file reading the append only file {shown}. You can: 1) Make a backup of \
                 your AOF file, then use 'keyfast check-aof --fix <filename.manifest>'. 2) Alternatively you \
                 can set the 'aof-load-truncated' configuration option to yes and restart the server. (What \
                 is whole ends at offset {whole})"
            ));
        }
        if !self.is_last {
            return Err(format!("Fatal error: the truncated file {shown} is not the last file"));
        }
        tracing::warn!("!!! Warning: short read while loading the AOF file {shown}!!!");
        tracing::warn!("AOF loaded anyway because aof-load-truncated is enabled");
        self.cut(whole)
    }

    /// Cuts off damage at the end that is short enough, and keeps it in a file of its own.
    fn cut_off_damage(&self, whole: u64) -> Result<(), String> {
        let shown = self.part.name.escape_ascii();
        if !self.is_last {
            return Err(format!("Fatal error: the damaged file {shown} is not the last file"));
        }
        tracing::warn!("!!! Warning: corrupt AOF file tail!!!");
        tracing::warn!(
            "AOF {shown} loaded anyway because aof-load-corrupt-tail-max-size is enabled (remaining {} bytes)",
            self.bytes.saturating_sub(whole)
        );
        self.cut(whole)
    }

    fn cut(&self, whole: u64) -> Result<(), String> {
        let shown = self.part.name.escape_ascii();
        let cut = self.place.cut_off(self.part, whole);
        let kept =
            cut.map_err(|error| format!("Error truncating the AOF file {shown}: {}", reason(&error)))?;
        if let Some(kept) = kept {
            tracing::warn!(
                "Truncating the AOF {shown} at offset {whole}, keeping the rest in {}",
                kept.display()
            );
        }
        Ok(())
    }
}

/// Counts the bytes that are read.
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
