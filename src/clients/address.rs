//! Where clients connect from and to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The Unix socket.
    Unix(Arc<Path>),
}

impl Address {
    /// Whether the client is on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    /// Whether the client is at one of these IP addresses, which are words of a text.
    pub fn is_at(&self, addresses: &[u8]) -> bool {
        let Address::Tcp(own) = self else { return false };
        let own = own.ip().to_canonical();
        let words = addresses.split(u8::is_ascii_whitespace).filter_map(|word| str::from_utf8(word).ok());
        words.filter_map(|word| word.parse::<IpAddr>().ok()).any(|address| address.to_canonical() == own)
    }
}

/// As Redis prints them: the Unix socket has the port 0.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        let address = |text: &str| Address::Tcp(text.parse().unwrap());
        for local in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(address(local).is_local(), "{local}");
        }
        for other in ["192.0.2.1:1", "[2001:db8::1]:1", "[::ffff:192.0.2.1]:1"] {
            assert!(!address(other).is_local(), "{other}");
        }
        let gateway = address("172.17.0.1:50000");
        for (addresses, is_at) in
            [("", false), ("x 172.17.0.1", true), ("::ffff:172.17.0.1", true), ("172.17.0.2", false)]
        {
            assert_eq!(gateway.is_at(addresses.as_bytes()), is_at, "{addresses}");
        }
        let unix = Address::Unix(Path::new("/run/keyfast.sock").into());
        assert!(unix.is_local());
        assert_eq!(unix.to_string(), "/run/keyfast.sock:0");
    }
}
