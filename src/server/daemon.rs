//! Going on in the background, and the file that says as which process.
//!
//! The process that the user has called waits until the server is ready, or cannot start, and ends with the
//! exit code that says so. Without that, `keyfast --daemonize yes` would succeed although its port is taken.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::PathBuf;

use crate::config::Config;
use crate::files;

/// Where the number is written by a server in the background that was not told where. As in Redis.
const DEFAULT_PID_FILE: &str = "/var/run/redis.pid";

/// What the server sends to the process that has called it, once clients are served.
const READY: &[u8] = b"ready";

/// The process that has called a server in the background, and waits to hear of it.
#[derive(Debug)]
pub(super) struct Caller(Option<PipeWriter>);

impl Caller {
    /// For a server in the foreground: the user sees what it prints.
    pub(super) fn none() -> Caller {
        Caller(None)
    }

    /// Leaves the terminal: this process goes on in a session of its own, without its standard streams. The
    /// process that was called stays behind as the caller. The directory stays, as paths are meant from it.
    ///
    /// Must come before the first thread: only the one that calls goes on.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub(super) fn leave() -> Result<Caller, String> {
        let failed = |error| format!("could not go on in the background: {}", files::reason(&error));
        let (reader, writer) = pipe().map_err(failed)?;
        match fork::fork().map_err(failed)? {
            fork::Fork::Parent(_) => {
                drop(writer);
                wait_as_caller(reader)
            }
            fork::Fork::Child => {
                drop(reader);
                let mut caller = Caller(Some(writer));
                match fork::daemon(true, false).map_err(failed) {
                    Ok(_) => Ok(caller),
                    Err(why) => {
                        caller.tell(why.as_bytes());
                        Err(why)
                    }
                }
            }
        }
    }

    /// Has the caller end well: the server is ready.
    pub(super) fn tell_ready(&mut self) {
        self.tell(READY);
    }

    /// Has the caller print why the server does not start, and fail. Nothing happens once it was ready.
    pub(super) fn tell_failure(&mut self, why: &str) {
        self.tell(why.as_bytes());
    }

    fn tell(&mut self, message: &[u8]) {
        if let Some(mut writer) = self.0.take() {
            // A user who has stopped the waiting process does not want to hear of it.
            let _ = writer.write_all(message);
        }
    }
}

/// Waits for the server's message and ends this process.
fn wait_as_caller(mut reader: PipeReader) -> ! {
    let mut message = Vec::new();
    // The pipe closes with the server at the latest.
    let _ = reader.read_to_end(&mut message);
    if message == READY {
        std::process::exit(0);
    }
    if message.is_empty() {
        message.extend(b"the server ended before it was ready; its log may say why");
    }
    eprintln!("keyfast: {}", String::from_utf8_lossy(&message));
    std::process::exit(1)
}

/// The file with the number of the process, which is gone when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it where the parameters say, or where people look for a server in the background. One that
    /// cannot be written is no reason not to serve.
    pub(super) fn write(config: &Config, is_in_background: bool) -> Option<PidFile> {
        let path = match config.file_of(&config.pidfile) {
            Some(file) => file.path,
            None if is_in_background => PathBuf::from(DEFAULT_PID_FILE),
            None => return None,
        };
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
