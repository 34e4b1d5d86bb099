//! Running in the background (`daemonize`), and the PID file.
//!
//! The process that the user has started waits until the server is ready or cannot start, and returns the
//! matching exit code. Without that, `keyfast --daemonize yes` would succeed although its port is taken.

use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::PathBuf;

use crate::config::Config;
use crate::files;

/// The PID file of a background server without `pidfile`. As in Redis.
const DEFAULT_PID_FILE: &str = "/var/run/redis.pid";

/// The message to the waiting process, when clients are served.
const READY: &[u8] = b"ready";

/// The process that the user has started, which waits for the server's message.
#[derive(Debug)]
pub(super) struct Caller(Option<PipeWriter>);

impl Caller {
    /// For a server in the foreground: the user sees its output.
    pub(super) fn none() -> Caller {
        Caller(None)
    }

    /// Leaves the terminal: the server continues as a new process in a session of its own, without standard
    /// streams. The original process waits as the caller. The working directory stays, because paths are
    /// relative to it.
    ///
    /// Must be called before the first other thread starts: only the calling thread continues.
    pub(super) fn leave() -> Result<Caller, String> {
        let failed = |error| format!("cannot continue in the background: {}", files::reason(&error));
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

    /// Ends the caller with success: the server is ready.
    pub(super) fn tell_ready(&mut self) {
        self.tell(READY);
    }

    /// Makes the caller print why the server does not start, and fail. Has no effect after
    /// [`tell_ready`](Self::tell_ready).
    pub(super) fn tell_failure(&mut self, why: &str) {
        self.tell(why.as_bytes());
    }

    fn tell(&mut self, message: &[u8]) {
        if let Some(mut writer) = self.0.take() {
            // If the user has stopped the waiting process, the message is not wanted.
            let _ = writer.write_all(message);
        }
    }
}

/// Waits for the server's message, and ends this process.
fn wait_as_caller(mut reader: PipeReader) -> ! {
    let mut message = Vec::new();
    // The pipe closes when the server ends.
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

/// The PID file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the file to `pidfile`, or for a background server to the default place. If it cannot be
    /// written, the server runs without it.
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
        // Another process may have removed it already.
        let _ = fs::remove_file(&self.0);
    }
}
