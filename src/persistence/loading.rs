//! Loads snapshots, and shows the progress of every load, that of a log included.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::job::FENCING;
use super::rdb::{Item, Reader};
use crate::clock::system_s;
use crate::files::reason;
use crate::keyspace::{Everything, Transaction};
use crate::progress::{Indicator, Progress, Report, Unit};
use crate::resp::number::parse_integer;
use crate::values::Limits;

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// How often the log says how far a load is.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The load that is running, if one is. INFO tells it to clients.
#[derive(Debug, Default)]
pub struct Loading(Mutex<Option<Arc<Current>>>);

#[derive(Debug)]
struct Current {
    started_s: u64,
    /// What the snapshot says of the memory that its data took.
    used_bytes: AtomicU64,
    progress: Arc<Progress>,
}

/// What INFO tells of a load that is running.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport {
    /// When it began, in seconds since 1970.
    pub started_s: u64,
    /// The bytes of memory that the data took when the snapshot was written; 0 if that is not known (yet).
    pub used_bytes: u64,
    /// How far it is, in bytes of the files.
    pub progress: Report,
}

impl Loading {
    /// Begins to load files of so many bytes together, at so many seconds since 1970. A load that takes long
    /// is shown until the value that this returns is dropped: as a bar if the program may draw one, or else
    /// by one log line each second. `key_load_delay` is the value of the parameter.
    pub fn begin(&self, bytes: u64, started_s: u64, key_load_delay: i64) -> Running<'_> {
        // A pipe or a device has no length.
        let total = Some(bytes).filter(|bytes| *bytes > 0);
        let progress = Arc::new(Progress::new(Unit::Bytes, total));
        let indicator = Indicator::bar(&progress, "Loading data").unwrap_or_else(|| {
            Indicator::lines(&progress, LINE_INTERVAL, |report| tracing::info!("Loading data: {report}"))
        });
        let current = Arc::new(Current { started_s, used_bytes: AtomicU64::new(0), progress });
        *self.0.lock() = Some(Arc::clone(&current));
        Running { loading: self, current, key_load_delay, _indicator: indicator }
    }

    /// What INFO tells; none if nothing is being loaded.
    pub fn report(&self) -> Option<LoadReport> {
        let current = Arc::clone(self.0.lock().as_ref()?);
        Some(LoadReport {
            started_s: current.started_s,
            used_bytes: current.used_bytes.load(Ordering::Relaxed),
            progress: current.progress.report(),
        })
    }
}

/// A load that is running, until this is dropped.
#[derive(Debug)]
pub struct Running<'a> {
    loading: &'a Loading,
    current: Arc<Current>,
    key_load_delay: i64,
    _indicator: Indicator,
}

impl Running<'_> {
    /// Sets how many bytes of all files are loaded.
    pub fn reach(&self, bytes: u64) {
        self.current.progress.reach(bytes);
    }

    /// Counts what is read from a file.
    pub fn counting<R>(&self, input: R) -> Counting<'_, R> {
        Counting { input, progress: &self.current.progress }
    }

    /// Rests after a key, or a request of a log, if `key-load-delay` says so.
    pub fn rest(&self) {
        if self.key_load_delay != 0 {
            rest(self.key_load_delay);
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.loading.0.lock() = None;
    }
}

/// Redis: `debugDelay`. A delay below zero rests a microsecond once in so many times.
#[cold]
fn rest(delay: i64) {
    let us = match u64::try_from(delay) {
        Ok(us) => us,
        Err(_) => u64::from(fastrand::u64(..delay.unsigned_abs()) == 0),
    };
    if us > 0 {
        thread::sleep(Duration::from_micros(us));
    }
}

/// A file, of which the bytes are counted that are read.
pub struct Counting<'a, R> {
    input: R,
    progress: &'a Progress,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.progress.add(read as u64);
        Ok(read)
    }
}

/// The result of loading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that were loaded.
    pub keys: usize,
    /// Keys that had expired and were skipped.
    pub expired: usize,
    /// Keys of collections without elements, which were skipped.
    pub empty: usize,
    /// The last fencing number that a lock was given; 0 if the file has none.
    pub fencing: u64,
}

/// What to do with a file that is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Whether its checksum is verified (`rdbchecksum`).
    pub(crate) verifies: bool,
    /// Whether a value that is not as it should be is an error (`sanitize-dump-payload`).
    pub(crate) sanitizes: bool,
    /// Whether keys of modules' types are left out (`unknown-types`). Otherwise the file is refused.
    pub(crate) skips_foreign: bool,
}

impl Reading {
    /// Begins to read a file.
    fn open<R: Read>(self, input: R) -> Result<Reader<R>, String> {
        let reader = Reader::open(input, self.verifies).map_err(|error| error.to_string())?;
        Ok(if self.sanitizes { reader.strict() } else { reader })
    }
}

/// The keys of a file whose types belong to modules.
#[derive(Debug, Default)]
struct Foreign {
    /// How many there are, by the names of their types.
    counts: BTreeMap<String, usize>,
    /// The first of them, with its database.
    first: Option<(usize, String)>,
}

impl Foreign {
    fn add(&mut self, database: usize, key: &[u8], type_name: String) {
        self.first.get_or_insert_with(|| (database, key.escape_ascii().to_string()));
        *self.counts.entry(type_name).or_default() += 1;
    }

    /// Warns of them, or refuses the file.
    fn judge(&self, skips: bool) -> Result<(), String> {
        let Some((database, key)) = &self.first else { return Ok(()) };
        let types: Vec<_> = self.counts.iter().map(|(name, count)| format!("{count} of {name}")).collect();
        let keys = self.counts.values().sum::<usize>();
        let what = format!(
            "the RDB file has keys of modules' types, which are not here: {keys} ({}); the first is \
             '{key}' in database {database}",
            types.join(", ")
        );
        if skips {
            tracing::warn!("Skipped, as unknown-types says: {what}");
            return Ok(());
        }
        Err(format!("{what}. To start without them: --unknown-types skip"))
    }
}

/// What to do with a key of the file that already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// Loading fails with an error.
    Refused,
    /// The key of the file replaces it.
    Replaced,
}

/// As many keys without elements are named, as in Redis.
const EMPTY_KEYS_SHOWN_MAX: usize = 10;

/// Loads a file, if it exists. Passes the code of each library to the caller.
///
/// # Errors
///
/// With one line for people, if the file cannot be read to its end. The keys before the mistake are loaded
/// then.
pub(crate) fn load(
    path: &Path,
    reading: Reading,
    conflicts: Conflicts,
    running: &Running<'_>,
    tx: &mut Everything<&mut Transaction<'_>>,
    library: impl FnMut(&[u8]),
) -> Result<Option<Loaded>, String> {
    let Some(file) = open(path)? else { return Ok(None) };
    load_items(reading.open(running.counting(file))?, reading, conflicts, running, tx, library).map(Some)
}

/// Loads a snapshot from an input that may continue behind it. The input counts the bytes read
/// ([`Running::counting`]).
///
/// # Errors
///
/// The same as for [`load`].
pub(crate) fn load_from(
    input: impl Read,
    reading: Reading,
    running: &Running<'_>,
    tx: &mut Everything<&mut Transaction<'_>>,
    library: impl FnMut(&[u8]),
) -> Result<Loaded, String> {
    load_items(reading.open(input)?, reading, Conflicts::Refused, running, tx, library)
}

fn load_items<R: Read>(
    mut reader: Reader<R>,
    reading: Reading,
    conflicts: Conflicts,
    running: &Running<'_>,
    tx: &mut Everything<&mut Transaction<'_>>,
    mut library: impl FnMut(&[u8]),
) -> Result<Loaded, String> {
    let (now_ms, databases) = (tx.now_ms(), tx.databases());
    let (mut loaded, limits) = (Loaded::default(), tx.keyspace().limits());
    let mut foreign = Foreign::default();
    while let Some(item) = reader.next_item(limits).map_err(|error| error.to_string())? {
        match item {
            Item::Auxiliary { name: FENCING, value } => {
                let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                loaded.fencing = number.unwrap_or(0);
            }
            Item::Auxiliary { name, value } => tell(name, value, running),
            Item::Library(code) => library(code),
            Item::Database(_) => {}
            Item::ModuleData { module } => {
                tracing::warn!("The RDB file contains data of the module '{module}', which is skipped");
            }
            Item::ForeignKey { database, key, type_name } => foreign.add(database, key, type_name),
            Item::Key(key) if key.database >= databases => {
                return Err(format!(
                    "Data file was created with a Redis server configured to handle more than {databases} \
                     databases"
                ));
            }
            Item::EmptyKey(key) => {
                if loaded.empty < EMPTY_KEYS_SHOWN_MAX {
                    tracing::warn!("Skipping the empty key {} of the RDB file", key.escape_ascii());
                }
                loaded.empty += 1;
            }
            // As in Redis: a primary does not load keys that have expired.
            Item::Key(key) if key.expires_at_ms.is_some_and(|at_ms| at_ms < now_ms) && !tx.is_replay() => {
                loaded.expired += 1;
            }
            Item::Key(key) => {
                if !tx.load(&key) {
                    if conflicts == Conflicts::Refused {
                        let (name, database) = (key.key.escape_ascii(), key.database);
                        return Err(format!("RDB has duplicated key '{name}' in DB {database}"));
                    }
                    tx.select(key.database);
                    tx.remove(key.key);
                    tx.load(&key);
                }
                loaded.keys += 1;
                running.rest();
            }
        }
    }
    foreign.judge(reading.skips_foreign)?;
    let Loaded { keys, expired, empty, .. } = loaded;
    match empty {
        0 => tracing::info!("Done loading RDB, keys loaded: {keys}, keys expired: {expired}."),
        _ => tracing::info!(
            "Done loading RDB, keys loaded: {keys}, keys expired: {expired}, empty keys skipped: {empty}."
        ),
    }
    Ok(loaded)
}

/// Reads a file to its end without loading it; returns whether the file exists.
///
/// # Errors
///
/// The same as for [`load`].
pub(crate) fn verify(path: &Path, reading: Reading) -> Result<bool, String> {
    let Some(file) = open(path)? else { return Ok(false) };
    let mut reader = reading.open(file)?;
    let (limits, mut foreign) = (Limits::default(), Foreign::default());
    while let Some(item) = reader.next_item(&limits).map_err(|error| error.to_string())? {
        if let Item::ForeignKey { database, key, type_name } = item {
            foreign.add(database, key, type_name);
        }
    }
    foreign.judge(reading.skips_foreign)?;
    Ok(true)
}

fn open(path: &Path) -> Result<Option<BufReader<File>>, String> {
    match File::open(path) {
        Ok(file) => Ok(Some(BufReader::with_capacity(READ_BYTES, file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(reason(&error)),
    }
}

/// Logs an auxiliary field of the file.
fn tell(name: &[u8], value: &[u8], running: &Running<'_>) {
    let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
    match (name, number) {
        (b"redis-ver" | b"valkey-ver", _) => {
            tracing::info!("Loading RDB produced by version {}", value.escape_ascii());
        }
        (b"ctime", Some(written_s)) => {
            tracing::info!("RDB age {} seconds", system_s().saturating_sub(written_s));
        }
        (b"used-mem", Some(bytes)) => {
            running.current.used_bytes.store(bytes, Ordering::Relaxed);
            tracing::info!("RDB memory usage when created {:.2} Mb", bytes as f64 / 1024.0 / 1024.0);
        }
        _ => {}
    }
}
