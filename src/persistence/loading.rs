//! Loads snapshots.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::job::FENCING;
use super::rdb::{Item, Reader};
use crate::files::reason;
use crate::keyspace::{Everything, Transaction};
use crate::resp::number::parse_integer;
use crate::values::Limits;

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// The result of loading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Keys that were loaded.
    pub keys: usize,
    /// Keys that had expired and were skipped.
    pub expired: usize,
    /// The last fencing number that a lock was given; 0 if the file has none.
    pub fencing: u64,
}

/// What to do with a key of the file that already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    /// Loading fails with an error.
    Refused,
    /// The key of the file replaces it.
    Replaced,
}

/// Loads a file, if it exists. Passes the code of each library to the caller.
///
/// # Errors
///
/// With one line for people, if the file cannot be read to its end. The keys before the mistake are loaded
/// then.
pub fn load(
    path: &Path,
    verifies: bool,
    conflicts: Conflicts,
    tx: &mut Everything<&mut Transaction<'_>>,
    library: impl FnMut(&[u8]),
) -> Result<Option<Loaded>, String> {
    let Some(reader) = open(path, verifies)? else { return Ok(None) };
    load_items(reader, conflicts, tx, library).map(Some)
}

/// Loads a snapshot from an input that may continue behind it.
///
/// # Errors
///
/// The same as for [`load`].
pub fn load_from(
    input: impl Read,
    verifies: bool,
    tx: &mut Everything<&mut Transaction<'_>>,
    library: impl FnMut(&[u8]),
) -> Result<Loaded, String> {
    let reader = Reader::open(input, verifies).map_err(|error| error.to_string())?;
    load_items(reader, Conflicts::Refused, tx, library)
}

fn load_items<R: Read>(
    mut reader: Reader<R>,
    conflicts: Conflicts,
    tx: &mut Everything<&mut Transaction<'_>>,
    mut library: impl FnMut(&[u8]),
) -> Result<Loaded, String> {
    let (now_ms, databases) = (tx.now_ms(), tx.databases());
    let (mut loaded, limits) = (Loaded::default(), tx.keyspace().limits());
    while let Some(item) = reader.next_item(limits).map_err(|error| error.to_string())? {
        match item {
            Item::Auxiliary { name: FENCING, value } => {
                let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                loaded.fencing = number.unwrap_or(0);
            }
            Item::Auxiliary { name, value } => tell(name, value, now_ms),
            Item::Library(code) => library(code),
            Item::ModuleData { module } => {
                tracing::warn!("The RDB file contains data of the module '{module}', which is skipped");
            }
            Item::Key(key) if key.database >= databases => {
                return Err(format!(
                    "Data file was created with a Redis server configured to handle more than {databases} \
                     databases"
                ));
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
            }
        }
    }
    tracing::info!("Done loading RDB, keys loaded: {}, keys expired: {}.", loaded.keys, loaded.expired);
    Ok(loaded)
}

/// Reads a file to its end without loading it; returns whether the file exists.
///
/// # Errors
///
/// The same as for [`load`].
pub fn verify(path: &Path, verifies: bool) -> Result<bool, String> {
    let Some(mut reader) = open(path, verifies)? else { return Ok(false) };
    let limits = Limits::default();
    while reader.next_item(&limits).map_err(|error| error.to_string())?.is_some() {}
    Ok(true)
}

fn open(path: &Path, verifies: bool) -> Result<Option<Reader<BufReader<File>>>, String> {
    match File::open(path) {
        Ok(file) => Reader::open(BufReader::with_capacity(READ_BYTES, file), verifies)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(reason(&error)),
    }
}

/// Logs an auxiliary field of the file.
fn tell(name: &[u8], value: &[u8], now_ms: u64) {
    let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
    match (name, number) {
        (b"redis-ver" | b"valkey-ver", _) => {
            tracing::info!("Loading RDB produced by version {}", value.escape_ascii());
        }
        (b"ctime", Some(written_s)) => {
            tracing::info!("RDB age {} seconds", (now_ms / 1000).saturating_sub(written_s));
        }
        (b"used-mem", Some(bytes)) => {
            tracing::info!("RDB memory usage when created {:.2} Mb", bytes as f64 / 1024.0 / 1024.0);
        }
        _ => {}
    }
}
