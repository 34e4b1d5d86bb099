//! Ends long work whose result no client waits for any more, and work that was to be brief and is not.
//!
//! [`while_wanted`] and [`for_a_moment`] run the work; loops that may be long call [`check`] now and then. If
//! the result is no longer wanted, or the moment is over, `check` unwinds the stack up to them, as a panic
//! would, but without a message. So only work that owns all that it changes may run like this: what it leaves
//! half done is thrown away with it. Elsewhere `check` does nothing.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// The work was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancelled;

/// Whether the result is still wanted is asked at this interval.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long work may take that was to be brief: much longer than nearly all of it does, and so short that
/// dozens of clients with such work delay the others by some hundredths of a second.
const MOMENT: Duration = Duration::from_micros(500);
/// After this number of checks the clock is read.
const CHECKS: u32 = 32;

/// The work that this thread does.
struct Work {
    is_wanted: Box<dyn FnMut() -> bool>,
    /// When it began, or when it was asked last whether the work is wanted.
    asked: Instant,
    interval: Duration,
}

thread_local! {
    /// How many checks are left until the clock is read; 0 while there is no work that may be cancelled.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    static WORK: RefCell<Option<Work>> = const { RefCell::new(None) };
}

/// Runs work for as long as `is_wanted` returns true. It must own what it changes.
pub(crate) fn while_wanted<T>(
    is_wanted: impl FnMut() -> bool + 'static,
    work: impl FnOnce() -> T,
) -> Result<T, Cancelled> {
    run(Box::new(is_wanted), INTERVAL, work)
}

/// Runs work unless it takes longer than a moment. It must own what it changes.
pub(crate) fn for_a_moment<T>(work: impl FnOnce() -> T) -> Result<T, Cancelled> {
    run(Box::new(|| false), MOMENT, work)
}

fn run<T>(
    is_wanted: Box<dyn FnMut() -> bool>,
    interval: Duration,
    work: impl FnOnce() -> T,
) -> Result<T, Cancelled> {
    /// Ends also where the work panics.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            LEFT.set(0);
            WORK.set(None);
        }
    }
    WORK.set(Some(Work { is_wanted, asked: Instant::now(), interval }));
    LEFT.set(CHECKS);
    let _ended = Ended;
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match panic.downcast::<Cancelled>() {
        Ok(cancelled) => *cancelled,
        Err(panic) => resume_unwind(panic),
    })
}

/// Does not return if the work of this thread is no longer wanted. Costs some instructions.
#[inline]
pub(crate) fn check() {
    match LEFT.get() {
        0 => {}
        1 => ask(),
        left => LEFT.set(left - 1),
    }
}

#[cold]
fn ask() {
    LEFT.set(CHECKS);
    if thread::panicking() {
        return;
    }
    let is_wanted = WORK.with_borrow_mut(|work| {
        let Some(work) = work.as_mut() else { return true };
        let now = Instant::now();
        if now - work.asked < work.interval {
            return true;
        }
        work.asked = now;
        (work.is_wanted)()
    });
    if !is_wanted {
        resume_unwind(Box::new(Cancelled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks without end, if nothing cancels it.
    fn check_for_ever() {
        loop {
            check();
        }
    }

    #[test]
    fn work_ends_when_it_is_no_longer_wanted_and_only_then() {
        let mut times = 3;
        let is_wanted = move || {
            times -= 1;
            times > 0
        };
        assert_eq!(while_wanted(is_wanted, check_for_ever), Err(Cancelled));
        assert_eq!(while_wanted(|| true, || (0..10_000).for_each(|_| check())), Ok(()));
        assert_eq!(for_a_moment(check_for_ever), Err(Cancelled));
        // Nothing is left of the work: this ends by itself.
        assert_eq!(while_wanted(|| false, || 7), Ok(7));
        assert_eq!(for_a_moment(|| (0..CHECKS - 1).for_each(|_| check())), Ok(()));
        (0..10_000).for_each(|_| check());
    }

    #[test]
    fn a_fault_of_the_work_stays_one() {
        let failed = catch_unwind(|| while_wanted(|| true, || panic!("a fault")));
        assert!(failed.is_err() && LEFT.get() == 0);
    }
}
