//! The snapshot's file. It is replaced as a whole: if the machine stops, either the old or the new one is
//! there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::{self, reason, sync_directory};
use crate::platform::disk::{NO_LINK, NO_WAIT};
use crate::platform::processes::is_another_alive;

/// Permissions of a snapshot before the umask, as in Redis.
const SNAPSHOT_MODE: u32 = 0o666;

/// Permissions of a file that only this process uses.
const PRIVATE_MODE: u32 = 0o600;

/// The snapshot's file, and the temporary file that replaces it.
#[derive(Clone, Debug)]
pub struct Target {
    directory: PathBuf,
    name: OsString,
    writer: WriterNumber,
}

/// The number of a server within this process. Two of them may keep snapshots of different names in one
/// directory, and must not share a temporary file.
#[derive(Clone, Copy, Debug)]
pub struct WriterNumber(usize);

impl WriterNumber {
    /// The next unused number.
    pub fn next() -> WriterNumber {
        static WRITERS: AtomicUsize = AtomicUsize::new(0);
        WriterNumber(WRITERS.fetch_add(1, Ordering::Relaxed))
    }
}

impl Target {
    /// A file of this name in this directory.
    pub fn new(directory: PathBuf, name: OsString, writer: WriterNumber) -> Target {
        Target { directory, name, writer }
    }

    /// The path of the snapshot.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The path of the temporary file that replaces the snapshot. For the first server of a process it is the
    /// same as in Redis.
    pub fn temporary(&self) -> PathBuf {
        let process = std::process::id();
        self.directory.join(match self.writer.0 {
            0 => format!("temp-{process}.rdb"),
            number => format!("temp-{process}-{number}.rdb"),
        })
    }

    /// Deletes the temporary file.
    pub fn tidy_up(&self) {
        // It need not exist.
        let _ = fs::remove_file(self.temporary());
    }

    /// Replaces the snapshot by what `write` writes.
    ///
    /// # Errors
    ///
    /// With a line for the log. The old file is still there then.
    pub fn replace(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), String> {
        let temporary = self.temporary();
        let names = || (temporary.file_name().unwrap_or_default().display(), self.directory.display());
        let mut file = files::create_temporary(&temporary, SNAPSHOT_MODE).map_err(|error| {
            let (name, directory) = names();
            format!(
                "Failed opening the temp RDB file {name} (in server root dir {directory}) for saving: {}",
                reason(&error)
            )
        })?;
        // The lock shows other servers that the file is in use: a process in another container may have the
        // same process ID. If the file system has no locks, a missing lock proves nothing.
        let _ = file.try_lock();
        let written = write(&mut file).and_then(|()| file.sync_all());
        drop(file);
        if let Err(error) = written {
            self.tidy_up();
            return Err(format!("Write error while saving DB to the disk: {}", reason(&error)));
        }
        let renamed = fs::rename(&temporary, self.path()).and_then(|()| sync_directory(&self.directory));
        renamed.map_err(|error| {
            self.tidy_up();
            let (name, directory) = names();
            let to = self.name.display();
            format!(
                "Error moving temp DB file {name} on the final destination {to} (in server root dir \
                 {directory}): {}",
                reason(&error)
            )
        })
    }
}

/// A new file in a directory, without a name: it is gone when it is closed.
///
/// # Errors
///
/// If the directory cannot be written to.
pub(crate) fn nameless(directory: &Path) -> io::Result<File> {
    // For a moment it has the name of a temporary file that no other thread uses.
    let target = Target::new(directory.to_owned(), OsString::new(), WriterNumber::next());
    let file = files::create_temporary(&target.temporary(), PRIVATE_MODE)?;
    target.tidy_up();
    Ok(file)
}

/// Deletes the temporary files of servers that ended while they wrote a snapshot, or the base of a log.
pub(crate) fn tidy_up_after_the_dead(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Some(writer) = writer_of(&entry.file_name()) else { continue };
        // A file with this process's own ID is from an earlier process, or is locked by another server here.
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_another_alive(writer) || !is_file || is_locked(&entry.path()) {
            continue;
        }
        let name = entry.file_name();
        match fs::remove_file(entry.path()) {
            Ok(()) => {
                tracing::info!("Removed {}, a temporary file of a server that has ended", name.display())
            }
            Err(error) => tracing::warn!("Could not remove {}: {}", name.display(), reason(&error)),
        }
    }
}

/// The process that writes the temporary file of this name, if it has the name of one.
fn writer_of(name: &OsStr) -> Option<i32> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?;
    let number = match name.strip_suffix(".rdb") {
        Some(name) => {
            let number = name.strip_prefix("temp-")?;
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            number.split_once('-').filter(|(_, writer)| is_number(writer)).map_or(number, |both| both.0)
        }
        None => {
            let name = name.strip_suffix(".aof")?.strip_prefix("temp-rewriteaof-")?;
            name.strip_prefix("bg-").unwrap_or(name)
        }
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|number| is_number && *number > 0)
}

/// Whether another server holds the lock of a file.
fn is_locked(path: &Path) -> bool {
    let file = File::options().read(true).custom_flags(NO_LINK | NO_WAIT).open(path);
    file.is_ok_and(|file| matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_tell_who_writes_them() {
        let writer = |name: &str| writer_of(OsStr::new(name));
        assert_eq!(writer("temp-12.rdb"), Some(12));
        assert_eq!(writer("temp-12-3.rdb"), Some(12));
        assert_eq!(writer("temp-rewriteaof-12.aof"), Some(12));
        assert_eq!(writer("temp-rewriteaof-bg-12.aof"), Some(12));
        for other in [
            "temp-.rdb",
            "temp-0.rdb",
            "temp--1.rdb",
            "temp-1-.rdb",
            "temp-1-x.rdb",
            "temp-+1.rdb",
            "temp-1",
            "temp-x.rdb",
            "dump.rdb",
        ] {
            assert_eq!(writer(other), None, "{other}");
        }
        assert_eq!(writer("temp-99999999999.rdb"), None);
    }
}
