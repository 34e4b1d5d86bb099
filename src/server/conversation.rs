//! What a client and the server say to each other, without the socket between them: bytes go in, requests are
//! executed, replies come out.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, BytesMut};

use crate::commands::lookup::Finder;
use crate::engine::memory::{Plan, execute};
use crate::engine::meter::Meter;
use crate::faults::Delay;
use crate::instance::Instance;
use crate::resp::reply::write_error;
use crate::resp::{Limits, ProtocolError, Request, RequestReader};
use crate::session::{Replies, Session, Wait};
use crate::statistics::Count;

use super::buffers;

/// Replies are written before they grow beyond this, even if more requests wait.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A client's side of the server.
pub(super) struct Conversation {
    pub(super) instance: Arc<Instance>,
    pub(super) session: Session,
    reader: RequestReader,
    /// How many of the reader's requests have been executed.
    done: usize,
    /// What is known of the others; empty between two batches.
    plans: Vec<Plan>,
    /// What was read and not yet executed; without memory while there is nothing.
    pub(super) input: BytesMut,
    /// Replies that are not yet written; without memory while there are none.
    pub(super) output: Vec<u8>,
}

/// How far the requests that were read have been executed.
pub(super) enum Answered {
    /// All of them.
    All,
    /// Not all: the replies found no room.
    Some,
    /// Not all: the next one has to wait for the end of a pause.
    Paused,
    /// Not all: the next one is delayed by a fault.
    Delayed(Delay),
    /// Not all: the client waits before it is given its last reply, which begins here.
    Waiting { reply: usize, until: Option<Instant> },
}

impl Conversation {
    pub(super) fn new(instance: Arc<Instance>, session: Session) -> Conversation {
        Conversation {
            instance,
            session,
            reader: RequestReader::default(),
            done: 0,
            plans: Vec::new(),
            input: BytesMut::new(),
            output: Vec::new(),
        }
    }

    /// Gives back the buffer that was read into, if nothing is in it: to be called before the client is
    /// waited for.
    #[inline]
    pub(super) fn rest(&mut self) {
        if self.input.is_empty() {
            buffers::give_back_input(std::mem::take(&mut self.input));
        }
    }

    /// Whether what was read and not executed is within `client-query-buffer-limit`.
    pub(super) fn is_within_query_limit(&self) -> bool {
        let queued_bytes = self.session.queue.as_ref().map_or(0, |queue| queue.bytes);
        let total = self.input.len() + queued_bytes;
        let is_within = total <= self.instance.config.client_query_buffer_limit.size();
        if !is_within {
            tracing::warn!(
                "Closing client that reached max query buffer length: {} at {} bytes",
                self.session.client.address,
                total
            );
        }
        is_within
    }

    /// Executes the requests that have been read whole.
    pub(super) fn answer(&mut self) -> Answered {
        let Conversation { instance, session, reader, done, plans, input, output } = self;
        if output.capacity() == 0 {
            *output = buffers::take_output();
        }
        let mut meter = Meter::new(instance);
        meter.look(session);
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
            plan(instance, session, plans, reader.requests(input, *done));
            let mut reply = 0;
            for (request, plan) in reader.requests(input, *done).zip(plans.iter()) {
                if output.len() >= OUTPUT_BYTES_MAX
                    || paused.is_some_and(|paused| plan.has_to_wait(session, paused))
                {
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
                    break Answered::Waiting { reply, until: Some(moment) };
                }
                Some(Wait::ForEver) => break Answered::Waiting { reply, until: None },
                Some(Wait::Delay(delay)) => {
                    // It was not executed.
                    *done -= 1;
                    break Answered::Delayed(delay);
                }
            }
            if *done < ready {
                let is_full = output.len() >= OUTPUT_BYTES_MAX;
                break if is_full { Answered::Some } else { Answered::Paused };
            }
            drop_front(input, reader.release());
            *done = 0;
            if input.is_empty() {
                break Answered::All;
            }
        };
        if *done == 0 && !input.is_empty() && matches!(answered, Answered::All) {
            // What is left is the beginning of a request.
            drop_front(input, reader.release());
        }
        meter.finish(session);
        session.publish_changes();
        session.client.set_active(instance.clients.now_ms());
        session.client.set_query_bytes(input.len());
        answered
    }
}

/// Forgets the first so many bytes.
#[inline]
fn drop_front(input: &mut BytesMut, bytes: usize) {
    // Nearly always that is all, and the buffer is as it was before.
    if bytes == input.len() { input.clear() } else { input.advance(bytes) }
}

/// Plans requests that are to be executed one after the other.
#[inline(never)]
fn plan<'a>(
    instance: &Instance,
    session: &Session,
    plans: &mut Vec<Plan>,
    requests: impl Iterator<Item = Request<'a>>,
) {
    let (keyspace, mut finder) = (&instance.keyspace, Finder::default());
    plans.extend(requests.map(|request| Plan::new(keyspace, &mut finder, request)));
    // For a single one nothing could be done meanwhile.
    if plans.len() > 1 {
        plans.iter_mut().for_each(|plan| plan.prepare(keyspace, session.database));
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
