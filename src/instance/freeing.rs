//! Frees large garbage: values and tables whose freeing takes so long that no client should wait for it.
//!
//! Garbage of UNLINK and FLUSHALL ASYNC goes to one thread, and so do large collections, which take longest.
//! All other garbage is freed by the client that made it: memory is free when its command returns, as after
//! DEL and FLUSHALL in Redis, and other threads serve the other clients of its thread meanwhile.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;

use super::Instance;
use crate::keyspace::Garbage;

/// The most pieces of garbage that wait for the thread; a piece comes from one command. Beyond that, a client
/// frees its own, so that memory cannot be filled faster than it is freed.
const QUEUED_MAX: usize = 64;

/// The thread that frees garbage in the background. It starts with the first garbage.
#[derive(Debug, Default)]
pub struct Freeing(OnceLock<SyncSender<Garbage>>);

impl Freeing {
    /// Passes garbage to the thread. Returns it if the thread has too much to do, or cannot start.
    pub(super) fn take(&self, garbage: Garbage) -> Option<Garbage> {
        let queue = self.0.get_or_init(|| {
            let (queue, garbage) = sync_channel(QUEUED_MAX);
            let free = move || garbage.into_iter().for_each(drop);
            // Without a thread the receiver is gone, and each client frees its own.
            let _ = thread::Builder::new().name("free".to_owned()).spawn(free);
            queue
        });
        match queue.try_send(garbage) {
            Ok(()) => None,
            Err(TrySendError::Full(garbage) | TrySendError::Disconnected(garbage)) => Some(garbage),
        }
    }
}

impl Instance {
    /// Frees the garbage of a command, for a caller that holds no lock.
    #[cold]
    pub fn free(&self, garbage: Garbage) {
        let left = if garbage.is_for_background() { self.freeing.take(garbage) } else { Some(garbage) };
        if left.is_some() {
            self.hand_over();
            drop(left);
        }
    }
}
