//! One client, from its first byte to its last.
//!
//! It reads what is there, executes every whole request in it ([`conversation`](super::conversation)), writes
//! all replies at once, and waits for more. It owns the conversation and its waits: for keys, for the end of
//! a pause, for the store, for the log. The bytes are moved by a [`Carrier`]. Replies that the client does
//! not take wait there. Meanwhile its next requests are read and
//! executed: a client may send any number of requests before it reads the first reply.
//! `client-output-buffer-limit` and `maxmemory-clients` limit how much may wait. From a client that has not
//! authenticated, nothing is read while replies wait. `client-query-buffer-limit` limits what a client sends
//! without completing a request.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{sleep, sleep_until, timeout_at};

use crate::clients::{Attention, Leaving, Registration, Waiting};
use crate::commands::admin::waiting::{NO_LOG, tell_durability};
use crate::commands::error::Error;
use crate::commands::execution::client_room::limit_clients;
use crate::faults::Delay;
use crate::instance::Instance;
use crate::keyspace::{Outcome, Waiter};
use crate::platform::sockets::{has_hung_up, is_silence};
use crate::remote::all_keys::NotTold;
use crate::remote::batch::Verdict;
use crate::resp::Reply;
use crate::resp::reply::write_error;
use crate::session::{Contention, Session};
use crate::statistics::Count;

use super::buffers;
use super::carrier::{Carrier, made_to_leave};
use super::conversation::{Answered, Awaited, Conversation};
use super::wire::Wire;
use crate::host::rota::{Lane, yield_now};

/// What a connection does next.
enum Next {
    /// So many bytes were read: 0 if the client has left.
    Read(usize),
    /// Something other than a request.
    Attention(Attention),
}

/// A client, and what carries its bytes.
pub(super) struct Runner<Stream> {
    /// Dropped before the carrier, with what makes the client known to others: a client that sees the end of
    /// its connection is no longer known, unless a fault delays its last request.
    pub(super) conversation: Conversation,
    pub(super) carrier: Carrier<Stream>,
    /// How often in a row there was more to read at once.
    reads: u32,
    /// The lease, in milliseconds, within which the silence of the client is noticed; 0 for none.
    lease_ms: u64,
}

impl<Stream> Runner<Stream> {
    /// Lets go of the locks that are bound to the connection, which has ended. Does nothing the second time.
    /// Another client may be about to grant it its first one, for which it no longer waits: that is let go
    /// of, too.
    fn let_go(&self, silent_ms: u64) {
        let Conversation { instance, session, .. } = &self.conversation;
        instance.keyspace.cut(session.client.lifeline(), silent_ms, true);
    }
}

/// However the connection has ended, no lock is left to it.
impl<Stream> Drop for Runner<Stream> {
    fn drop(&mut self) {
        self.let_go(0);
    }
}

impl<Stream: Wire> Runner<Stream> {
    pub(super) fn new(
        instance: Arc<Instance>,
        carrier: Carrier<Stream>,
        registration: Registration,
    ) -> Runner<Stream> {
        let conversation = Conversation::new(instance, registration);
        Runner { carrier, conversation, reads: 0, lease_ms: 0 }
    }

    /// Serves the client until it leaves, or has to leave.
    pub(super) async fn serve(&mut self) {
        let client = Arc::clone(&self.conversation.session.client);
        let address = &client.address;
        let mut silent_ms = 0;
        match self.converse().await {
            Ok(()) => tracing::debug!("Client closed connection {address}"),
            Err(error) => {
                tracing::debug!("Client {address} is gone: {error}");
                if is_silence(&error) {
                    silent_ms = self.carrier.silence().map_or(0, |silence| silence.as_millis() as u64);
                }
            }
        }
        // First: the next in line wait.
        self.let_go(silent_ms);
        self.leave().await;
    }

    /// Ends the client's listening, tracking and watching.
    async fn leave(&mut self) {
        let Conversation { instance, session, left, .. } = &mut self.conversation;
        instance.pubsub.leave(&session.client, &mut session.subscriptions);
        if let Some(tracks) = session.tracking.take() {
            instance.tracking.end(&instance.followers.interest, &tracks);
        }
        if session.client.has_taken_locks.load(Ordering::Relaxed) {
            let is_meant = |key: &[u8]| !instance.ignores_lock(key);
            instance.lens.leave(session.client.id, instance.clock.now_ms(), is_meant);
        }
        for left in left.drain(..).filter_map(|left| left.upgrade()) {
            let is_meant = |key: &[u8]| !left.ignores_lock(key);
            left.lens.leave(session.client.id, left.clock.now_ms(), is_meant);
        }
        instance.keyspace.unwatch(&mut session.watching);
        while !session.watching.is_forgotten() {
            // A script has the shards.
            sleep(SCRIPT_GLANCE).await;
            instance.keyspace.unwatch(&mut session.watching);
        }
        // What it leaves behind is tidied up in time.
        instance.stir();
        if let Some(place) = &instance.place {
            place.all.leave(instance, session.client.id);
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
                // Even if it goes on sending.
                return Err(made_to_leave());
            }
            if read == 0 {
                break;
            }
            self.reads += 1;
            if self.reads > READS_IN_A_ROW_MAX {
                self.reads = 0;
                self.yield_to_others().await?;
            }
            self.conversation.instance.statistics.add(Count::Reads, 1);
            self.conversation.instance.statistics.add(Count::InputBytes, read as u64);
            client.traffic.input_bytes.add(read as u64);
            if self.conversation.is_input_shown() {
                // A request that came in pieces may have become too large with its last one.
                self.conversation.show_input();
                limit_clients(&self.conversation.instance);
                if client.leaving() == Leaving::Now {
                    return Err(made_to_leave());
                }
            }
            loop {
                let answered = self.conversation.answer();
                if let Answered::Incomplete { reply } = answered {
                    self.wait_for_thread().await?;
                    let Conversation { session, output, .. } = &mut self.conversation;
                    session.long.iter_mut().for_each(|long| long.complete(output));
                    self.conversation.follow_up(reply);
                }
                if self.conversation.session.long.is_some() && !matches!(answered, Answered::Long) {
                    self.end_long_request().await?;
                }
                match answered {
                    Answered::All => break,
                    part => self.go_on_after(part).await?,
                }
                if self.conversation.session.is_closing {
                    break;
                }
            }
            if let Some(lifeline) = client.known_lifeline()
                && lifeline.shortest_ms() != self.lease_ms
            {
                self.lease_ms = lifeline.shortest_ms();
                self.carrier.bound_silence(self.lease_ms, &self.conversation.instance);
            }
            self.flush().await?;
            if self.conversation.is_input_shown() || self.is_writing() {
                limit_clients(&self.conversation.instance);
            }
        }
        // A client that sends nothing more may still take its replies.
        self.drain().await?;
        if self.conversation.session.lingers {
            Box::pin(self.carrier.linger()).await;
        }
        match self.conversation.session.export.take() {
            Some(wanted) => Box::pin(self.send_snapshot(wanted)).await,
            None => Ok(()),
        }
    }

    /// Does what must be done before the next request is executed. The rarer waits take memory of their own
    /// while they last, so that it is not each client's.
    async fn go_on_after(&mut self, part: Answered) -> io::Result<()> {
        if let Answered::Waiting { reply, until, awaited } = part {
            return self.wait(reply, until, awaited).await;
        }
        self.flush().await?;
        match part {
            Answered::Paused => Box::pin(self.sit_out_pause()).await,
            Answered::Delayed(delay) => Box::pin(self.sit_out_delay(delay)).await,
            Answered::Contended(contention) => Box::pin(self.sit_out_contention(contention)).await,
            Answered::InStore => Box::pin(self.sit_out_store()).await,
            Answered::Migrating => Box::pin(self.sit_out_migration()).await,
            Answered::Long => self.wait_for_thread().await,
            Answered::Leaving => {
                self.conversation.go();
                Ok(())
            }
            _ if self.is_writing() => {
                limit_clients(&self.conversation.instance);
                self.yield_to_others().await
            }
            _ => Ok(()),
        }
    }

    /// Lets the thread serve other clients between two batches of one that does not wait for its replies.
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
        // A client that tries again goes on waiting after the pause, unless another client has ended that.
        let before = client.replace_waiting(Waiting::Paused);
        self.sit_out(instance.clients.pause.ended(), true).await?;
        client.set_waiting(before);
        Ok(())
    }

    /// Waits for the end of a delay. What the client sends meanwhile is read later, and so is its leaving: a
    /// request that a network delays is executed, too, even if its client has left. One that is killed
    /// meanwhile is disconnected at once, and its request is executed nevertheless.
    async fn sit_out_delay(&mut self, delay: Delay) -> io::Result<()> {
        let instance = Arc::clone(&self.conversation.instance);
        let client = Arc::clone(&self.conversation.session.client);
        self.conversation.session.is_late = true;
        client.begin_service();
        self.conversation.rest();
        let mut over = pin!(instance.faults.over(delay));
        let mut is_cut_off = false;
        let is_executed = poll_fn(|context| {
            if let Poll::Ready(is_executed) = over.as_mut().poll(context) {
                return Poll::Ready(is_executed);
            }
            if is_cut_off {
                return Poll::Pending;
            }
            // If it takes nothing any more, it has left.
            let _ = self.write_more(context);
            let is_asked = client.poll_asked_to_leave(context, Leaving::WhenAnswered).is_ready();
            if is_asked && client.leaving() == Leaving::Now {
                is_cut_off = true;
                self.carrier.cut_off(&client);
            }
            if is_asked && !is_cut_off { Poll::Ready(false) } else { Poll::Pending }
        });
        match is_executed.await {
            true => Ok(()),
            false => self.leave_answered().await,
        }
    }

    /// Waits until something is over, and meanwhile writes what the client takes. If it `reads` as well, it
    /// notices that the client leaves. For a request that a fault has delayed this makes no difference.
    pub(super) async fn sit_out(&mut self, over: impl Future<Output = ()>, reads: bool) -> io::Result<()> {
        let client = Arc::clone(&self.conversation.session.client);
        let is_late = self.conversation.session.is_late;
        client.begin_service();
        self.conversation.rest();
        let mut over = pin!(over);
        let is_over = poll_fn(|context| {
            if client.must_leave() && !is_late {
                return Poll::Ready(Ok(false));
            }
            if over.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(true));
            }
            if is_late {
                let _ = self.write_more(context);
                let is_asked = client.poll_asked_to_leave(context, Leaving::WhenAnswered).is_ready();
                let server_ends = is_asked && client.leaving() == Leaving::WhenAnswered;
                return if server_ends { Poll::Ready(Ok(false)) } else { Poll::Pending };
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

    /// Waits until what the next command needs may be free. Meanwhile the thread serves other clients.
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

    /// Waits for a thread for long requests, and goes on there.
    async fn wait_for_thread(&mut self) -> io::Result<()> {
        let socket = self.carrier.socket();
        self.conversation.session.client.begin_service();
        self.conversation.rest();
        limit_clients(&self.conversation.instance);
        if let Some(long) = &mut self.conversation.session.long {
            long.socket = socket;
        }
        self.carrier.go_to(Lane::Long).await;
        let session = &mut self.conversation.session;
        let Some(long) = &mut session.long else { return Ok(()) };
        let has_hung_up = || !long.outlives_client && long.socket.as_ref().is_some_and(has_hung_up);
        let has_left = session.client.leaving() != Leaving::Not || has_hung_up();
        if has_left && !session.is_late {
            return Err(made_to_leave());
        }
        long.note_thread();
        Ok(())
    }

    /// Writes the reply of a long request, or as much as the client takes, and goes back to the other
    /// clients.
    async fn end_long_request(&mut self) -> io::Result<()> {
        let Conversation { session, output, .. } = &mut self.conversation;
        if let Some(long) = session.long.take() {
            if long.was_cancelled {
                return Err(made_to_leave());
            }
            self.carrier.keep_permit(long.end(output.len()));
        }
        self.flush().await?;
        if !self.is_writing() {
            self.carrier.end_permit();
        }
        self.carrier.go_to(Lane::Usual).await;
        Ok(())
    }

    /// Waits until the store has answered, or until it may have something for the client.
    async fn sit_out_store(&mut self) -> io::Result<()> {
        let Some(mut pending) = self.conversation.session.pending.take() else { return Ok(()) };
        if let Some(ticket) = pending.ticket.take() {
            let until = pending.yields_until.take();
            let answered = async {
                pending.verdict = Some(match until {
                    None => ticket.await.unwrap_or(Verdict::Unknown),
                    Some(until) => {
                        let _ = timeout_at(until.into(), ticket).await;
                        Verdict::Again
                    }
                });
            };
            self.sit_out(answered, true).await?;
        } else if let Some(answering) = pending.answering.take() {
            let gone = || Err(NotTold::Unknown);
            let answered = async { pending.told = Some(answering.await.unwrap_or_else(|_gone| gone())) };
            self.sit_out(answered, true).await?;
        } else if let Some(listening) = pending.listening.take() {
            // A client that has begun to wait for its keys leaves as any other does.
            self.conversation.session.is_late = false;
            let client = Arc::clone(&self.conversation.session.client);
            // It goes on waiting while it asks the store again. Meanwhile another client may have ended that.
            client.release();
            if client.waiting() == Waiting::No {
                client.set_waiting(Waiting::Yes);
            }
            let unblocked = &mut pending.unblocked;
            let until = [pending.until, pending.again].into_iter().flatten().min();
            let ended = async {
                let mut heard = pin!(listening.heard(until));
                *unblocked = poll_fn(|context| match client.poll_waiting_ended(context, || false) {
                    Poll::Ready(how) => Poll::Ready(Some(how)),
                    Poll::Pending => heard.as_mut().poll(context).map(|()| None),
                })
                .await;
            };
            self.sit_out(ended, true).await?;
            pending.verdict = Some(Verdict::Again);
            pending.listening = Some(listening);
        }
        self.conversation.session.pending = Some(pending);
        Ok(())
    }

    /// Reads what a waiting client sends, to be executed later, and notices that it has left.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(read) = self.poll_read(context)? {
            if read == 0 || !self.conversation.is_within_query_limit() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.conversation.show_input();
            limit_clients(&self.conversation.instance);
        }
        Ok(())
    }

    /// Writes the client's replies. The last one, which begins at `reply`, is written after a wait: until
    /// a moment, or until another client ends the wait, or serves the client.
    async fn wait(&mut self, reply: usize, until: Option<Instant>, awaited: Awaited) -> io::Result<()> {
        let mut last_reply = self.conversation.output.split_off(reply);
        let instance = Arc::clone(&self.conversation.instance);
        let (own, is_enough) =
            (self.conversation.session.logged.end, matches!(awaited, Awaited::Durable { is_enough: true }));
        let tells_durability = matches!(awaited, Awaited::Durable { .. });
        // Leaves the queues of its keys however the wait ends.
        let place = match awaited {
            Awaited::Keys(waiter) => Some(QueuePlace::new(&self.conversation.session, &instance, waiter)),
            _ => None,
        };
        self.flush().await?;
        let client = Arc::clone(&self.conversation.session.client);
        let over = async {
            match until {
                Some(moment) => sleep_until(moment.into()).await,
                None => std::future::pending().await,
            }
        };
        let durable = async {
            match is_enough {
                true => instance.durable(own).await,
                false => std::future::pending().await,
            }
        };
        let (mut over, mut durable) = (pin!(over), pin!(durable));
        let ended = poll_fn(|context| {
            if over.as_mut().poll(context).is_ready() || durable.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(true));
            }
            let is_decided = || place.as_ref().is_some_and(|place| place.waiter.has_ended());
            if client.poll_waiting_ended(context, is_decided).is_ready() {
                return Poll::Ready(Ok(true));
            }
            self.write_more(context)?;
            self.read_ahead(context)?;
            client.poll_asked_to_leave(context, Leaving::WhenAnswered).map(|()| Ok(false))
        });
        let ended: io::Result<bool> = ended.await;
        if !ended? {
            // Before the client takes its replies, which may last: nothing more is for it.
            drop(place);
            return self.leave_answered().await;
        }
        let has_waited_for_keys = place.is_some();
        let outcome = self.end_wait(place).await;
        if matches!(outcome, Outcome::Again) {
            self.conversation.resume();
            return Ok(());
        }
        self.conversation.has_waited();
        if let Outcome::Served(served, logged) = outcome {
            let session = &mut self.conversation.session;
            session.logged.end = session.logged.end.max(logged);
            self.conversation.end_waiting(has_waited_for_keys, &served);
            let output = &mut self.conversation.output;
            let reply = output.len();
            if !last_reply.is_empty() {
                output.extend_from_slice(&served);
            }
            self.conversation.follow_up(reply);
            return Ok(());
        }
        if tells_durability && !last_reply.is_empty() {
            last_reply.clear();
            let Conversation { instance, session, .. } = &self.conversation;
            match is_enough && !instance.persistence.aof.is_on() {
                true => write_error(&mut last_reply, NO_LOG.as_bytes()),
                false => {
                    _ = tell_durability(instance, session, Reply::new(&mut last_reply, session.protocol))
                }
            }
        }
        let mut error = Vec::new();
        let ending = match client.replace_waiting(Waiting::No) {
            Waiting::Failed => {
                write_error(&mut error, Error::UNBLOCKED.as_bytes());
                &error
            }
            _ => &last_reply,
        };
        if has_waited_for_keys {
            self.conversation.give_up();
        }
        if has_waited_for_keys || !error.is_empty() {
            self.conversation.end_waiting(has_waited_for_keys, ending);
        }
        // Unless the client wants no reply, or a fault has dropped it.
        let reply = self.conversation.output.len();
        if !last_reply.is_empty() {
            self.conversation.output.extend_from_slice(ending);
        }
        self.conversation.follow_up(reply);
        Ok(())
    }

    /// Ends a wait for keys; returns what has come of it. A client that tries again goes on waiting for
    /// others, who may end that meanwhile.
    async fn end_wait(&mut self, place: Option<QueuePlace>) -> Outcome {
        let Some(place) = place else { return Outcome::GivenUp };
        let outcome = loop {
            match place.waiter.end() {
                Some(outcome) => break outcome,
                // Another client is serving this one right now.
                None => yield_now().await,
            }
        };
        let Conversation { session, .. } = &self.conversation;
        let is_unblocked = session.client.waiting() != Waiting::Yes;
        match outcome {
            Outcome::Again if !is_unblocked => return outcome,
            Outcome::GivenUp if !is_unblocked && self.conversation.tries_again() => return Outcome::Again,
            _ => self.conversation.session.blocked = None,
        }
        match outcome {
            Outcome::Served(..) => outcome,
            Outcome::Again | Outcome::GivenUp => Outcome::GivenUp,
        }
    }

    /// Waits until the client has sent something, or something else needs attention. Writes what waits before
    /// it reads, so that little waits for a client that takes its replies.
    async fn next(&mut self) -> io::Result<Next> {
        poll_fn(|context| {
            self.write_more(context)?;
            if let Poll::Ready(read) = self.poll_read(context)? {
                return Poll::Ready(Ok(Next::Read(read)));
            }
            self.reads = 0;
            let client = &self.conversation.session.client;
            if self.is_writing() {
                // Mail comes after the output that waits already.
                let leaving = client.poll_asked_to_leave(context, Leaving::WhenAnswered);
                return leaving.map(|()| Ok(Next::Attention(Attention::Leave)));
            }
            client.poll_attention(context).map(|what| Ok(Next::Attention(what)))
        })
        .await
    }

    /// Reads what is there. Holds a buffer only while something is there.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let intake = self.conversation.intake();
        let polled = if intake.is_packed() {
            self.poll_read_beside(context)
        } else {
            intake.make_room();
            self.carrier.poll_read(context, &mut intake.input)
        };
        if polled.is_pending() {
            self.conversation.rest();
        }
        polled
    }

    /// Reads into a buffer of the thread, behind input that is packed: it grows by no more than what comes.
    #[cold]
    fn poll_read_beside(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut beside = buffers::take_intake();
        beside.make_room();
        let polled = self.carrier.poll_read(context, &mut beside.input);
        self.conversation.intake().append(&beside.input);
        beside.clear();
        buffers::give_back_intake(beside);
        polled
    }

    /// Writes the replies to the socket, in one write if it takes them at once. What it does not take waits,
    /// and the client may send more; but for a client that has not authenticated, this waits.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        let instance = &self.conversation.instance;
        if !instance.reply_gate.is_open() || !instance.is_settled() {
            self.may_answer().await?;
        }
        poll_fn(|context| Poll::Ready(self.write_or_keep(context))).await?;
        if self.is_writing() && !self.conversation.session.is_authenticated {
            self.conversation.limit_stranger();
            self.drain().await?;
        }
        Ok(())
    }

    /// Writes the client's mail to the socket.
    async fn deliver_mail(&mut self) -> io::Result<()> {
        // First: what comes while this waits for the log may be news of changes behind that.
        let mail = self.conversation.session.client.take_mail(true);
        let instance = &self.conversation.instance;
        if !instance.reply_gate.is_open() || !instance.is_settled() {
            self.may_answer().await?;
        }
        self.carrier.append(mail);
        poll_fn(|context| Poll::Ready(self.write_or_keep(context))).await
    }

    /// Makes sure that replies may be sent: that the log is written as far as the client may have seen it.
    async fn may_answer(&mut self) -> io::Result<()> {
        let Conversation { instance, session, .. } = &self.conversation;
        let (own, logged) = (session.logged, instance.logged());
        if instance.reply_gate.is_open() && self.writes_log(logged).await {
            return Ok(());
        }
        self.conversation.rest();
        self.conversation.pack_output();
        let Conversation { instance, session, .. } = &self.conversation;
        session.client.begin_service();
        if !instance.reply_gate.decided().await {
            return Err(made_to_leave());
        }
        if !instance.settled(logged, own).await {
            // Its changes may be lost. It is disconnected without a reply, since either reply could be wrong.
            return Err(io::Error::other("what it has changed could not be logged"));
        }
        let Conversation { instance, session, .. } = &self.conversation;
        session.client.set_active(instance.clients.now_ms());
        Ok(())
    }

    /// Writes the log up to here, unless that is for another thread. Returns whether replies may be sent.
    async fn writes_log(&mut self, logged: u64) -> bool {
        for _ in 0..TURNS_TO_WRITE {
            if self.conversation.instance.waits_for_sync() {
                return false;
            }
            // Other clients that are ready log their changes first: one write is for them all.
            self.carrier.step_aside().await;
            if self.conversation.instance.write_log(logged) {
                return true;
            }
        }
        false
    }

    /// Whether output waits for the client.
    #[inline]
    fn is_writing(&self) -> bool {
        self.carrier.is_writing()
    }

    fn write_or_keep(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Conversation { instance, session, output, .. } = &mut self.conversation;
        self.carrier.write_or_keep(context, instance, &session.client, output)
    }

    /// Writes as much of the waiting output as the client takes now.
    #[inline]
    fn write_more(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_writing() {
            let _ = self.poll_write(context)?;
        }
        Ok(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Conversation { instance, session, .. } = &self.conversation;
        self.carrier.poll_write(context, instance, &session.client)
    }

    /// Waits until the client has taken all its output.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
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

    /// Ends the connection as soon as the client has taken its replies so far.
    async fn leave_answered(&mut self) -> io::Result<()> {
        self.drain().await?;
        Err(made_to_leave())
    }
}

/// A client's place in the queues of the keys for which it waits.
struct QueuePlace {
    instance: Arc<Instance>,
    waiter: Arc<Waiter>,
    /// The number of the client, if it waits for a lock, and the lens knows it.
    shown: Option<u64>,
}

impl QueuePlace {
    fn new(session: &Session, instance: &Arc<Instance>, waiter: Arc<Waiter>) -> QueuePlace {
        let shown = instance.follow_wait(&session.client, &waiter);
        QueuePlace { instance: Arc::clone(instance), waiter, shown }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if let Some(client) = self.shown {
            self.instance.lens.end_wait(client);
        }
        // The connection may have ended meanwhile. Then the outcome is lost with it.
        self.waiter.leave();
        self.instance.keyspace.unblock(&self.waiter);
    }
}

/// How often a client lets others go first before it waits for another thread, which has the log's pen.
const TURNS_TO_WRITE: u32 = 3;
/// How often a client that always has more to read is served before it waits for its next turn.
const READS_IN_A_ROW_MAX: u32 = 8;
/// How often to check whether a shard is free: often at first, since most are held for some milliseconds.
const SHARD_GLANCE_MIN: Duration = Duration::from_millis(1);
const SHARD_GLANCE_MAX: Duration = Duration::from_millis(8);
/// How often to check whether a script that runs for too long is over.
const SCRIPT_GLANCE: Duration = Duration::from_millis(10);
