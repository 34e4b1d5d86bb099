//! The streams over which clients speak: TCP, a Unix socket, TLS.

use std::os::fd::{AsFd, OwnedFd};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::secure::SecureStream;

/// A stream with a client at its other end.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// Another handle of its socket, by which a thread can ask whether the client is still there; `None` if
    /// the system has no more.
    fn duplicate(&self) -> Option<OwnedFd>;
}

impl Wire for TcpStream {
    fn duplicate(&self) -> Option<OwnedFd> {
        self.as_fd().try_clone_to_owned().ok()
    }
}

impl Wire for UnixStream {
    fn duplicate(&self) -> Option<OwnedFd> {
        self.as_fd().try_clone_to_owned().ok()
    }
}

impl Wire for SecureStream {
    fn duplicate(&self) -> Option<OwnedFd> {
        self.socket.duplicate()
    }
}
