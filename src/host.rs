//! What the instances of a process share: work that needs a thread, but not one for each instance.
//!
//! An instance borrows from its host what it needs now and then, so an idle one has no thread. [`freeing`]
//! is the thread that frees large garbage, [`trimming`] gives unused memory back. [`runtime`] makes the
//! threads that serve clients, [`rota`] has them served in the order in which they were woken, and the
//! [`watchdog`] makes sure that one long request delays no other client.

mod freeing;
pub(crate) mod rota;
pub(crate) mod runtime;
pub(crate) mod trimming;
pub(crate) mod watchdog;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use freeing::Freeing;

/// What some instances share. A server of its own has a host of its own.
#[derive(Debug, Default)]
pub struct Host {
    /// The thread that frees their large garbage.
    pub freeing: Freeing,
    visits: AtomicU64,
}

impl Host {
    /// How often periodic work has woken up for one of the instances. Those that sleep are not visited.
    pub fn visits(&self) -> u64 {
        self.visits.load(Ordering::Relaxed)
    }

    /// Counts a visit.
    pub fn note_visit(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
    }
}
