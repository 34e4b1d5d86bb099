//! What sockets of one system have and those of another have not: names outside the file system, a way
//! around the shortness of names, numbers of errors, and how a client that has gone is seen, by its hanging
//! up or by its silence.
//!
//! macOS has neither the names nor the way: names are names of files, and a path that is too long is refused.
//! The numbers differ, and a client that has gone is seen by another flag. How long it has been silent is not
//! known there.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
#[cfg(target_os = "linux")]
use nix::{getsockopt_impl, sockopt_impl};
use socket2::{SockRef, TcpKeepalive};

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

/// Has the system probe the peer of an idle TCP connection: for the first time after `interval`, and end the
/// connection if three probes are not answered. As Redis sets it, a dead peer is found after twice the
/// interval. Without an interval there are no probes.
///
/// # Errors
///
/// If the socket is no TCP socket.
pub(crate) fn keep_alive(socket: SockRef<'_>, interval: Option<Duration>) -> io::Result<()> {
    let Some(interval) = interval else { return socket.set_keepalive(false) };
    let probes_every = Duration::from_secs((interval.as_secs() / 3).max(1));
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(probes_every).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)
}

/// Has the system end a TCP connection whose peer gives no sign of life for two thirds of a lease. It is
/// probed from the first third on, or after the `usual` interval if that is shorter. The system counts whole
/// seconds, so a lease should have three at least. A peer on the same machine needs none of it.
///
/// # Errors
///
/// If the socket is no TCP socket.
pub(crate) fn bound_silence(socket: SockRef<'_>, lease: Duration, usual: Option<Duration>) -> io::Result<()> {
    /// More than this the system refuses.
    const INTERVAL_S_MAX: u64 = 32_767;
    let most_s = usual.map_or(INTERVAL_S_MAX, |usual| usual.as_secs().clamp(1, INTERVAL_S_MAX));
    let interval = Duration::from_secs((lease.as_secs() / 3).clamp(1, most_s));
    let every = Duration::from_secs(1);
    // The time ends the connection, and not a number of probes.
    let probes = 2 + interval.as_secs().min(100) as u32;
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(every).with_retries(probes);
    socket.set_tcp_keepalive(&keepalive)?;
    set_patience(socket, Some(2 * interval))
}

/// Sets for how long the system waits for an acknowledgement; `None` for its usual time.
///
/// # Errors
///
/// If the socket is no TCP socket.
#[cfg(target_os = "linux")]
pub(crate) fn set_patience(socket: SockRef<'_>, patience: Option<Duration>) -> io::Result<()> {
    socket.set_tcp_user_timeout(patience.or(Some(Duration::ZERO)))
}

/// Would set for how long the system waits for an acknowledgement: here the number of probes decides.
///
/// # Errors
///
/// None.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_patience(_: SockRef<'_>, _: Option<Duration>) -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
sockopt_impl!(
    /// What the system knows of a TCP connection.
    TcpState,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// For how long the peer of a TCP connection has given no sign of life, whether the connection has ended or
/// not; `None` where that is not known.
#[cfg(target_os = "linux")]
pub(crate) fn silence(socket: &OwnedFd) -> Option<Duration> {
    let state = nix::sys::socket::getsockopt(socket, TcpState).ok()?;
    let silent_ms = state.tcpi_last_data_recv.min(state.tcpi_last_ack_recv);
    Some(Duration::from_millis(u64::from(silent_ms)))
}

/// Would be for how long the peer of a TCP connection has given no sign of life.
#[cfg(not(target_os = "linux"))]
pub(crate) fn silence(_: &OwnedFd) -> Option<Duration> {
    None
}

/// Whether an error means that the peer gave no sign of life any more, and did not end the connection itself.
pub(crate) fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), TimedOut | HostUnreachable | NetworkUnreachable)
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
    fn a_peer_is_probed_after_a_third_of_a_lease_and_never_later_than_usual() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (minutes, year) = (Duration::from_secs(300), Duration::from_secs(31_536_000));
        for (lease_ms, usual, interval_s) in [
            (100, Some(minutes), 1),
            (30_999, Some(minutes), 10),
            (30_000, None, 10),
            (10_000_000, Some(minutes), 300),
            (u64::MAX, None, 32_767),
            (u64::MAX, Some(year), 32_767),
        ] {
            let socket = || SockRef::from(&stream);
            bound_silence(socket(), Duration::from_millis(lease_ms), usual).unwrap();
            let interval = Duration::from_secs(interval_s);
            assert_eq!(socket().tcp_keepalive_time().unwrap(), interval);
            assert_eq!(socket().tcp_user_timeout().unwrap(), Some(2 * interval));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_name_is_in_no_folder() {
        assert_eq!(address(OsStr::new("@keyfast/notify")).unwrap().as_pathname(), None);
        assert!(address(OsStr::new("/run/notify")).unwrap().as_pathname().is_some());
    }
}
