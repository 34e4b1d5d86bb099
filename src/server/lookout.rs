//! Sees to it that clients are served while a thread is busy with one of them.
//!
//! Of the threads that wait for work, one waits for the sockets, and the others for that one to wake them.
//! When it gets a request it looks at no socket until it has executed it, and so does no other thread: with a
//! request that takes long, all clients wait although threads are idle. So a thread of its own looks every
//! [`GLANCE`] whether a thread is still busy with the same batch of requests as the last time, and then wakes
//! another, which finds the sockets unattended and waits for them itself. While there are no requests it
//! sleeps, and costs nothing; a batch costs two stores.
//!
//! What is known to take long from the beginning [hands over](hand_over) the clients of its thread before:
//! then these are served even where there is only one thread.

use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::thread::{self, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// How often to look at the threads. A thread that is busy for two glances in a row is busy for at least one.
const GLANCE: Duration = Duration::from_millis(2);
/// Glances without a request after which the lookout goes to sleep.
const QUIET_GLANCES: u32 = 10;

/// Who looks after the threads of a runtime.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    seats: Mutex<Vec<Weak<Seat>>>,
    /// Whether it has to be woken; looked at by every thread for every batch.
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// A thread that serves clients.
#[derive(Debug)]
struct Seat {
    lookout: Arc<Lookout>,
    /// The number of its last batch, twice; one more while it is busy with it.
    batch: AtomicU64,
}

thread_local! {
    static SEAT: OnceCell<Arc<Seat>> = const { OnceCell::new() };
}

/// The lookout ends with the last thread, so it must see that this one does.
impl Drop for Seat {
    fn drop(&mut self) {
        self.lookout.wake();
    }
}

/// A thread is busy with a batch as long as this lives.
struct Busy<'a>(&'a Seat);

impl Lookout {
    /// Has the thread that calls this looked after, to its end.
    pub(super) fn adopt_thread(self: &Arc<Self>) {
        let seat = Arc::new(Seat { lookout: Arc::clone(self), batch: AtomicU64::new(0) });
        let mut seats = self.seats.lock();
        // Threads come and go.
        seats.retain(|seat| seat.strong_count() > 0);
        seats.push(Arc::downgrade(&seat));
        SEAT.with(|own| drop(own.set(seat)));
    }

    /// Begins to look after the threads of a runtime.
    ///
    /// # Errors
    ///
    /// If there can be no thread for it.
    pub(super) fn start(self: Arc<Self>, runtime: Handle) -> io::Result<()> {
        let lookout = Arc::clone(&self);
        let started =
            thread::Builder::new().name("lookout".to_owned()).spawn(move || lookout.look(&runtime))?;
        // It is awake until it has seen that nothing happens, and that takes longer.
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
                // The runtime has ended, and its threads with it.
                return;
            }
            let was_seen = |(seat, batch): &(Weak<Seat>, u64)| {
                seen.iter().any(|(other, before)| batch == before && seat.ptr_eq(other))
            };
            let has_happened = now.iter().any(|both| both.1 % 2 == 1 || !was_seen(both));
            if now.iter().any(|both| both.1 % 2 == 1 && was_seen(both)) {
                // Whichever idle thread runs this looks after the sockets next.
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
                // What began before this could be seen is seen by the next glance.
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

    /// Says that the thread is busy with a batch, or with none any more.
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

/// Serves clients: another thread sees to the sockets if this takes long.
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

/// Lets another thread serve the clients of this one, which goes on with what it does. Nothing happens on a
/// thread that serves none, or that has handed them over already.
pub(super) fn hand_over() {
    /// How long a thread may take to begin; without one, the clients wait for this one.
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
    // The thread that runs this task has taken them over. Back before that, this thread would keep them.
    let (begun, taken_over) = mpsc::channel();
    tokio::spawn(async move { begun.send(()) });
    let _ = block_in_place(|| taken_over.recv_timeout(PATIENCE));
}
