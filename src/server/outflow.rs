//! The output of a connection: written to the socket at once if possible, otherwise kept until it can be
//! written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use crate::clients::{Backlog, Client, Output, Permit};
use crate::instance::Instance;
use crate::statistics::Count;

use super::buffers;

/// Less output than this is not checked against the limits, which do not count such small amounts.
const LITTLE_BYTES: usize = Client::FREE_OUTPUT_BYTES;

/// The output that the client has not read yet.
#[derive(Debug, Default)]
pub(super) struct Outflow {
    backlog: Backlog,
    /// Whether the stream (TLS) holds back some of what it has taken.
    is_held_back: bool,
    /// Whether CLIENT LIST shows waiting output.
    is_shown: bool,
    /// Counts the memory of a long reply, until the client has taken it.
    permit: Option<Permit>,
}

impl Outflow {
    /// Whether anything waits.
    #[inline]
    pub(super) fn is_writing(&self) -> bool {
        !self.backlog.is_empty() || self.is_held_back
    }

    /// Keeps the permit of a long reply, which comes next.
    pub(super) fn keep_permit(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Ends it: the client has taken the reply at once.
    pub(super) fn end_permit(&mut self) {
        self.permit = None;
    }

    /// Drops all output: nothing more is written.
    pub(super) fn forget(&mut self, client: &Client) {
        *self = Outflow::default();
        client.set_output(Output::default());
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
    pub(super) fn write_or_keep<Stream: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut Stream,
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
            let _ = self.poll_write(stream, context, instance, client)?;
            return Ok(());
        }
        let mut written = 0;
        while written < output.len() {
            let Poll::Ready(more) = Pin::new(&mut *stream).poll_write(context, &output[written..])? else {
                return self.keep(instance, client, output, written);
            };
            count_write(instance, client, more)?;
            written += more;
        }
        buffers::give_back_output(std::mem::take(output));
        self.is_held_back = Pin::new(stream).poll_flush(context)?.is_pending();
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
    pub(super) fn poll_write<Stream: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut Stream,
        context: &mut Context<'_>,
        instance: &Instance,
        client: &Client,
    ) -> Poll<io::Result<()>> {
        let before = self.backlog.bytes();
        while !self.backlog.is_empty() {
            let Poll::Ready(more) = Pin::new(&mut *stream).poll_write(context, self.backlog.front())? else {
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
        ready!(Pin::new(stream).poll_flush(context))?;
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
