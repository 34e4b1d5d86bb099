//! The input of a connection: bytes, the requests in them, and their plans.

use bytes::{Buf, BytesMut};

use crate::commands::facts::lookup::Finder;
use crate::dispatch::Plan;
use crate::instance::Instance;
use crate::resp::{Limits, ProtocolError, RequestReader};
use crate::session::Session;

/// Bytes per read.
pub(super) const READ_BYTES: usize = 32 << 10;
/// Memory that may be too much for what is left, beside as much again as that.
const LOOSE_BYTES_MAX: usize = 1 << 10;

/// A connection has one only while it has input. While the connection waits, its size is that of the input.
#[derive(Debug, Default)]
pub(super) struct Intake {
    /// Bytes from the socket that are not executed yet.
    pub(super) input: BytesMut,
    /// The memory of the input. Its capacity shows only what lies behind its first byte.
    held_bytes: usize,
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

    /// The memory of the input.
    #[inline]
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Makes room for a read.
    #[inline]
    pub(super) fn make_room(&mut self) {
        if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
            self.grow(READ_BYTES);
        }
    }

    fn grow(&mut self, bytes: usize) {
        self.input.reserve(bytes);
        self.held_bytes = self.held_bytes.max(self.input.capacity());
    }

    /// Appends what was read into another one.
    pub(super) fn append(&mut self, read: &[u8]) {
        self.grow(read.len());
        self.input.extend_from_slice(read);
    }

    /// Whether it has no room for reads, since it is as small as what is left in it.
    #[inline]
    pub(super) fn is_packed(&self) -> bool {
        self.held_bytes < READ_BYTES && !self.input.is_empty()
    }

    /// Drops the requests that are done. Returns what is left in memory of its own size, if this has much
    /// more.
    pub(super) fn pack(&mut self) -> Option<Intake> {
        let bytes = self.reader.release_first(std::mem::take(&mut self.done));
        self.input.advance(bytes);
        let left = self.input.len();
        let is_loose = self.held_bytes > left.saturating_mul(2) + LOOSE_BYTES_MAX;
        is_loose.then(|| Intake {
            input: BytesMut::from(&self.input[..]),
            held_bytes: left,
            reader: self.reader.clone(),
            ..Intake::default()
        })
    }

    /// Drops everything, so that another connection may use it.
    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.reader = RequestReader::default();
        self.done = 0;
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
