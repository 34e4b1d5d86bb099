//! One client, from its first byte to its last.
//!
//! Read what is there, have every whole request in it executed ([`conversation`](super::conversation)), write
//! all replies at once, wait for more. A client that does not take its replies is not read from any further,
//! so what waits for it has a limit; what it sends without completing a request stays within
//! `client-query-buffer-limit`. The socket may be any stream: TCP, a Unix socket, TLS.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::select;
use tokio::time::{sleep, sleep_until};

use crate::clients::{Attention, Leaving, Registration, Waiting};
use crate::faults::Delay;
use crate::instance::Instance;
use crate::resp::reply::write_error;
use crate::session::Session;
use crate::statistics::Count;

use super::buffers::{self, READ_BYTES};
use super::conversation::{Answered, Conversation};

/// A client and its socket.
pub(super) struct Connection<Stream> {
    /// Known to others until the connection ends. Dropped before the stream: a client that sees its end is
    /// known no longer.
    _registration: Registration,
    pub(super) stream: Stream,
    conversation: Conversation,
}

impl<Stream: AsyncRead + AsyncWrite + Unpin> Connection<Stream> {
    pub(super) fn new(
        instance: Arc<Instance>,
        stream: Stream,
        registration: Registration,
    ) -> Connection<Stream> {
        let session = Session::new(Arc::clone(&registration.client), &instance.users);
        Connection { stream, conversation: Conversation::new(instance, session), _registration: registration }
    }

    /// Serves the client until it leaves, or is made to.
    pub(super) async fn serve(&mut self) {
        let client = Arc::clone(&self.conversation.session.client);
        let address = &client.address;
        match self.converse().await {
            Ok(()) => tracing::debug!("Client closed connection {address}"),
            Err(error) => tracing::debug!("Client {address} is gone: {error}"),
        }
        self.leave().await;
    }

    /// Ends what the client listened to, tracked and watched.
    async fn leave(&mut self) {
        let Conversation { instance, session, .. } = &mut self.conversation;
        instance.pubsub.leave(&session.client, &mut session.subscriptions);
        if let Some(tracks) = session.tracking.take() {
            instance.tracking.end(&instance.keyspace, &tracks);
        }
        if session.client.has_taken_locks.load(Ordering::Relaxed) {
            instance.locks.leave(session.client.id, instance.keyspace.clock().now_ms());
        }
        instance.keyspace.unwatch(&mut session.watching);
        while !session.watching.is_forgotten() {
            // A script has the shards.
            sleep(SCRIPT_GLANCE).await;
            instance.keyspace.unwatch(&mut session.watching);
        }
    }

    async fn converse(&mut self) -> io::Result<()> {
        let client = Arc::clone(&self.conversation.session.client);
        let mut attention = pin!(client.attention());
        while !self.conversation.session.is_closing {
            let read = select! {
                biased;
                read = self.read() => read?,
                what = &mut attention => {
                    client.mail().take(&mut self.conversation.output);
                    self.flush().await?;
                    if what == Attention::Leave {
                        return Ok(());
                    }
                    client.mail().written();
                    attention.set(client.attention());
                    continue;
                }
            };
            if read == 0 || !self.conversation.is_within_query_limit() {
                return Ok(());
            }
            self.conversation.instance.statistics.add(Count::Reads, 1);
            self.conversation.instance.statistics.add(Count::InputBytes, read as u64);
            loop {
                match self.conversation.answer() {
                    Answered::All => break,
                    Answered::Some => self.flush().await?,
                    Answered::Paused => {
                        self.flush().await?;
                        self.sit_out_pause().await?;
                    }
                    Answered::Delayed(delay) => {
                        self.flush().await?;
                        self.sit_out_delay(delay).await?;
                    }
                    Answered::Waiting { reply, until } => self.wait(reply, until).await?,
                }
            }
            self.flush().await?;
            if !self.conversation.session.is_plain() {
                // Mail came between the replies.
                client.mail().written();
            }
        }
        Ok(())
    }

    /// Waits for the end of a pause.
    async fn sit_out_pause(&mut self) -> io::Result<()> {
        let client = &self.conversation.session.client;
        select! {
            () = self.conversation.instance.clients.pause.ended() => Ok(()),
            () = client.asked_to_leave(Leaving::WhenAnswered) => Err(made_to_leave()),
        }
    }

    /// Waits for the end of a delay. What the client sends meanwhile, its end as well, is read later: a
    /// request that is late on its way is executed even if nobody waits for its reply any more.
    async fn sit_out_delay(&mut self, delay: Delay) -> io::Result<()> {
        let client = &self.conversation.session.client;
        select! {
            () = self.conversation.instance.faults.over(delay) => Ok(()),
            () = client.asked_to_leave(Leaving::WhenAnswered) => Err(made_to_leave()),
        }
    }

    /// Gives the client its replies, but the last one, which begins at `reply`, only after a wait: until a
    /// moment, or until somebody ends it.
    async fn wait(&mut self, reply: usize, until: Option<Instant>) -> io::Result<()> {
        let last_reply = self.conversation.output.split_off(reply);
        self.flush().await?;
        let client = Arc::clone(&self.conversation.session.client);
        let over = async {
            match until {
                Some(moment) => sleep_until(moment.into()).await,
                None => std::future::pending().await,
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
                    if read? == 0 || !self.conversation.is_within_query_limit() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        };
        client.set_waiting(Waiting::No);
        match ended {
            // Not where no reply was wanted, or it was lost.
            Waiting::Failed if !last_reply.is_empty() => {
                write_error(&mut self.conversation.output, UNBLOCKED)
            }
            _ => self.conversation.output.extend_from_slice(&last_reply),
        }
        Ok(())
    }

    /// Reads what is there, or waits until something is. A buffer is held only while there is.
    async fn read(&mut self) -> io::Result<usize> {
        poll_fn(|context| {
            if self.conversation.input.is_empty() {
                self.conversation.input = buffers::take_input();
            }
            // A short read tells the runtime that the socket is empty: it does not ask it again.
            self.conversation.input.reserve(READ_BYTES);
            let polled = pin!(self.stream.read_buf(&mut self.conversation.input)).poll(context);
            if self.conversation.input.is_empty() {
                buffers::give_back_input(std::mem::take(&mut self.conversation.input));
            }
            polled
        })
        .await
    }

    /// Writes the replies, in one write unless the client is slow to take them.
    async fn flush(&mut self) -> io::Result<()> {
        let Connection { stream, conversation: Conversation { instance, session, output, .. }, .. } = self;
        if !instance.answers.are_given() && !instance.answers.decided().await {
            return Err(made_to_leave());
        }
        if !instance.is_settled() && !instance.settled(session.logged).await {
            // What it has changed may be lost, so that it is told nothing rather than a yes or a no.
            return Err(io::Error::other("what it has changed could not be logged"));
        }
        let writing = async {
            let mut written = 0;
            while written < output.len() {
                let more = stream.write(&output[written..]).await?;
                if more == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                written += more;
                instance.statistics.add(Count::Writes, 1);
                if written < output.len() {
                    // A client that takes its replies slowly is not idle.
                    session.publish(|profile| profile.last_active = Instant::now());
                }
            }
            // TLS may hold something back, and wait for the client as a write does.
            stream.flush().await
        };
        select! {
            biased;
            done = writing => done?,
            () = session.client.asked_to_leave(Leaving::Now) => return Err(made_to_leave()),
        }
        instance.statistics.add(Count::OutputBytes, output.len() as u64);
        buffers::give_back_output(std::mem::take(output));
        Ok(())
    }
}

/// How often to look whether a script that runs for too long is over.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);

/// What a client is told whose waiting was ended by another.
const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn made_to_leave() -> io::Error {
    io::Error::other("it was made to leave")
}
