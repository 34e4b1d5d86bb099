//! One client, from its first byte to its last.
//!
//! Read what is there, have every whole request in it executed ([`conversation`](super::conversation)), write
//! all replies at once, wait for more. What a client does not take of its replies waits
//! ([`outflow`](super::outflow)), while its next requests are read and executed as before: a client may send
//! any number of them before it reads the first reply. `client-output-buffer-limit` and `maxmemory-clients`
//! say how much may wait; before a client has authenticated, it is read from only while nothing does. What a
//! client sends without completing a request stays within `client-query-buffer-limit`. The socket may be any
//! stream: TCP, a Unix socket, TLS.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::task::yield_now;
use tokio::time::{sleep, sleep_until};

use crate::clients::{Attention, Client, Leaving, Registration, Waiting};
use crate::faults::Delay;
use crate::instance::Instance;
use crate::resp::reply::write_error;
use crate::session::{Contention, Session};
use crate::statistics::Count;

use super::buffers::READ_BYTES;
use super::conversation::{Answered, Conversation};
use super::eviction;
use super::lookout;
use super::outflow::{Outflow, made_to_leave};

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
    outflow: Outflow,
}

impl<Stream: AsyncRead + AsyncWrite + Unpin> Connection<Stream> {
    pub(super) fn new(
        instance: Arc<Instance>,
        stream: Stream,
        registration: Registration,
    ) -> Connection<Stream> {
        let base_bytes = size_of::<Client>() + size_of::<Connection<Stream>>();
        registration.client.footprint.set_base(base_bytes);
        let session = Session::new(Arc::clone(&registration.client), &instance.users);
        let conversation = Conversation::new(instance, session);
        Connection { stream, conversation, outflow: Outflow::default(), _registration: registration }
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
            instance.tracking.end(&instance.followers.interest, &tracks);
        }
        if session.client.has_taken_locks.load(Ordering::Relaxed) {
            instance.lens.leave(session.client.id, instance.clock.now_ms());
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
            if self.is_writing() {
                self.yield_to_others().await?;
            }
            let read = match self.next().await? {
                Next::Read(read) => read,
                Next::Attention(what) => {
                    self.deliver_mail().await?;
                    if what == Attention::Leave {
                        break;
                    }
                    continue;
                }
            };
            if client.leaving() == Leaving::Now || !self.conversation.is_within_query_limit() {
                // However much it goes on to send.
                return Err(made_to_leave());
            }
            if read == 0 {
                break;
            }
            self.conversation.instance.statistics.add(Count::Reads, 1);
            self.conversation.instance.statistics.add(Count::InputBytes, read as u64);
            loop {
                match lookout::serve(|| self.conversation.answer()) {
                    Answered::All => break,
                    part => self.go_on_after(part).await?,
                }
            }
            self.flush().await?;
            if self.conversation.is_input_shown() || self.is_writing() {
                eviction::limit_clients(&self.conversation.instance);
            }
        }
        // A client that sends no more may still take its replies.
        self.drain().await
    }

    /// Does what is to be done before the next request is executed.
    async fn go_on_after(&mut self, part: Answered) -> io::Result<()> {
        if let Answered::Waiting { reply, until } = part {
            return self.wait(reply, until).await;
        }
        self.flush().await?;
        match part {
            Answered::Paused => self.sit_out_pause().await,
            Answered::Delayed(delay) => self.sit_out_delay(delay).await,
            Answered::Contended(contention) => self.sit_out_contention(contention).await,
            _ if self.is_writing() => {
                eviction::limit_clients(&self.conversation.instance);
                self.yield_to_others().await
            }
            _ => Ok(()),
        }
    }

    /// Lets others be served between two batches of a client that does not wait for its replies.
    async fn yield_to_others(&mut self) -> io::Result<()> {
        yield_now().await;
        match self.conversation.session.client.leaving() {
            Leaving::Now => Err(made_to_leave()),
            _ => Ok(()),
        }
    }

    /// Waits for the end of a pause. The request of a client that leaves meanwhile is not executed.
    async fn sit_out_pause(&mut self) -> io::Result<()> {
        let instance = Arc::clone(&self.conversation.instance);
        let client = Arc::clone(&self.conversation.session.client);
        client.set_waiting(Waiting::Paused);
        self.sit_out(instance.clients.pause.ended(), true).await?;
        client.set_waiting(Waiting::No);
        Ok(())
    }

    /// Waits for the end of a delay. What the client sends meanwhile, its end as well, is read later: a
    /// request that is late on its way is executed even if nobody waits for its reply any more.
    async fn sit_out_delay(&mut self, delay: Delay) -> io::Result<()> {
        let instance = Arc::clone(&self.conversation.instance);
        self.sit_out(instance.faults.over(delay), false).await
    }

    /// Waits until something is over, and writes meanwhile what the client takes. Where it `reads` as well, a
    /// client that leaves is seen.
    async fn sit_out(&mut self, over: impl Future<Output = ()>, reads: bool) -> io::Result<()> {
        let client = Arc::clone(&self.conversation.session.client);
        let mut over = pin!(over);
        let is_over = poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(true));
            }
            self.write_more(context)?;
            if reads {
                self.read_ahead(context)?;
            }
            client.poll_asked_to_leave(context, Leaving::WhenAnswered).map(|()| Ok(false))
        });
        match is_over.await {
            Ok(true) => Ok(()),
            Ok(false) => self.leave_answered().await,
            Err(error) => Err(error),
        }
    }

    /// Waits until what the next command needs may be free. It holds no thread meanwhile: others are served.
    async fn sit_out_contention(&mut self, contention: Contention) -> io::Result<()> {
        let instance = Arc::clone(&self.conversation.instance);
        let freed = async {
            match contention {
                Contention::Turn => instance.scripting.turn_freed().await,
                Contention::Shard(number) => {
                    let mut pause = SHARD_GLANCE_MIN;
                    while !instance.keyspace.is_free(number) {
                        sleep(pause).await;
                        pause = (pause * 2).min(SHARD_GLANCE_MAX);
                    }
                }
            }
        };
        self.sit_out(freed, false).await
    }

    /// Reads what a client sends that waits, to be answered later. One that has gone waits for nothing.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(read) = self.poll_read(context)? {
            if read == 0 || !self.conversation.is_within_query_limit() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
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
        let ended = poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(Some(Waiting::TimedOut)));
            }
            if let Poll::Ready(how) = client.poll_waiting_ended(context) {
                return Poll::Ready(Ok(Some(how)));
            }
            self.write_more(context)?;
            self.read_ahead(context)?;
            client.poll_asked_to_leave(context, Leaving::WhenAnswered).map(|()| Ok(None))
        });
        let ended: io::Result<Option<Waiting>> = ended.await;
        let Some(ended) = ended? else { return self.leave_answered().await };
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

    /// Waits until the client has sent something, or something else is to be attended to. Writes what waits
    /// before it reads, so that little waits for a client which takes its replies.
    async fn next(&mut self) -> io::Result<Next> {
        poll_fn(|context| {
            self.write_more(context)?;
            if let Poll::Ready(read) = self.poll_read(context)? {
                return Poll::Ready(Ok(Next::Read(read)));
            }
            let client = &self.conversation.session.client;
            if self.is_writing() {
                // Mail comes after what waits already.
                let leaving = client.poll_asked_to_leave(context, Leaving::WhenAnswered);
                return leaving.map(|()| Ok(Next::Attention(Attention::Leave)));
            }
            client.poll_attention(context).map(|what| Ok(Next::Attention(what)))
        })
        .await
    }

    /// Reads what is there. A buffer is held only while there is.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let input = self.conversation.input();
        if input.capacity() - input.len() < READ_BYTES / 2 {
            // A client that has sent only the beginning of a request holds no more than it needs.
            input.reserve(READ_BYTES);
        }
        // A short read tells the runtime that the socket is empty: it does not ask it again.
        let polled = pin!(self.stream.read_buf(input)).poll(context);
        self.conversation.rest();
        polled
    }

    /// Hands the replies to the socket, in one write where it takes them at once. What it does not take
    /// waits, while the client may send more; one that has not authenticated is waited for.
    async fn flush(&mut self) -> io::Result<()> {
        let instance = &self.conversation.instance;
        if !instance.answers.are_given() || !instance.is_settled() {
            self.may_answer().await?;
        }
        poll_fn(|context| Poll::Ready(self.write_or_keep(context))).await?;
        if self.is_writing() && !self.conversation.session.is_authenticated {
            self.drain().await?;
        }
        Ok(())
    }

    /// Hands the socket what others have sent.
    async fn deliver_mail(&mut self) -> io::Result<()> {
        let instance = &self.conversation.instance;
        if !instance.answers.are_given() || !instance.is_settled() {
            self.may_answer().await?;
        }
        self.outflow.append(self.conversation.session.client.take_mail(true));
        poll_fn(|context| Poll::Ready(self.write_or_keep(context))).await
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

    /// Whether anything waits for the client to take it.
    #[inline]
    fn is_writing(&self) -> bool {
        self.outflow.is_writing()
    }

    fn write_or_keep(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Conversation { instance, session, output, .. } = &mut self.conversation;
        self.outflow.write_or_keep(&mut self.stream, context, instance, &session.client, output)
    }

    /// Writes what the client takes now of what waits for it.
    #[inline]
    fn write_more(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_writing() {
            let _ = self.poll_write(context)?;
        }
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Conversation { instance, session, .. } = &self.conversation;
        self.outflow.poll_write(&mut self.stream, context, instance, &session.client)
    }

    /// Waits until the client has taken all that waits for it.
    async fn drain(&mut self) -> io::Result<()> {
        poll_fn(|context| {
            if !self.is_writing() {
                return Poll::Ready(Ok(()));
            }
            let polled = self.poll_write(context);
            if polled.is_pending() {
                self.conversation.rest();
                let leaving = self.conversation.session.client.poll_asked_to_leave(context, Leaving::Now);
                return leaving.map(|()| Err(made_to_leave()));
            }
            polled
        })
        .await
    }

    /// Leaves as soon as the client has taken its replies so far.
    async fn leave_answered(&mut self) -> io::Result<()> {
        self.drain().await?;
        Err(made_to_leave())
    }
}

/// How often to look whether a shard is free: often at first, since most are held for some milliseconds.
const SHARD_GLANCE_MIN: Duration = Duration::from_millis(1);
const SHARD_GLANCE_MAX: Duration = Duration::from_millis(8);
/// How often to look whether a script that runs for too long is over.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);

/// What a client is told whose waiting was ended by another.
const UNBLOCKED: &[u8] = b"UNBLOCKED client unblocked via CLIENT UNBLOCK";
