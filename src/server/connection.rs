//! One client, from its first byte to its last.
//!
//! Read what is there, execute every whole request in it, write all replies at once, wait for more. A client
//! that does not take its replies is not read from any further, so what waits for it stays within
//! [`OUTPUT_BYTES_MAX`] and one reply; what it sends without completing a request stays within
//! `client-query-buffer-limit`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::select;
use tokio::time::sleep_until;

use crate::clients::{Attention, Leaving, Registration, Waiting};
use crate::engine::memory::{Plan, execute};
use crate::engine::meter::Meter;
use crate::instance::Instance;
use crate::resp::reply::write_error;
use crate::resp::{Limits, ProtocolError, Request, RequestReader};
use crate::session::{Replies, Session, Wait};
use crate::statistics::Count;

use super::buffers::{self, READ_BYTES};

/// Replies are written before they grow beyond this, even if more requests wait.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A client and its socket.
pub(super) struct Connection<Stream> {
    instance: Arc<Instance>,
    stream: Stream,
    session: Session,
    reader: RequestReader,
    /// How many of the reader's requests have been executed.
    done: usize,
    /// What is known of the others; empty between two batches.
    plans: Vec<Plan>,
    /// What was read and not yet executed; without memory while there is nothing.
    input: BytesMut,
    /// Replies that are not yet written; without memory while there are none.
    output: Vec<u8>,
    /// Known to others until the connection ends.
    _registration: Registration,
}

/// How far the requests that were read have been executed.
enum Answered {
    /// All of them.
    All,
    /// Not all: the replies found no room.
    Some,
    /// Not all: the next one has to wait for the end of a pause.
    Paused,
    /// Not all: the client waits before it is given its last reply, which begins here.
    Waiting { reply: usize, wait: Wait },
}

impl<Stream: AsyncRead + AsyncWrite + Unpin> Connection<Stream> {
    pub(super) fn new(
        instance: Arc<Instance>,
        stream: Stream,
        registration: Registration,
    ) -> Connection<Stream> {
        let session = Session::new(Arc::clone(&registration.client), &instance.config);
        Connection {
            instance,
            stream,
            session,
            reader: RequestReader::default(),
            done: 0,
            plans: Vec::new(),
            input: BytesMut::new(),
            output: Vec::new(),
            _registration: registration,
        }
    }

    /// Serves the client until it leaves, or is made to.
    pub(super) async fn serve(mut self) {
        let client = Arc::clone(&self.session.client);
        let address = &client.address;
        match self.converse().await {
            Ok(()) => tracing::debug!("Client closed connection {address}"),
            Err(error) => tracing::debug!("Client {address} is gone: {error}"),
        }
    }

    async fn converse(&mut self) -> io::Result<()> {
        let client = Arc::clone(&self.session.client);
        let mut attention = pin!(client.attention());
        while !self.session.is_closing {
            let read = select! {
                biased;
                read = self.read() => read?,
                what = &mut attention => {
                    if what == Attention::Leave {
                        return Ok(());
                    }
                    self.output.append(&mut client.take_mail());
                    self.flush().await?;
                    attention.set(client.attention());
                    continue;
                }
            };
            if read == 0 || !self.is_within_query_limit() {
                return Ok(());
            }
            self.instance.statistics.add(Count::Reads, 1);
            self.instance.statistics.add(Count::InputBytes, read as u64);
            loop {
                match self.answer() {
                    Answered::All => break,
                    Answered::Some => self.flush().await?,
                    Answered::Paused => {
                        self.flush().await?;
                        self.sit_out_pause().await?;
                    }
                    Answered::Waiting { reply, wait } => self.wait(reply, wait).await?,
                }
            }
            self.flush().await?;
        }
        Ok(())
    }

    /// Waits for the end of a pause.
    async fn sit_out_pause(&mut self) -> io::Result<()> {
        select! {
            () = self.instance.clients.pause.ended() => Ok(()),
            () = self.session.client.asked_to_leave(Leaving::WhenAnswered) => Err(made_to_leave()),
        }
    }

    /// Gives the client its replies, but the last one, which begins at `reply`, only after a wait.
    async fn wait(&mut self, reply: usize, wait: Wait) -> io::Result<()> {
        let last_reply = self.output.split_off(reply);
        self.flush().await?;
        let client = Arc::clone(&self.session.client);
        let over = async {
            match wait {
                Wait::Until(moment) => sleep_until(moment.into()).await,
                Wait::ForEver => std::future::pending().await,
            }
        };
        let mut over = pin!(over);
        let ended = loop {
            select! {
                () = &mut over => break Waiting::TimedOut,
                how = client.waiting_ended() => break how,
                () = client.asked_to_leave(Leaving::WhenAnswered) => return Err(made_to_leave()),
                // A client that has gone waits for nothing; what it sends meanwhile is answered later.
                read = self.read() => {
                    if read? == 0 || !self.is_within_query_limit() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        };
        client.set_waiting(Waiting::No);
        match ended {
            Waiting::Failed => write_error(&mut self.output, UNBLOCKED),
            _ => self.output.extend_from_slice(&last_reply),
        }
        Ok(())
    }

    /// Reads what is there, or waits until something is. A buffer is held only while there is.
    async fn read(&mut self) -> io::Result<usize> {
        poll_fn(|context| {
            if self.input.is_empty() {
                self.input = buffers::take_input();
            }
            // A short read tells the runtime that the socket is empty: it does not ask it again.
            self.input.reserve(READ_BYTES);
            let polled = pin!(self.stream.read_buf(&mut self.input)).poll(context);
            if self.input.is_empty() {
                buffers::give_back_input(std::mem::take(&mut self.input));
            }
            polled
        })
        .await
    }

    fn is_within_query_limit(&self) -> bool {
        let is_within = self.input.len() <= self.instance.config.client_query_buffer_limit.size();
        if !is_within {
            tracing::warn!(
                "Closing client that reached max query buffer length: {} at {} bytes",
                self.session.client.address,
                self.input.len()
            );
        }
        is_within
    }

    /// Executes the requests that have been read whole.
    fn answer(&mut self) -> Answered {
        let Connection { instance, session, reader, done, plans, input, output, .. } = self;
        if output.capacity() == 0 {
            *output = buffers::take_output();
        }
        let mut meter = Meter::start(instance);
        let answered = loop {
            let limits = Limits {
                bulk_bytes_max: instance.config.proto_max_bulk_len.size(),
                unauthenticated: !session.is_authenticated,
            };
            let ready = match reader.read_ahead(input, &limits) {
                Ok(0) => break Answered::All,
                Ok(ready) => ready,
                Err(error) => {
                    instance.statistics.add(Count::ErrorReplies, 1);
                    instance.statistics.errors.count(&error.message());
                    refuse(session, error, output);
                    break Answered::All;
                }
            };
            let paused = instance.clients.pause.paused();
            plan(instance, session, plans, (*done..ready).map(|index| reader.request(input, index)));
            let mut reply = 0;
            for plan in plans.drain(..) {
                if session.is_closing || session.wait.is_some() || output.len() >= OUTPUT_BYTES_MAX {
                    break;
                }
                if paused.is_some_and(|paused| plan.has_to_wait(paused)) {
                    break;
                }
                let request = reader.request(input, *done);
                reply = output.len();
                execute(instance, session, request, plan, &mut meter, output);
                *done += 1;
            }
            if session.is_closing {
                break Answered::All;
            }
            if let Some(wait) = session.wait.take() {
                break Answered::Waiting { reply, wait };
            }
            if *done < ready {
                let is_full = output.len() >= OUTPUT_BYTES_MAX;
                break if is_full { Answered::Some } else { Answered::Paused };
            }
            input.advance(reader.release());
            *done = 0;
        };
        if *done == 0 && matches!(answered, Answered::All) {
            // What is left is the beginning of a request.
            input.advance(reader.release());
        }
        let query_bytes = input.len();
        if input.is_empty() {
            buffers::give_back_input(std::mem::take(input));
        }
        let ended = meter.finish();
        session.publish(|profile| {
            profile.last_active = ended;
            profile.query_bytes = query_bytes;
        });
        answered
    }

    /// Writes the replies, in one write unless the client is slow to take them.
    async fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.output.len() {
            let more = select! {
                biased;
                written = self.stream.write(&self.output[written..]) => written?,
                () = self.session.client.asked_to_leave(Leaving::Now) => {
                    return Err(made_to_leave());
                }
            };
            if more == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += more;
            self.instance.statistics.add(Count::Writes, 1);
            if written < self.output.len() {
                // A client that takes its replies slowly is not idle.
                self.session.publish(|profile| profile.last_active = Instant::now());
            }
        }
        // TLS may hold something back.
        self.stream.flush().await?;
        self.instance.statistics.add(Count::OutputBytes, written as u64);
        buffers::give_back_output(std::mem::take(&mut self.output));
        Ok(())
    }
}

/// What a client is told whose waiting was ended by another.
const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn made_to_leave() -> io::Error {
    io::Error::other("it was made to leave")
}

/// Plans requests that are to be executed one after the other.
fn plan<'a>(
    instance: &Instance,
    session: &Session,
    plans: &mut Vec<Plan>,
    requests: impl ExactSizeIterator<Item = Request<'a>>,
) {
    match requests.len() {
        // Nothing could be done meanwhile.
        1 => plans.extend(requests.map(Plan::for_now)),
        _ => plans.extend(requests.map(|request| Plan::for_later(instance, session, request))),
    }
}

/// Answers a stream that cannot be read any further; it ends with the answer.
#[cold]
fn refuse(session: &mut Session, error: ProtocolError, output: &mut Vec<u8>) {
    tracing::debug!("Protocol error from client {}: {error}", session.client.address);
    if session.replies == Replies::On {
        write_error(output, &error.message());
    }
    session.is_closing = true;
}
