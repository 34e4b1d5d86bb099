//! What a client and the server say to each other, without the socket between them: bytes go in, requests are
//! executed, replies come out.

use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;

use crate::engine::memory::execute;
use crate::engine::meter::Meter;
use crate::faults::Delay;
use crate::instance::Instance;
use crate::resp::ProtocolError;
use crate::resp::reply::write_error;
use crate::session::{Replies, Session, Wait};
use crate::statistics::Count;

use super::buffers;
use super::intake::Intake;

/// Replies are written before they grow beyond this, even if more requests wait.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A client's side of the server.
pub(super) struct Conversation {
    pub(super) instance: Arc<Instance>,
    pub(super) session: Session,
    /// What was read and not yet executed, if there is anything.
    intake: Option<Box<Intake>>,
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
        Conversation { instance, session, intake: None, output: Vec::new() }
    }

    /// The buffer to read into.
    #[inline]
    pub(super) fn input(&mut self) -> &mut BytesMut {
        &mut self.intake.get_or_insert_with(buffers::take_intake).input
    }

    /// Gives back what was read into, if nothing is in it: to be called before the client is waited for.
    #[inline]
    pub(super) fn rest(&mut self) {
        if let Some(intake) = self.intake.take_if(|intake| intake.is_empty()) {
            buffers::give_back_intake(intake);
        }
    }

    /// Bytes that were read and not executed.
    fn input_bytes(&self) -> usize {
        self.intake.as_ref().map_or(0, |intake| intake.input.len())
    }

    /// Whether what was read and not executed is within `client-query-buffer-limit`.
    pub(super) fn is_within_query_limit(&self) -> bool {
        let queued_bytes = self.session.queue.as_ref().map_or(0, |queue| queue.bytes);
        let total = self.input_bytes() + queued_bytes;
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
        let Conversation { instance, session, intake, output } = self;
        let Some(intake) = intake else { return Answered::All };
        if output.capacity() == 0 {
            *output = buffers::take_output();
        }
        let mut meter = Meter::new(instance);
        meter.look(session);
        let answered = loop {
            let ready = match intake.read(instance, session) {
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
            intake.plan(instance, session);
            let Intake { input, reader, done, plans } = &mut **intake;
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
            intake.release();
            if intake.input.is_empty() {
                break Answered::All;
            }
        };
        if intake.done == 0 && !intake.input.is_empty() && matches!(answered, Answered::All) {
            // What is left is the beginning of a request.
            intake.release();
        }
        meter.finish(session);
        session.publish_changes();
        session.client.set_active(instance.clients.now_ms());
        session.client.set_query_bytes(intake.input.len());
        answered
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
