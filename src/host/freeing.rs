//! Frees large garbage: values and tables whose freeing takes so long that no client should wait for it.
//!
//! Garbage of UNLINK and FLUSHALL ASYNC goes to one thread, and so do large collections, which take longest.
//! All other garbage is freed by the client that made it: memory is free when its command returns, as after
//! DEL and FLUSHALL in Redis, and other threads serve the other clients of its thread meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// Garbage, the account that gets its memory back, and the counts of the server that it comes from.
type Piece = (Garbage, Option<Arc<Account>>, Arc<Freed>);

/// How much of a server's garbage the thread has freed.
#[derive(Debug, Default)]
pub struct Freed {
    pending: AtomicU64,
    done: AtomicU64,
}

impl Freed {
    /// Values that wait for the thread.
    pub fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Values that the thread has freed, since the start or since CONFIG RESETSTAT.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Counts anew (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.done.store(0, Ordering::Relaxed);
    }
}

impl Freeing {
    /// Passes garbage to the thread, with the account on which it was taken, if there is one. Returns the
    /// garbage if the thread has too much to do, or cannot start.
    pub fn take(
        &self,
        garbage: Garbage,
        account: Option<&Arc<Account>>,
        counts: &Arc<Freed>,
    ) -> Option<Garbage> {
        let queue = self.0.get_or_init(|| {
            let (queue, pieces) = sync_channel(QUEUED_MAX);
            let free = move || pieces.into_iter().for_each(free);
            // Without a thread the receiver is gone, and each client frees its own.
            let _ = thread::Builder::new().name("free".to_owned()).spawn(free);
            queue
        });
        let values = garbage.values();
        counts.pending.fetch_add(values, Ordering::Relaxed);
        match queue.try_send((garbage, account.cloned(), Arc::clone(counts))) {
            Ok(()) => None,
            Err(TrySendError::Full((garbage, ..)) | TrySendError::Disconnected((garbage, ..))) => {
                counts.pending.fetch_sub(values, Ordering::Relaxed);
                Some(garbage)
            }
        }
    }
}

fn free((garbage, account, counts): Piece) {
    let values = garbage.values();
    charged(account.as_deref(), || drop(garbage));
    counts.done.fetch_add(values, Ordering::Relaxed);
    counts.pending.fetch_sub(values, Ordering::Relaxed);
}
