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
//!
//! Where several instances share the process, each may have an [`Account`]. What a thread takes and gives
//! back while it works for an instance ([`Account::charge`]) counts there, too. The sum over the process
//! stays what it is. A piece of memory counts for the account that was charged when it was taken; the
//! account that is charged when it is freed gets it back. So an instance's memory must be freed on its
//! account. Without accounts, counting costs nothing more.
//!
//! A program has one allocator, which it chooses itself. A program of others that has servers in it
//! (`keyfast::testing`) counts only if it chooses this one. If it does not, a limit of memory could never be
//! kept, so it is refused ([`is_counting`]).

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

pub(crate) use crate::platform::heap::taken_bytes;

/// Bytes that a thread may keep to itself, so the error of the sum for each thread.
const UNTOLD_BYTES_MAX: isize = 2 << 10;

static TOLD_BYTES: AtomicIsize = AtomicIsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: Local = const { Local::new() };
}

thread_local! {
    static ENDING: Ending = const { Ending };
}

/// Reports what the thread has counted when the thread ends.
struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            // What else the thread frees at its end is reported at once.
            local.untold_bytes_max.set(0);
            local.tell();
        });
    }
}

/// Has the calling thread report all that it has counted when it ends. Without this, the sum would be wrong
/// by up to [`UNTOLD_BYTES_MAX`] for each thread that has ended.
pub(crate) fn report_at_end() {
    ENDING.with(|_| ());
}

/// The count of one thread.
struct Local {
    /// Bytes that it has taken and not yet reported; below zero if it has given back more.
    untold_bytes: Cell<isize>,
    /// The number of such bytes at which it reports.
    untold_bytes_max: Cell<isize>,
    /// The account that it charges with them, if it works for one; null otherwise. [`Account::charge`] alone
    /// sets it, for as long as it borrows the account.
    account: Cell<*const Account>,
}

/// The bytes that one instance has taken from the system's allocator.
#[derive(Debug, Default)]
pub struct Account {
    told_bytes: AtomicIsize,
    peak_bytes: AtomicUsize,
}

/// The system's allocator, counted.
#[derive(Clone, Copy, Debug, Default)]
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

/// Whether the program's allocator is [`Counted`].
pub(crate) fn is_counting() -> bool {
    let untold = || LOCAL.with(|local| local.untold_bytes.get());
    let before = untold();
    let _piece = black_box(Box::new([0_u8; 64]));
    untold() != before
}

/// Why a limit of memory is refused where [`is_counting`] says no.
pub(crate) const COUNTS_NOTHING: &str = "this program does not count its memory, so no limit can \
     be kept. It counts with this line: #[global_allocator] static ALLOCATOR: keyfast::testing::Allocator \
     = keyfast::testing::Allocator;";

/// Bytes that are taken from the system's allocator.
pub fn used_bytes() -> usize {
    let used = usize::try_from(known_bytes()).unwrap_or(0);
    PEAK_BYTES.fetch_max(used, Ordering::Relaxed);
    used
}

/// Whether [`used_bytes`] are more than a limit. It costs some instructions, and no thread waits for another.
#[inline]
pub(crate) fn uses_more_than(limit_bytes: usize) -> bool {
    known_bytes() > isize::try_from(limit_bytes).unwrap_or(isize::MAX)
}

/// What all threads have reported, and what this one has not.
#[inline]
fn known_bytes() -> isize {
    TOLD_BYTES.load(Ordering::Relaxed) + LOCAL.with(|local| local.untold_bytes.get())
}

impl Account {
    /// Charges the account with what the calling thread takes while it runs `act`, and credits it with what
    /// the thread gives back. The account that was charged before is charged again afterwards.
    pub fn charge<T>(&self, act: impl FnOnce() -> T) -> T {
        let before = LOCAL.with(|local| local.charge(self));
        let _charging = Charging { before };
        act()
    }

    /// Bytes that were taken on this account and not given back.
    pub fn used_bytes(&self) -> usize {
        let used = usize::try_from(self.known_bytes()).unwrap_or(0);
        self.peak_bytes.fetch_max(used, Ordering::Relaxed);
        used
    }

    /// The most that [`used_bytes`](Self::used_bytes) has returned.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed).max(self.used_bytes())
    }

    /// Whether [`used_bytes`](Self::used_bytes) are more than a limit.
    pub fn uses_more_than(&self, limit_bytes: usize) -> bool {
        self.known_bytes() > isize::try_from(limit_bytes).unwrap_or(isize::MAX)
    }

    /// What all threads have reported, and what this one has not.
    fn known_bytes(&self) -> isize {
        let untold = LOCAL.with(|local| match ptr::eq(local.account.get(), self) {
            true => local.untold_bytes.get(),
            false => 0,
        });
        self.told_bytes.load(Ordering::Relaxed) + untold
    }
}

/// Does work on an account, if there is one.
#[inline]
pub(crate) fn charged<T>(account: Option<&Account>, act: impl FnOnce() -> T) -> T {
    match account {
        Some(account) => account.charge(act),
        None => act(),
    }
}

/// Charges the account again that was charged before, even if there was a panic.
struct Charging {
    before: *const Account,
}

impl Drop for Charging {
    fn drop(&mut self) {
        LOCAL.with(|local| local.charge(self.before));
    }
}

/// The most that [`used_bytes`] has returned.
pub(crate) fn peak_bytes() -> usize {
    PEAK_BYTES.load(Ordering::Relaxed).max(used_bytes())
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
        Local {
            untold_bytes: Cell::new(0),
            untold_bytes_max: Cell::new(UNTOLD_BYTES_MAX),
            account: Cell::new(ptr::null()),
        }
    }

    /// Charges another account from now on, or none. Returns the one before.
    fn charge(&self, account: *const Account) -> *const Account {
        // What was taken until now belongs to the one before.
        self.tell();
        self.account.replace(account)
    }

    #[inline]
    fn tell_if_much(&self) {
        if self.untold_bytes.get().abs() >= self.untold_bytes_max.get() {
            self.tell();
        }
    }

    fn tell(&self) {
        let untold = self.untold_bytes.replace(0);
        TOLD_BYTES.fetch_add(untold, Ordering::Relaxed);
        // SAFETY: the pointer is null, or `Account::charge` borrows the account until it has replaced it.
        if let Some(account) = unsafe { self.account.get().as_ref() } {
            account.told_bytes.fetch_add(untold, Ordering::Relaxed);
        }
    }
}

/// As long as this is there, the thread counts what it takes for itself alone; see [`hold_back`].
#[derive(Debug)]
pub(crate) struct HeldBack {
    /// Another thread has a count of its own.
    _of_this_thread: PhantomData<*const ()>,
}

/// Hides from other threads what this one takes from now on, until the returned value is dropped; then they
/// see only what it has not given back.
#[inline]
pub(crate) fn hold_back() -> HeldBack {
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
    fn an_account_is_charged_with_what_is_taken_for_it_and_no_more() {
        let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let layout = Layout::from_size_align(1 << 20, 1).unwrap();
        // SAFETY: the size is not zero.
        let take = || unsafe { Counted.alloc(layout) };
        // SAFETY: each pointer is given back once, with the layout it was got with.
        let give_back = |pointer| unsafe { Counted.dealloc(pointer, layout) };
        let (one, other, all) = (Account::default(), Account::default(), used_bytes() as isize);
        let piece = taken_bytes(1 << 20);
        let (outer, inner) = one.charge(|| {
            let outer = take();
            assert_eq!((one.used_bytes(), other.used_bytes()), (piece, 0));
            let inner = other.charge(|| (take(), other.used_bytes()));
            assert_eq!((inner.1, one.used_bytes()), (piece, piece), "it is charged again");
            (outer, inner.0)
        });
        let uncharged = take();
        assert_eq!((one.used_bytes(), other.used_bytes()), (piece, piece));
        assert_eq!(used_bytes() as isize - all, 3 * piece as isize, "the sum is that of the process");
        assert!(one.uses_more_than(piece - 1) && !one.uses_more_than(piece));
        let fault = || one.charge(|| panic!("a fault"));
        assert!(std::panic::catch_unwind(fault).is_err());
        give_back(uncharged);
        one.charge(|| give_back(outer));
        other.charge(|| give_back(inner));
        assert_eq!((one.used_bytes(), other.used_bytes(), one.peak_bytes()), (0, 0, piece));
        assert_eq!(used_bytes() as isize, all);
    }
}
