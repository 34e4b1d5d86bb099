//! The Unix socket: opening it, and taking it away again.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use crate::config::Config;

/// The socket's place in the file system, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl SocketFile {
    /// Opens the socket where the parameters say, if they do. What a server before has left there is
    /// replaced, as in Redis.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub(super) fn open(config: &Config) -> Result<Option<(UnixListener, SocketFile)>, String> {
        let path = config.unixsocket.get();
        if path.is_empty() {
            return Ok(None);
        }
        let path = Path::new(OsStr::from_bytes(&path));
        open(path, config.unixsocketperm.get() as u32, config.tcp_backlog.get() as i32)
            .map(Some)
            .map_err(|error| format!("could not listen on {}: {error}", path.display()))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have taken it away already.
        let _ = fs::remove_file(&self.0);
    }
}

fn open(path: &Path, permissions: u32, backlog: i32) -> io::Result<(UnixListener, SocketFile)> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Ours from here on: what another server has made there is never taken away by one that could not start.
    let file = SocketFile(path.to_owned());
    if permissions != 0 {
        // Nobody can connect before the socket listens: it never has other permissions than these.
        fs::set_permissions(path, Permissions::from_mode(permissions))?;
    }
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok((UnixListener::from_std(StdListener::from(socket))?, file))
}
