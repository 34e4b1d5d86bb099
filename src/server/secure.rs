//! TLS on a socket, with hardly any memory while nothing passes.
//!
//! The usual stream of the library keeps a buffer for records after the first read. Over thousands of clients
//! that wait, this would be more than everything else about them. Here bytes are read, decrypted and
//! encrypted in a buffer of the thread. A connection keeps only what cannot go on now: the beginning of a
//! record, text that the reader did not take, and records that the socket did not take.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::server::UnbufferedServerConnection;
use tokio_rustls::rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use tokio_rustls::rustls::{Error, ServerConfig};

/// Text that is encrypted at a time: four of the longest records.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The thread's buffer: such a text, and what its records, and one about keys, take beside it.
const SCRATCH_BYTES: usize = TEXT_BYTES_MAX + (2 << 10);
/// Bytes per read: two of the longest records.
const READ_BYTES: usize = 32 << 10;
/// Room for the record that ends the stream.
const END_BYTES: usize = 256;

/// A stream of TLS, on the side of the server.
pub(super) struct SecureStream {
    pub(super) socket: TcpStream,
    session: Session,
    /// Text that the reader has not taken.
    text: Vec<u8>,
}

/// What both sides have agreed on, and the records that are under way.
struct Session {
    tls: Box<UnbufferedServerConnection>,
    /// The beginning of a record that is not whole.
    received: Vec<u8>,
    /// Records that the socket has not taken.
    sent: Vec<u8>,
    /// Whether the client has said that it sends nothing more.
    has_client_ended: bool,
    /// Whether the server has said so.
    has_ended: bool,
    /// Whether there was an error, after which the library must not be asked again.
    is_broken: bool,
}

/// Lends the thread's buffer.
fn with_scratch<T>(act: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut scratch = SCRATCH.take();
    scratch.resize(SCRATCH_BYTES, 0);
    let result = act(&mut scratch);
    SCRATCH.set(scratch);
    result
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl SecureStream {
    /// Makes the handshake with a client.
    ///
    /// # Errors
    ///
    /// If the client's part of it is wrong.
    pub(super) async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<SecureStream> {
        let tls = Box::new(UnbufferedServerConnection::new(config).map_err(invalid)?);
        let (received, sent) = (Vec::new(), Vec::new());
        let session =
            Session { tls, received, sent, has_client_ended: false, has_ended: false, is_broken: false };
        let mut stream = SecureStream { socket, session, text: Vec::new() };
        std::future::poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(stream)
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(context))?;
            if !self.session.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(context, None))? == 0 {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof")));
            }
        }
    }

    /// Reads what the socket has. The text in it goes into `target`, as much as it takes, and the rest waits.
    /// Ready with the number of bytes that the socket had.
    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        mut target: Option<&mut ReadBuf<'_>>,
    ) -> Poll<io::Result<usize>> {
        let SecureStream { socket, session, text } = self;
        let mut take = |record: &[u8]| {
            let room = target.as_ref().map_or(0, |target| target.remaining());
            let (taken, rest) = record.split_at(record.len().min(room));
            if let Some(target) = &mut target {
                target.put_slice(taken);
            }
            text.extend_from_slice(rest);
        };
        let received = ready!(with_scratch(|scratch| {
            let mut read = ReadBuf::new(&mut scratch[..READ_BYTES]);
            ready!(Pin::new(socket).poll_read(context, &mut read))?;
            let bytes = read.filled().len();
            Poll::Ready(session.receive(&mut scratch[..bytes], &mut take).map(|()| bytes))
        }));
        if received.is_err() {
            // The client may learn what is wrong.
            let _ = self.poll_send(context);
        }
        Poll::Ready(received)
    }

    /// Writes the records that wait to the socket. Ready once none waits.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = &mut self.session.sent;
        while !sent.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_write(context, sent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes if bytes == sent.len() => *sent = Vec::new(),
                bytes => drop(sent.drain(..bytes)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Session {
    /// Takes bytes from the socket. Calls `take` with the text in them.
    fn receive(&mut self, bytes: &mut [u8], take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.received.is_empty() {
            let done = self.process(bytes, take).map_err(invalid)?;
            self.received = bytes[done..].to_vec();
        } else {
            let mut records = std::mem::take(&mut self.received);
            records.extend_from_slice(bytes);
            let done = self.process(&mut records, take).map_err(invalid)?;
            self.received = records[done..].to_vec();
        }
        Ok(())
    }

    /// Goes on as far as these records allow. Returns how many bytes of them are done with.
    fn process(&mut self, records: &mut [u8], take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let mut done = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut records[done..]);
            let mut goes_on = true;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        take(record.payload);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut self.sent)?,
                // They are sent in order, before anything else.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => self.has_client_ended = true,
                Ok(_) => goes_on = false,
                Err(error) => {
                    self.is_broken = true;
                    // What is no record at all must not be seen again.
                    let begin = match error {
                        Error::InvalidMessage(_) => records.len(),
                        _ => done + discard,
                    };
                    self.queue_alert(&mut records[begin..]);
                    return Err(error);
                }
            }
            done += discard;
            if !goes_on {
                return Ok(done);
            }
        }
    }

    /// Queues what the client should know of an error. The library goes on with these records.
    fn queue_alert(&mut self, records: &mut [u8]) {
        while let Ok(ConnectionState::EncodeTlsData(data)) = self.tls.process_tls_records(records).state {
            if encode(data, &mut self.sent).is_err() {
                break;
            }
        }
    }

    /// Encrypts some text, or the end of the stream, into a buffer. Returns the bytes of its records. Those
    /// that were queued before have to be sent before them.
    fn encrypt(&mut self, text: Option<&[u8]>, records: &mut [u8]) -> io::Result<usize> {
        if self.is_broken {
            return Err(io::ErrorKind::NotConnected.into());
        }
        // There is no whole record in it.
        let mut received = std::mem::take(&mut self.received);
        let processed = self.process(&mut received, &mut |_text| {});
        received.drain(..processed.map_err(invalid)?);
        let bytes = match self.tls.process_tls_records(&mut received).state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => match text {
                Some(text) => traffic.encrypt(text, records).map_err(io::Error::other)?,
                None => traffic.queue_close_notify(records).map_err(io::Error::other)?,
            },
            _ => return Err(io::ErrorKind::NotConnected.into()),
        };
        self.received = received;
        Ok(bytes)
    }
}

/// Appends a record that the library has made.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, records: &mut Vec<u8>) -> Result<(), Error> {
    let begin = records.len();
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        records.resize(begin + size.required_size, 0);
        let encoded = data.encode(&mut records[begin..]);
        encoded.map_err(|error| Error::General(error.to_string()))?;
    }
    Ok(())
}

impl AsyncRead for SecureStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = target.filled().len();
        while target.filled().len() == before {
            if !stream.text.is_empty() {
                let taken = stream.text.len().min(target.remaining());
                target.put_slice(&stream.text[..taken]);
                stream.text.drain(..taken);
                stream.text.shrink_to_fit();
                break;
            }
            if stream.session.has_client_ended {
                break;
            }
            if ready!(stream.poll_receive(context, Some(target)))? == 0 {
                // A client that ends properly says so first.
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, text: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        ready!(stream.poll_send(context))?;
        let text = &text[..text.len().min(TEXT_BYTES_MAX)];
        with_scratch(|scratch| {
            let bytes = stream.session.encrypt(Some(text), scratch)?;
            let mut written = 0;
            while stream.session.sent.is_empty() && written < bytes {
                match Pin::new(&mut stream.socket).poll_write(context, &scratch[written..bytes])? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(more) => written += more,
                    Poll::Pending => break,
                }
            }
            stream.session.sent.extend_from_slice(&scratch[written..bytes]);
            Poll::Ready(Ok(text.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_send(context))?;
        Pin::new(&mut stream.socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if !std::mem::replace(&mut stream.session.has_ended, true) {
            let mut record = [0; END_BYTES];
            let bytes = stream.session.encrypt(None, &mut record)?;
            stream.session.sent.extend_from_slice(&record[..bytes]);
        }
        ready!(stream.poll_send(context))?;
        Pin::new(&mut stream.socket).poll_shutdown(context)
    }
}
