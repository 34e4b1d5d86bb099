//! A client's conversation with the server, without the socket: bytes go in, requests are executed, replies
//! come out.

use std::mem::take;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::allocator;
use crate::clients::{Input, Leaving, Registration};
use crate::commands::execution::origin::Origin;
use crate::commands::execution::traces::{Measures, charge};
use crate::commands::facts::Run;
use crate::commands::facts::lookup::{Registered, find, resolve};
use crate::commands::testing::faults::follow_up;
use crate::dispatch::meter::Meter;
use crate::dispatch::{execute, set_off};
use crate::faults::Delay;
use crate::instance::{Doer, Instance};
use crate::keyspace::{Own, Waiter};
use crate::resp::reply::write_error;
use crate::resp::{ProtocolError, Request};
use crate::session::{Contention, Replies, Session, Wait};
use crate::statistics::Count;
use crate::statistics::commands::Usage;
use crate::values::ABSENT_KIND;

use super::buffers;
use super::intake::Intake;

/// Replies are written to the socket before they grow beyond this, even if more requests wait.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The same for a client that has not authenticated: no more than this ever waits for it.
const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 16 << 10;

/// A client that has not authenticated may send no more than this while nothing that it has sent is executed,
/// as in a pause. Redis: the same.
const UNAUTHENTICATED_INPUT_BYTES_MAX: usize = 1 << 20;

/// A client's side of the server.
pub(super) struct Conversation {
    pub(super) instance: Arc<Instance>,
    pub(super) session: Session,
    /// Makes the client known to others until the connection ends.
    registration: Registration,
    /// The sandboxes in which the client has taken locks, but for the one in which it is.
    pub(super) left: Vec<Weak<Instance>>,
    /// What was read and not yet executed, if there is anything.
    intake: Option<Box<Intake>>,
    /// Replies that were not yet written to the socket. It takes no memory while there are none.
    pub(super) output: Vec<u8>,
    /// Whether CLIENT LIST shows something in the input.
    is_input_shown: bool,
}

/// How far the requests that were read have been executed.
pub(super) enum Answered {
    /// All of them.
    All,
    /// Not all: first the replies so far must be written to the socket.
    Some,
    /// Not all: first the last reply, which begins here, needs a thread for long requests, which completes
    /// it.
    Incomplete { reply: usize },
    /// Not all: the next one has to wait for the end of a pause.
    Paused,
    /// Not all: the next one is delayed by a fault.
    Delayed(Delay),
    /// Not all: the next one needs what another client has had for more than a moment.
    Contended(Contention),
    /// Not all: the next one waits for the store.
    InStore,
    /// Not all: the next one waits for another server.
    Migrating,
    /// Not all: the client goes to another sandbox first.
    Leaving,
    /// Not all: the next one waits for a thread for long requests.
    Long,
    /// Not all: the client waits for its last reply, which begins here. If it waits for keys, another client
    /// may serve it.
    Waiting { reply: usize, until: Option<Instant>, awaited: Awaited },
}

/// What a client waits for, besides a time.
pub(super) enum Awaited {
    /// Only the time, as for a client that is delayed.
    Time,
    /// Keys, in whose queues it has a place.
    Keys(Arc<Waiter>),
    /// Its changes to be durable, if that is enough. The reply says whether they are by then.
    Durable { is_enough: bool },
}

impl Conversation {
    pub(super) fn new(instance: Arc<Instance>, registration: Registration) -> Conversation {
        let session = Session::new(Arc::clone(&registration.client), &instance.users);
        let (left, intake, output, is_input_shown) = (Vec::new(), None, Vec::new(), false);
        Conversation { instance, session, registration, left, intake, output, is_input_shown }
    }

    /// The input to read into.
    #[inline]
    pub(super) fn intake(&mut self) -> &mut Intake {
        self.intake.get_or_insert_with(buffers::take_intake)
    }

    /// Gives back the input buffer. Called before the server waits, for the client or for anything else. What
    /// is left in the buffer stays, in memory of its own size: any number of clients may wait for long.
    #[inline]
    pub(super) fn rest(&mut self) {
        if let Some(intake) = self.intake.take_if(|intake| intake.is_empty()) {
            buffers::give_back_intake(intake);
        } else if self.intake.is_some() {
            self.pack_input();
        }
    }

    #[cold]
    fn pack_input(&mut self) {
        let Some(intake) = &mut self.intake else { return };
        if let Some(packed) = intake.pack() {
            let mut large = std::mem::replace(intake, Box::new(packed));
            large.clear();
            buffers::give_back_intake(large);
            self.show_input();
        }
    }

    /// Gives back the output buffer as [`rest`](Self::rest) does with the input. Called before the server
    /// waits with replies that may not be sent yet.
    pub(super) fn pack_output(&mut self) {
        let packed = self.output.as_slice().to_vec();
        buffers::give_back_output(std::mem::replace(&mut self.output, packed));
    }

    /// Bytes that were read and not executed.
    fn input_bytes(&self) -> usize {
        self.intake.as_ref().map_or(0, |intake| intake.input.len())
    }

    /// Whether what was read and not executed is within `client-query-buffer-limit`, and within the limit for
    /// a client that has not authenticated.
    pub(super) fn is_within_query_limit(&self) -> bool {
        let queued_bytes = self.session.queue.as_ref().map_or(0, |queue| queue.bytes);
        let total = self.input_bytes() + queued_bytes;
        let is_known = || self.session.is_authenticated || self.instance.users.admits_everybody();
        let is_within = total <= self.instance.config.client_query_buffer_limit.size()
            && (total <= UNAUTHENTICATED_INPUT_BYTES_MAX || is_known());
        if !is_within {
            self.instance.statistics.add(Count::QueriesTooLong, 1);
            tracing::warn!(
                "Closing client that reached max query buffer length: {} at {} bytes",
                self.session.client.address,
                total
            );
        }
        is_within
    }

    /// Whether something lies in the input, or is queued or listened to.
    #[inline]
    pub(super) fn is_input_shown(&self) -> bool {
        self.is_input_shown
    }

    /// Shows other clients how much lies in the input, unless it is nothing as before.
    #[inline]
    pub(super) fn show_input(&mut self) {
        let is_empty = self.input_bytes() == 0 && !self.session.has_asked_to_remember();
        if !is_empty || self.is_input_shown {
            self.show_changed_input(!is_empty);
        }
    }

    #[cold]
    fn show_changed_input(&mut self, is_shown: bool) {
        self.is_input_shown = is_shown;
        let session = &self.session;
        let mut input = Input {
            queued_bytes: session.transaction_bytes(),
            subscribed_bytes: session.listening_bytes(),
            ..Input::default()
        };
        // An empty one is given back before the server waits for the client.
        if let Some(intake) = self.intake.as_ref().filter(|intake| !intake.input.is_empty()) {
            input.argument_bytes = intake.reader.partial_bytes();
            input.query_bytes = intake.input.len().saturating_sub(input.argument_bytes);
            input.query_free_bytes = intake.held_bytes().saturating_sub(intake.input.len());
        }
        session.client.footprint.set_input(input);
        self.limit_stranger();
    }

    /// Disconnects a client that has not authenticated if its buffers take too much, beside those of others.
    pub(super) fn limit_stranger(&self) {
        let client = &self.session.client;
        if client.footprint.is_too_much_of_a_stranger() && client.leaving() != Leaving::Now {
            self.instance.statistics.add(Count::QueriesTooLong, 1);
            tracing::warn!(
                "Closing client that has not authenticated: {}, since such clients hold too much together",
                client.address
            );
            client.ask_to_leave(Leaving::Now);
        }
    }

    /// Whether it is time to try the last request again, although its wait is not over.
    pub(super) fn tries_again(&self) -> bool {
        let again = self.session.blocked.as_ref().and_then(|blocked| blocked.again);
        again.is_some_and(|again| again <= Instant::now())
    }

    /// Lets the last request be executed again. The client keeps its place in the queues of its keys.
    pub(super) fn resume(&mut self) {
        self.session.resumed = self.session.blocked.take();
    }

    /// Counts the last request as done, since its wait is over.
    pub(super) fn has_waited(&mut self) {
        if let Some(intake) = &mut self.intake {
            intake.done += 1;
        }
    }

    /// Counts the last request, whose wait has ended, with the end of its reply: an error counts as a
    /// failure. If it waited for its keys, it has not been charged yet.
    #[cold]
    pub(super) fn end_waiting(&mut self, has_waited_for_keys: bool, reply: &[u8]) {
        let Conversation { instance, session, intake, .. } = self;
        let took = take(&mut session.took_before_wait);
        let Some((registered, request)) = last_request(instance, intake.as_deref()) else { return };
        if has_waited_for_keys {
            let measures = Measures { took, reply_bytes: reply.len() };
            charge(instance, session, registered, request, Origin::Request, measures);
        }
        if let Some(error) = reply.strip_prefix(b"-") {
            instance.statistics.add_usage(registered.number, Usage { failed: 1, ..Usage::default() });
            instance.statistics.errors.count(error.trim_ascii_end());
        }
    }

    /// Does what a fault does after the last request, whose reply begins here and is complete now.
    #[inline]
    pub(super) fn follow_up(&mut self, reply: usize) {
        if self.session.sequel.is_some() {
            self.follow_up_struck(reply);
        }
    }

    #[cold]
    fn follow_up_struck(&mut self, reply: usize) {
        let Conversation { instance, session, intake, output, .. } = self;
        let request = last_request(instance, intake.as_deref()).map(|(_, request)| request);
        if let Some(sequel) = session.sequel.take() {
            follow_up(instance, session, request, sequel, (output, reply));
        }
    }

    /// Notes that the client has waited for its keys in vain: the lens shows those who wait for locks.
    #[cold]
    pub(super) fn give_up(&self) {
        let last = last_request(&self.instance, self.intake.as_deref());
        let Some((registered, request)) = last else { return };
        if let Run::Block(blocking) = registered.command.run
            && blocking.kind == ABSENT_KIND
            && let Some((key, _)) = registered.command.keys_of(request).next()
        {
            let command = registered.command.for_lens();
            let doer = Doer { session: &self.session, command, request };
            self.instance.follow_given_up(doer, key);
        }
    }

    /// Executes the requests that have been read whole.
    pub(super) fn answer(&mut self) -> Answered {
        let mut answered = self.answer_batch();
        // Replies that wait for the log of this sandbox are written first.
        while matches!(answered, Answered::Leaving) && !self.instance.persistence.aof.is_on() {
            self.go();
            answered = self.answer_batch();
        }
        self.show_input();
        answered
    }

    /// Goes to the sandbox that the client has selected.
    #[cold]
    pub(super) fn go(&mut self) {
        let Conversation { instance, session, registration, .. } = self;
        let Some(place) = &instance.place else { return };
        let Some(entered) = place.all.go(instance, session.goes_to) else {
            session.is_closing = true;
            return;
        };
        registration.go_to(&entered.clients);
        session.logged = Own::default();
        session.first_database = entered.keyspace.shown_database(0);
        session.show(|_| {});
        if session.client.has_taken_locks.swap(false, Ordering::Relaxed) {
            self.left.retain(|left| left.strong_count() > 0 && !ptr::eq(left.as_ptr(), &**instance));
            self.left.push(Arc::downgrade(instance));
        }
        entered.stir();
        *instance = entered;
    }

    fn answer_batch(&mut self) -> Answered {
        let Conversation { instance, session, intake, output, .. } = self;
        let Some(intake) = intake else { return Answered::All };
        let _passing = allocator::hold_back();
        session.client.begin_service();
        if output.capacity() == 0 {
            *output = buffers::take_output();
        }
        let mut meter = Meter::new(instance);
        meter.reload(session);
        let output_bytes_max = match session.is_authenticated {
            true => OUTPUT_BYTES_MAX,
            false => UNAUTHENTICATED_OUTPUT_BYTES_MAX,
        };
        let answered = loop {
            let ready = match intake.read(instance, session) {
                Ok(0) => break Answered::All,
                Ok(ready) => ready,
                Err(error) => {
                    instance.statistics.errors.count(&error.message());
                    refuse(session, error, output);
                    break Answered::All;
                }
            };
            intake.plan(instance, session);
            let Intake { input, reader, done, plans, .. } = &mut **intake;
            let mut reply = 0;
            for (request, plan) in reader.requests(input, *done).zip(plans.iter()) {
                if output.len() >= output_bytes_max {
                    break;
                }
                reply = output.len();
                let goes_on = execute(instance, session, &request, plan, &mut meter, output);
                *done += 1;
                if !goes_on {
                    break;
                }
            }
            plans.clear();
            if session.is_closing {
                break Answered::All;
            }
            match session.wait.take() {
                None => {}
                Some(Wait::Until(moment)) => {
                    break Answered::Waiting { reply, until: Some(moment), awaited: Awaited::Time };
                }
                Some(Wait::ForEver) => {
                    break Answered::Waiting { reply, until: None, awaited: Awaited::Time };
                }
                Some(Wait::Durable { until, is_enough }) => {
                    break Answered::Waiting { reply, until, awaited: Awaited::Durable { is_enough } };
                }
                Some(Wait::Blocked) => {
                    let until = session.blocked.as_ref().and_then(|blocked| blocked.again.or(blocked.until));
                    let waiter = session.blocked.as_ref().map(|blocked| Arc::clone(&blocked.waiter));
                    break Answered::Waiting {
                        reply,
                        until,
                        awaited: waiter.map_or(Awaited::Time, Awaited::Keys),
                    };
                }
                Some(Wait::Contention(contention)) => {
                    // It was not executed.
                    *done -= 1;
                    break Answered::Contended(contention);
                }
                Some(Wait::Store) => {
                    // It is executed again when the store has answered.
                    *done -= 1;
                    set_off(instance, session, &mut meter, reader.requests(input, *done + 1));
                    break Answered::InStore;
                }
                Some(Wait::Migration) => {
                    // It is executed again when the other server has replied.
                    *done -= 1;
                    break Answered::Migrating;
                }
                Some(Wait::Long) => {
                    // It was not executed.
                    *done -= 1;
                    break Answered::Long;
                }
                Some(Wait::Reply) => break Answered::Incomplete { reply },
                Some(Wait::Turn) => break Answered::Some,
                Some(Wait::Move) => break Answered::Leaving,
                Some(Wait::Delay(delay)) => {
                    // It was not executed.
                    *done -= 1;
                    break Answered::Delayed(delay);
                }
                Some(Wait::Leaving) => {
                    session.is_closing = true;
                    break Answered::All;
                }
                Some(Wait::Pause) => {
                    // Nor was this one.
                    *done -= 1;
                    break Answered::Paused;
                }
            }
            if *done < ready {
                break Answered::Some;
            }
            intake.release();
            if intake.input.is_empty() {
                break Answered::All;
            }
        };
        if matches!(answered, Answered::Waiting { .. }) {
            // It is not done before its wait is over.
            intake.done -= 1;
        }
        if intake.done == 0 && !intake.input.is_empty() && matches!(answered, Answered::All) {
            // What is left is the beginning of a request.
            intake.release();
        }
        // Only the first request of a batch is one that was resumed, and it may have to wait for its turn.
        if !matches!(
            answered,
            Answered::Contended(_)
                | Answered::Delayed(_)
                | Answered::Paused
                | Answered::Long
                | Answered::Migrating
        ) {
            session.give_up_resumed();
        }
        meter.finish(session);
        session.show_changes();
        session.client.set_active(instance.clients.now_ms());
        answered
    }
}

/// The last request that was executed, and its command.
fn last_request<'i>(
    instance: &Instance,
    intake: Option<&'i Intake>,
) -> Option<(&'static Registered, Request<'i>)> {
    let intake = intake.filter(|intake| intake.done > 0)?;
    let request = intake.reader.requests(&intake.input, intake.done - 1).next()?;
    let registered = find(&instance.names, request.name())?;
    Some((resolve(registered, request).ok()?, request))
}

/// Replies to a stream that cannot be read further, and ends it.
#[cold]
fn refuse(session: &mut Session, error: ProtocolError, output: &mut Vec<u8>) {
    tracing::debug!("Protocol error from client {}: {error}", session.client.address);
    if session.replies == Replies::On {
        write_error(output, &error.message());
    }
    session.is_closing = true;
}
