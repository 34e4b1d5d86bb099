//! The threads that serve clients.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, available_parallelism};

use tokio::runtime::{Builder, Runtime};

use super::rota::{Rota, STACK_BYTES};
use super::watchdog::{SPARE_THREADS, Watchdog, watched};
use crate::allocator::report_at_end;
use crate::config::Config;

/// Memory that there must be before a thread is asked for: its stack, and room for what it takes when it
/// starts. It is above 32 MiB, so that glibc takes it from the system and gives it back at once. glibc lets
/// freed memory of less move its threshold for doing so.
const THREAD_ROOM_BYTES: usize = STACK_BYTES + (25 << 20);

/// The number of threads: `io-threads`, or the number of cores that this process may use.
pub(crate) fn threads(config: &Config) -> usize {
    match config.io_threads.size() {
        0 => available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// The number of threads for long requests, beside this number of threads for all clients: half as many, so
/// that the cores have time for the others.
fn long_threads(threads: usize) -> usize {
    (threads / 2).max(1)
}

/// The threads that serve clients, and the clients that they serve. The first threads call `prepare`. A
/// single thread has the multi-thread scheduler, too: only that can hand over a thread's clients.
pub(super) fn runtime(threads: usize, prepare: fn()) -> Result<(Runtime, Arc<Rota>), String> {
    let built = try_threads(threads + SPARE_THREADS).and_then(|()| build_runtime(threads, prepare));
    built.map_err(|error| match error.kind() {
        // The system says no more than "Resource temporarily unavailable".
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            "cannot start a thread: the user's limit of processes (ulimit -u) or of \
                                      memory (ulimit -v) is reached"
                .to_owned()
        }
        _ => format!("could not start the threads: {error}"),
    })
}

/// Starts as many threads as the runtime will, and ends them. The runtime itself panics if the system refuses
/// a thread, and the C library ends the process if a thread has started and there is no memory left for what
/// belongs to it. So there is memory for more than its stack before a thread is asked for, and it has started
/// before the next one is. The locks are those of the standard library: waiting for them takes no memory.
fn try_threads(count: usize) -> io::Result<()> {
    let (started, changed) = (Mutex::new(0), Condvar::new());
    let gate = Mutex::new(());
    thread::scope(|scope| {
        // All of them wait until the last one has started.
        let _held = gate.lock();
        for number in 1..=count {
            let mut room = Vec::<u8>::new();
            // It is not touched, so it takes no memory but addresses. The compiler must not leave it out.
            room.try_reserve_exact(THREAD_ROOM_BYTES)?;
            drop(black_box(room));
            let builder = thread::Builder::new().stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, || {
                *started.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                changed.notify_one();
                drop(gate.lock());
            })?;
            let waiting = started.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_while(waiting, |started| *started < number));
        }
        Ok(())
    })
}

fn build_runtime(threads: usize, prepare: fn()) -> io::Result<(Runtime, Arc<Rota>)> {
    let rota = Arc::new(Rota::new(threads, long_threads(threads), watched));
    let watchdog = Arc::new(Watchdog::new(Arc::clone(&rota)));
    let adopting = Arc::clone(&watchdog);
    let unprepared = AtomicUsize::new(threads + SPARE_THREADS);
    let runtime = Builder::new_multi_thread()
        .worker_threads(threads + SPARE_THREADS)
        .thread_stack_size(STACK_BYTES)
        .on_thread_start(move || {
            report_at_end();
            adopting.adopt_thread();
            // The first threads may serve clients; later ones come and go.
            let one_less = |threads: usize| threads.checked_sub(1);
            if unprepared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                prepare();
            }
        })
        .enable_all()
        .build()?;
    watchdog.start(runtime.handle().clone())?;
    rota.start(runtime.handle());
    Ok((runtime, rota))
}
