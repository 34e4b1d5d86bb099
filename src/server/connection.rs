//! One client, from its first byte to its last.
//!
//! Read what is there, have every whole request in it executed ([`conversation`](super::conversation)), write
//! all replies at once, wait for more. A client that does not take its replies is not read from any further,
//! so what waits for it has a limit; what it sends without completing a request stays within
//! `client-query-buffer-limit`. The socket may be any stream: TCP, a Unix socket, TLS.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
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

/// What a connection goes on with.
enum Next {
    /// So many bytes were read; none if the client has left.
    Read(usize),
    /// Something that the client has not asked for.
    Attention(Attention),
}

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
        while !self.conversation.session.is_closing {
            let read = match self.next().await? {
                Next::Read(read) => read,
                Next::Attention(what) => {
                    client.mail().take(&mut self.conversation.output);
                    self.flush().await?;
                    if what == Attention::Leave {
                        return Ok(());
                    }
                    client.mail().written();
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
                read = poll_fn(|context| self.poll_read(context)) => {
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

    /// Waits until the client has sent something, or something else is to be attended to.
    async fn next(&mut self) -> io::Result<Next> {
        poll_fn(|context| {
            if let Poll::Ready(read) = self.poll_read(context)? {
                return Poll::Ready(Ok(Next::Read(read)));
            }
            self.conversation.session.client.poll_attention(context).map(|what| Ok(Next::Attention(what)))
        })
        .await
    }

    /// Reads what is there. A buffer is held only while there is.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let input = self.conversation.input();
        // A short read tells the runtime that the socket is empty: it does not ask it again.
        input.reserve(READ_BYTES);
        let polled = pin!(self.stream.read_buf(input)).poll(context);
        self.conversation.rest();
        polled
    }

    /// Writes the replies, in one write unless the client is slow to take them.
    async fn flush(&mut self) -> io::Result<()> {
        let instance = &self.conversation.instance;
        if !instance.answers.are_given() || !instance.is_settled() {
            self.may_answer().await?;
        }
        let mut written = 0;
        poll_fn(|context| {
            let polled = self.poll_write(context, &mut written);
            if polled.is_pending() {
                self.conversation.rest();
                let leaving = self.conversation.session.client.poll_asked_to_leave(context, Leaving::Now);
                return leaving.map(|()| Err(made_to_leave()));
            }
            polled
        })
        .await?;
        let Conversation { instance, output, .. } = &mut self.conversation;
        instance.statistics.add(Count::OutputBytes, output.len() as u64);
        buffers::give_back_output(std::mem::take(output));
        Ok(())
    }

    /// Waits until replies may be given.
    async fn may_answer(&mut self) -> io::Result<()> {
        self.conversation.rest();
        let Conversation { instance, session, .. } = &self.conversation;
        let logged = session.logged;
        if !instance.answers.decided().await {
            return Err(made_to_leave());
        }
        if !instance.settled(logged).await {
            // What it has changed may be lost, so that it is told nothing rather than a yes or a no.
            return Err(io::Error::other("what it has changed could not be logged"));
        }
        Ok(())
    }

    /// Writes what is left of the replies, of which so much has been `written`.
    fn poll_write(&mut self, context: &mut Context<'_>, written: &mut usize) -> Poll<io::Result<()>> {
        let Conversation { instance, session, output, .. } = &self.conversation;
        while *written < output.len() {
            let more = ready!(Pin::new(&mut self.stream).poll_write(context, &output[*written..]))?;
            if more == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += more;
            instance.statistics.add(Count::Writes, 1);
            if *written < output.len() {
                // A client that takes its replies slowly is not idle.
                session.client.set_active(instance.clients.now_ms());
            }
        }
        // TLS may hold something back, and wait for the client as a write does.
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

/// How often to look whether a script that runs for too long is over.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);

/// What a client is told whose waiting was ended by another.
const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";

fn made_to_leave() -> io::Error {
    io::Error::other("it was made to leave")
}
