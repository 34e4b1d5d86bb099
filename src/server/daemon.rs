//! Going on in the background, and the file that says as which process.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::files;

/// Where the number is written by a server in the background that was not told where. As in Redis.
const DEFAULT_PID_FILE: &str = "/var/run/redis.pid";

/// Leaves the terminal: the process that was called ends well, and this one goes on, in a session of its own
/// and without its standard streams. The directory stays, as paths are meant from it.
///
/// Must come before the first thread: only the one that calls goes on.
///
/// # Errors
///
/// With one line for people.
pub(super) fn leave_terminal() -> Result<(), String> {
    let gone = fork::daemon(true, false);
    gone.map(drop).map_err(|error| format!("could not go on in the background: {error}"))
}

/// The file with the number of the process, which is gone when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it where the parameters say, or where people look for a server in the background. One that
    /// cannot be written is no reason not to serve.
    pub(super) fn write(config: &Config, is_in_background: bool) -> Option<PidFile> {
        let path = config.pidfile.get();
        let path = match &*path {
            [] if is_in_background => Path::new(DEFAULT_PID_FILE),
            [] => return None,
            path => Path::new(OsStr::from_bytes(path)),
        };
        // It must be found again when it is to be removed.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match fs::write(&path, format!("{}\n", std::process::id())) {
            Ok(()) => Some(PidFile(path)),
            Err(error) => {
                tracing::warn!("Failed to write PID file {}: {}", path.display(), files::reason(&error));
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        tracing::info!("Removing the pid file.");
        // Somebody may have taken it away already.
        let _ = fs::remove_file(&self.0);
    }
}
