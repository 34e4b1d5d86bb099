//! What the servers of a process share: threads, and work that needs a thread now and then.
//!
//! A server borrows from its [`Host`] what it needs, so an idle one has no thread. [`runtime`] makes the
//! threads that serve clients, [`rota`] has them served in the order in which they were woken, and the
//! [`watchdog`] makes sure that one long request delays no other client. [`trimming`] gives unused memory
//! back. What an instance without sockets needs of its host is in [`Shared`]: [`freeing`] is the thread that
//! frees large garbage.

pub(crate) mod freeing;
pub(crate) mod rota;
pub(crate) mod runtime;
pub(crate) mod trimming;
pub(crate) mod watchdog;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};

pub(crate) use freeing::Freeing;
use rota::Rota;

/// How long the threads may take to end.
const THREADS_PATIENCE: Duration = Duration::from_secs(10);

/// The threads of some servers, or of one. They end when the last server has gone and this is dropped.
pub struct Host {
    /// How many threads serve clients.
    pub(crate) threads: usize,
    /// The runtime of the threads.
    pub(crate) runtime: Handle,
    /// The clients of all servers.
    pub(crate) rota: Arc<Rota>,
    /// What the instances of the servers borrow.
    pub(crate) shared: Arc<Shared>,
    trimming: Once,
    /// There until the host is dropped.
    owned: Option<Runtime>,
}

impl Host {
    /// Starts the threads: so many that serve clients, and some more. Each of the first ones calls `prepare`.
    ///
    /// # Errors
    ///
    /// With one line for people, if the system refuses a thread.
    pub(crate) fn start(threads: usize, prepare: fn()) -> Result<Arc<Host>, String> {
        let (runtime, rota) = runtime::runtime(threads, prepare)?;
        Ok(Arc::new(Host {
            threads,
            runtime: runtime.handle().clone(),
            rota,
            shared: Arc::default(),
            trimming: Once::new(),
            owned: Some(runtime),
        }))
    }

    /// Begins to give unused memory of the process back. Does nothing the second time.
    pub(crate) fn trim(&self) {
        self.trimming.call_once(|| drop(self.runtime.spawn(trimming::give_memory_back())));
    }

    /// Leaves the threads to the system, which ends them with the process.
    pub(crate) fn abandon(self: Arc<Host>) {
        if let Some(runtime) = Arc::into_inner(self).and_then(|mut host| host.owned.take()) {
            // No running task has work that must be finished.
            runtime.shutdown_background();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(runtime) = self.owned.take() {
            self.rota.close();
            runtime.shutdown_timeout(THREADS_PATIENCE);
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// What the instances of a process borrow from their host. An instance of its own has one of its own.
#[derive(Debug, Default)]
pub struct Shared {
    /// The thread that frees their large garbage.
    pub freeing: Freeing,
    visits: AtomicU64,
}

impl Shared {
    /// How often periodic work has woken up for one of the instances. Those that sleep are not visited.
    pub fn visits(&self) -> u64 {
        self.visits.load(Ordering::Relaxed)
    }

    /// Counts a visit.
    pub fn note_visit(&self) {
        self.visits.fetch_add(1, Ordering::Relaxed);
    }
}
