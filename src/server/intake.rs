//! What a client has sent: bytes, the requests that were read from them, and their plans.

use bytes::{Buf, BytesMut};

use crate::commands::facts::lookup::Finder;
use crate::dispatch::Plan;
use crate::instance::Instance;
use crate::resp::{Limits, ProtocolError, RequestReader};
use crate::session::Session;

/// A connection has one only while there is something in it.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// What was read from the socket and not yet executed.
    pub(super) input: BytesMut,
    /// How that is cut into requests.
    pub(super) reader: RequestReader,
    /// How many of the reader's requests have been executed.
    pub(super) done: usize,
    /// The plans of the others; empty between two batches.
    pub(super) plans: Vec<Plan>,
}

impl Intake {
    /// Whether there is nothing in it, so that another connection may take it.
    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.reader.is_empty()
    }

    /// Bytes that can still be read into it without more memory.
    pub(super) fn free_bytes(&self) -> usize {
        self.input.capacity() - self.input.len()
    }

    /// Reads ahead. Returns how many requests are there whole.
    #[inline]
    pub(super) fn read(&mut self, instance: &Instance, session: &Session) -> Result<usize, ProtocolError> {
        let limits = Limits {
            bulk_bytes_max: instance.config.proto_max_bulk_len.size(),
            unauthenticated: !session.is_authenticated,
        };
        self.reader.read_ahead(&self.input, &limits)
    }

    /// Plans the requests that were read, which are to be executed one after the other.
    #[inline(never)]
    pub(super) fn plan(&mut self, instance: &Instance, session: &Session) {
        let (keyspace, mut finder) = (&instance.keyspace, Finder::new(&instance.names));
        let requests = self.reader.requests(&self.input, self.done);
        // Looked at once: a look for each request took 2% of the instructions of GET.
        match instance.remote.get() {
            None => self.plans.extend(requests.map(|request| Plan::new(keyspace, &mut finder, request))),
            Some(remote) => {
                let beside = |request| Plan::beside_store(keyspace, remote, &mut finder, request);
                self.plans.extend(requests.map(beside));
            }
        }
        // For a single request, there is nothing to do while memory is fetched.
        if self.plans.len() > 1 {
            self.plans.iter_mut().for_each(|plan| plan.prepare(keyspace, session.database));
        }
    }

    /// Forgets the requests that were read.
    #[inline]
    pub(super) fn release(&mut self) {
        let bytes = self.reader.release();
        // Nearly always that is everything, and the buffer is as it was before.
        if bytes == self.input.len() {
            self.input.clear()
        } else {
            self.input.advance(bytes)
        }
        self.done = 0;
    }
}
