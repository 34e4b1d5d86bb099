//! The input of a connection: bytes, the requests in them, and their plans.

use bytes::{Buf, BytesMut};

use crate::commands::facts::lookup::Finder;
use crate::dispatch::Plan;
use crate::instance::Instance;
use crate::resp::{Limits, ProtocolError, RequestReader};
use crate::session::Session;

/// A connection has one only while it has input.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// Bytes from the socket that are not executed yet.
    pub(super) input: BytesMut,
    /// Splits the bytes into requests.
    pub(super) reader: RequestReader,
    /// How many of the reader's requests have been executed.
    pub(super) done: usize,
    /// The plans of the remaining requests; empty between two batches.
    pub(super) plans: Vec<Plan>,
}

impl Intake {
    /// Whether it is empty, so that another connection may use it.
    pub(super) fn is_empty(&self) -> bool {
        self.input.is_empty() && self.reader.is_empty()
    }

    /// Bytes that can be read into it without more memory.
    pub(super) fn free_bytes(&self) -> usize {
        self.input.capacity() - self.input.len()
    }

    /// Reads ahead. Returns how many requests are complete.
    #[inline]
    pub(super) fn read(&mut self, instance: &Instance, session: &Session) -> Result<usize, ProtocolError> {
        let limits = Limits {
            bulk_bytes_max: instance.config.proto_max_bulk_len.size(),
            unauthenticated: !session.is_authenticated,
        };
        self.reader.read_ahead(&self.input, &limits)
    }

    /// Plans the requests that were read, in the order of their execution.
    #[inline(never)]
    pub(super) fn plan(&mut self, instance: &Instance, session: &Session) {
        let (keyspace, mut finder) = (&instance.keyspace, Finder::new(&instance.names));
        let requests = self.reader.requests(&self.input, self.done);
        // Checked once per batch: a check per request took 2% of the instructions of GET.
        match instance.remote.get() {
            None => self.plans.extend(requests.map(|request| Plan::new(keyspace, &mut finder, request))),
            Some(remote) => {
                let beside = |request| Plan::beside_store(keyspace, remote, &mut finder, request);
                self.plans.extend(requests.map(beside));
            }
        }
        // A single request has nothing to do while memory is fetched.
        if self.plans.len() > 1 {
            self.plans.iter_mut().for_each(|plan| plan.prepare(keyspace, session.database));
        }
    }

    /// Drops the requests that were read.
    #[inline]
    pub(super) fn release(&mut self) {
        let bytes = self.reader.release();
        // That is nearly always everything, and the buffer is empty again.
        if bytes == self.input.len() {
            self.input.clear()
        } else {
            self.input.advance(bytes)
        }
        self.done = 0;
    }
}
