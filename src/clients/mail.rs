//! What others send a client without its asking: messages of channels, invalidations, every command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::{ClientClass, OutputLimits};

/// What may wait for a client without a limit: Redis has none then, but nothing grows without bound here.
const BYTES_MAX: usize = 32 << 20;
/// The same for one that listens to channels, whose limit was taken away on purpose.
const PUBSUB_BYTES_MAX: usize = 1 << 30;

/// What waits for one client.
#[derive(Debug)]
pub struct Mail {
    limits: Arc<OutputLimits>,
    state: Mutex<State>,
    /// Whether there is any that was not taken, for who looks often.
    is_waiting: AtomicBool,
}

#[derive(Debug)]
struct State {
    class: ClientClass,
    waiting: Vec<u8>,
    /// What is to come after the reply to the client's own command, which has brought it about.
    after_reply: Vec<u8>,
    /// Bytes that the connection has taken, and is writing.
    taken: usize,
    /// Since when more waits than the soft limit allows.
    over_soft_limit_since: Option<Instant>,
}

impl Mail {
    pub(super) fn new(limits: Arc<OutputLimits>) -> Mail {
        let class = ClientClass::Normal;
        let state = State {
            class,
            waiting: Vec::new(),
            after_reply: Vec::new(),
            taken: 0,
            over_soft_limit_since: None,
        };
        Mail { limits, state: Mutex::new(state), is_waiting: AtomicBool::new(false) }
    }

    /// Says whether the client listens to channels, which has limits of its own.
    pub fn set_class(&self, class: ClientClass) {
        self.state.lock().class = class;
    }

    /// Puts something in; answers whether the client may stay.
    pub(super) fn put(&self, bytes: &[u8], comes_after_reply: bool) -> bool {
        let mut state = self.state.lock();
        let total = state.waiting.len() + state.after_reply.len() + state.taken + bytes.len();
        let bytes_max = if state.class == ClientClass::PubSub { PUBSUB_BYTES_MAX } else { BYTES_MAX };
        if total > bytes_max || !self.is_within_limits(&mut state, total) {
            state.waiting = Vec::new();
            state.after_reply = Vec::new();
            self.note(&state);
            return false;
        }
        let place = if comes_after_reply { &mut state.after_reply } else { &mut state.waiting };
        place.extend_from_slice(bytes);
        self.note(&state);
        true
    }

    /// Lets others know whether any is waiting; to be called before the state is unlocked.
    fn note(&self, state: &State) {
        let is_waiting = !state.waiting.is_empty() || !state.after_reply.is_empty();
        self.is_waiting.store(is_waiting, Ordering::Release);
    }

    fn is_within_limits(&self, state: &mut State, total: usize) -> bool {
        let limit = self.limits.get(state.class);
        let exceeds = |bytes: u64| bytes > 0 && total as u64 > bytes;
        if !exceeds(limit.soft_bytes) {
            state.over_soft_limit_since = None;
            return !exceeds(limit.hard_bytes);
        }
        let since = state.over_soft_limit_since.get_or_insert_with(Instant::now);
        !exceeds(limit.hard_bytes) && since.elapsed() <= Duration::from_secs(limit.soft_seconds)
    }

    /// Whether there is any that was not taken.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    /// Moves what waits to the end of `output`.
    pub fn take(&self, output: &mut Vec<u8>) {
        let mut state = self.state.lock();
        state.taken += state.waiting.len();
        match output.is_empty() {
            true => std::mem::swap(output, &mut state.waiting),
            false => output.append(&mut state.waiting),
        }
        state.waiting = Vec::new();
        self.note(&state);
    }

    /// Moves what is to come after the reply to the end of `output`, where that now is.
    pub fn take_after_reply(&self, output: &mut Vec<u8>) {
        let mut state = self.state.lock();
        state.taken += state.after_reply.len();
        output.append(&mut state.after_reply);
        state.after_reply = Vec::new();
        self.note(&state);
    }

    /// Says that what was taken has been written.
    pub fn written(&self) {
        self.state.lock().taken = 0;
    }
}
