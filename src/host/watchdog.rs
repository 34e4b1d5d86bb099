//! Makes sure that clients are served while a thread is busy with one of them.
//!
//! Of the idle threads, one waits for the sockets, and the others wait for that one to wake them. When it
//! gets a request, no thread watches the sockets until the request is done. So during a long request all
//! clients would wait although threads are idle. A separate thread, the watchdog, checks every [`GLANCE`]
//! whether a thread is still busy with the same client. Then it has that thread relieved: one more server
//! task ([`Rota`]) runs on an idle thread, which then watches the sockets. A thread that has merely lost its
//! core to another program is not relieved: the clients behind its client would overtake it. Without requests
//! the watchdog sleeps, and costs nothing; serving a client costs two stores.
//!
//! Work that is known to take long [hands over](hand_over) the thread's clients before it begins. Then they
//! are served even if all threads are busy.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::rota::{Rota, Task};
use crate::platform::thread_clock::ThreadClock;

/// The interval between two checks. A thread that is busy in two checks has been busy for at least one
/// interval.
const GLANCE: Duration = Duration::from_millis(2);
/// A thread that is busy with the same client, and has computed this much since the first check that found it
/// so, is stuck. One that waits for a core computes nothing.
const STUCK_AFTER: Duration = Duration::from_millis(1);
/// One that is busy for this number of checks is stuck whether it computes or not: it may wait for a disk.
const STUCK_GLANCES: u32 = 25;
/// Checks without a request after which the watchdog sleeps.
const QUIET_GLANCES: u32 = 10;
/// Threads of the runtime that are idle until others are stuck, and with them the server tasks that the
/// watchdog adds. Long requests have threads of their own, so few get stuck: with a script, or in a request
/// that takes longer than was to be expected.
pub(crate) const SPARE_THREADS: usize = 2;

/// Watches the threads of a runtime.
#[derive(Debug)]
pub(crate) struct Watchdog {
    rota: Arc<Rota>,
    threads: Mutex<Vec<Weak<Watched>>>,
    /// Whether the watchdog sleeps, so that it must be woken. Every thread reads this for every client.
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// A thread that serves clients.
#[derive(Debug)]
struct Watched {
    watchdog: Arc<Watchdog>,
    /// Twice the number of clients that it has served, plus one while it is busy with the next.
    served: AtomicU64,
    /// Whether a server task was added in place of the one that it runs.
    is_relieved: AtomicBool,
    /// For how long the thread has computed, if the system has such a clock.
    clock: Option<ThreadClock>,
}

/// A thread as a check of the watchdog has found it.
struct Seen {
    thread: Weak<Watched>,
    /// Its [`Watched::served`] at that moment.
    served: u64,
    /// In how many checks before it was busy with the same client.
    glances: u32,
    /// For how long it had computed when it was busy in the second one.
    computed: Option<Duration>,
}

thread_local! {
    static WATCHED: OnceCell<Arc<Watched>> = const { OnceCell::new() };
}

/// The watchdog ends after the last thread, so it must notice that this thread ends.
impl Drop for Watched {
    fn drop(&mut self) {
        self.watchdog.wake();
    }
}

impl Watchdog {
    /// Watches threads that serve the clients of a rota.
    pub(crate) fn new(rota: Arc<Rota>) -> Watchdog {
        let (is_asleep, thread) = (AtomicBool::new(false), OnceLock::new());
        Watchdog { rota, threads: Mutex::default(), is_asleep, thread }
    }

    /// Registers the calling thread, until the thread ends.
    pub(crate) fn adopt_thread(self: &Arc<Self>) {
        let (served, is_relieved) = (AtomicU64::new(0), AtomicBool::new(false));
        let clock = ThreadClock::of_this_thread();
        let watched = Arc::new(Watched { watchdog: Arc::clone(self), served, is_relieved, clock });
        let mut threads = self.threads.lock();
        // Threads come and go.
        threads.retain(|thread| thread.strong_count() > 0);
        threads.push(Arc::downgrade(&watched));
        WATCHED.with(|own| drop(own.set(watched)));
    }

    /// Starts the watchdog for a runtime.
    ///
    /// # Errors
    ///
    /// If its thread cannot start.
    pub(crate) fn start(self: Arc<Self>, runtime: Handle) -> io::Result<()> {
        let watchdog = Arc::clone(&self);
        let started =
            thread::Builder::new().name("watchdog".to_owned()).spawn(move || watchdog.look(&runtime))?;
        // It cannot miss the handle: it stays awake longer than this takes.
        let _ = self.thread.set(started.thread().clone());
        Ok(())
    }

    fn look(&self, runtime: &Handle) {
        let mut seen: Vec<Seen> = Vec::new();
        let mut quiet = 0;
        loop {
            thread::park_timeout(GLANCE);
            let threads = self.threads.lock();
            let now: Vec<Seen> = threads.iter().filter_map(|thread| Watched::look(thread, &seen)).collect();
            if now.is_empty() && !threads.is_empty() {
                // The runtime has ended with all its threads.
                return;
            }
            drop(threads);
            let is_known = |thread: &Seen| seen.iter().any(|other| other.is_as(thread));
            let has_happened = now.iter().any(|thread| thread.is_busy() || !is_known(thread));
            let stuck: Vec<_> = now.iter().filter_map(Seen::if_stuck).collect();
            if !stuck.is_empty() && !stuck.iter().fold(false, |any, thread| thread.relieve() | any) {
                // Each is relieved already. The idle thread that runs this task then watches the sockets.
                runtime.spawn(async {});
            }
            drop(stuck);
            seen = now;
            if has_happened {
                self.is_asleep.store(false, Ordering::SeqCst);
                quiet = 0;
                continue;
            }
            quiet += 1;
            match quiet {
                0..QUIET_GLANCES => {}
                // A client whose turn began before this store is seen in the next check.
                QUIET_GLANCES => self.is_asleep.store(true, Ordering::SeqCst),
                _ => {
                    while self.is_asleep.load(Ordering::SeqCst) {
                        thread::park();
                    }
                    quiet = 0;
                }
            }
        }
    }

    #[cold]
    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Seen {
    fn is_busy(&self) -> bool {
        self.served % 2 == 1
    }

    /// Whether this is the same thread, and it has served nothing in between.
    fn is_as(&self, other: &Seen) -> bool {
        self.served == other.served && self.thread.ptr_eq(&other.thread)
    }

    /// The thread, if it is stuck with its client.
    fn if_stuck(&self) -> Option<Arc<Watched>> {
        let thread = (self.glances > 0).then(|| self.thread.upgrade()).flatten()?;
        let computed = match (self.computed, thread.computed()) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            // The system does not say.
            _ => STUCK_AFTER,
        };
        (computed >= STUCK_AFTER || self.glances >= STUCK_GLANCES).then_some(thread)
    }
}

impl Watched {
    fn look(thread: &Weak<Watched>, seen: &[Seen]) -> Option<Seen> {
        let watched = thread.upgrade()?;
        let served = watched.served.load(Ordering::Relaxed);
        let mut now = Seen { thread: Weak::clone(thread), served, glances: 0, computed: None };
        if let Some(before) = seen.iter().find(|before| before.is_as(&now) && now.is_busy()) {
            now.glances = before.glances + 1;
            now.computed = before.computed.or_else(|| watched.computed());
        }
        Some(now)
    }

    /// For how long the thread has computed in all; `None` if the system does not say.
    fn computed(&self) -> Option<Duration> {
        self.clock.as_ref()?.computed()
    }

    /// Notes that the thread is busy with a client, or no longer.
    #[inline]
    fn set_busy(&self, is_busy: bool) {
        let last = self.served.load(Ordering::Relaxed) & !1;
        self.served.store(if is_busy { last + 3 } else { last }, Ordering::Relaxed);
    }

    /// Adds a server task in place of the one that this thread runs, unless it has one already. Returns
    /// whether one was added.
    fn relieve(&self) -> bool {
        if self.is_relieved.swap(true, Ordering::SeqCst) {
            return false;
        }
        let is_added = self.watchdog.rota.relieve(SPARE_THREADS, || ());
        if !is_added {
            self.is_relieved.store(false, Ordering::SeqCst);
        }
        is_added
    }
}

/// Serves a client. If that takes long, another thread serves the others and watches the sockets. Returns
/// whether a server task was added for it, so that one is to end.
#[inline]
pub(crate) fn watched(task: Arc<Task>) -> bool {
    WATCHED.with(|watched| {
        let Some(watched) = watched.get() else {
            task.run();
            return false;
        };
        watched.set_busy(true);
        if watched.watchdog.is_asleep.load(Ordering::Relaxed) {
            watched.watchdog.wake();
        }
        task.run();
        watched.set_busy(false);
        watched.is_relieved.load(Ordering::Relaxed) && watched.is_relieved.swap(false, Ordering::SeqCst)
    })
}

/// Lets another thread serve the clients of this one, which continues its work. Has no effect on a thread
/// that serves no clients, or that has handed them over already.
pub(crate) fn hand_over() {
    /// How long the other thread may take to begin. If it does not, the clients wait for this one.
    const PATIENCE: Duration = Duration::from_secs(1);
    let (begun, taken_over) = mpsc::channel();
    let begun = move || {
        let _ = begun.send(());
    };
    let is_handed_over = WATCHED.with(|watched| {
        let Some(watched) = watched.get() else { return false };
        let is_busy = watched.served.load(Ordering::Relaxed) % 2 == 1;
        if !is_busy {
            return false;
        }
        watched.set_busy(false);
        let is_relieved = watched.is_relieved.swap(true, Ordering::SeqCst);
        if is_relieved || !watched.watchdog.rota.relieve(usize::MAX, begun.clone()) {
            watched.is_relieved.store(is_relieved, Ordering::SeqCst);
            tokio::spawn(async move { begun() });
        }
        true
    });
    if is_handed_over {
        // The thread that sends this has taken over. If this thread came back earlier, it would keep them.
        let _ = block_in_place(|| taken_over.recv_timeout(PATIENCE));
    }
}
