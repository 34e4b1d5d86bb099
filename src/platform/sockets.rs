//! What sockets of one system have and those of another have not: names outside the file system, a way
//! around the shortness of names, numbers of errors, and how a client that has gone is seen.
//!
//! macOS has neither the names nor the way: names are names of files, and a path that is too long is refused.
//! The numbers differ, and a client that has gone is seen by another flag.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether an error means that the machine lacks a family of addresses, such as IPv6. "Address family not
/// supported by protocol" has no kind of its own.
pub(crate) fn is_missing_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// Whether an error means that the system has no more sockets.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    const SHORTAGES: [i32; 4] = [libc::ENFILE, libc::EMFILE, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|number| SHORTAGES.contains(&number))
}

/// The address of a socket's file, as environment variables name it. On Linux, a name that begins with `@`
/// belongs to an abstract socket, which is not in the file system. No other system has those.
///
/// # Errors
///
/// If the name is too long.
pub(crate) fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let [b'@', name @ ..] = name.as_bytes() {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(OsStr::from_bytes(name.as_bytes()))
}

/// A short path of a file whose own path is too long for a socket's address: on Linux a process may name a
/// directory by the number under which it has opened it.
///
/// # Errors
///
/// On systems that have no such names.
#[cfg(target_os = "linux")]
pub(crate) fn short_path(directory: &File, name: &OsStr) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    Ok(PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

/// Would be a short path of a file whose own path is too long for a socket's address.
///
/// # Errors
///
/// Always: this system has no such names.
#[cfg(not(target_os = "linux"))]
pub(crate) fn short_path(_: &File, _: &OsStr) -> io::Result<PathBuf> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is too long for a socket"))
}

/// Whether the client at the other end of a socket sends nothing more. Of a client that waits for a long
/// reply this means that it has gone.
#[cfg(target_os = "linux")]
pub(crate) fn has_hung_up(socket: &OwnedFd) -> bool {
    let ends = PollFlags::from_bits_retain(libc::POLLRDHUP) | PollFlags::POLLHUP | PollFlags::POLLERR;
    let mut asked = [PollFd::new(socket.as_fd(), ends)];
    // If the system cannot tell, the client is there.
    poll(&mut asked, PollTimeout::ZERO).is_ok_and(|found| found > 0)
}

/// Whether the client at the other end of a socket sends nothing more. Here the system reports that as
/// `POLLHUP`, which on Linux means that both directions are closed.
#[cfg(not(target_os = "linux"))]
pub(crate) fn has_hung_up(socket: &OwnedFd) -> bool {
    let ends = PollFlags::POLLHUP | PollFlags::POLLERR;
    let mut asked = [PollFd::new(socket.as_fd(), ends)];
    // If the system cannot tell, the client is there.
    poll(&mut asked, PollTimeout::ZERO).is_ok()
        && asked[0].revents().is_some_and(|seen| seen.intersects(ends))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_client_has_hung_up_when_it_sends_nothing_more() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let server = OwnedFd::from(server);
        client.write_all(b"PING\r\n").unwrap();
        assert!(!has_hung_up(&server));
        client.shutdown(Shutdown::Write).unwrap();
        assert!(has_hung_up(&server));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_name_is_in_no_folder() {
        assert_eq!(address(OsStr::new("@keyfast/notify")).unwrap().as_pathname(), None);
        assert!(address(OsStr::new("/run/notify")).unwrap().as_pathname().is_some());
    }
}
