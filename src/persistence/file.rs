//! The file of snapshots, which is replaced as a whole: whenever the machine stops, the old one or the new
//! one is there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::files::reason;

/// Where snapshots are kept.
#[derive(Clone, Debug)]
pub struct Target {
    directory: PathBuf,
    name: OsString,
}

impl Target {
    /// A file of this name in this directory.
    pub fn new(directory: PathBuf, name: OsString) -> Target {
        Target { directory, name }
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The file that becomes the next one.
    pub fn temporary(&self) -> PathBuf {
        self.directory.join(format!("temp-{}.rdb", std::process::id()))
    }

    /// Deletes what was written of the next file.
    pub fn tidy_up(&self) {
        // There need not be any.
        let _ = fs::remove_file(self.temporary());
    }

    /// Replaces the file by what `write` writes.
    ///
    /// # Errors
    ///
    /// With a line for the log; the file is the one before then.
    pub fn replace(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), String> {
        let temporary = self.temporary();
        let names = || (temporary.file_name().unwrap_or_default().display(), self.directory.display());
        let mut file = File::create(&temporary).map_err(|error| {
            let (name, directory) = names();
            format!(
                "Failed opening the temp RDB file {name} (in server root dir {directory}) for saving: {}",
                reason(&error)
            )
        })?;
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

/// Makes sure that a file's new name outlives the machine's end.
pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
