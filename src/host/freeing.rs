//! Frees large garbage: values and tables whose freeing takes so long that no client should wait for it.
//!
//! Garbage of UNLINK and FLUSHALL ASYNC goes to one thread, and so do large collections, which take longest.
//! All other garbage is freed by the client that made it: memory is free when its command returns, as after
//! DEL and FLUSHALL in Redis, and other threads serve the other clients of its thread meanwhile.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::allocator::{Account, charged};
use crate::keyspace::Garbage;

/// The most pieces of garbage that wait for the thread; a piece comes from one command. Beyond that, a client
/// frees its own, so that memory cannot be filled faster than it is freed.
const QUEUED_MAX: usize = 64;

/// The thread that frees garbage in the background. It starts with the first garbage.
#[derive(Debug, Default)]
pub struct Freeing(OnceLock<SyncSender<Piece>>);

/// Garbage, and the account that gets its memory back.
type Piece = (Garbage, Option<Arc<Account>>);

impl Freeing {
    /// Passes garbage to the thread, with the account on which it was taken, if there is one. Returns the
    /// garbage if the thread has too much to do, or cannot start.
    pub fn take(&self, garbage: Garbage, account: Option<&Arc<Account>>) -> Option<Garbage> {
        let queue = self.0.get_or_init(|| {
            let (queue, pieces) = sync_channel(QUEUED_MAX);
            let free = move || pieces.into_iter().for_each(free);
            // Without a thread the receiver is gone, and each client frees its own.
            let _ = thread::Builder::new().name("free".to_owned()).spawn(free);
            queue
        });
        match queue.try_send((garbage, account.cloned())) {
            Ok(()) => None,
            Err(TrySendError::Full((garbage, _)) | TrySendError::Disconnected((garbage, _))) => Some(garbage),
        }
    }
}

fn free((garbage, account): Piece) {
    charged(account.as_deref(), || drop(garbage));
}
