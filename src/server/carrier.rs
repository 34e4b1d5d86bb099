//! What moves the bytes of a client. For most it is a [`Connection`]; a [`Runner`](super::runner::Runner)
//! knows only the [`Carrier`].

use std::future::Future;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::AsyncReadExt;

use crate::clients::{Backlog, Client, Permit};
use crate::instance::Instance;

use super::outflow::Outflow;
use super::wire::Wire;
use crate::host::rota::{Lane, LaneTicket};

/// Moves the bytes of one client.
pub(super) trait Carrier {
    /// Appends to `input` what the client has sent. Ready with 0 if it sends nothing more.
    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<io::Result<usize>>;

    /// Writes as much of `output` as the client takes now, and keeps the rest.
    ///
    /// # Errors
    ///
    /// If the client has left, or if its waiting output would exceed its limits.
    fn write_or_keep(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
        output: &mut Vec<u8>,
    ) -> io::Result<()>;

    /// Writes the waiting output. Ready once nothing waits.
    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
    ) -> Poll<io::Result<()>>;

    /// Whether output waits for the client.
    fn is_writing(&self) -> bool;

    /// Adds to the waiting output.
    fn append(&mut self, mail: Backlog);

    /// Keeps the permit of a long reply, which comes next, until the client has taken it.
    fn keep_permit(&mut self, permit: Permit);

    /// Ends it: the client has taken the reply at once.
    fn end_permit(&mut self);

    /// Disconnects the client before its last request is executed.
    fn cut_off(&mut self, client: &Client);

    /// Another handle of the socket, by which a thread can ask whether the client is still there; `None` if
    /// there is no socket, or the system has no more handles.
    fn socket(&self) -> Option<OwnedFd>;

    /// Has the task go on among those that are served in this lane.
    fn go_to(&self, lane: Lane) -> impl Future<Output = ()> + Send;

    /// Lets the clients that are ready be served first.
    fn step_aside(&self) -> impl Future<Output = ()> + Send;
}

/// A stream with a client at its other end: TCP, a Unix socket, TLS.
pub(super) struct Connection<Stream> {
    pub(super) stream: Stream,
    outflow: Outflow,
    ticket: LaneTicket,
}

impl<Stream: Wire> Connection<Stream> {
    pub(super) fn new(stream: Stream, ticket: LaneTicket) -> Connection<Stream> {
        Connection { stream, outflow: Outflow::default(), ticket }
    }
}

impl<Stream: Wire> Carrier for Connection<Stream> {
    #[inline]
    fn poll_read(&mut self, context: &mut Context<'_>, input: &mut BytesMut) -> Poll<io::Result<usize>> {
        // A short read shows the runtime that the socket is empty: it does not read again.
        pin!(self.stream.read_buf(input)).poll(context)
    }

    #[inline]
    fn write_or_keep(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        self.outflow.write_or_keep(&mut self.stream, context, instance, client, output)
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
    ) -> Poll<io::Result<()>> {
        self.outflow.poll_write(&mut self.stream, context, instance, client)
    }

    #[inline]
    fn is_writing(&self) -> bool {
        self.outflow.is_writing()
    }

    fn append(&mut self, mail: Backlog) {
        self.outflow.append(mail);
    }

    fn keep_permit(&mut self, permit: Permit) {
        self.outflow.keep_permit(permit);
    }

    fn end_permit(&mut self) {
        self.outflow.end_permit();
    }

    fn cut_off(&mut self, client: &Client) {
        self.outflow.forget(client);
        if let Some(socket) = self.stream.duplicate() {
            // If it fails, the client has left already.
            let _ = TcpStream::from(socket).shutdown(Shutdown::Both);
        }
    }

    fn socket(&self) -> Option<OwnedFd> {
        self.stream.duplicate()
    }

    fn go_to(&self, lane: Lane) -> impl Future<Output = ()> + Send {
        self.ticket.go_to(lane)
    }

    fn step_aside(&self) -> impl Future<Output = ()> + Send {
        self.ticket.step_aside()
    }
}
