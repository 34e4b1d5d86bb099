//! A snapshot job: from the moment whose state it has to the finished file.

use std::fs::File;
use std::io::{self, Write};
use std::ops::DerefMut;
use std::sync::Arc;

use super::file::Target;
use super::rdb::{Form, Writer};
use super::{Changes, Ended};
use crate::dump::{VERSION, VERSION_WITH_FIELD_EXPIRIES};
use crate::files::reason;
use crate::keyspace::{Everything, SavedKey, Slice, Snapshot, Transaction, Use, Walk, records};
use crate::scripting::functions::Library;
use crate::values::Sink;

/// Bytes written between two syncs, so that the last sync does not slow down other writers for long. Redis:
/// `REDIS_AUTOSYNC_BYTES`, of 4 MiB.
const SYNC_BYTES: usize = 32 << 20;

/// The name of the auxiliary field with the last fencing number that a lock was given. Redis skips it.
pub(super) const FENCING: &[u8] = b"keyfast-fencing";

/// Bytes of records per write.
const RECORDS_BYTES: usize = 64 << 10;

/// How to write a snapshot.
#[derive(Debug)]
pub struct SnapshotPlan {
    /// Whether it becomes a snapshot or the base of a log.
    pub purpose: Purpose,
    /// Where it goes.
    pub destination: Destination,
    /// The options of the RDB format; `None` for a base in the format of the log.
    pub form: Option<Form>,
    /// Which facts about the use of keys are saved (LRU or LFU).
    pub use_kept: Use,
    /// The libraries of functions to save.
    pub libraries: Vec<Arc<Library>>,
    /// The last fencing number that a lock was given.
    pub fencing: u64,
    /// Whether a base in the format of the log begins with the time.
    pub has_times: bool,
    /// Whether it runs in the background, so that no client waits for it.
    pub is_in_background: bool,
    /// The time, in seconds since 1970.
    pub now_s: u64,
    /// Bytes that the instance has taken from the allocator.
    pub taken_bytes: usize,
}

/// Where a snapshot goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Into a file that it replaces.
    File(Target),
    /// Into an empty file without a name.
    Nameless(Arc<File>),
}

/// The parts of a snapshot that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The keys of all databases.
    pub data: bool,
    /// The libraries of functions.
    pub functions: bool,
}

/// The purpose of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A snapshot that is loaded as it is.
    Snapshot,
    /// The base of a log.
    Base,
    /// A snapshot for a client that has asked for one. It saves nothing.
    Export,
}

/// A snapshot that has begun and must be written.
#[derive(Debug)]
pub struct Job {
    plan: SnapshotPlan,
    snapshot: Snapshot,
    changes: Changes,
}

/// Why a snapshot ended early.
enum Stop {
    Error(io::Error),
    Abandoned,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Error(error)
    }
}

impl Job {
    pub(super) fn begin(
        tx: &mut Everything<&mut Transaction<'_>>,
        plan: SnapshotPlan,
        changes: impl FnOnce(u64, u64) -> Changes,
    ) -> Option<Job> {
        let snapshot = tx.begin_snapshot()?;
        let changes = changes(snapshot.changes, snapshot.flushes);
        Some(Job { plan, snapshot, changes })
    }

    /// The number of keys to write.
    pub(super) fn keys(&self) -> usize {
        self.snapshot.keys()
    }

    pub(super) fn changes(&self) -> Changes {
        self.changes
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.plan.purpose
    }

    pub(super) fn is_in_background(&self) -> bool {
        self.plan.is_in_background
    }

    /// Writes the snapshot. Calls `goes_on` after every few keys, with their number; it returns whether to
    /// continue.
    pub(super) fn write<'a>(
        &mut self,
        walk: &mut Walk<impl DerefMut<Target = Transaction<'a>>>,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Ended {
        let mut is_abandoned = false;
        let destination = self.plan.destination.clone();
        let mut write = |file: &mut File| match self.write_to(file, walk, &mut goes_on) {
            Ok(()) => Ok(()),
            Err(Stop::Error(error)) => Err(error),
            Err(Stop::Abandoned) => {
                is_abandoned = true;
                Err(io::ErrorKind::Interrupted.into())
            }
        };
        let written = match destination {
            Destination::File(target) => target.replace(write),
            Destination::Nameless(file) => file
                .try_clone()
                .and_then(|mut file| write(&mut file))
                .map_err(|error| format!("Write error on a snapshot for a client: {}", reason(&error))),
        };
        // Drop what is left, so that it is no longer preserved.
        let mut rest = Slice::default();
        while walk.take_slice(&mut self.snapshot, &mut rest) {}
        match written {
            Ok(()) => Ended::Saved,
            Err(_) if is_abandoned => Ended::Abandoned,
            Err(why) => {
                tracing::warn!("{why}");
                Ended::Failed
            }
        }
    }

    fn write_to<'a>(
        &mut self,
        file: &mut File,
        walk: &mut Walk<impl DerefMut<Target = Transaction<'a>>>,
        goes_on: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Stop> {
        let SnapshotPlan { purpose, form, use_kept, libraries, fencing, now_s, taken_bytes, .. } = &self.plan;
        let Some(form) = form else { return self.write_records(file, walk, goes_on) };
        let version = if self.snapshot.has_field_expiries { VERSION_WITH_FIELD_EXPIRIES } else { VERSION };
        let mut writer = Writer::with_header(Synced { file, unsynced: 0 }, *form, version);
        let number = |number: usize| itoa::Buffer::new().format(number).as_bytes().to_vec();
        describe(&mut writer, *now_s)?;
        writer.auxiliary(b"used-mem", &number(*taken_bytes))?;
        writer.auxiliary(b"aof-base", if *purpose == Purpose::Base { b"1" } else { b"0" })?;
        writer.auxiliary(FENCING, &number(*fencing as usize))?;
        for library in libraries {
            writer.function_library(&library.code)?;
        }
        for (database, keys, expiring) in &self.snapshot.sizes {
            writer.sizes(*database, *keys, *expiring)?;
        }
        let (keyspace, mut slice) = (walk.keyspace(), Slice::default());
        while walk.take_slice(&mut self.snapshot, &mut slice) {
            let mut keys = 0;
            slice.each(keyspace, *use_kept, |key| {
                keys += 1;
                writer.key(key)
            })?;
            if !goes_on(keys) {
                return Err(Stop::Abandoned);
            }
        }
        writer.finish()?;
        Ok(())
    }

    /// Writes the snapshot in the format of the log.
    fn write_records<'a>(
        &mut self,
        file: &mut File,
        walk: &mut Walk<impl DerefMut<Target = Transaction<'a>>>,
        goes_on: &mut impl FnMut(usize) -> bool,
    ) -> Result<(), Stop> {
        let mut output = Records { file: Synced { file, unsynced: 0 }, bytes: Vec::new() };
        let mut database = None;
        if self.plan.has_times {
            records::time(output.buffer(), self.plan.now_s);
        }
        if self.plan.fencing > 0 {
            records::fencing(output.buffer(), self.plan.fencing);
        }
        for library in &self.plan.libraries {
            records::library(output.buffer(), &library.code);
        }
        let (keyspace, mut slice) = (walk.keyspace(), Slice::default());
        while walk.take_slice(&mut self.snapshot, &mut slice) {
            let mut keys = 0;
            slice.each(keyspace, self.plan.use_kept, |key: &SavedKey<'_>| {
                keys += 1;
                records::select(output.buffer(), &mut database, key.database);
                records::fence(output.buffer(), key.fence);
                key.value.log(&mut output, key.key, key.expires_at_ms)
            })?;
            if !goes_on(keys) {
                return Err(Stop::Abandoned);
            }
        }
        output.write()?;
        Ok(())
    }
}

/// Writes which program makes a file, and when, in seconds since 1970.
fn describe(writer: &mut Writer<impl Write>, now_s: u64) -> io::Result<()> {
    writer.auxiliary(b"redis-ver", crate::REDIS_VERSION.as_bytes())?;
    writer.auxiliary(b"redis-bits", itoa::Buffer::new().format(usize::BITS).as_bytes())?;
    writer.auxiliary(b"ctime", itoa::Buffer::new().format(now_s).as_bytes())
}

/// A snapshot without keys, with these libraries of functions.
pub(crate) fn functions_alone(libraries: &[Arc<Library>], form: Form, now_s: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_functions(&mut bytes, libraries, form, now_s).expect("memory takes all that is written");
    bytes
}

fn write_functions(
    output: &mut Vec<u8>,
    libraries: &[Arc<Library>],
    form: Form,
    now_s: u64,
) -> io::Result<()> {
    let mut writer = Writer::with_header(output, form, VERSION);
    describe(&mut writer, now_s)?;
    for library in libraries {
        writer.function_library(&library.code)?;
    }
    writer.finish()?;
    Ok(())
}

/// A file of requests that is being written.
struct Records<'a> {
    file: Synced<'a>,
    bytes: Vec<u8>,
}

impl Records<'_> {
    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

impl Sink for Records<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() < RECORDS_BYTES {
            self.bytes.extend_from_slice(bytes);
            return Ok(());
        }
        self.write()?;
        bytes.chunks(RECORDS_BYTES).try_for_each(|some| self.file.write_all(some))
    }

    fn pass_on(&mut self) -> io::Result<()> {
        if self.bytes.len() < RECORDS_BYTES { Ok(()) } else { self.write() }
    }
}

/// A file that is synced as it grows.
struct Synced<'a> {
    file: &'a mut File,
    unsynced: usize,
}

impl Write for Synced<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
