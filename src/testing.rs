//! A server inside a test's own process.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! let server = keyfast::testing::Server::start();
//! let mut client = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
//! client.write_all(b"SETNX lock me\r\n").unwrap();
//! let mut reply = [0; 4];
//! client.read_exact(&mut reply).unwrap();
//! assert_eq!(&reply, b":1\r\n");
//! ```

use crate::options::{Asked, parse};
use crate::server;

/// The options of a server that writes no file and listens on a free port of this machine.
const OPTIONS: &[&str] =
    &["keyfast", "--port", "0", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];

/// A server in this process, with a port and data of its own. It ends when it is dropped: its clients get
/// their replies, and its port and threads are free. There may be several.
#[derive(Debug)]
pub struct Server {
    /// There until the server is dropped.
    server: Option<server::Server>,
    port: u16,
}

impl Server {
    /// Starts a server on a free port of this machine. It writes no file.
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
        let server = server::Server::start(*startup)?;
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
            server.stop();
        }
    }
}
