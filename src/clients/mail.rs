//! What a client gets without a request: messages of channels, invalidations, the commands for MONITOR.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::backlog::Backlog;
use super::footprint::{Footprint, Output};
use crate::config::{ClientClass, OutputLimits};

/// Mail that may wait for a client without a limit: Redis has none then, but nothing that a client has not
/// asked for grows without bound here.
const BYTES_MAX: usize = 32 << 20;
/// The same for a client that listens to channels, whose limit was taken away on purpose.
const PUBSUB_BYTES_MAX: usize = 1 << 30;

/// What a client may have at any time, so that it is within every limit. Redis: the buffer of replies that
/// each client has, which its limits do not count (`PROTO_REPLY_CHUNK_BYTES`).
pub(super) const FREE_BYTES: usize = 16 << 10;

/// The mail that waits for one client.
#[derive(Debug)]
pub(super) struct Mail {
    limits: Arc<OutputLimits>,
    state: Mutex<State>,
    /// How many bytes were not taken yet, to be read often without the lock.
    bytes: AtomicUsize,
}

#[derive(Debug)]
struct State {
    class: ClientClass,
    waiting: Backlog,
    /// Mail caused by the client's own command, which must follow the reply.
    after_reply: Vec<u8>,
    /// Bytes that EXEC or a script will put in once it has ended. The limits count them already.
    reserved_bytes: usize,
    /// Since when the waiting bytes exceed the soft limit.
    over_soft_limit_since: Option<Instant>,
}

impl State {
    fn bytes(&self) -> usize {
        self.waiting.bytes() + self.after_reply.len()
    }

    fn memory_bytes(&self) -> usize {
        self.waiting.memory_bytes() + self.after_reply.capacity()
    }
}

impl Mail {
    pub(super) fn new(limits: Arc<OutputLimits>) -> Mail {
        let class = ClientClass::Normal;
        let (waiting, after_reply) = (Backlog::default(), Vec::new());
        let state = State { class, waiting, after_reply, reserved_bytes: 0, over_soft_limit_since: None };
        Mail { limits, state: Mutex::new(state), bytes: AtomicUsize::new(0) }
    }

    /// Sets whether the client listens to channels, for which separate limits apply.
    pub(super) fn set_class(&self, class: ClientClass) {
        self.state.lock().class = class;
    }

    /// Puts something in. Returns whether the client may have that much, with what its connection has to
    /// write.
    pub(super) fn put(&self, bytes: &[u8], comes_after_reply: bool, footprint: &Footprint) -> bool {
        let mut state = self.state.lock();
        let may_stay = self.admit(&mut state, bytes.len(), footprint);
        match may_stay {
            false => {}
            true if comes_after_reply => state.after_reply.extend_from_slice(bytes),
            true => state.waiting.extend(bytes),
        }
        self.note(&state, footprint);
        may_stay
    }

    /// Reserves room for bytes that may be put in later. Returns whether the client may have that much; if
    /// not, nothing is reserved.
    pub(super) fn reserve(&self, bytes: usize, footprint: &Footprint) -> bool {
        let mut state = self.state.lock();
        let may_come = self.admit(&mut state, bytes, footprint);
        if may_come {
            state.reserved_bytes += bytes;
        } else {
            self.note(&state, footprint);
        }
        may_come
    }

    /// Gives back what was reserved: the bytes are put in next, or never.
    pub(super) fn give_back(&self, bytes: usize) {
        self.state.lock().reserved_bytes -= bytes;
    }

    /// Whether the client may have `bytes` more. If not, its mail is dropped, since the client will be cut
    /// off.
    fn admit(&self, state: &mut State, bytes: usize, footprint: &Footprint) -> bool {
        let total = state.bytes() + state.reserved_bytes + bytes;
        let bytes_max = if state.class == ClientClass::PubSub { PUBSUB_BYTES_MAX } else { BYTES_MAX };
        let may_stay = total <= bytes_max && self.is_within_limits(state, total + footprint.output().bytes);
        if !may_stay {
            state.waiting = Backlog::default();
            state.after_reply = Vec::new();
        }
        may_stay
    }

    /// Whether the client may have this mail beside `output_bytes` that its connection has to write.
    pub(super) fn may_wait_with(&self, output_bytes: usize) -> bool {
        let mut state = self.state.lock();
        let total = state.bytes() + state.reserved_bytes + output_bytes;
        self.is_within_limits(&mut state, total)
    }

    /// Lets others know how much waits; to be called before the state is unlocked.
    fn note(&self, state: &State, footprint: &Footprint) {
        self.bytes.store(state.bytes(), Ordering::Release);
        footprint.set_mail(state.memory_bytes());
    }

    fn is_within_limits(&self, state: &mut State, total: usize) -> bool {
        let limit = self.limits.get(state.class);
        let exceeds = |bytes: u64| bytes > 0 && total > FREE_BYTES && total as u64 > bytes;
        if !exceeds(limit.soft_bytes) {
            state.over_soft_limit_since = None;
            return !exceeds(limit.hard_bytes);
        }
        let since = state.over_soft_limit_since.get_or_insert_with(Instant::now);
        !exceeds(limit.hard_bytes) && since.elapsed() <= Duration::from_secs(limit.soft_seconds)
    }

    /// How many bytes were not taken.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether there is any that was not taken.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.bytes() > 0
    }

    /// Takes the mail; the part that must follow a reply only while no reply is being made.
    pub(super) fn take(&self, is_between_replies: bool, footprint: &Footprint) -> Backlog {
        let mut state = self.state.lock();
        let mut taken = std::mem::take(&mut state.waiting);
        if is_between_replies {
            taken.push(std::mem::take(&mut state.after_reply), 0);
        }
        self.note(&state, footprint);
        taken
    }

    /// Takes the mail that must follow the reply.
    pub(super) fn take_after_reply(&self, footprint: &Footprint) -> Vec<u8> {
        let mut state = self.state.lock();
        let taken = std::mem::take(&mut state.after_reply);
        self.note(&state, footprint);
        taken
    }

    /// The bytes that wait, in how many pieces, and the memory that these take.
    pub(super) fn waiting(&self) -> Output {
        let state = self.state.lock();
        Output {
            bytes: state.bytes(),
            pieces: state.waiting.pieces() + usize::from(!state.after_reply.is_empty()),
            memory_bytes: state.memory_bytes(),
        }
    }
}
