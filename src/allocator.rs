//! The system's allocator, with a count of what is taken from it: `used_memory` of INFO, which `maxmemory`
//! limits.
//!
//! Every allocation is counted with the rounding of the C library, so that the sum stays near to what the
//! system sees whatever the sizes are; a sum over the keyspace alone would miss buffers, tables and clients.
//! Each thread counts for itself and adds to the common sum only when its own count is large, so that
//! counting costs a handful of instructions an allocation and threads do not wait for each other.
//!
//! A thread that executes requests reports nothing before it is done with them ([`hold_back`]): what a
//! command takes for a moment and gives back must not make another client's write free keys.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Bytes that a thread may keep to itself, so the error of the sum for each thread.
const UNTOLD_BYTES_MAX: isize = 2 << 10;

static TOLD_BYTES: AtomicIsize = AtomicIsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

/// The count of one thread.
struct Local {
    /// Bytes that it has taken and not yet reported; below zero if it has given back more.
    untold_bytes: Cell<isize>,
    /// The number of such bytes at which it reports.
    untold_bytes_max: Cell<isize>,
}

/// The system's allocator, counted.
#[derive(Debug)]
pub struct Counted;

// SAFETY: every method hands its arguments on to the system's allocator, whose contract is the same, and
// touches nothing else but counters, which allocate nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-taken(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(taken(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(taken(bytes) - taken(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Bytes that are taken from the system's allocator.
pub fn used_bytes() -> usize {
    let used = usize::try_from(known_bytes()).unwrap_or(0);
    PEAK_BYTES.fetch_max(used, Ordering::Relaxed);
    used
}

/// Whether [`used_bytes`] are more than a limit. It costs some instructions, and no thread waits for another.
#[inline]
pub fn uses_more_than(limit_bytes: usize) -> bool {
    known_bytes() > isize::try_from(limit_bytes).unwrap_or(isize::MAX)
}

/// What all threads have reported, and what this one has not.
#[inline]
fn known_bytes() -> isize {
    TOLD_BYTES.load(Ordering::Relaxed) + LOCAL.with(|local| local.untold_bytes.get())
}

/// The most that [`used_bytes`] has returned.
pub fn peak_bytes() -> usize {
    PEAK_BYTES.load(Ordering::Relaxed).max(used_bytes())
}

/// Has the C library put what is freed together at once; called when the program starts.
///
/// By default it lays small pieces aside and puts all of them together some time later, in one go: after a
/// million keys had expired some client waited 54 to 72 ms for that, and 9 ms without.
pub fn prepare() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function may be called at any time; an unknown parameter is refused.
    unsafe {
        libc::mallopt(libc::M_MXFAST, 0);
    }
}

/// Has the C library take all memory from one arena, for a process of which one thread does all the work.
pub fn use_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function may be called at any time; an unknown parameter is refused.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives memory that is free back to the system, where the C library can.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What an allocation of `bytes` takes: the C library puts eight bytes before it, rounds up to sixteen, and
/// gives large ones pages of their own.
#[inline]
pub fn taken_bytes(bytes: usize) -> usize {
    const LEAST: usize = 32;
    const OWN_PAGES_FROM: usize = 128 << 10;
    const PAGE: usize = 4096;
    if bytes < OWN_PAGES_FROM {
        ((bytes + 8 + 15) & !15).max(LEAST)
    } else {
        (bytes + 16).next_multiple_of(PAGE)
    }
}

#[inline]
fn taken(bytes: usize) -> isize {
    taken_bytes(bytes) as isize
}

#[inline]
fn count(bytes: isize) {
    LOCAL.with(|local| {
        local.untold_bytes.set(local.untold_bytes.get() + bytes);
        local.tell_if_much();
    });
}

impl Local {
    const fn new() -> Local {
        Local { untold_bytes: Cell::new(0), untold_bytes_max: Cell::new(UNTOLD_BYTES_MAX) }
    }

    #[inline]
    fn tell_if_much(&self) {
        let untold = self.untold_bytes.get();
        if untold.abs() >= self.untold_bytes_max.get() {
            TOLD_BYTES.fetch_add(untold, Ordering::Relaxed);
            self.untold_bytes.set(0);
        }
    }
}

/// As long as this is there, the thread counts what it takes for itself alone; see [`hold_back`].
#[derive(Debug)]
pub struct HeldBack {
    /// Another thread has a count of its own.
    _of_this_thread: PhantomData<*const ()>,
}

/// Hides from other threads what this one takes from now on, until the returned value is dropped; then they
/// see only what it has not given back.
#[inline]
pub fn hold_back() -> HeldBack {
    LOCAL.with(|local| local.untold_bytes_max.set(isize::MAX));
    HeldBack { _of_this_thread: PhantomData }
}

impl Drop for HeldBack {
    #[inline]
    fn drop(&mut self) {
        LOCAL.with(|local| {
            local.untold_bytes_max.set(UNTOLD_BYTES_MAX);
            local.tell_if_much();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// The tests that count, one at a time: what one takes, the other would see.
    static COUNTING: Mutex<()> = Mutex::new(());

    #[test]
    fn what_is_taken_and_given_back_is_counted() {
        let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = Layout::from_size_align(1 << 20, 1).unwrap();
        let before = used_bytes() as isize;
        // SAFETY: the size is not zero, and each pointer is given back with the layout it was got with.
        unsafe {
            let pointer = Counted.alloc(layout);
            assert_eq!(used_bytes() as isize - before, taken(1 << 20));
            let pointer = Counted.realloc(pointer, layout, 2 << 20);
            assert_eq!(used_bytes() as isize - before, taken(2 << 20));
            Counted.dealloc(pointer, Layout::from_size_align(2 << 20, 1).unwrap());
        }
        assert_eq!(used_bytes() as isize, before);
    }

    #[test]
    fn what_is_taken_for_a_moment_is_not_seen_by_another_thread() {
        let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let other_sees = || std::thread::spawn(used_bytes).join().unwrap() as isize;
        let layout = Layout::from_size_align(64 << 20, 1).unwrap();
        let (own, before) = (used_bytes() as isize, other_sees());
        let held_back = hold_back();
        // SAFETY: the size is not zero, and the pointer is given back with the layout it was got with.
        let (passing, lasting) = unsafe { (Counted.alloc(layout), Counted.alloc(layout)) };
        assert_eq!(used_bytes() as isize - own, 2 * taken(64 << 20), "its own thread sees both");
        assert!((other_sees() - before).abs() < 4 << 20);
        // SAFETY: as above.
        unsafe { Counted.dealloc(passing, layout) };
        drop(held_back);
        assert!((other_sees() - before - (64 << 20)).abs() < 4 << 20);
        // SAFETY: as above.
        unsafe { Counted.dealloc(lasting, layout) };
    }

    #[test]
    fn sizes_are_rounded_as_the_c_library_does() {
        for (bytes, taken) in [(1, 32), (24, 32), (25, 48), (56, 64), (57, 80), (200_000, 200_704)] {
            assert_eq!(taken_bytes(bytes), taken, "{bytes}");
        }
    }
}
