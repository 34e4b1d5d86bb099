//! Creates files, replaces them in one step, and reports the system's errors with the file's name.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::disk::NO_LINK;

/// Permissions of a new file of [`Rights::Kept`].
const PRIVATE_MODE: u32 = 0o600;

/// Permissions of a file of [`Rights::ByUmask`], before the umask.
const OPEN_MODE: u32 = 0o666;

/// Who may read and write a file that replaces another one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rights {
    /// Those who might before. A new file is for its owner alone: it may hold passwords.
    Kept,
    /// Those whom the umask allows it, as with the files beside it.
    ByUmask,
}

/// A file, and what the user calls it: the user may have given a relative path, which the server's directory
/// completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Its whole path.
    pub path: PathBuf,
    /// Its path as the user has given it: messages contain this one.
    pub name: PathBuf,
}

impl NamedFile {
    /// A file that is known by its path.
    pub fn at(path: &Path) -> NamedFile {
        NamedFile { path: path.to_owned(), name: path.to_owned() }
    }
}

impl fmt::Display for NamedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.display().fmt(f)
    }
}

/// Replaces a file in one step: readers see the old contents or the new ones, never
/// a mixture. When this returns, the new contents are on the disk under the file's name.
///
/// # Errors
///
/// If that fails. The old contents are still there then, unless only the last step has failed, the sync of
/// the directory.
pub(crate) fn replace(path: &Path, text: &[u8], rights: Rights) -> io::Result<()> {
    // Two clients, of one server or of two in this process, may want the same at once.
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".tmp-{}-{number}", std::process::id()));
    let new = PathBuf::from(new);
    let written = write(&new, path, text, rights).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // There is nothing to be done about it, and it does no harm.
        let _ = fs::remove_file(&new);
    }
    written?;
    sync_directory(path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Syncs a directory, so that a file's new name survives a crash of the machine.
///
/// # Errors
///
/// If that fails.
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes a temporary file, to be written. What is left of one of the same name is deleted, and a link in its
/// place is never followed: others may be able to write in the directory.
///
/// # Errors
///
/// If that fails, or if there is another one of that name at once.
pub(crate) fn create_temporary(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).custom_flags(NO_LINK).open(path)
}

fn write(new: &Path, old: &Path, text: &[u8], rights: Rights) -> io::Result<()> {
    let mut file = match rights {
        Rights::ByUmask => create_temporary(new, OPEN_MODE)?,
        Rights::Kept => {
            let mode = fs::metadata(old).map_or(PRIVATE_MODE, |old| old.permissions().mode() & 0o777);
            let file = create_temporary(new, PRIVATE_MODE)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file
        }
    };
    file.write_all(text)?;
    file.sync_all()
}

/// The text of the system, without the number that Rust adds.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
