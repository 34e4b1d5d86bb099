//! The socket to a server: sends bytes, receives replies.
//!
//! A client waits for one thing at a time, or for that and Ctrl-C. The runtime is there for the second case,
//! for TLS, and for `--pipe`, which reads while it writes.

use std::fmt;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime::Runtime;
use tokio::signal::unix::Signal;
use tokio::time::{sleep, timeout};

use super::options::{Addresses, Options};
use super::plain_text;
use super::replies::{Decoder, Message};
use super::tls::{self, Refusal};
use crate::platform::terminal;

/// How often an idle connection is tested. Redis: `REDIS_CLI_KEEPALIVE_INTERVAL`.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How often the client looks for input while it waits for messages.
const INPUT_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// A stream of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// An open connection.
pub(super) struct Connection {
    runtime: Rc<Runtime>,
    stream: Box<dyn Stream>,
    decoder: Decoder,
    piece: Vec<u8>,
}

/// Why there is no reply.
pub(super) enum Failure {
    Closed,
    System(io::Error),
    Protocol(String),
    /// The user has pressed Ctrl-C.
    Interrupted,
}

impl Failure {
    /// Whether a new connection may help.
    pub(super) fn is_loss(&self) -> bool {
        match self {
            Failure::Closed => true,
            Failure::System(error) => {
                matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
            }
            Failure::Protocol(_) | Failure::Interrupted => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Closed => f.write_str("Server closed the connection"),
            Failure::System(error) => f.write_str(&plain_text(error)),
            Failure::Protocol(why) => f.write_str(why),
            Failure::Interrupted => f.write_str("Interrupted"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            // The TLS connection has ended without a closing message.
            ErrorKind::UnexpectedEof => Failure::Closed,
            _ => Failure::System(error),
        }
    }
}

impl Connection {
    /// Connects to the server that the options name.
    pub(super) fn open(runtime: &Rc<Runtime>, options: &Options) -> Result<Connection, String> {
        let stream = runtime.block_on(open(options))?;
        Ok(Connection {
            runtime: Rc::clone(runtime),
            stream,
            decoder: Decoder::default(),
            piece: vec![0; READ_BYTES],
        })
    }

    /// Sends bytes; waits until the socket has taken all of them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.runtime.block_on(async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        })?)
    }

    /// The next message: a reply, or a push.
    pub(super) fn receive(&mut self, interrupt: Option<&mut Signal>) -> Result<Message, Failure> {
        let Connection { runtime, stream, decoder, piece } = self;
        runtime.block_on(async {
            match interrupt {
                None => receive(stream, decoder, piece).await,
                Some(interrupt) => tokio::select! {
                    reply = receive(stream, decoder, piece) => reply,
                    _ = interrupt.recv() => Err(Failure::Interrupted),
                },
            }
        })
    }

    /// The next message, or `None` if there is input for the program before one comes.
    pub(super) fn receive_unless_input(
        &mut self,
        interrupt: Option<&mut Signal>,
    ) -> Result<Option<Message>, Failure> {
        let Connection { runtime, stream, decoder, piece } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                reply = receive(stream, decoder, piece) => reply.map(Some),
                () = interrupted(interrupt) => Err(Failure::Interrupted),
                () = has_input() => Ok(None),
            }
        })
    }

    /// The parts of the connection, for a caller that reads and writes at the same time.
    pub(super) fn into_parts(self) -> (Rc<Runtime>, Box<dyn Stream>, Decoder) {
        (self.runtime, self.stream, self.decoder)
    }
}

/// Waits for Ctrl-C, if it does not end the program.
async fn interrupted(interrupt: Option<&mut Signal>) {
    match interrupt {
        Some(interrupt) => _ = interrupt.recv().await,
        None => pending().await,
    }
}

/// Waits until standard input has something, or ends.
async fn has_input() {
    while !terminal::has_input() {
        sleep(INPUT_INTERVAL).await;
    }
}

/// Reads until a whole message is there.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    decoder: &mut Decoder,
    piece: &mut [u8],
) -> Result<Message, Failure> {
    loop {
        if let Some(reply) = decoder.take_reply().map_err(Failure::Protocol)? {
            return Ok(reply);
        }
        let length = stream.read(piece).await?;
        if length == 0 {
            return Err(Failure::Closed);
        }
        decoder.extend(&piece[..length]);
    }
}

/// Connects to the addresses of the host, one after the other.
async fn connect(options: &Options) -> io::Result<TcpStream> {
    let mut addresses: Vec<_> = lookup_host((options.host.as_str(), options.port)).await?.collect();
    match options.addresses {
        Addresses::Any => {}
        Addresses::Ipv4 => addresses.sort_by_key(|address| !address.is_ipv4()),
        Addresses::Ipv6 => addresses.sort_by_key(|address| !address.is_ipv6()),
    }
    TcpStream::connect(&*addresses).await
}

/// Connects to the server that the options name, within their time, if they have one.
async fn open(options: &Options) -> Result<Box<dyn Stream>, String> {
    let place = match &options.socket {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.host, options.port),
    };
    let reached = match options.timeout {
        None => reach(options).await,
        Some(limit) => {
            let late = |_| Err(Unreached::System(io::Error::other("Connection timed out")));
            timeout(limit, reach(options)).await.unwrap_or_else(late)
        }
    };
    reached.map_err(|why| match why {
        Unreached::System(error) => format!("Could not connect to Redis at {place}: {}", plain_text(&error)),
        Unreached::Tls(Refusal::Options(why)) => format!("Could not negotiate a TLS connection: {why}"),
        Unreached::Tls(Refusal::Greeting(why)) => {
            format!("Could not connect to Redis at {place}: SSL_connect failed: {why}")
        }
    })
}

/// Why there is no connection.
enum Unreached {
    System(io::Error),
    Tls(Refusal),
}

async fn reach(options: &Options) -> Result<Box<dyn Stream>, Unreached> {
    if let Some(path) = &options.socket {
        return Ok(Box::new(UnixStream::connect(path).await.map_err(Unreached::System)?));
    }
    let stream = connect(options).await.map_err(Unreached::System)?;
    // Without these options the connection is slower, or a lost server is noticed later.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream)
        .set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3));
    match &options.tls {
        None => Ok(Box::new(stream)),
        Some(tls) => {
            let greeted = tls::greet(stream, &options.host, tls).await;
            Ok(Box::new(greeted.map_err(Unreached::Tls)?))
        }
    }
}
