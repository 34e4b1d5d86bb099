//! Makes sure that clients are served while a thread is busy with one of them.
//!
//! Of the idle threads, one waits for the sockets, and the others wait for that one to wake them. When it
//! gets a request, no thread watches the sockets until the request is done. So during a long request all
//! clients would wait although threads are idle. A separate thread, the lookout, checks every [`GLANCE`]
//! whether a thread is still busy with the same batch of requests. Then it wakes another thread, which
//! watches the sockets. Without requests the lookout sleeps, and costs nothing; a batch costs two stores.
//!
//! Work that is known to take long [hands over](hand_over) the thread's clients before it begins. Then they
//! are served even if there is only one thread.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// The interval between two checks. A thread that is busy in two checks has been busy for at least one
/// interval.
const GLANCE: Duration = Duration::from_millis(2);
/// Checks without a request after which the lookout sleeps.
const QUIET_GLANCES: u32 = 10;

/// Watches the threads of a runtime.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    seats: Mutex<Vec<Weak<Seat>>>,
    /// Whether the lookout sleeps, so that it must be woken. Every thread reads this for every batch.
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// A thread that serves clients.
#[derive(Debug)]
struct Seat {
    lookout: Arc<Lookout>,
    /// Twice the number of its last batch, plus one while it is busy with that batch.
    batch: AtomicU64,
}

thread_local! {
    static SEAT: OnceCell<Arc<Seat>> = const { OnceCell::new() };
}

/// The lookout ends after the last thread, so it must notice that this thread ends.
impl Drop for Seat {
    fn drop(&mut self) {
        self.lookout.wake();
    }
}

/// While this exists, a thread is busy with a batch.
struct Busy<'a>(&'a Seat);

impl Lookout {
    /// Registers the calling thread, until the thread ends.
    pub(super) fn adopt_thread(self: &Arc<Self>) {
        let seat = Arc::new(Seat { lookout: Arc::clone(self), batch: AtomicU64::new(0) });
        let mut seats = self.seats.lock();
        // Threads come and go.
        seats.retain(|seat| seat.strong_count() > 0);
        seats.push(Arc::downgrade(&seat));
        SEAT.with(|own| drop(own.set(seat)));
    }

    /// Starts the lookout for a runtime.
    ///
    /// # Errors
    ///
    /// If its thread cannot start.
    pub(super) fn start(self: Arc<Self>, runtime: Handle) -> io::Result<()> {
        let lookout = Arc::clone(&self);
        let started =
            thread::Builder::new().name("lookout".to_owned()).spawn(move || lookout.look(&runtime))?;
        // It cannot miss the handle: it stays awake longer than this takes.
        let _ = self.thread.set(started.thread().clone());
        Ok(())
    }

    fn look(&self, runtime: &Handle) {
        let mut seen: Vec<(Weak<Seat>, u64)> = Vec::new();
        let mut quiet = 0;
        loop {
            thread::park_timeout(GLANCE);
            let now: Vec<(Weak<Seat>, u64)> = self.seats.lock().iter().filter_map(Seat::look).collect();
            if now.is_empty() && !seen.is_empty() {
                // The runtime has ended with all its threads.
                return;
            }
            let was_seen = |(seat, batch): &(Weak<Seat>, u64)| {
                seen.iter().any(|(other, before)| batch == before && seat.ptr_eq(other))
            };
            let has_happened = now.iter().any(|both| both.1 % 2 == 1 || !was_seen(both));
            if now.iter().any(|both| both.1 % 2 == 1 && was_seen(both)) {
                // The idle thread that runs this task then watches the sockets.
                runtime.spawn(async {});
            }
            seen = now;
            if has_happened {
                self.is_asleep.store(false, Ordering::SeqCst);
                quiet = 0;
                continue;
            }
            quiet += 1;
            match quiet {
                0..QUIET_GLANCES => {}
                // A batch that began before this store is seen in the next check.
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

impl Seat {
    fn look(seat: &Weak<Seat>) -> Option<(Weak<Seat>, u64)> {
        let batch = seat.upgrade()?.batch.load(Ordering::Relaxed);
        Some((Weak::clone(seat), batch))
    }

    /// Notes that the thread is busy with a batch, or no longer.
    #[inline]
    fn set_busy(&self, is_busy: bool) {
        let last = self.batch.load(Ordering::Relaxed) & !1;
        self.batch.store(if is_busy { last + 3 } else { last }, Ordering::Relaxed);
    }
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set_busy(false);
    }
}

/// Serves clients. If that takes long, another thread watches the sockets.
#[inline]
pub(super) fn serve<T>(batch: impl FnOnce() -> T) -> T {
    SEAT.with(|seat| {
        let _busy = seat.get().map(|seat| {
            seat.set_busy(true);
            if seat.lookout.is_asleep.load(Ordering::Relaxed) {
                seat.lookout.wake();
            }
            Busy(seat)
        });
        batch()
    })
}

/// Lets another thread serve the clients of this one, which continues its work. Has no effect on a thread
/// that serves no clients, or that has handed them over already.
pub(super) fn hand_over() {
    /// How long the other thread may take to begin. If it does not, the clients wait for this one.
    const PATIENCE: Duration = Duration::from_secs(1);
    let is_busy = SEAT.with(|seat| {
        seat.get().is_some_and(|seat| {
            let is_busy = seat.batch.load(Ordering::Relaxed) % 2 == 1;
            seat.set_busy(false);
            is_busy
        })
    });
    if !is_busy {
        return;
    }
    // The thread that runs this task has taken over. If this thread came back earlier, it would keep them.
    let (begun, taken_over) = mpsc::channel();
    tokio::spawn(async move { begun.send(()) });
    let _ = block_in_place(|| taken_over.recv_timeout(PATIENCE));
}
