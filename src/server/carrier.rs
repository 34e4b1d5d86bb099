//! What moves the bytes of a client: a stream, and the output that the client has not taken yet. Output is
//! written at once if possible, and otherwise kept until it can be written.

use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::clients::{Backlog, Client, Output, Permit};
use crate::host::rota::{Lane, LaneTicket};
use crate::instance::Instance;
use crate::platform::sockets::{bound_silence, keep_alive, set_patience, silence};
use crate::statistics::Count;

use super::buffers;
use super::wire::Wire;

/// Less output than this is not checked against the limits, which do not count such small amounts.
const LITTLE_BYTES: usize = Client::FREE_OUTPUT_BYTES;

/// A stream with a client at its other end, and the output that waits for the client.
pub(super) struct Carrier<Stream> {
    pub(super) stream: Stream,
    ticket: LaneTicket,
    backlog: Backlog,
    /// Whether the stream (TLS) holds back some of what it has taken.
    is_held_back: bool,
    /// Whether CLIENT LIST shows waiting output.
    is_shown: bool,
    /// Counts the memory of a long reply, until the client has taken it.
    permit: Option<Permit>,
}

impl<Stream: Wire> Carrier<Stream> {
    pub(super) fn new(stream: Stream, ticket: LaneTicket) -> Carrier<Stream> {
        let backlog = Backlog::default();
        Carrier { stream, ticket, backlog, is_held_back: false, is_shown: false, permit: None }
    }

    /// Appends to `input` what the client has sent. Ready with 0 if it sends nothing more.
    #[inline]
    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        input: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        // A short read shows the runtime that the socket is empty: it does not read again.
        pin!(self.stream.read_buf(input)).poll(context)
    }

    /// Whether output waits for the client.
    #[inline]
    pub(super) fn is_writing(&self) -> bool {
        !self.backlog.is_empty() || self.is_held_back
    }

    /// Keeps the permit of a long reply, which comes next, until the client has taken it.
    pub(super) fn keep_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Ends it: the client has taken the reply at once.
    pub(super) fn end_permit(&mut self) {
        self.permit = None;
    }

    /// Disconnects the client before its last request is executed. Drops all output.
    pub(super) fn cut_off(&mut self, client: &Client) {
        self.backlog = Backlog::default();
        self.permit = None;
        (self.is_held_back, self.is_shown) = (false, false);
        client.set_output(Output::default());
        if let Some(socket) = self.stream.duplicate() {
            // If it fails, the client has left already.
            let _ = TcpStream::from(socket).shutdown(Shutdown::Both);
        }
    }

    /// Ends the output, and drops what the client still sends, for a moment. If a socket is closed while
    /// there is input that was not read, the system drops output that has not arrived.
    pub(super) async fn linger(&mut self) {
        const MOMENT: Duration = Duration::from_secs(1);
        let mut dropped = [0; 4096];
        let ending = async {
            let _ = self.stream.shutdown().await;
            while self.stream.read(&mut dropped).await.is_ok_and(|read| read > 0) {}
        };
        let _ = timeout(MOMENT, ending).await;
    }

    /// Another handle of the socket, by which a thread can ask whether the client is still there; `None` if
    /// the system has no more handles.
    pub(super) fn socket(&self) -> Option<OwnedFd> {
        self.stream.duplicate()
    }

    /// Has the silence of the client noticed within a lease, in milliseconds, or as usual if that is 0. A
    /// Unix socket needs none of it.
    #[cold]
    pub(super) fn bound_silence(&self, lease_ms: u64, instance: &Instance) {
        let Some(socket) = self.socket() else { return };
        let (socket, usual) = (|| SockRef::from(&socket), instance.keepalive());
        let _ = match lease_ms {
            0 => set_patience(socket(), None).and_then(|()| keep_alive(socket(), usual)),
            _ => bound_silence(socket(), Duration::from_millis(lease_ms), usual),
        };
    }

    /// For how long the client has given no sign of life, if that is known.
    pub(super) fn silence(&self) -> Option<Duration> {
        silence(&self.socket()?)
    }

    /// Has the task go on among those that are served in this lane.
    pub(super) fn go_to(&self, lane: Lane) -> impl Future<Output = ()> + Send {
        self.ticket.go_to(lane)
    }

    /// Lets the clients that are ready be served first.
    pub(super) fn step_aside(&self) -> impl Future<Output = ()> + Send {
        self.ticket.step_aside()
    }

    /// Adds to the waiting output.
    pub(super) fn append(&mut self, other: Backlog) {
        self.backlog.append(other);
    }

    /// Writes as much of `output` as the socket takes now, and keeps the rest.
    ///
    /// # Errors
    ///
    /// If the client has left, or if its waiting output would exceed its limits.
    #[inline]
    pub(super) fn write_or_keep(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        let total = self.backlog.bytes() + output.len();
        let is_much = total > LITTLE_BYTES;
        if is_much && !client.may_hold(total) {
            return Err(made_to_leave());
        }
        if !self.backlog.is_empty() {
            buffers::give_back_output(self.backlog.push(std::mem::take(output), 0));
            let _ = self.poll_write(context, instance, client)?;
            return Ok(());
        }
        let mut written = 0;
        while written < output.len() {
            let Poll::Ready(more) = Pin::new(&mut self.stream).poll_write(context, &output[written..])?
            else {
                return self.keep(instance, client, output, written);
            };
            count_write(instance, client, more)?;
            written += more;
        }
        buffers::give_back_output(std::mem::take(output));
        self.is_held_back = Pin::new(&mut self.stream).poll_flush(context)?.is_pending();
        if is_much {
            // The time of the soft limit begins anew.
            client.may_hold(0);
        }
        Ok(())
    }

    /// Keeps the rest that was not `written`.
    #[cold]
    fn keep(
        &mut self,
        instance: &Instance,
        client: &Client,
        output: &mut Vec<u8>,
        written: usize,
    ) -> io::Result<()> {
        if written > 0 {
            // A client that reads slowly is not idle.
            client.note_taken(instance.clients.now_ms());
        }
        buffers::give_back_output(self.backlog.push(std::mem::take(output), written));
        self.show(client);
        Ok(())
    }

    /// Writes the waiting output. Ready once nothing waits.
    #[cold]
    pub(super) fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
    ) -> Poll<io::Result<()>> {
        let before = self.backlog.bytes();
        while !self.backlog.is_empty() {
            let Poll::Ready(more) = Pin::new(&mut self.stream).poll_write(context, self.backlog.front())?
            else {
                break;
            };
            count_write(instance, client, more)?;
            self.backlog.take(more);
        }
        if self.backlog.bytes() < before {
            client.note_taken(instance.clients.now_ms());
        }
        self.show(client);
        if !self.backlog.is_empty() {
            return Poll::Pending;
        }
        self.permit = None;
        // TLS may hold some output back, and wait for the client as a write does.
        self.is_held_back = true;
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.is_held_back = false;
        Poll::Ready(Ok(()))
    }

    /// Shows other clients how much output waits. Does nothing if that is nothing, as before.
    fn show(&mut self, client: &Client) {
        let is_waiting = !self.backlog.is_empty();
        if is_waiting || self.is_shown {
            client.set_output(Output {
                bytes: self.backlog.bytes(),
                pieces: self.backlog.pieces(),
                memory_bytes: self.backlog.memory_bytes(),
            });
        }
        if self.is_shown && !is_waiting {
            client.may_hold(0);
        }
        self.is_shown = is_waiting;
    }
}

fn count_write(instance: &Instance, client: &Client, bytes: usize) -> io::Result<()> {
    if bytes == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    }
    instance.statistics.add(Count::Writes, 1);
    instance.statistics.add(Count::OutputBytes, bytes as u64);
    client.traffic.output_bytes.add(bytes as u64);
    Ok(())
}

/// The error that ends the connection of a client that must leave.
pub(super) fn made_to_leave() -> io::Error {
    io::Error::other("it was made to leave")
}
