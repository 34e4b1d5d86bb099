//! Checks a snapshot, and reports what is in it.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Result, Stop};
use crate::clock::system_s;
use crate::files::reason;
use crate::persistence::rdb::{Checksum, Item, Reader};
use crate::values::{Content, Limits, Structure};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// The names of the types of values, by their numbers.
const TYPES: [&str; 27] = [
    "string",
    "list-linked",
    "set-hashtable",
    "zset-v1",
    "hash-hashtable",
    "zset-v2",
    "module-pre-release",
    "module-value",
    "",
    "hash-zipmap",
    "list-ziplist",
    "set-intset",
    "zset-ziplist",
    "hash-ziplist",
    "quicklist",
    "stream",
    "hash-listpack",
    "zset-listpack",
    "quicklist-v2",
    "stream-v2",
    "set-listpack",
    "stream-v3",
    "hash-hashtable-md-pre-release",
    "hash-listpack-md-pre-release",
    "hash-hashtable-md",
    "hash-listpack-md",
    "stream-v4",
];

/// What was counted so far.
#[derive(Debug, Default)]
struct Counts {
    keys: u64,
    expires: u64,
    expired: u64,
    with_field_expiries: u64,
}

/// Checks the file that the arguments name.
pub(super) fn check(program: &str, arguments: &[&[u8]], out: &mut dyn Write) -> Result<()> {
    let [name] = *arguments else {
        eprintln!("Usage: {program} <rdb-file-name>");
        return Err(Stop::Failed);
    };
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let file = File::open(path).map_err(|error| {
        eprintln!("Cannot open file {}: {}", path.display(), reason(&error));
        Stop::Failed
    })?;
    check_input(&path.display().to_string(), &mut BufReader::with_capacity(READ_BYTES, file), out).map(drop)
}

/// Checks a snapshot, which more may follow; returns its bytes.
pub(super) fn check_input(name: &str, input: &mut dyn Read, out: &mut dyn Write) -> Result<u64> {
    writeln!(out, "[offset 0] Checking RDB file {name}")?;
    let mut counts = Counts::default();
    let mut reader = match Reader::open(input, true) {
        Ok(reader) => reader.strict(),
        Err(error) => {
            writeln!(out, "--- RDB ERROR DETECTED ---\n[offset 0] {}", error.why())?;
            writeln!(out, "[additional info] While doing: start")?;
            counts.print(out)?;
            return Err(Stop::Failed);
        }
    };
    let (limits, now_ms) = (Limits::default(), 1000 * system_s());
    loop {
        let line = match reader.next_item(&limits) {
            Ok(Some(item)) => counts.add(&item, now_ms),
            Ok(None) => break,
            Err(error) => {
                report(&reader, error.why(), out)?;
                counts.keys += u64::from(reader.key().is_some());
                counts.print(out)?;
                return Err(Stop::Failed);
            }
        };
        if let Some(line) = line {
            writeln!(out, "[offset {}] {line}", reader.offset())?;
        }
    }
    let offset = reader.offset();
    match reader.checksum() {
        Checksum::None => {}
        Checksum::Right => writeln!(out, "[offset {offset}] Checksum OK")?,
        Checksum::Disabled => {
            let text = "RDB file was saved with checksum disabled: no check performed.";
            writeln!(out, "[offset {offset}] {text}")?;
        }
    }
    writeln!(out, "[offset {offset}] \\o/ RDB looks OK! \\o/")?;
    counts.print(out)?;
    Ok(offset)
}

/// Reports the first error of a file.
fn report<R: Read>(reader: &Reader<R>, why: &str, out: &mut dyn Write) -> Result<()> {
    let doing = reader.doing();
    writeln!(out, "--- RDB ERROR DETECTED ---\n[offset {}] {why}", reader.offset())?;
    writeln!(out, "[additional info] While doing: {}", doing.part)?;
    if let Some(key) = reader.key() {
        writeln!(out, "[additional info] Reading key '{}'", key.escape_ascii())?;
    }
    if let Some(number) = doing.value_type {
        let name = TYPES.get(usize::from(number)).copied().unwrap_or("unknown");
        writeln!(out, "[additional info] Reading type {number} ({name})")?;
    }
    Ok(())
}

impl Counts {
    /// Counts an item; returns the line that tells of it, if one does.
    fn add(&mut self, item: &Item<'_>, now_ms: u64) -> Option<String> {
        match item {
            Item::Auxiliary { name, value } => {
                return Some(format!("AUX FIELD {} = '{}'", name.escape_ascii(), value.escape_ascii()));
            }
            Item::Database(number) => return Some(format!("Selecting DB ID {number}")),
            Item::ModuleData { module } => return Some(format!("MODULE AUX for: {module}")),
            Item::Library(_) => {}
            Item::EmptyKey(_) | Item::ForeignKey { .. } => self.keys += 1,
            Item::Key(key) => {
                self.keys += 1;
                self.expires += u64::from(key.expires_at_ms.is_some());
                self.expired += u64::from(key.expires_at_ms.is_some_and(|at_ms| at_ms < now_ms));
                let has_field_expiries = matches!(
                    key.value.content,
                    Content::Expiring(..) | Content::Large(Structure::Expiring(_))
                );
                self.with_field_expiries += u64::from(has_field_expiries);
            }
        }
        None
    }

    fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(out, "[info] {} keys read", self.keys)?;
        writeln!(out, "[info] {} expires", self.expires)?;
        writeln!(out, "[info] {} already expired", self.expired)?;
        writeln!(out, "[info] {} subexpires", self.with_field_expiries)?;
        Ok(())
    }
}
