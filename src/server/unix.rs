//! The Unix socket: opens it, and removes it again.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use crate::config::Config;
use crate::files::NamedFile;
use crate::platform::sockets;

/// The socket's file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(NamedFile);

impl SocketFile {
    /// Opens the socket at `unixsocket`, if that is set. Replaces a socket that an earlier server has left,
    /// as in Redis.
    pub(super) fn open(config: &Config) -> Result<Option<(UnixListener, SocketFile)>, String> {
        let Some(file) = config.file_of(&config.unixsocket) else { return Ok(None) };
        open(&file, config.unixsocketperm.get() as u32, config.tcp_backlog.get() as i32)
            .map(Some)
            .map_err(|error| format!("could not listen on {file}: {error}"))
    }

    /// The path in the parameter.
    pub(super) fn name(&self) -> &Path {
        &self.0.name
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have removed it already.
        let _ = fs::remove_file(&self.0.path);
    }
}

fn open(file: &NamedFile, permissions: u32, backlog: i32) -> io::Result<(UnixListener, SocketFile)> {
    let path = &file.path;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    bind(&socket, file)?;
    // The file belongs to this server from here on: a server that could not start never removes another
    // one's.
    let file = SocketFile(file.clone());
    if permissions != 0 {
        // Clients cannot connect before the socket listens, so they never meet other permissions than these.
        fs::set_permissions(path, Permissions::from_mode(permissions))?;
    }
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok((UnixListener::from_std(StdListener::from(socket))?, file))
}

/// Binds a socket to a file. An address has room for about a hundred bytes, in which the name in the
/// parameter must fit. The path that `dir` completes may be longer, where the system has a shorter one for
/// the same file.
fn bind(socket: &Socket, file: &NamedFile) -> io::Result<()> {
    let NamedFile { path, name } = file;
    SockAddr::unix(name)?;
    if let Ok(address) = SockAddr::unix(path) {
        return socket.bind(&address);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(directory)?;
    socket.bind(&SockAddr::unix(sockets::short_path(&directory, name)?)?)
}
