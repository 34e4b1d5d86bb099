//! A server inside a test's own process.
//!
//! A server's memory is counted by the allocator of the program that it is in, so `maxmemory` takes an
//! [`Allocator`] that counts; without one it is refused. Here a test has both:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! #[global_allocator]
//! static ALLOCATOR: keyfast::testing::Allocator = keyfast::testing::Allocator;
//!
//! let server = keyfast::testing::Server::with(&["--maxmemory", "2mb"]).unwrap();
//! let mut client = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
//! let mut ask = |line: &str, reply: &str| {
//!     client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
//!     let mut came = vec![0; reply.len()];
//!     client.read_exact(&mut came).unwrap();
//!     assert_eq!(String::from_utf8_lossy(&came), reply);
//! };
//! ask("SETNX lock me", ":1\r\n");
//! ask("SETRANGE much 3000000 x", ":3000001\r\n");
//! ask("SETNX lock:2 me", "-OOM command not allowed when used memory > 'maxmemory'.\r\n");
//! ```

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

pub use crate::allocator::Counted as Allocator;

use crate::allocator::{COUNTS_NOTHING, is_counting, report_at_end};
use crate::host::Host;
use crate::host::runtime::threads;
use crate::instance::Scale;
use crate::options::{Asked, parse};
use crate::server;

/// The options of a server that writes no file and listens on a free port of this machine.
const OPTIONS: &[&str] =
    &["keyfast", "--port", "0", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];

/// The threads of the servers, while there are servers.
static HOST: Mutex<Weak<Host>> = Mutex::new(Weak::new());

/// A server in this process, with a port and data of its own. It ends when it is dropped: its clients get
/// their replies, and its port is free. There may be many: an idle one takes some kilobytes and no thread.
/// All of them share the threads that the first one starts (`io-threads`), and that end with the last one.
#[derive(Debug)]
pub struct Server {
    /// There until the server is dropped.
    server: Option<server::Server>,
    port: u16,
}

impl Server {
    /// Starts a server on a free port of this machine. It writes no file.
    ///
    /// ```
    /// let server = keyfast::testing::Server::start();
    /// assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    /// ```
    ///
    /// # Panics
    ///
    /// With one line for people, if the server cannot start.
    pub fn start() -> Server {
        Server::with(&[]).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, with further options as the command line of `keyfast` takes them:
    /// `["--requirepass", "secret"]`.
    ///
    /// # Errors
    ///
    /// With one line for people.
    pub fn with(options: &[&str]) -> Result<Server, String> {
        let all = OPTIONS.iter().chain(options).map(Into::into);
        let Asked::Serve(startup) = parse(all, &[])? else {
            return Err("these options ask for a text, not for a server".to_owned());
        };
        if startup.config.maxmemory.size() > 0 && !is_counting() {
            return Err(format!("keyfast: option --maxmemory: {COUNTS_NOTHING}"));
        }
        let server = apart(|| {
            let host = host(threads(&startup.config))?;
            server::Server::start_on(host, Scale::small(), *startup)
        })?;
        Ok(Server { port: server.instance().port(), server: Some(server) })
    }

    /// The port on which the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the server as client libraries take it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            apart(|| server.stop());
        }
    }
}

/// The threads that the servers share, or new ones.
fn host(threads: usize) -> Result<Arc<Host>, String> {
    let mut known = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(host) = known.upgrade() {
        return Ok(host);
    }
    let host = server::Server::host(threads)?;
    *known = Arc::downgrade(&host);
    Ok(host)
}

/// Does something on a thread that belongs to no runtime, and waits for it. A test may be asynchronous, and
/// tokio lets no thread of a runtime wait for another one.
fn apart<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = || {
        report_at_end();
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap_or_else(|panic| resume_unwind(panic)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// The program of these tests has the allocator of every program that chooses none.
    #[test]
    fn a_limit_that_cannot_be_kept_is_refused() {
        let refused = Server::with(&["--maxmemory", "1mb"]).unwrap_err();
        assert!(refused.contains("keyfast::testing::Allocator"), "{refused}");
        let server = Server::with(&["--maxmemory", "0"]).unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        for (line, expected) in [
            (
                "CONFIG SET maxmemory 1mb",
                "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - ",
            ),
            ("CONFIG GET maxmemory", "*2\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n"),
            ("CONFIG SET maxmemory 0", "+OK\r\n"),
        ] {
            client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
            let mut reply = [0; 1000];
            let bytes = client.read(&mut reply).unwrap();
            let reply = String::from_utf8_lossy(&reply[..bytes]);
            assert!(reply.starts_with(expected) && reply.ends_with("\r\n"), "{line}: {reply}");
        }
    }
}
